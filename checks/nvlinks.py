"""Fabric: every GPU's NVLinks, the switches they lead to, and whether the GPUs may use each other's memory."""

from collections.abc import Iterable, Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.fabric_links import GpuLinks, NvLinks, Wanted
from gpudoctor.facts.fabric_service import FabricService
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import GpuPath, NvLink
from gpudoctor.facts.pci import NvSwitch, NvSwitches, PciGpus
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Subject,
    Unread,
    Verdict,
    Verdicts,
    Warn,
)

UP, SPEED, ERRORS = "fabric.nvlinks-up", "fabric.nvlink-speed", "fabric.nvlink-errors"
SWITCHES, PEERS = "fabric.switches-seen", "fabric.peer-access"
MANAGER, REGISTERED = "fabric.manager-running", "fabric.registered"
MOST_NAMED = 4
PERCENT, CRC_RATE, NEW = "nvlink_speed_percent", "nvlink_crc_errors_per_second", "nvlink_new_errors"


@check(
    UP,
    link=Link.FABRIC,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(MANAGER, REGISTERED),
    title="Every GPU has all the NVLinks of its board",
)
def nvlinks_up(gpus: PciGpus, links: NvLinks) -> Verdicts:
    """A GPU whose NVLinks are down talks to its peers over PCIe, at a tenth of the rate, and no program says so.

    How many a product has stands in knowledge/nvlink_skus.py. Cards have them by bridges: none is as good as all, unless another pair of
    the same cards is bridged; a part is a bridge that is loose (A100 PCIe wants all three, NVIDIA's product brief). In a virtual machine
    links may lead to GPUs of other guests, so that only GPUs on switches are held against each other. The driver uses none with
    NVreg_NvLinkDisable=1, and with MIG on. A link between two GPUs that is down is missed by both, which is one cause. On A100 boards a
    fabric manager that was never started leaves all of them down, from Hopper on it does not.
    """
    for gpu in gpus:
        yield _up(links.of(gpu), links)


def _up(one: GpuLinks, links: NvLinks) -> Verdict:
    if links.off is not None and one.answers and not one.active:
        return _off(one, links.off)
    aside = one.aside
    if aside is not None:
        return NotApplicable(one.gpu, aside, one.evidence)
    active, wanted = one.active, links.wanted(one)
    if active is None:
        return NotApplicable(one.gpu, "NVML does not tell of its NVLinks")
    if wanted is None:
        if active == 0:
            said = "none of its NVLinks is active, and nothing says that one should be: no bridge, or a share of a larger machine"
            return NotApplicable(one.gpu, said, one.evidence)
        return Pass(one.gpu, f"{active} NVLinks are active", one.evidence)
    if active >= wanted.links:
        return Pass(one.gpu, f"{active} of {wanted.links} NVLinks are active", one.evidence + wanted.evidence)
    return _down(one, links, active, wanted)


def _down(one: GpuLinks, links: NvLinks, active: int, wanted: Wanted) -> Verdict:
    if links.mute and one.direct:
        said = f"{active} of {wanted.links} NVLinks are active; a GPU of the board does not answer, and theirs are down at both ends"
        return NotApplicable(one.gpu, said, (*one.evidence, links.mute))
    from gpudoctor.knowledge.fabric_remedies import inspect_links

    down = [link.link for link in one.links if link.active is False]
    which = f" (down: {', '.join(map(str, down))})" if down and active else ""
    summary = f"{active} of {wanted.links} NVLinks are active{which}"
    if wanted.bridged and not active:
        summary += ", while another pair of these cards is bridged: a bridge is missing or loose"
    evidence = one.evidence + one.cite_links(down[:MOST_NAMED] if active else ()) + wanted.evidence
    remedies = inspect_links(UP, bridge=wanted.bridged)
    cause = links.lost_by(one)
    if wanted.bridged:
        return Warn(one.gpu, summary, evidence, remedies, cause=cause)
    return Fail(one.gpu, summary, evidence, remedies, Breaks.SUBJECT, cause=cause)


def _off(one: GpuLinks, off: Evidence) -> Verdict:
    if one.sku is None or one.sku.bridged:
        return NotApplicable(one.gpu, "the driver was told to use no NVLink", (*one.evidence, off))
    from gpudoctor.knowledge.fabric_remedies import allow_nvlink

    summary = f"none of its {one.sku.links} NVLinks is used: the module's option NVreg_NvLinkDisable switches them off"
    return Warn(one.gpu, summary, (*one.evidence, off), allow_nvlink(UP), cause="nvlink-disabled")


@check(
    SPEED,
    link=Link.FABRIC,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    title="Every active NVLink runs at its full rate",
)
def nvlink_speed(gpus: PciGpus, links: NvLinks, limits: Thresholds) -> Verdicts:
    """Links train one by one, and one that came up slower holds back every transfer that is spread over all of them.

    The rate of a link a direction, as NVML tells it, against the product's figure, else against the fastest link of that GPU. NVML's
    numbers are a little above the round ones of data sheets (25781 and 26562 MB/s for 25 GB/s).
    """
    for gpu in gpus:
        one = links.of(gpu)
        rates = {
            link.link: link.megabytes_per_second for link in one.links if link.active and link.megabytes_per_second
        }
        if one.aside is not None:
            yield NotApplicable(gpu, one.aside, one.evidence)
        elif not rates:
            yield NotApplicable(gpu, "no active NVLink of it tells a rate")
        else:
            yield _rates(one, {link: rate for link, rate in rates.items() if rate}, limits)


def _rates(one: GpuLinks, rates: dict[int, int], limits: Thresholds) -> Verdict:
    full = one.sku.megabytes if one.sku is not None else max(rates.values())
    slow = [link for link, rate in rates.items() if rate * 100 < full * limits.of(PERCENT)]
    if not slow:
        return Pass(
            one.gpu, f"{len(rates)} NVLinks run at {min(rates.values()) / 1000:g} GB/s", one.cite_links([min(rates)])
        )
    from gpudoctor.knowledge.fabric_remedies import inspect_links

    worst = min(rates[link] for link in slow)
    named = ", ".join(map(str, slow[:MOST_NAMED])) + (" …" if len(slow) > MOST_NAMED else "")
    summary = (
        f"{len(slow)} of {len(rates)} NVLinks run at {worst / 1000:g} GB/s instead of {full / 1000:g}: link {named}"
    )
    evidence = one.cite_links(slow[:MOST_NAMED]) + limits.cite(PERCENT)
    bridged = one.sku is not None and one.sku.bridged
    return Warn(one.gpu, summary, evidence, inspect_links(SPEED, bridge=bridged), cause=f"{one.gpu.address}-slow")


@check(
    ERRORS,
    link=Link.FABRIC,
    over=PciGpus,
    needs={Link.DRIVER_CUDA},
    explained_by=(UP,),
    advisory=True,
    title="No NVLink gathers errors",
)
def nvlink_errors(gpus: PciGpus, links: NvLinks, limits: Thresholds) -> Verdicts:
    """An NVLink with a bad connection sends packets again and again, gets slower, and in the end goes down with a fatal Xid.

    The counters run since the driver was loaded, and a few errors from training are no news: they count where they grow while the GPU is
    watched. Up to NVLink 4 CRC errors of packets matter from 100 a second on, and each replay or recovery (DCGM's own limits); NVLink 5
    corrects most errors at once and counts what was left: effective and symbol errors, lost integrity, and links that did not recover.
    """
    for gpu in gpus:
        yield _errors(links.of(gpu), limits)


_WORDS = {
    "crc_flit": "CRC errors of packets",
    "crc_data": "CRC errors of data",
    "replay": "replays",
    "recovery": "recoveries",
    "symbol": "symbol errors",
    "effective": "errors left after correction",
    "link_recovery_failed": "recoveries that failed",
    "local_integrity": "losses of integrity",
}


def _errors(one: GpuLinks, limits: Thresholds) -> Verdict:
    counted = {link.link: link for link in one.links if link.errors}
    if one.aside is not None:
        return NotApplicable(one.gpu, one.aside, one.evidence)
    if not counted:
        return NotApplicable(one.gpu, "none of its NVLinks tells error counters")
    total = _sums(counted.values())
    told = ", ".join(f"{count} {_WORDS.get(name, name)}" for name, count in total.items() if count)
    if not told:
        return Pass(one.gpu, f"no errors on {len(counted)} NVLinks", one.cite_errors(list(counted)[:1]))
    bad = [link for link, found in counted.items() if any(found.errors.values())]
    evidence = one.cite_errors(bad[:MOST_NAMED])
    if one.later is None:
        said = f"since the driver was loaded: {told}; whether they still grow was not watched"
        return Pass(one.gpu, said, evidence)
    growing = dict(_growing(counted, one, limits))
    if not growing:
        return Pass(one.gpu, f"since the driver was loaded: {told}; none more in {one.later.seconds:.1f} s", evidence)
    from gpudoctor.knowledge.fabric_remedies import inspect_links

    links = ", ".join(f"link {link}: {said}" for link, said in list(growing.items())[:MOST_NAMED])
    evidence = one.cite_errors(list(growing)[:MOST_NAMED]) + one.cite_later(list(growing)[:MOST_NAMED])
    summary = f"errors grow on {len(growing)} of {len(counted)} NVLinks within {one.later.seconds:.1f} s: {links}"
    return Warn(
        one.gpu,
        summary,
        evidence + limits.cite(NEW, CRC_RATE),
        inspect_links(ERRORS, bridge=one.sku is not None and one.sku.bridged),
        cause=f"{one.gpu.address}-errors",
    )


def _sums(links: Iterable[NvLink]) -> dict[str, int]:
    total: dict[str, int] = {}
    for link in links:
        for name, count in link.errors.items():
            total[name] = total.get(name, 0) + count
    return total


def _growing(counted: dict[int, NvLink], one: GpuLinks, limits: Thresholds) -> Iterator[tuple[int, str]]:
    assert one.later is not None
    seconds = max(one.later.seconds, 0.001)
    for after in one.later.nvlinks:
        before = counted.get(after.link)
        grown = {name: count - before.errors.get(name, count) for name, count in after.errors.items()} if before else {}
        worse = {
            name: more
            for name, more in grown.items()
            if more > 0
            and (more / seconds >= limits.of(CRC_RATE) if name.startswith("crc_") else more >= limits.of(NEW))
        }
        if worse:
            yield after.link, ", ".join(f"{more} more {_WORDS.get(name, name)}" for name, more in worse.items())


@check(
    SWITCHES,
    link=Link.FABRIC,
    needs={Link.KERNEL_MODULE},
    title="The NVSwitches that GPUs lead to are held by their driver",
)
def switches_seen(
    switches: NvSwitches, gpus: PciGpus, links: Reading[NvLinks], service: Reading[FabricService]
) -> Verdicts:
    """Up to NVLink 4 the NVSwitches of a board are PCI functions that nvidia-nvswitch holds; the fabric manager works through it.

    A switch that no driver holds, or a board whose GPUs have links to switches while the bus shows none, cannot be set up; where the
    fabric manager does not run either, that is why. Switches of NVLink 5 are no functions of the bus; a hypervisor keeps them from its
    guests or passes them on (vfio-pci). How many a board should have is pcie.hardware-profile's.
    """
    stalls = not isinstance(service, Unread) and service.stalls
    told = [_switch(one, stalls=stalls) for one in switches]
    yield from told
    if told or switches.unlisted is not None:
        if switches.unlisted is not None:
            yield switches.unlisted.about(NODE)
        return
    if isinstance(links, Unread):
        yield links.about(NODE) if gpus.gpus else NotApplicable(NODE, gpus.NOTHING, gpus.cite("listing"))
        return
    led = [one for one in links if any(link.remote_type == "switch" and (link.version or 5) < 5 for link in one.links)]
    if not led:
        yield NotApplicable(NODE, "no NVSwitch that would be a function of this bus")
    elif links.guest is not None:
        yield NotApplicable(NODE, "the switches are the hypervisor's", (links.guest,))
    else:
        from gpudoctor.knowledge.fabric_remedies import bind_switches

        summary = f"the NVLinks of {len(led)} GPUs lead to NVSwitches, but there is none on the PCI bus"
        evidence = led[0].cite_links([link.link for link in led[0].links][:1]) + switches.cite("listing")
        members = tuple(one.gpu.subject for one in led)
        yield Fail(NODE, summary, evidence, bind_switches(SWITCHES), Breaks.NOTHING, cause="switches-gone", of=members)


def _switch(switch: NvSwitch, *, stalls: bool) -> Verdict:
    if isinstance(switch.driver, Unread):
        return switch.driver.about(switch)
    if switch.driver == "nvidia-nvswitch":
        return Pass(switch, "held by nvidia-nvswitch", switch.cite("driver"))
    if switch.driver is not None and switch.driver.startswith("vfio"):
        return NotApplicable(switch, f"{switch.driver} holds it for a virtual machine", switch.cite("driver"))
    from gpudoctor.knowledge.fabric_remedies import bind_switches

    held = f"{switch.driver} holds it" if switch.driver else "no driver holds it"
    summary = f"{held} instead of nvidia-nvswitch: the fabric manager cannot set it up"
    breaks = Breaks.NODE if stalls else Breaks.NOTHING
    return Fail(switch, summary, switch.cite("driver"), bind_switches(SWITCHES), breaks, cause="switch-not-held")


@check(
    PEERS,
    link=Link.FABRIC,
    needs={Link.DRIVER_CUDA},
    explained_by=(UP, REGISTERED),
    title="GPUs that NVLink joins may use each other's memory",
)
def peer_access(gpus: PciGpus, nvml: Reading[Nvml], links: Reading[NvLinks]) -> Verdicts:
    """NCCL asks the driver whether two GPUs may use each other's memory, and gives up where NVLink joins them and the answer is no.

    "P2P is disabled between NVLINK connected GPUs … This should not be the case given their connectivity" (NCCL, paths.cc). Between GPUs
    that only PCIe joins a no is a property of the product, as of all GeForce since Ada, and NCCL goes through the host's memory. Judged
    by nvmlDeviceGetP2PStatus for reading and writing, which is what NCCL asks, and by the pairs: one GPU that NVLink joins to none of its
    peers, while it joins all of those, fell out.
    """
    if isinstance(nvml, Unread) or isinstance(links, Unread):
        blind = nvml if isinstance(nvml, Unread) else links
        assert isinstance(blind, Unread)
        yield blind.about(NODE) if gpus.gpus else NotApplicable(NODE, gpus.NOTHING, gpus.cite("listing"))
        return
    pairs = tuple(pair for pair in nvml.topology if pair.path)
    if not pairs:
        yield NotApplicable(NODE, "how the GPUs are joined is not told, or there is but one")
        return
    where = nvml.via
    apart = {
        f"GPU{one.device.index}"
        for one in links
        if one.device is not None and one.device.fields.get("mig.current") is True
    }
    refused = [pair for pair in pairs if pair.nvlinks and _no(pair) and not {pair.one, pair.other} & apart]
    lonely = links.lonely(pairs)
    if gpus.unlisted is not None and _hidden(
        links, (*lonely, *(name for pair in refused for name in (pair.one, pair.other)))
    ):
        yield gpus.unlisted.about(NODE)
        return
    if refused:
        yield from _refused(refused, where, links)
    if lonely:
        yield from _lonely(lonely, pairs, where, links)
    if not refused and not lonely:
        yield _fine(pairs, where)


def _no(pair: GpuPath) -> str:
    """NCCL looks at reading and writing only; that the driver does not know counts as no."""
    return next((pair.p2p[way] for way in ("read", "write") if pair.p2p.get(way, "ok") != "ok"), "")


def _hidden(links: NvLinks, names: Iterable[str]) -> bool:
    """Whether one of the GPUs is not among those that the bus shows: then it may be in MIG mode, or its links down."""
    seen = {f"GPU{one.device.index}" for one in links if one.device is not None}
    return any(name not in seen for name in names if name.startswith("GPU"))


def _subjects(links: NvLinks, names: Iterable[str]) -> tuple[Subject, ...]:
    """The GPUs behind `GPU0`, `GPU1`, which are numbered as NVML numbers them."""
    by_name = {f"GPU{one.device.index}": one.gpu.subject for one in links if one.device is not None}
    return tuple(by_name[name] for name in dict.fromkeys(names) if name in by_name) or (NODE,)


def _shown(pair: GpuPath, where: str) -> Evidence:
    access = "".join(f", {name} {answer.replace('_', ' ')}" for name, answer in pair.p2p.items())
    return Evidence(where, f"{pair.one} to {pair.other}: {pair.path}{access}")


def _fine(pairs: tuple[GpuPath, ...], where: str) -> Verdict:
    joined = [pair for pair in pairs if pair.nvlinks]
    asked = [pair for pair in pairs if pair.p2p]
    apart = [pair for pair in asked if not pair.nvlinks and _no(pair)]
    evidence = tuple(_shown(pair, where) for pair in (*joined[:1], *apart[:1]) or pairs[:1])
    if apart:
        said = f"{len(apart)} pairs may not use each other's memory, and no NVLink joins them: NCCL goes through the host's memory"
        return Pass(NODE, said, evidence)
    if not joined:
        return NotApplicable(NODE, "no NVLink joins any two GPUs", evidence)
    said = f"NVLink joins {len(joined)} of {len(pairs)} pairs of GPUs"
    told = [pair for pair in joined if pair.p2p]
    if not told:
        return NotApplicable(NODE, f"{said}; whether they may use each other's memory was not asked", evidence)
    if len(told) < len(joined):
        return Pass(NODE, f"{said}, {len(told)} of them are told to use each other's memory", (_shown(told[0], where),))
    return Pass(NODE, f"{said}, and they may use each other's memory", evidence)


def _refused(refused: list[GpuPath], where: str, links: NvLinks) -> Verdicts:
    from gpudoctor.knowledge.fabric_remedies import register_anew

    first = refused[0]
    summary = f"NVLink joins {first.one} and {first.other}, but they may not use each other's memory ({_no(first).replace('_', ' ')})"
    if len(refused) > 1:
        summary += f", nor may {len(refused) - 1} more pairs"
    evidence = tuple(_shown(pair, where) for pair in refused[:MOST_NAMED])
    for subject in _subjects(links, (name for pair in refused for name in (pair.one, pair.other))):
        yield Fail(subject, summary, evidence, register_anew(PEERS), Breaks.SUBJECT, cause="peer-access-refused")


def _lonely(lonely: tuple[str, ...], pairs: tuple[GpuPath, ...], where: str, links: NvLinks) -> Verdicts:
    from gpudoctor.knowledge.fabric_remedies import inspect_links

    names = ", ".join(lonely)
    summary = f"no NVLink joins {names} to any other GPU, while all the others are joined to each other"
    own = [pair for pair in pairs if {pair.one, pair.other} & set(lonely)]
    other = next(pair for pair in pairs if pair.nvlinks)
    evidence = tuple(_shown(pair, where) for pair in (*own[:2], other))
    for subject in _subjects(links, lonely):
        yield Fail(subject, summary, evidence, inspect_links(PEERS), Breaks.SUBJECT, cause="gpu-off-nvlink")
