"""Topology: are the network adapters beside the GPUs up, as fast as their peers, free of errors, and open to programs?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.adapter_slots import AdapterSlots, Slot
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.infiniband import (
    COUNTERS,
    DOWN,
    ETHERNET,
    INFINIBAND,
    MODULE_EVENT,
    NODES,
    TRAINED,
    LinkLosses,
    RdmaPort,
    RdmaPorts,
    VerbsNode,
    VerbsNodes,
)
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.pci_link import LinkEnd
from gpudoctor.facts.raw import Absent, Listing
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
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

PORTS, ERRORS, VERBS = "topology.nic-ports", "topology.nic-errors", "topology.infiniband-nodes"
FEWEST_UP, FEWEST_FASTER = 3, 2
"""So many peers must be up, or faster, before a port that is not is called the odd one."""
SETTLED_HOURS = 300 / 3600
"""Links and subnet managers take some minutes after the start of a node."""
MOST_LINES = 2
DAY_HOURS = 24.0
TIMES_MORE = 4
"""The kernel log tells of losses with every change of a network's setup too: an odd port has so many times more than its peers."""
_FAULTS = {
    "symbol_error": "nic_symbol_errors_per_hour",
    "link_error_recovery": "nic_recoveries_per_hour",
    "port_rcv_errors": "nic_receive_errors_per_hour",
    "local_link_integrity_errors": "nic_link_errors_per_hour",
    "excessive_buffer_overrun_errors": "nic_link_errors_per_hour",
}


@check(
    PORTS,
    link=Link.TOPOLOGY,
    over=RdmaPorts,
    advisory=True,
    title="Every RDMA port is up, and as fast as those of its kind",
)
def nic_ports(ports: RdmaPorts, slots: AdapterSlots, losses: LinkLosses, log: Reading[KernelLog]) -> Verdicts:
    """Collective operations run at the pace of the slowest rail: one port that is down or at half its rate slows every job of the node.

    Read from /sys/class/infiniband. A port is held against the others of the same card, in the same place on it, and as near to a GPU:
    most of them up or faster, and this one not. Where none of them is up, no cable is in use, and a card of another kind, for storage or
    management, has a rate of its own. A link that is up in INIT or ARMED waits for a subnet manager, which has nothing to do with the
    cable. The adapter's own PCIe link must be as wide and as fast as both its ends allow, so that a slot with few lanes is not accused.
    Ports of virtual functions, of subfunctions and of planes follow the physical one. In switchdev mode an adapter has a port for each
    virtual function, and those of unused ones are down: no port of such an adapter is called down. In the first minutes of a node links
    are not up yet.
    """
    for port in ports:
        if port.virtual:
            yield NotApplicable(port, _followed(port))
        elif isinstance(port.state, Unread):
            yield port.state.about(port)
        else:
            slot = slots.by_address.get(port.address)
            peers = tuple(peer for peer in ports.peers(port) if slots.alike(port.address, peer.address))
            if port.state == DOWN and ports.switched(port):
                peers = ()
            yield from _port(peers, port, slot, losses, log)


def _port(
    peers: tuple[RdmaPort, ...], port: RdmaPort, slot: Slot | None, losses: LinkLosses, log: Reading[KernelLog]
) -> Iterator[Verdict]:
    found = [*_slot(port, slot), *_link(port, peers, slot, losses, log)]
    yield from found
    if found:
        return
    lanes = () if slot is None or not slot.known else slot.end.cite("current_width")
    words = "" if slot is None or not slot.known else f"; {_width(slot.end)} on PCIe"
    if port.active:
        rate = f" at {port.rate:g} Gb/s" if port.rate is not None else ""
        yield Pass(port, f"up{rate}{words}", port.cite("state", *(("rate",) if rate else ())) + lanes)
        return
    if _is_young(losses):
        reason = f"{port.state}, and the node has just started: links and subnet managers take some minutes"
        yield NotApplicable(port, reason, port.cite("state") + tuple(losses.read_from.values()))
        return
    up = sum(peer.active for peer in peers)
    why = f"{up} of {len(peers)} ports of its kind are up" if up else "nor is any port of its kind in use"
    if lanes:
        yield Pass(port, f"not in use ({port.state}), {why}{words}", port.cite("state") + lanes)
    else:
        yield NotApplicable(port, f"{port.state}, {why}", port.cite("state"))


def _followed(port: RdmaPort) -> str:
    if port.part_of:
        return f"a part of {port.part_of} (a subfunction, or planes of its link), whose ports are judged"
    return "the port of a virtual function, which follows the physical one"


def _is_young(losses: LinkLosses) -> bool:
    return losses.hours is not None and losses.hours < SETTLED_HOURS


def _link(
    port: RdmaPort, peers: tuple[RdmaPort, ...], slot: Slot | None, losses: LinkLosses, log: Reading[KernelLog]
) -> Iterator[Verdict]:
    if _is_young(losses):
        return
    if port.state in TRAINED and port.layer == INFINIBAND:
        yield _unmanaged(port, peers)
    elif port.state == DOWN:
        yield from _down(port, peers, slot, log)
    elif port.active:
        yield from _slow(port, peers)


def _unmanaged(port: RdmaPort, peers: tuple[RdmaPort, ...]) -> Verdict:
    from gpudoctor.knowledge.nic_remedies import subnet_manager

    up = sum(peer.active for peer in peers)
    others = f", while {up} of its {len(peers)} peers are ACTIVE" if up else ""
    summary = f"its link is up, but the port is only in {port.state}: no subnet manager made it ready{others}"
    evidence = port.cite("state", "physical") + _example(peers)
    remedies = subnet_manager(PORTS, port.device, port.number)
    return Warn(port, summary, evidence, remedies, cause=f"unmanaged-{port.device}" if up else "no-subnet-manager")


def _down(port: RdmaPort, peers: tuple[RdmaPort, ...], slot: Slot | None, log: Reading[KernelLog]) -> Iterator[Verdict]:
    from gpudoctor.knowledge.nic_remedies import port_down

    up = [peer for peer in peers if peer.active]
    if len(up) < FEWEST_UP or len(up) * 2 <= len(peers) + 1:
        return
    rail = f"; it is the rail of GPU {slot.gpu}" if slot is not None and slot.gpu else ""
    physical = f", {port.physical}" if port.physical else ""
    summary = f"its port is down ({port.state}{physical}), those of {len(up)} of its {len(peers)} peers are up{rail}"
    said = () if isinstance(log, Unread) else tuple(log.lines(MODULE_EVENT, port.address)[-1:])
    evidence = port.cite("state", "physical") + _example(tuple(up)) + said
    remedies = port_down(PORTS, port.device, port.number, ethernet=port.layer == ETHERNET)
    yield Warn(port, summary, evidence, remedies, cause=f"down-{port.device}")


def _slow(port: RdmaPort, peers: tuple[RdmaPort, ...]) -> Iterator[Verdict]:
    """Slower than most of its kind, or with one lane, which no InfiniBand adapter's port has by design."""
    from gpudoctor.knowledge.nic_remedies import slow_port

    rated = [peer for peer in peers if peer.active and peer.rate is not None]
    faster = [peer for peer in rated if port.rate is not None and peer.rate is not None and peer.rate > port.rate]
    if len(faster) >= FEWEST_FASTER and len(faster) * 2 > len(rated):
        most = max(peer.rate or 0 for peer in faster)
        summary = f"its port runs at {port.rate:g} Gb/s, those of {len(faster)} of its {len(peers)} peers at {most:g}"
        evidence = port.cite("rate") + faster[0].cite("rate")
    elif port.lanes == 1 and port.layer == INFINIBAND:
        summary = f"only one lane of its link trained: {port.rate:g} Gb/s"
        evidence = port.cite("rate", "layer")
    else:
        return
    yield Warn(port, summary, evidence, slow_port(PORTS, port.device, port.number), cause=f"slow-{port.device}")


def _slot(port: RdmaPort, slot: Slot | None) -> Iterator[Verdict]:
    if slot is None or slot.port is None or port.number != 1:
        return
    from gpudoctor.knowledge.nic_remedies import narrow_slot

    end, above = slot.end, slot.port
    lanes, allowed = end.current_width, slot.allowed_width
    speed, fastest = end.current_speed, slot.allowed_speed
    remedies = narrow_slot(PORTS, port.address)
    cause = f"narrow-{port.address.rpartition('.')[0]}"
    if lanes is not None and allowed is not None and lanes < allowed:
        summary = f"its PCIe link runs {lanes} of the {allowed} lanes that both ends allow"
        yield Warn(port, summary, end.cite("current_width", "max_width") + above.cite("max_width"), remedies, cause)
    elif slot.judges_speed and speed is not None and fastest is not None and speed < fastest:
        summary = f"its PCIe link runs at {speed:g} of the {fastest:g} GT/s that both ends allow"
        yield Warn(port, summary, end.cite("current_speed", "max_speed") + above.cite("max_speed"), remedies, cause)


def _width(end: LinkEnd) -> str:
    return f"{end.current_width} lane{'' if end.current_width == 1 else 's'}"


def _example(peers: tuple[RdmaPort, ...]) -> Cited:
    """A peer that is as it should be."""
    return next((peer.cite("state") for peer in peers if peer.active), ())


# Errors -----------------------------------------------------------------------------------------------------------------


@check(
    ERRORS,
    link=Link.TOPOLOGY,
    over=RdmaPorts,
    advisory=True,
    title="RDMA links stay up and gather no errors",
)
def nic_errors(ports: RdmaPorts, losses: LinkLosses, limits: Thresholds, log: Reading[KernelLog]) -> Verdicts:
    """A dirty fibre or a dying module lets a link recover, resend or go down for seconds; jobs stall or abort while every state looks well.

    Judged by rates over the time since boot, an hour at the least: the port's counters, and for Ethernet, whose firmware often leaves
    link_downed at 0, the kernel log's "Link down" once the node has started. A handful of errors is what links do, and a switch that is
    restarted takes all of them down at once. Changes of a network's setup make the kernel say "Link down" too, of all ports alike: one
    port must stand out from its peers. port_xmit_wait and congestion notifications count waiting, which is no error. Counters begin
    when the driver is loaded: rates may be higher than told, not lower. They have few bits, and stand still at their end (link_downed
    at 255, local_link_integrity_errors at 15): of one that has come so far no rate is known.
    """
    for port in ports:
        if port.virtual:
            yield NotApplicable(port, _followed(port))
        else:
            yield _errors(ports, port, losses, limits, log)


def _errors(
    ports: RdmaPorts, port: RdmaPort, losses: LinkLosses, limits: Thresholds, log: Reading[KernelLog]
) -> Verdict:
    from gpudoctor.knowledge.nic_remedies import errors

    hours = max(losses.hours or 1.0, 1.0)
    days = max(hours / DAY_HOURS, 1.0)
    lines = losses.lines.get(port.address, ())
    wrong: list[str] = []
    evidence: Cited = ()
    downs = port.counters.get("link_downed", 0)
    if losses.hours is not None and downs >= limits.of("nic_link_downs_per_day") * days:
        wrong.append(f"its link went down {downs} times")
        evidence += port.cite("link_downed") + _module(port, log)
    elif _stands_out(ports, port, losses, limits):
        wrong.append(f"its link went down {len(lines)} times")
        evidence += lines[-MOST_LINES:]
    high = {
        name: port.counters[name] for name, limit in _FAULTS.items() if _is_high(port, name, hours, limits.of(limit))
    }
    high = high if losses.hours is not None else {}
    wrong += [f"{count} {name}" for name, count in high.items()]
    if wrong:
        since = f" in the {hours:.1f} hours since boot" if losses.hours is not None else " since boot"
        summary = f"{', '.join(wrong)}{since}"
        evidence += port.cite(*high) + tuple(losses.read_from.values())
        remedies = errors(ERRORS, port.device, port.number)
        return Warn(port, summary, evidence, remedies, cause=f"errors-{port.device}")
    return _without_errors(port, losses, lines)


def _without_errors(port: RdmaPort, losses: LinkLosses, lines: Cited) -> Verdict:
    if port.unread is not None:
        return port.unread.about(port)
    if not port.counters:
        return NotApplicable(port, "its driver keeps no counters of errors")
    if losses.hours is None and any(port.counters.values()):
        shown = ", ".join(f"{count} {name}" for name, count in port.counters.items() if count)
        return Unknown(port, Why.NOT_ANSWERED, f"{shown}; since when is not known", port.cite(*port.counters))
    if full := [name for name, count in port.counters.items() if count == COUNTERS[name]]:
        ends = ", ".join(f"{name} at {COUNTERS[name]}" for name in full)
        return Unknown(
            port,
            Why.NOT_ANSWERED,
            f"{ends}, where it ends: how fast it rises is not known",
            port.cite(*full) + tuple(losses.read_from.values()),
            would_need="counters that were reset"
            + (f": perfquery -R -C {port.device} -P {port.number}" if port.layer == INFINIBAND else ""),
        )
    few = {name: count for name, count in port.counters.items() if count}
    said = ", ".join(f"{count} {name}" for name, count in few.items()) or "no errors"
    lost = f", {len(lines)} times down by the kernel log" if lines else ""
    return Pass(port, f"{said}{lost} since boot", port.cite(*port.counters) + tuple(losses.read_from.values()))


def _is_high(port: RdmaPort, name: str, hours: float, limit: float) -> bool:
    return port.counters.get(name, 0) >= limit * hours


def _stands_out(ports: RdmaPorts, port: RdmaPort, losses: LinkLosses, limits: Thresholds) -> bool:
    recent = losses.recent.get(port.address, 0)
    if recent < limits.of("nic_link_downs_per_day"):
        return False
    peers = sorted(losses.recent.get(peer.address, 0) for peer in ports.peers(port))
    middle = peers[len(peers) // 2] if peers else 0
    return recent >= TIMES_MORE * middle


def _module(port: RdmaPort, log: Reading[KernelLog]) -> Cited:
    return () if isinstance(log, Unread) else tuple(log.lines(MODULE_EVENT, port.address)[-1:])


# Device nodes -----------------------------------------------------------------------------------------------------------


@check(
    VERBS,
    link=Link.TOPOLOGY,
    advisory=True,
    title="Programs find the device nodes of RDMA adapters",
)
def infiniband_nodes(ports: RdmaPorts, verbs: VerbsNodes, viewpoint: Viewpoint) -> Verdicts:
    """Programs reach an adapter through /dev/infiniband/uverbsN; without it NCCL falls back to TCP although every port is up.

    The kernel tells the devices in /sys/class/infiniband_verbs and makes the nodes itself. Nothing is opened. The other nodes there,
    umad and issm for what talks to the subnet manager, rdma_cm for programs that set up connections by address, are not needed by NCCL
    and UCX, and their modules are often not loaded. A container has a /dev of its own, so from within one nothing is said. A port that
    is down needs no node.
    """
    if not ports.ports:
        yield ports.unlisted.about(NODE) if ports.unlisted is not None else NotApplicable(NODE, ports.NOTHING)
    elif viewpoint.contained:
        yield NotApplicable(NODE, "a container has a /dev of its own", viewpoint.evidence)
    elif not ports.physical:
        yield NotApplicable(NODE, "no RDMA adapter but virtual functions")
    elif isinstance(verbs.listing, Unread):
        yield verbs.listing.about(NODE)
    else:
        yield _nodes(ports, verbs, [port for port in ports if port.active])


def _nodes(ports: RdmaPorts, verbs: VerbsNodes, active: list[RdmaPort]) -> Verdict:
    listing = verbs.cite("listing")
    if not verbs.nodes:
        return _without_verbs(verbs, active)
    gone = [one for one in verbs.nodes if isinstance(one.node, Absent)]
    stale = [one for one in verbs.nodes if one.stale]
    unread = next((seen for one in verbs.nodes for seen in (one.node, one.unread) if isinstance(seen, Unread)), None)
    if (gone or stale) and active:
        return _broken(verbs, gone, stale, active)
    if unread is not None:
        return unread.about(NODE)
    if gone or stale:
        return NotApplicable(NODE, f"{gone[0].name if gone else stale[0].name} has no node, but no port is up", listing)
    nodes = tuple(one.shown for one in verbs.nodes[:MOST_LINES])
    said = f"{len(verbs.nodes)} adapter{'' if len(verbs.nodes) == 1 else 's'}, each with its node in {NODES}"
    return Pass(NODE, said, listing + nodes)


def _broken(verbs: VerbsNodes, gone: list[VerbsNode], stale: list[VerbsNode], active: list[RdmaPort]) -> Verdict:
    from gpudoctor.knowledge.nic_remedies import make_nodes

    first = (gone or stale)[0]
    count = len(gone) or len(stale)
    names = f"{NODES}/{first.name}" + (f" and {count - 1} more" if count > 1 else "")
    what = "is missing" if gone else "is not the adapter's device"
    if count > 1:
        what = "are missing" if gone else "are not the adapters' devices"
    summary = f"{names} {what}: no program can use RDMA there, though {_up(active)}"
    seen = tuple(one.node.evidence for one in gone[:MOST_LINES] if isinstance(one.node, Absent))
    evidence = (*seen, first.told, *active[0].cite("state"))
    if not gone:
        evidence = (first.shown, *evidence)
    return Fail(
        NODE, summary, evidence, make_nodes(VERBS, first.name, stale=not gone), Breaks.NOTHING, cause="no-verbs-nodes"
    )


def _up(ports: list[RdmaPort]) -> str:
    return f"{ports[0].layer} port {ports[0].device} is up" if len(ports) == 1 else f"{len(ports)} ports are up"


def _without_verbs(verbs: VerbsNodes, active: list[RdmaPort]) -> Verdict:
    wanted = [port for port in active if port.layer == INFINIBAND]
    complete = isinstance(verbs.listing, Absent) or (isinstance(verbs.listing, Listing) and verbs.listing.complete)
    if not complete:
        return Unknown(NODE, Why.NOT_RECORDED, "which devices the kernel has for programs was not recorded whole")
    if not wanted:
        return NotApplicable(NODE, "ib_uverbs is not loaded, and no InfiniBand port is up", verbs.cite("listing"))
    from gpudoctor.knowledge.nic_remedies import load_verbs

    summary = f"{_up(wanted)}, but ib_uverbs is not loaded: no program can use RDMA"
    evidence = verbs.cite("listing") + wanted[0].cite("state", "layer")
    return Warn(NODE, summary, evidence, load_verbs(VERBS), cause="no-verbs-module")
