"""Recipes that do not work, recognised in what containers were started with: variables nobody reads, and ways to GPUs that lead nowhere.

What each is about and where that is said: knowledge/myths.py. Kubernetes' allocations are those of the kubelet's own checkpoint
(kubernetes pkg/kubelet/cm/devicemanager/checkpoint).
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.gpu_variables import CAPABILITIES, CUDA_VISIBLE, VISIBLE, Asked, Variables, asked_by
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.kubelet_engine import CHECKPOINT
from gpudoctor.facts.mounts import Mounts
from gpudoctor.facts.oci_config import DockerContainer, OciConfig
from gpudoctor.facts.raw import Absent, Raw, TextFile, decimal
from gpudoctor.facts.workload_devices import Devices, is_job
from gpudoctor.facts.workload_requirements import Environment, environment_of
from gpudoctor.knowledge.myths import MISSPELT, Myth
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

_WITH_COMPUTE = ("all", "compute")
_CAPABILITY = pattern(r"/dev/nvidia-caps/nvidia-cap(?:[3-9]|\d{2,})")


class Recipe(Struct, frozen=True):
    """One of them, in words that follow the container's name."""

    myth: Myth
    words: str
    evidence: Cited


class WorkloadRecipes(Fact, frozen=True):
    """By key: what was recognised, and the environment it was looked for in."""

    by_key: Mapping[str, tuple[Recipe, ...]]
    environments: Mapping[str, tuple[Environment, str]]

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadRecipes | Unread":
        """The kubelet's checkpoint and the libraries inside are looked at only where a container raises the question."""
        concerned = desk.get(GpuWorkloads)
        if isinstance(concerned, Unread):
            return concerned
        seeker = _Seeker(desk.raw)
        environments = {one.workload.key: environment_of(one) for one in concerned}
        found = {one.workload.key: tuple(seeker.recipes(one, *environments[one.workload.key])) for one in concerned}
        return cls(by_key=found, environments=environments)


class _Entry(Struct, rename="pascal"):
    pod_uid: str = msgspec.field(default="", name="PodUID")
    resource_name: str = ""


class _Data(Struct, rename="pascal"):
    pod_device_entries: tuple[_Entry, ...] | None = None


class _Checkpoint(Struct, rename="pascal"):
    data: _Data


class _Seeker:
    """Looks for all of them in one workload after the other."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._asked = False
        self._pods: frozenset[str] | None = None

    def recipes(self, one: GpuWorkload, said: Environment, where: str) -> Iterator[Recipe]:
        """In one workload."""
        if not isinstance(said, Variables):
            return
        yield from _unread_variables(said, where)
        yield from _number_of_the_host(one, said, where)
        yield from self._privileged_alone(one, said)
        yield from self._round_the_plugin(one, said, where)

    def _privileged_alone(self, one: GpuWorkload, said: Variables) -> Iterator[Recipe]:
        """Nodes by privilege, a wish in the environment, and nothing of the driver mounted or inside."""
        config, devices = one.workload.config, one.devices
        if not isinstance(config, OciConfig) or not config.allows_everything or config.legacy_hook or config.edited:
            return
        if not isinstance(devices, Devices) or not isinstance(devices.mounts, Mounts) or one.manages_gpus:
            return
        mounted = devices.mounts.libraries or devices.mounts.folders or config.libraries
        asked = isinstance(one.workload.docker, DockerContainer) and one.workload.docker.requests
        values = said.all(VISIBLE)
        wants = bool(values) and asked_by(values[0]) is not Asked.NOTHING and _with_compute(said)
        if mounted or asked or not wants or not devices.minors:
            return
        from gpudoctor.facts.inner_libraries import CUDA, look_for_libraries

        inside = look_for_libraries(self._raw, one.workload.pid, (one.workload.pid,), (), ())
        if inside.of(CUDA) or inside.mapped_as(CUDA):
            return
        words = (
            "it is privileged and so has the nodes of the GPUs, but none of the driver's libraries was mounted into it"
        )
        seen = (Evidence(config.path, "linux.resources.devices allows everything"), *devices.cite("nodes", "mounts"))
        yield Recipe(Myth.PRIVILEGED_ALONE, words, seen)

    def _round_the_plugin(self, one: GpuWorkload, said: Variables, where: str) -> Iterator[Recipe]:
        """A pod whose image says all, which has GPUs, and to which the kubelet gave none."""
        pod, config, devices = one.workload.pod, one.workload.config, one.devices
        if pod is None or not pod.name or one.manages_gpus or not isinstance(config, OciConfig):
            return
        if config.allows_everything or config.requests or config.plugin_devices or not isinstance(devices, Devices):
            return
        values = config.variables.all(VISIBLE)
        if not values or asked_by(values[0]) is not Asked.ALL or not devices.minors or not _with_compute(said):
            return
        given = self._pods_with_gpus()
        if given is None or pod.uid in given:
            return
        count = len(devices.minors)
        words = f"{VISIBLE}=all, which images of CUDA set, gave it {count} GPU{'s' * (count != 1)} that the kubelet did not allocate to it"
        listed = Evidence(CHECKPOINT, f"has no device of NVIDIA for pod {pod.uid}")
        yield Recipe(
            Myth.ROUND_THE_PLUGIN, words, (Evidence(where, f"{VISIBLE}={values[0]}"), listed, *devices.cite("nodes"))
        )

    def _pods_with_gpus(self) -> frozenset[str] | None:
        """The uids of pods that have devices of NVIDIA, None where that is not known."""
        if not self._asked:
            self._asked = True
            self._pods = _allocated(self._raw.read(CHECKPOINT))
        return self._pods


def _allocated(file: TextFile | Absent | Unread) -> frozenset[str] | None:
    if not isinstance(file, TextFile) or file.truncated:
        return None
    try:
        checkpoint = msgspec.json.decode(file.text, type=_Checkpoint)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    entries = checkpoint.data.pod_device_entries or ()
    return frozenset(entry.pod_uid for entry in entries if "nvidia.com/" in entry.resource_name)


def _with_compute(said: Variables) -> bool:
    value = said.get(CAPABILITIES)
    return not value or any(word.strip() in _WITH_COMPUTE for word in value.split(","))


def _unread_variables(said: Variables, where: str) -> Iterator[Recipe]:
    """Names that nothing of NVIDIA's reads."""
    for name, myth in (("NVIDIA_MPS", Myth.MPS_SWITCH), ("CUDA_MAX_CONNECTIONS", Myth.CONNECTIONS)):
        value = said.get(name)
        if value is not None:
            yield Recipe(myth, f"{name} is read by no program of NVIDIA's", (Evidence(where, f"{name}={value}"),))
    for name, right in MISSPELT.items():
        value = said.get(name)
        if value is not None and said.get(right) is None:
            words = f"{name} is read by nobody, {right} is the name"
            yield Recipe(Myth.MISSPELT, words, (Evidence(where, f"{name}={value}"),))


def _number_of_the_host(one: GpuWorkload, said: Variables, where: str) -> Iterator[Recipe]:
    """An index in CUDA_VISIBLE_DEVICES beyond what is inside: it hides itself and all behind it. In MIG mode libcuda counts otherwise."""
    devices, value = one.devices, said.get(CUDA_VISIBLE)
    if value is None or not isinstance(devices, Devices) or devices.unseen is not None or not devices.minors:
        return
    if is_job(one.workload) or devices.whole_dev or _partitioned(devices):
        return
    count = len(devices.minors)
    for name in (name.strip() for name in value.split(",")):
        index = decimal(name)
        if index is None:
            return
        if index >= count:
            there = "is one" if count == 1 else f"are {count}"
            words = f"{CUDA_VISIBLE}={value} names the GPU of index {index}, and inside there {there}"
            yield Recipe(
                Myth.NUMBER_OF_THE_HOST, words, (Evidence(where, f"{CUDA_VISIBLE}={value}"), *devices.cite("nodes"))
            )
            return


def _partitioned(devices: Devices) -> bool:
    """Whether nodes of MIG instances are inside."""
    return any(_CAPABILITY.fullmatch(node.path) for node in devices.nodes)
