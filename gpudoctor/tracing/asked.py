"""Who asked for which GPUs, and whether this node has them.

Sources: NVIDIA/nvidia-container-toolkit v1.20.0 internal/config/image/{cuda_image,devices}.go (NVIDIA_VISIBLE_DEVICES holds indices of
NVML, UUIDs or their beginnings, names of CDI; annotations come before mounts, mounts before the variable); Slurm gres.html.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from gpudoctor.facts.gpu_variables import CUDA_VISIBLE
from gpudoctor.facts.raw import decimal
from gpudoctor.facts.workload_devices import Devices, is_job
from gpudoctor.facts.workload_wishes import Asker, Wish
from gpudoctor.report import NodeGpu
from gpudoctor.trace import Step, StepId, failed, passed, skipped, unknown
from gpudoctor.tracing import remedies
from gpudoctor.tracing.ground import REPLICA, Ground
from gpudoctor.tracing.sight import Sight
from gpudoctor.verdicts import Cited, Evidence, Unread

ORDER = (Asker.SCHEDULER, Asker.ENGINE, Asker.ENVIRONMENT, Asker.IMAGE)
MOST_NAMES = 4
MOST_CITED = 3


class Resolved(Struct, frozen=True):
    """What names stand for on this node: GPUs, names of none, and names that cannot be looked up."""

    gpus: tuple[NodeGpu, ...] = ()
    gone: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()


class Asking(Struct, frozen=True):
    """The step, and the GPUs that it is about: empty where nobody named any."""

    step: Step
    wanted: tuple[NodeGpu, ...] = ()
    mig: bool = False

    @property
    def minors(self) -> tuple[int, ...]:
        """The minors of those, as far as the driver tells them."""
        return tuple(sorted(gpu.minor for gpu in self.wanted if gpu.minor is not None))


def judge_asking(sight: Sight, ground: Ground, *, among_others: bool) -> Asking:
    """`among_others` says that somebody else of the same pod or job has a GPU: then this one need not."""
    wishes = sorted(sight.wishes.wishes, key=lambda wish: ORDER.index(wish.asker))
    asked = [wish for wish in wishes if wish.asker is not Asker.IMAGE and not _chooses_only(sight, wish)]
    if not asked:
        return Asking(_nobody(sight, wishes, among_others=among_others))
    told = min(asked, key=_rank)
    resolved = resolve(told.gpus, ground) if not _relative(told) else _by_controller(told, sight, ground)
    evidence = tuple(dict.fromkeys(wish.evidence for wish in (told, *asked)))[:MOST_CITED]
    evidence += (sight.slurm.evidence,) if sight.slurm is not None else ()
    mig = any(name.rpartition("=")[2].startswith("MIG-") for name in told.gpus)
    if resolved.gone:
        return Asking(_gone(sight, ground, told, resolved), resolved.gpus, mig)
    return Asking(passed(StepId.ASKED, _said(sight, told, resolved, ground), evidence), resolved.gpus, mig)


def _rank(wish: Wish) -> tuple[bool, int, bool]:
    """Requests that name something before those that do not, by who asked; a name tells more than the nodes it became."""
    by_nodes = all(name.startswith("/dev/") for name in wish.gpus)
    return not wish.gpus, ORDER.index(wish.asker), by_nodes


def _chooses_only(sight: Sight, wish: Wish) -> bool:
    """CUDA_VISIBLE_DEVICES chooses among the GPUs that are inside, and gives none; a scheduler of jobs sets it for those that it gave."""
    return wish.evidence.shows.startswith(CUDA_VISIBLE) and not is_job(sight.workload)


def _relative(wish: Wish) -> bool:
    """Whether names count something else than this node's GPUs: those inside, or Slurm's own numbering (gres.html)."""
    return wish.evidence.shows.startswith((CUDA_VISIBLE, "SLURM_", "GPU_DEVICE_ORDINAL"))


def _by_controller(wish: Wish, sight: Sight, ground: Ground) -> Resolved:
    """Of a job, the GPUs that Slurm's controller says it gave to it: its own numbers count something else."""
    given = sight.slurm.minors if sight.slurm is not None else ()
    gpus = tuple(gpu for minor in given if (gpu := ground.with_minor(minor)) is not None)
    return Resolved(gpus=gpus, unresolved=() if gpus else wish.gpus)


# names --------------------------------------------------------------------------------------------------------------


def resolve(names: Sequence[str], ground: Ground) -> Resolved:
    """What names stand for; one that would be known if it existed is gone."""
    gpus: dict[str, NodeGpu] = {}
    gone: list[str] = []
    unresolved: list[str] = []
    for name in names:
        found = _one(name, ground)
        if isinstance(found, tuple):
            gpus.update((gpu.address, gpu) for gpu in found)
        elif found:
            gone.append(name)
        else:
            unresolved.append(name)
    return Resolved(tuple(gpus[address] for address in sorted(gpus)), tuple(gone), tuple(unresolved))


def _one(name: str, ground: Ground) -> tuple[NodeGpu, ...] | bool:
    """The GPUs of one name; else whether it certainly names none. CDI names other things than GPUs, too: `nvidia.com/imex-channel=0`."""
    kind, equals, _ = name.partition("=")
    if equals and not kind.endswith("/gpu"):
        return False
    plain = name.rpartition("=")[2].partition(REPLICA)[0]
    if plain.startswith("/dev/"):
        return _by_node(plain, ground)
    if plain == "all":
        return ground.gpus
    if plain.startswith("MIG-GPU-"):
        parent = ground.with_uuid(plain.removeprefix("MIG-").partition("/")[0])
        return parent or ground.knows_uuids
    if plain.startswith("MIG-"):
        holder = ground.with_mig(plain)
        return (holder,) if holder is not None else ground.knows_mig
    if plain.startswith("GPU-"):
        return ground.with_uuid(plain) or ground.knows_uuids
    index = decimal(plain.partition(":")[0])
    if index is not None:
        gpu = ground.with_index(index)
        return (gpu,) if gpu is not None else ground.knows_indices
    return False


def _by_node(path: str, ground: Ground) -> tuple[NodeGpu, ...]:
    """A GPU's node; the others, such as nvidiactl, name no GPU."""
    minor = decimal(path.removeprefix("/dev/nvidia"))
    gpu = ground.with_minor(minor) if minor is not None else None
    return (gpu,) if gpu is not None else ()


# words --------------------------------------------------------------------------------------------------------------


def _asker(sight: Sight, wish: Wish) -> str:
    match wish.asker:
        case Asker.SCHEDULER:
            return "its scheduler asked" if not sight.workload.pod else "the device plugin asked"
        case Asker.ENGINE:
            return f"{sight.workload.engine or 'its engine'} was asked"
        case Asker.ENVIRONMENT:
            return "its environment asks"
        case Asker.IMAGE:
            return "a variable that images set asks"


def _names(names: Iterable[str]) -> str:
    listed = [name for name in names if not name.startswith("/dev/nvidia") or name[len("/dev/nvidia") :].isdecimal()]
    more = f" and {len(listed) - MOST_NAMES} more" if len(listed) > MOST_NAMES else ""
    return ", ".join(listed[:MOST_NAMES]) + more or "GPUs"


def _said(sight: Sight, wish: Wish, resolved: Resolved, ground: Ground) -> str:
    words = f"{_asker(sight, wish)} for {_names(wish.gpus)}"
    if _relative(wish) and resolved.gpus and sight.slurm is not None:
        more = 0 if isinstance(sight.rules, Unread) else len(set(sight.given) - set(sight.slurm.minors))
        beyond = f"; it may open {more} more" if more else ""
        return f"{words}: Slurm gave it {_names(gpu.uuid or gpu.address for gpu in resolved.gpus)}{beyond}"
    if _relative(wish) or not resolved.gpus:
        return words
    return f"{words}: {len(resolved.gpus)} of the node's {len(ground.gpus)} GPUs"


def _gone(sight: Sight, ground: Ground, wish: Wish, resolved: Resolved) -> Step:
    names = _names(resolved.gone)
    there = ", ".join(gpu.uuid or gpu.address for gpu in ground.gpus[:MOST_NAMES])
    have = Evidence("the node's GPUs", there or "none")
    return failed(
        StepId.ASKED,
        f"{_asker(sight, wish)} for {names}, which this node does not have",
        (wish.evidence, have),
        *remedies.name_existing(sight.workload),
    )


def _nobody(sight: Sight, wishes: Sequence[Wish], *, among_others: bool) -> Step:
    """Nobody is known to have asked: that is a fault only of a workload that has no GPU either."""
    image = tuple(wish.evidence for wish in wishes if wish.asker is Asker.IMAGE)
    if sight.given:
        return passed(StepId.ASKED, _given(sight, image, len(sight.given)), _given_by(sight, image))
    if sight.hosts_own and isinstance(sight.devices, Devices):
        return passed(StepId.ASKED, "it sees the node's own /dev, and whatever GPUs are there", _given_by(sight, ()))
    hidden = sight.variables if isinstance(sight.variables, Unread) else None
    unread = next(iter(sight.wishes.unread), hidden) or (sight.devices if isinstance(sight.devices, Unread) else None)
    if unread is not None:
        return unknown(StepId.ASKED, unread, f"whether anybody asked is not known: {unread.where}: {unread.detail}")
    if among_others:
        return skipped(StepId.ASKED, "nobody asked for a GPU for this container; another one beside it has one")
    chosen = tuple(wish.evidence for wish in wishes if wish.asker is not Asker.IMAGE)
    evidence = _not_asked_by(sight, (*image, *chosen))
    return failed(StepId.ASKED, _not_asked(image, chosen), evidence, *remedies.ask(sight.workload))


def _given(sight: Sight, image: Cited, number: int) -> str:
    gpus = f"{number} GPU{'' if number == 1 else 's'}"
    if sight.config is not None and sight.config.allows_everything:
        return f"nobody asked by name; it is privileged, and has the nodes of {gpus}"
    if sight.hosts_own:
        return f"nobody need ask: it sees the node's own /dev with {gpus}"
    if image:
        return f"only a variable that images set asks for all, and it was given {gpus}"
    return f"nobody is seen to have asked, but it was given {gpus}"


def _given_by(sight: Sight, image: Cited) -> Cited:
    devices = sight.devices.read_from["nodes"] if isinstance(sight.devices, Devices) else None
    config = sight.config
    privileged = (Evidence(config.path, "linux.resources.devices allows everything"),) if config is not None else ()
    told = privileged if config is not None and config.allows_everything else image
    return (*told, *((devices,) if devices is not None else ()))


def _not_asked(image: Cited, chosen: Cited) -> str:
    if chosen:
        return f"nobody asked for a GPU: {CUDA_VISIBLE} only chooses among those that are inside"
    if image:
        return "nobody asked for a GPU: only a variable that images set says all, and its runtime took no notice of it"
    return "nobody asked for a GPU for this workload"


def _not_asked_by(sight: Sight, variables: Cited) -> Cited:
    seen = variables or sight.environ("NVIDIA_VISIBLE_DEVICES")
    configured = sight.config.cite("nodes", "hooks") if sight.config is not None else ()
    nodes = sight.devices.cite("nodes") if isinstance(sight.devices, Devices) else ()
    return (*seen, *configured, *nodes)
