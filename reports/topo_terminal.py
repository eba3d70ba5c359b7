"""A node's topology for a person at a terminal: the tree of sockets and PCIe, NVLinks, the matrix, and what is near each GPU."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from rich.text import Text

from gpudoctor.reports.look import Look
from gpudoctor.reports.page import GLYPHS, Page
from gpudoctor.reports.topo_matrix import MatrixLines
from gpudoctor.reports.topo_nvlinks import apart, islands, nvlink_counts, range_words, through
from gpudoctor.reports.topo_tree import (
    Bridge,
    Hop,
    Leaf,
    Locality,
    Socket,
    arranged,
    cpus_words,
    device_words,
    entries,
    kind_words,
    link_words,
    locality_words,
    size_words,
    socket_words,
)
from gpudoctor.reports.words import clean, counted
from gpudoctor.topo import Function, Remark, Topo
from gpudoctor.verdicts import Status

LINES = ("├─ ", "└─ ", "│  ", "   ")
ASCII_LINES = ("|- ", "`- ", "|  ", "   ")
MOST_SUBJECTS = 4
_Row: TypeAlias = tuple[str, str, str, Text]
"""A line of the tree: what stands first, an address, a name, and the rest; without an address a heading and what it is said of."""


def render(topo: Topo, look: Look) -> str:
    """The topology as text for a terminal or a pipe."""
    text = f"{clean(in_one_line(topo))}\n" if look.quiet else _Page(topo, look).text()
    return look.written(text)


def in_one_line(topo: Topo) -> str:
    """What there is, how NVLinks join the GPUs, and how many findings."""
    adapters = [one for one in topo.of_kind("nic") if one.rdma and not one.virtual_function_of]
    parts = [
        counted(len(topo.packages), "socket") if topo.packages else "",
        counted(len([node for node in topo.numa_nodes if node.cpus]), "NUMA node") if topo.numa_nodes else "",
        counted(len([row for row in topo.matrix if not row.name.startswith("NIC")]), "GPU"),
        counted(len(adapters), "RDMA adapter") if adapters else "",
        *_nvlink_lines(topo),
    ]
    found = counted(len(topo.remarks), "finding") if topo.remarks else "no finding"
    return f"{', '.join(part for part in parts if part)}: {found}"


def _nvlink_lines(topo: Topo) -> Iterator[str]:
    """Each island in a line, and who is on none."""
    ways = through(topo)
    for island in islands(topo):
        among = range_words(island.gpus)
        every = (
            f"NV{island.each} between every two of {among}"
            if len(island.gpus) > 2
            else f"NV{island.each} between {among}"
        )
        counts = sorted({bundle.links for bundle in island.bundles})
        some = f"NV{' or NV'.join(map(str, counts))} between some of {among}"
        yield f"{every if island.each else some}{f', {ways}' if ways else ''}"
    if alone := apart(topo):
        yield f"no NVLink to another GPU: {range_words(alone)}"


class _Page(Page):
    """One topology being laid out."""

    def __init__(self, topo: Topo, look: Look) -> None:
        super().__init__(look)
        self.topo = topo
        self.sockets = arranged(topo)
        self.begun = bool(self.sockets)
        self.lines = ASCII_LINES if look.ascii else LINES
        self.nvlinks = nvlink_counts(topo)
        self.remarks: dict[str, list[Remark]] = {}
        for remark in topo.remarks:
            self.remarks.setdefault(remark.address, []).append(remark)

    def text(self) -> str:
        """The whole page."""
        node = self.topo.node
        driver = node.driver and f"driver {node.driver}"
        who = (node.hostname or "unnamed node", node.os, driver, f"{node.source} {self.topo.started_at}")
        self.heading((f"gpudoctor {self.topo.version}", *who))
        self._tree()
        self._nvlinks()
        self._matrix()
        self._near()
        self._findings()
        self._notes()
        return self.written()

    def _title(self, words: str) -> None:
        if self.begun:
            self.line(Text())
        self.begun = True
        self.line(Text(clean(words), style="bold"))

    def _item(self, indent: str, *parts: str | tuple[str, str]) -> None:
        """A line; what does not fit goes on below itself."""
        rows = self.grid(indent)
        rows.add_row("", Text.assemble(*((clean(p), "") if isinstance(p, str) else (clean(p[0]), p[1]) for p in parts)))
        self.console.print(rows)

    # The tree --------------------------------------------------------------------------------------------------------

    def _tree(self) -> None:
        rows = [row for socket in self.sockets for row in self._socket(socket)]
        widths = [max((len(row[column]) for row in rows if row[1]), default=0) for column in range(3)]
        for first, address, name, rest in rows:
            if not address:
                self._fitting(Text.assemble((clean(first), "bold"), clean(name)), 2)
                continue
            line = Text(f"{clean(first):{widths[0]}}  {clean(address):{widths[1]}}  ")
            line.append(f"{name:{widths[2]}}  " if rest.plain else name)
            line.append_text(rest)
            line.rstrip()
            self._fitting(line, widths[0])

    def _fitting(self, line: Text, indent: int) -> None:
        """A line of the tree; what does not fit is indented."""
        if len(line) <= self.look.width:
            self.line(line)
            return
        taken = min(indent + 2, self.look.width // 3)
        pieces = line.wrap(self.console, self.look.width - taken, overflow="fold")
        for number, piece in enumerate(pieces):
            self.line(Text(" " * taken if number else "") + piece)

    def _socket(self, socket: Socket) -> Iterator[_Row]:
        one = len(socket.localities) == 1
        indent = ""
        if socket.packages:
            also = f", {locality_words(socket.localities[0])}" if one else ""
            cpus = cpus_words(socket.localities[0]) if one else f"CPUs {','.join(p.cpus for p in socket.packages)}"
            yield f"{socket_words(socket)}{also}", "", f"  {cpus}", Text()
            indent = "  "
        for locality in socket.localities:
            if not (socket.packages and one):
                yield f"{indent}{locality_words(locality)}", "", f"  {cpus_words(locality)}", Text()
            yield from self._locality(locality, f"{indent}  " if not one else indent or "  ")

    def _locality(self, locality: Locality, indent: str) -> Iterator[_Row]:
        for memory in locality.memories:
            owner = next((one.label or one.address for one in self.topo.functions if one.address == memory.gpu), "")
            size = f", {size_words(memory.memory_bytes)}" if memory.memory_bytes else ""
            yield f"{indent}NUMA node {memory.number}", "", f"  memory of {owner}{size}", Text()
        for bridge in locality.bridges:
            yield f"{indent}{bridge.name or 'place not told'}", "", "", Text()
            yield from self._below(bridge, indent)

    def _below(self, above: Bridge | Hop, indent: str) -> Iterator[_Row]:
        entries: list[Hop | Leaf] = [*above.leaves, *above.hops]
        branch, last, down, blank = self.lines
        for number, entry in enumerate(entries):
            final = number == len(entries) - 1
            lead = f"{indent}{last if final else branch}"
            if isinstance(entry, Leaf):
                yield self._leaf(entry, lead)
            else:
                kind = "switch" if entry.switch else "port"
                yield f"{lead}{kind}", entry.function.address, self._via(entry.ports), self._rest(entry)
                yield from self._below(entry, f"{indent}{blank if final else down}")

    def _leaf(self, leaf: Leaf, lead: str) -> _Row:
        function = leaf.function
        virtual = f", {counted(leaf.virtual, 'virtual function')}" if leaf.virtual else ""
        words = f"{clean(device_words(function))}{virtual}"
        via = self._via(leaf.ports)
        return f"{lead}{kind_words(function)}", function.address, f"{words} {via}".strip(), self._rest(leaf)

    def _via(self, ports: Sequence[Function]) -> str:
        """With -v the bridges on the way."""
        return f"by {' '.join(port.address for port in ports)}" if ports and self.look.verbose else ""

    def _rest(self, entry: Hop | Leaf) -> Text:
        """The link, what is wrong with it, NVLinks, and findings about the device."""
        function = entry.function
        words = Text(link_words(function.link))
        if entry.narrow:
            words.append(f"  {self._mark(Status.WARN)} {entry.narrow}", style="bold yellow")
        for remark in self.remarks.get(function.address, ()):
            words.append(f"  {self._mark(remark.status)} {clean(remark.check)}", style=GLYPHS[remark.status][2])
        return words

    def _mark(self, status: Status) -> str:
        return GLYPHS[status][1 if self.look.ascii else 0]

    # NVLinks and the matrix -------------------------------------------------------------------------------------------

    def _nvlinks(self) -> None:
        lines = list(_nvlink_lines(self.topo))
        counts = {name: count for name, count in self.nvlinks.items() if count}
        if not lines and not counts:
            return
        self._title("NVLinks")
        for line in lines or [self._by_count(counts)]:
            self._item("  ", line)

    def _by_count(self, counts: dict[str, int]) -> str:
        """Where NVML tells how many are up, and nobody which GPUs they join."""
        different = sorted(set(counts.values()))
        return "; ".join(
            f"{count} up on {range_words([name for name, mine in counts.items() if mine == count])}"
            for count in different
        )

    def _matrix(self) -> None:
        matrix = MatrixLines(self.topo, self.look.width, in_full=bool(self.look.verbose))
        lines = list(matrix.lines())
        if not lines:
            return
        self._title("Matrix")
        for line in lines:
            self.line(line)
        rows = self.grid("  ")
        rows.add_row("", Text(matrix.legend, style="dim"))
        self.console.print(rows)

    # What is near, what is wrong --------------------------------------------------------------------------------------

    def _near(self) -> None:
        """For each GPU the CPUs, the memory and the adapters; alike GPUs in one line."""
        alike: dict[tuple[str, str, str], list[str]] = {}
        for use in self.topo.use:
            memory = f"memory of NUMA node {', '.join(map(str, use.memory))}" if use.memory else ""
            nics = f"{', '.join(use.nics)} ({use.way})" if use.nics and use.way != "SYS" else ""
            words = (f"CPUs {use.cpus}" if use.cpus else "", memory, nics)
            if any(words):
                alike.setdefault(words, []).append(use.gpu)
        if not alike or self.topo.synthetic:
            return
        self._title("Near each GPU")
        width = max(len(range_words(names)) for names in alike.values())
        for words, names in alike.items():
            self._item("  ", f"{range_words(names):{min(width, 24)}}  {'; '.join(word for word in words if word)}")

    def _findings(self) -> None:
        alike: dict[tuple[Status, str, str], list[str]] = {}
        for remark in self.topo.remarks:
            alike.setdefault((remark.status, remark.check, remark.summary), []).append(self._name(remark))
        if alike:
            self._title("Findings of the checks of PCIe, fabric and topology")
        for (status, check, summary), names in alike.items():
            shown = ", ".join(dict.fromkeys(names[:MOST_SUBJECTS]))
            more = f" and {len(names) - MOST_SUBJECTS} more" if len(names) > MOST_SUBJECTS else ""
            mark = f"{self._mark(status)} "
            self._item("  ", (mark, GLYPHS[status][2]), (check, "bold"), f" {shown}{more}: {summary}")

    def _name(self, remark: Remark) -> str:
        known = next((one.label or one.name for one in self.topo.functions if one.address == remark.address), "")
        return known or remark.address

    def _notes(self) -> None:
        topo = self.topo
        notes = [*([topo.synthetic] if topo.synthetic else [])]
        if topo.cpus_offline:
            notes.append(f"CPUs offline: {topo.cpus_offline}")
        if any(entry.narrow for entry in entries(self.sockets)):
            notes.append("xM of xN: the link runs with fewer lanes than both of its ends have")
        notes += [f"not seen: {words}" for words in topo.unseen]
        if notes:
            self.line(Text())
        for note in notes:
            self.line(Text(clean(f"note: {note}")))
