"""Who on the node asks for CDI devices, by name: running containers, those that dockerd keeps, and refused ones in engines' journals.

A running container was given its devices when it was started; what it asks for counts again at its next start. Sources: CDI SPEC.md
(annotations cdi.k8s.io/*, read by facts/oci_config.py); moby api/types/container HostConfig (DeviceRequests of the driver cdi).
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TypeVar

import msgspec
from msgspec import Struct

from gpudoctor.facts.cdi_specs import CdiSpecs, is_nvidia
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.docker_kept import MOST_CONTAINERS, docker_roots, is_restarted
from gpudoctor.facts.oci_config import DockerContainer, OciConfig
from gpudoctor.facts.raw import Listing, Raw, TextFile
from gpudoctor.facts.start_failures import EngineJournal, StartFailure, StartFailures
from gpudoctor.facts.workload import SHORT, Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread

UNRESOLVABLE, NO_DRIVER = "cdi-unresolvable", "cdi-not-ready"
"""The name of that error in knowledge/start_errors.py."""
_T = TypeVar("_T")


class Standing(str, Enum):
    """What a request is worth."""

    RUNS = "runs"
    WANTED = "is to be restarted"
    LEFT = "was left behind"
    REFUSED = "was refused"


class CdiRequest(Struct, frozen=True):
    """Names that somebody asked for."""

    subject: Subject
    names: tuple[str, ...]
    standing: Standing
    evidence: Cited


class CdiRequests(Fact, frozen=True):
    """All of them; `unseen` is what could hold more."""

    requests: tuple[CdiRequest, ...]
    unseen: tuple[Unread, ...] = ()

    @classmethod
    def gather(cls, desk: Desk) -> "CdiRequests | Unread":
        """What dockerd keeps of containers that do not run is looked at only where NVIDIA has specs."""
        specs, workloads = desk.get(CdiSpecs), desk.get(Workloads)
        unseen = [workloads] if isinstance(workloads, Unread) else [workloads.unlisted] if workloads.unlisted else []
        running = [] if isinstance(workloads, Unread) else list(_running(workloads))
        kept: list[CdiRequest] = []
        if isinstance(specs, CdiSpecs) and specs.of_nvidia:
            seen = {request.subject.key for request in running}
            kept = [request for request in _kept(desk) if request.subject.key not in seen]
        failures = list(_unresolved(desk, specs)) if isinstance(specs, CdiSpecs) else []
        # One that may be over is no request that is known.
        told = [_refused(failure) for failure in failures if failure.unsettled is None]
        unseen += [failure.unsettled for failure in failures if failure.unsettled is not None]
        return cls(requests=(*running, *kept, *told), unseen=tuple(unseen))


def _running(workloads: Workloads) -> Iterator[CdiRequest]:
    for one in workloads.containers:
        names, evidence = _names(one)
        if names and one.leading is not None:
            yield CdiRequest(one.subject, names, Standing.RUNS, (evidence,))


def _names(one: Workload) -> tuple[tuple[str, ...], Evidence]:
    if isinstance(one.config, OciConfig) and one.config.requests:
        names = _of_nvidia(one.config.requests)
        return names, Evidence(one.config.path, f"annotations ask for {', '.join(names)}")
    if isinstance(one.docker, DockerContainer):
        names = _of_nvidia(name for request in one.docker.requests if request.driver == "cdi" for name in request.names)
        return names, Evidence(one.docker.path, f"DeviceRequests: {', '.join(names)}")
    return (), Evidence("", "")


def _of_nvidia(names: Iterable[str]) -> tuple[str, ...]:
    """Each once; what other vendors' specs lack is not asked here."""
    return tuple(dict.fromkeys(name for name in names if is_nvidia(name.partition("/")[0])))


# dockerd -------------------------------------------------------------------------------------------------------------


class _Request(Struct, rename="pascal"):
    driver: str = ""
    device_i_ds: tuple[str, ...] | None = msgspec.field(default=None, name="DeviceIDs")


class _Policy(Struct, rename="pascal"):
    name: str = ""


class _Host(Struct, rename="pascal"):
    device_requests: tuple[_Request, ...] | None = None
    restart_policy: _Policy | None = None


class _State(Struct, rename="pascal"):
    error: str = ""
    exit_code: int = 0


class _Container(Struct, rename="pascal"):
    name: str = ""
    state: _State | None = None
    has_been_manually_stopped: bool = False


def _kept(desk: Desk) -> Iterator[CdiRequest]:
    """Containers of dockerd that do not run, or of which the process was not seen."""
    raw = desk.raw
    for root in docker_roots(desk):
        listing = raw.listing(f"{root}/containers")
        for container in listing.names[:MOST_CONTAINERS] if isinstance(listing, Listing) else ():
            folder = f"{root}/containers/{container}"
            host = _decoded(raw, f"{folder}/hostconfig.json", _Host)
            requests = host.device_requests or () if host is not None else ()
            names = _of_nvidia(name for one in requests if one.driver == "cdi" for name in one.device_i_ds or ())
            if host is not None and names:
                policy = host.restart_policy.name if host.restart_policy is not None else ""
                yield _of_docker(raw, folder, container, names, policy)


def _of_docker(raw: Raw, folder: str, container: str, names: tuple[str, ...], policy: str) -> CdiRequest:
    said = _decoded(raw, f"{folder}/config.v2.json", _Container)
    title = f"docker:{said.name.removeprefix('/')}" if said is not None and said.name else ""
    evidence = [
        Evidence(f"{folder}/hostconfig.json", f"restart policy {policy or 'no'}, DeviceRequests: {', '.join(names)}")
    ]
    if said is not None and said.state is not None and said.state.error:
        evidence.append(Evidence(f"{folder}/config.v2.json", said.state.error[:300]))
    code = said.state.exit_code if said is not None and said.state is not None else None
    by_hand = said is not None and said.has_been_manually_stopped
    standing = Standing.WANTED if is_restarted(policy, code, stopped_by_hand=by_hand) else Standing.LEFT
    return CdiRequest(Subject(SubjectKind.CONTAINER, container[:SHORT], title), names, standing, tuple(evidence))


def _decoded(raw: Raw, path: str, kind: type[_T]) -> _T | None:
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return None
    try:
        return msgspec.json.decode(file.text, type=kind)
    except (msgspec.MsgspecError, UnicodeError):
        return None


# Journals ------------------------------------------------------------------------------------------------------------


def _unresolved(desk: Desk, specs: CdiSpecs) -> Iterator[StartFailure]:
    """Names that an engine could not resolve; where NVIDIA has no spec at all that is another check's matter."""
    starts = desk.get(StartFailures) if specs.of_nvidia else None
    for journal in starts.journals.values() if isinstance(starts, StartFailures) else ():
        for failure in journal.failures if isinstance(journal, EngineJournal) else ():
            if failure.error.name == UNRESOLVABLE and failure.detail:
                yield failure


def _refused(failure: StartFailure) -> CdiRequest:
    return CdiRequest(failure.subject, (failure.detail,), Standing.REFUSED, failure.cite("line"))
