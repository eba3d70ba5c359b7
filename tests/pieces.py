"""One piece of a machine, a file of the corpus, as a recorded node: only what the piece itself shows, everything else not recorded.

gpudoctor asks about GPUs that it finds on the bus. Where a piece names a GPU without being a listing of the bus (a kernel log, the
driver's files, nvidia-smi), the GPU is put there, and nothing is known of it but that it is one.
"""

import re
from collections.abc import Callable
from pathlib import Path

from gpudoctor.facts.nvidia_smi import answer_from_query
from gpudoctor.facts.raw import Entry, EntryType, Log
from gpudoctor.sources.bug_report import open_bug_report
from gpudoctor.sources.nvidia_smi_output import open_smi_output
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorded import Record, RecordedNode
from tests.captures import (
    DEVICES,
    Block,
    Builder,
    Function,
    blocks,
    from_names,
    full,
    kept,
    machine,
    machine_node,
    put_listing,
    put_lspci,
    sysfs_archive,
    udev_node,
)

INSTALLER_LOG = "/var/log/nvidia-installer.log"
DISPLAY = "0x030000"
NOT_HERE = "not in this piece"

Build = Callable[[Path], RecordedNode]


def builder_of(path: str) -> Build | None:
    """What makes a node of a piece; None for a form that holds no piece of a node as gpudoctor reads them."""
    return _BY_NAME.get(path) or next((build for form, build in _BY_FORM if re.match(form, path)), None)


def _text(place: Path) -> str:
    return kept(place.read_bytes())


# PCI --------------------------------------------------------------------------------------------------------------

# What lspci calls the classes of functions that matter here, without -nn: pci.ids of pciutils, device classes.
CLASSES = {
    "Audio device": "0403",
    "Bridge": "0680",
    "Host bridge": "0600",
    "PCI bridge": "0604",
    "3D controller": "0302",
    "VGA compatible controller": "0300",
}
UNCLASSED = "ff00"
OTHER_VENDOR = "0000"


def lspci_node(place: Path) -> RecordedNode:
    """The output of lspci, its hex dumps removed; a listing with a host bridge in it is one of the whole bus."""
    text = "\n".join(line for line in _text(place).splitlines() if not line.startswith("$ "))
    found = blocks(text)
    shows_drivers = re.search(r"^\s+Kernel driver in use: ", text, re.MULTILINE) is not None
    verbose = {
        address: _with_registers(block)
        for address, block in found.items()
        if shows_drivers or re.search(r"^\s+(Flags|Control):", block.text, re.MULTILINE)
    }
    builder = Builder()
    builder.tree.put(DEVICES, Record(entry=Entry(DEVICES, EntryType.DIR)))
    put_lspci(builder, {**_from_words(found), **from_names(text)}, verbose)
    return RecordedNode(builder.tree, complete=(DEVICES,) if "Host bridge" in text else ())


def _with_registers(block: Block) -> Block:
    """lspci prints revision ff and header type 7f when every byte it reads is ff (pciutils' lspci.c, show_verbose)."""
    dead = "(rev ff)" in block.text and "Unknown header type 7f" in block.text
    return Block(block.address, f"{block.text}\n00: {'ff ' * 64}") if dead else block


def _from_words(found: dict[str, Block]) -> dict[str, Function]:
    """Functions of a listing without ids: whether NVIDIA made them, and their class, stand there in words."""
    functions = {}
    for address, block in found.items():
        if said := re.match(r"\S+ ([^:\[]+?)(?: \[\w{4}\])?: (\S+)", block.text):
            device = re.search(r": NVIDIA Corporation Device (\w{4})\b", block.text)
            vendor = "10de" if said[2] == "NVIDIA" else OTHER_VENDOR
            functions[address] = Function(address, CLASSES.get(said[1], UNCLASSED), vendor, device[1] if device else "")
    return functions


def _put_gpu(builder: Builder, address: str, device: str | None = None, class_code: str = DISPLAY) -> None:
    """A GPU that a piece names."""
    base = f"{DEVICES}/{address}"
    builder.text(f"{base}/vendor", "0x10de\n")
    builder.text(f"{base}/class", f"{class_code}\n")
    if device:
        builder.text(f"{base}/device", f"0x{device}\n")
    else:
        builder.tree.put(f"{base}/device", Record(error=NOT_HERE))


# Kernel logs ------------------------------------------------------------------------------------------------------

_ENUMERATED = re.compile(r"pci (\S+): \[10de:(\w{4})\] type 00 class 0x(03\w{4})")
_NAMED = re.compile(r"NVRM: .*?\b(?:PCI:|GPU |GPU at )([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\b", re.IGNORECASE)
_KMSG = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$")


def kernel_log_node(place: Path) -> RecordedNode:
    """Kernel messages, and the GPUs that they name."""
    text = _this_boot(_text(place))
    builder = Builder()
    enumerated = {address: (device, code) for address, device, code in _ENUMERATED.findall(text)}
    for address, (device, code) in enumerated.items():
        _put_gpu(builder, address, device, f"0x{code}")
    for address in sorted({f"{name.lower()}.0" for name in _NAMED.findall(text)} - enumerated.keys()):
        _put_gpu(builder, address)
    if release := re.search(r"Linux version (\S+)", text):
        builder.text("/proc/sys/kernel/osrelease", f"{release[1]}\n")
    node = RecordedNode(builder.tree)
    node.logs["kernel.log"] = Log("kernel.log", text, source="dmesg", from_boot="] Linux version " in text[:4096])
    return node


def _this_boot(text: str) -> str:
    """Bug reports put what syslog kept of earlier boots behind dmesg's output; records of /dev/kmsg as dmesg prints them."""
    lines = text.splitlines()
    if lines and _KMSG.match(lines[0]):
        return "".join(f"[{int(found[1]) / 1e6:12.6f}] {found[2]}\n" for line in lines if (found := _KMSG.match(line)))
    if not text.startswith("["):
        return text
    own = []
    for line in lines:
        if not line.startswith(("[", " ", "\t")):
            break
        own.append(line)
    return "\n".join(own) + "\n"


# The driver's files -----------------------------------------------------------------------------------------------


def driver_files_node(place: Path) -> RecordedNode:
    """Files of /proc/driver/nvidia joined under lines `==> PATH <==`."""
    parts = re.split(r"^==> (/\S+) <==\n", _text(place), flags=re.MULTILINE)
    builder = Builder()
    for path, content in zip(parts[1::2], parts[2::2], strict=True):
        builder.text(path, content)
        if gpu := re.match(r"/proc/driver/nvidia/gpus/([^/]+)/information", path):
            _put_gpu(builder, gpu[1])
    return RecordedNode(builder.tree)


def _file_node(path: str, pick: str = "") -> Build:
    """One file at its path; of an excerpt only the lines that match."""

    def build(place: Path) -> RecordedNode:
        lines = [line for line in _text(place).splitlines() if re.match(pick, line)]
        builder = Builder()
        builder.text(path, "\n".join(lines) + "\n")
        return RecordedNode(builder.tree)

    return build


def _device_files_node(folder: str) -> Build:
    """`ls -l` of a folder; what follows a prompt `$ cat PATH` is that file."""

    def build(place: Path) -> RecordedNode:
        listing, *files = re.split(r"^\$ cat (/\S+)\n", _text(place), flags=re.MULTILINE)
        builder = Builder()
        put_listing(builder, listing, folder)
        for path, content in zip(files[::2], files[1::2], strict=True):
            builder.text(path, content)
        return RecordedNode(builder.tree)

    return build


# nvidia-smi -------------------------------------------------------------------------------------------------------

_GPU = re.compile(r"^GPU ([0-9A-F]{4,8}):([0-9A-F]{2}:[0-9A-F]{2}\.[0-7])\s*$", re.MULTILINE)
_NO_HANDLE = re.compile(r"device handle for GPU ?([0-9A-F]{4,8}):([0-9A-F]{2}:[0-9A-F]{2}\.[0-7])")


def smi_query_node(place: Path) -> RecordedNode:
    """`nvidia-smi -q`, or the error in its place; bug reports put other invocations behind it, each under its own command line."""
    text, *_ = re.split(r"^/\S*/nvidia-smi ", _text(place), maxsplit=1, flags=re.MULTILINE)
    builder = Builder()
    _, *parts = _GPU.split(text)
    for domain, rest, told in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        device = re.search(r"Device Id +: 0x(\w{4})10DE", told)
        _put_gpu(builder, _address(domain, rest), device[1].lower() if device else None)
    for domain, rest in _NO_HANDLE.findall(text):
        _put_gpu(builder, _address(domain, rest))
    node = RecordedNode(builder.tree)
    if (answer := answer_from_query(text, "nvidia-smi -q")) is not None:
        node.answers["nvml"] = answer
    return node


def smi_output_node(place: Path) -> RecordedNode:
    """Any other output, as `--node FILE` reads it."""
    found = open_smi_output(place)
    assert found is not None, f"{place} is not read as nvidia-smi's output"
    return found


def _address(domain: str, rest: str) -> str:
    """NVML prints domains of eight digits, sysfs of four."""
    return full(f"{int(domain, 16):04x}:{rest.lower()}")


# Which form a file has --------------------------------------------------------------------------------------------

_BY_FORM: tuple[tuple[str, Build], ...] = (
    (r"bug-report/", open_bug_report),
    (r"machine-tree/", lambda place: machine_node(machine(place))),
    (r"procfs/.*\.proc-modules\.txt", _file_node("/proc/modules")),
    (r"procfs/.*\.proc-driver-nvidia\.txt", driver_files_node),
    (r"lspci/(?!stelline-asus-esc8000a-e12-0\.txt)", lspci_node),
    (r"dmesg/", kernel_log_node),
    (r"udev/", lambda place: udev_node(_text(place))[0]),
    (r"sysfs-hwloc/", lambda place: sysfs_archive(place).node),
    (r"nvidia-smi-q/", smi_query_node),
    (r"nvidia-smi-(xml|L|csv|nvlink|table|topo(?!/uo-win-geforce-rtx-2080-super-591\.86)|version)/", smi_output_node),
    (r"issue-excerpts/device-handle-.*\.err", smi_query_node),
    (r"issue-excerpts/.*\.(dmesg|dmesg-T|syslog|kmsg)$", kernel_log_node),
    (r"issue-excerpts/proc-devices-", _file_node("/proc/devices")),
)

_BY_NAME: dict[str, Build] = {
    "excerpt-docs/stas00-debug-00.txt": kernel_log_node,
    "excerpt-docs/stas00-debug-02.txt": smi_query_node,
    "installer/srini-nvidia-installer.log": _file_node(INSTALLER_LOG),
    "issue-excerpts/dev-nvidia-caps-wrong-major.txt": _device_files_node("/dev/nvidia-caps/"),
    "issue-excerpts/driver-container-nvidia-in-proc-modules.txt": _file_node("/proc/modules", r"\w+ \d+ \d+ "),
    "issue-excerpts/imex-channel-devnode.txt": _device_files_node("/dev/nvidia-caps-imex-channels/"),
    "issue-excerpts/lspci-rev-ff-gt650m.txt": lspci_node,
    "issue-excerpts/pod-unexpectedadmission-gpu-lost.txt": smi_query_node,
    "issue-excerpts/proc-driver-nvidia-version-610-open.txt": _file_node("/proc/driver/nvidia/version"),
    "issue-excerpts/proc-modules-nvidia-uvm-only.txt": _file_node("/proc/modules"),
    # Logs of which nothing but the log is known, as somebody has them who asks.
    "dmesg/br-4x2080ti-xid62-13.log": lambda place: open_source(str(place)),
    "dmesg/gpud-dmesg-decode-iso-xid13.log": lambda place: open_source(str(place)),
    "issue-excerpts/xid119-after45s-pci-domain1.dmesg-T": lambda place: open_source(str(place)),
    "issue-excerpts/xid13-109-then-peermem.dmesg-T": lambda place: open_source(str(place)),
    "issue-excerpts/xid149-145-blackwell-nvlink.kmsg": lambda place: open_source(str(place)),
    "issue-excerpts/xid145-137-b200.journal": kernel_log_node,
}
