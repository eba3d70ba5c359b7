"""NVIDIA vGPU from both sides: a guest with its licence service, a host with its Virtual GPU Manager and what that says of guests.

A guest's nvidia-gridd asks for a licence, with a token of /etc/nvidia/ClientConfigToken or, before vGPU 13, from the ServerAddress of
/etc/nvidia/gridd.conf (Virtual GPU Client Licensing User Guide, "Licensing an NVIDIA vGPU on Linux"). On a host nvidia-vgpu-mgr writes for
each guest which driver it has, and refuses those that do not fit: "Incompatible Guest/Host drivers: … Disabling vGPU." (the same words in
open-gpu-kernel-modules src/nvidia/src/kernel/vgpu/rpc.c). Read 2026-11-30.
"""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.fabric_manager import is_running
from gpudoctor.facts.log_stamps import split
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_window import NodeUptime
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, Listing, Log, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread

GRIDD, MANAGER = "nvidia-gridd", "nvidia-vgpu-mgr"
TOKENS, CONF = "/etc/nvidia/ClientConfigToken", "/etc/nvidia/gridd.conf"
MODULE = "/sys/module/nvidia_vgpu_vfio"
MODE = "virtualization.mode"
GUEST, HOSTS = "vgpu", ("host_vgpu", "host_vsga")
"""nvmlGpuVirtualizationMode_t (nvml.h)."""
MOST_GUESTS = 32
LICENSED = "vgpu.licensed"
ASK = ("nvidia-smi", "-q")
GRACE_SECONDS = 20 * 60
"""Client Licensing User Guide, "Software Enforcement": from then on a guest without a licence is held back."""
_STATUS = pattern(r"License Status\s{0,64}:\s{0,8}Unlicensed \((Restricted|Unrestricted)\)")

_OF_LICENCE = pattern(r"[Ll]icense|[Tt]oken|[Ff]ail|[Ee]rror|[Ii]nvalid")
_ACQUIRED = pattern(r"License (?:acquired|renewed) successfully|Acquired license|Renewed license")
_BAD = pattern(r"[Ff]ail|[Ee]rror|[Ii]nvalid|[Ee]xpired|not found|[Uu]nable|restricted")
_REFUSED = pattern(r"Incompatible Guest/Host drivers: ([^\n]{1,200})")
_SPEAKER = pattern(r"\s{0,8}(?:\S{1,64} )?nvidia-[\w-]{1,24}(?:\[\d{1,10}\])?: ")
_WHOSE = pattern(r"#{4,16} (Guest NVIDIA Driver|vGPU Manager) Information")
_VERSION = pattern(r"Driver Version: ?(\d{3}(?:\.\d{1,3}){1,2})")
_SETTING = pattern(r"(?m)^[ \t]{0,8}(\w{1,64})[ \t]{0,8}=[ \t]{0,8}([^\n#]{0,256})$")


class Licence(Struct, frozen=True):
    """What a guest does for its licence. `tokens` are the files in its folder; `said` the last words about it, `acquired` whether they are
    good ones, and `heard` whether its log was seen at all. `held` is whether a guest
    without one is held back already, as it is from some twenty minutes after the boot on; `standing` shows it. `server` is that of
    gridd.conf, "" without one.
    """

    running: Reading[bool]
    service: Evidence
    tokens: Reading[tuple[str, ...]]
    folder: str
    server: str = ""
    said: Cited = ()
    acquired: bool = False
    heard: bool = False
    held: bool | None = None
    standing: Cited = ()


class Manager(Struct, frozen=True):
    """What a host's manager does. `version` is its own and `guests` are drivers of guests, as it wrote them since the boot; `refused` is
    what it said of guests that do not fit.
    """

    running: Reading[bool]
    service: Evidence
    version: str = ""
    guests: tuple[tuple[str, Evidence], ...] = ()
    refused: Cited = ()
    unread: Unread | None = None


class Vgpu(Fact, frozen=True):
    """`licence` is None where this is no guest, `manager` where it is no host."""

    licence: Licence | None = None
    manager: Manager | None = None
    host: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "Vgpu | Unread":
        """By NVML's word; where it says nothing, one look for the module that only hosts have."""
        nvml = desk.get(Nvml)
        devices = () if isinstance(nvml, Unread) else nvml.devices
        hosts = tuple(one.evidence(MODE) for one in devices if one.fields.get(MODE) in HOSTS)
        guest = any(one.fields.get(MODE) == GUEST for one in devices)
        if not hosts and not guest:
            module = desk.raw.entry(MODULE)
            if isinstance(nvml, Unread) and isinstance(module, Unread):
                return module
            hosts = (Evidence(MODULE, "exists"),) if isinstance(module, Entry) else ()
        return cls(
            licence=_licence(desk) if guest else None,
            manager=_manager(desk) if hosts else None,
            host=hosts,
        )


GRIDD_SERVICE = Subject(SubjectKind.SERVICE, GRIDD)
MANAGER_SERVICE = Subject(SubjectKind.SERVICE, MANAGER)


def _runs(desk: Desk, name: str) -> tuple[Reading[bool], Evidence]:
    """As a service, or in the GPU Operator's container, where it has the same name."""
    processes = desk.get(Processes)
    listed = () if isinstance(processes, Unread) else processes.processes
    found = next((one for one in listed if one.comm == name and not one.ended), None)
    if found is not None:
        return True, Evidence("processes (/proc/*/stat)", f"{name} ({found.pid}) runs")
    hidden = processes if isinstance(processes, Unread) else processes.unlisted
    if hidden is None:
        return False, Evidence("processes (/proc/*/stat)", f"no {name} runs")
    # A service without a group may still run in a container that is not seen.
    running, group = is_running(desk.raw, f"{name}.service")
    return (running, group) if running is not False else (hidden, Evidence(hidden.where, hidden.detail))


# A guest -------------------------------------------------------------------------------------------------------------


def _licence(desk: Desk) -> Licence:
    running, service = _runs(desk, GRIDD)
    settings = _settings(desk.raw)
    folder = settings.get("clientconfigtokenpath") or TOKENS
    listing = desk.raw.listing(folder)
    tokens: Reading[tuple[str, ...]] = (
        tuple(name for name in listing.names if name.endswith(".tok"))
        if isinstance(listing, Listing)
        else ()
        if isinstance(listing, Absent)
        else listing
    )
    log = desk.raw.log(f"journal/{GRIDD}.service.log")
    said = tuple(_last_words(log)) if isinstance(log, Log) else ()
    held, standing = _held(desk)
    return Licence(
        running=running,
        service=service,
        tokens=tokens,
        folder=folder,
        server=settings.get("serveraddress", ""),
        said=said,
        acquired=any(_ACQUIRED.search(one.shows) for one in said[-1:]),
        heard=isinstance(log, Log),
        held=held,
        standing=standing,
    )


def _held(desk: Desk) -> tuple[bool | None, Cited]:
    """What nvidia-smi says of a guest without a licence; NVML tells only that there is none. Where that is not told, by the time."""
    nvml = desk.get(Nvml)
    devices = () if isinstance(nvml, Unread) or nvml.failure is not None else nvml.devices
    if all(one.fields.get(LICENSED) is not False for one in devices):
        return None, ()
    output = desk.raw.command(ASK)
    told = _STATUS.search(output.stdout) if isinstance(output, CommandOutput) else None
    if told is not None:
        return told[1] == "Restricted", (Evidence(" ".join(ASK), f"License Status: Unlicensed ({told[1]})"),)
    uptime = desk.get(NodeUptime)
    if isinstance(uptime, Unread) or uptime.seconds is None:
        return None, ()
    return uptime.seconds >= GRACE_SECONDS, uptime.cite("seconds")


def _settings(raw: Raw) -> dict[str, str]:
    file = raw.read(CONF)
    found = _SETTING.findall(file.text) if isinstance(file, TextFile) else ()
    return {name.lower(): value.strip().strip('"') for name, value in found if value.strip()}


def _last_words(log: Log) -> Iterator[Evidence]:
    """What it said last of its licence, and what it said last that is bad, where that comes after."""
    told = [split(line) for line in log.text.splitlines() if _OF_LICENCE.search(line)]
    about = [one for one in told if _ACQUIRED.search(one[1]) or _BAD.search(one[1])]
    for at, message in about[-2:]:
        yield Evidence(log.where, _bare(message)[:300], at=at or None)


def _bare(message: str) -> str:
    """Without the name and PID of the program."""
    found = _SPEAKER.match(message)
    return message[found.end() :].strip() if found is not None else message.strip()


# A host --------------------------------------------------------------------------------------------------------------


def _manager(desk: Desk) -> Manager:
    running, service = _runs(desk, MANAGER)
    log = desk.raw.log(f"journal/{MANAGER}.service.log")
    if not isinstance(log, Log):
        return Manager(running, service, unread=log)
    guests: dict[str, Evidence] = {}
    refused: dict[str, Evidence] = {}
    version = whose = ""
    for line in log.text.splitlines():
        at, message = split(line)
        if (section := _WHOSE.search(message)) is not None:
            whose = section[1]
        elif (told := _VERSION.search(message)) is not None and whose:
            seen = Evidence(log.where, _bare(message)[:200], at=at or None)
            version = told[1] if whose.startswith("vGPU") else version
            guests |= {} if whose.startswith("vGPU") else {told[1]: seen}
            whose = ""
        elif (found := _REFUSED.search(message)) is not None:
            refused[found[1]] = Evidence(log.where, found[0], at=at or None)
    return Manager(running, service, version, tuple(guests.items())[:MOST_GUESTS], tuple(refused.values()))
