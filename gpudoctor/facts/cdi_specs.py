"""The CDI specs of the node where engines look, and which device each name leads to.

Engines read *.json and *.yaml directly in /etc/cdi, then in /var/run/cdi (tags.cncf.io/container-device-interface pkg/cdi/spec-dirs.go).
A later folder wins over an earlier one; two files of one folder that claim a name take it from everybody, a later folder that
claims it too included (cache.go, refresh). A file that is refused counts as not there. Other folders that the nvidia runtime (config.toml,
modes.cdi.spec-dirs) or an engine (cdi-spec-dirs, cdi_spec_dirs) is told to look into are read as well; their order is that program's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from posixpath import normpath
from typing import ClassVar

from msgspec.structs import replace

from gpudoctor.facts.cdi_spec import CdiSpec, parse_spec
from gpudoctor.facts.cdi_validity import Refusal, refused_by
from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.containerd import Containerds
from gpudoctor.facts.containerd_cri import Cri
from gpudoctor.facts.crio import CrioConfig
from gpudoctor.facts.desk import Citable, Desk, Population
from gpudoctor.facts.docker import Dockers
from gpudoctor.facts.podman import PodmanConfig
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw, TextFile
from gpudoctor.facts.toolkit_config import ToolkitConfig
from gpudoctor.knowledge.cdi_versions import NEWEST
from gpudoctor.knowledge.toolkit_config import SPEC_DIRS
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""DefaultSpecDirs; the place in this list is a folder's priority."""
SUFFIXES = (".json", ".yaml")
MANAGEMENT = "management.nvidia.com"
"""The vendor of a spec with all that a node has, for the GPU Operator's own pods (nvidia-container-toolkit pkg/nvcdi, mode management)."""
_NVIDIA = ("nvidia.com",)


def is_nvidia(vendor: str) -> bool:
    """nvidia.com and what is below it: k8s.device-plugin.nvidia.com, management.nvidia.com, k8s.gpu.nvidia.com, runtime.nvidia.com."""
    return vendor == "nvidia.com" or vendor.endswith(".nvidia.com")


class CdiFile(Citable, frozen=True):
    """One file. `spec` is what it says, or why that is not known; `refused` why every engine skips it although it can be decoded.

    `conflicts` are the names that it shares with another file of its folder, with those files; `hidden` names that a later folder's file
    claims, with that file. `linked` tells that its folder is a symbolic link, behind which no library up to 1.1.0 looks by itself
    (spec-dirs.go, filepath.Walk).
    """

    path: str
    folder: str
    entry: Entry | Absent | Unread
    spec: CdiSpec | Malformed | Unread
    text: str = ""
    refused: Refusal | None = None
    conflicts: Mapping[str, tuple[str, ...]] = {}
    hidden: Mapping[str, str] = {}
    linked: bool = False

    @property
    def subject(self) -> Subject:
        """The file."""
        return Subject(SubjectKind.FILE, self.path)

    @property
    def loaded(self) -> CdiSpec | None:
        """Its spec, where the newest library takes it."""
        return self.spec if isinstance(self.spec, CdiSpec) and self.refused is None else None

    @property
    def of_nvidia(self) -> bool:
        """Whether it is NVIDIA's: by its kind, of a file that cannot be decoded by its name and text."""
        if isinstance(self.spec, CdiSpec) and self.spec.vendor:
            return is_nvidia(self.spec.vendor)
        return "nvidia" in self.path.rpartition("/")[2].lower() or any(name in self.text for name in _NVIDIA)

    @property
    def shadowed(self) -> bool:
        """Whether each of its devices is a later file's."""
        return self.loaded is not None and bool(self.hidden) and all(name in self.hidden for name in self.loaded.names)

    @property
    def only_root_reads(self) -> bool:
        """Whether its mode keeps users, and so rootless engines, from reading it."""
        return isinstance(self.entry, Entry) and self.entry.mode is not None and not self.entry.mode & 0o004


class CdiSpecs(Population, frozen=True):
    """All files, in the order of their folders; `devices` is the file that each full name leads to, a further folder's where no default
    one has the name.

    `seen` is what was seen of each folder.
    """

    NOTHING: ClassVar[str] = "there is no CDI specification on the node"

    files: tuple[CdiFile, ...]
    devices: Mapping[str, CdiFile]
    seen: tuple[Evidence, ...]

    @property
    def members(self) -> Sequence[CdiFile]:
        """The files."""
        return self.files

    @property
    def of_nvidia(self) -> tuple[CdiFile, ...]:
        """NVIDIA's."""
        return tuple(file for file in self.files if file.of_nvidia)

    @property
    def doubtful(self) -> tuple[CdiFile, ...]:
        """Files of which not everything counts as it was meant: they do not load, or share names."""
        return tuple(file for file in self.files if file.loaded is None or file.conflicts)

    @classmethod
    def gather(cls, desk: Desk) -> "CdiSpecs | Unread":
        """One listing for each folder, one read for each file."""
        found: list[CdiFile] = []
        seen: list[Evidence] = []
        unlisted: Unread | None = None
        for folder in (*FOLDERS, *_further(desk)):
            listing = desk.raw.listing(folder)
            if isinstance(listing, Listing):
                names = [name for name in listing.names if name.endswith(SUFFIXES)]
                found += _files(desk.raw, folder, names)
                seen.append(
                    Evidence(folder, f"holds {', '.join(names[:8])}" if names else "holds no CDI specification")
                )
                if not listing.complete:
                    unlisted = Unread(Why.NOT_RECORDED, folder, "was recorded in part only")
            else:
                seen.append(Evidence(listing.where, listing.detail))
                unlisted = listing if isinstance(listing, Unread) else unlisted
        files = _with_claims(found)
        lost = {name for file in files if file.folder in FOLDERS for name in file.conflicts}
        return cls(
            files=files,
            devices=_elsewhere(files) | {name: file for file in files for name in _own(file) if name not in lost},
            seen=tuple(seen),
            unlisted=unlisted,
        )


def _further(desk: Desk) -> tuple[str, ...]:
    """Folders beside the default ones that the nvidia runtime or an engine is told to look into, each once."""
    plain = dict.fromkeys(
        folder.replace("/run/", "/var/run/", 1) if folder.startswith("/run/") else folder
        for folder in (normpath(named) for named in _named(desk) if named.startswith("/"))
    )
    return tuple(folder for folder in plain if folder not in FOLDERS)


def _named(desk: Desk) -> Iterator[str]:
    config, dockers, containerds = desk.get(ToolkitConfig), desk.get(Dockers), desk.get(Containerds)
    crio, podman = desk.get(CrioConfig), desk.get(PodmanConfig)
    for file in () if isinstance(config, Unread) else config.files:
        yield from map(str, _spec_dirs(file.value(SPEC_DIRS)) if isinstance(file.document, dict) else ())
    for docker in () if isinstance(dockers, Unread) else dockers.dockers:
        yield from docker.cdi_folders if docker.cdi not in (None, False) else ()
    for containerd in () if isinstance(containerds, Unread) else containerds.containerds:
        yield from containerd.cri.cdi_folders if isinstance(containerd.cri, Cri) and containerd.cri.cdi else ()
    if not isinstance(crio, Unread) and crio.setup is not None:
        yield from crio.setup.files.words("cdi_spec_dirs", ())
    if not isinstance(podman, Unread) and podman.setup is not None:
        yield from podman.setup.specs.folders


def _spec_dirs(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _files(raw: Raw, folder: str, names: list[str]) -> Iterator[CdiFile]:
    own = raw.entry(folder) if names else None
    linked = isinstance(own, Entry) and own.type is EntryType.LINK
    for name in names:
        file = _file(raw, folder, name)
        if file is not None and linked:
            yield replace(file, linked=True)
        elif file is not None:
            yield file


def _file(raw: Raw, folder: str, name: str) -> CdiFile | None:
    """A directory of such a name is passed over, as is a file that is gone."""
    path = f"{folder}/{name}"
    entry = raw.entry(path, follow=True)
    if isinstance(entry, Absent) or (isinstance(entry, Entry) and entry.type is EntryType.DIR):
        return None
    text = raw.read(path)
    if isinstance(text, Absent):
        return None
    spec = parse_spec(text) if isinstance(text, TextFile) else text
    refused = refused_by(spec, NEWEST) if isinstance(spec, CdiSpec) else None
    return CdiFile(
        path=path,
        folder=folder,
        entry=entry,
        spec=spec,
        text=text.text if isinstance(text, TextFile) and not isinstance(spec, CdiSpec) else "",
        refused=refused,
        read_from={"file": _shown(path, spec)},
    )


def _shown(path: str, spec: CdiSpec | Malformed | Unread) -> Evidence:
    if not isinstance(spec, CdiSpec):
        return spec.evidence if isinstance(spec, Malformed) else Evidence(path, spec.detail)
    count = len(spec.devices)
    return Evidence(path, f"cdiVersion {spec.version}, kind {spec.kind}, {count} device{'s' * (count != 1)}")


def _with_claims(files: list[CdiFile]) -> tuple[CdiFile, ...]:
    """Each with the names that it has to share or that it loses."""
    claims: dict[str, list[CdiFile]] = {}
    for file in files:
        for name in () if file.loaded is None else file.loaded.names:
            claims.setdefault(name, []).append(file)
    shared = {name: claimants for name, claimants in claims.items() if len(claimants) > 1}
    if not shared:
        return tuple(files)
    return tuple(replace(file, conflicts=_conflicts(file, shared), hidden=_hidden(file, shared)) for file in files)


def _conflicts(file: CdiFile, shared: Mapping[str, list[CdiFile]]) -> dict[str, tuple[str, ...]]:
    found = {}
    for name in () if file.loaded is None else file.loaded.names:
        others = [one.path for one in shared.get(name, ()) if one.folder == file.folder and one.path != file.path]
        if others:
            found[name] = tuple(others)
    return found


def _hidden(file: CdiFile, shared: Mapping[str, list[CdiFile]]) -> dict[str, str]:
    if file.folder not in FOLDERS or file.loaded is None:
        return {}
    later = FOLDERS[FOLDERS.index(file.folder) + 1 :]
    return {name: one.path for name in file.loaded.names for one in shared.get(name, ()) if one.folder in later}


def _own(file: CdiFile) -> tuple[str, ...]:
    """The names that lead to a file unless a conflict took them: those that no later folder's file claims."""
    if file.loaded is None or file.folder not in FOLDERS:
        return ()
    return tuple(name for name in file.loaded.names if name not in file.hidden)


def _elsewhere(files: tuple[CdiFile, ...]) -> dict[str, CdiFile]:
    """The names in further folders."""
    loaded = ((file, file.loaded) for file in files if file.folder not in FOLDERS)
    return {
        name: file for file, spec in loaded if spec is not None for name in spec.names if name not in file.conflicts
    }
