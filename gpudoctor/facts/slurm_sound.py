"""What makes slurmd refuse the records of GPUs in gres.conf, or leave some of them out.

Each rule is one of SchedMD/slurm src/interfaces/gres.c @284c3b95: _parse_gres_config, _foreach_gres_conf, _handle_local_autodetect,
_foreach_slurm_conf, _foreach_fill_in_gres_devices; slurmd says "fatal:" and ends, or "error:" and goes on without.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpudoctor.facts.raw import decimal
from gpudoctor.facts.slurm_gres import GPU, GresConf, GresRecord, NodeConf, cores_in
from gpudoctor.facts.slurm_log import Said, Told
from gpudoctor.facts.slurm_node import Machine, NodeState
from gpudoctor.facts.slurm_setup import Setup
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited

SHARED = ("mps", "shard")
"""Gres of which one file may have many: Count= then is no number of files (gres.conf(5), Count)."""

_SOCKET = "the cores of a GPU are not those of whole sockets"
_OF_CORES = ("doesn't match socket boundaries", "invalid GRES core specification")
_BEYOND = "cores-beyond"
_NODE = pattern(r" (?:for|on) node \S+")


class Fault(Struct, frozen=True):
    """One thing that is wrong; `fatal` where slurmd ends over it."""

    says: str
    evidence: Cited
    cause: str
    fatal: bool = True


def faults_in(setup: Setup) -> Iterator[Fault]:
    """Those of the files; then what slurmd said where no rule here told it already."""
    found = [*_of_records(setup.gres, _cores(setup)), *_of_detection(setup.gres), *_of_conf(setup.conf)]
    yield from found
    if not any(fault.fatal for fault in found) and not setup.log.alive:
        yield from _said(setup.log.of(Said.UNSOUND), "slurmd ended over its files", fatal=True)
    yield from _said(setup.log.of(Said.CORES), f"{_SOCKET}, and Slurm takes the node out", fatal=True)
    if isinstance(setup.state, NodeState) and any(word in setup.state.reason for word in _OF_CORES):
        named = tuple(record.line.evidence for record in setup.gres.gpus if record.line.value("cores", "cpus"))
        says = f"{_SOCKET}, and Slurm takes the node out: {_nameless(setup.state.reason)}"
        yield Fault(says, (*setup.state.evidence, *named[:4]), Said.CORES.value)
    if not any(fault.cause == _BEYOND for fault in found):
        passed_over = "slurmd passes over the Cores= of a GPU"
        yield from _said(setup.log.of(Said.NO_CORES), passed_over, fatal=False)
    mismatch = "Cores= or Links= of a GPU differ from what slurmd found, and it leaves that GPU out"
    yield from _said(setup.log.of(Said.MISMATCH), mismatch, fatal=False)


def _said(told: Sequence[Told], says: str, *, fatal: bool) -> Iterator[Fault]:
    if told:
        words = _nameless(told[-1].evidence.shows)
        yield Fault(f"{says}: {words}", tuple(one.evidence for one in told[-2:]), told[-1].said.value, fatal)


def _nameless(words: str) -> str:
    """Slurm's words without the node's name, which summaries do not hold."""
    return _NODE.sub("", words)


def _lines(records: Sequence[GresRecord]) -> Cited:
    return tuple(dict.fromkeys(record.line.evidence for record in records[:4]))


def _of_records(conf: GresConf, cores: int | None) -> Iterator[Fault]:
    for name in dict.fromkeys(record.name for record in conf.records):
        if name == GPU or name in SHARED:
            yield from _together([record for record in conf.records if record.name == name], name)
    for record in conf.gpus:
        yield from _alone(record, cores)


def _together(records: Sequence[GresRecord], name: str) -> Iterator[Fault]:
    """Records of one gres contradict each other."""
    with_file = [record for record in records if record.files]
    with_type = [record for record in records if record.type]
    numbers = " and ".join(str(record.line.number) for record in (records[0], records[-1]))
    if with_file and len(with_file) < len(records):
        yield Fault(f"some {name} records have File= and others do not, which slurmd refuses", _lines(records), "file")
    if with_type and len(with_type) < len(records):
        yield Fault(f"some {name} records have Type= and others do not, which slurmd refuses", _lines(records), "type")
    if not with_file and not with_type and len(records) > 1:
        says = f"lines {numbers} are two {name} records without File= and Type=: slurmd refuses them as duplicates"
        yield Fault(says, _lines(records), "duplicate")
    if name == GPU:
        yield from _twice(with_file)


def _twice(records: Sequence[GresRecord]) -> Iterator[Fault]:
    seen: dict[str, GresRecord] = {}
    for record in records:
        for path in () if record.multiple else record.files:
            if path in seen:
                other = seen[path]
                says = f"{path} stands in lines {other.line.number} and {record.line.number}: one GPU is counted twice"
                yield Fault(says, _lines([other, record]), "twice")
                return
            seen[path] = record


def _alone(record: GresRecord, cores: int | None) -> Iterator[Fault]:
    """One record contradicts itself."""
    line, number = record.line, f"line {record.line.number}"
    if record.multiple and line.value("file", "files") is not None:
        yield Fault(f"{number} has File= and MultipleFiles=, which exclude each other", (line.evidence,), "multiple")
    elif record.multiple and len(record.files) < 2:
        yield Fault(f"{number} has one file in MultipleFiles=, which slurmd refuses", (line.evidence,), "multiple")
    if record.count == -1:
        yield Fault(f"{number} has a Count= that is no number", (line.evidence,), "count")
    elif record.count and record.files and record.count != record.devices:
        says = f"{number} has Count={record.count} for {record.devices} files, which slurmd refuses"
        yield Fault(says, (line.evidence,), "count")
    named = cores_in(line.value("cores", "cpus") or "")
    if cores is not None and named and max(named) >= cores:
        says = (
            f"{number} names core {max(named)} in Cores=, and the node has {cores}, counted from 0: slurmd passes over it. Cores= takes "
            "Slurm's numbers of cores, not Linux's of hardware threads"
        )
        yield Fault(says, (line.evidence,), _BEYOND, fatal=False)


def _cores(setup: Setup) -> int | None:
    """The most that slurm.conf or slurmd tells: with SlurmdParameters=config_overrides it is slurm.conf that counts."""
    told = (_of_line(setup), setup.machine.cores if isinstance(setup.machine, Machine) else None)
    return max((number for number in told if number is not None), default=None)


def _of_line(setup: Setup) -> int | None:
    """Boards, sockets and cores of the node's line; where it has none of them, its processors are an upper limit."""
    line = setup.conf.line
    if line is None:
        return None
    boards = decimal(line.value("boards") or "1") or 1
    sockets, per_board = decimal(line.value("sockets") or ""), decimal(line.value("socketsperboard") or "")
    cores = decimal(line.value("corespersocket") or "")
    if cores is not None and (sockets is not None or per_board is not None):
        return cores * (sockets if sockets is not None else boards * (per_board or 1))
    return decimal(line.value("cpus", "procs") or "")


def _of_detection(conf: GresConf) -> Iterator[Fault]:
    words = dict.fromkeys((line.value("autodetect") or "").lower() for line in conf.local)
    if len(words) > 1:
        says = f"lines for this node have different AutoDetect=: {' and '.join(words)}, which slurmd refuses"
        yield Fault(says, tuple(line.evidence for line in conf.local[:2]), "autodetect")
    if conf.detection.word and not conf.detection.kind:
        says = f"AutoDetect={conf.detection.word} is no word that Slurm knows: it is passed over"
        yield Fault(says, (conf.detection.evidence,), "autodetect", fatal=False)
    if conf.inline and conf.detection.word != (conf.inline[0].value("autodetect") or "").lower():
        says = "AutoDetect= on a line that begins with Name= has no effect: it takes a line of its own, or NodeName= before it"
        yield Fault(says, (conf.inline[0].evidence,), "inline", fatal=False)


def _of_conf(conf: NodeConf) -> Iterator[Fault]:
    typed = [one for one in conf.gres if one.type]
    if typed and len(typed) < len(conf.gres):
        yield Fault(
            "Gres= of this node has GPUs with and without a type, which slurmd refuses", (conf.evidence,), "mixed"
        )
    types = {word.strip().lower() for word in conf.setting("grestypes").split(",")}
    if conf.gres and conf.promised and GPU not in types and conf.file.known:
        says = "Gres= names GPUs, but GresTypes does not list gpu: Slurm passes over them"
        yield Fault(says, (conf.evidence, conf.cite("grestypes")), "grestypes")
