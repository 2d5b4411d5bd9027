"""The dashboard's requests that need the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from tests.trainmon.alerting.notify.samples import alert
from tests.trainmon.cli.attempts.test_history import LONG, NEXT, NOON
from tests.trainmon.ledger.opened import At, opened, until
from tests.trainmon.slurm.test_client import FakeShell, printed
from trainmon.analysis.explanation import AttemptRecords, Report
from trainmon.engine.engine import Engine
from trainmon.ledger.alerts import write_changes
from trainmon.ledger.ledger import NAME, Ledger, attempt_rows
from trainmon.model import AlertChanges, Attempt, Job, NodeEvent
from trainmon.runtime.backend import DashboardBackend, job_texts
from trainmon.transport.shell import Completed


def test_an_attempt_is_read_from_the_ledger_and_a_missing_one_is_not_answered(tmp_path: Path) -> None:
    found: list[tuple[Attempt, AttemptRecords]] = []

    def reply(attempt: Attempt, records: AttemptRecords) -> None:
        found.append((attempt, records))

    with opened(tmp_path, clock=At(NOON + 90_000)) as (ledger, _):
        ledger.keep(LONG)
        ledger.keep(NEXT)
        backend = DashboardBackend(Engine(), ledger)
        until(lambda: len(attempt_rows(tmp_path, 0.0, None, 9)) == 2)
        backend.read_attempt("nowhere/1@2", reply)
        backend.read_attempt(LONG.attempt_id, reply)
        until(lambda: bool(found))
    ((attempt, records),) = found
    assert attempt == LONG
    assert {one.attempt_id for one in records.attempts if one.run_id == LONG.run_id} >= {LONG.attempt_id}


def test_the_history_of_a_node_is_read_from_the_ledger(tmp_path: Path) -> None:
    found: list[Sequence[NodeEvent]] = []
    xid = alert(rule="xid", subject="gpu:n1/3 xid 79", node="n1", run=None, summary="Xid 79 on GPU 3 of n1")
    with opened(tmp_path, clock=At(NOON + 90_000)) as (ledger, _):
        ledger.keep(LONG)
        until(lambda: bool(attempt_rows(tmp_path, 0.0, None, 9)))
        with sqlite3.connect(tmp_path / NAME) as connection:
            write_changes(connection, AlertChanges(at=NOON, alerts=(xid, replace(xid, id="other", node="n2"))))
        connection.close()
        DashboardBackend(Engine(), ledger).read_node_events("n1", found.append)
        until(lambda: bool(found))
    assert [[(one.node, one.what, one.text) for one in events] for events in found] == [[("n1", "xid", xid.summary)]]


def test_without_a_ledger_nothing_is_answered() -> None:
    found: list[object] = []
    DashboardBackend(Engine()).read_attempt("prod/88@1", lambda *one: found.append(one))
    assert found == []


def test_a_report_says_that_the_ledger_cannot_be_read(tmp_path: Path) -> None:
    found: list[Report] = []
    (tmp_path / NAME).write_bytes(b"no database " * 1000)
    DashboardBackend(Engine(), Ledger(tmp_path, print)).read_report(None, found.append)
    until(lambda: bool(found))
    assert found[0].missing[0].startswith(f"the ledger {tmp_path / NAME}: ")


def test_the_script_and_the_stderr_of_a_job_are_shown_without_their_secrets() -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    script = f"#!/bin/bash\nexport WANDB_API_KEY={key}\nsrun python train.py\n"
    errors = f"wandb login {key}\n".encode()

    def answer(argv: Sequence[str]) -> Completed:
        is_file = "trainmon-tui" in argv
        return Completed(0, b"trainmon-tui|1 2 3|%d||\n" % len(errors) + errors, b"") if is_file else printed(script)

    shell = FakeShell(answer)
    job = Job(cluster="c", id="7", number=7, name="llm", user="ann", state="RUNNING", stderr="/fsx/7.err")
    texts = dict(job_texts(job, lambda: shell, lambda: shell))
    assert texts["script"] == ["#!/bin/bash", "export WANDB_API_KEY=***", "srun python train.py"]
    assert len(texts["stderr /fsx/7.err"]) == 1
    assert key not in str(texts)
