"""The node against its configuration: the hardware of a profile, and the versions of driver and VBIOS."""

from collections.abc import Iterator, Sequence

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.expectations import Expectations, ExpectedBoard, in_words
from gpudoctor.facts.pci import NvSwitches, PciGpu, PciGpus
from gpudoctor.facts.pci_link import SPEEDS, GpuLinks, PciLink
from gpudoctor.knowledge.pcie_remedies import (
    LOOK_AT_THE_BOARDS,
    LOOK_AT_THE_BUS,
    LOOK_AT_THE_SLOT,
    OTHER_PROFILE,
    POWER_CYCLE,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    Breaks,
    Cited,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Subject,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

_SHOWN = 4
"""How many GPUs a summary names, and how many a finding cites."""


def _allow(key: str) -> Remedy:
    return Remedy(
        Action.CHANGE_CONFIG,
        f"If this version is right for the node, change expect.{key}.",
        run=(f"grep -rn '{key}' /etc/gpudoctor",),
        confirm="gpudoctor run --check driver-cuda.expected-versions",
    )


_INSTALL_DRIVER = Remedy(
    Action.INSTALL_PACKAGE,
    "Drain the node, install an expected driver the way the present one was installed (package, image or container), and reboot.",
    run=("cat /proc/driver/nvidia/version    # afterwards",),
    interrupts="everything that uses a GPU, and the node at the reboot",
    confirm="gpudoctor run --check driver-cuda.expected-versions",
)
_FLASH_VBIOS = Remedy(
    Action.CONTACT_VENDOR,
    "Else ask the machine's vendor for the firmware bundle of its boards; never flash a VBIOS made for another board.",
    run=("nvidia-smi --query-gpu=pci.bus_id,name,vbios_version --format=csv",),
    interrupts="everything that uses a GPU, and the node at the reboot or power cycle it takes",
    confirm="gpudoctor run --check driver-cuda.expected-versions",
)


@check("pcie.hardware-profile", link=Link.PCIE, advisory=True, title="The node has the hardware of its profile")
def hardware_profile(
    expected: Expectations,
    gpus: Reading[PciGpus],
    board: Reading[ExpectedBoard],
    switches: Reading[NvSwitches],
    links: Reading[GpuLinks],
) -> Verdicts:
    """A node rented or bought as one thing can be another: a PCIe board for an SXM one, a slot with half its lanes, a dead NVSwitch.

    `expect.profile` names an HGX board, a DGX, a compute tray or a cloud instance type by its vendor's name: hgx-h100-8, dgx-b200,
    gb200-tray, p5.48xlarge, a3-highgpu-8g, Standard_ND96isr_H100_v5, BM.GPU.H100.8. Compares the GPUs' device ids and, on bare
    metal, the NVSwitches on PCI and what both ends of each GPU's link allow; in a virtual machine the hypervisor decides what is
    seen of those. Where a profile does not say something, because no source does, it is not judged. How many GPUs there are is
    pcie.gpus-present's question, a link narrower than it could be pcie.link-width's. Without a profile there is nothing to ask.
    """
    if expected.profile is None:
        yield NotApplicable(NODE, "no expect.profile is configured")
    elif isinstance(gpus, Unread):
        yield gpus.about(NODE)
    elif gpus.unlisted is not None:
        yield gpus.unlisted.about(NODE)
    elif not gpus.gpus:
        yield NotApplicable(NODE, "no GPU on the PCI bus to compare with the profile", gpus.cite("listing"))
    else:
        seen = [*_models(gpus, expected), *_board(gpus, expected, board, switches, links)]
        wrong: list[Verdict] = [verdict for verdict in seen if not isinstance(verdict, Pass)]
        evidence = tuple(shown for verdict in seen if isinstance(verdict, Pass) for shown in verdict.evidence)
        summary = "; ".join(verdict.summary for verdict in seen if isinstance(verdict, Pass))
        yield from wrong or [Pass(NODE, f"{expected.profile.name}: {summary}", evidence + expected.cite("profile"))]


def _models(gpus: PciGpus, expected: Expectations) -> Iterator[Verdict]:
    profile = expected.profile
    assert profile is not None
    unread = [gpu for gpu in gpus if gpu.device_id == "unknown"]
    others = [gpu for gpu in gpus if gpu.device_id not in profile.device_ids and gpu not in unread]
    if others:
        ids = ", ".join(sorted({f"10de:{gpu.device_id}" for gpu in others}))
        summary = f"{_some(others, gpus)}: {ids}, the profile has {in_words(profile)}"
        evidence = tuple(shown for gpu in others[:_SHOWN] for shown in gpu.cite("device_id")) + expected.cite("profile")
        remedies = (OTHER_PROFILE, LOOK_AT_THE_BOARDS)
        yield Fail(NODE, summary, evidence, remedies, Breaks.NOTHING, cause="other-model", of=_subjects(others))
    elif unread:
        yield Unknown(NODE, Why.UNREADABLE, f"the device id of {_some(unread, gpus)} could not be read")
    else:
        yield Pass(NODE, profile.model, tuple(shown for gpu in gpus for shown in gpu.cite("device_id")))


def _board(
    gpus: PciGpus,
    expected: Expectations,
    board: Reading[ExpectedBoard],
    switches: Reading[NvSwitches],
    links: Reading[GpuLinks],
) -> Iterator[Verdict]:
    if isinstance(board, Unread):
        yield board.about(NODE)
    elif board.profile is not None:
        if board.profile.switches is not None:
            yield switches.about(NODE) if isinstance(switches, Unread) else _switches(switches, expected, board)
        if board.profile.lanes is not None:
            yield links.about(NODE) if isinstance(links, Unread) else _links(gpus, expected, links)


def _switches(switches: NvSwitches, expected: Expectations, board: ExpectedBoard) -> Verdict:
    profile = expected.profile
    assert profile is not None and profile.switches is not None
    of_kind = [switch for switch in switches if profile.switch_id in ("", switch.device_id)]
    named = f"NVSwitch{'' if profile.switches == 1 else 'es'}"
    shown = tuple(evidence for switch in of_kind for evidence in switch.cite("device_id")) or switches.cite("listing")
    evidence = shown + board.seen_on + expected.cite("profile")
    if len(of_kind) < profile.switches:
        if switches.unlisted is not None:
            return switches.unlisted.about(NODE)
        if any(switch.device_id == "unknown" for switch in switches):
            return Unknown(NODE, Why.UNREADABLE, "the device id of an NVSwitch could not be read")
        summary = f"{len(of_kind)} of {profile.switches} {named} (10de:{profile.switch_id}) on the PCI bus"
        remedies = (LOOK_AT_THE_BUS, OTHER_PROFILE, POWER_CYCLE)
        return Fail(NODE, summary, evidence, remedies, Breaks.NOTHING, cause="missing-switches")
    if len(of_kind) > profile.switches:
        summary = f"{len(of_kind)} NVSwitches on the PCI bus, the profile has {profile.switches or 'none'} there"
        return Warn(NODE, summary, evidence, (OTHER_PROFILE,), cause="more-switches")
    return Pass(NODE, f"{profile.switches or 'no'} {named} on PCI", shown + board.seen_on)


def _links(gpus: PciGpus, expected: Expectations, links: GpuLinks) -> Verdict:
    """What both ends of the link at each GPU allow; a GPU without a visible port above it cannot be compared."""
    profile = expected.profile
    assert profile is not None and profile.lanes is not None
    speed = SPEEDS[profile.generation - 1] if profile.generation else 0.0
    lesser: list[PciGpu] = []
    evidence: Cited = ()
    for gpu in gpus:
        path = links.by_address[gpu.address]
        if isinstance(path, Unread):
            return path.about(NODE)
        link = path[0] if path else None
        if link is None or link.allowed_width is None or (speed and link.allowed_speed is None):
            return Unknown(
                NODE, Why.UNREADABLE, f"{gpu.address} or the port above it does not tell what its link allows"
            )
        if link.allowed_width < profile.lanes or (link.allowed_speed or speed) < speed:
            lesser.append(gpu)
            evidence += _capability(link) if len(lesser) <= _SHOWN else ()
    wanted = f"x{profile.lanes}" + (f" at {speed} GT/s" if speed else "")
    if lesser:
        summary = f"the links of {_some(lesser, gpus)} do not allow {wanted}, which the profile has"
        remedies = (LOOK_AT_THE_SLOT, OTHER_PROFILE)
        return Warn(
            NODE, summary, evidence + expected.cite("profile"), remedies, cause="lesser-links", of=_subjects(lesser)
        )
    paths = (links.by_address[gpu.address] for gpu in gpus)
    every = tuple(shown for path in paths if not isinstance(path, Unread) for shown in _capability(path[0]))
    return Pass(NODE, f"links allow {wanted}", every)


def _capability(link: PciLink) -> Cited:
    return link.below.cite("max_width", "max_speed") + link.above.cite("max_width", "max_speed")


def _subjects(gpus: Sequence[PciGpu]) -> tuple[Subject, ...]:
    return tuple(gpu.subject for gpu in gpus)


def _some(some: Sequence[PciGpu], gpus: PciGpus) -> str:
    """`2 of 8 GPUs (0000:19:00.0, 0000:3b:00.0)`."""
    named = ", ".join(gpu.address for gpu in some[:_SHOWN]) + (", …" if len(some) > _SHOWN else "")
    return f"{len(some)} of {len(gpus.gpus)} GPUs" + ("" if len(some) == len(gpus.gpus) else f" ({named})")


@check(
    "driver-cuda.expected-versions",
    link=Link.DRIVER_CUDA,
    advisory=True,
    title="Driver and VBIOS are among the expected versions",
)
def expected_versions(expected: Expectations, module: Reading[NvidiaModule], gpus: Reading[DriverGpus]) -> Verdicts:
    """A fleet works with the versions it was tested with; one node with another driver or VBIOS costs days of searching.

    Compares the loaded driver's version with `expect.driver` and `expect.driver_denied`, and each GPU's VBIOS, as the driver prints
    it in /proc/driver/nvidia/gpus/*/information, with `expect.vbios`. Entries are versions or their beginnings: "580" and "580." are
    every 580.x, "550.163.01" is one. A denied driver fails, another than the expected ones is a warning. The file on disk may be of
    another version than the loaded one: that is driver-cuda.module-on-disk's question. Nothing configured: nothing to ask.
    """
    if not (expected.driver or expected.driver_denied or expected.vbios):
        yield NotApplicable(NODE, "neither expect.driver, expect.driver_denied nor expect.vbios is configured")
    if expected.driver or expected.driver_denied:
        yield module.about(NODE) if isinstance(module, Unread) else _driver(module, expected)
    if expected.vbios:
        yield gpus.about(NODE) if isinstance(gpus, Unread) else _vbios(gpus, expected)


def _driver(module: NvidiaModule, expected: Expectations) -> Verdict:
    if module.mute is not None:
        return module.mute.about(NODE)
    if module.version is None:
        return NotApplicable(NODE, "no nvidia module tells its version", module.cite("loaded"))
    denied = _matching(module.version, expected.driver_denied)
    if denied is not None:
        summary = f"driver {module.version} is denied ({denied!r})"
        evidence = module.cite("version") + expected.cite("driver_denied")
        remedies = (_allow("driver_denied"), _INSTALL_DRIVER)
        return Fail(NODE, summary, evidence, remedies, Breaks.NOTHING, cause="driver-denied")
    if expected.driver and _matching(module.version, expected.driver) is None:
        summary = f"driver {module.version}, expected {_either(expected.driver)}"
        evidence = module.cite("version") + expected.cite("driver")
        return Warn(NODE, summary, evidence, (_allow("driver"), _INSTALL_DRIVER), cause="other-driver")
    asked = expected.cite("driver") if expected.driver else expected.cite("driver_denied")
    return Pass(NODE, f"driver {module.version}", module.cite("version") + asked)


def _vbios(gpus: DriverGpus, expected: Expectations) -> Verdict:
    """Only GPUs that the driver holds and has initialised have a version there; for others it prints question marks."""
    told = {gpu.address: gpu for gpu in gpus.gpus.values() if isinstance(gpu, DriverGpu) and gpu.vbios is not None}
    others = [gpu for gpu in told.values() if _matching(gpu.vbios or "", expected.vbios) is None]
    if others:
        versions = ", ".join(sorted({gpu.vbios or "" for gpu in others}))
        named = ", ".join(gpu.address for gpu in others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
        summary = f"VBIOS {versions} on {len(others)} of {len(told)} GPUs ({named}), expected {_either(expected.vbios)}"
        evidence = tuple(shown for gpu in others[:_SHOWN] for shown in gpu.cite("vbios")) + expected.cite("vbios")
        return Warn(NODE, summary, evidence, (_allow("vbios"), _FLASH_VBIOS), cause="other-vbios")
    unread = next((gpu for gpu in gpus.gpus.values() if isinstance(gpu, Unread)), None)
    if unread is not None:
        return unread.about(NODE)
    if not told:
        return NotApplicable(NODE, "the driver tells no GPU's VBIOS version")
    evidence = tuple(shown for gpu in told.values() for shown in gpu.cite("vbios"))
    return Pass(NODE, f"VBIOS of {len(told)} GPUs", evidence + expected.cite("vbios"))


def _matching(version: str, entries: tuple[str, ...]) -> str | None:
    """The entry that is this version, or the beginning of it up to a dot."""
    whole = f"{version.lower()}."
    return next((entry for entry in entries if whole.startswith(f"{entry.lower().rstrip('.')}.")), None)


def _either(entries: tuple[str, ...]) -> str:
    return " or ".join(entries)
