"""`gpudoctor health` run within the test's own process, over recorded nodes that grow older."""

import contextlib
import datetime
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import cli
from gpudoctor.testing import fixtures
from tests.diff_node import DiffNode

HEALTHY = str(fixtures() / "h100x8")
SOFT = str(fixtures() / "daemon-json-trailing-comma")
"""Something is wrong that a second look may not find: nothing essential."""
HARD = str(fixtures() / "nouveau-and-broken-daemon-json")
"""An essential check fails, and something else."""
RECORDED = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.timezone.utc)
BOOTTIME = 5000.0


class Passes:
    """Passes over nodes with one memory."""

    def __init__(self, capsys: pytest.CaptureFixture[str], state: Path) -> None:
        self._capsys = capsys
        self.state = state

    def __call__(self, *arguments: object, command: str = "health") -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        self._capsys.readouterr()
        code = cli.main([command, "--state", str(self.state), *map(str, arguments)])
        out, err = self._capsys.readouterr()
        return code, out, err

    def over(self, node: object, *arguments: object) -> tuple[int, str]:
        """A pass over a node, of which nobody complains: exit code and stdout."""
        code, out, err = self("--node", node, *arguments)
        assert err == ""
        return code, out

    def told(self, node: object, *arguments: object) -> dict[str, Any]:
        """The answer as JSON; its exit code is the command's."""
        code, out, _ = self("--node", node, "--format", "json", *arguments)
        answer: dict[str, Any] = json.loads(out)
        assert answer["exit_code"] == code
        return answer

    def history(self, *arguments: object) -> dict[str, Any]:
        """The history as JSON."""
        code, out, err = self("--format", "json", *arguments, command="history")
        assert (code, err) == (0, "")
        told: dict[str, Any] = json.loads(out)
        return told


@contextlib.contextmanager
def quick_place() -> Iterator[Path]:
    """A folder in memory where there is such: every pass waits for the disk, which a loaded machine is slow with."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as place:
        yield Path(place)


def aged(node: DiffNode, minutes: float, *, clock_off_by: float = 0.0) -> DiffNode:
    """The node so many minutes after it was recorded, its own clock being set wrong by some more."""
    at = RECORDED + datetime.timedelta(minutes=minutes + clock_off_by)
    since_boot = BOOTTIME + minutes * 60
    clock = {"realtime": at.timestamp(), "monotonic": since_boot, "boottime": since_boot}
    node.manifest(recorded_at=f"{at:%Y-%m-%dT%H:%M:%SZ}", clock=clock)
    return node


def checks(answer: dict[str, Any], key: str = "wrong") -> list[str]:
    """The checks of what is wrong."""
    return [one["check"] for one in answer[key]]


def turns(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """What changed, as turn and check."""
    return [(one["turn"], one["wrong"]["check"]) for one in answer["changes"]]
