"""How old the tables about drivers, CUDA and GPUs are, and up to which driver they reach."""

from msgspec import Struct

from gpudoctor.knowledge import (
    advisories,
    architectures,
    bad_drivers,
    compute_capabilities,
    cuda_compatibility,
    cuda_error_names,
    cuda_toolkits,
    driver_branches,
    frameworks,
    pci_gpus,
)


class Table(Struct, frozen=True):
    """One table with the day on which it was last compared with its source, or that its source is of."""

    name: str
    as_of: str
    source: str


class Tables(Struct, frozen=True):
    """All of them, the date of the oldest, and the newest driver branch that is known."""

    tables: tuple[Table, ...]
    oldest: str
    newest_branch: int


_TABLES = (
    architectures,
    bad_drivers,
    compute_capabilities,
    cuda_compatibility,
    cuda_error_names,
    cuda_toolkits,
    driver_branches,
    frameworks,
    pci_gpus,
)


def tables() -> Tables:
    """The tables' dates."""
    floors = Table("advisories", advisories.TABLE_DATE, f"NVIDIA security bulletins up to {advisories.NEWEST_BULLETIN}")
    dated = (floors, *(Table(one.__name__.rpartition(".")[2], one.AS_OF, one.SOURCE) for one in _TABLES))
    return Tables(dated, min(table.as_of for table in dated), driver_branches.NEWEST.number)
