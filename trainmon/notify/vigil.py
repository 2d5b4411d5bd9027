"""The program on duty is stopped, or hangs, and holds the duty all the same: the one that stands by tells so, once."""

from __future__ import annotations

from trainmon.clock import Instant, Seconds
from trainmon.ledger.duty import DutyNote
from trainmon.model_alerts import Notice
from trainmon.rules.base import ago

SILENT: Seconds = 300.0
"""A program on duty writes every 10 s; a disk that hangs, or a busy machine, is waited for longer."""
GAP: Seconds = 10.0
"""Between two looks no more than this counts: of the time in which we were stopped ourselves nothing is known."""


class Vigil:
    """It belongs to the office's thread. Time here is the monotonic clock's: a clock that is set tells of nobody."""

    def __init__(self) -> None:
        self._seen: tuple[str, Instant | None] | None = None
        self._looked: Seconds | None = None
        self._silent: Seconds = 0.0
        self._has_told = False

    def look(self, note: DutyNote | None, mono: Seconds, now: Instant, channels: tuple[str, ...]) -> Notice | None:
        """What is to be told of it, if anything."""
        seen = (note.holder.name, note.last_tick_at) if note is not None else None
        gap = min(mono - self._looked, GAP) if self._looked is not None else 0.0
        self._looked = mono
        if seen != self._seen:
            was_told, self._has_told = self._has_told, False
            self._seen, self._silent = seen, 0.0
            return _goes_on(note, now, channels) if was_told else None
        self._silent += gap
        if self._silent < SILENT or self._has_told:
            return None
        self._has_told = True
        return _gives_no_sign(note, now, channels, self._silent)


def _gives_no_sign(note: DutyNote | None, now: Instant, channels: tuple[str, ...], silent: Seconds) -> Notice:
    who, pid = _who(note)
    return Notice(
        key=f"duty-silent/{note.holder.name if note else 'unknown'}/{now:.0f}",
        kind="direct",
        reason="the program on duty gives no sign of life",
        severity="critical",
        at=now,
        channels=channels,
        title="Alerts may be told to nobody",
        lines=(
            f"{who} has the duty of telling people, and has given no sign of going through its rules for "
            f"{ago(silent)}: it is stopped, hangs, or cannot write its ledger.",
            "It keeps the duty for as long as it lives; this program stands by, and takes over when that one ends.",
            f"What to do, on its machine: `kill -CONT {pid}` if somebody stopped it (Ctrl-Z, a debugger); else end it "
            f"with `kill {pid}`, or `kill -9 {pid}`, and start it again.",
        ),
    )


def _goes_on(note: DutyNote | None, now: Instant, channels: tuple[str, ...]) -> Notice:
    who, _ = _who(note)
    return Notice(
        key=f"duty-silent/{note.holder.name if note else 'unknown'}/{now:.0f}/over",
        kind="direct",
        reason="the program on duty gives signs of life again",
        severity="info",
        at=now,
        channels=channels,
        title="Alerts are told again",
        lines=(f"{who} goes through its rules, and tells people.",),
    )


def _who(note: DutyNote | None) -> tuple[str, str]:
    if note is None:
        return "Another program", "PID"
    return f"{note.program or 'A program'} (pid {note.holder.pid} on {note.holder.host})", str(note.holder.pid)
