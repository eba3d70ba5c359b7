"""Regular expressions that are compiled when they are first used: a run imports hundreds, and most nodes give no cause to ask them."""

import re
from typing import Any, cast


class _Deferred:
    """Stands for a pattern until something is asked of it."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """An attribute of the pattern, which is kept for the next time."""
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def pattern(text: str, flags: int = 0) -> "re.Pattern[str]":
    """As re.compile, whose errors come at the first use. Methods only: re.sub(pattern, …) does not take it."""
    return cast("re.Pattern[str]", _Deferred(text, flags))
