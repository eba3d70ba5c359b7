"""SELinux: whether it enforces, what its policy lets containers do with devices, and which accesses to GPUs it denied them.

Sources: security/selinux/selinuxfs.c (enforce; booleans/NAME holds the current and the pending value); containers/container-selinux
container.te (container_use_devices; container_use_xserver_devices since pull request 306), whose types GPUs' nodes get from the
system's policy (xserver_misc_device_t for /dev/nvidia.*); selinux_config(5).
"""

import re
from collections.abc import Mapping

from gpudoctor.facts.audit_messages import AuditMessages, Message
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Absent, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

ENFORCE, BOOLEANS, CONFIG = "/sys/fs/selinux/enforce", "/sys/fs/selinux/booleans", "/etc/selinux/config"
USE_DEVICES, USE_XSERVER = "container_use_devices", "container_use_xserver_devices"

_MODE = pattern(r"^[ \t]*SELINUX[ \t]*=[ \t]*(\w+)", re.MULTILINE)
_CONTAINER = pattern(r"(?:[^:]*:){2}(?:(?:container|svirt_lxc_net|nvidia_container)\w*_t|[\w-]+\.process)(?::|$)")
"""A context whose type is that of a container: user:role:type:level. Types that udica makes end in `.process` (udica, README)."""


class SELinux(Fact, frozen=True):
    """`enforcing` is None where the kernel runs without SELinux. `booleans` are those that are there; all else only where it confines.

    `switch` is the narrower of them, and the wider one where it could not be read which there are; None where the policy has neither.
    """

    enforcing: bool | None
    booleans: Mapping[str, bool]
    switch: str | None = None
    denials: tuple[Message, ...] = ()
    audit: AuditMessages | Unread | None = None

    @property
    def allowed(self) -> str | None:
        """The boolean that lets containers use GPUs, None where none is on."""
        return next((name for name, on in self.booleans.items() if on), None)

    @property
    def denied(self) -> tuple[Message, ...]:
        """The denials that were in earnest: not those of a permissive domain (avc.c, permissive=1)."""
        return tuple(one for one in self.denials if one.get("permissive") != "1")

    @classmethod
    def gather(cls, desk: Desk) -> "SELinux | Unread":
        """One small file, where SELinux is not in the kernel; three where it is, and the audit's messages."""
        file = desk.raw.read(ENFORCE)
        if isinstance(file, Unread):
            return _configured(desk, file)
        if isinstance(file, Absent):
            return cls(enforcing=None, booleans={}, read_from={"enforce": file.evidence})
        enforcing = file.text.strip() == "1"
        read_from = {"enforce": Evidence(file.where, file.text.strip())}
        booleans: dict[str, bool] = {}
        unsure = False
        for name in (USE_XSERVER, USE_DEVICES):
            value = desk.raw.read(f"{BOOLEANS}/{name}")
            if isinstance(value, TextFile):
                booleans[name] = value.text.split()[:1] == ["1"]
                read_from[name] = Evidence(value.where, value.text.strip())
            unsure = unsure or isinstance(value, Unread)
        audit = desk.get(AuditMessages)
        messages = audit.messages if isinstance(audit, AuditMessages) else ()
        return cls(
            enforcing=enforcing,
            booleans=booleans,
            switch=next(iter(booleans), USE_DEVICES if unsure else None),
            denials=tuple(one for one in messages if one.about_gpu and _CONTAINER.match(one.get("scontext"))),
            audit=audit,
            read_from=read_from,
        )


def _configured(desk: Desk, unread: Unread) -> "SELinux | Unread":
    """Where only files are kept: what the next boot would do, which says of this one no more than how it was meant."""
    if unread.why is not Why.NOT_RECORDED:
        return unread
    file = desk.raw.read(CONFIG)
    told = _MODE.search(file.text) if isinstance(file, TextFile) else None
    if told is None:
        return unread
    detail = f"was not recorded; {CONFIG} says SELINUX={told[1]}, and whether anything is denied does not show"
    return Unread(Why.NOT_RECORDED, unread.where, detail)
