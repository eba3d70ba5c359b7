"""containerd: does its configuration load, does it give the kubelet an nvidia runtime, and is that what the running daemon has loaded?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.containerd import Containerd, Containerds
from gpudoctor.facts.containerd_answer import Told
from gpudoctor.facts.containerd_config import Refused
from gpudoctor.facts.containerd_cri import Cri, Declared, Runtime
from gpudoctor.facts.containerd_places import Family
from gpudoctor.facts.daemons import Daemons
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.operator_validations import OperatorValidations
from gpudoctor.knowledge.containerd_remedies import configure, correct, default_runc, import_files, install, restart
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

DOCKERS = "Docker's own containerd, which serves Docker alone"


@check(
    "toolkit.containerd-config",
    link=Link.TOOLKIT,
    over=Containerds,
    title="containerd's configuration loads as it stands",
)
def containerd_config(containerds: Containerds) -> Verdicts:
    """containerd reads its file, and what that imports, when it starts; one file that does not parse keeps the whole engine from starting.

    The files are put together as the installed release does it: 1.x takes the whole table of a plugin from the last file that has one, 2.x
    merges key by key, and each looks for the CRI plugin under its own name and converts older versions in its own way. So an nvidia
    runtime can be written down and yet be nowhere: in a drop-in that no `imports` matches (the toolkit writes conf.d/99-nvidia.toml, its
    1.18.0 config.d/99-nvidia.toml), under a plugin's name that this version ignores, or in a table that a later file replaces. It is
    confused with a runtime that was never set up, which another check tells. Docker's package switches the CRI plugin off: that is
    a fault only where the kubelet talks to this containerd.
    """
    for one in containerds.containerds:
        yield _config(one)


def _config(one: Containerd) -> Verdict:
    if one.family is Family.DOCKER:
        return NotApplicable(one, DOCKERS, one.cite("command"))
    if isinstance(one.loaded, Refused):
        return _refused(one, one.loaded)
    if isinstance(one.loaded, Unread):
        return one.loaded.about(one)
    if isinstance(one.cri, Unread):
        return one.cri.about(one)
    if one.cri.disabled and one.asked is True:
        summary = "the CRI plugin is switched off (disabled_plugins), and the kubelet talks to this containerd"
        fix = correct(one, 'Take "cri" out of disabled_plugins.')
        return Fail(one, summary, one.evidence, (fix, restart(one)), Breaks.SUBJECT, cause="cri-disabled")
    if not one.cri.disabled and (lost := one.vain or _stray(one)):
        return _lost(one, lost)
    if one.loaded is None:
        return NotApplicable(one, f"there is no {one.path}: containerd runs with what is built in", one.evidence)
    count = len(one.loaded.files)
    files = one.path if count == 1 else f"{one.path} and {count - 1} imported file{'s' if count > 2 else ''}"
    return Pass(one, f"{files} load{'s' if count == 1 else ''}", one.evidence)


def _refused(one: Containerd, refused: Refused) -> Fail:
    """A daemon that runs has loaded something else, and goes on until it is started anew."""
    running = one.daemon is not None
    summary = f"{refused.said}: containerd does not start {'again ' if running else ''}with it"
    evidence = (refused.evidence, *(one.cite("started") if running else ()))
    fix = correct(one, f"Correct {refused.place or refused.path}.")
    breaks = Breaks.NOTHING if running else Breaks.SUBJECT
    return Fail(one, summary, evidence, (fix, restart(one)), breaks, cause=refused.cause)


def _stray(one: Containerd) -> tuple[Declared, ...]:
    """Runtimes in files that are not imported, unless they are known all the same."""
    known = {} if isinstance(one.cri, Unread) else one.cri.runtimes
    return tuple(found for found in one.stray if found.name not in known)


def _lost(one: Containerd, lost: tuple[Declared, ...]) -> Verdict:
    """nvidia runtimes that are written down in vain."""
    first = lost[0]
    evidence = (
        *one.evidence,
        Evidence(first.file, f"plugins.{first.plugin!r} has runtimes.{first.name}, {first.binary}"),
    )
    if one.vain:
        summary, fix = _why_vain(one, first)
    else:
        folder = first.file.rpartition("/")[0]
        summary = f"{first.file} defines runtime {first.name!r}, but {one.path} does not import it"
        fix = import_files(one, folder)
    remedies, cause = (fix, restart(one)), "in-vain" if one.vain else "not-imported"
    if isinstance(one.asked, Unread):
        return _in_doubt(one, one.asked, summary, evidence)
    if not one.asked:
        return NotApplicable(one, f"{summary}; no kubelet talks to this containerd", evidence)
    if _serves(one) or _still_has_nvidia(one):
        return Warn(one, summary, evidence, remedies, cause=cause)
    return Fail(one, summary, evidence, remedies, Breaks.SUBJECT, cause=cause)


def _still_has_nvidia(one: Containerd) -> bool:
    """Whether the running daemon has a runtime of NVIDIA, whatever its files say by now."""
    return isinstance(one.told, Told) and any("nvidia" in binary for binary in one.told.runtimes.values())


def _in_doubt(one: Containerd, unread: Unread, summary: str, evidence: Cited) -> Unknown:
    """What is wrong only if a kubelet talks to this containerd, which is not known."""
    said = f"{summary}; whether the kubelet talks to this containerd is not known ({unread.where}: {unread.detail})"
    return Unknown(one, unread.why, said, evidence, would_need=unread.would_need)


def _why_vain(one: Containerd, first: Declared) -> tuple[str, Remedy]:
    read = "" if isinstance(one.cri, Unread) else one.cri.key
    if first.plugin == read:
        summary = f"runtime {first.name!r} of {first.file} is lost: a later file has the same plugin, whose table replaces it as a whole"
        return summary, correct(one, f"Write the whole table of {read} into one file.")
    summary = f"{first.file} defines runtime {first.name!r} under {first.plugin}, where {one.version_words} does not look with these files"
    return summary, correct(one, f"Give all files the same version, and write the runtime under {read}.")


def _serves(one: Containerd) -> bool:
    """Whether it can hand out GPUs in some way all the same."""
    if isinstance(one.cri, Unread):
        return False
    by_cdi = one.cri.cdi is True and bool(one.specs) and not isinstance(one.specs, Unread)
    return by_cdi or any("nvidia" in runtime.binary for runtime in one.cri.nvidia)


@check(
    "toolkit.containerd-loaded",
    link=Link.TOOLKIT,
    over=Containerds,
    explained_by=("toolkit.containerd-config",),
    title="The running containerd has loaded its configuration",
)
def containerd_loaded(containerds: Containerds, daemons: Reading[Daemons]) -> Verdicts:
    """containerd reads its files once, when it starts: a runtime written into them later is not there until it is restarted.

    Compares the start of the daemon with the last change of each file that it would read. Where a file is younger, the daemon itself is
    asked by `crictl info`, if that answers for this containerd's socket. Where it does not, the file has certainly not been read since:
    no signal makes containerd reload it (it handles SIGTERM, SIGINT, SIGUSR1 and SIGPIPE, and SIGHUP ends it:
    cmd/containerd/command/main_unix.go, handledSignals). What changed is not known then, so this is a warning; a file whose time was
    changed, not its content, looks the same. An nvidia runtime in a file that the kubelet's containerd does not read is another matter:
    toolkit.kubelet-engine.
    """
    for one in containerds.containerds:
        yield _loaded(one, daemons)


def _loaded(one: Containerd, daemons: Reading[Daemons]) -> Verdict:
    if one.family is Family.DOCKER:
        return NotApplicable(one, DOCKERS, one.cite("command"))
    if one.daemon is None:
        if isinstance(daemons, Unread):
            return daemons.about(one)
        return daemons.unlisted.about(one) if daemons.unlisted else NotApplicable(one, "it does not run", one.evidence)
    if isinstance(one.daemon.arguments, Unread):
        return one.daemon.arguments.about(one)
    return _judge_age(one)


def _judge_age(one: Containerd) -> Verdict:
    if isinstance(one.cri, Unread):
        return one.cri.about(one)
    if not one.cri.nvidia:
        return NotApplicable(one, "nothing in its configuration concerns GPUs", one.evidence)
    if one.asked is False:
        return NotApplicable(one, "no kubelet talks to it", one.cite("command"))
    if one.changed is None:
        return Unknown(one, Why.NOT_RECORDED, "when its files changed, or it started, is not known", one.evidence)
    if not one.changed:
        return Pass(one, "started after its files changed last", (*one.cite("started"), *one.evidence))
    return _outdated(one, one.cri, one.changed)


def _outdated(one: Containerd, cri: Cri, changed: tuple[Evidence, ...]) -> Verdict:
    evidence = (*one.cite("started"), *changed)
    if isinstance(one.told, Told):
        missing = [runtime.name for runtime in cri.nvidia if one.told.runtimes.get(runtime.name) != runtime.binary]
        evidence = (*evidence, one.told.evidence)
        if missing:
            names = ", ".join(missing)
            summary = f"the running containerd does not know runtime {names} as its files have it: they changed after it started"
            return Fail(one, summary, evidence, (restart(one),), Breaks.SUBJECT, cause="not-loaded")
        if one.told.default != cri.default:
            summary = (
                f"the running containerd still has default runtime {one.told.default!r}, its files have {cri.default!r}"
            )
            return Warn(one, summary, evidence, (restart(one),), cause="default-not-loaded")
        return Pass(one, "it has the nvidia runtimes of its files, which changed after it started", evidence)
    why = f" ({one.told.where}: {one.told.detail})" if isinstance(one.told, Unread) else ""
    summary = f"{changed[0].where} changed after containerd started: what it has loaded is not known{why}"
    return Warn(one, summary, evidence, (restart(one),), cause="changed-since")


@check(
    "toolkit.containerd-runtime",
    link=Link.TOOLKIT,
    over=Containerds,
    explained_by=("toolkit.containerd-config", "toolkit.containerd-loaded", "toolkit.kubelet-engine"),
    title="containerd's nvidia runtime exists and can be run",
)
def containerd_runtime(containerds: Containerds, row: Reading[OperatorValidations]) -> Verdicts:
    """Pods get their GPUs through a runtime that containerd's configuration names, or through CDI; one whose program is gone starts no pod.

    Judges the effective configuration: is there an nvidia runtime, has it a runtime_type, is its BinaryName an executable file, and
    is the default runtime defined. When nvidia is the default and its program is gone, which is what a removed GPU Operator leaves, no pod
    at all starts on the node. In 1.x a file that has `runtimes` replaces the built-in runc, so one with only nvidia keeps the
    whole CRI plugin from starting unless nvidia is the default. With CDI on and NVIDIA's specs there, no nvidia runtime is needed. It is
    not about `ctr` and `nerdctl`, which do not read these tables, nor about a containerd that serves only Docker. Without one, and with the
    toolkit there, pods that ask for it cannot start: certainly a fault where a device plugin is or the GPU Operator waits for it.
    """
    for one in containerds.containerds:
        yield from _runtime_verdicts(one, row)


def _runtime_verdicts(one: Containerd, row: Reading[OperatorValidations]) -> Verdicts:
    if one.family is Family.DOCKER:
        yield NotApplicable(one, DOCKERS, one.cite("command"))
    elif isinstance(one.cri, Unread):
        yield one.cri.about(one)
    elif one.cri.disabled:
        yield NotApplicable(one, "its CRI plugin is switched off: it serves only Docker", one.evidence)
    elif (broken := _default_fault(one.cri)) is not None:
        yield _cri_fault(one, one.cri, broken)
    elif one.cri.nvidia:
        yield from _each(one, one.cri)
    else:
        yield _without(one, one.cri, row)


def _default_fault(cri: Cri) -> str | None:
    """What keeps all pods from starting, whatever they ask for."""
    if cri.refused:
        return f"the CRI plugin does not start: {cri.refused}"
    if not cri.runtimes[cri.default].type:
        return f"the default runtime {cri.default!r} has no runtime_type: pods fail with container.Runtime.Name must be set"
    return None


def _cri_fault(one: Containerd, cri: Cri, summary: str) -> Verdict:
    fix = correct(
        one, f"Define runtime {cri.default or 'runc'!r} beside the others, with runtime_type, or name another default."
    )
    if one.asked is True:
        breaks = Breaks.NOTHING if one.changed else Breaks.SUBJECT
        said = f"{summary}. This stops all pods of the node{', once containerd restarts' if one.changed else ''}"
        return Fail(one, said, one.evidence, (fix, restart(one)), breaks, cause="cri-refused")
    if isinstance(one.asked, Unread):
        return _in_doubt(one, one.asked, summary, one.evidence)
    return NotApplicable(one, f"{summary}; no kubelet talks to this containerd", one.evidence)


def _each(one: Containerd, cri: Cri) -> Iterator[Verdict]:
    faults = {runtime.name: _fault(one, runtime) for runtime in cri.nvidia}
    works = any(fault is None for fault in faults.values())
    for runtime in cri.nvidia:
        fault = faults[runtime.name]
        program = one.programs.get(runtime.name)
        evidence = (*one.evidence, *(program.evidence if program is not None else ()))
        if isinstance(fault, Unread):
            yield fault.about(one)
        elif fault is not None:
            yield _broken(one, cri, runtime, fault, evidence, works=works)
        elif one.changed and not isinstance(one.told, Told):
            said = f"runtime {runtime.name!r} is in files that changed after containerd started: what it loaded is not known"
            yield Unknown(one, Why.NOT_ANSWERED, said, evidence, would_need="crictl")
        else:
            default = ", the default" if runtime.name == cri.default else ""
            yield Pass(one, f"runtime {runtime.name!r}{default}, is {runtime.binary or 'runc'}", evidence)


def _fault(one: Containerd, runtime: Runtime) -> str | Unread | None:
    """What keeps a runtime from starting containers with GPUs."""
    if not runtime.type:
        return "has no runtime_type: pods fail with container.Runtime.Name must be set"
    if runtime.is_plain:
        return None if isinstance(one.cri, Cri) and one.cri.cdi else "names no NVIDIA program: it is plain runc"
    program = one.programs.get(runtime.name)
    if program is None or program.found:
        return None
    return program.path if isinstance(program.path, Unread) else f"names {runtime.binary}, which is no executable file"


def _broken(one: Containerd, cri: Cri, runtime: Runtime, fault: str, evidence: Cited, *, works: bool) -> Verdict:
    default = runtime.name == cri.default
    summary = f"runtime {runtime.name!r} {fault}"
    if isinstance(one.asked, Unread):
        return _in_doubt(one, one.asked, summary, evidence)
    if not one.asked:
        return NotApplicable(one, f"{summary}; no kubelet talks to this containerd", evidence)
    typed = "runtime_type" in fault
    fixes = (
        [correct(one, 'Give it runtime_type = "io.containerd.runc.v2".')] if typed else [configure(one), install(one)]
    )
    if default and not typed:
        fixes.insert(0, default_runc(one))
    remedies, cause = (*fixes, restart(one)), "no-type" if typed else "program"
    if runtime.is_plain and not typed:
        return Warn(one, summary, evidence, remedies, cause="plain")
    if default or not works:
        summary += ". It is the default runtime: this stops all pods of the node" if default else ""
        breaks = Breaks.NOTHING if one.changed else Breaks.SUBJECT
        return Fail(one, summary, evidence, remedies, breaks, cause=cause)
    return Warn(one, summary, evidence, remedies, cause=cause)


def _without(one: Containerd, cri: Cri, row: Reading[OperatorValidations]) -> Verdict:
    """No nvidia runtime: in order where CDI gives the GPUs, or nobody asks for any."""
    specs = one.specs
    if cri.cdi and isinstance(specs, Unread):
        return specs.about(one)
    if cri.cdi and specs and not isinstance(specs, Unread):
        evidence = (*one.evidence, Evidence(specs[0], "exists"))
        return Pass(one, "no nvidia runtime, and none needed: CDI is on and finds NVIDIA's specs", evidence)
    if one.asked is False:
        return NotApplicable(one, "it has no nvidia runtime, and no kubelet talks to it", one.evidence)
    toolkit = one.toolkit
    if toolkit is None or toolkit.missing:
        searched = toolkit.evidence[:1] if toolkit is not None else ()
        return NotApplicable(
            one, "it has no nvidia runtime, and the toolkit is not installed", (*one.evidence, *searched)
        )
    if isinstance(toolkit.path, Unread):
        return toolkit.path.about(one)
    if isinstance(one.asked, Unread):
        return one.asked.about(one)
    return _lacking(one, cri, toolkit.evidence, row)


def _waiting(row: Reading[OperatorValidations]) -> Cited | Unread:
    """What shows that the GPU Operator waits for the runtime, or why that is not known."""
    if isinstance(row, Unread):
        return row
    waits = row.waits_for_runtime
    if isinstance(waits, Unread):
        return waits
    return row.cite("row") if waits else ()


def _lacking(one: Containerd, cri: Cri, toolkit: Cited, row: Reading[OperatorValidations]) -> Verdict:
    """The kubelet talks to it, the toolkit is installed, and the two have nothing to do with each other."""
    operator = _waiting(row)
    names = ", ".join(sorted(cri.runtimes))
    off = "CDI is off" if cri.cdi is False else "CDI finds no spec of NVIDIA"
    fails = 'pods that ask for it fail with no runtime for "nvidia" is configured'
    summary = f"{one.path} has runtimes {names}, none of NVIDIA, and {off}: {fails}"
    sockets = () if isinstance(one.plugin_sockets, Unread) else one.plugin_sockets
    told = () if isinstance(operator, Unread) else operator
    wanted = (*(Evidence(path, "exists") for path in sockets[:1]), *told)
    if not wanted and (
        unseen := next((why for why in (one.plugin_sockets, operator) if isinstance(why, Unread)), None)
    ):
        return unseen.about(one)
    evidence = (*one.evidence, *toolkit, *wanted)
    remedies = (configure(one), restart(one))
    if one.changed and isinstance(one.told, Told) and _still_has_nvidia(one):
        said = "its files have lost the nvidia runtime that the running containerd still has: it is gone at the next restart"
        return Warn(one, said, (*evidence, one.told.evidence), remedies, cause="removed")
    if one.changed and not isinstance(one.told, Told):
        said = f"{one.path} has no nvidia runtime, but changed after containerd started: what it loaded is not known"
        return Unknown(one, Why.NOT_ANSWERED, said, (*evidence, *one.changed), would_need="crictl")
    if wanted:
        return Fail(one, summary, evidence, remedies, Breaks.SUBJECT, cause="no-runtime")
    return Warn(one, summary, evidence, remedies, cause="no-runtime")
