"""The HTML report: whole, closed against what a node says, and the report itself read back from it."""

import base64
import gzip
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from gpudoctor import cli
from gpudoctor.chain import Link
from gpudoctor.testing import fixtures
from tests.page_tree import Element, tree

PAGES = [
    "h100x8",  # healthy
    "nouveau-and-broken-daemon-json",  # two root causes, one of them with many consequences
    "vfio-on-one-and-node-missing-on-another",
    "nodes-missing-all",  # remedies that differ from GPU to GPU
    "no-permission-sysfs-driver-links",
    "nvml-hung-at-gpu4",
    "nvml-mismatch",
    "upgrade-waits-for-reload",
    "nothing-recorded",
    "wsl2",
    "acs-redirect-on-switch",  # references
]
SICK = "nouveau-and-broken-daemon-json"
MOST_BYTES = 400_000
PARTS = ["causes", "chain", "gpus", "topology", "workloads", "timeline", "sharing", "checks", "unseen", "raw", "about"]


def _run(*words: str, capture: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli.main(words)
    out, err = capture.readouterr()
    return code, out, err


@pytest.fixture
def saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """A node's report as a page in a file, and the same report as it is written in JSON."""

    def save(name: str) -> tuple[Path, dict[str, Any]]:
        page, report = tmp_path / f"{name}.html", tmp_path / f"{name}.json"
        words = ("run", "--node", str(fixtures() / name), "--format", "line", "-o", str(page), "-o", str(report))
        code, _, said = _run(*words, capture=capsys)
        read = json.loads(report.read_text())
        assert (code, said) == (read["exit_code"], "")
        return page, read

    return save


def _findings(report: dict[str, Any], link: str = "") -> list[dict[str, Any]]:
    return [finding for result in report["results"] for finding in result["findings"] if link in ("", result["link"])]


def _links(report: dict[str, Any]) -> list[str]:
    present = {result["link"] for result in report["results"]}
    return [link.value for link in Link if link.value in present]


def _shown(text: str) -> str:
    """A node's words as a page shows them; no fixture here holds a control character."""
    return " ".join(text.split())


# What is in it -------------------------------------------------------------------------------------------------------


def _row(page: Element, finding_id: str) -> Element:
    """The row that a finding's anchor stands in: one of its check's, or the check itself where that was skipped."""
    place: Element | None = page.by_id(finding_id)
    assert place is not None and place.tag == "a"
    while place is not None and place.tag != "li":
        place = place.above
    assert place is not None
    return place


def _spelled(part: Element, key: str, place: int) -> str:
    """What a line of evidence of several subjects says of the one with that key, the place-th of those that it tells of."""
    texts = [one if isinstance(one, str) else key for one in part.inside if isinstance(one, str) or one.tag == "var"]
    return _shown(re.sub(r"\{([\da-f:., ]+)\}", lambda found: found[1].split(", ")[place], "".join(texts)))


def _lines(row: Element, key: str) -> list[tuple[str, str, str]]:
    """The evidence in a row that may be that of the subject: where, what it shows, when."""
    ids = [unquote(anchor.attributes["id"]) for anchor in row.all("a") if "id" in anchor.attributes]
    names = [one.partition("@")[2].partition(":")[2] for one in ids]
    lines = []
    for where, shows in zip(row.all("dt"), row.all("dd"), strict=True):
        of = [name for named in where.all("b") for name in named.words.split(", ")] or names
        if len(of) > 1 and key not in of:
            continue
        moments = [at.words for at in where.all("span", "at") if not at.words.startswith("(one per ")]
        place = of.index(key) if key in of else 0
        lines.append((_spelled(where, key, place), _spelled(shows, key, place), "".join(moments)))
    return lines


@pytest.mark.parametrize("name", PAGES)
def test_everything_of_the_report_is_on_the_page(name: str, saved: Callable[..., tuple[Path, dict[str, Any]]]) -> None:
    place, report = saved(name)
    page = tree(place.read_text("ascii"))
    for result in report["results"]:
        check = page.by_id(result["check"])
        assert check.tag == ("li" if result["status"] == "skip" else "details")
        assert check.attributes["data-s"] == result["status"]
        assert result["title"] in check.words and _shown(result["detail"]) in check.words
        told = {line for finding in result["findings"] for line in _evidence(finding)}
        for finding in result["findings"]:
            row = _row(page, finding["id"])
            assert row.attributes["data-s"] == finding["status"]
            assert _shown(finding["summary"]) in row.words
            lines = _lines(row, finding["subject"]["key"])
            assert {*_evidence(finding)} <= {*lines} <= told
            assert all(reference in row.words for reference in finding["references"])
            assert finding["would_need"] in row.words
    unseen = page.by_id("unseen").words
    assert all(_shown(one["what"]) in unseen and one["would_need"] in unseen for one in report["not_seen"])


def _evidence(finding: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(_shown(seen["where"]), _shown(seen["shows"]), seen["at"] or "") for seen in finding["evidence"]]


def test_what_is_said_of_several_gpus_alike_is_one_row(saved: Callable[..., tuple[Path, dict[str, Any]]]) -> None:
    place, report = saved("vfio-on-one-and-node-missing-on-another")
    page = tree(place.read_text("ascii"))
    addresses = [gpu["address"] for gpu in report["node"]["gpus"]]
    (width,) = page.by_id("pcie.link-width").all("li", "finding")
    assert width.words.startswith(f"8 GPUs 16 lanes {', '.join(addresses)} ")
    own, above = (where.words for where in width.all("dt"))
    assert own == "/sys/bus/pci/devices/GPU/current_link_width"
    assert above.startswith("/sys/bus/pci/devices/{0000:16:00.0, 0000:16:00.0, 0000:38:00.0, ")
    assert above.endswith("}/current_link_width (one per GPU)")
    held = [len(row.all("span", "names") and row.all("a")) for row in page.by_id("kernel-module.gpu-bound").all("li")]
    assert held == [0, 7]
    (answers,) = page.by_id("driver-cuda.nvml-answers").all("li", "finding")
    assert "0000:5d:00.0: Follows from kernel-module.gpu-bound of the same GPU" in answers.words


@pytest.mark.parametrize("name", PAGES)
def test_every_root_cause_tells_what_to_do_and_what_follows(
    name: str, saved: Callable[..., tuple[Path, dict[str, Any]]]
) -> None:
    place, report = saved(name)
    page = tree(place.read_text("ascii"))
    findings = {finding["id"]: finding for finding in _findings(report)}
    causes = page.by_id("causes").all("article")
    assert len(causes) == len(report["root_causes"])
    for article, cause in zip(causes, report["root_causes"], strict=True):
        assert article.all("h3")[0].words.endswith(_shown(cause["summary"]))
        commands = {command.text for command in article.all("pre")}
        for finding_id in cause["findings"]:
            assert f"#{finding_id}" in {link.attributes["href"] for link in article.all("a")}
            for remedy in findings[finding_id]["remedies"]:
                assert commands >= {*remedy["run"]}
                assert all(_shown(remedy[words]) in article.words for words in ("say", "interrupts", "confirm"))
        follows = {link.attributes["href"] for one in article.all("details") for link in one.all("a")}
        assert {f"#{one}" for one in cause["consequence_ids"]} <= follows
    for finding in findings.values():
        commands = {command.text for command in page.all("pre")}
        assert all(commands >= {*remedy["run"]} for remedy in finding["remedies"])


@pytest.mark.parametrize("name", PAGES)
def test_head_chain_gpus_and_size(name: str, saved: Callable[..., tuple[Path, dict[str, Any]]]) -> None:
    place, report = saved(name)
    page = tree(place.read_text("ascii"))
    head = page.all("header")[0].words
    node = report["node"]
    assert all(node[fact] in head for fact in ("hostname", "os", "kernel", "driver_version") if node[fact])
    assert len(page.all("h1")) == len(page.all("main")) == 1
    assert [part.attributes["id"] for part in page.all("main")[0].inside if isinstance(part, Element)] == [
        part for part in PARTS if part != "sharing" or report["sharing"]
    ]
    assert [one.all("span", "link")[0].words for one in page.by_id("chain").all("li")] == _links(report)
    rows = page.by_id("gpus").all("tr")[1:]
    assert [row.all("th")[0].all("code")[0].words for row in rows] == [gpu["address"] for gpu in node["gpus"]]
    assert place.stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("name", PAGES)
def test_a_state_is_shape_word_and_colour(name: str, saved: Callable[..., tuple[Path, dict[str, Any]]]) -> None:
    page = tree(saved(name)[0].read_text("ascii"))
    shapes = {symbol.attributes["id"] for symbol in page.all("symbol")}
    badges = page.all("span", "badge")
    pairs = {(badge.all("use")[0].attributes["href"], badge.words, badge.attributes["data-s"]) for badge in badges}
    assert all(href[1:] in shapes and word and state for href, word, state in pairs)
    assert len({href for href, _, _ in pairs}) == len({word for _, word, _ in pairs}) == len(pairs)


def test_waived_findings_are_shown_with_their_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[waive]]\ncheck = "toolkit.docker-runtime"\nreason = "no <Docker> here"\nuntil = 2126-03-31\n')
    words = ("run", "--node", str(fixtures() / SICK), "--config", str(config), "--format", "html")
    page = tree(_run(*words, capture=capsys)[1])
    waived = page.by_id("waived").words
    assert "toolkit.docker-runtime@service:docker" in waived
    assert "no <Docker> here until 2126-03-31" in waived
    assert len(page.by_id("causes").all("article")) == 1
    assert "no <Docker> here" in _row(page, "toolkit.docker-runtime@service:docker").words


# What is not in it ---------------------------------------------------------------------------------------------------


def _addresses(page: Element) -> list[tuple[str, str]]:
    fetching = ("src", "href", "srcset", "data", "action", "poster", "background", "xlink:href")
    return [(one.tag, one.attributes[name]) for one in page.walk() for name in one.attributes.keys() & set(fetching)]


def _closed(page: Element, references: set[str]) -> None:
    """Assert that a page asks for nothing, runs nothing but its own script, and leads out by references only."""
    ids = [one.attributes["id"] for one in page.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    for tag, address in _addresses(page):
        if address.startswith("#"):
            assert address[1:] in ids, address
        elif tag == "link":
            assert address.startswith("data:image/svg+xml,")
        else:
            assert tag == "a" and address in references
    for one in page.walk():
        assert not [name for name in one.attributes if name.startswith("on") or name == "style"], one.attributes
    assert {one.attributes.get("type") for one in page.all("script")} == {None, "application/gzip"}
    assert len(page.all("script")) == 2 and len(page.all("style")) == 1
    assert not page.all("iframe") + page.all("img") + page.all("object") + page.all("embed") + page.all("base")


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_closed(name: str, saved: Callable[..., tuple[Path, dict[str, Any]]]) -> None:
    place, report = saved(name)
    references = {reference for finding in _findings(report) for reference in finding["references"]}
    assert references or name != "acs-redirect-on-switch"
    _closed(tree(place.read_text("ascii")), references)


def test_the_policy_allows_this_style_and_this_script_only(
    saved: Callable[..., tuple[Path, dict[str, Any]]],
) -> None:
    page = tree(saved(SICK)[0].read_text("ascii"))
    (policy,) = (one.attributes["content"] for one in page.all("meta") if "http-equiv" in one.attributes)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    (style,), (script,) = page.all("style"), (one for one in page.all("script") if not one.attributes)

    def hashed(element: Element) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "style-src": hashed(style),
        "script-src": hashed(script),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert not re.search(r"url\(|@import|@font-face|expression", style.text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval|fetch|XMLHttp|import\(", script.text
    )


# What a node says ----------------------------------------------------------------------------------------------------

HOSTILE = (
    '"\'><script>document.title="owned"</script></script><!--<img src=https://x.test/ onerror=document.title="owned">'
    '" onload=alert(1) {{ 7*7 }} </style></title>&lt;\u2028\u2029\u202e\u2066\u200b\x00\x1b[31m\x7f\x9b\U0001f600 %s &amp;'
)
RAW = ("\u2028", "\u2029", "\u202e", "\u2066", "\u200b", "\x00", "\x1b", "\x7f", "\x9b")
"""What must not reach a page as it is."""

_OURS = (
    "schema how gpu started_at verdict check link status why kind breaks action until id key address findings blocked_by \
caused_by possible_causes consequence_ids interrupts seconds exit_code source".split()
)
"""Words that are ours, or by which one part of a report names another."""


_TIMES = ("at", "until")
"""Times of the timeline; among evidence they are altered all the same."""
BOUNDED = ("topology", "timeline", "raw")
"""Parts that show so many letters, and have fewer elements where words are longer."""


def _altered(value: Any, said: str, ours: Sequence[str], name: str = "") -> Any:
    if isinstance(value, dict):
        within = [*ours, *_TIMES] if name == "details" else ours
        return {key: _altered(one, said, within, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_altered(one, said, ours, name) for one in value]
    return value + said if isinstance(value, str) and value and name not in ours else value


def _hostile_page(
    report: dict[str, Any], folder: Path, capture: pytest.CaptureFixture[str], *, ours: Sequence[str]
) -> str:
    altered = _altered(report, HOSTILE, ours)
    saved = folder / "hostile.json"
    saved.write_text(json.dumps(altered))
    code, out, said = _run("render", str(saved), "--format", "html", capture=capture)
    assert (code, said) == (0, "") and out.isascii()
    page = folder / "hostile.html"
    page.write_text(out)
    code, out, said = _run("render", str(page), "--format", "json", capture=capture)
    assert (code, said, json.loads(out)) == (0, "", altered)
    return page.read_text()


def _shape(element: Element) -> tuple[str, tuple[str, ...]]:
    return element.tag, tuple(sorted(element.attributes))


def _within(element: Element, parts: Sequence[str]) -> bool:
    """Whether it is in one of these parts of the page."""
    return element.attributes.get("id") in parts or (element.above is not None and _within(element.above, parts))


@pytest.mark.parametrize("name", PAGES)
def test_no_word_of_a_node_becomes_markup(
    name: str,
    saved: Callable[..., tuple[Path, dict[str, Any]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page with hostile words has the elements of the page without them, one for one."""
    place, report = saved(name)
    calm, hostile = tree(place.read_text()), tree(_hostile_page(report, tmp_path, capsys, ours=[*_OURS, "references"]))
    references = {reference for finding in _findings(report) for reference in finding["references"]}
    _closed(hostile, references)
    skeletons = [
        [(one.tag, sorted(one.attributes)) for one in page.walk() if not _within(one, BOUNDED)]
        for page in (calm, hostile)
    ]
    assert skeletons[0] == skeletons[1]
    assert {*map(_shape, hostile.walk())} <= {*map(_shape, calm.walk())} | {("span", ("class",)), ("p", ("class",))}
    visible = "".join(
        one.text for one in hostile.all("body")[0].inside if isinstance(one, Element) and one.tag != "script"
    )
    assert not [character for character in RAW if character in visible]
    assert '<script>document.title="owned"</script>' in visible and "\\u202e" in visible


def test_names_and_references_of_a_hostile_report_lead_nowhere(
    saved: Callable[..., tuple[Path, dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids and check names too, and addresses that would run something."""
    _, report = saved("acs-redirect-on-switch")
    listed = [
        "javascript:alert(1)",
        "data:text/html,x",
        "//x.test/",
        "https:x.test",
        "https://good.test@x.test/",
        "HTTPS://X",
    ]
    for finding in _findings(report):
        finding["references"] = listed
    ours = "schema how gpu started_at verdict link status why kind breaks action until seconds exit_code".split()
    page = tree(_hostile_page(report, tmp_path, capsys, ours=ours))
    _closed(page, set())
    assert "javascript:alert(1)" in page.by_id("checks").text
    named = [unquote(one.attributes["id"]) for one in page.by_id("checks").all("a") if "id" in one.attributes]
    assert sorted(named) == sorted(finding["id"] + HOSTILE for finding in _findings(report))


# The report inside ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_the_report_inside_is_the_report(
    name: str, saved: Callable[..., tuple[Path, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    place, report = saved(name)
    (inside,) = (one.text for one in tree(place.read_text()).all("script") if one.attributes)
    assert json.loads(gzip.decompress(base64.b64decode(inside, validate=True))) == report
    code, text, said = _run("render", str(place), "--format", "json", capture=capsys)
    assert (code, said, text) == (0, "", place.with_suffix(".json").read_text())


def test_a_page_rendered_from_a_page_is_that_page(
    saved: Callable[..., tuple[Path, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    place, _ = saved(SICK)
    assert _run("render", str(place), "--format", "html", capture=capsys)[1] == place.read_text()


def _cut(page: str, place: int) -> str:
    return page[: page.index("gpudoctor-report") + place]


_INSIDE = re.compile(r'(?<=<script type="application/)gzip(" id="gpudoctor-report">)([^<]*)')


def _packed(spoil: Callable[[str], str]) -> Callable[[str], str]:
    """The page with another report inside."""

    def spoiled(page: str) -> str:
        def anew(found: re.Match[str]) -> str:
            report = spoil(gzip.decompress(base64.b64decode(found[2])).decode())
            return f"gzip{found[1]}{base64.b64encode(gzip.compress(report.encode())).decode()}"

        return _INSIDE.sub(anew, page)

    return spoiled


BAD_PAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda page: "<", "a page without a report"),
    "another's": (lambda page: "<!doctype html><p>hello</p>", "a page without a report"),
    "cut in its head": (lambda page: page[:1000], "a page without a report"),
    "cut in its report": (lambda page: _cut(page, 9000), "the page ends within its report"),
    "cut at its report": (lambda page: _cut(page, len('gpudoctor-report">')), "the page ends within its report"),
    "two reports": (lambda page: page + page, "more than one report"),
    "a report that is none": (_packed(lambda report: report.replace('"schema":', '"sch":')), "missing required field"),
    "of another schema": (
        _packed(lambda report: report.replace("gpudoctor.report/1", "gpudoctor.report/9")),
        "report/9",
    ),
    "no JSON": (_packed(lambda report: report.replace('{"schema"', "schema")), "not a report"),
    "deep": (_packed(lambda report: "[" * 100_000), "not a report"),
    "causes nowhere": (_packed(lambda report: report.replace('"id":"toolkit', '"id":"other')), "not a whole report"),
    "a flood": (_packed(lambda report: " " * 65 * 1024 * 1024 + report), "larger than any report"),
    "no gzip": (lambda page: _INSIDE.sub(r"gzip\1QUJD", page), "is damaged"),
    "no base64": (lambda page: _INSIDE.sub(r"gzip\1????", page), "is damaged"),
    "half of it": (
        lambda page: _INSIDE.sub(lambda found: f"gzip{found[1]}{found[2][: len(found[2]) // 8 * 4]}", page),
        "is damaged",
    ),
    "bytes": (lambda page: "<" + "\x00\ufffd\x1b[2J" * 1000, "a page without a report"),
}


@pytest.mark.parametrize("kind", BAD_PAGES)
def test_a_page_that_holds_no_report_is_refused_in_one_line(
    kind: str, saved: Callable[..., tuple[Path, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, words = BAD_PAGES[kind]
    place, _ = saved(SICK)
    place.write_text(spoil(place.read_text()))
    code, out, said = _run("render", str(place), "--format", "json", capture=capsys)
    assert (code, out) == (3, "")
    assert words in said and len(said.splitlines()) == 1 and "itself failed" not in said


def test_a_page_of_an_earlier_release_holds_the_json_as_it_is(
    saved: Callable[..., tuple[Path, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    place, report = saved(SICK)
    plain = json.dumps(report).replace("<", "\\u003c")
    place.write_text(_INSIDE.sub(lambda found: f"json{found[1]}{plain}", place.read_text()))
    assert json.loads(_run("render", str(place), "--format", "json", capture=capsys)[1]) == report


def test_a_page_is_known_by_its_content(
    saved: Callable[..., tuple[Path, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    place, report = saved(SICK)
    other = place.with_suffix(".json")
    other.write_text("\ufeff\r\n  " + place.read_text())
    assert json.loads(_run("render", str(other), "--format", "json", capture=capsys)[1]) == report


@pytest.mark.parametrize("word", ["report.html", "html=report.page"])
def test_the_file_s_name_or_a_word_before_it_asks_for_a_page(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(f"run --node {fixtures() / SICK} --format line -o {word}")
    assert _run(*words, capture=capsys)[0] == 2
    (page,) = tmp_path.iterdir()
    assert page.read_text("ascii").startswith("<!doctype html>")


# How it looks --------------------------------------------------------------------------------------------------------


def _luminance(color: str) -> float:
    """WCAG 2.2, "relative luminance"."""
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1])
def test_every_text_colour_holds_aa_on_every_ground(
    scheme: int, saved: Callable[..., tuple[Path, dict[str, Any]]]
) -> None:
    style = tree(saved(SICK)[0].read_text()).all("style")[0].text
    block = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]
    colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))
    grounds, inks = {"page", "card"}, set(colors) - {"page", "card", "rule"}
    assert inks == {"text", "quiet", "link", "pass", "fail", "warn", "unknown", "blocked", "skip"}
    for ground in grounds:
        for ink in inks:
            darker, lighter = sorted((_luminance(colors[ground]), _luminance(colors[ink])))
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (ink, ground)
