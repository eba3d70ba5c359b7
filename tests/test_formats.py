"""The forms that other programs read: their consumers' rules, and one truth in all of them."""

import contextlib
import io
import json
import os
import re
from pathlib import Path

import pytest

from gpudoctor import cli
from gpudoctor.cli_options import FORMATS
from gpudoctor.testing import fixtures
from tests.sweeping import thinned

NODES = sorted(place.name for place in fixtures().iterdir() if (place / "expected.json").is_file())
SICK = "nouveau-and-broken-daemon-json"
TEXT_FORMATS = [form for form in FORMATS if form != "json"]


def _run(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = cli.main(words)
    return code, out.getvalue()


def _of(name: str, form: str) -> tuple[int, str]:
    return _run("run", "--node", str(fixtures() / name), "--format", form)


def _expected(name: str) -> int:
    code: int = json.loads((fixtures() / name / "expected.json").read_text())["exit_code"]
    return code


def _after_info(text: str) -> str:
    """Without what differs between two runs over one node; the report inside a page is held against the saved one in test_html."""
    text = re.sub(r'(?<=id="gpudoctor-report">)[^<]*', "", text)
    return re.sub(r"(?m)'time'=\S+|_duration_seconds \S+|\"seconds\":[\d.]+|[\d.]+ s</dd>", "", text)


@pytest.mark.parametrize("form", TEXT_FORMATS)
def test_a_saved_report_renders_to_the_same_text(form: str, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    # A page has details, whatever was asked for; other forms show of them only what a report holds.
    details = ["--details"] if form == "html" else []
    _run("run", *details, "--node", str(fixtures() / SICK), "-o", str(saved), "--format", "line")
    code, text = _run("render", str(saved), "--format", form)
    assert code == 0
    assert _after_info(text) == _after_info(_of(SICK, form)[1])


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "not a report"), ("[]", "not a report"), ('{"schema": "x"}', "not a report"), (None, "No such file")],
)
def test_what_is_no_report_is_refused_in_one_line(
    content: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "report.json"
    if content is not None:
        place.write_text(content)
    assert cli.main(["render", str(place)]) == 3
    said = capsys.readouterr().err
    assert words in said and len(said.splitlines()) == 1


# line ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NODES)
def test_line_is_one_line_without_the_hosts_name(name: str) -> None:
    code, text = _of(name, "line")
    hostname = json.loads((fixtures() / name / "snapshot.json").read_text()).get("hostname") or "n1"
    assert len(text.splitlines()) == 1 and text.endswith("\n")
    assert code == _expected(name)
    assert not re.search(rf"(?<![\w/.-]){re.escape(hostname)}(?![\w/.-])", text)


# Nagios --------------------------------------------------------------------------------------------------------------

# The grammar of the Monitoring Plugins Development Guidelines, "Plugin Output for Nagios" and "Performance data".
_NAGIOS = re.compile(r"GPUDOCTOR (OK|WARNING|CRITICAL|UNKNOWN) - ([^|\n]+) \| (.+)")
_DATUM = re.compile(r"'[^'=]+'=-?\d+(?:\.\d+)?(?:s|%|B|c)?(?:;[^;]*){0,4}")


@pytest.mark.parametrize("name", NODES)
def test_nagios_reads_state_text_and_performance_data(name: str) -> None:
    code, text = _of(name, "nagios")
    first, *more = text.splitlines()
    match = _NAGIOS.fullmatch(first)
    assert match is not None, first
    assert match[1] == ("OK", "WARNING", "CRITICAL", "UNKNOWN")[code] and code == _expected(name)
    assert all(_DATUM.fullmatch(datum) for datum in match[3].split(" "))
    assert len(text.encode()) <= 1024 and text.isascii() and not any("|" in line for line in more)


# node-problem-detector -----------------------------------------------------------------------------------------------


def _detector(code: int, output: bytes, most: int = 80) -> tuple[str, str]:
    """What pkg/custompluginmonitor/plugin/plugin.go makes of a plugin: the status by exit code, the output trimmed and cut."""
    status = {0: "OK", 1: "NonOK"}.get(code, "Unknown")
    return status, output[: 4 * 1024].strip()[:most].decode()


@pytest.mark.parametrize("name", NODES)
def test_the_detector_sees_a_problem_where_there_is_one(name: str) -> None:
    code, text = _of(name, "npd")
    status, message = _detector(code, text.encode())
    assert status == {0: "OK", 1: "OK", 2: "NonOK", 3: "Unknown"}[_expected(name)]
    assert message == text.strip() and message


# Prometheus ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NODES)
def test_prometheus_own_parser_reads_the_metrics(name: str) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client")
    _, text = _of(name, "node-exporter")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    samples = [sample for family in families.values() for sample in family.samples]
    assert families["gpudoctor_verdict"].samples[0].value == {0: 0, 1: 1, 2: 2, 3: 3}[_expected(name)]
    assert all(sample.timestamp is None for sample in samples)
    keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(keys) == len(set(keys)) <= 300
    checks = [sample.labels["check"] for sample in families["gpudoctor_check_status"].samples]
    assert len(checks) == len(set(checks)) > 30


def test_findings_are_bounded_and_what_is_left_out_is_counted() -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client")
    _, text = _of("nouveau-holds-all-eight", "node-exporter")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    bound = {sample.labels["key"] for sample in families["gpudoctor_finding"].samples}
    assert len([key for key in bound if key.startswith("0000:")]) == 8
    assert families["gpudoctor_findings_left_out"].samples[0].value == 0


def test_a_report_file_appears_at_once_and_can_be_read_by_its_collector(tmp_path: Path) -> None:
    place = tmp_path / "gpudoctor.prom"
    place.write_text("old")
    descriptor = os.open(place, os.O_RDONLY)
    _run("run", "--node", str(fixtures() / SICK), "-o", str(place))
    assert place.read_text().startswith("# HELP gpudoctor_verdict")
    assert place.stat().st_mode & 0o777 == 0o644
    assert os.read(descriptor, 10) == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["gpudoctor.prom"]
    os.close(descriptor)


# Markdown ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", thinned(NODES))
def test_markdown_holds_every_root_cause_and_no_text_of_a_node_becomes_markup(name: str) -> None:
    from markdown_it import MarkdownIt

    _, text = _of(name, "markdown")
    report = json.loads(_of(name, "json")[1])
    tokens = MarkdownIt("commonmark", {"html": False}).enable("table").parse(text)
    headings = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
    assert len(headings) == 1 + len(report["root_causes"])
    assert all(f"`{cause['check']}`" in text for cause in report["root_causes"])
    assert not any(token.type == "html_block" and "details" not in token.content for token in tokens)
