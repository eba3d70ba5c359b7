"""Those who read the reports, as Debian packages them: node_exporter, promtool, NRPE. Each on the loopback, ended by its PID.

`tests/install-packages.sh` installs them; where one is missing, its tests skip and say so.
"""

import contextlib
import grp
import io
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor import cli
from gpudoctor.report import Report
from gpudoctor.reports import nagios, node_exporter
from gpudoctor.testing import fixtures

HEALTHY = "h100x8"
WARNED = "aer-fatal-counted"
SICK = "nouveau-and-broken-daemon-json"
UNSEEN = "nothing-recorded"

EXPORTER = "prometheus-node-exporter"
CHECK_NRPE = "/usr/lib/nagios/plugins/check_nrpe"
SECONDS_TO_START = 10.0


def _run(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = cli.main(("run", *words))
    return code, out.getvalue()


def _program(name: str, package: str) -> str:
    """Where a program lies; skips the test when it is not installed."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"needs {name} (Debian: {package}; tests/install-packages.sh)")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def _serving(argv: Sequence[str], port: int, log: Path) -> Iterator[None]:
    """A server that answers on a port of the loopback, and is gone afterwards."""
    with open(log, "wb") as said:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while not _answers(port):
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield
    finally:
        server.terminate()
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


# node_exporter -------------------------------------------------------------------------------------------------------

Sample = tuple[str, tuple[tuple[str, str], ...], float]


class Exporter:
    """A node_exporter with the textfile collector only, and the directory that it collects from."""

    def __init__(self, directory: Path, port: int) -> None:
        self.textfile = directory / "gpudoctor.prom"
        self._port = port

    def scrape(self) -> set[Sample]:
        """The samples that a Prometheus would get."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
            return _samples(answer.read().decode())


def _samples(text: str) -> set[Sample]:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client")
    families = list(parser.text_string_to_metric_families(text))
    found = [
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in families
        for sample in family.samples
    ]
    assert len(found) == len(set(found))
    return set(found)


def _ours(samples: set[Sample]) -> set[Sample]:
    return {sample for sample in samples if sample[0].startswith("gpudoctor_")}


def _values(samples: set[Sample], name: str) -> list[float]:
    return [value for sample, _, value in samples if sample == name]


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """One for all tests: it reads the directory anew at each scrape."""
    program = _program(EXPORTER, EXPORTER)
    place, port = tmp_path_factory.mktemp("textfile"), _free_port()
    argv = [
        program,
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={place}",
        "--web.disable-exporter-metrics",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with _serving(argv, port, tmp_path_factory.mktemp("log") / "exporter"):
        yield Exporter(place, port)


@pytest.mark.parametrize("name", [HEALTHY, WARNED, SICK, UNSEEN])
def test_node_exporter_serves_what_was_written(name: str, exporter: Exporter) -> None:
    code, _ = _run("--node", str(fixtures() / name), "-o", str(exporter.textfile), "--format", "line")
    served = exporter.scrape()
    assert _values(served, "node_textfile_scrape_error") == [0]
    assert _ours(served) == _samples(exporter.textfile.read_text())
    assert len(_ours(served)) > 40
    assert _values(served, "gpudoctor_verdict") == [code]
    collected = [dict(labels)["file"] for sample, labels, _ in served if sample == "node_textfile_mtime_seconds"]
    assert collected == [str(exporter.textfile)]


def test_what_only_a_waived_finding_explains_is_no_series(tmp_path: Path) -> None:
    """A GPU that is passed through, as the manual has it: NVML does not list it, and no alert may stay on for that."""
    config = tmp_path / "config.toml"
    waived = '[[waive]]\ncheck = "kernel-module.gpu-bound"\nreason = "passed through"\n'
    node = str(fixtures() / "vfio-on-one-and-nvml-answers-for-seven")
    for text, findings, verdict in (("", 2, 2), (waived, 0, 0)):
        config.write_text(text)
        code, told = _run("--node", node, "--config", str(config), "--format", "node-exporter")
        assert (told.count("\ngpudoctor_finding{"), code) == (findings, verdict)
        assert f"gpudoctor_verdict {verdict}\n" in told


def test_whatever_a_node_says_arrives_as_it_is(exporter: Exporter) -> None:
    """Quotes, backslashes and line breaks in labels go through two parsers that are not ours."""
    odd = 'quote " backslash \\ both \\" break \n tab \t brace } comma , Größe'
    report = msgspec.json.decode(_run("--node", str(fixtures() / SICK), "--format", "json")[1], type=Report)
    odd_report = msgspec.structs.replace(report, node=msgspec.structs.replace(report.node, kernel=odd))
    exporter.textfile.write_text(node_exporter.render(odd_report), "utf-8")
    served = exporter.scrape()
    # A tab is written as what it is: terminals act upon it.
    told = odd.replace("\t", "\\x09")
    assert _values(served, "node_textfile_scrape_error") == [0]
    assert [dict(labels)["kernel"] for sample, labels, _ in served if sample == "gpudoctor_info"] == [told]


@pytest.mark.parametrize(
    "spoilt", ["gpudoctor_verdict{\n", "gpudoctor_verdict 0 1796000000000\n"], ids=["cut", "timed"]
)
def test_a_spoilt_file_is_noticed(spoilt: str, exporter: Exporter) -> None:
    """The tests above could not fail if the collector took whatever it finds."""
    exporter.textfile.write_text(spoilt)
    served = exporter.scrape()
    assert _values(served, "node_textfile_scrape_error") == [1]
    assert not _ours(served)


# promtool ------------------------------------------------------------------------------------------------------------


def _promtool(text: str) -> tuple[int, str]:
    """Its exit status and everything it has to say about metrics."""
    argv = [_program("promtool", "prometheus"), "check", "metrics"]
    ended = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=30, check=False)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", [HEALTHY, WARNED, SICK, UNSEEN])
def test_promtool_has_nothing_to_say(name: str) -> None:
    assert _promtool(_run("--node", str(fixtures() / name), "--format", "node-exporter")[1]) == (0, "")


def test_promtool_says_what_it_dislikes() -> None:
    code, said = _promtool("# TYPE gpudoctor_runs counter\ngpudoctor_runs 1\n")
    assert code != 0
    assert "no help text" in said and '"_total" suffix' in said


# NRPE ----------------------------------------------------------------------------------------------------------------

_NRPE_SETTINGS = """\
server_address=127.0.0.1
server_port={port}
allowed_hosts=127.0.0.1
nrpe_user={user}
nrpe_group={group}
pid_file={place}/pid
log_file={place}/log
command_timeout=20
command[check_gpudoctor]=/bin/sh {place}/plugin
"""


class Nrpe:
    """An NRPE server whose only command prints a report, and the client that Nagios would call."""

    def __init__(self, place: Path, port: int, client: str) -> None:
        self._place, self._port, self._client = place, port, client

    def check(self, code: int, text: str, *options: str) -> tuple[int, str]:
        """The exit code and the output that arrive when the plugin ends with these."""
        for name, content in (("output", text), ("plugin", f"cat {self._place}/output; exit {code}\n")):
            (self._place / name).write_text(content)
            (self._place / name).chmod(0o644)
        server = ["-H", "127.0.0.1", "-p", str(self._port), "-n", "-t", "20"]
        argv = [self._client, *server, *options, "-c", "check_gpudoctor"]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        return ended.returncode, ended.stdout


@pytest.fixture(scope="module")
def nrpe() -> Iterator[Nrpe]:
    """The server gives up root before it runs anything, and refuses to keep it: its directory can be read by all."""
    program = _program("nrpe", "nagios-nrpe-server")
    client = _program(CHECK_NRPE, "nagios-nrpe-plugin")
    port = _free_port()
    owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    with tempfile.TemporaryDirectory(prefix="gpudoctor-nrpe-") as name:
        place = Path(name)
        place.chmod(0o755)
        settings = place / "nrpe.cfg"
        group = grp.getgrgid(owner.pw_gid).gr_name
        settings.write_text(_NRPE_SETTINGS.format(port=port, user=owner.pw_name, group=group, place=place))
        with _serving([program, "-n", "-f", "-c", str(settings)], port, place / "said"):
            yield Nrpe(place, port, client)


@pytest.mark.parametrize(("name", "state"), [(HEALTHY, 0), (WARNED, 1), (SICK, 2), (UNSEEN, 3)])
def test_nrpe_carries_state_text_and_performance_data(name: str, state: int, nrpe: Nrpe, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    code, text = _run("--node", str(fixtures() / name), "-o", str(saved), "--format", "nagios")
    arrived, output = nrpe.check(code, text)
    assert (arrived, output) == (code, text)
    assert code == state
    report: dict[str, Any] = json.loads(saved.read_text())
    first, _, performance = output.splitlines()[0].partition(" | ")
    assert first.startswith(f"GPUDOCTOR {('OK', 'WARNING', 'CRITICAL', 'UNKNOWN')[state]} - ")
    assert _performance(performance) == {
        "gpus": (len(report["node"]["gpus"]), ""),
        "root_causes": (len(report["root_causes"]), ""),
        "failed": (sum(result["status"] == "fail" for result in report["results"]), ""),
        "unknown": (sum(result["status"] == "unknown" for result in report["results"]), ""),
        "time": (round(report["seconds"], 3), "s"),
    }


def test_a_long_report_goes_whole_through_the_packets_of_nrpe_2(nrpe: Nrpe) -> None:
    """Those hold 1024 bytes (`check_nrpe -2`); what is longer is cut, as the control shows."""
    report = msgspec.json.decode(_run("--node", str(fixtures() / SICK), "--format", "json")[1], type=Report)
    text = nagios.render(msgspec.structs.replace(report, root_causes=report.root_causes * 40))
    assert nrpe.check(2, text, "-2") == (2, text)
    assert len(nrpe.check(2, "x" * 1100, "-2")[1]) < 1100


def _performance(text: str) -> dict[str, tuple[float, str]]:
    """`'label'=value[unit];warn;crit;min;max`, separated by blanks (Monitoring Plugins Development Guidelines)."""
    data = re.compile(r"'([^'=]+)'=(-?\d+(?:\.\d+)?)(s|%|B|c)?(?:;[^;\s]*){0,4}(?:\s|$)")
    found = [(match[1], (float(match[2]), match[3] or "")) for match in data.finditer(text)]
    assert data.sub("", text) == ""
    return dict(found)
