"""What changed lately: package managers' logs and the time of boot, to be read beside a cause."""

from gpudoctor.facts.boot import STAT, booted_at, in_words
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.package_logs import CREATED, LOGS, RUNFILE_LOG, lines_about
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.facts.tasks import waits_for_reload
from gpudoctor.knowledge import nvml_errors
from gpudoctor.verdicts import Cited, Evidence, Unread

MOST_LINES = 4
"""How many of a log's last lines are quoted."""


class _Changes(Fact, frozen=True):
    """The last changes of driver and kernel packages, and the last boot; empty where nobody needs them or none was found."""

    lines: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "_Changes | Unread":
        """Read only where something is wrong that a change could explain; never unread itself."""
        return cls(lines=_recent(desk.raw)) if cls.called_for(desk) else cls()

    @classmethod
    def called_for(cls, desk: Desk) -> bool:
        """Whether anything is wrong that a change could explain."""
        raise NotImplementedError


class KernelChanges(_Changes, frozen=True):
    """What changed before the nvidia module failed to come up with this kernel."""

    @classmethod
    def called_for(cls, desk: Desk) -> bool:
        """GPUs without a driver, and no module."""
        gpus, module = desk.get(PciGpus), desk.get(NvidiaModule)
        if isinstance(gpus, Unread) or isinstance(module, Unread):
            return False
        return not module.loaded and any(gpu.driver is None for gpu in gpus)


class DriverChanges(_Changes, frozen=True):
    """What changed before library, loaded module and module on disk came to differ."""

    @classmethod
    def called_for(cls, desk: Desk) -> bool:
        """Another version on disk, or a library that the module refuses."""
        nvml = desk.known(Nvml)
        refused = nvml is not None and nvml.init in (
            nvml_errors.LIB_RM_VERSION_MISMATCH,
            nvml_errors.LIBRARY_NOT_FOUND,
        )
        return refused or waits_for_reload(desk)


def _recent(raw: Raw) -> Cited:
    found: list[Evidence] = []
    for form in LOGS:
        file = raw.read(form.path)
        if isinstance(file, TextFile):
            found += [Evidence(file.where, line) for line in lines_about(form, file.text)[-MOST_LINES:]]
    runfile = raw.read(RUNFILE_LOG)
    if isinstance(runfile, TextFile):
        found += [Evidence(RUNFILE_LOG, line.strip()) for line in runfile.text.splitlines() if CREATED in line]
    return tuple(found) + (_booted(raw) if found else ())


def _booted(raw: Raw) -> Cited:
    booted = booted_at(raw)
    return () if booted is None else (Evidence(STAT, f"btime {booted}: this boot began at {in_words(booted)}"),)
