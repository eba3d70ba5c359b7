"""A recorded node with processes in control groups and namespaces, written as files of /proc: for tests of workloads."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk, FactT
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.raw import Answer, Entry, EntryType
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.sources.recorded import Record, RecordedNode
from tests.captures import Builder

MOUNT, PID, USER = 4026531841, 4026531836, 4026531837
MOUNTINFO = (
    "90 80 0:53 / / rw,relatime - overlay overlay rw\n91 90 0:70 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k\n"
)
TASKS = "/run/containerd/io.containerd.runtime.v2.task"
ID, OTHER = "f0e1d2c3" * 8, "0a1b2c3d" * 8
KEY = ID[:12]
DOCKER = f"/system.slice/docker-{ID}.scope"
UID = "7b1f0d9e-0c1d-4a55-9f5f-3f2d6c1b0a99"
POD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"
GPU = "GPU-0a0b0c0d-1111-2222-3333-444455556666"
CRI = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.sandbox-name": "trainer",
    "io.kubernetes.cri.sandbox-namespace": "lab",
}
NODES = {"nvidia0": (195, 0), "nvidiactl": (195, 255)}


class WorkloadNode(Builder):
    """A node whose PID 1 is systemd; each process is given its group and, where it has its own, its namespaces."""

    def __init__(self) -> None:
        super().__init__()
        self.complete = ["/proc"]
        self.answers: dict[str, Answer] = {}
        self.uid = 0
        self.process(1, "/init.scope", comm="systemd")
        self.text("/proc/modules", "nvidia 56832000 3 nvidia_uvm, Live 0x0000000000000000 (OE)\n")

    def process(
        self,
        pid: int,
        group: str,
        *,
        comm: str = "python3",
        state: str = "S",
        apart: bool = False,
        user: int = USER,
        mount: int = 0,
        started: int = 0,
    ) -> None:
        """One process; `apart` from the host by mount and PID namespaces of its own."""
        lines = group if "\n" in group else f"0::{group}\n"
        self.text(f"/proc/{pid}/cgroup", lines)
        self.text(f"/proc/{pid}/stat", f"{pid} ({comm}) {state} 1 {pid} " + "0 " * 16 + f"{started or pid} 0 0\n")
        spaces = {"mnt": mount or (MOUNT + pid if apart else MOUNT), "pid": PID + pid if apart else PID, "user": user}
        for name, number in spaces.items():
            self.link(f"/proc/{pid}/ns/{name}", f"{name}:[{number}]")

    def inside(
        self,
        pid: int,
        *environment: str,
        nodes: Mapping[str, tuple[int, int]] | None = None,
        mountinfo: str = MOUNTINFO,
    ) -> None:
        """What a process sees: its variables, its mounts and the nodes in its /dev."""
        self.text(f"/proc/{pid}/environ", "".join(f"{line}\0" for line in environment))
        self.text(f"/proc/{pid}/mountinfo", mountinfo)
        self.tree.put(f"/proc/{pid}/root/dev", Record(entry=Entry(f"/proc/{pid}/root/dev", EntryType.DIR)))
        for name, (major, minor) in (nodes or {}).items():
            path = f"/proc/{pid}/root/dev/{name}"
            entry = Entry(path, EntryType.CHAR, 0o666, 0, 0, major=major, minor=minor)
            self.tree.put(path, Record(entry=entry))

    def bundle(self, container: str, config: Mapping[str, Any], namespace: str = "k8s.io") -> None:
        """The configuration of a task of containerd."""
        self.text(f"{TASKS}/{namespace}/{container}/config.json", json.dumps(config))
        self.complete += [TASKS] if TASKS not in self.complete else []

    def node(self) -> RecordedNode:
        """The recording."""
        recorded = RecordedNode(self.tree, complete=self.complete, uid=self.uid)
        recorded.answers.update(self.answers)
        return recorded

    def get(self, kind: type[FactT]) -> FactT:
        """A fact that must be known."""
        found = Desk(self.node(), Config()).get(kind)
        assert isinstance(found, kind), found
        return found

    def workload(self, key: str) -> Workload:
        """A workload by its key."""
        return next(one for one in self.get(Workloads) if one.key == key)

    def concerned(self, key: str) -> GpuWorkload:
        """A workload that concerns GPUs, by its key."""
        return next(one for one in self.get(GpuWorkloads) if one.workload.key == key)


def oci(
    *environment: str,
    nodes: Mapping[str, tuple[int, int]] | None = None,
    annotations: Mapping[str, str] | None = None,
    mounts: Sequence[str] = (),
    hooks: Mapping[str, Sequence[str]] | None = None,
    privileged: bool = False,
) -> dict[str, Any]:
    """A configuration as an engine writes it, with what has to do with GPUs."""
    devices = [
        {"path": f"/dev/{name}", "type": "c", "major": major, "minor": minor, "fileMode": 438}
        for name, (major, minor) in (nodes or {}).items()
    ]
    rules: list[dict[str, Any]] = [{"allow": privileged, "access": "rwm"}]
    rules += [
        {"allow": True, "type": "c", "major": one["major"], "minor": one["minor"], "access": "rw"} for one in devices
    ]
    return {
        "ociVersion": "1.2.0",
        "process": {"args": ["python3"], "env": ["PATH=/bin", *environment], "cwd": "/"},
        "annotations": dict(annotations or {}),
        "mounts": [{"destination": path, "type": "bind", "source": path, "options": ["rbind"]} for path in mounts],
        "hooks": {kind: [{"path": path} for path in paths] for kind, paths in (hooks or {}).items()},
        "linux": {
            "cgroupsPath": "/somewhere",
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
            "devices": devices,
            "resources": {"devices": rules},
        },
    }


def wishes_of(found: GpuWorkload) -> list[tuple[str, tuple[str, ...]]]:
    """Who asked for which GPUs."""
    return [(wish.asker.value, wish.gpus) for wish in found.wishes.wishes]
