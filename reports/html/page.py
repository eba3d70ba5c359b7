"""The page itself: its templates, its policy, and the one place through which every word of a node goes."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from gpudoctor.diagnosis import label
from gpudoctor.report import Report
from gpudoctor.reports.html.embedded import OPENING, embedded
from gpudoctor.reports.html.shown import ROOMS, Shown, room_for, whole
from gpudoctor.reports.html.views import View
from gpudoctor.reports.topo_style import style_within
from gpudoctor.reports.words import STATUS_WORDS, counted
from gpudoctor.verdicts import Status, Subject

_ICONS = {
    Status.PASS: ("1a7f37", "M3.5 8.5l3 3 6-7"),
    Status.FAIL: ("b3261e", "M4 4l8 8M12 4l-8 8"),
    Status.WARN: ("8a5a00", "M8 3v6M8 12v1"),
    Status.UNKNOWN: ("5b4db7", "M5 6a3 3 0 1 1 3 3v1M8 12.5v1"),
}
"""Colour and stroke of the tab's icon, so that one report is found among twenty tabs."""


def page(report: Report) -> str:
    """The whole page. The text of a template is its own; everything put into it is cleaned and then escaped."""
    shown = Shown()
    environment = Environment(
        loader=PackageLoader("gpudoctor.reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.filters |= _FILTERS
    style, script = _compact(_part("page.css")) + style_within(".topo"), _compact(_part("page.js"))
    parts = {
        "view": View.of(report),
        "report": report,
        "policy": policy(style, script),
        "style": style,
        "script": script,
        "opening": OPENING,
        "embedded": embedded(report),
        "words": {status.value: word for status, word in STATUS_WORDS.items()},
    }
    return fitting(environment.get_template("page.html"), parts, shown, room_for(len(report.node.gpus)))


def fitting(template: Template, parts: Mapping[str, object], shown: Shown, most: int) -> str:
    """The page in ASCII, so that no encoding on its way can spoil it, its texts cut as far as it must be to have so many bytes."""
    page = b""
    for shown.room in ROOMS:
        page = template.render(parts).encode("ascii", "xmlcharrefreplace")
        if len(page) <= most:
            break
    return page.decode("ascii")


def policy(style: str, script: str) -> Markup:
    """The Content-Security-Policy: this style sheet, this script, the tab's icon, and nothing from anywhere."""
    return whole(
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def anchor(identity: str) -> Markup:
    """An id as it may stand in an attribute and behind the `#` of an address: ours stay as they are."""
    return whole(quote(identity, safe="@:./-_~", errors="backslashreplace"))


def web_address(reference: str) -> Markup:
    """The reference if following it can only open a page of the web, else nothing."""
    return whole(reference if re.match(r"https?://[^\s/@\\]+(?:/|$)", reference) else "")


def moment(stamp: str) -> str:
    """`2026-11-29T12:00:00Z` as people read it."""
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)Z$", r"\1 \2 UTC", stamp)


def icon(status: Status) -> Markup:
    """The icon of the tab, as a `data:` address."""
    color, stroke = _ICONS[status]
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#{color}"/>'
        f'<path d="{stroke}" fill="none" stroke="#fff" stroke-width="2"/></svg>'
    )
    return whole(f"data:image/svg+xml,{quote(picture)}")


def who(subject: Subject) -> str:
    """What people call a subject."""
    name = f" ({subject.name})" if subject.name else ""
    return f"{label([subject])}{name}"


def named(subject: Subject) -> str:
    """A subject among others of its kind."""
    return f"{subject.key} ({subject.name})" if subject.name else subject.key


def by_check(ids: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Ids of findings to be named; where several are of one check, its id with the keys of their subjects."""
    checks: dict[str, list[str]] = {}
    for one in ids:
        checks.setdefault(one.partition("@")[0], []).append(one)
    return [
        (group[0], ()) if len(group) == 1 else (check, tuple(one.partition(":")[2] for one in group))
        for check, group in checks.items()
    ]


_FILTERS: dict[str, Callable[..., object]] = {
    "anchor": anchor,
    "by_check": by_check,
    "counted": counted,
    "icon": icon,
    "moment": moment,
    "named": named,
    "short": lambda name: name.removeprefix("NVIDIA "),
    "web_address": web_address,
    "who": who,
    "whole": whole,
}


def _part(name: str) -> str:
    """A style sheet or script. Their bytes are what the policy's hashes are taken of, so that no character of theirs is rewritten."""
    return (resources.files("gpudoctor.reports.html") / "templates" / name).read_text("ascii")


def _compact(text: str) -> str:
    """A style sheet or script without its indentation, and without comments that have lines of their own."""
    told = re.sub(r"^ */\*.*?\*/ *$|^ *//[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join(line.strip() for line in told.splitlines() if line.strip())


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
