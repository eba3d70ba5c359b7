"""The sockets of the kubelet and of NVIDIA's device plugins: which there are, since when, who listens and who is connected.

A plugin makes `nvidia-NAME.sock` for the resource nvidia.com/NAME (k8s-device-plugin internal/plugin/server.go, getPluginSocketPath; up to
0.2 it was nvidia.sock), GKE's `nvidiaGPU-TIME.sock` (GoogleCloudPlatform/container-engine-accelerators, pkg/gpu/nvidia/manager.go). On
SIGTERM it removes it, when it is killed it cannot; a kubelet that starts removes all (kubernetes pkg/kubelet/cm/devicemanager/manager.go,
CleanupPluginDirectory). Who registers is called back: the kubelet connects to the plugin's socket and stays connected.

/proc/PID/net/unix lists the sockets of one network namespace, and a plugin in a pod has its own. Its listening socket is in that; what it
accepts is in the kubelet's, with the listener's path: the kernel makes the socket of an accepted connection in the namespace of who
connects (linux net/unix/af_unix.c, unix_stream_connect).
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from gpudoctor.facts.boot import in_words
from gpudoctor.facts.daemons import TICKS_PER_SECOND, Daemon
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.kubelet import DEVICE_PLUGINS, KubeletSettings
from gpudoctor.facts.kubelet_checkpoint import KubeletCheckpoint
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw, SourceKind, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

KUBELET_SOCKET = "kubelet.sock"
POD_RESOURCES = "pod-resources"
PLUGIN_COMMS = ("nvidia-device-p", "nvidia-gpu-devi")
"""nvidia-device-plugin and GKE's nvidia-gpu-device-plugin, as much of the names as the kernel keeps (proc_pid_comm(5))."""
MOST_PLUGINS = 8
GKES_MOUNT = "device-plugin"
"""Where GKE's plugin has the plugins' directory inside, and so what its sockets' paths begin with (container-engine-accelerators
cmd/nvidia_gpu/nvidia_gpu.go, plugin-directory)."""
KEEP = rf"/(?:{DEVICE_PLUGINS}|{GKES_MOUNT}|{POD_RESOURCES})/|/(?:containerd|crio|cri-dockerd|dockershim)\.sock"
"""Lines about sockets of the kubelet's directories and of engines, to which every kubelet is connected: nothing is kept of others."""

_LINE = pattern(r"(?m)^[0-9a-f]+: [0-9A-F]{8} [0-9A-F]{8} ([0-9A-F]{8}) [0-9A-F]{4} ([0-9A-F]{2}) +(\d+) (/\S+)$")
_LISTENS = 1 << 16
"""__SO_ACCEPTCON (include/uapi/linux/net.h), in the column Flags."""
_CONNECTED = "03"
"""SS_CONNECTED (the same file), in the column St."""
_SESSION = pattern(r"-[0-9a-f]{8}\Z")
"""What a plugin that may be replaced while it runs puts behind the name (NVIDIA/k8s-device-plugin#1792, getPluginSocketPath)."""
_UPTIME = pattern(r"(\d{1,11})\.")
CLOCK_SECONDS = 2.0
"""So much a process may seem to start in the future: the uptime is read before it, and without its fraction."""


class PluginProcess(Struct, frozen=True):
    """A running device plugin; `age` in seconds, None where it is not told.

    `listening` are the sockets of its network namespace by name, with the inodes of who listens there; `table` is the file that tells them.
    """

    pid: int
    comm: str
    state: str
    age: float | None
    listening: Reading[Mapping[str, frozenset[int]]]
    table: str

    @property
    def words(self) -> str:
        """What it is called, and whether it stands still (proc_pid_stat(5))."""
        still = ", stopped by a signal" if self.state in ("T", "t") else ""
        return f"{self.comm} (pid {self.pid}{still})"

    def listens(self, name: str) -> Evidence:
        """That it listens on a socket."""
        return Evidence(self.table, f"{self.words} listens on {name}")


class PluginSocket(Struct, frozen=True):
    """A socket of a plugin's or the kubelet's name; whether somebody listens on it, and whether the kubelet is connected to it."""

    path: str
    entry: Entry
    listens: Reading[bool]
    connected: Reading[bool]
    before_kubelet: bool = False

    @property
    def name(self) -> str:
        """Its file's name."""
        return self.path.rpartition("/")[2]

    @property
    def resource(self) -> str | None:
        """The resource that is behind it, None where its name does not tell."""
        return resource_of(self.name)

    @property
    def subject(self) -> Subject:
        """The file."""
        return Subject(SubjectKind.FILE, self.path)

    @property
    def age(self) -> Cited:
        """Since when it is there, nothing where that was not seen."""
        if self.entry.mtime is None:
            return ()
        older = ", before the kubelet started" if self.before_kubelet else ""
        return (Evidence(self.path, f"made {in_words(self.entry.mtime)}{older}"),)


class PluginSockets(Fact, frozen=True):
    """What lies in the plugins' directory; `kubelet` is None where none runs.

    Without `concerns_gpus` there is no sign that a plugin of NVIDIA's is or was here, and nothing is said of who listens.
    `own` is the kubelet's socket. `connections` is the file that tells who listens and who is connected, or why that is not known;
    `connected` are the names of NVIDIA's sockets to which the kubelet is connected, whether their files are there or not;
    `shows_connections` is whether that file lists connections at all: of every kubelet it lists that to its engine.
    `unseen` says why there may be plugins that are not seen. `kubelet_age` is in seconds, None where it is not told, and
    `ageless` says why no age could be told.
    """

    kubelet: Daemon | None
    concerns_gpus: bool = False
    directory: str = ""
    own: PluginSocket | Absent | Unread | None = None
    nvidia: tuple[PluginSocket, ...] = ()
    others: tuple[str, ...] = ()
    plugins: tuple[PluginProcess, ...] = ()
    connected: frozenset[str] = frozenset()
    connections: Reading[str] = ""
    shows_connections: bool = False
    serves_pod_resources: Reading[bool] = False
    unlisted: Unread | None = None
    unseen: Unread | None = None
    kubelet_age: float | None = None
    ageless: Unread | None = None

    def cite_connections(self, shows: str) -> tuple[Evidence, ...]:
        """What /proc/PID/net/unix shows, in words."""
        return () if isinstance(self.connections, Unread) else (Evidence(self.connections, shows),)

    def served_by_others(self, name: str) -> bool:
        """Whether a socket of another plugin is called after a resource: kubevirt-NAME.sock, nvidia.com_NAME.sock.

        The driver for dynamic resource allocation has a name of its own there, gpu.nvidia.com-reg.sock, and serves none.
        """
        plain = name.partition("/")[2]
        stems = (other.removesuffix(".sock") for other in self.others)
        return any(stem == plain or stem.endswith((f"-{plain}", f"_{plain}")) for stem in stems)

    def left_behind(self, socket: PluginSocket) -> bool:
        """Whether a socket is dead whose resource is served on another one: GKE's have the time of their start in their names."""
        alive = {one.resource for one in self.nvidia if one.connected is True or one.listens is True}
        dead = socket.listens is False and socket.connected is False
        return dead and socket.resource is not None and socket.resource in alive

    @property
    def wiped(self) -> tuple[str, ...]:
        """Sockets on which a plugin listens though their files are gone: what a kubelet's restart does to a plugin that does not notice."""
        there = {socket.name for socket in self.nvidia}
        names = {
            name for plugin in self.plugins if not isinstance(plugin.listening, Unread) for name in plugin.listening
        }
        return tuple(sorted(name for name in names - there if is_nvidias(name)))

    @classmethod
    def gather(cls, desk: Desk) -> "PluginSockets | Unread":
        """Nothing is looked at where no kubelet runs, and who listens only where there is a socket or a plugin."""
        settings = desk.get(KubeletSettings)
        if isinstance(settings, Unread):
            return settings
        if settings.kubelet is None:
            return cls(kubelet=None, read_from=settings.read_from)
        listing = _listing(desk.raw, settings.directories)
        if isinstance(listing, Unread):
            return listing
        names = listing.names if isinstance(listing, Listing) else ()
        mine = [name for name in names if name.endswith(".sock") and is_nvidias(name)]
        processes = desk.get(Processes)
        found = [] if isinstance(processes, Unread) else _plugins(processes)
        kept = desk.get(KubeletCheckpoint)
        concerned = bool(mine or found) or (isinstance(kept, KubeletCheckpoint) and kept.concerns_gpus)
        listed = () if isinstance(processes, Unread) else processes.processes
        seen = _Seen(desk.raw, settings.kubelet, found, listed) if concerned else None
        own = _socket(desk.raw, listing.path, KUBELET_SOCKET, seen, None)
        since = own.entry if isinstance(own, PluginSocket) else None
        sockets = [_socket(desk.raw, listing.path, name, seen, since) for name in mine]
        return cls(
            kubelet=settings.kubelet,
            concerns_gpus=concerned,
            directory=listing.path,
            own=own,
            nvidia=tuple(socket for socket in sockets if isinstance(socket, PluginSocket)),
            others=tuple(
                name
                for name in (*names, *(_registry(desk.raw, settings) if concerned else ()))
                if name.endswith(".sock") and name not in (*mine, KUBELET_SOCKET)
            ),
            plugins=seen.plugins if seen is not None else (),
            connected=seen.all_connected if seen is not None else frozenset(),
            connections=seen.where if seen is not None else "",
            shows_connections=seen is not None and seen.shows_connections,
            serves_pod_resources=seen.listens_below(POD_RESOURCES) if seen is not None else False,
            unlisted=_unlisted(listing),
            unseen=processes if isinstance(processes, Unread) else processes.unlisted,
            kubelet_age=seen.kubelet_age if seen is not None else None,
            ageless=seen.ageless if seen is not None else None,
            read_from={**settings.read_from, "directory": _shown(listing, names)},
        )


def is_nvidias(name: str) -> bool:
    """Whether a socket is of a plugin for NVIDIA's GPUs, by its name.

    nvidia.com_NAME.sock is of the plugin for NVIDIA's network cards (sriov-network-device-plugin pkg/resources/server.go).
    """
    return name.startswith("nvidia") and not name.startswith("nvidia.com_")


def resource_of(name: str) -> str | None:
    """The resource of which a socket is: nvidia-mig-1g.5gb.sock is nvidia.com/mig-1g.5gb's, and nvidia-mig-1g.5gb-3f9a1c07.sock."""
    if name.startswith("nvidia-"):
        plain = name.removeprefix("nvidia-").removesuffix(".sock")
        return f"nvidia.com/{_SESSION.sub('', plain)}"
    return "nvidia.com/gpu" if name == "nvidia.sock" or name.startswith("nvidiaGPU-") else None


def _listing(raw: Raw, directories: tuple[str, ...]) -> Listing | Absent | Unread:
    """The first that is there, or that cannot be read; what is said of the first where none is."""
    looked = raw.listing(directories[0])
    for directory in directories[1:]:
        if not isinstance(looked, Absent):
            break
        other = raw.listing(directory)
        looked = looked if isinstance(other, Absent) else other
    return looked


def _registry(raw: Raw, settings: KubeletSettings) -> tuple[str, ...]:
    """Sockets that the kubelet finds by itself, as of the plugin for network cards (sriov-network-device-plugin pkg/types/types.go)."""
    listing = raw.listing(f"{settings.root}/plugins_registry")
    return tuple(listing.names) if isinstance(listing, Listing) else ()


def _unlisted(listing: Listing | Absent) -> Unread | None:
    if isinstance(listing, Absent) or listing.complete:
        return None
    return Unread(Why.NOT_RECORDED, listing.where, "only a part of what lies there was recorded")


def _shown(listing: Listing | Absent, names: Iterable[str]) -> Evidence:
    if isinstance(listing, Absent):
        return listing.evidence
    return Evidence(listing.where, f"holds {', '.join(names) or 'nothing'}")


def _plugins(processes: Processes) -> list[Process]:
    return [one for one in processes.processes if one.comm in PLUGIN_COMMS and not one.ended][:MOST_PLUGINS]


def _socket(
    raw: Raw, directory: str, name: str, seen: "_Seen | None", since: Entry | None
) -> PluginSocket | Absent | Unread:
    entry = raw.entry(f"{directory}/{name}")
    if isinstance(entry, Unread) and name != KUBELET_SOCKET:
        # It is in the listing: what it is called is all that is needed.
        entry = Entry(f"{directory}/{name}", EntryType.SOCKET)
    if not isinstance(entry, Entry):
        return entry
    if entry.type is not EntryType.SOCKET:
        return Absent(entry.path)
    before = since is not None and since.mtime is not None and entry.mtime is not None and entry.mtime < since.mtime
    return PluginSocket(
        path=entry.path,
        entry=entry,
        listens=seen.listens(name) if seen is not None else False,
        connected=seen.connected(name) if seen is not None else False,
        before_kubelet=before,
    )


_Table: TypeAlias = tuple[Mapping[str, frozenset[int]], frozenset[str]]
"""The sockets of a namespace by the last two parts of their paths: those on which somebody listens, by inodes, and those connected."""


class _Seen:
    """What the network namespaces of the kubelet and of the plugins show."""

    def __init__(self, raw: Raw, kubelet: Daemon, plugins: list[Process], processes: Iterable[Process]) -> None:
        own = f"/proc/{kubelet.pid}/net/unix"
        paths = {plugin.pid: f"/proc/{plugin.pid}/net/unix" for plugin in plugins}
        files: Mapping[str, TextFile | Absent | Unread] = raw.read_blocking((own, *paths.values()), keep=KEEP)
        file = files[own]
        missing = isinstance(file, Absent) or (isinstance(file, Unread) and file.why is Why.NOT_RECORDED)
        # In a recording made by hand the reader's own namespace is the host's.
        if missing and raw.kind not in (SourceKind.LIVE, SourceKind.ROOT):
            hosts = raw.read("/proc/net/unix")
            own, file = ("/proc/net/unix", hosts) if isinstance(hosts, TextFile) else (own, file)
        self._own = _table(file)
        self.where: Reading[str] = self._own if isinstance(self._own, Unread) else own
        told = _uptime(raw)
        up = None if isinstance(told, Unread) else told
        self.ageless = told if isinstance(told, Unread) and told.why is not Why.NOT_RECORDED else None
        self.kubelet_age = next((_age(one, up) for one in processes if one.pid == kubelet.pid), None)
        tables = {pid: (path, _table(files[path])) for pid, path in paths.items()}
        self.plugins = tuple(_plugin(plugin, tables[plugin.pid], (own, self._own), up) for plugin in plugins)

    def listens(self, name: str) -> Reading[bool]:
        """Whether somebody listens on it, the kubelet or a plugin: the namespaces of other processes are not seen."""
        heard = [plugin.listening for plugin in self.plugins]
        if any(not isinstance(names, Unread) and name in names for names in heard):
            return True
        own = self._own
        if not isinstance(own, Unread) and f"{DEVICE_PLUGINS}/{name}" in own[0].keys() | own[1]:
            return True
        unread = next((names for names in (own, *heard) if isinstance(names, Unread)), None)
        return unread if unread is not None else False

    def connected(self, name: str) -> Reading[bool]:
        """Whether somebody in the kubelet's namespace is connected to it."""
        return self._own if isinstance(self._own, Unread) else f"{DEVICE_PLUGINS}/{name}" in self._own[1]

    @property
    def all_connected(self) -> frozenset[str]:
        """NVIDIA's sockets to which somebody there is connected."""
        paths = () if isinstance(self._own, Unread) else self._own[1]
        names = (path.removeprefix(f"{DEVICE_PLUGINS}/") for path in paths if path.startswith(f"{DEVICE_PLUGINS}/"))
        return frozenset(name for name in names if is_nvidias(name))

    @property
    def shows_connections(self) -> bool:
        """Whether any connection is listed."""
        return not isinstance(self._own, Unread) and bool(self._own[1])

    def listens_below(self, folder: str) -> Reading[bool]:
        """Whether somebody listens on a socket of a directory: the kubelet makes that of PodResources under a name that it then changes."""
        if isinstance(self._own, Unread):
            return self._own
        return any(name.startswith(f"{folder}/") for name in self._own[0])


def _table(file: TextFile | Absent | Unread) -> _Table | Unread:
    if not isinstance(file, TextFile):
        return Unread(Why.NOT_RECORDED, file.where, "does not exist") if isinstance(file, Absent) else file
    listening: dict[str, set[int]] = {}
    connected = set()
    for flags, state, inode, path in _LINE.findall(file.text):
        folder, name = path.rsplit("/", 2)[-2:]
        name = f"{DEVICE_PLUGINS if folder == GKES_MOUNT else folder}/{name}"
        if int(flags, 16) & _LISTENS:
            listening.setdefault(name, set()).add(int(inode))
        elif state == _CONNECTED:
            connected.add(name)
    return {name: frozenset(inodes) for name, inodes in listening.items()}, frozenset(connected)


def _plugin(
    process: Process, own: tuple[str, _Table | Unread], kubelets: tuple[str, _Table | Unread], up: int | None
) -> PluginProcess:
    """What it listens on; one whose file was not recorded may share the kubelet's namespace, which then shows it."""
    (at, table), (_, shared) = own, kubelets
    if isinstance(table, Unread) and table.why is Why.NOT_RECORDED and not isinstance(shared, Unread):
        at, table = kubelets if any(is_nvidias(name.rpartition("/")[2]) for name in shared[0]) else own
    prefix = f"{DEVICE_PLUGINS}/"
    listening: Reading[Mapping[str, frozenset[int]]] = (
        table
        if isinstance(table, Unread)
        else {name.removeprefix(prefix): inodes for name, inodes in table[0].items() if name.startswith(prefix)}
    )
    return PluginProcess(process.pid, process.comm, process.state, _age(process, up), listening, at)


def _age(process: Process, up: int | None) -> float | None:
    """None too where the clock began later than the process: LXCFS tells a container's own uptime (linuxcontainers.org/lxcfs)."""
    age = up - process.started / TICKS_PER_SECOND if up is not None and process.started else None
    return None if age is None or age < -CLOCK_SECONDS else age


def _uptime(raw: Raw) -> int | Unread | None:
    """Seconds since the boot (proc_uptime(5))."""
    file = raw.read("/proc/uptime")
    if isinstance(file, Unread):
        return file
    told = _UPTIME.match(file.text) if isinstance(file, TextFile) else None
    return int(told[1]) if told is not None else None
