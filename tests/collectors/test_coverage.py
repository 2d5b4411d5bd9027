"""Which nodes are connected to over SSH, where Prometheus has the numbers of all."""

from __future__ import annotations

import pytest

from collectors.discovery import VIEWED_FOR, Coverage, watch_plan
from trainmon.config import ClusterSettings, MetricsSettings, RunSettings, Settings, run_specs
from trainmon.model import Source

TABLE = MetricsSettings(url="http://p")
NODES = tuple(f"n{number}" for number in range(1, 9))


def hosts(cluster: ClusterSettings, *runs: RunSettings, viewed: str = "", jobs: tuple[str, ...] = ()) -> list[str]:
    """The hosts over SSH."""
    settings = Settings(clusters=(cluster,), runs=runs)
    coverage = Coverage(settings.clusters)
    plan = watch_plan(settings, cluster, run_specs(settings), jobs)
    coverage.limited(plan, jobs)
    if viewed:
        assert coverage.view(viewed, 0.0)
    return [*coverage.limited(plan, jobs).hosts]


@pytest.mark.parametrize(("ssh", "over_ssh"), [("runs", ["login1", "n3", "n4"]), ("files", ["login1"])])
def test_the_nodes_of_runs_and_the_reader_of_files_are_connected_to(ssh: str, over_ssh: list[str]) -> None:
    cluster = ClusterSettings(name="a", login="login1", nodes=NODES, metrics=(TABLE,), ssh=ssh)  # type: ignore[arg-type]
    assert hosts(cluster, RunSettings(name="llm", log="/fsx/log"), jobs=("n3", "n4")) == over_ssh
    assert hosts(cluster, RunSettings(name="llm", nodes=("n3", "n4"))) == over_ssh
    assert "n7" in hosts(cluster, RunSettings(name="llm", nodes=("n3",)), viewed="n7")


def test_without_metrics_all_nodes_are_connected_to() -> None:
    assert hosts(ClusterSettings(name="a", login="login1", nodes=NODES)) == ["login1", *NODES]


def test_without_runs_and_files_only_the_login_host_is_connected_to() -> None:
    assert hosts(ClusterSettings(name="a", login="login1", nodes=NODES, metrics=(TABLE,))) == ["login1"]
    assert hosts(ClusterSettings(name="a", nodes=NODES, metrics=(TABLE,))) == []


def test_a_node_is_connected_to_while_its_screen_is_open() -> None:
    cluster = ClusterSettings(name="a", login="login1", nodes=NODES, metrics=(TABLE,))
    settings = Settings(clusters=(cluster,))
    coverage, plan = Coverage(settings.clusters), watch_plan(settings, cluster, ())
    coverage.limited(plan, ())
    assert coverage.view("n5", 10.0)
    assert not coverage.view("n5", 20.0)
    assert not coverage.view("login1", 20.0)
    assert coverage.has_changed(20.0)
    assert coverage.limited(plan, ()).hosts == ("login1", "n5")
    assert not coverage.has_changed(20.0 + VIEWED_FOR)
    assert coverage.has_changed(20.1 + VIEWED_FOR)
    assert coverage.limited(plan, ()).hosts == ("login1",)
    assert [*coverage.nodes("a")] == [*NODES]


def test_the_past_of_the_node_that_reads_the_files_is_in_prometheus_too() -> None:
    cluster = ClusterSettings(name="a", login="n1", nodes=NODES, metrics=(TABLE,))
    coverage = Coverage((cluster,))
    coverage.limited(watch_plan(Settings(clusters=(cluster,)), cluster, ()), ())
    assert coverage.view("n1", 10.0)
    assert (coverage.past_of("n1"), coverage.cluster_of("n1")) == ("a", None), "its numbers come over SSH"
    assert not coverage.view("another", 10.0)


def test_a_connection_that_fails_says_nothing_about_a_node_that_prometheus_has() -> None:
    cluster = ClusterSettings(name="a", login="login1", nodes=NODES, metrics=(TABLE,))
    settings = Settings(clusters=(cluster,))
    coverage = Coverage(settings.clusters)
    coverage.limited(watch_plan(settings, cluster, ()), ())
    failed = Source(name="node:n5", kind="node", cluster="a", phase="retrying", error="refused")
    assert coverage.hides(failed)
    assert not coverage.hides(Source(name="node:n5", kind="node", cluster="a", phase="up"))
    assert not coverage.hides(Source(name="node:login1", kind="node", cluster="a", phase="held"))
