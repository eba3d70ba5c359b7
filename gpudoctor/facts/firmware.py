"""GSP firmware files of the loaded driver."""

from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Absent, Entry, EntryType, Raw, TextFile
from gpudoctor.knowledge.architectures import gsp_firmware
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

SEARCH_PATH = "/sys/module/firmware_class/parameters/path"
DIRECTORIES = ("/lib/firmware/updates", "/lib/firmware")
"""Where the kernel looks, after the path of its own parameter (Documentation/driver-api/firmware/fw_search_path.rst)."""

# gsp_log_*.bin decodes the firmware's log. The kernel unpacks .xz and .zst itself (drivers/base/firmware_loader/main.c).
_IMAGE = pattern(r"(gsp(?:_(?!log_)\w+)?\.bin)(?:\.xz|\.zst)?")

NAMED_BY_CHIP_SINCE = 535
"""Before this branch other chips had other files (nv-firmware.h of 525.53, 530.30.02 and 535.43.02), before 525 there was one gsp.bin."""


class GspFirmware(Fact, frozen=True):
    """The GSP images of the loaded version, by the names that the driver asks for; folders and empty files are none.

    `wanted` is the image that each GPU of the driver needs, by address, where that is known. `missing` is why there may be more
    images, None when that is certain; `nowhere` is where none was found, `spoilt` what bears an image's name and is none.
    """

    files: tuple[str, ...]
    wanted: Mapping[str, str]
    missing: Unread | None
    nowhere: Cited
    spoilt: Mapping[str, Evidence] = {}

    @property
    def complete(self) -> bool:
        """Whether the image of every GPU is there, as far as it is known which each needs."""
        return set(self.wanted.values()) <= set(self.files)

    @classmethod
    def gather(cls, desk: Desk) -> "GspFirmware | Unread":
        """List the version's folder on each search path."""
        module = desk.get(NvidiaModule)
        if isinstance(module, Unread):
            return module
        if module.version is None:
            return cls(files=(), wanted={}, missing=None, nowhere=())
        path = desk.raw.read(SEARCH_PATH)
        extra = (path.text.strip(),) if isinstance(path, TextFile) and path.text.strip() else ()
        places = (f"{directory}/nvidia/{module.version}" for directory in (*extra, *DIRECTORIES))
        folders = [_folder(desk.raw, place) for place in places]
        found = {name: evidence for folder in reversed(folders) for name, evidence in folder.images.items()}
        return cls(
            files=tuple(sorted(found)),
            wanted=_wanted(desk, module.version),
            missing=next((folder.missing for folder in folders if folder.missing), None),
            nowhere=tuple(evidence for folder in folders if not folder.images for evidence in folder.none),
            spoilt={
                name: evidence for folder in folders for name, evidence in folder.spoilt.items() if name not in found
            },
            read_from=found,
        )


class _Folder(Struct, frozen=True):
    """The images in a folder, what only bears their names, why there may be more, and what says that there is none."""

    images: Mapping[str, Evidence]
    spoilt: Mapping[str, Evidence]
    missing: Unread | None
    none: Cited


def _folder(raw: Raw, place: str) -> _Folder:
    listing = raw.listing(place)
    if isinstance(listing, Unread):
        return _Folder({}, {}, listing, (Evidence(place, listing.detail),))
    if isinstance(listing, Absent):
        return _Folder({}, {}, None, (listing.evidence,))
    missing = None if listing.complete else Unread(Why.NOT_RECORDED, place, "the listing is not complete")
    images: dict[str, Evidence] = {}
    spoilt: dict[str, Evidence] = {}
    for image in filter(None, map(_IMAGE.fullmatch, listing.names)):
        path = f"{place}/{image[0]}"
        entry = raw.entry(path, follow=True)
        if isinstance(entry, Unread) and entry.why is not Why.NOT_RECORDED:
            missing = entry
        elif isinstance(entry, Entry) and entry.type is not EntryType.FILE:
            spoilt[image[1]] = Evidence(path, f"is a {entry.type.words}")
        elif isinstance(entry, Entry) and entry.size == 0:
            spoilt[image[1]] = Evidence(path, "is empty")
        elif not isinstance(entry, Absent):
            images[image[1]] = Evidence(path, "exists")
    return _Folder(images, spoilt, missing, tuple(spoilt.values()) or (Evidence(place, "no gsp*.bin there"),))


def _wanted(desk: Desk, version: str) -> dict[str, str]:
    """Of the GPUs that the driver holds, where their architecture is known and the driver names its files by it."""
    gpus = desk.get(PciGpus)
    if isinstance(gpus, Unread) or int(version.partition(".")[0]) < NAMED_BY_CHIP_SINCE:
        return {}
    names = {gpu.address: gsp_firmware(gpu.device_id) for gpu in gpus if gpu.driver == "nvidia"}
    return {address: name for address, name in names.items() if name is not None}
