"""NVLinks as a drawing shows them: islands of GPUs that NVLinks join, and those that none does."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpudoctor.topo import NvLinkBundle, Topo


class Island(Struct):
    """GPUs that NVLinks join, by their labels. `each` is how many join every pair, 0 where pairs differ."""

    gpus: tuple[str, ...]
    bundles: tuple[NvLinkBundle, ...]
    each: int = 0


def islands(topo: Topo) -> list[Island]:
    """The islands in the order of their first GPU."""
    order = [row.name for row in topo.matrix if not row.name.startswith("NIC")]
    groups: dict[str, set[str]] = {}
    for bundle in topo.nvlinks:
        if bundle.one not in order or bundle.other not in order:
            continue  # a GPU that NVML names in a pair and nowhere else
        mine, others = groups.get(bundle.one), groups.get(bundle.other)
        if mine is None or mine is not others:
            joined = (mine or {bundle.one}) | (others or {bundle.other})
            groups.update(dict.fromkeys(joined, joined))
    found: dict[int, Island] = {}
    for name in order:
        group = groups.get(name)
        if group is not None and id(group) not in found:
            found[id(group)] = _island(tuple(one for one in order if one in group), topo)
    return list(found.values())


def apart(topo: Topo) -> tuple[str, ...]:
    """GPUs that no NVLink joins to another although others are joined."""
    joined = {name for bundle in topo.nvlinks for name in (bundle.one, bundle.other)}
    names = (row.name for row in topo.matrix if not row.name.startswith("NIC"))
    return tuple(name for name in names if name not in joined) if joined else ()


def _island(gpus: tuple[str, ...], topo: Topo) -> Island:
    members = frozenset(gpus)
    bundles = tuple(bundle for bundle in topo.nvlinks if bundle.one in members and bundle.other in members)
    counts = {bundle.links for bundle in bundles}
    whole = len(bundles) == len(gpus) * (len(gpus) - 1) // 2 and len(counts) == 1
    return Island(gpus, bundles, each=counts.pop() if whole else 0)


def nvlink_counts(topo: Topo) -> Mapping[str, int]:
    """How many NVLinks of each GPU are up, as far as NVML counts them."""
    return {one.label: one.nvlinks for one in topo.of_kind("gpu") if one.nvlinks is not None and one.label}


def through(topo: Topo) -> str:
    """What the links lead to."""
    ends = {end for one in topo.functions for end in one.nvlinks_to}
    switches = len(topo.of_kind("nvswitch"))
    if "switch" in ends:
        return f"through {switches} NVSwitches" if switches > 1 else "through NVSwitches"
    return "directly" if "gpu" in ends else ""


def range_words(names: Sequence[str], most: int = 99) -> str:
    """`GPU0 to GPU7` for neighbours, `GPU0 and GPU1` for two, else all of them; of more than `most` only how many they are."""
    numbers = [int(name[3:]) for name in names if name[3:].isdecimal()]
    if (
        len(numbers) == len(names) > 2
        and numbers == list(range(numbers[0], numbers[0] + len(names)))
        and names[0][:3] == names[-1][:3]
    ):
        return f"{names[0]} to {names[-1]}"
    if len(names) > most:
        return f"{len(names)} devices"
    return " and ".join(names) if len(names) == 2 else ", ".join(names)
