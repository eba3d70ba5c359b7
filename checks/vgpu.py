"""Sharing by NVIDIA vGPU: has a guest its licence, does a host's manager run, and do guests have drivers that it takes?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.vgpu import GUEST, MANAGER_SERVICE, MODE, Licence, Manager, Vgpu
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

LICENCE, VERSIONS, MANAGER = "sharing.vgpu-licence", "sharing.vgpu-versions", "sharing.vgpu-manager"
LICENSED, PRODUCT = "vgpu.licensed", "vgpu.product"
MOST_SHOWN = 3
NO_HOST = "this node gives no virtual GPUs to virtual machines"


@check(
    LICENCE,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    title="Every virtual GPU has its licence",
)
def vgpu_licence(gpus: PciGpus, nvml: Nvml, vgpu: Vgpu) -> Verdicts:
    """A virtual GPU without a licence works for some twenty minutes after the boot, then ever slower, and CUDA may end with "all devices
    are busy or unavailable" (error 46): nothing else tells why.

    Read from NVML's licence state of GPUs that are virtual. Why there is none is read from nvidia-gridd, which asks for it: whether it
    runs, its token, its configuration and its last words. Those words alone accuse nobody, for it also writes errors on cloud machines
    that need no licence. Easily confused with a power cap or with clocks held down (health.throttling, health.clocks). A GPU that was
    passed through whole needs a licence for graphics only, and is not judged.
    """
    guests = [(gpu, device) for gpu in gpus if (device := nvml.device(gpu.address)) is not None and _is_guest(device)]
    for gpu, device in guests:
        yield _licence(gpu, device, vgpu.licence)
    if not guests:
        yield NotApplicable(NODE, "no GPU here is a virtual one of a guest")


def _is_guest(device: NvmlDevice) -> bool:
    return device.error is None and device.fields.get(MODE) == GUEST


def _licence(gpu: PciGpu, device: NvmlDevice, licence: Licence | None) -> Verdict:
    state = device.fields.get(LICENSED)
    told = (device.evidence(MODE), *(device.evidence(name) for name in (PRODUCT, LICENSED) if name in device.fields))
    if state is True:
        return Pass(gpu, f"licensed{_product(device)}", told)
    if state is not False:
        return Unknown(gpu, Why.NOT_ANSWERED, "it is a virtual GPU; whether it has a licence was not answered", told)
    from gpudoctor.knowledge.vgpu_remedies import LICENSING, get_licence

    why, shown = _lacking(licence)
    runs = licence is not None and licence.running is True
    steps = get_licence(LICENCE, licence.folder if licence is not None else "/etc/nvidia/ClientConfigToken", runs=runs)
    held, standing = (licence.held, licence.standing) if licence is not None else (None, ())
    waits = runs and licence is not None and licence.heard and not licence.said and not why
    summary = f"{device.name or 'this virtual GPU'} has no licence{_product(device)}"
    evidence = (*told, *standing, *shown)
    if held is None:
        said = f"{summary}{f': {why}' if why else ''}; whether it is held back already is not told"
        return Unknown(gpu, Why.NOT_ANSWERED, said, evidence)
    if waits or not held:
        because = why or ("nvidia-gridd runs and has said nothing of one" if waits else "")
        said = f"{summary} yet{f': {because}' if because else ''}; it is held back from some twenty minutes after the boot on"
        return Warn(gpu, said, evidence, steps, cause="waits", references=(LICENSING,))
    said = f"{summary}{f': {why}' if why else ''}; it is held back more and more"
    return Fail(gpu, said, evidence, steps, Breaks.NOTHING, cause="unlicensed", references=(LICENSING,))


def _product(device: NvmlDevice) -> str:
    product = device.fields.get(PRODUCT)
    return f" ({product})" if isinstance(product, str) and product else ""


def _lacking(licence: Licence | None) -> tuple[str, Cited]:
    """What keeps it from a licence, the most certain first."""
    if licence is None:
        return "", ()
    if licence.running is False:
        return "nvidia-gridd, which asks for it, does not run", (licence.service,)
    if licence.tokens == () and not licence.server:
        return f"there is no token in {licence.folder}", (Evidence(licence.folder, "no file *.tok"), *licence.said)
    if licence.said and not licence.acquired:
        return f"nvidia-gridd says: {licence.said[-1].shows}", (licence.service, *licence.said)
    return "", (licence.service, *licence.said)


@check(MANAGER, link=Link.SHARING, title="The Virtual GPU Manager of a host runs")
def vgpu_manager(vgpu: Vgpu) -> Verdicts:
    """Without nvidia-vgpu-mgr no virtual machine of this host can start with a virtual GPU; those that run keep theirs.

    Judged where NVML says that GPUs are a host's, or the module nvidia_vgpu_vfio is loaded; the process counts, as a service or in the GPU
    Operator's container. Easily confused with nvidia-vgpud, which describes the types of virtual GPUs at the boot and ends.
    """
    host = vgpu.manager
    if host is None:
        yield NotApplicable(NODE, NO_HOST)
        return
    if isinstance(host.running, Unread):
        yield host.running.about(MANAGER_SERVICE)
    elif host.running:
        yield Pass(MANAGER_SERVICE, "it runs", (*vgpu.host[:1], host.service))
    else:
        from gpudoctor.knowledge.vgpu_remedies import start_manager

        said = "it does not run: no virtual machine can start with a virtual GPU of this host"
        evidence = (*vgpu.host[:1], host.service)
        yield Fail(MANAGER_SERVICE, said, evidence, start_manager(MANAGER), Breaks.NOTHING, cause="not-running")


@check(VERSIONS, link=Link.SHARING, title="Guests have drivers that the host's Virtual GPU Manager takes")
def vgpu_versions(vgpu: Vgpu) -> Verdicts:
    """A guest with a driver that its host's manager does not take gets no virtual GPU: the manager writes "Disabling vGPU", and the guest
    sees a GPU that does not start.

    Read from the words of nvidia-vgpu-mgr since the boot, on the host: which drivers its guests have, its own version, and which it
    refused. A guest may be of the same release, of the branch before, or of the long-term branch before (release notes of vGPU software).
    Within a guest the host's version is not told.
    """
    host = vgpu.manager
    if host is None:
        yield NotApplicable(NODE, f"{NO_HOST}, and only a host knows both versions")
    elif host.unread is not None:
        yield host.unread.about(MANAGER_SERVICE)
    else:
        yield from _versions(host)


def _versions(host: Manager) -> Iterator[Verdict]:
    from gpudoctor.knowledge.vgpu_remedies import RELEASE_NOTES, matching_guest, takes

    steps = matching_guest(VERSIONS)
    shown = tuple(seen for _, seen in host.guests[:MOST_SHOWN])
    if host.refused:
        said = f"a guest was refused its virtual GPU: {host.refused[-1].shows.partition(': ')[2]}"
        evidence = (*host.refused[-MOST_SHOWN:], *shown)
        yield Fail(MANAGER_SERVICE, said, evidence, steps, Breaks.NOTHING, cause="refused", references=(RELEASE_NOTES,))
        return
    if not host.guests or not host.version:
        yield NotApplicable(MANAGER_SERVICE, "since the boot it told of no guest, or not of its own version")
        return
    unfit = [(guest, seen) for guest, seen in host.guests if takes(_branch(host.version), _branch(guest)) is False]
    own = Evidence(shown[0].where, f"vGPU Manager: driver version {host.version}")
    if unfit:
        said = f"guests have driver {unfit[0][0]}, which the manager's {host.version} is not meant for"
        evidence = (own, *(seen for _, seen in unfit[:MOST_SHOWN]))
        yield Warn(MANAGER_SERVICE, said, evidence, steps, cause="branches", references=(RELEASE_NOTES,))
    else:
        drivers = ", ".join(guest for guest, _ in host.guests[:MOST_SHOWN])
        yield Pass(MANAGER_SERVICE, f"its version is {host.version}, that of its guests {drivers}", (own, *shown))


def _branch(version: str) -> int:
    return int(version.partition(".")[0])
