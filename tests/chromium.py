"""Pages opened in a real Chromium, without a network and without a debugging port."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="needs chromium (Debian: chromium)")

_CONSOLE = re.compile(r":CONSOLE(?::\d+|\(\d+\))\] (.*)")
"""How the browser logs what a page's console says, policy violations among it."""


def open_page(place: Path, profile: Path, *arguments: str, fragment: str = "") -> tuple[str, list[str]]:
    """Open a file and print its document: the document, and what the console said."""
    done = browse([*arguments, "--dump-dom"], f"{place.resolve().as_uri()}{fragment}", profile)
    return done.stdout, _CONSOLE.findall(done.stderr)


def browse(arguments: Sequence[str], address: str, profile: Path) -> "subprocess.CompletedProcess[str]":
    """Run the browser, headless, with a profile of its own."""
    assert PROGRAM is not None
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # as root its sandbox refuses to start
    quiet = ["--disable-gpu", "--disable-background-networking", "--no-first-run", "--hide-scrollbars"]
    return subprocess.run(
        [
            PROGRAM,
            "--headless",
            *sandbox,
            *quiet,
            "--enable-logging=stderr",
            "--v=0",
            f"--user-data-dir={profile}",
            *arguments,
            address,
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=120,
        check=True,
    )
