"""Attempts in the ledger: one row each, whoever writes it, and however often."""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.cli.attempts.test_history import LONG, NEXT, NOON
from tests.trainmon.ledger.opened import At, Stuck, opened, plain, until
from tests.trainmon.ledger.records import record
from trainmon.analysis.explanation import GpuHour
from trainmon.analysis.retries import use_of
from trainmon.cli.attempts import grouped
from trainmon.engine.engine import WRITE_EVERY, AttemptRecorder, Engine
from trainmon.ledger.actions import as_json
from trainmon.ledger.attempts import COLUMNS, LISTED, WRITE, columns_of
from trainmon.ledger.database import NAME
from trainmon.ledger.ledger import attempt_records, attempt_rows, recent_attempts, totals
from trainmon.ledger.reader import select
from trainmon.model import (
    ActionChanged,
    Attempt,
    AttemptsRestored,
    EvalResult,
    Evals,
    Gpu,
    Leadership,
    LedgerReplaced,
    Node,
    Record,
    Run,
    RunSpec,
    Series,
    State,
)


def having(*attempts: Attempt, holder: str = "us") -> State:
    leadership = Leadership(holder=holder)  # type: ignore[arg-type]
    return State(attempts={one.attempt_id: one for one in attempts}, leadership=leadership)


class Kept:
    """A ledger that counts."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.actions: list[Record] = []
        self.hours: list[tuple[str, GpuHour]] = []
        self.evals: list[tuple[str, int | None]] = []

    def keep(self, record: Record | Attempt) -> None:
        if isinstance(record, Attempt):
            self.attempts.append(record)
        else:
            self.actions.append(record)

    def keep_gpu_hour(self, attempt: Attempt, hour: GpuHour) -> None:
        self.hours.append((attempt.attempt_id, hour))

    def keep_evals(self, run: str, results: Sequence[EvalResult], cluster: str | None = None) -> None:
        self.evals += [(run, one.step) for one in results]


def test_an_attempt_comes_back_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path, clock=At(NOON + 90_000)) as (ledger, _):
        ledger.keep(LONG)
        ledger.keep(NEXT)
    restored: list[AttemptsRestored] = []
    with opened(tmp_path, clock=At(NOON + 90_000), on_attempts=restored.append):
        until(lambda: bool(restored))
    assert sorted(restored[0].attempts, key=lambda one: one.attempt_id) == [LONG, NEXT]
    assert {*restored[0].uses} == {use_of(LONG), use_of(NEXT)}


def test_an_attempt_counts_for_its_nodes_when_it_is_not_restored_any_more(tmp_path: Path) -> None:
    with opened(tmp_path, clock=At(NOON + 90_000)) as (ledger, _):
        ledger.keep(LONG)
    restored: list[AttemptsRestored] = []
    with opened(tmp_path, clock=At(NOON + 30 * 86_400), on_attempts=restored.append):
        until(lambda: bool(restored))
    assert restored == [AttemptsRestored((), (use_of(LONG),))]


def test_two_programs_that_write_one_attempt_make_one_row_that_has_what_both_know(tmp_path: Path) -> None:
    early = replace(LONG, last_step=500, end=None, seen_at=NOON + 60, git_commit="f00d")
    late = replace(LONG, first_step=None, start_was_watched=False)
    clock = At(NOON + 7300)
    with opened(tmp_path, clock=clock) as (one, _), opened(tmp_path, clock=clock) as (other, _):
        one.keep(early)
        other.keep(late)
        one.keep(replace(early, last_step=600))
        until(lambda: (tmp_path / NAME).exists() and len(attempt_rows(tmp_path, 0.0, None, 9)) == 1)
    (row,) = attempt_rows(tmp_path, 0.0, None, 9)
    assert (row["git_commit"], row["first_step"], row["last_step"]) == ("f00d", 1, 12_345)
    assert (row["termination_reason"], row["is_reconstructed"]) == ("cuda-oom", False)


def test_the_row_of_a_closed_attempt_stays_as_it_is_when_accounting_confirms_its_end(tmp_path: Path) -> None:
    """A daemon that is killed right after it has closed an attempt has not asked accounting yet; the next one does."""
    assert LONG.end is not None
    confirmed = replace(LONG.end, source="accounting", noticed_at=NOON + 7400)
    clock = At(NOON + 7300)
    with opened(tmp_path, clock=clock) as (ledger, _):
        ledger.keep(LONG)
    (closed,) = attempt_rows(tmp_path, 0.0, None, 9)
    clock.at = NOON + 7400
    with opened(tmp_path, clock=clock) as (ledger, _):
        ledger.keep(replace(LONG, end=confirmed))
    assert attempt_rows(tmp_path, 0.0, None, 9) == [closed]
    with opened(tmp_path, clock=clock) as (ledger, _):
        ledger.keep(replace(LONG, end=replace(confirmed, scheduler_state="OUT_OF_MEMORY")))
    (row,) = attempt_rows(tmp_path, 0.0, None, 9)
    assert (row["scheduler_state"], row["written_at"] > closed["written_at"]) == ("OUT_OF_MEMORY", True)


DECISIONS = (("now", 1), ("after-change", 0))


@pytest.mark.parametrize(("earlier", "newer"), [DECISIONS, DECISIONS[::-1]], ids=str)
def test_a_decision_that_was_made_again_replaces_the_earlier_one_whole(
    tmp_path: Path, earlier: tuple[str, int], newer: tuple[str, int]
) -> None:
    assert LONG.end is not None
    confirmed = replace(LONG.end, source="accounting", scheduler_state="OUT_OF_MEMORY")
    with opened(tmp_path, clock=At(NOON + 7300)) as (ledger, _):
        ledger.keep(replace(LONG, retry_decision=earlier[0], budget_spent=earlier[1]))
        until(lambda: (tmp_path / NAME).exists() and len(attempt_rows(tmp_path, 0.0, None, 9)) == 1)
        ledger.keep(replace(LONG, end=confirmed, retry_decision=newer[0], budget_spent=newer[1]))
        until(lambda: attempt_rows(tmp_path, 0.0, None, 9)[0]["scheduler_state"] == "OUT_OF_MEMORY")
        ledger.keep(replace(LONG, last_step=12_346))  # by a program that has not decided yet
    (row,) = attempt_rows(tmp_path, 0.0, None, 9)
    assert row["last_step"] == 12_346
    assert (row["scheduler_state"], row["retry_decision"], row["budget_spent"]) == ("OUT_OF_MEMORY", *newer)


def test_old_attempts_go_and_open_ones_stay(tmp_path: Path) -> None:
    with opened(tmp_path, clock=At(NOON), keep=86_400.0) as (ledger, _):
        ledger.keep(LONG)
    with opened(tmp_path, clock=At(NOON + 3 * 86_400), keep=86_400.0) as (ledger, _):
        ledger.keep(replace(NEXT, seen_at=NOON + 3 * 86_400))
    rows = plain(tmp_path / NAME, "SELECT attempt_id FROM training_attempts")
    assert rows == [(NEXT.attempt_id,)]


def test_ended_attempts_are_counted_by_cause_also_when_they_are_forgotten(tmp_path: Path) -> None:
    assert LONG.end is not None
    unread = replace(LONG, attempt_id="unread", end=replace(LONG.end, awaits_log=True))
    later = replace(LONG, attempt_id="later", end=replace(LONG.end, at=NOON + 80_000))
    with opened(tmp_path, clock=At(NOON + 7300), keep=86_400.0) as (ledger, _):
        for one in (LONG, NEXT, unread):
            ledger.keep(one)
    expected = {"attempts": {"cuda-oom": 1.0}, "gpu_seconds": {"cuda-oom": 16 * 7200.0}}
    found = totals(tmp_path, NOON + 7300)
    assert {name: found[name] for name in expected} == expected, "the cause of one may change when its log is read"
    assert totals(tmp_path, NOON + 11_000)["attempts"] == {"cuda-oom": 2.0}, "nobody reads it any more"
    with opened(tmp_path, clock=At(NOON + 100_000), keep=86_400.0) as (ledger, _):
        ledger.keep(later)
    rows = plain(tmp_path / NAME, "SELECT attempt_id FROM training_attempts ORDER BY attempt_id")
    assert rows == [("later",)]
    found = totals(tmp_path, NOON + 100_000)
    assert found["attempts"] == {"cuda-oom": 3.0}
    assert found["gpu_seconds"] == {"cuda-oom": 16 * (7200.0 + 7200.0 + 80_000.0)}


def test_no_total_shrinks_when_the_cause_of_an_attempt_changes_later(tmp_path: Path) -> None:
    assert LONG.end is not None
    assert LONG.end.cause is not None
    other = replace(LONG, end=replace(LONG.end, cause=replace(LONG.end.cause, cause="node-fail"), at=NOON + 7_100))
    for attempt in (LONG, other):
        with opened(tmp_path, clock=At(NOON + 7300), keep=86_400.0) as (ledger, _):
            ledger.keep(attempt)
        found = totals(tmp_path, NOON + 7300)
        assert found["attempts"]["cuda-oom"] == 1.0
        assert found["gpu_seconds"]["cuda-oom"] == 16 * 7200.0
    (row,) = plain(tmp_path / NAME, "SELECT termination_reason FROM training_attempts")
    assert (found["attempts"], row) == ({"cuda-oom": 1.0, "node-fail": 1.0}, ("node-fail",))


def test_only_what_is_new_or_has_grown_for_a_while_is_written() -> None:
    kept = Kept()
    recorder = AttemptRecorder(kept, hot)
    recorder.record(having(NEXT), 0.0)
    recorder.record(having(NEXT), 100.0)
    grown = replace(NEXT, last_step=12_600)
    recorder.record(having(grown), 1.0)
    assert kept.attempts == [NEXT]
    recorder.record(having(grown), WRITE_EVERY)
    failed = replace(grown, reported_end=LONG.end)
    recorder.record(having(failed), WRITE_EVERY + 1)
    assert kept.attempts == [NEXT, grown, failed], "a program that is killed now must not forget that it failed"
    ended = replace(grown, end=LONG.end)
    recorder.record(having(ended), WRITE_EVERY + 2)
    assert kept.attempts == [NEXT, grown, failed, ended]


def test_a_new_ledger_gets_all_actions_attempts_and_results_of_evaluators() -> None:
    kept, asked = Kept(), record(at=NOON)
    engine = Engine(At(NOON), ledger=kept)
    evals = Evals(results=(EvalResult(step=10),))
    run = Run(spec=RunSpec(name="video-2b", cluster="prod"), evals=evals)
    engine.state = replace(having(LONG), runs={"video-2b": run})
    for events in ([ActionChanged(asked)], [], [LedgerReplaced()], [], []):
        engine.step(events, NOON)
    assert kept.actions == [asked, asked]
    assert kept.attempts == [LONG, LONG]
    assert len(kept.evals) == 2


def hot(subject: str, metric: str, span: float) -> Series:
    """A history of two hours, at a sample per 10 s: each GPU is as hot as its index, and a degree more each minute."""
    offsets = tuple(float(at) for at in range(-7200, 1, 10) if at >= -span)
    values = tuple(float(subject[-1]) + at // 60 for at in offsets)
    return Series(offsets, values) if metric == "temperature" else Series((), ())


def test_the_last_hour_of_its_gpus_is_kept_when_a_watched_attempt_ends(tmp_path: Path) -> None:
    kept = Kept()
    recorder = AttemptRecorder(kept, hot)
    node = Node(name="n1", cluster="prod", gpus=(Gpu(index=0), Gpu(index=1)))
    runs = replace(having(replace(LONG, nodes=("n1", "n2"), end=None)), nodes={"n1": node})
    assert LONG.end is not None
    over = replace(LONG, nodes=("n1", "n2"), end=replace(LONG.end, was_watched=True))
    recorder.record(runs, LONG.end.at - 5)
    assert kept.hours == []
    for _ in range(3):
        recorder.record(replace(runs, attempts={over.attempt_id: over}), LONG.end.at + 60)
    ((attempt_id, hour),) = kept.hours
    assert (attempt_id, hour.node, hour.ended_at, list(hour.metrics)) == (
        LONG.attempt_id, "n1", LONG.end.at, ["temperature"],
    )  # fmt: skip
    cool, warm = hour.metrics["temperature"]
    assert (len(cool), cool[0], cool[-1], warm[-1]) == (60, -61.0, -2.0, -1.0)
    with opened(tmp_path, clock=At(NOON)) as (ledger, _):
        ledger.keep(over)
        ledger.keep_gpu_hour(over, hour)
    found = attempt_records(tmp_path, attempt_id)
    assert found is not None
    assert found[1].gpu_hours == (hour,)


def test_a_program_that_does_not_lead_writes_nothing_until_it_leads() -> None:
    kept = Kept()
    recorder = AttemptRecorder(kept, hot)
    for holder in ("nobody", "other"):
        recorder.record(having(LONG, NEXT, holder=holder), 0.0)
    assert kept.attempts == [], "nobody: before the election, and in a command that takes no part in it"
    for holder in ("daemon", "us"):
        recorder.record(having(LONG, NEXT, holder=holder), 1.0)
    assert kept.attempts == [LONG, NEXT]


CALLED = replace(
    NEXT, attempt_id="local/88.1@20261103T140000", cluster="local", run_id="train", labels={"owner": "b"}, restart=1,
)  # fmt: skip


def test_one_start_has_one_row_with_its_first_names_whatever_another_config_calls_it(tmp_path: Path) -> None:
    assert NEXT.job_id is not None
    ended = replace(LONG.end, at=NOON + 9_000) if LONG.end is not None else None
    with opened(tmp_path, clock=At(NOON + 7300)) as (ledger, _):
        ledger.keep(NEXT)
    with opened(tmp_path, clock=At(NOON + 7300)) as (ledger, _):
        ledger.keep(replace(CALLED, last_step=13_000))
        ledger.keep(replace(CALLED, attempt_id="other/88.1", cluster="other", nodes=("x9",)))
    with opened(tmp_path, clock=At(NOON + 9300)) as (ledger, _):
        ledger.keep(replace(CALLED, last_step=13_000, end=ended))
    rows = plain(
        tmp_path / NAME, "SELECT attempt_id, cluster, run_id, last_step, ended_at IS NULL FROM training_attempts"
    )
    assert rows == [
        (NEXT.attempt_id, NEXT.cluster, NEXT.run_id, 13_000, 0),
        ("other/88.1", "other", "train", CALLED.last_step, 1),
    ], "the nodes of another Slurm are others"


def test_rows_that_programs_with_other_configs_wrote_of_one_start_are_read_as_one_and_stay(tmp_path: Path) -> None:
    assert LONG.end is not None
    ended = replace(NEXT, end=replace(LONG.end, at=NOON + 9_000))
    with opened(tmp_path, clock=At(NOON + 9300)) as (ledger, _):
        ledger.keep(ended)
        ledger.keep(LONG)
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:  # as an earlier version wrote it
        row = columns_of(CALLED, NOON + 7300)
        values = [as_json(row[name]) if name in LISTED else row[name] for name in COLUMNS]
        connection.execute(WRITE, [*values, as_json(CALLED)])
        connection.commit()
    assert plain(tmp_path / NAME, "SELECT count(*) FROM training_attempts") == [(3,)]
    rows = attempt_rows(tmp_path, 0.0, None, 9)
    assert [row["attempt_id"] for row in rows] == [LONG.attempt_id, NEXT.attempt_id]
    assert [group["running"] for group in grouped(rows, "run")] == [0]
    assert select(tmp_path, "select count(*) from training_attempts").rows == [(2,)]
    assert {one.attempt_id for one in recent_attempts(tmp_path, 0.0, 9)} == {LONG.attempt_id, NEXT.attempt_id}
    restored: list[Attempt] = []
    with opened(tmp_path, clock=At(NOON + 9300), on_attempts=lambda known: restored.extend(known.attempts)):
        until(lambda: bool(restored))
    assert CALLED.attempt_id not in {one.attempt_id for one in restored}


def test_the_gpu_hours_of_a_start_are_those_of_its_row_whatever_another_config_calls_it(tmp_path: Path) -> None:
    with opened(tmp_path, clock=At(NOON + 7300)) as (ledger, _):
        ledger.keep(NEXT)
        until(lambda: (tmp_path / NAME).exists() and len(attempt_rows(tmp_path, 0.0, None, 9)) == 1)
        ledger.keep(CALLED)
        ledger.keep_gpu_hour(CALLED, GpuHour(node="n1", ended_at=NOON + 9_000))
    joined = "SELECT node FROM training_attempts JOIN gpu_hours USING (attempt_id)"
    assert plain(tmp_path / NAME, joined) == [("n1",)]


def test_many_starts_of_one_second_are_read_in_linear_time(tmp_path: Path) -> None:
    with opened(tmp_path, clock=At(NOON + 7300)) as (ledger, _):
        ledger.keep(LONG)
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        others = ", ".join("i" if name == "job_id" else name for name in COLUMNS[1:])
        names = ", ".join((*COLUMNS, "attempt"))
        count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        row = f"'prod/' || i, {others}, attempt"
        connection.execute(f"{count} INSERT INTO training_attempts ({names}) SELECT {row} FROM training_attempts, n")
        connection.commit()
    began = time.process_time()
    assert select(tmp_path, "select count(*) from training_attempts").rows == [(20_001,)]
    assert time.process_time() - began < 5.0


PAGE = Path(__file__).parents[3] / "docs/reference/ledger.md"


def test_the_documentation_has_every_column() -> None:
    page = PAGE.read_text().partition("## Columns of `training_attempts`")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in page.splitlines() if "|" in line)))
    assert documented == {*COLUMNS, "attempt"}


def test_the_results_of_a_run_that_is_gone_are_forgotten() -> None:
    results = (EvalResult(step=10), EvalResult(step=20))
    recorder, before = AttemptRecorder(Kept(), hot), sys.getrefcount(results)
    run = Run(spec=RunSpec(name="llm", cluster="prod"), evals=Evals(results=results))
    recorder.record(replace(having(), runs={"llm": run}), NOON)
    del run
    recorder.record(having(), NOON + 1)
    assert sys.getrefcount(results) == before


def test_results_of_evaluators_are_kept_once_and_come_back_with_the_attempts_of_their_run(tmp_path: Path) -> None:
    results = tuple(EvalResult(step=step, decoding={"temperature": 0.5}, results={"acc": 0.7}) for step in (10, 20, 30))
    kept = Kept()
    recorder = AttemptRecorder(kept, hot)
    for seen in (results[:2], results, results):
        run = Run(spec=RunSpec(name=LONG.run_id, cluster="prod"), evals=Evals(results=seen))
        recorder.record(replace(having(), runs={run.name: run}), NOON)
    assert kept.evals == [(LONG.run_id, 10), (LONG.run_id, 20), (LONG.run_id, 30)]
    for seen in (results[:2], results, results):  # three programs, one after the other
        with opened(tmp_path, clock=At(NOON)) as (ledger, _):
            ledger.keep(LONG)
            ledger.keep_evals(LONG.run_id, seen, LONG.cluster)
    found = attempt_records(tmp_path, LONG.attempt_id)
    assert found is not None
    assert found[1].evals == results
    rows = plain(tmp_path / NAME, "SELECT run_id, step, decoding, json_extract(results, '$.acc'), cluster FROM evals")
    assert rows == [(LONG.run_id, step, '{"temperature":0.5}', 0.7, "prod") for step in (10, 20, 30)]
    with opened(tmp_path, clock=At(NOON + 91 * 86_400)) as (ledger, _):
        ledger.keep(NEXT)
    assert plain(tmp_path / NAME, "SELECT * FROM evals") == []


def test_results_of_a_run_of_that_name_on_another_cluster_are_not_those_of_the_attempt(tmp_path: Path) -> None:
    with opened(tmp_path, clock=At(NOON)) as (ledger, _):
        ledger.keep(LONG)
        ledger.keep_evals(LONG.run_id, [EvalResult(step=10)], "elsewhere")
        ledger.keep_evals(LONG.run_id, [EvalResult(step=20)])  # by an earlier version
        ledger.keep_evals(LONG.run_id, [EvalResult(step=20)], "prod")
    found = attempt_records(tmp_path, LONG.attempt_id)
    assert found is not None
    assert found[1].evals == (EvalResult(step=20),)
    assert plain(tmp_path / NAME, "SELECT step, cluster FROM evals") == [(10, "elsewhere"), (20, "prod")]


def test_a_restart_with_many_results_keeps_all_of_them(tmp_path: Path) -> None:
    many = [EvalResult(step=step) for step in range(500)]
    with opened(tmp_path, factory=Stuck) as (ledger, _):
        ledger.keep(LONG)
        until(lambda: (tmp_path / NAME).exists() and len(attempt_rows(tmp_path, 0.0, None, 9)) == 1)
        Stuck.go.clear()
        Stuck.hung.set()
        ledger.keep(NEXT)  # a disk that hangs
        for run in ("a", "b", "c", "d"):
            ledger.keep_evals(run, many)
        Stuck.hung.clear()
        Stuck.go.set()
        until(lambda: plain(tmp_path / NAME, "SELECT run_id, count(*) FROM evals GROUP BY 1")[-1:] == [("d", 500)])
    assert plain(tmp_path / NAME, "SELECT count(*) FROM evals") == [(2000,)]


def test_the_documentation_has_every_column_of_evals_and_gpu_hours(tmp_path: Path) -> None:
    with opened(tmp_path, clock=At(NOON)) as (ledger, _):
        ledger.keep(LONG)
    for table in ("evals", "gpu_hours"):
        text = PAGE.read_text().partition(f"## Columns of `{table}`\n")[2].partition("\n## ")[0]
        documented = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in text.splitlines() if "|" in line))
        assert documented == [row[1] for row in plain(tmp_path / NAME, f"PRAGMA table_info({table})")]
