"""PCIe: are the GPUs on the bus, do they answer, and are their links as they should be?"""

import re

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.expectations import Expectations
from gpudoctor.facts.gpu_errors import GpuErrors
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pci_link import GpuLinks, PciLink
from gpudoctor.facts.pci_ports import PortAbove, PortsAbove
from gpudoctor.facts.pci_state import PciState, PciStates, Region
from gpudoctor.facts.platform import Platform, PlatformKind
from gpudoctor.facts.recognition import Recognition
from gpudoctor.knowledge.pcie_remedies import (
    LOOK_AT_THE_BUS,
    MORE_SPACE,
    OFF_THE_BUS,
    OTHER_HOST,
    POWER_CYCLE,
    expect_gpus,
    keep_awake,
    reseat,
)
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

_FALLEN = pattern(r"NVRM: (?:Xid \(PCI:\S+: 79,|.*fallen off the bus|.*serial number)")
_ABOUT_A_GPU = pattern(r"NVRM: (?:Xid \(PCI:|GPU (?:at )?)([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})")
# The first six regions only: those of virtual functions may stay without a place. Older kernels call them BAR 7 to 12, newer ones
# VF BAR 0 to 5 (pci_resource_name in drivers/pci/pci.c).
_NO_SPACE = pattern(r"(?<!VF )BAR ?[0-5](?!\d)(?!.*\[io ).*(?:no space|failed to assign|is 0M)")
_BAR = pattern(r"(?<!VF )BAR ?([0-5])(?!\d)")
_POWER = pattern(r"power state|D3cold")


@check("pcie.gpus-present", link=Link.PCIE, title="GPUs are present on PCI as expected", essential=True)
def gpus_present(
    gpus: PciGpus,
    expected: Expectations,
    platform: Reading[Platform],
    log: Reading[KernelLog],
    told: Reading[Recognition],
) -> Verdicts:
    """Everything above stands on the GPU being a function on the PCI bus.

    Counts NVIDIA display-class functions in sysfs and compares with `expect.gpus`, else with the count of `expect.profile`. Without
    either, one GPU is enough, and none at all fails, because the doctor is called where GPUs should be; fewer than the machine
    itself tells are worth a warning: EC2's instance type and a DGX's name in DMI tell, and on bare metal the NVSwitches of a board
    with eight GPUs. A GPU given to a virtual machine stays on its host's bus. Audio, USB and NVSwitch functions of NVIDIA are not
    GPUs. WSL2 and Tegra have no NVIDIA function on PCI and are not judged here. A GPU that has fallen off the bus while running can
    still be listed: that is another question.
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
        remedies = (LOOK_AT_THE_BUS, expect_gpus(0), POWER_CYCLE)
        yield Fail(NODE, "no NVIDIA GPU on the PCI bus", listing, remedies, Breaks.NODE)
    elif (gap := _unseen(gpus, expected)) is not None:
        yield gap.about(NODE)
    elif expected.gpus is None:
        yield _without_expectation(gpus, told, log)
    elif count == expected.gpus:
        yield Pass(NODE, f"{_gpus(count)} on the PCI bus, as expected", listing + expected.cite("gpus"))
    elif count > expected.gpus:
        summary = f"{count} GPUs on the PCI bus, {expected.gpus} expected"
        yield Warn(NODE, summary, listing + expected.cite("gpus"), (expect_gpus(count),))
    else:
        yield Fail(
            NODE,
            f"{count} of {expected.gpus} expected GPUs on the PCI bus",
            _last_words_of_the_missing(gpus, log) + listing + expected.cite("gpus"),
            (LOOK_AT_THE_BUS, expect_gpus(count), POWER_CYCLE),
            Breaks.NOTHING if count else Breaks.NODE,
        )


def _without_expectation(gpus: PciGpus, told: Reading[Recognition], log: Reading[KernelLog]) -> Verdict:
    """Some GPUs are there, and nobody said how many there should be, except perhaps the machine."""
    count, listing = len(gpus.gpus), gpus.cite("listing")
    gone = _fallen_since_boot(gpus, log)
    if gone:
        summary = f"{_gpus(count)} on the PCI bus; the kernel log names one that fell off it and is no longer listed"
        return Warn(
            NODE, summary, gone + listing, (LOOK_AT_THE_BUS, expect_gpus(count), POWER_CYCLE), cause="gone-since-boot"
        )
    profile = None if isinstance(told, Unread) else told.profile
    if isinstance(told, Unread) or profile is None or count > profile.gpus:
        return Pass(NODE, f"{_gpus(count)} on the PCI bus", listing)
    if count == profile.gpus:
        summary = f"{_gpus(count)} on the PCI bus; looks like {profile.name} (expect.profile)"
        return Pass(NODE, summary, listing + told.told_by)
    if gpus.unlisted is not None:
        return Pass(NODE, f"{_gpus(count)} on the PCI bus, perhaps more", listing)
    return Warn(
        NODE,
        f"{_gpus(count)} on the PCI bus; this looks like {profile.name}, which has {profile.gpus}",
        _last_words_of_the_missing(gpus, log) + listing + told.told_by,
        (LOOK_AT_THE_BUS, expect_gpus(count), OTHER_HOST if told.is_instance else POWER_CYCLE),
        cause="fewer-than-the-machine-has",
    )


def _fallen_since_boot(gpus: PciGpus, log: Reading[KernelLog]) -> Cited:
    """What the log says of a GPU that fell off the bus and was taken from it since: hot-plug removes what does not answer."""
    words = () if gpus.unlisted is not None else _last_words_of_the_missing(gpus, log)
    return words if any(_FALLEN.search(line.shows) for line in words) else ()


def _last_words_of_the_missing(gpus: PciGpus, log: Reading[KernelLog]) -> Cited:
    """The last message of this boot about each GPU that is no longer listed: it had an address then, and perhaps a serial number."""
    if isinstance(log, Unread):
        return ()
    listed = {gpu.address.rpartition(".")[0] for gpu in gpus}
    last: dict[str, list[Evidence]] = {}
    for line in log.lines(_ABOUT_A_GPU, "NVRM: "):
        slot = _ABOUT_A_GPU.match(line.shows)
        if slot is not None and slot[1] not in listed:
            last[slot[1]] = [*last.get(slot[1], [])[-2:], line]
    return tuple(line for lines in last.values() for line in lines)


def _gpus(count: int) -> str:
    return _counted(count, "GPU")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _unseen(gpus: PciGpus, expected: Expectations) -> Unread | None:
    """Why the count cannot be trusted: a partial listing matters only when it shows too few or none."""
    listed_enough = len(gpus.gpus) > 0 and len(gpus.gpus) >= (expected.gpus or 0)
    if gpus.unlisted is None or (listed_enough and gpus.unlisted.why is Why.NOT_RECORDED):
        return None
    return gpus.unlisted


@check(
    "pcie.power-state",
    link=Link.PCIE,
    over=PciGpus,
    title="Every GPU can wake up",
)
def power_state(gpus: PciGpus, states: PciStates, log: Reading[KernelLog]) -> Verdicts:
    """A GPU that cannot leave a power state is not dead, but nothing can use it.

    Fails for runtime power management in error, and for a GPU in D3cold although it should be awake; both are found after a virtual
    machine gave a GPU back or on laptops. A GPU that sleeps on purpose passes. Easily confused with a GPU that fell off the bus: both
    read as all ones, but this one comes back after a cold boot.
    """
    for gpu in gpus:
        state = states.by_address[gpu.address]
        if isinstance(gpu.runtime_status, Unread):
            yield gpu.runtime_status.about(gpu)
        elif gpu.runtime_status is None:
            yield NotApplicable(gpu, "the kernel tells no power state of it")
        elif gpu.runtime_status == "error" or (state.power_state == "D3cold" and not gpu.sleeps):
            evidence = gpu.cite("runtime_status") + state.cite("power_state") + _lines_about(gpu, log, _POWER)
            yield Fail(
                gpu,
                "cannot leave its power state",
                evidence,
                (*keep_awake(gpu.address), POWER_CYCLE),
                Breaks.SUBJECT,
                cause="stuck-asleep",
            )
        else:
            yield Pass(gpu, gpu.runtime_status or "awake", gpu.cite("runtime_status"))


@check(
    "pcie.gpu-responds",
    link=Link.PCIE,
    over=PciGpus,
    explained_by=("pcie.power-state",),
    isolates=True,
    title="Every GPU answers on the bus",
)
def gpu_responds(gpus: PciGpus, states: PciStates, log: Reading[KernelLog], errors: Reading[GpuErrors]) -> Verdicts:
    """A GPU that has fallen off the bus is still listed: sysfs and lspci show ids that the kernel remembers.

    Config space that reads as all ones, or a link 63 lanes wide, says that nobody answers; the kernel log says when it happened
    (Xid 79, or only "fallen off the bus") and sometimes the board's serial number. Several that were lost within seconds have one cause:
    what they share. Sleeping GPUs are left asleep. Easily confused with a driver that lost its GPU for another reason: then the registers
    still answer.
    """
    silent = [gpu.address for gpu in gpus if states.by_address[gpu.address].responds is False]
    for gpu in gpus:
        state = states.by_address[gpu.address]
        match state.responds:
            case Unread():
                yield state.responds.about(gpu)
            case None:
                yield Unknown(
                    gpu, Why.NOT_RECORDED, "neither its config space nor its link could be read", would_need="sysfs"
                )
            case True:
                yield Pass(gpu, "answers", state.cite("responds"))
            case False:
                evidence = state.cite("responds") + _lines_about(gpu, log, _FALLEN)
                if not isinstance(log, Unread):
                    evidence += log.after(f"NVRM: The NVIDIA GPU {gpu.address}", _FALLEN)
                group = _lost_with(gpu, silent, errors)
                at_once = (
                    f"; lost at once: {', '.join(group)}: look for what they share (power, a PCIe switch, the host)"
                )
                summary = f"does not answer on the bus{at_once if group[1:] else ''}"
                yield Fail(gpu, summary, evidence, OFF_THE_BUS, Breaks.SUBJECT, cause=f"off-{group[0]}")


def _lost_with(gpu: PciGpu, silent: list[str], errors: Reading[GpuErrors]) -> list[str]:
    """The GPUs that do not answer and that the kernel log tells of within seconds of each other, the one itself among them."""
    if isinstance(errors, Unread) or len(silent) == 1:
        return [gpu.address]
    from gpudoctor.knowledge.xids import Area

    group = errors.together.get((gpu.address, Area.DRIVER), ())
    return [address for address in group if address in silent] or [gpu.address]


@check(
    "pcie.bars-assigned",
    link=Link.PCIE,
    over=PciGpus,
    explained_by=("pcie.gpu-responds", "pcie.power-state"),
    title="Every GPU has its memory regions",
)
def bars_assigned(gpus: PciGpus, states: PciStates, log: Reading[KernelLog]) -> Verdicts:
    """The driver maps a GPU's registers and memory through its base address registers; firmware must find room for them.

    A region that exists but begins and ends at zero got no room: Above 4G decoding is off, the window behind a bridge or in a virtual
    machine is too small. Read from sysfs' `resource`. Easily confused with a GPU whose regions are placed but whose firmware does
    not start.
    """
    for gpu in gpus:
        state = states.by_address[gpu.address]
        if isinstance(state.regions, Unread):
            yield state.regions.about(gpu)
        elif homeless := _homeless(gpu, state, log):
            evidence = tuple(region.read_from["region"] for region in homeless) + _lines_about(gpu, log, _NO_SPACE)
            numbers = ", ".join(f"BAR{region.number}" for region in homeless)
            yield Fail(gpu, f"{numbers} got no address", evidence, MORE_SPACE, Breaks.SUBJECT, cause="no-bar-space")
        elif state.regions is None or not any(region.flags for region in state.regions):
            yield Unknown(gpu, Why.UNREADABLE, "the kernel lists no memory region of it", state.cite("regions"))
        else:
            yield Pass(gpu, "all regions have addresses", state.cite("regions"))


def _homeless(gpu: PciGpu, state: PciState, log: Reading[KernelLog]) -> list[Region]:
    """Regions that exist and have no place. Some kernels then forget that they exist; their log still says it."""
    if isinstance(state.regions, Unread) or state.regions is None:
        return []
    said = {int(number) for line in _lines_about(gpu, log, _NO_SPACE) for number in _BAR.findall(line.shows)}
    return [region for region in state.regions if region.unassigned or (region.empty and region.number in said)]


@check(
    "pcie.link-width",
    link=Link.PCIE,
    over=PciGpus,
    explained_by=("pcie.gpu-responds", "pcie.power-state"),
    advisory=True,
    title="Every GPU's PCIe link is as wide as both ends allow",
)
def link_width(gpus: PciGpus, links: GpuLinks) -> Verdicts:
    """Lanes that did not train halve or quarter the bandwidth to the GPU, and often announce a failing board, riser or slot.

    Every link from the GPU up to the root port is compared with what both its ends allow, so a slot wired for eight lanes is not
    accused, and a narrow link above a switch is named once for all GPUs behind it. Speed is not judged: idle GPUs lower it on purpose.
    In a virtual machine no port above the GPU may be visible, or one that claims lanes which no slot has; then there is nothing to
    compare with, for the slot behind it may have been wired for fewer.
    """
    for gpu in gpus:
        path = links.by_address[gpu.address]
        if isinstance(path, Unread):
            yield path.about(gpu)
        elif not path:
            yield NotApplicable(gpu, "no port above it is visible")
        else:
            yield _judge_links(gpu, path)


def _judge_links(gpu: PciGpu, path: tuple[PciLink, ...]) -> Verdict:
    known = [link for link in path if link.allowed_width is not None and link.below.current_width is not None]
    for link in known:
        if link.narrow and not link.width_made_up:
            lanes = f"{link.below.current_width} of {_counted(link.allowed_width or 0, 'lane')}"
            summary = f"the link {link.above.address} to {link.below.address} runs {lanes}"
            return Warn(gpu, summary, _widths(link), reseat(link.below.address), cause=f"narrow-{link.below.address}")
    if made_up := [link for link in known if link.width_made_up]:
        reason = f"{made_up[0].above.address} tells a width that cannot be its own, as ports of a virtual machine do"
        return NotApplicable(gpu, reason, _widths(made_up[0]))
    if len(known) < len(path) and not known:
        return NotApplicable(gpu, "the ports above it do not tell their width")
    if len(known) < len(path):
        return Unknown(
            gpu, Why.UNREADABLE, f"{len(path) - len(known)} of {len(path)} links on its way could not be read"
        )
    evidence = tuple(seen for link in known for seen in link.below.cite("current_width"))
    return Pass(gpu, _counted(known[0].below.current_width or 0, "lane"), evidence)


def _widths(link: PciLink) -> Cited:
    return link.below.cite("current_width", "max_width") + link.above.cite("max_width")


@check("pcie.aer-errors", link=Link.PCIE, over=PciGpus, advisory=True, title="No uncorrectable PCIe errors are counted")
def aer_errors(gpus: PciGpus, states: PciStates, ports: Reading[PortsAbove]) -> Verdicts:
    """Uncorrectable errors on the link lose transactions; the GPU may go on for a while, or fall off the bus at the next one.

    Read from the kernel's AER counters, which start at zero at boot, of the GPU and, for fatal ones, of the port above: only the port
    can report that the link went down. Correctable errors are repaired by the link itself and are not judged. Where firmware keeps error
    handling to itself, or AER is off, the kernel has no counters and there is nothing to say.
    """
    for gpu in gpus:
        port = None if isinstance(ports, Unread) else ports.by_gpu.get(gpu.address)
        yield _judge_errors(gpu, states.by_address[gpu.address], port)


def _judge_errors(gpu: PciGpu, state: PciState, port: PortAbove | None) -> Verdict:
    counted = {
        "fatal": (state.fatal_errors, state.cite("fatal_errors")),
        "non-fatal": (state.nonfatal_errors, state.cite("nonfatal_errors")),
    }
    if port is not None:
        counted[f"fatal at the port {port.address}"] = (port.fatal_errors, port.cite("fatal_errors"))
    wrong = {name: count for name, (count, _) in counted.items() if isinstance(count, int) and count}
    evidence = tuple(seen for count, cited in counted.values() if isinstance(count, int) for seen in cited)
    if wrong:
        summary = f"{' and '.join(f'{count} {name}' for name, count in wrong.items())} errors since boot"
        return Warn(gpu, summary, evidence, reseat(gpu.address), cause=f"aer-{gpu.address}")
    unread = next((count for count, _ in counted.values() if isinstance(count, Unread)), None)
    if unread is not None and unread.why is not Why.NOT_RECORDED:
        return unread.about(gpu)
    if not any(isinstance(count, int) for count in (state.fatal_errors, state.nonfatal_errors)):
        return unread.about(gpu) if unread else NotApplicable(gpu, "the kernel counts no AER errors for it")
    return Pass(gpu, "none since boot", evidence)


def _lines_about(gpu: PciGpu, log: Reading[KernelLog], pattern: "re.Pattern[str]") -> Cited:
    """The last three lines that name the GPU; Xid lines leave out the function."""
    return () if isinstance(log, Unread) else tuple(log.lines(pattern, gpu.address.rpartition(".")[0])[-3:])
