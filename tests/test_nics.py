"""Network adapters beside GPUs: ports that are down, slow or wait for a subnet manager, links that gather errors, device nodes."""

import pytest

from gpudoctor.report import Finding
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status
from tests.rail_node import ADAPTERS, BUSES, GPUS, NAMES, RailNode
from tests.small_node import cited, steps

PORTS, ERRORS, NODES = "topology.nic-ports", "topology.nic-errors", "topology.infiniband-nodes"
CHECKS = (PORTS, ERRORS, NODES)


def statuses(machine: RailNode, check: str) -> set[Status]:
    """How its findings ended."""
    return {finding.status for finding in machine.findings(check)}


def about(machine: RailNode, check: str, key: str) -> Finding:
    """Its finding about one adapter."""
    return next(finding for finding in machine.findings(check) if finding.subject.key == key)


def test_eight_rails_that_are_well() -> None:
    machine = RailNode()
    assert machine.alarmed() == []
    assert all(statuses(machine, check) == {Status.PASS} for check in CHECKS)
    first = machine.findings(PORTS)[0]
    assert first.subject.id == "nic:mlx5_0" and "up at 400 Gb/s; 16 lanes on PCIe" in first.summary


def test_without_adapters_there_is_nothing_to_say() -> None:
    machine = RailNode(rails=())
    machine.tree.put("/sys/class/infiniband", Record(error="ENOENT"))
    assert machine.alarmed() == []
    assert all(machine.report().result(check).status is Status.SKIP for check in CHECKS)


# Ports -----------------------------------------------------------------------------------------------------------------


def test_one_port_of_eight_is_down() -> None:
    machine = RailNode().down(3)
    machine.log = f"[    8.0] mlx5_core {ADAPTERS[3]}: Port module event: module 0, Cable unplugged\n"
    (finding,) = machine.warned(PORTS)
    assert finding.subject.key == "mlx5_3" and "Polling" in finding.summary and GPUS[3] in finding.summary
    assert "Cable unplugged" in cited(finding) and "mlx5_0/ports/1/state 4: ACTIVE" in cited(finding)
    assert machine.alarmed() == [finding.id]
    assert "rdma link show mlx5_3/1" in steps(finding)


def test_an_interface_may_not_be_switched_on() -> None:
    (finding,) = RailNode(layer="Ethernet").port(3, state="1: DOWN", phys_state="3: Disabled").warned(PORTS)
    assert "ip link set dev NAME up" in steps(finding)
    assert "ip link" not in steps(RailNode().down(3).warned(PORTS)[0])


def test_ports_that_are_all_down_are_not_in_use() -> None:
    machine = RailNode()
    for at in range(8):
        machine.down(at)
    assert machine.alarmed() == []
    assert all("nor is any port of its kind in use" in finding.summary for finding in machine.findings(PORTS))


def test_half_of_the_ports_in_use_accuse_nobody() -> None:
    machine = RailNode()
    for at in range(4):
        machine.down(at)
    assert machine.alarmed() == []
    # Of two adapters of a kind one may be a spare.
    assert RailNode(rails=(0, 1)).down(1).alarmed() == []


def test_another_function_of_a_card_and_another_card_are_put_to_other_uses() -> None:
    machine = RailNode()
    second = machine.adapter(0, "mlx5_8", ADAPTERS[0].replace(".0", ".1"))
    other = machine.place(second)
    machine.text(f"{other}/infiniband/mlx5_8/ports/1/state", "1: DOWN\n")
    machine.adapter(1, "mlx5_9", "0000:25:00.0")
    place = machine.place("0000:25:00.0")
    machine.text(f"{place}/infiniband/mlx5_9/board_id", "MT_0000000359\n")
    machine.text(f"{place}/infiniband/mlx5_9/ports/1/rate", "200 Gb/sec (4X HDR)\n")
    assert machine.alarmed() == []


def test_virtual_functions_are_left_alone() -> None:
    machine = RailNode()
    for at in range(1, 4):
        address = machine.adapter(0, f"mlx5_{7 + at}", ADAPTERS[0].replace(".0", f".{at}"))
        machine.link(f"{machine.place(address)}/physfn", f"../{ADAPTERS[0]}")
        machine.text(f"{machine.place(address)}/infiniband/mlx5_{7 + at}/ports/1/state", "1: DOWN\n")
    assert machine.alarmed() == []


def test_planes_and_subfunctions_of_an_adapter_follow_it() -> None:
    """Each plane of ConnectX-8 has one lane; a subfunction nobody uses is down."""
    machine = RailNode()
    place = machine.place(ADAPTERS[2])
    planes = {"state": "4: ACTIVE", "rate": "200 Gb/sec (1X XDR)", "link_layer": "InfiniBand"}
    unused = {"state": "1: DOWN", "rate": "10 Gb/sec (4X SDR)", "link_layer": "InfiniBand"}
    for name, below, ports, told in (("smi0", "", 4, planes), ("mlx5_9", "mlx5_core.sf.4/", 1, unused)):
        folder = f"{place}/{below}infiniband/{name}"
        machine.link(f"/sys/class/infiniband/{name}", f"../../{folder.removeprefix('/sys/')}")
        machine.text(f"{folder}/board_id", "MT_0000000838\n")
        for number in range(1, ports + 1):
            for file, value in told.items():
                machine.text(f"{folder}/ports/{number}/{file}", f"{value}\n")
    assert machine.alarmed() == []
    for check in (PORTS, ERRORS):
        finding = about(machine, check, "smi0")
        assert finding.status is Status.SKIP and "mlx5_2" in finding.summary
    assert [one.subject.key for one in machine.down(2).warned(PORTS)] == ["mlx5_2"]


def test_nothing_is_read_of_hundreds_of_virtual_functions() -> None:
    machine = RailNode()
    for at in range(100):
        address = machine.adapter(0, f"mlx5_{at + 8}", f"0000:13:{1 + at // 8:02x}.{at % 8}")
        machine.link(f"{machine.place(address)}/physfn", f"../{ADAPTERS[0]}")
        for path in [path for path in machine.tree.records if f"mlx5_{at + 8}/ports/1/" in path]:
            machine.hidden(path)
    # In the order of their names the last physical adapter comes after all of them.
    address = machine.adapter(7, "mlx5_500", "0000:b5:00.0")
    machine.text(f"{machine.place(address)}/infiniband/mlx5_500/ports/1/state", "1: DOWN\n")
    assert [one.subject.key for one in machine.warned(PORTS)] == ["mlx5_500"]
    assert {one.status for one in machine.findings(PORTS)} == {Status.PASS, Status.SKIP, Status.WARN}


def test_equal_cards_that_are_far_from_all_gpus_are_put_to_other_uses() -> None:
    machine = RailNode()
    root = "0000:c0:01.0"
    machine.put(root, f"/sys/devices/pci0000:c0/{root}", "pcieport", 1, vendor="0x1000", **{"class": "0x060400"})
    address = machine.adapter(7, "mlx5_8", "0000:c1:00.0", below=machine.place(root))
    place = f"{machine.place(address)}/infiniband/mlx5_8/ports/1"
    for name, value in {"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "10 Gb/sec (4X SDR)"}.items():
        machine.text(f"{place}/{name}", f"{value}\n")
    assert machine.alarmed() == []
    machine.text(f"{place}/state", "4: ACTIVE\n")
    machine.text(f"{place}/rate", "200 Gb/sec (4X HDR)\n")
    assert machine.alarmed() == []


def test_a_name_of_thousands_of_digits_is_a_name() -> None:
    machine = RailNode()
    name = f"mlx5_{'9' * 5000}"
    below = f"{machine.place(ADAPTERS[0]).removeprefix('/sys/')}/infiniband/{name}"
    machine.link(f"/sys/class/infiniband/{name}", f"../../{below}")
    assert {one.status for one in machine.findings(PORTS)} == {Status.PASS}


def broadcom() -> RailNode:
    """Four adapters and one of another chip, each at a root port of its own: bnxt_re calls all its chips alike."""
    machine = RailNode(rails=(), layer="Ethernet")
    for at in range(5):
        root, address = f"0000:c{at}:01.0", f"0000:c{at + 5}:00.0"
        machine.put(root, f"/sys/devices/pci0000:c{at}/{root}", "pcieport", 1, **{"class": "0x060400"})
        machine.adapter(7, NAMES[at], address, layer="Ethernet", below=machine.place(root))
        folder = f"{machine.place(address)}/infiniband/{NAMES[at]}"
        machine.tree.put(f"{folder}/board_id", Record(error="ENOENT"))
        machine.text(f"{folder}/hca_type", "Broadcom NetXtreme-C/E RoCE Driver HCA\n")
        machine.function_file(address, device="0x1760" if at < 4 else "0x16d7")
    return machine


def changed(machine: RailNode, at: int, **files: str) -> RailNode:
    """Other words in the files of the port of one of these adapters."""
    for name, value in files.items():
        machine.text(f"{machine.place(f'0000:c{at + 5}:00.0')}/infiniband/{NAMES[at]}/ports/1/{name}", f"{value}\n")
    return machine


DOWN_AND_SLOW = ({"state": "1: DOWN", "rate": "10 Gb/sec (4X SDR)"}, {"rate": "25 Gb/sec (1X EDR)"})


@pytest.mark.parametrize("files", DOWN_AND_SLOW)
def test_chips_that_their_driver_calls_alike_are_no_peers(files: dict[str, str]) -> None:
    assert changed(broadcom(), 4, **files).warned(PORTS) == []
    assert [one.subject.key for one in changed(broadcom(), 3, **files).warned(PORTS)] == ["mlx5_3"]
    unseen = changed(broadcom(), 4, **files)
    for at in range(5):
        unseen.hidden(f"{unseen.place(f'0000:c{at + 5}:00.0')}/device")
    assert unseen.warned(PORTS) == []


def test_a_link_without_a_subnet_manager_is_no_matter_of_the_cable() -> None:
    (finding,) = RailNode().port(5, state="2: INIT", lid="0xffff").warned(PORTS)
    assert finding.subject.key == "mlx5_5" and "INIT" in finding.summary and "subnet manager" in finding.summary
    assert "sminfo -C mlx5_5 -P 1" in steps(finding) and "cable, clean" not in steps(finding)
    every = RailNode()
    for at in range(8):
        every.port(at, state="2: INIT")
    assert len(every.warned(PORTS)) == 8
    assert [len(cause.subjects) for cause in every.report().root_causes if cause.check == PORTS] == [8]


def test_ethernet_waits_for_no_subnet_manager() -> None:
    assert RailNode(layer="Ethernet").port(5, state="2: INIT").alarmed() == []


def test_a_node_that_has_just_started_is_left_alone() -> None:
    machine = RailNode().down(3).port(5, state="2: INIT")
    machine.text("/proc/uptime", "90.00 100.00\n")
    assert machine.warned(PORTS) == []


def test_in_the_first_minutes_a_port_that_is_down_is_not_called_well() -> None:
    machine = RailNode().down(3)
    machine.text("/proc/uptime", "90.00 100.00\n")
    finding = about(machine, PORTS, "mlx5_3")
    assert finding.status is Status.SKIP and "the node has just started" in finding.summary
    assert about(machine, PORTS, "mlx5_2").status is Status.PASS


def with_ports(machine: RailNode, at: int, count: int) -> str:
    """An adapter in switchdev mode, all ports up; gives the folder of its ports."""
    folder = f"{machine.place(ADAPTERS[at])}/infiniband/{NAMES[at]}/ports"
    for number in range(2, count + 1):
        for name, value in {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet"}.items():
            machine.text(f"{folder}/{number}/{name}", f"{value}\n")
    return folder


def test_in_switchdev_mode_the_port_of_an_unused_virtual_function_is_down() -> None:
    machine = RailNode(layer="Ethernet")
    folders = [with_ports(machine, at, 5) for at in range(8)]
    machine.text(f"{folders[7]}/4/state", "1: DOWN\n")
    assert machine.alarmed() == []
    assert len(machine.findings(PORTS)) == 40


def test_many_ports_of_one_adapter_leave_room_for_the_others() -> None:
    machine = RailNode()
    with_ports(machine, 0, 100)
    assert {one.subject.key for one in machine.down(5).findings(PORTS)} >= set(NAMES)
    assert [one.subject.key for one in machine.warned(PORTS)] == ["mlx5_5"]


def test_a_port_at_half_the_rate_of_its_peers() -> None:
    (finding,) = RailNode().port(6, rate="200 Gb/sec (2X NDR)").warned(PORTS)
    assert finding.subject.key == "mlx5_6" and "runs at 200 Gb/s" in finding.summary and "at 400" in finding.summary
    assert "200 Gb/sec (2X NDR)" in cited(finding)


def test_one_lane_of_infiniband_is_a_fault_even_alone() -> None:
    machine = RailNode(rails=(0,), gpus=8).port(0, rate="100 Gb/sec (1X NDR)")
    (finding,) = machine.warned(PORTS)
    assert "one lane" in finding.summary
    assert RailNode(rails=(0,), layer="Ethernet").port(0, rate="25 Gb/sec (1X EDR)").alarmed() == []


def test_the_pcie_link_of_an_adapter_lost_lanes() -> None:
    (finding,) = RailNode().function_file(ADAPTERS[4], current_link_width="8").warned(PORTS)
    assert finding.subject.key == "mlx5_4" and "8 of the 16 lanes" in finding.summary
    assert f"lspci -vv -s {ADAPTERS[4]}" in steps(finding)


def test_a_slot_with_eight_lanes_is_not_accused() -> None:
    port = f"0000:{BUSES[4][0]}2:00.0"
    machine = RailNode().function_file(ADAPTERS[4], current_link_width="8").function_file(port, max_link_width="8")
    assert machine.alarmed() == []


def test_the_speed_of_a_link_counts_where_it_is_real() -> None:
    slow = RailNode().function_file(ADAPTERS[4], current_link_speed="16.0 GT/s PCIe")
    (finding,) = slow.warned(PORTS)
    assert "16 of the 32 GT/s" in finding.summary
    slow.text("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    assert slow.alarmed() == []


@pytest.mark.parametrize("error", ["EACCES", "ENOENT"])
def test_a_port_that_cannot_be_seen_is_unknown(error: str) -> None:
    machine = RailNode()
    path = f"{machine.place(ADAPTERS[2])}/infiniband/{NAMES[2]}/ports/1/state"
    machine.tree.put(path, Record(error=error))
    unknown = [one.subject.key for one in machine.findings(PORTS) if one.status is Status.UNKNOWN]
    assert unknown == ["mlx5_2"] and machine.alarmed() == []


# Errors ----------------------------------------------------------------------------------------------------------------


def test_a_dirty_fibre() -> None:
    machine = RailNode().port(2, symbol_error="184203", link_error_recovery="370", port_rcv_errors="5120")
    (finding,) = machine.warned(ERRORS)
    assert finding.subject.key == "mlx5_2" and "184203 symbol_error" in finding.summary
    assert "370 link_error_recovery" in finding.summary and machine.alarmed() == [finding.id]
    assert "mlxlink -d mlx5_2 -c -m" in steps(finding)


def test_a_handful_of_errors_is_what_links_do() -> None:
    machine = RailNode().port(2, symbol_error="40", link_downed="1", port_rcv_errors="3", link_error_recovery="2")
    assert machine.alarmed() == []
    assert "40 symbol_error" in machine.findings(ERRORS)[2].summary


@pytest.mark.parametrize(("hours", "speaks"), [(2, True), (20, True), (24 * 60, False)])
def test_losses_are_counted_by_the_day(hours: int, speaks: bool) -> None:
    machine = RailNode().port(5, link_downed="14")
    machine.text("/proc/uptime", f"{hours * 3600}.00 100.00\n")
    assert [one.subject.key for one in machine.warned(ERRORS)] == (["mlx5_5"] if speaks else [])


def test_without_the_time_of_boot_counters_prove_nothing() -> None:
    machine = RailNode().port(5, link_downed="14", symbol_error="100000")
    machine.tree.records.pop("/proc/uptime")
    assert machine.alarmed() == []
    assert [one.subject.key for one in machine.findings(ERRORS) if one.status is Status.UNKNOWN] == ["mlx5_5"]


def flaps(at: int, count: int, first: float = 1000.0) -> str:
    """Pairs of lines as mlx5_core prints them."""
    who = f"mlx5_core {ADAPTERS[at]} ens{at}np0"
    return "".join(
        f"[{first + 50 * n:12.6f}] {who}: Link down\n[{first + 3 + 50 * n:12.6f}] {who}: Link up\n"
        for n in range(count)
    )


def test_ethernet_links_that_flap_by_the_kernel_log() -> None:
    machine = RailNode(layer="Ethernet")
    machine.log = flaps(6, 11)
    (finding,) = machine.warned(ERRORS)
    assert finding.subject.key == "mlx5_6" and "went down 11 times" in finding.summary and "Link down" in cited(finding)


def test_links_that_go_down_together_are_set_up_anew() -> None:
    machine = RailNode(layer="Ethernet")
    machine.log = "".join(flaps(at, 8) for at in range(8))
    assert machine.alarmed() == []
    # While the node starts, and long ago.
    machine.log = flaps(6, 1, first=20.0)
    assert machine.alarmed() == []
    machine.log = flaps(6, 11)
    machine.text("/proc/uptime", "900000.00 100.00\n")
    assert machine.alarmed() == []


def test_counters_that_cannot_be_read_are_no_pass() -> None:
    machine = RailNode()
    machine.hidden(f"{machine.place(ADAPTERS[1])}/infiniband/mlx5_1/ports/1/counters/symbol_error")
    assert [one.subject.key for one in machine.findings(ERRORS) if one.status is Status.UNKNOWN] == ["mlx5_1"]


@pytest.mark.parametrize(
    ("counter", "end"),
    [("link_downed", 255), ("symbol_error", 65535), ("local_link_integrity_errors", 15)],
)
def test_of_a_counter_at_its_end_no_rate_is_known(counter: str, end: int) -> None:
    machine = RailNode().port(2, **{counter: str(end)})
    machine.text("/proc/uptime", f"{200 * 86400}.00 100.00\n")
    assert machine.alarmed() == []
    finding = about(machine, ERRORS, "mlx5_2")
    assert finding.status is Status.UNKNOWN and f"{counter} at {end}, where it ends" in finding.summary
    assert "perfquery -R -C mlx5_2 -P 1" in finding.would_need and str(end) in cited(finding)
    assert about(machine.port(2, **{counter: str(end - 1)}), ERRORS, "mlx5_2").status is Status.PASS
    machine.text("/proc/uptime", "3600.00 100.00\n")
    assert [one.subject.key for one in machine.port(2, **{counter: str(end)}).warned(ERRORS)] == ["mlx5_2"]


# Device nodes ----------------------------------------------------------------------------------------------------------


def without_nodes(machine: RailNode) -> RailNode:
    """Somebody removed /dev/infiniband."""
    return machine.removed("/dev/infiniband")


def test_device_nodes_are_gone() -> None:
    machine = without_nodes(RailNode())
    (finding,) = machine.warned(NODES)
    assert finding.status is Status.FAIL and "/dev/infiniband/uverbs0 and 7 more are missing" in finding.summary
    assert "mknod" in steps(finding) and "231:192" in cited(finding)
    assert machine.alarmed() == [finding.id]


def test_nodes_that_nobody_needs_may_be_gone() -> None:
    machine = without_nodes(RailNode())
    for at in range(8):
        machine.down(at)
    assert machine.alarmed() == []


def test_a_container_has_a_dev_of_its_own() -> None:
    machine = without_nodes(RailNode())
    machine.tree.records.pop("/dev/kmsg")
    assert machine.alarmed() == []


def test_nodes_that_were_not_looked_at_are_not_missing() -> None:
    machine = without_nodes(RailNode())
    machine.complete.remove("/dev")
    assert machine.warned(NODES) == [] and machine.findings(NODES)[0].status is Status.UNKNOWN


def test_a_node_with_the_numbers_of_another_device() -> None:
    machine = RailNode()
    machine.char("/dev/infiniband/uverbs3", 231, 250)
    (finding,) = machine.warned(NODES)
    assert "uverbs3 is not the adapter's device" in finding.summary
    assert steps(finding).index("rm /dev/infiniband/uverbs3") < steps(finding).index("mknod")


def test_infiniband_without_its_module_for_programs() -> None:
    machine = without_nodes(RailNode())
    machine.removed("/sys/class/infiniband_verbs")
    (finding,) = machine.warned(NODES)
    assert finding.status is Status.WARN and "ib_uverbs is not loaded" in finding.summary
    assert "modprobe ib_uverbs" in steps(finding)
