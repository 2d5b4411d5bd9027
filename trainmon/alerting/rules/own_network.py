"""Whether this machine has lost its own network: several hosts at once, and nothing else answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmon.lib import Instant, Seconds
from trainmon.model import Source, State

LOST_TOGETHER: Seconds = 10.0
"""Hosts that are lost within this time share a cause: the network of this machine, if no host is kept."""


def last_answer(sources: Iterable[Source]) -> Instant | None:
    """When one of them answered last."""
    return max((source.answered_at for source in sources if source.answered_at is not None), default=None)


def lost_together(state: State) -> Sequence[Source]:
    """The hosts that were lost last, if there are several and nothing has answered since. A host is lost at some time
    between its last answer and the next one that was due."""
    hosts = [one for one in state.sources.values() if one.kind == "node" and one.via is None and one.answered_at]
    at = last_answer(hosts)
    if at is None or any(one.health == "ok" for one in hosts):
        return ()
    lost = [one for one in hosts if at - (one.answered_at or 0.0) - one.period <= LOST_TOGETHER and one.health != "off"]
    until = at + LOST_TOGETHER + max((one.period for one in lost), default=0.0)
    has_link = any((one.answered_at or 0.0) > until for one in state.sources.values())
    return lost if len(lost) > 1 and not has_link else ()
