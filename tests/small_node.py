"""A small node with two GPUs and the device nodes of a healthy one, for tests that change one thing."""

from gpudoctor.facts.raw import Absent, Answer, CommandOutput, Entry, EntryType, Log
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status, Unread
from tests.captures import DEVICES, Builder, diagnose

COMPLETE = (
    DEVICES,
    "/dev",
    "/proc/driver/nvidia",
    "/etc/systemd/system",
    "/run",
    "/var/run",
    "/usr/bin",
    "/etc/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
)
DEVICE_LINES = {"nvidia": 195, "nvidiactl": 195, "nvidia-modeset": 195, "nvidia-uvm": 507, "nvidia-caps": 506}
ALARMS = (Status.WARN, Status.FAIL)


class SmallNode(Builder):
    """Two GPUs held by nvidia, with all their nodes; whatever a test changes comes after that."""

    def __init__(self, **majors: int) -> None:
        super().__init__()
        self.majors = DEVICE_LINES | {name.replace("_", "-"): major for name, major in majors.items()}
        self.parameters = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
        self.logs: dict[str, str] = {}
        self.commands: dict[tuple[str, ...], CommandOutput | Absent | Unread] = {}
        self.nvml: Answer | None = None
        for minor, bus in enumerate(("05", "06")):
            address = f"0000:{bus}:00.0"
            place = f"/sys/devices/pci0000:00/0000:00:01.{minor}/{address}"
            self.function(address, place, "nvidia")
            for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
                self.text(f"{place}/{name}", f"{value}\n")
            self.text(f"/proc/driver/nvidia/gpus/{address}/information", f"Device Minor: {minor}\n")
            self.char(f"/dev/nvidia{minor}", 195, minor)
        self.text("/proc/modules", "nvidia 1000 0 - Live 0x0\n")
        self.char("/dev/nvidiactl", 195, 255)
        self.char("/dev/nvidia-uvm", self.majors["nvidia-uvm"], 0)
        self.char("/dev/kmsg", 1, 11)

    def char(self, path: str, major: int, minor: int, mode: int = 0o666) -> None:
        """A character device."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.CHAR, mode, 0, 0, major=major, minor=minor)))

    def capability(self, path: str, minor: int, *, mode: int = 0o444, modify: int = 1) -> None:
        """A capability as the driver lists it."""
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: {modify}\n"
        self.text(f"/proc/driver/nvidia/capabilities/{path}", text)

    def switches(self, count: int) -> None:
        """NVSwitches held by their driver."""
        self.majors["nvidia-nvswitch"] = 510
        for number in range(count):
            address = f"0000:7{number}:00.0"
            place = f"/sys/devices/pci0000:70/{address}"
            self.function(address, place, "nvidia-nvswitch")
            for name, value in (("vendor", "0x10de"), ("device", "0x22a3"), ("class", "0x068000")):
                self.text(f"{place}/{name}", f"{value}\n")

    def report(self) -> Report:
        """What the doctor says."""
        lines = "".join(f"{major:3d} {name}\n" for name, major in self.majors.items())
        self.text("/proc/devices", f"Character devices:\n{lines}\nBlock devices:\n")
        self.text("/proc/driver/nvidia/params", self.parameters)
        recorded = RecordedNode(self.tree, complete=COMPLETE, uid=0)
        recorded.logs |= {name: Log(name, text) for name, text in self.logs.items()}
        recorded.commands |= self.commands
        if self.nvml is not None:
            recorded.answers["nvml"] = self.nvml
        return diagnose(recorded)


def alarms(report: Report, check: str) -> list[Finding]:
    """The warns and fails of a check."""
    return [finding for finding in report.result(check).findings if finding.status in ALARMS]


def cited(finding: Finding) -> str:
    """All evidence, as path and words."""
    return "\n".join(f"{evidence.where} {evidence.shows}" for evidence in finding.evidence)


def steps(finding: Finding) -> str:
    """All commands of the remedies."""
    return "\n".join(step for remedy in finding.remedies for step in remedy.run)
