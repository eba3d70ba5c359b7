"""A recorded node with containerds and a kubelet, written as files of /proc and configuration: for tests of containerd's checks."""

import json

from gpudoctor.chain import Link
from gpudoctor.config import Config
from gpudoctor.facts.raw import CommandOutput, Entry, EntryType
from gpudoctor.facts.software import DPKG
from gpudoctor.registry import built_in
from gpudoctor.report import Report, Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode
from tests.captures import NOW
from tests.workload_node import WorkloadNode

MAIN = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
SOCKET = "/run/containerd/containerd.sock"
RUNTIME = "/usr/bin/nvidia-container-runtime"
BOOTED = 1_795_000_000
STARTED = BOOTED + 100
"""When daemons started, by the ticks that they are given."""
PLUGIN_OF = {1: "cri", 2: '"io.containerd.grpc.v1.cri"', 3: '"io.containerd.cri.v1.runtime"'}
CONFIG_CHECK, RUNTIME_CHECK, LOADED_CHECK = (f"toolkit.containerd-{name}" for name in ("config", "runtime", "loaded"))


def runtime(name: str = "nvidia", binary: str = RUNTIME, version: int = 2, kind: str = "io.containerd.runc.v2") -> str:
    """A runtime's tables."""
    table = f"plugins.{PLUGIN_OF[version]}.containerd.runtimes.{name}"
    typed = f'runtime_type = "{kind}"\n' if kind else ""
    named = f'BinaryName = "{binary}"\n' if binary else ""
    return f"[{table}]\n{typed}[{table}.options]\n{named}SystemdCgroup = true\n"


def default(name: str, version: int = 2) -> str:
    """The default runtime."""
    return f'[plugins.{PLUGIN_OF[version]}.containerd]\ndefault_runtime_name = "{name}"\n'


RUNC = runtime("runc", "")
HEALTHY = f"version = 2\n{RUNC}{runtime()}"


class ContainerdNode(WorkloadNode):
    """containerd 1.7.27 of Docker's repository as a service, a kubelet that talks to it, the toolkit; nothing else."""

    def __init__(self, version: str = "1.7.27-1", *, kubelet: bool = True, toolkit: bool = True) -> None:
        super().__init__()
        self.complete += ["/etc", "/usr", "/run", "/var", "/sbin", "/bin", "/opt"]
        self.packages = {"containerd.io": version} if version else {}
        self.commands: dict[tuple[str, ...], CommandOutput] = {}
        self.text("/proc/stat", f"cpu 1\nbtime {BOOTED}\n")
        self.daemon(900, "containerd", "/usr/bin/containerd")
        if kubelet:
            endpoint = f"--container-runtime-endpoint=unix://{SOCKET}"
            self.daemon(1000, "kubelet", "/usr/bin/kubelet", endpoint)
        if toolkit:
            self.program(RUNTIME)
        self.text(DPKG, "")

    def daemon(self, pid: int, comm: str, *words: str, group: str = "") -> None:
        """A running daemon of the node."""
        self.process(pid, group or f"/system.slice/{comm}.service", comm=comm, started=10_000)
        self.text(f"/proc/{pid}/cmdline", "".join(f"{word}\0" for word in words))
        self.link(f"/proc/{pid}/exe", words[0])

    def program(self, path: str, mode: int = 0o755) -> None:
        """A file with a mode."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=mode)))

    def config(self, text: str, path: str = MAIN, *, later: float = -1000) -> None:
        """A configuration file, changed so long after the daemons started."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mtime=STARTED + later), text=text))

    def crictl(self, runtimes: dict[str, str], default_name: str = "runc", socket: str = SOCKET) -> None:
        """What crictl info would print."""
        tables = {
            name: {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": binary}}
            for name, binary in runtimes.items()
        }
        config = {"containerd": {"defaultRuntimeName": default_name, "runtimes": tables}, "containerdEndpoint": socket}
        argv = ("crictl", "info")
        self.commands[argv] = CommandOutput(argv, 0, json.dumps({"status": {}, "config": config}))

    def recorded(self) -> RecordedNode:
        """The node."""
        from gpudoctor.facts.software import PACKAGES, QUERY_DPKG

        told = "".join(f"{name}\t{version}\tinstalled\n" for name, version in self.packages.items())
        argv = (*QUERY_DPKG, *PACKAGES)
        node = RecordedNode(self.tree, complete=self.complete, uid=0)
        node.commands |= {argv: CommandOutput(argv, 1, told)} | self.commands
        return node

    def diagnose(self) -> Report:
        """What the doctor says of the link."""
        return run(self.recorded(), Config(), built_in(), Selection(links=(Link.TOOLKIT.value,)), NOW)

    def judge(self, check_id: str) -> Result:
        """How one check ends."""
        return self.diagnose().result(check_id)
