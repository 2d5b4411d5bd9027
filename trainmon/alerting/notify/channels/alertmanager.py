"""The channel `alertmanager`: open alerts are posted to Alertmanager (API v2), and posted again while they are open.

Alertmanager keeps alerts in its memory and resolves those that nobody posts again. So a thread posts all open alerts of
the channel once a minute: Alertmanager knows them again a minute after its restart, whatever it has forgotten.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from trainmon.alerting.notify.channels.http import Http, judge, text_of
from trainmon.alerting.notify.channels.webhook import annotations_of, labels_of, plain_fields, timestamp
from trainmon.alerting.notify.message import Broken, Message, Retry, Sent
from trainmon.lib import Clock, Instant, Seconds, SystemClock
from trainmon.lib.threads import Background
from trainmon.model import Alert, Channel

log = logging.getLogger(__name__)

RESEND_EVERY: Seconds = 60.0
"""As Prometheus does (--rules.alert.resend-delay)."""
HOLD: Seconds = 900.0
"""When an alert that is not posted again ends in Alertmanager: longer than a restart of this program, and than the five
minutes between two runs of `--once`."""
TIMEOUT: Seconds = 10.0
FAREWELL: Seconds = 3.0
"""How long the last post of a program that ends may take."""
FIRST_AFTER: Seconds = 5.0
"""How soon it is tried again while the alerts are not known: at the start, and while another program leads."""
MONITOR = {"monitor": "trainmon-tui"}
"""A label of every alert, for routes of Alertmanager."""

Payload = Mapping[str, Any]
"""An alert as Alertmanager reads it. Its labels identify it."""
NOTHING: Payload = {"labels": None, "annotations": {}}
KnownAlerts = Callable[[], Iterable[Alert] | None]
"""All alerts now; None while they are not known, or another program leads."""


class Alertmanager:
    """One Alertmanager. Its worker and its Resender take turns."""

    def __init__(self, health: Channel, *, url: str, login: str | None, clock: Clock | None = None) -> None:
        self.health = health
        self._clock = clock or SystemClock()
        self._url = f"{url.rstrip('/')}/api/v2"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": login} if login else {})
        self._http = Http(health.name, clock)
        self._lock = threading.Lock()
        self._posted: dict[str, Payload] = {}
        """The alerts that fire in Alertmanager, by their IDs, as this program posted them."""

    def send(self, message: Message, timeout: Seconds) -> Sent:
        now = self._clock.now()
        newest = {alert.id: (alert, notice.reason) for notice in message.notices for alert in notice.alerts}
        payloads = {name: payload(alert, reason, now) for name, (alert, reason) in newest.items()}
        plain = [  # a report, a test or a goodbye: an alert that ends by itself
            _payload(*plain_fields(notice), notice.at, notice.at + HOLD)
            for notice in message.notices
            if not notice.alerts
        ]
        with self._lock:
            status = self._post([*payloads.values(), *plain], timeout)
            self._posted = {name: one for name, one in self._posted.items() if name not in newest} | {
                name: payloads[name] for name, (alert, _) in newest.items() if _lasts(alert)
            }
        return Sent(f"{status}")

    def resend(self, alerts: KnownAlerts, timeout: Seconds) -> bool:
        """Post the open alerts of this channel, and the end of those that are open no more: not every end is notified.
        Return whether the alerts were known.

        Raises: Retry, Broken.
        """
        with self._lock:
            found = alerts()
            if found is None:
                return False
            now, known = self._clock.now(), {alert.id: alert for alert in found}
            is_open = {
                name: payload(one, self._posted.get(name, NOTHING)["annotations"].get("reason", ""), now)
                for name, one in known.items()
                if _lasts(one) and self.health.name in one.notified_on
            }
            ended = [
                _ended(posted, (known[name].resolved_at if name in known else None) or now)
                for name, posted in self._posted.items()
                if posted["labels"] != is_open.get(name, NOTHING)["labels"]
            ]
            try:  # also without alerts: it shows whether the next one can be posted
                self._post([*ended, *is_open.values()], timeout)
            except (Retry, Broken) as error:
                state: Literal["retrying", "broken"] = "retrying" if isinstance(error, Retry) else "broken"
                problem = f"the open alerts cannot be posted again: {error.message}"
                self.health = replace(self.health, state=state, problem=problem, since=self.health.since or now)
                raise
            self._posted = is_open
            self.health = replace(self.health, state="ok", problem=None, since=None)
        return True

    def check(self, timeout: Seconds) -> None:
        """Find out whether something can be posted.

        Raises: Retry, Broken: when it cannot.
        """
        reply = self._http.request("GET", f"{self._url}/status", headers=self._headers, timeout=timeout)
        judge(reply, "is this an Alertmanager?" if reply.status == 404 else text_of(reply.body))

    def _post(self, payloads: list[Payload], timeout: Seconds) -> int:
        reply = self._http.request(
            "POST", f"{self._url}/alerts", body=json.dumps(payloads).encode(), headers=self._headers, timeout=timeout
        )
        judge(reply, "" if reply.is_good else text_of(reply.body))
        return reply.status


class Resender(Background):
    """The thread that posts the open alerts of one Alertmanager again; at its end a last time, so that they stay open
    until the next program leads."""

    stop_timeout = FAREWELL

    def __init__(self, channel: Alertmanager, alerts: KnownAlerts, *, every: Seconds = RESEND_EVERY) -> None:
        self._channel = channel
        self._alerts = alerts
        self._every = every
        self._is_failing = False
        super().__init__(f"resend {channel.health.name}")

    def _run(self) -> None:
        while not self._stopping.wait(self._every if self._resend(TIMEOUT) else min(FIRST_AFTER, self._every)):
            pass
        self._resend(FAREWELL)

    def _resend(self, timeout: Seconds) -> bool:
        """Log a failure when it begins, and its end. Return whether the alerts were known."""
        name = self._channel.health.name
        try:
            is_known = self._channel.resend(self._alerts, timeout)
        except (Retry, Broken) as error:
            if not self._is_failing:
                log.warning("channel %s: the open alerts cannot be posted again: %s", name, error.message)
            self._is_failing = True
            return True
        except Exception:  # this thread goes on
            log.exception("channel %s: the open alerts cannot be posted again", name)
            return True
        if is_known and self._is_failing:
            log.info("channel %s: the open alerts are posted again", name)
            self._is_failing = False
        return is_known


def payload(alert: Alert, reason: str, now: Instant) -> Payload:
    """One alert. It ends HOLD after now unless it is posted again."""
    return _payload(
        labels_of(alert),
        annotations_of(alert, reason),
        alert.since,
        now + HOLD if alert.is_open else min(now, alert.resolved_at or now),
    )


def _payload(labels: Mapping[str, str], annotations: Mapping[str, str], since: Instant, until: Instant) -> Payload:
    return {
        "labels": {**labels, **MONITOR},
        "annotations": annotations,
        "startsAt": timestamp(min(since, until)),  # it refuses an alert that ends before it starts
        "endsAt": timestamp(until),
    }


def _ended(posted: Payload, at: Instant) -> Payload:
    """What was posted, ended at that time."""
    ends_at = timestamp(at)
    return {**posted, "startsAt": min(posted["startsAt"], ends_at), "endsAt": ends_at}


def _lasts(alert: Alert) -> bool:
    """Whether it fires until it is resolved. An event happened once: in Alertmanager it ends by itself."""
    return alert.is_firing and not alert.event
