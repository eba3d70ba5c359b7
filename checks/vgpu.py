"""Sharing by NVIDIA vGPU: has a guest its licence, does a host's manager run, and do guests have drivers that it takes?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.vgpu import GUEST, MANAGER_SERVICE, MODE, Guest, Licence, Manager, Vgpu
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
NO_HOST = "nothing shows that this node gives virtual GPUs to virtual machines"


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
        yield NotApplicable(NODE, "no GPU here says that it is a virtual one of a guest")


def _is_guest(device: NvmlDevice) -> bool:
    return device.error is None and device.fields.get(MODE) == GUEST


def _licence(gpu: PciGpu, device: NvmlDevice, licence: Licence | None) -> Verdict:
    state = device.fields.get(LICENSED)
    told = tuple(device.evidence(name) for name in (LICENSED, MODE, PRODUCT) if name in device.fields)
    if state is True:
        return Pass(gpu, f"licensed{_product(device)}", told)
    if state is not False:
        return Unknown(gpu, Why.NOT_ANSWERED, "it is a virtual GPU; whether it has a licence was not answered", told)
    from gpudoctor.knowledge.vgpu_remedies import LICENSING, get_licence

    why, shown = _lacking(licence)
    held, standing = (licence.held, licence.standing) if licence is not None else (None, ())
    summary = f"{device.name or 'this virtual GPU'} has no licence{_product(device)}"
    evidence = (*told[:1], *standing, *shown, *told[1:])
    if licence is None or held is None:
        said = f"{summary}{f': {why}' if why else ''}; whether it is held back already is not told"
        return Unknown(gpu, Why.NOT_ANSWERED, said, evidence)
    steps = get_licence(
        LICENCE, licence.folder, licence.conf, runs=licence.running is not False, contained=licence.contained
    )
    because = f": {why}" if why else ""
    if not held:
        said = f"{summary} yet{because}; without one it is held back from some twenty minutes after the boot on"
        return Warn(gpu, said, evidence, steps, cause="waits", references=(LICENSING,))
    said = f"{summary}{because}; without one it is held back more and more"
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
    if licence.tokens == () and licence.server == "":
        return f"there is no token in {licence.folder}", (Evidence(licence.folder, "no file *.tok"), *licence.said)
    if licence.said and not licence.acquired:
        return f"nvidia-gridd says: {licence.said[-1].shows.rstrip('.')}", (*licence.said[::-1], licence.service)
    if licence.running is True and licence.heard and not licence.said:
        return "nvidia-gridd runs and has said nothing of one", (licence.service,)
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
    refused. Guests whose process has ended are passed over: what was refused a month ago is no fault of today. A guest may be of the same
    release, of the branch before, or of the long-term branch before (release notes of vGPU software). Within a guest the host's version is
    not told.
    """
    host = vgpu.manager
    if host is None:
        yield NotApplicable(NODE, f"{NO_HOST}, and only a host knows both versions")
    elif host.unread is not None:
        yield host.unread.about(MANAGER_SERVICE)
    else:
        yield from _versions(host)


def _versions(host: Manager) -> Iterator[Verdict]:
    from gpudoctor.knowledge.vgpu_remedies import takes

    refused = [one for one in host.guests if one.refused is not None]
    if refused:
        yield _unfit(refused, _refusal(refused[-1]), (), "refused")
        return
    if not host.guests or not host.version:
        yield NotApplicable(
            MANAGER_SERVICE, "since the boot it told of no guest that runs now, or not of its own version"
        )
        return
    own = Evidence(host.guests[0].shown.where, f"vGPU Manager: driver version {host.version}")
    strange = [one for one in host.guests if takes(_branch(host.version), _branch(one.driver)) is False]
    if strange:
        said = f"a guest has driver {strange[0].driver}, which the manager's {host.version} is not meant for"
        yield _unfit(strange, said, (own,), "branches")
    else:
        drivers = ", ".join(sorted({one.driver for one in host.guests})[:MOST_SHOWN])
        said = f"it refused no guest: its version is {host.version}, that of its guests {drivers}"
        yield Pass(MANAGER_SERVICE, said, (own, *(one.shown for one in host.guests[:MOST_SHOWN])))


def _refusal(guest: Guest) -> str:
    words = guest.refused.shows.partition(": ")[2] if guest.refused is not None else ""
    return f"a guest{f' with driver {guest.driver}' if guest.driver else ''} was refused its virtual GPU: {words}"


def _unfit(guests: list[Guest], said: str, own: Cited, cause: str) -> Verdict:
    """Of guests that do not fit: no fault where their processes may have ended."""
    from gpudoctor.knowledge.vgpu_remedies import RELEASE_NOTES, matching_guest

    seen = dict.fromkeys(
        shown for one in guests[-MOST_SHOWN:] for shown in (one.refused, one.shown) if shown is not None
    )
    evidence = (*own, *seen)
    if all(one.lives is None for one in guests):
        return Unknown(MANAGER_SERVICE, Why.NOT_ANSWERED, f"{said}; whether it still runs is not known", evidence)
    steps = matching_guest(VERSIONS)
    if cause == "refused":
        return Fail(MANAGER_SERVICE, said, evidence, steps, Breaks.NOTHING, cause=cause, references=(RELEASE_NOTES,))
    return Warn(MANAGER_SERVICE, said, evidence, steps, cause=cause, references=(RELEASE_NOTES,))


def _branch(version: str) -> int:
    return int(version.partition(".")[0])
