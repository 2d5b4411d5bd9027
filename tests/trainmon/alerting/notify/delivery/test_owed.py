"""What is owed is never forgotten: a program that is killed at any point loses nothing, and copies one message at most.

The ledger answers at once here, and a turn is one call, so each point at which a program may be killed is known.
tests/chaos kills real programs.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.notify.delivery.scene import Phone, fire, until
from tests.trainmon.alerting.notify.samples import over
from tests.trainmon.ledger.records import transaction
from trainmon.alerting.notify.delivery.deliverer import STRANGE_AFTER, Deliverer, Journal
from trainmon.alerting.notify.delivery.due import CRITICAL_OVERDUE, SendQueue
from trainmon.alerting.notify.message import Broken, Retry, render
from trainmon.ledger.alerts import read_waiting
from trainmon.ledger.database import open_to_write
from trainmon.ledger.ledger import Answer
from trainmon.ledger.reader import remember
from trainmon.lib import Clock
from trainmon.model import AlertChanges, Notice, Notification, Route

NOW = 1_800_000_000.0
PATIENCE = 5.0
ROUTES = (Route(channel="phone", severity="info"), Route(channel="spare", fallback=True))
DOWN = Retry("503 service unavailable")


class Killed(BaseException):
    """As by kill -9: what is not committed is gone."""


class Fake(Clock):
    """Both clocks, as a test sets them."""

    passed = 0.0

    def now(self) -> float:
        return NOW + self.passed

    def monotonic(self) -> float:
        return 1_000.0 + self.passed


class Points:
    """Counts the points at which a program may be killed, and kills it at one."""

    def __init__(self, kill_at: int = 0) -> None:
        self.kill_at = kill_at
        self.passed = 0

    def pass_by(self) -> None:
        self.passed += 1
        if self.passed == self.kill_at:
            raise Killed


class Answering:
    """A ledger that answers at once, or not at all."""

    is_network = False

    def __init__(self, file: Path, points: Points) -> None:
        self.file = file
        self.connection = open_to_write(file, is_network=False)
        self._points = points
        self.hangs = False

    def transact(self, work: Callable[[sqlite3.Connection], object], then: Callable[[], None]) -> Answer:
        answer = Answer(work, then)
        if self.hangs:
            return answer
        self._points.pass_by()
        self.connection.execute("BEGIN IMMEDIATE")
        found = work(self.connection)
        self.connection.execute("COMMIT")
        self._points.pass_by()
        answer.give(found)
        return answer


class Odd(Phone):
    """A channel with a mistake of ours: when it fails, how it does cannot be said."""

    def __getattribute__(self, name: str) -> Any:
        if name == "health" and super().__getattribute__("tried"):
            raise ZeroDivisionError
        return super().__getattribute__(name)


class Asked(Phone):
    """A channel that counts how often it is asked how it does, which takes longer the more waits."""

    times = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "health":
            self.times += 1
        return super().__getattribute__(name)


class Life:
    """One program after the other on one ledger, with the same receivers."""

    def __init__(self, directory: Path, points: Points | None = None, phone: Phone | None = None) -> None:
        self.file = directory / "ledger.sqlite"
        self.clock = Fake()
        self.phone, self.spare = phone or Phone(), Phone("spare")
        self.leads = True
        self.found: list[Notice] = []
        self.begin(points or Points())

    def begin(self, points: Points) -> None:
        """A program starts; it finds again what there is to report, under the same keys."""
        self.ledger: Any = Answering(self.file, points)
        self.journal = Journal(
            self.ledger, self.clock, lambda: None, patience=PATIENCE, holder=None, is_leader=lambda: self.leads
        )
        self.deliverer = Deliverer(
            (self.phone, self.spare), ROUTES, self.journal, self.clock, lambda event: None, lambda: None,
            is_leader=lambda: True, alerts=lambda: None, render=render, rng=Random(7),
        )  # fmt: skip
        answer = self.ledger.transact(lambda connection: remember(connection, self.clock.now()), lambda: None)
        self.deliverer.add(answer.found.notifications)
        for notice in self.found:
            self.deliverer.add_changes(AlertChanges(at=self.clock.now(), notices=(notice,)))

    def die(self) -> None:
        answered()
        if self.ledger.connection.in_transaction:
            self.ledger.connection.execute("ROLLBACK")
        self.ledger.connection.close()

    def find(self, *notices: Notice) -> None:
        self.found += notices
        self.deliverer.add_changes(AlertChanges(at=self.clock.now(), notices=notices))

    def go(self, seconds: float, pace: float = 1.0) -> None:
        """Turn after turn, until so much time has passed."""
        end = self.clock.passed + seconds
        while self.clock.passed < end:
            for _ in range(4):  # each write, and each answer, needs one
                self.deliverer.turn()
                answered()
            self.clock.passed += pace

    def rows(self, state: str) -> list[str]:
        query = f"SELECT channel || ' ' || key FROM outbox WHERE state = '{state}' ORDER BY 1"
        return [row[0] for row in self.ledger.connection.execute(query)]


def answered() -> None:
    """Every message that left has its answer."""
    for thread in threading.enumerate():
        if thread.name.startswith("channel "):
            thread.join()


def news() -> Iterator[Notice]:
    """An alert that fires, a warning, and the end of the first."""
    first = fire("a", at=NOW)
    yield first
    yield fire("b", at=NOW, severity="warning")
    yield over(first.alerts[0], NOW + 30.0)


def story(life: Life, *, is_down: bool) -> Iterator[None]:
    """What happens, in parts. The phone fails for longer than its fallback waits, or it works."""
    first, second, end = news()
    life.phone.always = DOWN if is_down else None
    life.find(first)
    yield life.go(20.0)
    life.find(second)
    yield life.go(300.0)
    life.find(end)
    yield life.go(60.0)
    life.phone.always = None
    yield life.go(700.0, 5.0)


def told(phone: Phone) -> Counter[str]:
    """How often each message came."""
    return Counter(message.key for message in phone.taken)


@pytest.mark.parametrize(("is_down", "every"), [(False, 1), (True, 4), pytest.param(True, 1, marks=pytest.mark.slow)])
def test_a_program_that_is_killed_at_any_point_forgets_nothing(tmp_path: Path, is_down: bool, every: int) -> None:
    for kill_at in count(1, every):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        points = Points()
        life = Life(folder, points)
        points.kill_at = points.passed + kill_at
        parts = story(life, is_down=is_down)
        while True:
            try:
                if next(parts, self_ended) is self_ended:
                    break
            except Killed:
                life.die()
                life.begin(Points())
                parts = rest(life)
        wanted = {"a-fire", "b-fire", over(life.found[0].alerts[0]).key}
        assert {*life.phone.keys} == wanted, (kill_at, life.phone.keys)
        if is_down:
            assert {*life.spare.keys} >= {"a-fire", "b-fire"}, (kill_at, life.spare.keys)
        else:
            assert life.spare.keys == [], kill_at
        for phone in (life.phone, life.spare):
            assert sum(told(phone).values()) - len(told(phone)) <= 1, (kill_at, told(phone))
        assert life.rows("waiting") + life.rows("leased") == [], kill_at
        was_killed = points.passed >= points.kill_at
        life.die()
        if not was_killed:
            assert kill_at > 12, "hardly any points"
            return


self_ended = object()


def rest(life: Life) -> Iterator[None]:
    """The next program: what else happens, and then enough time."""
    yield life.go(300.0)
    for notice in list(news())[len(life.found) :]:
        life.find(notice)
        yield life.go(60.0)
    life.phone.always = None
    yield life.go(700.0, 5.0)


def test_what_waits_is_kept_however_often_the_program_restarts(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.phone.always = life.spare.always = DOWN
    life.find(*news())
    for _ in range(30):
        life.go(4.0)
        life.die()
        life.clock.passed += 8 * 3_600.0
        life.begin(Points())
        life.found = []  # all is over, and no rule finds it again
    life.phone.always = life.spare.always = None
    life.go(700.0)
    assert {*life.phone.keys} == {notice.key for notice in news()}
    life.die()


def test_a_try_is_not_sent_if_another_program_took_the_lease_before_it_was_written(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.find(fire("a", at=NOW))
    life.deliverer.turn()
    life.leads = False
    for _ in range(10):
        life.deliverer.turn()
        life.clock.passed += 1.0
    answered()
    assert life.journal.is_lost
    assert life.phone.tried == []
    life.die()


def test_a_try_does_not_wait_for_a_ledger_that_does_not_answer(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.find(fire("a", at=NOW))
    life.deliverer.turn()
    life.ledger.hangs = True
    life.go(PATIENCE - 1.0)
    assert life.phone.tried == []
    life.go(3.0)
    assert life.phone.keys == ["a-fire"]
    life.die()


def test_the_next_message_of_a_channel_waits_until_it_is_written_that_the_last_one_was_sent(tmp_path: Path) -> None:
    """So a crash leaves one message at most that comes again."""
    life = Life(tmp_path)
    life.find(fire("a", at=NOW), fire("b", at=NOW))
    for _ in range(3):
        life.deliverer.turn()
    answered()
    assert life.phone.keys == ["a-fire"]
    life.ledger.hangs = True
    life.go(PATIENCE - 1.0)
    assert life.phone.keys == ["a-fire"]
    life.go(3.0)
    assert life.phone.keys == ["a-fire", "b-fire"], "it waits no longer than a new message does"
    life.die()


def test_a_mistake_about_one_channel_keeps_no_other_from_sending(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path, phone=Odd())
    life.phone.always = DOWN
    life.find(fire("a", at=NOW))
    life.go(60.0)
    assert "the channel phone crashed" in caplog.text
    life.find(fire("b", "spare", at=NOW))
    life.go(5.0)
    assert life.spare.keys == ["b-fire"]
    assert {message.notices[0].key for message in life.phone.tried} == {"a-fire"}
    life.die()


def test_what_was_sent_without_the_ledger_is_not_sent_again_when_its_row_is_found_later(tmp_path: Path) -> None:
    """The commit hung until this program had lost the lease, and with it the mark of what it sent, and got it back."""
    life = Life(tmp_path)
    life.ledger.hangs = True
    life.find(fire("a", at=NOW))
    life.go(PATIENCE + 3.0)
    assert life.phone.keys == ["a-fire"]
    life.journal.discard()
    life.deliverer.clear()
    connection = life.ledger.connection
    transaction(AlertChanges(at=NOW, notices=(fire("a", at=NOW),))).write(connection, NOW)
    life.ledger.hangs = False
    life.deliverer.add(remember(connection, life.clock.now()).notifications)
    life.go(60.0)
    assert life.phone.keys == ["a-fire"]
    assert life.rows("sent") == ["phone a-fire"]
    life.die()


def test_what_hung_when_the_lease_was_lost_is_not_written_when_it_came_back(tmp_path: Path) -> None:
    """Another program has led meanwhile: by now it is not true."""
    life = Life(tmp_path)
    life.ledger.hangs = True
    life.find(fire("a", at=NOW))
    life.deliverer.turn()
    writing = life.journal._writing
    assert writing is not None
    life.journal.discard()
    with life.ledger.connection as connection:
        assert writing.answer.work(connection) is None
    assert life.rows("waiting") == []
    writing.answer.give(error="its disk is full")
    life.ledger.hangs = False
    life.go(30.0)
    assert life.rows("waiting") + life.rows("sent") == []
    assert not life.journal.is_lost
    life.die()


def answer(rng: Random) -> Exception | None:
    """What a receiver answers for a while."""
    return rng.choice((None, None, DOWN, Retry("429 too many requests", 600.0), Broken("401 unauthorized")))


@pytest.mark.parametrize("seed", range(10))
def test_whatever_receivers_answer_and_whenever_it_is_killed_each_message_comes(tmp_path: Path, seed: int) -> None:
    """Hours of receivers that work, fail, ask for a pause and refuse, and a program that is killed now and then."""
    rng, kills = Random(seed), 0
    life = Life(tmp_path)
    for number in range(14):
        life.phone.always, life.spare.always = answer(rng), answer(rng)
        life.find(fire(f"a{number}", at=life.clock.now(), severity=rng.choice(("critical", "warning"))))
        if rng.random() < 0.6:
            points: Points = life.ledger._points
            points.kill_at = points.passed + rng.randint(1, 12)
        try:
            life.go(rng.choice((10.0, 70.0, 400.0)))
        except Killed:
            kills += 1
            life.die()
            life.clock.passed += rng.choice((1.0, 60.0, 5_000.0))
            life.begin(Points())
        life.ledger._points.kill_at = 0
    life.phone.always = life.spare.always = None
    life.clock.passed += 3_600.0
    life.go(1_000.0)
    came = {*life.phone.keys, *life.spare.keys}
    assert came == {notice.key for notice in life.found}
    assert kills >= 2
    for phone in (life.phone, life.spare):
        assert sum(told(phone).values()) - len(told(phone)) <= kills, told(phone)
    assert life.rows("waiting") + life.rows("leased") == []
    life.die()


def test_many_that_are_overdue_at_once_do_not_keep_the_leader_from_renewing_its_lease(tmp_path: Path) -> None:
    """One thread does both. With 10,000 it took a minute, as each of them asked how the channel does."""
    phone = Asked()
    phone.always = DOWN
    life = Life(tmp_path, phone=phone)
    life.find(*(fire(f"a{number}", at=NOW) for number in range(200)))
    life.go(40.0)
    phone.times = 0
    life.go(10.0)
    assert len(life.spare.keys) == 200
    assert phone.times < 200
    life.die()


def test_a_thread_that_cannot_be_started_is_a_try_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have no process or no memory left for a while: not one channel may stay behind."""
    life = Life(tmp_path)
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("channel "):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    life.find(fire("a", at=NOW), fire("b", "spare", at=NOW))
    life.go(10.0)
    assert life.deliverer.health[0].problem == "it cannot be sent here: can't start new thread"
    monkeypatch.undo()
    life.go(30.0)
    assert (life.phone.keys, life.spare.keys) == (["a-fire"], ["b-fire"])
    life.die()


def test_a_mistake_about_an_answer_is_a_try_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path)
    life.phone.always = Broken("400 bad request")
    monkeypatch.setattr(SendQueue, "refused", lambda *_: 1 // 0)
    life.find(fire("a", at=NOW), fire("b", "spare", at=NOW))
    life.go(120.0)
    assert "the answer for the channel phone" in caplog.text
    assert 2 <= len(life.phone.tried) <= 8, "its tries become rarer"
    assert sorted(life.spare.keys) == ["a-fire", "b-fire"], "its fallback has it"
    life.die()


def test_a_fallback_that_fails_as_well_passes_on_at_once_what_has_waited_long_enough(tmp_path: Path) -> None:
    """The minute counts from when the notification was first due, and not from when the fallback was given it."""
    life, mail = Life(tmp_path), Phone("mail")
    life.deliverer.reload((life.phone, life.spare, mail), (*ROUTES, Route(channel="mail", severity="critical")))
    life.phone.always = life.spare.always = DOWN
    life.find(fire("a", at=NOW))
    life.go(CRITICAL_OVERDUE)
    assert life.spare.tried == []
    life.go(5.0)
    assert life.spare.tried
    assert mail.keys == ["a-fire"]
    life.die()


def test_what_an_earlier_program_has_sent_is_not_owed_again_whatever_becomes_of_its_channel(tmp_path: Path) -> None:
    """It finds the same again, and only the ledger knows that it was sent; meanwhile somebody changes the config."""
    life = Life(tmp_path)
    life.find(fire("a", at=NOW))
    life.go(5.0)
    life.die()
    life.begin(Points())
    life.deliverer.reload((life.spare,), ROUTES)
    life.go(5.0)
    life.deliverer.reload((life.phone, life.spare), ROUTES)
    life.go(60.0)
    assert (life.phone.keys, life.spare.keys) == (["a-fire"], [])
    assert life.rows("sent") == ["phone a-fire"]
    life.die()


@pytest.mark.parametrize("seconds", [5, 50])
def test_what_is_being_sent_while_the_config_changes_is_sent_once_and_the_fallback_has_it_in_time(
    tmp_path: Path, seconds: int
) -> None:
    """The leader looks in the ledger for what nobody sends, and finds it there."""
    life, hung = Life(tmp_path), threading.Event()
    life.phone.script.append(hung)
    life.find(fire("a", at=NOW))
    for _ in range(4):
        life.deliverer.turn()
    life.deliverer.reload((life.phone, life.spare), ROUTES)
    for _ in range(seconds):
        life.deliverer.add(read_waiting(life.ledger.connection))
        life.deliverer.turn()
        life.clock.passed += 1.0
    until(lambda: len(life.spare.taken) == (seconds > CRITICAL_OVERDUE), "the message of the fallback")
    assert len(life.phone.tried) == 1
    hung.set()
    life.go(60.0)
    assert (life.phone.keys, len(life.spare.taken)) == (["a-fire"], seconds > CRITICAL_OVERDUE)
    assert life.rows("waiting") == life.rows("leased") == []
    life.die()


def test_a_message_that_hangs_for_good_in_a_channel_that_was_replaced_is_sent_by_the_new_one(tmp_path: Path) -> None:
    life, hung = Life(tmp_path), threading.Event()
    life.phone.script.append(hung)
    life.find(fire("a", at=NOW))
    for _ in range(4):
        life.deliverer.turn()
    life.deliverer.reload((repaired := Phone(), life.spare), ROUTES)
    life.clock.passed += STRANGE_AFTER + 1.0
    life.deliverer.add(read_waiting(life.ledger.connection))
    life.deliverer.turn()
    life.deliverer.turn()
    until(lambda: repaired.keys == ["a-fire"], "the message of the new channel")
    hung.set()
    life.die()


def test_a_ledger_that_is_always_slow_holds_up_each_notification_once(tmp_path: Path) -> None:
    """What is owed waits for the transaction before its own, too: for both together only as long as for one."""
    life, waiting = Life(tmp_path), deque[tuple[float, Answer]]()
    plain, stuck_at = life.ledger.transact, list[float]()

    def transact(work: Callable[[sqlite3.Connection], object], then: Callable[[], None]) -> Answer:
        waiting.append((life.clock.passed + 4.5, answer := Answer(work, then)))
        return answer

    def turn() -> None:
        while waiting and waiting[0][0] <= life.clock.passed:
            answer = waiting.popleft()[1]
            answer.give(plain(answer.work, lambda: None).found)
        life.deliverer.turn()
        answered()
        stuck_at.extend([life.clock.passed] if life.journal.trouble is not None else [])
        life.clock.passed += 0.5

    life.ledger.transact = transact
    life.find(fire("before", at=NOW))
    turn()
    life.find(fire("a", at=life.clock.now()))
    while life.clock.passed < 6.5:
        turn()
    assert life.phone.keys == ["before-fire", "a-fire"], "a waited for six seconds"
    while life.clock.passed < 40.0:
        turn()
    assert max(stuck_at) < 20.0, "all is written, and nothing of then counts as late"
    assert life.rows("sent") == ["phone a-fire", "phone before-fire"]
    life.die()


def test_a_new_ledger_has_what_waits_for_a_channel_that_was_removed(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.phone.always = DOWN
    life.find(fire("a", at=NOW))
    life.go(5.0)
    life.deliverer.reload((), ())
    life.go(5.0)
    life.ledger.connection.execute("DELETE FROM outbox")
    life.ledger.connection.commit()
    life.deliverer.write_all()
    life.go(5.0)
    life.die()
    life.found, life.phone.always = [], None
    life.begin(Points())
    life.go(60.0)
    assert life.phone.keys == ["a-fire"]
    life.die()


@pytest.mark.parametrize("others", [(), ("spare",)])
def test_what_waited_for_a_channel_that_was_removed_is_sent_when_it_is_back(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    """Somebody took it out of the config and put it back: until the next start, nobody got the alert."""
    life = Life(tmp_path)
    life.phone.always = life.spare.always = DOWN
    life.find(fire("a", at=NOW))
    life.go(5.0)
    life.deliverer.reload([phone for phone in (life.spare,) if phone.health.name in others], ROUTES)
    life.go(5.0)
    life.deliverer.reload((life.phone,), ROUTES)
    life.phone.always = None
    life.go(5.0)
    assert life.phone.keys == ["a-fire"]
    life.deliverer.reload((life.phone, life.spare), ROUTES)
    life.spare.always = None
    life.go(400.0)
    assert (life.phone.keys, life.spare.keys) == (["a-fire"], [])
    assert life.rows("waiting") + life.rows("leased") == []
    life.die()


def test_what_was_given_up_and_is_refused_again_is_not_said_to_be_sent_now(tmp_path: Path) -> None:
    """It went along with the end of its alert; the ledger said `leased` for ever, and status that it waits."""
    life = Life(tmp_path)
    life.phone.always, life.spare.always = Broken("401 unauthorized"), DOWN
    first = fire("a", at=NOW)
    life.find(first)
    life.go(5.0)
    assert life.rows("dead") == ["phone a-fire"]
    life.find(end := over(first.alerts[0], NOW + 5.0))
    life.go(5.0)
    assert {notice.key for notice in life.phone.tried[-1].notices} <= {"a-fire", end.key}
    assert life.rows("dead") == ["phone a-fire", f"phone {end.key}"]
    life.die()


def test_however_many_another_channel_has_delivered_none_of_them_is_new_when_it_works_again(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.phone.always = DOWN
    life.find(*(fire(f"n{number}", at=NOW) for number in range(1_500)))
    life.go(90.0)
    assert len(set(life.spare.keys)) == 1_500
    life.phone.always = None
    life.go(700.0)
    assert not any("run-dead" in message.title for message in life.phone.taken), "a summary, and no new alerts"
    life.die()


def test_the_first_of_two_copies_of_a_notice_is_stored(tmp_path: Path) -> None:
    """A stand-in's copy names who failed: it is not what the next program or the history should tell."""
    life = Life(tmp_path)
    notice = fire("a", at=NOW)
    owed = [
        Notification(channel=channel, notice=replace(notice, reason=reason), made_at=NOW)
        for channel, reason in (("phone", notice.reason), ("spare", "as phone fails"))
    ]
    with life.ledger.connection as connection:
        transaction(stand_ins=owed).write(connection, NOW)
    stored = life.ledger.connection.execute("SELECT reason FROM notices").fetchall()
    assert stored == [(notice.reason,)]
    life.die()
