"""Container toolkit: CDI specs that engines can load, and that name what this node has."""

from gpudoctor.chain import Link
from gpudoctor.facts.cdi_current import CdiCurrent, SpecState
from gpudoctor.facts.cdi_engines import CdiEngine, CdiEngines
from gpudoctor.facts.cdi_spec import CdiSpec
from gpudoctor.facts.cdi_specs import FOLDERS, CdiFile, CdiSpecs
from gpudoctor.facts.cdi_validity import Refusal
from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.gpu_specs import kind_in
from gpudoctor.knowledge.cdi_remedies import (
    REFRESHED,
    correct,
    newer_engine,
    real_folder,
    regenerate,
    remove,
    without_gids,
)
from gpudoctor.knowledge.cdi_versions import ADDITIONAL_GIDS
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
)

LOAD, CURRENT = "toolkit.cdi-specs-load", "toolkit.cdi-specs-current"
SPEC = "https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md"
GIDS = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/1860"
MOST = 4
"""Of things of one kind as many are shown."""


@check(
    "toolkit.cdi-specs-load",
    link=Link.TOOLKIT,
    over=CdiSpecs,
    title="Every CDI spec loads, and no two claim a device",
)
def specs_load(specs: CdiSpecs, engines: Reading[CdiEngines]) -> Verdicts:
    """An engine skips a CDI specification that it cannot read, without a word to the user: its names are "unresolvable CDI devices".

    Reads *.json and *.yaml directly in /etc/cdi, /var/run/cdi and the folders that configurations name, as the CDI library does: one YAML
    document (JSON, too), no unknown field, no key twice, a known cdiVersion as new as what the file holds, valid names, no empty device.
    Which library an installed engine has is told by its version. A folder must not be a symbolic link. Two files of one folder that claim
    a name take it from everybody; of two folders the later wins, which is no fault. Where every engine has CDI off and nobody asks for a
    device, a fault is a remark. Easily confused with a specification that loads and is stale: toolkit.cdi-specs-current.
    """
    known = () if isinstance(engines, Unread) else engines.engines
    for file in specs.files:
        yield weighed(_loads(file, specs, known), engines)


def weighed(verdict: Verdict, engines: Reading[CdiEngines]) -> Verdict:
    """What nobody uses now breaks nothing now."""
    idle = () if isinstance(engines, Unread) else engines.idle
    if not idle or not isinstance(verdict, Fail):
        return verdict
    summary = f"{verdict.summary}; nothing uses it now, no engine here has CDI on"
    evidence = (*verdict.evidence, *idle)
    return Warn(
        verdict.subject, summary, evidence, verdict.remedies, cause=verdict.cause, references=verdict.references
    )


def _loads(file: CdiFile, specs: CdiSpecs, engines: tuple[CdiEngine, ...]) -> Verdict:
    if isinstance(file.spec, Unread):
        return file.spec.about(file)
    if not file.of_nvidia and not (isinstance(file.spec, Malformed) and not kind_in(file.text)):
        return NotApplicable(file, "it is another vendor's", file.cite("file"))
    if isinstance(file.spec, Malformed):
        place = file.spec.place.removeprefix(file.spec.where).strip()
        what = f"is skipped by every engine: {place} {file.spec.said}".replace(":  ", ": ")
        return _skipped(file, specs, what, (file.spec.evidence,)) if file.of_nvidia else _nobodys(file, specs, what)
    if file.refused is not None:
        return _skipped(file, specs, f"is skipped by every engine: {_because(file.refused)}", _seen(file, file.refused))
    if file.conflicts:
        return _conflict(file)
    blind = [engine for engine in engines if file.linked and not engine.follows_links]
    if blind:
        return _behind_link(file, blind, alone=len(blind) == len(engines))
    refusing = [(engine, refusal) for engine in engines if (refusal := engine.refuses(file.spec)) is not None]
    if refusing:
        return _too_new(file, refusing, alone=len(refusing) == len(engines))
    read_by = f"; {', '.join(str(engine.version) for engine in engines)} can read it" if engines else ""
    users = "; its mode lets only root read it" if file.only_root_reads else ""
    hidden = f"; {next(iter(file.hidden.values()))} wins over it" if file.hidden else ""
    evidence = (*file.cite("file"), *(engine.evidence for engine in engines))
    return Pass(
        file, f"loads, with {len(file.spec.devices)} devices of {file.spec.kind}{read_by}{hidden}{users}", evidence
    )


def _skipped(file: CdiFile, specs: CdiSpecs, what: str, evidence: Cited) -> Verdict:
    """Nothing is lost where another file has the same kind of devices."""
    kind = file.spec.kind if isinstance(file.spec, CdiSpec) else kind_in(file.text)
    other = next(
        (one for one in specs.files if one.loaded is not None and not one.conflicts and one.loaded.kind == kind), None
    )
    remedies = correct(file.path, kind)
    if other is None:
        return Fail(file, what, evidence, remedies, Breaks.SUBJECT, cause="does not load", references=(SPEC,))
    useless = remove(file.path, f"Take it away, if {other.path} has all that it was meant for.")
    return Warn(
        file,
        f"{what}; {other.path} has {kind}",
        (*evidence, *other.cite("file")),
        (useless, *remedies),
        cause="does not load",
    )


def _nobodys(file: CdiFile, specs: CdiSpecs, what: str) -> Verdict:
    """A file that is cut off before it says whose it is may have been NVIDIA's, unless another one is."""
    said = f"{what}; whose devices it was to have is not told"
    if any(other.loaded is not None for other in specs.of_nvidia):
        return NotApplicable(file, said, file.cite("file"))
    away = remove(file.path, "See who wrote it, and have it written anew, or take it away.")
    return Warn(file, said, file.cite("file"), (away,), cause="does not load")


def _because(refusal: Refusal) -> str:
    at = f"line {refusal.place.line} column {refusal.place.column}: " if refusal.place.line else ""
    return f"{at}{refusal.said}"


def _seen(file: CdiFile, refusal: Refusal) -> Cited:
    return (Evidence(file.path, _because(refusal)), *file.cite("file"))


def _conflict(file: CdiFile) -> Fail:
    names = list(file.conflicts)
    others = sorted({other for paths in file.conflicts.values() for other in paths})
    lost = ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
    what = f"claims {lost}, as {' and '.join(others)} in the same folder does: engines give these names to nobody"
    evidence = (*file.cite("file"), *(Evidence(other, f"claims {names[0]}") for other in others))
    spare = [path for path in (file.path, *others) if path != REFRESHED]
    keep = remove(
        max(spare),
        "Keep one of the files, the one that is written anew by itself, and take the other away.",
    )
    return Fail(file, what, evidence, (keep,), Breaks.SUBJECT, cause=f"conflict in {file.folder}", references=(SPEC,))


def _behind_link(file: CdiFile, blind: list[CdiEngine], *, alone: bool) -> Verdict:
    who = " and ".join(str(engine.version) for engine in blind)
    what = f"{who} cannot see it: {file.folder} is a symbolic link, and CDI libraries do not look behind one"
    evidence = (Evidence(file.folder, "is a symbolic link"), *file.cite("file"), *(one.evidence for one in blind))
    remedies, cause = (real_folder(file.folder),), f"{file.folder} is a link"
    return (
        Fail(file, what, evidence, remedies, Breaks.SUBJECT, cause)
        if alone
        else Warn(file, what, evidence, remedies, cause)
    )


def _too_new(file: CdiFile, refusing: list[tuple[CdiEngine, Refusal]], *, alone: bool) -> Verdict:
    engine, refusal = refusing[0]
    who = " and ".join(str(one.version) for one, _ in refusing)
    library = ".".join(map(str, engine.library))
    what = f"{who} cannot read it, its CDI library is {library}: {_because(refusal)}"
    evidence = (*_seen(file, refusal), *(one.evidence for one, _ in refusing))
    assert isinstance(file.spec, CdiSpec)
    fewer: tuple[Remedy, ...] = (without_gids(file.path, file.spec.kind),) if refusal.feature is ADDITIONAL_GIDS else ()
    remedies = (*fewer, newer_engine(engine.version.product, engine.version.package or engine.version.product))
    references = (GIDS,) if fewer else (SPEC,)
    if file.shadowed:
        what += f"; {next(iter(file.hidden.values()))} has the same devices"
    elif alone:
        return Fail(
            file, what, evidence, remedies, Breaks.SUBJECT, cause="too new for the engine", references=references
        )
    return Warn(file, what, evidence, remedies, cause="too new for the engine", references=references)


# What a spec names ---------------------------------------------------------------------------------------------------


@check(
    "toolkit.cdi-specs-current",
    link=Link.TOOLKIT,
    over=CdiSpecs,
    needs={Link.DRIVER_CUDA},
    explained_by=("toolkit.cdi-specs-load",),
    title="NVIDIA's CDI specs match the driver and GPUs",
)
def specs_current(specs: CdiSpecs, current: CdiCurrent, engines: Reading[CdiEngines]) -> Verdicts:
    """A CDI specification is a list made once: of libraries with a driver's version in their names, nodes with their numbers, and UUIDs.

    After a new driver, a swapped GPU, another MIG layout or a boot that gives nvidia-uvm another major it leads nowhere: runtimes
    refuse a mount without a source ("error mounting … no such file or directory") and a node that cannot be looked up; a node with an
    old major is made and cannot be opened. One made before /dev/nvidia-uvm was there leaves it out: nvidia-smi works, CUDA does not.
    Every path is looked at on the node as the file writes it, below a driver container's root, too. Files of their own version
    (libnvidia-egl-gbm.so.1.1.2) are no sign. A node that the driver has a device for and that is missing is told by other checks, as is
    a host whose libraries and loaded module differ. Where every engine has CDI off and nobody asks, it is a remark.
    """
    for file in specs.files:
        state = current.states.get(file.path)
        if state is not None:
            yield weighed(_current(state, current, _may_hide(file, specs)), engines)
        elif isinstance(file.spec, Unread):
            yield file.spec.about(file)
        else:
            reason = "it does not load" if file.of_nvidia else "it is another vendor's"
            yield NotApplicable(file, reason, file.cite("file"))


def _may_hide(file: CdiFile, specs: CdiSpecs) -> Unread | None:
    """Why it is not known whether a later folder has the same devices."""
    if file.folder not in FOLDERS[:-1]:
        return None
    unread = (
        one.spec
        for one in specs.files
        if one.folder in FOLDERS and one.folder != file.folder and isinstance(one.spec, Unread)
    )
    return specs.unlisted or next(unread, None)


def _current(state: SpecState, current: CdiCurrent, may_hide: Unread | None) -> Verdict:
    file, driver = state.file, current.driver
    stale = bool(state.version and driver and state.version != driver)
    told = current.cite("driver") if stale else ()
    if state.gone or state.numbers or state.misled or (stale and state.of_host):
        verdict = _broken(state, _of_driver(state, driver) if stale else "", told)
        if may_hide is None or isinstance(verdict, Warn):
            return verdict
        summary = (
            f"{verdict.summary}; whether another file wins over it is not known, {may_hide.where}: {may_hide.detail}"
        )
        return Unknown(file, may_hide.why, summary, verdict.evidence, would_need=may_hide.would_need)
    if stale:
        reason = (
            f"it has the libraries of {state.version}, as the host has; the loaded module is {driver}: "
            "the host itself is to be set right"
        )
        return NotApplicable(file, reason, (*file.cite("file"), *told))
    if state.unseen:
        first = state.unseen[0]
        summary = (
            f"{len(state.unseen)} of {state.looked} paths in it could not be looked at; {first.where}: {first.detail}"
        )
        return Unknown(file, first.why, summary, file.cite("file"), would_need=first.would_need)
    if state.uvm is not None:
        return _without_uvm(state, state.uvm)
    if state.old_mig or state.strangers or state.missing:
        return _drifted(state)
    of_driver = f" of driver {driver}" if state.version and driver else ""
    gpus = f", {state.gpus} names of GPUs are the driver's" if state.gpus else ""
    seen = (*file.cite("file"), *(current.cite("driver") if of_driver else ()))
    return Pass(file, f"all {state.looked} paths in it are here{of_driver}{gpus}", seen)


def _without_uvm(state: SpecState, uvm: Evidence) -> Warn | Fail:
    what = "it gives GPUs without /dev/nvidia-uvm, which is here: it was made before that node was, and CUDA does not start with it"
    return _told(state, what, (*state.file.cite("file"), uvm))


def _of_driver(state: SpecState, driver: str | None) -> str:
    return f"it is of driver {state.version}, the node has {driver}"


def _broken(state: SpecState, stale: str, told: Cited) -> Warn | Fail:
    """What keeps a container from starting, or gives it nodes that it cannot open."""
    parts = [stale] if stale else []
    evidence: list[Evidence] = [*state.file.cite("file"), *told]
    if state.old_mig or (not stale and any("/nvidia-caps/" in gone.path for gone in state.gone)):
        parts.append("it is of another MIG layout")
    if state.gone:
        first = state.gone[0]
        more = f", and {len(state.gone) - 1} more" if len(state.gone) > 1 else ""
        parts.append(f"{first.path} {first.what} (line {first.line}){more}")
        evidence += [piece for gone in state.gone[:MOST] for piece in gone.evidence[:1]]
    for wrong in state.numbers[:MOST]:
        major, minor = wrong.stated
        parts.append(f"it gives {wrong.path} as {major}:{minor} (line {wrong.line}), here that is {wrong.real}")
        evidence += wrong.evidence
    parts += [
        f"its {misled.name} leads to {misled.path} (line {misled.line}), the driver has it as {misled.real}"
        for misled in state.misled[:MOST]
    ]
    if state.strangers:
        parts.append(f"it names {state.strangers[0]}, which this node does not have")
    return _told(state, "; ".join(parts), tuple(evidence))


def _told(state: SpecState, what: str, evidence: Cited) -> Warn | Fail:
    file = state.file
    spec = file.loaded
    remedies = regenerate(file.path, CURRENT, kind=spec.kind if spec is not None else "")
    if file.shadowed:
        winner = next(iter(file.hidden.values()))
        away = remove(file.path, f"Take the old file away: it would count again without {winner}.")
        return Warn(file, f"{what}; {winner} wins over it", evidence, (away, *remedies), cause="stale and hidden")
    return Fail(file, what, evidence, remedies, Breaks.SUBJECT, cause="stale")


def _drifted(state: SpecState) -> Warn:
    """Nothing of it leads nowhere; only names are old, or a GPU is in no device."""
    parts = []
    if state.old_mig:
        parts.append(f"it is of another MIG layout: there is no {state.old_mig[0]}")
    if state.strangers:
        parts.append(f"it names {', '.join(state.strangers[:MOST])}, which this node does not have")
    if state.missing:
        parts.append(f"no device of it brings {', '.join(state.missing[:MOST])}")
    spec = state.file.loaded
    remedies = regenerate(state.file.path, CURRENT, kind=spec.kind if spec is not None else "")
    return Warn(state.file, "; ".join(parts), state.file.cite("file"), remedies, cause="names")
