"""From where the node is seen: by which user, and from the host or from within a container."""

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_files import DevDirectory
from gpudoctor.verdicts import Cited, Evidence, Unread


class Viewpoint(Fact, frozen=True):
    """`uid` is None where a recording does not tell it; `in_container` where /dev does not tell it."""

    uid: int | None
    in_container: Reading[bool]

    @classmethod
    def gather(cls, desk: Desk) -> "Viewpoint | Unread":
        """Never unread itself."""
        dev = desk.get(DevDirectory)
        own = dev if isinstance(dev, Unread) else dev.own
        return cls(uid=desk.raw.uid, in_container=own if isinstance(own, Unread) else not own)

    @property
    def contained(self) -> bool:
        """Whether this is known to be a container."""
        return self.in_container is True

    @property
    def evidence(self) -> Cited:
        """How a container is told."""
        return (Evidence("/dev/kmsg", "is not the kernel's: this is a container"),) if self.contained else ()
