"""What a configuration of containerd gives the kubelet: the runtimes, the default one, and CDI.

pkg/cri/config/config_unix.go and config.go (v1.6.20, v1.7.34), internal/cri/config (v2.1.9): defaults, ValidatePluginConfig. CDI is not
known in 1.6, off in 1.7 and on in 2.x unless enable_cdi says otherwise. go-toml 1 makes `runtimes` anew (marshal.go, valueFromTree): where
a file has that table, the `runc` that is there by default is gone in 1.x. v2 adds to it (unmarshaler.go, handleKeyPart).
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.containerd_config import DEFAULTS, ConfigFile, Loaded, cri_key, cri_table, is_disabled
from gpudoctor.facts.containerd_rules import Rules
from gpudoctor.facts.containerd_types import CRI, decode
from gpudoctor.facts.gpu_specs import DEFAULT_FOLDERS

RUNC = ("io.containerd.runc.v2", "io.containerd.runc.v1")
"""Shims that run an OCI runtime as a program, whose options.BinaryName is the program's (pkg/cri/config, getRuntimeOptionsType)."""


class Runtime(Struct, frozen=True):
    """One entry of `runtimes`. `binary` is its program, empty for runc as it is found along PATH."""

    name: str
    type: str
    binary: str = ""
    systemd_cgroup: bool = False
    without_host_devices: bool = False
    engine: str = ""
    root: str = ""

    @property
    def is_nvidia(self) -> bool:
        """Whether it is NVIDIA's container runtime, by its program or, for one that runs programs, by its name."""
        return "nvidia" in self.binary.rpartition("/")[2] or (self.type in (*RUNC, "") and "nvidia" in self.name)

    @property
    def is_plain(self) -> bool:
        """Whether it runs plain runc."""
        return self.type in RUNC and "nvidia" not in self.binary


class Cri(Struct, frozen=True):
    """What the CRI plugin would know. `key` is the table it looks into; `refused` is why the plugin itself would not start with it.

    `cdi` is None where it depends on a version that is not known.
    """

    key: str
    disabled: bool
    default: str
    runtimes: Mapping[str, Runtime]
    cdi: bool | None
    cdi_folders: tuple[str, ...]
    refused: str = ""

    @property
    def nvidia(self) -> tuple[Runtime, ...]:
        """NVIDIA's runtimes among them."""
        return tuple(runtime for runtime in self.runtimes.values() if runtime.is_nvidia)


class Declared(Struct, frozen=True):
    """An nvidia runtime as some file writes it down, under a plugin's name, with the program it names."""

    file: str
    plugin: str
    name: str
    binary: str


def cri_of(loaded: Loaded, rules: Rules) -> Cri:
    """The CRI plugin's view of a configuration that loads."""
    disabled = is_disabled(loaded, rules)
    table = {} if disabled else decode(cri_table(loaded, rules), CRI, first_generation=rules.first_generation)
    containerd = table.get("containerd", {})
    runtimes = _runtimes(containerd.get("runtimes"), rules)
    default = containerd.get("default_runtime_name", "runc")
    deprecated = containerd.get("default_runtime", {})
    if rules.first_generation and deprecated.get("runtime_type"):
        default, runtimes["default"] = "default", _runtime("default", deprecated)
    folders = tuple(table.get("cdi_spec_dirs", DEFAULT_FOLDERS))
    return Cri(
        key=cri_key(loaded.version, rules),
        disabled=disabled,
        default=default,
        runtimes=runtimes,
        cdi=_cdi(table, rules),
        cdi_folders=folders,
        refused=_refused(table, default, runtimes, rules),
    )


def without_file(rules: Rules) -> Cri:
    """What containerd gives without any configuration file."""
    version = 1 if rules.first_generation else rules.latest
    return cri_of(Loaded((), dict(DEFAULTS), version), rules)


def _cdi(table: Mapping[str, Any], rules: Rules) -> bool:
    if rules.first_generation and not rules.needs_prefix:
        return False
    return bool(table.get("enable_cdi", not rules.first_generation))


def _runtimes(tables: Mapping[str, Any] | None, rules: Rules) -> dict[str, Runtime]:
    plain = {"runc": {"runtime_type": RUNC[0]}}
    if rules.first_generation:
        return {name: _runtime(name, table) for name, table in (plain if tables is None else tables).items()}
    every = plain | {name: plain.get(name, {}) | table for name, table in (tables or {}).items()}
    return {name: _runtime(name, table) for name, table in every.items()}


def _runtime(name: str, table: Mapping[str, Any]) -> Runtime:
    options = {key.lower(): value for key, value in table.get("options", {}).items()}
    binary = options.get("binaryname")
    return Runtime(
        name=name,
        type=table.get("runtime_type", ""),
        binary=binary if isinstance(binary, str) else "",
        systemd_cgroup=options.get("systemdcgroup") is True,
        without_host_devices=table.get("privileged_without_host_devices", False),
        engine=table.get("runtime_engine", ""),
        root=table.get("runtime_root", ""),
    )


def _refused(table: Mapping[str, Any], default: str, runtimes: Mapping[str, Runtime], rules: Rules) -> str:
    """What ValidatePluginConfig and ValidateRuntimeConfig object to, of what concerns runtimes and registries."""
    if not default:
        return "default_runtime_name is empty"
    if default not in runtimes:
        return f"default_runtime_name is {default!r}, which runtimes does not define"
    if not rules.first_generation:
        return ""
    if table.get("systemd_cgroup") and runtimes[default].type != "io.containerd.runtime.v1.linux":
        return "systemd_cgroup = true works only with the old runtime io.containerd.runtime.v1.linux"
    old = next(
        (one for one in runtimes.values() if one.type != "io.containerd.runtime.v1.linux" and (one.engine or one.root)),
        None,
    )
    if old is not None:
        setting = "runtime_engine" if old.engine else "runtime_root"
        return f"{setting} of runtime {old.name!r} works only with the old runtime io.containerd.runtime.v1.linux"
    registry = table.get("registry", {})
    if registry.get("config_path") and registry.get("mirrors"):
        return "registry.mirrors cannot be set when registry.config_path is"
    return ""


def declared(file: ConfigFile) -> tuple[Declared, ...]:
    """The nvidia runtimes that a file writes down, whichever plugin it writes them under and whether or not that is looked at."""
    return tuple(
        Declared(file.path, plugin, name, runtime.binary)
        for plugin, table in file.settings.get("plugins", {}).items()
        for name, entry in _tables(table, "containerd", "runtimes").items()
        if isinstance(entry, dict) and (runtime := _shown(name, entry)).is_nvidia and "nvidia" in runtime.binary
    )


def _shown(name: str, entry: Mapping[str, Any]) -> Runtime:
    options = entry.get("options")
    kind = entry.get("runtime_type")
    return _runtime(
        name,
        {
            "options": options if isinstance(options, dict) else {},
            "runtime_type": kind if isinstance(kind, str) else "",
        },
    )


def _tables(table: Any, *names: str) -> Mapping[str, Any]:
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}
