"""Rules about W&B: several active runs where one is expected, and a lost heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trainmon.alerting.rules.base import Duration
from trainmon.alerting.rules.runs.base import LIVING, OVER, UNKNOWN, RunRule, wandb_source
from trainmon.analysis.wandb import label
from trainmon.lib import Instant
from trainmon.model import Finding, Run, State

LOST = ("waiting", "overdue")


class WandbRule(RunRule, frozen=True, kw_only=True):
    """Needs only W&B."""

    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return wandb_source(state, run)

    def unclear(self, state: State, run: Run, now: Instant) -> str | None:
        return "W&B has not answered yet" if run.wandb is None else None


class WandbSeveralActive(WandbRule, frozen=True, kw_only=True):
    """Several W&B runs are active where exactly one is expected: two trainings may write the same checkpoints."""

    name: ClassVar[str] = "wandb-several-active"
    origin: ClassVar[str] = "Linum: exactly one active run in a group; anything else is an error"
    needs_for: ClassVar[bool] = True

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: the previous run may still be shutting down."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        wandb = run.wandb
        if wandb is None or wandb.phase != "several":
            return
        known = {one.id: one for one in wandb.runs}
        active = [known[name] for name in wandb.active if name in known]
        yield self.finding(
            state,
            run,
            "warning",
            f"W&B of {run.name}: {wandb.why}",
            evidence=tuple(f"{label(one)}: {one.url or one.path}" for one in active[:10]),
            advice="end the wrong one (key 7, C cancels its job), or give each its own W&B group",
            since=wandb.since,
        )


class WandbHeartbeatLost(WandbRule, frozen=True, kw_only=True):
    """W&B receives no heartbeat from the run any more, and nothing else says that the run has ended."""

    name: ClassVar[str] = "wandb-heartbeat-lost"
    origin: ClassVar[str] = "W&B's server gives up after 5m; a lost heartbeat does not mean an end"
    needs_for: ClassVar[bool] = True

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires: a network failure of some minutes is not a fault of the
    run."""

    def unclear(self, state: State, run: Run, now: Instant) -> str | None:
        is_lost = run.wandb is not None and run.wandb.phase in LOST and run.verdict not in OVER | {"queued"}
        why = super().unclear(state, run, now)
        return f"W&B receives no heartbeat, and {run.name} is {run.verdict}" if is_lost else why

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        wandb = run.wandb
        if wandb is None or wandb.phase not in LOST:
            return
        is_going = run.verdict in LIVING
        if not is_going and not (wandb.phase == "overdue" and run.verdict in UNKNOWN | {"starting"}):
            return
        also = "; its log shows that training continues" if is_going else f"; it is {run.verdict}: {run.why}"
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
