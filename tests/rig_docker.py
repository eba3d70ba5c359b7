"""The rig's Docker captures as recorded nodes: eight GPUs behind driver 550.163.01, one dockerd, and what it kept of one situation.

The GPUs, the driver and the toolkit are those of the rig's toolkit captures; what no capture holds (PCI, stat, namespaces) is put around.
"""

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudoctor.config import Config
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Log
from gpudoctor.facts.software import DPKG, PACKAGES, QUERY_DPKG
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.trace import Trace
from gpudoctor.trace_run import trace
from gpudoctor.verdicts import Status
from tests.captures import put_listing
from tests.conftest import SHARED
from tests.docker_node import HOOK, INFO, RUNTIME, DockerNode
from tests.rig_containers import V1_MOUNTS

DOCKER, TOOLKIT = SHARED / "rig" / "docker", SHARED / "rig" / "toolkit"
RELEASES = ("20.10.24", "26.1.5")
DRIVER, TOOLKIT_RELEASE = "550.163.01", "1.20.0"
"""The libraries that the captured containers and specs name; the toolkit whose words for a wrong index the daemons repeat."""
BUSES = ("1a", "1b", "4a", "4b", "8a", "8b", "ca", "cb")
UUIDS = tuple(f"GPU-01000100-0000-0000-0000-{number:012d}" for number in range(8))
BOOTED = 1_795_960_000
"""2026-11-29, some hours before the captures."""
NOW = datetime.datetime(2026, 11, 29, 18, 0, tzinfo=datetime.timezone.utc)
TASKS = "/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby"
SPEC, JOURNAL = "/etc/cdi/nvidia.yaml", "journal/docker.service.log"
DAEMON = 8677
"""The PID that the hooks of Docker 26.1.5's containers name."""
ALARMS = (Status.WARN, Status.FAIL)
_PROBED = re.compile(r"^(/dev/\S+) O_RDWR stat=(\w+) .* open=(\w+)$", re.MULTILINE)


def needs_rig() -> None:
    """Skip where the captures are not."""
    if not DOCKER.is_dir():
        pytest.skip(f"{DOCKER} is not here")


class Reader:
    """Reads captures and remembers which."""

    def __init__(self) -> None:
        self.read: set[Path] = set()

    def text(self, path: Path) -> str:
        """The content of a file."""
        self.read.add(path)
        return path.read_text("utf-8")


class RigNode(DockerNode):
    """The node of the rig without a container: Debian's Docker with the runtime `nvidia`, the toolkit and its CDI spec."""

    complete: list[str]

    def __init__(self, reader: Reader, release: str = "26.1.5") -> None:
        super().__init__("", running=False)
        self.reader = reader
        self.complete.extend(("/sys", "/dev"))
        self.packages = {"docker.io": f"{release}+dfsg1-1", "nvidia-container-toolkit": f"{TOOLKIT_RELEASE}-1"}
        self.text("/proc/stat", f"cpu 1\nbtime {BOOTED}\n")
        self.text("/proc/1/mountinfo", V1_MOUNTS)
        self.daemon(DAEMON, "/usr/bin/dockerd", comm="docker")
        self.text(f"/proc/{DAEMON}/stat", f"{DAEMON} (dockerd) S 1 {DAEMON} " + "0 " * 16 + "10000 0 0\n")
        self._put_driver()
        self._put_toolkit()
        self.put_info(release)

    def _put_driver(self) -> None:
        version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Mon Jan 1 00:00:00 UTC 2026\n"
        self.text("/proc/driver/nvidia/version", version)
        self.text("/proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileMode: 438\n")
        self.text("/proc/devices", "Character devices:\n195 nvidia\n508 nvidia-uvm\n\nBlock devices:\n")
        for number, bus in enumerate(BUSES):
            address = f"0000:{bus}:00.0"
            place = f"/sys/devices/pci0000:{bus}/{address}"
            self.function(address, place, "nvidia")
            for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
                self.text(f"{place}/{name}", f"{value}\n")
            self.text(f"{place}/numa_node", "0\n")
            self.text(f"{place}/local_cpulist", "0-1\n")
            told = f"Model: NVIDIA H100 80GB HBM3\nGPU UUID: {UUIDS[number]}\nVideo BIOS: 96.00.89.00.01\nDevice Minor: {number}\n"
            self.text(f"/proc/driver/nvidia/gpus/{address}/information", told)
            self.char(f"/dev/nvidia{number}", 195, number)
        for name, major, minor in (("nvidiactl", 195, 255), ("nvidia-modeset", 195, 254), ("kmsg", 1, 11)):
            self.char(f"/dev/{name}", major, minor)
        self.char("/dev/nvidia-uvm", 508, 0)
        self.char("/dev/nvidia-uvm-tools", 508, 1)
        devices = [
            {"index": number, "pci_bus_id": f"00000000:{bus}:00.0", "uuid": UUIDS[number], "minor_number": number}
            for number, bus in enumerate(BUSES)
        ]
        self.answers["nvml"] = Answer(data={"init": 0, "driver_version": DRIVER, "count": 8, "devices": devices})

    def _put_toolkit(self, release: str = TOOLKIT_RELEASE) -> None:
        for name in (RUNTIME, HOOK, "/usr/bin/nvidia-ctk", "/usr/bin/nvidia-cdi-hook", "/usr/bin/nvidia-container-cli"):
            self.program(name)
        self.program("/sbin/ldconfig")
        self.program("/usr/bin/runc")
        self.config(self.reader.text(TOOLKIT / release / "docker.none.cdi_etc_docker_daemon.json"))
        self.text("/etc/nvidia-container-runtime/config.toml", self.reader.text(TOOLKIT / release / "config.toml"))
        self.spec(self.reader.text(TOOLKIT / release / "cdi.yaml"))

    def spec(self, text: str, *, files: bool = True) -> None:
        """The CDI spec, and where wanted every file that it mounts and every program that it runs."""
        self.at(SPEC, text, -1000)
        said = yaml.safe_load(text)
        edits = [said.get("containerEdits", {}), *(device["containerEdits"] for device in said["devices"])]
        for edit in edits if files else ():
            for mount in edit.get("mounts", ()):
                self.program(mount["hostPath"])
                folder, _, name = mount["hostPath"].rpartition("/")
                if name.endswith(f".so.{DRIVER}"):
                    self.link(f"{folder}/{name.removesuffix(DRIVER)}1", name)
            for hook in edit.get("hooks", ()):
                self.program(hook["path"])

    def char(self, path: str, major: int, minor: int) -> None:
        """A character device."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.CHAR, 0o666, 0, 0, major=major, minor=minor)))

    def without(self, path: str) -> None:
        """Nothing at a path."""
        self.tree.records.pop(path, None)
        parent, _, name = path.rpartition("/")
        self.tree.children.get(parent, set()).discard(name)

    def put_info(self, release: str) -> None:
        """What the daemon told of itself."""
        told = json.loads(self.reader.text(DOCKER / release / "info.json"))
        self.commands[INFO] = CommandOutput(INFO, 0, json.dumps(told))

    def recorded(self) -> RecordedNode:
        """The node with its answers."""
        told = "".join(f"{name}\t{version}\tinstalled\n" for name, version in self.packages.items())
        argv = (*QUERY_DPKG, *PACKAGES)
        self.text(DPKG, "")
        node = RecordedNode(self.tree, complete=self.complete, uid=0)
        node.commands |= {argv: CommandOutput(argv, 1, told)} | self.commands
        node.logs |= {name: Log(name, text, source="journal") for name, text in self.logs.items()}
        node.answers |= self.answers
        return node

    def diagnose(self) -> Report:
        """The whole report."""
        return run(self.recorded(), Config(), built_in(), Selection(), NOW)


class Situation:
    """One folder: what was asked of one daemon, and what came of it."""

    def __init__(self, release: str, name: str) -> None:
        self.release, self.name = release, name
        self.folder = DOCKER / release / name
        self.reader = Reader()

    @property
    def id(self) -> str:
        """As a test is called by it."""
        return f"{self.release}-{self.name}"

    def has(self, name: str) -> bool:
        """Whether there is such a file: of refused containers most are not."""
        return (self.folder / name).is_file()

    def text(self, name: str) -> str:
        """A file of the folder."""
        return self.reader.text(self.folder / name)

    def json(self, name: str) -> Any:
        """The same, decoded."""
        return json.loads(self.text(name))

    @property
    def code(self) -> int:
        """How `docker run` ended."""
        return int(self.text("run.txt").rpartition("rc=")[2])

    @property
    def container(self) -> str:
        """The id that `docker run` printed; "" where no container was made."""
        found = re.match(r"[0-9a-f]{64}\n", self.text("run.txt"))
        return found[0].strip() if found else ""

    def opened(self) -> dict[str, str]:
        """What became of opening each NVIDIA node inside, for reading and writing."""
        return {path: what for path, there, what in _PROBED.findall(self.text("logs.txt")) if there == "OK"}

    def node(self) -> RigNode:
        """The whole node while the container runs, or after it was refused."""
        node = RigNode(self.reader, self.release)
        if self.container:
            folder = f"/var/lib/docker/containers/{self.container}"
            for name in ("config.v2.json", "hostconfig.json"):
                node.text(f"{folder}/{name}", self.text(name))
        if self.has("proc.status"):
            self._put_container(node)
        node.logs[JOURNAL] = self._journal()
        return node

    def _journal(self) -> str:
        """What the daemon logged from the making of this container to that of the next; nothing where none was made."""
        log = self.reader.text(DOCKER / self.release / "dockerd.log")
        if not self.container:
            return ""
        own, following = self.json("config.v2.json")["Created"], ""
        for other in situations(self.release):
            made = other.json("config.v2.json")["Created"] if other.container else ""
            if made > own and (not following or made < following):
                following = made
        return journal(log, own, following)

    def report(self) -> Report:
        """What the doctor says."""
        return self.node().diagnose()

    def trace(self) -> Trace:
        """What the trace says of the container by its name."""
        return trace(self.node().recorded(), Config(), built_in(), f"docker:{self.name}", NOW)

    def _put_container(self, node: RigNode) -> None:
        pid = int(self.json("config.v2.json")["State"]["Pid"])
        started = datetime.datetime.fromisoformat(self.json("config.v2.json")["State"]["StartedAt"][:19] + "+00:00")
        ticks = int((started.timestamp() - BOOTED) * 100)
        node.process(pid, "/", comm="probe", apart=True, started=ticks)
        for name in ("cgroup", "mountinfo", "environ", "status"):
            node.text(f"/proc/{pid}/{name}", self.text(f"proc.{name}"))
        node.text(f"/proc/{pid}/uid_map", "         0          0 4294967295\n")
        node.text(f"/proc/{pid}/maps", "")
        inside = f"/proc/{pid}/root/dev"
        node.tree.put(inside, Record(entry=Entry(inside, EntryType.DIR)))
        node.complete.append(inside)
        put_listing(node, re.sub(" +", " ", self.text("ls_dev.txt")).replace(" 0 0 ", " root root "), f"{inside}/")
        group = f"/docker/{self.container}"
        node.text(f"/sys/fs/cgroup/devices{group}/devices.list", self.text("devices.list"))
        unified: dict[str, dict[str, list[int]]] = {f"/sys/fs/cgroup/unified{group}": {"effective": [], "attached": []}}
        node.answers["cgroup_devices"] = Answer(data={"programs": {}, "cgroups": unified}, via="bpf(2)")
        node.text(f"{TASKS}/{self.container}/config.json", self.text("oci-config.json"))


def journal(log: str, first: str = "", last: str = "") -> str:
    """A daemon's log as its unit's journal has it: all of it, or from one moment on and before another."""
    lines = []
    for line in log.splitlines():
        stamp = re.match(r'time="(\d{4}-\d\d-\d\dT[\d:.]+Z)"', line)
        if stamp is not None and first <= stamp[1] and (not last or stamp[1] < last):
            lines.append(f"{stamp[1][:19]}+0000 vm dockerd[{DAEMON}]: {line}\n")
    return "".join(lines)


def situations(*releases: str) -> Iterator[Situation]:
    """All folders."""
    for release in releases or RELEASES:
        place = DOCKER / release
        for folder in sorted(place.iterdir()) if place.is_dir() else ():
            if folder.is_dir():
                yield Situation(release, folder.name)


def alarms(report: Report, *links: str) -> list[Finding]:
    """The warns and fails of the links."""
    return [
        finding
        for result in report.results
        if not links or result.check.partition(".")[0] in links
        for finding in result.findings
        if finding.status in ALARMS
    ]
