"""check, of Prometheus: what a server has, and what to do where it has nothing."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.collectors.prometheus.captured import FOLDER, NEWEST
from tests.lab.receiver import Answer, Receiver, status
from trainmon.cli.check.output import Row
from trainmon.cli.check.services import check_metrics
from trainmon.config import ClusterSettings, MetricsSettings, Settings

TOKEN = "glsa_9f8e7d6c5b4a3210"
LACKS = "dcgm-exporter has no power limit, throttle reasons, ECC errors, pending row remaps, failed row remaps"


def captured(name: str, age: float = 340.0) -> Answer:
    """An answer whose newest samples have this age."""
    body = (FOLDER / f"{name}.json").read_bytes().replace(str(NEWEST).encode(), f"{time.time() - age:.3f}".encode())
    return Answer("status", 200, body)


EMPTY = Answer("status", 200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}')


def rows(
    *answers: Answer, nodes: tuple[str, ...] | None, token: str | None = None, of_jobs: tuple[str, ...] = ()
) -> list[Row]:
    with Receiver.start() as server:
        server.script(*answers)
        table = MetricsSettings(url=server.url, token=token)
        cluster = ClusterSettings(name="prod", nodes=nodes, metrics=(table,))
        return list(check_metrics(Settings(clusters=(cluster,)), {"prod": of_jobs}, environ={"PROM": TOKEN}))


def test_without_metrics_there_are_no_rows() -> None:
    assert list(check_metrics(Settings(), {})) == []


def test_it_says_what_the_server_has_and_what_it_lacks() -> None:
    text = f"2 nodes with 4 GPUs; the newest sample is 6m old; {LACKS}, processes, temperature margin"
    absent = "1 of 3 nodes without series: gpu-009"
    hint = "is dcgm-exporter up, and does the server scrape it?"
    assert rows(captured("dcgm"), EMPTY, nodes=("gpu-001", "gpu-002", "gpu-009")) == [
        Row("ok", "Prometheus", "prod, dcgm", text),
        Row("note", "Prometheus", "prod, dcgm", absent, hint),
        Row("note", "Prometheus", "prod, dcgm", "2 of 3 nodes without new samples: gpu-001, gpu-002", hint),
    ]
    fresh = rows(captured("dcgm", 2.0), nodes=("gpu-001", "gpu-002"))
    assert [row.mark for row in fresh] == ["ok"]


def test_with_the_nodes_of_jobs_it_lists_the_names_that_the_server_has() -> None:
    [row] = rows(captured("labels"), nodes=None)
    assert row == Row("ok", "Prometheus", "prod, dcgm", "Hostname has 3 values: gpu-001, gpu-002, gpu-003")


def test_the_nodes_of_jobs_are_looked_for_by_name() -> None:
    [row] = rows(captured("dcgm", 2.0), nodes=None, of_jobs=("gpu-001",))
    assert row.text.startswith("1 node with 2 GPUs; the newest sample is ")
    [wrong] = rows(captured("dcgm", 2.0), EMPTY, captured("labels"), captured("one"), nodes=None, of_jobs=("node7",))
    assert wrong.mark == "bad"
    seen = 'the series have: DCGM_FI_DRIVER_VERSION="550.54.15", Hostname="gpu-001"'
    assert wrong.text.startswith(f"no series of node7; Hostname is: gpu-001, gpu-002, gpu-003; {seen}")


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
