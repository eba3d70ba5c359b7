"""The workloads of the node: containers, pods, Slurm jobs and systemd units, found by the control groups and namespaces of processes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace

from gpudoctor.facts.cgroup_paths import NOWHERE, GroupKind, Groups, Identity, Layer
from gpudoctor.facts.container_files import DOCKER_NAMESPACE, Cabinet, Files, RuntimeState, read_states
from gpudoctor.facts.desk import Desk, Population, Reading
from gpudoctor.facts.oci_config import CONTAINER_NAME, KIND, POD_NAME, POD_NAMESPACE, POD_UID, OciConfig, parse_config
from gpudoctor.facts.processes import Namespaces, Process, Processes
from gpudoctor.facts.raw import Absent, Raw, TextFile
from gpudoctor.facts.workload import Pod, PodName, Workload, key_of, pod_of, short
from gpudoctor.verdicts import Evidence, Unread, Why


class Workloads(Population, frozen=True):
    """Everything on the node that is more than a process: containers first, then jobs, then units, each kind by key."""

    NOTHING: ClassVar[str] = "nothing runs in a control group of its own"

    workloads: tuple[Workload, ...]
    by_pid: Mapping[int, Workload]

    @property
    def members(self) -> Sequence[Workload]:
        """All of them."""
        return self.workloads

    def __iter__(self) -> Iterator[Workload]:
        return iter(self.workloads)

    @property
    def containers(self) -> tuple[Workload, ...]:
        """The containers; a pod's sandbox, which only holds its namespaces, is none."""
        return tuple(one for one in self.workloads if one.kind is GroupKind.CONTAINER and not one.sandbox)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods by uid."""
        found: dict[str, list[Workload]] = {}
        for one in self.workloads:
            if one.pod is not None:
                found.setdefault(one.pod.uid, []).append(one)
        return tuple(pod_of(uid, found[uid]) for uid in sorted(found))

    @classmethod
    def gather(cls, desk: Desk) -> "Workloads | Unread":
        """Group the processes; then one configuration for each container."""
        processes = desk.get(Processes)
        if isinstance(processes, Unread):
            return processes
        finder = _Finder(desk.raw, processes)
        workloads = sorted(_with_own_keys(finder.all()), key=lambda one: (_ORDER.get(one.kind, len(_ORDER)), one.key))
        return cls(
            workloads=tuple(workloads),
            by_pid={pid: one for one in workloads for pid in one.pids},
            unlisted=processes.unlisted,
            read_from=processes.read_from,
        )


PAUSE = "pause"
"""The only process of a pod's sandbox, whatever the engine (kubernetes build/pause): it holds the pod's namespaces and wants nothing."""

_ORDER = {GroupKind.CONTAINER: 0, GroupKind.JOB: 1}


def _with_own_keys(found: Iterable[Workload]) -> list[Workload]:
    """No two with the same key: of ids that begin alike the whole one counts, of units that are called alike the control group."""
    workloads = list(found)
    counts: dict[str, int] = {}
    for one in workloads:
        counts[one.key] = counts.get(one.key, 0) + 1
    if len(counts) == len(workloads):
        return workloads
    contained = GroupKind.CONTAINER
    return [
        one
        if counts[one.key] == 1
        else replace(one, key=one.id if one.kind is contained and one.id else one.identity.own)
        for one in workloads
    ]


class _Finder:
    """Groups the processes of one node."""

    def __init__(self, raw: Raw, processes: Processes) -> None:
        self._raw = raw
        self._processes = processes
        self._host = processes.host
        self._cabinet = Cabinet(raw)
        self._taken: set[int] = set()
        self._mounts: set[int] = set()

    def all(self) -> Iterator[Workload]:
        """Those that a control group names, then those that only their namespaces set apart, then units."""
        grouped: dict[tuple[GroupKind, str], list[Process]] = {}
        for process in self._processes.processes:
            identity = self._identity(process)
            if identity.kind is not GroupKind.POD:
                grouped.setdefault((identity.kind, identity.own), []).append(process)
        for (kind, _), members in grouped.items():
            if kind is GroupKind.CONTAINER:
                yield self._container(members)
        unnamed = [
            (kind, members)
            for (kind, _), members in grouped.items()
            if kind not in (GroupKind.CONTAINER, GroupKind.MONITOR, GroupKind.MACHINE)
        ]
        yield from self._set_apart(unnamed)
        for (kind, _), members in grouped.items():
            left = [process for process in members if process.pid not in self._taken]
            if left and kind not in (GroupKind.CONTAINER, GroupKind.MONITOR, GroupKind.OTHER):
                yield self._unit(left)

    def _identity(self, process: Process) -> Identity:
        return self._processes.identities[process.cgroup] if process.cgroup >= 0 else NOWHERE

    # containers with a control group of their own -------------------------------------------------------------------

    def _container(self, members: Sequence[Process]) -> Workload:
        """One that its control group names. Its first process may be its monitor, which stays in the host's namespaces."""
        identity = self._identity(members[0])
        alive = sorted((one for one in members if not one.ended), key=_by_start)
        leading = next((one for one in alive if self._apart(one)), None)
        if leading is None and alive and (self._host is None or any(self._spaces(one) is None for one in alive)):
            leading = alive[0]
        self._taken.update(one.pid for one in members)
        if (spaces := self._spaces(leading)) is not None and self._apart(leading):
            # Whoever joined its mounts from elsewhere is no container of its own.
            self._mounts.add(spaces.mount)
        if identity.pod is not None and leading is not None and leading.comm == PAUSE and len(members) == 1:
            files = Files(Absent(identity.own))
        elif identity.around:
            around = _words(identity.around[-1])
            missing = Unread(Why.UNREADABLE, identity.own, f"its configuration is kept inside the container {around}")
            files = Files(missing)
        else:
            files = self._cabinet.of(identity.engine, identity.id, identity.user)
        return self._described(identity, members, leading, files)

    def _spaces(self, process: Process | None) -> Namespaces | None:
        return self._processes.of(process) if process is not None else None

    def _apart(self, process: Process | None) -> bool:
        """Whether a process has another mount or PID namespace than the first process of the node."""
        spaces = self._spaces(process)
        if spaces is None or self._host is None:
            return False
        return _differ(spaces.mount, self._host.mount) or _differ(spaces.pid, self._host.pid)

    # containers without one -----------------------------------------------------------------------------------------

    def _set_apart(self, groups: Iterable[tuple[GroupKind, Sequence[Process]]]) -> Iterator[Workload]:
        """Processes whose namespaces make them a container, whatever their control group is called.

        systemd gives a service mounts and users of its own (systemd.exec(5), ProtectSystem=, PrivateUsers=), not PIDs. Rootless engines
        keep mounts and users for themselves too (podman's pause process, rootlesskit), but stay on the root file system of the node.
        """
        found: dict[tuple[str, int], list[Process]] = {}
        for kind, members in groups:
            for process in members:
                spaces = self._processes.of(process)
                if spaces is not None and self._contained(spaces, kind):
                    found.setdefault((self._identity(process).own, spaces.mount), []).append(process)
        contained = [
            members for members in found.values() if self._own_pids(members) or not self._on_hosts_root(members)
        ]
        states = {state.pid: state for state in self._states(contained)}
        for members in contained:
            self._taken.update(one.pid for one in members)
            yield self._unnamed(members, states)

    def _own_pids(self, members: Iterable[Process]) -> list[Process]:
        """Those with another PID namespace than the host's."""
        host = self._host.pid if self._host is not None else 0
        return [one for one in members if (spaces := self._spaces(one)) is not None and _differ(spaces.pid, host)]

    def _on_hosts_root(self, members: Sequence[Process]) -> bool:
        """Whether the file system at / is the one that the node's own processes have there."""
        return bool(host := self._root_of(self._hosts_own())) and host == self._root_of(members[0])

    def _hosts_own(self) -> Process | None:
        """A process in the host's mount namespace."""
        host = self._host.mount if self._host is not None else 0
        seen = ((one, self._spaces(one)) for one in self._processes.processes if not one.ended)
        return next((one for one, spaces in seen if spaces is not None and spaces.mount == host), None)

    def _root_of(self, process: Process | None) -> tuple[str, ...]:
        """Device and folder of the mount at / (proc_pid_mountinfo(5)), nothing where it cannot be told."""
        file = self._raw.read(f"/proc/{process.pid}/mountinfo") if process is not None else None
        lines = (line.split(" ", 5) for line in file.text.splitlines()) if isinstance(file, TextFile) else ()
        return next((tuple(words[2:4]) for words in lines if len(words) > 5 and words[4] == "/"), ())

    def _contained(self, spaces: Namespaces, kind: GroupKind) -> bool:
        if self._host is None or spaces.mount in self._mounts or not _differ(spaces.mount, self._host.mount):
            return False
        users = _differ(spaces.user, self._host.user) and kind is not GroupKind.SERVICE
        return users or _differ(spaces.pid, self._host.pid)

    def _states(self, found: Iterable[Sequence[Process]]) -> Iterable[RuntimeState]:
        """What runtimes know of containers that no engine started; rootless ones keep it below /run/user."""
        users = {self._identity(members[0]).user for members in found}
        if users:
            yield from read_states(self._raw)
        for user in sorted(user for user in users if user):
            yield from read_states(self._raw, f"/run/user/{user}")

    def _unnamed(self, members: Sequence[Process], states: Mapping[int, RuntimeState]) -> Workload:
        alive = sorted((one for one in members if not one.ended), key=_by_start)
        leading = next(iter(self._own_pids(alive) or alive), None)
        state = next((states[one.pid] for one in members if one.pid in states), None)
        identity = self._identity(members[0])
        if state is None:
            first = leading or members[0]
            missing = Absent(f"/run/*/{identity.own.rpartition('/')[2]}")
            return self._described(identity, members, leading, Files(missing), key=f"pid:{first.pid}")
        files = Files(parse_config(self._raw.read(f"{state.bundle}/config.json")))
        return self._described(identity, members, leading, files, state=state)

    # all ------------------------------------------------------------------------------------------------------------

    def _described(
        self,
        identity: Identity,
        members: Sequence[Process],
        leading: Process | None,
        files: Files,
        *,
        key: str = "",
        state: RuntimeState | None = None,
    ) -> Workload:
        """A container with what its files tell."""
        engine, container = identity.engine, identity.id
        if identity.kind is not GroupKind.CONTAINER:
            engine, container = (state.runtime, state.id) if state is not None else ("", key)
        annotations = files.config.annotations if isinstance(files.config, OciConfig) else {}
        inside = identity.around[-1:] if identity.kind is GroupKind.CONTAINER else ()
        job = key_of(identity.kind, identity.engine, identity.id) if identity.kind is GroupKind.JOB else ""
        return Workload(
            kind=GroupKind.CONTAINER,
            engine=engine or _engine(files),
            id=container,
            key=key or key_of(GroupKind.CONTAINER, engine, container),
            identity=identity,
            pids=tuple(one.pid for one in members),
            leading=leading,
            groups=self._groups(leading or members[0]),
            name=files.name or _first(annotations, CONTAINER_NAME) or (state.id if state is not None else ""),
            pod=_pod_name(identity, annotations),
            inside=key_of(GroupKind.CONTAINER, inside[0].engine, inside[0].id) if inside else job,
            sandbox=_first(annotations, KIND) == "sandbox"
            or (
                identity.pod is not None
                and leading is not None
                and leading.comm == PAUSE
                and not _first(annotations, KIND)
            ),
            apart=None if self._host is None or leading is None else self._apart(leading),
            rootless=self._rootless(identity, leading),
            files=files,
            read_from=self._read_from(leading or members[0], files),
        )

    def _unit(self, members: Sequence[Process]) -> Workload:
        """A job, machine, service, scope or session."""
        identity = self._identity(members[0])
        alive = sorted((one for one in members if not one.ended), key=self._by_step)
        leading = alive[0] if alive else None
        return Workload(
            kind=identity.kind,
            engine=identity.engine,
            id=identity.id,
            key=_unit_key(identity),
            identity=identity if leading is None else self._identity(leading),
            pids=tuple(one.pid for one in members),
            leading=leading,
            groups=self._groups(leading or members[0]),
            rootless=identity.user is not None and identity.user != 0,
            read_from=self._read_from(leading or members[0], None),
        )

    def _by_step(self, process: Process) -> tuple[int, int, int]:
        """Of a job, a task's process before those of the batch script, of slurmstepd itself and of the step that waits for logins."""
        step = self._identity(process).step
        helper = not {"slurm", "step_extern"}.isdisjoint(step.split("/")) or process.comm.startswith("slurmstepd")
        rank = 2 if helper else 0 if "task_" in step else 1
        return rank, process.started, process.pid

    def _groups(self, process: Process) -> Groups:
        return self._processes.groups[process.cgroup] if process.cgroup >= 0 else Groups(None, {})

    def _rootless(self, identity: Identity, leading: Process | None) -> Reading[bool]:
        """Whether an ordinary user runs it: below that user's slice, or with that user mapped alone (user_namespaces(7))."""
        if identity.user:
            return True
        spaces = self._spaces(leading)
        if leading is None or spaces is None or self._host is None or not _differ(spaces.user, self._host.user):
            return False
        file = self._raw.read(f"/proc/{leading.pid}/uid_map")
        if not isinstance(file, TextFile):
            return file if isinstance(file, Unread) else False
        lines = (line.split() for line in file.text.splitlines())
        return any(len(words) == 3 and words[2] == "1" and words[1] != "0" for words in lines)

    def _read_from(self, process: Process, files: Files | None) -> dict[str, Evidence]:
        groups = self._groups(process)
        shows = groups.devices if groups.devices not in (None, "/") else groups.unified or "/"
        said = {"cgroup": Evidence(f"/proc/{process.pid}/cgroup", shows or "/")}
        if files is not None and isinstance(files.config, OciConfig):
            said |= files.config.read_from
        return said


def _unit_key(identity: Identity) -> str:
    """Two users may have units of the same name."""
    key = key_of(identity.kind, identity.engine, identity.id)
    own = identity.user is not None and identity.kind in (GroupKind.SERVICE, GroupKind.SCOPE)
    return f"{identity.user}/{key}" if own else key


def _differ(one: int, other: int) -> bool:
    """Two namespaces, 0 standing for one that is not known."""
    return bool(one and other and one != other)


def _by_start(process: Process) -> tuple[int, int]:
    return process.started, process.pid


def _first(annotations: Mapping[str, str], names: Iterable[str]) -> str:
    return next((annotations[name] for name in names if annotations.get(name)), "")


def _engine(files: Files) -> str:
    """Of a container whose group has only its id: which engine's folder holds it."""
    if not files.namespace:
        return ""
    return "docker" if files.namespace == DOCKER_NAMESPACE else "containerd"


def _pod_name(identity: Identity, annotations: Mapping[str, str]) -> PodName | None:
    """What the path and the annotations tell together."""
    uid = identity.pod.uid if identity.pod is not None else _first(annotations, POD_UID)
    if not uid:
        return None
    return PodName(
        uid=uid,
        qos=identity.pod.qos if identity.pod is not None else "",
        namespace=_first(annotations, POD_NAMESPACE),
        name=_first(annotations, POD_NAME),
        container=_first(annotations, CONTAINER_NAME),
    )


def _words(layer: Layer) -> str:
    return f"{layer.engine or 'container'} {short(layer.id)}"
