"""Whether the driver's libraries inside are those of the loaded driver, and the first that programs find.

The user-mode driver and the kernel module must be of one version: NVML answers 18 and CUDA 803 otherwise (nvml.h; cuda.h). A package for
forward compatibility may be newer, never older: facts and tables in knowledge/cuda_compatibility.py.
"""

from typing import TypeAlias

from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.inner_libraries import CUDA, NVML, InnerLibraries, InnerLibrary, MappedLibrary
from gpudoctor.facts.mounts import MountedLibrary
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.knowledge.compat_packages import PAGE, Trouble, package_trouble
from gpudoctor.knowledge.cuda_compatibility import Fit, forward_compatible, package_fit
from gpudoctor.report import NodeGpu
from gpudoctor.trace import Step, StepId, failed, passed, skipped, unknown, warned
from gpudoctor.tracing import remedies
from gpudoctor.tracing.ground import Ground
from gpudoctor.tracing.sight import LIBRARY_PATH, Sight
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

Library: TypeAlias = InnerLibrary | MappedLibrary


def judge_libraries(sight: Sight, ground: Ground) -> Step:
    """The one that is in use, or would be; then the others of the driver's that were put inside."""
    module = sight.module
    if isinstance(module, Unread):
        return unknown(StepId.LIBRARIES, module)
    if not module.loaded:
        return skipped(StepId.LIBRARIES, "no driver is loaded to compare them with")
    if module.version is None:
        missing = Unread(Why.UNREADABLE, "the nvidia module", "does not say its version")
        return unknown(StepId.LIBRARIES, module.mute or missing)
    first = _first(sight, CUDA)
    if first is not None and (step := _wrong(first, sight, ground, module.version)) is not None:
        return step
    others = [library for library in (_first(sight, NVML), *_mounted(sight)) if library is not None]
    mixed = next((one for one in others if one.version and one.version != module.version and not _is_compat(one)), None)
    if mixed is not None:
        return _mismatch(mixed.path, mixed.version, _cite(mixed, sight), sight, module)
    if first is None:
        return _none(sight, module)
    return _right(first, sight, ground, module)


def _is_compat(library: Library | MountedLibrary) -> bool:
    return not isinstance(library, MountedLibrary) and library.compat


def _mounted(sight: Sight) -> tuple[MountedLibrary, ...]:
    return sight.devices.libraries if isinstance(sight.devices, Devices) else ()


def _first(sight: Sight, name: str) -> Library | None:
    """What a process has mapped; else what programs get."""
    mapped = sight.libraries.mapped_as(name)
    return mapped[0] if mapped else sight.libraries.first(name)


def _cite(library: Library | MountedLibrary, sight: Sight) -> Cited:
    if isinstance(library, MountedLibrary):
        return (Evidence(f"/proc/{sight.pid}/mountinfo", f"{library.path} is mounted, of version {library.version}"),)
    ahead = isinstance(library, InnerLibrary) and library.by_variable
    return (library.evidence, *(sight.environ(LIBRARY_PATH) if ahead else ()))


# what is wrong ------------------------------------------------------------------------------------------------------


def _wrong(library: Library, sight: Sight, ground: Ground, version: str) -> Step | None:
    """A stub, a package for forward compatibility, or another version than the module's."""
    if library.stub:
        said = f"{library.path} comes first, a stub that is made for linking only: CUDA answers 34"
        folder = library.path.rpartition("/")[0]
        return failed(StepId.LIBRARIES, said, _cite(library, sight), *remedies.library_path(folder))
    if not library.version:
        said = f"{library.path} comes first, and no name tells its version"
        return unknown(StepId.LIBRARIES, Unread(Why.UNREADABLE, library.path, said), said, _cite(library, sight))
    if library.version == version:
        return None
    if library.compat:
        return _compat(library, sight, ground, version)
    assert isinstance(sight.module, NvidiaModule)
    return _mismatch(library.path, library.version, _cite(library, sight), sight, sight.module)


def _mismatch(path: str, version: str, evidence: Cited, sight: Sight, module: NvidiaModule) -> Step:
    name = path.rpartition("/")[2].partition(".so")[0]
    said = f"{name} is {version}, the loaded module {module.version}: CUDA answers 803, NVML 18"
    return failed(
        StepId.LIBRARIES, said, (*evidence, *module.cite("version")), *remedies.same_libraries(sight.workload)
    )


def _compat(library: Library, sight: Sight, ground: Ground, version: str) -> Step | None:
    """Libraries of another branch, on purpose: on a newer driver they do not work, on a GPU that may not use them neither."""
    assert isinstance(sight.module, NvidiaModule)
    evidence = (*_cite(library, sight), *sight.module.cite("version"))
    folder = library.path.rpartition("/")[0]
    remedy = remedies.library_path(folder)
    begin = f"{library.path} of {library.version} comes first, a package for forward compatibility"
    gpus = _gpus(sight, ground)
    found = package_trouble(library.version, version, tuple(gpu.name or "" for gpu in gpus))
    if found is None:
        return None
    comma = "," if found.trouble is Trouble.REFUSED else ""
    said = f"{begin}{comma} {found.words}"
    if found.breaks:
        refusing = next((gpu for gpu in gpus if found.refusing and gpu.name == found.refusing), None)
        named = (Evidence(f"the node's GPU {refusing.address}", found.refusing),) if refusing is not None else ()
        return failed(StepId.LIBRARIES, said, (*evidence, *named), *remedy, references=(PAGE,))
    if found.trouble is Trouble.NOT_NEEDED:
        return warned(StepId.LIBRARIES, said, evidence, *remedy, references=(PAGE,))
    return unknown(StepId.LIBRARIES, Unread(Why.NOT_ANSWERED, library.path, found.words), said, evidence)


def _gpus(sight: Sight, ground: Ground) -> tuple[NodeGpu, ...]:
    return ground.at(sight.addresses)


# what is there ------------------------------------------------------------------------------------------------------


def _none(sight: Sight, module: NvidiaModule) -> Step:
    """No libcuda of which it is known that programs get it."""
    libraries = sight.libraries
    several = libraries.of(CUDA)
    if several:
        listed = ", ".join(f"{one.path} ({one.version or 'version unknown'})" for one in several)
        unread = _order_unknown(libraries)
        said = f"several libcuda are inside: {listed}; which comes first, {unread.where} does not tell: {unread.detail}"
        return unknown(StepId.LIBRARIES, unread, said, tuple(one.evidence for one in several))
    if mounted := next((one for one in _mounted(sight) if one.name == CUDA), None):
        return _mounted_only(mounted, sight, module)
    if libraries.unseen is not None:
        return unknown(StepId.LIBRARIES, libraries.unseen)
    if libraries.unlinked:
        alone = libraries.unlinked[0]
        said = f"{alone.path} is inside, but not the name that programs load, {CUDA}.so.1: ldconfig did not run in it"
        return failed(StepId.LIBRARIES, said, (alone.evidence,), *remedies.inject(sight.workload))
    where = f"/proc/{sight.pid}/root"
    looked = Evidence(where, f"no {CUDA}.so.1 in {', '.join(libraries.folders)}")
    said = f"no {CUDA}.so.1 is in any folder that its loader is known to look into"
    return failed(StepId.LIBRARIES, said, (looked,), *remedies.inject(sight.workload))


def _mounted_only(mounted: MountedLibrary, sight: Sight, module: NvidiaModule) -> Step:
    """It was put inside, but the folder it lies in could not be looked into, or has no link to it."""
    evidence = (*_cite(mounted, sight), *module.cite("version"))
    if mounted.version and sight.libraries.unseen is not None:
        said = f"{CUDA} {mounted.version} is mounted, as the loaded module is; what else its folders hold was not seen"
        return passed(StepId.LIBRARIES, said, evidence)
    if not mounted.version:
        unread = Unread(Why.UNREADABLE, mounted.path, "is mounted, and no name tells its version")
        return unknown(StepId.LIBRARIES, unread, evidence=evidence)
    said = f"{mounted.path} is mounted, but not the name that programs load, {CUDA}.so.1: ldconfig did not run in it"
    return failed(StepId.LIBRARIES, said, evidence, *remedies.inject(sight.workload))


def _right(first: Library, sight: Sight, ground: Ground, module: NvidiaModule) -> Step:
    """The right one; which may not be the first where the loader's cache was not seen, and may know a package for forward compatibility."""
    evidence = (*_cite(first, sight), *module.cite("version"))
    if first.compat:
        said = f"{first.path} of {first.version} works with the driver {module.version} on these GPUs"
        return passed(StepId.LIBRARIES, said, evidence)
    if isinstance(first, MappedLibrary):
        return passed(
            StepId.LIBRARIES, f"PID {first.pid} has loaded {CUDA} {first.version}, as the module is", evidence
        )
    waiting = next((one for one in sight.libraries.compat if _could_come_first(one, module.version or "")), None)
    if waiting is None or first.by_variable or _told(sight.libraries, first):
        return passed(StepId.LIBRARIES, f"{CUDA} {first.version} comes first, as the module is", evidence)
    gpus = _gpus(sight, ground)
    said = f"{CUDA} {first.version} is inside, as the module is"
    if gpus and all(forward_compatible(gpu.name) for gpu in gpus):
        return passed(StepId.LIBRARIES, f"{said}; the image's {waiting.path} would work as well", evidence)
    unread = _order_unknown(sight.libraries)
    said = f"{said}; whether {waiting.path} comes before it, {unread.where} does not tell: {unread.detail}"
    return unknown(StepId.LIBRARIES, unread, said, (*evidence, waiting.evidence))


def _told(libraries: InnerLibraries, first: InnerLibrary) -> bool:
    """Whether the cache tells that it is first: it has it so, or has none, and a folder is reached by the cache or not at all."""
    return not isinstance(libraries.cache, Unread) and libraries.cached.get(CUDA) in (None, first.path)


def _order_unknown(libraries: InnerLibraries) -> Unread:
    """Why the loader's order is not known."""
    if isinstance(libraries.cache, Unread):
        return libraries.cache
    where = libraries.cache.read_from["libraries"].where
    detail = "it has no libcuda of 64 bits that is there" if libraries.cache.exists else "there is none"
    return Unread(Why.NOT_ANSWERED, where, detail)


def _could_come_first(library: InnerLibrary, version: str) -> bool:
    """The toolkit's hook gives the loader a package only if it is newer (nvidia-container-toolkit CHANGELOG 1.17.5, enable-cuda-compat)."""
    return package_fit(library.version, version) not in (Fit.NOT_COMPATIBLE, Fit.NOT_NEEDED)
