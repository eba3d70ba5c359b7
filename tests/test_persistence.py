"""The persistence daemon, and the journal that says why it ended, read live and from recordings."""

from pathlib import Path

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, EntryType, Log
from gpudoctor.probes import journal
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.live import Live
from gpudoctor.sources.recorded import Record
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.verdicts import Status, Unread, Why
from tests.small_node import SmallNode, alarms, cited

WANTED = "/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service"
UNIT_FILE = "/usr/lib/systemd/system/nvidia-persistenced.service"
GROUP = "/sys/fs/cgroup/system.slice/nvidia-persistenced.service"
CHECK = "device-nodes.persistence-daemon"


def _enabled(*, group: str | None = GROUP, slices: bool = True) -> SmallNode:
    machine = SmallNode()
    machine.link(WANTED, UNIT_FILE)
    machine.text(UNIT_FILE, "[Unit]\n")
    for place in ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice"):
        if slices:
            machine.tree.put(place, Record(entry=Entry(place, EntryType.DIR)))
        path = f"{place}/nvidia-persistenced.service"
        if path == group:
            machine.tree.put(path, Record(entry=Entry(path, EntryType.DIR)))
        else:
            machine.absent(path)
    return machine


@pytest.mark.parametrize("group", [GROUP, GROUP.replace("cgroup/", "cgroup/systemd/")])
def test_a_daemon_that_runs_passes_on_either_kind_of_control_groups(group: str) -> None:
    (finding,) = _enabled(group=group).report().result(CHECK).findings
    assert (finding.status, finding.subject.id) == (Status.PASS, "service:nvidia-persistenced")
    assert group in cited(finding)


SOCKET = "/run/nvidia-persistenced/socket"
PID_FILE = "/run/nvidia-persistenced/nvidia-persistenced.pid"


def _with_socket(*, slices: bool = True) -> SmallNode:
    machine = _enabled(group=None, slices=slices)
    if not slices:
        for place in ("system.slice", "systemd/system.slice", "unified/system.slice"):
            machine.absent(f"/sys/fs/cgroup/{place}")
    machine.tree.put(SOCKET, Record(entry=Entry(SOCKET, EntryType.SOCKET)))
    return machine


def test_a_daemon_is_known_by_its_socket_where_no_control_group_is_in_view() -> None:
    (finding,) = _with_socket(slices=False).report().result(CHECK).findings
    assert finding.status is Status.PASS and SOCKET in cited(finding)


def test_a_socket_left_behind_is_no_running_daemon() -> None:
    machine = _with_socket()
    machine.text(PID_FILE, "935\n")
    machine.text("/proc/935/comm", "bash\n")
    (finding,) = alarms(machine.report(), CHECK)
    assert f"{GROUP} does not exist" in cited(finding) and f"{SOCKET} exists: left behind" in cited(finding)


def test_a_daemon_that_was_started_by_hand_runs_outside_its_unit() -> None:
    machine = _with_socket()
    machine.text(PID_FILE, "935\n")
    machine.text("/proc/935/comm", "nvidia-persiste\n")
    (finding,) = machine.report().result(CHECK).findings
    assert finding.status is Status.PASS and "/proc/935/comm" in cited(finding)


def test_an_unreadable_pid_file_beside_a_socket_is_unknown() -> None:
    machine = _with_socket()
    machine.tree.put(PID_FILE, Record(error="EACCES"))
    assert machine.report().result(CHECK).why == "no-permission"


def test_an_enabled_daemon_that_ended_warns_with_its_own_words() -> None:
    machine = _enabled(group=None)
    machine.logs["journal/nvidia-persistenced.service.log"] = (
        "2026-11-29T10:00:00+0000 n1 systemd[1]: Starting NVIDIA Persistence Daemon...\n"
        "2026-11-29T10:00:01+0000 n1 nvidia-persistenced[935]: Failed to query NVIDIA devices. Please ensure …\n"
        "2026-11-29T10:00:01+0000 n1 nvidia-persistenced[930]: nvidia-persistenced failed to initialize. Check syslog\n"
        "2026-11-29T10:00:01+0000 n1 systemd[1]: Failed to start NVIDIA Persistence Daemon.\n"
    )
    (finding,) = alarms(machine.report(), CHECK)
    assert finding.status is Status.WARN
    assert finding.summary.startswith("enabled, but it does not run: Failed to query NVIDIA devices")
    said = finding.evidence[3]
    assert (said.where, said.at) == ("journalctl -b -u nvidia-persistenced", "2026-11-29T10:00:01+0000")


def test_a_daemon_that_ended_because_nodes_are_missing_is_a_consequence() -> None:
    machine = _enabled(group=None)
    for path in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        machine.absent(f"/dev/{path}")
    report = machine.report()
    assert [cause.check for cause in report.root_causes] == ["device-nodes.gpu-node"]


def test_a_daemon_that_nobody_enabled_is_not_judged() -> None:
    assert SmallNode().report().result(CHECK).status is Status.SKIP


def test_a_masked_daemon_and_one_whose_unit_is_gone_are_not_judged() -> None:
    masked, gone = _enabled(group=None), _enabled(group=None)
    masked.link("/etc/systemd/system/nvidia-persistenced.service", "/dev/null")
    gone.absent(UNIT_FILE)
    assert [machine.report().result(CHECK).status for machine in (masked, gone)] == [Status.SKIP, Status.SKIP]


def test_a_view_without_the_nodes_services_is_unknown() -> None:
    machine = _enabled(group=None, slices=False)
    machine.absent("/sys/fs/cgroup/system.slice")
    machine.absent("/sys/fs/cgroup/systemd/system.slice")
    machine.absent("/sys/fs/cgroup/unified/system.slice")
    assert machine.report().result(CHECK).status is Status.UNKNOWN


def test_an_unreadable_control_group_is_unknown() -> None:
    machine = _enabled(group=None)
    machine.tree.put(GROUP, Record(error="EACCES"))
    assert machine.report().result(CHECK).why == "no-permission"


# The journal --------------------------------------------------------------------------------------------------------

NAME = "journal/nvidia-persistenced.service.log"


def _journalctl(monkeypatch: pytest.MonkeyPatch, answer: CommandOutput | Absent | Unread) -> list[tuple[str, ...]]:
    """Have journalctl answer this; gives the commands that were run."""
    ran: list[tuple[str, ...]] = []

    def run_command(argv: tuple[str, ...], _deadline: Deadline) -> CommandOutput | Absent | Unread:
        ran.append(argv)
        return answer

    monkeypatch.setattr(journal, "run_command", run_command)
    return ran


def test_a_units_journal_is_read_live_recorded_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "2026-11-29T10:00:00+0000 n1 nvidia-persistenced[9]: Started (9)\n"
    ran = _journalctl(monkeypatch, CommandOutput(("journalctl",), 0, f"-- Boot 12 --\n{line}"))
    recorder = Recorder(Live(Deadline(20.0)))
    assert recorder.log(NAME) == Log(NAME, line, source="journal")
    assert ran == [
        ("journalctl", "-u", "nvidia-persistenced.service", "-b", "--no-pager", "-n", "50", "-o", "short-iso")
    ]
    recorder.write(tmp_path / "snapshot", Config())
    assert open_snapshot(tmp_path / "snapshot").log(NAME) == Log(NAME, line, source="journal")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Absent("journalctl"), Why.UNREADABLE),
        (Unread(Why.TIMED_OUT, "journalctl", "did not end before its deadline"), Why.TIMED_OUT),
        (
            CommandOutput((), 1, "", "No journal files were opened due to insufficient permissions.\n"),
            Why.NO_PERMISSION,
        ),
        (
            CommandOutput(
                (),
                0,
                "-- No entries --\n",
                "Hint: You are currently not seeing messages from other users and the system.\n",
            ),
            Why.NO_PERMISSION,
        ),
        (CommandOutput((), 1, "", "Failed to add match\n"), Why.UNREADABLE),
        (CommandOutput((), 0, "-- No entries --\n", "No journal files were found.\n"), Why.UNREADABLE),
    ],
)
def test_a_journal_that_cannot_be_read_says_why_and_replays_so(
    answer: CommandOutput | Absent | Unread, why: Why, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _journalctl(monkeypatch, answer)
    recorder = Recorder(Live(Deadline(20.0)))
    log = recorder.log(NAME)
    assert isinstance(log, Unread) and log.why is why
    recorder.write(tmp_path / "snapshot", Config())
    assert open_snapshot(tmp_path / "snapshot").log(NAME) == log


def test_below_a_root_no_journal_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("proc", "sys", "dev"):
        (tmp_path / name).mkdir()
    ran = _journalctl(monkeypatch, CommandOutput((), 0, "of this machine, not of that root\n"))
    log = Live(Deadline(20.0), str(tmp_path)).log(NAME)
    assert isinstance(log, Unread) and log.why is Why.NOT_RECORDED and ran == []
