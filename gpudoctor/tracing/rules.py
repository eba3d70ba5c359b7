"""Whether the device rules of a workload's cgroup let it read and write its nodes: the last that open(2) asks, with EPERM.

What is denied was taken from it or never given (facts/workload_denials.py); what is allowed may be lost at systemd's next reload
(facts/unit_devices.py).
"""

from collections.abc import Iterable, Sequence

from gpudoctor.facts.device_access import DeviceAccess, DeviceKind
from gpudoctor.facts.device_nodes import UVM
from gpudoctor.facts.device_rules import CgroupRules
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.facts.unit_devices import DeviceUnit
from gpudoctor.facts.workload_access import OPENED, Accesses, NodeAccess
from gpudoctor.facts.workload_denials import Denial, Denied, why_denied
from gpudoctor.facts.workload_devices import Devices, NodeInside
from gpudoctor.facts.workload_requests import by_nodes_only
from gpudoctor.trace import Step, StepId, failed, passed, skipped, unknown, warned
from gpudoctor.tracing import remedies
from gpudoctor.tracing.asked import Asking
from gpudoctor.tracing.nodes import Needed, needed
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Cited, Evidence, Unread

MOST_CITED = 4
MOST_NAMED = 4

_REASONS = {
    Denial.BY_SYSTEMD: "systemd applied its own list of devices, without {them}",
    Denial.TAKEN: "its configuration gives {them}, but the rules of its cgroup were changed since",
    Denial.READ_ONLY: "{they} may only be read",
    Denial.WRITE_ONLY: "{they} may only be written",
    Denial.MKNOD_ONLY: "{they} may be made, not opened",
    Denial.OTHER_NUMBERS: "its rules allow {instead} instead",
    Denial.NO_CGROUPS: "no-cgroups = true keeps the toolkit's hook from allowing {them}",
    Denial.HOOK: "the rules that the toolkit's hook adds are not there",
    Denial.MOUNTED: "{they} {are} only mounted, and a mount gives no permission",
    Denial.NEVER: "its configuration never allowed {them}",
    Denial.UNCLEAR: "the rules of its cgroup deny {them}",
}


def judge_rules(sight: Sight, asking: Asking) -> Step:
    """One question for each needed node, by the numbers of what is inside, else by those it should have."""
    rules = sight.rules
    if isinstance(rules, Unread):
        return unknown(StepId.RULES, rules)
    asked = _asked(sight, asking)
    answers = [(node, rules.allows(node.asked)) for node in asked]
    denied = [node for node, permission in answers if permission is False]
    if denied:
        return _denied(sight, rules, asked, denied)
    unread = next((permission for _, permission in answers if isinstance(permission, Unread)), None)
    if unread is not None:
        return unknown(StepId.RULES, unread)
    if not answers:
        return skipped(StepId.RULES, "the numbers of no node are known")
    return _lost_at_reload(sight, rules, asked) or _allowed(rules, asked)


def denied_paths(sight: Sight, asking: Asking) -> frozenset[str]:
    """The needed nodes that the rules deny."""
    rules = sight.rules
    if isinstance(rules, Unread):
        return frozenset()
    return frozenset(one.node.path for one in _asked(sight, asking) if rules.allows(one.asked) is False)


def _asked(sight: Sight, asking: Asking) -> list[NodeAccess]:
    found = (_access(need, sight) for need in needed(sight, asking) if not _left_out(need, sight))
    return [one for one in found if one is not None]


def _left_out(need: Needed, sight: Sight) -> bool:
    """Whoever asked for single nodes may only want to watch GPUs, and then lacks nvidia-uvm and its rule on purpose."""
    inside = isinstance(sight.devices, Devices) and sight.devices.node(need.path) is not None
    return need.path == UVM and not inside and by_nodes_only(sight.concerned)


def _access(need: Needed, sight: Sight) -> NodeAccess | None:
    """A node as it is inside; one that is missing as it should be."""
    node = sight.devices.node(need.path) if isinstance(sight.devices, Devices) else None
    if node is None or node.entry.major is None or node.entry.minor is None:
        entry = Entry(need.path, EntryType.CHAR, major=need.major, minor=need.minor)
        node = NodeInside(need.path, entry)
    major, minor = node.entry.major, node.entry.minor
    if major is None or minor is None:
        return None
    return NodeAccess(node, DeviceAccess(DeviceKind.CHAR, major, minor, OPENED), permission=True, vital=True)


def _named(nodes: Sequence[NodeAccess]) -> str:
    more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
    return ", ".join(one.words for one in nodes[:MOST_NAMED]) + more


def _cited(rules: CgroupRules, nodes: Sequence[NodeAccess]) -> Cited:
    """What decides about them."""
    cited = _merged(evidence for one in nodes for evidence in rules.cite(one.asked))
    return cited or (Evidence("the cgroup of the process", "no hierarchy of rules is mounted"),)


def _merged(evidence: Iterable[Evidence]) -> Cited:
    """Each place once, with all that it says."""
    said: dict[str, dict[str, None]] = {}
    for one in evidence:
        said.setdefault(one.where, {})[one.shows] = None
    return tuple(Evidence(where, "; ".join(shows)) for where, shows in said.items())[:MOST_CITED]


# denied -------------------------------------------------------------------------------------------------------------


def _denied(sight: Sight, rules: CgroupRules, asked: Sequence[NodeAccess], denied: Sequence[NodeAccess]) -> Step:
    accesses = Accesses(tuple(asked), rules, sight.selective)
    known = [why_denied(sight.concerned, node, accesses, sight.around) for node in denied]
    kind = next(kind for kind in Denial if any(one.denial is kind for one in known))
    alike = [one for one in known if one.denial is kind]
    told = (evidence for one in alike for evidence in one.told_by)
    return failed(
        StepId.RULES,
        f"it may not open {_named(denied)}: {_reason(kind, alike)} (EPERM)",
        (*_cited(rules, denied), *_merged(told)),
        *remedies.allow(sight.workload, kind),
    )


def _reason(kind: Denial, alike: Sequence[Denied]) -> str:
    one = len(alike) == 1
    instead = ", ".join(dict.fromkeys(node.instead for node in alike if node.instead))
    words = {"them": "it" if one else "them", "they": "it" if one else "they", "are": "is" if one else "are"}
    return _REASONS[kind].format(instead=instead, **words)


# allowed ------------------------------------------------------------------------------------------------------------


def _lost_at_reload(sight: Sight, rules: CgroupRules, asked: Sequence[NodeAccess]) -> Step | None:
    """What the unit does not list, although it restricts devices."""
    unit = sight.around.unit
    lost = [one for one in asked if unit.keeps(one.asked) is False] if isinstance(unit, DeviceUnit) else []
    if not lost or not isinstance(unit, DeviceUnit):
        return None
    short = unit.unit.replace(sight.workload.id, sight.workload.short_id) if sight.workload.id else unit.unit
    said = f"it may open its {len(asked)} nodes, but loses {_named(lost)} at the next daemon-reload: {short} does not list them"
    evidence = (*unit.cite("policy", "lines"), *_cited(rules, lost))
    return warned(StepId.RULES, said, evidence, *remedies.against_reloads(sight.workload))


def _allowed(rules: CgroupRules, asked: Sequence[NodeAccess]) -> Step:
    hidden = "; the list of v1 does not show what was denied after all" if rules.may_hide_denials else ""
    words = f"it may read and write its {len(asked)} nodes: {_by_whom(rules)}{hidden}"
    return passed(StepId.RULES, words, _cited(rules, asked))


def _by_whom(rules: CgroupRules) -> str:
    """What decides: programs of v2, the list of v1, or nothing at all."""
    programs = len(rules.applied) if isinstance(rules.applied, tuple) else 0
    parts = [f"{programs} device program{'' if programs == 1 else 's'} of cgroup v2"] if programs else []
    parts += ["the list of cgroup v1"] if rules.listed is not None else []
    return f"allowed by {' and '.join(parts)}" if parts else "no device rule applies"
