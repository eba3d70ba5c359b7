"""What throws light on NVML's failing: libraries, modules, log, tasks, holders, and from where all of it is seen."""

import re
from collections.abc import Sequence

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
from gpudoctor.facts.xid_lines import FALLEN, XidLine, find, find_off_the_bus
from gpudoctor.facts.xid_texts import recovery
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

# "NVRM: _kgspRpcRecvPoll: … Timeout after 45s of waiting for RPC response from GPU0 GSP!", Xid 119 and 120 (open-gpu-kernel-modules,
# src/nvidia/src/kernel/gpu/gsp/kernel_gsp.c).
_GSP = pattern(r"NVRM: .*(?:GSP|Xid \(PCI:\S+\): (?:119|120),)")
_API_MISMATCH = pattern(r"NVRM: API mismatch: ")
# It tells the recovery that another one calls for (NVIDIA's Xid catalogue).
_RECOVERY = 154


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
        told = [found for line in self._xids(address) if line.code == _RECOVERY and (found := recovery(line.text))]
        return told[-1][1] if told and told[-1][1] != "None" else ""

    def xids(self, address: str) -> Cited:
        """The Xid that the recovery is asked for, what the driver asked last, and its plain word that the GPU is gone."""
        if isinstance(self.log, Unread):
            return ()
        said = self._xids(address)
        asked = [line for line in said if line.code == _RECOVERY]
        causes = _causes(said)
        slot = address.rpartition(".")[0]
        lost = [line for line in said if line.code == FALLEN]
        fallen = [line for line in find_off_the_bus(self.log.text) if line.slot == slot]
        told = dict.fromkeys((*causes[-1:], *asked[-1:], *lost[-1:], *fallen[-1:]))
        return tuple(Evidence(self.log.where, line.message, line.at or None) for line in told)

    def _xids(self, address: str) -> list[XidLine]:
        """A GPU's Xids, oldest first; they name no function."""
        slot = address.rpartition(".")[0]
        lines = () if isinstance(self.log, Unread) else find(self.log.text)
        return [line for line in lines if isinstance(line, XidLine) and line.slot == slot]

    def lines(self, pattern: "re.Pattern[str]", anchor: str) -> list[Evidence]:
        """Matching lines of the kernel log, none where it is not known."""
        return [] if isinstance(self.log, Unread) else self.log.lines(pattern, anchor)


def _causes(said: Sequence[XidLine]) -> Sequence[XidLine]:
    """What the driver asks a recovery for: what came before the first 154 that asks, of those since one that asked for nothing.

    Of that what asks for something by itself; else what came later, for a log may have lost the cause, or have it late.
    """
    from gpudoctor.knowledge.xids import Area, xid

    begins = len(said)
    for place in range(len(said) - 1, -1, -1):
        told = recovery(said[place].text) if said[place].code == _RECOVERY else None
        if told is not None and told[0] == 0:
            break
        begins = place if told is not None else begins
    lines = [line for line in said if line.code != _RECOVERY]
    before = [line for line in said[:begins] if line.code != _RECOVERY]
    for some in (before, lines):
        known = [(line, xid(line.code)) for line in some]
        asking = [line for line, one in known if one.area is not Area.APPLICATION and one.immediate != "IGNORE"]
        if asking:
            return asking
    return [line for line in lines if not xid(line.code).follows] or lines
