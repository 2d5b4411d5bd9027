"""The daemon with a real Prometheus, node_exporter and Alertmanager: its metrics arrive, and so do its alerts."""

from __future__ import annotations

import json
import re
import signal
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.daemon import AlertDaemon
from tests.alerts.test_daemon import fill, mend, started
from tests.docs import FOLDER
from tests.end_to_end.product import Cluster
from tests.lab.alertmanager import Alertmanager
from tests.lab.daemons import until
from tests.lab.prometheus import NodeExporter, Prometheus
from tests.lab.slurm_config import ports
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.engine.metrics.test_examples import GRAFANA

pytestmark = pytest.mark.slow


@pytest.fixture
def hook() -> Iterator[WebhookReceiver]:
    with WebhookReceiver.start() as receiver:
        yield receiver


def notified(hook: WebhookReceiver) -> set[tuple[str, str]]:
    """What Alertmanager has notified people of: status and subject."""
    return {(one["status"], one["labels"].get("subject", "")) for message in hook.messages for one in message["alerts"]}


def test_alerts_fire_in_alertmanager_survive_its_restart_and_resolve(
    tmp_path: Path, nodes: Cluster, make_daemon: Callable[..., AlertDaemon], hook: WebhookReceiver
) -> None:
    with Alertmanager(tmp_path / "am", hook.url) as am:
        daemon = make_daemon(f'[[notify]]\ntype = "alertmanager"\nname = "am"\nurl = "{am.url}"\nheartbeat = false\n')
        checked = daemon.run("check", f"--config={daemon.config}").stdout
        assert f"alertmanager, {am.url.removeprefix('http://')}" in checked
        started(daemon)
        fill(nodes, 0)
        until(lambda: "gpu:n0/1" in am.names(), "it fires there")
        until(lambda: ("firing", "gpu:n0/1") in notified(hook), "people are notified")
        daemon.until("sent", channel="am")
        labels = next(one for one in am.alerts() or () if one["labels"]["subject"] == "gpu:n0/1")["labels"]
        assert (labels["alertname"], labels["severity"], labels["node"]) == ("gpu-memory-full", "critical", "n0")

        am.daemon.kill()
        am.start()
        assert am.names() == [], "it has forgotten all"
        until(lambda: "gpu:n0/1" in am.names(), "it is posted again", 180.0)

        daemon.kill()
        daemon.start()
        fill(nodes, 1)
        until(lambda: {"gpu:n0/1", "gpu:n1/1"} <= set(am.names()), "the next daemon goes on")
        mend(nodes, 0)
        mend(nodes, 1)
        until(lambda: am.names() == [], "they are over there")
        until(lambda: {("resolved", "gpu:n0/1"), ("resolved", "gpu:n1/1")} <= notified(hook), "people are notified")


def test_cron_keeps_an_alert_open_in_alertmanager(
    tmp_path: Path, nodes: Cluster, make_daemon: Callable[..., AlertDaemon], hook: WebhookReceiver
) -> None:
    with Alertmanager(tmp_path / "am", hook.url) as am:
        daemon = make_daemon(f'[[notify]]\ntype = "alertmanager"\nname = "am"\nurl = "{am.url}"\nheartbeat = false\n')
        fill(nodes, 0)
        try:
            assert daemon.once().returncode == 1
            assert "gpu:n0/1" in am.names()
            am.daemon.kill()
            am.start()
            assert daemon.once().returncode == 1
            assert "gpu:n0/1" in am.names(), "a check posts it again though nothing is notified"
        finally:
            mend(nodes, 0)


def answer(prometheus: Prometheus, path: str, **words: str) -> Any:
    """Of its HTTP API; empty while there is none."""
    url = f"{prometheus.url}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return json.loads(response.read())["data"]
    except OSError:
        return {}


def values(prometheus: Prometheus, query: str) -> list[float]:
    return [float(one["value"][1]) for one in answer(prometheus, "query", query=query).get("result", ())]


def test_prometheus_scrapes_the_daemon_and_the_textfile(
    tmp_path: Path, make_daemon: Callable[..., AlertDaemon]
) -> None:
    (port,) = ports(1)
    folder = tmp_path / "textfiles"
    folder.mkdir()
    file = folder / "trainmon.prom"
    daemon = make_daemon(
        f'[daemon]\nmetrics = {port}\ntextfile = "{file}"\n[[run]]\nname = "llm"\nlog = "{tmp_path}/train.log"\n'
    )
    (tmp_path / "train.log").write_text("step 7 | loss 2.5\n")
    started(daemon)
    textfiles = ("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}")
    with NodeExporter(tmp_path, *textfiles) as node:
        jobs = {"daemon": [f"127.0.0.1:{port}"], "node": [node.address]}
        with Prometheus(tmp_path, jobs, rules=str(FOLDER / "examples/prometheus-rules.yml")) as prometheus:

            def becomes(query: str, value: float) -> None:
                until(lambda: values(prometheus, query) == [value], f"{query} is {value:g}")

            becomes('up{job="daemon"}', 1)
            becomes('trainmon_source_up{job="daemon", source="node:n0"}', 1)
            becomes('sum(trainmon_run_verdict{job="daemon", run="llm"})', 1)
            becomes('sum(trainmon_attempts_total{job="daemon"})', 0)
            becomes('trainmon_build_info{job="node"}', 1)
            becomes("node_textfile_scrape_error", 0)
            assert answer(prometheus, "label/run/values", **{"match[]": "trainmon_run_verdict"}) == ["llm"]
            for panel in json.loads((FOLDER / "examples/grafana-dashboard.json").read_text())["panels"]:
                for target in panel["targets"]:
                    text = target["expr"]
                    for variable, value in GRAFANA.items():
                        text = text.replace(variable, value)
                    found = answer(prometheus, "query", query=text)
                    assert "result" in found, text
                    wanted = {*re.findall(r"{{(\w+)}}", target["legendFormat"])}
                    assert all(wanted <= one["metric"].keys() for one in found["result"]), panel["title"]
            groups = answer(prometheus, "rules")["groups"]
            assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
            daemon.tell(signal.SIGTERM)
            assert daemon.wait() == 0
            assert not file.exists()
            becomes('up{job="daemon"}', 0)
