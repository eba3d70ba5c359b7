"""The OCI hooks that Podman and CRI-O add to containers: JSON files in folders, the later folder's file of the same name winning.

Read as go.podman.io/common pkg/hooks does (read.go, hooks.go, 1.0.0/hook.go, 0.1.0/hook.go): a hook whose program is gone is left out
without a word, any other fault makes the engine refuse: Podman each container, CRI-O its own start.
"""

from collections.abc import Iterable

from gpudoctor.facts.config_text import Malformed, parse_json
from gpudoctor.facts.desk import Citable
from gpudoctor.facts.programs import Located, locate
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.verdicts import Evidence, Unread, Why

DEFAULT_FOLDER, OVERRIDE_FOLDER = "/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"
"""DefaultDir and OverrideDir (pkg/hooks/hooks.go). Only the first is read unless a configuration names others (oci-hooks(5))."""

_STAGES = {"createContainer", "createRuntime", "prestart", "poststart", "poststop", "startContainer", "precreate"}


class OciHook(Citable, frozen=True):
    """One hook: its file, the program it names and where that is."""

    path: str
    program: Located

    @property
    def is_nvidia(self) -> bool:
        """Whether it is NVIDIA's, by the name of its program (nvidia-container-runtime-hook, nvidia-container-toolkit)."""
        return "nvidia" in self.program.name.rpartition("/")[2]


class HookFolders(Citable, frozen=True):
    """What the folders hold together. `refused` are files that the engine does not take, `unread` why there may be more or others."""

    folders: tuple[str, ...]
    hooks: tuple[OciHook, ...]
    refused: tuple[Malformed, ...] = ()
    unread: Unread | None = None

    @property
    def nvidia(self) -> tuple[OciHook, ...]:
        """The hooks that are NVIDIA's."""
        return tuple(hook for hook in self.hooks if hook.is_nvidia)

    @property
    def working(self) -> OciHook | None:
        """The first of them whose program is there."""
        return next((hook for hook in self.nvidia if hook.program.found), None)

    @property
    def gone(self) -> OciHook | None:
        """The first of them whose program was looked for in vain."""
        return next((hook for hook in self.nvidia if hook.program.missing), None)

    @property
    def doubtful(self) -> OciHook | None:
        """The first of them whose program is not known to be gone."""
        return next((hook for hook in self.nvidia if not hook.program.missing), None)


def read_hooks(raw: Raw, folders: Iterable[str]) -> HookFolders:
    """All hooks of some folders, a folder that is not there being none."""
    hooks: dict[str, OciHook] = {}
    refused: list[Malformed] = []
    unread: Unread | None = None
    evidence: dict[str, Evidence] = {}
    for folder in (places := tuple(folders)):
        listing = raw.listing(folder)
        if isinstance(listing, Unread):
            unread = listing
        if isinstance(listing, Listing) and not listing.complete:
            unread = Unread(Why.NOT_RECORDED, folder, "was recorded in part only")
        evidence[folder] = _shown(folder, listing)
        names = listing.names if isinstance(listing, Listing) else ()
        read = {name: _hook(raw, f"{folder}/{name}") for name in names if name.endswith(".json")}
        unread = next((found for found in read.values() if isinstance(found, Unread)), unread)
        hooks |= {name: found for name, found in read.items() if isinstance(found, OciHook)}
        refused += _refused(found for found in read.values() if found is not None)
    return HookFolders(
        folders=places, hooks=tuple(hooks.values()), refused=tuple(refused), unread=unread, read_from=evidence
    )


def _refused(read: Iterable[OciHook | Malformed | Unread]) -> list[Malformed]:
    """Where the first fault of a folder is a program that is gone, it stands for all of them: hooks.New lets "not exist" pass."""
    faults = [found for found in read if not isinstance(found, OciHook) or not found.program.found]
    return (
        [found for found in faults if isinstance(found, Malformed)]
        if faults and isinstance(faults[0], Malformed)
        else []
    )


def _shown(folder: str, listing: Listing | Absent | Unread) -> Evidence:
    if not isinstance(listing, Listing):
        return Evidence(folder, listing.detail)
    return Evidence(folder, f"holds {', '.join(listing.names[:8])}" if listing.names else "is empty")


def _hook(raw: Raw, path: str) -> OciHook | Malformed | Unread | None:
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return file if isinstance(file, Unread) else None
    document = parse_json(file)
    if isinstance(document, Malformed | Unread):
        return document
    version = document.get("version", "")
    hook = document.get("hook")
    program = (
        hook.get("path") if version == "1.0.0" and isinstance(hook, dict) else hook if version != "1.0.0" else None
    )
    fault = _fault(version, program, document.get("stages", document.get("stage")))
    if fault is not None:
        return Malformed(file.where, 0, 0, fault)
    located = locate(raw, str(program))
    return OciHook(path=path, program=located, read_from={"program": Evidence(file.where, f"hook.path is {program}")})


def _fault(version: object, program: object, stages: object) -> str | None:
    if version not in ("1.0.0", "0.1.0", ""):
        return f"unrecognized hook version: {version!r}"
    if not isinstance(program, str) or not program:
        return "missing required property: hook.path"
    if not isinstance(stages, list):
        return "missing required property: stages"
    unknown = [stage for stage in stages if not isinstance(stage, str) or stage not in _STAGES]
    return f"unknown stage {unknown[0]!r}" if unknown else None
