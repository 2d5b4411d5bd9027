"""The channel healthchecks: down while a critical alert is open, and a line of all else."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.receiver import HANG, Answer, status
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.alerting.notify.delivery.scene import Phone, opened, until
from tests.trainmon.alerting.notify.samples import NOW, alert, beat, message, notice, over
from trainmon.alerting.notify.channels.healthchecks import Healthchecks, Ping
from trainmon.alerting.notify.message import Broken, Retry
from trainmon.config.decode import decode
from trainmon.ledger.ledger import alerts_now
from trainmon.model import AlertChanges, Channel, Notice
from trainmon.runtime.alert_service import senders

UUID = "0f5c2a5e-hunter2"


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver.start() as running:
        yield running


def check(receiver: WebhookReceiver, known: Callable[[], frozenset[str] | None] | None = None) -> Healthchecks:
    ping = Ping("check", f"{receiver.url}/{UUID}")
    return Healthchecks(Channel(name="check", type="healthchecks"), ping=ping, known=known)


def paths(receiver: WebhookReceiver) -> list[str]:
    return [path.removeprefix(f"/{UUID}") for path, _ in receiver.pings]


def pinged(receiver: WebhookReceiver, *notices: Notice) -> list[str]:
    """Where each of these is told, one after the other."""
    channel = check(receiver)
    for one in notices:
        channel.send(message(one), 10)
    return paths(receiver)


def test_a_critical_alert_turns_it_down_with_the_reason_and_its_end_turns_it_up(receiver: WebhookReceiver) -> None:
    assert pinged(receiver, notice(), over(alert())) == ["/fail", ""]
    assert receiver.pings[0][1].startswith("CODE RED video-2b: run-dead\n\nno process of video-2b is left")


def test_it_is_up_only_when_the_last_one_is_over(receiver: WebhookReceiver) -> None:
    other = alert(id="other", subject="run:b")
    assert pinged(receiver, notice(), notice(other), over(alert()), over(other)) == ["/fail", "/fail", "/log", ""]


def test_warnings_and_signs_of_life_are_only_kept(receiver: WebhookReceiver) -> None:
    warning = notice(alert(severity="warning"), severity="warning")
    assert pinged(receiver, warning, beat(), notice(), beat()) == ["/log", "/log", "/fail", "/log"]


def test_after_a_restart_a_sign_of_life_does_not_turn_it_up(receiver: WebhookReceiver) -> None:
    pinged(receiver, notice())
    check(receiver).send(message(beat()), 10)
    assert paths(receiver) == ["/fail", "/log"]


def test_after_a_restart_it_is_up_only_when_what_was_sent_before_is_over_too(receiver: WebhookReceiver) -> None:
    open_ones = {"k3v9x2ab", "other"}
    channel = check(receiver, known=lambda: frozenset(open_ones))
    open_ones.remove("k3v9x2ab")
    channel.send(message(over(alert())), 10)
    assert paths(receiver) == ["/log"], "the other one goes on"
    open_ones.clear()
    channel.send(message(over(alert(id="other"))), 10)
    assert paths(receiver) == ["/log", ""]


def test_while_the_ledger_cannot_be_read_an_end_is_only_kept(receiver: WebhookReceiver) -> None:
    check(receiver, known=lambda: None).send(message(over(alert())), 10)
    assert paths(receiver) == ["/log"]


def test_what_ended_without_a_word_does_not_keep_it_down(receiver: WebhookReceiver) -> None:
    open_ones = {"k3v9x2ab"}
    channel = check(receiver, known=lambda: frozenset(open_ones))
    channel.send(message(), 10)
    open_ones.clear()  # it was muted when it ended
    channel.send(message(beat()), 10)
    assert paths(receiver) == ["/fail", ""]


def test_what_the_ledger_knows_is_found_by_the_channel(tmp_path: Path, receiver: WebhookReceiver) -> None:
    table = f'[[notify]]\ntype = "healthchecks"\nname = "check"\nurl = "{receiver.url}/{UUID}"\n'
    settings, problems = decode(tomllib.loads(table), "trainmon.toml")
    assert settings is not None, problems
    other = alert(id="other", subject="run:b", notified_on=("check",))
    with opened(tmp_path, Phone()) as scene:
        scene.service.enqueue(AlertChanges(at=NOW, alerts=(other,)))
        until(lambda: alerts_now(tmp_path, NOW).stored.alerts, "it is written down")
        (channel,) = senders(settings.notify, environ={}, state_directory=tmp_path)
        channel.send(message(over(alert())), 10)
    assert paths(receiver) == ["/log"]


def test_a_message_that_did_not_arrive_is_not_counted_as_sent(receiver: WebhookReceiver) -> None:
    channel = check(receiver)
    receiver.script(status(503))
    with pytest.raises(Retry):
        channel.send(message(), 10)
    channel.send(message(), 10)
    channel.send(message(over(alert())), 10)
    assert paths(receiver) == ["/fail", ""]


def test_its_text_has_a_bound(receiver: WebhookReceiver) -> None:
    Ping("check", f"{receiver.url}/{UUID}")("log", "ä\n" * 20_000, 10)
    assert len(receiver.taken[0].body) <= 10_000


def test_an_unknown_check_is_broken_and_its_address_is_in_no_word(receiver: WebhookReceiver) -> None:
    receiver.script(status(404))
    with pytest.raises(Broken) as caught:
        check(receiver).send(message(), 10)
    assert str(caught.value) == "404 not found"


@pytest.mark.parametrize(
    ("words", "error", "reply"),
    [
        (b"OK (not found)", Broken, "it knows no such check; correct the address in the config"),
        (b"OK (rate limited)", Retry, "it accepts no more pings in this minute"),
    ],
)
def test_an_ok_that_is_none_is_not_taken_for_one(
    receiver: WebhookReceiver, words: bytes, error: Any, reply: str
) -> None:
    receiver.script(Answer("status", 200, words))
    with pytest.raises(error) as caught:
        check(receiver).send(message(), 10)
    assert str(caught.value) == reply


def test_a_signal_goes_before_the_query_of_an_address(receiver: WebhookReceiver) -> None:
    ping = Ping("check", f"{receiver.url}/key/slug?create=1")
    ping("fail", "x", 10)
    ping("", "x", 10)
    assert [path for path, _ in receiver.pings] == ["/key/slug/fail?create=1", "/key/slug?create=1"]


def test_a_server_that_hangs_is_left_in_time(receiver: WebhookReceiver) -> None:
    receiver.always(HANG)
    with pytest.raises(Retry):
        check(receiver).send(message(), 0.3)
