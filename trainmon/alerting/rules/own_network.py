"""Whether this machine has lost its own network, or its VPN: several hosts at once, and it keeps none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmon.lib import Instant, Seconds
from trainmon.model import LATE_AFTER, Source, State

LOST_TOGETHER: Seconds = 10.0
"""Hosts that are lost within this time share a cause: the network of this machine, if no host is kept."""


def last_answer(sources: Iterable[Source]) -> Instant | None:
    """When one of them answered last."""
    return max((source.answered_at for source in sources if source.answered_at is not None), default=None)


def lost_together(state: State) -> Sequence[Source]:
    """The hosts that were lost last, if there are several and none is kept. A host is lost between its last answer and
    the next one that was due. W&B and other services may still answer: they need no VPN."""
    hosts = [one for one in state.sources.values() if one.kind == "node" and one.via is None and one.answered_at]
    at = last_answer(hosts)
    if at is None or any(one.health == "ok" for one in hosts):
        return ()
    lost = [one for one in hosts if at - (one.answered_at or 0.0) - one.period <= LOST_TOGETHER and one.health != "off"]
    return lost if len(lost) > 1 else ()


def was_watched(state: State, at: Instant) -> bool:
    """Whether a daemon of another machine watched then."""
    daemons = (one for one in state.sources.values() if one.kind == "daemon" and one.answered_at is not None)
    return any(at - (one.answered_at or 0.0) <= LATE_AFTER * one.period for one in daemons)
