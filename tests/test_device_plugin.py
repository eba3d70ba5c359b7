"""The device plugin and pods held against the node: devices, health, replicas, MIG, the plugin's log, and who goes round the plugin."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.device_plugin import shared
from gpudoctor.facts.plugin_log import parse_log
from gpudoctor.facts.raw import Answer, Entry, EntryType, Log
from gpudoctor.report import Finding, Report, Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status, Why
from tests.captures import NOW, crashed
from tests.containerd_node import HEALTHY as HEALTHY_CONTAINERD
from tests.containerd_node import MAIN
from tests.rig_kubernetes import KUBELET, PLUGINS
from tests.test_kubelet import ANSWER, CHECKPOINT, ENGINE, GPUS, OTHER_POD, KubeletNode, checkpoint, unix
from tests.test_rig_kubernetes import ADVERTISED, ALIVE, BYPASS, EXIST, FOUND, HAVE, HEALTHY, REPLICAS, checks
from tests.workload_node import CRI, ID, POD, UID, oci

ONE, STALE, STRATEGY, MAPPING = (
    f"device-plugin.{name}"
    for name in ("one-plugin-per-resource", "stale-resources", "mig-strategy", "mapping-readable")
)
MINE = (FOUND, ONE, STALE, STRATEGY, MAPPING, EXIST, ADVERTISED, HEALTHY, REPLICAS, HAVE, ALIVE, BYPASS)
LOGS = f"/var/log/pods/kube-system_nvidia-device-plugin-daemonset-x7k2p_{OTHER_POD}/nvidia-device-plugin"
VIA = f"PodResources ({KUBELET}/pod-resources/kubelet.sock)"
ADDRESSES = ("0000:01:00.0", "0000:02:00.0")
WAITING = "I1129 10:00:01.1       1 main.go:416] No devices found. Waiting indefinitely.\n"
MIG = ("MIG-0a0b0c0d-1111-2222-3333-444455556660", "MIG-0a0b0c0d-1111-2222-3333-444455556661")
STARTING = 'I1129 10:00:00.1       1 main.go:235] "Starting NVIDIA Device Plugin" version="v0.17.1"\n'
STARTED = f"{STARTING}I1129 10:00:00.2       1 main.go:245] Starting Plugins.\n"
RUNNING = (
    f"{STARTED}I1129 10:00:01.0       1 server.go:146] Registered device plugin for 'nvidia.com/gpu' with Kubelet\n"
)


def config(strategy: str = "none", sharing: Mapping[str, Any] | None = None) -> str:
    """What the plugin says it runs with."""
    said = {"version": "v1", "flags": {"migStrategy": strategy}, "sharing": sharing or {}}
    return f"I1129 10:00:00.3       1 main.go:359] \nRunning with config:\n{json.dumps(said, indent=2)}\n"


def cri(text: str) -> str:
    """A log as the kubelet keeps it."""
    return "".join(f"2026-11-29T10:00:00.000000000Z stderr F {line}\n" for line in text.splitlines())


class PluginNode(KubeletNode):
    """Two GPUs with a healthy driver, a plugin in a pod that has registered both, a kubelet that tells so."""

    def __init__(self, *words: str) -> None:
        super().__init__(*words)
        self.known += ["/var/log", "/dev", "/etc", "/sys/devices", "/proc"]
        self.text(
            "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build\n"
        )
        self.text(
            "/proc/driver/nvidia/params",
            "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
        )
        self.text("/proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n508 nvidia-uvm\n\nBlock devices:\n")
        self.text(MAIN, HEALTHY_CONTAINERD)
        self.devices: list[dict[str, Any]] = []
        for number, (address, uuid) in enumerate(zip(ADDRESSES, GPUS, strict=True)):
            place = f"/sys/devices/pci0000:00/{address}"
            self.function(address, place, "nvidia")
            for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200"), ("numa_node", "0")):
                self.text(f"{place}/{name}", f"{value}\n")
            self.text(
                f"/proc/driver/nvidia/gpus/{address}/information",
                f"GPU UUID: \t {uuid}\nBus Location: \t {address}\nDevice Minor: \t {number}\n",
            )
            self.devices.append(
                {"index": number, "pci_bus_id": f"0000{address}", "uuid": uuid, "minor": number, "fields": {}}
            )
        for name, (major, minor) in {
            "nvidia0": (195, 0),
            "nvidia1": (195, 1),
            "nvidiactl": (195, 255),
            "nvidia-uvm": (508, 0),
        }.items():
            entry = Entry(f"/dev/{name}", EntryType.CHAR, 0o666, 0, 0, major=major, minor=minor)
            self.tree.put(f"/dev/{name}", Record(entry=entry))
        self.nvml()
        self.resources({"nvidia.com/gpu": GPUS})
        self.text(CHECKPOINT, checkpoint())
        self.started_with()
        self.log(RUNNING + config())

    def nvml(self) -> None:
        """What NVML answers, from `devices`."""
        data = {"init": 0, "driver_version": "580.95.05", "count": len(self.devices), "devices": self.devices}
        self.answers["nvml"] = Answer(data)

    def resources(self, allocatable: Mapping[str, Sequence[str]], *pods: tuple[str, str, Sequence[str]]) -> None:
        """What the kubelet tells: devices by resource, and namespace, name and devices of pods with a container main."""
        data = {
            "version": "v1",
            "allocatable": [{"resource": name, "ids": list(ids), "numa": []} for name, ids in allocatable.items()],
            "pods": [
                {
                    "namespace": namespace,
                    "name": name,
                    "containers": [
                        {"name": "main", "devices": [{"resource": "nvidia.com/gpu", "ids": list(ids)}] if ids else []}
                    ],
                }
                for namespace, name, ids in pods
            ],
        }
        self.answers["pod_resources"] = Answer(data, via=VIA)

    def started_with(self, *words: str, environment: Sequence[str] = ()) -> None:
        """The plugin's command line and environment."""
        self.text("/proc/2000/cmdline", "".join(f"{word}\0" for word in ("nvidia-device-plugin", *words)))
        self.text("/proc/2000/environ", "".join(f"{one}\0" for one in ("PATH=/bin", *environment)))

    def log(self, text: str, number: int = 0) -> None:
        """What the plugin said."""
        self.text(f"{LOGS}/{number}.log", cri(text))

    def container(self, *environment: str, nodes: Mapping[str, tuple[int, int]] | None = None, **more: Any) -> None:
        """A container main of the pod lab/trainer."""
        self.process(3000, POD, apart=True)
        self.inside(3000, *environment, nodes=nodes)
        self.known.append("/proc/3000/root/dev")
        self.bundle(ID, oci(*environment, annotations=CRI, nodes=nodes, **more))

    def no_resources(self) -> None:
        """The kubelet was not asked."""
        del self.answers["pod_resources"]

    def unplugged(self) -> None:
        """No plugin runs, and none has left a socket."""
        self.no_process(2000)
        self.unserved()

    def unserved(self) -> None:
        """The plugin has opened no socket."""
        self.table(2000)
        self.tree.put(f"{PLUGINS}/nvidia-gpu.sock", Record(error="ENOENT"))
        self.table(1000, unix("kubelet.sock"))
        self.resources({})


NODES = {"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (508, 0)}


def diagnose(node: PluginNode) -> Report:
    """The whole report."""
    found = run(node.recorded(), Config(), checks(), Selection(), NOW)
    assert not crashed(found)
    return found


def judge(node: PluginNode, check_id: str) -> Result:
    """How one check ends."""
    return diagnose(node).result(check_id)


def alarm(node: PluginNode, check_id: str) -> Finding:
    """The only alarm of a check."""
    alarms = [one for one in judge(node, check_id).findings if one.status in (Status.WARN, Status.FAIL)]
    assert len(alarms) == 1, alarms
    return alarms[0]


def causes(node: PluginNode) -> set[str]:
    """The checks behind the root causes, of those here and the kubelet's."""
    return {
        one.check for one in diagnose(node).root_causes if one.check in MINE or one.check.startswith("device-plugin.")
    }


def shown(finding: Finding) -> str:
    """All that its evidence shows."""
    return "\n".join(f"{one.where}: {one.shows}" for one in finding.evidence)


def test_a_healthy_node_and_one_without_a_kubelet() -> None:
    node = PluginNode()
    node.container("NVIDIA_VISIBLE_DEVICES=void", nodes=NODES)
    node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", [GPUS[0]]))
    found = diagnose(node)
    assert not [one for one in found.root_causes if one.check in MINE]
    passes = {one.check for one in found.results if one.status is Status.PASS} & set(MINE)
    assert passes == set(MINE) - {STRATEGY, REPLICAS}
    node = PluginNode()
    node.no_process(1000)
    assert {diagnose(node).result(check).status for check in MINE} <= {Status.SKIP}


class TestFound:
    """What the plugin found when it started."""

    @pytest.mark.parametrize(
        ("said", "words"),
        [
            ("E1129 10:00:01.0       1 factory.go:112] Incompatible strategy detected auto\n", "ends at its start"),
            (
                f"W1129 10:00:01.0  1 factory.go:107] nvml init failed: ERROR_LIBRARY_NOT_FOUND\n{WAITING}",
                "waits, having found no device: nvml init failed: ERROR_LIBRARY_NOT_FOUND",
            ),
        ],
    )
    def test_nothing(self, said: str, words: str) -> None:
        node = PluginNode()
        node.unserved()
        node.log(STARTED + said)
        finding = alarm(node, FOUND)
        assert words in finding.summary and "/var/log/pods/" in shown(finding)

    def test_only_what_it_said_since_its_last_start_counts(self) -> None:
        node = PluginNode()
        node.log(f"{STARTED}I1129 10:00:01.1 1 main.go:416] No devices found. Waiting indefinitely.\n", 0)
        node.log(RUNNING, 1)
        assert judge(node, FOUND).status is Status.PASS
        node.log(f"{STARTED}I1129 10:00:01.1 1 main.go:416] No devices found. Waiting indefinitely.\n{RUNNING}", 2)
        assert judge(node, FOUND).status is Status.PASS

    def test_the_log_of_a_pod_that_is_gone(self) -> None:
        node = PluginNode()
        node.unplugged()
        node.log(f"{STARTED}E1129 10:00:01.0 1 main.go:173] error starting plugins: unable to load config: x\n")
        assert judge(node, FOUND).status is Status.SKIP
        node.tree.put(f"{KUBELET}/pods/{OTHER_POD}", Record(entry=Entry(f"{KUBELET}/pods/{OTHER_POD}", EntryType.DIR)))
        assert "unable to load config" in alarm(node, FOUND).summary

    def test_a_pod_is_found_behind_the_logs_of_others(self) -> None:
        node = PluginNode()
        node.unplugged()
        node.gone(f"{LOGS}/0.log")
        for number in range(6):
            node.text(f"{LOGS.replace('x7k2p', f'a{number}').replace('0c2d', '0c3d')}/0.log", cri(RUNNING))
        node.log(f"{STARTED}E1129 10:00:01.0 1 main.go:173] error starting plugins: unable to load config: x\n")
        node.tree.put(f"{KUBELET}/pods/{OTHER_POD}", Record(entry=Entry(f"{KUBELET}/pods/{OTHER_POD}", EntryType.DIR)))
        assert "unable to load config" in alarm(node, FOUND).summary

    def test_a_plugin_that_is_gone_serves_nothing(self) -> None:
        """The log of its last start tells what it did then."""
        node = PluginNode()
        node.unplugged()
        node.log(
            f"{STARTED}I1129 10:00:01.0 1 server.go:142] Starting to serve 'nvidia.com/gpu' on /x/nvidia-gpu.sock\n"
        )
        node.tree.put(f"{KUBELET}/pods/{OTHER_POD}", Record(entry=Entry(f"{KUBELET}/pods/{OTHER_POD}", EntryType.DIR)))
        assert judge(node, FOUND).status is Status.SKIP

    def test_the_remedy_is_for_the_engine_of_the_kubelet(self) -> None:
        node = PluginNode("--container-runtime-endpoint=unix:///run/crio/crio.sock")
        node.daemon(901, "crio", "/usr/bin/crio")
        node.unserved()
        node.log(STARTED + WAITING)
        step = alarm(node, FOUND).remedies[0]
        assert "systemctl restart crio" in step.run and not any("containerd" in one for one in step.run)
        node = PluginNode()
        node.unserved()
        node.log(STARTED + WAITING)
        assert "systemctl restart containerd" in alarm(node, FOUND).remedies[0].run

    def test_a_service_that_ends_at_each_start(self) -> None:
        node = PluginNode()
        node.unplugged()
        node.gone(LOGS)
        node.text(CHECKPOINT, checkpoint(resources={}))
        assert judge(node, FOUND).status is Status.SKIP
        node.text("/etc/systemd/system/nvidia-device-plugin.service", "[Service]\n")
        recorded = node.recorded()
        said = f"{STARTED}E1129 10:00:01.0 1 main.go:173] error starting plugins: unable to validate flags: x\n"
        name = "journal/nvidia-device-plugin.service.log"
        recorded.logs[name] = Log(name, said, source="journal")
        result = run(recorded, Config(), checks(), Selection(), NOW).result(FOUND)
        assert "unable to validate flags" in result.findings[0].summary

    def test_forms_of_logs(self) -> None:
        docker = json.dumps({"log": "Starting Plugins.\n", "stream": "stderr", "time": "2026-11-29T10:00:00Z"})
        nothing = json.dumps({"log": "No devices found. Waiting indefinitely.\n", "time": "2026-11-29T10:00:01Z"})
        known = parse_log("f", f'{docker}\n{nothing}\n{{"log": broken\n')
        assert known.found_nothing is not None and known.found_nothing.at == "2026-11-29T10:00:01Z"
        parts = (
            "2026-11-29T10:00:00Z stderr P No devices found. \n2026-11-29T10:00:00Z stderr F Waiting indefinitely.\n"
        )
        assert parse_log("f", parts).found_nothing is not None
        journal = (
            "2026-11-29T10:00:00+0000 n1 nvidia-device-plugin[443]: I1129 10:00:00.1 443 x.go:1] Starting Plugins.\n"
        )
        assert parse_log(
            "f", journal + journal.replace("Starting Plugins", "No devices found. Waiting indefinitely")
        ).found_nothing
        assert parse_log("f", 'Running with config:\n{\n"flags": [\n').config is None

    def test_the_plugin_as_a_service_speaks_to_the_journal(self) -> None:
        node = PluginNode()
        node.process(2000, "/system.slice/nvidia-device-plugin.service", comm="nvidia-device-p", started=11_000)
        assert judge(node, HEALTHY).status is Status.PASS
        said = Log(
            "journal/nvidia-device-plugin.service.log", f"{RUNNING}x Xid=79 on Device={GPUS[1]}; marking device\n"
        )
        recorded = node.recorded()
        recorded.logs[said.name] = said
        result = run(recorded, Config(), checks(), Selection(), NOW).result(HEALTHY)
        assert result.status is Status.WARN and "for Xid 79" in " ".join(one.summary for one in result.findings)


class TestDevices:
    """What is advertised against the GPUs."""

    def test_a_uuid_that_no_longer_exists(self) -> None:
        node = PluginNode()
        gone = "GPU-deadbeef-0000-1111-2222-333344445555"
        node.resources({"nvidia.com/gpu": (GPUS[0], gone)})
        finding = alarm(node, EXIST)
        assert "1 of 2 advertised devices no longer exist" in finding.summary and gone in shown(finding)
        assert causes(node) == {EXIST, ADVERTISED}

    def test_a_gpu_that_tells_no_uuid_may_be_the_one(self) -> None:
        node = PluginNode()
        node.devices[1]["uuid"] = ""
        node.nvml()
        node.text(
            f"/proc/driver/nvidia/gpus/{ADDRESSES[1]}/information", "Device Minor: \t 1\nGPU UUID: \t GPU-????????\n"
        )
        result = judge(node, EXIST)
        assert result.why == Why.NOT_ANSWERED and result.findings[0].subject.key == ADDRESSES[1]

    def test_ids_of_other_plugins(self) -> None:
        node = PluginNode()
        node.resources({"nvidia.com/GA102GL_A10": ("0000:41:00.0",)})
        assert judge(node, EXIST).status is Status.SKIP
        node.resources({"nvidia.com/gpu": ("nvidia0", "nvidia1")})
        assert judge(node, ADVERTISED).status is Status.PASS

    def test_by_the_kubelets_record_where_it_was_not_asked(self) -> None:
        node = PluginNode()
        node.no_resources()
        assert judge(node, ADVERTISED).status is Status.PASS
        node.text(CHECKPOINT, checkpoint(resources={"nvidia.com/gpu": (GPUS[0],)}))
        assert alarm(node, ADVERTISED).subject.key == ADDRESSES[1]
        node.unplugged()
        node.no_resources()
        assert judge(node, ADVERTISED).status is Status.SKIP, "a record proves no life"

    def test_left_out_on_purpose(self) -> None:
        node = PluginNode()
        node.resources({"nvidia.com/gpu": (GPUS[0],)})
        node.started_with(environment=("NVIDIA_VISIBLE_DEVICES=0",))
        found = judge(node, ADVERTISED).findings
        assert [one.status for one in found] == [Status.PASS, Status.SKIP] and "may see only some" in found[1].summary
        node.started_with(environment=("NVIDIA_VISIBLE_DEVICES=void",))
        assert judge(node, ADVERTISED).status is Status.UNKNOWN, "CDI hides what it was started with"
        node.bundle("ab" * 32, oci("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"))
        assert alarm(node, ADVERTISED).subject.key == ADDRESSES[1]
        node.bundle("ab" * 32, oci("NVIDIA_VISIBLE_DEVICES=runtime.nvidia.com/gpu=all"))
        assert alarm(node, ADVERTISED).subject.key == ADDRESSES[1], "a name of CDI that means all"
        node.bundle("ab" * 32, oci("NVIDIA_VISIBLE_DEVICES=runtime.nvidia.com/gpu=0"))
        assert judge(node, ADVERTISED).findings[1].status is Status.SKIP
        node.bundle("ab" * 32, oci("NVIDIA_VISIBLE_DEVICES=all"))
        node.link(f"/sys/devices/pci0000:00/{ADDRESSES[1]}/driver", "../../../bus/pci/drivers/vfio-pci")
        assert not [one for one in judge(node, ADVERTISED).findings if one.status is Status.WARN]

    def test_an_unhealthy_gpu_is_the_cause_of_a_missing_one(self) -> None:
        node = PluginNode()
        node.resources({"nvidia.com/gpu": (GPUS[0],)})
        node.log(
            f"{RUNNING}I1129 10:09:00.1 1 health.go:1] XidCriticalError: Xid=94 on Device={GPUS[1]}; marking device as unhealthy.\n"
        )
        assert causes(node) == {HEALTHY} and "for Xid 94" in alarm(node, HEALTHY).summary
        node.log(f"{RUNNING}I1129 10:09:00.1 1 health.go:1] XidCriticalError: Xid=94 on Device={GPUS[1]}\n{RUNNING}")
        assert causes(node) == {ADVERTISED}, "it was said before the plugins started anew"
        node.log(
            f"{RUNNING}I1129 10:09:00.1 1 health.go:1] Error waiting for event: ERROR_UNKNOWN; Marking all devices as unhealthy\n"
        )
        assert [one.status for one in judge(node, HEALTHY).findings] == [Status.FAIL, Status.FAIL]

    def test_a_gpu_that_is_lost_is_the_cause_of_all(self) -> None:
        node = PluginNode()
        node.devices[1]["error"] = {"code": 15, "call": "nvmlDeviceGetUUID"}
        node.nvml()
        node.resources({"nvidia.com/gpu": (GPUS[0],)}, ("lab", "trainer", [GPUS[1]]))
        node.log(
            f"{RUNNING}I1129 10:09:00.1 1 health.go:1] XidCriticalError: Xid=79 on Device={GPUS[1]}; marking device\n"
        )
        found = diagnose(node)
        assert found.result(HEALTHY).status is Status.WARN and found.result(ALIVE).status is Status.FAIL
        assert "the dead GPU 0000:02:00.0" in alarm(node, ALIVE).summary
        assert not causes(node) and any(one.check == "driver-cuda.nvml-answers" for one in found.root_causes)


class TestReplicas:
    """Shared GPUs."""

    FOUR = tuple(f"{uuid}::{number}" for uuid in GPUS for number in range(4))
    SHARING = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}  # noqa: RUF012

    def test_as_configured(self) -> None:
        node = PluginNode()
        node.resources({"nvidia.com/gpu": self.FOUR})
        node.log(RUNNING + config(sharing=self.SHARING))
        assert judge(node, REPLICAS).status is Status.PASS
        node.log(RUNNING + config(sharing={"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 10}]}}))
        assert "8 replicas instead of 2 times 10, 20" in judge(node, REPLICAS).findings[0].summary

    def test_one_replica_of_an_ill_gpu(self) -> None:
        node = PluginNode()
        node.resources({"nvidia.com/gpu": tuple(one for one in self.FOUR if one != f"{GPUS[1]}::2")})
        finding = alarm(node, REPLICAS)
        assert "lacks ::2" in finding.summary and finding.subject.key == "nvidia.com/gpu"
        node.log(
            f"{RUNNING}I1129 10:09:00.1 1 health.go:1] XidCriticalError: Xid=48 on Device={GPUS[1]}::2; marking device as unhealthy.\n"
        )
        assert causes(node) == {HEALTHY}

    def test_configured_and_not_shared(self) -> None:
        node = PluginNode()
        node.log(RUNNING)
        node.started_with(environment=("CONFIG_FILE=/config/config.yaml",))
        text = "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 2\n"
        node.text("/proc/2000/root/config/config.yaml", text)
        assert "is to be advertised 2 times" in alarm(node, REPLICAS).summary

    def test_names_of_shared_resources(self) -> None:
        way = {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 3, "devices": [0]}, 7]}
        assert list(shared({"sharing": {"timeSlicing": way}})) == [("nvidia.com/gpu.shared", 3, False)]
        assert not list(shared({"sharing": None})) and not list(shared({}))


class TestMig:
    """MIG layouts and strategies."""

    def node(self, strategy: str, *layout: Sequence[str] | None) -> PluginNode:
        """Profiles by GPU, None for one without MIG mode."""
        node = PluginNode()
        uuids = iter(MIG)
        for device, profiles in zip(node.devices, layout, strict=True):
            device["fields"] = {"mig.current": profiles is not None}
            device["mig_devices"] = [{"uuid": next(uuids), "profile": profile} for profile in profiles or ()]
        node.nvml()
        node.log(RUNNING + config(strategy))
        made = [one["uuid"] for device in node.devices for one in device["mig_devices"]]
        node.resources({"nvidia.com/gpu": made or GPUS})
        return node

    def test_layouts_that_fit(self) -> None:
        assert judge(self.node("single", ["1g.10gb"], ["1g.10gb"]), STRATEGY).status is Status.PASS
        assert judge(self.node("mixed", ["1g.10gb"], ["2g.20gb"]), STRATEGY).status is Status.PASS
        assert judge(self.node("mixed", ["1g.10gb"], None), STRATEGY).status is Status.PASS
        assert judge(self.node("single", None, None), STRATEGY).status is Status.SKIP

    @pytest.mark.parametrize(
        ("strategy", "layout", "words"),
        [
            ("single", (["1g.10gb"], ["2g.20gb"]), "instances of one profile everywhere: profiles 1g.10gb, 2g.20gb"),
            ("single", (["1g.10gb"], None), "wants all GPUs in MIG mode: 0000:02:00.0 is not"),
            ("single", (["1g.10gb"], []), "0000:02:00.0 in MIG mode without instances"),
            ("none", (["1g.10gb"], None), "advertises 0000:01:00.0 in MIG mode as whole GPUs"),
            ("mixed", (["1g.10gb"], []), "in MIG mode without instances: nothing of it is advertised"),
        ],
    )
    def test_layouts_that_do_not(self, strategy: str, layout: Sequence[Any], words: str) -> None:
        finding = alarm(self.node(strategy, *layout), STRATEGY)
        assert words in finding.summary and (strategy in shown(finding))

    def test_the_strategy_by_option_environment_and_by_what_it_does(self) -> None:
        node = self.node("none", ["1g.10gb"], None)
        node.log(RUNNING)
        node.started_with("--mig-strategy=mixed", environment=("MIG_STRATEGY=single",))
        assert judge(node, STRATEGY).status is Status.PASS
        node.started_with("-mig-strategy=mixed")
        assert judge(node, STRATEGY).status is Status.PASS
        # The value is a word of its own, of which nothing is kept.
        node.started_with("--mig-strategy", "mixed")
        assert judge(node, STRATEGY).status is Status.SKIP
        node.started_with("--config-file", "/config.yaml")
        assert judge(node, STRATEGY).status is Status.SKIP
        node.started_with(environment=("MIG_STRATEGY=single",))
        assert "MIG_STRATEGY=single" in shown(alarm(node, STRATEGY))
        node.tree.put("/proc/2000/environ", Record(error="EACCES"))
        assert judge(node, STRATEGY).status is Status.SKIP
        node.resources({"nvidia.com/gpu": GPUS})
        assert "as whole GPUs" in alarm(node, STRATEGY).summary

    def test_instances_made_anew(self) -> None:
        node = self.node("single", ["1g.10gb"], ["1g.10gb"])
        node.resources({"nvidia.com/gpu": (MIG[0], "MIG-ffffffff-1111-2222-3333-444455556661")})
        assert "advertised MIG devices no longer exist" in alarm(node, EXIST).summary
        assert "of its MIG devices" in alarm(node, ADVERTISED).summary


class TestPlugins:
    """Two plugins, and resources that none serves."""

    def test_two_for_one_resource(self) -> None:
        node = PluginNode()
        node.process(2001, "/system.slice/other.service", comm="nvidia-device-p", apart=True, started=12_000)
        node.table(2001, unix("nvidia-gpu.sock"))
        # In one network namespace, as the host's, each seems to listen where the other does.
        assert judge(node, ONE).status is Status.PASS
        node.table(2001, unix("nvidia-gpu.sock", inode=340999))
        finding = alarm(node, ONE)
        assert "2 device plugins serve nvidia.com/gpu" in finding.summary and "pid 2001" in shown(finding)
        node.table(2001, unix("nvidia-mig-1g.10gb.sock"))
        assert judge(node, ONE).status is Status.PASS
        node.tree.put("/proc/2001/net/unix", Record(error="EACCES"))
        assert judge(node, ONE).why == Why.NO_PERMISSION

    def test_a_resource_that_nobody_serves_any_more(self) -> None:
        node = PluginNode()
        old = {"nvidia.com/gpu": GPUS, "nvidia.com/mig-1g.10gb": ()}
        node.text(CHECKPOINT, checkpoint(resources=old))
        assert alarm(node, STALE).subject.key == "nvidia.com/mig-1g.10gb"
        node.socket("kubevirt-mig-1g.10gb.sock")
        assert judge(node, STALE).status is Status.PASS
        node.unplugged()
        assert judge(node, STALE).status is Status.SKIP


class TestOthers:
    """What looks like a fault of NVIDIA's plugin and is none."""

    def test_a_plugin_on_a_node_without_gpus(self) -> None:
        """A DaemonSet without a selector: it says that it found nothing, and waits."""
        node = PluginNode()
        node.log("Starting Plugins.\nNo devices found. Waiting indefinitely.\n")
        node.text(CHECKPOINT, checkpoint(resources={}))
        node.unserved()
        assert FOUND in causes(node)
        for address in ADDRESSES:
            for path in [one for one in node.tree.records if address in one]:
                del node.tree.records[path]
        node.known.append("/sys/bus/pci/devices")
        found = diagnose(node)
        said = {one.check for one in found.results if one.status in (Status.FAIL, Status.WARN)}
        assert not said & {*MINE, "device-plugin.registered"}

    @pytest.mark.parametrize("old_place", [True, False], ids=["device-plugins", "plugins-registry"])
    def test_network_cards_beside_gpus_and_alone(self, old_place: bool) -> None:
        """The Network Operator's resources are NVIDIA's too."""
        for alone in (False, True):
            node = PluginNode()
            if old_place:
                node.socket("nvidia.com_hostdev.sock")
            else:
                node.text(f"{KUBELET}/plugins_registry/nvidia.com_hostdev.sock", "")
            cards = {"nvidia.com/hostdev": ("0000:3b:00.2", "0000:3b:00.3")}
            if alone:
                node.unplugged()
                node.table(1000, ENGINE, unix("kubelet.sock"), unix("1", folder=f"{KUBELET}/pod-resources"))
                node.known.append(PLUGINS)
            given = cards if alone else cards | {"nvidia.com/gpu": GPUS}
            node.text(CHECKPOINT, checkpoint(resources=given))
            node.no_resources()
            found = diagnose(node)
            alarms = [one for one in found.results if one.status in (Status.FAIL, Status.WARN)]
            assert not {one.check for one in alarms} & {
                *set(MINE) - {MAPPING},
                "device-plugin.registered",
                "device-plugin.socket-alive",
            }

    def test_parts_of_gpus_that_hami_hands_out(self) -> None:
        """Its scheduler chooses the GPU, whatever the kubelet notes."""
        node = PluginNode()
        parts = [f"{uuid}-{number}" for uuid in GPUS for number in range(10)]
        node.container("NVIDIA_VISIBLE_DEVICES=void", nodes=NODES)
        node.resources({"nvidia.com/gpu": parts}, ("lab", "trainer", [f"{GPUS[1]}-3"]))
        found = diagnose(node)
        alarms = [one.check for one in found.results if one.status in (Status.FAIL, Status.WARN)]
        assert not set(alarms) & set(MINE)

    def test_mig_devices_while_nvml_is_not_read(self) -> None:
        """Which MIG devices there are only NVML tells."""
        node = PluginNode()
        mig = [f"MIG-0a0b0c0d-1111-2222-3333-44445555777{number}" for number in range(2)]
        node.resources({"nvidia.com/gpu": GPUS[:1], "nvidia.com/mig-3g.40gb": mig})
        del node.answers["nvml"]
        found = diagnose(node)
        alarms = [one.check for one in found.results if one.status in (Status.FAIL, Status.WARN)]
        assert not set(alarms) & set(MINE)
        assert found.result(STRATEGY).status is not Status.SKIP


class TestMapping:
    """Who can ask which pod has which GPU."""

    def exporter(self, *environment: str, socket: bool) -> PluginNode:
        node = PluginNode()
        group = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{'ef' * 32}.scope"
        node.process(4000, group, comm="dcgm-exporter", apart=True)
        node.bundle("ef" * 32, oci(annotations={**CRI, "io.kubernetes.cri.sandbox-name": "dcgm-exporter-x7"}))
        node.text("/proc/4000/environ", "".join(f"{one}\0" for one in environment))
        node.text("/proc/4000/cmdline", "dcgm-exporter\0")
        folder = "/proc/4000/root/var/lib/kubelet/pod-resources"
        node.tree.put(folder, Record(entry=Entry(folder, EntryType.DIR)))
        node.known.append(folder)
        if socket:
            node.tree.put(f"{folder}/kubelet.sock", Record(entry=Entry(f"{folder}/kubelet.sock", EntryType.SOCKET)))
        return node

    def test_an_exporter_that_sees_another_directory(self) -> None:
        told = "DCGM_EXPORTER_KUBERNETES=true"
        finding = alarm(self.exporter(told, socket=False), MAPPING)
        assert "its metrics name no pod" in finding.summary and "holds no kubelet.sock" in shown(finding)
        assert judge(self.exporter(told, socket=True), MAPPING).status is Status.PASS
        assert judge(self.exporter(socket=False), MAPPING).status is Status.PASS, "it does not map pods"

    def test_a_kubelet_that_does_not_tell(self) -> None:
        node = PluginNode()
        node.no_resources()
        assert "does not listen where it tells" in alarm(node, MAPPING).summary
        node.table(1000, unix("kubelet.sock"), unix("123.sock", folder=f"{KUBELET}/pod-resources"))
        assert judge(node, MAPPING).why == Why.NOT_RECORDED


class TestPods:
    """Pods against what they were given."""

    def test_a_container_without_the_node_of_its_gpu(self) -> None:
        node = PluginNode()
        node.container(nodes=None)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", [GPUS[1]]))
        finding = alarm(node, HAVE)
        assert finding.subject.key == "lab/trainer" and "container main has no /dev/nvidia1" in finding.summary
        assert "kubectl -n lab delete pod trainer" in str(finding.remedies)

    def test_by_the_kubelets_record(self) -> None:
        node = PluginNode()
        node.no_resources()
        node.text(
            CHECKPOINT,
            checkpoint((UID, "main", {"0": [GPUS[0]]}), (UID.replace("7b1f", "7b2f"), "ended", {"0": [GPUS[1]]})),
        )
        node.container(nodes=NODES)
        result = judge(node, HAVE)
        assert result.status is Status.PASS and len(result.findings) == 1

    def test_devices_named_by_mounts_that_the_toolkit_does_not_take(self) -> None:
        import base64

        path = b"/var/run/nvidia-container-devices/GPU-0000"
        mount = b"\x0a" + bytes([len(path)]) + path
        answer = base64.b64encode(b"\x12" + bytes([len(mount)]) + mount).decode()
        node = PluginNode()
        node.text(CHECKPOINT, checkpoint((UID, "main", {"0": [GPUS[0]]})).replace(ANSWER, answer))
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", [GPUS[0]]))
        assert judge(node, HAVE).status is Status.SKIP
        node.text(
            "/etc/nvidia-container-runtime/config.toml", "accept-nvidia-visible-devices-as-volume-mounts = false\n"
        )
        assert "named by mounts" in alarm(node, HAVE).summary

    def test_a_pod_that_takes_a_gpu_by_itself(self) -> None:
        node = PluginNode()
        node.container("NVIDIA_VISIBLE_DEVICES=0", nodes=NODES)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()), ("lab", "owner", [GPUS[0]]))
        finding = alarm(node, BYPASS)
        assert "which the kubelet gave to lab/owner" in finding.summary and "NVIDIA_VISIBLE_DEVICES=0" in shown(finding)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "owner", [GPUS[0]]))
        assert judge(node, BYPASS).status is Status.PASS, "the kubelet's answer is older than the pod"

    def test_a_pod_whose_gift_was_forgotten(self) -> None:
        node = PluginNode()
        node.container(f"NVIDIA_VISIBLE_DEVICES={GPUS[0]}", nodes=NODES)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()))
        assert "the kubelet has no record of it, which may give it to another pod" in alarm(node, HAVE).summary
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()), ("lab", "owner", [GPUS[0]]))
        finding = alarm(node, HAVE)
        assert finding.subject.key == "lab/trainer" and "which the kubelet gave to lab/owner" in finding.summary
        assert judge(node, BYPASS).status is Status.PASS
        node.container(nodes=NODES)
        assert "by CDI" in alarm(node, HAVE).summary

    def test_a_gpu_by_a_claim_of_which_the_kubelet_does_not_tell(self) -> None:
        """Kubelets before 1.34 tell of no claim, and the record has none at all: their gifts come by CDI too."""
        node = PluginNode()
        node.container("NVIDIA_VISIBLE_DEVICES=void", nodes=NODES)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()), ("lab", "other", ()))
        assert "by CDI" in alarm(node, HAVE).summary
        node.text(f"{KUBELET}/plugins_registry/gpu.nvidia.com-reg.sock", "")
        for told in (True, False):
            found = diagnose(node)
            assert (found.result(BYPASS).status, found.result(HAVE).status) == (Status.PASS, Status.SKIP), told
            node.answers.pop("pod_resources", None)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()), ("lab", "other", ()))
        device = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-1"}
        said = node.answers["pod_resources"].data["pods"][1]["containers"][0]
        said["claims"] = [{"namespace": "lab", "name": "one", "devices": [device]}]
        assert "by CDI" in alarm(node, HAVE).summary, "this kubelet tells of claims"

    def test_a_claim_that_the_scheduler_makes_for_who_asks_for_a_resource(self) -> None:
        """Since Kubernetes 1.36 nvidia.com/gpu may be a DeviceClass of the DRA driver."""
        node = PluginNode()
        node.resources({}, ("lab", "trainer", ()))
        limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}, "name": "main"}
        pod = {"metadata": {"namespace": "lab", "name": "trainer"}, "spec": {"containers": [limits]}}
        node.answers["kubernetes"] = Answer({"pods": [{**pod, "status": {"phase": "Running"}}]}, via="kubectl")
        assert "runs with 0" in alarm(node, HAVE).summary
        device = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-1"}
        said = node.answers["pod_resources"].data["pods"][0]["containers"][0]
        said["claims"] = [{"namespace": "lab", "name": "trainer-extended-resources", "devices": [device]}]
        assert judge(node, HAVE).status is Status.SKIP
        said["claims"][0]["devices"] = [{**device, "driver": "compute-domain.nvidia.com"}]
        assert "runs with 0" in alarm(node, HAVE).summary

    @pytest.mark.parametrize("told", [True, False], ids=["told", "recorded"])
    def test_static_pods_whose_names_begin_alike(self, told: bool) -> None:
        folder = "/var/lib/rancher/rke2/agent"
        node = PluginNode(f"--config-dir={folder}/etc/kubelet.conf.d")
        node.text(f"{folder}/etc/kubelet.conf.d/00-rke2-defaults.conf", f"staticPodPath: {folder}/pod-manifests\n")
        limits = {"limits": {"nvidia.com/gpu": 1}}
        for name, resources in (("web", limits), ("web-canary", {})):
            spec = {"containers": [{"name": "main", "resources": resources}]}
            manifest = {"kind": "Pod", "metadata": {"name": name, "namespace": "lab"}, "spec": spec}
            node.text(f"{folder}/pod-manifests/{name}.yaml", json.dumps(manifest))
        node.text("/proc/sys/kernel/hostname", "a-node-with-a-long-name\n")
        uids = [UID, UID.replace("7b1f", "7b2f")]
        names = ["web-canary-1", "web-a-node-with-a-long-name"]
        for number, (uid, name) in enumerate(zip(uids, names, strict=True)):
            container = f"{number}f" * 32
            group = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{container}.scope"
            node.process(3000 + number, group, apart=True)
            node.inside(3000 + number, nodes=NODES if number else None)
            node.known.append(f"/proc/{3000 + number}/root/dev")
            annotations = {**CRI, "io.kubernetes.cri.sandbox-name": name}
            node.bundle(container, oci(annotations=annotations, nodes=NODES if number else None))
        node.text(CHECKPOINT, checkpoint((uids[1], "main", {"0": [GPUS[0]]})))
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", names[0], ()), ("lab", names[1], [GPUS[0]]))
        if not told:
            node.no_resources()
        assert judge(node, HAVE).status is Status.PASS
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", names[0], ()), ("lab", names[1], ()))
        assert [one.subject.key for one in judge(node, HAVE).findings if "and runs with 0" in one.summary] == [
            f"lab/{names[1]}"
        ]

    def test_the_commands_for_a_manifest_with_a_space_in_its_name(self) -> None:
        """The kubelet reads whatever its name (pkg/kubelet/config/file.go)."""
        node = PluginNode("--pod-manifest-path=/m")
        limits = {"limits": {"nvidia.com/gpu": 1}}
        spec = {"containers": [{"name": "main", "resources": limits}]}
        manifest = {"kind": "Pod", "metadata": {"name": "web", "namespace": "lab"}, "spec": spec}
        node.text("/m/web pod.yaml", json.dumps(manifest))
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "web-n1", ()))
        (step,) = alarm(node, HAVE).remedies
        assert (step.run[0], step.run[-1]) == (
            "mv '/m/web pod.yaml' /root/",
            "mv '/root/web pod.yaml' '/m/web pod.yaml'",
        )

    def test_a_manifest_that_asks_for_no_number_asks_for_nothing(self) -> None:
        node = PluginNode("--pod-manifest-path=/m")
        for number in ("9" * 5000, "\u0663", "-1", "1.5", "0"):
            limits = {"limits": {"nvidia.com/gpu": number}}
            spec = {"containers": [{"name": "main", "resources": limits}]}
            node.text("/m/web.yaml", json.dumps({"kind": "Pod", "metadata": {"name": "web"}, "spec": spec}))
            assert judge(node, HAVE).status is Status.SKIP, number[:9]

    def test_what_a_pod_has_cannot_be_seen(self) -> None:
        node = PluginNode()
        node.container("NVIDIA_VISIBLE_DEVICES=0", nodes=NODES)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()))
        for path in [one for one in node.tree.records if one.startswith("/proc/3000/root/dev")]:
            node.tree.put(path, Record(error="EACCES"))
        result = judge(node, BYPASS)
        assert (result.status, result.why) == (Status.UNKNOWN, Why.NO_PERMISSION)

    def test_a_gpu_that_nvml_does_not_list_is_not_said_to_live(self) -> None:
        node = PluginNode()
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", [GPUS[1]]), ("lab", "other", [GPUS[0]]))
        node.devices.pop()
        node.nvml()
        found = {one.subject.key: one for one in judge(node, ALIVE).findings}
        assert found["lab/other"].status is Status.PASS
        assert found["lab/trainer"].status is Status.UNKNOWN and "does not list" in found["lab/trainer"].summary

    def test_a_gift_of_somebody_elses_plugin(self) -> None:
        node = PluginNode()
        node.container(f"NVIDIA_VISIBLE_DEVICES={GPUS[0]}", nodes=NODES)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()))
        said = node.answers["pod_resources"].data["pods"][0]["containers"][0]
        said["devices"] = [{"resource": "aliyun.com/gpu-mem", "ids": ["a-_-1"]}]
        found = diagnose(node)
        assert found.result(BYPASS).status is Status.PASS and found.result(HAVE).status is Status.SKIP

    def test_what_the_api_server_says_that_pods_ask_for(self) -> None:
        node = PluginNode()
        node.resources({"nvidia.com/gpu.shared": [f"{GPUS[0]}::0"]}, ("lab", "trainer", ()))
        limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}, "name": "main"}
        pods = [
            {
                "metadata": {"namespace": "lab", "name": name},
                "spec": {"containers": [limits]},
                "status": {"phase": phase},
            }
            for name, phase in (("trainer", "Running"), ("waiting", "Pending"), ("done", "Succeeded"))
        ]
        node.answers["kubernetes"] = Answer({"pods": pods}, via="kubectl")
        result = {one.subject.key: one for one in judge(node, HAVE).findings}
        assert set(result) == {"lab/trainer", "lab/waiting"}
        assert "asks for 1 nvidia.com/gpu and runs with 0" in result["lab/trainer"].summary
        assert "which this node calls nvidia.com/gpu.shared" in result["lab/waiting"].summary

    def test_privileged_and_watching_pods(self) -> None:
        node = PluginNode()
        node.container(nodes=NODES, privileged=True)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()))
        assert judge(node, BYPASS).status is Status.PASS
        node.devices[0]["processes"] = [{"pid": 3000, "kind": "compute"}]
        node.nvml()
        finding = alarm(node, BYPASS)
        assert "privilege" in finding.summary and "process 3000" in shown(finding)
        node = PluginNode()
        node.container("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=utility", nodes=NODES)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()))
        assert judge(node, BYPASS).status is Status.PASS

    def test_what_recipes_say_is_said_once(self) -> None:
        node = PluginNode()
        node.container("NVIDIA_VISIBLE_DEVICES=all", nodes=NODES)
        node.resources({"nvidia.com/gpu": GPUS}, ("lab", "trainer", ()))
        found = diagnose(node)
        assert found.result(BYPASS).status is Status.WARN
        assert {one.check for one in found.root_causes} & {BYPASS, "workload.recipes-sound"} == {
            "workload.recipes-sound"
        }
