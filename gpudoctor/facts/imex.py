"""IMEX, which exports GPU memory over NVLink to other nodes of a rack: its daemon, the list of its peers, and its channels.

NVIDIA IMEX Service for NVLink Networks User's Guide (Getting Started; Command Service; IMEX Channels): nvidia-imex.service,
/etc/nvidia-imex/nodes_config.cfg, and `nvidia-imex-ctl -q`, which asks the node's own daemon through its command service and prints READY
(so does the probe of NVIDIA's DRA driver, cmd/compute-domain-daemon). `-N` asks every node of the domain over the network: its answer is
read where somebody recorded it, and never asked for live. The DRA driver's compute domains, and prologs of Slurm, start daemons of their
own and want the node's disabled. Read 2026-11-30.
"""

from typing import Any

import msgspec

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_files import IMEX_DEVICE, ImexChannels
from gpudoctor.facts.device_nodes import Majors
from gpudoctor.facts.driver import DriverParameters
from gpudoctor.facts.fabric_manager import is_enabled, is_running
from gpudoctor.facts.fabric_service import CLUSTER, in_domain, last_words
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import JOURNALS, Absent, CommandOutput, Entry, Log, Raw, SourceKind
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread

UNIT = "nvidia-imex.service"
JOURNAL = f"{JOURNALS}{UNIT}"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
PROGRAM = "/usr/bin/nvidia-imex-ctl"
ASK = ("nvidia-imex-ctl", "-q")
ASK_DOMAIN = ("nvidia-imex-ctl", "-N", "-j")
COMM = "nvidia-imex"
MOST_NAMED = 6

_REASON = pattern(r"[Ff]ail|[Ee]rror|FATAL|timed out|exited, code=")


class Imex(Fact, frozen=True):
    """`domain` is the NVLink domain that wants it, None where this node is in none; nothing else is looked at then.

    `another` is a daemon that is not the node's service. `peers` counts the nodes in its list, None where it has none. `answer` is what it
    says of itself, None where nobody could ask. `apart` tells which nodes of the domain are not ready, where that was recorded.
    """

    domain: Evidence | None
    enabled: Reading[bool] = False
    running: Reading[bool] = False
    another: Evidence | None = None
    peers: Reading[int] | None = None
    answer: Evidence | None = None
    apart: Evidence | None = None
    said: Cited = ()

    @property
    def subject(self) -> Subject:
        """The service."""
        return Subject(SubjectKind.SERVICE, "nvidia-imex")

    @property
    def wanted(self) -> bool:
        """Whether the node's own is started at boot, or runs."""
        return self.enabled is True or self.running is True

    @classmethod
    def gather(cls, desk: Desk) -> "Imex | Unread":
        """Its files only where a GPU is in a domain, its program only where it runs."""
        gpus, nvml = desk.get(PciGpus), desk.get(Nvml)
        if isinstance(gpus, PciGpus) and not gpus.gpus and gpus.unlisted is None:
            return cls(domain=None)
        if isinstance(nvml, Unread):
            return nvml
        domain = next((device.evidence(CLUSTER) for device in nvml.devices if in_domain(device)), None)
        if domain is None:
            return cls(domain=None)
        raw = desk.raw
        enabled, link = is_enabled(raw, UNIT)
        running, group = is_running(raw, UNIT)
        another = None if running is True else _another(desk)
        seen = {"enabled": link, "running": group}
        if running is not True and enabled is not True and another is None:
            return cls(domain=domain, enabled=enabled, running=running, read_from=seen)
        peers, listed = _peers(raw)
        ended = enabled is True and running is False
        return cls(
            domain=domain,
            enabled=enabled,
            running=running,
            another=another,
            peers=peers,
            answer=_answer(raw) if running is True else None,
            apart=_apart(raw) if running is True and raw.kind not in (SourceKind.LIVE, SourceKind.ROOT) else None,
            said=_said(raw) if ended else (),
            read_from=seen | {"peers": listed},
        )


def _another(desk: Desk) -> Evidence | None:
    processes = desk.get(Processes)
    if isinstance(processes, Unread):
        return None
    one = next((one for one in processes.processes if one.comm == COMM and not one.ended), None)
    return None if one is None else Evidence(f"/proc/{one.pid}/comm", COMM)


def _peers(raw: Raw) -> tuple[Reading[int] | None, Evidence]:
    """Addresses, one a line; `#` begins a remark."""
    file = raw.read(NODES)
    if isinstance(file, Unread):
        return file, Evidence(NODES, file.detail)
    if isinstance(file, Absent):
        return None, file.evidence
    lines = [line.strip() for line in file.text.splitlines()]
    count = sum(1 for line in lines if line and not line.startswith("#"))
    return count, Evidence(NODES, f"lists {count} nodes")


def _answer(raw: Raw) -> Evidence | None:
    if not isinstance(raw.entry(PROGRAM, follow=True), Entry):
        return None
    output = raw.command(ASK, seconds=3.0)
    if not isinstance(output, CommandOutput):
        return None
    line = (output.stdout.strip() or output.stderr.strip()).partition("\n")[0][:160]
    return Evidence(" ".join(ASK), line) if line else None


def _apart(raw: Raw) -> Evidence | None:
    """The domain's status, and each node whose own is not READY."""
    output = raw.command(ASK_DOMAIN)
    if not isinstance(output, CommandOutput):
        return None
    try:
        told = msgspec.json.decode(output.stdout, type=dict[str, Any])
        nodes = msgspec.convert(told.get("nodes", {}), dict[str, dict[str, Any]])
    except (msgspec.MsgspecError, RecursionError):
        return None
    status = str(told.get("status", ""))[:40]
    bad = [
        f"{str(node.get('host', ''))[:64]} {str(node.get('status', ''))[:40]}"
        for node in nodes.values()
        if node.get("status") != "READY"
    ]
    if status in ("", "UP") and not bad:
        return None
    return Evidence(" ".join(ASK_DOMAIN), ", ".join([f"domain {status or 'without a status'}", *bad[:MOST_NAMED]]))


def _said(raw: Raw) -> Cited:
    log = raw.log(JOURNAL + ".log")
    return last_words(log, _REASON) if isinstance(log, Log) else ()


class ImexSetup(Fact, frozen=True):
    """The channels of a node that is in an NVLink domain; `major` is None where the driver has registered none."""

    imex: Imex
    channels: Reading[ImexChannels] | None = None
    major: int | None = None
    option: Evidence | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "ImexSetup | Unread":
        """Looked at only where a daemon is the node's own matter."""
        imex = desk.get(Imex)
        if isinstance(imex, Unread):
            return imex
        if imex.domain is None:
            return cls(imex=imex)
        majors, parameters = desk.get(Majors), desk.get(DriverParameters)
        if isinstance(majors, Unread):
            return majors
        return cls(
            imex=imex,
            channels=desk.get(ImexChannels),
            major=majors.by_name.get(IMEX_DEVICE),
            option=None if isinstance(parameters, Unread) else parameters.evidence("CreateImexChannel0"),
        )
