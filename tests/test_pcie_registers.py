"""Configuration space: bytes behind text, ACS and links against what lspci printed of real machines, traces of passthrough, sizes."""

import random
import re
from pathlib import Path

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.pci_config import SIZES, config_bytes, extended_capability, word
from gpudoctor.facts.pci_link import GpuLinks
from gpudoctor.facts.pci_passthrough import PassthroughTraces
from gpudoctor.facts.pci_peers import ACS, AccessControl, PeerPaths
from gpudoctor.facts.pci_state import PciStates
from gpudoctor.facts.raw import Entry, EntryType, TextFile
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.live import Live
from gpudoctor.sources.recorded import Record
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.verdicts import Status, Unread
from tests.captures import DEVICES, blocks, fact, kept, machine, machine_node, places
from tests.switches import GPUS, ON, PLACES, PORTS, Machine, about, acs, config, link_speed, peer_traffic, shown

# Bytes behind text ------------------------------------------------------------------------------------------------


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same bytes each time, no secret


@pytest.mark.parametrize("size", SIZES)
def test_bytes_come_back_exactly_from_the_text_that_stands_for_them(size: int) -> None:
    chance = _chance(size)
    for _ in range(50):
        content = chance.randbytes(size)
        assert config_bytes(kept(content)) == content
    assert config_bytes(kept(bytes(range(256)) * 16)) == bytes(range(256)) * 16


@pytest.mark.parametrize("size", SIZES)
def test_bytes_that_spell_an_escape_are_never_taken_for_the_byte_it_stands_for(size: int) -> None:
    chance = _chance(size)
    for count in range(1, size // 4, max(1, size // 256)):
        content = bytearray(chance.randbytes(size))
        for at in chance.sample(range(1, size // 4), count):
            content[4 * at : 4 * at + 4] = rb"\x" + f"{chance.randrange(128, 256):02x}".encode()
        assert config_bytes(kept(bytes(content))) is None
    assert config_bytes(kept(rb"\x41" + bytes(size - 4))) == rb"\x41" + bytes(size - 4)


def test_registers_survive_reading_recording_and_replaying(tmp_path: Path) -> None:
    root = tmp_path / "root"
    content = _chance(1).randbytes(4096)
    for top in ("proc", "dev", "sys/bus/pci/devices/0000:17:00.0"):
        (root / top).mkdir(parents=True)
    (root / "sys/bus/pci/devices/0000:17:00.0/config").write_bytes(content)
    recorder = Recorder(Live(Deadline(20.0), str(root)))
    path = f"{DEVICES}/0000:17:00.0/config"
    read, guarded = recorder.read(path), recorder.read_blocking((path,))[path]
    recorder.write(tmp_path / "snapshot", Config())
    replayed = open_snapshot(tmp_path / "snapshot").read(path)
    for file in (read, guarded, replayed):
        assert isinstance(file, TextFile) and config_bytes(file.text) == content


def test_a_list_of_capabilities_that_bites_its_tail_ends() -> None:
    content = bytearray(config((0x0001, b"")))
    content[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert extended_capability(bytes(content), ACS) is None
    assert extended_capability(config(), ACS) is None
    assert extended_capability(acs(ON), ACS) == 0x140


# ACS against lspci ------------------------------------------------------------------------------------------------


def _acs_line(text: str, register: str) -> str | None:
    found = re.search(rf"{register}:\s*((?:\w+[+-] ?)+)", text)
    return found[1].strip() if found else None


def _machines(corpus: Path) -> list[Path]:
    return sorted((corpus / "machine-tree").glob("*.tar.gz"))


def test_acs_registers_in_the_dumped_bytes_are_what_lspci_printed_of_them(corpus: Path) -> None:
    with_acs = without = on = 0
    for archive in _machines(corpus):
        for address, block in blocks(machine(archive).verbose).items():
            content = config_bytes(kept(block.config)) if block.config else None
            if content is None or len(content) < 4096:
                continue
            offset, printed = extended_capability(content, ACS), _acs_line(block.text, "ACSCtl")
            if printed is None:
                assert offset is None, (archive.name, address)
                without += 1
                continue
            assert offset is not None, (archive.name, address)
            assert f"[{offset:x} v1] Access Control Services" in block.text
            registers = AccessControl(offset, word(content, offset + 4), word(content, offset + 6))
            assert registers.words == printed
            capability = AccessControl(offset, 0, registers.capability).words
            assert capability == _acs_line(block.text, "ACSCap")
            with_acs, on = with_acs + 1, on + registers.redirects
    assert with_acs >= 70 and without >= 200 and on >= 30, (with_acs, without, on)


def test_real_switches_above_gpus_are_judged_by_their_own_registers(corpus: Path) -> None:
    """A workstation with two GPUs below one PLX switch and one below another; and chipset switches without ACS."""
    plx = machine_node(machine(corpus / "machine-tree" / "3xa6000-one-lost.tar.gz"))
    result = peer_traffic(plx)
    assert {finding.subject.key: finding.status for finding in result.findings} == {
        "0000:1a:00.0": Status.SKIP,
        "0000:67:00.0": Status.PASS,
        "0000:68:00.0": Status.PASS,
    }
    assert "0000:66:08.0/config: ACSCtl: SrcValid- TransBlk- ReqRedir-" in shown(about(result, "0000:67:00.0").evidence)
    chipset = machine_node(machine(corpus / "machine-tree" / "3x4070-xid79-two-lost.tar.gz"))
    paths = fact(chipset, PeerPaths)
    ports = {
        gpu: [port.address for port in found] for gpu, found in paths.ports.items() if not isinstance(found, Unread)
    }
    assert ports == {
        "0000:0a:00.0": ["0000:05:05.0", "0000:03:06.0"],
        "0000:0b:00.0": ["0000:05:06.0", "0000:03:06.0"],
        "0000:0f:00.0": ["0000:03:07.0"],
    }
    assert set(paths.controls.values()) == {None} and peer_traffic(chipset).status is Status.PASS


def test_links_above_switches_of_real_idle_machines_run_at_full_speed(corpus: Path) -> None:
    """While the GPUs' own links idle at 2.5 GT/s. Speeds from LnkCap and LnkSta, as the kernel would give them."""
    inner = idle = 0
    for archive in _machines(corpus):
        tree = machine(archive)
        node, verbose = machine_node(tree), blocks(tree.verbose)
        for address, place in places(verbose).items():
            for name, register in (("max", "LnkCap"), ("current", "LnkSta")):
                if speed := re.search(rf"{register}:.*?Speed ([\d.]+)GT/s", verbose[address].text):
                    path, text = f"{place}/{name}_link_speed", f"{float(speed[1])} GT/s PCIe\n"
                    node.tree.put(path, Record(entry=Entry(path, EntryType.FILE), text=text))
        result = link_speed(node)
        assert result.status in (Status.PASS, Status.SKIP, Status.UNKNOWN), (archive.name, result.detail)
        for links in fact(node, GpuLinks).by_address.values():
            for at, link in enumerate(() if isinstance(links, Unread) else links):
                inner += at > 0 and link.slow is False
                idle += at == 0 and link.slow is True
    assert inner >= 8 and idle >= 8, (inner, idle)


# Passthrough and sizes --------------------------------------------------------------------------------------------


def test_traces_of_a_gpu_held_for_a_virtual_machine() -> None:
    box = Machine()
    box.gpu(GPUS[1], PLACES[PORTS[1]], driver="vfio-pci")
    place = PLACES[PORTS[1]]
    box.text(f"{place}/driver_override", "vfio-pci\n")
    box.text(f"{place}/reset_method", "flr bus\n")
    box.text(f"{place}/sriov_totalvfs", "32\n")
    box.text(f"{place}/sriov_numvfs", "0\n")
    box.link(f"{place}/iommu_group", "../../../../../../kernel/iommu_groups/17")
    for address in (GPUS[1], "0000:2a:00.1"):
        box.link(f"/sys/kernel/iommu_groups/17/devices/{address}", f"../../../../devices/{address}")
    node = box.node()
    traces = fact(node, PassthroughTraces)
    trace = traces.by_address[GPUS[1]]
    assert (trace.override, trace.group, trace.companions) == ("vfio-pci", 17, ("0000:2a:00.1",))
    assert (trace.reset_methods, trace.virtual_functions, trace.most_virtual_functions) == (("flr", "bus"), 0, 32)
    told = shown(traces.about(GPUS[1]))
    assert "driver_override: vfio-pci" in told and "0000:2a:00.1 in the same group" in told and "flr bus" in told
    assert set(traces.by_address) == {GPUS[1]} and traces.about(GPUS[0]) == ()


def test_traces_that_are_not_there_say_nothing() -> None:
    box = Machine()
    box.gpu(GPUS[1], PLACES[PORTS[1]], driver=None)
    box.text(f"{PLACES[PORTS[1]]}/driver_override", "(null)\n")
    box.hide(f"{PLACES[PORTS[1]]}/reset_method")
    traces = fact(box.node(), PassthroughTraces)
    trace = traces.by_address[GPUS[1]]
    assert (trace.override, trace.group, trace.companions, trace.virtual_functions) == (None, None, (), None)
    assert isinstance(trace.reset_methods, Unread) and traces.about(GPUS[1]) == ()


def test_a_node_whose_gpus_are_all_in_use_costs_no_read_of_traces() -> None:
    node = Machine().node()
    assert fact(node, PassthroughTraces).by_address == {}
    names = ("driver_override", "reset_method", "sriov_numvfs", "sriov_totalvfs")
    assert not [path for path in node.was_read if path.endswith(names)]


def test_the_size_of_a_region_is_counted_in_bytes() -> None:
    box = Machine()
    lines = (
        "0x00000000fa000000 0x00000000faffffff 0x0000000000040200",
        "0x0 0x0 0x0",
        "0x10000000000 0x11fffffffff 0x14220c",
    )
    box.text(f"{PLACES[PORTS[0]]}/resource", "\n".join(lines) + "\n")
    regions = fact(box.node(), PciStates).by_address[GPUS[0]].regions
    assert isinstance(regions, tuple)
    assert [region.size for region in regions] == [16 << 20, 0, 128 << 30]
