"""Notices in words: a title, and a body with what is known, what was tried and what to do. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmon.clock import Instant, Seconds
from trainmon.model_alerts import SEVERITIES, Alert, Delivery, Notice, NoticeKind, Severity
from trainmon.notify.base import Message
from trainmon.rules.base import ago
from trainmon.rules.ourselves import TEST
from trainmon.scrub import scrub
from trainmon.text import clean, counted, shorten

TITLE_CELLS = 120
LINE = 500
"""Characters of one line: evidence may be a log's line of any length."""
BODY_BYTES = 60_000
"""Of a message as a whole: mail and files take it. What a phone shows is cut further, by `fit`."""
WHOLE = 40
"""Alerts that are told with all they have. After an outage there may be thousands: of the others a line is told."""
LINES = 400
"""Of these, so many; the rest is counted."""
ACKNOWLEDGED = 16
"""Alerts that one button acknowledges."""
LATE: Seconds = 120.0
"""A message that comes so long after what it tells says so."""
MORE = "… there is more than fits here: trainmon-tui status"

SAID: dict[Severity, str] = {"critical": "CODE RED", "warning": "WARNING", "info": "INFO"}
BEFORE: dict[NoticeKind, str] = {
    "repeat": "STILL ", "worse": "NOW ", "escalate": "UNACKNOWLEDGED ", "flapping": "FLAPPING ",
    "acknowledged": "ACKNOWLEDGED ",
}  # fmt: skip


class Story(NamedTuple):
    """One alert as it was last, and what is told of it, oldest first."""

    alert: Alert
    notices: tuple[Notice, ...]

    @property
    def is_over(self) -> bool:
        return self.alert.phase == "resolved" and not self.alert.event


def render(notices: Sequence[Notice], now: Instant) -> Message:
    """One message of these notices: each alert as it was last, with when everything happened."""
    told = sorted(notices, key=lambda notice: notice.at)
    stories = _stories(told)
    plain = _newest([notice for notice in told if not notice.alerts])
    blocks = [_plain(notice, alone=len(told) == 1) for notice in plain]
    blocks += ["\n".join(map(printable, notice.lines)) for notice in told if notice.alerts]
    blocks += [_block(story, now) for story in stories[:WHOLE]]
    if stories[WHOLE:]:
        blocks.append("\n".join(_in_short(stories[WHOLE:], now)))
    if more := sum(notice.more for notice in told):
        blocks.append(f"and {counted(more, 'alert')} more: trainmon-tui status")
    body = "\n\n".join(block for block in blocks if block)
    return Message(
        key=_key(told),
        severity=_severity(told),
        title=shorten(_title(stories, plain, told, now), TITLE_CELLS),
        body=fit(body, BODY_BYTES, MORE)[0],
        notices=tuple(told),
        at=told[-1].at,
        acknowledge=tuple(_acknowledgeable(stories)),
    )


def fit(text: str, limit: int, mark: str) -> tuple[str, bool]:
    """The text in at most `limit` bytes of UTF-8, cut at a line and with a mark there; and whether it is whole."""
    if len(text.encode()) <= limit:
        return text, True
    room = limit - len(mark.encode()) - 1
    kept: list[str] = []
    for line in text.split("\n"):
        size = len(line.encode()) + 1
        if size > room:
            break
        kept.append(line)
        room -= size
    if not kept:
        kept = [text.encode()[: max(0, room)].decode(errors="ignore")]
    return "\n".join([*kept, mark]), False


def printable(text: str) -> str:
    """What a stranger may have written, fit to leave this machine: no secrets, nothing that is not text."""
    return clean(scrub(text[: 8 * LINE]), LINE)


def moment(at: Instant, now: Instant) -> str:
    """When, as everybody reads it: phones and machines are in different places, so it is always UTC."""
    when = dt.datetime.fromtimestamp(at, dt.UTC)
    return f"{when:%H:%M:%S} UTC" if abs(now - at) < 64_800 else f"{when:%Y-%m-%d %H:%M:%S} UTC"


# ---- what is told of which alert -------------------------------------------------------------------------------------


def _stories(notices: Sequence[Notice]) -> list[Story]:
    """The alerts in the order in which a person wants to know: what is open first, and of that the worst."""
    newest: dict[str, Alert] = {}
    told: dict[str, list[Notice]] = {}
    for notice in notices:
        for alert in notice.alerts:
            newest[alert.id] = alert
            told.setdefault(alert.id, []).append(notice)
    stories = [Story(alert, tuple(told[name])) for name, alert in newest.items()]
    return sorted(stories, key=lambda story: (story.is_over, SEVERITIES.index(story.alert.severity)))


def _newest(plain: Sequence[Notice]) -> list[Notice]:
    """Of signs of life only the last is worth reading."""
    beats = [notice for notice in plain if notice.kind == "heartbeat"]
    return [notice for notice in plain if notice.kind != "heartbeat" or notice is beats[-1]]


def _acknowledgeable(stories: Sequence[Story]) -> Iterator[tuple[str, str]]:
    open_ones = (story.alert for story in stories if not story.is_over and not story.alert.event)
    yield from [(one.id, one.token) for one in open_ones if one.token and one.acknowledged_by is None][:ACKNOWLEDGED]


def _severity(notices: Sequence[Notice]) -> Severity:
    """The worst that is told; that something is over is an information."""
    severities = [notice.severity for notice in notices if notice.kind not in ("resolve", "acknowledged")]
    return min(severities, key=SEVERITIES.index, default="info")


def _key(notices: Sequence[Notice]) -> str:
    if len(notices) == 1:
        return notices[0].key
    return "several-" + hashlib.sha256("\n".join(notice.key for notice in notices).encode()).hexdigest()[:24]


# ---- the title -------------------------------------------------------------------------------------------------------


def _title(stories: Sequence[Story], plain: Sequence[Notice], notices: Sequence[Notice], now: Instant) -> str:
    late = f" [{ago(now - notices[0].at)} late]" if now - notices[0].at >= LATE else ""
    named = next((notice for notice in (*plain, *notices) if notice.title), None)
    if named is not None and (not stories or len(notices) == 1):
        return printable(named.title) + late
    if not stories:
        return f"trainmon-tui: {notices[-1].kind}{late}"
    first = stories[0]
    alert = first.alert
    kind = first.notices[-1].kind
    said = "RESOLVED" if first.is_over else BEFORE.get(kind, "") + SAID[alert.severity]
    more = len(stories) - 1 + len(plain) + sum(notice.more for notice in notices)
    others = f" and {more:,} more" if more else ""
    return f"{said} {_of(alert)}{others}{late}"


def _of(alert: Alert) -> str:
    """`video-2b: gpu-hot gpu-001/3`: the run, what, and where."""
    if alert.rule == TEST:
        return "test of trainmon-tui: please acknowledge it"
    kind, _, name = alert.subject.partition(":")
    subject = "" if kind in ("run", "self") or not name else f" {name}"
    run = f"{alert.run}: " if alert.run else ""
    return printable(f"{run}{alert.rule}{subject}")


# ---- the body --------------------------------------------------------------------------------------------------------


def _plain(notice: Notice, *, alone: bool) -> str:
    """A notice that is about no alert."""
    lines = [printable(line) for line in notice.lines]
    return "\n".join(lines if alone else [printable(notice.title), *lines])


def _block(story: Story, now: Instant) -> str:
    alert = story.alert
    lines = [printable(alert.summary), *_when(story, now)]
    if not story.is_over:
        if alert.data != "ok":
            lines.append(f"it cannot be seen now: {printable(alert.data_why or alert.data)}")
        lines += [f"  | {printable(line)}" for line in alert.evidence[-10:]]
    before = [_delivered(one, now) for one in alert.delivery if one.state not in ("waiting", "sending", "stopped")]
    if before:
        lines.append(f"told before: {'; '.join(before)}")
    if not story.is_over:
        lines += [f"→ {printable(alert.advice)}"] if alert.advice else []
        lines += _keys(alert)
    return "\n".join(lines)


def _when(story: Story, now: Instant) -> Iterator[str]:
    alert = story.alert
    yield f"since {moment(alert.since, now)} ({ago(now - alert.since)} ago)" if not story.is_over else _over(alert, now)
    for notice in story.notices:
        late = f", told {ago(now - notice.at)} late" if now - notice.at >= LATE else ""
        yield f"{moment(notice.at, now)}{late}: {printable(notice.reason)}"
    if alert.acknowledged_by and not story.is_over:
        yield f"acknowledged by {printable(alert.acknowledged_by)}"


def _over(alert: Alert, now: Instant) -> str:
    end = alert.resolved_at if alert.resolved_at is not None else now
    began = f"began {moment(alert.since, now)}"
    if alert.ended and alert.ended != "over":
        return f"{began}; {printable(alert.ended)} since {moment(end, now)}"
    return f"{began}; over since {moment(end, now)}, after {ago(end - alert.since)}"


def _delivered(delivery: Delivery, now: Instant) -> str:
    words = f" ({printable(delivery.words)})" if delivery.words and delivery.state != "sent" else ""
    return f"{printable(delivery.channel)} {delivery.state} {moment(delivery.at, now)}{words}"


def _keys(alert: Alert) -> Iterator[str]:
    """The commands and keys that are for every alert."""
    if alert.event:
        return
    if alert.acknowledged_by is None:
        yield f"acknowledge: trainmon-tui ack {alert.id} (a in pane 5)"
    if alert.rule != TEST:
        yield f"mute: trainmon-tui mute {shlex.quote(printable(alert.subject))} --for 1h (m in pane 5)"


def _in_short(stories: Sequence[Story], now: Instant) -> Iterator[str]:
    for story in stories[:LINES]:
        said = "resolved" if story.is_over else story.alert.severity
        yield f"{moment(story.notices[0].at, now)} {said}: {printable(story.alert.summary)}"
    if stories[LINES:]:
        yield f"… and {counted(len(stories) - LINES, 'alert')} more: trainmon-tui status"
