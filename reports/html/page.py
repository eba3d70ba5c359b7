"""The page itself: its templates, its policy, and the one place through which every word of a node goes."""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from importlib import resources
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpudoctor.diagnosis import label
from gpudoctor.report import Report
from gpudoctor.reports.html.embedded import OPENING, embedded
from gpudoctor.reports.html.views import View
from gpudoctor.reports.words import STATUS_WORDS, clean, counted
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
    environment = Environment(
        loader=PackageLoader("gpudoctor.reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cleaned,
    )
    environment.filters |= _FILTERS
    style, script = _part("page.css"), _part("page.js")
    text = environment.get_template("page.html").render(
        view=View.of(report),
        report=report,
        policy=policy(style, script),
        style=style,
        script=script,
        opening=OPENING,
        embedded=embedded(report),
        words={status.value: word for status, word in STATUS_WORDS.items()},
    )
    return text.encode("ascii", "xmlcharrefreplace").decode()


def policy(style: str, script: str) -> str:
    """The Content-Security-Policy: this style sheet, this script, the tab's icon, and nothing from anywhere."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def anchor(identity: str) -> str:
    """An id as it may stand in an attribute and behind the `#` of an address: ours stay as they are."""
    return quote(identity, safe="@:./-_~", errors="backslashreplace")


def web_address(reference: str) -> str:
    """The reference if following it can only open a page of the web, else nothing."""
    return reference if re.match(r"https?://[^\s/@\\]+(?:/|$)", reference) else ""


def moment(stamp: str) -> str:
    """`2026-11-29T12:00:00Z` as people read it."""
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)Z$", r"\1 \2 UTC", stamp)


def icon(status: Status) -> str:
    """The icon of the tab, as a `data:` address."""
    color, stroke = _ICONS[status]
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#{color}"/>'
        f'<path d="{stroke}" fill="none" stroke="#fff" stroke-width="2"/></svg>'
    )
    return f"data:image/svg+xml,{quote(picture)}"


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
    "web_address": web_address,
    "who": who,
}


def _cleaned(value: object) -> object:
    """What is printed, without anything that reorders or hides text. Markup is what templates made, with cleaned words in it."""
    return clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _part(name: str) -> str:
    """A style sheet or script. Their bytes are what the policy's hashes are taken of, so that no character of theirs is rewritten."""
    return (resources.files("gpudoctor.reports.html") / "templates" / name).read_text("ascii")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
