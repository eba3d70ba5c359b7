"""Redacted recordings keep what is public in the names of pods, by which checks know them, and nothing that a site put there."""

import json
from pathlib import Path

import pytest

from gpudoctor.facts.plugin_log import find_log
from gpudoctor.facts.raw import EntryType
from gpudoctor.sources.redaction import redact
from tests.operator_node import PODS, OperatorNode
from tests.test_redaction import SALT, altered, diagnosis, from_fixture, misjudged, readings

HOST, SITE = "theoden17", "rivendell"
EXPORTER_NODE = "kubelet-with-another-root-and-its-exporter"
PLUGIN_NODES = ("plugin-daemonset-for-other-nodes", "kubernetes-gpu-node-with-api-objects")


def renamed(fixture: str, **names: str) -> dict[str, bytes]:
    """A recorded node on which something is called otherwise; the dashes of what it was are underscores here."""
    members = from_fixture(fixture)
    for old, new in names.items():
        before, after = old.replace("_", "-").encode(), new.encode()
        members = {
            name.replace(before.decode(), new): content.replace(before, after) for name, content in members.items()
        }
    return members


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        (f"{SITE}-dcgm-exporter-9c2hv", "exporter"),
        (f"{SITE}-gpu-metrics-dcgm-exporter-9c2hv", "dcgm-exporter"),
        (f"{SITE}-nvidia-dcgm-exporter-9c2hv", "nvidia-dcgm-exporter"),
        (f"dcgm-exporter-{SITE}-9c2hv", "exporter"),
        (f"dcgm-exporter-{SITE}", "exporter"),
    ],
)
def test_an_exporter_is_known_whatever_its_release_is_called(pod: str, container: str, tmp_path: Path) -> None:
    members = renamed(EXPORTER_NODE, dcgm_exporter_9c2hv=pod)
    members = {
        name: content.replace(b"/exporter/0.log", f"/{container}/0.log".encode()) for name, content in members.items()
    }
    redacted = redact(members, SALT).members
    assert str(diagnosis(members, tmp_path / "raw")["device-plugin.dcgm-exporter"]).startswith("(<Status.PASS")
    assert altered(members, redacted) == []
    assert misjudged(members, redacted, tmp_path) == {}
    assert SITE in readings(members)
    assert SITE not in readings(redacted)
    assert misjudged(redacted, redact(redacted, b"another").members, tmp_path) == {}


@pytest.mark.parametrize("fixture", PLUGIN_NODES)
def test_a_device_plugin_is_known_whatever_its_release_is_called(fixture: str, tmp_path: Path) -> None:
    members = renamed(fixture, nvidia_device_plugin_daemonset=f"{SITE}-nvidia-device-plugin")
    redacted = redact(members, SALT).members
    assert "device-plugin.plugin-scheduled" in diagnosis(members, tmp_path / "raw")
    assert misjudged(members, redacted, tmp_path) == {}
    assert SITE in readings(members)
    assert SITE not in readings(redacted)


def redacted_names(*pods: str, namespace: str = "monitoring", container: str = "main") -> list[str]:
    """What stands for names of pods on a host; it must be the same wherever they stand."""
    told = [{"namespace": namespace, "name": pod, "containers": [{"name": container}]} for pod in pods]
    uid = "100f00fd-78e0-8b85-00fb-88dc0ddb1cc5"
    log = {"path": f"{PODS}/{namespace}_{{}}_{uid}/{container}/0.log", "type": "file", "text": ""}
    lines = (json.dumps({**log, "path": str(log["path"]).format(pod)}) for pod in pods)
    members = {
        "root/proc/sys/kernel/hostname": f"{HOST}\n".encode(),
        "answers/pod_resources.json": json.dumps({"data": {"pods": told}}).encode(),
        "entries.jsonl": "".join(f"{line}\n" for line in lines).encode(),
        "journal/kubelet.service.log": "".join(f'x pod="{namespace}/{pod}"\n' for pod in pods).encode(),
    }
    redacted = redact(members, SALT).members
    answer = json.loads(redacted["answers/pod_resources.json"])["data"]["pods"]
    names = [str(pod["name"]) for pod in answer]
    paths = [json.loads(line)["path"].split("/")[4] for line in redacted["entries.jsonl"].splitlines()]
    assert [path.split("_")[1] for path in paths] == names
    words = redacted["journal/kubelet.service.log"].decode().splitlines()
    assert [line.rpartition("/")[2].rstrip('"') for line in words] == names
    assert HOST not in readings(redacted)
    return names


PUBLIC = (
    *(
        "nvidia-device-plugin-daemonset-b7zq4",
        "nvidia-dcgm-4bq8l",
        "nvidia-operator-validator-th4w7",
        "kube-proxy-x7k2p",
    ),
    *("nvidia-driver-daemonset-5.15.0-105-generic-ubuntu22.04-x7k2p", "nvidia-mig-manager-4gn76"),
    *("gpu-operator-6bf99d6478-r55t5", "gpu-operator-1622656274-node-feature-discovery-worker-x7k2p"),
    *("node-feature-discovery-worker-x7k2p", "coredns-5d78c9869d-c7g4x", "calico-kube-controllers-5d78c9869d-c7g4x"),
    *("nvidia-dra-driver-gpu-kubelet-plugin-x7k2m", "gpu-feature-discovery-tmblp", "nvidia-cuda-validator-9866n"),
    *("dcgm-exporter-9c2hv", "amdgpu-device-plugin-daemonset-x7k2p"),
)


def test_public_names_stay_wherever_they_stand() -> None:
    assert redacted_names(*PUBLIC) == list(PUBLIC)


def test_a_static_pod_has_its_nodes_new_name_behind_its_own() -> None:
    own, exporter = redacted_names(f"kube-apiserver-{HOST}", f"dcgm-exporter-{HOST}")
    assert own.startswith("kube-apiserver-host-")
    assert exporter == own.replace("kube-apiserver", "dcgm-exporter")


def test_a_node_whose_name_is_made_of_public_words_is_hidden_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "HOST", "gpu-node-07")
    (name,) = redacted_names("kube-apiserver-gpu-node-07")
    assert name.startswith("kube-apiserver-host-")


@pytest.mark.parametrize(
    ("pod", "begins", "ends"),
    [
        (f"{SITE}-train-0", "pod-", ""),
        (f"gpu-{SITE}-train-0", "gpu-pod-", "-0"),
        (f"nvidia-{SITE}", "nvidia-pod-", ""),
        (f"{SITE}-dcgm-exporter-9c2hv", "pod-", "-dcgm-exporter-9c2hv"),
        (f"dcgm-exporter-{SITE}-gpu-hall-9c2hv", "dcgm-exporter-pod-", "-9c2hv"),
        (f"{SITE}-rdma-device-plugin-9c2hv", "pod-", "-rdma-device-plugin-9c2hv"),
    ],
)
def test_what_a_site_put_into_a_name_is_hidden(pod: str, begins: str, ends: str) -> None:
    (name,) = redacted_names(pod)
    assert SITE not in name and "hall" not in name and "train" not in name
    assert name.startswith(begins) and name.endswith(ends)


def test_one_release_has_one_new_name_and_another_another() -> None:
    pods = [f"{release}-{chart}-9c2hv" for release in (SITE, "lorien") for chart in ("dcgm-exporter", "device-plugin")]
    names = [name.split("-")[1] for name in redacted_names(*pods)]
    assert names[0] == names[1] != names[2] == names[3]


CONTAINERS = (
    *(
        "exporter",
        "dcgm-exporter",
        "nvidia-dcgm-exporter",
        "nvidia-driver-ctr",
        "nvidia-dcgm-ctr",
        "nvidia-device-plugin",
    ),
    *("driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation", "config-manager-init"),
)


@pytest.mark.parametrize("container", CONTAINERS)
def test_containers_that_checks_look_for_keep_their_names(container: str) -> None:
    log = {"path": f"{PODS}/a_nvidia-operator-validator-th4w7_1f00fd78/{container}/0.log", "type": "file", "text": ""}
    members = {"entries.jsonl": json.dumps(log).encode() + b"\n"}
    assert f"/{container}/0.log" in redact(members, SALT).members["entries.jsonl"].decode()


@pytest.mark.parametrize(
    ("pod", "uid", "found"),
    [
        ("nvidia-device-plugin-daemonset-b7zq4", "80842800-d50b-2255-2efa-a69f781c1cf2", True),
        ("nvidia-device-plugin-amd64-b7zq4", "80842800-d50b-2255-282f-a69f781c1cf2", True),
        ("amdgpu-device-plugin-daemonset-b7zq4", "80842800-d50b-2255-282f-a69f781c1cf2", False),
        ("aws-efa-k8s-device-plugin-daemonset-b7zq4", "80842800-d50b-2255-282f-a69f781c1cf2", False),
    ],
)
def test_a_pods_uid_does_not_make_a_plugin_another(pod: str, uid: str, found: bool) -> None:
    node = OperatorNode()
    node.put(f"{PODS}/kube-system_{pod}_{uid}/nvidia-device-plugin-ctr/0.log", text="Starting Plugins.\n")
    node.put(f"/var/lib/kubelet/pods/{uid}", EntryType.DIR)
    log = find_log(node, "/var/lib/kubelet", "", "")
    assert (getattr(log, "where", "").startswith(PODS) and "Plugin" in type(log).__name__) is found
