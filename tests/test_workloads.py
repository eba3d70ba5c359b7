"""Workloads, what they want and what they have: recorded nodes through the facts, and the rig's own captures."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.gpu_workloads import GpuWorkloads
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.raw import Answer
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.facts.workload_wishes import Asker
from gpudoctor.facts.workloads import Workloads
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import SubjectKind, Unread, Why
from tests.captures import put_listing
from tests.conftest import SHARED
from tests.workload_node import (
    CRI,
    DOCKER,
    GPU,
    ID,
    KEY,
    MOUNT,
    NODES,
    OTHER,
    PID,
    POD,
    TASKS,
    UID,
    USER,
    WorkloadNode,
    oci,
    wishes_of,
)

# who is there -------------------------------------------------------------------------------------------------------


def test_container_leads_with_the_process_that_was_set_apart() -> None:
    """A monitor in the container's own group has the lower PID, and is the host's."""
    node = WorkloadNode()
    node.process(700, DOCKER, comm="conmon")
    node.process(702, DOCKER, apart=True)
    node.process(703, DOCKER, apart=True)
    found = node.workload(KEY)
    assert (found.kind, found.engine, found.id, found.pid, len(found.pids)) == (
        GroupKind.CONTAINER,
        "docker",
        ID,
        702,
        3,
    )
    assert (found.apart, found.rootless, found.unit) == (True, False, f"docker-{ID}.scope")
    assert (found.cgroup, found.devices_cgroup) == (DOCKER, None)
    assert found.subject.id == f"container:{KEY}"
    assert found.cite("cgroup")[0].where == "/proc/702/cgroup"


def test_dead_container_has_no_leading_process() -> None:
    node = WorkloadNode()
    node.process(702, DOCKER, apart=True, state="Z")
    found = node.workload(KEY)
    assert (found.pid, found.pids) == (0, (702,))
    assert found.key not in [one.workload.key for one in node.get(GpuWorkloads)]


def test_groups_of_v1_are_given_by_controller() -> None:
    node = WorkloadNode()
    lines = f"9:name=systemd:/docker/{ID}\n6:devices:/docker/{ID}\n0::/system.slice/containerd.service\n"
    node.process(702, lines, apart=True)
    found = node.workload(KEY)
    assert (found.devices_cgroup, found.cgroup) == (f"/docker/{ID}", "/system.slice/containerd.service")


def test_reader_in_a_cgroup_namespace_does_not_take_the_end_of_a_path_for_the_path() -> None:
    node = WorkloadNode()
    node.process(702, f"/../..{DOCKER}", apart=True)
    found = node.workload(KEY)
    assert (found.engine, found.cgroup) == ("docker", None)


def test_pod_is_named_by_the_annotations_of_its_containers() -> None:
    node = WorkloadNode()
    node.process(900, POD.replace(ID, OTHER), comm="pause", apart=True)
    node.process(902, POD, apart=True)
    node.bundle(ID, oci(annotations=CRI))
    found = node.get(Workloads)
    (container,) = found.containers
    assert container.title == "lab/trainer/main"
    assert container.pod is not None and (container.pod.uid, container.pod.qos) == (UID, "burstable")
    (pod,) = found.pods
    assert (pod.subject.kind, pod.subject.key, pod.subject.name) == (SubjectKind.POD, UID, "lab/trainer")
    assert [one.key for one in pod.subject.stands_on] == [KEY]
    assert [one.sandbox for one in found if one.kind is GroupKind.CONTAINER] == [True, False]


def test_bare_id_belongs_to_the_engine_whose_folder_holds_it() -> None:
    node = WorkloadNode()
    node.process(902, f"/kubepods/besteffort/pod{UID}/{ID}", apart=True)
    node.process(904, f"/somewhere/{OTHER}", apart=True)
    node.bundle(ID, oci())
    node.bundle(OTHER, oci(), namespace="moby")
    assert [(one.engine, one.id) for one in node.get(Workloads).containers] == [("docker", OTHER), ("containerd", ID)]


def test_docker_says_its_name_and_what_was_asked_of_it() -> None:
    node = WorkloadNode()
    node.process(702, DOCKER, apart=True)
    node.inside(702)
    node.bundle(ID, oci(), namespace="moby")
    folder = f"/srv/docker/containers/{ID}"
    request = {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
    node.text("/etc/docker/daemon.json", '{"data-root": "/srv/docker"}')
    node.text(
        f"{folder}/config.v2.json", json.dumps({"ID": ID, "Name": "/web", "Config": {"Image": "web:1", "Env": ["A=b"]}})
    )
    node.text(f"{folder}/hostconfig.json", json.dumps({"Runtime": "runc", "DeviceRequests": [request]}))
    found = node.concerned(KEY)
    assert found.workload.title == "docker:web"
    assert wishes_of(found) == [("engine", ("all",))]
    assert found.asked


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        ({"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1"]}, ("nvidia.com/gpu=1",)),
        ({"Driver": "nvidia", "Count": 2}, ("2 of them",)),
    ],
)
def test_docker_asks_by_cdi_name_or_by_number(devices: dict[str, Any], names: tuple[str, ...]) -> None:
    node = WorkloadNode()
    node.process(702, DOCKER, apart=True)
    node.inside(702)
    folder = f"/var/lib/docker/containers/{ID}"
    node.text(f"{folder}/config.v2.json", json.dumps({"Name": "/web"}))
    other = {"Driver": "cdi", "DeviceIDs": ["other.com/fpga=0"]}
    node.text(f"{folder}/hostconfig.json", json.dumps({"DeviceRequests": [other, devices]}))
    assert wishes_of(node.concerned(KEY)) == [("engine", names)]


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_container_without_an_engine_is_found_by_its_namespaces_and_its_runtimes_state(runtime: str) -> None:
    node = WorkloadNode()
    node.process(501, "/system.slice/lab.scope/container", apart=True)
    node.inside(501, nodes=NODES)
    state = (
        {"init_process_pid": 501, "config": {"labels": ["bundle=/srv/lab"]}}
        if runtime == "runc"
        else {"pid": 501, "bundle": "/srv/lab"}
    )
    node.text(f"/run/{runtime}/lab/{'state.json' if runtime == 'runc' else 'status'}", json.dumps(state))
    node.text("/srv/lab/config.json", json.dumps(oci(nodes=NODES)))
    found = node.concerned(f"{runtime}:lab").workload
    assert (found.engine, found.id, found.unit, found.name) == (runtime, "lab", "lab.scope", "lab")
    assert isinstance(found.config, OciConfig)
    assert not [one for one in node.get(Workloads) if one.key == "lab.scope"]


def test_without_any_state_the_namespaces_alone_make_a_container() -> None:
    node = WorkloadNode()
    node.process(501, "/user.slice/user-1000.slice/session-3.scope", comm="bash")
    node.process(502, "/user.slice/user-1000.slice/session-3.scope", apart=True, user=USER + 9)
    node.inside(502)
    found = node.get(Workloads)
    assert [(one.key, one.kind.value, one.pids) for one in found] == [
        ("pid:502", "container", (502,)),
        ("init.scope", "scope", (1,)),
        ("session-3.scope", "session", (501,)),
    ]
    assert found.workloads[0].rootless is True


def test_services_own_mounts_and_users_make_no_container_nor_does_who_enters_one() -> None:
    node = WorkloadNode()
    node.process(400, "/system.slice/rtkit.service", mount=MOUNT + 5, user=USER + 5)
    node.process(702, DOCKER, apart=True)
    node.process(800, "/user.slice/user-0.slice/session-1.scope", comm="nsenter", mount=MOUNT + 702)
    keys = [one.key for one in node.get(Workloads)]
    assert keys == [KEY, "init.scope", "rtkit.service", "session-1.scope"]


@pytest.mark.parametrize(
    ("map_text", "rootless"),
    [("0 1000 1\n1 100000 65536\n", True), ("0 100000 65536\n", False)],
    ids=["rootless", "remapped"],
)
def test_rootless_is_not_remapped(map_text: str, rootless: bool) -> None:
    node = WorkloadNode()
    node.process(702, f"/docker/{ID}", apart=True, user=USER + 9)
    node.text("/proc/702/uid_map", map_text)
    assert node.workload(KEY).rootless is rootless


def test_podman_of_a_user_is_found_through_its_runtimes_state() -> None:
    node = WorkloadNode()
    group = f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"
    node.process(702, group, apart=True, user=USER + 9)
    node.inside(702, nodes=NODES)
    node.text(f"/run/user/1000/crun/{ID}/status", json.dumps({"pid": 702, "bundle": "/home/u/storage/userdata"}))
    node.text(
        "/home/u/storage/userdata/config.json", json.dumps(oci(annotations={"cdi.k8s.io/x_y": "nvidia.com/gpu=0"}))
    )
    found = node.concerned(KEY)
    assert (found.workload.engine, found.workload.rootless) == ("podman", True)
    assert wishes_of(found) == [("engine", ("nvidia.com/gpu=0",))]


def test_podman_and_crio_keep_theirs_in_containers_storage() -> None:
    node = WorkloadNode()
    node.process(702, f"/machine.slice/libpod-{ID}.scope", apart=True)
    node.process(705, f"/kubepods/pod{UID}/crio-{OTHER}", apart=True)
    names = [{"id": ID, "names": ["bold_moser"]}, {"id": OTHER}]
    node.text("/var/lib/containers/storage/overlay-containers/containers.json", json.dumps(names))
    node.text(f"/var/lib/containers/storage/overlay-containers/{ID}/userdata/config.json", json.dumps(oci()))
    said = {
        "io.kubernetes.container.name": "main",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "lab",
    }
    node.text(
        f"/run/containers/storage/overlay-containers/{OTHER}/userdata/config.json", json.dumps(oci(annotations=said))
    )
    assert [one.title for one in node.get(Workloads).containers] == ["lab/web/main", "podman:bold_moser"]


def test_nested_container_names_the_one_around_it() -> None:
    node = WorkloadNode()
    node.process(702, DOCKER, apart=True)
    node.process(800, f"{DOCKER}/docker/{OTHER}", apart=True)
    inner = node.workload(OTHER[:12])
    assert (inner.engine, inner.inside) == ("docker", KEY)
    assert isinstance(inner.config, Unread) and f"inside the container docker {KEY}" in inner.config.detail


def test_slurm_job_is_led_by_a_task_and_asks_through_its_variables() -> None:
    node = WorkloadNode()
    job = "/system.slice/slurmstepd.scope/job_397"
    node.process(600, f"{job}/step_extern/user/task_special", comm="sleep")
    node.process(610, f"{job}/step_batch/slurm", comm="slurmstepd")
    node.process(611, f"{job}/step_batch/user/task_0", comm="bash")
    node.process(620, f"{job}/step_0/user/task_0", comm="python3")
    node.inside(611, "SLURM_JOB_ID=397", "SLURM_JOB_GPUS=3", "CUDA_VISIBLE_DEVICES=0", nodes=NODES)
    found = node.concerned("slurm:397")
    assert (found.workload.kind, found.workload.engine, found.workload.pid) == (GroupKind.JOB, "slurm", 611)
    assert (found.subject.kind, found.subject.id) == (SubjectKind.SERVICE, "service:slurm:397")
    assert [(wish.asker, wish.gpus) for wish in found.wishes.by(Asker.SCHEDULER)] == [(Asker.SCHEDULER, ("3",))]


def test_container_in_a_job_is_one_of_its_own() -> None:
    node = WorkloadNode()
    node.process(611, "/slurm/uid_1000/job_397/step_0/task_0", comm="srun")
    node.process(612, "/slurm/uid_1000/job_397/step_0/task_0", apart=True)
    assert node.workload("pid:612").inside == "slurm:397"
    assert node.workload("slurm:397").pids == (611,)


def test_ids_that_begin_alike_are_told_apart() -> None:
    node = WorkloadNode()
    one, two = "1" * 64, "1" * 63 + "2"
    for pid, container in ((702, one), (703, two)):
        node.process(pid, f"/docker/{container}", apart=True)
        node.inside(pid, f"NVIDIA_VISIBLE_DEVICES={pid}")
    assert [one.workload.key for one in node.get(GpuWorkloads)] == [one, two]


# what cannot be seen ------------------------------------------------------------------------------------------------


def test_no_process_recorded_is_no_empty_node() -> None:
    node = WorkloadNode()
    node.tree.children.clear()
    node.tree.records.clear()
    found = Desk(node.node(), Config()).get(Workloads)
    assert isinstance(found, Unread) and found.why is Why.NOT_RECORDED


def test_incomplete_recording_lists_at_least_these() -> None:
    node = WorkloadNode()
    node.complete = []
    node.process(702, DOCKER, apart=True)
    found = node.get(Workloads)
    assert found.unlisted is not None and [one.key for one in found.containers] == [KEY]


def test_without_root_a_container_is_not_taken_for_one_without_gpu() -> None:
    node = WorkloadNode()
    node.uid = 1000
    node.process(702, DOCKER)
    for path in (
        "/proc/1/ns/mnt",
        "/proc/702/ns/mnt",
        "/proc/702/environ",
        "/proc/702/root/dev",
        "/proc/702/mountinfo",
        TASKS,
    ):
        node.tree.records[path] = Record(error="EACCES")
    found = node.concerned(KEY)
    assert (found.workload.pid, found.workload.apart, found.asked) == (702, None, False)
    assert found.unseen is not None and (found.unseen.why, found.unseen.would_need) == (Why.NO_PERMISSION, "root")
    assert isinstance(found.has_gpu, Unread) and found.has_gpu.would_need == "root"


def test_processes_that_hide_their_group_leave_the_list_open() -> None:
    node = WorkloadNode()
    node.uid = 1000
    node.process(702, DOCKER, apart=True)
    node.tree.put("/proc/703/cgroup", Record(error="EACCES"))
    unlisted = node.get(Workloads).unlisted
    assert unlisted is not None and "1 processes do not show" in unlisted.detail and unlisted.would_need == "root"


def test_unreadable_configuration_is_unread_and_does_not_hide_the_rest() -> None:
    node = WorkloadNode()
    node.process(702, POD, apart=True)
    node.inside(702, f"NVIDIA_VISIBLE_DEVICES={GPU}", nodes=NODES)
    node.bundle(ID, {})
    node.text(f"{TASKS}/k8s.io/{ID}/config.json", '{"linux": {"devices": 3')
    found = node.concerned(KEY)
    assert isinstance(found.workload.config, Unread) and found.workload.config.why is Why.UNREADABLE
    assert found.has_gpu is True and found.asked


# the answer of a live node ------------------------------------------------------------------------------------------


def _answer(*processes: list[Any], **data: Any) -> Answer:
    said = {"cgroups": ["0::/init.scope\n", f"0::{DOCKER}\n"], "namespaces": [[MOUNT, PID, USER], [5, 6, USER]], **data}
    return Answer(
        data={"processes": [[1, 0, 5, "systemd", "S", 0, 0], *processes], "whole": True, "hidden": 0, **said},
        via="/proc",
    )


def test_answer_holds_what_the_files_hold() -> None:
    files, answer = WorkloadNode(), WorkloadNode()
    files.process(702, DOCKER, apart=True)
    files.process(703, DOCKER, apart=True)
    answer.answers["processes"] = _answer([702, 1, 702, "python3", "S", 1, 1], [703, 702, 703, "python3", "S", 1, 1])
    one, other = files.workload(KEY), answer.workload(KEY)
    assert (
        (one.pids, one.pid, one.cgroup, one.apart)
        == (other.pids, other.pid, other.cgroup, other.apart)
        == ((702, 703), 702, DOCKER, True)
    )


@pytest.mark.parametrize(
    "answer",
    [
        _answer([702, 1, 702, "x", "S", 7, 0]),
        _answer([702, 1, 702, "x", "S", 1, 9]),
        _answer(["x"]),
        _answer(cgroups=3),
    ],
    ids=["no-such-group", "no-such-namespaces", "no-number", "no-groups"],
)
def test_spoilt_answer_is_unread(answer: Answer) -> None:
    node = WorkloadNode()
    node.answers["processes"] = answer
    found = Desk(node.node(), Config()).get(Workloads)
    assert isinstance(found, Unread) and found.why is Why.UNREADABLE


def test_first_process_may_hide_its_namespaces() -> None:
    """It can have capabilities that the reader lacks; the kernel's numbers of its first namespaces are fixed."""
    node = WorkloadNode()
    hidden = [1, 0, 5, "systemd", "S", 0, -1]
    rows = [[702, 1, 702, "python3", "S", 1, 1], [703, 1, 703, "sshd", "S", 0, 0], [704, 1, 704, "cron", "S", 0, 0]]
    answer = _answer(*rows)
    answer.data["processes"][0] = hidden
    node.answers["processes"] = answer
    assert node.workload(KEY).apart is True


# the rig ------------------------------------------------------------------------------------------------------------


def _rig_containers() -> Iterator[Path]:
    if not SHARED.is_dir():
        pytest.skip("the shared captures are not here")
    for pattern in ("containers/v?/*", "vm-containers-v*/*"):
        yield from (
            folder for folder in sorted((SHARED / "rig").glob(pattern)) if (folder / "oci-config.json").is_file()
        )


def _rig_node(folder: Path) -> tuple[WorkloadNode, int]:
    """A node with the one container of a folder, and its PID."""
    node = WorkloadNode()
    pid = int(json.loads((folder / "info.json").read_text())["pid"])
    for name in ("cgroup", "mountinfo", "environ", "status", "uid_map"):
        node.text(f"/proc/{pid}/{name}", (folder / f"proc.{name}").read_text())
    for name, to in json.loads((folder / "proc.ns.json").read_text()).items():
        node.link(f"/proc/{pid}/ns/{name}", to)
    put_listing(node, re.sub(" +", " ", (folder / "ls_dev.txt").read_text()))
    for name in ("nvidiactl", "nvidia0"):
        if node.tree.lookup(f"/proc/{pid}/root/dev/{name}") is None:
            node.absent(f"/proc/{pid}/root/dev/{name}")
    bundle = json.loads((folder / "runtime-state.json").read_text())
    node.text(f"{bundle['bundle']}/config.json", (folder / "oci-config.json").read_text())
    for runtime, file in (("runc", "state.json"), ("crun", "status")):
        if (folder / file).is_file():
            node.text(f"/run/{runtime}/{bundle['id']}/{file}", (folder / file).read_text())
    return node, pid


def test_rigs_containers_are_found_with_what_they_ask_for_and_have() -> None:
    seen = 0
    for folder in _rig_containers():
        node, pid = _rig_node(folder)
        runtime = "crun" if folder.name.startswith("crun") else "runc"
        found = next(one for one in node.get(Workloads).containers if one.pid == pid)
        assert (found.engine, found.apart, found.rootless) == (runtime, True, False), folder
        config = json.loads((folder / "oci-config.json").read_text())
        told = [one["path"] for one in config["linux"].get("devices", ()) if "nvidia" in one["path"]]
        assert isinstance(found.config, OciConfig) and [one.path for one in found.config.nodes] == told, folder
        listed = {
            line.split()[-1]
            for line in (folder / "ls_dev.txt").read_text().splitlines()
            if line.startswith("c") and "nvidia" in line
        }
        concerned = [one for one in node.get(GpuWorkloads) if one.workload.pid == pid]
        if listed:
            devices = concerned[0].devices
            assert isinstance(devices, Devices), folder
            assert {node.path.rpartition("/")[2] for node in devices.nodes} == listed, folder
            opened = (folder / "probe_in_cgroup.txt").read_text()
            assert all(node.nodev for node in devices.nodes) is ("nodev" in folder.name), folder
            assert ("open=EACCES" in opened) >= ("nodev" in folder.name), folder
        environ = (folder / "proc.environ").read_text()
        named = "NVIDIA_VISIBLE_DEVICES=" in environ and "void" not in environ
        assert bool(concerned and concerned[0].asked) is ((bool(told) and "privileged" not in folder.name) or named), (
            folder
        )
        seen += 1
    assert seen >= 67
