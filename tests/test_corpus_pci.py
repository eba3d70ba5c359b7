"""Real captures of the PCI bus in five forms (../shared/corpus): lspci, machine trees, procfs, archives of sysfs, udev databases.

Each is read twice, by gpudoctor and by a reading of its own in tests/captures.py, and what is known to be wrong with a machine must be
found where its capture shows it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpudoctor.facts.driver import DriverGpu, DriverGpus, DriverParameters, NvidiaModule
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.pci_link import GpuLinks
from gpudoctor.facts.pci_state import PciStates
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, TextFile
from gpudoctor.sources.bug_report import open_bug_report, read_bug_report
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status, Unread
from tests.captures import (
    DEVICES,
    LOWER,
    Block,
    Builder,
    Function,
    blocks,
    crashed,
    diagnose,
    fact,
    failed_roots,
    from_config,
    from_names,
    machine,
    machine_node,
    manifest,
    sysfs_archive,
    udev_node,
)
from tests.conftest import SHARED

LINE = "_" * 44
HEAD = f"{LINE}\n\nStart of NVIDIA bug report log file.\n\nuname: Linux n1 6.8.0-1 #1 SMP x86_64\n"


def _names(folder: str, pattern: str) -> list[str]:
    """The captures of a folder; one placeholder, which skips, where the shared material is not."""
    return sorted(place.name for place in (SHARED / "corpus" / folder).glob(pattern)) or ["none"]


MACHINES = [name.removesuffix(".tar.gz") for name in _names("machine-tree", "*.tar.gz")]

# Faults of the first three links that a machine tree shows: check and words of the root cause.
SICK = {
    "1050ti-nouveau-conflict-fedora": ("kernel-module.gpu-bound", "held by nouveau"),
    "2x2080ti-driver-missing-after-kernel": (
        "kernel-module.gpu-bound",
        "no nvidia module for the running kernel 5.4.0-132",
    ),
    "5080-gsp-575": ("kernel-module.adapter-initialised", "could not initialise"),
    "5080-gsp-timeouts": ("kernel-module.adapter-initialised", "could not initialise"),
    "a5000-nouveau-no-module": ("kernel-module.gpu-bound", "held by nouveau"),
    "nvs5200m-2013-not-loaded": ("kernel-module.gpu-bound", "held by no driver"),
    "vm-2xa6000-2x3090-not-loaded": ("kernel-module.gpu-bound", "refuses the nvidia module's signature"),
}
# Faults that these trees do not show at the first three links, and why.
NOT_SHOWN = {
    "1080ti-no-uvm": "no fault of a link: a display box needs no nvidia_uvm, and a tree holds no /dev",
    "2x4090-gt1030-mismatch": "an old line of the log; versions of libraries are the driver's link, and nvidia-smi answers",
    "3090-xid56": "Xid 56 is the health link's; lspci and procfs are in order",
    "3x4070-xid79-two-lost": "the driver's link: registers and link answered again, nvidia-smi misses one (the tree shows one, not two); "
    "the links are as wide as the risers' ports allow",
    "3xa6000-one-lost": "the driver's link: registers and link answered, nvidia-smi misses one",
    "4x2080ti-xid62-13": "Xids are the health link's",
    "p3200-mismatch-no-nvml": "the driver's link: libnvidia-ml.so is missing",
    "titanx-2015": "no fault of a link: as 1080ti-no-uvm",
}
# lspci pieces with a remark that the bug-report reader cannot see: pasted without ids, and of the card only, not of the port above it.
NOT_SHOWN_BY_LSPCI = {"jh-4090-card.txt", "jh-4090-nvidia.txt"}


def _read(node: RecordedNode, address: str, name: str) -> str:
    file = node.read(f"{DEVICES}/{address}/{name}")
    assert isinstance(file, TextFile), (address, name, file)
    return file.text.strip().removeprefix("0x")


def _function(node: RecordedNode, address: str) -> Function:
    """A function as gpudoctor's source gives it; lspci does not print the programming interface."""
    device = _read(node, address, "device")
    return Function(address, _read(node, address, "class")[:4], _read(node, address, "vendor"), device)


def _driver(node: RecordedNode, address: str) -> str | Unread | None:
    entry = node.entry(f"{DEVICES}/{address}/driver")
    if isinstance(entry, Entry):
        return (entry.to or "").rpartition("/")[2]
    return None if isinstance(entry, Absent) else entry


def _listed(node: RecordedNode) -> tuple[str, ...]:
    listing = node.listing(DEVICES)
    return listing.names if isinstance(listing, Listing) else ()


def _compare(node: RecordedNode, functions: Mapping[str, Function], verbose: Mapping[str, Block]) -> int:
    """Holds what gpudoctor read against another reading of the same bus; gives the number of functions compared."""
    for address, function in functions.items():
        assert _function(node, address) == function
        driver = _driver(node, address)
        if address in verbose:
            assert driver == verbose[address].driver, address
        else:
            assert isinstance(driver, Unread), address
    return len(functions)


# lspci ------------------------------------------------------------------------------------------------------------


def _as_report(text: str, command: str, named: str) -> RecordedNode:
    sections = [f"/usr/bin/lspci -nn\n\n{text}\n"] if named else []
    return read_bug_report(HEAD + "".join(f"{LINE}\n\n{part}\n" for part in [*sections, f"{command}\n\n{text}\n"]))


@pytest.mark.parametrize("name", _names("lspci", "*.txt"))
def test_lspci_text_goes_through_the_readers_of_bug_reports(name: str, corpus: Path) -> None:
    text = (corpus / "lspci" / name).read_text("utf-8", "backslashreplace")
    functions = from_names(text)
    detailed = {
        address: block for address, block in blocks(text).items() if re.search(r"\n\s+(Flags|Control):", block.text)
    }
    node = _as_report(text, "/usr/bin/lspci -nnDvvvxxx", "-nn" if functions else "")
    report = diagnose(node)
    assert crashed(report) == []
    assert set(_listed(node)) == set(functions)
    _compare(node, functions, detailed)
    gpus = [
        address
        for address, found in sorted(functions.items())
        if (found.vendor, found.class_code[:2]) == ("10de", "03")
    ]
    assert [gpu.address for gpu in report.node.gpus] == gpus
    line = next(line for line in manifest(corpus, "lspci") if line.path == f"lspci/{name}")
    if line.healthy or name in NOT_SHOWN_BY_LSPCI:
        assert failed_roots(report) == []
    if not functions:
        assert report.result("pcie.gpus-present").why == "not-recorded"


def test_lspci_pieces_that_show_their_machines_fault(corpus: Path) -> None:
    """The pieces with ids; of the others nothing but the driver in use can be read, and it belongs to no known function."""
    for name, words in {"a5000-nouveau-no-module": "nouveau", "vm-2xa6000-2x3090-not-loaded": "no driver"}.items():
        text = (corpus / "lspci" / f"{name}.txt").read_text("utf-8")
        modules = (corpus / "procfs" / f"{name}.proc-modules.txt").read_text("utf-8")
        node = read_bug_report(
            f"{HEAD}{LINE}\n\n/usr/bin/lspci -nn\n\n{text}\n{LINE}\n\n/usr/bin/lspci -nnDvvvxxxx\n\n{text}\n"
            f"{LINE}\n\n*** /proc/modules\n*** ls: -r--r--r-- 1 root root 0 /proc/modules\n{modules}\n"
        )
        report = diagnose(node)
        assert [check for check, _ in failed_roots(report)] == ["kernel-module.gpu-bound"]
        assert words in report.root_causes[0].summary


# Machine trees ----------------------------------------------------------------------------------------------------


def test_every_machine_tree_that_is_not_healthy_is_spoken_of(corpus: Path) -> None:
    lines = manifest(corpus, "machine-tree")
    wrong = {Path(line.path).name.removesuffix(".tar.gz") for line in lines if not line.healthy}
    assert wrong == set(SICK) | set(NOT_SHOWN) and not set(SICK) & set(NOT_SHOWN)
    assert len(lines) >= 19


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_tree_gets_the_root_cause_that_it_shows(name: str, corpus: Path) -> None:
    report = diagnose(machine_node(machine(corpus / "machine-tree" / f"{name}.tar.gz")))
    assert crashed(report) == []
    assert len(report.node.gpus) >= 1
    if name in SICK:
        check, words = SICK[name]
        assert [found for found, _ in failed_roots(report)] == [check]
        assert words in report.root_causes[0].summary
    else:
        assert failed_roots(report, LOWER) == []
    if name not in SICK and name not in NOT_SHOWN:
        assert report.root_causes == ()


@pytest.mark.parametrize("name", MACHINES)
def test_a_whole_bug_report_and_its_machine_tree_are_diagnosed_alike(name: str, corpus: Path) -> None:
    """The report goes through gpudoctor's reader, the tree through the registers that lspci printed."""
    tree = diagnose(machine_node(machine(corpus / "machine-tree" / f"{name}.tar.gz")))
    report = diagnose(open_bug_report(corpus / "bug-report" / f"{name}.log.gz"))
    assert [gpu.address for gpu in tree.node.gpus] == [gpu.address for gpu in report.node.gpus]
    assert failed_roots(tree) == failed_roots(report)


def test_pci_functions_of_bug_reports_agree_with_the_registers_that_lspci_printed(corpus: Path) -> None:
    """`lspci -nn` through gpudoctor, held against the bytes of configuration space in `lspci -xxx` of the same machine."""
    machines = functions = gpus = 0
    for name in MACHINES:
        tree = machine(corpus / "machine-tree" / f"{name}.tar.gz")
        node = open_bug_report(corpus / "bug-report" / f"{name}.log.gz")
        verbose = blocks(tree.verbose)
        registers = {address: found for address, block in verbose.items() if (found := from_config(block)) is not None}
        assert len(registers) == len(verbose), name
        functions += _compare(node, registers, verbose)
        # Older lspci cuts a long name, and the ids behind it, off: such a line ends in `[8086... (rev 02)`.
        cut = blocks(tree.names).keys() - from_names(tree.names).keys()
        assert all(re.search(r"\[(?!10de)\w{4}\.\.\. ", blocks(tree.names)[address].text) for address in cut), name
        assert set(_listed(node)) | cut == set(blocks(tree.names)) and set(_listed(node)) >= set(registers), name
        display = [
            found for found in registers.values() if found.vendor == "10de" and found.class_code.startswith("03")
        ]
        population = fact(node, PciGpus)
        assert population.unlisted is None, name
        assert {found.address for found in display} == {gpu.address for gpu in population}, name
        machines, gpus = machines + 1, gpus + len(display)
    assert machines >= 15 and functions >= 800 and gpus >= 40, (machines, functions, gpus)


def test_gpus_that_the_driver_lists_in_proc_are_those_it_holds_on_the_bus(corpus: Path) -> None:
    """procfs and sysfs of one machine; trees without the folder, because no driver was loaded or it was not collected, say nothing."""
    compared = 0
    for name in MACHINES:
        tree = machine(corpus / "machine-tree" / f"{name}.tar.gz")
        listed = {
            path.split("/")[5] for path in tree.files if re.match("/proc/driver/nvidia/gpus/.*/information", path)
        }
        if listed:
            held = {gpu.address for gpu in fact(machine_node(tree), PciGpus) if gpu.driver == "nvidia"}
            assert held == listed, name
            compared += 1
    assert compared >= 10


def test_links_of_real_machines_are_followed_to_the_root_port_and_none_is_accused(corpus: Path) -> None:
    """Widths as both ends' registers hold them; the place of each function from the bus numbers in its bridges' registers."""
    judged = 0
    for name in MACHINES:
        tree = machine(corpus / "machine-tree" / f"{name}.tar.gz")
        verbose, node = blocks(tree.verbose), machine_node(tree)
        result = diagnose(node).result("pcie.link-width")
        asleep = {gpu.address for gpu in fact(node, PciGpus) if gpu.runtime_status == "suspended"}
        assert result.status in (Status.PASS, Status.SKIP, *((Status.UNKNOWN,) if asleep else ())), (
            name,
            result.detail,
        )
        for address, links in fact(node, GpuLinks).by_address.items():
            assert isinstance(links, Unread) == (address in asleep)
            if not isinstance(links, Unread) and links:
                assert links[0].below.current_width == verbose[address].width("LnkSta"), (name, address)
                assert links[0].allowed_width == links[0].below.current_width, (name, address)
                judged += 1
    assert judged >= 20


def test_every_gpu_whose_registers_were_printed_is_known_to_answer(corpus: Path) -> None:
    """But for those that were known to sleep: lspci may have woken them up for a moment."""
    for name in MACHINES:
        node = machine_node(machine(corpus / "machine-tree" / f"{name}.tar.gz"))
        states = fact(node, PciStates).by_address
        for gpu in fact(node, PciGpus):
            if gpu.runtime_status != "suspended":
                assert states[gpu.address].responds is True, (name, gpu.address)


# procfs -----------------------------------------------------------------------------------------------------------


def _procfs_node(text: str) -> tuple[RecordedNode, dict[str, str]]:
    """Files joined under lines `==> PATH <==`; each GPU's folder makes a function, since facts are asked by GPU."""
    parts = re.split(r"^==> (/\S+) <==\n", text, flags=re.MULTILINE)
    files = dict(zip(parts[1::2], parts[2::2], strict=True))
    builder = Builder()
    builder.tree.put(DEVICES, Record(entry=Entry(DEVICES, EntryType.DIR)))
    for path, content in files.items():
        builder.text(path, content)
        if found := re.match(r"/proc/driver/nvidia/gpus/([^/]+)/information", path):
            for name, value in (("vendor", "0x10de"), ("class", "0x030000"), ("device", "0x0000")):
                builder.text(f"{DEVICES}/{found[1]}/{name}", f"{value}\n")
    return RecordedNode(builder.tree, complete=(DEVICES,)), files


@pytest.mark.parametrize("name", _names("procfs", "*.proc-modules.txt"))
def test_proc_modules(name: str, corpus: Path) -> None:
    text = (corpus / "procfs" / name).read_text("utf-8")
    builder = Builder()
    builder.text("/proc/modules", text)
    node = RecordedNode(builder.tree)
    loaded = re.search(r"^nvidia \d+ \d+ \S+ Live ", text, re.MULTILINE) is not None
    assert fact(node, NvidiaModule).loaded is loaded
    line = next(line for line in manifest(corpus, "procfs") if line.path == f"procfs/{name}")
    assert loaded is (re.match(r"\d", line.driver) is not None), line.driver
    assert crashed(diagnose(node)) == []


@pytest.mark.parametrize("name", _names("procfs", "*.proc-driver-nvidia.txt"))
def test_proc_driver_nvidia(name: str, corpus: Path) -> None:
    text = (corpus / "procfs" / name).read_text("utf-8")
    node, files = _procfs_node("==> /proc/modules <==\nnvidia 1 0 - Live 0x0\n" + text)
    line = next(line for line in manifest(corpus, "procfs") if line.path == f"procfs/{name}")
    module = fact(node, NvidiaModule)
    assert module.version == line.driver.split()[0]
    # The MANIFEST calls this one open; its own first line, and the licence in its kernel log, say proprietary.
    assert module.is_open is ("open" in line.driver and not name.startswith("3090-xid56"))
    gpus = fact(node, DriverGpus).gpus
    assert set(gpus) == {path.split("/")[5] for path in files if path.endswith("/information")}
    for address, gpu in gpus.items():
        fields = dict(
            re.findall(r"^([\w ]+):[ \t]*(.*)$", files[f"/proc/driver/nvidia/gpus/{address}/information"], re.MULTILINE)
        )
        if "Device Minor" in fields:
            assert isinstance(gpu, DriverGpu)
            assert (gpu.minor, gpu.initialised) == (int(fields["Device Minor"]), "?" not in fields["Video BIOS"])
            assert gpu.model in (None, fields["Model"]) and gpu.uuid in (None, fields["GPU UUID"])
    if (params := files.get("/proc/driver/nvidia/params")) is not None:
        assert len(fact(node, DriverParameters).values) == len([line for line in params.splitlines() if ": " in line])
    assert crashed(diagnose(node)) == []


def test_an_old_drivers_information_without_a_minor_is_still_used(corpus: Path) -> None:
    text = (corpus / "procfs" / "titanx-2015.proc-driver-nvidia.txt").read_text("utf-8")
    (gpu,) = fact(_procfs_node(text)[0], DriverGpus).gpus.values()
    assert isinstance(gpu, DriverGpu) and gpu.initialised and gpu.model == "GeForce GTX TITAN X"


# Archives of sysfs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _names("sysfs-hwloc", "*.tar.bz2"))
def test_nvidia_display_functions_in_an_archive_of_sysfs(name: str, corpus: Path) -> None:
    """hwloc gathers what it needs. Only one of the four holds the PCI bus; the others must not be taken for nodes without GPUs."""
    archive = sysfs_archive(corpus / "sysfs-hwloc" / name)
    report = diagnose(archive.node)
    assert crashed(report) == []
    assert archive.has_bus is (name.startswith("40intel64"))
    if not archive.has_bus:
        assert report.result("pcie.gpus-present").why == "not-recorded" and report.root_causes == ()
        return
    for address in _listed(archive.node):
        found = from_config(Block(address, "00: " + archive.configs[address].hex(" ")))
        assert _function(archive.node, address) == found
    nvidia = [address for address, config in archive.configs.items() if config[:2] == b"\xde\x10" and config[11] == 3]
    assert [gpu.address for gpu in fact(archive.node, PciGpus)] == nvidia == []
    assert not any(root for root in failed_roots(report) if root[0] != "pcie.gpus-present")


# udev -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _names("udev", "*.txt"))
def test_udev_databases(name: str, corpus: Path) -> None:
    """A whole bus with the place of each function; MODALIAS names vendor, device and class once more."""
    node, aliases = udev_node((corpus / "udev" / name).read_text("utf-8"))
    assert len(aliases) >= 15 and set(_listed(node)) == set(aliases)
    named = {}
    for address, alias in aliases.items():
        parts = re.match(r"pci:v0000(\w{4})d0000(\w{4})sv\w{8}sd\w{8}bc(\w\w)sc(\w\w)i", alias)
        assert parts is not None
        named[address] = Function(address, (parts[3] + parts[4]).lower(), parts[1].lower(), parts[2].lower())
        assert _function(node, address) == named[address]
    gpus = fact(node, PciGpus)
    display = [
        address for address, found in named.items() if found.vendor == "10de" and found.class_code.startswith("03")
    ]
    assert sorted(display) == [gpu.address for gpu in gpus]
    assert len(gpus.gpus) == {"checkbox-NVIDIA_DGX_STATION.txt": 4, "checkbox-CAPTURE_METADATA_2.txt": 1}[name]
    report = diagnose(node)
    assert crashed(report) == []
    # A laptop whose NVIDIA GPU no driver held at that time is healthy for checkbox, and rightly accused here.
    held = {gpu.address for gpu in gpus if gpu.driver == "nvidia"}
    accused = {key for _, keys in failed_roots(report) for key in keys}
    assert accused == set(display) - held


def test_a_gpu_behind_switches_has_one_link_for_each_pair_of_neighbours(corpus: Path) -> None:
    node, _ = udev_node((corpus / "udev" / "checkbox-NVIDIA_DGX_STATION.txt").read_text("utf-8"))
    for address, links in fact(node, GpuLinks).by_address.items():
        entry = node.entry(f"{DEVICES}/{address}")
        assert isinstance(entry, Entry) and not isinstance(links, Unread)
        path = re.findall(r"/([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", entry.to or "")
        assert [(link.above.address, link.below.address) for link in links] == list(
            zip(path[::2], path[1::2], strict=True)
        )[::-1]
        assert len(links) >= 1
