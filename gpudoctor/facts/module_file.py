"""The nvidia module as it lies on disk for the running kernel, and what DKMS knows of it."""

import re
from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.host import Host
from gpudoctor.facts.raw import Absent, CommandOutput, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

MODINFO = ("modinfo", "nvidia")
DKMS_STATUS = ("dkms", "status")
NO_TEMPORARY_FILE = "Unable to make temporary"
"""Where /tmp is read-only, as below a pod's mount, `dkms status` says so, lists nothing and ends with 0 (mktemp_or_die, dkms 3.0.10)."""

DKMS_TREE = "/var/lib/dkms"
KERNELS = "/lib/modules"

# The names of the driver itself: nvidia (NVIDIA's runfile and RPMs, Ubuntu, Arch), nvidia-open (NVIDIA's RPMs, sed in eks-ami's
# install-nvidia-driver.sh), nvidia-srv (Ubuntu's -server packages), nvidia-NNN and nvidia-current-updates (older Ubuntu), nvidia-current,
# nvidia-current-open, nvidia-tesla-NNN and nvidia-legacy-NNNxx (Debian's *-kernel-dkms). nvidia-fs, nvidia-peer-memory, nvidia-uvm of old
# packages and the like are other modules.
_NAME = r"nvidia(?:-(?:open|srv|server|current|updates|tesla|legacy|experimental|kernel|source|latest|\d{2,4}(?:xx)?))*"

# "nvidia/550.163.01, 5.15.0-139-generic, x86_64: installed"; before dkms 3 "nvidia, 550.163.01, 5.15.0-139-generic, x86_64: installed".
# What was built for no kernel yet is "nvidia/550.163.01: added" (dkms(8), status).
_BUILD = pattern(rf"^({_NAME})(?:/|, ?)([\w.+~-]+)(?:, ([^,:]+), ([^:,]+))?: (.+)$", re.MULTILINE)


class ModuleFile(Fact, frozen=True):
    """What modinfo says of the module that modprobe would load; `exists` is False when there is none for this kernel."""

    exists: bool
    filename: str
    version: str
    license: str
    vermagic: str
    signer: str

    @classmethod
    def gather(cls, desk: Desk) -> "ModuleFile | Unread":
        """Ask modinfo, which searches the running kernel's modules."""
        output = desk.raw.command(MODINFO)
        if isinstance(output, Absent):
            return Unread(Why.UNREADABLE, "modinfo", "is not installed", would_need="kmod")
        if isinstance(output, Unread):
            return output
        if output.exit != 0:
            said = (output.stderr or output.stdout).strip()
            if "not found" not in said:
                return Unread(Why.UNREADABLE, "modinfo nvidia", said or f"exit status {output.exit}")
            unseen = _tree_unseen(desk, said)
            if unseen is not None:
                return unseen
            return cls(
                exists=False,
                filename="",
                version="",
                license="",
                vermagic="",
                signer="",
                read_from={"exists": Evidence("modinfo nvidia", said)},
            )
        fields = _fields(output)
        names = ("filename", "version", "license", "vermagic", "signer")
        seen = {name: Evidence("modinfo nvidia", f"{name}: {fields.get(name, 'none')}") for name in names}
        return cls(
            exists=True,
            **{name: fields.get(name, "") for name in names},
            read_from={"exists": seen["filename"], **seen},
        )


def _tree_unseen(desk: Desk, said: str) -> Unread | None:
    """Why "not found" says nothing: modinfo says it too where the running kernel's tree is not in view, as in most containers.

    Only where it names the directory that it searched is its word enough (modprobe does, libkmod's modinfo mostly does not).
    """
    host = desk.get(Host)
    if isinstance(host, Unread) or not host.kernel or KERNELS in said:
        return None
    place = f"{KERNELS}/{host.kernel}"
    if isinstance(desk.raw.entry(place, follow=True), Absent):
        return Unread(Why.UNREADABLE, place, "does not exist here", would_need="a view of the host's /lib/modules")
    return None


def _fields(output: CommandOutput) -> dict[str, str]:
    pairs = (line.partition(":") for line in output.stdout.splitlines())
    fields: dict[str, str] = {}
    for name, _, value in pairs:
        fields.setdefault(name.strip(), value.strip())
    return fields


class Build(Struct, frozen=True):
    """A line of `dkms status`: `kernel` is empty for a version that was built for none yet."""

    name: str
    version: str
    kernel: str
    state: str


class Dkms(Fact, frozen=True):
    """DKMS' builds of the driver, the kernels installed here, and the first error in the log of a build that stopped.

    `installed` is whether there is a dkms at all; `managed` whether it knows the driver. `states` are by kernel release.
    """

    installed: bool
    managed: bool
    states: Mapping[str, str]
    kernels: Reading[tuple[str, ...]]
    incomplete: Unread | None
    failure: str | None

    @classmethod
    def gather(cls, desk: Desk) -> "Dkms | Unread":
        """Ask `dkms status`; nothing there means that DKMS does not manage the driver."""
        output = desk.raw.command(DKMS_STATUS)
        if isinstance(output, Unread):
            return output
        if isinstance(output, Absent):
            return cls(installed=False, managed=False, states={}, kernels=(), incomplete=None, failure=None)
        builds = [
            Build(name, version, kernel, state.strip())
            for name, version, kernel, _, state in _BUILD.findall(output.stdout)
        ]
        said = output.stdout.strip().replace("\n", "; ")
        if not builds and (output.exit != 0 or NO_TEMPORARY_FILE in output.stderr):
            words = output.stderr.strip() or said or f"exit status {output.exit}"
            return Unread(Why.UNREADABLE, "dkms status", words.partition("\n")[0])
        evidence = {"states": Evidence("dkms status", said or "prints nothing")}
        kernels, incomplete = _kernels(desk.raw) if builds else ((), None)
        if not isinstance(kernels, Unread):
            evidence["kernels"] = Evidence(KERNELS, ", ".join(kernels) or "is empty")
        failure, failure_evidence = _failure(desk.raw, builds)
        if failure_evidence is not None:
            evidence["failure"] = failure_evidence
        return cls(
            installed=True,
            managed=bool(builds),
            states=_states(builds),
            kernels=kernels,
            incomplete=incomplete,
            failure=failure,
            read_from=evidence,
        )


def _states(builds: list[Build]) -> dict[str, str]:
    """The best state for each kernel: two packages of the driver may each have built for some."""
    states: dict[str, str] = {}
    for build in builds:
        if build.kernel and not states.get(build.kernel, "").startswith("installed"):
            states[build.kernel] = build.state
    return states


def _kernels(raw: Raw) -> tuple[Reading[tuple[str, ...]], Unread | None]:
    """The releases below /lib/modules, and why there may be more of them."""
    listing = raw.listing(KERNELS)
    if isinstance(listing, Unread):
        return listing, listing
    if isinstance(listing, Absent):
        unseen = Unread(Why.UNREADABLE, KERNELS, listing.detail, would_need="a view of the host's /lib/modules")
        return unseen, unseen
    partly = None if listing.complete else Unread(Why.NOT_RECORDED, KERNELS, "the recording lists at least these")
    return listing.names, partly


def _failure(raw: Raw, builds: list[Build]) -> tuple[str | None, Evidence | None]:
    """The first compiler error in the log of a build that stopped; DKMS keeps a failed one in NAME/VERSION/build."""
    for name, version in dict.fromkeys((build.name, build.version) for build in builds):
        path = f"{DKMS_TREE}/{name}/{version}/build/make.log"
        log = raw.read(path)
        if isinstance(log, TextFile):
            error = next((line for line in log.text.splitlines() if re.search(r"\berror:|\bError \d+", line)), None)
            if error is not None:
                return error.strip(), Evidence(path, error.strip()[:300])
    return None, None
