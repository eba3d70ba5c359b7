"""Driver and CUDA: the files of NVML's library, and the questions about a GPU that NVML cannot answer."""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.installation import Installation
from gpudoctor.facts.library_files import LibraryFile
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.nvml_library import NvmlLibraries
from gpudoctor.facts.nvml_surroundings import NvmlSurroundings
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.platform import PlatformGpu
from gpudoctor.knowledge import nvml_errors
from gpudoctor.knowledge.nvml_remedies import FOR_CODE, FOR_COPIES, FOR_QUERIES, FOR_STUB, confirming, for_recovery
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
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

MOST_PLACES = 6
MOST_FIELDS = 4
RECOVERY = "recovery_action"
INFOROM = "inforom.valid"

WORST_FIRST = (
    nvml_errors.GPU_IS_LOST,
    nvml_errors.RESET_REQUIRED,
    nvml_errors.TIMEOUT,
    nvml_errors.IRQ_ISSUE,
    nvml_errors.UNKNOWN,
)
FAULTS = frozenset(WORST_FIRST)
"""Return codes that tell of a fault. The others say that a GPU, a driver or a user has no such answer (nvml.h, nvmlReturn_t)."""


LIBRARY, QUERIES = "driver-cuda.nvml-library", "driver-cuda.queries-answered"


@check(
    LIBRARY,
    link=Link.DRIVER_CUDA,
    title="The NVML library is there once, and is the driver's own",
)
def nvml_library(
    libraries: Reading[NvmlLibraries],
    module: Reading[NvidiaModule],
    nvml: Reading[Nvml],
    platform: Reading[PlatformGpu],
    installation: Reading[Installation],
) -> Verdicts:
    """nvidia-smi, monitoring and the device plugin load libnvidia-ml.so.1; without it, or with a wrong one, all of them fail.

    Looks at files only: the distributions' library directories, then the roots of drivers kept apart (GPU Operator, GKE, Talos,
    Bottlerocket). Two versions side by side are the leftovers of an earlier installation; which of them a program gets depends on the
    loader's cache and on LD_LIBRARY_PATH. A library that is of another version than the loaded module is the matter of
    driver-cuda.nvml-answers and driver-cuda.module-on-disk. CUDA's stub is for linking only; beside the toolkit it does no harm.
    """
    if not isinstance(platform, Unread) and platform.kind is not None:
        yield NotApplicable(NODE, f"{platform.kind.value} has rules of its own")
    elif isinstance(libraries, Unread):
        yield libraries.about(NODE)
    elif not libraries.libraries:
        yield _none(libraries, module, nvml)
    else:
        yield _some(libraries, module, nvml, installation)


def _none(libraries: NvmlLibraries, module: Reading[NvidiaModule], nvml: Reading[Nvml]) -> Verdict:
    """Not found is missing only where a driver needs it, and where NVML did not find it either: the loader may know more places."""
    code = None if isinstance(nvml, Unread) else nvml.init
    if code is not None and code != nvml_errors.LIBRARY_NOT_FOUND and not isinstance(nvml, Unread):
        return NotApplicable(NODE, "NVML was loaded from a place that was not looked at", nvml.cite("init"))
    if isinstance(module, Unread):
        return module.about(NODE)
    if not module.loaded:
        return NotApplicable(NODE, "no nvidia module is loaded", module.cite("loaded"))
    if libraries.unseen is not None:
        return libraries.unseen.about(NODE)
    if isinstance(nvml, Unread) or code is None:
        where = "the directories of the known distributions"
        return Unread(
            nvml.why if isinstance(nvml, Unread) else Why.NOT_ANSWERED, where, "no libnvidia-ml.so.1 in them"
        ).about(NODE)
    summary = f"the driver is loaded, and libnvidia-ml.so.1 is in none of {len(libraries.nowhere)} places"
    evidence = nvml.cite("init") + module.cite("loaded") + libraries.nowhere[:MOST_PLACES]
    return Fail(
        NODE,
        summary,
        evidence,
        confirming(FOR_CODE[nvml_errors.LIBRARY_NOT_FOUND], LIBRARY),
        Breaks.NODE,
        cause="library-missing",
    )


def _some(
    libraries: NvmlLibraries,
    module: Reading[NvidiaModule],
    nvml: Reading[Nvml],
    installation: Reading[Installation],
) -> Verdict:
    named = libraries.by_name
    loaded: Cited = () if isinstance(module, Unread) else module.cite("version")
    if named is not None and named.stub:
        return _stub(named, loaded, nvml)
    if len(libraries.versions) > 1:
        return _several(libraries, loaded, nvml, installation)
    found = libraries.libraries[0]
    of_module = "" if isinstance(module, Unread) else module.version or ""
    if found.version and of_module and found.version != of_module:
        return _another(found, of_module, nvml)
    return Pass(NODE, f"the library is {found.version or found.path}", libraries.evidence)


def _stub(named: LibraryFile, loaded: Cited, nvml: Reading[Nvml]) -> Verdict:
    """Where NVML answers, whoever asked got another library: then it is a trap for others only."""
    summary = f"{named.path} leads to CUDA's stub, not to the driver's library"
    remedies, evidence = confirming(FOR_STUB, LIBRARY), (named.evidence, *loaded)
    if not isinstance(nvml, Unread) and nvml.init == nvml_errors.SUCCESS:
        return Warn(NODE, f"{summary}, which NVML was asked through", evidence, remedies, cause="library-is-stub")
    return Fail(NODE, summary, evidence, remedies, Breaks.NODE, cause="library-is-stub")


def _another(found: LibraryFile, of_module: str, nvml: Reading[Nvml]) -> Verdict:
    """A library of another version than the module: NVML's own word decides, and other checks speak of it."""
    said = f"the library is {found.version}, the loaded module {of_module}"
    if isinstance(nvml, Unread) or nvml.init is None:
        return Unknown(NODE, Why.NOT_ANSWERED, f"{said}: NVML was not asked whether they fit", (found.evidence,))
    if nvml.init == nvml_errors.SUCCESS:
        return NotApplicable(NODE, f"{said}: NVML answers through another copy", (found.evidence,))
    return NotApplicable(NODE, f"{said}, see driver-cuda.nvml-answers", (found.evidence,))


def _several(
    libraries: NvmlLibraries, loaded: Cited, nvml: Reading[Nvml], installation: Reading[Installation]
) -> Verdict:
    """A warning of its own only where no other check speaks of them."""
    versions = ", ".join(libraries.versions)
    if not isinstance(installation, Unread) and installation.twice:
        said = f"{versions}: the driver was installed twice, see driver-cuda.one-installation"
        return NotApplicable(NODE, said, libraries.evidence)
    if not isinstance(nvml, Unread) and nvml.init == nvml_errors.LIB_RM_VERSION_MISMATCH:
        said = f"{versions}: the one that is loaded does not fit, see driver-cuda.nvml-answers"
        return NotApplicable(NODE, said, libraries.evidence)
    for reading in (nvml, installation if isinstance(installation, Unread) else installation.packages):
        if isinstance(reading, Unread) and reading.why is Why.NO_PERMISSION:
            return reading.about(NODE)
    summary = f"{len(libraries.versions)} versions of the NVML library lie side by side: {versions}"
    return Warn(NODE, summary, libraries.evidence + loaded, FOR_COPIES, cause="several-libraries")


@check(
    QUERIES,
    link=Link.DRIVER_CUDA,
    over=PciGpus,
    needs={Link.DEVICE_NODES},
    explained_by=("driver-cuda.nvml-answers", "driver-cuda.recovery-action"),
    title="NVML answers every question about a GPU",
)
def queries_answered(gpus: PciGpus, nvml: Nvml, around: NvmlSurroundings) -> Verdicts:
    """A GPU that answers some questions and fails others is half alive: nvidia-smi prints ERR!, exporters lose its metrics.

    Counts what NVML refused with an error that means a fault (unknown error, reset required, lost, time-out, interrupt);
    "not supported" and "no permission" are none, and a corrupted InfoROM, beside which all else is answered, is health.inforom's.
    The answer that a reset is required is a failure; a single unknown error may pass, and some driver releases return it for a
    sensor that a board does not have.
    """
    quirks = _quirks(gpus, nvml)
    for gpu in gpus:
        device = nvml.device(gpu.address)
        if nvml.stopped_in(gpu.address):
            yield Unknown(gpu, Why.TIMED_OUT, f"NVML stopped at {nvml.stopped_at}", nvml.cite("stopped_at"))
        elif device is None or device.error is not None:
            yield NotApplicable(gpu, "it does not answer at all, see driver-cuda.nvml-answers")
        elif not device.fields and nvml.failure is not None:
            yield Unknown(
                gpu, Why.TIMED_OUT, f"not reached: NVML stopped at {nvml.stopped_at}", nvml.cite("stopped_at")
            )
        elif not device.fields:
            yield NotApplicable(gpu, "nothing beyond its identity was asked")
        else:
            yield _judge(gpu, device, around, quirks)


def _quirks(gpus: PciGpus, nvml: Nvml) -> frozenset[str]:
    """Fields that every one of several GPUs refuses with an unknown error: the driver's habit on this board, not a fault of each."""
    found = [device for gpu in gpus if (device := nvml.device(gpu.address)) is not None and device.fields]
    if len(found) < 2:
        return frozenset()
    refused = [set(device.errors(frozenset({nvml_errors.UNKNOWN}))) for device in found]
    return frozenset(set.intersection(*refused))


def _judge(gpu: PciGpu, device: NvmlDevice, around: NvmlSurroundings, quirks: frozenset[str]) -> Verdict:
    refused = {name: code for name, code in device.errors(FAULTS).items() if name not in quirks}
    if device.fields.get(INFOROM) is False or device.errors(frozenset((nvml_errors.CORRUPTED_INFOROM,))):
        refused = {name: code for name, code in refused.items() if not _is_unreadable_inforom(name, code)}
    if not refused and not device.answered_any:
        return Unknown(gpu, Why.NOT_ANSWERED, "NVML refused every question about it", device.cite("uuid"))
    if not refused:
        # How many there are depends on driver and tool, and is no news.
        return Pass(gpu, "no question failed", device.cite("uuid"))
    code = min(refused.values(), key=WORST_FIRST.index)
    names = sorted(refused, key=lambda name: WORST_FIRST.index(refused[name]))
    which = ", ".join(names) if len(names) < MOST_FIELDS else f"{len(names)} of {len(device.fields)} questions"
    summary = f"NVML cannot answer {which}: {nvml_errors.meaning(code)} ({code})"
    evidence = tuple(device.evidence(name) for name in names[:MOST_FIELDS])
    remedies = FOR_CODE.get(code, FOR_QUERIES)
    if device.recovery:
        summary += f"; the driver asks for: {device.recovery.replace('_', ' ')}"
        evidence += (device.evidence(RECOVERY),)
        remedies = for_recovery(device.recovery)
    evidence += around.xids(gpu.address)
    remedies = confirming(remedies, QUERIES)
    if code in (nvml_errors.GPU_IS_LOST, nvml_errors.RESET_REQUIRED):
        return Fail(gpu, summary, evidence, remedies, Breaks.SUBJECT, cause=f"nvml-{code}")
    return Warn(gpu, summary, evidence, remedies, cause=f"nvml-{code}")


def _is_unreadable_inforom(name: str, code: int) -> bool:
    """Whether a field is missing because the flash is corrupted that it is kept in."""
    return name.startswith("inforom.") and code == nvml_errors.UNKNOWN
