"""What the kubelet keeps of devices and pods, kubelet_internal_checkpoint: its three shapes, its checksum, and what plugins answered.

Shapes: until Kubernetes 1.19 `DeviceIDs` is a list, since 1.20 a map from NUMA node to list (-1 for none told; kubernetes
pkg/kubelet/cm/devicemanager/checkpoint/checkpointv1.go, checkpoint.go), and newer kubelets put a `BootID` beside the data. Entries of pods
that have ended stay until the next allocation, and registered devices stay after their plugin is gone: neither proves that anything lives.

The checksum is FNV-1a of 32 bits over what go-spew prints of the data under "%#v" with sorted keys and without methods
(pkg/kubelet/checkpointmanager/checksum, k8s.io/utils/dump ForHash, davecgh/go-spew spew/format.go). A redacted recording keeps the data
in parsed form, with the checksum's verdict in its place.
"""

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.config_text import Document, Malformed, parse_json
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.raw import Absent, Listing, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

if TYPE_CHECKING:
    from gpudoctor.facts.allocate_response import AllocateResponse

NAME = "kubelet_internal_checkpoint"
OURS = "gpudoctor"
"""Key of what a redacted recording says of the file instead of its bytes."""
NVIDIA = "nvidia.com/"

_NUMBER = pattern(r"[+-]?[0-9]{1,18}")
_ANSWER = pattern(r"(\"AllocResp\"\s*:\s*\")([A-Za-z0-9+/=]+)")


class Checksum(str, Enum):
    """Whether the checksum is that of the data."""

    SOUND = "sound"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class PodDevices(Struct, frozen=True):
    """Devices of one resource that a container was given, by NUMA node: None where the shape has none, -1 where the plugin told none."""

    pod_uid: str
    container: str
    resource: str
    by_numa: Mapping[int | None, tuple[str, ...]]
    response: "AllocateResponse | Unread"

    @property
    def ids(self) -> tuple[str, ...]:
        """The devices."""
        return tuple(device for devices in self.by_numa.values() for device in devices)


class KubeletCheckpoint(Fact, frozen=True):
    """The file, `state` saying that it is missing or broken where it is; without a kubelet it is not looked for and `kubelet` is False.

    `pods` are the UIDs of the pods that have a directory on the node; looked up only where a device is in the entries of several.
    """

    kubelet: bool
    path: str = ""
    state: Absent | Malformed | None = None
    entries: tuple[PodDevices, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = {}
    boot_id: str = ""
    checksum: Checksum = Checksum.UNKNOWN
    why: str = ""
    pods: Reading[frozenset[str]] = frozenset()

    @property
    def resources(self) -> tuple[str, ...]:
        """NVIDIA's resources that a plugin registered, sorted."""
        return tuple(sorted(name for name in self.registered if name.startswith(NVIDIA)))

    @property
    def held(self) -> tuple[PodDevices, ...]:
        """What containers were given of NVIDIA's resources."""
        return tuple(entry for entry in self.entries if entry.resource.startswith(NVIDIA))

    @property
    def concerns_gpus(self) -> bool:
        """Whether a plugin of NVIDIA's was here."""
        return bool(self.resources or self.held)

    @property
    def given_twice(self) -> Mapping[str, tuple[PodDevices, ...]]:
        """NVIDIA's devices that several pods were given. Those of one pod may share: an init container leaves its own to the others."""
        holders: dict[str, dict[str, PodDevices]] = {}
        for entry in self.held:
            for device in entry.ids:
                holders.setdefault(device, {})[entry.pod_uid] = entry
        return {device: tuple(by_pod.values()) for device, by_pod in holders.items() if len(by_pod) > 1}

    def counted(self) -> Evidence:
        """The registered resources with the numbers of their devices."""
        numbers = ", ".join(f"{len(self.registered[name])} {name}" for name in self.resources)
        return Evidence(self.path, f"registered: {numbers or 'no device of NVIDIA'}")

    @classmethod
    def gather(cls, desk: Desk) -> "KubeletCheckpoint | Unread":
        """The first that is there of the places that the kubelet may have."""
        settings = desk.get(KubeletSettings)
        if isinstance(settings, Unread):
            return settings
        if settings.kubelet is None:
            return cls(kubelet=False, read_from=settings.read_from)
        paths = tuple(f"{directory}/{NAME}" for directory in settings.directories)
        file: TextFile | Absent | Unread = Absent(paths[0])
        for path in paths:
            if not isinstance(file, Absent):
                break
            looked = desk.raw.read(path)
            file = file if isinstance(looked, Absent) else looked
        if isinstance(file, Absent):
            return cls(kubelet=True, path=file.path, state=file, read_from={"file": file.evidence})
        checkpoint = file if isinstance(file, Unread) else parse(file)
        if isinstance(checkpoint, Unread) or not checkpoint.given_twice:
            return checkpoint
        listing = desk.raw.listing(f"{settings.root}/pods")
        names = listing.names if isinstance(listing, Listing) else ()
        return replace(checkpoint, pods=listing if isinstance(listing, Unread) else frozenset(names))


# The file ------------------------------------------------------------------------------------------------------------


def parse(file: TextFile) -> KubeletCheckpoint | Unread:
    """The file's content."""
    document = parse_json(file)
    if isinstance(document, Unread):
        return document
    if isinstance(document, Malformed):
        return _broken(file.path, document)
    try:
        return _parsed(file, document)
    except _NotTheShape as error:
        return _broken(file.path, Malformed(file.where, 0, 0, str(error)))


def _broken(path: str, malformed: Malformed) -> KubeletCheckpoint:
    return KubeletCheckpoint(kubelet=True, path=path, state=malformed, read_from={"file": malformed.evidence})


def _bytes(text: str) -> bytes:
    """What base64 stands for. Raises ValueError."""
    # Only where a plugin's answer was kept.
    import base64

    return base64.b64decode(text, validate=True)


class _NotTheShape(ValueError):
    """The data are not what a kubelet writes."""


def _parsed(file: TextFile, document: Document) -> KubeletCheckpoint:
    data = document.get("Data")
    if not isinstance(data, dict):
        raise _NotTheShape("holds no Data: no kubelet reads it")
    verdict, why = _verdict(document, data)
    boot_id = document.get("BootID")
    entries = tuple(_entry(file, entry) for entry in _list(data.get("PodDeviceEntries"), "PodDeviceEntries"))
    registered = {
        str(name): tuple(map(str, _list(ids, str(name)))) for name, ids in _map(data, "RegisteredDevices").items()
    }
    said = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'} of pods, Checksum {document.get('Checksum')}"
    return KubeletCheckpoint(
        kubelet=True,
        path=file.path,
        entries=entries,
        registered=registered,
        boot_id=boot_id if isinstance(boot_id, str) else "",
        checksum=verdict,
        why=why,
        read_from={"file": Evidence(file.where, said)},
    )


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _NotTheShape(f"{what} is no list")
    return value


def _map(holder: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _NotTheShape(f"{key} is no map")
    return value


def _entry(file: TextFile, entry: Any) -> PodDevices:
    if not isinstance(entry, dict):
        raise _NotTheShape("an entry is no object")
    ids = entry.get("DeviceIDs")
    by_numa: dict[int | None, tuple[str, ...]] = {}
    if isinstance(ids, dict):
        for node, devices in ids.items():
            by_numa[_numa(node)] = tuple(map(str, _list(devices, "DeviceIDs")))
    else:
        by_numa[None] = tuple(map(str, _list(ids, "DeviceIDs")))
    return PodDevices(
        pod_uid=str(entry.get("PodUID", "")),
        container=str(entry.get("ContainerName", "")),
        resource=str(entry.get("ResourceName", "")),
        by_numa=by_numa,
        response=_response(file, entry.get("AllocResp")),
    )


def _numa(node: str) -> int:
    """A NUMA node's number, as Go reads the keys of a map of numbers (strconv.ParseInt)."""
    if _NUMBER.fullmatch(node) is None:
        raise _NotTheShape(f"NUMA node {node[:20]!r} is no number")
    return int(node)


def _response(file: TextFile, value: Any) -> "AllocateResponse | Unread":
    from gpudoctor.facts.allocate_response import AllocateResponse, decode, from_parsed

    match value:
        case None:
            return AllocateResponse()
        case dict():
            return from_parsed(value, f"{file.where}, AllocResp")
        case str():
            try:
                return decode(_bytes(value))
            except ValueError as error:
                return Unread(Why.UNREADABLE, f"{file.where}, AllocResp", f"cannot be decoded: {error}")
        case _:
            return Unread(Why.UNREADABLE, f"{file.where}, AllocResp", "is no text")


# The checksum --------------------------------------------------------------------------------------------------------

_ENTRY = frozenset({"PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp"})
_DATA = frozenset({"PodDeviceEntries", "RegisteredDevices"})
_DOCUMENT = frozenset({"Data", "Checksum", "BootID"})


def _verdict(document: Document, data: Mapping[str, Any]) -> tuple[Checksum, str]:
    """Whether it is right, and why that is not known or what it should be. A shape that no kubelet of ours to know has is not judged."""
    ours = document.get(OURS)
    if isinstance(ours, dict) and ours.get("checksum") in tuple(Checksum):
        return Checksum(ours["checksum"]), str(ours.get("why", ""))
    told = document.get("Checksum")
    if not isinstance(told, int):
        return Checksum.UNKNOWN, "it has no checksum"
    try:
        printed = _printed(document, data)
    except (_NotTheShape, ValueError) as error:
        return Checksum.UNKNOWN, f"not a shape that is known: {error}"
    counted = fnv1a_32(printed.encode("utf-8", "replace"))
    return (Checksum.SOUND, "") if counted == told else (Checksum.WRONG, f"the data give {counted}")


def fnv1a_32(content: bytes) -> int:
    """FNV-1a of 32 bits (isthe.com/chongo/tech/comp/fnv)."""
    number = 0x811C9DC5
    for byte in content:
        number = (number ^ byte) * 0x01000193 & 0xFFFFFFFF
    return number


def _printed(document: Document, data: Mapping[str, Any]) -> str:
    _demand_keys(document, _DOCUMENT, "the file", optional=frozenset({"BootID"}))
    _demand_keys(data, _DATA, "Data")
    entries, registered = data["PodDeviceEntries"], data["RegisteredDevices"]
    told = "<nil>" if registered is None else f"map[{' '.join(_printed_resources(_map(data, 'RegisteredDevices')))}]"
    return (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        f"{_in_brackets(None if entries is None else [_printed_entry(entry) for entry in _list(entries, 'entries')])} "
        f"RegisteredDevices:(map[string][]string){told}}}"
    )


def _printed_resources(registered: Mapping[str, Any]) -> Iterator[str]:
    # Go sorts strings by their bytes.
    for name in sorted(registered, key=str.encode):
        yield f"{name}:{_in_brackets(registered[name])}"


def _printed_entry(entry: Any) -> str:
    if not isinstance(entry, dict):
        raise _NotTheShape("an entry is no object")
    _demand_keys(entry, _ENTRY, "an entry")
    ids, response = entry["DeviceIDs"], entry["AllocResp"]
    if isinstance(ids, dict):
        by_numa = {_numa(node): devices for node, devices in ids.items()}
        nodes = (f"{node}:{_in_brackets(by_numa[node])}" for node in sorted(by_numa))
        devices = f"(checkpoint.DevicesPerNUMA)map[{' '.join(nodes)}]"
    else:
        devices = f"([]string){_in_brackets(ids)}"
    told = None if response is None else [str(byte) for byte in _bytes(_text(response))]
    return (
        f"{{PodUID:(string){_text(entry['PodUID'])} ContainerName:(string){_text(entry['ContainerName'])} "
        f"ResourceName:(string){_text(entry['ResourceName'])} DeviceIDs:{devices} AllocResp:([]uint8){_in_brackets(told)}}}"
    )


def _in_brackets(values: Any) -> str:
    return "<nil>" if values is None else f"[{' '.join(map(_text, _list(values, 'a value')))}]"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _NotTheShape(f"{str(value)[:40]!r} is no text")
    return value


def _demand_keys(
    holder: Mapping[str, Any], known: frozenset[str], what: str, *, optional: frozenset[str] = frozenset()
) -> None:
    more, missing = holder.keys() - known, known - optional - holder.keys()
    if more or missing:
        raise _NotTheShape(f"{what} has {', '.join(sorted(more)) or 'no ' + ', '.join(sorted(missing))}")


# Redacted recordings -------------------------------------------------------------------------------------------------


def parsed_form(text: str) -> str | None:
    """The file with its answers decoded and the verdict on its checksum, for a recording in which names change; None for no checkpoint."""
    from gpudoctor.facts.allocate_response import to_parsed

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    data = document.get("Data") if isinstance(document, dict) else None
    if not isinstance(data, dict) or OURS in document:
        return None
    file = TextFile(NAME, text)
    try:
        verdict, why = _verdict(document, data)
        for entry in _list(data.get("PodDeviceEntries"), "PodDeviceEntries"):
            if isinstance(entry, dict) and isinstance(entry.get("AllocResp"), str):
                entry["AllocResp"] = to_parsed(_response(file, entry["AllocResp"]))
    except _NotTheShape:
        return None
    return json.dumps({**document, OURS: {"checksum": verdict.value, "why": why}}, ensure_ascii=False)


def without_answers(text: str) -> str:
    """A file that cannot be read, with letters in the place of the plugins' answers: what is wrong with it stays where it is."""
    return _ANSWER.sub(lambda answer: f"{answer[1]}{'A' * len(answer[2])}", text)
