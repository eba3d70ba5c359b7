"""The NVLinks of each GPU as far as NVML tells, and how many it should have."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.fabric_service import switched_off
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError, GpuPath, Later, NvLink, NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.virtual_machine import VirtualMachine
from gpudoctor.knowledge.nvlink_skus import NvLinkSku, sku
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

ACTIVE = "nvlink.active_links"
FEWEST_JOINED = 3
"""So many others must all be joined to each other before one that is joined to none has fallen out: two may share a bridge."""


class Wanted(Struct, frozen=True):
    """How many links a GPU should have, and who says so; `bridged` where a bridge brings them."""

    links: int
    evidence: Cited
    bridged: bool = False


class GpuLinks(Struct, frozen=True):
    """One GPU; `aside` says why its links are not judged, `active` is None where their number is not told."""

    gpu: PciGpu
    device: NvmlDevice | None
    aside: str | None
    active: int | None
    sku: NvLinkSku | None

    @property
    def links(self) -> tuple[NvLink, ...]:
        """All its links, active or not."""
        return () if self.device is None else self.device.nvlinks

    @property
    def later(self) -> Later | None:
        """The second look."""
        return None if self.device is None else self.device.later

    @property
    def answers(self) -> bool:
        """Whether NVML answers for it, and was asked about its links."""
        return self.device is not None and self.device.error is None and ACTIVE in self.device.fields

    @property
    def evidence(self) -> Cited:
        """How many are active."""
        if self.device is None or ACTIVE not in self.device.fields:
            return ()
        return (self.device.evidence(ACTIVE),)

    @property
    def direct(self) -> bool:
        """Whether its links lead to other GPUs, not to switches."""
        return not any(link.remote_type == "switch" for link in self.links)

    def cite_links(self, wanted: Sequence[int]) -> Cited:
        """Some of its links, each with state and rate."""
        return tuple(self._shown(link, _state(link)) for link in self.links if link.link in wanted)

    def cite_errors(self, wanted: Sequence[int]) -> Cited:
        """Some of its links, each with its counters."""
        return tuple(self._shown(link, _counters(link)) for link in self.links if link.link in wanted)

    def cite_later(self, wanted: Sequence[int]) -> Cited:
        """The same counters at the second look."""
        if self.later is None:
            return ()
        after = f", {self.later.seconds:.1f} s later"
        return tuple(self._shown(link, _counters(link) + after) for link in self.later.nvlinks if link.link in wanted)

    def _shown(self, link: NvLink, shows: str) -> Evidence:
        via = "NVML" if self.device is None else self.device.via
        return Evidence(f"{via} ({self.gpu.address})", f"NVLink {link.link}: {shows}")


def _state(link: NvLink) -> str:
    state = {True: "active", False: "inactive", None: "not told"}[link.active]
    rate = f", {link.megabytes_per_second} MB/s" if link.megabytes_per_second else ""
    remote = f", to a {link.remote_type}" if link.remote_type else ""
    return state + rate + remote


def _counters(link: NvLink) -> str:
    return ", ".join(f"{name} {count}" for name, count in link.errors.items()) or "no counters"


class NvLinks(Fact, frozen=True):
    """By address. `off` is the module's option that switches NVLink off, `guest` that this is, or may be, a virtual machine.

    `mute` is a GPU that NVML lists, or the bus, without an answer: links between GPUs are down at both ends then.
    """

    by_address: Mapping[str, GpuLinks]
    off: Evidence | None = None
    guest: Evidence | None = None
    mute: Evidence | None = None

    def of(self, gpu: PciGpu) -> GpuLinks:
        """One GPU's; every GPU of the bus has an entry."""
        return self.by_address[gpu.address]

    def __iter__(self) -> Iterator[GpuLinks]:
        return iter(self.by_address.values())

    @classmethod
    def gather(cls, desk: Desk) -> "NvLinks | Unread":
        """Parameters and firmware are looked at only where a GPU has NVLinks."""
        gpus, nvml = desk.get(PciGpus), desk.get(Nvml)
        if isinstance(gpus, Unread):
            return gpus
        if isinstance(nvml, Unread):
            return nvml
        found = {gpu.address: _links(gpu, nvml.device(gpu.address)) for gpu in gpus}
        # Where the option takes the NVLinks away, NVML calls them not supported, as on a board that has none.
        off = (
            switched_off(desk) if any(one.sku is not None or one.active is not None for one in found.values()) else None
        )
        if all(one.active is None and not one.links for one in found.values()):
            return cls(by_address=found, off=off)
        machine = desk.get(VirtualMachine)
        silent = next((one for one in found.values() if one.device is None or one.device.error is not None), None)
        return cls(
            by_address=found,
            off=off,
            guest=_guest(machine),
            mute=None if silent is None else Evidence(nvml.via, f"does not answer for {silent.gpu.address}"),
        )

    def wanted(self, one: GpuLinks) -> Wanted | None:
        """By the product, else by the best of its model on this node."""
        if one.sku is not None and self.guest is None:
            return self._by_product(one, one.sku)
        best = max((peer for peer in self if _same_model(one, peer)), key=_active, default=None)
        if best is None or not best.active:
            return None
        if not best.direct:
            return Wanted(best.active, best.evidence) if one.sku is not None or one.active else None
        # A guest may have got a part of the GPUs that are joined to each other; else bridges join those of an unknown product.
        return Wanted(best.active, best.evidence, bridged=True) if one.active and self.guest is None else None

    def _by_product(self, one: GpuLinks, product: NvLinkSku) -> Wanted | None:
        """Of cards a bridge may be absent, unless their like on this node is bridged by pairs and a pair is left over."""
        documented = (Evidence("NVLinks by product", f"{one.device.name if one.device else ''} has {product.links}"),)
        if not product.bridged or one.active:
            return Wanted(product.links, documented, bridged=product.bridged)
        peers = [peer for peer in self if product.pairs and _same_model(one, peer) and peer.active is not None]
        joined = [peer for peer in peers if peer.active]
        if not joined or (len(peers) - len(joined)) % 2:
            return None
        return Wanted(product.links, joined[0].evidence + documented, bridged=True)

    def lost_by(self, one: GpuLinks) -> str:
        """What is equal for all GPUs that lost links by one cause.

        A link between two GPUs is down at both ends: where one GPU lacks as many as all the others together, they lead to it.
        """
        lacking = {
            each.gpu.address: wanted.links - each.active
            for each in self
            if each.aside is None
            and each.active is not None
            and (wanted := self.wanted(each)) is not None
            and each.active < wanted.links
        }
        direct = all(each.direct for each in self if each.gpu.address in lacking)
        if direct and len(lacking) > 1 and 2 * max(lacking.values()) == sum(lacking.values()):
            return "nvlinks-between"
        return f"{one.gpu.address}-nvlinks" if one.active else "no-nvlinks"

    def lonely(self, pairs: Sequence[GpuPath]) -> tuple[str, ...]:
        """GPUs that no NVLink joins to any other, while it joins all of those to each other, and whose links nobody else judges."""
        joined = {name for pair in pairs if pair.nvlinks for name in (pair.one, pair.other)}
        alone = {name for pair in pairs for name in (pair.one, pair.other) if name.startswith("GPU")} - joined
        whole = all(pair.nvlinks for pair in pairs if {pair.one, pair.other} <= joined)
        if not alone or not whole or len(joined) < FEWEST_JOINED:
            return ()
        judged = {f"GPU{one.device.index}" for one in self if one.device is not None and _is_judged(one)}
        return tuple(sorted(alone - judged))


def _guest(machine: VirtualMachine | Unread) -> Evidence | None:
    """What could not be looked at may be one; of a bare capture, nobody says so."""
    if isinstance(machine, Unread):
        return None if machine.why is Why.NOT_ANSWERED else Evidence(machine.where, machine.detail)
    return machine.cite("guest")[0] if machine.guest else None


def _active(one: GpuLinks) -> int:
    return one.active or 0


def _same_model(one: GpuLinks, other: GpuLinks) -> bool:
    return (
        one.device is not None
        and other.device is not None
        and other.aside is None
        and one.device.name == other.device.name
        and one.device.name is not None
    )


def _is_judged(one: GpuLinks) -> bool:
    """By fabric.nvlinks-up, or not at all because MIG is on."""
    return one.active is not None or (one.device is not None and one.device.fields.get("mig.current") is True)


def _links(gpu: PciGpu, device: NvmlDevice | None) -> GpuLinks:
    told = None if device is None else device.fields.get(ACTIVE)
    active = told if isinstance(told, int) and not isinstance(told, bool) else None
    aside = _aside(device, told)
    known = sku(device.name) if device is not None else None
    return GpuLinks(gpu=gpu, device=device, aside=aside, active=active, sku=known)


def _aside(device: NvmlDevice | None, told: object) -> str | None:
    if device is None or device.error is not None:
        return "NVML does not answer for it"
    if device.fields.get("mig.current") is True:
        return "MIG is on, and the driver uses no NVLink then"
    if isinstance(told, FieldError):
        return "it has no NVLink"
    if not device.fields and not device.nvlinks:
        return "nothing beyond its identity was asked"
    return None
