"""What slurmd logged of GPUs when it was started last: in its journal, or in the file of SlurmdLogFile.

The sentences are those of SchedMD/slurm @284c3b95: src/interfaces/gres.c and gpu.c, src/plugins/gres/gpu/gres_gpu.c,
src/plugins/gpu/nvml/gpu_nvml.c, src/common/plugin.c, src/slurmd/slurmd/slurmd.c. slurmd reads gres.conf before it says that it has started.
"""

from collections.abc import Iterator, Sequence
from enum import Enum

from msgspec import Struct

from gpudoctor.facts.log_stamps import split
from gpudoctor.facts.raw import JOURNALS, CommandOutput, Log, Raw, decimal
from gpudoctor.facts.slurm_files import ConfFile
from gpudoctor.facts.slurm_gres import NodeConf
from gpudoctor.facts.slurm_hostlist import split_list
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

JOURNAL = f"{JOURNALS}slurmd.service.log"
LINES = "600"
"""So many of the end of a log file of its own are looked through."""


class Said(str, Enum):
    """What a line tells."""

    WAITING = "waiting"
    CANNOT_STAT = "cannot-stat"
    UNSOUND = "unsound"
    CORES = "cores"
    NO_CORES = "no-cores"
    NOT_BUILT = "not-built"
    NO_LIBRARY = "no-library"
    NO_PLUGIN = "no-plugin"
    NVML_FAILED = "nvml-failed"
    NO_INSTANCES = "no-instances"
    WITHOUT_FILE = "without-file"
    IGNORED = "ignored"
    MISMATCH = "mismatch"


_SENTENCES = (
    (Said.WAITING, r"Waiting for gres\.conf file (\S+)"),
    (Said.CANNOT_STAT, r"can't stat gres\.conf file (\S+?):"),
    (
        Said.UNSOUND,
        r"fatal: (?:(?!fatal: ).)*?(?:gres\.conf|GRES (?:record|data|\S+ has)|MultipleFiles|can't parse File=)",
    ),
    (Said.UNSOUND, r"fatal: (?:(?!fatal: ).)*?Some \S+ GRES in slurm\.conf"),
    (Said.UNSOUND, r"duplicate device file name \((\S+)\)"),
    (
        Said.CORES,
        r"GRES (?:autodetected core affinity|core specification) (?:(?!GRES ).)*?doesn't match socket|invalid GRES core specification",
    ),
    (Said.NO_CORES, r"Invalid GRES data for \S+ (?:Cores|CPUs)=\S+$"),
    (Said.NOT_BUILT, r"weren't able to find that lib when Slurm was configured"),
    (Said.NO_LIBRARY, r"nvml functionality, but that lib wasn't found on the system"),
    (Said.NO_PLUGIN, r"cannot create gpu context for (gpu/\w+)|specified plugin name for (gpu/\w+)"),
    (Said.NVML_FAILED, r"Failed to initialize NVML"),
    (Said.NO_INSTANCES, r"MIG mode is enabled, but no MIG devices were found"),
    (Said.WITHOUT_FILE, r"Ignoring file-less GPU (\S+)|due to lack of File specification"),
    (Said.IGNORED, r"autodetected GPUs are being ignored"),
    (Said.MISMATCH, r"has mismatching Cores or Links"),
)
_MEANS = tuple((said, pattern(form)) for said, form in _SENTENCES)
_ANY = pattern("|".join(f"(?:{form})" for _, form in _SENTENCES))
_STARTED = pattern(r"slurmd version \S+ started")
_ENDED = pattern(r"Slurmd shutdown completing|fatal: ")
_VERSION = pattern(r"slurmd version (\S+) started")
_DETECTED = pattern(
    r"GRES\[(\w+)\] Type:(\S+) Count:(\d+) Cores\((\d+)\):(\S*) +Links:(\S+) Flags:(\S*) File:(\S+) UniqueId:(\S+)"
)


class Told(Struct, frozen=True):
    """One line that tells something; `name` is the file or plugin that it names."""

    said: Said
    name: str
    evidence: Evidence


class Detected(Struct, frozen=True):
    """A GPU or MIG device as slurmd lists it (print_gres_conf in gres_common.c)."""

    name: str
    type: str
    count: int
    cores: str
    links: str
    flags: tuple[str, ...]
    files: tuple[str, ...]
    uuid: str


class SlurmdLog(Struct, frozen=True):
    """What its last start told. `alive` says that this start came to its end, `unread` why nothing could be read."""

    told: tuple[Told, ...] = ()
    detected: tuple[Detected, ...] = ()
    alive: bool = False
    where: str = ""
    unread: Unread | None = None

    def of(self, *said: Said) -> tuple[Told, ...]:
        """The lines that tell one of these."""
        return tuple(one for one in self.told if one.said in said)


def read_log(raw: Raw, conf: NodeConf, node: str) -> SlurmdLog:
    """The journal of the unit, else the end of the file that slurm.conf names."""
    path = _log_file(conf.file, node)
    if path:
        argv = ("tail", "-n", LINES, path)
        output = raw.command(argv, seconds=3.0)
        if isinstance(output, CommandOutput) and output.exit == 0:
            return parse_log(output.stdout, path)
    log = raw.log(JOURNAL)
    return parse_log(log.text, log.where) if isinstance(log, Log) else SlurmdLog(unread=log)


def _log_file(conf: ConfFile, node: str) -> str:
    """SlurmdLogFile, in which %n is the node's name and %h the host's (slurm.conf(5))."""
    found = conf.setting("slurmdlogfile")
    path = found[0].replace("%n", node).replace("%h", node) if found is not None else ""
    return path if path.startswith("/") and "%" not in path else ""


def parse_log(text: str, where: str) -> SlurmdLog:
    """The lines of the last start."""
    lines = text.splitlines()
    begin, alive = _last_start(lines)
    mine = lines[begin:]
    return SlurmdLog(
        told=tuple(_told(mine, where)),
        detected=detected_in(mine),
        alive=alive,
        where=where,
    )


def _last_start(lines: Sequence[str]) -> tuple[int, bool]:
    """Where it begins: behind the end, or the start, of the one before. A fatal line is the last of its own."""
    starts = [at for at, line in enumerate(lines) if _STARTED.search(line)]
    ends = [at for at, line in enumerate(lines) if _ENDED.search(line)]
    if starts and (not ends or ends[-1] < starts[-1]):
        before = [at for at in (*starts[:-1], *ends) if at < starts[-1]]
        return (max(before) + 1 if before else 0), True
    last = ends[-1] if ends else -1
    if last >= 0 and not any(_ANY.search(line) for line in lines[last + 1 :]):
        before = [at for at in (*starts, *ends) if at < last]
        return (max(before) + 1 if before else 0), False
    return last + 1, False


def _told(lines: Sequence[str], where: str) -> Iterator[Told]:
    for line in lines:
        if not _ANY.search(line):
            continue
        at, message = split(line)
        for said, form in _MEANS:
            if (found := form.search(line)) is not None:
                name = next((group for group in found.groups() if group), "")
                yield Told(said, name, Evidence(where, message[:300], at or None))
                break


def detected_in(lines: Sequence[str]) -> tuple[Detected, ...]:
    """The devices that slurmd lists; the same one in several lists once."""
    found: dict[tuple[str, str], Detected] = {}
    for line in lines:
        if (parts := _DETECTED.search(line)) is not None:
            one = Detected(
                name=parts[1],
                type="" if parts[2] == "(null)" else parts[2],
                count=decimal(parts[3]) or 0,
                cores=parts[5],
                links="" if parts[6] == "(null)" else parts[6],
                flags=tuple(parts[7].split(",")),
                files=() if parts[8] == "(null)" else split_list(parts[8]),
                uuid="" if parts[9] == "(null)" else parts[9],
            )
            found[parts[8], parts[9]] = one
    return tuple(found.values())
