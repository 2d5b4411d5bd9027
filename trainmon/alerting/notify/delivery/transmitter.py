"""Renders a batch of notifications as one message and hands it to the sender of its channel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from trainmon.alerting.notify.base import Attachment, Broken, Message, Retry, Sender, Sent
from trainmon.alerting.notify.delivery.batch import MessageBatch
from trainmon.alerting.notify.delivery.journal import Journal
from trainmon.alerting.notify.message import printable, summary
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import SEVERITIES, Alert, Delivered, Notice

log = logging.getLogger(__name__)

SEND_TIMEOUT: Seconds = 30.0
LONGEST_TIMEOUT: Seconds = 110.0
"""A receiver that answers late may have accepted the message. Each retry sends a copy, so the next try waits longer."""

Render = Callable[[Sequence[Notice], Instant], Message]
Attach = Callable[[tuple[Notice, ...]], tuple[Attachment, ...]]


class NotLeader(Exception):
    """Another program leads now and sends what waits."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the workers of all channels share."""

    clock: Clock
    journal: Journal
    submit: Callable[[Delivered], None]
    """Reports to the engine."""
    is_leader: Callable[[], bool]
    """Whether this program may send now; answers at once."""
    alerts: Callable[[], Mapping[str, Alert] | None]
    """All alerts as they are now; None while that is not known."""
    wake: Callable[[], None]
    """Wakes the notification service."""
    patience: Seconds
    """How long a message waits for the ledger."""
    timeout: Seconds
    render: Render
    attach: Attach | None
    rng: Random


class Transmitter:
    """Sends the messages of one channel, on the thread of its worker."""

    def __init__(self, sender: Sender, context: WorkerContext) -> None:
        self._name = sender.health.name
        self._sender = sender
        self._context = context
        self._timeout = context.timeout

    def send(self, batch: MessageBatch) -> Sent:
        """Send it and return the answer of the receiver.

        Raises:
            Retry, Broken: as the sender does.
            NotLeader: another program leads now.
        """
        context, now = self._context, self._context.clock.now()
        notices = tuple(notification.notice for notification in batch.notifications)
        try:
            if batch.is_summary:
                message = summary(self._name, batch.notifications, context.alerts(), now)
            else:
                message = context.render(notices, now)
        except Exception:
            log.exception("a message could not be rendered: only the summaries are sent")
            message = in_short(notices, now)
        message = replace(message, is_brief=batch.is_brief)
        if context.attach is not None and not batch.is_summary and not batch.is_brief:
            try:
                message = replace(message, attachments=(*message.attachments, *context.attach(message.notices)))
            except Exception:  # a message without a picture is better than none
                log.exception("nothing could be attached")
        if not context.is_leader():  # last: this program may have been stopped at any point before
            raise NotLeader
        began = context.clock.monotonic()
        timeout, self._timeout = self._timeout, context.timeout
        try:
            return self._sender.send(message, timeout)
        except (Retry, Broken):
            if context.clock.monotonic() - began >= 0.9 * timeout:
                self._timeout = min(2 * timeout, max(context.timeout, LONGEST_TIMEOUT))
            raise
        except Exception as error:
            self._timeout = timeout
            log.exception("the channel %s crashed", self._name)
            raise Retry(f"it crashed here: {type(error).__name__}") from error


def in_short(notices: Sequence[Notice], now: Instant) -> Message:
    """A message of the summaries alone, which cannot fail."""
    lines = [printable(alert.summary) for notice in notices for alert in notice.alerts]
    lines += [printable(notice.title) for notice in notices if notice.title]
    severity = min((notice.severity for notice in notices), key=SEVERITIES.index)
    return Message(
        key=notices[0].key,
        severity=severity,
        title=f"{severity}: {lines[0] if len(lines) == 1 else f'{len(lines)} alerts'}",
        body="\n".join(lines)[:4_000],
        notices=tuple(notices),
        at=now,
    )
