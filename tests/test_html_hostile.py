"""Nodes whose every word means ill: pages stay inert, narrow and small, and no form of a report lets a control character through."""

import json
import re
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import cli
from gpudoctor.testing import fixtures
from tests import axe
from tests.chromium import needs_chromium, open_page
from tests.hostile_node import MARKUP, RAW, HostileNode
from tests.page_tree import Element, tree
from tests.sweeping import ordinarily

SICK = "nouveau-and-broken-daemon-json"
NODES = [
    ("h100x8", False),  # free text alone is hostile
    ("h100x8", True),  # every line of every file is
    (SICK, True),
    ("holders-of-daemons-and-containers", False),
    ("kubernetes-gpu-node-with-api-objects", False),
    ("kubernetes-pod-lost-gpu-after-reload", True),
]
MOST_BYTES = 400_000
MOST_OF_A_TEXT = 1000
FORMS = {
    "json": 1_500_000,
    "html": MOST_BYTES,
    "markdown": 150_000,
    "nagios": 2_000,
    "node-exporter": 50_000,
    "npd": 81,
    "line": 10_000,
    "terminal": 500_000,
}
"""How many bytes each form of a report about such a node has at most."""


class Written:
    """A hostile node's reports in all forms."""

    def __init__(self, folder: Path, name: str, *, everything: bool, words: str | None = None) -> None:
        self.node = HostileNode(name, folder / "node", everything=everything, **({"words": words} if words else {}))
        self.folder = folder
        outputs = [f"{form}={folder / form}" for form in FORMS]
        words_of_run = ("run", "--node", str(self.node.place), "--verbose", "--details", "--format", "line")
        self.code = cli.main([*words_of_run, *(word for output in outputs for word in ("-o", output))])

    def text(self, form: str) -> str:
        """The report in that form."""
        return (self.folder / form).read_bytes().decode("utf-8", "surrogatepass")

    @property
    def page(self) -> Path:
        """The page, by a name that browsers know."""
        place = self.folder / "page.html"
        place.write_text(self.text("html"), "ascii")
        return place


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, bool]], Written]:
    """The reports of a node, made once."""
    made: dict[tuple[str, bool], Written] = {}

    def write(node: tuple[str, bool]) -> Written:
        if node not in made:
            made[node] = Written(tmp_path_factory.mktemp("hostile"), node[0], everything=node[1])
        return made[node]

    return write


IDS = [f"{name}-{'all' if all_ else 'text'}" for name, all_ in NODES]
every_node = pytest.mark.parametrize("node", NODES, ids=IDS)


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, one in value.items():
                yield from ((f"{path}.{key}"[:80], key), *_texts(one, f"{path}.{key}"[:80]))
        case list():
            for one in value:
                yield from _texts(one, f"{path}[]")
        case str():
            yield path, value


@every_node
def test_reports_are_made_and_bounded(node: tuple[str, bool], written: Callable[[tuple[str, bool]], Written]) -> None:
    """The node says some megabytes a line; nothing of the diagnosis crashes over it."""
    reports = written(node)
    assert reports.code in (1, 2, 3)
    sizes = {form: (reports.folder / form).stat().st_size for form in FORMS}
    assert {form: size for form, size in sizes.items() if size > FORMS[form]} == {}
    report = json.loads(reports.text("json"))
    assert [result["check"] for result in report["results"] if result["why"] == "crashed"] == []
    assert report["details"] is not None
    assert [(path, len(text)) for path, text in _texts(report) if len(text) > MOST_OF_A_TEXT] == []


@every_node
def test_no_form_lets_a_control_character_through(
    node: tuple[str, bool], written: Callable[[tuple[str, bool]], Written]
) -> None:
    reports = written(node)
    for form in FORMS:
        text = reports.text(form)
        if form == "html":
            text = _visible(tree(text))
        assert [f"{form}: {ord(one):04x}" for one in RAW if one in text and form != "json"] == []
        controls = "\x00-\x08\x0b-\x1f\ud800-\udfff" + ("" if form == "json" else "\x7f-\x9f")  # RFC 8259, 7
        assert not re.search(f"[{controls}]", text), form
    assert MARKUP[:40] in json.loads(reports.text("json"))["node"]["hostname"]


def test_markdown_has_no_markup_of_the_nodes_making(written: Callable[[tuple[str, bool]], Written]) -> None:
    """Within a fence it is code, outside every `<` that could begin a tag is escaped (CommonMark 0.31.2, 4.5 and 6.6)."""
    outside, fenced = [], False
    for line in written(NODES[0]).text("markdown").splitlines():
        fenced ^= line.startswith("```")
        outside += [] if fenced else [re.sub(r"(`+)(?:(?!`).)*\1(?!`)", "", line)]
    ours = {"details", "/details", "summary", "/summary", "br", "sub", "/sub"}
    assert {tag for line in outside for tag in re.findall(r"(?<!\\)<(/?\w+)", line)} <= ours
    assert not fenced


def test_marks_on_one_letter_do_not_pile_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = HostileNode("h100x8", tmp_path / "node", words="e" + "\u0301" * 200)
    for form in ("terminal", "markdown", "html"):
        capsys.readouterr()
        assert cli.main(["run", "--node", str(hostile.place), "--format", form]) in (1, 2, 3)
        out = capsys.readouterr().out
        said = _visible(tree(out)) if form == "html" else out
        assert "e\u0301\u0301\u0301\u0301(+196 marks)" in said and "\u0301" * 5 not in said


def _visible(page: Element) -> str:
    (body,) = page.all("body")
    return "".join(one.text for one in body.inside if isinstance(one, Element) and one.tag != "script")


@every_node
def test_the_page_has_no_element_of_the_nodes_making(
    node: tuple[str, bool], written: Callable[[tuple[str, bool]], Written]
) -> None:
    page = tree(written(node).text("html"))
    assert len(page.all("script")) == 2 and len(page.all("style")) == 1
    assert not [one.tag for tag in ("img", "iframe", "object", "embed", "base", "textarea") for one in page.all(tag)]
    for one in page.walk():
        assert not [name for name in one.attributes if name.startswith("on") or name == "style"], one.attributes
        for address in (one.attributes.get("href"), one.attributes.get("src")):
            assert address is None or address.startswith(("#", "data:image/svg+xml,", "https://")), address
    ids = [one.attributes["id"] for one in page.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    anchors = {one.attributes["href"][1:] for one in page.walk() if one.attributes.get("href", "").startswith("#")}
    assert anchors <= set(ids)
    assert MARKUP[:40] in page.all("h1")[0].words and "... (" in _visible(page)


_PLANTED = (
    """const said = document.createElement("pre"); said.id = "judged"; said.textContent = """
    """[document.title.startsWith("owned"), document.scripts.length, document.images.length].join(" "); """
    """document.body.append(said);"""
)


@needs_chromium
@pytest.mark.parametrize("node", ordinarily(NODES, [("h100x8", False), (SICK, True)]), ids=IDS)
def test_the_browser_is_not_moved(
    node: tuple[str, bool], written: Callable[[tuple[str, bool]], Written], tmp_path: Path
) -> None:
    """No error, no dialog, no other title, nothing asked for; and nothing wider than a telephone."""
    page = written(node).page
    log = tmp_path / "net.json"
    document, console = open_page(page, tmp_path / "profile", f"--log-net-log={log}")
    assert console == []
    title = tree(document).all("title")[0].text
    assert MARKUP[:40] in title
    asked = [event.get("params", {}) for event in json.loads(log.read_text("utf-8"))["events"]]
    assert [one["url"] for one in asked if one.get("initiator", "not an origin") != "not an origin"] == []
    judged = tmp_path / "judged.html"
    judged.write_text(axe.with_scripts(page.read_text("ascii"), [_PLANTED]), "ascii")
    document, console = open_page(judged, tmp_path / "profile")
    assert (tree(document).by_id("judged").text, console) == ("false 3 0", [])
    for look in axe.looks(page, tmp_path, dark=False):
        assert look.wide <= 0, f"at {look.width} px {look.wide} px wider than its window"
        assert look.violations == ()


@pytest.mark.parametrize("name", ["h100x8", "holders-of-daemons-and-containers"])
def test_words_of_a_hundred_thousand_letters_are_cut_where_a_report_is_made(name: str, tmp_path: Path) -> None:
    reports = Written(tmp_path, name, everything=False, words=f"{MARKUP}{'B' * 100_000}")
    assert reports.code in (1, 2, 3)
    report = json.loads(reports.text("json"))
    assert [(path, len(text)) for path, text in _texts(report) if len(text) > MOST_OF_A_TEXT] == []
    assert re.search(r"B \.\.\. \(\d+,\d+ more characters\)$", report["node"]["hostname"])
    assert {form: size for form in FORMS if (size := (tmp_path / form).stat().st_size) > FORMS[form]} == {}


def test_a_report_that_was_cut_is_read_back_as_it_is(
    written: Callable[[tuple[str, bool]], Written], capsys: pytest.CaptureFixture[str]
) -> None:
    reports = written(NODES[0])
    capsys.readouterr()
    assert cli.main(["render", str(reports.page), "--format", "json"]) == 0
    assert capsys.readouterr().out == reports.text("json")


def test_a_page_that_fits_shows_everything(tmp_path: Path) -> None:
    """Cutting is for pages that grew too large."""
    place = tmp_path / "page.html"
    cli.main(["run", "--node", str(fixtures() / SICK), "--format", "line", "-o", str(place)])
    assert not re.search(r"\.\.\. \([\d,]+ more\)", place.read_text("ascii"))


@pytest.mark.parametrize("hostile_first", [True, False])
def test_the_page_of_a_diff_is_inert_and_bounded(hostile_first: bool, tmp_path: Path) -> None:
    hostile = HostileNode("h100x8", tmp_path / "node", everything=False)
    sides = [str(hostile.place), str(fixtures() / "h100x8")]
    place, said = tmp_path / "diff.html", tmp_path / "diff.json"
    words = ["diff", *(sides if hostile_first else sides[::-1]), "-q", "-o", str(place), "-o", str(said)]
    assert cli.main(words) == 1
    page = tree(place.read_text("ascii"))
    assert place.stat().st_size <= MOST_BYTES and len(page.all("script")) == 1
    assert {one.tag for one in page.walk()}.isdisjoint({"img", "iframe", "textarea"})
    assert not [one for one in RAW if one in _visible(page)]
    assert len(said.read_bytes()) < 1_500_000


@needs_chromium
def test_the_browser_is_not_moved_by_a_diff(tmp_path: Path) -> None:
    hostile = HostileNode("h100x8", tmp_path / "node", everything=False)
    place = tmp_path / "diff.html"
    assert cli.main(["diff", str(hostile.place), str(fixtures() / "h100x8"), "-q", "-o", str(place)]) == 1
    document, console = open_page(place, tmp_path / "profile")
    assert console == [] and MARKUP[:40] in tree(document).all("title")[0].text
    for look in axe.looks(place, tmp_path, dark=True):
        assert (look.violations, look.wide <= 0) == ((), True), (look.width, look.wide)


@pytest.mark.parametrize("form", ["terminal", "svg", "json"])
def test_a_drawing_is_inert_and_bounded(
    form: str, written: Callable[[tuple[str, bool]], Written], capsys: pytest.CaptureFixture[str]
) -> None:
    node = written(NODES[0]).node
    capsys.readouterr()
    assert cli.main(["topo", "--node", str(node.place), "--format", form]) == 0
    out = capsys.readouterr().out
    assert len(out) < 500_000 and not [one for one in RAW if one in out and form != "json"]
    if form == "svg":
        drawn = Xml.fromstring(out)  # noqa: S314 - our own
        assert {one.tag.rpartition("}")[2] for one in drawn.iter()}.isdisjoint(
            {"script", "image", "a", "foreignObject"}
        )


def test_half_a_character_in_an_answer_ends_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON may hold half of a surrogate pair, which is no character (RFC 8259, 8.2)."""
    hostile = HostileNode("h100x8", tmp_path / "node")
    answer = hostile.place / "answers" / "nvml.json"
    answer.write_text(answer.read_text("ascii").replace("NVIDIA H100", "NVIDIA \\ud800", 1), "ascii")
    capsys.readouterr()
    assert cli.main(["run", "--node", str(hostile.place), "--format", "html"]) in (1, 2, 3)
    out, err = capsys.readouterr()
    assert err == "" and out.isascii() and tree(out).by_id("causes").tag == "section"
