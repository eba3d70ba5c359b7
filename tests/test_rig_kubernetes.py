"""Every situation of the rig's real kubelet and device plugin gets its diagnosis: containers, the plugin's log and manifests put to it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.chain import Link
from gpudoctor.config import Config
from gpudoctor.facts.raw import Entry, EntryType, Log
from gpudoctor.registry import Registry, built_in
from gpudoctor.report import Report, Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status
from tests.captures import NOW, crashed
from tests.rig_kubernetes import K8S, KUBELET, VM, RigKubernetes, situations, vm_situations

MANIFESTS = "/etc/kubernetes/manifests"
FOUND, HAVE, ALIVE, BYPASS = (
    "device-plugin.plugin-found-devices",
    "workload.pods-have-their-gpus",
    "workload.pods-hold-live-gpus",
    "workload.no-bypass",
)
HEALTHY, EXIST, ADVERTISED, REPLICAS = (
    f"device-plugin.{name}" for name in ("devices-healthy", "devices-exist", "all-gpus-advertised", "replicas-add-up")
)
CAUSES = {
    "01-pod-before-plugin": {HAVE},
    "03-plugin-stopped-sigterm": {"device-plugin.registered"},
    "08-plugin-killed-sigkill": {"device-plugin.socket-alive"},
    "17-gpu-uuids-changed": {EXIST},
    "23-pods-removed": {"device-plugin.registered"},
    "26-plugin-no-nvml-nofail": {FOUND},
    "30-strategy-volume-mounts": {"toolkit.containers-start"},
}
"""The root causes of each situation that has any, of the links that Kubernetes stands on. Xids that reached nobody leave no trace."""
LINKS = (Link.TOOLKIT, Link.DEVICE_PLUGIN, Link.WORKLOAD)
_NODE = re.compile(r"c[rwx-]{9} +\d+ +\S+ +\S+ +(\d+), +(\d+) .* (nvidia\S*)")


JUST_STARTED = ("03-plugin-stopped-sigterm",)
"""Captured while the kubelet was too young to blame anybody; judged later."""


class Situation(RigKubernetes):
    """A folder with what the loader leaves out: the containers, the manifests of static pods, and what the plugin has said so far."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        for place in sorted(self.folder.glob("ctr*-main")):
            self._container(place)
        # The libraries in the containers are of this version.
        version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build\n"
        self.text("/proc/driver/nvidia/version", version)
        self.answers["nvml"].data["driver_version"] = "550.163.01"
        if self.folder.parent == VM:
            # The number that its kernel gave to the stand-in of nvidia-uvm.
            self.text(
                "/proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n244 nvidia-uvm\n\nBlock devices:\n"
            )
            uvm = Entry("/dev/nvidia-uvm", EntryType.CHAR, 0o666, 0, 0, major=244, minor=0)
            self.tree.put(uvm.path, Record(entry=uvm))
        said = self._said()
        self.logs["journal/rig.service.log"] = Log("journal/rig.service.log", said, source="journal")
        self.text(f"{KUBELET}/config.yaml", f"kind: KubeletConfiguration\nstaticPodPath: {MANIFESTS}\n")
        for pod in json.loads(self.file("pods.json") or "{}").get("items") or ():
            self._manifest(pod)

    def _said(self) -> str:
        """Each folder has what was said since the one before it."""
        if self.folder.parent == VM:
            return self.file("nvdp.journal")
        names = situations()
        before = names[: names.index(self.folder.name) + 1]
        logs = (K8S / name / "plugin.log" for name in before)
        return "".join(log.read_text("utf-8", "backslashreplace") for log in logs if log.is_file())

    def _manifest(self, pod: dict[str, Any]) -> None:
        node = f"-{pod['spec']['nodeName']}"
        name = pod["metadata"]["name"].removesuffix(node)
        described = {
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "containers": [{key: one[key] for key in ("name", "resources")} for one in pod["spec"]["containers"]]
            },
        }
        self.text(f"{MANIFESTS}/{name}.yaml", json.dumps(described))

    def _container(self, place: Path) -> None:
        def shown(name: str) -> str:
            return (place / name).read_text("utf-8", "backslashreplace")

        found = re.search(r"(?m)^Pid:\s+(\d+)", shown("proc.status"))
        assert found is not None
        pid = int(found[1])
        self.process(pid, shown("proc.cgroup"), comm="probe", apart=True)
        nodes = {node[3]: (int(node[1]), int(node[2])) for node in _NODE.finditer(shown("ls_dev.txt"))}
        self.inside(pid, *shown("proc.environ").split("\0"), nodes=nodes, mountinfo=shown("proc.mountinfo"))
        self.complete.append(f"/proc/{pid}/root/dev")
        if self.folder.parent == VM:
            container = re.search(r"cri-containerd-([0-9a-f]{64})", shown("proc.cgroup"))
            assert container is not None
            self.bundle(container[1], json.loads(self.file("config.json")))
        else:
            self.bundle(json.loads(shown("container-info.json"))["ID"], json.loads(shown("oci-config.json")))


def checks() -> Registry:
    """The built-in checks, those of the device plugin among them."""
    registry = built_in()
    import gpudoctor.checks.device_plugin
    import gpudoctor.checks.kubelet
    import gpudoctor.checks.kubelet_topology
    import gpudoctor.checks.plugin_devices
    import gpudoctor.checks.pods  # noqa: F401

    return registry


def report(node: RigKubernetes) -> Report:
    """The whole diagnosis."""
    return run(node.node(), Config(), checks(), Selection(), NOW)


def judge(node: RigKubernetes, check_id: str) -> Result:
    """How one check ends."""
    return report(node).result(check_id)


def causes(found: Report) -> set[str]:
    """The checks behind the root causes."""
    return {cause.check for cause in found.root_causes if cause.link in LINKS}


@pytest.mark.skipif(not K8S.is_dir(), reason="needs the rig")
@pytest.mark.parametrize("name", [*situations(), *vm_situations()])
def test_every_situation_gets_its_diagnosis(name: str) -> None:
    node = Situation(name)
    if name in JUST_STARTED:
        node.text("/proc/uptime", "9000.00 1.00\n")
    found = report(node)
    assert causes(found) == CAUSES.get(name, set())
    assert not crashed(found)


@pytest.mark.skipif(not K8S.is_dir(), reason="needs the rig")
class TestPods:
    """What pods were given, and what they have."""

    def test_a_static_pod_that_came_before_the_plugin(self) -> None:
        finding = judge(Situation("01-pod-before-plugin"), HAVE).findings[0]
        assert finding.subject.key == "default/p-noplugin-gpu-node-1"
        assert "asks for 1 nvidia.com/gpu and runs with 0" in finding.summary
        assert any(MANIFESTS in evidence.where for evidence in finding.evidence)

    def test_a_static_pod_that_was_refused_runs_without_nothing(self) -> None:
        result = judge(Situation("07-too-many"), HAVE)
        assert not [one for one in result.findings if one.status is Status.FAIL]

    def test_the_container_has_the_node_of_its_gpu(self) -> None:
        for name in ("05-gpu-pod-running", "30-strategy-cdi-cri", "30-strategy-envvar,cdi-cri"):
            finding = judge(Situation(name), HAVE).findings[0]
            assert finding.status is Status.PASS and "has /dev/nvidia" in finding.summary, name
        for name in vm_situations():
            finding = judge(Situation(name), HAVE).findings[0]
            assert finding.status is Status.PASS and finding.subject.key == "default/gpu1-gpu-node-1", name
        both = judge(Situation("24-time-slicing"), HAVE).findings
        assert {one.status for one in both} == {Status.PASS}
        assert any("/dev/nvidia0, /dev/nvidia7" in one.summary for one in both)

    def test_ids_of_gpus_that_no_longer_exist(self) -> None:
        found = report(Situation("17-gpu-uuids-changed"))
        result = found.result(EXIST)
        failed = [one for one in result.findings if one.status is Status.FAIL]
        assert {one.subject.key for one in failed} == {"default/gpu1-gpu-node-1", "default/gpu2-gpu-node-1"}
        assert all("which no longer exists" in one.summary for one in failed)
        assert found.result(ALIVE).status is Status.SKIP

    def test_entries_of_pods_that_have_ended_are_nobodys(self) -> None:
        assert judge(Situation("23-pods-removed"), ALIVE).status is Status.SKIP

    def test_a_pod_given_a_gpu_without_its_node(self) -> None:
        node = Situation("05-gpu-pod-running")
        pid = next(int(path.split("/")[2]) for path in node.complete if path.endswith("/root/dev"))
        node.gone(f"/proc/{pid}/root/dev/nvidia7")
        found = report(node)
        assert found.result(HAVE).status is Status.FAIL
        assert causes(found) == {"workload.nodes-inside"}, "the container's own lack is the cause"


@pytest.mark.skipif(not K8S.is_dir(), reason="needs the rig")
class TestPlugin:
    """What the plugin found, holds unhealthy and advertises."""

    def test_a_plugin_that_waits_without_devices(self) -> None:
        finding = judge(Situation("26-plugin-no-nvml-nofail"), FOUND).findings[0]
        assert "waits, having found no device" in finding.summary
        assert any("ERROR_LIBRARY_NOT_FOUND" in evidence.shows for evidence in finding.evidence)
        assert not any("server.go" in evidence.shows for evidence in finding.evidence)

    def test_replicas(self) -> None:
        node = Situation("24-time-slicing")
        result = judge(node, REPLICAS)
        assert result.status is Status.PASS and "8 devices 4 times as nvidia.com/gpu" in result.findings[0].summary
        said: list[dict[str, Any]] = node.answers["pod_resources"].data["allocatable"]
        taken = said[0]["ids"].pop(0)
        finding = judge(node, REPLICAS).findings[0]
        assert finding.status is Status.WARN and "31 replicas instead of 8 times 4, 32" in finding.summary
        assert f"has 3 and lacks ::{taken.partition('::')[2]}" in finding.summary
        assert any("replicas of nvidia.com/gpu: 4" in evidence.shows for evidence in finding.evidence)

    def test_a_gpu_that_the_plugin_marked_unhealthy(self) -> None:
        node = Situation("05-gpu-pod-running")
        uuid = node.uuids[3]
        mark = (
            f"I1129 17:30:50.1 27299 health.go:168] XidCriticalError: Xid=48 on Device={uuid}; marking device as unhealthy.\n"
            f"I1129 17:30:50.1 27299 server.go:270] 'nvidia.com/gpu' device marked unhealthy: {uuid}\n"
        )
        log = node.logs["journal/rig.service.log"]
        node.logs["journal/rig.service.log"] = Log(log.name, log.text + mark, source="journal")
        finding = judge(node, HEALTHY).findings[0]
        assert "for Xid 48" in finding.summary and "which has not heard, still gives it out" in finding.summary
        for devices in node.answers["pod_resources"].data["allocatable"]:
            devices["ids"] = [device for device in devices["ids"] if device != uuid]
        found = report(node)
        assert "no pod is given it until the plugin starts anew" in found.result(HEALTHY).findings[0].summary
        assert found.result(ADVERTISED).status is Status.WARN and causes(found) == {HEALTHY}

    def test_a_gpu_that_is_not_advertised_and_why_is_not_known(self) -> None:
        node = Situation("05-gpu-pod-running")
        for devices in node.answers["pod_resources"].data["allocatable"]:
            devices["ids"] = [device for device in devices["ids"] if device != node.uuids[3]]
        found = report(node)
        assert causes(found) == {ADVERTISED}
        assert found.result(ADVERTISED).findings[0].subject.key == "0000:04:00.0"
