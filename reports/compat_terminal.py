"""What runs where, for a person at a terminal: driver and GPUs, CUDA versions folded into ranges, what is on the node and asked."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich.text import Text

from gpudoctor.compat import Answer, Compat, ContainerAnswer, FrameworkAnswer, Gpu, Host, How, ImageAnswer, WheelAnswer
from gpudoctor.knowledge.cuda_requirements import Outcome
from gpudoctor.reports.look import Look
from gpudoctor.reports.page import Page
from gpudoctor.reports.words import clean

LABEL = 11
RANGE = 11
"""How wide a range of versions is."""
DASH = "\N{EN DASH}"

STYLES = {
    How.NATIVE: "green",
    How.MINOR_VERSION: "bold yellow",
    How.PACKAGE: "bold yellow",
    How.NO: "bold red",
    How.UNKNOWN: "bold magenta",
}
HOW_WORDS = {
    How.NATIVE: "natively",
    How.MINOR_VERSION: "by minor-version compatibility",
    How.PACKAGE: "by a package for forward compatibility",
    How.NO: "no",
    How.UNKNOWN: "unknown",
}
OUTCOMES = {
    Outcome.MET: ("starts", "green"),
    Outcome.UNMET: ("refused", "bold red"),
    Outcome.INVALID: ("refused", "bold red"),
    Outcome.UNKNOWN: ("unknown", "bold magenta"),
}


def render(compat: Compat, look: Look) -> str:
    """The result as text for a terminal or a pipe."""
    text = f"{clean(_in_one_line(compat))}\n" if look.quiet else _Page(compat, look).text()
    return text.encode("ascii", "backslashreplace").decode() if look.ascii else text


class Span(Struct, frozen=True):
    """Neighbouring CUDA versions that run alike."""

    first: Answer
    last: Answer
    packages: tuple[str, ...]

    @property
    def words(self) -> str:
        """How they run, with the packages or the driver that it takes."""
        one = self.first
        if one.how is How.PACKAGE:
            return f"by {_packages(self.packages)}"
        if one.how in (How.NO, How.UNKNOWN) and one.needs:
            return f"{HOW_WORDS[one.how]}: needs driver {one.needs} or newer"
        return HOW_WORDS[one.how]


def spans(answers: Sequence[Answer]) -> list[Span]:
    """The versions in order, those that run alike put together."""
    found: list[Span] = []
    for answer in answers:
        last = found[-1] if found else None
        names = (answer.package,) if answer.package else ()
        if last is not None and _key(last.first) == _key(answer):
            found[-1] = Span(last.first, answer, (*last.packages, *names))
        else:
            found.append(Span(answer, answer, names))
    return found


def _key(answer: Answer) -> tuple[object, ...]:
    """What must be alike: texts name the version itself, which does not count."""
    own = tuple(limit.replace(f"CUDA {answer.cuda}", "") for limit in answer.limits)
    explains = answer.how is How.UNKNOWN or (answer.how is How.NO and not answer.needs)
    why = answer.why.replace(f"CUDA {answer.cuda}", "") if explains else ""
    return (answer.how, answer.needs, own, why)


def _packages(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{names[0]} to {names[-1].removeprefix('cuda-compat-')}"


def _in_one_line(compat: Compat) -> str:
    """The driver and the ranges."""
    who = f"driver {compat.host.driver}" if compat.host.driver else "no driver"
    gpus = f", {_gpu_words(compat.host)}" if compat.host.gpus else ""
    joined: list[tuple[Span, Answer]] = []
    for span in spans(compat.cuda):
        if joined and joined[-1][0].words == span.words:
            joined[-1] = (joined[-1][0], span.last)
        else:
            joined.append((span, span.last))
    ranges = "; ".join(f"{_span(first.first, last, '-')} {first.words}" for first, last in joined)
    return f"{who}{gpus}: CUDA {ranges}"


def _span(first: Answer, last: Answer, dash: str) -> str:
    return first.cuda if first is last else f"{first.cuda}{dash}{last.cuda}"


def _gpu_words(host: Host) -> str:
    counts: dict[Gpu, int] = {}
    for gpu in host.gpus:
        alike = Gpu(gpu.name, gpu.cc, gpu.architecture)
        counts[alike] = counts.get(alike, 0) + 1
    return ", ".join(f"{f'{number} x ' if number > 1 else ''}{_gpu(gpu)}" for gpu, number in counts.items())


def _gpu(gpu: Gpu) -> str:
    cc = f"compute capability {gpu.cc}" if gpu.cc else "compute capability not known"
    architecture = f", {gpu.architecture}" if gpu.architecture else ""
    return f"{gpu.name} ({cc}{architecture})" if gpu.name else f"{cc}{architecture}"


class _Page(Page):
    """One result being laid out."""

    def __init__(self, compat: Compat, look: Look) -> None:
        super().__init__(look)
        self.compat = compat
        self.told: set[str] = set()

    def text(self) -> str:
        """The whole page."""
        compat = self.compat
        node = compat.node
        who = (node.hostname or "unnamed node", node.source) if node is not None else ()
        self.heading((f"gpudoctor {compat.version}", *who, compat.started_at))
        self._host()
        self._ranges()
        self._on_the_node()
        self._asked()
        self._what_if()
        self._end()
        return self.written()

    def _host(self) -> None:
        host, driver = self.compat.host, self.compat.driver
        rows = self.grid("  ", LABEL)
        if driver is not None:
            offers = f", offers CUDA {driver.cuda} ({driver.cuda_from})" if driver.cuda else ""
            rows.add_row("", Text("driver"), Text(clean(f"{driver.version}{offers}"), style="bold"))
            rows.add_row("", Text(""), Text(clean(driver.says)))
        else:
            rows.add_row("", Text("driver"), Text("not known"))
        rows.add_row("", Text("GPUs"), Text(clean(_gpu_words(host)) if host.gpus else "not known"))
        self.console.print(rows)

    def _ranges(self) -> None:
        self._title("CUDA versions")
        dash = "-" if self.look.ascii else DASH
        for span in spans(self.compat.cuda):
            rows = self.grid("  ", RANGE)
            rows.add_row(
                "", Text(_span(span.first, span.last, dash)), Text(clean(span.words), style=STYLES[span.first.how])
            )
            for words in _about(span):
                if self._is_new(words):
                    rows.add_row("", Text(""), Text(clean(words), style="dim"))
            self.console.print(rows)

    def _on_the_node(self) -> None:
        if self.compat.toolkits:
            self._title("Toolkits on this node")
        for toolkit in self.compat.toolkits:
            self._answer(f"{toolkit.path}: CUDA {toolkit.version}", toolkit.answer)
        if self.compat.containers:
            self._title("Running containers")
        for container in self.compat.containers:
            self._container(container)

    def _container(self, one: ContainerAnswer) -> None:
        self.line(Text(clean(f"  {one.title}")))
        if one.answer is not None:
            self._answer(f"  CUDA {one.runtime}", one.answer)
        if one.image is not None:
            self._image("  its image's requirements", one.image)

    def _asked(self) -> None:
        compat = self.compat
        if compat.asked or compat.images or compat.frameworks:
            self._title("Asked")
        for answer in compat.asked:
            self._answer(f"CUDA {answer.cuda}", answer)
        for image in compat.images:
            self._image(image.asked, image)
        for framework in compat.frameworks:
            self._framework(framework)

    def _framework(self, one: FrameworkAnswer) -> None:
        more = f": {one.why}" if one.why else ""
        self.line(Text(clean(f"  {one.framework} {one.version}{more}")))
        for wheel in one.wheels:
            self._wheel(wheel)

    def _wheel(self, wheel: WheelAnswer) -> None:
        rows = self.grid("    ", RANGE)
        default = ", the default" if wheel.default else ""
        rows.add_row("", Text(f"CUDA {wheel.cuda}"), Text(f"{HOW_WORDS[wheel.how]}{default}", style=STYLES[wheel.how]))
        lacking = tuple(code.why for code in wheel.code if code.why and code.why not in wheel.why)
        about = (wheel.why,) if wheel.how in (How.NO, How.UNKNOWN) or self.look.verbose else ()
        for words in (*about, *(lacking if self.look.verbose else ())):
            rows.add_row("", Text(""), Text(clean(words), style="dim"))
        self.console.print(rows)

    def _answer(self, what: str, answer: Answer) -> None:
        lacking = answer.how in (How.NO, How.UNKNOWN) and answer.needs
        needs = f" (needs driver {answer.needs} or newer)" if lacking else ""
        how = HOW_WORDS[answer.how] if answer.how is not How.PACKAGE else f"by {answer.package}"
        self.line(Text.assemble(clean(f"  {what}: "), (clean(f"{how}{needs}"), STYLES[answer.how])))
        rows = self.grid("    ", 0)
        about = (answer.why,) if answer.how in (How.NO, How.UNKNOWN) or self.look.verbose else ()
        for words in (*about, *filter(self._is_new, answer.limits)):
            rows.add_row("", "", Text(clean(words), style="dim"))
        if rows.row_count:
            self.console.print(rows)

    def _image(self, what: str, image: ImageAnswer) -> None:
        word, style = OUTCOMES[image.outcome]
        if image.lifted and image.outcome is not Outcome.MET:
            word, style = f"{word}, were it not for NVIDIA_DISABLE_REQUIRE", "bold yellow"
        self.line(Text.assemble(clean(f"  {what}: "), (word, style)))
        if image.outcome is not Outcome.MET or self.look.verbose:
            rows = self.grid("    ", 0)
            rows.add_row("", "", Text(clean(image.why), style="dim"))
            self.console.print(rows)

    def _what_if(self) -> None:
        found = self.compat.what_if
        if found is None:
            return
        self._title(f"What would change from driver {found.before.driver}{_other_gpus(found.before, self.compat.host)}")
        arrow = "->" if self.look.ascii else "→"
        for one in found.changed:
            self.line(Text(clean(f"  {one.what}: {one.before} {arrow} {one.after}"), style="bold"))
        self.line(Text(f"  unchanged: {found.unchanged}"))

    def _end(self) -> None:
        compat = self.compat
        self.line(Text())
        for note in (*compat.notes, *(f"not seen: {words}" for words in compat.unseen)):
            self.line(Text(clean(f"note: {note}")))
        reach = compat.tables
        self.line(
            Text(
                f"tables of {reach.oldest} or later, up to driver branch {reach.newest_branch} and CUDA {reach.newest_cuda}",
                style="dim",
            )
        )

    def _is_new(self, words: str) -> bool:
        """Whether a text was not shown yet; with -v it is shown everywhere."""
        new = words not in self.told or bool(self.look.verbose)
        self.told.add(words)
        return new

    def _title(self, words: str) -> None:
        self.line(Text())
        self.line(Text(clean(words), style="bold"))


def _other_gpus(before: Host, after: Host) -> str:
    return f" with {_gpu_words(before)}" if before.gpus != after.gpus and before.gpus else ""


def _about(span: Span) -> Iterator[str]:
    """Why not, or within which limits; a text for a range names no single version."""
    one = span.first
    if one.how is How.UNKNOWN or (one.how is How.NO and not one.needs):
        yield _for_all(one.why, span)
    for limit in one.limits:
        yield _for_all(limit, span)
    if one.how is How.MINOR_VERSION and span.packages:
        yield f"no such limits with {_packages(span.packages)}"


def _for_all(words: str, span: Span) -> str:
    return words.replace(f"CUDA {span.first.cuda} ", "the toolkit ") if span.first is not span.last else words
