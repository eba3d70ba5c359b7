"""Hot-plug noticed while watching: a child of our own that listens to the kernel, read line by line."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gpudoctor.reports.tui.child import Child

_START = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); from gpudoctor.probes.hotplug import main; sys.exit(main())"
"""With this program's own import paths, as children of `gpudoctor` are started."""
VERBS = {"add": "was added", "remove": "has gone", "bind": "was given a driver", "unbind": "has lost its driver"}
MOST_WORDS = 200


class PlugWatch:
    """Listens as long as it is started. `told` gets a line for people, and whether something came or went.

    That nothing can be noticed here is said once.
    """

    def __init__(self, told: Callable[[str, bool], None], argv: Sequence[str] = ()) -> None:
        self._told = told
        self._argv = tuple(argv) or (sys.executable, "-c", _START, "\n".join(sys.path))
        self._child: Child | None = None
        self._unavailable = False

    @property
    def listening(self) -> bool:
        """Whether its child is on."""
        return self._child is not None

    def start(self) -> None:
        """Listen; needs a running loop. Where it was found that nothing can be noticed it is not tried again."""
        if self._child is not None or self._unavailable:
            return
        try:
            self._child = Child(self._argv)
        except OSError as error:
            self._give_up(str(error.strerror or error))
            return
        self._child.follow(self._line, lambda _: None, self._ended)

    def stop(self) -> None:
        """Leave it behind."""
        if self._child is not None:
            self._child.abandon()
            self._child = None

    def _line(self, line: bytes) -> None:
        try:
            words = json.loads(line)
        except ValueError:
            return
        if not isinstance(words, dict):
            return
        match words.get("kind"):
            case "unavailable":
                self._give_up(str(words.get("why", "")))
            case "lost":
                self._told("devices came and went faster than could be told", True)
            case "event":
                self._told(in_words(words), True)

    def _ended(self, status: int) -> None:
        self._child = None
        self._give_up(f"the listener ended with {status}")

    def _give_up(self, why: str) -> None:
        if not self._unavailable:
            self._unavailable = True
            self._told(f"hot-plug cannot be noticed here: {why[:MOST_WORDS]}", False)


def in_words(event: dict[str, Any]) -> str:
    """`GPU 0000:3a:00.0 has gone`."""
    driver = f" (driver {event['driver']})" if event.get("driver") and event.get("action") == "bind" else ""
    what = f"{event.get('device', 'device')} {event.get('address', '')}".rstrip()
    return f"{what} {VERBS.get(str(event.get('action')), 'changed')}{driver}"[:MOST_WORDS]
