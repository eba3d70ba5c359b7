"""What throws light on NVML's failing: libraries, modules, log, tasks, holders, and from where all of it is seen."""

import re

from gpudoctor.facts.changes import DriverChanges
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_nodes import DRIVER_ROOT, CommonNodes, describe
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_library import NvmlLibraries
from gpudoctor.facts.persistence import PersistenceDaemon
from gpudoctor.facts.raw import Entry
from gpudoctor.facts.tasks import DriverHolders, Tasks
from gpudoctor.facts.viewpoint import Viewpoint
from gpudoctor.verdicts import Cited, Evidence, Unread

# "NVRM: _kgspRpcRecvPoll: … Timeout after 45s of waiting for RPC response from GPU0 GSP!", Xid 119 and 120 (open-gpu-kernel-modules,
# src/nvidia/src/kernel/gpu/gsp/kernel_gsp.c).
_GSP = re.compile(r"NVRM: .*(?:GSP|Xid \(PCI:\S+\): (?:119|120),)")
_API_MISMATCH = re.compile(r"NVRM: API mismatch: ")
# 43 and 45 are what a program sees of an earlier one (NVIDIA's Xid catalogue), 154 tells the recovery that it calls for.
_FOLLOWS = re.compile(r"Xid \(PCI:\S+\): (?:43|45),")
_RECOVERY = "GPU recovery action changed"


class NvmlSurroundings(Fact, frozen=True):
    """Gathered after NVML was asked: changes and holders are looked for only where its answer calls for them."""

    module: Reading[NvidiaModule]
    file: Reading[ModuleFile]
    libraries: Reading[NvmlLibraries]
    log: Reading[KernelLog]
    tasks: Reading[Tasks]
    holders: Reading[DriverHolders]
    changes: Reading[DriverChanges]
    daemon: Reading[PersistenceDaemon]
    control: Entry | None
    view: Viewpoint

    @classmethod
    def gather(cls, desk: Desk) -> "NvmlSurroundings | Unread":
        """Never unread itself."""
        desk.get(Nvml)
        view, common = desk.get(Viewpoint), desk.get(CommonNodes)
        assert isinstance(view, Viewpoint), "a viewpoint is never unread"
        control = None if isinstance(common, Unread) else common.control
        return cls(
            module=desk.get(NvidiaModule),
            file=desk.get(ModuleFile),
            libraries=desk.get(NvmlLibraries),
            log=desk.get(KernelLog),
            tasks=desk.get(Tasks),
            holders=desk.get(DriverHolders),
            changes=desk.get(DriverChanges),
            daemon=desk.get(PersistenceDaemon),
            control=control if isinstance(control, Entry) else None,
            view=view,
        )

    @property
    def loaded_version(self) -> str:
        """The version of the module in the kernel, "" where it is not known."""
        return "" if isinstance(self.module, Unread) else self.module.version or ""

    @property
    def disk_version(self) -> str:
        """The version of the module that a reload or reboot brings, "" where it is not known."""
        return "" if isinstance(self.file, Unread) else self.file.version

    @property
    def library_version(self) -> str:
        """The version of the library that programs get, "" where it is not known."""
        if isinstance(self.libraries, Unread):
            return ""
        named = self.libraries.by_name
        return named.version if named is not None else self.libraries.version

    @property
    def in_driver_container(self) -> bool:
        """Whether the only libraries are those of a driver container."""
        libraries = () if isinstance(self.libraries, Unread) else self.libraries.libraries
        return bool(libraries) and all(library.path.startswith(DRIVER_ROOT) for library in libraries)

    @property
    def other_versions(self) -> tuple[str, ...]:
        """The versions of libraries that programs do not get."""
        versions = () if isinstance(self.libraries, Unread) else self.libraries.versions
        return tuple(version for version in versions if version != self.library_version)

    @property
    def versions(self) -> Cited:
        """The loaded module, the one on disk, the libraries."""
        seen: Cited = ()
        if isinstance(self.module, NvidiaModule):
            seen += self.module.cite("version")
        if isinstance(self.file, ModuleFile) and self.file.exists:
            seen += self.file.cite("version")
        if isinstance(self.libraries, NvmlLibraries):
            seen += self.libraries.evidence
        return seen

    @property
    def mismatch(self) -> Cited:
        """What bears on versions that do not fit: those of the files, the kernel's last word on it, the upgrade, who holds the module."""
        seen = self.versions + tuple(self.lines(_API_MISMATCH, "API mismatch")[-1:])
        if isinstance(self.changes, DriverChanges):
            seen += self.changes.lines
        return seen + (self.holders.evidence if isinstance(self.holders, DriverHolders) else ())

    @property
    def who_hangs(self) -> Cited:
        """Other tasks asleep in the driver, who holds its nodes, and the GSP's last silence."""
        asleep = self.tasks.stuck_in_driver(self.log) if isinstance(self.tasks, Tasks) else ()
        held = self.holders.evidence if isinstance(self.holders, DriverHolders) else ()
        return tuple(task.evidence for task in asleep[:3]) + tuple(self.lines(_GSP, "GSP")[-1:]) + held

    @property
    def control_node(self) -> Cited:
        """nvidiactl as it is, where it is."""
        if self.control is None:
            return ()
        owner = f", owner {self.control.uid}:{self.control.gid}" if self.control.uid is not None else ""
        return (Evidence(self.control.path, f"is a {describe(self.control)}{owner}"),)

    def recovery(self, address: str) -> str:
        """The recovery that the driver asked for last, by the kernel log ("GPU Reset Required"); "" where it asked for none."""
        slot = re.escape(address.rpartition(".")[0])
        lines = self.lines(re.compile(rf"Xid \(PCI:{slot}\S*\): 154, {_RECOVERY}"), _RECOVERY)
        found = re.search(r"to 0x[0-9a-fA-F]+ \(([^)]*)\)", lines[-1].shows) if lines else None
        return "" if found is None or found[1] == "None" else found[1]

    def xids(self, address: str) -> Cited:
        """A GPU's last Xid, the recovery it calls for, and the driver's plain word that it is gone; Xids name no function."""
        slot = address.rpartition(".")[0]
        said = self.lines(re.compile(rf"NVRM: Xid \(PCI:{re.escape(slot)}"), slot)
        recovery = [line for line in said if ": 154," in line.shows]
        others = [line for line in said if line not in recovery]
        causes = [line for line in others if not _FOLLOWS.search(line.shows)] or others
        fallen = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{re.escape(slot)}\S*: GPU has fallen off the bus")
        return (*causes[-1:], *recovery[-1:], *self.lines(fallen, slot)[-1:])

    def lines(self, pattern: "re.Pattern[str]", anchor: str) -> list[Evidence]:
        """Matching lines of the kernel log, none where it is not known."""
        return [] if isinstance(self.log, Unread) else self.log.lines(pattern, anchor)
