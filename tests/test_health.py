"""`gpudoctor health` through the front door: what is new, what lasts, what flaps, what heals, over boots, and in every form."""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from gpudoctor import cli
from gpudoctor.facts.raw import Log
from gpudoctor.health import log_memory
from gpudoctor.health.answer import State, Turn
from gpudoctor.health.cached import NOT_ENDED
from gpudoctor.health.episodes import Episode, Fate, Ledger, Now, Rules, Seen
from gpudoctor.health.lock import Holder, seconds_since_boot
from gpudoctor.health.places import LOCK, NoPlaceError, made, state_directory
from gpudoctor.probes.earlier_run import EarlierRun, look_at_run
from gpudoctor.verdicts import Status
from tests.conftest import Golden
from tests.diff_node import BOOT_ID, DiffNode
from tests.health_passes import (
    HARD,
    HEALTHY,
    SOFT,
    Passes,
    aged,
    checks,
    turns,
)

DOCKER, BOUND = "toolkit.docker-runtime", "kernel-module.gpu-bound"
GPU = "0000:3a:00.0"


@pytest.fixture
def healthy(tmp_path: Path) -> DiffNode:
    """The healthy node, to be changed."""
    return DiffNode("h100x8", tmp_path / "node")


def schema(of: str, capsys: pytest.CaptureFixture[str]) -> jsonschema.Draft202012Validator:
    """What `gpudoctor schema` prints."""
    capsys.readouterr()
    assert cli.main(["schema", "--of", of]) == 0
    return jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out))


# From pass to pass -------------------------------------------------------------------------------------------------


def test_a_healthy_node_gives_cron_nothing_to_mail(passes: Passes) -> None:
    assert passes.over(HEALTHY) == (0, "")
    assert passes.over(HEALTHY) == (0, "")


def test_a_first_pass_tells_everything_that_is_wrong(passes: Passes) -> None:
    answer = passes.told(SOFT)
    assert (answer["exit_code"], answer["memory"]["first"]) == (2, True)
    assert turns(answer) == [("new", DOCKER)] and answer["blips"] == []


def test_what_is_new_is_told_once_and_healed_once(passes: Passes, golden: Golden) -> None:
    passes.over(HEALTHY)
    code, out = passes.over(HARD)
    golden.check("health/new.txt", out)
    assert code == 2 and BOUND in out and DOCKER not in out
    code, out = passes.over(HARD)
    golden.check("health/lasting.txt", out)
    assert code == 2 and "still wrong: " + BOUND in out
    assert passes.over(HARD) == (2, "")
    code, out = passes.over(HARD, "--all")
    golden.check("health/all.txt", out)
    code, out = passes.over(HEALTHY)
    golden.check("health/healed.txt", out)
    assert code == 0 and out.count("HEALED") == 2
    assert passes.over(HEALTHY) == (0, "")


def test_every_form_has_its_golden_file(passes: Passes, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    passes.over(HEALTHY)
    passes.over(HARD)
    suffixes = {"line": "txt", "nagios": "txt", "npd": "txt", "node-exporter": "prom", "json": "json"}
    for form, suffix in suffixes.items():
        code, out = passes.over(HARD, "--format", form)
        assert code == (1 if form == "npd" else 2)
        still = re.sub(r"(duration_seconds |'time'=|\"seconds\": )[\d.]+", r"\g<1>0", out)
        still = re.sub(r"in \d+ passes|\"(times|number|passes)\": \d+", "in N passes", still)
        # Every check stands in them; which there are is no matter of this test.
        still = re.sub(r'"checks": \{[^}]*\}', '"checks": {}', still)
        still = re.sub(r"gpudoctor_check_status\{.* [^2]\n", "", still)
        golden.check(f"health/{form}.{suffix}", still.replace(str(passes.state), "STATE"))
    schema("health", capsys).validate(passes.told(HARD))
    answer = passes.told(HARD)
    assert list(answer)[:10] == "schema tool node at seconds number verdict exit_code seen nvml".split()


def test_a_blip_counts_for_nothing_and_is_remembered(passes: Passes) -> None:
    passes.over(HEALTHY)
    answer = passes.told(SOFT)
    assert (answer["exit_code"], answer["verdict"], answer["seen"]) == (0, "pass", "fail")
    assert checks(answer, "blips") == [DOCKER] and answer["changes"] == [] and answer["wrong"] == []
    assert passes.over(HEALTHY) == (0, "")
    (past,) = passes.history()["episodes"]
    assert (past["check"], past["state"], past["how"]) == (DOCKER, "blip", "seen well again")


def test_what_lasts_is_told_in_its_second_pass(passes: Passes) -> None:
    passes.over(HEALTHY)
    passes.over(SOFT)
    answer = passes.told(SOFT)
    assert (answer["exit_code"], turns(answer)) == (2, [("new", DOCKER)])
    assert answer["changes"][0]["wrong"]["times"] == 2


def test_a_gpu_that_is_gone_alarms_at_once(passes: Passes) -> None:
    passes.over(HEALTHY)
    answer = passes.told(HARD)
    assert (answer["exit_code"], turns(answer)) == (2, [("new", BOUND)])
    assert checks(answer, "blips") == [DOCKER]
    assert answer["wrong"][0]["explains"] > 0 and answer["wrong"][0]["remedies"]


def test_the_configuration_says_what_lasts(passes: Passes, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[health]\nlasting = 1\n")
    passes.over(HEALTHY, "--config", config)
    assert turns(passes.told(SOFT, "--config", config)) == [("new", DOCKER)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lasting = 0", "health.lasting must be from 1"),
        ("lastng = 3", "did you mean 'lasting'"),
        ("keep_days = -1.0", "health.keep_days must be more than 0"),
        ("flapping_window = nan", "health.flapping_window must be more than 0"),
        ("lasting = 'x'", "lasting"),
    ],
)
def test_a_wrong_configuration_is_one_line(passes: Passes, tmp_path: Path, text: str, words: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"[health]\n{text}\n")
    code, out, err = passes("--node", HEALTHY, "--config", config)
    assert (code, out) == (3, "") and words in err and len(err.splitlines()) == 1


def test_what_comes_and_goes_is_told_once_and_counts_all_the_time(passes: Passes) -> None:
    told = []
    codes = []
    for number in range(14):
        answer = passes.told(SOFT if number % 2 else HEALTHY)
        told += turns(answer)
        codes.append(answer["exit_code"])
    assert told == [("flapping", DOCKER)]
    assert codes[:6] == [0] * 6 and codes[6:] == [2] * 8
    answer = passes.told(HEALTHY)
    assert answer["wrong"][0]["state"] == "flapping" and answer["seen"] == "pass"


# The rules, one by one ---------------------------------------------------------------------------------------------


def seen(status: Status = Status.WARN, **changes: Any) -> Seen:
    """One finding that is wrong."""
    fields: dict[str, Any] = {"finding": "c@gpu:x", "check": "c", "link": "pcie", "kind": "gpu", "key": "x"}
    return Seen(**{**fields, "status": status, "cause": "", "summary": "bad", **changes})


class Steps:
    """Passes by the rules alone, a minute apart."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.elapsed = 0.0
        self.episodes: list[Episode] = []
        self.tracks: dict[str, tuple[float, ...]] = {}

    def __call__(
        self, *wrong: Seen, fates: dict[str, tuple[Fate, str]] | None = None, reboot: bool = False, minutes: float = 1
    ) -> list[str]:
        """What is told, as turns."""
        now = Now(self.elapsed, self.elapsed, 1, first=not self.elapsed)
        ledger = Ledger(self.rules, now, self.episodes, self.tracks)
        if reboot:
            ledger.reboot()
        well = {one.finding: (Fate.WELL, "") for one in self.episodes}
        ledger.take(wrong, {**well, **(fates or {})})
        self.elapsed += 60 * minutes
        self.episodes, self.tracks = list(ledger.open.values()), ledger.tracks
        return [one.turn.value for one in ledger.told]


def test_worse_and_better_are_told() -> None:
    step = Steps(Rules())
    assert step(seen()) == [Turn.NEW.value]
    assert step(seen(Status.FAIL)) == [Turn.WORSE.value]
    assert step(seen()) == [Turn.BETTER.value]
    assert step() == [Turn.HEALED.value]


def test_what_follows_from_something_else_is_told_when_it_stands_alone() -> None:
    step = Steps(Rules())
    step(seen())
    assert step(seen(), seen(finding="d@gpu:x", check="d", causes=("c@gpu:x",))) == []
    assert step(seen(), seen(finding="d@gpu:x", check="d", causes=("c@gpu:x",))) == []
    assert step(seen(finding="d@gpu:x", check="d")) == [Turn.HEALED.value, Turn.NEW.value]


def test_what_cannot_be_seen_has_not_healed() -> None:
    step = Steps(Rules())
    step(seen())
    assert step(fates={"c@gpu:x": (Fate.UNSEEN, "nobody asked")}) == []
    (episode,) = step.episodes
    assert (episode.unseen, episode.counts, episode.times) == ("nobody asked", True, 1)
    assert step(fates={"c@gpu:x": (Fate.HIDDEN, "")}) == []
    assert [one.counts for one in step.episodes] == [False]
    assert step(seen()) == []
    assert [one.counts for one in step.episodes] == [True]
    assert step() == [Turn.HEALED.value]


def test_flapping_ends_when_a_window_passes_without_a_change() -> None:
    step = Steps(Rules(flapping_changes=4, flapping_window=600.0))
    step()
    told = [turn for _ in range(3) for turn in (*step(seen()), *step())]
    assert told == ["flapping"] and step.episodes[0].state is State.FLAPPING
    assert step(minutes=11) == []
    assert step() == [Turn.HEALED.value]
    told = [turn for _ in range(2) for turn in (*step(seen()), *step())]
    assert told == ["flapping"]
    assert step(seen(), minutes=11) == []
    assert step(seen()) == [Turn.STAYS.value]


def test_a_reboot_ends_what_is_open_and_says_what_is_still_there() -> None:
    step = Steps(Rules())
    step(seen(), seen(finding="d@gpu:x", check="d"))
    assert step(seen(), reboot=True) == [Turn.STAYS.value, Turn.HEALED.value]
    (episode,) = step.episodes
    assert (episode.boots, episode.since, episode.first_at, episode.times) == (2, 0.0, 60.0, 1)


def test_what_was_of_another_node_is_not_called_healed() -> None:
    ledger = Ledger(Rules(), Now(0.0, 0.0, 2, first=True), Steps_open(), {})
    ledger.reboot(forget=True)
    ledger.take([], {})
    assert ledger.told == [] and [one.ended for one in ledger.ended] == [Fate.REBOOT.value]


def Steps_open() -> list[Episode]:  # noqa: N802 - a list made by Steps
    """One episode that is open."""
    step = Steps(Rules())
    step(seen())
    return step.episodes


# Boots, clocks, the kernel's log, counters -------------------------------------------------------------------------


def test_two_boots(passes: Passes, tmp_path: Path) -> None:
    sick = DiffNode("nouveau-and-broken-daemon-json", tmp_path / "sick")
    passes.told(sick.place)
    sick.booted()
    answer = passes.told(aged(sick, 90).place)
    assert turns(answer) == [("stays", BOUND), ("stays", DOCKER)]
    wrong = answer["wrong"][0]
    assert (wrong["since"], wrong["boots"], wrong["times"]) == ("2026-11-29T12:00:00Z", 2, 1)
    assert [boot["passes"] for boot in passes.history()["boots"]] == [1, 1]


def test_a_reboot_that_heals(passes: Passes, healthy: DiffNode) -> None:
    passes.told(HARD)
    healthy.booted()
    answer = passes.told(aged(healthy, 30).place)
    assert turns(answer) == [("healed", BOUND), ("healed", DOCKER)] and answer["exit_code"] == 0
    assert {one["how"] for one in answer["changes"]} == {"gone with the reboot"}


def test_a_clock_that_steps_back_or_far_ahead_alarms_nobody(passes: Passes, healthy: DiffNode) -> None:
    for minute, off in enumerate((0, -600_000, 5_000_000, 0)):
        assert passes.over(aged(healthy, minute, clock_off_by=off).place) == (0, "")
    last = passes.history()
    assert last["passes"] == 4 and len(last["boots"]) == 1 and len(last["runs"]) == 4


def test_counters_become_rates_within_a_boot(passes: Passes, healthy: DiffNode) -> None:
    healthy.gpu(0, pcie__replays=10, row_remap__corrected=0)
    passes.told(healthy.place)
    healthy.gpu(0, pcie__replays=70, row_remap__corrected=1)
    answer = passes.told(aged(healthy, 30).place)
    grown = {one["counter"]: one for one in answer["growth"]}
    assert (grown["PCIe replays"]["growth"], grown["PCIe replays"]["per_hour"]) == (60, 120)
    assert grown["rows remapped for corrected errors"]["growth"] == 1
    healthy.booted()
    healthy.gpu(0, pcie__replays=80)
    assert passes.told(aged(healthy, 60).place)["growth"] == []
    told = {one["counter"]: one for one in passes.history("--gpu", "0000:18:00.0")["counters"]}
    # After the boot it counts anew: what it shows has come since.
    assert (told["PCIe replays"]["growth"], told["PCIe replays"]["peak_per_hour"]) == (140, 120)


def test_a_driver_that_is_loaded_anew_begins_its_counters_anew(passes: Passes, healthy: DiffNode) -> None:
    healthy.gpu(0, pcie__replays=10)
    passes.told(healthy.place)
    healthy.say("[ 6000.000000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05")
    healthy.gpu(0, pcie__replays=11)
    assert passes.told(aged(healthy, 30).place)["growth"] == []


XID = f"[ 5900.000000] NVRM: Xid (PCI:{GPU[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XIDS = "driver-cuda.xids"


def test_the_kernels_log_outlives_its_ring_buffer(passes: Passes, healthy: DiffNode) -> None:
    passes.told(healthy.place)
    healthy.say(XID)
    answer = passes.told(aged(healthy, 20).place)
    assert [(one["gpu"], one["code"], one["count"]) for one in answer["events"]] == [(GPU, "Xid 79", 1)]
    passes.told(aged(healthy, 21).place)
    # The ring has wrapped: it begins long after that line, and says that it does not reach back to the boot.
    log = healthy.place / "kernel.log"
    cursor = log.read_text().splitlines()[-1]
    log.write_text(f"{cursor}\n[ 9000.000000] eth0: link up\n".replace(XID, "[ 8000.000000] eth0: link down"))
    healthy.manifest(logs={"kernel.log": {"source": "kmsg", "from_boot": False}})
    answer = passes.told(aged(healthy, 80).place)
    assert XIDS in checks(answer) and answer["changes"] == [] and answer["events"] == []
    log.write_text("[ 9500.000000] eth0: link up again\n")
    answer = passes.told(aged(healthy, 90).place)
    assert XIDS in checks(answer) and answer["changes"] == []


LOADED = "[   12.000000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05"
ELSE = "[   13.000000] systemd[1]: Started something"


def a_log(*lines: str, from_boot: bool = False) -> Log:
    """What the ring buffer has."""
    return Log("kernel.log", "".join(f"{line}\n" for line in lines), source="kmsg", from_boot=from_boot)


def kept_of(found: log_memory.Read) -> log_memory.Kept:
    """What the next pass remembers."""
    return replace(found.kept, fetch=lambda: found.added)


def test_a_ring_that_lost_nothing_between_passes_is_a_whole_log() -> None:
    first = log_memory.read(a_log(LOADED, ELSE, from_boot=True), log_memory.Kept(), first=True)
    assert first.added == (LOADED,) and first.new.count("\n") == 2
    then = log_memory.read(a_log(ELSE, XID), kept_of(first), first=False)
    assert then.log.from_boot and then.log.text == f"{LOADED}\n{ELSE}\n{XID}\n"
    assert (then.new, then.added) == (f"{XID}\n", (XID,))
    assert log_memory.read(a_log(ELSE, XID), kept_of(then), first=False).new == ""


def test_before_a_ring_that_has_wrapped_a_journal_has_what_nvidia_said_and_nothing_else() -> None:
    """What else was kept is not lost by it, and what came between the last pass and the ring is not known."""
    killed = "[ 4000.000000] Out of memory: Killed process 77 (python)"
    first = log_memory.read(
        a_log(LOADED, ELSE, killed, ELSE.replace("  13", "4001"), from_boot=True), log_memory.Kept(), first=True
    )
    journal, later = LOADED.replace("NVRM", "kernel: NVRM"), "[ 9500.000000] eth0: link up again"
    pieced = replace(a_log(journal, later), source="the journal, then kmsg")
    then = log_memory.read(pieced, kept_of(first), first=False)
    assert not then.log.from_boot and then.new == f"{later}\n"
    assert then.log.text == f"{journal}\n{killed}\n{later}\n"
    # A journal of which the beginning is gone: what it had is kept as well.
    xid = XID.replace("5900", "3000")
    gone = log_memory.read(a_log(LOADED, xid, killed, ELSE, from_boot=True), log_memory.Kept(), first=True)
    rest = replace(a_log(XID.replace("NVRM", "kernel: NVRM"), later), source="the journal, then kmsg")
    told = log_memory.read(rest, kept_of(gone), first=False).log.text.splitlines()
    assert told == [xid, killed, XID.replace("NVRM", "kernel: NVRM"), later]
    # The ring still reaches back to the last pass.
    meets = replace(
        a_log(journal, "[ 4001.000000] systemd[1]: Started something", later), source="the journal, then kmsg"
    )
    assert log_memory.read(meets, kept_of(first), first=False).log.from_boot


def test_an_error_that_comes_again_is_told_again(passes: Passes, healthy: DiffNode) -> None:
    healthy.say(XID)
    passes.over(healthy.place)
    assert passes.over(aged(healthy, 20).place)[1] == ""
    healthy.say(XID.replace("5900", "6900"), XID.replace("5900", "6901"))
    code, out = passes.over(aged(healthy, 40).place)
    assert "The kernel has written since" in out and "(2 times)" in " ".join(out.split()) and "NEW" not in out
    healthy.say(XID.replace("5900", "7900").replace(" 79,", " 31,"))
    assert passes.over(aged(healthy, 60).place) == (code, "")


def test_what_somebody_waives_is_no_news(passes: Passes, tmp_path: Path) -> None:
    passes.told(SOFT)
    config = tmp_path / "config.toml"
    config.write_text(f"[[waive]]\ncheck = '{DOCKER}'\nreason = 'known'\n")
    answer = passes.told(SOFT, "--config", config)
    assert (answer["exit_code"], answer["changes"], answer["wrong"]) == (0, [], [])
    assert passes.history()["episodes"][0]["how"] == "waived"


def test_no_two_series_have_the_same_labels(passes: Passes) -> None:
    for node in (HARD, "ecc-error-on-gpu-3-and-daemon-json-broken", "nvml-unknown-error-xid-79"):
        out = passes.over(Path(HARD).parent / node, "--format", "node-exporter")[1]
        series = [line.rpartition(" ")[0] for line in out.splitlines() if not line.startswith("#")]
        assert len(series) == len(set(series)) and len(series) > 150


def test_a_gap_in_the_log_is_no_whole_log() -> None:
    first = log_memory.read(a_log(LOADED, ELSE, from_boot=True), log_memory.Kept(), first=True)
    later = "[ 9500.000000] eth0: link up again"
    then = log_memory.read(a_log(later), kept_of(first), first=False)
    assert not then.log.from_boot and then.log.text == f"{later}\n"
    # An error is told all the same.
    wrong = log_memory.read(a_log(LOADED, XID, ELSE, from_boot=True), log_memory.Kept(), first=True)
    assert XID in log_memory.read(a_log(later), kept_of(wrong), first=False).log.text


def test_a_flood_of_lines_keeps_how_it_began_and_how_it_ended() -> None:
    lines = [f"[{number:5d}.000000] NVRM: Xid (PCI:0000:3a:00): 31, pid=1, name=a" for number in range(5000)]
    found = log_memory.read(a_log(*lines, from_boot=True), log_memory.Kept(), first=True)
    assert found.kept.dropped == 5000 - log_memory.MOST_FIRST - log_memory.MOST_LAST


def test_errors_of_the_boot_before_become_history_and_escalate(passes: Passes, healthy: DiffNode) -> None:
    healthy.say(XID)
    passes.told(healthy.place)
    healthy.booted()
    log = healthy.place / "kernel.log"
    log.write_text(log.read_text().replace(XID, "[ 5900.000000] eth0: up"))
    (healthy.place / "kernel.previous.log").write_text(f"{XID}\n{XID.replace('79', '119').replace('5900', '5950')}\n")
    answer = passes.told(aged(healthy, 60).place)
    assert [(one["code"], one["previous_boot"]) for one in answer["events"]] == [("Xid 119", True)]
    assert XIDS not in checks(answer) and ("healed", XIDS) in turns(answer)
    healthy.say(XID.replace("5900", "9900"))
    passes.told(aged(healthy, 61).place)
    told = {one["code"]: one for one in passes.history()["xids"]}
    assert (told["Xid 79"]["boots"], told["Xid 79"]["count"], told["Xid 79"]["this_boot"]) == (2, 2, 1)
    assert "2 boots" in told["Xid 79"]["escalates"] and told["Xid 119"]["escalates"] == ""


def test_the_log_of_the_boot_before_is_given_from_memory(passes: Passes, healthy: DiffNode) -> None:
    """A check compares both boots: without a journal only the memory has the one before."""
    healthy.say(XID)
    passes.told(healthy.place)
    healthy.booted()
    for minutes in (60, 61):
        answer = passes.told(aged(healthy, minutes).place)
        (wrong,) = [one for one in answer["wrong"] if one["check"] == XIDS]
        assert "the boot before" in wrong["summary"]


# Forms, cache, lock ------------------------------------------------------------------------------------------------


def test_the_last_answer_is_given_without_looking(passes: Passes, tmp_path: Path) -> None:
    passes.over(HARD, "--format", "line")
    code, out = passes.over(HARD, "--cached", "--format", "npd")
    assert (code, out) == (1, "kernel-module.gpu-bound: 8 GPUs: held by nouveau, not by nvidia\n")
    code, out = passes.over(HARD, "--cached", "--format", "npd", "--link", "toolkit")
    assert code == 1 and out.startswith(DOCKER) and len(out) <= 81
    assert passes.over(HARD, "--cached", "--format", "npd", "--link", "pcie") == (0, "5 checks passed\n")
    assert passes.over(HARD, "--cached", "--format", "npd", "--link", "cuda-init") == (0, "nothing to check\n")
    assert passes.over(HARD, "--cached", "--format", "line", "--link", "cuda-init") == (0, "PASS nothing to check\n")
    code, out = passes.over(HARD, "--cached", "--format", "npd", "--link", "driver-cuda")
    assert code in (1, 2)


@pytest.mark.parametrize("form", ["line", "nagios", "npd", "json", "node-exporter", "terminal"])
def test_a_stale_answer_is_none(passes: Passes, healthy: DiffNode, form: str) -> None:
    passes.over(healthy.place)
    assert passes.told(aged(healthy, 9).place, "--cached")["exit_code"] == 0
    code, out = passes.over(aged(healthy, 31).place, "--cached", "--format", form)
    assert code == (2 if form == "npd" else 3)
    if form not in ("node-exporter", "line"):
        assert "is 31 minutes old" in out


def test_an_answer_of_another_boot_is_none(passes: Passes, healthy: DiffNode) -> None:
    passes.over(healthy.place)
    healthy.booted()
    code, out = passes.over(healthy.place, "--cached", "--format", "nagios")
    assert code == 3 and "before the reboot" in out


def test_without_an_answer_nothing_is_known(passes: Passes) -> None:
    code, out, _ = passes("--cached", "--format", "npd")
    assert code == 2 and out.startswith("no pass has left an answer yet in")
    assert passes("--cached", "--format", "line") == (3, "UNKNOWN there is no answer of a pass\n", "")
    code, out, _ = passes("--cached", "--format", "node-exporter")
    assert code == 3 and "\ngpudoctor_verdict 3\n" in out and "gpudoctor_gpus" not in out
    assert not passes.state.exists()


def test_three_intervals_make_an_answer_stale(passes: Passes, healthy: DiffNode) -> None:
    passes.over(healthy.place)
    passes.over(aged(healthy, 20).place)
    assert passes.told(aged(healthy, 79).place, "--cached")["stale"]["why"] == ""
    assert passes.told(aged(healthy, 81).place, "--cached")["stale"]["why"] != ""


def test_files_are_written_beside(passes: Passes, tmp_path: Path) -> None:
    metrics, answer = tmp_path / "gpudoctor.prom", tmp_path / "answer"
    passes.over(HARD, "-o", metrics, "-o", f"json={answer}", "--format", "line")
    assert "gpudoctor_verdict 2" in metrics.read_text()
    assert json.loads(answer.read_text())["schema"] == "gpudoctor.health/1"
    code, _, err = passes("--node", HARD, "-o", "report.docx")
    assert code == 3 and "say which format" in err


def test_a_link_that_there_is_not_is_an_error(passes: Passes) -> None:
    code, _, err = passes("--node", HARD, "--link", "pci")
    assert code == 3 and "did you mean 'pcie'" in err


def test_a_recorded_node_without_a_place_is_not_remembered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "mine"))
    assert cli.main(["health", "--node", SOFT]) == 2
    out, err = capsys.readouterr()
    assert DOCKER in out and err == "" and not (tmp_path / "mine").exists()


class Held:
    """The lock in somebody else's hands, as of a run that began a while ago."""

    def __init__(self, state: Path, seconds: float, deadline: float = 20.0, boot_id: str = "") -> None:
        state.mkdir(exist_ok=True)
        self._handle = os.open(state / LOCK, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        began = seconds_since_boot() - seconds
        holder = Holder(os.getpid(), boot_id, began, "2026-11-29T11:58:00Z", deadline)
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, json.dumps({key: getattr(holder, key) for key in holder.__struct_fields__}).encode(), 0)

    def end(self) -> None:
        """As when the process is gone."""
        os.close(self._handle)


def test_beside_a_pass_at_work_the_last_answer_is_given(passes: Passes) -> None:
    passes.over(HARD)
    held = Held(passes.state, 1.0)
    code, out, err = passes("--node", HARD, "--format", "line")
    assert code == 2 and out.startswith(f"FAIL {BOUND}")
    assert "another pass is at work (PID" in err and len(err.splitlines()) == 1
    held.end()
    assert passes.over(HARD) == (2, "")


def test_beside_a_pass_at_work_without_an_answer_nothing_is_known(passes: Passes) -> None:
    held = Held(passes.state, 1.0)
    code, out, err = passes("--node", HEALTHY, "--format", "nagios")
    assert code == 3 and "another pass is at work" in out and "there is no answer yet" in err
    held.end()


def test_a_pass_that_does_not_end_is_a_finding_told_once(passes: Passes, golden: Golden) -> None:
    passes.over(HEALTHY)
    held = Held(passes.state, 3000.0)
    code, out, err = passes("--node", HEALTHY)
    assert (code, err) == (2, "") and "has not ended" in out and NOT_ENDED in out
    assert passes.over(HEALTHY) == (2, "")
    answer = passes.told(HEALTHY)
    assert (answer["earlier"]["pid"], answer["wrong"][0]["times"]) == (os.getpid(), 3)
    code, out = passes.over(HEALTHY, "--cached", "--format", "npd", "--link", "driver-cuda")
    assert code == 1 and out.startswith(NOT_ENDED)
    held.end()
    answer = passes.told(HEALTHY)
    assert turns(answer) == [("healed", NOT_ENDED)] and answer["exit_code"] == 0
    assert passes.history("--check", NOT_ENDED)["episodes"][0]["times"] == 3


def test_a_pass_of_another_node_that_shares_the_directory_does_not_hang(passes: Passes) -> None:
    """Its PID and its seconds since the boot mean nothing here."""
    passes.over(HEALTHY)
    held = Held(passes.state, 3000.0, boot_id="99999999-2222-4333-8444-555555555555")
    code, out, err = passes("--node", HEALTHY)
    assert (code, out) == (0, "") and "another pass is at work" in err
    held.end()
    held = Held(passes.state, 3000.0, boot_id=Path(BOOT_ID).read_text().strip())
    assert passes("--node", HEALTHY)[0] == 2
    held.end()


def test_a_pass_that_sleeps_in_the_driver_is_told_with_its_stack(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = EarlierRun("D", "[<0>] nvidia_close+0x1/0x2 [nvidia]", stuck=True)
    monkeypatch.setattr("gpudoctor.probes.earlier_run.look_at_run", lambda pid, seconds: stuck)
    held = Held(passes.state, 9.0)
    answer = passes.told(HEALTHY)
    assert (answer["exit_code"], answer["earlier"]["state"]) == (2, "D")
    assert "nvidia_close" in answer["wrong"][0]["evidence"][0]["shows"]
    held.end()


def test_who_has_the_lock_is_looked_at_through_proc() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        time.sleep(0.2)
        found = look_at_run(child.pid, 0.1)
        assert found is not None and not found.stuck and found.state in ("S", "R", "D")
        # A process that is younger than the run has only its number.
        assert look_at_run(child.pid, 5000.0) is None
    finally:
        child.kill()
        child.wait()
    assert look_at_run(child.pid, 0.1) is None


def test_where_the_memory_lies(tmp_path: Path) -> None:
    assert state_directory("/x", {"STATE_DIRECTORY": "/y"}, 0) == Path("/x")
    assert state_directory(None, {"STATE_DIRECTORY": "/y:/z"}, 0) == Path("/y")
    assert state_directory(None, {}, 0) == Path("/var/lib/gpudoctor")
    assert state_directory(None, {"XDG_STATE_HOME": "/s", "HOME": "/h"}, 1) == Path("/s/gpudoctor")
    assert state_directory(None, {"HOME": "/h"}, 1) == Path("/h/.local/state/gpudoctor")
    with pytest.raises(NoPlaceError, match="neither --state"):
        state_directory(None, {}, 1)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(NoPlaceError, match="others can write there"):
        made(tmp_path / "open")


def test_a_plain_run_knows_no_database() -> None:
    program = (
        "import sys; from gpudoctor.cli import main; main(sys.argv[1:]); "
        "sys.stderr.write(' '.join(one for one in ('sqlite3', 'rich', 'psutil') if one in sys.modules))"
    )
    for words, loaded in (
        (["run", "--format", "json"], ""),
        (["health", "--cached", "--format", "npd"], ""),
    ):
        command = [sys.executable, "-c", program, *words, "--node", HEALTHY]
        command += ["--state", "/nonexistent"] if words[:2] == ["health", "--cached"] else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stderr == loaded, words


def test_a_recording_has_a_time_of_its_own(passes: Passes) -> None:
    assert passes.told(HEALTHY)["at"] == "2026-11-29T12:00:00Z"
