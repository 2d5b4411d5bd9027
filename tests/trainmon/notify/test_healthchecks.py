"""The channel healthchecks: down while a critical alert is open, and a line of all else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.receiver import HANG, status
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.notify.telling import alert, beat, message, notice, over
from trainmon.model_alerts import Channel, Notice
from trainmon.notify.base import Broken, Retry
from trainmon.notify.healthchecks import Healthchecks, Ping

UUID = "0f5c2a5e-hunter2"


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver.start() as running:
        yield running


def check(receiver: WebhookReceiver) -> Healthchecks:
    return Healthchecks(Channel(name="check", type="healthchecks"), ping=Ping("check", f"{receiver.url}/{UUID}"))


def paths(receiver: WebhookReceiver) -> list[str]:
    return [path.removeprefix(f"/{UUID}") for path, _ in receiver.pings]


def told(receiver: WebhookReceiver, *notices: Notice) -> list[str]:
    """Where each of these is told, one after the other."""
    channel = check(receiver)
    for one in notices:
        channel.send(message(one), 10)
    return paths(receiver)


def test_a_critical_alert_turns_it_down_with_the_reason_and_its_end_turns_it_up(receiver: WebhookReceiver) -> None:
    assert told(receiver, notice(), over(alert())) == ["/fail", ""]
    assert receiver.pings[0][1].startswith("CODE RED video-2b: run-dead\n\nno process of video-2b is left")


def test_it_is_up_only_when_the_last_one_is_over(receiver: WebhookReceiver) -> None:
    other = alert(id="other", subject="run:b")
    assert told(receiver, notice(), notice(other), over(alert()), over(other)) == ["/fail", "/fail", "/log", ""]


def test_warnings_and_signs_of_life_are_only_kept(receiver: WebhookReceiver) -> None:
    warning = notice(alert(severity="warning"), severity="warning")
    assert told(receiver, warning, beat(), notice(), beat()) == ["/log", "/log", "/fail", "/log"]


def test_after_a_restart_a_sign_of_life_does_not_turn_it_up(receiver: WebhookReceiver) -> None:
    told(receiver, notice())
    check(receiver).send(message(beat()), 10)
    assert paths(receiver) == ["/fail", "/log"]


def test_a_message_that_did_not_arrive_is_not_counted_as_told(receiver: WebhookReceiver) -> None:
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


def test_a_server_that_hangs_is_left_in_time(receiver: WebhookReceiver) -> None:
    receiver.always(HANG)
    with pytest.raises(Retry):
        check(receiver).send(message(), 0.3)
