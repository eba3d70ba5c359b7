"""What the API server has of this node's devices: the slices of dynamic resource allocation, and the layout that the MIG manager
was asked for.
"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.kubernetes_api import NOT_ASKED, KubernetesApi
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
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
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)


@check(
    "device-plugin.dra-consistent",
    link=Link.DEVICE_PLUGIN,
    needs={Link.DRIVER_CUDA},
    title="The DRA driver's slices tell of the GPUs that are here",
)
def dra_consistent(api: KubernetesApi, nvml: Reading[Nvml]) -> Verdicts:
    """The scheduler gives devices by the ResourceSlices of a node: one that names another GPU gives away what is not there.

    The UUIDs in the slices of gpu.nvidia.com for this node are compared with those that NVML lists, MIG devices included, in the
    pool's newest generation. A GPU that NVML cannot read is another check's. Claims that hold a device which is in no slice any
    more belong to pods that were started before. Slices of compute domains are no GPUs. Asked only with --kubeconfig. Easily
    confused with a GPU that has fallen off the bus, and with one that is kept out of the slices because it is bound to vfio-pci.
    """
    if not api.asked:
        yield NotApplicable(NODE, NOT_ASKED)
        return
    from gpudoctor.facts.kubernetes_objects import GPU_DRIVER

    if isinstance(api.slices, Unread):
        yield api.slices.about(NODE)
        return
    mine = [each for each in api.slices if each.spec.driver == GPU_DRIVER]
    newest = max((each.spec.pool.generation for each in mine), default=0)
    mine = [each for each in mine if each.spec.pool.generation == newest]
    if not mine:
        yield NotApplicable(NODE, "the DRA driver for GPUs has no slice of this node")
    elif len(mine) < mine[0].spec.pool.resource_slice_count:
        words = f"{len(mine)} of {mine[0].spec.pool.resource_slice_count} slices of the pool were seen"
        yield Unknown(NODE, Why.NOT_ANSWERED, words)
    elif isinstance(nvml, Unread):
        yield nvml.about(NODE)
    else:
        yield from _against_nvml(
            api,
            nvml,
            {
                device.name: ("" if device.is_passed_through else device.uuid, device.address)
                for each in mine
                for device in each.spec.devices
            },
            mine[0].spec.pool.name,
        )


def _against_nvml(api: KubernetesApi, nvml: Nvml, listed: dict[str, tuple[str, str]], pool: str) -> Iterator[Verdict]:
    from gpudoctor.knowledge.operator_api_remedies import CREATE_CLAIM_ANEW, RESTART_DRA

    present = {device.uuid for device in nvml.devices if device.uuid}
    present |= {mig.uuid for device in nvml.devices for mig in device.mig_devices if mig.uuid}
    silent = {device.address for device in nvml.devices if not device.uuid}
    gone = {
        name: uuid for name, (uuid, address) in listed.items() if uuid and uuid not in present and address not in silent
    }
    published = {uuid for uuid, _ in listed.values()}
    addresses = {address for _, address in listed.values() if address}
    unlisted = [
        device for device in nvml.devices if device.uuid and device.uuid not in published and not device.mig_devices
    ]
    evidence = tuple(api.saying("resourceslices", "", f"pool {pool}: {name} is {uuid}") for name, uuid in gone.items())
    if gone:
        name, uuid = next(iter(gone.items()))
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        summary = f"{name} of the node's slices{more} names a GPU that is not here: {uuid}"
        seen = tuple(one for device in unlisted for one in device.cite("uuid")) or nvml.cite("count")
        remedies = (RESTART_DRA, CREATE_CLAIM_ANEW)
        # A GPU that was lost is gone from NVML as well: then the loss at its address is the reason.
        places = [listed[each][1] for each in gone]
        of = tuple(Subject(SubjectKind.GPU, place) for place in places) if all(places) else ()
        yield Fail(NODE, summary, (*evidence, *seen), remedies, Breaks.NOTHING, cause="gone", of=of)
    stale = list(_stale_claims(api, set(listed), pool))
    if stale:
        summary = "claims hold devices that no slice of this node lists any more"
        yield Warn(NODE, summary, tuple(stale[:6]), (CREATE_CLAIM_ANEW,), cause="claims")
    if not gone and not stale:
        left = [device for device in unlisted if device.address not in addresses]
        words = f"the {len(listed)} devices of the node's slices are here"
        words += f"; {len(left)} GPUs are in no slice" if left else ""
        yield Pass(
            NODE, words, (api.saying("resourceslices", "", f"pool {pool}: {len(listed)} devices"), *nvml.cite("count"))
        )


def _stale_claims(api: KubernetesApi, devices: set[str], pool: str) -> Iterator[Evidence]:
    from gpudoctor.facts.kubernetes_objects import GPU_DRIVER

    for claim in () if isinstance(api.claims, Unread) else api.claims:
        for each in claim.status.allocation.devices.results:
            if each.driver == GPU_DRIVER and each.pool == pool and each.device not in devices:
                yield api.saying("resourceclaim", claim.words, f"holds {each.device} of pool {pool}")


# The MIG manager -----------------------------------------------------------------------------------------------------


@check(
    "device-plugin.mig-manager",
    link=Link.DEVICE_PLUGIN,
    needs={Link.SHARING},
    advisory=True,
    title="The MIG manager has made the layout that the node's label asks for",
)
def mig_manager(api: KubernetesApi, nvml: Reading[Nvml], gpus: Reading[PciGpus]) -> Verdicts:
    """The label nvidia.com/mig.config asks for a layout; the MIG manager makes it and says in mig.config.state how that ended.

    failed means that the old layout, or none, is there: mostly because something used the GPUs. The manager does not try again until the
    label changes. Where the state is success, a config whose name tells what it is (all-disabled, all-1g.10gb) is held against what NVML
    lists: instances do not survive a reboot, and nobody writes the label anew then. A change under way is waited for. Asked only with
    --kubeconfig. Easily confused with a device plugin whose strategy does not fit the layout.
    """
    from gpudoctor.knowledge.operator_labels import MIG_CONFIG, MIG_STATE

    if not api.asked:
        yield NotApplicable(NODE, NOT_ASKED)
        return
    if isinstance(api.node, Unread):
        yield api.node.about(NODE)
        return
    config, state = api.node.labels.get(MIG_CONFIG, ""), api.node.labels.get(MIG_STATE, "")
    evidence = api.labels(MIG_CONFIG, MIG_STATE)
    if not state:
        yield NotApplicable(NODE, "no MIG manager has written a state for this node", evidence)
    elif state == "failed" and (profile := _unheard_of(config, gpus, nvml)):
        if isinstance(nvml, Unread):
            # With NVML it would be sharing.mig-config that speaks.
            yield nvml.about(NODE)
            return
        yield NotApplicable(NODE, f"no GPU here has the profile {profile}, see sharing.mig-config", evidence)
    elif state == "failed":
        yield _layout_failed(f"the MIG manager failed to apply {config}: the layout is the old one", evidence, nvml)
    elif state != "success":
        yield NotApplicable(NODE, f"the MIG manager is at work: mig.config.state is {state}", evidence)
    elif not isinstance(nvml, Unread) and (other := _other_layout(config, nvml)):
        seen = (*evidence, *nvml.cite("count"))
        yield _layout_failed(f"the MIG manager has applied {config}, but {other}", seen, nvml)
    else:
        yield Pass(NODE, f"{config} is applied", evidence)


def _layout_failed(summary: str, evidence: Cited, nvml: Reading[Nvml]) -> Verdict:
    """What it speaks of is a GPU in MIG mode without instances, where there is one."""
    from gpudoctor.knowledge.operator_remedies import APPLY_MIG_AGAIN

    known = () if isinstance(nvml, Unread) else nvml.devices
    divided = (one for one in known if one.fields.get("mig.current") is True and one.address is not None)
    of = tuple(Subject(SubjectKind.GPU, one.address or "") for one in divided if one.lists_mig and not one.mig_devices)
    return Warn(NODE, summary, evidence, (APPLY_MIG_AGAIN,), cause="mig-config", of=of)


def _unheard_of(config: str, gpus: Reading[PciGpus], nvml: Reading[Nvml]) -> str:
    """The profile that a layout gives to all GPUs and none of them has, "" where one has it or nobody knows."""
    from gpudoctor.knowledge.mig_profiles import missing_everywhere

    if isinstance(gpus, Unread):
        return ""
    devices = () if isinstance(nvml, Unread) else nvml.devices
    known = {one.address: tuple(profile.name or "" for profile in one.mig_profiles) for one in devices}
    return missing_everywhere(config, [(gpu.device_id, known.get(gpu.address, ())) for gpu in gpus])


def _other_layout(config: str, nvml: Nvml) -> str:
    """How a layout whose name says what it is differs from what NVML lists, "" where it does not or nothing is certain."""
    modes = [device.fields.get("mig.current") for device in nvml.devices]
    instances = [mig for device in nvml.devices for mig in device.mig_devices]
    if config == "all-disabled" and any(mode is True for mode in modes):
        return "MIG is enabled"
    sliced = config.removeprefix("all-")
    divides = config.startswith("all-") and sliced[:1].isdecimal() and "g." in sliced
    if divides and modes and all(mode is False for mode in modes):
        return "MIG is disabled on every GPU"
    if divides and any(mode is True for mode in modes) and not instances:
        return "no MIG device is there"
    return ""
