"""Which kinds of MIG instance a board can be divided into. The names depend on its memory, and for some boards on the driver.

MIG User Guide, "Supported MIG Profiles"; NVIDIA/mig-parted deployments/systemd/config-default.yaml (PCI devices and their profiles);
`nvidia-smi mig -lgip` of B200, GB200, GH200 144G and RTX PRO 6000 as posted in NVIDIA/mig-parted#139 and #166, NVIDIA/gpu-operator#1303,
bigstack-oss/cubecos#312; read 2026-11-30. What NVML lists of a GPU in MIG mode counts before this table.
"""

from collections.abc import Iterable, Sequence

from gpudoctor.patterns import pattern

_PARTS = pattern(r"(?:\d{1,2}c\.)?(\d{1,2}g\.\d{1,4}gb)((?:\+me(?:\.all)?|\+gfx|-me)?)")
_LABEL = pattern(r"all-(\d{1,2}g\.\d{1,4}gb)(\.me\.all|\.me|\.gfx|-me)?")

_SEVEN = "1g.{0}gb 1g.{0}gb+me 1g.{1}gb 2g.{1}gb 3g.{2}gb 4g.{2}gb 7g.{3}gb"
_ROWS: tuple[tuple[str, str], ...] = (
    ("20b7", "1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb"),
    ("20b0 20b1 20f1 20f6", _SEVEN.format(5, 10, 20, 40)),
    ("20b2 20b5 20f3 20f5 2322 2324 2330 2331", _SEVEN.format(10, 20, 40, 80)),
    ("2321 233a", _SEVEN.format(12, 24, 47, 94)),
    ("20b6 2329 233d 2342", _SEVEN.format(12, 24, 48, 96)),
    ("2335 233b", _SEVEN.format(18, 35, 71, 141)),
    ("2348", _SEVEN.format(18, 36, 72, 144)),
    ("2901", _SEVEN.format(23, 45, 90, 180)),
    ("2941", f"{_SEVEN.format(23, 47, 93, 186)} {_SEVEN.format(24, 47, 95, 189)}"),
    ("3182", _SEVEN.format(34, 67, 135, 269)),
    ("31c2", _SEVEN.format(35, 70, 139, 278)),
    (
        "2bb1 2bb4 2bb5",
        "1g.24gb 1g.24gb+me 1g.24gb+gfx 1g.24gb+me.all 1g.24gb-me 2g.48gb 2g.48gb+gfx 2g.48gb+me.all 2g.48gb-me 4g.96gb 4g.96gb+gfx",
    ),
)
"""PCI devices, and the profiles of the board."""


def profiles_of(device_id: str) -> frozenset[str]:
    """The profiles of a board by its PCI device (`0x20b2`), none where the table does not have it."""
    number = device_id.lower().removeprefix("0x")
    return next((frozenset(profiles.split()) for boards, profiles in _ROWS if number in boards.split()), frozenset())


def gpu_instance(profile: str) -> str:
    """The profile of the GPU instance that a compute instance (1c.3g.20gb) is a part of; "" for what is no profile."""
    found = _PARTS.fullmatch(profile)
    return found[1] + found[2] if found is not None else ""


def named_by_label(layout: str) -> str:
    """The profile that a layout of mig-parted's own configuration gives to all GPUs, by its name: all-1g.10gb.me; "" for any other."""
    found = _LABEL.fullmatch(layout)
    if found is None:
        return ""
    suffix = found[2] or ""
    return found[1] + (f"+{suffix[1:]}" if suffix.startswith(".") else suffix)


def possible(device_id: str, listed: Iterable[str]) -> frozenset[str]:
    """The profiles of a GPU: those that NVML lists, which it does in MIG mode, with those that the table has for the board."""
    return profiles_of(device_id) | frozenset(name for name in listed if name)


def lacks(device_id: str, listed: Iterable[str], profile: str) -> bool:
    """Whether a GPU is known not to have a profile. Of what NVML does not list, as it lists nothing while MIG is off, the table tells
    slices and memory only: drivers go on adding forms with and without media engines and graphics (nvml.h).
    """
    names, wanted = possible(device_id, listed), gpu_instance(profile)
    if not names or wanted in names:
        return False
    known_whole = any(listed)
    return known_whole or not wanted or _plain(wanted) not in {_plain(name) for name in names}


def _plain(profile: str) -> str:
    return profile.partition("+")[0].removesuffix("-me")


def missing_everywhere(layout: str, gpus: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The profile that a layout by its name gives to all GPUs and none of them has; "" where one has it, or what one has is not known.

    The GPUs are told by their PCI devices and what NVML lists of profiles.
    """
    wanted = named_by_label(layout)
    known = bool(wanted and gpus) and all(lacks(device_id, listed, wanted) for device_id, listed in gpus)
    return wanted if known else ""
