"""Container toolkit: known vulnerabilities of what is installed, told when asked for."""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.absence import NO_ADVISORIES
from gpudoctor.facts.advised_software import AdvisedSoftware
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.software import Version
from gpudoctor.knowledge.advisories import (
    DRIVER_BRANCHES,
    NEWEST_BULLETIN,
    TABLE_DATE,
    Advisory,
    Needs,
    affected,
    fix_for,
    of,
    order,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    NotApplicable,
    Pass,
    Remedy,
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

CHECK = "toolkit.known-vulnerabilities"
_HOOKS_SINCE = (1, 17, 5)
"""From this release on legacy mode uses the hooks of CVE-2025-23266 and -23267 too, before only CDI did (bulletin 5659)."""
_COMPAT = "CVE-2025-23266"
MOST_IN_WORDS = 2
"""Of so many, the worst, the summary tells what they are; all are told beside it, with their sources."""


@check(
    CHECK,
    link=Link.TOOLKIT,
    advisory=True,
    title="No known vulnerability of the toolkit, runtimes or driver applies",
)
def known_vulnerabilities(software: AdvisedSoftware) -> Verdicts:
    """A container that gets a GPU gets a larger piece of the host than others: the toolkit, runc and the driver have let some out of it.

    Compares the versions of toolkit, runc, containerd, Docker and the running driver with a table of bulletins and advisories that
    gpudoctor carries; nothing is fetched, and the table's date is named with each answer. It speaks only where the configuration
    says `advisories = true`: a vulnerable version breaks nothing, most fleets have another tool for this, and a warning on every
    healthy node would teach people to overlook warnings. Where asked it warns, never fails. A vulnerability counts where what it needs is
    in use: legacy mode or hooks by config.toml, authorization plugins by daemon.json, the CRI plugin where a kubelet runs; where that
    is not known, it counts. A distribution's package may carry the fix under an older number: then the distribution's own advisory
    decides, and the verdict says so. Of the driver the data-center releases for Linux are compared within their branch.
    The GPU Operator tells no version on a node; its toolkit is judged as the toolkit.
    """
    if not software.asked:
        yield NotApplicable(NODE, NO_ADVISORIES)
        return
    if isinstance(software.versions, Unread):
        yield software.versions.about(NODE)
    else:
        for product, version in software.versions.items():
            yield from _product(Subject(SubjectKind.SERVICE, product), version, software)
    yield _driver(Subject(SubjectKind.SERVICE, "nvidia-driver"), software)


def _product(subject: Subject, version: Version | Absent | Unread, software: AdvisedSoftware) -> Iterator[Verdict]:
    if isinstance(version, Unread):
        yield version.about(subject)
    elif isinstance(version, Absent):
        yield NotApplicable(subject, f"{subject.key} is not installed", (version.evidence,))
    else:
        release = ".".join(map(str, version.numbers)) + version.candidate
        known = [advisory for advisory in of(subject.key) if affected(advisory, release)]
        open_ones = [advisory for advisory in known if _in_use(advisory, version, software)]
        if open_ones:
            yield _warning(subject, version, release, open_ones, software)
        else:
            yield _passed(subject, version, known, software)


def _warning(
    subject: Subject, version: Version, release: str, found: list[Advisory], software: AdvisedSoftware
) -> Verdict:
    worst = sorted(found, key=lambda advisory: (advisory.cvss is None, -(advisory.cvss or 0)))
    target = max((fix_for(advisory, release) for advisory in found), key=order)
    told = [f"{one.id}{_score(one)}: {one.summary}" for one in worst[:MOST_IN_WORDS]]
    listed = "; ".join((*told, *(f"{one.id}{_score(one)}" for one in worst[MOST_IN_WORDS:])))
    begin = (
        f"{version} is a distribution's build: check its advisories for"
        if version.from_distribution
        else f"{version} has"
    )
    summary = f"{begin} {listed}. Fixed upstream in {target} (table of {TABLE_DATE})"
    sources = tuple(f"{one.id}, {one.published}: {one.summary}; {one.source}; needs {one.needs.value}" for one in worst)
    remedies: tuple[Remedy, ...] = (_update(subject, target, version),)
    if any(one.id == _COMPAT for one in found):
        remedies = (NO_HOOK, *remedies)
    evidence = version.cite("version") + software.mode_said
    return Warn(subject, summary, evidence, remedies, cause=subject.key, references=sources)


def _passed(subject: Subject, version: Version, idle: list[Advisory], software: AdvisedSoftware) -> Verdict:
    evidence = version.cite("version") + software.mode_said + software.compat_hook_off
    if not idle:
        return Pass(
            subject, f"{version}: the table of {TABLE_DATE} knows no vulnerability of it", version.cite("version")
        )
    ids = ", ".join(f"{one.id} (needs {one.needs.value})" for one in idle)
    return Pass(subject, f"{version}: what these need is not in use: {ids} (table of {TABLE_DATE})", evidence)


def _score(advisory: Advisory) -> str:
    return f" (CVSS {advisory.cvss})" if advisory.cvss is not None else ""


def _in_use(advisory: Advisory, version: Version, software: AdvisedSoftware) -> bool:
    """What is not known counts as in use."""
    mode = software.mode
    match advisory.needs:
        case Needs.NOTHING | Needs.UNTOLD:
            return True
        case Needs.LEGACY:
            return mode not in ("cdi", "jit-cdi")
        case Needs.HOOKS:
            if advisory.id == _COMPAT and software.compat_hook_off and mode == "legacy":
                return False
            return mode != "legacy" or not version.before(*_HOOKS_SINCE)
        case Needs.CRI:
            return software.kubelet is not False
        case Needs.PLUGINS:
            return software.plugins is not False


def _driver(subject: Subject, software: AdvisedSoftware) -> Verdict:
    module = software.driver
    if module is None or isinstance(module, Unread):
        return module.about(subject) if module is not None else NotApplicable(subject, "not asked")
    if not module.loaded:
        return NotApplicable(subject, "the nvidia module is not loaded", module.cite("loaded"))
    if module.version is None:
        return Unknown(subject, Why.UNREADABLE, "the driver tells no version", module.cite("version"))
    branch = int(module.version.partition(".")[0])
    row = next((row for row in DRIVER_BRANCHES if row.branch == branch), None)
    evidence = module.cite("version")
    if row is None and branch > DRIVER_BRANCHES[0].branch:
        return Pass(subject, f"driver {module.version}: newer than all in the table of {TABLE_DATE}", evidence)
    if row is None:
        summary = f"driver {module.version}: no bulletin in the table of {TABLE_DATE} names branch {branch}"
        return Unknown(subject, Why.NOT_ANSWERED, summary, evidence)
    said = f"bulletin {row.bulletin} of {row.date}, table of {TABLE_DATE}"
    if order(module.version) < order(row.minimum):
        summary = f"driver {module.version} has known vulnerabilities, fixed in its branch by {row.minimum} ({said})"
        return Warn(subject, summary, evidence, (UPDATE_DRIVER,), cause="driver")
    if row.bulletin != NEWEST_BULLETIN:
        summary = (
            f"driver {module.version} has the last fixes of branch {branch} ({said}), "
            f"but bulletin {NEWEST_BULLETIN} fixes other branches only"
        )
        return Warn(subject, summary, evidence, (UPDATE_DRIVER,), cause="branch")
    return Pass(subject, f"driver {module.version}: not older than {row.minimum} ({said})", evidence)


def _update(subject: Subject, target: str, version: Version) -> Remedy:
    package = version.package or subject.key
    first = f"apt-get update && apt-get install --only-upgrade {package}    # RHEL: dnf upgrade {package}"
    return Remedy(
        Action.INSTALL_PACKAGE,
        f"Update {subject.key} to {target} or later, or to the distribution's build that names these advisories.",
        run=(first,),
        interrupts="the engine's containers where its package restarts it; containers that start meanwhile",
        confirm=f"gpudoctor run --check {CHECK}",
    )


NO_HOOK = Remedy(
    Action.CHANGE_CONFIG,
    "Until then, in legacy mode, leave out the hook of CVE-2025-23266; CUDA's compatibility libraries of images are then not used.",
    run=("nvidia-ctk config --in-place --set features.disable-cuda-compat-lib-hook=true",),
    interrupts="nothing that runs",
    confirm=f"gpudoctor run --check {CHECK}",
)
UPDATE_DRIVER = Remedy(
    Action.INSTALL_PACKAGE,
    "Drain the node, install a fixed release of this or a supported branch the way the driver was installed, and reboot.",
    run=("cat /proc/driver/nvidia/version    # afterwards",),
    interrupts="everything that uses a GPU, and the node at the reboot",
    confirm=f"gpudoctor run --check {CHECK}",
)
