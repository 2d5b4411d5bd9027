"""Rules about W&B: several active runs where one is expected, the crash of one of them, and a lost heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, Unknown
from trainmon.alerting.rules.runs.base import LIVING, OVER, UNKNOWN, RunRule, wandb_source
from trainmon.analysis.wandb import are_separate, how_it_ended, label, shared_checkpoints
from trainmon.lib import Instant, Seconds
from trainmon.model import Finding, Run, State, Wandb, WandbRun, verdict_text

LOST = ("waiting", "overdue")

SHUTDOWN: Seconds = 20.0
"""A run that shuts down may send heartbeats for this long beside the next one. Two that are active for longer have held
the rule's `for` before W&B was polled."""


class WandbRule(RunRule, frozen=True, kw_only=True):
    """Needs only W&B."""

    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return wandb_source(state, run)

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        if run.wandb is None:
            yield self.unknown(run, "no data from W&B yet")
        else:
            yield from self.check_wandb(state, run, run.wandb, now)

    def check_wandb(self, state: State, run: Run, wandb: Wandb, now: Instant) -> Iterator[Finding | Unknown]:
        """The findings about a run that W&B knows."""
        raise NotImplementedError


class WandbSeveralActive(WandbRule, frozen=True, kw_only=True):
    """Several W&B runs are active where exactly one is expected: critical if two of them write the same checkpoints."""

    name: ClassVar[str] = "wandb-several-active"
    origin: ClassVar[str] = "Linum: exactly one active run in a group; anything else is an error"
    needs_for: ClassVar[bool] = True

    for_: Duration = 15.0
    """How long the condition must hold before the alert fires: the previous run may still be shutting down."""

    def check_wandb(self, state: State, run: Run, wandb: Wandb, now: Instant) -> Iterator[Finding]:
        if wandb.phase != "several":
            return
        known = {one.id: one for one in wandb.runs}
        active = [known[name] for name in wandb.active if name in known]
        shared = shared_checkpoints(active, run.checkpoints)
        newest = max((one.created_at for one in active if one.created_at is not None), default=None)
        pages = tuple(f"{label(one)}: {one.url or one.path}" for one in active[:10])
        yield self.finding(
            state,
            run,
            "warning" if shared is None else "critical",
            f"W&B of {run.name}: {wandb.why}" + ("" if shared is None else "; they write the same checkpoints"),
            evidence=pages if shared is None else (shared, *pages),
            advice="end the wrong one (key 7, C cancels its job), or give each its own W&B group",
            since=wandb.since,
            fires_at_once=newest is not None and now - newest >= max(self.for_, SHUTDOWN),
        )


class WandbRunCrashed(WandbRule, frozen=True, kw_only=True):
    """One of several active W&B runs has crashed or sends no heartbeat any more, and another one is still active."""

    name: ClassVar[str] = "wandb-run-crashed"
    origin: ClassVar[str] = "our choice"

    new_for: Duration = 900.0
    """A daemon that starts after the event still reports it, until this long after the last heartbeat."""

    def check_wandb(self, state: State, run: Run, wandb: Wandb, now: Instant) -> Iterator[Finding]:
        crashed = _crashed_beside(wandb)
        if crashed is None or crashed.heartbeat_at is None or now - crashed.heartbeat_at > self.new_for:
            return
        known = {one.id: one for one in wandb.runs}
        others = ", ".join(label(known[name]) for name in wandb.active[:3])
        yield self.finding(
            state,
            run,
            "warning",
            f"W&B of {run.name}: of several active runs, {label(crashed)} {how_it_ended(crashed)}; "
            f"{others} {'is' if len(wandb.active) == 1 else 'are'} still active",
            evidence=(f"{label(crashed)}: {crashed.url or crashed.path}",),
            advice="if it was the wrong one, there is nothing to do; otherwise end the other one and start it again",
            since=self.first_reported(
                state, run, crashed.heartbeat_at, now, 30.0, lambda one: f" {label(crashed)} " in one.summary
            ),
            event=True,
            fires_at_once=True,
        )


def _crashed_beside(wandb: Wandb) -> WandbRun | None:
    """The run that ended last of those that trained beside the followed one, if it did not end regularly."""
    current = wandb.current
    if current is None or current.id not in wandb.active:
        return None
    ended = [
        one
        for one in wandb.runs
        if one.id not in wandb.active and one.state not in ("finished", "pending") and are_separate(one, current)
    ]
    return max(ended, key=lambda one: one.heartbeat_at or 0.0, default=None)


class WandbHeartbeatLost(WandbRule, frozen=True, kw_only=True):
    """W&B receives no heartbeat from the run any more, and nothing else says that the run has ended."""

    name: ClassVar[str] = "wandb-heartbeat-lost"
    origin: ClassVar[str] = "W&B's server gives up after 5m; a lost heartbeat does not mean an end"
    needs_for: ClassVar[bool] = True

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires: a network failure of some minutes is not a fault of the
    run."""

    def check_wandb(self, state: State, run: Run, wandb: Wandb, now: Instant) -> Iterator[Finding | Unknown]:
        if wandb.phase not in LOST or run.verdict in OVER | {"queued"}:
            return
        is_going = run.verdict in LIVING
        if not is_going and not (wandb.phase == "overdue" and run.verdict in UNKNOWN | {"starting"}):
            yield self.unknown(run, f"W&B receives no heartbeat, and {run.name} is {verdict_text(run.verdict)}")
            return
        also = (
            "; its log shows that training continues" if is_going else f"; it is {verdict_text(run.verdict)}: {run.why}"
        )
        current = wandb.current
        yield self.finding(
            state,
            run,
            "warning",
            f"W&B receives no heartbeat from {run.name}: {wandb.why}{also}",
            evidence=() if current is None else (f"{label(current)}: {current.url or current.path}",),
            advice="check whether its nodes reach W&B (see its log, key 4); its data stays on the node and can "
            "be sent later: wandb sync",
            since=wandb.since,
        )
