"""One CDI spec, every field with its type (container-device-interface SPEC.md and specs-go/config.go). JSON null counts as absent."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.cdi_text import (
    Decoder,
    Place,
    Reader,
    decode,
    each,
    fields,
    text,
    truth,
    whole,
    words_by_name,
)
from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.raw import TextFile
from gpudoctor.verdicts import Unread


class CdiNode(Struct, frozen=True):
    """A device node to make. `host_path` is "" where it is the path; without `type` or `major` the engine asks the host's node for them."""

    path: str
    host_path: str
    type: str
    major: int
    minor: int
    file_mode: int | None
    permissions: str
    uid: int | None
    gid: int | None
    place: Place

    @property
    def source(self) -> str:
        """Where the host's node lies."""
        return self.host_path or self.path

    @property
    def self_contained(self) -> bool:
        """Whether an engine makes it without a look at the host: with a type and a major (container-edits_unix.go, fillMissingInfo)."""
        return bool(self.type) and (self.major != 0 or self.type == "p")

    @property
    def numbers(self) -> tuple[int, int] | None:
        """Its major and minor, which is 0 where it is left out; None where the host's count (no major)."""
        return (self.major, self.minor) if self.major and self.type != "p" else None


class CdiMount(Struct, frozen=True):
    """A mount of something of the host."""

    host_path: str
    container_path: str
    options: tuple[str, ...]
    type: str
    place: Place

    @property
    def binds(self) -> bool:
        """Whether its source must be on the host: without a type it is a bind mount."""
        return self.type in ("", "bind", "none") and self.host_path.startswith("/")


class CdiHook(Struct, frozen=True):
    """A program that the runtime starts."""

    name: str
    path: str
    args: tuple[str, ...]
    env: tuple[str, ...]
    timeout: int | None
    place: Place


class Rdt(Struct, frozen=True):
    """Intel's resource director."""

    clos_id: str
    place: Place


class NetDevice(Struct, frozen=True):
    """A network interface that is moved into the container."""

    host: str
    name: str
    place: Place


class Edits(Struct, frozen=True):
    """What is changed in a container's configuration."""

    env: tuple[str, ...] = ()
    nodes: tuple[CdiNode, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    hooks: tuple[CdiHook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    rdt: Rdt | None = None
    additional_gids: tuple[int, ...] = ()
    place: Place = Place(0, 0)

    @property
    def empty(self) -> bool:
        """Nothing in it; a device must have something."""
        return not any(
            (self.env, self.nodes, self.mounts, self.hooks, self.net_devices, self.rdt, self.additional_gids)
        )


class CdiDevice(Struct, frozen=True):
    """A device by its name within its kind."""

    name: str
    annotations: Mapping[str, str]
    edits: Edits
    place: Place


class CdiSpec(Struct, frozen=True):
    """A spec that can be decoded. `used` are its fields by owner and name, `filled` those not empty."""

    version: str
    kind: str
    annotations: Mapping[str, str]
    devices: tuple[CdiDevice, ...]
    edits: Edits
    used: Mapping[tuple[str, str], Place]
    filled: frozenset[tuple[str, str]]

    @property
    def vendor(self) -> str:
        """What is before the slash of its kind, "" where there is none (ParseQualifier)."""
        vendor, slash, cls = self.kind.partition("/")
        return vendor if slash and vendor and cls else ""

    @property
    def class_name(self) -> str:
        """What is behind the slash."""
        return self.kind.partition("/")[2] if self.vendor else self.kind

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of its devices."""
        return tuple(f"{self.kind}={device.name}" for device in self.devices)

    @property
    def all_edits(self) -> tuple[Edits, ...]:
        """Its own edits, which come with each of its devices, and those of the devices."""
        return (self.edits, *(device.edits for device in self.devices))

    @property
    def nodes(self) -> tuple[CdiNode, ...]:
        """Every node of it."""
        return tuple(node for edits in self.all_edits for node in edits.nodes)

    @property
    def mounts(self) -> tuple[CdiMount, ...]:
        """Every mount of it."""
        return tuple(mount for edits in self.all_edits for mount in edits.mounts)

    @property
    def hooks(self) -> tuple[CdiHook, ...]:
        """Every hook of it."""
        return tuple(hook for edits in self.all_edits for hook in edits.hooks)


# Decoding ------------------------------------------------------------------------------------------------------------

_INT64, _INT = whole(-(2**63), 2**63 - 1, "int64"), whole(-(2**63), 2**63 - 1, "int")
_UINT32 = whole(0, 2**32 - 1, "uint32")
_TEXTS = each(text)


def _node(values: dict[str, Any], place: Place) -> CdiNode:
    return CdiNode(
        path=values.get("path", ""),
        host_path=values.get("hostPath", ""),
        type=values.get("type", ""),
        major=values.get("major") or 0,
        minor=values.get("minor") or 0,
        file_mode=values.get("fileMode"),
        permissions=values.get("permissions", ""),
        uid=values.get("uid"),
        gid=values.get("gid"),
        place=place,
    )


def _mount(values: dict[str, Any], place: Place) -> CdiMount:
    return CdiMount(
        host_path=values.get("hostPath", ""),
        container_path=values.get("containerPath", ""),
        options=values.get("options", ()),
        type=values.get("type", ""),
        place=place,
    )


def _hook(values: dict[str, Any], place: Place) -> CdiHook:
    return CdiHook(
        name=values.get("hookName", ""),
        path=values.get("path", ""),
        args=values.get("args", ()),
        env=values.get("env", ()),
        timeout=values.get("timeout"),
        place=place,
    )


def _edits(values: dict[str, Any], place: Place) -> Edits:
    return Edits(
        env=values.get("env", ()),
        nodes=values.get("deviceNodes", ()),
        mounts=values.get("mounts", ()),
        hooks=values.get("hooks", ()),
        net_devices=values.get("netDevices", ()),
        rdt=values.get("intelRdt"),
        additional_gids=tuple(gid or 0 for gid in values.get("additionalGids", ())),
        place=place,
    )


def _device(values: dict[str, Any], place: Place) -> CdiDevice:
    return CdiDevice(
        name=values.get("name", ""),
        annotations=values.get("annotations", {}),
        edits=values.get("containerEdits", Edits(place=place)),
        place=place,
    )


def _pointer(decoder: Decoder) -> Decoder:
    """A struct that may be left out or null."""

    def decode_it(node: Any, reader: Reader) -> Any:
        absent = node.id == "scalar" and not node.style and node.value in ("", "~", "null", "Null", "NULL")
        return None if absent else decoder(node, reader)

    return decode_it


_NODE: dict[str, Decoder] = {
    "path": text,
    "hostPath": text,
    "type": text,
    "major": _INT64,
    "minor": _INT64,
    "fileMode": _UINT32,
    "permissions": text,
    "uid": _UINT32,
    "gid": _UINT32,
}
_MOUNT: dict[str, Decoder] = {"hostPath": text, "containerPath": text, "options": _TEXTS, "type": text}
_HOOK: dict[str, Decoder] = {"hookName": text, "path": text, "args": _TEXTS, "env": _TEXTS, "timeout": _INT}
_RDT: dict[str, Decoder] = {
    "closID": text,
    "l3CacheSchema": text,
    "memBwSchema": text,
    "schemata": _TEXTS,
    "enableMonitoring": truth,
    "enableCMT": truth,
    "enableMBM": truth,
}
_NET: dict[str, Decoder] = {"hostInterfaceName": text, "name": text}
_EDITS = fields(
    "edits",
    {
        "env": _TEXTS,
        "deviceNodes": each(fields("node", _NODE, _node)),
        "netDevices": each(
            fields(
                "net",
                _NET,
                lambda values, place: NetDevice(values.get("hostInterfaceName", ""), values.get("name", ""), place),
            )
        ),
        "hooks": each(fields("hook", _HOOK, _hook)),
        "mounts": each(fields("mount", _MOUNT, _mount)),
        "intelRdt": _pointer(fields("rdt", _RDT, lambda values, place: Rdt(values.get("closID", ""), place))),
        "additionalGids": each(_UINT32),
    },
    _edits,
)
_DEVICE = fields("device", {"name": text, "annotations": words_by_name, "containerEdits": _EDITS}, _device)
_SPEC = fields(
    "spec",
    {
        "cdiVersion": text,
        "kind": text,
        "annotations": words_by_name,
        "devices": each(_DEVICE),
        "containerEdits": _EDITS,
    },
    lambda values, _: values,
)


def parse_spec(file: TextFile) -> CdiSpec | Malformed | Unread:
    """A spec as the newest library decodes it, fields of older ones included."""
    decoded = decode(file, _SPEC)
    if not isinstance(decoded, tuple):
        return decoded
    values, reader = decoded
    return CdiSpec(
        version=values.get("cdiVersion", ""),
        kind=values.get("kind", ""),
        annotations=values.get("annotations", {}),
        devices=values.get("devices", ()),
        edits=values.get("containerEdits", Edits()),
        used=reader.used,
        filled=frozenset(reader.filled),
    )
