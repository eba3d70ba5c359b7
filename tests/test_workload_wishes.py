"""What workloads want and have: recorded nodes through the facts, and what of it can be given away."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.gpu_workloads import GpuWorkloads
from gpudoctor.facts.mounts import parse_mounts
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.raw import Absent, Entry, EntryType, TextFile
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.sources.recorded import Record
from gpudoctor.sources.redaction import redact
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.verdicts import Unread
from tests.workload_node import CRI, GPU, ID, KEY, MOUNTINFO, NODES, POD, TASKS, WorkloadNode, oci, wishes_of

# what it wants ------------------------------------------------------------------------------------------------------


def _container(*environment: str, config: dict[str, Any] | None = None, **inside: Any) -> WorkloadNode:
    node = WorkloadNode()
    node.process(702, POD, apart=True)
    node.inside(702, *environment, **inside)
    node.bundle(ID, oci() if config is None else config)
    return node


def test_void_with_nodes_in_the_configuration_is_a_container_that_asked() -> None:
    """In CDI mode a container that holds a GPU shows void."""
    config = oci(
        f"NVIDIA_VISIBLE_DEVICES={GPU}",
        "NVIDIA_VISIBLE_DEVICES=void",
        nodes=NODES,
        hooks={"createContainer": ["/usr/bin/nvidia-cdi-hook"]},
    )
    found = _container("NVIDIA_VISIBLE_DEVICES=void", config=config, nodes=NODES).concerned(KEY)
    assert wishes_of(found) == [("engine", ("/dev/nvidia0", "/dev/nvidiactl")), ("environment", (GPU,))]
    assert (found.asked, found.has_gpu) == (True, True)
    assert isinstance(found.workload.config, OciConfig) and found.workload.config.edited


@pytest.mark.parametrize("value", ["void", "none", ""])
def test_void_alone_asks_for_nothing(value: str) -> None:
    node = _container(f"NVIDIA_VISIBLE_DEVICES={value}", config=oci(f"NVIDIA_VISIBLE_DEVICES={value}"))
    node.absent("/proc/702/root/dev/nvidiactl")
    assert node.get(GpuWorkloads).members == ()


def test_images_variable_alone_is_a_wish_that_nobody_fulfilled() -> None:
    node = _container("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=12.8")
    node.absent("/proc/702/root/dev/nvidiactl")
    found = node.concerned(KEY)
    assert (wishes_of(found), found.asked, found.only_image, found.has_gpu) == (
        [("image", ("all",))],
        False,
        True,
        False,
    )
    assert found.cite("image")[0].where == "/proc/702/environ"
    assert found.wishes.variable("NVIDIA_REQUIRE_CUDA") == "cuda>=12.8"


@pytest.mark.parametrize(
    "value", [GPU, "0,3", "0:1", f"{GPU},MIG-9f1c2e33-aaaa-bbbb-cccc-1234567890ab", "nvidia.com/gpu=0"]
)
def test_named_gpus_are_somebodys_wish(value: str) -> None:
    found = _container(f"NVIDIA_VISIBLE_DEVICES={value}").concerned(KEY)
    assert wishes_of(found) == [("environment", tuple(value.split(",")))]
    assert found.asked


def test_device_plugins_mounts_are_the_schedulers_wish() -> None:
    mount = f"/var/run/nvidia-container-devices/{GPU}"
    assert wishes_of(_container(config=oci(mounts=[mount])).concerned(KEY)) == [("scheduler", (GPU,))]
    by_cdi = oci(mounts=["/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/0"])
    assert wishes_of(_container(config=by_cdi).concerned(KEY)) == [("scheduler", ("nvidia.com/gpu=0",))]
    line = f"95 90 0:5 /null /run/nvidia-container-devices/{GPU} rw,nosuid - devtmpfs devtmpfs rw\n"
    assert wishes_of(_container(mountinfo=MOUNTINFO + line).concerned(KEY)) == [("scheduler", (GPU,))]


def test_annotation_for_cdi_is_the_engines_wish_even_if_nothing_came_of_it() -> None:
    node = _container(config=oci(annotations={**CRI, "cdi.k8s.io/nvidia-device-plugin_x": f"nvidia.com/gpu={GPU}"}))
    node.absent("/proc/702/root/dev/nvidiactl")
    found = node.concerned(KEY)
    assert (wishes_of(found), found.has_gpu) == ([("engine", (f"nvidia.com/gpu={GPU}",))], False)


def test_privileged_container_was_given_every_device_and_asked_for_none() -> None:
    config = oci(nodes={**NODES, "kvm": (10, 232)}, privileged=True)
    found = _container(config=config, nodes=NODES).concerned(KEY)
    assert (wishes_of(found), found.asked, found.has_gpu) == ([], False, True)


def test_whole_dev_of_the_host_is_nobodys_wish() -> None:
    """As an LXC container without any file left to read."""
    node = WorkloadNode()
    node.process(702, "/lxc.payload.web/init.scope", apart=True)
    node.inside(702, nodes=NODES, mountinfo="90 80 0:5 / /dev rw,nosuid - devtmpfs udev rw\n")
    assert wishes_of(node.concerned("lxc:web")) == []
    node.inside(702, nodes=NODES)
    assert wishes_of(node.concerned("lxc:web")) == [("engine", ("/dev/nvidia0", "/dev/nvidiactl"))]


def test_variables_of_others_are_not_read() -> None:
    node = _container(
        "AWS_SECRET=hush", "NVIDIA_VISIBLE_DEVICES=0", "HOME=/root", "LD_LIBRARY_PATH=/opt/lib", "CUDA_VERSION=12.8"
    )
    found = node.concerned(KEY).wishes.variables
    assert not isinstance(found, (Absent, Unread))
    assert [name for name, _ in found.pairs] == ["NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "CUDA_VERSION"]


@pytest.mark.parametrize(("value", "asked"), [("0,1", True), ("", False), ("-1", False), ("NoDevFiles", False)])
def test_cuda_visible_devices_asks_unless_it_hides_all(value: str, asked: bool) -> None:
    node = _container(f"CUDA_VISIBLE_DEVICES={value}")
    node.absent("/proc/702/root/dev/nvidiactl")
    assert [one.asked for one in node.get(GpuWorkloads)] == [True] * asked


# what it has --------------------------------------------------------------------------------------------------------


def test_nodes_say_how_they_came_and_whether_they_can_be_opened() -> None:
    lines = MOUNTINFO + (
        "94 91 0:39 /nvidia0 /dev/nvidia0 rw,nosuid,nodev,noexec - tmpfs devns rw\n"
        "95 90 254:0 /opt/drv/libcuda.so.550.163.01 /usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01 ro,nosuid,nodev - ext4 /dev/vda rw\n"
        "96 90 254:0 /opt/a\\040b/libnvidia-ml.so.550.54.14 /usr/lib/libnvidia-ml.so.1 ro - ext4 /dev/vda rw\n"
    )
    node = _container(config=oci(nodes=NODES), nodes={**NODES, "nvidia3": (195, 7)}, mountinfo=lines)
    node.absent("/proc/702/root/dev/nvidia-uvm")
    devices = node.concerned(KEY).devices
    assert isinstance(devices, Devices)
    zero, control = devices.node("/dev/nvidia0"), devices.node("/dev/nvidiactl")
    assert zero is not None and control is not None
    assert (zero.bound, zero.nodev, control.bound, control.nodev) == (True, True, False, False)
    assert (control.entry.mode, control.entry.uid, control.entry.major, control.entry.minor) == (0o666, 0, 195, 255)
    assert devices.minors == (0, 7)
    assert "/dev/nvidia-uvm" in devices.missing
    assert [(one.name, one.version) for one in devices.libraries] == [
        ("libcuda", "550.163.01"),
        ("libnvidia-ml", "550.54.14"),
    ]
    assert devices.versions == ("550.163.01", "550.54.14")


def test_links_of_a_container_resolve_inside_it() -> None:
    node = _container(nodes={"nvidiactl": (195, 255)})
    node.link("/proc/702/root/dev/nvidia0", "/run/gpus/nvidia5")
    inner = "/proc/702/root/run/gpus/nvidia5"
    node.tree.put(inner, Record(entry=Entry(inner, EntryType.CHAR, major=195, minor=5)))
    node.tree.put("/run/gpus/nvidia5", Record(entry=Entry("/run/gpus/nvidia5", EntryType.CHAR, major=195, minor=9)))
    node.link("/proc/702/root/dev/nvidia1", "../../../../run/gpus/nvidia5")
    devices = node.concerned(KEY).devices
    assert isinstance(devices, Devices) and devices.minors == (5,)


def test_capability_nodes_lie_in_a_folder_of_their_own() -> None:
    node = _container(nodes=NODES)
    for minor in (1, 30):
        path = f"/proc/702/root/dev/nvidia-caps/nvidia-cap{minor}"
        node.tree.put(path, Record(entry=Entry(path, EntryType.CHAR, 0o444, major=237, minor=minor)))
    devices = node.concerned(KEY).devices
    assert isinstance(devices, Devices)
    assert [node.path for node in devices.nodes][2:] == [
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps/nvidia-cap30",
    ]


def test_workload_stands_on_the_gpus_whose_nodes_it_has() -> None:
    node = _container(nodes={"nvidiactl": (195, 255), "nvidia4": (195, 4)}, config=oci(nodes=NODES))
    address = "0000:3a:00.0"
    place = f"/sys/devices/pci0000:00/{address}"
    node.function(address, place, "nvidia")
    for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        node.text(f"{place}/{name}", f"{value}\n")
    node.text(f"/proc/driver/nvidia/gpus/{address}/information", "Device Minor: \t 4\n")
    assert [gpu.key for gpu in node.concerned(KEY).subject.stands_on] == [address]


def test_mounts_of_a_real_gpu_node_in_a_container(corpus: Path) -> None:
    file = corpus / "container-proc" / "gpud-mountinfo-gpu-node.txt"
    mounts = parse_mounts(TextFile("/proc/1/mountinfo", file.read_text()))
    bound = [mount.point for mount in mounts.mounts if mount.point.startswith("/dev/nvidia")]
    assert bound == [f"/dev/nvidia{name}" for name in ("0", "ctl", "-uvm", "-modeset", "-uvm-tools")]
    assert all(not mount.nodev and mount.type == "devtmpfs" for mount in mounts.mounts if mount.point in bound)


# given away ---------------------------------------------------------------------------------------------------------


def test_redacted_recording_names_nobody_and_means_the_same(tmp_path: Path) -> None:
    config = oci(f"NVIDIA_VISIBLE_DEVICES={GPU}", "DB_PASSWORD=hunter2-hunter2", nodes=NODES, annotations=CRI | {
        "io.kubernetes.cri.sandbox-name": "falcon-trainer-0", "io.kubernetes.cri.sandbox-namespace": "team-falcon",
        "io.kubernetes.cri.image-name": "registry.corp.example/falcon:7",
    })  # fmt: skip
    config["process"]["args"] = ["python3", "train.py", "--token=tok-4711-4711", "--host", "falcon-db-3"]
    group = f"0::{POD}\n"
    members = {
        "snapshot.json": json.dumps({"format": 1, "recorded_at": "2026-11-29T12:00:00Z", "uid": 0, "hostname": "n1"}),
        f"root{TASKS}/k8s.io/{ID}/config.json": json.dumps(config),
        "root/proc/1/cgroup": "0::/init.scope\n",
        "root/proc/702/cgroup": group,
        "root/proc/702/environ": f"NVIDIA_VISIBLE_DEVICES={GPU}\0DB_PASSWORD=hunter2-hunter2\0",
        "root/proc/702/mountinfo": MOUNTINFO,
        "entries.jsonl": json.dumps({"path": "/proc/702/root/dev/nvidia0", "type": "char", "major": 195, "minor": 0})
        + "\n",
    }
    redacted = redact({name: text.encode() for name, text in members.items()}, b"salt").members
    told = b"".join(redacted.values()) + "".join(redacted).encode()
    assert not [word for word in ("falcon", "hunter2", "tok-4711", "train.py") if word.encode() in told]
    found = []
    for name, contents in (("raw", {name: text.encode() for name, text in members.items()}), ("redacted", redacted)):
        for member, content in contents.items():
            (tmp_path / name / member).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / member).write_bytes(content)
        desk = Desk(open_snapshot(tmp_path / name), Config())
        concerned = desk.get(GpuWorkloads)
        assert isinstance(concerned, GpuWorkloads)
        (one,) = concerned
        assert one.workload.pod is not None and isinstance(one.devices, Devices)
        found.append(
            (one.workload.key, one.workload.pod.uid, wishes_of(one), one.devices.minors, one.asked, one.has_gpu)
        )
    assert found[0] == found[1]
