"""A node's topology as one SVG: boxes by socket, host bridge and switch, NVLinks below, and what is wrong in colour, shape and words.

It stands alone: no script, no font, nothing fetched, text as text. It follows the reader's light or dark scheme.
"""

import textwrap
from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpudoctor.reports.topo_arcs import nvlink_panel
from gpudoctor.reports.topo_boxes import PAD, Box, lay_out
from gpudoctor.reports.topo_nvlinks import apart, islands
from gpudoctor.reports.topo_style import MARKS, STYLE, element, escaped, mark, shortened, text, titled
from gpudoctor.reports.topo_tree import (
    Bridge,
    Hop,
    Leaf,
    Locality,
    Socket,
    arranged,
    cpus_words,
    device_words,
    entries,
    kind_words,
    link_words,
    locality_words,
    size_words,
    socket_words,
)
from gpudoctor.reports.words import counted
from gpudoctor.topo import Remark, Topo
from gpudoctor.verdicts import Status

WIDTH = 1440
MARGIN = 16
HEADER = 54
LINE = 18
CHARACTER = 6.8
"""About how wide a character of a line is."""
WRAP = 170
"""Characters in a line of the findings."""
MOST_FINDINGS = 40
MOST_SUBJECTS = 8


class Drawing(Struct, frozen=True):
    """What is drawn, as elements of an SVG of that size."""

    width: float
    height: float
    body: tuple[str, ...]


def render(topo: Topo) -> str:
    """The whole document."""
    least = len(_subtitle(topo)) * CHARACTER + 2 * MARGIN
    drawn = drawing(topo, WIDTH, MARGIN, top=HEADER, least=least, notes=True)
    return "\n".join((*_head(topo, drawn.width, drawn.height), *drawn.body, "</svg>")) + "\n"


def inline(topo: Topo, width: float) -> str:
    """The drawing for a page that has `topo_style.style_within(".topo")`, without heading, findings and notes: the page tells these."""
    drawn = drawing(topo, width, 1, top=1)
    size = f'width="{drawn.width:g}" height="{drawn.height:g}" viewBox="0 0 {drawn.width:g} {drawn.height:g}"'
    return "\n".join(
        (
            f'<svg class="topo" {size} role="group" aria-labelledby="drawing-title drawing-desc">',
            f'<title id="drawing-title">{escaped(_title(topo))}</title>',
            f'<desc id="drawing-desc">{escaped(_counts(topo))}</desc>',
            *drawn.body,
            "</svg>",
        )
    )


def drawing(topo: Topo, width: float, margin: float, *, top: float, least: float = 0, notes: bool = False) -> Drawing:
    """Boxes, NVLinks and legend below `top`, as wide as that, or wider where a box is; with `notes` what is wrong, in words."""
    known, sockets = _Known(topo), arranged(topo)
    outer = Box("page", "", inner=[box for socket in sockets for box in _socket(socket, known)])
    lay_out(outer, width - 2 * margin + 2 * PAD)
    body: list[str] = []
    outer.x, outer.y = margin - PAD, top - PAD
    _draw(outer, 0, 0, body)
    width = max(outer.x + outer.width - PAD + margin, least)
    panel, y = nvlink_panel(topo, margin, outer.y + outer.height + 4 if outer.inner else top, width - 2 * margin)
    body += panel
    if notes:
        told, y = _notes(topo, y, width)
        body += told
    legend, y = _legend(topo, sockets, y, width, margin)
    body += legend
    return Drawing(width, y + margin, tuple(body))


def _head(topo: Topo, width: float, height: float) -> Iterator[str]:
    title = _title(topo)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        'role="group" aria-labelledby="title desc">'
    )
    yield f'<title id="title">{escaped(title)}</title>'
    yield f'<desc id="desc">{escaped(_counts(topo))}</desc>'
    yield f"<style>{STYLE}</style>"
    yield element("rect", "page", x=0, y=0, width=width, height=height)
    yield text(title, MARGIN, 26, "h1")
    yield text(_subtitle(topo), MARGIN, 44, "quiet")


def _title(topo: Topo) -> str:
    return f"Topology of {topo.node.hostname or 'unnamed node'}"


def _subtitle(topo: Topo) -> str:
    """What there is, of which node, seen when and by whom."""
    node = topo.node
    driver = f"driver {node.driver}" if node.driver else ""
    parts = (_counts(topo), node.os or "", driver, f"{node.source} {topo.started_at}", f"gpudoctor {topo.version}")
    return " · ".join(part for part in parts if part)


def _counts(topo: Topo) -> str:
    gpus = len([row for row in topo.matrix if not row.name.startswith("NIC")])
    found = counted(len(topo.remarks), "finding") if topo.remarks else "no finding"
    adapters = [one for one in topo.of_kind("nic") if not one.virtual_function_of]
    return f"{counted(gpus, 'GPU')}, {counted(len(adapters), 'network adapter')}, {found}"


# Boxes ---------------------------------------------------------------------------------------------------------------


class _Known:
    """What is looked up for each box: remarks and labels by address, the looks of GPUs with and without NVLinks by label."""

    def __init__(self, topo: Topo) -> None:
        self.remarks: dict[str, list[Remark]] = {}
        for remark in topo.remarks:
            self.remarks.setdefault(remark.address, []).append(remark)
        self.labels = {one.address: one.label for one in topo.functions if one.label}
        self.looks = {name: "nvlink" for island in islands(topo) for name in island.gpus}
        self.looks.update(dict.fromkeys(apart(topo), "apart"))

    def of(self, entry: Hop | Leaf) -> list[Remark]:
        return self.remarks.get(entry.function.address, [])


def _socket(socket: Socket, known: _Known) -> list[Box]:
    """A socket of a single NUMA node is one box; without sockets there are only NUMA nodes."""
    places = [_locality(locality, known) for locality in socket.localities]
    if not socket.packages:
        return places
    if len(places) == 1:
        alone = places[0]
        alone.kind, alone.title = "socket", f"{socket_words(socket)}, {alone.title}"
        return [alone]
    cpus = f"CPUs {','.join(package.cpus for package in socket.packages)}"
    return [Box("socket", socket_words(socket), detail=cpus, inner=places)]


def _locality(locality: Locality, known: _Known) -> Box:
    bridges = [_bridge(bridge, known) for bridge in locality.bridges]
    memories = [
        Box("memory", f"NUMA node {node.number}", foot=_memory_words(node.gpu, node.memory_bytes, known), leaf=True)
        for node in locality.memories
    ]
    return Box("numa", locality_words(locality), detail=cpus_words(locality), inner=[*memories, *bridges])


def _memory_words(gpu: str, size: int | None, known: _Known) -> str:
    return f"memory of {known.labels.get(gpu, gpu)}{f', {size_words(size)}' if size else ''}"


def _bridge(bridge: Bridge, known: _Known) -> Box:
    return Box("bridge", bridge.name or "place not told", inner=_below(bridge, known))


def _below(above: Bridge | Hop, known: _Known) -> list[Box]:
    return [*(_leaf(leaf, known) for leaf in above.leaves), *(_hop(hop, known) for hop in above.hops)]


def _hop(hop: Hop, known: _Known) -> Box:
    title = f"{'switch' if hop.switch else 'port'} {hop.function.address.removeprefix('0000:')}"
    words = hop.narrow or link_words(hop.function.link)
    box = Box("switch", title, aside=words, inner=_below(hop, known))
    box.link = "narrow" if hop.narrow else ""
    box.mark = _mark(known.of(hop), hop.narrow)
    box.about = _about(hop, known)
    return box


def _leaf(leaf: Leaf, known: _Known) -> Box:
    one = leaf.function
    label = kind_words(one)
    name = device_words(one)
    if one.kind == "nic" and one.name:
        name = one.name
    virtual = f" +{leaf.virtual} VF" if leaf.virtual else ""
    box = Box(one.kind, label, detail=f"{name}{virtual}", foot=one.address.removeprefix("0000:"), leaf=True)
    box.aside = leaf.narrow or link_words(one.link).partition(",")[0]
    box.link = "narrow" if leaf.narrow else known.looks.get(label, "")
    box.mark = _mark(known.of(leaf), leaf.narrow)
    box.about = _about(leaf, known)
    return box


def _mark(remarks: Sequence[Remark], narrow: str) -> str:
    if any(remark.status is Status.FAIL for remark in remarks):
        return "fail"
    return "warn" if remarks or narrow else ""


def _about(entry: Hop | Leaf, known: _Known) -> str:
    """What a reader sees who points at it."""
    one = entry.function
    parts = [f"{kind_words(one)} {device_words(one)}".strip(), one.address, link_words(one.link)]
    if one.numa is not None:
        parts.append(f"NUMA node {one.numa}" if one.numa >= 0 else "no NUMA node")
    if one.cpus:
        parts.append(f"CPUs {one.cpus}")
    if entry.ports:
        parts.append(f"by {' '.join(port.address for port in entry.ports)}")
    if entry.narrow:
        parts.append(f"runs with {entry.narrow} lanes")
    parts += [f"{remark.check}: {remark.summary}" for remark in known.of(entry)]
    return "\n".join(part for part in parts if part)


# Drawing -------------------------------------------------------------------------------------------------------------


def _draw(box: Box, left: float, top: float, into: list[str]) -> None:
    x, y = left + box.x, top + box.y
    if box.title:
        into.append("<g>" + (f"<title>{escaped(box.about)}</title>" if box.about else ""))
        _frame(box, x, y, into)
    for one in box.inner:
        _draw(one, x, y, into)
    if box.title:
        into.append("</g>")


def _frame(box: Box, x: float, y: float, into: list[str]) -> None:
    state = f" {box.mark}" if box.mark else ""
    into.append(element("rect", f"box {box.kind}{state}", x=x, y=y, width=box.width, height=box.height, rx=5))
    if box.link:
        into.append(element("path", box.link, d=f"M{x + 4:g} {y + 5:g}V{y + box.height - 5:g}"))
    taken = 20 if box.mark else 0
    narrow = state if box.link == "narrow" else ""
    if box.leaf:
        room = box.width - 20 - taken - len(box.title) * 8.2
        into.append(titled(box.title, shortened(box.detail, int(room / 6.6)), x + 12, y + 18))
        into.append(text(box.foot, x + 12, y + 35, "mono"))
        into.append(text(box.aside, x + box.width - 8, y + 35, f"mono end{narrow}"))
    else:
        room = box.width - 2 * PAD - 8 - taken - len(box.title) * 8.2 - len(box.aside) * 6.8
        into.append(titled(box.title, shortened(box.detail, int(room / 6.6)), x + PAD, y + 20))
        into.append(text(box.aside, x + box.width - PAD - taken, y + 20, f"mono end{narrow}"))
    if box.mark:
        into.append(mark(box.mark, x + box.width - 14, y + 14))


# Below the boxes -----------------------------------------------------------------------------------------------------


def _notes(topo: Topo, y: float, width: float) -> tuple[list[str], float]:
    """Findings in words, and what is to be known of the drawing."""
    body: list[str] = []
    names = {one.address: one.label or one.name for one in topo.functions}
    alike: dict[tuple[Status, str, str], list[str]] = {}
    for remark in topo.remarks:
        alike.setdefault((remark.status, remark.check, remark.summary), []).append(
            names.get(remark.address) or remark.address
        )
    if alike:
        body.append(text("Findings", MARGIN, y + 22, "head"))
        y += 28
    wrap = max(60, min(WRAP, int((width - 2 * MARGIN - 24) // 6.6)))
    for (status, check, summary), subjects in list(alike.items())[:MOST_FINDINGS]:
        body.append(mark("fail" if status is Status.FAIL else "warn", MARGIN + 8, y + 11))
        shown = ", ".join(dict.fromkeys(subjects[:MOST_SUBJECTS])) + (", …" if len(subjects) > MOST_SUBJECTS else "")
        y = _wrapped(f"{check} {shown}: {summary}", MARGIN + 24, y, wrap, "", body)
    if len(alike) > MOST_FINDINGS:
        y = _wrapped(f"and {len(alike) - MOST_FINDINGS} more", MARGIN + 24, y, wrap, "quiet", body)
    for note in (*([topo.synthetic] if topo.synthetic else []), *(f"not seen: {words}" for words in topo.unseen)):
        y = _wrapped(f"note: {note}", MARGIN, y + 2, wrap, "quiet", body)
    return body, y


def _wrapped(words: str, x: float, y: float, wrap: int, kind: str, body: list[str]) -> float:
    for line in textwrap.wrap(words, wrap):
        body.append(text(line, x, y + 15, kind))
        y += LINE
    return y + 2


def _legend(topo: Topo, sockets: Sequence[Socket], y: float, width: float, margin: float) -> tuple[list[str], float]:
    """What the shapes that are drawn mean."""
    body: list[str] = []
    x, y = margin, y + 12
    some_narrow = any(entry.narrow for entry in entries(sockets))
    drawn = {_mark([remark], "") for remark in topo.remarks}
    shapes = [("", "genN xM: PCIe generation and lanes of the link above")] if sockets else []
    shapes += [("nvlink", "has NVLinks to other GPUs")] if topo.nvlinks and sockets else []
    shapes += [("apart", "has no NVLink to another GPU, as others have")] if apart(topo) and sockets else []
    shapes += [("narrow", "the link above has fewer lanes than both of its ends")] if some_narrow else []
    shapes += [(name, words) for name, words in MARKS.items() if name in drawn]
    for kind, words in shapes:
        needed = 40 + len(words) * 6.3
        if x + needed > width - margin and x > margin:
            x, y = margin, y + LINE
        if kind in MARKS:
            body.append(mark(kind, x + 8, y + 8))
        elif kind:
            body.append(element("path", kind, d=f"M{x + 8:g} {y + 1:g}V{y + 15:g}"))
        body.append(text(words, x + (20 if kind else 0), y + 12, "quiet"))
        x += needed
    return body, y + LINE
