"""What can be wrong with a traced container, one thing each: for tests of `gpudoctor trace`."""

from collections.abc import Callable
from typing import Any

from gpudoctor.facts.device_access import Access
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.sources.recorded import Record
from tests.gpu_node import GIVEN, INSIDE, PID
from tests.trace_node import LIBRARIES, NODES, ROOT_MOUNTS, SHM, UUIDS, VERSION, TraceNode
from tests.workload_node import oci

ROOT = f"/proc/{PID}/root"
HOST_MOUNTS = "60 1 8:1 / / rw - ext4 /dev/sda1 rw\n61 60 0:5 / /dev rw,nosuid - devtmpfs udev rw\n"
Change = Callable[[TraceNode], object]


def setting(**fields: Any) -> Change:
    def change(node: TraceNode) -> None:
        for name, value in fields.items():
            setattr(node, name, value)

    return change


def with_variables(*lines: str) -> Change:
    """These variables more; the last of a name counts."""
    return lambda node: node.environment.extend(lines)


def mps(pipes: str, place: str = "") -> Change:
    """A client of a daemon of the host, whose pipes it has mounted; there they lie at a place on the root file system, or below /run."""
    place = place or pipes
    device, root = ("0:24", place.removeprefix("/run")) if place.startswith("/run/") else ("254:0", place)

    def change(node: TraceNode) -> None:
        node.environment.append(f"CUDA_MPS_PIPE_DIRECTORY={pipes}")
        node.mounts.append(f"96 90 {device} {root} {pipes} rw - ext4 /dev/vda rw\n")
        node.process(1410, "/system.slice/nvidia-mps.service", comm="nvidia-cuda-mps")
        node.text("/proc/1410/cmdline", "nvidia-cuda-mps-control\0-f\0")
        node.text("/proc/1410/environ", f"CUDA_MPS_PIPE_DIRECTORY={place}\0CUDA_MPS_LOG_DIRECTORY=/mps-log\0")
        node.text(
            "/proc/1410/mountinfo", "22 1 254:0 / / rw - ext4 /dev/vda rw\n24 22 0:24 / /run rw - tmpfs tmpfs rw\n"
        )
        node.text(
            "/mps-log/control.log", "[2026-11-29 09:00:00.000 Control  1410] Starting control daemon using socket\n"
        )

    return change


def without_libraries(node: TraceNode) -> None:
    node.without(f"{ROOT}{LIBRARIES}")
    node.mounts = [ROOT_MOUNTS, SHM]


def libraries_of(version: str) -> Change:
    def change(node: TraceNode) -> None:
        without_libraries(node)
        node.library(LIBRARIES, "libcuda", version)
        node.library(LIBRARIES, "libnvidia-ml", version)

    return change


def nothing_given(node: TraceNode) -> None:
    """Neither nodes nor rules nor libraries."""
    without_libraries(node)
    node.nodes, node.allowed = {}, ()


def nobody_asked(node: TraceNode) -> None:
    nothing_given(node)
    node.requests, node.environment, node.config = [], ["PATH=/bin"], oci()


def only_utility(node: TraceNode) -> None:
    node.environment = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"]
    node.mounts = [line for line in node.mounts if "libcuda" not in line]
    for name in ("1", VERSION):
        node.without(f"{ROOT}{LIBRARIES}/libcuda.so.{name}")


def compat_first(version: str) -> Change:
    """The package for forward compatibility, first on the path by way of the link that images of CUDA have."""

    def change(node: TraceNode) -> None:
        node.environment.append("LD_LIBRARY_PATH=/usr/local/cuda/compat:/usr/local/nvidia/lib64")
        node.link(f"{ROOT}/usr/local/cuda", "/etc/alternatives/cuda")
        node.link(f"{ROOT}/etc/alternatives/cuda", "/usr/local/cuda-12.4")
        node.library("/usr/local/cuda-12.4/compat", "libcuda", version, mounted=False)

    return change


def stub_first(node: TraceNode) -> None:
    node.environment.append("LD_LIBRARY_PATH=/usr/local/cuda-12.4/lib64/stubs")
    place = f"{ROOT}/usr/local/cuda-12.4/lib64/stubs/libcuda.so"
    node.tree.put(place, Record(entry=Entry(place, EntryType.FILE)))
    node.link(f"{place}.1", "libcuda.so")


def old_driver(node: TraceNode) -> None:
    node.text("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2\n")
    libraries_of("470.256.02")(node)


def on_nodev_mount(node: TraceNode) -> None:
    node.mounts.append("94 91 0:39 /nvidia0 /dev/nvidia0 rw,nosuid,nodev - tmpfs devns rw\n")


def given_by_its_configuration(node: TraceNode) -> None:
    """Nodes and rules stand in what the runtime was told."""
    node.config = oci(nodes=NODES)


def may_only_read(node: TraceNode) -> None:
    node.allowed = tuple(
        rule._replace(access=Access.READ) if (rule.major, rule.minor) == (195, 0) else rule for rule in node.allowed
    )


def held_by_vfio(node: TraceNode) -> None:
    node.function("0000:06:00.0", "/sys/devices/pci0000:00/0000:00:01.1/0000:06:00.0", "vfio-pci")


def asks_for_another_card(node: TraceNode) -> None:
    node.requests = [
        {"Driver": "nvidia", "DeviceIDs": ["GPU-deadbeef-0000-1111-2222-333344445555"], "Capabilities": [["gpu"]]}
    ]


def second_gpu_missing(node: TraceNode) -> None:
    node.requests = [{"Driver": "nvidia", "DeviceIDs": [UUIDS[1]], "Capabilities": [["gpu"]]}]
    node.nodes = INSIDE


def file_for_a_node(node: TraceNode) -> None:
    node.changed(f"{ROOT}/dev/nvidiactl", type=EntryType.FILE, major=None, minor=None)


def mode_of_a_group(node: TraceNode) -> None:
    node.changed(f"{ROOT}/dev/nvidia0", mode=0o660)


NOT_ROOT = setting(uid_line="1000\t1000\t1000\t1000", capabilities="0000000000000000")


class Case:
    """One thing that is wrong: which step is the first broken one, what that says and cites, and what follows from it."""

    def __init__(
        self, step: str, says: str, cites: str, *changes: Change, after: Change | None = None, **follows: str
    ) -> None:
        self.step, self.says, self.cites, self.changes, self.after, self.follows = (
            step,
            says,
            cites,
            changes,
            after,
            follows,
        )

    def node(self) -> TraceNode:
        """The node with just this."""
        node = TraceNode()
        for change in self.changes:
            change(node)
        node.build()
        if self.after is not None:
            self.after(node)
        return node


BROKEN = {
    "uuid-that-is-gone": Case(
        "asked",
        "GPU-deadbeef-0000-1111-2222-333344445555, which this node does not have",
        UUIDS[0],
        asks_for_another_card,
    ),
    "nobody-asked": Case(
        "asked",
        "nobody asked",
        "NVIDIA_VISIBLE_DEVICES is not set",
        nobody_asked,
        nodes="asked",
        rules="asked",
        libraries="asked",
    ),
    "only-the-image-asks": Case(
        "asked",
        "only a variable that images set",
        "NVIDIA_VISIBLE_DEVICES=all",
        nobody_asked,
        with_variables("NVIDIA_VISIBLE_DEVICES=all"),
        nodes="asked",
        rules="asked",
        libraries="asked",
    ),
    "only-a-choice-is-made": Case(
        "asked",
        "CUDA_VISIBLE_DEVICES only chooses among those that are inside",
        "CUDA_VISIBLE_DEVICES=0",
        nobody_asked,
        with_variables("CUDA_VISIBLE_DEVICES=0"),
        nodes="asked",
        rules="asked",
        libraries="asked",
        visible="asked",
    ),
    "gpu-held-by-vfio": Case(
        "host", "kernel-module.gpu-bound: GPU 0000:06:00.0: held by vfio-pci", "drivers/vfio-pci", held_by_vfio
    ),
    "no-nodes": Case(
        "nodes", "none of NVIDIA's device nodes", "does not exist", nothing_given, rules="nodes", libraries="nodes"
    ),
    "no-control-node": Case(
        "nodes",
        "/dev/nvidiactl is not inside",
        f"{ROOT}/dev/nvidiactl",
        setting(nodes={n: v for n, v in NODES.items() if n != "nvidiactl"}),
    ),
    "asked-gpu-missing": Case("nodes", "/dev/nvidia1 is not inside", f"{ROOT}/dev/nvidia1", second_gpu_missing),
    "node-of-another-gpu": Case(
        "nodes",
        "/dev/nvidia0 is 195:5, not 195:0",
        "195:5",
        setting(nodes={**NODES, "nvidia0": (195, 5)}),
        rules="nodes",
    ),
    "old-major-of-uvm": Case(
        "nodes",
        "/dev/nvidia-uvm is 500:0, not 507:0",
        "507 nvidia-uvm",
        setting(nodes={**NODES, "nvidia-uvm": (500, 0)}),
        rules="nodes",
    ),
    "file-for-a-node": Case("nodes", "/dev/nvidiactl is a regular file", "regular file", after=file_for_a_node),
    "nodev-mount": Case("nodes", "/dev/nvidia0 lies on a mount with nodev", "rw,nosuid,nodev", on_nodev_mount),
    "mode-shuts-out": Case(
        "nodes", "mode 0660 of 0:0, which keeps uid 1000 out", "Uid: 1000", NOT_ROOT, after=mode_of_a_group
    ),
    "rules-lost": Case(
        "rules", "may not open /dev/nvidiactl (195:255)", "program #40 denies char 195:255 rw", setting(allowed=())
    ),
    "taken-by-systemd": Case(
        "rules",
        "systemd applied its own list of devices, without them",
        "program sd_devices #41",
        given_by_its_configuration,
        after=lambda node: node.rules(name="sd_devices", like_systemd=True),
    ),
    "uvm-denied": Case(
        "rules",
        "may not open /dev/nvidia-uvm (507:0)",
        "denies char 507:0 rw",
        setting(allowed=(*GIVEN[:2], GIVEN[0]._replace(minor=1))),
    ),
    "may-only-be-read": Case("rules", "it may only be read", "denies char 195:0 rw", may_only_read),
    "libraries-of-another-driver": Case(
        "libraries",
        "libcuda is 550.54.14, the loaded module 580.95.05",
        "-> libcuda.so.550.54.14",
        libraries_of("550.54.14"),
    ),
    "no-libraries": Case("libraries", "no libcuda.so.1", LIBRARIES, without_libraries),
    "stub-first": Case("libraries", "a stub that is made for linking only", "LD_LIBRARY_PATH=", stub_first),
    "compat-older-than-driver": Case(
        "libraries", "older than the driver 580.95.05", "libcuda.so.550.54.15", compat_first("550.54.15")
    ),
    "compat-on-geforce": Case(
        "libraries",
        "GeForce RTX 4090 does not support: CUDA answers 804",
        "GeForce",
        compat_first("615.31"),
        setting(names=["NVIDIA GeForce RTX 4090"] * 2),
    ),
    "driver-too-old": Case(
        "runtime", "CUDA 12.4 needs a driver of 525.60.13 or newer", "CUDA_VERSION=12.4.1", old_driver
    ),
    "host-index": Case(
        "visible",
        "CUDA_VISIBLE_DEVICES=3: 3 names no GPU inside",
        "CUDA_VISIBLE_DEVICES=3",
        with_variables("CUDA_VISIBLE_DEVICES=3"),
    ),
    "all-hidden": Case("visible", "hides every GPU", "CUDA_VISIBLE_DEVICES=", with_variables("CUDA_VISIBLE_DEVICES=")),
    "minus-one": Case(
        "visible", "hides every GPU", "CUDA_VISIBLE_DEVICES=-1", with_variables("CUDA_VISIBLE_DEVICES=-1,0")
    ),
    "foreign-uuid": Case(
        "visible", "GPU-beef names no GPU inside", "GPU-beef", with_variables("CUDA_VISIBLE_DEVICES=GPU-beef")
    ),
    "capabilities-without-compute": Case(
        "capabilities",
        "does not ask for compute",
        "NVIDIA_DRIVER_CAPABILITIES=utility",
        only_utility,
        libraries="capabilities",
    ),
}


WARNED = {
    "small-shm": Case(
        "limits",
        "/dev/shm holds 64 MiB",
        "size=65536k",
        lambda node: node.mounts.__setitem__(1, SHM.replace("8388608k", "65536k")),
    ),
    "list-cut-short": Case("visible", "5 names no GPU inside", "0,5,1", with_variables("CUDA_VISIBLE_DEVICES=0,5,1")),
    "monitor-without-uvm": Case(
        "nodes",
        "/dev/nvidia-uvm is not inside: CUDA cannot start in it",
        "/dev/nvidia-uvm",
        setting(
            requests=[],
            environment=["PATH=/bin"],
            nodes={name: numbers for name, numbers in NODES.items() if name != "nvidia-uvm"},
            config=oci(nodes={name: numbers for name, numbers in NODES.items() if name != "nvidia-uvm"}),
            allowed=(*GIVEN[:2], GIVEN[0]._replace(minor=1)),
        ),
    ),
    "no-utility": Case(
        "capabilities",
        "does not ask for utility",
        "NVIDIA_DRIVER_CAPABILITIES=compute",
        without_libraries,
        lambda node: node.library(LIBRARIES, "libcuda", VERSION),
        with_variables("NVIDIA_DRIVER_CAPABILITIES=compute"),
    ),
    "typing-error": Case(
        "capabilities",
        "knows no 'utilty'",
        "compute,utilty",
        with_variables("NVIDIA_DRIVER_CAPABILITIES=compute,utilty"),
    ),
    "far-cpus": Case("numa", "none of its CPUs is near its GPUs", "Cpus_allowed_list: 64-95", setting(cpus="64-95")),
    "mps-apart": Case("limits", "pipes of MPS", "CUDA_MPS_PIPE_DIRECTORY=/mps", mps("/mps")),
    "lost-at-reload": Case(
        "rules", "at the next daemon-reload", "DevicePolicy=strict", lambda node: node.unit("char-pts rwm")
    ),
    "compat-of-the-same-branch": Case(
        "libraries", "of the driver's own branch", "580.65.06", compat_first("580.65.06")
    ),
}
