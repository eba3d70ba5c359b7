"""Speeds of PCIe links and ACS on the way between GPUs: who is accused, by what words, and who never."""

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.registry import built_in
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status
from tests.captures import DEVICES, NOW, diagnose, fact, kept
from tests.switches import (
    ARM,
    GPUS,
    GUEST,
    OFF,
    ON,
    PLACES,
    PORTS,
    ROOT,
    SWITCH,
    UP,
    Machine,
    about,
    acs,
    both,
    config,
    link_speed,
    peer_traffic,
    roots,
    shown,
)

# pcie.peer-traffic ------------------------------------------------------------------------------------------------


def test_redirection_is_one_root_cause_and_names_port_peer_and_registers() -> None:
    report = diagnose(Machine(both(acs(ON))).node())
    assert roots(report) == [("pcie.peer-traffic", list(GPUS))]
    finding = about(report.result("pcie.peer-traffic"), GPUS[0])
    assert f"{PORTS[0]} sends its traffic to {GPUS[1]} below the same switch" in finding.summary
    assert f"{PORTS[0]}/config: ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+" in shown(finding.evidence)
    assert finding.remedies[0].run == tuple(f"setpci -s {port} ECAP_ACS+6.w=0000:000c" for port in PORTS)
    assert finding.remedies[1].run[0] == f"echo 'pci=disable_acs_redir={PORTS[0]};{PORTS[1]}'"
    assert any("nccl" in reference for reference in finding.references)


@pytest.mark.parametrize(
    ("registers", "status", "words"),
    [
        (acs(OFF), Status.PASS, "ReqRedir- CmpltRedir-"),
        (acs(0x04), Status.WARN, "ReqRedir+ CmpltRedir-"),
        (acs(0x08), Status.WARN, "ReqRedir- CmpltRedir+"),
        (acs(0x13), Status.PASS, "SrcValid+ TransBlk+ ReqRedir- CmpltRedir- UpstreamFwd+"),
        (acs(ON, capability=0x53), Status.PASS, "ReqRedir+"),
        (acs(ON | 0x40), Status.SKIP, "DirectTrans+"),
        (config((0x0001, bytes(40))), Status.PASS, "has no Access Control Services"),
        (config(), Status.PASS, "has no Access Control Services"),
    ],
)
def test_only_the_redirect_bits_in_force_count(registers: bytes, status: Status, words: str) -> None:
    result = peer_traffic(Machine(both(registers)).node())
    assert result.status is status and words in shown(about(result, GPUS[0]).evidence)


@pytest.mark.parametrize(
    ("registers", "why", "words"),
    [
        (acs(ON)[:64], "no-permission", "64 bytes"),
        (acs(ON)[:256], "unreadable", "cannot be reached"),
        (b"\xff" * 4096, "unreadable", "all ones"),
        (acs(ON)[:256] + b"\xff" * 3840, "unreadable", "cannot be reached"),
        (acs(ON)[:100], "unreadable", "length"),
    ],
)
def test_what_cannot_be_seen_is_not_claimed(registers: bytes, why: str, words: str) -> None:
    result = peer_traffic(Machine(both(registers)).node())
    assert (result.status, result.why) == (Status.UNKNOWN, why) and words in result.detail
    assert (about(result, GPUS[0]).would_need == "root") is (why == "no-permission")


def test_a_sleeping_port_and_one_above_a_mute_gpu_are_left_alone() -> None:
    asleep = Machine(both(acs(ON)))
    asleep.text(f"{SWITCH}/{PORTS[0]}/power/runtime_status", "suspended\n")
    node = asleep.node()
    finding = about(peer_traffic(node), GPUS[0])
    assert finding.why is not None and finding.why.value == "withheld"
    assert f"{DEVICES}/{PORTS[0]}/config" not in node.was_read and f"{DEVICES}/{PORTS[1]}/config" in node.was_read
    mute = Machine(both(acs(ON)))
    mute.text(f"{PLACES[PORTS[1]]}/config", kept(b"\xff" * 64))
    node = mute.node()
    result = peer_traffic(node)
    assert about(result, GPUS[1]).status is Status.UNKNOWN and about(result, GPUS[1]).caused_by != ()
    assert about(result, GPUS[0]).status is Status.WARN
    assert f"{DEVICES}/{PORTS[1]}/config" not in node.was_read


def _vfio_holds_one(box: Machine) -> None:
    box.gpu(GPUS[1], PLACES[PORTS[1]], driver="vfio-pci")


def _vfio_holds_a_network_card(box: Machine) -> None:
    box.link("/sys/module/vfio_pci/drivers/pci:vfio-pci", "../../../bus/pci/drivers/vfio-pci")
    box.link("/sys/bus/pci/drivers/vfio-pci/0000:41:00.2", "../../../../devices/pci0000:40/0000:40:01.0/0000:41:00.2")
    box.text("/sys/bus/pci/drivers/vfio-pci/new_id", "")


def _virtual_gpus(box: Machine) -> None:
    box.tree.put("/sys/module/nvidia_vgpu_vfio", Record(entry=Entry("/sys/module/nvidia_vgpu_vfio", EntryType.DIR)))


def _virtual_functions(box: Machine) -> None:
    box.text(f"{PLACES[PORTS[0]]}/sriov_numvfs", "16\n")


def _guest_by_flag(box: Machine) -> None:
    box.text("/proc/cpuinfo", GUEST)


def _guest_by_firmware(box: Machine) -> None:
    box.text("/sys/class/dmi/id/sys_vendor", "QEMU\n")


def _azure(box: Machine) -> None:
    box.text("/sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n")
    box.text("/sys/class/dmi/id/product_name", "Virtual Machine\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_vfio_holds_one, "held by vfio-pci"),
        (_vfio_holds_a_network_card, "gives devices to virtual machines"),
        (_virtual_gpus, "virtual GPUs"),
        (_virtual_functions, "virtual functions"),
        (_guest_by_flag, "in a virtual machine"),
        (_guest_by_firmware, "in a virtual machine"),
        (_azure, "in a virtual machine"),
    ],
)
def test_where_devices_must_be_kept_apart_redirection_is_no_fault(change: object, words: str) -> None:
    assert callable(change)
    box = Machine(both(acs(ON)))
    change(box)
    result = peer_traffic(box.node())
    assert (result.status, result.why) == (Status.SKIP, "not-applicable") and words in result.detail


def test_a_machine_that_its_firmware_calls_virtual_is_not_looked_into() -> None:
    node = Machine(both(acs(ON)), vendor="Amazon EC2").node()
    assert peer_traffic(node).status is Status.SKIP
    assert not any(f"{port}/config" in path for path in node.was_read for port in PORTS)
    assert "/proc/cpuinfo" not in node.was_read
    metal = Machine(both(acs(ON)), vendor="Amazon EC2")
    metal.text("/sys/class/dmi/id/product_name", "g4dn.metal\n")
    assert peer_traffic(metal.node()).status is Status.WARN


def test_without_knowing_that_it_is_bare_metal_nobody_is_accused() -> None:
    box = Machine(both(acs(ON)))
    box.hide("/proc/cpuinfo")
    assert peer_traffic(box.node()).why == "no-permission"
    arm = Machine(both(acs(ON)), cpu=ARM)
    assert peer_traffic(arm.node()).status is Status.WARN
    arm.hide("/sys/class/dmi/id/sys_vendor", "ENOENT")
    assert peer_traffic(arm.node()).why == "not-answered"
    listing = Machine(both(acs(ON)))
    listing.hide("/sys/module/vfio_pci")
    assert peer_traffic(listing.node()).why == "no-permission"


def test_a_healthy_node_costs_no_look_for_reasons() -> None:
    node = Machine().node()
    report = run(node, Config(), built_in(), Selection(checks=("pcie.peer-traffic",)), NOW)
    assert report.result("pcie.peer-traffic").status is Status.PASS
    assert not node.was_read & {"/proc/cpuinfo", f"{DEVICES}/{GPUS[0]}/sriov_numvfs"}
    assert f"{DEVICES}/{UP}/config" not in node.was_read and f"{DEVICES}/{ROOT}/config" not in node.was_read


def test_a_gpu_alone_below_its_switch_has_no_peer_and_its_port_is_not_read() -> None:
    box = Machine(both(acs(ON)))
    del box.tree.records[f"{DEVICES}/{GPUS[1]}"]
    box.tree.children[DEVICES].discard(GPUS[1])
    node = box.node()
    result = peer_traffic(node)
    assert result.why == "not-applicable" and f"{DEVICES}/{PORTS[0]}/config" not in node.was_read
    hidden = Machine(both(acs(ON)))
    hidden.hide(f"{DEVICES}/{GPUS[1]}")
    assert peer_traffic(hidden.node()).status is Status.UNKNOWN


def test_below_nested_switches_only_the_port_where_ways_part_counts() -> None:
    """The second GPU moves behind a switch of its own, whose inner port redirects: its traffic goes up from there anyway."""
    inner_up, inner = "0000:2a:00.0", "0000:2b:00.0"
    box = Machine({PORTS[0]: acs(OFF), PORTS[1]: acs(OFF)})
    place = PLACES[PORTS[1]]
    box.port(inner_up, place, acs(ON))
    box.port(inner, f"{place}/{inner}", acs(ON))
    box.gpu("0000:2c:00.0", f"{place}/{inner}/0000:2c:00.0")
    node = box.node()
    assert {gpu.address for gpu in fact(node, PciGpus)} == {GPUS[0], "0000:2c:00.0"}
    result = peer_traffic(node)
    assert result.status is Status.PASS and f"{DEVICES}/{inner}/config" not in node.was_read
    box.text(f"{SWITCH}/{PORTS[1]}/config", kept(acs(ON)))
    result = peer_traffic(box.node())
    assert about(result, "0000:2c:00.0").status is Status.WARN and about(result, GPUS[0]).status is Status.PASS


@pytest.mark.parametrize(("kind", "told"), [("DMA", True), ("DMA-FQ", True), ("identity", False)])
def test_an_iommu_that_translates_is_told(kind: str, told: bool) -> None:
    box = Machine(both(acs(ON)))
    box.link(f"{PLACES[PORTS[0]]}/iommu_group", "../../../../../../kernel/iommu_groups/17")
    box.text("/sys/kernel/iommu_groups/17/type", f"{kind}\n")
    finding = about(peer_traffic(box.node()), GPUS[0])
    assert (f"/sys/kernel/iommu_groups/17/type: {kind}" in shown(finding.evidence)) is told
    assert ("CUDA does not support" in finding.remedies[-1].say) is told


# pcie.link-speed --------------------------------------------------------------------------------------------------


def test_full_speed_passes_with_what_it_was_compared_with() -> None:
    result = link_speed(Machine().node())
    assert result.status is Status.PASS and about(result, GPUS[0]).summary == "16 GT/s"
    seen = shown(about(result, GPUS[0]).evidence)
    for address in (GPUS[0], UP):
        assert f"{DEVICES}/{address}/current_link_speed: 16.0 GT/s PCIe" in seen
    for address in (GPUS[0], PORTS[0], UP, ROOT):
        assert f"{DEVICES}/{address}/max_link_speed: 16.0 GT/s PCIe" in seen


@pytest.mark.parametrize("forms", [("2.5 GT/s PCIe", "16.0 GT/s PCIe"), ("2.5 GT/s", "16 GT/s")])
def test_an_idle_gpus_own_link_says_nothing(forms: tuple[str, str]) -> None:
    box = Machine()
    for port, gpu in zip(PORTS, GPUS, strict=True):
        box.speeds(gpu, PLACES[port], *forms)
    result = link_speed(box.node())
    assert (result.status, result.why) == (Status.SKIP, "not-applicable")
    assert "2.5 of 16 GT/s" in about(result, GPUS[0]).summary


@pytest.mark.parametrize(
    ("current", "most", "port", "words"),
    [
        ("8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "8 of 16 GT/s"),
        ("8 GT/s", "16 GT/s", "16 GT/s", "8 of 16 GT/s"),
        ("2.5 GT/s PCIe", "64.0 GT/s PCIe", "32.0 GT/s PCIe", "2.5 of 32 GT/s"),
    ],
)
def test_a_slow_uplink_is_one_root_cause_with_both_ends(current: str, most: str, port: str, words: str) -> None:
    box = Machine()
    box.speeds(UP, SWITCH, current, most)
    box.speeds(ROOT, SWITCH.rpartition("/")[0], current, port)
    box.speeds(GPUS[1], PLACES[PORTS[1]], "2.5 GT/s PCIe", "16.0 GT/s PCIe")
    log = (
        f"[    2.100000] pci {GPUS[0]}: 126.0 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x16 link at {ROOT}\n"
        f"[    2.200000] pci {GPUS[1]}: 126.0 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x16 link at {ROOT}\n"
    )
    report = diagnose(box.node(log))
    assert roots(report) == [("pcie.link-speed", list(GPUS))]
    finding = about(report.result("pcie.link-speed"), GPUS[0])
    assert finding.summary == f"the link {ROOT} to {UP} runs at {words}"
    seen = shown(finding.evidence)
    assert f"{UP}/current_link_speed: {current}" in seen and f"{ROOT}/max_link_speed: {port}" in seen
    assert f"pci {GPUS[0]}: 126.0" in seen and f"pci {GPUS[1]}: 126.0" not in seen
    assert [remedy.action.value for remedy in finding.remedies] == ["none", "change-config", "inspect-hardware"]


def test_an_old_root_port_limits_what_is_expected() -> None:
    box = Machine()
    box.speeds(UP, SWITCH, "8.0 GT/s PCIe", "16.0 GT/s PCIe")
    box.speeds(ROOT, SWITCH.rpartition("/")[0], "8.0 GT/s PCIe", "8.0 GT/s PCIe")
    assert link_speed(box.node()).status is Status.PASS


def _nested(current: tuple[str, str], lanes: tuple[int, int]) -> Machine:
    """A GPU below two switches, both of whose uplinks run slower than they could."""
    box = Machine()
    place = f"{PLACES[PORTS[1]]}/0000:2b:00.0/0000:2c:00.0"
    box.port(GPUS[1], PLACES[PORTS[1]], acs(OFF))
    box.port("0000:2b:00.0", place.rpartition("/")[0], acs(OFF))
    box.gpu("0000:2c:00.0", place)
    box.speeds(UP, SWITCH, current[0], "16.0 GT/s PCIe", lanes[0])
    box.speeds(GPUS[1], PLACES[PORTS[1]], current[1], "16.0 GT/s PCIe", lanes[1])
    return box


@pytest.mark.parametrize(
    ("current", "lanes", "narrowest"),
    [
        (("8.0 GT/s PCIe", "5.0 GT/s PCIe"), (16, 16), f"{PORTS[1]} to {GPUS[1]}"),
        (("5.0 GT/s PCIe", "8.0 GT/s PCIe"), (16, 16), f"{ROOT} to {UP}"),
        (("5.0 GT/s PCIe", "8.0 GT/s PCIe"), (16, 4), f"{PORTS[1]} to {GPUS[1]}"),
    ],
)
def test_of_two_slow_links_the_narrowest_is_named(
    current: tuple[str, str], lanes: tuple[int, int], narrowest: str
) -> None:
    finding = about(link_speed(_nested(current, lanes).node()), "0000:2c:00.0")
    assert finding.status is Status.WARN and narrowest in finding.summary
    for address in (UP, GPUS[1]):
        assert f"{address}/current_link_speed" in shown(finding.evidence)


def _slow() -> Machine:
    box = Machine()
    box.speeds(UP, SWITCH, "8.0 GT/s PCIe", "16.0 GT/s PCIe")
    return box


def _removable(box: Machine) -> None:
    for port in PORTS:
        box.text(f"{PLACES[port]}/removable", "removable\n")


def _unbound(box: Machine) -> None:
    for port, gpu in zip(PORTS, GPUS, strict=True):
        box.gpu(gpu, PLACES[port], driver=None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_guest_by_flag, "in a virtual machine"),
        (_guest_by_firmware, "in a virtual machine"),
        (_removable, "external port"),
        (_unbound, "no driver"),
    ],
)
def test_slow_links_that_prove_nothing(change: object, words: str) -> None:
    assert callable(change)
    box = _slow()
    change(box)
    result = link_speed(box.node())
    assert (result.status, result.why) == (Status.SKIP, "not-applicable") and words in result.detail


def test_a_slow_link_is_unknown_while_a_reason_for_it_may_be_hidden() -> None:
    box = _slow()
    box.hide("/proc/cpuinfo")
    assert link_speed(box.node()).why == "no-permission"
    box = _slow()
    box.hide(f"{PLACES[PORTS[0]]}/removable")
    result = link_speed(box.node())
    assert about(result, GPUS[0]).status is Status.UNKNOWN and about(result, GPUS[1]).status is Status.WARN


def test_a_port_that_says_less_than_its_link_does_is_not_believed() -> None:
    """QEMU's older root ports claim 2.5 GT/s x1 whatever is behind them."""
    box = Machine()
    for port in PORTS:
        box.speeds(port, PLACES[port].rpartition("/")[0], "2.5 GT/s PCIe", "2.5 GT/s PCIe")
    result = link_speed(box.node())
    assert result.why == "not-applicable" and "cannot be its own" in result.detail


@pytest.mark.parametrize(
    ("lanes", "port", "status", "words"),
    [
        ("8", "32", Status.SKIP, "tells a width that cannot be its own"),
        ("8", "1", Status.SKIP, "tells a width that cannot be its own"),
        ("32", "32", Status.SKIP, "tells a width that cannot be its own"),
        ("16", "32", Status.PASS, "16 lanes"),
        ("16", "1", Status.PASS, "16 lanes"),
        ("8", "16", Status.WARN, "8 of 16 lanes"),
    ],
)
def test_lanes_are_not_held_against_a_port_that_is_made_up(lanes: str, port: str, status: Status, words: str) -> None:
    """QEMU's root ports claim x32, older ones x1, whatever slot the GPU is in."""
    box = Machine()
    box.text(f"{PLACES[PORTS[0]]}/current_link_width", f"{lanes}\n")
    box.text(f"{SWITCH}/{PORTS[0]}/max_link_width", f"{port}\n")
    finding = about(diagnose(box.node()).result("pcie.link-width"), GPUS[0])
    assert finding.status is status and words in finding.summary


@pytest.mark.parametrize("text", ["Unknown", "Unknown speed", "", "255 GT/s PCIe", "16.0 GT/s PCIe x16"])
def test_a_speed_without_a_name_is_not_known(text: str) -> None:
    box = Machine()
    box.speeds(UP, SWITCH, text, "16.0 GT/s PCIe")
    result = link_speed(box.node())
    assert (result.status, result.why) == (Status.UNKNOWN, "unreadable") and "1 of 2 links" in result.detail


def test_ports_that_tell_no_speed_at_all_are_no_unknown() -> None:
    box = Machine()
    for path in [path for path in box.tree.records if path.endswith("_link_speed")]:
        box.hide(path, "ENOENT")
    assert link_speed(box.node()).why == "not-applicable"
