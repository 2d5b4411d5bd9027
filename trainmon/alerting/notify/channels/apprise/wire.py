"""What we and apprise's child say to each other: one question on its standard input, one answer on its output."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.lib import Seconds

Outcome = Literal["sent", "retry", "broken"]


class Incident(msgspec.Struct, frozen=True):
    """One alert, for a service where each is opened and closed by itself."""

    key: str
    """The same in every message of it: of PagerDuty its dedup key."""
    is_over: bool
    title: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Send this; or, with no body, say whether there is such a service."""

    url: str
    body: str | None = None
    shorter: tuple[str, ...] = ()
    """The same in fewer and fewer words, for a service that takes no more."""
    title: str = ""
    tone: Literal["info", "success", "warning", "failure"] = "info"
    files: tuple[str, ...] = ()
    """Their paths."""
    key: str = ""
    """What makes two copies of it one: of mail its Message-ID."""
    incidents: tuple[Incident, ...] = ()
    """What it is about, where a service keeps incidents."""
    within: Seconds = 20.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `words` holds nothing of the address."""

    outcome: Outcome
    words: str = ""
    service: str = ""
    """What apprise calls it: `Slack`."""
    recipients: int = 1
    """How many the address names."""
