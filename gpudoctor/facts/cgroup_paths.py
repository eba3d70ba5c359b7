"""Control groups: what the path of one stands for. Pure text, no file is read here.

Sources: opencontainers/runc docs/systemd.md (`slice:prefix:name` becomes PREFIX-NAME.scope), moby daemon/oci_linux.go (/docker/ID, or
system.slice:docker:ID), containerd internal/cri/server getCgroupsPath (SLICE:cri-containerd:ID, which stays one name where the runtime
does not use systemd), cri-o internal/config/cgmgr (crio-ID, crio-conmon-ID), containers/podman libpod/container_internal_linux.go and
oci_conmon_linux.go (libpod-ID, libpod-payload-ID with split groups, libpod-conmon-ID, /libpod_parent), nerdctl pkg/cmd/container
(nerdctl-ID), kubernetes pkg/kubelet/cm/cgroup_manager_linux.go and qos_container_manager_linux.go (kubepods, QoS classes, `-` written
`_` under systemd; a static pod's uid is the hash of its configuration, 32 digits), lxc src/lxc/cgroups/cgfsng.c (lxc.payload.NAME,
lxc.monitor.NAME, older /lxc/NAME), systemd-nspawn(1) and machinectl(1) (machine-NAME.scope), Slurm cgroup_v2.html and cgroups.html,
systemd.unit(5) (\\x2d stands for a dash), cgroup_namespaces(7) (/../ above the reader's own root), cgroups(7) and
Documentation/admin-guide/cgroup-v2.rst (" (deleted)"). The kernel refuses names with a line feed (cgroup_mkdir).
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

from gpudoctor.patterns import pattern


class GroupKind(str, Enum):
    """What a control group holds."""

    CONTAINER = "container"
    POD = "pod"
    MONITOR = "monitor"
    MACHINE = "machine"
    JOB = "job"
    SERVICE = "service"
    SCOPE = "scope"
    SESSION = "session"
    OTHER = "other"


class PodGroup(Struct, frozen=True):
    """The pod a container belongs to: its uid with dashes, and its class of service, "" where the path does not tell it."""

    uid: str
    qos: str = ""


class Layer(Struct, frozen=True):
    """One stretch of a path that stands for something, up to a depth in names; `engine` is "" where the name could be of several."""

    kind: GroupKind
    engine: str
    id: str
    depth: int
    pod: PodGroup | None = None


class Identity(Struct, frozen=True):
    """What a path stands for: its innermost container, else job, monitor or unit, and where that begins.

    `own` is the path of that group itself, below which processes may lie deeper. `unit` is the unit that the node's systemd manages for
    it, "" without one, and `user` whose user manager or session that is. `around` are the containers it lies in, outermost first.
    `above` counts the steps that lead out of the reader's own control group: then the path is only the end of the real one.
    """

    kind: GroupKind
    engine: str = ""
    id: str = ""
    own: str = "/"
    unit: str = ""
    user: int | None = None
    pod: PodGroup | None = None
    step: str = ""
    around: tuple[Layer, ...] = ()
    above: int = 0
    deleted: bool = False


NOWHERE = Identity(GroupKind.OTHER)
DELETED = " (deleted)"
_ID_LETTERS = 64
_ID = rf"([0-9a-f]{{{_ID_LETTERS}}})"
_POD_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_KUBEPODS = rf"(?:[\w-]+-)?kubepods(?:-(besteffort|burstable))?-pod({_POD_UID}|\w+)\.slice"

_RULES: tuple[tuple[str, GroupKind, str, str], ...] = (
    # Name of the rule, what it stands for, the engine, the form of one name; its first group is the id.
    ("conmon", GroupKind.MONITOR, "podman", rf"libpod-conmon-{_ID}(?:\.scope)?"),
    ("crioconmon", GroupKind.MONITOR, "cri-o", rf"crio-conmon-{_ID}(?:\.scope)?"),
    ("docker", GroupKind.CONTAINER, "docker", rf"docker-{_ID}\.scope"),
    ("containerd", GroupKind.CONTAINER, "containerd", rf"(?:cri-containerd|nerdctl)-{_ID}\.scope"),
    ("crio", GroupKind.CONTAINER, "cri-o", rf"crio-{_ID}(?:\.scope)?"),
    ("podman", GroupKind.CONTAINER, "podman", rf"libpod-(?:payload-)?{_ID}(?:\.scope)?"),
    ("plain", GroupKind.CONTAINER, "", _ID),
    ("lxcmonitor", GroupKind.MONITOR, "lxc", r"lxc\.monitor[.-](.+)"),
    ("lxc", GroupKind.CONTAINER, "lxc", r"lxc\.payload[.-](.+)"),
    ("libvirtlxc", GroupKind.CONTAINER, "libvirt", r"machine-(lxc\\x2d.+)\.scope"),
    ("qemu", GroupKind.MACHINE, "libvirt", r"machine-(qemu\\x2d.+)\.scope"),
    ("nspawn", GroupKind.CONTAINER, "systemd-nspawn", r"(?:machine-|systemd-nspawn@)(.+)\.(?:scope|service)"),
    ("session", GroupKind.SESSION, "systemd", r"session-(\w+)\.scope"),
    ("scope", GroupKind.SCOPE, "systemd", r"(.+)\.scope"),
    ("service", GroupKind.SERVICE, "systemd", r"(.+)\.service"),
)
_NAME = pattern("|".join(f"(?P<{rule}>{form})" for rule, _, _, form in _RULES))
_BY_RULE = {rule: (kind, engine) for rule, kind, engine, _ in _RULES}

_JOINED = pattern(rf"({_KUBEPODS}):(cri-containerd|crio|docker):{_ID}")
_JOINED_ENGINES = {"cri-containerd": "containerd", "crio": "cri-o", "docker": "docker"}
_POD_SLICE = pattern(_KUBEPODS)
_POD_FOLDER = pattern(rf"pod({_POD_UID})")
_USER = pattern(r"user[-@](\d{1,10})\.(?:slice|service)")
_SLURM = pattern(r"slurm(?:_\S+)?|(?:\S+_)?slurmstepd\.scope")
_JOB = pattern(r"job_(\d{1,12})")
_QOS = ("besteffort", "burstable")
_ESCAPED = pattern(r"\\x([0-9a-f]{2})")
_PARENTS = {"buildkit": "buildkit", "lxc": "lxc", "lxc.payload": "lxc", "lxc.monitor": "lxc"}
"""Folders whose entries are containers of an engine, whatever they are called."""


def unescaped(unit: str) -> str:
    """A unit's name with dashes and others as they were (systemd.unit(5))."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), unit)


def identify(path: str) -> Identity:
    """What one path stands for."""
    deleted = path.endswith(DELETED)
    names = path.removesuffix(DELETED).strip("/").split("/")
    above = sum(name == ".." for name in names)
    names = [name for name in names if name not in ("", "..")]
    layers = _layers(names)
    unit, user = _managed_by(names, layers)
    if not layers:
        return Identity(GroupKind.OTHER, own="/" + "/".join(names), user=user, above=above, deleted=deleted)
    containers = [layer for layer in layers if layer.kind is GroupKind.CONTAINER]
    layer = containers[-1] if containers else max(layers, key=_rank)
    return Identity(
        kind=layer.kind,
        engine=layer.engine,
        id=layer.id,
        own="/" + "/".join(names[: layer.depth]),
        unit=unit,
        user=user,
        pod=layer.pod,
        step=_step(names[layer.depth :]) if layer.kind is GroupKind.JOB else "",
        around=tuple(other for other in containers if other.depth < layer.depth),
        above=above,
        deleted=deleted,
    )


_RANKS = (
    (GroupKind.POD,),
    (GroupKind.SERVICE, GroupKind.SCOPE, GroupKind.SESSION),
    (GroupKind.MONITOR, GroupKind.MACHINE),
    (GroupKind.JOB,),
)


def _rank(layer: Layer) -> tuple[int, int]:
    """What a path without containers is about: a job before a monitor before a unit, the innermost of each."""
    return next(rank for rank, kinds in enumerate(_RANKS) if layer.kind in kinds), layer.depth


def _layers(names: Sequence[str]) -> list[Layer]:
    """All that a path's names stand for, from the top."""
    layers: list[Layer] = []
    pod: PodGroup | None = None
    slurm = False
    for at, name in enumerate(names):
        # Thousands of paths go through here: no form is tried on a name that cannot have it.
        slurm = slurm or ("slurm" in name and _SLURM.fullmatch(name) is not None)
        if slurm and (job := _JOB.fullmatch(name)):
            layers.append(Layer(GroupKind.JOB, "slurm", job[1], at + 1))
        elif ":" in name and (joined := _JOINED.fullmatch(name)):
            pod = PodGroup(joined[3].replace("_", "-"), joined[2] or "guaranteed")
            layers.append(Layer(GroupKind.CONTAINER, _JOINED_ENGINES[joined[4]], joined[5], at + 1, pod))
        elif "pod" in name and (found := _pod(name, names[:at])) is not None:
            pod = found
            layers.append(Layer(GroupKind.POD, "kubelet", pod.uid, at + 1, pod))
        elif not name.endswith(".slice") and (layer := _named(name, names[at - 1] if at else "", at + 1, pod)):
            layers.append(layer)
            pod = None if layer.kind is GroupKind.CONTAINER else pod
    return layers


def _pod(name: str, above: Sequence[str]) -> PodGroup | None:
    """A pod's group: a slice under systemd, else a folder below kubepods, of which a reader inside a pod may see only the end."""
    if found := _POD_SLICE.fullmatch(name):
        return PodGroup(found[2].replace("_", "-"), found[1] or "guaranteed")
    if found := _POD_FOLDER.fullmatch(name):
        return PodGroup(found[1], above[-1] if above and above[-1] in _QOS else "guaranteed" if above else "")
    return None


def _named(name: str, above: str, depth: int, pod: PodGroup | None) -> Layer | None:
    """What one name stands for by itself or by the folder it lies in."""
    if above == "libpod_parent" and len(name) == _ID_LETTERS:
        # A pod of podman's: containers lie below it.
        return None
    if above in _PARENTS and not name.endswith((".scope", ".service", ".slice")):
        kind = GroupKind.MONITOR if above == "lxc.monitor" else GroupKind.CONTAINER
        return Layer(kind, _PARENTS[above], name, depth, pod)
    found = _NAME.fullmatch(name)
    if found is None or found.lastgroup is None:
        return None
    kind, engine = _BY_RULE[found.lastgroup]
    engine = "docker" if above == "docker" and kind is GroupKind.CONTAINER else engine
    return Layer(kind, engine, _id(found, kind), depth, pod if kind is GroupKind.CONTAINER else None)


def _id(found: "re.Match[str]", kind: GroupKind) -> str:
    """A unit is known by its whole name as systemctl takes it, anything else by the part that names it."""
    if kind in (GroupKind.SCOPE, GroupKind.SERVICE, GroupKind.SESSION):
        return found[0]
    return unescaped(found[(found.lastindex or 0) + 1])


def _managed_by(names: Sequence[str], layers: Sequence[Layer]) -> tuple[str, int | None]:
    """The last unit on the way to the outermost container or job, and the user whose manager or slice it lies under."""
    inner = next((layer.depth for layer in layers if layer.kind in (GroupKind.CONTAINER, GroupKind.JOB)), len(names))
    unit, user = "", None
    for name in names[:inner]:
        if name.startswith("user") and (found := _USER.fullmatch(name)):
            user = int(found[1])
        if name.endswith((".service", ".scope")):
            unit = name
    return unit, user


def _step(below: Sequence[str]) -> str:
    """Step and task of a job, `step_0/task_1`; "slurm" is where slurmstepd itself runs (cgroup_v2.html)."""
    return "/".join(name for name in below if name.startswith(("step_", "task_")) or name == "slurm")


class Groups(Struct, frozen=True):
    """The groups of a process: the unified one (None without it), those of v1 by controller, `name=systemd` among them."""

    unified: str | None
    controllers: Mapping[str, str]

    @property
    def devices(self) -> str | None:
        """The group whose device rules count under v1, None where v2 decides."""
        return self.controllers.get("devices")


_SYSTEMD = "name=systemd"
_BEFORE, _AFTER = ("devices",), (_SYSTEMD, "memory", "pids")
"""Which v1 controllers to ask before and after the unified group: devices are what this is about, and an engine makes one for them."""
_WEIGHT = {
    GroupKind.CONTAINER: 4,
    GroupKind.JOB: 4,
    GroupKind.MONITOR: 4,
    GroupKind.MACHINE: 4,
    GroupKind.POD: 3,
    GroupKind.SERVICE: 2,
    GroupKind.SCOPE: 2,
    GroupKind.SESSION: 2,
    GroupKind.OTHER: 1,
}


PATH_MAX = 4096
"""No path of the kernel's is longer (include/uapi/linux/limits.h)."""


def parse_groups(text: str) -> Groups:
    """The lines of /proc/PID/cgroup: `hierarchy:controllers:path` (cgroups(7))."""
    unified: str | None = None
    controllers: dict[str, str] = {}
    for line in text.split("\n"):
        number, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if not colon or not path.startswith("/") or len(path) > PATH_MAX:
            continue
        if number == "0" and not names:
            unified = path
        for name in names.split(",") if names else ():
            controllers[name] = path
    return Groups(unified, controllers)


def identify_all(groups: Groups, known: dict[str, Identity]) -> Identity:
    """What a process's groups say together: in a mixed hierarchy one of them may only name the unit of the engine.

    `known` keeps what each path stands for: most processes share theirs.
    """
    paths = [groups.controllers[name] for name in _BEFORE if name in groups.controllers]
    paths += [groups.unified] if groups.unified is not None else []
    paths += [groups.controllers[name] for name in _AFTER if name in groups.controllers]
    best = NOWHERE
    for path in dict.fromkeys(paths or groups.controllers.values()):
        found = known.get(path)
        if found is None:
            found = known[path] = identify(path)
        if _weight(found) > _weight(best):
            best = found
    return best


def _weight(identity: Identity) -> int:
    return 0 if identity.own == "/" else _WEIGHT[identity.kind]
