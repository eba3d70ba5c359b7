"""Why a GPU's node is missing: the driver's helper and udev's rules, looked for only then, and remedies that fit them."""

import pytest

from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing
from gpudoctor.report import Finding
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Unread
from tests.captures import diagnose
from tests.small_node import COMPLETE, SmallNode, alarms, cited, steps

CONTAINER = "/run/nvidia/driver"


def _helper(machine: SmallNode, mode: int, path: str = "/usr/bin/nvidia-modprobe") -> None:
    machine.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode, 0, 0)))


def _gpu_finding(machine: SmallNode) -> Finding:
    machine.absent("/dev/nvidia1")
    (finding,) = alarms(machine.report(), "device-nodes.gpu-node")
    assert finding.subject.key == "0000:06:00.0"
    return finding


def test_a_missing_node_without_the_helper_asks_for_it_first() -> None:
    finding = _gpu_finding(SmallNode())
    assert "/usr/bin/nvidia-modprobe does not exist" in cited(finding)
    assert [remedy.action.value for remedy in finding.remedies[:2]] == ["install-package", "change-config"]
    assert finding.remedies[1].then and "nvidia-modprobe -c 1" in finding.remedies[1].run


@pytest.mark.parametrize(("mode", "told"), [(0o4755, False), (0o755, True)])
def test_a_helper_that_is_not_setuid_is_told_of(mode: int, *, told: bool) -> None:
    machine = SmallNode()
    _helper(machine, mode)
    finding = _gpu_finding(machine)
    assert ("not setuid root" in cited(finding)) is told
    assert ("chmod 4755 /usr/bin/nvidia-modprobe" in steps(finding)) is told
    assert finding.remedies[0].run[0] == "nvidia-modprobe -c 1"


def test_the_helper_of_the_driver_container_is_run_there() -> None:
    machine = SmallNode()
    _helper(machine, 0o4755, "/run/nvidia/driver/usr/bin/nvidia-modprobe")
    assert "chroot /run/nvidia/driver nvidia-modprobe -c 1" in steps(_gpu_finding(machine))


def test_a_wrong_node_in_the_driver_container_is_made_anew_there() -> None:
    machine = SmallNode(nvidia_uvm=506)
    for path in ("/dev/nvidia-uvm", "/dev/nvidia-modeset"):
        machine.absent(path)
    machine.char(f"{CONTAINER}/dev/nvidia-uvm", 400, 0)
    machine.char(f"{CONTAINER}/dev/nvidia-modeset", 196, 254)
    report = machine.report()
    (uvm,) = alarms(report, "device-nodes.uvm-node")
    assert uvm.remedies[0].run[:2] == (
        f"rm -d {CONTAINER}/dev/nvidia-uvm",
        f"chroot {CONTAINER} nvidia-modprobe -u -c 0",
    )
    (modeset,) = alarms(report, "device-nodes.other-nodes")
    assert f"chroot {CONTAINER} nvidia-modprobe -m" in steps(modeset)


def test_a_udev_rule_that_runs_mknod_is_told_of_with_its_failure() -> None:
    machine = SmallNode()
    _helper(machine, 0o4755)
    rule = """KERNEL=="nvidia", RUN+="/bin/sh -c '/bin/mknod -m 666 /dev/nvidia1 c 195 1'\""""
    machine.text("/usr/lib/udev/rules.d/60-nvidia.rules", f"# mknod is run here\n{rule}\n")
    machine.text("/usr/lib/udev/rules.d/70-others.rules", "RUN+=mknod\n")
    said = (
        "Nov 29 10:00:00 n1 systemd-udevd[1]: nvidia: Process '/bin/mknod -m 666 /dev/nvidia1' failed with exit code 1."
    )
    machine.logs["journal/systemd-udevd.service.log"] = f"{said}\n"
    finding = _gpu_finding(machine)
    assert rule in cited(finding) and "failed with exit code 1" in cited(finding)
    assert "# mknod is run here" not in cited(finding) and "70-others" not in cited(finding)
    assert "grep -n mknod /usr/lib/udev/rules.d/60-nvidia.rules" in steps(finding)


def test_a_rule_hidden_by_one_of_the_same_name_does_not_count() -> None:
    machine = SmallNode()
    machine.text("/usr/lib/udev/rules.d/60-nvidia.rules", "RUN+=mknod\n")
    machine.text("/etc/udev/rules.d/60-nvidia.rules", "RUN+=nvidia-modprobe\n")
    assert "RUN+=mknod" not in cited(_gpu_finding(machine))


def test_where_the_driver_leaves_nodes_to_the_system_the_helper_is_not_advised() -> None:
    machine = SmallNode()
    _helper(machine, 0o4755)
    machine.parameters = "ModifyDeviceFiles: 0\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n"
    advised = steps(_gpu_finding(machine))
    assert "mknod -m 0660 /dev/nvidia1 c 195 1\nchown 0:44 /dev/nvidia1" in advised
    assert "nvidia-modprobe -c" not in advised


def test_who_makes_nodes_is_not_looked_for_while_none_is_missing() -> None:
    """A wrong node is no missing one, and a display-only node without nvidia-uvm lacks nothing."""

    asked: list[str] = []

    class Watching(RecordedNode):
        def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
            asked.append(path)
            return super().listing(path, begin=begin)

    machine = SmallNode()
    del machine.majors["nvidia-uvm"]
    machine.absent("/dev/nvidia-uvm")
    machine.report()
    diagnose(Watching(machine.tree, complete=COMPLETE))
    assert asked
    assert not any("udev" in path for path in asked)
