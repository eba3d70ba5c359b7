"""What Go's decoders accept in a containerd configuration: which settings there are and of what kind.

containerd/containerd services/server/config/config.go and pkg/cri/config/config.go (v1.6.20, v1.7.34), internal/cri/config/config.go
(v2.1.9); pelletier/go-toml v1.9 marshal.go and v2 unmarshaler.go: another kind of value is an error, an unknown key is not.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Kind: TypeAlias = "type[str] | type[int] | type[bool] | type[object] | list[Any] | dict[str, Any]"
"""A plain type, `object` for anything, a list of a kind, or settings by name, "*" standing for any name."""

_STRINGS, _LIST = {"*": str}, [str]
_PROCESSOR = {"accepts": _LIST, "returns": str, "path": str, "args": _LIST, "env": _LIST}
_PROXY = {"type": str, "address": str}

SERVER: dict[str, Any] = {
    "version": int,
    "root": str,
    "state": str,
    "temp": str,
    "plugin_dir": str,
    "oom_score": int,
    "disabled_plugins": _LIST,
    "required_plugins": _LIST,
    "imports": _LIST,
    "grpc": {
        **dict.fromkeys(("address", "tcp_address", "tcp_tls_ca", "tcp_tls_cert", "tcp_tls_key"), str),
        **dict.fromkeys(("uid", "gid", "max_recv_message_size", "max_send_message_size"), int),
    },
    "ttrpc": {"address": str, "uid": int, "gid": int},
    "debug": {"address": str, "uid": int, "gid": int, "level": str, "format": str},
    "metrics": {"address": str, "grpc_histogram": bool},
    "cgroup": {"path": str},
    "timeouts": _STRINGS,
    "stream_processors": {"*": _PROCESSOR},
    "proxy_plugins": {"*": _PROXY},
    "plugins": {"*": {"*": object}},
}
"""The top of a file."""

_RUNTIME = {
    **dict.fromkeys(("runtime_type", "runtime_path", "base_runtime_spec", "cni_conf_dir", "snapshotter"), str),
    **dict.fromkeys(("sandbox_mode", "sandboxer", "runtime_engine", "runtime_root", "io_type"), str),
    **dict.fromkeys(("privileged_without_host_devices", "privileged_without_host_devices_all_devices_allowed"), bool),
    "cgroup_writable": bool,
    "cni_max_conf_num": int,
    "pod_annotations": _LIST,
    "container_annotations": _LIST,
    "options": {"*": object},
}

CRI: dict[str, Any] = {
    "containerd": {
        "snapshotter": str,
        "default_runtime_name": str,
        "default_runtime": _RUNTIME,
        "untrusted_workload_runtime": _RUNTIME,
        "runtimes": {"*": _RUNTIME},
        **dict.fromkeys(("no_pivot", "disable_snapshot_annotations", "discard_unpacked_layers"), bool),
        **dict.fromkeys(("ignore_rdt_not_enabled_errors", "ignore_blockio_not_enabled_errors"), bool),
    },
    "cni": {
        **dict.fromkeys(("bin_dir", "conf_dir", "conf_template", "ip_pref"), str),
        "bin_dirs": _LIST,
        "max_conf_num": int,
    },
    "registry": {"config_path": str, "mirrors": {"*": {"endpoint": _LIST}}},
    **dict.fromkeys(("enable_cdi", "systemd_cgroup", "enable_selinux", "disable_apparmor", "disable_cgroup"), bool),
    **dict.fromkeys(
        ("restrict_oom_score_adj", "disable_proc_mount", "disable_tcp_service", "enable_tls_streaming"), bool
    ),
    **dict.fromkeys(("tolerate_missing_hugetlb_controller", "disable_hugetlb_controller"), bool),
    **dict.fromkeys(("device_ownership_from_security_context", "ignore_image_defined_volumes"), bool),
    **dict.fromkeys(("netns_mounts_under_state_dir", "enable_unprivileged_ports", "enable_unprivileged_icmp"), bool),
    **dict.fromkeys(("sandbox_image", "stream_server_address", "stream_server_port", "stream_idle_timeout"), str),
    **dict.fromkeys(("unset_seccomp_profile",), str),
    **dict.fromkeys(("selinux_category_range", "stats_collect_period"), int),
    **dict.fromkeys(("max_container_log_line_size", "max_concurrent_downloads"), int),
    "cdi_spec_dirs": _LIST,
}
"""The CRI plugin, under each of its names."""


class WrongKind(Exception):
    """A setting is not of its kind: its name, what it is and what it should be."""

    def __init__(self, name: str, value: object, wanted: str) -> None:
        super().__init__(f"{name} is {_shown(value)}, not {wanted}")
        self.name = name


def spellings(name: str, *, first_generation: bool) -> tuple[str, ...]:
    """Under which keys a setting is found, the first counting: go-toml v1 tries four, v2 takes any case (marshal.go, valueFromTree)."""
    if first_generation:
        return (name, name.lower(), name.upper(), name[:1].lower() + name[1:])
    return (name, name.lower())


def field(table: Mapping[str, Any], name: str, *, first_generation: bool) -> str | None:
    """The key under which a table has a setting."""
    for spelled in spellings(name, first_generation=first_generation):
        if spelled in table:
            return spelled
    if first_generation:
        return None
    return next((key for key in table if key.lower() == name.lower()), None)


def decode(value: Any, kind: Any, name: str = "", *, first_generation: bool) -> Any:
    """The value with only its known settings, under their own names. Raises WrongKind."""
    if kind is object:
        return value
    if isinstance(kind, list):
        if not isinstance(value, list):
            raise WrongKind(name, value, "a list")
        return [decode(one, kind[0], name, first_generation=first_generation) for one in value]
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise WrongKind(name, value, "a table")
        return _table(value, kind, name, first_generation=first_generation)
    wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    if wrong or (kind is int and not -(2**63) <= value < 2**63):
        raise WrongKind(name, value, {int: "a number", str: "a string", bool: "true or false"}[kind])
    return value


def _table(value: dict[str, Any], kind: dict[str, Any], name: str, *, first_generation: bool) -> dict[str, Any]:
    def under(key: str) -> str:
        return f"{name}.{key}" if name else key

    if "*" in kind:
        return {
            key: decode(one, kind["*"], under(key), first_generation=first_generation) for key, one in value.items()
        }
    found = {}
    for key, of in kind.items():
        spelled = field(value, key, first_generation=first_generation)
        if spelled is not None:
            found[key] = decode(value[spelled], of, under(key), first_generation=first_generation)
    return found


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return repr(value)[:60]
