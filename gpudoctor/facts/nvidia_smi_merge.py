"""Several outputs of nvidia-smi on one node, put together into one answer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpudoctor.facts.nvidia_smi_device import Draft
from gpudoctor.facts.raw import Answer
from gpudoctor.knowledge import nvml_errors

_LISTS = {"nvlinks": "link", "mig_devices": "index"}
"""Lists of a device whose members have a number."""
_MOST_NAMED = 6
_DOTS = "..."


def merged(answers: Sequence[Answer]) -> Answer:
    """One answer; where two say different things of one thing, the earlier counts. At least one is needed.

    When the first says that NVML did not start, that is the answer.
    """
    first = answers[0]
    if len(answers) == 1 or first.data.get("init", nvml_errors.SUCCESS) != nvml_errors.SUCCESS:
        return first
    data: dict[str, Any] = {}
    devices = _Devices()
    systems: list[Mapping[str, Any]] = []
    used: list[str] = []
    for answer in answers:
        if answer.data.get("init", nvml_errors.SUCCESS) != nvml_errors.SUCCESS:
            continue
        about_node = {key: value for key, value in answer.data.items() if key not in ("devices", "system")}
        adds = devices.add(answer.data.get("devices", ())) or not about_node.keys() <= data.keys()
        data = {**about_node, **data}
        systems.append(answer.data.get("system", {}))
        if (adds or systems[-1]) and answer.via not in used:
            used.append(answer.via)
    if devices.listed:
        data["devices"] = devices.listed
        # That there are none is said by whoever could reach none of those that there are.
        if data.get("count") == 0:
            del data["count"]
    system = _together(systems)
    return Answer(data={**data, **({"system": system} if system else {})}, via=_named(used))


def same_place(bus_id: str) -> str:
    """An address without what its spellings differ in: capitals, and how long a domain is."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


class _Devices:
    """Devices of several answers, each found again by its address, UUID or index."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self._by_key: dict[str, dict[str, Any]] = {}

    def add(self, devices: Iterable[Mapping[str, Any]]) -> bool:
        """What another answer says; gives whether it says more. An index alone makes no device where others are known by more."""
        is_first, adds = not self.listed, False
        for device in devices:
            keys = _keys(device)
            same = (self._by_key[key] for key in keys if key in self._by_key)
            known = next((found for found in same if not _differs(found, device)), None)
            if known is not None:
                adds = _fill(known, device) or adds
            elif is_first or "error" in device or any(not key.startswith("index ") for key in keys):
                known, adds = {**device}, True
                self.listed.append(known)
            else:
                continue
            for key in _keys(known):
                self._by_key.setdefault(key, known)
        return adds


def _keys(device: Mapping[str, Any]) -> list[str]:
    said = [f"bus {same_place(device['pci_bus_id'])}"] if "pci_bus_id" in device else []
    return said + [f"{name} {device[name]}" for name in ("uuid", "index") if name in device]


def _differs(known: Mapping[str, Any], device: Mapping[str, Any]) -> bool:
    """Masked UUIDs are equal for all GPUs of a machine; an address is not, nor, where one has no address, an index."""
    if "pci_bus_id" in known and "pci_bus_id" in device:
        return same_place(known["pci_bus_id"]) != same_place(device["pci_bus_id"])
    return "index" in known and "index" in device and bool(known["index"] != device["index"])


def _fill(known: dict[str, Any], device: Mapping[str, Any]) -> bool:
    """Add what is not known yet; gives whether there was any."""
    before = {**known}
    for key, value in device.items():
        if key == "fields":
            draft = Draft()
            draft.fields = dict(known.get(key, {}))
            for field, told in value.items():
                draft.put(field, told)
            known[key] = draft.fields
        elif key in _LISTS:
            known[key] = _numbered(known.get(key, ()), value, _LISTS[key])
        elif key == "name" and str(known.get(key, "")).endswith(_DOTS):
            known[key] = value
        else:
            known.setdefault(key, value)
    return known != before


def _numbered(
    known: Iterable[Mapping[str, Any]], more: Iterable[Mapping[str, Any]], number: str
) -> list[dict[str, Any]]:
    """Members of two lists, those of one number together."""
    members: dict[Any, dict[str, Any]] = {}
    for member in (*known, *more):
        before = members.get(member.get(number), {})
        errors = {**member.get("errors", {}), **before.get("errors", {})}
        members[member.get(number)] = {**member, **before, **({"errors": errors} if errors else {})}
    return list(members.values())


def _together(systems: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    together: dict[str, Any] = {}
    pairs: dict[frozenset[str], dict[str, Any]] = {}
    for system in systems:
        for pair in system.get("topology", ()):
            known = pairs.setdefault(frozenset((pair["from"], pair["to"])), {})
            access = {**pair.get("p2p", {}), **known.get("p2p", {})}
            known |= {**pair, **known, **({"p2p": access} if access else {})}
        for key, value in system.items():
            if key == "topology":
                # Whether two GPUs reach each other is nothing without the way they are joined, which another output tells.
                together[key] = [pair for pair in pairs.values() if "path" in pair]
            elif isinstance(value, dict):
                together[key] = {**value, **together.get(key, {})}
            else:
                together.setdefault(key, value)
    return together


def _named(commands: Sequence[str]) -> str:
    more = len(commands) - _MOST_NAMED
    return "; ".join([*commands[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
