"""Container toolkit: are its programs there, and do its packages belong together?"""

from collections.abc import Iterator, Mapping

from gpudoctor.chain import Link
from gpudoctor.facts.software import LEFTOVERS, Software, Version
from gpudoctor.facts.toolkit_config import OPERATOR_FOLDER
from gpudoctor.facts.toolkit_programs import ToolkitPrograms
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Action,
    Breaks,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Subject,
    SubjectKind,
    Unread,
    Verdict,
    Verdicts,
    Warn,
)

PROGRAMS, AGREE = "toolkit.programs-present", "toolkit.packages-agree"
TOOLKIT = Subject(SubjectKind.SERVICE, "nvidia-container-toolkit")
_LAST_OWN_RUNTIME = (3, 5, 1)
"""nvidia-container-runtime up to 3.5.0-1 brought its own program; packaging/debian/control of the toolkit breaks with it."""
_EQUAL_SINCE = (1, 18, 0)
"""Since then the toolkit depends on libnvidia-container-tools of exactly its version, before on that or a later one (same file)."""


@check(PROGRAMS, link=Link.TOOLKIT, title="The toolkit's programs are all there and can be run")
def programs_present(programs: ToolkitPrograms) -> Verdicts:
    """A toolkit that is half there fails late and oddly: engines find the runtime, the runtime the hook, the hook no program to call.

    Looks for what each installed package brings to /usr/bin, for nvidia-container-cli where the hook is there, for its library where it
    is, and for the wrappers and the programs behind them (NAME.real) in the GPU Operator's /usr/local/nvidia/toolkit. An executable
    file counts, a dangling link or a file without its mode does not. An installation of nvidia-container-toolkit-base alone is complete
    without the hook: it serves CDI only. nvidia-container-runtime.cdi and .legacy come with the Operator and are not missed elsewhere.
    Toolkits installed in other places are not judged.
    """
    missing = [one for one in programs.wanted if one.located.missing]
    unread = [one.located.path for one in programs.wanted if isinstance(one.located.path, Unread)]
    for one in missing:
        summary = f"{one.program} is not there as a program that can be run"
        yield Fail(TOOLKIT, summary, one.because + one.located.evidence, (REINSTALL,), Breaks.SUBJECT, cause="missing")
    if programs.operators:
        summary = f"{OPERATOR_FOLDER} lacks {', '.join(programs.operators)}"
        yield Fail(TOOLKIT, summary, programs.cite("folder"), (OPERATOR,), Breaks.SUBJECT, cause="operator")
    if missing or programs.operators:
        return
    if unread:
        yield unread[0].about(TOOLKIT)
    elif programs.unseen is not None:
        yield programs.unseen.about(TOOLKIT)
    elif not programs.seen:
        yield NotApplicable(TOOLKIT, "the NVIDIA Container Toolkit is not installed", programs.cite("folder"))
    else:
        found = tuple(evidence for one in programs.wanted for evidence in one.located.evidence)
        names = ", ".join(dict.fromkeys(one.program for one in programs.wanted)) or f"those in {OPERATOR_FOLDER}"
        yield Pass(TOOLKIT, f"there and executable: {names}", found or programs.cite("seen"))


@check(AGREE, link=Link.TOOLKIT, title="The toolkit's packages are of one version")
def packages_agree(software: Software) -> Verdicts:
    """Four packages make one toolkit; of different versions, they hand each other options that the other does not know.

    nvidia-container-toolkit and -base must be equal, and since 1.18 libnvidia-container-tools with them; before, that may be newer but
    not older. libnvidia-container-tools and libnvidia-container1 are built and released as one. apt and dnf see to the former themselves,
    so that a difference tells of a forced, broken or half-finished upgrade. nvidia-docker2 and nvidia-container-runtime from 3.6 on are
    empty or only configuration and harmless; up to 3.5.0 the latter brought a runtime of its own. Asks dpkg or rpm; what is
    installed without them, as by the GPU Operator, has no packages to compare.
    """
    if isinstance(software.packages, Unread):
        yield software.packages.about(TOOLKIT)
        return
    packages = software.packages
    names = [name for name in NAMES if name in packages]
    wrong = [*_unequal(packages), *_leftovers(packages)]
    if wrong:
        yield from wrong
    elif not names:
        yield NotApplicable(TOOLKIT, "no package of the NVIDIA Container Toolkit is installed")
    else:
        evidence = tuple(seen for name in names for seen in packages[name].cite("version"))
        old = [name for name in LEFTOVERS if name in packages]
        more = f"; {', '.join(old)} beside them does no harm" if old else ""
        yield Pass(TOOLKIT, f"{', '.join(names)}: {_numbers(packages[names[0]])}{more}", evidence)


BASE, MAIN, TOOLS, LIBRARY = (
    "nvidia-container-toolkit-base",
    "nvidia-container-toolkit",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
NAMES = (MAIN, BASE, TOOLS, LIBRARY)


def _unequal(packages: Mapping[str, Version]) -> Iterator[Verdict]:
    for first, second in ((MAIN, BASE), (MAIN, TOOLS), (TOOLS, LIBRARY)):
        if first not in packages or second not in packages:
            continue
        one, other = packages[first], packages[second]
        if _key(one) == _key(other):
            continue
        may_be_newer = (first, second) == (MAIN, TOOLS) and one.before(*_EQUAL_SINCE)
        if may_be_newer and not other.before(*one.numbers):
            continue
        summary = f"{first} is {_numbers(one)}, {second} is {_numbers(other)}"
        yield Warn(TOOLKIT, summary, one.cite("version") + other.cite("version"), (ONE_VERSION,), cause="skew")


def _leftovers(packages: Mapping[str, Version]) -> Iterator[Verdict]:
    for name in LEFTOVERS:
        version = packages.get(name)
        runtime = name == "nvidia-container-runtime" and version is not None and version.before(*_LAST_OWN_RUNTIME)
        if version is not None and (runtime or name in ("nvidia-docker", "libnvidia-container0")):
            summary = f"{name} {_numbers(version)} is of an earlier stack and does not go with the toolkit"
            yield Warn(TOOLKIT, summary, version.cite("version"), (REMOVE_OLD,), cause="leftover")


def _key(version: Version) -> tuple[tuple[int, ...], str]:
    return version.numbers, version.candidate


def _numbers(version: Version) -> str:
    return ".".join(map(str, version.numbers)) + version.candidate


REINSTALL = Remedy(
    Action.INSTALL_PACKAGE,
    "Install the toolkit's packages again, the same version.",
    run=(
        f"apt-get install --reinstall {' '.join(NAMES)}",
        f"dnf reinstall {' '.join(NAMES)}    # on RHEL instead",
    ),
    confirm="nvidia-container-cli --version",
)
OPERATOR = Remedy(
    Action.RESTART_SERVICE,
    "Have the GPU Operator's toolkit container install its folder anew.",
    run=(
        "kubectl delete pod -n gpu-operator -l app=nvidia-container-toolkit-daemonset --field-selector spec.nodeName=$(hostname)",
    ),
    interrupts="new GPU containers until it is done; it restarts the engine",
    confirm=f"gpudoctor run --check {PROGRAMS}",
)
ONE_VERSION = Remedy(
    Action.INSTALL_PACKAGE,
    "Bring all four packages to one version.",
    run=(
        "apt-get update",
        f"apt-get install {' '.join(NAMES)}",
        f"dnf upgrade {' '.join(NAMES)}    # on RHEL instead",
    ),
    interrupts="nothing that runs; GPU containers that start while packages change",
    confirm=f"gpudoctor run --check {AGREE}",
)
REMOVE_OLD = Remedy(
    Action.INSTALL_PACKAGE,
    "Save daemon.json, which packages of the earlier stacks own, then remove them and install the toolkit.",
    run=(
        "cp -a /etc/docker/daemon.json /etc/docker/daemon.json.bak",
        "apt-get install nvidia-container-toolkit nvidia-docker- nvidia-container-runtime- libnvidia-container0-",
    ),
    interrupts="GPU containers that start meanwhile",
    confirm=f"gpudoctor run --check {AGREE}",
)
