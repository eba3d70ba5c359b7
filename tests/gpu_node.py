"""A node with two GPUs and containers on cgroup v2: nodes, rules and units of each as a test wants them."""

from collections.abc import Mapping
from typing import Any

from gpudoctor.facts.device_access import Access, DeviceKind
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Log
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record
from tests.captures import diagnose
from tests.device_shapes import ALL, RW, Rule, runc, systemd
from tests.rig_containers import TRANSIENT, V2_MOUNTS
from tests.small_node import COMPLETE, SmallNode
from tests.workload_node import DOCKER, MOUNTINFO, WorkloadNode

PID = 702
WHOLE_DEV = "90 80 0:53 / / rw - overlay overlay rw\n91 90 0:6 / /dev rw,nosuid - devtmpfs udev rw\n"
INSIDE = {"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (507, 0)}
GIVEN = tuple(Rule(True, DeviceKind.CHAR, major, minor, RW) for major, minor in INSIDE.values())
STANDARD = (
    Rule(True, None, None, None, Access.MKNOD),
    Rule(True, DeviceKind.CHAR, 1, 3, ALL),
    Rule(True, DeviceKind.CHAR, 136, None, ALL),
)
STANDARD_LINES = ("char-pts rwm", "/dev/char/1:3 rwm", "char-* m", "block-* m")
GIVEN_LINES = ("/dev/char/195:0 rw", "/dev/char/195:255 rw", "/dev/char/507:0 rw")


class GpuNode(SmallNode, WorkloadNode):
    """Everything is right until a test changes it."""

    def __init__(self, **majors: int) -> None:
        super().__init__(**majors)
        self.complete += [*COMPLETE, "/etc/docker", "/var/lib/docker", "/var/snap"]
        self.printed: dict[tuple[str, ...], str] = {}
        self.text("/proc/1/mountinfo", V2_MOUNTS)
        self.text(
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
        )
        self._programs: dict[str, dict[str, str]] = {}
        self._cgroups: dict[str, dict[str, list[int]]] = {}

    def container(
        self,
        pid: int = PID,
        group: str = DOCKER,
        *environment: str,
        nodes: Mapping[str, tuple[int, int]] = INSIDE,
        mountinfo: str = MOUNTINFO,
    ) -> None:
        """A container with a process, what that sees, and no rules yet."""
        self.process(pid, group, apart=True)
        self.inside(pid, *environment, nodes=nodes, mountinfo=mountinfo)
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
            if name not in nodes:
                self.absent(f"/proc/{pid}/root/dev/{name}")

    def rules(self, *rules: Rule, group: str = DOCKER, name: str = "", like_systemd: bool = False) -> None:
        """One more program that is attached to a group, on top of the standard rules."""
        number = len(self._programs) + 40
        code = (systemd if like_systemd else runc)([*STANDARD, *rules])
        self._programs[str(number)] = {"name": name, "insns": code.hex()}
        place = self._cgroups.setdefault(f"/sys/fs/cgroup{group}", {"effective": [], "attached": []})
        place["effective"].append(number)
        place["attached"].append(number)

    def unit(self, *lines: str, policy: str = "strict", group: str = DOCKER) -> None:
        """The scope of a group as systemd keeps it, with drop-ins where a policy was set."""
        folder = f"{TRANSIENT}/{group.rpartition('/')[2]}"
        self.text(folder, "# This is a transient unit file\n[Scope]\nSlice=system.slice\nDelegate=yes\n")
        if policy:
            listed = "".join(f"DeviceAllow={line}\n" for line in lines)
            self.text(f"{folder}.d/50-DeviceAllow.conf", f"[Scope]\nDeviceAllow=\n{listed}")
            self.text(f"{folder}.d/50-DevicePolicy.conf", f"[Scope]\nDevicePolicy={policy}\n")

    def mode(self, path: str, mode: int, uid: int = 0, gid: int = 0) -> None:
        """Another mode or owner for a node that is there."""
        record = self.tree.lookup(path)
        assert record is not None and record.entry is not None
        major, minor = record.entry.major, record.entry.minor
        self.tree.put(path, Record(entry=Entry(path, EntryType.CHAR, mode, uid, gid, major=major, minor=minor)))

    def report(self) -> Report:
        """What the doctor says."""
        lines = "".join(f"{major:3d} {name}\n" for name, major in self.majors.items())
        self.text("/proc/devices", f"Character devices:\n{lines}\nBlock devices:\n")
        self.text("/proc/driver/nvidia/params", self.parameters)
        data: dict[str, Any] = {"programs": self._programs, "cgroups": self._cgroups}
        self.answers.setdefault("cgroup_devices", Answer(data=data, via="bpf(2)"))
        recorded = self.node()
        recorded.commands |= {argv: CommandOutput(argv, 0, text) for argv, text in self.printed.items()}
        recorded.logs |= {name: Log(name, text, source="journal") for name, text in self.logs.items()}
        return diagnose(recorded)

    def says(self, check: str) -> Finding:
        """What a check says of the only container."""
        (finding,) = self.report().result(check).findings
        return finding
