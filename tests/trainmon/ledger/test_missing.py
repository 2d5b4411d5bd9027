"""Columns of an attempt that are not known: each is named, and why."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.cli.attempts.test_history import LONG, NOON, OTHER
from trainmon.analysis.attempts import missing, why_missing
from trainmon.ledger.attempts import COLUMNS, columns_of
from trainmon.model import Attempt, AttemptEnd, AttemptFile

BARE_JOB = Attempt(
    attempt_id="prod/88.0", run_id="llm", cluster="prod", job_id="88", seen_at=NOON,
    end=AttemptEnd(at=NOON, source="lost", noticed_at=NOON),
)  # fmt: skip
BARE_LOG = replace(BARE_JOB, attempt_id="llm/log/n1:/fsx/1.out@1", job_id=None)
BARE_PROCESS = replace(BARE_JOB, attempt_id="llm/pid/n1/7", job_id=None, pid=7)

WITHOUT_MEANING = {
    "signal",  # an exit code is enough
    "labels", "evidence",  # a person need not give any; a cause need not have any
    "array_id",  # most jobs are no tasks
}  # fmt: skip
"""Columns whose null does not mean that something is unknown."""
OF_JOBS = {"job_id", "restart", "submitted_at", "scheduler_state"}


@pytest.mark.parametrize(("attempt", "allowed"), [
    (BARE_JOB, {"pid"}),
    (BARE_LOG, {"pid", *OF_JOBS}),
    (BARE_PROCESS, OF_JOBS),
    (LONG, {"pid", "resumed_from", "resumed_words"}),  # it began at step 1
    (OTHER, {"pid", *OF_JOBS}),
    (replace(LONG, counts_steps=False), {"pid", "resumed_from", "resumed_words"}),
    (replace(LONG, restart=1), {"pid"}),
], ids=["job", "log", "process", "known job", "W&B", "epochs", "restart"])  # fmt: skip
def test_every_column_that_is_null_and_should_not_be_is_named(attempt: Attempt, allowed: set[str]) -> None:
    row = columns_of(attempt, NOON)
    null = {name for name in COLUMNS if row[name] in (None, [], {})} - WITHOUT_MEANING - allowed - {"missing"}
    assert null - {*row["missing"]} == set()
    assert {*row["missing"]} <= {*COLUMNS}
    assert all(row[name] in (None, [], {}) for name in row["missing"])
    assert {*why_missing(attempt)} <= {*row["missing"]}


def test_an_attempt_that_runs_misses_nothing_of_its_end() -> None:
    running = replace(BARE_JOB, end=None)
    assert not {"exit_code", "termination_reason", "log_tail", "steps_lost", "scheduler_state"} & {*missing(running)}


def test_what_is_missing_says_why() -> None:
    assert why_missing(replace(LONG, counts_steps=False)) == {"steps_lost": "its checkpoints are named by epochs"}
    assert why_missing(BARE_LOG) == {
        "steps_lost": "its checkpoints were not listed",
        "last_committed_step": "its checkpoints were not listed",
        "exit_code": "nothing has reported its end",
    }
    unread = AttemptFile(path="/fsx/m.json", read_at=NOON, error="no permission")
    found = why_missing(replace(LONG, files={"data_manifest": unread, "config_path": unread}))
    assert found == {"data_manifest": "/fsx/m.json: no permission", "config_path": "/fsx/m.json: no permission"}
