"""Driver and CUDA: the driver's daemons against the loaded module."""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.checks.driver_libraries import set_aside
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.fabric_manager import FabricManager, cited
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.persistence import PersistenceDaemon
from gpudoctor.facts.platform import PlatformGpu
from gpudoctor.knowledge.library_remedies import same_fabric_manager, start_fabric_manager
from gpudoctor.knowledge.nvml_remedies import reload_or_reboot
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
    Why,
)

DAEMONS = "driver-cuda.daemons-match"


@check(
    DAEMONS,
    link=Link.DRIVER_CUDA,
    explained_by=("driver-cuda.nvml-answers",),
    title="The driver's daemons are of its version",
)
def daemons_match(
    manager: Reading[FabricManager],
    persistence: Reading[PersistenceDaemon],
    module: Reading[NvidiaModule],
    file: Reading[ModuleFile],
    platform: Reading[PlatformGpu],
) -> Verdicts:
    """With NVSwitches CUDA waits until the fabric manager has set them up, and that one starts only beside a driver of its own version.

    Otherwise every CUDA program gets 802 while nvidia-smi lists all GPUs. Judged where the GPUs are joined by NVSwitches and the fabric
    manager is started at boot: its words about another version in its journal, else what `nv-fabricmanager --version` says; the
    revision of a package is the packager's affair. One that runs has been accepted by the driver, whatever lies on disk by now, and so
    has one of a driver container beside the node's own, which cannot start then. Where it is of the version of the module on disk, an
    upgrade waits for a reload. Where there are no NVSwitches, or nobody starts it, its version is nobody's matter. nvidia-persistenced
    compares no version of its own: it works through libnvidia-cfg.so.1 (nvidia-persistenced.c), so that an older one does no harm.
    Easily confused with a fabric manager that is not started at all.
    """
    aside = set_aside(platform, module)
    if aside is not None:
        yield aside
        return
    assert not isinstance(module, Unread)
    told = [
        *_fabric_manager(manager, module, file),
        *(_persistence(persistence) if not isinstance(persistence, Unread) and persistence.enabled else ()),
    ]
    yield from told or [NotApplicable(NODE, "none of them is started here whose version would matter")]


def _persistence(daemon: PersistenceDaemon) -> Iterator[Verdict]:
    if daemon.running is True:
        yield Pass(daemon, "it runs, and needs no version of its own", daemon.cite("running"))
    else:
        yield NotApplicable(daemon, "it does not run, see device-nodes.persistence-daemon")


def _fabric_manager(
    manager: Reading[FabricManager], module: NvidiaModule, file: Reading[ModuleFile]
) -> Iterator[Verdict]:
    if isinstance(manager, Unread):
        yield manager.about(NODE)
    elif isinstance(manager.needed, Unread):
        yield manager.needed.about(manager)
    elif not manager.needed:
        return
    elif module.version is None:
        yield NotApplicable(manager, "the loaded module tells no version")
    elif manager.running is True or manager.another is not None:
        where = (
            "it runs"
            if manager.running is True
            else "one runs that is not the node's service, as in a driver container"
        )
        shown = manager.cite("running") if manager.another is None else (manager.another,)
        said = f"{where}: it would have ended beside a driver of another version than {module.version}"
        yield Pass(manager, said, shown + module.cite("version"))
    elif isinstance(manager.in_driver_root, Unread):
        yield manager.in_driver_root.about(manager)
    elif manager.in_driver_root is not None:
        said = "a driver container brings its own, and starts it: the node's is nobody's matter"
        yield NotApplicable(manager, said, (manager.in_driver_root,))
    elif manager.refusal is not None and manager.refusal.driver == module.version:
        evidence = (manager.refusal.evidence, *cited(manager, "version", "enabled"))
        yield _refused(manager, manager.refusal.version, module, evidence, file)
    else:
        yield _at_its_start(manager, module, file)


def _at_its_start(manager: FabricManager, module: NvidiaModule, file: Reading[ModuleFile]) -> Verdict:
    """What will come of the program on disk where nothing tells that it runs."""
    if isinstance(manager.enabled, Unread):
        return manager.enabled.about(manager)
    if not manager.enabled:
        return NotApplicable(manager, "nobody starts it", cited(manager, "enabled"))
    if isinstance(manager.version, Unread):
        return manager.version.about(manager)
    if not manager.version:
        return NotApplicable(manager, "it is not installed", cited(manager, "version"))
    if manager.version == module.version:
        return Pass(manager, f"both are {module.version}", manager.cite("version") + module.cite("version"))
    if isinstance(manager.running, Unread):
        return manager.running.about(manager)
    evidence = manager.cite("version", "running", "enabled")
    return _refused(manager, manager.version, module, evidence, file)


def _refused(
    manager: FabricManager, version: str, module: NvidiaModule, evidence: Cited, file: Reading[ModuleFile]
) -> Verdict:
    driver = module.version or ""
    evidence += module.cite("version")
    if manager.completed is not None:
        said = f"the node's own is {version}, the driver {driver}, and NVML says that the fabric is set up: by whom is not seen here"
        return Unknown(
            manager, Why.NOT_ANSWERED, said, (*evidence, manager.completed), would_need="all processes of the node"
        )
    summary = f"it is {version}, the driver {driver}: beside another version it does not start, and CUDA answers 802"
    waits = not isinstance(file, Unread) and file.exists and version == file.version
    if waits:
        summary += "; the module on disk is of its version: an upgrade waits for a reload or reboot"
        evidence += file.cite("version") if isinstance(file, ModuleFile) else ()
        remedies = reload_or_reboot(DAEMONS)
    else:
        fits = manager.version == driver
        remedies = start_fabric_manager(DAEMONS) if fits else same_fabric_manager(DAEMONS, driver)
    # NVML's refusal of other libraries comes of the same upgrade; whatever else it says has another cause.
    cause = "fabric-manager-differs"
    return Fail(manager, summary, evidence, remedies, Breaks.NOTHING, cause=cause, own_fault=not waits)
