"""`gpudoctor tui` until its first screen is written, then at an end: what is measured of it. Not a benchmark by itself."""

import os
import sys

MARK = "Diagnosis"
"""A word of the first screen."""


def end_with_first_screen() -> None:
    """Have the driver end the program when it has written the mark."""
    from textual.drivers.linux_driver import LinuxDriver

    write = LinuxDriver.write

    def write_and_end(driver: LinuxDriver, data: str) -> None:
        write(driver, data)
        if MARK in data:
            os._exit(0)

    LinuxDriver.write = write_and_end  # type: ignore[method-assign, assignment]


def main() -> int:
    """Run the command line as its console script does; textual is loaded where it loads it."""
    from gpudoctor.cli import main as command_line
    from gpudoctor.reports.tui import start

    prepare = start._prepare

    def prepare_and_end(*arguments: object) -> None:
        prepare(*arguments)  # type: ignore[arg-type]
        end_with_first_screen()

    start._prepare = prepare_and_end  # type: ignore[assignment]
    return command_line(["tui", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
