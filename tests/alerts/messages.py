"""What reached the phone, and waiting for it."""

from __future__ import annotations

from tests.alerts.daemon import PATIENCE
from tests.lab.daemons import until
from tests.lab.ntfy_server import Message, NtfyServer

TOPIC = "a-topic-of-chance-29b5ec25"


def received(ntfy: NtfyServer, *words: str) -> list[Message]:
    """The messages whose title has all these words; a picture that follows one is none of its own."""
    return [
        message
        for message in ntfy.of(TOPIC)
        if all(word in message.title for word in words) and not message.filename.endswith(".png")
    ]


def titles(ntfy: NtfyServer) -> list[str]:
    return [message.title for message in received(ntfy)]


def until_told(ntfy: NtfyServer, *words: str, count: int = 1) -> Message:
    """Wait for so many of them; the newest."""
    try:
        until(lambda: len(received(ntfy, *words)) >= count, f"{count} titled {words}", PATIENCE)
    except AssertionError as error:
        error.add_note(f"these came: {titles(ntfy)}")
        raise
    return received(ntfy, *words)[-1]
