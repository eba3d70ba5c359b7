"""Asks what a device has several of: NVLinks, processes, MIG devices and the MIG profiles it could still hold.

Part of the NVML worker: standard library only. A list is said whole or not at all: fewer would look like all there are. In its entries
what was refused is left out.
"""

from typing import Any

from gpudoctor.knowledge.nvml_words import NVLINK_GENERATIONS, NVLINK_VERSIONS, WORDS
from gpudoctor.probes.nvml_details import ACTIVE_LINKS, values_by_id
from gpudoctor.probes.nvml_questions import ASK_OLDER
from gpudoctor.probes.nvml_readers import NOT_THERE, UNKNOWN_32, member_text, members, whole
from gpudoctor.probes.nvml_session import (
    FUNCTION_NOT_FOUND,
    NOT_FOUND,
    NOT_SUPPORTED,
    NOT_UNDERSTOOD,
    Gpu,
    Refused,
    Surprise,
    text,
)

INVALID_ARGUMENT = 2

LINK_COUNT = 91
LINK_SPEED = 164
MOST_LINKS = 36
"""NVML_NVLINK_MAX_LINKS (nvml.h 13.5)."""

NEWER_COUNTERS = {
    "recovery": 215,
    "link_recovery_failed": 214,
    "local_integrity": 211,
    "effective": 219,
    "symbol": 221,
}
"""Error counters of NVLink 5 by field id; the older ones are not supported there (nvml.h, NVML_FI_DEV_NVLINK_COUNT_*)."""

OLDER_COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}
"""nvmlNvLinkErrorCounter_t."""

PROCESS_INFO_BYTES = 24
"""sizeof(nvmlProcessInfo_t) of nvml.h; nvidia-ml-py 12.535.77 declares one of 32 bytes that only the first R535 drivers fill."""

MIG_PROFILE_NUMBERS = 0x12
"""NVML_GPU_INSTANCE_PROFILE_COUNT (nvml.h 13.5)."""

_MEBIBYTE = 1 << 20


def ask_lists(gpu: Gpu) -> None:
    """Ask for each list and say it. Raises Lost when the GPU has fallen off the bus."""
    links = nvlinks(gpu)
    gpu.links = links or []
    _say(gpu, "nvlinks", links)
    active = active_links(links)
    if active is not None:
        gpu.session.say(fields={ACTIVE_LINKS: active}, of=gpu.address)
    _say(gpu, "processes", processes(gpu))
    if gpu.fields.get("mig.current") is True:
        _say(gpu, "mig_devices", mig_devices(gpu))
        _say(gpu, "mig_profiles", mig_profiles(gpu))


def _say(gpu: Gpu, name: str, entries: list[dict[str, Any]] | None) -> None:
    if entries is not None:
        gpu.session.say(device={"pci_bus_id": gpu.address, name: entries})


def nvlinks(gpu: Gpu) -> list[dict[str, Any]] | None:
    """The NVLinks with their state; none where the GPU has no NVLink, None when nobody could tell."""
    (count,) = values_by_id(gpu, [(LINK_COUNT, 0)])
    links: list[dict[str, Any]] = []
    for link in range(MOST_LINKS if count is None else min(count, MOST_LINKS)):
        active, refused = gpu.attempt("nvmlDeviceGetNvLinkState", link, read=whole)
        if refused in (NOT_SUPPORTED, INVALID_ARGUMENT):
            break
        if refused in (FUNCTION_NOT_FOUND, NOT_UNDERSTOOD) or (refused and count is None):
            return None
        links.append(_nvlink(gpu, link, active))
    return links


def active_links(links: list[dict[str, Any]] | None) -> Any:
    """How many are active, not supported where there are none; None when some did not say."""
    if links is None or any("active" not in link for link in links):
        return None
    return sum(link["active"] for link in links) if links else NOT_THERE


def _nvlink(gpu: Gpu, link: int, active: int | None) -> dict[str, Any]:
    described: dict[str, Any] = {"link": link, **({} if active is None else {"active": active == 1})}
    raw_version = gpu.get("nvmlDeviceGetNvLinkVersion", link, read=whole)
    speed, older_speed, *counted = values_by_id(
        gpu,
        [(LINK_SPEED, link), (_older_speed_id(link), 0), *((field_id, link) for field_id in NEWER_COUNTERS.values())],
    )
    remote_type = gpu.get("nvmlDeviceGetNvLinkRemoteDeviceType", link, read=whole)
    found = {
        "megabytes_per_second": older_speed if speed is None else speed,
        "version": link_generation(raw_version, gpu.fields.get("architecture")),
        "remote_type": WORDS["nvlinks.remote_type"].get(remote_type),
        "remote_bus_id": gpu.get("nvmlDeviceGetNvLinkRemotePciInfo", link, read=lambda pci: member_text(pci, "busId")),
    }
    described.update({name: value for name, value in found.items() if value is not None})
    errors = {name: value for name, value in zip(NEWER_COUNTERS, counted, strict=True) if value is not None}
    for name, counter in OLDER_COUNTERS.items() if not errors else ():
        value = gpu.get("nvmlDeviceGetNvLinkErrorCounter", link, counter, read=whole)
        if value is not None:
            errors[name] = value
    return {**described, **({"errors": errors} if errors else {})}


def _older_speed_id(link: int) -> int:
    """NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 to _L11, and _COMMON for the links above."""
    common = 90
    return 84 + link if link < 6 else 126 + link if link < 12 else common


def link_generation(version: int | None, architecture: Any) -> int | None:
    """NVLink's generation from the number that NVML gives, which counts differently in older libraries; the architecture decides."""
    meant = NVLINK_VERSIONS.get(version or 0, ())
    expected = NVLINK_GENERATIONS.get(str(architecture))
    if expected in meant:
        return expected
    return meant[0] if len(meant) == 1 else None


def processes(gpu: Gpu) -> list[dict[str, Any]] | None:
    """The processes with a context on the GPU; None when those of one kind could not be had."""
    listed: dict[tuple[Any, ...], dict[str, Any]] = {}
    for kind, function in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute")):
        found, refused = _running(gpu, f"nvmlDeviceGet{function}RunningProcesses")
        if refused and (kind == "compute" or refused not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND)):
            return None
        for process in found:
            where = (process["pid"], process.get("gpu_instance_id"), process.get("compute_instance_id"))
            before = listed.setdefault(where, process)
            both = before.get("kind") == "compute" and kind == "graphics"
            before["kind"] = "compute+graphics" if both else kind
    return [_named(process) for process in listed.values()]


def _running(gpu: Gpu, function: str) -> tuple[list[dict[str, Any]], int]:
    try:
        gpu.session.structure("c_nvmlProcessInfo_t", PROCESS_INFO_BYTES)
    except Surprise as wrong:
        gpu.session.note(str(wrong))
        return [], NOT_UNDERSTOOD
    except Refused as unknown:
        return [], unknown.code
    refused = FUNCTION_NOT_FOUND
    for version in ("_v3", "_v2"):
        found, refused = gpu.attempt(function + version, read=lambda running: [_process(each) for each in running])
        if refused != FUNCTION_NOT_FOUND:
            return found or [], refused
    return [], refused


def _process(running: Any) -> dict[str, Any]:
    found = {
        "pid": whole(running.pid),
        "used_bytes": None if running.usedGpuMemory is None else whole(running.usedGpuMemory),
        "gpu_instance_id": _instance(running.gpuInstanceId),
        "compute_instance_id": _instance(running.computeInstanceId),
    }
    return {name: value for name, value in found.items() if value is not None}


def _instance(number: Any) -> int | None:
    """Outside MIG the id is all ones (nvml.h, nvmlProcessInfo_t)."""
    return None if number == UNKNOWN_32 else whole(number)


def _named(process: dict[str, Any]) -> dict[str, Any]:
    """With the name of its task: nvmlSystemGetProcessName reads cmdline, which can block on a stuck task's memory lock."""
    try:
        with open(f"/proc/{process['pid']}/comm", "rb") as file:
            return {**process, "name": text(file.read().rstrip(b"\n"))}
    except OSError:
        return process


def mig_devices(gpu: Gpu) -> list[dict[str, Any]] | None:
    """The MIG devices; their indices can have gaps."""
    most = gpu.get("nvmlDeviceGetMaxMigDeviceCount", read=whole)
    devices = []
    for index in range(most or 0):
        handle, refused = gpu.attempt("nvmlDeviceGetMigDeviceHandleByIndex", index, read=lambda given: given)
        if handle is not None:
            devices.append(_mig_device(gpu.part(handle), index))
        elif refused not in (NOT_FOUND, INVALID_ARGUMENT):
            return None
    return None if most is None else devices


def _mig_device(part: Gpu, index: int) -> dict[str, Any]:
    total, used = part.get("nvmlDeviceGetMemoryInfo", read=members("total", "used", read=whole)) or (None, None)
    size, sms = part.get(
        "nvmlDeviceGetAttributes_v2", read=members("memorySizeMB", "multiprocessorCount", read=whole)
    ) or (None, None)
    uncorrected, volatile, sram = 1, 0, 7
    found = {
        "uuid": part.get("nvmlDeviceGetUUID", read=text),
        "profile": _profile(part.get("nvmlDeviceGetName", read=text)),
        "gpu_instance_id": part.get("nvmlDeviceGetGpuInstanceId", read=whole),
        "compute_instance_id": part.get("nvmlDeviceGetComputeInstanceId", read=whole),
        "memory_bytes": total if size is None else size * _MEBIBYTE,
        "used_bytes": used,
        "sm_count": sms,
        "ecc_uncorrected_sram": part.get("nvmlDeviceGetMemoryErrorCounter", uncorrected, volatile, sram, read=whole),
    }
    return {"index": index, **{name: value for name, value in found.items() if value is not None}}


def _profile(name: str | None) -> str | None:
    """`1g.18gb` of "NVIDIA H200 MIG 1g.18gb" or "MIG 1g.18gb"; libraries before R470 name the GPU only."""
    _, mig, profile = (name or "").rpartition("MIG ")
    return profile if mig else None


def mig_profiles(gpu: Gpu) -> list[dict[str, Any]] | None:
    """The GPU instances that could be made, how many in all and how many now; the latter takes root."""
    profiles = []
    for profile in range(MIG_PROFILE_NUMBERS):
        found, refused = _mig_profile(gpu, profile)
        if found is not None:
            free = gpu.get("nvmlDeviceGetGpuInstanceRemainingCapacity", found["id"], read=whole)
            profiles.append({**found, **({} if free is None else {"free": free})})
        elif refused not in (NOT_SUPPORTED, INVALID_ARGUMENT):
            return None
    return profiles


def _mig_profile(gpu: Gpu, profile: int) -> tuple[dict[str, Any] | None, int]:
    refused = FUNCTION_NOT_FOUND
    for version, symbol in ((2, "nvmlDeviceGetGpuInstanceProfileInfoV"), (1, "nvmlDeviceGetGpuInstanceProfileInfo")):
        found, refused = gpu.attempt(
            "nvmlDeviceGetGpuInstanceProfileInfo", profile, version, read=_profile_info, symbol=symbol
        )
        if refused not in ASK_OLDER:
            return found, refused
    return None, refused


def _profile_info(info: Any) -> dict[str, Any]:
    name = _profile(member_text(info, "name")) if hasattr(type(info), "name") else None
    return {
        "id": whole(info.id),
        **({} if name is None else {"name": name}),
        "slices": whole(info.sliceCount),
        "memory_bytes": info.memorySizeMB * _MEBIBYTE,
        "instances": whole(info.instanceCount),
    }
