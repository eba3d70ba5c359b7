"""Apptainer, Singularity and enroot, the engines of batch systems: can they give a container the GPUs of its job?"""

from gpudoctor.chain import Link
from gpudoctor.facts.apptainer import CLI, Apptainer, NvSetup
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.enroot import Enroot, EnrootHook, EnrootSetup
from gpudoctor.facts.pci import PciGpus
from gpudoctor.knowledge.engine_remedies import (
    APPTAINER_CONFIG,
    APPTAINER_REINSTALL,
    INSTALL_CLI,
    executable,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

LIBCUDA = "libcuda.so"


@check("toolkit.apptainer-libraries", link=Link.TOOLKIT, title="Apptainer finds what `--nv` puts into a container")
def apptainer_libraries(apptainer: Apptainer) -> Verdicts:
    """`apptainer exec --nv` puts the driver's libraries of the host into the container: those that nvliblist.conf names.

    A list that is gone or does not name libcuda.so leaves the container without a driver, with no more than a warning. With "use
    nvidia-container-cli = yes" that program does it instead, and must then be there. A switch that is neither yes nor no keeps
    every container from starting. Read from apptainer.conf or singularity.conf; what a user asks for by options
    and the environment is not known. Whether the libraries themselves are there is another check.
    """
    nv = apptainer.nv
    if nv is None:
        yield NotApplicable(apptainer, "neither Apptainer nor Singularity is installed", apptainer.cite("installed"))
    elif isinstance(nv, Unread):
        yield nv.about(apptainer)
    elif nv.refused is not None:
        summary = f"{nv.refused.place}: {nv.refused.said}: no container starts"
        yield Fail(apptainer, summary, (nv.refused.evidence,), (APPTAINER_CONFIG,), Breaks.SUBJECT, cause="syntax")
    elif nv.by_cli:
        yield _by_cli(apptainer, nv)
    else:
        yield _by_list(apptainer, nv)


def _by_cli(apptainer: Apptainer, nv: NvSetup) -> Verdict:
    """apptainer internal/pkg/util/gpu/nvidia.go, NVCLIConfigure: without the program the container does not start."""
    cli = nv.cli
    if cli is None or isinstance(cli.path, Unread):
        unread = cli.path if cli is not None and isinstance(cli.path, Unread) else None
        return (unread or Unread(Why.NOT_ANSWERED, nv.config, "names no program")).about(apptainer)
    if cli.path is not None:
        return Pass(apptainer, f"--nv calls {cli.path}", (nv.says, *cli.evidence))
    summary = f"--nv is to call {cli.name}, which is not there: no container starts with it"
    evidence = (nv.says, *cli.evidence)
    return Fail(apptainer, summary, evidence, (INSTALL_CLI, APPTAINER_CONFIG), Breaks.SUBJECT, cause="program")


def _by_list(apptainer: Apptainer, nv: NvSetup) -> Verdict:
    """apptainer internal/pkg/runtime/launch/launcher_linux.go, setNVLegacyConfig: what is not listed is not put in."""
    if isinstance(nv.listed, Unread):
        return nv.listed.about(apptainer)
    if nv.listed is None:
        summary = f"{nv.list_file} is gone: --nv puts no library into a container"
        evidence = (nv.says, Evidence(nv.list_file, "does not exist"))
        return Fail(apptainer, summary, evidence, (APPTAINER_REINSTALL,), Breaks.SUBJECT, cause="no-list")
    evidence = (nv.says, Evidence(nv.list_file, f"lists {len(nv.listed)} files"))
    if not any(line.startswith(LIBCUDA) for line in nv.listed):
        summary = f"{nv.list_file} does not list {LIBCUDA}: with --nv a container gets no CUDA driver"
        return Warn(apptainer, summary, evidence, (APPTAINER_REINSTALL,), cause="without-libcuda")
    always = "always" if nv.always else "with --nv"
    return Pass(apptainer, f"{LIBCUDA} and {len(nv.listed) - 1} others are put into a container {always}", evidence)


@check("toolkit.enroot-hook", link=Link.TOOLKIT, title="enroot's hook for GPUs can run")
def enroot_hook(enroot: Enroot, gpus: Reading[PciGpus]) -> Verdicts:
    """enroot, as Slurm's pyxis uses it, gives a container GPUs through /etc/enroot/hooks.d/98-nvidia.sh alone.

    A hook that is not executable is left out without a word: the container starts and has no GPU. The hook calls
    nvidia-container-cli; where that is not installed, every container that asks for a GPU, as all CUDA images do, fails to start.
    The hook belongs to enroot's package and lies on nodes without a GPU, too, where nothing is wrong. What users add in their own
    ~/.config/enroot is not looked at, and neither is the PATH they start it with.
    """
    setup = enroot.setup
    if setup is None:
        yield NotApplicable(enroot, "enroot is not installed", enroot.cite("installed"))
    elif setup.unread is not None:
        yield setup.unread.about(enroot)
    elif not setup.hooks:
        yield NotApplicable(
            enroot, f"no hook in {setup.folder} calls {CLI}: enroot is not set up for GPUs", (setup.seen,)
        )
    elif isinstance(gpus, Unread):
        yield gpus.about(enroot)
    elif not gpus.members and gpus.unlisted is None:
        yield NotApplicable(enroot, "there is no GPU on this node to give to a container", setup.hooks[0].cite("mode"))
    else:
        yield from (_hook(enroot, setup, hook) for hook in setup.hooks)


def _hook(enroot: Enroot, setup: EnrootSetup, hook: EnrootHook) -> Verdict:
    evidence, cli = hook.cite("mode"), setup.cli
    if hook.mode is None:
        return Unknown(enroot, Why.NOT_RECORDED, f"{hook.path}: its mode was not recorded", evidence)
    if not hook.mode & 0o111:
        summary = f"{hook.path} is not executable: enroot leaves it out, and containers get no GPU"
        return Fail(enroot, summary, evidence, (executable(hook.path),), Breaks.SUBJECT, cause="not-executable")
    if not hook.mode & 0o001:
        summary = f"{hook.path} is not executable for everybody: containers of other users get no GPU"
        return Warn(enroot, summary, evidence, (executable(hook.path),), cause="not-executable")
    if cli is None or isinstance(cli.path, Unread):
        unread = cli.path if cli is not None and isinstance(cli.path, Unread) else None
        return (unread or Unread(Why.NOT_ANSWERED, hook.path, "its program was not looked for")).about(enroot)
    if cli.path is None:
        summary = f"{hook.path} calls {CLI}, which is not installed: containers that ask for a GPU do not start"
        return Fail(enroot, summary, (*evidence, *cli.evidence), (INSTALL_CLI,), Breaks.SUBJECT, cause="program")
    return Pass(enroot, f"{hook.path} calls {cli.path}", (*evidence, *cli.evidence))
