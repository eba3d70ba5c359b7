"""Container toolkit: config.toml as the installed release understands it."""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.toolkit_config import Odd, OddKey, ToolkitConfig, ToolkitFile
from gpudoctor.facts.toolkit_surroundings import DRIVER_CONTAINER, Surroundings, ToolkitSurroundings
from gpudoctor.knowledge.toolkit_config import (
    BY_NAME,
    CAPABILITIES,
    COMPAT_MODE,
    COMPAT_MODES,
    DRIVER_CAPABILITIES,
    JIT_CDI_SINCE,
    LDCONFIG,
    LDCONFIG_OF_HOST_SINCE,
    MODE,
    MODES,
    NO_CGROUPS,
    OWN_COMPAT_LIBRARIES,
    OWN_LDCONFIG,
    REQUIRE_OFF,
    ROOT,
    RUNTIMES,
    TABLES,
    Release,
)
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Action,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unread,
    Verdict,
    Verdicts,
    Warn,
)

CHECK = "toolkit.runtime-config"
_WITHOUT_HOOK = ("cdi", "jit-cdi", "csv")
"""Modes in which nvidia-container-cli, and what config.toml says to it, is not used (internal/modifier)."""
_SHOWN = 4


@check(
    CHECK, link=Link.TOOLKIT, over=ToolkitConfig, title="The toolkit's config.toml says what this version understands"
)
def runtime_config(config: ToolkitConfig, surroundings: Reading[ToolkitSurroundings]) -> Verdicts:
    """The NVIDIA runtime and its hook read config.toml for each container they start: a mistake in it takes effect at once, everywhere.

    Reads /etc/nvidia-container-runtime/config.toml, the file of the GPU Operator's toolkit container below /usr/local/nvidia/toolkit and
    that of a rootless engine with an XDG_CONFIG_HOME of its own, and judges each by the keys, types and values that the installed release
    knows. A file that does not parse, a value of a wrong type, an unknown mode, no low-level runtime, or an ldconfig without @ (since
    1.17.3) make every GPU container fail; a misspelt key or one of a newer release is passed over in silence, so that what was meant is
    not in force. A key that resembles none is named, not warned of. `mode = "auto"` means legacy before 1.18 and jit-cdi since, csv on
    Tegra, and cdi for a container that asks for fully-qualified CDI names only. `no-cgroups = true` is right for rootless engines and
    wrong for rootful ones, whose containers then have device nodes that they may not open; in the modes cdi and jit-cdi it means nothing.
    `accept-nvidia-visible-devices-envvar-when-unprivileged = true`, the default, lets each image with NVIDIA_VISIBLE_DEVICES=all take
    every GPU; where it is false and `accept-nvidia-visible-devices-as-volume-mounts` is true, only whoever may add mounts, as the device
    plugin does, hands out GPUs. Without a file the defaults are in force. Whether engines call the runtime at all, and the CDI
    specifications it reads, are other checks' questions.
    """
    for file in config.files:
        yield from _judged(file, config, surroundings)


def _judged(file: ToolkitFile, config: ToolkitConfig, surroundings: Reading[ToolkitSurroundings]) -> Iterator[Verdict]:
    if isinstance(file.document, Malformed):
        summary = f"{file.document.place}: {file.document.said}: the NVIDIA runtime and its hook start no container"
        yield Fail(file, summary, (file.document.evidence,), _correct(file, True), Breaks.SUBJECT, cause="syntax")
        return
    wrong = [*_types(file), *_values(file), *_odd(file)]
    around = None if isinstance(surroundings, Unread) else surroundings.of.get(file.path)
    if around is not None and not isinstance(surroundings, Unread):
        wrong += [*_root(file, around), *_ldconfig(file, around), *_runtimes(file, around)]
        wrong += [*_specs(file, around), *_cgroups(file, around, surroundings)]
    yield from wrong or [_fine(file, around)]


def _types(file: ToolkitFile) -> Iterator[Verdict]:
    for name, value in file.stated.items():
        key = BY_NAME.get(name)
        if key is not None and file.reads(key) and not key.kind.fits(value):
            wanted = key.kind.value
        elif name in TABLES and not isinstance(value, dict):
            wanted = "a table"
        else:
            continue
        summary = (
            f"{name} must be {wanted}, not {_word(value)}: the file as a whole is refused, no GPU container starts"
        )
        yield _fail(file, summary, (file.says(name),), "type")


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    kinds = ((str, "a text"), (int, "a number"), (list, "a list"), (dict, "a table"))
    named = next((word for kind, word in kinds if isinstance(value, kind)), "something else")
    return f"{named} ({value!r})"[:60] if isinstance(value, str | int) else named


def _values(file: ToolkitFile) -> Iterator[Verdict]:
    yield from _mode(file)
    runtimes = file.stated.get(RUNTIMES)
    if runtimes == []:
        yield _fail(file, f"{RUNTIMES} is empty: at least one must be named", (file.says(RUNTIMES),), "runtimes")
    compat = file.value(COMPAT_MODE)
    if file.reads(BY_NAME[COMPAT_MODE]) and compat not in COMPAT_MODES:
        summary = f"{COMPAT_MODE} is {compat!r}, which counts as disabled; known are {', '.join(COMPAT_MODES)}"
        yield Warn(file, summary, (file.says(COMPAT_MODE),), _correct(file), cause="compat-mode")
    strangers = [one for one in _capabilities(file) if one not in DRIVER_CAPABILITIES]
    if strangers and file.value(MODE) not in _WITHOUT_HOOK:
        summary = (
            f"{CAPABILITIES} names {', '.join(map(repr, strangers))}, which no driver has: the hook ends in a panic"
        )
        yield _fail(file, summary, (file.says(CAPABILITIES),), "capabilities")
    yield from _ldconfig_form(file)


def _capabilities(file: ToolkitFile) -> list[str]:
    named = [one.strip() for one in str(file.value(CAPABILITIES)).split(",")]
    return [] if named == ["all"] else [one for one in named if one]


def _mode(file: ToolkitFile) -> Iterator[Verdict]:
    mode = file.value(MODE)
    if mode not in MODES:
        summary = f"{MODE} is {mode!r}, which no release knows: the runtime refuses every container"
        yield _fail(file, summary, (file.says(MODE),), "mode")
    elif mode == "jit-cdi" and file.release is not None and file.release < JIT_CDI_SINCE:
        summary = f"{MODE} is 'jit-cdi', known since {_dotted(JIT_CDI_SINCE)}: this is {file.version}, which refuses every container"
        yield _fail(file, summary, (file.says(MODE), *_told(file)), "mode")


def _ldconfig_form(file: ToolkitFile) -> Iterator[Verdict]:
    path = str(file.value(LDCONFIG))
    if path.startswith("@") or file.value(OWN_LDCONFIG) is True:
        return
    evidence = (file.says(LDCONFIG), *_told(file))
    since = _dotted(LDCONFIG_OF_HOST_SINCE)
    if file.release is not None and file.release >= LDCONFIG_OF_HOST_SINCE:
        summary = f"{LDCONFIG} is {path!r} without a leading @: {file.version} takes only the host's ldconfig and refuses the file"
        yield _fail(file, summary, evidence, "ldconfig")
    else:
        summary = (
            f"{LDCONFIG} is {path!r} without a leading @: a program of the image is run, which {since} and later refuse"
        )
        yield Warn(file, summary, evidence, _correct(file), cause="ldconfig")


def _odd(file: ToolkitFile) -> Iterator[Verdict]:
    for odd in file.odd_keys:
        words = _odd_words(odd, file)
        if words:
            summary = f"{odd.name} has no effect: {words}"
            yield Warn(file, summary, (file.says(odd.name), *_told(file)), _correct(file), cause=odd.odd.value)


def _odd_words(odd: OddKey, file: ToolkitFile) -> str:
    match odd.odd:
        case Odd.MISSPELT:
            return f"no release has such a key; {odd.nearest} is like it"
        case Odd.MISPLACED:
            return f"it belongs where it reads {odd.nearest}"
        case Odd.TOO_NEW:
            return f"it is read from {_dotted(BY_NAME[odd.name].since)} on, and this is {file.version}"
        case Odd.RETIRED:
            return f"it was read before {_dotted(BY_NAME[odd.name].until or ())}, and this is {file.version}"
        case Odd.STRANGE:
            return ""


def _root(file: ToolkitFile, around: Surroundings) -> Iterator[Verdict]:
    if isinstance(around.root, Evidence):
        summary = (
            f"the driver root {file.value(ROOT)} {around.root.shows}: no GPU container gets the driver's libraries"
        )
        yield Fail(
            file,
            summary,
            (file.says(ROOT), around.root),
            (LOOK_AT_DRIVER, *_correct(file)),
            Breaks.SUBJECT,
            cause="root",
        )
    elif around.root_unset:
        summary = f"the driver's libraries are in {DRIVER_CONTAINER} alone, but {ROOT} does not name it"
        evidence = (file.says(ROOT), *around.root_unset)
        yield Warn(file, summary, evidence, (_set(file, f"{ROOT}={DRIVER_CONTAINER}"),), cause="root")


def _ldconfig(file: ToolkitFile, around: Surroundings) -> Iterator[Verdict]:
    if around.ldconfig is None or not around.ldconfig.missing or file.value(MODE) == "cdi":
        return
    if isinstance(around.root, Evidence):
        return
    summary = f"{LDCONFIG} names {around.ldconfig.name}, which is not there: containers fail with an ldcache error"
    evidence = (file.says(LDCONFIG), *around.ldconfig.evidence, *_told(file))
    yield Fail(
        file, summary, evidence, (_set(file, f"{LDCONFIG}=@/sbin/ldconfig"), _again()), Breaks.SUBJECT, cause="ldconfig"
    )


def _runtimes(file: ToolkitFile, around: Surroundings) -> Iterator[Verdict]:
    if around.runtime.missing and file.stated.get(RUNTIMES) != []:
        summary = (
            f"none of the low-level runtimes {around.runtime.name} is on the PATH of services: no container starts"
        )
        evidence = (file.says(RUNTIMES), *around.runtime.evidence[:_SHOWN])
        yield Fail(file, summary, evidence, (INSTALL_RUNC, *_correct(file)), Breaks.SUBJECT, cause="runtimes")


def _specs(file: ToolkitFile, around: Surroundings) -> Iterator[Verdict]:
    if around.no_specs:
        summary = f"{MODE} is cdi, but none of its folders holds a CDI specification: GPU containers fail, devices unresolvable"
        remedies = (GENERATE, _set(file, f"{MODE}=auto"))
        yield Fail(file, summary, (file.says(MODE), *around.no_specs), remedies, Breaks.SUBJECT, cause="no-specs")


def _cgroups(file: ToolkitFile, around: Surroundings, surroundings: ToolkitSurroundings) -> list[Verdict]:
    if file.value(NO_CGROUPS) is not True or around.mode in _WITHOUT_HOOK or file.engine:
        return []
    rootful = surroundings.rootful
    if isinstance(rootful, Unread) or not rootful:
        return []
    engines = ", ".join(sorted({daemon.program.value for daemon in rootful}))
    summary = f"{NO_CGROUPS} is true, which rootless engines need, but {engines} runs rootful: its containers may not open their GPUs"
    evidence = (file.says(NO_CGROUPS), *(daemon.cite("command")[0] for daemon in rootful[:_SHOWN]))
    if isinstance(surroundings.users, Unread):
        return [surroundings.users.about(file)]
    if surroundings.users:
        return [
            NotApplicable(file, f"{NO_CGROUPS} is true: cgroup.device-rules tells what it does to workloads", evidence)
        ]
    remedies = (_set(file, f"{NO_CGROUPS}=false"), _again())
    return [Fail(file, summary, evidence, remedies, Breaks.SUBJECT, cause="no-cgroups")]


def _fine(file: ToolkitFile, around: Surroundings | None) -> Verdict:
    strange = [odd.name for odd in file.odd_keys if odd.odd is Odd.STRANGE]
    read = (
        "every key is read"
        if not strange
        else f"no release reads {', '.join(strange[:_SHOWN])}, the other keys are read"
    )
    by = f" by {file.version}" if file.version is not None else " by some release; the installed one is not known"
    parts = [f"{read}{by}", _mode_words(file, around)]
    parts += [f"{name} is on" for name in (REQUIRE_OFF, OWN_LDCONFIG, OWN_COMPAT_LIBRARIES) if file.value(name) is True]
    if file.value(NO_CGROUPS) is True:
        parts.append(f"{NO_CGROUPS} is on, as rootless engines need it")
    stated = [file.says(name) for name in (MODE, ROOT, NO_CGROUPS) if name in file.stated]
    return Pass(file, "; ".join(parts), (*file.cite("file"), *stated, *_told(file)))


def _mode_words(file: ToolkitFile, around: Surroundings | None) -> str:
    mode = file.value(MODE)
    if mode != "auto":
        return f"mode {mode}"
    if around is None or around.mode is None:
        return f"mode auto, which means legacy before {_dotted(JIT_CDI_SINCE)} and jit-cdi since"
    return f"mode auto, which means {around.mode}"


def _told(file: ToolkitFile) -> Cited:
    return file.version.cite("version") if file.version is not None else ()


def _dotted(release: Release) -> str:
    return ".".join(map(str, release))


def _fail(file: ToolkitFile, summary: str, evidence: Cited, cause: str) -> Fail:
    return Fail(file, summary, evidence, _correct(file), Breaks.SUBJECT, cause=cause)


def _correct(file: ToolkitFile, malformed: bool = False) -> tuple[Remedy, ...]:
    if file.of_operator:
        return (OPERATOR_WRITES,)
    compare = "nvidia-ctk config default    # prints what this release would write"
    edit = Remedy(
        Action.CHANGE_CONFIG,
        "Correct the file; the next container that is started reads it, no service needs a restart.",
        run=(compare, f"cp -a {file.path} {file.path}.bak"),
        confirm=f"gpudoctor run --check {CHECK}",
    )
    if not malformed:
        return (edit,)
    renew = Remedy(
        Action.CHANGE_CONFIG,
        "Or put the release's own defaults in its place; settings made in the old file must be made again.",
        run=(f"mv {file.path} {file.path}.bak", f"nvidia-ctk config default --output={file.path}"),
        interrupts="what the old file set differently",
        confirm=f"gpudoctor run --check {CHECK}",
    )
    return (edit, renew)


def _set(file: ToolkitFile, setting: str) -> Remedy:
    if file.of_operator:
        return OPERATOR_WRITES
    place = "" if file.path.startswith("/etc/") else f" --config-file={file.path}"
    return Remedy(
        Action.CHANGE_CONFIG,
        "Let nvidia-ctk set it; the next container that is started reads it.",
        run=(f"nvidia-ctk config{place} --in-place --set {setting}",),
        confirm=f"gpudoctor run --check {CHECK}",
    )


def _again() -> Remedy:
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Then create the containers concerned anew; a running one keeps what it was started with.",
        interrupts="the containers that are created anew",
        confirm="docker run --rm --gpus all ubuntu nvidia-smi -L    # or a test pod",
        then=True,
    )


OPERATOR_WRITES = Remedy(
    Action.CHANGE_CONFIG,
    "The GPU Operator's toolkit container writes this file anew at each start: change toolkit.env in the ClusterPolicy, not the file.",
    run=("kubectl edit clusterpolicies.nvidia.com    # spec.toolkit.env",),
    interrupts="the toolkit container's pods, which restart the engine",
    confirm=f"gpudoctor run --check {CHECK}",
)
GENERATE = Remedy(
    Action.CHANGE_CONFIG,
    "Have the toolkit write a specification.",
    run=("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",),
    confirm="nvidia-ctk cdi list",
)
LOOK_AT_DRIVER = Remedy(
    Action.RESTART_SERVICE,
    "Where the driver comes in a container, see why that does not run; the root is filled while it does.",
    run=("kubectl get pods -A -l app=nvidia-driver-daemonset -o wide",),
    confirm=f"ls {DRIVER_CONTAINER}",
)
INSTALL_RUNC = Remedy(
    Action.INSTALL_PACKAGE,
    "Install a low-level runtime, or name where it is in `runtimes` by its full path.",
    run=("apt-get install runc    # RHEL: dnf install runc",),
    confirm="command -v runc crun",
)
