"""Whether nobody uses the driver, so that asking NVML would start every GPU for it and stop it again.

Without a client the driver leaves GPUs uninitialised unless persistence keeps them (NVIDIA Driver Persistence, "Background"): starting
eight takes seconds to a minute. Decided from sysfs and /proc alone.
"""

from gpudoctor.facts.persistence import COMM
from gpudoctor.facts.raw import Absent, Answer, Listing, Question, Raw, TextFile, decimal

MODULE = "/sys/module/nvidia"
IDLE = "no process holds a GPU, and asking would initialise them all for it"
"""With these words NVML is left alone; `health --ask-nvml` asks all the same."""


def why_idle(raw: Raw) -> str:
    """`IDLE` where nobody holds one of the driver's nodes, "" where somebody does or where that cannot be told.

    Each open node keeps a reference to the module (`owner` in nv.c's file operations; fs/char_dev.c, chrdev_open), and so does each
    module that stands on it (kernel/module/main.c, add_module_usage): what is more than those is a holder. nvidia-persistenced is one too.
    """
    references, modules = raw.read(f"{MODULE}/refcnt"), raw.listing(f"{MODULE}/holders")
    counted = decimal(references.text.strip()) if isinstance(references, TextFile) else None
    if counted is not None and isinstance(modules, Listing) and modules.complete:
        return IDLE if counted <= len(modules.names) else ""
    held = raw.answer("holders", lambda: Question("holders"))
    if not isinstance(held, Answer) or held.error is not None:
        return ""
    if held.data.get("holders") or held.data.get("hidden") or held.data.get("unmapped"):
        return ""
    return "" if _persistence_daemon(raw) else IDLE


def _persistence_daemon(raw: Raw) -> bool:
    """Whether the daemon runs, or may: it holds the nodes of the GPUs, which a namespace can hide."""
    for place in ("/run/nvidia-persistenced", "/var/run/nvidia-persistenced"):
        file = raw.read(f"{place}/nvidia-persistenced.pid")
        pid = decimal(file.text.strip()) if isinstance(file, TextFile) else None
        if pid is None:
            if isinstance(file, (Absent, TextFile)):
                continue
            return True
        comm = raw.read(f"/proc/{pid}/comm")
        if isinstance(comm, TextFile) and comm.text.strip() == COMM:
            return True
    return False
