"""Container toolkit: names of CDI devices that somebody asks for, and the service that keeps the specification current."""

from gpudoctor.chain import Link
from gpudoctor.checks.cdi import weighed
from gpudoctor.facts.cdi_engines import CdiEngines
from gpudoctor.facts.cdi_refresh import CdiRefresh, Run
from gpudoctor.facts.cdi_requests import CdiRequest, CdiRequests, Standing
from gpudoctor.facts.cdi_specs import MANAGEMENT, CdiFile, CdiSpecs
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.gpu_specs import GPU
from gpudoctor.facts.raw import Absent, Entry
from gpudoctor.knowledge.cdi_remedies import NAMES, NO_MANAGEMENT_CLASS, RUN_BY_HAND, regenerate
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
    Unread,
    Verdict,
    Verdicts,
    Warn,
)

FOUND, REFRESH = "toolkit.cdi-devices-found", "toolkit.cdi-refresh"
_MOST = 6


@check(
    "toolkit.cdi-devices-found",
    link=Link.TOOLKIT,
    explained_by=("toolkit.cdi-specs-load", "toolkit.cdi-refresh"),
    title="What asks for CDI devices finds them",
)
def devices_found(specs: CdiSpecs, requests: CdiRequests) -> Verdicts:
    """A container names its CDI devices (nvidia.com/gpu=0); a name that no specification has is an error at its next start.

    Asked are the OCI configurations of running containers (annotations cdi.k8s.io/…, of the device plugin and the DRA driver, too), what
    dockerd keeps of its containers, and names that engines' journals tell as unresolvable. It is a remark, for it may be that workload's
    mistake: another way of naming (index or UUID), a GPU that left, the management specification, which has "all" only and is for the
    GPU Operator's own pods. A dead container that nobody restarts does not count, nor does a node on which nobody asks.
    """
    if not requests.requests:
        if requests.unseen:
            yield requests.unseen[0].about(NODE)
        else:
            yield NotApplicable(NODE, "no running container asks for CDI devices by name", specs.seen)
    for request in requests.requests:
        yield _answered(request, specs)


def _answered(request: CdiRequest, specs: CdiSpecs) -> Verdict:
    unresolved = [name for name in request.names if name not in specs.devices]
    if not unresolved:
        found = {specs.devices[name].path: specs.devices[name] for name in request.names}
        evidence = (*request.evidence, *(piece for file in found.values() for piece in file.cite("file")))
        if request.standing is Standing.REFUSED:
            return NotApplicable(
                request, f"{', '.join(request.names)}, once not found, is in a specification now", evidence
            )
        return Pass(request, f"{', '.join(request.names[:_MOST])} is in {', '.join(found)}", evidence)
    if specs.unlisted is not None:
        return specs.unlisted.about(request)
    unread = next((file.spec for file in specs.files if isinstance(file.spec, Unread)), None)
    if unread is not None:
        return unread.about(request)
    doubtful = [file for file in specs.doubtful if file.of_nvidia]
    if doubtful:
        reason = f"{unresolved[0]} may be in {doubtful[0].path}, which does not load as it was meant"
        return NotApplicable(request, reason, request.evidence)
    if request.standing is Standing.LEFT:
        return NotApplicable(
            request, f"asks for {unresolved[0]}, which is in no specification, and nobody restarts it", request.evidence
        )
    return _unresolved(request, unresolved, specs)


def _unresolved(request: CdiRequest, names: list[str], specs: CdiSpecs) -> Warn:
    kind = names[0].partition("=")[0]
    offered = [name for name in specs.devices if name.startswith(f"{kind}=")]
    files = {specs.devices[name].path: specs.devices[name] for name in offered}
    there = (
        f"of {kind} there is {', '.join(name.partition('=')[2] for name in offered[:_MOST])}"
        if offered
        else f"none is of {kind}"
    )
    when = {
        Standing.RUNS: "runs with it and would not start again",
        Standing.WANTED: "cannot start",
    }.get(request.standing, "was refused")
    what = f"asks for {', '.join(names[:_MOST])}, which no CDI specification has ({there}): {when}"
    seen = tuple(piece for file in files.values() for piece in file.cite("file")) or specs.seen
    remedies: tuple[Remedy, ...] = (NAMES,)
    if names[0].startswith(f"{MANAGEMENT}/"):
        what += "; management.nvidia.com is for the GPU Operator's own pods"
        remedies = (NO_MANAGEMENT_CLASS,)
    return Warn(request, what, (*request.evidence, *seen), remedies, cause=f"no {names[0]}")


@check(
    "toolkit.cdi-refresh",
    link=Link.TOOLKIT,
    needs={Link.DRIVER_CUDA},
    title="nvidia-cdi-refresh keeps the spec current",
)
def refresh(service: CdiRefresh, specs: Reading[CdiSpecs], engines: Reading[CdiEngines]) -> Verdicts:
    """Since toolkit 1.18 nvidia-cdi-refresh writes /var/run/cdi/nvidia.yaml at boot and after each installation of a driver.

    Where it fails, that folder, which is empty after a boot, has no specification, and engines know no nvidia.com/gpu. A drop-in with
    SuccessExitStatus= makes systemd call a failed run finished: what nvidia-ctk printed counts, and whether the file is there. Only the
    last run counts; one before the module was loaded, followed by one that worked, is how a boot goes. A service that nobody enabled,
    or that is masked, is a choice, and an older toolkit has none. Where another file has the GPUs, or every engine has CDI off and nobody
    asks for a device, a failure is a remark.
    """
    if service.unit is None:
        yield NotApplicable(service, "there is no nvidia-cdi-refresh: it comes with toolkit 1.18", service.cite("unit"))
    elif service.masked:
        yield NotApplicable(service, "it is masked", (Evidence(service.unit.where, "is a link to /dev/null"),))
    elif isinstance(service.enabled, Unread):
        yield service.enabled.about(service)
    elif not service.enabled:
        yield NotApplicable(service, "it is installed, and nobody enabled it", service.cite("unit"))
    elif service.unmet:
        yield NotApplicable(service, "it does not run here: what it waits for is missing", service.unmet)
    else:
        yield weighed(_kept(service, None if isinstance(specs, Unread) else _instead(specs)), engines)


def _instead(specs: CdiSpecs) -> CdiFile | None:
    """Another specification of NVIDIA's GPUs."""
    return next((file for file in specs.devices.values() if file.loaded is not None and file.loaded.kind == GPU), None)


def _kept(service: CdiRefresh, instead: CdiFile | None) -> Verdict:
    enabled = service.enabled if isinstance(service.enabled, tuple) else ()
    run, written = service.run, service.written
    if isinstance(written, Entry):
        file = Evidence(service.output, "exists")
        if isinstance(run, Run) and run.trouble is not None:
            return _warned(service, run.trouble, (*enabled, file))
        known = "; its last run worked" if isinstance(run, Run) and run.finished is not None else ""
        last = (run.finished,) if isinstance(run, Run) and run.finished is not None else ()
        return Pass(service, f"it is enabled, and {service.output} is there{known}", (*enabled, file, *last))
    if not isinstance(written, Absent):
        return written.about(service) if written is not None else NotApplicable(service, "what it writes is not known")
    if isinstance(run, Run) and run.trouble is not None:
        return _failed(service, run.trouble, (*enabled, written.evidence), instead)
    if isinstance(run, Run) and run.skipped is not None:
        return NotApplicable(service, "systemd skipped it: its condition was not met", (run.skipped, *enabled))
    if isinstance(run, Run) and run.finished is not None:
        what = f"its last run ended well, and {service.output} is not there: somebody took it away"
        evidence = (run.finished, written.evidence)
        return Warn(service, what, evidence, regenerate(service.output, REFRESH)[:1], cause="taken away")
    if isinstance(run, Unread):
        return run.about(service)
    return NotApplicable(service, "the journal of this boot tells of no run of it", (*enabled, written.evidence))


def _failed(service: CdiRefresh, trouble: Evidence, seen: Cited, instead: CdiFile | None) -> Warn | Fail:
    what = f"the CDI specification could not be made, and {service.output} is not there: {trouble.shows}"
    if service.tolerated:
        what += " (systemd calls that a success: SuccessExitStatus=)"
    evidence = (trouble, *seen, *service.tolerated)
    if instead is not None:
        what += f"; {instead.path} has {GPU}, and nothing keeps it current"
        return Warn(service, what, (*evidence, *instead.cite("file")), RUN_BY_HAND[:1], cause="failed")
    return Fail(service, what, evidence, RUN_BY_HAND, Breaks.SUBJECT, cause="failed")


def _warned(service: CdiRefresh, trouble: Evidence, seen: Cited) -> Warn:
    what = f"its last run failed, {service.output} is of an earlier one: {trouble.shows}"
    return Warn(service, what, (trouble, *seen, *service.tolerated), RUN_BY_HAND[:1], cause="failed")
