"""The GPUs of a report's details: a row for each on the bus, and for each that only NVML knows of.

NVML is quoted only when a check asked it, and no GPU is woken up: what is read here is what checks read, or files of sysfs that the
kernel answers without the device.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gpudoctor.detailing.gpu_counters import counted_any, counters
from gpudoctor.detailing.gpu_processes import Holding
from gpudoctor.details import GpuDetail
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_errors import GpuErrors
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import DEVICES, PciGpu, PciGpus
from gpudoctor.facts.pci_link import GpuLinks
from gpudoctor.facts.pci_state import PciStates
from gpudoctor.facts.platform import PlatformGpu
from gpudoctor.facts.raw import Absent, TextFile, decimal
from gpudoctor.knowledge import clocks_events
from gpudoctor.verdicts import Unread, Why

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
"""GT/s of a lane by PCIe generation (PCI Express Base Specification, Link Capabilities 2 Register)."""
_UNNAMED = "of an unknown profile"
_HOTTEST = ("temperature.max_gpu_celsius", "temperature.slowdown_celsius", "temperature.shutdown_celsius")
"""What a GPU may be at the most, the lowest first; not every board tells all (nvml.h, nvmlTemperatureThresholds_t)."""


def rows(desk: Desk) -> tuple[GpuDetail, ...] | Unread:
    """By address; those that only NVML knows of come last, as on WSL2 or where nvidia-smi's text is all there is."""
    pci = desk.get(PciGpus)
    answered = desk.known(Nvml)
    on_bus = () if isinstance(pci, Unread) else pci.gpus
    known = {gpu.address for gpu in on_bus}
    others = [one for one in (answered.devices if answered else ()) if one.address not in known]
    if not on_bus and not others:
        return pci if isinstance(pci, Unread) else _none(desk)
    table = _Table(desk)
    return (*(table.row(gpu) for gpu in on_bus), *(table.beyond(device) for device in others))


def _none(desk: Desk) -> Unread:
    """Why there is no row."""
    apart = desk.get(PlatformGpu)
    kind = apart.kind if isinstance(apart, PlatformGpu) else None
    if kind is None:
        return Unread(Why.NOT_ANSWERED, "", PciGpus.NOTHING)
    asked = desk.asked(Nvml)
    lists = "NVML lists none" if isinstance(asked, Nvml) and asked.failure is None else "NVML did not list it"
    if isinstance(asked, Unread):
        lists = f"NVML was not asked: {asked.detail}" if asked.why is Why.WITHHELD else f"NVML: {asked.detail}"
    return Unread(Why.NOT_ANSWERED, "", f"on {kind.value} the GPU is no function on PCI; {lists}")


class _Table:
    """The facts that rows are made of."""

    def __init__(self, desk: Desk) -> None:
        self._raw = desk.raw
        self._nvml = desk.asked(Nvml)
        self._driver = desk.get(DriverGpus)
        self._links = desk.get(GpuLinks)
        self._states = desk.known(PciStates)
        self._errors = desk.known(GpuErrors)
        self._holding = Holding(desk)

    def row(self, gpu: PciGpu) -> GpuDetail:
        """One that the bus shows."""
        device = self._nvml.device(gpu.address) if isinstance(self._nvml, Nvml) else None
        said = None if isinstance(self._driver, Unread) else self._driver.gpus.get(gpu.address)
        told = said if isinstance(said, DriverGpu) else None
        link, most = self._link(gpu, device)
        logged = self._errors.identity(gpu.address) if self._errors is not None else None
        minor = told.minor if told is not None else None
        minor = device.minor if minor is None and device is not None else minor
        state = self._states.by_address.get(gpu.address) if self._states is not None else None
        row = GpuDetail(
            address=gpu.address,
            minor=minor,
            name=(device and device.name) or (told and told.model) or None,
            uuid=(device and device.uuid) or (told and told.uuid) or (logged and logged.uuid) or None,
            serial=_serial(device) or (logged and logged.serial) or None,
            vbios=_text(device, "vbios_version") or (told and told.vbios) or None,
            driver=gpu.driver if isinstance(gpu.driver, str) else None,
            numa=self._numa(gpu.address),
            link=link,
            link_most=most,
            errors=counters(device, state, self._errors, gpu.address),
            processes=self._holding.of(device, minor),
            unread=tuple(self._unread(gpu, device, said)),
        )
        return _measured(row, device)

    def beyond(self, device: NvmlDevice) -> GpuDetail:
        """One that only NVML knows of."""
        numa = decimal(_text(device, "affinity.numa_nodes") or "")
        row = GpuDetail(
            address=device.address or "",
            minor=device.minor,
            name=device.name,
            uuid=device.uuid,
            serial=_serial(device),
            vbios=_text(device, "vbios_version"),
            numa=numa,
            link=_generation(_number(device, "pcie.generation"), _number(device, "pcie.width")),
            link_most=_generation(_number(device, "pcie.max_generation"), _number(device, "pcie.max_width")),
            errors=counters(device, None, self._errors, device.address or ""),
            processes=self._holding.of(device, device.minor),
            unread=(*_refused(device), *_untold(device)),
        )
        return _measured(row, device)

    def _numa(self, address: str) -> int | None:
        """Sysfs answers this without asking the device; -1 is a platform that does not tell."""
        file = self._raw.read(f"{DEVICES}/{address}/numa_node")
        text = file.text.strip() if isinstance(file, TextFile) else ""
        return -1 if text == "-1" else decimal(text)

    def _link(self, gpu: PciGpu, device: NvmlDevice | None) -> tuple[str | None, str | None]:
        """What it runs at, and what both ends allow: by sysfs, else by NVML."""
        path = () if isinstance(self._links, Unread) else self._links.by_address.get(gpu.address, ())
        now = most = None
        if not isinstance(path, Unread) and path:
            below = path[0].below
            now = _speed(below.current_speed, below.current_width)
            most = _speed(path[0].allowed_speed, path[0].allowed_width) or _speed(below.max_speed, below.max_width)
        if device is not None:
            now = now or _generation(_number(device, "pcie.generation"), _number(device, "pcie.width"))
            most = most or _generation(_number(device, "pcie.max_generation"), _number(device, "pcie.max_width"))
        return now, most

    def _unread(
        self, gpu: PciGpu, device: NvmlDevice | None, said: DriverGpu | Absent | Unread | None
    ) -> Iterator[str]:
        """Why a part of the row is empty."""
        if isinstance(gpu.driver, Unread) and isinstance(said, Unread) and gpu.driver.detail == said.detail:
            yield f"which driver holds it, and what that says of it: {said.detail}"
        elif isinstance(gpu.driver, Unread):
            yield f"which driver holds it: {gpu.driver.detail}"
        elif isinstance(said, Unread):
            yield f"{said.where}: {said.detail}"
        if gpu.withholds_registers:
            yield "it sleeps: reading its registers would wake it up"
        yield from self._silence(gpu.address, device)

    def _silence(self, address: str, device: NvmlDevice | None) -> Iterator[str]:
        """Why NVML says nothing of it, or not all."""
        if self._nvml is None:
            yield "NVML was not asked in this run"
        elif isinstance(self._nvml, Unread):
            where, detail = self._nvml.where, self._nvml.detail
            yield detail if where.lower() == "nvml" else f"{where}: {detail}"
        elif device is not None:
            yield from _refused(device)
            yield from _untold(device)
        elif self._nvml.failure is None:
            yield f"{self._nvml.via} does not list it"
        if isinstance(self._nvml, Nvml) and self._nvml.failure is not None:
            how = "ended" if self._nvml.failure == "crashed" else "gave no answer"
            if device is None or not device.answered_any or self._nvml.stopped_in(address):
                call = (self._nvml.stopped_at or "nvmlInit").removesuffix("()")
                yield f"{self._nvml.via} {call} {how}; what comes after it was not asked"


def _refused(device: NvmlDevice) -> Iterator[str]:
    if device.error is not None:
        yield f"{device.via}{f' {device.error.call}' if device.error.call else ''}: {device.error.said or device.error.text}"


def _untold(device: NvmlDevice) -> Iterator[str]:
    """Of a device that answered, which of its lists say nothing by being empty."""
    if device.error is None and device.answered_any:
        if not device.lists_processes:
            yield f"processes: {device.via} listed none that use it, nor that there are none"
        if not counted_any(device):
            yield f"errors: {device.via} told of no counter"


# Fields of NVML -------------------------------------------------------------------------------------------------------


def _measured(row: GpuDetail, device: NvmlDevice | None) -> GpuDetail:
    """A row with what NVML alone tells."""
    if device is None:
        return row
    up, links = _nvlinks(device)
    power, limit = _number(device, "power.draw_milliwatts"), _number(device, "power.enforced_limit_milliwatts")
    limit = _number(device, "power.limit_milliwatts") if limit is None else limit
    return replace(
        row,
        index=device.index,
        nvlinks_up=up,
        nvlinks=links,
        memory_used=_number(device, "memory.used_bytes"),
        memory=_number(device, "memory.total_bytes"),
        temperature=_number(device, "temperature.gpu_celsius"),
        temperature_most=next((most for name in _HOTTEST if (most := _number(device, name)) is not None), None),
        power=None if power is None else power / 1000,
        power_limit=None if limit is None else limit / 1000,
        clock=_number(device, "clocks.sm_mhz"),
        clock_most=_number(device, "clocks.max.sm_mhz"),
        utilization=_number(device, "utilization.gpu_percent"),
        throttled=_throttled(device),
        mig=_mig(device),
        persistence=_flag(device, "persistence_mode"),
        compute_mode=_text(device, "compute_mode"),
    )


def _number(device: NvmlDevice, name: str) -> int | None:
    value = device.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flag(device: NvmlDevice, name: str) -> bool | None:
    value = device.fields.get(name)
    return value if isinstance(value, bool) else None


def _text(device: NvmlDevice | None, name: str) -> str | None:
    value = device.fields.get(name) if device is not None else None
    return value if isinstance(value, str) and value else None


def _serial(device: NvmlDevice | None) -> str | None:
    """Boards without one say zero."""
    told = device.serial if device is not None else None
    return told if told and told.strip("0") else None


def _speed(gigatransfers: float | None, lanes: int | None) -> str | None:
    return _generation(_GENERATIONS.get(gigatransfers or 0.0), lanes)


def _generation(generation: int | None, lanes: int | None) -> str | None:
    return f"Gen{generation} x{lanes}" if generation and lanes else None


def _nvlinks(device: NvmlDevice) -> tuple[int | None, int | None]:
    """How many are up of how many; of one that is not told which it is, the number that are up is not known."""
    states = [link.active for link in device.nvlinks]
    if not states:
        return _number(device, "nvlink.active_links"), None
    return (None if None in states else states.count(True)), len(states)


def _throttled(device: NvmlDevice) -> tuple[str, ...]:
    """An idle GPU clocks down because nobody needs more: nothing holds it."""
    bits = (_number(device, "clocks_event.active") or 0) & ~clocks_events.IDLE
    return tuple(clocks_events.in_words(bits).split(", ")) if bits else ()


def _mig(device: NvmlDevice) -> str | None:
    """The mode in words, with the instances there are."""
    mode, pending = _flag(device, "mig.current"), _flag(device, "mig.pending")
    if mode is None and not device.mig_devices:
        return None
    if not mode and not device.mig_devices:
        return "off, on after a reset" if pending else "off"
    counts: dict[str, int] = {}
    for one in device.mig_devices:
        profile = one.profile or _UNNAMED
        counts[profile] = counts.get(profile, 0) + 1
    listed = ", ".join(f"{count} {'x ' if profile != _UNNAMED else ''}{profile}" for profile, count in counts.items())
    words = listed or ("no instance" if device.lists_mig else "its instances were not listed")
    return f"on: {words}{'; off after a reset' if pending is False else ''}"
