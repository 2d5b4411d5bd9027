"""What a channel is: it takes one message and says what came of it. Channels wait; they decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from trainmon.lib import Instant, Seconds, TrainmonError
from trainmon.model import Channel as Health
from trainmon.model import Notice, Severity


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file that goes with a message."""

    name: str
    media_type: str
    data: bytes = b""
    draw: Callable[[Seconds], bytes] | None = None
    """Makes it within so many seconds, where that takes a while: a message that can go before its files does."""

    def read(self, within: Seconds) -> bytes:
        """What is in it; nothing where it could not be made."""
        return self.data if self.draw is None else self.draw(within)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A notice (or several, after an outage) in words, for any channel."""

    key: str
    severity: Severity
    title: str
    body: str
    shorter: tuple[str, ...] = ()
    """The same in fewer and fewer words: less evidence, fewer alerts with all they have; never without what to do."""
    notices: tuple[Notice, ...]
    """What it tells of: channels with a form of their own (webhook, command) build it from these."""
    at: Instant
    attachments: tuple[Attachment, ...] = ()
    acknowledge: tuple[tuple[str, str], ...] = ()
    """The id and the token of each alert that one button may acknowledge: eight GPUs of a node are one message."""
    link: str | None = None


class Sent(msgspec.Struct, frozen=True):
    """The channel took it. `words`: what it said, such as an id; never a secret."""

    words: str = ""


class Retry(TrainmonError):
    """Not now: no network, 5xx, 429, a time-out. `after`: when the receiver said to come back."""

    def __init__(self, words: str, after: Seconds | None = None) -> None:
        super().__init__(words)
        self.after = after


class Broken(TrainmonError):
    """Not this way at all: the address, the token or the topic is refused. A person must mend it."""


class Sender(Protocol):
    """One configured channel. It is used by one thread."""

    @property
    def health(self) -> Health:
        """Its name, type, masked target, least severity and note: what is known before anything was sent."""

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Hand it over, within `timeout` whatever hangs. Raises Retry or Broken, and nothing else."""

    def close(self) -> None:
        """Let go of what it holds."""
