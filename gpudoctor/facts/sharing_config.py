"""How NVIDIA's device plugin is told to share GPUs between pods, by MPS or in time: as it is in force, and as the file has it.

The plugin shows in its log what it made of its file; what it did not understand is gone there, for unknown keys are passed over
(k8s-device-plugin @1b826acc api/config/v1/config.go, parseConfigFrom: yaml.Unmarshal). With both ways MPS is taken (sharing.go).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.device_plugin import KEEP, DevicePlugin
from gpudoctor.facts.plugin_sockets import PluginSockets
from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

MPS, TIME_SLICING = "mps", "timeSlicing"
MOST_WRITTEN = 100
MOST_COUNTED = 1 << 64
"""Python writes no number of more than 4300 digits (sys.get_int_max_str_digits)."""
KNOWN: Mapping[str, tuple[str, ...]] = {
    "sharing": (MPS, TIME_SLICING),
    "way": ("renameByDefault", "failRequestsGreaterThanOne", "resources"),
    "resource": ("name", "rename", "devices", "replicas"),
}
"""The keys below `sharing`, of each way, and of each of its resources (api/config/v1/sharing.go and replicas.go)."""
_REFUSED = pattern(
    r"unable to (?:parse|load) config|replicas must be|no (?:resources|resource name|replicas) specified|unmarshal|"
    r"not supported with MPS|not supported for MIG devices|invalid MPS configuration|MPS daemon health"
)
_DAEMON_LOG = pattern(r"[^_]+_[^_]*mps-control-daemon[^_]*_[0-9a-f-]{8,}")


class SharingConfig(Fact, frozen=True):
    """`present` is whether a plugin of NVIDIA's is here. `sharing` is the table in force, `where` it was read.

    `file` is the table as it stands in the plugin's file, None where it was not seen; `refused` is what the plugin or the daemon's own
    pod said of a configuration that it does not take.
    """

    present: bool
    sharing: Mapping[str, Any] = {}
    where: str = ""
    strategy: str = ""
    file: Mapping[str, Any] | None = None
    file_at: str = ""
    refused: tuple[Evidence, ...] = ()

    @property
    def way(self) -> str:
        """The way that is in force: MPS before time-slicing, "" for neither (sharing.go, SharingStrategy)."""
        return next((name for name in (MPS, TIME_SLICING) if any(_replicas(self.sharing, name))), "")

    def evidence(self, way: str) -> Evidence:
        """What is told of a way, in a line."""
        parts = [f"{name}: {written(count)} replicas" for name, count, _ in resources(self.sharing, way)]
        return Evidence(self.where, f"sharing.{way}: {', '.join(parts) or 'no resource'}")

    @classmethod
    def gather(cls, desk: Desk) -> "SharingConfig | Unread":
        """The file is looked for only where a plugin runs."""
        plugin = desk.get(DevicePlugin)
        if isinstance(plugin, Unread):
            return plugin
        if not plugin.present:
            return cls(present=False)
        sockets = desk.get(PluginSockets)
        pid = sockets.plugins[0].pid if isinstance(sockets, PluginSockets) and sockets.plugins else 0
        document, file_at = _file(desk.raw, pid)
        table = plugin.config.get("sharing")
        own = document.get("sharing") if document is not None else None
        told = plugin.options.get("migStrategy")
        said = plugin.spoke.reasons if plugin.spoke is not None else ()
        return cls(
            present=True,
            sharing=table if isinstance(table, dict) else {},
            where=plugin.config_at,
            strategy=told.value if told is not None else "",
            file=own if isinstance(own, dict) else {} if document is not None and "sharing" not in document else None,
            file_at=file_at,
            refused=tuple(one for one in said if _REFUSED.search(one.shows)),
        )


def _file(raw: Raw, pid: int) -> tuple[Mapping[str, Any] | None, str]:
    """The file that the plugin's environment or command line names, as the plugin sees it."""
    if not pid:
        return None, ""
    paths = (f"/proc/{pid}/environ", f"/proc/{pid}/cmdline")
    files = raw.read_blocking(paths, keep=KEEP)
    words = [word for path in paths if isinstance(file := files[path], TextFile) for word in file.text.split("\0")]
    named = [word.partition("=")[2] for word in words if word.startswith(("CONFIG_FILE=", "--config-file="))]
    if not named or not named[-1].startswith("/"):
        return None, ""
    from gpudoctor.facts.config_text import parse_yaml

    place = f"/proc/{pid}/root{named[-1]}"
    file = raw.read_blocking((place,))[place]
    document = parse_yaml(file) if isinstance(file, TextFile) else None
    return (document, place) if isinstance(document, dict) else (None, "")


def resources(sharing: Mapping[str, Any], way: str) -> Iterator[tuple[str, object, Mapping[str, Any]]]:
    """The resources of a way: name, replicas as they are written, and the whole entry."""
    table = sharing.get(way)
    listed = table.get("resources") if isinstance(table, dict) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            yield written(one.get("name", "")), one.get("replicas"), one


def written(value: object) -> str:
    """A plain value as a sentence has it; of a list or table, which may be endless in YAML, only that it is one."""
    match value:
        case dict() | list():
            return "a table" if isinstance(value, dict) else "a list"
        case int() if abs(value) > MOST_COUNTED:
            return "a number beyond all counting"
        case _:
            return str(value)[:MOST_WRITTEN]


def _replicas(sharing: Mapping[str, Any], way: str) -> Iterator[bool]:
    return (isinstance(count, int) and count > 1 for _, count, _ in resources(sharing, way))


def daemon_pod_said(raw: Raw) -> tuple[Evidence, ...]:
    """What the pod that is to start the MPS daemon said last of why it does not: cmd/mps-control-daemon/main.go and mps/manager.go."""
    from gpudoctor.facts.plugin_log import PODS
    from gpudoctor.facts.raw import Listing

    pods = raw.listing(PODS)
    names = [name for name in pods.names if _DAEMON_LOG.fullmatch(name)] if isinstance(pods, Listing) else []
    for pod in names[-1:]:
        for container in ("mps-control-daemon-ctr", "mps-control-daemon"):
            folder = f"{PODS}/{pod}/{container}"
            logs = raw.listing(folder)
            numbered = sorted(logs.names) if isinstance(logs, Listing) else []
            file = raw.read(f"{folder}/{numbered[-1]}") if numbered else None
            if isinstance(file, TextFile):
                return tuple(_told(file))
    return ()


_TOLD = pattern(
    r"MPS sharing is not supported for MIG|Failed to start MPS daemon|No devices are configured for MPS|invalid MPS configuration|"
    r"error (?:setting|starting|getting|creating)|unable to "
)


def _told(file: TextFile) -> Iterator[Evidence]:
    lines = [line for line in file.text.splitlines() if _TOLD.search(line)]
    for line in lines[-3:]:
        yield Evidence(file.where, line.rpartition("] ")[2].strip().strip('"')[:300])
