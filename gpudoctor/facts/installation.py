"""How the driver's user space was installed: by NVIDIA's runfile, by distribution packages, or by both."""

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.raw import Absent, Listing
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

UNINSTALLER = "/usr/bin/nvidia-uninstall"
DPKG_INFO = "/var/lib/dpkg/info"

# The packages that hold libcuda: libnvidia-compute-BRANCH (Ubuntu), libcuda1 (Debian). They leave no file behind when removed,
# so a list is an installed package.
_COMPUTE = pattern(r"(libnvidia-compute-\d+[\w-]*|libcuda1)(?::\w+)?\.list")


class Installation(Fact, frozen=True):
    """`runfile` is the runfile's uninstaller, empty without it; packages are asked for only beside that."""

    runfile: Cited
    packages: Reading[tuple[str, ...]]

    @property
    def twice(self) -> bool:
        """By the runfile and by packages."""
        return bool(self.runfile) and bool(self.packages) and not isinstance(self.packages, Unread)

    @classmethod
    def gather(cls, desk: Desk) -> "Installation | Unread":
        """nvidia-installer leaves nvidia-uninstall behind (README of the driver, "Installing the driver"); dpkg a list a package."""
        uninstaller = desk.raw.entry(UNINSTALLER)
        if isinstance(uninstaller, Unread):
            return uninstaller
        if isinstance(uninstaller, Absent):
            return cls(runfile=(), packages=(), read_from={"runfile": uninstaller.evidence})
        packages, evidence = _packages(desk)
        return cls(
            runfile=(Evidence(UNINSTALLER, f"exists, a {uninstaller.type.words}"),),
            packages=packages,
            read_from={"runfile": Evidence(UNINSTALLER, "exists"), "packages": evidence},
        )


def _packages(desk: Desk) -> tuple[Reading[tuple[str, ...]], Evidence]:
    listing = desk.raw.listing(DPKG_INFO)
    if isinstance(listing, Unread):
        return listing, Evidence(DPKG_INFO, listing.detail)
    if isinstance(listing, Absent):
        unasked = Unread(Why.NOT_RECORDED, DPKG_INFO, "no dpkg here; other package managers are not asked")
        return unasked, listing.evidence
    names = tuple(match[1] for name in listing.names if (match := _COMPUTE.fullmatch(name)))
    if not names and not listing.complete:
        return Unread(Why.NOT_RECORDED, DPKG_INFO, "was recorded in part only"), Evidence(DPKG_INFO, "in part")
    return names, Evidence(DPKG_INFO, _said(listing, names))


def _said(listing: Listing, names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}.list" for name in names) or f"{len(listing.names)} files, none of libnvidia-compute"
