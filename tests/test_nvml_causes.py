"""Why NVML fails: the library's files, versions that do not fit, who may not open what, what hangs, and what a code means."""

import json
from typing import Any

import pytest

from gpudoctor.chain import Link
from gpudoctor.facts.loader import LoaderDirectories
from gpudoctor.facts.nvml_library import NvmlLibraries
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Log
from gpudoctor.knowledge import nvml_codes, nvml_errors, nvml_remedies
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Action, Status, Why
from tests.altered import Altered
from tests.captures import Builder, diagnose, fact
from tests.small_node import COMPLETE, SmallNode, alarms, cited, steps
from tests.test_cli import gpudoctor

ANSWERS, LIBRARY, QUERIES = "driver-cuda.nvml-answers", "driver-cuda.nvml-library", "driver-cuda.queries-answered"
DEBIAN = "/usr/lib/x86_64-linux-gnu"
LOADED = "550.163.01"
FIRST = "0000:18:00.0"


def h100x8(init: int | None = None, **changes: Any) -> Altered:
    """The healthy node, on which NVML's start gives a code."""
    altered = Altered("h100x8")
    if init is not None:
        altered.answers["nvml"] = Answer(data={"init": init}, **changes)
    return altered


def put_link(altered: Altered, path: str, to: str) -> None:
    """A symbolic link on top."""
    altered.overlay.put(path, Record(entry=Entry(path, EntryType.LINK, to=to)))


def put_file(altered: Altered, path: str) -> None:
    """A file whose content nobody keeps."""
    altered.overlay.put(path, Record(entry=Entry(path, EntryType.FILE)))


def contained(altered: Altered) -> Altered:
    """The same seen from within a container: its /dev is not the kernel's own."""
    altered.error("/dev/kmsg")
    return altered


def the_cause(report: Report, check: str) -> Finding:
    """The one root cause, which is of this check."""
    assert [cause.check for cause in report.root_causes] == [check], [c.summary for c in report.root_causes]
    return report.finding(report.root_causes[0].findings[0])


# The library's files ------------------------------------------------------------------------------------------------


def libraries_of(builder: Builder, *complete: str) -> NvmlLibraries:
    """What is found of the library."""
    return fact(RecordedNode(builder.tree, complete=complete), NvmlLibraries)


def test_debians_library_lies_behind_its_alternatives() -> None:
    machine = Builder()
    machine.link(f"{DEBIAN}/libnvidia-ml.so.1", "/etc/alternatives/glx--libnvidia-ml.so.1")
    machine.link("/etc/alternatives/glx--libnvidia-ml.so.1", f"{DEBIAN}/nvidia/current/libnvidia-ml.so.1")
    machine.link(f"{DEBIAN}/nvidia/current/libnvidia-ml.so.1", "libnvidia-ml.so.535.288.01")
    machine.text(f"{DEBIAN}/nvidia/current/libnvidia-ml.so.535.288.01", "")
    found = libraries_of(machine).by_name
    assert found is not None
    assert (found.version, found.file) == ("535.288.01", f"{DEBIAN}/nvidia/current/libnvidia-ml.so.535.288.01")


def test_links_that_lead_in_a_circle_or_nowhere_are_no_library() -> None:
    machine = Builder()
    machine.link(f"{DEBIAN}/libnvidia-ml.so.1", "libnvidia-ml.so.1")
    machine.link("/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.470.256.02")
    machine.absent("/usr/lib64/libnvidia-ml.so.470.256.02")
    found = libraries_of(machine)
    assert found.libraries == ()
    assert found.unseen is not None
    assert ("/usr/lib64/libnvidia-ml.so.1", "does not exist") in [(seen.where, seen.shows) for seen in found.nowhere]


def test_a_library_in_a_root_of_its_own_is_not_what_programs_find_by_name() -> None:
    machine = Builder()
    machine.text("/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1", "")
    found = libraries_of(machine)
    assert [library.by_name for library in found.libraries] == [False]
    assert found.by_name is None


def test_the_loader_takes_the_directories_in_the_order_of_its_configuration() -> None:
    machine = Builder()
    machine.text("/etc/ld.so.conf", "# comment\ninclude /etc/ld.so.conf.d/*.conf\n/opt/late/lib/ hwcap\n")
    machine.text("/etc/ld.so.conf.d/libc.conf", "# libc default configuration\n/usr/local/lib\n")
    machine.text("/etc/ld.so.conf.d/i386-linux-gnu.conf", "/usr/lib/i386-linux-gnu\n")
    machine.text("/etc/ld.so.conf.d/x86_64-linux-gnu.conf", f"{DEBIAN}\ninclude ld.so.conf.d/lib*.conf\n")
    machine.text("/etc/ld.so.conf.d/README", "/nowhere\n")
    directories = fact(RecordedNode(machine.tree, complete=()), LoaderDirectories).directories
    assert directories[:3] == ("/usr/local/lib", DEBIAN, "/opt/late/lib")
    assert not {"/usr/lib/i386-linux-gnu", "/nowhere"} & set(directories)
    assert "/usr/lib64" in directories


def test_no_library_anywhere_is_the_cause_of_nvmls_silence() -> None:
    altered = h100x8(init=12)
    altered.error(f"{DEBIAN}/libnvidia-ml.so.1")
    for directory in ("/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu", "/usr/lib/wsl/lib"):
        altered.error(f"{directory}/libnvidia-ml.so.1")
    altered.error("/run/nvidia")
    report = altered.report()
    cause = the_cause(report, LIBRARY)
    assert "in none of 8 places" in cause.summary
    assert f"{DEBIAN}/libnvidia-ml.so.1 does not exist" in cited(cause)
    assert len(report.root_causes[0].consequence_ids) == 8
    assert cause.remedies[0].action is Action.INSTALL_PACKAGE


def test_a_library_that_nvml_was_loaded_from_is_not_missing_because_nobody_knows_its_place() -> None:
    altered = h100x8()
    altered.error(f"{DEBIAN}/libnvidia-ml.so.1")
    result = altered.report().result(LIBRARY)
    assert result.status is Status.SKIP
    assert "a place that was not looked at" in result.detail


def test_a_link_to_cudas_stub_is_not_the_drivers_library() -> None:
    altered = h100x8(init=9)
    put_link(altered, f"{DEBIAN}/libnvidia-ml.so.1", "/usr/local/cuda-12.4/lib64/stubs/libnvidia-ml.so")
    put_file(altered, "/usr/local/cuda-12.4/lib64/stubs/libnvidia-ml.so")
    report = altered.report()
    assert "CUDA's stub" in the_cause(report, LIBRARY).summary
    assert "the library is CUDA's stub" in report.result(ANSWERS).findings[0].summary


def test_two_versions_side_by_side_are_told_and_one_is_not() -> None:
    altered = h100x8()
    put_link(altered, "/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.535.183.01")
    put_file(altered, "/usr/lib64/libnvidia-ml.so.535.183.01")
    report = altered.report()
    cause = the_cause(report, LIBRARY)
    assert (cause.status, report.exit_code) == (Status.WARN, 1)
    assert f"{LOADED}, 535.183.01" in cause.summary
    altered = h100x8()
    put_link(altered, "/usr/lib64/libnvidia-ml.so.1", f"libnvidia-ml.so.{LOADED}")
    put_file(altered, f"/usr/lib64/libnvidia-ml.so.{LOADED}")
    assert altered.report().result(LIBRARY).status is Status.PASS


def test_a_left_over_version_in_the_same_directory_is_told() -> None:
    altered = h100x8()
    put_file(altered, f"{DEBIAN}/libnvidia-ml.so.535.183.01")
    put_file(altered, f"{DEBIAN}/libnvidia-ml.so.1.bak")
    cause = the_cause(altered.report(), LIBRARY)
    assert f"{DEBIAN}/libnvidia-ml.so.535.183.01 exists" in cited(cause)


# Versions that do not fit -------------------------------------------------------------------------------------------


def mismatch(library: str, on_disk: str) -> Altered:
    """NVML refuses; the loaded module is always the same."""
    altered = h100x8(init=18)
    put_link(altered, f"{DEBIAN}/libnvidia-ml.so.1", f"libnvidia-ml.so.{library}")
    put_file(altered, f"{DEBIAN}/libnvidia-ml.so.{library}")
    if library != LOADED:
        altered.error(f"{DEBIAN}/libnvidia-ml.so.{LOADED}")
    modinfo = altered.commands[("modinfo", "nvidia")]
    assert isinstance(modinfo, CommandOutput)
    text = modinfo.stdout.replace(LOADED, on_disk)
    altered.commands = {**altered.commands, modinfo.argv: CommandOutput(modinfo.argv, 0, text)}
    return altered


def test_a_reboot_helps_where_the_module_on_disk_is_the_librarys() -> None:
    report = mismatch("580.95.05", "580.95.05").report()
    cause = report.finding(report.root_causes[0].findings[0])
    assert (
        "the library is 580.95.05, the loaded module 550.163.01; a reload or reboot brings 580.95.05" in cause.summary
    )
    assert [remedy.action for remedy in cause.remedies] == [Action.LOAD_MODULE, Action.REBOOT]
    assert report.root_causes[0].check == ANSWERS


def test_a_reboot_does_not_help_where_only_the_libraries_were_upgraded() -> None:
    report = mismatch("580.95.05", LOADED).report()
    cause = the_cause(report, ANSWERS)
    assert "so is the one on disk: a reboot alone would not help" in cause.summary
    assert "dkms install NAME/580.95.05" in steps(cause)
    assert Action.REBOOT not in [remedy.action for remedy in cause.remedies]


def test_in_a_container_the_library_is_the_one_it_was_started_with() -> None:
    report = contained(mismatch("535.183.01", LOADED)).report()
    cause = report.finding(report.root_causes[0].findings[0])
    assert "this is a container" in cause.summary
    assert cause.remedies[0].action is Action.CHANGE_WORKLOAD


# Who may open what --------------------------------------------------------------------------------------------------


def test_without_root_a_refusal_is_not_known_to_be_a_fault() -> None:
    altered = h100x8(init=4)
    altered.uid = 1000
    report = altered.report()
    finding = report.result(ANSWERS).findings[0]
    assert (finding.status, finding.why) == (Status.UNKNOWN, Why.NO_PERMISSION)
    assert "/dev/nvidiactl is a character device 195:255, mode 0666" in cited(finding)


def test_root_is_refused_by_a_rule_and_that_is_a_fault() -> None:
    cause = the_cause(h100x8(init=4).report(), ANSWERS)
    assert "apparmor" in steps(cause)


@pytest.mark.parametrize("code", [4, 9, 17, 999])
def test_what_a_container_may_not_open_is_its_device_rules(code: int) -> None:
    report = contained(h100x8(init=code)).report()
    cause = report.finding(report.root_causes[0].findings[0])
    assert "this is a container: mostly its device rules" in cause.summary
    assert "nvidia-ctk system create-dev-char-symlinks" in steps(cause)
    on_the_host = h100x8(init=code).report()
    assert "device rules" not in on_the_host.finding(on_the_host.root_causes[0].findings[0]).summary


@pytest.mark.parametrize("code", sorted(set(nvml_errors.NAMES) - {0}))
def test_every_code_of_nvmls_start_is_named(code: int) -> None:
    report = h100x8(init=code).report()
    cause = the_cause(report, ANSWERS)
    assert f"NVML does not start ({code})" in cause.summary
    assert nvml_errors.NAMES[code] in cited(cause)


# Lost, reset, hanging -----------------------------------------------------------------------------------------------


def one_device(code: int, *log: str) -> Report:
    """The report where the first GPU gives a code and the kernel log ends in some lines."""
    altered = h100x8()
    answer = altered.whole.answer("nvml", lambda: pytest.fail("a recording asks nobody"))
    assert isinstance(answer, Answer)
    data = json.loads(json.dumps(answer.data))
    data["devices"][0]["error"] = {"code": code, "call": "nvmlDeviceGetUUID"}
    altered.answers["nvml"] = Answer(data=data)
    altered.say(*log)
    return altered.report()


def test_the_recovery_that_the_driver_asks_for_decides_the_remedy() -> None:
    xid = "[ 9000.1] NVRM: Xid (PCI:0000:18:00): 119, pid=812, name=python, Timeout after 45s of waiting for RPC response from GPU0 GSP!"
    recovery = "[ 9000.2] NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to"
    reset = one_device(16, xid, f"{recovery} 0x1 (GPU Reset Required)")
    cause = the_cause(reset, ANSWERS)
    assert "the driver asks for: GPU Reset Required" in cause.summary
    assert Action.RESET_GPU in [remedy.action for remedy in cause.remedies]
    assert "119, pid=812" in cited(cause) and ": 154," in cited(cause)
    reboot = the_cause(one_device(16, xid, f"{recovery} 0x2 (Node Reboot Required)"), ANSWERS)
    assert [remedy.action for remedy in reboot.remedies] == [Action.NONE, Action.REBOOT]


def test_a_recovery_that_was_taken_back_is_not_asked_for() -> None:
    line = "[ 9000.1] NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert "asks for" not in the_cause(one_device(16, line), ANSWERS).summary


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (8, Action.INSPECT_HARDWARE),
        (10, Action.RESET_GPU),
        (11, Action.NONE),
        (14, Action.CONTACT_VENDOR),
        (15, Action.REBOOT),
    ],
)
def test_each_code_of_one_gpu_has_steps_of_its_own(code: int, action: Action) -> None:
    cause = the_cause(one_device(code), ANSWERS)
    assert cause.subject.key == FIRST
    assert action in [remedy.action for remedy in cause.remedies]


def test_what_hangs_is_said_with_who_hangs_too_and_who_holds_the_nodes() -> None:
    worker = {
        "pid": 40311,
        "state": "D",
        "stack": "[<0>] os_acquire_mutex+0x1/0x2 [nvidia]",
        "stack_unchanged_seconds": 20.0,
    }
    altered = h100x8()
    altered.answers["nvml"] = Answer(data={}, error={"why": "timed-out"}, stopped_at="nvmlInit_v2()", worker=worker)
    stack = "[<0>] _nv012345rm+0x1/0x2 [nvidia]"
    asleep = {"pid": 812, "comm": "python", "state": "D", "stack": stack, "unchanged_seconds": 11.0, "still": True}
    altered.answers["tasks"] = Answer(data={"tasks": 400, "sleeping": [asleep]}, via="/proc")
    holder = {"pid": 935, "comm": "dcgm-exporter", "nodes": ["/dev/nvidia0"], "unit": "cri-containerd-1f.scope"}
    altered.answers["holders"] = Answer(data={"holders": [holder], "hidden": 0}, via="/proc")
    altered.say("[ 8000.1] NVRM: _kgspRpcRecvPoll: Timeout after 45s of waiting for RPC response from GPU0 GSP!")
    finding = altered.report().result(ANSWERS).findings[0]
    for words in (
        "PID 40311 in state D",
        "python, PID 812 in state D",
        "GPU0 GSP",
        "dcgm-exporter (cri-containerd-1f.scope)",
    ):
        assert words in finding.summary + cited(finding)


def test_a_slow_start_without_the_persistence_daemon_says_so() -> None:
    worker = {"pid": 7, "state": "D", "stack": "", "stack_unchanged_seconds": 0.1}
    machine = SmallNode()
    machine.absent("/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service")
    machine.text("/proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n507 nvidia-uvm\n\nBlock devices:\n")
    node = RecordedNode(machine.tree, complete=COMPLETE, uid=0)
    node.logs["kernel.log"] = Log("kernel.log", "")
    node.answers["nvml"] = Answer(data={}, error={"why": "timed-out"}, stopped_at="nvmlInit_v2()", worker=worker)
    finding = diagnose(node).result(ANSWERS).findings[0]
    assert finding.why is Why.SLOW_INIT
    assert "without nvidia-persistenced" in finding.summary


# Questions that fail ------------------------------------------------------------------------------------------------


def with_fields(fields: dict[str, Any], index: int = 0) -> Report:
    """The report where more was asked about one GPU."""
    altered = h100x8()
    answer = altered.whole.answer("nvml", lambda: pytest.fail("a recording asks nobody"))
    assert isinstance(answer, Answer)
    data = json.loads(json.dumps(answer.data))
    data["devices"][index]["fields"] = fields
    altered.answers["nvml"] = Answer(data=data)
    return altered.report()


def test_what_a_gpu_does_not_have_is_no_failed_question() -> None:
    benign = {f"field.{code}": {"error": code} for code in (2, 3, 4, 6, 13, 21, 22, 24, 25, 26, 27, 29)}
    report = with_fields({"temperature.gpu_celsius": 41, **benign})
    assert alarms(report, QUERIES) == []
    assert {finding.status for finding in report.result(QUERIES).findings} == {Status.PASS}


def test_a_half_alive_gpu_is_told_with_what_fails() -> None:
    report = with_fields(
        {"fan_percent": {"error": 999}, "power.draw_milliwatts": {"error": 999}, "performance_state": 0}
    )
    cause = the_cause(report, QUERIES)
    assert (cause.status, cause.subject.key) == (Status.WARN, FIRST)
    assert "cannot answer fan_percent, power.draw_milliwatts: an internal driver error (999)" in cause.summary
    assert "power.draw_milliwatts: NVML_ERROR_UNKNOWN (999)" in cited(cause)


def test_a_reset_that_single_questions_ask_for_is_a_fail() -> None:
    cause = the_cause(with_fields({"fan_percent": {"error": 999}, "performance_state": {"error": 16}}), QUERIES)
    assert cause.status is Status.FAIL
    assert "(16)" in cause.summary


def test_a_lost_gpu_is_not_told_twice() -> None:
    altered = h100x8()
    answer = altered.whole.answer("nvml", lambda: pytest.fail("a recording asks nobody"))
    assert isinstance(answer, Answer)
    data = json.loads(json.dumps(answer.data))
    data["devices"][0] |= {"error": {"code": 15}, "fields": {"fan_percent": {"error": 15}}}
    altered.answers["nvml"] = Answer(data=data)
    the_cause(altered.report(), ANSWERS)


# explain ------------------------------------------------------------------------------------------------------------


def test_every_code_is_explained_and_names_checks_that_exist() -> None:
    assert set(nvml_codes.WORDS) == set(nvml_errors.NAMES)
    named = {check for checks in nvml_codes.LOOKED_INTO_BY.values() for check in checks}
    assert named <= set(built_in().ids)
    assert set(nvml_remedies.FOR_CODE) <= set(nvml_codes.LOOKED_INTO_BY)


@pytest.mark.parametrize("word", ["nvml:18", "nvml:NVML_ERROR_LIB_RM_VERSION_MISMATCH", "nvml:lib_rm_version_mismatch"])
def test_a_code_is_explained_by_number_and_name(word: str) -> None:
    ran = gpudoctor("explain", word)
    assert ran.returncode == 0
    assert ran.stdout.startswith("nvml:18   NVML_ERROR_LIB_RM_VERSION_MISMATCH\n")
    assert "looked into by: driver-cuda.nvml-answers" in ran.stdout
    assert max(len(line) for line in ran.stdout.splitlines() if "$" not in line) <= 120
    told = json.loads(gpudoctor("explain", word, "--format", "json").stdout)
    assert (told["id"], told["remedies"][0]["action"]) == ("nvml:18", "load-module")


@pytest.mark.parametrize("word", ["nvml:77", "nvml:", "nvml:x", "nvml:9999999999999999999999", "nvml:-1", "nvml:²"])
def test_an_unknown_code_is_a_usage_error_that_says_what_there_is(word: str) -> None:
    ran = gpudoctor("explain", word)
    assert ran.returncode == 3
    assert len(ran.stderr.splitlines()) == 1 and "999" in ran.stderr


def test_the_link_of_the_new_checks() -> None:
    for name in (LIBRARY, QUERIES):
        check = built_in().get(name)
        assert check is not None and check.link is Link.DRIVER_CUDA


# What is not what it seems ------------------------------------------------------------------------------------------


def answers_of(altered: Altered) -> dict[str, Any]:
    """The recorded answers, to be changed."""
    answer = altered.whole.answer("nvml", lambda: pytest.fail("a recording asks nobody"))
    assert isinstance(answer, Answer)
    data: dict[str, Any] = json.loads(json.dumps(answer.data))
    return data


def test_the_worst_of_several_refusals_counts() -> None:
    fields = {"temperature.gpu_celsius": 40, "fan_percent": {"error": 10}, "performance_state": {"error": 15}}
    cause = the_cause(with_fields(fields), QUERIES)
    assert (cause.status, cause.cause) == (Status.FAIL, "nvml-15")


def test_a_gpu_of_which_every_question_was_refused_passes_nothing() -> None:
    report = with_fields({"fan_percent": {"error": 4}, "performance_state": {"error": 4}})
    assert report.result(QUERIES).findings[0].status is Status.UNKNOWN


def test_a_habit_of_the_driver_on_all_gpus_alike_is_no_fault() -> None:
    altered = h100x8()
    data = answers_of(altered)
    for device in data["devices"]:
        device["fields"]["fan_percent"] = {"error": 999}
    altered.answers["nvml"] = Answer(data=data)
    assert alarms(altered.report(), QUERIES) == []


@pytest.mark.parametrize("state", ["D", "S"])
def test_the_gpu_in_whose_detail_nvml_stopped_passes_nothing(state: str) -> None:
    altered = h100x8()
    data = answers_of(altered)
    for device in data["devices"][4:]:
        del device["fields"]
    worker = {"pid": 7, "state": state, "stack": "[<0>] f+0x1/0x2 [nvidia]", "stack_unchanged_seconds": 9.0}
    altered.answers["nvml"] = Answer(
        data=data,
        error={"why": "timed-out"},
        stopped_at="nvmlDeviceGetMemoryErrorCounter(0000:5d:00.0)",
        worker=worker,
    )
    report = altered.report()
    statuses = {finding.subject.key: finding.status for finding in report.result(QUERIES).findings}
    passed = sorted(key for key, status in statuses.items() if status is Status.PASS)
    assert passed == ["0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0"]
    assert statuses["0000:5d:00.0"] is Status.UNKNOWN and statuses["0000:db:00.0"] is Status.UNKNOWN
    # Who they are, all eight have answered: slow details make nothing essential unknown, a hang is told.
    assert report.result(ANSWERS).status is (Status.FAIL if state == "D" else Status.PASS)


@pytest.mark.parametrize(
    ("action", "step"),
    [
        ("gpu_reset", Action.RESET_GPU),
        ("node_reboot", Action.REBOOT),
        ("system_reboot", Action.REBOOT),
        ("drain_p2p", Action.CHANGE_WORKLOAD),
    ],
)
def test_the_recovery_that_the_driver_asks_for_is_a_fault_with_just_that_step(action: str, step: Action) -> None:
    cause = the_cause(with_fields({"recovery_action": action, "reset_required": True}), "driver-cuda.recovery-action")
    assert (cause.status, cause.subject.key) == (Status.FAIL, FIRST)
    assert [remedy.action for remedy in cause.remedies][1] is step
    assert (Action.RESET_GPU in [remedy.action for remedy in cause.remedies]) is (action == "gpu_reset")


def test_no_recovery_asked_for_is_a_pass_and_no_such_field_is_none() -> None:
    check = "driver-cuda.recovery-action"
    for fields, status in (
        ({"recovery_action": "none"}, Status.PASS),
        ({"recovery_action": {"error": 3}}, Status.SKIP),
        ({"fan_percent": 3}, Status.SKIP),
    ):
        found = {finding.subject.key: finding.status for finding in with_fields(fields).result(check).findings}
        assert found[FIRST] is status


def test_a_stub_that_nvml_does_not_load_explains_nothing() -> None:
    altered = h100x8()
    data = answers_of(altered)
    data["devices"][3]["error"] = {"code": 16, "call": "nvmlDeviceGetUUID"}
    altered.answers["nvml"] = Answer(data=data)
    altered.text("/etc/ld.so.conf", "/usr/local/cuda/lib64/stubs\n")
    put_link(altered, "/usr/local/cuda/lib64/stubs/libnvidia-ml.so.1", "libnvidia-ml.so")
    put_file(altered, "/usr/local/cuda/lib64/stubs/libnvidia-ml.so")
    report = altered.report()
    found = {(cause.check, cause.status) for cause in report.root_causes}
    assert found == {(ANSWERS, Status.FAIL), (LIBRARY, Status.WARN)}


def test_what_is_wrong_with_one_gpu_is_no_consequence_of_a_hang() -> None:
    altered = Altered("dstate-python-in-uvm")
    data = answers_of(altered)
    data["devices"][-1]["error"] = {"code": 15, "call": "nvmlDeviceGetUUID"}
    altered.answers["nvml"] = Answer(data=data)
    assert {"driver-cuda.no-stuck-task", ANSWERS} <= {cause.check for cause in altered.report().root_causes}


def test_an_upgrade_that_waits_is_no_consequence_of_another_error() -> None:
    altered = mismatch(LOADED, "580.95.05")
    altered.answers["nvml"] = Answer(data={"init": 999})
    assert {cause.check for cause in altered.report().root_causes} == {ANSWERS, "driver-cuda.module-on-disk"}


def empty(altered: Altered, path: str) -> None:
    """A file of no length on top."""
    altered.overlay.put(path, Record(entry=Entry(path, EntryType.FILE, size=0)))


def test_an_empty_file_is_no_library() -> None:
    altered = h100x8()
    empty(altered, f"{DEBIAN}/libnvidia-ml.so.535.183.01")
    assert altered.report().result(LIBRARY).status is Status.PASS
    altered = h100x8(init=12)
    altered.error(f"{DEBIAN}/libnvidia-ml.so.1")
    empty(altered, f"{DEBIAN}/libnvidia-ml.so.1")
    assert altered.report().result(LIBRARY).status is not Status.PASS


def test_what_lies_in_usr_lib_beside_usr_lib64_is_of_32_bits() -> None:
    machine = Builder()
    machine.link("/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.570.172.08")
    machine.text("/usr/lib64/libnvidia-ml.so.570.172.08", "elf")
    machine.link("/usr/lib/libnvidia-ml.so.1", "libnvidia-ml.so.390.157")
    machine.text("/usr/lib/libnvidia-ml.so.390.157", "elf")
    assert libraries_of(machine).versions == ("570.172.08",)


def test_a_driver_containers_library_is_not_beside_the_hosts() -> None:
    altered = h100x8()
    put_file(altered, "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1")
    put_file(altered, "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.535.183.01")
    assert altered.report().result(LIBRARY).status is Status.PASS


def test_a_library_that_is_not_the_modules_does_not_pass_unasked() -> None:
    altered = mismatch("535.183.01", LOADED)
    altered.answers["nvml"] = Answer(data={}, error={"why": "withheld", "detail": "no node"})
    result = altered.report().result(LIBRARY)
    assert result.status is Status.UNKNOWN and "535.183.01" in result.detail


def test_the_host_waits_where_a_container_has_the_newer_library() -> None:
    report = contained(mismatch("580.95.05", LOADED)).report()
    cause = report.finding(report.root_causes[0].findings[0])
    assert "the host waits for a reload" in cause.summary
    assert Action.CHANGE_WORKLOAD not in [remedy.action for remedy in cause.remedies]


def test_where_all_versions_are_one_another_copy_is_loaded() -> None:
    cause = the_cause(mismatch(LOADED, LOADED).report(), ANSWERS)
    assert "another copy" in cause.summary
    assert Action.REBOOT not in [remedy.action for remedy in cause.remedies]


def test_a_module_on_disk_that_fits_neither_makes_a_reboot_useless() -> None:
    report = mismatch("580.95.05", "570.172.08").report()
    cause = report.finding(report.root_causes[0].findings[0])
    assert "the one on disk 570.172.08: a reboot alone would not help" in cause.summary
    assert Action.REBOOT not in [remedy.action for remedy in cause.remedies]


def test_a_library_that_the_loader_refuses_was_found() -> None:
    said = f"{DEBIAN}/libnvidia-ml.so.1: wrong ELF class: ELFCLASS32"
    altered = h100x8()
    altered.answers["nvml"] = Answer(data={"init": 12, "said": said})
    cause = the_cause(altered.report(), ANSWERS)
    assert "the loader refuses libnvidia-ml.so.1: wrong ELF class" in cause.summary


def test_a_gpu_that_the_containers_driver_folder_lacks_was_not_given() -> None:
    """NVIDIA's runtime mounts a folder with the given GPUs only; the bus shows all of them."""
    altered = contained(h100x8())
    data = answers_of(altered)
    data |= {"count": 1, "devices": data["devices"][:1]}
    altered.answers["nvml"] = Answer(data=data)
    for device in answers_of(altered)["devices"][1:]:
        address = device["pci_bus_id"][4:].lower()
        altered.error(f"/proc/driver/nvidia/gpus/{address}")
        altered.error(f"/dev/nvidia{device['minor']}")
    report = altered.report()
    for check in (ANSWERS, "device-nodes.gpu-node"):
        statuses = [finding.status for finding in report.result(check).findings]
        assert statuses[0] is Status.PASS and set(statuses[1:]) == {Status.SKIP}, check
