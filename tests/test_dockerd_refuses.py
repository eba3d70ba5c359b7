"""What Debian's real dockerd takes and refuses of a daemon.json and a command line is what we say it does.

It is started as nobody: a configuration that it takes ends at "needs to be started with root privileges", before anything is touched.
"""

import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.facts.docker_rules import Refused, flags_of, take
from gpudoctor.facts.raw import TextFile
from gpudoctor.facts.software import Version, parse_version
from gpudoctor.knowledge.docker_options import OPTIONS, Holds
from gpudoctor.verdicts import Evidence

NOBODY = 65534
FLOOR = 150

CHOSEN: tuple[tuple[str, str], ...] = (
    ("{}", ""),
    ("", ""),
    (" \n", ""),
    ("\ufeff{}", ""),
    ("null", ""),
    ("[]", ""),
    ('{"a": 1,}', ""),
    ('{"debug": true} x', ""),
    ('{"debug": NaN}', ""),
    ('{"features": {"cdi": true}}', ""),
    ('{"features": {"cdi": 1}}', ""),
    ('{"features": {"x": null}}', ""),
    ('{"builder": {"x": 1}}', ""),
    ('{"x": {"debug": true}}', ""),
    ('{"x": {}}', ""),
    ('{"x": {"y": 1}}', ""),
    ('{"debug": {"mtu": 1}}', ""),
    ('{"Debug": true}', ""),
    ('{"D": true}', ""),
    ('{"label": ["a"]}', ""),
    ('{"host": 5}', ""),
    ('{"hosts": ["fd://"]}', "-H fd://"),
    ('{"hosts": ["fd://"]}', "-Hfd://"),
    ('{"host": ["fd://"]}', "-H fd://"),
    ('{"debug": true}', "-D"),
    ('{"debug": true}', "--debug=false"),
    ('{"data-root": "/x"}', "--data-root /y"),
    ('{"data-root": "/x"}', "--debug"),
    ('{"config-file": "/x"}', ""),
    ('{"runtimes": {"a": {"path": "x"}}}', "--add-runtime b=y"),
    ('{"default-runtime": "b"}', "--add-runtime b=y"),
    ("{}", "--add-runtime b=y --default-runtime b"),
    ("{}", "--default-runtime zz"),
    ('{"runtimes": {"runc": {"path": "x"}}}', ""),
    ('{"runtimes": {"nvidia": {"Path": "x", "foo": 1}}}', ""),
    ('{"runtimes": {"nvidia": {"PATH": 5}}}', ""),
    ('{"runtimes": {"nvidia": {}}}', ""),
    ('{"runtimes": {"nvidia": null}}', ""),
    ('{"runtimes": {"nvidia": 5}}', ""),
    ('{"runtimes": {"nvidia": {"runtimeArgs": 5}}}', ""),
    ('{"runtimes": {"nvidia": {"args": 5}}}', ""),
    ('{"runtimes": {"nvidia": {"runtimeType": 5}}}', ""),
    ('{"default-runtime": "io.containerd.runtime.v1.linux"}', ""),
    ('{"default-runtime": "io.containerd.runc.v2"}', ""),
    ('{"default-runtime": "io.containerd.kata.v2"}', ""),
    ('{"default-runtime": ""}', ""),
    ('{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "x"}}}', ""),
    ('{"log-level": "foo"}', ""),
    ('{"log-level": "WARN"}', ""),
    ('{"default-cgroupns-mode": "x"}', ""),
    ('{"default-cgroupns-mode": "host"}', ""),
    ('{"default-ipc-mode": "host"}', ""),
    ('{"default-ipc-mode": "shareable"}', ""),
    ('{"default-shm-size": "foo"}', ""),
    ('{"default-shm-size": 5}', ""),
    ('{"default-shm-size": "256gb"}', ""),
    ('{"default-shm-size": "64 MiB"}', ""),
    ('{"log-opts": {"max-file": 5}}', ""),
    ('{"proxies": {"http-proxy": "x"}}', ""),
    ('{"cdi-spec-dirs": ["/x"]}', ""),
    ('{"mtu": 1.0}', ""),
    ('{"mtu": 1e3}', ""),
    ('{"mtu": 99999999999999999999}', ""),
    ('{"default-ulimits": {"nofile": {"Name": "nofile", "Hard": 1, "Soft": 1}}}', ""),
    ('{"default-ulimits": {"nofile": 1}}', ""),
    ('{"debug": true, "debug": false}', ""),
)


@pytest.fixture(scope="module")
def dockerd() -> tuple[str, Version]:
    """The program and its version."""
    program = shutil.which("dockerd")
    if program is None:
        pytest.skip("dockerd is not installed: what it refuses is not compared")
    if os.geteuid() != 0:
        pytest.skip("only root can start dockerd as nobody, which keeps it from doing anything")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = parse_version("docker", told.removeprefix("Docker version "), Evidence("dockerd --version", told))
    assert version is not None
    return program, version


def takes(program: str, path: Path, words: list[str]) -> bool:
    """Whether the real one goes on behind its configuration."""
    argv = [program, "--config-file", str(path), *words]
    told = subprocess.run(
        argv, user=NOBODY, group=NOBODY, extra_groups=(), capture_output=True, text=True, timeout=20, check=False
    )
    said = told.stderr + told.stdout
    taken = "needs to be started with root privileges" in said
    assert taken or "unable to configure the Docker daemon" in said or "unable to parse logging level" in said, said
    return taken


def generated(count: int) -> list[tuple[str, str]]:
    """Objects of known, foreign and misspelt keys with right and wrong values."""
    some = random.Random(7)  # noqa: S311 - cases, not secrets
    values: dict[Holds, object] = {
        Holds.TEXT: "x",
        Holds.SWITCH: True,
        Holds.NUMBER: 7,
        Holds.LIST: ["x=y"],
        Holds.TEXTS: {"x": "y"},
        Holds.SWITCHES: {"x": True},
        Holds.TABLE: {},
        Holds.TABLES: {},
        Holds.ANYTHING: None,
    }
    # What needs a value of its own kind, such as an address, is not filled with the words above; the way to containerd's own file neither.
    special = {
        "dns",
        "ip",
        "default-gateway",
        "default-gateway-v6",
        "host-gateway-ip",
        "default-shm-size",
        "log-level",
        "graph",
    }
    special |= {
        "default-runtime",
        "config-file",
        "cluster-advertise",
        "cluster-store",
        "cluster-store-opts",
        "data-root",
    }
    special |= {
        "node-generic-resources",
        "dns-search",
        "default-address-pools",
        "registry-mirrors",
        "default-ipc-mode",
        "default-cgroupns-mode",
    }
    keys = sorted(set(OPTIONS) - special)
    cases = []
    for _ in range(count):
        chosen: dict[str, object] = {}
        for key in some.sample(keys, some.randint(1, 3)):
            holds = OPTIONS[key].holds
            if some.random() < 0.25:
                holds = some.choice(list(Holds))
            chosen[key if some.random() < 0.9 else key.rstrip("s") + "z"] = values[holds]
        flag = some.choice(("", "", "--debug", "--label a=b", "--mtu 9", "-s vfs", "--exec-opt a=b", "-l warn"))
        cases.append((json.dumps(chosen), flag))
    return cases


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder into which the user called nobody may look."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_the_real_dockerd_agrees(dockerd: tuple[str, Version], folder: Path) -> None:
    program, version = dockerd
    compared, differ = {True: 0, False: 0}, []
    for number, (text, words) in enumerate((*CHOSEN, *generated(150))):
        path = folder / f"{number}.json"
        path.write_text(text, "utf-8")
        path.chmod(0o644)
        ours = take(TextFile(str(path), text), flags_of(["--config-file", str(path), *words.split()]), version)
        real = takes(program, path, words.split())
        compared[real] += 1
        if isinstance(ours, dict) != real or not isinstance(ours, dict | Refused):
            differ.append((text, words, real, ours))
    assert not differ, "\n".join(map(repr, differ[:20]))
    assert sum(compared.values()) >= FLOOR and min(compared.values()) >= 40, compared
