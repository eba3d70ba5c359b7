"""Kernel module: did the driver start the GPUs that it holds?"""

import re

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.module_trace import LOADING
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pci_state import PciState, PciStates, Region
from gpudoctor.facts.raw import Absent
from gpudoctor.knowledge.module_remedies import (
    INITIALISED,
    WINDOW,
    firmware_package,
    power,
    reset,
)
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unread,
    Verdict,
    Verdicts,
    Why,
)


@check(
    "kernel-module.adapter-initialised",
    link=Link.KERNEL_MODULE,
    over=PciGpus,
    needs={Link.PCIE},
    explained_by=("kernel-module.flavour-fits", "kernel-module.gsp-firmware"),
    title="The driver initialised every GPU",
)
def adapter_initialised(
    gpus: PciGpus, driver: DriverGpus, states: Reading[PciStates], log: Reading[KernelLog]
) -> Verdicts:
    """The module can hold a GPU and still fail to start it, at the first program that opens it; nvidia-smi then finds no devices.

    The kernel log says so in a line RmInitAdapter with codes, and mostly why in the lines before it: firmware file missing, GSP in a
    bad state, too small an address window. A GPU whose VBIOS version the driver shows has been started since, whatever the log says;
    one that nobody opened yet has not, and that is no fault.
    """
    for gpu in gpus:
        known = driver.gpus[gpu.address]
        if isinstance(known, Unread):
            yield _by_the_log(gpu, known, states, log)
        elif isinstance(known, Absent):
            yield NotApplicable(gpu, "the driver does not list it", (known.evidence,))
        elif known.initialised:
            yield Pass(gpu, "initialised", known.cite("initialised"))
        elif isinstance(log, Unread):
            yield log.about(gpu)
        else:
            yield _started(gpu, known, states, log)


_RM_INIT = pattern(
    r"NVRM: GPU \S+: RmInitAdapter failed|NVRM: \S*RmInitAdapter: Cannot initialize|rm_init_adapter failed"
)
LARGE_WINDOW_BYTES = 256 * 1024 * 1024
"""The size of BAR1 without Resizable BAR, which firmware gives with Above 4G Decoding only."""


class _Cause(Struct, frozen=True):
    """Why a GPU did not start: the driver's own words for it, and what to do; without remedies, reset the GPU."""

    name: str
    line: "re.Pattern[str]"
    remedies: tuple[Remedy, ...]


# osinit.c of open-gpu-kernel-modules for power, kernel_gsp.c for WPR2 and GSP, drivers/base/firmware_loader for the file; the one that
# needs the open modules comes from the proprietary module (NVIDIA/open-gpu-kernel-modules#862).
_CAUSES = (
    _Cause(
        "power",
        re.compile(r"GPU does not have the necessary power cables connected"),
        (power("kernel-module.adapter-initialised"),),
    ),
    _Cause("wpr2", re.compile(r"NVRM: .*WPR2"), ()),
    _Cause(
        "firmware",
        re.compile(r"Direct firmware load for nvidia/\S+ failed|NVRM: .*No firmware image found"),
        (firmware_package("kernel-module.adapter-initialised"), *INITIALISED[1:]),
    ),
    _Cause(
        "needs-open",
        re.compile(r"requires use of the NVIDIA open kernel modules"),
        INITIALISED,
    ),
    _Cause("gsp", re.compile(r"NVRM: .*GSP"), INITIALISED),
)


def _failures(gpu: PciGpu, log: KernelLog) -> list[Evidence]:
    """Since the module was loaded last: what failed before that may have been repaired by it."""
    return [line for line in log.since(LOADING).lines(_RM_INIT, gpu.address) if "failed" in line.shows]


def _by_the_log(gpu: PciGpu, unseen: Unread, states: Reading[PciStates], log: Reading[KernelLog]) -> Verdict:
    """Where nobody recorded what the driver shows, its messages tell: each try failed, and it had no more to say."""
    if unseen.why is not Why.NOT_RECORDED or isinstance(log, Unread):
        return unseen.about(gpu)
    failed, said = _failures(gpu, log), log.lines(_NVRM, gpu.address)
    if len(failed) < MOST_FIRST_TRIES or said[-1].shows != failed[-1].shows:
        return unseen.about(gpu)
    return _not_started(gpu, failed, states, log)


_NVRM = pattern(r"NVRM: ")
MOST_FIRST_TRIES = 3
"""A GPU can fail at first and start later, without a message; one that has failed so often and then ends the log has not."""


def _started(gpu: PciGpu, known: DriverGpu, states: Reading[PciStates], log: KernelLog) -> Verdict:
    failed = _failures(gpu, log)
    if not failed:
        return NotApplicable(gpu, "no program has opened it yet", known.cite("initialised"))
    return _not_started(gpu, failed, states, log)


def _not_started(gpu: PciGpu, failed: list[Evidence], states: Reading[PciStates], log: KernelLog) -> Verdict:
    # The driver says it twice; the line with the code says more.
    last = next((line for line in reversed(failed) if "(0x" in line.shows), failed[-1])
    words = last.shows
    others = re.compile(rf"^(?!.*{re.escape(gpu.address)}).*(?:RmInitAdapter|rm_init_adapter) failed")
    for cause in _CAUSES:
        # The driver does not say of which GPU these lines are: those around its failure are its own.
        if lines := log.before(words, cause.line, 24, others) or log.after(words, cause.line, most=6):
            summary = f"the driver could not initialise it: {lines[0].shows}"
            evidence = (last, *lines[:2])
            remedies = cause.remedies or reset(gpu.address)
            return Fail(gpu, summary, evidence, remedies, Breaks.SUBJECT, cause=f"rminit-{cause.name}")
    window = None if isinstance(states, Unread) else _small_window(states.by_address[gpu.address])
    summary = f"the driver could not initialise it: {words}"
    if window and _NO_WINDOW in words:
        mebibytes = window.size >> 20
        summary += f"; BAR{window.number} has {mebibytes} MiB, as without Above 4G Decoding and Resizable BAR"
        return Fail(
            gpu,
            summary,
            (last, *window.cite("region")),
            (WINDOW, INITIALISED[-1]),
            Breaks.SUBJECT,
            cause="rminit-small-window",
        )
    return Fail(gpu, summary, (last,), INITIALISED, Breaks.SUBJECT, cause="rminit-failed")


_NO_WINDOW = "(0x22:0x56:"
"""What boards with a large memory print whose firmware left both options off (NVIDIA/open-gpu-kernel-modules#862, #872)."""


def _small_window(state: PciState) -> Region | None:
    """The largest region, if it is small."""
    regions = () if isinstance(state.regions, Unread) else state.regions or ()
    largest = max(regions, key=lambda region: region.size, default=None)
    return largest if largest is not None and 0 < largest.size <= LARGE_WINDOW_BYTES else None
