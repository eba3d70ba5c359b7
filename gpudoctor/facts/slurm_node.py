"""What Slurm's own programs say: the controller's record of this node and of a job, and what slurmd counts on the machine.

`scontrol show node` and `scontrol show job -d` as SchedMD/slurm src/api/node_info.c and job_info.c print them, jobs also in the JSON of
slurmrestd and `--json`; `slurmd -C` prints a line for slurm.conf (slurmd(8)). Reasons as src/slurmctld/node_mgr.c writes them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.raw import CommandOutput, Raw, decimal
from gpudoctor.facts.slurm import command_said
from gpudoctor.facts.slurm_gres import GPU, Promised, counted
from gpudoctor.facts.slurm_hostlist import lists, spelled_out, split_list
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

OUT_OF_SERVICE = ("DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "INVALID_REG", "INVAL", "ERROR")
"""Flags and states in which the node gets no new jobs."""

_PAIR = pattern(r"(?:^|\s)([A-Z]\w*)=")
_SET_BY = pattern(r"([^\[\]@]+)@([^\[\]]+)")
_WHOLE_LINES = ("OS=", "Reason=", "Comment=", "Extra=")
_IDX = pattern(r"gpu(?:(?!gpu)[^,()])*\(IDX:([0-9,-]*)\)")
_DETAIL = pattern(r"^ +Nodes=(\S+) .*?GRES=(\S*)", re.MULTILINE)


class NodeState(Struct, frozen=True):
    """The controller's record. `states` are its state and flags, `silent` the star behind it: the node does not answer.

    `by` and `at` say who set the reason, and when.
    """

    name: str
    states: tuple[str, ...]
    silent: bool
    gres: tuple[Promised, ...]
    reason: str
    by: str
    at: str
    where: str
    line: str

    @property
    def out(self) -> tuple[str, ...]:
        """The states that keep jobs away."""
        return tuple(state for state in self.states if state in OUT_OF_SERVICE)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """State and reason as they were printed."""
        told = f" [{self.by}@{self.at}]" if self.by else ""
        reason = (Evidence(self.where, f"Reason={self.reason}{told}", self.at or None),) if self.reason else ()
        return (Evidence(self.where, self.line), *reason)


class Machine(Struct, frozen=True):
    """What slurmd counts: processors, cores, and GPUs where it was built to find them."""

    cpus: int | None
    cores: int | None
    line: Evidence


class Allocation(Struct, frozen=True):
    """The GPUs of one job on this node, as indices of Slurm's own (IDX); None where the controller tells only how many."""

    job: str
    state: str
    indices: tuple[int, ...] | None
    evidence: Evidence


def ask_node(raw: Raw, name: str, conf: str = "") -> NodeState | Unread:
    """Ask the controller once."""
    argv = ("scontrol", "show", "node", name)
    if not name:
        return Unread(Why.NOT_ANSWERED, "scontrol show node", "what Slurm calls this node is not known")
    output = command_said(raw, argv, conf)
    return parse_node(output.stdout, " ".join(argv)) if isinstance(output, CommandOutput) else output


def parse_node(text: str, where: str) -> NodeState | Unread:
    """Lines of `Name=value`; a reason that was set by somebody ends with who and when."""
    said = dict(_pairs(text))
    if "NodeName" not in said or not said.get("State"):
        return Unread(Why.UNREADABLE, where, f"names no node: {text.strip().partition(chr(10))[0][:100]!r}")
    state = said["State"]
    reason, by, at = _reason(text)
    return NodeState(
        name=said["NodeName"],
        states=tuple(word.rstrip("*~#!%$@^-") for word in state.split("+")),
        silent="*" in state,
        gres=tuple(gres_in(said.get("Gres", ""))),
        reason=reason,
        by=by,
        at=at,
        where=where,
        line=f"State={state}",
    )


def _reason(text: str) -> tuple[str, str, str]:
    """The reason, with who set it and when, `[root@2026-11-29T08:01:22]` at its end."""
    line = next((line for line in text.split("\n") if line.lstrip(" ").startswith("Reason=")), "")
    said = line.partition("=")[2].strip(" ")
    words, _, last = said.removesuffix("]").rpartition(" [")
    found = _SET_BY.fullmatch(last) if said.endswith("]") else None
    return (words.strip(), found[1], found[2]) if found is not None else (said.strip(), "", "")


def gres_in(text: str) -> Iterator[Promised]:
    """`gpu:a100:2(S:0-1)`, as the controller prints it."""
    for part in split_list(text):
        words = part.partition("(")[0].split(":")
        if words[0] == GPU:
            count = counted(words[-1]) if len(words) > 1 else 1
            yield Promised(words[1] if len(words) > 2 else "", max(count, 0))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(_WHOLE_LINES):
            name, _, value = stripped.partition("=")
            yield name, value
            continue
        at = list(_PAIR.finditer(stripped))
        ends = [*(found.start() for found in at[1:]), len(stripped)][: len(at)]
        for found, end in zip(at, ends, strict=True):
            yield found[1], stripped[found.end() : end].strip()


def ask_machine(raw: Raw) -> Machine | Unread:
    """Ask slurmd what it counts, without starting it."""
    output = command_said(raw, ("slurmd", "-C"))
    return parse_machine(output.stdout) if isinstance(output, CommandOutput) else output


def parse_machine(text: str) -> Machine | Unread:
    """`NodeName=n2 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=…`."""
    line = next((line for line in text.splitlines() if line.startswith("NodeName=")), "")
    said = {name: decimal(value) for name, value in _pairs(line)}
    if not line:
        return Unread(Why.UNREADABLE, "slurmd -C", "prints no NodeName=")
    parts = [said.get(name) for name in ("Boards", "SocketsPerBoard", "CoresPerSocket")]
    cores = 1
    for part in parts:
        cores *= part or 0
    return Machine(said.get("CPUs"), cores or None, Evidence("slurmd -C", line[:200]))


# jobs ---------------------------------------------------------------------------------------------------------------


def ask_job(raw: Raw, job: str, node: str, conf: str = "") -> Allocation | Unread:
    """Ask the controller for the details of one job."""
    argv = ("scontrol", "show", "job", "-d", job)
    output = command_said(raw, argv, conf)
    return parse_job(output.stdout, node, " ".join(argv)) if isinstance(output, CommandOutput) else output


def parse_job(text: str, node: str, where: str) -> Allocation | Unread:
    """The part of a job that is on one node, of either form."""
    if text.lstrip().startswith("{"):
        return _json_job(text, node, where)
    said = dict(_pairs(text))
    if "JobId" not in said:
        return Unread(Why.UNREADABLE, where, "names no job")
    for nodes, gres in _DETAIL.findall(text):
        if lists(nodes, node):
            shows = f"Nodes={nodes} GRES={gres or '(none)'}"
            return Allocation(said["JobId"], said.get("JobState", ""), _indices(gres), Evidence(where, shows))
    state = said.get("JobState", "")
    return Unread(Why.NOT_ANSWERED, where, f"tells nothing of this node: JobState={state or 'not told'}")


def _indices(gres: str) -> tuple[int, ...] | None:
    """Of `gpu:a100:2(IDX:0-1)`; none where there is no GPU, None where only a number is told."""
    found = [
        number
        for ranges in _IDX.findall(gres)
        for name in spelled_out(f"[{ranges}]")
        if (number := decimal(name)) is not None
    ]
    return tuple(sorted(set(found))) if found or GPU not in gres else None


def _json_job(text: str, node: str, where: str) -> Allocation | Unread:
    """A record of slurmrestd's, alone or in a list; `gres_detail` has one entry for each node of `job_resources` (openapi data_parser)."""
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unread(Why.UNREADABLE, where, f"is no JSON: {error}")
    jobs: Any = said.get("jobs")
    first: Any = jobs[0] if isinstance(jobs, list) and jobs else said
    job: dict[str, Any] = first if isinstance(first, dict) else {}
    if "job_id" not in job:
        return Unread(Why.UNREADABLE, where, "names no job")
    state = job.get("job_state", "")
    words = "+".join(str(one) for one in state) if isinstance(state, list) else str(state)
    names = _json_nodes(job)
    details = job.get("gres_detail")
    if node not in names:
        return Unread(Why.NOT_ANSWERED, where, f"tells nothing of this node: job_state {words}")
    at = names.index(node)
    told: list[Any] = details if isinstance(details, list) else []
    detail = str(told[at]) if at < len(told) else ""
    indices = _indices(detail) if detail or details == [] else None
    return Allocation(str(job["job_id"]), words, indices, Evidence(where, f"{node}: gres_detail {detail or '(none)'}"))


def _json_nodes(job: Mapping[str, Any]) -> list[str]:
    resources = job.get("job_resources")
    nodes = resources.get("nodes") if isinstance(resources, dict) else None
    allocation = nodes.get("allocation") if isinstance(nodes, dict) else None
    if isinstance(allocation, list) and allocation:
        return [str(one.get("name", one.get("nodename", ""))) for one in allocation if isinstance(one, dict)]
    return list(spelled_out(str(job.get("nodes") or "")))
