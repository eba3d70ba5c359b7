"""The command palette: views, root causes, checks and keys by name."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from gpudoctor.reports.tui.views import VIEWS
from gpudoctor.reports.words import clean

if TYPE_CHECKING:
    from gpudoctor.reports.tui.app import DoctorApp

_Entry = tuple[str, str, Callable[[], Any]]


class Everything(Provider):
    """All that can be gone to."""

    async def discover(self) -> Hits:
        """What is offered before anything is written."""
        for name, about, go in self._actions():
            yield DiscoveryHit(name, go, help=about)

    async def search(self, query: str) -> Hits:
        """What matches."""
        matcher = self.matcher(query)
        for name, about, go in (*self._actions(), *self._findings()):
            score = matcher.match(f"{name} {about}")
            if score > 0:
                yield Hit(score, matcher.highlight(name), go, text=name, help=about)

    @property
    def _doctor(self) -> "DoctorApp":
        return self.app  # type: ignore[return-value]  # there is no other program

    def _actions(self) -> Iterator[_Entry]:
        for kind in VIEWS:
            yield kind.title, f"view, key {kind.key}", partial(self._doctor.action_go_to, kind.key)
        yield "Run again", "key r", self._doctor.action_again
        yield "Watch", "key w", self._doctor.action_watch
        yield "Save", "key s", self._doctor.action_save
        yield "Compare with a saved report", "key d", self._doctor.action_compare

    def _findings(self) -> Iterator[_Entry]:
        report = self._doctor.shown.report
        if report is None:
            return
        for cause in report.root_causes:
            yield (
                clean(cause.summary),
                f"root cause, {cause.check}",
                partial(self._doctor.open_findings, cause.findings),
            )
        for result in report.results:
            findings = tuple(finding.id for finding in result.findings) or (f"{result.check}@",)
            yield result.check, result.title, partial(self._doctor.open_findings, findings)
            yield f"explain {result.check}", result.title, partial(self._doctor.explain, (result.check,))
