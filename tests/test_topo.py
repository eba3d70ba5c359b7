"""`gpudoctor topo`: the tree and the matrix in a terminal, the drawing, the JSON and NCCL's file."""

import datetime
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

import jsonschema
import pytest
from msgspec.structs import replace

from gpudoctor.config import Config, ConfigError
from gpudoctor.facts.topology import FullTopology
from gpudoctor.reports import topo_nccl, topo_svg, topo_terminal
from gpudoctor.reports.look import Look
from gpudoctor.reports.topo_boxes import Box, lay_out
from gpudoctor.reports.topo_nvlinks import apart, islands, range_words
from gpudoctor.reports.topo_style import DARK, LIGHT
from gpudoctor.reports.topo_tree import Hop, Leaf, arranged, entries, narrowed
from gpudoctor.sources.folder import DiskTree
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.testing import config_of, fixtures, node
from gpudoctor.topo import Function, NvLinkBundle, Remark, Topo
from gpudoctor.topo_run import topo
from gpudoctor.verdicts import Status
from tests.chromium import needs_chromium, open_page
from tests.conftest import Golden
from tests.nccl_topology import NcclTopology, parse_nccl_topology
from tests.test_cli import gpudoctor
from tests.test_packaging import modules_of_a_run
from tests.topology_corpus import from_nccl
from tests.topology_trees import Machine, Root, gpu, machines, nic, numbered, port, switch, written

NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.timezone.utc)
SVG = "{http://www.w3.org/2000/svg}"
OFF_NVLINK = "nvlinks-inactive-on-one-gpu-of-eight"
HGX = "eight GPUs with NVSwitches, rails and a two-port adapter"


def of_fixture(name: str, *, judge: bool = True) -> Topo:
    """The topology of a recorded node."""
    recorded = node(name)
    assert recorded.manifest is not None
    return topo(recorded, config_of(recorded), recorded.manifest.recorded_at, judge=judge)


def of_tree(folder: Path) -> Topo:
    """The topology of a tree of sysfs, nothing of which is judged."""
    return topo(RecordedNode(DiskTree(str(folder)), complete=("/",)), Config(), NOW, judge=False)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Machine, Topo]]:
    """Machines of many kinds with their topologies."""
    base = tmp_path_factory.mktemp("trees")
    return [(one, of_tree(written(one, base / str(at)))) for at, one in enumerate(machines())]


def named(trees: list[tuple[Machine, Topo]], name: str) -> Topo:
    """One of them by its name."""
    return next(result for machine, result in trees if machine.name == name)


def parsed(drawn: str) -> ElementTree.Element:
    """A drawing's elements."""
    return ElementTree.fromstring(drawn)  # noqa: S314 (it was written a moment ago)


def with_mesh(result: Topo, links: int = 18) -> Topo:
    """With NVLinks between every two GPUs."""
    names = [row.name for row in result.matrix if row.name.startswith("GPU")]
    pairs = [(one, other) for at, one in enumerate(names) for other in names[at + 1 :]]
    return replace(result, nvlinks=tuple(NvLinkBundle(one, other, links) for one, other in pairs))


def shown(result: Topo, **look: Any) -> str:
    """The page for a terminal."""
    return topo_terminal.render(result, Look(**look))


# the terminal ---------------------------------------------------------------------------------------------------------


def test_pages(golden: Golden, trees: list[tuple[Machine, Topo]]) -> None:
    golden.check("topo/h100x8.txt", shown(of_fixture("h100x8")))
    golden.check("topo/off-nvlink.txt", shown(of_fixture(OFF_NVLINK), width=100))
    golden.check("topo/hgx-120.txt", shown(named(trees, HGX), width=120))
    golden.check("topo/hgx-verbose.txt", shown(named(trees, HGX), width=140, verbose=1, ascii=True))
    golden.check("topo/grace.txt", shown(named(trees, "Grace with four GPUs whose memory is nodes")))


def test_in_one_line() -> None:
    assert shown(of_fixture("h100x8"), quiet=True) == (
        "8 GPUs, NV18 between every two of GPU0 to GPU7, through 4 NVSwitches: no finding\n"
    )
    assert shown(of_fixture(OFF_NVLINK), quiet=True).endswith("no NVLink to another GPU: GPU6: 1 finding\n")


def sixteen(folder: Path) -> Topo:
    """Sixteen GPUs and as many adapters on eight switches of two sockets."""
    rails = [
        Root(at // 4, [port(switch(gpu(), gpu(), *(nic(f"mlx5_{at * 2 + one}") for one in range(2))))])
        for at in range(8)
    ]
    like = next(machine for machine in machines() if machine.name == HGX)
    return of_tree(written(numbered(Machine("sixteen", like.nodes, like.packages, rails, threads=2)), folder))


def test_sixteen_gpus_and_adapters_fit_into_120_columns(tmp_path: Path) -> None:
    text = shown(sixteen(tmp_path), width=120)
    assert max(map(len, text.splitlines())) <= 120
    heads = [line.split() for line in text.splitlines() if re.fullmatch(r" +((GPU|NIC)\d+ *)+", line)]
    gpus, nics = [f"GPU{at}" for at in range(16)], [f"NIC{at}" for at in range(16)]
    assert heads == [gpus, nics, nics]
    rows = [line for line in text.splitlines() if re.match(r"  GPU3 +\w", line)]
    assert [row.split()[1:3] for row in rows[:2]] == [["NODE", "NODE"], ["NODE", "NODE"]]
    assert "GPU0 and GPU1" in text and "mlx5_0, mlx5_1 (PIX)" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int, trees: list[tuple[Machine, Topo]]) -> None:
    for machine, result in trees:
        for verbose in (0, 1):
            text = shown(result, width=width, ascii=True, verbose=verbose)
            assert text.isascii() and all(len(line) <= width for line in text.splitlines()), machine.name


def test_every_device_is_in_the_tree(trees: list[tuple[Machine, Topo]]) -> None:
    for machine, result in trees:
        lines = shown(result, width=300).splitlines()
        for one in result.functions:
            if one.kind in ("gpu", "nic", "nvme", "nvswitch") and not one.virtual_function_of:
                assert sum(f"  {one.address}  " in f"{line}  " for line in lines) == 1, (machine.name, one.address)


def test_a_device_hangs_below_its_own_switch_and_node(trees: list[tuple[Machine, Topo]]) -> None:
    for machine, result in trees:
        numa = {function.address: root.numa for root, function in machine.functions if function.numa is None}
        for socket in arranged(result):
            for locality in socket.localities:
                for bridge in locality.bridges:
                    for leaf in bridge.leaves:
                        if locality.number in machine.nodes:
                            assert numa.get(leaf.function.address, locality.number) == locality.number, machine.name
                    for hop in bridge.hops:
                        below(hop, machine.name)


def below(hop: Hop, name: str) -> None:
    """Everything below a hop has it on its way; there are two of them at least where it is no switch."""
    assert len(hop.leaves) + len(hop.hops) > (0 if hop.switch else 1), name
    inside: list[Hop | Leaf] = [*hop.leaves, *hop.hops]
    for entry in inside:
        assert hop.function.address in entry.function.path, name
    for inner in hop.hops:
        below(inner, name)


def test_a_switch_above_a_single_device_is_shown(tmp_path: Path) -> None:
    like = next(machine for machine in machines() if machine.name == HGX)
    alone = [Root(0, [port(switch(gpu(), None))]), Root(1, [port(gpu())])]
    result = of_tree(written(numbered(Machine("alone", like.nodes, like.packages, alone, threads=2)), tmp_path))
    hops = [entry for entry in entries(arranged(result)) if isinstance(entry, Hop)]
    assert [(hop.switch, [leaf.function.label for leaf in hop.leaves]) for hop in hops] == [(True, ["GPU0"])]


def test_matrix_cells_are_those_of_the_graph(trees: list[tuple[Machine, Topo]]) -> None:
    result = named(trees, "16 GPUs on switches in two levels")
    text = shown(result, width=200, verbose=1)
    rows = {words[0]: words[1:] for line in text.splitlines() if (words := line.split()) and len(words) == 21}
    assert rows == {row.name: list(row.cells) for row in result.matrix}


def test_a_virtual_machines_tree_is_said_to_be_one(trees: list[tuple[Machine, Topo]]) -> None:
    result = named(trees, "Hyper-V with a host bridge for each GPU")
    text = shown(result)
    assert "tells nothing of the real one" in " ".join(text.split()) and "Near each GPU" not in text
    assert all(not use.command for use in result.use)


def test_what_to_use_is_the_nearest(trees: list[tuple[Machine, Topo]]) -> None:
    uses = {use.gpu: use for use in named(trees, HGX).use}
    assert (uses["GPU0"].nics, uses["GPU0"].way) == (("mlx5_0", "mlx5_1"), "PIX")
    assert uses["GPU7"].command == "numactl --cpunodebind=1 --membind=1" and uses["GPU7"].memory == (1,)
    far = named(trees, "the only adapter is far from all GPUs")
    assert {use.way for use in far.use} == {"SYS"} and "mlx5_0 (SYS)" not in shown(far)
    alone = named(trees, "1 sockets, 4 GPUs at root ports each")
    assert all(use.cpus and not use.command and not use.nics for use in alone.use)
    grace = named(trees, "Grace with four GPUs whose memory is nodes")
    assert [use.memory for use in grace.use] == [(0,), (0,), (1,), (1,)]


def test_fewer_lanes_than_both_ends_have() -> None:
    from gpudoctor.facts.topology import DeviceLink

    def one(width: int, most: int | None, hops: int = 2) -> Function:
        return Function("0000:01:00.0", "gpu", path=("x",) * hops, link=DeviceLink(32.0, width, 32.0, most))

    assert narrowed(one(8, 16), one(8, 16)) == "x8 of x16"
    assert narrowed(one(8, 16), one(8, 8)) == "" and narrowed(one(8, 8), one(8, 16)) == ""
    assert narrowed(one(8, 16), None) == "" and narrowed(one(8, 16), Function("x", "bridge")) == ""
    assert narrowed(one(8, None), one(8, 16)) == ""
    assert narrowed(one(4, 16, hops=3), one(16, 16)) == "", "a switch's lower port has its link below itself"


def test_a_port_that_a_virtual_machine_made_up_says_nothing_of_lanes() -> None:
    from gpudoctor.facts.topology import DeviceLink

    own, above = (
        Function("0000:01:00.0", "gpu", path=("x", "y"), link=DeviceLink(16.0, 8, 32.0, most)) for most in (16, 32)
    )
    assert narrowed(own, above) == ""


def test_spare_numa_nodes_are_left_out() -> None:
    result = of_fixture("gb200-tray-with-gpu-memory-online")
    assert len(result.numa_nodes) == 34 and [place.number for one in arranged(result) for place in one.localities] == [
        0,
        1,
    ]
    assert "NUMA node 3" not in shown(result) and "NUMA node 3" not in topo_svg.render(result)
    assert "memory without CPUs" in shown(of_fixture("numa-node-of-cxl-memory"))


def test_virtual_functions_count_with_their_physical_one(trees: list[tuple[Machine, Topo]]) -> None:
    result = named(trees, "virtual functions")
    assert sum(bool(one.virtual_function_of) for one in result.of_kind("nic")) == 3
    assert [row.name for row in result.matrix] == ["GPU0", "GPU1", "NIC0"]
    assert all(len(row.cells) == 3 for row in result.matrix)
    assert {use.nics for use in result.use} == {("mlx5_0",)}
    assert "2 GPUs, 1 RDMA adapter" in shown(result, quiet=True)
    assert "2 GPUs, 1 network adapter," in topo_svg.render(result)


def test_what_a_text_of_nvidia_smi_tells_is_drawn(tmp_path: Path) -> None:
    place = tmp_path / "topo.txt"
    place.write_text(
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV4\tPIX\t0-31\t0\t\tN/A\nGPU1\tNV4\t X \tSYS\t32-63\t1\t\tN/A\nNIC0\tPIX\tSYS\t X \t\t\t\t\n"
    )
    ended = gpudoctor("topo", "--node", str(place))
    assert ended.returncode == 0 and "NV4 between GPU0 and GPU1" in ended.stdout
    assert re.search(r"GPU0 +X +NV4 +PIX", ended.stdout) and re.search(r"GPU1 +CPUs 32-63", ended.stdout)
    drawn = gpudoctor("topo", "--node", str(place), "--format", "svg").stdout
    assert "NV4: 4 NVLinks" in drawn


def test_hostile_words_cannot_drive_the_terminal_or_the_browser(trees: list[tuple[Machine, Topo]]) -> None:
    evil = '\x1b]0;owned\x07"><script>alert(1)</script>--\ufffe'
    result = with_mesh(named(trees, HGX))
    functions = tuple(replace(one, name=evil, model=evil, driver=evil) for one in result.functions)
    remarks = tuple(Remark(evil, f"gpu:{one.address}", Status.WARN, evil) for one in result.of_kind("gpu"))
    bundles = (NvLinkBundle(evil, "GPU1", 3), NvLinkBundle("GPU0", "GPU1", 1))
    rows = tuple(replace(row, name=evil) if row.name == "GPU2" else row for row in result.matrix)
    result = replace(result, functions=functions, remarks=remarks, synthetic=evil, nvlinks=bundles, matrix=rows)
    result = replace(result, node=replace(result.node, hostname=evil), unseen=(evil,))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown(result, verbose=1))
    drawn = topo_svg.render(result)
    assert not list(parsed(drawn).iter(f"{SVG}script")) and "\x1b" not in drawn
    file = topo_nccl.render(result)
    assert isinstance(parse_nccl_topology(file, "here"), NcclTopology) and "<script" not in file


# NVLinks --------------------------------------------------------------------------------------------------------------


def test_islands(trees: list[tuple[Machine, Topo]]) -> None:
    result = named(trees, HGX)
    (mesh,) = islands(with_mesh(result))
    assert mesh.each == 18 and len(mesh.gpus) == 8 and apart(with_mesh(result)) == ()
    pairs = (NvLinkBundle("GPU0", "GPU1", 4), NvLinkBundle("GPU4", "GPU5", 4), NvLinkBundle("GPU5", "GPU6", 2))
    found = islands(replace(result, nvlinks=pairs))
    assert [(one.gpus, one.each) for one in found] == [(("GPU0", "GPU1"), 4), (("GPU4", "GPU5", "GPU6"), 0)]
    assert apart(replace(result, nvlinks=pairs)) == ("GPU2", "GPU3", "GPU7")
    assert islands(result) == [] and apart(result) == ()


def test_words_for_several() -> None:
    assert range_words(["GPU0", "GPU1", "GPU2"]) == "GPU0 to GPU2"
    assert range_words(["GPU0", "GPU1"]) == "GPU0 and GPU1"
    assert range_words(["GPU0", "GPU2", "GPU3"]) == "GPU0, GPU2, GPU3"
    assert range_words(["GPU0", "GPU1", "0000:01:00.0"]) == "GPU0, GPU1, 0000:01:00.0"


# the drawing ----------------------------------------------------------------------------------------------------------


def test_drawings(golden: Golden, trees: list[tuple[Machine, Topo]]) -> None:
    golden.check("topo/off-nvlink.svg", topo_svg.render(of_fixture(OFF_NVLINK)))
    golden.check("topo/hgx.svg", topo_svg.render(with_mesh(named(trees, HGX))))


def test_a_drawing_stands_alone_and_names_every_device(trees: list[tuple[Machine, Topo]]) -> None:
    for machine, result in trees:
        drawn = topo_svg.render(result)
        root = parsed(drawn)
        words = [" ".join(part.strip() for part in text.itertext()) for text in root.iter(f"{SVG}text")]
        for one in result.functions:
            if one.kind in ("gpu", "nic") and not one.virtual_function_of:
                label = one.label or "net"
                assert any(word == label or word.startswith(f"{label} ") for word in words), (machine.name, one)
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "title", "desc", "style", "rect", "g", "path", "text", "tspan"}, machine.name
        assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "") and "url(" not in drawn


_Rectangle: TypeAlias = tuple[float, float, float, float]


def chains(element: ElementTree.Element, around: tuple[_Rectangle, ...] = ()) -> Iterator[tuple[_Rectangle, ...]]:
    """For each box the rectangles around it, its own being the last."""
    for child in element.findall(f"{SVG}g"):
        rect = child.find(f"{SVG}rect")
        if rect is not None and (rect.get("class") or "").startswith("box"):
            x, y, width, height = (float(rect.get(name, "0")) for name in ("x", "y", "width", "height"))
            mine = (*around, (x, y, x + width, y + height))
            yield mine
            yield from chains(child, mine)


def apart_from(one: _Rectangle, other: _Rectangle) -> bool:
    """Whether two rectangles have nothing in common."""
    return one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] or other[1] >= one[3]


def test_boxes_lie_in_their_boxes_and_not_on_each_other(trees: list[tuple[Machine, Topo]]) -> None:
    for machine, result in trees:
        top = parsed(topo_svg.render(result))
        whole = (0.0, 0.0, float(top.get("width", "0")), float(top.get("height", "0")))
        siblings: dict[tuple[_Rectangle, ...], list[_Rectangle]] = {}
        for *around, inner in chains(top):
            outer = around[-1] if around else whole
            assert outer[0] < inner[0] and outer[1] < inner[1], machine.name
            assert inner[2] < outer[2] and inner[3] < outer[3], machine.name
            beside = siblings.setdefault(tuple(around), [])
            assert all(apart_from(inner, other) for other in beside), machine.name
            beside.append(inner)
        assert sum(map(len, siblings.values())) >= len(result.of_kind("gpu"))


def test_rows_of_boxes_are_even() -> None:
    boxes = [Box("bridge", "x", inner=[Box("gpu", "GPU", leaf=True)]) for _ in range(16)]
    outer = Box("socket", "socket 0", inner=boxes)
    lay_out(outer, 1300)
    assert len({box.y for box in boxes}) == 4 and [box.y for box in boxes].count(boxes[0].y) == 4


def test_what_is_wrong_is_told_by_colour_shape_and_words() -> None:
    result = of_fixture(OFF_NVLINK)
    drawn = topo_svg.render(result)
    root = parsed(drawn)
    (marked,) = [
        group
        for group in root.iter(f"{SVG}g")
        if any("box gpu fail" in (rect.get("class") or "") for rect in group.findall(f"{SVG}rect"))
    ]
    assert "".join(marked.itertext()).startswith("GPU6 A100-SXM4-80GB")
    assert [path.get("class") for path in marked.findall(f"{SVG}path")] == ["apart", "sign-fail"]
    assert "fabric.nvlinks-up GPU6: 0 of 12 NVLinks are active" in drawn
    assert "no NVLink to another GPU" in drawn and "12 NVLinks for every two of 7 GPUs" in drawn
    warned = replace(result, remarks=tuple(replace(one, status=Status.WARN) for one in result.remarks))
    assert 'class="sign-warn"' in topo_svg.render(warned) and 'class="sign-fail"' not in topo_svg.render(warned)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_contrast(palette: dict[str, str]) -> None:
    grounds = [palette[name] for name in ("page", "card", "leaf", "gpu", "nic", "nvswitch")]
    for ground in grounds:
        for words in ("text", "quiet", "warn", "fail"):
            assert contrast(palette[words], ground) >= 4.5, (words, ground)
        for shape in ("rule", "nvlink"):
            assert contrast(palette[shape], ground) >= 3, (shape, ground)
    assert contrast(palette["page"], palette["fail"]) >= 4.5 and contrast(palette["page"], palette["warn"]) >= 4.5


OVERFLOWS = """
<script>
const out = []
const framed = parent => parent.tagName == "g" && !parent.hasAttribute("transform")
for (const text of document.querySelectorAll("text")) {
  const box = text.getBoundingClientRect()
  const rect = framed(text.parentNode) ? text.parentNode.querySelector(":scope > rect.box") : null
  const room = (rect || text.ownerSVGElement).getBoundingClientRect()
  if (box.right > room.right + 1 || box.left < room.left - 1 || box.bottom > room.bottom + 1) out.push(text.textContent)
}
for (const parent of document.querySelectorAll("g:not([transform])")) {
  const texts = [...parent.querySelectorAll(":scope > text")].map(one => one.getBoundingClientRect())
  for (const [at, one] of texts.entries()) for (const other of texts.slice(at + 1))
    if (one.left < other.right && other.left < one.right && one.top + 3 < other.bottom && other.top + 3 < one.bottom)
      out.push("overlap in " + parent.textContent)
}
const colour = getComputedStyle(document.querySelector("rect.page")).fill
const chosen = getComputedStyle(document.querySelector("text")).userSelect
document.title = JSON.stringify({out, colour, chosen, count: document.querySelectorAll("text").length})
</script>
"""


@needs_chromium
@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(15, 20, 25)")])
def test_in_a_browser_words_stay_in_their_boxes(
    tmp_path: Path, trees: list[tuple[Machine, Topo]], scheme: str, ground: str
) -> None:
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    cases = [of_fixture(OFF_NVLINK), of_fixture("dgx-b200x8"), with_mesh(named(trees, HGX)), sixteen(tmp_path / "16")]
    cases.append(named(trees, "Grace with four GPUs whose memory is nodes"))
    cases.append(of_fixture("rtx4090-workstation-display"))
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8>{''.join(map(topo_svg.render, cases))}{OVERFLOWS}", "utf-8")
    document, console = open_page(page, tmp_path / "profile", *dark)
    title = re.search(r"<title>(\{.*?\})</title>", document)
    assert title is not None and console == [], console
    said = json.loads(title[1].replace("&quot;", '"').replace("&amp;", "&"))
    assert (said["out"], said["colour"], said["chosen"]) == ([], ground, "text") and said["count"] > 300


# NCCL's file ----------------------------------------------------------------------------------------------------------


def test_the_file_for_nccl(golden: Golden) -> None:
    golden.check("topo/h100x8.nccl.xml", topo_nccl.render(of_fixture("h100x8", judge=False)))


def test_nccl_joins_devices_as_the_graph_does(trees: list[tuple[Machine, Topo]]) -> None:
    """NCCL knows PIX and PXB below switches, and no host bridges. Functions of one device it does not join."""
    compared = 0
    for machine, result in trees:
        told = parse_nccl_topology(topo_nccl.render(result), "here")
        assert isinstance(told, NcclTopology)
        devices = {one.address: one for one in told.devices}
        ends = [one for one in result.matrix if one.address]
        assert {one.address for one in told.devices if one.gpu is not None or one.class_code.startswith("03")} == {
            row.address for row in ends if row.name.startswith("GPU")
        }, machine.name
        for row in ends:
            for other, cell in zip(ends, row.cells, strict=True):
                one, two = devices[row.address], devices[other.address]
                ways = {told.way(one, two), cell}
                same_port = len(set(row.address.split(".")[:1] + other.address.split(".")[:1])) == 1
                if same_port and row.address != other.address:
                    continue
                assert len(ways) == 1 or (
                    ways <= {"NODE", "PHB", "SYS", ""} and (one.numa == two.numa or -1 in (one.numa, two.numa))
                ), (
                    machine.name,
                    row.address,
                    other.address,
                    ways,
                )
                compared += 1
    assert compared > 20_000


def test_nccls_own_dumps_come_out_as_they_went_in(corpus: Path, tmp_path: Path) -> None:
    """A tree made of what NCCL wrote of a machine, under other addresses, gives the same nesting and the same ways."""
    compared = 0
    for place in sorted((corpus / "nccl-topo").glob("*.xml")):
        machine = from_nccl(place)
        dumped = parse_nccl_topology(place.read_text("utf-8"), place.name)
        if machine is None or not isinstance(dumped, NcclTopology) or not dumped.gpus:
            continue
        written_again = topo_nccl.render(of_tree(written(machine, tmp_path / place.name)))
        mine = parse_nccl_topology(written_again, place.name)
        assert isinstance(mine, NcclTopology)
        assert nesting(mine) == nesting(dumped), place.name
        compared += len(mine.gpus)
    assert compared >= 16


def nesting(told: NcclTopology) -> list[tuple[int, int | None, list[str]]]:
    """For each GPU how deep it lies, its NUMA node, and its ways to all others; by NUMA node, which a file may have in any order."""
    gpus = sorted(told.gpus, key=lambda gpu: -1 if gpu.numa is None else gpu.numa)
    return [(len(one.path), one.numa, [told.way(one, other) for other in gpus]) for one in gpus]


def test_nvlinks_are_written_whole_or_not_at_all() -> None:
    whole = of_fixture("h100x8", judge=False)
    links: dict[str, int] = {}
    for target in whole.nvlink_targets:
        links[target.gpu] = links.get(target.gpu, 0) + target.links
        assert target.switch
    assert links == dict.fromkeys((f"GPU{at}" for at in range(8)), 18)
    assert of_fixture("dgx-b200x8", judge=False).nvlink_targets == ()
    assert "<nvlink" not in topo_nccl.render(of_fixture("dgx-b200x8", judge=False))


def test_nccls_reader_can_read_it(trees: list[tuple[Machine, Topo]]) -> None:
    """No declaration, no entity, no tab, nothing longer than its buffers (xmlGetNode and xmlGetValue in NCCL's src/graph/xml.cc)."""
    for _, result in trees:
        file = topo_nccl.render(result)
        assert "<?" not in file and "&" not in file and "\t" not in file
        assert file.count("--") == 2 and all(len(value) < 255 for value in re.findall(r'"([^"]*)"', file))


# the command ----------------------------------------------------------------------------------------------------------


def test_exit_codes(tmp_path: Path) -> None:
    for form in ("terminal", "svg", "json", "nccl"):
        ended = gpudoctor("topo", "--node", str(fixtures() / OFF_NVLINK), "--format", form)
        assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout
    for arguments in (("--root", str(tmp_path)), ("--format", "html"), ("x",)):
        ended = gpudoctor("topo", *arguments)
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (3, "", 1), ended.stderr
    with pytest.raises(ConfigError, match="nothing to draw"):
        of_fixture("nothing-recorded")


def test_json_is_valid_under_its_own_schema(golden: Golden, trees: list[tuple[Machine, Topo]]) -> None:
    printed = gpudoctor("schema", "--of", "topo").stdout
    golden.check("topo-1.schema.json", printed)
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    from gpudoctor.reports import json as form

    for result in (of_fixture("h100x8"), of_fixture(OFF_NVLINK), *(result for _, result in trees)):
        said = json.loads(form.render(result))
        validator.validate(said)
        assert said["schema"] == "gpudoctor.topo/1"


def test_every_recorded_node_is_drawn() -> None:
    drawn = 0
    for place in sorted(fixtures().iterdir()):
        if not (place / "snapshot.json").is_file():
            continue
        try:
            result = of_fixture(place.name, judge=False)
        except ConfigError:
            continue
        drawn += 1
        assert not [words for words in result.unseen if "gpudoctor failed" in words], place.name
        assert shown(result) and parsed(topo_svg.render(result)) is not None
        assert isinstance(parse_nccl_topology(topo_nccl.render(result), place.name), NcclTopology)
        assert all(entry.function.address for entry in entries(arranged(result)))
    assert drawn > 200


def test_a_run_does_not_import_it_and_json_imports_no_page() -> None:
    assert not [name for name in modules_of_a_run("--format", "json") if name.startswith("gpudoctor.topo")]
    script = "import sys; from gpudoctor.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    for form in ("svg", "nccl", "json"):
        command = [sys.executable, "-c", script, "topo", "--node", str(fixtures() / "h100x8"), "--format", form]
        loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()
        assert "gpudoctor.topo_run" in loaded and not [name for name in loaded if name.startswith(("rich", "jinja2"))]
        assert (form == "nccl") == ("gpudoctor.registry" not in loaded)


def test_the_graph_is_the_facts_own(trees: list[tuple[Machine, Topo]]) -> None:
    from gpudoctor.facts.desk import Desk

    recorded = node("dgx-b200x8")
    graph = Desk(recorded, Config()).get(FullTopology)
    assert isinstance(graph, FullTopology)
    result = of_fixture("dgx-b200x8", judge=False)
    assert [one.address for one in result.functions] == [one.address for one in graph.devices]


def test_a_recording_draws_what_the_node_does(tmp_path: Path) -> None:
    root = written(next(one for one in machines() if one.name == HGX), tmp_path / "root")
    for part in ("proc", "dev"):
        (root / part).mkdir(exist_ok=True)
    recorded = gpudoctor("record", "--raw", "--root", str(root), "-o", str(tmp_path / "snapshot"))
    assert recorded.returncode == 0, recorded.stderr
    told = []
    for source in (("--root", str(root)), ("--node", str(tmp_path / "snapshot"))):
        found = json.loads(gpudoctor("topo", *source, "--format", "json").stdout)
        told.append(
            {key: found[key] for key in ("packages", "numa_nodes", "cpus_online", "functions", "matrix", "use")}
        )
    assert len(told[0]["functions"]) > 20 and told[0] == told[1]
