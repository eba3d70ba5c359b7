"""AppArmor: whether it is on, and which accesses to GPUs, or user namespaces, it denied to containers and their engines.

Sources: security/apparmor/lsm.c (module parameter enabled), security/apparmor/audit.c; moby profiles/apparmor (docker-default), containerd
contrib/apparmor and cri (cri-containerd.apparmor.d), containers/common pkg/apparmor (containers-default-VERSION), cri-o (crio-default),
nerdctl (nerdctl-default), snapd (snap.NAME.APP), lxc (lxc-container-default); AppArmor's wiki, unprivileged_userns_restriction
(userns_create, profile unprivileged_userns), and Ubuntu's kernel.apparmor_restrict_unprivileged_userns, on since 24.04.
"""

from gpudoctor.facts.audit_messages import AuditMessages, Message
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Absent, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

ENABLED = "/sys/module/apparmor/parameters/enabled"
RESTRICTS = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"

PROFILES = pattern(
    r"(?:docker-default|cri-containerd\.apparmor\.d|crio-default|nerdctl-default|containers-default-|lxc-container-default|"
    r"snap\.(?:docker|microk8s|k8s|lxd|kubelet)\.)"
)
"""How the names of profiles begin that engines give to containers, or that confine an engine as a whole: other snaps are programs."""
_ACCESS = ("open", "exec", "file_mmap", "file_perm", "file_inherit", "getattr")
_ENGINES = pattern(r"(?:rootlesskit|podman|buildah|apptainer|starter|singularity|enroot)")
_UNPRIVILEGED = "unprivileged_userns"


class AppArmor(Fact, frozen=True):
    """`denials` are about GPUs, whoever was denied; `namespaces` those that still keep an engine from a user namespace of use."""

    enabled: bool
    denials: tuple[Message, ...] = ()
    namespaces: tuple[Message, ...] = ()
    audit: AuditMessages | Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "AppArmor | Unread":
        """One small file, and the audit's messages where AppArmor is on."""
        file = desk.raw.read(ENABLED)
        if isinstance(file, Unread):
            return file
        if isinstance(file, Absent):
            return cls(enabled=False, read_from={"enabled": file.evidence})
        read_from = {"enabled": Evidence(file.where, file.text.strip())}
        if file.text.strip() != "Y":
            return cls(enabled=False, read_from=read_from)
        audit = desk.get(AuditMessages)
        denied = [one for one in _of(audit) if one.get("apparmor") == "DENIED"]
        namespaces = tuple(one for one in denied if _of_engine(one))
        return cls(
            enabled=True,
            denials=tuple(one for one in denied if one.about_gpu and one.get("operation") in _ACCESS),
            namespaces=() if namespaces and _lifted(desk) else namespaces,
            audit=audit,
            read_from=read_from,
        )


def _lifted(desk: Desk) -> bool:
    """Whether the restriction was taken away since; the log still tells of it."""
    switch = desk.raw.read(RESTRICTS)
    return isinstance(switch, TextFile) and switch.text.strip() == "0"


def _of(audit: AuditMessages | Unread) -> tuple[Message, ...]:
    return audit.messages if isinstance(audit, AuditMessages) else ()


def _of_engine(one: Message) -> bool:
    """A refusal to make a namespace, or one that is made under a profile without any capability."""
    refused = one.get("operation") == "userns_create"
    useless = one.get("operation") == "capable" and one.get("profile") == _UNPRIVILEGED
    return (refused or useless) and _ENGINES.match(one.get("comm")) is not None
