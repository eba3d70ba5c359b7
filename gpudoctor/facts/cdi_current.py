"""Whether what NVIDIA's CDI specs name is on the node: files, device nodes with their numbers, hook programs, GPUs, MIG devices.

nvidia-ctk writes only what it found, and runtimes refuse a container whose bind mount has no source (runc and crun: "error mounting … no
such file or directory"), so a missing source is a fault. A node with a type and a major is made without a look at the host; of another
one the host's must exist, and its own major counts where it states one (container-device-interface pkg/cdi/container-edits_unix.go).
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.cdi_named import distinct_nodes, driver_version, hook_programs, mounted
from gpudoctor.facts.cdi_spec import CdiNode, CdiSpec
from gpudoctor.facts.cdi_specs import CdiFile, CdiSpecs
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.device_nodes import CONTROL, CONTROL_MINOR, NVIDIA_MAJOR, UVM, Majors, describe
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule, hidden_gpus
from gpudoctor.facts.gpu_specs import GPU
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.programs import Located, locate
from gpudoctor.facts.raw import Absent, Entry, EntryType, Raw
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

MODESET, MODESET_MINOR = "/dev/nvidia-modeset", 254
"""nv-chardev-numbers.h of open-gpu-kernel-modules."""
CAPABILITIES, CHANNELS = "/dev/nvidia-caps/", "/dev/nvidia-caps-imex-channels/"
ALL = "all"

_MAJOR_NAMES = (
    (CHANNELS, "nvidia-caps-imex-channels"),
    (CAPABILITIES, "nvidia-caps"),
    (UVM, "nvidia-uvm"),
    ("/dev/nvidia-nvswitch", "nvidia-nvswitch"),
)
"""Names in /proc/devices of majors that the kernel deals out anew at each boot, by how the paths of their nodes begin."""
_GPU_NODE = pattern(r"/dev/nvidia(\d{1,3})")
_LETTERS = {EntryType.CHAR: "c", EntryType.BLOCK: "b", EntryType.FIFO: "p"}
"""What a spec may state as the type of each; one that differs from the host's is refused (fillMissingInfo)."""


class Gone(Struct, frozen=True):
    """A path that a spec names and that is not on the node, with what it is there for and where the spec says so."""

    path: str
    what: str
    line: int
    evidence: Cited


class WrongNode(Struct, frozen=True):
    """A node that a container would get with numbers that are not its own here."""

    path: str
    line: int
    stated: tuple[int, int]
    real: str
    evidence: Cited


class Misled(Struct, frozen=True):
    """A name with a GPU's UUID that leads to another GPU's node."""

    name: str
    line: int
    path: str
    real: str


class SpecState(Struct, frozen=True):
    """One file held against the node.

    `version` is the driver's that its files carry, `of_host` whether the loaded one's files are beside them. `strangers` are names of
    GPUs that are not here, `old_mig` those of MIG devices, `missing` GPUs that no device of it brings; `gpus` is how many names of GPUs
    were held against the driver's. `unseen` is what could not be looked at. `uvm` is the host's /dev/nvidia-uvm where a spec that gives
    GPUs leaves it out.
    """

    file: CdiFile
    looked: int
    gone: tuple[Gone, ...] = ()
    numbers: tuple[WrongNode, ...] = ()
    misled: tuple[Misled, ...] = ()
    version: str = ""
    of_host: bool = False
    strangers: tuple[str, ...] = ()
    old_mig: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    gpus: int = 0
    unseen: tuple[Unread, ...] = ()
    uvm: Evidence | None = None


class CdiCurrent(Fact, frozen=True):
    """By path, NVIDIA's specs that load. `driver` is the loaded driver's version, None where none is loaded or it is not known."""

    states: Mapping[str, SpecState]
    driver: str | None

    @classmethod
    def gather(cls, desk: Desk) -> "CdiCurrent | Unread":
        """Nothing is looked at where there is no spec."""
        specs = desk.get(CdiSpecs)
        if isinstance(specs, Unread):
            return specs
        files = [file for file in specs.of_nvidia if file.loaded is not None]
        if not files:
            return cls(states={}, driver=None)
        node = _Node(desk)
        return cls(
            states={file.path: node.held_against(file) for file in files},
            driver=node.driver,
            read_from={"driver": node.driver_evidence},
        )


class _Node:
    """What the node has, looked up once for all specs."""

    def __init__(self, desk: Desk) -> None:
        self._raw: Raw = desk.raw
        module, gpus, majors = desk.get(NvidiaModule), desk.get(DriverGpus), desk.get(Majors)
        viewpoint = desk.get(Viewpoint)
        self._contained = isinstance(viewpoint, Viewpoint) and viewpoint.contained
        self.driver = module.version if isinstance(module, NvidiaModule) and module.loaded else None
        self.driver_evidence = (
            Evidence(module.where, module.detail) if isinstance(module, Unread) else module.cite("version")[0]
        )
        self._majors = majors.by_name if isinstance(majors, Majors) else None
        listed = gpus.gpus.values() if isinstance(gpus, DriverGpus) else ()
        self._gpus = {gpu.uuid.lower(): gpu for gpu in listed if isinstance(gpu, DriverGpu) and gpu.uuid is not None}
        told = all(isinstance(gpu, Absent) or (isinstance(gpu, DriverGpu) and gpu.uuid is not None) for gpu in listed)
        self._hidden = hidden_gpus(gpus)
        whole = isinstance(gpus, DriverGpus) and gpus.unlisted is None
        self._all_known = whole and told and bool(self._gpus)
        self._minors = {gpu.minor for gpu in listed if isinstance(gpu, DriverGpu) and gpu.minor is not None}
        self._mig = _mig_devices(desk) if self._all_known else None
        self._entries: dict[str, Entry | Absent | Unread] = {}

    def held_against(self, file: CdiFile) -> SpecState:
        spec = file.loaded
        assert spec is not None
        version = driver_version(spec)
        old_mig = self._old_mig(spec)
        gone, unseen = self._gone(spec, has_old_mig=bool(old_mig))
        return SpecState(
            file=file,
            looked=len(mounted(spec)) + len(spec.nodes) + len(spec.hooks),
            gone=gone,
            numbers=tuple(self._wrong_nodes(spec)),
            misled=tuple(self._misled(spec)),
            version=version,
            of_host=self._loaded_is_beside(spec, version),
            strangers=tuple(self._strangers(spec)),
            old_mig=old_mig,
            missing=tuple(self._missing(spec)),
            gpus=sum(_is_gpu(device.name) for device in spec.devices) if self._all_known else 0,
            unseen=(*unseen, *self._undecided(spec)),
            uvm=self._left_out(spec),
        )

    def _left_out(self, spec: CdiSpec) -> Evidence | None:
        """The host's /dev/nvidia-uvm, where a spec has GPUs and their control node and was made before that node was there.

        nvidia-ctk leaves out what it does not find, with a warning (nvidia-container-toolkit, pkg/nvcdi/common-nvml.go).
        """
        named = {_plain(node.source) for node in spec.nodes}
        gives = CONTROL in named and any(_GPU_NODE.fullmatch(path) for path in named)
        if spec.kind != GPU or not gives or UVM in named:
            return None
        entry = self._entry(UVM)
        return Evidence(entry.where, describe(entry)) if isinstance(entry, Entry) and _is_char(entry) else None

    def _entry(self, path: str) -> Entry | Absent | Unread:
        if path not in self._entries:
            found = self._raw.entry(path, follow=True)
            if isinstance(found, Absent) and self._contained:
                found = _within(path)
            self._entries[path] = found
        return self._entries[path]

    # Paths -----------------------------------------------------------------------------------------------------------

    def _gone(self, spec: CdiSpec, *, has_old_mig: bool) -> tuple[tuple[Gone, ...], tuple[Unread, ...]]:
        gone: list[Gone] = []
        unseen: list[Unread] = []
        for path, line in mounted(spec).items():
            found = self._entry(path)
            if isinstance(found, Absent):
                gone.append(Gone(path, "is to be mounted and is not here", line, (found.evidence,)))
            elif isinstance(found, Unread):
                unseen.append(found)
        for node in distinct_nodes(spec):
            lacking = self._lacking(node, has_old_mig=has_old_mig)
            if isinstance(lacking, Unread):
                unseen.append(lacking)
            else:
                gone += lacking
        for path, line in hook_programs(spec).items():
            program = self._program(path)
            if isinstance(program, Unread):
                unseen.append(program)
            elif not program.found:
                gone.append(Gone(path, _unfit(program), line, program.evidence))
        return tuple(gone), tuple(unseen)

    def _lacking(self, node: CdiNode, *, has_old_mig: bool) -> tuple[Gone, ...] | Unread:
        """A node that is not there, or is none, where no other check tells of that."""
        found = self._entry(node.source)
        if isinstance(found, Unread):
            return found
        elsewhere = False if _is_char(found) else self._elsewhere(node, has_old_mig=has_old_mig)
        if isinstance(elsewhere, Unread):
            return elsewhere
        seen = found if node.self_contained else self._itself(node.source, found)
        return () if elsewhere else tuple(_gone_node(node, seen))

    def _itself(self, path: str, found: Entry | Absent) -> Entry | Absent:
        """What an engine sees that asks the host's node: a link is no node to it (deviceInfoFromPath, lstat)."""
        own = self._raw.entry(path) if isinstance(found, Entry) else found
        return own if isinstance(own, Entry) and own.type is EntryType.LINK else found

    def _program(self, path: str) -> Located | Unread:
        program = locate(self._raw, path)
        if isinstance(program.path, Unread):
            return program.path
        return program if program.found or not self._contained else _within(path)

    def _elsewhere(self, node: CdiNode, *, has_old_mig: bool) -> bool | Unread:
        """Whether a node that is missing, or is none, is the host's fault, told by other checks: the driver has a device for it."""
        plain = _plain(node.source)
        gpu = _GPU_NODE.fullmatch(plain)
        if gpu is not None:
            here = int(gpu[1]) in self._minors
            return here if here or self._hidden is None else self._hidden
        if plain == CONTROL or plain.startswith(UVM):
            return True
        if plain.startswith(CAPABILITIES):
            return self._mig is not None and not has_old_mig
        return plain == MODESET and isinstance(self._entry(node.source.replace(plain, UVM)), Absent)

    # Numbers -----------------------------------------------------------------------------------------------------------

    def _wrong_nodes(self, spec: CdiSpec) -> Iterator[WrongNode]:
        for node in distinct_nodes(spec):
            stated = node.numbers
            if stated is None or node.type == "b":
                continue
            entry = self._entry(node.source)
            if isinstance(entry, Entry) and entry.type is not EntryType.CHAR:
                continue
            real, evidence = self._real(_plain(node.source), entry)
            if any(have is not None and have != said for have, said in zip(real, stated, strict=True)):
                shown = ":".join("?" if part is None else str(part) for part in real)
                yield WrongNode(node.source, node.place.line, stated, shown, evidence)

    def _real(self, path: str, entry: Entry | Absent | Unread) -> tuple[tuple[int | None, int | None], Cited]:
        """A node's numbers as the kernel has them, of what it does not fix as the host's node has them."""
        seen = (Evidence(entry.where, describe(entry)),) if isinstance(entry, Entry) else ()
        host = (entry.major, entry.minor) if isinstance(entry, Entry) else (None, None)
        fixed = {CONTROL: CONTROL_MINOR, MODESET: MODESET_MINOR}.get(path)
        gpu = _GPU_NODE.fullmatch(path)
        if gpu is not None or fixed is not None:
            return (NVIDIA_MAJOR, int(gpu[1]) if gpu is not None else fixed), seen
        name = next((name for begin, name in _MAJOR_NAMES if path.startswith(begin)), None)
        if name is None or self._majors is None or name not in self._majors:
            return host, seen
        major = self._majors[name]
        minor = host[1] if host[0] == major else None
        return (major, minor), (Evidence("/proc/devices", f"{major} {name}"), *seen)

    # GPUs --------------------------------------------------------------------------------------------------------------

    def _strangers(self, spec: CdiSpec) -> Iterator[str]:
        if self._all_known:
            yield from (
                device.name for device in spec.devices if _is_gpu(device.name) and device.name.lower() not in self._gpus
            )

    def _undecided(self, spec: CdiSpec) -> Iterator[Unread]:
        """Why it is not known of a name whether a GPU has it."""
        names = (device.name.lower() for device in spec.devices if _is_gpu(device.name))
        if self._hidden is not None and any(name not in self._gpus for name in names):
            yield self._hidden

    def _misled(self, spec: CdiSpec) -> Iterator[Misled]:
        for device in spec.devices:
            gpu = self._gpus.get(device.name.lower())
            nodes = [node for node in device.edits.nodes if _GPU_NODE.fullmatch(_plain(node.source))]
            if gpu is None or gpu.minor is None or len(nodes) != 1:
                continue
            plain = _plain(nodes[0].source)
            if plain != f"/dev/nvidia{gpu.minor}":
                yield Misled(device.name, nodes[0].place.line, plain, f"/dev/nvidia{gpu.minor}")

    def _missing(self, spec: CdiSpec) -> Iterator[str]:
        """GPUs of which no device has the node; only where there is one that is meant to bring all.

        Of another class (gds, imex-channel, gpu.coherent) "all" means all of that class (nvidia-ctk cdi generate, WithMergedDeviceOptions).
        """
        if not self._all_known or spec.class_name != "gpu" or all(device.name != ALL for device in spec.devices):
            return
        named = {_plain(node.source) for node in spec.nodes}
        for gpu in self._gpus.values():
            if (
                gpu.minor is not None
                and gpu.initialised
                and not gpu.excluded
                and f"/dev/nvidia{gpu.minor}" not in named
            ):
                yield str(gpu.uuid)

    def _old_mig(self, spec: CdiSpec) -> tuple[str, ...]:
        if self._mig is None:
            return ()
        names = [device.name for device in spec.devices if device.name.startswith("MIG-")]
        return tuple(name for name in names if name.lower() not in self._mig)

    def _loaded_is_beside(self, spec: CdiSpec, version: str) -> bool:
        """Whether a library of the loaded driver lies where the spec takes one of another version from."""
        if not version or self.driver is None or version == self.driver:
            return False
        library = next((path for path in mounted(spec) if path.endswith(f".so.{version}")), "")
        beside = f"{library.removesuffix(version)}{self.driver}"
        return bool(library) and isinstance(self._entry(beside), Entry)


def _within(path: str) -> Unread:
    said = "this is a container, which need not have what the node has"
    return Unread(Why.NOT_RECORDED, path, said, would_need="the node's own root (--root)")


def _mig_devices(desk: Desk) -> frozenset[str] | None:
    """UUIDs of the MIG devices, None where it is not known that these are all."""
    nvml = desk.get(Nvml)
    if isinstance(nvml, Unread) or nvml.failure or not nvml.devices:
        return None
    if any(device.error for device in nvml.devices):
        return None
    modes = [device.field("mig.current") for device in nvml.devices]
    found = frozenset(mig.uuid.lower() for device in nvml.devices for mig in device.mig_devices if mig.uuid)
    return found if found or all(mode is False for mode in modes) else None


def _is_gpu(name: str) -> bool:
    return name.startswith("GPU-")


def _plain(path: str) -> str:
    """A node's path without the root of a driver container before it."""
    at = path.rfind("/dev/nvidia")
    return path[at:] if at > 0 else path


def _gone_node(node: CdiNode, found: Entry | Absent) -> Iterator[Gone]:
    if isinstance(found, Absent):
        yield Gone(node.source, "is to be a device node and is not here", node.place.line, (found.evidence,))
        return
    letter = _LETTERS.get(found.type, "")
    if not node.self_contained and (not letter or node.type not in ("", letter)):
        wanted = f"is to be a device node of type {node.type}" if node.type and letter else "is to be a device node"
        seen = (Evidence(found.where, describe(found)),)
        yield Gone(node.source, f"{wanted} and is a {found.type.words}", node.place.line, seen)


def _is_char(found: Entry | Absent) -> bool:
    return isinstance(found, Entry) and found.type is EntryType.CHAR


def _unfit(program: Located) -> str:
    there = any("not executable" in piece.shows for piece in program.evidence)
    return "is a hook's program and cannot be executed" if there else "is a hook's program and is not here"
