"""The pages for everybody: axe finds nothing in either scheme at any width, addresses lead somewhere, nothing needs script or paper."""

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pypdf
import pytest

from gpudoctor import cli
from gpudoctor.testing import fixtures
from tests import axe
from tests.chromium import browse, needs_chromium, open_page
from tests.page_tree import Element, tree
from tests.sweeping import ordinarily

SICK = "nouveau-and-broken-daemon-json"
NODES = [
    "h100x8",
    SICK,
    "nvml-hung-at-gpu4",
    "nothing-recorded",
    "kubernetes-pod-lost-gpu-after-reload",
    "mig-config-applied",
]
WITHOUT_DETAILS = "without-details"
TWO_TIMES, TWO_NODES = "diff-of-two-times", "diff-of-two-nodes"
REPORTS = [*NODES, WITHOUT_DETAILS]
PAGES = [*REPORTS, TWO_TIMES, TWO_NODES]

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Pages by their names, each made once."""
    folder = tmp_path_factory.mktemp("pages")

    def write(name: str) -> Path:
        place = folder / f"{name}.html"
        if not place.exists():
            _write(name, place)
        return place

    return write


def _write(name: str, place: Path) -> None:
    nodes = {TWO_TIMES: ("h100x8", SICK), TWO_NODES: ("h100x8", "hgx-a100x8")}
    if name in nodes:
        _main("diff", *(fixtures() / one for one in nodes[name]), "-q", "-o", place)
    elif name == WITHOUT_DETAILS:
        saved = place.with_suffix(".json")
        _main("run", "--node", fixtures() / SICK, "--format", "line", "-o", saved)
        place.write_text(_rendered(saved), "ascii")
    else:
        _main("run", "--node", fixtures() / name, "--format", "line", "-o", place)


def _main(*words: object) -> None:
    assert cli.main([str(word) for word in words]) in (0, 1, 2, 3)


def _rendered(saved: Path) -> str:
    place = saved.with_suffix(".rendered")
    with place.open("w", encoding="ascii") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        _main("render", saved, "--format", "html")
    return place.read_text("ascii")


def _report(page: Path, capture: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capture.readouterr()
    _main("render", page, "--format", "json")
    report: dict[str, Any] = json.loads(capture.readouterr().out)
    return report


# axe -----------------------------------------------------------------------------------------------------------------

UNSEEN_GROUND = re.compile(r"because it('s| is) (partially )?(obscured|overlapped)|element contains an image node")
"""What is scrolled out of a wide table in a narrow window, of which axe cannot see what it stands on: in a wide one it does. And text in
a drawing, whose contrast is computed beside axe."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ordinarily(PAGES, [SICK, TWO_TIMES]))
def test_axe_finds_nothing(name: str, dark: bool, written: Callable[[str], Path], tmp_path: Path) -> None:
    looks = axe.looks(written(name), tmp_path, dark=dark)
    assert len(looks) == 4
    for look in looks:
        where = f"{look.width} px, {'folded' if look.folded else 'unfolded'}"
        assert _listed(look.violations) == [], where
        assert look.wide <= 0, f"{where}: {look.wide} px wider than its window"
        assert look.pale == (), where
        assert look.passed > 30, where
        unsure = [one for one in _listed(look.incomplete) if not one.startswith("color-contrast: ")]
        assert unsure + [one for one in _listed(look.incomplete) if not UNSEEN_GROUND.search(one)] == [], where


def _listed(rules: Sequence[axe.Broken]) -> list[str]:
    return [f"{rule.rule}: {place.target}: {place.why}" for rule in rules for place in rule.places]


PLANTED = {
    "image-alt": '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">',
    "color-contrast": '<section id="planted"><h2><span class="planted">pale</span></h2></section>',
    "heading-order": "<h5>deep</h5>",
    "link-name": '<a href="#main"></a>',
    "label": '<input type="text">',
    "landmark-unique": '<section aria-label="Root causes">twice</section>',
}


def test_axe_finds_what_was_planted(written: Callable[[str], Path], tmp_path: Path) -> None:
    """And at both widths, folded or not: what the test above would have seen, had there been anything."""
    page = tmp_path / "planted.html"
    content = _with_style(written(SICK).read_text("ascii"), ".planted { color: #ccc; background: #fff }")
    page.write_text(content.replace("</main>", f"{''.join(PLANTED.values())}</main>"))
    looks = axe.looks(page, tmp_path, dark=False)
    assert [PLANTED.keys() - {one.rule for one in look.violations} for look in looks] == [set()] * 4


def _with_style(page: str, style: str) -> str:
    """A page with more style, and a policy that admits it."""
    (old,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    return page.replace(old, old + style).replace(axe.digest(old), axe.digest(old + style))


def test_a_page_wider_than_its_window_is_seen(written: Callable[[str], Path], tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    content = _with_style(written("nothing-recorded").read_text("ascii"), "h1 { min-width: 500px }")
    page.write_text(content)
    assert [look.wide > 0 for look in sorted(axe.looks(page, tmp_path, dark=False), key=lambda look: look.width)] == [
        True,
        True,
        False,
        False,
    ]


# Addresses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_every_anchor_resolves_and_headings_go_down_by_one(name: str, written: Callable[[str], Path]) -> None:
    page = tree(written(name).read_text("ascii"))
    ids = [one.attributes["id"] for one in page.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    anchors = [one.attributes["href"][1:] for one in page.walk() if one.attributes.get("href", "").startswith("#")]
    assert len(anchors) > 4 and not [one for one in anchors if one not in ids]
    named = [
        label
        for one in page.walk()
        for key in ("aria-labelledby", "aria-describedby", "for", "aria-controls")
        for label in one.attributes.get(key, "").split()
    ]
    assert named and not [one for one in named if one not in ids]
    levels = [int(one.tag[1]) for one in page.walk() if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


_VISITOR = """
(async () => {
  const lost = [];
  const visits = [...document.querySelectorAll("#checks [id], [id^='cause/']")].map((one) => one.id);
  for (const id of visits) {
    for (const details of document.querySelectorAll("details")) details.open = false;
    location.hash = "#" + id;
    await new Promise((done) => addEventListener("hashchange", done, { once: true }));
    const target = document.getElementById(id);
    if (!target.checkVisibility() || !target.getClientRects().length) lost.push(id);
  }
  const said = document.createElement("pre");
  said.id = "visited";
  said.textContent = JSON.stringify({ visits, lost });
  document.body.append(said);
})();
"""


@pytest.mark.parametrize("name", ordinarily(REPORTS, [SICK, WITHOUT_DETAILS]))
def test_every_finding_can_be_linked_to(
    name: str, written: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is folded: its address unfolds what it lies in."""
    page = written(name)
    copy = tmp_path / "visited.html"
    copy.write_text(axe.with_scripts(page.read_text("ascii"), [_VISITOR]))
    document, console = open_page(
        copy, tmp_path / "profile", "--virtual-time-budget=300000", "--disable-ipc-flooding-protection"
    )
    assert console == []
    visited = json.loads(tree(document).by_id("visited").text)
    report = _report(page, capsys)
    wanted = {finding["id"] for result in report["results"] for finding in result["findings"]}
    wanted |= {result["check"] for result in report["results"]}
    assert wanted <= {unquote(one) for one in visited["visits"]}
    assert visited["lost"] == []


# Quiet ---------------------------------------------------------------------------------------------------------------


def _requests(place: Path, folder: Path) -> tuple[list[str], list[str]]:
    """What a page asked for, and what the console said. What the browser asks for itself has no origin."""
    log = folder / f"{place.stem}-net.json"
    _, console = open_page(place, folder / "profile", f"--log-net-log={log}")
    told = [event.get("params", {}) for event in json.loads(log.read_text("utf-8"))["events"]]
    return [one["url"] for one in told if one.get("initiator", "not an origin") != "not an origin"], console


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_asked_for_and_nothing_is_said(name: str, written: Callable[[str], Path], tmp_path: Path) -> None:
    assert _requests(written(name), tmp_path) == ([], [])


def test_a_request_would_be_seen(written: Callable[[str], Path], tmp_path: Path) -> None:
    page = tmp_path / "asking.html"
    content = written("nothing-recorded").read_text("ascii").replace("img-src data:", "img-src *")
    page.write_text(content.replace("</main>", '<img src="http://127.0.0.1:9/spy.png" alt=""></main>'))
    assert "http://127.0.0.1:9/spy.png" in _requests(page, tmp_path)[0]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_whole_without_script(name: str, written: Callable[[str], Path], tmp_path: Path) -> None:
    """The same words, but for the buttons that script makes."""
    page = written(name)
    off = tmp_path / "off.html"
    content, policies = re.subn(r"script-src &#39;[^;]*&#39;", "script-src &#39;none&#39;", page.read_text("ascii"))
    assert policies == 1
    off.write_text(content)
    document, _ = open_page(off, tmp_path / "profile")
    written_words, shown_words = (_words(tree(one)) for one in (page.read_text("ascii"), document))
    assert written_words == shown_words and len(shown_words) > 200
    hidden = [one for one in tree(document).walk() if "hidden" in one.attributes]
    assert {one.tag for one in hidden} <= {"form", "button", "fieldset"}, [one.attributes for one in hidden]


def _words(page: Element) -> str:
    (body,) = page.all("body")
    return " ".join(" ".join(_texts(body)).split())


def _texts(element: Element) -> list[str]:
    if element.tag in ("script", "style"):
        return []
    return [text for one in element.inside for text in ([one] if isinstance(one, str) else _texts(one)) if text.strip()]


# Paper ---------------------------------------------------------------------------------------------------------------


def _print(place: Path, folder: Path) -> list[str]:
    """The text of each sheet."""
    sheet = folder / f"{place.stem}.pdf"
    browse([f"--print-to-pdf={sheet}"], place.resolve().as_uri(), folder / "profile")
    return [_squeezed(one.extract_text()) for one in pypdf.PdfReader(sheet).pages]


def _squeezed(text: str) -> str:
    """Without white space and ligatures: lines are broken where the sheet ends."""
    return "".join(unicodedata.normalize("NFKC", text).split())


@pytest.mark.parametrize("name", REPORTS)
def test_paper_has_the_verdict_on_its_first_sheet_and_every_folded_finding(
    name: str, written: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = written(name)
    report = _report(page, capsys)
    sheets = _print(page, tmp_path)
    top = _squeezed(tree(page.read_text("ascii")).all("h1")[0].words)
    assert top in sheets[0] and all(
        _squeezed(cause["summary"])[:60] in sheets[0] for cause in report["root_causes"][:1]
    )
    whole = "".join(sheets)
    lost = [
        finding["id"]
        for result in report["results"]
        for finding in result["findings"]
        if _squeezed(finding["summary"])[:40] not in whole
    ]
    assert lost == []
    assert not [result["check"] for result in report["results"] if result["check"] not in whole]


@pytest.mark.parametrize("name", [TWO_TIMES, TWO_NODES])
def test_a_diff_on_paper_has_what_is_folded(name: str, written: Callable[[str], Path], tmp_path: Path) -> None:
    page = written(name)
    sheets = "".join(_print(page, tmp_path))
    folded = [one for one in tree(page.read_text("ascii")).all("details") if "open" not in one.attributes]
    rows = [_squeezed(one.words) for fold in folded for tag in ("dd", "li") for one in fold.all(tag)]
    assert (rows or name == TWO_NODES) and all(row[:30] in sheets for row in rows)


# The filter of a diff ------------------------------------------------------------------------------------------------


def _left(document: str) -> list[tuple[str, str]]:
    """The entries that a filter left standing, each with its part."""
    return [
        (part.attributes["id"], one.words)
        for part in tree(document).all("section", "part")
        for one in part.all(class_="entry")
        if not one.hidden
    ]


def test_a_diff_is_filtered_by_words_and_by_part(written: Callable[[str], Path], tmp_path: Path) -> None:
    page, profile = written(TWO_TIMES), tmp_path / "profile"
    everything = _left(page.read_text("ascii"))
    document, console = open_page(page, profile)
    assert (_left(document), console) == (everything, []) and not tree(document).by_id("filter").hidden
    document, _ = open_page(page, profile, fragment="#?text=DOCKER%20json")
    left = _left(document)
    assert {part for part, _ in left} == {"broke", "changed"} and 2 <= len(left) < len(everything)
    assert tree(document).by_id("shown").words == f"{len(left)} of {len(everything)} shown"
    assert tree(document).by_id("healed" if "healed" in document else "gaps").hidden
    document, _ = open_page(page, profile, fragment="#?part=changed")
    assert _left(document) == [one for one in everything if one[0] == "changed"]
    document, _ = open_page(page, profile, fragment="#?text=device-nodes.gpu-node")
    opened = [one for one in tree(document).all("details", "following") if "open" in one.attributes]
    assert len(opened) == 1 and [part for part, _ in _left(document)] == ["unseen"]
