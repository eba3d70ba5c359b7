"""Addresses of networks and of network adapters in texts: which of them name a machine."""

import ipaddress
import re
from collections.abc import Callable

from gpudoctor.patterns import pattern

HARDWARE = pattern(
    r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,19}(?![0-9A-Fa-f]|[:-][0-9A-Fa-f]{2}(?![0-9A-Fa-f]))"
)
IN_NAME = pattern(r"(?<![a-z])(?:enx|wlx|wwx)([0-9a-f]{12})(?![0-9a-z])")
IPV4 = pattern(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
IPV6 = pattern(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?!\w|:?[\ue000-\uefff]|:[0-9A-Fa-f]|\.\d)")
# Behind `::ffff:` a hidden address of version 4 may stand (gpudoctor/sources/pseudonyms.py, MARK).
_VERSION = pattern(r"(?i)(?:version|firmware|vbios|release|\bfw|\bver|\brev)[ :=]{1,3}\Z")
_NOBODYS = frozenset(("00" * 6, "ff" * 6, "00" * 8))

Hide = Callable[[str, str], str]


def without_hardware_addresses(text: str, hide: Hide) -> str:
    """MAC addresses, GUIDs of InfiniBand, and both within longer addresses."""
    return HARDWARE.sub(lambda match: _hardware(match[0], hide), text) if ":" in text or "-" in text else text


def _hardware(said: str, hide: Hide) -> str:
    joint = said[2]
    parts = re.split("[:-]", said)
    if any(character != joint for character in said[2::3]) or (joint == "-" and said.replace("-", "").isdecimal()):
        return said
    match len(parts):
        case 6 | 8:
            pieces = [parts]
        # An adapter's kind and its address, as a boot loader says it in BOOTIF.
        case 7 if joint == "-":
            pieces = [parts[:1], parts[1:]]
        # nf_log_syslog: destination, source, kind of the frame.
        case 14:
            pieces = [parts[:6], parts[6:12], parts[12:]]
        # IP over InfiniBand (RFC 4391): flags, number of the queue pair, GID.
        case 20 if parts[4:6] == ["fe", "80"]:
            pieces = [parts[:12], parts[12:]]
        case _:
            return said
    return joint.join(_piece(piece, joint, hide) for piece in pieces)


def _piece(parts: list[str], joint: str, hide: Hide) -> str:
    said = joint.join(parts)
    if len(parts) not in (6, 8) or "".join(parts).lower() in _NOBODYS:
        return said
    return hide(said, "mac" if len(parts) == 6 else "eui64")


def without_ipv4(text: str, hide: Hide) -> str:
    """Public addresses; private ones tell nothing, and versions are none."""

    def replace(match: "re.Match[str]") -> str:
        try:
            public = ipaddress.IPv4Address(match[0]).is_global
        except ValueError:
            return match[0]
        begin = match.start()
        is_version = public and _VERSION.search(match.string[max(0, begin - 12) : begin])
        return hide(match[0], "ipv4") if public and not is_version else match[0]

    return IPV4.sub(replace, text)


def without_ipv6(text: str, hide: Hide) -> str:
    """Public addresses, and those whose interface is made of an adapter's address (RFC 4291, appendix A)."""

    def replace(match: "re.Match[str]") -> str:
        said = match[0]
        rest = ":" if said.endswith(":") and not said.endswith("::") else ""
        try:
            address = ipaddress.IPv6Address(said[: len(said) - len(rest)])
        except ValueError:
            return said
        named = address.is_global or address.packed[11:13] == b"\xff\xfe"
        return f"{hide(said[: len(said) - len(rest)], 'ipv6')}{rest}" if named else said

    return IPV6.sub(replace, text)
