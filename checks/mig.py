"""Sharing by MIG: has every GPU in MIG mode instances that can be used, do all sides know the same ones, and will they be made anew?"""

from collections.abc import Callable, Iterator

from gpudoctor.chain import Link
from gpudoctor.checks.memory_answers import judged, untold
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.kubernetes_api import KubernetesApi
from gpudoctor.facts.mig import CURRENT, PENDING, Mig, MigGpu
from gpudoctor.facts.mig_manager import MigManager
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Subject,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

INSTANCES, COMPUTE, ORPHANS, CONFIG = (
    f"sharing.mig-{name}" for name in ("instances", "compute-instances", "orphans", "config")
)
OFF, HOSTS = "MIG is off", "its instances belong to virtual machines"
LEAVES = "MIG was switched off and a reset is awaited, see health.mig-mode-pending"
MOST_NAMED = 4


def _each(gpus: PciGpus, nvml: Nvml, mig: Mig, judge: Callable[[MigGpu], Verdict]) -> Verdicts:
    """A verdict on each GPU in MIG mode that is this node's own, and why there is none on the others."""
    return judged(gpus, nvml, lambda gpu, device: _of(gpu, device, mig, judge))


def _of(gpu: PciGpu, device: NvmlDevice, mig: Mig, judge: Callable[[MigGpu], Verdict]) -> Verdict:
    one = mig.gpu(gpu.address)
    if one is None and device.fields.get(CURRENT) is False:
        return NotApplicable(gpu, OFF, (device.evidence(CURRENT),))
    if one is None:
        return untold(gpu, device, (CURRENT,), "MIG mode")
    if one.is_hosts:
        return NotApplicable(gpu, HOSTS, one.mode)
    if one.leaves and not one.device.mig_devices:
        return NotApplicable(gpu, LEAVES, (device.evidence(PENDING),))
    verdict = judge(one)
    if mig.at_work is not None and isinstance(verdict, (Fail, Warn)):
        return Unknown(gpu, Why.NOT_ANSWERED, "nvidia-mig-parted is changing the layout just now", (mig.at_work,))
    return verdict


# Instances -----------------------------------------------------------------------------------------------------------


@check(
    INSTANCES,
    link=Link.SHARING,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(CONFIG,),
    title="Every GPU in MIG mode has instances",
)
def mig_instances(gpus: PciGpus, nvml: Nvml, mig: Mig, manager: Reading[MigManager], viewpoint: Viewpoint) -> Verdicts:
    """A GPU in MIG mode without instances is of no use to anybody: CUDA finds no device (error 100), and nvidia-smi lists it as healthy.

    Something has to make them at each boot and after each reset, be it nvidia-mig-manager, the GPU Operator's MIG manager or a script.
    Ampere boards keep the mode over a boot, and stand there in MIG mode without any; later ones come up with MIG off (MIG User Guide, "GPU
    Reset on Hopper+ GPUs"). Read from NVML's list of MIG devices, with the driver's capabilities as a second witness; in a container NVML
    lists only what may be used there. While nvidia-mig-parted changes the layout, it is waited for. Easily confused with a GPU instance
    that lacks only its compute instance (sharing.mig-compute-instances), with a mode that a reset has yet to bring into force
    (health.mig-mode-pending), and with a plugin whose strategy does not fit the layout. On a hypervisor the instances belong to virtual
    machines.
    """
    return _each(gpus, nvml, mig, lambda one: _instances(one, mig, manager, viewpoint))


def _instances(one: MigGpu, mig: Mig, manager: Reading[MigManager], viewpoint: Viewpoint) -> Verdict:
    count = len(one.device.mig_devices)
    known = {} if isinstance(one.instances, Unread) else one.instances
    if count:
        return Pass(one, f"{count} MIG devices: {one.layout}" if one.layout else f"{count} MIG devices", (one.listed,))
    if known:
        names = ", ".join(f"gi{number}" for number in known)
        return Pass(one, f"MIG is on, and the driver has GPU instances {names}", one.seen(next(iter(known))))
    if mig.on_demand is not None:
        return NotApplicable(one, "the DRA driver makes its instances when a pod asks for one", (mig.on_demand,))
    if not one.device.lists_mig:
        return Unknown(one, Why.NOT_ANSWERED, "MIG is on; its instances were not listed", one.mode)
    if isinstance(one.instances, Unread):
        if one.instances.why not in (Why.NOT_RECORDED, Why.NOT_ANSWERED):
            return one.instances.about(one)
        if viewpoint.contained:
            would = (
                "MIG is on, and NVML lists only the MIG devices that may be used in this container: none of this GPU"
            )
            return Unknown(one, Why.NO_PERMISSION, would, viewpoint.evidence, would_need="the host")
    return _without(one, mig, manager)


def _without(one: MigGpu, mig: Mig, manager: Reading[MigManager]) -> Verdict:
    from gpudoctor.knowledge.mig_remedies import GUIDE, MANAGER, make_instances

    evidence = (*one.mode, one.nothing_listed)
    if not isinstance(one.instances, Unread):
        evidence += mig.cite("all")
    why = ""
    if mig.booted is not None and one.keeps_mode is not None:
        from gpudoctor.facts.boot import STAT, in_words

        boot = f"the boot at {in_words(mig.booted)}"
        why = f"; instances end with each reset and boot, the MIG mode of this board does not: see {boot}"
        why = why if one.keeps_mode else f"; MIG was switched on after {boot}, and no instance made or all taken away"
        evidence += (Evidence(STAT, f"btime {mig.booted}"),)
    managed = isinstance(manager, MigManager) and manager.present is True
    idle = ""
    if isinstance(manager, MigManager) and managed:
        idle = "; nvidia-mig-manager, which would make them, is not enabled" if manager.enabled is False else ""
        evidence += manager.cite("enabled") + ((manager.run,) if manager.run is not None else ())
    evidence += (mig.operators,) if mig.operators is not None else ()
    profiles = tuple(profile.name for profile in one.device.mig_profiles if profile.name)
    maker = "operator" if mig.operators is not None else "service" if managed else ""
    steps = make_instances(INSTANCES, one.address, maker, profiles)
    summary = f"MIG is on, and no instance is there: CUDA finds no device on this GPU{idle}{why}"
    return Fail(one, summary, evidence, steps, Breaks.SUBJECT, cause="no-instances", references=(GUIDE, MANAGER))


# Compute instances ---------------------------------------------------------------------------------------------------


@check(
    COMPUTE,
    link=Link.SHARING,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="Every GPU instance has a compute instance",
)
def mig_compute_instances(gpus: PciGpus, nvml: Nvml, mig: Mig) -> Verdicts:
    """A GPU instance is memory and engines; programs run in the compute instances within. One that was made without (`-cgi` and no `-C`)
    is listed by `nvidia-smi mig -lgi`, and nowhere else: NVML has no MIG device for it, CUDA sees none.

    Read from the driver's capabilities, which have a folder for each instance. Where no instance of the GPU has one, the GPU cannot be
    used; where some have, the others lie idle. A compute instance that takes only a part of its GPU instance is as it should be. Easily
    confused with a GPU without any instance (sharing.mig-instances).
    """
    return _each(gpus, nvml, mig, _compute)


def _compute(one: MigGpu) -> Verdict:
    if isinstance(one.instances, Unread):
        return one.instances.about(one)
    if not one.instances:
        return NotApplicable(one, "it has no GPU instance", one.mode)
    bare = tuple(number for number, computes in one.instances.items() if not computes)
    evidence = tuple(seen for number in (bare or tuple(one.instances))[:MOST_NAMED] for seen in one.seen(number))
    if not bare:
        return Pass(one, f"{len(one.instances)} GPU instances, each with a compute instance", evidence)
    from gpudoctor.knowledge.mig_remedies import GUIDE, make_compute_instances

    names = ", ".join(f"gi{number}" for number in bare[:MOST_NAMED])
    names += f" and {len(bare) - MOST_NAMED} more" if len(bare) > MOST_NAMED else ""
    names = f"GPU instance {names} has" if len(bare) == 1 else f"GPU instances {names} have"
    steps = make_compute_instances(COMPUTE, one.address, bare)
    if len(bare) == len(one.instances) and not one.device.mig_devices:
        summary = f"{names} no compute instance: CUDA finds no device on this GPU"
        evidence += (one.nothing_listed,) if one.device.lists_mig else ()
        return Fail(one, summary, evidence, steps, Breaks.SUBJECT, cause="no-compute", references=(GUIDE,))
    summary = f"{names} no compute instance: nobody can use what is in there"
    return Warn(one, summary, evidence, steps, cause="no-compute", references=(GUIDE,))


# Orphans -------------------------------------------------------------------------------------------------------------


@check(
    ORPHANS,
    link=Link.SHARING,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(INSTANCES, COMPUTE),
    title="The driver and NVML know the same MIG instances",
)
def mig_orphans(gpus: PciGpus, nvml: Nvml, mig: Mig, viewpoint: Viewpoint) -> Verdicts:
    """An instance that one side alone knows takes up slices and memory, and cannot be given to anybody.

    The driver has a capability for each instance, NVML a device for each compute instance; they are compared by the instances' numbers.
    What is left of the GPU is told with the pass: slices into which no profile fits are lost until the layout is made anew. From within a
    container, or as an ordinary user where the nodes of capabilities are shut, NVML lists only what may be used there: then nothing is
    compared. That nodes of instances are missing in /dev is device-nodes.capability-nodes.
    """
    return _each(gpus, nvml, mig, lambda one: _orphans(one, viewpoint))


def _orphans(one: MigGpu, viewpoint: Viewpoint) -> Verdict:
    if isinstance(one.instances, Unread):
        return one.instances.about(one)
    if not one.device.lists_mig or not one.numbered:
        return Unknown(one, Why.NOT_ANSWERED, "the numbers of its MIG devices were not told", one.mode)
    listed = {(each.gpu_instance_id, each.compute_instance_id) for each in one.device.mig_devices}
    known = {(number, compute) for number, computes in one.instances.items() for compute in computes}
    hidden, strange = sorted(known - listed), sorted(listed - known, key=str)
    if hidden and viewpoint.in_container is not False:
        return NotApplicable(one, "a container sees only its own MIG devices", viewpoint.evidence)
    if hidden and viewpoint.uid != 0:
        would = "NVML lists only what this user may open"
        return Unknown(one, Why.NO_PERMISSION, would, (one.listed,), would_need="root")
    if hidden or strange:
        return _apart(one, hidden, strange)
    if not known:
        return NotApplicable(one, "it has no instance", one.mode)
    room = f"; {one.room}" if one.room else ""
    evidence = (
        one.listed,
        *(seen for number, compute in sorted(known)[:MOST_NAMED] for seen in one.seen(number, compute)),
    )
    return Pass(one, f"{len(known)} MIG devices, known to the driver and to NVML{room}", evidence)


def _apart(one: MigGpu, hidden: list[tuple[int, int]], strange: list[tuple[int | None, int | None]]) -> Verdict:
    from gpudoctor.knowledge.mig_remedies import align

    parts = []
    if hidden:
        parts.append(f"the driver has {_placed(hidden)}, which NVML does not list")
    if strange:
        parts.append(f"NVML lists {_placed(strange)}, for which the driver has no capability")
    shown = one.listed if one.device.mig_devices else one.nothing_listed
    evidence = (shown, *(seen for number, compute in hidden[:MOST_NAMED] for seen in one.seen(number, compute)))
    summary = f"{'; '.join(parts)}: nobody can be given it"
    return Warn(one, summary, evidence, align(ORPHANS, one.address), cause="orphans")


def _placed(places: list[tuple[int, int]] | list[tuple[int | None, int | None]]) -> str:
    named = [f"gi{number}/ci{compute}" for number, compute in places]
    return ", ".join(named[:MOST_NAMED]) + (f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else "")


# The layout that is wanted -------------------------------------------------------------------------------------------


@check(
    CONFIG,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    title="The MIG layout that is wanted can be made, and is made at each boot",
)
def mig_config(gpus: PciGpus, nvml: Nvml, mig: Mig, manager: MigManager, api: KubernetesApi) -> Verdicts:
    """Instances do not survive a boot: nvidia-mig-manager makes the layout that its setting names, where it is installed and enabled.

    It fails where the layout has profiles that the board has not: their names depend on the memory of the board, 1g.5gb of an A100 with
    40 GB is 1g.10gb on one with 80. Looked at are the unit, how its last run ended, the layout that it selects, and the label
    nvidia.com/mig.config where it names a profile and is not applied; these are held against the profiles that NVML lists, or a table of
    boards. A node whose instances somebody made by hand, or which another program makes, has no such unit: nothing is said of it; nor of
    a unit that is not enabled where MIG is off, or where the GPU Operator's manager runs. Easily confused with the Operator's manager
    having failed for another reason (device-plugin.mig-manager).
    """
    verdicts = [*_by_label(gpus, nvml, api), *_by_manager(gpus, mig, nvml, manager)]
    yield from verdicts
    if verdicts:
        return
    if isinstance(manager.present, Unread) and mig.gpus:
        yield manager.present.about(NODE)
    elif not manager.present or isinstance(manager.present, Unread):
        yield NotApplicable(NODE, "no MIG manager of systemd's on this node")
    elif manager.trouble is not None:
        yield manager.trouble.about(NODE)
    elif isinstance(manager.enabled, Unread):
        yield manager.enabled.about(NODE)
    elif not manager.enabled:
        by = "the GPU Operator's runs here" if mig.operators is not None else "no instance is there to be lost"
        seen = (*manager.cite("enabled"), *((mig.operators,) if mig.operators is not None else ()))
        yield NotApplicable(NODE, f"nvidia-mig-manager is not enabled, and {by}", seen)
    elif not manager.selected:
        yield NotApplicable(NODE, "nvidia-mig-manager is enabled; which layout it makes was not seen")
    else:
        evidence = (*manager.cite("enabled", "selected"), *((manager.run,) if manager.run else ()))
        yield Pass(NODE, f"nvidia-mig-manager makes {manager.selected} at each boot", evidence)


def _by_label(gpus: PciGpus, nvml: Nvml, api: KubernetesApi) -> Iterator[Verdict]:
    if isinstance(api.node, Unread):
        return
    from gpudoctor.knowledge.mig_profiles import missing_everywhere
    from gpudoctor.knowledge.operator_labels import MIG_CONFIG, MIG_STATE

    if api.node.labels.get(MIG_STATE) == "success":
        # Whatever the layout is called, the manager has made it.
        return
    told = [(gpu.device_id, _listed(gpu, nvml)) for gpu in gpus]
    if wanted := missing_everywhere(api.node.labels.get(MIG_CONFIG, ""), told):
        from gpudoctor.knowledge.mig_remedies import possible_layout

        names = ", ".join(sorted(frozenset().union(*(_possible(gpu, nvml) for gpu in gpus))))
        summary = f"the label nvidia.com/mig.config asks for {wanted}, a profile that no GPU of this node has"
        evidence = (*api.labels(MIG_CONFIG), *_profiles_shown(nvml))
        yield Warn(NODE, summary, evidence, possible_layout(CONFIG, "", names), cause="label")


def _listed(gpu: PciGpu, nvml: Nvml) -> tuple[str, ...]:
    device = nvml.device(gpu.address)
    return tuple(profile.name for profile in device.mig_profiles if profile.name) if device is not None else ()


def _possible(gpu: PciGpu, nvml: Nvml) -> frozenset[str]:
    from gpudoctor.knowledge.mig_profiles import possible

    return possible(gpu.device_id, _listed(gpu, nvml))


def _profiles_shown(nvml: Nvml) -> tuple[Evidence, ...]:
    device = next((one for one in nvml.devices if one.mig_profiles), None) or next(iter(nvml.devices), None)
    if device is None:
        return ()
    names = [profile.name for profile in device.mig_profiles if profile.name]
    shows = f"profiles {', '.join(names)}" if names else f"{device.address} is {device.name}"
    return (Evidence(device.via, shows),)


def _by_manager(gpus: PciGpus, mig: Mig, nvml: Nvml, manager: MigManager) -> Iterator[Verdict]:
    if manager.present is not True or (manager.enabled is False and (mig.operators is not None or not mig.gpus)):
        return
    empty = tuple(one.subject for one in mig.gpus if one.device.lists_mig and not one.device.mig_devices)
    impossible = {gpu.address: wrong for gpu in gpus if (wrong := _impossible(gpu, nvml, manager)) and manager.selected}
    if manager.layouts is not None and manager.selected not in manager.layouts:
        from gpudoctor.knowledge.mig_remedies import possible_layout

        summary = (
            f"nvidia-mig-manager is to make the layout {manager.selected}, which {manager.config_at} does not have"
        )
        known = sorted(manager.layouts)[:8] or sorted(frozenset().union(*(_possible(gpu, nvml) for gpu in gpus)))
        steps = possible_layout(CONFIG, manager.config_at, ", ".join(known))
        yield from _told(manager, summary, steps, empty, "unknown-layout")
    elif impossible:
        from gpudoctor.knowledge.mig_remedies import possible_layout

        address, wrong = next(iter(impossible.items()))
        names = ", ".join(sorted(_possible(next(gpu for gpu in gpus if gpu.address == address), nvml)))
        summary = (
            f"the layout {manager.selected} wants {', '.join(wrong)} of {address}, a board that has no such profile"
        )
        steps = possible_layout(CONFIG, manager.config_at, names)
        yield from _told(manager, summary, steps, tuple(one for one in empty if one.key in impossible), "impossible")
    elif manager.failed:
        from gpudoctor.knowledge.mig_remedies import run_manager

        reason = _message(manager.failed[0].shows)
        summary = f"nvidia-mig-manager did not make its layout when it ran last: {reason}"
        yield from _told(manager, summary, run_manager(CONFIG), empty, "failed")
    elif manager.enabled is False and mig.gpus and not empty:
        from gpudoctor.knowledge.mig_remedies import enable_manager

        summary = "nvidia-mig-manager is installed and not enabled: nothing makes the instances anew at a boot"
        yield from _told(manager, summary, enable_manager(CONFIG), empty, "disabled")


def _message(line: str) -> str:
    """What a line of logrus says, without its time and level."""
    said = pattern(r'\bmsg="((?:[^"\\]|\\.)*)"').search(line)
    return (said[1] if said is not None else line).strip()[:200]


def _impossible(gpu: PciGpu, nvml: Nvml, manager: MigManager) -> tuple[str, ...]:
    """The profiles that the selected layout wants of a GPU and that its board has not; nothing where its profiles are not known."""
    from gpudoctor.knowledge.mig_profiles import lacks

    device, listed = nvml.device(gpu.address), _listed(gpu, nvml)
    wanted = manager.wanted(device.index if device is not None else None, gpu.device_id) or {}
    return tuple(name for name in wanted if lacks(gpu.device_id, listed, name))


def _told(
    manager: MigManager, summary: str, steps: tuple[Remedy, ...], empty: tuple[Subject, ...], cause: str
) -> Iterator[Verdict]:
    """A fail where GPUs stand there without instances because of it; else what is there was made otherwise, and goes at the next boot."""
    from gpudoctor.knowledge.mig_remedies import MANAGER

    fields = ("selected", "layouts") if manager.layouts is not None else ("selected",)
    evidence = (*manager.cite(*(("enabled",) if cause == "disabled" else fields)), *manager.failed)
    if empty:
        words = f"{summary}; no instance on {', '.join(one.key for one in empty[:MOST_NAMED])}"
        yield Fail(NODE, words, evidence, steps, Breaks.SUBJECT, cause=cause, of=empty, references=(MANAGER,))
    else:
        yield Warn(NODE, summary, evidence, steps, cause=cause, references=(MANAGER,))
