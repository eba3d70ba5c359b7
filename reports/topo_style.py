"""The looks of a drawing: colours for light and dark, shapes of marks, and text that holds nothing a reader's program would act upon."""

from collections.abc import Iterable, Iterator, Mapping

from gpudoctor.reports.words import clean
from gpudoctor.verdicts import MOST_SAID, cut

LIGHT = {
    "page": "#ffffff",
    "card": "#f6f8fa",
    "leaf": "#ffffff",
    "rule": "#767f89",
    "text": "#1b2128",
    "quiet": "#57606a",
    "gpu": "#e3f3e6",
    "nic": "#e2eefc",
    "nvswitch": "#efe9fb",
    "nvlink": "#1a7f37",
    "fail": "#b3261e",
    "warn": "#8a5a00",
}
DARK = {
    "page": "#0f1419",
    "card": "#171d24",
    "leaf": "#1f262e",
    "rule": "#6b7783",
    "text": "#e4e8ec",
    "quiet": "#9aa4af",
    "gpu": "#16301e",
    "nic": "#15283f",
    "nvswitch": "#2a2342",
    "nvlink": "#3fb950",
    "fail": "#ff7b72",
    "warn": "#e3b341",
}
"""Every text holds WCAG AA (4.5) on its ground, every shape 3 (success criteria 1.4.3 and 1.4.11): a test computes it."""

MARKS = {"fail": "a check fails", "warn": "a check warns"}

_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif'
_MONO = 'ui-monospace,"SF Mono","Cascadia Mono","DejaVu Sans Mono",Menlo,Consolas,monospace'
_ESCAPES = {ord(sign): f"&{name};" for sign, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"))}
# No characters of XML 1.0 (its section 2.2), besides the controls that `clean` takes.
_ESCAPES.update({0xFFFE: "", 0xFFFF: ""})
_NAMES = {"edge": "rule"}
_VARIABLES = {"rule": "edge"}


def _colours(of: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    grounds = {"gpu": "gpu", "nic": "nic", "nvswitch": "nvswitch", "nvme": "leaf", "memory": "leaf", "chip": "gpu"}
    yield ".page", f"fill:{of['page']}"
    yield "text", f"fill:{of['text']}"
    yield "text.quiet,text.mono", f"fill:{of['quiet']}"
    yield ".box", f"fill:{of['card']};stroke:{of['rule']}"
    for kind, ground in grounds.items():
        yield f".{kind}", f"fill:{of[ground]}"
    yield ".bridge,.bare", f"fill:{of['page']}"
    yield ".nvlink,.arc", f"stroke:{of['nvlink']}"
    yield ".island", f"fill:{of['card']};stroke:{of['nvlink']}"
    for name in MARKS:
        yield f".box.{name},.narrow-{name}", f"stroke:{of[name]}"
        yield f"text.{name},.sign-{name}", f"fill:{of[name]}"
    yield ".narrow", f"stroke:{of['warn']}"
    yield ".apart", f"stroke:{of['fail']}"
    yield ".sign", f"stroke:{of['page']}"
    yield ".halo", f"stroke:{of['card']}"
    yield "text.on", f"fill:{of['page']}"


def _shapes(font: str, mono: str) -> Iterator[tuple[str, str]]:
    yield "text", f"font:13px {font};user-select:text;-webkit-user-select:text"
    yield ".h1", "font-size:18px;font-weight:600"
    yield ".head", "font-weight:600"
    yield ".detail", "font-size:12px"
    yield ".mono", f"font:11px {mono}"
    yield ".quiet", "font-size:12px"
    yield ".end", "text-anchor:end"
    yield ".middle", "text-anchor:middle"
    yield "text.fail,text.warn", "font-weight:600"
    yield ".on", "font-weight:700;font-size:11px"
    yield ".box", "stroke-width:1"
    yield ".bridge", "stroke-dasharray:2 3"
    yield ".box.fail", "stroke-width:2.5"
    yield ".box.warn", "stroke-width:2;stroke-dasharray:7 3"
    yield ".nvlink", "stroke-width:3"
    yield ".narrow", "stroke-width:3;stroke-dasharray:4 3"
    yield ".apart", "stroke-width:4;stroke-dasharray:1.5 5"
    yield ".arc", "fill:none"
    yield ".island", "stroke-width:2"
    yield ".alone", "stroke-dasharray:3 3"
    yield ".halo", "paint-order:stroke;stroke-width:4;font-size:10.5px"


def _sheet(rules: Iterable[tuple[str, str]], within: str = "") -> str:
    """Rules as a style sheet, of what lies within an element of that class where one is named."""
    before = f"{within} " if within else ""
    return "".join(f"{','.join(before + one for one in selectors.split(','))}{{{said}}}" for selectors, said in rules)


# Programs other than browsers know no variables: a document of its own has colours as plain rules.
STYLE = (
    f"{_sheet((*_shapes(_FONT, _MONO), *_colours(LIGHT)))}"
    f"@media screen and (prefers-color-scheme:dark){{{_sheet(_colours(DARK))}}}"
)

OWN = ("leaf", "gpu", "nic", "nvswitch", "edge", "nvlink")
"""Colours that a page which shows a drawing has not by itself; `edge` is the `rule` of a drawing, darker than a page's."""


def style_within(within: str) -> str:
    """The style of a drawing inside a page that has `--page`, `--card`, `--text`, `--quiet`, `--fail`, `--warn`, `--sans` and `--mono`."""

    def own(of: Mapping[str, str]) -> str:
        return f"{within}{{{';'.join(f'--{name}:{of[_NAMES.get(name, name)]}' for name in OWN)}}}"

    colours = {name: f"var(--{_VARIABLES.get(name, name)})" for name in LIGHT}
    rules = (*_shapes("var(--sans)", "var(--mono)"), *_colours(colours))
    return f"{own(LIGHT)}@media screen and (prefers-color-scheme:dark){{{own(DARK)}}}{_sheet(rules, within)}"


def escaped(words: str) -> str:
    """Text as XML; lines are kept."""
    return "\n".join(cut(clean(line), MOST_SAID) for line in words.split("\n")).translate(_ESCAPES)


def text(words: str, x: float, y: float, kind: str = "") -> str:
    """A piece of text; nothing for none."""
    look = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{look}>{escaped(words)}</text>' if words else ""


def titled(title: str, detail: str, x: float, y: float) -> str:
    """A title with what stands behind it, however wide the reader's font makes it."""
    behind = f'<tspan class="detail" dx="6">{escaped(detail)}</tspan>' if detail else ""
    return f'<text x="{x:g}" y="{y:g}"><tspan class="head">{escaped(title)}</tspan>{behind}</text>'


def element(name: str, kind: str, **attributes: float | str) -> str:
    """An element without content."""
    said = "".join(
        f' {key}="{value:g}"' if not isinstance(value, str) else f' {key}="{value}"'
        for key, value in attributes.items()
    )
    return f'<{name} class="{kind}"{said}/>'


def mark(status: str, x: float, y: float) -> str:
    """An octagon for a fail, a triangle for a warning, around this point; told apart without their colours."""
    if status == "fail":
        shape = f"M{x - 3:g} {y - 8:g}h6l5 5v6l-5 5h-6l-5 -5v-6z"
        sign = "\N{MULTIPLICATION SIGN}"
    else:
        shape = f"M{x:g} {y - 9:g}l9 16h-18z"
        sign = "!"
    return element("path", f"sign-{status}", d=shape) + text(sign, x, y + 5, "on middle")


def shortened(words: str, most: int) -> str:
    """The beginning of a text that is too long."""
    return words if len(words) <= most else f"{words[: max(most - 1, 0)]}…" if most > 3 else ""
