"""The rules of a cgroup: several programs, lists of v1, both together, and where a process stands; by recorded answers."""

import json

import pytest

from gpudoctor.facts.cgroup_paths import parse_groups
from gpudoctor.facts.cgroup_places import CgroupMounts, CgroupPlace
from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind
from gpudoctor.facts.device_rules import CgroupRules, DeviceRules
from gpudoctor.facts.raw import Answer, Gate, Question
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.sources.redaction import redact
from gpudoctor.verdicts import Unread, Why
from tests.bpf_assembler import Assembler, reaching
from tests.captures import Builder
from tests.device_shapes import ALL, NVIDIA0, RW

CGROUP = "/sys/fs/cgroup/system.slice/docker-4f2e.scope"
LISTED = "/sys/fs/cgroup/devices/docker/4f2e"

# the rules of one cgroup ------------------------------------------------------------------------------------------------


def only(kind: DeviceKind, major: int) -> bytes:
    """A program that allows one major number."""
    code = Assembler()
    code.alu("mov", 0, 0)
    code.load(2, 1, 0, 2)
    code.jump("jne", 2, kind, "end")
    code.load(2, 1, 4)
    code.jump("jne", 2, major, "end")
    code.alu("mov", 0, 1)
    code.label("end")
    code.exit()
    return code.code()


ALLOW_ALL = reaching(lambda code: None).code()
NVIDIA_ONLY = only(DeviceKind.CHAR, 195)
NULL_ONLY = only(DeviceKind.CHAR, 1)
UNCLEAR = reaching(lambda code: code.raw(0x85, immediate=14)).code()


def node_with(
    programs: dict[int, bytes] | None = None,
    cgroups: dict[str, dict[str, object]] | None = None,
    lists: dict[str, str] | None = None,
) -> RecordedNode:
    """A node with these programs, cgroups and lists."""
    builder = Builder()
    for directory, text in (lists or {}).items():
        builder.text(f"{directory}/devices.list", text)
    node = RecordedNode(builder.tree, complete=["/sys/fs/cgroup/devices"])
    if cgroups is not None:
        shown = {str(key): {"name": f"p{key}", "insns": code.hex()} for key, code in (programs or {}).items()}
        node.answers["cgroup_devices"] = Answer(data={"programs": shown, "cgroups": cgroups}, via="bpf(2)")
    return node


def rules_of(node: RecordedNode, place: CgroupPlace) -> CgroupRules:
    """The rules of one place."""
    return DeviceRules.read(node, [place]).by_place[place]


V2 = CgroupPlace(unified=CGROUP)
V1 = CgroupPlace(devices=LISTED)
BOTH = CgroupPlace(unified=CGROUP, devices=LISTED)


@pytest.mark.parametrize(
    ("effective", "expected", "words"),
    [
        ([], True, "no device program applies, so that every device is allowed"),
        ([1], True, "program p1 #1 allows char 195:0 rw"),
        ([1, 2], True, "program p2 #2 allows char 195:0 rw"),
        ([1, 3], False, "program p3 #3 denies char 195:0 rw"),
        ([3, 4], False, "program p3 #3 denies char 195:0 rw"),
        ([1, 4], None, "program p4 #4 cannot be judged: a call of a helper"),
        ([4, 9], None, "program #9 it was gone when it was looked at"),
    ],
)
def test_all_effective_programs_must_allow(effective: list[int], expected: bool | None, words: str) -> None:
    programs = {1: NVIDIA_ONLY, 2: ALLOW_ALL, 3: NULL_ONLY, 4: UNCLEAR}
    rules = rules_of(node_with(programs, {CGROUP: {"effective": effective, "attached": effective}}), V2)
    said = rules.allows(NVIDIA0)
    assert (None if isinstance(said, Unread) else said) is expected
    shown = [evidence.shows for evidence in rules.cite(NVIDIA0)]
    assert words in shown
    assert all(evidence.where == CGROUP for evidence in rules.cite(NVIDIA0))
    assert all("denies" in line for line in shown) or expected is not False


def test_a_program_is_attributed_to_the_cgroup_that_it_is_attached_to() -> None:
    container = f"{CGROUP}/container"
    cgroups: dict[str, dict[str, object]] = {
        container: {"effective": [3, 1], "attached": [1]},
        CGROUP: {"effective": [3], "attached": [3]},
    }
    rules = rules_of(node_with({1: NVIDIA_ONLY, 3: NULL_ONLY}, cgroups), CgroupPlace(unified=container))
    assert rules.cite(NVIDIA0)[0].shows == f"program p3 #3, attached to {CGROUP}, denies char 195:0 rw"
    assert isinstance(rules.applied, tuple)
    assert [applied.attached_to for applied in rules.applied] == [CGROUP, container]


@pytest.mark.parametrize(
    ("code", "listed", "expected"),
    [
        (NVIDIA_ONLY, "c 195:* rw\n", True),
        (NVIDIA_ONLY, "c 1:3 rwm\n", False),
        (NULL_ONLY, "a *:* rwm\n", False),
        (UNCLEAR, "c 195:* rw\n", None),
        (UNCLEAR, "c 1:3 rwm\n", False),
    ],
)
def test_where_both_hierarchies_rule_both_must_allow(code: bytes, listed: str, expected: bool | None) -> None:
    node = node_with({1: code}, {CGROUP: {"effective": [1], "attached": [1]}}, {LISTED: listed})
    said = rules_of(node, BOTH).allows(NVIDIA0)
    assert (None if isinstance(said, Unread) else said) is expected


@pytest.mark.parametrize(
    ("error", "why", "words"),
    [
        ("EPERM", Why.NO_PERMISSION, "EPERM"),
        ("EACCES", Why.NO_PERMISSION, "EACCES"),
        ("EINVAL", Why.UNREADABLE, "older than Linux 4.15"),
        ("ENOSYS", Why.UNREADABLE, "no bpf(2)"),
        ("ENOENT", Why.UNREADABLE, "gone"),
        ("EBADF", Why.UNREADABLE, "no cgroup"),
        ("EIO", Why.UNREADABLE, "EIO"),
    ],
)
def test_a_cgroup_that_could_not_be_asked_is_unknown(error: str, why: Why, words: str) -> None:
    node = node_with({}, {CGROUP: {"effective": [], "attached": [], "error": error}})
    rules = rules_of(node, V2)
    said = rules.allows(NVIDIA0)
    assert isinstance(said, Unread)
    assert (said.why, said.where) == (why, CGROUP)
    assert words in said.detail
    assert words in rules.cite(NVIDIA0)[0].shows
    assert rules.granted(DeviceKind.CHAR, 195, 0) == said


def test_a_redacted_recording_has_the_same_rules() -> None:
    """Names in the path of a cgroup are replaced alike wherever they stand; programs hold none."""
    place = CgroupPlace(unified="/sys/fs/cgroup/machine.slice/machine-alices\\x2dbox.scope/payload")
    cgroups = {str(place.unified): {"effective": [1, 3], "attached": [1, 3], "error": None}}
    programs = {
        str(key): {"name": "sd_devices", "insns": code.hex()} for key, code in ((1, NVIDIA_ONLY), (3, NULL_ONLY))
    }
    answer = {"schema": 1, "via": "bpf(2)", "data": {"programs": programs, "cgroups": cgroups}}
    process = "0::" + str(place.unified).removeprefix("/sys/fs/cgroup") + "\n"
    members = {
        "snapshot.json": b"{}",
        "answers/cgroup_devices.json": json.dumps(answer).encode(),
        "root/proc/7/cgroup": process.encode(),
    }
    redacted = redact(members, b"salt").members
    assert b"alice" not in b"".join(redacted.values())
    node = RecordedNode(Builder().tree)
    node.answers["cgroup_devices"] = Answer(**json.loads(redacted["answers/cgroup_devices.json"]))
    hidden = placed(V2_MOUNTS, redacted["root/proc/7/cgroup"].decode())
    rules = rules_of(node, hidden)
    assert rules.cite(NVIDIA0)[0].shows == "program sd_devices #3 denies char 195:0 rw"


def test_answers_that_are_missing_or_odd_are_unknown() -> None:
    nothing_asked = rules_of(RecordedNode(Builder().tree), V2).allows(NVIDIA0)
    other_cgroup = rules_of(node_with({}, {"/sys/fs/cgroup/x": {"effective": []}}), V2).allows(NVIDIA0)
    node = node_with()
    node.answers["cgroup_devices"] = Answer(data={"cgroups": [1]})
    odd = rules_of(node, V2).allows(NVIDIA0)
    node.answers["cgroup_devices"] = Answer(data={}, error={"why": "unavailable", "detail": "ENOSYS"})
    unavailable = rules_of(node, V2).allows(NVIDIA0)
    nowhere = rules_of(node, CgroupPlace()).allows(NVIDIA0)
    for said, why in (
        (nothing_asked, Why.NOT_RECORDED),
        (other_cgroup, Why.NOT_RECORDED),
        (odd, Why.UNREADABLE),
        (unavailable, Why.UNREADABLE),
        (nowhere, Why.NOT_RECORDED),
    ):
        assert isinstance(said, Unread)
        assert said.why is why


def test_many_places_are_asked_in_one_question() -> None:
    asked: list[Question | Unread] = []

    class Asking(RecordedNode):
        """A node that remembers its questions."""

        def answer(self, name: str, gate: Gate) -> Answer | Unread:
            """Ask as a live source does."""
            asked.append(gate())
            return super().answer(name, gate)

    node = Asking(Builder().tree)
    places = [CgroupPlace(unified=f"/sys/fs/cgroup/machine.slice/c{number}.scope") for number in range(3)]
    DeviceRules.read(node, [*places, *places, V1])
    above = ["/sys/fs/cgroup/machine.slice", "/sys/fs/cgroup"]
    assert asked == [Question("cgroup_devices", {"cgroups": [*(place.unified for place in places), *above]})]
    DeviceRules.read(node, [V1])
    assert len(asked) == 1


# cgroup v1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("a *:* rwm\n", NVIDIA0, True),
        ("", NVIDIA0, False),
        ("c 195:* rw\n", NVIDIA0, True),
        ("c 195:* rw\n", DeviceAccess(DeviceKind.CHAR, 195, 0, Access.MKNOD), False),
        ("c 195:* rw\n", DeviceAccess(DeviceKind.BLOCK, 195, 0, RW), False),
        ("c *:* m\nc 195:1 rwm\n", NVIDIA0, False),
        ("c *:* rw\n", NVIDIA0, True),
        ("b *:* rwm\nc 19:5 rw\nc 195:00 rw\n", NVIDIA0, True),
        # One rule must cover all of it: these two let read and write, each alone.
        ("c 195:0 r\nc 195:* w\n", NVIDIA0, False),
        ("c 195:0 r\nc 195:* w\n", DeviceAccess(DeviceKind.CHAR, 195, 0, Access.WRITE), True),
        ("c 195:0 \n", NVIDIA0, False),
    ],
)
def test_a_list_allows_what_one_of_its_rules_covers(text: str, asked: DeviceAccess, expected: bool) -> None:
    rules = rules_of(node_with(lists={LISTED: text}), V1)
    assert rules.allows(asked) is expected
    (evidence,) = rules.cite(asked)
    assert evidence.where == f"{LISTED}/devices.list"


def test_what_a_list_shows_is_cited() -> None:
    rules = rules_of(node_with(lists={LISTED: "c 1:3 rwm\nc 195:* rw\nc *:* m\n"}), V1)
    assert rules.cite(NVIDIA0)[0].shows == "c 195:* rw"
    assert rules.granted(DeviceKind.CHAR, 195, 0) == ALL
    assert rules.granted(DeviceKind.CHAR, 508, 0) == Access.MKNOD
    open_list = rules_of(node_with(lists={LISTED: "a *:* rwm\n"}), V1)
    assert open_list.cite(NVIDIA0)[0].shows == "a *:* rwm (whatever else was denied is not listed)"


@pytest.mark.parametrize(
    "text", ["x 1:3 rwm\n", "c 1 rwm\n", "c 1:3 rwmx\n", "c 1:3 mw\n", "\n", "c 99999999999:0 r\n"]
)
def test_a_list_that_is_none_is_unknown(text: str) -> None:
    assert isinstance(rules_of(node_with(lists={LISTED: text}), V1).allows(NVIDIA0), Unread)


def test_a_list_that_cannot_be_read_is_unknown() -> None:
    gone = rules_of(node_with(), V1).allows(NVIDIA0)
    node = node_with()
    node.tree.put(f"{LISTED}/devices.list", Record(error="EACCES"))
    secret = rules_of(node, V1).allows(NVIDIA0)
    assert isinstance(gone, Unread)
    assert isinstance(secret, Unread)
    assert (gone.why, secret.why) == (Why.UNREADABLE, Why.NO_PERMISSION)


# where a process stands -------------------------------------------------------------------------------------------------

V2_MOUNTS = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 23 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "32 31 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:30 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
)
SCOPE = "/system.slice/docker-4f2e.scope"


def placed(mounts: str, process: str) -> CgroupPlace:
    """By a /proc/PID/mountinfo and a /proc/PID/cgroup."""
    groups = parse_groups(process)
    return CgroupMounts.parsed(mounts).place(groups.unified, groups.devices, "/proc/7/cgroup")


@pytest.mark.parametrize(
    ("mounts", "process", "unified", "devices"),
    [
        (V2_MOUNTS, f"0::{SCOPE}\n", f"/sys/fs/cgroup{SCOPE}", None),
        (V2_MOUNTS, "0::/\n", "/sys/fs/cgroup", None),
        (
            V1_MOUNTS,
            f"12:devices:{SCOPE}\n4:cpu,cpuacct:/x\n1:name=systemd:/y\n0::/z\n",
            "/sys/fs/cgroup/unified/z",
            SCOPE,
        ),
        (V1_MOUNTS, "7:pids,devices:/a:b\n", None, "/a:b"),
        (V1_MOUNTS, "4:cpu,cpuacct:/x\n0::/z\n", "/sys/fs/cgroup/unified/z", None),
    ],
)
def test_the_directories_of_a_process(mounts: str, process: str, unified: str | None, devices: str | None) -> None:
    place = placed(mounts, process)
    assert place.unified == unified
    assert place.devices == (None if devices is None else f"/sys/fs/cgroup/devices{devices}")


@pytest.mark.parametrize(
    ("mounts", "process", "words"),
    [
        (V2_MOUNTS, "0::/../../system.slice/x.scope\n", "outside of the cgroup namespace"),
        (V2_MOUNTS, "0::/x.scope (deleted)\n", "can be read no more"),
        ("", "0::/x.scope\n", "mounted nowhere"),
        (V2_MOUNTS.replace(" / /sys", " /pod /sys"), "0::/podium/x\n", "mounted nowhere"),
    ],
)
def test_a_place_that_cannot_be_found_is_unknown(mounts: str, process: str, words: str) -> None:
    place = placed(mounts, process)
    assert isinstance(place.unified, Unread)
    assert words in place.unified.detail
    said = rules_of(node_with(), place).allows(NVIDIA0)
    assert said == place.unified


def test_a_hierarchy_of_which_a_part_is_mounted() -> None:
    place = placed(V2_MOUNTS.replace(" / /sys/fs/cgroup ", " /pod /mnt/two\\040words "), "0::/pod/c\n")
    assert place.unified == "/mnt/two words/c"
    assert place.above == ("/mnt/two words",)


def test_what_is_mounted_over_a_hierarchy_hides_it() -> None:
    """By the ids, not by the order: on many machines the mount at / is not the first line."""
    root = "23 1 8:1 / / rw - ext4 /dev/sda rw\n"
    over = V2_MOUNTS.replace("30 23", "40 31")
    for mounts in (root + V1_MOUNTS + over, over + V1_MOUNTS + root):
        place = placed(mounts, "5:devices:/x\n0::/z\n")
        assert place.unified == "/sys/fs/cgroup/z"
        assert isinstance(place.devices, Unread)
        assert "mounted nowhere" in place.devices.detail
    place = placed(V1_MOUNTS + root, "5:devices:/x\n0::/z\n")
    assert (place.unified, place.devices) == ("/sys/fs/cgroup/unified/z", "/sys/fs/cgroup/devices/x")
    above = "41 23 0:50 / /sys rw - tmpfs tmpfs rw\n"
    assert isinstance(placed(V1_MOUNTS + root + above, "0::/z\n").unified, Unread)


def test_the_cgroups_above() -> None:
    assert CgroupPlace(unified=f"{CGROUP}/container").above == (CGROUP, "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup")
    assert CgroupPlace(unified="/sys/fs/cgroup").above == ()
