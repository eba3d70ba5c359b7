"""Rules for Prometheus, with the test that promtool runs on them."""

import json
import shlex

from gpudoctor.installing.files import File, Installation, filled
from gpudoctor.installing.node import InstallNode
from gpudoctor.installing.units import METRICS

FOLDER = "/etc/prometheus/rules"


def prometheus_rules(node: InstallNode) -> Installation:
    """Alerts, and `promtool test rules` for them; they belong on the Prometheus server."""
    runbook = f"promtool check metrics <{shlex.quote(f'{node.textfile.path}/{METRICS}')}"
    # Annotations are templates, in which two braces begin an action; what the test expects is what becomes of them.
    rules, tests = (
        File(f"{FOLDER}/{name}", filled(template, RUNBOOK=json.dumps(words, ensure_ascii=False)))
        for name, template, words in (
            ("gpudoctor.rules.yml", "prometheus-rules.yml", runbook.replace("{{", '{{ "{{" }}')),
            ("gpudoctor.rules_test.yml", "prometheus-rules-test.yml", runbook),
        )
    )
    return Installation(
        kind="prometheus-rules",
        files=(rules, tests),
        install=(
            f"promtool check rules {rules.path} && (cd {FOLDER} && promtool test rules {tests.name})",
            f"name {rules.path} under rule_files: in prometheus.yml, not {tests.name}; then reload Prometheus",
        ),
        undo=(
            f"take {rules.path} out of prometheus.yml, and reload Prometheus",
            f"rm {rules.path} {tests.path}",
        ),
        notes=("they are for the Prometheus server, not for this node",),
    )
