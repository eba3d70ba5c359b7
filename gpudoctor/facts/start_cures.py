"""Whether a container would start now that failed for want of a runtime: its engine was restarted since, and has that runtime.

All three engines read their runtimes when they start; what a reload brings is not told here, nor what was written since the start.
"""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.boot import STAT
from gpudoctor.facts.containerd import Containerd
from gpudoctor.facts.crio import CrioConfig
from gpudoctor.facts.daemons import Daemon, Daemons, Program
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.docker import Dockers
from gpudoctor.facts.kubelet_engine import KubeletEngine
from gpudoctor.facts.programs import Located
from gpudoctor.verdicts import Cited, Unread, Why

OF_KUBELETS, OF_DOCKER = "no-handler", "unknown-runtime"
APART = 2.0
"""Seconds by which a line's time and a daemon's start, which counts from the boot's whole second, may differ."""
KUBELET = "kubelet"
_SERVICES = {Program.CONTAINERD: "containerd", Program.CRIO: "cri-o"}


class _Has(Struct, frozen=True):
    """A runtime that a running engine has loaded, and what shows it; or why that is not known, without a name of any of its runtimes.

    `daemon` is None where it is not known which one it is.
    """

    service: str
    daemon: Daemon | None
    name: str
    shows: Cited | Unread


def cured(desk: Desk, engine: str, error: str, runtime: str, at: float | None) -> Cited | Unread:
    """What shows that the engine has the runtime since a start after the failure, or why it is not known; nothing where it has not.

    What a recording does not hold is no reason: then the journal's word counts.
    """
    if at is None or error not in (OF_KUBELETS, OF_DOCKER):
        return ()
    unsure: Unread | None = None
    for one in _of_docker(desk) if error == OF_DOCKER else _of_kubelet(desk):
        if one.name not in (runtime, "") or engine not in (KUBELET, one.service):
            continue
        later = _started_after(desk, one.daemon, at)
        if later is True and one.daemon is not None and not isinstance(one.shows, Unread):
            return (*one.daemon.cite("started"), *one.shows)
        for why in (later, one.shows) if later is not False else ():
            if isinstance(why, Unread) and why.why is not Why.NOT_RECORDED:
                unsure = why
    return () if unsure is None else unsure


def _started_after(desk: Desk, daemon: Daemon | None, at: float) -> bool | Unread | None:
    """None where it is not known which daemon, or when it started, and nothing hides that."""
    if daemon is not None and daemon.started_at is not None:
        return at + APART < daemon.started_at
    stat = desk.raw.read(STAT)
    return stat if isinstance(stat, Unread) else None


def _of_kubelet(desk: Desk) -> Iterator[_Has]:
    """Those of the engine that the kubelet talks to; where it is not told which that is, any may be it."""
    node, daemons = desk.get(KubeletEngine), desk.get(Daemons)
    if isinstance(node, Unread) or isinstance(node.endpoint, Unread):
        unread = node if isinstance(node, Unread) else node.endpoint
        assert isinstance(unread, Unread)
        running = () if isinstance(daemons, Unread) else daemons.of(*_SERVICES)
        yield from (_Has(_SERVICES[daemon.program], daemon, "", unread) for daemon in running)
        if isinstance(daemons, Unread):
            yield from (_Has(service, None, "", unread) for service in _SERVICES.values())
    elif node.own is not None and node.own.containerd is not None:
        yield from _of_containerd(node.own.containerd)
    elif node.own is not None and node.own.name == "cri-o":
        yield from _of_crio(desk)


def _of_containerd(one: Containerd) -> Iterator[_Has]:
    """`changed` is empty only where every file is known to be older than the daemon."""
    service = one.subject.key
    if one.daemon is None:
        return
    if isinstance(one.cri, Unread):
        yield _Has(service, one.daemon, "", one.cri)
    elif not one.cri.disabled and not one.cri.refused and one.changed == ():
        for runtime in one.cri.nvidia:
            program = one.programs.get(runtime.name)
            if runtime.type and program is not None and not program.missing:
                yield _Has(
                    service, one.daemon, runtime.name, _shown(program, (*one.evidence[:1], *program.evidence[:1]))
                )


def _of_crio(desk: Desk) -> Iterator[_Has]:
    crio = desk.get(CrioConfig)
    if isinstance(crio, Unread) or crio.daemon is None or crio.setup is None or crio.refused is not None or crio.newer:
        return
    service, unread = crio.subject.key, crio.setup.files.unread
    if unread is not None:
        yield _Has(service, crio.daemon, "", unread)
        return
    for runtime in crio.setup.runtimes:
        if not runtime.program.missing:
            yield _Has(service, crio.daemon, runtime.handler.name, _shown(runtime.program, runtime.evidence))


def _of_docker(desk: Desk) -> Iterator[_Has]:
    dockers = desk.get(Dockers)
    for one in () if isinstance(dockers, Unread) else dockers.dockers:
        service = one.subject.key
        if one.daemon is not None and isinstance(one.settings, Unread):
            yield _Has(service, one.daemon, "", one.settings)
        elif one.daemon is not None and one.changed is False:
            for runtime in one.nvidia:
                program = runtime.program
                if runtime.refused is None and (program is None or not program.missing):
                    shows = (runtime.evidence,)
                    yield _Has(service, one.daemon, runtime.name, shows if program is None else _shown(program, shows))


def _shown(program: Located, shows: Cited) -> Cited | Unread:
    return program.path if isinstance(program.path, Unread) else shows
