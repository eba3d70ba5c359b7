"""The installed versions of the toolkit, the engines and the low-level runtimes: as the package manager, else the programs, tell them.

A distribution's package may carry fixes under an older version number; `from_distribution` says that it is such a one.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, Raw
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

DPKG, RPM = "/var/lib/dpkg/status", ("/usr/lib/sysimage/rpm", "/var/lib/rpm")
"""Where package managers keep what is installed: dpkg(1), FILES; rpm(8), FILES, moved to sysimage by Fedora 36 and SUSE."""

QUERY_DPKG = ("dpkg-query", "--show", "--showformat=${Package}\\t${Version}\\t${db:Status-Status}\\n")
QUERY_RPM = ("rpm", "--query", "--queryformat=%{NAME}\\t%{VERSION}-%{RELEASE}\\tinstalled\\n")


class Product(Struct, frozen=True):
    """A piece of software: the packages that bring it, the vendor's own first, and how its program tells its version."""

    name: str
    vendor_packages: tuple[str, ...]
    distribution_packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ("--version",)
    said: str = r"version v?(\d[\w.+~-]*)"


# Packages of NVIDIA's repository (NVIDIA/libnvidia-container gh-pages), Docker's (docs.docker.com/engine/install), Microsoft's moby-*,
# Kubernetes' cri-o (pkgs.k8s.io), Debian's and Fedora's.
TOOLKIT = Product(
    "nvidia-container-toolkit",
    ("nvidia-container-toolkit-base", "nvidia-container-toolkit"),
    programs=("/usr/bin/nvidia-ctk", "/usr/local/nvidia/toolkit/nvidia-ctk"),
)
LIBNVIDIA_CONTAINER = Product(
    "libnvidia-container",
    ("libnvidia-container-tools", "libnvidia-container1"),
    programs=("/usr/bin/nvidia-container-cli",),
    said=r"cli-version: (\d[\w.+~-]*)",
)
RUNC = Product(
    "runc",
    ("moby-runc",),
    ("runc",),
    ("/usr/bin/runc", "/usr/sbin/runc", "/usr/local/sbin/runc", "/usr/local/bin/runc"),
)
CRUN = Product("crun", (), ("crun",), ("/usr/bin/crun", "/usr/local/bin/crun"))
CONTAINERD = Product(
    "containerd",
    ("containerd.io", "moby-containerd"),
    ("containerd",),
    ("/usr/bin/containerd", "/usr/local/bin/containerd"),
    said=r"containerd \S+ v?(\d[\w.+~-]*)",
)
DOCKER = Product("docker", ("docker-ce", "moby-engine"), ("docker.io",), ("/usr/bin/dockerd", "/usr/sbin/dockerd"))
PODMAN = Product("podman", (), ("podman",), ("/usr/bin/podman",))
CRIO = Product("cri-o", ("cri-o",), (), ("/usr/bin/crio", "/usr/local/bin/crio"))
LEFTOVERS = ("nvidia-container-runtime", "nvidia-docker2", "nvidia-docker", "libnvidia-container0")
"""Packages of NVIDIA's earlier container stacks, which belong to no product here."""
PRODUCTS = (TOOLKIT, LIBNVIDIA_CONTAINER, RUNC, CRUN, CONTAINERD, DOCKER, PODMAN, CRIO)
PACKAGES = (
    *(name for product in PRODUCTS for name in (*product.vendor_packages, *product.distribution_packages)),
    *LEFTOVERS,
)
"""All that the package manager is asked for, at once."""

_UPSTREAM = pattern(r"(?:\d+:)?(\d+(?:\.\d+)*)((?:[~-]?(?:rc|beta|alpha)[.\d]*)?)")


class Version(Citable, frozen=True):
    """An installed version. `text` is as it was told, `numbers` its upstream part, `candidate` a release candidate's mark or ""."""

    product: str
    text: str
    numbers: tuple[int, ...]
    candidate: str = ""
    package: str = ""
    from_distribution: bool = False

    def before(self, *numbers: int) -> bool:
        """Whether it is older than an upstream release; missing numbers count as 0, a candidate is older than its release."""
        width = max(len(numbers), len(self.numbers))
        mine, other = (part + (0,) * (width - len(part)) for part in (self.numbers, numbers))
        return mine < other or (mine == other and bool(self.candidate))

    def __str__(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.numbers))}{self.candidate}"


class Software(Fact, frozen=True):
    """What is known of each product by its name: a version, that it is not installed, or why neither is known.

    `packages` holds every package that was asked for and is installed, by name, with its version as the package manager tells it.
    """

    by_product: Mapping[str, Version | Absent | Unread]
    packages: Mapping[str, Version] | Unread

    def of(self, product: Product) -> Version | Absent | Unread:
        """The version of one product."""
        return self.by_product[product.name]

    @classmethod
    def gather(cls, desk: Desk) -> "Software | Unread":
        """The package manager is asked once for all; a program only where it is there and no package brings it."""
        packages = _packages(desk.raw)
        by_product = {product.name: _version(desk.raw, product, packages) for product in PRODUCTS}
        return cls(by_product=by_product, packages=packages)


def version_of(
    desk: Desk, product: Product, running: str | None, installed: tuple[str, ...]
) -> Version | Unread | None:
    """The version of what runs, which is the installed one if its program is; None if it is another, or nothing is installed.

    `running` is the path of the running program, None where none runs or it is not known which; `installed` are the package's programs.
    """
    if running is not None and running not in installed:
        return None
    software = desk.get(Software)
    version = software if isinstance(software, Unread) else software.of(product)
    return None if isinstance(version, Absent) else version


def parse_version(
    product: str, text: str, evidence: Evidence, package: str = "", *, distribution: bool = False
) -> Version | None:
    """A version as packages and programs spell it: `1.6.20~ds1-1+deb12u1`, `5:27.3.1-1~ubuntu.22.04~jammy`, `1.18.0~rc.1-1`."""
    found = _UPSTREAM.match(text)
    if found is None:
        return None
    return Version(
        product=product,
        text=text,
        numbers=tuple(int(number[:9]) for number in found[1].split(".")),
        candidate=found[2].replace("~", "-"),
        package=package,
        from_distribution=distribution,
        read_from={"version": evidence},
    )


def _packages(raw: Raw) -> Mapping[str, Version] | Unread:
    places = {path: raw.entry(path) for path in (DPKG, *RPM)}
    if isinstance(places[DPKG], Entry):
        output = raw.command((*QUERY_DPKG, *PACKAGES))
    elif any(isinstance(places[path], Entry) for path in RPM):
        output = raw.command((*QUERY_RPM, *PACKAGES))
    else:
        unread = next((place for place in places.values() if isinstance(place, Unread)), None)
        return unread or Unread(Why.NOT_RECORDED, DPKG, "no dpkg and no rpm here; other package managers are not asked")
    if isinstance(output, Unread):
        return output
    if isinstance(output, Absent):
        return Unread(Why.UNREADABLE, output.path, "there is no such command")
    return dict(_told(output))


def _told(output: CommandOutput) -> Iterable[tuple[str, Version]]:
    """Both programs name on stderr, and exit with 1 for, packages that are not installed."""
    where = f"{output.argv[0]} {output.argv[1]}"
    for line in output.stdout.splitlines():
        name, _, rest = line.partition("\t")
        text, _, status = rest.partition("\t")
        if status.strip() != "installed":
            continue
        evidence = Evidence(where, f"{name} {text}")
        version = parse_version(name, text, evidence, name, distribution=_of_distribution(name))
        if version is not None:
            yield name, version


def _of_distribution(package: str) -> bool:
    return any(package in product.distribution_packages for product in PRODUCTS)


def _version(raw: Raw, product: Product, packages: Mapping[str, Version] | Unread) -> Version | Absent | Unread:
    if not isinstance(packages, Unread):
        for name in (*product.vendor_packages, *product.distribution_packages):
            if name in packages:
                return _renamed(packages[name], product)
    seen = [raw.entry(path, follow=True) for path in product.programs]
    program = next((entry for entry in seen if isinstance(entry, Entry)), None)
    if program is None:
        return next((entry for entry in seen if isinstance(entry, Unread)), Absent(product.programs[0]))
    return _asked(raw, product, program.path)


def _asked(raw: Raw, product: Product, program: str) -> Version | Unread:
    output = raw.command((program, *product.arguments))
    if not isinstance(output, CommandOutput):
        return output if isinstance(output, Unread) else Unread(Why.UNREADABLE, program, "cannot be run")
    found = re.search(product.said, output.stdout)
    line = found[0] if found is not None else (output.stdout or output.stderr).partition("\n")[0][:100]
    said = Evidence(" ".join((program, *product.arguments)), line or "says nothing")
    version = parse_version(product.name, found[1], said) if found is not None else None
    return version or Unread(Why.UNREADABLE, said.where, f"tells no version: {said.shows!r}")


def _renamed(version: Version, product: Product) -> Version:
    from msgspec.structs import replace

    return replace(version, product=product.name)
