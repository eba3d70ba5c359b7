"""Asks what concerns the node as a whole: confidential computing, excluded GPUs, and how the GPUs are joined.

Part of the NVML worker: standard library only.
"""

from collections.abc import Callable, Sequence
from ctypes import byref
from itertools import combinations
from typing import Any

from gpudoctor.knowledge.nvml_words import P2P_STATUS, TOPOLOGY_PATHS
from gpudoctor.probes.nvml_questions import ASK_OLDER
from gpudoctor.probes.nvml_readers import TOO_NEW, flag, member_text, whole, word
from gpudoctor.probes.nvml_session import FUNCTION_NOT_FOUND, Gpu, Lost, Refused, Session, Surprise, understood

CONF_COMPUTE = ("conf_compute.environment", "conf_compute.cc_feature", "conf_compute.multi_gpu_mode")
GPUS_READY = "conf_compute.gpus_ready"


def ask_system(session: Session) -> None:
    """Ask about confidential computing and about the GPUs that the driver was told to leave out, and say it."""
    session.say(system={"fields": conf_compute(session)})
    left_out = excluded(session)
    if left_out is not None:
        session.say(system={"excluded": left_out})


def conf_compute(session: Session) -> dict[str, Any]:
    """The state of confidential computing; the older call does not know of several GPUs."""
    values = _first(session, (_settings, _state), CONF_COMPUTE)
    ready = _first(session, (_ready,), (GPUS_READY,))
    return {**values, **ready}


def _first(session: Session, ways: Sequence[Callable[[Session], list[Any]]], names: tuple[str, ...]) -> dict[str, Any]:
    refused = FUNCTION_NOT_FOUND
    for way in ways:
        try:
            return dict(zip(names, way(session), strict=True))
        except Refused as refusal:
            refused = refusal.code
            if refused not in ASK_OLDER:
                break
        except Surprise as surprise:
            session.note(str(surprise))
            return {}
    return {name: {"error": refused} for name in names}


def _settings(session: Session) -> list[Any]:
    settings = session.structure("c_nvmlSystemConfComputeSettings_v1_t", 20)
    session.fill("nvmlSystemGetConfComputeSettings", byref(settings))
    return [*_read_state(settings), word("conf_compute.multi_gpu_mode")(settings.multiGpuMode)]


def _state(session: Session) -> list[Any]:
    state = session.call("nvmlSystemGetConfComputeState")
    read: list[Any] = understood("nvmlSystemGetConfComputeState", _read_state, state)
    return [*read, TOO_NEW]


def _read_state(state: Any) -> list[Any]:
    return [word("conf_compute.environment")(state.environment), flag(state.ccFeature)]


def _ready(session: Session) -> list[Any]:
    function = "nvmlSystemGetConfComputeGpusReadyState"
    return [understood(function, flag, session.call(function))]


def excluded(session: Session) -> list[dict[str, Any]] | None:
    """The GPUs that the driver does not touch (the module's NVreg_ExcludedGpus); None when NVML could not say."""
    try:
        count = understood("nvmlGetExcludedDeviceCount", int, session.call("nvmlGetExcludedDeviceCount"))
        return [_excluded(session, index) for index in range(count)]
    except Refused:
        return None
    except Surprise as surprise:
        session.note(str(surprise))
        return None


def _excluded(session: Session, index: int) -> dict[str, Any]:
    function = "nvmlGetExcludedDeviceInfoByIndex"
    info = session.call(function, index, beside=f" of {index}")

    def read(info: Any) -> dict[str, Any]:
        # The binding calls the struct's first member `pci`, nvml.h pciInfo.
        return {"pci_bus_id": member_text(info.pci, "busId"), "uuid": member_text(info, "uuid")}

    found: dict[str, Any] = understood(function, read, info)
    return found


def ask_topology(session: Session, gpus: Sequence[Gpu]) -> None:
    """Ask how each pair of GPUs is joined and say it, once for all pairs: fewer would look like all there are."""
    known = sorted((gpu for gpu in gpus if gpu.index is not None and not gpu.lost), key=lambda gpu: gpu.index or 0)
    pairs = []
    for one, other in combinations(known, 2):
        try:
            path = path_between(one, other)
            access = peer_access(one, other) if path is not None else {}
        except Lost:
            return
        if path is None:
            return
        pairs.append(
            {"from": f"GPU{one.index}", "to": f"GPU{other.index}", "path": path, **({"p2p": access} if access else {})}
        )
    if pairs:
        session.say(system={"topology": pairs})


def path_between(one: Gpu, other: Gpu) -> str | None:
    """The pair's path as `nvidia-smi topo -m` prints it; None when NVML did not say. Raises Lost.

    NVML knows the way through PCIe only; where NVLinks join the pair, they are the path, and where both have links of which nobody
    knows where they lead, the path is not known.
    """
    level = one.get("nvmlDeviceGetTopologyCommonAncestor", other.handle, read=whole, beside=f" to {other.address}")
    joined = links_between(one, other)
    if joined:
        return f"NV{joined}"
    return None if _leads_anywhere(one) and _leads_anywhere(other) else TOPOLOGY_PATHS.get(level)


def peer_access(one: Gpu, other: Gpu) -> dict[str, str]:
    """Whether two GPUs may read and write each other's memory: NCCL asks both before it uses their NVLinks (paths.cc). Raises Lost."""
    asked = {
        name: one.get("nvmlDeviceGetP2PStatus", other.handle, index, read=whole, beside=f" to {other.address}")
        for index, name in enumerate(("read", "write"))
    }
    return {name: P2P_STATUS[status] for name, status in asked.items() if status in P2P_STATUS}


def _leads_anywhere(gpu: Gpu) -> bool:
    return any("remote_type" not in link and "remote_bus_id" not in link for link in _active(gpu))


def links_between(one: Gpu, other: Gpu) -> int:
    """How many active NVLinks join two GPUs, directly or through NVSwitches, which join all of one clique."""
    direct = [link for link in _active(one) if _same_bus_id(link.get("remote_bus_id"), other.address)]
    if direct:
        return len(direct)
    switched = [sum(link.get("remote_type") == "switch" for link in _active(gpu)) for gpu in (one, other)]
    together = all(
        one.fields.get(name) == other.fields.get(name) for name in ("fabric.cluster_uuid", "fabric.clique_id")
    )
    return min(switched) if together else 0


def _active(gpu: Gpu) -> list[dict[str, Any]]:
    return [link for link in gpu.links if link.get("active")]


def _same_bus_id(bus_id: Any, address: str) -> bool:
    """NVML writes domains with eight digits, in capitals; sysfs with four or more."""
    if not isinstance(bus_id, str):
        return False
    domain, _, rest = bus_id.lower().partition(":")
    own_domain, _, own_rest = address.lower().partition(":")
    return rest == own_rest and domain.lstrip("0") == own_domain.lstrip("0")
