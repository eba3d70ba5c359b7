"""NVIDIA vGPU from both sides: a guest with its licence service, a host with its Virtual GPU Manager and what that says of guests.

A guest's nvidia-gridd asks for a licence, with a token of /etc/nvidia/ClientConfigToken or, before vGPU 13, from the ServerAddress of
/etc/nvidia/gridd.conf (Virtual GPU Client Licensing User Guide, "Licensing an NVIDIA vGPU on Linux"). On a host nvidia-vgpu-mgr writes for
each guest which driver it has, and refuses those that do not fit: "Incompatible Guest/Host drivers: … Disabling vGPU." (the same words in
open-gpu-kernel-modules src/nvidia/src/kernel/vgpu/rpc.c). It has a process for each guest, and in the journal each line names its own.
Read 2026-11-30.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.cgroup_paths import GroupKind
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.fabric_manager import is_running
from gpudoctor.facts.log_stamps import split
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_window import NodeUptime
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.raw import CommandOutput, Contents, Entry, Listing, Log, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

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
_SPEAKER = pattern(r"\s{0,8}(?:\S{1,64} )?nvidia-[\w-]{1,24}(?:\[(\d{1,10})\])?: ")
_OF_GUESTS = ("Information", "Driver Version", "Incompatible")
_WHOSE = pattern(r"#{4,16} (Guest NVIDIA Driver|vGPU Manager) Information")
_VERSION = pattern(r"Driver Version: ?(\d{3}(?:\.\d{1,3}){1,2})")
_SETTING = pattern(r"(?m)^[ \t]{0,8}(\w{1,64})[ \t]{0,8}=[ \t]{0,8}([^\n#]{0,256})$")
_KEEP = r"^[ \t]*(?:ServerAddress|ClientConfigTokenPath)[ \t]*="


class Licence(Struct, frozen=True):
    """What a guest does for its licence. `tokens` are the files in its folder; `said` the last words about it, `acquired` whether they are
    good ones, and `heard` whether its log was seen at all. `held` is whether a guest without one is held back already, as it is from some
    twenty minutes after the boot on; `standing` shows it. `conf` is the path of its configuration, and `server` the one named there, "" for
    none. `contained` is whether the licence service runs in a container, in which its files are then.
    """

    running: Reading[bool]
    service: Evidence
    tokens: Reading[tuple[str, ...]]
    folder: str
    conf: str = CONF
    contained: bool = False
    server: Reading[str] = ""
    said: Cited = ()
    acquired: bool = False
    heard: bool = False
    held: bool | None = None
    standing: Cited = ()


class Guest(Struct, frozen=True):
    """A guest's driver as the manager wrote it last, "" where it did not, and what it wrote where it refused it.

    `lives` is whether the process that serves the guest is there, None where that is not known.
    """

    driver: str
    shown: Evidence
    refused: Evidence | None = None
    lives: bool | None = None


class Manager(Struct, frozen=True):
    """What a host's manager does. `version` is its own and `guests` those that it told of since the boot and that have not ended."""

    running: Reading[bool]
    service: Evidence
    version: str = ""
    guests: tuple[Guest, ...] = ()
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


MANAGER_SERVICE = Subject(SubjectKind.SERVICE, MANAGER)


def _process(desk: Desk, name: str) -> Process | None:
    processes = desk.get(Processes)
    listed = () if isinstance(processes, Unread) else processes.processes
    return next((one for one in listed if one.comm == name and not one.ended), None)


def _runs(desk: Desk, name: str) -> tuple[Reading[bool], Evidence]:
    """As a service, or in the GPU Operator's container, where it has the same name."""
    found = _process(desk, name)
    if found is not None:
        return True, Evidence("processes (/proc/*/stat)", f"{name} ({found.pid}) runs")
    processes = desk.get(Processes)
    hidden = processes if isinstance(processes, Unread) else processes.unlisted
    if hidden is None:
        return False, Evidence("processes (/proc/*/stat)", f"no {name} runs")
    # A service without a group may still run in a container that is not seen.
    running, group = is_running(desk.raw, f"{name}.service")
    return (running, group) if running is not False else (hidden, Evidence(hidden.where, hidden.detail))


# A guest -------------------------------------------------------------------------------------------------------------


def _licence(desk: Desk) -> Licence:
    running, service = _runs(desk, GRIDD)
    root = _root(desk)
    settings = _settings(desk.raw, f"{root}{CONF}")
    known: dict[str, str] = {} if isinstance(settings, Unread) else settings
    told = known.get("clientconfigtokenpath", "")
    folder = root + (told if told.startswith("/") else TOKENS)
    log = desk.raw.log(f"journal/{GRIDD}.service.log")
    said = tuple(_last_words(log)) if isinstance(log, Log) else ()
    held, standing = _held(desk)
    return Licence(
        running=running,
        service=service,
        tokens=settings if isinstance(settings, Unread) else _tokens(desk.raw, folder),
        folder=folder,
        conf=f"{root}{CONF}",
        contained=bool(root),
        server=settings if isinstance(settings, Unread) else known.get("serveraddress", ""),
        said=said,
        acquired=any(_ACQUIRED.search(one.shows) for one in said[-1:]),
        heard=isinstance(log, Log),
        held=held,
        standing=standing,
    )


def _root(desk: Desk) -> str:
    """Where the files of the licence service are: in its container, where the GPU Operator's driver container runs it."""
    process, processes = _process(desk, GRIDD), desk.get(Processes)
    if process is None or isinstance(processes, Unread) or process.cgroup < 0:
        return ""
    contained = processes.identities[process.cgroup].kind is GroupKind.CONTAINER
    return f"/proc/{process.pid}/root" if contained else ""


def _tokens(raw: Raw, folder: str) -> Reading[tuple[str, ...]]:
    # A file system that a container mounted may never answer.
    if folder.startswith("/proc/"):
        contents = raw.look_blocking((folder,), begin="")[folder]
        if isinstance(contents, Unread):
            return contents
        found = _named_tok(contents.entries) if isinstance(contents, Contents) else ()
        partial = isinstance(contents, Contents) and not contents.complete
        return Unread(Why.NOT_ANSWERED, folder, "not all of it was seen") if partial and not found else found
    listing = raw.listing(folder)
    if isinstance(listing, Unread):
        return listing
    return _named_tok(listing.names) if isinstance(listing, Listing) else ()


def _named_tok(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.endswith(".tok"))


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


def _settings(raw: Raw, path: str) -> dict[str, str] | Unread:
    file = raw.read_blocking((path,), keep=_KEEP)[path] if path.startswith("/proc/") else raw.read(path)
    if isinstance(file, Unread):
        return file
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
    told = _Told(log.where, desk.get(Processes))
    for line in log.text.splitlines():
        if any(word in line for word in _OF_GUESTS):
            told.take(line)
    return Manager(running, service, told.version, tuple(told.guests.values()))


class _Told:
    """What the manager wrote of itself and of each guest, line by line; the processes of several guests write at the same time."""

    def __init__(self, where: str, processes: Processes | Unread) -> None:
        self.version = ""
        self.guests: dict[str, Guest] = {}
        self._where = where
        listed = () if isinstance(processes, Unread) else processes.processes
        self._pids = {str(one.pid) for one in listed if not one.ended}
        self._complete = not isinstance(processes, Unread) and processes.unlisted is None
        self._whose: dict[str, str] = {}

    def take(self, line: str) -> None:
        """One line."""
        at, message = split(line)
        speaker = _SPEAKER.match(message)
        pid = (speaker[1] or "") if speaker is not None else ""
        if (section := _WHOSE.search(message)) is not None:
            self._whose = {**self._whose, pid: section[1]} if len(self._whose) < MOST_GUESTS else {pid: section[1]}
        elif (told := _VERSION.search(message)) is not None and pid in self._whose:
            if self._whose.pop(pid).startswith("vGPU"):
                self.version = told[1]
            else:
                shown = Evidence(self._where, f"guest: {_bare(message)[:200]}", at=at or None)
                self._keep(pid, Guest(told[1], shown))
        elif (found := _REFUSED.search(message)) is not None:
            shown = Evidence(self._where, found[0], at=at or None)
            before = self.guests.get(pid)
            self._keep(
                pid, Guest(before.driver, before.shown, shown) if before is not None else Guest("", shown, shown)
            )

    def _keep(self, pid: str, guest: Guest) -> None:
        """Unless its process has ended; of too many the last."""
        lives = pid in self._pids or (False if self._complete and pid else None)
        self.guests.pop(pid, None)
        if lives is not False:
            self.guests[pid] = replace(guest, lives=lives)
        if len(self.guests) > MOST_GUESTS:
            del self.guests[next(iter(self.guests))]
