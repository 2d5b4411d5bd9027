"""A ledger on a disk that hangs, is full, damaged, replaced or held by another program."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.product import QUICK
from tests.trainmon.ledger.opened import At, Stuck, opened, plain, until
from tests.trainmon.ledger.records import DONE, actions, record
from trainmon.ledger.database import set_aside
from trainmon.ledger.ledger import CHECK_EVERY, NAME, LedgerStuck
from trainmon.ledger.schema import VERSION


def test_a_disk_that_hangs_stops_nobody_and_is_caught_up(tmp_path: Path) -> None:
    with opened(tmp_path, factory=Stuck, patience=1.0) as (ledger, troubles):
        ledger.write(record("first"))
        Stuck.go.clear()
        Stuck.hung.set()
        with pytest.raises(LedgerStuck, match=r"ledger\.sqlite did not answer in 1s"):
            ledger.write(record())
        started = time.monotonic()
        for number in range(3_000):
            ledger.keep(record(f"b{number}"))
        ledger.keep(record(**DONE))
        with pytest.raises(LedgerStuck):
            actions(ledger, 0.0)
        assert time.monotonic() - started < 5.0
        Stuck.hung.clear()
        Stuck.go.set()
        until(lambda: plain(ledger.file, "SELECT count(*) FROM actions WHERE id = 'b2999'") == [(1,)])
        assert plain(ledger.file, "SELECT count(*), max(status) FROM actions WHERE id = 'a1'") == [(1, "done")]
        assert plain(ledger.file, "SELECT count(*) < 1100 FROM actions") == [(1,)]
        assert troubles.empty()


def test_stopping_waits_for_no_disk(tmp_path: Path) -> None:
    with opened(tmp_path, factory=Stuck, patience=1.0) as (ledger, _):
        ledger.write(record("first"))
        Stuck.go.clear()
        Stuck.hung.set()
        ledger.keep(record())
        started = time.monotonic()
        ledger.stop()
        assert time.monotonic() - started < QUICK
        Stuck.hung.clear()
        Stuck.go.set()


class Full(sqlite3.Connection):
    """A disk with room for the tables only, until a test makes some."""

    pages = 42

    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        self.execute(f"PRAGMA max_page_count = {self.pages}")


def test_a_full_disk_is_reported_and_what_waited_is_written_when_there_is_room(tmp_path: Path) -> None:
    large = record("big", outcome="x" * 100_000)
    with opened(tmp_path, factory=Full) as (ledger, troubles):
        ledger.write(record())
        with pytest.raises(LedgerStuck, match="its disk is full"):
            ledger.write(large)
        assert troubles.get(timeout=120) == f"the ledger {ledger.file}: its disk is full"
        assert actions(ledger, 0.0) == [record()]
        Full.pages = 10_000
        assert troubles.get(timeout=120) is None
        assert actions(ledger, 0.0) == [record(), large]
    Full.pages = 42


def test_a_directory_that_cannot_be_made_is_reported_once_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with opened(tmp_path / "state") as (ledger, troubles):
        assert troubles.get(timeout=120) == f"the ledger {tmp_path}/state: file exists"
        ledger.keep(record())
        with pytest.raises(LedgerStuck, match="file exists"):
            ledger.write(record("a2"))
        (tmp_path / "state").unlink()
        assert troubles.get(timeout=120) is None
        assert actions(ledger, 0.0) == [record(), record("a2")]


GARBAGE = b"no database at all, and long enough to be looked at" * 40


def test_a_file_that_is_no_ledger_is_set_aside_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(GARBAGE)
    with opened(tmp_path) as (ledger, troubles):
        ledger.write(record())
        assert actions(ledger, 0.0) == [record()]
        assert ledger.set_aside == tmp_path / "ledger-damaged-1.sqlite"
        assert ledger.set_aside.read_bytes() == GARBAGE
        assert troubles.empty()


def test_a_file_that_is_overwritten_in_place_is_set_aside_at_the_next_write(tmp_path: Path) -> None:
    with opened(tmp_path) as (ledger, troubles):
        ledger.write(record())
        assert actions(ledger, 0.0) == [record()]
        ledger.file.write_bytes(GARBAGE)
        ledger.write(record("a2"))
        assert actions(ledger, 0.0) == [record("a2")]
        assert (tmp_path / "ledger-damaged-1.sqlite").read_bytes() == GARBAGE
        assert troubles.empty()


def spoil(file: Path, share: float) -> None:
    """Overwrite a page at this share of the file's length."""
    plain(file, "PRAGMA wal_checkpoint(TRUNCATE)")
    ((size,),) = plain(file, "PRAGMA page_size")
    with file.open("r+b") as stream:
        stream.seek(int(file.stat().st_size * share / size) * size)
        stream.write(b"\xa5" * size)


def test_the_rows_before_and_after_the_damage_are_kept(tmp_path: Path) -> None:
    names = [f"a{number:03}" for number in range(300)]
    with opened(tmp_path) as (ledger, _):
        for name in names:
            ledger.write(record(name, outcome="x" * 1_000))
    spoil(ledger.file, 0.6)
    with opened(tmp_path) as (ledger, troubles):
        ledger.write(record("new"))
        kept = [name for (name,) in plain(ledger.file, "SELECT id FROM actions ORDER BY id")]
        assert (kept[0], kept[-2], kept[-1]) == ("a000", "a299", "new")
        assert len(kept) > 280
        assert plain(ledger.file, "PRAGMA integrity_check") == [("ok",)]
        assert troubles.empty()


def test_damage_is_noticed_while_two_programs_write_and_is_set_aside_once(tmp_path: Path) -> None:
    """Neither reads the page again by itself: it is in the cache of its connection."""
    clock = At()
    with opened(tmp_path, clock=clock) as (first, troubles), opened(tmp_path, clock=clock) as (second, others):
        for number in range(40):
            first.write(record(f"a{number}", outcome="x" * 1_000))
        second.write(record("b0"))
        spoil(first.file, 0.5)
        first.write(record("a40"))
        assert first.set_aside is None, "the next check is not due yet"
        clock.at += CHECK_EVERY + 1
        first.write(record("a41"))
        second.write(record("b1"))
        first.write(record("a42"))
        aside = tmp_path / "ledger-damaged-1.sqlite"
        assert [first.set_aside, second.set_aside] == [aside, aside]
        assert sorted(tmp_path.glob("ledger-damaged*.sqlite")) == [aside]
        found = {name for (name,) in plain(first.file, "SELECT id FROM actions")}
        assert {"a40", "a41", "a42", "b1"} <= found
        assert plain(first.file, "PRAGMA integrity_check") == [("ok",)]
        assert (troubles.empty(), others.empty()) == (True, True)


def test_a_disk_that_damages_each_new_file_is_left_to_a_person(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"ledger-damaged-{number}.sqlite").touch()
    (tmp_path / "ledger.sqlite").write_bytes(GARBAGE)
    with opened(tmp_path) as (ledger, troubles):
        assert troubles.get(timeout=120) == (
            f"the ledger {ledger.file}: it is not a ledger, or it is damaged; move it away, and a new one is created"
        )
        with pytest.raises(LedgerStuck, match="damaged"):
            actions(ledger, 0.0)
        assert ledger.file.read_bytes() == GARBAGE
        ledger.file.rename(tmp_path / "damaged")
        ledger.write(record())
        assert troubles.get(timeout=120) is None
        assert actions(ledger, 0.0) == [record()]


def test_a_damaged_file_that_is_moved_away_at_this_moment_is_out_of_the_way(tmp_path: Path) -> None:
    assert set_aside(tmp_path / "ledger.sqlite", (1, 2))


def test_a_file_that_was_removed_is_begun_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as (ledger, _):
        ledger.write(record())
        for path in tmp_path.iterdir():
            path.unlink()
        ledger.write(record("a2"))
        assert plain(ledger.file, "SELECT id FROM actions") == [("a2",)]


def cut_short(file: Path) -> None:
    plain(file, "PRAGMA wal_checkpoint(TRUNCATE)")
    os.truncate(file, 0)


@pytest.mark.parametrize("lose_rows", [cut_short, Path.unlink, lambda file: file.write_bytes(GARBAGE)])
def test_a_file_whose_rows_are_lost_while_it_is_open_is_reported(
    tmp_path: Path, lose_rows: Callable[[Path], object]
) -> None:
    with opened(tmp_path) as (ledger, troubles):
        ledger.write(record())
        ledger.write(record("a2"))
        assert len(actions(ledger, 0.0)) == 2
        assert not ledger.is_replaced, "it is the first one"
        lose_rows(ledger.file)
        ledger.write(record("a3"))
        assert ledger.is_replaced
        assert plain(ledger.file, "SELECT id FROM actions") == [("a3",)]
        ledger.is_replaced = False
        ledger.write(record("a4"))
        assert not ledger.is_replaced, "it is the same as before"
        assert troubles.empty()


def test_a_copy_that_is_put_in_place_while_a_program_writes_is_not_spoilt_by_what_the_old_one_left(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as (ledger, troubles):
        for number in range(40):
            ledger.write(record(f"a{number}"))
        plain(ledger.file, f"VACUUM INTO '{tmp_path / 'copy'}'")
        for number in range(40):
            ledger.write(record(f"b{number}"))
        (tmp_path / "copy").replace(ledger.file)
        ledger.write(record("c"))
        assert plain(ledger.file, "PRAGMA quick_check") == [("ok",)]
        assert plain(ledger.file, "SELECT count(*) FROM actions") == [(41,)]
        assert [troubles.get() for _ in range(troubles.qsize())] == []


def test_a_newer_file_is_read_and_never_written(tmp_path: Path) -> None:
    with opened(tmp_path) as (ledger, _):
        ledger.write(record())
    plain(ledger.file, "PRAGMA user_version = 7")
    with opened(tmp_path) as (ledger, troubles):
        words = troubles.get(timeout=120)
        assert words == (
            f"a newer trainmon-tui made {ledger.file} (version 7; this program knows {VERSION}): nothing is written to "
            "it (use the newer program here, too, or set another XDG_STATE_HOME)"
        )
        assert actions(ledger, 0.0) == [record()]
        with pytest.raises(LedgerStuck, match="newer trainmon-tui"):
            ledger.write(record("a2"))
    assert plain(ledger.file, "SELECT id FROM actions") == [("a1",)]


def test_a_file_that_a_newer_program_migrates_while_it_is_open_is_read_and_not_written_any_more(tmp_path: Path) -> None:
    """The newer program reads other rows than this one writes: what went there would be lost."""
    with opened(tmp_path) as (ledger, troubles):
        ledger.write(record())
        plain(ledger.file, f"PRAGMA user_version = {VERSION + 1}")
        with pytest.raises(LedgerStuck, match="newer trainmon-tui"):
            ledger.write(record("a2"))
        assert "newer trainmon-tui" in (troubles.get(timeout=120) or "")
        assert actions(ledger, 0.0) == [record()]
    assert plain(ledger.file, "SELECT id FROM actions") == [("a1",)]


def test_a_record_that_this_version_cannot_read_hides_no_other(tmp_path: Path) -> None:
    with opened(tmp_path) as (ledger, _):
        ledger.write(record())
        ledger.write(record("a2"))
        connection = sqlite3.connect(ledger.file)
        with connection:
            connection.execute("UPDATE actions SET record = replace(record, 'requeue', 'teleport') WHERE id = 'a1'")
        connection.close()
        assert actions(ledger, 0.0) == [record("a2")]


def test_another_program_that_holds_the_file_is_waited_for(tmp_path: Path) -> None:
    with opened(tmp_path, patience=1.0) as (ledger, troubles):
        ledger.write(record())
        other = sqlite3.connect(ledger.file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerStuck, match="did not answer"):
            ledger.write(record("a2"))
        other.execute("COMMIT")
        other.close()
        until(lambda: plain(ledger.file, "SELECT id FROM actions") == [("a1",), ("a2",)])
        assert troubles.empty()


class Contested(sqlite3.Connection):
    """A ledger that another program wants for a moment, whenever its old rows are deleted."""

    file: Path
    wanted = threading.Event()

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql.startswith(("DELETE", "SAVEPOINT")):
            other = sqlite3.connect(self.file, timeout=0, isolation_level=None, check_same_thread=False)
            with suppress(sqlite3.OperationalError):
                other.execute("BEGIN IMMEDIATE")
            threading.Timer(0.2, other.close).start()
            self.wanted.set()
        return super().execute(sql, *values)


def test_another_program_that_writes_while_old_rows_are_deleted_is_waited_for(tmp_path: Path) -> None:
    Contested.file = tmp_path / NAME
    with opened(tmp_path, factory=Contested) as (ledger, troubles):
        ledger.write(record())
        ledger.write(record("a2"))
        assert Contested.wanted.is_set()
        assert troubles.empty()


WRITER = """
import sys, time
from pathlib import Path
from tests.trainmon.ledger.records import record
from trainmon.ledger.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), print)
ledger.start()
for number in range(40):
    ledger.write(record(f"{sys.argv[2]}-{number}", at=time.time()))
print("written", flush=True)
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_two_programs_write_one_file_and_a_kill_loses_nothing(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    argv = [sys.executable, "-c", WRITER, str(tmp_path)]
    both = [subprocess.Popen([*argv, name], cwd=root, stdout=subprocess.PIPE, text=True) for name in "pq"]
    found = [process.communicate(timeout=60)[0] for process in both]
    assert found == ["written\n", "written\n"]
    assert plain(tmp_path / "ledger.sqlite", "SELECT count(*) FROM actions") == [(80,)]


def test_a_ledger_where_nothing_may_be_made_is_read_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "fixed"
    with opened(folder) as (ledger, _):
        ledger.write(record())
    assert [path.name for path in folder.iterdir()] == ["ledger.sqlite"], "a good end leaves one file"
    folder.chmod(0o555)
    argv = [
        sys.executable,
        "-c",
        "import sys, pathlib, trainmon.ledger.reader as l; print(len(l.recent_actions(pathlib.Path(sys.argv[1]),0,9)))",
    ]
    if os.getuid() == 0:  # root without its right to write anywhere
        os.chown(folder, 65534, 65534)
        argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--", *argv]
    done = subprocess.run(
        [*argv, str(folder)], cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=30, check=False
    )
    folder.chmod(0o755)
    assert done.stdout == "1\n", done.stderr
