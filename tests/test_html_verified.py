"""What a page may not say: that something is well, absent, unused or since a time, where nobody looked or nothing tells."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpudoctor import cli
from gpudoctor.details import Event, EventKind, FullReport
from gpudoctor.reports import html
from gpudoctor.testing import fixtures, node, run_node
from tests.page_tree import Element, tree

HUNG = "nvml-hung-at-gpu4"


@cache
def _report(name: str) -> FullReport:
    return run_node(node(name), details=True)


@cache
def _page(name: str) -> Element:
    return tree(html.render(_report(name)))


def _cell(page: Element, address: str, name: str) -> Element:
    (cell,) = (one for one in page.by_id(f"gpu/{address}").all("td") if one.attributes.get("data-k") == name)
    return cell


def _since(name: str, check: str) -> tuple[str, str]:
    report = _report(name)
    assert report.details is not None
    (number,) = (number for number, cause in enumerate(report.root_causes) if cause.check == check)
    return report.details.since[number].at, report.details.since[number].how


# The GPUs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (HUNG, "0000:18:00.0"),
        ("control-node-missing", "0000:2a:00.0"),
        ("nvml-hung-at-fourth-of-eight", "0000:18:00.0"),
    ],
)
def test_a_gpu_of_which_nothing_was_told_is_not_called_well(name: str, address: str) -> None:
    row = _page(name).by_id(f"gpu/{address}")
    assert not _cell(_page(name), address, "State").all("span", "badge")
    assert "its state was not told" in row.words and "data-s" not in row.attributes


@pytest.mark.parametrize(("name", "address"), [("h100x8", "0000:18:00.0"), ("cc-gpu-ready", "0000:05:00.0")])
def test_a_gpu_that_answered_and_of_which_nothing_is_said_is_well(name: str, address: str) -> None:
    assert _cell(_page(name), address, "State").all("span", "badge")[0].words == "OK"


@pytest.mark.parametrize(
    ("name", "address"),
    [("driver-470-few-nvml-functions", "0001:00:00.0"), ("mig-balanced-layout-on-h200-boards", "0000:18:00.0")],
)
def test_nobody_and_none_are_said_only_of_lists_that_were_told(name: str, address: str) -> None:
    recorded = json.loads((fixtures() / name / "answers" / "nvml.json").read_text())
    devices: list[dict[str, Any]] = recorded["data"]["devices"]
    assert not any("processes" in device for device in devices)
    row = _page(name).by_id(f"gpu/{address}")
    assert "nobody" not in row.words and "none counted" not in row.words
    assert "processes: NVML listed none" in _page(name).by_id("gpus").words
    healthy = _page("h100x8").by_id("gpu/0000:18:00.0").words
    assert "nobody" in healthy and "none counted" in healthy


def test_nvml_lists_none_is_said_only_where_it_was_asked() -> None:
    words = _page("wsl2").by_id("gpus").words
    assert "NVML was not asked" in words and "NVML lists none" not in words
    assert "No GPU was seen" not in words


def test_a_gpu_that_is_on_no_bus_is_counted_in_the_heading() -> None:
    (heading,) = _page("jetson-orin").all("header")
    assert "none seen" not in heading.words and "1, on no bus that was seen" in heading.words


def test_an_identity_that_only_the_details_hold_is_not_called_unknown() -> None:
    report = _report("h100x8")
    bare = replace(report.node, gpus=tuple(replace(gpu, uuid=None, name=None, minor=None) for gpu in report.node.gpus))
    row = tree(html.render(replace(report, node=bare))).by_id("gpu/0000:18:00.0")
    assert "UUID not known" not in row.words and "model not known" not in row.words
    assert row.all("summary")[0].words.endswith("64d13bda")


# The chain and the verdict --------------------------------------------------------------------------------------------


def test_none_is_broken_is_not_said_of_links_that_were_not_seen() -> None:
    words = _page("nvml-not-asked").by_id("chain").all("p")[0].words
    assert "None is broken" not in words and "No broken one was found" in words
    passed = run_node(node("h100x8"), details=True)
    known = tuple(one for one in passed.results if one.status.value in ("pass", "skip"))
    assert "None is broken." in tree(html.render(replace(passed, results=known))).by_id("chain").words


def test_how_many_checks_found_nothing_is_said() -> None:
    report = _report("h100x8")
    few = replace(report, results=report.results[:4], root_causes=())
    assert "Nothing wrong was found in 4 checks" in tree(html.render(few)).by_id("causes").words


# Since when -----------------------------------------------------------------------------------------------------------


def test_a_hang_is_there_since_the_kernel_called_a_task_hung_in_the_driver() -> None:
    at, how = _since(HUNG, "driver-cuda.nvml-answers")
    assert at == "2026-11-29T11:29:02Z" and how == "the kernel's first message about a task that hangs in the driver"


@pytest.mark.parametrize(
    ("name", "check", "file"),
    [
        ("docker-default-runtime-purged", "toolkit.docker-runtime", "/etc/docker/daemon.json"),
        ("slurm-node-invalid-with-seven-of-eight-gpus", "sharing.slurm-gres", "/etc/slurm/slurm.conf"),
        ("static-pod-runs-without-the-gpu-it-asked-for", "workload.pods-have-their-gpus", "/etc/kubernetes/manifests/gpu-burn.yaml"),
        ("docker-29-without-a-cdi-spec", "toolkit.docker-cdi", "/etc/docker/daemon.json"),
    ],
)  # fmt: skip
def test_a_file_that_is_cited_beside_something_else_is_no_beginning(name: str, check: str, file: str) -> None:
    at, how = _since(name, check)
    assert at == "" and how.startswith("not known: ")
    assert f"; {file}, which it cites, was written last at 2026-" in how


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("ib-port-down-on-one-of-eight", "topology.nic-ports"),  # the kernel's "Cable plugged" at boot
        ("multicast-fails-after-a-fabric-manager-restart", "fabric.multicast"),  # its first start, before the restart
    ],
)
def test_a_line_that_tells_of_something_well_is_no_beginning(name: str, check: str) -> None:
    at, how = _since(name, check)
    assert at == "" and how.startswith("not known: ")


def test_an_earlier_error_about_what_follows_is_the_beginning() -> None:
    at, how = _since("nvml-power-cable-missing", "kernel-module.adapter-initialised")
    assert at == "2026-11-29T11:25:14Z" and how.startswith("then at the latest: ")


# The timeline ---------------------------------------------------------------------------------------------------------


def _headings(report: FullReport, *events: Event) -> list[str]:
    assert report.details is not None
    told = replace(report, details=replace(report.details, timeline=events, since=(), more_events=0))
    return [one.words for one in tree(html.render(told)).by_id("timeline").all("h3")]


def test_this_boots_events_do_not_stand_under_the_boot_before() -> None:
    before = Event("", EventKind.MODULE, "a", "log", stamp="Feb 14 10:17:55", previous_boot=True)
    now = Event("", EventKind.MODULE, "b", "log", stamp="Feb 14 12:51:41")
    bare = Event("", EventKind.MODULE, "c", "log")
    assert _headings(_report("h100x8"), before, now) == ["The boot before", "Times of the log's own"]
    assert _headings(_report("h100x8"), before, bare) == ["The boot before", "Without a certain day"]


def test_a_last_time_of_another_form_says_what_it_counts() -> None:
    event = Event("", EventKind.XID, "Xid 45", "log", stamp="Feb 14 15:01:38", count=3, until="7873.141250")
    report = _report("h100x8")
    assert report.details is not None
    told = replace(report, details=replace(report.details, timeline=(event,), since=(), more_events=0))
    assert "until 7873 s after a boot" in tree(html.render(told)).by_id("timeline").words
    slept = replace(event, at="2026-11-29T10:50:00Z", stamp="800.0", until="906.3")
    told = replace(told, details=replace(report.details, timeline=(slept,), since=(), more_events=0))
    assert "until 906 s after a boot" in tree(html.render(told)).by_id("timeline").words
    odd = replace(event, until="1.2.3")
    told = replace(told, details=replace(report.details, timeline=(odd,), since=(), more_events=0))
    assert "until 1.2.3" in tree(html.render(told)).by_id("timeline").words


@pytest.mark.parametrize(
    ("stamps", "rows"),
    [
        (("100.5", "101.5", "90000.5"), 2),  # of a log whose boot is not known
        (("Feb 14 15:01:38", "Feb 14 15:01:39", "Feb 15 15:01:39"), 2),
        (("100.5", "101.5", "150.0"), 1),
        (("", "", ""), 1),
    ],
)
def test_what_several_gpus_say_at_other_times_is_no_one_row(stamps: tuple[str, ...], rows: int) -> None:
    gpus = ("0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0")
    events = tuple(
        Event("", EventKind.XID, f"Xid 79 of {gpu}", "log", stamp=stamp, gpu=gpu)
        for gpu, stamp in zip(gpus, stamps, strict=True)
    )
    report = _report("h100x8")
    assert report.details is not None
    told = replace(report, details=replace(report.details, timeline=events, since=(), more_events=0))
    shown = tree(html.render(told)).by_id("timeline").all("li")
    assert len(shown) == rows and all(any(gpu in one.words for one in shown) for gpu in gpus)


# Workloads ------------------------------------------------------------------------------------------------------------


def test_a_job_that_asked_for_no_gpu_and_may_open_none_is_no_broken_workload() -> None:
    """Every job of Slurm sees the node's /dev; that the rules keep it from the GPUs of others is what they are for."""
    page = _page("slurm-job-of-two-gpus")
    assert "slurm:397" in page.by_id("workloads").words and "slurm:401" not in page.by_id("workloads").words


def test_what_could_not_be_listed_is_not_called_untraced() -> None:
    report = _report("h100x8")
    assert report.details is not None
    lacking = replace(
        report.details, workloads=(), untold=("workloads: there may be more: /proc/*/ns: not shown here",)
    )
    words = tree(html.render(replace(report, details=lacking))).by_id("workloads").words
    assert "No workload is told of here: there may be more" in words and "not traced" not in words


def test_that_there_may_be_more_workloads_is_told_below_those_that_were_seen() -> None:
    report = _report("slurm-job-of-two-gpus")
    assert report.details is not None and report.details.workloads
    lacking = replace(report.details, untold=("workloads: there may be more: /proc/*/ns: not shown here",))
    words = tree(html.render(replace(report, details=lacking))).by_id("workloads").words
    assert "slurm:397" in words and "And there may be more: /proc/*/ns: not shown here." in words


# Sources that are files -----------------------------------------------------------------------------------------------


@pytest.fixture
def of_file(tmp_path: Path) -> Callable[[str], Element]:
    """The page about a file with a text."""

    def give(text: str) -> Element:
        log, page = tmp_path / "node.log", tmp_path / "page.html"
        log.write_text(text)
        cli.main(("run", "--node", str(log), "--quiet", "-o", str(page)))
        return tree(page.read_text())

    return give


def test_a_kernel_log_alone_tells_no_absence(of_file: Callable[[str], Element]) -> None:
    page = of_file(
        "[    0.000000] Linux version 6.8.0-45-generic (build@host) #1 SMP\n"
        "[  100.000000] NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    for part, words in (("gpus", "No GPU was seen"), ("workloads", "No workload has"), ("chain", "None is broken")):
        assert words not in page.by_id(part).words
    (heading,) = page.all("header")
    assert "Read here" in heading.words and "Looked at" not in heading.words
