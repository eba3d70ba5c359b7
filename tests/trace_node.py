"""A node with two GPUs and a container of docker that has both, for tests of `gpudoctor trace`: all is right until one changes it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gpudoctor.config import Config
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType
from gpudoctor.registry import built_in
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.trace import Step, StepId, Trace, Traced
from gpudoctor.trace_run import trace
from tests.captures import NOW
from tests.device_shapes import Rule
from tests.gpu_node import GIVEN, PID, GpuNode
from tests.small_node import COMPLETE
from tests.workload_node import DOCKER, ID, oci

VERSION = "580.95.05"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
UUIDS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
NODES = {"nvidia0": (195, 0), "nvidia1": (195, 1), "nvidiactl": (195, 255), "nvidia-uvm": (507, 0)}
WANTED = (
    "PATH=/bin",
    "NVIDIA_VISIBLE_DEVICES=all",
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "CUDA_VERSION=12.4.1",
)
NAME = "NVIDIA H100 80GB HBM3"
SHM = "92 91 0:71 / /dev/shm rw,nosuid - tmpfs shm rw,size=8388608k\n"
ROOT_MOUNTS = (
    "90 80 0:53 / / rw,relatime - overlay overlay rw\n91 90 0:70 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k\n"
)


class TraceNode(GpuNode):
    """The container is `docker:web`, PID 702, of `docker run --gpus all`."""

    def __init__(self) -> None:
        super().__init__()
        self.complete = ["/proc", *COMPLETE, "/etc/docker", "/var/lib/docker", "/sys/devices", "/run/containerd"]
        self.names = [NAME, NAME]
        self.nodes: Mapping[str, tuple[int, int]] = NODES
        self.environment: list[str] = list(WANTED)
        self.mounts = [ROOT_MOUNTS, SHM]
        self.allowed: tuple[Rule, ...] = (*GIVEN, GIVEN[0]._replace(minor=1))
        self.libraries: dict[str, str] = {}
        self.cpus = "0-15"
        self.locked = "unlimited"
        self.uid_line = "0\t0\t0\t0"
        self.capabilities = "00000000a80425fb"
        self.requests: list[dict[str, Any]] = [
            {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}
        ]
        self.config = oci(hooks={"prestart": ["/usr/bin/nvidia-container-runtime-hook"]})
        self.library(LIBRARIES, "libcuda", VERSION)
        self.library(LIBRARIES, "libnvidia-ml", VERSION)
        for number, bus in enumerate(("05", "06")):
            address = f"0000:{bus}:00.0"
            information = (
                f"Model: {NAME}\nGPU UUID: {UUIDS[number]}\nVideo BIOS: 96.00.89.00.01\nDevice Minor: {number}\n"
            )
            self.text(f"/proc/driver/nvidia/gpus/{address}/information", information)
            place = f"/sys/devices/pci0000:00/0000:00:01.{number}/{address}"
            self.text(f"{place}/numa_node", "0\n")
            self.text(f"{place}/local_cpulist", "0-31\n")
            self.text(f"{place}/power/runtime_status", "active\n")

    def library(self, folder: str, name: str, version: str, *, mounted: bool = True, pid: int = PID) -> None:
        """A library of the driver inside, with the link that ldconfig makes, and its mount."""
        path = f"/proc/{pid}/root{folder}/{name}.so"
        self.tree.put(f"{path}.{version}", Record(entry=Entry(f"{path}.{version}", EntryType.FILE, 0o755, 0, 0)))
        self.link(f"{path}.1", f"{name}.so.{version}")
        if mounted:
            inside = f"{folder}/{name}.so.{version}"
            self.mounts.append(f"95 90 254:0 {inside} {inside} ro,nosuid,nodev - ext4 /dev/vda rw\n")

    def without(self, path: str) -> None:
        """Nothing at a path, nor below it."""
        for known in [known for known in self.tree.records if known == path or known.startswith(f"{path}/")]:
            del self.tree.records[known]
            parent, _, name = known.rpartition("/")
            self.tree.children.get(parent, set()).discard(name)

    def changed(self, path: str, **fields: Any) -> None:
        """A node inside with another mode, owner or number."""
        record = self.tree.lookup(path)
        assert record is not None and record.entry is not None
        self.tree.put(path, Record(entry=replace(record.entry, **fields)))

    def build(self) -> None:
        """The container, out of what the test left of it."""
        self.container(PID, DOCKER, *self.environment, nodes=self.nodes, mountinfo="".join(self.mounts))
        self.rules(*self.allowed)
        self.text(f"/proc/{PID}/maps", "")
        self.status(PID)
        for pid, number in ((1, 4026531839), (PID, 4026532702)):
            self.link(f"/proc/{pid}/ns/ipc", f"ipc:[{number}]")
        folder = f"/var/lib/docker/containers/{ID}"
        self.text(f"{folder}/config.v2.json", json.dumps({"ID": ID, "Name": "/web", "Config": {"Image": "web:1"}}))
        self.text(f"{folder}/hostconfig.json", json.dumps({"Runtime": "nvidia", "DeviceRequests": self.requests}))
        self.bundle(ID, {**self.config, "process": {"env": self.environment}}, namespace="moby")

    def status(self, pid: int) -> None:
        """Owner, capabilities, CPUs and limits of a process."""
        lines = (
            f"Name:\tpython3\nUid:\t{self.uid_line}\nGid:\t{self.uid_line}\nGroups:\t\nCapEff:\t{self.capabilities}\n"
        )
        self.text(f"/proc/{pid}/status", f"{lines}Cpus_allowed_list:\t{self.cpus}\n")
        header = "Limit                     Soft Limit           Hard Limit           Units     \n"
        self.text(
            f"/proc/{pid}/limits", f"{header}Max locked memory         {self.locked:20} {self.locked:20} bytes     \n"
        )

    def recording(self) -> RecordedNode:
        """The node as a recording."""
        lines = "".join(f"{major:3d} {name}\n" for name, major in self.majors.items())
        self.text("/proc/devices", f"Character devices:\n{lines}\nBlock devices:\n")
        self.text("/proc/driver/nvidia/params", self.parameters)
        devices = [
            {"index": number, "pci_bus_id": f"00000000:0{5 + number}:00.0", "uuid": uuid, "name": self.names[number]}
            for number, uuid in enumerate(UUIDS)
        ]
        said = {"init": 0, "driver_version": VERSION, "count": 2, "devices": devices}
        self.answers.setdefault("nvml", Answer(data=said))
        data: dict[str, Any] = {"programs": self._programs, "cgroups": self._cgroups}
        self.answers.setdefault("cgroup_devices", Answer(data=data, via="bpf(2)"))
        recorded = self.node()
        recorded.commands |= {argv: CommandOutput(argv, 0, text) for argv, text in self.printed.items()}
        return recorded

    def written(self, folder: Path) -> Path:
        """The recording as a snapshot on disk, for the command line."""
        recorded = self.recording()
        (folder / "answers").mkdir(parents=True)
        manifest = {
            "format": 1,
            "recorded_at": "2026-11-29T12:00:00Z",
            "recorded_by": "a test",
            "hostname": "n1",
            "uid": 0,
        }
        (folder / "snapshot.json").write_text(json.dumps({**manifest, "complete": self.complete}))
        with (folder / "entries.jsonl").open("w") as file:
            for path, record in sorted(self.tree.records.items()):
                file.write(json.dumps({"path": path, **_entry(record)}) + "\n")
        for name, answer in recorded.answers.items():
            (folder / "answers" / f"{name}.json").write_bytes(msgspec.json.encode(answer))
        return folder

    def trace(self, word: str = "docker:web", *, built: bool = False) -> Trace:
        """What the trace says."""
        if not built:
            self.build()
        return trace(self.recording(), Config(), built_in(), word, NOW)

    def traced(self, word: str = "docker:web") -> Traced:
        """Of the only workload."""
        (one,) = self.trace(word).traced
        return one

    def step(self, step: str) -> Step:
        """How one step ended."""
        return self.traced().step(StepId(step))


def _entry(record: Record) -> dict[str, Any]:
    """As entries.jsonl has it."""
    if record.error is not None or record.entry is None:
        return {"error": record.error}
    fields = {
        name: value for name, value in msgspec.to_builtins(record.entry).items() if value is not None and name != "path"
    }
    if "mode" in fields:
        fields["mode"] = f"{fields['mode']:04o}"
    return {**fields, "text": record.text} if record.text is not None else fields


def statuses(one: Traced) -> dict[str, str]:
    """Every step by its status."""
    return {step.id.value: step.status.value for step in one.steps}


def broken(one: Traced) -> tuple[str | None, dict[str, str]]:
    """The first broken step, and the other failures with the step they follow from, "" for none."""
    fails = {step.id.value: ",".join(step.caused_by) for step in one.steps if step.status.value == "fail"}
    first = one.first_broken.value if one.first_broken is not None else None
    return first, {name: by for name, by in fails.items() if name != first}
