"""Files of real programs: what nvidia-ctk wrote for CRI-O, containerd's files of clouds, and what Podman itself accepts."""

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.verdicts import Status
from tests.test_engines import CONF, CONTAINERD, HOOK_FILE, RUNTIME, crio, hook, kubelet, podman, words

SHARED = Path(__file__).resolve().parents[2] / "shared"
TOOLKIT, CONFIGS = SHARED / "rig" / "toolkit", SHARED / "corpus" / "container-config"


def written_for_crio() -> list[Path]:
    """The files that `nvidia-ctk runtime configure --runtime=crio` wrote, by toolkit and options."""
    return [place for place in sorted(TOOLKIT.glob("*/crio.*")) if place.suffix != ".log"]


def path_of(file: Path) -> str:
    """Where it was written: the name holds the path with underscores."""
    return file.name[file.name.index("_") :].replace("_", "/")


@pytest.mark.skipif(not TOOLKIT.is_dir(), reason="the rig is not beside the repository")
def test_what_the_toolkit_wrote_for_cri_o_is_judged_by_where_it_lies() -> None:
    files = written_for_crio()
    assert len(files) >= 16
    places = set()
    for file in files:
        path = path_of(file)
        places.add(path)
        result = crio({path: file.read_text()}).process(700, "crio").run("crio-runtime")
        if path.startswith("/etc/crio/conf.d/"):
            found = [(finding.status, finding.cause) for finding in result.findings]
            assert found == [(Status.FAIL, "unread-drop-in")], (file, words(result))
        else:
            assert result.status is Status.PASS, (file, words(result))
            assert (", the default" in words(result)) == (".default" in file.name), (file, words(result))
            gone = crio({path: file.read_text()}, "/usr/bin/other").run("crio-runtime")
            assert [finding.cause for finding in gone.findings] == ["program"]
    assert places == {
        "/etc/crio/crio.conf",
        "/etc/crio/conf.d/99-nvidia.toml",
        "/etc/crio/crio.conf.d/99-nvidia.toml",
    }


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the corpus is not beside the repository")
def test_containerd_files_of_clouds_behind_a_kubelet() -> None:
    judged = {}
    for file in sorted(CONFIGS.glob("*.toml")):
        text = file.read_text()
        if "[plugins" in text or "[plugins" in text.replace(" ", ""):
            node = kubelet(f"--container-runtime-endpoint=unix://{CONTAINERD}").files(
                {"/etc/containerd/config.toml": text}
            )
            judged[file.stem] = node.run("kubelet-engine").status
    assert len(judged) >= 8, judged
    plain = {name for name, status in judged.items() if status is Status.SKIP}
    assert not any(status in (Status.FAIL, Status.WARN) for status in judged.values()), judged
    assert {"containerd-default-1.6", "containerd-default-1.7"} <= plain, judged
    assert {"aks-gb200-containerd-nvidia"} <= {name for name, status in judged.items() if status is Status.PASS}


GOOD_HOOK = hook("/bin/true")
CASES = {
    "nothing": ("", {}),
    "empty engine": ("[engine]\n", {}),
    "malformed": ("[engine\n", {}),
    "no value": ("[engine]\nruntime =\n", {}),
    "hooks_dir a number": ("[engine]\nhooks_dir = 5\n", {}),
    "hooks_dir a word": ("[engine]\nhooks_dir = 'x'\n", {}),
    "engine a word": ("engine = 'x'\n", {}),
    "runtimes a word": ("[engine.runtimes]\nnvidia = 'x'\n", {}),
    "another runtime gone": ("[engine.runtimes]\nnvidia = ['/no/rt']\n", {}),
    "default runtime undefined": ("[engine]\nruntime = 'nvidia'\n", {}),
    "default runtime gone": ("[engine]\nruntime = 'nvidia'\n[engine.runtimes]\nnvidia = ['/no/rt']\n", {}),
    "unknown key": ("[engine]\nnvidia = true\n", {}),
    "hook": ("", {"nv.json": GOOD_HOOK}),
    "hook whose program is gone": ("", {"nv.json": hook("/no/nvidia-hook")}),
    "hook cut short": ("", {"nv.json": GOOD_HOOK[:-1]}),
    "hook of another version": ("", {"nv.json": hook("/bin/true", version="2.0")}),
    "hook without stages": (
        "",
        {"nv.json": json.dumps({"version": "1.0.0", "hook": {"path": "/bin/true"}, "when": {}})},
    ),
    "hook of an unknown stage": ("", {"nv.json": hook("/bin/true", stages=["someday"])}),
    "old hook": ("", {"nv.json": json.dumps({"hook": "/bin/true", "stages": ["prestart"], "cmds": [".*"]})}),
    "a hook gone before one cut short": ("", {"a.json": hook("/no/nvidia-hook"), "nv.json": GOOD_HOOK[:-1]}),
    "a hook gone after one cut short": ("", {"a.json": GOOD_HOOK[:-1], "nv.json": hook("/no/nvidia-hook")}),
    "no hook by its name": ("", {"nv.json.off": "{"}),
}
"""containers.conf and hook files."""


class Podman:
    """Podman with everything below a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "hooks").mkdir()
        self.conf = folder / "containers.conf"
        self.conf.write_text("")
        empty = io.BytesIO()
        tarfile.open(fileobj=empty, mode="w").close()
        (folder / "empty.tar").write_bytes(empty.getvalue())
        said = self.run("import", str(folder / "empty.tar"), "empty:1")
        if said.returncode:
            pytest.skip(f"podman cannot work here: {said.stderr.strip()[-200:]}")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """One command."""
        places = ("--root", f"{self.folder}/root", "--runroot", f"{self.folder}/run", "--storage-driver=vfs")
        quiet = ("--cgroup-manager=cgroupfs", "--events-backend=none")
        environment = {**os.environ, "CONTAINERS_CONF": str(self.conf)}
        command = ["podman", *places, *quiet, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def refuses(self, conf: str, hooks: dict[str, str]) -> bool:
        """Whether it refuses the configuration or a hook; that the empty container cannot run is something else."""
        self.conf.write_text(conf)
        for file in (self.folder / "hooks").iterdir():
            file.unlink()
        for name, text in hooks.items():
            (self.folder / "hooks" / name).write_text(text)
        if self.run("info").returncode:
            return True
        folder = f"--hooks-dir={self.folder}/hooks"
        return "OCI Hooks" in self.run(folder, "run", "--rm", "--network=none", "empty:1", "/true").stderr


@pytest.fixture(scope="module")
def real_podman() -> Iterator[Podman]:
    """A private podman, taken away afterwards. It takes no folder whose name is longer than 50 characters."""
    if shutil.which("podman") is None or os.geteuid() != 0:
        pytest.skip("needs podman, and root to run it")
    with tempfile.TemporaryDirectory(prefix="podman-", dir="/tmp") as folder:
        podman_here = Podman(Path(folder))
        yield podman_here
        podman_here.run("system", "reset", "--force")


def test_podman_itself_refuses_what_is_said_to_stop_it(real_podman: Podman) -> None:
    compared, refused = 0, 0
    for name, (conf, hooks) in CASES.items():
        folder = HOOK_FILE.rpartition("/")[0]
        texts = {CONF: conf, **{f"{folder}/{file}": text for file, text in hooks.items()}}
        result = podman(texts, "/bin/true").run("podman-gpus")
        ours = any(finding.cause in ("syntax", "program") for finding in result.findings)
        theirs = real_podman.refuses(conf, hooks)
        assert ours == theirs, (name, words(result))
        compared, refused = compared + 1, refused + theirs
    assert (compared, refused) == (len(CASES), 13), RUNTIME
