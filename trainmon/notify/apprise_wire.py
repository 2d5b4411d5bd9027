"""What we and apprise's child say to each other: one question on its standard input, one answer on its output."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.clock import Seconds

Outcome = Literal["sent", "retry", "broken"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Send this; or, with no body, say whether there is such a service."""

    url: str
    body: str | None = None
    title: str = ""
    tone: Literal["info", "success", "warning", "failure"] = "info"
    files: tuple[str, ...] = ()
    """Their paths."""
    key: str = ""
    """What makes two copies of it one: of mail its Message-ID."""
    incident: str = ""
    """What it is about, where a service keeps incidents: of PagerDuty its dedup key."""
    is_over: bool = False
    within: Seconds = 20.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `words` holds nothing of the address."""

    outcome: Outcome
    words: str = ""
    service: str = ""
    """What apprise calls it: `Slack`."""
