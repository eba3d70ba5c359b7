"""How containerd puts the files of its configuration together, and converts those of older versions: on plain tables.

containerd/containerd: mergeConfig in services/server/config/config.go (v1.6.20, v1.7.34) and cmd/containerd/server/config/config.go
(v2.0.0 to v2.3.4, whose cases are in config_test.go: TestMergeConfigs, TestMergingPluginsWithTwoCriRuntimeDropInConfigs);
dario.cat/mergo merge.go, deepMerge with WithOverride; plugins/cri/{cri.go,runtime/plugin.go}, configMigration.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from gpudoctor.facts.containerd_rules import CRI_NAME, CRI_RUNTIME_URI, CRI_URI, Rules

Settings = dict[str, Any]
"""Decoded settings by name."""

_BY_KEY = ("stream_processors", "proxy_plugins", "timeouts")
_LISTS = ("disabled_plugins", "required_plugins", "imports")
_TABLES = ("grpc", "ttrpc", "debug", "metrics", "cgroup")


def merge(into: Settings, new: Settings, rules: Rules) -> None:
    """One more file over what there is. A value that is empty, 0 or false at the top overrides nothing, so that it cannot be unset."""
    for name, value in new.items():
        if name == "plugins":
            _merge_plugins(into.setdefault("plugins", {}), value, rules)
        elif name in _BY_KEY:
            into.setdefault(name, {}).update(deepcopy(value))
        elif name in _LISTS:
            present = into.setdefault(name, [])
            # 1.x appends with what is there already (mergo.WithAppendSlice), 2.x only what is not (sliceTransformer).
            present += value if rules.first_generation or not present else [one for one in value if one not in present]
        elif name in _TABLES:
            into.setdefault(name, {}).update({key: one for key, one in value.items() if one})
        elif value:
            into[name] = value


def _merge_plugins(into: Settings, new: Settings, rules: Rules) -> None:
    """1.x takes the whole table of a plugin from the last file that has one; 2.x merges them key by key, lists being replaced."""
    if rules.first_generation:
        into.update(deepcopy(new))
        return
    _merge_deeply(into, new)


def _merge_deeply(into: Settings, new: Settings) -> None:
    for key, value in new.items():
        present = into.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge_deeply(present, value)
        elif isinstance(value, dict | list) and key in into and present and not isinstance(present, type(value)):
            # mergo cannot set what is of another kind inside an interface, and goes on.
            continue
        else:
            into[key] = deepcopy(value)


_FULL_NAMES = {
    CRI_NAME: CRI_URI,
    "cgroups": "io.containerd.monitor.v1.cgroups",
    "linux": "io.containerd.runtime.v1.linux",
    "scheduler": "io.containerd.gc.v1.scheduler",
    "bolt": "io.containerd.metadata.v1.bolt",
    "task": "io.containerd.runtime.v2.task",
    "opt": "io.containerd.internal.v1.opt",
    "restart": "io.containerd.internal.v1.restart",
    **{
        name: f"io.containerd.snapshotter.v1.{name}"
        for name in ("aufs", "btrfs", "devmapper", "native", "overlayfs", "zfs", "windows", "windows-lcow")
    },
}


def full_name(plugin: str) -> str:
    """A plugin of a version 1 configuration as version 2 calls it (v1MigratePluginName)."""
    if "." in plugin:
        return plugin
    if plugin.endswith("-service"):
        return f"io.containerd.service.v1.{plugin}"
    return _FULL_NAMES.get(plugin, f"io.containerd.grpc.v1.{plugin}")


def name_fully(settings: Settings) -> None:
    """Version 1 to 2 (v1Migrate), which only 2.x does."""
    if "plugins" in settings:
        settings["plugins"] = {full_name(name): table for name, table in settings["plugins"].items()}
    for name in ("disabled_plugins", "required_plugins"):
        if name in settings:
            settings[name] = [full_name(plugin) for plugin in settings[name]]


_OF_IMAGES = {
    "sandbox_image",
    "registry",
    "image_decryption",
    "max_concurrent_downloads",
    "image_pull_progress_timeout",
    "image_pull_with_sync_fs",
    "stats_collect_period",
}
_OF_SERVER = {
    "disable_tcp_service",
    "stream_server_address",
    "stream_server_port",
    "stream_idle_timeout",
    "enable_tls_streaming",
    "x509_key_pair_streaming",
}


def split_cri(plugins: Settings) -> None:
    """Version 2 to 3: the CRI plugin's table is split, what stands in the new place already being kept, table by table."""
    old = plugins.get(CRI_URI)
    if not isinstance(old, dict):
        return
    new = plugins.get(CRI_RUNTIME_URI)
    new = new if isinstance(new, dict) else {}
    _fill(new, old, _OF_IMAGES | _OF_SERVER | {"containerd", "cni"})
    containerd = old.get("containerd")
    if isinstance(containerd, dict):
        target = new.get("containerd")
        target = target if isinstance(target, dict) else {}
        _fill(target, containerd, {"snapshotter", "disable_snapshot_annotations", "discard_unpacked_layers"})
        new["containerd"] = target
    plugins[CRI_RUNTIME_URI] = new
    plugins[CRI_URI] = {key: value for key, value in old.items() if key in _OF_SERVER}


def _fill(new: Settings, old: Mapping[str, Any], but: set[str]) -> None:
    for key, value in old.items():
        if key not in but and key not in new:
            new[key] = deepcopy(value)
