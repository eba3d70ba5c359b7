"""A Slurm of Debian's slurmctld, slurmd and munged: everything on the loopback, in one directory, ended by its PIDs."""

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "scontrol": "slurm-client", "munged": "munge"}
SECONDS_TO_START = 25.0
GPUS = 8


def programs() -> dict[str, str]:
    """Where Slurm's programs lie; skips, saying what is missing, where one does."""
    if os.geteuid() != 0:
        pytest.skip("starting slurmd and making device nodes needs root")
    found = {name: shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin") for name in PACKAGES}
    missing = sorted(f"{name} (Debian: {PACKAGES[name]})" for name, place in found.items() if place is None)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: tests/install-packages.sh installs them")
    return {name: place for name, place in found.items() if place is not None}


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on, below those that the kernel gives to clients."""
    for first in range(17000 + os.getpid() % 9000, 31000, count):
        with contextlib.ExitStack() as taken:
            try:
                for port in range(first, first + count):
                    probe = taken.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    pytest.skip(f"no {count} free ports in a row on the loopback")


class Cluster:
    """A running cluster of nodes n1, n2, …, all of them on this machine."""

    def __init__(self, place: Path, nodes: int) -> None:
        self.place, self.nodes = place, nodes
        self.conf = place / "slurm.conf"
        self._found = programs()
        self._servers: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need to find this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.conf), "LC_ALL": "C"}

    def command(self, *argv: str, seconds: float = 20) -> subprocess.CompletedProcess[str]:
        """One of Slurm's commands."""
        return subprocess.run(
            argv, capture_output=True, text=True, env=self.environment, timeout=seconds, check=False, cwd=self.place
        )

    def scontrol(self, *words: str) -> str:
        """What scontrol answers; it must not fail."""
        done = self.command("scontrol", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def shown(self, node: str) -> tuple[str, str]:
        """A node's state and the reason given for it, without who gave it and when."""
        text = self.scontrol("show", "node", node)
        state = next(word[6:] for word in text.split() if word.startswith("State="))
        reasons = [line.strip()[7:] for line in text.splitlines() if line.strip().startswith("Reason=")]
        return state, reasons[0].rpartition(" [")[0] if reasons else ""

    def states(self) -> dict[str, str]:
        """The states of all nodes."""
        text = self.command("sinfo", "--noheader", "--Node", "--format=%N %T").stdout
        return dict(line.split() for line in text.splitlines())

    def start(self, settings: Mapping[str, str], gres: str, only: Sequence[str] | None = None) -> None:
        """Start it; `settings` are further lines of slurm.conf, `gres` is gres.conf; `only` these nodes get a slurmd."""
        (self.place / "gres.conf").write_text(gres)
        (self.place / "cgroup.conf").write_text("ConstrainDevices=no\n")
        self._start_munged()
        first = free_ports(self.nodes + 1)
        self.conf.write_text(_conf(self.place, self.nodes, first, settings))
        self._serve("slurmctld", "-D", "-i", "-f", str(self.conf))
        for node in only if only is not None else [f"n{number}" for number in range(1, self.nodes + 1)]:
            self.start_slurmd(node)

    def start_slurmd(self, node: str) -> None:
        """Start the slurmd of one node."""
        self._serve("slurmd", "-D", "-f", str(self.conf), "-N", node)

    def wait(self, asked: str, until: Callable[[], bool], seconds: float = SECONDS_TO_START) -> None:
        """Wait until something holds; `asked` says what, should it not come about."""
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, f"{asked}: not within {seconds:.0f} s\n{self.told()}"
            time.sleep(0.1)

    def told(self) -> str:
        """The ends of the logs, for a test that fails."""
        logs = sorted(self.place.glob("*.log"))
        return "\n".join(f"--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-15:]) for log in logs[:6])

    def end(self) -> None:
        """End everything that was started. A slurmd waits for its hooks, one of which may hang on purpose."""
        for server in reversed(self._servers):
            server.terminate()
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline and any(server.poll() is None for server in self._servers):
            time.sleep(0.05)
        for server in self._servers:
            server.kill()
        for server in self._servers:
            server.wait()

    def _start_munged(self) -> None:
        key = self.place / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        socket_place = self.place / "munge.sock"
        places = {"pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "munged.seed"}
        files = [f"--{kind}={self.place / name}" for kind, name in places.items()]
        self._serve("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_place}", *files)
        self.wait("munged answers", socket_place.exists, 10)

    def _serve(self, name: str, *words: str) -> "subprocess.Popen[bytes]":
        with open(self.place / f"{name}.out", "ab") as said:
            server = subprocess.Popen(
                [self._found[name], *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self.place
            )
        self._servers.append(server)
        return server


def _conf(place: Path, nodes: int, first_port: int, settings: Mapping[str, str]) -> str:
    name = socket.gethostname().partition(".")[0]
    lines = {
        "ClusterName": "gpudoctor",
        "SlurmctldHost": f"{name}(127.0.0.1)",
        "SlurmctldPort": str(first_port),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={place}/munge.sock",
        "CredType": "cred/munge",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "StateSaveLocation": f"{place}/state",
        "SlurmdSpoolDir": f"{place}/spool.%n",
        "SlurmctldPidFile": f"{place}/slurmctld.pid",
        "SlurmdPidFile": f"{place}/slurmd.%n.pid",
        "SlurmctldLogFile": f"{place}/slurmctld.log",
        "SlurmdLogFile": f"{place}/slurmd.%n.log",
        "CommunicationParameters": "NoInAddrAny",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": "1",
        "GresTypes": "gpu",
        "SlurmdTimeout": "300",
        **settings,
    }
    listed = f"n[1-{nodes}] NodeHostname={name} NodeAddr=127.0.0.1 Port=[{first_port + 1}-{first_port + nodes}]"
    return (
        "".join(f"{key}={value}\n" for key, value in lines.items())
        + f"NodeName={listed} CPUs=8 Gres=gpu:h100:{GPUS} State=UNKNOWN\n"
        + "PartitionName=all Nodes=ALL Default=YES State=UP\n"
    )


def make_gpus(place: Path, numbers: Sequence[int] = range(GPUS)) -> Path:
    """Device nodes named as NVIDIA's, which nobody opens; where they lie."""
    folder = place / "dev"
    folder.mkdir()
    for number in numbers:
        os.mknod(folder / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(195, number))
    return folder


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[Cluster]:
    """A cluster to be started, in a directory whose name is short: a socket's path has room for 107 characters (unix(7))."""
    programs()
    place = Path(tempfile.mkdtemp(prefix="gds"))
    one = Cluster(place, nodes)
    try:
        (place / "state").mkdir()
        yield one
    finally:
        one.end()
        shutil.rmtree(place, ignore_errors=True)


CONTRIB = REPOSITORY / "contrib" / "slurm"
