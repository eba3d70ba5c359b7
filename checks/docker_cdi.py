"""Docker: can it resolve CDI devices?"""

from gpudoctor.chain import Link
from gpudoctor.checks.docker import of_each
from gpudoctor.facts.cdi_requests import NO_DRIVER, UNRESOLVABLE
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.docker import Docker, Dockers
from gpudoctor.facts.docker_answer import Told
from gpudoctor.facts.docker_places import is_rootless
from gpudoctor.facts.docker_rules import Refused
from gpudoctor.facts.gpu_specs import GPU, GpuSpecs
from gpudoctor.facts.start_failures import StartFailure, StartFailures
from gpudoctor.knowledge.docker_remedies import BY_GPUS, GENERATE_SPEC, REFRESH_SPEC, restart, switch_on_cdi
from gpudoctor.registry import check
from gpudoctor.verdicts import Action, Breaks, Fail, NotApplicable, Pass, Remedy, Unread, Verdict, Verdicts, Warn


@check(
    "toolkit.docker-cdi",
    link=Link.TOOLKIT,
    explained_by=("toolkit.docker-runtime", "toolkit.docker-loaded"),
    title="Docker can resolve CDI devices",
)
def docker_cdi(dockers: Dockers, starts: Reading[StartFailures]) -> Verdicts:
    """With CDI on, `--device nvidia.com/gpu=all` needs a spec that names NVIDIA's GPUs; without the hook `--gpus` needs it as well.

    Docker knows CDI since 25.0, where `features.cdi` of daemon.json switches it on; since 28.2 it is on unless that is false. Looks for
    NVIDIA's specs in the folders that this dockerd searches (`cdi-spec-dirs`, else /etc/cdi and /var/run/cdi), no deeper than their
    kind, and for a rootless one at whether it may read them. With the toolkit's hook or an nvidia runtime, and CDI on only by default,
    no spec is missed; with features.cdi as well, its lack is a remark. Either is a fault once the journal tells of a container that did
    not start for want of it. A container that asks a Docker with CDI off for a device gets: could not select device driver "cdi" with
    capabilities: [[]]; where its journal tells so, it is remarked. Since 29.3 "failed to discover GPU vendor from CDI" and "AMD CDI
    spec not found" are --gpus of a dockerd that found no program of the toolkit when it started: another check's matter. An
    unresolvable device of a spec that is there is another matter: that spec is stale, or malformed.
    """
    yield from of_each(dockers, lambda one: iter([_cdi(one, starts)]))


def _told(one: Docker, starts: Reading[StartFailures], error: str) -> tuple[StartFailure, ...]:
    """The failures of one kind in this dockerd's journal that are about GPUs."""
    found = () if isinstance(starts, Unread) else starts.of("docker", error)
    return tuple(
        failure
        for failure in found
        if failure.subject == one.subject and (failure.detail.startswith(f"{GPU}=") or not failure.detail)
    )


def _cdi(one: Docker, starts: Reading[StartFailures]) -> Verdict:
    if isinstance(one.settings, Unread | Refused):
        said = f"{one.path} is refused"
        return (
            one.settings.about(one) if isinstance(one.settings, Unread) else NotApplicable(one, said, one.cite("file"))
        )
    if one.cdi in (None, False):
        asked = _told(one, starts, NO_DRIVER)
        return _asked_in_vain(one, asked) if asked else NotApplicable(one, _off(one), one.evidence)
    if one.kubelet and not one.nvidia and one.asked_for_cdi is None:
        return NotApplicable(
            one, "nothing in its configuration concerns GPUs, and the kubelet runs beside it", one.evidence
        )
    if one.specs is None or isinstance(one.cdi, Unread):
        return one.cdi.about(one) if isinstance(one.cdi, Unread) else NotApplicable(one, "CDI is off", one.evidence)
    if one.specs.of(GPU):
        return _with_specs(one, one.specs)
    if one.specs.unread is not None:
        return one.specs.unread.about(one)
    return _without_specs(
        one, one.specs, _told(one, starts, UNRESOLVABLE), others=bool(one.nvidia) or one.toolkit.hook.found
    )


def _asked_in_vain(one: Docker, told: tuple[StartFailure, ...]) -> Warn:
    """It may be that container's mistake: --gpus needs no CDI."""
    knows = f"{_version(one)} knows no CDI" if one.cdi is None else "CDI is off in Docker"
    summary = f'a container asked for a CDI device, and {knows}: could not select device driver "cdi"'
    evidence = (*told[0].cite("line"), *one.evidence)
    fixes = (BY_GPUS,) if one.cdi is None else (switch_on_cdi(one), restart(one), BY_GPUS)
    return Warn(one, summary, evidence, fixes, cause="cdi-off")


def _version(one: Docker) -> str:
    return str(one.version) if one.version is not None and not isinstance(one.version, Unread) else "this Docker"


def _off(one: Docker) -> str:
    if one.cdi is None:
        return f"{_version(one)} knows no CDI"
    how = (
        "features.cdi is false"
        if one.asked_for_cdi is False
        else "cdi-spec-dirs is empty"
        if not one.cdi_folders
        else ""
    )
    said = how or f"{_version(one)} has it on only where features.cdi asks for it"
    return f'CDI is off, {said}: --device nvidia.com/gpu=… fails with could not select device driver "cdi"'


def _with_specs(one: Docker, specs: GpuSpecs) -> Verdict:
    found = specs.of(GPU)
    evidence = tuple(piece for spec in found for piece in spec.cite("kind"))
    rootless = one.daemon is not None and is_rootless(one.daemon)
    hidden = [
        spec
        for spec in found
        if rootless and spec.for_everyone is False and not spec.path.startswith(one.own_cdi_folders)
    ]
    if len(hidden) == len(found):
        summary = f"the rootless dockerd may not read {hidden[0].path}"
        fix = Remedy(
            Action.CHANGE_CONFIG,
            "Let everyone read the spec; it holds no secret.",
            run=(f"chmod a+rx {hidden[0].path.rpartition('/')[0]}", f"chmod a+r {hidden[0].path}"),
            confirm=f"sudo -u '#{one.daemon.uid if one.daemon is not None else 0}' head -n 1 {hidden[0].path}",
        )
        return Fail(one, summary, hidden[0].cite("kind", "mode"), (fix,), Breaks.SUBJECT, cause="unreadable")
    told = (one.told.evidence,) if isinstance(one.told, Told) else ()
    return Pass(one, f"CDI is on, and {found[0].path} names {GPU}", (*evidence, *told))


def _without_specs(one: Docker, specs: GpuSpecs, told: tuple[StartFailure, ...], *, others: bool) -> Verdict:
    folders = " and ".join(specs.folders)
    evidence = (*one.evidence, *specs.seen, *(piece for failure in told for piece in failure.cite("line")))
    fixes = (REFRESH_SPEC, GENERATE_SPEC)
    installed = one.toolkit.installed
    if one.asked_for_cdi or told:
        how = "features.cdi is on" if one.asked_for_cdi else "CDI is on"
        summary = f"{how}, but there is no spec of {GPU} in {folders}: --device nvidia.com/gpu=… cannot be resolved"
        if told:
            summary += f", and a container that asked for {told[0].detail or GPU} did not start"
        elif others:
            return Warn(one, summary, evidence, fixes, cause="no-spec")
    elif others:
        return NotApplicable(
            one, f"no spec of {GPU} in {folders}; GPUs come by the toolkit's hook or runtime", evidence
        )
    elif isinstance(installed, Unread):
        return installed.about(one)
    elif not installed:
        return NotApplicable(one, f"no spec of {GPU} in {folders}, and the toolkit is not installed", evidence)
    else:
        summary = (
            f"Docker gets GPUs by CDI alone, without the toolkit's hook, and there is no spec of {GPU} in {folders}"
        )
    if isinstance(one.toolkit.hook.path, Unread):
        return one.toolkit.hook.path.about(one)
    return Fail(one, summary, (*evidence, *one.toolkit.evidence), fixes, Breaks.SUBJECT, cause="no-spec")
