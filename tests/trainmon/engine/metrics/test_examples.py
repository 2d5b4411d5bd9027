"""The dashboard and the rules in docs/: every query is one of Prometheus, and of metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.docs import FOLDER
from tests.trainmon.engine.metrics.scraped import promtool
from tests.trainmon.engine.metrics.test_families import EVERY

RULES = FOLDER / "examples/prometheus-rules.yml"
GRAFANA = {"$__rate_interval": "5m", "$__range": "1d", "$run": ".*"}
"""The variables of Grafana in queries, and what it may put there."""

PANELS = {"stat", "timeseries", "bargauge", "state-timeline"}
"""Panels that are part of Grafana: of public/app/plugins/panel, those that the dashboard needs."""

UNITS = {"short", "s", "h", "percentunit"}
"""Ids of units of Grafana: of packages/grafana-data/src/valueFormats/categories.ts, those that the dashboard needs."""

HUNG = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'trainmon_run_verdict{{run="llm", verdict="hung"}}', values: '0 0 1x10'}}
      - {{series: 'trainmon_evaluation_timestamp_seconds', values: '0+60x12'}}
    alert_rule_test:
      - {{eval_time: 1m, alertname: TrainingRunHangs}}
      - eval_time: 4m
        alertname: TrainingRunHangs
        exp_alerts:
          - exp_labels: {{run: llm, verdict: hung, severity: critical}}
            exp_annotations:
              summary: "llm hangs: its processes live and make no step"
              description: "trainmon-tui explain llm shows which evidence there is."
      - {{eval_time: 10m, alertname: TrainmonDown}}
"""


def queries(part: Any) -> Iterator[str]:
    """Every query of the dashboard."""
    if isinstance(part, dict):
        if isinstance(part.get("expr"), str):
            yield part["expr"]
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from queries(one)


def test_every_query_of_the_dashboard_is_one_of_prometheus_and_of_metrics_that_there_are(tmp_path: Path) -> None:
    dashboard = json.loads((FOLDER / "examples/grafana-dashboard.json").read_text())
    found = list(queries(dashboard))
    assert len(found) >= 10
    assert 'verdict="hung"' in found[0]
    for variable, value in GRAFANA.items():
        found = [one.replace(variable, value) for one in found]
    assert not [one for one in found if "$" in one]
    assert {name for one in found for name in re.findall(r"\btrainmon_\w+", one)} <= EVERY
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(found)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = promtool("check", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_panels_of_the_dashboard_are_those_that_grafana_draws() -> None:
    """Against types.gen.ts of @grafana/schema: what a panel has, 24 columns, and the variable of the data source."""
    dashboard = json.loads((FOLDER / "examples/grafana-dashboard.json").read_text())
    source, *others = dashboard["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    by_variable = {"type": "prometheus", "uid": f"${{{source['name']}}}"}
    assert [one["datasource"] for one in others] == [by_variable] * len(others)
    panels, cells = dashboard["panels"], set()
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in PANELS, panel["title"]
        assert panel["datasource"] == by_variable, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert all(target["legendFormat"] and target["refId"] for target in panel["targets"]), panel["title"]
        x, y, width, height = (panel["gridPos"][name] for name in "xywh")
        assert x + width <= 24, panel["title"]
        covered = {(column, row) for column in range(x, x + width) for row in range(y, y + height)}
        assert not covered & cells, f"{panel['title']} lies over another panel"
        cells |= covered


def test_the_example_rules_are_accepted_and_led_by_runs_that_hang() -> None:
    text = RULES.read_text()
    assert set(re.findall(r"\btrainmon_\w+", text)) <= EVERY
    assert text.index('expr: trainmon_run_verdict{verdict="hung"} == 1') < text.index("expr:") + 1
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_rule_about_runs_that_hang_fires_and_that_about_the_daemon_does_not(tmp_path: Path) -> None:
    file = tmp_path / "test.yml"
    file.write_text(HUNG.format(rules=json.dumps(str(RULES))))
    checked = promtool("test", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_page_lists_every_metric() -> None:
    listed = re.findall(r"^\| `(trainmon_\w+)` \|", (FOLDER / "reference/metrics.md").read_text(), re.MULTILINE)
    assert set(listed) == EVERY
