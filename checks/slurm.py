"""Slurm: what it is told of the node's GPUs against those that are there, how it finds them, and whether it gives the node jobs."""

from typing import TYPE_CHECKING

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpus
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.slurm import SLURMD, Slurm
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

if TYPE_CHECKING:
    from gpudoctor.facts.slurm_log import Told
    from gpudoctor.facts.slurm_node import NodeState
    from gpudoctor.facts.slurm_setup import Setup
    from gpudoctor.facts.slurm_sound import Fault

GRES, SOUND, DETECT = "sharing.slurm-gres", "sharing.slurm-gres-sound", "sharing.slurm-autodetect"
STATE, STARTED = "sharing.slurm-node", "sharing.slurm-unit"
INSTANCES = "sharing.mig-instances"
MOST_CITED = 4
COUNTED = pattern(r"gres/\S+ count (?:reported lower|too low)")
"""Slurm's own words for it (SchedMD/slurm src/interfaces/gres.c @284c3b95, _node_config_validate; formerly "count too low")."""


def standing_on(gpus: tuple[str, ...]) -> tuple[Subject, ...]:
    """slurmd, as far as a finding about it stands on some GPUs: what is said of the node is true of its slurmd alone."""
    return (Subject(SLURMD.kind, SLURMD.key, stands_on=tuple(Subject(SubjectKind.GPU, address) for address in gpus)),)


ITS_OWN = (SLURMD,)


# what it is told ----------------------------------------------------------------------------------------------------


@check(
    GRES,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    explained_by=(SOUND, DETECT, INSTANCES),
    title="Slurm is told of the GPUs that are there",
)
def gres(slurm: Slurm, gpus: Reading[PciGpus], driver: Reading[DriverGpus], nvml: Reading[Nvml]) -> Verdicts:
    """A node that has fewer GPUs than slurm.conf promises gets no jobs at all: Slurm takes it out as invalid.

    Gres= in slurm.conf says how many GPUs of which type the node has, gres.conf which files they are, or that slurmd looks for them
    itself (AutoDetect). Both are read as slurmd reads them, with what they include, and held against the files in /dev, the GPUs on the
    bus and those that NVML lists; MIG instances count one by one where NVML finds them. slurmd waits twenty seconds for a file that is
    missing, then it ends; a type that fits nothing, or GPUs without a file, are left out, and the controller sets the node to INVAL:
    "gres/gpu count reported lower than configured". Fewer GPUs than there are may be meant so where files are named; where slurmd is to
    find them all it is worth a warning. Where the driver is dead, that is the fault.
    """
    if slurm.setup is None:
        yield NotApplicable(NODE, slurm.absent)
        return
    from gpudoctor.checks.slurm_count import Hardware, judge_count

    hardware = Hardware.of(gpus, driver, nvml)
    yield judge_count(slurm.setup, hardware)


@check(SOUND, link=Link.SHARING, title="slurmd can read the GPUs out of its files")
def gres_sound(slurm: Slurm) -> Verdicts:
    """slurmd ends at once where the records of gres.conf contradict each other, and the node is down.

    Records of one gres must all have File=, or none, and all Type=, or none; with neither there may be one only, so that AutoDetect with
    two bare Name=gpu lines is fatal. Count= must be the number of files, File= and MultipleFiles= exclude each other, AutoDetect= must
    not differ between lines of one node. The lines that hold for this node are judged as gres.c judges them, and what slurmd said when
    it was started last is looked through: cores that fit no socket, Cores= or Links= that differ from what was found. AutoDetect beside
    File= lines is no fault: the one is checked against the other. Lines for other nodes are not judged.
    """
    if slurm.setup is None:
        yield NotApplicable(NODE, slurm.absent)
        return
    from gpudoctor.facts.slurm_sound import faults_in

    setup = slurm.setup
    if (unread := _unread_files(setup)) is not None and not setup.gres.records:
        yield unread.about(NODE)
    elif faults := tuple(faults_in(setup)):
        yield from (_faulty(setup, fault) for fault in faults)
    elif read := _read(setup):
        yield Pass(NODE, "the records of GPUs agree with each other", read)
    else:
        yield NotApplicable(NODE, "its files tell of no GPU", (setup.gres.file.evidence("has no line for this node"),))


def _faulty(setup: "Setup", fault: "Fault") -> Verdict:
    from gpudoctor.knowledge.slurm_remedies import GRES_PAGE, correct_gres, see_log

    say = "Correct these lines; one source of truth is best: AutoDetect without Name=gpu lines, or lines with File= and AutoDetect=off."
    steps = (correct_gres(setup.folder, setup.name, SOUND, say), see_log(SOUND))
    pages, cause = (GRES_PAGE,), fault.cause
    if not fault.fatal:
        return Warn(NODE, fault.says, fault.evidence, steps, cause=cause, of=ITS_OWN, references=pages)
    return Fail(NODE, fault.says, fault.evidence, steps, Breaks.SUBJECT, cause=cause, of=ITS_OWN, references=pages)


def _unread_files(setup: "Setup") -> Unread | None:
    """Why gres.conf is not known, or not which of its lines are this node's."""
    if not setup.gres.file.known and isinstance(setup.gres.file.trouble, Unread):
        return setup.gres.file.trouble
    strange = setup.gres.others and not setup.gres.records and not setup.conf.knows_node
    if strange and not setup.gres.local:
        return Unread(
            Why.NOT_ANSWERED,
            setup.gres.file.path,
            f"which of its lines are for this node ({setup.name or 'without a name'})",
        )
    return None


def _read(setup: "Setup") -> Cited:
    """The lines that tell of this node's GPUs."""
    lines = tuple(record.line.evidence for record in setup.gres.gpus[:MOST_CITED])
    detection = (setup.gres.detection.evidence,) if setup.gres.detection.word else ()
    return (*lines, *detection, *((setup.conf.evidence,) if setup.conf.gres else ()))


# how it finds them --------------------------------------------------------------------------------------------------


@check(DETECT, link=Link.SHARING, title="slurmd has what AutoDetect takes")
def autodetect(slurm: Slurm, nvml: Reading[Nvml]) -> Verdicts:
    """AutoDetect=nvml in a Slurm that was built without NVML finds no GPU, and says so in one line of its log.

    The plugin gpu_nvml.so comes with a Slurm that was configured where nvml.h was, in some distributions as a package of its own;
    AutoDetect=nvidia (Slurm 24.11 and later) takes gpu_nvidia.so and no library. slurmd then falls back to what File= lines say: with
    those for every GPU only their cores and links are lost. Looked for in PluginDir, beside slurmd, and where packages put plugins; what
    slurmd said when it was started last comes first. Before Slurm 24.05.5 NVML is opened by the name libnvidia-ml.so alone, a link that
    some packages of the driver do not bring; later ones, and everything else, take libnvidia-ml.so.1 too (CHANGELOG of SchedMD/slurm,
    24.05.5; src/interfaces/gpu.c, _get_gpu_type). Where NVML does not answer now either, the fault is the
    driver's; where it did not answer when slurmd was started, see sharing.slurm-unit.
    """
    if slurm.setup is None:
        yield NotApplicable(NODE, slurm.absent)
        return
    setup = slurm.setup
    if (unread := _unread_files(setup)) is not None:
        yield unread.about(NODE)
    elif not setup.gres.detection.on:
        yield NotApplicable(NODE, "AutoDetect is not set", (setup.gres.detection.evidence,))
    else:
        yield _detection(setup, nvml)


def _detection(setup: "Setup", nvml: Reading[Nvml]) -> Verdict:
    from gpudoctor.facts.raw import Absent, Entry
    from gpudoctor.facts.slurm_log import Said

    evidence = (setup.gres.detection.evidence,)
    kind, plugin = setup.gres.detection.kind, setup.plugin
    lines = setup.log.of(Said.NOT_BUILT, Said.NO_PLUGIN)
    absent = plugin is not None and isinstance(plugin.found, Absent)
    if lines or absent:
        seen = plugin.seen if plugin is not None and absent else ()
        return _without_plugin(setup, (*evidence, *(line.evidence for line in lines[:2]), *seen))
    if unopened := setup.log.of(Said.NO_LIBRARY):
        if isinstance(nvml, Unread) or nvml.failure is not None or not nvml.devices:
            said = "slurmd found no NVML, and it does not answer now either"
            return Unknown(NODE, Why.NOT_ANSWERED, said, _cited(unopened))
        return _without_library(setup, (*evidence, *_cited(unopened), *nvml.cite("count")))
    if plugin is None:
        reason = f"AutoDetect={setup.gres.detection.word} is not for this node's GPUs alone"
        return NotApplicable(NODE, reason, evidence)
    if isinstance(plugin.found, Entry):
        return Pass(NODE, f"AutoDetect={kind} has its plugin", (*evidence, *plugin.seen))
    if setup.log.detected:
        return Pass(NODE, f"AutoDetect={kind} found {len(setup.log.detected)} devices", (*evidence, _listed(setup)))
    if isinstance(plugin.found, Unread):
        return plugin.found.about(NODE)
    return Unknown(NODE, Why.NOT_RECORDED, f"{plugin.name}: the folder of Slurm's plugins is not in view")


def _covered(setup: "Setup") -> bool:
    """Whether File= lines name every GPU, so that detection adds no more than cores and links."""
    from gpudoctor.facts.slurm_gres import usable

    records = setup.gres.gpus
    if not setup.conf.gres:
        return any(record.files for record in records)
    return usable(records, setup.conf.gres) >= setup.conf.promised


def _without_plugin(setup: "Setup", evidence: Cited) -> Verdict:
    from gpudoctor.knowledge.slurm_remedies import nvml_plugin

    kind = setup.gres.detection.kind
    plugin = f"gpu_{kind}.so" if kind in ("nvml", "nvidia") else f"plugin for {kind}"
    return _blind(
        setup, f"AutoDetect={kind} is set, but slurmd has no {plugin}", evidence, nvml_plugin(DETECT), "plugin"
    )


def _without_library(setup: "Setup", evidence: Cited) -> Verdict:
    from gpudoctor.knowledge.slurm_remedies import link_library

    summary = "AutoDetect=nvml is set, but slurmd could not open libnvidia-ml.so, though NVML answers others"
    return _blind(setup, summary, evidence, link_library(DETECT), "library")


def _blind(setup: "Setup", summary: str, evidence: Cited, first: Remedy, cause: str) -> Verdict:
    """slurmd finds nothing by itself: a fail where no file is named either."""
    from gpudoctor.knowledge.slurm_remedies import GRES_PAGE, name_files

    count = max(setup.conf.promised, 1)
    files = f"/dev/nvidia[0-{count - 1}]" if count > 1 else "/dev/nvidia0"
    steps = (first, name_files(setup.folder, setup.name, files, DETECT))
    if _covered(setup):
        said = f"{summary}: only the File= lines of gres.conf count, without cores and links"
        return Warn(NODE, said, evidence, steps, cause=cause, of=ITS_OWN, references=(GRES_PAGE,))
    said = f"{summary}, and it finds no GPU"
    return Fail(NODE, said, evidence, steps, Breaks.SUBJECT, cause=cause, of=ITS_OWN, references=(GRES_PAGE,))


def _cited(lines: "tuple[Told, ...]") -> Cited:
    return tuple(line.evidence for line in lines[:MOST_CITED])


def _listed(setup: "Setup") -> Evidence:
    first = setup.log.detected[0]
    shows = (
        f"lists {len(setup.log.detected)} devices, the first {first.type or 'without a type'} {','.join(first.files)}"
    )
    return Evidence(setup.log.where, shows)


# how it is started --------------------------------------------------------------------------------------------------


@check(STARTED, link=Link.SHARING, explained_by=(GRES, SOUND), title="slurmd is started when the GPUs are there")
def unit(slurm: Slurm, nvml: Reading[Nvml]) -> Verdicts:
    """slurmd waits twenty seconds for the files that gres.conf names, then it ends, and nothing starts it again.

    After a boot nothing may have made /dev/nvidia0 yet when slurmd is started: no display, no nvidia-persistenced, no udev rule. Its
    journal then says "can't stat gres.conf file", and by the time somebody looks the file is there, made by the nvidia-smi that they
    called. With AutoDetect it waits for nothing: NVML tells it "Driver Not Loaded", it finds no GPU, and never looks again. To have
    waited and gone on is no fault, and a file that is still missing is another question. Without Delegate=yes systemd may take
    controllers away from the control groups that slurmd makes on cgroup v2. What is judged is what slurmd said when it was started last,
    and the unit's own files.
    """
    if slurm.setup is None:
        yield NotApplicable(NODE, slurm.absent)
        return
    early = _waited(slurm.setup, nvml)
    yield early if early is not None else _runs(slurm, slurm.setup)
    if (said := _delegated(slurm.setup)) is not None:
        yield said


def _waited(setup: "Setup", nvml: Reading[Nvml]) -> Verdict | None:
    """It was started before something was there that is there now."""
    from gpudoctor.facts.raw import Entry
    from gpudoctor.facts.slurm_ground import shown
    from gpudoctor.facts.slurm_log import Said
    from gpudoctor.knowledge.slurm_remedies import order_units, restart

    steps = (restart(STARTED, "Start slurmd anew: what it lacked is there now."), order_units(STARTED))
    refused = [one for one in setup.log.of(Said.CANNOT_STAT) if isinstance(setup.devices.by_path.get(one.name), Entry)]
    if refused and setup.running is not True:
        names = tuple(dict.fromkeys(one.name for one in refused))
        evidence = (*_cited(tuple(refused)), *(shown(name, setup.devices.by_path[name]) for name in names[:2]))
        summary = f"slurmd gave up because {names[0]} was not there yet; it is there now, and slurmd does not run"
        return Fail(NODE, summary, evidence, steps, Breaks.SUBJECT, cause="early", of=ITS_OWN)
    failed = setup.log.of(Said.NVML_FAILED)
    answers = isinstance(nvml, Nvml) and nvml.failure is None and bool(nvml.devices)
    if failed and setup.log.alive and answers and setup.gres.detection.on and not _covered(setup):
        summary = "slurmd was started before the driver was there and found no GPU; it does not look again"
        evidence = (*_cited(failed), *nvml.cite("count")) if isinstance(nvml, Nvml) else _cited(failed)
        return Fail(NODE, summary, evidence, steps, Breaks.SUBJECT, cause="early", of=ITS_OWN)
    return None


def _runs(slurm: Slurm, setup: "Setup") -> Verdict:
    from gpudoctor.facts.slurm_log import Said
    from gpudoctor.knowledge.slurm_remedies import restart, see_log

    if isinstance(setup.running, Unread):
        return setup.running.about(NODE)
    waited = setup.log.of(Said.WAITING) if setup.log.alive else ()
    if setup.running and waited:
        return Pass(NODE, f"slurmd runs; it had to wait for {waited[0].name}", (*slurm.seen, *_cited(waited)))
    if setup.running:
        return Pass(NODE, "slurmd runs", slurm.seen)
    steps = (see_log(STARTED), restart(STARTED, "Start it, once its reason is mended.", then=True))
    return Warn(NODE, "slurmd is started at boot, but does not run", slurm.seen, steps, cause="stopped", of=ITS_OWN)


def _delegated(setup: "Setup") -> Verdict | None:
    """Only where slurmd manages groups of cgroup v2: CgroupPlugin says so, or the group itself."""
    from gpudoctor.knowledge.slurm_remedies import CGROUPS_PAGE, delegate

    told = setup.delegation
    version = setup.cgroup.setting("cgroupplugin")
    if told is None or isinstance(told, Unread) or version is None or not version[0].lower().endswith("v2"):
        return None
    if told.value is not None and told.value.lower() not in ("no", "false", "0", "off"):
        return None
    summary = "slurmd.service has no Delegate=yes: systemd may take device rules and limits of jobs away"
    return Warn(
        NODE,
        summary,
        (told.evidence, version[1].evidence),
        (delegate(STARTED),),
        cause="delegate",
        of=ITS_OWN,
        references=(CGROUPS_PAGE,),
    )


# what the controller thinks -----------------------------------------------------------------------------------------


@check(
    STATE,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA, Link.HEALTH},
    explained_by=(GRES, SOUND, DETECT, STARTED),
    title="Slurm gives this node jobs",
)
def state(slurm: Slurm, gpus: Reading[PciGpus]) -> Verdicts:
    """A node that is drained or down gets no jobs, and only its controller knows who did that and why.

    `scontrol show node` is asked once, for three seconds at most, and not at all with `[slurm] ask = false`. A reason that Slurm gave
    itself for GPUs (a count lower than configured) follows from what is wrong with them; one that begins with `gpudoctor:` names the
    check that failed; anybody else's is told as it stands, with who set it and when: a node that is drained for maintenance is healthy.
    Reservations, power saving and planned reboots take a node out as well and are not told of here.
    """
    if slurm.setup is None:
        yield NotApplicable(NODE, slurm.absent)
        return
    told = slurm.setup.state
    if isinstance(told, Unread):
        yield told.about(NODE)
    elif not told.out and not (told.silent and "POWERED_DOWN" not in told.states):
        yield Pass(NODE, f"Slurm has it as {told.states[0].lower()}", told.evidence)
    else:
        addresses = () if isinstance(gpus, Unread) else tuple(gpu.address for gpu in gpus)
        yield _out(told, slurm.setup, addresses)


def _out(told: "NodeState", setup: "Setup", addresses: tuple[str, ...]) -> Verdict:
    from gpudoctor.knowledge.slurm_reason import read
    from gpudoctor.knowledge.slurm_remedies import ask_whoever, find_cause, resume, see_log

    back = resume(setup.name, STATE, "Let jobs on it again, once that is mended.")
    who = f" by {told.by}" if told.by else ""
    when = f" since {told.at.replace('T', ' ')}" if told.at else ""
    words = "+".join(told.states).lower()
    if (ours := read(told.reason)) is not None:
        said = f" ({ours.words})" if ours.words else ""
        changed = "" if ours.sealed else "; somebody has changed the reason, so it is not taken back by itself"
        summary = f"gpudoctor drained this node{when.replace('since', 'on')}: {ours.check} had failed{said}{changed}"
        steps = (find_cause(ours.check, STATE), back)
        return Warn(NODE, summary, told.evidence, steps, cause="own", of=standing_on(ours.gpus or addresses))
    if COUNTED.search(told.reason) is not None:
        summary = f"Slurm keeps jobs off this node{when} ({words}): {told.reason}"
        steps = (find_cause(GRES, STATE), back)
        return Fail(NODE, summary, told.evidence, steps, Breaks.SUBJECT, cause="gres", of=standing_on(addresses))
    if told.silent or "DOWN" in told.states:
        heard = " and hears nothing of it" if told.silent else ""
        summary = f"Slurm has this node as {words}{heard}{when}: {told.reason or 'no reason given'}"
        steps = (see_log(STATE), back)
        return Fail(NODE, summary, told.evidence, steps, Breaks.SUBJECT, cause="down", of=ITS_OWN)
    if not {"INVAL", "INVALID_REG"}.isdisjoint(told.states):
        summary = f"Slurm keeps jobs off this node{when} ({words}): {told.reason or 'no reason given'}"
        steps = (see_log(STATE), back)
        own = "GRES" not in told.reason
        return Fail(NODE, summary, told.evidence, steps, Breaks.SUBJECT, cause="invalid", of=ITS_OWN, own_fault=own)
    summary = f"Slurm gives this node no jobs ({words}){who}{when}: {told.reason or 'no reason given'}"
    steps = (ask_whoever(setup.name, told.by, STATE), back)
    return Warn(NODE, summary, told.evidence, steps, cause="drained", of=ITS_OWN, own_fault=True)
