"""How often gpudoctor names what is wrong, over real captures (../shared/corpus) and over the recorded nodes of this repository.

Exits with 1 when a fail is false, when gpudoctor crashes, or when the right root cause comes first less often than
bench/score_gate.json says. That figure is only ever raised: `--write` raises it, and rewrites the section of docs/accuracy.md.
"""

import argparse
import datetime
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.scoring import GATE, Outcome, Recall, Scored, gate, problems, recall, score_corpus, score_fixtures

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "corpus"
PAGE = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- make score: begin -->", "<!-- make score: end -->"

Cases = tuple[Scored, ...]
WHOLE = ("bug-report", "machine-tree")
"""Kinds that show most of a machine; the others are one file or the output of one command."""

HEADS = ("evidence", "faults", "right first", "not first", "missed", "without a fault", "false fails", "crashes")


def main() -> int:
    """Score, print, judge, and write when asked to."""
    options = _options()
    parts = {"fixtures": score_fixtures()}
    if (options.corpus / "MANIFEST.tsv").is_file():
        parts["corpus"] = score_corpus(options.corpus)
    else:
        print(f"score: no corpus of real captures in {options.corpus}: only recorded nodes are scored\n")
    least = gate()
    found = [problem for name, cases in parts.items() for problem in problems(name, cases, least[name])]
    _print(parts)
    if options.write and "corpus" not in parts:
        found.append("without the corpus nothing is written")
    elif options.write and not found:
        _write(parts, least)
    for problem in found:
        print(f"score: {problem}", file=sys.stderr)
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help=f"rewrite {PAGE.name}'s section and raise the gate")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where the real captures lie")
    return parser.parse_args()


# Counting ---------------------------------------------------------------------------------------------------------


def _row(name: str, cases: Iterable[Scored]) -> tuple[str, ...]:
    """One line of the table, columns as in HEADS."""
    scored = tuple(cases)
    count = Counter(case.outcome for case in scored)
    figures = (
        recall(scored).faults,
        count[Outcome.FIRST],
        count[Outcome.NOT_FIRST],
        count[Outcome.MISSED],
        count[Outcome.SILENT] + count[Outcome.FALSE_FAIL],
        count[Outcome.FALSE_FAIL],
        count[Outcome.CRASHED],
    )
    return (name, *map(str, figures))


def _rows(parts: dict[str, Cases]) -> list[tuple[str, ...]]:
    """A line for each kind of the corpus that is judged, their sums, and the recorded nodes."""
    cases = parts.get("corpus", ())
    judged = [case for case in cases if case.outcome not in (Outcome.LATER, Outcome.UNREAD)]
    kinds = sorted({case.kind for case in judged}, key=lambda kind: (kind not in WHOLE, kind))
    rows = [_row(kind, (case for case in judged if case.kind == kind)) for kind in kinds]
    if cases:
        rows.append(_row("whole machines", (case for case in judged if case.kind in WHOLE)))
        rows.append(_row("single pieces", (case for case in judged if case.kind not in WHOLE)))
        rows.append(_row("all captures", judged))
    return [*rows, _row("recorded nodes of ours", parts["fixtures"])]


def _of(cases: Iterable[Scored], *outcomes: Outcome) -> list[Scored]:
    return [case for case in cases if case.outcome in outcomes]


def _later(cases: Cases) -> list[tuple[str, int]]:
    """Links that have no checks yet for a fault, and how many pieces show one; most first."""
    return Counter(case.link for case in _of(cases, Outcome.LATER)).most_common()


def _idle(cases: Cases) -> int:
    """Cases in which silence is cheap: no check found enough to judge."""
    return sum(case.judged == 0 for case in _of(cases, Outcome.SILENT))


# Printing ---------------------------------------------------------------------------------------------------------


def _print(parts: dict[str, Cases]) -> None:
    table = [HEADS, *_rows(parts)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADS))]
    for row in table:
        print(
            row[0].ljust(widths[0]), *(cell.rjust(width + 2) for cell, width in zip(row[1:], widths[1:], strict=True))
        )
    cases = parts.get("corpus", ())
    print(f"\n{_idle(cases)} of the {len(_of(cases, Outcome.SILENT))} silent captures show too little for any check")
    print("later links: " + (", ".join(f"{link} {count}" for link, count in _later(cases)) or "none"))
    print(f"forms that are not read: {len(_of(cases, Outcome.UNREAD))} captures")
    every = [case for part in parts.values() for case in part]
    for case in _of(every, Outcome.NOT_FIRST, Outcome.MISSED, Outcome.FALSE_FAIL, Outcome.CRASHED):
        print(f"\n{case.outcome.value}: {case.name}")
        for line in (*case.instead, *(f"said {cause}" for cause in case.said)):
            print(f"    {line}")


# Writing ----------------------------------------------------------------------------------------------------------


def _write(parts: dict[str, Cases], least: Mapping[str, Recall]) -> None:
    """The page's section, and the gate where more was reached."""
    section = f"{BEGIN}\n{_section(parts)}{END}"
    page, places = re.subn(rf"{BEGIN}.*?{END}", lambda _: section, PAGE.read_text("utf-8"), flags=re.DOTALL)
    if places != 1:
        raise SystemExit(f"score: {PAGE} has {places} sections between {BEGIN} and {END}, not one")
    PAGE.write_text(page, "utf-8")
    reached = {name: recall(cases) for name, cases in parts.items()}
    kept = {name: least[name] if found.below(least[name]) else found for name, found in sorted(reached.items())}
    figures = {name: {"first": figure.first, "faults": figure.faults} for name, figure in kept.items()}
    GATE.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def _section(parts: dict[str, Cases]) -> str:
    cases = parts["corpus"]
    missed, later, silent = (_of(cases, outcome) for outcome in (Outcome.MISSED, Outcome.LATER, Outcome.SILENT))
    unread = Counter(case.kind for case in _of(cases, Outcome.UNREAD))
    quiet = sum(not case.said for case in missed)
    forms = ", ".join(f"{kind} {count}" for kind, count in unread.most_common())
    today = datetime.datetime.now(datetime.timezone.utc).date()
    lines = [
        f"Measured on {today} over {len(cases)} real captures and {len(parts['fixtures'])} recorded nodes.",
        "",
        *_markdown(HEADS, _rows(parts)),
        "",
        f"{_idle(cases)} of the {len(silent)} captures without a fault show too little for any check: there silence proves nothing.",
        "",
        f"Missed are {len(missed)}; in {quiet} of them nothing else is blamed. What the right check said instead:",
        "",
        *(f"* {case.name}: {_instead(case)}" for case in _of(cases, Outcome.NOT_FIRST, Outcome.MISSED)),
        "",
        f"{len(later)} captures show faults of links that cannot find them yet:",
        "",
        *_markdown(("link", "captures"), [(link, str(count)) for link, count in _later(cases)]),
        "",
        f"{unread.total()} captures have a form that is not read as a node or a piece of one: {forms}.",
        "",
    ]
    return "\n".join(lines)


def _instead(case: Scored) -> str:
    return "; ".join(line.partition(": ")[0] for line in case.instead)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


if __name__ == "__main__":
    sys.exit(main())
