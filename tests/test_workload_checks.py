"""What workloads have inside: nodes, libraries of the loaded driver, and what dead processes hold."""

from typing import Any

import pytest

from gpudoctor.facts.raw import Answer, Entry, EntryType
from gpudoctor.report import Finding
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status, Why
from tests.captures import diagnose
from tests.gpu_node import GIVEN, INSIDE, PID, STANDARD_LINES, WHOLE_DEV, GpuNode
from tests.rig_containers import needs_rig, rig_containers
from tests.small_node import cited
from tests.workload_node import CRI, DOCKER, GPU, ID, KEY, MOUNTINFO, OTHER, POD, USER, WorkloadNode, oci

NODES, LIBRARIES, LEFTOVERS = "workload.nodes-inside", "workload.library-version", "workload.no-leftovers"
ASKED = "NVIDIA_VISIBLE_DEVICES=" + GPU
WITHOUT_UVM = {name: numbers for name, numbers in INSIDE.items() if name != "nvidia-uvm"}


def healthy(*environment: str, **more: Any) -> GpuNode:
    """A container that has what it asked for and may open it."""
    node = GpuNode()
    node.container(PID, DOCKER, *(environment or (ASKED,)), **more)
    node.bundle(ID, oci(nodes=INSIDE))
    node.rules(*GIVEN)
    return node


# nodes --------------------------------------------------------------------------------------------------------------


def test_container_with_its_nodes_passes() -> None:
    found = healthy().says(NODES)
    assert found.status is Status.PASS
    assert found.summary == f"docker:{KEY} has /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-uvm"
    assert found.evidence[0].where == f"/proc/{PID}/root/dev"


RIG_CAUSES = {
    "no-nodes": "no-gpu-node",
    "rules-but-no-nodes": "no-gpu-node",
    "missing-nvidiactl": "no-control-node",
    "bind-mounted-node-nodev": "on-nodev-mount",
    "mode-0600-nonroot": "mode-shuts-out",
}


def test_rigs_containers_have_or_lack_what_was_set_up() -> None:
    needs_rig()
    seen: dict[str, int] = {}
    for container in rig_containers():
        found = container.report().result(NODES).findings
        about = [one for one in found if one.subject.kind.value == "container"]
        if container.situation == "void":
            assert not about
        elif container.situation == "wrong-uvm-major":
            # The rules deny that node too, and their check says which numbers they allow.
            assert about[0].status is Status.SKIP and "see cgroup.device-rules" in about[0].summary
        elif container.situation in RIG_CAUSES:
            assert (about[0].status, about[0].cause) == (Status.FAIL, RIG_CAUSES[container.situation])
        else:
            assert about[0].status is Status.PASS, container.id
            assert set(container.opened()) <= set(about[0].summary.replace(",", "").split()), container.id
        seen[about[0].status.value if about else "none"] = seen.get(about[0].status.value if about else "none", 0) + 1
    assert seen == {"pass": 92, "fail": 15, "skip": 1, "none": 3}


@pytest.mark.parametrize(
    ("environment", "config", "words"),
    [
        (("NVIDIA_VISIBLE_DEVICES=all", "CUDA_VERSION=12.4.1"), oci(), "the variable alone gives no GPU"),
        (("CUDA_VISIBLE_DEVICES=0",), oci(), "no engine was asked for one"),
        (("NVIDIA_VISIBLE_DEVICES=0",), oci(), "no engine was asked for one"),
    ],
)
def test_variable_alone_asks_nobody(environment: tuple[str, ...], config: dict[str, Any], words: str) -> None:
    node = GpuNode()
    node.container(PID, DOCKER, *environment, nodes={})
    node.bundle(ID, config)
    node.rules()
    found = node.says(NODES)
    assert found.status is Status.SKIP and words in found.summary


def test_void_proves_nothing() -> None:
    node = GpuNode()
    node.container(PID, DOCKER, "NVIDIA_VISIBLE_DEVICES=void", nodes={})
    node.bundle(ID, oci("NVIDIA_VISIBLE_DEVICES=void"))
    assert node.report().result(NODES).detail == "no container or job wants or has a GPU"
    assert healthy("NVIDIA_VISIBLE_DEVICES=void").says(NODES).status is Status.PASS


@pytest.mark.parametrize(
    "config",
    [
        oci(annotations={"cdi.k8s.io/x_y": "nvidia.com/gpu=0"}),
        oci(mounts=[f"/var/run/nvidia-container-devices/{GPU}"]),
        oci(nodes=INSIDE),
        oci("NVIDIA_VISIBLE_DEVICES=" + GPU),
    ],
    ids=["cdi", "device-plugin", "devices", "uuid"],
)
def test_whoever_asked_an_engine_or_by_uuid_must_have_a_node(config: dict[str, Any]) -> None:
    node = GpuNode()
    node.container(PID, DOCKER, "NVIDIA_VISIBLE_DEVICES=all", nodes={})
    node.bundle(ID, config)
    node.rules()
    found = node.says(NODES)
    assert (found.status, found.cause, found.breaks) == (Status.FAIL, "no-gpu-node", "subject")
    assert "there is no node of a GPU" in found.summary and "nor /dev/nvidiactl" in found.summary


def test_pod_without_a_gpu_is_sent_to_its_runtime_class() -> None:
    node = GpuNode()
    node.container(PID, POD, nodes={})
    node.bundle(ID, oci("NVIDIA_VISIBLE_DEVICES=" + GPU, annotations=CRI))
    found = node.says(NODES)
    assert "runtimeClassName: nvidia" in found.remedies[0].say
    assert found.remedies[1].run == ("kubectl -n lab delete pod trainer",)


def test_gpu_that_was_named_and_is_not_there() -> None:
    node = GpuNode()
    node.text("/proc/driver/nvidia/gpus/0000:06:00.0/information", f"Device Minor: 1\nGPU UUID: {GPU}\n")
    node.container(PID, DOCKER, ASKED)
    node.rules(*GIVEN)
    found = node.says(NODES)
    assert found.cause == "asked-gpu-missing" and f"/dev/nvidia1, the node of {GPU}, is missing" in found.summary


@pytest.mark.parametrize(
    ("nodes", "cause", "words"),
    [
        ({**INSIDE, "nvidia0": (195, 7)}, "numbers-of-no-gpu", "/dev/nvidia0 is 195:7"),
        ({**INSIDE, "nvidia0": (240, 0)}, "no-gpu-node", "/dev/nvidia0 is 240:0"),
        ({**INSIDE, "nvidia-uvm": (511, 0)}, "numbers-of-another-load", "511:0, and the loaded module has 507"),
        ({"nvidia0": (195, 0), "nvidia-uvm": (507, 0)}, "no-control-node", "/dev/nvidiactl is missing"),
        (WITHOUT_UVM, "no-uvm-node", "/dev/nvidia-uvm is missing"),
    ],
)
def test_wrong_and_missing_nodes_have_their_own_words(
    nodes: dict[str, tuple[int, int]], cause: str, words: str
) -> None:
    node = GpuNode()
    node.container(PID, DOCKER, "NVIDIA_VISIBLE_DEVICES=void", nodes=nodes)
    node.bundle(ID, oci(annotations={"cdi.k8s.io/x_y": "nvidia.com/gpu=0"}))
    node.answers["cgroup_devices"] = Answer(data={"cgroups": {f"/sys/fs/cgroup{DOCKER}": {"effective": []}}})
    found = node.says(NODES)
    assert (found.status, found.cause) == (Status.FAIL, cause) and words in found.summary


def test_node_of_uvm_is_needed_only_for_compute() -> None:
    assert healthy(ASKED, "NVIDIA_DRIVER_CAPABILITIES=utility", nodes=WITHOUT_UVM).says(NODES).status is Status.PASS
    assert healthy(ASKED, "NVIDIA_DRIVER_CAPABILITIES=all", nodes=WITHOUT_UVM).says(NODES).status is Status.FAIL


def test_who_was_given_single_nodes_may_only_watch() -> None:
    found = healthy("PATH=/bin", nodes=WITHOUT_UVM).says(NODES)
    assert found.status is Status.WARN and "CUDA cannot start in it" in found.summary


def test_module_of_uvm_that_is_not_loaded_is_named() -> None:
    node = healthy(nodes=WITHOUT_UVM)
    del node.majors["nvidia-uvm"]
    found = node.says(NODES)
    assert "the module nvidia-uvm is not loaded" in found.summary
    assert found.remedies[0].run[0] == "nvidia-modprobe -u -c 0"


STATUS = "Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\nGroups:\t{groups}\nCapEff:\t{caps}\n"
NONE, ALL_CAPS = "0000000000000000", "000001ffffffffff"


@pytest.mark.parametrize(
    ("mode", "owner", "status", "fails"),
    [
        (0o660, (0, 44), {"uid": 1000, "gid": 1000, "groups": "", "caps": NONE}, True),
        (0o660, (0, 44), {"uid": 1000, "gid": 1000, "groups": "44 100", "caps": NONE}, False),
        (0o660, (1000, 44), {"uid": 1000, "gid": 1000, "groups": "", "caps": NONE}, False),
        (0o606, (0, 44), {"uid": 1000, "gid": 44, "groups": "", "caps": NONE}, True),
        (0o600, (0, 0), {"uid": 0, "gid": 0, "groups": "", "caps": NONE}, False),
        (0o600, (0, 0), {"uid": 1000, "gid": 1000, "groups": "", "caps": ALL_CAPS}, False),
        (0o600, (7, 7), {"uid": 0, "gid": 0, "groups": "", "caps": "00000000a80425fb"}, False),
    ],
)
def test_mode_and_owner_decide_before_the_cgroup(
    mode: int, owner: tuple[int, int], status: dict[str, Any], fails: bool
) -> None:
    node = healthy()
    node.mode(f"/proc/{PID}/root/dev/nvidia0", mode, *owner)
    node.text(f"/proc/{PID}/status", STATUS.format(**status))
    found = node.says(NODES)
    assert (found.status, found.cause) == ((Status.FAIL, "mode-shuts-out") if fails else (Status.PASS, ""))
    if fails:
        assert f"mode {mode:04o}, owner {owner[0]}:{owner[1]}" in found.summary
        assert "--group-add" in found.remedies[0].say and "keep-groups" in found.remedies[0].say


OF_CONTAINERS = ("docker", "podman", "CDI", "--device", "--group-add", "the container", "runtimeClassName")
IN_JOB = "/system.slice/slurmstepd.scope/job_397/step_0/user/task_0"


@pytest.mark.parametrize(
    ("nodes", "cause", "words"),
    [
        ({}, "no-gpu-node", "gpudoctor run --link device-nodes"),
        ({**INSIDE, "nvidia0": (195, 7)}, "numbers-of-no-gpu", "gpudoctor run --link device-nodes"),
        ({**INSIDE, "nvidia-uvm": (511, 0)}, "numbers-of-another-load", "scontrol requeue 397"),
        ({"nvidia0": (195, 0), "nvidia-uvm": (507, 0)}, "no-control-node", "nvidia-modprobe -c 0 -u"),
        (WITHOUT_UVM, "no-uvm-node", "nvidia-modprobe -u -c 0"),
        (INSIDE, "mode-shuts-out", "usermod -aG"),
    ],
)
def test_job_is_not_told_how_to_start_a_container(nodes: dict[str, tuple[int, int]], cause: str, words: str) -> None:
    """It sees the node's own /dev, with the groups of its user."""
    node = GpuNode()
    node.process(PID, IN_JOB)
    node.inside(PID, "SLURM_JOB_GPUS=0", nodes=nodes, mountinfo=WHOLE_DEV)
    for name in INSIDE:
        if name not in nodes:
            node.absent(f"/proc/{PID}/root/dev/{name}")
    node.absent(f"/proc/{PID}/root/dev/nvidia1")
    if cause == "mode-shuts-out":
        node.mode(f"/proc/{PID}/root/dev/nvidia0", 0o660, 0, 44)
    node.text(f"/proc/{PID}/status", STATUS.format(uid=1000, gid=1000, groups="", caps=NONE))
    found = node.says(NODES)
    said = " ".join(f"{step.say} {' '.join(step.run)} {step.interrupts}" for step in found.remedies)
    assert (found.status, found.cause) == (Status.FAIL, cause) and words in said
    assert not [word for word in OF_CONTAINERS if word in said], said


def test_capabilities_of_another_user_namespace_are_none_over_the_nodes_owner() -> None:
    group = f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"
    node = GpuNode()
    node.process(PID, group, apart=True, user=USER + 9)
    node.inside(PID, ASKED, nodes=INSIDE)
    node.mode(f"/proc/{PID}/root/dev/nvidia0", 0o660, 65534, 65534)
    node.text(f"/proc/{PID}/status", STATUS.format(uid=1000, gid=1000, groups="1000", caps=ALL_CAPS))
    assert node.says(NODES).cause == "mode-shuts-out"


def test_user_who_is_not_known_is_not_guessed() -> None:
    node = healthy()
    node.mode(f"/proc/{PID}/root/dev/nvidia0", 0o660, 0, 44)
    node.tree.put(f"/proc/{PID}/status", Record(error="EACCES"))
    found = node.says(NODES)
    assert (found.status, found.why) == (Status.UNKNOWN, Why.NO_PERMISSION)


def test_mount_with_nodev_shuts_a_node_for_root_too() -> None:
    bound = "95 91 0:6 /nvidia0 /dev/nvidia0 rw,nosuid,nodev - devtmpfs udev rw\n"
    found = healthy(mountinfo=MOUNTINFO + bound).says(NODES)
    assert found.cause == "on-nodev-mount" and "nosuid,nodev" in cited(found)


def test_file_in_the_place_of_a_node() -> None:
    node = healthy()
    path = f"/proc/{PID}/root/dev/nvidiactl"
    node.tree.put(path, Record(entry=Entry(path, EntryType.FILE, 0o644, 0, 0)))
    found = node.says(NODES)
    assert found.cause == "not-a-device" and "is a regular file" in found.summary


def test_containers_of_wsl_are_none_of_this() -> None:
    node = WorkloadNode()
    node.complete.append("/sys/bus/pci/devices")
    node.text("/proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    node.process(PID, DOCKER, apart=True)
    node.inside(PID, ASKED)
    (found,) = diagnose(node.node()).result(NODES).findings
    assert found.status is Status.SKIP and "WSL2" in found.summary


def test_missing_node_of_the_node_itself_explains_what_containers_lack() -> None:
    node = GpuNode()
    node.absent("/dev/nvidia1")
    node.text("/proc/driver/nvidia/gpus/0000:06:00.0/information", f"Device Minor: 1\nGPU UUID: {GPU}\n")
    node.container(PID, DOCKER, ASKED, nodes={})
    node.process(703, f"/system.slice/docker-{OTHER}.scope", apart=True)
    node.inside(703, "NVIDIA_VISIBLE_DEVICES=void", nodes=INSIDE)
    node.rules()
    report = node.report()
    lacking = next(one for one in report.result(NODES).findings if one.status is Status.FAIL)
    assert lacking.caused_by == ("device-nodes.gpu-node@gpu:0000:06:00.0",)


def test_module_that_is_not_loaded_blocks_the_question() -> None:
    node = healthy(nodes={})
    for minor in (0, 1):
        del node.tree.records[f"/dev/nvidia{minor}"]
        node.link(f"/sys/devices/pci0000:00/0000:00:01.{minor}/0000:0{5 + minor}:00.0/driver", "../../nouveau")
    report = node.report()
    assert report.result(NODES).status is Status.BLOCKED
    assert {cause.check for cause in report.root_causes} == {"kernel-module.gpu-bound"}


def test_container_that_hides_everything_is_unknown() -> None:
    node = GpuNode()
    node.uid = 1000
    node.process(PID, DOCKER)
    for path in ("/proc/1/ns/mnt", *(f"/proc/{PID}/{name}" for name in ("ns/mnt", "environ", "root/dev", "mountinfo"))):
        node.tree.records[path] = Record(error="EACCES")
    for check in (NODES, LIBRARIES, "cgroup.device-rules", "cgroup.survives-reload"):
        found = node.says(check)
        assert (found.status, found.why, found.would_need) == (Status.UNKNOWN, Why.NO_PERMISSION, "root")


# libraries ----------------------------------------------------------------------------------------------------------


def _libraries(*versions: str) -> str:
    names = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
    files = [f"/usr/lib/x86_64-linux-gnu/{name}.so.{version}" for version in versions for name in names]
    lines = [f"{100 + number} 90 8:1 {file} {file} ro - ext4 x rw\n" for number, file in enumerate(files)]
    return MOUNTINFO + "".join(lines)


def test_libraries_of_the_loaded_driver_pass() -> None:
    found = healthy(mountinfo=_libraries("580.95.05")).says(LIBRARIES)
    assert found.status is Status.PASS and "the libraries of 580.95.05" in found.summary


@pytest.mark.parametrize("versions", [("550.163.01",), ("580.95.05", "550.163.01")])
def test_libraries_of_another_driver_fail(versions: tuple[str, ...]) -> None:
    found = healthy(mountinfo=_libraries(*versions)).says(LIBRARIES)
    assert (found.status, found.breaks) == (Status.FAIL, "subject")
    assert "has libraries of 550.163.01, and the loaded module is 580.95.05" in found.summary
    assert found.remedies[0].run == (f"docker restart {KEY}",) and found.remedies[1].then
    assert "libcuda.so.550.163.01" in cited(found) and "/proc/driver/nvidia/version" in cited(found)


def test_what_is_no_library_of_the_driver_has_no_say() -> None:
    other = (
        "120 90 8:1 /usr/lib/libnvidia-egl-wayland.so.1.1.13 /usr/lib/libnvidia-egl-wayland.so.1.1.13 ro - ext4 x rw\n"
    )
    found = healthy(mountinfo=MOUNTINFO + other).says(LIBRARIES)
    assert found.status is Status.SKIP
    assert healthy().says(LIBRARIES).status is Status.SKIP


def test_version_that_the_module_does_not_tell_is_unknown() -> None:
    node = healthy(mountinfo=_libraries("550.163.01"))
    node.tree.put("/proc/driver/nvidia/version", Record(error="EACCES"))
    assert node.says(LIBRARIES).why is Why.NO_PERMISSION


# leftovers ----------------------------------------------------------------------------------------------------------


def _holding(node: GpuNode, **more: Any) -> Finding:
    holder = {
        "pid": PID,
        "comm": "python3",
        "nodes": ["/dev/nvidia0", "/dev/nvidiactl"],
        "cgroup": f"0::{DOCKER}\n",
        "state": "S",
        "parent": 690,
        **more,
    }
    node.answers["holders"] = Answer(data={"holders": [holder], "hidden": 0}, via="/proc")
    return node.says(LEFTOVERS)


def test_whoever_lives_may_hold_a_gpu() -> None:
    node = healthy()
    assert _holding(node).status is Status.PASS
    node.process(810, "/system.slice/nvidia-persistenced.service", comm="nvidia-persiste", state="D")
    found = _holding(node, pid=810, comm="nvidia-persiste", cgroup="0::/system.slice/nvidia-persistenced.service\n")
    assert found.status is Status.PASS and "holds a node" in found.summary


def test_nobody_asks_who_holds_nodes_where_nobody_can_be_dead() -> None:
    node = healthy()
    node.text(f"/proc/{PID}/stat", f"{PID} (python3) S 690 {PID} " + "0 " * 16 + f"{PID} 0 0\n")
    found = node.says(LEFTOVERS)
    assert found.status is Status.PASS and "has lost its container" in cited(found)


@pytest.mark.parametrize(
    ("state", "more", "words"),
    [
        ("Z", {"state": "Z"}, "of docker:" + KEY + " has ended but for a thread"),
        ("Z", {"state": "Z", "cgroup": f"0::{DOCKER} (deleted)\n"}, "whose control group is gone"),
        ("S", {"cgroup": f"0::/system.slice/docker-{OTHER}.scope (deleted)\n"}, "whose control group is gone"),
    ],
)
def test_what_is_dead_and_holds_a_gpu_is_told(state: str, more: dict[str, Any], words: str) -> None:
    node = healthy()
    node.process(PID + 1, "/system.slice/x.service (deleted)", state=state)
    found = _holding(node, **more)
    assert found.status is Status.WARN and words in found.summary
    assert "python3 (702)" in found.summary and "/dev/nvidia0" in found.summary
    assert [one.action.value for one in found.remedies] == ["none", "change-workload", "reboot"]
    assert found.remedies[1].run == (f"kill -9 {PID}",) and found.remedies[1].interrupts == "these processes"


def test_orphan_of_a_container_that_its_engine_has_forgotten() -> None:
    node = healthy()
    orphan = 7733
    node.process(orphan, f"/docker/{OTHER}", apart=True)
    node.inside(orphan, nodes=INSIDE)
    found = _holding_of(node, orphan, parent=1)
    assert found.status is Status.WARN and "which is gone" in found.summary
    # With a monitor it is a living container whose engine keeps its files elsewhere.
    assert _holding_of(node, orphan, parent=690).status is Status.PASS


def _holding_of(node: GpuNode, pid: int, parent: int) -> Finding:
    return _holding(node, pid=pid, cgroup=f"0::/docker/{OTHER}\n", parent=parent)


def test_moments_sleep_in_a_container_without_engine_is_no_death() -> None:
    node = healthy()
    group = "/user.slice/user-1000.slice/session-3.scope"
    node.process(900, group, comm="apptainer", apart=True, state="D")
    node.inside(900, nodes=INSIDE)
    node.process(901, DOCKER, state="Z")
    assert _holding(node, pid=900, cgroup=f"0::{group}\n", state="D", parent=1).status is Status.PASS


def test_tasks_that_hang_in_the_driver_are_told_once() -> None:
    node = healthy()
    node.process(PID + 1, DOCKER, state="Z")
    stack = "[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n"
    sleeper = {"pid": PID, "comm": "python3", "state": "D", "stack": stack, "unchanged_seconds": 30.0, "still": True}
    node.answers["tasks"] = Answer(data={"tasks": 9, "sleeping": [sleeper]}, via="/proc")
    found = _holding(node, state="Z")
    assert found.status is Status.SKIP and "driver-cuda.no-stuck-task" in found.summary


def test_processes_that_hide_what_they_hold_are_unknown() -> None:
    node = healthy()
    node.process(PID + 1, DOCKER, state="Z")
    node.answers["holders"] = Answer(data={"holders": [], "hidden": 4}, via="/proc")
    found = node.says(LEFTOVERS)
    assert (found.status, found.why) == (Status.UNKNOWN, Why.NO_PERMISSION) and "4 processes" in found.summary


# two faults ---------------------------------------------------------------------------------------------------------


def test_two_containers_with_two_faults_are_two_causes_and_the_third_is_well() -> None:
    node = healthy(mountinfo=_libraries("550.163.01"))
    for pid, container, nodes in ((703, OTHER, {}), (704, "3c4d5e6f" * 8, INSIDE)):
        group = f"/system.slice/docker-{container}.scope"
        node.container(pid, group, ASKED, nodes=nodes)
        node.rules(*GIVEN, group=group)
        node.unit(*STANDARD_LINES, policy="", group=group)
    causes = {cause.check: [subject.key for subject in cause.subjects] for cause in node.report().root_causes}
    assert causes == {LIBRARIES: [KEY], NODES: [OTHER[:12]]}


def test_one_update_that_outdates_many_containers_is_one_cause() -> None:
    node = healthy(mountinfo=_libraries("550.163.01"))
    node.container(703, f"/system.slice/docker-{OTHER}.scope", ASKED, mountinfo=_libraries("550.163.01"))
    node.rules(*GIVEN, group=f"/system.slice/docker-{OTHER}.scope")
    (cause,) = node.report().root_causes
    assert (cause.check, len(cause.subjects)) == (LIBRARIES, 2)
