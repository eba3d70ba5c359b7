"""NVLinks: how many are up, how fast they are, whether errors grow, where they lead, and which ranks share a GPU."""

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.nvidia_smi import answer_from
from gpudoctor.facts.raw import Answer, CommandOutput
from gpudoctor.knowledge.nvlink_skus import sku
from gpudoctor.sources.nvidia_smi_commands import nvml_answer
from gpudoctor.verdicts import Status
from tests.fabric_node import ADDRESSES, FIRST, SECOND, FabricNode, link, roots, spoken
from tests.small_node import alarms, cited, steps

UP, SPEED, ERRORS = "fabric.nvlinks-up", "fabric.nvlink-speed", "fabric.nvlink-errors"
SWITCHES, PEERS, APART = "fabric.switches-seen", "fabric.peer-access", "workload.ranks-apart"


def bare(name: str, links: int, *, rate: int = 25781) -> FabricNode:
    """Two GPUs whose NVLinks lead to each other, without switches or a fabric."""
    machine = FabricNode(name, switches=0, links=links).stop(enabled=False)
    for device in machine.devices:
        device["fields"] |= {field: {"error": 3} for field in device["fields"] if field.startswith("fabric.")}
        device["nvlinks"] = [
            {**one, "megabytes_per_second": rate, "version": 2, "remote_type": "gpu"} for one in device["nvlinks"]
        ]
    return machine


# How many -----------------------------------------------------------------------------------------------------------


def test_links_down_on_one_gpu() -> None:
    report = FabricNode().down(1, 4, 9).report()
    (finding,) = alarms(report, UP)
    assert finding.status is Status.FAIL and finding.subject.key == SECOND
    assert finding.summary == "16 of 18 NVLinks are active (down: 4, 9)" and "NVLink 4: inactive" in cited(finding)
    assert roots(report) == [UP]


def test_no_link_of_any_gpu_is_one_root_cause() -> None:
    machine = FabricNode().down(0, *range(18)).down(1, *range(18))
    assert roots(machine.report()) == [UP] and len(alarms(machine.report(), UP)) == 2


def test_mig_uses_no_nvlink() -> None:
    machine = FabricNode().down(0, *range(18)).fields(0, mig__current=True)
    assert machine.says(UP, FIRST).status is Status.SKIP and spoken(machine.report()) == []


def test_bridges_are_optional_but_a_part_of_them_is_a_fault() -> None:
    whole = bare("NVIDIA RTX A6000", 4, rate=14062)
    assert spoken(whole.report()) == []
    assert spoken(whole.down(0, 0, 1, 2, 3).down(1, 0, 1, 2, 3).report()) == []
    for name, links in (("NVIDIA H100 NVL", 12), ("NVIDIA H200 NVL", 18), ("NVIDIA A800 80GB PCIe", 8)):
        assert spoken(bare(name, links, rate=25000).report()) == []
    # An H100 PCIe has places for eighteen, of which its three bridges take twelve.
    assert spoken(bare("NVIDIA H100 PCIe", 18).down(0, *range(12, 18)).down(1, *range(12, 18)).report()) == []
    two_of_three = bare("NVIDIA A100 80GB PCIe", 12, rate=25000).down(0, *range(4)).down(1, *range(4)).report()
    assert {finding.status for finding in alarms(two_of_three, UP)} == {Status.WARN}
    assert roots(two_of_three) == [UP] and alarms(two_of_three, UP)[0].summary.startswith("8 of 12 NVLinks are active")
    assert "gpu-reset" not in steps(alarms(two_of_three, UP)[0])


def cards(name: str, *bridged: bool) -> FabricNode:
    """Cards with four NVLinks each, some of them bridged."""
    machine = FabricNode(name, switches=0, links=4).stop(enabled=False)
    addresses = [f"0000:{5 + number:02x}:00.0" for number in range(len(bridged))]
    for address in addresses[2:]:
        machine.another_gpu(address)
    model = machine.devices[0]
    machine.devices = []
    for number, (address, is_bridged) in enumerate(zip(addresses, bridged, strict=True)):
        nvlinks = [
            {"link": each, "active": is_bridged, "remote_type": "gpu", "megabytes_per_second": 14062}
            for each in range(4)
        ]
        uuid = f"GPU-0000000{number}-0000-0000-0000-000000000000"
        fields = {"mig.current": False, "nvlink.active_links": 4 if is_bridged else 0, "fabric.state": {"error": 3}}
        about = {"index": number, "minor": number, "pci_bus_id": f"0000{address.upper()}", "uuid": uuid}
        machine.devices.append({**model, **about, "fields": fields, "nvlinks": nvlinks})
    return machine


@pytest.mark.parametrize(
    ("machine", "alarmed"),
    [
        (cards("NVIDIA A40", True, True, False, False), 2),
        (cards("NVIDIA A40", True, True, False), 0),
        (cards("NVIDIA A40", False, False, False, False), 0),
        (cards("NVIDIA RTX A6000", True, True, False, False), 0),
    ],
    ids=["pair", "odd-one", "none", "workstation"],
)
def test_server_cards_are_bridged_by_pairs(machine: FabricNode, alarmed: int) -> None:
    report = machine.report()
    found = alarms(report, UP)
    assert len(found) == alarmed and roots(report) == [UP] * bool(alarmed)
    assert all(finding.status is Status.WARN and "a bridge is missing or loose" in finding.summary for finding in found)
    machine.text("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    assert spoken(machine.report()) == []


def test_a_link_between_two_gpus_is_one_cause_for_both_ends() -> None:
    report = bare("Tesla V100-SXM2-32GB", 6).down(0, 2, 3).down(1, 0, 1).report()
    (cause,) = [cause for cause in report.root_causes if cause.check == UP]
    assert {subject.key for subject in cause.subjects} == {FIRST, SECOND}


def test_the_option_takes_nvlinks_away_as_if_there_were_none() -> None:
    machine = FabricNode().stop().fields(fabric__state={"error": 3}, nvlink__active_links={"error": 3})
    machine.parameters += "NvLinkDisable: 1\n"
    for device in machine.devices:
        device["nvlinks"] = []
    report = machine.report()
    assert roots(report) == [UP] and "NvLinkDisable: 1" in cited(alarms(report, UP)[0])


def test_a_product_that_nobody_knows_is_held_against_its_peer() -> None:
    assert spoken(bare("NVIDIA X999", 6).report()) == []
    (finding,) = alarms(bare("NVIDIA X999", 6).down(0, 2).report(), UP)
    assert finding.summary.startswith("5 of 6")


def test_in_a_guest_links_may_lead_to_gpus_of_others() -> None:
    machine = bare("Tesla V100-SXM2-32GB", 6).down(0, 3, 5).down(1, 3, 5)
    assert len(alarms(machine.report(), UP)) == 2
    machine.text("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    assert spoken(machine.report()) == []
    assert spoken(machine.down(1, 2).report()) == []
    switched = FabricNode().down(1, 2)
    switched.text("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    assert len(alarms(switched.report(), UP)) == 1


def test_a_gpu_that_does_not_answer_has_its_links_down_at_both_ends() -> None:
    machine = bare("Tesla V100-SXM2-32GB", 6).down(0, 3, 5)
    machine.devices[1] = {
        "index": 1,
        "pci_bus_id": "00000000:06:00.0",
        "error": {"code": 15, "call": "nvmlDeviceGetHandleByIndex_v2(1)"},
    }
    finding = machine.says(UP, FIRST)
    assert finding.status is Status.SKIP and "does not answer" in finding.summary


def test_a_board_without_nvlink_is_silent() -> None:
    assert spoken(bare("NVIDIA L40S", 0).report()) == []


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("Tesla P100-SXM2-16GB", 4),
        ("Tesla V100-SXM2-32GB", 6),
        ("NVIDIA A100-SXM4-80GB", 12),
        ("NVIDIA A800-SXM4-80GB", 8),
        ("NVIDIA H100 80GB HBM3", 18),
        ("NVIDIA H800", 8),
        ("NVIDIA H20", 18),
        ("NVIDIA H200", 18),
        ("NVIDIA B200", 18),
        ("NVIDIA B300 SXM6 AC", 18),
        ("NVIDIA GB200", 18),
        ("NVIDIA RTX A6000", 4),
        ("NVIDIA GeForce RTX 2080 Ti", 2),
        ("NVIDIA GeForce RTX 4090", None),
        ("Tesla T4", None),
        ("NVIDIA L40S", None),
        ("NVIDIA RTX 6000 Ada Generation", None),
    ],
)
def test_the_figures(name: str, links: int | None) -> None:
    found = sku(name)
    assert (None if found is None else found.links) == links


# What people captured -----------------------------------------------------------------------------------------------


def captured(text: str, name: str | None = None) -> FabricNode:
    """The first GPU that a capture tells of, on a node of its own."""
    answer = answer_from(None, text)
    assert answer is not None
    told = answer.data["devices"][0]
    machine = bare(name or told["name"], 0)
    for device in machine.devices:
        device["name"] = name or told["name"]
        device["fields"] |= told.get("fields", {})
        device["nvlinks"] = told.get("nvlinks", [])
    return machine


@pytest.mark.parametrize(
    ("capture", "faults"),
    [
        ("nvidia-smi-nvlink/azure-nhc-nvlink-bad.txt", 2),
        ("issue-excerpts/nvlink-s-v100-two-inactive.txt", 2),
        ("nvidia-smi-nvlink/azure-nhc-nvlink-good.txt", 0),
        ("nvidia-smi-nvlink/gpud-nvlink-status-a100.txt", 0),
        ("nvidia-smi-nvlink/uo-linux-geforce-rtx-2080-super-595.71.05.txt", 0),
        ("nvidia-smi-nvlink/uo-linux-h200-590.48.01.txt", 0),
        ("nvidia-smi-nvlink/uo-linux-h200-mig-590.48.01.txt", 0),
    ],
)
def test_captured_links(corpus: Path, capture: str, faults: int) -> None:
    report = captured((corpus / capture).read_text()).report()
    assert len(alarms(report, UP)) == faults
    assert not alarms(report, SPEED) and not alarms(report, ERRORS)


@pytest.mark.parametrize(
    ("capture", "words"),
    [
        ("issue-excerpts/topo-m-b200-gpu2-off-nvlink.txt", "no NVLink joins GPU2"),
        ("issue-excerpts/topo-m-dgx-a100-dcgm149-rows.txt", ""),
        ("nvidia-smi-topo/dwf-h200x8-ansi.txt", ""),
        ("nvidia-smi-topo/kagaho-l40s-vllm-env.txt", ""),
        ("nvidia-smi-topo/stelline-asus-esc8000a-e12-10.txt", ""),
        ("nvidia-smi-topo/uo-linux-geforce-rtx-2080-super-595.71.05.txt", ""),
    ],
)
def test_captured_topologies(corpus: Path, capture: str, words: str) -> None:
    text = (corpus / capture).read_text()
    names = "".join(f"\tGPU{number}" for number in range(8))
    answer = answer_from(None, text) or answer_from(None, f"{names}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n{text}")
    machine = bare("NVIDIA X", 0)
    for device in machine.devices:
        del device["fields"]["nvlink.active_links"]
    machine.topology = answer.data.get("system", {}).get("topology", []) if answer is not None else []
    found = alarms(machine.report(), PEERS)
    assert [words in finding.summary for finding in found] == ([True] if words else [])


# How fast -----------------------------------------------------------------------------------------------------------


def test_a_link_that_came_up_slower() -> None:
    machine = FabricNode()
    machine.devices[0]["nvlinks"][7]["megabytes_per_second"] = 13281
    (finding,) = alarms(machine.report(), SPEED)
    assert finding.summary == "1 of 18 NVLinks run at 13.281 GB/s instead of 25: link 7"
    assert "13281 MB/s" in cited(finding) and "nvlink_speed_percent" in cited(finding)


# Errors -------------------------------------------------------------------------------------------------------------


def errors(first: dict[str, int], later: dict[str, int] | None) -> FabricNode:
    """Counters of link 3 of the first GPU, at the first look and at the second."""
    machine = FabricNode()
    machine.devices[0]["nvlinks"][3]["errors"] |= first
    if later is not None:
        machine.devices[0]["later"] = {"seconds": 1.0, "fields": {}, "nvlinks": [link(3, errors=later)]}
    return machine


def test_errors_that_do_not_grow_are_history() -> None:
    assert "no errors on 18 NVLinks" in errors({}, None).says(ERRORS, FIRST).summary
    unwatched = errors({"replay": 5}, None).says(ERRORS, FIRST)
    assert unwatched.status is Status.PASS and "5 replays; whether they still grow was not watched" in unwatched.summary
    assert "none more in 1.0 s" in errors({"replay": 5}, {"replay": 5}).says(ERRORS, FIRST).summary
    assert errors({"crc_flit": 5}, {"crc_flit": 25}).says(ERRORS, FIRST).status is Status.PASS


@pytest.mark.parametrize(
    ("first", "later", "words"),
    [
        ({"replay": 5}, {"replay": 7}, "2 more replays"),
        ({"crc_flit": 5}, {"crc_flit": 905}, "900 more CRC errors of packets"),
        ({"effective": 5}, {"effective": 9}, "4 more errors left after correction"),
        ({"link_recovery_failed": 1}, {"link_recovery_failed": 2}, "1 more recoveries that failed"),
    ],
)
def test_errors_that_grow(first: dict[str, int], later: dict[str, int], words: str) -> None:
    (finding,) = alarms(errors(first, later).report(), ERRORS)
    assert finding.status is Status.WARN and words in finding.summary and "link 3" in finding.summary
    assert "1.0 s later" in cited(finding)


# Switches -----------------------------------------------------------------------------------------------------------


def test_switches_that_are_not_on_the_bus() -> None:
    machine = FabricNode(switches=0)
    finding = machine.says(SWITCHES)
    assert finding.status is Status.FAIL and "none on the PCI bus" in finding.summary
    machine.text("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    assert machine.says(SWITCHES).status is Status.SKIP


def test_a_switch_that_no_driver_holds_or_a_hypervisor() -> None:
    machine = FabricNode()
    machine.function("0000:71:00.0", "/sys/devices/pci0000:70/0000:71:00.0", None)
    machine.function("0000:72:00.0", "/sys/devices/pci0000:70/0000:72:00.0", "vfio-pci")
    found = {finding.subject.key: finding.status for finding in machine.report().result(SWITCHES).findings}
    assert found["0000:70:00.0"] is Status.PASS
    assert found["0000:71:00.0"] is Status.FAIL and found["0000:72:00.0"] is Status.SKIP


def test_a_switch_that_no_driver_holds_is_why_the_fabric_manager_ends() -> None:
    machine = FabricNode("NVIDIA A100-SXM4-80GB", links=12).stop().fields(fabric__state={"error": 3})
    machine.function("0000:71:00.0", "/sys/devices/pci0000:70/0000:71:00.0", None)
    report = machine.report()
    assert roots(report) == [SWITCHES] and len(alarms(report, "fabric.manager-running")) == 1


# Peer access --------------------------------------------------------------------------------------------------------


def pair(path: str, **p2p: str) -> list[dict[str, Any]]:
    """How the two GPUs are joined."""
    return [{"from": "GPU0", "to": "GPU1", "path": path, **({"p2p": p2p} if p2p else {})}]


def test_nvlink_that_may_not_be_used() -> None:
    machine = FabricNode()
    machine.topology = pair("NV18", read="not_supported", write="ok")
    report = machine.report()
    finding = alarms(report, PEERS)[0]
    assert finding.status is Status.FAIL and "not supported" in finding.summary
    assert "GPU0 to GPU1: NV18, read not supported, write ok" in cited(finding)
    (cause,) = [cause for cause in report.root_causes if cause.check == PEERS]
    assert {subject.key for subject in cause.subjects} == {FIRST, SECOND}
    machine.topology = pair("NV18", read="ok", write="ok", atomics="not_supported")
    assert machine.says(PEERS).status is Status.PASS
    machine.topology = pair("NV18", read="not_supported", write="not_supported")
    assert not alarms(machine.fields(0, mig__current=True).report(), PEERS)


P2P = "\t\x1b[4mGPU0\tGPU1\x1b[0m\n GPU0\tX\t{0}\t\n GPU1\t{0}\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-3\t0\nGPU1\tNV18\t X \t0-3\t0\n"


@pytest.mark.parametrize(
    ("answers", "p2p"),
    [
        ({"r": "OK", "w": "OK"}, {"read": "ok", "write": "ok"}),
        ({"r": "U", "w": "NS", "n": "NS"}, {"read": "unknown", "write": "not_supported"}),
        ({"n": "NS", "p": "CNS"}, {}),
    ],
)
def test_what_nvidia_smi_prints_of_peer_access(answers: dict[str, str], p2p: dict[str, str]) -> None:
    runs: dict[tuple[str, ...], str] = {
        ("nvidia-smi", "topo", "-p2p", way): P2P.format(said) for way, said in answers.items()
    }
    runs |= {("nvidia-smi", "topo", "-m"): MATRIX}
    answer = nvml_answer({argv: CommandOutput(argv, 0, text) for argv, text in runs.items()})
    assert isinstance(answer, Answer)
    (found,) = answer.data["system"]["topology"]
    assert found.get("p2p", {}) == p2p and found["path"] == "NV18"
    machine = FabricNode()
    machine.topology = answer.data["system"]["topology"]
    assert bool(alarms(machine.report(), PEERS)) is ("unknown" in p2p.values())


def test_peer_access_without_the_paths_is_not_judged() -> None:
    answer = answer_from("topo -p2p r", P2P.format("NS"))
    assert answer is not None
    machine = FabricNode()
    machine.topology = answer.data["system"]["topology"]
    assert machine.says(PEERS).status is Status.SKIP


def test_geforce_without_peer_access_is_no_fault() -> None:
    machine = bare("NVIDIA GeForce RTX 4090", 0)
    machine.topology = pair("PHB", read="chipset_not_supported", write="chipset_not_supported")
    finding = machine.says(PEERS)
    assert finding.status is Status.PASS and "host's memory" in finding.summary


def test_peers_that_may() -> None:
    machine = FabricNode()
    machine.topology = pair("NV18", read="ok", write="ok")
    assert machine.says(PEERS).status is Status.PASS
    machine.topology = pair("NV18")
    assert machine.says(PEERS).status is Status.SKIP


def test_a_bridge_between_two_of_three_leaves_the_third_alone() -> None:
    machine = bare("NVIDIA RTX A6000", 4, rate=14062)
    for device in machine.devices:
        del device["fields"]["nvlink.active_links"]
    others = [{"from": f"GPU{one}", "to": "GPU2", "path": "SYS"} for one in range(2)]
    machine.topology = [*pair("NV4"), *others]
    assert not alarms(machine.report(), PEERS)


# Ranks --------------------------------------------------------------------------------------------------------------

JOB = "WORLD_SIZE=2\0MASTER_ADDR=10.0.0.1\0MASTER_PORT=29500\0"


def ranks(*where: tuple[int, int, str], kind: str = "compute", instances: bool = False) -> FabricNode:
    """Processes by GPU, PID and environment."""
    machine = FabricNode()
    for device in machine.devices:
        device["processes"] = []
    for number, pid, environ in where:
        instance = {"gpu_instance_id": pid, "compute_instance_id": 0} if instances else {}
        machine.devices[number]["processes"].append({"pid": pid, "kind": kind, "name": "python", **instance})
        machine.process(pid, "python", environ=environ)
    return machine


def test_two_ranks_of_one_job_on_one_gpu() -> None:
    machine = ranks(
        (0, 701, f"RANK=0\0{JOB}CUDA_VISIBLE_DEVICES=0\0"), (0, 702, f"RANK=1\0{JOB}CUDA_VISIBLE_DEVICES=0\0")
    )
    (finding,) = alarms(machine.report(), APART)
    assert (
        finding.subject.key == FIRST
        and "ranks 0, 1 of one job" in finding.summary
        and "1 GPUs of the node are idle" in finding.summary
    )
    assert "RANK=1, WORLD_SIZE=2, CUDA_VISIBLE_DEVICES=0 (python)" in cited(finding) and "PID 702" in cited(finding)
    assert "LOCAL_RANK" in steps(finding)
    assert machine.says(APART, SECOND).status is Status.SKIP


@pytest.mark.parametrize(
    "machine",
    [
        ranks((0, 701, f"RANK=0\0{JOB}"), (1, 702, f"RANK=1\0{JOB}")),
        ranks((0, 701, f"RANK=0\0{JOB}"), (0, 702, f"RANK=0\0{JOB}")),
        ranks((0, 701, f"RANK=0\0{JOB}"), (0, 702, f"RANK=1\0{JOB.replace('29500', '29501')}")),
        ranks((0, 701, f"RANK=0\0{JOB}"), (0, 702, f"RANK=1\0{JOB}"), (1, 702, f"RANK=1\0{JOB}")),
        ranks((0, 701, "OMPI_COMM_WORLD_RANK=0\0"), (0, 702, "OMPI_COMM_WORLD_RANK=1\0")),
        ranks((0, 701, f"RANK=0\0{JOB}"), (0, 702, f"RANK=1\0{JOB}"), kind="mps"),
        ranks(
            (0, 701, f"RANK=0\0{JOB}CUDA_MPS_PIPE_DIRECTORY=/x\0"),
            (0, 702, f"RANK=1\0{JOB}CUDA_MPS_PIPE_DIRECTORY=/x\0"),
        ),
        ranks((0, 701, f"RANK=0\0{JOB}"), (0, 702, f"RANK=1\0{JOB}"), instances=True),
        ranks((0, 701, "A=1\0"), (0, 702, "A=1\0")),
    ],
    ids=["apart", "worker", "jobs", "stray-context", "mpi", "mps", "mps-client", "mig", "no-ranks"],
)
def test_processes_that_share_a_gpu_on_purpose(machine: FabricNode) -> None:
    assert not alarms(machine.report(), APART)


def test_the_addresses_are_those_of_the_bus() -> None:
    assert {finding.subject.key for finding in FabricNode().report().result(UP).findings} == set(ADDRESSES)
