"""GPU architectures by PCI device id, and which kernel-module flavour each needs.

Device ids: pciutils/pciids @c1c12547d626 (2026-08-22), compared with the GPUs that NVIDIA's drivers support (supported-gpus.json of
driver 595.71.05, README of open-gpu-kernel-modules 595.45.04). NVIDIA gives the ids of one family of chips a common first byte; 1dxx
holds both Pascal (GP10x) and Volta (GV100, from 1d81 on). Older ones (Kepler and before) and those that no driver of the list
supports (30xx, Rubin; 32xx; 33xx) are left out. Flavours: README of open-gpu-kernel-modules 595.45.04 (Turing and later are
supported, none before), cloud-native-docs platform-support (GH200 needs the open modules), NVIDIA developer blog on open kernel
modules and the proprietary module's own log line "requires use of the NVIDIA open kernel modules" (Blackwell). GSP images:
nv-firmware.h and nv-firmware-chip-family-select.h of the same, from 535.43.02 on. Read 2026-11-29.
"""

from enum import Enum

AS_OF = "2026-11-29"
SOURCE = "pciutils/pciids c1c12547d626; README of open-gpu-kernel-modules 595.45.04"


class Flavour(str, Enum):
    """Which build of the kernel module a GPU can run with."""

    OPEN = "open"
    PROPRIETARY = "proprietary"
    EITHER = "either"


FLAVOURS: dict[str, Flavour] = {
    "Fermi": Flavour.PROPRIETARY,
    "Kepler": Flavour.PROPRIETARY,
    "Maxwell": Flavour.PROPRIETARY,
    "Pascal": Flavour.PROPRIETARY,
    "Volta": Flavour.PROPRIETARY,
    "Turing": Flavour.EITHER,
    "Ampere": Flavour.EITHER,
    "Ada Lovelace": Flavour.EITHER,
    "Hopper": Flavour.EITHER,
    "Grace Hopper": Flavour.OPEN,
    "Blackwell": Flavour.OPEN,
    "Blackwell Ultra": Flavour.OPEN,
}
"""By the name of the architecture. For Rubin no source tells."""
ARCHITECTURES = (*FLAVOURS, "Rubin")
"""Oldest first."""

_BY_FIRST_BYTE: dict[str, str] = {
    "13": "Maxwell",
    "14": "Maxwell",
    "15": "Pascal",
    "16": "Maxwell",
    "17": "Maxwell",
    "1b": "Pascal",
    "1c": "Pascal",
    "1e": "Turing",
    "1f": "Turing",
    "20": "Ampere",
    "21": "Turing",
    "22": "Ampere",
    "23": "Hopper",
    "24": "Ampere",
    "25": "Ampere",
    "26": "Ada Lovelace",
    "27": "Ada Lovelace",
    "28": "Ada Lovelace",
    "29": "Blackwell",
    "2b": "Blackwell",
    "2c": "Blackwell",
    "2d": "Blackwell",
    "2e": "Blackwell",
    "2f": "Blackwell",
    "31": "Blackwell Ultra",
}
# kernel-open/nvidia/detect-self-hosted.h of open-gpu-kernel-modules 595.45.04; the other 23xx are Hopper on PCIe or SXM.
_GRACE_HOPPER = ("2340", "237f")


def architecture(device_id: str) -> tuple[str, Flavour] | None:
    """Name and needed flavour for a device id of four hex digits; None for one this table does not know."""
    device_id = device_id.lower()
    if _GRACE_HOPPER[0] <= device_id <= _GRACE_HOPPER[1]:
        name: str | None = "Grace Hopper"
    elif device_id.startswith("1d"):
        name = "Volta" if device_id >= "1d81" else "Pascal"
    else:
        name = _BY_FIRST_BYTE.get(device_id[:2])
    return (name, FLAVOURS[name]) if name is not None else None


# GA100 alone of Ampere has 20xx ids.
_TURING_AND_GA100 = ("1e", "1f", "20", "21")


def gsp_firmware(device_id: str) -> str | None:
    """The GSP image that a GPU boots, None for one without a GSP or that this table does not know."""
    known = architecture(device_id)
    if known is None or known[1] is Flavour.PROPRIETARY:
        return None
    return "gsp_tu10x.bin" if device_id.lower().startswith(_TURING_AND_GA100) else "gsp_ga10x.bin"
