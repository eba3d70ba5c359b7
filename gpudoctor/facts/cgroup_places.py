"""Where a process stands in the hierarchies that hold device rules: from its paths and the mounts (cgroups(7), proc(5)).

On cgroup v2 eBPF programs rule, on v1 the list of the controller `devices`; a node can have both hierarchies, and then both must allow
(devcgroup_check_permission in security/device_cgroup.c asks the programs first, then the list).
"""

from msgspec import Struct

from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Unread, Why

_OCTAL = pattern(r"\\([0-7]{3})")
DELETED = " (deleted)"
MOUNT = "/sys/fs/cgroup"
TYPES = ("cgroup", "cgroup2")
DEEPEST = 100
"""How many mounts may lie in each other."""


class CgroupPlace(Struct, frozen=True):
    """The directories of a process's cgroups. None: the kernel has no such hierarchy, so that nothing in it rules; Unread: it has one.

    `mount` is where the unified hierarchy is mounted: no cgroup lies above it.
    """

    unified: str | Unread | None = None
    devices: str | Unread | None = None
    mount: str = MOUNT

    @property
    def above(self) -> tuple[str, ...]:
        """The unified cgroups that this one lies in, the nearest first."""
        if not isinstance(self.unified, str) or self.unified == self.mount:
            return ()
        names = self.unified.removeprefix(self.mount).strip("/").split("/")
        return tuple(f"{self.mount}/{'/'.join(names[:length])}".rstrip("/") for length in range(len(names) - 1, -1, -1))


class _Mount(Struct, frozen=True):
    """A mount by the ids of proc(5): `root` is what of its file system lies at the mount point."""

    number: str
    parent: str
    root: str
    point: str
    type: str
    options: tuple[str, ...]

    def directory(self, cgroup: str) -> str | None:
        """Where a cgroup's directory is, None when it lies outside of what is mounted."""
        root = self.root.rstrip("/")
        inside = cgroup == root or cgroup.startswith(f"{root}/")
        return (self.point + cgroup[len(root) :]).rstrip("/") if inside else None


class CgroupMounts(Struct, frozen=True):
    """Where the hierarchies that hold device rules are mounted, by a /proc/PID/mountinfo."""

    unified: tuple[_Mount, ...]
    devices: tuple[_Mount, ...]

    @classmethod
    def parsed(cls, mountinfo: str) -> "CgroupMounts":
        """Those that are not hidden by what is mounted over them."""
        mounts = {mount.number: mount for line in mountinfo.splitlines() if (mount := _mount(line)) is not None}
        points: dict[str, set[str]] = {}
        for mount in mounts.values():
            points.setdefault(mount.parent, set()).add(mount.point)
        seen = [mount for mount in mounts.values() if mount.type in TYPES and not _hidden(mount, mounts, points)]
        return cls(
            unified=tuple(mount for mount in seen if mount.type == "cgroup2"),
            devices=tuple(mount for mount in seen if mount.type == "cgroup" and "devices" in mount.options),
        )

    def place(self, unified: str | None, devices: str | None, where: str) -> CgroupPlace:
        """Where the process stands that has these paths in /proc/PID/cgroup, read at `where`; None is a line that is missing.

        The line 0 is missing until the unified hierarchy is mounted for the first time, so that nothing can be attached to it
        (proc_cgroup_show in kernel/cgroup/cgroup.c), a controller where it is in no hierarchy of v1.
        """
        found, mount = _found(self.unified, unified, where, "cgroup2")
        listed, _ = _found(self.devices, devices, where, "the cgroup controller devices")
        return CgroupPlace(unified=found, devices=listed, mount=mount or MOUNT)


def _found(
    mounts: tuple[_Mount, ...], cgroup: str | None, where: str, hierarchy: str
) -> tuple[str | Unread | None, str | None]:
    """A cgroup's directory, and the mount point above it."""
    if cgroup is None:
        return None, None
    trouble = f"{cgroup} of {hierarchy} is mounted nowhere here"
    if cgroup.startswith("/.."):
        trouble = f"{cgroup} lies outside of the cgroup namespace that this is read in"
    elif cgroup.endswith(DELETED):
        trouble = f"{cgroup}: its rules still hold but can be read no more"
    else:
        for mount in mounts:
            directory = mount.directory(cgroup)
            if directory is not None:
                return directory, mount.point
    return Unread(Why.UNREADABLE, where, trouble), None


def _mount(line: str) -> _Mount | None:
    """Fields of proc(5): ids of mount and parent, device, root, mount point; after a lone dash the type, the source, the options."""
    words, _, rest = line.partition(" - ")
    fields, last = words.split(" "), rest.split(" ")
    if len(fields) < 5 or len(last) < 3:
        return None
    return _Mount(
        fields[0], fields[1], _unescaped(fields[3]), _unescaped(fields[4]), last[0], tuple(last[2].split(","))
    )


def _hidden(mount: _Mount, mounts: dict[str, _Mount], points: dict[str, set[str]]) -> bool:
    """Whether something is mounted right over it, or over a part of the way to it in one of the mounts that it lies in."""
    if mount.point in points.get(mount.number, ()):
        return True
    at: _Mount | None = mount
    for _ in range(DEEPEST):
        if at is None:
            return False
        beside = points.get(at.parent, set())
        upper = at.point
        while upper != "/":
            upper = upper.rpartition("/")[0] or "/"
            if upper in beside:
                return True
        at = mounts.get(at.parent) if at.parent != at.number else None
    return True


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
