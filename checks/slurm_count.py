"""How many GPUs Slurm is told of, and how many there are: one verdict out of its files, the bus and NVML."""

from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.checks.slurm import GRES, ITS_OWN, MOST_CITED, standing_on
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.slurm_gres import Promised, usable
from gpudoctor.facts.slurm_ground import minor_of, shown
from gpudoctor.facts.slurm_log import Said
from gpudoctor.facts.slurm_setup import Setup
from gpudoctor.knowledge.slurm_remedies import (
    GRES_PAGE,
    bring_back,
    correct_gres,
    look,
    make_nodes,
    name_files,
)
from gpudoctor.verdicts import NODE, Breaks, Cited, Fail, NotApplicable, Pass, Unread, Verdict, Warn, Why

OTHER_VENDORS = ("rsmi", "oneapi", "nrt")


class Hardware(Struct, frozen=True):
    """The node's GPUs: addresses on the bus (None where not all are known), minors, and what NVML lists."""

    addresses: tuple[str, ...] | None
    minors: Mapping[int, str]
    listing: Cited
    nvml: Nvml | None
    unread: Unread | None

    @classmethod
    def of(cls, gpus: Reading[PciGpus], driver: Reading[DriverGpus], nvml: Reading[Nvml]) -> "Hardware":
        """Put together what three facts tell."""
        complete = isinstance(gpus, PciGpus) and gpus.unlisted is None
        known = () if isinstance(driver, Unread) else driver.gpus.values()
        minors = {gpu.minor: gpu.address for gpu in known if isinstance(gpu, DriverGpu) and gpu.minor is not None}
        return cls(
            addresses=tuple(gpu.address for gpu in gpus) if isinstance(gpus, PciGpus) and complete else None,
            minors=minors,
            listing=gpus.cite("listing") if isinstance(gpus, PciGpus) else (),
            nvml=nvml if isinstance(nvml, Nvml) else None,
            unread=nvml if isinstance(nvml, Unread) else None,
        )

    @property
    def all_minors(self) -> bool:
        """Whether the minor of every GPU is known."""
        return self.addresses is not None and len(self.minors) == len(self.addresses)

    @property
    def unlisted(self) -> tuple[str, ...]:
        """GPUs of the bus that give Slurm nothing: NVML does not list them, or they are divided into no instance."""
        devices = self.nvml.devices if self.nvml is not None else ()
        whole = {one.address for one in devices if one.fields.get("mig.current") is not True or one.mig_devices}
        return tuple(address for address in self.addresses or () if address not in whole)

    def types(self, *, instances: bool) -> tuple[str, ...]:
        """What AutoDetect would call each device: MIG instances one by one where NVML finds them."""
        found: list[str] = []
        for device in self.nvml.devices if self.nvml is not None else ():
            if device.error is None:
                found += _types_of(device, instances=instances)
        return tuple(found)


def _types_of(device: NvmlDevice, *, instances: bool) -> list[str]:
    """The name in small letters with underscores, and the profile (gpu_common_underscorify_tolower; gpu_nvml.c)."""
    name = "_".join((device.name or "").lower().split())
    if not instances or device.fields.get("mig.current") is not True:
        return [name]
    return [f"{name}_{one.profile or ''}" for one in device.mig_devices]


def judge_count(setup: Setup, hardware: Hardware) -> Verdict:
    """The first thing that is wrong, else that all is as it is told."""
    return _not_asked(setup) or _of_files(setup, hardware) or _of_numbers(setup, hardware)


def _not_asked(setup: Setup) -> Verdict | None:
    """Where the files are not known, or tell of no GPU of NVIDIA's."""
    conf, gres = setup.conf, setup.gres
    if (unread := _not_known(setup)) is not None:
        return unread.about(NODE)
    if not conf.promised and not gres.gpus and not gres.detection.on:
        evidence = (conf.evidence, gres.file.evidence("names no GPU"))
        return NotApplicable(NODE, "Slurm is told of no GPU on this node", evidence)
    if gres.detection.kind in OTHER_VENDORS:
        reason = f"AutoDetect={gres.detection.word} is for GPUs of another vendor"
        return NotApplicable(NODE, reason, (gres.detection.evidence,))
    return None


def _of_files(setup: Setup, hardware: Hardware) -> Verdict | None:
    """Files that are not there, or are nodes of no GPU."""
    if setup.devices.missing:
        return _vanished(setup, hardware)
    if setup.devices.unseen is not None:
        return setup.devices.unseen.about(NODE)
    return _of_no_gpu(setup, hardware)


def _of_numbers(setup: Setup, hardware: Hardware) -> Verdict:
    """What is promised against what slurmd will find."""
    if setup.conf.file.known and not setup.conf.promised:
        return _nothing_promised(setup, hardware)
    if not setup.conf.knows_node:
        return _by_files(setup, hardware)
    # What a file is named for is taken with detection too, whatever that calls it (gres_gpu.c, _merge_system_gres_conf).
    enough = usable(setup.gres.gpus, setup.conf.gres) >= setup.conf.promised
    return _named(setup, hardware) if enough or not setup.gres.detection.on else _detected(setup, hardware)


def _not_known(setup: Setup) -> Unread | None:
    """Why the files tell nothing: they were not read, or it is not known which lines are this node's."""
    trouble, conf = setup.gres.file.trouble, setup.conf
    if not setup.gres.file.known and isinstance(trouble, Unread):
        return trouble
    strange = f"names no such node ({setup.name or 'without a name'})"
    if conf.file.there and conf.file.known and not conf.knows_node:
        return Unread(Why.NOT_ANSWERED, conf.file.path, strange)
    if setup.gres.others and not setup.gres.records and not setup.gres.local and not conf.knows_node:
        return Unread(Why.NOT_ANSWERED, setup.gres.file.path, strange)
    missing = isinstance(conf.file.trouble, Unread) and not setup.gres.gpus
    return conf.file.trouble if missing and isinstance(conf.file.trouble, Unread) else None


def _vanished(setup: Setup, hardware: Hardware) -> Verdict:
    """A file that gres.conf names is not there."""
    missing = setup.devices.missing
    holders = [record.line.evidence for record in setup.gres.gpus if set(record.files) & set(missing)]
    absences = tuple(shown(path, setup.devices.by_path[path]) for path in missing[:MOST_CITED])
    lines = tuple(one.evidence for one in setup.log.of(Said.CANNOT_STAT, Said.WAITING) if one.name in missing)
    known = {
        minor: hardware.minors[minor]
        for path in missing
        if (minor := minor_of(path)) in hardware.minors and minor is not None
    }
    count = sum(record.devices for record in setup.gres.gpus)
    bus = 0 if hardware.addresses is None else len(hardware.addresses)
    there = f", and {bus} {'is' if bus == 1 else 'are'} on the bus" if hardware.addresses is not None else ""
    what = f"{missing[0]} is" if len(missing) == 1 else f"{len(missing)} of them, the first {missing[0]}, are"
    summary = f"gres.conf names {count} GPUs{there}, but {what} not there: slurmd waits for it, then ends, and the node gets no jobs"
    say = "If fewer GPUs are there for good, name only those in gres.conf and lower Gres= in slurm.conf."
    steps = (
        bring_back(GRES),
        *((make_nodes(GRES),) if known else ()),
        correct_gres(setup.folder, setup.name, GRES, say),
    )
    evidence = (*dict.fromkeys(holders), *absences, *lines[:2], *hardware.listing)
    return Fail(
        NODE,
        summary,
        evidence,
        steps,
        Breaks.SUBJECT,
        cause="vanished",
        of=standing_on(tuple(known.values())),
        references=(GRES_PAGE,),
        own_fault=True,
    )


def _of_no_gpu(setup: Setup, hardware: Hardware) -> Verdict | None:
    """A node that stayed behind: slurmd is content with it, and gives jobs a GPU that does not exist."""
    if not hardware.all_minors:
        return None
    named = {path: minor_of(path) for record in setup.gres.gpus if not record.multiple for path in record.files}
    stale = tuple(path for path, minor in named.items() if minor is not None and minor not in hardware.minors)
    if not stale:
        return None
    lines = tuple(record.line.evidence for record in setup.gres.gpus if set(record.files) & set(stale))
    count = len(hardware.minors)
    summary = f"gres.conf names {len(named)} GPUs and there are {count}: {stale[0]} is the node of no GPU, and jobs that get it find none"
    seen = tuple(shown(path, setup.devices.by_path[path]) for path in stale[:2])
    say = "If the GPU is gone for good, take its file out of gres.conf and lower Gres= in slurm.conf."
    steps = (bring_back(GRES), correct_gres(setup.folder, setup.name, GRES, say))
    evidence = (*lines[:MOST_CITED], *seen, *hardware.listing)
    return Fail(
        NODE,
        summary,
        evidence,
        steps,
        Breaks.SUBJECT,
        cause="stale",
        of=ITS_OWN,
        references=(GRES_PAGE,),
        own_fault=True,
    )


def _nothing_promised(setup: Setup, hardware: Hardware) -> Verdict:
    """GPUs are named, or looked for, that slurm.conf knows nothing of."""
    conf, gres = setup.conf, setup.gres
    named = sum(record.devices for record in gres.gpus)
    there = named or len(hardware.types(instances=True))
    if not there:
        return NotApplicable(NODE, "slurm.conf promises no GPU of this node", (conf.evidence, gres.detection.evidence))
    ignored = tuple(one.evidence for one in setup.log.of(Said.IGNORED))
    summary = (
        f"slurm.conf has no Gres= for GPUs of this node: its {there} GPUs are passed over, and no job can ask for them"
    )
    say = f"Add Gres=gpu:{there} to the node's line in slurm.conf, and gpu to GresTypes."
    lines = tuple(record.line.evidence for record in gres.gpus[:2]) or (gres.detection.evidence,)
    steps = (look(setup.folder, GRES), correct_gres(setup.folder, setup.name, GRES, say))
    return Warn(
        NODE,
        summary,
        (conf.evidence, *lines, *ignored),
        steps,
        cause="not-promised",
        of=ITS_OWN,
        references=(GRES_PAGE,),
    )


def _lines(setup: Setup) -> Cited:
    lines = tuple(record.line.evidence for record in setup.gres.gpus[:MOST_CITED])
    return lines or (setup.gres.detection.evidence,)


def _by_files(setup: Setup, hardware: Hardware) -> Verdict:
    """slurm.conf was not read: what gres.conf names is there."""
    files = len(setup.devices.by_path)
    if not files:
        trouble = setup.conf.file.trouble
        return (
            trouble
            if isinstance(trouble, Unread)
            else Unread(Why.NOT_ANSWERED, setup.conf.file.path, "names no such node")
        ).about(NODE)
    summary = f"gres.conf names {_files(files)} that are there; how many slurm.conf promises is not known"
    return Pass(NODE, summary, (*_lines(setup), *_shown(setup), *hardware.listing))


def _named(setup: Setup, hardware: Hardware) -> Verdict:
    """Without detection: the files of gres.conf, by types where both name them."""
    conf, records = setup.conf, setup.gres.gpus
    found, promised = usable(records, conf.gres), conf.promised
    named = sum(record.devices for record in records if record.files)
    if found < promised:
        return _too_few(setup, hardware, found, named)
    if named > promised:
        summary = (
            f"gres.conf names {named} GPUs, slurm.conf promises {promised}: {named - promised} of them are passed over"
        )
        steps = (
            look(setup.folder, GRES),
            correct_gres(setup.folder, setup.name, GRES, "Let both say the same number."),
        )
        return Warn(
            NODE, summary, (conf.evidence, *_lines(setup)), steps, cause="excess", of=ITS_OWN, references=(GRES_PAGE,)
        )
    left = len(hardware.minors) - named if hardware.all_minors else 0
    more = f"; {left} more on the node are not Slurm's" if left > 0 else ""
    summary = f"Slurm is told of {promised} GPUs, and the files of all are there{more}"
    return Pass(NODE, summary, (conf.evidence, *_lines(setup), *_shown(setup)))


def _too_few(setup: Setup, hardware: Hardware, found: int, named: int) -> Verdict:
    conf = setup.conf
    promised = conf.promised
    wanted = sorted({one.type for one in conf.gres if one.type})
    offered = sorted({record.type for record in setup.gres.gpus if record.files})
    if named >= promised and wanted:
        there = ", ".join(offered) if any(offered) else "no type"
        why = f"slurm.conf promises {promised} of type {', '.join(wanted)}, and gres.conf names {there}"
        cause = "type"
    elif not named:
        why = f"slurm.conf promises {promised} GPUs, and gres.conf names the file of none, which File= must"
        cause = "no-file"
    else:
        why = f"slurm.conf promises {promised} GPUs, and gres.conf names the files of {named}"
        cause = "count"
    summary = (
        f"{why}: Slurm takes the node out, with gres/gpu count reported lower than configured ({found} < {promised})"
    )
    said = tuple(one.evidence for one in setup.log.of(Said.WITHOUT_FILE)[:2])
    count = len(hardware.minors) or promised
    files = f"/dev/nvidia[0-{count - 1}]" if count > 1 else "/dev/nvidia0"
    correct = correct_gres(
        setup.folder, setup.name, GRES, "Let slurm.conf and gres.conf name the same number and the same type."
    )
    steps = (
        look(setup.folder, GRES),
        *((name_files(setup.folder, setup.name, files, GRES),) if cause == "no-file" else ()),
        correct,
    )
    evidence = (conf.evidence, *_lines(setup), *said, *hardware.listing)
    return Fail(NODE, summary, evidence, steps, Breaks.SUBJECT, cause=cause, of=ITS_OWN, references=(GRES_PAGE,))


def _detected(setup: Setup, hardware: Hardware) -> Verdict:
    """With detection: the devices that NVML lists."""
    conf, detection = setup.conf, setup.gres.detection
    nvml = hardware.nvml
    if nvml is None or nvml.failure is not None or any(one.error for one in nvml.devices):
        unread = hardware.unread or Unread(Why.NOT_ANSWERED, "NVML", "did not answer for every GPU")
        return unread.about(NODE)
    instances = detection.kind != "nvidia"
    if instances and any(one.fields.get("mig.current") is True and not one.lists_mig for one in nvml.devices):
        return Unread(Why.NOT_ANSWERED, nvml.via, "does not list the MIG devices that Slurm counts").about(NODE)
    types = hardware.types(instances=instances)
    promised, found = conf.promised, _matching(conf.gres, types)
    evidence = (conf.evidence, detection.evidence, *nvml.cite("count"))
    if found < promised:
        return _not_found(setup, hardware, types, found, evidence)
    if promised < len(types):
        excess = len(types) - promised
        summary = f"slurmd finds {len(types)} GPUs, slurm.conf promises {promised}: {excess} of them are passed over"
        ignored = tuple(one.evidence for one in setup.log.of(Said.IGNORED))
        correct = correct_gres(setup.folder, setup.name, GRES, "Let Gres= in slurm.conf count them all.")
        steps = (look(setup.folder, GRES), correct)
        return Warn(NODE, summary, (*evidence, *ignored), steps, cause="excess", of=ITS_OWN, references=(GRES_PAGE,))
    summary = f"Slurm is told of {promised} GPUs, and as many are found"
    return Pass(NODE, summary, evidence)


def _not_found(setup: Setup, hardware: Hardware, types: tuple[str, ...], found: int, evidence: Cited) -> Verdict:
    """Some of what is promised is not found, or goes by another name."""
    conf = setup.conf
    wanted = sorted({one.type for one in conf.gres if one.type})
    odd = [kind for kind in wanted if not any(kind.lower() in name for name in types)]
    names = ", ".join(sorted(set(types)))
    why = f"; no GPU is of type {', '.join(odd)}: AutoDetect calls them {names}" if odd and types else ""
    summary = (
        f"slurm.conf promises {conf.promised} GPUs, and slurmd finds {found} of them{why}: Slurm takes the node out, with gres/gpu count "
        f"reported lower than configured ({found} < {conf.promised})"
    )
    say = "If that is all for good, let Gres= in slurm.conf say so, with a type that is a part of the name."
    steps = (bring_back(GRES), correct_gres(setup.folder, setup.name, GRES, say))
    cause = "type" if odd and types else "count"
    of = standing_on(hardware.unlisted)
    return Fail(NODE, summary, evidence, steps, Breaks.SUBJECT, cause=cause, of=of, references=(GRES_PAGE,))


def _matching(promised: tuple[Promised, ...], types: tuple[str, ...]) -> int:
    """How many devices fit what is promised, the longest type first: a type is a part of the name (_find_type_in_gres_list)."""
    left = list(types)
    total = 0
    for one in sorted(promised, key=lambda one: -len(one.type)):
        fits = [name for name in left if one.type.lower() in name][: one.count]
        for name in fits:
            left.remove(name)
        total += len(fits)
    return total


def _files(count: int) -> str:
    return f"{count} files" if count != 1 else "one file"


def _shown(setup: Setup) -> Cited:
    paths = tuple(setup.devices.by_path.items())[:2]
    return tuple(shown(path, found) for path, found in paths)
