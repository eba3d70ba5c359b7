"""What NVIDIA's documents say of a CUDA version on a driver, typed in anew to check gpudoctor's tables and judgements.

Nothing of gpudoctor is used here. Three questions are kept apart, as the documents do; a GPU that the driver no longer
supports is none of them. None is given where the documents do not tell.

RN: docs.nvidia.com/cuda/cuda-toolkit-release-notes, edition 13.4 Update 1, section 2.2 (text-index id 69389232063).
FC: docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html, edition of cuda-compat-13-4 (id 69711268983).
DATA: shared/data/cuda_driver.yaml and forward_compat.yaml of 2026-11-29, for what no edition read here has.
"""

CORRESPONDING: dict[str, dict[str, str]] = {
    "7.0": {"7.0.28": "346.46"},
    "7.5": {"7.5.16": "352.31"},
    "8.0": {"8.0.44": "367.48", "8.0.61": "375.26"},
    "9.0": {"9.0.76": "384.81"},
    "9.1": {"9.1.85": "390.46"},
    "9.2": {"9.2.88": "396.26", "9.2.148": "396.37"},
    "10.0": {"10.0.130": "410.48"},
    "10.1": {"10.1.105": "418.39", "10.1.168": "418.39", "10.1.243": "418.39"},  # RN: "and updates"
    "10.2": {"10.2.89": "440.33"},
    "11.0": {"11.0.2": "450.51.05", "11.0.3": "450.51.06", "11.0.1": "450.36.06"},  # 11.0.1 was a release candidate
    "11.1": {"11.1.0": "455.23", "11.1.1": "455.32"},
    "11.2": {"11.2.0": "460.27.03", "11.2.1": "460.32.03", "11.2.2": "460.32.03"},
    "11.3": {"11.3.0": "465.19.01", "11.3.1": "465.19.01"},
    "11.4": {
        "11.4.0": "470.42.01",
        "11.4.1": "470.57.02",
        "11.4.2": "470.57.02",
        "11.4.3": "470.82.01",
        "11.4.4": "470.82.01",
    },
    "11.5": {"11.5.0": "495.29.05", "11.5.1": "495.29.05", "11.5.2": "495.29.05"},
    "11.6": {"11.6.0": "510.39.01", "11.6.1": "510.47.03", "11.6.2": "510.47.03"},
    "11.7": {"11.7.0": "515.43.04", "11.7.1": "515.48.07"},
    "11.8": {"11.8.0": "520.61.05"},
    "12.0": {"12.0.0": "525.60.13", "12.0.1": "525.85.12"},
    "12.1": {"12.1.0": "530.30.02", "12.1.1": "530.30.02"},
    "12.2": {"12.2.0": "535.54.03", "12.2.1": "535.86.09", "12.2.2": "535.104.05"},
    "12.3": {"12.3.0": "545.23.06", "12.3.1": "545.23.08", "12.3.2": "545.23.08"},  # 12.3.2: DATA
    "12.4": {"12.4.0": "550.54.14", "12.4.1": "550.54.15"},
    "12.5": {"12.5.0": "555.42.02", "12.5.1": "555.42.06"},
    "12.6": {"12.6.0": "560.28.03", "12.6.1": "560.35.03", "12.6.2": "560.35.03", "12.6.3": "560.35.05"},
    "12.8": {"12.8.0": "570.26", "12.8.1": "570.124.06"},
    "12.9": {"12.9.0": "575.51.03", "12.9.1": "575.57.08"},
    "13.0": {"13.0.0": "580"},
    "13.1": {"13.1.0": "590"},
    "13.2": {"13.2.0": "595"},
    "13.3": {"13.3.0": "610"},
    "13.4": {"13.4.1": "615"},
    "13.5": {"13.5.0": "620"},  # DATA
}
"""RN: the driver version, from 13.0 the branch, that corresponds to a toolkit. The first of a row is the first release."""

MINOR_VERSION_RANGES: dict[int, tuple[str, str | None]] = {
    11: ("450.80.02", "525"),
    12: ("525.60.13", "580"),
    13: ("580", None),
}
"""RN: at least and below. Its table has 450 and 525; a note to it gives 450.80.02, and FC 525.60.13 for "the 12.x toolkits"."""

FIRST_WITH_MINOR_VERSIONS = 11

COMPAT_COLUMNS: tuple[int, ...] = (535, 570, 580, 590, 595, 610, 615)
COMPAT_TABLE = {
    "13.4": "C C C C C C -",
    "13.3": "C C C C C - X",
    "13.2": "C C C C - X X",
    "13.1": "C C C - X X X",
    "13.0": "C C - X X X X",
    "12.9": "C C X X X X X",
    "12.8": "C - X X X X X",
    "12.6": "C X X X X X X",
    "12.5": "C X X X X X X",
    "12.4": "C X X X X X X",
    "12.3": "C X X X X X X",
    "12.2": "- X X X X X X",
}
"""FC: a package's row; C is compatible, X is not, - ("N/A") is the branch that the package was made from."""

COMPAT_MADE_FROM = {
    "10.0": 410,
    "10.1": 418,
    "10.2": 440,
    "11.0": 450,
    "11.1": 455,
    "11.2": 460,
    "11.3": 465,
    "11.4": 470,
    "11.5": 495,
    "11.6": 510,
    "11.7": 515,
    "11.8": 520,
    "12.0": 525,
    "12.1": 530,
    "12.2": 535,
    "12.3": 545,
    "12.4": 550,
    "12.5": 555,
    "12.6": 560,
    "12.8": 570,
    "12.9": 575,
    "13.0": 580,
    "13.1": 590,
    "13.2": 595,
    "13.3": 610,
    "13.4": 615,
    "13.5": 620,
}
"""DATA: the driver branch whose libraries a package carries."""


def runs_natively(cuda: str, driver: str) -> bool | None:
    """Whether the (Linux) driver is at least the one corresponding to the toolkit (backward compatibility has no end).

    "12.4" stands for the first release of 12.4, "12.4.1" for itself. Of an update that the notes do not list they tell
    only that it has the same driver branch.
    """
    row = CORRESPONDING.get(_minor(cuda))
    if row is None:
        return None
    own, first = _numbers(driver), _numbers(next(iter(row.values())))
    if cuda == "11.0" and _numbers(row["11.0.1"]) <= own < first:
        return None  # enough for the release candidate, not for the release
    if cuda in row:
        return own >= _numbers(row[cuda])
    if cuda.count(".") == 1 or len(first) == 1 or own[0] != first[0]:
        return own >= first
    return None


def runs_by_minor_version(cuda: str, driver: str) -> bool | None:
    """Whether the driver is in the range that the release notes give for minor-version compatibility of the CUDA major.

    A driver in the range may run the toolkit natively as well; one above the range only does that. PTX that would have to
    be compiled by an older driver, and new features, are excepted in the documents and not seen here.
    """
    minor, own = _minor(cuda), _numbers(driver)
    if minor not in CORRESPONDING:
        return None
    major = int(minor.partition(".")[0])
    if major < FIRST_WITH_MINOR_VERSIONS:
        return False
    least, below = MINOR_VERSION_RANGES[major]
    if own < _numbers(least):
        return None if major == 12 and own[0] == 525 else False  # RN and FC differ on 525 below 525.60.13
    return below is None or own < _numbers(below)


def compat_package_serves(cuda: str, driver_branch: int, data_center: bool) -> bool | None:
    """Whether the documents call cuda-compat for this CUDA minor version compatible with the driver branch and the GPU.

    `data_center` also stands for the RTX boards of NGC-ready systems and for Jetson: FC excludes all others. False is
    also the branch that the package was made from, where it is not needed, any newer one ("older forward compatibility
    packages are not supported on new driver versions"), and one that the table lacks ("end of life and [...] not supported
    targets"). Of packages without a row there, nothing is told for older branches.
    """
    minor = _minor(cuda)
    if minor not in COMPAT_MADE_FROM:
        return None
    if not data_center or driver_branch >= COMPAT_MADE_FROM[minor]:
        return False
    if minor not in COMPAT_TABLE:
        return None
    row = dict(zip(COMPAT_COLUMNS, COMPAT_TABLE[minor].split(), strict=True))
    return row.get(driver_branch) == "C"


def _minor(cuda: str) -> str:
    return ".".join(cuda.split(".")[:2])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
