"""Workloads of this machine: real containers with device nodes that nobody opens, live, without root, and recorded."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.raw import Contents, Entry, EntryType, Raw, TextFile
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.facts.workloads import Workloads
from gpudoctor.probes import guarded
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.sleepers import look_for_holders
from gpudoctor.probes.tasks import TaskTable
from gpudoctor.sources.live import Live
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.redaction import redact
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.verdicts import Unread, Why
from tests.live_container import Container, running
from tests.workload_node import NODES, oci

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: containers, device nodes")
SECRET = "correct horse battery staple"
PYTHON = "/usr/bin/python3"


def _concerned(raw: Raw, pid: int) -> GpuWorkload | None:
    found = Desk(raw, Config()).get(GpuWorkloads)
    assert isinstance(found, GpuWorkloads), found
    return next((one for one in found if one.workload.pid == pid), None)


def _workload(raw: Raw, pid: int) -> Workload:
    found = Desk(raw, Config()).get(Workloads)
    assert isinstance(found, Workloads), found
    return found.by_pid[pid]


def _config(*environment: str, nodes: dict[str, tuple[int, int]] | None = None) -> dict[str, Any]:
    return oci(f"SECRET={SECRET}", *environment, nodes=nodes)


@pytest.fixture(params=["runc", "crun"])
def holding(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Container]:
    """A container that was given a GPU's node."""
    with running(request.param, tmp_path, _config("NVIDIA_VISIBLE_DEVICES=0", nodes=NODES)) as container:
        yield container


@root_only
def test_container_with_nodes_is_found_with_its_wish_and_its_nodes(holding: Container) -> None:
    found = _concerned(Live(Deadline(30)), holding.pid)
    assert found is not None
    one = found.workload
    assert (one.kind, one.engine, one.id, one.apart, one.rootless) == (
        GroupKind.CONTAINER,
        holding.runtime,
        holding.name,
        True,
        False,
    )
    assert holding.name in (one.cgroup or "") + (one.devices_cgroup or "")
    assert isinstance(one.config, OciConfig)
    assert [(wish.asker.value, wish.gpus) for wish in found.wishes.wishes] == [
        ("engine", ("/dev/nvidia0", "/dev/nvidiactl")),
        ("environment", ("0",)),
    ]
    assert isinstance(found.devices, Devices)
    assert [
        (node.path, node.entry.major, node.entry.minor, node.bound, node.nodev) for node in found.devices.nodes
    ] == [
        ("/dev/nvidia0", 195, 0, False, False),
        ("/dev/nvidiactl", 195, 255, False, False),
    ]
    assert "/dev/nvidia-uvm" in found.devices.missing


@root_only
def test_container_without_gpu_concerns_nobody_and_void_proves_nothing(tmp_path: Path) -> None:
    with running("runc", tmp_path, _config("NVIDIA_VISIBLE_DEVICES=void")) as container:
        live = Live(Deadline(30))
        assert _workload(live, container.pid).pids == (container.pid,)
        assert _concerned(live, container.pid) is None


@root_only
def test_images_variable_under_plain_runc_is_a_wish_that_nobody_fulfilled(tmp_path: Path) -> None:
    with running("runc", tmp_path, _config("NVIDIA_VISIBLE_DEVICES=all")) as container:
        found = _concerned(Live(Deadline(30)), container.pid)
        assert found is not None
        assert (found.only_image, found.asked, found.has_gpu) == (True, False, False)


@root_only
def test_node_bound_without_devices_is_seen_with_its_mount(tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    os.mknod(node, 0o600 | 0o020000, os.makedev(195, 0))
    config = _config()
    config["mounts"] = [
        {"destination": "/dev/nvidia0", "type": "bind", "source": str(node), "options": ["bind", "nodev"]}
    ]
    with running("runc", tmp_path, config) as container:
        found = _concerned(Live(Deadline(30)), container.pid)
        assert found is not None and isinstance(found.devices, Devices)
        (seen,) = found.devices.nodes
        assert (seen.path, seen.bound, seen.nodev, seen.entry.mode) == ("/dev/nvidia0", True, True, 0o600)


@root_only
def test_recording_gives_the_same_workloads_and_holds_no_secret(holding: Container, tmp_path: Path) -> None:
    recorder = Recorder(Live(Deadline(30)))
    live = _concerned(recorder, holding.pid)
    place = tmp_path / "recorded"
    recorder.write(place, Config())
    assert live is not None and _concerned(open_snapshot(place), holding.pid) == live
    environ = (place / "root" / "proc" / str(holding.pid) / "environ").read_text()
    assert environ == "NVIDIA_VISIBLE_DEVICES=0\0"
    redacted = redact(recorder.members(Config()), b"salt").members
    assert not [name for name, content in redacted.items() if SECRET.encode() in content]
    for name, content in redacted.items():
        (tmp_path / "redacted" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "redacted" / name).write_bytes(content)
    again = _concerned(open_snapshot(tmp_path / "redacted"), holding.pid)
    assert again is not None
    assert (again.asked, again.has_gpu, again.workload.engine) == (live.asked, live.has_gpu, live.workload.engine)


@root_only
def test_answer_and_files_of_proc_tell_the_same(holding: Container) -> None:
    """A recording made by hand has no answer; over the same live /proc its way of looking must find the same."""

    class WithoutAnswer(Live):
        def answer(self, name: str, gate: Any) -> Any:
            return Unread(Why.NOT_RECORDED, name, "hidden") if name == "processes" else super().answer(name, gate)

    one, other = (_workload(raw, holding.pid) for raw in (Live(Deadline(30)), WithoutAnswer(Deadline(30))))
    assert (one.key, one.engine, one.pids, one.cgroup, one.apart) == (
        other.key,
        other.engine,
        other.pids,
        other.cgroup,
        other.apart,
    )


@root_only
@pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=f"needs {PYTHON}, which an ordinary user can run")
def test_without_root_it_says_what_it_cannot_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control group's name tells of a container to everybody; without one, only that there may be more."""
    with running(
        "runc", tmp_path, _config("NVIDIA_VISIBLE_DEVICES=0", nodes=NODES), group=f"/docker/{uuid.uuid4().hex * 2}"
    ) as container:
        pid = container.pid
        # What is imported now need not be found by somebody who may not read this interpreter's folder.
        assert _seen_by_nobody(pid) == {"found": True, "asked": True, "has": True, "unseen": None, "unlisted": None}
        monkeypatch.setattr(sys, "executable", PYTHON)
        hidden = ["no-permission", "root"]
        assert _as_nobody(lambda: _seen_by_nobody(pid)) == {
            "found": True,
            "asked": False,
            "has": hidden,
            "unseen": hidden,
            "unlisted": hidden,
        }


def _seen_by_nobody(pid: int) -> dict[str, Any]:
    population = Desk(Live(Deadline(30)), Config()).get(GpuWorkloads)
    assert isinstance(population, GpuWorkloads)
    found = next((one for one in population if one.workload.pid == pid), None)
    return {
        "found": found is not None,
        "asked": found.asked if found is not None else None,
        "has": _why(found.has_gpu) if found is not None else None,
        "unseen": _why(found.unseen) if found is not None else None,
        "unlisted": _why(population.unlisted),
    }


def _why(value: Any) -> Any:
    return [value.why.value, value.would_need] if isinstance(value, Unread) else value


def _as_nobody(ask: Any) -> dict[str, Any]:
    """What a function gives in a child that has given up root."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(writer, json.dumps(ask()).encode())
        except BaseException as error:
            os.write(writer, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    answered: dict[str, Any] = json.loads(said)
    return answered


@root_only
def test_links_below_the_root_of_a_process_stay_inside(holding: Container) -> None:
    rootfs = holding.bundle / "rootfs"
    (rootfs / "etc" / "marker").write_text("inside\n")
    (rootfs / "tmp" / "absolute").symlink_to("/etc/marker")
    (rootfs / "tmp" / "upwards").symlink_to("../../../../../../etc/marker")
    (rootfs / "tmp" / "folder").symlink_to("/etc")
    raw = Live(Deadline(30))
    for name in ("absolute", "upwards", "folder/marker", "../../../etc/marker"):
        file = raw.read(f"/proc/{holding.pid}/root/tmp/{name}")
        assert isinstance(file, TextFile) and file.text == "inside\n", name
    entry = raw.entry(f"/proc/{holding.pid}/root")
    assert isinstance(entry, Entry) and entry.type is EntryType.DIR


@root_only
def test_one_container_that_does_not_answer_hides_no_other(
    holding: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running("runc", tmp_path, _config("NVIDIA_VISIBLE_DEVICES=1", nodes=NODES)) as other:
        stuck, well = sorted((holding.pid, other.pid))
        slow = tmp_path / "reader.py"
        hang = f"    say(reading=path)\n    if path.startswith('/proc/{stuck}/'):\n        import time\n        time.sleep(60)\n"
        slow.write_text(guarded.READER.read_text().replace("    say(reading=path)\n", hang))
        monkeypatch.setattr(guarded, "READER", slow)
        monkeypatch.setattr(guarded, "SECONDS", 1.0)
        raw = Live(Deadline(30))
        first, second = _concerned(raw, stuck), _concerned(raw, well)
        assert first is not None and isinstance(first.devices, Unread) and first.devices.why is Why.TIMED_OUT
        assert second is not None and second.has_gpu is True and second.wishes.variable("NVIDIA_VISIBLE_DEVICES")


@root_only
def test_below_a_root_the_same_is_found(holding: Container, tmp_path: Path) -> None:
    """As in a pod that has the host at /host: /proc/PID/root leads into the container, not back to the root."""
    host = tmp_path / "host"
    with _mounted(host, "proc", "sys", "dev", "run"):
        (host / holding.bundle.relative_to("/")).mkdir(parents=True)
        shutil.copy(holding.bundle / "config.json", host / holding.bundle.relative_to("/"))
        below, live = (
            _concerned(Live(Deadline(30), str(host)), holding.pid),
            _concerned(Live(Deadline(30)), holding.pid),
        )
        assert below is not None and below == live


@contextlib.contextmanager
def _mounted(host: Path, *names: str) -> Iterator[None]:
    mounted = []
    try:
        for name in names:
            (host / name).mkdir(parents=True)
            argv = ["mount", "--bind", f"/{name}", str(host / name)]
            if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
                pytest.skip("nothing can be mounted here")
            mounted.append(host / name)
        yield
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", str(place)], capture_output=True, check=False)


@root_only
def test_folder_that_is_a_link_is_not_followed(holding: Container) -> None:
    rootfs = holding.bundle / "rootfs"
    (rootfs / "tmp" / "dev").symlink_to("/dev")
    folders = (
        f"/proc/{holding.pid}/root/tmp/dev",
        f"/proc/{holding.pid}/root/dev",
        f"/proc/{holding.pid}/root/nowhere",
    )
    link, real, missing = Live(Deadline(30)).look_blocking(folders, begin="nvidia").values()
    assert isinstance(link, Unread) or not isinstance(link, Contents)
    assert isinstance(real, Contents) and sorted(real.entries) == ["nvidia0", "nvidiactl"] and real.complete
    assert not isinstance(missing, (Contents, Unread))


# users and namespaces without an engine -----------------------------------------------------------------------------


@contextlib.contextmanager
def _set_apart(*options: str, user: int | None = None) -> Iterator[int]:
    """A process that unshare has set apart; its PID as this machine sees it."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux)")
    argv = ["unshare", *options, "sleep", "600"]
    process = subprocess.Popen(argv, user=user, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        yield _sleeper_of(process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _sleeper_of(process: "subprocess.Popen[bytes]") -> int:
    until = time.monotonic() + 10
    while time.monotonic() < until and process.poll() is None:
        for pid in (process.pid, *_children(process.pid)):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                    return pid
        time.sleep(0.02)
    pytest.skip("no namespaces can be made here")


def _children(pid: int) -> list[int]:
    return [row.pid for row in TaskTable().rows if row.parent == pid]


@root_only
def test_container_of_an_ordinary_user_without_an_engine_is_rootless() -> None:
    with _set_apart("--user", "--map-root-user", "--mount", "--pid", "--fork", user=65534) as pid:
        found = _workload(Live(Deadline(30)), pid)
        assert (found.key, found.kind, found.apart, found.rootless) == (f"pid:{pid}", GroupKind.CONTAINER, True, True)


@root_only
def test_mounts_of_its_own_make_no_container() -> None:
    with _set_apart("--mount") as pid:
        found = Desk(Live(Deadline(30)), Config()).get(Workloads)
        assert isinstance(found, Workloads)
        one = found.by_pid.get(pid)
        assert one is None or one.kind is not GroupKind.CONTAINER


# holders ------------------------------------------------------------------------------------------------------------

_MAPPING = """
import ctypes, mmap, os
descriptor = os.open("/dev/nvidia0", os.O_RDWR)
ctypes.CDLL(None).mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
os.close(descriptor)
print("ready", flush=True)
import time
time.sleep(600)
"""


@root_only
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare (util-linux)")
def test_node_that_is_only_mapped_is_held() -> None:
    """Below a /dev of its own lies a file of that name: no driver is asked."""
    script = f"mount -t tmpfs none /dev && truncate -s 4096 /dev/nvidia0 && exec {sys.executable} -c '{_MAPPING}'"
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            pytest.skip("no mount namespace can be made here")
        table = TaskTable()
        answer = look_for_holders(table, "/", Deadline(30), table)
        held = {entry["pid"]: entry for entry in answer.data["holders"]}
        assert (held[process.pid]["nodes"], held[process.pid]["mapped"]) == ([], ["/dev/nvidia0"])
        assert answer.data["unmapped"] == 0
    finally:
        process.stdout.close()
        process.kill()
        process.wait()
