"""What several checks of MPS ask alike: who is on the GPUs beside the servers, and how a daemon is reached."""

from typing import TYPE_CHECKING

from gpudoctor.facts.desk import Reading
from gpudoctor.facts.mps import Mps, MpsDaemon
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import GpuProcess, NvmlDevice
from gpudoctor.verdicts import Unread

if TYPE_CHECKING:
    from gpudoctor.knowledge.mps_remedies import Reached


def kept_out(mps: Mps, nvml: Reading[Nvml]) -> tuple[tuple[NvmlDevice, GpuProcess], ...]:
    """Plain processes on exclusive GPUs that a daemon would serve: while they are there no server can be (nvmlComputeMode_t in nvml.h)."""
    own = {pid for one in mps.daemons for pid in (one.pid, *one.servers)}
    served = {address for one in mps.daemons for address in one.gpus}
    everywhere = any(not one.gpus for one in mps.daemons)
    found = []
    for device in () if isinstance(nvml, Unread) else nvml.devices:
        if device.address is None or not (everywhere or device.address in served):
            continue
        shared = any(one.kind == "mps" or _is_server(one, own) for one in device.processes)
        plain = [one for one in device.processes if one.kind.startswith("compute")]
        if device.fields.get("compute_mode") == "exclusive_process" and plain and not shared:
            found.append((device, plain[0]))
    return tuple(found)


def _is_server(process: GpuProcess, own: set[int]) -> bool:
    return process.pid in own or "mps-server" in (process.name or "")


def nobody_left(mps: Mps, nvml: Reading[Nvml]) -> bool:
    """Whether no process but servers is on any GPU: a fault is over then ("Memory Protection and Error Containment")."""
    devices = () if isinstance(nvml, Unread) else nvml.devices
    own = {pid for one in mps.daemons for pid in one.servers}
    on = (process for device in devices for process in device.processes if not process.kind.startswith("graphics"))
    seen = bool(devices) and all(device.lists_processes for device in devices)
    return seen and all(_is_server(process, own) for process in on)


def named(process: GpuProcess) -> str:
    """A process as a sentence has it."""
    return f"{process.name or 'a process'} (PID {process.pid})"


def reached(daemon: MpsDaemon) -> "Reached":
    """A daemon as remedies name it."""
    from gpudoctor.knowledge.mps_remedies import Reached

    pipes = daemon.pipe_directory if isinstance(daemon.pipe_directory, str) else ""
    return Reached(pipes, daemon.pid if daemon.contained else 0, daemon.servers)
