"""Alert rules and dashboard name what is there: metrics of the endpoint, and entries of the runbook."""

import json
import re
from typing import Any, Final

import yaml

from include.tiering.app.metrics import METRICS
from tests.doubles.source_tree import ROOT

RULES: Final[list[dict[str, Any]]] = yaml.safe_load((ROOT / "monitoring" / "alerts.yaml").read_text())["groups"][0][
    "rules"
]
DASHBOARD: Final = ROOT / "monitoring" / "dashboard.json"
NAMES: Final = {metric.shown_name for metric in METRICS}
NAME = re.compile(r"\b(?:tiering_\w+|Remote\w+|RLM\w+|remote_\w+)\b")


def test_each_alert_has_an_entry_in_the_runbook_that_names_it() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    headings = {_anchor(line): line for line in runbook.splitlines() if line.startswith("#")}
    for rule in RULES:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (page, anchor in headings) == ("docs/runbook.md", True), rule["alert"]
        entry = runbook.partition(headings[anchor])[2].partition("\n## ")[0]
        assert f"`{rule['alert']}`" in entry, rule["alert"]
    named = set(re.findall(r"`(Tiering[A-Z]\w+)`", runbook))
    assert {name for name in named if not name.endswith("Error")} == {rule["alert"] for rule in RULES}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lstrip("#").strip().lower()).replace(" ", "-")


def test_rules_and_dashboard_name_only_metrics_that_the_endpoint_has() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for expression in (*shown, *(rule["expr"] for rule in RULES)):
        found = set(NAME.findall(expression))
        assert found <= NAMES, expression
        assert found or "up{" in expression, expression
