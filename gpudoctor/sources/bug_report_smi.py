"""The answer behind the line about nvidia-smi in a report's head."""

from gpudoctor.facts.nvidia_smi import answer_from
from gpudoctor.facts.raw import Answer

IN_HEAD = "--query-gpu=name,driver_version,memory.total,vbios_version,pci.bus_id,serial --format=csv,noheader"
"""With these arguments the head's "NVIDIA GPU Details" are printed (run_query in nvidia-bug-report.sh, since 570)."""


def answer_of_head(details: str) -> Answer | None:
    """The answer where the head says that nvidia-smi failed; its rows of GPUs that answered lack the UUID."""
    failed, _, said = details.partition("Failed: ")
    return answer_from(IN_HEAD, said) if not failed and said else None
