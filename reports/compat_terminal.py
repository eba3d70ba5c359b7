"""What runs where, for a person at a terminal: driver and GPUs, CUDA versions folded into ranges, what is on the node and asked."""

import datetime
from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich.text import Text

from gpudoctor.compat import Answer, Compat, ContainerAnswer, FrameworkAnswer, Gpu, Host, How, ImageAnswer, WheelAnswer
from gpudoctor.knowledge.compute_capabilities import Runs
from gpudoctor.knowledge.cuda_requirements import Outcome
from gpudoctor.reports.look import Look
from gpudoctor.reports.page import Page
from gpudoctor.reports.words import clean

LABEL = 11
RANGE = 11
"""How wide a range of versions is."""
IMAGE = 60
"""How much of an image's requirements stands in a title."""
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
    return look.written(text)


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
    why = _without_own_names(answer.why, answer) if _explains(answer) else ""
    return (answer.how, answer.needs, tuple(_without_own_names(limit, answer) for limit in answer.limits), why)


def _without_own_names(words: str, answer: Answer) -> str:
    words = words.replace(f"CUDA {answer.cuda}", "")
    return words.replace(answer.package, "") if answer.package else words


def _explains(answer: Answer) -> bool:
    """Whether the reason is more than the driver that it takes."""
    told = answer.needs and f"needs {answer.needs}" in answer.why
    return answer.how is How.UNKNOWN or (answer.how is How.NO and not told)


def _packages(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{names[0]} to {names[-1].removeprefix('cuda-compat-')}"


def _in_one_line(compat: Compat) -> str:
    """The driver, and what was asked; the ranges where nothing was."""
    who = f"driver {compat.host.driver}" if compat.host.driver else "no driver"
    gpus = f", {_gpu_words(compat.host)}" if compat.host.gpus else ""
    return f"{who}{gpus}: {'; '.join(_asked_in_one_line(compat)) or _ranges_in_one_line(compat)}"


def _asked_in_one_line(compat: Compat) -> Iterator[str]:
    for answer in compat.asked:
        yield f"CUDA {answer.cuda} {spans((answer,))[0].words}"
    for image in compat.images:
        yield f"{_image_title(image.asked)} {_outcome(image)[0]}"
    for one in compat.frameworks:
        ways = ", ".join(f"CUDA {wheel.cuda} {HOW_WORDS[wheel.how]}" for wheel in one.wheels)
        yield f"{one.framework} {one.version}: {ways or one.why}"


def _ranges_in_one_line(compat: Compat) -> str:
    joined: list[tuple[Span, Answer]] = []
    for span in spans(compat.cuda):
        if joined and joined[-1][0].words == span.words:
            joined[-1] = (joined[-1][0], span.last)
        else:
            joined.append((span, span.last))
    return "CUDA " + "; ".join(f"{_span(first.first, last, '-')} {first.words}" for first, last in joined)


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
    return f"{gpu.name or 'GPU'} ({cc}{architecture})"


def _image_title(asked: str) -> str:
    """What was asked, shortened: images of NVIDIA's demand some twenty alternatives."""
    words = " ".join(asked.split())
    return (
        f"image with {words if len(words) <= IMAGE else f'{words[: IMAGE - 4]} ...'}"
        if words
        else "image without a demand"
    )


def _outcome(image: ImageAnswer) -> tuple[str, str]:
    word, style = OUTCOMES[image.outcome]
    if image.lifted and image.outcome is not Outcome.MET:
        return f"{word}, were it not for NVIDIA_DISABLE_REQUIRE", "bold yellow"
    return word, style


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
                # What is said of a row's own toolkits is said in every row that it holds for.
                if self._is_new(words) or "the toolkit " in words:
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
        self._item("  ", Text(clean(one.title)))
        if one.answer is not None:
            self._answer(f"CUDA {one.runtime}", one.answer, "    ")
        if one.image is not None:
            self._image("its image's requirements", one.image, "    ")

    def _asked(self) -> None:
        compat = self.compat
        if compat.asked or compat.images or compat.frameworks:
            self._title("Asked")
        for answer in compat.asked:
            self._answer(f"CUDA {answer.cuda}", answer)
        for image in compat.images:
            self._image(_image_title(image.asked), image)
        for framework in compat.frameworks:
            self._framework(framework)

    def _framework(self, one: FrameworkAnswer) -> None:
        more = f": {one.why}" if one.why else ""
        self._item("  ", Text(clean(f"{one.framework} {one.version}{more}")))
        for wheel in one.wheels:
            self._wheel(wheel)

    def _wheel(self, wheel: WheelAnswer) -> None:
        rows = self.grid("    ", RANGE)
        default = ", the default" if wheel.default else ""
        how = spans((wheel.answer,))[0].words if wheel.how is wheel.answer.how else HOW_WORDS[wheel.how]
        rows.add_row("", Text(f"CUDA {wheel.cuda}"), Text(clean(f"{how}{default}"), style=STYLES[wheel.how]))
        lacking = tuple(code.why for code in wheel.code if code.why and code.why not in wheel.why)
        some_lack = any(code.runs is Runs.NO for code in wheel.code)
        lacks = wheel.how in (How.NO, How.UNKNOWN) or some_lack
        about = (wheel.why,) if lacks or self.look.verbose else ()
        for words in (*about, *(lacking if self.look.verbose else ())):
            rows.add_row("", Text(""), Text(clean(words), style="dim"))
        self.console.print(rows)

    def _answer(self, what: str, answer: Answer, indent: str = "  ") -> None:
        lacking = answer.how in (How.NO, How.UNKNOWN) and answer.needs
        needs = f" (needs driver {answer.needs} or newer)" if lacking else ""
        how = HOW_WORDS[answer.how] if answer.how is not How.PACKAGE else f"by {answer.package}"
        self._item(indent, Text.assemble(clean(f"{what}: "), (clean(f"{how}{needs}"), STYLES[answer.how])))
        rows = self.grid(f"{indent}  ", 0)
        about = (answer.why,) if answer.how in (How.NO, How.UNKNOWN) or self.look.verbose else ()
        for words in (*about, *filter(self._is_new, answer.limits)):
            rows.add_row("", "", Text(clean(words), style="dim"))
        self.console.print(rows)

    def _image(self, what: str, image: ImageAnswer, indent: str = "  ") -> None:
        self._item(indent, Text.assemble(clean(f"{what}: "), _outcome(image)))
        if image.outcome is not Outcome.MET or self.look.verbose:
            rows = self.grid(f"{indent}  ", 0)
            rows.add_row("", "", Text(clean(image.why), style="dim"))
            self.console.print(rows)

    def _what_if(self) -> None:
        found = self.compat.what_if
        if found is None:
            return
        self._title(f"What would change from driver {found.before.driver}{_other_gpus(found.before, self.compat.host)}")
        arrow = "->" if self.look.ascii else "→"
        for one in found.changed:
            what = _image_title(one.what) if one.kind == "image" else one.what
            self._item("  ", Text(clean(f"{what}: {one.before} {arrow} {one.after}"), style="bold"))
        compared = found.changed or found.unchanged
        nothing = "nothing to compare: no toolkit and no container was seen here, and nothing was asked"
        self._item("  ", Text(f"unchanged: {found.unchanged}" if compared else nothing))

    def _end(self) -> None:
        compat = self.compat
        self.line(Text())
        for note in (*compat.notes, *(f"not seen: {words}" for words in compat.unseen)):
            self.line(Text(clean(f"note: {note}")))
        reach = compat.tables
        known = f"known are drivers up to branch {reach.newest_branch} and CUDA up to {reach.newest_cuda}"
        self.line(Text(f"oldest table: {_age(compat)}; {known}", style="dim"))

    def _is_new(self, words: str) -> bool:
        """Whether a text was not shown yet; with -v it is shown everywhere."""
        new = words not in self.told or bool(self.look.verbose)
        self.told.add(words)
        return new

    def _item(self, indent: str, text: Text) -> None:
        """A line of a list; what does not fit stays indented."""
        rows = self.grid(indent)
        rows.add_row("", text)
        self.console.print(rows)

    def _title(self, words: str) -> None:
        self.line(Text())
        self.line(Text(clean(words), style="bold"))


def _age(compat: Compat) -> str:
    """`pci_gpus of 2026-08-22, 99 days old on 2026-11-29`: the day of the run, or of the recording."""
    oldest, day = compat.tables.oldest, compat.started_at[:10]
    names = ", ".join(table.name for table in compat.tables.tables if table.as_of == oldest)
    days = (datetime.date.fromisoformat(day) - datetime.date.fromisoformat(oldest)).days
    age = f", {days} day{'s' if days != 1 else ''} old on {day}" if days > 0 else ""
    return f"{names} of {oldest}{age}"


def _other_gpus(before: Host, after: Host) -> str:
    return f" with {_gpu_words(before)}" if before.gpus != after.gpus and before.gpus else ""


def _about(span: Span) -> Iterator[str]:
    """Why not, or within which limits; a text for a range names no single version."""
    one = span.first
    if _explains(one):
        yield _for_all(one.why, span)
    for limit in one.limits:
        yield _for_all(limit, span)
    if one.how is How.MINOR_VERSION and span.packages:
        yield f"no such limits with {_packages(span.packages)}"


def _for_all(words: str, span: Span) -> str:
    words = words.replace(f"CUDA {span.first.cuda} ", "the toolkit ")
    return words.replace(span.first.package, _packages(span.packages)) if span.first.package else words
