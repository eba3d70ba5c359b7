"""What systemd would apply anew to the cgroup of a container: the device settings of the unit that it made for it.

At a daemon-reload systemd applies the settings of each unit again, and knows nothing of rules that others added to its cgroup. With
DevicePolicy=strict or closed, or any DeviceAllow= at all, it lets through what those lines list (systemd.resource-control(5);
cgroup_apply_devices and cgroup_context_has_device_policy in src/core/cgroup.c, bpf_devices_cgroup_init in src/core/bpf-devices.c).
A line names a device by /dev/char/MAJOR:MINOR, of which only the numbers count since systemd 240, whether or not there is such a link
(device_path_parse_major_minor); by a node's path; or as char-NAME, a major or a name of /proc/devices, in which * stands for anything.

Seen with systemd 252 (Debian 12) on cgroup v1 and v2: runc 1.1.5 leaves out of the list what has no link in /dev/char (1.1.3 to 1.1.6 do,
opencontainers/runc#3504 and #3845), and the container loses the device; with links, and with runc 1.2.6 without any, it is listed and
stays. What was added behind runc is never listed and is lost. crun 1.8.1 sets no policy, a privileged container DevicePolicy=auto:
both keep all. Neither NeedDaemonReload nor a program called sd_devices foretells anything: containers that keep theirs have them too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from msgspec import Struct

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.device_access import LETTERS, Access, DeviceAccess
from gpudoctor.facts.device_nodes import Majors
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, Listing, Raw, TextFile
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_devices import Devices
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

TRANSIENT = "/run/systemd/transient"
"""Where systemd writes down the units that programs ask for over D-Bus, scopes among them (systemd.unit(5), Unit File Load Path)."""

FOLDERS = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    TRANSIENT,
    "/etc/systemd/system",
    "/run/systemd/system",
)
"""Where drop-ins for a scope may lie, in the order of precedence: of `systemctl set-property`, of programs, of administrators."""
SETTINGS = ("50-DeviceAllow.conf", "50-DevicePolicy.conf")
"""The drop-ins in which systemd writes down what programs set (unit_write_setting in src/core/unit.c)."""

_SETTING = pattern(r"^[ \t]*(DevicePolicy|DeviceAllow)[ \t]*=(.*)$", re.MULTILINE)
_NUMBERS = pattern(r"/dev/char/(\d{1,10}):(\d{1,10})")
_NVIDIA_NODE = "/dev/nvidia"
_USERS = pattern(r"/user@\d+\.service/")
MOST_UNITS = 200
"""As many units as `systemctl show` is asked for."""


class DevicePolicy(str, Enum):
    """DevicePolicy= of systemd.resource-control(5)."""

    AUTO = "auto"
    CLOSED = "closed"
    STRICT = "strict"


class AllowLine(Struct, frozen=True):
    """One DeviceAllow=; `numbers` where it names one device whose numbers are known, `pattern` where it names majors."""

    text: str
    access: Access
    numbers: tuple[int, int] | None = None
    pattern: str = ""


class DeviceUnit(Citable, frozen=True):
    """The device settings of one unit. `lines` count from the last empty DeviceAllow= on."""

    unit: str
    policy: DevicePolicy
    lines: tuple[AllowLine, ...]
    majors: Mapping[str, int] | Unread

    @property
    def restricts(self) -> bool:
        """Whether it lets through only what it lists."""
        return self.policy is not DevicePolicy.AUTO or bool(self.lines)

    def keeps(self, asked: DeviceAccess) -> bool | Unread:
        """Whether a device may be accessed once systemd has applied the settings. One line must allow all that is asked for."""
        if not self.restricts:
            return True
        unread: Unread | None = None
        for line in self.lines:
            found = self._matches(line, asked) if asked.access in line.access else False
            if found is True:
                return True
            unread = found if isinstance(found, Unread) else unread
        return False if unread is None else unread

    def _matches(self, line: AllowLine, asked: DeviceAccess) -> bool | Unread:
        if line.numbers is not None:
            return line.numbers == (asked.major, asked.minor)
        if not line.pattern:
            return False
        if line.pattern == "*" or line.pattern == str(asked.major):
            return True
        if line.pattern.isdecimal():
            return False
        if isinstance(self.majors, Unread):
            return self.majors
        from fnmatch import fnmatchcase

        return any(number == asked.major and fnmatchcase(name, line.pattern) for name, number in self.majors.items())


class UnitDevices(Fact, frozen=True):
    """The settings of the units around the members of GpuWorkloads that have nodes, by key; None where no unit of the node's is."""

    by_key: Mapping[str, DeviceUnit | Unread | None]

    @classmethod
    def gather(cls, desk: Desk) -> "UnitDevices | Unread":
        """Two small files for each unit, as runc and crun have systemd write them; of services what systemd itself says."""
        concerned = desk.get(GpuWorkloads)
        if isinstance(concerned, Unread):
            return concerned
        units = {one.workload.key: managed_unit(one.workload) for one in concerned if _has_nodes(one)}
        wanted = dict.fromkeys(unit for unit in units.values() if unit is not None)
        if not wanted:
            return cls(by_key=dict.fromkeys(units))
        reader = _Reader(desk)
        known: dict[str, DeviceUnit | Unread] = {unit: reader.scope(unit) for unit in wanted if _is_scope(unit)}
        known |= reader.services([unit for unit in wanted if not _is_scope(unit)])
        return cls(by_key={key: None if unit is None else known[unit] for key, unit in units.items()})


def _has_nodes(one: GpuWorkload) -> bool:
    return isinstance(one.devices, Devices) and bool(one.devices.nodes)


def _is_scope(unit: str) -> bool:
    return unit.endswith(".scope")


def managed_unit(one: Workload) -> str | None:
    """The unit of the node's own systemd. A user's systemd may set no device rules (bpf_devices_supported: not without root)."""
    groups = (one.groups.devices, one.groups.unified)
    of_user = any(_USERS.search(group) for group in groups if group is not None)
    return one.unit if one.unit and not of_user else None


class _Reader:
    """Reads units of one node."""

    def __init__(self, desk: Desk) -> None:
        self._raw: Raw = desk.raw
        majors = desk.get(Majors)
        self._majors = majors if isinstance(majors, Unread) else majors.by_name
        self._nodes: dict[str, tuple[int, int] | None] = {}
        self._folders: list[tuple[str, frozenset[str]]] | None = None

    def scope(self, unit: str) -> DeviceUnit | Unread:
        """A scope has no file of an administrator's (systemd.scope(5)): what was asked for over D-Bus, then drop-ins over it."""
        fragment = f"{TRANSIENT}/{unit}"
        said: list[TextFile] = []
        for path in (fragment, *self._drop_ins(unit)):
            file = self._raw.read(path)
            if isinstance(file, Unread):
                return file
            if isinstance(file, TextFile):
                said.append(file)
            elif path == fragment:
                return Unread(Why.UNREADABLE, path, "does not exist: systemd keeps no such unit here")
        settings = [(file.where, name, value.strip()) for file in said for name, value in _SETTING.findall(file.text)]
        return self._unit(unit, settings, Evidence(fragment, _NOTHING_SAID))

    def services(self, units: list[str]) -> Iterator[tuple[str, DeviceUnit | Unread]]:
        """Services have files in many places; systemd tells of all of them at once (org.freedesktop.systemd1(5))."""
        for start in range(0, len(units), MOST_UNITS):
            some = units[start : start + MOST_UNITS]
            argv = ("systemctl", "show", "--property=Id,DevicePolicy,DeviceAllow", *some)
            output = self._raw.command(argv)
            where = " ".join(argv[:3])
            for unit in some:
                if isinstance(output, CommandOutput):
                    yield unit, self._shown(unit, where, output.stdout)
                else:
                    missing = Unread(Why.UNREADABLE, "systemctl", "there is no such command")
                    yield unit, missing if isinstance(output, Absent) else output

    def _shown(self, unit: str, where: str, stdout: str) -> DeviceUnit | Unread:
        """Blocks of lines, one for each unit."""
        for block in stdout.split("\n\n"):
            lines = block.strip("\n").split("\n")
            if f"Id={unit}" in lines:
                settings = [(f"{where} {unit}", name, value.strip()) for name, value in _SETTING.findall(block)]
                return self._unit(unit, settings, Evidence(f"{where} {unit}", _NOTHING_SAID))
        return Unread(Why.UNREADABLE, f"{where} {unit}", "says nothing of it")

    def _unit(self, unit: str, settings: Iterable[tuple[str, str, str]], nothing: Evidence) -> DeviceUnit:
        policy, lines = DevicePolicy.AUTO, list[AllowLine]()
        cited: dict[str, Evidence] = {}
        for where, name, value in settings:
            if name == "DevicePolicy":
                policy = next((one for one in DevicePolicy if one.value == value), policy)
                cited["policy"] = Evidence(where, f"DevicePolicy={value}")
            elif not value:
                lines.clear()
            else:
                lines.append(self._line(value))
                cited["lines"] = Evidence(where, "")
        listed = ", ".join(line.text for line in lines) or "nothing"
        where = cited["lines"].where if lines else cited.get("policy", nothing).where
        return DeviceUnit(
            unit=unit,
            policy=policy,
            lines=tuple(lines),
            majors=self._majors,
            read_from={
                "policy": cited.get("policy", nothing),
                "lines": Evidence(where, f"DeviceAllow lists {listed}"),
            },
        )

    def _line(self, value: str) -> AllowLine:
        """`DEVICE [ACCESS]`; without letters all of r, w and m (config_parse_device_allow in src/core/load-fragment.c)."""
        device, letters, *_ = *value.strip('"').split(None, 1), "", ""
        access = Access(0)
        for letter in letters.strip() or "rwm":
            access |= LETTERS.get(letter, Access(0))
        if found := _NUMBERS.fullmatch(device):
            return AllowLine(value, access, numbers=(int(found[1]), int(found[2])))
        if device.startswith("char-"):
            return AllowLine(value, access, pattern=device.removeprefix("char-"))
        return AllowLine(value, access, numbers=self._numbers(device))

    def _numbers(self, path: str) -> tuple[int, int] | None:
        """Of a node by its path, which systemd looks up each time; only NVIDIA's are looked for."""
        if not path.startswith(_NVIDIA_NODE):
            return None
        if path not in self._nodes:
            entry = self._raw.entry(path, follow=True)
            major, minor = (entry.major, entry.minor) if isinstance(entry, Entry) else (None, None)
            self._nodes[path] = None if major is None or minor is None else (major, minor)
        return self._nodes[path]

    def _drop_ins(self, unit: str) -> list[str]:
        """Those for the unit, for units that begin like it up to a dash, and for all of its type, by name (systemd.unit(5))."""
        stem, _, kind = unit.rpartition(".")
        parts = stem.split("-")
        alike = [f"{'-'.join(parts[:length])}-.{kind}.d" for length in range(len(parts) - 1, 0, -1)]
        found = {name: f"{TRANSIENT}/{unit}.d/{name}" for name in SETTINGS}
        for folder, there in self._others():
            for name in (f"{unit}.d", *alike, f"{kind}.d"):
                listing = self._raw.listing(f"{folder}/{name}") if name in there else None
                for file in listing.names if isinstance(listing, Listing) else ():
                    over = FOLDERS.index(folder) < FOLDERS.index(TRANSIENT)
                    if file.endswith(".conf") and (over or file not in found):
                        found[file] = f"{folder}/{name}/{file}"
        return [found[name] for name in sorted(found)]

    def _others(self) -> list[tuple[str, frozenset[str]]]:
        """The other folders with the names in them, read once: on most nodes none is for scopes."""
        if self._folders is None:
            listings = ((folder, self._raw.listing(folder)) for folder in FOLDERS if folder != TRANSIENT)
            found = [(folder, listing) for folder, listing in listings if isinstance(listing, Listing)]
            self._folders = [(folder, frozenset(listing.names)) for folder, listing in found]
        return self._folders


_NOTHING_SAID = "sets no DevicePolicy: all devices are let through"
