"""The parts of a page that details fill: the chain as a picture, GPUs, topology and workloads, each with what a node really says."""

import itertools
import json
import re
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from gpudoctor import cli
from gpudoctor.chain import BELOW, STANDS_ON, Link
from gpudoctor.details import FullReport, GpuDetail
from gpudoctor.report import Report
from gpudoctor.reports import html
from gpudoctor.reports.html.chain import CELL, Picture
from gpudoctor.testing import fixtures, node, run_node
from gpudoctor.trace import Traced
from gpudoctor.verdicts import Status
from tests.page_tree import Element, tree

HEALTHY = "h100x8"
SICK = "nouveau-and-broken-daemon-json"
HUNG = "nvml-hung-at-gpu4"
POD = "kubernetes-pod-lost-gpu-after-reload"
CLUSTER = "kubernetes-gpu-node-healthy"
MIG = "mig-mixed-strategy-on-a-mixed-layout"
MOST_BYTES = 400_000
SECTIONS = ("causes", "chain", "gpus", "topology", "workloads", "checks", "unseen", "about")


@cache
def _report(name: str) -> FullReport:
    return run_node(node(name), details=True)


@cache
def _page(name: str) -> Element:
    return tree(html.render(_report(name)))


def _answers(name: str) -> list[dict[str, Any]]:
    """What NVML answered of each GPU, as it was recorded."""
    recorded = json.loads((fixtures() / name / "answers" / "nvml.json").read_text())
    devices: list[dict[str, Any]] = recorded["data"]["devices"]
    return devices


def _row(page: Element, address: str) -> Element:
    return page.by_id(f"gpu/{address}")


def _cell(row: Element, name: str) -> Element:
    (cell,) = (one for one in row.all("td") if one.attributes.get("data-k") == name)
    return cell


def _lines(cell: Element) -> list[str]:
    return [one.words for one in cell.walk() if "v" in one.classes]


# The chain ------------------------------------------------------------------------------------------------------------


WHOLE = Picture(tuple(Link))


def test_the_picture_of_the_chain_holds_every_link_once() -> None:
    places = [(WHOLE.place(link).column, WHOLE.place(link).row) for link in Link]
    assert len(set(places)) == len(places)
    assert all(column < 7 and row < 4 for column, row in places)  # the style sheet has so many
    assert (WHOLE.width, WHOLE.height) == (7 * CELL, 4 * CELL)


def test_the_lines_say_what_stands_on_what() -> None:
    """All that STANDS_ON says follows from the lines, and no line follows from others."""
    drawn = {(line.one, line.other) for line in WHOLE.lines()}
    above: dict[Link, set[Link]] = {link: {one for one, other in drawn if other is link} for link in Link}

    def reached(link: Link) -> set[Link]:
        return {link}.union(*(reached(one) for one in above[link]))

    assert all(reached(link) == BELOW[link] for link in Link)
    assert all(one in STANDS_ON[other] for one, other in drawn)
    for one, other in drawn:
        assert not any(one in BELOW[between] for between in above[other] - {one})


@pytest.mark.parametrize("without", [None, *Link])
def test_no_line_crosses_the_cell_of_a_link(without: Link | None) -> None:
    picture = Picture([link for link in Link if link is not without])
    places = {link: (picture.place(link).column, picture.place(link).row) for link in Link if link is not without}
    for line in picture.lines():
        start, turn, down, end = (int(one) for one in re.findall(r"M(\d+) \d+H(\d+)V(\d+)H(\d+)", line.path)[0])
        for left, right, at in ((start, turn, places[line.one][1]), (turn, end, down // CELL)):
            crossed = {(column, at) for column in range(left // CELL + 1, (right - 1) // CELL + 1)}
            assert not (crossed & {*places.values()}) - {places[line.one], places[line.other]}, line
        assert turn % CELL == 0 and down < picture.height


def test_a_run_over_one_link_draws_that_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "--node", str(fixtures() / HEALTHY), "--format", "html", "--link", "pcie", "--link", "health")
    assert cli.main(words) == 0
    chain = tree(capsys.readouterr().out).by_id("chain")
    assert [one.all("span", "link")[0].words for one in chain.all("li")] == ["pcie", "health"]
    assert [sorted(one.classes) for one in chain.all("li")] == [["c0", "r0"], ["c1", "on", "r1"]]
    assert chain.all("svg")[0].attributes["viewbox"] == f"0 0 {7 * CELL} {2 * CELL}"
    assert [one.attributes["d"] for one in chain.all("path")] == ["M50 50H100V150H150"]


@pytest.mark.parametrize("name", [HEALTHY, SICK, POD])
def test_every_link_is_told_with_its_state_and_leads_to_its_checks(name: str) -> None:
    page, report = _page(name), _report(name)
    present = [link for link in Link if any(result.link is link for result in report.results)]
    items = page.by_id("chain").all("li")
    assert [one.all("span", "link")[0].words for one in items] == [link.value for link in present]
    for item, link in zip(items, present, strict=True):
        assert item.all("a")[0].attributes["href"] == f"#link-{link.value}"
        assert page.by_id(f"link-{link.value}").all("h3")
        assert item.all("span", "badge")[0].attributes["data-s"] == item.attributes["data-s"]
        told = item.all("span", "below")
        stands = list(Picture(present).place(link).stands_on)
        assert [one.words for one in told] == (
            [f"stands on {', '.join(one.value for one in stands)}"] if stands else []
        )


@pytest.mark.parametrize(
    ("name", "broken"), [(SICK, "kernel-module"), (POD, "cgroup"), (HUNG, "driver-cuda"), (HEALTHY, "")]
)
def test_the_first_broken_link_stands_out(name: str, broken: str) -> None:
    chain = _page(name).by_id("chain")
    marked = [one.all("span", "link")[0].words for one in chain.all("li", "first")]
    assert marked == ([broken] if broken else [])
    assert [one.words for one in chain.all("span", "flag")] == (["first broken"] if broken else [])
    assert (f"The first broken one is {broken}." if broken else "No broken one was found.") in chain.all("p")[0].words


def test_a_warning_is_seen_beside_what_is_not_known() -> None:
    """A check that could not tell comes before a warning in the order of states: the picture must not hide that one."""
    chain = _page("narrow-link-at-gpu").by_id("chain")
    (pcie,) = (one for one in chain.all("li") if one.all("span", "link")[0].words == "pcie")
    assert pcie.words.startswith("pcie UNKNOWN 1 of ") and "1 WARN" in pcie.words
    assert "No broken one was found; look at pcie." in chain.all("p")[0].words


# The GPUs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [HEALTHY, MIG, "l40s-x4"])
def test_what_nvml_said_of_a_gpu_stands_in_its_row(name: str) -> None:
    page = _page(name)
    for said in _answers(name):
        fields = said["fields"]
        row = _row(page, str(said["pci_bus_id"]).lower()[-12:])
        head = row.all("th")[0].words
        assert head.startswith(f"GPU {said['index']} ")
        assert said["name"].removeprefix("NVIDIA ") in head
        identity = _cell(row, "Identity").words
        assert said["uuid"] in identity and said["serial"] in identity and fields["vbios_version"] in identity
        heat = _lines(_cell(row, "Heat and power"))
        assert heat[0].split()[0] == str(fields["temperature.gpu_celsius"])
        assert heat[1].split()[0] == f"{fields['power.draw_milliwatts'] / 1000:.0f}"


def _told(detail: GpuDetail) -> dict[str, list[str]]:
    """What the cells must say of a GPU of which all is known."""
    gib = 2**30
    memory = detail.memory_used or 0
    return {
        "Memory": [
            f"{memory / gib:.1f} GiB" if memory >= gib else f"{memory / 2**20:.0f} MiB",
            f"of {(detail.memory or 0) / gib:.1f} GiB",
        ],
        "Heat and power": [
            f"{detail.temperature} of {detail.temperature_most} \u00b0C",
            f"{detail.power:.0f} of {detail.power_limit:.0f} W",
        ],
        "Clocks": [f"{detail.clock} of {detail.clock_most} MHz", f"{detail.utilization} % busy"],
        "Errors": list(detail.errors.values()) or ["none counted"],
    }


def test_every_value_of_the_details_stands_in_its_cell() -> None:
    page, details = _page(CLUSTER), _report(CLUSTER).details
    assert details and len(details.gpus) == 8
    for detail in details.gpus:
        row = _row(page, detail.address)
        for name, words in _told(detail).items():
            assert _lines(_cell(row, name)) == words
        links = _lines(_cell(row, "Links"))
        assert links[:2] == [f"PCIe {detail.link}", f"of {detail.link_most}"]
        assert links[2] == f"{detail.nvlinks_up} of {detail.nvlinks} NVLinks"


@pytest.mark.parametrize("name", [HEALTHY, SICK, HUNG, POD, MIG, "nothing-recorded", "wsl2", "narrow-link-at-gpu"])
def test_no_cell_is_empty(name: str) -> None:
    for table in _page(name).all("table"):
        for cell in (*table.all("td"), *table.all("th")):
            assert cell.words, (table.words[:80], cell.attributes)


def test_what_is_not_known_is_told_once_with_its_reason() -> None:
    page = _page(SICK)
    words = page.by_id("gpus").words
    assert words.count("NVML was not asked: /proc/driver/nvidia/version does not exist") == 1
    rows = page.by_id("gpus").all("tr")[1:]
    assert len(rows) == 8
    for row in rows:
        (wide,) = (one for one in row.all("td") if "colspan" in one.attributes)
        assert wide.words == "memory, heat and power, clocks and errors not known"
        assert row.all("td")[-1].words == "not known"


def test_every_row_has_as_many_cells_as_the_table_has_columns() -> None:
    for name in (HEALTHY, SICK, HUNG, MIG):
        for table in _page(name).by_id("gpus").all("table"):
            columns = len(table.all("thead")[0].all("th"))
            for row in table.all("tbody")[0].all("tr"):
                taken = [int(one.attributes.get("colspan", "1")) for one in (*row.all("th"), *row.all("td"))]
                assert sum(taken) == columns


def test_a_value_is_marked_by_the_finding_that_faults_it_and_by_nothing_else() -> None:
    page = _page("narrow-link-at-gpu")
    marked = [(row.attributes["id"], one.words) for row in page.all("tr") for one in row.all("span", "bad")]
    assert marked == [("gpu/0000:5d:00.0", "PCIe Gen5 x8")]
    (sign,) = page.by_id("gpu/0000:5d:00.0").all("span", "bad")[0].all("svg")
    assert sign.attributes["aria-label"] == "WARN"
    assert not _page(POD).by_id("gpus").all("span", "bad")  # idle links run at Gen1


def test_the_worst_finding_of_a_gpu_is_a_link() -> None:
    page, report = _page(HUNG), _report(HUNG)
    row = _row(page, "0000:9a:00.0")
    assert row.attributes["data-s"] == "fail"
    (to,) = _cell(row, "State").all("a")
    assert to.attributes["href"] == "#driver-cuda.nvml-answers@gpu:0000:9a:00.0"
    assert report.finding("driver-cuda.nvml-answers@gpu:0000:9a:00.0").status is Status.FAIL
    # What could not be told and is not essential makes no GPU of a healthy node suspicious.
    assert {one.attributes["data-s"] for one in _page(HEALTHY).by_id("gpus").all("tr")[1:]} == {"pass"}


def test_workloads_of_a_gpu_are_links_and_who_has_all_is_told_once() -> None:
    page = _page(CLUSTER)
    gpus = page.by_id("gpus")
    row = _row(page, "0000:3a:00.0")
    (to,) = _cell(row, "Used by").all("a")
    assert to.words == "ml/train-0/trainer"
    assert page.by_id(to.attributes["href"][1:]).all("summary")[0].words.startswith("WARNml/train-0/trainer ")
    assert gpus.words.count("nvidia-device-plugin-daemonset-tl9k7/nvidia-device-plugin") == 1
    assert "Every one of them is open to gpu-operator/" in gpus.words


def _with_gpus(report: FullReport, count: int) -> FullReport:
    """The same node with more GPUs like those it has."""
    assert report.details
    gpus, known = report.details.gpus, report.node.gpus
    addresses = [f"{domain:04x}:{bus:02x}:00.0" for domain, bus in itertools.product(range(1, 9), range(16, 48))][
        :count
    ]
    more = tuple(replace(gpus[at % len(gpus)], address=one, index=at) for at, one in enumerate(addresses))
    nodes = tuple(replace(known[at % len(known)], address=one, index=at) for at, one in enumerate(addresses))
    return replace(report, node=replace(report.node, gpus=nodes), details=replace(report.details, gpus=more))


@pytest.mark.parametrize(("count", "shown", "folded"), [(16, 16, 0), (64, 0, 64), (200, 0, 128)])
def test_many_gpus_are_folded_and_bounded(count: int, shown: int, folded: int) -> None:
    page = tree(html.render(_with_gpus(_report(HEALTHY), count)))
    gpus = page.by_id("gpus")
    rows = [one for one in gpus.all("tr") if one.attributes.get("id", "").startswith("gpu/")]
    inside = [one for one in rows if one.within("details")]
    assert (len(rows) - len(inside), len(inside)) == (shown, folded)
    assert (f"And {count - 128} more GPUs" in gpus.words) == (count > 128)


# The topology ---------------------------------------------------------------------------------------------------------


def test_the_topology_is_drawn_and_told_as_a_table() -> None:
    page, details = _page(CLUSTER), _report(CLUSTER).details
    assert details and details.topology
    (drawing,) = page.by_id("topology").all("svg", "topo")
    named = [page.by_id(one) for one in drawing.attributes["aria-labelledby"].split()]
    assert [one.tag for one in named] == ["title", "desc"] and all(one.words for one in named)
    assert not [one for one in drawing.walk() if "style" in one.attributes or one.tag == "style"]
    (table,) = page.by_id("topology").all("table", "matrix")
    rows = table.all("tbody")[0].all("tr")
    for row, told in zip(rows, details.topology.matrix, strict=True):
        assert row.all("th")[0].words.startswith(f"{told.name} ")
        assert [one.words for one in row.all("td")][: len(told.cells)] == [
            "self" if one == "X" else one or "not told" for one in told.cells
        ]
    assert {row.name for row in details.topology.matrix} <= set(re.findall(r"GPU\d+", drawing.text))


def test_what_is_wrong_in_the_topology_leads_to_its_finding() -> None:
    page = _page("narrow-link-at-gpu")
    (remark,) = page.by_id("topology").all("ul", "remarks")[0].all("li")
    assert remark.words.startswith("WARN pcie.link-width ")
    assert remark.all("a")[0].attributes["href"] == "#pcie.link-width@gpu:0000:5d:00.0"
    assert page.by_id("topology").all("path", "sign-warn")


def test_a_drawing_that_is_too_large_is_left_to_the_command() -> None:
    report = _report(CLUSTER)
    assert report.details and report.details.topology
    topo = report.details.topology
    many = tuple(
        replace(one, address=f"{domain:04x}{one.address[4:]}", root=f"pci{domain:04x}:{one.root[-2:]}")
        for domain in range(40)
        for one in topo.functions
        if one.kind != "bridge"
    )
    large = replace(report, details=replace(report.details, topology=replace(topo, functions=many)))
    section = tree(html.render(large)).by_id("topology")
    assert not section.all("svg", "topo") and "gpudoctor topo --format svg" in section.words


# The workloads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [POD, CLUSTER])
def test_a_workload_is_told_step_by_step(name: str) -> None:
    page, details = _page(name), _report(name).details
    assert details and details.workloads
    blocks = page.by_id("workloads").all("details", "workload")
    for block, traced in zip(blocks, details.workloads, strict=True):
        assert block.attributes["data-s"] == traced.verdict.value
        assert ("open" in block.attributes) == (traced.verdict.value == "fail")
        assert traced.title in block.all("summary")[0].words
        assert {one.attributes["href"] for one in block.all("a") if "gpu/" in one.attributes.get("href", "")} == {
            f"#gpu/{gpu.address}" for gpu in traced.gpus
        }
        _told_in_full(block, traced)


def _told_in_full(block: Element, traced: Traced) -> None:
    for step in traced.steps:
        assert " ".join(step.summary.split()) in block.words
    if traced.first_broken:
        assert f"first broken step: {traced.first_broken.value}" in block.words
        (broken,) = (
            one
            for one in block.all("details", "step")
            if one.all("b") and one.all("b")[0].words == traced.first_broken.value
        )
        assert "open" in broken.attributes
        step = traced.step(traced.first_broken)
        causes = [one for one in broken.all("a") if one.attributes["href"].startswith("#cause/")]
        commands = {one.text for one in broken.all("pre")}
        assert causes or commands >= {word for remedy in step.remedies for word in remedy.run}
        assert all(" ".join(seen.shows.split()) in broken.words for seen in step.evidence[:12])


def test_workloads_beyond_those_kept_are_counted() -> None:
    report = _report(CLUSTER)
    assert report.details
    page = tree(html.render(replace(report, details=replace(report.details, more_workloads=17))))
    assert "And 17 more workloads: gpudoctor trace tells of each." in page.by_id("workloads").words
    assert "Workloads 20" in page.all("nav")[0].words


def test_workloads_of_one_subject_have_places_of_their_own() -> None:
    report = _report(CLUSTER)
    assert report.details
    twice = replace(report.details, workloads=report.details.workloads * 2)
    page = tree(html.render(replace(report, details=twice)))
    ids = [one.attributes["id"] for one in page.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids))


# Whole pages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [HEALTHY, SICK, HUNG, "nothing-recorded"])
def test_a_report_without_details_says_so_in_each_part(name: str) -> None:
    report = run_node(node(name))
    assert type(report) is Report
    page = tree(html.render(report))
    for part in ("gpus", "topology", "workloads"):
        assert "written without details: " in page.by_id(part).words
    assert not page.all("svg", "topo")
    for part in SECTIONS:
        assert len(page.by_id(part).words) > len(page.by_id(part).all("h2")[0].words)


@pytest.mark.parametrize("name", [HEALTHY, SICK, HUNG, POD, MIG, "nothing-recorded", "wsl2", "cpu-node-expects-none"])
def test_no_part_is_empty_and_every_address_leads_somewhere(name: str) -> None:
    page = _page(name)
    for part in SECTIONS:
        section = page.by_id(part)
        assert len(section.words) > len(section.all("h2")[0].words) + 5
    ids = [one.attributes["id"] for one in page.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        target = link.attributes.get("href", "")
        assert not target.startswith("#") or target[1:] in ids, target
    parts = [one.attributes["href"][1:] for one in page.all("nav")[0].all("a")]
    order = [one.attributes["id"] for one in page.all("main")[0].inside if isinstance(one, Element)]
    assert parts == [one for one in order if one in parts]


@pytest.mark.parametrize(
    "name",
    [
        SICK,
        CLUSTER,
        # The largest there are: faults, and workloads with evidence of their own.
        "device-unhealthy-after-xid-48",
        "device-unhealthy-after-xid-79",
        "exporter-pod-with-all-gpus",
        "kubernetes-shares-by-mps",
    ],
)
def test_a_page_of_eight_gpus_stays_small(name: str) -> None:
    report = _report(name)
    assert report.details and len(report.details.gpus) == 8
    assert len(html.render(report)) <= MOST_BYTES
