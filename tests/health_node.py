"""A healthy HGX H100 node whose GPUs NVML answers otherwise for, as a test wants it: the fixture h100x8 with some answers changed."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gpudoctor.facts.raw import Answer, Gate, Question
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Report
from gpudoctor.run import Selection, run
from gpudoctor.testing import config_of
from gpudoctor.verdicts import Status, Unread
from tests.altered import Altered

ALARMS = (Status.WARN, Status.FAIL)
HEALTH = (
    "health.temperature",
    "health.memory-temperature",
    "health.throttling",
    "health.power-limit",
    "health.clocks",
    "health.mig-mode-pending",
    "health.persistence-mode",
    "health.compute-mode",
    "health.vbios-agrees",
    "health.stragglers",
    "health.memory-without-process",
    "health.pcie-replays",
    "health.pcie-under-load",
)


class HealthNode(Altered):
    """Eight idle GPUs, all well, until a test says otherwise."""

    def __init__(self, name: str = "h100x8") -> None:
        super().__init__(name)
        answer = self.whole.answer("nvml", lambda: Question("nvml"))
        assert isinstance(answer, Answer)
        self.config = config_of(self.whole)
        self.nvml = replace(answer, data=copy.deepcopy(answer.data))
        self.answers["nvml"] = self.nvml
        self._asked: set[str] = set()

    @property
    def devices(self) -> list[dict[str, Any]]:
        """NVML's devices, to be changed."""
        found: list[dict[str, Any]] = self.nvml.data["devices"]
        return found

    def fields(self, fields: Mapping[str, Any], *, gpus: Sequence[int] | None = None) -> None:
        """Other values of some fields at some GPUs, or all."""
        for index in range(len(self.devices)) if gpus is None else gpus:
            self.devices[index]["fields"].update(fields)

    def later(self, fields: Mapping[str, Any], *, gpu: int = 0, seconds: float = 1.02) -> None:
        """What a second look at a GPU shows."""
        self.devices[gpu]["later"] = {"seconds": seconds, "fields": dict(fields)}

    def held_by(self, *holders: Mapping[str, Any], hidden: int = 0) -> None:
        """Who has nodes of the driver open."""
        self.answers["holders"] = Answer(data={"holders": list(holders), "hidden": hidden}, via="/proc")

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """An answer; remembers that it was asked for."""
        self._asked.add(name)
        return super().answer(name, gate)

    def was_asked(self, name: str) -> bool:
        """Whether anything wanted that answer."""
        return name in self._asked

    def address(self, index: int) -> str:
        """A GPU's address as sysfs writes it."""
        return str(self.devices[index]["pci_bus_id"])[-12:].lower()

    def report(self) -> Report:
        """The whole report."""
        assert self.whole.manifest is not None
        return run(self, self.config, built_in(), Selection(), self.whole.manifest.recorded_at)

    def says(self, check: str, gpu: int = 0) -> Finding:
        """What a check says of a GPU."""
        return find(self.report(), check, self.address(gpu))


def find(report: Report, check: str, key: str) -> Finding:
    """The finding about a subject."""
    (found,) = (finding for finding in report.result(check).findings if finding.subject.key == key)
    return found


def alarms(report: Report) -> list[tuple[str, str, Status]]:
    """Root causes by check, subjects and status."""
    return [
        (cause.check, subject.key, cause.status)
        for cause in report.root_causes
        for subject in cause.subjects
        if cause.status in ALARMS
    ]


def shown(finding: Finding) -> str:
    """The words of all evidence."""
    return "; ".join(f"{evidence.where}: {evidence.shows}" for evidence in finding.evidence)
