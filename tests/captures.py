"""Real captures of several forms as recorded nodes: the rig's folders, machine trees, udev databases, archives of sysfs.

Nothing of a capture is kept in this repository; the readings here are written anew, so that they can be held against gpudoctor's own.
"""

import datetime
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk, FactT
from gpudoctor.facts.nvidia_smi import answer_from_query
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Log
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.verdicts import Status

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
DEVICES = "/sys/bus/pci/devices"
NODES = (*(f"nvidia{minor}" for minor in range(16)), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""What `ls -l /dev/nvidia*` would have shown."""

LOWER = (Link.PCIE, Link.KERNEL_MODULE, Link.DEVICE_NODES)
"""The links below the driver's own answers."""


def diagnose(node: RecordedNode) -> Report:
    """The whole report, nothing being expected of the node."""
    return run(node, Config(), built_in(), Selection(), NOW)


def fact(node: RecordedNode, kind: type[FactT]) -> FactT:
    """A fact that must be known."""
    found = Desk(node, Config()).get(kind)
    assert isinstance(found, kind), found
    return found


def failed_roots(report: Report, links: tuple[Link, ...] = tuple(Link)) -> list[tuple[str, tuple[str, ...]]]:
    """The root causes that are fails, as check and keys of subjects."""
    return [
        (cause.check, tuple(sorted(subject.key for subject in cause.subjects)))
        for cause in report.root_causes
        if cause.link in links and cause.status is Status.FAIL
    ]


def crashed(report: Report) -> list[str]:
    """What went wrong in gpudoctor itself: crashed checks and facts."""
    checks = [f"{result.check}: {result.detail}" for result in report.results if result.why == "crashed"]
    return checks + [unseen.what for unseen in report.not_seen if unseen.why.value == "crashed"]


class Builder:
    """Puts records of one node together."""

    def __init__(self) -> None:
        self.tree = Tree()

    def text(self, path: str, text: str) -> None:
        """A file with its content."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE), text=text))

    def link(self, path: str, to: str) -> None:
        """A symbolic link."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.LINK, to=to)))

    def absent(self, path: str) -> None:
        """Something that was looked for in vain."""
        self.tree.put(path, Record(error="ENOENT"))

    def function(self, address: str, place: str, driver: str | None) -> None:
        """A PCI function at its place below /sys/devices, its name on the bus, and what holds it."""
        self.link(f"{DEVICES}/{address}", f"../../..{place.removeprefix('/sys')}")
        if driver is None:
            self.absent(f"{place}/driver")
        else:
            self.link(f"{place}/driver", f"../../../bus/pci/drivers/{driver}")


# lspci ------------------------------------------------------------------------------------------------------------


class Block(Struct, frozen=True):
    """What lspci prints of one function."""

    address: str
    text: str

    @property
    def config(self) -> bytes:
        """The bytes of configuration space that -x, -xxx or -xxxx printed, none when it was not asked."""
        lines = re.findall(r"^[0-9a-f]{2,3}: ((?:[0-9a-f]{2} ?)+)$", self.text, re.MULTILINE)
        return bytes.fromhex("".join(lines))

    @property
    def driver(self) -> str | None:
        """What holds the function."""
        found = re.search(r"Kernel driver in use: (\S+)", self.text)
        return found[1] if found else None

    def width(self, register: str) -> int | None:
        """The width in LnkCap or LnkSta."""
        found = re.search(rf"{register}:.*?Width x(\d+)", self.text)
        return int(found[1]) if found else None

    def speed(self, register: str) -> float | None:
        """The speed in LnkCap or LnkSta, in GT/s."""
        found = re.search(rf"{register}:.*?Speed (\d+(?:\.\d+)?)GT/s", self.text)
        return float(found[1]) if found else None

    @property
    def bus_behind(self) -> str | None:
        """The number of the bus behind a bridge: in its registers, or as -v prints it."""
        if len(self.config) >= 64:
            secondary = self.config[0x19]
            return f"{secondary:02x}" if self.config[0x0E] & 0x7F == 1 and secondary else None
        found = re.search(r"[ \t]Bus: primary=\S\S, secondary=(\S\S), ", self.text)
        return found[1] if found and found[1] != "00" else None

    @property
    def regions(self) -> dict[int, tuple[int, int]]:
        """Start and end of each base address register that -vv prints, zeros for one without a place."""
        found = {}
        form = r"[ \t]Region (\d): (?:Memory|I/O ports) at (\S+)[^\n]*?\[size=(\d+)([KMGT]?)\]"
        for number, start, size, unit in re.findall(form, self.text):
            first = int(start, 16) if re.fullmatch("[0-9a-f]+", start) else 0
            last = first + (int(size) << 10 * " KMGT".index(unit or " ")) - 1 if first else 0
            found[int(number)] = (first, last)
        return found


class Function(Struct, frozen=True):
    """A PCI function: class is base and sub class; the device is empty where it is not known."""

    address: str
    class_code: str
    vendor: str
    device: str


def blocks(text: str) -> dict[str, Block]:
    """The functions in the output of lspci, by full address."""
    parts = re.split(r"^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?= \S)", text, flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {full(address): Block(full(address), address + rest) for address, rest in pairs}


def full(address: str) -> str:
    """An address with its domain."""
    return address if address.count(":") == 2 else f"0000:{address}"


def from_config(block: Block) -> Function | None:
    """The function as its own registers name it: PCI Local Bus Specification, configuration header."""
    config = block.config
    if len(config) < 64 or config.startswith(b"\xff\xff"):
        return None
    vendor, device = config[1] << 8 | config[0], config[3] << 8 | config[2]
    return Function(block.address, f"{config[11]:02x}{config[10]:02x}", f"{vendor:04x}", f"{device:04x}")


def from_names(text: str) -> dict[str, Function]:
    """The functions as `lspci -nn` names them on each first line; the last bracket with a colon holds the ids."""
    found = {}
    for block in blocks(text).values():
        line = block.text.partition("\n")[0]
        kind, ids = re.search(r"\[([0-9a-f]{4})\]:", line), re.findall(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", line)
        if kind and ids:
            found[block.address] = Function(block.address, kind[1], *ids[-1])
    return found


def places(functions: Mapping[str, Block]) -> dict[str, str]:
    """Where each function lies below /sys/devices: bridges say which bus is behind them."""
    behind: dict[str, str] = {}
    for address, block in functions.items():
        if block.bus_behind:
            behind[f"{address.split(':')[0]}:{block.bus_behind}"] = address

    def place(address: str) -> str:
        bus = address.rpartition(":")[0]
        above = place(behind[bus]) if bus in behind else f"/sys/devices/pci{bus}"
        return f"{above}/{address}"

    return {address: place(address) for address in functions}


def put_lspci(builder: Builder, names: Mapping[str, Function], functions: Mapping[str, Block]) -> None:
    """The functions of a bus as sysfs would show them, from `lspci -nn` and what the verbose listing adds."""
    verbose = {address: functions.get(address, Block(address, "")) for address in names}
    for address, place in places(verbose).items():
        function, block = names[address], verbose[address]
        if block.text:
            builder.function(address, place, block.driver)
        else:
            builder.link(f"{DEVICES}/{address}", f"../../..{place.removeprefix('/sys')}")
        builder.text(f"{place}/vendor", f"0x{function.vendor}\n")
        if function.device:
            builder.text(f"{place}/device", f"0x{function.device}\n")
        else:
            builder.tree.put(f"{place}/device", Record(error="lspci did not print it"))
        builder.text(f"{place}/class", f"0x{function.class_code}00\n")
        _put_registers(builder, place, block)


def _put_registers(builder: Builder, place: str, block: Block) -> None:
    """What sysfs tells out of a function's registers: its end of the link, and where its regions lie."""
    if block.config:
        builder.text(f"{place}/config", kept(block.config))
    for name, register in (("max_link", "LnkCap"), ("current_link", "LnkSta")):
        if (width := block.width(register)) is not None:
            builder.text(f"{place}/{name}_width", f"{width}\n")
        if (speed := block.speed(register)) is not None:
            builder.text(f"{place}/{name}_speed", f"{speed:.1f} GT/s PCIe\n")
    if block.regions:
        # Of the flags only "there is such a region" is known.
        lines = [(*block.regions[number], 1) if number in block.regions else (0, 0, 0) for number in range(6)]
        builder.text(f"{place}/resource", "".join(f"{a:#018x} {b:#018x} {flags:#018x}\n" for a, b, flags in lines))


def kept(content: bytes) -> str:
    """Bytes as gpudoctor keeps them."""
    return content.decode("utf-8", "backslashreplace")


# The rig ----------------------------------------------------------------------------------------------------------


def rig_node(state: Path, *, nvml: bool = True) -> RecordedNode:
    """One state of the rig's virtual machine."""
    builder = Builder()
    for name in ("modules", "devices"):
        builder.text(f"/proc/{name}", (state / f"proc.{name}").read_text())
    dmesg = (state / "dmesg.txt").read_text(errors="backslashreplace")
    if release := re.search(r"Linux version (\S+)", dmesg):
        builder.text("/proc/sys/kernel/osrelease", f"{release[1]}\n")
    if line := re.search(r"Command line: (.*)", dmesg):
        builder.text("/proc/cmdline", f"{line[1].strip()}\n")
    _put_tree(builder, state / "proc.driver.nvidia", "/proc/driver/nvidia")
    _put_rig_bus(builder, state)
    _put_modules(builder, state)
    _put_nodes(builder, (state / "ls_dev.txt").read_text())
    complete = ["/proc/driver/nvidia", "/sys/module/nvidia"]
    if (state / "lspci-nnk.txt").is_file():
        complete.append(DEVICES)
    node = RecordedNode(builder.tree, complete=complete, uid=0)
    node.logs["kernel.log"] = Log("kernel.log", dmesg, source="dmesg", from_boot="Linux version" in dmesg)
    if nvml and (answer := _rig_answer(state)) is not None:
        node.answers["nvml"] = answer
    return node


def _rig_answer(state: Path) -> Answer | None:
    """What the stand-in library gave for nvmlInit, or what the real nvidia-smi printed."""
    said = state / "nvml.txt"
    init = re.search(r"nvmlInit_v2 (\d+)", said.read_text()) if said.is_file() else None
    if init is not None:
        return Answer(data={"init": int(init[1])})
    smi = state / "nvidia-smi.txt"
    return answer_from_query(smi.read_text(), "nvidia-smi -q") if smi.is_file() else None


def _put_tree(builder: Builder, folder: Path, path: str) -> None:
    for place in sorted(folder.rglob("*")):
        if place.is_file():
            builder.text(f"{path}/{place.relative_to(folder)}", place.read_text(errors="backslashreplace"))


def _put_rig_bus(builder: Builder, state: Path) -> None:
    """The rig kept sysfs' files of the NVIDIA functions; of all others lspci's names tell what they are."""
    if not (state / "lspci-nnk.txt").is_file():
        return
    listing = (state / "lspci-nnk.txt").read_text()
    configs = blocks((state / "lspci-x.txt").read_text())
    verbose = blocks(listing)
    kept_here = {place.name: place for place in (state / "sys").glob("0000:*")} if (state / "sys").is_dir() else {}
    names = from_names(listing)
    put_lspci(builder, {address: names[address] for address in names if address not in kept_here}, verbose)
    for address, folder in kept_here.items():
        place = (folder / "realpath").read_text().strip()
        driver = (folder / "driver.link").read_text().strip().rpartition("/")[2]
        builder.function(address, place, driver or None)
        for file in sorted(folder.iterdir()):
            if file.name not in ("realpath", "driver.link"):
                builder.text(f"{place}/{file.name.replace('power_runtime', 'power/runtime')}", file.read_text())
        builder.text(f"{place}/config", kept(configs[address].config))


def _put_modules(builder: Builder, state: Path) -> None:
    for folder in sorted((state / "sys").glob("module_*")):
        for file in sorted(folder.iterdir()):
            if file.name != "ls-R":
                builder.text(f"/sys/module/{folder.name.removeprefix('module_')}/{file.name}", file.read_text())


def _put_nodes(builder: Builder, listing: str) -> None:
    """`ls -l` of /dev/nvidia*, and of two folders; what it does not show is not there."""
    for name in NODES:
        builder.absent(f"/dev/{name}")
    put_listing(builder, listing)


def put_listing(builder: Builder, listing: str, folder: str = "") -> None:
    """Nodes and links as `ls -l` shows them, in a folder (ending in a slash) until the listing names another."""
    for line in listing.splitlines():
        if line.endswith(":") and line.startswith("/"):
            folder = line[:-1] + "/"
        elif shown := re.match(r"(c\S{9}) +\d+ (\S+) (\S+) +(\d+), +(\d+) .* (\S+)$", line):
            path = shown[6] if shown[6].startswith("/") else folder + shown[6]
            root = 0 if (shown[2], shown[3]) == ("root", "root") else None
            entry = Entry(path, EntryType.CHAR, _mode(shown[1]), root, root, major=int(shown[4]), minor=int(shown[5]))
            builder.tree.put(path, Record(entry=entry))
        elif shown := re.match(r"l\S{9} .* (\S+) -> (\S+)$", line):
            builder.link(folder + shown[1], shown[2])


def put_dmesg_functions(builder: Builder, dmesg: str) -> None:
    """The functions that the kernel enumerated, none held: for a node whose module is not loaded."""
    found = re.findall(r"pci (\S+): \[(\w{4}):(\w{4})\] type 0\d class 0x(\w{6})", dmesg)
    for address, vendor, device, class_code in found:
        place = f"/sys/devices/pci{address[:7]}/{address}"
        builder.function(address, place, None)
        for name, value in (("vendor", vendor), ("device", device), ("class", class_code)):
            builder.text(f"{place}/{name}", f"0x{value}\n")


def _mode(letters: str) -> int:
    return sum(1 << (8 - place) for place, letter in enumerate(letters[1:10]) if letter != "-")


# The corpus -------------------------------------------------------------------------------------------------------


class Manifest(Struct, frozen=True):
    """A line of the corpus' MANIFEST.tsv, as far as it is needed."""

    path: str
    kind: str
    driver: str
    state: str
    origin: str

    @property
    def healthy(self) -> bool:
        """Whether nothing was wrong on that machine."""
        return self.state.startswith("healthy")


def manifest_lines(corpus: Path) -> list[Manifest]:
    """All lines."""
    rows = [line.split("\t") for line in (corpus / "MANIFEST.tsv").read_text("utf-8").split("\n")[1:] if line]
    return [Manifest(row[0], row[1], row[7], row[8], row[10]) for row in rows]


def manifest(corpus: Path, *kinds: str) -> list[Manifest]:
    """The lines of some kinds."""
    return [line for line in manifest_lines(corpus) if line.kind in kinds]


class Machine(Struct, frozen=True):
    """A machine tree: files by their absolute path, outputs of commands by the name of their file."""

    name: str
    files: Mapping[str, str]
    commands: Mapping[str, str]

    @property
    def names(self) -> str:
        """The output of `lspci -nn`."""
        return self.commands["lspci_-nn"]

    @property
    def verbose(self) -> str:
        """The output of lspci with the registers: of all functions in newer reports, of NVIDIA's in older ones."""
        return next(text for name, text in self.commands.items() if re.match(r"lspci_(-nnDvvv|-d_10de)", name))


def machine(archive: Path) -> Machine:
    """Unpack a machine tree in memory."""
    files, commands = {}, {}
    for path, entry in _members(archive):
        if isinstance(entry, bytes):
            text = kept(entry)
            if path.startswith("/cmd/"):
                commands[path.removeprefix("/cmd/").removesuffix(".txt")] = text
            else:
                files[path] = text
    return Machine(archive.name.removesuffix(".tar.gz"), files, commands)


def machine_node(tree: Machine) -> RecordedNode:
    """A machine tree as a recorded node, its PCI functions from the registers that lspci printed."""
    builder = Builder()
    names, verbose = from_names(tree.names), blocks(tree.verbose)
    put_lspci(builder, names, verbose)
    for path, text in tree.files.items():
        address, _, rest = path.removeprefix(f"{DEVICES}/").partition("/")
        link = builder.tree.records.get(f"{DEVICES}/{address}") if path.startswith(DEVICES) else None
        place = f"/sys{link.entry.to.removeprefix('../../..')}" if link and link.entry and link.entry.to else None
        builder.text(f"{place}/{rest}" if place else path, text)
    if release := re.search(
        r"Linux \S+ (\S+) ", tree.commands.get("uname_-a", "") + tree.files.get("/proc/version", "")
    ):
        builder.text("/proc/sys/kernel/osrelease", f"{release[1]}\n")
    node = RecordedNode(builder.tree, complete=(DEVICES,))
    _put_commands(node, tree)
    return node


def _put_commands(node: RecordedNode, tree: Machine) -> None:
    dmesg = tree.commands.get("dmesg")
    if dmesg:
        node.logs["kernel.log"] = Log("kernel.log", dmesg, source="dmesg", from_boot="] Linux version " in dmesg[:4096])
    query = tree.commands.get("nvidia-smi_--query") or tree.commands.get("nvidia-smi_-q")
    answer = answer_from_query(query, "nvidia-smi --query") if query else None
    if answer is not None:
        node.answers["nvml"] = answer
    if not tree.commands.get("modinfo_nvidia_grep_vermagic", "vermagic").strip():
        argv = ("modinfo", "nvidia")
        node.commands[argv] = CommandOutput(argv, 1, "", "modinfo: ERROR: Module nvidia not found.\n")


def udev_node(text: str) -> tuple[RecordedNode, dict[str, str]]:
    """The PCI functions in `udevadm info --export-db`, and each one's MODALIAS, which names it a second time."""
    builder, aliases = Builder(), {}
    for record in text.split("\n\n"):
        values = dict(re.findall(r"^E: ([A-Z_]+)=(.*)$", record, re.MULTILINE))
        if values.get("SUBSYSTEM") != "pci" or "PCI_ID" not in values:
            continue
        address, place = values["PCI_SLOT_NAME"], f"/sys{values['DEVPATH']}"
        vendor, device = values["PCI_ID"].lower().split(":")
        builder.function(address, place, values.get("DRIVER"))
        builder.text(f"{place}/vendor", f"0x{vendor}\n")
        builder.text(f"{place}/device", f"0x{device}\n")
        builder.text(f"{place}/class", f"0x{int(values['PCI_CLASS'], 16):06x}\n")
        aliases[address] = values["MODALIAS"]
    return RecordedNode(builder.tree, complete=(DEVICES,)), aliases


class Archive(Struct, frozen=True):
    """An archive of /proc and /sys: the node, and the bytes of each function's configuration space by its address."""

    node: RecordedNode
    configs: Mapping[str, bytes]
    has_bus: bool


def sysfs_archive(path: Path) -> Archive:
    """An archive that hwloc-gather-topology made: partial, but the names on the PCI bus are complete where there are any."""
    builder, configs = Builder(), {}
    for name, entry in _members(path, strip=1):
        if isinstance(entry, bytes):
            builder.text(name, kept(entry))
            if found := re.search(r"/([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/config$", name):
                configs[found[1]] = entry
        else:
            builder.link(name, entry)
    has_bus = builder.tree.lookup(DEVICES) is not None
    return Archive(RecordedNode(builder.tree, complete=(DEVICES,) if has_bus else ()), configs, has_bus)


def _members(archive: Path, strip: int = 0) -> Iterator[tuple[str, bytes | str]]:
    """Files with their content and links with their target, by absolute path."""
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
        for member in tar:
            path = "/" + "/".join(member.name.removeprefix("./").split("/")[strip:])
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                yield path, file.read()
            elif member.issym():
                yield path, member.linkname
