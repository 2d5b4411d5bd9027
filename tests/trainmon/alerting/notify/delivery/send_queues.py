"""Send queues and what they give out."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.trainmon.alerting.notify.samples import alert, notice
from trainmon.alerting.notify.delivery.due import (
    MessageBatch,
    SendQueue,
)
from trainmon.model import Notice, Notification

DAY = 86_400.0


def notification(delivered: Notice, **facts: Any) -> Notification:
    return Notification(id=0, channel="phone", notice=delivered, made_at=delivered.at, **facts)


def about(name: str, **facts: Any) -> Notice:
    return notice(alert(id=name), key=f"{name}-fire", **facts)


def queue(*notices: Notice, at: float = 1_000.0) -> SendQueue:
    made = SendQueue(Random(7))
    for delivered in notices:
        made.add(notification(delivered), at)
    return made


def picked(made: SendQueue, at: float, **how: Any) -> list[str]:
    """The keys of what is told now; none, if nothing is."""
    return [one.notice.key for one in batch(made, at, **how).notifications]


def batch(made: SendQueue, at: float, **how: Any) -> MessageBatch:
    found = made.pick(at, **how)
    if not isinstance(found, MessageBatch):
        return MessageBatch(())
    return made.lease(found, at)


def tried(made: SendQueue, at: float, key: str) -> MessageBatch:
    """The message with this key; those before it fail."""
    found = batch(made, at)
    while key not in [one.notice.key for one in found.notifications]:
        assert found.queued, f"{key} does not go at {at}"
        made.failed(found, at, None)
        found = batch(made, at)
    return found
