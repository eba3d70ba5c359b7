"""The timeline of a node and since when its root causes are there: raw logs in, events out."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpudoctor.config import Config
from gpudoctor.details import Details, Event, EventKind, Since
from gpudoctor.details_run import run_in_full
from gpudoctor.facts.raw import Entry, EntryType, Log, TextFile
from gpudoctor.registry import built_in
from gpudoctor.report import RootCause
from gpudoctor.run import Selection
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.testing import config_of, node
from gpudoctor.verdicts import Unread
from tests.altered import Altered
from tests.small_node import COMPLETE, SmallNode

NOW = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.timezone.utc)
BOOTED = 1795948600
"""2026-11-29 10:36:40 UTC."""
BERLIN = "TZif2\0\0\0\0\n\0\0\nCET-1CEST,M3.5.0,M10.5.0/3\n"
"""The words of a file of localtime(5) that count: what it is, and its last line."""
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
KERNEL = "[    0.000000] Linux version 6.8.0-90-generic (buildd@lcy02)\n"
ERRORS = (EventKind.XID, EventKind.SXID, EventKind.DRIVER, EventKind.PCIE, EventKind.KERNEL)
ONE_CHECK = Selection(checks=("driver-cuda.xids",))
REGISTRY = built_in(deferred=True)


class TimedNode(SmallNode):
    """A node with two GPUs whose boot and zone are known unless a test says otherwise."""

    def __init__(self, *, booted: int | None = BOOTED, zone: str | None = None) -> None:
        super().__init__()
        if booted is not None:
            self.text("/proc/stat", f"btime {booted}\n")
        if zone is not None:
            self.text("/etc/localtime", zone)
        self.from_boot = True

    def written(self, path: str, mtime: float) -> None:
        """A file of which the time of its last change is known."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, 0o644, 0, 0, mtime=mtime), text=""))

    def details(self, selection: Selection = ONE_CHECK) -> Details:
        """What a run with details tells."""
        lines = "".join(f"{major:3d} {name}\n" for name, major in self.majors.items())
        self.text("/proc/devices", f"Character devices:\n{lines}\nBlock devices:\n")
        self.text("/proc/driver/nvidia/params", self.parameters)
        recorded = RecordedNode(self.tree, complete=COMPLETE, uid=0)
        recorded.logs |= {name: Log(name, text, "kmsg", self.from_boot) for name, text in self.logs.items()}
        found = run_in_full(recorded, Config(), REGISTRY, selection, NOW).details
        assert found is not None and not any("failed" in one for one in found.untold), found
        return found


def with_log(text: str, *, booted: int | None = BOOTED, zone: str | None = None) -> Details:
    """The details of a node whose kernel log is given."""
    timed = TimedNode(booted=booted, zone=zone)
    timed.logs["kernel.log"] = text
    return timed.details()


def of_kind(details: Details, *kinds: EventKind) -> list[Event]:
    """The events of some kinds, in their order."""
    return [event for event in details.timeline if event.kind in kinds]


def full(name: str) -> tuple[Details, tuple[RootCause, ...]]:
    """The details and root causes of a fixture."""
    recorded = node(name)
    assert recorded.manifest is not None
    report = run_in_full(recorded, config_of(recorded), REGISTRY, Selection(), recorded.manifest.recorded_at)
    assert report.details is not None
    return report.details, report.root_causes


def since_of(name: str, check: str) -> tuple[Since, Details]:
    """Since when the root cause of one check is there."""
    details, causes = full(name)
    number = next(number for number, cause in enumerate(causes) if cause.check == check)
    return next(one for one in details.since if one.cause == number), details


# Times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f"[ 3812.406124] {XID}",
        f"[ 3812.406124][ T4242] {XID}",
        f"<3>[ 3812.406124] {XID}",
        f"kern  :err   : [ 3812.406124] {XID}",
        f"[ 3812.406124 <    0.000031>] {XID}",
        f"3,1701,3812406124,-;{XID}",
        f"[Sun Nov 29 12:40:12 2026] {XID}",
        f"2026-11-29T12:40:12,406124+01:00 {XID}",
        f"Nov 29 12:40:12 n1 kernel: {XID}",
        f"Nov 29 12:40:12.406124 n1 kernel: {XID}",
        f"Nov 29 12:40:12 n1 kernel: [ 3812.406124] {XID}",
        f"2026-11-29T12:40:12+0100 n1 kernel: {XID}",
        f"2026-11-29T11:40:12.406124Z n1 kernel: {XID}",
        f"Sun 2026-11-29 12:40:12 CET n1 kernel: {XID}",
        f"Sun 2026-11-29 11:40:12 UTC n1 kernel: {XID}",
        f"1795952412.406124 n1 kernel: {XID}",
        json.dumps({"log": f"{XID}\n", "stream": "stdout", "time": "2026-11-29T11:40:12.406124Z"}),
        json.dumps({"MESSAGE": XID, "__REALTIME_TIMESTAMP": "1795952412406124"}),
        f"2026-11-29T12:40:12.406124+01:00 stderr F {XID}",
    ],
)
def test_every_form_of_a_time_is_the_same_moment(line: str) -> None:
    (event,) = of_kind(with_log(KERNEL + line + "\n", zone=BERLIN), EventKind.XID)
    assert event.at == "2026-11-29T11:40:12Z"
    assert event.gpu == "0000:05:00.0"
    assert event.says.startswith("Xid 79, GPU has fallen off the bus (python3, PID 4242)")


@pytest.mark.parametrize(
    ("line", "booted", "zone", "stamp"),
    [
        (f"[ 3812.406124] {XID}", None, BERLIN, "3812.406124"),
        (f"[Sun Nov 29 12:40:12 2026] {XID}", BOOTED, None, "Sun Nov 29 12:40:12 2026"),
        (f"Nov 29 12:40:12 n1 kernel: {XID}", BOOTED, None, "Nov 29 12:40:12"),
        (f"Nov 29 12:40:12 n1 kernel: {XID}", None, BERLIN, "Nov 29 12:40:12"),
        (f"Nov 20 12:40:12 n1 kernel: {XID}", BOOTED, BERLIN, "Nov 20 12:40:12"),
        (f"Sun 2026-11-29 12:40:12 CST n1 kernel: {XID}", BOOTED, BERLIN, "Sun 2026-11-29 12:40:12 CST"),
        (f"[Sun Oct 25 02:30:00 2026] {XID}", BOOTED, BERLIN, "Sun Oct 25 02:30:00 2026"),
        (f"[   +0.000031] {XID}", BOOTED, BERLIN, "+0.000031"),
        (XID, BOOTED, BERLIN, ""),
    ],
    ids=[
        "no boot",
        "no zone",
        "no zone or year",
        "no year",
        "not of this boot",
        "other zone",
        "hour twice",
        "delta",
        "none",
    ],
)
def test_no_year_and_no_zone_is_invented(line: str, booted: int | None, zone: str | None, stamp: str) -> None:
    (event,) = of_kind(with_log(KERNEL + line + "\n", booted=booted, zone=zone), EventKind.XID)
    assert (event.at, event.stamp) == ("", stamp)


def test_a_node_without_localtime_is_in_utc() -> None:
    timed = TimedNode()
    timed.absent("/etc/localtime")
    timed.logs["kernel.log"] = f"[Sun Nov 29 11:40:12 2026] {XID}\n"
    assert of_kind(timed.details(), EventKind.XID)[0].at == "2026-11-29T11:40:12Z"


@pytest.mark.parametrize(
    ("zone", "at"), [("+01:00", "2026-11-29T11:40:12Z"), ("UTC", "2026-11-29T12:40:12Z"), ("?", "")]
)
def test_the_clock_and_the_zone_of_a_snapshot(tmp_path: Path, zone: str, at: str) -> None:
    manifest = {
        "format": 1,
        "recorded_at": "2026-11-29T12:00:00Z",
        "clock": {"realtime": BOOTED + 5000.0, "monotonic": 5000.0, "boottime": 5000.0},
        "logs": {"kernel.log": {"source": "file", "from_boot": True, "timezone": zone}},
    }
    (tmp_path / "snapshot.json").write_text(json.dumps(manifest))
    (tmp_path / "kernel.log").write_text(f"[Sun Nov 29 12:40:12 2026] {XID}\n[ 3812.5] {XID.replace('79', '31')}\n")
    report = run_in_full(open_snapshot(tmp_path), Config(), REGISTRY, ONE_CHECK, NOW)
    assert report.details is not None
    told = {event.says[:6]: event.at for event in of_kind(report.details, EventKind.XID)}
    assert told == {"Xid 79": at, "Xid 31": "2026-11-29T11:40:12Z"}


@pytest.mark.parametrize(
    "entry", ["PM: suspend entry (deep)", "PM: suspend entry (s2idle)", "PM: hibernation: hibernation entry"]
)
def test_seconds_counted_across_a_sleep_are_of_no_known_moment(entry: str) -> None:
    """The kernel's clock stands still meanwhile: 53 minutes in this recording."""
    altered = Altered("rtx4090-workstation-display")
    xid = XID.replace("0000:05:00", "0000:01:00")
    altered.say(
        f"[  800.0] {xid.replace('79', '31')}", f"[  905.2] {entry}", f"[  906.3] {xid}", "[  907.1] PM: suspend exit"
    )
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, ONE_CHECK, NOW)
    details = report.details
    assert details is not None
    told = [(event.at, event.stamp) for event in of_kind(details, EventKind.XID)]
    assert told == [("2026-11-29T10:50:00Z", "800.0"), ("", "906.3")]
    assert details.timeline[-1].stamp == "906.3"
    since = {report.root_causes[one.cause].summary.partition("Xid ")[2][:2]: one for one in details.since}
    assert (
        since["79"].at == ""
        and "'906.3', counted from a boot of an unknown time, or by a clock that stood" in since["79"].how
    )
    assert any("for how long the node slept" in one for one in details.untold)


def test_what_has_no_moment_stays_where_its_log_has_it() -> None:
    log = f"[    1.0] {XID}\n{XID.replace('79', '31')}\n[  900.0] {XID.replace('79', '48')}\n"
    assert [event.says[:6] for event in of_kind(with_log(log), EventKind.XID)] == ["Xid 79", "Xid 31", "Xid 48"]


# The kernel -------------------------------------------------------------------------------------------------------


def test_repeats_in_a_row_are_one_event_for_each_gpu() -> None:
    lines = "".join(
        f"[ {100 + second}.0] {XID.replace('79', '31').replace('05:00', bus)}\n"
        for second in range(50)
        for bus in ("05:00", "06:00")
    )
    first, second = of_kind(with_log(KERNEL + lines), EventKind.XID)
    assert (first.gpu, second.gpu) == ("0000:05:00.0", "0000:06:00.0")
    assert first.count == second.count == 50
    assert (first.at, first.until) == ("2026-11-29T10:38:20Z", "2026-11-29T10:39:09Z")


def test_another_error_between_them_divides_repeats() -> None:
    lines = (XID, XID.replace("79", "48"), XID)
    log = "".join(f"[ {100 + second}.0] {line}\n" for second, line in enumerate(lines))
    assert [event.count for event in of_kind(with_log(log), EventKind.XID)] == [1, 1, 1]


def test_errors_that_come_in_turn_are_told_twice_and_then_counted() -> None:
    failed = "NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x24:0x65:1423)"
    log = "".join(f"[ {100 + 2 * turn}.0] {XID}\n[ {101 + 2 * turn}.0] {failed}\n" for turn in range(40))
    told = of_kind(with_log(log), EventKind.XID, EventKind.DRIVER)
    assert [(event.kind.value, event.count) for event in told] == [
        ("xid", 1),
        ("driver", 1),
        ("xid", 39),
        ("driver", 39),
    ]
    assert told[-1].until == "2026-11-29T10:39:39Z"


def test_mig_instances_are_told_apart() -> None:
    lines = [f"[ 10.0] NVRM: Xid (PCI:0000:05:00 GPU-I:0{one}): 94, pid=1, name=a, Contained" for one in (1, 2)]
    assert len(of_kind(with_log("\n".join(lines)), EventKind.XID)) == 2


def test_the_drivers_words_of_a_failed_start_are_one_event() -> None:
    lines = [
        "NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x24:0x65:1423)",
        "NVRM: GPU 0000:05:00.0: rm_init_adapter failed, device minor number 0",
    ]
    log = "".join(f"[ {10 + time}.0] {line}\n" for time in range(5) for line in lines)
    (event,) = of_kind(with_log(log), EventKind.DRIVER)
    assert (event.gpu, event.count) == ("0000:05:00.0", 10)
    assert "RmInitAdapter failed" in event.says


def test_a_message_of_several_lines_is_whole() -> None:
    log = (
        "[  400.0] NVRM: API mismatch: the client has the version 550.163.01, but\n"
        "               NVRM: this kernel module has the version 550.144.03.  Please\n"
    )
    (event,) = of_kind(with_log(log), EventKind.DRIVER)
    assert "550.163.01, but this kernel module has the version 550.144.03" in event.says


def test_the_bus_is_told_of_where_a_gpu_is_behind_it() -> None:
    error = "PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
    log = (
        f"[ 10.0] pcieport 0000:00:01.0: {error}\n"
        f"[ 11.0] nvidia 0000:06:00.0: {error}\n"
        f"[ 12.0] mlx5_core 0000:81:00.0: {error}\n"
        "[ 13.0] pcieport 0000:00:01.1: pciehp: Slot(3): Link Down\n"
        "[ 14.0] pcieport 0000:80:01.0: pciehp: Slot(9): Link Down\n"
    )
    told = [(event.gpu, event.at[-3:-1]) for event in of_kind(with_log(log), EventKind.PCIE)]
    assert told == [("0000:05:00.0", "50"), ("0000:06:00.0", "51"), ("0000:06:00.0", "53")]


def test_an_error_of_the_bus_that_is_fatal_is_not_told_with_those_that_were_corrected() -> None:
    said = "pcieport 0000:00:01.0: AER: PCIe Bus Error: severity="
    log = "".join(f"[ {10 + second}.0] {said}Corrected, type=Physical Layer, (Receiver ID)\n" for second in range(5))
    log += f"[ 20.0] {said}Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)\n"
    log += f"[ 21.0] {said}Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)\n"
    log += "[ 22.0] pcieport 0000:00:01.0: AER: device recovery successful\n"
    log += "[ 23.0] pcieport 0000:00:01.0: AER: device recovery failed\n"
    told = [
        (event.says.partition("AER: ")[2].removeprefix("PCIe Bus Error: "), event.count)
        for event in of_kind(with_log(log), EventKind.PCIE)
    ]
    assert told == [
        ("severity=Corrected, type=Physical Layer, (Receiver ID)", 5),
        ("severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)", 1),
        ("severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)", 1),
        ("device recovery successful", 1),
        ("device recovery failed", 1),
    ]


def test_tasks_that_hang_in_the_driver_and_no_others() -> None:
    log = (
        "[ 10.0] INFO: task nfsd:77 blocked for more than 120 seconds.\n[ 10.1]  nfs_wait+0x1/0x2 [nfs]\n"
        "[ 20.0] INFO: task python3:4242 blocked for more than 120 seconds.\n[ 20.1]  nvidia_open+0x196/0x430 [nvidia]\n"
        "[140.0] INFO: task python3:4242 blocked for more than 241 seconds.\n[140.1]  nvidia_open+0x196/0x430 [nvidia]\n"
    )
    (event,) = of_kind(with_log(log), EventKind.KERNEL)
    assert event.says.startswith("INFO: task python3:4242")
    assert event.count == 2


def test_processes_of_gpus_that_were_killed_and_no_others() -> None:
    log = (
        f"[ 10.0] {XID}\n"
        "[ 11.0] Out of memory: Killed process 900 (mysqld) total-vm:1kB\n"
        "[ 12.0] Out of memory: Killed process 4242 (python3) total-vm:1kB\n"
        "[ 13.0] Memory cgroup out of memory: Killed process 77 (nvidia-persiste) total-vm:1kB\n"
    )
    told = of_kind(with_log(log), EventKind.KERNEL)
    assert [event.says.partition("Killed ")[2][:12] for event in told] == ["process 4242", "process 77 ("]


def test_drivers_that_come_and_go() -> None:
    log = (
        "[  5.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8\n"
        "[ 60.0] nvidia-nvlink: Unregistered Nvlink Core, major device number 509\n"
        "[ 61.0] nouveau 0000:05:00.0: NVIDIA GH100 (180000a1)\n"
        "[ 62.0] vfio-pci 0000:06:00.0: enabling device (0000 -> 0002)\n"
    )
    told = of_kind(with_log(log), EventKind.MODULE)
    assert [event.says.split()[0] for event in told] == ["NVRM:", "nvidia-nvlink:", "nouveau", "vfio-pci"]
    assert [event.gpu for event in told] == ["", "", "0000:05:00.0", "0000:06:00.0"]


def test_errors_of_nvswitches() -> None:
    log = "[ 10.0] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 28 LTSSM Fault Up\n"
    (event,) = of_kind(with_log(log), EventKind.SXID)
    assert event.says == "fatal SXid 20034 of NVSwitch 0000:c1:00.0: Link 28 LTSSM Fault Up"


def test_words_in_other_programs_lines_are_no_events() -> None:
    details, _ = full("xid-words-in-other-programs-lines")
    assert not of_kind(details, EventKind.XID)


def test_the_boot_before() -> None:
    timed = TimedNode(zone=BERLIN)
    timed.logs["kernel.previous.log"] = f"2026-11-28T23:59:00+0100 n1 kernel: {XID}\n"
    timed.logs["kernel.log"] = KERNEL + f"[ 3812.4] {XID}\n"
    details = timed.details()
    told = [
        (event.previous_boot, event.kind, event.at)
        for event in details.timeline
        if event.kind is not EventKind.CONFIGURATION
    ]
    assert told == [
        (True, EventKind.XID, "2026-11-28T22:59:00Z"),
        (False, EventKind.BOOT, "2026-11-29T10:36:40Z"),
        (False, EventKind.XID, "2026-11-29T11:40:12Z"),
    ]


def test_seconds_of_the_boot_before_are_of_no_known_moment() -> None:
    timed = TimedNode()
    timed.logs["kernel.previous.log"] = KERNEL + f"[ 9000.0] {XID}\n"
    timed.logs["kernel.log"] = KERNEL
    before = [event for event in timed.details().timeline if event.previous_boot]
    assert [(event.kind, event.at, event.stamp) for event in before] == [
        (EventKind.BOOT, "", "0.000000"),
        (EventKind.XID, "", "9000.0"),
    ]
    assert timed.details().timeline[-1].kind is EventKind.BOOT


def test_the_most_telling_are_kept_and_the_rest_is_counted() -> None:
    codes = ("31", "13", "43", "45", "8")
    log = "".join(f"[ {100 + number}.0] {XID.replace('79', codes[number % 5])}\n" for number in range(400))
    timed = TimedNode()
    timed.logs["kernel.log"] = KERNEL + f"[ 50.0] {XID}\n" + log
    timed.text(
        "/var/log/dnf.rpm.log", "2026-11-28T06:33:15+0000 SUBDEBUG Installed: kernel-core-5.14.0-503.el9.x86_64\n"
    )
    details = timed.details()
    assert len(details.timeline) == 200
    assert details.more_events == 401 + 2 - 200
    assert of_kind(details, EventKind.PACKAGE) and of_kind(details, EventKind.BOOT)
    assert any(event.says.startswith("Xid 79") and event.findings for event in details.timeline)


def test_a_storm_is_one_event() -> None:
    log = "".join(f"[ {100 + number / 100:.2f}] {XID.replace('79', '31')}\n" for number in range(30_000))
    (event,) = of_kind(with_log(KERNEL + log), EventKind.XID)
    assert event.count == 30_000


def test_what_is_said_is_bounded() -> None:
    (event,) = of_kind(with_log(f"[ 10.0] {XID}{'A' * 5_000_000}\n"), EventKind.XID)
    assert len(event.says) <= 300 and "more characters" in event.says


def test_a_healthy_node_has_changes_and_no_errors() -> None:
    details, _ = full("dgx-b200x8")
    assert of_kind(details, EventKind.BOOT, EventKind.MODULE) and not of_kind(details, *ERRORS)


@pytest.mark.parametrize(
    "name", ["gpu-off-the-bus", "nvml-mismatch-apt-history", "xid-62-again-after-reboot", "persistenced-failed"]
)
def test_moments_never_go_back(name: str) -> None:
    moments = [event.at for event in full(name)[0].timeline if event.at]
    assert moments and moments == sorted(moments)


def test_findings_are_named_whose_evidence_a_line_is() -> None:
    details, _ = full("gpu-off-the-bus")
    (event,) = of_kind(details, EventKind.XID)
    assert {one.partition("@")[0] for one in event.findings} >= {"pcie.gpu-responds", "driver-cuda.xids"}


# What changed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "at", "says"),
    [
        (
            "/var/log/dpkg.log",
            "2026-11-28 06:24:12 upgrade nvidia-dkms-550:amd64 550.144.03-0ubuntu1 550.163.01-0ubuntu1\n",
            "2026-11-28T05:24:12Z",
            "upgraded nvidia-dkms-550 (550.144.03-0ubuntu1 -> 550.163.01-0ubuntu1)",
        ),
        (
            "/var/log/dpkg.log.1",
            "2026-10-01 06:24:12 remove linux-image-6.8.0-60-generic:amd64 6.8.0-60.63 <none>\n",
            "2026-10-01T04:24:12Z",
            "removed linux-image-6.8.0-60-generic (6.8.0-60.63)",
        ),
        (
            "/var/log/dnf.rpm.log",
            "2026-11-28T06:33:15+0000 SUBDEBUG Installed: kmod-nvidia-open-dkms-3:580.95.05-1.el9.x86_64\n",
            "2026-11-28T06:33:15Z",
            "installed kmod-nvidia-open-dkms-3:580.95.05-1.el9",
        ),
        (
            "/var/log/yum.log",
            "Nov 28 06:24:12 Updated: 3:nvidia-driver-550.163.01-1.el7.x86_64\n",
            "",
            "upgraded nvidia-driver (550.163.01-1.el7)",
        ),
        (
            "/var/log/zypp/history",
            "# a comment\n2026-11-28 06:24:12|install|nvidia-driver-G06|550.163.01-1|x86_64|root@n1|cuda|0af|\n",
            "2026-11-28T05:24:12Z",
            "installed nvidia-driver-G06 (550.163.01-1)",
        ),
        (
            "/var/log/pacman.log",
            "[2026-11-28T06:24:12+0100] [ALPM] upgraded nvidia-open (580.95.05-1 -> 580.105.08-1)\n",
            "2026-11-28T05:24:12Z",
            "upgraded nvidia-open (580.95.05-1 -> 580.105.08-1)",
        ),
        (
            "/var/log/apt/history.log",
            "\nStart-Date: 2026-11-28  06:24:07\nCommandline: apt upgrade\nUpgrade: openssl:amd64 (1, 2), nvidia-dkms-550:amd64 (1, 2)\n",
            "2026-11-28T05:24:07Z",
            "upgraded nvidia-dkms-550 (1 -> 2), by apt upgrade",
        ),
        (
            "/var/log/nvidia-installer.log",
            "nvidia-installer log file '/var/log/nvidia-installer.log'\ncreation time: Tue Nov 24 09:12:44 2026\n",
            "2026-11-24T08:12:44Z",
            "NVIDIA's installer ran (creation time: Tue Nov 24 09:12:44 2026)",
        ),
    ],
)
def test_each_package_log(path: str, text: str, at: str, says: str) -> None:
    timed = TimedNode(zone=BERLIN)
    timed.text(path, text)
    (event,) = of_kind(timed.details(), EventKind.PACKAGE)
    assert event.at == at
    assert event.says.replace("kmod-nvidia-open-dkms (", "kmod-nvidia-open-dkms-").rstrip(")") == says.rstrip(")")
    assert event.where == path


def test_packages_of_one_transaction_are_one_event() -> None:
    names = [f"libnvidia-part{number}-550" for number in range(9)]
    timed = TimedNode(zone=BERLIN)
    timed.text(
        "/var/log/dpkg.log",
        "".join(f"2026-11-28 06:24:1{number} upgrade {name}:amd64 1.0 2.0\n" for number, name in enumerate(names))
        + "2026-11-28 07:50:00 upgrade nvidia-utils-550:amd64 1.0 2.0\n"
        + "2026-11-28 07:50:01 upgrade openssl:amd64 3.0.1 3.0.2\n",
    )
    upgraded = ", ".join(f"{name}:amd64 (1.0, 2.0)" for name in names)
    begun = "Start-Date: 2026-11-28  06:24:07\nCommandline: apt upgrade\n"
    timed.text("/var/log/apt/history.log", f"{begun}Upgrade: {upgraded}\n")
    first, second = of_kind(timed.details(), EventKind.PACKAGE)
    assert first.says.startswith(
        "upgraded 9 packages of the driver (1.0 -> 2.0), by apt upgrade: libnvidia-part0-550, "
    )
    assert (first.count, first.until) == (9, "2026-11-28T05:24:18Z")
    assert second.says == "upgraded nvidia-utils-550 (1.0 -> 2.0)"


def test_what_dnf_replaces_is_not_told_twice() -> None:
    timed = TimedNode()
    timed.text(
        "/var/log/dnf.rpm.log",
        "2026-11-28T06:33:15+0000 SUBDEBUG Upgrade: nvidia-driver-580.95.05-1.el9.x86_64\n"
        "2026-11-28T06:33:41+0000 SUBDEBUG Upgraded: nvidia-driver-570.86.15-1.el9.x86_64\n",
    )
    (event,) = of_kind(timed.details(), EventKind.PACKAGE)
    assert event.says == "upgraded nvidia-driver (580.95.05-1.el9)"


def test_files_by_the_time_of_their_last_change() -> None:
    timed = TimedNode()
    timed.written("/etc/docker/daemon.json", BOOTED - 60)
    timed.written("/etc/modprobe.d/nvidia.conf", BOOTED - 30)
    timed.written("/etc/modprobe.d/alsa.conf", BOOTED - 20)
    told = [(event.where, event.at) for event in of_kind(timed.details(), EventKind.CONFIGURATION)]
    assert told == [
        ("/etc/docker/daemon.json", "2026-11-29T10:35:40Z"),
        ("/etc/modprobe.d/nvidia.conf", "2026-11-29T10:36:10Z"),
    ]


@pytest.mark.parametrize("mtime", [1e30, -1e12])
def test_a_time_that_no_calendar_has_costs_no_timeline(mtime: float) -> None:
    timed = TimedNode()
    timed.logs["kernel.log"] = KERNEL + f"[ 3812.4] {XID}\n"
    timed.written("/etc/docker/daemon.json", mtime)
    details = timed.details()
    assert [event.at for event in of_kind(details, EventKind.CONFIGURATION)] == [""]
    assert [event.at for event in of_kind(details, EventKind.XID)] == ["2026-11-29T11:40:12Z"]


def test_daemons_and_the_journals_that_findings_cite() -> None:
    details, _ = full("fabric-manager-timed-out-at-its-start")
    told = [event.says for event in of_kind(details, EventKind.SERVICE)]
    assert any(says.startswith("dockerd (PID 1304) was started") for says in told)
    assert "nvidia-fabricmanager.service: Failed with result 'timeout'." in told


def test_a_unit_that_is_started_again_and_again_is_told_once() -> None:
    details, _ = full("persistenced-failed")
    failed = [event for event in of_kind(details, EventKind.SERVICE) if "Failed to start" in event.says]
    assert [event.count for event in failed] == [6]


class WithJournal(Altered):
    """A fixture with other lines in a unit's journal."""

    def __init__(self, name: str, unit: str, *lines: str, before: bool = False) -> None:
        """`before` puts them before the fixture's own."""
        super().__init__(name)
        self._journal, self._lines, self._before = f"journal/{unit}.log", lines, before

    def log(self, name: str) -> Log | Unread:
        """A log."""
        log = super().log(name)
        if name != self._journal or not isinstance(log, Log):
            return log
        return replace(log, text="\n".join((*self._lines, log.text if self._before else "")))


@pytest.mark.parametrize(
    ("failed", "started", "at"),
    [
        ("09:37:02", "09:38:02", "2026-11-29T10:49:03Z"),  # it ran for long
        (
            "10:37:02",
            "10:40:02",
            "2026-11-29T10:37:02Z",
        ),  # one that ends soon after each start says that it was started, too
        ("09:37:02", None, "2026-11-29T09:37:02Z"),
    ],
)
def test_a_failure_that_was_cured_is_not_told_with_the_one_of_now(failed: str, started: str | None, at: str) -> None:
    unit = "nvidia-fabricmanager.service"
    lines = [f"2026-11-29T{failed}+00:00 n1 systemd[1]: {unit}: Failed with result 'timeout'."]
    if started is not None:
        lines.append(f"2026-11-29T{started}+00:00 n1 systemd[1]: Started NVIDIA fabric manager service.")
    altered = WithJournal("fabric-manager-timed-out-at-its-start", unit, *lines, before=True)
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    (number,) = [place for place, cause in enumerate(report.root_causes) if cause.check == "fabric.manager-running"]
    assert report.details.since[number].at == at


def test_containers_that_do_not_start_do_so_since_the_first() -> None:
    """The finding cites the line about the last of three; that dockerd came up in between has cured nothing."""
    since, details = since_of("start-fails-ldconfig-killed", "toolkit.containers-start")
    assert (since.at, since.how) == ("2026-11-29T11:21:04Z", "the first of 3 like lines of a journal that it cites")
    (event,) = [one for one in of_kind(details, EventKind.SERVICE) if "Handler for POST" in one.says]
    assert (event.count, event.until) == (3, "2026-11-29T11:48:10Z")
    unit = "docker.service"
    log = node("start-fails-ldconfig-killed").log(f"journal/{unit}.log")
    assert isinstance(log, Log)
    began = "2026-11-29T11:22:00+0000 n5 systemd[1]: Started Docker Application Container Engine."
    lines = sorted([*log.text.splitlines(), began], key=lambda line: line[:19])
    altered = WithJournal("start-fails-ldconfig-killed", unit, *lines)
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    (number,) = [place for place, cause in enumerate(report.root_causes) if cause.check == "toolkit.containers-start"]
    assert report.details.since[number].at == "2026-11-29T11:21:04Z"


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (None, "2026-11-29T03:40:41Z"),
        ("License acquired successfully. (Info: api.cls.licensing.nvidia.com)", "2026-11-29T10:26:41Z"),
    ],
)
def test_a_licence_that_was_got_in_between_divides_failures(line: str | None, at: str) -> None:
    name, unit = "vgpu-guest-unlicensed-for-hours", "nvidia-gridd.service"
    log = node(name).log(f"journal/{unit}.log")
    assert isinstance(log, Log)
    got = [f"2026-11-29T10:00:00+00:00 l4n1 nvidia-gridd[912]: {line}"] if line is not None else []
    altered = WithJournal(name, unit, *sorted([*log.text.splitlines(), *got], key=lambda one: one[:19]))
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    (number,) = [place for place, cause in enumerate(report.root_causes) if cause.check == "sharing.vgpu-licence"]
    assert report.details.since[number].at == at


@pytest.mark.parametrize("said", ["systemd[1]: ", "Started ", "a", "1 "])
def test_a_long_line_of_a_journal_holds_nobody_up(said: str) -> None:
    """One with the words of systemd in it a thousand times is gone through once."""
    name, unit = "fabric-manager-timed-out-at-its-start", "nvidia-fabricmanager.service"
    long = f"2026-11-29T10:36:00+00:00 n1 x[1]: {said * (2_000_000 // len(said))}"
    altered = WithJournal(name, unit, *[long] * 2, before=True)
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    assert report.details.since[0].at == "2026-11-29T10:49:03Z"


def test_failures_are_told_apart_without_a_zone_too() -> None:
    unit = "nvidia-fabricmanager.service"
    said = (
        f"09:37:02 n1 systemd[1]: {unit}: Failed with result 'timeout'.",
        "09:38:02 n1 systemd[1]: Started NVIDIA fabric manager service.",
        f"10:49:03 n1 systemd[1]: {unit}: Failed with result 'timeout'.",
        "10:49:03 n1 systemd[1]: Failed to start NVIDIA fabric manager service.",
    )
    altered = WithJournal("fabric-manager-timed-out-at-its-start", unit, *(f"Nov 29 {line}" for line in said))
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    (number,) = [place for place, cause in enumerate(report.root_causes) if cause.check == "fabric.manager-running"]
    assert [one.at for one in report.details.since[number].evidence] == ["Nov 29 10:49:03"]


def test_a_start_that_went_well_is_no_beginning() -> None:
    """The instances were there after it, and are gone since a time that nothing tells."""
    said = ("55+00:00 n1 systemd[1]: Starting", "58+00:00 n1 systemd[1]: Finished")
    lines = [f"2026-11-29T10:36:{one} Configure MIG on NVIDIA GPUs." for one in said]
    altered = WithJournal("mig-manager-failed-at-boot", "nvidia-mig-manager.service", *lines)
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    (cause,) = report.root_causes
    evidence = report.finding(cause.findings[0]).evidence
    assert any(one.shows.startswith("Starting Configure MIG") and one.at is not None for one in evidence)
    assert report.details.since[0].at == "" and report.details.since[0].how.startswith("not known: ")


# What is not told -------------------------------------------------------------------------------------------------


def test_logs_that_were_not_read_are_named() -> None:
    details = TimedNode().details()
    told = "\n".join(details.untold)
    assert "timeline: what the kernel said since the boot: " in told
    assert "timeline: what the kernel said before the last boot: " in told
    assert "timeline: which packages were changed: " in told


def test_a_log_that_has_lost_its_beginning_is_named() -> None:
    timed = TimedNode()
    timed.from_boot = False
    timed.logs["kernel.log"] = f"[ 9000.0] {XID}\n"
    assert any("does not reach back to the boot" in one for one in timed.details().untold)


def test_nothing_is_said_to_lack_where_all_was_read() -> None:
    timed = TimedNode(zone=BERLIN)
    timed.logs |= {"kernel.log": KERNEL, "kernel.previous.log": KERNEL}
    timed.text("/var/log/dpkg.log", "")
    assert not [one for one in timed.details().untold if one.startswith("timeline: ")]


@pytest.mark.parametrize(("booted", "words"), [(None, "when the boot began"), (BOOTED, "the zone of local times")])
def test_why_times_stand_as_they_are(booted: int | None, words: str) -> None:
    stamp = "[ 3812.4]" if booted is None else "[Sun Nov 29 12:40:12 2026]"
    assert any(words in one for one in with_log(f"{stamp} {XID}\n", booted=booted).untold)


# Since when -------------------------------------------------------------------------------------------------------


def test_an_xid_began_with_the_first_of_its_kind() -> None:
    altered = Altered("xid-62-again-after-reboot")
    lines = [XID.replace("79", code).replace("0000:05:00", "0000:87:00") for code in ("62", "45")] * 40
    altered.say(*(f"[ {4000 + number}.0] {line}" for number, line in enumerate(lines)))
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    (number,) = [number for number, cause in enumerate(report.root_causes) if cause.check == "driver-cuda.xids"]
    xids = [event for event in of_kind(report.details, EventKind.XID) if not event.previous_boot]
    assert [event.count for event in xids] == [1, 1, 40, 40]
    assert report.details.since[number].at == xids[0].at == "2026-11-29T11:32:57Z"


def test_a_mismatch_began_with_the_kernels_first_word_and_the_upgrade_was_around_then() -> None:
    since, details = since_of("nvml-mismatch-apt-history", "driver-cuda.nvml-answers")
    assert (since.at, since.how) == ("2026-11-28T06:28:39Z", "the first message about it in the kernel log")
    around = [details.timeline[place] for place in since.around]
    assert around[0].kind is EventKind.PACKAGE
    assert "7 packages of the driver (550.144.03-0ubuntu0.22.04.1 -> 550.163.01-0ubuntu0.22.04.1)" in around[0].says
    assert since.evidence[0].shows.startswith("NVRM: API mismatch")


def test_a_rival_has_the_gpus_since_boot() -> None:
    since, _ = since_of("nouveau-holds-all-eight", "kernel-module.gpu-bound")
    assert since.at and since.how.startswith("since boot")


def test_what_the_kernel_said_of_the_bus_at_its_start_was_so_at_boot() -> None:
    since, _ = since_of("lost-and-probe-failed-two-gpus", "pcie.bars-assigned")
    assert since.how == "at boot or before it: the kernel said so 3 s after its start"


def test_a_service_began_to_fail_with_its_journals_line() -> None:
    since, details = since_of("fabric-manager-timed-out-at-its-start", "fabric.manager-running")
    assert since.at == "2026-11-29T10:49:03Z"
    assert not any("Failed" in details.timeline[place].says for place in since.around)


def test_a_file_says_what_it_says_since_it_was_written() -> None:
    since, _ = since_of("options-applied-late-initramfs", "kernel-module.parameters-applied")
    assert since.at and since.how == (
        "then at the earliest: /etc/modprobe.d/nvidia-profiling.conf was written last, and says so since"
    )


def _since_of_file(name: str, path: str, mtime: float) -> Since:
    """Since when the only root cause of a fixture is there, of which a file has a time."""
    altered = Altered(name)
    file = altered.read(path)
    assert isinstance(file, TextFile)
    altered.overlay.put(path, Record(entry=Entry(path, EntryType.FILE, 0o644, 0, 0, mtime=mtime), text=file.text))
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    (since,) = report.details.since
    return since


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("cdi-spec-with-a-tab", "/etc/cdi/nvidia.yaml"),
        ("toolkit-config-malformed", "/etc/nvidia-container-runtime/config.toml"),
        ("daemon-json-trailing-comma", "/etc/docker/daemon.json"),
        ("daemon-json-default-runtime-undefined", "/etc/docker/daemon.json"),
    ],
)
def test_a_file_that_is_wrong_by_itself_is_so_since_it_was_written(name: str, path: str) -> None:
    since = _since_of_file(name, path, BOOTED - 60)
    assert since.at == "2026-11-29T10:35:40Z"
    assert since.how == f"then at the earliest: {path} was written last, and says so since"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("cdi-spec-stale-after-driver-upgrade", "/etc/cdi/nvidia.yaml"),
        ("cdi-spec-names-a-gpu-that-left", "/etc/cdi/nvidia.yaml"),
        ("daemon-json-runtime-binary-missing", "/etc/docker/daemon.json"),
    ],
)
def test_a_file_that_something_else_made_wrong_is_no_beginning(name: str, path: str) -> None:
    since = _since_of_file(name, path, BOOTED - 60)
    assert since.at == "" and f"; {path}, which it cites, was written last at 2026-11-29 10:35:40 UTC" in since.how


@pytest.mark.parametrize("mtime", [NOW.timestamp() + 86400, 1e30])
def test_a_file_of_the_future_is_no_beginning(mtime: float) -> None:
    since = _since_of_file("cdi-spec-with-a-tab", "/etc/cdi/nvidia.yaml", mtime)
    assert since.at == "" and since.how.startswith("not known: ")


@pytest.mark.parametrize("name", ["containerd-older-than-its-drop-in", "daemon-json-newer-than-dockerd-by-docker-info"])
def test_a_file_that_was_not_loaded_is_newer_than_its_daemon(name: str) -> None:
    details, _ = full(name)
    (since,) = details.since
    assert since.at > "2026-11-29T11:" and since.how.startswith("then at the earliest: /etc/")


@pytest.mark.parametrize(
    "name", ["module-not-loaded", "module-blacklisted-on-cmdline", "no-module-after-dnf-kernel-update"]
)
def test_a_gpu_that_no_driver_took_is_unheld_since_boot(name: str) -> None:
    since, details = since_of(name, "kernel-module.gpu-bound")
    (boot,) = [event for event in of_kind(details, EventKind.BOOT) if not event.previous_boot]
    assert since.at == boot.at and since.how.startswith("since boot: the kernel log, of which nothing is lost")


def test_a_gpu_is_unheld_since_the_driver_was_unloaded() -> None:
    since, _ = since_of("module-unloaded-and-container-without-nodes", "kernel-module.gpu-bound")
    assert (since.at, since.evidence[0].at) == ("2026-11-29T11:46:50Z", "4210.733841")
    assert since.how == "the driver was unloaded then, and the kernel log tells of no load since"


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8",
        "nouveau 0000:18:00.0: NVIDIA GH100 (180000a1)",
        "vfio-pci 0000:18:00.0: enabling device (0000 -> 0002)",
    ],
)
def test_where_a_driver_came_the_boot_is_no_beginning(line: str) -> None:
    altered = Altered("module-not-loaded")
    altered.say(f"[ 900.0] {line}")
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    assert not any(one.how.startswith("since boot") for one in report.details.since)


def test_a_log_that_has_lost_lines_tells_of_no_boot() -> None:
    altered = Altered("module-not-loaded")
    altered.say()
    assert altered._log is not None
    altered._log = replace(altered._log, from_boot=False)
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    assert report.details is not None
    assert [one.at for one in report.details.since] == [""]


@pytest.mark.parametrize(
    ("name", "at", "program"),
    [
        ("container-lost-gpu-after-reload", "2026-11-29T11:38:30Z", "sd_devices #41"),
        ("container-uvm-denied-only", "2026-11-29T10:51:20Z", "#40"),
        (
            "slurm-job-denied-by-unit-policy",
            "2026-11-29T11:28:40Z",
            "sd_devices #40",
        ),  # Slurm's own denies one GPU, and rightly
    ],
)
def test_a_node_is_denied_since_a_program_was_loaded_that_denies_it(name: str, at: str, program: str) -> None:
    since, _ = since_of(name, "cgroup.device-rules")
    assert since.at == at
    assert since.how == f"then at the latest: the device program {program} was loaded, which denies it"
    assert since.evidence[0].where.startswith("bpf(2) on /sys/fs/cgroup/")


def test_what_a_list_denies_is_denied_since_an_unknown_time() -> None:
    since, _ = since_of("container-lost-gpu-after-reload-cgroup-v1", "cgroup.device-rules")
    assert since.at == "" and since.how.startswith("not known: ")


def test_a_gpu_is_left_out_since_the_driver_was_loaded() -> None:
    since, details = since_of("gpu-excluded-by-option", "kernel-module.gpu-not-excluded")
    (loaded,) = [event for event in of_kind(details, EventKind.MODULE) if event.says.startswith("NVRM: loading")]
    assert since.at == loaded.at and since.how.startswith("the driver was loaded then")


def test_a_cause_began_no_later_than_what_follows_from_it() -> None:
    since, details = since_of("xid-48-and-its-aftermath", "health.ecc-uncorrected")
    assert since.how.startswith("then at the latest: ")
    cited = {event.says for event in of_kind(details, EventKind.XID) if event.findings}
    assert cited and not any(details.timeline[place].says in cited for place in since.around)


def test_what_nothing_tells_is_not_known_and_why() -> None:
    since, _ = since_of("node-missing-one-gpu", "device-nodes.gpu-node")
    assert since.at == "" and since.how.startswith("not known: what it cites tells what is, not since when")
    assert since.around == () and since.evidence == ()


def test_changes_that_could_not_matter_or_lie_far_off_are_not_around() -> None:
    altered = Altered("xid-62-again-after-reboot")
    log = (
        "2026-11-29T10:33:15+0000 SUBDEBUG Installed: docker-ce-29.0.0-1.el9.x86_64\n"
        "2026-11-29T10:35:15+0000 SUBDEBUG Installed: nvidia-driver-580.95.05-1.el9.x86_64\n"
        "2026-11-20T11:35:15+0000 SUBDEBUG Installed: nvidia-utils-570.95.05-1.el9.x86_64\n"
    )
    altered.text("/var/log/dnf.rpm.log", log)
    report = run_in_full(altered, config_of(altered.whole), REGISTRY, Selection(), NOW)
    details = report.details
    assert details is not None
    (since,) = [one for one in details.since if report.root_causes[one.cause].check == "driver-cuda.xids"]
    told = [details.timeline[place].says for place in since.around]
    assert "installed nvidia-driver (580.95.05-1.el9)" in told
    assert not any("docker" in says or "nvidia-utils" in says or "still runs" in says for says in told)


@pytest.mark.parametrize("name", ["gpu-off-the-bus", "nvml-mismatch-apt-history", "mig-manager-failed-at-boot"])
def test_every_place_is_one_in_the_timeline_and_every_cause_is_answered(name: str) -> None:
    details, causes = full(name)
    assert [one.cause for one in details.since] == list(range(len(causes)))
    places: Sequence[int] = [place for one in details.since for place in one.around]
    assert all(0 <= place < len(details.timeline) for place in places)
    assert all(len(one.around) <= 5 and one.how for one in details.since)
    assert msgspec.json.decode(msgspec.json.encode(details), type=Details) == details
