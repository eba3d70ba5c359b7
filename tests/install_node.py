"""Nodes for `gpudoctor install`: what starts programs there, where metrics are collected, and who may change the doctor."""

from gpudoctor.facts.raw import Answer, Entry, EntryType
from gpudoctor.install_run import installation
from gpudoctor.installing.files import Installation
from gpudoctor.sources.recorded import Record, RecordedNode
from tests.captures import Builder

DOCTOR = "/opt/gpudoctor/bin/gpudoctor"
DEBIAN = "/var/lib/prometheus/node-exporter"


class InstallBuilder(Builder):
    """A node with systemd and cron; whatever a test adds comes after that."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[tuple[int, str]] = []
        for path in ("/run/systemd/system", "/etc/cron.d", "/opt/gpudoctor/bin", "/opt/gpudoctor", "/opt"):
            self.folder(path)
        self.put(DOCTOR, EntryType.FILE)

    def put(self, path: str, kind: EntryType, uid: int = 0, mode: int = 0o755) -> None:
        """Something at a path."""
        self.tree.put(path, Record(entry=Entry(path, kind, mode, uid, 0)))

    def folder(self, path: str, uid: int = 0, mode: int = 0o755) -> None:
        """A directory."""
        self.put(path, EntryType.DIR, uid, mode)

    def runs(self, pid: int, comm: str, *words: str) -> None:
        """A process."""
        self.processes.append((pid, comm))
        self.text(f"/proc/{pid}/cmdline", "\0".join(words) + "\0")

    @property
    def node(self) -> RecordedNode:
        """The node."""
        recorded = RecordedNode(self.tree, complete=("/",), uid=0)
        rows = [(pid, 1, 100, comm, "S", 0, 0) for pid, comm in self.processes]
        data = {"processes": rows, "cgroups": ["0::/"], "namespaces": [(1, 2, 3)]}
        recorded.answers["processes"] = Answer(data=data if rows else {}, via="/proc")
        return recorded

    def made(self, kind: str, file: str | None = None) -> Installation:
        """The files of a kind for it."""
        return installation(self.node, kind, DOCTOR, file)


def usual() -> InstallBuilder:
    """With a running node_exporter of Debian, and Slurm that runs NHC."""
    node = InstallBuilder()
    node.folder(DEBIAN)
    node.runs(700, "prometheus-node", "/usr/bin/prometheus-node-exporter", f"--collector.textfile.directory={DEBIAN}")
    node.text(
        "/etc/slurm/slurm.conf", "ClusterName=one\nhealthcheckprogram = /usr/sbin/nhc # ours\nProlog=/etc/slurm/p.sh\n"
    )
    return node


def bare() -> InstallBuilder:
    """With systemd, and none of the rest."""
    return InstallBuilder()
