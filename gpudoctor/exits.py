"""Exit codes of the command line."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a caller can rely on. A broken doctor must look neither like a broken nor like a healthy GPU: it is 3 as well."""

    OK = 0
    """Every check that applied passed; for commands other than `run`: the work was done."""
    WARN = 1
    """Something deserves attention; nothing is broken."""
    FAIL = 2
    """A link is broken."""
    UNKNOWN = 3
    """An essential check could not tell, or the doctor could not be used: bad usage, unusable source, crash."""
