"""Why a workload may not open a node that is in its /dev: whether that was taken from it, or never given.

The configuration of a container says which devices its runtime was to allow (OCI runtime specification, config-linux.md, "Allowed Device
list": of the rules that fit, the last counts). The prestart hook of the toolkit adds rules that no configuration knows, unless
nvidia-container-cli.no-cgroups is set. What systemd denies and the runtime allows was lost when systemd applied its own list.
"""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.device_access import LETTERS, Access, DeviceAccess
from gpudoctor.facts.device_lists import DeviceList
from gpudoctor.facts.device_nodes import CONTROL_MINOR
from gpudoctor.facts.device_rules import AppliedProgram, CgroupRules
from gpudoctor.facts.gpu_workloads import GpuWorkload
from gpudoctor.facts.oci_config import OciConfig, OciRule
from gpudoctor.facts.unit_devices import DeviceUnit
from gpudoctor.facts.workload_access import OPENED, Accesses, NodeAccess
from gpudoctor.verdicts import Cited, Evidence, Unread

SYSTEMD = "sd_devices"
"""What systemd calls its program (src/core/bpf-devices.c)."""
MOST_MINORS = 16
"""As many minors are tried for one that the rules allow instead."""
FIRST_DYNAMIC = 234
"""Majors from here on are given to whoever asks, as nvidia-uvm does (Documentation/admin-guide/devices.txt)."""


class Denial(str, Enum):
    """Why, in the order in which it is looked for."""

    BY_SYSTEMD = "taken-by-systemd"
    TAKEN = "taken-since-start"
    READ_ONLY = "may-only-be-read"
    WRITE_ONLY = "may-only-be-written"
    MKNOD_ONLY = "may-only-be-made"
    OTHER_NUMBERS = "rules-for-other-numbers"
    NO_CGROUPS = "hook-told-no-cgroups"
    HOOK = "rules-of-hook-missing"
    MOUNTED = "node-only-mounted"
    NEVER = "never-allowed"
    UNCLEAR = "denied"

    @property
    def lost(self) -> bool:
        """Whether it was allowed before."""
        return self in (Denial.BY_SYSTEMD, Denial.TAKEN)


class Denied(Struct, frozen=True):
    """One node with the reason, and what tells it: which numbers the rules allow instead, and what was read."""

    node: NodeAccess
    denial: Denial
    instead: str = ""
    told_by: Cited = ()


class Around(Struct, frozen=True):
    """What else tells of a workload's rules: its unit, and the line of the toolkit's configuration that keeps its hook from adding any."""

    unit: DeviceUnit | Unread | None = None
    no_cgroups: Cited = ()


def why_denied(one: GpuWorkload, node: NodeAccess, accesses: Accesses, around: Around) -> Denied:
    """The reason for one node; only under rules that deny it."""
    rules = accesses.rules
    if isinstance(rules, Unread):
        return Denied(node, Denial.UNCLEAR)
    config = one.workload.config if isinstance(one.workload.config, OciConfig) else None
    taken = _taken(one, node, rules, around)
    return taken or _partly(node, accesses, rules, config) or _never(one, node, config, around)


def _taken(one: GpuWorkload, node: NodeAccess, rules: CgroupRules, around: Around) -> Denied | None:
    """What it was given by its configuration, or by the hook, and has no more.

    On cgroup v2 the programs tell what systemd took: rules of the hook stand in the runtime's own. On v1 there is one list for all.
    """
    config = one.workload.config if isinstance(one.workload.config, OciConfig) else None
    by_config = given_by_config(config, node.asked) if config is not None else ()
    if _by_systemds_program(rules, node.asked):
        return Denied(node, Denial.BY_SYSTEMD, told_by=by_config)
    listed = isinstance(rules.listed, DeviceList) and not rules.listed.allows(node.asked)
    given = bool(by_config) or (_hooked(one, node, config) and not around.no_cgroups)
    if listed and given and isinstance(around.unit, DeviceUnit) and around.unit.keeps(node.asked) is False:
        return Denied(node, Denial.BY_SYSTEMD, told_by=(*by_config, *around.unit.cite("policy", "lines")))
    return Denied(node, Denial.TAKEN, told_by=by_config) if by_config else None


def _hooked(one: GpuWorkload, node: NodeAccess, config: OciConfig | None) -> bool:
    """Whether the toolkit's hook gave it: one that is configured and mounted the node, for no mount of the configuration did."""
    if config is None or not config.legacy_hook:
        return False
    return one.asked or (node.node.bound and node.node.path not in config.mounted)


def _partly(node: NodeAccess, accesses: Accesses, rules: CgroupRules, config: OciConfig | None) -> Denied | None:
    """A rule that is about the node, or about one like it, and does not let it be opened."""
    asked = node.asked
    granted = rules.granted(asked.kind, asked.major, asked.minor)
    opened = Access(0) if isinstance(granted, Unread) else granted & OPENED
    if opened:
        return Denied(node, Denial.READ_ONLY if opened == Access.READ else Denial.WRITE_ONLY)
    if config is not None and _given_by(config.rules, asked) == Access.MKNOD and _names(config.rules, asked):
        return Denied(node, Denial.MKNOD_ONLY, told_by=(_told(config, asked),))
    instead = _other_numbers(node, accesses, rules, config)
    return Denied(node, Denial.OTHER_NUMBERS, instead=instead) if instead else None


def _never(one: GpuWorkload, node: NodeAccess, config: OciConfig | None, around: Around) -> Denied:
    if config is None:
        return Denied(node, Denial.UNCLEAR)
    if _hooked(one, node, config):
        kind = Denial.NO_CGROUPS if around.no_cgroups else Denial.HOOK
        return Denied(node, kind, told_by=(*around.no_cgroups, *config.cite("hooks")))
    return Denied(node, Denial.MOUNTED if node.node.bound else Denial.NEVER, told_by=(_told(config, node.asked),))


def given_by_config(config: OciConfig, asked: DeviceAccess) -> Cited:
    """The rules by which a configuration allows all that is asked for, nothing where it does not."""
    return (_told(config, asked),) if asked.access in _given_by(config.rules, asked) else ()


def _by_systemds_program(rules: CgroupRules, asked: DeviceAccess) -> bool:
    """Whether systemd's program denies what those of the runtime allow."""
    applied = rules.applied if isinstance(rules.applied, tuple) else ()
    own = [one for one in applied if one.program.name == SYSTEMD]
    others = [one for one in applied if one.program.name != SYSTEMD]
    return bool(others) and False in _said(rules, own, asked) and set(_said(rules, others, asked)) == {True}


def _said(rules: CgroupRules, programs: Iterable[AppliedProgram], asked: DeviceAccess) -> list[bool | None]:
    answers = (rules.judge.allows(one.program.id, asked) for one in programs)
    return [None if isinstance(answer, Unread) else answer for answer in answers]


def _given_by(rules: Iterable[OciRule], asked: DeviceAccess) -> Access:
    """What the rules of a configuration allow with a device: each adds or takes letters, a later one counts more."""
    given = Access(0)
    for rule in rules:
        if _fits(rule, asked):
            letters = Access(0)
            for letter in rule.access or "rwm":
                letters |= LETTERS.get(letter, Access(0))
            given = given | letters if rule.allow else given & ~letters
    return given


def _fits(rule: OciRule, asked: DeviceAccess) -> bool:
    """Without type, major or minor, or with -1, a rule is about all."""
    kind = rule.type in (None, "", "a", asked.kind.letter)
    return kind and rule.major in (None, -1, asked.major) and rule.minor in (None, -1, asked.minor)


def _names(rules: Iterable[OciRule], asked: DeviceAccess) -> bool:
    """Whether a rule is about this major, and not about all devices."""
    return any(rule.allow and rule.major == asked.major and _fits(rule, asked) for rule in rules)


def _told(config: OciConfig, asked: DeviceAccess) -> Evidence:
    """The rules that a configuration has for a major."""
    own = [rule for rule in config.rules if rule.major == asked.major and rule.type == asked.kind.letter]
    said = [f"{'allow' if rule.allow else 'deny'} {_numbers(rule)} {rule.access or 'rwm'}" for rule in own]
    if config.allows_everything:
        said.append("allow all")
    listed = ", ".join(said) or f"nothing of major {asked.major}"
    return Evidence(config.path, f"linux.resources.devices: {listed}")


def _numbers(rule: OciRule) -> str:
    minor = "*" if rule.minor in (None, -1) else rule.minor
    return f"{rule.type} {rule.major}:{minor}"


def _other_numbers(node: NodeAccess, accesses: Accesses, rules: CgroupRules, config: OciConfig | None) -> str:
    """Numbers that may be opened instead, and that no node there has: of another minor, of uvm another major; "" for none."""
    there = {(other.asked.major, other.asked.minor) for other in accesses.nodes}
    asked = node.asked
    for major, minor in _named(rules, config) or [(asked.major, minor) for minor in range(MOST_MINORS)]:
        reloaded = minor == asked.minor and min(major, asked.major) >= FIRST_DYNAMIC
        new = (major, minor) not in there and minor != CONTROL_MINOR
        if (
            (reloaded or major == asked.major)
            and new
            and rules.allows(replace(asked, major=major, minor=minor)) is True
        ):
            return f"{major}:{minor}"
    return ""


def _named(rules: CgroupRules, config: OciConfig | None) -> list[tuple[int, int]]:
    """The devices that a configuration or a list names one by one."""
    told = [(rule.major, rule.minor) for rule in config.rules] if config is not None else []
    if isinstance(rules.listed, DeviceList):
        told += [(rule.major, rule.minor) for rule in rules.listed.rules]
    return [(major, minor) for major, minor in told if major is not None and minor is not None and minor >= 0]
