"""What NVIDIA's device plugin said in its log since it last started its plugins: its configuration, what it found, what it holds unhealthy.

Words of k8s-device-plugin @1b826acc: cmd/nvidia-device-plugin/main.go, plugin-manager.go, internal/rm/health.go, factory.go,
device_map.go, internal/plugin/server.go; those before 0.14 differ a little. Logs of pods lie in /var/log/pods/NAMESPACE_POD_UID/
CONTAINER/N.log, N counting the container's starts, in the form of the CRI (kubernetes design-proposals kubelet-cri-logging.md) or as
docker's JSON; a plugin that runs as a service speaks to the journal.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.raw import Absent, Entry, Listing, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

PODS = "/var/log/pods"
UNITS = ("nvidia-device-plugin.service", "nvidia-k8s-device-plugin.service")
"""What the plugin is called where it runs as a service of the node; the second is Bottlerocket's."""
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system")
MOST_PODS = 32
MOST_SAID = 6
"""Lines that are kept of what went wrong."""

_POD = pattern(r"[^_]+_([^_]*device-plugin[^_]*)_([0-9a-f-]{8,})")
_NOT_IT = pattern(r"(?:\A|[-.])(?:mps-control|amd(?:gpu)?|intel|sriov|rdma|efa)(?:[-.]|\Z)")
"""Words in the names of plugins for other devices, and of the daemon beside NVIDIA's: whole words, a pod's UID may hold any of them."""
_BESIDE = ("init", "sidecar", "config", "validation")
_CRI = pattern(r"(\d{4}-\d\d-\d\dT\S+) (?:stdout|stderr) ([FP])(?::\S+)? ?(.*)")
_JOURNAL = pattern(r"(\S+) \S+ [\w.@-]{1,64}\[\d+\]: ?(.*)")
_STARTS = pattern(r"Starting Plugins\.|Retr(?:ie|ei)ving plugins\.|Starting NVIDIA Device Plugin")
_CONFIG = "Running with config:"
_NOTHING = pattern(r"No devices found\. Waiting indefinitely")
_ENDED = pattern(
    r"error starting plugins: |Incompatible (?:strategy|platform) detected|repeatedly crashed recently\. Quitting"
)
_SERVES = pattern(r"Starting to serve '([^']+)' on ")
_REGISTERED = pattern(r"Registered device plugin for '([^']+)' with Kubelet")
_WHY = pattern(
    r"error starting plugins: |[Ff]ailed to init|nvml init failed|could not load NVML library|Incompatible (?:strategy|platform) detected|"
    r"Detected (?:platform: unknown|non-\w+ platform)|Failed to start plugin: |has no MIG devices configured|unable to "
)
_XID = pattern(r"Xid=(\d{1,6}) on Device=([\w:./-]+?)[;,.]?(?: |$)")
_MARKED = pattern(r"'[^']*' device marked unhealthy: ([\w:./-]+)|Marking device ([\w:./-]+) as unhealthy")
_ALL = pattern(r"[Mm]arking all devices as unhealthy")
_PREFIX = pattern(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\] ")


class Mark(Struct, frozen=True):
    """A device that the plugin took out, and for which Xid where it was for one; of all devices it says `device` "" ."""

    device: str
    xid: int | None
    evidence: Evidence


class PluginLog(Struct, frozen=True):
    """What it said since its plugins were started last.

    `config` is what it says it runs with, None where the log does not reach back so far. `found_nothing` and `ended` are what it said of
    finding no device and of ending, `reasons` the lines that tell why. `cut` where the end of the log was not read.
    """

    where: str
    config: Mapping[str, Any] | None = None
    serves: tuple[Evidence, ...] = ()
    registered: tuple[Evidence, ...] = ()
    marks: tuple[Mark, ...] = ()
    found_nothing: Evidence | None = None
    ended: Evidence | None = None
    reasons: tuple[Evidence, ...] = ()
    cut: bool = False

    @property
    def flags(self) -> Mapping[str, Any]:
        """The table `flags` of its configuration."""
        flags = self.config.get("flags") if self.config is not None else None
        return flags if isinstance(flags, dict) else {}

    @property
    def read(self) -> Evidence:
        """That it was read."""
        return Evidence(self.where, "tells of no device that it holds unhealthy" if not self.marks else "was read")


def find_log(raw: Raw, root: str, pod_uid: str, unit: str) -> PluginLog | Absent | Unread:
    """The log of the plugin that runs in a pod or a unit; without one, of a pod that is still there by its directory below `root`."""
    if unit and not pod_uid:
        return _of_unit(raw, unit)
    listing = raw.listing(PODS)
    if not isinstance(listing, Listing):
        return _of_any_unit(raw) or listing
    named = [
        (name, found[2]) for name in listing.names if (found := _POD.fullmatch(name)) is not None and _is_it(found[1])
    ]
    own = [name for name, uid in named if uid == pod_uid]
    if pod_uid and not own:
        own = [name for name in listing.names if name.endswith(f"_{pod_uid}")]
    there = own or [name for name, uid in named[:MOST_PODS] if not pod_uid and _is_there(raw, root, uid)]
    if there:
        return _of_pod(raw, f"{PODS}/{there[-1]}")
    if not pod_uid and (log := _of_any_unit(raw)) is not None:
        return log
    return (
        Absent(PODS) if listing.complete else Unread(Why.NOT_RECORDED, PODS, "no log of a device plugin was recorded")
    )


def _of_unit(raw: Raw, unit: str) -> PluginLog | Unread:
    log = raw.log(f"journal/{unit}.log")
    return log if isinstance(log, Unread) else parse_log(log.where, log.text)


def _of_any_unit(raw: Raw) -> PluginLog | Unread | None:
    """Of a plugin that does not run now: the journal is asked only for a unit that is there."""
    for unit in UNITS:
        if any(isinstance(raw.entry(f"{folder}/{unit}"), Entry) for folder in UNIT_FOLDERS):
            return _of_unit(raw, unit)
    return None


def _is_it(pod: str) -> bool:
    return _NOT_IT.search(pod) is None


def _is_there(raw: Raw, root: str, uid: str) -> bool:
    """Logs stay for a while after their pod; its directory goes with it (kubernetes pkg/kubelet/kubelet_volumes.go)."""
    return isinstance(raw.entry(f"{root}/pods/{uid}"), Entry)


def _of_pod(raw: Raw, folder: str) -> PluginLog | Absent | Unread:
    """Of the containers of the pod the plugin's, of its logs that of its last start."""
    listing = raw.listing(folder)
    if not isinstance(listing, Listing):
        return listing
    names = sorted(listing.names, key=lambda name: (any(word in name for word in _BESIDE), "plugin" not in name))
    if not names:
        return Absent(folder)
    logs = raw.listing(f"{folder}/{names[0]}")
    if not isinstance(logs, Listing):
        return logs
    numbers = [number for name in logs.names if (number := decimal(name.removesuffix(".log"))) is not None]
    if not numbers:
        return Absent(f"{folder}/{names[0]}")
    file = raw.read(f"{folder}/{names[0]}/{max(numbers)}.log")
    return parse_log(file.where, file.text, cut=file.truncated) if isinstance(file, TextFile) else file


def parse_log(where: str, text: str, *, cut: bool = False) -> PluginLog:
    """A log's text in any of its forms."""
    lines = list(_lines(text))
    start = max((number for number, (_, line) in enumerate(lines) if _STARTS.search(line)), default=0)
    # The configuration comes between the two words that stand for a start.
    before = max((number for number, (_, line) in enumerate(lines) if _CONFIG in line), default=None)
    config = _config([line for _, line in lines[before:]]) if before is not None else None
    since = [(at, line) for at, line in lines[start:] if line.strip()]

    def said(form: Any) -> tuple[Evidence, ...]:
        return tuple(_evidence(where, at, line) for at, line in since if form.search(line))

    nothing, ended, reasons = said(_NOTHING), said(_ENDED), said(_WHY)
    return PluginLog(
        where=where,
        config=config,
        serves=said(_SERVES),
        registered=said(_REGISTERED),
        marks=tuple(_marks(where, since)),
        found_nothing=nothing[-1] if nothing else None,
        ended=ended[-1] if ended else None,
        reasons=tuple(dict.fromkeys(reasons))[-MOST_SAID:],
        cut=cut,
    )


def _evidence(where: str, at: str, line: str) -> Evidence:
    return Evidence(where, _PREFIX.sub("", line.strip())[:300], at=at or None)


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Time and words of each line; a line that the CRI wrote in parts is put together."""
    held = ""
    for line in text.splitlines():
        if line.startswith('{"log":'):
            yield _dockers(line)
        elif (cri := _CRI.fullmatch(line)) is not None:
            held += cri[3]
            if cri[2] == "F":
                yield cri[1], held
                held = ""
        elif (entry := _JOURNAL.fullmatch(line)) is not None:
            yield entry[1], entry[2]
        else:
            yield "", line


def _dockers(line: str) -> tuple[str, str]:
    try:
        said = json.loads(line)
    except ValueError:
        return "", line
    return str(said.get("time", "")), str(said.get("log", "")).rstrip("\n")


def _config(lines: list[str]) -> Mapping[str, Any] | None:
    """The JSON behind the words, printed with an indent: it ends with the first brace that stands alone at the margin."""
    body: list[str] = []
    for line in lines[1:]:
        body.append(line)
        if line.rstrip() == "}":
            break
    try:
        found = json.loads("\n".join(body))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _marks(where: str, lines: list[tuple[str, str]]) -> Iterator[Mark]:
    """One for each device; the line with the Xid comes before the one that says so for the kubelet."""
    found: dict[str, Mark] = {}
    for at, line in lines:
        if (xid := _XID.search(line)) is not None:
            found[xid[2]] = Mark(xid[2], int(xid[1]), _evidence(where, at, line))
        elif (marked := _MARKED.search(line)) is not None:
            device = marked[1] or marked[2]
            found.setdefault(device, Mark(device, None, _evidence(where, at, line)))
        elif _ALL.search(line) is not None:
            found.setdefault("", Mark("", None, _evidence(where, at, line)))
    yield from found.values()
