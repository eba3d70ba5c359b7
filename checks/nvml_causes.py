"""Why NVML refuses: the cause behind each of its return codes, and what to do about it here."""

from msgspec import Struct

from gpudoctor.facts.nvml_library import NvmlLibraries
from gpudoctor.facts.nvml_surroundings import NvmlSurroundings
from gpudoctor.knowledge import nvml_errors, nvml_remedies
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Remedy


class Explained(Struct, frozen=True):
    """A code in words, with what bears on it and the steps that fit."""

    summary: str
    evidence: Cited = ()
    remedies: tuple[Remedy, ...] = nvml_remedies.OTHERWISE


ANSWERS = "driver-cuda.nvml-answers"
"""The check whose findings these are."""

IN_A_CONTAINER = (
    nvml_errors.UNKNOWN,
    nvml_errors.OPERATING_SYSTEM,
    nvml_errors.NO_PERMISSION,
    nvml_errors.DRIVER_NOT_LOADED,
)
"""What a library says that finds the nodes and may not open them: in a container the doing of its device rules."""

REFUSED_LIBRARY = ("No such file", "is in none of")
"""How the loader, or the search below a root, says that there is no such file; anything else is a file that it refuses."""

_LOADER = pattern(r"libnvidia-ml\.so\S*: (.+)")


def explain(code: int, around: NvmlSurroundings, said: str = "") -> Explained:
    """The cause of a return code that concerns the whole of NVML; `said` are the words that came with it."""
    if code == nvml_errors.LIB_RM_VERSION_MISMATCH:
        return _mismatch(around)
    if code == nvml_errors.LIBRARY_NOT_FOUND:
        return _missing(around, said)
    if code in IN_A_CONTAINER and around.view.contained:
        words = f"{nvml_errors.meaning(code)}; this is a container: mostly its device rules forbid the nodes"
        return Explained(words, around.view.evidence + around.control_node, nvml_remedies.FOR_CONTAINER)
    if code == nvml_errors.NO_PERMISSION:
        return Explained(nvml_errors.meaning(code), around.control_node, nvml_remedies.FOR_PERMISSION)
    if code == nvml_errors.DRIVER_NOT_LOADED:
        return _not_loaded(around)
    return Explained(nvml_errors.meaning(code), (), nvml_remedies.FOR_CODE.get(code, nvml_remedies.OTHERWISE))


def explain_device(code: int, address: str, around: NvmlSurroundings, asked: str = "") -> Explained:
    """The cause of a return code for one GPU, which the rest of NVML does not share; `asked` is the recovery that NVML names for it."""
    recovery = asked or around.recovery(address)
    if code == nvml_errors.RESET_REQUIRED and recovery:
        words = f"{nvml_errors.meaning(code)}; the driver asks for: {recovery.replace('_', ' ')}"
        return Explained(words, (), nvml_remedies.for_recovery(recovery))
    if code in (nvml_errors.LIB_RM_VERSION_MISMATCH, nvml_errors.LIBRARY_NOT_FOUND):
        return explain(code, around)
    if code == nvml_errors.NO_PERMISSION:
        return Explained(nvml_errors.meaning(code), around.control_node, nvml_remedies.FOR_PERMISSION)
    return Explained(nvml_errors.meaning(code), (), nvml_remedies.FOR_CODE.get(code, nvml_remedies.OTHERWISE))


def _mismatch(around: NvmlSurroundings) -> Explained:
    """Which of library, loaded module and module on disk is the odd one out decides whether a reboot helps."""
    library, loaded, on_disk = around.library_version, around.loaded_version, around.disk_version
    if not library or not loaded:
        words = nvml_errors.meaning(nvml_errors.LIB_RM_VERSION_MISMATCH)
        if loaded and on_disk and on_disk != loaded:
            words += f"; a reload or reboot brings {on_disk}"
        return Explained(words, around.mismatch, nvml_remedies.FOR_CODE[nvml_errors.LIB_RM_VERSION_MISMATCH])
    words, remedies = _odd_one_out(around, library, loaded, on_disk)
    both = (
        f"the library is {library}, the loaded module {loaded}"
        if library != loaded
        else f"library and module are {loaded}"
    )
    return Explained(both + words, around.mismatch, remedies)


def _odd_one_out(around: NvmlSurroundings, library: str, loaded: str, on_disk: str) -> tuple[str, tuple[Remedy, ...]]:
    """The rest of the sentence, and the steps that fit."""
    copies = nvml_remedies.confirming(nvml_remedies.FOR_COPIES, ANSWERS)
    if library == loaded:
        return ": what was loaded is another copy, from a place that was not looked at", copies
    if around.view.contained:
        return _in_a_container(library, loaded)
    if around.in_driver_container:
        return ", which a driver container loads", nvml_remedies.FOR_DRIVER_CONTAINER
    if on_disk == library:
        return f"; a reload or reboot brings {on_disk}", nvml_remedies.FOR_CODE[nvml_errors.LIB_RM_VERSION_MISMATCH]
    if loaded in around.other_versions:
        return f"; a copy of {loaded} lies beside it, which the loader does not take", copies
    if on_disk == loaded:
        return ", and so is the one on disk: a reboot alone would not help", nvml_remedies.bring_the_module(library)
    if on_disk:
        return f", the one on disk {on_disk}: a reboot alone would not help", nvml_remedies.bring_the_module(library)
    return "", nvml_remedies.FOR_CODE[nvml_errors.LIB_RM_VERSION_MISMATCH]


def _in_a_container(library: str, loaded: str) -> tuple[str, tuple[Remedy, ...]]:
    """Its libraries are the host's of when it was started."""
    if _numbers(library) > _numbers(loaded):
        return (
            "; this is a container with the host's newer libraries: the host waits for a reload",
            nvml_remedies.FOR_THE_HOST,
        )
    return "; this is a container: it keeps the library it was started with", nvml_remedies.FOR_INJECTED_LIBRARY


def _numbers(version: str) -> tuple[int, ...]:
    """A version to compare: the driver's are numbers between dots."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _missing(around: NvmlSurroundings, said: str) -> Explained:
    """No such file, or one that the loader refuses: cut short, of another machine or another C library, on a mount without exec."""
    remedies = nvml_remedies.FOR_CODE[nvml_errors.LIBRARY_NOT_FOUND]
    words = nvml_errors.meaning(nvml_errors.LIBRARY_NOT_FOUND)
    refused = _LOADER.search(said)
    if refused is not None and not any(form in said for form in REFUSED_LIBRARY):
        words = f"the loader refuses libnvidia-ml.so.1: {refused[1]}"
        remedies = nvml_remedies.FOR_CRASH
    evidence = around.mismatch
    if around.view.contained:
        words += "; a container gets it with NVIDIA_DRIVER_CAPABILITIES=utility"
        evidence += around.view.evidence
        remedies = nvml_remedies.FOR_MISSING_IN_CONTAINER
    return Explained(words, evidence, remedies)


def _not_loaded(around: NvmlSurroundings) -> Explained:
    """Said as well by CUDA's stub of the library, with the driver loaded."""
    said = nvml_errors.meaning(nvml_errors.DRIVER_NOT_LOADED)
    libraries = around.libraries
    stub = libraries.by_name if isinstance(libraries, NvmlLibraries) else None
    if stub is not None and stub.stub:
        remedies = nvml_remedies.confirming(nvml_remedies.FOR_STUB, ANSWERS)
        return Explained(f"{said}; the library is CUDA's stub", (stub.evidence,), remedies)
    if around.loaded_version:
        return Explained(f"{said}; the module is loaded", around.control_node, nvml_remedies.FOR_LOADED_DRIVER)
    return Explained(said, (), nvml_remedies.FOR_CODE[nvml_errors.DRIVER_NOT_LOADED])
