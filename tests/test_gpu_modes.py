"""Modes of a GPU, firmware of boards, memory without a process, and who stands in the way of a reset."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpudoctor.facts.raw import Answer, Question
from gpudoctor.report import Finding
from gpudoctor.verdicts import Action, Status, Unread, Why
from tests.gpu_node import GpuNode
from tests.health_node import ALARMS, HealthNode, alarms, find, shown
from tests.workload_node import GPU

MIG, PERSISTENCE = "health.mig-mode-pending", "health.persistence-mode"
COMPUTE, VBIOS, MEMORY = "health.compute-mode", "health.vbios-agrees", "health.memory-without-process"
RECOVERY = "driver-cuda.recovery-action"

GIB = 1 << 30


# Modes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("current", "pending"), [(False, True), (True, False)])
def test_a_change_of_mig_mode_that_waits_is_told(current: bool, pending: bool) -> None:
    node = HealthNode()
    node.fields({"mig.current": current, "mig.pending": pending}, gpus=[4])
    report = node.report()
    assert (MIG, node.address(4), Status.WARN) in alarms(report)
    said = find(report, MIG, node.address(4))
    assert "at a reset only" in said.summary
    assert [remedy.action for remedy in said.remedies] == [Action.CHANGE_CONFIG, Action.RESET_GPU, Action.REBOOT]
    assert any(f"-mig {int(current)}" in command for command in said.remedies[0].run)


def test_a_gpu_without_mig_is_not_asked_about_it() -> None:
    node = HealthNode()
    node.fields({"mig.current": {"error": 3}, "mig.pending": {"error": 3}})
    assert node.report().result(MIG).status is Status.SKIP


@pytest.mark.parametrize(
    ("modes", "status"),
    [([True] * 8, Status.PASS), ([False] * 8, Status.SKIP), ([True] * 7 + [False], Status.WARN)],
)
def test_persistence_is_told_where_gpus_differ(modes: list[bool], status: Status) -> None:
    node = HealthNode()
    for index, mode in enumerate(modes):
        node.fields({"persistence_mode": mode}, gpus=[index])
    assert node.report().result(PERSISTENCE).status is status


def test_nobody_can_compute_where_it_is_prohibited() -> None:
    node = HealthNode()
    node.fields({"compute_mode": "prohibited"}, gpus=[1])
    node.fields({"compute_mode": "exclusive_process"}, gpus=[2])
    node.devices[2]["processes"] = [{"pid": 5210, "kind": "compute", "used_bytes": GIB}]
    report = node.report()
    assert alarms(report) == [(COMPUTE, node.address(1), Status.FAIL)]
    assert find(report, COMPUTE, node.address(2)).status is Status.PASS


def exclusive(*gpus: int) -> HealthNode:
    """A node on which these GPUs are in exclusive mode, and nobody uses any."""
    node = HealthNode()
    node.fields({"compute_mode": "exclusive_process"}, gpus=gpus)
    return node


def runs(node: HealthNode, comm: str, **more: Any) -> None:
    """One process more on the node."""
    answer = node.whole.answer("processes", lambda: Question("processes"))
    assert isinstance(answer, Answer)
    data = {**answer.data, **more}
    data["processes"] = [*data["processes"], [4711, 1, 100, comm, "S", 0, 0]]
    node.answers["processes"] = replace(answer, data=data)


def test_an_exclusive_mode_that_somebody_left_behind_is_told() -> None:
    node = exclusive(3)
    report = node.report()
    assert alarms(report) == [(COMPUTE, node.address(3), Status.WARN)]
    said = find(report, COMPUTE, node.address(3))
    assert "compute mode is exclusive process, unlike the others'" in said.summary
    assert said.remedies[0].run[0] == f"nvidia-smi -i {node.address(3)} -c DEFAULT"


@pytest.mark.parametrize("gpus", [range(8), range(4), range(5)])
def test_an_exclusive_mode_of_half_a_node_is_meant(gpus: range) -> None:
    assert alarms(exclusive(*gpus).report()) == []


def test_an_exclusive_mode_that_somebody_uses_is_meant() -> None:
    busy = exclusive(3)
    busy.devices[3]["processes"] = [{"pid": 5210, "kind": "compute", "used_bytes": GIB}]
    unlisted = exclusive(3)
    unlisted.devices[3]["processes"] = None
    mps = exclusive(3)
    runs(mps, "nvidia-cuda-mps")
    hidden = exclusive(3)
    runs(hidden, "bash", whole=False)
    unknown = exclusive(3)
    unknown.answers["processes"] = Unread(Why.NOT_RECORDED, "processes", "not recorded")
    for node in (busy, unlisted, mps, hidden, unknown):
        assert find(node.report(), COMPUTE, node.address(3)).status is Status.PASS


def shared(count: int, mode: str, *processes: dict[str, Any]) -> Finding:
    """What is said of the first of two GPUs, given to so many containers by its UUID."""
    node = GpuNode()
    for number in range(count):
        group = f"/system.slice/docker-{f'{number}a1b2c3d' * 8}.scope"
        node.container(700 + number, group, f"NVIDIA_VISIBLE_DEVICES={GPU}")
    devices = [
        {
            "index": minor,
            "pci_bus_id": f"0000:0{5 + minor}:00.0",
            "uuid": GPU if minor == 0 else GPU.replace("0a", "1a"),
            "name": "NVIDIA H100 80GB HBM3",
            "minor": minor,
            "fields": {"compute_mode": mode},
            "processes": list(processes),
        }
        for minor in range(2)
    ]
    node.answers["nvml"] = Answer(data={"init": 0, "count": 2, "devices": devices})
    return find(node.report(), COMPUTE, "0000:05:00.0")


def test_an_exclusive_gpu_that_several_share_is_told() -> None:
    said = shared(2, "exclusive_process")
    assert (said.status, said.cause) == (Status.WARN, "compute-exclusive")
    assert "2 workloads share it" in said.summary


@pytest.mark.parametrize(
    ("count", "mode", "processes"),
    [
        (1, "exclusive_process", ()),
        (2, "default", ()),
        (2, "exclusive_process", ({"pid": 9, "kind": "mps", "name": "nvidia-cuda-mps-server"},)),
    ],
)
def test_exclusive_is_right_for_one_and_for_mps(count: int, mode: str, processes: tuple[dict[str, Any], ...]) -> None:
    assert shared(count, mode, *processes).status is Status.PASS


# Firmware -------------------------------------------------------------------------------------------------------------


def test_boards_of_one_part_should_have_one_vbios() -> None:
    node = HealthNode()
    node.fields({"vbios_version": "96.00.89.00.02"}, gpus=[7])
    report = node.report()
    (cause,) = report.root_causes
    assert (cause.check, cause.status) == (VBIOS, Status.WARN)
    assert [subject.key for subject in cause.subjects] == [node.address(7)]
    assert find(report, VBIOS, node.address(0)).status is Status.PASS
    assert f"96.00.89.00.02 at {node.address(7)}" in cause.summary
    assert f"96.00.89.00.01 at {node.address(0)}" in cause.summary


@pytest.mark.parametrize(("odd", "subjects"), [((5, 7), (5, 7)), ((4, 5, 6, 7), None)])
def test_the_odd_ones_are_named_where_most_agree(odd: tuple[int, ...], subjects: tuple[int, ...] | None) -> None:
    node = HealthNode()
    node.fields({"vbios_version": "96.00.89.00.02"}, gpus=odd)
    (cause,) = node.report().root_causes
    named = [node.address(gpu) for gpu in subjects] if subjects is not None else ["node"]
    assert [subject.key for subject in cause.subjects] == named


@pytest.mark.parametrize(
    "fields",
    [
        {"vbios_version": "96.00.89.00.02", "board_part_number": "965-2G520-A800-000"},
        {"vbios_version": "96.00.89.00.02", "board_part_number": {"error": 3}},
        {"vbios_version": "96.00.89.00.02", "multi_gpu_board": True},
        {"vbios_version": {"error": 13}},
    ],
)
def test_other_boards_may_have_another(fields: dict[str, Any]) -> None:
    node = HealthNode()
    node.fields(fields, gpus=[7])
    report = node.report()
    assert alarms(report) == []
    assert find(report, VBIOS, node.address(7)).status is Status.SKIP


def test_capitals_are_no_other_version() -> None:
    node = HealthNode()
    node.fields({"vbios_version": "96.00.a5.00.01"}, gpus=[0, 1, 2, 3])
    node.fields({"vbios_version": "96.00.A5.00.01"}, gpus=[4, 5, 6, 7])
    assert node.report().result(VBIOS).status is Status.PASS


# Memory ---------------------------------------------------------------------------------------------------------------


def holder(*, pid: int = 5210, minor: int = 2, **more: Any) -> dict[str, Any]:
    """Somebody who has a GPU's node open."""
    nodes = [f"/dev/nvidia{minor}", "/dev/nvidiactl"]
    return {
        "pid": pid,
        "comm": "python3",
        "nodes": nodes,
        "cgroup": "0::/user.slice\n",
        "state": "S",
        "parent": 1,
        **more,
    }


def test_memory_that_nobody_uses_is_lost() -> None:
    node = HealthNode()
    node.fields({"memory.used_bytes": 20 * GIB}, gpus=[2])
    node.held_by(holder(minor=3))
    report = node.report()
    assert alarms(report) == [(MEMORY, node.address(2), Status.WARN)]
    said = find(report, MEMORY, node.address(2))
    assert "20480 MiB in use" in said.summary
    assert "0 processes are listed" in shown(said)


def test_memory_that_the_driver_manages_beside_a_grace_cpu_can_be_lost() -> None:
    node = HealthNode()
    coherent = {"addressing_mode": "ats", "affinity.memory_numa_node": {"error": 3}, "c2c.enabled": True}
    node.fields({**coherent, "memory.used_bytes": 20 * GIB}, gpus=[2])
    node.held_by(holder(minor=3))
    assert node.says(MEMORY, 2).status is Status.WARN


def test_whoever_holds_the_node_explains_the_memory() -> None:
    node = HealthNode()
    node.fields({"memory.used_bytes": 20 * GIB}, gpus=[2])
    node.held_by(holder())
    said = node.says(MEMORY, 2)
    assert (said.status, "python3 (5210)" in said.summary) == (Status.PASS, True)


DAEMONS: tuple[dict[str, Any], ...] = (
    {"pid": 1702, "comm": "nvidia-persiste", "unit": "nvidia-persistenced.service"},
    {"pid": 1711, "comm": "nv-fabricmanage"},
    {"pid": 1712, "comm": "nv-hostengine", "unit": "nvidia-dcgm.service"},
    {"pid": 1713, "comm": "dcgm-exporter"},
)


def test_a_daemon_that_computes_nothing_does_not_explain_the_memory() -> None:
    node = HealthNode()
    node.fields({"memory.used_bytes": 36 * GIB}, gpus=[2])
    node.held_by(*(holder(**daemon) for daemon in DAEMONS))
    report = node.report()
    assert alarms(report) == [(MEMORY, node.address(2), Status.WARN)]
    said = find(report, MEMORY, node.address(2))
    assert "only daemons that compute nothing have it open (nvidia-persiste (1702)" in said.summary
    node.held_by(*(holder(**daemon) for daemon in DAEMONS), holder(comm="gpudata-train"))
    assert "held by gpudata-train (5210)" in node.says(MEMORY, 2).summary


@pytest.mark.parametrize(("holders", "hidden", "why"), [((), 3, "no-permission"), (None, 0, "not-recorded")])
def test_who_was_not_seen_may_hold_it(holders: tuple[dict[str, Any], ...] | None, hidden: int, why: str) -> None:
    node = HealthNode()
    node.fields({"memory.used_bytes": 20 * GIB}, gpus=[2])
    if holders is not None:
        node.held_by(*holders, hidden=hidden)
    said = node.says(MEMORY, 2)
    assert said.status is Status.UNKNOWN
    assert said.why is not None and said.why.value == why


def test_a_container_does_not_see_who_uses_a_gpu() -> None:
    node = HealthNode()
    node.fields({"memory.used_bytes": 20 * GIB}, gpus=[2])
    node.held_by()
    node.error("/dev/kmsg")
    assert node.says(MEMORY, 2).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("fields", "processes"),
    [
        # Instances have lists of their own, guests their vGPU, a little is the driver's own.
        ({"memory.used_bytes": 20 * GIB, "mig.current": True, "mig.pending": True}, []),
        ({"memory.used_bytes": 20 * GIB, "vgpu.active": 2}, []),
        ({"memory.used_bytes": GIB // 2}, []),
        # The kernel's own pages lie in the memory of a GPU that is a NUMA node; older drivers do not tell the node.
        ({"memory.used_bytes": 20 * GIB, "affinity.memory_numa_node": 9, "addressing_mode": "ats"}, []),
        ({"memory.used_bytes": 20 * GIB, "affinity.memory_numa_node": {"error": 13}, "c2c.enabled": True}, []),
        ({"memory.used_bytes": 20 * GIB}, [{"pid": 5210, "kind": "compute", "used_bytes": 19 * GIB}]),
        ({"memory.used_bytes": 20 * GIB}, None),
    ],
)
def test_memory_with_an_owner_is_fine(fields: dict[str, Any], processes: list[dict[str, Any]] | None) -> None:
    node = HealthNode()
    node.fields(fields, gpus=[2])
    node.devices[2]["processes"] = processes
    said = node.says(MEMORY, 2)
    assert said.status not in (*ALARMS, Status.UNKNOWN)
    assert said.status is Status.SKIP or processes or fields["memory.used_bytes"] < GIB, said
    assert not node.was_asked("holders")


# Reset ----------------------------------------------------------------------------------------------------------------


def reset_wanted() -> HealthNode:
    """A node whose third GPU is to be reset."""
    node = HealthNode()
    node.fields({"recovery_action": "gpu_reset", "persistence_mode": True}, gpus=[2])
    return node


def test_who_stands_in_the_way_of_a_reset_is_named() -> None:
    node = reset_wanted()
    node.held_by(
        holder(),
        holder(
            pid=900, comm="nv-hostengine", unit="nvidia-dcgm.service", cgroup="0::/system.slice/nvidia-dcgm.service\n"
        ),
        holder(pid=901, minor=5),
    )
    node.text("/proc/modules", "nvidia_drm 77824 2 - Live 0x0\nnvidia 1000 9 nvidia_drm, Live 0x0\n")
    said = find(node.report(), RECOVERY, node.address(2))
    assert "held by persistence mode, python3 (5210), nv-hostengine (900), nvidia_drm" in said.summary
    assert "nvidia_drm: use count 2" in shown(said)
    commands = [command for remedy in said.remedies for command in remedy.run]
    order = [
        f"nvidia-smi -i {node.address(2)} -pm 0",
        "systemctl stop nvidia-dcgm.service",
        "fuser -v",
        "rmmod nvidia_drm nvidia_modeset",
        f"nvidia-smi --gpu-reset -i {node.address(2)}",
        f"nvidia-smi -i {node.address(2)} -pm 1",
        "systemctl start nvidia-dcgm.service",
        "systemctl reboot",
    ]
    places = [next(at for at, command in enumerate(commands) if command.startswith(wanted)) for wanted in order]
    assert places == sorted(places)
    assert not any("stop python3" in command for command in commands)


def test_nobody_in_the_way_needs_no_special_way() -> None:
    node = reset_wanted()
    node.fields({"persistence_mode": False})
    node.held_by(holder(minor=5))
    said = find(node.report(), RECOVERY, node.address(2))
    assert said.summary == "the driver asks for: gpu reset"


def test_a_reboot_needs_nobody_to_let_go() -> None:
    node = reset_wanted()
    node.fields({"recovery_action": "node_reboot"}, gpus=[2])
    node.held_by(holder())
    said = find(node.report(), RECOVERY, node.address(2))
    assert [remedy.action for remedy in said.remedies] == [Action.NONE, Action.REBOOT]
    assert "python3 (5210)" in said.summary


def test_an_imex_domain_is_recovered_by_its_daemon_and_not_by_a_reset() -> None:
    node = reset_wanted()
    node.fields({"recovery_action": "recover_imex_domain"}, gpus=[2])
    node.held_by(holder())
    said = find(node.report(), RECOVERY, node.address(2))
    assert said.summary == "the driver asks for: recover imex domain"
    assert [remedy.action for remedy in said.remedies] == [
        Action.NONE,
        Action.CHANGE_WORKLOAD,
        Action.RESTART_SERVICE,
    ]
    commands = " ".join(command for remedy in said.remedies for command in remedy.run)
    assert "systemctl restart nvidia-imex" in commands and "reset" not in commands and "reboot" not in commands


def test_a_healthy_node_is_not_searched_for_holders() -> None:
    node = HealthNode()
    node.report()
    assert not node.was_asked("holders")
