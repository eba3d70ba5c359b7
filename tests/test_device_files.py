"""Device files beside those of GPUs, and links in /dev/char: from small recorded nodes and from real ones."""

from pathlib import Path

import pytest

from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.testing import node, run_check
from gpudoctor.verdicts import Status
from tests.captures import DEVICES, diagnose, rig_node
from tests.conftest import SHARED
from tests.small_node import SmallNode, alarms, cited, steps

# Other nodes --------------------------------------------------------------------------------------------------------


def test_other_nodes_pass_with_their_numbers_and_may_be_missing() -> None:
    machine = SmallNode(nvidia_nvlink=509)
    machine.char("/dev/nvidia-modeset", 195, 254)
    result = machine.report().result("device-nodes.other-nodes")
    said = {finding.subject.id: finding.status for finding in result.findings}
    assert said == {
        "file:/dev/nvidia-modeset": Status.PASS,
        "file:/dev/nvidia-uvm-tools": Status.SKIP,
        "file:/dev/nvidia-nvlink": Status.SKIP,
    }


def test_a_node_with_the_numbers_of_another_driver_is_found_with_the_command_that_makes_it_anew() -> None:
    machine = SmallNode(nvidia_nvlink=509)
    machine.char("/dev/nvidia-modeset", 195, 250)
    machine.char("/dev/nvidia-nvlink", 511, 0)
    report = machine.report()
    modeset, nvlink = sorted(alarms(report, "device-nodes.other-nodes"), key=lambda found: found.subject.key)
    assert (modeset.subject.key, nvlink.subject.key) == ("/dev/nvidia-modeset", "/dev/nvidia-nvlink")
    assert "195:250, expected 195:254" in modeset.summary and "nvidia-modprobe -m" in steps(modeset)
    assert "511:0, expected 509:0" in nvlink.summary and "nvidia-modprobe -l" in steps(nvlink)
    (cause,) = report.root_causes
    assert len(cause.findings) == 2


def test_a_directory_in_the_place_of_a_node_is_found() -> None:
    machine = SmallNode()
    machine.tree.put("/dev/nvidia-modeset", Record(entry=Entry("/dev/nvidia-modeset", EntryType.DIR)))
    (finding,) = alarms(machine.report(), "device-nodes.other-nodes")
    assert "is a directory, not a device node" in finding.summary


def test_tools_as_stale_as_uvm_are_one_root_cause_with_it_and_cited_there() -> None:
    machine = SmallNode()
    machine.majors["nvidia-uvm"] = 511
    machine.char("/dev/nvidia-uvm-tools", 507, 1)
    report = machine.report()
    assert [cause.check for cause in report.root_causes] == ["device-nodes.uvm-node"]
    assert "/dev/nvidia-uvm-tools character device 507:1" in cited(alarms(report, "device-nodes.uvm-node")[0])


def test_modeset_is_known_by_the_common_name_of_older_drivers() -> None:
    machine = SmallNode()
    machine.majors = {"nvidia-frontend": 195, "nvidia-uvm": 507}
    machine.char("/dev/nvidia-modeset", 195, 254)
    result = machine.report().result("device-nodes.other-nodes")
    assert result.findings[0].subject.key == "/dev/nvidia-modeset" and result.status is Status.PASS


def test_a_node_of_the_driver_container_is_judged_where_it_is() -> None:
    machine = SmallNode()
    machine.char("/run/nvidia/driver/dev/nvidia-modeset", 195, 1)
    (finding,) = alarms(machine.report(), "device-nodes.other-nodes")
    assert finding.summary.startswith("/run/nvidia/driver/dev/nvidia-modeset is 195:1")
    assert "rm -d /run/nvidia/driver/dev/nvidia-modeset" in steps(finding)


def test_a_node_that_may_not_be_looked_at_is_unknown() -> None:
    machine = SmallNode()
    machine.tree.put("/dev/nvidia-modeset", Record(error="EACCES"))
    result = machine.report().result("device-nodes.other-nodes")
    assert (result.status, result.why) == (Status.UNKNOWN, "no-permission")


# NVSwitches ---------------------------------------------------------------------------------------------------------


def _with_switch_nodes(machine: SmallNode, *minors: int, major: int = 510) -> SmallNode:
    for minor in minors:
        name = "ctl" if minor == 255 else str(minor)
        machine.char(f"/dev/nvidia-nvswitch{name}", major, minor)
    return machine


def test_every_switch_has_its_node() -> None:
    machine = SmallNode()
    machine.switches(4)
    result = _with_switch_nodes(machine, 255, 0, 1, 2, 3).report().result("device-nodes.nvswitch-nodes")
    assert result.status is Status.PASS and "4 NVSwitches" in result.detail


@pytest.mark.parametrize(
    ("minors", "words"),
    [
        ((0, 1, 2, 3), "/dev/nvidia-nvswitchctl is missing"),
        ((255, 0, 3), "2 of 4 NVSwitches have a node"),
        ((), "/dev/nvidia-nvswitchctl is missing and 0 of 4 NVSwitches have a node"),
    ],
)
def test_missing_nodes_of_switches_fail_and_nothing_that_is_right_is_removed(
    minors: tuple[int, ...], words: str
) -> None:
    machine = SmallNode()
    machine.switches(4)
    (finding,) = alarms(_with_switch_nodes(machine, *minors).report(), "device-nodes.nvswitch-nodes")
    assert (finding.status, finding.breaks, finding.summary) == (Status.FAIL, "nothing", words)
    assert "nvidia-modprobe -s -c 255 -c 0 -c 1 -c 2 -c 3" in steps(finding) and "rm " not in steps(finding)


def test_stale_nodes_of_switches_fail_with_both_majors() -> None:
    machine = SmallNode()
    machine.switches(2)
    (finding,) = alarms(_with_switch_nodes(machine, 255, 0, 1, major=508).report(), "device-nodes.nvswitch-nodes")
    assert "508:255, expected 510:255 (and 2 more)" in finding.summary
    assert "/proc/devices 510 nvidia-nvswitch" in cited(finding)


def test_switches_of_another_driver_need_no_node() -> None:
    machine = SmallNode()
    machine.switches(2)
    for number in range(2):
        machine.link(f"/sys/devices/pci0000:70/0000:7{number}:00.0/driver", "../../../bus/pci/drivers/vfio-pci")
    assert machine.report().result("device-nodes.nvswitch-nodes").status is Status.SKIP


def test_one_switch_unbound_later_leaves_a_gap_in_the_minors() -> None:
    machine = SmallNode()
    machine.switches(3)
    machine.absent("/sys/devices/pci0000:70/0000:70:00.0/driver")
    result = _with_switch_nodes(machine, 255, 1, 2).report().result("device-nodes.nvswitch-nodes")
    assert result.status is Status.PASS


def test_a_container_that_got_gpus_only_is_not_accused_of_lacking_switches() -> None:
    machine = SmallNode()
    machine.switches(4)
    machine.absent("/dev/kmsg")
    assert machine.report().result("device-nodes.nvswitch-nodes").status is Status.SKIP


def test_a_switch_whose_driver_cannot_be_read_is_unknown() -> None:
    machine = SmallNode()
    machine.switches(1)
    machine.tree.put("/sys/devices/pci0000:70/0000:70:00.0/driver", Record(error="EACCES"))
    assert machine.report().result("device-nodes.nvswitch-nodes").why == "no-permission"


def test_switches_without_nodes_are_a_consequence_where_no_gpu_has_one_either() -> None:
    machine = SmallNode()
    machine.switches(2)
    for path in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        machine.absent(f"/dev/{path}")
    report = machine.report()
    assert [cause.check for cause in report.root_causes] == ["device-nodes.gpu-node"]
    assert "device-nodes.nvswitch-nodes@node:node" in report.root_causes[0].consequence_ids


# Capabilities -------------------------------------------------------------------------------------------------------


def _mig() -> SmallNode:
    """One GPU instance with one compute instance, and the capabilities that every driver lists."""
    machine = SmallNode()
    machine.capability("mig/config", 1, mode=0o400)
    machine.capability("mig/monitor", 2)
    machine.capability("gpu0/mig/gi1/access", 12)
    machine.capability("gpu0/mig/gi1/ci0/access", 13)
    return machine


def test_nodes_of_instances_pass_and_those_of_managers_may_be_missing() -> None:
    machine = _mig()
    machine.char("/dev/nvidia-caps/nvidia-cap12", 506, 12, 0o444)
    machine.char("/dev/nvidia-caps/nvidia-cap13", 506, 13, 0o444)
    result = machine.report().result("device-nodes.capability-nodes")
    assert result.status is Status.PASS and "2 of them of MIG instances" in result.detail


def test_a_missing_node_of_an_instance_warns_with_its_capability() -> None:
    machine = _mig()
    machine.char("/dev/nvidia-caps/nvidia-cap12", 506, 12, 0o444)
    (finding,) = alarms(machine.report(), "device-nodes.capability-nodes")
    assert finding.summary.startswith("/dev/nvidia-caps/nvidia-cap13 is missing")
    assert "capabilities/gpu0/mig/gi1/ci0/access DeviceFileMinor: 13" in cited(finding)
    assert "nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access" in steps(finding)


def test_where_user_space_must_not_make_nodes_the_helper_is_not_advised() -> None:
    machine = SmallNode()
    machine.capability("gpu0/mig/gi1/access", 12, modify=0)
    (finding,) = alarms(machine.report(), "device-nodes.capability-nodes")
    assert "mknod -m 0444 /dev/nvidia-caps/nvidia-cap12 c 506 12" in steps(finding)
    assert "nvidia-modprobe" not in steps(finding)


def test_a_capability_with_the_major_of_imex_channels_is_found() -> None:
    """As in ../shared/corpus/issue-excerpts/dev-nvidia-caps-wrong-major.txt (kubernetes-sigs/dra-driver-nvidia-gpu#304)."""
    machine = SmallNode(nvidia_caps=511, nvidia_caps_imex_channels=234)
    machine.capability("fabric-imex-mgmt", 4323)
    machine.char("/dev/nvidia-caps/nvidia-cap4323", 234, 4323, 0o400)
    (finding,) = alarms(machine.report(), "device-nodes.capability-nodes")
    assert "234:4323, expected 511:4323" in finding.summary


@pytest.mark.parametrize(("modify", "status"), [(1, Status.WARN), (0, Status.PASS)])
def test_another_mode_is_a_fault_only_where_the_driver_would_put_it_back(modify: int, status: Status) -> None:
    machine = SmallNode()
    machine.capability("gpu0/mig/gi1/access", 12, modify=modify)
    machine.char("/dev/nvidia-caps/nvidia-cap12", 506, 12, 0o440)
    report = machine.report()
    assert report.result("device-nodes.capability-nodes").status is status
    for finding in alarms(report, "device-nodes.capability-nodes"):
        assert "mode 0440, the driver says 0444" in finding.summary


def test_who_may_configure_mig_is_not_judged() -> None:
    machine = SmallNode()
    machine.capability("mig/config", 1, mode=0o400)
    machine.char("/dev/nvidia-caps/nvidia-cap1", 506, 1, 0o440)
    assert machine.report().result("device-nodes.capability-nodes").status is Status.PASS


@pytest.mark.parametrize("capabilities", [(), ("gpu0/mig",)])
def test_no_instances_or_an_old_driver_without_capabilities_is_not_applicable(capabilities: tuple[str, ...]) -> None:
    machine = SmallNode()
    for path in capabilities:
        place = f"/proc/driver/nvidia/capabilities/{path}"
        machine.tree.put(place, Record(entry=Entry(place, EntryType.DIR)))
    assert machine.report().result("device-nodes.capability-nodes").status is Status.SKIP


def test_a_container_that_got_one_instance_is_not_accused_of_lacking_the_others() -> None:
    machine = _mig()
    machine.char("/dev/nvidia-caps/nvidia-cap12", 506, 12, 0o444)
    machine.absent("/dev/kmsg")
    assert alarms(machine.report(), "device-nodes.capability-nodes") == []


def test_a_capability_that_cannot_be_read_is_unknown() -> None:
    machine = _mig()
    machine.tree.put("/proc/driver/nvidia/capabilities/gpu0/mig", Record(error="EACCES"))
    assert machine.report().result("device-nodes.capability-nodes").why == "no-permission"


# IMEX channels ------------------------------------------------------------------------------------------------------


def test_channels_pass_with_their_numbers_and_warn_with_those_of_an_earlier_load() -> None:
    machine = SmallNode(nvidia_caps_imex_channels=235)
    machine.char("/dev/nvidia-caps-imex-channels/channel0", 235, 0)
    assert machine.report().result("device-nodes.imex-channels").status is Status.PASS
    machine.char("/dev/nvidia-caps-imex-channels/channel7", 234, 7)
    (finding,) = alarms(machine.report(), "device-nodes.imex-channels")
    assert finding.summary == "/dev/nvidia-caps-imex-channels/channel7 is 234:7, expected 235:7"
    assert "mknod -m 0666 /dev/nvidia-caps-imex-channels/channel7 c 235 7" in steps(finding)
    assert "channel0" not in steps(finding)


@pytest.mark.parametrize("majors", [{}, {"nvidia_caps_imex_channels": 235}])
def test_no_channel_is_no_fault(majors: dict[str, int]) -> None:
    assert SmallNode(**majors).report().result("device-nodes.imex-channels").status is Status.SKIP


# /dev/char ----------------------------------------------------------------------------------------------------------


def _with_links(machine: SmallNode, **links: str) -> SmallNode:
    for numbers, to in links.items():
        machine.link(f"/dev/char/{numbers.removeprefix('n').replace('_', ':')}", to)
    return machine


GOOD_LINKS = {"n195_0": "../nvidia0", "n195_1": "../nvidia1", "n195_255": "../nvidiactl", "n507_0": "../nvidia-uvm"}


def test_links_that_lead_to_their_nodes_pass_and_none_at_all_is_usual() -> None:
    result = _with_links(SmallNode(), **GOOD_LINKS).report().result("device-nodes.char-links")
    assert result.status is Status.PASS and "4 links" in result.detail
    assert SmallNode().report().result("device-nodes.char-links").status is Status.SKIP


def test_a_link_through_another_name_of_the_node_is_right() -> None:
    machine = _with_links(SmallNode(), **GOOD_LINKS | {"n195_1": "/run/nvidia/driver/dev/nvidia1"})
    machine.char("/run/nvidia/driver/dev/nvidia1", 195, 1)
    assert machine.report().result("device-nodes.char-links").status is Status.PASS


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("/run/nvidia/driver/dev/nvidia1", "leads to /run/nvidia/driver/dev/nvidia1, which does not exist"),
        ("../nvidia0", "leads to ../nvidia0, which is 195:0"),
    ],
)
def test_a_link_that_leads_elsewhere_warns(to: str, words: str) -> None:
    (finding,) = alarms(_with_links(SmallNode(), **GOOD_LINKS | {"n195_1": to}).report(), "device-nodes.char-links")
    assert finding.summary == f"/dev/char/195:1 {words}"


def test_one_gpu_without_a_link_where_another_has_one_warns() -> None:
    (finding,) = alarms(_with_links(SmallNode(), n195_0="../nvidia0").report(), "device-nodes.char-links")
    assert finding.summary.startswith("/dev/nvidia1 has no link /dev/char/195:1 (and 1 more)")


def test_an_old_link_to_uvm_is_found_only_where_the_new_one_is_lacking() -> None:
    links = {"n195_0": "../nvidia0", "n195_1": "../nvidia1", "n195_255": "../nvidiactl", "n500_0": "../nvidia-uvm"}
    (finding,) = alarms(_with_links(SmallNode(), **links).report(), "device-nodes.char-links")
    assert finding.summary.startswith("/dev/nvidia-uvm has no link /dev/char/507:0")
    assert "/dev/char/500:0 -> ../nvidia-uvm" in cited(finding)
    assert alarms(_with_links(SmallNode(), **links | GOOD_LINKS).report(), "device-nodes.char-links") == []


def test_the_link_of_a_missing_node_is_left_to_the_node() -> None:
    machine = _with_links(SmallNode(), **GOOD_LINKS)
    machine.absent("/dev/nvidia1")
    report = machine.report()
    assert [cause.check for cause in report.root_causes] == ["device-nodes.gpu-node"]


def test_a_link_that_cannot_be_seen_is_unknown() -> None:
    machine = _with_links(SmallNode(), **GOOD_LINKS)
    machine.tree.put("/dev/char/195:0", Record(error="EACCES"))
    assert machine.report().result("device-nodes.char-links").why == "no-permission"


@pytest.fixture
def rig() -> Path:
    """The rig's captures, present where the shared material is."""
    if not (SHARED / "rig" / "README.md").is_file():
        pytest.skip("the shared captures of the rig are not here")
    return SHARED / "rig"


@pytest.mark.parametrize(
    ("state", "links", "capabilities"),
    [
        ("05-full", Status.SKIP, Status.SKIP),
        ("07-with-dev-char-symlinks", Status.PASS, Status.PASS),
        ("11-one-gpu-unbound", Status.SKIP, Status.PASS),
    ],
)
def test_real_device_files_raise_no_alarm(state: str, links: Status, capabilities: Status, rig: Path) -> None:
    """The real libnvidia-ml made nvidiactl and its link, mknod the other nodes; only in state 07 the GPUs' got links, too."""
    captured = rig_node(rig / "vm-states" / state, nvml=False)
    # `ls -l` showed all of these folders.
    complete = ("/dev/char", "/dev/nvidia-caps", "/proc/driver/nvidia", DEVICES)
    report = diagnose(RecordedNode(captured.tree, complete=complete))
    assert report.result("device-nodes.char-links").status is links
    assert report.result("device-nodes.other-nodes").findings[0].status is Status.PASS
    assert report.result("device-nodes.capability-nodes").status is capabilities
    for check in ("other-nodes", "nvswitch-nodes", "capability-nodes", "imex-channels", "char-links"):
        assert alarms(report, f"device-nodes.{check}") == []


@pytest.mark.parametrize("name", ["gb200-tray", "hgx-a100x8", "a100-pcie-mig", "gpu-operator-driver-container"])
def test_recorded_healthy_nodes_pass_what_they_have(name: str) -> None:
    result = run_check("device-nodes.other-nodes", node(name))
    assert result.status is Status.PASS
    for check in ("nvswitch-nodes", "capability-nodes", "imex-channels", "char-links"):
        assert run_check(f"device-nodes.{check}", node(name)).status in (Status.PASS, Status.SKIP)
