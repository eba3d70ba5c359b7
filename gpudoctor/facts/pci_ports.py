"""The port above each GPU: the errors that only it can report, such as a link that went down by surprise."""

from collections.abc import Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact, Reading
from gpudoctor.facts.pci import DEVICES
from gpudoctor.facts.pci_link import GpuPlaces
from gpudoctor.facts.pci_state import errors_counted
from gpudoctor.verdicts import Unread


class PortAbove(Citable, frozen=True):
    """The port at the upper end of a GPU's own link; `fatal_errors` is None where the kernel counts none."""

    address: str
    fatal_errors: Reading[int | None]


class PortsAbove(Fact, frozen=True):
    """The port above each GPU by the GPU's address; a GPU above which none is visible is left out."""

    by_gpu: Mapping[str, PortAbove]

    @classmethod
    def gather(cls, desk: Desk) -> "PortsAbove | Unread":
        """One file for each port. Its counters are kept by the kernel: no register is read."""
        places = desk.get(GpuPlaces)
        if isinstance(places, Unread):
            return places
        known = {gpu: place for gpu, place in places.by_address.items() if not isinstance(place, Unread)}
        return cls(by_gpu={gpu: _port(desk, place[-2]) for gpu, place in known.items() if len(place) > 1})


def _port(desk: Desk, address: str) -> PortAbove:
    errors, evidence = errors_counted(desk.raw, f"{DEVICES}/{address}/aer_dev_fatal", "TOTAL_ERR_FATAL")
    return PortAbove(address=address, fatal_errors=errors, read_from={"fatal_errors": evidence})
