"""Where the kubelet's managers of topology and CPUs refuse pods that ask for GPUs."""

from collections.abc import Iterator, Mapping

from gpudoctor.chain import Link
from gpudoctor.checks.kubelet import nothing_to_ask
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.kubelet import KubeletSettings, Setting
from gpudoctor.facts.kubelet_checkpoint import KubeletCheckpoint
from gpudoctor.facts.plugin_sockets import PluginSockets
from gpudoctor.facts.pod_resources import own_id
from gpudoctor.facts.resource_managers import CpuState, ResourceManagers
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Evidence,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)


@check(
    "device-plugin.topology-fits",
    link=Link.DEVICE_PLUGIN,
    advisory=True,
    title="Where the kubelet insists on one NUMA node, GPUs and CPUs can be had together",
)
def topology_fits(
    managers: ResourceManagers,
    sockets: PluginSockets,
    checkpoint: Reading[KubeletCheckpoint],
    settings: KubeletSettings,
) -> Verdicts:
    """With the policy single-numa-node or restricted the kubelet refuses a pod rather than give it GPUs and CPUs that lie apart.

    The pod ends with TopologyAffinityError, and its controller makes another that ends the same way. Under the static CPU policy this
    happens when a NUMA node has GPUs left and no whole CPUs, or when a GPU tells no NUMA node on a node that has several, or when a pod
    asks for more than one NUMA node has at all. Free CPUs are those of cpu_manager_state's defaultCpuSet without the reserved ones, free
    GPUs those that are in no entry of the kubelet's checkpoint. Other policies refuse nothing, and pods that ask for parts of CPUs are
    not bound to any.
    """
    if (nothing := nothing_to_ask(sockets)) is not None:
        yield nothing
    elif isinstance(managers.policy, Unread):
        yield managers.policy.about(NODE)
    elif managers.policy is None or not managers.refuses:
        told = () if managers.policy is None else (managers.policy.evidence,)
        yield NotApplicable(NODE, "the topology manager refuses no pod", told)
    else:
        yield _topology(managers, managers.policy, checkpoint, settings)


def _topology(
    managers: ResourceManagers, policy: Setting, checkpoint: Reading[KubeletCheckpoint], settings: KubeletSettings
) -> Verdict:
    from gpudoctor.knowledge.kubelet_remedies import SMALLER_REQUEST, relax_policy

    remedies = (SMALLER_REQUEST, relax_policy(policy.value, settings.unit))
    gpus, cpus = managers.gpus, managers.cpus
    if managers.refused:
        summary = f"pods were refused because GPUs and CPUs were not to be had together ({policy.value})"
        return Warn(NODE, summary, (*managers.refused, policy.evidence), remedies, cause="refused")
    unread = next((one for one in (gpus, cpus, managers.cpu_policy, managers.state) if isinstance(one, Unread)), None)
    if isinstance(gpus, Unread) or isinstance(cpus, Unread) or unread is not None:
        return (unread or Unread(Why.NOT_ANSWERED, "NUMA nodes", "are not known")).about(NODE)
    if not gpus:
        return NotApplicable(NODE, "no GPU on the PCI bus", (policy.evidence,))
    if astray := sorted(address for address, node in gpus.items() if node < 0 and len(cpus) > 1):
        summary = (
            f"{len(astray)} of {len(gpus)} GPUs tell no NUMA node: the kubelet gives them away without regard to CPUs"
        )
        evidence = tuple(Evidence(f"/sys/bus/pci/devices/{address}/numa_node", "-1") for address in astray[:4])
        return Warn(NODE, summary, (*evidence, policy.evidence), remedies, cause="no-numa-node")
    counted = Evidence("/sys/bus/pci/devices/*/numa_node", ", ".join(_gpus_by_node(gpus)))
    if not isinstance(managers.state, CpuState):
        return Pass(NODE, f"only GPUs are bound to NUMA nodes ({policy.value})", (policy.evidence, counted))
    return _with_cpus(managers, policy, managers.state, _free_gpus(gpus, checkpoint), counted, remedies)


def _gpus_by_node(gpus: Mapping[str, int]) -> Iterator[str]:
    for node in sorted(set(gpus.values())):
        yield f"NUMA node {node}: {_number(list(gpus.values()).count(node), 'GPU')}"


def _free_gpus(gpus: Mapping[str, int], checkpoint: Reading[KubeletCheckpoint]) -> Mapping[int, int] | Unread:
    """By NUMA node; whole GPUs only, for parts of them have ids of their own."""
    if isinstance(checkpoint, Unread):
        return checkpoint
    held: dict[int, set[str]] = {}
    for entry in checkpoint.held:
        for node, ids in entry.by_numa.items():
            if node is not None and entry.resource == "nvidia.com/gpu":
                held.setdefault(node, set()).update(own_id(one) for one in ids)
    return {node: max(list(gpus.values()).count(node) - len(held.get(node, ())), 0) for node in set(gpus.values())}


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _with_cpus(
    managers: ResourceManagers,
    policy: Setting,
    state: CpuState,
    free: Mapping[int, int] | Unread,
    counted: Evidence,
    remedies: tuple[Remedy, ...],
) -> Verdict:
    if isinstance(free, Unread):
        return free.about(NODE)
    known = {} if isinstance(managers.cpus, Unread) else managers.cpus
    if strange := sorted(set(free) - set(known) - {-1}):
        return Unknown(NODE, Why.NOT_RECORDED, f"the CPUs of NUMA node {strange[0]} are not known", (counted,))
    evidence = (policy.evidence, state.evidence, counted)
    words = ", ".join(
        f"NUMA node {node} has {_number(number, 'GPU')} and {_number(len(managers.free(node)), 'CPU')} left"
        for node, number in sorted(free.items())
    )
    starved = [node for node, number in free.items() if number and not managers.free(node) and node >= 0]
    if starved:
        summary = f"{words}: a pod that asks for a GPU there and for whole CPUs is refused ({policy.value})"
        return Warn(NODE, summary, evidence, remedies, cause="no-cpus")
    return Pass(NODE, f"{words} ({policy.value})", evidence)
