"""A dashboard for Grafana over the metrics that node_exporter collects.

The classic JSON model, which every Grafana imports (grafana.com/docs/grafana/latest/visualizations/dashboards/build-dashboards/
view-dashboard-json-model, read 2026-11-30); an older schemaVersion is brought up to date as it is loaded. Not tried in a Grafana.
"""

import json
from typing import Any, TypeAlias

from gpudoctor.installing.files import File, Installation, filled
from gpudoctor.installing.node import InstallNode

FOLDER = "/var/lib/grafana/dashboards"
PROVIDER = "/etc/grafana/provisioning/dashboards/gpudoctor.yaml"
NODES = 'instance=~"$instance"'
COLOURS = (
    ("pass", "green"),
    ("warn", "yellow"),
    ("fail", "red"),
    ("unknown", "purple"),
    ("blocked", "orange"),
    ("skipped", "gray"),
)
"""The numbers of gpudoctor_check_status in order; those of gpudoctor_verdict are the first four."""

Panel: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[int, int, int, int]
"""Left, top, width and height on a grid of 24 columns."""
LEGEND = {"displayMode": "list", "placement": "bottom"}


def grafana(node: InstallNode) -> Installation:
    """The dashboard, and the file that has Grafana load it."""
    file = File(f"{FOLDER}/gpudoctor.json", json.dumps(dashboard(), indent=1) + "\n")
    return Installation(
        kind="grafana",
        files=(file, File(PROVIDER, filled("grafana-provider.yaml", FOLDER=FOLDER))),
        install=(
            "systemctl restart grafana-server",
            f"or, without {PROVIDER}: Dashboards, New, Import, and {file.name}",
        ),
        undo=(f"rm {file.path} {PROVIDER}", "systemctl restart grafana-server"),
        notes=("they are for the Grafana server, not for this node",),
    )


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    panels = _panels()
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "uid": "gpudoctor",
        "title": "GPU chain (gpudoctor)",
        "description": "Which link of the GPU chain is broken on which node.",
        "tags": ["gpu", "gpudoctor"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [_source(), _variable("instance", "gpudoctor_verdict"), _variable("link", "gpudoctor_check_status")]
        },
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def _panels() -> list[Panel]:
    statuses = f'gpudoctor_check_status{{{NODES}, link=~"$link"}}'
    verdicts = f"gpudoctor_verdict{{{NODES}}}"
    columns = ("instance", "status", "check", "kind", "key")
    wrong = f"gpudoctor_finding{{{NODES}}} or gpudoctor_health_wrong_since_seconds{{{NODES}}}"
    return [
        _stat("Nodes with a broken link", f"count({verdicts} == 2) or vector(0)", "red", (0, 0, 6, 4)),
        _stat("Nodes to look at", f"count({verdicts} == 1) or vector(0)", "yellow", (6, 0, 6, 4)),
        _stat("Nodes that could not be judged", f"count({verdicts} == 3) or vector(0)", "purple", (12, 0, 6, 4)),
        _stat("GPUs on the bus", f"sum(gpudoctor_gpus{{{NODES}}})", "", (18, 0, 6, 4)),
        _timeline("Verdict of each node", verdicts, "{{instance}}", 4, (0, 4, 24, 8)),
        _table("What is wrong", f"count by ({', '.join(columns)}) ({wrong})", columns, (0, 12, 24, 9)),
        _lines("Failing checks by link", f"count by (link) ({statuses} == 2)", "{{link}}", "short", (0, 21, 12, 8)),
        _timeline("Checks that are not well", f"{statuses} > 0 < 5", "{{instance}} {{check}}", 6, (12, 21, 12, 8)),
        _lines(
            "Since the last look",
            f"time() - gpudoctor_last_run_timestamp_seconds{{{NODES}}}",
            "{{instance}}",
            "s",
            (0, 29, 12, 7),
        ),
        _lines(
            "How long a look takes", f"gpudoctor_run_duration_seconds{{{NODES}}}", "{{instance}}", "s", (12, 29, 12, 7)
        ),
        _table(
            "Versions",
            f"gpudoctor_info{{{NODES}}}",
            ("instance", "version", "driver", "cuda", "kernel"),
            (0, 36, 24, 7),
        ),
    ]


def _panel(kind: str, title: str, expression: str, place: Place, **target: Any) -> Panel:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": kind,
        "title": title,
        "datasource": source,
        "gridPos": dict(zip("xywh", place, strict=True)),
        "targets": [{"refId": "A", "expr": expression, "datasource": source, **target}],
        "fieldConfig": {"defaults": {}, "overrides": []},
        "options": {},
    }


def _stat(title: str, expression: str, colour: str, place: Place) -> Panel:
    panel = _panel("stat", title, expression, place, instant=True)
    steps = [{"color": "green", "value": None}, {"color": colour, "value": 1}]
    panel["fieldConfig"]["defaults"] = {
        "unit": "short",
        "thresholds": {"mode": "absolute", "steps": steps if colour else [{"color": "blue", "value": None}]},
    }
    panel["options"] = {
        "colorMode": "background",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"]},
    }
    return panel


def _timeline(title: str, expression: str, legend: str, states: int, place: Place) -> Panel:
    panel = _panel("state-timeline", title, expression, place, legendFormat=legend)
    words = {str(number): {"text": word, "color": colour} for number, (word, colour) in enumerate(COLOURS[:states])}
    panel["fieldConfig"]["defaults"] = {
        "mappings": [{"type": "value", "options": words}],
        "custom": {"fillOpacity": 80},
    }
    panel["options"] = {"mergeValues": True, "showValue": "never", "legend": LEGEND}
    return panel


def _lines(title: str, expression: str, legend: str, unit: str, place: Place) -> Panel:
    panel = _panel("timeseries", title, expression, place, legendFormat=legend)
    panel["fieldConfig"]["defaults"] = {"unit": unit, "min": 0}
    panel["options"] = {"legend": LEGEND, "tooltip": {"mode": "multi"}}
    return panel


def _table(title: str, expression: str, columns: tuple[str, ...], place: Place) -> Panel:
    panel = _panel("table", title, expression, place, instant=True, format="table")
    places = {name: at for at, name in enumerate(columns)}
    shown = {"includeByName": dict.fromkeys(columns, True), "indexByName": places}
    panel["transformations"] = [{"id": "organize", "options": shown}]
    panel["options"] = {"showHeader": True, "cellHeight": "sm"}
    return panel


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus", "hide": 0}


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "definition": query,
        "query": {"query": query, "refId": "variable"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
