"""MIG: GPUs without instances, instances without compute instances, orphans, names and views of another time, layouts and who watches."""

import copy
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.nvidia_smi import answer_from
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.raw import Answer, Entry, EntryType, Gate, Log, Question
from gpudoctor.knowledge.mig_profiles import lacks, missing_everywhere, named_by_label, profiles_of
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.sources.redaction import redact
from gpudoctor.verdicts import Action, Status, Unread, Why
from tests.conftest import SHARED
from tests.gpu_node import INSIDE, GpuNode
from tests.health_node import HealthNode, alarms, find
from tests.test_device_plugin import RUNNING, STARTED, PluginNode, config
from tests.test_redaction import SALT, from_fixture, misjudged
from tests.test_rig_kubernetes import FOUND
from tests.workload_node import CRI, DOCKER, ID, KEY, POD, oci

INSTANCES, COMPUTE, ORPHANS, CONFIG, UUIDS, VIEW, MONITOR = (
    f"sharing.mig-{name}"
    for name in ("instances", "compute-instances", "orphans", "config", "uuids", "view-current", "monitor")
)
MIG = (INSTANCES, COMPUTE, ORPHANS, CONFIG, UUIDS, VIEW, MONITOR)
CAPS = "/proc/driver/nvidia/capabilities"
GPU = "0000:17:00.0"
MANAGER = "/etc/nvidia-mig-manager"
UNIT = "nvidia-mig-manager.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/override.conf"
WANTED = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
TRAIN = "e53eda321b68"


class MigNode(HealthNode):
    """Two A100 80GB, the first divided into 3g.40gb, 2g.20gb and 1g.10gb, until a test says otherwise."""

    def __init__(self, name: str = "a100-pcie-mig") -> None:
        super().__init__(name)
        self.journals: dict[str, str] = {}

    def log(self, name: str) -> Log | Unread:
        """A journal of the test's own, or what was recorded."""
        if name in self.journals:
            return Log(name, self.journals[name], source="journal")
        return super().log(name)

    def link(self, path: str, to: str) -> None:
        """A symbolic link."""
        self.overlay.put(path, Record(entry=Entry(path, EntryType.LINK, to=to)))

    def undivided(self) -> None:
        """MIG on, and no instance."""
        self.devices[0]["mig_devices"] = []
        for instance in (1, 5, 13):
            self.error(f"{CAPS}/gpu0/mig/gi{instance}")

    def manager(self, selected: str = "mixed", *, enabled: bool = True, layouts: str = "", journal: str = "") -> None:
        """nvidia-mig-manager as its package installs it."""
        self.overlay.put(MANAGER, Record(entry=Entry(MANAGER, EntryType.DIR)))
        self.overlay.put(f"/usr/lib/systemd/system/{UNIT}", Record(entry=Entry(UNIT, EntryType.FILE), text="[Unit]\n"))
        if enabled:
            self.link(WANTED, f"/usr/lib/systemd/system/{UNIT}")
        else:
            self.error(WANTED)
        self.overlay.put(
            DROP_IN,
            Record(
                entry=Entry(DROP_IN, EntryType.FILE),
                text=f'[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG={selected}"\n',
            ),
        )
        path = f"{MANAGER}/config.yaml"
        self.overlay.put(path, Record(entry=Entry(path, EntryType.FILE), text=layouts or LAYOUTS))
        self.journals[f"journal/{UNIT}.log"] = journal or RAN

    def label(self, layout: str, state: str = "success") -> None:
        """What the API server has of the node's layout."""
        answer = self.whole.answer("kubernetes", lambda: Question("kubernetes"))
        assert isinstance(answer, Answer)
        data = copy.deepcopy(answer.data)
        labels = data["node"]["metadata"]["labels"] if "metadata" in data["node"] else data["node"]["labels"]
        labels |= {"nvidia.com/mig.config": layout, "nvidia.com/mig.config.state": state}
        self.answers["kubernetes"] = replace(answer, data=data)


LAYOUTS = """version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  mixed:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1}
    - devices: [1]
      mig-enabled: false
  of-40gb:
    - devices: all
      mig-enabled: true
      mig-devices: {"1g.5gb": 7}
  by-board:
    - device-filter: ["0x20B010DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.5gb": 7}
    - device-filter: "0x20B510DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1c.2g.20gb": 3}
"""
_START = "2026-11-29T10:40:20+0000 mig1 systemd[1]: Starting Configure MIG on NVIDIA GPUs...\n"
RAN = f"{_START}2026-11-29T10:40:27+0000 mig1 systemd[1]: Finished Configure MIG on NVIDIA GPUs.\n"
FAILED = (
    f"{RAN}{_START}"
    '2026-11-29T10:50:22+0000 mig1 bash[901]: time="2026-11-29T10:50:22Z" level=fatal msg="Error applying MIG configuration: In use by '
    'another client"\n'
    "2026-11-29T10:50:22+0000 mig1 bash[880]: Error applying MIG config\n"
    "2026-11-29T10:50:22+0000 mig1 systemd[1]: nvidia-mig-manager.service: Main process exited, code=exited, status=1/FAILURE\n"
    "2026-11-29T10:50:22+0000 mig1 systemd[1]: nvidia-mig-manager.service: Failed with result 'exit-code'.\n"
)


def shown(finding: Finding) -> str:
    """All that it cites."""
    return "\n".join(f"{seen.where} {seen.shows}" for seen in finding.evidence)


def commands(finding: Finding) -> str:
    """All that it would have run."""
    return "\n".join(step for remedy in finding.remedies for step in remedy.run)


def mine(report: Report) -> list[tuple[str, str, Status]]:
    """The alarms about MIG."""
    return [one for one in alarms(report) if one[0] in MIG]


def roots(report: Report) -> list[str]:
    """The checks of the root causes."""
    return [cause.check for cause in report.root_causes]


# Instances ------------------------------------------------------------------------------------------------------------


def test_a_divided_gpu_is_well_and_what_is_left_of_it_is_told() -> None:
    report = MigNode().report()
    assert not mine(report)
    assert "1 3g.40gb, 1 2g.20gb, 1 1g.10gb" in find(report, INSTANCES, GPU).summary
    assert find(report, COMPUTE, GPU).status is Status.PASS
    told = find(report, ORPHANS, GPU)
    assert told.status is Status.PASS and "1 of its slices left, into which no profile fits" in told.summary
    assert "GI 13, CI 0" in shown(told) and f"{CAPS}/gpu0/mig/gi13/ci0/access" in shown(told)


def test_room_is_told_where_a_profile_still_fits() -> None:
    node = MigNode()
    node.devices[0]["mig_profiles"][0]["free"] = 2
    assert "there is room for 2 1g.10gb" in find(node.report(), ORPHANS, GPU).summary


def test_slices_of_a_bare_gpu_instance_are_not_left() -> None:
    node = MigNode()
    del node.devices[0]["mig_devices"][2]
    node.error(f"{CAPS}/gpu0/mig/gi13/ci0")
    assert "slices left" not in find(node.report(), ORPHANS, GPU).summary


def test_what_is_left_is_told_to_root_only() -> None:
    node = MigNode()
    for profile in node.devices[0]["mig_profiles"]:
        del profile["free"]
    assert find(node.report(), ORPHANS, GPU).summary.endswith("known to the driver and to NVML")


def test_mig_on_without_instances_is_a_fail_of_that_gpu_alone() -> None:
    node = MigNode()
    node.undivided()
    node.text("/proc/stat", "cpu  1 2 3\nbtime 1795928400\n")
    report = node.report()
    assert mine(report) == [(INSTANCES, GPU, Status.FAIL)] and roots(report) == [INSTANCES]
    finding = find(report, INSTANCES, GPU)
    assert (
        "instances end with each reset and boot" in finding.summary
        and "the boot at 2026-11-29 05:00:00 UTC" in finding.summary
    )
    assert "mig.current: True" in shown(finding) and "MIG devices: none" in shown(finding)
    assert finding.remedies[0].action is Action.CHANGE_CONFIG
    assert "nvidia-smi mig -i 0000:17:00.0 -cgi 1g.10gb -C" in commands(finding) and "-mig 0" in commands(finding)
    assert find(report, INSTANCES, "0000:ca:00.0").status is Status.SKIP


def test_boards_after_ampere_do_not_keep_the_mode_over_a_boot() -> None:
    node = MigNode()
    node.undivided()
    node.fields({"compute_capability": "9.0"}, gpus=[0])
    node.text("/proc/stat", "cpu  1 2 3\nbtime 1795928400\n")
    said = find(node.report(), INSTANCES, GPU).summary
    assert "switched on after the boot at 2026-11-29 05:00:00 UTC" in said and "instances end" not in said


@pytest.mark.parametrize(("error", "status"), [("ENOENT", Status.FAIL), ("EACCES", Status.UNKNOWN)])
def test_without_the_drivers_list_nvmls_is_the_word_unless_it_was_hidden(error: str, status: Status) -> None:
    node = MigNode()
    node.undivided()
    node.error(CAPS, error)
    assert find(node.report(), INSTANCES, GPU).status is status


@pytest.mark.parametrize("hidden", [CAPS, f"{CAPS}/gpu0/mig", f"{CAPS}/gpu0/mig/gi1"])
def test_bare_gpu_instances_that_are_hidden_are_not_called_missing(hidden: str) -> None:
    node = MigNode("mig-gpu-instances-all-without-compute-instances")
    node.error(hidden, "EACCES")
    assert not mine(node.report())


def test_a_container_that_is_given_no_instance_does_not_say_that_there_is_none() -> None:
    node = MigNode()
    node.undivided()
    node.error(CAPS)
    node.error("/dev/kmsg")
    said = find(node.report(), INSTANCES, GPU)
    assert said.status is Status.UNKNOWN and "in this container" in said.summary


def working(node: GpuNode) -> None:
    """A change of the layout that is under way."""
    node.process(804, "/system.slice/nvidia-mig-manager.service", comm="nvidia-mig-part")


def test_a_change_of_the_layout_that_is_under_way_is_waited_for() -> None:
    node = GpuNode()
    divided(node, instances=())
    assert find(node.report(), INSTANCES, "0000:05:00.0").status is Status.FAIL
    working(node)
    said = find(node.report(), INSTANCES, "0000:05:00.0")
    assert said.status is Status.UNKNOWN and "just now" in said.summary
    node = GpuNode()
    divided(node)
    node.capability("gpu0/mig/gi9/access", 84)
    assert find(node.report(), COMPUTE, "0000:05:00.0").status is Status.WARN
    working(node)
    assert find(node.report(), COMPUTE, "0000:05:00.0").status is Status.UNKNOWN


def test_who_would_make_the_instances_is_asked_first() -> None:
    node = MigNode()
    node.undivided()
    node.manager()
    finding = find(node.report(), INSTANCES, GPU)
    first = finding.remedies[0]
    assert "all-disabled" in first.say and "systemctl start nvidia-mig-manager" in first.run[-1]
    assert "every program on the GPUs whose layout changes" in first.interrupts
    small = GpuNode()
    divided(small, instances=())
    assert "systemctl start" not in commands(find(small.report(), INSTANCES, "0000:05:00.0"))
    small.process(805, DOCKER, comm="nvidia-mig-mana")
    first = find(small.report(), INSTANCES, "0000:05:00.0").remedies[0]
    assert "nvidia.com/mig.config=CONFIG" in "\n".join(first.run)


def test_instances_that_nobody_listed_are_unknown() -> None:
    node = MigNode()
    node.undivided()
    del node.devices[0]["mig_devices"]
    report = node.report()
    assert not mine(report) and find(report, INSTANCES, GPU).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mig.pending": False}, "a reset is awaited"),
        ({"virtualization.mode": "host_vgpu"}, "belong to virtual machines"),
    ],
)
def test_look_alikes_of_a_gpu_without_instances(fields: dict[str, Any], words: str) -> None:
    node = MigNode()
    node.undivided()
    node.fields(fields, gpus=[0])
    report = node.report()
    assert not mine(report)
    said = find(report, INSTANCES, GPU)
    assert said.status is Status.SKIP and words in said.summary


@pytest.mark.parametrize(
    ("gates", "status"), [("DynamicMIG=true,", Status.SKIP), ("DynamicMIG=false,", Status.FAIL), ("", Status.FAIL)]
)
def test_instances_that_are_made_on_demand_are_not_missed(gates: str, status: Status) -> None:
    node = GpuNode()
    divided(node, instances=())
    node.process(803, "/system.slice/dra.service", comm="gpu-kubelet-plu")
    node.text("/proc/803/environ", f"PATH=/bin\0FEATURE_GATES={gates}\0")
    said = find(node.report(), INSTANCES, "0000:05:00.0")
    assert said.status is status


def test_a_gpu_instance_without_a_compute_instance_is_told_as_that() -> None:
    node = MigNode()
    node.devices[0]["mig_devices"] = []
    for instance in (1, 5, 13):
        node.error(f"{CAPS}/gpu0/mig/gi{instance}/ci0")
    report = node.report()
    assert mine(report) == [(COMPUTE, GPU, Status.FAIL)]
    finding = find(report, COMPUTE, GPU)
    assert "gi1, gi5, gi13 have no compute instance" in finding.summary
    assert "-cci -gi 1,5,13" in commands(finding) and f"{CAPS}/gpu0/mig/gi5/access" in shown(finding)


def test_one_bare_instance_beside_good_ones_is_a_warning() -> None:
    node = MigNode()
    node.devices[0]["mig_devices"] = node.devices[0]["mig_devices"][:2]
    node.error(f"{CAPS}/gpu0/mig/gi13/ci0")
    report = node.report()
    assert mine(report) == [(COMPUTE, GPU, Status.WARN)]
    assert "gi13" in find(report, COMPUTE, GPU).summary


def test_what_the_plugin_finds_wrong_follows_from_missing_instances() -> None:
    node = WatchedNode()
    node.devices[0]["mig_devices"] = []
    for path in ("gi1/ci0/access", "gi1/access"):
        node.absent(f"{CAPS}/gpu0/mig/{path}")
    node.devices[1]["fields"] = {"mig.current": True, "mig.pending": True}
    node.devices[1]["mig_devices"] = []
    node.resources({})
    node.nvml()
    node.log(
        STARTED + config("single") + "I1129 10:00:01.1       1 main.go:416] No devices found. Waiting indefinitely.\n"
    )
    report = report_of(node)
    assert roots(report) == [INSTANCES]
    for check in (FOUND, "device-plugin.mig-strategy"):
        assert all(one.caused_by for one in report.result(check).findings if one.status in (Status.FAIL, Status.WARN))


def test_a_strategy_that_misses_the_instances_of_one_gpu_follows_too() -> None:
    node = WatchedNode()
    node.devices[1]["fields"] = {"mig.current": True, "mig.pending": True}
    node.devices[1]["mig_devices"] = []
    node.nvml()
    for strategy in ("single", "mixed"):
        node.log(RUNNING + config(strategy))
        node.resources({"nvidia.com/gpu": ["MIG-1"]})
        report = report_of(node)
        assert roots(report) == [INSTANCES], strategy
        followed = [one for one in report.result("device-plugin.mig-strategy").findings if one.caused_by]
        assert [one.caused_by for one in followed] == [(find(report, INSTANCES, "0000:02:00.0").id,)]


# Orphans --------------------------------------------------------------------------------------------------------------


def test_an_instance_that_nvml_does_not_list() -> None:
    node = MigNode()
    del node.devices[0]["mig_devices"][2]
    report = node.report()
    assert mine(report) == [(ORPHANS, GPU, Status.WARN)]
    finding = find(report, ORPHANS, GPU)
    assert "the driver has gi13/ci0, which NVML does not list" in finding.summary
    assert f"{CAPS}/gpu0/mig/gi13/ci0/access" in shown(finding)


def test_an_instance_that_the_driver_has_no_capability_for() -> None:
    node = MigNode()
    node.error(f"{CAPS}/gpu0/mig/gi13")
    report = node.report()
    assert mine(report) == [(ORPHANS, GPU, Status.WARN)]
    assert "NVML lists gi13/ci0" in find(report, ORPHANS, GPU).summary


def test_a_user_and_a_container_are_not_shown_all_instances() -> None:
    node = MigNode()
    del node.devices[0]["mig_devices"][2]
    node.uid = 1000
    assert not mine(node.report()) and find(node.report(), ORPHANS, GPU).status is Status.UNKNOWN
    node = MigNode()
    del node.devices[0]["mig_devices"][2]
    node.error("/dev/kmsg")
    assert not mine(node.report())


def test_nothing_is_compared_where_one_side_is_hidden() -> None:
    node = MigNode()
    node.error(f"{CAPS}/gpu0/mig", "EACCES")
    report = node.report()
    assert not mine(report) and find(report, ORPHANS, GPU).status is Status.UNKNOWN
    node = MigNode()
    for one in node.devices[0]["mig_devices"]:
        del one["gpu_instance_id"]
    report = node.report()
    assert not mine(report) and find(report, ORPHANS, GPU).status is Status.UNKNOWN


# The layout that is wanted --------------------------------------------------------------------------------------------


def test_a_manager_that_made_its_layout_passes() -> None:
    node = MigNode()
    node.manager()
    said = find(node.report(), CONFIG, "node")
    assert said.status is Status.PASS and "makes mixed at each boot" in said.summary
    assert "MIG_PARTED_SELECTED_CONFIG=mixed" in shown(said)


@pytest.mark.parametrize("path", [DROP_IN, f"{MANAGER}/config.yaml", WANTED, MANAGER])
def test_a_manager_that_cannot_be_looked_at_is_unknown(path: str) -> None:
    node = MigNode()
    node.manager()
    node.error(path, "EACCES")
    report = node.report()
    assert not mine(report) and report.result(CONFIG).status is Status.UNKNOWN, path


def test_without_a_unit_there_is_no_manager() -> None:
    node = MigNode()
    node.manager(journal=FAILED)
    for folder in ("/etc", "/usr/lib", "/lib"):
        node.error(f"{folder}/systemd/system/{UNIT}")
    report = node.report()
    assert not mine(report) and report.result(CONFIG).status is Status.SKIP


@pytest.mark.parametrize("selected", ["of-40gb", "no-such"])
def test_a_manager_that_is_not_enabled_where_mig_is_off_makes_nothing_wrong(selected: str) -> None:
    node = MigNode()
    node.undivided()
    node.fields({"mig.current": False, "mig.pending": False}, gpus=[0])
    node.manager(selected, enabled=False, journal=FAILED)
    said = find(node.report(), CONFIG, "node")
    assert said.status is Status.SKIP and "no instance is there to be lost" in said.summary
    node.manager(selected)
    assert find(node.report(), CONFIG, "node").status is Status.WARN


def test_a_manager_that_failed_is_the_cause_of_missing_instances() -> None:
    node = MigNode()
    node.undivided()
    node.manager(journal=FAILED)
    report = node.report()
    assert roots(report) == [CONFIG]
    finding = find(report, CONFIG, "node")
    assert finding.status is Status.FAIL and "In use by another client" in finding.summary and GPU in finding.summary
    assert "level=fatal" not in finding.summary and "level=fatal" in shown(finding)
    assert find(report, INSTANCES, GPU).caused_by == (finding.id,)


def test_a_manager_that_failed_while_instances_are_there_is_a_warning() -> None:
    node = MigNode()
    node.manager(journal=FAILED)
    assert mine(node.report()) == [(CONFIG, "node", Status.WARN)]


def test_long_lines_of_the_manager_take_as_long_as_they_are() -> None:
    began = time.process_time()
    for words in (
        "2026-11-29T",
        f"{_START.strip()} Main process exited, ",
        f"{_START.strip()} level=fatal Assertion failure ",
    ):
        node = MigNode()
        node.manager(journal=f"{words * 30_000}\n{RAN}")
        assert not mine(node.report())
    assert time.process_time() - began < 20


def test_only_the_last_run_of_the_manager_counts() -> None:
    node = MigNode()
    node.manager(journal=FAILED + RAN)
    assert not mine(node.report())


def test_a_layout_of_profiles_that_the_board_has_not() -> None:
    node = MigNode()
    node.undivided()
    node.manager("of-40gb", journal=FAILED)
    report = node.report()
    assert roots(report) == [CONFIG]
    finding = find(report, CONFIG, "node")
    assert f"wants 1g.5gb of {GPU}" in finding.summary and "of-40gb: 7 1g.5gb" in shown(finding)
    assert "1g.10gb" in finding.remedies[0].say


def test_filters_choose_the_board_and_parts_of_instances_count_as_these() -> None:
    node = MigNode()
    node.manager("by-board")
    assert not mine(node.report())


def test_names_of_layouts_may_look_like_numbers() -> None:
    node = MigNode()
    layouts = LAYOUTS + "  7: []\n  true: []\n"
    node.manager("7", layouts=layouts)
    assert find(node.report(), CONFIG, "node").status is Status.PASS
    node.manager("no-such", layouts=layouts)
    assert find(node.report(), CONFIG, "node").status is Status.WARN


def test_a_layout_that_the_file_does_not_have() -> None:
    node = MigNode()
    node.manager("no-such")
    finding = find(node.report(), CONFIG, "node")
    assert finding.status is Status.WARN and "no-such" in finding.summary and "mixed" in finding.remedies[0].say


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n", "mig-config: {}\n", "mig-configs: []\n"])
def test_a_file_of_ones_own_that_has_no_layouts_makes_none(text: str | None) -> None:
    """The usual file is written anew at each boot (service.sh of mig-parted); one that the drop-in names is not."""
    own = "/opt/site/mig.yaml"
    for path, status in ((own, Status.WARN), (f"{MANAGER}/config.yaml", Status.PASS)):
        node = MigNode()
        node.manager()
        named = (
            f'[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG=mixed"\nEnvironment="MIG_PARTED_CONFIG_FILE={path}"\n'
        )
        node.overlay.put(DROP_IN, Record(entry=Entry(DROP_IN, EntryType.FILE), text=named))
        if text is None:
            node.error(path)
        else:
            node.overlay.put(path, Record(entry=Entry(path, EntryType.FILE), text=text))
        finding = find(node.report(), CONFIG, "node")
        assert finding.status is status, finding
        told = f"the layout mixed, which {own} does not have"
        assert status is Status.PASS or (told in finding.summary and own in shown(finding))
        assert status is Status.PASS or "1g.10gb" in finding.remedies[0].say


def test_layouts_that_refer_to_themselves_a_thousand_times_stay_small() -> None:
    """Aliases of YAML are one list in memory, and as text as many as there are references."""
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{at}: &a{at} [*a{at - 1}, *a{at - 1}]\n" for at in range(1, 30))
    node = MigNode()
    devices = 'mig-devices: {"1g.10gb": *a29, "2g.20gb": 1}'
    part = f"    - device-filter: [*a29]\n      devices: all\n      mig-enabled: true\n      {devices}\n"
    whole = f"    - devices: all\n      mig-enabled: true\n      {devices}\n"
    node.manager("wild", layouts=f"{bomb}{LAYOUTS}  wild:\n{part}{whole}")
    finding = find(node.report(), CONFIG, "node")
    assert len(shown(finding)) < 1000 and finding.status is Status.PASS
    # Python writes no number of so many digits.
    node.manager("wild", layouts=LAYOUTS + whole.replace("*a29", f"0x{'f' * 6000}").join(("  wild:\n", "")))
    assert find(node.report(), CONFIG, "node").status is Status.PASS


def test_a_manager_that_is_not_enabled_is_told_while_there_is_something_to_lose() -> None:
    node = MigNode()
    node.manager(enabled=False)
    finding = find(node.report(), CONFIG, "node")
    assert finding.status is Status.WARN and "nothing makes the instances anew" in finding.summary
    node.undivided()
    report = node.report()
    finding = find(report, INSTANCES, GPU)
    assert roots(report) == [INSTANCES] and WANTED in shown(finding)
    assert "nvidia-mig-manager, which would make them, is not enabled" in finding.summary
    assert "systemctl enable nvidia-mig-manager" in commands(finding)


@pytest.mark.parametrize(
    "words",
    ["No nvidia module loaded, skipping MIG device config", "Error applying MIG config", "Assertion failure: no"],
)
def test_a_run_that_made_nothing_counts_as_failed_even_where_systemd_does_not_say_so(words: str) -> None:
    node = MigNode()
    node.undivided()
    said = f'2026-11-29T10:40:22+0000 mig1 bash[9]: time="x" level=fatal msg="{words}"\n'
    node.manager(journal=RAN.replace("\n", f"\n{said}", 1))
    assert roots(node.report()) == [INSTANCES if words.startswith("Assertion") else CONFIG]


def test_a_label_with_a_profile_that_no_gpu_has_is_the_one_cause() -> None:
    node = MigNode("mig-config-applied")
    node.label("all-1g.5gb", "failed")
    report = node.report()
    assert roots(report) == [CONFIG]
    finding = find(report, CONFIG, "node")
    assert "asks for 1g.5gb" in finding.summary and "nvidia.com/mig.config=all-1g.5gb" in shown(finding)
    node.label("all-1g.10gb.me")
    assert not mine(node.report())
    node.label("all-1g.5gb", "success")
    assert not mine(node.report()), "what the manager has made is no profile of another board"


def test_a_label_says_the_same_to_one_check_when_nvml_is_silent() -> None:
    node = MigNode("mig-label-asks-for-a-profile-of-another-board")
    node.answers["nvml"] = Unread(Why.NO_PERMISSION, "NVML", "hidden")
    report = node.report()
    assert not alarms(report)
    assert report.result("device-plugin.mig-manager").status in (Status.UNKNOWN, Status.BLOCKED)


def test_a_redacted_recording_of_a_manager_tells_the_same(tmp_path: Path) -> None:
    members = from_fixture("a100-pcie-mig")
    folders = [
        {"path": MANAGER, "type": "dir"},
        {"path": WANTED, "type": "link", "to": f"/usr/lib/systemd/system/{UNIT}"},
    ]
    members["entries.jsonl"] += "".join(f"{json.dumps(entry)}\n" for entry in folders).encode()
    members[f"root/usr/lib/systemd/system/{UNIT}"] = b"[Unit]\n"
    members[f"root{DROP_IN}"] = b"[Service]\nEnvironment=MIG_PARTED_SELECTED_CONFIG=of-40gb\n"
    members[f"root{MANAGER}/config.yaml"] = LAYOUTS.encode()
    assert misjudged(members, redact(members, SALT).members, tmp_path) == {}


def test_names_of_layouts_and_boards() -> None:
    assert named_by_label("all-1g.24gb.me.all") == "1g.24gb+me.all" and named_by_label("all-1g.24gb-me") == "1g.24gb-me"
    assert not named_by_label("all-balanced") and not named_by_label("custom")
    assert "1g.5gb" in profiles_of("0x20b0") and "1g.5gb" not in profiles_of("0x20b5") and not profiles_of("0x1234")
    assert missing_everywhere("all-1g.5gb", [("0x20b5", ())]) == "1g.5gb"
    assert not missing_everywhere("all-1g.5gb", [("0x20b5", ()), ("0x1234", ())])
    assert not missing_everywhere("all-1g.5gb", [("0x20b5", ("1g.5gb",))])
    # With MIG off NVML lists nothing, and the table need not know each form.
    assert not lacks("0x2901", (), "1g.23gb-me") and not lacks("0x2330", (), "1c.2g.20gb+me")
    assert (
        lacks("0x2901", ("1g.23gb",), "1g.23gb-me") and lacks("0x2330", (), "1g.5gb+me") and lacks("0x2330", (), "half")
    )


def test_the_manager_of_the_operator_follows_from_missing_instances() -> None:
    node = MigNode("mig-config-applied")
    node.undivided()
    node.label("all-1g.10gb")
    report = node.report()
    told = find(report, "device-plugin.mig-manager", "node")
    assert told.status is Status.WARN and told.caused_by == (find(report, INSTANCES, GPU).id,)


# Names ----------------------------------------------------------------------------------------------------------------


def test_a_container_that_names_an_instance_that_was_made_anew() -> None:
    node = MigNode("mig-container-denied-capabilities")
    node.devices[0]["mig_devices"][0]["uuid"] = "MIG-00000000-93f4-5b27-8e10-4a7f2bd9c361"
    report = node.report()
    finding = find(report, UUIDS, TRAIN)
    assert finding.status is Status.FAIL and "MIG-5c1d0a6e-93f4-5b27-8e10-4a7f2bd9c361" in finding.summary
    assert "3g.40gb (GI 1, CI 0)" in shown(finding)
    assert finding.remedies[0].action is Action.CHANGE_WORKLOAD and "nvidia-smi -L" in commands(finding)


OF_DOCKER = re.compile(r"docker|kubectl|helm")
PODMAN = f"/machine.slice/libpod-{ID}.scope"


@pytest.mark.parametrize(
    ("group", "command"),
    [
        (DOCKER, "docker run --gpus '\"device=MIG-…\"' …"),
        (PODMAN, "podman run --device nvidia.com/gpu=MIG-… …"),
        ("/lxc.payload.ml", "nvidia-smi -L"),
        ("/system.slice/slurmstepd.scope/job_397/step_0", "scontrol requeue JOB"),
    ],
)
def test_whoever_named_an_instance_is_told_what_its_own_engine_takes(group: str, command: str) -> None:
    node = GpuNode()
    node.process(701, group)
    node.container(702, group, "NVIDIA_VISIBLE_DEVICES=MIG-old", nodes=held(12, 13))
    divided(node)
    (finding,) = [one for one in node.report().result(UUIDS).findings if one.status is Status.FAIL]
    assert command in commands(finding)
    assert group == DOCKER or OF_DOCKER.search(commands(finding)) is None


def test_names_that_are_there_pass_and_without_nvmls_list_nothing_is_said() -> None:
    node = MigNode("mig-container-denied-capabilities")
    said = find(node.report(), UUIDS, "node")
    assert said.status is Status.PASS and "all are there" in said.summary
    del node.devices[0]["mig_devices"]
    assert find(node.report(), UUIDS, "node").status is Status.UNKNOWN


def asking(*names: str, uid: str = "GPU-0a0b0c0d-1111-2222-3333-444455556666") -> GpuNode:
    """A container that asks for MIG devices by name on a node with one divided GPU."""
    node = GpuNode()
    node.container(702, DOCKER, f"NVIDIA_VISIBLE_DEVICES={','.join(names)}", nodes=held(12, 13))
    divided(node, uid)
    return node


def held(*minors: int) -> dict[str, tuple[int, int]]:
    """The nodes in a container with these capabilities."""
    return {**INSIDE, **{f"nvidia-caps/nvidia-cap{minor}": (506, minor) for minor in minors}}


def divided(
    node: GpuNode, uuid: str = "GPU-0a0b0c0d-1111-2222-3333-444455556666", instances: Sequence[int] = (1, 5)
) -> None:
    """The first GPU of a small node with some instances."""
    node.capability("mig/config", 1, mode=0o400)
    node.capability("mig/monitor", 2)
    for instance in instances:
        for path, minor in ((f"gi{instance}", 3 + 9 * instance), (f"gi{instance}/ci0", 4 + 9 * instance)):
            node.capability(f"gpu0/mig/{path}/access", minor)
            node.char(f"/dev/nvidia-caps/nvidia-cap{minor}", 506, minor, 0o444)
    first = {
        "index": 0,
        "pci_bus_id": "00000000:05:00.0",
        "uuid": uuid,
        "minor": 0,
        "fields": {"mig.current": True, "mig.pending": True},
        "mig_devices": [
            {"index": index, "uuid": f"MIG-{instance}", "gpu_instance_id": instance, "compute_instance_id": 0}
            for index, instance in enumerate(instances)
        ],
    }
    other = {
        "index": 1,
        "pci_bus_id": "00000000:06:00.0",
        "uuid": "GPU-1",
        "minor": 1,
        "fields": {"mig.current": False},
    }
    node.answers["nvml"] = Answer({"init": 0, "driver_version": "580.95.05", "count": 2, "devices": [first, other]})


def test_the_old_form_counts_where_its_instance_is_there() -> None:
    gpu = "GPU-0a0b0c0d-1111-2222-3333-444455556666"
    assert find(asking(f"MIG-{gpu}/1/0", "MIG-5").report(), UUIDS, "node").status is Status.PASS
    finding = find(asking(f"MIG-{gpu}/7/0").report(), UUIDS, KEY)
    assert finding.status is Status.FAIL and "in the form of drivers up to R460" in finding.summary


def test_a_unit_that_names_an_instance_that_is_gone() -> None:
    node = asking("MIG-1")
    node.process(801, "/system.slice/inference.service", comm="serve")
    node.text("/proc/801/environ", "PATH=/bin\0CUDA_VISIBLE_DEVICES=MIG-old\0HOME=/\0")
    finding = find(node.report(), UUIDS, "inference.service")
    assert finding.status is Status.FAIL and "/proc/801/environ" in shown(finding)
    assert "systemctl edit" in commands(finding) and "PATH" not in shown(finding)


@pytest.mark.parametrize("change", ["lost", "untold"])
def test_a_name_may_be_that_of_a_gpu_which_does_not_answer(change: str) -> None:
    node = asking("MIG-old")
    answer = node.answers["nvml"]
    assert find(node.report(), UUIDS, KEY).status is Status.FAIL
    node = asking("MIG-old")
    other = answer.data["devices"][1]
    other |= {"error": {"call": "nvmlDeviceGetHandleByIndex_v2", "code": 15}} if change == "lost" else {"fields": {}}
    node.answers["nvml"] = answer
    assert find(node.report(), UUIDS, "node").status is Status.UNKNOWN


def test_a_name_that_nvml_may_not_list_here_is_not_called_gone() -> None:
    node = asking("MIG-old")
    node.capability("gpu0/mig/gi9/access", 84)
    node.capability("gpu0/mig/gi9/ci0/access", 85)
    assert find(node.report(), UUIDS, KEY).status is Status.FAIL
    node = asking("MIG-old")
    node.capability("gpu0/mig/gi9/access", 84)
    node.capability("gpu0/mig/gi9/ci0/access", 85)
    node.uid = 1000
    assert [one.status for one in node.report().result(UUIDS).findings] == [Status.UNKNOWN]


def test_names_that_are_gone_because_no_instance_is_there_follow_from_that() -> None:
    node = GpuNode()
    divided(node, instances=())
    node.process(801, "/system.slice/inference.service", comm="serve")
    node.text("/proc/801/environ", "CUDA_VISIBLE_DEVICES=MIG-old\0")
    node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=MIG-old", nodes=held(66, 67))
    report = node.report()
    root = find(report, INSTANCES, "0000:05:00.0")
    assert root.status is Status.FAIL and [one for one in mine(report) if one[0] != INSTANCES] == []
    for key in ("inference.service", KEY):
        assert root.id in find(report, UUIDS, key).caused_by, key


# Views ----------------------------------------------------------------------------------------------------------------


def test_a_container_that_holds_nodes_of_instances_that_are_gone() -> None:
    node = GpuNode()
    node.container(nodes=held(12, 13, 66, 67))
    divided(node)
    report = node.report()
    finding = find(report, VIEW, KEY)
    assert finding.status is Status.WARN and "nvidia-cap66, nvidia-cap67" in finding.summary
    assert "docker restart" in commands(finding)


@pytest.mark.parametrize(("group", "command"), [(DOCKER, "docker restart "), (PODMAN, ""), (POD, "delete pod trainer")])
def test_an_old_view_is_renewed_as_its_own_engine_does_it(group: str, command: str) -> None:
    node = GpuNode()
    node.container(702, group, nodes=held(12, 13, 66, 67))
    node.bundle(ID, oci(annotations=CRI))
    divided(node)
    finding = find(node.report(), VIEW, KEY)
    assert "what it sees of MIG is fixed when it starts" in finding.remedies[0].say
    assert command in "".join(finding.remedies[0].run) and bool(finding.remedies[0].run) is bool(command)


def test_a_container_for_all_gpus_that_lacks_newer_instances() -> None:
    node = GpuNode()
    node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=all", nodes=held(12, 13))
    divided(node)
    finding = find(node.report(), VIEW, KEY)
    assert (
        finding.status is Status.WARN
        and "lacks nvidia-cap48 (gpu0 gi5), nvidia-cap49 (gpu0 gi5/ci0)" in finding.summary
    )


@pytest.mark.parametrize("names", [("MIG-1",), ("all",)])
def test_who_holds_what_it_asked_for_is_not_accused(names: tuple[str, ...]) -> None:
    node = asking(*names)
    if names == ("all",):
        node = GpuNode()
        node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=all", nodes=held(12, 13, 48, 49))
        divided(node)
    report = node.report()
    assert find(report, VIEW, "node").status is Status.PASS and not mine(report)


def test_a_container_for_all_gpus_from_before_mig_was_on_has_none() -> None:
    node = GpuNode()
    node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=all")
    node.complete += ["/proc/702/root/dev"]
    node.text(
        f"/var/lib/docker/containers/{ID}/hostconfig.json",
        '{"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}',
    )
    divided(node)
    finding = find(node.report(), VIEW, KEY)
    assert finding.status is Status.WARN and "lacks nvidia-cap12 (gpu0 gi1)" in finding.summary


def test_capabilities_of_other_kinds_are_no_instances() -> None:
    node = GpuNode()
    node.container(nodes=held(12, 13, 4323))
    divided(node)
    node.capability("fabric-imex-mgmt", 4323, mode=0o400)
    report = node.report()
    assert find(report, VIEW, "node").status is Status.PASS and not mine(report)


@pytest.mark.parametrize("name", ["nvidia-cap48", "nvidia-cap49"])
def test_a_node_that_is_hidden_is_not_lacking(name: str) -> None:
    node = GpuNode()
    node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=all", nodes=held(12, 13, 48, 49))
    divided(node)
    node.complete += ["/proc/702/root/dev"]
    node.tree.put(f"/proc/702/root/dev/nvidia-caps/{name}", Record(error="EACCES"))
    report = node.report()
    assert not mine(report) and find(report, VIEW, KEY).status is Status.UNKNOWN


def test_a_name_that_is_gone_explains_the_old_view() -> None:
    node = GpuNode()
    node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=MIG-old", nodes=held(66, 67))
    divided(node)
    report = node.report()
    assert find(report, VIEW, KEY).caused_by == (find(report, UUIDS, KEY).id,)


# Watchers -------------------------------------------------------------------------------------------------------------


class WatchedNode(PluginNode):
    """The plugin's node, its first GPU divided."""

    def __init__(self) -> None:
        super().__init__()
        self.text(
            "/proc/devices",
            "Character devices:\n195 nvidia\n195 nvidiactl\n506 nvidia-caps\n508 nvidia-uvm\n\nBlock devices:\n",
        )
        for path, minor in {
            "mig/config": 1,
            "mig/monitor": 2,
            "gpu0/mig/gi1/access": 12,
            "gpu0/mig/gi1/ci0/access": 13,
        }.items():
            self.text(f"{CAPS}/{path}", f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
            node = f"/dev/nvidia-caps/nvidia-cap{minor}"
            self.tree.put(node, Record(entry=Entry(node, EntryType.CHAR, 0o444, 0, 0, major=506, minor=minor)))
        self.devices[0]["fields"] = {"mig.current": True, "mig.pending": True}
        self.devices[0]["mig_devices"] = [
            {"index": 0, "uuid": "MIG-1", "profile": "1g.10gb", "gpu_instance_id": 1, "compute_instance_id": 0}
        ]
        self.nvml()


def report_of(node: PluginNode) -> Report:
    """What the doctor says."""
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection, run
    from tests.captures import NOW

    return run(node.node(), Config(), built_in(), Selection(), NOW)


def test_a_plugin_that_may_not_look_at_instances_is_the_cause_of_its_end() -> None:
    node = WatchedNode()
    node.resources({})
    node.log(
        STARTED
        + config("mixed")
        + "E1129 10:00:02.0       1 main.go:188] error starting plugins: error getting plugins: error visiting "
        "device: error getting device memory info: Insufficient Permissions\n"
    )
    report = report_of(node)
    finding = find(report, MONITOR, "nvidia-device-plugin")
    assert finding.status is Status.FAIL and "Insufficient Permissions" in finding.summary
    assert "NVIDIA_MIG_MONITOR_DEVICES=all" in finding.remedies[0].say and "mode=legacy" in commands(finding)
    assert finding.id in find(report, FOUND, "nvidia-device-plugin").caused_by


def test_a_plugin_that_serves_is_not_accused_for_a_line_of_its_log() -> None:
    node = WatchedNode()
    node.log(RUNNING + config("mixed") + "W1129 10:00:02.0       1 x.go:1] unable to tell: Insufficient Permissions\n")
    assert (MONITOR, "nvidia-device-plugin", Status.FAIL) not in mine(report_of(node))


def watcher(*minors: int, comm: str = "dcgm-exporter") -> GpuNode:
    """A container with an exporter and these capabilities, and rules for all but mig/monitor."""
    node = GpuNode()
    node.container(nodes=held(*minors))
    node.process(702, DOCKER, comm=comm, apart=True)
    divided(node)
    node.char("/dev/nvidia-caps/nvidia-cap2", 506, 2, 0o444)
    return node


def test_an_exporter_without_the_node_of_mig_monitor() -> None:
    finding = find(watcher(12, 13, 48, 49).report(), MONITOR, KEY)
    assert finding.status is Status.WARN and "not /dev/nvidia-caps/nvidia-cap2" in finding.summary


def test_an_exporter_in_no_pod_is_not_sent_to_a_chart() -> None:
    finding = find(watcher(12, 13, 48, 49).report(), MONITOR, KEY)
    assert "--cap-add SYS_ADMIN -e NVIDIA_MIG_MONITOR_DEVICES=all" in commands(finding)
    assert f"docker restart {KEY}" in commands(finding) and re.search("helm|kubectl", commands(finding)) is None
    node = watcher(12, 13, 48, 49)
    node.container(702, POD, nodes=held(12, 13, 48, 49))
    node.process(702, POD, comm="dcgm-exporter", apart=True)
    node.bundle(ID, oci(annotations=CRI))
    told = commands(find(node.report(), MONITOR, KEY))
    assert "helm upgrade" in told and "kubectl -n lab delete pod trainer" in told and "docker" not in told


def test_an_exporter_whose_cgroup_refuses_mig_monitor() -> None:
    from gpudoctor.facts.device_access import Access, DeviceKind
    from tests.device_shapes import Rule
    from tests.gpu_node import GIVEN

    node = watcher(2, 12, 13, 48, 49)
    some = tuple(Rule(True, DeviceKind.CHAR, 506, minor, Access.READ) for minor in (12, 13, 48, 49))
    node.rules(*GIVEN, *some)
    finding = find(node.report(), MONITOR, KEY)
    assert finding.status is Status.FAIL and "its cgroup does not let it open it" in finding.summary
    node = watcher(2, 12, 13, 48, 49)
    node.rules(*GIVEN, *some, Rule(True, DeviceKind.CHAR, 506, 2, Access.READ))
    assert find(node.report(), MONITOR, KEY).status is Status.PASS

    assert finding.remedies[0].run[0] == "nvidia-ctk --version", "it asks for the node already"


def test_a_node_of_mig_monitor_that_is_hidden_is_not_missing() -> None:
    node = watcher(2, 12, 13, 48, 49)
    node.tree.put("/proc/702/root/dev/nvidia-caps/nvidia-cap2", Record(error="EACCES"))
    report = node.report()
    assert not mine(report) and find(report, MONITOR, KEY).status is Status.UNKNOWN


def test_two_programs_of_one_exporter_are_told_once() -> None:
    node = watcher(12, 13, 48, 49)
    node.process(703, DOCKER, comm="nv-hostengine", apart=True)
    assert find(node.report(), MONITOR, KEY).status is Status.WARN


def test_a_program_that_only_computes_needs_no_mig_monitor() -> None:
    report = watcher(12, 13, 48, 49, comm="python3").report()
    assert not [one for one in mine(report) if one[0] == MONITOR]


# Nothing to share -----------------------------------------------------------------------------------------------------


class CountedNode(HealthNode):
    """Counts what is read for the sake of MIG."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.looked: list[str] = []

    def entry(self, path: str, *, follow: bool = False) -> Any:
        """What is at a path."""
        self.looked += [path] if "mig-manager" in path else []
        return super().entry(path, follow=follow)

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """An answer."""
        return super().answer(name, gate)


def test_a_node_without_mig_costs_one_look() -> None:
    node = CountedNode("h100x8")
    report = node.report()
    assert node.looked == [MANAGER]
    assert {report.result(check).status for check in MIG} == {Status.SKIP}
    node = CountedNode("rtx4090-workstation-display")
    node.report()
    assert len(node.looked) <= 1


# nvidia-smi -----------------------------------------------------------------------------------------------------------


def devices_in(text: str, arguments: str | None = None) -> tuple[NvmlDevice, ...]:
    """The devices of one output, as the fact has them."""
    answer = answer_from(arguments, text)
    assert answer is not None
    node = RecordedNode(Tree())
    node.answers["nvml"] = answer
    nvml = Desk(node, Config()).get(Nvml)
    assert isinstance(nvml, Nvml), nvml
    return nvml.devices


NOTHING = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:07:00.0 Off |                   On |
| N/A   31C    P0             43W /  400W |       0MiB /  40960MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  No MIG devices found                                                                   |
+-----------------------------------------------------------------------------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""


def test_a_table_that_says_that_there_is_none_is_an_answer(tmp_path: Path) -> None:
    (device,) = devices_in(NOTHING, "")
    assert device.lists_mig and not device.mig_devices and device.fields["mig.current"] is True
    from tests.test_nvidia_smi_forms import report_on

    finding = find(report_on(NOTHING, tmp_path), INSTANCES, "0000:07:00.0")
    assert finding.status is Status.FAIL and "MIG devices: none" in shown(finding)
    cut = NOTHING.partition("| Processes")[0]
    assert not any(device.lists_mig for device in devices_in(cut, ""))


CORPUS = SHARED / "corpus"
_LISTED = r"^ +MIG (\S+) +Device +\d+: \(UUID: (\S+)\)$"
_QUERIED = r"^ +GPU Instance ID +: (\d+)\n +Compute Instance ID +: (\d+)$"
_BOXED = r"^\| +\d+ +(\d+) +(\d+) +\d+ +\|"
_MARKED = r"<mig_device>.*?<gpu_instance_id>(\d+)<.*?<compute_instance_id>(\d+)<"


def of_corpus(*patterns: str) -> list[Path]:
    """Pieces of the corpus; without one there is nothing to test."""
    if not CORPUS.is_dir():
        pytest.skip(f"no corpus at {CORPUS}")
    return [path for each in patterns for path in sorted(CORPUS.glob(each))]


def numbers(devices: Sequence[NvmlDevice]) -> list[tuple[str, str]]:
    """The instances of all MIG devices."""
    listed = [one for device in devices for one in device.mig_devices]
    return [(str(one.gpu_instance_id), str(one.compute_instance_id)) for one in listed]


def test_lists_of_the_corpus_are_read_as_another_reader_reads_them() -> None:
    compared = 0
    for path in of_corpus("mig/*", "nvidia-smi-L/*mig*"):
        wanted = re.findall(_LISTED, path.read_text(), re.MULTILINE)
        listed = [one for device in devices_in(path.read_text(), "-L") for one in device.mig_devices]
        assert [(one.profile, one.uuid) for one in listed] == wanted, path
        compared += len(wanted)
    assert compared >= 16


@pytest.mark.parametrize(
    ("folder", "arguments", "form", "floor"),
    [("nvidia-smi-q", "-q", _QUERIED, 10), ("nvidia-smi-table", "", _BOXED, 10)],
)
def test_instances_of_the_corpus_are_read_as_another_reader_reads_them(
    folder: str, arguments: str, form: str, floor: int
) -> None:
    compared = 0
    for path in of_corpus(f"{folder}/*mig*"):
        wanted = re.findall(form, path.read_text().partition("Processes")[0], re.MULTILINE)
        found = devices_in(path.read_text(), arguments)
        assert numbers(found) == wanted and all(device.lists_mig for device in found), path
        compared += len(wanted)
    assert compared >= floor


def test_xml_of_the_corpus_is_read_as_another_reader_reads_it() -> None:
    compared = none = 0
    for path in of_corpus("nvidia-smi-xml/*.xml"):
        text = path.read_text(errors="replace")
        wanted = re.findall(_MARKED, text, re.DOTALL)
        found = devices_in(text, "-q -x")
        assert numbers(found) == wanted, path
        said = len(re.findall(r"<mig_devices>\s*None\s*</mig_devices>", text))
        assert sum(device.lists_mig and not device.mig_devices for device in found) == said, path
        compared, none = compared + len(wanted), none + said
    assert compared >= 4 and none >= 20


def test_profiles_of_the_corpus_are_those_of_the_table() -> None:
    boards = {"b200-early": "0x2901", "gb200-24gb": "0x2941", "gh200-144g": "0x2348", "rtxpro6000-gfx": "0x2bb5"}
    compared = 0
    for name, board in boards.items():
        (path,) = of_corpus(f"issue-excerpts/mig-lgip-{name}.txt")
        answer = answer_from("mig -lgip", path.read_text())
        assert answer is not None
        names = {profile["name"] for profile in answer.data["devices"][0]["mig_profiles"]}
        assert names <= profiles_of(board), (name, names)
        compared += len(names)
    assert compared >= 12


def test_a_change_of_mode_that_waits_is_read_from_the_complaint_too() -> None:
    (path,) = of_corpus("issue-excerpts/mig-pending-enable-azure-a100.txt")
    (device,) = devices_in(path.read_text())
    assert device.address == "0001:00:00.0"
    assert (device.fields["mig.current"], device.fields["mig.pending"]) == (False, True)
