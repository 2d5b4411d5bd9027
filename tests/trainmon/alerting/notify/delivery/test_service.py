"""The notification service: it writes before it sends, has a thread for each channel, and never blocks a caller."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainmon.alerting.notify.delivery.scene import Phone, Scene, Shifted, fire, opened, plain, until
from tests.trainmon.alerting.notify.samples import alert, beat, over
from tests.trainmon.ledger.records import transaction
from trainmon.alerting.notify.base import Broken, Message, Retry, Sent
from trainmon.ledger.database import open_to_write
from trainmon.ledger.ledger import alerts_now
from trainmon.model import AlertChanges, AlertsRestored, Channel, ChannelsChanged, Route

NO_ROUTE = "no route to host"


class Watched(Phone):
    """It looks into the ledger as it is handed a message."""

    file: Path
    seen: list[tuple[Any, ...]]

    def send(self, message: Message, timeout: float) -> Sent:
        query = (
            "SELECT alerts.phase, alert_history.what, outbox.state, outbox.attempts FROM alerts, alert_history, outbox"
        )
        self.seen = plain(self.file, query)
        return super().send(message, timeout)


def test_alert_history_and_outbox_are_on_the_disk_before_anything_is_sent(tmp_path: Path) -> None:
    phone = Watched()
    with opened(tmp_path, phone) as scene:
        phone.file = scene.ledger.file
        scene.enqueue(fire())
        until(lambda: scene.rows("SELECT state, words FROM outbox") == [("sent", "taken")])
        assert phone.seen == [("firing", "fired", "leased", 1)]
        assert [state for _, state, _ in scene.deliveries] == ["sending", "sent"]
        assert scene.rows("SELECT key, kind, severity, alerts FROM notices") == [("a-fire", "fire", "critical", "a")]


def test_each_channel_gets_its_own_and_how_it_does_is_reported(tmp_path: Path) -> None:
    phone, mail = Phone(), Phone("mail")
    with opened(tmp_path, phone, mail) as scene:
        scene.enqueue(fire("a", "phone", "mail"), fire("b", "mail"))
        until(lambda: len(scene.rows("SELECT * FROM outbox WHERE state = 'sent'")) == 3)
        assert (phone.keys, sorted(mail.keys)) == (["a-fire"], ["a-fire", "b-fire"])

        def newest() -> dict[str, Channel]:
            return {one.name: one for event in scene.of(ChannelsChanged) for one in event.channels}

        until(lambda: {name: (one.state, one.sent, one.waiting) for name, one in newest().items()} == {
            "phone": ("ok", 1, 0), "mail": ("ok", 2, 0),
        })  # fmt: skip


def test_the_same_key_is_sent_once_whoever_hands_it_over_again(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone) as scene:
        for _ in range(3):
            scene.enqueue(fire())
            until(lambda: scene.rows("SELECT state FROM outbox") == [("sent",)])
        scene.enqueue(fire("z"))
        until(lambda: "z-fire" in phone.keys)
        scene.until_marked()
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire())
        scene.enqueue(fire("y"))
        until(lambda: "y-fire" in phone.keys)
    assert phone.keys == ["a-fire", "z-fire", "y-fire"]


def test_a_channel_that_hangs_delays_no_other(tmp_path: Path) -> None:
    mail, phone, go = Phone("mail"), Phone(), threading.Event()
    mail.script.append(go)
    with opened(tmp_path, mail, phone) as scene:
        scene.enqueue(fire("a", "mail", "phone"))
        scene.enqueue(fire("b", "mail", "phone"))
        until(lambda: phone.keys == ["a-fire", "b-fire"])
        assert mail.keys == []
        go.set()
        until(lambda: sorted(mail.keys) == ["a-fire", "b-fire"])


def test_a_sender_that_never_comes_back_is_reported(tmp_path: Path) -> None:
    phone, go, clock = Phone(), threading.Event(), Shifted()
    phone.script.append(go)
    with opened(tmp_path, phone, clock=clock) as scene:
        scene.enqueue(fire())
        until(lambda: phone.tried)
        clock.passed = 180.0
        until(
            lambda: (
                [one.problem for one in scene.of(ChannelsChanged)[-1].channels]
                == ["sending a message has taken 3m so far"]
            )
        )
        (channel,) = scene.of(ChannelsChanged)[-1].channels
        assert (channel.state, channel.since is not None) == ("retrying", True)
        go.set()
        until(lambda: [one.state for one in scene.of(ChannelsChanged)[-1].channels] == ["ok"])


def test_what_fails_now_is_tried_again_and_its_words_are_reported(tmp_path: Path) -> None:
    phone = Phone()
    phone.script.extend([Retry(NO_ROUTE), Retry("500: internal error")])
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire())
        until(lambda: scene.rows("SELECT state, attempts FROM outbox") == [("sent", 3)])
        assert [one for one in scene.deliveries if one[1] == "retrying"] == [
            ("phone", "retrying", NO_ROUTE), ("phone", "retrying", "500: internal error"),
        ]  # fmt: skip
        assert {message.key for message in phone.tried} == {phone.taken[0].key}, "a receiver knows the second copy"


def test_a_receiver_that_asks_for_a_pause_gets_it(tmp_path: Path) -> None:
    phone = Phone()
    phone.script.append(Retry("429: limit reached", after=600.0))
    with opened(tmp_path, phone) as scene:
        scene.enqueue(fire(severity="warning"))
        until(lambda: scene.rows("SELECT state, attempts, words FROM outbox") == [("waiting", 1, "429: limit reached")])
        assert scene.rows(f"SELECT next_at - {scene.clock.now()} > 500 FROM outbox") == [(1,)]
        scene.enqueue(fire("b", severity="warning"))
        until(lambda: len(scene.rows("SELECT * FROM outbox")) == 2)
        scene.enqueue(fire("c"))
        until(lambda: phone.keys[:1] == ["c-fire"], "what is critical asks again")
        assert [message.key for message in phone.tried[:2]] == ["a-fire", "c-fire"]


def test_a_channel_that_wants_to_be_left_alone_for_long_is_stood_in_for(tmp_path: Path) -> None:
    phone, mail = Phone(), Phone("mail")
    phone.script.append(Retry("42908: daily quota", after=7_200.0))
    with opened(tmp_path, phone, mail) as scene:
        scene.enqueue(fire("a", "phone"))
        until(lambda: mail.keys == ["a-fire"])
        assert mail.taken[0].notices[0].reason == "fired; phone could not deliver it: 42908: daily quota"
        assert scene.rows("SELECT channel, state FROM outbox ORDER BY channel") == [
            ("mail", "leased"), ("phone", "waiting"),
        ] or scene.rows("SELECT state FROM outbox WHERE channel = 'mail'") == [("sent",)]  # fmt: skip


def test_a_refusal_breaks_the_channel_and_the_others_are_notified_at_once(tmp_path: Path) -> None:
    phone, mail, pager = Phone(), Phone("mail"), Phone("pager", "critical")
    phone.always = Broken("403: forbidden")
    routes = (Route(channel="phone"), Route(channel="mail"), Route(channel="pager", severity="critical"))
    with opened(tmp_path, phone, mail, pager, routes=routes) as scene:
        scene.enqueue(fire("a", "phone"))
        scene.enqueue(fire("b", "phone", severity="warning"))
        until(lambda: sorted(mail.keys) == ["a-fire", "b-fire"])
        until(lambda: pager.keys == ["a-fire"])
        dead = scene.rows("SELECT key, words FROM outbox WHERE channel = 'phone' AND state = 'dead' ORDER BY key")
        assert dead == [("a-fire", "403: forbidden"), ("b-fire", "403: forbidden")]
        assert len(phone.tried) == 2, "tried once each"
        assert mail.taken[0].notices[0].reason == "fired; phone could not deliver it"
        until(
            lambda: (
                [one.state for event in scene.of(ChannelsChanged) for one in event.channels if one.name == "phone"][-1]
                == "broken"
            )
        )


def test_a_fallback_channel_gets_what_another_could_not_deliver_and_nothing_else(tmp_path: Path) -> None:
    phone, mail, spare = Phone(), Phone("mail"), Phone("spare")
    phone.script.append(Broken("401: unauthorized"))
    routes = (Route(channel="phone"), Route(channel="mail"), Route(channel="spare", fallback=True))
    with opened(tmp_path, phone, mail, spare, routes=routes) as scene:
        scene.enqueue(fire("a", "phone"))
        until(lambda: spare.keys == ["a-fire"])
        scene.enqueue(fire("b", "phone", "mail"))
        until(lambda: (phone.keys, mail.keys) == (["b-fire"], ["b-fire"]))
        assert spare.keys == ["a-fire"]


def test_others_are_not_notified_again_of_what_they_were_notified_of(tmp_path: Path) -> None:
    phone, mail = Phone(), Phone("mail")
    phone.always = Broken("404: no such topic")
    with opened(tmp_path, phone, mail) as scene:
        scene.enqueue(fire("a", "mail", "phone"))
        until(
            lambda: scene.rows("SELECT channel, state FROM outbox ORDER BY 1") == [("mail", "sent"), ("phone", "dead")]
        )
        scene.enqueue(fire("b", "mail"))
        until(lambda: mail.keys == ["a-fire", "b-fire"])


def test_refused_together_and_taken_alone_each_goes_alone(tmp_path: Path) -> None:
    phone = Phone()

    def send(message: Message, timeout: float) -> Sent:
        phone.tried.append(message)
        if len(message.notices) > 1:
            raise Broken("413: too large")
        phone.taken.append(message)
        return Sent()

    phone.send = send  # type: ignore[method-assign]
    with opened(tmp_path, phone) as scene:
        scene.enqueue(*(fire(f"a{number}") for number in range(11)))
        until(lambda: len(phone.taken) >= 9, "what there is room for")
        assert scene.rows("SELECT count(*) FROM outbox WHERE state = 'dead'") == [(0,)]


def test_eleven_at_once_are_one_message(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone) as scene:
        scene.enqueue(*(fire(f"a{number}") for number in range(11)))
        until(lambda: scene.rows("SELECT count(*) FROM outbox WHERE state IN ('sent', 'merged')") == [(11,)])
        assert len(phone.taken) == 1
        assert ("phone", "merged", "in one message of 11") in scene.deliveries


def test_a_channel_that_falls_over_is_a_channel_that_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    phone = Phone()
    phone.script.append(ZeroDivisionError("a mistake of ours"))
    with opened(tmp_path, phone) as scene, caplog.at_level(logging.ERROR):
        scene.enqueue(fire())
        until(lambda: phone.keys == ["a-fire"])
        assert ("phone", "retrying", "it crashed here: ZeroDivisionError") in scene.deliveries
        assert "the channel phone crashed" in caplog.text


def test_a_message_that_cannot_be_rendered_is_sent_in_short(tmp_path: Path) -> None:
    def render(*_: Any) -> Message:
        raise ValueError("a mistake of ours")

    phone = Phone()
    with opened(tmp_path, phone, render=render, attach=render) as scene:
        scene.enqueue(fire())
        until(lambda: phone.keys == ["a-fire"])
        assert phone.taken[0].title.startswith("critical: no process of video-2b is left on 4 nodes")


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
        scene.enqueue(fire(), memory={"heartbeat": "1700000000"}, requests_until=7)
        until(lambda: scene.rows("SELECT state FROM outbox") == [("sent",)])
    with opened(tmp_path, Phone()) as scene:
        (stored,) = [event.stored for event in scene.of(AlertsRestored)]
        assert [one.id for one in stored.alerts] == ["a"]
        assert stored.alerts[0].token == alert().token
        assert (stored.memory, stored.requests_until) == ({"heartbeat": "1700000000"}, 7)
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
