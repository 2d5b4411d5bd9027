"""The channel `webhook`: a POST with the payload of Alertmanager's webhooks, version 4."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainmon.alerting.notify.base import Message, Sent
from trainmon.alerting.notify.channels.http import Http, judge, text_of
from trainmon.alerting.notify.message import printable
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import Alert, Channel, Notice, NoticeKind

NEVER = "0001-01-01T00:00:00Z"
"""When something ends that has not: the zero of the language that Alertmanager is written in."""
ALERTS = 1_000
"""In one request; the rest is counted in `truncatedAlerts`."""
REASONS: dict[NoticeKind, str] = {
    "repeat": "repeat interval elapsed", "escalate": "repeat interval elapsed", "acknowledged": "unknown",
    "worse": "new alerts added",
}  # fmt: skip
FIRST = "first notification"


class Webhook:
    """One address."""

    def __init__(self, health: Channel, *, url: str, headers: Mapping[str, str], clock: Clock | None = None) -> None:
        self._health = health
        self._url = url
        self._headers = dict(headers)
        self._http = Http(health.name, clock)

    @property
    def health(self) -> Channel:
        return self._health

    def send(self, message: Message, timeout: Seconds) -> Sent:
        told = json.dumps(payload(message, self._health.name)).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.key, **self._headers}
        reply = self._http.ask("POST", self._url, body=told, headers=headers, timeout=timeout)
        judge(reply, "" if reply.is_good else text_of(reply.body))
        return Sent(f"{reply.status}")

    def close(self) -> None:
        """Nothing is held between two messages."""


def payload(message: Message, receiver: str) -> dict[str, Any]:
    """The message as Alertmanager would tell it."""
    newest: dict[str, tuple[Alert, Notice]] = {}
    for notice in message.notices:
        for alert in notice.alerts:
            newest[alert.id] = (alert, notice)
    alerts = [_alert(alert, notice) for alert, notice in newest.values()]
    alerts += [_plain(notice) for notice in message.notices if not notice.alerts]
    is_firing = any(alert["status"] == "firing" for alert in alerts)
    groups = {notice.group for notice in message.notices}
    group = groups.pop() if len(groups) == 1 else ""
    return {
        "version": "4",
        "groupKey": group or _group_key(message),
        "truncatedAlerts": max(0, len(alerts) - ALERTS) + sum(notice.more for notice in message.notices),
        "status": "firing" if is_firing else "resolved",
        "receiver": receiver,
        "groupLabels": {"group": group} if group else {},
        "commonLabels": _common([alert["labels"] for alert in alerts]),
        "commonAnnotations": _common([alert["annotations"] for alert in alerts]),
        "externalURL": "",
        "notification_reason": _reason(message.notices, is_firing=is_firing),
        "alerts": alerts[:ALERTS],
    }


def _alert(alert: Alert, notice: Notice) -> dict[str, Any]:
    labels = {"alertname": alert.rule, "severity": alert.severity, "subject": printable(alert.subject)}
    places = {"run": alert.run, "node": alert.node, "cluster": alert.cluster}
    labels |= {name: printable(value) for name, value in places.items() if value}
    is_over = alert.phase == "resolved"
    annotations = {
        "summary": printable(alert.summary),
        "description": "\n".join(printable(line) for line in alert.evidence),
        "advice": printable(alert.advice),
        "reason": printable(notice.reason),
        "id": alert.id,
    }
    return {
        "status": "resolved" if is_over else "firing",
        "labels": labels,
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": _time(alert.since),
        "endsAt": _time(alert.resolved_at or notice.at) if is_over else NEVER,
        "generatorURL": "",
        "fingerprint": fingerprint(alert.rule, alert.subject),
    }


def _group_key(message: Message) -> str:
    """Of signs of life always the same one, so that a receiver keeps one of them and not one every four hours."""
    kinds = {notice.kind for notice in message.notices if not notice.alerts}
    is_plain = len(kinds) == 1 and not any(notice.alerts for notice in message.notices)
    return f"trainmon-{kinds.pop()}" if is_plain else message.key


def _plain(notice: Notice) -> dict[str, Any]:
    """A sign of life, a test or a goodbye: as Alertmanager's own Watchdog, an alert that is no fault."""
    name = f"trainmon-{notice.kind}"
    return {
        "status": "firing",
        "labels": {"alertname": name, "severity": notice.severity},
        "annotations": {
            "summary": printable(notice.title),
            "description": "\n".join(printable(line) for line in notice.lines),
            "reason": printable(notice.reason),
        },
        "startsAt": _time(notice.at),
        "endsAt": NEVER,
        "generatorURL": "",
        "fingerprint": fingerprint(name, ""),
    }


def fingerprint(rule: str, subject: str) -> str:
    """The same for the same trouble, in this episode and in the next."""
    return hashlib.sha256(f"{rule}\n{subject}".encode()).hexdigest()[:16]


def _common(tables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *others = tables or [{}]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _reason(notices: Sequence[Notice], *, is_firing: bool) -> str:
    """In Alertmanager's own words; ours are in the annotations."""
    last = notices[-1].kind
    if last == "resolve":
        return "some alerts resolved" if is_firing else "all alerts resolved"
    return REASONS.get(last, FIRST)


def _time(at: Instant) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
