"""What the cgroup of each container and job that concerns GPUs lets it do with a device."""

from collections.abc import Mapping

from gpudoctor.facts.cgroup_places import CgroupMounts, CgroupPlace
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.device_rules import CgroupRules, DeviceRules
from gpudoctor.facts.gpu_workloads import GpuWorkloads
from gpudoctor.facts.raw import Absent, Raw, TextFile
from gpudoctor.facts.workload import Workload
from gpudoctor.verdicts import Unread, Why

MOUNTINFO = ("/proc/1/mountinfo", "/proc/self/mountinfo")
"""The node's own mounts: of the first process, which hides them from whoever may not trace it (proc_pid_mountinfo(5)), or of the reader."""


class WorkloadRules(Fact, frozen=True):
    """The rules of the members of GpuWorkloads by key: of the cgroup of each one's leading process, where its own are enforced."""

    by_key: Mapping[str, CgroupRules | Unread]

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadRules | Unread":
        """One question for all of them, none where no workload concerns GPUs."""
        concerned = desk.get(GpuWorkloads)
        if isinstance(concerned, Unread):
            return concerned
        if not concerned.workloads:
            return cls(by_key={})
        mounts = _mounts(desk.raw)
        if isinstance(mounts, Unread):
            return cls(by_key=dict.fromkeys((one.workload.key for one in concerned), mounts))
        places = {one.workload.key: _place(mounts, one.workload) for one in concerned}
        rules = DeviceRules.read(desk.raw, (place for place in places.values() if isinstance(place, CgroupPlace)))
        return cls(
            by_key={
                key: rules.by_place[place] if isinstance(place, CgroupPlace) else place for key, place in places.items()
            }
        )

    def of(self, one: Workload) -> CgroupRules | Unread:
        """The rules that hold for a workload."""
        where = f"/proc/{one.pid}/cgroup"
        return self.by_key.get(one.key) or Unread(Why.NOT_RECORDED, where, f"{one.title} was not asked about")


def _mounts(raw: Raw) -> CgroupMounts | Unread:
    """Where the hierarchies are mounted on the node."""
    unread: Unread | None = None
    for path in MOUNTINFO:
        file = raw.read(path)
        if isinstance(file, TextFile):
            return CgroupMounts.parsed(file.text)
        unread = unread or (file if isinstance(file, Unread) else None)
    return unread or Unread(Why.UNREADABLE, MOUNTINFO[0], Absent(MOUNTINFO[0]).detail)


def _place(mounts: CgroupMounts, one: Workload) -> CgroupPlace | Unread:
    """Where its leading process stands; a file of groups without any line tells nothing."""
    where = f"/proc/{one.pid}/cgroup"
    if one.groups.unified is None and not one.groups.controllers:
        return Unread(Why.NOT_RECORDED, where, "the cgroup of the process is not known")
    return mounts.place(one.groups.unified, one.groups.devices, where)
