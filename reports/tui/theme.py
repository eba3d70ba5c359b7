"""How the program looks on this terminal: which theme, and whether what is copied there arrives."""

from collections.abc import Mapping

DARK, LIGHT = "textual-dark", "textual-light"
ANSI_DARK, ANSI_LIGHT = "ansi-dark", "ansi-light"
_LIGHT_BACKGROUNDS = frozenset({"7", "15"})
"""The last number of COLORFGBG, as rxvt, Konsole and others set it: the terminal's background among the 16 colours."""

# Each at least 5:1 on a background as dark, or as light, as those of textual's themes.
_ON_DARK = {
    "text-success": "#3fb950",
    "text-error": "#ff7b72",
    "text-warning": "#e3b341",
    "text-accent": "#b3a7ff",
    "text-primary": "#79b8ff",
    "text-secondary": "#79b8ff",
    "text-muted": "#9aa4af",
}
_ON_LIGHT = {
    "text-success": "#1a7f37",
    "text-error": "#b3261e",
    "text-warning": "#8a5a00",
    "text-accent": "#5b4db7",
    "text-primary": "#0a58ca",
    "text-secondary": "#0a58ca",
    "text-muted": "#57606a",
}
# Bright black, which is grey on most terminals, is the background on some: what is muted is as plain text there.
_IN_SIXTEEN = {"text-accent": "ansi_magenta", "text-secondary": "ansi_cyan", "text-muted": "ansi_default"}


def text_colors(*, dark: bool, ansi: bool) -> dict[str, str]:
    """Colours of words by the names that textual has for them: those of a status can be told apart, and be read."""
    return _IN_SIXTEEN if ansi else _ON_DARK if dark else _ON_LIGHT


def chosen_theme(wish: str | None, environment: Mapping[str, str]) -> str:
    """The option, then TEXTUAL_THEME, then the terminal's own 16 colours where it is remote, has no more, or shall show none.

    Over ssh nothing tells which colours the far terminal's owner can read; its own 16 they have chosen themselves.
    """
    if wish or environment.get("TEXTUAL_THEME"):
        return wish or environment["TEXTUAL_THEME"]
    light = environment.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_BACKGROUNDS
    remote = bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))
    if remote or environment.get("NO_COLOR") or not _has_many_colors(environment):
        return ANSI_LIGHT if light else ANSI_DARK
    return LIGHT if light else DARK


def _has_many_colors(environment: Mapping[str, str]) -> bool:
    """As rich tells it: COLORTERM, or the last part of TERM."""
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return True
    return environment.get("TERM", "").strip().lower().rpartition("-")[2] in ("256color", "kitty", "direct")


def clipboard_note(environment: Mapping[str, str]) -> str:
    """What keeps a copy from the clipboard, as far as the environment tells; who pastes gets what was there before."""
    if environment.get("TMUX"):
        return "  (tmux passes it on after `set -g set-clipboard on`)"
    if environment.get("STY"):
        return "  (GNU screen keeps it to itself)"
    # console_codes(4) knows OSC 52 no more than any clipboard.
    return "  (the Linux console has no clipboard)" if environment.get("TERM") == "linux" else ""
