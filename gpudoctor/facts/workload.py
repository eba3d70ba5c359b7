"""A workload: one container, job or unit of the node with what its engine's files tell of it."""

from collections.abc import Sequence

from msgspec import Struct

from gpudoctor.facts.cgroup_paths import GroupKind, Groups, Identity
from gpudoctor.facts.container_files import Files
from gpudoctor.facts.desk import Citable, Reading
from gpudoctor.facts.oci_config import DockerContainer, OciConfig
from gpudoctor.facts.processes import Process
from gpudoctor.facts.raw import Absent
from gpudoctor.verdicts import Subject, SubjectKind, Unread

SHORT = 12
"""Engines abbreviate the 64 digits of an id to as many."""
LOOKED_INTO = (GroupKind.CONTAINER, GroupKind.JOB)
"""Kinds that are asked what they want: a unit of systemd is known by the nodes that its processes hold."""


class PodName(Struct, frozen=True):
    """A pod and one container in it; names are "" where no file tells them."""

    uid: str
    qos: str = ""
    namespace: str = ""
    name: str = ""
    container: str = ""


class Workload(Citable, frozen=True):
    """One container, job or unit with its processes.

    `key` identifies it on its node: the short id of a container, `slurm:JOB`, a unit's name, `pid:N` for a container of which nothing
    tells an id. `leading` is its first process that was set apart from the host's, None where none lives. `inside` is the key of the
    container around it. `cgroup` is the leading process's unified group (below /sys/fs/cgroup, or its `unified`), `devices_cgroup` its
    group of the v1 devices controller; both are None where there is none, and where the reader sees only the end of the path.
    """

    kind: GroupKind
    engine: str
    id: str
    key: str
    identity: Identity
    pids: tuple[int, ...]
    leading: Process | None
    groups: Groups
    name: str = ""
    pod: PodName | None = None
    inside: str = ""
    sandbox: bool = False
    apart: bool | None = None
    rootless: Reading[bool] = False
    files: Files | None = None

    @property
    def subject(self) -> Subject:
        """A container, or a service in the widest sense."""
        kind = SubjectKind.CONTAINER if self.kind is GroupKind.CONTAINER else SubjectKind.SERVICE
        return Subject(kind, self.key, self.title)

    @property
    def title(self) -> str:
        """What people call it: `docker:web`, `default/trainer/main`, `slurm:397`."""
        if self.pod is not None and self.pod.name:
            return "/".join(part for part in (self.pod.namespace, self.pod.name, self.pod.container) if part)
        name = self.name or self.short_id
        return f"{self.engine}:{name}" if self.engine and self.kind in LOOKED_INTO else name

    @property
    def short_id(self) -> str:
        """The id as engines abbreviate it."""
        return short(self.id)

    @property
    def unit(self) -> str:
        """The unit that the node's systemd manages for it, "" without one."""
        return self.identity.unit

    @property
    def cgroup(self) -> str | None:
        """The unified group of the leading process."""
        return self._absolute(self.groups.unified)

    @property
    def devices_cgroup(self) -> str | None:
        """The v1 devices group of the leading process."""
        return self._absolute(self.groups.devices)

    @property
    def config(self) -> OciConfig | Absent | Unread:
        """What its engine told the runtime."""
        return self.files.config if self.files is not None else Absent(f"/proc/{self.pid}")

    @property
    def docker(self) -> DockerContainer | Absent | Unread | None:
        """What dockerd keeps of it, None for another engine's."""
        return self.files.docker if self.files is not None else None

    @property
    def pid(self) -> int:
        """The leading process, 0 without one."""
        return self.leading.pid if self.leading is not None else 0

    def _absolute(self, path: str | None) -> str | None:
        """A path as the node itself has it: what begins with /.. is only the end of one (cgroup_namespaces(7))."""
        return None if path is None or path.startswith("/..") else path


class Pod(Struct, frozen=True):
    """A pod by its containers."""

    uid: str
    namespace: str
    name: str
    containers: tuple[Workload, ...]

    @property
    def subject(self) -> Subject:
        """The pod; it stands on its containers."""
        title = f"{self.namespace}/{self.name}" if self.name else ""
        return Subject(SubjectKind.POD, self.uid, title, stands_on=tuple(one.subject for one in self.containers))


def short(container: str) -> str:
    """An id as engines abbreviate it; a name stays."""
    hexadecimal = len(container) == 64 and all(digit in "0123456789abcdef" for digit in container)
    return container[:SHORT] if hexadecimal else container


def key_of(kind: GroupKind, engine: str, name: str) -> str:
    """What identifies a workload on its node."""
    abbreviated = short(name)
    plain = abbreviated != name or kind not in (GroupKind.CONTAINER, GroupKind.JOB, GroupKind.MACHINE)
    return abbreviated if plain else f"{engine or 'container'}:{name}"


def pod_of(uid: str, members: Sequence[Workload]) -> Pod:
    """A pod out of its containers."""
    names = [one.pod for one in members if one.pod is not None and one.pod.name]
    containers = tuple(one for one in members if not one.sandbox)
    return Pod(uid, names[0].namespace if names else "", names[0].name if names else "", containers)
