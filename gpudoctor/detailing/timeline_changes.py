"""What changed on a node: its boots, packages, the driver's module, configuration files, and services that started or failed."""

import math
from collections.abc import Iterable, Iterator, Sequence

from gpudoctor.detailing.drafts import ALARMS, Citations, Draft
from gpudoctor.details import EventKind
from gpudoctor.facts.boot import STAT
from gpudoctor.facts.clock import NodeClock, instant, roughly
from gpudoctor.facts.daemons import TICKS_PER_SECOND
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.log_anchors import BOOT_WORDS
from gpudoctor.facts.log_moments import moment
from gpudoctor.facts.log_stamps import split
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.package_logs import APT_HISTORY, CREATED, LOGS, RUNFILE_LOG, Change, apt_changes, changes
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import JOURNALS, Entry, EntryType, Listing, Log, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.report import Finding
from gpudoctor.verdicts import Evidence, Unread

TOGETHER = 600.0
"""Seconds between two packages of one transaction: the module is built for every kernel behind each of the driver's."""
SAME_START = 10.0
"""Seconds within which a unit is called started after its process began, which is told already."""
STILL_RUNS = "started, and still runs"
WRITTEN = "was written last"
"""How what is said of a file ends."""
MOST_NAMES = 6
MOST_OF_A_COMMAND = 60
"""Letters of what apt was told: of a long list of packages the beginning."""
MOST_FILES = 40
MOST_JOURNALS = 8
MOST_OF_A_JOURNAL = 12
MOST_COMPARED = 2000
"""Letters of a journal's line that tell what it is, and whether it is like another."""
NEVER = (math.inf, math.inf)

_WANTED = pattern(
    r"nvidia|libnvidia|libcuda|libxnvctrl|xserver-xorg-video-nvidia|cuda-drivers|cuda-compat|kmod-nvidia|dkms|datacenter-gpu-manager|dcgm"
    r"|linux-(?:image|modules|headers|nvidia|firmware|lts|zen)|linux$|kernel(?:$|-(?:core|default|devel|modules|headers|ml|lt|uek))"
    r"|docker|containerd|cri-o|kubelet|k3s|podman|runc|crun|slurm|mlnx|doca|rdma-core|systemd$"
)
_FAMILIES = (
    ("the container toolkit", pattern(r"nvidia-container|libnvidia-container|nvidia-ctk|nvidia-docker")),
    (
        "the driver",
        pattern(
            r"nvidia|libnvidia|libcuda|libxnvctrl|xserver-xorg-video-nvidia|cuda-|kmod-nvidia|dkms|datacenter-gpu|dcgm"
        ),
    ),
    ("the kernel", pattern(r"linux|kernel")),
)
"""Of what a package is, by its name; anything else is of engines and services."""
OTHERS = "engines and services"

_FILES = (
    "/etc/docker/daemon.json",
    "/etc/containerd/config.toml",
    "/etc/crio/crio.conf",
    "/etc/nvidia-container-runtime/config.toml",
    "/var/lib/kubelet/config.yaml",
    "/etc/rancher/k3s/config.yaml",
    "/etc/rancher/rke2/config.yaml",
    "/etc/slurm/gres.conf",
    "/etc/slurm/slurm.conf",
    "/etc/slurm/cgroup.conf",
    "/etc/default/grub",
)
_FOLDERS = (
    ("/etc/cdi", pattern(r".*\.(?:yaml|json)$")),
    ("/var/run/cdi", pattern(r".*\.(?:yaml|json)$")),
    ("/etc/modprobe.d", pattern(r".*(?:nvidia|nouveau|vfio|gpu|blacklist|cuda).*\.conf$")),
    ("/etc/containerd/conf.d", pattern(r".*\.toml$")),
    ("/etc/crio/crio.conf.d", pattern(r".*")),
    ("/etc/rancher/k3s/config.yaml.d", pattern(r".*\.ya?ml$")),
    ("/etc/rancher/rke2/config.yaml.d", pattern(r".*\.ya?ml$")),
)
_CITED_BELOW = (
    "/etc/",
    "/run/cdi/",
    "/var/run/cdi/",
    "/usr/lib/",
    "/usr/lib64/",
    "/lib/",
    "/var/lib/kubelet/",
    "/usr/local/",
)
"""Where a file lies that somebody writes: not the kernel's, nor a socket's."""
_CONFIGURATION = ("/etc/", "/run/", "/var/")

# Names of processes as the kernel cuts them (proc_pid_comm(5)), of engines, NVIDIA's daemons and schedulers.
_PROGRAMS = frozenset(
    "dockerd containerd crio kubelet k3s-server k3s-agent rke2 kubelite slurmd nvidia-persiste nv-fabricmanage nvidia-imex nvlsm "
    "nv-hostengine dcgm-exporter nvidia-device- nvidia-cuda-mps nvidia-gridd nvidia-vgpu-mgr".split()
)
# What the first process of the node says of a unit (systemd, src/core/job.c and unit.c).
_UNIT = pattern(
    r"^\S.* systemd\[1\]: (.*(?:Started|Stopped|Failed to start|Failed with result|Main process exited|Scheduled restart|Reloading).*)$"
)


def boots(desk: Desk, clock: NodeClock, previous: KernelLog | None) -> Iterator[Draft]:
    """When this boot began and, as far as its log tells, the one before."""
    host, log = desk.get(Host), desk.get(KernelLog)
    kernel = host.kernel if isinstance(host, Host) and host.kernel else ""
    if previous is not None and (told := _began(previous, clock)) is not None:
        told.previous_boot = True
        yield told
    began = _began(log, clock) if isinstance(log, KernelLog) else None
    if clock.booted is not None:
        says = f"this boot began{f', Linux {kernel}' if kernel else ''}"
        yield Draft(EventKind.BOOT, says, STAT, moment=clock.booted, alike="this")
    elif began is not None:
        yield began


def _began(log: KernelLog, clock: NodeClock) -> Draft | None:
    """A kernel's first message."""
    place = log.text.find(BOOT_WORDS)
    if place < 0:
        return None
    begin = log.text.rfind("\n", 0, place) + 1
    at, message = split(log.text[begin : log.text.find("\n", place) % (len(log.text) + 1)])
    return Draft(EventKind.BOOT, " ".join(message.split()[:3]), log.where, at, alike="boot")


def packages(raw: Raw, clock: NodeClock, now: float | None, citations: Citations) -> Iterator[Draft]:
    """Packages of the driver, the kernel, engines and schedulers, those of one transaction together."""
    said = list(apt_changes(raw, _WANTED))
    for form in LOGS:
        found = list(changes(raw, form, _WANTED))
        if form is LOGS[0]:
            found = _ordered(found, said) or said
        yield from _transactions(found, clock, now, citations)
    runfile = raw.read(RUNFILE_LOG)
    for line in runfile.text.splitlines()[:40] if isinstance(runfile, TextFile) else ():
        if CREATED in line:
            at = line.partition(CREATED)[2].strip()
            draft = _draft(EventKind.PACKAGE, f"NVIDIA's installer ran ({line.strip()})", RUNFILE_LOG, at, clock, now)
            draft.cited_by(citations.findings(RUNFILE_LOG))
            yield draft


def _ordered(found: Iterable[Change], said: Iterable[Change]) -> list[Change]:
    """With the command that apt was told, where its history has the change."""
    from msgspec.structs import replace

    orders: dict[str, list[tuple[float, str]]] = {}
    for one in said:
        begun = moment(one.at)
        if begun is not None:
            orders.setdefault(one.package, []).append((begun, one.by))
    ordered = []
    for change in found:
        then = moment(change.at) or 0.0
        by = next((by for begun, by in orders.get(change.package, ()) if 0 <= then - begun <= TOGETHER * 3), "")
        ordered.append(replace(change, by=by) if by else change)
    return ordered


def _transactions(
    found: Iterable[Change], clock: NodeClock, now: float | None, citations: Citations
) -> Iterator[Draft]:
    groups: dict[tuple[str, str, str], list[Change]] = {}
    for change in found:
        key = (change.where, change.verb, family(change.package))
        group = groups.get(key, [])
        if group and not _near(group[-1], change):
            yield _transaction(group, clock, now, citations)
            group = []
        groups[key] = [*group, change] if group else [change]
    for group in groups.values():
        yield _transaction(group, clock, now, citations)


def family(package: str) -> str:
    """What a package is of."""
    return next((name for name, form in _FAMILIES if form.match(package)), OTHERS)


def _near(before: Change, change: Change) -> bool:
    one, other = moment(before.at), moment(change.at)
    return one is not None and other is not None and abs(other - one) <= TOGETHER


def _transaction(group: list[Change], clock: NodeClock, now: float | None, citations: Citations) -> Draft:
    first = group[0]
    names = list(dict.fromkeys(change.package for change in group))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    whose = family(first.package)
    versions = dict.fromkeys((change.before, change.version) for change in group)
    before, version = next(iter(versions)) if len(versions) == 1 else ("", "")
    told = f" ({before} -> {version})" if before and version else f" ({version})" if version else ""
    command = first.by if len(first.by) <= MOST_OF_A_COMMAND else f"{first.by[:MOST_OF_A_COMMAND]}\u2026"
    by = f", by {command}" if command else ""
    listed = f"{', '.join(names[:MOST_NAMES])}{more}"
    says = f"{first.verb} {names[0]}{told}{by}"
    if len(names) > 1:
        says = f"{first.verb} {len(names)} packages of {whose}{told}{by}: {listed}"
    draft = _draft(EventKind.PACKAGE, says, first.where, first.at, clock, now)
    if len(group) > 1 and group[-1].at != first.at:
        draft.last = group[-1].at
        draft.last_moment = instant(group[-1].at, zone=clock.zone)
    draft.count = len(names)
    lines = {change.line for change in group}
    for seen, findings in citations.of(first.where):
        if seen.shows in lines:
            draft.cited_by(findings)
    return draft


def _draft(kind: EventKind, says: str, where: str, at: str, clock: NodeClock, now: float | None) -> Draft:
    """An event with a time of a log that is no kernel's."""
    exact = instant(at, zone=clock.zone)
    draft = Draft(kind, says, where, at, moment=exact)
    draft.order = exact if exact is not None else roughly(at, now) or 0.0
    return draft


def files(desk: Desk, citations: Citations) -> Iterator[Draft]:
    """When configuration was written last, the module for the running kernel, and whatever file an alarm cites."""
    raw = desk.raw
    module = desk.known(ModuleFile)
    if module is not None and module.filename:
        yield from _written(raw, module.filename, citations, EventKind.PACKAGE, "the nvidia module on disk was written")
    paths = dict.fromkeys(_FILES)
    for folder, names in _FOLDERS:
        listing = raw.listing(folder)
        if isinstance(listing, Listing):
            paths |= dict.fromkeys(f"{folder}/{name}" for name in listing.names[:MOST_FILES] if names.match(name))
    cited = [
        place
        for begin in _CITED_BELOW
        for place in citations.places(begin)
        if any(finding.status in ALARMS for finding in citations.findings(place))
    ]
    paths |= dict.fromkeys(place for place in cited[:MOST_FILES] if " " not in place)
    for path in paths:
        if module is None or path != module.filename:
            kind = EventKind.CONFIGURATION if path.startswith(_CONFIGURATION) else EventKind.PACKAGE
            yield from _written(raw, path, citations, kind, f"{path} {WRITTEN}")


def _written(raw: Raw, path: str, citations: Citations, kind: EventKind, says: str) -> Iterator[Draft]:
    entry = raw.entry(path)
    if isinstance(entry, Entry) and entry.type is EntryType.LINK and path in _FILES:
        entry = raw.entry(path, follow=True)
    if isinstance(entry, Entry) and entry.type is EntryType.FILE and entry.mtime:
        draft = Draft(kind, says, path, moment=entry.mtime, order=entry.mtime)
        draft.cited_by(citations.findings(path))
        yield draft


def services(desk: Desk, clock: NodeClock, now: float | None, citations: Citations) -> Iterator[Draft]:
    """Daemons that run since some time, and what the journals that findings cite say of their units."""
    processes = desk.known(Processes)
    started: list[float] = []
    for process in processes.processes if processes is not None and clock.booted is not None else ():
        if process.comm in _PROGRAMS and process.started and not process.ended and clock.booted is not None:
            began = clock.booted + process.started / TICKS_PER_SECOND
            says = f"{process.comm} (PID {process.pid}) was {STILL_RUNS}"
            started.append(began)
            yield Draft(EventKind.SERVICE, says, f"/proc/{process.pid}/stat", moment=began, order=began)
    shown = [found for place in citations.places("journalctl ") if (found := _JOURNAL_SHOWN.match(place)) is not None]
    for found in shown[:MOST_JOURNALS]:
        place, unit = found[0], found[1]
        name = f"{JOURNALS}{unit if '.' in unit else f'{unit}.service'}.log"
        log = desk.raw.log(name)
        if isinstance(log, Log):
            for draft in _of_journal(log, place, clock, now, citations):
                seen = draft.moment is not None and any(abs(draft.moment - began) <= SAME_START for began in started)
                if not (seen and draft.says.startswith("Started ") and not draft.alarming):
                    yield draft


_JOURNAL_SHOWN = pattern(r"journalctl (?:-b )?-u ([\w@.-]{1,128})$")


def _of_journal(log: Log, where: str, clock: NodeClock, now: float | None, citations: Citations) -> Iterator[Draft]:
    lines = log.text.splitlines()[-2000:]
    citing = _citing(lines, list(citations.of(where)))
    # Of lines that say the same of other processes and containers findings cite one.
    telling = {
        _alike(split(lines[number])[1]) for number, by in citing.items() if any(one.status in ALARMS for one in by)
    }
    starts_others = _ENGINE.search(where) is not None
    drafts: list[Draft] = []
    latest: dict[str, Draft] = {}
    up = NEVER
    for number, line in enumerate(lines):
        at, message = split(line)
        up = _came_up(line, at) or up
        unit = _UNIT.match(line[:MOST_COMPARED])
        if unit is None and _alike(message) not in telling:
            continue
        draft = _draft(EventKind.SERVICE, unit[1] if unit is not None else message, where, at, clock, now)
        if draft.moment is None and clock.booted is not None and now is not None:  # the journal is this boot's
            draft.moment = instant(at, zone=clock.zone, within=(clock.booted, now))
            draft.order = draft.order if draft.moment is None else draft.moment
        draft.cited_by(citing.get(number, ()))
        before = latest.get(_alike(draft.says))
        # A unit that is started again and again says all of it each time.
        of_unit = unit is not None or not starts_others
        if before is not None and not (of_unit and _ran_between(before, draft, up)):
            before.take(draft)
        else:
            latest[_alike(draft.says)] = draft
            drafts.append(draft)
    yield from [draft for draft in drafts if draft.alarming][-MOST_OF_A_JOURNAL:]
    yield from [draft for draft in drafts if not draft.alarming][-MOST_OF_A_JOURNAL:]


def _citing(lines: Sequence[str], cited: Sequence[tuple[Evidence, list[Finding]]]) -> dict[int, list[Finding]]:
    """The findings that cite a line, by its number."""
    found = {}
    for number, line in enumerate(lines):
        by = [one for seen, findings in cited if _quotes(seen.shows, seen.at, line) for one in findings]
        if by:
            found[number] = by
    return found


def _alike(says: str) -> str:
    """What messages share that differ in numbers and ids alone."""
    return _VARIES.sub("#", says[:MOST_COMPARED])


def _came_up(line: str, at: str) -> tuple[float, float] | None:
    """When a unit came up, and from when on that means that it works: one that ends soon after each start says that it was started."""
    found, then = _CAME_UP.search(line[:MOST_COMPARED]), moment(at)
    if found is None or then is None:
        return None
    return then, then + (TOGETHER if found["started"] else 0.0)


def _ran_between(before: Draft, draft: Draft, up: tuple[float, float]) -> bool:
    """Whether a unit came up and worked between two messages: then the second is of another failure than the first."""
    last, then = moment(before.last or before.stamp), moment(draft.stamp)
    return last is not None and then is not None and last < up[0] and up[1] < then


# What such a unit says is of containers: that it came up itself says nothing of them.
_ENGINE = pattern(r" -u (?:docker|containerd|crio|kubelet|k3s|rke2|snap\.|podman)")
# systemd, src/core/job.c: a unit is started, a oneshot finished, once it is. And a guest's licence that nvidia-gridd got after all.
_CAME_UP = pattern(
    r" systemd\[1\]: (?:(?P<started>Started)|Finished) "
    r"| nvidia-gridd\[\d+\]: (?:License (?:acquired|renewed) successfully|(?:Acquired|Renewed) license)"
)
# Ids of containers and pods (64 and 12 hexadecimal digits, RFC 9562), and numbers.
_VARIES = pattern(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{12,64}\b|\d+")


def _quotes(shows: str, at: str | None, line: str) -> bool:
    """Whether words are those of a line."""
    words = shows.strip("\u2026")[:160]
    return bool(words) and words in line and (at is None or at in line)


def unread_logs(raw: Raw) -> str:
    """Why nothing is known of packages; "" where a log of theirs could be read."""
    found = [raw.read(path) for path in (*(form.path for form in LOGS), APT_HISTORY)]
    if any(isinstance(file, TextFile) for file in found):
        return ""
    unread = next((file for file in found if isinstance(file, Unread)), None)
    return "there is none of a package manager known here" if unread is None else f"{unread.where}: {unread.detail}"
