"""nvidia-mig-manager, the service that makes MIG instances anew at each boot: what layout it is to make, and how its last run ended.

NVIDIA/mig-parted deployments/systemd: service.sh writes /etc/nvidia-mig-manager/config.yaml and applies the layout that
MIG_PARTED_SELECTED_CONFIG names in MIG_PARTED_CONFIG_FILE, both set by a drop-in of the unit; install.sh enables the unit for
multi-user.target. It is a oneshot: that it does not run says nothing. The layouts: api/spec/v1 there. Read 2026-11-30.
"""

from collections.abc import Mapping
from typing import Any

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.fabric_manager import is_enabled
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Absent, Entry, Listing, Log, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

UNIT = "nvidia-mig-manager.service"
FOLDER = "/etc/nvidia-mig-manager"
CONFIG = f"{FOLDER}/config.yaml"
DROP_INS = f"/etc/systemd/system/{UNIT}.d"
JOURNAL = f"journal/{UNIT}.log"
_UNITS = tuple(
    f"{folder}/{UNIT}" for folder in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
)
_SET = pattern(r"(MIG_PARTED_(?:SELECTED_CONFIG|CONFIG_FILE))=([^\s\"']{1,256})")
_LINE = pattern(r"^(\S{0,32}\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]+) \S+ [^:\[]+(?:\[\d+\])?: (.*)$")
_BEGINS = pattern(r"^Starting ")
_ENDED_WELL = pattern(r"^(?:Finished|Started) |Deactivated successfully|\.service: Succeeded")
_ENDED_BADLY = pattern(r"Failed with result|^Failed to start |Main process exited, .{0,200}status=[1-9]")
_GAVE_UP = pattern(r"Error applying MIG|Error issuing GPU reset|No nvidia module loaded|No config available")
"""service.sh's own words; where the unit has a dash before its command, and without a module, systemd calls such a run finished."""
_REASON = pattern(r"level=(?:fatal|error) (?!.{0,300}Assertion failure)|In use by another client")
MOST_REASONS = 3
MOST_INSTANCES = 1000
"""What asks for more of a GPU is no layout, and not written down."""


class MigManager(Fact, frozen=True):
    """`present` is whether the node has it, and why that is not known. Nothing else is looked at without it.

    `failed` is how its last run ended where that was badly, with its reasons; `run` is when that run began. `layouts` are those of its
    configuration by name, None where no file tells.
    """

    present: Reading[bool] = False
    enabled: Reading[bool] = False
    selected: str = ""
    config_at: str = CONFIG
    layouts: Mapping[str, Any] | None = None
    trouble: Unread | None = None
    failed: Cited = ()
    run: Evidence | None = None

    @property
    def subject(self) -> Subject:
        """The service."""
        return Subject(SubjectKind.SERVICE, "nvidia-mig-manager")

    @classmethod
    def gather(cls, desk: Desk) -> "MigManager | Unread":
        """One look at its folder, and only where a GPU can be divided."""
        nvml = desk.get(Nvml)
        if isinstance(nvml, Unread):
            return nvml
        if not any(isinstance(device.fields.get("mig.current"), bool) for device in nvml.devices):
            return cls()
        folder = desk.raw.entry(FOLDER)
        if not isinstance(folder, Entry):
            return cls(present=folder if isinstance(folder, Unread) else False)
        raw = desk.raw
        units = [raw.entry(path, follow=True) for path in _UNITS]
        if not any(isinstance(unit, Entry) for unit in units):
            # mig-parted alone, or a folder that a package left behind.
            refused = (unit for unit in units if isinstance(unit, Unread) and unit.why is not Why.NOT_RECORDED)
            return cls(present=next(refused, False))
        enabled, link = is_enabled(raw, UNIT)
        chosen, hidden = _chosen(raw)
        selected, evidence = chosen.get("MIG_PARTED_SELECTED_CONFIG", ("", Evidence(DROP_INS, "selects no layout")))
        config_at = chosen.get("MIG_PARTED_CONFIG_FILE", (CONFIG, evidence))[0]
        layouts, seen, trouble = _layouts(raw, config_at, selected)
        run, failed = _last_run(raw)
        return cls(
            present=True,
            enabled=enabled,
            selected=selected,
            config_at=config_at,
            layouts=layouts,
            trouble=trouble or hidden,
            failed=failed,
            run=run,
            read_from={"enabled": link, "selected": evidence, "layouts": seen},
        )

    def wanted(self, index: int | None, device_id: str) -> Mapping[str, int] | None:
        """How many instances of which profile the selected layout has for a GPU; None where it says nothing, {} where it wants none.

        `device-filter` names PCI devices as 0x20B210DE, device before vendor; `devices` is `all` or the indices of GPUs.
        """
        layout = self.layouts.get(self.selected) if self.layouts is not None else None
        for part in layout if isinstance(layout, list) else ():
            if isinstance(part, dict) and _is_meant(part, index, device_id):
                profiles = part.get("mig-devices")
                divided = part.get("mig-enabled") is True and isinstance(profiles, dict)
                return {str(name): count for name, count in profiles.items() if count} if divided and profiles else {}
        return None


def _is_meant(part: Mapping[str, Any], index: int | None, device_id: str) -> bool:
    filters, devices = part.get("device-filter"), part.get("devices", "all")
    named = [filters] if isinstance(filters, str) else filters if isinstance(filters, list) else []
    if named and f"{device_id}10de".lower() not in [name.lower() for name in named if isinstance(name, str)]:
        return False
    return devices == "all" or (isinstance(devices, list) and index is not None and index in devices)


def _chosen(raw: Raw) -> tuple[dict[str, tuple[str, Evidence]], Unread | None]:
    """The two variables as drop-ins set them, the last counts (systemd.unit(5)); and why they may be set otherwise."""
    listing = raw.listing(DROP_INS)
    hidden = listing if isinstance(listing, Unread) and listing.why is not Why.NOT_RECORDED else None
    names = listing.names if isinstance(listing, Listing) else ("override.conf",)
    found: dict[str, tuple[str, Evidence]] = {}
    for name in (name for name in names if name.endswith(".conf")):
        file = raw.read(f"{DROP_INS}/{name}")
        hidden = file if isinstance(file, Unread) else hidden
        for line in file.text.splitlines() if isinstance(file, TextFile) else ():
            if not line.lstrip().startswith(("#", ";")) and (told := _SET.search(line)) is not None:
                found[told[1]] = told[2], Evidence(f"{DROP_INS}/{name}", f"{told[1]}={told[2]}")
    return found, hidden


def _layouts(raw: Raw, path: str, selected: str) -> tuple[Mapping[str, Any] | None, Evidence, Unread | None]:
    """What was read of the file, and why nothing was: only where a layout is selected.

    The usual file is written anew at each boot (service.sh); one that somebody else named must be there, and have layouts.
    """
    none: Mapping[str, Any] | None = None if path == CONFIG else {}
    if not selected:
        return None, Evidence(path, "was not read"), None
    from gpudoctor.facts.config_text import parse_yaml

    file = raw.read(path)
    if isinstance(file, Absent):
        return none, file.evidence, None
    document = parse_yaml(file) if isinstance(file, TextFile) else file
    if isinstance(document, Unread):
        return None, Evidence(path, document.detail), document
    layouts = document.get("mig-configs") if isinstance(document, dict) else None
    if not isinstance(layouts, dict):
        return none, Evidence(path, "has no table mig-configs"), None
    layouts = {str(name): part for name, part in layouts.items()}
    part = layouts.get(selected)
    return layouts, Evidence(path, f"{selected}: {_short(part)}" if part is not None else f"has no {selected}"), None


def _short(layout: object) -> str:
    wanted = [part.get("mig-devices") for part in layout if isinstance(part, dict)] if isinstance(layout, list) else []
    pairs = [pair for one in wanted if isinstance(one, dict) for pair in one.items()]
    named = [f"{count} {name}" for name, count in pairs if isinstance(count, int) and count < MOST_INSTANCES]
    return ", ".join(dict.fromkeys(named)) or "no instances"


def _last_run(raw: Raw) -> tuple[Evidence | None, Cited]:
    """When it ran last, and what went wrong if it did: systemd's word first, then its own."""
    log = raw.log(JOURNAL)
    if not isinstance(log, Log):
        return None, ()
    lines = [found for found in map(_LINE.match, log.text.splitlines()) if found is not None]
    begins = [number for number, line in enumerate(lines) if _BEGINS.search(line[2])]
    last = lines[begins[-1] :] if begins else lines
    run = Evidence(log.where, last[0][2], at=last[0][1]) if last else None
    ends = [line for line in last if _ENDED_WELL.search(line[2]) or _ENDED_BADLY.search(line[2])]
    gave_up = [line for line in last if _GAVE_UP.search(line[2])]
    badly = ends[-1:] if ends and _ENDED_BADLY.search(ends[-1][2]) else []
    if not gave_up and not badly:
        return run, ()
    told = [line for line in last if _REASON.search(line[2])][-MOST_REASONS:]
    kept = dict.fromkeys((line[1], line[2].strip()) for line in (*told, *gave_up[:1], *badly))
    return run, tuple(Evidence(log.where, said[:300], at=at) for at, said in kept)
