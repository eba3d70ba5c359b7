"""Why NVML refuses: the cause behind each of its return codes, and what to do about it here."""

from msgspec import Struct

from gpudoctor.facts.nvml_library import NvmlLibraries
from gpudoctor.facts.nvml_surroundings import NvmlSurroundings
from gpudoctor.knowledge import nvml_errors, nvml_remedies
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

REBOOT_WORDS = ("Node Reboot Required",)
"""Recovery actions that no reset of a GPU fulfils (open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/gpu.c, gpuRefreshRecoveryAction)."""


def explain(code: int, around: NvmlSurroundings) -> Explained:
    """The cause of a return code that concerns the whole of NVML."""
    if code == nvml_errors.LIB_RM_VERSION_MISMATCH:
        return _mismatch(around)
    if code == nvml_errors.LIBRARY_NOT_FOUND:
        return _missing(around)
    if code in IN_A_CONTAINER and around.view.contained:
        said = f"{nvml_errors.meaning(code)}; this is a container: mostly its device rules forbid the nodes"
        return Explained(said, around.view.evidence + around.control_node, nvml_remedies.FOR_CONTAINER)
    if code == nvml_errors.NO_PERMISSION:
        return Explained(nvml_errors.meaning(code), around.control_node, nvml_remedies.FOR_PERMISSION)
    if code == nvml_errors.DRIVER_NOT_LOADED:
        return _not_loaded(around)
    return Explained(nvml_errors.meaning(code), (), nvml_remedies.FOR_CODE.get(code, nvml_remedies.OTHERWISE))


def explain_device(code: int, address: str, around: NvmlSurroundings) -> Explained:
    """The cause of a return code for one GPU, which the rest of NVML does not share."""
    recovery = around.recovery(address)
    if code == nvml_errors.RESET_REQUIRED and recovery:
        remedies = nvml_remedies.FOR_CODE[code]
        if recovery in REBOOT_WORDS:
            remedies = nvml_remedies.REBOOT_REQUIRED
        return Explained(f"{nvml_errors.meaning(code)}; the driver asks for: {recovery}", (), remedies)
    if code in (nvml_errors.LIB_RM_VERSION_MISMATCH, nvml_errors.LIBRARY_NOT_FOUND):
        return explain(code, around)
    if code == nvml_errors.NO_PERMISSION:
        return Explained(nvml_errors.meaning(code), around.control_node, nvml_remedies.FOR_PERMISSION)
    return Explained(nvml_errors.meaning(code), (), nvml_remedies.FOR_CODE.get(code, nvml_remedies.OTHERWISE))


def _mismatch(around: NvmlSurroundings) -> Explained:
    """Which of library, loaded module and module on disk is the odd one out decides whether a reboot helps."""
    library, loaded, on_disk = around.library_version, around.loaded_version, around.disk_version
    remedies = nvml_remedies.FOR_CODE[nvml_errors.LIB_RM_VERSION_MISMATCH]
    if not library or not loaded or library == loaded:
        odd = nvml_errors.meaning(nvml_errors.LIB_RM_VERSION_MISMATCH)
        if loaded and on_disk and on_disk != loaded:
            odd += f"; a reload or reboot brings {on_disk}"
    else:
        odd = f"the library is {library}, the loaded module {loaded}"
        if around.view.contained:
            odd += "; this is a container: it keeps the library it was started with"
            remedies = nvml_remedies.FOR_INJECTED_LIBRARY
        elif on_disk == library:
            odd += f"; a reload or reboot brings {on_disk}"
        elif loaded in around.other_versions:
            odd += f"; a copy of {loaded} lies beside it, which the loader does not take"
            remedies = nvml_remedies.confirming(nvml_remedies.FOR_COPIES, ANSWERS)
        elif on_disk == loaded:
            odd += ", and so is the one on disk: a reboot alone would not help"
            remedies = nvml_remedies.bring_the_module(library)
    return Explained(odd, around.mismatch, remedies)


def _missing(around: NvmlSurroundings) -> Explained:
    said = nvml_errors.meaning(nvml_errors.LIBRARY_NOT_FOUND)
    evidence = around.versions
    if around.view.contained:
        said += "; a container gets it with NVIDIA_DRIVER_CAPABILITIES=utility"
        evidence += around.view.evidence
    return Explained(
        said, evidence + around.mismatch[len(around.versions) :], nvml_remedies.FOR_CODE[nvml_errors.LIBRARY_NOT_FOUND]
    )


def _not_loaded(around: NvmlSurroundings) -> Explained:
    """Said as well by CUDA's stub of the library, with the driver loaded."""
    said = nvml_errors.meaning(nvml_errors.DRIVER_NOT_LOADED)
    libraries = around.libraries
    stub = libraries.by_name if isinstance(libraries, NvmlLibraries) else None
    if stub is not None and stub.stub:
        return Explained(
            f"{said}; the library is CUDA's stub",
            (stub.evidence,),
            nvml_remedies.confirming(nvml_remedies.FOR_STUB, ANSWERS),
        )
    remedies = nvml_remedies.FOR_CODE[nvml_errors.DRIVER_NOT_LOADED]
    return Explained(said, around.control_node if around.loaded_version else (), remedies)
