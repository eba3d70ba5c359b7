"""The command line: parse, choose the source and the renderer, give the exit code. stdout is the report, stderr the talk."""

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from gpudoctor.cli_parser import parse
from gpudoctor.config import ConfigError
from gpudoctor.exits import ExitCode
from gpudoctor.sources.errors import SourceError

if TYPE_CHECKING:
    import argparse

ALLOCATIONS = 500_000
"""After so many new objects the garbage collector looks for cycles; Python's own threshold is 700."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a problem of the doctor itself is one line on stderr and 3."""
    # Hundreds of modules make objects that stay: looking through them for garbage again and again is a twentieth of a run.
    gc.set_threshold(ALLOCATIONS)
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.command == "slurm":
        return _within_slurm(options, leave=arguments is None)
    from gpudoctor import commands

    try:
        status = commands.COMMANDS[options.command](options)
        if sys.stdout is not None:
            sys.stdout.flush()
        # At its end Python looks for cycles once more, through everything there is: another twelfth.
        gc.freeze()
    except (ConfigError, SourceError) as error:
        return _complain(str(error))
    except BrokenPipeError:
        return _reader_has_gone()
    except KeyboardInterrupt:
        return _complain("interrupted")
    except OSError as error:
        return _complain(f"cannot go on: {error.filename or 'writing the report'}: {error.strerror or error}", error)
    # Whatever else happens is our own bug; it must look neither like a broken nor like a healthy GPU.
    except Exception as error:
        from gpudoctor.registry import RegistryError

        if isinstance(error, RegistryError):
            return _complain(str(error))
        said = f"gpudoctor itself failed: {type(error).__name__}: {error} (please report it; GPUDOCTOR_DEBUG=1 shows where)"
        return _complain(said, error)
    if options.command == "health" and arguments is None:
        # All is written and closed. What Python takes apart at its end, object by object, is a hundredth of what a timer pays each minute.
        os._exit(int(status))
    return int(status)


def _within_slurm(options: "argparse.Namespace", *, leave: bool) -> int:
    """`gpudoctor slurm`: Slurm drains the node for whatever is not 0, so nothing but a finding may end otherwise."""
    status = 0
    try:
        from gpudoctor.slurm_run import slurm

        status = slurm(options)
    # A broken installation, a full disk, a signal: each would take the node, and at once all nodes, out of service.
    except BaseException as error:
        _complain(f"slurm {options.mode}: nothing is done: {type(error).__name__}: {error}", error)
    if leave:
        # Python ends with 120 when it cannot write out what is left in stdout.
        os._exit(status)
    return status


def _complain(message: str, error: BaseException | None = None) -> int:
    """One line on stderr, whatever it holds; a stderr that is closed or full changes nothing about the exit code."""
    line = message.encode("ascii", "backslashreplace").decode()
    line = " ".join("".join(character if character.isprintable() else " " for character in line).split())
    try:
        if error is not None and os.environ.get("GPUDOCTOR_DEBUG"):
            import traceback

            traceback.print_exception(error)
        sys.stderr.write(f"gpudoctor: {line}\n")
        sys.stderr.flush()
    except (OSError, AttributeError, ValueError):
        pass
    _let_go(sys.stdout)
    return int(ExitCode.UNKNOWN)


def _reader_has_gone() -> int:
    """`gpudoctor | head` is no error of ours; leave without Python's own complaint at shutdown."""
    _let_go(sys.stdout)
    return int(ExitCode.UNKNOWN)


def _let_go(stream: TextIO | None) -> None:
    """Drop what could not be written, so that Python does not try again when it ends, and fail then."""
    try:
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        pass
