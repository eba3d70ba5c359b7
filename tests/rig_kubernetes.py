"""The rig's captures of a real kubelet and device plugin, in some twenty situations in order of time, as recorded nodes.

What is not in a folder is put around it: when processes started is read from their logs, whose lines begin with a moment and a PID. The
rig's GPUs were simulated: they are put there as a healthy driver has them, with the UUIDs that the plugin last told the kubelet. A test of
another state of theirs changes that.
"""

import datetime
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from gpudoctor.facts.raw import Answer, Entry, EntryType, Log
from gpudoctor.report import Report
from gpudoctor.sources.recorded import Record, RecordedNode
from tests.captures import DEVICES, diagnose
from tests.conftest import SHARED
from tests.workload_node import WorkloadNode

K8S, VM = SHARED / "rig" / "k8s", SHARED / "rig" / "vm-k8s-v2"
KUBELET = "/var/lib/kubelet"
PLUGINS = f"{KUBELET}/device-plugins"
UUID = "GPU-01000100-0000-0000-0000-{:012d}"
PARAMETERS = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
GPU_SOCKET = f"{PLUGINS}/nvidia-gpu.sock"
BOOTED = datetime.datetime(2026, 11, 29, 17, 0, tzinfo=datetime.timezone.utc).timestamp()
"""When the machine is said to have booted."""

_SHOWN = re.compile(
    r"([-dsl])([rwxst-]{9}) +\d+ (\S+) (\S+) +(\d+) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000|\w{3} +\d+ \d\d:\d\d) (.+)"
)
_TYPES = {"-": EntryType.FILE, "d": EntryType.DIR, "s": EntryType.SOCKET, "l": EntryType.LINK}
_SAID = re.compile(r"(?m)^[IWE]\d{4} (\d\d:\d\d:\d\d\.\d{6}) +(\d+) ")
_CGROUP = {"kubelet": "/system.slice/kubelet.service", "containerd": "/system.slice/containerd.service"}
_OTHER = "/system.slice/rig.service"


def situations() -> list[str]:
    """The folders in order of time, none where the rig is not there."""
    folders = [place for place in K8S.iterdir() if place.is_dir()] if K8S.is_dir() else []
    return [place.name for place in sorted(folders, key=lambda place: (place / "when").read_text("utf-8"))]


def vm_situations() -> list[str]:
    """Those on cgroup v2 under systemd."""
    return sorted(place.name for place in VM.iterdir() if place.is_dir()) if VM.is_dir() else []


class RigKubernetes(WorkloadNode):
    """One folder as a node of which everything below /proc, /var/lib/kubelet and the bus is known; tests may change it further."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.folder = (K8S if (K8S / name).is_dir() else VM) / name
        self.logs: dict[str, Log] = {}
        self.complete.extend(("/var/lib", "/etc", "/run", "/sys/devices/system/node", DEVICES, "/dev"))
        self.pids: dict[str, int] = {}
        self.text("/proc/stat", f"cpu 1\nbtime {BOOTED:.0f}\n")
        self.text("/proc/uptime", f"{self.when - BOOTED:.2f} 1.00\n")
        self._put_processes()
        self._put_files()
        self._put_sockets()
        self._put_pod_resources()
        self._put_logs()
        self._put_gpus()

    @property
    def when(self) -> float:
        """When it was captured, in seconds since the epoch."""
        if self.folder.parent == VM:
            return BOOTED + 3600
        return datetime.datetime.fromisoformat(self._text("when").strip()[:26] + "+00:00").timestamp()

    @property
    def pods(self) -> dict[str, Any]:
        """What the kubelet's own endpoint says of its pods."""
        said: dict[str, Any] = json.loads(self._text("pods.json"))
        return said

    @property
    def kubelet(self) -> int:
        """The kubelet's PID."""
        return self.pids["kubelet"]

    @property
    def plugin(self) -> int | None:
        """The device plugin's PID, None where none runs."""
        return self.pids.get("nvidia-device-p")

    def node(self) -> RecordedNode:
        """The recording."""
        recorded = super().node()
        recorded.logs.update(self.logs)
        return recorded

    def report(self) -> Report:
        """What gpudoctor says of it."""
        return diagnose(self.node())

    def sockets(self, text: str, *pids: int) -> None:
        """What /proc/net/unix shows in the namespace of some processes, by default of all."""
        for pid in pids or (1, *self.pids.values()):
            self.text(f"/proc/{pid}/net/unix", text)

    def gone(self, path: str) -> None:
        """Something is no longer there."""
        self.tree.put(path, Record(error="ENOENT"))

    def file(self, name: str) -> str:
        """A captured file's text."""
        return self._text(name)

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text("utf-8", "backslashreplace") if path.is_file() else ""

    def _put_processes(self) -> None:
        for pid, state, command in self._commands():
            program = command.split(" ")[0].rpartition("/")[2]
            comm = program[:15]
            if comm not in ("kubelet", "containerd", "nvidia-device-p"):
                continue
            self.pids[comm] = pid
            started = int((_starts(self.folder.parent).get(pid, BOOTED + 60) - BOOTED) * 100)
            self.process(pid, _CGROUP.get(comm, _OTHER), comm=comm, state=state, started=started)
            self.text(f"/proc/{pid}/cmdline", "".join(f"{word}\0" for word in command.split(" ")))
            self.link(f"/proc/{pid}/exe", f"/usr/bin/{program}")

    def _commands(self) -> Iterator[tuple[int, str, str]]:
        for line in self._text("ps.txt").splitlines():
            pid, _, state, command = line.split(None, 3)
            yield int(pid), state[0], command.strip()
        for name in ("ctd.show", "kubelet.show", "nvdp.show"):
            shown = self._text(name)
            main, argv = re.search(r"(?m)^MainPID=(\d+)", shown), re.search(r"argv\[\]=(.*?) ;", shown)
            if main is not None and argv is not None:
                yield int(main[1]), "S", argv[1].strip()

    def _put_files(self) -> None:
        folder = ""
        for line in self._text("ls.txt").splitlines():
            if line.startswith("/") and line.endswith(":"):
                folder = line[:-1]
            elif (shown := _SHOWN.fullmatch(line)) is not None and shown[7] not in (".", ".."):
                path = f"{folder}/{shown[7]}"
                moment = None
                if shown[6][0].isdigit():
                    moment = datetime.datetime.fromisoformat(shown[6][:26] + "+00:00").timestamp()
                entry = Entry(path, _TYPES[shown[1]], None, 0, 0, int(shown[5]), moment)
                self.tree.put(path, Record(entry=entry, text=self._kept(path) if shown[1] == "-" else None))

    def _kept(self, path: str) -> str | None:
        if path == f"{KUBELET}/config.yaml":
            return "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
        name = path.rpartition("/")[2]
        return self._text(name) if (self.folder / name).is_file() else None

    def _put_sockets(self) -> None:
        shown = self._text("proc_net_unix.txt")
        if shown:
            self.sockets(f"Num       RefCount Protocol Flags    Type St Inode Path\n{shown}")

    def _put_pod_resources(self) -> None:
        if not self._text("podresources.json"):
            return
        said = json.loads(self._text("podresources.json"))["json"]
        data = {
            "version": "v1",
            "pods": [
                {
                    "namespace": pod["namespace"],
                    "name": pod["name"],
                    "containers": [
                        {"name": container["name"], "devices": _devices(container.get("devices", []))}
                        for container in pod.get("containers", [])
                    ],
                }
                for pod in said["List"].get("pod_resources", [])
            ],
            "allocatable": _devices(said["GetAllocatableResources"].get("devices", [])),
        }
        self.answers["pod_resources"] = Answer(data, via=f"PodResources ({KUBELET}/pod-resources/kubelet.sock)")

    def _put_logs(self) -> None:
        for unit, names in (
            ("kubelet.service", ("kubelet.log", "kubelet.journal")),
            ("containerd.service", ("containerd.log", "ctd.journal")),
        ):
            text = next((text for name in names if (text := self._text(name))), "")
            self.logs[f"journal/{unit}.log"] = Log(f"journal/{unit}.log", text, source="journal")

    @property
    def uuids(self) -> list[str]:
        """The GPUs' UUIDs at the time, by minor number: those that the plugin last registered."""
        kept = json.loads(self._text("kubelet_internal_checkpoint") or "{}")
        told = kept.get("Data", {}).get("RegisteredDevices", {}).get("nvidia.com/gpu", [])
        return sorted({uuid.partition("::")[0] for uuid in told}) or [UUID.format(number) for number in range(8)]

    def _put_gpus(self) -> None:
        """The GPUs as a healthy driver has them, half of them on each of two NUMA nodes with a CPU each."""
        for node in (0, 1):
            self.text(f"/sys/devices/system/node/node{node}/cpulist", f"{node}\n")
        version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
        self.text("/proc/driver/nvidia/version", version)
        self.text("/proc/driver/nvidia/params", PARAMETERS)
        self.text("/proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n508 nvidia-uvm\n\nBlock devices:\n")
        described = []
        for number, uuid in enumerate(self.uuids):
            address = f"0000:{number + 1:02x}:00.0"
            place = f"/sys/devices/pci0000:00/0000:00:{number + 1:02x}.0/{address}"
            self.function(address, place, "nvidia")
            numbers = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": str(number // 4)}
            for name, value in numbers.items():
                self.text(f"{place}/{name}", f"{value}\n")
            information = f"GPU UUID: \t {uuid}\nBus Location: \t {address}\nDevice Minor: \t {number}\n"
            self.text(f"/proc/driver/nvidia/gpus/{address}/information", information)
            described.append(
                {"index": number, "pci_bus_id": f"0000{address.upper()}", "uuid": uuid, "minor_number": number}
            )
        minors = {f"nvidia{number}": (195, number) for number in range(len(described))}
        for name, (major, minor) in {**minors, "nvidiactl": (195, 255), "nvidia-uvm": (508, 0)}.items():
            entry = Entry(f"/dev/{name}", EntryType.CHAR, 0o666, 0, 0, major=major, minor=minor)
            self.tree.put(f"/dev/{name}", Record(entry=entry))
        data = {"init": 0, "driver_version": "580.95.05", "count": len(described), "devices": described}
        self.answers["nvml"] = Answer(data)


def _devices(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Protobuf's JSON leaves out what is 0."""
    grouped: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for device in said:
        nodes = tuple(int(node.get("ID", 0)) for node in device.get("topology", {}).get("nodes", []))
        grouped.setdefault((device["resource_name"], nodes), []).extend(device["device_ids"])
    return [{"resource": name, "ids": ids, "numa": list(nodes)} for (name, nodes), ids in grouped.items()]


@cache
def _starts(folder: Path) -> dict[int, float]:
    """When each process that has a log said its first word."""
    found: dict[int, float] = {}
    for name in ("kubelet.log", "plugin.log"):
        path = folder / name
        text = path.read_text("utf-8", "backslashreplace") if path.is_file() else ""
        for moment, pid in _SAID.findall(text):
            said = datetime.datetime.fromisoformat(f"2026-11-29T{moment}+00:00").timestamp()
            found.setdefault(int(pid), said)
    return found
