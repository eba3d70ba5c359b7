"""Whether a container would start now that failed for want of a runtime: its engine was restarted since, and has that runtime.

All three engines read their runtimes when they start; what a reload brings is not told here, nor what was written since the start.
"""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.containerd import Containerd
from gpudoctor.facts.crio import CrioConfig
from gpudoctor.facts.daemons import Daemon
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.docker import Dockers
from gpudoctor.facts.kubelet_engine import KubeletEngine
from gpudoctor.verdicts import Cited, Subject, Unread

OF_KUBELETS, OF_DOCKER = "no-handler", "unknown-runtime"
APART = 2.0
"""Seconds by which a line's time and a daemon's start, which counts from the boot's whole second, may differ."""


class _Has(Struct, frozen=True):
    """A runtime that a running engine has loaded, and what shows it."""

    subject: Subject
    daemon: Daemon
    name: str
    shows: Cited


def cured(desk: Desk, engine: str, error: str, runtime: str, at: float | None) -> Cited:
    """What shows that the engine has the runtime since a start after the failure, nothing where that is not certain."""
    if at is None or error not in (OF_KUBELETS, OF_DOCKER):
        return ()
    having = _of_docker(desk) if error == OF_DOCKER else _of_kubelet(desk)
    for one in having:
        started = one.daemon.started_at
        if (
            one.name == runtime
            and started is not None
            and at + APART < started
            and engine in ("kubelet", one.subject.key)
        ):
            return (*one.daemon.cite("started"), *one.shows)
    return ()


def _of_kubelet(desk: Desk) -> Iterator[_Has]:
    """Those of the engine that the kubelet talks to."""
    node = desk.get(KubeletEngine)
    own = None if isinstance(node, Unread) else node.own
    if own is None or own.subject is None:
        return
    if own.containerd is not None:
        yield from _of_containerd(own.containerd)
    elif own.name == "cri-o":
        yield from _of_crio(desk)


def _of_containerd(one: Containerd) -> Iterator[_Has]:
    """`changed` is empty only where every file is known to be older than the daemon."""
    if one.daemon is None or isinstance(one.cri, Unread) or one.cri.disabled or one.cri.refused or one.changed != ():
        return
    for runtime in one.cri.nvidia:
        program = one.programs.get(runtime.name)
        if runtime.type and program is not None and program.found:
            yield _Has(one.subject, one.daemon, runtime.name, (*one.evidence[:1], *program.evidence[:1]))


def _of_crio(desk: Desk) -> Iterator[_Has]:
    crio = desk.get(CrioConfig)
    if isinstance(crio, Unread) or crio.daemon is None or crio.setup is None or crio.refused is not None or crio.newer:
        return
    for runtime in crio.setup.runtimes:
        if runtime.program.found and crio.setup.files.unread is None:
            yield _Has(crio.subject, crio.daemon, runtime.handler.name, runtime.evidence)


def _of_docker(desk: Desk) -> Iterator[_Has]:
    dockers = desk.get(Dockers)
    for one in () if isinstance(dockers, Unread) else dockers.dockers:
        if one.daemon is not None and one.changed is False:
            for runtime in one.nvidia:
                if runtime.refused is not None or (runtime.program is not None and not runtime.program.found):
                    continue
                yield _Has(one.subject, one.daemon, runtime.name, (runtime.evidence,))
