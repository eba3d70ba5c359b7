"""Known vulnerabilities of the toolkit, low-level runtimes, engines and the driver: which release has the fix, and what must be on.

Facts as of 2026-11-29. NVIDIA: bulletins of NVIDIA/product-security at dbb4ada05315 (2026-08-18), 5861 of 2026-09-30 at 08d1a287ef3f.
runc: its CHANGELOG.md at 76d9cf5da568. containerd: releases/*.toml of its tags and the GitHub advisories they name. Docker: release
notes of 25.0.6, 26.1.5 and 27.1.1, GHSA-v23v-6jw2-98fq and GHSA-x744-4wpc-v9h2. Scores are those of the bulletin or advisory, None where
none was read.
"""

from enum import Enum

from msgspec import Struct

TABLE_DATE = "2026-11-29"


class Needs(str, Enum):
    """What must be in use for a vulnerability to matter."""

    NOTHING = "whatever is configured"
    LEGACY = "legacy mode"
    HOOKS = "container hooks"
    CRI = "its CRI plugin, as Kubernetes uses it"
    PLUGINS = "authorization plugins"
    UNTOLD = "a configuration that is not the default; the bulletin does not say which"


class Advisory(Struct, frozen=True):
    """One vulnerability of one product. `fixed` are the first good releases, one a branch; branches before `since` are not affected."""

    id: str
    product: str
    cvss: float | None
    published: str
    summary: str
    fixed: tuple[str, ...]
    source: str
    since: tuple[str, ...] = ()
    needs: Needs = Needs.NOTHING


class DriverBranch(Struct, frozen=True):
    """The oldest release of a driver branch without a vulnerability that a bulletin names, and the bulletin that says so."""

    branch: int
    minimum: str
    bulletin: int
    date: str


_TOOLKIT, _RUNC, _CONTAINERD, _DOCKER = "nvidia-container-toolkit", "runc", "containerd", "docker"
_BULLETIN = "NVIDIA security bulletin"
_RUNC_FIXED = ("1.2.8", "1.3.3", "1.4.0-rc.3")

ADVISORIES = (
    Advisory("CVE-2024-0132", _TOOLKIT, 9.0, "2024-09-25", "a crafted image reaches the host's files", ("1.16.2",), f"{_BULLETIN} 5582",
             needs=Needs.LEGACY),
    Advisory("CVE-2024-0133", _TOOLKIT, 4.1, "2024-09-25", "a crafted image makes empty files on the host", ("1.16.2",),
             f"{_BULLETIN} 5582", needs=Needs.LEGACY),
    Advisory("CVE-2024-0134", _TOOLKIT, 4.1, "2024-11-05", "a crafted image makes files on the host", ("1.17.0",),
             f"{_BULLETIN} 5585", needs=Needs.LEGACY),
    Advisory("CVE-2024-0136", _TOOLKIT, 7.6, "2025-01-14", "a crafted image reads and writes devices of the host", ("1.17.1",),
             f"{_BULLETIN} 5599", needs=Needs.UNTOLD),
    Advisory("CVE-2024-0137", _TOOLKIT, 5.5, "2025-01-14", "a crafted image runs code in the host's network namespace", ("1.17.1",),
             f"{_BULLETIN} 5599", needs=Needs.UNTOLD),
    Advisory("CVE-2024-0135", _TOOLKIT, 7.6, "2025-01-14", "a crafted image changes a program of the host", ("1.17.1",),
             f"{_BULLETIN} 5599"),
    Advisory("CVE-2025-23359", _TOOLKIT, 8.3, "2025-02-11", "a crafted image reaches the host's files, past the fix of CVE-2024-0132",
             ("1.17.4",), f"{_BULLETIN} 5616", needs=Needs.LEGACY),
    Advisory("CVE-2025-23266", _TOOLKIT, 9.0, "2025-07-15", "an image's LD_PRELOAD runs code as root on the host", ("1.17.8",),
             f"{_BULLETIN} 5659", needs=Needs.HOOKS),
    Advisory("CVE-2025-23267", _TOOLKIT, 8.5, "2025-07-15", "the update-ldcache hook follows links of an image", ("1.17.8",),
             f"{_BULLETIN} 5659", needs=Needs.HOOKS),
    Advisory("CVE-2026-24260", _TOOLKIT, 8.5, "2026-06-30", "a race lets a container run code on the host", ("1.19.1",),
             f"{_BULLETIN} 5850"),
    Advisory("CVE-2024-21626", _RUNC, 8.6, "2024-01-31", "a leaked descriptor gives a container the host's files", ("1.1.12",),
             "runc CHANGELOG.md, 1.1.12; GHSA-xr7r-f8xq-vfvv"),
    Advisory("CVE-2024-45310", _RUNC, None, "2024-09-03", "a container makes empty files on the host (low)", ("1.1.14", "1.2.0-rc.3"),
             "runc CHANGELOG.md, 1.1.14; GHSA-jfvp-7x6p-h2pv"),
    Advisory("CVE-2025-31133", _RUNC, None, "2025-11-05", "a container writes to the host's /proc through masked paths", _RUNC_FIXED,
             "runc CHANGELOG.md, 1.3.3; GHSA-9493-h29p-rfm2"),
    Advisory("CVE-2025-52565", _RUNC, None, "2025-11-05", "the same through the mount of /dev/console", _RUNC_FIXED,
             "runc CHANGELOG.md, 1.3.3; GHSA-qw9x-cqr3-wc7r"),
    Advisory("CVE-2025-52881", _RUNC, None, "2025-11-05", "redirected writes to /proc get past security labels", _RUNC_FIXED,
             "runc CHANGELOG.md, 1.3.3; GHSA-cgrx-mc8f-2prm"),
    Advisory("CVE-2026-41579", _RUNC, None, "2026-06-13", "an image with a link for /dev writes to the host's files, within limits",
             ("1.3.6", "1.4.3", "1.5.0-rc.3"), "runc CHANGELOG.md, 1.3.6; GHSA-xjvp-4fhw-gc47"),
    Advisory("CVE-2024-40635", _CONTAINERD, None, "2025-03-18", "a user number that overflows runs as root", ("1.6.38", "1.7.27", "2.0.4"),
             "GHSA-265r-hfxg-fhmg"),
    Advisory("CVE-2024-25621", _CONTAINERD, 7.3, "2025-11-06", "directories of the CRI plugin are open to local users",
             ("1.7.29", "2.0.7", "2.1.5", "2.2.0"), "containerd 1.7.29; GHSA-pwhc-rpq9-4c8w", needs=Needs.CRI),
    Advisory("CVE-2025-64329", _CONTAINERD, None, "2025-11-06", "attaching to containers uses up the host's memory",
             ("1.7.29", "2.0.7", "2.1.5", "2.2.0"), "containerd 1.7.29; GHSA-m6hq-p25p-ffr2", needs=Needs.CRI),
    Advisory("CVE-2026-46680", _CONTAINERD, None, "2026-05-20", "a user number that is no number runs as root",
             ("1.7.32", "2.0.9", "2.1.8", "2.2.4", "2.3.1"), "containerd 1.7.32; GHSA-fqw6-gf59-qr4w", since=("1.7.27", "2.0.4")),
    Advisory("CVE-2026-53488", _CONTAINERD, None, "2026-06-18", "a label of an image runs a command on the host",
             ("1.7.33", "2.0.10", "2.1.9", "2.2.5", "2.3.2"), "containerd 1.7.33; GHSA-xhf5-7wjv-pqxp", needs=Needs.CRI),
    Advisory("CVE-2026-53492", _CONTAINERD, 8.4, "2026-06-18", "a checkpoint's CDI annotations give a pod devices it did not ask for",
             ("2.1.9", "2.2.5", "2.3.2"), "containerd 2.3.2; GHSA-33vj-92qq-66hc", since=("2.1.0",), needs=Needs.CRI),
    Advisory("CVE-2024-41110", _DOCKER, 9.9, "2024-07-23", "a request without a body gets past authorization plugins",
             ("23.0.15", "25.0.6", "26.1.5", "27.1.1"), "Docker Engine 27.1.1; GHSA-v23v-6jw2-98fq", needs=Needs.PLUGINS),
    Advisory("CVE-2026-34040", _DOCKER, 8.8, "2026-03-25", "a large request gets past authorization plugins", ("29.3.1",),
             "Docker Engine 29.3.1; GHSA-x744-4wpc-v9h2", needs=Needs.PLUGINS),
)  # fmt: skip

# The data-center rows for Linux of the newest bulletin that names each branch.
DRIVER_BRANCHES = tuple(
    DriverBranch(int(minimum.partition(".")[0]), minimum, bulletin, date)
    for minimum, bulletin, date in (
        ("615.71.09", 5861, "2026-09-30"),
        ("610.57.04", 5861, "2026-09-30"),
        ("595.91.07", 5861, "2026-09-30"),
        ("590.48.01", 5747, "2026-01-28"),
        ("580.178.04", 5861, "2026-09-30"),
        ("575.51.02", 5630, "2025-04-24"),
        ("570.211.01", 5747, "2026-01-28"),
        ("550.163.01", 5630, "2025-04-24"),
        ("535.309.01", 5821, "2026-05-19"),
        ("525.147.05", 5491, "2023-10-31"),
        ("515.105.01", 5452, "2023-03-30"),
        ("510.108.03", 5415, "2022-11-28"),
        ("470.256.02", 5551, "2024-06-06"),
        ("450.248.02", 5468, "2023-06-26"),
    )
)
NEWEST_BULLETIN = 5861

_FINAL = 1 << 30


def order(text: str) -> tuple[int, ...]:
    """A release as numbers that compare: three of them, then the number of a candidate or, for the release itself, more than any."""
    release, _, candidate = text.partition("-")
    numbers = [int(part) for part in release.split(".") if part.isdecimal()][:3]
    digits = "".join(letter for letter in candidate if letter.isdecimal())
    return (*numbers, *(0,) * (3 - len(numbers)), int(digits or 0) if candidate else _FINAL)


def affected(advisory: Advisory, release: str) -> bool:
    """Whether a release has the vulnerability: it is older than the fix of its branch, or its branch than all that have one."""
    mine = order(release)
    fixes = sorted(order(fix) for fix in advisory.fixed)
    own = next((fix for fix in fixes if fix[:2] == mine[:2]), None)
    begins = sorted(order(start) for start in advisory.since)
    begin = next((start for start in begins if start[:2] == mine[:2]), begins[0] if begins else None)
    if begin is not None and mine < begin:
        return False
    return mine < own if own is not None else mine[:2] < fixes[-1][:2]


def fix_for(advisory: Advisory, release: str) -> str:
    """The fix in the release's own branch, else the nearest one of a later branch."""
    mine = order(release)
    later = sorted((fix for fix in advisory.fixed if order(fix) > mine), key=order)
    return later[0] if later else advisory.fixed[-1]


def of(product: str) -> tuple[Advisory, ...]:
    """The vulnerabilities of one product."""
    return tuple(advisory for advisory in ADVISORIES if advisory.product == product)
