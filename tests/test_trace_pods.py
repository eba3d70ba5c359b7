"""`gpudoctor trace pod:…`: what the kubelet holds for a pod, held against the GPUs and against what its containers have."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor.config import ConfigError
from gpudoctor.registry import built_in
from gpudoctor.sources.snapshot import Snapshot, open_snapshot
from gpudoctor.testing import config_of, fixtures, node
from gpudoctor.trace import OUTSIDE_OF_PODS, Step, StepId, Traced, json_schema
from gpudoctor.trace_run import trace
from gpudoctor.verdicts import Status
from tests.captures import NOW
from tests.trace_node import TraceNode
from tests.workload_node import CRI, ID, POD, oci

HEALTHY = "kubernetes-gpu-node-healthy"
TRAINER, SERVER, PLUGIN = "ml/train-0", "ml/infer-6d9c7b5f4-x2lqk", "gpu-operator/nvidia-device-plugin-daemonset-tl9k7"
TRAINERS_UID = "77a6cab6-fb2f-cf14-ddbf-5b9e243bdc1d"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
CONSEQUENCES = (StepId.ASKED, StepId.NODES, StepId.RULES)


def traced(name: str | Snapshot, pod: str) -> Traced:
    """The only container of a pod."""
    recorded = node(name) if isinstance(name, str) else name
    (one,) = trace(recorded, config_of(recorded), built_in(), f"pod:{pod}", NOW).traced
    return one


def allocation(one: Traced) -> Step:
    return one.step(StepId.ALLOCATION)


def shown(step: Step) -> str:
    return "\n".join(f"{each.where}: {each.shows}" for each in step.evidence)


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Snapshot]:
    """A recorded node with its answers or entries changed."""

    def edit(
        name: str,
        *,
        resources: Callable[[Any], Any] | None = None,
        nvml: Callable[[Any], Any] | None = None,
        entries: Callable[[Any], Any] | None = None,
        place: str = "node",
    ) -> Snapshot:
        copied = tmp_path / place
        shutil.copytree(fixtures() / name, copied)
        for change, answer in ((resources, "pod_resources"), (nvml, "nvml")):
            if change is not None:
                file = copied / "answers" / f"{answer}.json"
                file.write_text(json.dumps(change(json.loads(file.read_text()))))
        if entries is not None:
            file = copied / "entries.jsonl"
            lines = (entries(json.loads(line)) for line in file.read_text().splitlines())
            file.write_text("".join(f"{json.dumps(line)}\n" for line in lines if line is not None))
        return open_snapshot(copied)

    return edit


def giving(pod: str, *ids: str) -> Callable[[Any], Any]:
    """The kubelet's answer with other devices for a pod."""

    def change(answer: Any) -> Any:
        for one in answer["data"]["pods"]:
            if f"{one['namespace']}/{one['name']}" == pod:
                one["containers"][0]["devices"] = [{"resource": "nvidia.com/gpu", "ids": list(ids), "numa": [0]}]
        return answer

    return change


def failing(_answer: Any) -> Any:
    why = {"why": "no-permission", "detail": "connect: permission denied"}
    return {"schema": 1, "via": "PodResources", "data": {}, "error": why, "stopped_at": None}


def holding(pod: str) -> tuple[str, ...]:
    """What the kubelet of the healthy node holds for a pod."""
    answer = json.loads((fixtures() / HEALTHY / "answers" / "pod_resources.json").read_text())
    for one in answer["data"]["pods"]:
        if f"{one['namespace']}/{one['name']}" == pod:
            return tuple(each for given in one["containers"][0]["devices"] for each in given["ids"])
    raise KeyError(pod)


# containers that run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", [TRAINER, SERVER, TRAINERS_UID])
def test_pod_that_has_what_the_kubelet_holds_passes(pod: str) -> None:
    one = traced(HEALTHY, pod)
    step = allocation(one)
    assert (step.status, one.first_broken) == (Status.PASS, None)
    assert "alive, and what it has" in step.summary
    assert "PodResources" in shown(step) and "NVML" in shown(step) and "/root/dev" in shown(step)
    assert [each.id for each in one.steps] == list(StepId)


def test_plugin_has_its_gpus_past_the_kubelet_on_purpose() -> None:
    step = allocation(traced(HEALTHY, PLUGIN))
    assert (step.status, step.summary) == (
        Status.PASS,
        "the kubelet holds none for it; it has the nodes of 8 GPUs past the kubelet",
    )


@pytest.mark.parametrize(
    ("name", "pod", "cites"),
    [
        ("static-pod-runs-without-the-gpu-it-asked-for", "default/gpu-burn-n1", "limits nvidia.com/gpu: 1"),
        ("pod-restarted-without-its-gpu", SERVER, "kubectl -n ml get pod"),
    ],
)
def test_who_asked_and_got_nothing_is_told_by_the_allocation(name: str, pod: str, cites: str) -> None:
    one = traced(name, pod)
    step = allocation(one)
    assert (one.first_broken, step.status) == (StepId.ALLOCATION, Status.FAIL)
    assert "it asks for 1 nvidia.com/gpu, and the kubelet holds none for it" in step.summary
    assert cites in shown(step) and "no device" in shown(step)
    assert all(one.step(each).caused_by == (StepId.ALLOCATION,) for each in CONSEQUENCES)
    assert step.remedies[0].confirm == f"gpudoctor trace pod:{pod}"


def test_static_pod_that_asks_for_nothing_is_no_fault_of_the_kubelet() -> None:
    one = traced("static-pod-that-asks-for-nothing", "default/gpu-burn-n1")
    assert (allocation(one).status, one.first_broken) == (Status.SKIP, StepId.ASKED)


def test_uuid_that_is_gone_is_the_first_broken_step_of_its_pod_alone() -> None:
    name = "checkpoint-names-a-uuid-that-is-gone"
    one = traced(name, SERVER)
    assert one.first_broken is StepId.ALLOCATION
    assert "which no GPU of this node has any more" in allocation(one).summary
    assert holding(SERVER)[0] in shown(allocation(one))
    assert allocation(traced(name, TRAINER)).status is Status.PASS


def test_dead_gpu_follows_from_what_the_nodes_checks_say() -> None:
    one = traced("pod-holds-a-gpu-that-fell-off-the-bus", TRAINER)
    step = allocation(one)
    assert (one.first_broken, step.status, step.caused_by) == (StepId.HOST, Status.FAIL, (StepId.HOST,))
    assert "dead" in step.summary and "NVML_ERROR_GPU_IS_LOST" in shown(step)


@pytest.mark.parametrize(
    ("name", "pod", "words"),
    [
        ("notebook-pod-uses-a-gpu-of-another-pod", "shop/notebook-0", f"gave the same to {SERVER}, {TRAINER}"),
        ("two-pods-on-one-gpu-after-a-lost-checkpoint", SERVER, "has no record of that; the kubelet gave the same to"),
        ("checkpoint-without-a-running-pod", SERVER, "by CDI, and the kubelet has no record of that"),
    ],
)
def test_who_has_gpus_without_the_kubelet_is_warned_of(name: str, pod: str, words: str) -> None:
    one = traced(name, pod)
    assert (allocation(one).status, one.first_broken) == (Status.WARN, None)
    assert words in allocation(one).summary and "holds no device" in shown(allocation(one))


@pytest.mark.parametrize(
    ("name", "pod"), [("time-slicing-two-pods-on-one-gpu", "ml/eval-0"), ("checkpoint-with-a-boot-id", TRAINER)]
)
def test_shared_gpu_and_other_shapes_of_the_record_are_sound(name: str, pod: str) -> None:
    assert allocation(traced(name, pod)).status is Status.PASS


def test_other_gpu_than_the_kubelet_holds_is_broken(edited: Callable[..., Snapshot]) -> None:
    one = traced(edited(HEALTHY, resources=giving(SERVER, holding(TRAINER)[0])), SERVER)
    assert one.first_broken is StepId.ALLOCATION
    assert allocation(one).summary == (
        f"the kubelet holds {holding(TRAINER)[0]} for it, and it has {holding(SERVER)[0]}"
    )


def test_gift_of_which_nothing_reached_the_container_is_broken(edited: Callable[..., Snapshot]) -> None:
    name = "static-pod-that-asks-for-nothing"
    one = traced(edited(name, resources=giving("default/gpu-burn-n1", holding(SERVER)[0])), "default/gpu-burn-n1")
    assert one.first_broken is StepId.ALLOCATION
    assert "nothing of that reached it" in allocation(one).summary
    assert all(one.step(each).caused_by == (StepId.ALLOCATION,) for each in CONSEQUENCES)


def test_more_than_the_kubelet_holds_is_warned_of(edited: Callable[..., Snapshot]) -> None:
    kept, other = holding(TRAINER)
    step = allocation(traced(edited(HEALTHY, resources=giving(TRAINER, kept)), TRAINER))
    assert (step.status, step.summary) == (
        Status.WARN,
        f"it has {other} beside {kept}, which the kubelet holds for it",
    )


# what could not be read ---------------------------------------------------------------------------------------------


def test_record_speaks_where_the_kubelet_does_not(edited: Callable[..., Snapshot]) -> None:
    step = allocation(traced(edited(HEALTHY, resources=failing), TRAINER))
    assert step.status is Status.PASS and CHECKPOINT in shown(step)


def test_neither_answer_nor_record_leaves_it_unknown(edited: Callable[..., Snapshot]) -> None:
    def denied(line: Any) -> Any:
        return {"path": CHECKPOINT, "error": "EACCES"} if line.get("path") == CHECKPOINT else line

    changed = edited(HEALTHY, resources=failing, entries=denied)
    one = traced(changed, TRAINER)
    assert allocation(one).status is Status.UNKNOWN and one.first_broken is None
    assert "permission denied" in allocation(one).summary
    with pytest.raises(ConfigError, match="what the kubelet knows is not known"):
        traced(changed, "ml/nobody")


def test_pod_that_the_answer_lacks_is_not_judged(edited: Callable[..., Snapshot]) -> None:
    def without(answer: Any) -> Any:
        answer["data"]["pods"] = [one for one in answer["data"]["pods"] if one["name"] != "train-0"]
        return answer

    step = allocation(traced(edited(HEALTHY, resources=without), TRAINER))
    assert step.status is Status.UNKNOWN and "does not list ml/train-0" in step.summary


def test_gpu_that_nvml_does_not_list_is_not_said_to_live(edited: Callable[..., Snapshot]) -> None:
    def without(answer: Any) -> Any:
        devices = answer["data"]["devices"]
        answer["data"]["devices"] = [one for one in devices if one["uuid"] not in holding(SERVER)]
        return answer

    for name, change in (("absent", without), ("silent", lambda answer: {**answer, "data": {"init": 999}})):
        step = allocation(traced(edited(HEALTHY, nvml=change, place=name), SERVER))
        assert step.status is Status.UNKNOWN, step


@pytest.mark.parametrize("path", ["/proc/driver/nvidia/gpus/{}/information", "/sys/bus/pci/devices/{}"])
def test_gpu_whose_minor_is_not_seen_is_not_said_to_be_missing(path: str, edited: Callable[..., Snapshot]) -> None:
    place = path.format("0000:3a:00.0")

    def denied(line: Any) -> Any:
        return {"path": place, "error": "EACCES"} if line.get("path") == place else line

    assert allocation(traced(edited(HEALTHY, entries=denied), TRAINER)).status in (Status.UNKNOWN, Status.PASS)


def test_devices_of_a_claim_are_named(edited: Callable[..., Snapshot]) -> None:
    def claimed(answer: Any) -> Any:
        for one in answer["data"]["pods"]:
            if one["name"] == "train-0":
                device = {
                    "driver": "gpu.nvidia.com",
                    "pool": "n1",
                    "device": "gpu-2",
                    "cdi": ["k8s.gpu.nvidia.com/claim=a"],
                }
                claim = {"namespace": "ml", "name": "two-gpus", "devices": [device]}
                one["containers"][0].update(devices=[], claims=[claim])
        return answer

    step = allocation(traced(edited(HEALTHY, resources=claimed), TRAINER))
    assert (step.status, step.summary) == (
        Status.PASS,
        "the kubelet holds gpu-2 for it by claim two-gpus, and it has 2 GPUs",
    )
    assert "claim two-gpus" in shown(step)


def test_gift_without_a_node_by_a_claim_is_broken(edited: Callable[..., Snapshot]) -> None:
    def claimed(answer: Any) -> Any:
        for one in answer["data"]["pods"]:
            if one["name"] == "gpu-burn-n1":
                device = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-2", "cdi": []}
                one["containers"][0]["claims"] = [{"namespace": "default", "name": "one", "devices": [device]}]
        return answer

    one = traced(edited("static-pod-that-asks-for-nothing", resources=claimed), "default/gpu-burn-n1")
    assert one.first_broken is StepId.ALLOCATION and "by claim one, and nothing of that reached it" in one.summary


# pods of which nothing runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pod-pending-because-the-gpus-are-taken", f"5 of 8 are free, {TRAINER}, {SERVER} hold 3"),
        ("pod-asks-for-the-resource-by-its-old-name", "which this node calls nvidia.com/gpu.shared"),
    ],
)
def test_pod_that_waits_is_found_and_explained(name: str, words: str) -> None:
    one = traced(name, "ml/eval-0")
    assert (one.first_broken, one.verdict.value, one.pid, one.title) == (
        StepId.ALLOCATION,
        "fail",
        0,
        "ml/eval-0/eval",
    )
    assert words in allocation(one).summary and "kubectl -n ml get pod eval-0" in shown(allocation(one))
    found = one.step(StepId.FOUND)
    assert found.caused_by == (StepId.ALLOCATION,) and "Pending, on no node yet" in found.summary
    assert [each.id for each in one.steps] == list(StepId)


def test_pod_that_a_claim_may_serve_does_not_wait_for_a_plugin(edited: Callable[..., Snapshot], tmp_path: Path) -> None:
    def unregistered(answer: Any) -> Any:
        answer["data"]["allocatable"] = []
        return answer

    without = edited("pod-pending-because-the-gpus-are-taken", resources=unregistered)
    assert "no plugin of NVIDIA's is registered" in allocation(traced(without, "ml/eval-0")).summary
    file = tmp_path / "node" / "answers" / "kubernetes.json"
    answer = json.loads(file.read_text())
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": [{"name": "gpu-0"}]}
    answer["data"]["resourceslices"] = [{"spec": spec}]
    file.write_text(json.dumps(answer))
    step = allocation(traced(open_snapshot(tmp_path / "node"), "ml/eval-0"))
    assert step.status is Status.WARN and "holds none for it yet" in step.summary


def test_pod_that_only_the_kubelet_lists_is_found(edited: Callable[..., Snapshot]) -> None:
    def listed(answer: Any) -> Any:
        late = {"namespace": "ml", "name": "late-0", "containers": [{"name": "main", "devices": []}]}
        answer["data"]["pods"].append(late)
        return giving("ml/late-0", answer["data"]["allocatable"][0]["ids"][0])(answer)

    one = traced(edited(HEALTHY, resources=listed), "ml/late-0")
    assert (one.first_broken, allocation(one).status) == (StepId.FOUND, Status.PASS)
    assert one.step(StepId.FOUND).summary == "no process of it runs here; the kubelet lists it"
    assert len(one.gpus) == 1 and one.step(StepId.HOST).status is Status.PASS


def test_pod_that_only_the_record_knows_is_found_by_uid(edited: Callable[..., Snapshot]) -> None:
    late = "0c2f0d9e-0c1d-4a55-9f5f-3f2d6c1b0a11"

    def recorded(line: Any) -> Any:
        if line.get("path") == CHECKPOINT:
            record = json.loads(line["text"])
            record["Data"]["PodDeviceEntries"].append({**record["Data"]["PodDeviceEntries"][0], "PodUID": late})
            line["text"] = json.dumps(record)
        return line

    one = traced(edited(HEALTHY, entries=recorded), late)
    assert one.first_broken is StepId.FOUND and one.title == f"pod {late}/trainer"
    assert "keeps those of pods that have ended" in one.step(StepId.FOUND).summary
    assert CHECKPOINT in shown(one.step(StepId.FOUND))


def test_pod_that_may_run_unseen_is_not_said_to_be_gone(edited: Callable[..., Snapshot]) -> None:
    def hidden(line: Any) -> Any:
        path = str(line.get("path", ""))
        return None if path.startswith("/run/containerd/") else line

    name = "static-pod-that-asks-for-nothing"
    one = traced(edited(name, entries=hidden), "default/gpu-burn-n1")
    assert one.step(StepId.FOUND).status is Status.UNKNOWN, one.step(StepId.FOUND)
    assert "only the uid is known; the kubelet lists it" in one.step(StepId.FOUND).summary
    assert one.verdict.value == "unknown"


def test_pod_that_nothing_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"none of 3 pods .*there are|did you mean"):
        traced(HEALTHY, "ml/nobody")


# other targets ------------------------------------------------------------------------------------------------------


def test_no_other_target_has_the_step() -> None:
    recorded = node(HEALTHY)
    pid = traced(HEALTHY, TRAINER).pid
    (one,) = trace(recorded, config_of(recorded), built_in(), f"pid:{pid}", NOW).traced
    assert [each.id for each in one.steps] == list(OUTSIDE_OF_PODS)


def test_where_no_kubelet_runs_the_step_is_skipped() -> None:
    recorded = TraceNode()
    recorded.process(702, POD, apart=True)
    recorded.bundle(ID, oci(annotations={**CRI, "io.kubernetes.cri.container-name": "main"}))
    recorded.status(702)
    recorded.inside(702, "PATH=/bin")
    (one,) = recorded.trace("pod:lab/trainer", built=True).traced
    assert (allocation(one).status, allocation(one).summary) == (Status.SKIP, "no kubelet runs on this node")


@pytest.mark.parametrize(("name", "pod"), [(HEALTHY, TRAINER), ("pod-pending-because-the-gpus-are-taken", "ml/eval-0")])
def test_json_is_valid_under_the_schema(name: str, pod: str) -> None:
    import msgspec

    recorded = node(name)
    said = msgspec.to_builtins(trace(recorded, config_of(recorded), built_in(), f"pod:{pod}", NOW))
    jsonschema.Draft202012Validator(json_schema()).validate(json.loads(json.dumps(said)))
