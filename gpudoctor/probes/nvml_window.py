"""The second look: what a GPU that does not look well shows a moment later, so that a blip can be told from what lasts.

Part of the NVML worker: standard library only. Asked last of all, after one pause for all GPUs together; a node whose GPUs look well is
never asked twice.
"""

import time
from collections.abc import Sequence
from typing import Any

from gpudoctor.knowledge.clocks_events import UNHEALTHY
from gpudoctor.probes.nvml_details import FIELD_IDS, GPU, answers_to, by_id
from gpudoctor.probes.nvml_lists import nvlinks
from gpudoctor.probes.nvml_questions import QUESTIONS
from gpudoctor.probes.nvml_session import GPU_IS_LOST, Gpu, Lost

ACTIVE = "clocks_event.active"

WINDOW_SECONDS = 1.0
"""At least so long lies between the two looks at each GPU."""

RESERVE_SECONDS = 1.5
"""So much must be left after the pause for asking; otherwise there is no second look."""

_AGAIN = frozenset(
    f"""
    {ACTIVE} performance_state temperature.gpu_celsius temperature.tlimit_celsius power.draw_milliwatts clocks.sm_mhz
    utilization.gpu_percent pcie.replays pcie.generation pcie.width
    """.split()
)
# These count what every healthy link does: probing for absent functions, changing its speed to save power.
_NO_ERRORS = frozenset({"pcie.errors.unsupported_request", "pcie.l0_to_recovery"})

QUESTIONS_AGAIN = sorted(
    (question for question in QUESTIONS if not _AGAIN.isdisjoint(question.fields)),
    key=lambda question: ACTIVE not in question.fields,
)
"""The reasons come first."""

IDS_AGAIN = {
    name: field_id
    for name, field_id in FIELD_IDS[GPU].items()
    if name.startswith(("clocks_event.", "pcie.")) or name == "temperature.memory_celsius"
}
PCIE_ERRORS = tuple(
    name for name in ("pcie.replays", *IDS_AGAIN) if name.startswith("pcie.") and name not in _NO_ERRORS
)
"""Counters that stand at zero on a link without errors."""


def look_again(gpus: Sequence[Gpu]) -> None:
    """Ask the suspicious ones again after a pause, and say it as `later`, with the seconds since each was asked first."""
    suspects = [gpu for gpu in gpus if not gpu.lost and is_suspicious(gpu)]
    if not suspects:
        return
    session = suspects[0].session
    if session.until - time.monotonic() < WINDOW_SECONDS + RESERVE_SECONDS:
        session.note("no second look: not enough time was left")
        return
    session.flush()
    time.sleep(WINDOW_SECONDS)
    for gpu in suspects:
        if session.until - time.monotonic() < RESERVE_SECONDS / 2:
            session.note("no second look at some GPUs: not enough time was left")
            return
        _look(gpu)


def is_suspicious(gpu: Gpu) -> bool:
    """Whether its clocks are held down by heat or by a signal from outside, or an error counter of a link is not zero."""
    active = gpu.fields.get(ACTIVE)
    if isinstance(active, int) and active & UNHEALTHY:
        return True
    return any(_counts(gpu.fields.get(name)) for name in PCIE_ERRORS) or _has_link_errors(gpu)


def _counts(value: Any) -> bool:
    return isinstance(value, int) and value > 0


def _has_link_errors(gpu: Gpu) -> bool:
    return any(_counts(count) for link in gpu.links for count in link.get("errors", {}).values())


def _look(gpu: Gpu) -> None:
    later: dict[str, Any] = {"seconds": round(time.monotonic() - gpu.asked_at, 3), "fields": {}}
    try:
        for question in QUESTIONS_AGAIN:
            _keep(later, answers_to(gpu, question))
        _keep(later, by_id(gpu, GPU, IDS_AGAIN))
        links = nvlinks(gpu) if _has_link_errors(gpu) else None
        if links is not None:
            later["nvlinks"] = links
    except Lost:
        gpu.lost = True
    gpu.session.say(device={"pci_bus_id": gpu.address, "later": later})


def _keep(later: dict[str, Any], answers: dict[str, Any]) -> None:
    later["fields"].update(answers)
    if {"error": GPU_IS_LOST} in answers.values():
        raise Lost
