"""What the cgroup of a process lets it do with a device: the programs of v2, the list of v1, or both.

Two questions are not answered here, because the kernel asks others first: a node that is missing (ENOENT), and one whose mode, owner or
`nodev` mount forbids it (EACCES). Only what gets past both comes to the cgroup, which refuses with EPERM (may_open and inode_permission
in fs/namei.c, devcgroup_inode_permission in include/linux/device_cgroup.h).
"""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from gpudoctor.facts.cgroup_places import CgroupPlace
from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind, Permission, all_allow
from gpudoctor.facts.device_lists import DeviceList
from gpudoctor.facts.device_programs import DeviceProgram, DevicePrograms, program_trouble
from gpudoctor.facts.raw import Answer, Question, Raw, decimal
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

ANSWER = "cgroup_devices"


class _Cgroup(Struct, frozen=True):
    """A cgroup in answers/cgroup_devices.json; `attached` None where only the effective programs were told."""

    effective: tuple[int, ...] = ()
    attached: tuple[int, ...] | None = ()
    error: str | None = None


class _Data(Struct):
    """The `data` of answers/cgroup_devices.json."""

    programs: dict[str, DeviceProgram] = {}
    cgroups: dict[str, _Cgroup] = {}


class AppliedProgram(Struct, frozen=True):
    """A program that applies to a cgroup, and the cgroup that it is attached to: this one or one above it, "" when that is not known.

    runc attaches to the scope, crun to `<scope>/container`, systemd to the scope.
    """

    program: DeviceProgram
    attached_to: str

    def says(self, permission: Permission, access: DeviceAccess, at: str) -> str:
        """Its answer in words, for whoever knows that this is about the cgroup `at`."""
        to = f", attached to {self.attached_to}," if self.attached_to not in ("", at) else ""
        if isinstance(permission, Unread):
            return f"{self.program.words}{to} {permission.detail}"
        return f"{self.program.words}{to} {'allows' if permission else 'denies'} {access.words}"


class CgroupRules(Struct, frozen=True):
    """The rules that hold for a process in one place. `applied` and `listed` are None where no such hierarchy rules."""

    place: CgroupPlace
    applied: tuple[AppliedProgram, ...] | Unread | None
    listed: DeviceList | Unread | None
    judge: DevicePrograms

    def allows(self, access: DeviceAccess) -> Permission:
        """Whether the kernel lets a process there access a device in this way. All rules must allow; one that denies decides."""
        return all_allow(permission for permission, _ in self._answers(access))

    def granted(self, kind: DeviceKind, major: int, minor: int) -> Access | Unread:
        """Which of reading, writing and making the node is allowed, each asked alone."""
        granted = Access(0)
        for access in (Access.READ, Access.WRITE, Access.MKNOD):
            permission = self.allows(DeviceAccess(kind, major, minor, access))
            if isinstance(permission, Unread):
                return permission
            granted |= access if permission else Access(0)
        return granted

    @property
    def may_hide_denials(self) -> bool:
        """Whether a list of v1 allows all: the kernel shows nothing of what was denied after that, so that `allows` may say too much."""
        return isinstance(self.listed, DeviceList) and self.listed.allows_all

    def cite(self, access: DeviceAccess) -> Cited:
        """What decides the answer: the rules that deny; else those that are not known; else all, as all had to allow."""
        answers = list(self._answers(access))
        denying = [evidence for permission, evidence in answers if permission is False]
        unread = [evidence for permission, evidence in answers if isinstance(permission, Unread)]
        return tuple(denying or unread or (evidence for _, evidence in answers))

    def _answers(self, access: DeviceAccess) -> Iterator[tuple[Permission, Evidence]]:
        """The answer of each rule, programs first, as the kernel asks them."""
        unified, devices = self.place.unified, self.place.devices
        if unified is None and devices is None:
            unread = Unread(Why.NOT_RECORDED, "the cgroup of the process", "is not known")
            yield unread, Evidence(unread.where, unread.detail)
        if isinstance(self.applied, Unread):
            yield self.applied, Evidence(self.applied.where, self.applied.detail)
        elif self.applied is not None:
            for applied in self.applied:
                permission = self.judge.allows(applied.program.id, access)
                yield permission, Evidence(str(unified), applied.says(permission, access, str(unified)))
            if not self.applied:
                yield True, Evidence(str(unified), "no device program applies, so that every device is allowed")
        if isinstance(self.listed, Unread):
            yield self.listed, Evidence(self.listed.where, self.listed.detail)
        elif self.listed is not None:
            yield self.listed.allows(access), self.listed.cite(access)[0]


class DeviceRules(Struct, frozen=True):
    """The rules of several places, read at once: what they share is read, decoded and judged once."""

    by_place: dict[CgroupPlace, CgroupRules]

    @classmethod
    def read(cls, raw: Raw, places: Iterable[CgroupPlace]) -> "DeviceRules":
        """Ask for the programs of all places, and of the cgroups above them for who attached what; and read the lists of v1."""
        wanted = tuple(dict.fromkeys(places))
        data = _ask(raw, wanted)
        judge = DevicePrograms({} if isinstance(data, Unread) else _programs(data))
        lists: dict[str, DeviceList | Unread] = {}
        by_place: dict[CgroupPlace, CgroupRules] = {}
        for place in wanted:
            listed: DeviceList | Unread | None = None
            if isinstance(place.devices, str):
                if place.devices not in lists:
                    lists[place.devices] = DeviceList.read(raw, place.devices)
                listed = lists[place.devices]
            else:
                listed = place.devices
            by_place[place] = CgroupRules(place, _applied(place, data, judge), listed, judge)
        return cls(by_place)


def _ask(raw: Raw, places: tuple[CgroupPlace, ...]) -> _Data | Unread:
    """Recordings keep one answer by this name, so everything is asked in one question."""
    own = [place.unified for place in places if isinstance(place.unified, str)]
    if not own:
        return _Data()
    cgroups = list(dict.fromkeys((*own, *(above for place in places for above in place.above))))
    answer = raw.answer(ANSWER, lambda: Question(ANSWER, {"cgroups": cgroups}))
    if isinstance(answer, Unread):
        return answer
    return _converted(answer)


def _converted(answer: Answer) -> _Data | Unread:
    where = f"answers/{ANSWER}.json"
    try:
        data = msgspec.convert(answer.data, _Data)
    except msgspec.ValidationError as error:
        return Unread(Why.UNREADABLE, where, str(error))
    if answer.error is not None and not data.cgroups:
        return program_trouble("bpf(2)", str(answer.error.get("detail", "")))
    return data


def _programs(data: _Data) -> dict[int, DeviceProgram]:
    numbered = ((decimal(number), program) for number, program in data.programs.items())
    return {number: msgspec.structs.replace(program, id=number) for number, program in numbered if number is not None}


def _applied(
    place: CgroupPlace, data: _Data | Unread, judge: DevicePrograms
) -> tuple[AppliedProgram, ...] | Unread | None:
    """The programs that apply in a place."""
    if not isinstance(place.unified, str):
        return place.unified
    if isinstance(data, Unread):
        return data
    cgroup = data.cgroups.get(place.unified)
    if cgroup is None:
        return Unread(Why.NOT_RECORDED, place.unified, "its device programs were not recorded")
    if cgroup.error is not None:
        return program_trouble(place.unified, cgroup.error)
    holders = [(at, data.cgroups[at].attached or ()) for at in (place.unified, *place.above) if at in data.cgroups]
    return tuple(
        AppliedProgram(judge.program(number), next((at for at, attached in holders if number in attached), ""))
        for number in cgroup.effective
    )
