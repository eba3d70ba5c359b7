"""The live source: over a root directory made from a recorded node, with a real library, real nodes, real children."""

import contextlib
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.tasks import Task, TaskTable
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.live import Live
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.testing import config_of, node
from gpudoctor.verdicts import Status, Why
from tests.live_root import (
    WORKER,
    alone_with_its_workers,  # noqa: F401 - a fixture that each test uses
    healthy_nvml,
    make_root,
    with_nvml,
    workers_below,
)
from tests.standin.frozen import CannotFreeze, frozen_filesystem
from tests.sweeping import recorded_nodes, thinned

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)

CANNOT_BE_MADE = {"no-permission-sysfs-driver-links", "nothing-recorded", "wrong-kinds-of-file"}
"""Nodes whose point is an error that root cannot be given, or that hold nothing."""

NODES = [name for name in recorded_nodes() if name not in CANNOT_BE_MADE]


def _comparable(report: Report) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(report)
    del plain["started_at"], plain["seconds"], plain["node"]["source"]
    return plain


def _live(root: Path, seconds: float = 20.0, name: str = "h100x8") -> Report:
    return run(Live(Deadline(seconds), str(root)), config_of(node(name)), built_in(), Selection(), NOW)


def _statuses(report: Report, check: str = "driver-cuda.nvml-answers") -> list[Status]:
    by_address = sorted(report.result(check).findings, key=lambda finding: finding.subject.key)
    return [finding.status for finding in by_address]


@pytest.mark.parametrize("name", thinned(NODES))
def test_live_equals_replay(name: str, tmp_path: Path) -> None:
    root = make_root(name, tmp_path / "root")
    config = config_of(node(name))
    recorder = Recorder(Live(Deadline(20.0), str(root)))
    live = run(recorder, config, built_in(), Selection(), NOW)
    recorder.write(tmp_path / "snapshot", config)
    recorded = open_snapshot(tmp_path / "snapshot")
    replayed = run(recorded, config_of(recorded), built_in(), Selection(), NOW)
    assert _comparable(replayed) == _comparable(live)


@pytest.mark.parametrize("name", ["h100x8", "h100x8-minors-shuffled", "podman-with-cdi", "t4-cloud-guest"])
def test_a_healthy_node_passes_live_and_in_replay(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root(name, tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml(name))
    config = config_of(node(name))
    recorder = Recorder(Live(Deadline(20.0), str(root)))
    live = run(recorder, config, built_in(), Selection(), NOW)
    assert (live.exit_code, live.root_causes) == (0, ())
    assert len(live.result("driver-cuda.nvml-answers").findings) == len(live.node.gpus)
    recorder.write(tmp_path / "snapshot", config)
    recorded = open_snapshot(tmp_path / "snapshot")
    assert _comparable(run(recorded, config, built_in(), Selection(), NOW)) == _comparable(live)


@pytest.mark.parametrize(
    ("code", "word"), [(9, "driver is not loaded"), (12, "was not found"), (18, "differ in version")]
)
def test_a_failing_init_is_one_root_cause_that_names_the_code(
    code: int, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["init"] = code
    with_nvml(root, monkeypatch, standin)
    report = _live(root)
    assert [cause.check for cause in report.root_causes] == ["driver-cuda.nvml-answers"]
    assert word in report.root_causes[0].summary and f"({code})" in report.root_causes[0].summary
    assert len(report.root_causes[0].subjects) == 8


def test_a_missing_library_is_found_missing(tmp_path: Path) -> None:
    root = make_root("h100x8", tmp_path / "root")
    for library in root.glob("usr/lib/**/libnvidia-ml.so*"):
        library.unlink()
    report = _live(root)
    assert [cause.check for cause in report.root_causes] == ["driver-cuda.nvml-library"]
    follows = [name for name in report.root_causes[0].consequence_ids if name.startswith("driver-cuda.nvml-answers@")]
    assert len(follows) == 8


def test_a_host_below_a_root_has_its_own_name(tmp_path: Path) -> None:
    """/proc/sys/kernel/hostname answers with the name of whoever reads it, in a pod the pod's (uts_namespaces(7))."""
    root = make_root("h100x8", tmp_path / "root")
    (root / "etc/hostname").write_text("gpu-node-7\n")
    assert _live(root).node.hostname == "gpu-node-7"


def test_a_library_that_the_loader_refuses_is_quoted_with_its_reason(tmp_path: Path) -> None:
    root = make_root("h100x8", tmp_path / "root")
    place = root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"")
    report = _live(root)
    findings = report.result("driver-cuda.nvml-answers").findings
    assert "NVML does not start (12)" in report.root_causes[0].summary
    assert "file too short" in findings[0].evidence[0].shows


def test_a_lost_gpu_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["devices"][3]["errors"] = {"handle": 15}
    with_nvml(root, monkeypatch, standin)
    report = _live(root)
    assert _statuses(report) == [Status.PASS] * 3 + [Status.FAIL] + [Status.PASS] * 4
    assert report.root_causes[0].subjects[0].key == "0000:5d:00.0"


def test_a_crash_is_a_fail_that_names_signal_and_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["crash"] = {"call": "nvmlDeviceGetHandleByPciBusId_v2", "index": 2, "signal": "SEGV"}
    with_nvml(root, monkeypatch, standin)
    report = _live(root)
    assert _statuses(report) == [Status.PASS] * 2 + [Status.FAIL] + [Status.UNKNOWN] * 5
    assert "SIGSEGV" in report.root_causes[0].summary and "0000:3a:00.0" in report.root_causes[0].summary


def test_a_hang_outside_the_kernel_is_not_called_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker asleep in a plain sleep could as well be slow: unknown, within the deadline, partial answers kept."""
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["hang"] = {"call": "nvmlDeviceGetUUID", "index": 3, "how": "sleep"}
    with_nvml(root, monkeypatch, standin)
    started = time.monotonic()
    report = _live(root, seconds=4.0)
    assert time.monotonic() - started < 5.0
    assert _statuses(report) == [Status.PASS] * 3 + [Status.UNKNOWN] * 5
    stuck = next(f for f in report.result("driver-cuda.nvml-answers").findings if f.subject.key == "0000:5d:00.0")
    assert stuck.why is Why.SLOW_INIT and "nvmlDeviceGetUUID(0000:5d:00.0)" in stuck.summary
    assert report.exit_code == 3


def test_a_slow_start_within_the_deadline_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["slow"] = {"call": "nvmlInit_v2", "seconds": 1.5}
    with_nvml(root, monkeypatch, standin)
    assert _live(root).exit_code == 0


def test_an_old_library_without_a_call_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"), leave_out=["nvmlDeviceGetSerial", "nvmlDeviceGetMinorNumber"])
    assert _live(root).exit_code == 0


def _hanging_command(root: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    line = f"'{sys.executable}' -m gpudoctor run --root '{root}' --deadline {seconds} --format json | cat"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)


def test_a_worker_in_d_state_is_left_behind_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hang itself is the finding; the pipe is not held; the next run starts no second worker."""
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    try:
        with frozen_filesystem() as frozen, _bound(frozen, root / "frozen"):
            standin["hang"] = {"call": "nvmlInit_v2", "how": "write", "path": "/frozen/stuck"}
            with_nvml(root, monkeypatch, standin)
            started = time.monotonic()
            first = _hanging_command(root, 6)
            assert time.monotonic() - started < 7.0
            workers = list(workers_below(tmp_path))
            assert [worker.state for worker in workers] == ["D"]
            _assert_hang_reported(json.loads(first.stdout), workers[0], earlier=False)
            second = _hanging_command(root, 6)
            assert [worker.pid for worker in workers_below(tmp_path)] == [workers[0].pid]
            _assert_hang_reported(json.loads(second.stdout), workers[0], earlier=True)
    except CannotFreeze as error:
        pytest.skip(f"no task can be put into D state here: {error}")


@contextlib.contextmanager
def _bound(source: Path, target: Path) -> Iterator[None]:
    """A directory at a second place, within the root that the worker makes its own."""
    target.mkdir()
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(target)], check=True)


def test_a_node_that_may_not_be_opened_from_here_is_no_fault_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose device cgroup forbids it; here by the mode, for a root without CAP_DAC_OVERRIDE."""
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    (root / "dev/nvidiactl").chmod(0)
    doctor = [sys.executable, "-m", "gpudoctor", "run", "--root", str(root), "--format", "json"]
    argv = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override", *doctor]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if "setpriv:" in ended.stderr:
        pytest.skip(f"no capability can be given up here: {ended.stderr.strip()}")
    report = json.loads(ended.stdout)
    answers = next(result for result in report["results"] if result["check"] == "driver-cuda.nvml-answers")
    assert (answers["status"], answers["why"]) == ("unknown", "no-permission")
    assert "/dev/nvidiactl" in answers["detail"]
    assert "driver-cuda.nvml-answers" not in {cause["check"] for cause in report["root_causes"]}


def test_without_chroot_nvml_is_not_asked_below_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would look at this machine's /dev, not at the root's."""
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    doctor = [sys.executable, "-m", "gpudoctor", "run", "--root", str(root), "--format", "json"]
    argv = ["setpriv", "--bounding-set", "-sys_chroot", "--inh-caps", "-sys_chroot", *doctor]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if "setpriv:" in ended.stderr:
        pytest.skip(f"no capability can be given up here: {ended.stderr.strip()}")
    answers = next(r for r in json.loads(ended.stdout)["results"] if r["check"] == "driver-cuda.nvml-answers")
    assert (answers["status"], answers["why"]) == ("unknown", "no-permission")
    assert "chroot" in answers["detail"]


def _assert_hang_reported(report: dict[str, Any], worker: Task, *, earlier: bool) -> None:
    assert report["exit_code"] == 2
    assert [cause["check"] for cause in report["root_causes"]] == ["driver-cuda.nvml-answers"]
    assert f"PID {worker.pid} in state D" in report["root_causes"][0]["summary"]
    assert ("earlier run" in report["root_causes"][0]["summary"]) is earlier
    findings = next(r for r in report["results"] if r["check"] == "driver-cuda.nvml-answers")["findings"]
    stacks = [evidence["shows"] for evidence in findings[0]["evidence"] if "stack" in evidence["where"]]
    assert stacks and "write" in stacks[0], stacks


def test_the_worker_has_given_up_what_could_change_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["hang"] = {"call": "nvmlInit_v2", "how": "sleep"}
    with_nvml(root, monkeypatch, standin)
    doctor = subprocess.Popen(
        [sys.executable, "-m", "gpudoctor", "run", "--root", str(root), "--deadline", "8", "--format", "json"],
        stdout=subprocess.DEVNULL,
    )
    try:
        status = _status_of_worker()
    finally:
        doctor.kill()
        doctor.wait()
    forbidden = 1 << 16 | 1 << 27
    for capability_set in ("CapInh", "CapPrm", "CapEff", "CapBnd"):
        assert int(status[capability_set], 16) & forbidden == 0, capability_set
    assert status["NoNewPrivs"] == "1"


def _status_of_worker() -> dict[str, str]:
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        for worker in TaskTable().named(WORKER, owners=(os.getuid(),)):
            text = Path(f"/proc/{worker.pid}/status").read_text()
            status = {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
            if status.get("NoNewPrivs") == "1" and not int(status["CapEff"], 16) & 1 << 16:
                return status
        time.sleep(0.05)
    pytest.fail("no worker appeared")


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("proc/driver/nvidia/version", "/proc/driver/nvidia/version does not exist"),
        ("dev/nvidiactl", "/dev/nvidiactl does not exist"),
        ("dev/nvidia3", "/dev/nvidia3 does not exist"),
    ],
)
def test_nvml_is_not_asked_when_asking_would_make_things(
    gone: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["crash"] = {"call": "nvmlInit_v2", "signal": "ABRT"}
    with_nvml(root, monkeypatch, standin)
    (root / gone).unlink()
    report = _live(root)
    result = report.result("driver-cuda.nvml-answers")
    if gone == "dev/nvidiactl":
        assert result.blocked_by == ("device-nodes.control-node@node:node",)
        assert words in report.finding(result.blocked_by[0]).evidence[0].where + " does not exist"
    else:
        assert {finding.why for finding in result.findings} == {Why.WITHHELD}
        assert words in result.findings[0].summary


def test_a_sleeping_gpu_is_not_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root("h100x8", tmp_path / "root")
    standin = healthy_nvml("h100x8")
    standin["crash"] = {"call": "nvmlDeviceGetHandleByPciBusId_v2", "index": 0, "signal": "ABRT"}
    with_nvml(root, monkeypatch, standin)
    (root / "sys/bus/pci/devices/0000:18:00.0/power/runtime_status").write_text("suspended\n")
    report = _live(root)
    assert _statuses(report) == [Status.UNKNOWN] + [Status.PASS] * 7
    asleep = next(f for f in report.result("driver-cuda.nvml-answers").findings if f.subject.key == "0000:18:00.0")
    assert asleep.why is Why.WITHHELD and "wake" in asleep.summary


def test_a_driver_that_does_not_answer_reads_costs_its_deadline_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files below /proc/driver/nvidia are read in a child; here one never ends."""
    from gpudoctor.probes import guarded

    root = make_root("h100x8", tmp_path / "root")
    slow = tmp_path / "reader.py"
    source = guarded.READER.read_text().replace(
        "    say(reading=path)\n",
        "    say(reading=path)\n    if path.endswith('5d:00.0/information'):\n        import time\n        time.sleep(60)\n",
    )
    slow.write_text(source)
    monkeypatch.setattr(guarded, "READER", slow)
    started = time.monotonic()
    report = _live(root)
    assert time.monotonic() - started < 6
    nodes = {f.subject.key: f for f in report.result("device-nodes.gpu-node").findings}
    assert nodes["0000:18:00.0"].status is Status.PASS
    assert nodes["0000:5d:00.0"].why is Why.TIMED_OUT
    assert report.result("driver-cuda.nvml-answers").why == "withheld"


@pytest.mark.parametrize(("stuck", "status"), [(3, Status.PASS), (4, Status.UNKNOWN)])
def test_readers_stuck_since_earlier_runs_are_not_joined_by_ever_more(
    stuck: int, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpudoctor.probes import file_reader

    def named(_: TaskTable, comm: str, owners: tuple[int, ...]) -> list[Task]:
        assert owners
        return [Task(pid, comm, "D", "", 0) for pid in range(stuck if comm.encode() == file_reader.NAME else 0)]

    root = make_root("h100x8", tmp_path / "root")
    monkeypatch.setattr(TaskTable, "named", named)
    started = time.monotonic()
    report = _live(root)
    assert time.monotonic() - started < 6
    nodes = report.result("device-nodes.gpu-node").findings
    assert [finding.status for finding in nodes] == [status] * 8
    assert all(finding.why is (Why.TIMED_OUT if stuck == 4 else None) for finding in nodes)


def test_root_without_a_host_in_it_is_refused(tmp_path: Path) -> None:
    from gpudoctor.sources.errors import SourceError

    (tmp_path / "proc").mkdir()
    with pytest.raises(SourceError, match="has no sys"):
        Live(Deadline(5), str(tmp_path))


def test_links_below_a_root_do_not_lead_out_of_it(tmp_path: Path) -> None:
    for top in ("proc", "sys", "dev", "etc"):
        (tmp_path / top).mkdir()
    (tmp_path / "etc/os-release").symlink_to("/usr/lib/os-release")
    (tmp_path / "etc/up").symlink_to("../../../../../../etc/passwd")
    live = Live(Deadline(5), str(tmp_path))
    assert not hasattr(live.read("/etc/os-release"), "text")
    assert not hasattr(live.read("/etc/up"), "text")
    (tmp_path / "etc/passwd").write_text("inside\n")
    assert live.read("/etc/up").text == "inside\n"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("path", "numbers"), [("dev/nvidiactl", (1, 3)), ("dev/nvidia2", (1, 3)), ("dev/nvidia2", (195, 7))]
)
def test_nvml_is_not_asked_through_a_node_of_another_driver(
    path: str, numbers: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    (root / path).unlink()
    os.mknod(root / path, 0o020666, os.makedev(*numbers))
    result = _live(root).result("driver-cuda.nvml-answers")
    assert result.blocked_by or {finding.why for finding in result.findings} == {Why.WITHHELD}


def test_a_gpu_whose_driver_link_cannot_be_read_is_asked_about_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    link = root / "sys/bus/pci/devices/0000:5d:00.0/driver"
    link.unlink()
    link.mkdir()
    report = _live(root)
    assert report.result("kernel-module.gpu-bound").why == "unreadable"
    assert _statuses(report) == [Status.PASS] * 8
    assert report.root_causes == ()


def test_a_bus_that_is_no_directory_is_unreadable_not_empty(tmp_path: Path) -> None:
    for top in ("proc", "sys/bus/pci", "dev"):
        (tmp_path / top).mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices").write_text("")
    report = _live(tmp_path)
    assert (report.result("pcie.gpus-present").why, report.root_causes) == ("unreadable", ())


def test_a_console_in_the_place_of_the_kernel_log_is_not_read(tmp_path: Path) -> None:
    for top in ("proc", "sys", "dev"):
        (tmp_path / top).mkdir()
    live = Live(Deadline(5), str(tmp_path))
    os.symlink("/dev/kmsg", tmp_path / "dev/kmsg")
    assert not hasattr(live.log("kernel.log"), "text")
    (tmp_path / "dev/kmsg").unlink()
    os.mkfifo(tmp_path / "dev/kmsg")
    assert not hasattr(live.log("kernel.log"), "text")


def test_configuration_and_driver_files_below_a_root_stay_inside_it(tmp_path: Path) -> None:
    from gpudoctor.sources.config_files import load_config

    outside = tmp_path / "outside"
    (outside / "nvidia").mkdir(parents=True)
    (outside / "config.toml").write_text("expect.gpus = 99")
    (outside / "nvidia/version").write_text("NVRM version: secret")
    root = tmp_path / "root"
    for top in ("proc", "sys", "dev", "etc"):
        (root / top).mkdir(parents=True)
    (root / "etc/gpudoctor").symlink_to(outside)
    (root / "proc/driver").symlink_to(outside)
    assert load_config(str(root), ()).expect.gpus is None
    assert not hasattr(Live(Deadline(5), str(root)).read("/proc/driver/nvidia/version"), "text")


def test_somebody_elses_process_of_that_name_is_no_worker_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    take_name = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, b'gpudoctor-nvml'); print(1, flush=True); time.sleep(30)"
    )
    try:
        impostor = subprocess.Popen(["/usr/bin/python3", "-c", take_name], user=65534, stdout=subprocess.PIPE, cwd="/")
    except OSError as error:
        pytest.skip(f"no Python that uid 65534 may start: {error}")
    try:
        assert impostor.stdout is not None and impostor.stdout.read(1) == b"1"
        started = time.monotonic()
        assert _live(root).exit_code == 0
        assert time.monotonic() - started < 5
    finally:
        impostor.kill()
        impostor.wait()
        impostor.stdout.close()  # type: ignore[union-attr]


def test_names_and_links_that_are_not_utf8_do_not_end_the_run(tmp_path: Path) -> None:
    for top in ("proc", "sys/bus/pci/devices", "sys/devices", "dev", "etc"):
        (tmp_path / "r" / top).mkdir(parents=True)
    os.symlink(b"nv\xff", os.fsencode(tmp_path / "r/etc/os-release"))
    os.symlink(b"../../../devices/x", os.fsencode(tmp_path / "r/sys/bus/pci/devices") + b"/0000:\xff:00.0")
    recorder = Recorder(Live(Deadline(5), str(tmp_path / "r")))
    report = run(recorder, config_of(node("h100x8")), built_in(), Selection(), NOW)
    msgspec.json.encode(report)
    assert report.result("pcie.gpus-present").status is Status.UNKNOWN
    recorder.write(tmp_path / "snapshot", config_of(node("h100x8")))


def test_odd_links_replay_as_they_were(tmp_path: Path) -> None:
    """Loops, dangling and absolute links, wrong kinds of file: the same words live and replayed."""
    root = make_root("h100x8", tmp_path / "root")
    (root / "etc/docker/daemon.json").unlink()
    (root / "etc/docker/daemon.json").symlink_to("y")
    (root / "etc/docker/y").symlink_to("daemon.json")
    (root / "usr/bin/dockerd").unlink()
    (root / "usr/bin/dockerd").symlink_to("/opt/nowhere/dockerd")
    (root / "proc/modules").unlink()
    (root / "proc/modules").mkdir()
    config = config_of(node("h100x8"))
    recorder = Recorder(Live(Deadline(20.0), str(root)))
    live = run(recorder, config, built_in(), Selection(), NOW)
    recorder.write(tmp_path / "snapshot", config)
    assert _comparable(run(open_snapshot(tmp_path / "snapshot"), config, built_in(), Selection(), NOW)) == _comparable(
        live
    )


def test_a_driver_container_is_asked_within_its_own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes lie below /run/nvidia/driver, and NVML opens /dev/nvidiactl: the stand-in finds its answers there only."""
    root = make_root("gpu-operator-driver-container", tmp_path / "root")
    inner = root / "run/nvidia/driver"
    for library in root.glob("**/libnvidia-ml.so*"):
        library.unlink()
    with_nvml(inner, monkeypatch, healthy_nvml("gpu-operator-driver-container"))
    assert not (root / "nvml.json").exists() and not (root / "dev/nvidiactl").exists()
    report = _live(root)
    answers = report.result("driver-cuda.nvml-answers")
    assert answers.status is Status.PASS, answers.detail
    assert not [cause for cause in report.root_causes if cause.check.startswith("driver-cuda.")]
