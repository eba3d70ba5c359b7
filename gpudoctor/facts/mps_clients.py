"""Clients of MPS brought together with their daemons: through whatever mounts, a pipe directory is one and the same.

Two processes mean the same directory when it lies at the same place of the same file system (proc_pid_mountinfo(5): device and root).
k8s-device-plugin mounts the daemon's pipes and /dev/shm into each client (internal/plugin/mps.go, updateReponse), `docker run --ipc=host`
the host's (docs.docker.com/reference/cli/docker/container/run, --ipc). The server keeps a region of shared memory, mps.shm.UID.PID
(bottlerocket-os/bottlerocket-kernel-kit#415), which is looked for in the IPC namespace, or in /dev/shm.
"""

from collections.abc import Mapping

from gpudoctor.facts.desk import Desk, Reading
from gpudoctor.facts.mps import DEFAULT_PIPES, LIMITS, PIPES, MpsClient, MpsDaemon, normal, owner_of
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, Contents, Entry, EntryType, TextFile
from gpudoctor.facts.workload import Workload
from gpudoctor.verdicts import Evidence, Unread, Why

SHM = "/dev/shm"  # noqa: S108 - a mount point that is looked for
_CONTROL = "control"
"""The daemon's socket (its log: "Starting control daemon using socket /tmp/nvidia-mps/control")."""


def located(text: str, path: str) -> tuple[str, str] | None:
    """Device and path in its file system of a directory, by the lines of mountinfo: of equal mount points the last counts."""
    best: tuple[int, str, str, str] | None = None
    for line in text.splitlines():
        words = line.split(" ", 5)
        if len(words) < 6:
            continue
        device, root, point = words[2], words[3], words[4].replace("\\040", " ")
        above = path == point or path.startswith(point.rstrip("/") + "/")
        if above and (best is None or len(point) >= best[0]):
            best = (len(point), device, root, point)
    if best is None:
        return None
    _, device, root, point = best
    rest = path.removeprefix(point).lstrip("/")
    return device, f"{root.rstrip('/')}/{rest}".rstrip("/") or "/"


class Joiner:
    """Puts clients together; each process's mounts are read once."""

    def __init__(
        self, desk: Desk, daemons: tuple[MpsDaemon, ...], processes: Processes, unlisted: Unread | None
    ) -> None:
        self._raw = desk.raw
        self._desk = desk
        self._daemons = daemons
        self._host = processes.host
        self._unlisted = unlisted
        self._mounts = {
            one.pid: spaces.mount for one in processes.processes if (spaces := processes.of(one)) is not None
        }
        self._seen: dict[int, str | Unread] = {}

    def client(
        self,
        pid: int,
        environ: Reading[Mapping[str, str]],
        *,
        connected: bool,
        gpus: tuple[str, ...],
        workload: Workload | None,
    ) -> MpsClient:
        """One client with the daemon behind its pipes."""
        said = {} if isinstance(environ, Unread) else environ
        pipes = environ if isinstance(environ, Unread) else normal(said.get(PIPES) or DEFAULT_PIPES)
        daemon, reaches, shown = self._reached(pid, pipes, connected=connected)
        uid, owner = owner_of(self._desk, pid)
        shares: Reading[bool] | None = None
        memory: tuple[Evidence, ...] = ()
        if daemon is not None:
            shares, memory = self._shares(pid, daemon)
        about = {"reaches": shown, "owner": owner}
        if isinstance(pipes, str):
            named = f"{PIPES}={said[PIPES]}" if PIPES in said else f"sets no {PIPES}: the default is {DEFAULT_PIPES}"
            about["pipes"] = Evidence(f"/proc/{pid}/environ", named)
        return MpsClient(
            pid=pid,
            pipe_directory=pipes,
            daemon=daemon.pid if daemon is not None else None,
            limits={name: said[name] for name in LIMITS if name in said},
            uid=uid,
            connected=connected,
            reaches=reaches,
            shares_memory=shares,
            gpus=gpus,
            workload=workload,
            read_from=about | {f"memory{number or ''}": one for number, one in enumerate(memory)},
        )

    # pipes -----------------------------------------------------------------------------------------------------------

    def _reached(
        self, pid: int, pipes: Reading[str], *, connected: bool
    ) -> tuple[MpsDaemon | None, Reading[bool], Evidence]:
        only = self._daemons[0] if len(self._daemons) == 1 else None
        listed = Evidence("NVML", f"lists PID {pid} as a client of MPS")
        if isinstance(pipes, Unread):
            return (only, True, listed) if connected else (None, pipes, Evidence(pipes.where, pipes.detail))
        unknown = self._unlisted
        for daemon in self._daemons:
            same = self._same(pid, pipes, daemon)
            if same is True:
                where = "processes (/proc/*/ns)" if self._together(pid, daemon) else f"/proc/{pid}/mountinfo"
                return daemon, True, Evidence(where, f"{pipes} is the directory of {daemon.words}")
            unknown = same if isinstance(same, Unread) else unknown
        return (only, True, listed) if connected else self._looked_into(pid, pipes, unknown)

    def _looked_into(
        self, pid: int, pipes: str, unknown: Unread | None
    ) -> tuple[MpsDaemon | None, Reading[bool], Evidence]:
        """What lies at a directory that is not known to be a daemon's; `unknown` is why it may be one's all the same."""
        place = pipes if self._of_host(pid) else f"/proc/{pid}/root{pipes}"
        seen = self._raw.look_blocking((place,), begin=_CONTROL, names=(_CONTROL,))[place]
        if isinstance(seen, Absent):
            return None, False, seen.evidence
        control = seen.at(_CONTROL) if isinstance(seen, Contents) else seen
        if isinstance(control, Absent):
            return None, False, Evidence(place, f"holds no {_CONTROL}")
        shown = Evidence(place, "exists" if isinstance(control, Entry) else control.detail)
        if isinstance(control, Entry) and control.type is EntryType.SOCKET:
            gone = "" if self._daemons or unknown is not None else "; it runs no longer"
            shown = Evidence(place, f"holds control, the socket of a daemon{gone}")
        return None, unknown if unknown is not None else False, shown

    def _same(self, pid: int, pipes: str, daemon: MpsDaemon) -> Reading[bool]:
        """Whether a daemon has its pipes in a directory of the client's."""
        if isinstance(daemon.pipe_directory, Unread):
            return daemon.pipe_directory
        if self._together(pid, daemon):
            return pipes == daemon.pipe_directory
        one, other = self._place(pid, pipes), self._place(daemon.pid, daemon.pipe_directory)
        if isinstance(one, Unread):
            return one
        if isinstance(other, Unread):
            return self._by_root(pid, pipes, daemon, other)
        return one == other

    def _by_root(self, pid: int, pipes: str, daemon: MpsDaemon, unread: Unread) -> Reading[bool]:
        """Where a daemon of the host does not show its mounts: a directory of its root file system is bound by its very path.

        What lies on the client's own root is none that was bound.
        """
        one, root = self._place(pid, pipes), self._place(pid, "/")
        bound = isinstance(one, tuple) and isinstance(root, tuple) and one[0] != root[0]
        host = self._host.mount if self._host is not None else 0
        if host and daemon.mount == host and bound and isinstance(one, tuple) and one[1] == daemon.pipe_directory:
            return True
        return unread

    def _place(self, pid: int, path: str) -> tuple[str, str] | Unread:
        text = self._mountinfo(pid)
        if isinstance(text, Unread):
            return text
        return located(text, path) or Unread(Why.UNREADABLE, f"/proc/{pid}/mountinfo", f"shows no mount above {path}")

    def _mountinfo(self, pid: int) -> str | Unread:
        if pid not in self._seen:
            path = f"/proc/{pid}/mountinfo"
            file = self._raw.read(path)
            gone = Unread(Why.NOT_ANSWERED, path, "does not exist")
            self._seen[pid] = file.text if isinstance(file, TextFile) else file if isinstance(file, Unread) else gone
        return self._seen[pid]

    def _of_host(self, pid: int) -> bool:
        return self._host is not None and self._mounts.get(pid, 0) == self._host.mount

    def _together(self, pid: int, daemon: MpsDaemon) -> bool:
        """Whether both see the same mounts: a container does not, nor a unit with a /tmp of its own (systemd.exec(5), PrivateTmp=)."""
        return daemon.mount != 0 and self._mounts.get(pid, 0) == daemon.mount

    # shared memory ---------------------------------------------------------------------------------------------------

    def _shares(self, pid: int, daemon: MpsDaemon) -> tuple[Reading[bool], tuple[Evidence, ...]]:
        if self._together(pid, daemon):
            shown = f"PID {pid} has the mounts of {daemon.words}, /dev/shm with them"
            return True, (Evidence("processes (/proc/*/ns)", shown),)
        one, other = (self._raw.entry(f"/proc/{each}/ns/ipc") for each in (pid, daemon.pid))
        if isinstance(one, Entry) and isinstance(other, Entry) and one.to and one.to == other.to:
            return True, (Evidence(one.where, f"{one.to}, as that of {daemon.words}"),)
        mine, its = self._place(pid, SHM), self._place(daemon.pid, SHM)
        if isinstance(mine, Unread) or isinstance(its, Unread):
            unread = mine if isinstance(mine, Unread) else its
            assert isinstance(unread, Unread), "one of them is"
            return unread, (Evidence(unread.where, unread.detail),)
        lies = Evidence(f"/proc/{pid}/mountinfo", f"{SHM} is {mine[1]} of device {mine[0]}")
        if mine == its:
            return True, (lies,)
        ipc = one if not isinstance(one, Entry) else other
        if not isinstance(ipc, Entry):
            unread = ipc if isinstance(ipc, Unread) else Unread(Why.NOT_ANSWERED, ipc.where, "does not exist")
            return unread, (lies, Evidence(unread.where, unread.detail))
        where = Evidence(f"/proc/{daemon.pid}/mountinfo", f"{SHM} is {its[1]} of device {its[0]}")
        spaces = tuple(Evidence(each.where, each.to or "") for each in (one, other) if isinstance(each, Entry))
        return False, (lies, where, *spaces)
