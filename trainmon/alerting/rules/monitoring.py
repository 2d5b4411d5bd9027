"""Rules about the monitor itself: its sources, channels, ledger, clock and rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainmon.alerting.rules.base import Duration, Rule, Share, ago
from trainmon.alerting.rules.evaluate import RULE_RAISED
from trainmon.lib import Instant, clean, counted
from trainmon.model import Alert, Channel, Finding, Source, State


class MonitorBlind(Rule, frozen=True, kw_only=True):
    """No source answers at all: nothing that happens now is seen."""

    name = "monitor-blind"
    family = "ourselves"
    origin = "our choice: all connections are dialled again within 30 s"

    for_: Duration = 45.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        wanted = [source for source in state.sources.values() if source.health != "off"]
        if not wanted or any(source.health == "ok" or source.phase == "prompting" for source in wanted):
            return  # somebody is logging in just now
        last_seen = max((source.seen_at for source in wanted if source.seen_at is not None), default=None)
        last = "none has answered yet" if last_seen is None else f"the last answer came {ago(now - last_seen)} ago"
        yield Finding(
            rule=self.name,
            subject="self",
            severity="critical",
            summary=f"no data: none of {counted(len(wanted), 'source')} answers; {last}",
            evidence=tuple(_said(source) for source in wanted[:10]),
            advice="check the network, VPN and SSH keys of this machine: trainmon-tui check",
            since=last_seen,
            by_age=True,
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """It is over when a source answers."""
        return None if any(source.health == "ok" for source in state.sources.values()) else "nothing has answered yet"


class ClusterUnreachable(Rule, frozen=True, kw_only=True):
    """Most nodes of a cluster do not answer: one notification instead of one per node."""

    name = "cluster-unreachable"
    family = "ourselves"
    origin = "our choice: shorter than `for` of node-unreachable, so that it fires first"

    for_: Duration = 30.0
    """How long the condition must hold before the alert fires."""
    share: Share = 0.5
    """More than this share of the nodes, and at least two, must be silent."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for cluster, nodes in _nodes(state).items():
            silent = [source for source in nodes if source.health != "ok"]
            if len(silent) < 2 or len(silent) <= self.share * len(nodes):
                continue
            last_seen = max((source.seen_at for source in silent if source.seen_at is not None), default=None)
            yield Finding(
                rule=self.name,
                subject=f"cluster:{cluster}",
                severity="critical",
                summary=f"{len(silent)} of {counted(len(nodes), 'node')} of {cluster} do not answer"
                + ("" if last_seen is None else f", the last answer came {ago(now - last_seen)} ago"),
                evidence=tuple(_said(source) for source in silent[:10]),
                advice="check the connection (login node, VPN, site maintenance): trainmon-tui check",
                cluster=cluster,
                by_age=True,
            )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """It is over when most nodes answer."""
        nodes = _nodes(state).get(alert.cluster)
        return None if nodes else f"no node of {alert.cluster} is known yet"


class SourceLate(Rule, frozen=True, kw_only=True):
    """A source other than a node (a queue, W&B, files) sends nothing, and no error either."""

    name = "source-late"
    family = "ourselves"
    origin = "our choice: late means 3 periods without an answer; a slow controller takes some more"
    needs_for = True

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for source in _not_nodes(state, "late"):
            last = "it has never answered" if source.seen_at is None else f"last answer {ago(now - source.seen_at)} ago"
            yield _about(self.name, source, f"{source.name} is late: {last}", now)

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """It is over when the source answers; an error is no answer."""
        return _still_silent(state, alert)


class SourceDown(Rule, frozen=True, kw_only=True):
    """A source other than a node fails, or needs an interactive login (2FA)."""

    name = "source-down"
    family = "ourselves"
    origin = "our choice: a controller that restarts answers again within minutes"

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for source in _not_nodes(state, "down"):
            waits = "needs an interactive login (2FA)" if source.phase == "held" else "fails"
            error = clean(source.error or "no reason is known")
            yield _about(self.name, source, f"{source.name} {waits}: {error}", now)

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """It is over when the source answers; silence is no answer."""
        return _still_silent(state, alert)


class ChannelFailing(Rule, frozen=True, kw_only=True):
    """A channel does not accept notifications: nobody is notified by it."""

    name = "channel-failing"
    family = "ourselves"
    origin = "our choice; Alertmanager's own mixin waits 5 minutes"

    patience: Duration = 300.0
    """How long retries may go on before the alert fires. It fires at once if the channel refuses, or if others deliver
    for it."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        has_others = len(state.channels) > 1
        failing = [channel for channel in state.channels.values() if self._is_failing(channel, has_others, now)]
        everyone = len(failing) == len(state.channels)
        for channel in failing:
            since = channel.since if channel.since is not None else now
            words = clean(channel.words or "no reason is known")
            how = "refuses" if channel.state == "broken" else f"has failed for {ago(now - since)}"
            waiting = f"; {counted(channel.waiting, 'message')} waiting" if channel.waiting else ""
            yield Finding(
                rule=self.name,
                subject=f"{CHANNEL}{channel.name}",
                severity="critical" if everyone else "warning",
                summary=f"the channel {channel.name} ({channel.type}) {how}: {words}{waiting}"
                + ("; no other channel works" if everyone else ""),
                advice="fix it, then test it: trainmon-tui check --notify",
                since=channel.since,
                by_age=channel.state != "broken",
            )

    def _is_failing(self, channel: Channel, has_others: bool, now: Instant) -> bool:
        if channel.state == "broken" or (has_others and channel.overdue):
            return True
        return channel.state == "retrying" and channel.since is not None and now - channel.since >= self.patience

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """It is over when the channel has accepted a message."""
        channel = state.channels.get(alert.subject.removeprefix(CHANNEL))
        return None if channel is not None and channel.state == "ok" else "nothing was sent on it since"


class OutboxOld(Rule, frozen=True, kw_only=True):
    """Notifications wait in the outbox, although their channel is not known to fail."""

    name = "outbox-old"
    family = "ourselves"
    origin = "our choice: the longest pause between two retries is 5 minutes; this is three of them"

    age: Duration = 900.0
    """How long a notification may wait."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for channel in state.channels.values():
            if channel.oldest_at is None or now - channel.oldest_at < self.age:
                continue
            yield Finding(
                rule=self.name,
                subject=f"{CHANNEL}{channel.name}",
                severity="warning",
                summary=f"{counted(channel.waiting, 'message')} for {channel.name} not sent,"
                f" the oldest for {ago(now - channel.oldest_at)}",
                evidence=(clean(channel.words),) if channel.words else (),
                advice="trainmon-tui status shows what waits; trainmon-tui check --notify tries each channel",
                since=channel.oldest_at,
                by_age=True,
            )


class LedgerStuck(Rule, frozen=True, kw_only=True):
    """The ledger cannot be written: after a crash, nobody would know what was sent."""

    name = "ledger-stuck"
    family = "ourselves"
    origin = "our choice: a disk may hang for some seconds"

    for_: Duration = 10.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        if state.ledger is not None:
            yield Finding(
                rule=self.name,
                subject="self",
                severity="warning",
                summary=f"notifications are not recorded: {clean(state.ledger)}",
                advice="free or repair its disk; until then notifications are sent from memory",
            )


class RuleRaised(Rule, frozen=True, kw_only=True):
    """A rule failed, so its problem is not looked for. The other rules go on."""

    name = RULE_RAISED
    family = "ourselves"
    origin = "our choice: one State may be odd for a moment"

    for_: Duration = 10.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        """Yields nothing: trainmon.alerting.rules.evaluate makes the findings."""
        yield from ()


class ClockJumped(Rule, frozen=True, kw_only=True):
    """The clock jumped, or this program slept: nothing was watched in that time."""

    name = "clock-jumped"
    family = "ourselves"
    origin = "our choice"

    news: Duration = 600.0
    """How long it is reported."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        if state.woke_at is not None and now - state.woke_at < self.news:
            yield Finding(
                rule=self.name,
                subject="self",
                severity="info",
                summary=f"{state.woke_why or 'the clock jumped'}; data from before it is ignored",
                advice="if this machine is suspended: run trainmon-tui --alerts-only on one that is not",
                since=state.woke_at,
                event=True,
            )


class UnansweredTest(Rule, frozen=True, kw_only=True):
    """Nobody acknowledged the regular test notification: perhaps it reached nobody."""

    name = "test-unanswered"
    family = "ourselves"
    origin = "our choice: a day and its night"

    within: Duration = 86_400.0
    """How long there is to acknowledge it."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for alert in state.alerts.values():
            sent_at = alert.first_told_at
            if alert.rule != TEST or not alert.is_open or sent_at is None or alert.acknowledged_by is not None:
                continue
            if now - sent_at >= self.within:
                yield Finding(
                    rule=self.name,
                    subject="self",
                    severity="warning",
                    summary=f"nobody acknowledged the test notification of {ago(now - sent_at)} ago",
                    evidence=tuple(f"{one.channel}: {one.state} {one.words or ''}".rstrip() for one in alert.delivery),
                    advice=f"see whether it arrived, then acknowledge it: trainmon-tui ack {alert.id}",
                    since=sent_at,
                    by_age=True,
                )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """It is over when a test is acknowledged, not when another one is sent."""
        open_ones = (one for one in state.alerts.values() if one.rule == TEST and one.is_open)
        is_waiting = any(one.acknowledged_by is None for one in open_ones)
        return "the newer test is not acknowledged yet either" if is_waiting else None


TEST = "test"
"""The rule name of the test notification. No rule finds it; it ends when somebody acknowledges it."""

CHANNEL = "channel:"
"""The begin of the subject of an alert about a channel."""


def _said(source: Source) -> str:
    return clean(f"{source.name}: {source.error or source.health}")


def _nodes(state: State) -> Mapping[str, list[Source]]:
    """The watched nodes, by cluster."""
    found: dict[str, list[Source]] = {}
    for source in state.sources.values():
        if source.kind == "node" and source.health != "off":
            found.setdefault(source.cluster, []).append(source)
    return found


def _not_nodes(state: State, health: str) -> Iterator[Source]:
    """Nodes have a rule of their own."""
    return (source for source in state.sources.values() if source.health == health and source.kind != "node")


def _about(rule: str, source: Source, summary: str, now: Instant) -> Finding:
    return Finding(
        rule=rule,
        subject=f"source:{source.name}",
        severity="warning",
        summary=summary,
        evidence=(clean(source.stderr),) if source.stderr else (),
        advice=source.hint or "trainmon-tui check shows what is wrong with it",
        cluster=source.cluster,
        since=source.seen_at,
        by_age=True,
    )


def _still_silent(state: State, alert: Alert) -> str | None:
    source = state.sources.get(alert.subject.removeprefix("source:"))
    if source is not None and source.health in ("ok", "off"):
        return None
    return f"{alert.subject.removeprefix('source:')} has not answered yet"
