"""Driver and CUDA: the driver's libraries as programs of the node get them, against the loaded module."""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.driver_libraries import CUDA, DEBUGGER, NVML, DriverLibraries, DriverLibrary
from gpudoctor.facts.installation import Installation
from gpudoctor.facts.library_files import LibraryFile
from gpudoctor.facts.loader_cache import LoaderCache
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.platform import PlatformGpu
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.knowledge import nvml_errors
from gpudoctor.knowledge.compat_packages import PAGE, Trouble, package_trouble
from gpudoctor.knowledge.library_remedies import for_library, install_cuda, out_of_the_loaders_way
from gpudoctor.knowledge.nvml_remedies import reload_or_reboot
from gpudoctor.knowledge.version_numbers import numbers
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Fail,
    NotApplicable,
    Pass,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

MATCH, CUDA_LIBRARY = "driver-cuda.libraries-match", "driver-cuda.cuda-library"
MOST_PLACES = 6


def set_aside(platform: Reading[PlatformGpu], module: Reading[NvidiaModule]) -> Verdict | None:
    """Why nothing is compared here."""
    if not isinstance(platform, Unread) and platform.kind is not None:
        return NotApplicable(NODE, f"{platform.kind.value} has rules of its own")
    if isinstance(module, Unread):
        return module.about(NODE)
    if not module.loaded:
        return NotApplicable(NODE, "no nvidia module is loaded", module.cite("loaded"))
    return None


# versions -----------------------------------------------------------------------------------------------------------


@check(
    MATCH,
    link=Link.DRIVER_CUDA,
    explained_by=("driver-cuda.nvml-answers", "driver-cuda.nvml-library"),
    title="Every driver library is of the loaded version",
)
def libraries_match(
    libraries: Reading[DriverLibraries],
    module: Reading[NvidiaModule],
    file: Reading[ModuleFile],
    nvml: Reading[Nvml],
    platform: Reading[PlatformGpu],
    installation: Reading[Installation],
) -> Verdicts:
    """The driver's module and its libraries must be of one version: CUDA answers 803 otherwise, NVML 18.

    Looks at what a program of this node would load by name, by the loader's cache and else in its directories: libcuda, libnvidia-ml, the
    PTX compiler and NVVM. One that lags behind is mostly a package on hold or a copy of an earlier installation; with an older PTX
    compiler or NVVM monitoring and most programs go on, and those fail that have code translated at run time. Where all of them are of
    one other version, an upgrade waits for a reload: that is told by driver-cuda.nvml-answers and driver-cuda.module-on-disk. Another copy
    later in the loader's order is no fault: no program gets it, and NVIDIA's container toolkit takes only files that are named after the
    loaded version (libnvidia-container, nvc_info.c, select_libraries; nvidia-container-toolkit, pkg/nvcdi/driver-nvml.go). Libraries of a
    package for forward compatibility are another version on purpose, see driver-cuda.cuda-library. LD_LIBRARY_PATH is a process's
    matter: gpudoctor trace.
    """
    aside = set_aside(platform, module)
    if aside is not None:
        yield aside
        return
    assert not isinstance(module, Unread)
    if module.version is None:
        mute = module.mute or Unread(Why.UNREADABLE, "the nvidia module", "does not say its version")
        yield mute.about(NODE)
    elif isinstance(libraries, Unread):
        yield libraries.about(NODE)
    else:
        yield _Match(libraries, module, file, nvml, installation).verdict(module.version)


class _Match:
    """One comparison of the libraries with the loaded module."""

    def __init__(
        self,
        libraries: DriverLibraries,
        module: NvidiaModule,
        file: Reading[ModuleFile],
        nvml: Reading[Nvml],
        installation: Reading[Installation],
    ) -> None:
        self.libraries = libraries
        self.module = module
        self.file = file
        self.init = None if isinstance(nvml, Unread) else nvml.init
        self.installation = installation

    def verdict(self, version: str) -> Verdict:
        """The verdict about the node."""
        own = [(library, file) for library in self.libraries.found if (file := _own(library)) is not None]
        named = [(library, file) for library, file in own if file.version]
        others = [(library, file) for library, file in named if file.version != version]
        if not named:
            return self._none(bool(own))
        if not others:
            names = ", ".join(_short(library.name) for library, _ in named)
            evidence = tuple(file.evidence for _, file in named)
            return Pass(NODE, f"{version}: {names}", self.module.cite("version") + evidence)
        if any(file.version == version for file in self.libraries.apart):
            said = f"the driver's own root has its libraries of {version}; the host's are left over from another driver"
            return NotApplicable(NODE, said, (self.libraries.apart[0].evidence,))
        if len(others) == len(named) and len({file.version for _, file in others}) == 1:
            return self._all(version, others)
        if any(library.name == NVML for library, _ in others) and self.init == nvml_errors.SUCCESS:
            return self._contradiction(others)
        return self._some(version, others)

    def _none(self, nameless: bool) -> Verdict:
        apart = [file for file in self.libraries.apart if file.version]
        if apart and all(file.version == self.module.version for file in apart):
            evidence = self.module.cite("version") + tuple(file.evidence for file in apart)
            return Pass(NODE, f"{apart[0].version}, in the driver's own root", evidence)
        for library in self.libraries.libraries.values():
            if isinstance(library.loaded, Unread):
                return library.loaded.about(NODE)
        if apart and not nameless and self.init == nvml_errors.SUCCESS and not self._nvml_fits(apart):
            said = f"{apart[0].path} is {apart[0].version}, but NVML answers: it was loaded from another place"
            return Unknown(NODE, Why.NOT_ANSWERED, said, tuple(file.evidence for file in apart))
        if apart and not nameless:
            summary = f"the driver's own root holds {apart[0].path} of {apart[0].version}, the loaded module is {self.module.version}"
            evidence = (*(file.evidence for file in apart), *self.module.cite("version"))
            remedies = reload_or_reboot(MATCH)
            return Fail(NODE, summary, evidence, remedies, Breaks.NOTHING, cause="libraries-differ")
        reason = "no name tells a version" if nameless else f"programs find none of them, see {CUDA_LIBRARY}"
        return NotApplicable(NODE, reason)

    def _nvml_fits(self, files: list[LibraryFile]) -> bool:
        """Whether NVML's library is among them in the module's version."""
        return any(_short(NVML) in file.path and file.version == self.module.version for file in files)

    def _all(self, version: str, others: list[tuple[DriverLibrary, LibraryFile]]) -> Verdict:
        """An upgrade that waits, where there is no word against it."""
        theirs = others[0][1].version
        evidence = self.module.cite("version") + tuple(file.evidence for _, file in others)
        if self.init == nvml_errors.SUCCESS and any(library.name == NVML for library, _ in others):
            return self._contradiction(others)
        waits = not isinstance(self.file, Unread) and self.file.exists and self.file.version == theirs
        if waits and self.init != nvml_errors.LIB_RM_VERSION_MISMATCH:
            said = f"all are {theirs}, as the module on disk: it waits for a reload, see driver-cuda.module-on-disk"
            return NotApplicable(NODE, said, evidence)
        if any(library.name == CUDA for library, _ in others) and len(others) == 1:
            return self._some(version, others)
        summary = f"{version} is loaded, all driver libraries are {theirs}"
        remedies = reload_or_reboot(MATCH)
        return Fail(NODE, summary, evidence, remedies, Breaks.NOTHING, cause="libraries-differ")

    def _contradiction(self, others: list[tuple[DriverLibrary, LibraryFile]]) -> Verdict:
        """NVML would have refused such a library: what is seen here is not what programs get."""
        said = f"{others[0][1].path} is {others[0][1].version}, but NVML answers: it was loaded from another place"
        return Unknown(NODE, Why.NOT_ANSWERED, said, tuple(file.evidence for _, file in others))

    def _some(self, version: str, others: list[tuple[DriverLibrary, LibraryFile]]) -> Verdict:
        described = [f"{_short(library.name)} is {file.version} ({file.path})" for library, file in others]
        cuda = any(library.name == CUDA for library, _ in others)
        effect = "CUDA answers 803" if cuda else "what is translated at run time fails"
        if cuda and any(numbers(file.version) > numbers(version) for library, file in others if library.name == CUDA):
            # A newer one takes itself for one of forward compatibility: rapidsai/cusignal#398.
            effect = "CUDA answers 803 or 804"
        if not cuda and any(library.name == NVML for library, _ in others):
            effect = "NVML answers 18"
        if all(library.name == DEBUGGER for library, _ in others):
            effect = "cuda-gdb may fail, nothing else"
        summary = f"{', '.join(described)} beside a module of {version}: {effect}"
        evidence = self.module.cite("version") + tuple(line for library, _ in others for line in library.evidence)
        if not isinstance(self.installation, Unread):
            evidence += self.installation.runfile
        files = tuple(dict.fromkeys(file.file for _, file in others))
        links = tuple(file.path for _, file in others if file.directory == file.file.rpartition("/")[0])
        remedies = for_library(MATCH, files, links)
        if all(library.name == DEBUGGER for library, _ in others):
            return Warn(NODE, summary, evidence, remedies, cause="debugger-differs")
        return Fail(NODE, summary, evidence, remedies, Breaks.NOTHING, cause="libraries-differ")


def _own(library: DriverLibrary) -> LibraryFile | None:
    """The file that programs get, unless it is a stub's or a package's for forward compatibility."""
    file = library.loaded
    return file if isinstance(file, LibraryFile) and not file.stub and not file.compat else None


def _short(name: str) -> str:
    return name.partition(".so")[0]


# libcuda ------------------------------------------------------------------------------------------------------------


@check(
    CUDA_LIBRARY,
    link=Link.DRIVER_CUDA,
    explained_by=("driver-cuda.nvml-library",),
    title="Programs find the driver's own CUDA library",
)
def cuda_library(
    libraries: Reading[DriverLibraries],
    module: Reading[NvidiaModule],
    platform: Reading[PlatformGpu],
    view: Viewpoint,
    gpus: Reading[DriverGpus],
    nvml: Reading[Nvml],
) -> Verdicts:
    """Every CUDA program loads libcuda.so.1 by its name, and containers are given the host's.

    Judges what the loader would give to a program of 64 bits: /etc/ld.so.cache in its order, then the loader's own directories; without
    a readable cache, the directories of ld.so.conf. A toolkit's stub answers 34; a package for forward compatibility on the loader's
    path answers 803 where it is older than the driver, 804 on GPUs that may not use one; where there is none, or one of 32 bits only,
    nvidia-smi works and CUDA does not. Easily confused with leftovers that come later in the order, and with stubs and packages that
    the loader's configuration does not name: nobody gets those. A driver container keeps its libraries in a root of its own, whatever
    is left on the host, and the driver for hosts of virtual GPUs has no libcuda: both are right. A library of another version than the
    module is the matter of driver-cuda.libraries-match.
    """
    aside = set_aside(platform, module)
    if aside is not None:
        yield aside
        return
    assert not isinstance(module, Unread)
    if isinstance(libraries, Unread):
        yield libraries.about(NODE)
        return
    cuda, file = libraries.cuda, libraries.cuda.loaded
    own = next((one for one in libraries.apart[:1] if one.version and one.version == module.version), None)
    if not isinstance(file, LibraryFile):
        yield _missing(libraries, module, view, nvml)
    elif own is not None:
        yield Pass(NODE, _in_its_own_root(own), (own.evidence,))
    elif file.stub:
        summary = f"the {CUDA} that programs get is a stub for linking, {file.path}: CUDA answers 34"
        remedies = out_of_the_loaders_way(CUDA_LIBRARY, file)
        yield Fail(NODE, summary, cuda.evidence, remedies, Breaks.NOTHING, cause="cuda-is-stub")
    elif file.compat and file.version != module.version:
        yield _compat(cuda, file, module, _models(gpus, nvml))
    elif file.version and module.version and file.version != module.version:
        yield NotApplicable(NODE, f"{file.path} is {file.version}, see {MATCH}", cuda.evidence)
    else:
        yield Pass(NODE, _found(cuda, file), cuda.evidence)


def _found(cuda: DriverLibrary, file: LibraryFile) -> str:
    """What programs get, and what is worth knowing beside it."""
    said = f"{file.path} of {file.version}" if file.version else file.path
    if cuda.later:
        said += f"; {', '.join(entry.path for entry in cuda.later[:2])} comes later in the loader's order, where nobody gets it"
    if cuda.next_first:
        said += f"; the next ldconfig will put {cuda.next_first} first: ld.so.conf names it, and the cache is older"
    return said


def _in_its_own_root(apart: LibraryFile) -> str:
    return f"{apart.path}, in the driver's own root: containers get it from there"


def _missing(libraries: DriverLibraries, module: NvidiaModule, view: Viewpoint, nvml: Reading[Nvml]) -> Verdict:
    """Not found is missing only where the loader's cache was read, or is known not to be there: it may name any directory."""
    cuda = libraries.cuda
    if libraries.apart:
        return Pass(NODE, _in_its_own_root(libraries.apart[0]), (libraries.apart[0].evidence,))
    if libraries.for_guests is not None:
        said = "the driver for hosts of virtual GPUs has no CUDA: their guests have it"
        return NotApplicable(NODE, said, (libraries.for_guests,))
    if isinstance(cuda.loaded, Unread):
        return cuda.loaded.about(NODE)
    for unseen in (libraries.cache, libraries.unseen_apart):
        if isinstance(unseen, Unread):
            return unseen.about(NODE)
    answers = not isinstance(nvml, Unread) and nvml.init == nvml_errors.SUCCESS
    if answers and not isinstance(libraries.libraries[NVML].loaded, LibraryFile) and not view.contained:
        said = f"NVML answers, and the loader has no {NVML} either: the driver's libraries lie where nobody looked, as by LD_LIBRARY_PATH"
        return Unknown(NODE, Why.NOT_ANSWERED, said, cuda.nowhere[:MOST_PLACES])
    if view.contained:
        said = f"no {CUDA} was put into this container: NVIDIA_DRIVER_CAPABILITIES may not name compute"
        return NotApplicable(NODE, said, view.evidence)
    assert isinstance(libraries.cache, LoaderCache)
    evidence = libraries.cache.cite("libraries") + cuda.nowhere[:MOST_PLACES] + module.cite("loaded")
    if cuda.of_32_bits:
        summary = f"the only {CUDA} is one for 32 bits, {cuda.of_32_bits[0].path}: programs of 64 bits find none"
        evidence = (cuda.of_32_bits[0].evidence, *evidence)
    else:
        summary = f"the driver is loaded, and programs find no {CUDA}: CUDA does not start, nvidia-smi may work"
    return Fail(NODE, summary, evidence, install_cuda(CUDA_LIBRARY), Breaks.NOTHING, cause="cuda-missing")


def _models(gpus: Reading[DriverGpus], nvml: Reading[Nvml]) -> tuple[str, ...]:
    """The GPUs' names as NVML, else the driver's procfs, gives them."""
    named = () if isinstance(nvml, Unread) else tuple(device.name for device in nvml.devices if device.name)
    if named or isinstance(gpus, Unread):
        return named
    return tuple(gpu.model for gpu in gpus.gpus.values() if isinstance(gpu, DriverGpu) and gpu.model)


def _compat(cuda: DriverLibrary, file: LibraryFile, module: NvidiaModule, models: tuple[str, ...]) -> Verdict:
    """A package for forward compatibility is first for every program: right only for an older driver and GPUs that may use one."""
    if module.version is None:
        mute = module.mute or Unread(Why.UNREADABLE, "the nvidia module", "does not say its version")
        return mute.about(NODE)
    evidence = cuda.evidence + module.cite("version")
    begin = f"programs get libcuda from {file.directory} ({file.version}), a package for forward compatibility"
    remedies = out_of_the_loaders_way(CUDA_LIBRARY, file)
    found = package_trouble(file.version, module.version, models)
    if found is None:
        return Pass(NODE, f"{begin} that works with the driver {module.version} on these GPUs", evidence)
    summary = f"{begin} {found.words}" if found.trouble is not Trouble.REFUSED else f"{begin}, {found.words}"
    if found.breaks:
        return Fail(NODE, summary, evidence, remedies, Breaks.NOTHING, cause="cuda-is-compat", references=(PAGE,))
    if found.trouble is Trouble.NOT_NEEDED:
        return Warn(NODE, summary, evidence, remedies, cause="cuda-is-compat", references=(PAGE,))
    return Unknown(NODE, Why.NOT_ANSWERED, summary, evidence)
