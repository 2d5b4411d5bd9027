"""The channel `webhook`: a POST with the payload of Alertmanager's webhooks, version 4."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainmon.alerting.notify.channels.http import Http, judge, text_of
from trainmon.alerting.notify.message import Message, Sent, printable
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import Alert, Channel, Notice, NoticeKind

NEVER = "0001-01-01T00:00:00Z"
"""The end of an alert that has not ended: the zero time of Go, in which Alertmanager is written."""
ALERTS = 1_000
"""In one request; `truncatedAlerts` counts the rest."""
REASONS: dict[NoticeKind, str] = {
    "repeat": "repeat interval elapsed", "escalate": "repeat interval elapsed", "acknowledged": "unknown",
    "worse": "new alerts added",
}  # fmt: skip
"""Alertmanager's own reasons; ours are in the annotations."""


class Webhook:
    """One address."""

    def __init__(self, health: Channel, *, url: str, headers: Mapping[str, str], clock: Clock | None = None) -> None:
        self.health = health
        self._url = url
        self._headers = dict(headers)
        self._http = Http(health.name, clock)

    def send(self, message: Message, timeout: Seconds) -> Sent:
        body = json.dumps(payload(message, self.health.name)).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.key, **self._headers}
        reply = self._http.request("POST", self._url, body=body, headers=headers, timeout=timeout)
        judge(reply, "" if reply.is_good else text_of(reply.body))
        return Sent(f"{reply.status}")


def payload(message: Message, receiver: str) -> dict[str, Any]:
    """The message as Alertmanager's payload."""
    notices = message.notices
    newest = {alert.id: (alert, notice) for notice in notices for alert in notice.alerts}
    alerts = [
        _row(
            labels_of(one),
            annotations_of(one, notice.reason),
            one.since,
            one.resolved_at or notice.at if one.phase == "resolved" else None,
            one.subject,
        )
        for one, notice in newest.values()
    ]
    alerts += [_row(*plain_fields(notice), notice.at) for notice in notices if not notice.alerts]
    is_firing = any(alert["status"] == "firing" for alert in alerts)
    groups = {notice.group for notice in notices}
    group = groups.pop() if len(groups) == 1 else ""
    # All heartbeats have the same key, so that a receiver keeps one and not one every four hours.
    kinds = {"alert" if notice.alerts else notice.kind for notice in notices}
    key = f"trainmon-{notices[0].kind}" if len(kinds) == 1 and "alert" not in kinds else message.key
    reason = REASONS.get(notices[-1].kind, "first notification")
    if notices[-1].kind == "resolve":
        reason = "some alerts resolved" if is_firing else "all alerts resolved"
    return {
        "version": "4",
        "groupKey": group or key,
        "truncatedAlerts": max(0, len(alerts) - ALERTS) + sum(notice.more for notice in notices),
        "status": "firing" if is_firing else "resolved",
        "receiver": receiver,
        "groupLabels": {"group": group} if group else {},
        "commonLabels": _common([alert["labels"] for alert in alerts]),
        "commonAnnotations": _common([alert["annotations"] for alert in alerts]),
        "externalURL": "",
        "notification_reason": reason,
        "alerts": alerts[:ALERTS],
    }


def _row(
    labels: Mapping[str, str], annotations: Mapping[str, str], since: Instant, end: Instant | None = None,
    subject: str = "",
) -> dict[str, Any]:  # fmt: skip
    return {
        "status": "firing" if end is None else "resolved",
        "labels": labels,
        "annotations": annotations,
        "startsAt": timestamp(since),
        "endsAt": NEVER if end is None else timestamp(end),
        "generatorURL": "",
        "fingerprint": fingerprint(labels["alertname"], subject),
    }


def labels_of(alert: Alert) -> dict[str, str]:
    """The labels of an alert, in Alertmanager's names."""
    labels = {"alertname": alert.rule, "severity": alert.severity, "subject": printable(alert.subject)}
    optional = {"run": alert.run, "node": alert.node, "cluster": alert.cluster}
    return labels | {name: printable(value) for name, value in optional.items() if value}


def annotations_of(alert: Alert, reason: str) -> dict[str, str]:
    """What people read of it. `reason`: why it is sent now."""
    annotations = {
        "summary": printable(alert.summary),
        "description": "\n".join(printable(line) for line in alert.evidence),
        "cause": "\n".join(printable(line) for line in alert.cause),
        "advice": printable(alert.advice),
        "reason": printable(reason),
        "id": alert.id,
    }
    return {name: value for name, value in annotations.items() if value}


def plain_fields(notice: Notice) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of a heartbeat, a test or a goodbye: an alert that is no problem, as Alertmanager's own
    Watchdog."""
    labels = {"alertname": f"trainmon-{notice.kind}", "severity": notice.severity}
    return labels, {
        "summary": printable(notice.title),
        "description": "\n".join(printable(line) for line in notice.lines),
        "reason": printable(notice.reason),
    }


def fingerprint(rule: str, subject: str) -> str:
    """Identifies a rule and its subject, in every episode."""
    return hashlib.sha256(f"{rule}\n{subject}".encode()).hexdigest()[:16]


def _common(tables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *others = tables or [{}]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def timestamp(at: Instant) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
