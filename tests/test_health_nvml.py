"""When `gpudoctor health` leaves NVML alone: proved by a library that writes down that it was loaded."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import cli
from gpudoctor.facts.raw import Absent, Answer, Listing, TextFile
from gpudoctor.health.idle import IDLE, MODULE, why_idle
from gpudoctor.verdicts import Unread, Why
from tests.live_root import (
    alone_with_its_workers,  # noqa: F401 - a fixture that each test uses
    healthy_nvml,
    make_root,
    with_nvml,
)
from tests.standin.build import SONAME, SOURCE, find_compiler

ANSWERS = "driver-cuda.nvml-answers"
LIBRARY = f"usr/lib/x86_64-linux-gnu/{SONAME}"

# Written down when the loader has taken the library.
WITNESS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void)
{
    Dl_info here;
    char path[4096];
    if (!dladdr((void *)loaded, &here)) return;
    snprintf(path, sizeof path, "%s.loaded", here.dli_fname);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file >= 0) { (void)!write(file, "loaded\\n", 7); close(file); }
}
"""


class Node:
    """A live root whose library tells that it was loaded."""

    def __init__(self, root: Path, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._state, self._capsys = root, state, capsys

    def held_by(self, holders: int) -> None:
        """So many references to the module, beside those of the two modules that stand on it."""
        module = self.root / MODULE.lstrip("/")
        (module / "holders").mkdir(parents=True, exist_ok=True)
        for name in ("nvidia_uvm", "nvidia_modeset"):
            (module / "holders" / name).touch()
        (module / "refcnt").write_text(f"{holders + 2}\n")

    def told(self, *arguments: str) -> dict[str, Any]:
        """A pass."""
        self._capsys.readouterr()
        command = ["health", "--root", str(self.root), "--state", str(self._state), "--format", "json", *arguments]
        code = cli.main(command)
        out, err = self._capsys.readouterr()
        answer: dict[str, Any] = json.loads(out)
        assert (answer["exit_code"], err) == (code, "")
        return answer

    @property
    def loads(self) -> int:
        """How often the library was loaded."""
        place = self.root / f"{LIBRARY}.loaded"
        return place.read_text().count("loaded") if place.exists() else 0


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Node:
    """The healthy node."""
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    # The stand-in once more, with the witness in it.
    source = tmp_path / "witness.c"
    source.write_text(WITNESS)
    library = root / LIBRARY
    flags = ["-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{SONAME}"]
    subprocess.run([find_compiler(), *flags, "-o", str(library), str(source), str(SOURCE)], check=True)
    return Node(root, tmp_path / "state", capsys)


def test_an_idle_nodes_nvml_is_left_alone_and_that_is_no_alarm(node: Node) -> None:
    node.held_by(0)
    answer = node.told()
    assert node.loads == 0, "the library was loaded"
    assert (answer["exit_code"], answer["nvml"]) == (0, f"not asked: {IDLE}")
    assert answer["checks"][ANSWERS] == "unknown" and answer["seen"] == "unknown"
    assert answer["wrong"] == [] and answer["changes"] == []
    assert {one["link"]: one["verdict"] for one in answer["links"]}["driver-cuda"] in ("pass", None)


def test_a_busy_nodes_nvml_is_asked(node: Node) -> None:
    node.held_by(1)
    answer = node.told()
    assert node.loads == 1
    assert (answer["exit_code"], answer["nvml"], answer["checks"][ANSWERS]) == (0, "asked", "pass")


def test_it_is_asked_all_the_same_when_somebody_wants_it(node: Node, tmp_path: Path) -> None:
    node.held_by(0)
    assert node.told("--ask-nvml")["nvml"] == "asked" and node.loads == 1
    config = tmp_path / "config.toml"
    config.write_text("[health]\nask_nvml = true\n")
    assert node.told("--config", str(config))["nvml"] == "asked" and node.loads == 2


def test_only_idleness_excuses_that_nvml_was_not_asked(node: Node) -> None:
    """A missing node is another reason, and nobody may take it for idleness."""
    node.held_by(0)
    (node.root / "dev/nvidiactl").unlink()
    answer = node.told()
    assert node.loads == 0 and not answer["nvml"].endswith(IDLE)
    assert answer["exit_code"] in (2, 3)


def test_what_nvml_told_is_not_healed_by_not_asking(node: Node) -> None:
    node.held_by(1)
    standin = json.loads((node.root / "nvml.json").read_text())
    whole = json.dumps(standin)
    standin["devices"][2]["errors"] = {"handle": 15}
    (node.root / "nvml.json").write_text(json.dumps(standin))
    answer = node.told()
    wrong = [one["check"] for one in answer["wrong"]]
    assert answer["exit_code"] == 2 and wrong
    node.held_by(0)
    answer = node.told()
    assert answer["exit_code"] == 2 and answer["changes"] == []
    assert [one["check"] for one in answer["wrong"] if one["state"] == "unseen"] == wrong
    node.held_by(1)
    (node.root / "nvml.json").write_text(whole)
    answer = node.told()
    assert answer["exit_code"] == 0 and {one["turn"] for one in answer["changes"]} == {"healed"}


# How it is decided -------------------------------------------------------------------------------------------------


class Proc:
    """The few things that the decision reads."""

    def __init__(
        self,
        references: str | None,
        modules: tuple[str, ...] = (),
        holders: Callable[[], Answer | Unread] | None = None,
        daemon: str = "",
    ) -> None:
        self.references, self.modules, self.daemon = references, modules, daemon
        self.holders = holders or (lambda: Answer({"holders": []}))

    def read(self, path: str) -> TextFile | Absent | Unread:
        texts = {f"{MODULE}/refcnt": self.references}
        if self.daemon:
            texts |= {"/run/nvidia-persistenced/nvidia-persistenced.pid": "77\n", "/proc/77/comm": f"{self.daemon}\n"}
        text = texts.get(path)
        return TextFile(path, text) if text is not None else Absent(path)

    def listing(self, path: str, *, begin: str = "") -> Listing:
        return Listing(path, self.modules, complete=True)

    def answer(self, name: str, gate: object) -> Answer | Unread:
        assert name == "holders"
        return self.holders()


@pytest.mark.parametrize(
    ("proc", "idle"),
    [
        (Proc("2\n", ("nvidia_uvm", "nvidia_modeset")), True),
        (Proc("3\n", ("nvidia_uvm", "nvidia_modeset")), False),
        (Proc("0\n"), True),
        (Proc(None), True),
        (Proc(None, holders=lambda: Answer({"holders": [{"pid": 1}]})), False),
        (Proc(None, holders=lambda: Answer({"holders": [], "hidden": 3})), False),
        (Proc(None, holders=lambda: Answer({"holders": [], "unmapped": 1})), False),
        (Proc(None, holders=lambda: Unread(Why.NO_PERMISSION, "/proc", "permission denied")), False),
        (Proc(None, daemon="nvidia-persiste"), False),
        (Proc(None, daemon="bash"), True),
    ],
)
def test_who_holds_the_driver_decides(proc: Proc, idle: bool) -> None:
    assert why_idle(proc) == (IDLE if idle else "")  # type: ignore[arg-type]
