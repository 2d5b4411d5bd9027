"""What the dashboard knows of nodes that Prometheus has, from captured answers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from collectors.discovery import OverSsh
from collectors.prometheus.query import Series
from collectors.prometheus.reader import QueryFailed
from tests.collectors.prometheus.captured import NEWEST, series, until
from tests.collectors.prometheus.stage import NODES, Stage
from tests.trainmon.alerting.rules.asked import findings
from trainmon.alerting.rules import RULES
from trainmon.alerting.rules.base import Unknown, silent
from trainmon.cli.snapshot import has_answered, lines
from trainmon.config import MetricsSettings
from trainmon.model import (
    GpuSamples,
    Hello,
    NodeReading,
    Source,
    SourceChanged,
    Xid,
)
from tui.panes.gpus import node_sentence


def test_the_node_of_a_job_that_starts_is_read_at_once() -> None:
    stage = Stage(nodes=())
    stage.step()
    assert (stage.source().phase, stage.server.queries) == ("off", [])
    stage.nodes = NODES
    stage.step(after=1.0)  # the poll that found nobody was a moment ago
    assert stage.source().phase == "up"
    assert stage.node().gpus


def test_nodes_have_the_numbers_and_the_ages_of_their_samples() -> None:
    stage = Stage()
    stage.step()
    assert stage.gpu("gpu-001", 1).temperature_c == 60
    assert stage.gpu("me@gpu-002", 0).memory_total_mib == 81_000
    assert (stage.node().probe, stage.node().driver, stage.node().gpus_at) == ("prometheus", "550.54.15", NEWEST)
    source = stage.source("node:gpu-001")
    assert (source.health, source.answered_at, source.via) == ("ok", NEWEST, "prometheus:prod:dcgm")
    assert (stage.source().health, stage.source().kind) == ("ok", "prometheus")
    assert stage.source().hint is not None
    assert stage.source().hint.startswith("dcgm-exporter has no power limit, throttle reasons, ECC errors")  # type: ignore[union-attr]


def test_a_late_answer_makes_nothing_fresh() -> None:
    stage = Stage()
    stage.step()
    state = stage.step(20.0)  # the same samples again
    assert state.nodes["gpu-001"].gpus_at == NEWEST
    assert not any(isinstance(event, NodeReading) for event in stage.events)
    assert stage.step(40.0).sources["node:gpu-001"].problem == "Prometheus has no new samples of it"
    assert stage.source("node:gpu-001").health == "down"
    assert stage.gpu("gpu-001", 1).temperature_c == 60
    stage.later(75.0)
    assert stage.step(15.0).sources["node:gpu-001"].health == "ok"


def test_a_node_that_was_silent_before_the_start_says_so_at_once() -> None:
    stage = Stage()
    stage.clock.at = NEWEST + 60.0
    source = stage.step().sources["node:gpu-001"]
    assert (source.health, source.problem) == ("down", "Prometheus has no new samples of it")
    assert stage.gpu("gpu-001", 1).temperature_c == 60
    stage.later(65.0)
    assert stage.step(15.0).sources["node:gpu-001"].health == "ok"


def test_what_an_exporter_lacks_is_no_disk_if_it_has_none() -> None:
    stage = Stage()
    stage.disks = ("/scratch",)
    stage.step()
    assert "disk" not in (stage.source().hint or "")


def test_the_window_of_a_query_follows_the_scrape_interval() -> None:
    stage = Stage()
    stage.step()
    assert stage.server.queries[0].endswith("[300s]")
    stage.later(15.0)
    stage.step(15.0)
    assert stage.server.queries[-1].endswith("[4s]")


def test_a_pause_of_all_exporters_is_not_an_error_of_the_server() -> None:
    stage = Stage()
    stage.step()
    stage.server.answers = {"[300s]": series("dcgm")}
    state = stage.step(60.0)
    assert [query.rpartition("}")[2] for query in stage.server.queries] == ["[300s]", "[4s]", "[4s]", "[300s]"]
    assert state.sources["prometheus:prod:dcgm"].error is None
    assert state.sources["node:gpu-001"].problem == "Prometheus has no new samples of it"
    stage.server.answers = {}
    problem = stage.step(300.0).sources["prometheus:prod:dcgm"].problem
    assert problem == "no series has a sample of the last 5m"


@pytest.mark.parametrize("named", [None, "Hostname", "hostname"])
def test_nodes_of_two_releases_of_dcgm_exporter_are_read_side_by_side(named: str | None) -> None:
    """After 4.8.2 it names the node in `hostname`. A `hostname` that a scrape adds to `Hostname` is another thing."""
    stage = Stage(MetricsSettings(url="http://p", node_label=named))
    both = series("dcgm")
    old = tuple(Series({**one.metric, "hostname": "exporter-7"}, one.values) for one in both)
    new = tuple(
        Series({"hostname" if key == "Hostname" else key: text for key, text in one.metric.items()}, one.values)
        for one in both
        if one.metric["Hostname"] == "gpu-003"
    )
    stage.server.answers = {
        ',Hostname=~"': tuple(one for one in old if one.metric["Hostname"] != "gpu-003"),
        ',hostname=~"': new,
    }
    state = stage.step()
    assert {name for name, node in state.nodes.items() if node.gpus} == {*NODES}
    first, second = stage.server.queries[:2]
    assert (',hostname=~"' in first) is (named == "hostname"), "the configured label comes first"
    is_known = "gpu-003" if named == "hostname" else "gpu-001"
    assert is_known in first
    assert is_known not in second, "only the nodes that no label before it has"


def test_a_new_xid_is_a_fault_of_its_gpu() -> None:
    stage = Stage()
    stage.server.answers["DCGM_FI_DEV_GPU_TEMP|"] = until(series("dcgm"), NEWEST - 2)
    stage.step()
    assert not stage.engine.state.node_histories["me@gpu-002"].faults
    stage.later(0.0)
    stage.step(15.0)
    [fault] = stage.engine.state.node_histories["me@gpu-002"].faults
    assert (fault.code, fault.index, fault.first_at) == (79, 1, NEWEST - 1)
    assert stage.gpu("me@gpu-002", 1).last_xid == 79


def test_numbers_over_ssh_win_and_end_with_ssh() -> None:
    stage = Stage()
    stage.ssh["gpu-001"] = OverSsh(is_up=True)
    assert "gpu-001" not in stage.step().nodes
    stage.ssh["gpu-001"] = OverSsh(problem="access denied by pam_slurm_adopt")
    stage.later(15.0)
    node = stage.step(15.0).nodes["gpu-001"]
    assert (node.probe, len(node.gpus)) == ("prometheus", 2)
    assert node.troubles == {"ssh": "access denied by pam_slurm_adopt"}
    del stage.ssh["gpu-001"]
    stage.later(30.0)
    assert stage.step(15.0).nodes["gpu-001"].troubles == {}


def test_a_node_whose_ssh_came_and_went_between_two_polls_is_read_here_again() -> None:
    stage = Stage()
    stage.step()
    over_ssh = Source(name="node:gpu-001", kind="node", cluster="prod", phase="up", period=2.0)
    hello = NodeReading("gpu-001", "prod", NEWEST + 2.0, Hello(1, NEWEST + 2.0, "gpu-001", "nvml"))
    stage.engine.step([SourceChanged(over_ssh), hello], NEWEST + 2.0)
    stage.poller.connected("gpu-001")
    stage.ssh["gpu-001"] = OverSsh(problem="refused")
    stage.later(15.0)
    state = stage.step(15.0)
    assert (state.nodes["gpu-001"].probe, state.nodes["gpu-001"].troubles) == ("prometheus", {"ssh": "refused"})
    source = state.sources["node:gpu-001"]
    assert (source.via, source.period, source.health) == ("prometheus:prod:dcgm", 15.0, "ok")


def test_a_node_is_greeted_once() -> None:
    stage = Stage()
    stage.step()
    stage.later(15.0)
    stage.step(15.0)
    kinds = {type(event.reading) for event in stage.events if isinstance(event, NodeReading)}
    assert kinds == {GpuSamples, Xid}  # all times of the answer are later, those of the Xid too


def test_gpus_and_hosts_of_two_exporters_are_one_node() -> None:
    host = MetricsSettings(url="http://p", exporter="node")
    stage = Stage(MetricsSettings(url="http://p"), host, nodes=("gpu-001", "127.0.0.1"))
    stage.step()
    assert stage.node("127.0.0.1").memory_total_mib == 24_105
    assert stage.source("node:127.0.0.1").health == "ok"
    assert stage.source("node:gpu-001").health == "ok"


def test_a_node_of_two_exporters_does_not_change_its_source() -> None:
    stage = Stage(MetricsSettings(url="http://p"), MetricsSettings(url="http://p", exporter="node"), nodes=("gpu-001",))
    hosts = tuple(Series({**one.metric, "instance": "gpu-001.dc:9100"}, one.values) for one in series("node"))
    for later in (0.0, 15.0, 30.0):
        stage.server.answers["node_load1|"] = until(hosts, NEWEST + 9, later)
        stage.later(later)
        stage.step(15.0)
        assert stage.source("node:gpu-001").via == "prometheus:prod:dcgm"
    changed = [event for event in stage.events if isinstance(event, SourceChanged)]
    assert not [event for event in changed if event.source.name == "node:gpu-001"]


def test_gpus_that_are_silent_while_the_host_answers_are_a_trouble() -> None:
    stage = Stage(MetricsSettings(url="http://p"), MetricsSettings(url="http://p", exporter="node"), nodes=("gpu-001",))
    hosts = tuple(Series({**one.metric, "instance": "gpu-001.dc:9100"}, one.values) for one in series("node"))
    stage.server.answers["node_load1|"] = hosts
    stage.step()
    stage.server.answers["node_load1|"] = until(hosts, NEWEST + 9, 60.0)
    state = stage.step(60.0)
    stage.later(0.0)
    state = stage.step(1.0)
    assert state.nodes["gpu-001"].troubles == {}
    stage.server.answers["node_load1|"] = until(hosts, NEWEST + 9, 75.0)
    state = stage.step(15.0)
    assert state.sources["node:gpu-001"].health == "ok"
    assert state.nodes["gpu-001"].troubles == {"gpu": "no new samples of dcgm-exporter in Prometheus"}


def test_numbers_whose_server_fails_say_so_on_a_node_that_another_server_shows() -> None:
    stage = Stage(MetricsSettings(url="http://p"), MetricsSettings(url="http://p", exporter="node"), nodes=("gpu-001",))
    hosts = tuple(Series({**one.metric, "instance": "gpu-001.dc:9100"}, one.values) for one in series("node"))
    for later in (0.0, 60.0):
        stage.server.answers["node_load1|"] = until(hosts, NEWEST + 9, later)
        state = stage.step(later)
        stage.server.errors["DCGM"] = QueryFailed("no answer within 10s")
    assert state.nodes["gpu-001"].troubles == {}, "the host is read after the GPUs here"
    stage.server.answers["node_load1|"] = until(hosts, NEWEST + 9, 90.0)
    state = stage.step(30.0)
    assert state.nodes["gpu-001"].troubles == {"gpu": "Prometheus: no answer within 10s"}
    assert state.sources["node:gpu-001"].health == "ok"
    del stage.server.errors["DCGM"]
    stage.later(150.0)
    stage.server.answers["node_load1|"] = until(hosts, NEWEST + 9, 150.0)
    assert stage.step(60.0).nodes["gpu-001"].troubles == {}


def test_an_error_of_the_server_is_the_error_of_the_source_and_not_of_its_nodes() -> None:
    stage = Stage()
    stage.step()
    stage.server.error = QueryFailed("the server refuses the token (401)", hint="renew it")
    for _ in range(4):
        state = stage.step(120.0)
    source = state.sources["prometheus:prod:dcgm"]
    assert (source.health, source.problem, source.hint) == ("down", "the server refuses the token (401)", "renew it")
    assert (state.sources["node:gpu-001"].health, state.sources["node:gpu-001"].error) == ("late", None)
    why = "Prometheus: the server refuses the token (401)"
    assert silent(state, ["node:gpu-001"]) == Unknown(f"node:gpu-001: {why}")
    [row] = [line for line in lines(state) if line.startswith("gpu-001")]
    assert row.endswith("Prometheus: the server refuses the token (401); renew it; its GPUs were read 8m ago")
    assert (
        "late 8m: Prometheus: the server refuses the token (401); renew it"
        in node_sentence(state, "gpu-001", state.at)[0]
    )
    now = stage.clock.now()
    names = ("node-unreachable", "cluster-unreachable", "source-down")
    found = [one.rule for rule in RULES if rule.name in names for one in findings(rule(), state, now)]
    assert found == ["source-down"]


def test_nodes_have_a_row_before_the_server_answers() -> None:
    stage = Stage()
    stage.server.error = QueryFailed("no answer within 10s")
    state = stage.step()
    rows = [state.sources[f"node:{node}"] for node in NODES]
    assert {(row.phase, row.health, row.via) for row in rows} == {("waiting", "late", "prometheus:prod:dcgm")}
    assert has_answered(state, rows[0]), "snapshot does not wait for a server that is down"
    stage.server.error = None
    state = stage.step(15.0)
    assert not has_answered(state, replace(rows[0], name="node:gpu-009"))
    assert has_answered(state, state.sources["node:gpu-001"])


@pytest.mark.parametrize(
    ("labels", "match", "has_any", "message"),
    [
        (("n7", "n8"), "", True, "no series of gpu-001 or 2 other nodes; values of Hostname: n7, n8; labels seen: "),
        (
            (),
            'cluster="b"',
            True,
            'no series matches cluster="b"; labels seen: DCGM_FI_DRIVER_VERSION="550.54.15", Hostname="gpu-001"',
        ),
        (("",), 'job="a"', True, 'no series has a label Hostname or hostname; labels seen: DCGM_FI_DRIVER_VERSION="5'),
        (
            ("",),
            "",
            True,
            'no series has a label Hostname or hostname; labels seen: DCGM_FI_DRIVER_VERSION="550.54.15"',
        ),
        ((), "", False, "the server has no series DCGM_FI_DEV_GPU_TEMP"),
    ],
)
def test_without_series_the_error_names_the_labels_that_were_seen(
    labels: tuple[str, ...], match: str, has_any: bool, message: str
) -> None:
    stage = Stage(MetricsSettings(url="http://p", match=match))
    stage.server.answers = {
        "count by": tuple(Series({"Hostname": label} if label else {}) for label in labels),
        **({'cluster="b"': ()} if match == 'cluster="b"' else {}),
        "topk": tuple(
            Series({key: text for key, text in one.metric.items() if not labels or key != "Hostname"})
            for one in (series("one") if has_any else ())
        ),
    }
    problem = stage.step().sources["prometheus:prod:dcgm"].problem
    assert problem is not None
    assert problem.startswith(message)


def test_the_first_of_many_screens_that_are_opened_at_once_is_read_too() -> None:
    stage = Stage()
    stage.step()
    stage.poller.view("gpu-001")
    for _ in range(100):
        stage.poller.view("gpu-002")
    stage.step()
    assert len(stage.engine.history("gpu-001/1", "temperature", 3_600.0).values) > 200


def test_an_open_screen_shows_the_last_day_at_once() -> None:
    stage = Stage()
    stage.step()
    stage.poller.view("gpu-001")
    stage.step()
    hour = stage.engine.history("gpu-001/1", "temperature", 3_600.0)
    day = stage.engine.history("gpu-001/1", "temperature", 86_400.0)
    assert 230 <= len(hour.values) <= 242
    assert {*hour.values} <= {*range(40, 50), 60}
    assert len(day.values) > 1_400
    asked = [text.rpartition("} ")[2] for text in stage.server.queries[1:]]
    assert asked == [*["3610s by 15s"] * 2, *["86410s by 60s"] * 2], "for both names of the label"
    stage.poller.view("gpu-001")
    stage.step(1.0)
    assert len(stage.server.queries) == 5


def test_a_node_that_is_not_in_sight_any_more_leaves() -> None:
    stage = Stage()
    stage.step()
    stage.nodes = ("gpu-001",)
    assert [*stage.step(1.0).nodes] == ["gpu-001"]
    assert "node:gpu-003" not in stage.engine.state.sources
