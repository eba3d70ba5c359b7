"""The release of the driver: that of the loaded module, else of the one that modprobe would load."""

import datetime

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import VERSION, NvidiaModule
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.verdicts import Unread, Why


class DriverRelease(Fact, frozen=True):
    """`release` is None where no nvidia module is loaded and none is there for the running kernel.

    `day` is the day of the report or recording, None where it is not known.
    """

    release: str | None
    loaded: bool
    day: datetime.date | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "DriverRelease | Unread":
        """Nothing is read but what others read."""
        module = desk.get(NvidiaModule)
        if isinstance(module, Unread):
            return module
        if module.loaded:
            if module.version is None:
                return module.mute or Unread(Why.UNREADABLE, VERSION, "the loaded driver tells no version")
            seen = {"release": module.read_from["version"]}
            return cls(release=module.version, loaded=True, day=desk.today, read_from=seen)
        file = desk.get(ModuleFile)
        if isinstance(file, Unread):
            return file
        if not file.exists:
            return cls(release=None, loaded=False, read_from={"release": file.read_from["exists"]})
        if not file.version:
            return Unread(Why.UNREADABLE, "modinfo nvidia", "tells no version of the module")
        return cls(release=file.version, loaded=False, day=desk.today, read_from={"release": file.read_from["version"]})

    @property
    def words(self) -> str:
        """`driver 580.95.05`, or `the installed driver 580.95.05` where it is not loaded."""
        return f"driver {self.release}" if self.loaded else f"the installed driver {self.release}"
