"""The interface of a channel: it sends one message and returns the result. Channels wait; they decide nothing."""

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
    """Makes the contents within a number of seconds. A channel that can sends the message before its files."""

    def read(self, within: Seconds) -> bytes:
        """The contents; empty when they could not be made."""
        return self.data if self.draw is None else self.draw(within)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One notice, or several after an outage, as text for any channel."""

    key: str
    severity: Severity
    title: str
    body: str
    shorter: tuple[str, ...] = ()
    """Shorter and shorter forms of the body: less evidence and fewer alerts in full, but always the advice."""
    notices: tuple[Notice, ...]
    """Channels with their own format (webhook, command) build it from these."""
    at: Instant
    attachments: tuple[Attachment, ...] = ()
    acknowledge: tuple[tuple[str, str], ...] = ()
    """The ID and the token of each alert that one button may acknowledge: eight GPUs of a node are one message."""
    threads: tuple[str, ...] = ()
    """For a channel with threads: the key of the notice to which this message is a follow-up; those of the notices that
    are one message, which a follow-up to any of them names."""
    link: str | None = None
    is_brief: bool = False
    """Whether its channel has few messages left: it goes without files, which count as messages."""


class Sent(msgspec.Struct, frozen=True):
    """The channel accepted the message. `words`: its response, such as an ID; never a secret."""

    answer: str = ""
    messages: int = 1
    """How many messages the receiver counts: a file may be one of its own."""


class Retry(TrainmonError):
    """A temporary failure: no network, 5xx, 429, a timeout. `after`: the receiver's Retry-After."""

    def __init__(self, message: str, after: Seconds | None = None) -> None:
        super().__init__(message)
        self.after = after


class Broken(TrainmonError):
    """A permanent failure: the address, the token or the topic is refused. A person must fix it."""


class Sender(Protocol):
    """One configured channel. One thread at a time uses it."""

    @property
    def health(self) -> Health:
        """Its name, type, masked target, lowest severity and note: what is known before the first message. Its state,
        if it finds out without messages whether it works."""

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Send the message within `timeout`, whatever hangs.

        Raises: Retry, Broken: and nothing else.
        """
