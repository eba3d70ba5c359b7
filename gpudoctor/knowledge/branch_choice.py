"""Which branches of the driver, in which flavour, a set of GPUs can run with together."""

from typing import TYPE_CHECKING

from msgspec import Struct

from gpudoctor.knowledge.architectures import Flavour, architecture
from gpudoctor.knowledge.compute_capabilities import BY_CC, Capability, drives
from gpudoctor.knowledge.driver_branches import BRANCHES, Branch, Kind, supported_on
from gpudoctor.knowledge.gpu_models import cc_of_id

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable


class Choice(Struct, frozen=True):
    """`branches` drive all the GPUs and get fixes, oldest first; where there is none, those that drive them.

    `flavour` is None where some GPUs need the open modules and others the proprietary ones. `supported` is whether `branches` get fixes,
    `names` are the architectures.
    """

    branches: tuple[Branch, ...]
    flavour: Flavour | None
    supported: bool
    names: tuple[str, ...]

    @property
    def best(self) -> Branch | None:
        """The newest with long-term support, else the newest."""
        if not self.branches or self.flavour is None:
            return None
        lasting = [branch for branch in self.branches if branch.kind is Kind.LONG_TERM]
        return (lasting if lasting and self.supported else list(self.branches))[-1]


def capability_of(device_id: str) -> Capability | None:
    """The compute capability of a PCI device id, None for one that is not in the tables."""
    cc = cc_of_id(device_id)
    return BY_CC.get(cc) if cc is not None else None


def architecture_of(device_id: str) -> str | None:
    """The name of its architecture."""
    known, capability = architecture(device_id), capability_of(device_id)
    return known[0] if known is not None else capability.architecture if capability is not None else None


def choose(device_ids: "Iterable[str]", day: "datetime.date | None") -> Choice:
    """For the GPUs that the tables know; which branches get fixes is told of a day only."""
    ids = sorted(set(device_ids))
    known = {device_id: one for device_id in ids if (one := capability_of(device_id)) is not None}
    fitting = tuple(
        branch for branch in BRANCHES if known and all(drives(branch.number, one.cc) for one in known.values())
    )
    kept = tuple(branch for branch in supported_on(day) if branch in fitting) if day is not None else ()
    flavours = {said[1] for device_id in ids if (said := architecture(device_id)) is not None} - {Flavour.EITHER}
    return Choice(
        branches=kept or fitting,
        flavour=None if len(flavours) > 1 else next(iter(flavours), _older(known.values())),
        supported=bool(kept),
        names=tuple(dict.fromkeys(name for name in map(architecture_of, ids) if name is not None)),
    )


def _older(capabilities: "Iterable[Capability]") -> Flavour:
    """Of GPUs before Maxwell, which the table of flavours by device id leaves out."""
    return Flavour.PROPRIETARY if any(one.last_driver is not None for one in capabilities) else Flavour.EITHER
