"""An answer of `gpudoctor health` for machines: one line, a Nagios plugin's output, the node-problem-detector's, Prometheus metrics.

Each says how the node is, whether or not that changed, and has the contract of the form of the same name of a report.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpudoctor.health.answer import Health, State, Wrong
from gpudoctor.report import Overall
from gpudoctor.reports import nagios, node_exporter, npd
from gpudoctor.reports.node_exporter import STATUS_NUMBERS, VERDICT_NUMBERS, Series, metric
from gpudoctor.reports.words import clean, counted, plain
from gpudoctor.verdicts import Status

STATES = {State.LASTING: "", State.FLAPPING: "flapping", State.UNSEEN: "when last seen", State.BLIP: "blip"}
MOST_WRONG = 200


def in_words(wrong: Wrong) -> str:
    """What is wrong, with a word on its past where that is not plain."""
    state = STATES[wrong.state]
    return f"{wrong.check}: {wrong.summary}{f' ({state})' if state else ''}"


def headline(answer: Health) -> str:
    """The verdict in a few words."""
    if answer.stale is not None and answer.stale.why:
        return answer.stale.why
    if answer.earlier is not None and not answer.at:
        return "another pass is at work, and there is no answer yet"
    match answer.verdict:
        case Overall.PASS:
            passed = sum(status == Status.PASS.value for status in answer.checks.values())
            # Of a link by itself there may be nothing to say.
            said = "; ".join(dict.fromkeys(state.summary for state in answer.links))
            return f"{counted(passed, 'check')} passed" if passed else said
        case Overall.UNKNOWN:
            return "could not tell: something essential was not seen"
        case _:
            return counted(len(answer.wrong), "root cause")


def in_short(answer: Health) -> str:
    """The first thing that is wrong, or the verdict, in ASCII: for readers that cut what they read."""
    stale = answer.stale is not None and bool(answer.stale.why)
    if answer.wrong and not stale:
        return plain(in_words(answer.wrong[0]))
    unknown = next((state for state in answer.links if state.verdict is answer.verdict is Overall.UNKNOWN), None)
    return plain(f"{unknown.link}: {unknown.summary}" if unknown is not None and not stale else headline(answer))


def line(answer: Health) -> str:
    """One line, the same for like nodes: no times, no counts of passes. An answer that is none any more says only that."""
    if answer.stale is not None and answer.stale.why:
        return f"UNKNOWN {'the last pass is too old' if answer.at else 'there is no answer of a pass'}\n"
    words = "; ".join(in_words(one) for one in answer.wrong) or headline(answer)
    return clean(f"{answer.verdict.value.upper()} {words}") + "\n"


def nagios_text(answer: Health) -> str:
    """Status and performance data on the first line, then what is wrong and since when, as far as it fits."""
    head = f"GPUDOCTOR {nagios.STATES[answer.verdict]} - {_barless(in_short(answer))[:400]} | {_performance(answer)}"
    lines = [head]
    for wrong in answer.wrong:
        passes = f"{wrong.times} pass{'es' if wrong.times > 1 else ''}"
        line = _barless(plain(f"{wrong.status.value.upper()} {in_words(wrong)}; since {wrong.since}, in {passes}"))
        if len("\n".join([*lines, line]).encode()) > nagios.MOST_BYTES:
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def npd_text(answer: Health) -> str:
    """The check first: it survives the cut."""
    text = in_short(answer)
    if len(text) > npd.MOST_BYTES:
        kept = text[: npd.MOST_BYTES - 3]
        text = f"{kept.rpartition(' ')[0] or kept}..."
    return text + "\n"


def npd_exit_code(answer: Health) -> int:
    """As for a report: a warning is no problem of the node, and what could not be seen must not look like health."""
    return npd.EXIT_CODES[answer.verdict]


def prometheus(answer: Health) -> str:
    """The metrics of a report that an answer has, under their names, and what only a memory knows under `gpudoctor_health_`."""
    return "\n".join([*_as_of_a_report(answer), *_of_the_memory(answer)]) + "\n"


FORMS: Mapping[str, Callable[[Health], str]] = {
    "line": line,
    "nagios": nagios_text,
    "npd": npd_text,
    "node-exporter": prometheus,
}


def _performance(answer: Health) -> str:
    counts = {status: sum(one.status is status for one in answer.wrong) for status in (Status.FAIL, Status.WARN)}
    return (
        f"'gpus'={len(answer.node.gpus)};;;0 'failed'={counts[Status.FAIL]};;;0 'warnings'={counts[Status.WARN]};;;0 "
        f"'flapping'={sum(one.state is State.FLAPPING for one in answer.wrong)};;;0 'blips'={len(answer.blips)};;;0 "
        f"'time'={answer.seconds:.3f}s;;;0"
    )


def _barless(text: str) -> str:
    """Without the bar that would begin the performance data."""
    return text.replace("|", "/")


def _as_of_a_report(answer: Health) -> Iterator[str]:
    numbers = {status.value: number for status, number in STATUS_NUMBERS.items()}
    counts = [({"status": one.value}, sum(w.status is one for w in answer.wrong)) for one in (Status.FAIL, Status.WARN)]
    checks = [
        ({"check": check, "link": check.partition(".")[0]}, numbers[status]) for check, status in answer.checks.items()
    ]
    yield from metric("verdict", "0 pass, 1 warn, 2 fail, 3 unknown.", [({}, VERDICT_NUMBERS[answer.verdict])])
    yield from metric("root_causes", "Findings that nothing below explains.", counts)
    yield from metric("check_status", "0 pass, 1 warn, 2 fail, 3 unknown, 4 blocked, 5 skipped.", checks)
    if answer.at:
        # Where no pass has given an answer nobody has counted.
        yield from metric("gpus", "GPUs on the PCI bus.", [({}, len(answer.node.gpus))])
        yield from metric("run_duration_seconds", "How long the run took.", [({}, answer.seconds)])
        at = node_exporter.epoch(answer.at)
        yield from metric("last_run_timestamp_seconds", "When the run began.", [({}, at)])
    versions = {
        "version": answer.tool.version,
        "driver": answer.node.driver_version or "",
        "cuda": answer.node.cuda_version or "",
        "kernel": answer.node.kernel or "",
    }
    yield from metric("info", "Versions.", [(versions, 1)])


def _of_the_memory(answer: Health) -> Iterator[str]:
    since = _since(answer.wrong)
    links = [({"link": one.link}, VERDICT_NUMBERS[one.verdict]) for one in answer.links if one.verdict is not None]
    growth = [({"subject": one.subject, "counter": one.counter}, one.per_hour or 0.0) for one in answer.growth]
    yield from metric("health_link", "Each link by itself: 0 pass, 1 warn, 2 fail, 3 unknown.", links)
    yield from metric("health_wrong_since_seconds", "Since when something is wrong, by subject.", since[:MOST_WRONG])
    yield from metric("health_blips", "What is wrong and not yet lasting.", [({}, len(answer.blips))])
    yield from metric("health_counter_per_hour", "Counters that grew since the pass before.", growth[:MOST_WRONG])
    yield from metric("health_remembered", "0 when this pass could not be remembered.", [({}, int(answer.memory.kept))])
    hangs = int(answer.earlier is not None and bool(answer.earlier.hangs))
    yield from metric("health_earlier_run_hangs", "1 while an earlier pass does not end.", [({}, hangs)])


def _since(found: Sequence[Wrong]) -> list[Series]:
    """One series for each subject of a check, since the first of what is wrong with it: two of the same labels no collector takes."""
    moments: dict[tuple[str, ...], float] = {}
    for wrong in found:
        at = node_exporter.epoch(wrong.since)
        for subject in wrong.subjects:
            labels = (wrong.check, subject.kind.value, subject.key, wrong.status.value, wrong.state.value)
            moments[labels] = min(at, moments.get(labels, at))
    names = ("check", "kind", "key", "status", "state")
    return [(dict(zip(names, labels, strict=True)), at) for labels, at in moments.items()]
