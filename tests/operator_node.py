"""A healthy node with eight GPUs under Kubernetes: the GPU Operator's row of files, its pods' logs, and what the API server says."""

import copy
from collections.abc import Mapping
from typing import Any

from gpudoctor.facts.boot import booted_at
from gpudoctor.facts.raw import Answer, Entry, EntryType, Log
from gpudoctor.registry import Registry, built_in
from gpudoctor.report import Finding, Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Unread
from tests.health_node import HealthNode

ROW = "/run/nvidia/validations"
PODS = "/var/log/pods"
LABELS = {
    "kubernetes.io/hostname": "n1",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/mig.strategy": "none",
}
PLUGIN_SPEC: dict[str, Any] = {
    "nodeSelector": {"nvidia.com/gpu.deploy.device-plugin": "true"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "runtimeClassName": "nvidia",
}


def checks() -> Registry:
    """The built-in checks, those of this theme among them."""
    registry = built_in()
    import gpudoctor.checks.device_plugin
    import gpudoctor.checks.gpu_operator
    import gpudoctor.checks.kubelet
    import gpudoctor.checks.kubelet_topology
    import gpudoctor.checks.kubernetes_api
    import gpudoctor.checks.kubernetes_devices  # noqa: F401

    return registry


def daemonset(name: str, namespace: str = "gpu-operator", desired: int = 1, **spec: Any) -> dict[str, Any]:
    """A DaemonSet of which every pod that is desired is there."""
    status = {"desiredNumberScheduled": desired, "currentNumberScheduled": desired, "numberReady": desired}
    meta = {"name": name, "namespace": namespace}
    return {"metadata": meta, "spec": {"template": {"spec": {**PLUGIN_SPEC, **spec}}}, "status": status}


def pod(name: str, owner: str = "", namespace: str = "gpu-operator", **spec: Any) -> dict[str, Any]:
    """A pod that runs."""
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": "80842800-d50b-2255-282f-a69f781c1cf2"}
    meta["ownerReferences"] = [{"kind": "DaemonSet", "name": owner}] if owner else []
    return {"metadata": meta, "spec": {"nodeName": "n1", **spec}, "status": {"phase": "Running"}}


class OperatorNode(HealthNode):
    """Eight H100; the row is whole, the driver the host's own. What the API server says is `api`, asked only when a test calls `ask`."""

    def __init__(self) -> None:
        super().__init__("h100x8")
        self._complete = (*self._complete, "/run/nvidia", "/var/log/pods", "/proc/net")
        self.stages("driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready")
        self.journals: dict[str, str] = {}
        self.put(PODS, EntryType.DIR)
        amounts = {"nvidia.com/gpu": "8"}
        node = {
            "metadata": {"name": "n1", "labels": dict(LABELS)},
            "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {
                "capacity": dict(amounts),
                "allocatable": dict(amounts),
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "nodeInfo": {},
            },
        }
        self.api: dict[str, Any] = {
            "node": node,
            "pods": [pod("nvidia-device-plugin-daemonset-tl9k7", "nvidia-device-plugin-daemonset")],
            "daemonsets": [daemonset("nvidia-device-plugin-daemonset")],
            "runtimeclasses": [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}],
            "resourceslices": [],
            "resourceclaims": [],
        }

    def put(
        self, path: str, kind: EntryType = EntryType.FILE, text: str | None = None, mtime: float | None = None
    ) -> None:
        """Something at a path."""
        self.overlay.put(path, Record(entry=Entry(path, kind, mtime=mtime), text=text))

    def stages(self, *names: str, host: bool = True, root: str = "/run/nvidia/driver", age: float = 5000.0) -> None:
        """The row of files, the last written so long ago."""
        for known in [path for path in self.overlay.records if path.startswith(f"{ROW}/")]:
            del self.overlay.records[known]
            self.overlay.children[ROW].discard(known.rpartition("/")[2])
        self.put(ROW, EntryType.DIR)
        booted = booted_at(self)
        assert booted is not None
        self.put("/proc/uptime", text="9000.00 1.00\n")
        said = f"IS_HOST_DRIVER={'true' if host else 'false'}\nNVIDIA_DRIVER_ROOT={'/' if host else root}\n"
        for name in names:
            self.put(f"{ROW}/{name}", text=said if name == "driver-ready" else "", mtime=booted + 9000 - age)

    def log_of(self, pod_name: str, container: str, *lines: str, run: int = 0, namespace: str = "gpu-operator") -> str:
        """The log of one run of a container, as the kubelet keeps it."""
        path = f"{PODS}/{namespace}_{pod_name}_80842800-d50b-2255-282f-a69f781c1cf2/{container}/{run}.log"
        text = "".join(
            f"2026-11-29T11:{run:02d}:{at:02d}.413021417Z stderr F {line}\n" for at, line in enumerate(lines)
        )
        self.put(path, text=text)
        return path

    def ask(self, error: Mapping[str, str] | None = None) -> "OperatorNode":
        """The API server was asked."""
        self.answers["kubernetes"] = Answer(
            data=copy.deepcopy(self.api), via="kubectl", error=dict(error) if error else None
        )
        return self

    def running(self, **pids: int) -> None:
        """Services of the host by name, and nothing else."""
        processes: list[list[object]] = [[1, 0, 1, "systemd", "S", 0, 0]]
        groups = ["0::/init.scope\n"]
        for name, pid in pids.items():
            processes.append([pid, 1, 900, name.replace("_", "-"), "S", len(groups), 0])
            groups.append(f"0::/system.slice/{name}.service\n")
        data = {"processes": processes, "cgroups": groups, "namespaces": [[4026531841, 4026531836, 4026531837]]}
        self.answers["processes"] = Answer(data={**data, "whole": True}, via="/proc")

    def kubelet_has(self, amount: int, resource: str = "nvidia.com/gpu") -> None:
        """What the kubelet says is allocatable."""
        self.put("/var/lib/kubelet/pod-resources/kubelet.sock", EntryType.SOCKET)
        uuids = [str(device["uuid"]) for device in self.devices[:amount]]
        data = {"version": "v1", "pods": [], "allocatable": [{"resource": resource, "ids": uuids}]}
        self.answers["pod_resources"] = Answer(data=data, via="PodResources")

    def log(self, name: str) -> Log | Unread:
        """A log, perhaps one of a test's own."""
        return Log(name, self.journals[name], source="journal") if name in self.journals else super().log(name)

    def report(self) -> Report:
        """The whole report."""
        assert self.whole.manifest is not None
        return run(self, self.config, checks(), Selection(), self.whole.manifest.recorded_at)

    def finding(self, check: str) -> Finding:
        """What a check says of its only subject."""
        (found,) = self.report().result(check).findings
        return found
