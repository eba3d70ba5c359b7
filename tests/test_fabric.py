"""The services of an NVLink fabric, and whether the GPUs have joined it: one change to a node where all is well."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.nvidia_smi import answer_from_query
from gpudoctor.facts.raw import Answer
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.testing import fixtures, node, run_node
from gpudoctor.verdicts import Status, Unread, Why
from tests.captures import diagnose
from tests.fabric_node import FIRST, MINE, RACK, SECOND, SLICE, UNIT, ZERO, FabricNode, roots, spoken
from tests.small_node import alarms, cited, steps

MANAGER, REGISTERED, HEALTH = "fabric.manager-running", "fabric.registered", "fabric.health"
NVLSM, DOMAIN = "fabric.subnet-manager", "fabric.one-domain"
JOURNAL = f"journal/{UNIT}.log"
RACK_FIELDS: dict[str, Any] = {
    "fabric__cluster_uuid": RACK,
    "fabric__clique_id": 2,
    "fabric__health_summary": "healthy",
}


def rack_node(**changes: Any) -> FabricNode:
    """Two GPUs of a rack, whose switches are elsewhere."""
    machine = FabricNode("NVIDIA GB200", switches=0, nvidia_caps_imex_channels=234).stop(enabled=False)
    for device in machine.devices:
        for one in device["nvlinks"]:
            one |= {"megabytes_per_second": 53125, "version": 5}
    return machine.fields(**RACK_FIELDS).fields(**changes)


def hgx_b200() -> FabricNode:
    """Two GPUs of a board whose NVLink 5 switches are no functions of the bus."""
    machine = FabricNode("NVIDIA B200", switches=0)
    for device in machine.devices:
        for one in device["nvlinks"]:
            one |= {"megabytes_per_second": 53125, "version": 5}
    return machine


# Healthy nodes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [FabricNode(), rack_node(), hgx_b200()], ids=["hgx", "rack", "nvlink5"])
def test_a_fabric_that_is_set_up_is_silent(machine: FabricNode) -> None:
    report = machine.report()
    assert spoken(report) == []
    assert report.result(REGISTERED).status is Status.PASS and report.result("fabric.nvlinks-up").status is Status.PASS


@pytest.mark.parametrize("name", sorted(place.name for place in fixtures().iterdir())[::9])
def test_recorded_nodes_that_are_about_something_else_are_silent(name: str) -> None:
    report = run_node(node(name))
    told = {cause["check"] for cause in json.loads((fixtures() / name / "expected.json").read_text())["root_causes"]}
    assert spoken(report) == [] or told & {*MINE}
    assert not [check for check in MINE if report.result(check).why == "crashed"]


# The fabric manager -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
def test_without_the_fabric_manager_it_is_the_root_cause_and_the_registration_its_consequence(enabled: bool) -> None:
    machine = FabricNode().stop(enabled=enabled).fields(fabric__state="in_progress", fabric__status={"error": 3})
    machine.text("/proc/uptime", "86400.00 1000.00\n")
    machine.logs[JOURNAL] = "Nov 15 14:15:47 n1 nv-fabricmanager[4177]: failed to detect any NVSwitch\n"
    report = machine.report()
    assert roots(report) == [MANAGER]
    (finding,) = alarms(report, MANAGER)
    assert finding.status is Status.FAIL and "802" in finding.summary
    assert ("nobody starts it" in finding.summary) is not enabled
    assert "failed to detect any NVSwitch" in finding.summary and "4 NVSwitches" in cited(finding)
    assert ("apt-get install" in steps(finding)) is not enabled
    assert all(one.caused_by for one in alarms(report, REGISTERED)) and len(alarms(report, REGISTERED)) == 2


@pytest.mark.parametrize("masked", [True, False])
def test_a_link_that_starts_nothing_is_none(masked: bool) -> None:
    machine = FabricNode().stop().fields(fabric__state="in_progress")
    machine.text("/proc/uptime", "86400.00 1000.00\n")
    if masked:
        machine.link(f"/etc/systemd/system/{UNIT}", "/dev/null")
    else:
        machine.absent(f"/usr/lib/systemd/system/{UNIT}")
    (finding,) = alarms(machine.report(), MANAGER)
    assert "nobody starts it" in finding.summary and "apt-get install" in steps(finding)
    assert ("-> /dev/null: masked" if masked else "which does not exist") in cited(finding)
    rack = rack_node()
    rack.link(f"/etc/systemd/system/multi-user.target.wants/{IMEX}", f"/usr/lib/systemd/system/{IMEX}")
    rack.absent(f"{SLICE}/{IMEX}")
    assert rack.says("fabric.imex").status is Status.FAIL
    if masked:
        rack.link(f"/etc/systemd/system/{IMEX}", "/dev/null")
    else:
        rack.absent(f"/usr/lib/systemd/system/{IMEX}")
    assert rack.says("fabric.imex").status is Status.SKIP


def test_on_a100_nvml_tells_of_no_fabric_and_the_bus_decides() -> None:
    machine = FabricNode("NVIDIA A100-SXM4-80GB", links=12).stop()
    for device in machine.devices:
        device["fields"] |= {name: {"error": 3} for name in device["fields"] if name.startswith("fabric.")}
    report = machine.report()
    assert roots(report) == [MANAGER] and not alarms(report, REGISTERED)


def test_one_that_ended_after_the_gpus_had_joined_is_a_warning() -> None:
    (finding,) = alarms(FabricNode().stop().report(), MANAGER)
    assert finding.status is Status.WARN and "before it ended" in finding.summary


def test_a_try_that_failed_on_all_gpus_is_no_fabric_that_is_set_up() -> None:
    report = FabricNode().stop().fields(fabric__status=999).report()
    (finding,) = alarms(report, MANAGER)
    assert finding.status is Status.FAIL and "before it ended" not in finding.summary
    assert roots(report) == [MANAGER] and all(one.caused_by for one in alarms(report, REGISTERED))
    board = hgx_b200().fields(fabric__status=999)
    board.complete += ["/opt", "/sys/module/ib_umad", "/proc"]
    assert board.says(NVLSM).status is Status.FAIL
    untold = FabricNode().stop().fields(fabric__status={"error": 3})
    assert "before it ended" in untold.says(MANAGER).summary


def test_one_of_a_driver_container_serves_as_well() -> None:
    machine = FabricNode().stop(enabled=False)
    machine.process(4177, "nv-fabricmanage")
    assert "not the node's service" in machine.says(MANAGER).summary and spoken(machine.report()) == []


def test_without_nvswitches_one_that_ends_at_once_is_no_fault() -> None:
    machine = FabricNode("NVIDIA A40", switches=0, links=4).stop()
    for device in machine.devices:
        device["fields"] |= {name: {"error": 3} for name in device["fields"] if name.startswith("fabric.")}
        device["nvlinks"] = [{**one, "megabytes_per_second": 14062, "remote_type": "gpu"} for one in device["nvlinks"]]
    machine.logs[JOURNAL] = "… failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n"
    finding = machine.says(MANAGER)
    assert finding.status is Status.SKIP and "systemctl disable nvidia-fabricmanager" in finding.summary
    assert spoken(machine.report()) == []


def test_switches_that_a_virtual_machine_was_given_are_managed_there() -> None:
    machine = FabricNode().stop(enabled=False)
    for number in range(4):
        machine.function(f"0000:7{number}:00.0", f"/sys/devices/pci0000:70/0000:7{number}:00.0", "vfio-pci")
    assert "managed elsewhere" in machine.says(MANAGER).summary


def test_without_the_kernel_module_no_fabric_manager_is_missed() -> None:
    machine = FabricNode().stop()
    for number, address in enumerate((FIRST, SECOND)):
        machine.function(address, f"/sys/devices/pci0000:00/0000:00:01.{number}/{address}", None)
    machine.text("/proc/modules", "ext4 1000 0 - Live 0x0\n")
    report = machine.report()
    assert report.result(MANAGER).status is Status.BLOCKED and roots(report) == []


def test_in_a_guest_without_switches_the_hypervisor_manages_the_fabric() -> None:
    machine = FabricNode(switches=0).stop(enabled=False)
    machine.text("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    assert "managed elsewhere" in machine.says(MANAGER).summary and spoken(machine.report()) == []


def test_nvlink_switched_off_needs_no_fabric_manager() -> None:
    machine = FabricNode().stop().fields(fabric__state="not_started", nvlink__active_links=0)
    machine.parameters += "NvLinkDisable: 1\n"
    for device in machine.devices:
        device["nvlinks"] = [{"link": number, "active": False} for number in range(18)]
    report = machine.report()
    assert report.result(MANAGER).status is Status.SKIP and not alarms(report, REGISTERED)
    assert roots(report) == ["fabric.nvlinks-up"]
    finding = alarms(report, "fabric.nvlinks-up")[0]
    assert finding.status is Status.WARN and "NvLinkDisable" in finding.summary and "NvLinkDisable: 1" in cited(finding)


def test_one_of_another_version_is_told_elsewhere() -> None:
    report = run_node(node("fabricmanager-of-another-version"))
    assert report.result(MANAGER).status is Status.SKIP and not alarms(report, REGISTERED)


# NVLSM --------------------------------------------------------------------------------------------------------------


def test_nvlsm_is_missed_while_the_gpus_of_an_nvlink_5_board_wait() -> None:
    machine = hgx_b200().fields(fabric__state="in_progress")
    machine.text("/proc/uptime", "86400.00 1000.00\n")
    machine.complete += ["/opt", "/sys/module/ib_umad", "/proc"]
    report = machine.report()
    assert roots(report) == ["fabric.subnet-manager"]
    (finding,) = alarms(report, "fabric.subnet-manager")
    assert "not installed" in finding.summary and "ib_umad" in finding.summary and "modprobe ib_umad" in steps(finding)
    machine.process(4178, "nvlsm")
    report = machine.report()
    assert report.result("fabric.subnet-manager").status is Status.PASS and roots(report) == [REGISTERED]


@pytest.mark.parametrize(
    ("enabled", "installed", "medium", "root"),
    [
        (True, True, True, MANAGER),
        (True, True, False, NVLSM),
        (True, False, True, NVLSM),
        (False, True, True, MANAGER),
        (False, False, False, MANAGER),
    ],
    ids=["ended", "no-ib_umad", "no-nvlsm", "not-enabled", "nothing-installed"],
)
def test_of_a_fabric_manager_and_nvlsm_that_are_both_gone(
    *, enabled: bool, installed: bool, medium: bool, root: str
) -> None:
    machine = hgx_b200().stop(enabled=enabled).fields(fabric__state="in_progress")
    machine.text("/proc/uptime", "86400.00 1000.00\n")
    machine.complete += ["/opt", "/proc"]
    if installed:
        machine.text("/opt/nvidia/nvlsm/sbin/nvlsm", "")
    machine.text("/proc/modules", "nvidia 1000 0 - Live 0x0\n" + "ib_umad 1000 0 - Live 0x0\n" * medium)
    report = machine.report()
    assert roots(report) == [root]
    assert ("=VERSION nvlsm" in steps(alarms(report, MANAGER)[0])) is (not installed and root == MANAGER)
    assert ("ib_umad" in alarms(report, NVLSM)[0].summary) is not medium if root == NVLSM else True


@pytest.mark.parametrize(
    ("nvml", "why"),
    [(Unread(Why.WITHHELD, "NVML", "nobody holds a GPU"), "withheld"), (Answer(data={"init": 18}), "not-answered")],
    ids=["not-asked", "refused"],
)
@pytest.mark.parametrize("device", ["0x2901", "0x2330"], ids=["b200", "h100"])
def test_without_a_word_of_nvml_the_switches_of_an_nvlink_5_board_are_not_denied(
    device: str, nvml: Answer | Unread, why: str
) -> None:
    machine = hgx_b200().stop()
    for number, address in enumerate((FIRST, SECOND)):
        machine.text(f"/sys/devices/pci0000:00/0000:00:01.{number}/{address}/device", f"{device}\n")
    machine.text(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  x\n"
    )
    recorded = RecordedNode(machine.tree, complete=machine.complete, uid=0)
    recorded.answers["nvml"] = nvml
    report = diagnose(recorded)
    manager, versions = report.result(MANAGER), report.result("driver-cuda.daemons-match")
    if device == "0x2330":
        assert manager.status is versions.status is Status.SKIP and "no NVSwitch here" in manager.findings[0].summary
    else:
        assert (manager.status, manager.why, versions.status) == (Status.UNKNOWN, why, Status.UNKNOWN)
        assert report.result(NVLSM).why == why and "disable" not in manager.findings[0].summary


def test_without_an_answer_of_nvml_nvlsm_is_not_judged() -> None:
    machine = FabricNode(switches=0)
    report = diagnose(RecordedNode(machine.tree, complete=machine.complete, uid=0))
    assert report.result(NVLSM).status in (Status.UNKNOWN, Status.BLOCKED)


def test_nvlsm_is_not_missed_where_the_driver_tells_of_no_fabric() -> None:
    machine = hgx_b200().stop().fields(fabric__state="not_supported")
    machine.complete += ["/opt", "/sys/module/ib_umad", "/proc"]
    assert machine.says(NVLSM).status is Status.SKIP and machine.says(MANAGER).status is Status.SKIP


@pytest.mark.parametrize("machine", [FabricNode(), rack_node()], ids=["hgx-h100", "rack"])
def test_nvlsm_is_no_matter_of_other_boards(machine: FabricNode) -> None:
    assert machine.fields(fabric__state="in_progress").says("fabric.subnet-manager").status is Status.SKIP


# Registration -------------------------------------------------------------------------------------------------------


def test_completed_with_another_status_than_success_is_a_failure() -> None:
    report = FabricNode().fields(1, fabric__status=999).report()
    (finding,) = alarms(report, REGISTERED)
    assert finding.status is Status.FAIL and finding.subject.key == SECOND
    assert "999" in finding.summary and "nvidia-smi --gpu-reset" in steps(finding)
    assert roots(report) == [REGISTERED]
    # A reset is refused while a daemon or persistence mode holds a GPU.
    before, _, after = steps(finding).partition("nvidia-smi --gpu-reset")
    assert all(word in before for word in ("nvidia-persistenced", "nvidia-dcgm", "nvidia-fabricmanager", "-pm 0"))
    assert "systemctl start nvidia-persistenced nvidia-fabricmanager" in after


def test_a_guest_whose_host_has_the_switches_is_told_to_ask_there() -> None:
    machine = FabricNode(switches=0).stop(enabled=False).fields(fabric__state="in_progress")
    machine.text("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    machine.text("/proc/uptime", "86400.00 0.00\n")
    finding = alarms(machine.report(), REGISTERED)[0]
    assert "Ask whoever runs the host" in finding.remedies[0].say
    assert "fabricmanager" not in steps(finding) and "--gpu-reset" not in steps(finding)
    machine.process(4177, "nv-fabricmanage")
    assert "--gpu-reset" in steps(alarms(machine.report(), REGISTERED)[0])


@pytest.mark.parametrize(("up", "status"), [(60, Status.UNKNOWN), (86400, Status.FAIL)])
def test_joining_takes_a_while_after_boot(up: int, status: Status) -> None:
    machine = FabricNode().fields(fabric__state="in_progress", fabric__status={"error": 3})
    machine.text("/proc/uptime", f"{up}.00 0.00\n")
    finding = machine.says(REGISTERED, FIRST)
    assert finding.status is status
    assert (finding.why is Why.SLOW_INIT) is (status is Status.UNKNOWN)


def test_a_fabric_manager_that_was_started_lately_gets_its_time() -> None:
    machine = FabricNode().fields(0, fabric__state="in_progress")
    machine.text("/proc/uptime", "86400.00 0.00\n")
    machine.process(4177, "nv-fabricmanage", started=8_639_000)
    assert "10 s after it could begin" in machine.says(REGISTERED, FIRST).summary


@pytest.mark.parametrize("action", ["recover_imex_domain", "drain_p2p", "gpu_reset"])
def test_a_gpu_that_works_alone_is_looked_at_further(action: str) -> None:
    machine = rack_node(recovery_action=action)
    machine.link(
        "/etc/systemd/system/multi-user.target.wants/nvidia-imex.service", "/usr/lib/systemd/system/nvidia-imex.service"
    )
    machine.absent(f"{SLICE}/nvidia-imex.service")
    machine.text("/etc/nvidia-imex/nodes_config.cfg", "10.0.0.1\n10.0.0.2\n")
    report = machine.report()
    assert {one.status for one in alarms(report, "driver-cuda.recovery-action")} == {Status.FAIL}
    assert ("fabric.imex" in roots(report)) is (action != "gpu_reset")


def test_a_board_of_a_rack_without_a_fabric() -> None:
    machine = rack_node(fabric__state="not_supported", platform__peer_type="switch_connected")
    assert {finding.status for finding in alarms(machine.report(), REGISTERED)} == {Status.WARN}
    direct = rack_node(fabric__state="not_supported", platform__peer_type="direct_connected")
    assert not alarms(direct.report(), REGISTERED)


@pytest.mark.parametrize(
    ("excerpt", "words"),
    [("fabric-in-progress-580.smi-q", "still joining"), ("fabric-insufficient-resources.smi-q", "failed")],
)
def test_what_people_showed_of_it(corpus: Path, excerpt: str, words: str) -> None:
    head = "Driver Version : 580.159.04\nAttached GPUs : 1\nGPU 00000000:05:00.0\n    Product Name : NVIDIA H100 80GB HBM3\n"
    block = (corpus / "issue-excerpts" / excerpt).read_text()
    indented = block if block.startswith(" ") else "".join(f"    {line}\n" for line in block.splitlines())
    answer = answer_from_query(f"==============NVSMI LOG==============\n\n{head}{indented}", "nvidia-smi -q")
    assert answer is not None
    machine = FabricNode()
    machine.fields(0, **{name.replace(".", "__"): value for name, value in answer.data["devices"][0]["fields"].items()})
    machine.text("/proc/uptime", "86400.00 0.00\n")
    assert words in machine.says(REGISTERED, FIRST).summary
    assert machine.says(REGISTERED, FIRST).status is Status.FAIL


# Health -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        (
            {"fabric__health_summary": "limited_capacity", "fabric__bandwidth": "degraded"},
            Status.WARN,
            "limited capacity",
        ),
        ({"fabric__health_summary": "unhealthy", "fabric__route_unhealthy": True}, Status.FAIL, "route is unhealthy"),
        (
            {"fabric__incorrect_configuration": "insufficient_nvlinks", "fabric__health_summary": "unhealthy"},
            Status.FAIL,
            "too few",
        ),
        ({"fabric__route_recovery": True}, Status.WARN, "routes are being recovered"),
        (
            {"fabric__health_summary": {"error": 13}, "fabric__bandwidth": "degraded"},
            Status.WARN,
            "bandwidth is degraded",
        ),
        ({"fabric__health_summary": {"error": 13}, "fabric__route_unhealthy": True}, Status.FAIL, "unhealthy"),
    ],
)
def test_the_health_of_the_fabric(changes: dict[str, object], status: Status, words: str) -> None:
    machine = rack_node()
    finding = machine.fields(0, **changes).says(HEALTH, FIRST)
    assert finding.status is status and words in finding.summary
    assert machine.says(HEALTH, SECOND).status is Status.PASS
    # The fabric manager of a rack is none of the node's.
    assert "journalctl" not in steps(finding) and "on the switch tray" in steps(finding)


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, Status.PASS, "3 GPUs are in one domain"),
        ({"fabric__clique_id": 3}, Status.WARN, "2 cliques"),
        ({"fabric__cluster_uuid": RACK.replace("7", "8")}, Status.FAIL, "2 NVLink domains"),
        ({"fabric__cluster_uuid": ZERO, "fabric__clique_id": 0}, Status.FAIL, "2 NVLink domains"),
        ({"fabric__cluster_uuid": ZERO, "fabric__state": "not_supported"}, Status.PASS, "2 GPUs are in one domain"),
    ],
    ids=["one", "clique", "cluster", "zeros", "no-fabric"],
)
def test_gpus_of_one_node_in_two_places(changes: dict[str, object], status: Status, words: str) -> None:
    machine = rack_node()
    machine.another_gpu("0000:07:00.0")
    about = {
        "index": 2,
        "minor": 2,
        "pci_bus_id": "00000000:07:00.0",
        "uuid": "GPU-00000002-0000-0000-0000-000000000000",
    }
    machine.devices.append({**machine.devices[0], **about, "fields": {**machine.devices[0]["fields"]}})
    finding = machine.fields(1, **changes).says(DOMAIN)
    assert finding.status is status and words in finding.summary
    assert finding.subject.key == ("node" if status is Status.PASS else SECOND)


def test_without_a_majority_it_is_about_the_node() -> None:
    finding = rack_node().fields(1, fabric__clique_id=3).says(DOMAIN)
    assert finding.status is Status.WARN and finding.subject.key == "node"


# Multicast ----------------------------------------------------------------------------------------------------------

LOG = "/var/log/fabricmanager.log"
REFUSED = (
    "[Sep 17 2024 06:01:46] [ERROR] [tid 1230079] failed to find the GPU handle 5410063385821516767 in the multicast team "
    "request setup 6130285411925746235.\n"
)
SET_UP = (
    "[Sep 17 2024 07:01:18] [INFO] [tid 1808] successfully setup multicast team for request id 8331980469606044544.\n"
)


def with_log(text: str) -> FabricNode:
    """A node whose fabric manager wrote this."""
    machine = FabricNode()
    machine.text(LOG, "")
    machine.prints("tail", "-n", "1000", LOG, text=text)
    return machine


def test_a_handle_that_the_fabric_manager_does_not_know() -> None:
    machine = with_log(REFUSED)
    machine.logs[JOURNAL] = "".join(f"Sep 17 05:{at} n1 systemd[1]: Started {UNIT}.\n" for at in ("10:00", "50:00"))
    (finding,) = alarms(machine.report(), "fabric.multicast")
    assert "restarted after the GPUs had joined" in finding.summary and "NCCL_NVLS_ENABLE=0" in steps(finding)
    assert "5410063385821516767" in cited(finding) and "05:50:00" in cited(finding)


def test_a_team_that_was_set_up_since_proves_it_cured() -> None:
    assert with_log(REFUSED + SET_UP).says("fabric.multicast").status is Status.PASS
    assert with_log(SET_UP + REFUSED).says("fabric.multicast").status is Status.WARN


@pytest.mark.parametrize(
    "line",
    [
        "[Sep 18 2024 06:00:00] [INFO] [tid 2] Successfully configured all the available NVSwitches to route GPU NVLink traffic.\n",
        "[Sep 18 2024 06:00:00] [INFO] [tid 2] GPU probe request received from node Id 0 and module Id 7 GUID 0x3b.\n",
    ],
    ids=["started", "registered"],
)
def test_a_refusal_before_the_handles_were_given_anew_is_history(line: str) -> None:
    assert with_log(REFUSED + line).says("fabric.multicast").status is Status.PASS
    assert with_log(line + REFUSED).says("fabric.multicast").status is Status.WARN


def test_a_recording_may_hold_the_log_itself() -> None:
    machine = FabricNode()
    machine.text(LOG, REFUSED)
    (finding,) = alarms(machine.report(), "fabric.multicast")
    assert LOG in cited(finding) and finding.evidence[0].where == LOG


def test_the_log_of_a_healthy_one_is_silent(corpus: Path) -> None:
    text = (corpus / "fabricmanager" / "gpud-fabricmanager.log").read_text()
    assert with_log(text).says("fabric.multicast").status is Status.PASS


# IMEX ---------------------------------------------------------------------------------------------------------------

IMEX = "nvidia-imex.service"


def imex_node(*, runs: bool, peers: str = "10.0.0.1\n10.0.0.2\n") -> FabricNode:
    """A node of a rack that starts IMEX at boot."""
    machine = rack_node()
    machine.link(f"/etc/systemd/system/multi-user.target.wants/{IMEX}", f"/usr/lib/systemd/system/{IMEX}")
    machine.text("/etc/nvidia-imex/nodes_config.cfg", peers)
    if runs:
        machine.folder(f"{SLICE}/{IMEX}")
    machine.text("/usr/bin/nvidia-imex-ctl", "")
    return machine


def test_imex_that_is_enabled_and_does_not_run() -> None:
    machine = imex_node(runs=False)
    machine.logs[f"journal/{IMEX}.log"] = "Nov 29 12:00:00 n1 nvidia-imex[99]: Failed to bind: Address already in use\n"
    finding = machine.says("fabric.imex")
    assert finding.status is Status.FAIL and "Failed to bind" in finding.summary
    empty = imex_node(runs=False, peers="# none\n").says("fabric.imex")
    assert "its list of nodes is empty" in empty.summary and "nodes_config.cfg" in steps(empty)


@pytest.mark.parametrize(
    ("said", "status"), [("READY\n", Status.PASS), ("UNAVAILABLE\n", Status.WARN), ("", Status.PASS)]
)
def test_imex_tells_whether_it_is_ready(said: str, status: Status) -> None:
    machine = imex_node(runs=True)
    machine.prints("nvidia-imex-ctl", "-q", text=said)
    assert machine.says("fabric.imex").status is status


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('{"nodes": {"0": {"status": "READY", "host": "10.0.0.1"}}, "status": "UP"}', ""),
        (
            '{"nodes": {"0": {"status": "READY"}, "1": {"status": "UNAVAILABLE", "host": "10.0.0.2"}}, "status": "DEGRADED"}',
            "10.0.0.2 UNAVAILABLE",
        ),
        ("Unable to connect", ""),
        ('{"nodes": 7}', ""),
    ],
    ids=["up", "degraded", "no-json", "other-json"],
)
def test_a_recorded_answer_of_the_whole_imex_domain(said: str, words: str) -> None:
    machine = imex_node(runs=True)
    machine.prints("nvidia-imex-ctl", "-q", text="READY\n")
    machine.prints("nvidia-imex-ctl", "-N", "-j", text=said)
    finding = machine.says("fabric.imex")
    assert finding.status is (Status.WARN if words else Status.PASS) and words in finding.summary


def test_on_an_idle_node_of_a_rack_nothing_has_to_run() -> None:
    report = rack_node().report()
    assert (
        report.result("fabric.imex").status is Status.SKIP
        and report.result("fabric.imex-channels").status is Status.SKIP
    )


def test_no_channel_where_the_node_starts_the_daemon() -> None:
    machine = imex_node(runs=True)
    machine.parameters += "CreateImexChannel0: 0\n"
    finding = machine.says("fabric.imex-channels")
    assert (
        finding.status is Status.WARN and "major 234" in finding.summary and "CreateImexChannel0: 0" in cited(finding)
    )
    assert "mknod -m 0666 /dev/nvidia-caps-imex-channels/channel0 c 234 0" in steps(finding)
    machine.char("/dev/nvidia-caps-imex-channels/channel0", 234, 0)
    assert machine.says("fabric.imex-channels").status is Status.PASS


def test_imex_is_no_matter_of_one_board() -> None:
    machine = FabricNode()
    machine.link(f"/etc/systemd/system/multi-user.target.wants/{IMEX}", f"/usr/lib/systemd/system/{IMEX}")
    assert machine.says("fabric.imex").status is Status.SKIP


# GPUDirect ----------------------------------------------------------------------------------------------------------

MISFIT = "[   12.1] nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client"


def rdma_node(state: str = "4: ACTIVE", modules: str = "nvidia 1000 0 - Live 0x0\n") -> FabricNode:
    """A node with an RDMA adapter."""
    machine = FabricNode(infiniband_verbs=231)
    machine.majors["infiniband_verbs"] = 231
    machine.text("/sys/class/infiniband/mlx5_0/ports/1/state", f"{state}\n")
    machine.text("/proc/modules", modules)
    return machine


def test_rdma_without_a_way_to_gpu_memory() -> None:
    machine = rdma_node()
    machine.logs["kernel.log"] = f"{MISFIT}\n"
    finding = machine.says("fabric.peer-memory")
    assert finding.status is Status.WARN and "another ib_core" in finding.summary and "dkms" in steps(finding)
    assert "mlx5_0" in cited(finding) and "disagrees about version" in cited(finding)


@pytest.mark.parametrize(
    ("layer", "asked", "status"),
    [("InfiniBand", False, Status.WARN), ("Ethernet", False, Status.SKIP), ("Ethernet", True, Status.WARN)],
)
def test_ethernet_adapters_with_rdma_prove_no_wish(layer: str, asked: bool, status: Status) -> None:
    machine = rdma_node()
    machine.text("/sys/class/infiniband/mlx5_0/ports/1/link_layer", f"{layer}\n")
    if asked:
        machine.text("/etc/modules-load.d/nvidia-peermem.conf", "nvidia-peermem\n")
    assert machine.says("fabric.peer-memory").status is status


def test_rdma_with_the_module_or_with_dma_buf_or_without_a_port() -> None:
    assert (
        rdma_node(modules="nvidia_peermem 16384 0 - Live 0x0\nnvidia 1 1 nvidia_peermem, Live 0x0\n")
        .says("fabric.peer-memory")
        .status
        is Status.PASS
    )
    assert rdma_node("1: DOWN").says("fabric.peer-memory").status is Status.SKIP
    machine = rdma_node()
    machine.text("/proc/sys/kernel/osrelease", "6.8.0-90-generic\n")
    machine.text(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build\n",
    )
    machine.logs["kernel.log"] = f"{MISFIT}\n"
    finding = machine.says("fabric.peer-memory")
    assert finding.status is Status.PASS and "dma-buf" in finding.summary and "did not load" in finding.summary


def test_noise_of_the_module_is_silent(corpus: Path) -> None:
    machine = rdma_node(modules="nvidia_peermem 16384 0 - Live 0x0\nnvidia 1 1 nvidia_peermem, Live 0x0\n")
    machine.logs["kernel.log"] = (corpus / "dmesg" / "gpud-kmsg-2-peermem.log").read_text()
    assert machine.says("fabric.peer-memory").status is Status.PASS


def test_gpudirect_storage_without_its_module() -> None:
    machine = FabricNode()
    assert machine.says("fabric.gpudirect-storage").status is Status.SKIP
    machine.folder("/usr/src/nvidia-fs-2.22.3")
    assert machine.says("fabric.gpudirect-storage").status is Status.WARN
    machine.text("/proc/modules", "nvidia_fs 300000 0 - Live 0x0\nnvidia 1000 1 nvidia_fs, Live 0x0\n")
    assert machine.says("fabric.gpudirect-storage").status is Status.PASS
