"""Whether the kubelet holds GPUs for a container of a pod, whether these live, and whether they are what the container has.

A pod keeps the devices that it was given for as long as it lives; a container that started before any plugin had registered is given none
later (kubernetes pkg/kubelet/cm/devicemanager/manager.go, Allocate and isDevicePluginResource).
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from gpudoctor.facts.absence import NO_KUBELET
from gpudoctor.facts.pod_devices import Asking as PodAsking
from gpudoctor.facts.pod_takers import Taker
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.trace import Step, StepId, failed, passed, skipped, unknown, warned
from gpudoctor.tracing import pod_remedies
from gpudoctor.tracing.asked import Asking
from gpudoctor.tracing.ground import Ground
from gpudoctor.tracing.kubelets_side import Fate, Held, KubeletsSide
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

STEP = StepId.ALLOCATION
MOST_NAMES = 4
MOST_CITED = 6


class Allocation(Struct, frozen=True):
    """The step, the GPUs that the kubelet holds, and whether one of them is dead: why that is, the node's own checks know."""

    step: Step
    addresses: tuple[str, ...] = ()
    dead: bool = False


def judge_allocation(side: KubeletsSide | Unread | None, sight: Sight, asking: Asking, ground: Ground) -> Allocation:
    """Of a container that runs: what the kubelet holds for it against the GPUs, and against its environment and nodes."""
    if side is None:
        return Allocation(skipped(STEP, NO_KUBELET))
    if isinstance(side, Unread):
        return Allocation(unknown(STEP, side))
    pod = sight.workload.pod
    assert pod is not None, "only containers of pods are held against the kubelet"
    asked = side.asking(pod.namespace, pod.name, pod.container)
    held = side.held(sight.workload)
    if isinstance(held, Unread):
        return Allocation(_too_few(asked, pod.namespace, pod.name) or unknown(STEP, held))
    if short := _too_few(asked, pod.namespace, pod.name):
        return Allocation(short)
    if not held.ids and not held.claims:
        return Allocation(_nothing_held(side, sight, held))
    fate = side.fate(held)
    step = judge_fate(fate, held, pod.namespace, pod.name) or _against_container(sight, asking, ground, held, fate)
    return Allocation(step, fate.addresses, bool(fate.dead))


# What is held --------------------------------------------------------------------------------------------------------


def judge_fate(fate: Fate, held: Held, namespace: str, name: str) -> Step | None:
    """What is wrong with the devices by themselves."""
    evidence = _cited(held.evidence, fate.evidence)
    again = pod_remedies.recreate(namespace, name)
    if fate.gone:
        said = f"the kubelet holds {_listed(fate.gone)} for it, which no GPU of this node has any more"
        return failed(STEP, said, evidence, *pod_remedies.look_then(again))
    if fate.dead:
        said = f"the kubelet holds a GPU for it that is dead: {_listed(fate.dead)}"
        return failed(STEP, said, evidence, *pod_remedies.look_then(again))
    return None


def _too_few(asked: Iterable[PodAsking], namespace: str, name: str) -> Step | None:
    """It runs with less than it asks for."""
    for one in asked:
        if one.pending or one.runs is None or one.given is None or len(one.given) >= one.count:
            continue
        number = len(one.given)
        told = "it was started before the plugin had registered, or the kubelet's record was lost"
        said = f"it asks for {one.count} {one.resource}, and the kubelet holds {number or 'none'} for it: {told}"
        return failed(STEP, said, (one.manifest, one.runs), pod_remedies.start_over(one, namespace, name))
    return None


def _nothing_held(side: KubeletsSide, sight: Sight, held: Held) -> Step:
    taker = side.taker(sight.workload)
    if taker is not None:
        return _without_asking(taker, held)
    if isinstance(sight.devices, Devices) and sight.given:
        number = len(sight.given)
        said = f"the kubelet holds none for it; it has the nodes of {number} GPU{'s' if number > 1 else ''} past the kubelet"
        return passed(STEP, said, _cited(held.evidence, sight.devices.cite("nodes")))
    return skipped(STEP, "the kubelet holds no GPU for it, and none is known to be asked for", held.evidence)


def _without_asking(taker: Taker, held: Held) -> Step:
    pod = taker.one.workload.pod
    assert pod is not None, "only containers of pods take GPUs past the kubelet"
    others = sorted({given.words for given in taker.others})
    shared = f"; the kubelet gave the same to {_listed(others)}" if others else ""
    evidence = _cited(held.evidence, taker.evidence, tuple(given.evidence for given in taker.others))
    if taker.gift:
        said = f"it has {_listed(taker.gpus) or 'GPUs'} by {taker.by}, and the kubelet has no record of that{shared}"
        return warned(STEP, said, evidence, pod_remedies.recreate(pod.namespace, pod.name))
    said = f"it has {_listed(taker.gpus) or 'GPUs'} without the kubelet, by {taker.by}{shared}"
    return warned(STEP, said, evidence, *pod_remedies.ask_properly())


# What is held against what is inside ---------------------------------------------------------------------------------


def _against_container(sight: Sight, asking: Asking, ground: Ground, held: Held, fate: Fate) -> Step:
    """Environment first: a gift that the environment names and that is not inside is the fault of a later step."""
    if not fate.addresses:
        return _not_resolved(sight, held, fate)
    mine, inside = set(fate.addresses), set(sight.addresses)
    named = {gpu.address for gpu in asking.wanted}
    nodes = sight.devices.cite("nodes") if isinstance(sight.devices, Devices) else ()
    evidence = _cited(held.evidence, asking.step.evidence[:2], nodes, fate.evidence)
    uuids = _named(ground, mine)
    if not named and not isinstance(sight.devices, Devices):
        # What it has is seen neither by its environment nor in its /dev.
        return unknown(
            STEP, _unseen(sight), f"the kubelet holds {uuids} for it; whether it has that was not seen", evidence
        )
    pod = sight.workload.pod
    assert pod is not None, "only containers of pods are held against the kubelet"
    again = pod_remedies.recreate(pod.namespace, pod.name)
    if not mine <= (named or inside):
        if unresolved := _unresolved(sight, ground, mine):
            said = f"the kubelet holds {uuids} for it; whether it has that is not known: {unresolved.detail}"
            return unknown(STEP, unresolved, said, evidence)
        if not named and not inside:
            said = f"the kubelet holds {uuids} for it, and nothing of that reached it: neither a request nor a node"
            return failed(STEP, said, evidence, *pod_remedies.through_runtime(again))
        said = f"the kubelet holds {uuids} for it, and it has {_named(ground, named or inside)}"
        return failed(STEP, said, evidence, *pod_remedies.look_then(again))
    if fate.unread is not None:
        return unknown(STEP, fate.unread, f"whether {uuids} lives is not known: {fate.unread.detail}", evidence)
    if (more := inside - mine) and not sight.hosts_own and not _privileged(sight) and not held.claims:
        said = f"it has {_named(ground, more)} beside {uuids}, which the kubelet holds for it"
        return warned(STEP, said, evidence, *pod_remedies.ask_properly())
    alive = f"{uuids}: alive, and what it has" if mine <= inside else f"{uuids}: alive, and what its environment names"
    return passed(STEP, f"the kubelet holds {alive}", evidence)


def _not_resolved(sight: Sight, held: Held, fate: Fate) -> Step:
    """Devices that no list of UUIDs tells: those of claims, of plugins of others, and where the driver tells none."""
    names = _listed([*held.ids, *(device.device for claim in held.claims for device in claim.devices)])
    nodes = sight.devices.cite("nodes") if isinstance(sight.devices, Devices) else ()
    evidence = _cited(held.evidence, nodes)
    by_claim = f"the kubelet holds {names} for it by claim {_listed([claim.name for claim in held.claims])}"
    if held.claims and sight.given:
        number = len(sight.given)
        return passed(STEP, f"{by_claim}, and it has {number} GPU{'s' if number > 1 else ''}", evidence)
    if held.claims and isinstance(sight.devices, Devices) and sight.devices.unseen is None:
        pod = sight.workload.pod
        assert pod is not None, "only containers of pods are held against the kubelet"
        again = pod_remedies.recreate(pod.namespace, pod.name)
        return failed(STEP, f"{by_claim}, and nothing of that reached it", evidence, *pod_remedies.look_then(again))
    why = fate.unread or Unread(Why.NOT_ANSWERED, held.evidence[0].where, "they are no UUIDs of GPUs")
    return unknown(
        STEP, why, f"the kubelet holds {names} for it; which GPUs these are is not known: {why.detail}", evidence
    )


def _unresolved(sight: Sight, ground: Ground, mine: Iterable[str]) -> Unread | None:
    """Why nodes inside cannot be held against GPUs: not all are seen, or of some GPU the minor is not known."""
    if isinstance(sight.devices, Devices) and sight.devices.unseen is not None:
        return sight.devices.unseen
    minors = {gpu.address: gpu.minor for gpu in ground.gpus}
    lacking = next((address for address in mine if minors.get(address) is None), "")
    strange = next((minor for minor in sight.given if minor not in sight.minors), None)
    if not lacking and strange is None:
        return None
    what = f"the minor of {lacking}" if lacking else f"which GPU has the minor {strange}"
    return Unread(Why.NOT_ANSWERED, "the driver", f"does not tell {what}")


def _unseen(sight: Sight) -> Unread:
    devices = sight.devices
    if isinstance(devices, Unread):
        return devices
    return Unread(Why.UNREADABLE, f"/proc/{sight.pid}/root/dev", "does not exist: the process is gone")


def _privileged(sight: Sight) -> bool:
    return sight.config is not None and sight.config.allows_everything


# words ---------------------------------------------------------------------------------------------------------------


def _named(ground: Ground, addresses: Iterable[str]) -> str:
    known = {gpu.address: gpu.uuid for gpu in ground.gpus}
    return _listed([known.get(address) or address for address in sorted(addresses)])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"


def _cited(*parts: Iterable[Evidence]) -> Cited:
    return tuple(dict.fromkeys(one for part in parts for one in part))[:MOST_CITED]


# A pod of which nothing runs ----------------------------------------------------------------------------------------


def judge_waiting(side: KubeletsSide, asked: Sequence[PodAsking], held: Held, namespace: str, name: str) -> Allocation:
    """Of a container that does not run: what is held for it, else whether it can be given what it asks for."""
    if not held.ids:
        return Allocation(_wanted(side, asked, held, namespace, name))
    fate = side.fate(held)
    step = judge_fate(fate, held, namespace, name) or _kept_for_it(held, fate)
    return Allocation(step, fate.addresses, bool(fate.dead))


def _kept_for_it(held: Held, fate: Fate) -> Step:
    if fate.unread is not None or not fate.alive:
        why = fate.unread or Unread(Why.NOT_ANSWERED, held.evidence[0].where, "they are no UUIDs of GPUs")
        return unknown(STEP, why, f"the kubelet holds {_listed(held.ids)} for it: {why.detail}", held.evidence)
    said = f"the kubelet holds {_listed(fate.alive)} for it: alive"
    return passed(STEP, said, _cited(held.evidence, fate.evidence))


def _wanted(side: KubeletsSide, asked: Sequence[PodAsking], held: Held, namespace: str, name: str) -> Step:
    for one in asked:
        if short := _cannot_give(side, one):
            return short
    if asked:
        one = asked[0]
        said = f"it asks for {one.count} {one.resource}, and the kubelet holds none for it yet"
        return warned(STEP, said, _cited((one.manifest,), side.seen), pod_remedies.describe(namespace, name))
    return skipped(STEP, "the kubelet holds no GPU for it, and none is known to be asked for", held.evidence)


def _cannot_give(side: KubeletsSide, one: PodAsking) -> Step | None:
    """The resource goes by another name here, nobody offers it, or too little is free."""
    offered = side.advertised
    if offered is None:
        unseen = not side.seen or isinstance(side.plugin, Unread) or isinstance(side.plugin.advertised, Unread)
        if unseen or side.by_claims:
            return None
        said = f"it asks for {one.count} {one.resource}, and no plugin of NVIDIA's is registered on this node"
        return failed(STEP, said, _cited((one.manifest,), side.seen), *pod_remedies.see_plugin())
    there = offered.by_resource.get(one.resource, ())
    evidence = (one.manifest, offered.evidence)
    if not there:
        other = f"{one.resource}.shared"
        if other in offered.by_resource:
            said = f"it asks for {one.resource}, which this node calls {other}: it waits in vain"
            return failed(STEP, said, evidence, *pod_remedies.by_its_name(other))
        said = f"it asks for {one.count} {one.resource}, and this node has {offered.words}"
        return failed(STEP, said, evidence, *pod_remedies.by_its_name(next(iter(offered.by_resource), "")))
    free = len(there) - side.taken(one.resource)
    if not side.pods.told or free >= one.count:
        return None
    holders = side.holders(one.resource)
    taken = f", {_listed(holders)} hold{'s' if len(holders) == 1 else ''} {side.taken(one.resource)}" if holders else ""
    said = (
        f"it asks for {one.count} {one.resource}, and {free} of {len(there)} {'is' if free == 1 else 'are'} free{taken}"
    )
    return failed(STEP, said, _cited(evidence, side.seen), *pod_remedies.wait_or_free(holders))
