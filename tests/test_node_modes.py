"""Modes and owners of device nodes: what the driver's tools keep, what is policy, and what a user namespace does not show."""

import pytest

from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status
from tests.small_node import SmallNode, alarms, cited

CHECK = "device-nodes.modes"
NODES = {"/dev/nvidia0": (195, 0), "/dev/nvidia1": (195, 1), "/dev/nvidiactl": (195, 255)}


def _owned(uid: int, mode: int = 0o666, *, told: int = 0o666, gid: int | None = None, modify: int = 1) -> SmallNode:
    machine = SmallNode()
    machine.parameters = f"ModifyDeviceFiles: {modify}\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: {told}\n"
    group = uid if gid is None else gid
    for path, (major, minor) in NODES.items():
        entry = Entry(path, EntryType.CHAR, mode, uid, group, major=major, minor=minor)
        machine.tree.put(path, Record(entry=entry))
    return machine


@pytest.mark.parametrize("mode", [0o660, 0o600, 0o400])
def test_where_the_drivers_tools_leave_nodes_alone_modes_are_policy(mode: int) -> None:
    assert alarms(_owned(0, mode).report(), CHECK)
    (finding,) = _owned(0, mode, modify=0).report().result(CHECK).findings
    assert finding.status is Status.SKIP and "ModifyDeviceFiles: 0" in cited(finding)


def test_a_decimal_mode_that_nobody_applies_is_no_fault() -> None:
    assert alarms(_owned(0, 0o666, told=666).report(), CHECK)
    assert not alarms(_owned(0, 0o666, told=666, modify=0).report(), CHECK)


def test_an_owner_without_a_name_in_this_user_namespace_is_not_a_wrong_one() -> None:
    assert _owned(65534).report().result(CHECK).status is Status.PASS
    restricted = _owned(65534, 0o660, told=0o660).report().result(CHECK)
    assert (restricted.status, restricted.why) == (Status.UNKNOWN, "no-permission")
    (finding,) = alarms(_owned(65534, 0o640).report(), CHECK)
    assert "/dev/nvidia0 0640 ?:?" in finding.summary


def test_the_kernels_own_overflow_ids_count() -> None:
    machine = _owned(1000, gid=1001)
    assert alarms(machine.report(), CHECK)
    machine.text("/proc/sys/kernel/overflowuid", "1000\n")
    machine.text("/proc/sys/kernel/overflowgid", "1001\n")
    assert machine.report().result(CHECK).status is Status.PASS
