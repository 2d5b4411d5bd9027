"""Whether the leader makes progress, and the notice that a standby has taken over from it."""

from __future__ import annotations

from trainmon.alerting.rules import ago
from trainmon.ledger.lease import LeaderNote
from trainmon.lib import Instant, Seconds
from trainmon.model import Notice

LEASE: Seconds = 40.0
"""A leader renews its lease each second. A busy machine, or a disk that hangs, delays it by seconds; with 2 s until the
standby looks, and some for the ledger, people are notified again within a minute."""
GAP: Seconds = 10.0
"""At most this much counts between two looks: we may have been stopped ourselves."""


class LeaderWatch:
    """Belongs to the thread of the notification service. All times are those of our own monotonic clock."""

    def __init__(self) -> None:
        self.sign: object = None
        self._looked: Seconds | None = None
        self._silent: Seconds = 0.0

    def look(self, sign: object, mono: Seconds) -> Seconds:
        """For how long the leader has shown the same sign."""
        if self._looked is None or sign != self.sign:
            self._silent = 0.0
        else:
            self._silent += min(mono - self._looked, GAP)
        self.sign, self._looked = sign, mono
        return self._silent


def took_over(note: LeaderNote | None, silent: Seconds, now: Instant, channels: tuple[str, ...]) -> Notice:
    """Asks people to end or continue the program that hangs: until then there is no standby."""
    who, pid = "The leader", "PID"
    if note is not None:
        pid = str(note.holder.pid)
        who = f"{note.program or 'The leader'} (pid {pid} on {note.holder.host})"
    return Notice(
        key=f"took-over/{note.holder.name if note else 'unknown'}/{now:.0f}",
        kind="direct",
        reason="the leader gave no sign of life",
        severity="warning",
        at=now,
        channels=channels,
        title="A standby notifies: the leader hangs",
        lines=(
            f"{who} did not evaluate its rules for {ago(silent)}: it is stopped, or hangs. This program notifies from "
            "now on. If the other one continues it stands by.",
            f"What to do, on its machine: `kill -CONT {pid}` if somebody stopped it (Ctrl-Z, a debugger); else end it "
            f"with `kill {pid}`, or `kill -9 {pid}`, and start it again.",
        ),
    )
