"""How containerd 2.x puts its files together, by the cases of upstream's own tests: this machine's containerd is of 1.x.

containerd/containerd cmd/containerd/server/config/config_test.go and plugins/cri/runtime/plugin_test.go at v2.3.4; what 2.0 to 2.2 do
otherwise follows from LoadConfig and New (cmd/containerd/server/server.go) at v2.0.0 and v2.2.7.
"""

from typing import Any

import pytest

from gpudoctor.facts.containerd_config import Loaded, Refused, load
from gpudoctor.facts.containerd_cri import Cri, cri_of
from gpudoctor.facts.containerd_merge import full_name, split_cri
from gpudoctor.facts.containerd_rules import CRI_RUNTIME_URI, CRI_URI, NEW, NEWEST, OLD, Rules
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.verdicts import Unread
from tests.captures import Builder

RUNC_OPTIONS = (
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]\nSystemdCgroup = true\n'
)
NVIDIA = (
    '[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "nvidia"\n'
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
    'BinaryName = "/usr/bin/nvidia-container-runtime"\nSystemdCgroup = true\n'
)
NVIDIA_3 = NVIDIA.replace(CRI_URI, CRI_RUNTIME_URI)
DEFAULT_RUNC = '[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "runc"\n'


def read(rules: Rules, *texts: str) -> Loaded | Refused:
    """The first file, with all others as files that it imports in their order."""
    builder = Builder()
    names = [f"data{number}.toml" for number in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        builder.text(f"/c/{name}", text)
    found = load(RecordedNode(builder.tree, complete=["/c"]), "/c/data0.toml", rules)
    assert isinstance(found, Loaded | Refused), found
    return found


def loaded(rules: Rules, *texts: str) -> Loaded:
    """The same, which must load."""
    found = read(rules, *texts)
    assert isinstance(found, Loaded), found
    return found


def view(rules: Rules, *texts: str) -> Cri:
    """What the CRI plugin gets."""
    return cri_of(loaded(rules, *texts), rules)


def main(text: str, version: int = 2, count: int = 1) -> str:
    """A main file that imports others."""
    imports = ", ".join(f'"data{number + 1}.toml"' for number in range(count))
    return f"{f'version = {version}' if version else ''}\nimports = [{imports}]\n{text}"


@pytest.mark.parametrize("rules", [NEW, NEWEST])
def test_two_drop_ins_with_runtimes_are_both_there(rules: Rules) -> None:
    """TestMergingPluginsWithTwoCriRuntimeDropInConfigs."""
    both = view(rules, main(RUNC_OPTIONS), f"version = 2\n{NVIDIA}")
    assert (both.default, sorted(both.runtimes), both.runtimes["runc"].systemd_cgroup) == (
        "nvidia",
        ["nvidia", "runc"],
        True,
    )
    last = view(rules, main(RUNC_OPTIONS, count=2), f"version = 2\n{NVIDIA}", f"version = 2\n{DEFAULT_RUNC}")
    assert (last.default, sorted(last.runtimes)) == ("runc", ["nvidia", "runc"])
    other = view(rules, main(RUNC_OPTIONS, count=2), f"version = 2\n{DEFAULT_RUNC}", f"version = 2\n{NVIDIA}")
    assert other.default == "nvidia"
    # The same files in 1.x: the last table of the plugin is the whole.
    assert sorted(view(OLD, main(RUNC_OPTIONS), f"version = 2\n{NVIDIA}").runtimes) == ["nvidia"]


@pytest.mark.parametrize("rules", [NEW, NEWEST])
def test_lists_of_plugins_are_replaced_and_those_at_the_top_joined(rules: Rules) -> None:
    """TestMergingPluginsWithTwoCriRuntimeWithPodAnnotationsDropInConfigs and TestMergeConfigs."""
    table = '[plugins."io.containerd.own.v1.x"]\n'
    one = main(
        f'disabled_plugins = ["io.containerd.a"]\noom_score = 2\nroot = "/a"\n{table}list = ["a", "b"]\ndir = "/foo"\n'
    )
    two = (
        f'version = 2\ndisabled_plugins = ["io.containerd.a", "io.containerd.b"]\noom_score = 0\n{table}list = ["c"]\n'
    )
    found = loaded(rules, one, two)
    assert found.plugins["io.containerd.own.v1.x"] == {"list": ["c"], "dir": "/foo"}
    assert found.disabled == ("io.containerd.a", "io.containerd.b")
    assert (found.settings["oom_score"], found.settings["root"]) == (2, "/a")


@pytest.mark.parametrize("rules", [OLD, NEW, NEWEST])
def test_circles_end(rules: Rules) -> None:
    """TestLoadConfigWithCircularImports."""
    one = 'version = 2\nimports = ["data1.toml", "data0.toml"]\n'
    two = 'version = 2\ndisabled_plugins = ["io.containerd.v1.xyz"]\nimports = ["data0.toml", "data1.toml"]\n'
    found = loaded(rules, one, two)
    assert [file.path for file in found.files] == ["/c/data0.toml", "/c/data1.toml"]
    assert found.disabled == ("io.containerd.v1.xyz",)


def test_the_highest_version_does_not_win_the_last_one_does() -> None:
    """TestLoadConfigWithImportsWithHigerVersion, and LoadConfigWithPlugins of v2.3.4."""
    assert loaded(NEW, main("", 2), "version = 3\n").version == 3
    assert loaded(NEW, main("", 3), "version = 2\n").version == 2
    refused = read(NEWEST, main("", 2), "version = 3\n")
    assert isinstance(refused, Refused) and "higher than that of the main file, 2" in refused.said
    assert loaded(NEWEST, main("", 3), "version = 2\n").version == 4


@pytest.mark.parametrize("rules", [NEW, NEWEST])
def test_a_file_without_version_is_of_version_1(rules: Rules) -> None:
    """TestLoadConfigWithDefaultConfigVersion (containerd/containerd#10905)."""
    found = loaded(rules, 'disabled_plugins = ["cri"]\n')
    assert found.disabled == (CRI_URI,)
    assert cri_of(found, rules).disabled


def test_a_cri_table_of_version_1_is_converted_since_2_3() -> None:
    """In 2.0 to 2.2 a main file without version makes the whole count as version 3, which is not converted further."""
    text = NVIDIA.replace('"io.containerd.grpc.v1.cri"', "cri")
    assert "nvidia" in view(NEWEST, text).runtimes
    assert "nvidia" not in view(NEW, text).runtimes


def test_files_of_two_versions_together() -> None:
    """By LoadConfig and New of v2.0.0: the version of the last file decides whether anything is converted."""
    assert "nvidia" not in view(NEW, main(NVIDIA, 2), "version = 3\n").runtimes
    assert "nvidia" in view(NEW, main(NVIDIA_3, 3), "version = 2\n").runtimes
    assert "nvidia" in view(NEW, main("", 3), f"version = 2\n{NVIDIA}").runtimes
    # What is in the new place already has runtimes: the old ones are not added to them.
    kata = f'[plugins."{CRI_RUNTIME_URI}".containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
    assert "nvidia" not in view(NEW, main(kata, 3), f"version = 2\n{NVIDIA}").runtimes
    assert "nvidia" in view(NEWEST, main(kata, 3), f"version = 2\n{NVIDIA}").runtimes


def test_the_cri_plugin_is_split() -> None:
    """TestCRIRuntimePluginConfigMigration."""
    old: dict[str, Any] = {
        "enable_selinux": True,
        "max_container_log_line_size": 100,
        "sandbox_image": "pause",
        "stream_server_port": "0",
        "containerd": {"snapshotter": "x", "default_runtime_name": "nvidia", "runtimes": {"nvidia": {}}},
    }
    plugins = {CRI_URI: old}
    split_cri(plugins)
    assert plugins[CRI_RUNTIME_URI] == {
        "enable_selinux": True,
        "max_container_log_line_size": 100,
        "containerd": {"default_runtime_name": "nvidia", "runtimes": {"nvidia": {}}},
    }
    assert plugins[CRI_URI] == {"stream_server_port": "0"}


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("cri", CRI_URI),
        ("tasks-service", "io.containerd.service.v1.tasks-service"),
        ("zfs", "io.containerd.snapshotter.v1.zfs"),
        ("unheard", "io.containerd.grpc.v1.unheard"),
        ("io.containerd.x", "io.containerd.x"),
    ],
)
def test_names_of_version_1(short: str, full: str) -> None:
    """v1MigratePluginName."""
    assert full_name(short) == full


def test_cdi_is_on_since_2_0_and_may_be_on_in_1_7() -> None:
    """DefaultConfig of v1.7.34 and DefaultRuntimeConfig of v2.1.9; v1.6.20 has no such setting."""
    on = f'version = 2\n[plugins."{CRI_URI}"]\nenable_cdi = true\ncdi_spec_dirs = ["/x"]\n'
    off = on.replace("true", "false")
    six = Rules("containerd 1.6.20", latest=2)
    assert [view(rules, "version = 2\n").cdi for rules in (six, OLD, NEW, NEWEST)] == [False, False, True, True]
    assert [view(rules, on).cdi for rules in (six, OLD, NEW, NEWEST)] == [False, True, True, True]
    assert [view(rules, off).cdi for rules in (OLD, NEW, NEWEST)] == [False, False, False]
    assert view(NEW, on).cdi_folders == ("/x",)


def test_what_is_nested_too_deeply_is_not_known() -> None:
    builder = Builder()
    builder.text("/c.toml", "[plugins." + ".".join("a" * 3000) + "]\n")
    found = load(RecordedNode(builder.tree, complete=["/"]), "/c.toml", NEW)
    assert isinstance(found, Unread) and "nested too deeply" in found.detail
