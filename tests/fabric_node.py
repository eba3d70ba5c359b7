"""A node with two GPUs of an NVSwitch board, four switches and a fabric that is set up, for tests that change one thing."""

from typing import Any

from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Log
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import diagnose
from tests.small_node import ALARMS, COMPLETE, SmallNode

FIRST, SECOND = "0000:05:00.0", "0000:06:00.0"
ADDRESSES = (FIRST, SECOND)
UNIT = "nvidia-fabricmanager.service"
SLICE = "/sys/fs/cgroup/system.slice"
ZERO = "00000000-0000-0000-0000-000000000000"
RACK = "7c0b51e4-2f9d-4a38-b6d7-90e81f3a5c26"
FABRIC: dict[str, Any] = {
    "fabric.state": "completed",
    "fabric.status": 0,
    "fabric.clique_id": 0,
    "fabric.cluster_uuid": ZERO,
}


def link(number: int, **changes: Any) -> dict[str, Any]:
    """One NVLink of an H100 as NVML tells it."""
    counters = {"crc_flit": 0, "crc_data": 0, "replay": 0, "recovery": 0}
    whole = {"link": number, "active": True, "megabytes_per_second": 26562, "version": 4, "remote_type": "switch"}
    return {**whole, "errors": counters, **changes}


class FabricNode(SmallNode):
    """Everything is right until a test changes it."""

    def __init__(
        self, name: str = "NVIDIA H100 80GB HBM3", *, switches: int = 4, links: int = 18, **majors: int
    ) -> None:
        super().__init__(**majors)
        if switches:
            self.switches(switches)
        self.complete = [
            *COMPLETE,
            SLICE,
            "/var/log",
            "/etc/nvidia-imex",
            "/sys/class/infiniband",
            "/usr/src",
            "/etc/modules-load.d",
        ]
        self.devices: list[dict[str, Any]] = [self.device(number, name, links) for number in range(2)]
        self.topology: list[dict[str, Any]] = []
        self.processes: dict[int, str] = {}
        self.text("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Mon\n")
        self.text("/sys/class/dmi/id/sys_vendor", "Supermicro\n")
        self.text("/sys/class/dmi/id/product_name", "SYS-821GE-TNHR\n")
        self.text("/proc/cpuinfo", "flags\t\t: fpu vme\n")
        self.text("/proc/sys/kernel/osrelease", "5.10.0-30-amd64\n")
        self.tree.put(SLICE, Record(entry=Entry(SLICE, EntryType.DIR)))
        self.process(1, "systemd")
        self.start()

    def device(self, number: int, name: str, links: int) -> dict[str, Any]:
        """One GPU as NVML tells it."""
        nvlinks = [link(each) for each in range(links)]
        fields = {**FABRIC, "mig.current": False, "nvlink.active_links": links or {"error": 3}}
        uuid = f"GPU-0000000{number}-0000-0000-0000-000000000000"
        identity = {
            "index": number,
            "pci_bus_id": f"0000{ADDRESSES[number].upper()}",
            "uuid": uuid,
            "name": name,
            "minor": number,
        }
        return {**identity, "fields": fields, "nvlinks": nvlinks}

    def another_gpu(self, address: str) -> None:
        """One more GPU on the bus, without an answer of NVML."""
        place = f"/sys/devices/pci0000:00/{address}"
        self.function(address, place, "nvidia")
        for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
            self.text(f"{place}/{name}", f"{value}\n")

    def fields(self, number: int | None = None, **changes: Any) -> "FabricNode":
        """Other answers of one GPU, or of all; `__` stands for a point."""
        for at, device in enumerate(self.devices):
            if number is None or at == number:
                device["fields"] |= {name.replace("__", "."): value for name, value in changes.items()}
        return self

    def down(self, number: int, *which: int) -> "FabricNode":
        """Links that are not active."""
        links = self.devices[number]["nvlinks"]
        for each in which:
            links[each] = {"link": each, "active": False}
        self.devices[number]["fields"]["nvlink.active_links"] = sum(one["active"] for one in links)
        return self

    def start(self) -> None:
        """The fabric manager is enabled and runs."""
        self.link(f"/etc/systemd/system/multi-user.target.wants/{UNIT}", f"/usr/lib/systemd/system/{UNIT}")
        self.folder(f"{SLICE}/{UNIT}")

    def stop(self, *, enabled: bool = True) -> "FabricNode":
        """It does not run."""
        self.absent(f"{SLICE}/{UNIT}")
        if not enabled:
            self.absent(f"/etc/systemd/system/multi-user.target.wants/{UNIT}")
        return self

    def folder(self, path: str) -> None:
        """A directory."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.DIR)))

    def process(self, pid: int, comm: str, started: int = 100, environ: str = "") -> None:
        """A process by its name."""
        self.text(f"/proc/{pid}/cgroup", "0::/init.scope\n" if pid == 1 else f"0::/system.slice/p{pid}.service\n")
        words = ["0"] * 40
        words[0], words[19] = "S", str(started)
        self.text(f"/proc/{pid}/stat", f"{pid} ({comm}) {' '.join(words)}\n")
        self.text(f"/proc/{pid}/comm", f"{comm}\n")
        self.link(f"/proc/{pid}/ns/mnt", "mnt:[4026531841]")
        self.text(f"/proc/{pid}/environ", environ)

    def prints(self, *argv: str, text: str, exit_status: int = 0) -> None:
        """What a command gives."""
        self.commands[argv] = CommandOutput(argv, exit_status, text)

    def report(self) -> Report:
        """What the doctor says."""
        lines = "".join(f"{major:3d} {name}\n" for name, major in self.majors.items())
        self.text("/proc/devices", f"Character devices:\n{lines}\nBlock devices:\n")
        self.text("/proc/driver/nvidia/params", self.parameters)
        recorded = RecordedNode(self.tree, complete=self.complete, uid=0)
        recorded.logs |= {name: Log(name, text) for name, text in self.logs.items()}
        recorded.commands |= self.commands
        system = {"topology": self.topology} if self.topology else {}
        data = {
            "init": 0,
            "driver_version": "550.163.01",
            "count": len(self.devices),
            "devices": self.devices,
            "system": system,
        }
        recorded.answers["nvml"] = Answer(data=data)
        return diagnose(recorded)

    def says(self, check: str, key: str | None = None) -> Finding:
        """What a check says, of one GPU where it has several subjects."""
        found = [one for one in self.report().result(check).findings if key is None or one.subject.key == key]
        assert len(found) == 1, found
        return found[0]


MINE = (
    *(
        f"fabric.{name}"
        for name in ("manager-running", "subnet-manager", "registered", "health", "one-domain", "multicast")
    ),
    *(f"fabric.{name}" for name in ("nvlinks-up", "nvlink-speed", "nvlink-errors", "switches-seen", "peer-access")),
    *(f"fabric.{name}" for name in ("imex", "imex-channels", "peer-memory", "gpudirect-storage")),
    "workload.ranks-apart",
)
"""The checks of this theme."""


def spoken(report: Report) -> list[tuple[str, Status]]:
    """Every warn and fail of them."""
    return [
        (check, finding.status)
        for check in MINE
        for finding in report.result(check).findings
        if finding.status in ALARMS
    ]


def roots(report: Report) -> list[str]:
    """The root causes among them."""
    return [cause.check for cause in report.root_causes if cause.check in MINE]
