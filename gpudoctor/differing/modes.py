"""Modes that somebody sets or the driver keeps, and who shares which GPU in which way."""

from collections.abc import Iterator

from gpudoctor.diff import Area, Change, Gap
from gpudoctor.differing.likeness import Likeness
from gpudoctor.differing.party import A, B, Pairs, Party
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, FieldValue, NvmlDevice
from gpudoctor.report import How

MODES = {
    "mig.current": "MIG mode",
    "mig.pending": "MIG mode after the next reset",
    "compute_mode": "compute mode",
    "persistence_mode": "persistence mode",
    "ecc.current": "ECC",
    "ecc.pending": "ECC after the next reset",
    "accounting_mode": "accounting mode",
    "addressing_mode": "addressing mode",
    "virtualization.mode": "virtualization mode",
    "virtualization.host_vgpu_mode": "vGPU mode of the host",
    "gsp.enabled": "GSP firmware in use",
    "display_active": "display active",
    "power.limit_milliwatts": "power limit",
    "clocks.applications.graphics_mhz": "application clock of the graphics engine",
    "clocks.applications.memory_mhz": "application clock of the memory",
    "c2c.enabled": "C2C",
    "fabric.state": "fabric state",
    "fabric.clique_id": "fabric clique",
}
"""Fields of NVML that are no counter, no reading and no identity, by what they are called here."""
_SHARING = ("memory", "faults", "compute", "access", "note", "room")


def modes(a: Party, b: Party, pairs: Pairs) -> Iterator[Change | Gap]:
    """GPU by GPU, then the node's."""
    mute = {A: [], B: []}  # type: dict[str, list[str]]
    for one, two in pairs.pairs:
        mine, theirs = a.devices.get(one.address), b.devices.get(two.address)
        if mine is None or theirs is None:
            for side, device, other in ((A, mine, theirs), (B, theirs, mine)):
                if device is None and other is not None and a.desk is not None and b.desk is not None:
                    mute[side].append(one.address)
            continue
        yield from _of_gpu(mine, theirs, one.address)
    for side, addresses in mute.items():
        if addresses:
            yield Gap(Area.MODES, side, tuple(addresses), "NVML did not tell of them there")
    node, other_node = a.known(Nvml), b.known(Nvml)
    if node is not None and other_node is not None:
        for name in sorted(node.system.keys() & other_node.system.keys()):
            yield from _value(name, node.system[name], other_node.system[name], ())


def sharing(a: Party, b: Party, pairs: Pairs, likeness: Likeness) -> Iterator[Change]:
    """Row by row. Who they are says nothing where they are as many."""
    mine, theirs = ({row.gpu: row for row in party.report.sharing} for party in (a, b))
    for one, two in pairs.pairs:
        left, right = mine.get(one.address), theirs.get(two.address)
        if left is None or right is None or How.UNKNOWN in (left.how, right.how):
            continue
        told = [f"{row.how.value}{f': {row.detail}' if row.detail else ''}" for row in (left, right)]
        changed = False
        if not likeness.exact(*told):
            changed = True
            yield Change(Area.SHARING, "shared", told[0], told[1], subjects=(one.address,))
        if left.workloads is not None and right.workloads is not None and left.workloads != right.workloads:
            changed = True
            counts = str(left.workloads), str(right.workloads)
            yield Change(Area.SHARING, "workloads", *counts, subjects=(one.address,))
        for name in () if changed else _SHARING:
            ours, other = getattr(left, name), getattr(right, name)
            if not likeness.exact(ours, other):
                yield Change(Area.SHARING, name, ours or None, other or None, subjects=(one.address,))
        if not changed and left.by != right.by:
            names = ", ".join(left.by) or None, ", ".join(right.by) or None
            yield Change(Area.SHARING, "used by", *names, subjects=(one.address,), counts=False)


def _of_gpu(mine: NvmlDevice, theirs: NvmlDevice, address: str) -> Iterator[Change]:
    for name, what in MODES.items():
        left, right = mine.fields.get(name), theirs.fields.get(name)
        if left is not None and right is not None:
            yield from _value(what, left, right, (address,))
    if mine.lists_mig and theirs.lists_mig:
        layouts = _layout(mine), _layout(theirs)
        if layouts[0] != layouts[1]:
            yield Change(Area.MODES, "MIG layout", layouts[0], layouts[1], subjects=(address,))


def _value(what: str, left: FieldValue, right: FieldValue, subjects: tuple[str, ...]) -> Iterator[Change]:
    """What NVML refused is not compared."""
    if left != right and not isinstance(left, FieldError) and not isinstance(right, FieldError):
        yield Change(Area.MODES, what, _words(what, left), _words(what, right), subjects=subjects)


def _words(what: str, value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return (
        f"{value / 1000:g} W" if what == MODES["power.limit_milliwatts"] and not isinstance(value, str) else str(value)
    )


def _layout(device: NvmlDevice) -> str | None:
    profiles = sorted(one.profile or "a profile not told" for one in device.mig_devices)
    return ", ".join(f"{profiles.count(one)} {one}" for one in dict.fromkeys(profiles)) or None
