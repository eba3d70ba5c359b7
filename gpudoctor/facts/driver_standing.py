"""What is known against the loaded driver's release, and whether it holds on this node."""

import datetime
from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpudoctor.facts.capabilities import Capabilities
from gpudoctor.facts.daemons import WITH_KUBELET, Daemons
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_nodes import DRIVER_ROOT
from gpudoctor.facts.driver import DriverParameters, NvidiaModule
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, NvmlDevice
from gpudoctor.facts.nvml_library import NvmlLibraries
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.knowledge.bad_drivers import KnownBad, Scope, known_bad
from gpudoctor.knowledge.driver_branches import release_of
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

MIG = "mig.current"


class Against(Struct, frozen=True):
    """One thing known against the release: whether its condition holds here, or why that is not known, and what shows it."""

    bad: KnownBad
    holds: Reading[bool]
    evidence: Cited = ()


class DriverStanding(Fact, frozen=True):
    """`asked` is whether the configuration asks for advisories; `day` is the node's, None where it is not known."""

    asked: bool
    day: datetime.date | None
    against: tuple[Against, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "DriverStanding | Unread":
        """NVML, processes and parameters are asked only of a release that something is known against."""
        module = desk.get(NvidiaModule)
        if isinstance(module, Unread):
            return module
        release = module.version or ""
        # A release whose second number is 0 is nobody's but a developer's (580.00): it is not older than 580.65.06.
        listed = known_bad(release) if module.loaded and release_of(release)[1:2] != (0,) else ()
        against = tuple(known for one in listed if (known := _against(desk, one)) is not None)
        return cls(asked=desk.config.advisories, day=desk.today, against=against)


def _against(desk: Desk, bad: KnownBad) -> Against | None:
    """None where the driver holds no GPU of those concerned. What is certainly not so decides before what is not known."""
    gpus = desk.get(PciGpus)
    if isinstance(gpus, Unread):
        return Against(bad, gpus)
    scope = bad.scope
    # A GPU that the driver does not hold cannot suffer from it.
    held = [gpu for gpu in gpus if gpu.driver == "nvidia"]
    concerned = [gpu for gpu in held if not scope.device_ids or gpu.device_id in scope.device_ids]
    if not concerned:
        return None
    unknown: Unread | None = None
    evidence: list[Evidence] = list(concerned[0].cite("device_id") if scope.device_ids else ())
    for answer, shown in _conditions(desk, scope, concerned):
        if answer is False:
            return Against(bad, holds=False, evidence=shown)
        if isinstance(answer, Unread):
            unknown = unknown or answer
        evidence.extend(shown)
    return Against(bad, unknown if unknown is not None else True, tuple(evidence))


def _conditions(desk: Desk, scope: Scope, gpus: Sequence[PciGpu]) -> Iterator[tuple[Reading[bool], Cited]]:
    """One after the other, each with what shows it: the cheapest first."""
    if scope.parameter is not None:
        yield _parameter(desk, *scope.parameter)
    if scope.kubernetes:
        yield _kubelet(desk)
    if scope.driver_container:
        yield _driver_container(desk)
    if scope.mig or scope.mixed_mig:
        yield _mig(desk, gpus, mixed=scope.mixed_mig)


def _parameter(desk: Desk, name: str, value: str) -> tuple[Reading[bool], Cited]:
    parameters = desk.get(DriverParameters)
    if isinstance(parameters, Unread):
        return parameters, ()
    return parameters.values.get(name, "").strip('"') == value, (parameters.evidence(name),)


def _kubelet(desk: Desk) -> tuple[Reading[bool], Cited]:
    daemons = desk.get(Daemons)
    if isinstance(daemons, Unread):
        return daemons, ()
    for daemon in daemons.of(*WITH_KUBELET):
        return True, (Evidence(f"/proc/{daemon.pid}/comm", daemon.program.value),)
    return daemons.unlisted or False, ()


def _driver_container(desk: Desk) -> tuple[Reading[bool], Cited]:
    """Whether the libraries lie in a driver container's root, and nowhere for the host's own programs."""
    libraries = desk.get(NvmlLibraries)
    if isinstance(libraries, Unread):
        return libraries, ()
    if not libraries.libraries:
        return libraries.unseen or False, libraries.nowhere[:1]
    contained = all(library.path.startswith(f"{DRIVER_ROOT}/") for library in libraries.libraries)
    return contained, libraries.evidence


def _mig(desk: Desk, gpus: Sequence[PciGpu], *, mixed: bool) -> tuple[Reading[bool], Cited]:
    """Whether a GPU is divided, `mixed` beside one that is not."""
    nvml = desk.get(Nvml)
    modes: dict[bool, Evidence] = {}
    unknown = nvml if isinstance(nvml, Unread) else None
    for gpu in gpus:
        device = None if isinstance(nvml, Unread) else nvml.device(gpu.address)
        mode = _mode(device) if device is not None else Unread(Why.NOT_ANSWERED, "NVML", f"lists no {gpu.address}")
        if isinstance(mode, Unread) or device is None:
            unknown = unknown or (mode if isinstance(mode, Unread) else None)
        else:
            modes.setdefault(mode, device.evidence(MIG))
    wanted = (True, False) if mixed else (True,)
    if all(mode in modes for mode in wanted):
        return True, tuple(modes[mode] for mode in wanted)
    undivided = _undivided(desk) if unknown is not None and True not in modes else ()
    if undivided:
        return False, undivided
    return (unknown if unknown is not None else False), tuple(modes.values())


def _undivided(desk: Desk) -> Cited:
    """What shows that no GPU has a MIG instance: the driver lists a capability for each, beside those to make them (nv-caps.c)."""
    capabilities = desk.get(Capabilities)
    if isinstance(capabilities, Unread) or capabilities.unread is not None or not capabilities.capabilities:
        return ()
    divided = any(one.is_instance for one in capabilities.capabilities)
    return () if divided else capabilities.cite("all")


_NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED (nvml.h): a GPU without MIG is a whole one."""


def _mode(device: NvmlDevice) -> Reading[bool]:
    value = device.fields.get(MIG)
    if isinstance(value, FieldError) and value.error == _NOT_SUPPORTED:
        return False
    answered = device.field(MIG)
    return answered if isinstance(answered, Unread) else bool(answered)
