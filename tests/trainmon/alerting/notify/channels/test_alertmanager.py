"""The channel alertmanager: what is posted, what is posted again, and what ends; tests/alerts has a real one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.daemons import until
from tests.lab.receiver import status
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.alerting.notify.delivery.scene import opened
from tests.trainmon.alerting.notify.samples import NOW, TOKEN, alert, beat, message, notice, over
from trainmon.alerting.notify.channels.alertmanager import HOLD, Alertmanager, Resender
from trainmon.alerting.notify.message import Broken, Retry
from trainmon.model import Alert, Channel, ChannelsChanged

LABELS = {
    "alertname": "run-dead", "severity": "critical", "subject": "run:video-2b", "run": "video-2b",
    "monitor": "trainmon-tui",
}  # fmt: skip


class Clock:
    """It stands still until it is moved."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver.start() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def channel(receiver: WebhookReceiver, clock: Clock) -> Alertmanager:
    return made(receiver, clock)


def made(receiver: WebhookReceiver, clock: Clock | None = None, login: str | None = None) -> Alertmanager:
    return Alertmanager(Channel(name="am", type="alertmanager"), url=f"{receiver.url}/", login=login, clock=clock)


def told(**facts: Any) -> Alert:
    """An alert of which this channel was notified."""
    return alert(notified_on=("am",), **facts)


def resend(channel: Alertmanager, alerts: Iterable[Alert] | None) -> bool:
    return channel.resend(lambda: alerts, 10)


def ends(receiver: WebhookReceiver, post: int = -1) -> dict[tuple[str, str], str]:
    """Of a post: the end of each alert, by subject and severity."""
    return {(one["labels"]["subject"], one["labels"]["severity"]): one["endsAt"] for one in receiver.messages[post]}


VIDEO, LLM = ("run:video-2b", "critical"), ("run:llm", "critical")


def test_an_alert_is_posted_to_the_api_v2(receiver: WebhookReceiver, channel: Alertmanager) -> None:
    assert channel.send(message(), 10).answer == "200"
    (request,) = receiver.taken
    assert (request.method, request.path) == ("POST", "/api/v2/alerts")
    assert request.json == [
        {
            "labels": LABELS,
            "annotations": {
                "summary": "no process of video-2b is left on 4 nodes; its last step was 12,345, 31m ago",
                "description": "step 12344 loss 2.31\nstep 12345 loss 2.30",
                "advice": "trainmon-tui requeue video-2b starts it again",
                "reason": "fired",
                "id": "k3v9x2ab",
            },
            "startsAt": "2027-01-15T07:29:00.000Z",
            "endsAt": "2027-01-15T08:15:00.000Z",
        }
    ]
    assert TOKEN not in request.body.decode()


def test_several_alerts_are_one_post(receiver: WebhookReceiver, channel: Alertmanager) -> None:
    channel.send(message(notice(alert(), alert(id="b", subject="run:llm")), notice(alert(id="c", severity="info"))), 10)
    (posted,) = receiver.messages
    assert [one["annotations"]["id"] for one in posted] == ["k3v9x2ab", "b", "c"]


def test_what_is_over_has_its_end_also_if_the_clocks_differ(receiver: WebhookReceiver, channel: Alertmanager) -> None:
    channel.send(message(over(alert(), NOW - 60)), 10)
    assert ends(receiver) == {VIDEO: "2027-01-15T07:59:00.000Z"}
    channel.send(message(over(alert(), NOW - 7_200)), 10)
    ((posted,),) = receiver.messages[1:]
    assert posted["startsAt"] == posted["endsAt"] == "2027-01-15T06:00:00.000Z"


def test_a_report_is_an_alert_that_ends_by_itself(receiver: WebhookReceiver, channel: Alertmanager) -> None:
    channel.send(message(beat()), 10)
    ((posted,),) = receiver.messages
    assert posted["labels"] == {"alertname": "trainmon-heartbeat", "severity": "info", "monitor": "trainmon-tui"}
    assert posted["endsAt"] == "2027-01-15T08:15:00.000Z"
    assert resend(channel, ())
    assert receiver.messages[1:] == [[]]


def test_an_open_alert_is_posted_again_with_a_later_end(
    receiver: WebhookReceiver, channel: Alertmanager, clock: Clock
) -> None:
    channel.send(message(notice(told())), 10)
    clock.at += HOLD - 60
    assert resend(channel, [told()])
    assert ends(receiver) == {VIDEO: "2027-01-15T08:29:00.000Z"}
    assert receiver.messages[1][0]["annotations"] == receiver.messages[0][0]["annotations"]


def test_a_program_that_starts_posts_what_was_notified_before_and_nothing_else(
    receiver: WebhookReceiver, channel: Alertmanager
) -> None:
    other = alert(id="b", subject="run:llm", notified_on=("phone",))
    event = told(id="c", subject="run:moe", event=True)
    pending = told(id="d", subject="run:sft", phase="pending")
    assert resend(channel, [told(), other, event, pending])
    assert list(ends(receiver)) == [VIDEO]


def test_nothing_is_posted_while_the_alerts_are_not_known(receiver: WebhookReceiver, channel: Alertmanager) -> None:
    assert not resend(channel, None)
    assert receiver.requests == []


def test_an_alert_that_ended_without_a_notice_ends_there_too(
    receiver: WebhookReceiver, channel: Alertmanager, clock: Clock
) -> None:
    channel.send(message(notice(told(), told(id="b", subject="run:llm"))), 10)
    clock.at += 120
    assert resend(channel, [told(phase="resolved", resolved_at=NOW + 100)])
    assert ends(receiver) == {VIDEO: "2027-01-15T08:01:40.000Z", LLM: "2027-01-15T08:02:00.000Z"}
    assert resend(channel, [])
    assert receiver.messages[2:] == [[]], "they are over: nothing more is posted of them"


def test_an_alert_that_gets_worse_is_another_one_there_and_the_milder_one_ends(
    receiver: WebhookReceiver, channel: Alertmanager, clock: Clock
) -> None:
    resend(channel, [told(severity="warning")])
    clock.at += 60
    resend(channel, [told()])
    assert ends(receiver) == {
        ("run:video-2b", "warning"): "2027-01-15T08:01:00.000Z",
        VIDEO: "2027-01-15T08:16:00.000Z",
    }


def test_what_could_not_be_posted_is_posted_next_time(receiver: WebhookReceiver, channel: Alertmanager) -> None:
    channel.send(message(notice(told())), 10)
    receiver.script(status(503))
    with pytest.raises(Retry):
        resend(channel, [])
    resend(channel, [])
    assert ends(receiver) == {VIDEO: "2027-01-15T08:00:00.000Z"}


def test_a_login_is_sent_and_no_error_shows_it(receiver: WebhookReceiver) -> None:
    channel = made(receiver, login="Bearer hunter2")
    channel.send(message(), 10)
    assert receiver.taken[0].headers["authorization"] == "Bearer hunter2"
    receiver.always(status(401))
    with pytest.raises(Broken, match=r"^401 unauthorized"):
        channel.send(message(), 10)
    with pytest.raises(Broken, match=r"^401 unauthorized$"):
        channel.check(10)


def test_a_check_finds_a_server_that_is_no_alertmanager(receiver: WebhookReceiver, channel: Alertmanager) -> None:
    channel.check(10)
    assert receiver.taken[0].path == "/api/v2/status"
    receiver.always(status(404))
    with pytest.raises(Broken, match=r"^404 not found: is this an Alertmanager\?$"):
        channel.check(10)


def test_a_channel_that_fails_between_two_messages_is_shown_as_failing(
    tmp_path: Path, receiver: WebhookReceiver
) -> None:
    channel = made(receiver)
    with opened(tmp_path, channel) as scene:

        def becomes(state: str, problem: str | None) -> None:
            until(lambda: (shown := scene.of(ChannelsChanged)) and shown[-1].channels[0].state == state, state)
            assert scene.of(ChannelsChanged)[-1].channels[0].problem == problem

        resend(channel, ())
        becomes("ok", None)
        receiver.script(status(503))
        with pytest.raises(Retry):
            resend(channel, ())
        becomes("retrying", "the open alerts cannot be posted again: 503 service unavailable")
        resend(channel, ())
        becomes("ok", None)


def test_the_open_alerts_are_posted_again_and_again_and_a_failure_is_logged_once(
    receiver: WebhookReceiver, channel: Alertmanager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="trainmon.alerting")
    resender = Resender(channel, lambda: [told()], every=0.05)
    receiver.script(status(503), status(503))
    resender.start()
    until(lambda: len(receiver.taken) >= 2, "they are posted")
    resender.stop()
    assert caplog.messages == [
        "channel am: the open alerts cannot be posted again: 503 service unavailable",
        "channel am: the open alerts are posted again",
    ]


def test_the_open_alerts_are_posted_a_last_time_at_the_end(receiver: WebhookReceiver, channel: Alertmanager) -> None:
    alerts: list[Alert] = []
    resender = Resender(channel, lambda: alerts, every=600.0)
    resender.start()
    alerts.append(told())
    resender.stop()
    until(lambda: receiver.taken, "they are posted")
    assert list(ends(receiver)) == [VIDEO]
