"""A stage for real device rules: a private mount namespace, cgroups and device nodes of its own, and processes that try them.

Programs are loaded, and attached to cgroups that the stage has made, to no others; what it made is taken away again. Everything in the
namespace is reached through /proc/PID/root. The numbers of the nodes are `mem` (1) and ones for local use (120 to 122 in
Documentation/admin-guide/devices.txt), which no driver has: no node of a GPU is opened.
"""

import errno
import os
import platform
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind
from gpudoctor.facts.raw import Absent, Answer, Gate, Question, TextFile
from gpudoctor.probes.bpf import SYSCALL, Bpf, look_at_device_programs
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.verdicts import Unread
from tests.captures import Builder

PROBE = Path(__file__).with_name("device_probe.c")
PROG_LOAD, PROG_ATTACH, PROG_DETACH, PROG_TEST_RUN = 5, 8, 9, 10
SOCKET_FILTER, DEVICE_PROGRAM = 1, 15
CGROUP_DEVICE = 6
ALLOW_MULTI = 2
ALLOWED = ("0", "ENXIO", "ENODEV", "ENOMEDIUM")
"""What comes back once the rules have let an access through: it worked, or there is no driver behind the numbers."""

STAGE = """
set -e
mount -t tmpfs -o dev,mode=755 stage "$1"
mkdir "$1/v1" "$1/v2" "$1/nodes" "$1/closed"
mount -t tmpfs -o nodev none "$1/closed"
mount -t cgroup2 none "$1/v2" || rmdir "$1/v2"
mount -t cgroup -o devices none "$1/v1" || rmdir "$1/v1"
echo ready
exec cat
"""


def needs_root() -> None:
    """Skip where no rules can be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes cgroups and device nodes")
    if platform.machine() not in SYSCALL:
        pytest.skip(f"the number of bpf(2) on {platform.machine()} is not known")


def compiled(source: Path, result: Path, *options: str) -> Path:
    """A C program or library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: neither cc nor gcc is on PATH")
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-o", str(result), str(source), *options], check=True)
    return result


def compiled_probe(directory: Path) -> Path:
    """The program that tries nodes, static so that it runs in an empty container."""
    return compiled(PROBE, directory / "probe", "-static")


class Trier:
    """A running probe: asks for accesses and is told the names of errors, "0" for none."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self._child = child

    def ask(self, line: str) -> str:
        """One request. Raises AssertionError with what it printed when the process has ended."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()
            said = self._child.stdout.readline()
        except BrokenPipeError:
            said = ""
        assert said, f"the process that tries nodes ended with {self._child.wait(10)}"
        return said.strip()

    def open(self, path: str, access: Access) -> str:
        """open(2) for reading, writing or both."""
        return _error(self.ask(f"open {access.letters} {path}"))

    def make(self, asked: DeviceAccess, path: str) -> str:
        """mknod(2)."""
        return _error(self.ask(f"mknod {asked.kind.letter} {asked.major} {asked.minor} {path}"))

    def end(self) -> None:
        """Let it end."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(5)
        assert self._child.stdout is not None
        self._child.stdout.close()


def _error(number: str) -> str:
    return errno.errorcode.get(int(number), number)


def started(argv: list[str], errors: TextIO | None = None) -> "subprocess.Popen[str]":
    """A child with pipes for what it is asked and says."""
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)


class Stage:
    """The namespace; `root` leads into it, `v1` and `v2` say which hierarchies could be mounted in it."""

    def __init__(self, keeper: "subprocess.Popen[str]", directory: Path, probe: Path) -> None:
        self.pid = keeper.pid
        self.root = f"/proc/{keeper.pid}/root"
        self.directory = directory
        self._probe = probe
        self.v1 = os.path.isdir(self.path("v1"))
        self.v2 = os.path.isdir(self.path("v2"))

    def path(self, name: str) -> str:
        """Something on the stage as it is reached from outside of the namespace."""
        return f"{self.root}{self.inside(name)}"

    def inside(self, name: str) -> str:
        """The same as it is called inside. A cgroup, `v2/NAME`, carries the number of this process: others may be testing, too."""
        hierarchy, slash, group = name.partition("/")
        if hierarchy in ("v1", "v2") and slash:
            return f"{self.directory}/{hierarchy}/gpudoctor-test-{os.getpid()}-{group}"
        return f"{self.directory}/{name}"

    @staticmethod
    def now() -> float:
        """Seconds since the epoch."""
        return time.time()

    @contextmanager
    def cgroup(self, name: str) -> Iterator[str]:
        """A cgroup below v1 or v2 for as long as it is needed."""
        path = self.path(name)
        os.mkdir(path)
        try:
            yield path
        finally:
            removed(path)

    @contextmanager
    def trier(self, *cgroups: str) -> Iterator[Trier]:
        """A process in these cgroups."""
        child = started([str(self._probe)])
        trier = Trier(child)
        try:
            for cgroup in cgroups:
                Path(cgroup, "cgroup.procs").write_text(f"{child.pid}\n", "ascii")
            yield trier
        finally:
            trier.end()

    def node(self, kind: DeviceKind, major: int, minor: int, *, name: str = "", mode: int = 0o666) -> str:
        """A device node, made once."""
        path = self.path(name or f"nodes/{kind.letter}{major}:{minor}")
        if not os.path.lexists(path):
            os.mknod(path, mode | (0o020000 if kind is DeviceKind.CHAR else 0o060000), os.makedev(major, minor))
            os.chmod(path, mode)
        return path

    def outcomes(self, trier: Trier, kind: DeviceKind, major: int, minor: int) -> dict[Access, str]:
        """What really happens to each way of accessing a device."""
        path = self.node(kind, major, minor)
        tried = {access: trier.open(path, access) for access in (Access.READ, Access.WRITE, Access.READ | Access.WRITE)}
        asked = DeviceAccess(kind, major, minor, Access.MKNOD)
        return {**tried, Access.MKNOD: trier.make(asked, self.path("nodes/made"))}


@contextmanager
def stage(directory: Path, probe: Path) -> Iterator[Stage]:
    """The stage, for as long as it is needed."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux)")
    keeper = started(["unshare", "--mount", "--propagation", "private", "sh", "-c", STAGE, "stage", str(directory)])
    try:
        assert keeper.stdout is not None
        if keeper.stdout.readline().strip() != "ready":
            pytest.skip("needs a mount namespace of its own, with device nodes in a tmpfs")
        yield Stage(keeper, directory, probe)
    finally:
        keeper.communicate(timeout=10)


def removed(path: str) -> None:
    """Remove a cgroup; those who have just ended still leave it."""
    for _ in range(200):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return
    os.rmdir(path)


class StageNode(RecordedNode):
    """The rules of what is on the stage, read when they are asked for."""

    def __init__(self, root: str = "/") -> None:
        super().__init__(Builder().tree)
        self._root = root

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """The real probe."""
        question = gate()
        assert isinstance(question, Question)
        assert name == question.name == "cgroup_devices"
        return look_at_device_programs(question, self._root)

    def read(self, path: str) -> TextFile | Absent | Unread:
        """The real file."""
        return TextFile(path, Path(f"{'' if self._root == '/' else self._root}{path}").read_text("ascii"))


class Loader:
    """Loads programs and attaches them, by bpf(2)."""

    def __init__(self) -> None:
        self.bpf = Bpf()

    def loaded(self, code: bytes, *, kind: int = DEVICE_PROGRAM, name: str = "") -> int:
        """A descriptor of the program. Raises OSError with the verifier's words."""
        instructions, licence, log = (self.bpf.buffer(text) for text in (code, b"GPL\0", bytes(1 << 16)))
        where = [self.bpf.address(buffer) for buffer in (instructions, licence, log)]
        attributes = struct.pack(
            "<IIQQIIQII16s", kind, len(code) // 8, where[0], where[1], 1, 1 << 16, where[2], 0, 0, name.encode()
        )
        try:
            return self.bpf.call(PROG_LOAD, self.bpf.buffer(attributes))
        except OSError as error:
            words = bytes(log.raw).partition(b"\0")[0].decode()
            raise OSError(error.errno, f"{error.strerror}: {words[-2000:]}") from None

    @contextmanager
    def attached(self, cgroup: str, code: bytes, *, flags: int = ALLOW_MULTI, name: str = "") -> Iterator[int]:
        """A program attached to a cgroup that the stage made, for a while; its id."""
        assert "gpudoctor-test" in cgroup, cgroup
        program = self.loaded(code, name=name)
        directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
        attach = struct.pack("<IIII", directory, program, CGROUP_DEVICE, flags)
        try:
            before = self.bpf.attached(directory, 0)
            self.bpf.call(PROG_ATTACH, self.bpf.buffer(attach))
            try:
                (number,) = set(self.bpf.attached(directory, 0)) - set(before)
                yield number
            finally:
                detach = struct.pack("<IIII", directory, program, CGROUP_DEVICE, 0)
                self.bpf.call(PROG_DETACH, self.bpf.buffer(detach))
        finally:
            os.close(directory)
            os.close(program)

    def returned(self, program: int, packet: bytes) -> int:
        """What a socket filter returns for a packet."""
        content = self.bpf.buffer(packet)
        attributes = self.bpf.buffer(
            struct.pack("<IIIIQQII", program, 0, len(packet), 0, self.bpf.address(content), 0, 1, 0)
        )
        self.bpf.call(PROG_TEST_RUN, attributes)
        return int(struct.unpack_from("<I", attributes.raw, 4)[0])
