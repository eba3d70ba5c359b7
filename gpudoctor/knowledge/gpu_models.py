"""GPUs by PCI device id and by name: chip and compute capability, from the list in knowledge/pci_gpus.py.

Names as NVML gives them say more than the list does (memory, form factor), or less: one that several GPUs of different compute
capabilities have tells none. What is left of a name when those words are gone must be in the list, whole.
"""

import re
from functools import cache

from msgspec import Struct

from gpudoctor.knowledge.compute_capabilities import cc_of_chip
from gpudoctor.knowledge.pci_gpus import GPUS
from gpudoctor.patterns import pattern


class GpuModel(Struct, frozen=True):
    """One device id. `names` are the products that have it, none for an id without a product's name."""

    device_id: str
    chip: str
    names: tuple[str, ...]
    cc: str | None


# GPUs of Jetson boards, which are no PCI devices: NVML calls them "Orin (nvgpu)". Capabilities: knowledge/compute_capabilities.py.
_JETSON = {"orin": "8.7", "xavier": "7.2", "thor": "11.0"}
# Memory, form factor and revision; "NVIDIA" and "Tesla" come and go with the driver's version (Tesla T4 and NVIDIA T4 are one).
_ASIDE = pattern(
    r"\b(?:nvidia|tesla|hgx|\d+gb?|sxm\d?|pcie|nvl|hbm\d\w*|gddr\dx?|rev\.? ?\w|ac|lite hash rate"
    r"|generation|laptop gpu|mobile|with max-q design|max-q)(?![\w.])"
)
_MIG = pattern(r" MIG \d.*$")
_VGPU = pattern(r"^(?:GRID|NVIDIA) (?P<board>[A-Z]+\d+[A-Z]*)-(?:\d+-)?\d+[ABCQ]$")


def by_id(device_id: str) -> GpuModel | None:
    """The GPU of a PCI device id of four hex digits, None for one that is not in the list."""
    wanted = device_id.lower().removeprefix("0x")
    if len(wanted) != 4 or (begin := GPUS.find(f"\n{wanted} ")) < 0:
        return None
    return _model(GPUS[begin + 1 : GPUS.index("\n", begin + 1)])


def _model(line: str) -> GpuModel:
    device_id, chip, *name = line.split(" ", 2)
    return GpuModel(device_id, chip, _products(name[0]) if name else (), cc_of_chip(chip))


def _products(name: str) -> tuple[str, ...]:
    """`Tesla C2050 / C2070` names two, `GeForce RTX 4080 Max-Q / Mobile` one twice; what follows a slash lacks the words before."""
    first, *more = name.split(" / ")
    words = first.split(" ")
    return (first, *(f"{' '.join(words[:-1])} {one}".strip() for one in more), *more) if more else (first,)


def models() -> tuple[GpuModel, ...]:
    """All GPUs of the list."""
    return tuple(_model(line) for line in GPUS.strip().split("\n"))


@cache
def _by_key() -> dict[str, frozenset[str | None]]:
    found: dict[str, set[str | None]] = {}
    for model in models():
        for name in model.names:
            found.setdefault(_key(name), set()).add(model.cc)
    return {key: frozenset(ccs) for key, ccs in found.items() if key}


def _key(name: str) -> str:
    plain = re.sub(r"[\s/_()-]+", " ", name.lower().replace("(tm)", " "))
    return " ".join(_ASIDE.sub(" ", re.sub(r"\bmax q\b", "max-q", plain)).split())


def cc_of_id(device_id: str) -> str | None:
    """`9.0` for 2330, None for a device id that is not in the list."""
    model = by_id(device_id)
    return model.cc if model is not None else None


def cc_of_name(name: str | None) -> str | None:
    """`9.0` for `NVIDIA H100 80GB HBM3`; None where the name does not tell, or several GPUs of different capabilities have it.

    MIG devices and vGPUs are of their board's capability. A GeForce may go without that word.
    """
    if not name:
        return None
    whole = _MIG.sub("", name.strip())
    board = _VGPU.fullmatch(whole)
    key = _key(board["board"] if board is not None else whole)
    if jetson := _JETSON.get(key.removesuffix(" nvgpu").removeprefix("jetson ")):
        return jetson
    listed = _by_key()
    ccs = listed.get(key) or listed.get(f"geforce {key}") or frozenset()
    return next(iter(ccs)) if len(ccs) == 1 else None
