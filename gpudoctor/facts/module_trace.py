"""Traces of a module that did not load or did not take a GPU: kernel messages, blacklists, Secure Boot, failed builds."""

import re
from collections.abc import Sequence

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.modprobe import ModprobeConfig
from gpudoctor.facts.module_file import Dkms
from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
LOCKDOWN = "/sys/kernel/security/lockdown"
SIG_ENFORCE = "/sys/module/module/parameters/sig_enforce"
"""Documentation/admin-guide/module-signing.rst."""

LOADING = "NVRM: loading NVIDIA"
"""What the module says first (nv.c, nv_module_init)."""

# kernel/module/signing.c and security/lockdown: what the kernel says when it refuses a module. "module verification failed …
# tainting kernel" is not among them: with Secure Boot off it is a remark.
_SIGNATURE = pattern(
    r"Loading of (?:unsigned module|module with unavailable key|module with unsupported crypto) is rejected"
    r"|Lockdown: (?:modprobe|insmod|systemd-modules|kmod).{0,40}unsigned module loading is restricted"
    r"|module verification failed: .* rejecting|PKCS#7 signature not signed with a trusted key"
)
# kernel/module/main.c: check_modinfo and check_version.
_VERMAGIC = pattern(r"nvidia\S*: (?:version magic '.*' should be '|disagrees about version of symbol)")
# kernel-open/nvidia/nv-pci.c and nv.c.
_PROBE_NOT_CALLED = pattern(r"NVRM: The NVIDIA (?:GPU )?probe routine was not called|NVRM: GPU \S+ is already bound to")
_REASON = pattern(
    r"NVRM: (?!\[|Please|NVRM|The NVIDIA probe|None of|API mismatch|this kernel module has|make sure|components have)"
)
# drivers/base/dd.c, call_driver_probe: the first form until Linux 6.10, the second since.
_PROBE_FAILED = pattern(r"\S+: probe of \S+ failed|probe with driver \S+ failed")
_NVIDIA_FAILED = pattern(r"(?<!\S)nvidia: probe of|probe with driver nvidia failed")
_FOUND_NONE = pattern(r"NVRM: No NVIDIA (?:GPU|graphics adapter) found")
_ABOUT_PROBE = pattern(r"NVRM|nvidia", re.IGNORECASE)


class Refusal(Struct, frozen=True):
    """A driver's failed probe of a GPU: its reason, or that it failed, in one sentence; and the lines that say so."""

    words: str
    evidence: Cited


class ModuleTrace(Fact, frozen=True):
    """What there is, each empty when nothing was found; not being able to look leaves it empty too, so none of it can pass."""

    blocked: Cited
    signature_refused: Cited
    vermagic_refused: Cited
    probe_not_called: Cited
    secure_boot: Cited
    dkms_failure: Cited
    kernel: str
    log: KernelLog | None

    @classmethod
    def gather(cls, desk: Desk) -> "ModuleTrace | Unread":
        """Never unread itself: it only adds to what others know."""
        log, modprobe, dkms, host = desk.get(KernelLog), desk.get(ModprobeConfig), desk.get(Dkms), desk.get(Host)
        blocked = modprobe.blocked.get("nvidia") if isinstance(modprobe, ModprobeConfig) else None
        return cls(
            blocked=(blocked,) if blocked else (),
            signature_refused=_signature_refused(desk.raw, log),
            vermagic_refused=_last(log, _VERMAGIC, ("version magic", "disagrees about version")),
            probe_not_called=_last(log, _PROBE_NOT_CALLED, ("NVRM: ",)),
            secure_boot=_secure_boot(desk.raw),
            dkms_failure=dkms.cite("failure") if isinstance(dkms, Dkms) and dkms.failure else (),
            kernel=(host.kernel if isinstance(host, Host) else None) or "",
            log=log if isinstance(log, KernelLog) else None,
        )

    def refusal(self, address: str) -> Refusal | None:
        """The last failed probe of a GPU, by whichever driver; where it was nvidia's, with what NVRM said just before it."""
        if self.log is None:
            return None
        for words in (f"probe of {address} failed", f"{address}: probe with driver "):
            failed = tuple(self.log.lines(_PROBE_FAILED, words)[-1:])
            if not failed:
                continue
            reason: Cited = ()
            if _NVIDIA_FAILED.search(failed[0].shows):
                reason = (self.log.before(words, _REASON) or self.log.before(words, _own(address)))[:5]
            return Refusal(_sentence(reason or failed), reason + failed)
        return None

    def about(self, address: str) -> Cited:
        """The last messages about a GPU."""
        return () if self.log is None else tuple(self.log.lines(_ABOUT_PROBE, address)[-2:])

    @property
    def refused_all(self) -> bool:
        """The module unloaded itself because it could take no GPU, and was not loaded since (nv.c, nvidia_init_module)."""
        text = self.log.text if self.log else ""
        return text.rfind("NVRM: None of the NVIDIA devices were initialized") > text.rfind(LOADING)

    @property
    def found_none(self) -> Cited:
        """The module unloaded itself because it saw no GPU that it drives, and was not loaded since (nv.c, nvidia_init_module)."""
        return () if self.log is None else tuple(self.log.since(LOADING).lines(_FOUND_NONE, "NVRM: No NVIDIA")[-1:])


def _own(address: str) -> "re.Pattern[str]":
    """What the kernel prints before a message of the driver about a device."""
    return re.compile(rf"nvidia {re.escape(address)}: (?!probe with)")


def _sentence(lines: Sequence[Evidence]) -> str:
    """The first sentence of a message; NVRM begins each line of one with its name."""
    first, *rest = (line.shows for line in lines)
    whole = " ".join([first, *(line.removeprefix("NVRM:").strip() for line in rest)])
    end = re.search(r"[.!](?=\s|$)", whole)
    return whole[: end.end()] if end else whole


def _last(log: KernelLog | Unread, pattern: "re.Pattern[str]", anchors: tuple[str, ...]) -> Cited:
    if isinstance(log, Unread):
        return ()
    for anchor in anchors:
        if found := log.lines(pattern, anchor):
            return tuple(found[-1:])
    return ()


def _signature_refused(raw: Raw, log: KernelLog | Unread) -> Cited:
    """The kernel's last word on a module's signature: it names no module, so it is nvidia's only while nothing says otherwise.

    A kernel that was seen not to enforce signatures has refused none; nvidia that was loaded later was not the one refused.
    """
    anchors = ("rejected", "restricted", "trusted key")
    if isinstance(log, Unread) or not _last(log, _SIGNATURE, anchors):
        return ()
    enforces = _enforces(raw)
    if enforces is False:
        return ()
    return _last(log.since(LOADING), _SIGNATURE, anchors if enforces else anchors[:2])


def _enforces(raw: Raw) -> bool | None:
    """Whether the kernel demands signatures: by Secure Boot with lockdown, by lockdown alone, or by its own parameter; None if not seen."""
    lockdown, parameter = raw.read(LOCKDOWN), raw.read(SIG_ENFORCE)
    if isinstance(lockdown, TextFile) and "[none]" not in lockdown.text:
        return True
    if isinstance(parameter, TextFile):
        return parameter.text.strip() == "Y"
    return None


def _secure_boot(raw: Raw) -> Cited:
    """The variable's last byte is 1 when Secure Boot is on (UEFI Specification, Globally Defined Variables)."""
    seen = []
    variable = raw.read(SECURE_BOOT)
    if isinstance(variable, TextFile) and variable.text.rstrip("\n").endswith("\x01"):
        seen.append(Evidence(SECURE_BOOT, "last byte 01: Secure Boot is on"))
    lockdown = raw.read(LOCKDOWN)
    if isinstance(lockdown, TextFile) and "[none]" not in lockdown.text:
        seen.append(Evidence(LOCKDOWN, lockdown.text.strip()))
    return tuple(seen)
