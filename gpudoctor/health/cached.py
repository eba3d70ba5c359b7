"""The answer of the last pass, in a file that is read within a millisecond, without the database and without a lock."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpudoctor import __version__
from gpudoctor.health.answer import (
    EXIT_CODES,
    SCHEMA,
    Change,
    Earlier,
    Health,
    LinkState,
    Memory,
    Stale,
    State,
    Turn,
    Wrong,
)
from gpudoctor.knowledge import TABLES_DATE
from gpudoctor.report import Node, Overall, Tool
from gpudoctor.verdicts import NODE, Action, Evidence, Remedy, Status

SHORTEST_STALE = 600.0
INTERVALS = 3.0
LARGEST = 8 * 1024 * 1024
NOT_ENDED = "doctor.earlier-run-ended"
LINK = "driver-cuda"
"""What a run hangs in, where it does, is almost always the driver."""
_REMEDIES = (
    Remedy(
        Action.NONE,
        "look at what the run waits for; nothing of it can be ended from outside while it sleeps uninterruptibly",
        run=("gpudoctor run --link driver-cuda -v",),
        confirm="the next pass says that the earlier run has ended",
    ),
    Remedy(
        Action.REBOOT,
        "reboot the node when the driver stays hung",
        run=("systemctl reboot",),
        interrupts="everything on the node",
        confirm="gpudoctor health --all",
    ),
)


class Kept(Struct, frozen=True):
    """An answer with what tells its age: the boot and the seconds in it, which no step of the node's clock changes."""

    answer: Health
    boot_id: str
    boottime: float | None
    at: float
    stale_after: float


def stale_after(setting: float | None, interval: float) -> float:
    """After how many seconds an answer is none any more: three intervals between passes, and not before ten minutes."""
    return setting if setting is not None else max(SHORTEST_STALE, INTERVALS * interval)


def put_by(path: Path, kept: Kept, *, suffix: str = ".new") -> None:
    """Write it, whole or not at all, readable by all. Raises OSError."""
    beside = path.with_name(path.name + suffix)
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(handle, "wb") as file:
            file.write(msgspec.json.encode(kept))
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def read(path: Path) -> Kept | str:
    """What is kept, or why there is nothing."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(LARGEST), type=Kept)
    except FileNotFoundError:
        return f"no pass has left an answer yet in {path.parent}"
    except OSError as error:
        return f"the last answer cannot be read: {path}: {error.strerror or error}"
    except msgspec.MsgspecError as error:
        return f"the last answer cannot be read: {path}: {error}"


def aged(kept: Kept | str, boot_id: str, boottime: float | None, at: float) -> Health:
    """A kept answer as it is to be given now: unknown where there is none, or where it is too old or of another boot."""
    if isinstance(kept, str):
        return replace(nobody_knows(), stale=Stale(0.0, kept))
    seconds = at - kept.at
    if boottime is not None and kept.boottime is not None and boot_id == kept.boot_id:
        seconds = boottime - kept.boottime
    seconds = round(max(0.0, seconds), 1)
    why = ""
    if boot_id and kept.boot_id and boot_id != kept.boot_id:
        why = f"the last pass, of {kept.answer.at}, was before the reboot"
    elif seconds > kept.stale_after:
        why = f"the last pass, of {kept.answer.at}, is {seconds / 60:.0f} minutes old"
    answer = replace(kept.answer, changes=(), stale=Stale(seconds, why))
    if not why:
        return answer
    links = _nobody_knows(answer.links)
    return replace(answer, verdict=Overall.UNKNOWN, exit_code=EXIT_CODES[Overall.UNKNOWN], links=links)


def nobody_knows() -> Health:
    """The answer where no pass has given one."""
    return Health(
        schema=SCHEMA,
        tool=Tool("gpudoctor", __version__, TABLES_DATE, ""),
        node=Node(None, "live", None, None, None, None, None, None, ()),
        at="",
        seconds=0.0,
        number=0,
        verdict=Overall.UNKNOWN,
        exit_code=EXIT_CODES[Overall.UNKNOWN],
        seen=Overall.UNKNOWN,
        nvml="not asked",
        memory=Memory(kept=False, place=""),
    )


def outlived(kept: Kept, at: float) -> str:
    """Why an answer that was put by again and again beside a run that hangs is none any more, "" while it is one."""
    import datetime

    looked = (
        datetime.datetime.fromisoformat(kept.answer.at.replace("Z", "+00:00")).timestamp() if kept.answer.at else 0.0
    )
    return f"the last pass, of {kept.answer.at}, is too old" if at - looked > kept.stale_after else ""


def hung(answer: Health, earlier: Earlier, *, first: bool, times: int, now: str, old: str = "") -> Health:
    """The last answer, and beside it that the run hangs which should give the next one; it is told as new the `first` time.

    With `old` words on why nothing else in it is of today.
    """
    where = f"/proc/{earlier.pid}/stack"
    shows = f"PID {earlier.pid} in state {earlier.state or 'unknown'}: {'; '.join(earlier.stack.splitlines()) or 'no kernel stack'}"
    wrong = Wrong(
        check=NOT_ENDED,
        link=LINK,
        status=Status.FAIL,
        state=State.LASTING,
        summary=f"a pass that began at {earlier.since} has not ended: it {earlier.hangs}",
        subjects=(NODE,),
        findings=(f"{NOT_ENDED}@{NODE.id}",),
        since=earlier.since,
        last=now,
        times=times,
        evidence=(Evidence(where, shows),),
        remedies=_REMEDIES,
    )
    old = (answer.stale.why if answer.stale is not None else "") or old
    others = tuple(
        replace(one, state=State.UNSEEN, why=old) if old else one for one in answer.wrong if one.check != NOT_ENDED
    )
    return replace(
        answer,
        verdict=Overall.FAIL,
        exit_code=EXIT_CODES[Overall.FAIL],
        wrong=(wrong, *others),
        changes=(Change(Turn.NEW, wrong),) if first else (),
        links=tuple(_links(_nobody_knows(answer.links) if old else answer.links, wrong)),
        earlier=earlier,
        stale=None,
    )


def _nobody_knows(links: Sequence[LinkState]) -> tuple[LinkState, ...]:
    return tuple(one if one.verdict is None else replace(one, verdict=Overall.UNKNOWN) for one in links)


def _links(links: Sequence[LinkState], wrong: Wrong) -> list[LinkState]:
    state = LinkState(LINK, Overall.FAIL, f"{wrong.check}: {wrong.summary}")
    return [state if one.link == LINK else one for one in links] or [state]
