"""A ledger that hangs, is full, locked or damaged stops no notification, and none is sent twice."""

from __future__ import annotations

import resource
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from tests.trainmon.alerting.notify.delivery.running import program
from tests.trainmon.alerting.notify.delivery.scene import Phone, Scene, Shifted, fire, opened, plain, until
from tests.trainmon.alerting.notify.samples import alert, notice
from trainmon.alerting.notify.message import Broken, Retry
from trainmon.ledger.lease import Holder, LeaderNote, LeaseLock, write_note
from trainmon.ledger.schema import VERSION
from trainmon.model import AlertsReported, AlertsRestored, Channel, ChannelsChanged, LedgerReplaced, Notice

PATIENCE = 1.0
WAITING = [("a-fire", "waiting"), ("b", "waiting")]


class Stuck(sqlite3.Connection):
    """A disk whose commits hang while a test has them hang."""

    hung: ClassVar[threading.Event] = threading.Event()
    go: ClassVar[threading.Event] = threading.Event()
    waits: ClassVar[threading.Event] = threading.Event()

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.hung.is_set():
            self.waits.set()
            assert self.go.wait(30)
        return super().execute(sql, *values)

    @classmethod
    def hang(cls) -> None:
        cls.go.clear()
        cls.waits.clear()
        cls.hung.set()

    @classmethod
    def let_go(cls) -> None:
        cls.hung.clear()
        cls.go.set()


class Full(sqlite3.Connection):
    """A disk with room for the tables only, until a test makes some."""

    pages: ClassVar[int] = 10_000

    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        self.execute(f"PRAGMA max_page_count = {self.pages}")


class NoRoom(sqlite3.Connection):
    """A disk on which nothing new can be written while a test has it full."""

    full: ClassVar[threading.Event] = threading.Event()

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self._check(sql)
        return super().execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self._check(sql)
        return super().executemany(sql, *values)

    def _check(self, sql: str) -> None:
        if self.full.is_set() and sql.split(maxsplit=1)[0] in ("INSERT", "UPDATE", "DELETE"):
            raise sqlite3.OperationalError("database or disk is full")


THEIRS = Holder(pid=1, host="elsewhere", name="theirs")


def fires(phone: Phone) -> list[str]:
    return [key for key in phone.keys if key.endswith("-fire")]


def test_a_ledger_that_hangs_stops_nothing_and_nothing_is_sent_twice(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone, factory=Stuck, patience=PATIENCE) as scene:
        scene.enqueue(fire("before"))
        until(lambda: scene.rows("SELECT state FROM outbox") == [("sent",)])
        Stuck.hang()
        started = time.monotonic()
        for number in range(3):
            scene.enqueue(fire(f"a{number}"))
        assert time.monotonic() - started < 5.0, "handing over waits for no disk"
        until(lambda: len(fires(phone)) == 4)
        until(lambda: len(phone.keys) == 5, "the notice about the ledger, from another turn of the service")
        (found,) = [found for message in phone.taken for found in message.notices if found.kind == "direct"]
        assert (found.title, found.reason) == ("Ledger stuck: alerts are sent directly", "ledger stuck")
        assert found.lines[0].endswith("did not answer in 1s")
        (one,) = [found for message in phone.taken for found in message.notices if found.key == "a1-fire"]
        assert one.reason == "fired; sent directly: ledger stuck"
        scene.enqueue(fire("later"))
        until(lambda: "later-fire" in phone.keys)
        Stuck.let_go()
        query = "SELECT count(*) FROM outbox WHERE state IN ('sent', 'merged')"
        until(lambda: scene.rows(query) == [(6,)], "the marks of what went directly")
        scene.enqueue(fire("after"))
        until(lambda: scene.rows(query) == [(7,)])
        assert sorted(fires(phone)) == sorted(set(fires(phone)))
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire("next"))
        until(lambda: "next-fire" in phone.keys)
    assert sorted(fires(phone)) == sorted(set(fires(phone))), "nor by the next program"


def test_a_full_disk_stops_nothing_and_what_happened_is_written_when_there_is_room(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire("before"))
        until(lambda: scene.rows("SELECT state FROM outbox") == [("sent",)])
    ((Full.pages,),) = plain(tmp_path / "ledger.sqlite", "PRAGMA page_count")
    try:
        with opened(tmp_path, phone, factory=Full, patience=PATIENCE) as scene:
            scene.enqueue(fire("a", lines=("x" * 100_000,)))
            until(lambda: fires(phone) == ["before-fire", "a-fire"])
            until(lambda: scene.troubles[-1:] == [f"the ledger {scene.ledger.file}: its disk is full"])
            Full.pages = 10_000
            until(lambda: scene.rows("SELECT state FROM outbox WHERE key = 'a-fire'") == [("sent",)])
            until(lambda: scene.troubles[-1] is None)
    finally:
        Full.pages = 10_000
    assert fires(phone) == ["before-fire", "a-fire"]


def test_a_standby_whose_disk_is_full_takes_over_and_sends_everything(tmp_path: Path) -> None:
    """The home directory of all machines is full, and then the machine of the leader dies."""
    phone, names = Phone(), [f"a{number}" for number in range(8)]
    with opened(tmp_path, Phone(), is_network=True) as first:
        first.until_noted()
        now = first.clock.now()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        write_note(connection, LeaderNote(holder=THEIRS, started_at=now, written_at=now))
    connection.close()
    standby = Scene(tmp_path, phone, is_network=True, lease=1.0, patience=PATIENCE, factory=NoRoom)
    standby.start()
    try:
        until(lambda: standby.holder == "other")
        NoRoom.full.set()
        until(lambda: standby.holder == "us")
        for name in names:
            standby.enqueue(fire(name, severity="critical"))
            until(lambda name=name: f"{name}-fire" in phone.keys, name)  # type: ignore[misc]
        assert len(standby.of(AlertsRestored)) == 1, "it took over once"
        NoRoom.full.clear()
        until(lambda: standby.rows("SELECT count(*) FROM outbox WHERE key LIKE '%-fire' AND state = 'sent'") == [(8,)])
        assert sorted(fires(phone)) == [f"{name}-fire" for name in names]
    finally:
        NoRoom.full.clear()
        standby.stop(0.0)


def test_a_program_that_may_write_no_more_goes_on_telling(tmp_path: Path) -> None:
    with program(tmp_path, patience=1.0) as made:
        made.says("us")
        made.fire("before")
        query = "SELECT key FROM outbox WHERE state = 'sent' AND key LIKE '%-fire' ORDER BY key"
        until(lambda: plain(tmp_path / "ledger.sqlite", query) == [("before-fire",)])
        resource.prlimit(made.process.pid, resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
        made.fire("a")
        until(lambda: "a-fire" in made.came)
        resource.prlimit(made.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until(lambda: plain(tmp_path / "ledger.sqlite", query) == [("a-fire",), ("before-fire",)])
        assert [key for key in made.came if key.endswith("-fire")] == ["before-fire", "a-fire"]


def test_a_ledger_that_another_program_keeps_locked_stops_nothing(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone, patience=PATIENCE) as scene:
        other = sqlite3.connect(scene.ledger.file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        scene.enqueue(fire())
        until(lambda: fires(phone) == ["a-fire"])
        other.execute("COMMIT")
        other.close()
        until(lambda: scene.rows("SELECT state FROM outbox WHERE key = 'a-fire'") == [("sent",)])
    assert fires(phone) == ["a-fire"]


def test_a_program_whose_ledger_a_newer_one_has_migrated_goes_on_telling_and_writes_nothing(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone, patience=PATIENCE) as scene:
        scene.enqueue(fire("a"))
        until(lambda: fires(phone) == ["a-fire"])
        scene.until_marked()
        rows = scene.rows("SELECT * FROM outbox")
        plain(scene.ledger.file, f"PRAGMA user_version = {VERSION + 1}")
        scene.enqueue(fire("b"))
        until(lambda: phone.taken[-1].notices[0].reason == "ledger stuck")
        assert fires(phone) == ["a-fire", "b-fire"]
        assert "a newer trainmon-tui made" in phone.taken[-1].body
        assert scene.rows("SELECT * FROM outbox") == rows
        assert scene.holder == "us"


def reports(phone: Phone) -> list[Notice]:
    return [one for message in phone.taken for one in message.notices if one.reason == "ledger damaged"]


def test_a_damaged_ledger_is_set_aside_as_it_is_reported_once_and_stops_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    damaged = b"no database at all, and long enough to be looked at" * 40
    file.write_bytes(damaged)
    phone = Phone()
    with opened(tmp_path, phone, patience=PATIENCE) as scene:
        scene.enqueue(fire())
        until(lambda: fires(phone) == ["a-fire"])
        until(lambda: reports(phone))
        (one,) = reports(phone)
        assert (one.severity, one.title) == ("critical", "Ledger damaged: a new one is in use")
        assert f"The ledger {file} was damaged" in one.lines[0]
        assert "Then delete that file." in one.lines[1]
        until(lambda: scene.rows("SELECT state FROM outbox WHERE key = 'a-fire'") == [("sent",)])
        assert scene.troubles == []
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire("b"))
        until(lambda: fires(phone) == ["a-fire", "b-fire"])
        assert len(reports(phone)) == 1
    assert (tmp_path / "ledger-damaged-1.sqlite").read_bytes() == damaged


def test_a_standby_that_sets_a_ledger_aside_leaves_the_report_to_the_leader(tmp_path: Path) -> None:
    phone, other = Phone(), Phone("other")
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire())
        scene.until_marked()
        scene.rows("PRAGMA wal_checkpoint(TRUNCATE)")  # else a later checkpoint may mend the file
        with scene.ledger.file.open("r+b") as file:  # without a moment in which it is empty, and thus a new ledger
            file.write(b"no database at all" * 1_000)
        standby = Scene(tmp_path, other)
        standby.start()
        until(lambda: standby.holder == "other")
        until(lambda: reports(phone))
        standby.stop()
        scene.until_marked()
    assert (len(reports(phone)), other.taken) == (1, [])


def test_what_waits_is_written_to_a_new_ledger_and_the_next_program_sends_it(tmp_path: Path) -> None:
    phone = Phone()
    phone.always = Retry("no route to host", 3_600.0)
    with opened(tmp_path, phone, patience=PATIENCE) as scene:
        scene.enqueue(fire(), notice(alert(), key="b", kind="direct"))
        until(lambda: scene.rows("SELECT key, state FROM outbox WHERE attempts > 0 ORDER BY key") == WAITING)
        scene.ledger.file.unlink()
        until(lambda: scene.of(LedgerReplaced))
        until(lambda: scene.rows("SELECT key, state FROM outbox ORDER BY key") == WAITING)
        assert len(scene.of(LedgerReplaced)) == 1
    phone.always = None
    with opened(tmp_path, phone):
        until(lambda: sorted(phone.keys) == ["a-fire", "b"])


def test_a_ledger_damaged_in_its_middle_is_kept_as_it_is(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone) as scene:
        scene.enqueue(*(fire(f"a{number}") for number in range(30)))
        until(lambda: scene.rows("SELECT count(*) FROM outbox WHERE state IN ('sent', 'merged')") == [(30,)])
    file = tmp_path / "ledger.sqlite"
    with file.open("r+b") as stream:
        stream.seek(4_096)
        stream.write(b"\xa5" * 4_096 * 12)
    damaged = file.read_bytes()
    with opened(tmp_path, phone, patience=PATIENCE) as scene:
        scene.enqueue(fire("b"))
        until(lambda: "b-fire" in phone.keys)
        until(lambda: reports(phone))
    assert (tmp_path / "ledger-damaged-1.sqlite").read_bytes() == damaged


def test_a_ledger_that_hangs_from_the_start_on_is_not_waited_for(tmp_path: Path) -> None:
    with opened(tmp_path, Phone()) as scene:
        scene.enqueue(fire("before"))
        until(lambda: scene.rows("SELECT state FROM outbox") == [("sent",)])
    phone = Phone()
    Stuck.hang()
    scene = Scene(tmp_path, phone, factory=Stuck, patience=PATIENCE)
    scene.start()
    until(lambda: scene.holder == "us")
    scene.enqueue(fire())
    until(lambda: fires(phone) == ["a-fire"])
    Stuck.let_go()
    until(lambda: scene.rows("SELECT count(*) FROM outbox WHERE state = 'sent' AND key LIKE '%-fire'") == [(2,)])
    scene.stop()
    assert fires(phone) == ["a-fire"]


def test_a_ledger_that_was_away_at_the_start_gives_what_waits_in_it_later(tmp_path: Path) -> None:
    phone = Phone()
    phone.always = Broken("401: unauthorized")
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire("old"))
        until(lambda: scene.rows("SELECT state FROM outbox") == [("dead",)])
    phone.always = None
    (tmp_path / "ledger.sqlite").rename(tmp_path / "away")
    (tmp_path / "ledger.sqlite").mkdir()
    with opened(tmp_path, phone, patience=PATIENCE) as scene:
        scene.enqueue(fire("new"))
        until(lambda: fires(phone) == ["new-fire"])
        (tmp_path / "ledger.sqlite").rmdir()
        (tmp_path / "away").rename(tmp_path / "ledger.sqlite")
        until(lambda: fires(phone) == ["new-fire", "old-fire"])
        until(lambda: scene.rows("SELECT count(*) FROM outbox WHERE state = 'sent' AND key LIKE '%-fire'") == [(2,)])


def test_a_program_that_was_stopped_blames_no_ledger(tmp_path: Path) -> None:
    phone, clock = Phone(), Shifted()
    with opened(tmp_path, phone, factory=Stuck, clock=clock) as scene:
        Stuck.hang()
        scene.enqueue(fire())
        until(Stuck.waits.is_set)
        clock.passed = 3_600.0
        phone.health = Channel(name="phone", type="phone", target="+50***")
        scene.service.reload((phone,), ())
        until(lambda: "+50***" in repr(scene.of(ChannelsChanged)), "a turn of the service")
        Stuck.let_go()
        until(lambda: phone.keys == ["a-fire"])
        (found,) = phone.taken[0].notices
        assert (found.kind, found.reason) == ("fire", "fired")
        scene.until_marked()
        assert phone.keys == ["a-fire"], "no ledger was blamed"


def test_a_ledger_that_hung_under_an_earlier_leadership_is_not_blamed_later(tmp_path: Path) -> None:
    phone, clock, other = Phone(), Shifted(), LeaseLock(tmp_path, THEIRS)
    with opened(tmp_path, phone, factory=Stuck, patience=PATIENCE, clock=clock) as scene:
        scene.until_noted()
        assert other.take() is not None
        Stuck.hang()
        scene.service.report_trouble(None)  # it writes its note
        until(lambda: scene.service._journal.trouble)
        assert other.take_over(other.reach() or 0)
        until(lambda: scene.holder == "other")
        Stuck.let_go()
        until(lambda: scene.of(AlertsReported), "the ledger answers")
        clock.passed += 3_600.0
        other.release()
        until(lambda: scene.holder == "us")
        scene.enqueue(fire())
        until(lambda: "a-fire" in phone.keys)
        scene.until_marked()
        assert phone.keys == ["a-fire"]


def test_ten_thousand_at_once_are_written_and_sent(tmp_path: Path) -> None:
    phone, mail = Phone(), Phone("mail")
    with opened(tmp_path, phone, mail) as scene:
        notices = [fire(f"a{number}", "phone", "mail") for number in range(10_000)]
        started = time.monotonic()
        scene.enqueue(*notices)
        assert time.monotonic() - started < 5.0
        until(lambda: scene.rows("SELECT count(*) FROM outbox WHERE state IN ('sent', 'merged')") == [(20_000,)])
        assert len(phone.taken) == len(mail.taken) == 1
        assert len(phone.taken[0].body.encode()) <= 60_000
        assert not any(found.kind == "direct" for message in phone.taken for found in message.notices)
