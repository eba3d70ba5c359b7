"""What the API server says of a node: how it is asked, what is kept of it, and what is judged."""

import gzip
import json
import os
import stat
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpudoctor.cli_parser import parse
from gpudoctor.config import Config, ConfigError
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kubernetes_api import NOT_ASKED, KubernetesApi
from gpudoctor.facts.kubernetes_kept import is_operand, kept, kept_of_node
from gpudoctor.facts.kubernetes_objects import ApiNode, ApiPod, Objects
from gpudoctor.facts.node_matching import obstacles
from gpudoctor.facts.raw import Answer, Question
from gpudoctor.probes import kube_api
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.live import Live
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.redaction import redact
from gpudoctor.verdicts import Status, Unread, Why
from tests.conftest import SHARED
from tests.health_node import shown
from tests.operator_node import LABELS, OperatorNode, checks, daemonset, pod

OBJECT, TRUE_LABELS, CLASS, SCHEDULED, DRA, MIG = (
    f"device-plugin.{name}"
    for name in ("node-object", "labels-true", "runtime-class", "plugin-scheduled", "dra-consistent", "mig-manager")
)
ALL = (OBJECT, TRUE_LABELS, CLASS, SCHEDULED, DRA, MIG)
CORPUS = SHARED / "corpus"
needs_corpus = pytest.mark.skipif(not (CORPUS / "k8s-node").is_dir(), reason="needs the corpus")


# Asking --------------------------------------------------------------------------------------------------------------

STANDIN = """#!{python}
import json, os, sys, time
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps([arguments, sorted(os.environ)]) + "\\n")
plan = json.load(open({plan!r}))
kind = arguments[arguments.index("get") + 1]
said = plan.get(kind, {{"items": []}})
if "sleep" in said:
    time.sleep(said["sleep"])
sys.stderr.write(said.get("stderr", ""))
sys.stdout.write(said["raw"] if "raw" in said else json.dumps(said))
sys.exit(said.get("exit", 0))
"""


class Cluster:
    """A kubectl that answers from a plan by kind, remembers how it was called, and a kubeconfig."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.plan = place, dict[str, Any]()
        (place / "bin").mkdir()
        program = place / "bin" / "kubectl"
        paths = {"python": sys.executable, "log": str(place / "calls"), "plan": str(place / "plan.json")}
        program.write_text(STANDIN.format(**paths))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.kubeconfig = str(place / "reader.kubeconfig")
        Path(self.kubeconfig).write_text("apiVersion: v1\nkind: Config\n")
        monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("KUBECONFIG", "/somebody/elses")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        self.plan["node"] = {
            "metadata": {"name": "n1", "labels": dict(LABELS)},
            "status": {"capacity": {"nvidia.com/gpu": "8"}},
        }

    def refuse(self, kind: str, stderr: str) -> None:
        """kubectl ends with an error for a kind."""
        self.plan[kind] = {"exit": 1, "stderr": stderr, "raw": ""}

    def ask(self, seconds: float = 20.0) -> Answer:
        """The answer for node n1."""
        (self.place / "plan.json").write_text(json.dumps(self.plan))
        return kube_api.ask_kubernetes(Question("kubernetes", {"node": "n1"}), Deadline(seconds), self.kubeconfig)

    @property
    def calls(self) -> list[tuple[list[str], list[str]]]:
        """The arguments and names of variables of each call."""
        path = self.place / "calls"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster that has one node and nothing else."""
    return Cluster(tmp_path, monkeypatch)


def test_only_objects_of_the_node_are_asked_for_and_nothing_is_written(cluster: Cluster) -> None:
    answer = cluster.ask()
    assert (answer.error, answer.data["node"]["metadata"]["name"]) == (None, "n1")
    for arguments, variables in cluster.calls:
        assert arguments[:2] == ["--kubeconfig", cluster.kubeconfig]
        assert "get" in arguments
        assert any(word.startswith("--request-timeout=") for word in arguments)
        assert "--cache-dir=/dev/null/none" in arguments
        # Without these an empty kubeconfig leads nowhere: neither to somebody's own, nor to the service account of a pod.
        assert not {"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} & {*variables}
    by_kind = {arguments[arguments.index("get") + 1]: arguments for arguments, _ in cluster.calls}
    assert by_kind["node"][by_kind["node"].index("get") + 2] == "n1"
    assert "spec.nodeName=n1" in by_kind["pods"]
    assert "spec.nodeName=n1" in by_kind["resourceslices"]
    # Without a slice nobody can hold a device of one.
    assert "resourceclaims" not in by_kind


def test_a_node_under_another_name_is_found_by_its_hosts(cluster: Cluster) -> None:
    cluster.refuse("node", 'Error from server (NotFound): nodes "n1" not found\n')
    cluster.plan["nodes"] = {"items": [{"metadata": {"name": "ip-10-0-0-1.internal", "labels": {}}}]}
    answer = cluster.ask()
    assert answer.data["node"]["metadata"]["name"] == "ip-10-0-0-1.internal"
    assert "spec.nodeName=ip-10-0-0-1.internal" in [word for arguments, _ in cluster.calls for word in arguments]


@pytest.mark.parametrize(
    ("stderr", "why"),
    [
        ('Error from server (NotFound): nodes "n1" not found\n', "absent"),
        (
            'Error from server (Forbidden): nodes "n1" is forbidden: User "u" cannot get resource "nodes"\n',
            "no-permission",
        ),
        ("error: You must be logged in to the server (Unauthorized)\n", "no-permission"),
        (
            "E1130 memcache.go:265] noise\nUnable to connect to the server: dial tcp 10.0.0.1:6443: connect: connection refused\n",
            "refused",
        ),
        ("Unable to connect to the server: net/http: request canceled (Client.Timeout exceeded)\n", "timed-out"),
        ("error: something else\n", "failed"),
    ],
)
def test_a_refusal_is_told_in_kubectls_words(cluster: Cluster, stderr: str, why: str) -> None:
    cluster.refuse("node", stderr)
    cluster.plan["nodes"] = {"items": []}
    answer = cluster.ask()
    assert answer.error is not None
    assert (answer.error["why"], answer.stopped_at) == (why, "node")
    assert answer.error["detail"] in stderr.replace('User "u"', "this user")
    assert isinstance(_fact(answer), Unread)


def test_what_is_refused_of_some_kinds_is_noted(cluster: Cluster) -> None:
    cluster.refuse("daemonsets", "Error from server (Forbidden): daemonsets.apps is forbidden\n")
    cluster.refuse("resourceslices", 'error: the server doesn\'t have a resource type "resourceslices"\n')
    answer = cluster.ask()
    assert answer.data["notes"]["daemonsets"]["why"] == "no-permission"
    assert answer.data["resourceslices"] == []
    api = _fact(answer)
    assert isinstance(api, KubernetesApi)
    assert isinstance(api.daemonsets, Unread)
    assert (api.daemonsets.why, api.daemonsets.would_need) == (Why.NO_PERMISSION, "a kubeconfig that may read it")
    assert api.pods == ()


@pytest.mark.parametrize(
    "raw",
    ['{"items": [{"metadata"', "[]", "", '{"items": 3}', '{"metadata": []}', "[" * 200_000, "Warning: v1 is old\n{}"],
)
def test_half_an_answer_is_none(cluster: Cluster, raw: str) -> None:
    cluster.plan["pods"] = {"raw": raw}
    answer = cluster.ask()
    assert answer.data["notes"]["pods"]["why"] == "unreadable"
    before = len(cluster.calls)
    cluster.plan["node"] = {"raw": raw}
    answer = cluster.ask()
    assert answer.error is not None
    assert answer.error["why"] == "unreadable"
    # Without a name whatever runs on no node at all would be asked for.
    assert len(cluster.calls) == before + 1


def test_a_server_that_hangs_costs_only_its_time(cluster: Cluster) -> None:
    cluster.plan["node"] = {"sleep": 60}
    started = time.monotonic()
    answer = cluster.ask(2.0)
    assert time.monotonic() - started < 5
    assert answer.error is not None
    assert answer.error["why"] == "timed-out"


def test_what_came_before_a_hang_is_kept(cluster: Cluster) -> None:
    cluster.plan["pods"] = {"sleep": 60}
    answer = cluster.ask(3.0)
    assert answer.data["node"]["metadata"]["name"] == "n1"
    assert answer.data["notes"]["pods"]["why"] == "timed-out"
    assert answer.stopped_at == "pods"


def test_without_kubectl_or_file_nothing_is_asked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.kubeconfig += ".gone"
    assert (cluster.ask().error or {})["why"] == "absent"
    monkeypatch.setenv("PATH", str(cluster.place))
    assert (cluster.ask().error or {})["why"] == "unavailable"
    assert cluster.calls == []


def test_a_live_source_asks_only_with_a_kubeconfig(cluster: Cluster) -> None:
    desk = Desk(Live(Deadline(20.0)), Config())
    api = desk.get(KubernetesApi)
    assert isinstance(api, KubernetesApi)
    assert not api.asked
    assert cluster.calls == []


def test_a_recording_holds_the_answer_and_replays_it(cluster: Cluster) -> None:
    (cluster.place / "plan.json").write_text(json.dumps(cluster.plan))
    recorder = Recorder(Live(Deadline(20.0), kubeconfig=cluster.kubeconfig))
    api = Desk(recorder, Config()).get(KubernetesApi)
    assert isinstance(api, KubernetesApi)
    assert api.asked
    said = json.loads(recorder.members(Config())["answers/kubernetes.json"])
    assert _fact(msgspec.convert(said, Answer)) == api


def test_nothing_of_it_is_loaded_unless_asked() -> None:
    import subprocess

    script = textwrap.dedent("""
        import sys
        from gpudoctor.config import Config
        from gpudoctor.facts.desk import Desk
        from gpudoctor.facts.kubernetes_api import KubernetesApi
        from gpudoctor.probes.deadline import Deadline
        from gpudoctor.sources.live import Live
        Desk(Live(Deadline(20.0)), Config()).get(KubernetesApi)
        print([name for name in sys.modules if name in ("gpudoctor.probes.kube_api", "gpudoctor.facts.kubernetes_objects", "yaml")])
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", [["run"], ["record", "-o", "x"], ["trace", "pid:1"]])
def test_commands_that_look_at_this_node_take_a_kubeconfig(command: list[str]) -> None:
    assert parse([*command, "--kubeconfig", "reader.kubeconfig"]).kubeconfig == "reader.kubeconfig"
    assert parse(command).kubeconfig is None


def test_a_recording_is_not_asked_about_another_cluster() -> None:
    from gpudoctor.commands import run_command

    with pytest.raises(ConfigError, match="--kubeconfig is for this node"):
        run_command(parse(["run", "--node", "somewhere", "--kubeconfig", "reader.kubeconfig"]))


# What is kept --------------------------------------------------------------------------------------------------------


def test_of_a_pod_no_secrets_are_kept() -> None:
    container = {
        "name": "main",
        "image": "registry.example.org/ml/train:2.9",
        "env": [{"name": "TOKEN", "value": "hunter2"}],
        "args": ["--password=hunter2"],
        "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}},
    }
    meta = {"name": "train-0", "namespace": "ml", "annotations": {"note": "hunter2"}, "labels": {"team": "hunter2"}}
    whole = {"metadata": meta, "spec": {"containers": [container], "volumes": [{"secret": {"secretName": "hunter2"}}]}}
    small = kept("pods", whole)
    assert "hunter2" not in json.dumps(small)
    assert small["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_labels_by_which_daemonsets_choose_are_kept() -> None:
    chosen = daemonset("nvidia-device-plugin-daemonset", nodeSelector={"node.example.org/pool": "a100"})
    node = {"metadata": {"name": "n1", "labels": {"node.example.org/pool": "h100", "team": "x", **LABELS}}}
    labels = kept_of_node(node, [chosen])["metadata"]["labels"]
    assert labels == {"node.example.org/pool": "h100", **LABELS}


@pytest.mark.parametrize(
    "hostile", [None, 3, [], "x", {"metadata": 3}, {"metadata": {"labels": []}, "spec": None, "status": "x"}]
)
def test_what_is_no_object_is_no_node(hostile: object) -> None:
    small = kept_of_node(hostile, [])
    assert small is None or msgspec.convert(small, ApiNode) == ApiNode()


def test_operands_are_known_by_name_or_image() -> None:
    assert is_operand(daemonset("gpu-feature-discovery"))
    image: dict[str, Any] = {"containers": [{"name": "main", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}]}
    assert is_operand(daemonset("plugin", **image))
    assert not is_operand(daemonset("kube-proxy"))


def test_redaction_hides_names_and_keeps_nvidias() -> None:
    node = OperatorNode()
    node.api["node"]["metadata"]["name"] = "ip-10-3-4-5.acme.internal"
    container = {"name": "secretapp", "image": "registry.acme.example/team/secretapp:1"}
    running = pod("tenant-job-0", "tenant-job", namespace="tenants", containers=[container])
    running["spec"]["runtimeClassName"] = "secretapp-gpus"
    node.api["runtimeclasses"].append({"metadata": {"name": "secretapp-gpus"}, "handler": "secretapp-gpus"})
    running["status"]["containerStatuses"] = [{"name": "secretapp", "ready": True}]
    node.api["pods"].append(running)
    answer = Answer(data=node.api, via="kubectl --kubeconfig /home/alice/config")
    members = {
        "snapshot.json": json.dumps({"format": 1, "recorded_at": "2026-11-29T12:00:00Z", "hostname": "n1"}).encode(),
        "answers/kubernetes.json": msgspec.json.encode(answer),
    }
    said = redact(members, b"x" * 32).members["answers/kubernetes.json"].decode()
    for name in ("tenant", "secretapp", "acme.internal", "alice", "ip-10-3-4-5"):
        assert name not in said, name
    api = _fact(msgspec.json.decode(said.encode(), type=Answer))
    assert isinstance(api, KubernetesApi)
    assert "nvidia-device-plugin-daemonset-tl9k7" in said
    assert not isinstance(api.runtime_classes, Unread)
    assert api.runtime_classes[0].metadata.name == "nvidia"
    # What is named for a pod is still the object that there is.
    assert not isinstance(api.pods, Unread)
    assert {pod.spec.runtime_class_name for pod in api.pods} - {""} == {api.runtime_classes[1].metadata.name}


def _fact(answer: Answer) -> KubernetesApi | Unread:
    """The fact from an answer."""
    from gpudoctor.sources.recorded import RecordedNode, Tree

    node = RecordedNode(Tree())
    node.answers["kubernetes"] = answer
    return Desk(node, Config()).get(KubernetesApi)


@pytest.mark.parametrize(
    "data", [{"node": 3}, {"pods": {}}, {"notes": {"pods": {"why": "moon"}}, "node": {}}, {"daemonsets": [None]}]
)
def test_a_recording_in_another_form_is_unreadable(data: Mapping[str, Any]) -> None:
    found = _fact(Answer(data=dict(data), via="kubectl"))
    assert isinstance(found, Unread)
    assert found.why is Why.UNREADABLE


# Judging -------------------------------------------------------------------------------------------------------------


def healthy() -> OperatorNode:
    """The kubelet and the API server agree."""
    node = OperatorNode()
    node.kubelet_has(8)
    return node


def test_without_a_kubeconfig_nothing_is_said() -> None:
    report = healthy().report()
    for check in ALL:
        (found,) = report.result(check).findings
        assert (found.status, found.summary) == (Status.SKIP, NOT_ASKED)


def test_a_healthy_node_passes_and_nothing_alarms() -> None:
    report = healthy().ask().report()
    assert [cause.check for cause in report.root_causes] == []
    passed = {check for check in ALL if report.result(check).status is Status.PASS}
    assert passed == {OBJECT, TRUE_LABELS, CLASS, SCHEDULED}


def test_a_server_that_refused_makes_all_unknown() -> None:
    node = healthy()
    node.answers["kubernetes"] = Answer(data={}, via="kubectl", error={"why": "no-permission", "detail": "Forbidden"})
    report = node.report()
    assert {(report.result(check).status, report.result(check).why) for check in ALL} == {
        (Status.UNKNOWN, Why.NO_PERMISSION)
    }


def test_a_node_object_that_is_behind_is_told_with_both_numbers() -> None:
    node = healthy()
    node.api["node"]["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    node.api["node"]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    found = node.ask().finding(OBJECT)
    assert found.status is Status.WARN
    assert "nvidia.com/gpu 7 allocatable there, 8 here; the kubelet does not reach the API server" in found.summary


def test_a_thousand_is_spelled_otherwise() -> None:
    """Quantities in their canonical form (apimachinery pkg/api/resource)."""
    node = OperatorNode()
    node.kubelet_has(8)
    uuid = str(node.devices[0]["uuid"])
    answer = node.answers["pod_resources"]
    assert isinstance(answer, Answer)
    answer.data["allocatable"][0]["ids"] = [f"{uuid}::{number}" for number in range(2000)]
    node.api["node"]["status"]["allocatable"]["nvidia.com/gpu"] = "2k"
    found = node.ask().finding(OBJECT)
    assert found.status is Status.PASS and "2000 nvidia.com/gpu" in found.summary


def test_the_kubelet_to_restart_is_the_one_that_runs() -> None:
    node = healthy()
    node.api["node"]["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    assert any("systemctl restart kubelet.service" in step.run for step in node.ask().finding(OBJECT).remedies)
    node.running(k3s=1450)
    answer = node.answers["processes"]
    assert isinstance(answer, Answer)
    answer.data["processes"][1][3] = "k3s-server"
    node.put("/proc/1450/cmdline", text="/usr/local/bin/k3s\0server\0")
    steps = node.ask().finding(OBJECT).remedies
    assert any("systemctl restart k3s.service" in step.run for step in steps), steps
    assert any("control plane" in step.interrupts for step in steps)


def test_seven_in_both_is_the_truth() -> None:
    node = OperatorNode()
    node.kubelet_has(7)
    node.api["node"]["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    assert node.ask().finding(OBJECT).status is Status.PASS


def test_an_object_of_another_boot_is_not_this_nodes() -> None:
    node = healthy()
    node.put("/proc/sys/kernel/random/boot_id", text="11111111-2222-3333-4444-555555555555\n")
    node.api["node"]["status"]["nodeInfo"] = {"bootID": "99999999-2222-3333-4444-555555555555"}
    found = node.ask().finding(OBJECT)
    assert found.status is Status.WARN
    assert "another boot" in found.summary


def test_labels_of_other_gpus_are_not_true() -> None:
    node = healthy()
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.count": "4"}
    node.api["node"]["metadata"]["labels"].update(labels)
    found = node.ask().finding(TRUE_LABELS)
    assert found.status is Status.WARN
    assert "NVIDIA-A100-SXM4-80GB" in found.summary
    assert "gpu.count says 4, the driver has 8" in found.summary


@pytest.mark.parametrize(
    "product", ["NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "NVIDIA-H100-80GB-HBM3"]
)
def test_sharing_and_slicing_stand_behind_the_name(product: str) -> None:
    node = healthy()
    node.api["node"]["metadata"]["labels"]["nvidia.com/gpu.product"] = product
    assert node.ask().finding(TRUE_LABELS).status is Status.PASS


def test_the_driver_of_a_label_is_the_loaded_one() -> None:
    node = healthy()
    node.api["node"]["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = "1.2.3"
    assert "cuda.driver-version.full says 1.2.3" in node.ask().finding(TRUE_LABELS).summary


def test_a_missing_runtime_class_is_named_with_who_names_it() -> None:
    node = healthy()
    node.api["runtimeclasses"] = []
    found = node.ask().finding(CLASS)
    assert (found.status, found.subject.key) == (Status.FAIL, "nvidia")
    assert "daemonset nvidia-device-plugin-daemonset" in shown(found)


def test_where_nobody_names_a_class_none_is_needed() -> None:
    node = healthy()
    node.api["runtimeclasses"] = []
    node.api["daemonsets"] = [daemonset("nvidia-device-plugin-daemonset", runtimeClassName="")]
    assert node.ask().finding(CLASS).status is Status.PASS


def test_pods_that_have_ended_name_no_class_any_more() -> None:
    node = healthy()
    job = pod("old-job-x2lqk", namespace="ml", runtimeClassName="nvidia-experimental")
    node.api["pods"].append(job)
    assert node.ask().finding(CLASS).subject.key == "nvidia-experimental"
    for phase in ("Succeeded", "Failed"):
        job["status"]["phase"] = phase
        assert node.ask().finding(CLASS).status is Status.PASS


CHART: dict[str, Any] = {
    "nodeSelector": {},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]}
                    for key in ("feature.node.kubernetes.io/pci-10de.present", "nvidia.com/gpu.present")
                ]
            }
        }
    },
}


def without_plugin(**spec: Any) -> OperatorNode:
    """A node that the plugin's DaemonSet has no pod on."""
    node = healthy()
    node.api["pods"] = []
    node.api["daemonsets"] = [daemonset("nvidia-device-plugin-daemonset", "kube-system", 0, **spec)]
    return node


def test_a_label_that_discovery_did_not_give_is_named() -> None:
    node = without_plugin(**CHART)
    labels = node.api["node"]["metadata"]["labels"]
    del labels["feature.node.kubernetes.io/pci-10de.present"]
    labels["feature.node.kubernetes.io/pci-0302_10de.present"] = "true"
    found = node.ask().finding(SCHEDULED)
    assert (found.status, found.subject.key) == (Status.FAIL, "kube-system/nvidia-device-plugin-daemonset")
    assert "pci-10de.present=true or label nvidia.com/gpu.present=true" in found.summary
    assert "pci-0302_10de.present=true" in shown(found)


def test_a_taint_that_is_not_tolerated_is_named() -> None:
    node = without_plugin(tolerations=[])
    found = node.ask().finding(SCHEDULED)
    assert found.status is Status.FAIL
    assert "taint nvidia.com/gpu:NoSchedule" in found.summary


def test_a_plugin_that_was_evicted_is_not_here() -> None:
    node = healthy()
    node.api["pods"][0]["status"] = {"phase": "Failed", "reason": "Evicted"}
    found = node.ask().finding(SCHEDULED)
    assert found.status is Status.FAIL and "it has no pod here" in found.summary


def test_a_cordoned_node_keeps_its_daemonsets() -> None:
    node = healthy()
    node.api["node"]["spec"]["taints"].append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    node.api["pods"] = []
    found = node.ask().finding(SCHEDULED)
    assert "nothing keeps it off" in found.summary


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.deploy.device-plugin": "false"},
        {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"},
        {"nvidia.com/gpu.workload.config": "vm-passthrough"},
        # The operator then takes its labels away; a cluster's default for virtual machines leaves no label of the workload.
        {"nvidia.com/gpu.deploy.operands": "false", "nvidia.com/gpu.deploy.device-plugin": ""},
        {"nvidia.com/gpu.deploy.sandbox-device-plugin": "true", "nvidia.com/gpu.deploy.device-plugin": ""},
        {"nvidia.com/gpu.deploy.kata-sandbox-device-plugin": "true", "nvidia.com/gpu.deploy.device-plugin": ""},
        {"nvidia.com/gpu.deploy.dra-driver": "true", "nvidia.com/gpu.deploy.device-plugin": ""},
    ],
)
def test_a_node_kept_from_the_plugin_on_purpose_is_in_order(labels: dict[str, str]) -> None:
    node = without_plugin()
    told = node.api["node"]["metadata"]["labels"]
    told.update(labels)
    node.api["node"]["metadata"]["labels"] = {key: value for key, value in told.items() if value}
    assert node.ask().report().result(SCHEDULED).status is Status.SKIP


@pytest.mark.parametrize("name", ["nvidia-sandbox-device-plugin-daemonset", "nvidia-kubevirt-gpu-device-plugin"])
def test_plugins_for_virtual_machines_are_not_missed(name: str) -> None:
    node = without_plugin()
    selector = {"nvidia.com/gpu.deploy.sandbox-device-plugin": "true"}
    node.api["daemonsets"] = [daemonset(name, desired=0, nodeSelector=selector)]
    assert node.ask().report().result(SCHEDULED).status is Status.SKIP


def test_a_daemonset_for_another_pool_is_in_order() -> None:
    node = without_plugin(nodeSelector={"node.example.org/pool": "a100"})
    found = node.ask().finding(SCHEDULED)
    assert (found.status, "for other nodes" in found.summary) == (Status.SKIP, True)


def test_matching_is_the_schedulers() -> None:
    def keeps(key: str, operator: str, *values: str) -> bool:
        wish = {"key": key, "operator": operator, "values": list(values)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wish]}]}
        spec: dict[str, Any] = {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            "nodeSelector": {},
        }
        objects = msgspec.convert({"daemonsets": [daemonset("x", **spec)], "node": healthy().api["node"]}, Objects)
        assert objects.daemonsets is not None
        assert objects.node is not None
        return bool(obstacles(objects.daemonsets[0].pods, objects.node))

    count = "nvidia.com/gpu.count"
    assert not keeps(count, "In", "8", "4")
    assert keeps(count, "NotIn", "8")
    assert not keeps("nowhere", "NotIn", "8")
    assert keeps("nowhere", "Exists")
    assert not keeps("nowhere", "DoesNotExist")
    assert not keeps(count, "Gt", "7")
    assert keeps(count, "Lt", "8")
    assert keeps(count, "Resembles", "8")


# Dynamic resource allocation and MIG -----------------------------------------------------------------------------------


def with_slices(*, version: str = "v1", swapped: bool = False) -> OperatorNode:
    """Eight GPUs in a slice, as the driver of that API's version writes it."""
    node = healthy()
    devices = []
    for index, device in enumerate(node.devices):
        uuid = "GPU-7d40c1e9-2b86-f35a-91ce-60a8e4d27b03" if swapped and index == 3 else device["uuid"]
        address = {"resource.kubernetes.io/pciBusID": {"string": node.address(index)}}
        attributes = {"uuid": {"string": uuid}, "type": {"string": "gpu"}, **address}
        body = {"attributes": attributes} if version == "v1" else {"basic": {"attributes": attributes}}
        devices.append({"name": f"gpu-{index}", **body})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    node.api["resourceslices"] = [
        {"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": pool, "devices": devices}}
    ]
    return node


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_slices_that_tell_of_the_gpus_here_are_well(version: str) -> None:
    node = with_slices(version=version)
    node.api["pods"] = []
    report = node.ask().report()
    assert report.result(DRA).status is Status.PASS
    assert report.result(SCHEDULED).status is Status.SKIP


def test_a_slice_that_names_a_swapped_gpu_is_named() -> None:
    found = with_slices(swapped=True).ask().finding(DRA)
    assert found.status is Status.FAIL
    assert "gpu-3 of the node's slices names a GPU that is not here: GPU-7d40c1e9" in found.summary


def test_a_gpu_for_virtual_machines_is_not_nvmls() -> None:
    node = with_slices(swapped=True)
    device = node.api["resourceslices"][0]["spec"]["devices"][3]
    device["attributes"]["type"] = {"string": "vfio"}
    assert node.ask().finding(DRA).status is Status.PASS


def test_an_older_generation_does_not_count() -> None:
    node, old = with_slices(), with_slices(swapped=True).api["resourceslices"][0]
    old["spec"]["pool"]["generation"] = 0
    node.api["resourceslices"].append(old)
    assert node.ask().finding(DRA).status is Status.PASS


def test_of_half_a_pool_nothing_is_said() -> None:
    node = with_slices(swapped=True)
    node.api["resourceslices"][0]["spec"]["pool"]["resourceSliceCount"] = 2
    assert node.ask().finding(DRA).status is Status.UNKNOWN


def test_a_claim_on_a_device_that_is_gone_is_named() -> None:
    node = with_slices()
    result = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-9"}
    status = {"allocation": {"devices": {"results": [result]}}}
    node.api["resourceclaims"] = [{"metadata": {"name": "two", "namespace": "ml"}, "status": status}]
    found = node.ask().finding(DRA)
    assert found.status is Status.WARN
    assert "resourceclaim two: holds gpu-9" in shown(found)


def test_slices_of_compute_domains_are_no_gpus() -> None:
    node = with_slices(swapped=True)
    node.api["resourceslices"][0]["spec"]["driver"] = "compute-domain.nvidia.com"
    assert node.ask().report().result(DRA).status is Status.SKIP


@pytest.mark.parametrize(
    ("config", "state", "status"),
    [
        ("all-1g.10gb", "failed", Status.WARN),
        ("all-1g.10gb", "pending", Status.SKIP),
        ("all-1g.10gb", "rebooting", Status.SKIP),
        ("all-1g.10gb", "success", Status.WARN),
        ("all-disabled", "success", Status.PASS),
        ("my-layout", "success", Status.PASS),
        ("", "", Status.SKIP),
    ],
)
def test_the_mig_managers_word_is_held_against_nvml(config: str, state: str, status: Status) -> None:
    node = healthy()
    labels = {"nvidia.com/mig.config": config, "nvidia.com/mig.config.state": state}
    node.api["node"]["metadata"]["labels"].update({key: value for key, value in labels.items() if value})
    found = node.ask().finding(MIG)
    assert found.status is status
    assert config in found.summary or status is Status.SKIP


def test_the_checks_explain_themselves() -> None:
    registry = checks()
    for check_id in ALL:
        check = registry.get(check_id)
        assert check is not None
        assert len(check.doc) > 200


# Real objects --------------------------------------------------------------------------------------------------------


@needs_corpus
def test_nodes_of_the_corpus_parse_and_agree_with_themselves() -> None:
    compared = 0
    for path in sorted((CORPUS / "k8s-node").glob("*.yaml")):
        node = msgspec.convert(kept("node", yaml.safe_load(path.read_text())), ApiNode)
        allocatable = node.amounts(node.status.allocatable)
        layers = [name for name in node.labels if name.endswith(".count") and "mig-" in name]
        assert node.name
        for label in layers:
            amount = allocatable.get(label.removesuffix(".count"), 0)
            assert amount == int(node.labels[label]), (path.name, label)
            compared += 1
        assert node.ready is not None
        assert node.ready.status == "True"
    assert compared >= 3


@needs_corpus
def test_labels_of_the_corpus_are_those_that_are_kept() -> None:
    for path in sorted((CORPUS / "k8s-node").glob("*-labels.json")):
        labels = json.loads(path.read_text())
        told = kept("node", {"metadata": {"name": "n", "labels": labels}})["metadata"]["labels"]
        missing = {
            name for name in labels if name.startswith(("nvidia.com/gpu", "nvidia.com/mig", "nvidia.com/cuda"))
        } - set(told)
        assert not missing
        assert told["nvidia.com/mig.config.state"] in ("success", "pending")


@needs_corpus
def test_label_names_that_discovery_must_write_are_kept() -> None:
    for path in sorted((CORPUS / "k8s-node").glob("gfd-label-patterns-*.txt")):
        names = [
            line.partition("=")[0].replace("\\", "")
            for line in path.read_text().splitlines()
            if line.startswith("nvidia.com")
        ]
        plain = {name: "1" for name in names if not set(name) & set("[]*+()")}
        told = kept("node", {"metadata": {"name": "n", "labels": plain}})["metadata"]["labels"]
        assert set(told) == set(plain)


@needs_corpus
def test_pods_of_the_corpus_parse_without_their_annotations() -> None:
    seen = set()
    for path in sorted((CORPUS / "k8s-pod").glob("*.yaml")):
        small = kept("pods", yaml.safe_load(path.read_text()))
        found = msgspec.convert(small, ApiPod)
        assert "runai" not in json.dumps(small.get("metadata", {}).get("annotations", {}))
        assert found.metadata.name
        assert found.status.phase == "Running"
        seen |= {name for container in found.spec.containers for name in container.resources.limits}
    assert all("nvidia.com/" in name for name in seen)


def slices_of(text: str) -> list[dict[str, Any]]:
    """The ResourceSlices in YAML that a document quotes."""
    found = []
    for part in text.split("$ kubectl")[1:]:
        body = part.partition("\n")[2]
        if "kind: ResourceSlice" not in body:
            continue
        begin = body.index("apiVersion:")
        try:
            documents = list(yaml.safe_load_all(body[begin:]))
        except yaml.YAMLError:
            continue
        for document in documents:
            items = document.get("items", [document]) if isinstance(document, dict) else []
            found += [each for each in items if isinstance(each, dict) and each.get("kind") == "ResourceSlice"]
    return found


@needs_corpus
def test_slices_of_the_corpus_name_eight_gpus_each() -> None:
    text = (CORPUS / "k8s-dra" / "aicr-h100-secure-accelerator-access.txt").read_text()
    slices = slices_of(text)
    if not slices:
        pytest.skip("the document quotes no whole object")
    data = {"resourceslices": [kept("resourceslices", each) for each in slices]}
    objects = msgspec.convert(data, Objects)
    assert objects.resourceslices is not None
    gpus = [each for each in objects.resourceslices if each.spec.driver == "gpu.nvidia.com"]
    assert gpus
    for each in gpus:
        assert len({device.uuid for device in each.spec.devices}) == len(each.spec.devices) == 8
        assert all(device.uuid.startswith("GPU-") and device.address for device in each.spec.devices)


def bug_report(name: str) -> bytes:
    """A bug report with the name of a machine and nothing else."""
    line = "_" * 44
    head = f"\nStart of NVIDIA bug report log file.  Please include this file\n\nuname: Linux {name} 6.8.0-1 #1 SMP x86_64\n"
    return gzip.compress(
        f"{line}\n{head}{line}\n\n*** /proc/modules\n*** ls: -r\nnvidia 1 0 - Live 0x0\n{line}\n".encode()
    )


def test_a_must_gather_tells_of_its_node_what_it_holds(tmp_path: Path) -> None:
    failed = {**LABELS, "nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "failed"}
    stretches = [
        "".join([f"{name}\n", *(f"- {key}={value}\n" for key, value in labels.items()), "\n"])
        for name, labels in (("n2", LABELS), ("n1", failed))
    ]
    pods = [pod("nvidia-device-plugin-daemonset-tl9k7", "nvidia-device-plugin-daemonset"), {"spec": {"nodeName": "n2"}}]
    members = {
        "gpu_nodes.labels": "".join(stretches).encode(),
        "gpu_operand_pods.yaml": yaml.safe_dump({"items": pods}).encode(),
        "gpu_operand_ds.yaml": yaml.safe_dump({"items": [daemonset("nvidia-device-plugin-daemonset")]}).encode(),
        "nvidia-bug-report_n1.log.gz": bug_report("n1"),
        "nvidia-bug-report_n2.log.gz": bug_report("n2"),
    }
    for name, content in members.items():
        (tmp_path / name).write_bytes(content)
    api = Desk(open_source(f"{tmp_path}:n1"), Config()).get(KubernetesApi)
    assert isinstance(api, KubernetesApi)
    assert not isinstance(api.node, Unread)
    assert (api.node.name, dict(api.node.labels)) == ("n1", failed)
    assert not isinstance(api.pods, Unread)
    assert [one.words for one in api.pods] == ["gpu-operator/nvidia-device-plugin-daemonset-tl9k7"]
    assert isinstance(api.slices, Unread)


def test_a_must_gather_without_objects_was_not_asked(tmp_path: Path) -> None:
    (tmp_path / "gpu_nodes.status").write_text("NAME STATUS\n")
    (tmp_path / "gpu_operand_pods.yaml").write_text("items: [unclosed")
    (tmp_path / "nvidia-bug-report_n1.log.gz").write_bytes(bug_report("n1"))
    api = Desk(open_source(str(tmp_path)), Config()).get(KubernetesApi)
    assert isinstance(api, KubernetesApi)
    assert not api.asked


def test_a_gpu_that_was_lost_explains_its_slice() -> None:
    node = with_slices()
    address = node.address(3)
    place = node.place(f"/sys/bus/pci/devices/{address}")
    del node.devices[3]
    node.put(f"{place}/config", text="\\xff" * 64)
    node.put(f"{place}/current_link_width", text="63\n")
    report = node.ask().report()
    assert DRA not in [cause.check for cause in report.root_causes]
    # The label tells how many the node has.
    assert report.result(TRUE_LABELS).status is not Status.WARN
