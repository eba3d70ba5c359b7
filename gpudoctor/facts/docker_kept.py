"""What dockerd keeps of its containers, whether they run or not: why the last start failed, and whether it starts them again by itself.

A start that fails for a file that does not exist (exit code 127) or may not be used (126) is taken for the caller's mistake (moby
daemon/errors.go, translateContainerdStartErr: "executable file not found", "no such file or directory", EACCES), and of mistakes nothing is
logged. The words stay in ROOT/containers/ID/config.v2.json (daemon/start.go, containerStart: SetError, CheckpointTo) until a start
succeeds (container/state.go, SetRunning). When that was is told by the file's own time alone: a failed start changes no other, and
dockerd writes all files anew when it starts (daemon/container.go, Register).
"""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from gpudoctor.facts.container_files import DOCKER_ROOTS
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.docker import Dockers
from gpudoctor.facts.raw import Entry, Listing, Raw, TextFile
from gpudoctor.verdicts import Unread

MOST_CONTAINERS = 200


class KeptState(Struct, frozen=True, rename="pascal"):
    """`State` of config.v2.json. A container that waits for its next try is running and restarting at once."""

    running: bool = False
    restarting: bool = False
    error: str = ""
    exit_code: int = 0
    started_at: str = ""
    finished_at: str = ""


class _File(Struct, rename="pascal"):
    name: str = ""
    created: str = ""
    state: KeptState | None = None
    has_been_manually_stopped: bool = False


class _Policy(Struct, rename="pascal"):
    name: str = ""


class _Host(Struct, rename="pascal"):
    restart_policy: _Policy | None = None


class KeptContainer(Struct, frozen=True):
    """One container. `begun` is when it was made, started or ended last, in seconds since the epoch."""

    id: str
    folder: str
    name: str
    state: KeptState
    begun: float
    stopped_by_hand: bool

    @property
    def path(self) -> str:
        """The file that tells of it."""
        return f"{self.folder}/config.v2.json"

    @property
    def failed(self) -> bool:
        """Whether its last start failed, and it does not run."""
        return bool(self.state.error) and (not self.state.running or self.state.restarting)

    def since(self, booted: float | None, raw: Raw) -> bool:
        """Whether what it tells is of this boot: by the times in the file, for its own is at least dockerd's start."""
        return (booted is not None and self.begun >= booted) or self._comes_back(raw)

    def written(self, raw: Raw) -> float | None:
        """When its error was written at the latest, None where no time is told."""
        entry = raw.entry(self.path)
        changed = entry.mtime if isinstance(entry, Entry) else None
        return max(self.begun, changed or 0.0) or None

    def _comes_back(self, raw: Raw) -> bool:
        """Whether dockerd starts it again by itself."""
        file = raw.read(f"{self.folder}/hostconfig.json")
        try:
            host = msgspec.json.decode(file.text if isinstance(file, TextFile) else "", type=_Host)
        except (msgspec.MsgspecError, UnicodeError):
            return False
        policy = host.restart_policy.name if host.restart_policy is not None else ""
        return is_restarted(policy, self.state.exit_code, stopped_by_hand=self.stopped_by_hand)


class KeptContainers(Fact, frozen=True):
    """Those of every dockerd whose folder of containers can be listed, the first MOST_CONTAINERS of each."""

    containers: tuple[KeptContainer, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "KeptContainers | Unread":
        """A file for each."""
        return cls(containers=tuple(one for root in docker_roots(desk) for one in _kept(desk.raw, root)))


def is_restarted(policy: str, exit_code: int | None, *, stopped_by_hand: bool) -> bool:
    """Whether dockerd starts a container again by itself (moby daemon/internal/restartmanager, ShouldRestart).

    `exit_code` is None where it is not known.
    """
    if policy == "unless-stopped":
        return not stopped_by_hand
    return policy == "always" or (policy == "on-failure" and exit_code != 0)


def docker_roots(desk: Desk) -> tuple[str, ...]:
    """Where the dockerds of the node keep their containers."""
    dockers = desk.get(Dockers)
    roots = [] if isinstance(dockers, Unread) else [one.data_root for one in dockers.dockers if one.data_root]
    return tuple(dict.fromkeys(roots or DOCKER_ROOTS[:1]))


def _kept(raw: Raw, root: str) -> Iterator[KeptContainer]:
    listing = raw.listing(f"{root}/containers")
    for container in listing.names[:MOST_CONTAINERS] if isinstance(listing, Listing) else ():
        folder = f"{root}/containers/{container}"
        file = raw.read(f"{folder}/config.v2.json")
        try:
            said = msgspec.json.decode(file.text if isinstance(file, TextFile) else "", type=_File)
        except (msgspec.MsgspecError, UnicodeError):
            continue
        if said.state is not None:
            times = (said.created, said.state.started_at, said.state.finished_at)
            yield KeptContainer(
                id=container,
                folder=folder,
                name=said.name.removeprefix("/"),
                state=said.state,
                begun=max(map(_seconds, times)),
                stopped_by_hand=said.has_been_manually_stopped,
            )


def _seconds(stamp: str) -> float:
    """Seconds since the epoch of `2026-11-29T17:50:24.123456789Z`, as Go writes times; 0.0 for none, which is of the year 1."""
    import datetime

    try:
        moment = datetime.datetime.fromisoformat(f"{stamp[:19]}+00:00").timestamp()
    except ValueError:
        return 0.0
    return max(moment, 0.0)
