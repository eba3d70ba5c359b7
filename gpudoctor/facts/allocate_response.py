"""What a device plugin answered when a container was given devices: the message as the kubelet keeps it, and in parsed form.

ContainerAllocateResponse of kubernetes/kubelet pkg/apis/deviceplugin/v1beta1/api.proto, read by the rules of the wire format
(protobuf.dev/programming-guides/encoding): variables, mounts, device nodes, annotations, and names of CDI devices.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.verdicts import Unread, Why


class PluginMount(Struct, frozen=True):
    """A mount that a plugin asked for."""

    container_path: str = ""
    host_path: str = ""
    read_only: bool = False


class PluginDevice(Struct, frozen=True):
    """A device node that a plugin asked for."""

    container_path: str = ""
    host_path: str = ""
    permissions: str = ""


class AllocateResponse(Struct, frozen=True):
    """What a plugin answered when a container was given devices."""

    envs: Mapping[str, str] = {}
    mounts: tuple[PluginMount, ...] = ()
    devices: tuple[PluginDevice, ...] = ()
    annotations: Mapping[str, str] = {}
    cdi_devices: tuple[str, ...] = ()


def decode(message: bytes) -> AllocateResponse:
    """Read a message. Raises ValueError for one that is none."""
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: list[PluginMount] = []
    devices: list[PluginDevice] = []
    cdi: list[str] = []
    for number, value in _fields(message):
        if not isinstance(value, bytes):
            continue
        inner = dict(_fields(value))
        match number:
            case 1 | 4:
                (envs if number == 1 else annotations)[_utf8(inner.get(1))] = _utf8(inner.get(2))
            case 2:
                mounts.append(PluginMount(_utf8(inner.get(1)), _utf8(inner.get(2)), bool(inner.get(3))))
            case 3:
                devices.append(PluginDevice(_utf8(inner.get(1)), _utf8(inner.get(2)), _utf8(inner.get(3))))
            case 5:
                cdi.append(_utf8(inner.get(1)))
            case _:
                pass
    return AllocateResponse(envs, tuple(mounts), tuple(devices), annotations, tuple(cdi))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message by number."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
                yield tag >> 3, value
            case 2:
                size, at = _varint(message, at)
                if at + size > len(message):
                    raise ValueError("a field is longer than the message")
                yield tag >> 3, message[at : at + size]
                at += size
            case 1 | 5 as kind:
                at += 8 if kind == 1 else 4
            case kind:
                raise ValueError(f"wire type {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("the message is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number is too long")


def _utf8(value: int | bytes | None) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else ""


def to_parsed(response: AllocateResponse | Unread) -> dict[str, Any]:
    """What can be written as JSON: variables as `NAME=value`, as containers' configurations have them."""
    if isinstance(response, Unread):
        return {"unreadable": response.detail}
    return {
        "envs": [f"{name}={value}" for name, value in response.envs.items()],
        "mounts": [[one.container_path, one.host_path, one.read_only] for one in response.mounts],
        "devices": [[one.container_path, one.host_path, one.permissions] for one in response.devices],
        "annotations": dict(response.annotations),
        "cdi_devices": list(response.cdi_devices),
    }


def from_parsed(parsed: Mapping[str, Any], where: str) -> AllocateResponse | Unread:
    """What was written so; `where` is the file."""
    if "unreadable" in parsed:
        return Unread(Why.UNREADABLE, where, str(parsed["unreadable"]))
    try:
        return AllocateResponse(
            envs={name: value for name, _, value in (str(one).partition("=") for one in parsed.get("envs", ()))},
            mounts=tuple(PluginMount(*one) for one in parsed.get("mounts", ())),
            devices=tuple(PluginDevice(*one) for one in parsed.get("devices", ())),
            annotations=dict(parsed.get("annotations", {})),
            cdi_devices=tuple(map(str, parsed.get("cdi_devices", ()))),
        )
    except (TypeError, ValueError) as error:
        return Unread(Why.UNREADABLE, where, str(error))
