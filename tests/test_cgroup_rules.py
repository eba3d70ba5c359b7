"""Device rules of workloads: the rig's real containers, what its probes could open there, and what a daemon-reload took from them."""

import re
from typing import Any

import pytest

from gpudoctor.facts.device_access import Access, DeviceKind
from gpudoctor.facts.raw import Answer
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record
from gpudoctor.trace import StepId
from gpudoctor.verdicts import Status, Why
from tests.device_shapes import RW, Rule
from tests.gpu_node import GIVEN, GIVEN_LINES, INSIDE, PID, STANDARD_LINES, WHOLE_DEV, GpuNode
from tests.rig_containers import TRANSIENT, RigContainer, kubernetes_states, needs_rig, rig_containers
from tests.small_node import cited, steps
from tests.trace_cases import HOST_MOUNTS
from tests.trace_node import TraceNode
from tests.workload_node import CRI, DOCKER, GPU, ID, KEY, MOUNTINFO, OTHER, POD, USER, oci

RULES, SURVIVES = "cgroup.device-rules", "cgroup.survives-reload"
CONTAINERS = list(rig_containers())
_NODE = re.compile(r"(/dev/nvidia(?:\d+|ctl|-uvm)) \(")

CAUSES = {
    "healthy.after-rules-lost": "taken-since-start",
    "bind-mounted-node-no-rule": "node-only-mounted",
    "legacy-hook-then-update": "node-only-mounted",
    "nodes-but-cgroup-deny": "never-allowed",
    "readonly-rule": "may-only-be-read",
    "mknod-only-rule": "may-only-be-made",
    "wrong-minor": "rules-for-other-numbers",
    "wrong-uvm-major": "rules-for-other-numbers",
    "sd-explicit-rules.after-daemon-reload": "taken-by-systemd",
}
"""Why a container of the rig is denied its nodes, by what was set up. Its legacy hooks are none that a configuration names."""


def _about_container(report: Report, check: str) -> Finding:
    (finding,) = (one for one in report.result(check).findings if one.subject.kind.value == "container")
    return finding


def _named(finding: Finding) -> set[str]:
    return set(_NODE.findall(finding.summary))


@pytest.mark.parametrize("container", CONTAINERS, ids=[one.id for one in CONTAINERS])
def test_rules_say_what_the_rigs_probe_could_open(container: RigContainer) -> None:
    opened = container.opened()
    report = container.report()
    if not opened and RULES not in {one.check for one in report.results if one.findings}:
        # Without nodes, and with nothing that asks for any, it concerns no GPU.
        assert "void" in container.situation
        return
    finding = _about_container(report, RULES)
    denied = {path for path, outcome in opened.items() if outcome == "EPERM"}
    if not opened:
        assert finding.status is Status.SKIP and "no node of a GPU" in finding.summary
    elif denied:
        assert finding.status is Status.FAIL and finding.breaks == "subject"
        assert _named(finding) == denied
        assert any(one.where.startswith(("/sys/fs/cgroup", "bpf(2) on /sys/fs/cgroup")) for one in finding.evidence)
    else:
        # EACCES is a matter of the mount, before the cgroup is asked.
        assert set(opened.values()) <= {"OK", "ENXIO", "EACCES"}
        assert finding.status is Status.PASS and _named(finding) == set(opened)
    if finding.cause and container.situation in CAUSES:
        assert finding.cause == CAUSES[container.situation]
    hides = container.situation.startswith("privileged") and "v1" in container.id
    assert ("a list that allows everything" in finding.summary) >= hides


def test_the_whole_rig_was_looked_at() -> None:
    needs_rig()
    outcomes = [outcome for one in CONTAINERS for outcome in set(one.opened().values()) or {"none"}]
    assert len(CONTAINERS) >= 111
    counts = {kind: outcomes.count(kind) for kind in ("EPERM", "ENXIO", "OK", "EACCES", "none")}
    assert counts == {"EPERM": 35, "ENXIO": 23, "OK": 45, "EACCES": 3, "none": 9}


PAIRS = [(one, after) for one in CONTAINERS if (after := one.after) is not None]


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[one.id for one, _ in PAIRS])
def test_foretold_before_a_daemon_reload_is_found_after_it(before: RigContainer, after: RigContainer) -> None:
    report, later = before.report(), after.report()
    could = {path for path, outcome in before.opened().items() if outcome == "OK"}
    lost = could - {path for path, outcome in after.opened().items() if outcome == "OK"}
    foretold, rules = _about_container(report, SURVIVES), _about_container(report, RULES)
    assert could and rules.status is Status.PASS
    if lost:
        assert foretold.status is Status.WARN and _named(foretold) == lost
        given = "explicit" in before.situation
        assert foretold.cause == ("left-out-by-runtime" if given else "added-behind-systemd")
        assert _about_container(later, RULES).status is Status.FAIL
        afterwards = _about_container(later, SURVIVES)
        assert afterwards.status is Status.SKIP and "can lose none" in afterwards.summary
    else:
        unmanaged = "no unit of the node's systemd" in foretold.summary
        assert foretold.status is (Status.SKIP if unmanaged else Status.PASS)
        assert "cgroupfs" in before.situation or not unmanaged
        assert _about_container(later, RULES).status is Status.PASS


def test_every_pair_of_the_rig_was_foretold() -> None:
    """The same number of containers kept their GPU as the rig's own notes say, and as many lost it."""
    needs_rig()
    lost = [before.id for before, after in PAIRS if "EPERM" in after.opened().values()]
    assert (len(PAIRS), len(lost)) == (25, 5)
    assert all("runc" in name for name in lost)


def test_pod_in_the_rigs_kubernetes_loses_its_gpu_and_a_restarted_kubelet_does_not_help() -> None:
    needs_rig()
    said = []
    for state in kubernetes_states():
        report = state.report()
        rules, foretold = _about_container(report, RULES), _about_container(report, SURVIVES)
        assert (rules.status is Status.FAIL) is ("EPERM" in state.opened().values())
        said.append((state.folder.parent.name, rules.cause, foretold.status.value, foretold.cause))
    assert said == [
        ("a-healthy", "", "warn", "left-out-by-runtime"),
        ("b-after-daemon-reload", "taken-by-systemd", "skip", ""),
        ("c-kubelet-restarted", "taken-by-systemd", "skip", ""),
    ]


# the words ----------------------------------------------------------------------------------------------------------


def test_what_systemd_took_is_told_with_unit_reload_and_cure() -> None:
    node = GpuNode()
    node.container()
    node.bundle(ID, oci(nodes=INSIDE), namespace="moby")
    node.rules(*GIVEN)
    node.rules(name="sd_devices", like_systemd=True)
    node.unit(*STANDARD_LINES)
    node.logs["journal/init.scope.log"] = (
        "2026-11-29T09:12:01+0000 n1 systemd[1]: Starting docker.service - Docker Application Container Engine...\n"
        "2026-11-29T11:38:27+0000 n1 systemd[1]: Reloading requested from client PID 4711 ('systemctl')...\n"
        "2026-11-29T11:38:28+0000 n1 systemd[1]: Reloading finished in 212 ms.\n"
    )
    found = node.says(RULES)
    assert found.summary == (
        f"docker:{KEY} may not open /dev/nvidia0 (195:0), /dev/nvidiactl (195:255), /dev/nvidia-uvm (507:0): systemd's own list of "
        f"devices, which it applies at a daemon-reload, lacks them (unit docker-{KEY}.scope)"
    )
    assert "program sd_devices #41 denies char 195:0 rw" in cited(found)
    assert "linux.resources.devices: allow c 195:0 rw" in cited(found)
    reload = next(one for one in found.evidence if one.where == "journalctl -b -u init.scope")
    assert (reload.at, reload.shows[:16]) == ("2026-11-29T11:38:27+0000", "Reloading reques")
    assert found.remedies[0].run == (f"docker restart {KEY}",)
    assert "create-dev-char-symlinks --create-all" in steps(found)
    assert [one.action.value for one in found.remedies][-1] == "change-config"


def test_without_the_configuration_nothing_is_said_about_the_past() -> None:
    node = GpuNode()
    node.container()
    node.rules()
    found = node.says(RULES)
    assert found.cause == "denied" and "the rules of its cgroup deny them" in found.summary


def test_rules_of_the_hook_may_be_missing_because_it_was_told_so() -> None:
    def said(config: str) -> Finding:
        node = GpuNode()
        node.container(PID, DOCKER, f"NVIDIA_VISIBLE_DEVICES={GPU}")
        node.bundle(ID, oci(hooks={"prestart": ["/usr/bin/nvidia-container-runtime-hook"]}))
        node.rules()
        node.text("/etc/nvidia-container-runtime/config.toml", config)
        return node.says(RULES)

    told = said("[nvidia-container-cli]\nno-cgroups = true\n")
    assert told.cause == "hook-told-no-cgroups" and "no-cgroups = true" in cited(told)
    assert "nvidia-container-cli.no-cgroups=false" in told.remedies[0].run[1]
    for config in ("#no-cgroups = true", "no-cgroups = false"):
        assert said(f"[nvidia-container-cli]\n{config}\n").cause == "rules-of-hook-missing"


@pytest.mark.parametrize(
    ("rules", "cause", "words"),
    [
        ([("r", 195, 0), ("r", 195, 255), ("rw", 507, 0)], "may-only-be-read", "may only read /dev/nvidia0 (195:0)"),
        ([("w", 195, 0), ("rw", 195, 255), ("rw", 507, 0)], "may-only-be-written", "may only write /dev/nvidia0"),
        ([("rw", 195, 1), ("rw", 195, 255), ("rw", 507, 0)], "rules-for-other-numbers", "allow 195:1 instead"),
        ([("rw", 195, 0), ("rw", 195, 255)], "never-allowed", "may not open /dev/nvidia-uvm (507:0)"),
        ([("rw", 195, 0), ("rw", 195, 255), ("rw", 511, 0)], "rules-for-other-numbers", "allow 511:0 instead"),
        ([("rw", 195, 0), ("rw", 195, 255), ("rw", 136, 0)], "never-allowed", "never allowed it"),
    ],
)
def test_rules_that_are_about_something_else_have_their_own_words(
    rules: list[tuple[str, int, int]], cause: str, words: str
) -> None:
    node = GpuNode()
    node.container()
    letters = {"r": Access.READ, "w": Access.WRITE, "rw": RW}
    node.rules(*(Rule(True, DeviceKind.CHAR, major, minor, letters[access]) for access, major, minor in rules))
    config = oci()
    config["linux"]["resources"]["devices"] += [
        {"allow": True, "type": "c", "major": major, "minor": minor, "access": access} for access, major, minor in rules
    ]
    node.bundle(ID, config)
    found = node.says(RULES)
    assert (found.status, found.cause) == (Status.FAIL, cause) and words in found.summary
    assert "privileged" not in " ".join(remedy.say for remedy in found.remedies)


def test_node_of_another_gpu_that_may_be_opened_is_no_sign_of_wrong_numbers() -> None:
    node = GpuNode()
    node.container(nodes={**INSIDE, "nvidia1": (195, 1)})
    node.rules(*GIVEN)
    found = node.says(RULES)
    assert found.cause == "denied" and _named(found) == {"/dev/nvidia1"}


# what is no fault ---------------------------------------------------------------------------------------------------


def test_nodes_for_debuggers_and_managers_are_not_needed() -> None:
    node = GpuNode()
    node.container(nodes={**INSIDE, "nvidia-uvm-tools": (507, 1), "nvidia-modeset": (195, 254)})
    node.rules(*GIVEN)
    found = node.says(RULES)
    assert found.status is Status.PASS
    assert "but not /dev/nvidia-modeset (195:254), /dev/nvidia-uvm-tools (507:1)" in found.summary


def test_who_sees_the_whole_dev_and_was_given_no_gpu_may_be_denied_it() -> None:
    node = GpuNode()
    node.container(mountinfo=WHOLE_DEV)
    node.rules()
    node.unit(*STANDARD_LINES)
    report = node.report()
    for check in (RULES, SURVIVES, "workload.nodes-inside"):
        (found,) = report.result(check).findings
        assert found.status is Status.SKIP and "own /dev" in found.summary


def test_job_needs_one_of_the_gpus_that_it_sees() -> None:
    group = "/system.slice/slurmstepd.scope/job_397/step_0/user/task_0"
    node = GpuNode()
    node.process(PID, group)
    node.inside(PID, "SLURM_JOB_GPUS=0", nodes={**INSIDE, "nvidia1": (195, 1)}, mountinfo=WHOLE_DEV)
    node.rules(*GIVEN, group=group)
    node.unit(policy="", group="/system.slice/slurmstepd.scope")
    found = node.says(RULES)
    assert found.status is Status.PASS and "/dev/nvidia1" not in found.summary
    assert node.says(SURVIVES).status is Status.PASS


def test_job_that_may_open_no_gpu_at_all_fails() -> None:
    group = "/slurm/uid_1000/job_397/step_0/task_0"
    node = GpuNode()
    node.process(PID, group)
    node.inside(PID, "SLURM_JOB_GPUS=0", nodes={**INSIDE, "nvidia1": (195, 1)}, mountinfo=WHOLE_DEV)
    node.rules(*GIVEN[1:], group=group)
    found = node.says(RULES)
    assert found.status is Status.FAIL and _named(found) == {"/dev/nvidia0", "/dev/nvidia1"}
    assert found.remedies[0].run == ("scontrol requeue 397",)


OF_OTHERS = re.compile(r"docker|podman|cdi\b|--device|runc|kubectl", re.IGNORECASE)
"""What means nothing to a job, and to a container of another kind."""
JOB = "/system.slice/slurmstepd.scope/job_397/step_0/user/task_0"
NOT_OF_DOCKER = [
    (JOB, False, "scontrol requeue 397", "gpudoctor trace slurm:397"),
    (JOB, True, "scontrol requeue 397", "apptainer --nv"),
    ("/lxc.payload.ml/user.slice", True, "Stop the container and start it again.", "lxc.cgroup2.devices.allow"),
    (
        "/machine.slice/machine-ml.scope/payload",
        True,
        "Stop the container and start it again.",
        "DeviceAllow=/dev/NODE rw",
    ),
    ("/user.slice/user-1000.slice/session-3.scope", True, "Create the container anew.", "bind the nodes into its /dev"),
]


@pytest.mark.parametrize(("group", "apart", "again", "way"), NOT_OF_DOCKER)
def test_whoever_has_no_docker_is_not_sent_to_it(group: str, apart: bool, again: str, way: str) -> None:
    node = GpuNode()
    if apart:
        node.process(PID - 1, group.replace("/payload", "/supervisor"))
    node.process(PID, group, apart=apart)
    node.inside(
        PID,
        f"NVIDIA_VISIBLE_DEVICES={GPU}",
        "SLURM_JOB_GPUS=0",
        nodes=INSIDE,
        mountinfo=MOUNTINFO if apart else WHOLE_DEV,
    )
    node.absent(f"/proc/{PID}/root/dev/nvidia1")
    node.rules(*GIVEN[1:], group=group)
    (found,) = [one for one in node.report().result(RULES).findings if one.status is Status.FAIL]
    said = " ".join(f"{step.say} {' '.join(step.run)}" for step in found.remedies)
    assert again in said and way in said and OF_OTHERS.search(said) is None, said


@pytest.mark.parametrize(
    ("group", "target", "again", "way"),
    [
        ("/system.slice/train.service", "pid:702", "systemctl restart train.service", "DeviceAllow=char-nvidia* rw"),
        (
            "/user.slice/user-1000.slice/session-3.scope",
            "pid:702",
            "Start the program again.",
            "DeviceAllow -p Slice session-3.scope",
        ),
        ("/made/by/hand", "pid:702", "Start the program again.", "cat /proc/702/cgroup"),
        (JOB, "slurm:397", "scontrol requeue 397", "gpudoctor trace slurm:397"),
    ],
)
@pytest.mark.parametrize("fault", ["denied", "no-node", "mode"])
def test_trace_of_what_has_no_docker_does_not_send_to_it(
    group: str, target: str, again: str, way: str, fault: str
) -> None:
    node = TraceNode()
    node.process(PID, group)
    node.text(f"/proc/{PID}/cmdline", "python3\0")
    nodes = {name: numbers for name, numbers in INSIDE.items() if fault != "no-node" or name != "nvidiactl"}
    node.inside(PID, f"CUDA_VISIBLE_DEVICES={GPU}", "SLURM_JOB_GPUS=0", nodes=nodes, mountinfo=HOST_MOUNTS)
    for name in ("nvidiactl", "nvidia1"):
        if name not in nodes:
            node.absent(f"/proc/{PID}/root/dev/{name}")
    node.status(PID)
    node.rules(*(GIVEN[1:] if fault == "denied" else GIVEN), group=group)
    if fault == "mode":
        node.mode(f"/proc/{PID}/root/dev/nvidia0", 0o660, 0, 44)
        node.text(
            f"/proc/{PID}/status",
            "Uid:\t1000\t1000\t1000\t1000\nGid:\t9\t9\t9\t9\nGroups:\t\nCapEff:\t0000000000000000\n",
        )
    (one,) = node.trace(target, built=True).traced
    step = one.step(StepId.RULES if fault == "denied" else StepId.NODES)
    assert step.status is Status.FAIL, step
    said = " ".join(f"{remedy.say} {' '.join(remedy.run)}" for remedy in step.remedies)
    expected = {"denied": (way, again), "no-node": ("device", again), "mode": ("usermod -aG",)}[fault]
    assert OF_OTHERS.search(said) is None and "group-add" not in said, said
    service = group.endswith(".service")
    assert service or all(words in said for words in expected), said


def test_job_whose_unit_would_take_its_gpu_is_sent_to_that_units_drop_ins() -> None:
    node = GpuNode()
    node.process(PID, JOB)
    node.inside(PID, "SLURM_JOB_GPUS=0", nodes=INSIDE, mountinfo=WHOLE_DEV)
    node.rules(*GIVEN, group=JOB)
    node.unit(*STANDARD_LINES, group="/system.slice/slurmstepd.scope")
    found = node.says(SURVIVES)
    assert found.status is Status.WARN and "slurmstepd.scope does not list" in found.summary
    said = " ".join(step.say for step in found.remedies)
    assert "DevicePolicy= and DeviceAllow= out of the drop-ins" in said and OF_OTHERS.search(said) is None, said


def test_users_own_systemd_reloads_no_device_rules() -> None:
    group = f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"
    node = GpuNode()
    node.process(PID, group, apart=True, user=USER + 9)
    node.inside(PID, nodes=INSIDE)
    found = node.says(SURVIVES)
    assert found.status is Status.SKIP and "no unit of the node's systemd" in found.summary


# what a reload takes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        (GIVEN_LINES, set()),
        (("char-nvidia* rw", "char-507 rw"), set()),
        (("char-* rwm",), set()),
        (("/dev/nvidia0 rw", "/dev/nvidiactl", "/dev/nvidia-uvm rwm"), set()),
        (("char-nvidia rw",), {"/dev/nvidia-uvm"}),
        (("char-nvidia-uvm rw", "/dev/char/195:255 rw"), {"/dev/nvidia0"}),
        (("/dev/char/195:0 r", *GIVEN_LINES[1:]), {"/dev/nvidia0"}),
        (("/dev/char/195:1 rw", *GIVEN_LINES[1:]), {"/dev/nvidia0"}),
        (("/dev/nvidia9 rw", "block-* rw"), {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"}),
    ],
)
def test_what_the_units_list_keeps(lines: tuple[str, ...], lost: set[str]) -> None:
    """Without a single link in /dev/char: systemd counts the numbers in the name."""
    node = GpuNode(nvidiactl=195)
    node.container()
    node.rules(*GIVEN)
    node.unit(*STANDARD_LINES, *lines)
    found = node.says(SURVIVES)
    assert found.status is (Status.WARN if lost else Status.PASS) and (not lost or _named(found) == lost)


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"/etc/systemd/system/docker-.scope.d/gpu.conf": "[Scope]\nDeviceAllow=char-* rw\n"}, Status.PASS),
        ({"/etc/systemd/system/scope.d/10-gpu.conf": "[Scope]\nDeviceAllow=char-* rw\n"}, Status.WARN),
        ({"/run/systemd/system.control/UNIT.d/50-DevicePolicy.conf": "[Scope]\nDevicePolicy=auto\n"}, Status.WARN),
        ({"/run/systemd/system.control/UNIT.d/50-DeviceAllow.conf": "[Scope]\nDeviceAllow=char-* rw\n"}, Status.PASS),
    ],
    ids=["after-it", "before-its-empty-line", "policy-alone", "in-its-place"],
)
def test_drop_ins_of_others_count_in_the_order_of_their_names(files: dict[str, str], status: Status) -> None:
    node = GpuNode()
    node.container()
    node.rules(*GIVEN)
    node.unit(*STANDARD_LINES)
    for path, text in files.items():
        node.text(path.replace("UNIT", DOCKER.rpartition("/")[2]), text)
    assert node.says(SURVIVES).status is status


def test_policy_auto_with_a_list_restricts_like_closed() -> None:
    node = GpuNode()
    node.container()
    node.rules(*GIVEN)
    node.unit(*STANDARD_LINES, policy="auto")
    assert node.says(SURVIVES).status is Status.WARN
    node.unit(policy="auto")
    assert node.says(SURVIVES).status is Status.PASS


def test_settings_can_stand_in_the_transient_unit_itself() -> None:
    node = GpuNode()
    node.container()
    node.rules(*GIVEN)
    unit = f"{TRANSIENT}/{DOCKER.rpartition('/')[2]}"
    node.text(unit, "[Scope]\nDevicePolicy=closed\nDeviceAllow=/dev/net/tun rwm\n")
    found = node.says(SURVIVES)
    assert found.status is Status.WARN and found.evidence[0].where == unit


def test_service_is_asked_of_systemd() -> None:
    group = f"/system.slice/web.service/libpod-payload-{ID}"
    node = GpuNode()
    node.container(PID, group)
    node.rules(*GIVEN, group=group)
    argv = ("systemctl", "show", "--property=Id,DevicePolicy,DeviceAllow", "web.service")
    node.printed[argv] = "DevicePolicy=closed\nDeviceAllow=/dev/fuse rwm\nId=web.service\n"
    found = node.says(SURVIVES)
    assert found.status is Status.WARN and "systemctl show" in found.evidence[0].where
    node.printed[argv] = "DevicePolicy=auto\nId=web.service\n"
    assert node.says(SURVIVES).status is Status.PASS
    node.printed[argv] = ""
    assert node.says(SURVIVES).status is Status.UNKNOWN


def test_left_out_by_the_runtime_is_not_added_behind_it() -> None:
    node = GpuNode()
    node.container()
    node.rules(*GIVEN)
    node.unit(*STANDARD_LINES)
    node.bundle(ID, oci(nodes=INSIDE))
    found = node.says(SURVIVES)
    assert found.cause == "left-out-by-runtime" and "dev-char-symlinks" in found.remedies[0].run[0]
    assert found.remedies[1].then and found.remedies[1].interrupts == "this container"
    node.bundle(ID, oci(hooks={"prestart": ["/usr/bin/nvidia-container-runtime-hook"]}))
    found = node.says(SURVIVES)
    assert found.cause == "added-behind-systemd" and "CDI" in found.remedies[0].say


# what cannot be seen ------------------------------------------------------------------------------------------------


def test_rules_that_could_not_be_read_are_unknown() -> None:
    node = GpuNode()
    node.container()
    node.unit(*STANDARD_LINES)
    node.answers["cgroup_devices"] = Answer(
        data={"cgroups": {f"/sys/fs/cgroup{DOCKER}": {"effective": [], "attached": None, "error": "EPERM"}}}
    )
    for check in (RULES, SURVIVES):
        found = node.says(check)
        assert (found.status, found.why) == (Status.UNKNOWN, Why.NO_PERMISSION) and "root" in found.would_need
    assert node.says("workload.nodes-inside").status is Status.PASS


def test_program_that_cannot_be_judged_is_unknown_and_one_that_denies_decides() -> None:
    node = GpuNode()
    node.container()
    node.rules(*GIVEN)
    odd: dict[str, Any] = {"name": "", "insns": "85100000000000009500000000000000"}
    data = {"programs": {"7": odd}, "cgroups": {f"/sys/fs/cgroup{DOCKER}": {"effective": [7], "attached": [7]}}}
    node.answers["cgroup_devices"] = Answer(data=data)
    assert node.says(RULES).status is Status.UNKNOWN
    del node.answers["cgroup_devices"]
    node.rules(name="sd_devices", like_systemd=True)
    assert node.says(RULES).status is Status.FAIL


@pytest.mark.parametrize("error", ["EACCES", "ENOENT"])
def test_unit_that_cannot_be_seen_is_unknown(error: str) -> None:
    node = GpuNode()
    node.container()
    node.rules(*GIVEN)
    node.unit(*STANDARD_LINES)
    node.tree.put(f"{TRANSIENT}/{DOCKER.rpartition('/')[2]}", Record(error=error))
    found = node.says(SURVIVES)
    assert found.status is Status.UNKNOWN and TRANSIENT in found.summary


def test_node_without_processes_says_so_once_for_all_these_checks() -> None:
    node = GpuNode()
    del node.tree.children["/proc"]
    report = node.report()
    # Ranks are told by NVML's processes, which nobody recorded either; of pods the kubelet tells.
    others = (
        "workload.ranks-apart",
        "workload.pods-have-their-gpus",
        "workload.pods-hold-live-gpus",
        "workload.no-bypass",
    )
    about = [one for one in report.results if one.link.value in ("cgroup", "workload") and one.check not in others]
    assert len(about) > 5 and {result.status for result in about} == {Status.UNKNOWN}
    assert len({finding.summary for result in about for finding in result.findings}) == 1


# two faults ---------------------------------------------------------------------------------------------------------


def test_two_containers_that_lost_alike_are_one_cause_and_one_that_never_had_is_another() -> None:
    node = GpuNode()
    third = "3c4d5e6f" * 8
    for pid, container in ((PID, ID), (703, OTHER), (704, third)):
        group = f"/system.slice/docker-{container}.scope"
        node.container(pid, group)
        node.bundle(container, oci(nodes=INSIDE) if container != third else oci())
        if container != third:
            node.rules(*GIVEN, group=group)
            node.rules(name="sd_devices", like_systemd=True, group=group)
        else:
            node.rules(group=group)
        node.unit(*STANDARD_LINES, group=group)
    causes = [cause for cause in node.report().root_causes if cause.link.value == "cgroup"]
    assert sorted(sorted(subject.key for subject in cause.subjects) for cause in causes) == sorted(
        [sorted([KEY, OTHER[:12]]), [third[:12]]]
    )


def test_denied_rules_do_not_hide_a_missing_node() -> None:
    node = GpuNode()
    node.container(nodes={name: numbers for name, numbers in INSIDE.items() if name != "nvidiactl"})
    node.bundle(ID, oci(nodes=INSIDE))
    node.rules()
    causes = {cause.check for cause in node.report().root_causes}
    assert causes == {RULES, "workload.nodes-inside"}


def test_pod_is_deleted_by_its_name_and_a_name_that_is_none_is_in_no_command() -> None:
    for name, command in (("trainer", ("kubectl -n lab delete pod trainer",)), ("x; reboot", ())):
        node = GpuNode()
        node.container(PID, POD)
        node.rules(group=POD)
        node.bundle(ID, oci(nodes=INSIDE, annotations={**CRI, "io.kubernetes.cri.sandbox-name": name}))
        assert node.says(RULES).remedies[0].run == command


def test_list_of_v1_that_allows_everything_does_not_tell_all() -> None:
    lines = f"6:devices:/docker/{ID}\n0::/\n"
    node = GpuNode()
    node.container(PID, lines)
    node.text(
        "/proc/1/mountinfo",
        "31 23 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
        "32 31 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "34 31 0:30 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n",
    )
    node.answers["cgroup_devices"] = Answer(data={"cgroups": {"/sys/fs/cgroup/unified": {"effective": []}}})
    node.text(f"/sys/fs/cgroup/devices/docker/{ID}/devices.list", "a *:* rwm\n")
    found = node.says(RULES)
    assert found.status is Status.PASS and "as far as a list that allows everything shows" in found.summary
