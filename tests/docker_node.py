"""A recorded node with dockerds, written as files of /proc and configuration: for tests of Docker's checks."""

import datetime
import json
from typing import Any

from gpudoctor.chain import Link
from gpudoctor.config import Config
from gpudoctor.facts.raw import CommandOutput, Entry, EntryType, Log
from gpudoctor.facts.software import DPKG, PACKAGES, QUERY_DPKG
from gpudoctor.registry import built_in
from gpudoctor.report import Report, Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode
from tests.captures import NOW
from tests.workload_node import WorkloadNode

MAIN = "/etc/docker/daemon.json"
RUNTIME, HOOK = "/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime-hook"
LIST, DPKG_LOG = "/var/lib/dpkg/info/nvidia-container-toolkit.list", "/var/log/dpkg.log"
BOOTED = 1_795_000_000
STARTED = BOOTED + 100
"""When daemons started, by the ticks that they are given."""
NVIDIA: dict[str, Any] = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
SPEC = 'cdiVersion: "0.6.0"\nkind: nvidia.com/gpu\ndevices:\n- name: "0"\n'
RUNTIME_CHECK, LOADED_CHECK, CDI_CHECK = (f"toolkit.docker-{name}" for name in ("runtime", "loaded", "cdi"))
INFO = ("docker", "info", "--format", "{{json .}}")


def stamp(later: float, zone: float = 0) -> str:
    """A time of dpkg's log so long after the daemons started, in a zone so many hours ahead of UTC."""
    moment = datetime.datetime.fromtimestamp(STARTED + later + 3600 * zone, datetime.timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


class DockerNode(WorkloadNode):
    """docker-ce as a service with its socket, the toolkit installed long before; nothing else."""

    def __init__(
        self, version: str = "5:27.5.1-1~ubuntu.22.04~jammy", *, running: bool = True, toolkit: bool = True
    ) -> None:
        super().__init__()
        self.complete += ["/etc", "/usr", "/run", "/var", "/sbin", "/bin", "/opt", "/lib", "/home", "/srv", "/snap"]
        self.packages = {"docker-ce": version} if version else {}
        self.commands: dict[tuple[str, ...], CommandOutput] = {}
        self.logs: dict[str, str] = {}
        self.text("/proc/stat", f"cpu 1\nbtime {BOOTED}\n")
        self.program("/usr/bin/dockerd")
        self.socket("/run/docker.sock")
        if running:
            self.daemon(800, "/usr/bin/dockerd", "-H", "fd://")
        if toolkit:
            self.program(RUNTIME)
            self.program(HOOK)
            self.at(LIST, "", -1000)
        self.text(DPKG, "")

    def daemon(self, pid: int, *words: str, uid: int = 0, comm: str = "dockerd") -> None:
        """A running daemon of the node."""
        self.process(pid, f"/system.slice/{comm}.service", comm=comm, started=10_000)
        self.text(f"/proc/{pid}/cmdline", "".join(f"{word}\0" for word in words))
        self.link(f"/proc/{pid}/exe", words[0])
        self.tree.put(f"/proc/{pid}", Record(entry=Entry(f"/proc/{pid}", EntryType.DIR, uid=uid)))

    def program(self, path: str, mode: int = 0o755) -> None:
        """A file with a mode."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=mode, mtime=STARTED - 9_000_000.0)))

    def socket(self, path: str) -> None:
        """A socket."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.SOCKET)))

    def at(self, path: str, text: str, later: float, mode: int = 0o644) -> None:
        """A file, changed so long after the daemons started."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=mode, mtime=STARTED + later), text=text))

    def config(self, settings: object, path: str = MAIN, *, later: float = -1000) -> None:
        """A daemon.json: settings, or its text."""
        self.at(path, settings if isinstance(settings, str) else json.dumps(settings), later)

    def info(self, *names: str, default: str = "runc", root: str = "/var/lib/docker", socket: str = "") -> None:
        """What docker info would print."""
        told = {
            "Runtimes": {name: {"path": name} for name in ("runc", "io.containerd.runc.v2", *names)},
            "DefaultRuntime": default,
            "DockerRootDir": root,
            "ServerVersion": "27.5.1",
        }
        argv = (INFO[0], "--host", f"unix://{socket}", *INFO[1:]) if socket else INFO
        self.commands[argv] = CommandOutput(argv, 0, json.dumps(told))

    def recorded(self) -> RecordedNode:
        """The node."""
        told = "".join(f"{name}\t{version}\tinstalled\n" for name, version in self.packages.items())
        argv = (*QUERY_DPKG, *PACKAGES)
        node = RecordedNode(self.tree, complete=self.complete, uid=0)
        node.commands |= {argv: CommandOutput(argv, 1, told)} | self.commands
        node.logs |= {name: Log(name, text) for name, text in self.logs.items()}
        return node

    def diagnose(self) -> Report:
        """What the doctor says of the link."""
        return run(self.recorded(), Config(), built_in(), Selection(links=(Link.TOOLKIT.value,)), NOW)

    def judge(self, check_id: str) -> Result:
        """How one check ends."""
        return self.diagnose().result(check_id)

    def said(self, check_id: str) -> tuple[str, str]:
        """Status and words of a check's first finding; why for an unknown."""
        result = self.judge(check_id)
        finding = result.findings[0]
        return finding.status.value, f"{finding.summary} {result.why or ''}"
