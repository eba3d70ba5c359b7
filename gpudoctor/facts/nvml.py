"""What NVML answered, whoever asked it: the worker, a recording, or nvidia-smi's text translated."""

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.nvml_device import (
    FieldValue,
    GpuPath,
    GpuProcess,
    Later,
    MigDevice,
    MigProfile,
    NvLink,
    NvmlDevice,
    NvmlError,
)
from gpudoctor.facts.nvml_gate import may_ask
from gpudoctor.facts.raw import Answer
from gpudoctor.knowledge import nvml_errors
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

HUNG_AFTER_SECONDS = 2.0
"""A worker whose kernel stack and context-switch count stood still this long up to its deadline hangs, it is not slow."""

_BUS_ID = pattern(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


class Worker(Struct, frozen=True):
    """A worker that did not end: its process, and how long its kernel stack had not moved at the deadline."""

    pid: int = 0
    state: str = "?"
    stack: str | None = ""
    stack_unchanged_seconds: float = 0.0
    earlier: bool = False

    @property
    def stands_still(self) -> bool:
        """In uninterruptible sleep, at the same place of the kernel for longer than a slow start would be.

        Slow initialisation sleeps uninterruptibly too, but its stack and context-switch count move.
        """
        return self.state == "D" and self.stack_unchanged_seconds >= HUNG_AFTER_SECONDS

    @property
    def evidence(self) -> Evidence:
        """The task and its kernel stack, frames joined."""
        frames = (line.strip().removeprefix("[<0>] ") for line in (self.stack or "").splitlines())
        stack = "; ".join(frames) or "kernel stack not readable"
        return Evidence(f"/proc/{self.pid}/stack", f"PID {self.pid} in state {self.state}: {stack}")


class Nvml(Fact, frozen=True):
    """NVML's answers. `count` is None when it never came to counting; then a missing device says nothing.

    `system` has the fields that concern the whole node, those of confidential computing. `nics` are the adapters by what `topo -m`
    calls them.
    """

    OF = Link.DRIVER_CUDA

    via: str
    init: int | None
    driver_version: str | None
    nvml_version: str | None
    cuda_version: str | None
    count: int | None
    count_error: NvmlError | None
    devices: tuple[NvmlDevice, ...]
    failure: str | None
    ended_by: str | None
    stopped_at: str | None
    worker: Worker | None
    topology: tuple[GpuPath, ...] = ()
    system: Mapping[str, FieldValue] = {}
    nics: Mapping[str, str] = {}

    @classmethod
    def gather(cls, desk: Desk) -> "Nvml | Unread":
        """Ask the source; a live one asks NVML only when that cannot change the node."""
        answer = desk.raw.answer("nvml", lambda: may_ask(desk))
        if isinstance(answer, Unread):
            return answer
        try:
            return _parse(answer)
        except (msgspec.ValidationError, ValueError) as error:
            return Unread(Why.UNREADABLE, "the recorded NVML answers", str(error))

    def stopped_in(self, address: str) -> bool:
        """Whether the call that did not return, or in which the worker ended, was about the GPU at this address."""
        call = re.search(r"\(([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\)", self.stopped_at or "")
        return self.failure is not None and call is not None and normal_address(call[1]) == address

    def device(self, address: str) -> NvmlDevice | None:
        """The device at a PCI address (sysfs form); of several, one that has an error."""
        found = [device for device in self.devices if device.address == address]
        return next((device for device in found if device.error), found[0] if found else None)


def normal_address(bus_id: str) -> str:
    """A PCI address as sysfs writes it: lower case, a domain of at least four digits; NVML prints eight. ValueError else."""
    parts = _BUS_ID.fullmatch(bus_id.strip().lower())
    if parts is None:
        raise ValueError(f"{bus_id!r} is no PCI address")
    return f"{int(parts[1] or '0', 16):04x}:{parts[2]}"


class _Device(Struct):
    index: int | None = None
    pci_bus_id: str | None = None
    uuid: str | None = None
    name: str | None = None
    minor: int | None = None
    serial: str | None = None
    error: NvmlError | None = None
    fields: dict[str, FieldValue] = {}
    nvlinks: tuple[NvLink, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    mig_devices: tuple[MigDevice, ...] | None = None
    mig_profiles: tuple[MigProfile, ...] = ()
    later: Later | None = None


class _System(Struct, frozen=True):
    topology: tuple[GpuPath, ...] = ()
    nics: dict[str, str] = {}
    fields: dict[str, FieldValue] = {}


class _Data(Struct):
    """The `data` of answers/nvml.json."""

    init: int | None = None
    said: str = ""
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_driver_version: int | None = None
    count: int | None = None
    count_error: NvmlError | None = None
    devices: tuple[_Device, ...] = ()
    system: _System = _System()


class _Failure(Struct):
    """The `error` of answers/nvml.json."""

    why: str
    detail: str = ""
    signal: str | None = None
    exit: str | int | None = None


def _parse(answer: Answer) -> Nvml | Unread:
    """Raises ValidationError or ValueError for an answer that is not of the documented form."""
    if answer.schema != 1:
        raise ValueError(f"schema {answer.schema}, this gpudoctor reads schema 1")
    failure = msgspec.convert(answer.error, _Failure) if answer.error is not None else None
    match failure:
        case _Failure(why="withheld"):
            return Unread(Why.WITHHELD, "NVML was not asked", failure.detail, would_need="the missing pieces")
        case _Failure(why="no-permission"):
            needed = "root; in a container, access to the host's devices (privileged)"
            return Unread(Why.NO_PERMISSION, "NVML was not asked", failure.detail, would_need=needed)
        case _Failure(why="unavailable"):
            needed = "pip install nvidia-ml-py"
            return Unread(Why.NOT_ANSWERED, "NVML was not asked", failure.detail, would_need=needed)
        case _Failure(why=why) if why not in ("timed-out", "crashed"):
            raise ValueError(f"unknown reason {why!r}")
    data = msgspec.convert(answer.data, _Data)
    worker = msgspec.convert(answer.worker, Worker) if answer.worker is not None else None
    return _record(answer, data, failure, worker)


def _record(answer: Answer, data: _Data, failure: _Failure | None, worker: Worker | None) -> Nvml:
    stopped_at = answer.stopped_at or "nvmlInit"
    return Nvml(
        via=answer.via,
        init=data.init,
        driver_version=data.driver_version,
        nvml_version=data.nvml_version,
        cuda_version=_cuda_version(data.cuda_driver_version),
        count=data.count,
        count_error=data.count_error,
        devices=tuple(_device(device, answer.via) for device in data.devices),
        failure=failure.why if failure else None,
        ended_by=failure.signal or (str(failure.exit) if failure.exit is not None else None) if failure else None,
        stopped_at=answer.stopped_at,
        worker=worker,
        topology=data.system.topology,
        system=data.system.fields,
        nics=data.system.nics,
        read_from={
            "init": Evidence(_asked(answer.via, "nvmlInit"), data.said or _describe(data.init)),
            "count": Evidence(_asked(answer.via, "nvmlDeviceGetCount"), _count(data)),
            "stopped_at": Evidence(_asked(answer.via, stopped_at), "gave no answer"),
            "worker": worker.evidence if worker else Evidence("NVML worker", "ended"),
        },
    )


def _describe(code: int | None) -> str:
    return "gave no answer" if code is None else nvml_errors.describe(code)


def _count(data: _Data) -> str:
    return data.count_error.text if data.count_error else str(data.count)


def _asked(via: str, call: str) -> str:
    return f"NVML {call}" if via == "NVML" else via


def _device(device: _Device, via: str) -> NvmlDevice:
    error = device.error
    where = _asked(via, error.call if error and error.call else "nvmlDeviceGetUUID")
    shows = (error.said or error.text) if error else f"{device.pci_bus_id} is {device.name}, {device.uuid}"
    seen = Evidence(where, shows)
    return NvmlDevice(
        index=device.index,
        address=normal_address(device.pci_bus_id) if device.pci_bus_id else None,
        uuid=device.uuid or None,
        name=device.name,
        error=error,
        minor=device.minor,
        serial=device.serial or None,
        via=via,
        fields=device.fields,
        nvlinks=device.nvlinks,
        processes=device.processes or (),
        lists_processes=device.processes is not None,
        mig_devices=device.mig_devices or (),
        mig_profiles=device.mig_profiles,
        lists_mig=device.mig_devices is not None,
        later=device.later,
        read_from={"uuid": seen, "error": seen},
    )


def _cuda_version(number: int | None) -> str | None:
    """NVML gives 1000 * major + 10 * minor (nvml.h, nvmlSystemGetCudaDriverVersion_v2)."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
