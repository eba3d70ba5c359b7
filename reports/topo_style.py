"""The looks of a drawing: colours for light and dark, shapes of marks, and text that holds nothing a reader's program would act upon."""

from gpudoctor.reports.words import clean

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


def _colours(of: dict[str, str]) -> str:
    """Colours as plain rules: programs other than browsers know no variables."""
    grounds = {"gpu": "gpu", "nic": "nic", "nvswitch": "nvswitch", "nvme": "leaf", "memory": "leaf", "chip": "gpu"}
    rules = [
        f".page{{fill:{of['page']}}}",
        f"text{{fill:{of['text']}}}",
        f"text.quiet,text.mono{{fill:{of['quiet']}}}",
        f".box{{fill:{of['card']};stroke:{of['rule']}}}",
        *(f".{kind}{{fill:{of[ground]}}}" for kind, ground in grounds.items()),
        f".bridge,.bare{{fill:{of['page']}}}",
        f".nvlink,.arc{{stroke:{of['nvlink']}}}",
        f".island{{fill:{of['card']};stroke:{of['nvlink']}}}",
        *(
            f".box.{name},.narrow-{name}{{stroke:{of[name]}}}text.{name},.sign-{name}{{fill:{of[name]}}}"
            for name in MARKS
        ),
        f".narrow{{stroke:{of['warn']}}}.apart{{stroke:{of['fail']}}}",
        f".sign{{stroke:{of['page']}}}.halo{{stroke:{of['card']}}}",
        f"text.on{{fill:{of['page']}}}",
    ]
    return "".join(rules)


STYLE = (
    f"text{{font:13px {_FONT};user-select:text;-webkit-user-select:text}}"
    ".h1{font-size:18px;font-weight:600}.head{font-weight:600}.detail{font-size:12px}"
    f".mono{{font:11px {_MONO}}}.quiet{{font-size:12px}}.end{{text-anchor:end}}.middle{{text-anchor:middle}}"
    "text.fail,text.warn{font-weight:600}.on{font-weight:700;font-size:11px}"
    ".box{stroke-width:1}.bridge{stroke-dasharray:2 3}.box.fail{stroke-width:2.5}.box.warn{stroke-width:2;stroke-dasharray:7 3}"
    ".nvlink{stroke-width:3}.narrow{stroke-width:3;stroke-dasharray:4 3}"
    ".apart{stroke-width:4;stroke-dasharray:1.5 5}.arc{fill:none}.island{stroke-width:2}"
    ".alone{stroke-dasharray:3 3}.halo{paint-order:stroke;stroke-width:4;font-size:10.5px}"
    f"{_colours(LIGHT)}"
    f"@media screen and (prefers-color-scheme:dark){{{_colours(DARK)}}}"
)


def escaped(words: str) -> str:
    """Text as XML; lines are kept."""
    return "\n".join(clean(line) for line in words.split("\n")).translate(_ESCAPES)


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
