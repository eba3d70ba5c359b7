"""Sessions at a node with toolkit 1.10 to 1.17 (the corpus' container-oci): what each command printed, read as the doctor would meet it."""

import json
import re
from pathlib import Path

import pytest

from gpudoctor.facts.cdi_refresh import last_run
from gpudoctor.facts.oci_config import OciConfig, parse_config
from gpudoctor.facts.raw import CommandOutput, Log, TextFile
from gpudoctor.facts.software import CONTAINERD, DOCKER, Software, Version
from gpudoctor.verdicts import Status
from tests.captures import crashed, fact
from tests.conftest import SHARED
from tests.docker_node import NVIDIA, DockerNode

FOLDER = SHARED / "corpus" / "container-oci"
SESSIONS = sorted(FOLDER.glob("toolkit-v*-transcript.txt"))
CONTAINERS = {"1.10.0": 2, "1.12.0": 2, "1.14.0": 2, "1.16.2": 2, "1.17.0": 2}
"""How many containers' configurations each of them shows: one of the mode legacy, then one that the toolkit edited."""
INFO_WORDS = ("Server Version", "Default Runtime", "Cgroup Driver", "Docker Root Dir", "Runtimes")

pytestmark = pytest.mark.skipif(not SESSIONS, reason=f"{FOLDER} is not here")


class Session:
    """What was typed, and what came of each."""

    def __init__(self, path: Path) -> None:
        self.release = path.name.split("-")[1].removeprefix("v")
        parts = re.split(r"^root@\S+:~# (.*)$", path.read_text("utf-8"), flags=re.MULTILINE)
        self.steps = [(typed.strip(), said.strip("\n")) for typed, said in zip(parts[1::2], parts[2::2], strict=True)]

    def said(self, typed: str) -> list[str]:
        """What came of the commands that begin so."""
        return [said for command, said in self.steps if command.startswith(typed)]

    def hooks(self) -> list[tuple[str, str]]:
        """The file of each container and its configuration; what was left out of it ("...") is left out."""
        found = []
        for command, said in self.steps:
            path = re.match(r"cat (\S+/config\.json) \| jq \.hooks", command)
            if path is not None and said.startswith("{"):
                whole = re.sub(r",?\s*\.\.\.(?=\s)", "", said)
                found.append((path[1], json.dumps({"ociVersion": "1.0.2", "hooks": json.loads(whole)})))
        return found

    def info(self) -> dict[str, str]:
        """Lines of `docker info`."""
        (said,) = self.said("docker info")
        return {
            name: value for name, value in re.findall(r"^ +([\w ]+): (.*)$", said, re.MULTILINE) if name in INFO_WORDS
        }


@pytest.fixture(params=SESSIONS, ids=lambda path: path.stem)
def session(request: pytest.FixtureRequest) -> Session:
    """One of them."""
    return Session(request.param)


def test_all_sessions_are_there() -> None:
    assert [Session(path).release for path in SESSIONS] == sorted(CONTAINERS)


def test_hooks_show_who_gave_the_gpus(session: Session) -> None:
    """Legacy by the prestart hook, csv and CDI by edits of the configuration; never both."""
    shown = session.hooks()
    assert len(shown) == CONTAINERS[session.release]
    how = []
    for path, text in shown:
        config = parse_config(TextFile(path, text))
        assert isinstance(config, OciConfig)
        how.append((config.legacy_hook, config.edited))
    assert how == [(True, False), (False, True)]


def test_names_that_nvidia_ctk_lists_are_those_of_its_gpus(session: Session) -> None:
    (told,) = session.said("nvidia-container-cli info")
    gpus = re.findall(r"^GPU UUID: +(\S+)$", told, re.MULTILINE)
    assert len(gpus) == 4 and "NVRM version:   575.57.08" in told
    for listed in session.said("nvidia-ctk cdi list"):
        names = re.findall(r"^nvidia\.com/gpu=(\S+)$", listed, re.MULTILINE)
        assert {"0", "1", "2", "3", "all"} <= set(names)
        assert {name for name in names if name.startswith("GPU-")} in (set(), set(gpus))
        assert f"Found {len(names)} CDI devices" in listed


def test_what_was_printed_while_a_spec_was_made_is_no_error(session: Session) -> None:
    """In a unit's journal; what 1.12.0 dies of is no line of a log, and there systemd says that it failed."""
    for said in session.said("nvidia-ctk cdi generate"):
        end = "Failed with result 'exit-code'" if "panic:" in said else "Finished nvidia-cdi-refresh.service."
        lines = [
            "systemd[1]: Starting nvidia-cdi-refresh.service",
            *(f"nvidia-ctk[9]: {line}" for line in said.splitlines()),
        ]
        text = "".join(
            f"2026-11-29T12:00:00+0000 n1 {line}\n" for line in (*lines, f"systemd[1]: nvidia-cdi-refresh: {end}")
        )
        run = last_run(Log("journal/nvidia-cdi-refresh.service.log", text, source="journal"))
        assert run.error is None and (run.failed is not None) is ("panic:" in said), (session.release, run)
    panicked = [said for said in session.said("nvidia-ctk") if "panic:" in said]
    assert len(panicked) == (2 if session.release == "1.12.0" else 0)


def node_of(session: Session) -> DockerNode:
    """The node of a session: what its programs tell of themselves, its two containers, the daemon's runtimes."""
    shown = session.info()
    node = DockerNode(f"5:{shown['Server Version']}-1~ubuntu")
    node.packages["nvidia-container-toolkit"] = f"{session.release}-1"
    node.config(NVIDIA)
    node.info(*(name for name in shown["Runtimes"].split() if "nvidia" in name), default=shown["Default Runtime"])
    for place in (
        "/usr/bin/nvidia-container-cli",
        "/usr/bin/nvidia-ctk",
        "/usr/bin/containerd",
        "/sbin/ldconfig",
        "/usr/bin/runc",
    ):
        node.program(place)
    argv = ("/usr/bin/containerd", *CONTAINERD.arguments)
    node.commands[argv] = CommandOutput(argv, 0, session.said("containerd --version")[0])
    for path, text in session.hooks():
        node.text(path, text)
    return node


def test_the_node_of_a_session_is_silent(session: Session) -> None:
    node = node_of(session)
    report = node.diagnose()
    assert crashed(report) == []
    alarms = [result.check for result in report.results if result.status in (Status.WARN, Status.FAIL)]
    assert [check for check in alarms if check.startswith("toolkit.")] == []
    assert report.result("toolkit.docker-runtime").status is Status.PASS
    assert session.info()["Docker Root Dir"] == "/var/lib/docker"


def test_programs_tell_their_versions(session: Session) -> None:
    software = fact(node_of(session).recorded(), Software)
    containerd, docker = software.of(CONTAINERD), software.of(DOCKER)
    assert isinstance(containerd, Version) and isinstance(docker, Version)
    told = session.said("containerd --version")[0].split()
    assert (told[1], ".".join(map(str, containerd.numbers))) == ("containerd.io", told[2])
    assert ".".join(map(str, docker.numbers)) == session.info()["Server Version"]
    (toolkit,) = session.said("nvidia-container-toolkit --version")
    assert f"version {session.release}\n" in toolkit
