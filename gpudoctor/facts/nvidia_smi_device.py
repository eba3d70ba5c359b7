"""One device of an NVML answer while nvidia-smi's output about it is read."""

from typing import Any

from gpudoctor.facts.nvidia_smi_values import MOST_TEXT, Value, error_code, error_within, is_bus_id, value_of
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge import nvml_errors
from gpudoctor.knowledge.nvidia_smi_labels import SPANS
from gpudoctor.knowledge.nvidia_smi_texts import NEEDED_REASONS, NOT_SUPPORTED, REASONS, YES

MOST_DEVICES = 1024
"""No node has more; what comes after is not read."""

_KINDS = {
    "C": "compute",
    "G": "graphics",
    "C+G": "compute+graphics",
    "M": "mps",
    "M+C": "mps",
}
"""Types of processes (nvidia-smi(1), Processes); `O`, other, has no word."""


class Draft:
    """Identity, fields, and what the device has of links, processes and instances, as they come."""

    def __init__(self, **identity: Any) -> None:
        self.data: dict[str, Any] = identity
        self.fields: dict[str, Value] = {}
        self.nvlinks: dict[int, dict[str, Any]] = {}
        self.processes: list[dict[str, Any]] = []
        self.mig_devices: list[dict[str, Any]] = []
        self.lists_mig = False
        self._reasons: dict[str, bool] = {}

    def take(self, target: str, text: str, label: str, *, without_unit: bool = False) -> None:
        """One value; `target` is a field's name, or `@` and what identifies a device; `label` is what stood before it."""
        if target.startswith("@"):
            self._identify(target[1:], " ".join(text[:MOST_TEXT].split()), label)
            return
        value = value_of(target, text, without_unit=without_unit)
        if value is not None:
            self.put(target, value)

    def put(self, field: str, value: Value) -> None:
        """The first value counts; one that is not supported under this name may be so under another."""
        if self.fields.get(field) in (None, {"error": NOT_SUPPORTED}):
            self.fields[field] = value

    def refuse(self, fields: tuple[str, ...], text: str, label: str) -> None:
        """A whole section holds an error in place of its values."""
        if error_code(text) is not None:
            for field in fields:
                self.take(field, text, label)

    def reason(self, name: str, text: str) -> None:
        """Whether a reason for lower clocks is active; what a GPU does not know is not."""
        if name in REASONS:
            self._reasons[name] = text.strip().lower() in YES

    def fail(self, code: int, said: str) -> None:
        """The device cannot be asked."""
        self.data.setdefault("error", failure(code, said))

    def finished(self, *, all_reasons: bool) -> dict[str, Any]:
        """The device as an answer has it; `all_reasons` where the output lists all that its driver knows."""
        if self._reasons and (all_reasons or self._reasons.keys() >= NEEDED_REASONS):
            active = (REASONS[name] for name, is_active in self._reasons.items() if is_active)
            self.put("clocks_event.active", sum(set(active)))
        for span in SPANS:
            self._sum_up(f"ecc.{span}.sram.uncorrected")
        parts: dict[str, Any] = {
            "fields": self.fields,
            "nvlinks": [self.nvlinks[link] for link in sorted(self.nvlinks)],
            "processes": self.processes,
            "mig_devices": self.mig_devices,
        }
        told = {name: part for name, part in parts.items() if part or (name == "mig_devices" and self.lists_mig)}
        return {**self.data, **told}

    def _identify(self, key: str, text: str, label: str) -> None:
        code = error_code(text)
        if code is not None:
            if key == "uuid" and code != NOT_SUPPORTED:
                self.fail(code, f"{label}: {text}")
        elif key in ("minor", "index"):
            number = decimal(text)
            if number is not None:
                self.data.setdefault(key, number)
        elif text and (key != "pci_bus_id" or is_bus_id(text)):
            self.data.setdefault(key, text)

    def _sum_up(self, field: str) -> None:
        """Uncorrected errors in SRAM are counted by how they were found since Ampere (nvidia-smi(1), ECC Errors)."""
        parity, secded = (self.fields.get(f"{field}_{kind}") for kind in ("parity", "secded"))
        if isinstance(parity, int) and isinstance(secded, int):
            self.put(field, parity + secded)
        elif parity is not None and parity == secded:
            self.put(field, parity)


def failure(code: int, said: str) -> dict[str, Any]:
    """The `error` of a device or of a count."""
    return {"code": code, "name": nvml_errors.NAMES.get(code, ""), "said": said}


def failure_of(said: str, message: str) -> dict[str, Any]:
    """The `error` that a sentence names, an unknown one where it names none."""
    return failure(error_within(message, nvml_errors.UNKNOWN), said)


def process(
    pid: str, kind: str = "", name: str = "", used: str = "", instances: tuple[str, str] = ("", "")
) -> dict[str, Any]:
    """A process as an answer has it, without what was not told; empty when it has no number."""
    number = decimal(pid.strip())
    if number is None:
        return {}
    said: dict[str, Any] = {"pid": number}
    if kind.strip() in _KINDS:
        said["kind"] = _KINDS[kind.strip()]
    bytes_used = value_of("memory.used_bytes", used)
    if isinstance(bytes_used, int):
        said["used_bytes"] = bytes_used
    if name.strip() and error_code(name) is None:
        said["name"] = name.strip()[:MOST_TEXT]
    for key, text in zip(("gpu_instance_id", "compute_instance_id"), instances, strict=True):
        instance = decimal(text.strip())
        if instance is not None:
            said[key] = instance
    return said


def mig_value(key: str, text: str) -> int | None:
    """A number about a MIG device."""
    if key.endswith("_bytes"):
        value = value_of("memory.used_bytes", text)
        return value if isinstance(value, int) else None
    return decimal(text.strip())
