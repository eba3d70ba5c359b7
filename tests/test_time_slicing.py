"""Sharing in time: what the device plugin is told, replicas that pods hold, and memory that workloads have in common."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.device_plugin import DevicePlugin
from gpudoctor.facts.gpu_workloads import GpuWorkloads
from gpudoctor.facts.mps import Mps
from gpudoctor.facts.mps_logs import MpsLogs
from gpudoctor.facts.mps_setup import MpsSetup
from gpudoctor.facts.raw import Absent, Answer, TextFile
from gpudoctor.facts.sharing_config import SharingConfig
from gpudoctor.report import Finding
from gpudoctor.testing import config_of, node, run_check
from gpudoctor.verdicts import Status, Unread
from tests.altered import Altered
from tests.captures import crashed
from tests.gpu_node import GpuNode
from tests.small_node import alarms, cited, steps
from tests.test_device_plugin import NODES, RUNNING, STARTING, PluginNode, config
from tests.test_device_plugin import diagnose as of_plugin
from tests.test_kubelet import GPUS
from tests.workload_node import GPU

SLICING, CONTENTION = "sharing.time-slicing", "sharing.memory-contention"
FILE = "/config/config.yaml"
RESOURCE = {"name": "nvidia.com/gpu", "replicas": 4}
SHARED: Mapping[str, Any] = {"timeSlicing": {"resources": [RESOURCE]}}
GIB = 1 << 30
REPLICAS = tuple(f"{uuid}::{number}" for uuid in GPUS for number in range(4))


def plugin(sharing: Mapping[str, Any] = SHARED, *, file: str = "") -> PluginNode:
    """A plugin that runs with a configuration, and perhaps with a file that says more."""
    made = PluginNode()
    made.log(RUNNING + config("none", sharing))
    made.resources({"nvidia.com/gpu": REPLICAS})
    if file:
        made.started_with(f"--config-file={FILE}")
        made.text(f"/proc/2000/root{FILE}", file)
    return made


def yaml(sharing: str) -> str:
    """A configuration file of the plugin's."""
    return f"version: v1\nflags:\n  migStrategy: none\nsharing:\n{sharing}"


def sliced(lines: str) -> str:
    """A file with one way of sharing, spelled as it should be."""
    return yaml(f"  timeSlicing:\n{lines}")


def told(made: PluginNode) -> list[Finding]:
    """The alarms about the configuration."""
    return alarms(of_plugin(made), SLICING)


# The configuration ----------------------------------------------------------------------------------------------------


def test_what_is_shared_in_time_is_told_with_what_it_does_not_keep_apart() -> None:
    report = of_plugin(plugin())
    (said,) = report.result(SLICING).findings
    assert said.status is Status.PASS
    assert "nvidia.com/gpu 4 times, shared in time; neither memory nor faults are kept apart" in said.summary
    assert "sharing.timeSlicing: nvidia.com/gpu: 4 replicas" in cited(said)


def test_a_shared_resource_that_was_renamed_is_called_so() -> None:
    made = plugin({"timeSlicing": {"renameByDefault": True, "resources": [RESOURCE]}})
    assert "nvidia.com/gpu.shared 4 times" in of_plugin(made).result(SLICING).findings[0].summary


def test_mps_is_told_apart() -> None:
    made = plugin({"mps": {"resources": [RESOURCE]}, "timeSlicing": {}})
    (said,) = of_plugin(made).result(SLICING).findings
    assert "shared by MPS; MPS is to limit each pod's memory, and keeps no faults apart" in said.summary


@pytest.mark.parametrize("sharing", [{}, {"timeSlicing": {}}])
def test_a_plugin_that_shares_nothing_is_not_asked(sharing: Mapping[str, Any]) -> None:
    assert of_plugin(plugin(sharing)).result(SLICING).status is Status.SKIP


def test_a_recorded_node_with_four_replicas_of_each() -> None:
    assert run_check(SLICING, node("labels-under-time-slicing")).status is Status.PASS
    assert run_check(SLICING, node("h100x8")).status is Status.SKIP


GOOD = "    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (yaml(f"  timeslices:\n{GOOD}"), "sharing has a key timeslices that the device plugin does not know"),
        (sliced(f"    renamebydefault: true\n{GOOD}"), "perhaps meant for renameByDefault"),
        (sliced(f"{GOOD}      replica: 8\n"), "sharing.timeSlicing.resources has a key replica"),
        (sliced("    resources:\n    - name: nvidia.com/gpu\n      replicas: 1\n"), "nvidia.com/gpu has replicas 1"),
        (sliced("    resources:\n    - name: nvidia.com/gpu\n      replicas: '4'\n"), "nvidia.com/gpu has replicas 4"),
        (
            sliced(f"    resources:\n    - name: nvidia.com/gpu\n      replicas: -0x{'f' * 6000}\n"),
            "nvidia.com/gpu has replicas a number beyond all counting",
        ),
        (sliced("    resources:\n    - name: nvidia.com/gpu\n"), "nvidia.com/gpu has no replicas"),
        (sliced("    renameByDefault: true\n"), "names no resource"),
        (sliced(f"{GOOD}      rename: nvidia.com/slice\n"), "rename of nvidia.com/gpu is passed over"),
        (yaml(f"  timeSlicing:\n{GOOD}  mps:\n{GOOD}"), "takes mps and leaves timeSlicing out"),
        (yaml(f"  1: {{}}\n  timeSlicing:\n{GOOD}"), "sharing has a key 1 that the device plugin does not know"),
        (yaml(f"  {'x' * 900}: 1\n  timeSlicing:\n{GOOD}"), f"sharing has a key {'x' * 100} that"),
        (
            "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
            + "".join(f"{one}: &{one} [{', '.join([f'*{chr(ord(one) - 1)}'] * 9)}]\n" for one in "bcdefghij")
            + sliced("    resources:\n    - name: nvidia.com/gpu\n      replicas: *j\n"),
            "nvidia.com/gpu has replicas a list",
        ),
    ],
)
def test_a_file_that_does_not_do_what_it_says(file: str, words: str) -> None:
    (said,) = told(plugin({"timeSlicing": {}}, file=file))
    assert (said.status, said.subject.key) == (Status.WARN, "nvidia-device-plugin")
    assert words in said.summary
    assert f"/proc/2000/root{FILE}" in cited(said)
    assert "kubectl -n NAMESPACE edit configmap NAME" in steps(said)


@pytest.mark.parametrize(
    "file",
    [
        sliced(f"    failRequestsGreaterThanOne: false\n{GOOD}"),
        yaml(f"  timeslicing:\n{GOOD}"),
        sliced(f"{GOOD}      devices: all\n"),
        "version: v1\nflags:\n  migStrategy: none\n",
        "version: v1\nsharing: null\n",
    ],
)
def test_a_file_that_the_plugin_takes(file: str) -> None:
    assert told(plugin(file=file)) == []


def test_a_plugin_that_refuses_its_configuration() -> None:
    made = PluginNode()
    made.log(
        f"{STARTING}E1129 10:00:00.2       1 main.go:173] unable to load config: unable to finalize config: unable to parse config "
        "file: unmarshal error: error unmarshaling JSON: while decoding JSON: number of replicas must be >= 2\n"
    )
    (said,) = told(made)
    assert said.status is Status.FAIL
    assert "number of replicas must be >= 2" in said.summary


# What pods hold -------------------------------------------------------------------------------------------------------


def holding(*ids: str) -> PluginNode:
    """A pod that holds these devices."""
    made = plugin()
    made.container("NVIDIA_VISIBLE_DEVICES=void", nodes=NODES)
    made.resources({"nvidia.com/gpu": REPLICAS}, ("lab", "trainer", ids))
    return made


def test_two_replicas_of_one_gpu_are_no_two_gpus() -> None:
    (said,) = told(holding(REPLICAS[0], REPLICAS[2]))
    assert (said.status, said.subject.key) == (Status.WARN, "lab/trainer")
    assert f"holds 2 replicas of one GPU, {GPUS[0]}" in said.summary
    assert "failRequestsGreaterThanOne: true" in "".join(remedy.say for remedy in said.remedies)


def test_one_replica_of_each_of_two_gpus_is_what_was_asked_for() -> None:
    assert told(holding(REPLICAS[0], REPLICAS[4])) == []


# Memory ---------------------------------------------------------------------------------------------------------------


class Crowd(GpuNode):
    """Processes on the first of two GPUs, each in a container, job or login of its own."""

    def __init__(self, used: int = 79, **fields: Any) -> None:
        super().__init__()
        self.fields = {"memory.used_bytes": used * GIB, "memory.total_bytes": 80 * GIB, **fields}
        self.using: list[dict[str, Any]] = []

    def owned(self, pid: int, group: str, kind: str = "compute", environment: Sequence[str] = ()) -> "Crowd":
        """A process more."""
        self.process(pid, group, apart="docker" in group)
        if environment:
            self.text(f"/proc/{pid}/environ", "".join(f"{one}\0" for one in environment))
        self.using.append({"pid": pid, "kind": kind, "used_bytes": GIB, "name": "python3"})
        return self

    def says(self, check: str = CONTENTION) -> Finding:
        """What is said of the first GPU."""
        devices = [
            {
                "index": minor,
                "pci_bus_id": f"0000:0{5 + minor}:00.0",
                "uuid": GPU if minor == 0 else GPU.replace("0a", "1a"),
                "minor": minor,
                "fields": self.fields if minor == 0 else {},
                "processes": self.using if minor == 0 else [],
            }
            for minor in range(2)
        ]
        self.answers["nvml"] = Answer(data={"init": 0, "count": 2, "devices": devices})
        report = self.report()
        assert not crashed(report)
        (found,) = (one for one in report.result(check).findings if one.subject.key == "0000:05:00.0")
        return found


def scope(letter: str) -> str:
    """The group of a docker container."""
    return f"/system.slice/docker-{letter * 64}.scope"


def test_a_full_gpu_that_two_containers_share() -> None:
    said = Crowd().owned(700, scope("a")).owned(701, scope("b")).says()
    assert (said.status, said.cause) == (Status.WARN, "memory-shared")
    assert "99 % of its memory is in use, and 2 workloads share it without limits" in said.summary
    assert "shared_memory_percent = 95" in cited(said)
    assert "nvidia-smi -i 0000:05:00.0" in steps(said)


def test_several_processes_of_one_container_are_its_own_affair() -> None:
    assert Crowd().owned(700, scope("a")).owned(701, scope("a")).says().status is Status.SKIP


@pytest.mark.parametrize("name", ["docker-a", "session-3"])
def test_one_process_alone_may_fill_it(name: str) -> None:
    assert Crowd().owned(700, f"/system.slice/{name}.scope").says().status is Status.SKIP


def test_a_gpu_that_is_shared_and_has_room() -> None:
    said = Crowd(40).owned(700, scope("a")).owned(701, scope("b")).says()
    assert said.status is Status.PASS
    assert "2 workloads share it, 50 % of its memory is in use" in said.summary


def test_mig_keeps_memory_apart() -> None:
    crowd = Crowd(**{"mig.current": True}).owned(700, scope("a")).owned(701, scope("b"))
    assert crowd.says().status is Status.SKIP


def test_what_draws_only_does_not_count() -> None:
    crowd = Crowd().owned(700, scope("a")).owned(701, "/user.slice/user-1000.slice/session-3.scope", "graphics")
    assert crowd.says().status is Status.SKIP


@pytest.mark.parametrize(
    ("limit", "status"), [("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40G", Status.SKIP), ("A=b", Status.WARN)]
)
def test_clients_of_mps_with_a_limit_have_their_part(limit: str, status: Status) -> None:
    crowd = Crowd()
    for number, letter in enumerate("ab"):
        crowd.owned(700 + number, scope(letter), "mps", ("CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", limit))
    assert crowd.says().status is status


def test_memory_that_was_not_answered_is_not_known() -> None:
    crowd = Crowd().owned(700, scope("a")).owned(701, scope("b"))
    del crowd.fields["memory.total_bytes"]
    assert crowd.says().status is Status.UNKNOWN


# Cost -----------------------------------------------------------------------------------------------------------------


class Watched(Altered):
    """A recorded node that remembers which files might have blocked."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[str] = []

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, TextFile | Absent | Unread]:
        """Read and remember."""
        self.asked += paths
        return super().read_blocking(paths, keep=keep)


@pytest.mark.parametrize("name", ["h100x8", "kubernetes-gpu-node-healthy"])
def test_no_more_processes_are_looked_at_where_nothing_is_shared(name: str) -> None:
    watched = Watched(name)
    desk = Desk(watched, config_of(watched.whole))
    for kind in (GpuWorkloads, DevicePlugin):
        assert not isinstance(desk.get(kind), Unread)
    before = len(watched.asked)
    for more in (Mps, MpsLogs, MpsSetup, SharingConfig):
        assert not isinstance(desk.get(more), Unread)
    assert {path for path in watched.asked[before:] if not path.startswith("/proc/")} == set()
    assert [path for path in watched.asked[before:] if "mps" in path] == []
    assert name != "h100x8" or watched.asked[before:] == []
