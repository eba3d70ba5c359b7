"""The command line: commands, exit codes, what goes where."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor import cli
from gpudoctor.testing import fixtures
from tests.conftest import REPOSITORY, Golden

HEALTHY = str(fixtures() / "h100x8")
SICK = str(fixtures() / "nouveau-and-broken-daemon-json")
UNSEEN = str(fixtures() / "nothing-recorded")


def gpudoctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a child without a terminal."""
    surroundings = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    return subprocess.run(
        [sys.executable, "-m", "gpudoctor", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env={**surroundings, "PYTHONUTF8": "1", **environment},
    )


@pytest.mark.parametrize(("node", "code"), [(HEALTHY, 0), (SICK, 2), (UNSEEN, 3)])
def test_exit_codes_of_run(node: str, code: int) -> None:
    ended = gpudoctor("run", "--node", node)
    assert (ended.returncode, ended.stderr) == (code, "")
    assert ended.stdout


def test_exit_code_1_for_a_warning(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("expect.gpus = 4\n")
    ended = gpudoctor("--node", HEALTHY, "--config", str(config), "--format", "json")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["root_causes"][0]["check"] == "pcie.gpus-present"


def test_run_is_the_default_command() -> None:
    assert gpudoctor("--node", HEALTHY).stdout == gpudoctor("run", "--node", HEALTHY).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("runn",), "did you mean 'run'"),
        (("run", "--frmat", "json"), "--frmat"),
        (("run", "--check", "pcie.gpu-present"), "did you mean 'pcie.gpus-present'"),
        (("run", "--link", "pci"), "did you mean 'pcie'"),
        (("run", "--deadline", "never"), "--deadline"),
        (("run", "--node", HEALTHY, "--root", "/x"), "not allowed with"),
        (("explain", "xyz:79"), "nothing to explain"),
        (("run", "--node", HEALTHY, "-o", "report.docx"), "say which format"),
        (("run", "--node", HEALTHY, "-o", "json=/nowhere/x.json"), "cannot write"),
        (("run", "--config", "/nowhere.toml"), "/nowhere.toml"),
        (("record", "--raw", "--map", "/tmp/m", "-o", "/tmp/x"), "not allowed with"),
    ],
)
def test_bad_usage_is_exit_3_with_one_line(arguments: tuple[str, ...], words: str) -> None:
    ended = gpudoctor(*arguments)
    assert ended.returncode == 3
    assert words in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stdout == ""


def test_a_crash_of_the_doctor_is_exit_3_with_one_line_and_no_traceback() -> None:
    program = (
        "import gpudoctor.commands as c, gpudoctor.cli as cli, sys\n"
        "def boom(options): raise RuntimeError('boom')\n"
        "c.COMMANDS['run'] = boom\n"
        "sys.exit(cli.main(['run']))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 3
    assert ended.stderr.startswith("gpudoctor: gpudoctor itself failed: RuntimeError: boom")
    assert len(ended.stderr.splitlines()) == 1 and ended.stdout == ""


def test_a_closed_pipe_is_no_traceback() -> None:
    line = f"'{sys.executable}' -m gpudoctor --node '{SICK}' --format json | head -c 10"
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert ended.stderr == ""


def test_help_and_version() -> None:
    top = gpudoctor("--help")
    assert top.returncode == 0
    assert all(f"\n  {command}" in top.stdout for command in ("run", "record", "checks", "explain", "schema"))
    assert "exit codes" in top.stdout and gpudoctor("run", "--help").returncode == 0
    assert gpudoctor("--version").stdout.startswith("gpudoctor ")


def test_checks_lists_every_check_and_explain_explains_it(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(gpudoctor("checks", "--format", "json").stdout)
    assert [entry["id"] for entry in listed if entry["essential"]] == [
        "pcie.gpus-present",
        "kernel-module.gpu-bound",
        "kernel-module.tegra-driver",
        "driver-cuda.nvml-answers",
        "driver-cuda.wsl-libraries",
    ]
    plain = gpudoctor("checks").stdout
    for entry in listed:
        assert entry["id"] in plain and entry["title"] in plain
        assert cli.main(["explain", entry["id"]]) == 0
        assert entry["explanation"].splitlines()[0] in capsys.readouterr().out
        assert len(entry["explanation"]) > 200, "a docstring must say why one would care and what it is confused with"
    only = json.loads(gpudoctor("checks", "--link", "toolkit", "--format", "json").stdout)
    assert "toolkit.docker-runtime" in [entry["id"] for entry in only]
    assert {entry["link"] for entry in only} == {"toolkit"}


def test_the_schema_is_generated_and_every_report_is_valid_under_it(golden: Golden) -> None:
    printed = gpudoctor("schema").stdout
    golden.check("report-1.schema.json", printed)
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for node in (HEALTHY, SICK, UNSEEN):
        validator.validate(json.loads(gpudoctor("--node", node, "--format", "json").stdout))


@pytest.mark.parametrize("arguments", [("run", "--node", HEALTHY), ("diff", HEALTHY, SICK)])
def test_json_is_utf8_whatever_the_locale(arguments: tuple[str, ...]) -> None:
    """`LANG=en_US` is ISO 8859-1, which has no ellipsis and writes a degree otherwise."""
    said = [
        subprocess.run(
            [sys.executable, "-m", "gpudoctor", *arguments, "--format", "json"],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            timeout=60,
            check=False,
        )
        for encoding in ("utf-8", "iso8859-1")
    ]
    assert said[0].returncode == said[1].returncode and said[1].stderr == b""
    utf8, latin = (re.sub(rb'"(started_at|seconds|at)": .*', b"", one.stdout) for one in said)
    assert utf8 == latin and not utf8.isascii()


def test_json_holds_the_documented_keys() -> None:
    report = json.loads(gpudoctor("--node", SICK, "--format", "json").stdout)
    assert list(report) == [
        "schema",
        "tool",
        "node",
        "started_at",
        "seconds",
        "verdict",
        "exit_code",
        "root_causes",
        "results",
        "not_seen",
        "sharing",
    ]
    assert report["schema"] == "gpudoctor.report/1"
    assert report["started_at"] == "2026-11-29T12:00:00Z", "a replay's now is when it was recorded"
    finding = report["results"][0]["findings"][0]
    documented = {
        "id",
        "subject",
        "status",
        "summary",
        "cause",
        "evidence",
        "remedies",
        "caused_by",
        "possible_causes",
        "references",
        "waived",
    }
    assert documented <= set(finding)
    assert {"action", "say"} <= set(finding["remedies"][0])


def test_outputs_go_to_files_as_well(tmp_path: Path) -> None:
    ended = gpudoctor("--node", SICK, "-o", f"{tmp_path}/a.json", "-o", f"terminal={tmp_path}/b", "--format", "json")
    assert ended.returncode == 2
    assert json.loads((tmp_path / "a.json").read_text())["exit_code"] == 2
    assert "root causes" in (tmp_path / "b").read_text()


def test_selection_limits_what_is_reported_and_counted() -> None:
    def reported(*arguments: str) -> tuple[int, set[str]]:
        ended = gpudoctor("--node", SICK, "--format", "json", *arguments)
        return ended.returncode, {result["check"] for result in json.loads(ended.stdout)["results"]}

    assert reported("--check", "pcie.gpus-present") == (0, {"pcie.gpus-present"})
    code, checks = reported("--link", "toolkit")
    # What blocks one of them is shown with it.
    assert code == 2 and "toolkit.docker-runtime" in checks
    assert {check.partition(".")[0] for check in checks} <= {"toolkit", "kernel-module"}
    code, checks = reported("--skip", "toolkit.docker-runtime")
    assert code == 2 and "toolkit.docker-runtime" not in checks and len(checks) > 4
    # A cause that was skipped on purpose does not count, but what it blocks is not known either.
    skips = ("--skip", "toolkit.docker-runtime", "--skip", "kernel-module.gpu-bound")
    code, checks = reported(*skips)
    assert code == 3 and "kernel-module.gpu-bound" not in checks
    assert {"pcie.gpus-present", "device-nodes.gpu-node", "driver-cuda.nvml-answers"} <= checks
    # What blocks a selected check is shown with it: ids in a report resolve in it.
    assert reported("--check", "device-nodes.gpu-node") == (2, {"device-nodes.gpu-node", "kernel-module.gpu-bound"})


def test_a_pass_needs_a_positive_statement(tmp_path: Path) -> None:
    """Nothing selected, everything skipped or switched off: that is no healthy GPU."""
    everything = [entry["id"] for entry in json.loads(gpudoctor("checks", "--format", "json").stdout)]
    skips = [word for check in everything for word in ("--skip", check)]
    assert gpudoctor("--node", HEALTHY, *skips).returncode == 3
    assert gpudoctor("--node", SICK, "--link", "cuda-init").returncode == 3
    assert gpudoctor("--node", SICK, "--check", everything[0], "--skip", everything[0]).returncode == 3
    (tmp_path / "config.toml").write_text(f"disable = {json.dumps(everything)}")
    assert gpudoctor("--node", SICK, "--config", str(tmp_path / "config.toml")).returncode == 3
    (tmp_path / "config.toml").write_text('disable = ["pcie.gpus-present"]')
    empty = str(fixtures() / "no-nvidia-on-pci")
    assert gpudoctor("--node", empty, "--config", str(tmp_path / "config.toml")).returncode == 3


def test_skipping_a_cause_does_not_excuse_what_it_caused() -> None:
    node = str(fixtures() / "vfio-holds-one-of-eight")
    ended = gpudoctor("--node", node, "--skip", "kernel-module.gpu-bound", "--format", "json")
    report = json.loads(ended.stdout)
    assert ended.returncode == 2
    assert [cause["check"] for cause in report["root_causes"]] == ["driver-cuda.nvml-answers"]


def test_a_stderr_or_stdout_that_cannot_be_written_changes_no_exit_code() -> None:
    def status(redirection: str, *arguments: str) -> int:
        line = f"'{sys.executable}' -m gpudoctor {' '.join(arguments)} {redirection}"
        return subprocess.run(["sh", "-c", line], capture_output=True, check=False, timeout=60).returncode

    assert status("2>/dev/full", "--node", "/nope") == 3
    assert status("2>&-", "--node", "/nope") == 3
    assert status(">/dev/full", "--node", HEALTHY) == 3
    assert status(">&-", "--node", HEALTHY) == 3


def test_hostile_words_on_the_command_line_stay_on_one_line_of_stderr() -> None:
    for word in ("a\nb", "\x1b]0;x\x07"):
        for arguments in ((word,), ("--node", word), ("--check", word), ("explain", word)):
            ended = gpudoctor(*arguments)
            assert ended.returncode == 3 and len(ended.stderr.splitlines()) == 1, ended.stderr
            assert "\x1b" not in ended.stderr


def _config(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "config.toml"
    path.write_text(text)
    ended = gpudoctor("--node", SICK, "--config", str(path), "--format", "json")
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def test_waivers_and_disabled_checks_from_a_file(tmp_path: Path) -> None:
    report = _config(
        tmp_path,
        'disable = ["toolkit.docker-runtime"]\n[[waive]]\ncheck = "kernel-module.gpu-bound"\nreason = "known"\nuntil = 2026-12-31\n',
    )
    assert report["exit_code"] == 3, "blocked by waived fails only: an essential check could not tell"
    assert report["root_causes"] == []
    waived = [f["waived"] for r in report["results"] for f in r["findings"] if r["check"] == "kernel-module.gpu-bound"]
    assert waived[0] == {"reason": "known", "until": "2026-12-31"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("expct.gpus = 8", "did you mean 'expect'"),
        ("expect.gpu = 8", "did you mean 'gpus'"),
        ("expect.gpus = 'eight'", "config.toml"),
        ("expect.gpus = -1", "negative"),
        ('disable = ["toolkit.docker-runtim"]', "did you mean 'toolkit.docker-runtime'"),
        ('[[waive]]\ncheck = "pcie.gpus-present"', "reason"),
        ("= broken", "not TOML"),
    ],
)
def test_a_wrong_configuration_names_file_and_nearest_right_word(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(text)
    ended = gpudoctor("--node", HEALTHY, "--config", str(tmp_path / "config.toml"))
    assert ended.returncode == 3 and words in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr


def test_configuration_layers(tmp_path: Path) -> None:
    from gpudoctor.sources.config_files import load_config

    system = tmp_path / "etc/gpudoctor"
    (system / "conf.d").mkdir(parents=True)
    (system / "config.toml").write_text('expect.gpus = 4\ndisable = ["a.b"]\n')
    (system / "conf.d/10-x.toml").write_text('disable = ["c.d"]\n')
    (system / "conf.d/20-y.toml").write_text("expect.gpus = 8\n")
    config = load_config(str(tmp_path), ())
    assert (config.expect.gpus, config.disable) == (8, ("a.b", "c.d"))


def test_bundled_commands_are_documented_in_the_readme() -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    for command in ("gpudoctor", "gpudoctor record", "gpudoctor checks", "gpudoctor explain", "gpudoctor schema"):
        assert command in readme


def test_the_readme_lists_every_check_with_its_title() -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    for entry in json.loads(gpudoctor("checks", "--format", "json").stdout):
        assert f"| {entry['link']} | `{entry['id']}` | {entry['title']} |" in readme
