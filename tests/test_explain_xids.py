"""`gpudoctor explain xid:N` and `sxid:N`: every code, by number and by name, several at once, as text and JSON."""

import json

import pytest

from gpudoctor.explaining import Explanation, explain_code
from gpudoctor.explaining_xids import CHECKS, SXID_CHECKS, SXidExplanation, XidExplanation
from gpudoctor.knowledge import sxids, xids
from gpudoctor.registry import built_in
from tests.test_cli import gpudoctor

CODES = [*(f"xid:{code}" for code in xids.known()), *(f"sxid:{code}" for code in sxids.known())]


def _explained(word: str) -> Explanation:
    found = explain_code(word)
    assert isinstance(found, Explanation), found
    return found


@pytest.mark.parametrize("word", CODES)
def test_every_code_is_explained(word: str) -> None:
    found = _explained(word)
    assert found.id == word and found.name and found.meaning.endswith(".") and found.remedies and found.source
    for line in found.text.splitlines():
        assert len(line) <= 100 or line.lstrip().startswith("$"), line


def test_what_is_said_of_a_gpu_off_the_bus() -> None:
    found = _explained("xid:79")
    assert isinstance(found, XidExplanation)
    assert (found.area, found.blame[0], found.immediate.bucket) == ("bus", "hardware", "RESTART_BM")
    assert found.investigate is not None and found.investigate.bucket == "CONTACT_SUPPORT"
    assert (found.since, found.announced) == (515, 565)
    text = found.text
    assert "R515 or earlier; Xid 154 follows it since R565" in text and "as of 2026-07-14" in text
    assert "reboot the machine (RESTART_BM)" in text and "A100, H100" in text


def test_what_is_not_the_catalogues_own_word_says_so() -> None:
    found = _explained("xid:167")
    assert isinstance(found, XidExplanation)
    assert found.immediate.bucket == "RESTART_BM" and "names no action" in found.immediate.ours
    assert "the catalogue names no action; as for Xid 79" in " ".join(found.text.split())


def test_older_titles_causes_and_disagreements_are_told() -> None:
    text = " ".join(_explained("xid:109").text.split())
    assert "keeps the GPU schedulable" in text and "k8s-device-plugin 1b826acc6" in text
    assert "once called Display Engine error" in " ".join(_explained("xid:56").text.split())
    assert "listed causes hardware, driver, application" in " ".join(_explained("xid:31").text.split())


def test_an_applications_xid_is_looked_into_in_the_application() -> None:
    assert any("compute-sanitizer" in command for step in _explained("xid:13").remedies for command in step.run)
    assert any("compute-sanitizer" in command for step in _explained("xid:137").remedies for command in step.run)


def test_an_sxid_says_how_far_it_reaches() -> None:
    found = _explained("sxid:22003")
    assert isinstance(found, SXidExplanation)
    assert (found.severity_class, found.immediate.bucket) == ("always-fatal", "RESET_FABRIC")
    assert "the whole fabric" in found.text
    assert "not in the guide" in _explained("sxid:26006").text
    assert "before R550" in _explained("sxid:28001").text
    assert "MULTICASTTSTATE" in _explained("sxid:28006").name


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("XID:79", "xid:79"),
        ("xid: 79", "xid:79"),
        ("xid:079", "xid:79"),
        ("xid:ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", "xid:79"),
        ("xid:gpu_has_fallen_off_the_bus", "xid:79"),
        ("xid:GPU has fallen off the bus", "xid:79"),
        ("xid:fallen off", "xid:79"),
        ("xid:GSP RPC timeout", "xid:119"),
        ("xid:gsp_error", "xid:120"),
        ("xid:INFOROM_PAGE_RETIREMENT_EVENT", "xid:63"),
        ("sxid:MINION_HALT", "sxid:22003"),
        ("sxid:NVSWITCH_ERR_HW_DLPL_LTSSM_FAULT_UP", "sxid:20034"),
    ],
)
def test_a_code_is_found_by_number_and_by_name(word: str, found: str) -> None:
    assert _explained(word).id == found


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("xid:999", "the nearest are 176, 175, 174"),
        ("xid:0", "the nearest are 1, 2, 3"),
        ("xid:", "the nearest are"),
        ("xid:-1", "the nearest are"),
        ("xid:²", "the nearest are"),
        ("xid:99999999999999999999", "the nearest are 176, 175, 174"),
        ("xid:no such thing", "the nearest are"),
        ("xid:GSP", "names several: 119 (GSP_RPC_TIMEOUT), 120 (GSP_ERROR)"),
        ("xid:GPU stopped processing", "names several: 8"),
        ("sxid:20039", "the nearest are 20038"),
        ("sxid:79", "the nearest are 10000"),
    ],
)
def test_an_unknown_code_is_a_usage_error_of_one_line_that_names_the_nearest(word: str, says: str) -> None:
    ran = gpudoctor("explain", word)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert len(ran.stderr.splitlines()) == 1 and says in ran.stderr


def test_several_at_once() -> None:
    words = ("xid:79", "sxid:12028", "nvml:18", "cuda:803", "pcie.gpu-responds")
    ran = gpudoctor("explain", *words)
    assert ran.returncode == 0
    begins = [text.lstrip().split()[0] for text in ran.stdout.split("-" * 100)]
    assert begins == list(words)
    told = json.loads(gpudoctor("explain", *words, "--format", "json").stdout)
    assert [one["id"] for one in told] == list(words)


def test_one_of_several_that_is_unknown_explains_none() -> None:
    ran = gpudoctor("explain", "xid:79", "xid:999", "nothing.at-all")
    assert (ran.returncode, ran.stdout) == (3, "") and "999" in ran.stderr


def test_json_of_one_is_an_object_with_what_every_code_has() -> None:
    told = json.loads(gpudoctor("explain", "xid:48", "--format", "json").stdout)
    assert list(told)[:7] == ["id", "name", "meaning", "checks", "remedies", "source", "suspects"]
    assert told["immediate"]["bucket"] == "WORKFLOW_XID_48" and told["area"] == "memory"
    assert told["remedies"][0]["action"] == "none"
    switch = json.loads(gpudoctor("explain", "sxid:20034", "--format", "json").stdout)
    assert switch["severity_class"] == "fatal"


def test_checks_that_are_named_exist() -> None:
    named = {check for checks in CHECKS.values() for check in checks} | set(SXID_CHECKS)
    assert named <= set(built_in().ids)
