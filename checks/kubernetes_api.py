"""What the API server has of this node against what the node is: amounts, labels, RuntimeClasses, DaemonSets. Asked only on request."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.host import Host
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.kubernetes_api import NOT_ASKED, KubernetesApi
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.pod_resources import PodResources
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Subject,
    SubjectKind,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

if TYPE_CHECKING:
    from gpudoctor.facts.kubernetes_objects import ApiNode, DaemonSet

SILENT = "no NVIDIA resource is in the node object, and the kubelet has none"


# The node object -----------------------------------------------------------------------------------------------------


@check(
    "device-plugin.node-object", link=Link.DEVICE_PLUGIN, title="The node object tells of the GPUs that the kubelet has"
)
def node_object(
    api: KubernetesApi, resources: Reading[PodResources], host: Reading[Host], settings: Reading[KubeletSettings]
) -> Verdicts:
    """The scheduler knows only the node object: where that is behind, pods wait for GPUs that are there, or are sent for none.

    What is allocatable in the object is compared, resource by resource, with what the kubelet itself says over PodResources: both
    count healthy devices, whatever a GPU is divided or shared into. A difference means that the kubelet does not get its status
    to the server: the condition Ready then says Unknown. An object with another boot id is of another machine under the same
    name, or of the boot before. Asked only with --kubeconfig. Easily confused with a GPU that the plugin holds unhealthy: then
    seven of eight is the truth, in both.
    """
    unit = "kubelet.service" if isinstance(settings, Unread) else settings.unit
    if not api.asked:
        yield NotApplicable(NODE, NOT_ASKED)
    elif isinstance(api.node, Unread):
        yield api.node.about(NODE)
    elif not isinstance(host, Unread) and _other_boot(api.node, host):
        yield _of_another_boot(api, api.node, host, unit)
    elif isinstance(resources, Unread):
        yield resources.about(NODE)
    elif isinstance(resources.allocatable, Unread):
        yield resources.allocatable.about(NODE)
    else:
        yield _against_kubelet(api, api.node, resources, unit)


def _other_boot(node: "ApiNode", host: Host) -> bool:
    told = node.status.node_info.boot_id
    return bool(told and host.boot_id and told != host.boot_id)


def _of_another_boot(api: KubernetesApi, node: "ApiNode", host: Host, unit: str) -> Verdict:
    from gpudoctor.knowledge.operator_api_remedies import reach_server

    evidence = (
        api.saying("node", node.name, f"bootID {node.status.node_info.boot_id}"),
        Evidence("/proc/sys/kernel/random/boot_id", host.boot_id or ""),
    )
    summary = f"the node object {node.name} is of another boot: the kubelet has not written it since, or it is another machine's"
    return Warn(NODE, summary, evidence, reach_server(unit), cause="other-boot")


def _against_kubelet(api: KubernetesApi, node: "ApiNode", resources: PodResources, unit: str) -> Verdict:
    from gpudoctor.knowledge.operator_api_remedies import reach_server

    there, capacity = node.amounts(node.status.allocatable), node.amounts(node.status.capacity)
    here: dict[str, int] = {}
    for device in () if isinstance(resources.allocatable, Unread) else resources.allocatable:
        if "nvidia.com/" in device.resource:
            here[device.resource] = here.get(device.resource, 0) + len(device.ids)
    names = sorted(name for name in {*there, *here} if there.get(name, 0) or here.get(name, 0))
    words = tuple(
        api.saying("node", node.name, f"{name}: capacity {capacity.get(name, 0)}, allocatable {there.get(name, 0)}")
        for name in names
    )
    evidence: Cited = (*words, *resources.cite("allocatable"))
    behind = [name for name in names if there.get(name, 0) != here.get(name, 0)]
    if behind:
        name = behind[0]
        ready = node.ready
        apart = ready is not None and ready.status != "True"
        evidence += (api.saying("node", node.name, f"Ready {ready.status} ({ready.reason})"),) if ready else ()
        why = "; the kubelet does not reach the API server" if apart else ""
        summary = (
            f"the node object is behind: {name} {there.get(name, 0)} allocatable there, {here.get(name, 0)} here{why}"
        )
        return Warn(NODE, summary, evidence, reach_server(unit), cause="behind")
    if not names:
        return NotApplicable(NODE, SILENT, resources.cite("allocatable"))
    amounts = ", ".join(f"{there[name]} {name}" for name in names)
    return Pass(NODE, f"{amounts} allocatable, as the kubelet has it", evidence)


# Labels --------------------------------------------------------------------------------------------------------------


@check(
    "device-plugin.labels-true",
    link=Link.DEVICE_PLUGIN,
    needs={Link.DRIVER_CUDA},
    advisory=True,
    title="The node's labels tell of the GPUs and the driver it has",
)
def labels_true(
    api: KubernetesApi, nvml: Reading[Nvml], gpus: Reading[DriverGpus], module: Reading[NvidiaModule]
) -> Verdicts:
    """Pods choose nodes by the labels that GPU Feature Discovery writes: what it no longer renews sends them to the wrong GPUs.

    Compared are nvidia.com/gpu.product with the names that the driver gives (without -SHARED for sharing and -MIG-… for the
    strategy single, and in any spelling), gpu.count with the number of GPUs where all are of one kind and none is divided, and
    cuda.driver-version.full with the driver that is loaded. Labels that nobody wrote are not missed. Asked only with
    --kubeconfig. Easily confused with a missing GPU: that is found on the bus; and with a capacity that is a multiple, which
    sharing is for.
    """
    from gpudoctor.knowledge.operator_labels import COUNT, DRIVER_VERSION, PRODUCT

    if not api.asked:
        yield NotApplicable(NODE, NOT_ASKED)
        return
    if isinstance(api.node, Unread):
        yield api.node.about(NODE)
        return
    told = [name for name in (PRODUCT, COUNT, DRIVER_VERSION) if name in api.node.labels]
    if not told:
        yield NotApplicable(NODE, "the node has no labels of GPU Feature Discovery", api.labels(PRODUCT))
        return
    names, divided = _names(nvml, gpus)
    if isinstance(names, Unread):
        yield names.about(NODE)
        return
    counts = () if divided else {len(names), len(names if isinstance(gpus, Unread) else gpus.gpus)}
    wrong = list(_wrong_labels(api.node, names, counts, module))
    # The GPUs that the label counts may be those on the bus, of which some are hidden.
    hidden = gpus if isinstance(gpus, Unread) else gpus.unlisted
    sure = wrong if hidden is None else [each for each in wrong if each[0] != COUNT]
    if sure:
        yield _labels_false(api, sure, nvml, names)
        return
    if hidden is not None and wrong:
        yield hidden.about(NODE)
        return
    seen = nvml.cite("count") if isinstance(nvml, Nvml) else ()
    yield Pass(NODE, f"{', '.join(told)} are true", (*api.labels(*told), *seen))


def _names(nvml: Reading[Nvml], gpus: Reading[DriverGpus]) -> "tuple[list[str] | Unread, bool]":
    """What the driver calls its GPUs, and whether one of them is divided, which NVML alone tells."""
    if isinstance(nvml, Nvml) and nvml.devices and all(device.name for device in nvml.devices):
        divided = any(device.fields.get("mig.current") is True or device.mig_devices for device in nvml.devices)
        return [device.name or "" for device in nvml.devices], divided
    if isinstance(gpus, Unread):
        return gpus, False
    if gpus.unseen is not None:
        return gpus.unseen, False
    models = [gpu.model for gpu in gpus.gpus.values() if isinstance(gpu, DriverGpu) and gpu.model]
    if not models:
        return Unread(Why.NOT_ANSWERED, "NVML", "neither it nor the driver names the GPUs"), False
    # Without NVML it is not known whether one is divided: then the count is not judged.
    return models, True


def _wrong_labels(
    node: "ApiNode", names: list[str], counts: Collection[int], module: Reading[NvidiaModule]
) -> Iterator[tuple[str, str]]:
    """Labels that are not so, each with what is."""
    from gpudoctor.knowledge.operator_labels import COUNT, DRIVER_VERSION, PRODUCT, plain, product_of

    product, count, version = (node.labels.get(name, "") for name in (PRODUCT, COUNT, DRIVER_VERSION))
    kinds = {plain(name) for name in names}
    if product and product_of(product) not in kinds:
        yield PRODUCT, f"here {'is' if len(names) == 1 else 'are'} {len(names)} {names[0]}"
    # One that was lost is still on the bus: then the label tells how many the node has.
    if counts and count.isdecimal() and len(kinds) == 1 and int(count) not in counts:
        yield COUNT, f"the driver has {len(names)}"
    loaded = None if isinstance(module, Unread) else module.version
    if version and loaded and version != loaded:
        yield DRIVER_VERSION, f"{loaded} is loaded"


def _labels_false(api: KubernetesApi, wrong: list[tuple[str, str]], nvml: Reading[Nvml], names: list[str]) -> Verdict:
    from gpudoctor.knowledge.operator_api_remedies import RESTART_DISCOVERY

    labels = {} if isinstance(api.node, Unread) else api.node.labels
    said = "; ".join(f"{name} says {labels.get(name)}, {really}" for name, really in wrong)
    devices = nvml.devices[:1] if isinstance(nvml, Nvml) else ()
    seen = devices[0].cite("uuid") if devices else (Evidence("/proc/driver/nvidia/gpus", names[0]),)
    evidence = (*api.labels(*(name for name, _ in wrong), "nvidia.com/gfd.timestamp"), *seen)
    return Warn(NODE, f"the node's labels are not true: {said}", evidence, (RESTART_DISCOVERY,), cause="labels")


# RuntimeClasses and DaemonSets ---------------------------------------------------------------------------------------


@check(
    "device-plugin.runtime-class",
    link=Link.DEVICE_PLUGIN,
    title="Every RuntimeClass that is named for this node exists",
)
def runtime_class(api: KubernetesApi) -> Verdicts:
    """A pod that names a RuntimeClass of which there is no object is refused before any node sees it, and no node logs it.

    Looked at are the pods on this node, and NVIDIA's DaemonSets that have or want one here. Pods that run already run on when the
    object is deleted. The GPU Operator creates it; with a toolkit set up by hand, or on images of clouds, nobody does. Where
    nobody names a class none is needed: then nvidia is the engine's default. Asked only with --kubeconfig. Easily confused with
    the reverse, an object whose handler the engine does not have: that is told by toolkit.kubelet-engine.
    """
    if not api.asked:
        yield NotApplicable(NODE, NOT_ASKED)
        return
    for unread in (api.runtime_classes, api.pods, api.daemonsets, api.node):
        if isinstance(unread, Unread):
            yield unread.about(NODE)
            return
    named = _named_classes(api)
    there = () if isinstance(api.runtime_classes, Unread) else api.runtime_classes
    objects = {one.metadata.name: one.handler for one in there}
    listing = api.saying("runtimeclasses", "", ", ".join(sorted(objects)) or "none")
    missing = [name for name in named if name not in objects]
    for name in missing:
        yield _class_missing(name, named[name], listing)
    if not missing:
        words = f"{', '.join(named)} exists" if named else "none is named by pods here"
        yield Pass(NODE, words, (listing, *(each for users in named.values() for each in users[:1])))


def _named_classes(api: KubernetesApi) -> dict[str, list[Evidence]]:
    """Classes by name, each with those who name it."""
    named: dict[str, list[Evidence]] = {}
    for pod in () if isinstance(api.pods, Unread) else api.pods:
        if (name := pod.spec.runtime_class_name) and not pod.ended:
            named.setdefault(name, []).append(api.saying("pod", pod.words, f"runtimeClassName: {name}"))
    for each in _daemonsets_here(api):
        if name := each.pods.runtime_class_name:
            said = f"runtimeClassName: {name}; desired {each.status.desired_number_scheduled}, current"
            said += f" {each.status.current_number_scheduled}"
            named.setdefault(name, []).append(api.saying("daemonset", each.words, said))
    return named


def _daemonsets_here(api: KubernetesApi) -> "Iterator[DaemonSet]":
    """NVIDIA's that nothing keeps off this node."""
    from gpudoctor.facts.node_matching import obstacles

    if isinstance(api.daemonsets, Unread) or isinstance(api.node, Unread):
        return
    for each in api.daemonsets:
        if not obstacles(each.pods, api.node):
            yield each


def _class_missing(name: str, users: list[Evidence], listing: Evidence) -> Verdict:
    from gpudoctor.knowledge.operator_api_remedies import create_runtime_class

    summary = f"the API server has no RuntimeClass {name}, which pods for this node name: new ones are refused"
    subject = Subject(SubjectKind.SERVICE, name, f"RuntimeClass {name}")
    evidence = (listing, *users[:6])
    return Fail(subject, summary, evidence, (create_runtime_class(name),), Breaks.NOTHING, cause=name)


@check(
    "device-plugin.plugin-scheduled",
    link=Link.DEVICE_PLUGIN,
    explained_by=("device-plugin.runtime-class",),
    title="The device plugin's DaemonSet has a pod on this node",
)
def plugin_scheduled(api: KubernetesApi, gpus: Reading[PciGpus]) -> Verdicts:
    """A DaemonSet whose selector, affinity or tolerations do not fit makes no pod here: no log, no error, no GPUs for pods.

    The chart of the device plugin waits for labels of Node Feature Discovery (pci-10de.present) or nvidia.com/gpu.present;
    discovery that is set up otherwise, or missing, gives others. Labels, terms and taints are compared as the scheduler does. A
    node that is kept from the plugin on purpose is in order: the operator's own label says so, virtual machines have its GPUs, a
    DRA driver hands them out, or people have chosen other nodes by a label of their own. Asked only with --kubeconfig. Easily
    confused with a plugin whose pod is there and ends.
    """
    from gpudoctor.knowledge.operator_labels import DEPLOY

    if not api.asked:
        yield NotApplicable(NODE, NOT_ASKED)
        return
    node, daemonsets, pods = api.node, api.daemonsets, api.pods
    if isinstance(node, Unread) or isinstance(daemonsets, Unread) or isinstance(pods, Unread):
        unread = next(each for each in (node, daemonsets, pods) if isinstance(each, Unread))
        yield unread.about(NODE)
        return
    mine = [each for each in daemonsets if _is_plugin(each.metadata.name)]
    here = next((pod for pod in pods if _is_plugin(pod.owner or pod.metadata.name) and not pod.ended), None)
    if here is not None:
        yield Pass(
            NODE, f"{here.words} is here", (api.saying("pod", here.words, f"{here.status.phase} on {node.name}"),)
        )
    elif not mine:
        yield NotApplicable(NODE, "no DaemonSet of the device plugin in this cluster")
    elif isinstance(gpus, Unread):
        yield gpus.about(NODE)
    elif not gpus.gpus:
        yield NotApplicable(NODE, "the node has no NVIDIA GPU on PCI", gpus.cite("listing"))
    elif _by_claims(api):
        yield NotApplicable(NODE, "GPUs of this node are handed out by the DRA driver")
    elif node.labels.get(DEPLOY, "true") != "true":
        kept = f"the operator keeps the plugin away: {DEPLOY}={node.labels[DEPLOY]}"
        yield NotApplicable(NODE, kept, api.labels(DEPLOY))
    elif (purpose := _other_purpose(node)) is not None:
        yield NotApplicable(NODE, purpose[1], api.labels(purpose[0]))
    else:
        yield from _kept_off(api, node, mine)


def _other_purpose(node: "ApiNode") -> tuple[str, str] | None:
    """The label by which a node has no device plugin of the operator's on purpose, and what it says."""
    from gpudoctor.knowledge.operator_labels import OF_CLAIMS, OF_MACHINES, OPERANDS, WORKLOAD

    if node.labels.get(OPERANDS) == "false":
        return OPERANDS, f"the operator is kept off this node: {OPERANDS}=false"
    workload = node.labels.get(WORKLOAD, "container")
    if workload != "container":
        return WORKLOAD, f"the node is for {workload}"
    for_machines = next((name for name in OF_MACHINES if node.labels.get(name) == "true"), None)
    if for_machines is not None:
        return for_machines, "the operator prepares this node for virtual machines"
    by_claims = node.labels.get(OF_CLAIMS) == "true"
    return (OF_CLAIMS, "the operator has GPUs of this node handed out by its DRA driver") if by_claims else None


def _is_plugin(name: str) -> bool:
    """By the names of the operator's DaemonSet and of the chart's; its validator and those for virtual machines are others."""
    others = ("validator", "mps-control", "sandbox", "kubevirt")
    return "device-plugin" in name and "nvidia" in name and not any(other in name for other in others)


def _by_claims(api: KubernetesApi) -> bool:
    from gpudoctor.facts.kubernetes_objects import GPU_DRIVER

    slices = () if isinstance(api.slices, Unread) else api.slices
    return any(each.spec.driver == GPU_DRIVER and each.spec.devices for each in slices)


def _kept_off(api: KubernetesApi, node: "ApiNode", daemonsets: "list[DaemonSet]") -> Iterator[Verdict]:
    """A DaemonSet that fits and has no pod, else those that only labels of discovery and taints keep away."""
    from gpudoctor.facts.node_matching import missing_labels, obstacles, only_discovery, untolerated
    from gpudoctor.knowledge.operator_api_remedies import ALLOW_PLUGIN, TOLERATE, WHY_NO_POD

    fitting = [each for each in daemonsets if not obstacles(each.pods, node)]
    meant = [each for each in daemonsets if only_discovery(each.pods, node)]
    for each in fitting or meant:
        status = each.status
        wanted = f"desired {status.desired_number_scheduled}, current {status.current_number_scheduled}"
        subject = Subject(SubjectKind.SERVICE, each.words)
        said = api.saying("daemonset", each.words, wanted)
        if fitting:
            summary = "nothing keeps it off this node, but it has no pod here"
            yield Fail(subject, summary, (said,), (WHY_NO_POD,), Breaks.NODE, cause="no-pod")
            continue
        lacking, taints = missing_labels(each.pods, node), untolerated(each.pods, node)
        words = [f"the node lacks {one}" for one in lacking]
        words += [f"its pods do not tolerate the taint {one.key}:{one.effect}" for one in taints]
        evidence = (said, *(api.saying("node", node.name, one) for one in words), *api.labels(*_near(node)))
        remedies = (*((ALLOW_PLUGIN,) if lacking else ()), *((TOLERATE,) if taints else ()))
        yield Fail(
            subject, f"it has no pod here: {'; '.join(words)}", evidence, remedies, Breaks.NODE, cause="kept-off"
        )
    if not (fitting or meant):
        yield NotApplicable(NODE, f"{daemonsets[0].words} is for other nodes")


def _near(node: "ApiNode") -> list[str]:
    """Labels by which discovery tells of an NVIDIA GPU in another way than expected."""
    return [name for name in node.labels if "10de" in name][:4]
