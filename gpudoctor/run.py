"""One run: choose checks, run them over a source, and report."""

import datetime
import time
from collections.abc import Callable

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.config import Config, ConfigError, nearest
from gpudoctor.diagnosis import diagnose, report_on
from gpudoctor.engine import run_checks
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.host import Host
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Raw, SourceKind
from gpudoctor.outcome import Outcome
from gpudoctor.registry import Registry
from gpudoctor.report import Node, NodeGpu, Report, SharedGpu
from gpudoctor.verdicts import Unread


class Selection(Struct, frozen=True):
    """Which checks are reported and counted: those of the links and ids named (all when none is), without the skipped ones."""

    links: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()

    def wanted(self, registry: Registry) -> frozenset[str]:
        """The ids selected. Raises ConfigError for a name that does not exist."""
        links = tuple(link.value for link in Link)
        for link in self.links:
            if link not in links:
                raise ConfigError(f"there is no link {link!r}{nearest(link, links)}")
        for check_id in (*self.checks, *self.skips):
            if registry.get(check_id) is None:
                raise ConfigError(f"there is no check {check_id!r}{nearest(check_id, registry.ids)}")
        everything = not self.links and not self.checks
        return frozenset(
            check.id
            for check in registry
            if (everything or check.link.value in self.links or check.id in self.checks) and check.id not in self.skips
        )


def run(  # noqa: PLR0913 - what a run is made of
    raw: Raw,
    config: Config,
    registry: Registry,
    selection: Selection,
    now: datetime.datetime,
    durations: dict[str, float] | None = None,
    desk: Desk | None = None,
    active: int = 0,
    *,
    watch: Callable[[Outcome], None] | None = None,
) -> Report:
    """Run the selected checks, and those they need, over a source. `now` is the run's, or the recording's time.

    `durations` takes the seconds that reading each fact took, what it asked for in turn included. `desk` is one of the same source that
    somebody has read facts from already. `active` allows tests that load the GPUs, up to a level of `dcgmi diag`. `watch` is told of each
    check as it ends.
    """
    started = time.monotonic()
    wanted = selection.wanted(registry)
    desk = Desk(raw, config, time.monotonic) if desk is None else desk
    desk.active = active
    # Of a bug report `now` is the reader's: it tells no time of its own.
    desk.today = None if raw.kind is SourceKind.BUG_REPORT else now.date()
    if durations is not None:
        desk.durations = durations
    outcomes = run_checks(registry, desk, _with_needed(wanted, registry), now.date(), watch)
    return report_on(
        diagnose(outcomes, desk),
        wanted=wanted,
        skipped=frozenset(selection.skips),
        unread=desk.unread,
        node=_node(desk),
        config=config,
        started_at=now,
        seconds=time.monotonic() - started,
        sharing=_sharing(desk, selection),
    )


def _sharing(desk: Desk, selection: Selection) -> tuple[SharedGpu, ...]:
    """Who shares each GPU, in a run over everything, or over sharing as a whole: its checks have read what that takes."""
    if (selection.links or selection.checks) and Link.SHARING.value not in selection.links:
        return ()
    from gpudoctor.sharing import shared_gpus

    return shared_gpus(desk)


def _with_needed(wanted: frozenset[str], registry: Registry) -> frozenset[str]:
    """The wanted checks, those of the links they need, and those that may explain them."""
    if len(wanted) == len(registry):
        return wanted
    needed: set[str] = set()
    for check in registry:
        if check.id in wanted:
            needed.update(other.id for other in registry if other.link in check.needs or other.id in check.explained_by)
    return wanted if needed <= wanted else _with_needed(wanted | needed, registry)


def _node(desk: Desk) -> Node:
    """What identifies the node. NVML is quoted only when a check asked it."""
    host = desk.get(Host)
    if isinstance(host, Unread):
        host = Host(hostname=None, kernel=None, os=None, os_id=None, boot_id=None)
    module = desk.get(NvidiaModule)
    nvml = desk.known(Nvml)
    return Node(
        hostname=host.hostname,
        source=desk.raw.kind.value,
        kernel=host.kernel,
        os=host.os,
        driver_version=(module.version if isinstance(module, NvidiaModule) else None)
        or (nvml.driver_version if nvml else None),
        cuda_version=nvml.cuda_version if nvml else None,
        uid=desk.raw.uid,
        boot_id=host.boot_id,
        gpus=tuple(_gpus(desk, nvml)),
    )


def _gpus(desk: Desk, nvml: Nvml | None) -> list[NodeGpu]:
    pci, driver = desk.get(PciGpus), desk.known(DriverGpus)
    gpus = []
    for gpu in () if isinstance(pci, Unread) else pci:
        device = nvml.device(gpu.address) if nvml else None
        known = driver.gpus.get(gpu.address) if driver else None
        known = known if isinstance(known, DriverGpu) else None
        gpus.append(
            NodeGpu(
                address=gpu.address,
                uuid=(device and device.uuid) or (known and known.uuid) or None,
                name=(device and device.name) or (known and known.model) or None,
                minor=known.minor if known else None,
                index=device.index if device else None,
            )
        )
    return gpus
