"""The nvidia module as it lies on disk for the running kernel, and what DKMS knows of it."""

import re
from collections.abc import Mapping

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Absent, CommandOutput, Listing, TextFile
from gpudoctor.verdicts import Evidence, Unread, Why

MODINFO = ("modinfo", "nvidia")
DKMS_STATUS = ("dkms", "status")
DKMS_TREE = "/var/lib/dkms/nvidia"
KERNELS = "/lib/modules"

# "nvidia/550.163.01, 5.15.0-139-generic, x86_64: installed"; before dkms 3 "nvidia, 550.163.01, 5.15.0-139-generic, x86_64: installed".
_BUILD = re.compile(r"^nvidia\S*?[/,]\s*([\d.]+), ([^,]+), ([^:,]+): (.+)$", re.MULTILINE)


class ModuleFile(Fact, frozen=True):
    """What modinfo says of the module that modprobe would load; `exists` is False when there is none for this kernel."""

    exists: bool
    filename: str
    version: str
    license: str
    vermagic: str
    signer: str

    @classmethod
    def gather(cls, desk: Desk) -> "ModuleFile | Unread":
        """Ask modinfo, which searches the running kernel's modules."""
        output = desk.raw.command(MODINFO)
        if isinstance(output, Absent):
            return Unread(Why.UNREADABLE, "modinfo", "is not installed", would_need="kmod")
        if isinstance(output, Unread):
            return output
        if output.exit != 0:
            said = (output.stderr or output.stdout).strip()
            if "not found" not in said:
                return Unread(Why.UNREADABLE, "modinfo nvidia", said or f"exit status {output.exit}")
            return cls(
                exists=False,
                filename="",
                version="",
                license="",
                vermagic="",
                signer="",
                read_from={"exists": Evidence("modinfo nvidia", said)},
            )
        fields = _fields(output)
        names = ("filename", "version", "license", "vermagic", "signer")
        seen = {name: Evidence("modinfo nvidia", f"{name}: {fields.get(name, 'none')}") for name in names}
        return cls(
            exists=True,
            **{name: fields.get(name, "") for name in names},
            read_from={"exists": seen["filename"], **seen},
        )


def _fields(output: CommandOutput) -> dict[str, str]:
    pairs = (line.partition(":") for line in output.stdout.splitlines())
    fields: dict[str, str] = {}
    for name, _, value in pairs:
        fields.setdefault(name.strip(), value.strip())
    return fields


class Dkms(Fact, frozen=True):
    """DKMS' builds of nvidia: state by kernel release, the kernels installed here, and the end of each failed build's log."""

    states: Mapping[str, str]
    kernels: tuple[str, ...]
    failure: str | None

    @classmethod
    def gather(cls, desk: Desk) -> "Dkms | Unread":
        """Ask `dkms status`; nothing there means that DKMS does not manage the driver."""
        output = desk.raw.command(DKMS_STATUS)
        if isinstance(output, Unread):
            return output
        text = output.stdout if isinstance(output, CommandOutput) else ""
        builds = _BUILD.findall(text)
        kernels = desk.raw.listing(KERNELS)
        failure, failure_evidence = _failure(desk, [version for version, *_ in builds]) if builds else (None, None)
        evidence = {"states": Evidence("dkms status", text.strip().replace("\n", "; ") or "nothing about nvidia")}
        if failure_evidence is not None:
            evidence["failure"] = failure_evidence
        return cls(
            states={kernel: state.strip() for _, kernel, _, state in builds},
            kernels=kernels.names if isinstance(kernels, Listing) else (),
            failure=failure,
            read_from=evidence,
        )


def _failure(desk: Desk, versions: list[str]) -> tuple[str | None, Evidence | None]:
    """The first compiler error in the log of a build that stopped; DKMS keeps a failed one in VERSION/build."""
    for version in dict.fromkeys(versions):
        path = f"{DKMS_TREE}/{version}/build/make.log"
        log = desk.raw.read(path)
        if isinstance(log, TextFile):
            error = next((line for line in log.text.splitlines() if re.search(r"\berror:|\bError \d+", line)), None)
            if error is not None:
                return error.strip(), Evidence(path, error.strip()[:300])
    return None, None
