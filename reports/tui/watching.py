"""A watch: run again and again, and notice what comes and goes between the runs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.timer import Timer

    from gpudoctor.reports.tui.app import DoctorApp
    from gpudoctor.reports.tui.plugging import PlugWatch

WATCH_SECONDS = 10.0
"""How long a watch rests between passes where no other time is asked for."""
SETTLE_SECONDS = 2.0
"""How long after a GPU came or went the node is looked at: its driver takes that long to answer."""
NOTHING_TO_RUN = "A saved report is shown: there is nothing to run."


class Watch:
    """Watches for as long as `shown.watch` says how long to rest between passes."""

    def __init__(self, doctor: "DoctorApp") -> None:
        self._doctor = doctor
        self._rest = doctor.shown.watch or WATCH_SECONDS
        self._plugs: PlugWatch | None = None
        self._next: Timer | None = None

    def toggle(self) -> None:
        """Begin, or end."""
        shown, runs = self._doctor.shown, self._doctor.runs
        if not runs.argv:
            self._doctor.say(NOTHING_TO_RUN)
            return
        if shown.watch is not None:
            shown.watch = None
            self._doctor.say("The watch is over.")
        else:
            shown.watch = self._rest
            self._doctor.say(f"Watching: a run every {self._rest:g} s, and what changes is marked.")
            if runs.child is None:
                runs.again()
        self.listen()

    def rest(self) -> None:
        """A run is over: rest, and then run again; whoever has asked for that run puts the next off."""
        if self._next is not None:
            self._next.stop()
            self._next = None
        if self._doctor.shown.watch is not None:
            self._next = self._doctor.set_timer(self._doctor.shown.watch, self._next_pass)

    def listen(self) -> None:
        """Notice hot-plug while a live node is watched."""
        shown = self._doctor.shown
        if not (shown.live and self._doctor.runs.argv and shown.watch is not None):
            self.stop()
            return
        from gpudoctor.reports.tui.plugging import PlugWatch

        self._plugs = self._plugs or PlugWatch(self._plugged)
        self._plugs.start()

    def stop(self) -> None:
        """Listen no more."""
        if self._plugs is not None:
            self._plugs.stop()

    def _next_pass(self) -> None:
        if self._doctor.shown.watch is not None and self._doctor.runs.child is None:
            self._doctor.runs.again()

    def _plugged(self, words: str, event: bool) -> None:
        """A GPU came or went: told at once, and looked at once it has settled."""
        self._doctor.runs.log(words)
        self._doctor.say(words)
        if event:
            self._doctor.set_timer(SETTLE_SECONDS, self._next_pass)
