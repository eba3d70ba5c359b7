"""The table that nvidia-smi prints without arguments: GPUs, MIG devices and processes in boxes; and that of `nvidia-smi vgpu`.

Layouts of drivers 352 to 610: a box's columns became wider with 525 and 590, `MIG M.` came with 450, `KMD Version` with 610. A name
that does not fit ends in dots, one of a process begins with them.
"""

import re
from typing import Any

from gpudoctor.facts.nvidia_smi_device import MOST_DEVICES, Draft, process
from gpudoctor.facts.nvidia_smi_values import cuda_version, is_bus_id, mebibytes, version
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge import nvml_errors
from gpudoctor.knowledge.nvidia_smi_texts import NOT_SUPPORTED
from gpudoctor.patterns import pattern

_MARK = pattern(
    r"^[ \t]{0,16}\|[ \t]{1,4}(?:NVIDIA-SMI \d|\d{1,4}[ \t]{1,3}\S.*\|[ \t]{1,4}[0-9A-F]{8}:[0-9A-F]{2}:)", re.MULTILINE
)
_VERSIONS = pattern(r"(KMD|Driver|CUDA UMD|CUDA) Version: ([\w.]{1,24})")
_LONGEST_LINE = 512
_MEMORY = pattern(r"\d{1,9}MiB")

ERROR = "ERR!"


def is_table(text: str) -> bool:
    """Whether a text holds such a table, whole or in part."""
    return _MARK.search(text) is not None


def from_table(text: str, *, every_gpu: bool) -> dict[str, Any]:
    """The `data` of an answer; `every_gpu` where no option chose some."""
    reader = _Reader()
    for line in text.split("\n"):
        plain = line.strip()
        if len(plain) < _LONGEST_LINE and plain.startswith("|") and plain.endswith("|"):
            reader.feed([cell.strip() for cell in plain[1:-1].split("|")])
    return reader.data(every_gpu=every_gpu)


class _Reader:
    """Rows, one after the other; a heading says of which table they are."""

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self._devices: dict[int, Draft] = {}
        self._part = "gpus"
        self._row = 0
        self._device: Draft | None = None
        self._whole = False
        self._has_instances = False

    def feed(self, cells: list[str]) -> None:
        """The cells of one line, without the blanks around them."""
        words = cells[0].split()
        if not words and self._part != "gpus":
            return
        if words[:1] == ["NVIDIA-SMI"]:
            self._take_versions(cells[0])
        elif words[:2] == ["MIG", "devices:"] or words[:1] == ["Processes:"]:
            if self._part == "mig":
                self._end_mig()
            self._part, self._whole = words[0].rstrip(":").lower(), bool(self._devices)
        elif words[:2] == ["vGPU", "ID"]:
            self._part = "vgpus"
        elif words[:1] == ["GPU"]:
            self._has_instances = "GI" in words
        elif self._part == "gpus":
            self._take_gpu(cells, words)
        elif self._part == "vgpus":
            self._take_vgpu(cells, words)
        elif self._part == "mig":
            self._take_mig(cells, words)
        else:
            self._take_process(words)

    def data(self, *, every_gpu: bool) -> dict[str, Any]:
        """All that was said. How many there are is known when another table follows that of the GPUs."""
        if not self._devices:
            return self._data
        if self._whole and every_gpu:
            self._data["count"] = len(self._devices)
        return {**self._data, "devices": [device.finished(all_reasons=False) for device in self._devices.values()]}

    def _take_versions(self, line: str) -> None:
        for name, said in _VERSIONS.findall(line):
            if name.startswith("CUDA"):
                number = cuda_version(said)
                if number is not None:
                    self._data["cuda_driver_version"] = number
            elif version(said) is not None:
                self._data["driver_version"] = said

    def _take_gpu(self, cells: list[str], words: list[str]) -> None:
        """The first of three lines begins with the number of the GPU and names its address."""
        if len(cells) != 3:
            return
        address, _, display = cells[1].partition(" ")
        number = decimal(words[0]) if len(words) > 2 and is_bus_id(address) else None
        if number is not None and number < MOST_DEVICES:
            self._device, self._row = self._devices.setdefault(number, Draft(index=number)), 1
            self._device.take("@pci_bus_id", address, "Bus-Id")
            self._take_first(self._device, words[1:], display, cells[2])
        elif self._device is not None:
            self._row += 1
            if self._row == 2 and words:
                _take_second(self._device, cells)
            elif self._row == 3:
                _take_mig_mode(self._device, cells[2])

    def _take_first(self, device: Draft, words: list[str], display: str, ecc: str) -> None:
        """Name and persistence, or on Windows the driver's model; whether a display is active; uncorrected errors."""
        *name, persistence = words
        if name == [ERROR]:
            device.fail(nvml_errors.UNKNOWN, f"Name: {ERROR}")
        else:
            device.take("@name", " ".join(name), "Name")
        device.take("persistence_mode", persistence, "Persistence-M")
        device.take("display_active", display, "Disp.A")
        _take_ecc(device, ecc)

    def _take_vgpu(self, cells: list[str], words: list[str]) -> None:
        """A GPU's line names its address; each vGPU's begins with the number of the vGPU, further in."""
        number = decimal(words[0])
        if number is None or len(cells) < 2 or (is_bus_id(cells[1]) and number >= MOST_DEVICES):
            return
        if is_bus_id(cells[1]):
            self._device = self._devices.setdefault(number, Draft(index=number))
            self._device.take("@pci_bus_id", cells[1], "Bus-Id")
            self._device.take("@name", " ".join(words[1:]), "Name")
            self._device.take("utilization.gpu_percent", cells[2] if len(cells) > 2 else "", "GPU-Util")
            self._device.put("vgpu.active", 0)
        elif self._device is not None:
            active = self._device.fields.get("vgpu.active")
            self._device.fields["vgpu.active"] = active + 1 if isinstance(active, int) else 1

    def _take_mig(self, cells: list[str], words: list[str]) -> None:
        """The first of two lines: GPU, GPU instance, compute instance, device; memory; multiprocessors and errors."""
        numbers = [decimal(word) for word in words]
        if len(numbers) != 4 or len(cells) < 3 or numbers[0] not in self._devices:
            return
        used, _, total = cells[1].partition(" / ")
        processors, *errors = cells[2].split() or ("",)
        said = {
            "index": numbers[3],
            "gpu_instance_id": numbers[1],
            "compute_instance_id": numbers[2],
            "memory_bytes": mebibytes(total.strip()),
            "used_bytes": mebibytes(used.strip()),
            "sm_count": decimal(processors),
            "ecc_uncorrected_sram": decimal(errors[0]) if errors else None,
        }
        known = {key: value for key, value in said.items() if value is not None}
        self._devices[int(words[0])].mig_devices.append(known)

    def _end_mig(self) -> None:
        """When another table follows that of MIG devices, a GPU in MIG mode that has no row there has none."""
        for device in self._devices.values():
            device.lists_mig = device.fields.get("mig.current") is True

    def _take_process(self, words: list[str]) -> None:
        """GPU, since 450 two instances, PID, type, name, memory."""
        first = 3 if self._has_instances else 1
        number = decimal(words[0])
        if number not in self._devices or len(words) < first + 4:
            return
        instances = (words[1], words[2]) if self._has_instances else ("", "")
        name = " ".join(words[first + 2 : -1])
        found = process(words[first], words[first + 1], name, words[-1], instances)
        if found:
            self._devices[number].processes.append(found)


def _take_second(device: Draft, cells: list[str]) -> None:
    """Fan, temperature, performance state, power and its limit; memory; utilisation and compute mode.

    In place of the memory of a GPU that cannot be asked stands the error.
    """
    fan, _, rest = cells[0].partition(" ")
    temperature, _, rest = rest.strip().partition(" ")
    state, _, power = rest.strip().partition(" ")
    draw, _, limit = power.strip().partition(" / ")
    used, slash, total = cells[1].partition(" / ")
    load, _, mode = cells[2].partition(" ")
    for field, text, label in (
        ("fan_percent", fan, "Fan"),
        ("temperature.gpu_celsius", temperature, "Temp"),
        ("performance_state", state, "Perf"),
        ("power.draw_milliwatts", draw, "Pwr:Usage"),
        ("power.enforced_limit_milliwatts", limit, "Pwr:Cap"),
        ("memory.used_bytes", used, "Memory-Usage"),
        ("memory.total_bytes", total if slash else used, "Memory-Usage"),
        ("utilization.gpu_percent", load, "GPU-Util"),
        ("compute_mode", mode, "Compute M."),
    ):
        device.take(field, text.strip(), label)


def _take_ecc(device: Draft, text: str) -> None:
    """The number of errors; `Off` without ECC, `On` with MIG, where there is no number for the whole GPU."""
    if text in ("On", "Off") or decimal(text) is not None:
        device.put("ecc.current", text != "Off")
    if text == "N/A":
        device.put("ecc.current", {"error": NOT_SUPPORTED})
    device.take("ecc.volatile.uncorrected", "N/A" if text in ("On", "Off") else text, "Volatile Uncorr. ECC")


def _take_mig_mode(device: Draft, text: str) -> None:
    """A star says that the other mode is pending."""
    mode = text.removesuffix("*")
    device.take("mig.current", mode, "MIG M.")
    if mode != text and isinstance(current := device.fields.get("mig.current"), bool):
        device.put("mig.pending", not current)
