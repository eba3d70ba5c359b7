"""Who shares the GPUs, as several forms of a report tell it: rows that say the same of several GPUs folded into one."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.diagnosis import label
from gpudoctor.knowledge.isolation import BY_MIG_PARTS, NOT_SHARED
from gpudoctor.report import How, SharedGpu
from gpudoctor.verdicts import Subject, SubjectKind


class Share(Struct, frozen=True):
    """One row for several GPUs of which the same is said; `row` is that of the first."""

    gpus: tuple[str, ...]
    row: SharedGpu

    @property
    def label(self) -> str:
        """`8 GPUs`, `GPU 0000:3a:00.0`."""
        return label([Subject(SubjectKind.GPU, address) for address in self.gpus])

    @property
    def by(self) -> str:
        """Who: names as far as they are told, and how many more there are."""
        names, count = ", ".join(self.row.by), self.row.workloads
        more = (count or 0) - len(self.row.by)
        if more > 0:
            names += f" and {more} more" if names else f"{more} not known by name"
        return names or ("nobody now" if count == 0 else "not known")

    @property
    def how(self) -> str:
        """How, and more of it."""
        word = "not known" if self.row.how is How.UNKNOWN else self.row.how.value
        return f"{word}: {self.row.detail}" if self.row.detail else word

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """All that is told beyond how, by its name."""
        row = self.row
        told = (
            ("by", self.by),
            ("memory", row.memory),
            ("faults", row.faults),
            ("compute", row.compute),
            ("access", row.access),
            ("room", row.room),
            ("note", row.note),
        )
        return tuple((name, words) for name, words in told if words and words != NOT_SHARED.memory)


def folded(rows: Sequence[SharedGpu]) -> tuple[Share, ...]:
    """The rows in their order, those that differ only in the GPU put together."""
    alike: dict[SharedGpu, list[str]] = {}
    for row in rows:
        alike.setdefault(replace(row, gpu=""), []).append(row.gpu)
    return tuple(Share(tuple(gpus), row) for row, gpus in alike.items())


def in_lines(rows: Sequence[SharedGpu]) -> list[str]:
    """A line for each way, without anything that differs between like nodes: no name, no process, and of whole GPUs not who has them.

    None where nothing is known of any GPU: what hides it is told as a root cause or as not seen.
    """
    if all(row.how is How.UNKNOWN for row in rows):
        return []
    alike: dict[str, list[SharedGpu]] = {}
    for row in rows:
        alike.setdefault(_way(row), []).append(row)
    return [f"{label(_subjects(group))}: {words}{_counts(group)}" for words, group in alike.items()]


_WAYS = {
    How.WHOLE: "whole, at most one workload",
    How.MPS: "MPS, a fault of one client ends all",
    How.TIME_SLICING: "time-slicing, nothing kept apart",
    How.PROCESSES: "used together, nothing kept apart",
    How.PASSTHROUGH: "given to virtual machines",
}


def _way(row: SharedGpu) -> str:
    match row.how:
        case How.MIG:
            return f"MIG, {_apart(row)}; {row.detail}"
        case How.VGPU:
            return f"vGPU; {row.detail}"
        case How.UNKNOWN:
            # What stands behind a colon names files and processes.
            return f"not known: {row.detail.partition(': ')[0]}"
        case how:
            return _WAYS[how]


def _apart(row: SharedGpu) -> str:
    """No more than holds for all of a GPU's instances."""
    if row.note:
        return "some devices shared once more"
    return "kept apart in hardware" + (" between GPU instances" if row.memory == BY_MIG_PARTS.memory else "")


def _counts(group: Sequence[SharedGpu]) -> str:
    """How many share, where there is something to share."""
    if group[0].how is How.WHOLE:
        return " each" if len(group) > 1 else ""
    counts = [row.workloads for row in group if row.workloads is not None]
    if not counts or len(counts) < len(group) or group[0].how not in (How.MPS, How.TIME_SLICING, How.PROCESSES):
        return ""
    fewest, most = min(counts), max(counts)
    span = str(most) if fewest == most else f"{fewest} to {most}"
    return f"; {span} workload{'' if span == '1' else 's'}{' each' if len(group) > 1 else ''}"


def _subjects(group: Sequence[SharedGpu]) -> list[Subject]:
    return [Subject(SubjectKind.GPU, row.gpu) for row in group]
