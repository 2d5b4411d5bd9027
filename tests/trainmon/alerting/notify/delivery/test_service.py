"""The notification service: it writes before it sends, has a thread for each channel, and never blocks a caller."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainmon.alerting.notify.delivery.scene import NO_ROUTE, Phone, Shifted, fire, opened, plain, until
from trainmon.alerting.notify.message import Broken, Message, Retry, Sent
from trainmon.model import Channel, ChannelsChanged, Route


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


def test_an_election_that_fails_keeps_no_message_from_being_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    phone = Phone()

    def turn() -> None:
        raise ZeroDivisionError("a mistake of ours")

    with opened(tmp_path, phone) as scene:
        scene.service._election.turn = turn  # type: ignore[method-assign]
        scene.enqueue(fire())
        until(lambda: phone.keys == ["a-fire"])
        until(lambda: scene.rows("SELECT state FROM outbox") == [("sent",)])
        assert "the notification service crashed; it goes on" in caplog.text
