"""Those who read what `gpudoctor install` prints: systemd, promtool, Prometheus with node_exporter, kubectl, slurmd. Each skips visibly."""

import contextlib
import copy
import io
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudoctor import cli
from gpudoctor.install_run import installation
from gpudoctor.installing.grafana import dashboard
from gpudoctor.testing import fixtures
from tests.conftest import REPOSITORY
from tests.install_node import DEBIAN, InstallBuilder, bare, usual
from tests.slurm_cluster import Cluster, cluster
from tests.test_consumers import EXPORTER, HEALTHY, SICK, Nrpe, _free_port, _program, _serving, nrpe
from tests.test_install import content, setting

__all__ = ["nrpe"]

EXPOSURE = {"bare": 3.9, "usual": 4.0}
"""What `systemd-analyze security` of systemd 252 says at most, without and with Slurm, whose controller is asked over the network."""


def run(*argv: str, place: Path | None = None) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a program."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, cwd=place)
    return done.returncode, done.stdout, done.stderr


def put(place: Path, node: InstallBuilder, kind: str) -> dict[str, Path]:
    """The files of a kind in one directory, by name."""
    files = {}
    for file in node.made(kind).files:
        files[file.name] = place / file.name
        files[file.name].write_text(file.content)
        files[file.name].chmod(int(file.mode, 8))
    return files


# systemd --------------------------------------------------------------------------------------------------------------


def units(place: Path, node: InstallBuilder) -> list[str]:
    """Service, timer and drop-in, the program being one that is there."""
    program = str(Path(sys.executable).parent / "gpudoctor")
    if not Path(program).is_file():
        program = "/bin/true"
    names = []
    for kind in ("systemd", "node-exporter"):
        for file in node.made(kind).files:
            target = place / file.path.removeprefix("/etc/systemd/system/")
            target.parent.mkdir(exist_ok=True)
            target.write_text(file.content.replace("/opt/gpudoctor/bin/gpudoctor", program))
            names += [str(target)] if target.parent == place else []
    return names


@pytest.mark.parametrize("node", [bare, usual])
def test_systemd_finds_nothing_to_say(node: Callable[[], InstallBuilder], tmp_path: Path) -> None:
    """A word that it does not know is a line on stderr and no error."""
    analyze = _program("systemd-analyze", "systemd")
    names = units(tmp_path, node())
    assert run(analyze, "verify", *names) == (0, "", "")
    service = Path(names[0])
    service.write_text(service.read_text().replace("ProtectSystem=", "ProtectSytem="))
    assert "ProtectSytem" in run(analyze, "verify", *names)[2]


@pytest.mark.parametrize("name", EXPOSURE)
def test_exposure_stays_bounded(name: str, tmp_path: Path) -> None:
    analyze = _program("systemd-analyze", "systemd")
    (service, _) = units(tmp_path, {"bare": bare, "usual": usual}[name]())
    code, said, _ = run(analyze, "security", "--offline=true", "--no-pager", service)
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d)", said)
    assert code == 0 and found is not None and float(found[1]) <= EXPOSURE[name], said


def test_systemd_understands_the_times() -> None:
    analyze = _program("systemd-analyze", "systemd")
    timer = content(bare(), "systemd", "gpudoctor.timer")
    for name, most in (
        ("OnUnitActiveSec", "5min"),
        ("OnBootSec", "2min"),
        ("RandomizedDelaySec", "30s"),
        ("AccuracySec", "10s"),
    ):
        assert setting(timer, name) == [most]
        assert run(analyze, "timespan", most)[0] == 0
    service = content(bare(), "systemd", "gpudoctor.service")
    assert setting(service, "SuccessExitStatus") == ["1"] and setting(service, "StateDirectory") == ["gpudoctor"]


# Prometheus and Grafana -----------------------------------------------------------------------------------------------


def test_promtool_takes_the_rules_and_their_tests(tmp_path: Path) -> None:
    promtool = _program("promtool", "prometheus")
    files = put(tmp_path, usual(), "prometheus-rules")
    code, said, errors = run(promtool, "check", "rules", str(files["gpudoctor.rules.yml"]))
    assert code == 0 and "SUCCESS: 10 rules found" in said, said + errors
    tests = str(files["gpudoctor.rules_test.yml"])
    code, said, errors = run(promtool, "test", "rules", tests, place=tmp_path)
    assert code == 0 and "SUCCESS" in said, said + errors
    rules = files["gpudoctor.rules.yml"]
    for old, new in (
        ("== 2) > 0", "== 3) > 0"),
        ("> 1200", "> 120000"),
        (">= 6", ">= 7"),
        ('kind="gpu"', 'kind="nic"'),
    ):
        assert old in rules.read_text()
        rules.write_text(rules.read_text().replace(old, new))
        assert run(promtool, "test", "rules", tests, place=tmp_path)[0] != 0, f"{new} goes unnoticed"
        rules.write_text(rules.read_text().replace(new, old))


def alert_names(rules: str) -> set[str]:
    return {rule["alert"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]}


def test_each_alert_is_tried_and_has_a_runbook() -> None:
    text = content(usual(), "prometheus-rules", "gpudoctor.rules.yml")
    tests = yaml.safe_load(content(usual(), "prometheus-rules", "gpudoctor.rules_test.yml"))
    cases = [case for test in tests["tests"] for case in test["alert_rule_test"]]
    fired = {case["alertname"] for case in cases if case.get("exp_alerts")}
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    assert fired == alert_names(text)
    assert {"GpuChainBroken", "GpuCheckFlapping", "GpuHealthStale", "GpuCheckWarning", "GpuHealthUnknown"} <= silent
    for group in yaml.safe_load(text)["groups"]:
        assert all({"summary", "description", "runbook"} <= rule["annotations"].keys() for rule in group["rules"])


def expressions() -> dict[str, str]:
    """What each panel asks, with variables as Grafana fills them in."""
    panels = dashboard()["panels"]
    asked = {panel["title"]: panel["targets"][0]["expr"] for panel in panels}
    return {title: re.sub(r"\$\w+", ".*", expression) for title, expression in asked.items()}


def metrics(name: str, state: Path | None = None) -> str:
    """What `health` writes of a recorded node when it sees it the second time, or what `run` writes."""
    words = ("health", "--state", str(state)) if state is not None else ("run",)
    out = io.StringIO()
    for _ in range(2):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            cli.main((*words, "--node", str(fixtures() / name), "--format", "node-exporter"))
    return out.getvalue()


def test_every_panel_asks_for_what_is_written(tmp_path: Path) -> None:
    texts = (metrics(SICK), metrics(SICK, tmp_path / "state"))
    written = set(re.findall(r"(?m)^# TYPE (\w+) ", "\n".join(texts)))
    rules = content(usual(), "prometheus-rules", "gpudoctor.rules.yml")
    asked = set(re.findall(r"\bgpudoctor_\w+", "\n".join((*expressions().values(), rules))))
    assert len(asked) >= 7 and asked <= written
    promtool = _program("promtool", "prometheus")
    recorded = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions().values())]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    assert run(promtool, "check", "rules", str(file))[0] == 0


def test_dashboard_is_whole() -> None:
    board = json.loads(content(usual(), "grafana", "gpudoctor.json"))
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([board["panels"], board["templating"]]))) - {"__all"}
    assert used == variables == {"datasource", "instance", "link"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) >= 10
    cells = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert (
        yaml.safe_load(content(usual(), "grafana", "gpudoctor.yaml"))["providers"][0]["options"]["path"]
        == "/var/lib/grafana/dashboards"
    )


class Prometheus:
    """A Prometheus that collects from two node_exporters, one of a healthy node and one of a sick one."""

    def __init__(self, port: int) -> None:
        self._port = port

    def asked(self, path: str) -> Any:
        """The data of an answer of its API."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self) -> dict[str, set[str]]:
        """The instances of each alert that fires."""
        found: dict[str, set[str]] = {}
        for alert in self.asked("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], set()).add(alert["labels"]["instance"])
        return found


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    """Everything on the loopback; alerts wait for nothing here."""
    program, exporter = _program("prometheus", "prometheus"), _program(EXPORTER, EXPORTER)
    rules = tmp_path / "rules.yml"
    rules.write_text(re.sub(r"\bfor: \w+", "for: 0s", content(usual(), "prometheus-rules", "gpudoctor.rules.yml")))
    targets = []
    with contextlib.ExitStack() as servers:
        for name, instance in ((HEALTHY, "well"), (SICK, "sick")):
            place, port = tmp_path / instance, _free_port()
            place.mkdir()
            (place / "gpudoctor.prom").write_text(
                re.sub(
                    r"(?m)^(gpudoctor_last_run_timestamp_seconds) .*",
                    rf"\1 {time.time()}",
                    metrics(name, tmp_path / f"{instance}-state"),
                )
            )
            argv = [
                exporter,
                "--collector.disable-defaults",
                "--collector.textfile",
                f"--collector.textfile.directory={place}",
                f"--web.listen-address=127.0.0.1:{port}",
            ]
            servers.enter_context(_serving(argv, port, tmp_path / f"{instance}.log"))
            targets.append({"targets": [f"127.0.0.1:{port}"], "labels": {"instance": instance}})
        settings = tmp_path / "prometheus.yml"
        settings.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(rules)],
                    "scrape_configs": [{"job_name": "node", "static_configs": targets}],
                }
            )
        )
        port = _free_port()
        argv = [
            program,
            f"--config.file={settings}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        servers.enter_context(_serving(argv, port, tmp_path / "prometheus.log"))
        yield Prometheus(port)


def test_prometheus_alerts_for_the_sick_node_alone_and_fills_the_panels(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + 30
    firing: dict[str, set[str]] = {}
    while "GpuChainBroken" not in firing:
        assert time.monotonic() < deadline, "no alert within 30 s"
        # It answers 503 until it has read its log.
        with contextlib.suppress(urllib.error.HTTPError):
            firing = prometheus.firing()
        time.sleep(0.3)
    assert {"GpuChainBroken", "GpuLinkBroken", "GpuCheckFailing"} <= firing.keys()
    assert {instance for name in firing for instance in firing[name]} == {"sick"}, firing
    assert not {"GpuHealthStale", "GpuTextfileError", "GpuRunHangs"} & firing.keys()
    for title, expression in expressions().items():
        result = prometheus.asked(f"query?query={urllib.parse.quote(expression)}")["result"]
        assert result, f"{title}: {expression} shows nothing"


# Kubernetes -----------------------------------------------------------------------------------------------------------


def test_kubectl_builds_the_base(tmp_path: Path) -> None:
    kubectl = _program("kubectl", "kubernetes-client")
    put(tmp_path, usual(), "kubernetes")
    code, said, errors = run(kubectl, "kustomize", str(tmp_path))
    assert code == 0, errors
    built = {document["kind"]: document for document in yaml.safe_load_all(said)}
    assert set(built) == {"Namespace", "ServiceAccount", "DaemonSet"}
    pod = built["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == built["ServiceAccount"]["metadata"]["name"]
    assert (pod["automountServiceAccountToken"], built["ServiceAccount"]["automountServiceAccountToken"]) == (
        False,
        False,
    )
    assert (pod["hostPID"], pod["tolerations"]) == (True, [{"operator": "Exists"}])
    (container,) = pod["containers"]
    assert "nvidia.com/gpu" not in json.dumps(container["resources"]) and container["resources"]["limits"]
    assert {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}["textfile"] == DEBIAN


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_manifests_are_valid(version: str) -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="needs kubernetes-validate (108 MB of schemas)"
    ).validate
    for file in usual().made("kubernetes").files:
        resource = copy.deepcopy(yaml.safe_load(file.content))
        if resource["kind"] != "Kustomization":
            resource["metadata"].setdefault("name", resource["metadata"].pop("generateName", "") + "1")
            validate(resource, version, strict=True)


# node-problem-detector ------------------------------------------------------------------------------------------------


class Detector:
    """What pkg/custompluginmonitor/plugin/plugin.go makes of a rule: exit status, the first 4 KiB of stdout, cut at so many bytes."""

    def __init__(self, settings: dict[str, Any], environment: dict[str, str]) -> None:
        self.settings, self._environment = settings, environment

    def status(self, rule: dict[str, Any]) -> tuple[str, str]:
        """The status of the rule's condition, and its message."""
        seconds = float(rule["timeout"].removesuffix("s"))
        try:
            done = subprocess.run(
                [rule["path"], *rule["args"]], capture_output=True, timeout=seconds, check=False, env=self._environment
            )
        except subprocess.TimeoutExpired:
            return "Unknown", "timed out"
        message = done.stdout[:4096].strip()[: self.settings["pluginConfig"]["max_output_length"]]
        return {0: "False", 1: "True"}.get(done.returncode, "Unknown"), message.decode("ascii")


@pytest.mark.parametrize(("gpus", "status"), [("8", "True"), ("0", "False"), (None, "Unknown")])
def test_detector_sets_a_condition_for_each_link_from_the_last_look(
    gpus: str | None, status: str, tmp_path: Path
) -> None:
    """This machine is looked at: one with GPUs is no place for this test."""
    if list(Path("/sys/bus/pci/drivers").glob("nvidia*")):
        pytest.skip("this machine has a driver of NVIDIA's, and what its links are is not known")
    environment = {**os.environ, "STATE_DIRECTORY": str(tmp_path / "state"), "PYTHONPATH": str(REPOSITORY)}
    doctor = [sys.executable, "-m", "gpudoctor"]
    if gpus is not None:
        config = tmp_path / "config.toml"
        config.write_text(f"expect.gpus = {gpus}\n")
        subprocess.run([*doctor, "health", "--config", str(config)], env=environment, capture_output=True, check=False)
    settings = json.loads(content(bare(), "npd", "gpudoctor.json"))
    detector = Detector(settings, environment)
    found = {}
    for rule in settings["rules"]:
        found[rule["condition"]] = detector.status({**rule, "path": doctor[0], "args": [*doctor[1:], *rule["args"]]})
    assert found["GpuPcieBroken"][0] == status, found
    assert all(message for _, message in found.values())
    assert status == "True" or {one for one, _ in found.values()} <= {status, "Unknown"}


# NRPE -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "state"), [(HEALTHY, 0), (SICK, 2)])
def test_nrpe_carries_the_answer_of_a_pass(name: str, state: int, nrpe: Nrpe, tmp_path: Path) -> None:
    """The plugin of docs/monitoring.md answers from the last pass, in the form that this pass prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.main(("health", "--state", str(tmp_path), "--node", str(fixtures() / name), "--format", "nagios"))
    assert code == state and nrpe.check(code, out.getvalue()) == (code, out.getvalue())
    assert out.getvalue().startswith(f"GPUDOCTOR {('OK', 'WARNING', 'CRITICAL')[state]} - ") and " | " in out.getvalue()


# Slurm ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def one_node() -> Iterator[Cluster]:
    with cluster(1) as made:
        yield made


def test_slurm_takes_the_lines_and_calls_the_hooks(one_node: Cluster) -> None:
    """The doctor is a script that writes down how it was called; prolog and epilog are switched on as the comment says."""
    place = one_node.place
    doctor, told = place / "gpudoctor", place / "told"
    doctor.write_text(f'#!/bin/sh\necho "$* $SLURMD_NODENAME" >>{told}\n')
    doctor.chmod(0o755)
    lines: dict[str, str] = {}
    for file in installation(bare().node, "slurm", str(doctor)).files:
        (place / file.name).write_text(file.content)
        (place / file.name).chmod(int(file.mode, 8))
        if file.name == "lines-for-slurm.conf":
            text = file.content.replace("/etc/slurm/gpudoctor", str(place))
            lines = dict(re.findall(r"(?m)^#?(\w+)=(\S+)$", text))
    assert list(lines) == ["HealthCheckProgram", "HealthCheckInterval", "HealthCheckNodeState", "Prolog", "Epilog"]
    one_node.start(lines, "Name=gpu Type=h100 Count=8\n")
    one_node.wait("n1 is there", lambda: one_node.states().get("n1", "") != "")
    one_node.wait("the health check ran", lambda: told.exists() and "slurm health-check n1" in told.read_text())
    shown = one_node.scontrol("show", "config")
    assert re.search(rf"HealthCheckProgram\s*= {place}/health-check.sh", shown)
    assert re.search(r"HealthCheckNodeState\s*= (ANY,CYCLE|CYCLE,ANY)", shown)
    assert re.search(r"HealthCheckInterval\s*= 300", shown)
    assert re.search(rf"Prolog\s*= {place}/prolog.sh", shown)
