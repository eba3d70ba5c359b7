"""`gpudoctor health` where it could alarm in vain or lose something: what is left alone, what waits, what comes and goes, what is stale."""

import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import cli
from gpudoctor.health import cached
from gpudoctor.health.answer import Earlier, LinkState, State, Turn
from gpudoctor.health.cached import NOT_ENDED
from gpudoctor.health.episodes import MOST_OPEN, WAITS, Episode, Fate, Ledger, Now, Rules, Seen
from gpudoctor.health.lock import Holder, locked, seconds_since_boot
from gpudoctor.health.one_pass import _interval
from gpudoctor.health.places import DATABASE, LAST, LOCK
from gpudoctor.health.store import Store
from gpudoctor.probes.earlier_run import EarlierRun
from gpudoctor.report import Overall
from gpudoctor.reports.health_forms import line
from gpudoctor.verdicts import Status
from tests.diff_node import HOSTNAME, DiffNode
from tests.health_passes import HARD, HEALTHY, SOFT, Passes, aged, checks, turns
from tests.live_root import (
    alone_with_its_workers,  # noqa: F401 - a fixture that each test uses
    healthy_nvml,
    make_root,
    with_nvml,
)

DOCKER, REMAP, PRESENT = "toolkit.docker-runtime", "health.row-remap-failed", "pcie.gpus-present"
LEFT, GONE, XIDS = "gpu-missing-with-last-xid", "0000:5d:00.0", "driver-cuda.xids"
"""A node that GPU has left, and the check that had told of its error."""


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., DiffNode]:
    """A changed copy of a fixture, so many minutes after it was recorded."""
    count = iter(range(1000))

    def made(minutes: float, *changes: Callable[[DiffNode], Any], name: str = "h100x8") -> DiffNode:
        copy = DiffNode(name, tmp_path / f"node{next(count)}")
        for change in changes:
            change(copy)
        return aged(copy, minutes)

    return made


def sick(node: DiffNode) -> None:
    """0000:5d:00.0 could not remap a row, which only NVML tells."""
    node.gpu(3, row_remap__failed=True)


def without_nvml(node: DiffNode) -> None:
    """Nobody has asked NVML."""
    (node.place / "answers" / "nvml.json").unlink()


def expecting_nothing(node: DiffNode) -> None:
    """How many GPUs there should be is not configured."""
    manifest = json.loads((node.place / "snapshot.json").read_text("utf-8"))
    node.manifest(config={key: value for key, value in manifest["config"].items() if key != "expect"})


# By the rules alone ------------------------------------------------------------------------------------------------


def seen(status: Status = Status.FAIL, finding: str = "c@gpu:x", **changes: Any) -> Seen:
    """One finding that is wrong."""
    check, _, subject = finding.partition("@")
    kind, _, key = subject.partition(":")
    fields: dict[str, Any] = {"link": "pcie", "kind": kind, "key": key, "cause": "", "summary": "bad"}
    return Seen(finding=finding, check=check, status=status, **{**fields, **changes})


class Steps:
    """Passes a minute apart, with what the memory keeps between them."""

    def __init__(self, **rules: Any) -> None:
        self.rules = Rules(**rules)
        self.elapsed = 0.0
        self.kept: list[Episode] = []
        self.ended: list[Episode] = []
        self.tracks: dict[str, tuple[float, ...]] = {}

    def __call__(self, *wrong: Seen, reboot: bool = False, at: float | None = None, **fates: Fate) -> list[str]:
        """What is told; what is not named in `fates`, by check, is seen well."""
        now = Now(self.elapsed if at is None else at, self.elapsed, 1, first=not self.elapsed)
        ledger = Ledger(self.rules, now, self.kept, self.tracks)
        if reboot:
            ledger.reboot()
        said = {one.finding: (fates.get(one.check, Fate.WELL), "b@node") for one in self.kept}
        ledger.take(wrong, said)
        self.elapsed += 60
        self.kept, self.tracks = [*ledger.open.values(), *ledger.waiting], ledger.tracks
        self.ended += ledger.ended
        return [one.turn.value for one in ledger.told]

    @property
    def counting(self) -> dict[str, Status]:
        """What counts, and as what."""
        return {one.check: one.counted for one in self.kept if one.counts and one.unseen != WAITS}


def test_what_turns_worse_and_better_all_the_time_is_told_once_and_counts_at_its_worst() -> None:
    step = Steps()
    step()
    told = [turn for number in range(20) for turn in step(seen(Status.FAIL if number % 2 else Status.WARN))]
    assert told == ["new", "better", "worse", "better", "worse", "flapping"]
    step(seen(Status.WARN))
    assert step.counting == {"c": Status.FAIL}


def test_what_flapped_and_was_well_when_last_looked_at_does_not_count_for_ever() -> None:
    step = Steps()
    step()
    for number in range(9):
        step(*([] if number % 2 else [seen()]))
    step()
    assert step.counting == {"c": Status.FAIL}
    told = [turn for _ in range(70) for turn in step(c=Fate.UNSEEN)]
    assert (told, step.counting) == (["healed"], {})


def test_what_was_bad_when_last_looked_at_counts_as_long_as_nobody_can_look() -> None:
    step = Steps()
    step(seen())
    assert [turn for _ in range(100) for turn in step(c=Fate.UNSEEN)] == []
    assert step.counting == {"c": Status.FAIL}


@pytest.mark.parametrize("fate", [Fate.UNSEEN, Fate.HIDDEN])
def test_whether_a_reboot_has_healed_is_told_by_the_first_pass_that_can_look(fate: Fate) -> None:
    for last, turn in ((seen(), "stays"), (None, "healed")):
        step = Steps()
        step(seen())
        assert step(reboot=True, c=fate) == []
        assert step(c=fate) == [] and step.counting == {}
        assert step(reboot=True, c=fate) == [] and step.ended == []
        assert step(*([last] if last else ())) == [turn]
        assert [one.ended for one in step.ended] == [Fate.REBOOT.value]
        if last:
            assert [(one.since, one.boots) for one in step.kept] == [(0.0, 2)]
            assert step.counting == {"c": Status.FAIL}


def test_nobody_waits_for_ever() -> None:
    step = Steps()
    step(seen())
    step(reboot=True, c=Fate.UNSEEN)
    step.elapsed += 31 * 86400
    assert step(c=Fate.UNSEEN) == [] and step.kept == []
    assert [one.ended for one in step.ended] == [Fate.REBOOT.value]


def test_what_is_blocked_counts_until_what_blocks_it_does() -> None:
    step = Steps()
    step(seen())
    blocker = seen(finding="b@node")
    assert step(blocker, c=Fate.HIDDEN) == []
    assert step.counting == {"c": Status.FAIL}, "neither counts while the blocker is a blip"
    assert step(blocker, c=Fate.HIDDEN) == ["new"]
    assert step.counting == {"b": Status.FAIL}


def test_what_goes_away_and_comes_back_is_damped_too() -> None:
    step = Steps(lasting=1)
    step()
    told = [turn for number in range(12) for turn in step(*([] if number % 2 else [seen()]), c=Fate.GONE)]
    assert told == ["new", "healed", "new", "healed", "new", "flapping"]


def test_a_fail_among_more_findings_than_are_followed_is_not_lost() -> None:
    step = Steps()
    step(*(seen(Status.WARN, f"w@gpu:{number}") for number in range(MOST_OPEN + 5)), seen())
    assert step.counting["c"] is Status.FAIL and len(step.kept) == MOST_OPEN


def test_a_certain_fail_is_followed_beside_any_number_of_warnings_that_were_there_before() -> None:
    step = Steps()
    warnings = [seen(Status.WARN, f"w@gpu:{number}") for number in range(MOST_OPEN)]
    step(*warnings)
    assert step(*warnings, seen(hard=True)) == ["new"]
    assert step.counting["c"] is Status.FAIL and len(step.kept) == MOST_OPEN + 1


def test_what_counts_is_told_while_what_explains_it_does_not_count() -> None:
    step = Steps()
    step(seen())
    cause = seen(finding="b@node")
    assert step(cause, seen(causes=("b@node",))) == []
    assert [one.finding for one in step.kept if one.counts and not one.follows] == ["c@gpu:x"]
    assert step(cause, seen(causes=("b@node",))) == ["new"]
    assert [one.finding for one in step.kept if one.counts and not one.follows] == ["b@node"]
    step = Steps()
    step()
    assert step(cause, seen(causes=("b@node",), hard=True)) == ["new"], "a fail that nobody was told of"
    assert step(cause, seen(causes=("b@node",), hard=True)) == ["new"]
    assert step() == ["healed", "healed"]


def test_what_came_and_went_with_its_cause_is_told_when_it_stands_alone() -> None:
    step = Steps()
    step()
    cause, other = seen(finding="b@node"), seen(causes=("b@node",))
    told = [turn for number in range(7) for turn in step(*([] if number % 2 else [cause, other]))]
    assert told == ["flapping"]
    assert step(seen()) == ["new"] and step.counting == {"b": Status.FAIL, "c": Status.FAIL}


def test_what_nobody_can_look_at_is_told_when_what_explained_it_has_healed() -> None:
    step = Steps()
    cause = seen(finding="b@node")
    assert step(cause, seen(causes=("b@node",))) == ["new"]
    assert step(cause, c=Fate.UNSEEN) == []
    assert step(seen(Status.WARN, "b@node"), c=Fate.UNSEEN) == ["better", "new"]
    assert [one.finding for one in step.kept if one.counts and not one.follows] == ["b@node", "c@gpu:x"]
    step = Steps()
    step(cause, seen(causes=("b@node",)))
    assert step(c=Fate.UNSEEN) == ["healed", "new"] and step.counting == {"c": Status.FAIL}
    assert step() == ["healed"]


def test_nothing_has_begun_in_the_future() -> None:
    step = Steps()
    step(at=90_000.0)
    step(seen(), at=90_060.0)
    assert step(seen(), at=3_660.0) == ["new"]
    assert [(one.since, one.first_at, one.last_at) for one in step.kept] == [(3_660.0,) * 3]


def test_a_pass_by_hand_or_a_long_gap_does_not_change_how_far_apart_passes_are_taken_for() -> None:
    hourly = 3600.0
    for by_hand in (5.0, 9.0, 3.0):
        hourly = _interval(by_hand, hourly)
    assert cached.stale_after(None, hourly) > 3600
    assert _interval(3600.0, 5.0) == 3600.0
    after_a_week_in_a_stopped_timer = _interval(604_800.0, 60.0)
    assert after_a_week_in_a_stopped_timer == 3600.0
    for _ in range(12):
        after_a_week_in_a_stopped_timer = _interval(60.0, after_a_week_in_a_stopped_timer)
    assert cached.stale_after(None, after_a_week_in_a_stopped_timer) == cached.SHORTEST_STALE


# Through the front door --------------------------------------------------------------------------------------------


def test_a_sick_gpu_that_leaves_the_bus_has_not_healed(passes: Passes, node: Callable[..., DiffNode]) -> None:
    passes.over(node(0).place)
    assert turns(passes.told(node(1, sick).place)) == [("new", REMAP)]
    answer = passes.told(node(2, expecting_nothing, name=LEFT).place)
    assert (answer["exit_code"], answer["changes"]) == (2, [])
    (wrong,) = answer["wrong"]
    assert (wrong["check"], wrong["state"], wrong["why"]) == (REMAP, "unseen", "the GPU is no longer on the PCI bus")
    answer = passes.told(node(3).place)
    assert (answer["exit_code"], turns(answer)) == (0, [("healed", REMAP)])


def test_a_gpu_whose_error_the_bus_tells_of_now_has_not_healed(passes: Passes, node: Callable[..., DiffNode]) -> None:
    """driver-cuda.xids leaves it to pcie.gpus-present, and no longer applies to it."""

    def fell_off(one: DiffNode) -> None:
        one.say(
            f"[ 2212.406124] NVRM: Xid (PCI:{GONE[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
        )

    passes.over(node(0, expecting_nothing).place)
    passes.over(node(1, expecting_nothing, fell_off).place)
    assert turns(passes.told(node(2, expecting_nothing, fell_off).place)) == [("new", XIDS)]
    for minutes, turned in ((3, []), (4, [("new", PRESENT)])):
        answer = passes.told(node(minutes, expecting_nothing, name=LEFT).place)
        assert (answer["exit_code"], turns(answer)) == (1, turned)
        assert (XIDS, "unseen") in [(one["check"], one["state"]) for one in answer["wrong"]]


def test_a_switch_that_leaves_the_bus_has_not_healed(passes: Passes, node: Callable[..., DiffNode]) -> None:
    device = "/sys/devices/pci0000:70/0000:70:01.0/0000:71:00.0"

    def undriven(one: DiffNode) -> None:
        one.text(f"{device}/driver", None)

    def gone(one: DiffNode) -> None:
        one.text("/sys/bus/pci/devices/0000:71:00.0", None)

    def of(answer: dict[str, Any], key: str) -> list[dict[str, Any]]:
        return [one for one in answer[key] if one.get("wrong", one)["check"] == "fabric.switches-seen"]

    board = "sxid-fatal-on-one-nvswitch"
    passes.told(node(0, undriven, expecting_nothing, name=board).place)
    answer = passes.told(node(1, undriven, expecting_nothing, name=board).place)
    assert [one["state"] for one in of(answer, "wrong")] == ["lasting"]
    answer = passes.told(node(2, gone, expecting_nothing, name=board).place)
    assert [(one["state"], one["why"]) for one in of(answer, "wrong")] == [
        ("unseen", "the NVSwitch is no longer on the PCI bus")
    ]
    assert of(answer, "changes") == []
    answer = passes.told(node(3, expecting_nothing, name=board).place)
    assert [one["turn"] for one in of(answer, "changes")] == ["healed"]


def test_what_explains_a_certain_fail_is_told_with_it(passes: Passes, node: Callable[..., DiffNode]) -> None:
    """A GPU that stays in D3cold does not answer: that is certain at first sight, and not told without its cause."""
    passes.over(node(0).place)
    answer = passes.told(node(1, DiffNode.booted, name="power-state-d3cold-after-vm").place)
    assert (answer["exit_code"], turns(answer)) == (2, [("new", "pcie.power-state")])
    assert checks(answer) == ["pcie.power-state"] and answer["wrong"][0]["explains"] > 0


def test_a_reboot_that_nvml_was_not_asked_after_is_told_of_when_it_is(
    passes: Passes, node: Callable[..., DiffNode]
) -> None:
    passes.over(node(0).place)
    passes.over(node(1, sick).place)
    answer = passes.told(node(2, DiffNode.booted, without_nvml).place)
    assert REMAP not in [check for _, check in turns(answer)] and REMAP not in checks(answer)
    past = next(one for one in passes.history()["episodes"] if one["check"] == REMAP)
    assert (past["state"], past["ended"]) == ("unseen", "")
    answer = passes.told(node(3, DiffNode.booted, sick).place)
    assert ("stays", REMAP) in turns(answer) and answer["exit_code"] == 2
    (wrong,) = answer["wrong"]
    assert (wrong["since"], wrong["boots"]) == ("2026-11-29T12:01:00Z", 2)


def test_a_denial_that_only_the_ring_buffer_had_has_not_healed(passes: Passes, node: Callable[..., DiffNode]) -> None:
    """It has wrapped, and a journal that still has what NVIDIA's drivers said stands before it."""

    def wrapped(one: DiffNode) -> None:
        log = one.place / "kernel.log"
        kept = [line.replace("] ", "] kernel: ", 1) for line in log.read_text().splitlines() if "NVRM" in line]
        log.write_text("\n".join((*kept, "[ 5000.000000] eth0: link up\n")))
        one.manifest(logs={"kernel.log": {"source": "the journal, then kmsg", "from_boot": False}})

    denied = "apparmor-denies-nvidia0"
    assert turns(passes.told(node(0, name=denied).place)) == [("new", "toolkit.apparmor-allows")]
    for minutes in (1, 2):
        answer = passes.told(node(minutes, wrapped, name=denied).place)
        assert (answer["exit_code"], answer["changes"], checks(answer)) == (2, [], ["toolkit.apparmor-allows"])


def test_a_node_that_nobody_has_named_yet_is_no_other_node(passes: Passes, node: Callable[..., DiffNode]) -> None:
    def nameless(one: DiffNode) -> None:
        one.text(HOSTNAME, "localhost\n")
        one.manifest(hostname="localhost")

    for minutes in (0, 1):
        passes.over(node(minutes, name="daemon-json-trailing-comma").place)
    booting = node(2, DiffNode.booted, nameless, name="daemon-json-trailing-comma")
    assert turns(passes.told(booting.place)) == [("stays", DOCKER)]
    named = node(3, DiffNode.booted, name="daemon-json-trailing-comma")
    assert turns(passes.told(named.place)) == []


def test_like_unknowns_of_eight_gpus_are_told_as_one(passes: Passes, node: Callable[..., DiffNode]) -> None:
    passes.over(node(0).place)
    answer = passes.told(node(1, without_nvml).place)
    assert turns(answer) == [("new", "driver-cuda.nvml-answers")]
    assert len(answer["wrong"]) == 1 and len(answer["wrong"][0]["subjects"]) == 8


def test_an_error_of_a_pass_that_could_not_tell_is_told_by_the_next(
    passes: Passes, node: Callable[..., DiffNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    def xid(one: DiffNode) -> None:
        one.say("[ 4990.000001] NVRM: Xid (PCI:0000:3a:00): 48, pid=1, name=x")

    passes.over(node(0).place)
    with monkeypatch.context() as broken:
        broken.setattr("gpudoctor.health_run.say", _no_room)
        assert passes("--node", node(1, xid).place)[0] == 3
    assert [one["code"] for one in passes.told(node(2, xid).place)["events"]] == ["Xid 48"]
    assert passes.told(node(3, xid).place)["events"] == []


def _no_room(text: str) -> None:
    raise OSError(28, "No space left on device")


def test_what_another_release_has_not_reported_does_not_end_a_pass(passes: Passes) -> None:
    passes.over(HEALTHY)
    store = Store(passes.state / DATABASE)
    store._database.execute("INSERT OR REPLACE INTO state VALUES ('untold', ?)", (b'[{"turn": "odd"}]',))
    store.close()
    assert passes.over(HEALTHY) == (0, "")


def test_every_form_and_every_link_agrees_on_what_flaps(passes: Passes) -> None:
    for number in range(10):
        passes.told(SOFT if number % 2 else HEALTHY)
    answer = passes.told(HEALTHY)
    assert (answer["exit_code"], answer["wrong"][0]["status"]) == (2, "fail")
    assert {one["link"]: one["verdict"] for one in answer["links"]}["toolkit"] == "fail"
    for form, words in {"line": "FAIL ", "nagios": "GPUDOCTOR CRITICAL - ", "npd": DOCKER}.items():
        code, out = passes.over(HEALTHY, "--cached", "--format", form, "--link", "toolkit")
        assert (code, out.startswith(words)) == (1 if form == "npd" else 2, True)
    _, out = passes.over(HEALTHY, "--cached", "--format", "node-exporter")
    assert "\ngpudoctor_verdict 2\n" in out and 'gpudoctor_health_link{link="toolkit"} 2\n' in out


def test_a_stale_answer_says_well_of_no_link(passes: Passes, node: Callable[..., DiffNode]) -> None:
    passes.over(node(0).place)
    code, out = passes.over(node(60).place, "--cached", "--format", "node-exporter")
    assert (code, "gpudoctor_verdict 3" in out) == (3, True)
    links = [one for one in out.splitlines() if one.startswith("gpudoctor_health_link{")]
    assert links and all(one.endswith(" 3") for one in links)


def test_a_pass_that_hangs_is_a_fail_though_the_last_answer_is_stale(passes: Passes) -> None:
    passes.over(HARD)
    kept = cached.read(passes.state / LAST)
    assert isinstance(kept, cached.Kept)
    earlier = Earlier(4711, "2026-11-29T12:00:00Z", 100.0, "does not move (PID 4711)")
    for last in (kept, "no pass has left an answer yet"):
        old = cached.aged(last, "another boot", None, 0.0)
        assert old.verdict is Overall.UNKNOWN
        answer = cached.hung(old, earlier, first=True, times=1, now="2026-11-29T12:02:00Z")
        assert line(answer).startswith(f"FAIL {NOT_ENDED}: ")
        assert all(one.state is State.UNSEEN and one.why for one in answer.wrong[1:])
        assert LinkState("driver-cuda", Overall.FAIL, f"{NOT_ENDED}: {answer.wrong[0].summary}") in answer.links
        assert [change.turn for change in answer.changes] == [Turn.NEW]


def test_a_hang_does_not_keep_the_other_links_well(
    passes: Passes, node: Callable[..., DiffNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes.over(node(0).place)
    stuck = EarlierRun("D", "", stuck=True)
    monkeypatch.setattr("gpudoctor.probes.earlier_run.look_at_run", lambda pid, seconds: stuck)
    mine = Holder(1, "", seconds_since_boot(), "2026-11-29T12:00:00Z", 20.0)
    with locked(passes.state / LOCK, mine):
        codes = []
        for minutes in (5, 9, 12, 16):
            assert passes.told(node(minutes).place)["exit_code"] == 2
            codes.append(passes.over(node(minutes).place, "--cached", "--format", "line", "--link", "pcie")[0])
    assert codes == [0, 0, 3, 3]


def test_a_lasting_fault_costs_every_reader_one_pass_at_most(passes: Passes) -> None:
    passes.over(HEALTHY)
    passes.over(SOFT)
    code, out = passes.over(SOFT)
    assert code == 2 and DOCKER in out
    for form, code in {"nagios": 2, "line": 2, "npd": 1, "node-exporter": 2, "json": 2, "terminal": 2}.items():
        assert passes.over(SOFT, "--cached", "--format", form)[0] == code


def test_with_a_closed_stdout_a_quiet_pass_is_what_it_is(tmp_path: Path) -> None:
    command = f"{sys.executable} -m gpudoctor health --state {tmp_path}/state --node"
    for node, code, words in ((HEALTHY, 0, ""), (HARD, 3, "there is no stdout")):
        done = subprocess.run(["sh", "-c", f"{command} {node} >&-"], capture_output=True, text=True, check=False)
        assert (done.returncode, words in done.stderr, "itself failed" in done.stderr) == (code, True, False)


# NVML on an idle node ----------------------------------------------------------------------------------------------


def test_an_idle_node_with_another_library_than_module_is_told_without_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    module = root / "sys/module/nvidia"
    (module / "holders").mkdir(parents=True, exist_ok=True)
    (module / "refcnt").write_text("0\n")
    version = root / "proc/driver/nvidia/version"
    version.write_text(version.read_text().replace("550.163.01", "550.54.15"))
    (module / "version").write_text("550.54.15\n")
    code = cli.main(["health", "--root", str(root), "--state", str(tmp_path / "state"), "--format", "json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["nvml"].startswith("not asked: ")
    assert code == 2 and any(one["check"].startswith("driver-cuda.") for one in answer["wrong"])


# The history -------------------------------------------------------------------------------------------------------


def test_a_clock_set_back_does_not_empty_the_history(passes: Passes, node: Callable[..., DiffNode]) -> None:
    soft = "daemon-json-trailing-comma"
    for minutes in (0, 1):
        passes.over(node(minutes, name=soft).place)
    back = aged(node(2), 3, clock_off_by=-24 * 60)
    passes.over(back.place)
    told = passes.history()
    assert told["begin"] < told["end"] and told["end"] >= "2026-11-29T12:01:00Z"
    assert "fail" in told["rows"][0]["buckets"]


def test_where_nobody_looked_nothing_is_said_to_be_well(passes: Passes) -> None:
    passes.state.mkdir()
    Store(passes.state / DATABASE).close()
    _, out, _ = passes(command="history")
    assert "no pass looked" in out and "1970" not in out
    passes.over(HEALTHY)
    assert "nothing was wrong" in passes(command="history")[1]
    late = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=400)
    assert "no pass looked" in passes("--since", f"{late:%Y-%m-%dT%H:%M:%SZ}", command="history")[1]


# msgspec without what it does not need -----------------------------------------------------------------------------

_AFTERWARDS = """
import gpudoctor, sys
assert 'platform' not in sys.modules and sys.modules.get('typing_extensions', sys) is not None
import platform, uuid, msgspec
assert platform.machine() and platform.system() == 'Linux' and uuid.uuid1().version == 1
"""
_BEFORE = "import platform, sys; import gpudoctor; assert sys.modules['platform'] is platform and platform.machine()"
_BESIDE_A_THREAD = """
import sys, threading
end = threading.Event()
threading.Thread(target=end.wait).start()
import gpudoctor
end.set()
assert 'msgspec' not in sys.modules
import msgspec, platform
assert platform.machine()
"""


@pytest.mark.parametrize("code", [_AFTERWARDS, _BEFORE, _BESIDE_A_THREAD])
def test_importing_gpudoctor_takes_nothing_from_others(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
