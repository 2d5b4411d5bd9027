"""One story: a fake clock, sources that speak or do not, findings as the story has them, the real engine and alerting,
and a post that remembers what was handed over.

    with Story(phone(), gpu_hot(for_=300)) as story:
        story.at(10).wrong("gpu-hot", "gpu:gpu-001/3", node="gpu-001")
        story.at(320).expect("fire", "gpu:gpu-001/3")

At its end nothing else may have been sent.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

import msgspec
from msgspec.structs import replace

from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import HeartbeatSpec, Routing
from trainmon.alerting.rules import Rule
from trainmon.engine.engine import Engine
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    Alert,
    AlertChanges,
    AlertRequest,
    AlertRequested,
    AlertsRestored,
    Event,
    Finding,
    Leadership,
    LeadershipChanged,
    Notice,
    Route,
    Severity,
    Silence,
    Source,
    SourceChanged,
    SourceRemoved,
    State,
    StoredAlerts,
)

BEGIN: Instant = 1_750_000_000.0
NODE = "node:gpu-001"


class FakeClock:
    """Both clocks; a story sets them apart."""

    def __init__(self, wall: Instant = BEGIN) -> None:
        self.wall, self.steady = wall, 50.0

    def now(self) -> Instant:
        return self.wall

    def monotonic(self) -> Seconds:
        return self.steady


class Kept:
    """What a ledger would know: everything that was handed over, and nothing more."""

    def __init__(self) -> None:
        self.alerts: dict[str, Alert] = {}
        self.silences: dict[str, Silence] = {}
        self.memory: dict[str, Instant] = {}
        self.history: list[tuple[str, str, str]] = []
        self.notices: list[Notice] = []
        self.requests_until = 0
        self.at: Instant | None = None
        self.faults: list[str] = []
        """What no ledger would take."""
        self.is_stuck = False
        """Whether what is handed over from now on is lost, as by a crash before it was written."""

    def enqueue(self, changes: AlertChanges) -> None:
        if self.is_stuck:
            return
        self.alerts |= {alert.id: alert for alert in changes.alerts}
        self.silences |= {silence.id: silence for silence in changes.silences}
        self.memory |= changes.memory
        self.history += changes.history
        known = {notice.key for notice in self.notices}
        for notice in changes.notices:
            self._check(notice, known)
            known.add(notice.key)
        self.notices += changes.notices
        self.requests_until = changes.requests_until or self.requests_until

    def _check(self, notice: Notice, known: Container[str]) -> None:
        if notice.key in known:
            self.faults.append(f"the key {notice.key} was used before")
        if not notice.reason or not notice.channels:
            self.faults.append(f"{notice.key}: no reason, or no channel")

    def stored(self) -> StoredAlerts:
        return StoredAlerts(
            alerts=tuple(self.alerts.values()),
            silences=tuple(self.silences.values()),
            requests_until=self.requests_until,
            memory=dict(self.memory),
            at=self.at,
        )


class Scripted(Rule, frozen=True, kw_only=True):
    """A rule that finds what the story says."""

    findings: dict[tuple[str, str], Finding] = msgspec.field(default_factory=dict)
    broken: list[str] = msgspec.field(default_factory=list)

    def check(self, state: State, now: Instant) -> Iterable[Finding]:  # type: ignore[override]
        if self.name in self.broken:
            raise ValueError("the story broke it")
        return [finding for finding in self.findings.values() if finding.rule == self.name]


def rule(
    name: str, *, for_: Seconds = 0.0, keep_firing_for: Seconds = 60.0, may_flap: bool = True, **settings: Any
) -> Rule:
    """A rule of this name, for stories: its findings are set by `wrong` and `well`."""
    names = {"name": name, "family": "runs", "may_flap": may_flap, "__module__": __name__}
    made = msgspec.defstruct(name.replace("-", "_"), [], bases=(Scripted,), namespace=names, frozen=True, kw_only=True)
    return cast("Rule", made(for_=for_, keep_firing_for=keep_firing_for, **settings))


def phone(severity: Severity = "critical", **changes: Any) -> Route:
    return Route(channel="phone", severity=severity, **changes)


def mail(severity: Severity = "warning", **changes: Any) -> Route:
    return Route(channel="mail", severity=severity, **changes)


class Story:
    """See above. Times are seconds since it began."""

    def __init__(
        self,
        *parts: Rule | Route,
        sources: Sequence[str] = (NODE,),
        heartbeat: HeartbeatSpec | None = None,
        runs_once: bool = False,
        **routing: Any,
    ) -> None:
        self.clock = FakeClock()
        self.kept = Kept()
        self.findings: dict[tuple[str, str], Finding] = {}
        self.broken: list[str] = []
        self.hurried: list[str] = []
        self.rules = tuple(self._wired(part) for part in parts if isinstance(part, Rule))
        routes = tuple(part for part in parts if isinstance(part, Route)) or (phone("info"),)
        self.routing = Routing(routes=routes, **{"group_wait": 0.0, **routing})
        self.heartbeat = heartbeat
        self.runs_once = runs_once
        self.sources: dict[str, Source] = {}
        self.silent: set[str] = set()
        self.expected: set[str] = set()
        """The keys of the notices that the story expected."""
        self._pending: list[Event] = []
        self._began = self.clock.wall
        self.speak(*sources)
        self._start(None)

    def _wired(self, part: Rule) -> Rule:
        return replace(part, findings=self.findings, broken=self.broken) if isinstance(part, Scripted) else part

    def _start(self, stored: StoredAlerts | None) -> None:
        self._tokens = 0
        self.alerting = AlertManager(
            self.rules,
            self.routing,
            self.kept,
            heartbeat=self.heartbeat,
            clock=self.clock,
            poll_soon=self.hurried.append,
            runs_once=self.runs_once,
            token=self._token,
        )
        self.engine = Engine(self.clock, alerting=self.alerting)
        self._pending += [LeadershipChanged(Leadership(holder="us")), AlertsRestored(stored or StoredAlerts())]
        self._tick()

    def _token(self) -> str:
        self._tokens += 1
        return f"secret-{self._tokens}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.expect_nothing_else()
            assert not self.kept.faults

    # ---- what happens ------------------------------------------------------------------------------------------------

    @property
    def elapsed(self) -> Seconds:
        return self.clock.steady - 50.0

    def at(self, seconds: Seconds, tick: Seconds = 1.0) -> Self:
        """Let time pass until then, with a look every tick."""
        while self.elapsed < seconds - 1e-6:
            passed = min(tick, seconds - self.elapsed)
            self.clock.wall += passed
            self.clock.steady += passed
            self._tick()
        return self

    def wrong(
        self,
        rule: str,
        subject: str,
        severity: Severity = "critical",
        *,
        sources: Sequence[str] = (NODE,),
        since: Seconds | None = None,
        **more: Any,
    ) -> Self:
        """From the next look on this is found. `since` in seconds of the story."""
        more = {"summary": f"{subject} is wrong", "cluster": "prod"} | more
        if subject.startswith("gpu:"):
            more.setdefault("node", subject.removeprefix("gpu:").partition("/")[0])
        if subject.startswith(("node:", "run:")):
            kind, _, name = subject.partition(":")
            more.setdefault(kind, name)
        stamp = None if since is None else self._began + since
        finding = Finding(rule=rule, subject=subject, severity=severity, sources=tuple(sources), since=stamp, **more)
        self.findings[rule, subject] = finding
        return self

    def well(self, *subjects: str) -> Self:
        """From the next look on nothing is found of these; of nothing at all without any."""
        for key in list(self.findings):
            if not subjects or key[1] in subjects:
                del self.findings[key]
        return self

    def speak(self, *names: str, cluster: str = "prod", **changes: Any) -> Self:
        """These sources answer from now on."""
        for name in names:
            kind = name.partition(":")[0]
            self.sources[name] = Source(name=name, kind=kind, cluster=cluster, phase="up", period=30.0, **changes)  # type: ignore[arg-type]
            self.silent.discard(name)
        return self

    def fall_silent(self, *names: str) -> Self:
        self.silent |= set(names)
        return self

    def fail(self, name: str, error: str) -> Self:
        """This source says what is wrong with it."""
        self.silent.discard(name)
        self.sources[name] = replace(self.sources[name], error=error, phase="retrying", answered_at=None)
        return self

    def leave_the_config(self, name: str) -> Self:
        self.sources.pop(name)
        return self.hear(SourceRemoved(name))

    def hear(self, *events: Event) -> Self:
        """These come with the next look."""
        self._pending += events
        return self

    def order(self, verb: str, alert: str | None = None, *, number: int | None = None, **more: Any) -> Self:
        order = AlertRequest(verb=verb, at=self.clock.wall, by=more.pop("by", "ann"), alert=alert, **more)  # type: ignore[arg-type]
        return self.hear(AlertRequested(order, number))

    def mute(self, seconds: Seconds, *, id: str = "m1", **parts: Any) -> Self:  # noqa: A002 — as in the Silence
        until = self.clock.wall + seconds
        silence = Silence(id=id, until=until, by="ann", why="known", made_at=self.clock.wall, **parts)
        return self.order("mute", silence=silence)

    def sleep(self, seconds: Seconds) -> Self:
        """The machine sleeps: the steady clock stands still, and nobody looks."""
        self.clock.wall += seconds
        return self

    def set_clock(self, seconds: Seconds) -> Self:
        """Somebody sets the clock."""
        self.clock.wall += seconds
        self._began += seconds
        return self

    def restart(self, down_for: Seconds = 0.0) -> Self:
        """The program ends as by kill -9, and starts again with what was handed over."""
        self.kept.is_stuck = False
        self.clock.wall += down_for
        self.clock.steady += down_for
        self._start(self.kept.stored())
        return self

    def _tick(self) -> None:
        events: list[Event] = []
        for name, source in self.sources.items():
            if name not in self.silent:
                seen = None if source.error is not None else self.clock.wall
                events.append(SourceChanged(replace(source, answered_at=seen)))
        events += self._pending
        self._pending = []
        self.engine.step(events, self.clock.wall)
        if not self.kept.is_stuck:
            self.kept.at = self.clock.wall

    # ---- what is seen ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.engine.state

    def alert(self, rule: str, subject: str | None = None) -> Alert:
        """The newest episode of this rule."""
        found = [
            alert
            for alert in self.state.alerts.values()
            if alert.rule == rule and (subject is None or alert.subject == subject)
        ]
        assert found, f"no alert of {rule}: {sorted(alert.rule for alert in self.state.alerts.values())}"
        return max(found, key=lambda alert: (alert.is_open, alert.found_at))

    def new(self) -> list[Notice]:
        """What was sent and not yet expected."""
        return [notice for notice in self.kept.notices if notice.key not in self.expected]

    def expect(
        self,
        kind: str,
        *subjects: str,
        on: Sequence[str] | None = None,
        reason: str | None = None,
        count: int | None = None,
    ) -> Notice:
        """That one message of this kind went out, of these subjects (among them, with `count`)."""
        for notice in self.new():
            notified = {alert.subject for alert in notice.alerts}
            if notice.kind != kind or not (
                notified >= set(subjects) if count else notified == set(subjects) or not subjects
            ):
                continue
            assert count is None or len(notice.alerts) + notice.more == count, f"{_short(notice)}: not {count}"
            assert on is None or set(notice.channels) == set(on), f"{_short(notice)}: not on {on}"
            assert reason is None or reason in notice.reason, f"{_short(notice)}: not {reason!r}"
            self.expected.add(notice.key)
            return notice
        raise AssertionError(f"no {kind} of {subjects}; sent: {[_short(notice) for notice in self.new()]}")

    def expect_nothing_else(self) -> Self:
        assert not self.new(), f"also sent: {[_short(notice) for notice in self.new()]}"
        return self

    def why_not_told(self, alert: Alert) -> str:
        """The reason in the history for which an alert that fires was told to no one."""
        found = [words for name, what, words in self.kept.history if name == alert.id and what == "not told"]
        return found[-1] if found else ""


def _short(notice: Notice) -> str:
    subjects = sorted(alert.subject for alert in notice.alerts)
    more = f" and {len(subjects) + notice.more - 3} more" if len(subjects) > 3 else ""
    return f"{notice.kind} {', '.join(subjects[:3])}{more} ({notice.reason}) → {', '.join(notice.channels)}"


def parts(notices: Iterable[Notice]) -> Mapping[str, int]:
    """How many messages of each kind."""
    found: dict[str, int] = {}
    for notice in notices:
        found[notice.kind] = found.get(notice.kind, 0) + 1
    return found
