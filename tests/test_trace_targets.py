"""What `gpudoctor trace` takes a target for: every form, names that fit nothing, and names that fit several."""

import json
import re

import pytest

from gpudoctor.config import ConfigError
from gpudoctor.facts.device_access import Access, DeviceKind
from gpudoctor.sources.recorded import Record
from gpudoctor.trace import StepId
from gpudoctor.verdicts import Status
from tests.device_shapes import Rule
from tests.gpu_node import GIVEN, INSIDE, PID
from tests.trace_cases import HOST_MOUNTS
from tests.trace_node import LIBRARIES, NODES, ROOT_MOUNTS, UUIDS, VERSION, TraceNode, broken, statuses
from tests.workload_node import CRI, DOCKER, ID, OTHER, POD, UID, oci

# targets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    ["docker:web", f"docker:{ID}", f"docker:{ID[:6]}", f"containerd:{ID[:12]}", f"container:{ID[:12]}", f"pid:{PID}"],
)
def test_container_is_found_by_name_id_beginning_and_pid(word: str) -> None:
    one = TraceNode().traced(word)
    assert (one.title, one.container_id, one.pid, one.verdict.value) == ("docker:web", ID, PID, "pass")
    assert one.step(StepId.FOUND).evidence[0].where == f"/proc/{PID}/cgroup"


def test_process_of_a_container_is_judged_by_its_own_variables() -> None:
    node = TraceNode()
    node.build()
    node.process(703, DOCKER, apart=True)
    node.inside(703, *node.environment, "CUDA_VISIBLE_DEVICES=-1", nodes=NODES, mountinfo="".join(node.mounts))
    for library in ("libcuda", "libnvidia-ml"):
        node.library(LIBRARIES, library, VERSION, pid=703)
    node.status(703)
    node.text("/proc/703/maps", "")
    (one,) = node.trace("pid:703", built=True).traced
    assert (one.pid, one.title, one.first_broken) == (703, "docker:web", StepId.VISIBLE)
    (leading,) = node.trace("docker:web", built=True).traced
    assert (leading.pid, leading.first_broken) == (PID, None)


def test_process_of_the_node_itself_sees_the_nodes_own_devices() -> None:
    node = TraceNode()
    node.build()
    group = "/system.slice/ollama.service"
    node.process(900, group, comm="ollama")
    mounts = HOST_MOUNTS + "62 61 0:6 / /dev/shm rw - tmpfs tmpfs rw\n"
    node.inside(900, "PATH=/bin", nodes=NODES, mountinfo=mounts)
    for library in ("libcuda", "libnvidia-ml"):
        node.library(LIBRARIES, library, VERSION, pid=900, mounted=False)
    node.status(900)
    node.text("/proc/900/maps", "")
    node._cgroups[f"/sys/fs/cgroup{group}"] = {"effective": [], "attached": []}
    (one,) = node.trace("pid:900", built=True).traced
    assert {name for name, status in statuses(one).items() if status != "pass"} == {"runtime", "capabilities"}, (
        one.steps
    )
    assert "sees the node's own /dev with 2 GPUs" in one.step(StepId.ASKED).summary
    assert one.step(StepId.RULES).summary == "it may read and write its 4 nodes: no device rule applies"
    assert one.step(StepId.FOUND).summary == "PID 900 (ollama) of service ollama.service"


def test_service_with_private_devices_lacks_the_nodes() -> None:
    node = TraceNode()
    node.build()
    node.process(900, "/system.slice/ollama.service", comm="ollama", mount=4026532999)
    node.inside(900, "PATH=/bin", mountinfo=ROOT_MOUNTS)
    node.absent("/proc/900/root/dev/nvidiactl")
    (one,) = node.trace("pid:900", built=True).traced
    assert broken(one)[0] == "asked"
    assert "PrivateDevices" in one.step(StepId.NODES).remedies[0].say


def _pod(node: TraceNode, *containers: tuple[int, str, str]) -> None:
    """Containers of one pod: PID, id, name; the first has what docker's container had."""
    for pid, container, name in containers:
        node.process(pid, POD.replace(ID, container), apart=True)
        node.bundle(container, oci(annotations={**CRI, "io.kubernetes.cri.container-name": name}))
        node.status(pid)


def test_pod_is_traced_container_by_container_and_a_sidecar_needs_no_gpu() -> None:
    node = TraceNode()
    _pod(node, (702, ID, "main"), (800, OTHER, "sidecar"))
    node.inside(702, f"NVIDIA_VISIBLE_DEVICES={UUIDS[0]}", nodes=INSIDE, mountinfo="".join(node.mounts))
    node.inside(800, "PATH=/bin")
    node.absent("/proc/800/root/dev/nvidiactl")
    node.rules(*GIVEN, group=POD)
    found = node.trace("pod:lab/trainer", built=True)
    one, other = sorted(found.traced, key=lambda traced: traced.pid)
    assert [one.title, other.title] == ["lab/trainer/main", "lab/trainer/sidecar"]
    assert (
        "NVIDIA_VISIBLE_DEVICES" in one.step(StepId.ASKED).evidence[0].shows
        and one.step(StepId.RULES).status is Status.PASS
    )
    assert (other.verdict.value, other.summary) == ("pass", "it is not meant to have a GPU")
    assert other.step(StepId.ASKED).status is Status.SKIP
    for word in ("pod:trainer", f"pod:{UID}"):
        assert [traced.pid for traced in node.trace(word, built=True).traced] == [traced.pid for traced in found.traced]


def test_job_sees_nodes_of_others_and_may_use_its_own() -> None:
    node = TraceNode()
    job = "/system.slice/slurmstepd.scope/job_397/step_0/user/task_0"
    node.process(611, job, comm="python3")
    mounts = HOST_MOUNTS
    variables = ("SLURM_JOB_ID=397", "SLURM_JOB_GPUS=1", "CUDA_VISIBLE_DEVICES=0")
    node.inside(611, *variables, nodes=NODES, mountinfo=mounts)
    for library in ("libcuda", "libnvidia-ml"):
        node.library(LIBRARIES, library, VERSION, pid=611, mounted=False)
    node.status(611)
    node.text("/proc/611/maps", "")
    node.rules(*GIVEN[1:], Rule(True, DeviceKind.CHAR, 195, 1, Access.READ | Access.WRITE), group=job)
    (one,) = node.trace("slurm:397", built=True).traced
    assert (one.title, one.first_broken) == ("slurm:397", None), one.summary
    assert [gpu.uuid for gpu in one.gpus] == [UUIDS[1]]
    assert one.step(StepId.VISIBLE).summary == "0: the GPU inside is visible"
    node.inside(611, *variables[:2], "CUDA_VISIBLE_DEVICES=1", nodes=NODES, mountinfo=mounts)
    (one,) = node.trace("slurm:397", built=True).traced
    assert one.first_broken is StepId.VISIBLE


def test_podman_and_crio_are_found_by_their_words() -> None:
    node = TraceNode()
    node.build()
    node.process(705, f"/machine.slice/libpod-{OTHER}.scope", apart=True)
    node.text(
        "/var/lib/containers/storage/overlay-containers/containers.json",
        json.dumps([{"id": OTHER, "names": ["bold_moser"]}]),
    )
    crio = "c0ffee00" * 8
    node.process(706, f"/kubepods/pod{UID}/crio-{crio}", apart=True)
    assert [one.pid for one in node.trace("podman:bold_moser", built=True).traced] == [705]
    assert [one.pid for one in node.trace(f"crio:{crio[:8]}", built=True).traced] == [706]


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("docker:wbe", ("none of 1 running containers of docker", "did you mean 'docker:web'?")),
        ("docker:nothing-like-it", ("there are docker:web",)),
        ("pod:lab/nobody", ("none of 0 pods",)),
        ("slurm:12", ("none of 0 Slurm jobs",)),
        ("pid:99999", ("none of 2 processes has that number",)),
        ("pid:web", ("names no target",)),
        ("dockr:web", ("did you mean 'docker'?",)),
        ("web", ("names no target: it is pid:N, docker:NAME",)),
        ("docker:", ("names no target",)),
        (f"docker:{ID[:3]}", ("none of 1 running containers",)),
    ],
)
def test_target_that_fits_nothing_says_what_was_searched(word: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        TraceNode().trace(word)
    assert all(part in str(refused.value) for part in words), refused.value


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"ExitCode": 127, "Error": "no such\nfile"}, "its last start failed with exit code 127: no such file"),
        ({"ExitCode": 1, "Error": ""}, "it does not run (exit code 1)"),
        ({"Running": True, "Error": "of old"}, "none of 1 running containers"),
        (None, "none of 1 running containers"),
        ("odd", "none of 1 running containers"),
    ],
)
def test_container_that_docker_keeps_and_that_does_not_run_says_why(state: object, words: str) -> None:
    node = TraceNode()
    node.build()
    kept = {"Name": "/late", "State": state, "Config": {"Image": "late:1"}}
    node.text(f"/var/lib/docker/containers/{OTHER}/config.v2.json", json.dumps(kept))
    for word in ("docker:late", f"container:{OTHER[:12]}"):
        with pytest.raises(ConfigError, match=re.escape(words)):
            node.trace(word, built=True)
    with pytest.raises(ConfigError, match="none of 1 running containers"):
        node.trace(f"docker:{OTHER[:3]}", built=True)


def test_several_that_fit_are_listed() -> None:
    node = TraceNode()
    node.build()
    twin = ID[:20] + OTHER[20:]
    node.process(710, f"/docker/{twin}", apart=True)
    with pytest.raises(ConfigError, match=rf"could be 2 containers: .*docker:web \({ID[:12]}\).*say which"):
        node.trace(f"docker:{ID[:12]}", built=True)
    assert node.trace(f"docker:{ID[:21]}", built=True).traced[0].pid == PID


def test_pods_of_one_name_in_two_namespaces_are_listed() -> None:
    node = TraceNode()
    other_uid = "8c2f0d9e-0c1d-4a55-9f5f-3f2d6c1b0a11"
    _pod(node, (702, ID, "main"))
    node.process(800, POD.replace(ID, OTHER).replace(UID.replace("-", "_"), other_uid.replace("-", "_")), apart=True)
    node.bundle(OTHER, oci(annotations={**CRI, "io.kubernetes.cri.sandbox-namespace": "prod"}))
    with pytest.raises(ConfigError, match=r"could be 2 pods: .*pod:lab/trainer .*pod:prod/trainer"):
        node.trace("pod:trainer", built=True)


def test_incomplete_list_says_that_there_may_be_more() -> None:
    node = TraceNode()
    node.build()
    node.uid = 1000
    node.tree.put("/proc/703/cgroup", Record(error="EACCES"))
    with pytest.raises(ConfigError, match=r"processes do not show their control group \(would need root\)"):
        node.trace("docker:wrong", built=True)
