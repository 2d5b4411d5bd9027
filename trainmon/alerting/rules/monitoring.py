"""Rules about the monitoring itself: sources, channels, its own network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from trainmon.alerting.rules.base import (
    RULE_RAISED,
    Duration,
    Rule,
    Share,
    Unknown,
    Unseen,
    is_logging_in,
    is_new,
    is_unread,
    lasted,
)
from trainmon.lib import Instant, Seconds, ago, clean, counted, group_by
from trainmon.model import LATE_AFTER, Alert, Finding, Source, State

# ---- whether this machine has lost its own network, or its VPN -------------------------------------------------------

LOST_TOGETHER: Seconds = 10.0
"""Hosts that are lost within this time share a cause: the network of this machine, if no host is kept."""


def last_answer(sources: Iterable[Source]) -> Instant | None:
    """When one of them answered last."""
    return max((source.answered_at for source in sources if source.answered_at is not None), default=None)


def lost_together(state: State) -> Sequence[Source]:
    """The hosts that were lost last, if there are several and none is kept. A host is lost between its last answer and
    the next one that was due. W&B and other services may still answer: they need no VPN."""
    hosts = [one for one in state.sources.values() if one.kind == "node" and one.via is None and one.answered_at]
    at = last_answer(hosts)
    if at is None or any(one.health == "ok" for one in hosts):
        return ()
    lost = [one for one in hosts if at - (one.answered_at or 0.0) - one.period <= LOST_TOGETHER and one.health != "off"]
    return lost if len(lost) > 1 else ()


def was_watched(state: State, at: Instant) -> bool:
    """Whether a daemon of another machine watched then."""
    daemons = (one for one in state.sources.values() if one.kind == "daemon" and one.answered_at is not None)
    return any(at - (one.answered_at or 0.0) <= LATE_AFTER * one.period for one in daemons)


# ---- rules about the monitor itself ----------------------------------------------------------------------------------

TEST = "test"
"""The rule name of the test notification. No rule finds it; it ends when somebody acknowledges it."""

CHANNEL = "channel:"
"""The start of the subject of an alert about a channel."""


class MonitorRule(Rule, frozen=True, kw_only=True):
    """A rule about the monitor itself."""

    family = "ourselves"


class SourceRule(MonitorRule, frozen=True, kw_only=True):
    """A rule about a source other than a node. Nodes have a rule of their own."""

    health: ClassVar[str]

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for source in state.sources.values():
            if source.health == self.health and source.kind != "node" and not is_new(source, state, now):
                yield Finding(
                    rule=self.name,
                    subject=f"source:{source.name}",
                    severity="warning",
                    summary=f"{source.name} {self.problem(source, now)}",
                    evidence=(clean(source.stderr),) if source.stderr else (),
                    advice=(source.error and source.hint) or "trainmon-tui check shows what is wrong with it",
                    cluster=source.cluster,
                    since=source.answered_at,
                    by_age=True,
                )

    def problem(self, source: Source, now: Instant) -> str:
        """What is wrong with a source, after its name."""
        raise NotImplementedError

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """It is over when the source responds; neither late data nor an error is a response."""
        name = alert.subject.removeprefix("source:")
        source = state.sources.get(name)
        is_over = source is not None and source.health in ("ok", "off")
        return None if is_over else Unknown(f"no data from {name} yet")


OWN_NETWORK: Seconds = 300.0
"""How long a dashboard only warns about its own network: a laptop changes its Wi-Fi, or its VPN connects again. The
time that it was suspended does not count."""


class MonitorBlind(MonitorRule, frozen=True, kw_only=True):
    """No source responds: no problem can be detected. A dashboard that loses all hosts at once warns about its own
    network, whatever else responds, and pages after 5 minutes if no daemon watches.

    Defaults: our choice: all connections are opened again within 30s
    """

    for_: Duration = 45.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        lost = lost_together(state) if state.is_dashboard else ()
        wanted = lost or [source for source in state.sources.values() if source.health != "off"]
        sees = not lost and any(one.health == "ok" for one in wanted)
        if sees or all(is_new(one, state, now) for one in wanted):
            return
        problem = (
            f"this machine lost {len(lost)} hosts at once and reaches none: its own network or VPN may be down"
            if lost
            else f"no data: 0 of {counted(len(wanted), 'source')} responding"
        )
        at = last_answer(wanted)
        last = "no data since the start" if at is None else f"the last data came {ago(now - at)} ago"
        passed = lasted(at or 0.0, state, now)
        is_watched = bool(lost) and was_watched(state, at or 0.0)
        may_recover = passed < OWN_NETWORK if lost else any(is_logging_in(one, state, now) for one in wanted)
        yield Finding(
            rule=self.name,
            subject="self",
            severity="warning" if is_watched or may_recover else "critical",
            summary=f"{problem}; {last}",
            evidence=_errors(wanted),
            advice="check the network, VPN and SSH keys of this machine: trainmon-tui check"
            + ("; the daemon watched when the connection was lost" if is_watched else ""),
            since=at,
            fires_at_once=bool(lost) and passed >= self.for_,  # before what it inhibits, where a daemon led so far
            by_age=True,
        )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """It is over when a source answers."""
        sees = any(source.health == "ok" for source in state.sources.values())
        return None if sees else Unknown("no source responds yet")


class ClusterUnreachable(MonitorRule, frozen=True, kw_only=True):
    """Most nodes of a cluster are unreachable: one notification instead of one per node.

    Defaults: our choice: shorter than `for` of node-unreachable, so that it fires first
    """

    for_: Duration = 30.0
    """How long the condition must hold before the alert fires."""
    share: Share = 0.5
    """More than this share of the nodes, and at least two, must be unreachable."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for cluster, nodes in _nodes(state).items():
            silent = [source for source in nodes if source.health != "ok" and not is_new(source, state, now)]
            least = max(2, int(self.share * len(nodes)) + 1)
            if len(silent) < least:
                continue
            at, logging_in = last_answer(silent), sum(is_logging_in(source, state, now) for source in silent)
            last = "" if at is None else f"; the last data came {ago(now - at)} ago"
            yield Finding(
                rule=self.name,
                subject=f"cluster:{cluster}",
                severity="critical" if len(silent) - logging_in >= least else "warning",
                summary=f"{len(silent)} of {counted(len(nodes), 'node')} of {cluster} are unreachable{last}",
                evidence=_errors(silent),
                advice="check the connection (login node, VPN, site maintenance): trainmon-tui check",
                cluster=cluster,
                by_age=True,
            )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """It is over when most nodes answer."""
        return None if alert.cluster in _nodes(state) else Unknown(f"no node of {alert.cluster} is known yet")


class SourceLate(SourceRule, frozen=True, kw_only=True):
    """The data of a source other than a node (a queue, W&B, files) is late, without an error.

    Defaults: our choice: late means 3 periods without data; a slow controller may need a few more
    """

    needs_for = True
    health = "late"

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        failing = {one.subject for one in state.alerts.values() if one.rule == SourceDown.name and one.is_firing}
        yield from (one for one in super().check(state, now) if one.subject not in failing)

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """Before it fires, it is also over when the source fails: `source-down` says that."""
        source = state.sources.get(alert.subject.removeprefix("source:"))
        is_failing = source is not None and source.health == "down" and alert.phase == "pending"
        return None if is_failing else super().unseen(state, alert, now)

    def problem(self, source: Source, now: Instant) -> str:
        last = "no data yet" if source.answered_at is None else f"last data {ago(now - source.answered_at)} ago"
        return f"is late: {last}"


class SourceDown(SourceRule, frozen=True, kw_only=True):
    """A source other than a node fails, or waits for a login (password, 2FA).

    Defaults: our choice: a controller that restarts responds again within minutes
    """

    health = "down"

    def problem(self, source: Source, now: Instant) -> str:
        is_login = source.phase == "held" and source.can_log_in
        what = "waits for a login" if is_login else "fails"
        return f"{what}: {clean(source.problem or 'no reason is known')}"


class ChannelFailing(MonitorRule, frozen=True, kw_only=True):
    """A channel does not accept notifications, so nobody receives them there.

    Defaults: our choice; Alertmanager's own mixin waits 5 minutes
    """

    patience: Duration = 300.0
    """How long retries may go on before the alert fires. It fires at once if the channel refuses a notification, or if
    other channels deliver for it."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        failing = [
            one
            for one in state.channels.values()
            if one.state == "broken"
            or (len(state.channels) > 1 and one.overdue)
            or (one.state == "retrying" and one.since is not None and lasted(one.since, state, now) >= self.patience)
        ]
        is_last = len(failing) == len(state.channels)
        for channel in failing:
            is_broken, since = channel.state == "broken", now if channel.since is None else channel.since
            how = "cannot send" if is_broken else f"has failed for {ago(now - since)}"
            waiting = f"; {counted(channel.waiting, 'message')} waiting" if channel.waiting else ""
            yield Finding(
                rule=self.name,
                subject=f"{CHANNEL}{channel.name}",
                severity="critical" if is_last else "warning",
                summary=f"the channel {channel.name} ({channel.type}) {how}: "
                f"{clean(channel.problem or 'no reason is known')}{waiting}"
                + ("; no other channel works" if is_last else ""),
                advice="fix it, then test it: trainmon-tui check --notify",
                since=channel.since,
                by_age=not is_broken,
            )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """It is over when the channel has accepted a message."""
        channel = state.channels.get(alert.subject.removeprefix(CHANNEL))
        return None if channel is not None and channel.state == "ok" else Unknown("nothing was sent on it since")


class OutboxOld(MonitorRule, frozen=True, kw_only=True):
    """Notifications wait in the outbox, although their channel is not known to fail.

    Defaults: our choice: the longest pause between two retries is 5 minutes; this is three of them
    """

    age: Duration = 900.0
    """How long a notification may wait."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for channel in state.channels.values():
            if channel.oldest_at is not None and now - channel.oldest_at >= self.age:
                yield Finding(
                    rule=self.name,
                    subject=f"{CHANNEL}{channel.name}",
                    severity="warning",
                    summary=f"{counted(channel.waiting, 'message')} for {channel.name} not sent,"
                    f" the oldest for {ago(now - channel.oldest_at)}",
                    evidence=(clean(channel.problem),) if channel.problem else (),
                    advice="trainmon-tui status shows what waits; trainmon-tui check --notify tries each channel",
                    since=channel.oldest_at,
                    by_age=True,
                )


class LedgerStuck(MonitorRule, frozen=True, kw_only=True):
    """The ledger cannot be written: after a crash, nobody would know what was sent.

    Defaults: our choice: a disk may hang for some seconds
    """

    for_: Duration = 10.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        if state.ledger is not None:
            yield Finding(
                rule=self.name,
                subject="self",
                severity="warning",
                summary=f"notifications are not recorded: {clean(state.ledger)}",
                advice="free space on its disk or repair it; until then notifications are sent without the ledger",
            )


class ConfigNotLoaded(MonitorRule, frozen=True, kw_only=True):
    """The config was to be loaded again and has a mistake, or others can write to it. The old one stays in use.

    Defaults: our choice: whoever edits the config expects the new one to be used
    """

    name = "config-refused"

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        if state.config is not None:
            again = ": it is read again when it changes" if state.is_dashboard else ", then send SIGHUP again"
            yield Finding(
                rule=self.name,
                subject="self",
                severity="info" if state.is_dashboard else "warning",
                summary=f"{clean(state.config)}; the old one stays in use",
                advice=f"repair the config{again}; trainmon-tui check shows all its mistakes",
            )


class RuleRaised(MonitorRule, frozen=True, kw_only=True):
    """A rule raised an error, so its problem cannot be found. The other rules are still evaluated.

    Defaults: our choice: an error that does not repeat is not worth an alert
    """

    name = RULE_RAISED

    for_: Duration = 10.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        """Yields nothing: trainmon.alerting.rules.base makes the findings."""
        yield from ()


class ClockJumped(MonitorRule, frozen=True, kw_only=True):
    """The clock jumped, or this program was suspended: nothing was watched in that time.

    Defaults: our choice
    """

    news: Duration = 600.0
    """How long the jump is reported."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        if state.clock_jumped_at is not None and now - state.clock_jumped_at < self.news:
            yield Finding(
                rule=self.name,
                subject="self",
                severity="info",
                summary=f"{state.clock_jump_why or 'the clock jumped'}; data from before it is ignored",
                advice="if this machine is sometimes suspended, run trainmon-tui --alerts-only on another one",
                since=state.clock_jumped_at,
                event=True,
            )


class UnansweredTest(MonitorRule, frozen=True, kw_only=True):
    """Nobody acknowledged the regular test notification: perhaps it reached nobody.

    Defaults: our choice: people see a notification within 24h
    """

    name = "test-unanswered"

    within: Duration = 86_400.0
    """How long people have to acknowledge the test."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for alert in state.alerts.values():
            sent_at = alert.first_notified_at
            if sent_at is not None and now - sent_at >= self.within and _is_unanswered(alert):
                yield Finding(
                    rule=self.name,
                    subject="self",
                    severity="warning",
                    summary=f"nobody acknowledged the test notification of {ago(now - sent_at)} ago",
                    evidence=tuple(f"{one.channel}: {one.state} {one.answer or ''}".rstrip() for one in alert.delivery),
                    advice=f"see whether it arrived, then acknowledge it: trainmon-tui ack {alert.id}",
                    since=sent_at,
                    by_age=True,
                )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """It is over when a test is acknowledged, not when another one is sent."""
        is_waiting = any(_is_unanswered(one) for one in state.alerts.values())
        return Unknown("the newer test is not acknowledged yet either") if is_waiting else None


def _is_unanswered(alert: Alert) -> bool:
    return alert.rule == TEST and alert.is_open and alert.acknowledged_by is None


def _errors(sources: Sequence[Source]) -> tuple[str, ...]:
    return tuple(clean(f"{source.name}: {source.problem or source.health}") for source in sources[:10])


def _nodes(state: State) -> Mapping[str, list[Source]]:
    """The watched nodes, by cluster, without those whose server does not answer."""
    nodes = (one for one in state.sources.values() if one.kind == "node" and one.health != "off")
    return group_by((source for source in nodes if not is_unread(source, state)), lambda source: source.cluster)
