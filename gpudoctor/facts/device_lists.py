"""The device rules of cgroup v1: what the file `devices.list` of a cgroup says.

Rules: security/device_cgroup.c of Linux and Documentation/admin-guide/cgroup-v1/devices.rst. A task is judged by the list of its own
cgroup alone (devcgroup_legacy_check_permission). The hierarchy has been seen to before: a new cgroup starts with its parent's rules
(devcgroup_online), what is allowed to it must be allowed to its parent (parent_has_perm), and what is taken from a cgroup is taken from
all below it (propagate_exception). So the lists further up bound this one, and need not be read.
"""

from msgspec import Struct

from gpudoctor.facts.device_access import LETTERS, Access, DeviceAccess, DeviceKind
from gpudoctor.facts.raw import Absent, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

_LINE = pattern(r"([abc]) (\*|\d{1,10}):(\*|\d{1,10}) ?(r?w?m?)")


class DeviceRule(Struct, frozen=True):
    """A line of the list; None stands for any number, and `kind` None (`a`) for the whole policy to allow."""

    kind: DeviceKind | None
    major: int | None
    minor: int | None
    access: Access
    text: str

    def allows(self, access: DeviceAccess) -> bool:
        """Whether this rule alone covers all that is asked for; two that cover half of it each do not (match_exception)."""
        return (
            self.kind in (None, access.kind)
            and self.major in (None, access.major)
            and self.minor in (None, access.minor)
            and access.access in self.access
        )


class DeviceList(Struct, frozen=True):
    """The rules of one cgroup, as its file lists them."""

    path: str
    rules: tuple[DeviceRule, ...]

    @classmethod
    def read(cls, raw: Raw, directory: str) -> "DeviceList | Unread":
        """The list of the cgroup whose directory this is."""
        path = f"{directory.rstrip('/')}/devices.list"
        file = raw.read(path)
        if isinstance(file, Absent):
            return Unread(
                Why.UNREADABLE, path, "does not exist: the cgroup is gone, or no cgroup of the controller devices"
            )
        return parsed(file) if isinstance(file, TextFile) else file

    @property
    def allows_all(self) -> bool:
        """Whether the policy is to allow. Then the kernel lists nothing else, not even what was denied after all (devcgroup_seq_show)."""
        return any(rule.kind is None for rule in self.rules)

    def allows(self, access: DeviceAccess) -> bool:
        """Whether the list allows it: one rule must cover all of it."""
        return any(rule.allows(access) for rule in self.rules)

    def cite(self, access: DeviceAccess) -> Cited:
        """The rule that allows it, or those that come nearest."""
        allowing = next((rule for rule in self.rules if rule.allows(access)), None)
        if allowing is not None:
            note = " (whatever else was denied is not listed)" if allowing.kind is None else ""
            return (Evidence(self.path, f"{allowing.text}{note}"),)
        near = [rule.text for rule in self.rules if rule.kind == access.kind and rule.major in (None, access.major)]
        rest = f"; nearest: {', '.join(near[:4])}" if near else ""
        return (Evidence(self.path, f"no rule allows {access.words}{rest}"),)


def parsed(file: TextFile) -> DeviceList | Unread:
    """The rules in a list's text; no line at all denies everything."""
    if file.truncated:
        return Unread(Why.NOT_RECORDED, file.path, "only its beginning was recorded")
    rules: list[DeviceRule] = []
    for line in file.text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            return Unread(Why.UNREADABLE, file.path, f"is no list of device rules: {line[:80]!r}")
        kind = {"a": None, "b": DeviceKind.BLOCK, "c": DeviceKind.CHAR}[match[1]]
        access = Access(0)
        for letter in match[4]:
            access |= LETTERS[letter]
        rules.append(DeviceRule(kind, _number(match[2]), _number(match[3]), access, line.rstrip()))
    return DeviceList(file.path, tuple(rules))


def _number(text: str) -> int | None:
    return None if text == "*" else int(text)
