"""Nodes with vGPU or confidential computing: two GPUs, what NVML answers of them, services with their journals."""

from typing import Any

from gpudoctor.facts.raw import Answer, Entry, EntryType
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record
from tests.captures import crashed
from tests.gpu_node import GpuNode
from tests.small_node import alarms

GPUS = ("0000:05:00.0", "0000:06:00.0")
SERVICES = "/sys/fs/cgroup/system.slice"


class AnswerNode(GpuNode):
    """Two GPUs of which NVML answers fields that a test chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.complete = [*self.complete, "/etc"]
        self.fields: list[dict[str, Any]] = [{"mig.current": False}, {"mig.current": False}]
        self.using: list[list[dict[str, Any]]] = [[], []]
        self.system: dict[str, Any] = {}
        self.more: list[dict[str, Any]] = [{}, {}]
        self.folder(SERVICES)

    def folder(self, path: str) -> None:
        """A directory."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.DIR)))

    def uses(self, gpu: int, pid: int, **more: Any) -> None:
        """A process that computes on a GPU."""
        self.using[gpu].append({"pid": pid, "kind": "compute", "used_bytes": 1 << 30, "name": "python3", **more})

    def both(self, **fields: Any) -> None:
        """Fields of both GPUs; two underscores stand for a dot."""
        for one in self.fields:
            one.update({name.replace("__", "."): value for name, value in fields.items()})

    def answer(self) -> None:
        """Put NVML's answer together."""
        devices = [
            {
                "index": number,
                "pci_bus_id": f"0000{address}",
                "uuid": f"GPU-0000000{number}-0000-4000-8000-000000000000",
                "name": "NVIDIA H100 80GB HBM3",
                "minor": number,
                "fields": self.fields[number],
                "processes": self.using[number],
                **self.more[number],
            }
            for number, address in enumerate(GPUS)
        ]
        data = {"init": 0, "count": 2, "devices": devices, "system": {"fields": self.system}}
        self.answers["nvml"] = Answer(data=data)

    def journal(self, unit: str, text: str) -> None:
        """What a service said."""
        self.logs[f"journal/{unit}.service.log"] = text

    def report(self) -> Report:
        """The report, none of whose checks crashed."""
        self.answer()
        found = super().report()
        assert not crashed(found)
        return found

    def only(self, check: str) -> Finding:
        """The one alarm of a check."""
        (found,) = alarms(self.report(), check)
        return found
