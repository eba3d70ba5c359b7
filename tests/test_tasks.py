"""Tasks stuck in the driver and who holds it: real processes below the probes, recorded answers below the check."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.raw import Answer, Log, Question
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.sleepers import look_at_sleepers, look_for_holders
from gpudoctor.probes.tasks import TaskTable
from gpudoctor.report import Result
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import Builder, diagnose
from tests.standin.frozen import CannotFreeze, frozen_filesystem

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: kernel stacks, mounts")
CHECK = "driver-cuda.no-stuck-task"
DRIVER_STACK = "[<0>] os_acquire_rwlock_read+0x35/0x50 [nvidia]\n[<0>] nvidia_unlocked_ioctl+0x14f/0x8a0 [nvidia]"
NFS_STACK = "[<0>] rpc_wait_bit_killable+0x11/0x70 [sunrpc]\n[<0>] nfs4_run_open_task+0x152/0x1e0 [nfsv4]"
HUNG_LINE = "[ 4001.123456] INFO: task python:935 blocked for more than 120 seconds.\n"


def _sleeper(**fields: Any) -> dict[str, Any]:
    return {"pid": 935, "comm": "python", "state": "D", "stack": DRIVER_STACK, "unchanged_seconds": 2.2, **fields}


def _result(*sleeping: dict[str, Any], log: str = "", tasks: int = 412, loaded: bool = True) -> Result:
    builder = Builder()
    module = "nvidia 56832000 44 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)\n"
    builder.text("/proc/modules", module if loaded else "ext4 1130496 1 - Live 0x0000000000000000\n")
    recorded = RecordedNode(builder.tree, complete=("/proc",))
    recorded.answers["tasks"] = Answer(data={"tasks": tasks, "sleeping": list(sleeping)}, via="/proc")
    recorded.logs["kernel.log"] = Log("kernel.log", log, source="kmsg", from_boot=True)
    return diagnose(recorded).result(CHECK)


def test_task_that_stands_still_in_the_driver_is_a_fault_with_its_stack() -> None:
    log = "[ 3900.000001] NVRM: Xid (PCI:0000:3a:00): 45, pid=935, name=python, Ch 00000008\n" + HUNG_LINE
    finding = _result(_sleeper(), log=log).findings[0]
    assert (finding.status, finding.subject.key, finding.cause) == (Status.FAIL, "node", "stuck-in-driver")
    assert "1 task sleeps uninterruptibly in the driver: python (PID 935)" in finding.summary
    assert ("/proc/935/stack", True) in [
        (seen.where, "os_acquire_rwlock_read" in seen.shows) for seen in finding.evidence
    ]
    said = [seen.shows for seen in finding.evidence]
    assert any("Xid (PCI:0000:3a:00): 45" in line for line in said)
    assert any("blocked for more than 120 seconds" in line for line in said)


def test_eleven_tasks_are_many() -> None:
    summary = _result(*(_sleeper(pid=pid, unchanged_seconds=11.0) for pid in range(900, 911))).findings[0].summary
    assert summary.startswith("11 tasks sleep uninterruptibly in the driver: python (PID 900)")
    assert summary.endswith("and 7 more")


def test_kernels_word_counts_for_a_task_that_still_sleeps_there() -> None:
    assert _result(_sleeper(unchanged_seconds=0.0), log=HUNG_LINE).status is Status.FAIL
    other = HUNG_LINE.replace(":935", ":936")
    assert _result(_sleeper(unchanged_seconds=0.0), log=other).status is Status.PASS
    assert _result(log=HUNG_LINE).status is Status.PASS


@pytest.mark.parametrize(
    "sleeper",
    [
        _sleeper(unchanged_seconds=0.4),
        _sleeper(stack=NFS_STACK),
        _sleeper(comm="gpudoctor-nvml"),
        _sleeper(state="S"),
        _sleeper(stack="[<0>] msleep+0x1/0x2 [nvidiafoo_not]".replace("nvidiafoo_not", "nvme_core")),
    ],
    ids=["momentary", "nfs", "own-worker", "awake", "nvme"],
)
def test_sleep_elsewhere_or_for_a_moment_is_no_fault(sleeper: dict[str, Any]) -> None:
    result = _result(sleeper)
    assert result.status is Status.PASS
    assert result.findings[0].evidence[0].where == "tasks (/proc/*/stat)"


def test_without_root_a_sleeper_that_hides_its_stack_leaves_the_question_open() -> None:
    result = _result(_sleeper(stack="", hidden=True))
    assert (result.status, result.why) == (Status.UNKNOWN, "no-permission")
    assert _result().status is Status.PASS


def test_no_task_at_all_is_no_pass() -> None:
    assert _result(tasks=0).status is Status.UNKNOWN


def test_without_the_module_the_question_makes_no_sense() -> None:
    assert _result(loaded=False).status is Status.SKIP


# the probes, over real processes ------------------------------------------------------------------------------------


@root_only
def test_writer_to_a_frozen_file_system_is_seen_asleep_with_its_stack_and_is_not_the_drivers() -> None:
    try:
        with frozen_filesystem() as mount_point, _writer(mount_point / "written") as writer:
            answer = look_at_sleepers(Question("tasks"), Deadline(10), TaskTable())
            seen = {task["pid"]: task for task in answer.data["sleeping"]}
            assert answer.data["tasks"] > 2
            assert seen[writer]["state"] == "D"
            assert "[<0>]" in seen[writer]["stack"]
            assert "nvidia" not in seen[writer]["stack"]
    except CannotFreeze as reason:
        pytest.skip(str(reason))


class _writer:  # noqa: N801 - reads as a function where it is used
    """A process that writes to a file and so falls asleep when the file system is frozen."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", f"open({str(path)!r}, 'w').write('x')"])

    def __enter__(self) -> int:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            if Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(") ", 1)[1].startswith("D"):
                return self._process.pid
            time.sleep(0.05)
        raise AssertionError("the writer does not sleep")

    def __exit__(self, *_: object) -> None:
        # It ends when the file system thaws, which the end of the outer block does.
        self._process.returncode = 0


@pytest.fixture
def holder() -> Iterator[int]:
    """A process with a file open that is called /dev/nvidia0, below a /dev of its own."""
    script = "mount -t tmpfs none /dev && exec 7>/dev/nvidia0 8>/dev/nvidiactl && echo ready && exec sleep 60"
    process = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        pytest.skip("no mount namespace can be made here")
    yield process.pid
    process.stdout.close()
    process.kill()
    process.wait()


@root_only
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare (util-linux)")
def test_holders_of_the_nodes_are_found_by_their_open_files(holder: int) -> None:
    table = TaskTable()
    answer = look_for_holders(table, "/", Deadline(20), table)
    found = {entry["pid"]: entry for entry in answer.data["holders"]}
    assert found[holder]["nodes"] == ["/dev/nvidia0", "/dev/nvidiactl"]
    assert found[holder]["comm"] in ("sh", "sleep")
    assert os.getpid() not in found
