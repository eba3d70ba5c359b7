"""Driver and CUDA: the driver's files on disk against what is loaded, and how they came there."""

from gpudoctor.chain import Link
from gpudoctor.facts.changes import DriverChanges
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.installation import Installation
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.tasks import DriverHolders
from gpudoctor.knowledge import nvml_errors
from gpudoctor.knowledge.nvml_remedies import LIST_INSTALLED, reload_or_reboot
from gpudoctor.registry import check
from gpudoctor.verdicts import NODE, Action, NotApplicable, Pass, Remedy, Unread, Verdicts, Warn

ONE_WAY = (
    Remedy(
        Action.NONE,
        "Find out which of the two wrote the libraries that are loaded.",
        run=("ldconfig -p | grep -E 'libcuda.so|libnvidia-ml.so'", "cat /proc/driver/nvidia/version"),
        confirm="gpudoctor run --check driver-cuda.one-installation",
    ),
    Remedy(
        Action.INSTALL_PACKAGE,
        "Keep the packages: note which are installed, remove the runfile's driver, and install those again: removing takes files of both.",
        run=(
            f"{LIST_INSTALLED} > /var/tmp/nvidia-packages",
            "cat /var/tmp/nvidia-packages    # must name the driver's packages, before the next step",
            "nvidia-uninstall",
            "apt-get install --reinstall $(cat /var/tmp/nvidia-packages)",
        ),
        interrupts="every process that uses a GPU of this node",
        confirm="gpudoctor run --check driver-cuda.one-installation",
    ),
)


@check(
    "driver-cuda.module-on-disk",
    link=Link.DRIVER_CUDA,
    explained_by=("driver-cuda.nvml-answers",),
    advisory=True,
    title="The module on disk is the loaded one",
)
def module_on_disk(
    module: NvidiaModule, file: ModuleFile, nvml: Reading[Nvml], changes: DriverChanges, holders: DriverHolders
) -> Verdicts:
    """An upgrade replaces files at once and the loaded module at the next reload or boot; until then the two differ.

    What runs goes on; new programs fail as soon as the libraries are the newer ones. Compares modinfo with
    /proc/driver/nvidia/version, and says what the package manager changed and which processes keep the old module in use. A module
    that a driver container loaded has no file in the host's tree: then there is nothing to compare.
    """
    if module.mute is not None:
        yield module.mute.about(NODE)
    elif module.version is None:
        yield NotApplicable(NODE, "no nvidia module is loaded")
    elif not file.exists:
        yield NotApplicable(NODE, "the loaded module has no file in this kernel's module tree", file.cite("exists"))
    elif file.version == module.version:
        yield Pass(NODE, f"both are {module.version}", module.cite("version") + file.cite("version"))
    else:
        summary = f"{module.version} is loaded, {file.version} is on disk: an upgrade waits for a reload or reboot"
        if holders.holders:
            count, names = len(holders.holders), ", ".join(holder.comm for holder in holders.holders[:3])
            hold = f"{count} processes hold" if count > 1 else "1 process holds"
            summary += f"; {hold} the loaded one ({names}{', …' if count > 3 else ''})"
        evidence = module.cite("version") + file.cite("version") + changes.lines + holders.evidence
        # NVML's refusal of another version is what comes of it; any other error has another cause.
        own = isinstance(nvml, Unread) or nvml.init not in (
            nvml_errors.LIB_RM_VERSION_MISMATCH,
            nvml_errors.LIBRARY_NOT_FOUND,
            None,
        )
        remedies = reload_or_reboot("driver-cuda.module-on-disk")
        yield Warn(NODE, summary, evidence, remedies, cause="upgrade-waits", own_fault=own)


@check(
    "driver-cuda.one-installation",
    link=Link.DRIVER_CUDA,
    advisory=True,
    title="The driver was installed in one way only",
)
def one_installation(installation: Installation) -> Verdicts:
    """The runfile and a distribution's packages write the same files, and each upgrade of one breaks the other.

    It goes well until an unattended upgrade replaces the libraries, or nvidia-uninstall takes files of the packages with it. Told by
    the runfile's uninstaller and dpkg's list of the package that holds libcuda. Other package managers are not asked.
    """
    if not installation.runfile:
        yield NotApplicable(NODE, "nvidia-installer (the runfile) was not used here", installation.cite("runfile"))
    elif isinstance(installation.packages, Unread):
        yield installation.packages.about(NODE)
    elif installation.packages:
        summary = f"installed by the runfile and by packages: {', '.join(installation.packages)}"
        evidence = installation.runfile + installation.cite("packages")
        yield Warn(NODE, summary, evidence, ONE_WAY, cause="installed-twice")
    else:
        evidence = installation.runfile + installation.cite("packages")
        yield Pass(NODE, "by the runfile, and no package beside it", evidence)
