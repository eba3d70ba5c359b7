"""`gpudoctor install`: what is printed follows the node, is the same for the same node, and changes nothing."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudoctor import cli
from gpudoctor.chain import Link
from gpudoctor.cli_parser import parse
from gpudoctor.config import ConfigError
from gpudoctor.install_run import KINDS, installation
from gpudoctor.installing import kubernetes, npd, slurm, units
from gpudoctor.installing.command import running_command
from gpudoctor.installing.node import COMMAND, TEXTFILE
from gpudoctor.installing.options import KINDS as OFFERED
from gpudoctor.registry import built_in
from gpudoctor.reports import installation as forms
from tests.conftest import REPOSITORY, Golden
from tests.install_node import DEBIAN, DOCTOR, InstallBuilder, bare, usual

NODES = {"usual": usual, "bare": bare}


def run(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(("install", *words))
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def content(node: InstallBuilder, kind: str, name: str) -> str:
    """The text of one file."""
    (file,) = node.made(kind, name).files
    return file.content


def setting(unit: str, name: str) -> list[str]:
    """The values of a setting, one for each of its lines."""
    return re.findall(rf"(?m)^{name}=(.*)$", unit)


# What is printed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NODES)
def test_files_for_a_node(golden: Golden, name: str, kind: str) -> None:
    golden.check(f"install/{name}-{kind}.txt", forms.render(NODES[name]().made(kind)))


def test_files_as_json(golden: Golden) -> None:
    golden.check("install/usual-systemd.json", json.dumps(forms.document(usual().made("systemd")), indent=1) + "\n")


@pytest.mark.parametrize("kind", KINDS)
def test_each_file_can_be_put_where_it_belongs(kind: str) -> None:
    made = usual().made(kind)
    assert len({file.name for file in made.files}) == len(made.files), "--file NAME must name one"
    assert made.undo and all(file.content.endswith("\n") and "@" + "COMMAND" not in file.content for file in made.files)
    for file in made.files:
        assert re.fullmatch(r"[\w./-]+", file.path) and ".." not in file.path and file.mode in ("0644", "0755")
        assert not re.search(r"@[A-Z_]+@", file.content)


def test_kinds_are_those_that_are_offered() -> None:
    assert tuple(KINDS) == OFFERED


def test_the_program_that_runs_is_the_one_that_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, link = tmp_path / "versions" / "gpudoctor", tmp_path / "gpudoctor"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    link.symlink_to(program)
    monkeypatch.setattr(sys, "argv", [str(link)])
    assert running_command() == (str(link), ())
    monkeypatch.setattr(sys, "argv", ["/usr/lib/python3/gpudoctor/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(program.parent / "python3"))
    assert running_command() == (str(program), ())
    program.unlink()
    assert running_command()[0] == COMMAND and "--command names another" in running_command()[1][0]


def test_whoever_changes_the_doctor_becomes_root() -> None:
    node = bare()
    assert node.made("systemd").notes == ()
    node.folder("/opt", uid=1000)
    assert "/opt can be changed by others than root" in node.made("cron").notes[0]
    node.folder("/opt", mode=0o1777)
    assert node.made("cron").notes == ()


# Which directory ------------------------------------------------------------------------------------------------------


def drop_in(node: InstallBuilder) -> str:
    return content(node, "node-exporter", "node-exporter.conf")


def test_what_a_running_exporter_was_told_comes_first() -> None:
    node = usual()
    node.folder("/srv/metrics")
    node.text("/etc/default/prometheus-node-exporter", 'ARGS="--collector.textfile.directory=/srv/metrics"\n')
    assert f"node-exporter={DEBIAN}/gpudoctor.prom" in drop_in(node)


@pytest.mark.parametrize(
    ("path", "text", "place"),
    [
        ("/etc/default/prometheus-node-exporter", 'ARGS="--collector.textfile.directory /srv/m"\n', "/srv/m"),
        (
            "/etc/systemd/system/node_exporter.service",
            "ExecStart=/n --collector.textfile.directory=/srv/m \\\n",
            "/srv/m",
        ),
        ("/etc/sysconfig/node_exporter", 'OPTIONS="-collector.textfile.directory /srv/m"\n', "/srv/m"),
        ("/etc/default/prometheus-node-exporter", "# --collector.textfile.directory=/srv/m\n", TEXTFILE),
        ("/etc/default/prometheus-node-exporter", "--collector.textfile.directory=/srv/*\n", TEXTFILE),
        ("/etc/default/prometheus-node-exporter", "--collector.textfile.directory=/gone\n", TEXTFILE),
    ],
)
def test_settings_tell_the_directory(path: str, text: str, place: str) -> None:
    node = bare()
    node.folder("/srv/m")
    node.text(path, text)
    assert f"node-exporter={place}/gpudoctor.prom" in drop_in(node)
    assert bool(node.made("node-exporter").notes[1:]) == (place == TEXTFILE)


def test_a_directory_of_another_user_takes_one_capability_more() -> None:
    node = usual()
    assert setting(drop_in(node), "CapabilityBoundingSet") == []
    node.folder(DEBIAN, uid=112)
    assert setting(drop_in(node), "CapabilityBoundingSet") == ["CAP_DAC_OVERRIDE"]
    assert setting(drop_in(node), "ReadWritePaths") == [DEBIAN]


def test_without_systemd_cron_writes_the_metrics() -> None:
    node = usual()
    node.tree.put("/run/systemd/system", type(node.tree.records[DEBIAN])(error="ENOENT"))
    (file,) = node.made("node-exporter").files
    assert file.path == "/etc/cron.d/gpudoctor" and file.content.endswith(
        f"--output node-exporter={DEBIAN}/gpudoctor.prom\n"
    )
    assert units.NO_SYSTEMD in node.made("systemd").notes


# Words in the syntax of each consumer ---------------------------------------------------------------------------------

ODD = "/opt/a b/50%/d$r\"q'`/gpudoctor"


def test_an_odd_place_reaches_the_shell_whole() -> None:
    node = bare().node
    line = installation(node, "cron", ODD).files[0].content.splitlines()[-1]
    # What cron makes of it, before its shell sees it (crontab(5)).
    command = line.removeprefix("*/5 * * * * root ").replace("\\%", "%")
    assert "%" not in re.sub(r"\\%", "", line)
    said = subprocess.run(
        ["/bin/sh", "-c", command.replace("nice -n 10", "printf '%s\\n'")], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines()[0] == ODD
    script = installation(node, "slurm", ODD, "health-check.sh").files[0].content
    (assignment,) = (line for line in script.splitlines() if "GPUDOCTOR:=" in line)
    said = subprocess.run(
        ["/bin/sh", "-c", f'{assignment}\nprintf %s "$GPUDOCTOR"'], capture_output=True, text=True, check=True
    )
    assert said.stdout == ODD


@pytest.mark.parametrize("place", ["gpudoctor", "/opt/a\nb", ""])
def test_a_place_that_cannot_be_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        installation(bare().node, "systemd", place)


# The kinds ------------------------------------------------------------------------------------------------------------


def test_the_network_beyond_the_node_only_where_slurm_is_asked() -> None:
    with_slurm, without = (content(node, "systemd", "gpudoctor.service") for node in (usual(), bare()))
    assert setting(without, "IPAddressDeny") == ["any"] and setting(with_slurm, "IPAddressDeny") == []
    assert setting(without, "IPAddressAllow") == ["localhost"] and setting(with_slurm, "IPAddressAllow") == []


def test_one_condition_for_each_link_that_is_asked_about() -> None:
    settings = json.loads(content(bare(), "npd", "gpudoctor.json"))
    links = [rule["args"][rule["args"].index("--link") + 1] for rule in settings["rules"]]
    asked = {check.link for check in built_in()}
    assert set(links) == {link.value for link in asked - {Link.WORKLOAD}} and len(links) <= 13
    assert [rule["condition"] for rule in settings["rules"]] == [one["type"] for one in settings["conditions"]]
    assert len({one["type"] for one in settings["conditions"]}) == len(links)
    assert all(re.fullmatch("Gpu[A-Za-z]+Broken", npd.condition(link)) for link in npd.LINKS)
    assert {rule["type"] for rule in settings["rules"]} == {"permanent"}
    # CustomPluginConfig.Validate: no rule may take longer than all may.
    assert {rule["timeout"] for rule in settings["rules"]} == {settings["pluginConfig"]["timeout"]}


def test_slurm_keeps_the_hooks_that_are_there() -> None:
    made = usual().made("slurm")
    lines = content(usual(), "slurm", "lines-for-slurm.conf")
    assert "#HealthCheckProgram=/etc/slurm/gpudoctor/health-check.sh" in lines.splitlines()
    assert any("HealthCheckProgram=/usr/sbin/nhc already" in note for note in made.notes)
    assert any("Prolog=/etc/slurm/p.sh already" in note for note in made.notes)
    assert (
        "HealthCheckProgram=/etc/slurm/gpudoctor/health-check.sh"
        in content(bare(), "slurm", "lines-for-slurm.conf").splitlines()
    )


def test_files_of_the_repository_are_those_that_are_printed() -> None:
    for name in slurm.HOOKS:
        assert (REPOSITORY / "contrib" / "slurm" / f"{name}.sh").read_text() == slurm.hook(name, COMMAND)
    for file in kubernetes.manifests(TEXTFILE):
        assert (REPOSITORY / "packaging" / "kubernetes" / file.name).read_text() == file.content, file.name


def commands_of(kind: str) -> list[list[str]]:
    """The command lines of the doctor in what is printed."""
    text = forms.render(usual().made(kind))
    if kind == "npd":
        return [rule["args"] for rule in json.loads(content(usual(), "npd", "gpudoctor.json"))["rules"]]
    return [line.split(DOCTOR, 1)[1].split() for line in text.splitlines() if f"{DOCTOR} health" in line]


@pytest.mark.parametrize("kind", ["systemd", "cron", "node-exporter", "npd"])
def test_what_is_called_is_understood(kind: str) -> None:
    """Options that `health` does not have would make every look a usage error."""
    calls = commands_of(kind)
    assert calls
    for words in calls:
        assert parse(words).command == "health"


def test_runbooks_name_commands_and_checks_that_exist() -> None:
    rules = content(usual(), "prometheus-rules", "gpudoctor.rules_test.yml")
    named = set(re.findall(r'check="?([\w.-]+)', rules)) | set(re.findall(r"gpudoctor explain ([\w.-]+)", rules))
    assert named and named <= set(built_in().ids)


def test_documents_say_what_is_printed() -> None:
    """Kinds, capabilities and alerts, each with what it says of them."""
    install, monitoring = ((REPOSITORY / "docs" / f"{name}.md").read_text() for name in ("install", "monitoring"))
    assert set(re.findall(r"(?m)^\| `([a-z-]+)` \| ", install)) == set(KINDS)
    unit = content(bare(), "systemd", "gpudoctor.service")
    assert re.findall(r"(?m)^\| `(CAP_\w+)` \|", install) == setting(unit, "CapabilityBoundingSet")[0].split()
    (group,) = yaml.safe_load(content(usual(), "prometheus-rules", "gpudoctor.rules.yml"))["groups"]
    told = re.findall(r"(?m)^\| `(Gpu\w+)[^|]*\| [^|]* \| (\d+) (min|h) \|$", monitoring)
    assert {(name, number + unit[0]) for name, number, unit in told} == {
        (rule["alert"], rule["for"]) for rule in group["rules"]
    }
    for words in re.findall(r"gpudoctor install (--print \w[^|#\n`]*)", install + monitoring):
        if not words.startswith("--print KIND"):
            assert parse(["install", *words.replace("$file", "x").split()]).command == "install", words


# The command ----------------------------------------------------------------------------------------------------------


def small_root(place: Path) -> Path:
    """A root that --root takes."""
    for name in ("proc", "sys", "dev", "etc/cron.d"):
        (place / name).mkdir(parents=True)
    return place


def tree(place: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a directory, to see that nothing changes."""
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(place.rglob("*"))
    }


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_changed(kind: str, tmp_path: Path) -> None:
    root = small_root(tmp_path / "root")
    before = tree(root)
    first = run("--print", kind, "--root", str(root))
    assert first[0] == 0 and first[2] == "" and first == run("--print", kind, "--root", str(root))
    assert tree(root) == before


def test_one_file_alone_is_the_file_itself(tmp_path: Path) -> None:
    root = str(small_root(tmp_path / "root"))
    code, text, _ = run("--print", "npd", "--root", root, "--command", DOCTOR, "--file", "gpudoctor.json")
    assert code == 0 and json.loads(text)["source"] == "gpudoctor"
    code, _, said = run("--print", "npd", "--root", root, "--file", "gpudoctr.json")
    assert code == 3 and "gpudoctor.json" in said and len(said.splitlines()) == 1


def test_below_another_root_the_running_program_is_not_the_hosts(tmp_path: Path) -> None:
    text = run("--print", "cron", "--root", str(small_root(tmp_path / "root")))[1]
    assert f"nice -n 10 {COMMAND} health" in text and "--command names another" in text


def test_json_holds_the_same_files(tmp_path: Path) -> None:
    root = str(small_root(tmp_path / "root"))
    code, text, _ = run("--print", "systemd", "--root", root, "--format", "json")
    told: dict[str, Any] = json.loads(text)
    assert (code, told["schema"], told["kind"]) == (0, "gpudoctor.install/1", "systemd")
    for file in told["files"]:
        assert run("--print", "systemd", "--root", root, "--file", file["path"])[1] == file["content"]
    assert {"path", "content", "mode", "notes"} == set(told["files"][0])


def test_a_directory_of_ones_own_is_filled_and_no_other(tmp_path: Path) -> None:
    root, place = str(small_root(tmp_path / "root")), tmp_path / "out"
    assert run("--print", "slurm", "--root", root, "-o", str(place))[0] == 0
    hook = place / "etc/slurm/gpudoctor/health-check.sh"
    assert os.access(hook, os.X_OK) and (place / "INSTALL.txt").read_text().startswith("==== to install by hand")
    before = tree(place)
    code, _, said = run("--print", "slurm", "--root", root, "-o", str(place))
    assert code == 3 and "is not empty" in said and tree(place) == before
    code, _, said = run("--print", "slurm", "--root", root, "-o", str(place / "INSTALL.txt"))
    assert code == 3 and "INSTALL.txt" in said and tree(place) == before


@pytest.mark.parametrize("words", [("--print", "upstart"), (), ("--print", "cron", "-o", "x", "--file", "gpudoctor")])
def test_usage_errors_are_3(words: Sequence[str]) -> None:
    code, out, said = run(*words)
    assert (code, out, len(said.splitlines())) == (3, "", 1)


def test_the_hints_do_what_they_say(tmp_path: Path) -> None:
    """The printed line, run, puts the file there byte for byte."""
    root = small_root(tmp_path / "root")
    hints = run("--print", "cron", "--root", str(root), "--command", DOCTOR)[1]
    (line,) = (line.lstrip("# ") for line in hints.splitlines() if "| install -D" in line)
    line = line.replace("gpudoctor install", f"{sys.executable} -m gpudoctor install", 1)
    line = line.replace("/etc/cron.d/gpudoctor", str(tmp_path / "cron.d" / "gpudoctor"))
    subprocess.run(["/bin/sh", "-c", line], check=True, cwd=REPOSITORY)
    expected = run("--print", "cron", "--root", str(root), "--command", DOCTOR, "--file", "gpudoctor")[1]
    assert (tmp_path / "cron.d" / "gpudoctor").read_text() == expected


def test_a_run_loads_nothing_of_it() -> None:
    code = "import sys; from gpudoctor import commands; print([name for name in sys.modules if 'install' in name])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert said.stdout.strip() == "[]"
