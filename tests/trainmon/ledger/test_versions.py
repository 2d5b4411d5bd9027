"""What an earlier version of this program wrote down is read by every later one: nothing of it is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.cli.attempts.test_history import LONG, NOON
from tests.trainmon.ledger.contents import contents, restored
from tests.trainmon.ledger.opened import At, opened
from tests.trainmon.ledger.records import actions, open_records, record
from trainmon.analysis.explanation import GpuHour
from trainmon.ledger.actions import as_json
from trainmon.ledger.database import NAME
from trainmon.ledger.ledger import attempt_names, attempt_records
from trainmon.ledger.schema import MIGRATIONS, VERSION
from trainmon.model import EvalResult

WRITTEN = Path(__file__).parents[2] / "written" / "ledger"
LEDGERS = sorted(WRITTEN.glob("v*.sql"))

NOW_CALLED: dict[str, str] = {}
"""Fields that have another name today: `told_at` was its name in the file, `notified_at` it is now."""


def lost(before: Any, now: Any, where: str) -> Iterator[str]:
    """Each value that was there and is not there now; what came later is nobody's loss."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name, value in before.items():
            yield from lost(value, now.get(NOW_CALLED.get(name, name), "nothing"), f"{where}.{name}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from lost(old, new, f"{where}[{number}]")
    elif before != now:
        yield f"{where}: {before!r} is now {now!r}"


def columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Those of every table."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name: [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')] for (name,) in tables}


def rows(connection: sqlite3.Connection, table: str, names: list[str]) -> list[tuple[Any, ...]]:
    listed = ", ".join(f'"{name}"' for name in names)
    return connection.execute(f'SELECT {listed} FROM "{table}" ORDER BY rowid').fetchall()


@pytest.mark.parametrize("script", LEDGERS, ids=lambda script: script.stem)
def test_a_ledger_of_an_earlier_version_is_read_whole(script: Path, tmp_path: Path) -> None:
    expected = json.loads(script.with_suffix(".json").read_text())
    at = expected["written at"]
    file = restored(script, tmp_path)
    with closing(sqlite3.connect(file)) as connection:
        before = {table: (names, rows(connection, table, names)) for table, names in columns(connection).items()}

    with opened(tmp_path, clock=At(at)) as (ledger, troubles):
        assert [one.action.id for one in open_records(ledger)] == expected["actions that are watched"]
        found = contents(tmp_path, at)
        ledger.write(record("later", at=at))
        assert actions(ledger, at)[-1].action.id == "later"
        assert troubles.empty()

    assert list(lost(expected, found, "ledger")) == []
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DELETE FROM actions WHERE id = 'later'")
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert columns(connection).keys() >= before.keys()
        for table, (names, then) in before.items():
            assert rows(connection, table, names) == then, table


def test_results_and_gpu_hours_among_the_texts_of_actions_move_to_tables_of_their_own(tmp_path: Path) -> None:
    first, second = EvalResult(step=10, decoding={"temperature": 0}, results={"acc": 0.5}), EvalResult(step=20)
    hour = GpuHour(node="n1", ended_at=NOON + 0.5, metrics={"power": ((700.0, None),)})
    lists = [[first], [first, second], [second]]
    texts = [
        *(("evals/llm", "evals", "", str(number), as_json(one)) for number, one in enumerate(lists)),
        ("evals/llm", "evals", "", "damaged", "[{"),
        (LONG.attempt_id, "gpu-hour", "n1", "", as_json(hour)),
        ("a1", "log", "n1", "/l", "Traceback"),
    ]
    file = tmp_path / NAME
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in chain(*MIGRATIONS[:3]):
            connection.execute(statement)
        for action, kind, host, path, text in texts:
            values = (action, kind, host, path, NOON, text)
            connection.execute("INSERT INTO action_texts VALUES (?, ?, ?, ?, ?, ?)", values)
        connection.execute("PRAGMA user_version = 3")
    run = replace(LONG, run_id="llm")
    with opened(tmp_path, clock=At(NOON)) as (ledger, troubles):
        ledger.keep(run)
        ledger.keep_evals("llm", [first, second])  # its file is read again at the start
    assert troubles.empty()
    found = attempt_records(tmp_path, run.attempt_id)
    assert found is not None
    assert (found[1].evals, found[1].gpu_hours) == ((first, second), (hour,))
    with closing(sqlite3.connect(file)) as connection:
        columns = "step, decoding, results, written_at"
        at = "2026-11-03 12:00:00.000000+00:00"
        assert rows(connection, "evals", columns.split(", ")) == [
            (10, '{"temperature":0}', '{"acc":0.5}', at), (20, None, None, at),
        ]  # fmt: skip
        assert rows(connection, "gpu_hours", ["node", "ended_at"]) == [("n1", at.replace("0.000", "0.500"))]
        assert rows(connection, "action_texts", ["path"]) == [("damaged",), ("/l",)]


def test_an_attempt_of_an_earlier_ledger_is_explained_before_a_program_opens_it(tmp_path: Path) -> None:
    restored(WRITTEN / "v3.sql", tmp_path)
    (newest, *_) = attempt_names(tmp_path, 1)
    found = attempt_records(tmp_path, newest.attempt_id)
    assert found is not None
    assert found[0].attempt_id == newest.attempt_id


def test_there_is_a_ledger_of_every_version_with_some_of_everything() -> None:
    assert f"v{VERSION}" in {script.stem for script in LEDGERS}, "see example.py"
    for script in LEDGERS:
        expected = json.loads(script.with_suffix(".json").read_text())
        assert [kind for kind, values in expected.items() if values in ([], {}, None, 0)] == []
