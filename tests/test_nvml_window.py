"""The worker's second look: which GPUs are asked again, what is kept of it, and that it never costs an answer."""

import time
from pathlib import Path
from typing import Any, cast

import pytest

from gpudoctor.facts.nvml import Nvml, normal_address
from gpudoctor.facts.raw import Answer, Question
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.nvml import ask_nvml
from gpudoctor.probes.tasks import TaskTable
from tests.live_root import (
    alone_with_its_workers,  # noqa: F401 - a fixture that each test uses
    with_nvml,
)
from tests.standin.build import Node, healthy

PAIR = ["0000:18:00.0", "0000:2a:00.0"]
HW_THERMAL = 0x40 | 0x8


class Library:
    """A root directory with the stand-in in it, and whoever asks it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        self.seconds = 0.0

    def ask(self, standin: Node, seconds: float = 9.0) -> Answer:
        """The answer about all of its GPUs, by the deadline or a second later."""
        with_nvml(self.root, self.monkeypatch, standin)
        addresses = [normal_address(device["pci_bus_id"]) for device in standin["devices"]]
        question = Question("nvml", {"addresses": addresses, "attach": True})
        started = time.monotonic()
        answer = ask_nvml(question, Deadline(seconds + 1.0), str(self.root), TaskTable())
        self.seconds = time.monotonic() - started
        assert self.seconds < seconds + 1.0
        return answer


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The stand-in in a directory of its own."""
    return Library(tmp_path / "root", monkeypatch)


def gpus(standin: Node) -> list[dict[str, Any]]:
    """A node's devices, to be changed."""
    return cast("list[dict[str, Any]]", standin["devices"])


def laters(answer: Answer) -> list[dict[str, Any] | None]:
    """What each device of an answer that ended by itself said later."""
    assert answer.error is None, answer
    return [device.get("later") for device in answer.data["devices"]]


def test_a_healthy_node_is_asked_once(library: Library) -> None:
    assert laters(library.ask(healthy(PAIR))) == [None, None]


def test_a_gpu_that_heat_slows_down_is_asked_again_and_the_other_is_not(library: Library) -> None:
    standin = healthy(PAIR)
    gpus(standin)[1]["clocks_event_reasons"] = HW_THERMAL
    gpus(standin)[1]["later"] = {"clocks_event_reasons": 0, "temperatures": [71], "clocks": [1980, 1980, 2619, 1545]}
    first, later = laters(library.ask(standin))
    assert first is None
    assert later is not None
    assert later["seconds"] >= 1.0
    assert later["fields"]["clocks_event.active"] == 0
    assert later["fields"]["temperature.gpu_celsius"] == 71
    assert later["fields"]["clocks.sm_mhz"] == 1980
    assert later["fields"]["clocks_event.hw_thermal_slowdown_nanoseconds"] == 0
    assert "nvlinks" not in later


@pytest.mark.parametrize("reasons", [0x1, 0x2, 0x4, 0x10, 0x100])
def test_idle_and_a_kept_power_limit_are_nothing_to_look_at_twice(reasons: int, library: Library) -> None:
    standin = healthy(PAIR[:1])
    gpus(standin)[0]["clocks_event_reasons"] = reasons
    assert laters(library.ask(standin)) == [None]


def test_counters_of_links_are_asked_again_after_one_pause_for_all(library: Library) -> None:
    standin = healthy([f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x18)])
    for device in gpus(standin):
        device["pcie_replays"] = 7
        device["later"] = {"pcie_replays": 9}
    links = gpus(standin)[3]["nvlinks"]
    links[5]["errors"] = [0, 4, 0, 0]
    gpus(standin)[3]["later"]["nvlinks"] = [{**link, "errors": [0, 6, 0, 0]} for link in links]
    answer = library.ask(standin)
    found = laters(answer)
    assert [later and later["fields"]["pcie.replays"] for later in found] == [9] * 8
    assert all(later is not None and 1.0 <= later["seconds"] < 3.0 for later in found)
    assert [at for at, later in enumerate(found) if later and "nvlinks" in later] == [3]
    assert found[3] is not None
    assert [link["errors"]["recovery"] for link in found[3]["nvlinks"]] == [6] * 18


def test_unsupported_requests_and_ecc_errors_are_no_reason(library: Library) -> None:
    standin = healthy(PAIR[:1])
    device = gpus(standin)[0]
    device["field_values"] = {**device["field_values"], "181": 12, "169": 40}
    device["total_ecc_errors"] = {"1.0": 3, "1.1": 9}
    assert laters(library.ask(standin)) == [None]


def test_without_time_for_it_there_is_none_and_a_note_says_so(library: Library) -> None:
    standin = healthy(PAIR)
    gpus(standin)[0]["clocks_event_reasons"] = HW_THERMAL
    answer = library.ask(standin, seconds=2.0)
    assert laters(answer) == [None, None]
    assert answer.data["notes"] == ["no second look: not enough time was left"]


def test_a_lost_gpu_is_not_asked_again(library: Library) -> None:
    standin = healthy(PAIR)
    gpus(standin)[0].update({"clocks_event_reasons": HW_THERMAL, "errors": {"nvmlDeviceGetFieldValues": 15}})
    assert laters(library.ask(standin)) == [None, None]


def test_a_gpu_that_is_lost_meanwhile_keeps_what_it_said(library: Library) -> None:
    standin = healthy(PAIR)
    gpus(standin)[0].update(
        {"clocks_event_reasons": HW_THERMAL, "later": {"errors": {"nvmlDeviceGetPcieReplayCounter": 15}}}
    )
    gpus(standin)[1].update({"pcie_replays": 1, "later": {"pcie_replays": 1}})
    first, second = laters(library.ask(standin))
    assert first is not None
    assert first["fields"]["pcie.replays"] == {"error": 15}
    assert "clocks_event.hw_thermal_slowdown_nanoseconds" not in first["fields"]
    assert second is not None
    assert second["fields"]["pcie.replays"] == 1


def test_the_fact_has_the_later_answer(library: Library) -> None:
    from gpudoctor.facts.nvml import _parse

    standin = healthy(PAIR[:1])
    gpus(standin)[0].update({"pcie_replays": 3, "later": {"pcie_replays": 5}})
    told = _parse(library.ask(standin))
    assert isinstance(told, Nvml)
    later = told.devices[0].later
    assert later is not None
    assert later.fields["pcie.replays"] == 5
    assert later.nvlinks == ()
