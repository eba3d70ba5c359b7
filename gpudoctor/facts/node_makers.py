"""Who makes the device nodes on this node: looked for only where a node is missing, to say why it is."""

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.device_nodes import DRIVER_ROOT, CommonNodes, GpuNodes, Majors
from gpudoctor.facts.driver import DriverParameters, NvidiaModule
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Log, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

MODPROBE = "/usr/bin/nvidia-modprobe"
SETUID = 0o4000
RULES = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
"""In order of priority: a file hides one of the same name further down (udev(7))."""

UDEV_JOURNAL = "journal/systemd-udevd.service.log"
_MKNOD = pattern(r"\bmknod\b")
_FAILED = pattern(r"nvidia.*mknod.*fail|mknod.*nvidia.*fail")


class Helper(Citable, frozen=True):
    """The driver's helper: where it is (None when nowhere), and whether everybody may use it, because it is setuid root.

    `root` is the directory to enter before running it, empty for the host itself.
    """

    path: str | None
    setuid_root: bool
    root: str = ""


class NodeMakers(Fact, frozen=True):
    """What would make the nodes; of no interest, and not looked for, while none is missing.

    `parameters` are always known where the driver tells them: a wrong node can be there without one missing. `helper` is None where it was
    not looked for or not seen. `mknod_rules` are lines of udev rules that make nodes themselves, `failures` what udev said of them.
    """

    parameters: DriverParameters | None
    helper: Helper | None
    mknod_rules: tuple[Evidence, ...]
    failures: tuple[Evidence, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "NodeMakers | Unread":
        """The helper's mode, and the udev rules with nvidia in their name."""
        told = desk.get(DriverParameters)
        parameters = None if isinstance(told, Unread) else told
        if not _something_is_missing(desk):
            return cls(parameters=parameters, helper=None, mknod_rules=(), failures=())
        rules = _mknod_rules(desk.raw)
        failures = _failures(desk.raw) if rules else ()
        return cls(parameters=parameters, helper=_helper(desk.raw), mknod_rules=rules, failures=failures)


def _something_is_missing(desk: Desk) -> bool:
    """A node that the loaded drivers should have: without nvidia there is none to have, without nvidia-uvm none of its own."""
    module, gpus, common = desk.get(NvidiaModule), desk.get(GpuNodes), desk.get(CommonNodes)
    if isinstance(module, Unread) or not module.loaded:
        return False
    found = [] if isinstance(gpus, Unread) else list(gpus.by_address.values())
    if not isinstance(common, Unread):
        majors = desk.get(Majors)
        with_uvm = not isinstance(majors, Unread) and "nvidia-uvm" in majors.by_name
        found += [common.control, common.uvm] if with_uvm else [common.control]
    return any(isinstance(entry, Absent) for entry in found)


def _helper(raw: Raw) -> Helper | None:
    """On the host, else in the driver container."""
    entry, root = raw.entry(MODPROBE, follow=True), ""
    if isinstance(entry, Absent):
        contained = raw.entry(DRIVER_ROOT + MODPROBE, follow=True)
        if not isinstance(contained, Entry):
            return Helper(path=None, setuid_root=False, read_from={"path": entry.evidence})
        entry, root = contained, DRIVER_ROOT
    if isinstance(entry, Unread) or entry.type is not EntryType.FILE or entry.mode is None:
        return None
    setuid = bool(entry.mode & SETUID) and entry.uid in (0, None)
    shows = f"mode {entry.mode:04o}, {'setuid root' if setuid else 'not setuid root'}"
    return Helper(path=MODPROBE, setuid_root=setuid, root=root, read_from={"path": Evidence(entry.path, shows)})


def _mknod_rules(raw: Raw) -> tuple[Evidence, ...]:
    chosen: dict[str, str] = {}
    for directory in RULES:
        listing = raw.listing(directory)
        for name in listing.names if isinstance(listing, Listing) else ():
            if "nvidia" in name.lower() and name.endswith(".rules"):
                chosen.setdefault(name, f"{directory}/{name}")
    lines: list[Evidence] = []
    for path in chosen.values():
        file = raw.read(path)
        rules = [line.strip() for line in file.text.splitlines()] if isinstance(file, TextFile) else []
        lines += [Evidence(path, rule[:200]) for rule in rules if _MKNOD.search(rule) and not rule.startswith("#")]
    return tuple(lines[:2])


def _failures(raw: Raw) -> tuple[Evidence, ...]:
    log = raw.log(UDEV_JOURNAL)
    lines = log.text.splitlines() if isinstance(log, Log) else []
    where = log.where if isinstance(log, Log) else UDEV_JOURNAL
    return tuple(Evidence(where, line.strip()[:300]) for line in lines if _FAILED.search(line))[-2:]
