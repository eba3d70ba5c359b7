"""The details of a report: each value against the text it was recorded in, kept by every form that keeps a report."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor.config import Config
from gpudoctor.details import Details, FullReport, GpuDetail
from gpudoctor.details_run import run_in_full
from gpudoctor.facts.raw import Absent, Contents, Raw, TextFile, trouble
from gpudoctor.facts.relayed import Relayed
from gpudoctor.probes.deadline import Deadline
from gpudoctor.registry import built_in
from gpudoctor.report import Overall, Report
from gpudoctor.reports.html.embedded import CLOSING, OPENING, embedded
from gpudoctor.reports.json import render
from gpudoctor.reports.saved import read_report
from gpudoctor.run import Selection, run
from gpudoctor.sources.live import Live
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.redaction import redact
from gpudoctor.sources.snapshot import Snapshot, open_snapshot
from gpudoctor.sources.writing import write_snapshot
from gpudoctor.testing import config_of, fixtures, node, run_node
from gpudoctor.trace import StepId, Trace, Traced
from gpudoctor.trace_run import trace
from gpudoctor.verdicts import Status, Unread
from tests.captures import NOW
from tests.live_container import running
from tests.live_root import (
    alone_with_its_workers,  # noqa: F401 - a fixture that each test uses
    healthy_nvml,
    make_root,
    with_nvml,
)
from tests.workload_node import NODES as WORKLOAD_NODES
from tests.workload_node import oci

NODES = sorted(place.name for place in fixtures().iterdir() if (place / "snapshot.json").is_file())
SAMPLED = NODES[::10]
GENERATIONS = {"2.5 GT/s PCIe": 1, "8.0 GT/s PCIe": 3, "16.0 GT/s PCIe": 4, "32.0 GT/s PCIe": 5}


def details(name: str) -> Details:
    """The details of a recorded node."""
    found = run_node(node(name), details=True).details
    assert found is not None
    return found


def gpu(found: Details, address: str) -> GpuDetail:
    """The row of one GPU."""
    return next(one for one in found.gpus if one.address == address)


def untold(found: Details, key: str) -> str:
    """What is said of a key that lacks something."""
    return next((words for words in found.untold if words.startswith(f"{key}: ")), "")


class Recorded:
    """The text of a recorded node, read here without any parser of the doctor's."""

    def __init__(self, name: str) -> None:
        self._place = fixtures() / name
        self.nvml = json.loads((self._place / "answers" / "nvml.json").read_text("utf-8"))["data"]
        lines = (self._place / "entries.jsonl").read_text("utf-8").splitlines()
        self._entries = {entry["path"]: entry for entry in map(json.loads, lines)}

    def device(self, address: str) -> dict[str, Any]:
        """What NVML answered of the GPU at an address; NVML's own have a domain of eight digits."""
        devices: list[dict[str, Any]] = self.nvml["devices"]
        return next(one for one in devices if one["pci_bus_id"].lower() == f"0000{address}")

    def _text(self, path: str) -> str:
        if path in self._entries:
            return str(self._entries[path]["text"])
        return (self._place / f"root{path}").read_text("utf-8")

    def function(self, address: str, name: str) -> str:
        """A file of sysfs, where the link on the bus leads."""
        target = self._entries[f"/sys/bus/pci/devices/{address}"]["to"]
        return self._text(os.path.normpath(f"/sys/bus/pci/devices/{target}/{name}")).strip()

    def information(self, address: str, name: str) -> str:
        """A field of what the driver says of a GPU."""
        lines = self._text(f"/proc/driver/nvidia/gpus/{address}/information").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


# GPUs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["h100x8", "thermal-slowdown-lasting", "a100-pcie-mig", "l40s-x4"])
def test_each_value_of_a_gpu_is_the_one_that_was_recorded(name: str) -> None:
    found, text = details(name), Recorded(name)
    assert len(found.gpus) == len(text.nvml["devices"])
    for row in found.gpus:
        device = text.device(row.address)
        fields = {key: value for key, value in device["fields"].items() if not isinstance(value, dict)}
        assert (row.index, row.uuid, row.serial) == (device["index"], device["uuid"], device["serial"])
        assert row.name == text.information(row.address, "Model")
        assert row.vbios is not None and row.vbios.lower() == text.information(row.address, "Video BIOS").lower()
        assert row.minor == int(text.information(row.address, "Device Minor"))
        assert (row.driver, row.numa) == ("nvidia", int(text.function(row.address, "numa_node")))
        speed, lanes = (text.function(row.address, f"current_link_{each}") for each in ("speed", "width"))
        assert row.link == f"Gen{GENERATIONS[speed]} x{lanes}"
        assert (row.memory, row.memory_used) == (fields["memory.total_bytes"], fields["memory.used_bytes"])
        assert (row.temperature, row.temperature_most) == (
            fields["temperature.gpu_celsius"],
            fields["temperature.max_gpu_celsius"],
        )
        assert row.power == pytest.approx(fields["power.draw_milliwatts"] / 1000)
        assert row.power_limit == pytest.approx(fields["power.enforced_limit_milliwatts"] / 1000)
        assert (row.clock, row.clock_most) == (fields["clocks.sm_mhz"], fields["clocks.max.sm_mhz"])
        assert row.utilization == fields.get("utilization.gpu_percent")
        assert (row.persistence, row.compute_mode) == (fields["persistence_mode"], fields["compute_mode"])
        links = device.get("nvlinks") or []
        assert (row.nvlinks, row.nvlinks_up) == (
            (len(links), sum(one["active"] for one in links)) if links else (None, None)
        )
        assert not row.unread


def test_what_counts_errors_is_told_where_it_is_not_zero() -> None:
    found, text = details("nvlink4-errors-growing"), Recorded("nvlink4-errors-growing")
    counted = {
        (device["pci_bus_id"][4:].lower(), kind): (count, link["link"])
        for device in text.nvml["devices"]
        for link in device["nvlinks"]
        for kind, count in link["errors"].items()
        if count
    }
    assert counted
    told = {
        (row.address, name[7:]): words
        for row in found.gpus
        for name, words in row.errors.items()
        if name[:7] == "nvlink."
    }
    assert told == {key: f"{count} on link {link}" for key, (count, link) in counted.items()}


@pytest.mark.parametrize(
    ("name", "address", "errors"),
    [
        ("row-remap-failed", "", {"row_remap.failed": "a row could not be remapped"}),
        ("ecc-old-aggregate-counts-only", "", {"ecc.aggregate": "in the board's lifetime"}),
        ("retired-pages-pending", "", {"retired_pages.pending": "waits for a reset"}),
        ("pcie-replays-old-and-still", "", {"pcie.replays": "PCIe replays: "}),
        ("aer-nonfatal-counted", "", {"aer.nonfatal": "non-fatal PCIe errors counted by the kernel (AER): "}),
        ("reset-required-after-uncontained-error", "", {"ecc.volatile.uncorrected": "since the driver was loaded: "}),
    ],
)
def test_errors_of_every_kind_are_told_by_name_and_in_words(name: str, address: str, errors: dict[str, str]) -> None:
    rows = [row for row in details(name).gpus if not address or row.address == address]
    for begins, words in errors.items():
        told = [said for row in rows for key, said in row.errors.items() if key.startswith(begins)]
        assert told and all(words in said for said in told), (begins, [row.errors for row in rows])


@pytest.mark.parametrize("name", ["xid-48-and-its-aftermath", "application-faults-on-a-healthy-gpu"])
def test_xids_are_counted_as_often_as_the_log_has_them(name: str) -> None:
    text = (fixtures() / name / "kernel.log").read_text("utf-8")
    logged = Counter((f"{slot}.0", f"xid.{code}") for slot, code in re.findall(r"Xid \(PCI:([\da-f:]+)\): (\d+)", text))
    told = {
        (row.address, key): words
        for row in details(name).gpus
        for key, words in row.errors.items()
        if key[:4] == "xid."
    }
    assert told and told.keys() == logged.keys()
    for (address, key), count in logged.items():
        assert told[address, key].startswith(f"Xid {key[4:]}: {count} ")


def test_a_healthy_gpu_has_no_errors_and_nothing_holds_its_clocks() -> None:
    for row in details("l40s-x4").gpus:
        assert (row.errors, row.throttled) == ({}, ())


def test_what_holds_clocks_down_is_told_in_words() -> None:
    row = gpu(details("thermal-slowdown-lasting"), "0000:ab:00.0")
    assert (
        Recorded("thermal-slowdown-lasting").device(row.address)["fields"]["clocks_event.active"] == 0x8 | 0x20 | 0x40
    )
    assert set(row.throttled) == {"hardware slowdown", "software thermal slowdown", "hardware thermal slowdown"}


def test_mig_instances_are_counted_by_profile() -> None:
    found = details("a100-pcie-mig")
    for row in found.gpus:
        profiles = [one["profile"] for one in Recorded("a100-pcie-mig").device(row.address).get("mig_devices", [])]
        words = ", ".join(f"{profiles.count(one)} x {one}" for one in dict.fromkeys(profiles))
        assert row.mig == (f"on: {words}" if profiles else "off")
    assert [row.mig for row in found.gpus] == ["on: 1 x 3g.40gb, 1 x 2g.20gb, 1 x 1g.10gb", "off"]
    assert details("mig-on-without-instances-since-the-reboot").gpus[0].mig == "on: no instance"
    assert [row.mig for row in details("mig-mode-change-pending").gpus] == ["off, on after a reset", *["off"] * 7]


def test_processes_carry_their_memory_and_the_workload_they_belong_to() -> None:
    found, text = details("thermal-slowdown-lasting"), Recorded("thermal-slowdown-lasting")
    for row in found.gpus:
        (listed,) = text.device(row.address)["processes"]
        (told,) = row.processes
        assert (told.pid, told.name, told.memory) == (listed["pid"], listed["name"], listed["used_bytes"])
        assert told.workload == "service:session-7.scope"


def test_a_hung_driver_leaves_what_sysfs_gives_and_says_why_the_rest_lacks() -> None:
    found, text = details("nvml-hung-at-gpu4"), Recorded("nvml-hung-at-gpu4")
    assert len(found.gpus) == 8
    for at, row in enumerate(found.gpus):
        assert (row.link, row.numa) == ("Gen5 x16", int(text.function(row.address, "numa_node")))
        assert row.uuid == text.information(row.address, "GPU UUID")
        assert (row.index, row.memory, row.temperature) == (at if at < 4 else None, None, None)
        (why,) = row.unread
        assert why == "NVML nvmlDeviceGetHandleByIndex_v2(4) gave no answer; what comes after it was not asked"


def test_a_gpu_that_sleeps_is_left_alone() -> None:
    (row,) = details("laptop-optimus").gpus
    assert (row.driver, row.link, row.memory) == ("nvidia", None, None)
    assert row.unread[0] == "it sleeps: reading its registers would wake it up"


def test_a_lost_gpu_is_told_with_the_words_of_nvml() -> None:
    rows = [row for row in details("nvml-gpu-lost").gpus if row.unread]
    assert len(rows) == 1 and "GPU_IS_LOST" in rows[0].unread[0]


def test_gpus_that_other_drivers_hold_name_them() -> None:
    assert {row.driver for row in details("nouveau-holds-all-eight").gpus} == {"nouveau"}
    assert [row.driver for row in details("vfio-holds-one-of-eight").gpus].count("vfio-pci") == 1


# Where there is little to tell ---------------------------------------------------------------------------------------


def test_of_a_node_of_which_nothing_is_known_each_part_says_so() -> None:
    found = details("nothing-recorded")
    assert (found.gpus, found.workloads, found.topology) == ((), (), None)
    for key, where in (("gpus", "/sys/bus/pci/devices"), ("workloads", "/proc"), ("topology", "/sys/bus/pci/devices")):
        assert untold(found, key) == f"{key}: {where}: was not recorded"


def test_a_node_without_gpus_says_so() -> None:
    assert untold(details("no-nvidia-on-pci"), "gpus") == "gpus: no GPU on the PCI bus"
    assert "WSL2" in untold(details("wsl2"), "gpus")


def test_a_bug_report_has_its_gpus_as_nvidia_smi_printed_them(corpus: Path) -> None:
    found = _of_source(corpus / "bug-report" / "2xa6000-healthy.log.gz")
    row = gpu(found, "0000:2e:00.0")
    assert (row.name, row.minor, row.driver, row.serial) == ("NVIDIA RTX A6000", 1, "nvidia", "2524303010459")
    assert (row.temperature, row.power, row.utilization, row.throttled) == (84, 294.98, 100, ("the power limit",))
    assert (row.memory, row.memory_used) == (49140 * 2**20, 48584 * 2**20)
    assert (row.nvlinks, row.nvlinks_up) == (4, 4)


def test_what_nvidia_smi_alone_printed_is_a_row_too(corpus: Path) -> None:
    found = _of_source(corpus / "nvidia-smi-xml" / "pai-out_of_order.xml")
    text = (corpus / "nvidia-smi-xml" / "pai-out_of_order.xml").read_text("utf-8")
    assert [row.serial for row in found.gpus] == [words.partition("<")[0] for words in text.split("<serial>")[1:]]
    assert [row.minor for row in found.gpus] == [
        int(words.partition("<")[0]) for words in text.split("<minor_number>")[1:]
    ]
    (listed,) = _of_source(corpus / "nvidia-smi-L" / "uo-linux-h200-mig-590.48.01.txt").gpus
    assert (listed.address, listed.index, listed.name) == ("", 0, "NVIDIA H200")
    assert listed.mig is not None and "2 x 1g.18gb" in listed.mig


def _of_source(place: Path) -> Details:
    report = run_in_full(open_source(str(place)), Config(), built_in(deferred=True), Selection(), NOW)
    assert report.details is not None
    return report.details


# Workloads -----------------------------------------------------------------------------------------------------------


def _traced(name: str, word: str) -> Trace:
    recorded = node(name)
    assert recorded.manifest is not None
    return trace(recorded, config_of(recorded), built_in(deferred=True), word, recorded.manifest.recorded_at)


@pytest.mark.parametrize(
    ("name", "word", "verdict", "first_broken"),
    [
        ("kubernetes-pod-gpu-healthy", "pod:ml/infer-6d9c7b5f4-x2lqk", Overall.PASS, None),
        ("pod-pending-because-the-gpus-are-taken", "pod:ml/eval-0", Overall.FAIL, StepId.ALLOCATION),
        ("pod-restarted-without-its-gpu", "pod:ml/infer-6d9c7b5f4-x2lqk", Overall.FAIL, StepId.ALLOCATION),
        ("static-pod-runs-without-the-gpu-it-asked-for", "pod:default/gpu-burn-n1", Overall.FAIL, StepId.ALLOCATION),
        ("slurm-job-of-two-gpus", "slurm:397", Overall.PASS, None),
        ("container-lost-gpu-after-reload", "docker:trainer", Overall.FAIL, StepId.RULES),
        ("two-users-share-one-gpu", "pid:7010", Overall.UNKNOWN, None),
    ],
)
def test_a_workload_is_traced_as_the_command_traces_it(
    name: str, word: str, verdict: Overall, first_broken: StepId | None
) -> None:
    (expected,) = _traced(name, word).traced
    assert expected in details(name).workloads
    assert (expected.verdict, expected.first_broken) == (verdict, first_broken)


def test_broken_workloads_come_first() -> None:
    found = details("pod-restarted-without-its-gpu").workloads
    assert [one.verdict for one in found] == [Overall.FAIL, Overall.WARN, Overall.WARN]
    assert found[0].title == "ml/infer-6d9c7b5f4-x2lqk/server"


def test_what_may_be_missing_among_workloads_is_said() -> None:
    told = [words for words in details("containers-seen-without-root").untold if words.startswith("workloads: ")]
    hidden = "workloads: whether they have GPUs could not be seen of docker:05705f8d3a9f, docker:aaf56e110eb2"
    assert told[-1] == f"{hidden}: /proc/3310/environ: permission denied (would need root)"
    assert told[0].startswith("workloads: there may be more: ")
    assert untold(details("pod-restarted-without-its-gpu"), "workloads") == ""


def test_workloads_that_only_the_kubelet_knows_are_traced() -> None:
    (waiting,) = [one for one in details("pod-pending-because-the-gpus-are-taken").workloads if not one.pid]
    assert waiting.subject.id == "pod:ml/eval-0"
    assert "5 of 8 are free" in waiting.summary


def test_of_many_workloads_the_most_telling_are_kept_and_the_rest_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pod-restarted-without-its-gpu"
    whole = details(name)
    monkeypatch.setattr("gpudoctor.detailing.workloads.MOST", 1)
    kept = details(name)
    assert (kept.workloads, kept.more_workloads) == (whole.workloads[:1], 2)
    monkeypatch.setattr("gpudoctor.detailing.workloads.MOST", 32)
    monkeypatch.setattr("gpudoctor.detailing.workloads.SECONDS", 0.0)
    found = details(name)
    assert (found.workloads, found.more_workloads) == ((), 3)
    assert untold(found, "workloads") == "workloads: there was no time to look at 3 of them"


class _Counting(Relayed):
    """A source that counts what is asked of children, and in which the files of one process never come back."""

    def __init__(self, raw: Raw, stuck: int = 0) -> None:
        super().__init__(raw)
        self.asked: list[tuple[str, ...]] = []
        self._stuck = f"/proc/{stuck}/"

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, TextFile | Absent | Unread]:
        self.asked.append(paths)
        found = super().read_blocking(paths, keep=keep)
        return {path: trouble(path, "ETIMEDOUT") if path.startswith(self._stuck) else found[path] for path in paths}

    def look_blocking(
        self, folders: tuple[str, ...], *, begin: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, Contents | Absent | Unread]:
        self.asked.append(folders)
        found = super().look_blocking(folders, begin=begin, names=names)
        return {path: trouble(path, "ETIMEDOUT") if path.startswith(self._stuck) else found[path] for path in folders}


def _listed(raw: Raw, name: str) -> tuple[Traced, ...]:
    recorded = node(name)
    assert recorded.manifest is not None
    report = run_in_full(raw, config_of(recorded), built_in(deferred=True), Selection(), recorded.manifest.recorded_at)
    assert report.details is not None
    return report.details.workloads


def test_what_children_are_asked_is_asked_for_all_workloads_at_once() -> None:
    name = "pod-restarted-without-its-gpu"
    plain, full = _Counting(node(name)), _Counting(node(name))
    run(plain, Config(), built_in(deferred=True), Selection(), NOW)
    listed = _listed(full, name)
    assert listed == details(name).workloads and len(listed) == 3
    asked = full.asked[: len(full.asked) - len(plain.asked)]
    pids = {one.pid for one in listed}
    assert any({int(path.split("/")[2]) for path in paths} == pids for paths in asked)
    assert len(asked) <= 12, "one workload alone takes eight or so"


def test_a_workload_that_is_stuck_is_asked_once_and_hides_no_other() -> None:
    name, stuck = "pod-restarted-without-its-gpu", 4420
    counting = _Counting(node(name), stuck)
    listed = _listed(counting, name)
    expected = {one.pid: one for one in details(name).workloads}
    assert {one.pid for one in listed} == set(expected)
    for one in listed:
        if one.pid == stuck:
            assert one.step(StepId.LIBRARIES).status is Status.UNKNOWN
        else:
            assert one.step(StepId.LIBRARIES) == expected[one.pid].step(StepId.LIBRARIES)
    libraries = [path for asked in counting.asked for path in asked if path.startswith(f"/proc/{stuck}/root/usr")]
    assert not libraries, "its loader's cache had not come back"


# The topology ---------------------------------------------------------------------------------------------------------


def test_the_topology_is_the_one_that_the_command_draws() -> None:
    from gpudoctor.topo_run import topo

    recorded = node("slow-switch-uplink")
    assert recorded.manifest is not None
    drawn = topo(recorded, config_of(recorded), recorded.manifest.recorded_at)
    assert drawn.remarks
    assert details("slow-switch-uplink").topology == drawn


# Failing parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maker", "key"),
    [
        ("gpus.rows", "gpus"),
        ("workloads.listed", "workloads"),
        ("workloads.looked_at", "workloads"),
        ("topology.drawn", "topology"),
    ],
)
def test_a_bug_in_a_part_costs_that_part_alone(maker: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "kubernetes-pod-gpu-healthy"
    whole = msgspec.to_builtins(run_node(node(name), details=True))

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by a maker")

    monkeypatch.setattr(f"gpudoctor.detailing.{maker}", broken)
    hurt = msgspec.to_builtins(run_node(node(name), details=True))
    lost = hurt["details"].pop("untold")
    assert f"{key}: gpudoctor failed: ZeroDivisionError: by a maker" in lost
    assert key not in hurt["details"]
    whole["details"].pop("untold", None)
    assert whole["details"].pop(key)
    whole["seconds"] = hurt["seconds"]
    assert hurt == whole


def test_a_run_of_some_links_traces_nothing_and_asks_nvml_nothing() -> None:
    recorded = node("kubernetes-pod-gpu-healthy")
    report = run_in_full(recorded, Config(), built_in(deferred=True), Selection(links=("pcie",)), NOW)
    assert report.details is not None
    assert report.details.workloads == () and "limited" in untold(report.details, "workloads")
    row = report.details.gpus[0]
    assert row.link is not None and row.memory is None
    assert row.unread == ("NVML was not asked in this run",)


# Reports with and without ---------------------------------------------------------------------------------------------


def _plain(report: Report) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(report)
    del made["seconds"]
    return made


@pytest.mark.parametrize("name", SAMPLED)
def test_details_change_nothing_about_a_report_and_are_read_back_equal(name: str, tmp_path: Path) -> None:
    full = run_node(node(name), details=True)
    assert full.details is not None
    assert not any("gpudoctor failed" in words for words in full.details.untold), full.details.untold
    plain = _plain(full)
    assert plain.pop("details")
    assert plain == _plain(run_node(node(name)))
    (tmp_path / "report.json").write_text(render(full), "utf-8")
    (tmp_path / "page.html").write_text(f"<!doctype html>{OPENING}{embedded(full)}{CLOSING}", "utf-8")
    for saved in ("report.json", "page.html"):
        again = read_report(str(tmp_path / saved))
        assert type(again) is FullReport and again == full
        assert render(again) == render(full)


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a child."""
    command = [sys.executable, "-m", "gpudoctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_report_has_details_where_they_were_asked_for_or_a_page_shows_them(tmp_path: Path) -> None:
    place = str(fixtures() / "row-remap-failed")
    plain = doctor("run", "--node", place, "--format", "json")
    assert "details" not in json.loads(plain.stdout)
    full = doctor("run", "--node", place, "--details", "--format", "json", "-o", str(tmp_path / "a.html"))
    assert full.returncode == plain.returncode == 2
    (tmp_path / "a.json").write_text(full.stdout, "utf-8")
    for saved in ("a.html", "a.json"):
        assert doctor("render", str(tmp_path / saved), "--format", "json").stdout == full.stdout
    paged = doctor("run", "--node", place, "--format", "html")
    (tmp_path / "b.html").write_text(paged.stdout, "utf-8")
    kept = read_report(str(tmp_path / "b.html"))
    assert isinstance(kept, FullReport) and kept.details is not None and len(kept.details.gpus) == 8
    beside = doctor("run", "--node", place, "--format", "json", "-o", f"html={tmp_path / 'c'}")
    assert json.loads(beside.stdout)["details"]["gpus"]


def test_a_report_without_details_stays_as_it_is(tmp_path: Path) -> None:
    report = run_node(node("h100x8"))
    (tmp_path / "report.json").write_text(render(report), "utf-8")
    again = read_report(str(tmp_path / "report.json"))
    assert type(again) is Report
    assert render(again) == render(report)


def test_a_plain_run_loads_nothing_of_details() -> None:
    program = (
        "import sys\nfrom gpudoctor.cli import main\n"
        f"main(['run', '--format', 'json', '--node', {str(fixtures() / 'h100x8')!r}])\n"
        "names = ('details', 'detailing', 'trace', 'tracing', 'topo', 'topo_drawing', 'stream_run')\n"
        "sys.exit(','.join(name for name in names if 'gpudoctor.' + name in sys.modules) or None)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and not ended.stderr.strip()


# Recordings -----------------------------------------------------------------------------------------------------------


def _replayed(place: Path) -> tuple[Snapshot, FullReport]:
    recorded = open_snapshot(place)
    return recorded, run_node(recorded, details=True)


@pytest.mark.parametrize("name", ["h100x8", "podman-with-cdi", "slow-switch-uplink"])
def test_a_recording_gives_the_details_of_the_live_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root(name, tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml(name))
    (root / "proc/stat").write_text("btime 1764409147\n", "utf-8")
    config = config_of(node(name))
    recorder = Recorder(Live(Deadline(30.0), str(root)))
    live = run_in_full(recorder, config, built_in(deferred=True), Selection(), recorder.recorded_at)
    recorder.write(tmp_path / "snapshot", config)
    _, replayed = _replayed(tmp_path / "snapshot")
    assert live.details is not None and live.details.gpus and live.details.topology is not None
    seen, again = msgspec.to_builtins(live.details), msgspec.to_builtins(replayed.details)
    for one in (seen, again):
        del one["topology"]["node"]["source"]
    assert again == seen


def test_a_real_container_is_traced_live_and_the_same_from_its_recording(tmp_path: Path) -> None:
    secret = "correct horse battery staple"
    config = oci(f"SECRET={secret}", "NVIDIA_VISIBLE_DEVICES=0", nodes=WORKLOAD_NODES)
    with running("runc", tmp_path, config) as container:
        recorder = Recorder(Live(Deadline(30.0)))
        live = run_in_full(recorder, Config(), built_in(deferred=True), Selection(), recorder.recorded_at)
        pid = container.pid
    members = recorder.members(Config())
    write_snapshot(tmp_path / "raw", members)
    redacted = redact(members, b"salt").members
    assert not [name for name, content in redacted.items() if secret.encode() in content]
    write_snapshot(tmp_path / "redacted", redacted)
    assert live.details is not None
    (seen,) = [one for one in live.details.workloads if one.pid == pid]
    assert seen.engine == "runc" and seen.step(StepId.NODES).status is not Status.SKIP
    _, raw = _replayed(tmp_path / "raw")
    assert raw.details is not None and seen in raw.details.workloads
    _, again = _replayed(tmp_path / "redacted")
    assert again.details is not None
    (kept,) = [one for one in again.details.workloads if one.pid == pid]
    assert [(step.id, step.status) for step in kept.steps] == [(step.id, step.status) for step in seen.steps]


def test_details_of_a_redacted_recording_hold_no_more_than_it_does(tmp_path: Path) -> None:
    whole = details("thermal-slowdown-lasting")
    place = fixtures() / "thermal-slowdown-lasting"
    members = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    write_snapshot(tmp_path / "snapshot", redact(members, b"salt").members)
    _, report = _replayed(tmp_path / "snapshot")
    assert report.details is not None
    said = msgspec.json.encode(report.details).decode()
    for row, kept in zip(whole.gpus, report.details.gpus, strict=True):
        assert (kept.address, kept.uuid, kept.memory, kept.temperature) == (
            row.address,
            row.uuid,
            row.memory,
            row.temperature,
        )
        assert row.serial is not None and row.serial not in said


def test_a_live_run_with_details_ends_in_time_though_its_driver_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_root("slow-switch-uplink", tmp_path / "root")
    standin = healthy_nvml("slow-switch-uplink")
    standin["hang"] = {"call": "nvmlInit_v2", "how": "sleep"}
    with_nvml(root, monkeypatch, standin)
    started = time.monotonic()
    report = run_in_full(Live(Deadline(5.0), str(root)), Config(), built_in(deferred=True), Selection(), NOW)
    assert time.monotonic() - started < 6.5
    assert report.details is not None and report.details.topology is not None
    assert {row.unread[-1] for row in report.details.gpus} == {
        "NVML nvmlInit_v2 gave no answer; what comes after it was not asked"
    }
