"""The workloads that concern GPUs: those that were meant to have one, have one, or do not show whether they do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from gpudoctor.facts.desk import Citable, Desk, Population, Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_variables import Variables
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_devices import Devices, WorkloadDevices
from gpudoctor.facts.workload_wishes import Wishes, WorkloadWishes
from gpudoctor.facts.workloads import Workloads
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Subject, SubjectKind, Unread

_MANAGING = pattern(
    r"(?:kube-|nvidia-|gpu-|gpudoctor|dcgm|node-feature-discovery)|.*(?:device-plugin|dcgm-exporter|gpu-feature-discovery)"
)
"""NVIDIA/gpu-operator assets, DaemonSets with NVIDIA_VISIBLE_DEVICES=all; charts put the name of a release before a component's."""


class GpuWorkload(Citable, frozen=True):
    """A container or job with what it wants and what it has. `gpus` are the GPUs whose nodes it has, as subjects it stands on."""

    workload: Workload
    wishes: Wishes
    devices: Devices | Absent | Unread
    gpus: tuple[Subject, ...] = ()

    @property
    def subject(self) -> Subject:
        """The workload, standing on its GPUs."""
        plain = self.workload.subject
        return Subject(plain.kind, plain.key, plain.name, stands_on=self.gpus)

    @property
    def asked(self) -> bool:
        """Whether somebody meant it to have a GPU."""
        return self.wishes.asked

    @property
    def only_image(self) -> bool:
        """Whether only a variable that images set asks for all: without nodes it is a wish that nobody fulfilled, no fault."""
        return self.wishes.only_image

    @property
    def manages_gpus(self) -> bool:
        """Whether it manages or watches GPUs, by the name of its pod, its namespace or its own: such see all of them on purpose."""
        pod = self.workload.pod
        names = (pod.name, pod.namespace) if pod is not None else (self.workload.name,)
        return any(_MANAGING.match(name) for name in names)

    @property
    def has_gpu(self) -> Reading[bool]:
        """Whether the node of a GPU is in its /dev, whatever the rules allow."""
        if isinstance(self.devices, Unread):
            return self.devices
        if isinstance(self.devices, Absent) or self.devices.minors:
            return not isinstance(self.devices, Absent)
        return self.devices.unseen or False

    @property
    def unseen(self) -> Unread | None:
        """Why it is not known whether it concerns GPUs at all: what it was started with and what it has are both hidden."""
        unread = self.wishes.unread
        if self.has_gpu is False and isinstance(self.wishes.variables, Variables):
            # Its environment asks for none and its /dev has none: what its engine keeps of it can tell no more.
            return None
        return unread[0] if unread and not self.wishes.wishes and self.has_gpu is not True else None


class GpuWorkloads(Population, frozen=True):
    """Containers and jobs that concern GPUs, by key.

    One that hides whether it does is among them: it must not pass for one that does not.
    """

    NOTHING: ClassVar[str] = "no container or job wants or has a GPU"

    workloads: tuple[GpuWorkload, ...]

    @property
    def members(self) -> Sequence[GpuWorkload]:
        """Those that concern GPUs."""
        return self.workloads

    def __iter__(self) -> Iterator[GpuWorkload]:
        return iter(self.workloads)

    @classmethod
    def gather(cls, desk: Desk) -> "GpuWorkloads | Unread":
        """Put together what others read."""
        workloads, devices, wishes = desk.get(Workloads), desk.get(WorkloadDevices), desk.get(WorkloadWishes)
        if isinstance(workloads, Unread):
            return workloads
        if isinstance(devices, Unread):
            return devices
        if isinstance(wishes, Unread):
            return wishes
        driver = desk.get(DriverGpus)
        addresses = {} if isinstance(driver, Unread) else _by_minor(driver)
        found = []
        for one in workloads:
            if one.key in wishes.by_key:
                has = devices.by_key[one.key]
                found.append(_joined(one, wishes.by_key[one.key], has, addresses))
        concerned = (one for one in found if one.wishes.wishes or one.unseen is not None or one.has_gpu is not False)
        return cls(workloads=tuple(concerned), unlisted=workloads.unlisted, read_from=workloads.read_from)


def _by_minor(driver: DriverGpus) -> Mapping[int, str]:
    known = ((gpu.minor, gpu.address) for gpu in driver.gpus.values() if isinstance(gpu, DriverGpu))
    return {minor: address for minor, address in known if minor is not None}


def _joined(
    one: Workload, wishes: Wishes, devices: Devices | Absent | Unread, addresses: Mapping[int, str]
) -> GpuWorkload:
    minors = devices.minors if isinstance(devices, Devices) else ()
    gpus = tuple(Subject(SubjectKind.GPU, addresses[minor]) for minor in minors if minor in addresses)
    seen = devices.read_from if isinstance(devices, Devices) else {}
    return GpuWorkload(
        workload=one,
        wishes=wishes,
        devices=devices,
        gpus=gpus,
        read_from={**one.read_from, **wishes.read_from, **seen},
    )
