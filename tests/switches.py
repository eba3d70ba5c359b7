"""A recorded server with two GPUs below one PCIe switch, to be changed by tests, and what they ask of its report."""

from collections.abc import Mapping, Sequence

from gpudoctor.facts.pci_peers import ACS
from gpudoctor.facts.raw import Absent, Log, TextFile
from gpudoctor.report import Finding, Report, Result
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Evidence, Unread
from tests.captures import DEVICES, Builder, diagnose, kept

ROOT, UP = "0000:15:01.0", "0000:16:00.0"
PORTS = ("0000:17:00.0", "0000:17:01.0")
GPUS = ("0000:18:00.0", "0000:2a:00.0")
SWITCH = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0"
PLACES = {port: f"{SWITCH}/{port}/{gpu}" for port, gpu in zip(PORTS, GPUS, strict=True)}
ON, OFF, CAPABLE = 0x1D, 0x00, 0x5F
COMPLETE = (DEVICES, "/sys/bus/pci/drivers", "/sys/devices", "/sys/class/dmi", "/sys/module", "/sys/kernel", "/proc")
X86 = "processor\t: 0\nflags\t\t: fpu vme msr lahf_lm\n"
GUEST = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd4f\n"


def config(*capabilities: tuple[int, bytes], size: int = 4096) -> bytes:
    """Configuration space of a bridge with a list of extended capabilities, each with what follows its header."""
    content = bytearray(size)
    content[0:4] = b"\xb5\x10\x47\x87"
    content[14] = 1
    for number, (identity, rest) in enumerate(capabilities):
        at = 0x100 + 0x40 * number
        following = at + 0x40 if number + 1 < len(capabilities) else 0
        content[at : at + 4 + len(rest)] = (identity | 1 << 16 | following << 20).to_bytes(4, "little") + rest
    return bytes(content)


def acs(control: int, capability: int = CAPABLE) -> bytes:
    """A port with Advanced Error Reporting before and a vendor's capability behind its Access Control Services."""
    registers = capability.to_bytes(2, "little") + control.to_bytes(2, "little")
    return config((0x0001, bytes(40)), (ACS, registers), (0x000B, b"\xff\xfe\x80\x7f"))


class Watched(RecordedNode):
    """Remembers which files were read."""

    was_read: set[str]

    def read(self, path: str) -> TextFile | Absent | Unread:
        """Read and remember."""
        self.was_read.add(path)
        return super().read(path)


class Machine(Builder):
    """Two GPUs below one switch, both awake and held by nvidia, with the firmware and processor of a server."""

    def __init__(self, ports: Mapping[str, bytes] | None = None, vendor: str = "Supermicro", cpu: str = X86) -> None:
        super().__init__()
        self.text("/sys/class/dmi/id/sys_vendor", f"{vendor}\n")
        self.text("/sys/class/dmi/id/product_name", "SYS-521GE-TNRT\n")
        self.text("/proc/cpuinfo", cpu)
        for address, place in ((ROOT, SWITCH.rpartition("/")[0]), (UP, SWITCH)):
            self.port(address, place, acs(ON))
        for port, gpu in zip(PORTS, GPUS, strict=True):
            self.port(port, PLACES[port].rpartition("/")[0], (ports or {}).get(port, acs(OFF)))
            self.gpu(gpu, PLACES[port])

    def port(self, address: str, place: str, registers: bytes) -> None:
        """A bridge, awake, with the registers of its configuration space."""
        self._common(address, place, "pcieport", "0x10b5", "0x060400", registers)
        self.speeds(address, place, "16.0 GT/s PCIe", "16.0 GT/s PCIe")

    def gpu(self, address: str, place: str, driver: str | None = "nvidia") -> None:
        """A GPU, awake."""
        self._common(address, place, driver, "0x10de", "0x030200", b"\xde\x10" + config(size=4096)[2:])
        self.speeds(address, place, "16.0 GT/s PCIe", "16.0 GT/s PCIe")

    def _common(
        self, address: str, place: str, driver: str | None, vendor: str, class_code: str, registers: bytes
    ) -> None:
        self.function(address, place, driver)
        for name, value in (("vendor", vendor), ("device", "0x2330"), ("class", class_code)):
            self.text(f"{place}/{name}", f"{value}\n")
        self.text(f"{place}/power/runtime_status", "active\n")
        self.text(f"{place}/config", kept(registers))

    def speeds(self, address: str, place: str, current: str, most: str, lanes: int = 16) -> None:
        """What the function's link runs at and could run at."""
        assert place.endswith(address)
        for name, value in (("current", current), ("max", most)):
            self.text(f"{place}/{name}_link_speed", f"{value}\n")
            self.text(f"{place}/{name}_link_width", f"{lanes}\n")

    def hide(self, path: str, error: str = "EACCES") -> None:
        """Make a path unreadable."""
        self.tree.put(path, Record(error=error))

    def node(self, log: str = "") -> Watched:
        """The recorded node."""
        node = Watched(self.tree, complete=COMPLETE, uid=0)
        node.was_read = set()
        if log:
            node.logs["kernel.log"] = Log("kernel.log", log, source="kmsg", from_boot=True)
        return node


def both(registers: bytes) -> dict[str, bytes]:
    """Both ports with the same registers."""
    return dict.fromkeys(PORTS, registers)


def peer_traffic(node: RecordedNode) -> Result:
    """How the check of that name ends, everything else being run too."""
    return diagnose(node).result("pcie.peer-traffic")


def link_speed(node: RecordedNode) -> Result:
    """How the check of that name ends, everything else being run too."""
    return diagnose(node).result("pcie.link-speed")


def roots(report: Report) -> list[tuple[str, list[str]]]:
    """Root causes: check and keys of subjects."""
    return [(cause.check, [subject.key for subject in cause.subjects]) for cause in report.root_causes]


def about(result: Result, address: str) -> Finding:
    """The finding about one GPU."""
    return next(finding for finding in result.findings if finding.subject.key == address)


def shown(evidence: Sequence[Evidence]) -> str:
    """Evidence as lines of place and words."""
    return "\n".join(f"{one.where}: {one.shows}" for one in evidence)
