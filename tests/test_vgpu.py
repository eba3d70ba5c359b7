"""vGPU: the licence of a guest, the manager of a host, and which drivers of guests it takes."""

from collections.abc import Callable

import pytest

from gpudoctor.knowledge.vgpu_remedies import takes
from gpudoctor.report import Report
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


def test_a_service_that_still_asks_is_a_warning() -> None:
    found = guest(said=STARTED).only(LICENCE)
    assert found.status is Status.WARN
    assert "yet" in found.summary


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
        node.process(4000, "/system.slice/nvidia-vgpu-mgr.service", comm="nvidia-vgpu-mgr")
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
    assert "newer than the maximum version supported by the Host" in found.summary
    assert "580.95.05" in cited(found)
    assert found.remedies[0].action is Action.INSTALL_PACKAGE


def test_a_guest_too_far_from_the_manager_is_a_warning() -> None:
    found = host(OWN + GUEST.format(guest="470.256.02")).only(VERSIONS)
    assert found.status is Status.WARN
    assert "470.256.02" in found.summary
    assert "550.144.02" in found.summary


def test_a_manager_that_does_not_run() -> None:
    found = host(runs=False).only(MANAGER)
    assert found.status is Status.FAIL
    assert "no virtual machine can start" in found.summary
    assert "systemctl restart nvidia-vgpud nvidia-vgpu-mgr" in steps(found)


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
