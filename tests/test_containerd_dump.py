"""Our reading of containerd's configuration against `containerd config dump`: generated trees of files that import each other."""

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from gpudoctor.facts.containerd_config import Loaded, Refused, load
from gpudoctor.facts.containerd_cri import Cri, cri_of
from gpudoctor.facts.containerd_rules import CRI_URI, Rules, rules_for
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.facts.software import Version, parse_version
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Evidence
from tests.captures import Builder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES, FLOOR = 400, 200
CONTAINERD = shutil.which("containerd")

PLUGINS: dict[str, dict[str, tuple[Any, ...]]] = {
    "io.containerd.gc.v1.scheduler": {"pause_threshold": (0.02, 0.03), "schedule_delay": ("1s", "2s")},
    "io.containerd.internal.v1.opt": {"path": ("/opt/a", "/opt/b")},
    "io.containerd.metadata.v1.bolt": {"content_sharing_policy": ("shared", "isolated")},
    "io.containerd.runtime.v2.task": {"sched_core": (True, False), "platforms": (["linux/arm64"], ["linux/amd64"])},
    "io.containerd.monitor.v1.cgroups": {"no_prometheus": (True, False)},
}
"""Plugins that containerd prints with their settings, beside the CRI plugin."""

SHORT = {uri: uri.rpartition(".")[2] for uri in (*PLUGINS, CRI_URI)}
TOP: dict[str, tuple[Any, ...]] = {
    "root": ("", "/r1", "/r2"),
    "state": ("", "/s1", "/s2"),
    "temp": ("", "/t1"),
    "oom_score": (0, -5, 7),
    "required_plugins": ([], ["io.containerd.a.v1.x"], ["io.containerd.a.v1.x", "io.containerd.a.v1.y"]),
    "disabled_plugins": ([], ["io.containerd.grpc.v1.cri"], ["io.containerd.snapshotter.v1.zfs"], ["cri"], ["x", "x"]),
}
TABLES: dict[str, dict[str, tuple[Any, ...]]] = {
    "grpc": {"address": ("", "/g1", "/g2"), "uid": (0, 5), "max_recv_message_size": (0, 99)},
    "ttrpc": {"address": ("", "/tt"), "gid": (0, 6)},
    "debug": {"level": ("", "info", "debug"), "format": ("", "json")},
    "metrics": {"address": ("", "m:1"), "grpc_histogram": (True, False)},
    "cgroup": {"path": ("", "/cg")},
}
RUNTIMES = ("runc", "nvidia", "nvidia-cdi", "crun", "kata")
BROKEN = (
    "a = 1\na = 2",
    "[[plugins]]",
    'imports = "x.toml"',
    'oom_score = "5"',
    "root = 5",
    "version = '2'",
    "[grpc]\nuid = true",
    "[metrics]\ngrpc_histogram = 'yes'",
    "x = ",
    "[a\nb = 1",
    "[a]\n[a]",
    "plugins = 5",
    "[timeouts]\nx = 5",
    'root = "\\x41"',
    "[plugins]\nx = 5",
    "disabled_plugins = [1]",
    "x = [1,,2]",
    "= 5",
    "a.b = 1\na.b = 2",
    "imports = [5]",
    "[stream_processors.a]\naccepts = 'x'",
    "oom_score = 99999999999999999999",
    "cgroup = 5",
    "x = {a = 1,}",
)
BROKEN_CRI = (
    "enable_selinux = 'yes'",
    "sandbox_image = 5",
    "containerd = 5",
    "max_concurrent_downloads = '3'",
    "containerd.default_runtime_name = true",
    "containerd.runtimes = 5",
    "containerd.runtimes.nvidia = 'x'",
    "containerd.runtimes.nvidia.runtime_type = 5",
    "containerd.runtimes.nvidia.pod_annotations = 'x'",
    "containerd.runtimes.nvidia.options = 5",
    "containerd.runtimes.nvidia.privileged_without_host_devices = 'no'",
)


class Case(Struct):
    """A tree of files, by path below its folder; the first is the main one. A path that ends in a slash is a folder."""

    files: dict[str, str]
    main: str = "config.toml"


def quoted(value: object) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(quoted(one) for one in value)}]"
    return repr(value) if isinstance(value, int | float) else f'"{value}"'


class Maker:
    """Makes one case after another out of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the same cases every time

    def some(self, chance: float) -> bool:
        return self.random.random() < chance

    def case(self, folder: Path) -> Case:
        names = ["config.toml"]
        for number in range(self.random.choice((0, 1, 1, 2, 2, 3, 4, 6))):
            where = self.random.choice(("", "conf.d/", "conf.d/", "deep/er/", "a b/"))
            names.append(
                f"{where}{self.random.choice(('', '.', '9'))}f{number}{self.random.choice(('.toml', '.toml', '.conf'))}"
            )
        version = self.random.choice((0, 0, 1, 2, 2, 2, 2, 3))
        files = {name: self.file(folder, name, names, version) for name in names}
        if self.some(0.06):
            files["conf.d/dir.toml/"] = ""
        if self.some(0.05):
            files[self.random.choice(names)] = ""
        if self.some(0.12):
            victim = self.random.choice(names)
            files[victim] = files[victim] + "\n[late]\n" if self.some(0.2) else self.random.choice(BROKEN)
        return Case(files)

    def file(self, folder: Path, name: str, names: list[str], version: int) -> str:
        own = version if self.some(0.75) else self.random.choice((0, 1, 2))
        lines = [f"version = {own}"] if own or self.some(0.2) else []
        chance = 0.8 if name == "config.toml" else 0.25
        if self.some(chance):
            lines.append(f"imports = {quoted(self.imports(folder, names))}")
        for key, values in TOP.items():
            if self.some(0.25):
                lines.append(f"{key} = {quoted(self.random.choice(values))}")
        if self.some(0.1):
            lines.append('unknown = "kept out"')
        for table, settings in TABLES.items():
            if self.some(0.2):
                lines.append(f"[{table}]")
                lines += [
                    f"{key} = {quoted(self.random.choice(values))}"
                    for key, values in settings.items()
                    if self.some(0.6)
                ]
        if self.some(0.15):
            lines += [
                "[timeouts]",
                f'"io.containerd.timeout.shim.load" = "{self.random.randint(1, 9)}s"',
                '"own.timeout" = "1s"',
            ]
        if self.some(0.1):
            lines += [
                f"[proxy_plugins.p{self.random.randint(1, 2)}]",
                'type = "snapshot"',
                f'address = "/p{self.random.randint(1, 9)}"',
            ]
        if self.some(0.1):
            lines += ['[stream_processors."own"]', f'path = "/x{self.random.randint(1, 9)}"', 'args = ["a"]']
        lines += self.plugins(own or version)
        return "\n".join(lines) + "\n"

    def imports(self, folder: Path, names: list[str]) -> list[str]:
        choices = [
            *(name for name in names),
            *(f"./conf.d/../{name}" for name in names),
            *(f"{folder}/{name}" for name in names),
            f"{folder}/conf.d/*.toml",
            f"{folder}/conf.d/*.toml",
            f"{folder}/*/*.toml",
            f"{folder}/conf.?/*",
            f"{folder}/[a-d]*/f[^0-3]*.toml",
            f"{folder}/nothing/*.toml",
            "conf.d/*.toml",
            "*.conf",
            f"{folder}//conf.d/./*.conf",
        ]
        picked = [self.random.choice(choices) for _ in range(self.random.choice((1, 1, 2, 3)))]
        if self.some(0.05):
            picked.append(
                self.random.choice(("gone.toml", f"{folder}/gone/x.toml", f"{folder}/[*", "conf.d", "con?.d/f0.toml"))
            )
        return picked

    def plugins(self, version: int) -> Iterator[str]:
        for uri, settings in PLUGINS.items():
            if self.some(0.2):
                yield f'[plugins."{self.name(uri, version)}"]'
                for key, values in settings.items():
                    if self.some(0.7):
                        yield f"{key} = {quoted(self.random.choice(values))}"
        if self.some(0.1):
            yield f'[plugins."io.containerd.own.v1.{self.random.choice("ab")}"]'
        if self.some(0.03):
            yield '[plugins."a.b"]'
        if self.some(0.7):
            yield from self.cri(f'plugins."{self.name(CRI_URI, version)}"')

    def name(self, uri: str, version: int) -> str:
        other = self.some(0.07)
        return SHORT[uri] if (version < 2) is not other else uri

    def cri(self, plugin: str) -> Iterator[str]:
        yield f"[{plugin}]"
        if self.some(0.04):
            yield self.random.choice(BROKEN_CRI)
            return
        if self.some(0.3):
            yield f'sandbox_image = "image:{self.random.randint(1, 9)}"'
        if self.some(0.2):
            yield f"enable_selinux = {quoted(self.some(0.5))}"
        if self.some(0.2):
            yield f"max_concurrent_downloads = {self.random.randint(0, 9)}"
        if self.some(0.5):
            yield f"[{plugin}.containerd]"
            if self.some(0.7):
                yield f'default_runtime_name = "{self.random.choice((*RUNTIMES, ""))}"'
            if self.some(0.2):
                yield f'snapshotter = "{self.random.choice(("native", "zfs"))}"'
        for name in RUNTIMES:
            if self.some(0.35):
                yield from self.runtime(f"{plugin}.containerd.runtimes.{name}")

    def runtime(self, table: str) -> Iterator[str]:
        yield f"[{table}]"
        if self.some(0.8):
            yield f'runtime_type = "io.containerd.{self.random.choice(("runc", "runc", "kata"))}.v2"'
        if self.some(0.3):
            yield f"privileged_without_host_devices = {quoted(self.some(0.5))}"
        if self.some(0.3):
            yield f'pod_annotations = ["{self.random.choice("ab")}"]'
        if self.some(0.7):
            yield f"[{table}.options]"
            if self.some(0.8):
                yield f'BinaryName = "/usr/bin/{self.random.choice(("nvidia-container-runtime", "runc", ""))}"'
            if self.some(0.5):
                yield f"SystemdCgroup = {quoted(self.some(0.7))}"


def put(case: Case, folder: Path) -> RecordedNode:
    """The files on disk, and as a recording of them."""
    builder = Builder()
    for name, text in case.files.items():
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            builder.tree.put(str(path), Record(entry=Entry(str(path), EntryType.DIR)))
        else:
            path.write_text(text)
            builder.text(str(path), text)
    return RecordedNode(builder.tree, complete=["/"])


def dump(folder: Path, main: str) -> dict[str, Any] | str:
    """What containerd prints, or why it refuses. A service's working directory is /."""
    assert CONTAINERD is not None
    argv = [CONTAINERD, "--config", str(folder / main), "config", "dump"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", timeout=60, check=False)
    return tomllib.loads(done.stdout) if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]


@pytest.fixture(scope="module")
def rules() -> Rules:
    """The rules of the containerd that is installed."""
    if CONTAINERD is None:
        pytest.skip("containerd is not installed (tests/install-packages.sh)")
    said = subprocess.run([CONTAINERD, "--version"], capture_output=True, text=True, check=True).stdout.split()
    version = parse_version("containerd", said[2], Evidence("containerd --version", said[2]))
    assert isinstance(version, Version)
    if not version.before(2):
        pytest.skip(f"{version}: its dump is of another form; 2.x is proved by cases of upstream's own tests")
    return rules_for(version)


def expected(loaded: Loaded, defaults: dict[str, Any]) -> dict[str, Any]:
    """What we hold for effective, with containerd's defaults for what the files leave open."""
    found: dict[str, Any] = {}
    for name in TOP:
        found[name] = loaded.settings.get(name, defaults[name])
    for name in TABLES:
        found[name] = defaults[name] | loaded.settings.get(name, {})
    found["timeouts"] = defaults["timeouts"] | loaded.settings.get("timeouts", {})
    found["proxy_plugins"] = loaded.settings.get("proxy_plugins", {})
    processors = {
        name: {"accepts": [], "returns": "", "path": "", "args": [], "env": []} | one
        for name, one in loaded.settings.get("stream_processors", {}).items()
    }
    found["stream_processors"] = defaults["stream_processors"] | processors
    found["imports"] = sorted(file.path for file in loaded.files)
    for uri in PLUGINS:
        table = loaded.plugins.get(SHORT[uri] if loaded.version < 2 else uri, {})
        found[uri] = defaults["plugins"][uri] | table
    return found


def printed(dumped: dict[str, Any]) -> dict[str, Any]:
    """The same out of containerd's own words."""
    found = {name: dumped[name] for name in (*TOP, *TABLES, "timeouts", "proxy_plugins", "stream_processors")}
    return found | {"imports": sorted(dumped["imports"])} | {uri: dumped["plugins"][uri] for uri in PLUGINS}


def runtimes(cri: Cri) -> dict[str, Any]:
    """Our view of the runtimes, as it would be printed."""
    return {
        name: (one.type, one.binary, one.systemd_cgroup, one.without_host_devices) for name, one in cri.runtimes.items()
    } | {"default": cri.default}


def printed_runtimes(table: dict[str, Any]) -> dict[str, Any]:
    """The same out of containerd's own words."""
    found = {
        name: (
            one["runtime_type"],
            one.get("options", {}).get("BinaryName", ""),
            one.get("options", {}).get("SystemdCgroup", False),
            one["privileged_without_host_devices"],
        )
        for name, one in table["containerd"]["runtimes"].items()
    }
    return found | {"default": table["containerd"]["default_runtime_name"]}


def test_every_generated_graph_is_read_as_containerd_reads_it(rules: Rules, tmp_path: Path) -> None:
    empty = tmp_path / "none.toml"
    defaults = dump(tmp_path, empty.name)
    assert isinstance(defaults, str)
    empty.write_text("version = 2\n")
    defaults = dump(tmp_path, empty.name)
    assert isinstance(defaults, dict)
    maker, compared, refused, several = Maker(20261130), 0, 0, 0
    for number in range(CASES):
        folder = tmp_path / f"case{number}"
        folder.mkdir()
        case = maker.case(folder)
        ours, theirs = load(put(case, folder), str(folder / case.main), rules), dump(folder, case.main)
        shown = f"case {number}: {case.files}\n{theirs if isinstance(theirs, str) else ''}"
        if isinstance(theirs, str):
            assert isinstance(ours, Refused), shown
            refused += 1
        else:
            assert isinstance(ours, Loaded), f"{shown}\n{ours}"
            assert expected(ours, defaults) == printed(theirs), shown
            cri = cri_of(ours, rules)
            assert cri.disabled is (CRI_URI not in theirs["plugins"]), shown
            if not cri.disabled:
                assert runtimes(cri) == printed_runtimes(theirs["plugins"][CRI_URI]), shown
            several += len(ours.files) > 1
        compared += 1
    accepted = compared - refused
    print(f"{compared} graphs compared: {accepted} accepted ({several} of several files), {refused} refused")
    assert compared >= FLOOR and refused >= FLOOR // 10 and several >= FLOOR // 4, (compared, refused, several)


@pytest.mark.parametrize("text", BROKEN)
def test_what_containerd_refuses_is_refused(rules: Rules, tmp_path: Path, text: str) -> None:
    case = Case({"config.toml": text})
    node = put(case, tmp_path)
    assert isinstance(dump(tmp_path, case.main), str)
    ours = load(node, str(tmp_path / case.main), rules)
    assert isinstance(ours, Refused), ours


@pytest.mark.parametrize("setting", BROKEN_CRI)
def test_what_the_cri_plugin_refuses_is_refused(rules: Rules, tmp_path: Path, setting: str) -> None:
    case = Case({"config.toml": f'version = 2\n[plugins."{CRI_URI}"]\n{setting}\n'})
    node = put(case, tmp_path)
    assert isinstance(dump(tmp_path, case.main), str)
    ours = load(node, str(tmp_path / case.main), rules)
    assert isinstance(ours, Refused), ours
