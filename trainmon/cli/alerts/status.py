"""trainmon-tui status: the monitor, its sources and channels, and open alerts, read from the ledger only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from trainmon.cli.terminal import print_json, print_lines, table
from trainmon.engine import snapshot
from trainmon.engine.snapshot import is_active, worst_first
from trainmon.ledger.lease import SourceNote
from trainmon.ledger.ledger import alerts_now
from trainmon.ledger.reader import AlertsNow
from trainmon.lib import Instant, Seconds, ago, clean, find_state_directory
from trainmon.model import Alert
from trainmon.runtime.logs import log_to_file

MAX_AGE: Seconds = 45.0
"""A running monitor evaluates every second, and records it every ten. The dashboard of another machine polls every ten
seconds, so it replaces a daemon that hangs within a minute."""

MAX_AGE_BY_CRON: Seconds = 15 * 60.0
"""A check of `--once` is current until two more are missing (`service cron`: every five minutes)."""

UNWRITTEN = "is the ledger's disk full or hanging? See the log of that program"

HEAD = ("ID", "SEVERITY", "PHASE", "AGE", "RULE", "SUMMARY", "DELIVERY")


def show_status(as_json: bool) -> int:
    """Print the status of the monitor and its alerts; the exit status."""
    log_to_file()
    now = time.time()
    found = alerts_now(find_state_directory(os.environ).path, now)
    if as_json:
        print_json(contract(found, now))
    else:
        print_lines(*lines(found, now))
    return code(found, now)


def code(found: AlertsNow, now: Instant) -> int:
    """The exit status. After `--once` pending alerts count, because it does not wait until they fire."""
    if found.leader is None or stale(found, now) is not None:
        return 3
    is_once = found.leader.note.program == "once"
    critical = [alert for alert in found.stored.alerts if alert.severity == "critical"]
    return 1 if any(is_active(alert) if is_once else alert.is_firing for alert in critical) else 0


def stale(found: AlertsNow, now: Instant) -> str | None:
    """Why the status is out of date, in a sentence; None when it is current."""
    leader = found.leader
    if leader is None and found.is_locked:
        return f"a monitor runs, but does not write its status: {UNWRITTEN}"
    if leader is None:
        return "no monitor has ever run with this ledger; try: trainmon-tui --alerts-only"
    if leader.note.last_tick_at is None:
        return None if leader.is_held else "the last monitor ended before its first check"
    age = now - leader.note.last_tick_at
    if not leader.is_held and leader.note.program != "once":
        return f"no monitor runs: {leader.note.program or 'the last one'} ended; its last check was {ago(age)} ago"
    if leader.is_held and age > MAX_AGE:
        return f"the last recorded check was {ago(age)} ago; the monitor hangs or cannot write: {UNWRITTEN}"
    limit = MAX_AGE_BY_CRON if leader.note.program == "once" else MAX_AGE
    return f"the last check was {ago(age)} ago" if age > limit else None


def contract(found: AlertsNow, now: Instant) -> dict[str, Any]:
    """The status as plain values, for --json. Null is not known; times are Unix seconds."""
    stored, leader = found.stored, found.leader
    note = leader.note if leader is not None else None
    return {
        "version": 1,
        "at": now,
        "duty": {
            "holder": leader.note.program if leader is not None and leader.is_held else "nobody",
            "pid": note.holder.pid if note is not None else None,
            "host": note.holder.host if note is not None else None,
            "started_at": note.started_at if note is not None else None,
            "last_tick_at": note.last_tick_at if note is not None else None,
            "words": stale(found, now) or (note.problem if note is not None else None),
        },
        "sources": [msgspec.to_builtins(source) for source in note.sources] if note is not None else [],
        "outbox": {name: getattr(found.outbox, name) for name in ("waiting", "oldest_at", "dead")},
        **snapshot.alert_status(stored.alerts, stored.silences, found.channels),
    }


# ---- for people ------------------------------------------------------------------------------------------------------


def lines(found: AlertsNow, now: Instant) -> Iterator[str]:
    """The status for people."""
    note = found.leader.note if found.leader is not None else None
    if note is None or found.leader is None:
        yield "a monitor runs" if found.is_locked else "no monitor runs"
    else:
        checked = f"last check {ago(now - note.last_tick_at)} ago" if note.last_tick_at is not None else "no check yet"
        since = f"running since {_clock(note.started_at)}" if found.leader.is_held else "ended"
        program = f"{note.program or 'trainmon-tui'} (pid {note.holder.pid} on {note.holder.host})"
        yield clean(f"{program}, {since}; {checked}")
    trouble = stale(found, now) or (note.problem if note is not None else None)
    if trouble:
        yield f"! {clean(trouble)}"
    if note is not None:
        yield clean(f"sources: {_sources(note.sources)}")
    for channel in found.channels:
        sent = f", sent {_clock(channel.sent_at)}" if channel.sent_at is not None else ""
        why = f": {channel.problem}" if channel.problem and channel.state != "ok" else ""
        state = "nothing sent yet" if channel.state == "unknown" else channel.state
        budget = f" ({channel.sent_in_day} of {channel.per_day} messages in 24h)" if channel.sent_in_day else ""
        yield clean(f"channel {channel.name} ({channel.type}) {state}{sent}{budget}{why}")
    outbox = found.outbox
    oldest = f", the oldest for {ago(now - outbox.oldest_at)}" if outbox.oldest_at is not None else ""
    queued = f"{outbox.waiting} queued{oldest}" if outbox.waiting else "no notification is queued"
    yield f"outbox: {queued}" + (f"; {outbox.dead} dropped in the last 24h" if outbox.waiting or outbox.dead else "")
    for silence in found.stored.silences:
        about = ", ".join(part for part in (silence.rule, silence.subject, silence.run, silence.node) if part)
        why = f": {silence.why}" if silence.why else ""
        yield clean(f"muted {silence.id}: {about or 'everything'} until {_clock(silence.until)} by {silence.by}{why}")
    alerts = [alert for alert in worst_first(found.stored.alerts) if alert.is_open]
    if alerts:
        yield from table(HEAD, [_cells(alert, ago(now - alert.since)) for alert in alerts])
    else:
        yield "no alert is open"


def _sources(sources: Sequence[SourceNote]) -> str:
    wrong = [source for source in sources if source.health in ("late", "down")]
    named = "; ".join(
        f"{source.name} {source.health}: "
        + (source.error or ("old data" if source.answered_at is not None else "no data yet"))
        for source in wrong[:5]
    )
    more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    counted = f"{len(sources) - len(wrong)} of {len(sources)} responding"
    return f"{counted}; {named}{more}" if wrong else counted


def _cells(alert: Alert, age: str) -> tuple[str, ...]:
    phase = f"{alert.phase}, {alert.data}" if alert.data != "ok" else alert.phase
    acknowledged = f" (acknowledged by {alert.acknowledged_by})" if alert.acknowledged_by else ""
    delivery = "; ".join(f"{made.channel} {made.state} {_clock(made.at)}" for made in alert.delivery)
    return alert.id, alert.severity, phase + acknowledged, age, alert.rule, alert.summary, delivery


def _clock(at: Instant | None) -> str:
    if at is None:
        return "?"
    is_recent = abs(time.time() - at) < 20 * 3_600
    return time.strftime("%H:%M:%S" if is_recent else "%Y-%m-%d %H:%M", time.localtime(at))
