"""What Slurm's files say of one node's GPUs: the records of gres.conf, and the node and its partitions in slurm.conf.

gres.conf(5) and slurm.conf(5); SchedMD/slurm src/interfaces/gres.c @284c3b95 (_parse_gres_config, _load_gres_conf, _merge_gres):
slurm.conf says how many there are, gres.conf which files they are, and what gres.conf has beyond that is ignored.
"""

import re
from collections.abc import Iterable, Iterator, Set

from msgspec import Struct

from gpudoctor.facts.raw import decimal
from gpudoctor.facts.slurm_files import ConfFile, Line
from gpudoctor.facts.slurm_hostlist import MOST, lists, position, spelled_out, split_list
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence

GPU = "gpu"
DEFAULT = "default"
DETECTORS = ("full", "nvml", "rsmi", "oneapi", "nrt", "nvidia")
"""In the order in which a value is looked through for them (_handle_autodetect_flags in gres.c)."""

MOST_CORES = 8192
"""The most that Linux is built for (CONFIG_NR_CPUS in arch/x86/Kconfig)."""

_COUNT = pattern(r"(\d{1,18})([KMGTP]?)", re.IGNORECASE)
_SUFFIX = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


class GresRecord(Struct, frozen=True):
    """One line of gres.conf that holds for the node. `count` is None where it says none, -1 where it is no number."""

    line: Line
    name: str
    type: str
    files: tuple[str, ...]
    multiple: bool
    count: int | None
    named_node: bool

    @property
    def devices(self) -> int:
        """How many it stands for: files, one for several of them in MultipleFiles, or what it says."""
        if self.files:
            return 1 if self.multiple else len(self.files)
        return self.count if self.count is not None and self.count > 0 else 1


class Detection(Struct, frozen=True):
    """AutoDetect as it holds for the node: "" where nobody says it; `word` as it was written."""

    kind: str
    word: str
    evidence: Evidence

    @property
    def on(self) -> bool:
        """Whether slurmd looks for GPUs by itself."""
        return self.kind in DETECTORS


class GresConf(Struct, frozen=True):
    """gres.conf for one node. `others` counts lines for other nodes.

    `local` are the lines with an AutoDetect= of the node's own, `inline` those with one that has no effect.
    """

    file: ConfFile
    records: tuple[GresRecord, ...]
    detection: Detection
    local: tuple[Line, ...] = ()
    inline: tuple[Line, ...] = ()
    others: int = 0

    @property
    def gpus(self) -> tuple[GresRecord, ...]:
        """The records of GPUs."""
        return tuple(record for record in self.records if record.name == GPU)


def gres_conf(file: ConfFile, node: str) -> GresConf:
    """What of it holds for a node."""
    records: list[GresRecord] = []
    named: list[GresRecord] = []
    local: list[Line] = []
    inline: list[Line] = []
    spread: Line | None = None
    others = 0
    left: dict[str, int] = {}
    for line in file.lines:
        if line.first == "nodename":
            if not lists(line.value("nodename") or "", node):
                others += 1
                continue
            local += [line] if line.value("autodetect") is not None else []
            named += [_record(line, left, named_node=True)] if line.value("name") else []
        elif line.first == "name":
            inline += [line] if line.value("autodetect") is not None else []
            records.append(_record(line, left, named_node=False))
        elif line.first == "autodetect":
            spread = line
    told = local[0] if local else spread
    return GresConf(file, (*records, *named), _detection(told, file), tuple(local), tuple(inline), others)


def _detection(line: Line | None, file: ConfFile) -> Detection:
    if line is None:
        return Detection("", "", file.evidence("sets no AutoDetect"))
    word = (line.value("autodetect") or "").lower()
    kind = next((one for one in DETECTORS if one in word), "off" if word == "off" else "")
    return Detection(kind, word, line.evidence)


def _record(line: Line, left: dict[str, int], *, named_node: bool) -> GresRecord:
    """`left` are the files of each gres that are still spelled out: Slurm counts no more by one (MAX_GRES_BITMAP in gres.c)."""
    several = line.value("multiplefiles")
    name, said = (line.value("name") or "").lower(), line.value("count")
    files = spelled_out(several or line.value("file", "files") or "", max(left.get(name, MOST), 1))
    left[name] = left.get(name, MOST) - len(files)
    return GresRecord(
        line=line,
        name=name,
        type=line.value("type") or "",
        files=files,
        multiple=several is not None,
        count=None if said is None else counted(said),
        named_node=named_node,
    )


def counted(text: str) -> int:
    """`8`, `4G`; -1 for what is no number."""
    found = _COUNT.fullmatch(text.strip())
    return -1 if found is None else int(found[1]) << _SUFFIX[found[2].lower()]


# slurm.conf ---------------------------------------------------------------------------------------------------------


class Promised(Struct, frozen=True):
    """One `gpu[:TYPE][:COUNT]` of Gres= (slurm.conf(5), Gres)."""

    type: str
    count: int


class Partition(Struct, frozen=True):
    """One that the node is in; `exclusive` says that a job gets whole nodes; `shares` is OverSubscribe= in small letters."""

    name: str
    exclusive: bool
    line: Line
    shares: str = ""


class NodeConf(Struct, frozen=True):
    """slurm.conf for one node: `gres` is what it promises of GPUs, `line` where, None where no line names the node."""

    file: ConfFile
    line: Line | None
    gres: tuple[Promised, ...]
    gres_line: Line | None
    partitions: tuple[Partition, ...] = ()

    @property
    def promised(self) -> int:
        """How many GPUs the controller counts on."""
        return sum(one.count for one in self.gres)

    @property
    def knows_node(self) -> bool:
        """Whether it was read and names the node."""
        return self.line is not None

    @property
    def evidence(self) -> Evidence:
        """What says how many."""
        line = self.gres_line or self.line
        return line.evidence if line is not None else self.file.evidence("names no such node")

    def setting(self, name: str, default: str = "") -> str:
        """A setting of the whole cluster."""
        found = self.file.setting(name)
        return found[0] if found is not None else default

    def cite(self, name: str) -> Evidence:
        """The line of such a setting, or that there is none."""
        found = self.file.setting(name)
        return found[1].evidence if found is not None else self.file.evidence(f"sets no {name}")


def node_name(file: ConfFile, host: str) -> str:
    """The NodeName of a host, looked for as slurmd does: by the name up to its first dot, the whole name, then localhost (slurmd.c,
    _read_config); the first of them where slurm.conf has none.
    """
    short = host.partition(".")[0]
    known = (_named(file, name) for name in (short, host, "localhost"))
    return next((name for name in known if name), short)


def _named(file: ConfFile, host: str) -> str:
    """A name that it has itself, or by NodeHostname of the same place in the list (slurm.conf(5)); "" for none."""
    for line in file.lines:
        if line.first != "nodename" or (line.value("nodename") or "").lower() == DEFAULT:
            continue
        names, hosts = line.value("nodename") or "", line.value("nodehostname")
        if hosts is not None and lists(hosts, host):
            place, spelled = position(hosts, host), spelled_out(names)
            return spelled[place] if place is not None and place < len(spelled) else host
        if hosts is None and lists(names, host):
            return host
    return ""


def node_conf(file: ConfFile, node: str) -> NodeConf:
    """What of it holds for a node. A line NodeName=DEFAULT holds for those after it."""
    default: dict[str, Line] = {}
    own: Line | None = None
    told: dict[str, Line] = {}
    for line in file.lines:
        if line.first != "nodename":
            continue
        said = {name: line for name, _ in line.pairs}
        if (line.value("nodename") or "").lower() == DEFAULT:
            default |= said
        elif lists(line.value("nodename") or "", node):
            own, told = line, default | said
    gres_line = told.get("gres")
    gres = (gres_line.value("gres") if gres_line is not None else None) or ""
    features = {
        word for name in ("features", "feature") if name in told for word in split_list(told[name].value(name) or "")
    }
    return NodeConf(file, own, tuple(_promised(gres)), gres_line, tuple(_partitions(file, node, features)))


def _promised(text: str) -> Iterator[Promised]:
    for part in split_list(text):
        name, _, rest = part.partition(":")
        if name.strip().lower() != GPU:
            continue
        words = [word for word in rest.partition("(")[0].split(":") if word and word != "no_consume"]
        count = counted(words[-1]) if words else 1
        if count >= 0 and words:
            words.pop()
        yield Promised(words[0] if words else "", count if count >= 0 else 1)


def _partitions(file: ConfFile, node: str, features: Set[str]) -> Iterator[Partition]:
    """OverSubscribe=EXCLUSIVE, in newer releases Exclusive=NODE, gives whole nodes; formerly it was called Shared (slurm.conf(5)).

    What a line PartitionName=DEFAULT says holds for those after it, Nodes= as well (_parse_partitionname in read_config.c).
    """
    default: dict[str, str] = {}
    sets = _nodesets(file, node, features)
    for line in file.lines:
        if line.first != "partitionname":
            continue
        if (line.value("partitionname") or "").lower() == DEFAULT:
            default |= dict(line.pairs)
            continue
        said = default | dict(line.pairs)
        shares = (said.get("oversubscribe") or said.get("shared") or "").lower()
        exclusive = shares == "exclusive" or said.get("exclusive", "").lower() == "node"
        nodes = said.get("nodes", "")
        if lists(nodes, node) or any(word in sets or word.lower() == "all" for word in split_list(nodes)):
            yield Partition(line.value("partitionname") or "", exclusive, line, shares)


def _nodesets(file: ConfFile, node: str, features: Set[str]) -> frozenset[str]:
    """Those that a node is in, by its name or by one of its features (slurm.conf(5), NODESET CONFIGURATION)."""
    lines = (line for line in file.lines if line.first == "nodeset")
    mine = (line for line in lines if lists(line.value("nodes") or "", node) or line.value("feature") in features)
    return frozenset(line.value("nodeset") or "" for line in mine)


# both together ------------------------------------------------------------------------------------------------------


def usable(records: Iterable[GresRecord], promised: Iterable[Promised]) -> int:
    """How many of the promised GPUs have files: by types where both name them, else whichever come first (_merge_gres2 in gres.c)."""
    left = [(record.type.lower(), record.devices) for record in records if record.files]
    total = 0
    for one in promised:
        wanted = one.count
        fits = [at for at, (kind, _) in enumerate(left) if not one.type or kind == one.type.lower()]
        for at in fits:
            taken = min(wanted, left[at][1])
            wanted -= taken
            total += taken
            # A record that was used, even in part, is not used again.
            left[at] = (left[at][0], 0) if taken else left[at]
    return total


def cores_in(text: str) -> tuple[int, ...]:
    """The numbers of Cores=, `0,2-5`; nothing where one is none, or where there are more than any machine has."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = decimal(first.strip()), decimal((last or first).strip())
        if low is None or high is None or len(found) + high - low > MOST_CORES:
            return ()
        found += range(low, high + 1)
    return tuple(found)
