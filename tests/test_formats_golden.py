"""Each form of each command as it is written today, byte for byte: its contract is in docs/, this is what keeps to it.

Two checks of one sick node, so that a new check changes nothing here.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

from gpudoctor import cli
from gpudoctor.cli_options import DIFF_FORMATS, HEALTH_FORMATS, LISTING_FORMATS, RUN_FORMATS, TOPO_FORMATS
from gpudoctor.testing import fixtures
from tests.conftest import REPOSITORY, Golden

SICK, HEALTHY = (str(fixtures() / name) for name in ("nouveau-and-broken-daemon-json", "h100x8"))
CHECKS = ("--check", "kernel-module.gpu-bound", "--check", "toolkit.docker-runtime")
SUFFIXES = {
    "terminal": "txt",
    "line": "txt",
    "nagios": "txt",
    "npd": "txt",
    "node-exporter": "prom",
    "markdown": "md",
    "stream": "jsonl",
}
OTHERS = {
    "trace.json": ("trace", "pid:1", "--node", SICK, "--format", "json"),
    "compat.json": ("compat", "--driver", "580.178.04", "--node", HEALTHY, "--format", "json"),
    "topo.json": ("topo", "--node", SICK, "--format", "json"),
    "explain.json": ("explain", "kernel-module.gpu-bound", "--format", "json"),
    "checks.json": ("checks", "--link", "startup", "--format", "json"),
}


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)


def said(*words: str) -> str:
    """What a command prints, without the time that it took; of a page without its style and script, and the report that it holds."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        cli.main(words)
    text = re.sub(r"(?s)<(style|script)\b[^>]*>.*?</\1>", "", out.getvalue())
    text = re.sub(r"'sha256-[^']+'", "'sha256-'", text)
    text = text.replace(str(fixtures()), "NODES")
    return re.sub(r"(_duration_seconds |'time'=|\"seconds\": ?)[\d.]+|[\d.]+(?= s</dd>)", r"\g<1>0", text)


@pytest.mark.parametrize("form", RUN_FORMATS)
def test_run(form: str, golden: Golden) -> None:
    golden.check(
        f"formats/run-{form}.{SUFFIXES.get(form, form)}", said("run", "--node", SICK, *CHECKS, "--format", form)
    )


@pytest.mark.parametrize("name", OTHERS)
def test_other_commands(name: str, golden: Golden) -> None:
    golden.check(f"formats/{name}", said(*OTHERS[name]))


def test_diff(golden: Golden, tmp_path: Path) -> None:
    for node in (SICK, HEALTHY):
        said("run", "--node", node, *CHECKS, "-o", str(tmp_path / f"{Path(node).name}.json"))
    reports = (str(tmp_path / f"{Path(node).name}.json") for node in (HEALTHY, SICK))
    text = said("diff", *reports, "--as", "nodes", "--format", "json")
    golden.check("formats/diff.json", text.replace(str(tmp_path), "REPORTS"))


def test_history(golden: Golden, tmp_path: Path) -> None:
    said("health", "--node", SICK, "--state", str(tmp_path))
    text = said("history", "--state", str(tmp_path), "--format", "json")
    golden.check("formats/history.json", text.replace(str(tmp_path), "STATE"))


def test_each_form_is_described() -> None:
    """Of which there are, and where: docs/monitoring.md has a table of those of `run`, and each other command a page."""
    documents = {
        name: (REPOSITORY / "docs" / f"{name}.md").read_text() for name in ("monitoring", "health", "topo", "diff")
    }
    assert set(re.findall(r"(?m)^\| `([a-z-]+)` \| .* \| .* \|$", documents["monitoring"].split("## ")[0])) == set(
        RUN_FORMATS
    )
    assert set(re.findall(r"(?m)^\*\*([a-z-]+)\*\*: ", documents["health"])) >= set(HEALTH_FORMATS)
    for name, forms in (("topo", TOPO_FORMATS), ("diff", DIFF_FORMATS)):
        assert all(re.search(rf"\b{form}\b", documents[name], re.IGNORECASE) for form in forms if form != "terminal"), (
            name
        )
    assert all(f"`gpudoctor {words} --format json`" in documents["monitoring"] for words in ("checks", "explain ID"))
    assert LISTING_FORMATS == ("terminal", "json")
