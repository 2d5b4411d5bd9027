"""The interface of a channel; a notification as text: title, body, summary."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from trainmon.alerting.rules import TEST
from trainmon.lib import Instant, Seconds, TrainmonError, ago, at_text, clean, counted, scrub, shorten, shorten_lines
from trainmon.model import SEVERITIES, Alert, Notice, NoticeKind, Notification, Severity
from trainmon.model import Channel as Health

# ---- the interface of a channel --------------------------------------------------------------------------------------


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


# ---- renders notices as a message ------------------------------------------------------------------------------------

TITLE_CELLS = 120
LINE = 500
"""The most characters of one line: evidence may be a log line of any length."""
BODY_BYTES = 60_000
"""The limit of a body, for mail and files. `shorten_lines` cuts further what a phone shows."""
SHORT_BYTES = 900
"""A body up to this size has no shorter forms."""
ACKNOWLEDGED = 16
"""How many alerts one button acknowledges."""
THREADS = 50
"""How many notices a message names for mail programs: their headers are limited."""
LATE: Seconds = 120.0
"""A message that is sent this long after its event says so."""
MORE = "… shortened; trainmon-tui status shows all"

CODE_RED = frozenset({"run-dead", "run-hung", "run-stalled"})
"""A critical alert of these rules, about a run that ended or hangs, has the title CODE RED."""
PREFIXES: dict[NoticeKind, str] = {
    "repeat": "STILL ", "worse": "NOW ", "escalate": "UNACKNOWLEDGED ", "flapping": "FLAPPING ",
    "acknowledged": "ACKNOWLEDGED ",
}  # fmt: skip


class Detail(NamedTuple):
    """How detailed a body is."""

    full: int
    """How many alerts are shown in full. After an outage there may be thousands: the others get one line."""
    lines: int
    """How many of the others; the rest is counted."""
    evidence: int
    """How many lines of evidence, the newest."""
    width: int
    """How many characters of a line of evidence."""


DETAILS = (Detail(40, 400, 10, LINE), Detail(10, 20, 4, 200), Detail(3, 12, 2, 140), Detail(1, 6, 1, 100))
"""From everything to what an SMS or a pager shows."""


class Entry(NamedTuple):
    """One alert in its newest state, and the notices about it, oldest first."""

    alert: Alert
    notices: list[Notice]

    @property
    def is_over(self) -> bool:
        return self.alert.phase == "resolved" and not self.alert.event

    @property
    def is_follow_up(self) -> bool:
        """Whether people know the alert, and are notified of its cause only."""
        return all(notice.kind == "cause" for notice in self.notices)


def render(notices: Sequence[Notice], now: Instant) -> Message:
    """One message of these notices: each alert in its newest state, with the time of each notice."""
    notices = sorted(notices, key=lambda notice: notice.at)
    newest: dict[str, Entry] = {}
    for notice in notices:
        for alert in notice.alerts:
            newest[alert.id] = Entry(alert, newest[alert.id].notices if alert.id in newest else [])
            newest[alert.id].notices.append(notice)
    # What is open comes first, and of that the most severe.
    entries = sorted(newest.values(), key=lambda entry: (entry.is_over, SEVERITIES.index(entry.alert.severity)))
    plain = [notice for notice in notices if not notice.alerts]
    beats = [notice for notice in plain if notice.kind == "heartbeat"]
    plain = [notice for notice in plain if notice.kind != "heartbeat" or notice is beats[-1]]
    # A resolution is an information. A critical alert that is over before its first notice wakes nobody.
    severities = [notice.severity for notice in notices if notice.kind not in ("resolve", "acknowledged")]
    severity: Severity = min(severities, key=SEVERITIES.index, default="info")
    if entries and entries[0].is_over and severity == "critical":
        severity = "warning"
    keys = [notice.key for notice in notices]
    digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:24]
    open_alerts = [entry.alert for entry in entries if not entry.is_over and not entry.alert.event]
    tokens = [(one.id, one.token) for one in open_alerts if one.token and one.acknowledged_by is None]
    body = shorten_lines(_body(notices, entries, plain, DETAILS[0], now), BODY_BYTES, MORE)[0]
    is_follow_up = len(entries) == 1 and entries[0].is_follow_up
    is_long = len(body.encode()) > SHORT_BYTES
    return Message(
        key=keys[0] if len(keys) == 1 else f"several-{digest}",
        severity=severity,
        title=_title(entries, plain, notices, now),
        body=body,
        shorter=tuple(_body(notices, entries, plain, detail, now) for detail in DETAILS[1:]) if is_long else (),
        notices=tuple(notices),
        at=notices[-1].at,
        acknowledge=tuple(tokens[:ACKNOWLEDGED]),
        threads=(entries[0].alert.thread,) if is_follow_up else tuple(keys[:THREADS]) if len(keys) > 1 else (),
        link=next((notice.link for notice in notices if notice.link), None),
    )


def _body(
    notices: Sequence[Notice], entries: Sequence[Entry], plain: Sequence[Notice], detail: Detail, now: Instant
) -> str:
    """Problems come first: a locked phone shows only the first lines."""
    blocks = ["\n".join(map(printable, notice.lines)) for notice in notices if notice.alerts]
    full, others = entries[: detail.full], entries[detail.full :]
    blocks += [_block(entry, last, detail, now) for last, entry in zip([None, *full], full, strict=False)]
    lines = [
        f"{at_text(entry.notices[0].at)} {'resolved' if entry.is_over else entry.alert.severity}: "
        f"{printable(entry.alert.summary)}"
        for entry in others[: detail.lines]
    ]
    if others[detail.lines :]:
        lines.append(f"… and {counted(len(others) - detail.lines, 'more alert')}: trainmon-tui status")
    blocks.append("\n".join(lines))
    if more := sum(notice.more for notice in notices):
        blocks.append(f"and {counted(more, 'more alert')}: trainmon-tui status")
    for notice in plain:  # its ages are those of when it was written
        late = now - notice.at
        title = [printable(notice.title)] if len(notices) > 1 else []
        written = [f"written {at_text(notice.at)}, sent {ago(late)} late"] if late >= LATE else []
        blocks.append("\n".join([*title, *written, *map(printable, notice.lines)]))
    return "\n\n".join(filter(None, blocks))


def fitted(message: Message, limit: int, mark: str) -> tuple[str, bool]:
    """The longest form of the body in at most `limit` bytes, and whether it is the whole body."""
    for text in (message.body, *(f"{shorter}\n{mark}" for shorter in message.shorter)):
        if len(text.encode()) <= limit:
            return text, text is message.body
    return shorten_lines((message.body, *message.shorter)[-1], limit, mark)


def printable(text: str) -> str:
    """Untrusted text that may leave this machine: without secrets and control characters."""
    return clean(scrub(text[: 8 * LINE]), LINE)


def is_good_news(message: Message) -> bool:
    """Whether all its alerts are over. An alert that is no longer watched is not over."""
    return bool(message.notices) and all(
        notice.kind == "resolve" and all(_is_well(alert) for alert in notice.alerts) for notice in message.notices
    )


def _is_well(alert: Alert) -> bool:
    return alert.ended in (None, "", "over")


# ---- the title -------------------------------------------------------------------------------------------------------


def _title(entries: Sequence[Entry], plain: Sequence[Notice], notices: Sequence[Notice], now: Instant) -> str:
    late = f" [{ago(now - notices[0].at)} late]" if now - notices[0].at >= LATE else ""
    named = next((notice for notice in (*plain, *notices) if notice.title), None)
    if named is not None and (not entries or len(notices) == 1):
        label = "" if named.severity == "info" else f"{named.severity.upper()} "
        title, end = f"{label}{printable(named.title)}", late
    elif not entries:
        title, end = f"trainmon-tui: {notices[-1].kind}", late
    else:
        first, alert = entries[0], entries[0].alert
        more = len(entries) - 1 + len(plain) + sum(notice.more for notice in notices)
        is_red = alert.severity == "critical" and alert.rule in CODE_RED
        label = PREFIXES.get(first.notices[-1].kind, "") + ("CODE RED" if is_red else alert.severity.upper())
        if first.is_over and not first.is_follow_up:  # the title of the first message, which some channels sort by
            label = "RESOLVED" if _is_well(alert) else printable(alert.ended or "").upper()
            label = "FLAPPING" if first.notices[-1].kind == "flapping" else label
        title, end = f"{label} {name_of(alert)}", (f" and {more:,} more" if more else "") + late
    # How many more there are, and how late it is, is never cut.
    return shorten(title, TITLE_CELLS - len(end)) + end


def name_of(alert: Alert) -> str:
    """`video-2b: gpu-hot gpu-001/3`: the run, the rule and the subject."""
    if alert.rule == TEST:
        return "test of trainmon-tui: please acknowledge it"
    kind, _, name = alert.subject.partition(":")
    subject = "" if kind in ("run", "self") or not name else f" {name}"
    run = f"{alert.run}: " if alert.run else ""
    return printable(f"{run}{alert.rule}{subject}")


# ---- one alert -------------------------------------------------------------------------------------------------------


def _block(entry: Entry, last: Entry | None, detail: Detail, now: Instant) -> str:
    """One alert in full. If it is like the `last` (the next GPU of a node), only what differs."""
    alert = entry.alert
    like = last if last is not None and not entry.is_over and last.alert.rule == alert.rule else None
    known = {*_times(like, now)} if like is not None else set()
    first = [*alert.cause, alert.summary] if entry.is_follow_up else [alert.summary, *alert.cause]
    lines = [*map(printable, first), *(line for line in _times(entry, now) if line not in known)]
    if not entry.is_over:
        if alert.data != "ok":
            lines.append(f"it cannot be observed now: {printable(alert.data_why or alert.data)}")
        lines += [f"  | {shorten(printable(line), detail.width)}" for line in alert.evidence[-detail.evidence :]]
    sent = [
        f"{printable(one.channel)} {one.state} {at_text(one.at)}"
        + (f" ({printable(one.answer)})" if one.answer and one.state != "sent" else "")
        for one in alert.delivery
        if one.state not in ("waiting", "sending", "stopped")
    ]
    lines += [f"sent before: {'; '.join(sent)}"] if sent else []
    if not entry.is_over:
        if alert.advice and (like is None or like.alert.advice != alert.advice):
            lines.append(f"→ {printable(alert.advice)}")
        if alert.acknowledged_by is None and not alert.event:
            lines.append(f"acknowledge: trainmon-tui ack {alert.id}" + ("" if like else " (a in pane 5)"))
        if alert.rule != TEST and not alert.event and not like:
            lines.append(f"mute: trainmon-tui mute {shlex.quote(printable(alert.subject))} --for 1h (m in pane 5)")
    return "\n".join(lines)


def _times(entry: Entry, now: Instant) -> Iterator[str]:
    alert = entry.alert
    if entry.is_over:
        end = alert.resolved_at if alert.resolved_at is not None else now
        over = f"resolved {at_text(end)}, after {ago(end - alert.since)}"
        gone = f"{printable(alert.ended or '')} since {at_text(end)}"
        yield f"began {at_text(alert.since)}; {over if _is_well(alert) else gone}"
    else:
        yield f"{'at' if alert.event else 'since'} {at_text(alert.since)} ({ago(now - alert.since)} ago)"
    for notice in entry.notices:
        late = f", sent {ago(now - notice.at)} late" if now - notice.at >= LATE else ""
        yield f"{at_text(notice.at)}{late}: {printable(notice.reason)}"
    if alert.acknowledged_by and not entry.is_over and entry.notices[-1].kind != "acknowledged":
        yield f"acknowledged by {printable(alert.acknowledged_by)}"


# ---- the summary for a channel that works again ----------------------------------------------------------------------

NAMED = 10
"""How many alerts the first lines name; the rest of the message describes each."""


def summary(
    channel: str, notifications: Sequence[Notification], alerts: Mapping[str, Alert] | None, now: Instant
) -> Message:
    """One message of what other channels have delivered. `alerts`: their present state; None while it is not known."""
    newest_of = {alert.key: alert for alert in sorted((alerts or {}).values(), key=lambda alert: alert.episode)}
    present = None if alerts is None else lambda alert: alerts.get(alert.id) or newest_of.get(alert.key)
    notices = tuple(_update(notification, present, now) for notification in notifications)
    message = render(notices, now)
    by_others = [notification for notification in notifications if notification.delivered_by]
    others = sorted({printable(name) for notification in by_others for name in notification.delivered_by})
    newest = {alert.id: alert for notice in sorted(notices, key=lambda one: one.at) for alert in notice.alerts}
    firing = [alert for alert in newest.values() if alert.is_open and not alert.event]
    over = [alert for alert in newest.values() if not alert.is_open]
    went = f"while {printable(channel)} was down, {counted(len(by_others), 'message')} went by {' and '.join(others)}"
    down = ago(max(0.0, now - min((one.notice.at for one in by_others), default=now)))
    lead = "\n".join([f"{went}; the first {down} ago", *_listed("still firing", firing), *_listed("over", over)])
    # What still fires and nobody has acknowledged keeps its severity.
    severities: list[Severity] = [alert.severity for alert in firing if alert.acknowledged_by is None]
    title = f"{counted(len(firing), 'alert')} still firing: {went}" if firing else f"All resolved: {went}"
    return replace(
        message,
        title=shorten(title, TITLE_CELLS),
        body=f"{lead}\n\n{message.body}",
        shorter=tuple(f"{lead}\n\n{shorter}" for shorter in message.shorter),
        severity=min(severities, key=SEVERITIES.index, default="info"),
    )


def _update(notification: Notification, present: Callable[[Alert], Alert | None] | None, now: Instant) -> Notice:
    """Its notice with the present state of its alerts, or of a later episode of their subjects."""
    notice, channels = notification.told, notification.delivered_by
    known: list[Alert] = []
    for alert in notice.alerts:
        if present is not None and (newest := present(alert)) is not None:
            known.append(newest)
        elif present is not None and alert.is_open:  # it ended more than a day ago, so its end is not kept
            known.append(replace(alert, phase="resolved", ended="no longer known", resolved_at=now))
        else:
            known.append(alert)
    reason = f"{notice.reason}; delivered by {' and '.join(channels)}" if channels else notice.reason
    return replace(notice, reason=reason, alerts=tuple(known))


def _listed(what: str, alerts: Sequence[Alert]) -> Iterable[str]:
    names = [name_of(alert) for alert in alerts[:NAMED]]
    more = [f"and {len(alerts) - NAMED:,} more"] if len(alerts) > NAMED else []
    return [f"{what}: {'; '.join([*names, *more])}"] if alerts else []
