"""What is judged of the tree: NUMA nodes, CPUs, rails, hops, NVLink against the peers, and where the work runs."""

import datetime
import time
from pathlib import Path

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.numa import cpu_set
from gpudoctor.facts.nvidia_smi_topology import from_topology
from gpudoctor.facts.raw import Answer
from gpudoctor.registry import built_in
from gpudoctor.run import Selection, run
from gpudoctor.sources.opening import open_source
from gpudoctor.testing import node, run_node
from gpudoctor.topo_run import topo
from gpudoctor.verdicts import Status
from tests.captures import DEVICES, diagnose
from tests.rail_node import ADAPTERS, BUSES, GPUS, RailNode
from tests.small_node import cited, steps

NUMA, ONLINE, ALIKE = "topology.numa-known", "topology.cpus-online", "topology.gpus-alike"
HOPS, RAILS, USE, PLACEMENT, MATRIX = (
    "topology.hop-width",
    "topology.rails",
    "topology.use",
    "topology.placement",
    "topology.matrix",
)


def status(machine: RailNode, check: str) -> Status:
    """How a check ended."""
    return machine.report().result(check).status


def test_a_server_with_eight_rails_is_well() -> None:
    machine = RailNode()
    assert machine.alarmed() == []
    for check in (NUMA, ONLINE, ALIKE, HOPS, RAILS, USE):
        assert status(machine, check) is Status.PASS, check
    assert status(machine, PLACEMENT) is Status.SKIP


@pytest.mark.parametrize("name", ["laptop-optimus", "kvm-guest-h100-passthrough", "l4-cloud-guest", "jetson-orin"])
def test_laptops_and_guests_are_left_alone(name: str) -> None:
    for result in run_node(node(name)).results:
        if result.check.startswith("topology."):
            assert result.status in (Status.SKIP, Status.UNKNOWN, Status.BLOCKED), result.check


# NUMA nodes and CPUs ---------------------------------------------------------------------------------------------------


def test_no_gpu_tells_its_numa_node() -> None:
    machine = RailNode()
    for address in (*GPUS, *ADAPTERS):
        machine.function_file(address, numa_node="-1")
    machine.log = "[    1.0] pci_bus 0000:10: Unknown NUMA node; performance will be reduced\n"
    (finding,) = machine.warned(NUMA)
    assert finding.subject.key == "node" and "8 of 8 GPUs" in finding.summary and "-1" in cited(finding)
    assert "performance will be reduced" in cited(finding) and machine.alarmed() == [finding.id]


def test_virtual_functions_are_not_among_the_adapters_that_tell_no_numa_node() -> None:
    machine = RailNode()
    for address in ADAPTERS:
        machine.function_file(address, numa_node="-1")
    address = machine.adapter(0, "mlx5_9", "0000:13:00.1")
    machine.link(f"{machine.place(address)}/physfn", f"../{ADAPTERS[0]}")
    (finding,) = machine.warned(NUMA)
    assert finding.summary.startswith("8 of 8 RDMA adapters tell no NUMA node")


def test_one_node_has_nothing_to_tell() -> None:
    machine = RailNode()
    for address in (*GPUS, *ADAPTERS):
        machine.function_file(address, numa_node="-1")
    machine.removed("/sys/devices/system/node/node1")
    machine.numa(0, "0-63")
    assert machine.alarmed() == [] and status(machine, NUMA) is Status.SKIP


def test_on_one_node_it_does_not_matter_who_tells_it() -> None:
    machine = RailNode()
    machine.removed("/sys/devices/system/node/node1")
    machine.numa(0, "0-63")
    for address in (*GPUS, *ADAPTERS):
        machine.function_file(address, numa_node="0")
    machine.function_file(GPUS[3], numa_node="-1")
    assert machine.alarmed() == [] and status(machine, NUMA) is Status.SKIP


def test_a_virtual_machine_that_ties_its_devices_to_no_node_is_made_so() -> None:
    machine = RailNode()
    machine.text("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    for address in (*GPUS, *ADAPTERS):
        machine.function_file(address, numa_node="-1")
    assert machine.alarmed() == [] and status(machine, NUMA) is Status.SKIP


def test_a_numa_node_that_cannot_be_read_is_unknown() -> None:
    machine = RailNode()
    machine.hidden(f"{machine.place(GPUS[3])}/numa_node")
    (finding,) = machine.findings(NUMA)
    assert finding.status is Status.UNKNOWN and finding.why is not None and finding.why.value == "no-permission"


def test_the_cpus_of_a_socket_are_offline() -> None:
    machine = RailNode()
    machine.numa(1, "")
    machine.text("/sys/devices/system/cpu/online", "0-31\n")
    machine.text("/sys/devices/system/cpu/offline", "32-63\n")
    (finding,) = machine.warned(ONLINE)
    assert "NUMA node 1" in finding.summary and "32-63" in finding.summary and "chcpu -e 32-63" in steps(finding)
    assert machine.alarmed() == [finding.id]


def test_second_threads_are_offline_on_purpose() -> None:
    machine = RailNode()
    machine.text("/sys/devices/system/cpu/offline", "64-127\n")
    assert machine.alarmed() == [] and status(machine, ONLINE) is Status.PASS


def test_numbers_kept_for_cpus_to_be_plugged_in_are_not_offline() -> None:
    machine = RailNode()
    machine.numa(0, "0-55")
    machine.numa(1, "56-63")
    machine.text("/sys/devices/system/cpu/offline", "64-127\n")
    assert machine.alarmed() == [] and status(machine, ONLINE) is Status.PASS
    machine.text("/sys/devices/system/cpu/present", "0-95\n")
    (finding,) = machine.warned(ONLINE)
    assert "chcpu -e 64-95" in steps(finding)
    machine.hidden("/sys/devices/system/cpu/present")
    assert machine.alarmed() == [] and status(machine, ONLINE) is Status.UNKNOWN
    assert status(machine, NUMA) is Status.PASS


def test_lists_of_cpus_are_bounded_whatever_they_hold() -> None:
    begin = time.monotonic()
    assert cpu_set(",".join(f"{low}-8191" for low in range(8000)) + ",0-8191" * 200_000) == frozenset(range(8192))
    assert time.monotonic() - begin < 5


def test_memory_alone_has_no_cpus_to_be_offline() -> None:
    machine = RailNode()
    machine.numa(2, "")
    machine.text("/sys/devices/system/cpu/offline", "64-127\n")
    assert machine.alarmed() == []


# Rails -----------------------------------------------------------------------------------------------------------------


def test_a_rail_without_its_adapter() -> None:
    machine = RailNode(rails=[0, 1, 2, 3, 4, 6, 7])
    (finding,) = machine.warned(RAILS)
    assert finding.subject.key == GPUS[5] and "(NODE)" in finding.summary and "(PIX)" in finding.summary
    assert machine.alarmed() == [finding.id]
    passed = [one.subject.key for one in machine.findings(RAILS) if one.status is Status.PASS]
    assert len(passed) == 7 and GPUS[5] not in passed


@pytest.mark.parametrize("rails", [[0], [0, 4], [0, 1, 2, 3], [0, 2, 4, 6], [0, 1, 2, 3, 4, 5]])
def test_fewer_adapters_than_gpus_are_a_purchase(rails: list[int]) -> None:
    machine = RailNode(rails=rails)
    accused = [one.subject.key for one in machine.warned(RAILS)]
    # Two of eight without one beside them is the most that still looks like a fault.
    assert accused == ([GPUS[6], GPUS[7]] if len(rails) == 6 else [])


def test_too_many_without_an_adapter_beside_them_are_not_said_to_be_as_near_as_their_peers() -> None:
    findings = {one.subject.key: one for one in RailNode(rails=range(5)).findings(RAILS)}
    finding = findings[GPUS[7]]
    assert finding.status is Status.SKIP and finding.summary.startswith("5 of 8 GPUs have an adapter below their own")
    few = {one.subject.key: one for one in RailNode(rails=range(3)).findings(RAILS)}[GPUS[7]]
    assert few.status is Status.PASS and "no nearer to most of its peers" in few.summary


def test_adapters_that_could_not_be_seen_are_not_missing() -> None:
    machine = RailNode(rails=[0, 1, 2, 3, 4, 6, 7])
    machine.hidden("/sys/class/infiniband/mlx5_5")
    assert machine.alarmed() == []
    assert [one.subject.key for one in machine.findings(RAILS) if one.status is Status.UNKNOWN] == [GPUS[5]]


@pytest.mark.parametrize(("at", "words"), [(0, {}), (5, {"device": "0x1eb8"})])
def test_a_card_of_another_model_needs_no_adapter_of_its_own(at: int, words: dict[str, str]) -> None:
    machine = RailNode(rails=[0, 1, 2, 3, 4, 6, 7]).function_file(GPUS[5], **words)
    assert [one.subject.key for one in machine.warned(RAILS)] == ([] if at else [GPUS[5]])


def test_an_adapter_that_a_pod_has_to_itself_is_not_missing() -> None:
    machine = RailNode(rails=[0, 1, 2, 3, 4, 6, 7])
    machine.text("/sys/module/ib_core/parameters/netns_mode", "Y\n")
    assert [one.subject.key for one in machine.warned(RAILS)] == [GPUS[5]]
    machine.text("/sys/module/ib_core/parameters/netns_mode", "N\n")
    assert machine.alarmed() == []
    assert [one.subject.key for one in machine.findings(RAILS) if one.status is Status.UNKNOWN] == [GPUS[5]]
    machine.hidden("/sys/module/ib_core/parameters/netns_mode")
    assert machine.alarmed() == []


def test_a_gpu_and_its_adapter_given_to_a_virtual_machine() -> None:
    machine = RailNode(rails=[0, 1, 2, 3, 4, 6, 7])
    machine.link(f"{machine.place(GPUS[5])}/driver", "../../../../bus/pci/drivers/vfio-pci")
    assert machine.warned(RAILS) == []


def test_virtual_functions_are_no_rails() -> None:
    machine = RailNode(rails=[0, 1, 2, 3, 4, 6, 7])
    address = machine.adapter(5, "mlx5_9", "0000:93:00.1")
    machine.link(f"{machine.place(address)}/physfn", "../0000:93:00.0")
    assert [one.subject.key for one in machine.warned(RAILS)] == [GPUS[5]]


def test_what_to_put_beside_a_gpu() -> None:
    findings = {one.subject.key: one for one in RailNode().findings(USE)}
    assert findings[GPUS[0]].summary == "CPUs 0-31 (numactl --cpunodebind=0 --membind=0); RDMA by mlx5_0 (PIX)"
    assert "CPUs 32-63" in findings[GPUS[7]].summary and "mlx5_7 (PIX)" in findings[GPUS[7]].summary


def test_nobody_is_told_to_take_memory_of_a_node_without_memory() -> None:
    """A processor whose channels have no modules (numactl refuses such a node)."""
    machine = RailNode()
    machine.text("/sys/devices/system/node/has_memory", "0\n")
    findings = {one.subject.key: one.summary for one in machine.findings(USE)}
    assert findings[GPUS[7]] == "CPUs 32-63 (numactl --cpunodebind=1); RDMA by mlx5_7 (PIX)"
    assert "--membind=0" in findings[GPUS[0]]
    uses = {use.gpu: use for use in topo(machine.recorded(), Config(), NOW, judge=False).use}
    assert (uses["GPU7"].memory, uses["GPU7"].command) == ((), "numactl --cpunodebind=1")
    assert (uses["GPU0"].memory, uses["GPU0"].command) == ((0,), "numactl --cpunodebind=0 --membind=0")


def test_nobody_is_told_to_bind_to_a_node_without_cpus() -> None:
    machine = RailNode().function_file(GPUS[0], numa_node="2")
    machine.numa(2, "")
    for number, distances in enumerate(("10 21 28", "21 10 14", "28 14 10")):
        machine.text(f"/sys/devices/system/node/node{number}/distance", f"{distances}\n")
    assert machine.findings(USE)[0].summary == "CPUs 32-63; RDMA by mlx5_0 (PIX)"


# Hops and peers --------------------------------------------------------------------------------------------------------


def test_a_gpu_in_a_slot_with_fewer_lanes_than_its_peers() -> None:
    machine = RailNode()
    for address in (f"0000:{BUSES[2]}:01.0", f"0000:{BUSES[2][0]}1:00.0"):
        machine.function_file(address, max_link_width="8", current_link_width="8")
    (finding,) = machine.warned(HOPS)
    assert finding.subject.key == GPUS[2] and "allows 8 of its 16 lanes" in finding.summary
    assert finding.summary.endswith("7 of its 7 peers have 16") and machine.alarmed() == [finding.id]


def test_slots_that_are_all_alike_are_built_so() -> None:
    machine = RailNode()
    for bus in BUSES:
        machine.function_file(f"0000:{bus}:01.0", max_link_width="8")
        machine.function_file(f"0000:{bus[0]}1:00.0", current_link_width="8")
    assert machine.alarmed() == [] and status(machine, HOPS) is Status.PASS


def test_a_desktop_board_with_a_wide_and_a_narrow_slot_is_made_so() -> None:
    machine = RailNode(rails=(), gpus=2)
    machine.function_file(f"0000:{BUSES[1]}:01.0", max_link_width="4")
    machine.function_file(f"0000:{BUSES[1][0]}1:00.0", current_link_width="4")
    assert machine.alarmed() == []


@pytest.mark.parametrize(("gpus", "narrow"), [(3, [2]), (4, [1, 3]), (8, [1, 3, 5, 7])])
def test_workstations_have_slots_with_half_the_lanes(gpus: int, narrow: list[int]) -> None:
    machine = RailNode(rails=(), gpus=gpus)
    for at in narrow:
        machine.function_file(f"0000:{BUSES[at]}:01.0", max_link_width="8")
        machine.function_file(f"0000:{BUSES[at][0]}1:00.0", current_link_width="8")
    assert machine.alarmed() == []


def test_lanes_that_are_allowed_and_did_not_train_are_told_elsewhere() -> None:
    machine = RailNode().function_file(GPUS[1], current_link_width="8")
    assert machine.alarmed() == []
    assert machine.report().result("pcie.link-width").status is Status.WARN


def test_a_hop_that_cannot_be_seen_is_unknown() -> None:
    machine = RailNode()
    machine.hidden(f"{machine.place(GPUS[1])}/max_link_width")
    assert [one.subject.key for one in machine.findings(HOPS) if one.status is Status.UNKNOWN] == [GPUS[1]]


def test_a_gpu_joined_by_fewer_nvlinks_than_its_peers() -> None:
    machine = RailNode().nvlinks(GPU5="NV16")
    (finding,) = machine.warned(ALIKE)
    assert finding.subject.key == GPUS[5] and "NV16" in finding.summary and "NV18" in finding.summary
    assert "nvidia-smi nvlink --status" in steps(finding)


def test_gpus_that_are_joined_alike() -> None:
    machine = RailNode().nvlinks()
    assert machine.alarmed() == [] and "NV18" in machine.findings(ALIKE)[0].summary


def test_boards_without_nvlink_beside_those_that_have_it() -> None:
    machine = RailNode().nvlinks()
    for pair in machine.topology:
        joined = {pair["from"], pair["to"]} in ({"GPU0", "GPU1"}, {"GPU2", "GPU3"}, {"GPU6", "GPU7"})
        pair["path"] = "NV12" if joined else "SYS"
    assert [one.subject.key for one in machine.warned(ALIKE)] == [GPUS[4], GPUS[5]]
    for at in (4, 5):
        machine.function_file(GPUS[at], device="0x1eb8")
    assert machine.warned(ALIKE) == []


def test_gpus_in_mig_mode_use_no_nvlink() -> None:
    machine = RailNode().nvlinks(GPU5="SYS")
    machine.devices[5]["fields"] = {"mig.current": True}
    assert machine.warned(ALIKE) == []


def test_a_cube_mesh_joins_pairs_by_different_numbers() -> None:
    """Of eight V100 each has six links: two to two others, one to two more (NVIDIA DGX-1 With Tesla V100 System Architecture)."""
    machine = RailNode().answer()
    double = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (2, 6), (3, 7), (4, 7), (5, 6), (4, 5), (6, 7), (0, 1)]
    once = [(0, 2), (1, 3), (4, 6), (5, 7)]
    words = {**dict.fromkeys(double, "NV2"), **dict.fromkeys(once, "NV1")}
    machine.topology = [
        {"from": f"GPU{one}", "to": f"GPU{other}", "path": words.get((one, other), "SYS")}
        for one in range(8)
        for other in range(one + 1, 8)
    ]
    assert machine.warned(ALIKE) == []


def moved(machine: RailNode, at: int, behind: int) -> None:
    """Put a GPU below a further port of another GPU's switch."""
    bus = BUSES[behind][0]
    upper = machine.place(f"0000:{bus}1:00.0")
    port, address = f"0000:{bus}2:1{at}.0", f"0000:{bus}{5 + at:x}:00.0"
    machine.removed(machine.place(GPUS[at])).removed(f"{DEVICES}/{GPUS[at]}")
    bridge = {"vendor": "0x1000", "device": "0xc030", "class": "0x060400"}
    machine.put(port, f"{upper}/{port}", "pcieport", behind // 4, **bridge)
    ids = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}
    machine.put(address, f"{upper}/{port}/{address}", "nvidia", behind // 4, **ids)


@pytest.mark.parametrize(
    ("pairs", "odd"),
    [
        ([(1, 0), (3, 2), (5, 4), (7, 6)], ""),
        ([(1, 0), (2, 0), (3, 0), (5, 4), (7, 6)], ""),
        # Two that stand alone may belong together, by NVLink or otherwise; one among many is in the wrong slot.
        ([(1, 0), (2, 0), (3, 0), (5, 4)], ""),
        ([(1, 0), (2, 0), (3, 0), (5, 4), (6, 4)], GPUS[7]),
    ],
)
def test_gpus_that_share_switches_unevenly(pairs: list[tuple[int, int]], odd: str) -> None:
    machine = RailNode(rails=())
    for at, behind in pairs:
        moved(machine, at, behind)
    assert [one.subject.key for one in machine.warned(ALIKE)] == ([odd] if odd else [])


def test_a_card_for_a_screen_is_no_peer() -> None:
    machine = RailNode(rails=(), gpus=4)
    for at in (1, 2):
        moved(machine, at, 0)
    assert [one.subject.key for one in machine.warned(ALIKE)] == [GPUS[3]]
    assert machine.function_file(GPUS[3], device="0x1ff0").alarmed() == []


def test_an_odd_number_of_cards_cannot_be_shared_out_evenly() -> None:
    machine = RailNode(rails=(), gpus=5)
    for at in (1, 2, 3):
        moved(machine, at, 0)
    assert machine.alarmed() == []


# Work ------------------------------------------------------------------------------------------------------------------


def test_processes_on_the_other_socket() -> None:
    machine = RailNode().process(7010, 0, "32-63").process(7012, 6, "32-63")
    (finding,) = machine.warned(PLACEMENT)
    assert "process 7010 may run on CPUs 32-63 only" in finding.summary and finding.subject.key == GPUS[0]
    assert "Cpus_allowed_list: 32-63" in cited(finding) and "numactl --cpunodebind=0" in steps(finding)


@pytest.mark.parametrize(("nodes", "bound"), [("0-1", "numactl --cpunodebind=0"), ("1", "taskset --cpu-list 0-31")])
def test_the_way_to_bind_fits_the_node(nodes: str, bound: str) -> None:
    machine = RailNode().process(7010, 0, "32-63", memory="1")
    machine.text("/sys/devices/system/node/has_memory", f"{nodes}\n")
    (finding,) = machine.warned(PLACEMENT)
    assert bound in steps(finding)


@pytest.mark.parametrize("cpus", ["0-63", "0-31", "31-40", "5"])
def test_processes_that_may_run_near_their_gpu(cpus: str) -> None:
    machine = RailNode().process(7010, 0, cpus)
    assert machine.alarmed() == [] and status(machine, PLACEMENT) is Status.PASS


def test_a_process_with_gpus_of_both_sides_is_near_one() -> None:
    machine = RailNode().process(7010, 0, "32-63").process(7010, 6, "32-63")
    assert machine.alarmed() == []


@pytest.mark.parametrize(
    ("distances", "accused"), [(("10 12", "12 10"), False), (("10 20", "20 10"), True), (("", ""), True)]
)
def test_nodes_of_one_processor_are_no_two_sides(distances: tuple[str, str], accused: bool) -> None:
    """A processor can show itself as several NUMA nodes (NPS, SNC)."""
    machine = RailNode().process(7010, 0, "32-63", memory="1")
    for number, told in enumerate(distances):
        machine.text(f"/sys/devices/system/node/node{number}/distance", f"{told}\n")
    assert bool(machine.warned(PLACEMENT)) is accused
    machine.process(7010, 0, "0-63", memory="1")
    assert bool(machine.warned(PLACEMENT)) is accused


def test_without_the_distances_of_nodes_nobody_is_far() -> None:
    machine = RailNode().process(7010, 0, "32-63").hidden("/sys/devices/system/node/node0/distance")
    assert machine.alarmed() == [] and status(machine, PLACEMENT) is Status.UNKNOWN


def test_memory_of_the_other_node_only() -> None:
    (finding,) = RailNode().process(7010, 0, "0-63", memory="1").warned(PLACEMENT)
    assert "memory of NUMA node 1 only" in finding.summary


@pytest.mark.parametrize("nodes", ["1", None])
def test_where_there_is_no_memory_nearer_none_is_missed(nodes: "str | None") -> None:
    machine = RailNode().process(7010, 0, "0-63", memory="1")
    if nodes is None:
        machine.hidden("/sys/devices/system/node/has_memory")
    else:
        machine.text("/sys/devices/system/node/has_memory", f"{nodes}\n")
    assert machine.alarmed() == []


def test_several_processes_on_one_gpu_are_told_apart() -> None:
    machine = RailNode().process(7010, 0, "32-63").process(7011, 0, "32-63").process(7012, 0, "0-31")
    ids = [one.id for one in machine.findings(PLACEMENT)]
    assert len(ids) == len(set(ids)), ids
    assert "7010" in machine.warned(PLACEMENT)[0].summary


def test_a_binding_that_cannot_be_read_is_unknown() -> None:
    machine = RailNode().process(7010, 0, "32-63").hidden("/proc/7010/status")
    assert machine.alarmed() == [] and status(machine, PLACEMENT) is Status.UNKNOWN


# The driver's own matrix -----------------------------------------------------------------------------------------------


def test_the_matrix_of_the_driver_agrees() -> None:
    machine = RailNode().answer()
    sides = [at // 4 for at in range(8)]
    machine.topology = [
        {"from": f"GPU{one}", "to": f"GPU{other}", "path": "NODE" if sides[one] == sides[other] else "SYS"}
        for one in range(8)
        for other in range(one + 1, 8)
    ]
    for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{at}" for at in range(8))):
        machine.char(path, 195, 0)
    result = machine.report().result(MATRIX)
    assert result.status in (Status.PASS, Status.BLOCKED)
    machine.topology[0]["path"] = "PIX"
    changed = machine.report().result(MATRIX)
    assert changed.status in (Status.UNKNOWN, Status.BLOCKED) and machine.alarmed() == []


@pytest.mark.parametrize("name", ["management-nic-without-a-cable", "unused-virtual-functions-are-down"])
def test_functions_of_one_card_are_as_near_as_can_be(name: str) -> None:
    assert run_node(node(name)).result(MATRIX).status is Status.PASS


def test_every_captured_matrix_is_judged(corpus: Path) -> None:
    """All spellings; the captured machines are whole, so nothing is said of them."""
    judged = 0
    for capture in sorted((corpus / "nvidia-smi-topo").glob("*.txt")):
        data = from_topology(capture.read_text("utf-8", errors="replace"))
        pairs = data.get("system", {}).get("topology", [])
        machine = RailNode().recorded()
        machine.answers["nvml"] = Answer(data=data, via="nvidia-smi topo -m")
        result = diagnose(machine).result(ALIKE)
        assert result.status in (Status.PASS, Status.SKIP), (capture.name, result.detail)
        judged += bool(pairs)
    assert judged >= 3


NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.timezone.utc)
CAPTURES = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus" / "issue-excerpts"
"""Real texts of `nvidia-smi topo -m`, some with lines lost. Of the healthy ones nothing must be said."""


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="needs the captures")
def test_of_captured_texts_the_gpu_off_nvlink_is_found_and_nothing_else() -> None:
    found = {}
    for path in sorted(CAPTURES.glob("topo-m-*.txt")):
        source = open_source(str(path))
        report = run(source, Config(), built_in(), Selection(), NOW)
        said = [(cause.check, cause.summary.split(" is ")[0]) for cause in report.root_causes]
        if said:
            found[path.name] = said
    assert len(list(CAPTURES.glob("topo-m-*.txt"))) >= 7
    assert found == {"topo-m-b200-gpu2-off-nvlink.txt": [("topology.gpus-alike", "GPU2")]}
