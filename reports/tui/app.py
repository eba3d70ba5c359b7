"""The program: what is shown, the run behind it, and the keys."""

import asyncio
import importlib
import os
import signal
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from gpudoctor.reports.tui.heading import Bar, Heading
from gpudoctor.reports.tui.keys import Keys
from gpudoctor.reports.tui.model import Chosen, Shown
from gpudoctor.reports.tui.runs import Runs
from gpudoctor.reports.tui.theme import clipboard_note, text_colors
from gpudoctor.reports.tui.views import VIEWS, ViewKind
from gpudoctor.reports.tui.watching import NOTHING_TO_RUN, Watch

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.driver import Driver

    from gpudoctor.reports.tui.child import Child
    from gpudoctor.reports.tui.runs import End
    from gpudoctor.reports.tui.sheet import Sheet
    from gpudoctor.reports.tui.view import View

TICK_SECONDS = 0.25
LEAST_WIDTH, LEAST_HEIGHT = 40, 10


def _palette() -> "type[Provider]":
    from gpudoctor.reports.tui.palette import Everything

    return Everything


class DoctorApp(App[None]):
    """`gpudoctor tui`. It neither probes nor judges: a run is a child of its own, of which it shows what arrives."""

    TITLE = "gpudoctor"
    COMMANDS = App.COMMANDS | {_palette}
    CSS = """
    Screen { layout: vertical; }
    #views { height: 1fr; }
    #small { display: none; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Screen.-small > * { display: none; }
    Screen.-small > #small { display: block; }
    Toast { width: auto; max-width: 90%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(kind.key, f"go_to('{kind.key}')", kind.title, show=False) for kind in VIEWS),
        Binding("y,c", "copy", "Copy"),
        Binding("x", "explain", "Explain"),
        Binding("r", "again", "Re-run"),
        Binding("w", "watch", "Watch"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("d", "compare", "Diff"),
        Binding("ctrl+f", "search", "Search", show=False),
        Binding("s", "save", "Save"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "show_all", "Show all", show=False),
        Binding("q", "quit", "Quit"),
        # Over questions and where one types as well.
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        shown: Shown,
        run: Sequence[str] = (),
        first: "Child | None" = None,
        deadline: float | None = None,
        source_options: Sequence[str] = (),
        driver_class: "type[Driver] | None" = None,
    ) -> None:
        """`run` is what starts a run, nothing where a saved report is shown; `first` is one that was started already.

        `source_options` are those by which `gpudoctor record` looks at the same node.
        """
        super().__init__(driver_class)
        self.animation_level = "none"
        self.shown = shown
        self.source_options = tuple(source_options)
        self.crash: Exception | None = None
        self.ended_by: int | None = None
        self.runs = Runs(shown, run, first, deadline, self.refresh_shown, self.say)
        self._watch = Watch(self)
        self.runs.ended = self._watch.rest
        self._kind, self._making = VIEWS[0], asyncio.Lock()
        self._heading, self._bar = Heading(), Bar()
        self._made: dict[str, View] = {}

    def compose(self) -> ComposeResult:
        """Heading, bar, views, footer."""
        yield self._heading
        yield self._bar
        # A plain widget would show its own name until the first view is there.
        yield Static(id="views")
        yield Keys(markup=False)
        yield Static(id="small", markup=False)

    def on_mount(self) -> None:
        """Paint first: what the views need is loaded behind the first screen."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self._terminated, number)
        # After SIGTSTP and `fg` the screen is an empty one.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self._heading.update(Content(f"\n{self.shown.source}"))
        self._show_bar()
        self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        """Read the run, and show."""
        self.runs.begin()
        await self._go_to(self._kind)
        self._watch.listen()
        if self.shown.against_name and self.shown.against is None:
            self.run_worker(self._compare_with(self.shown.against_name, go=False), exit_on_error=True)
        self.set_interval(TICK_SECONDS, self._tick)

    def on_resize(self, event: events.Resize) -> None:
        """The bar fits anew, and a window that is too small says so."""
        width, height = event.size
        small = width < LEAST_WIDTH or height < LEAST_HEIGHT
        bottom = self.screen_stack[0]
        bottom.set_class(small, "-small")
        if small:
            said = f"too small: needs {LEAST_WIDTH}x{LEAST_HEIGHT}, has {width}x{height}"
            bottom.query_one("#small", Static).update(Content(said))
        self._show_bar(width)

    def get_css_variables(self) -> dict[str, str]:
        """The theme's, but for the colours of words."""
        theme = self.current_theme
        variables = {**super().get_css_variables(), **text_colors(dark=theme.dark, ansi=theme.ansi)}
        self.theme_variables = variables
        return variables

    # the run

    def _tick(self) -> None:
        # A terminal that has gone is not always followed by a signal: nohup and the like keep SIGHUP away.
        if not (self.is_headless or os.isatty(2)):
            self._terminated(signal.SIGHUP)
        elif self.shown.progress is not None:
            self.refresh_shown()
        else:
            self._heading.show(self.shown)

    async def outcome_of(self, *words: str) -> "End":
        """Ask another gpudoctor, as `explain ID` or `record -o FILE`, and wait for its end without holding anything up."""
        return await self.runs.outcome_of(words)

    # what is shown

    def refresh_shown(self) -> None:
        """Let everything that is to be seen show what is known now."""
        self._heading.show(self.shown)
        if view := self._made.get(self._kind.id):
            view.show(self.shown)

    async def _go_to(self, kind: ViewKind) -> None:
        """Show a view; its module is loaded the first time."""
        # A key and a comparison that has ended may both want the same view.
        async with self._making:
            if kind.id not in self._made:
                view = kind.made()
                await self.screen_stack[0].query_one("#views").mount(view)
                self._made[kind.id] = view
        self._kind = kind
        for identity, view in self._made.items():
            view.display = identity == kind.id
        view = self._made[kind.id]
        self._show_bar()
        self.refresh_shown()
        view.take_focus()
        self.refresh_bindings()

    def _show_bar(self, width: int | None = None) -> None:
        self._bar.show([(kind.key, kind.title) for kind in VIEWS], self._kind.key, width or self.size.width)

    async def action_go_to(self, key: str) -> None:
        """Show the view of a key."""
        await self._go_to(next(kind for kind in VIEWS if kind.key == key))

    async def open_findings(self, findings: Sequence[str]) -> None:
        """Show what findings belong to in full: their root cause, or else their check."""
        from gpudoctor.reports.tui.listing import chosen_for
        from gpudoctor.reports.tui.views.diagnosis import Diagnosis

        came_from = self._kind.key
        if self.shown.report is None or not findings:
            return
        await self._go_to(VIEWS[0])
        diagnosis = self._made[VIEWS[0].id]
        assert isinstance(diagnosis, Diagnosis)
        diagnosis.open_chosen(chosen_for(findings[0], self.shown.report), came_from)

    # the keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What there is nothing for leaves its key to others."""
        if action == "show_all":
            return bool(self.shown.words)
        # textual does not see that a line to type in takes this key.
        return action != "filter" or self.focused is None or self.focused.id != "filter"

    def offers(self, action: str) -> bool:
        """Whether the line of keys names it; what it does not name says why when it is pressed."""
        return action not in ("again", "watch") or bool(self.runs.argv)

    @property
    def _chosen(self) -> Chosen | None:
        view = self._made.get(self._kind.id)
        return view.chosen if view is not None else None

    def action_again(self) -> None:
        """Run again; a run that is still on is left behind."""
        if self.runs.argv:
            self.runs.again()
        else:
            self.say(NOTHING_TO_RUN)

    def action_watch(self) -> None:
        """Begin or end to run again and again."""
        self._watch.toggle()
        self._heading.show(self.shown)

    def action_copy(self) -> None:
        """Copy a command of what is chosen; where there are several, ask which."""
        chosen, report = self._chosen, self.shown.report
        if chosen is None or report is None:
            self.say("Choose a finding first; its remedies come with the report.")
            return
        from gpudoctor.reports.tui.cause import commands_of
        from gpudoctor.reports.tui.screens import Picker

        commands = commands_of(chosen, report)
        if not commands:
            self.say("No remedy of this has a command.")
        elif len(commands) == 1:
            self.copy(commands[0].command)
        else:
            self.push_screen(Picker(commands), self._picked)

    def _picked(self, words: str | None) -> None:
        if words is not None:
            self.copy(words)

    def on_sheet_copied(self, event: "Sheet.Copied") -> None:
        """Copy a command that was clicked on."""
        self.copy(event.words)

    def copy(self, words: str) -> None:
        """To the clipboard of whoever sits at the terminal: without what a shell that it is pasted into would act upon."""
        from gpudoctor.reports.words import clean

        words = clean(words)
        self.copy_to_clipboard(words)
        self.say(f"copied: {words}{clipboard_note(os.environ)}")

    def action_explain(self) -> None:
        """Explain the check that is chosen, and the Xids it speaks of."""
        chosen = self._chosen
        if chosen is None:
            self.say("Choose a finding or a check first.")
            return
        from gpudoctor.reports.tui.listing import explained_with

        self.explain(explained_with(chosen, self.shown.report))

    def explain(self, words: Sequence[str]) -> None:
        """Show what `gpudoctor explain` says of checks and codes."""
        from gpudoctor.reports.tui.screens import Explained

        self.push_screen(Explained(words))

    def action_help(self) -> None:
        """The keys and the words."""
        from gpudoctor.reports.tui.screens import Help

        self.push_screen(Help())

    def action_filter(self) -> None:
        """Ask for words to filter by."""
        from gpudoctor.reports.tui.filtering import FilterBar

        bottom = self.screen_stack[0]
        bars = bottom.query(FilterBar)
        bar = bars.first() if bars else FilterBar(self.shown.words)
        if not bars:
            bottom.mount(bar, before=bottom.query_one(Keys))
        bar.focus()

    def filter_by(self, words: str) -> None:
        """Show only what has these words."""
        self.shown.words = words
        self.refresh_shown()

    def action_show_all(self) -> None:
        """Show everything again, without the line for words to filter by."""
        from gpudoctor.reports.tui.filtering import FilterBar

        self.filter_by("")
        self.screen_stack[0].query(FilterBar).remove()

    def focus_view(self) -> None:
        """Back to the view, as from the filter."""
        if view := self._made.get(self._kind.id):
            view.take_focus()

    def action_search(self) -> None:
        """Search over all that the report says."""
        from gpudoctor.reports.tui.search import SearchScreen

        self.push_screen(SearchScreen(self.shown), self._found)

    async def _found(self, finding: str | None) -> None:
        if finding is not None:
            await self.open_findings((finding,))

    def action_save(self) -> None:
        """Save the report, or record a snapshot."""
        saving = importlib.import_module("gpudoctor.reports.tui.saving")
        self.push_screen(saving.SaveScreen(self.shown))

    def action_compare(self) -> None:
        """Compare with a saved report."""
        compare = importlib.import_module("gpudoctor.reports.tui.views.compare")
        self.push_screen(compare.AgainstScreen(self.shown), self._against)

    def _against(self, place: str | None) -> None:
        if place is not None:
            self.run_worker(self._compare_with(place), exit_on_error=True)

    async def _compare_with(self, place: str, *, go: bool = True) -> None:
        """Compare with a saved report, or with a recording once a run has looked at it."""
        from gpudoctor.reports.tui.views.against import AgainstError, against_report

        try:
            self.shown.against, self.shown.against_name = await against_report(self, place), place
        except AgainstError as error:
            self.runs.log(str(error))
            self.say(str(error))
            return
        if go:
            await self.action_go_to("7")
        else:
            self.refresh_shown()

    def say(self, words: str) -> None:
        """A notice at the edge, for a few seconds; never markup."""
        from gpudoctor.reports.tui.badges import node_text

        self.notify(node_text(words).plain, markup=False, timeout=6)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Of textual's own commands the theme: a screenshot would write a file that nobody has named."""
        yield SystemCommand("Theme", "Change how it looks", self.action_change_theme)
        yield SystemCommand("Keys", "What each key does", self.action_help)
        yield SystemCommand("Quit", "Leave at once", self.action_quit)

    # the end

    async def action_quit(self) -> None:
        """Leave at once: nothing waits for a run that hangs."""
        self.leave()

    def leave(self) -> None:
        """Abandon whatever was started, and end."""
        self._abandon()
        self.exit()

    def on_unmount(self) -> None:
        """However it ends, nothing is left running."""
        self._abandon()

    def _abandon(self) -> None:
        self._watch.stop()
        self.runs.abandon()

    def _terminated(self, number: int) -> None:
        self.ended_by = number
        self.leave()

    def _handle_exception(self, error: Exception) -> None:
        """One line for the user, told by the command line; textual would print the whole traceback."""
        self.crash = self.crash or error
        self._abandon()
        super()._handle_exception(error)
        self._exit_renderables.clear()
