"""GPUs that come and go while somebody watches: the kernel's words as they are told, and what is said where they cannot be heard."""

import asyncio
import errno
import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpudoctor.probes import hotplug
from gpudoctor.probes.hotplug import Unavailable, events, open_monitor, told
from gpudoctor.reports.tui.plugging import PlugWatch, in_words

GPU = {"PCI_ID": "10DE:2330", "PCI_CLASS": "30200", "PCI_SLOT_NAME": "0000:3A:00.0", "SUBSYSTEM": "pci"}
UEVENT = Path("/sys/class/mem/null/uevent")


class Happened:
    """An event as pyudev has it."""

    def __init__(self, action: str | None, **words: str) -> None:
        self.action = action
        self.properties: Mapping[str, str] = {**GPU, **words}


class Played:
    """A monitor that plays events and errors."""

    def __init__(self, *played: Happened | OSError | None) -> None:
        self.left = list(played)

    def poll(self, timeout: float | None = None) -> Happened | None:
        """The next."""
        one = self.left.pop(0)
        if isinstance(one, OSError):
            raise one
        return one


def play(*played: Happened | OSError | None) -> list[dict[str, object]]:
    """What is printed of these."""
    monitor = Played(*played)
    return list(events(monitor, lambda: bool(monitor.left)))


@pytest.mark.parametrize("action", ["add", "remove", "bind", "unbind"])
def test_a_gpu_that_comes_or_goes_is_told_with_its_address(action: str) -> None:
    [event] = play(None, Happened(action, DRIVER="nvidia"))
    assert event == {"kind": "event", "action": action, "address": "0000:3a:00.0", "device": "GPU", "driver": "nvidia"}


def test_an_nvswitch_is_told_as_one() -> None:
    assert (told(Happened("remove", PCI_CLASS="68000")) or {})["device"] == "NVSwitch"


@pytest.mark.parametrize(
    "happened",
    [
        Happened("change"),
        Happened(None),
        Happened("add", PCI_ID="8086:1234"),
        Happened("add", PCI_CLASS="40300"),  # a GPU's sound
        Happened("add", PCI_CLASS="C0330"),  # its USB
        Happened("add", SYNTH_UUID="0"),  # udevadm trigger, as at boot
        Happened("add", PCI_ID=""),
    ],
)
def test_what_is_no_gpu_that_comes_or_goes_is_silent(happened: Happened) -> None:
    assert play(happened) == []


def test_events_that_came_too_fast_are_told_as_lost_and_it_goes_on() -> None:
    found = play(OSError(errno.ENOBUFS, "No buffer space available"), Happened("add"))
    assert [one["kind"] for one in found] == ["lost", "event"]
    assert play(OSError(errno.EBADF, "Bad file descriptor"), Happened("add")) == [
        {"kind": "unavailable", "why": "listening failed: Bad file descriptor"}
    ]


def test_where_nothing_can_be_heard_it_says_so_once_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "uid_map").write_text("         0       1000          1\n")
    with pytest.raises(Unavailable, match="user namespace"):
        open_monitor(uid_map=str(tmp_path / "uid_map"))
    monkeypatch.setitem(sys.modules, "pyudev", None)
    with pytest.raises(Unavailable, match="libudev cannot be loaded"):
        open_monitor(uid_map=str(tmp_path / "nothing"))
    assert hotplug.main() == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "unavailable"


def test_it_ends_when_nobody_reads_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotplug, "open_monitor", lambda: Played(Happened("add"), Happened("add")))

    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    monkeypatch.setattr(os, "dup2", lambda *_: 1)
    assert hotplug.main() == 0
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    parents = iter([1, 2])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    assert hotplug.main() == 0, "its parent is another: the one that started it has gone"


def test_a_parent_that_goes_while_the_listener_starts_is_missed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = [42]

    def open_slowly() -> Played:
        parents[:] = [1]
        return Played()

    monkeypatch.setattr(hotplug, "open_monitor", open_slowly)
    monkeypatch.setattr(os, "getppid", lambda: parents[0])
    assert hotplug.main() == 0


def test_the_kernels_own_socket_is_heard() -> None:
    """With a harmless event of our own: a `change` of /dev/null, which changes nothing (Documentation/ABI/testing/sysfs-uevent)."""
    pytest.importorskip("pyudev")
    if not os.access(UEVENT, os.W_OK):
        pytest.skip(f"{UEVENT} cannot be written to: no event can be made")
    try:
        monitor = open_monitor("mem")
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        UEVENT.write_text("change")
    except OSError as error:
        pytest.skip(f"{UEVENT}: {error}")
    device = monitor.poll(5.0)
    assert device is not None and device.action == "change"
    assert device.properties["DEVNAME"] == "/dev/null" and "SYNTH_UUID" in device.properties
    assert told(device) is None


# In the TUI ------------------------------------------------------------------------------------------------------------


def listen(*lines: object, status: int = 0, rest: float = 0.0) -> tuple[list[tuple[str, bool]], PlugWatch]:
    """What is told of a listener that prints these lines, and ends."""
    script = f"import sys, time; print({chr(10).join(json.dumps(line) for line in lines)!r}, flush=True); "
    script += f"time.sleep({rest}); sys.exit({status})"
    heard: list[tuple[str, bool]] = []
    watch = PlugWatch(lambda words, event: heard.append((words, event)), (sys.executable, "-c", script))

    async def run() -> None:
        watch.start()
        for _ in range(200):
            await asyncio.sleep(0.02)
            if not watch.listening or (rest and len(heard) >= len(lines) - 1):
                break
        watch.stop()
        await asyncio.sleep(0.15)

    asyncio.run(run())
    return heard, watch


def test_events_are_told_in_words() -> None:
    gone = {"kind": "event", "action": "remove", "address": "0000:3a:00.0", "device": "GPU"}
    bound = {**gone, "action": "bind", "driver": "nvidia"}
    heard, watch = listen({"kind": "watching"}, gone, bound, {"kind": "lost"}, rest=60)
    assert heard == [
        ("GPU 0000:3a:00.0 has gone", True),
        ("GPU 0000:3a:00.0 was given a driver (driver nvidia)", True),
        ("devices came and went faster than could be told", True),
    ]
    assert not watch.listening
    assert (
        in_words({"action": "add", "address": "0000:3a:00.0", "device": "NVSwitch"})
        == "NVSwitch 0000:3a:00.0 was added"
    )


def test_that_nothing_can_be_noticed_is_said_once_and_not_tried_again() -> None:
    heard, watch = listen({"kind": "unavailable", "why": "in a user namespace"})
    assert heard == [("hot-plug cannot be noticed here: in a user namespace", False)]

    async def again() -> None:
        watch.start()
        assert not watch.listening

    asyncio.run(again())
    assert listen("nonsense", status=1)[0] == [("hot-plug cannot be noticed here: the listener ended with 1", False)]


def test_the_real_listener_starts_as_a_child_and_is_left_behind() -> None:
    heard: list[tuple[str, bool]] = []

    async def run() -> None:
        watch = PlugWatch(lambda words, event: heard.append((words, event)))
        watch.start()
        await asyncio.sleep(0.3)
        watch.stop()
        assert not watch.listening
        await asyncio.sleep(0.3)

    asyncio.run(run())
    assert all("cannot be noticed" in words for words, _ in heard)
