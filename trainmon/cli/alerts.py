"""The commands about alerts: status; ack, mute, unmute, which go through the ledger to the running monitor; rules."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from trainmon.alerting.pipeline.routing import quiet_because
from trainmon.alerting.rules import RULES, Rule
from trainmon.cli.terminal import plain, print_json, print_lines, table
from trainmon.config import (
    OLD_NAMES,
    ValueType,
    did_you_mean,
    duration_text,
    load_settings,
    quoted,
    rules_of,
    value_type,
)
from trainmon.engine import snapshot
from trainmon.engine.snapshot import is_active, worst_first
from trainmon.ledger.lease import SourceNote
from trainmon.ledger.ledger import alerts_now, submit_request
from trainmon.ledger.reader import AlertsNow
from trainmon.lib import Instant, Seconds, ago, clean, field_descriptions, find_state_directory
from trainmon.model import Alert, AlertRequest, Silence
from trainmon.runtime.logs import log_to_file

# ---- status: which program sends, and the open alerts ----------------------------------------------------------------

MAX_AGE: Seconds = 45.0
"""A running monitor evaluates every second, and records it every ten. The dashboard of another machine polls every ten
seconds, so it replaces a daemon that hangs within a minute."""

MAX_AGE_BY_CRON: Seconds = 15 * 60.0
"""A check of `--once` is current until two more are missing (`service cron`: every five minutes)."""

UNWRITTEN = "is the ledger's disk full or hanging, or has a newer trainmon-tui migrated it? See the log of that program"


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
        return f"it does not write its status: {UNWRITTEN}"
    if leader is None:
        return "no daemon or dashboard has ever run with this ledger; try: trainmon-tui --alerts-only"
    if leader.note.last_tick_at is None:
        return None if leader.is_held else "the last daemon or dashboard ended before its first check"
    age = now - leader.note.last_tick_at
    if not leader.is_held and leader.note.program != "once":
        return f"not running: {leader.note.program or 'the last program'} ended; its last check was {ago(age)} ago"
    if leader.is_held and age > MAX_AGE:
        return f"the last recorded check was {ago(age)} ago; the program hangs or cannot write: {UNWRITTEN}"
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
        yield "a daemon or a dashboard runs" if found.is_locked else "no daemon or dashboard runs"
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
        yield from table(
            ("ID", "SEVERITY", "PHASE", "AGE", "RULE", "SUMMARY", "DELIVERY"),
            [_cells(alert, ago(now - alert.since)) for alert in alerts],
        )
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
    shown = delivery or quiet_because(alert) or ""
    return alert.id, alert.severity, phase + acknowledged, age, alert.rule, alert.summary, shown


def _clock(at: Instant | None) -> str:
    if at is None:
        return "?"
    return time.strftime("%H:%M:%S" if abs(time.time() - at) < 20 * 3_600 else "%Y-%m-%d %H:%M", time.localtime(at))


# ---- ack, mute, unmute and rules -------------------------------------------------------------------------------------

RESULT_TIMEOUT: Seconds = 5.0
"""The longest wait for the result of a request: a monitor reads them every second or two."""


def ack(alert: str, why: str, undo: bool, by: str | None, as_json: bool) -> int:
    """Acknowledge an alert, or undo that; the exit status."""
    found = find_alert(read().stored.alerts, alert)
    request = AlertRequest(
        verb="unack" if undo else "ack", at=time.time(), by=person(by), alert=found.id, why=why, via="command"
    )
    done = f"{'acknowledgement removed' if undo else 'acknowledged'}: {found.id} {found.rule} {found.subject}"
    return submit(request, as_json=as_json, done=done)


def mute(
    subject: str | None,
    rule: str | None,
    run: str | None,
    node: str | None,
    lasts: float,
    why: str,
    by: str | None,
    as_json: bool,
) -> int:
    """Mute what meets all given conditions, for `lasts` seconds; the exit status."""
    if not any((subject, rule, run, node)):
        raise click.UsageError("specify what to mute: SUBJECT, --rule, --run or --node")
    if rule is not None:
        check_name("rule", rule, [known.name for known in RULES], "rules")
    present = read()
    alert = next((alert for alert in present.stored.alerts if alert.is_open and alert.id == subject), None)
    if alert is not None:
        subject, rule = alert.subject, rule or alert.rule
    for note in unmatched(present, subject, node):
        click.echo(f"note: {note}", err=True)
    now = time.time()
    silence = Silence(
        id=secrets.token_hex(4), rule=rule, subject=subject, run=run, node=node, until=now + lasts, by=person(by),
        why=why, made_at=now,
    )  # fmt: skip
    about = " ".join(text for text in (rule, subject, run and f"run {run}", node and f"node {node}") if text)
    until = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(silence.until))
    request = AlertRequest(verb="mute", at=now, by=silence.by, silence=silence, why=why, via="command")
    return submit(
        request, as_json=as_json, done=f"muted until {until}: {about} (to undo: trainmon-tui unmute {silence.id})"
    )


def unmute(silence: str, by: str | None, as_json: bool) -> int:
    """Remove a mute; the exit status."""
    check_name("mute", silence, [known.id for known in read().stored.silences], "status")
    request = AlertRequest(verb="unmute", at=time.time(), by=person(by), alert=silence, via="command")
    return submit(request, as_json=as_json, done=f"unmuted: {silence}")


def check_name(noun: str, name: str, names: Sequence[str], listed_by: str) -> None:
    """Refuse a name that does not exist.

    Raises:
        click.UsageError: with the nearest name, or the command that lists all of them.
    """
    if name not in names:
        near = did_you_mean(name, names) or f"; `trainmon-tui {listed_by}` lists them"
        raise click.UsageError(f"no {noun} {quoted(name)}{near}")


def read() -> AlertsNow:
    """The alerts and silences in the ledger.

    Raises:
        LedgerStuck: when it cannot be read.
    """
    return alerts_now(find_state_directory(os.environ).path, time.time())


def find_alert(alerts: Sequence[Alert], word: str) -> Alert:
    """The open alert with this id, with an id that begins so, or the only one with this subject.

    Raises:
        click.UsageError: when there is none, or more than one.
    """
    is_open = [alert for alert in alerts if alert.is_open]
    found = [alert for alert in is_open if word == alert.id]
    found = found or [alert for alert in is_open if word == alert.subject or (alert.id.startswith(word) and word)]
    if len(found) > 1:
        listed = ", ".join(f"{alert.id} ({alert.rule})" for alert in found[:5])
        raise click.UsageError(f"{quoted(word)} matches several alerts: {listed}")
    if not found:
        check_name("open alert", word, [name for alert in is_open for name in (alert.id, alert.subject)], "status")
    return found[0]


def unmatched(present: AlertsNow, subject: str | None, node: str | None) -> Iterator[str]:
    """A sentence for each condition that matches nothing now: it may match later, or be a typing error."""
    subjects = [alert.subject for alert in present.stored.alerts if alert.is_open]
    if subject is not None and subject not in subjects:
        yield f"no open alert has the subject {quoted(subject)}{did_you_mean(subject, subjects)}"
    sources = present.leader.note.sources if present.leader is not None else ()
    nodes = [source.name.removeprefix("node:") for source in sources if source.kind == "node"]
    if node is not None and nodes and node not in nodes:
        yield f"no node {quoted(node)} is watched{did_you_mean(node, nodes)}"


def submit(request: AlertRequest, *, as_json: bool, done: str) -> int:
    """Write a request to the ledger, wait a moment for its result, and print it."""
    number = submit_request(find_state_directory(os.environ).path, request)
    until = time.monotonic() + RESULT_TIMEOUT
    now = read()
    while (
        now.stored.requests_until < number
        and now.leader is not None
        and now.leader.is_held
        and time.monotonic() < until
    ):
        time.sleep(0.1)
        now = read()
    is_done = now.stored.requests_until >= number
    if as_json:
        print_json(answer(request, number, is_done))
    else:
        click.echo(done if is_done else f"recorded, takes effect when a daemon or a dashboard runs: {done}")
    return 0


def answer(request: AlertRequest, number: int, is_done: bool) -> dict[str, Any]:
    """A request and its result as plain values."""
    silence = snapshot.plain(request.silence) if request.silence is not None else None
    return {
        "order": number, "verb": request.verb, "alert": request.alert, "silence": silence, "by": request.by,
        "at": request.at, "carried_out": is_done,
    }  # fmt: skip


def person(named: str | None = None) -> str:
    """The name of the person: the given one (a dashboard elsewhere passes its user), or the user of this command."""
    from trainmon.runtime.backend import who

    return clean(named or "", 64).strip() or who()


# ---- trainmon-tui rules ----------------------------------------------------------------------------------------------


def show_rules(rule: str | None, config: Path | None, as_json: bool) -> int:
    """Print all rules, or one; the exit status."""
    found = rules_of(load_settings(config, ())[0].rules)
    if rule is not None:
        check_name("rule", rule, [known.name for known in found], "rules")
        found = tuple(known for known in found if known.name == rule)
    if as_json:
        print_json([rule_row(one) for one in found])
        return 0
    text = "\n".join(one_rule(found[0]) if rule is not None else rule_lines(found))
    click.echo(plain(text) if sys.stdout.isatty() else text)
    return 0


def written(kind: ValueType, value: Any) -> str:
    """A value as the config accepts it; empty where there is none."""
    return "" if value in (None, (), {}) else kind.format(value)


def rule_row(rule: Rule) -> dict[str, Any]:
    """A rule as plain values: durations in seconds, shares from 0 to 1, sizes in bytes."""
    kind = type(rule)
    values, defaults = msgspec.to_builtins(rule), msgspec.to_builtins(kind())
    settings = {
        field.encode_name: {
            "value": values[field.encode_name],
            "default": defaults[field.encode_name],
            "meaning": field_descriptions(kind)[field.name],
        }
        for field in msgspec.structs.fields(kind)
    }
    return {
        "name": rule.name,
        "family": rule.family,
        "what": kind.what,
        "origin": rule.origin,
        "settings": settings | {old: settings[new] for old, new in OLD_NAMES.items() if new in settings},
    }


def rule_lines(rules: Sequence[Rule]) -> Iterator[str]:
    """A table for people."""
    rows = []
    for rule in rules:
        changed = ", ".join(f"{name} = {value}" for name, value, default, _ in _settings(rule) if value != default)
        for_, keep = map(duration_text, (rule.for_, rule.keep_firing_for)) if rule.enabled else ("off", "off")
        rows.append((rule.name, for_, keep, changed, rule.what))
    return table(("RULE", "FOR", "KEEP FIRING FOR", "CHANGED SETTINGS", "DESCRIPTION"), rows)


def one_rule(rule: Rule) -> Iterator[str]:
    """All of one rule."""
    yield f"{rule.name}: {rule.what}"
    yield f"reason for the defaults: {rule.origin}"
    yield from table(("SETTING", "VALUE", "DEFAULT", "MEANING"), list(_settings(rule)))


def _settings(rule: Rule) -> Iterator[tuple[str, str, str, str]]:
    """Each setting: its name, its value and its default as the config writes them, and its meaning."""
    kind = type(rule)
    for field in msgspec.structs.fields(kind):
        value, default = (written(value_type(field.type), getattr(one, field.name)) or "-" for one in (rule, kind()))
        yield field.encode_name, value, default, field_descriptions(kind)[field.name]
