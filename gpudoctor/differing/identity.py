"""Whether two sides are one node at two times or two nodes, and what differs by identity only."""

from collections.abc import Iterator

from gpudoctor.diff import Area, Change, Way
from gpudoctor.differing.party import Pairs, Party
from gpudoctor.facts.raw import Answer, SourceKind
from gpudoctor.verdicts import Unread, Why

# Names that images of machines come with: they tell no two machines apart.
_NAMES_OF_MANY = frozenset({"localhost", "localhost.localdomain", "ubuntu", "debian", "rocky", "fedora", "(none)"})


def told_apart(a: Party, b: Party) -> tuple[Way, str]:
    """By boot, then GPUs, then the host's name; and why. A boot's id is random (proc(5), /proc/sys/kernel/random)."""
    one, two = a.report.node, b.report.node
    if one.boot_id and one.boot_id == two.boot_id:
        return Way.TIMES, "the same boot"
    mine, theirs = a.uuids, b.uuids
    shared = len(mine & theirs)
    if shared and 2 * shared >= min(len(mine), len(theirs)):
        return Way.TIMES, "the same GPU" if shared == 1 else f"{shared} GPUs are the same"
    hosts = _host(a), _host(b)
    if hosts[0] and hosts[0] == hosts[1]:
        return Way.TIMES, "the same host name" + (", though no GPU is the same" if mine and theirs else "")
    if hosts[0] and hosts[1]:
        return Way.NODES, "other host names" + (" and other GPUs" if mine and theirs else "")
    if mine and theirs:
        return Way.NODES, "other GPUs"
    return Way.NODES, "nothing that both tell shows that they are one node"


def _host(party: Party) -> str:
    """The host's name as far as it tells machines apart; a redacted recording has another, which may be another salt's."""
    name = (party.report.node.hostname or "").lower()
    return "" if name in _NAMES_OF_MANY else name


def by_identity(a: Party, b: Party, pairs: Pairs, way: Way) -> Iterator[Change]:
    """Host name, boot, and of each pair of GPUs UUID and, between nodes, address."""
    one, two = a.report.node, b.report.node
    for what, mine, theirs in (("host name", one.hostname, two.hostname), ("boot id", one.boot_id, two.boot_id)):
        yield from _other(Area.NODE, what, mine, theirs)
    serials = _serials(a), _serials(b)
    for gpu, other in pairs.pairs:
        known = serials[0].get(gpu.uuid or ""), serials[1].get(other.uuid or "")
        yield from _other(Area.GPUS, "serial number", *known, gpu.address)
        yield from _other(Area.GPUS, "UUID", gpu.uuid, other.uuid, gpu.address)
        if way is Way.NODES:
            yield from _other(Area.GPUS, "address", gpu.address, other.address, gpu.address)
        for name in ("platform.chassis_serial", "fabric.cluster_uuid"):
            yield from _other(Area.GPUS, name, _text(a, gpu.address, name), _text(b, other.address, name), gpu.address)


def _serials(party: Party) -> dict[str, str]:
    """The serial number of each GPU by its UUID, as a raw recording has it; a live node is not asked again for it."""
    if party.desk is None or party.redacted or party.desk.raw.kind in (SourceKind.LIVE, SourceKind.ROOT):
        return {}
    answer = party.desk.raw.answer("nvml", lambda: Unread(Why.NOT_ANSWERED, "NVML", "is not asked again"))
    listed = answer.data.get("devices") if isinstance(answer, Answer) else None
    told = [one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict)]
    pairs = ((one.get("uuid"), one.get("serial")) for one in told)
    return {uuid: serial for uuid, serial in pairs if isinstance(uuid, str) and isinstance(serial, str)}


def _text(party: Party, address: str, name: str) -> str | None:
    device = party.devices.get(address)
    value = device.fields.get(name) if device is not None else None
    return value if isinstance(value, str) else None


def _other(area: Area, what: str, a: str | None, b: str | None, subject: str = "") -> Iterator[Change]:
    if a and b and a != b:
        yield Change(area, what, a, b, subjects=(subject,) if subject else (), counts=False)
