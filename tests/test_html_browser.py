"""The HTML report in a real browser: silent, runnable under its own policy, filtering, and readable without script."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from gpudoctor import cli
from gpudoctor.testing import fixtures, node, run_node
from tests.chromium import browse, needs_chromium, open_page
from tests.page_tree import Element, tree

SICK = "nouveau-and-broken-daemon-json"

pytestmark = needs_chromium


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A place for the browser's own files."""
    return tmp_path / "profile"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page of a node with two root causes."""
    return _written(SICK, tmp_path)


def _written(name: str, folder: Path) -> Path:
    place = folder / f"{name}.html"
    assert cli.main(["run", "--node", str(fixtures() / name), "--format", "line", "-o", str(place)]) in (0, 1, 2, 3)
    return place


def _without_script(page: Path) -> Path:
    """The page under a policy that lets no script run, as it would be where scripts are off."""
    content, runs = re.subn(r"script-src &#39;[^;]*&#39;", "script-src &#39;none&#39;", page.read_text())
    assert runs == 1
    place = page.with_name("without-script.html")
    place.write_text(content)
    return place


def _shown(document: str) -> list[str]:
    """The ids of the findings in rows that a filter left standing."""
    return [one.attributes["id"] for one in _all(document) if not one.hidden]


def _all(document: str) -> list[Element]:
    """The anchors of the findings."""
    return [one for one in tree(document).by_id("checks").all("a") if "id" in one.attributes]


def _row(anchor: Element) -> Element:
    place: Element | None = anchor
    while place is not None and place.tag != "li":
        place = place.above
    assert place is not None
    return place


@pytest.mark.parametrize("name", ["h100x8", SICK, "nvml-hung-at-gpu4", "nothing-recorded", "acs-redirect-on-switch"])
def test_the_browser_has_nothing_to_say_and_the_script_runs(name: str, tmp_path: Path, profile: Path) -> None:
    document, console = open_page(_written(name, tmp_path), profile)
    assert console == []
    commands = tree(document).all("pre", "command")
    assert commands and all(command.all("button") for command in commands)
    assert not tree(document).by_id("filter").hidden


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("</main>", '<img src="https://x.test/spy.png" alt=""></main>', "https://x.test/spy.png"),
        ("</main>", "<script>document.title = 'owned'</script></main>", "inline script"),
        ("</main>", "<p style='color: red'>x</p></main>", "inline style"),
        ("</main>", '<img src="data:," alt="" onerror="document.title = 1"></main>', "inline event handler"),
        ('"use strict";', '"use strict"; ', "inline script"),
    ],
)
def test_the_policy_is_in_force_and_the_console_is_heard(
    before: str, after: str, said: str, page: Path, profile: Path
) -> None:
    """What the test above would have heard, had there been anything."""
    content = page.read_text()
    assert content.count(before) == 1
    page.write_text(content.replace(before, after))
    document, console = open_page(page, profile)
    assert any(said in line and "Content Security Policy" in line for line in console), console
    assert "owned" not in tree(document).all("title")[0].text


def test_an_error_of_the_script_would_be_heard(page: Path, profile: Path) -> None:
    content = page.read_text()
    policy = content[content.index('<meta http-equiv="Content') : content.index('<meta name="viewport"')]
    page.write_text(content.replace(policy, "").replace('"use strict";', '"use strict"; nowhere();'))
    _, console = open_page(page, profile)
    assert any("nowhere is not defined" in line for line in console)


def test_hostile_words_stay_words(tmp_path: Path, profile: Path) -> None:
    report = json.loads(msgspec.json.encode(run_node(node(SICK))))
    words = '</title></script><script>document.title="owned"</script><img src=x onerror=\'document.title="owned"\'>"onload=x\u202e'
    report["node"]["hostname"] = report["results"][0]["findings"][0]["evidence"][0]["shows"] = words
    report["root_causes"][0]["summary"] = report["results"][0]["detail"] = words
    saved, place = tmp_path / "hostile.json", tmp_path / "hostile.html"
    saved.write_text(json.dumps(report))
    with place.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        assert cli.main(["render", str(saved), "--format", "html"]) == 0
    document, console = open_page(place, profile)
    assert console == []
    title = tree(document).all("title")[0].text
    assert title.startswith("FAIL </title></script><script>") and title.endswith("\\u202e - gpudoctor")


def test_the_address_filters_by_words_and_by_status(page: Path, profile: Path) -> None:
    everything = _all(page.read_text())
    document, console = open_page(page, profile, fragment="#?text=0000:2A%20link_width")
    rows = {one.attributes["id"]: _row(one).text.lower() for one in everything}
    held = [one for one, words in rows.items() if "0000:2a" in words and "link_width" in words]
    assert (_shown(document), console) == (held, []) and held
    assert all(one.attributes["id"] in held or one.hidden for one in _all(document))
    assert tree(document).by_id("shown").words.startswith(f"{len(held)} of ")
    document, _ = open_page(page, profile, fragment="#?status=fail")
    failed = [one.attributes["id"] for one in everything if _row(one).attributes["data-s"] == "fail"]
    assert _shown(document) == failed and len(failed) >= 9
    opened = [one.attributes["id"] for one in tree(document).all("details", "check") if "open" in one.attributes]
    assert sorted(opened) == sorted({finding.partition("@")[0] for finding in failed})
    document, _ = open_page(page, profile, fragment="#?text=nouveau&status=unknown")
    assert _shown(document) == []


@pytest.mark.parametrize(
    ("path", "check"),
    [
        ("/sys/bus/pci/devices/0000:2a:00.0/power/runtime_status", "pcie.power-state"),
        ("/sys/bus/pci/devices/0000:39:01.0/max_link_speed", "pcie.link-speed"),  # of the port above the GPU
    ],
)
def test_a_path_of_one_of_several_subjects_is_found(path: str, check: str, tmp_path: Path, profile: Path) -> None:
    page = _written("h100x8", tmp_path)
    assert path not in page.read_text()
    shown = _shown(open_page(page, profile, fragment=f"#?text={path}")[0])
    assert len([one for one in shown if one.startswith(f"{check}@")]) == 8
    assert not [one for one in shown if one.startswith("pcie.aer-errors@")]


def test_the_address_of_a_skipped_check_unfolds_the_list_it_is_in(tmp_path: Path, profile: Path) -> None:
    document, _ = open_page(_written("h100x8", tmp_path), profile, fragment="#toolkit.enroot-hook")
    (opened,) = (one for one in tree(document).by_id("checks").all("details") if "open" in one.attributes)
    assert "toolkit.enroot-hook" in {one.attributes.get("id") for one in opened.all("li")}


def test_a_finding_is_a_link_to_itself(page: Path, profile: Path) -> None:
    findings = _all(open_page(page, profile)[0])
    assert findings and all(one.attributes["href"] == f"#{one.attributes['id']}" for one in findings)


def test_the_address_of_a_finding_unfolds_it(page: Path, profile: Path) -> None:
    wanted = "kernel-module.gpu-bound@gpu:0000:2a:00.0"
    document, _ = open_page(page, profile, fragment=f"#{wanted}")
    opened = [one.attributes["id"] for one in tree(document).all("details", "check") if "open" in one.attributes]
    assert opened == ["kernel-module.gpu-bound"]
    assert len(_shown(document)) == len(_all(document))


def test_everything_is_there_without_script(page: Path, profile: Path) -> None:
    document, console = open_page(_without_script(page), profile)
    read = tree(document)
    assert len(console) == 1 and "script-src 'none'" in console[0]
    assert not read.all("button", "copy") and read.by_id("filter").hidden
    assert len(_shown(document)) == len(_all(page.read_text())) > 80


def test_printing_shows_what_is_folded(page: Path, profile: Path) -> None:
    """Folded, this page prints on three or four sheets; the findings need many more, with script or without."""
    for place in (page, _without_script(page)):
        sheet = place.with_suffix(".pdf")
        browse([f"--print-to-pdf={sheet}"], place.as_uri(), profile)
        content = sheet.read_bytes()
        assert content.startswith(b"%PDF-") and content.count(b"/Type /Page\n") > 6


def test_a_page_saved_by_a_browser_still_holds_the_report(
    page: Path, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, _ = open_page(page, profile)
    saved = tmp_path / "saved.html"
    saved.write_text(document)
    capsys.readouterr()
    assert cli.main(["render", str(saved), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["root_causes"][0]["check"] == "kernel-module.gpu-bound"
    again, console = open_page(saved, profile)
    assert console == [] and again.count('class="copy"') == document.count('class="copy"')
