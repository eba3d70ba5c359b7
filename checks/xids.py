"""Xids and SXids: what the kernel log tells of errors of GPUs, of their memory, of NVLink and NVSwitches, and of programs."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.expectations import Expectations
from gpudoctor.facts.gpu_errors import GpuErrors, SwitchFold
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import NvSwitches, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.facts.xid_lines import SXidLine, XidLine
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    AboutSubject,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

# Modules that only an error calls for are imported where one is.
if TYPE_CHECKING:
    from gpudoctor.checks.xid_verdicts import Judge
    from gpudoctor.facts.xid_events import Trouble

DEVICE, MEMORY, NVLINK = "driver-cuda.xids", "health.memory-xids", "fabric.nvlink-xids"
APPLICATION, SWITCHES = "health.application-xids", "fabric.switch-sxids"

_PARTS = {DEVICE: ("driver", "notice"), MEMORY: ("memory",), NVLINK: ("nvlink",), APPLICATION: ("application",)}
_NOUNS = {
    DEVICE: "no Xid of the GPU itself or its bus",
    MEMORY: "no Xid of GPU memory",
    NVLINK: "no Xid of NVLink",
    APPLICATION: "no Xid of an application",
    SWITCHES: "no SXid",
}


@check(
    DEVICE,
    link=Link.DRIVER_CUDA,
    over=PciGpus,
    needs={Link.KERNEL_MODULE},
    explained_by=("driver-cuda.no-stuck-task", "driver-cuda.nvml-answers", "driver-cuda.recovery-action"),
    title="The driver has reported no error of any GPU or its bus",
)
def device_xids(
    gpus: Reading[PciGpus], errors: GpuErrors, nvml: Reading[Nvml], limits: Thresholds, expected: Reading[Expectations]
) -> Verdicts:
    """The driver writes an Xid into the kernel log when a GPU, its firmware or its PCIe link fails; often nothing else tells why.

    Read are all forms of the lines since R450, and "fallen off the bus" where there is no number. Repeats are folded, what came of an
    error is told beside it, and the action is NVIDIA's (Xid catalogue) or, where the driver named one in an Xid 154, the driver's. It
    fails where the GPU is of no use until that is done; when NVML says that the driver asks for nothing since, it only warns. Easily
    confused with Xids 13, 31, 43 and 45, which are mostly a program's own.
    """
    yield from _told(DEVICE, gpus, errors, nvml, limits, expected)
    if errors.silent:
        yield from _silent(errors, nvml, limits, bus_seen=isinstance(gpus, PciGpus) and bool(gpus.gpus))


@check(
    MEMORY,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(
        "health.ecc-uncorrected",
        "health.memory-repair",
        "health.memory-unrepairable",
        "health.retired-pages",
        "health.row-remap-failed",
        "health.row-remap-pending",
        "health.sram-threshold",
    ),
    title="The driver has reported no error of GPU memory",
)
def memory_xids(gpus: Reading[PciGpus], errors: GpuErrors, nvml: Reading[Nvml], limits: Thresholds) -> Verdicts:
    """An uncorrectable error in a GPU's memory (Xid 48, 94, 95 …) ends the programs that touch it and may leave the GPU to be reset.

    A contained one (94) ends one program, an uncontained one (95) any; RST and D-RST in the line say whether a reset is needed. 63 only
    tells that a row will be remapped at the next reset, and asks for nothing. Programs that fault right after it (13, 31, 43, 45) are its
    consequence. Counters and remapped rows, which last longer than the log, are other checks' (ecc-uncorrected, row-remap-pending).
    """
    yield from _told(MEMORY, gpus, errors, nvml, limits)


@check(
    NVLINK,
    link=Link.FABRIC,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="The driver has reported no NVLink error that asks for something",
)
def nvlink_xids(gpus: Reading[PciGpus], errors: GpuErrors, nvml: Reading[Nvml], limits: Thresholds) -> Verdicts:
    """An NVLink error (Xid 74, on Blackwell 144 to 150) stops peer-to-peer traffic, and with it every job over several GPUs.

    The registers in the line are decoded: of Hopper's 74 the seven words, of 144 to 150 intrInfo and errorStatus, whose layout changed
    with R575 (NVIDIA's Xid catalogue). What they say can be ignored stays silent. The other end of the link, a GPU or an NVSwitch, can be
    the one that is ill; several GPUs at once mean what they share. Links whose other end fell off the bus (79), or
    is an NVSwitch that reports a fatal SXid, are told of that one.
    """
    yield from _told(NVLINK, gpus, errors, nvml, limits)


@check(
    APPLICATION,
    link=Link.HEALTH,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(MEMORY,),
    advisory=True,
    title="No program has recently faulted on a GPU",
)
def application_xids(gpus: Reading[PciGpus], errors: GpuErrors, nvml: Reading[Nvml], limits: Thresholds) -> Verdicts:
    """A kernel that reads out of bounds (Xid 13, 31), or a channel that is torn down with its process (43, 45), looks like broken hardware.

    These are mostly the program's own mistake, and the GPU is well. Named is the process with its container, pod or job, if it lives. The
    hardware is to be suspected only when different programs fault in the same place of the same GPU; then run diagnostics (NVIDIA's Xid
    catalogue, WORKFLOW_XID_13 and _31). Right after a memory error they are its consequence and not told here, nor is what a failing GPU's
    job leaves behind on others (43, 45). Old ones do not warn.
    """
    yield from _told(APPLICATION, gpus, errors, nvml, limits)


def _silent(errors: GpuErrors, nvml: Reading[Nvml], limits: Thresholds, *, bus_seen: bool) -> Verdicts:
    """Firmware that stopped answering, unless Xid 119 or 120 tells it of a GPU by its address, as the driver mostly does a minute later."""
    from gpudoctor.checks.xid_verdicts import is_unseen
    from gpudoctor.knowledge.nvml_remedies import also_confirming
    from gpudoctor.knowledge.xid_remedies import remedies_for

    if any(fold.code in (119, 120) for trouble in errors.troubles for fold in trouble.folds):
        return
    number = errors.silent[-1].shows.partition("GPU")[2].partition(" ")[0]
    summary = f"the firmware (GSP) of GPU {number}, as the driver numbers them, stopped answering"
    evidence = (errors.silent[0], *errors.silent[1:][-1:])
    steps = also_confirming(remedies_for("RESET_GPU", "GPU"), DEVICE)
    old = errors.age(errors.silent[-1]) >= limits.of("xid_recent_hours") * 3600
    if isinstance(nvml, Unread) and is_unseen(nvml, bus_seen=bus_seen, old=old):
        words = f"{summary}; whether it answers now is not known: NVML was not read"
        yield Unknown(NODE, nvml.why, words, evidence, nvml.would_need)
        return
    answers = isinstance(nvml, Nvml) and nvml.devices and all(device.error is None for device in nvml.devices)
    if answers:
        yield Warn(NODE, f"{summary} for a while; NVML answers for every GPU now", evidence, steps, cause="gsp-silent")
    else:
        yield Fail(NODE, summary, evidence, steps, Breaks.NOTHING, cause="gsp-silent")


def _told(
    check_id: str,
    gpus: Reading[PciGpus],
    errors: GpuErrors,
    nvml: Reading[Nvml],
    limits: Thresholds,
    expected: Reading[Expectations] | None = None,
) -> Verdicts:
    """One verdict for each GPU that is on the bus or in the log."""
    listed = () if isinstance(gpus, Unread) else gpus.gpus
    if errors.empty:
        yield from (Unknown(one, Why.UNREADABLE, f"{errors.where} holds no message") for one in listed or (NODE,))
        return
    previous = errors.previous if check_id != APPLICATION else None
    if not errors.troubles and previous is None:
        yield from (_none(check_id, one, errors) for one in listed or (NODE,))
        return
    from gpudoctor.checks.xid_verdicts import Judge

    judge = Judge(check_id, errors, nvml, limits, bool(listed))
    before = None if previous is None else Judge(check_id, previous, nvml, limits, bool(listed))
    for gpu in listed:
        yield from _of_gpu(gpu, judge, before)
    there = {gpu.address for gpu in listed}
    for address in dict.fromkeys(trouble.address for trouble in errors.troubles):
        if address not in there:
            yield from _not_listed(address, judge, gpus, expected)
    if not listed:
        yield from _of_the_rest(judge)


def _not_listed(
    address: str, judge: "Judge", gpus: Reading[PciGpus], expected: Reading[Expectations] | None
) -> Iterator[Verdict]:
    """The verdict on a GPU that the log names and the bus does not show."""
    about = Subject(SubjectKind.GPU, address) if address else NODE
    found = _of_part(judge.check, judge.errors, address)
    if found and (hidden := _hidden(gpus)) is not None:
        yield Unknown(about, hidden.why, f"{judge.headline(found[0])}; whether it still is on the bus is not known")
    elif found and _told_by_the_bus(gpus, expected, judge.errors.of(address)):
        yield _gone(about, judge, found[0])
    elif found or (judge.check == DEVICE and address and not (isinstance(gpus, PciGpus) and gpus.gpus)):
        yield from _of_gpu(about, judge, None)


def _of_the_rest(judge: "Judge") -> Iterator[Verdict]:
    """Where the bus was not seen the node itself is asked about too."""
    errors = judge.errors
    concerned = {trouble.address for trouble in errors.troubles if trouble.area.value in _PARTS[judge.check]}
    if not concerned:
        yield _none(judge.check, NODE, errors)
    elif "" not in concerned:
        yield NotApplicable(NODE, "told of the GPUs that the kernel log names", errors.read)


def _of_part(check_id: str, errors: GpuErrors, address: str) -> "list[Trouble]":
    """The troubles of a GPU that a check judges."""
    return [trouble for trouble in errors.of(address) if trouble.area.value in _PARTS[check_id]]


def _of_gpu(about: AboutSubject, judge: "Judge", before: "Judge | None") -> Iterator[Verdict]:
    """The verdict on one GPU: what its log says, or that it says nothing that matters."""
    check_id, errors, address = judge.check, judge.errors, about.subject.key if about is not NODE else ""
    found = _of_part(check_id, errors, address)
    judges = {APPLICATION: _of_application, NVLINK: _of_links}
    judged = [judges[check_id](about, judge, one) if check_id in judges else judge.verdict(about, one) for one in found]
    verdicts: list[Verdict] = [verdict for verdict in judged if verdict is not None]
    if not verdicts and before is not None:
        earlier = [before.earlier(about, one) for one in _of_part(check_id, before.errors, address)]
        verdicts = [verdict for verdict in earlier if verdict is not None]
    yield from verdicts or (_nothing(check_id, about, judge, found),)


def _none(check_id: str, about: AboutSubject, errors: GpuErrors, words: str = "", lines: Cited = ()) -> Pass | Unknown:
    """Nothing that asks for something; not known where a report lacks a part of its logs."""
    words = words or f"{_NOUNS[check_id]} {errors.span}"
    if errors.lacking is not None:
        return Unknown(about, errors.lacking.why, f"{words}; {errors.lacking.where}: {errors.lacking.detail}")
    return Pass(about, words, errors.read + lines)


def _nothing(check_id: str, about: AboutSubject, judge: "Judge", found: "list[Trouble]") -> Pass | Unknown:
    """How much there was that asks for nothing."""
    errors = judge.errors
    ignorable = sum(judge.ignorable(trouble) for trouble in found)
    lines = tuple(errors.evidence(fold.last) for trouble in found for fold in trouble.folds)[:3]
    more = f"{_NOUNS[check_id]} that asks for something {errors.span}, and {ignorable} that ask for nothing"
    return _none(check_id, about, errors, more if ignorable else "", lines)


def _of_links(about: AboutSubject, judge: "Judge", trouble: "Trouble") -> Verdict | None:
    """Links whose other end was lost, or is a switch with a fatal error, are that one's."""
    other = judge.errors.swept.get((trouble.address, trouble.area))
    verdict = judge.verdict(about, trouble)
    if other is None or verdict is None:
        return verdict
    what = f"the NVSwitch {other.address}" if isinstance(other, SXidLine) else f"{other.slot}, which fell off the bus"
    words = f"told of {what}; with it {judge.headline(trouble)}"
    return NotApplicable(about, words, (*judge.evidence(trouble), judge.errors.evidence(other)))


def _of_application(about: AboutSubject, judge: "Judge", trouble: "Trouble") -> Verdict | None:
    """A warning while it is recent."""
    errors, limits = judge.errors, judge.limits
    hours = limits.of("xid_recent_hours")
    verdict = judge.verdict(about, trouble)
    if not isinstance(verdict, Warn):
        return verdict
    other = errors.swept.get((trouble.address, trouble.area))
    if isinstance(other, XidLine):
        codes = ", ".join(f"Xid {code}" for code in trouble.codes)
        words = f"only {codes} beside Xid {other.code} of {other.slot}: a program on several GPUs ends on all of them"
        return Pass(about, words, (*verdict.evidence, errors.evidence(other)))
    age = errors.age(trouble.last)
    if age >= hours * 3600:
        words = f"none of the last {hours:g} hours; before that {verdict.summary}"
        return Pass(about, words, verdict.evidence + limits.cite("xid_recent_hours"))
    if isinstance(errors.uptime, Unread):
        words = f"{verdict.summary}; how long ago is not known"
        return Unknown(about, errors.uptime.why, words, verdict.evidence, errors.uptime.would_need)
    return verdict


def _told_by_the_bus(
    gpus: Reading[PciGpus], expected: Reading[Expectations] | None, found: "Iterable[Trouble]"
) -> bool:
    """Whether pcie.gpus-present tells that it is missing: it does where one fell off the bus, and where there are fewer than expected."""
    if isinstance(gpus, Unread) or gpus.unlisted is not None or not gpus.gpus:
        return False
    wanted = expected.gpus if isinstance(expected, Expectations) else None
    return any(79 in trouble.codes for trouble in found) or (wanted is not None and len(gpus.gpus) < wanted)


def _hidden(gpus: Reading[PciGpus]) -> Unread | None:
    """Why the bus may not be looked at, where it may not: what is not listed may be there then."""
    unseen = gpus if isinstance(gpus, Unread) else gpus.unlisted
    return unseen if unseen is not None and unseen.why is Why.NO_PERMISSION else None


def _gone(about: AboutSubject, judge: "Judge", trouble: "Trouble") -> NotApplicable:
    words = f"it is no longer on the bus, which pcie.gpus-present tells; before that {judge.headline(trouble)}"
    return NotApplicable(about, words, judge.evidence(trouble))


# NVSwitches ---------------------------------------------------------------------------------------------------------


@check(
    SWITCHES,
    link=Link.FABRIC,
    title="No NVSwitch has reported a fatal error",
)
def switch_sxids(switches: Reading[NvSwitches], errors: GpuErrors, limits: Thresholds) -> Verdicts:
    """An NVSwitch that fails takes the NVLinks of one port, of a partition or of the whole board with it (Fabric Manager User Guide).

    Its driver writes SXids into the kernel log. Fatal ones fail while they are recent, for nothing tells whether they were cured; those
    that are not fatal, and come with every crash or reset of a GPU (12028, 20009), stay silent. Lines with Severity or Data continue an
    event. On virtual machines without the switches the host's log has them.
    """
    known = () if isinstance(switches, Unread) else switches.switches
    if errors.empty:
        yield Unknown(NODE, Why.UNREADABLE, f"{errors.where} holds no message")
    elif not known and not errors.switches:
        if isinstance(switches, NvSwitches) and switches.unlisted is None:
            yield NotApplicable(NODE, NvSwitches.NOTHING, switches.cite("listing"))
        else:
            yield _none(SWITCHES, NODE, errors)
    else:
        told = {fold.address for fold in errors.switches}
        for switch in known:
            if switch.address not in told:
                yield _none(SWITCHES, switch, errors)
        for address in sorted(told):
            folds = [fold for fold in errors.switches if fold.address == address]
            yield _of_switch(Subject(SubjectKind.NVSWITCH, address), folds, errors, limits)


def _of_switch(about: Subject, folds: list[SwitchFold], errors: GpuErrors, limits: Thresholds) -> Verdict:
    from gpudoctor.checks.xid_actions import worst
    from gpudoctor.facts.log_moments import in_words
    from gpudoctor.knowledge.nvml_remedies import also_confirming
    from gpudoctor.knowledge.sxids import sxid
    from gpudoctor.knowledge.xid_remedies import remedies_for
    from gpudoctor.knowledge.xids import BUCKETS

    known = {fold.code: sxid(fold.code, fatal=fold.fatal, branch=errors.branch_at(fold.last)) for fold in folds}
    pressing = [fold for fold in folds if fold.fatal is not False and known[fold.code].action != "IGNORE"]
    if not pressing:
        count = sum(fold.count for fold in folds)
        words = f"{_NOUNS[SWITCHES]} that asks for something {errors.span}, and {count} that ask for nothing"
        return _none(SWITCHES, about, errors, words, tuple(errors.evidence(fold.last) for fold in folds[:3]))
    pressing.sort(key=lambda fold: fold.fatal is not True)
    lead, wanted = pressing[0], worst([known[fold.code].action for fold in pressing])
    times = "" if lead.count == 1 else " twice" if lead.count == 2 else f" {lead.count} times"
    at = in_words(lead.last.at)
    links = f" on link {', '.join(map(str, lead.links[:4]))}" if lead.links else ""
    others = ", ".join(f"SXid {fold.code}" for fold in pressing[1:4])
    gpus = [at for (at, _), line in errors.swept.items() if isinstance(line, SXidLine) and line.address == about.key]
    parts = (
        f"{'fatal ' if lead.fatal else ''}SXid {lead.code}{times}{links}{f' (last {at})' if at else ''}: {known[lead.code].means}",
        f"with it {others}" if others else "",
        f"beside it NVLink errors of {', '.join(gpus[:4])}{' and more' if gpus[4:] else ''}" if gpus else "",
        f"NVIDIA: {BUCKETS.get(wanted, wanted)}",
    )
    row = f"{lead.code} {known[lead.code].name}: {known[lead.code].severity_class or 'no class'}"
    lines = dict.fromkeys(line for fold in pressing[:3] for line in (fold.first, fold.last, *fold.details))
    evidence = (*(errors.evidence(line) for line in lines), Evidence(known[lead.code].source, row))
    summary, steps = (
        "; ".join(part for part in parts if part),
        also_confirming(remedies_for(wanted, about.key), SWITCHES),
    )
    old = errors.age(lead.last) >= limits.of("xid_recent_hours") * 3600
    if old or not (lead.fatal or known[lead.code].severity_class in ("fatal", "always-fatal")):
        return Warn(about, summary, evidence, steps)
    if isinstance(errors.uptime, Unread):
        words = f"{summary}; how long ago is not known"
        return Unknown(about, errors.uptime.why, words, evidence, errors.uptime.would_need)
    return Fail(about, summary, evidence, steps, Breaks.SUBJECT)
