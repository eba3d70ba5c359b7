"""The rig's captures of real containers as recorded nodes: what of the node itself they do not hold is put around them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.raw import Answer, CommandOutput
from gpudoctor.report import Report
from tests.captures import diagnose, put_listing
from tests.conftest import SHARED
from tests.workload_node import WorkloadNode

RIG = SHARED / "rig"
TRANSIENT = "/run/systemd/transient"
V1_MOUNTS = (
    "31 23 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "32 31 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"
    "33 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
    "34 31 0:30 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
)
V2_MOUNTS = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
_PROBED = re.compile(r"^(/dev/nvidia\S*) O_RDWR stat=OK \S+ \S+ \S+ open=(\w+)$", re.MULTILINE)
_NEEDED = re.compile(r"/dev/nvidia(?:\d+|ctl|-uvm)")


class RigContainer:
    """One folder. What a runtime was told is kept only in the folder of the container's first capture, its `base`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = folder if folder.name == "ctr-main" else folder.with_name(".".join(folder.name.split(".")[:2]))
        self.info: dict[str, Any] = json.loads(self._text("info.json"))
        self.pid = int(self.info["pid"])

    @property
    def id(self) -> str:
        """As a test is called by it."""
        return str(self.folder.relative_to(RIG))

    @property
    def situation(self) -> str:
        """What was set up, and what was done then: `healthy.after-rules-lost`."""
        return self.folder.name.partition(".")[2]

    @property
    def after(self) -> "RigContainer | None":
        """The same container after a daemon-reload, where this is it before: a hook's rules are added in a capture of their own."""
        name = self.base.name + ".after-daemon-reload"
        later = self.folder.with_name(name)
        hooked = self.folder.with_name(self.base.name + ".hook-added").is_dir()
        before = self.folder.name == self.base.name + (".hook-added" if hooked else "")
        return RigContainer(later) if before and later.is_dir() else None

    def opened(self) -> dict[str, str]:
        """What became of opening, for reading and writing, each node that a program which computes needs."""
        found = dict(_PROBED.findall(self._text("probe_in_cgroup.txt")))
        return {path: outcome for path, outcome in found.items() if _NEEDED.fullmatch(path)}

    def node(self) -> WorkloadNode:
        """The whole node."""
        node = WorkloadNode()
        node.complete.append(TRANSIENT)
        self._put_process(node)
        self._put_bundle(node)
        self._put_rules(node)
        self._put_unit(node)
        return node

    def report(self) -> Report:
        """What gpudoctor says of it."""
        node = self.node().node()
        if service := re.search(r"/system\.slice/([^/]+\.service)/", self._text("proc.cgroup")):
            # A container without a unit of its own lies in that of who started it, an ordinary service.
            argv = ("systemctl", "show", "--property=Id,DevicePolicy,DeviceAllow", service[1])
            node.commands[argv] = CommandOutput(argv, 0, f"DevicePolicy=auto\nId={service[1]}\n")
        return diagnose(node)

    def _text(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8")

    def _put_process(self, node: WorkloadNode) -> None:
        for name in ("cgroup", "mountinfo", "environ", "status", "uid_map"):
            node.text(f"/proc/{self.pid}/{name}", self._text(f"proc.{name}"))
        if not self._is_v1:
            # The machine of containers/v2 had v1 controllers too, which the view that the containers ran in did not show.
            own = [line for line in self._text("proc.cgroup").splitlines(keepends=True) if line.startswith("0::")]
            node.text(f"/proc/{self.pid}/cgroup", "".join(own))
        for name, to in json.loads(self._text("proc.ns.json")).items():
            node.link(f"/proc/{self.pid}/ns/{name}", to)
        put_listing(node, re.sub(" +", " ", self._text("ls_dev.txt")).replace(" 0 0 ", " root root "))
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
            if node.tree.lookup(f"/proc/{self.pid}/root/dev/{name}") is None:
                node.absent(f"/proc/{self.pid}/root/dev/{name}")
        uvm = 244 if self.folder.parent.name.startswith("vm-") else 508
        node.text("/proc/devices", f"Character devices:\n195 nvidia\n{uvm} nvidia-uvm\n\nBlock devices:\n")

    def _put_bundle(self, node: WorkloadNode) -> None:
        """The runtime's state, with the PID that the container has now."""
        state = json.loads((self.base / "runtime-state.json").read_text("utf-8"))
        node.text(f"{state['bundle']}/config.json", (self.base / "oci-config.json").read_text("utf-8"))
        for runtime, file, key in (("runc", "state.json", "init_process_pid"), ("crun", "status", "pid")):
            if (self.base / file).is_file():
                told = json.loads((self.base / file).read_text("utf-8"))
                node.text(f"/run/{runtime}/{state['id']}/{file}", json.dumps({**told, key: self.pid}))

    @property
    def _is_v1(self) -> bool:
        return "devices.list" in self.info

    def _put_rules(self, node: WorkloadNode) -> None:
        node.text("/proc/1/mountinfo", V1_MOUNTS if self._is_v1 else V2_MOUNTS)
        for directory, text in self.info.get("devices.list", {}).items():
            node.text(f"{directory}/devices.list", text)
        programs = {
            number: {"name": program["name"], "tag": program["tag"], "insns": program["xlated_hex"]}
            for number, program in self.info.get("raw", {}).items()
        }
        cgroups = {
            directory: {"effective": found["effective"]["ids"], "attached": found["attached"]["ids"]}
            for directory, found in self.info.get("bpf", {}).items()
        }
        if self._is_v1:
            # No program was attached to the unified hierarchy beside it.
            line = next(line for line in self._text("proc.cgroup").splitlines() if line.startswith("0::"))
            cgroups = {f"/sys/fs/cgroup/unified{line[3:]}".rstrip("/"): {"effective": [], "attached": []}}
        node.answers["cgroup_devices"] = Answer(data={"programs": programs, "cgroups": cgroups}, via="bpf(2)")

    def _put_unit(self, node: WorkloadNode) -> None:
        """systemd's files, which the capture has one behind the other: the unit's own, then its drop-ins."""
        file = next((place for place in (self.folder, self.base) if (place / "systemd-transient.txt").is_file()), None)
        found = re.search(r"/([^/]+\.scope)", self._text("proc.cgroup"))
        if file is None or found is None:
            return
        folder = f"{TRANSIENT}/{found[1]}"
        own, *drop_ins = (file / "systemd-transient.txt").read_text("utf-8").split("# This is a drop-in unit file")
        node.text(folder, own)
        for drop_in in drop_ins:
            setting = re.search(r"^(Device(?:Allow|Policy))=", drop_in, re.MULTILINE)
            if setting is not None:
                node.text(f"{folder}.d/50-{setting[1]}.conf", "# This is a drop-in unit file" + drop_in)


class RigPod(RigContainer):
    """The container of the pod in vm-k8s-v2, whose unit files lie beside its folder, each under its name."""

    @property
    def _container(self) -> str:
        found = re.search(r"cri-containerd-([0-9a-f]{64})\.scope", self._text("proc.cgroup"))
        assert found is not None
        return found[1]

    def _put_bundle(self, node: WorkloadNode) -> None:
        node.bundle(self._container, json.loads((self.folder.parent / "config.json").read_text("utf-8")))

    def _put_unit(self, node: WorkloadNode) -> None:
        name, found = "", dict[str, str]()
        for line in (self.folder.parent / "transient.txt").read_text("utf-8").splitlines(keepends=True):
            if line.startswith("== "):
                name = line[3:].strip()
            else:
                found[name] = found.get(name, "") + line
        unit = f"{TRANSIENT}/cri-containerd-{self._container}.scope"
        node.text(unit, found[unit])
        for setting in ("DeviceAllow", "DevicePolicy"):
            lines = re.findall(rf"^{setting}=.*\n", found[f"{unit}.d"], re.MULTILINE)
            node.text(f"{unit}.d/50-{setting}.conf", "[Scope]\n" + "".join(lines))


def kubernetes_states() -> Iterator[RigContainer]:
    """The pod's container before a daemon-reload, after it, and after the kubelet was restarted."""
    for folder in sorted(RIG.glob("vm-k8s-v2/?-*/ctr-main")):
        yield RigPod(folder)


def rig_containers() -> Iterator[RigContainer]:
    """All folders with a container."""
    for pattern in ("containers/v?/*", "vm-containers-v*/*"):
        for folder in sorted(RIG.glob(pattern)):
            if (folder / "probe_in_cgroup.txt").is_file():
                yield RigContainer(folder)


def needs_rig() -> None:
    """Skip where the captures are not."""
    if not RIG.is_dir():
        pytest.skip("the shared captures are not here")
