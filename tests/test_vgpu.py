"""vGPU: the licence of a guest, the manager of a host, and which drivers of guests it takes."""

import time
from collections.abc import Callable

import pytest

from gpudoctor.knowledge.vgpu_remedies import takes
from gpudoctor.report import Report
from gpudoctor.sources.recorded import Record
from gpudoctor.testing import node, run_check
from gpudoctor.verdicts import Action, Status
from tests.small_node import alarms, cited, steps
from tests.vgpu_node import AnswerNode

LICENCE, VERSIONS, MANAGER = (f"sharing.vgpu-{name}" for name in ("licence", "versions", "manager"))
REFUSED = (
    "2026-11-29T09:00:10+0000 gw1 nvidia-gridd[812]: Failed to acquire license from dls.example.org "
    "(Info: NVIDIA Virtual Compute Server - Error: The specified token is invalid)\n"
)
ACQUIRED = (
    "2026-11-29T09:00:12+0000 gw1 nvidia-gridd[812]: License acquired successfully. "
    "(Info: dls.example.org, NVIDIA Virtual Compute Server; Expiry: 2026-11-30 9:0:12 GMT)\n"
)
STARTED = "2026-11-29T09:00:09+0000 gw1 nvidia-gridd[812]: Started (812)\n"


def guest(*, licensed: bool = False, runs: bool = True, said: str = "", token: bool = True) -> AnswerNode:
    """A guest with one virtual GPU and one that was passed through."""
    node = AnswerNode()
    product = {"vgpu.product": "NVIDIA Virtual Compute Server", "vgpu.licensed": licensed}
    node.fields[0].update({"virtualization.mode": "vgpu", **product})
    node.fields[1].update({"virtualization.mode": "passthrough"})
    node.more[0]["name"] = "GRID A100D-20C"
    if runs:
        node.process(812, "/system.slice/nvidia-gridd.service", comm="nvidia-gridd")
    node.folder("/etc/nvidia/ClientConfigToken")
    if token:
        node.text("/etc/nvidia/ClientConfigToken/client_configuration_token_11-29-2026.tok", "secret")
    node.text("/proc/uptime", "7200.00 14000.00\n")
    node.text("/etc/nvidia/gridd.conf", "# ServerAddress=\nFeatureType=1\n")
    if said:
        node.journal("nvidia-gridd", said)
    return node


def test_a_licensed_guest_passes_and_a_gpu_passed_through_is_not_judged() -> None:
    report = guest(licensed=True, said=STARTED + ACQUIRED).report()
    (found,) = report.result(LICENCE).findings
    assert (found.subject.key, found.status) == ("0000:05:00.0", Status.PASS)
    assert "NVIDIA Virtual Compute Server" in found.summary


def test_an_old_failure_accuses_nobody_who_has_a_licence_now() -> None:
    assert not alarms(guest(licensed=True, said=REFUSED + ACQUIRED).report(), LICENCE)
    assert not alarms(guest(licensed=True, said=REFUSED).report(), LICENCE)


@pytest.mark.parametrize(
    ("made", "words", "shows"),
    [
        (lambda: guest(said=STARTED + REFUSED), "The specified token is invalid", "Failed to acquire license"),
        (lambda: guest(runs=False, said=STARTED), "does not run", "no nvidia-gridd runs"),
        (lambda: guest(token=False, said=STARTED), "no token in /etc/nvidia/ClientConfigToken", "no file *.tok"),
    ],
)
def test_why_a_guest_has_no_licence(made: Callable[[], AnswerNode], words: str, shows: str) -> None:
    found = made().only(LICENCE)
    assert found.status is Status.FAIL
    assert found.breaks == "nothing"
    assert found.subject.key == "0000:05:00.0"
    assert "GRID A100D-20C has no licence" in found.summary
    assert words in found.summary
    assert shows in cited(found)
    assert "vgpu.licensed: False" in cited(found)
    assert "secret" not in cited(found)
    assert found.remedies[0].action is Action.CHANGE_CONFIG
    assert "nvidia-gridd" in steps(found)


@pytest.mark.parametrize(("uptime", "ended"), [("600.00 1.00\n", Status.WARN), ("7200.00 1.00\n", Status.FAIL)])
def test_a_service_that_still_asks_is_a_warning_until_the_guest_is_held_back(uptime: str, ended: Status) -> None:
    one = guest(said=STARTED)
    one.text("/proc/uptime", uptime)
    found = one.only(LICENCE)
    assert found.status is ended
    assert ("no licence (NVIDIA Virtual Compute Server) yet" in found.summary) is (ended is Status.WARN)
    assert "has said nothing" in found.summary


def test_what_shows_why_stands_before_the_product() -> None:
    shown = [one.shows for one in guest(said=STARTED + REFUSED).only(LICENCE).evidence[:3]]
    assert shown[0] == "vgpu.licensed: False"
    assert "7200.00 seconds" in shown[1]
    assert "Failed to acquire license" in shown[2]


def test_a_hidden_configuration_does_not_show_that_there_is_no_token() -> None:
    one = guest(token=False, said=STARTED + REFUSED)
    one.tree.put("/etc/nvidia/gridd.conf", Record(error="EACCES"))
    found = one.only(LICENCE)
    assert "no token" not in found.summary
    assert "The specified token is invalid" in found.summary


def test_a_folder_for_tokens_is_quoted_in_commands_and_a_relative_one_is_not_taken() -> None:
    one = guest(said=STARTED + REFUSED)
    one.text("/etc/nvidia/gridd.conf", 'ClientConfigTokenPath="/srv/my tokens; reboot"\n')
    one.folder("/srv")
    one.folder("/srv/my tokens; reboot")
    assert "ls -l '/srv/my tokens; reboot'" in steps(one.only(LICENCE))
    one.text("/etc/nvidia/gridd.conf", "ClientConfigTokenPath=../../tokens\n")
    assert "ls -l /etc/nvidia/ClientConfigToken" in steps(one.only(LICENCE))


@pytest.mark.parametrize("token", [True, False])
def test_in_the_operators_driver_container_its_own_files_count(*, token: bool) -> None:
    one = guest(runs=False, token=False)
    one.process(812, f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{'a' * 64}.scope", comm="nvidia-gridd")
    inside = "/proc/812/root/etc/nvidia"
    one.text(f"{inside}/gridd.conf", "FeatureType=1\n")
    one.folder(f"{inside}/ClientConfigToken")
    if token:
        one.text(f"{inside}/ClientConfigToken/a.tok", "secret")
    one.complete.append(f"{inside}/ClientConfigToken")
    found = one.only(LICENCE)
    assert (f"no token in {inside}/ClientConfigToken" in found.summary) is not token
    assert "licensingConfig" in steps(found)
    assert "systemctl" not in steps(found)


def test_a_server_in_the_configuration_needs_no_token() -> None:
    one = guest(token=False, said=STARTED + REFUSED)
    one.text("/etc/nvidia/gridd.conf", "ServerAddress = 10.0.0.7\nServerPort=7070\n")
    assert "no token" not in one.only(LICENCE).summary


def test_the_guests_table_row_says_what_is_not_known_within_it() -> None:
    row = guest(licensed=True).report().sharing[0]
    assert row.how.value == "vgpu"
    assert "guest" in row.detail
    assert "frame buffer" in row.memory
    assert "not known" in row.compute


GUEST = (
    "2026-11-29T09:10:01+0000 hv1 nvidia-vgpu-mgr[4021]: notice: vmiop_log: (0x0): ######## Guest NVIDIA Driver Information: ########\n"
    "2026-11-29T09:10:01+0000 hv1 nvidia-vgpu-mgr[4021]: notice: vmiop_log: (0x0): Driver Version: {guest}\n"
    "2026-11-29T09:10:01+0000 hv1 nvidia-vgpu-mgr[4021]: notice: vmiop_log: (0x0): vGPU version: 0x1c0001\n"
)
OWN = (
    "2026-11-29T09:10:00+0000 hv1 nvidia-vgpu-mgr[4021]: notice: vmiop_log: (0x0): ######## vGPU Manager Information: ########\n"
    "2026-11-29T09:10:00+0000 hv1 nvidia-vgpu-mgr[4021]: notice: vmiop_log: (0x0): Driver Version: 550.144.02\n"
)
NEWER = (
    "2026-11-29T09:10:02+0000 hv1 nvidia-vgpu-mgr[4021]: error: vmiop_log: (0x0): Incompatible Guest/Host drivers: Guest VGX version is "
    "newer than the maximum version supported by the Host. Disabling vGPU.\n"
)


def host(said: str = OWN + GUEST.format(guest="535.230.02"), *, runs: bool = True) -> AnswerNode:
    """A host with two GPUs for virtual machines."""
    node = AnswerNode()
    node.both(virtualization__mode="host_vgpu", vgpu__active=2)
    if runs:
        for pid in (4000, 4021):
            node.process(pid, "/system.slice/nvidia-vgpu-mgr.service", comm="nvidia-vgpu-mgr")
    node.journal("nvidia-vgpu-mgr", said)
    return node


def status(report: Report, check: str) -> Status:
    """How a check ended."""
    return report.result(check).status


def test_a_host_with_fitting_guests_passes() -> None:
    report = host().report()
    assert (status(report, MANAGER), status(report, VERSIONS)) == (Status.PASS, Status.PASS)
    assert "535.230.02" in report.result(VERSIONS).findings[0].summary
    row = report.sharing[0]
    assert (row.how.value, row.workloads) == ("vgpu", 2)
    assert "frame buffer" in row.memory


def test_a_refused_guest_is_told_with_the_managers_words() -> None:
    found = host(OWN + GUEST.format(guest="580.95.05") + NEWER).only(VERSIONS)
    assert found.status is Status.FAIL
    assert found.summary.startswith("a guest with driver 580.95.05 was refused its virtual GPU")
    assert "newer than the maximum version supported by the Host" in found.summary
    assert "580.95.05" in cited(found)
    assert found.remedies[0].action is Action.INSTALL_PACKAGE


def test_a_guest_too_far_from_the_manager_is_a_warning() -> None:
    found = host(OWN + GUEST.format(guest="470.256.02")).only(VERSIONS)
    assert found.status is Status.WARN
    assert found.summary.startswith("a guest has driver 470.256.02")
    assert "guest: notice: vmiop_log: (0x0): Driver Version: 470.256.02" in cited(found)
    assert "550.144.02" in found.summary


def test_a_guest_that_has_ended_is_no_fault_of_today() -> None:
    gone = GUEST.format(guest="470.256.02") + NEWER
    report = host(gone.replace("4021", "3999") + OWN + GUEST.format(guest="535.230.02")).report()
    assert status(report, VERSIONS) is Status.PASS
    assert status(host(gone.replace("4021", "3999")).report(), VERSIONS) is Status.SKIP


def test_a_guest_that_got_another_driver_is_told_by_that() -> None:
    said = OWN + GUEST.format(guest="580.95.05") + NEWER + GUEST.format(guest="550.144.02")
    assert status(host(said).report(), VERSIONS) is Status.PASS


@pytest.mark.parametrize("words", [NEWER, ""])
def test_a_guest_that_may_have_ended_is_not_known(words: str) -> None:
    one = host((OWN + GUEST.format(guest="470.256.02") + words).replace("4021", "3999"))
    one.complete = [path for path in one.complete if path != "/proc"]
    report = one.report()
    assert not alarms(report, VERSIONS)
    assert status(report, VERSIONS) is Status.UNKNOWN


def test_guests_that_write_at_the_same_time_are_told_apart() -> None:
    own, other = OWN.splitlines(keepends=True), GUEST.format(guest="535.230.02").replace("4021", "4000")
    guests = other.splitlines(keepends=True)
    report = host("".join((own[0], guests[0], guests[1], own[1]))).report()
    (found,) = report.result(VERSIONS).findings
    assert found.summary == "it refused no guest: its version is 550.144.02, that of its guests 535.230.02"


def test_a_million_lines_of_guests_are_read_in_time() -> None:
    many = [GUEST.format(guest="535.230.02").replace("4021", str(number)) for number in range(10_000, 110_000)]
    one = host(OWN + "".join(many))
    one.complete = [path for path in one.complete if path != "/proc"]
    started = time.monotonic()
    report = one.report()
    assert time.monotonic() - started < 20
    assert status(report, VERSIONS) is Status.PASS


def test_a_manager_that_does_not_run() -> None:
    found = host(runs=False).only(MANAGER)
    assert found.status is Status.FAIL
    assert "no virtual machine can start" in found.summary
    assert "systemctl start nvidia-vgpud nvidia-vgpu-mgr" in steps(found)


def test_the_module_alone_shows_a_host() -> None:
    one = AnswerNode()
    one.folder("/sys/module/nvidia_vgpu_vfio")
    assert "/sys/module/nvidia_vgpu_vfio" in cited(one.only(MANAGER))


@pytest.mark.parametrize("check", [LICENCE, VERSIONS, MANAGER])
@pytest.mark.parametrize("name", ["h100x8", "kvm-guest-h100-passthrough", "vgpu-guest-driver-550.144.02"])
def test_nodes_without_vgpu_are_not_judged(check: str, name: str) -> None:
    assert run_check(check, node(name)).status is Status.SKIP


@pytest.mark.parametrize(
    ("manager", "guest", "fits"),
    [
        (580, 580, True),
        (580, 570, True),
        (580, 535, True),
        (580, 550, False),
        (535, 550, False),
        (535, 470, True),
        (550, 470, False),
        (600, 580, None),
    ],
)
def test_which_guests_a_manager_takes(manager: int, guest: int, fits: bool | None) -> None:
    assert takes(manager, guest) is fits


def test_a_manager_that_may_run_unseen_is_no_fault() -> None:
    one = host(runs=False)
    one.complete = [path for path in one.complete if path != "/proc"]
    report = one.report()
    assert not alarms(report, MANAGER)
    assert status(report, MANAGER) is Status.UNKNOWN


@pytest.mark.parametrize(("word", "ended"), [("Unrestricted", Status.WARN), ("Restricted", Status.FAIL)])
def test_a_guest_that_is_not_held_back_yet_is_a_warning(word: str, ended: Status) -> None:
    one = guest(token=False, said=STARTED + REFUSED)
    one.printed[("nvidia-smi", "-q")] = f"        License Status                    : Unlicensed ({word})\n"
    found = one.only(LICENCE)
    assert found.status is ended
    assert "no token" in found.summary
    assert ("License Status: Unlicensed (Restricted)" in cited(found)) is (ended is Status.FAIL)


@pytest.mark.parametrize(("uptime", "ended"), [("600.00 1.00\n", Status.WARN), ("1300.00 1.00\n", Status.FAIL)])
def test_without_nvidia_smi_the_time_since_the_boot_tells(uptime: str, ended: Status) -> None:
    one = guest(said=STARTED + REFUSED)
    one.text("/proc/uptime", uptime)
    assert one.only(LICENCE).status is ended
