"""What waits: after an outage, a restart, a jump of the clock, a change of leader."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.trainmon.alerting.notify.delivery.scene import NO_ROUTE, Phone, Scene, Shifted, fire, opened, until
from tests.trainmon.alerting.notify.samples import alert, beat, over
from tests.trainmon.ledger.records import transaction
from trainmon.alerting.notify.message import Broken, Message, Retry, Sent
from trainmon.ledger.database import open_to_write
from trainmon.ledger.ledger import alerts_now
from trainmon.model import AlertChanges, AlertsRestored


def test_what_waits_for_a_channel_that_is_gone_is_sent_by_the_others(tmp_path: Path) -> None:
    phone, mail = Phone(), Phone("mail")
    phone.always = Retry(NO_ROUTE)
    before = set(threading.enumerate())  # another test's worker may still end
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire())
        until(lambda: phone.tried)
        scene.service.reload((mail,), ())
        until(lambda: mail.keys == ["a-fire"])
        assert mail.taken[0].notices[0].reason == "fired; the channel phone is no longer in the config"
        until(lambda: "channel phone" not in {thread.name for thread in set(threading.enumerate()) - before})
        scene.enqueue(fire("b", "mail"))
        until(lambda: mail.keys == ["a-fire", "b-fire"])


def test_a_renewed_channel_goes_on_with_what_waits(tmp_path: Path) -> None:
    before, after = Phone(), Phone()
    before.always = Broken("401: unauthorized")
    with opened(tmp_path, before) as scene:
        scene.enqueue(fire())
        until(lambda: scene.rows("SELECT state FROM outbox") == [("dead",)])
        scene.service.reload((after,), ())
        until(lambda: after.keys == ["a-fire"], "nobody had been told of it")


def test_the_end_sends_what_waits_and_a_start_what_could_not_go(tmp_path: Path) -> None:
    phone, mail = Phone(), Phone("mail")
    mail.always = Retry(NO_ROUTE)
    scene = Scene(tmp_path, phone, mail)
    scene.start()
    until(lambda: scene.holder == "us")
    scene.enqueue(*(fire(f"a{number}", "phone", "mail") for number in range(5)))
    scene.stop()
    assert sorted(phone.keys) == [f"a{number}-fire" for number in range(5)]
    assert scene.rows("SELECT count(*) FROM outbox WHERE channel = 'phone' AND state IN ('sent', 'merged')") == [(5,)]
    mail.always = None
    with opened(tmp_path, phone, mail, clock=Shifted(400.0)):
        until(lambda: len(mail.keys) == 5)
    assert len(mail.taken) == 1, "after an outage one message"
    assert len(phone.keys) == 5


def test_an_old_heartbeat_is_not_sent_late(tmp_path: Path) -> None:
    phone = Phone()
    phone.always = Retry(NO_ROUTE)
    with opened(tmp_path, phone) as scene:
        now = scene.clock.now()
        scene.enqueue(beat(at=now, expires_at=now + 3_600), fire())
        until(lambda: len(phone.tried) > 1)
    phone.always = None
    with opened(tmp_path, phone, clock=Shifted(7_200.0)) as scene:
        until(lambda: phone.keys == ["a-fire"])
        query = "SELECT state, outbox.words FROM outbox WHERE key = 'heartbeat-1'"
        until(lambda: scene.rows(query) == [("stopped", "it expired before it could be sent")])


def test_a_three_day_outage_ends_in_one_message_with_the_times_of_then(tmp_path: Path) -> None:
    phone = Phone()
    phone.always = Retry(NO_ROUTE)
    with opened(tmp_path, phone) as scene:
        one = fire("a")
        ended = over(one.alerts[0], one.at + 1_800)
        scene.enqueue(one, fire("b"))
        scene.enqueue(ended)
        until(lambda: scene.rows("SELECT count(*) FROM outbox") == [(3,)])
    phone.always = None
    with opened(tmp_path, phone, clock=Shifted(3 * 86_400.0)) as scene:
        until(lambda: sorted(phone.keys) == ["a-fire", "a-resolve", "b-fire"])
        (message,) = phone.taken
        assert [result.at for result in message.notices if result.key == "a-fire"] == [one.at]


def test_a_notification_found_after_a_jump_of_the_clock_is_sent_and_not_given_up(tmp_path: Path) -> None:
    phone = Phone()
    phone.always = Retry(NO_ROUTE)
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire())
        until(lambda: phone.tried)
    phone.always = None
    with opened(tmp_path, phone, clock=Shifted(-30 * 86_400.0)) as scene:
        until(lambda: phone.keys == ["a-fire"])
        scene.until_marked()
    with opened(tmp_path, phone, clock=Shifted(+300 * 86_400.0)) as scene:
        scene.enqueue(fire("b"))
        until(lambda: phone.keys == ["a-fire", "b-fire"])


def test_a_laptop_that_wakes_up_tries_at_once(tmp_path: Path) -> None:
    phone, clock = Phone(), Shifted()
    phone.script.append(Retry(NO_ROUTE, after=3_000.0))
    with opened(tmp_path, phone, clock=clock) as scene:
        scene.enqueue(fire(severity="warning"))
        until(lambda: scene.rows("SELECT attempts FROM outbox WHERE state = 'waiting'") == [(1,)])
        clock.by = 28_800.0
        until(lambda: phone.keys == ["a-fire"])


def test_a_new_leader_recalls_what_the_ledger_knows(tmp_path: Path) -> None:
    with opened(tmp_path, Phone()) as scene:
        scene.enqueue(fire(), memory={"heartbeat": 1_700_000_000.0}, requests_until=7)
        until(lambda: scene.rows("SELECT state FROM outbox") == [("sent",)])
    with opened(tmp_path, Phone()) as scene:
        (stored,) = [event.stored for event in scene.of(AlertsRestored)]
        assert [one.id for one in stored.alerts] == ["a"]
        assert stored.alerts[0].token == alert().token
        assert (stored.memory, stored.requests_until) == ({"heartbeat": 1_700_000_000.0}, 7)
        assert stored.at is not None
        found = alerts_now(tmp_path, scene.clock.now())
        assert [(one.channel, one.state) for one in found.stored.alerts[0].delivery] == [("phone", "sent")]


class Slow(Phone):
    """Takes everything, and says so too late."""

    def __init__(self, clock: Shifted, answers_after: float) -> None:
        super().__init__()
        self.clock, self.answers_after = clock, answers_after
        self.allowed: list[float] = []

    def send(self, message: Message, timeout: float) -> Sent:
        self.allowed.append(timeout)
        self.taken.append(message)
        self.clock.passed += min(timeout, self.answers_after)
        if self.answers_after > timeout:
            raise Retry("no answer in time")
        return Sent()


def test_one_that_answers_late_is_waited_for_longer_and_not_sent_duplicates(tmp_path: Path) -> None:
    clock = Shifted()
    slow = Slow(clock, answers_after=100.0)
    with opened(tmp_path, slow, clock=clock, timeout=30.0) as scene:
        scene.enqueue(fire("a"))
        until(lambda: scene.rows("SELECT state, attempts FROM outbox") == [("sent", 3)])
        assert slow.allowed == [30.0, 60.0, 110.0]
        assert len({message.key for message in slow.taken}) == 1, "a receiver can know the copies"
        slow.answers_after = 1.0
        scene.enqueue(fire("b"))
        until(lambda: slow.allowed[3:] == [30.0])


def test_what_waits_in_the_ledger_and_at_no_worker_is_found(tmp_path: Path) -> None:
    phone, clock = Phone(), Shifted()
    with opened(tmp_path, phone, clock=clock) as scene:
        now = clock.now()
        connection = open_to_write(scene.ledger.file, is_network=None)
        transaction(AlertChanges(at=now, notices=(fire("a"),))).write(connection, now)
        connection.close()
        clock.passed = 100.0
        until(lambda: phone.keys == ["a-fire"])
        scene.until_marked()
        clock.passed = 400.0
        scene.enqueue(fire("b"))
        until(lambda: phone.keys == ["a-fire", "b-fire"])


def test_without_leadership_nothing_is_sent_or_written(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone), opened_without(tmp_path, phone) as second:
        second.enqueue(fire())
        assert second.rows("SELECT count(*) FROM outbox") == [(0,)]


class opened_without:  # noqa: N801 - reads as the other one does
    """A second service on the same ledger."""

    def __init__(self, directory: Path, *phones: Phone) -> None:
        self.scene = Scene(directory, *phones)

    def __enter__(self) -> Scene:
        self.scene.start()
        until(lambda: self.scene.holder == "other")
        return self.scene

    def __exit__(self, *_: object) -> None:
        self.scene.stop(0.0)
