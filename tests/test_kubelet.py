"""The kubelet's side of GPUs for pods: its checkpoint with its checksum, sockets, registration, managers; on the rig's real captures."""

import base64
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor.config import Config
from gpudoctor.facts.allocate_response import AllocateResponse, PluginDevice, PluginMount, decode
from gpudoctor.facts.daemons import Program
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kubelet import MICROK8S_ROOT, KubeletSettings, Setting
from gpudoctor.facts.kubelet_checkpoint import Checksum, KubeletCheckpoint, fnv1a_32, parse, parsed_form
from gpudoctor.facts.kubelet_endpoint import Endpoint, KubeletEndpoint
from gpudoctor.facts.kubelet_engine import KubeletEngine
from gpudoctor.facts.kubernetes_api import node_name
from gpudoctor.facts.plugin_sockets import KEEP, PluginSockets, resource_of
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, TextFile
from gpudoctor.facts.resource_managers import JOURNALCTL, cpu_list, cpu_words
from gpudoctor.registry import Registry, built_in
from gpudoctor.report import Report, Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.sources.redaction import redact
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.sources.writing import write_snapshot
from gpudoctor.verdicts import Status, Why
from tests.captures import NOW, crashed, fact
from tests.conftest import SHARED
from tests.containerd_node import BOOTED, ContainerdNode
from tests.rig_kubernetes import GPU_SOCKET, K8S, KUBELET, PLUGINS, VM, RigKubernetes, situations, vm_situations

CHECKPOINT = f"{PLUGINS}/kubelet_internal_checkpoint"
SOUND, ALIVE, REGISTERED, TOPOLOGY = (
    f"device-plugin.{name}" for name in ("checkpoint-sound", "socket-alive", "registered", "topology-fits")
)
EXCERPTS = SHARED / "corpus" / "issue-excerpts"
GPUS = tuple(f"GPU-0a0b0c0d-1111-2222-3333-44445555666{number}" for number in range(2))
POD, OTHER_POD = "7b1f0d9e-0c1d-4a55-9f5f-3f2d6c1b0a99", "0c2d4e6f-1111-4a55-9f5f-3f2d6c1b0a99"
ANSWER = base64.b64encode(b"\n\x1f\n\x16NVIDIA_VISIBLE_DEVICES\x12\x05tegra").decode()
HEAD = "Num       RefCount Protocol Flags    Type St Inode Path\n"
ENGINE = "0000000061f12841: 00000003 00000000 00000000 0001 03 337802 /run/containerd/containerd.sock\n"
"""The kubelet's connection to its engine, as the rig shows it."""


def checks() -> Registry:
    """The built-in checks, this theme's among them."""
    registry = built_in()
    import gpudoctor.checks.kubelet
    import gpudoctor.checks.kubelet_topology  # noqa: F401

    return registry


def judge(node: "KubeletNode | RigKubernetes", check_id: str) -> Result:
    """How one check ends."""
    return diagnose(node).result(check_id)


def diagnose(node: "KubeletNode | RigKubernetes") -> Report:
    """The whole report."""
    recorded = node.recorded() if isinstance(node, KubeletNode) else node.node()
    return run(recorded, Config(), checks(), Selection(), NOW)


def unix(name: str, *, listens: bool = True, folder: str = PLUGINS, inode: int = 340403) -> str:
    """A line of /proc/net/unix."""
    flags, state = ("00010000", "01") if listens else ("00000000", "03")
    return f"00000000a7732b47: 00000002 00000000 {flags} 0001 {state} {inode} {folder}/{name}\n"


def printed(data: Mapping[str, Any]) -> str:
    """What go-spew prints of a checkpoint's data, written anew."""

    def listed(values: Any) -> str:
        return "<nil>" if values is None else "[" + " ".join(str(value) for value in values) + "]"

    def devices(ids: Any) -> str:
        if isinstance(ids, dict):
            inner = " ".join(f"{node}:{listed(ids[node])}" for node in sorted(ids, key=int))
            return f"(checkpoint.DevicesPerNUMA)map[{inner}]"
        return f"([]string){listed(ids)}"

    entries = [
        f"{{PodUID:(string){one['PodUID']} ContainerName:(string){one['ContainerName']} "
        f"ResourceName:(string){one['ResourceName']} DeviceIDs:{devices(one['DeviceIDs'])} "
        f"AllocResp:([]uint8){listed(base64.b64decode(one['AllocResp']))}}}"
        for one in data["PodDeviceEntries"] or []
    ]
    resources = " ".join(f"{name}:{listed(ids)}" for name, ids in sorted(data["RegisteredDevices"].items()))
    return (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        f"{listed(entries if data['PodDeviceEntries'] is not None else None)} "
        f"RegisteredDevices:(map[string][]string)map[{resources}]}}"
    )


def checkpoint(
    *entries: tuple[str, str, Any],
    resources: Mapping[str, tuple[str, ...]] | None = None,
    checksum: int | None = None,
    **more: Any,
) -> str:
    """A file as a kubelet writes it: entries of pod, container and devices."""
    data = {
        "PodDeviceEntries": [
            {
                "PodUID": pod,
                "ContainerName": name,
                "ResourceName": "nvidia.com/gpu",
                "DeviceIDs": ids,
                "AllocResp": ANSWER,
            }
            for pod, name, ids in entries
        ]
        or None,
        "RegisteredDevices": {"nvidia.com/gpu": GPUS} if resources is None else resources,
    }
    number = fnv1a_32(printed(data).encode()) if checksum is None else checksum
    return json.dumps({"Data": data, "Checksum": number, **more}, separators=(",", ":"))


class KubeletNode(ContainerdNode):
    """A kubelet with a plugin in a pod, which has a network namespace of its own; everything healthy."""

    def __init__(self, *words: str, comm: str = "kubelet", plugin: bool = True) -> None:
        super().__init__(kubelet=False)
        self.known: list[str] = ["/sys/devices/system/node", "/sys/bus/pci/devices", *self.complete]
        self.daemon(1000, comm, f"/usr/bin/{comm}", *(words or (f"--config={KUBELET}/config.yaml",)))
        self.text(f"{KUBELET}/config.yaml", "kind: KubeletConfiguration\n")
        self.text("/proc/uptime", "90000.12 1.00\n")
        self.socket("kubelet.sock", BOOTED + 110)
        self.text(CHECKPOINT, checkpoint((POD, "main", {"0": [GPUS[0]]})))
        if plugin:
            self.plugin()
            self.socket("nvidia-gpu.sock", BOOTED + 120)
        self.table(1000, ENGINE, unix("kubelet.sock"), unix("nvidia-gpu.sock", listens=False) if plugin else "")
        if plugin:
            self.table(2000, unix("nvidia-gpu.sock"))

    def recorded(self) -> RecordedNode:
        """The node, of which some directories are known in full."""
        node = super().recorded()
        recorded = RecordedNode(node.tree, complete=self.known, uid=0)
        recorded.commands, recorded.answers = node.commands, dict(self.answers)
        return recorded

    def plugin(self, *, state: str = "S", started: int = 11_000) -> None:
        """The plugin's process."""
        group = f"/kubepods.slice/kubepods-pod{OTHER_POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope"
        self.process(2000, group, comm="nvidia-device-p", state=state, apart=True, started=started)

    def socket(self, name: str, mtime: float | None = None) -> None:
        """A socket in the plugins' directory."""
        path = f"{PLUGINS}/{name}"
        self.tree.put(path, Record(entry=Entry(path, EntryType.SOCKET, 0o755, 0, 0, mtime=mtime)))

    def gone(self, path: str) -> None:
        """Something is not there."""
        self.tree.put(path, Record(error="ENOENT"))

    def table(self, pid: int, *lines: str) -> None:
        """The sockets of a process's network namespace."""
        self.text(f"/proc/{pid}/net/unix", HEAD + "".join(lines))

    def no_process(self, pid: int) -> None:
        """A process is not there."""
        for name in ("cgroup", "stat", "ns/mnt", "ns/pid", "ns/user", "net/unix"):
            self.gone(f"/proc/{pid}/{name}")
        self.gone(f"/proc/{pid}")


# The checkpoint ------------------------------------------------------------------------------------------------------


def real_checkpoints() -> list[Path]:
    """The files of real kubelets."""
    found = [place / "kubelet_internal_checkpoint" for folder in (K8S, VM) for place in folder.glob("*")]
    return sorted(path for path in (*found, *EXCERPTS.glob("kubelet-checkpoint-*.json")) if path.is_file())


@pytest.mark.skipif(not real_checkpoints(), reason="needs the rig")
def test_the_checksums_of_real_kubelets_are_right_and_any_change_makes_them_wrong() -> None:
    files = real_checkpoints()
    assert len(files) >= 20
    for path in files:
        text = path.read_text("utf-8")
        known = parse(TextFile(str(path), text))
        assert isinstance(known, KubeletCheckpoint) and known.checksum is Checksum.SOUND, path
        assert all(isinstance(entry.response, AllocateResponse) for entry in known.entries), path
        changed = parse(TextFile(str(path), text.replace("GPU-", "GPU-f", 1).replace('"tegra"', '"tegra0"', 1)))
        assert isinstance(changed, KubeletCheckpoint) and changed.checksum is Checksum.WRONG, path


@pytest.mark.skipif(not K8S.is_dir(), reason="needs the rig")
def test_answers_of_the_plugin_by_strategy() -> None:
    cdi = fact(RigKubernetes("30-strategy-cdi-cri").node(), KubeletCheckpoint).entries[0].response
    both = fact(RigKubernetes("30-strategy-envvar,cdi-cri").node(), KubeletCheckpoint).entries[0].response
    mounts = fact(RigKubernetes("30-strategy-volume-mounts").node(), KubeletCheckpoint).entries[0].response
    assert (
        isinstance(cdi, AllocateResponse)
        and isinstance(both, AllocateResponse)
        and isinstance(mounts, AllocateResponse)
    )
    assert cdi.cdi_devices and all(name.startswith("k8s.device-plugin.nvidia.com/gpu=GPU-") for name in cdi.cdi_devices)
    assert both.envs["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-") and both.cdi_devices
    assert mounts.envs["NVIDIA_VISIBLE_DEVICES"] == "/var/run/nvidia-container-devices"
    assert mounts.mounts[0].container_path.startswith("/var/run/nvidia-container-devices/GPU-")
    sliced = fact(RigKubernetes("24-time-slicing").node(), KubeletCheckpoint)
    assert len(sliced.registered["nvidia.com/gpu"]) == 32 and "::" in sliced.entries[0].ids[0]


@pytest.mark.skipif(not EXCERPTS.is_dir(), reason="needs the corpus")
def test_device_nodes_in_an_answer() -> None:
    known = parse(TextFile("f", (EXCERPTS / "kubelet-checkpoint-numa-2gpu.json").read_text("utf-8")))
    assert isinstance(known, KubeletCheckpoint) and list(known.entries[0].by_numa) == [1]
    response = known.entries[0].response
    assert isinstance(response, AllocateResponse)
    assert PluginDevice("/dev/nvidia1", "/dev/nvidia1", "rw") in response.devices
    tegra = parse(TextFile("f", (EXCERPTS / "kubelet-checkpoint-tegra.json").read_text("utf-8")))
    assert isinstance(tegra, KubeletCheckpoint) and tegra.entries[0].by_numa == {-1: ("tegra",)}
    cut = parse(TextFile("f", (EXCERPTS / "kubelet-checkpoint-2019-v1-partial.json.txt").read_text("utf-8")))
    assert isinstance(cut, KubeletCheckpoint) and cut.state is not None


def test_a_message_is_read_and_a_cut_one_refused() -> None:
    mount = b"\n\x02/c\x12\x02/h\x18\x01"
    message = b"\x12" + bytes([len(mount)]) + mount + b"\x22\x06\n\x01k\x12\x01v"
    assert decode(message) == AllocateResponse(mounts=(PluginMount("/c", "/h", True),), annotations={"k": "v"})
    with pytest.raises(ValueError, match="longer"):
        decode(message[:-1])


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (checkpoint((POD, "main", [GPUS[0]])), None),
        (checkpoint((POD, "main", {"0": [GPUS[0]], "1": [GPUS[1]], "-1": ["x"]})), 0),
        (checkpoint((POD, "main", {"0": [GPUS[0]]}), BootID="1f2e3d4c-0000-4000-8000-000000000000"), 0),
    ],
    ids=["list", "numa", "boot-id"],
)
def test_all_shapes_are_read(text: str, shape: int | None) -> None:
    node = KubeletNode()
    node.text(CHECKPOINT, text)
    known = fact(node.recorded(), KubeletCheckpoint)
    assert known.checksum is Checksum.SOUND and next(iter(known.entries[0].by_numa)) == shape
    assert known.boot_id == ("1f2e3d4c-0000-4000-8000-000000000000" if "BootID" in text else "")
    result = judge(node, SOUND)
    assert result.status is Status.PASS and "checksum is right" in result.findings[0].summary


def test_a_wrong_checksum_is_told_and_an_unknown_shape_is_not_called_wrong() -> None:
    node = KubeletNode()
    node.text(CHECKPOINT, checkpoint((POD, "main", {"0": [GPUS[0]]}), checksum=12345))
    result = judge(node, SOUND)
    assert result.status is Status.WARN and result.findings[0].subject.key == CHECKPOINT
    assert any("12345" in evidence.shows for evidence in result.findings[0].evidence)
    assert "drain" in " ".join(remedy.run[0] for remedy in result.findings[0].remedies if remedy.run)
    document = json.loads(checkpoint())
    document["Data"]["Claims"] = []
    node.text(CHECKPOINT, json.dumps(document))
    assert judge(node, SOUND).status is Status.UNKNOWN
    node.text(CHECKPOINT, json.dumps({key: value for key, value in document.items() if key != "Checksum"}))
    assert judge(node, SOUND).status is Status.UNKNOWN


@pytest.mark.parametrize("text", ['{"Data":{"PodDeviceEnt', "", '{"Data":{"PodDeviceEntries":7}}', "[]", '{"v2":{}}'])
def test_a_file_that_no_kubelet_reads(text: str) -> None:
    node = KubeletNode()
    node.text(CHECKPOINT, text)
    result = judge(node, SOUND)
    assert result.status is Status.WARN and "cannot be read" in result.findings[0].summary


def test_numbers_of_numa_nodes_are_read_as_go_reads_them() -> None:
    node = KubeletNode()
    sound = checkpoint((POD, "main", {"1": [GPUS[0]]}))
    node.text(CHECKPOINT, sound.replace('{"1":', '{"01":'))
    known = fact(node.recorded(), KubeletCheckpoint)
    assert (known.checksum, known.entries[0].by_numa) == (Checksum.SOUND, {1: (GPUS[0],)})
    for odd in ("9" * 5000, "1_0", "\u0661", "node1"):
        text = sound.replace('{"1":', f'{{"{odd}":')
        node.text(CHECKPOINT, text)
        result = judge(node, SOUND)
        assert result.status is Status.WARN and "cannot be read" in result.findings[0].summary
        hidden = parse(TextFile(CHECKPOINT, parsed_form(text) or ""))
        assert isinstance(hidden, KubeletCheckpoint) and hidden.state is not None


def test_a_checkpoint_that_was_removed_under_a_running_plugin() -> None:
    node = KubeletNode()
    node.gone(CHECKPOINT)
    result = judge(node, SOUND)
    assert result.status is Status.WARN and "gone" in result.findings[0].summary
    node = KubeletNode(plugin=False)
    node.gone(CHECKPOINT)
    assert judge(node, SOUND).status is Status.SKIP


def test_one_device_given_to_two_pods_and_containers_of_one_that_share() -> None:
    node = KubeletNode()
    entries = ((POD, "main", {"0": [GPUS[0]]}), (OTHER_POD, "train", {"0": [GPUS[0]]}))
    node.text(CHECKPOINT, checkpoint(*entries))
    leftover = judge(node, SOUND)
    assert leftover.status is Status.WARN and GPUS[0] in leftover.findings[0].summary
    for pod in (POD, OTHER_POD):
        node.tree.put(f"{KUBELET}/pods/{pod}", Record(entry=Entry(f"{KUBELET}/pods/{pod}", EntryType.DIR)))
    both = judge(node, SOUND)
    assert both.status is Status.FAIL and {POD in evidence.shows for evidence in both.findings[0].evidence} == {
        True,
        False,
    }
    node.text(CHECKPOINT, checkpoint((POD, "init", {"0": [GPUS[0]]}), (POD, "main", {"0": [GPUS[0]]})))
    assert judge(node, SOUND).status is Status.PASS
    replicas = ((POD, "main", {"0": [f"{GPUS[0]}::0"]}), (OTHER_POD, "main", {"0": [f"{GPUS[0]}::1"]}))
    node.text(CHECKPOINT, checkpoint(*replicas))
    assert judge(node, SOUND).status is Status.PASS


def test_a_redacted_checkpoint_keeps_its_verdict_and_its_answers() -> None:
    salt = b"a-salt-of-this-test-0123456789abcd"
    for checksum in (None, 12345):
        text = checkpoint((POD, "frodos-notebook", {"0": [GPUS[0]]}), checksum=checksum)
        raw = parse(TextFile(CHECKPOINT, text))
        name = f"root{CHECKPOINT}"
        said = redact({"snapshot.json": b'{"hostname": "shire7", "complete": []}', name: text.encode()}, salt).members[
            name
        ]
        hidden = parse(TextFile(CHECKPOINT, said.decode()))
        assert isinstance(raw, KubeletCheckpoint) and isinstance(hidden, KubeletCheckpoint)
        assert (hidden.checksum, hidden.why, hidden.registered) == (raw.checksum, raw.why, raw.registered)
        again = redact({"snapshot.json": b"{}", name: said}, salt).members[name]
        twice = parse(TextFile(CHECKPOINT, again.decode()))
        assert isinstance(twice, KubeletCheckpoint) and (twice.checksum, twice.why) == (raw.checksum, raw.why)
        assert twice.entries[0].ids == raw.entries[0].ids and twice.entries[0].response == raw.entries[0].response
        assert "frodo" not in said.decode() and hidden.entries[0].response == raw.entries[0].response
        assert hidden.entries[0].by_numa == raw.entries[0].by_numa
        assert parsed_form("{") is None and parsed_form(said.decode()) is None


def members(node: RigKubernetes) -> dict[str, bytes]:
    """The node as the members of a snapshot."""
    lines = []
    for path, record in node.tree.records.items():
        entry = record.entry
        line: dict[str, Any] = {"path": path, "error": record.error} if record.error else {"path": path}
        if entry is not None:
            line |= {"type": entry.type.value, "mtime": entry.mtime, "to": entry.to, "size": entry.size}
        if record.text is not None:
            line["text"] = record.text
        lines.append(json.dumps({key: value for key, value in line.items() if value is not None}))
    manifest = {
        "format": 1,
        "recorded_at": "2026-11-29T18:00:00Z",
        "recorded_by": "a test",
        "hostname": "gpu-node-1",
        "uid": 0,
        "complete": node.complete,
    }
    answers = {f"answers/{name}.json": msgspec.json.encode(answer) for name, answer in node.answers.items()}
    return {"snapshot.json": json.dumps(manifest).encode(), "entries.jsonl": "\n".join(lines).encode(), **answers}


@pytest.mark.skipif(not situations(), reason="needs the rig")
@pytest.mark.parametrize("name", ["05-gpu-pod-running", "08-plugin-killed-sigkill", "24-time-slicing"])
def test_a_redacted_node_is_diagnosed_like_the_raw_one(name: str, tmp_path: Path) -> None:
    raw = members(RigKubernetes(name))
    redacted = redact(raw, b"a-salt-of-this-test-0123456789abcd").members
    assert redacted["entries.jsonl"] != raw["entries.jsonl"]
    found = []
    for place, content in (("raw", raw), ("redacted", redacted)):
        write_snapshot(tmp_path / place, content)
        report = run(open_snapshot(tmp_path / place), Config(), checks(), Selection(), NOW)
        found.append(
            [
                (one.id, one.status, one.summary, [(told.where, told.shows) for told in one.evidence])
                for check_id in (SOUND, ALIVE, REGISTERED, TOPOLOGY)
                for one in report.result(check_id).findings
            ]
        )
    assert found[0] == found[1] and any(status is not Status.UNKNOWN for _, status, _, _ in found[0])


def test_private_variables_of_an_answer_and_broken_files_are_hidden() -> None:
    secret = b"\x0a\x1d\x0a\x0bHOBBIT_HOME\x12\x0ebagend-row-77x"
    answer = base64.b64encode(secret).decode()
    text = checkpoint((POD, "main", {"0": [GPUS[0]]})).replace(ANSWER, answer)
    members = {
        "snapshot.json": b'{"hostname": "shire7", "complete": []}',
        f"root{CHECKPOINT}": text.encode(),
        f"root/var/snap{CHECKPOINT}": text.encode()[:-40],
        "root/var/lib/kubelet/cpu_manager_state": b'{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"frodos-notebook":"1-2"}}}',
    }
    redacted = redact(members, b"a-salt-of-this-test-0123456789abcd").members
    assert b"bagend" not in redacted[f"root{CHECKPOINT}"] and b"HOBBIT_HOME" in redacted[f"root{CHECKPOINT}"]
    assert answer[:20].encode() not in redacted[f"root/var/snap{CHECKPOINT}"]
    assert len(redacted[f"root/var/snap{CHECKPOINT}"]) == len(text) - 40
    state = redacted["root/var/lib/kubelet/cpu_manager_state"]
    assert b"frodo" not in state and b"1-2" in state and b"static" in state


# Sockets and registration --------------------------------------------------------------------------------------------


EXPECTED = {
    "03-plugin-stopped-sigterm": (REGISTERED, "no device plugin is there any more for nvidia.com/gpu"),
    "08-plugin-killed-sigkill": (ALIVE, "was killed or crashed"),
    "23-pods-removed": (REGISTERED, "no device plugin is there any more for nvidia.com/gpu"),
}
WITHOUT_PLUGIN = ("00-no-plugin", "01-pod-before-plugin")


@pytest.mark.skipif(not situations(), reason="needs the rig")
def test_every_situation_of_the_rig_in_order_of_time() -> None:
    assert len(situations()) >= 20
    for name in situations():
        node = RigKubernetes(name)
        if name == "03-plugin-stopped-sigterm":
            early = judge(node, REGISTERED)
            assert (early.why, early.findings[0].summary) == (Why.SLOW_INIT, "the kubelet has just started")
            node.text("/proc/uptime", "9000.00 1.00\n")
        report = diagnose(node)
        assert not crashed(report), name
        alarms = [
            (finding.id.partition("@")[0], finding.summary)
            for check_id in (SOUND, ALIVE, REGISTERED, TOPOLOGY)
            for finding in report.result(check_id).findings
            if finding.status in (Status.FAIL, Status.WARN)
        ]
        if name in EXPECTED:
            check_id, words = EXPECTED[name]
            assert [one for one, _ in alarms] == [check_id] and words in alarms[0][1], (name, alarms)
        else:
            assert not alarms, (name, alarms)
        if name in WITHOUT_PLUGIN:
            assert {report.result(one).status for one in (SOUND, ALIVE, REGISTERED, TOPOLOGY)} == {Status.SKIP}, name
        elif name not in EXPECTED and name != "26-plugin-no-nvml-nofail":
            assert [report.result(one).status for one in (SOUND, ALIVE, REGISTERED)] == [Status.PASS] * 3, name


@pytest.mark.skipif(not situations(), reason="needs the rig")
def test_a_plugin_that_found_nothing_is_given_a_minute() -> None:
    node = RigKubernetes("26-plugin-no-nvml-nofail")
    early = judge(node, REGISTERED)
    assert (early.status, early.why) == (Status.UNKNOWN, Why.SLOW_INIT)
    node.text("/proc/uptime", "9000.00 1.00\n")
    late = judge(node, REGISTERED)
    assert late.status is Status.FAIL and f"pid {node.plugin}" in late.findings[0].summary
    assert "opened no socket" in late.findings[0].summary


@pytest.mark.skipif(not situations(), reason="needs the rig")
def test_a_frozen_plugin_whose_socket_the_kubelet_wiped() -> None:
    """The situation between the rig's 12 and 14: the kubelet restarted while the plugin was stopped."""
    node = RigKubernetes("12-kubelet-restarted-plugin-alive")
    node.gone(GPU_SOCKET)
    kept = [line for line in node.file("proc_net_unix.txt").splitlines() if " 03 " not in line]
    node.sockets(HEAD + "\n".join(kept) + "\n")
    assert node.plugin is not None
    node.process(node.plugin, "/system.slice/rig.service", comm="nvidia-device-p", state="T", started=6_000)
    node.text("/proc/uptime", "9000.00 1.00\n")
    allocatable = node.answers["pod_resources"].data | {"allocatable": []}
    node.answers["pod_resources"] = Answer(allocatable, via="PodResources")
    result = judge(node, REGISTERED)
    assert result.status is Status.FAIL
    summary = result.findings[0].summary
    assert "stopped by a signal" in summary and "restart has removed" in summary and "no nvidia.com/gpu" in summary


@pytest.mark.skipif(not vm_situations(), reason="needs the rig")
def test_what_was_not_recorded_is_not_known() -> None:
    for name in vm_situations():
        report = diagnose(RigKubernetes(name))
        assert not crashed(report), name
        assert report.result(SOUND).status is Status.PASS, name
        assert [(report.result(one).status, report.result(one).why) for one in (ALIVE, REGISTERED)] == [
            (Status.UNKNOWN, Why.NOT_RECORDED)
        ] * 2, name


def test_a_healthy_plugin_in_a_network_namespace_of_its_own() -> None:
    report = diagnose(KubeletNode())
    assert [report.result(one).status for one in (SOUND, ALIVE, REGISTERED)] == [Status.PASS] * 3
    shown = [evidence.where for finding in report.result(REGISTERED).findings for evidence in finding.evidence]
    assert shown == ["/proc/1000/net/unix"]


def test_a_plugin_that_listens_and_is_not_known_to_the_kubelet() -> None:
    node = KubeletNode()
    node.table(1000, ENGINE, unix("kubelet.sock"))
    report = diagnose(node)
    assert report.result(ALIVE).status is Status.PASS
    result = report.result(REGISTERED)
    assert result.status is Status.FAIL and "not connected" in result.findings[0].summary
    node.plugin(started=8_999_000)
    assert judge(node, REGISTERED).why == Why.SLOW_INIT


GIVES: Mapping[str, tuple[str, ...]] = {"nothing": (), "both": GPUS}


def kubelet_says(node: KubeletNode, ids: tuple[str, ...]) -> None:
    """What the kubelet has to give of nvidia.com/gpu."""
    allocatable = [{"resource": "nvidia.com/gpu", "ids": list(ids), "numa": [0]}] if ids else []
    data = {"version": "v1", "pods": [], "allocatable": allocatable}
    node.answers["pod_resources"] = Answer(data, via="PodResources (kubelet.sock)")


@pytest.mark.parametrize("wiped", [False, True], ids=["socket-there", "socket-wiped"])
@pytest.mark.parametrize(
    ("engine", "gives", "status"),
    [
        ("", None, Status.UNKNOWN),
        ("", "nothing", Status.FAIL),
        ("", "both", Status.PASS),
        (ENGINE, None, Status.FAIL),
        (ENGINE, "both", Status.PASS),
    ],
)
def test_a_connection_that_a_table_lacks_which_shows_none_at_all_proves_nothing(
    engine: str, gives: str | None, status: Status, wiped: bool
) -> None:
    """Every kubelet is connected to its engine: a table without that shows no connections."""
    node = KubeletNode()
    node.table(1000, engine, unix("kubelet.sock"))
    if wiped:
        node.gone(GPU_SOCKET)
    if gives is not None:
        kubelet_says(node, GIVES[gives])
    result = judge(node, REGISTERED)
    assert result.status is status
    assert [one.subject.id for one in result.findings] == ["service:nvidia.com/gpu"]
    told = [one.where for one in result.findings[0].evidence]
    assert ("PodResources (kubelet.sock)" in told) is (gives is not None)


@pytest.mark.parametrize("plugin", [True, False], ids=["plugin-runs", "no-plugin-yet"])
def test_a_kubelet_that_has_just_started_has_no_plugins_yet(plugin: bool) -> None:
    """A plugin that runs on has a moment to see the new kubelet.sock."""
    node = KubeletNode(plugin=plugin)
    node.gone(GPU_SOCKET)
    node.table(1000, ENGINE, unix("kubelet.sock"))
    late = judge(node, REGISTERED)
    assert late.status is Status.FAIL and late.findings[0].subject.key == "nvidia.com/gpu"
    node.process(1000, "/system.slice/kubelet.service", comm="kubelet", started=8_999_000)
    early = judge(node, REGISTERED)
    assert early.why == Why.SLOW_INIT and "kubelet (pid 1000) runs since 10 s" in early.findings[0].evidence[0].shows
    node.gone(f"{PLUGINS}/kubelet.sock")
    assert judge(node, ALIVE).why == Why.SLOW_INIT
    node.tree.put("/proc/uptime", Record(error="EACCES"))
    assert {judge(node, one).why for one in (ALIVE, REGISTERED)} == {Why.NO_PERMISSION}


def test_a_socket_that_is_left_beside_the_running_plugins() -> None:
    """GKE's plugin makes one with the time in its name at every start."""
    node = KubeletNode(plugin=False)
    node.plugin()
    node.socket("nvidiaGPU-1700000000.sock")
    node.socket("nvidiaGPU-1800000000.sock")
    node.table(2000, unix("nvidiaGPU-1800000000.sock"))
    node.table(1000, ENGINE, unix("kubelet.sock"), unix("nvidiaGPU-1800000000.sock", listens=False))
    result = judge(node, REGISTERED)
    assert [(one.status, one.subject.key) for one in result.findings] == [(Status.PASS, "nvidia.com/gpu")]


def test_gkes_plugin_has_the_plugins_directory_elsewhere_inside() -> None:
    """Its sockets are bound as /device-plugin/nvidiaGPU-TIME.sock, and that is how the kernel lists them."""
    name = "nvidiaGPU-1800000000.sock"
    node = KubeletNode(plugin=False)
    group = f"/kubepods.slice/kubepods-pod{OTHER_POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope"
    node.process(2000, group, comm="nvidia-gpu-devi", apart=True, started=11_000)
    node.socket(name, BOOTED + 120)
    heard, connected = unix(name, folder="/device-plugin"), unix(name, listens=False, folder="/device-plugin")
    assert all(re.search(KEEP, line) for line in (heard, connected))
    node.table(2000, heard)
    node.table(1000, ENGINE, unix("kubelet.sock"), connected)
    report = diagnose(node)
    assert [report.result(one).status for one in (SOUND, ALIVE, REGISTERED)] == [Status.PASS] * 3
    node.table(2000)
    node.table(1000, ENGINE, unix("kubelet.sock"))
    assert judge(node, ALIVE).status is Status.FAIL


def test_a_socket_that_an_earlier_plugin_left_is_no_dead_plugin() -> None:
    node = KubeletNode(plugin=False)
    node.plugin()
    node.socket("nvidiaGPU-1700000000.sock")
    node.socket("nvidiaGPU-1800000000.sock")
    node.table(2000, unix("nvidiaGPU-1800000000.sock"))
    node.table(1000, ENGINE, unix("kubelet.sock"), unix("nvidiaGPU-1800000000.sock", listens=False))
    found = {one.subject.key.rpartition("/")[2]: one for one in judge(node, ALIVE).findings}
    left, alive = found["nvidiaGPU-1700000000.sock"], found["nvidiaGPU-1800000000.sock"]
    assert (left.status, alive.status) == (Status.SKIP, Status.PASS)
    assert "another one serves nvidia.com/gpu" in left.summary


def test_a_plugin_that_has_a_socket_of_its_own_at_every_start() -> None:
    node = KubeletNode(plugin=False)
    node.plugin()
    name = "nvidia-gpu-3f9a1c07.sock"
    node.socket(name, BOOTED + 120)
    node.table(2000, unix(name))
    node.table(1000, ENGINE, unix("kubelet.sock"), unix(name, listens=False))
    report = diagnose(node)
    (finding,) = report.result(REGISTERED).findings
    assert (finding.status, finding.subject.key) == (Status.PASS, "nvidia.com/gpu")
    assert report.result("device-plugin.stale-resources").status is Status.PASS


def test_a_dra_driver_is_no_plugin_for_the_resource() -> None:
    """It registers as gpu.nvidia.com-reg.sock, whether or not the device plugin lives."""
    node = KubeletNode(plugin=False)
    node.text(f"{KUBELET}/plugins_registry/gpu.nvidia.com-reg.sock", "")
    assert judge(node, REGISTERED).status is Status.FAIL
    node.text(f"{KUBELET}/plugins_registry/kubevirt-gpu.sock", "")
    assert judge(node, REGISTERED).status is Status.SKIP


def test_a_clock_that_began_after_the_processes_makes_nobody_young() -> None:
    """LXCFS tells a container's own uptime, and /proc/PID/stat counts from the machine's boot."""
    node = KubeletNode()
    node.table(1000, ENGINE, unix("kubelet.sock"))
    node.text("/proc/uptime", "50.00 1.00\n")
    assert judge(node, REGISTERED).status is Status.FAIL


def test_a_plugin_in_the_kubelets_namespace_is_seen_in_the_kubelets_table() -> None:
    node = KubeletNode()
    node.gone("/proc/2000/net/unix")
    node.table(1000, ENGINE, unix("kubelet.sock"), unix("nvidia-gpu.sock"))
    for check_id in (ALIVE, "device-plugin.one-plugin-per-resource"):
        result = judge(node, check_id)
        assert {one.where for finding in result.findings for one in finding.evidence if "/net/" in one.where} == {
            "/proc/1000/net/unix"
        }
        assert result.status is Status.PASS


def test_what_the_kubelet_tells_counts_as_registration() -> None:
    node = KubeletNode()
    node.gone("/proc/1000/net/unix")
    node.gone("/proc/2000/net/unix")
    assert judge(node, REGISTERED).status is Status.UNKNOWN
    kubelet_says(node, GPUS)
    result = judge(node, REGISTERED)
    assert result.status is Status.PASS and result.findings[0].evidence[0].where == "PodResources (kubelet.sock)"


def test_a_killed_plugin_and_a_socket_older_than_the_kubelet() -> None:
    node = KubeletNode()
    node.no_process(2000)
    node.table(1000, ENGINE, unix("kubelet.sock"))
    node.socket("nvidia-gpu.sock", BOOTED + 50)
    report = diagnose(node)
    result = report.result(ALIVE)
    (dead,) = (finding for finding in result.findings if finding.status is Status.FAIL)
    assert dead.subject.key == GPU_SOCKET and any("before the kubelet started" in one.shows for one in dead.evidence)
    assert report.result(REGISTERED).status is Status.SKIP


def test_where_processes_are_hidden_nobody_is_called_dead() -> None:
    node = KubeletNode()
    node.no_process(2000)
    node.table(1000, ENGINE, unix("kubelet.sock"))
    node.known.remove("/proc")
    assert judge(node, ALIVE).status is Status.UNKNOWN
    node = KubeletNode()
    node.tree.put("/proc/1000/net/unix", Record(error="EACCES"))
    node.tree.put("/proc/2000/net/unix", Record(error="EACCES"))
    report = diagnose(node)
    assert (report.result(ALIVE).why, report.result(REGISTERED).why) == (Why.NO_PERMISSION, Why.NO_PERMISSION)


def test_one_dead_socket_of_two_concerns_its_resource_alone() -> None:
    node = KubeletNode()
    node.socket("nvidia-mig-1g.10gb.sock", BOOTED + 120)
    result = judge(node, ALIVE)
    (dead,) = (finding for finding in result.findings if finding.status is Status.FAIL)
    assert dead.subject.key.endswith("nvidia-mig-1g.10gb.sock") and "serves nothing there" in dead.summary


def test_the_kubelets_own_socket() -> None:
    node = KubeletNode()
    node.gone(f"{PLUGINS}/kubelet.sock")
    result = judge(node, ALIVE)
    assert result.status is Status.FAIL and "where plugins register is gone" in result.findings[0].summary
    node = KubeletNode()
    node.table(1000, unix("nvidia-gpu.sock", listens=False))
    result = judge(node, ALIVE)
    assert result.status is Status.FAIL and "does not listen" in result.findings[0].summary
    assert "systemctl restart kubelet.service" in result.findings[0].remedies[0].run


def test_a_connection_outlives_its_file() -> None:
    node = KubeletNode()
    node.gone(GPU_SOCKET)
    result = judge(node, REGISTERED)
    assert result.status is Status.PASS and "though its file is gone" in result.findings[0].summary


def test_nothing_is_said_where_no_kubelet_runs_or_no_plugin_ever_was() -> None:
    bare = KubeletNode(plugin=False)
    bare.gone(CHECKPOINT)
    report = diagnose(bare)
    assert {report.result(one).status for one in (SOUND, ALIVE, REGISTERED, TOPOLOGY)} == {Status.SKIP}
    bare.text(CHECKPOINT, checkpoint(resources={"smarter-devices/fuse": ("fuse0",)}))
    report = diagnose(bare)
    assert {report.result(one).status for one in (SOUND, ALIVE, REGISTERED, TOPOLOGY)} == {Status.SKIP}
    none = ContainerdNode(kubelet=False)
    assert fact(none.recorded(), PluginSockets).kubelet is None


def test_leftover_entries_of_pods_prove_nothing() -> None:
    node = KubeletNode(plugin=False)
    node.text(CHECKPOINT, checkpoint((POD, "main", {"0": [GPUS[0]]}), resources={}))
    assert judge(node, REGISTERED).status is Status.SKIP


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("nvidia-gpu.sock", "nvidia.com/gpu"),
        ("nvidia-mig-3g.40gb.sock", "nvidia.com/mig-3g.40gb"),
        ("nvidia-gpu.shared.sock", "nvidia.com/gpu.shared"),
        ("nvidia-gpu-3f9a1c07.sock", "nvidia.com/gpu"),
        ("nvidia-mig-1g.10gb.me-3f9a1c07.sock", "nvidia.com/mig-1g.10gb.me"),
        ("nvidia.sock", "nvidia.com/gpu"),
        ("nvidiaGPU-1700000000.sock", "nvidia.com/gpu"),
        ("nvidia.com-gpu.sock", None),
    ],
)
def test_resources_by_the_names_of_sockets(name: str, resource: str | None) -> None:
    assert resource_of(name) == resource


def test_blinded_to_any_one_path_it_neither_alarms_nor_claims() -> None:
    """As tests/test_ablation.py has it, on nodes whose sockets are recorded."""
    paths = [
        path
        for path in KubeletNode().tree.records
        if path.startswith((KUBELET, "/proc/1000", "/proc/2000", "/proc/uptime", "/proc/stat"))
    ]
    assert len(paths) > 15
    for path in (*paths, PLUGINS, KUBELET, "/proc/1000/net", "/proc/2000"):
        for error in ("EACCES", "ENOENT"):
            node = KubeletNode()
            for below in [one for one in node.tree.records if one == path or one.startswith(f"{path}/")] or [path]:
                node.tree.put(below, Record(error=error))
            report = diagnose(node)
            assert not crashed(report), (path, error)
            found = [one for check_id in (SOUND, ALIVE, REGISTERED) for one in report.result(check_id).findings]
            if error == "EACCES":
                assert not [one.summary for one in found if one.status in (Status.FAIL, Status.WARN)], path
            claims = [told for one in found if one.status is Status.PASS for told in one.evidence]
            assert not [told for told in claims if told.where == path], (path, error)


_LISTENER = (
    "import socket, sys\n"
    "listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); listener.listen(); print('ready', flush=True)\n"
    "accepted = listener.accept() if sys.argv[2] == 'accept' else None; print('accepted', flush=True); sys.stdin.read()\n"
)


@pytest.mark.parametrize("accepts", [True, False], ids=["accepting", "frozen"])
def test_what_a_real_kernel_shows_of_a_listener_in_another_network_namespace(accepts: bool) -> None:
    """The claim on which registration stands: an accepted connection is listed in the namespace of who connected."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make a network namespace")
    with tempfile.TemporaryDirectory(prefix="k") as folder:
        place = Path(folder, "device-plugins", "nvidia-gpu.sock")
        place.parent.mkdir()
        argv = [unshare, "-n", sys.executable, "-c", _LISTENER, str(place), "accept" if accepts else "wait"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as plugin:
            assert plugin.stdout is not None and plugin.stdin is not None
            assert plugin.stdout.readline() == "ready\n"
            node = KubeletNode()
            node.text("/proc/2000/net/unix", Path(f"/proc/{plugin.pid}/net/unix").read_text("utf-8", "replace"))
            with socket.socket(socket.AF_UNIX) as kubelet:
                kubelet.connect(str(place))
                assert plugin.stdout.readline() == "accepted\n"
                own = Path("/proc/self/net/unix").read_text("utf-8", "replace")
            plugin.stdin.close()
    node.text("/proc/1000/net/unix", own + ENGINE + unix("kubelet.sock"))
    assert judge(node, ALIVE).status is Status.PASS
    assert judge(node, REGISTERED).status is (Status.PASS if accepts else Status.FAIL)


# Settings and managers -----------------------------------------------------------------------------------------------


def setting(node: KubeletNode, name: str) -> str:
    """What the kubelet was told."""
    told = fact(node.recorded(), KubeletSettings).setting(name)
    assert isinstance(told, Setting), told
    return told.value


def test_options_win_over_drop_ins_and_these_over_the_file() -> None:
    node = KubeletNode(
        f"--config={KUBELET}/config.yaml", "--config-dir=/etc/kubernetes/kubelet.conf.d", "--root-dir=/data/kubelet"
    )
    node.text(f"{KUBELET}/config.yaml", "topologyManagerPolicy: restricted\ncgroupDriver: systemd\n")
    node.text("/etc/kubernetes/kubelet.conf.d/20-numa.conf", "topologyManagerPolicy: single-numa-node\n")
    assert (setting(node, "topologyManagerPolicy"), setting(node, "cgroupDriver")) == ("single-numa-node", "systemd")
    assert fact(node.recorded(), KubeletSettings).root == "/data/kubelet"
    assert setting(node, "cpuManagerPolicy") == "none"
    node = KubeletNode("--topology-manager-policy=best-effort", f"--config={KUBELET}/config.yaml")
    node.text(f"{KUBELET}/config.yaml", "topologyManagerPolicy: restricted\n")
    assert setting(node, "topologyManagerPolicy") == "best-effort"


def test_k3s_rke2_and_microk8s() -> None:
    node = KubeletNode("server", "--kubelet-arg=cpu-manager-policy=static", comm="k3s-server")
    node.text("/etc/rancher/k3s/config.yaml", "kubelet-arg:\n  - topology-manager-policy=restricted\n")
    assert (setting(node, "topologyManagerPolicy"), setting(node, "cpuManagerPolicy")) == ("restricted", "static")
    node = KubeletNode("agent", comm="k3s-agent")
    node.text("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", "cgroupDriver: systemd\n")
    assert setting(node, "cgroupDriver") == "systemd"
    node = KubeletNode("--x", comm="kubelite")
    node.text(
        "/var/snap/microk8s/current/args/kubelet",
        "--topology-manager-policy=single-numa-node\n--root-dir=${SNAP_COMMON}/var/lib/kubelet\n",
    )
    known = fact(node.recorded(), KubeletSettings)
    assert known.kubelet is not None and known.kubelet.program is Program.KUBELITE
    assert setting(node, "topologyManagerPolicy") == "single-numa-node"
    assert known.directories == ("/var/snap/microk8s/common/var/lib/kubelet/device-plugins", PLUGINS)
    assert diagnose(node).result(REGISTERED).status is Status.PASS


def test_rancher_writes_drop_ins_alone() -> None:
    """As JSON in config.yaml.d/50-rancher.yaml, without a config.yaml."""
    node = KubeletNode("agent", comm="k3s-agent")
    folder = "/etc/rancher/k3s/config.yaml.d"
    said = {"kubelet-arg": ["topology-manager-policy=restricted", "root-dir=/data/kubelet"], "node-name": "Gpu-7"}
    node.text(f"{folder}/50-rancher.yaml", json.dumps(said))
    node.text(f"{folder}/README.txt", "kubelet-arg: [topology-manager-policy=none]\n")
    known = fact(node.recorded(), KubeletSettings)
    assert (setting(node, "topologyManagerPolicy"), known.root) == ("restricted", "/data/kubelet")
    assert node_name(Desk(node.recorded(), Config())) == "gpu-7"
    node.text(f"{folder}/60-more.yaml", "kubelet-arg+:\n- cpu-manager-policy=static\n")
    assert (setting(node, "topologyManagerPolicy"), setting(node, "cpuManagerPolicy")) == ("restricted", "static")
    node.text(f"{folder}/70-other.yml", "kubelet-arg: cpu-manager-policy=none\nnode-name: other\n")
    assert (setting(node, "topologyManagerPolicy"), setting(node, "cpuManagerPolicy")) == ("none", "none")
    assert node_name(Desk(node.recorded(), Config())) == "other"
    node.tree.put(f"{folder}/70-other.yml", Record(error="EACCES"))
    assert judge(node, TOPOLOGY).why == Why.NO_PERMISSION


def test_what_the_kubelets_unit_runs_beside_it_is_told() -> None:
    """k3s has the control plane of a server in the same unit."""
    for comm, said in (("k3s-server", True), ("kubelet", False)):
        node = KubeletNode("server", comm=comm)
        node.gone(f"{PLUGINS}/kubelet.sock")
        (step, *_) = next(one for one in judge(node, ALIVE).findings if one.status is Status.FAIL).remedies
        assert step.run == (f"systemctl restart {comm}.service",)
        assert ("what else k3s-server.service runs, on a server the control plane" in step.interrupts) is said


def test_the_engine_that_a_drop_in_of_k3s_names() -> None:
    node = KubeletNode("server", comm="k3s-server")
    folder, sock = "/etc/rancher/k3s/config.yaml.d", "unix:///run/containerd/containerd.sock"
    node.text(f"{folder}/50-rancher.yaml", json.dumps({"docker": True}))
    assert fact(node.recorded(), KubeletEndpoint).sockets == ("/run/k3s/cri-dockerd/cri-dockerd.sock",)
    node.text(f"{folder}/60-own.yaml", f"container-runtime-endpoint: {sock}\n")
    (kubelet,) = fact(node.recorded(), KubeletEndpoint).kubelets
    assert isinstance(kubelet.endpoint, Endpoint) and kubelet.endpoint.url == sock
    assert kubelet.endpoint.evidence.where == f"{folder}/60-own.yaml"


def test_a_sign_that_pods_were_given_gpus_lies_below_microk8s_root() -> None:
    node = KubeletNode("--x", comm="kubelite")
    node.gone(CHECKPOINT)
    assert not fact(node.recorded(), KubeletEngine).wants_gpus
    path = f"{MICROK8S_ROOT}/device-plugins/kubelet_internal_checkpoint"
    node.text(path, checkpoint())
    assert [one.where for one in fact(node.recorded(), KubeletEngine).wants_gpus] == [path]


def test_a_directory_that_may_not_be_read_behind_one_that_is_not_there() -> None:
    node = KubeletNode("--x", comm="kubelite")
    for path in [one for one in node.tree.records if one.startswith(PLUGINS)] + [PLUGINS]:
        node.tree.put(path, Record(error="EACCES"))
    report = diagnose(node)
    assert {report.result(one).why for one in (SOUND, ALIVE, REGISTERED)} == {Why.NO_PERMISSION}


def numa_node(
    *, gpus: tuple[int, ...] = (0, 0, 1, 1), shared: str = "0-15", policy: str = "single-numa-node"
) -> KubeletNode:
    """Two NUMA nodes of eight CPUs."""
    node = KubeletNode()
    node.text(
        f"{KUBELET}/config.yaml",
        f"topologyManagerPolicy: {policy}\ncpuManagerPolicy: static\nreservedSystemCPUs: 0,8\n",
    )
    node.text(
        f"{KUBELET}/cpu_manager_state", json.dumps({"policyName": "static", "defaultCpuSet": shared, "checksum": 1})
    )
    for number in (0, 1):
        node.text(f"/sys/devices/system/node/node{number}/cpulist", f"{number * 8}-{number * 8 + 7}\n")
    for number, numa in enumerate(gpus):
        address = f"0000:{number + 1:02x}:00.0"
        place = f"/sys/devices/pci0000:00/{address}"
        node.function(address, place, "nvidia")
        for name, value in (
            ("vendor", "0x10de"),
            ("device", "0x2330"),
            ("class", "0x030200"),
            ("numa_node", str(numa)),
        ):
            node.text(f"{place}/{name}", f"{value}\n")
    return node


def test_gpus_and_cpus_that_can_be_had_together() -> None:
    result = judge(numa_node(), TOPOLOGY)
    assert result.status is Status.PASS
    words = result.findings[0].summary
    assert "NUMA node 0 has 1 GPU and 7 CPUs left, NUMA node 1 has 2 GPUs and 7 CPUs left" in words
    assert judge(numa_node(policy="best-effort", shared="0"), TOPOLOGY).status is Status.SKIP


def test_a_numa_node_with_gpus_and_no_cpus() -> None:
    result = judge(numa_node(shared="0,8-15"), TOPOLOGY)
    assert result.status is Status.WARN and "NUMA node 0 has 1 GPU and 0 CPUs left" in result.findings[0].summary
    assert any("defaultCpuSet 0,8-15" in evidence.shows for evidence in result.findings[0].evidence)
    assert judge(numa_node(gpus=(1, 1), shared="0,8-15"), TOPOLOGY).status is Status.PASS


def test_gpus_that_tell_no_numa_node() -> None:
    result = judge(numa_node(gpus=(-1, 0)), TOPOLOGY)
    assert result.status is Status.WARN and "1 of 2 GPUs tell no NUMA node" in result.findings[0].summary


def test_pods_that_were_refused() -> None:
    message = "Resources cannot be allocated with Topology locality"
    line = f'"Pod admission denied" pod="lab/train" reason="TopologyAffinityError" message="{message}"'
    node = numa_node()
    argv = (*JOURNALCTL, "-u", "kubelet.service")
    node.commands[argv] = CommandOutput(
        argv, 0, f"-- Boot --\n2026-11-29T12:00:00+0000 n1 kubelet[1000]: I1129 {line}\n"
    )
    result = judge(node, TOPOLOGY)
    assert result.status is Status.WARN and "were refused" in result.findings[0].summary
    assert "lab/train" in result.findings[0].evidence[0].shows


def test_states_that_cannot_be_read() -> None:
    node = numa_node()
    node.tree.put(f"{KUBELET}/cpu_manager_state", Record(error="EACCES"))
    assert judge(node, TOPOLOGY).why == Why.NO_PERMISSION
    node = numa_node()
    node.text(f"{KUBELET}/cpu_manager_state", '{"defaultCpuSet": "0-x"}')
    assert judge(node, TOPOLOGY).why == Why.UNREADABLE
    node = numa_node()
    node.tree.put(f"{KUBELET}/config.yaml", Record(error="EACCES"))
    assert judge(node, TOPOLOGY).why == Why.NO_PERMISSION


@pytest.mark.skipif(not EXCERPTS.is_dir(), reason="needs the corpus")
def test_a_real_state_of_the_cpu_manager() -> None:
    node = numa_node()
    node.text(f"{KUBELET}/cpu_manager_state", (EXCERPTS / "cpu-manager-state-static.json").read_text("utf-8"))
    assert "defaultCpuSet 0,13" in " ".join(one.shows for one in judge(node, TOPOLOGY).findings[0].evidence)


def test_lists_of_cpus() -> None:
    assert cpu_list("0-3,8\n") == frozenset({0, 1, 2, 3, 8}) and cpu_list("") == frozenset()
    assert cpu_list("0-") is None and cpu_list("0-99999999") is None
    assert cpu_words(frozenset({0, 1, 2, 5, 7, 8})) == "0-2,5,7-8"
