"""Units of systemd that are to start an MPS daemon at boot.

No package of NVIDIA's brings one; sites write their own, which run `nvidia-cuda-mps-control -d` or `-f` (nvidia-cuda-mps-control(1)).
`systemctl enable` makes a link in the directory of the target that wants the unit (systemd.unit(5), "[Install] Section Options").
"""

from gpudoctor.facts.raw import Absent, Entry, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

WANTS = "/etc/systemd/system/multi-user.target.wants"
PROGRAM = "nvidia-cuda-mps-control"
_NAMED = pattern(r"(?:nvidia|cuda)[\w-]*mps[\w-]*(?:@[\w.-]+)?\.service")
"""What such a unit is called where its text is not kept."""


def wanted_units(raw: Raw) -> tuple[Evidence, ...] | Unread:
    """The links of enabled units that run the daemon; why that is not known where the directory exists and may not be listed."""
    listing = raw.listing(WANTS)
    if isinstance(listing, Absent) or (isinstance(listing, Unread) and listing.why is Why.NOT_RECORDED):
        return ()
    if isinstance(listing, Unread):
        return listing
    names = [name for name in listing.names if "mps" in name and name.endswith(".service")]
    return tuple(Evidence(f"{WANTS}/{name}", shows) for name in names if (shows := _starts(raw, name)))


def _starts(raw: Raw, name: str) -> str:
    """What shows that a unit starts the daemon, "" for one that does not: of another kind, masked, or gone."""
    own = raw.entry(f"/etc/systemd/system/{name}")
    if isinstance(own, Entry) and own.to == "/dev/null":
        return ""
    file = raw.read(f"{WANTS}/{name}")
    if isinstance(file, TextFile):
        line = next(
            (line.strip() for line in file.text.splitlines() if line.startswith("ExecStart=") and PROGRAM in line), ""
        )
        return f"enabled: {line}" if line else ""
    return "enabled" if isinstance(file, Unread) and _NAMED.fullmatch(name) else ""


def unit_names(found: tuple[Evidence, ...]) -> tuple[str, ...]:
    """The names of the units."""
    return tuple(one.where.rpartition("/")[2] for one in found)
