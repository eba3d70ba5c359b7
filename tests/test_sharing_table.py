"""The table of who shares each GPU: by what, with what isolation, in every form of a report; what is not known is said so."""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpudoctor import sharing
from gpudoctor.config import Config
from gpudoctor.knowledge.isolation import BY_MIG_PARTS
from gpudoctor.registry import built_in
from gpudoctor.report import How, Report, SharedGpu
from gpudoctor.reports import json as json_report
from gpudoctor.reports import markdown, terminal
from gpudoctor.reports.html import render as html
from gpudoctor.reports.look import Look
from gpudoctor.reports.saved import read_report
from gpudoctor.reports.shares import folded, in_lines
from gpudoctor.run import Selection, run
from gpudoctor.testing import node, run_node
from tests.vgpu_node import GPUS, AnswerNode


def row(report: Report, address: str) -> SharedGpu:
    """The row of one GPU."""
    return next(one for one in report.sharing if one.gpu == address)


def report(name: str) -> Report:
    """The report on a recorded node."""
    return run_node(node(name))


# Ways ----------------------------------------------------------------------------------------------------------------


def test_an_idle_node_has_whole_gpus_and_one_line() -> None:
    found = report("h100x8")
    assert {one.how for one in found.sharing} == {How.WHOLE}
    assert {one.workloads for one in found.sharing} == {0}
    assert in_lines(found.sharing) == ["8 GPUs: whole, at most one workload each"]
    assert len(folded(found.sharing)) == 1


def test_instances_of_mig_are_kept_apart_and_what_is_left_is_told() -> None:
    found = row(report("mig-container-denied-capabilities"), "0000:17:00.0")
    assert found.how is How.MIG
    assert found.detail == "3 MIG devices: 1 3g.40gb, 1 2g.20gb, 1 1g.10gb"
    assert found.by == ("docker:infer-2g", "docker:train-3g")
    assert found.memory.startswith("apart in hardware")
    assert found.faults.startswith("apart in hardware")
    assert found.room


def test_compute_instances_of_one_gpu_instance_share_its_memory() -> None:
    one = AnswerNode()
    one.fields[0]["mig.current"] = True
    one.more[0]["mig_devices"] = [
        {
            "index": number,
            "uuid": f"MIG-{number}",
            "profile": "1c.2g.20gb",
            "gpu_instance_id": 3,
            "compute_instance_id": number,
        }
        for number in range(2)
    ]
    found = row(one.report(), GPUS[0])
    assert "compute instances within one share it" in found.memory


def test_two_users_in_one_mig_device_are_told() -> None:
    one = AnswerNode()
    one.fields[0]["mig.current"] = True
    one.more[0]["mig_devices"] = [
        {"index": 0, "uuid": "MIG-0", "profile": "1g.10gb", "gpu_instance_id": 7, "compute_instance_id": 0}
    ]
    for pid, session in ((900, 7), (901, 9)):
        one.process(pid, f"/user.slice/user-{1000 + session}.slice/session-{session}.scope")
        one.uses(0, pid, gpu_instance_id=7, compute_instance_id=0)
    found = row(one.report(), GPUS[0])
    assert found.note == "user 1007, user 1009 share one MIG device (GI 7, CI 0), and nothing keeps them apart"


def test_replicas_in_time_keep_nothing_apart() -> None:
    found = row(report("time-slicing-two-pods-on-one-gpu"), "0000:ab:00.0")
    assert (found.how, found.workloads) == (How.TIME_SLICING, 2)
    assert found.by == ("ml/eval-0", "ml/infer-6d9c7b5f4-x2lqk")
    assert "nvidia.com/gpu 4 times" in found.detail
    assert found.memory.startswith("none")
    assert found.faults.startswith("none")


def test_clients_of_mps_have_no_limit_unless_one_is_set() -> None:
    found = row(report("ranks-under-mps-on-one-gpu"), "0000:49:00.0")
    assert found.how is How.MPS
    assert "no limit" in found.memory
    assert "ends all clients" in found.faults


def test_several_workloads_on_one_gpu_without_any_division() -> None:
    found = row(report("two-users-share-one-gpu"), "0000:49:00.0")
    assert (found.how, found.workloads) == (How.PROCESSES, 2)
    assert all(name.startswith("user ") for name in found.by)
    assert "binds nobody else" in found.memory, "a fraction that a framework sets is told apart from isolation"


def test_processes_of_nobody_known_are_not_counted_as_workloads() -> None:
    one = AnswerNode()
    one.uses(0, 7001)
    one.uses(0, 7002)
    found = row(one.report(), GPUS[0])
    assert (found.how, found.workloads) == (How.PROCESSES, None)
    assert "not known whose" in found.detail


def test_a_gpu_for_a_virtual_machine() -> None:
    found = row(report("vfio-holds-one-of-eight"), "0000:5d:00.0")
    assert (found.how, found.workloads) == (How.PASSTHROUGH, None)


def test_slurm_that_confines_and_slurm_that_does_not() -> None:
    assert "their own GPUs only (ConstrainDevices)" in report("slurm-jobs-constrained").sharing[0].access
    loose = report("slurm-jobs-unconstrained").sharing[0]
    assert "without ConstrainDevices only CUDA_VISIBLE_DEVICES says which" in loose.access


@pytest.mark.parametrize(
    ("active", "words"),
    [
        (0, "no vGPUs of virtual machines are active"),
        (1, "1 vGPU of a virtual machine is active"),
        (3, "3 vGPUs of virtual machines are active"),
        (-1, "was not answered"),
        ({"error": 3}, "was not answered"),
    ],
)
def test_virtual_machines_on_a_host_are_counted_as_far_as_that_was_answered(active: object, words: str) -> None:
    one = AnswerNode()
    one.both(virtualization__mode="host_vgpu", vgpu__active=active)
    found = row(one.report(), GPUS[0])
    assert found.how is How.VGPU
    assert words in found.detail
    assert found.workloads == (active if isinstance(active, int) and active >= 0 else None)


def mps_node(*, beside: bool) -> AnswerNode:
    """A daemon of MPS with one client, and beside it perhaps a process that does without."""
    one = AnswerNode()
    one.process(500, "/system.slice/nvidia-mps.service", comm="nvidia-cuda-mps")
    one.text("/proc/500/cmdline", "nvidia-cuda-mps-control\0-d\0")
    one.process(900, "/user.slice/user-1007.slice/session-7.scope")
    one.process(901, "/user.slice/user-1009.slice/session-9.scope")
    one.uses(0, 900, kind="mps")
    if beside:
        one.uses(0, 901)
    return one


@pytest.mark.parametrize("beside", [True, False])
def test_those_that_compute_without_mps_beside_its_clients_are_told(*, beside: bool) -> None:
    found = row(mps_node(beside=beside).report(), GPUS[0])
    assert found.how is How.MPS
    assert ("user 1009 computes without MPS" in found.note) is beside


def test_the_first_screen_says_of_mig_no_more_than_holds_for_all_of_it() -> None:
    one = row(report("mig-container-denied-capabilities"), "0000:17:00.0")
    assert in_lines([one])[0].startswith("GPU 0000:17:00.0: MIG, kept apart in hardware; 3 MIG devices")
    parted = msgspec.structs.replace(one, memory=BY_MIG_PARTS.memory)
    assert "kept apart in hardware between GPU instances;" in in_lines([parted])[0]
    noted = msgspec.structs.replace(one, note="a and b share one MIG device")
    assert "MIG, some devices shared once more;" in in_lines([noted])[0]


# Not knowing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nouveau-holds-all-eight", "nouveau holds it"),
        ("nodes-missing-all", "NVML was not asked"),
        ("nvml-gpu-lost", "NVML did not answer for it"),
        ("nvml-not-asked", "was not asked"),
        ("containers-seen-without-root", "whether MPS shares it"),
    ],
)
def test_what_hides_the_sharing_is_named(name: str, words: str) -> None:
    hidden = [one for one in report(name).sharing if one.how is How.UNKNOWN]
    assert hidden
    assert any(words in one.detail for one in hidden)
    assert all(one.workloads is None and not one.memory for one in hidden)


def test_mig_that_was_not_asked_for_and_processes_that_were_not_listed_are_no_whole_gpu() -> None:
    one = AnswerNode()
    one.fields[0].pop("mig.current")
    one.answer()
    del one.answers["nvml"].data["devices"][1]["processes"]
    from tests.gpu_node import GpuNode

    found = GpuNode.report(one).sharing
    assert [each.how for each in found] == [How.UNKNOWN, How.UNKNOWN]
    assert "MIG" in found[0].detail
    assert "not listed" in found[1].detail


@pytest.mark.parametrize("told", ["9" * 5000 + ".0", "9.", "n/a", "8.0.0", "-7.5"])
def test_a_strange_compute_capability_shows_nothing(told: str) -> None:
    one = AnswerNode()
    one.fields[0].pop("mig.current")
    one.fields[0]["compute_capability"] = told
    assert row(one.report(), GPUS[0]).how is How.UNKNOWN


def test_a_bug_in_the_table_costs_the_table_and_not_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ValueError("strange")

    monkeypatch.setattr(sharing, "Who", broken)
    found = AnswerNode().report()
    assert {one.how for one in found.sharing} == {How.UNKNOWN}
    assert "gpudoctor failed: ValueError: strange" in found.sharing[0].detail


def test_what_is_not_known_is_told_without_a_colon_and_with_a_word_for_it() -> None:
    whole, hidden = report("containers-seen-without-root").sharing[0], report("h100x8").sharing[0]
    unseen = msgspec.structs.replace(whole, how=How.UNKNOWN, detail="who has it: /proc: no process was recorded")
    assert in_lines([hidden, unseen])[1].endswith("not known: who has it")


@pytest.mark.parametrize("name", ["options-applied", "slurm-jobs-unconstrained"])
def test_where_no_kubelet_is_known_to_run_nothing_of_kubernetes_is_loaded(name: str) -> None:
    said = subprocess.run([sys.executable, "-c", LOADS, name], capture_output=True, text=True, check=True).stdout
    rows, loaded = json.loads(said)
    assert rows > 0
    assert loaded == []


LOADS = """
import json, sys
from gpudoctor.facts.desk import Desk
from gpudoctor.sharing import shared_gpus
from gpudoctor.testing import config_of, node

recorded = node(sys.argv[1])
rows = shared_gpus(Desk(recorded, config_of(recorded)))
of_kubernetes = ("device_plugin", "pod_devices", "pod_resources", "plugin_sockets", "sharing_config", "kubelet_checkpoint")
print(json.dumps([len(rows), [name for name in of_kubernetes if f"gpudoctor.facts.{name}" in sys.modules]]))
"""


def test_a_gpu_without_mig_is_whole_all_the_same() -> None:
    one = AnswerNode()
    one.fields[0]["mig.current"] = {"error": 3}
    assert row(one.report(), GPUS[0]).how is How.WHOLE


@pytest.mark.parametrize("selection", [Selection(links=("pcie",)), Selection(checks=("sharing.cc-ready",))])
def test_where_nothing_is_asked_of_sharing_as_a_whole_there_is_no_table(selection: Selection) -> None:
    recorded = node("h100x8")
    assert recorded.manifest is not None
    found = run(recorded, Config(), built_in(), selection, recorded.manifest.recorded_at)
    assert found.sharing == ()
    assert "who shares" not in terminal.render(found, Look())


def test_the_link_alone_has_the_whole_table() -> None:
    recorded = node("time-slicing-two-pods-on-one-gpu")
    assert recorded.manifest is not None
    found = run(recorded, Config(), built_in(), Selection(links=("sharing",)), recorded.manifest.recorded_at)
    assert found.sharing == report("time-slicing-two-pods-on-one-gpu").sharing


# Forms ---------------------------------------------------------------------------------------------------------------

NAMES = ["h100x8", "mig-container-denied-capabilities", "time-slicing-two-pods-on-one-gpu", "two-users-share-one-gpu"]


@pytest.mark.parametrize("name", NAMES)
def test_every_form_has_the_table(name: str) -> None:
    found = report(name)
    told = json.loads(json_report.render(found))["sharing"]
    assert [one["gpu"] for one in told] == [gpu.address for gpu in found.node.gpus]
    page, text = html(found), markdown.render(found)
    assert '<section id="sharing"' in page
    for share in folded(found.sharing):
        assert f"| {share.label} |" in text
        assert all(who in page for who in share.row.by)
    assert sum(line.startswith("| ") for line in text.partition("| who shares |")[2].splitlines()) >= 1 + len(
        folded(found.sharing)
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_gets_few_lines_and_no_names(name: str) -> None:
    found = report(name)
    lines = in_lines(found.sharing)
    screen = terminal.render(found, Look(width=100))
    assert 1 <= len(lines) <= 3
    assert all(line.split(":")[0] in screen for line in lines)
    assert not re.search(r"GPU-[0-9a-f]{8}|MIG-[0-9a-f]{8}", "".join(lines))
    assert not any(who in line for one in found.sharing for who in one.by for line in lines)
    verbose = terminal.render(found, Look(width=160, verbose=1))
    assert all(who in verbose for one in found.sharing for who in one.by)


def test_reports_of_before_the_table_still_render(tmp_path: Path) -> None:
    old = json.loads(json_report.render(report("h100x8")))
    del old["sharing"]
    place = tmp_path / "old.json"
    place.write_text(json.dumps(old))
    read = read_report(str(place))
    assert read.sharing == ()
    assert "who shares" not in terminal.render(read, Look())
    assert "who shares" not in markdown.render(read)
    assert 'id="sharing"' not in html(read)


def test_many_ways_are_cut_on_the_first_screen() -> None:
    found = report("h100x8")
    ways = tuple(
        msgspec.structs.replace(one, how=How.MIG, detail=f"{number + 1} MIG devices")
        for number, one in enumerate(found.sharing)
    )
    screen = terminal.render(msgspec.structs.replace(found, sharing=ways), Look(width=100))
    assert "and 4 ways more (-v)" in screen
