"""The channel webhook: Alertmanager's payload, version 4, and what its receivers answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.receiver import CUT, DIE, HANG, status
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.alerting.notify.samples import NOW, TOKEN, alert, beat, message, notice, over
from trainmon.alerting.notify.channels.webhook import Webhook, payload
from trainmon.alerting.notify.message import Broken, Retry
from trainmon.model import Channel

PAYLOAD = {
    "version": "4",
    "groupKey": "run:video-2b",
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "hook",
    "groupLabels": {"group": "run:video-2b"},
    "commonLabels": {
        "alertname": "run-dead", "severity": "critical", "subject": "run:video-2b", "run": "video-2b",
    },
    "commonAnnotations": {
        "summary": "no process of video-2b is left on 4 nodes; its last step was 12,345, 31m ago",
        "description": "step 12344 loss 2.31\nstep 12345 loss 2.30",
        "advice": "trainmon-tui requeue video-2b starts it again",
        "reason": "fired",
        "id": "k3v9x2ab",
    },
    "externalURL": "",
    "notification_reason": "first notification",
    "alerts": [
        {
            "status": "firing",
            "labels": {
                "alertname": "run-dead", "severity": "critical", "subject": "run:video-2b", "run": "video-2b",
            },
            "annotations": {
                "summary": "no process of video-2b is left on 4 nodes; its last step was 12,345, 31m ago",
                "description": "step 12344 loss 2.31\nstep 12345 loss 2.30",
                "advice": "trainmon-tui requeue video-2b starts it again",
                "reason": "fired",
                "id": "k3v9x2ab",
            },
            "startsAt": "2027-01-15T07:29:00.000Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "",
            "fingerprint": "16f3b0f7b7c2f3f0",
        }
    ],
}  # fmt: skip


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver.start() as running:
        yield running


def hook(receiver: WebhookReceiver, **headers: str) -> Webhook:
    return Webhook(Channel(name="hook", type="webhook"), url=f"{receiver.url}/hunter2", headers=headers)


def test_the_payload_is_alertmanagers(receiver: WebhookReceiver) -> None:
    hook(receiver, Authorization="Bearer abc").send(message(), 10)
    (request,) = receiver.taken
    result = request.json
    fingerprint = result["alerts"][0].pop("fingerprint")
    assert re.fullmatch(r"[0-9a-f]{16}", fingerprint)
    wanted: Any = {**PAYLOAD, "alerts": [{k: v for k, v in PAYLOAD["alerts"][0].items() if k != "fingerprint"}]}
    assert result == wanted
    assert list(result) == list(PAYLOAD)
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Bearer abc"


def test_a_second_copy_can_be_recognised(receiver: WebhookReceiver) -> None:
    receiver.script(DIE)
    with pytest.raises(Retry):
        hook(receiver).send(message(), 10)
    hook(receiver).send(message(), 10)
    assert receiver.keys == ["k3v9x2ab-fire", "k3v9x2ab-fire"]
    assert receiver.messages[0] == receiver.messages[1]


def test_what_is_over_has_an_end_and_the_same_fingerprint(receiver: WebhookReceiver) -> None:
    fired, resolved = payload(message(), "hook"), payload(message(over(alert(), NOW + 60)), "hook")
    assert (resolved["status"], resolved["notification_reason"]) == ("resolved", "all alerts resolved")
    assert resolved["alerts"][0]["endsAt"] == "2027-01-15T08:01:00.000Z"
    assert resolved["alerts"][0]["fingerprint"] == fired["alerts"][0]["fingerprint"]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (message(notice(kind="repeat")), "repeat interval elapsed"),
        (message(notice(kind="worse")), "new alerts added"),
        (
            message(notice(alert(id="b", subject="node:b"), at=NOW - 1, key="b"), over(alert())),
            "some alerts resolved",
        ),
    ],
    ids=["repeat", "worse", "some-resolved"],
)
def test_the_reason_is_in_alertmanagers_words(result: Any, reason: str) -> None:
    assert payload(result, "hook")["notification_reason"] == reason


def test_what_all_alerts_share_is_reported_once() -> None:
    two = [alert(id=f"a{i}", rule="gpu-hot", subject=f"gpu:n1/{i}", node="n1", summary=f"GPU {i}") for i in range(2)]
    result = payload(message(notice(*two)), "hook")
    assert result["commonLabels"] == {"alertname": "gpu-hot", "severity": "critical", "run": "video-2b", "node": "n1"}
    assert "summary" not in result["commonAnnotations"]
    assert len({one["fingerprint"] for one in result["alerts"]}) == 2


def test_a_sign_of_life_is_an_alert_that_is_no_fault() -> None:
    result = payload(message(beat()), "hook")
    (one,) = result["alerts"]
    assert one["labels"] == {"alertname": "trainmon-heartbeat", "severity": "info"}
    assert one["annotations"]["summary"] == "video-2b alive: step 12,345"
    assert result["groupKey"] == payload(message(beat(key="heartbeat-2")), "hook")["groupKey"] == "trainmon-heartbeat"
    both = message(notice(alert(id="a"), key="a", group="a"), notice(alert(id="b"), key="b", group="b"))
    assert payload(both, "hook")["groupKey"] == both.key


def test_very_many_are_truncated_and_counted() -> None:
    result = payload(message(notice(*[alert(id=f"a{i}", subject=f"node:n{i}") for i in range(1_200)])), "hook")
    assert (len(result["alerts"]), result["truncatedAlerts"]) == (1_000, 200)


def test_no_token_and_no_secret_is_in_it(receiver: WebhookReceiver) -> None:
    hook(receiver).send(message(notice(alert(evidence=("--api-key hunter2hunter2",)))), 10)
    text = receiver.taken[0].body.decode()
    assert "--api-key ***" in text
    assert TOKEN not in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (status(500, {"error": "no"}), Retry, '500 internal server error: {"error": "no"}'),
        (status(429, retry_after="9"), Retry, "429 too many requests"),
        (status(404), Broken, "404 not found"),
        (status(401), Broken, "401 unauthorized"),
        (CUT, Retry, "the connection was closed before an answer"),
        (DIE, Retry, "the connection was closed before an answer"),
    ],
)
def test_what_comes_again_and_what_does_not(receiver: WebhookReceiver, answer: Any, error: Any, words: str) -> None:
    receiver.script(answer)
    with pytest.raises(error) as caught:
        hook(receiver).send(message(), 10)
    assert caught.value.message == words
    assert "hunter2" not in str(caught.value)


def test_a_receiver_that_hangs_is_left_in_time(receiver: WebhookReceiver) -> None:
    receiver.always(HANG)
    with pytest.raises(Retry, match="no answer within"):
        hook(receiver).send(message(), 0.3)
