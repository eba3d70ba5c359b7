"""daemon.json as dockerd would take it: what it accepts, what it refuses, what it could not use."""

import datetime
import json

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.registry import built_in
from gpudoctor.report import Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.verdicts import Status

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
NVIDIA = {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}


def judge(text: str | None, *, toolkit: bool = True, dockerd: bool = True, truncated: bool = False) -> Result:
    """The check on a node with this daemon.json."""
    tree = Tree()
    for path, there in (
        ("/usr/bin/dockerd", dockerd),
        ("/usr/bin/nvidia-container-runtime", toolkit),
        ("/opt/nv/rt", toolkit),
    ):
        if there:
            tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=0o755)))
    if text is not None:
        path = "/etc/docker/daemon.json"
        tree.put(path, Record(entry=Entry(path, EntryType.FILE), text=text, truncated=truncated))
    report = run(RecordedNode(tree, complete=["/"]), Config(), built_in(), Selection(links=("toolkit",)), NOW)
    return report.result("toolkit.docker-runtime")


@pytest.mark.parametrize(
    "settings",
    [
        {"runtimes": NVIDIA},
        {"runtimes": NVIDIA, "default-runtime": "nvidia"},
        {"runtimes": NVIDIA, "default-runtime": "runc"},
        {"runtimes": NVIDIA, "default-runtime": "io.containerd.runc.v2"},
        {"runtimes": {"nvidia": {"path": "/opt/nv/rt"}}},
        {"runtimes": {"nvidia": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": "/opt/nv/rt"}}}},
        {"runtimes": {**NVIDIA, "gvisor": {"path": "runsc"}}},
    ],
)
def test_what_leads_to_an_existing_runtime_passes(settings: object) -> None:
    assert judge(json.dumps(settings)).status is Status.PASS
    assert judge("\ufeff" + json.dumps(settings)).status is Status.PASS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1,}', "line 1 column"),
        ("[]", "not an object"),
        ('{"a": NaN}', "NaN"),
        ("[" * 100_000, ""),
        ('{"runtimes": []}', "runtimes is a JSON list"),
        ('{"runtimes": {"nvidia": 5}}', "not an object"),
        ('{"runtimes": {"nvidia": {"path": 5}}}', "not a str"),
        ('{"default-runtime": 5}', "default-runtime is 5"),
        ('{"runtimes": {"nvidia": {}}}', "neither a path nor a runtimeType"),
        ('{"runtimes": {"nvidia": null}}', "neither a path nor a runtimeType"),
        ('{"runtimes": {"nvidia": {"path": ""}}}', "neither a path nor a runtimeType"),
        ('{"runtimes": {"nvidia": {"path": "/opt/nv/rt", "runtimeType": "x"}}}', "both a path and a runtimeType"),
        ('{"runtimes": {"nvidia": {"path": "/opt/nv/rt", "options": {"a": 1}}}}', "options to a path"),
        ('{"runtimes": {"nvidia": {"runtimeType": "io.containerd.runc.v2"}}}', "plain shim"),
        ('{"runtimes": {"nvidia": {"path": "/opt/other"}}}', "/opt/other, which is not an executable file"),
        ('{"default-runtime": "nvida"}', "'nvida', which runtimes does not define"),
        ('{"runtimes": {"nvidia\\ud800": {"path": "/x"}}}', "ud800"),
    ],
)
def test_what_dockerd_refuses_or_cannot_use_fails_and_says_what(text: str, words: str) -> None:
    result = judge(text)
    assert result.status is Status.FAIL
    assert words in result.findings[0].summary, result.findings[0].summary


@pytest.mark.parametrize("text", ["", "  \n", "\ufeff", "null", "{}", '{"log-driver": "json-file"}'])
def test_without_a_runtime_the_toolkit_decides_whether_there_is_anything_to_say(text: str) -> None:
    assert judge(text).status is Status.WARN
    assert judge(text, toolkit=False).status is Status.SKIP


def test_no_file() -> None:
    assert judge(None, dockerd=False).status is Status.SKIP
    assert judge(None, toolkit=False).status is Status.SKIP
    assert judge(None).status is Status.WARN


@pytest.mark.parametrize("text", ['{"o": "M\\xfcller"}', "\\xff\\xfe{\\x00}"])
def test_bytes_that_are_not_utf8_are_no_proof_of_a_broken_file(text: str) -> None:
    assert (judge(text).status, judge(text).why) == (Status.UNKNOWN, "unreadable")


def test_a_file_of_which_only_the_beginning_was_kept_is_not_judged() -> None:
    assert (judge('{"runtimes": {', truncated=True).status, judge("{", truncated=True).why) == (
        Status.UNKNOWN,
        "not-recorded",
    )


def test_many_broken_runtimes_are_one_cause() -> None:
    settings = {"runtimes": {f"nvidia{number}": {"path": f"/opt/{number}"} for number in range(50)}}
    assert {finding.cause for finding in judge(json.dumps(settings)).findings} == {"program"}
