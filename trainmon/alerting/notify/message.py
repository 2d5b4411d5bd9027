"""Notices in words: a title, and a body with what is known, what was tried and what to do. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmon.alerting.notify.base import Message
from trainmon.alerting.rules import TEST, ago
from trainmon.lib import Instant, Seconds, clean, counted, scrub, shorten
from trainmon.model import SEVERITIES, Alert, Delivery, Notice, NoticeKind, Severity

TITLE_CELLS = 120
LINE = 500
"""Characters of one line: evidence may be a log's line of any length."""
BODY_BYTES = 60_000
"""Of a message as a whole: mail and files take it. What a phone shows is cut further, by `fit`."""
SHORT_BYTES = 900
"""A body of no more than that is told in no fewer words."""
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


class Room(NamedTuple):
    """How much is told."""

    whole: int
    """Alerts that are told with all they have. After an outage there may be thousands: of the others a line is told."""
    lines: int
    """Of these, so many; the rest is counted."""
    evidence: int
    """Lines of it, the newest."""
    line: int
    """Characters of one of them."""


ROOMS = (Room(40, 400, 10, LINE), Room(10, 20, 4, 200), Room(3, 12, 2, 140), Room(1, 6, 1, 100))
"""From all there is to what an SMS or a pager shows."""


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
    body = fit(_body(told, stories, plain, ROOMS[0], now), BODY_BYTES, MORE)[0]
    is_long = len(body.encode()) > SHORT_BYTES
    return Message(
        key=_key(told),
        severity=_severity(told, stories),
        title=_title(stories, plain, told, now),
        body=body,
        shorter=tuple(_body(told, stories, plain, room, now) for room in ROOMS[1:]) if is_long else (),
        notices=tuple(told),
        at=told[-1].at,
        acknowledge=tuple(_acknowledgeable(stories)),
        link=next((notice.link for notice in told if notice.link), None),
    )


def _body(told: Sequence[Notice], stories: Sequence[Story], plain: Sequence[Notice], room: Room, now: Instant) -> str:
    """What is wrong comes first: a locked phone shows no more than the first lines."""
    blocks = ["\n".join(map(printable, notice.lines)) for notice in told if notice.alerts]
    whole = stories[: room.whole]
    blocks += [_block(story, last, room, now) for last, story in zip([None, *whole], whole, strict=False)]
    if stories[room.whole :]:
        blocks.append("\n".join(_in_short(stories[room.whole :], room, now)))
    if more := sum(notice.more for notice in told):
        blocks.append(f"and {counted(more, 'alert')} more: trainmon-tui status")
    blocks += [_plain(notice, now, alone=len(told) == 1) for notice in plain]
    return "\n\n".join(block for block in blocks if block)


def fitted(message: Message, limit: int, mark: str) -> tuple[str, bool]:
    """The body in at most `limit` bytes, in as many words as go into that; and whether it is whole."""
    for text in (message.body, *message.shorter):
        is_whole = text is message.body
        said = text if is_whole else f"{text}\n{mark}"
        if len(said.encode()) <= limit:
            return said, is_whole
    return fit((message.body, *message.shorter)[-1], limit, mark)


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


def moment(at: Instant) -> str:
    """When, as everybody reads it: phones and machines are in different places, so it is always UTC; and with its date,
    for it may be read days later."""
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def is_good_news(message: Message) -> bool:
    """Whether all that it tells is over: what is no longer watched is not, nor is what was over before it was told."""
    return bool(message.notices) and all(
        notice.kind == "resolve" and all(_is_well(alert) for alert in notice.alerts) for notice in message.notices
    )


def _is_well(alert: Alert) -> bool:
    return alert.ended in (None, "over")


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


def _severity(notices: Sequence[Notice], stories: Sequence[Story]) -> Severity:
    """The worst that is told; that something is over is an information, and what was over before it was told needs
    nobody to get up."""
    severities: list[Severity] = [
        notice.severity for notice in notices if notice.kind not in ("resolve", "acknowledged")
    ]
    worst: Severity = min(severities, key=SEVERITIES.index, default="info")
    is_past = bool(stories) and all(story.is_over for story in stories)
    return "warning" if is_past and worst == "critical" else worst


def _key(notices: Sequence[Notice]) -> str:
    if len(notices) == 1:
        return notices[0].key
    return "several-" + hashlib.sha256("\n".join(notice.key for notice in notices).encode()).hexdigest()[:24]


# ---- the title -------------------------------------------------------------------------------------------------------


def _title(stories: Sequence[Story], plain: Sequence[Notice], notices: Sequence[Notice], now: Instant) -> str:
    late = f" [{ago(now - notices[0].at)} late]" if now - notices[0].at >= LATE else ""
    named = next((notice for notice in (*plain, *notices) if notice.title), None)
    if named is not None and (not stories or len(notices) == 1):
        said = "" if named.severity == "info" else f"{SAID[named.severity]} "
        return _titled(said + printable(named.title), late)
    if not stories:
        return f"trainmon-tui: {notices[-1].kind}{late}"
    first = stories[0]
    more = len(stories) - 1 + len(plain) + sum(notice.more for notice in notices)
    others = f" and {more:,} more" if more else ""
    return _titled(f"{_said(first)} {name_of(first.alert)}", f"{others}{late}")


def _titled(what: str, end: str) -> str:
    """What is long gives way: how many more there are, and how late it is, is never cut."""
    return shorten(what, TITLE_CELLS - len(end)) + end


def _said(story: Story) -> str:
    alert = story.alert
    if story.is_over:
        return "RESOLVED" if _is_well(alert) else printable(alert.ended or "").upper()
    return BEFORE.get(story.notices[-1].kind, "") + SAID[alert.severity]


def name_of(alert: Alert) -> str:
    """`video-2b: gpu-hot gpu-001/3`: the run, what, and where."""
    if alert.rule == TEST:
        return "test of trainmon-tui: please acknowledge it"
    kind, _, name = alert.subject.partition(":")
    subject = "" if kind in ("run", "self") or not name else f" {name}"
    run = f"{alert.run}: " if alert.run else ""
    return printable(f"{run}{alert.rule}{subject}")


# ---- the body --------------------------------------------------------------------------------------------------------


def _plain(notice: Notice, now: Instant, *, alone: bool) -> str:
    """A notice that is about no alert; its ages are those of when it was written."""
    title = [] if alone else [printable(notice.title)]
    late = now - notice.at
    written = [f"written {moment(notice.at)}, told {ago(late)} late"] if late >= LATE else []
    return "\n".join([*title, *written, *map(printable, notice.lines)])


def _block(story: Story, last: Story | None, room: Room, now: Instant) -> str:
    """One alert. Of one like the `last` (the next GPU of a node) only what is different."""
    alert = story.alert
    is_like = last is not None and not story.is_over and last.alert.rule == alert.rule
    said = {*_when(last, now)} if last is not None and is_like else set()
    lines = [printable(alert.summary), *(line for line in _when(story, now) if line not in said)]
    if not story.is_over:
        if alert.data != "ok":
            lines.append(f"it cannot be seen now: {printable(alert.data_why or alert.data)}")
        lines += [f"  | {shorten(printable(line), room.line)}" for line in alert.evidence[-room.evidence :]]
    before = [_delivered(one) for one in alert.delivery if one.state not in ("waiting", "sending", "stopped")]
    if before:
        lines.append(f"told before: {'; '.join(before)}")
    if not story.is_over:
        is_told = last is not None and is_like and last.alert.advice == alert.advice
        lines += [f"→ {printable(alert.advice)}"] if alert.advice and not is_told else []
        lines += _keys(alert, in_short=is_like)
    return "\n".join(lines)


def _when(story: Story, now: Instant) -> Iterator[str]:
    alert = story.alert
    word = "at" if alert.event else "since"
    yield _over(alert, now) if story.is_over else f"{word} {moment(alert.since)} ({ago(now - alert.since)} ago)"
    for notice in story.notices:
        late = f", told {ago(now - notice.at)} late" if now - notice.at >= LATE else ""
        yield f"{moment(notice.at)}{late}: {printable(notice.reason)}"
    if alert.acknowledged_by and not story.is_over and story.notices[-1].kind != "acknowledged":
        yield f"acknowledged by {printable(alert.acknowledged_by)}"


def _over(alert: Alert, now: Instant) -> str:
    end = alert.resolved_at if alert.resolved_at is not None else now
    began = f"began {moment(alert.since)}"
    if alert.ended and alert.ended != "over":
        return f"{began}; {printable(alert.ended)} since {moment(end)}"
    return f"{began}; over since {moment(end)}, after {ago(end - alert.since)}"


def _delivered(delivery: Delivery) -> str:
    words = f" ({printable(delivery.words)})" if delivery.words and delivery.state != "sent" else ""
    return f"{printable(delivery.channel)} {delivery.state} {moment(delivery.at)}{words}"


def _keys(alert: Alert, *, in_short: bool) -> Iterator[str]:
    """The commands and keys that are for every alert."""
    if alert.event:
        return
    if alert.acknowledged_by is None:
        yield f"acknowledge: trainmon-tui ack {alert.id}" + ("" if in_short else " (a in pane 5)")
    if alert.rule != TEST and not in_short:
        yield f"mute: trainmon-tui mute {shlex.quote(printable(alert.subject))} --for 1h (m in pane 5)"


def _in_short(stories: Sequence[Story], room: Room, now: Instant) -> Iterator[str]:
    for story in stories[: room.lines]:
        said = "resolved" if story.is_over else story.alert.severity
        yield f"{moment(story.notices[0].at)} {said}: {printable(story.alert.summary)}"
    if stories[room.lines :]:
        yield f"… and {counted(len(stories) - room.lines, 'alert')} more: trainmon-tui status"
