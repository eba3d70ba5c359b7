"""Makes a root directory out of a recorded node, with real links and device nodes, to run the live source on."""

import contextlib
import fcntl
import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpudoctor.facts.raw import Answer, Entry, EntryType
from gpudoctor.probes.tasks import Task, TaskTable
from gpudoctor.sources.snapshot import Snapshot
from gpudoctor.testing import node
from tests.standin.build import NoCompiler, Node, build_nvml, healthy, write_node

_KIND = {EntryType.CHAR: stat.S_IFCHR, EntryType.BLOCK: stat.S_IFBLK, EntryType.FIFO: stat.S_IFIFO}


WORKER = "gpudoctor-nvml"


@pytest.fixture(autouse=True)
def alone_with_its_workers(tmp_path: Path) -> Iterator[None]:
    """One such test at a time on a machine, for runs wait for each other's workers; its own workers end with it, no others.

    A module that imports it uses it.
    """
    with open(Path(tempfile.gettempdir()) / "gpudoctor-live-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        deadline = time.monotonic() + 5
        while (mine := list(workers_below(tmp_path))) and time.monotonic() < deadline:
            for worker in mine:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
            time.sleep(0.05)


def workers_below(directory: Path) -> Iterator[Task]:
    """The workers that were started for a root below a directory: its library is among their arguments."""
    for worker in TaskTable().named(WORKER, owners=(os.getuid(),)):
        with contextlib.suppress(OSError):
            if str(directory).encode() in Path(f"/proc/{worker.pid}/cmdline").read_bytes():
                yield worker


def make_root(name: str, place: Path) -> Path:
    """The recorded node as a directory. Needs root for the device nodes; skips when that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("making device nodes needs root")
    recorded = node(name)
    for top in ("proc", "sys", "dev"):
        (place / top).mkdir(parents=True, exist_ok=True)
    for path in _paths(recorded):
        entry = recorded.tree.lookup(path)
        if entry is not None and entry.entry is not None:
            _make(place / path.lstrip("/"), entry.entry, entry.text)
    if (place / "dev/nvidia-nvswitch0").exists():
        # Such a node works only while its fabric manager runs; the recordings of old do not show its control group.
        (place / "sys/fs/cgroup/system.slice/nvidia-fabricmanager.service").mkdir(parents=True, exist_ok=True)
    return place


def _paths(recorded: Snapshot) -> Sequence[str]:
    base = fixtures_root(recorded)
    on_disk = ["/" + str(path.relative_to(base)) for path in base.rglob("*")]
    return sorted({*recorded.tree.records, *on_disk})


def fixtures_root(recorded: Snapshot) -> Path:
    """Where the recorded files lie."""
    return Path(recorded.members.place) / "root"


def _make(place: Path, entry: Entry, text: str | None) -> None:
    if os.path.lexists(place):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    match entry.type:
        case EntryType.DIR:
            place.mkdir()
        case EntryType.LINK:
            place.symlink_to(entry.to or "")
        case EntryType.FILE:
            place.write_bytes((text or "").encode())
            place.chmod(entry.mode if entry.mode is not None else 0o644)
        case EntryType.CHAR | EntryType.BLOCK | EntryType.FIFO:
            device = os.makedev(entry.major or 0, entry.minor or 0)
            os.mknod(place, _KIND[entry.type], device)
            place.chmod(entry.mode if entry.mode is not None else 0o600)
            if entry.uid is not None and entry.gid is not None:
                os.chown(place, entry.uid, entry.gid)
        case EntryType.SOCKET:
            os.mknod(place, stat.S_IFSOCK | 0o600)


def with_nvml(root: Path, monkeypatch: pytest.MonkeyPatch, standin: Node, leave_out: Sequence[str] = ()) -> None:
    """Put the stand-in libnvidia-ml into the root and have it answer as `standin` says."""
    library = root / "usr/lib/x86_64-linux-gnu"
    library.mkdir(parents=True, exist_ok=True)
    try:
        build_nvml(library, leave_out)
    except NoCompiler as error:
        pytest.skip(str(error))
    # The worker asks from within the root.
    write_node(standin, root / "nvml.json")
    monkeypatch.setenv("GPUDOCTOR_STANDIN_NVML", "/nvml.json")


def healthy_nvml(name: str) -> Node:
    """A stand-in that answers what NVML answered on the recorded node."""
    recorded = node(name)
    answer = recorded.answer("nvml", lambda: pytest.fail("a recording asks nobody"))
    assert isinstance(answer, Answer)
    devices = answer.data["devices"]
    standin = healthy([device["pci_bus_id"] for device in devices])
    for described, device in zip(devices, standin["devices"], strict=True):
        device["uuid"], device["minor"], device["name"] = described["uuid"], described["minor"], described["name"]
        if recorded.tree.lookup("/dev/nvidia-nvswitch0") is None:
            device.pop("nvlinks", None)
    return standin
