"""The GPU Operator on a node: its row of files, its driver container, its exporter."""

import re
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.operands import DRIVER_CONTAINER, KEEP, Operands
from gpudoctor.facts.operands import EXPORTER as EXPORTERS
from gpudoctor.facts.raw import EntryType, TextFile
from gpudoctor.report import Finding
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status, Why
from tests.conftest import SHARED
from tests.health_node import alarms, shown
from tests.operator_node import ROW, OperatorNode, checks

STAGES, DRIVER, EXPORTER = (
    f"device-plugin.{name}" for name in ("operator-stages", "driver-container", "dcgm-exporter")
)
CORPUS = SHARED / "corpus" / "k8s-logs"
IN_USE = "Could not unload NVIDIA driver kernel modules, driver is in use"
INSTALLING = "Starting installation of NVIDIA driver version 580.95.05 for Linux kernel version 5.15.0-139-generic"
REMOTE = 'level=INFO msg="Attempting to connect to remote hostengine at nvidia-dcgm:5555"'
NO_ENGINE = (
    'level=ERROR msg="Encountered a failure." stacktrace="Failed to initialize DCGM; err: Error connecting to nv-hostengine: '
    'Host engine connection invalid/disconnected"'
)
READY = 'level=INFO msg="DCGM successfully initialized!"'
EXPORTER_POD = "nvidia-dcgm-exporter-g2fjs"


def holder(pid: int, comm: str, unit: str) -> dict[str, Any]:
    """A process that holds a GPU's node."""
    group = f"0::/system.slice/{unit}\n"
    return {
        "pid": pid,
        "comm": comm,
        "nodes": ["/dev/nvidia0"],
        "mapped": [],
        "unit": unit,
        "cgroup": group,
        "state": "S",
        "parent": 1,
    }


def only(node: OperatorNode, check: str) -> Finding:
    """What a check says, and that it is the only one that alarms."""
    found = node.finding(check)
    report = node.report()
    assert [cause.check for cause in report.root_causes] == [check], report.root_causes
    return found


# The row -------------------------------------------------------------------------------------------------------------


def test_a_whole_row_is_well() -> None:
    node = OperatorNode()
    assert node.finding(STAGES).status is Status.PASS
    assert alarms(node.report()) == []


def test_optional_stages_do_not_matter() -> None:
    node = OperatorNode()
    whole = ("driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready")
    node.stages(*whole, "mofed-ready", "nvidia-fs-ready", "gdrcopy-ready", "workload-type")
    node.put(f"{ROW}/workload-type", text="container\n")
    assert node.finding(STAGES).status is Status.PASS


@pytest.mark.parametrize("there", [(), ("driver-ready",)])
def test_a_stage_that_operands_wait_for_breaks_the_node(there: tuple[str, ...]) -> None:
    node = OperatorNode()
    node.stages(*there)
    found = only(node, STAGES)
    assert (found.status, found.breaks) == (Status.FAIL, "node")
    assert ("driver-ready", "toolkit-ready")[len(there)] in found.summary


def test_the_validators_own_tests_break_nothing() -> None:
    node = OperatorNode()
    node.stages("driver-ready", "toolkit-ready")
    node.journals["journal/kubelet.service.log"] = (
        'E1129 11:59:50.402210 1450 pod_workers.go:1324] "Error syncing pod, skipping" err="failed to \\"StartContainer\\" for '
        '\\"cuda-validation\\" with ImagePullBackOff: \\"Back-off pulling image \\\\\\"registry.example.org/op:v1\\\\\\"\\"" '
        'pod="gpu-operator/nvidia-cuda-validator-9866n"\n'
    )
    found = only(node, STAGES)
    assert found.status is Status.WARN
    assert "cuda-ready" in found.summary
    assert "gpu-operator/nvidia-cuda-validator-9866n: ImagePullBackOff of registry.example.org/op:v1" in shown(found)
    assert any("image" in remedy.say for remedy in found.remedies)


def test_the_validators_log_says_why() -> None:
    node = OperatorNode()
    node.stages("driver-ready", "toolkit-ready")
    said = 'level=info msg="pod nvidia-cuda-validator-9866n is curently in Pending phase"'
    node.log_of("nvidia-operator-validator-th4w7", "cuda-validation", "version: 1", said)
    assert "is curently in Pending phase" in shown(node.finding(STAGES))


def test_the_validators_pod_in_the_api_says_why() -> None:
    node = OperatorNode()
    node.stages("driver-ready", "toolkit-ready")
    waiting = {"name": "cuda-validation", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    status = {"phase": "Pending", "initContainerStatuses": [waiting]}
    node.api["pods"].append(
        {"metadata": {"name": "nvidia-cuda-validator-9866n", "namespace": "gpu-operator"}, "status": status}
    )
    found = node.ask().finding(STAGES)
    assert "nvidia-cuda-validator-9866n, container cuda-validation: ImagePullBackOff" in shown(found)


def test_a_young_row_is_given_time() -> None:
    node = OperatorNode()
    node.stages("driver-ready", age=30)
    assert (node.finding(STAGES).status, node.finding(STAGES).why) == (Status.UNKNOWN, Why.NOT_ANSWERED)


def test_a_stage_that_was_written_in_the_future_is_not_young() -> None:
    """The clock was put back since: how long ago it was written nobody knows."""
    node = OperatorNode()
    node.stages("driver-ready", age=-4000)
    found = node.finding(STAGES)
    assert found.status is Status.FAIL and "toolkit-ready" in found.summary
    node.stages("driver-ready", age=-1)
    assert node.finding(STAGES).status is Status.UNKNOWN


@pytest.mark.parametrize(("ago", "status"), [(30.0, Status.UNKNOWN), (900.0, Status.UNKNOWN), (5000.0, Status.FAIL)])
def test_an_operator_that_has_just_come_to_an_old_node_is_given_time(ago: float, status: Status) -> None:
    node = OperatorNode()
    node.stages()
    booted = booted_at(node)
    assert booted is not None
    node.put(ROW, EntryType.DIR, mtime=booted + 9000 - ago)
    assert node.finding(STAGES).status is status


def test_without_a_device_plugin_its_stage_is_not_missed() -> None:
    node = OperatorNode()
    node.stages("driver-ready", "toolkit-ready", "cuda-ready")
    node.running()
    assert node.finding(STAGES).status is Status.PASS


def test_a_validator_that_waits_for_a_plugin_is_to_have_one() -> None:
    """Its container for that stage is there only where the operator has the device plugin: this one's image cannot be had."""
    node = OperatorNode()
    node.stages("driver-ready", "toolkit-ready", "cuda-ready")
    node.running()
    said = 'level=info msg="GPU resources are not discovered by the node, retrying"'
    node.log_of("nvidia-operator-validator-th4w7", "plugin-validation", said)
    found = node.finding(STAGES)
    assert found.status is Status.FAIL and "it waits for a pod that asks for a GPU" in found.summary
    assert "not discovered by the node" in shown(found)


def test_where_the_operator_has_gpus_handed_out_by_claims_the_row_ends_with_the_driver() -> None:
    """In that mode it has neither its toolkit nor its plugin on the node, and a validator that writes no file."""
    node = OperatorNode()
    node.running()
    node.stages("driver-ready")
    node.log_of("kube-proxy-h7t4x", "kube-proxy", "x", namespace="kube-system")
    node.log_of("nvidia-dra-driver-kubelet-plugin-x2lqk", "driver-validation", "x")
    node.log_of("nvidia-dra-validator-th4w7", "nvidia-dra-validator", "all validations are successful")
    found = node.finding(STAGES)
    assert found.status is Status.PASS and "by claims" in found.summary
    assert alarms(node.report()) == []
    node.stages()
    found = node.finding(STAGES)
    assert found.status is Status.FAIL and "before driver-ready" in found.summary
    node.stages("driver-ready")
    node.log_of("nvidia-operator-validator-th4w7", "toolkit-validation", "x")
    assert "before toolkit-ready" in node.finding(STAGES).summary, "the mode for device plugins"


def test_a_row_that_an_operator_left_behind_is_nobodys() -> None:
    """Its validator empties the row when it ends; the folder stays until the next boot."""
    node = OperatorNode()
    node.stages("workload-type")
    node.log_of("kube-proxy-h7t4x", "kube-proxy", "x", namespace="kube-system")
    node.log_of("nvdp-nvidia-device-plugin-9x2lq", "nvidia-device-plugin-ctr", "Starting Plugins.", namespace="nvdp")
    found = node.finding(STAGES)
    assert found.status is Status.SKIP and "/run/nvidia/validations" in shown(found)
    assert "left behind" in shown(found)
    node.log_of("nvidia-operator-validator-th4w7", "driver-validation", "running command chroot")
    assert node.finding(STAGES).status is Status.FAIL


def test_whether_the_operator_has_left_is_not_known_where_its_pods_cannot_be_listed() -> None:
    node = OperatorNode()
    node.stages("driver-ready", "toolkit-ready")
    node.error("/var/log/pods", "EACCES")
    found = node.finding(STAGES)
    assert (found.status, found.why) == (Status.UNKNOWN, Why.NO_PERMISSION)
    assert "/var/log/pods" in found.summary


@pytest.mark.parametrize("kind", ["vm-passthrough", "vm-vgpu"])
def test_a_node_for_virtual_machines_has_other_stages(kind: str) -> None:
    node = OperatorNode()
    node.stages("vfio-pci-ready", "workload-type")
    node.put(f"{ROW}/workload-type", text=f"{kind}\n")
    found = node.report().result(STAGES)
    assert (found.status, found.findings[0].summary.count(kind)) == (Status.SKIP, 1)


@pytest.mark.parametrize("stage", ["vfio-pci-ready", "vgpu-manager-ready", "host-vgpu-manager-ready"])
def test_the_stages_of_virtual_machines_tell_what_the_node_is_for(stage: str) -> None:
    node = OperatorNode()
    node.stages(stage)
    assert node.report().result(STAGES).status is Status.SKIP


def test_a_purpose_that_cannot_be_read_is_unknown() -> None:
    node = OperatorNode()
    node.stages("workload-type")
    node.error(f"{ROW}/workload-type", "EACCES")
    result = node.report().result(STAGES)
    assert (result.status, result.why) == (Status.UNKNOWN, Why.NO_PERMISSION)


def test_a_row_that_cannot_be_listed_is_unknown() -> None:
    node = OperatorNode()
    node.running(kubelet=1450)
    node.error(ROW, "EACCES")
    result = node.report().result(STAGES)
    assert (result.status, result.why) == (Status.UNKNOWN, Why.NO_PERMISSION)


def test_a_driver_that_is_dead_explains_the_row() -> None:
    node = OperatorNode()
    node.stages()
    for path in [f"/sys/bus/pci/devices/{node.address(index)}" for index in range(8)]:
        node.error(f"{node.place(path)}/driver")
    report = node.report()
    assert STAGES not in [cause.check for cause in report.root_causes]
    assert report.result(STAGES).status is Status.BLOCKED


# The driver container ------------------------------------------------------------------------------------------------


def test_a_driver_in_use_is_named_with_its_holders() -> None:
    node = OperatorNode()
    node.stages()
    node.log_of(
        "nvidia-driver-daemonset-4rtiu",
        "nvidia-driver-ctr",
        INSTALLING,
        "nvidia 54074368 71 nvidia_uvm",
        IN_USE,
        run=14,
    )
    node.held_by(
        holder(1702, "nvidia-persiste", "nvidia-persistenced.service"),
        holder(1711, "nv-fabricmanage", "nvidia-fabricmanager.service"),
    )
    found = only(node, DRIVER)
    assert found.status is Status.FAIL
    assert "nvidia-persistenced (PID 1702), nvidia-fabricmanager (PID 1711), after 14 restarts" in found.summary
    assert any("driver.enabled=false" in command for remedy in found.remedies for command in remedy.run)


def test_holders_are_looked_for_only_where_the_log_says_so() -> None:
    node = OperatorNode()
    node.log_of("nvidia-driver-daemonset-4rtiu", "nvidia-driver-ctr", INSTALLING, "Done, now waiting for signal")
    node.report()
    assert not node.was_asked("holders")


def test_a_run_that_came_up_later_counts() -> None:
    node = OperatorNode()
    node.stages("driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready", ".driver-ctr-ready")
    node.log_of("nvidia-driver-daemonset-4rtiu", "nvidia-driver-ctr", INSTALLING, IN_USE)
    node.log_of("nvidia-driver-daemonset-4rtiu", "nvidia-driver-ctr", INSTALLING, "Done, now waiting for signal", run=1)
    assert node.finding(DRIVER).status is Status.PASS


def test_where_the_row_has_a_driver_a_failed_replacement_is_a_warning() -> None:
    node = OperatorNode()
    node.log_of("nvidia-driver-daemonset-4rtiu", "nvidia-driver-ctr", INSTALLING, IN_USE)
    node.held_by()
    assert node.finding(DRIVER).status is Status.WARN


def test_missing_headers_are_told_in_the_containers_words() -> None:
    node = OperatorNode()
    node.stages()
    node.log_of(
        "nvidia-driver-daemonset-4rtiu", "nvidia-driver-ctr", INSTALLING, "Could not resolve Linux kernel version"
    )
    found = only(node, DRIVER)
    assert "Could not resolve Linux kernel version" in found.summary
    assert any("headers" in remedy.say for remedy in found.remedies)


def test_a_root_without_a_driver_is_a_container_that_has_ended() -> None:
    node = OperatorNode()
    node.stages("driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready", host=False)
    assert "/run/nvidia/driver" in only(node, DRIVER).summary
    node.put("/run/nvidia/driver/usr/bin/nvidia-smi")
    assert node.finding(DRIVER).status is Status.PASS


@pytest.mark.parametrize("folder", ["/usr/bin", "/bin", ""])
def test_a_driver_is_where_the_validator_looks(folder: str) -> None:
    node = OperatorNode()
    root = "/home/kubernetes/bin/nvidia"
    node.stages("driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready", host=False, root=root)
    node.put(f"{root}{folder}/nvidia-smi")
    assert node.finding(DRIVER).status is Status.PASS


def test_a_log_that_cannot_be_read_is_unknown() -> None:
    node = OperatorNode()
    path = node.log_of("nvidia-driver-daemonset-4rtiu", "nvidia-driver-ctr", IN_USE)
    node.overlay.put(path, Record(error="EACCES"))
    found = node.finding(DRIVER)
    assert (found.status, found.why) == (Status.UNKNOWN, Why.NO_PERMISSION)


# dcgm-exporter -------------------------------------------------------------------------------------------------------


def with_host_engine(node: OperatorNode, *, listens: bool = True) -> None:
    """nvidia-dcgm.service of the host."""
    node.running(nv_hostengine=3120)
    state = "0A" if listens else "01"
    line = f"   1: 00000000:15B3 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 48213 1"
    node.put("/proc/net/tcp", text=f"  sl  local_address rem_address   st\n{line}\n")


@pytest.mark.parametrize(
    ("pod", "container", "engine"),
    [
        (EXPORTER_POD, "nvidia-dcgm-exporter", "nvidia-dcgm-4bq8l"),
        # Where GPUs are handed out by claims the operator's own are called otherwise (GPU Operator v26.7, assets/state-dcgm*).
        ("nvidia-dcgm-exporter-dra-g2fjs", "nvidia-dcgm-exporter-dra", "nvidia-dcgm-dra-4bq8l"),
    ],
)
def test_an_engine_of_the_host_that_has_the_port_is_named(pod: str, container: str, engine: str) -> None:
    node = OperatorNode()
    with_host_engine(node)
    node.log_of(pod, container, REMOTE, NO_ENGINE, run=17)
    node.log_of(engine, "nvidia-dcgm-ctr", "Err: Failed to start DCGM Server: -7", run=17)
    found = only(node, EXPORTER)
    assert (found.status, found.subject.key) == (Status.WARN, f"gpu-operator/{pod}")
    assert "nv-hostengine (PID 3120) has port 5555" in found.summary
    assert "Failed to start DCGM Server" in shown(found)


def test_an_exporter_that_uses_the_hosts_engine_is_well() -> None:
    node = OperatorNode()
    with_host_engine(node)
    node.log_of(EXPORTER_POD, "nvidia-dcgm-exporter", REMOTE.replace("nvidia-dcgm:", "localhost:"), READY)
    assert node.finding(EXPORTER).status is Status.PASS


def test_without_an_engine_of_the_host_nobody_is_accused() -> None:
    node = OperatorNode()
    node.log_of(EXPORTER_POD, "nvidia-dcgm-exporter", REMOTE, NO_ENGINE)
    found = only(node, EXPORTER)
    assert "nvidia-dcgm:5555" in found.summary
    assert "has port" not in found.summary


@pytest.mark.parametrize("words", [(REMOTE, NO_ENGINE, REMOTE, READY), (READY,)])
def test_the_last_word_counts(words: tuple[str, ...]) -> None:
    node = OperatorNode()
    node.log_of(EXPORTER_POD, "nvidia-dcgm-exporter", *words)
    assert node.finding(EXPORTER).status is Status.PASS


def test_an_exporter_of_its_own_chart_is_known_too() -> None:
    node = OperatorNode()
    node.log_of(
        "dcgm-exporter-9c2hv",
        "exporter",
        'level=INFO msg="Attempting to initialize DCGM."',
        NO_ENGINE,
        namespace="monitoring",
    )
    assert "cannot start DCGM" in only(node, EXPORTER).summary


def test_a_log_without_a_word_of_it_is_unknown() -> None:
    node = OperatorNode()
    node.log_of(EXPORTER_POD, "nvidia-dcgm-exporter", "Collecting CP Metrics")
    assert node.finding(EXPORTER).status is Status.UNKNOWN


@pytest.mark.skipif(not CORPUS.is_dir(), reason="needs the corpus")
def test_operands_are_told_by_the_names_they_have_in_real_clusters() -> None:
    names = set()
    for path in sorted(CORPUS.glob("cnd-*.txt")):
        names |= {line.split()[0] for line in path.read_text("utf-8").splitlines() if re.search(r" \d/\d ", line)}
    node = OperatorNode()
    for name in names:
        for container in ("nvidia-driver-ctr", "nvidia-dcgm-exporter", "nvidia-dcgm-ctr", "main"):
            node.log_of(name, container, "x")
    found = Desk(node, Config()).get(Operands)
    assert isinstance(found, Operands)
    told = {(log.what, log.pod.rpartition("-")[0]) for log in found.logs}
    assert told == {(DRIVER_CONTAINER, "nvidia-driver-daemonset"), (EXPORTERS, "nvidia-dcgm-exporter")}


@pytest.mark.parametrize(
    "name", ["nvidia-driver-daemonset-418.94.202501-0-x7k2m", "nvidia-gpu-driver-ubuntu22.04-6585f5b8b-9z2tq"]
)
def test_driver_containers_of_openshift_and_of_the_nvidiadriver_resource_are_known(name: str) -> None:
    node = OperatorNode()
    node.stages()
    node.log_of(name, "nvidia-driver-ctr", INSTALLING, "FATAL: failed to install elfutils packages.")
    assert "failed to install elfutils" in node.finding(DRIVER).summary


# Nodes without any of it ---------------------------------------------------------------------------------------------


def test_nothing_is_said_where_there_is_no_kubelet() -> None:
    node = OperatorNode()
    node.error("/run/nvidia")
    node.error(ROW)
    node.running()
    report = node.report()
    assert {report.result(check).status for check in (STAGES, DRIVER, EXPORTER)} == {Status.SKIP}


def test_the_checks_explain_themselves() -> None:
    registry = checks()
    for check_id in (STAGES, DRIVER, EXPORTER):
        check = registry.get(check_id)
        assert check is not None
        assert len(check.doc) > 200


def test_only_lines_that_tell_of_a_run_are_kept() -> None:
    node = OperatorNode()
    path = node.log_of(EXPORTER_POD, "nvidia-dcgm-exporter", REMOTE, "token=abc of a tenant", READY)
    found = node.read_blocking((path,), keep=KEEP)[path]
    assert isinstance(found, TextFile)
    assert "hostengine" in found.text
    assert "tenant" not in found.text
