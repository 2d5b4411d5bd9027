"""Services as apprise speaks to them, with a receiver on loopback in their place: what their answers mean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from apprise.plugins import discord, pagerduty, pushover, slack, twilio

from tests.lab.receiver import Answer, status
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.alerting.notify.channels.apprise.inside import Inside
from tests.trainmon.alerting.notify.samples import NOW, alert, beat, message, notice, over
from trainmon.alerting.notify.message import Attachment, Broken, Retry

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise imports imghdr

SLACK = "slack://xoxb-1234567890-hunter2hunter2hunter2/#ops"
DISCORD = "discord://123456789012345678/hunter2hunter2hunter2"
PAGERDUTY = "pagerduty://hunter2hunter2hunter2hunter2@apihunter2"
PUSHOVER = "pover://uhunter2hunter2hunter2hunter2u@ahunter2hunter2hunter2hunter2a"
TWILIO = f"twilio://AC{'0' * 32}:{'abcd' * 8}@15550001111/15550002222"


def service(url: str, receiver: WebhookReceiver) -> Inside:
    """These services are on this machine."""
    here = f"http://127.0.0.1:{receiver.port}"
    slack.NotifySlack.api_url = here + "/{}"
    discord.NotifyDiscord.notify_url = pushover.NotifyPushover.notify_url = here
    pagerduty.PAGERDUTY_API_LOOKUP = dict.fromkeys(pagerduty.PAGERDUTY_API_LOOKUP, here)
    twilio.NotifyTwilio.notify_sms_url = here + "/{sid}"
    return Inside(url)


@pytest.mark.parametrize(
    ("url", "answer", "error"),
    [
        (SLACK, Answer("status", 200, b'{"ok": false, "error": "channel_not_found"}'), Broken),
        (SLACK, Answer("status", 200, b'{"ok":false,"error":"ratelimited"}'), Retry),
        (SLACK, status(503), Retry),
        (DISCORD, status(404, {"message": "Unknown Webhook", "code": 10015}), Broken),
        (DISCORD, status(500), Retry),
        (PAGERDUTY, status(400, {"status": "invalid event"}), Broken),
        (PAGERDUTY, status(429), Retry),
        (PUSHOVER, status(400, {"token": "invalid", "status": 0}), Broken),
        (PUSHOVER, status(429), Retry),
        (TWILIO, status(401, {"code": 20003, "message": "Authenticate", "status": 401}), Broken),
        (TWILIO, status(400, {"code": 21211, "message": "Invalid To", "status": 400}), Broken),
        (TWILIO, status(429, {"code": 20429, "message": "Too Many Requests", "status": 429}), Retry),
        (TWILIO, status(400, {"code": 63016, "message": "outside the window"}), Broken),
    ],
)
def test_what_a_service_answers_is_for_now_or_for_good(url: str, answer: Answer, error: Any) -> None:
    with WebhookReceiver.start() as receiver:
        receiver.always(answer)
        with pytest.raises(error) as caught:
            service(url, receiver).send(message(), 10)
        assert receiver.requests, "it was asked"
    text = caught.value.message
    assert not [secret for secret in ("hunter2", "abcdabcd", "0000", "1550002222") if secret in text], text


def test_each_alert_of_a_message_is_an_incident_that_opens_and_ends_by_itself() -> None:
    gpus = [alert(id=f"g{number}", rule="gpu-hot", subject=f"gpu:gpu-001/{number}") for number in range(3)]
    ended = msgspec.structs.replace(gpus[0], phase="resolved", resolved_at=NOW, ended="over")
    both = msgspec.structs.replace(gpus[1], phase="resolved", resolved_at=NOW, ended="over")
    with WebhookReceiver.start() as receiver:
        chan = service(PAGERDUTY, receiver)
        chan.send(message(notice(*gpus)), 10)
        chan.send(message(notice(ended, both, kind="resolve", reason="over")), 10)
        found = [(one["event_action"], one["dedup_key"]) for one in receiver.messages]
    opened, closed = found[:3], found[3:]
    assert [action for action, _ in opened] == ["trigger"] * 3
    assert len({key for _, key in opened}) == 3
    assert closed == [("resolve", key) for _, key in opened[:2]]


def test_a_service_that_takes_no_files_gets_the_message_without() -> None:
    files = (Attachment(name="loss.png", media_type="image/png", data=b"\x89PNG"),)
    with WebhookReceiver.start() as receiver:
        for url in (PAGERDUTY, TWILIO):
            service(url, receiver).send(msgspec.structs.replace(message(), attachments=files), 10)
        assert len(receiver.requests) == 2
        assert not any(b"PNG" in request.body for request in receiver.requests)


def test_a_picture_that_does_not_get_through_does_not_make_the_message_come_again_and_again() -> None:
    files = (Attachment(name="loss.png", media_type="image/png", data=b"\x89PNG"),)
    with WebhookReceiver.start() as receiver:
        receiver.script(Answer("status", 204), status(502), Answer("status", 204))
        service(DISCORD, receiver).send(msgspec.structs.replace(message(), attachments=files), 10)
        assert len(receiver.requests) == 3


def test_a_pager_that_shows_a_thousand_characters_shows_what_to_do() -> None:
    long = alert(evidence=tuple(f"Traceback {number} " + "x" * 400 for number in range(10)))
    with WebhookReceiver.start() as receiver:
        service(PAGERDUTY, receiver).send(message(notice(long)), 10)
        summary = receiver.messages[0]["payload"]["summary"]
    assert summary.startswith("CODE RED video-2b: run-dead")
    assert "→ trainmon-tui requeue video-2b" in summary
    assert "acknowledge: trainmon-tui ack" in summary


def test_a_heartbeat_and_a_resolved_alert_are_sent() -> None:
    with WebhookReceiver.start() as receiver:
        service(PAGERDUTY, receiver).send(message(beat()), 10)
        service(PAGERDUTY, receiver).send(message(over(alert())), 10)
        assert [one["event_action"] for one in receiver.messages] == ["trigger", "resolve"]
