"""What DCGM's host engine says of the node's health: `dcgmi health`, asked only where an engine runs."""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, CommandOutput, SourceKind
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

ENGINE = "nv-hostengine"
# Group 0 is the one of all GPUs (dcgm_structs.h, DCGM_GROUP_ALL_GPUS). It reads the watches that are set, and sets none.
ASK = ("dcgmi", "health", "-g", "0", "-c", "-j")
WHERE = " ".join(ASK)
SECONDS = 5.0

HEALTHY, WARNING, FAILURE = "Healthy", "Warning", "Failure"
_UNWATCHED = "Health watches not enabled"
_OVERALL = "Overall Health"


class Incident(Struct, frozen=True):
    """What DCGM found on one entity: `group` as "GPU" or "Switch", its number there, the system ("Memory system") and how bad."""

    group: str
    entity: int
    system: str
    health: str
    text: str

    @property
    def evidence(self) -> Evidence:
        """As dcgmi printed it."""
        return Evidence(WHERE, f"{self.group} {self.entity}, {self.system}: {self.health}: {self.text}")


class DcgmHealth(Fact, frozen=True):
    """`absent` says why there is nothing to ask, `unwatched` that nobody switched DCGM's health watches on."""

    overall: str = ""
    incidents: tuple[Incident, ...] = ()
    absent: str = ""
    unwatched: bool = False
    seen: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "DcgmHealth | Unread":
        """Of a live node the processes are looked through first: without an engine dcgmi waits for one."""
        live = desk.raw.kind in (SourceKind.LIVE, SourceKind.ROOT)
        output = None if live else desk.raw.command(ASK, seconds=SECONDS)
        if output is None or (isinstance(output, Unread) and output.why is Why.NOT_RECORDED):
            processes = desk.get(Processes)
            if isinstance(processes, Unread):
                return output or processes
            if all(process.comm != ENGINE for process in processes.processes):
                return cls(absent=f"no {ENGINE} runs", seen=processes.cite("processes"))
            output = output or desk.raw.command(ASK, seconds=SECONDS)
        if isinstance(output, Absent):
            return cls(absent="dcgmi is not installed", seen=(output.evidence,))
        if isinstance(output, Unread):
            return output
        return _parsed(output)


def _parsed(output: CommandOutput) -> DcgmHealth | Unread:
    if _UNWATCHED in output.stdout:
        return DcgmHealth(unwatched=True, seen=(Evidence(WHERE, output.stdout.strip()[:200]),))
    answer = json_in(output.stdout)
    body = answer.get("body") if answer is not None else None
    overall = _value(body.get(_OVERALL)) if isinstance(body, dict) else ""
    if not isinstance(body, dict) or not overall:
        said = (output.stdout or output.stderr).strip().partition("\n")[0][:200]
        return Unread(Why.NOT_ANSWERED, WHERE, said or f"says nothing (exit {output.exit})")
    found = tuple(incident for group, node in body.items() if group != _OVERALL for incident in _incidents(group, node))
    return DcgmHealth(overall=overall, incidents=found, seen=(Evidence(WHERE, f"{_OVERALL}: {overall}"),))


def json_in(text: str) -> dict[str, Any] | None:
    """The object that a tool printed, after lines of words or none; None where there is none."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _incidents(group: str, node: object) -> Iterator[Incident]:
    """Of {"children": {"3": {"children": {"Errors": {"children": {SYSTEM: {"value", "overflow"}}}}}}} (dcgmi/DcgmiOutput.cpp)."""
    for number, entity in _children(node).items():
        if not number.isdecimal() or len(number) > 9:
            continue
        for system, told in _children(_children(entity).get("Errors")).items():
            pieces = told.get("overflow") if isinstance(told, dict) else None
            text = " ".join(str(piece) for piece in pieces) if isinstance(pieces, list) else ""
            yield Incident(group, int(number), system, _value(told), text)


def _children(node: object) -> dict[str, Any]:
    children = node.get("children") if isinstance(node, dict) else None
    return children if isinstance(children, dict) else {}


def _value(node: object) -> str:
    value = node.get("value") if isinstance(node, dict) else None
    return value if isinstance(value, str) else ""
