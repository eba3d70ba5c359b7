"""When each engine last started a container that has a GPU: a failure before that is over. What cannot be seen may be such a start.

A container that is privileged, or was given nodes by hand, shows nothing of the toolkit.
"""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.boot import STAT, booted_at
from gpudoctor.facts.daemons import TICKS_PER_SECOND
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.driver import DriverGpus
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.oci_config import DockerContainer, OciConfig
from gpudoctor.facts.workload_access import gpu_minors, hidden_gpu
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.verdicts import Unread, Why

_CALLED = {
    "docker": ("docker",),
    "podman": ("podman",),
    "containerd": ("containerd", "nerdctl"),
    "cri-o": ("crio", "cri-o"),
}
"""What an engine is called by the control groups of its containers; the kubelet starts those of any."""


class HiddenStart(Struct, frozen=True):
    """A container that may have a GPU, or may have been started later than is known: by `engine`, at `at`, None where that is hidden."""

    engine: str | None
    at: float | None
    why: Unread


class Starts(Struct, frozen=True):
    """By engine the last start of a container that has a GPU and still runs, and of one that got it by the toolkit."""

    any: dict[str, float] = {}
    given: dict[str, float] = {}
    hidden: tuple[HiddenStart, ...] = ()

    def after(self, engine: str, at: float | None, *, by_hand: bool) -> bool | Unread:
        """Whether the engine started one since, or why that is not known; `by_hand` is whether one that was given nodes by hand counts."""
        names = _CALLED.get(engine)
        started = self.any if by_hand else self.given
        if at is None:
            return False
        if any(at < moment for name, moment in started.items() if names is None or name in names):
            return True
        unclear = (
            one.why
            for one in self.hidden
            if (one.engine is None or names is None or one.engine in names) and (one.at is None or at < one.at)
        )
        return next(unclear, False)

    @classmethod
    def of(cls, desk: Desk, workloads: GpuWorkloads | Unread) -> "Starts":
        """Of those that run; what a recording does not hold is not hidden."""
        if isinstance(workloads, Unread):
            return cls()
        started = cls(any={}, given={}, hidden=tuple(_hidden(desk, workloads)))
        booted = booted_at(desk.raw)
        for one in workloads:
            moment = _moment(one, booted) if one.has_gpu is True else None
            if moment is not None:
                for known in (started.any, started.given) if _by_toolkit(one) else (started.any,):
                    known[one.workload.engine] = max(known.get(one.workload.engine, 0.0), moment)
        return started


def _moment(one: GpuWorkload, booted: int | None) -> float | None:
    leading = one.workload.leading
    if booted is None or leading is None or not leading.started:
        return None
    return booted + leading.started / TICKS_PER_SECOND


def _hidden(desk: Desk, workloads: GpuWorkloads) -> Iterator[HiddenStart]:
    booted, stat = booted_at(desk.raw), desk.raw.read(STAT)
    minors, _ = gpu_minors(desk.get(DriverGpus))
    for one in workloads:
        has_gpu = one.has_gpu
        if has_gpu is False and isinstance(one.devices, Devices):
            has_gpu = hidden_gpu(one.devices, minors) or False
        why = has_gpu if isinstance(has_gpu, Unread) else stat if has_gpu and booted is None else None
        if one.workload.leading is not None and isinstance(why, Unread) and why.why is not Why.NOT_RECORDED:
            yield HiddenStart(one.workload.engine, _moment(one, booted), why)
    if workloads.unlisted is not None and workloads.unlisted.why is not Why.NOT_RECORDED:
        yield HiddenStart(None, None, workloads.unlisted)


def _by_toolkit(one: GpuWorkload) -> bool:
    """Whether it got its GPU by the toolkit or by CDI; of one whose configuration is not known that is not denied."""
    config, docker = one.workload.config, one.workload.docker
    if not isinstance(config, OciConfig):
        return True
    asked = isinstance(docker, DockerContainer) and bool(docker.requests)
    return asked or config.legacy_hook or config.edited or bool(config.requests)
