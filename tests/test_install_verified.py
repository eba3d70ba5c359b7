"""What is printed holds for odd places, hostile neighbours and each consumer; root writes nothing that another user leads it to."""

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from gpudoctor import outputs
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.install_run import installation
from gpudoctor.installing.node import TEXTFILE
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.recorded import Record
from tests.conftest import REPOSITORY
from tests.install_node import DOCTOR, InstallBuilder, bare
from tests.systemd_stage import OUT, doctor, drop_in, needs_systemd, run_units
from tests.test_install import content

ODD = "/srv/50%/$HOME {{x}};`id`"
UNIT = "node-exporter.conf"


def exporter(*words: str, comm: str = "node_exporter") -> InstallBuilder:
    """A node on which a process of that name was called so."""
    node = bare()
    node.runs(900, comm, "/usr/bin/node_exporter", *words)
    return node


def collecting(place: str) -> InstallBuilder:
    """A node whose node_exporter collects from a place."""
    node = exporter("--collector.textfile.directory", place)
    node.folder(place)
    return node


def without_systemd(node: InstallBuilder) -> InstallBuilder:
    """The same, where cron has to do."""
    node.tree.put("/run/systemd/system", Record(error="ENOENT"))
    return node


# Odd directories in the syntax of each consumer -----------------------------------------------------------------------


def test_an_odd_directory_reaches_the_unit_whole() -> None:
    text = content(collecting(ODD), "node-exporter", UNIT)
    (call,) = re.findall(r"(?m)^ExecStart=(.+)$", text)
    # systemd.service(5): specifiers, then variables.
    assert call.endswith('--output node-exporter="/srv/50%%/$$HOME {{x}};`id`/gpudoctor.prom"')
    assert 'ReadWritePaths="/srv/50%%/$HOME {{x}};`id`"' in text.splitlines()


@pytest.mark.parametrize("taken_away", [True, False])
def test_an_odd_directory_reaches_crons_shell_whole(taken_away: bool) -> None:
    """Debian's cron takes the backslash before a percent sign away, others leave it to the shell."""
    node = without_systemd(collecting(ODD))
    line = content(node, "node-exporter", "gpudoctor").splitlines()[-1]
    assert "%" not in line.replace("\\%", "")
    command = line.removeprefix("*/5 * * * * root nice -n 10 ").replace(DOCTOR, "printf '%s\\n'")
    command = command.replace("50\\%", "50%") if taken_away else command
    said = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == f"node-exporter={ODD}/gpudoctor.prom"


@pytest.mark.parametrize("place", [ODD, "/srv/m:", "/srv/m #1", "/srv/größe"])
def test_an_odd_directory_reaches_the_manifest_whole(place: str) -> None:
    manifest = yaml.safe_load(content(collecting(place), "kubernetes", "daemonset.yaml"))
    volumes = manifest["spec"]["template"]["spec"]["volumes"]
    assert volumes[1]["hostPath"]["path"] == place


def test_an_odd_directory_is_no_command_of_a_runbook(tmp_path: Path) -> None:
    """Whoever pastes the runbook into a shell runs promtool and nothing else."""
    made = collecting(ODD).made("prometheus-rules")
    rules, tests = (yaml.safe_load(file.content) for file in made.files)
    told = next(rule["annotations"]["runbook"] for rule in rules["groups"][0]["rules"] if "Textfile" in rule["alert"])
    assert told.replace('{{ "{{" }}', "{{") == f"promtool check metrics <'{ODD}/gpudoctor.prom'"
    assert f"promtool check metrics <'{ODD}/gpudoctor.prom'" in json.dumps(tests)
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool (Debian: prometheus)")
    for file in made.files:
        (tmp_path / file.name).write_text(file.content)
    words = ("promtool", "test", "rules", "gpudoctor.rules_test.yml")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_undoing_removes_the_odd_file_and_no_other() -> None:
    for node in (collecting(ODD), without_systemd(collecting(ODD))):
        assert node.made("node-exporter").undo[-1] == f"rm '{ODD}/gpudoctor.prom'"


# Processes of anybody -------------------------------------------------------------------------------------------------


def test_a_name_of_a_process_ends_no_comment() -> None:
    node = exporter("--collector.textfile.directory=/srv/m", comm="node_exporter\n[")
    node.folder("/srv/m")
    text = content(node, "node-exporter", UNIT)
    assert "/srv/m" in text and [line for line in text.splitlines() if line.startswith("[")] == ["[Service]"]


@pytest.mark.parametrize("place", ["/srv/a\nExecStart=/bin/sh", "/srv/\x1b[2J", "/srv/\udcff", "srv/m", "/srv/*"])
def test_a_directory_that_no_file_can_name_is_passed_over(place: str) -> None:
    assert f"ReadWritePaths={TEXTFILE}" in content(collecting(place), "node-exporter", UNIT).splitlines()


def test_a_blank_does_not_cut_a_directory() -> None:
    node = collecting("/srv/a b")
    node.folder("/srv/a")
    assert 'ReadWritePaths="/srv/a b"' in content(node, "node-exporter", UNIT).splitlines()


def test_it_is_told_that_root_writes_into_anothers_directory() -> None:
    node = collecting("/home/eve/metrics")
    assert not node.made("node-exporter").notes[1:]
    node.folder("/home/eve/metrics", uid=1001)
    assert (
        "root will write into /home/eve/metrics, which belongs to another user" in node.made("node-exporter").notes[-1]
    )


# Who can change the doctor --------------------------------------------------------------------------------------------


def test_a_link_is_followed_to_who_can_change_what_it_leads_to() -> None:
    node = bare()
    node.folder("/usr/local/bin")
    link = Entry("/usr/local/bin/gpudoctor", EntryType.LINK, 0o777, 0, 0, to="../../../home/eve/gpudoctor")
    node.tree.put(link.path, Record(entry=link))
    node.put("/home/eve/gpudoctor", EntryType.FILE)
    node.folder("/home/eve")
    assert installation(node.node, "cron", link.path).notes == ()
    node.folder("/home/eve", uid=1001)
    assert "/home/eve can be changed by others than root" in installation(node.node, "cron", link.path).notes[0]


# What root writes -----------------------------------------------------------------------------------------------------


def test_metrics_are_not_written_through_anothers_link(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make what another user has made")
    device, place = tmp_path / "disk", tmp_path / "gpudoctor.prom"
    os.mkfifo(device)
    place.symlink_to(device)
    os.lchown(place, 65534, 65534)
    # Open at its other end, so that a write would not wait.
    reader = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(SourceError, match="another user has put it there"):
            outputs.write(place, "gpudoctor_verdict 0\n")
        os.lchown(place, 0, 0)
        outputs.write(place, "gpudoctor_verdict 0\n")
        assert os.read(reader, 100) == b"gpudoctor_verdict 0\n"
    finally:
        os.close(reader)


def test_the_mode_is_given_to_the_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name it would be given to what the directory's owner has put there in the meantime."""

    def never(*_: object) -> None:
        raise AssertionError("chmod by name")

    monkeypatch.setattr(os, "chmod", never)
    outputs.write(tmp_path / "gpudoctor.prom", "gpudoctor_verdict 0\n")
    assert stat.S_IMODE((tmp_path / "gpudoctor.prom").stat().st_mode) == 0o644


TRIES = """
import os
for place in ("/dev/{0}", "/dev/shm/{0}", "/run/{0}", "/run/lock/{0}", "/var/lib/gpudoctor/{0}", os.environ["TMPDIR"] + "/{0}"):
    path = place.format("gpudoctor-verified")
    try:
        open(path, "x").close()
        os.unlink(path)
        print(place)
    except OSError: pass
"""


def test_the_unit_writes_to_its_own_directories_alone(tmp_path: Path) -> None:
    needs_systemd()
    (tmp_path / "tries.py").write_text(TRIES)
    service = content(bare(), "systemd", "gpudoctor.service")
    units = {
        "gpudoctor.service": service,
        "gpudoctor.service.d/run.conf": drop_in(f"{doctor().split()[0]} {OUT}/tries.py", "tries"),
    }
    log = run_units(tmp_path, units, "", "gpudoctor.service")
    assert (tmp_path / "tries").read_text().split() == ["/var/lib/gpudoctor/{0}", "/run/gpudoctor-health/{0}"], log


# Packages -------------------------------------------------------------------------------------------------------------


def told_systemd(script: str, word: str, tmp_path: Path) -> list[str]:
    """What a package's script asks of systemd, where one runs."""
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n')
    (tmp_path / "systemctl").chmod(0o755)
    (tmp_path / "script").write_text(script)
    inside = f"mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && PATH={tmp_path}:$PATH sh {tmp_path}/script {word}"
    subprocess.run(("unshare", "-m", "sh", "-c", inside), check=False, capture_output=True)
    asked = tmp_path / "asked"
    return asked.read_text().splitlines() if asked.exists() else []


@pytest.mark.parametrize(
    ("packager", "word", "asked"),
    [
        ("debian", "remove", ["disable --now gpudoctor.timer"]),
        ("debian", "upgrade", []),
        ("rpm", "0", ["disable --now gpudoctor.timer"]),
        ("rpm", "1", []),
    ],
)
def test_a_package_that_goes_takes_its_timer_along(packager: str, word: str, asked: list[str], tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare (util-linux)")
    place = REPOSITORY / "packaging" / packager
    if packager == "rpm":
        (script,) = re.findall(r"(?ms)^%preun\n(.*?)^find ", (place / "gpudoctor.spec").read_text())
    else:
        script = (place / "prerm").read_text().replace("find /usr/lib/gpudoctor", "true")
    assert told_systemd(script, word, tmp_path) == asked


# What the documents say -----------------------------------------------------------------------------------------------


def test_the_plugin_of_nrpe_reads_what_the_timer_wrote() -> None:
    """NRPE's user has no memory of his own; the one of the service is named."""
    text = (REPOSITORY / "docs" / "monitoring.md").read_text()
    (line,) = re.findall(r"(?m)^command\[check_gpudoctor\]=(.+)$", text)
    assert "--state /var/lib/gpudoctor" in line
