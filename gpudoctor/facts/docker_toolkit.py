"""The NVIDIA Container Toolkit as dockerd sees it: its hook on the PATH, and whether it was there when the daemon started.

`docker run --gpus` works if dockerd found nvidia-container-runtime-hook on its PATH when it started, whatever daemon.json says (moby,
daemon/nvidia_linux.go, init; devices_nvidia_linux.go since v29). Since v29.2.0 nvidia-cdi-hook does as well, by CDI (86f122af27).
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.daemons import Daemon, changed
from gpudoctor.facts.programs import Located, any_of, locate
from gpudoctor.facts.raw import Entry, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

HOOK, RUNTIME = "nvidia-container-runtime-hook", "nvidia-container-runtime"
CONTROLS = ("/usr/bin/nvidia-ctk", "/usr/bin/nvidia-cdi-hook")
"""Programs of nvidia-container-toolkit-base, which has no hook."""
PACKAGE_LISTS = (
    "/var/lib/dpkg/info/nvidia-container-toolkit.list",
    "/var/lib/dpkg/info/nvidia-container-runtime-hook.list",
)
"""dpkg writes them anew when it unpacks a package (dpkg(1), FILES); the programs themselves keep the times of the package's build."""
BASE_LIST = "/var/lib/dpkg/info/nvidia-container-toolkit-base.list"
"""Of the package with nvidia-cdi-hook."""
CDI_HOOK = "/usr/bin/nvidia-cdi-hook"
DPKG_LOG = "/var/log/dpkg.log"
_LINE = pattern(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (install|upgrade|remove|purge) nvidia-container-(?:toolkit|runtime-hook)[: ].*$",
    re.MULTILINE,
)
_BEGINS = pattern(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_ZONE, _FARTHEST, _UNPACKING = 900, 15 * 3600, 300
"""Time zones differ from UTC by quarters of an hour, up to fourteen hours; a package is unpacked within minutes of the line."""


class Toolkit(Struct, frozen=True):
    """What of the toolkit is there. `late` is whether the hook came after the daemon started, None where nothing tells; `when` cites."""

    hook: Located
    runtime: Located
    control: Located | None
    late: bool | Unread | None = None
    when: Cited = ()

    @property
    def installed(self) -> bool | Unread:
        """Whether any of it is there."""
        parts = [part for part in (self.hook, self.runtime, self.control) if part is not None]
        if any(part.found for part in parts):
            return True
        return next((part.path for part in parts if isinstance(part.path, Unread)), False)

    @property
    def evidence(self) -> Cited:
        """What was seen of it."""
        parts = [part for part in (self.hook, self.runtime, self.control) if part is not None]
        found = [part.evidence[0] for part in parts if part.found]
        return tuple(found) or tuple(one for part in parts for one in part.evidence[:2])


def look_for_toolkit(raw: Raw, daemon: Daemon | None) -> Toolkit:
    """Look where a service would find it."""
    hook, runtime = locate(raw, HOOK), locate(raw, RUNTIME)
    control = None if hook.found or runtime.found else any_of(raw, CONTROLS)
    if daemon is None or not isinstance(hook.path, str):
        return Toolkit(hook, runtime, control)
    late, when = _came_late(raw, daemon, hook.path)
    return Toolkit(hook, runtime, control, late, when)


def _came_late(raw: Raw, daemon: Daemon, hook: str) -> tuple[bool | Unread | None, Cited]:
    """By dpkg's list of the package; else by the hook's folder, in which nothing was made or replaced since its own time."""
    lists = [raw.entry(path) for path in PACKAGE_LISTS]
    written = next((entry for entry in lists if isinstance(entry, Entry)), None)
    if written is not None:
        older = daemon.older_than(written)
        if not older:
            return older, (changed(written),)
        return _by_log(raw, daemon, written, (changed(written),))
    folder = raw.entry(hook.rpartition("/")[0] or "/", follow=True)
    if isinstance(folder, Entry) and daemon.older_than(folder) is False and folder.mtime is not None:
        return False, (changed(folder),)
    return None, ()


def with_cdi_hook(raw: Raw, daemon: Daemon, toolkit: Toolkit) -> Toolkit:
    """With CDI first for --gpus, a hook that came late is not missed if nvidia-cdi-hook was there when dockerd started."""
    if toolkit.late is not True or not locate(raw, CDI_HOOK).found:
        return toolkit
    base = raw.entry(BASE_LIST)
    if not isinstance(base, Entry) or daemon.older_than(base) is not False:
        return toolkit
    return replace(toolkit, late=False, when=(changed(base),))


def _by_log(raw: Raw, daemon: Daemon, written: Entry, when: Cited) -> tuple[bool | Unread, Cited]:
    """An upgrade writes the list as well, and then the hook was there before: dpkg's log tells one from the other, where there is one.

    What was done first after dockerd started tells what there was when it did. The log has local times; the last unpacking, which wrote
    the list, tells how far they are from UTC. A log that was rotated since does not tell of it.
    """
    log = raw.read(DPKG_LOG)
    if isinstance(log, Unread) and log.why is not Why.NOT_RECORDED:
        return log, when
    if not isinstance(log, TextFile):
        return True, when
    silent = (
        Unread(
            Why.NOT_RECORDED, log.where, "does not tell whether the toolkit was new or upgraded after dockerd started"
        ),
        when,
    )
    found = [(_seconds(line[1]), line[2], line[0]) for line in _LINE.finditer(log.text)]
    unpacked = next((at for at, verb, _ in reversed(found) if verb in ("install", "upgrade")), None)
    if unpacked is None or written.mtime is None or daemon.started_at is None:
        return silent
    ahead = round((unpacked - written.mtime) / _ZONE) * _ZONE
    if abs(ahead) > _FARTHEST or abs(unpacked - ahead - written.mtime) > _UNPACKING:
        return silent
    started = daemon.started_at + ahead
    first = next(((verb, line) for at, verb, line in found if at > started), None)
    begins = _BEGINS.match(log.text)
    if first is None or (first[0] != "install" and (begins is None or _seconds(begins[0]) > started)):
        return silent
    return first[0] == "install", (*when, Evidence(log.where, first[1][:300]))


def _seconds(stamp: str) -> float:
    """A time of the log as if it were UTC."""
    import datetime

    return datetime.datetime.fromisoformat(f"{stamp}+00:00").timestamp()
