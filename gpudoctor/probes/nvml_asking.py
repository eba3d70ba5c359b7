"""The order in which NVML is asked: who the GPUs are first, so that one that hangs in a detail never hides the others.

Part of the NVML worker: standard library only.
"""

from collections.abc import Sequence

from gpudoctor.probes.nvml_details import ask_details
from gpudoctor.probes.nvml_lists import ask_lists
from gpudoctor.probes.nvml_session import FUNCTION_NOT_FOUND, Gpu, Lost, Refused, Session, Surprise, text
from gpudoctor.probes.nvml_system import ask_system, ask_topology
from gpudoctor.probes.nvml_window import look_again

NO_ATTACH = 2
"""NVML_INIT_FLAG_NO_ATTACH: the GPUs that sleep are not woken."""

IDENTITY = {
    "index": "nvmlDeviceGetIndex",
    "uuid": "nvmlDeviceGetUUID",
    "name": "nvmlDeviceGetName",
    "minor": "nvmlDeviceGetMinorNumber",
    "serial": "nvmlDeviceGetSerial",
}
VERSIONS = {
    "driver_version": "nvmlSystemGetDriverVersion",
    "nvml_version": "nvmlSystemGetNVMLVersion",
    "cuda_driver_version": "nvmlSystemGetCudaDriverVersion",
}


def ask_who(session: Session, addresses: Sequence[str], attach: bool) -> list[Gpu]:
    """Start NVML and ask for versions, count, and the identity of the GPU at each address; those it has a handle for."""
    if not start(session, attach) or not count(session):
        return []
    found = [identity(session, address) for address in addresses]
    return [gpu for gpu in found if gpu is not None]


def start(session: Session, attach: bool) -> bool:
    """Initialise, and ask for versions."""
    try:
        if attach:
            _initialise(session)
        else:
            session.call("nvmlInitWithFlags", NO_ATTACH, beside=" NO_ATTACH")
    except Refused as refused:
        session.say(set={"init": refused.code})
        return False
    session.say(set={"init": 0})
    for key, function in VERSIONS.items():
        try:
            session.say(set={key: text(session.call(function))})
        except Refused:
            pass
        except Surprise as surprise:
            session.note(str(surprise))
    return True


def _initialise(session: Session) -> None:
    """The binding only knows nvmlInitWithFlags, which the oldest libraries lack."""
    try:
        session.call("nvmlInit")
    except Refused as refused:
        if refused.code != FUNCTION_NOT_FOUND:
            raise
        session.fill_directly("nvmlInit_v2")


def count(session: Session) -> bool:
    """Ask how many devices there are; whether NVML could tell."""
    try:
        session.say(set={"count": int(session.call("nvmlDeviceGetCount"))})
    except Refused as refused:
        session.say(set={"count_error": {"code": refused.code, "call": "nvmlDeviceGetCount_v2()"}})
        return False
    return True


def identity(session: Session, address: str) -> Gpu | None:
    """Who the device at a PCI address is, field by field; a field it does not have is left out. None when it has no handle."""
    session.say(device={"pci_bus_id": address})
    try:
        handle = session.call("nvmlDeviceGetHandleByPciBusId", address.encode(), about=address)
    except Refused as refused:
        _say_error(session, address, refused.code, "nvmlDeviceGetHandleByPciBusId_v2")
        return None
    gpu = Gpu(session, handle, address)
    for key, function in IDENTITY.items():
        try:
            value = text(session.call(function, handle, about=address))
        except Refused as refused:
            if key == "uuid":
                _say_error(session, address, refused.code, function)
        except Surprise as surprise:
            session.note(str(surprise))
        else:
            session.say(device={"pci_bus_id": address, key: value})
            gpu.index = value if key == "index" else gpu.index
    return gpu


def _say_error(session: Session, address: str, code: int, function: str) -> None:
    session.say(device={"pci_bus_id": address, "error": {"code": code, "call": f"{function}({address})"}})


def ask_the_rest(session: Session, gpus: Sequence[Gpu]) -> None:
    """Ask for everything else, GPU by GPU. A bug of ours in here is noted: it must not cost the answers that are out."""
    try:
        if gpus:
            ask_system(session)
        for ask in (ask_details, ask_lists):
            for gpu in gpus:
                try:
                    if not gpu.lost:
                        ask(gpu)
                except Lost:
                    gpu.lost = True
        ask_topology(session, gpus)
        look_again(gpus)
    except Exception as error:
        session.note(f"the worker failed: {type(error).__name__}: {error}")
