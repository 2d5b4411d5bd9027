"""check, of Prometheus: what a server has, and what to do where it has nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from collectors.discovery import OverSsh
from collectors.prometheus.collector import PrometheusPoller
from collectors.prometheus.reader import PrometheusClient
from tests.collectors.prometheus.captured import FOLDER, NEWEST
from tests.lab.receiver import Answer, Receiver, status
from trainmon.cli.check.state import table_rows
from trainmon.cli.check.watch import Row
from trainmon.config import ClusterSettings, MetricsSettings
from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import SystemClock
from trainmon.model import Event, State

TOKEN = "glsa_9f8e7d6c5b4a3210"
LACKS = "dcgm-exporter has no power limit, throttle reasons, ECC errors, pending row remaps, failed row remaps"


def captured(name: str, age: float = 340.0) -> Answer:
    """An answer whose newest samples have this age."""
    body = (FOLDER / f"{name}.json").read_bytes().replace(str(NEWEST).encode(), f"{time.time() - age:.3f}".encode())
    return Answer("status", 200, body)


EMPTY = Answer("status", 200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}')


def rows(*answers: Answer, nodes: tuple[str, ...], token: str | None = None) -> list[Row]:
    with Receiver.start() as server:
        server.script(*answers)
        table = MetricsSettings(url=server.url, token=token)
        cluster = ClusterSettings(name="prod", metrics=(table,))
        client, events = partial(PrometheusClient, environ={"PROM": TOKEN}), list[Event]()
        in_sight: Mapping[str, tuple[str, ...]] = dict.fromkeys(nodes, ())
        poller = PrometheusPoller(cluster, lambda: in_sight, lambda _: OverSsh(), events.append, SystemClock(), client)
        (read,) = poller.tables
        read.step()
        return list(table_rows("prod, dcgm", reduce(State(), events, time.time()).sources[read.name], read))


def test_it_says_what_the_server_has_and_what_it_lacks() -> None:
    text = f"2 nodes with 4 GPUs; the newest sample is 6m old; {LACKS}, processes, temperature margin"
    absent = "1 of 3 nodes without series: gpu-009"
    hint = "check that dcgm-exporter is up and that the server scrapes it"
    assert rows(captured("dcgm"), EMPTY, nodes=("gpu-001", "gpu-002", "gpu-009")) == [
        Row("ok", "Prometheus", "prod, dcgm", text),
        Row("note", "Prometheus", "prod, dcgm", absent, hint),
        Row("note", "Prometheus", "prod, dcgm", "2 of 3 nodes without new samples: gpu-001, gpu-002", hint),
    ]
    fresh = rows(captured("dcgm", 2.0), nodes=("gpu-001", "gpu-002"))
    assert [row.mark for row in fresh] == ["ok"]


def test_with_the_nodes_of_jobs_it_lists_the_names_that_the_server_has() -> None:
    [row] = rows(captured("labels"), nodes=())
    assert row == Row("ok", "Prometheus", "prod, dcgm", "Hostname has 3 values: gpu-001, gpu-002, gpu-003")


def test_the_nodes_of_jobs_are_looked_for_by_name() -> None:
    [row] = rows(captured("dcgm", 2.0), nodes=("gpu-001",))
    assert row.text.startswith("1 node with 2 GPUs; the newest sample is ")
    [wrong] = rows(captured("dcgm", 2.0), EMPTY, captured("labels"), captured("one"), nodes=("node7",))
    assert wrong.mark == "bad"
    seen = 'labels seen: DCGM_FI_DRIVER_VERSION="550.54.15", Hostname="gpu-001"'
    assert wrong.text.startswith(f"no series of node7; values of Hostname: gpu-001, gpu-002, gpu-003; {seen}")


def test_an_incomplete_answer_is_a_note() -> None:
    gap = b'"isPartial":true,"status":"success"'
    answer = captured("dcgm", 2.0)
    partial = replace(answer, body=answer.body.replace(b'"status":"success"', gap))
    [row] = rows(partial, nodes=("gpu-001", "gpu-002"))
    assert row.mark == "note"
    assert "; the answer of the server may be incomplete: a storage node did not answer; dcgm-exporter" in row.text


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_token_is_a_problem_and_never_shown(code: int) -> None:
    [row] = rows(status(code), nodes=("gpu-001",), token="env:PROM")
    assert row == Row(
        "bad",
        "Prometheus",
        "prod, dcgm",
        f"the server refuses the token ({code})",
        'renew the "token" of its metrics table',
    )
    assert TOKEN not in str(row)
