"""GSP firmware files of the loaded driver."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.raw import Listing, TextFile
from gpudoctor.verdicts import Evidence, Unread, Why

SEARCH_PATH = "/sys/module/firmware_class/parameters/path"
DIRECTORIES = ("/lib/firmware/updates", "/lib/firmware")
"""Where the kernel looks, after the path of its own parameter (Documentation/driver-api/firmware/fw_search_path.rst)."""


class GspFirmware(Fact, frozen=True):
    """The gsp*.bin files of the loaded version; `missing` is why none was found, when that is not certain."""

    files: tuple[str, ...]
    missing: Unread | None

    @classmethod
    def gather(cls, desk: Desk) -> "GspFirmware | Unread":
        """List the version's folder on each search path."""
        module = desk.get(NvidiaModule)
        if isinstance(module, Unread):
            return module
        if module.version is None:
            return cls(files=(), missing=None, read_from={"files": Evidence("/lib/firmware/nvidia", "not looked at")})
        path = desk.raw.read(SEARCH_PATH)
        extra = (path.text.strip(),) if isinstance(path, TextFile) and path.text.strip() else ()
        places = [f"{directory}/nvidia/{module.version}" for directory in (*extra, *DIRECTORIES)]
        missing: Unread | None = None
        for place in places:
            listing = desk.raw.listing(place)
            if isinstance(listing, Unread):
                missing = listing
            elif isinstance(listing, Listing):
                files = tuple(name for name in listing.names if name.startswith("gsp"))
                if files:
                    return cls(files=files, missing=None, read_from={"files": Evidence(place, ", ".join(files))})
                if not listing.complete:
                    missing = Unread(Why.NOT_RECORDED, place, "the listing is not complete")
        nowhere = Evidence(", ".join(places), "no gsp*.bin there")
        return cls(files=(), missing=missing, read_from={"files": nowhere})
