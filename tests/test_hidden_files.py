"""What a check says when a file that it stands on is hidden: that it does not know, and never another alarm than before."""

import pytest

from gpudoctor.report import Finding, Report
from gpudoctor.verdicts import Status, Why
from tests.altered import Altered
from tests.operator_node import OperatorNode

CRIO = "crio-got-its-handler-after-the-first-pods"
STARTS, RUNTIME, SPECS = "toolkit.containers-start", "toolkit.containerd-runtime", "toolkit.cdi-specs-current"
STAGES, LABELS, INSIDE = "device-plugin.operator-stages", "device-plugin.labels-true", "workload.nodes-inside"
PEERS, TOO_EARLY = "fabric.peer-access", "startup.engine-after-driver"
SPEC = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
LOST = "0000:3a:00.0"
"""The GPU of minor 2 that has fallen off the bus."""


def found(report: Report, check: str, key: str) -> Finding:
    """The finding of a check about a subject."""
    return next(one for one in report.result(check).findings if one.subject.key == key)


def without(name: str, *paths: str) -> Altered:
    """A fixture of which some files cannot be seen."""
    altered = Altered(name)
    for path in paths:
        altered.error(altered.place(path), "EACCES")
    return altered


# A runtime that a restart has brought ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/etc/crio/crio.conf",
        "/etc/crio/crio.conf.d",
        "/usr/bin/nvidia-container-runtime",
        "/proc/stat",
    ],
)
def test_whether_cri_o_has_the_runtime_since_its_restart_is_not_known(path: str) -> None:
    assert found(Altered(CRIO).report(), STARTS, "kubelet").status is Status.PASS
    failed = found(without(CRIO, path).report(), STARTS, "kubelet")
    assert (failed.status, failed.why) == (Status.UNKNOWN, Why.NO_PERMISSION)
    assert path in failed.summary


@pytest.mark.parametrize(
    ("name", "path", "check", "key"),
    [
        ("start-of-a-pod-succeeded-at-the-fourth-try", "/proc/4420/root/dev", STARTS, "containerd"),
        ("start-of-a-pod-succeeded-at-the-fourth-try", "/proc/stat", STARTS, "containerd"),
        ("stopped-container-pinned-to-a-gpu-that-left", "/proc/4242/root/dev", STARTS, "docker"),
        ("start-failed-during-a-reload-then-succeeded", "/proc/4242/root/dev", TOO_EARLY, "docker"),
    ],
)
def test_whether_a_container_with_a_gpu_was_started_since_is_not_known(
    name: str, path: str, check: str, key: str
) -> None:
    assert found(Altered(name).report(), check, key).status in (Status.PASS, Status.SKIP)
    failed = found(without(name, path).report(), check, key)
    assert (failed.status, failed.why) == (Status.UNKNOWN, Why.NO_PERMISSION)


# The GPU Operator's row -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/run/nvidia/validations", "/run/nvidia/validations/driver-ready", "/proc/uptime"])
def test_whether_the_operator_waits_for_the_runtime_is_not_known(path: str) -> None:
    name = "operator-stops-at-the-toolkit"
    assert found(Altered(name).report(), RUNTIME, "containerd").status is Status.FAIL
    lacks = found(without(name, path).report(), RUNTIME, "containerd")
    assert (lacks.status, lacks.why) == (Status.UNKNOWN, Why.NO_PERMISSION)
    assert path in lacks.summary


@pytest.mark.parametrize("path", ["/proc/uptime", "/proc/stat"])
def test_a_stage_that_may_have_had_no_time_yet_is_not_missed(path: str) -> None:
    node = OperatorNode()
    node.stages("driver-ready", age=60.0)
    assert node.finding(STAGES).status is Status.UNKNOWN
    node.error(path, "EACCES")
    assert (node.finding(STAGES).status, node.finding(STAGES).why) == (Status.UNKNOWN, Why.NO_PERMISSION)


# GPUs on the bus ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [f"/sys/bus/pci/devices/{LOST}/vendor", f"/proc/driver/nvidia/gpus/{LOST}/information"]
)
def test_a_name_in_a_cdi_spec_may_be_a_hidden_gpus(path: str) -> None:
    named = found(without("pod-holds-a-gpu-that-fell-off-the-bus", path).report(), SPECS, SPEC)
    assert (named.status, named.why) == (Status.UNKNOWN, Why.NO_PERMISSION)
    assert LOST in named.summary


def test_a_missing_node_in_a_cdi_spec_may_be_a_hidden_gpus() -> None:
    altered = without("pod-holds-a-gpu-that-fell-off-the-bus", f"/sys/bus/pci/devices/{LOST}/vendor")
    altered.error("/dev/nvidia2")
    assert found(altered.report(), SPECS, SPEC).status is Status.UNKNOWN


@pytest.mark.parametrize(
    "path", [f"/sys/bus/pci/devices/{LOST}/vendor", f"/proc/driver/nvidia/gpus/{LOST}/information"]
)
def test_a_node_in_a_container_may_be_a_hidden_gpus(path: str) -> None:
    report = without("pod-holds-a-gpu-that-fell-off-the-bus", path).report()
    inside = found(report, INSIDE, "60ea8cf229ad")
    assert (inside.status, inside.why) == (Status.UNKNOWN, Why.NO_PERMISSION)
    # The other container has a GPU that is seen.
    assert found(report, INSIDE, "d79908ec45a2").status is Status.PASS


def test_a_label_may_count_hidden_gpus() -> None:
    node = OperatorNode()
    node.kubelet_has(8)
    node.api["node"]["metadata"]["labels"]["nvidia.com/gpu.count"] = "9"
    assert node.ask().finding(LABELS).status is Status.WARN
    address = node.report().node.gpus[-1].address
    node.error(node.place(f"/sys/bus/pci/devices/{address}/vendor"), "EACCES")
    assert (node.finding(LABELS).status, node.finding(LABELS).why) == (Status.UNKNOWN, Why.NO_PERMISSION)


@pytest.mark.parametrize("name", ["nvlink-queries-refused-under-mig", "nvlinks-inactive-on-one-gpu-of-eight"])
def test_a_hidden_gpu_off_nvlink_may_be_divided_or_have_its_links_down(name: str) -> None:
    report = Altered(name).report()
    assert report.result(PEERS).status is Status.SKIP
    for address in {gpu.address for gpu in report.node.gpus}:
        result = without(name, f"/sys/bus/pci/devices/{address}/vendor").report().result(PEERS)
        assert result.status in (Status.SKIP, Status.UNKNOWN), address
