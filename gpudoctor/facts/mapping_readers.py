"""Exporters that map GPUs to pods, and whether each sees the kubelet's PodResources socket where it looks.

dcgm-exporter asks only when DCGM_EXPORTER_KUBERNETES or --kubernetes says so, which a mount of the socket's directory shows too, at
/var/lib/kubelet/pod-resources/kubelet.sock unless DCGM_POD_RESOURCES_KUBELET_SOCKET or --pod-resources-kubelet-socket names another
(NVIDIA/dcgm-exporter pkg/cmd/app.go).
"""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.kubelet import ROOT, KubeletSettings
from gpudoctor.facts.plugin_sockets import PluginSockets
from gpudoctor.facts.processes import Process, Processes
from gpudoctor.facts.raw import Absent, Contents, Entry, Raw, TextFile
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

COMM = "dcgm-exporter"
DEFAULT = "/var/lib/kubelet/pod-resources/kubelet.sock"
KEEP = (
    r"\A(?:DCGM_EXPORTER_KUBERNETES|DCGM_POD_RESOURCES_KUBELET_SOCKET)=|"
    r"\A(?:-k|--kubernetes(?:=.*)?|--pod-resources-kubelet-socket=.*)\Z"
)
MOST = 4
_TRUE = ("1", "t", "true")


class Reader(Struct, frozen=True):
    """One exporter: whether it sees a kubelet's socket where it looks, and what shows that."""

    subject: Subject
    sees: Reading[bool]
    evidence: Cited


class MappingReaders(Fact, frozen=True):
    """Those that run and are told to map pods."""

    readers: tuple[Reader, ...] = ()

    @classmethod
    def gather(cls, desk: Desk) -> "MappingReaders | Unread":
        """Looked for only where a plugin of NVIDIA's is."""
        sockets = desk.get(PluginSockets)
        if isinstance(sockets, Unread) or sockets.kubelet is None or not sockets.concerns_gpus:
            return cls()
        processes = desk.get(Processes)
        if isinstance(processes, Unread):
            return cls()
        found = [one for one in processes.processes if one.comm == COMM and not one.ended][:MOST]
        return cls(readers=tuple(_readers(desk, found)) if found else ())


def _readers(desk: Desk, found: list[Process]) -> Iterator[Reader]:
    raw = desk.raw
    paths = {one.pid: (f"/proc/{one.pid}/environ", f"/proc/{one.pid}/cmdline") for one in found}
    files = raw.read_blocking(tuple(path for both in paths.values() for path in both), keep=KEEP)
    workloads = desk.get(Workloads)
    for one in found:
        words = [
            word
            for path in paths[one.pid]
            for word in (_words(files[path]) if isinstance(files[path], TextFile) else ())
        ]
        path = _named(words) or DEFAULT
        mount = _mount(raw, one.pid, path.rpartition("/")[0])
        word = next((word for word in words if _maps([word])), "")
        if not word and mount is None:
            continue
        sees, shown = _look(desk, one.pid, path, mount)
        workload = None if isinstance(workloads, Unread) else workloads.by_pid.get(one.pid)
        if workload is not None and workload.pod is not None and not workload.pod.name:
            # Of which pod it is, its container's files tell.
            sees = Unread(Why.NOT_ANSWERED, shown.where, "of which pod it is was not seen")
        said = (Evidence(paths[one.pid][0], word),) if word else ()
        yield Reader(_subject(workload), sees, (shown, *said))


def _subject(workload: Workload | None) -> Subject:
    pod = workload.pod if workload is not None else None
    if pod is not None and pod.name:
        return Subject(SubjectKind.POD, f"{pod.namespace}/{pod.name}")
    return workload.subject if workload is not None else Subject(SubjectKind.SERVICE, COMM)


def _mount(raw: Raw, pid: int, folder: str) -> tuple[str, str] | None:
    """What of its file system lies there, and the line that says so (proc_pid_mountinfo(5))."""
    file = raw.read(f"/proc/{pid}/mountinfo")
    for line in file.text.splitlines() if isinstance(file, TextFile) else ():
        words = line.split(" ")
        if len(words) > 5 and words[4] == folder:
            return words[3], line
    return None


def _words(file: TextFile | Absent | Unread) -> list[str]:
    return [word for word in file.text.split("\0") if word] if isinstance(file, TextFile) else []


def _maps(words: list[str]) -> bool:
    for word in words:
        name, _, value = word.partition("=")
        if name in ("-k", "--kubernetes") and value.lower() in ("", *_TRUE):
            return True
        if name == "DCGM_EXPORTER_KUBERNETES" and value.lower() in _TRUE:
            return True
    return False


def _named(words: list[str]) -> str:
    names = ("--pod-resources-kubelet-socket", "DCGM_POD_RESOURCES_KUBELET_SOCKET")
    return next((value for word in words for name, _, value in (word.partition("="),) if name in names), "")


def _look(desk: Desk, pid: int, path: str, mount: tuple[str, str] | None) -> tuple[Reading[bool], Evidence]:
    """The directory as the exporter sees it; where that was not recorded, what is mounted there."""
    folder, _, name = path.rpartition("/")
    place = f"/proc/{pid}/root{folder}"
    seen = desk.raw.look_blocking((place,), begin=name, names=(name,))[place]
    entry = seen.at(name) if isinstance(seen, Contents) else seen
    if not isinstance(entry, Unread):
        there = not isinstance(entry, Absent)
        return there, Evidence(place, f"{name} is there" if there else f"holds no {name}")
    settings = desk.get(KubeletSettings)
    if mount is None or isinstance(settings, Unread):
        return entry, Evidence(place, entry.detail)
    right = f"{settings.root}/pod-resources".endswith(mount[0])
    shown = Evidence(f"/proc/{pid}/mountinfo", mount[1])
    if not right and settings.root == ROOT:
        # A link may lead from there to where it really lies.
        return entry, shown
    return right or isinstance(desk.raw.entry(f"{mount[0]}/{name}"), Entry), shown
