"""PCIe: are the GPUs on the bus?"""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.expectations import Expectations
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.platform import Platform, PlatformKind
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    Breaks,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdicts,
    Warn,
    Why,
)

LOOK_AT_THE_BUS = Remedy(
    Action.INSPECT_HARDWARE,
    "Look for the GPU on the bus and for link or power errors in the kernel log; in a virtual machine, was it passed through?",
    run=("lspci -d 10de: -nn", "journalctl -k -b --grep 'pci|AER|NVRM'"),
    confirm="gpudoctor run --check pcie.gpus-present",
)
POWER_CYCLE = Remedy(
    Action.INSPECT_HARDWARE,
    "Power the machine off and on again, not just reboot; then reseat the board, its power cable or riser, or ask the vendor.",
    interrupts="the whole node",
    confirm="lspci -d 10de: -nn lists the GPU",
)


def _set_expectation(gpus: int) -> Remedy:
    return Remedy(
        Action.CHANGE_CONFIG,
        f"If the node is meant to have {gpus} GPUs, say so in /etc/gpudoctor/config.toml.",
        run=(f"expect.gpus = {gpus}",),
        confirm="gpudoctor run --check pcie.gpus-present",
    )


@check("pcie.gpus-present", link=Link.PCIE, title="GPUs are present on PCI as expected", essential=True)
def gpus_present(gpus: PciGpus, expected: Expectations, platform: Reading[Platform]) -> Verdicts:
    """Everything above stands on the GPU being a function on the PCI bus.

    Counts NVIDIA display-class functions in sysfs and compares with `expect.gpus`; without an expectation one GPU is enough,
    and none at all fails, because the doctor is called where GPUs should be. Audio, USB and NVSwitch functions of NVIDIA are
    not GPUs. WSL2 and Tegra have no NVIDIA function on PCI and are not judged here. A GPU that has fallen off the bus while
    running can still be listed: that is another question.
    """
    count = len(gpus.gpus)
    listing = gpus.cite("listing")
    if count == 0 and isinstance(platform, Platform) and platform.kind is not PlatformKind.PCI:
        yield NotApplicable(NODE, f"{platform.kind.value} has no NVIDIA function on PCI", platform.cite("kind"))
    elif count == 0 and expected.gpus != 0 and isinstance(platform, Unread):
        yield platform.about(NODE)
    elif not gpus.has_bus and expected.gpus == 0:
        yield Unknown(NODE, Why.UNREADABLE, "sysfs shows no PCI bus to look at", listing)
    elif expected.gpus is None and count == 0 and gpus.unlisted is None:
        yield Fail(
            NODE,
            "no NVIDIA GPU on the PCI bus",
            listing,
            (LOOK_AT_THE_BUS, _set_expectation(0), POWER_CYCLE),
            Breaks.NODE,
        )
    elif (gap := _unseen(gpus, expected)) is not None:
        yield gap.about(NODE)
    elif expected.gpus is None:
        yield Pass(NODE, f"{_gpus(count)} on the PCI bus", listing)
    elif count == expected.gpus:
        yield Pass(NODE, f"{_gpus(count)} on the PCI bus, as expected", listing + expected.cite("gpus"))
    elif count > expected.gpus:
        yield Warn(
            NODE,
            f"{count} GPUs on the PCI bus, {expected.gpus} expected",
            listing + expected.cite("gpus"),
            (_set_expectation(count),),
        )
    else:
        yield Fail(
            NODE,
            f"{count} of {expected.gpus} expected GPUs on the PCI bus",
            listing + expected.cite("gpus"),
            (LOOK_AT_THE_BUS, _set_expectation(count), POWER_CYCLE),
            Breaks.NOTHING if count else Breaks.NODE,
        )


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _unseen(gpus: PciGpus, expected: Expectations) -> Unread | None:
    """Why the count cannot be trusted: a partial listing matters only when it shows too few or none."""
    listed_enough = len(gpus.gpus) > 0 and len(gpus.gpus) >= (expected.gpus or 0)
    if gpus.unlisted is None or (listed_enough and gpus.unlisted.would_need.startswith("a recording")):
        return None
    return gpus.unlisted
