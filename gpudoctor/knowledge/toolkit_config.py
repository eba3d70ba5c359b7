"""The keys of the NVIDIA Container Toolkit's config.toml: what each release reads, its default, and what a wrong value does.

Read from the tags v1.10.0 to v1.20.0 of NVIDIA/nvidia-container-toolkit (internal/config, from 1.19 on api/config/v1; up to 1.13 the hook's
own cmd/nvidia-container-runtime-hook/hook_config.go) on 2026-11-30. 1.20.0 of 2026-08-12 is the newest release known here.
"""

from enum import Enum

from msgspec import Struct

Release = tuple[int, ...]

OLDEST: Release = (1, 10, 0)
"""Releases before this one were not read; keys of this release count as known to them."""
NEWEST: Release = (1, 20, 0)


class Kind(str, Enum):
    """What a key's value must be; another kind makes the whole file invalid (go-toml, Tree.Unmarshal)."""

    FLAG = "true or false"
    TEXT = "a text"
    TEXTS = "a list of texts"

    def fits(self, value: object) -> bool:
        """Whether a value of a parsed file is of this kind."""
        match self:
            case Kind.FLAG:
                return isinstance(value, bool)
            case Kind.TEXT:
                return isinstance(value, str)
            case Kind.TEXTS:
                return isinstance(value, list) and all(isinstance(one, str) for one in value)


class Key(Struct, frozen=True):
    """One key by its dotted name; `until` is the first release that no longer reads it."""

    name: str
    kind: Kind
    default: bool | str | tuple[str, ...] | None
    since: Release = OLDEST
    until: Release | None = None


_FLAG, _TEXT, _TEXTS = Kind.FLAG, Kind.TEXT, Kind.TEXTS
_CLI, _RUNTIME, _HOOK = "nvidia-container-cli", "nvidia-container-runtime", "nvidia-container-runtime-hook"
_MODES = f"{_RUNTIME}.modes"

MODE, RUNTIMES, ROOT = f"{_RUNTIME}.mode", f"{_RUNTIME}.runtimes", f"{_CLI}.root"
NO_CGROUPS, LDCONFIG = f"{_CLI}.no-cgroups", f"{_CLI}.ldconfig"
SPEC_DIRS = f"{_MODES}.cdi.spec-dirs"
SKIP_MODE_DETECTION = f"{_HOOK}.skip-mode-detection"
COMPAT_MODE = f"{_MODES}.legacy.cuda-compat-mode"
CAPABILITIES = "supported-driver-capabilities"
BY_VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
BY_MOUNT = "accept-nvidia-visible-devices-as-volume-mounts"
NO_COMPAT_HOOK = "features.disable-cuda-compat-lib-hook"
OWN_LDCONFIG = "features.allow-ldconfig-from-container"
OWN_COMPAT_LIBRARIES = "features.allow-cuda-compat-libs-from-container"
REQUIRE_OFF = "disable-require"

KEYS = (
    Key(REQUIRE_OFF, _FLAG, False),
    Key("swarm-resource", _TEXT, ""),
    Key(BY_VARIABLE, _FLAG, True),
    Key(BY_MOUNT, _FLAG, False),
    Key(CAPABILITIES, _TEXT, "compat32,compute,display,graphics,ngx,utility,video"),
    Key(ROOT, _TEXT, ""),
    Key(f"{_CLI}.path", _TEXT, ""),
    Key(f"{_CLI}.environment", _TEXTS, ()),
    Key(f"{_CLI}.debug", _TEXT, ""),
    Key(f"{_CLI}.ldcache", _TEXT, ""),
    Key(f"{_CLI}.load-kmods", _FLAG, True),
    Key(f"{_CLI}.no-pivot", _FLAG, False),
    Key(NO_CGROUPS, _FLAG, False),
    Key(f"{_CLI}.user", _TEXT, ""),
    Key(LDCONFIG, _TEXT, "@/sbin/ldconfig"),
    Key(f"{_RUNTIME}.debug", _TEXT, "/dev/null"),
    Key(f"{_RUNTIME}.log-level", _TEXT, "info"),
    Key(RUNTIMES, _TEXTS, ("runc", "crun")),
    Key(MODE, _TEXT, "auto"),
    Key(f"{_MODES}.csv.mount-spec-path", _TEXT, "/etc/nvidia-container-runtime/host-files-for-container.d"),
    Key(f"{_MODES}.csv.compat-container-root", _TEXT, "", since=(1, 19, 0)),
    Key(SPEC_DIRS, _TEXTS, ("/etc/cdi", "/var/run/cdi"), since=(1, 11, 0)),
    Key(f"{_MODES}.cdi.default-kind", _TEXT, "nvidia.com/gpu", since=(1, 13, 0)),
    Key(f"{_MODES}.cdi.annotation-prefixes", _TEXTS, ("cdi.k8s.io/",), since=(1, 13, 0)),
    Key(f"{_MODES}.jit-cdi.nvcdi-feature-flags", _TEXTS, (), since=(1, 18, 1)),
    Key(f"{_MODES}.jit-cdi.nvcdi-disable-hooks", _TEXTS, (), since=(1, 20, 0)),
    Key(COMPAT_MODE, _TEXT, "ldconfig", since=(1, 17, 7)),
    Key(f"{_HOOK}.path", _TEXT, _HOOK, since=(1, 13, 2)),
    Key(SKIP_MODE_DETECTION, _FLAG, False, since=(1, 13, 0)),
    Key("nvidia-ctk.path", _TEXT, "nvidia-ctk"),
    Key("features.gds", _FLAG, None, since=(1, 15, 0), until=(1, 17, 0)),
    Key("features.mofed", _FLAG, None, since=(1, 15, 0), until=(1, 17, 0)),
    Key("features.nvswitch", _FLAG, None, since=(1, 15, 0), until=(1, 17, 0)),
    Key("features.gdrcopy", _FLAG, None, since=(1, 15, 0), until=(1, 17, 0)),
    Key("features.disable-imex-channel-creation", _FLAG, None, since=(1, 17, 0)),
    Key(OWN_LDCONFIG, _FLAG, None, since=(1, 17, 3)),
    Key(OWN_COMPAT_LIBRARIES, _FLAG, None, since=(1, 17, 4)),
    Key(NO_COMPAT_HOOK, _FLAG, None, since=(1, 17, 5)),
    Key("features.ignore-imex-channel-requests", _FLAG, None, since=(1, 17, 5)),
    Key("features.allow-unknown-oci-spec-fields", _FLAG, None, since=(1, 19, 0)),
    Key("features.no-additional-gids-for-device-nodes", _FLAG, None, since=(1, 19, 0)),
)
BY_NAME = {key.name: key for key in KEYS}
TABLES = frozenset(name.rsplit(".", depth)[0] for name in BY_NAME for depth in range(1, name.count(".") + 1))
"""The tables that keys are in, each with those above it."""

MODES = ("auto", "legacy", "csv", "cdi", "jit-cdi")
"""Values of `nvidia-container-runtime.mode`; another one makes the runtime refuse every container ("invalid runtime mode")."""
JIT_CDI_SINCE: Release = (1, 18, 0)
"""jit-cdi is known, and is what `auto` means, since 1.18.0 (CHANGELOG: "Default to jit-cdi mode in the nvidia runtime"); before, legacy."""
COMPAT_MODES = ("disabled", "hook", "ldconfig", "mount")
"""Values of `cuda-compat-mode`; the hook takes any other for `disabled` (nvidiaContainerCliCUDACompatModeFlags)."""
DRIVER_CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
"""What `supported-driver-capabilities` may name, or `all`; anything else makes the hook panic (hook_config.go)."""
LDCONFIG_REPAIRED_SINCE: Release = (1, 15, 0)
"""Since then the hook takes PATH.real where it exists and else PATH, whichever of the two is written (NormalizeLDConfigPath)."""
LDCONFIG_OF_HOST_SINCE: Release = (1, 17, 3)
"""Since then a path without a leading @ makes the file invalid unless features.allow-ldconfig-from-container is on (assertValid)."""


def default_runtimes(release: Release | None) -> tuple[str, ...]:
    """The low-level runtimes that are looked for where the file names none: crun came with 1.14.4, docker-runc went with 1.18.0."""
    if release is None or release >= (1, 18, 0):
        return ("runc", "crun")
    return ("docker-runc", "runc", "crun") if release >= (1, 14, 4) else ("docker-runc", "runc")


def auto_means(release: Release | None, tegra: bool) -> str | None:
    """The mode that `auto` stands for, for a container that names no CDI device; None where that depends on a release that is not known.

    With fully-qualified CDI names only it is cdi, on Tegra without NVML csv (internal/info/auto.go).
    """
    if tegra:
        return "csv"
    return None if release is None else "jit-cdi" if release >= JIT_CDI_SINCE else "legacy"
