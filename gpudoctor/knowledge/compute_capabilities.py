"""Compute capabilities: which toolkits compile for each, which driver branches drive it, and on which GPUs compiled code runs.

First and last toolkits and last driver branches: docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html;
where it has no row, ptxas --help of the PyPI packages nvidia-cuda-nvcc(-cu11, -cu12) whose versions PTXAS names, and clang's table for 8.6
(reviews.llvm.org/D88668). First driver branches: the branch of the first toolkit, and the list of GPUs in the README of
open-gpu-kernel-modules (515.43.04 to 595.45.04); 10.7: CUDA 13.4 release notes. What runs where: CUDA C++ programming guide, "Binary
compatibility" (desktop and Tegra apart) and "PTX compatibility"; the CUDA programming guide of 13.4 on architecture- and family-specific
code. Chips: the list of knowledge/architectures.py, products of docs.nvidia.com/datacenter/tesla/mig-user-guide (GB100, GB202, GB203) and
Wikipedia, "CUDA", supported GPUs. Read 2026-11-30.
"""

import re
from enum import Enum

from msgspec import Struct

from gpudoctor.knowledge.architectures import ARCHITECTURES, FLAVOURS, Flavour
from gpudoctor.knowledge.driver_branches import BRANCHES, NEWEST
from gpudoctor.knowledge.version_numbers import minor_of
from gpudoctor.patterns import pattern

AS_OF = "2026-11-30"
SOURCE = "docs.nvidia.com: architecture matrix, CUDA programming guide; ptxas --help of CUDA 11.7 to 13.5"


class Capability(Struct, frozen=True):
    """One compute capability. Toolkits and branches are None where there is no end yet or no source; `tegra` GPUs take JetPack's drivers.

    `first_driver` None: older than the oldest branch of knowledge/driver_branches.py, for Tegra and 8.8 no source.
    """

    cc: str
    architecture: str
    first_toolkit: str | None
    last_toolkit: str | None = None
    first_driver: int | None = None
    last_driver: int | None = None
    tegra: bool = False


CAPABILITIES = (
    Capability("2.0", "Fermi", "3.0", "8.0", None, 390),
    Capability("2.1", "Fermi", None, "8.0", None, 390),
    Capability("3.0", "Kepler", "6.0", "10.2", None, 470),
    Capability("3.2", "Kepler", "6.0", "10.2", tegra=True),
    Capability("3.5", "Kepler", "6.0", "11.8", None, 470),
    Capability("3.7", "Kepler", "6.0", "11.8", None, 470),
    Capability("5.0", "Maxwell", "6.5", "12.9", None, 580),
    Capability("5.2", "Maxwell", "6.5", "12.9", None, 580),
    Capability("5.3", "Maxwell", "6.5", "12.9", tegra=True),
    Capability("6.0", "Pascal", "8.0", "12.9", None, 580),
    Capability("6.1", "Pascal", "8.0", "12.9", None, 580),
    Capability("6.2", "Pascal", "8.0", "12.9", tegra=True),
    Capability("7.0", "Volta", "9.0", "12.9", None, 580),
    Capability("7.2", "Volta", None, "12.9", tegra=True),
    Capability("7.5", "Turing", "10.0", None, 410),
    Capability("8.0", "Ampere", "11.0", None, 450),
    Capability("8.6", "Ampere", "11.1", None, 455),
    Capability("8.7", "Ampere", None, tegra=True),
    Capability("8.8", "Ampere", "13.0"),
    Capability("8.9", "Ada Lovelace", "11.8", None, 520),
    Capability("9.0", "Hopper", "11.8", None, 520),
    Capability("10.0", "Blackwell", "12.8", None, 570),
    Capability("10.3", "Blackwell Ultra", "12.9", None, 580),
    Capability("10.7", "Rubin", "13.4", None, 615),
    Capability("11.0", "Blackwell", "13.0", tegra=True),
    Capability("12.0", "Blackwell", "12.8", None, 570),
    Capability("12.1", "Blackwell", "12.9", None, 580),
)
"""Thor was 10.1 to the toolkits 12.8 and 12.9 and is 11.0 from 13.0 on. No product of 8.8 is known here."""
BY_CC: dict[str, Capability] = {one.cc: one for one in CAPABILITIES}

# Releases of branch 450 went on after GA10x had appeared with 455; whether they drive it, no source tells.
_UNTOLD = ((450, "8.6"),)

_TO_12_9 = "50 52 53 60 61 62 70 72 75 80 86 87 89 90 90a"
_BLACKWELL = "100 100a 100f 103 103a 103f"
_FROM_13_0 = f"75 80 86 87 88 89 90 90a {_BLACKWELL} 110 110a 110f 120 120a 120f 121 121a 121f"
PTXAS: dict[str, tuple[str, ...]] = {
    version: tuple(targets.split())
    for version, targets in (
        ("11.7.99", "35 37 50 52 53 60 61 62 70 72 75 80 86 87"),
        ("11.8.89", "35 37 50 52 53 60 61 62 70 72 75 80 86 87 89 90"),
        ("12.0.140", _TO_12_9),
        ("12.8.61", f"{_TO_12_9} 100 100a 101 101a 120 120a"),
        ("12.9.41", f"{_TO_12_9} 100 100a 100f 101 101a 101f 103 103a 103f 120 120a 120f 121 121a 121f"),
        ("13.0.48", _FROM_13_0),
        ("13.3.33", _FROM_13_0),
        ("13.4.59", f"{_FROM_13_0} 107 107a 107f"),
        ("13.5.37", f"{_FROM_13_0} 107 107a 107f"),
    )
}
"""What ptxas of a toolkit compiles for."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "10.0": ("10.0", "10.3", "10.7"),
    "10.3": ("10.3", "10.7"),
    "10.7": ("10.7",),
    "11.0": ("11.0",),
    "12.0": ("12.0", "12.1"),
    "12.1": ("12.1",),
}
"""Where family-specific code (sm_100f, compute_100f) runs."""

# By the letters and digits that a chip's name begins with (pci.ids); the first that fits. GB120 is in no driver's list yet.
_CHIPS = (
    (r"GF1(?:00|10)", "2.0"),
    (r"GF1(?:04|06|08|14|16|17|19)", "2.1"),
    (r"GK10[467]", "3.0"),
    (r"GK(?:110|180|208)", "3.5"),
    (r"GK210", "3.7"),
    (r"GM10[78]", "5.0"),
    (r"GM20[046]", "5.2"),
    (r"GP100", "6.0"),
    (r"GP10[24678]", "6.1"),
    (r"GV100", "7.0"),
    (r"TU1(?:0[246]|1[67])", "7.5"),
    (r"GA100", "8.0"),
    (r"GA10[23467]", "8.6"),
    (r"AD10[23467]", "8.9"),
    (r"GH100", "9.0"),
    (r"GB10[02]", "10.0"),
    (r"GB11[02]", "10.3"),
    (r"GR10[02]", "10.7"),
    (r"GB10B", "11.0"),
    (r"GB20[23567]", "12.0"),
    (r"GB20B", "12.1"),
)


def cc_of_chip(chip: str) -> str | None:
    """`9.0` for GH100, `8.6` for GA102GL; None for a chip whose capability no source tells."""
    # Only patterns of the same two letters are compiled.
    alike = ((pattern, cc) for pattern, cc in _CHIPS if pattern[:2] == chip[:2])
    return next((cc for pattern, cc in alike if re.fullmatch(rf"(?:{pattern})B?(?:GL|M|GLM|BM)?", chip)), None)


def targets(toolkit: str) -> tuple[str, ...] | None:
    """What ptxas of a toolkit (`12.8`) compiles for; between two versions that agree as well, None where that is not known."""
    wanted = minor_of(toolkit)
    if wanted is None:
        return None
    known = [(minor_of(version) or (0, 0), listed) for version, listed in PTXAS.items()]
    below = [listed for version, listed in known if version <= wanted]
    above = [listed for version, listed in known if version >= wanted]
    return below[-1] if below and above and below[-1] == above[0] else None


def compiles(toolkit: str, cc: str) -> bool | None:
    """Whether a toolkit makes machine code for a compute capability; None where the table does not tell."""
    capability, version = BY_CC.get(cc), minor_of(toolkit)
    if capability is None or version is None:
        return None
    listed = targets(toolkit)
    if listed is not None:
        return cc.replace(".", "") in listed
    first, last = (minor_of(edge) if edge else None for edge in (capability.first_toolkit, capability.last_toolkit))
    if last is not None and version > last:
        return False
    if first is None:
        return None
    newest = max(minor_of(known) or (0, 0) for known in PTXAS)
    return version >= first if version <= newest else None


def drives(branch: int, cc: str) -> bool | None:
    """Whether the drivers of a branch drive GPUs of a compute capability; None where no source tells, as for Tegra."""
    capability = BY_CC.get(cc)
    if capability is None or capability.tegra or (branch, cc) in _UNTOLD:
        return None
    if capability.last_driver is not None and branch > capability.last_driver:
        return False
    if capability.first_driver is not None and branch < capability.first_driver:
        return False
    if capability.first_driver is None and (capability.last_driver is None or branch < BRANCHES[0].number):
        return None
    return True if branch <= NEWEST.number else None


def architectures_of(branch: int) -> tuple[str, ...]:
    """The architectures that a branch drives, oldest first; none for a branch before the table."""
    driven = {one.architecture for one in CAPABILITIES if drives(branch, one.cc)}
    return tuple(name for name in ARCHITECTURES if name in driven)


def flavour_of(cc: str) -> Flavour | None:
    """Which build of the kernel module GPUs of a compute capability can run with; Grace Hopper, of 9.0 as well, needs the open one."""
    capability = BY_CC.get(cc)
    return FLAVOURS.get(capability.architecture) if capability is not None else None


class Runs(str, Enum):
    """How compiled code runs on a GPU."""

    NATIVE = "native"
    JIT = "by JIT"
    NO = "no"
    UNKNOWN = "unknown"


class Outcome(Struct, frozen=True):
    """How a build runs on a GPU: the target that does it, else why none does."""

    runs: Runs
    target: str = ""
    why: str = ""


class Target(Struct, frozen=True):
    """One target of a build: machine code (a cubin) or PTX for a compute capability, plain or with the suffix `a` or `f`."""

    text: str
    cc: str
    ptx: bool
    suffix: str = ""


_TARGET = pattern(
    r"(?P<kind>sm_|compute_|)(?:(?P<dotted>\d{1,2}\.\d)|(?P<digits>\d{2,3}))(?P<suffix>[af]?)(?P<tail>\+PTX|-real|-virtual|)",
    re.IGNORECASE,
)


def parse_targets(text: str) -> tuple[Target, ...]:
    """`sm_90a`, `compute_90`, `9.0+PTX` (both kinds of code), `90-real`, `120-virtual`; nothing for what is none of them."""
    found = _TARGET.fullmatch(text.strip())
    if found is None:
        return ()
    cc = found["dotted"] or f"{found['digits'][:-1]}.{found['digits'][-1]}"
    tail, suffix = found["tail"].lower(), found["suffix"].lower()
    binary = Target(text.strip(), cc, ptx=False, suffix=suffix)
    code = Target(text.strip(), cc, ptx=True, suffix=suffix)
    if tail == "+ptx":
        return (binary, code)
    # CMake's CMAKE_CUDA_ARCHITECTURES: a bare number stands for both, but lists of torch and ptxas mean machine code by it.
    return (code,) if found["kind"].lower() == "compute_" or tail == "-virtual" else (binary,)


def covers(target: Target, cc: str) -> bool:
    """Whether code for a target can run on a compute capability at all, the driver apart."""
    if target.suffix == "a":
        return target.cc == cc
    if target.suffix == "f":
        return cc in FAMILIES.get(target.cc, (target.cc,))
    have, wanted = minor_of(target.cc), minor_of(cc)
    if have is None or wanted is None:
        return False
    if target.ptx:
        return have <= wanted
    if have != wanted and (_tegra(target.cc) or _tegra(cc)):
        return False
    return have[0] == wanted[0] and have[1] <= wanted[1]


def _tegra(cc: str) -> bool:
    return cc in BY_CC and BY_CC[cc].tegra


def runs(build: tuple[str, ...], cc: str, driver_cuda: str | None, toolkit: str | None = None) -> Outcome:
    """How a build runs on a GPU under a driver that offers a CUDA version (None: not known), made by a toolkit (None: not known).

    PTX newer than the driver is refused (CUDA error 222): its version is that of the toolkit, which is no older than the first one that
    knows the target.
    """
    known = [target for text in build for target in parse_targets(text)]
    strange = [text for text in build if not parse_targets(text)]
    if minor_of(cc) is None:
        return Outcome(Runs.UNKNOWN, why=f"{cc!r} is no compute capability")
    fitting = [target for target in known if covers(target, cc)]
    native = next((target for target in fitting if not target.ptx), None)
    if native is not None:
        return Outcome(Runs.NATIVE, native.text)
    if not fitting and (strange or not build):
        return Outcome(Runs.UNKNOWN, why=f"the build's targets are not known: {', '.join(strange) or 'none is told'}")
    if not fitting:
        listed = ", ".join(build)
        return Outcome(Runs.NO, why=f"it has code for {listed}, none of it for compute capability {cc}: CUDA error 209")
    return _by_jit(fitting[-1], driver_cuda, toolkit)


def _by_jit(code: Target, driver_cuda: str | None, toolkit: str | None) -> Outcome:
    have = minor_of(driver_cuda) if driver_cuda else None
    made = minor_of(toolkit) if toolkit else None
    earliest = BY_CC[code.cc].first_toolkit if code.cc in BY_CC else None
    if have is not None and made is None and earliest is not None and (minor_of(earliest) or ()) > have:
        toolkit, made = f"{earliest} or later", minor_of(earliest)
    if have is None or made is None:
        missing = "the driver's CUDA version" if have is None else "the toolkit that made its PTX"
        return Outcome(Runs.UNKNOWN, code.text, f"only its PTX fits, and {missing} is not known")
    if made > have:
        return Outcome(
            Runs.NO,
            code.text,
            f"only its PTX fits, of CUDA {toolkit}, and the driver compiles up to {driver_cuda}: CUDA error 222",
        )
    return Outcome(Runs.JIT, code.text)
