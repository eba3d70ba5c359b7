"""NVLinks in a drawing: a bar for GPUs of which every two are joined alike, arcs where pairs differ, and the GPUs that are on none."""

from gpudoctor.reports.topo_nvlinks import Island, apart, islands, through
from gpudoctor.reports.topo_style import element, escaped, text
from gpudoctor.reports.words import counted
from gpudoctor.topo import Topo

CHIP = 70
CHIP_HEIGHT = 26
STEP = 88
BAR = 34
PAD = 12
BETWEEN = 10
TRUNK = 7
"""Where the bars of several rows are joined."""
MOST_LABELS = 60
"""With more arcs their numbers would cover each other; whoever points at an arc sees its own."""
ASIDE = 220
"""Room for words before chips."""
STEEP = 0.42
"""How high an arc is for its width."""


def nvlink_panel(topo: Topo, x: float, y: float, width: float) -> tuple[list[str], float]:
    """The panel's elements, and where it ends."""
    body: list[str] = []
    found = islands(topo)
    if not found:
        return body, y
    ways = through(topo)
    body.append(text(f"NVLinks{f', {ways}' if ways else ''}", x, y + 20, "head"))
    top, left, tallest = y + 30, x, 0.0
    for island in found:
        drawn, wide, high = _bar(island, width) if island.each else _arcs(island, width)
        if left > x and left + wide > x + width:
            top, left, tallest = top + tallest + BETWEEN, x, 0.0
        body += [f'<g transform="translate({left:g} {top:g})">', *drawn, "</g>"]
        left, tallest = left + wide + BETWEEN, max(tallest, high)
    y = top + tallest + BETWEEN
    if alone := apart(topo):
        drawn, y = _alone(alone, x, y, width)
        body += drawn
    return body, y


def _bar(island: Island, width: float) -> tuple[list[str], float, float]:
    """One bar for all the links, each GPU hanging on it: the elements, their width and height."""
    most = max(1, int((width - 2 * PAD) // STEP))
    columns = -(-len(island.gpus) // -(-len(island.gpus) // most))
    rows = [island.gpus[at : at + columns] for at in range(0, len(island.gpus), columns)]
    many = f" for every two of {len(island.gpus)} GPUs" if len(island.gpus) > 2 else ""
    words = f"NV{island.each}: {counted(island.each, 'NVLink')}{many}"
    height = BAR + len(rows) * (CHIP_HEIGHT + BETWEEN)
    wide = max(len(rows[0]) * STEP - (STEP - CHIP) + 2.0 * PAD, len(words) * 7.4 + 2 * PAD)
    body = [element("rect", "island", x=0, y=0, width=wide, height=height, rx=6), text(words, PAD, 20, "head")]
    for number, row in enumerate(rows):
        top = BAR + number * (CHIP_HEIGHT + BETWEEN)
        middles = [PAD + CHIP / 2 + at * STEP for at in range(len(row))]
        start = middles[0] if len(rows) == 1 else TRUNK
        pins = "".join(f"M{middle:g} {top - 4:g}v6" for middle in middles)
        body.append(element("path", "nvlink", d=f"M{start:g} {top - 4:g}H{middles[-1]:g}{pins}"))
        for name, middle in zip(row, middles, strict=True):
            body += _chip(name, middle - CHIP / 2, top)
    if len(rows) > 1:
        down = (len(rows) - 1) * (CHIP_HEIGHT + BETWEEN)
        body.append(element("path", "nvlink", d=f"M{TRUNK} {BAR - 4:g}v{down:g}"))
    return body, wide, height


def _arcs(island: Island, width: float) -> tuple[list[str], float, float]:
    """The GPUs in a line, and an arc for each pair that is joined, as thick as it has links."""
    step = min(float(STEP), (width - CHIP - 2 * PAD) / max(1, len(island.gpus) - 1))
    places = {name: PAD + CHIP / 2 + at * step for at, name in enumerate(island.gpus)}
    base = PAD + 14 + STEEP * max(abs(places[one.one] - places[one.other]) for one in island.bundles)
    wide, height = step * (len(island.gpus) - 1) + CHIP + 2 * PAD, base + CHIP_HEIGHT + PAD
    most = max(bundle.links for bundle in island.bundles)
    body = [element("rect", "island", x=0, y=0, width=wide, height=height, rx=6)]
    labels: list[str] = []
    for bundle in island.bundles:
        one, other = sorted((places[bundle.one], places[bundle.other]))
        rise = (other - one) * STEEP
        # A curve whose two handles are as high reaches three quarters of that height.
        handle = base - rise * 4 / 3
        arc = f"M{one:g} {base:g}C{one:g} {handle:g} {other:g} {handle:g} {other:g} {base:g}"
        about = escaped(f"{bundle.one} to {bundle.other}: NV{bundle.links}")
        thick = 1.5 + 3.5 * bundle.links / most
        body.append(f'<path class="arc" stroke-width="{thick:.2g}" d="{arc}"><title>{about}</title></path>')
        labels.append(text(f"NV{bundle.links}", (one + other) / 2, base - rise + 4, "halo middle"))
    body += labels if len(labels) <= MOST_LABELS else []
    for name, middle in places.items():
        body += _chip(name, middle - CHIP / 2, base)
    return body, wide, height


def _alone(names: tuple[str, ...], x: float, y: float, width: float) -> tuple[list[str], float]:
    """GPUs on no NVLink: dashed, apart from the others."""
    columns = max(1, int((width - ASIDE) // STEP))
    body = [text("no NVLink to another GPU", x, y + 18, "head")]
    for at, name in enumerate(names):
        down = at // columns * (CHIP_HEIGHT + 8)
        body += _chip(name, x + ASIDE + at % columns * STEP, y + down, kind="box memory alone")
    return body, y + (-(-len(names) // columns)) * (CHIP_HEIGHT + 8) + 8


def _chip(name: str, x: float, y: float, kind: str = "box chip") -> list[str]:
    return [
        element("rect", kind, x=x, y=y, width=CHIP, height=CHIP_HEIGHT, rx=4),
        text(name, x + CHIP / 2, y + 17, "quiet middle"),
    ]
