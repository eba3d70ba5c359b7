"""What the page shows beside the root causes, in its order and groups: records for the templates, made from a report."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.details import Details, FullReport
from gpudoctor.report import Finding, NotSeen, Report, Result
from gpudoctor.reports.html.appendix import LinkSources, appendix_of
from gpudoctor.reports.html.causes import CauseView, causes_of
from gpudoctor.reports.html.chain import Picture, Place, first_broken
from gpudoctor.reports.html.gpus import GpusView, gpus_of
from gpudoctor.reports.html.rows import ADDRESS, Row, rows
from gpudoctor.reports.html.timeline import TimelineView, timeline_of
from gpudoctor.reports.html.topology import TopologyView, topology_of
from gpudoctor.reports.html.workloads import WorkloadsView, workloads_of
from gpudoctor.reports.shares import Share, folded
from gpudoctor.reports.words import OVERALL_STATUS, STATUS_ORDER, STATUS_WORDS, counted, headline
from gpudoctor.verdicts import Status, Why

WHY = {
    Why.NOT_RECORDED: "the recording does not hold it",
    Why.NO_PERMISSION: "this run was not allowed to read it",
    Why.TIMED_OUT: "no answer before the deadline",
    Why.SLOW_INIT: "the driver was still starting",
    Why.UNREADABLE: "it could not be read",
    Why.NOT_ANSWERED: "nothing was said about it",
    Why.WITHHELD: "asking could have changed the node",
    Why.CRASHED: "a check failed: please report it",
}
"""The reasons for not knowing, in words."""

WITHOUT_DETAILS = "this report was written without details: `gpudoctor run --details --format json` keeps them"
"""What stands in each section that only details fill."""

_ALARMS = (Status.FAIL, Status.WARN, Status.UNKNOWN)


class CheckView(Struct, frozen=True):
    """A check and its findings in rows."""

    result: Result
    rows: tuple[Row, ...]

    @property
    def mixed(self) -> bool:
        """Whether the rows' statuses must be told, the check's own not being that of all."""
        return any(row.says.status is not self.result.status for row in self.rows)


class LinkView(Struct, frozen=True):
    """A link of the chain: its place, its worst status, how many checks have each, the checks, and those that were skipped."""

    link: Link
    place: Place
    status: Status
    counts: tuple[tuple[int, Status], ...]
    checks: tuple[CheckView, ...]
    skipped: tuple[CheckView, ...]

    @property
    def warned(self) -> int:
        """How many of its checks warn, where its status does not say so."""
        return sum(count for count, one in self.counts if one is Status.WARN and self.status is Status.UNKNOWN)

    @property
    def told(self) -> str:
        """How many of its checks have the worst status; those that were skipped are counted only where all were."""
        number, status = self.counts[0]
        total = (
            sum(count for count, one in self.counts if one is not Status.SKIP) if status is not Status.SKIP else number
        )
        if self.warned:
            return f"{number} of {total}"
        return f"{number} of {counted(total, 'check')}" if number < total else counted(total, "check")


class UnseenView(Struct, frozen=True):
    """Like things that were not seen, and the checks that could not tell for want of them."""

    why: Why
    would_need: str
    what: tuple[str, ...]
    checks: tuple[str, ...]


class View(Struct, frozen=True):
    """Everything on the page."""

    status: Status
    name: str
    title: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    causes: tuple[CauseView, ...]
    links: tuple[LinkView, ...]
    picture: Picture
    first_broken: Link | None
    gpus: GpusView
    workloads: WorkloadsView
    topology: TopologyView | None
    timeline: TimelineView
    raw: tuple[LinkSources, ...]
    details: Details | None
    shares: tuple[Share, ...]
    unseen: tuple[UnseenView, ...]
    waived: tuple[Finding, ...]
    statuses: tuple[tuple[Status, int], ...]
    reproduce: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, report: Report) -> "View":
        """The page's content."""
        details = report.details if isinstance(report, FullReport) else None
        causes = causes_of(report)
        workloads = workloads_of(details, causes)
        picture = Picture({result.link for result in report.results})
        cause_of = {finding.id: cause for cause in causes for finding in cause.findings}
        status, name = OVERALL_STATUS[report.verdict], report.node.hostname or "unnamed node"
        return cls(
            status=status,
            name=name,
            title=f"{STATUS_WORDS[status]} {name} - gpudoctor",
            headline=headline(report),
            facts=tuple(_facts(report, len(details.gpus) if details else 0)),
            causes=causes,
            links=tuple(_links(report, cause_of, picture)),
            picture=picture,
            first_broken=first_broken(report),
            gpus=gpus_of(report, details, workloads.workloads),
            workloads=workloads,
            topology=topology_of(report, details.topology) if details else None,
            timeline=timeline_of(report, details),
            raw=appendix_of(report),
            details=details,
            shares=folded(report.sharing),
            unseen=tuple(_unseen(report)),
            waived=tuple(one for one in _findings(report) if one.waived is not None and one.status in _ALARMS),
            statuses=_counted(_entries(report)),
            reproduce=tuple(_reproduce(report)),
        )

    @property
    def to_look_at(self) -> tuple[Link, ...]:
        """The links of root causes where none is broken."""
        return tuple(dict.fromkeys(one.cause.link for one in self.causes)) if self.first_broken is None else ()

    @property
    def partly_seen(self) -> bool:
        """Whether some link has a check that could not tell, so that nobody can say that all are whole."""
        return any(status is Status.UNKNOWN for link in self.links for _, status in link.counts)

    def why(self, reason: Why) -> str:
        """A reason for not knowing, in words."""
        return WHY[reason]

    def untold(self, key: str) -> str:
        """Why a part of the details is lacking; empty where nothing is said of it."""
        if self.details is None:
            return WITHOUT_DETAILS
        return "; ".join(one.partition(": ")[2] for one in self.details.untold if one.startswith(f"{key}: "))


def _findings(report: Report) -> Iterator[Finding]:
    for result in report.results:
        yield from result.findings


def _entries(report: Report) -> list[Status]:
    """The status of each entry that can be filtered: a finding, or a check without any."""
    return [
        status
        for result in report.results
        for status in ([finding.status for finding in result.findings] or [result.status])
    ]


def _counted(statuses: Sequence[Status]) -> tuple[tuple[Status, int], ...]:
    return tuple((status, statuses.count(status)) for status in STATUS_ORDER if status in statuses)


def _facts(report: Report, beyond: int) -> Iterator[tuple[str, str]]:
    """`beyond` counts GPUs of which only the details tell."""
    node = report.node
    yield "Operating system", node.os or ""
    yield "Kernel", node.kernel or ""
    yield "Driver", node.driver_version or ""
    yield "CUDA", node.cuda_version or ""
    models: dict[str, int] = {}
    for gpu in node.gpus:
        models[gpu.name or ""] = models.get(gpu.name or "", 0) + 1
    counted = (
        f"{number} \u00d7 {model}" if model else f"{number}, model not known" for model, number in models.items()
    )
    yield "GPUs", "; ".join(counted) or (f"{beyond}, on no bus that was seen" if beyond else "none seen")
    yield "Source", {"live": "this node, live", "root": "live, below a root directory"}.get(node.source, node.source)
    yield "Seen as", "" if node.uid is None else "root" if node.uid == 0 else f"user {node.uid}"


def _links(report: Report, cause_of: Mapping[str, CauseView], picture: Picture) -> Iterator[LinkView]:
    for link in Link:
        results = [result for result in report.results if result.link is link]
        if results:
            counts = _counted([result.status for result in results])
            checks = [CheckView(result, rows(result.findings, cause_of)) for result in results]
            yield LinkView(
                link,
                picture.place(link),
                counts[0][0],
                tuple((number, status) for status, number in counts),
                tuple(check for check in checks if check.result.status is not Status.SKIP),
                tuple(check for check in checks if check.result.status is Status.SKIP),
            )


def _unseen(report: Report) -> Iterator[UnseenView]:
    """Grouped by what differs only in the address of a device."""
    blinded: dict[str, dict[str, None]] = {}
    for result in report.results:
        for finding in result.findings:
            if finding.status is Status.UNKNOWN:
                blinded.setdefault(finding.summary, {})[result.check] = None
    alike: dict[tuple[Why, str, str], list[NotSeen]] = {}
    for unseen in report.not_seen:
        alike.setdefault((unseen.why, unseen.would_need, ADDRESS.sub("*", unseen.what)), []).append(unseen)
    for (why, would_need, _), group in alike.items():
        checks = dict.fromkeys(check for unseen in group for check in blinded.get(unseen.what, ()))
        yield UnseenView(why, would_need, tuple(unseen.what for unseen in group), tuple(checks))


def _reproduce(report: Report) -> Iterator[tuple[str, str]]:
    source = {"live": "", "root": " --root DIR"}.get(report.node.source, " --node RECORDING")
    yield "The same diagnosis", f"gpudoctor run{source}"
    checks = sorted({cause.check for cause in report.root_causes})
    if checks:
        yield "Only what is wrong", f"gpudoctor run{source} {' '.join(f'--check {check}' for check in checks)}"
        yield "Why a check asks", f"gpudoctor explain {checks[0]}"
    if report.node.source in ("live", "root"):
        yield "A recording for somebody else", f"gpudoctor record{source} -o NODE.tar.zst"
    yield "This page as JSON", "gpudoctor render PAGE.html --format json"
