"""Real files and answers of Docker: what NVIDIA's tool and cloud images wrote, and what real daemons told of themselves."""

import json
from pathlib import Path

import pytest

from gpudoctor.facts.docker_answer import Told, ask
from gpudoctor.facts.docker_rules import Flags, take
from gpudoctor.facts.raw import CommandOutput, TextFile
from gpudoctor.facts.software import Version, parse_version
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.verdicts import Evidence
from tests.docker_node import CDI_CHECK, INFO, LOADED_CHECK, MAIN, RUNTIME_CHECK, SPEC, DockerNode

SHARED = Path(__file__).parents[2] / "shared"
CORPUS, RIG, TOOLKIT = SHARED / "corpus/container-config", SHARED / "rig/docker", SHARED / "rig/toolkit"

pytestmark = pytest.mark.skipif(not RIG.is_dir(), reason="real files of Docker are not beside this repository")

FILES = sorted([*CORPUS.glob("*daemon.json"), *TOOLKIT.glob("*/docker.*daemon.json")])
RELEASES = {"20.10.24": False, "26.1.5": True}
"""Real daemons, and whether they told of CDI folders."""


def _version(text: str) -> Version:
    version = parse_version("docker", text, Evidence("docker info", text))
    assert version is not None
    return version


def test_there_are_files_to_judge() -> None:
    assert len(FILES) >= 19


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
@pytest.mark.parametrize("version", ["5:20.10.24-1", "5:27.5.1-1", "5:29.1.3-1"])
def test_every_real_file_is_taken_and_leads_to_its_runtime(path: Path, version: str) -> None:
    node = DockerNode(version, running=False)
    node.daemon(800, "/usr/bin/dockerd")
    node.config(path.read_text("utf-8"))
    status, said = node.said(RUNTIME_CHECK)
    assert (status, "runtime 'nvidia' is" in said) == ("pass", True), said
    assert node.said(LOADED_CHECK)[0] == "pass"
    node.at("/etc/cdi/nvidia.yaml", SPEC, -1000)
    cdi = "cdi" in path.name and version != "5:20.10.24-1"
    assert node.said(CDI_CHECK)[0] == ("pass" if cdi or version == "5:29.1.3-1" else "skip")


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_real_daemon_tells(release: str) -> None:
    text = (RIG / release / "info.json").read_text("utf-8")
    node = RecordedNode(Tree(), complete=["/"])
    node.commands |= {INFO: CommandOutput(INFO, 0, text)}
    told = ask(node, "", "/var/lib/docker")
    assert isinstance(told, Told)
    data = json.loads(text)
    assert set(told.runtimes) == set(data["Runtimes"]) and told.default == data["DefaultRuntime"]
    assert not _version(told.version).before(*(int(number) for number in release.split(".")))
    assert bool(told.cdi_folders) is RELEASES[release]


@pytest.mark.parametrize("release", RELEASES)
def test_a_younger_file_beside_a_real_daemon(release: str) -> None:
    """The file names exactly what the daemon has, then one runtime more."""
    told = json.loads((RIG / release / "info.json").read_text("utf-8"))
    runtimes = {name: {"path": one["path"]} for name, one in told["Runtimes"].items() if "nvidia" in name}
    node = DockerNode(f"5:{release}-1")
    node.commands[INFO] = CommandOutput(INFO, 0, json.dumps(told))
    wanted = runtimes or {"nvidia": {"path": "nvidia-container-runtime"}}
    node.config({"runtimes": wanted, "default-runtime": told["DefaultRuntime"]}, later=60)
    assert node.said(LOADED_CHECK)[0] == ("pass" if runtimes else "fail")
    node.config({"runtimes": {**wanted, "nvidia-more": {"path": "nvidia-container-runtime"}}}, later=60)
    assert "nvidia-more" in node.said(LOADED_CHECK)[1]


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_rigs_tool_wrote_is_taken_by_the_rigs_daemon(release: str) -> None:
    log = (RIG / release / "ctk.log").read_text("utf-8")
    assert "daemon.json" in log
    for path in TOOLKIT.glob("*/docker.*daemon.json"):
        taken = take(TextFile(MAIN, path.read_text("utf-8")), Flags(), _version(release))
        assert isinstance(taken, dict) and "nvidia" in taken["runtimes"], (path, taken)
