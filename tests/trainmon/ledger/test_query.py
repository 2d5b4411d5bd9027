"""What `sql` permits, and what it refuses: each limit with an attack."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.ledger.opened import opened
from trainmon.ledger.database import NAME
from trainmon.ledger.reader import QueryRefused, for_sqlite, select
from trainmon.model import Attempt, AttemptEnd, Classification

DAY = 86_400.0
QUERY = """\
select termination_reason, count(*) as attempts, sum(gpu_seconds) / 3600 as gpu_hours
from training_attempts
where model_family = 'reasoning' and started_at >= now() - interval '7 days'
group by termination_reason order by gpu_hours desc;
"""


def attempt(name: str, days_ago: float, cause: str, hours: float, family: str = "reasoning") -> Attempt:
    """One that had 8 GPUs and ended for a cause."""
    began = time.time() - days_ago * DAY
    classified = Classification(
        cause=cause,  # type: ignore[arg-type]
        family="resources",
        retry="never",
        confidence="high",
        fingerprint=cause,
    )
    end = AttemptEnd(at=began + hours * 3600, source="accounting", noticed_at=began, cause=classified)
    return Attempt(
        attempt_id=name, run_id="llm", cluster="prod", model_family=family, started_at=began, gpus=8, seen_at=end.at,
        end=end,
    )  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with attempts of today, of last week and of another family."""
    folder = tmp_path_factory.mktemp("ledger")
    with opened(folder, factory=sqlite3.Connection, keep=90 * DAY) as (ledger, _):
        for one in (
            attempt("a", 0.5, "cuda-oom", 1.0),
            attempt("b", 1.0, "cuda-oom", 2.0),
            attempt("c", 6.9, "time-limit", 5.0),
            attempt("d", 7.1, "node-fail", 9.0),
            attempt("e", 1.0, "node-fail", 9.0, family="video"),
            replace(attempt("f", 0.1, "unknown", 1.0), end=None, seen_at=time.time()),
        ):
            ledger.keep(one)
    return folder


def refused(directory: Path, query: str) -> str:
    with pytest.raises(QueryRefused) as error:
        select(directory, query)
    return error.value.message


def test_the_question_of_every_week_runs_unchanged(directory: Path) -> None:
    answer = select(directory, QUERY)
    assert answer.columns == ("termination_reason", "attempts", "gpu_hours")
    assert [(cause, count, round(hours)) for cause, count, hours in answer.rows] == [
        ("time-limit", 1, 40), ("cuda-oom", 2, 24), (None, 1, 19),
    ]  # fmt: skip


def test_stored_times_compare_as_text_on_the_same_day(directory: Path) -> None:
    newer = "select attempt_id from training_attempts where started_at >= now() - interval '{}' order by 1"
    assert select(directory, newer.format("13 hours")).rows == [("a",), ("f",)]
    assert select(directory, newer.format("11 hours")).rows == [("f",)]
    assert select(directory, newer.format("1 week")).rows == [("a",), ("b",), ("c",), ("e",), ("f",)]
    assert select(directory, "select now() < now() + interval '1 second'").rows == [(1,)]
    assert select(directory, "select count(*) from training_attempts where started_at > NOW ( )").rows == [(0,)]


def test_texts_and_comments_are_not_rewritten() -> None:
    query = "select 'now() - interval ''7 days''', \"now()\" -- now()\n/* now() */"
    assert for_sqlite(query) == query


@pytest.mark.parametrize(
    "attack",
    [
        "ATTACH '{folder}/made.sqlite' AS other",
        "PRAGMA writable_schema = 1",
        "PRAGMA journal_mode = DELETE",
        "select * from pragma_table_info('training_attempts')",
        "select load_extension('{folder}/evil.so')",
        "DELETE FROM training_attempts",
        "UPDATE training_attempts SET gpus = 0",
        "INSERT INTO training_attempts (attempt_id) VALUES ('x')",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "CREATE TEMP VIEW x AS SELECT 1",
        "DROP TABLE training_attempts",
        "BEGIN IMMEDIATE",
        "VACUUM INTO '{folder}/copy.sqlite'",
        "REINDEX",
        "ANALYZE",
        "EXPLAIN DELETE FROM training_attempts",
        "with x as (select 1) delete from training_attempts",
    ],
)
def test_nothing_but_reading_is_permitted(directory: Path, attack: str, tmp_path: Path) -> None:
    assert refused(directory, attack.format(folder=tmp_path)).startswith("only SELECT is permitted")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("function", ["writefile('{file}', 'x')", "readfile('/etc/passwd')", "edit('x')", "fsdir('/')"])
def test_functions_that_touch_files_do_not_exist(directory: Path, function: str, tmp_path: Path) -> None:
    file = tmp_path / "made"
    assert "no such function" in refused(directory, f"select {function.format(file=file)}")
    assert not file.exists()


def test_a_second_statement_is_refused(directory: Path) -> None:
    assert refused(directory, "select 1; delete from training_attempts") == (
        "one query at a time: there is text after its semicolon"
    )
    assert select(directory, "select 1;  -- the end").rows == [(1,)]


ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select {} from n"


def test_an_endless_query_is_stopped(directory: Path) -> None:
    began = time.monotonic()
    with pytest.raises(QueryRefused) as error:
        select(directory, ENDLESS.format("max(i)"), limit=0.5)
    assert error.value.message == "the query was stopped after 0.5s"
    assert time.monotonic() - began < 5


def test_ten_thousand_rows_are_the_most(directory: Path) -> None:
    assert len(select(directory, ENDLESS.format("i") + " limit 10000").rows) == 10_000
    assert refused(directory, ENDLESS.format("i") + " limit 10001") == "the answer has more than 10,000 rows"


@pytest.mark.parametrize(
    "attack",
    [
        "select zeroblob(1000000000)",
        "select length(zeroblob(1000000000))",
        "select hex(randomblob(900000))",
        "select replace(hex(zeroblob(400000)), '0', '0123456789')",
    ],
)
def test_no_value_is_huge(directory: Path, attack: str) -> None:
    assert "too big" in refused(directory, attack)


@pytest.mark.parametrize("attack", ["printf('%999999999d', 1)", "format('%.*c', 999999999, 'x')"])
def test_a_huge_width_is_refused(directory: Path, attack: str) -> None:
    assert refused(directory, f"select {attack}").startswith("only SELECT is permitted: not authorized to use function")


def test_the_whole_answer_is_limited(directory: Path) -> None:
    many = ENDLESS.format("zeroblob(900000)") + " limit 1000"
    assert refused(directory, many) == "the answer is larger than 64 MiB"


def test_a_query_that_collects_much_gets_no_more_memory(directory: Path) -> None:
    collecting = f"select count(distinct b) from ({ENDLESS.format('randomblob(900000) as b')} limit 2000)"
    assert refused(directory, collecting) == "the query needs more than 256 MiB of memory"


def test_a_mistake_is_named(directory: Path, tmp_path: Path) -> None:
    assert refused(directory, "select nonsense from training_attempts") == "SQLite: no such column: nonsense"
    assert refused(tmp_path, "select 1") == f"there is no ledger {tmp_path / NAME} yet"
    assert refused(directory, "") == "only SELECT is permitted"


def test_a_misspelt_name_is_answered_with_the_tables_and_where_the_columns_are(directory: Path) -> None:
    for query in ("select * from attempts", "select reason from training_attempts"):
        with pytest.raises(QueryRefused) as wrong:
            select(directory, query)
        hint = wrong.value.hint
        assert hint == (
            "the tables training_attempts, evals and gpu_hours; `select * from TABLE limit 1` with --json shows columns"
        )
    for table in ("training_attempts", "evals", "gpu_hours"):
        select(directory, f"select * from {table} limit 1")


def test_the_ledger_is_the_same_after_all_of_it(directory: Path) -> None:
    with closing(sqlite3.connect(directory / NAME)) as connection:
        assert connection.execute("select count(*) from training_attempts").fetchone() == (6,)
