"""The copy in a real PostgreSQL, which stops and starts meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from tests.lab.postgresql import PASSWORD, Postgresql
from tests.trainmon.cli.attempts.test_history import LONG, NEXT, NOON, OTHER
from tests.trainmon.ledger.opened import At, opened, plain, until
from tests.trainmon.ledger.records import record
from tests.trainmon.ledger.test_query import QUERY
from trainmon.ledger.database import NAME
from trainmon.ledger.postgresql import TABLES, PostgresCopy, connection_error
from trainmon.lib import SystemClock
from trainmon.model import EvalResult


@pytest.fixture(scope="module")
def one_server() -> Iterator[Postgresql]:
    with Postgresql.start() as server:
        yield server


@pytest.fixture
def server(one_server: Postgresql) -> Iterator[Postgresql]:
    yield one_server
    with psycopg.connect(one_server.url) as connection:
        connection.execute("DROP TABLE IF EXISTS training_attempts, actions, evals")


def rows(server: Postgresql, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.url) as connection:
        return connection.execute(query.encode()).fetchall()


ALL = "select attempt_id, ended_at is not null, last_step, labels ->> 'owner' from training_attempts order by 1"


def test_attempts_and_actions_are_copied_once_and_renewed(tmp_path: Path, server: Postgresql) -> None:
    copy = PostgresCopy(tmp_path, server.url, SystemClock())
    copy.copy()  # there is no ledger yet
    with opened(tmp_path, clock=At(time.time())) as (ledger, _):
        ledger.keep(NEXT)
        ledger.keep(OTHER)
        ledger.write(record("a1", at=time.time()))
    copy.copy()
    assert rows(server, ALL) == [(NEXT.attempt_id, False, 12_500, "team-a"), (OTHER.attempt_id, True, None, None)]
    assert rows(server, "select id, verb, run from actions") == [("a1", "requeue", "video-2b")]

    with opened(tmp_path, clock=At(time.time())) as (ledger, _):
        ledger.keep(replace(NEXT, last_step=12_600, seen_at=NOON + 20_000, end=replace(LONG.end, at=NOON + 20_000)))
    copy.copy()
    copy.copy()
    PostgresCopy(tmp_path, server.url, SystemClock()).copy()  # another program, which begins with everything
    assert rows(server, ALL)[0] == (NEXT.attempt_id, True, 12_600, "team-a")
    assert len(rows(server, ALL)) == 2


def test_results_of_evaluators_are_copied_once_with_their_scores(tmp_path: Path, server: Postgresql) -> None:
    first = EvalResult(step=10, decoding={}, results={"acc": 0.25, "note": "a\x00b"}, evaluated_at="on Sunday")
    copy = PostgresCopy(tmp_path, server.url, SystemClock())
    with opened(tmp_path, clock=At(time.time())) as (ledger, _):
        ledger.keep_evals("llm", [first], "prod")
    copy.copy()
    with opened(tmp_path, clock=At(time.time())) as (ledger, _):
        ledger.keep_evals("llm", [first, replace(first, step=20, results={"acc": 0.7})])
    copy.copy()
    PostgresCopy(tmp_path, server.url, SystemClock()).copy()  # another program, which begins with everything
    scores = "select run_id, step, (results ->> 'acc')::float, decoding, evaluated_at, cluster from evals order by step"
    assert rows(server, scores) == [
        ("llm", 10, 0.25, {}, "on Sunday", "prod"), ("llm", 20, 0.7, {}, "on Sunday", None)
    ]  # fmt: skip
    assert rows(server, "select count(*) from evals where written_at > now() - interval '1 day'") == [(2,)]


def test_a_column_has_the_type_there_that_it_has_here(tmp_path: Path, server: Postgresql) -> None:
    with opened(tmp_path, clock=At(time.time())) as (ledger, _):
        ledger.keep(LONG)
    PostgresCopy(tmp_path, server.url, SystemClock()).copy()
    found = {
        (table, name): kind
        for table, name, kind in rows(
            server, "select table_name, column_name, data_type from information_schema.columns"
        )
    }
    numbers = {"bigint": "INTEGER", "double precision": "REAL"}
    for table in TABLES:
        for _, name, kind, *_ in plain(tmp_path / NAME, f"PRAGMA table_info({table.name})"):
            if name in table.columns:
                assert numbers.get(found[table.name, name], "TEXT") == kind, (table.name, name)
    assert found["training_attempts", "ended_at"] == found["evals", "written_at"] == "timestamp with time zone"
    assert found["training_attempts", "labels"] == found["evals", "results"] == "jsonb"


def test_a_row_that_has_ended_is_not_opened_by_another_ledger(tmp_path: Path, server: Postgresql) -> None:
    for name, attempt in (("one", LONG), ("two", replace(LONG, end=None, last_step=3))):
        with opened(tmp_path / name, clock=At(time.time())) as (ledger, _):
            ledger.keep(attempt)
        PostgresCopy(tmp_path / name, server.url, SystemClock()).copy()
    assert rows(server, ALL) == [(LONG.attempt_id, True, 12_345, "team-a")]


def test_the_question_of_every_week_runs_unchanged_there(tmp_path: Path, server: Postgresql) -> None:
    began = time.time() - 86_400
    recent = replace(LONG, started_at=began, end=replace(LONG.end, at=began + 7200))
    with opened(tmp_path, clock=At(time.time())) as (ledger, _):
        ledger.keep(recent)
    PostgresCopy(tmp_path, server.url, SystemClock()).copy()
    assert rows(server, QUERY) == [("cuda-oom", 1, 32.0)]


def test_a_server_that_stops_and_starts_gets_everything_and_nothing_shows_its_password(
    tmp_path: Path, server: Postgresql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    copy = PostgresCopy(tmp_path, server.url, SystemClock(), every=0.2)
    with opened(tmp_path, clock=At(time.time())) as (ledger, troubles):
        ledger.keep(LONG)
        copy.start()
        until(lambda: ("training_attempts",) in rows(server, TABLE_NAMES) and len(rows(server, ALL)) == 1)
        server.stop()
        ledger.keep(OTHER)
        until(lambda: any("is not copied to PostgreSQL" in line for line in caplog.messages))
        began = time.monotonic()
        ledger.write(record("a1", at=time.time()))  # the ledger itself does not wait for it
        assert time.monotonic() - began < 2
        server.resume()
        until(lambda: len(rows(server, ALL)) == 2)
        copy.stop()
        assert troubles.empty()
    assert "the ledger is copied to PostgreSQL again" in caplog.messages
    wrong = connection_error(server.url.replace(PASSWORD, "another-secret"))
    assert "password authentication failed" in (wrong or "")
    odd = connection_error(f"postgresql://u:{PASSWORD} x@/")
    assert odd is not None
    assert connection_error(server.url) is None
    assert PASSWORD not in f"{odd} {wrong} {caplog.text}"
    assert "another-secret" not in (wrong or "")


TABLE_NAMES = "select tablename from pg_tables"
