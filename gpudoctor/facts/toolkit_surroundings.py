"""What the toolkit's config.toml speaks of, as it is on the node: the driver root, ldconfig, low-level runtimes, rootful engines."""

from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.facts.daemons import Daemon, Daemons, Program
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.gpu_workloads import GpuWorkloads
from gpudoctor.facts.loader import LoaderDirectories
from gpudoctor.facts.platform import Platform, PlatformKind
from gpudoctor.facts.programs import Located, locate
from gpudoctor.facts.raw import Absent, Entry, Raw
from gpudoctor.facts.toolkit_config import ToolkitConfig, ToolkitFile
from gpudoctor.knowledge.toolkit_config import (
    LDCONFIG,
    LDCONFIG_REPAIRED_SINCE,
    MODE,
    NO_CGROUPS,
    ROOT,
    RUNTIMES,
    SPEC_DIRS,
    auto_means,
    default_runtimes,
)
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

DRIVER_CONTAINER = "/run/nvidia/driver"
"""Where the GPU Operator's driver container shows its files (DefaultNvidiaDriverRoot, cmd/nvidia-ctk-installer/toolkit/toolkit.go)."""

_PATH = ("/usr/bin", "/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/sbin", "/bin")
_ENGINES = (Program.DOCKERD, Program.CONTAINERD, Program.CRIO)
_BRINGS_RUNC = (Program.K3S_SERVER, Program.K3S_AGENT, Program.RKE2, Program.KUBELITE)
"""They put folders of their own on the PATH of the runtimes that they start (k3s pkg/dataverify, RKE2 pkg/bootstrap, MicroK8s' snap)."""


class Surroundings(Struct, frozen=True):
    """Of one file. `root` is that its driver root is missing or empty, `root_unset` that the driver is in a container and no root set.

    `ldconfig` is the first of the paths that the release tries, or why none is found; None where the path is not the host's.
    `runtime` is the first low-level runtime that is found. `mode` is what is in force, None where that is not known. `no_specs` cites
    the folders of mode cdi where none holds a specification.
    """

    mode: str | None
    root: Evidence | Unread | None
    root_unset: Cited
    ldconfig: Located | None
    runtime: Located
    no_specs: Cited = ()


class ToolkitSurroundings(Fact, frozen=True):
    """By the path of the file; `rootful` are the engines that run in the host's user namespace.

    `users` is whether a workload is seen whose device rules tell what no-cgroups does to it.
    """

    of: Mapping[str, Surroundings]
    rootful: tuple[Daemon, ...] | Unread = ()
    users: Reading[bool] = False

    @classmethod
    def gather(cls, desk: Desk) -> "ToolkitSurroundings | Unread":
        """Looked for only where there is a file that parses."""
        config = desk.get(ToolkitConfig)
        if isinstance(config, Unread):
            return config
        files = [file for file in config.files if isinstance(file.document, dict)]
        if not files:
            return cls(of={})
        daemons = desk.get(Daemons)
        platform = desk.get(Platform)
        tegra = not isinstance(platform, Unread) and platform.kind is PlatformKind.TEGRA
        own_path = isinstance(daemons, Unread) or bool(daemons.of(*_BRINGS_RUNC))
        of = {file.path: _around(desk, file, tegra, own_path, config) for file in files}
        asked = any(file.value(NO_CGROUPS) is True for file in files)
        return cls(of=of, rootful=_rootful(daemons), users=_users(desk) if asked else False)


def _users(desk: Desk) -> Reading[bool]:
    """Whether a container or job concerns GPUs; where no processes were recorded, none is seen."""
    workloads = desk.get(GpuWorkloads)
    if isinstance(workloads, Unread):
        return False if workloads.why is Why.NOT_RECORDED else workloads
    return bool(workloads.members)


def _rootful(daemons: Daemons | Unread) -> tuple[Daemon, ...] | Unread:
    if isinstance(daemons, Unread):
        return daemons
    found = tuple(daemon for daemon in daemons.of(*_ENGINES) if daemon.own_namespace is False)
    unclear = any(daemon.own_namespace is None for daemon in daemons.of(*_ENGINES))
    if not found and (daemons.unlisted is not None or unclear):
        return daemons.unlisted or Unread(Why.NOT_ANSWERED, "/proc", "an engine's user namespace is not shown")
    return found


def _around(desk: Desk, file: ToolkitFile, tegra: bool, own_path: bool, config: ToolkitConfig) -> Surroundings:
    raw = desk.raw
    stated = file.value(MODE)
    root = str(file.value(ROOT)).rstrip("/")
    return Surroundings(
        mode=auto_means(file.release, tegra) if stated == "auto" else stated,
        root=nothing_in(raw, root) if root else None,
        root_unset=() if root or config.operators is not None else _driver_is_contained(desk),
        ldconfig=_ldconfig(raw, file),
        runtime=_runtime(raw, file, own_path),
        no_specs=_no_specs(raw, file) if stated == "cdi" else (),
    )


def _no_specs(raw: Raw, file: ToolkitFile) -> Cited:
    """A folder counts as without specifications when it is missing or listed whole (container-device-interface, pkg/cdi/cache.go)."""
    seen: list[Evidence] = []
    for folder in file.value(SPEC_DIRS):
        listing = raw.listing(str(folder).replace("/var/run/", "/run/", 1))
        if isinstance(listing, Unread):
            return ()
        if isinstance(listing, Absent):
            seen.append(listing.evidence)
        elif not listing.complete or any(name.endswith((".yaml", ".json")) for name in listing.names):
            return ()
        else:
            seen.append(Evidence(folder, "holds no .yaml and no .json"))
    return tuple(seen)


def nothing_in(raw: Raw, folder: str) -> Evidence | Unread | None:
    """The evidence that a folder is missing or empty, None when something is in it."""
    listing = raw.listing(folder)
    if isinstance(listing, Unread):
        return listing
    if isinstance(listing, Absent):
        return listing.evidence
    if listing.names:
        return None
    return (
        Evidence(folder, "is empty") if listing.complete else Unread(Why.NOT_RECORDED, folder, "was recorded in part")
    )


def _driver_is_contained(desk: Desk) -> Cited:
    """The driver's library is in the driver container's root and in none of the loader's directories."""
    raw = desk.raw
    if not isinstance(raw.entry(DRIVER_CONTAINER), Entry):
        return ()
    loader = desk.get(LoaderDirectories)
    if isinstance(loader, Unread):
        return ()
    inside = next((path for path in _libraries(raw, loader, DRIVER_CONTAINER) if isinstance(path, Entry)), None)
    outside = _libraries(raw, loader, "") if inside is not None else []
    if inside is None or not all(isinstance(found, Absent) for found in outside):
        return ()
    return (Evidence(inside.where, "exists"), *(found.evidence for found in outside if isinstance(found, Absent)))


def _libraries(raw: Raw, loader: LoaderDirectories, root: str) -> list[Entry | Absent | Unread]:
    return [raw.entry(f"{root}{folder}/libnvidia-ml.so.1") for folder in loader.directories]


def _ldconfig(raw: Raw, file: ToolkitFile) -> Located | None:
    """From 1.15 on PATH.real and PATH are tried whichever is written, before only what is written (NormalizeLDConfigPath)."""
    stated = str(file.value(LDCONFIG))
    if not stated.startswith("@"):
        return None
    path = stated.removeprefix("@")
    release = file.release
    repaired = release is None or release >= LDCONFIG_REPAIRED_SINCE
    plain = path.removesuffix(".real")
    found = [locate(raw, one) for one in ((f"{plain}.real", plain) if repaired else (path,)) if one]
    there = next((one for one in found if one.found), None)
    unread = next((one for one in found if not one.missing), None)
    if there is not None or unread is not None:
        return there or unread
    # A system with no ldconfig at all, or of which little was recorded, tells nothing of this setting.
    folder, name = plain.rpartition("/")[0], plain.rpartition("/")[2]
    others = {
        f"{place}/{one}"
        for place in (folder, f"{folder.removesuffix('/sbin')}/usr/sbin")
        for one in (name, f"{name}.real")
    }
    elsewhere = next((one for one in (locate(raw, other) for other in sorted(others)) if one.found), None)
    if elsewhere is None:
        return Located(path, Unread(Why.NOT_RECORDED, path, "no ldconfig is shown anywhere near"), ())
    return Located(path, None, (*(seen for one in found for seen in one.evidence), *elsewhere.evidence))


def _runtime(raw: Raw, file: ToolkitFile, own_path: bool) -> Located:
    stated = file.stated.get(RUNTIMES)
    named = tuple(stated) if isinstance(stated, list) else default_runtimes(file.release)
    # docker-runc went with Docker 18.09: looked for last.
    found: list[Located] = []
    for name in sorted((str(one) for one in named), key=lambda one: one == "docker-runc"):
        found.append(locate(raw, name, _PATH))
        if found[-1].found:
            return found[-1]
    unread = next((one for one in found if not one.missing), None)
    if unread is not None or not own_path:
        return unread or Located(
            ", ".join(map(str, named)), None, tuple(seen for one in found for seen in one.evidence)
        )
    why = Unread(
        Why.NOT_ANSWERED, "PATH", "a Kubernetes distribution runs here, which brings runtimes on a PATH of its own"
    )
    return Located(", ".join(map(str, named)), why, ())
