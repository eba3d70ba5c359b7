"""`gpudoctor trace` as people and programs meet it: exit codes, JSON and its schema, pages, and real containers of this machine."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from gpudoctor.reports import trace_terminal
from gpudoctor.reports.look import Look
from gpudoctor.trace import OUTSIDE_OF_PODS, Step, StepId
from gpudoctor.verdicts import Status
from tests.conftest import Golden
from tests.live_container import running
from tests.test_cli import gpudoctor
from tests.test_packaging import modules_of_a_run
from tests.trace_cases import BROKEN, WARNED
from tests.trace_node import TraceNode
from tests.workload_node import GPU, oci

# the command line ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Some of the nodes above on disk."""
    place = tmp_path_factory.mktemp("nodes")
    well = TraceNode()
    well.build()
    written = {"well": str(well.written(place / "well"))}
    for name, case in {**BROKEN, **WARNED}.items():
        if name in ("taken-by-systemd", "small-shm"):
            written[name] = str(case.node().written(place / name))
    return written


def test_exit_codes_are_those_of_run(nodes: dict[str, str]) -> None:
    codes = {name: gpudoctor("trace", "docker:web", "--node", node).returncode for name, node in nodes.items()}
    assert codes == {"well": 0, "taken-by-systemd": 2, "small-shm": 1}


def test_usage_errors_are_one_line_and_three(nodes: dict[str, str]) -> None:
    for arguments in ((), ("web",), ("docker:nobody",), ("docker:\x1b]0;x\x07",), ("docker:web", "--format", "html")):
        ended = gpudoctor("trace", *arguments, "--node", nodes["well"])
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (3, "", 1), ended.stderr
        assert "\x1b" not in ended.stderr


def test_json_is_valid_under_its_own_schema(nodes: dict[str, str], golden: Golden) -> None:
    printed = gpudoctor("schema", "--of", "trace").stdout
    golden.check("trace-1.schema.json", printed)
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for node in nodes.values():
        said = json.loads(gpudoctor("trace", "docker:web", "--node", node, "--format", "json").stdout)
        validator.validate(said)
        assert said["schema"] == "gpudoctor.trace/1" and said["target"] == "docker:web"
        assert [step["id"] for step in said["traced"][0]["steps"]] == [step.value for step in OUTSIDE_OF_PODS]
    assert json.loads(gpudoctor("schema").stdout)["title"] == "gpudoctor.report/1"


def test_pages(golden: Golden) -> None:
    lost = BROKEN["taken-by-systemd"].node().trace(built=True)
    golden.check("trace/taken-by-systemd.txt", trace_terminal.render(lost, Look()))
    golden.check("trace/taken-by-systemd-120.txt", trace_terminal.render(lost, Look(width=120)))
    golden.check("trace/narrow.txt", trace_terminal.render(lost, Look(width=40)))
    golden.check("trace/verbose.txt", trace_terminal.render(lost, Look(width=120, verbose=1)))
    golden.check("trace/quiet.txt", trace_terminal.render(lost, Look(quiet=True)))
    golden.check("trace/well.txt", trace_terminal.render(TraceNode().trace(), Look()))
    golden.check(
        "trace/nobody-asked.txt", trace_terminal.render(BROKEN["nobody-asked"].node().trace(built=True), Look())
    )


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_only_commands_are_wider_than_the_terminal(width: int) -> None:
    for case in (BROKEN["rules-lost"], BROKEN["compat-older-than-driver"], WARNED["lost-at-reload"]):
        for line in trace_terminal.render(case.node().trace(built=True), Look(width=width)).splitlines():
            assert len(line) <= width or line.lstrip().startswith("$ "), line


def test_status_is_told_by_word_and_in_ascii_too() -> None:
    text = trace_terminal.render(BROKEN["nobody-asked"].node().trace(built=True), Look(ascii=True))
    assert text.isascii() and {"OK", "FAIL", "SKIPPED"} <= set(text.split())


def test_hostile_names_cannot_drive_the_terminal() -> None:
    node = TraceNode()
    node.environment.append("CUDA_VISIBLE_DEVICES=\x1b]0;owned\x07")
    text = trace_terminal.render(node.trace(), Look(width=200, verbose=2))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text) and "owned" in text


def test_run_does_not_import_the_trace() -> None:
    assert not [name for name in modules_of_a_run("--format", "json") if name.startswith("gpudoctor.trac")]


@pytest.mark.parametrize("status", [Status.PASS, Status.FAIL, Status.WARN, Status.UNKNOWN])
def test_step_needs_what_it_claims(status: Status) -> None:
    with pytest.raises(ValueError, match="needs"):
        Step(StepId.NODES, "a title", status, "a summary")


# this machine -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["runc", "crun"])
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A real container in a group as docker names it, with nodes that nobody opens; its id and PID."""
    identity = f"{os.getpid():08x}" * 8
    nodes = {"nvidia0": (195, 0), "nvidiactl": (195, 255)}
    config = oci(f"NVIDIA_VISIBLE_DEVICES={GPU}", "CUDA_VISIBLE_DEVICES=5", nodes=nodes)
    with running(request.param, tmp_path, config, group=f"/docker/{identity}") as started:
        yield identity, started.pid


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: containers, device nodes")
def test_real_container_is_traced_by_pid_and_as_a_container(container: tuple[str, int]) -> None:
    identity, pid = container
    for word in (f"pid:{pid}", f"docker:{identity[:12]}"):
        ended = gpudoctor("trace", word, "--format", "json")
        assert ended.stderr == "" and ended.returncode in (2, 3)
        (one,) = json.loads(ended.stdout)["traced"]
        steps = {step["id"]: step for step in one["steps"]}
        assert (one["pid"], one["container_id"]) == (pid, identity)
        assert steps["found"]["status"] == steps["asked"]["status"] == "pass"
        # Two of the three nodes were made; the third is not there, and nothing was opened to see that.
        assert steps["nodes"]["status"] == "fail" and "/dev/nvidia-uvm is not inside" in steps["nodes"]["summary"]
        assert steps["rules"]["status"] in ("pass", "fail", "unknown")
        assert steps["visible"]["status"] == "fail" and "5 names no GPU inside" in steps["visible"]["summary"]
        assert steps["limits"]["status"] in ("skip", "pass") and steps["numa"]["status"] in ("skip", "pass")
