"""An attempt with what its run shows of it: steps, checkpoints, W&B, log. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.analysis.attempts import provenance
from trainmon.analysis.attempts.logs import began_at, latest_of, lines_of, owns_log
from trainmon.analysis.attempts.steps import AFTER, BEFORE, before_next_start, stepped, with_checkpoints
from trainmon.analysis.runs import target
from trainmon.lib import Instant
from trainmon.model import Attempt, Run, State


def attempt_of(run: Run, name: str, seen_at: Instant) -> Attempt:
    """An attempt that no scheduler knows, with what the config says of its run."""
    return Attempt(
        attempt_id=f"{run.name}/{name}",
        run_id=run.name,
        cluster=run.spec.cluster,
        model_family=run.spec.model_family,
        labels=run.spec.labels,
        nodes=run.spec.nodes,
        target_step=target(run),
        seen_at=seen_at,
    )


def with_run(attempt: Attempt, run: Run, state: State, began: Instant | None, *, is_newest: bool) -> Attempt:
    """The attempt with what its run shows of it: steps, checkpoints, W&B, log. `began` is by our clock."""
    until = attempt.ended_at or state.at
    latest = latest_of(attempt, run, state)
    is_own = is_newest and owns_log(attempt, run, state)
    if is_own and run.log is not None:
        attempt = replace(attempt, log_path=run.log.path or attempt.log_path, log_host=run.log.host)
    if is_own or not is_newest:
        spans = run.memory.spans if attempt.end is None else before_next_start(run.memory.spans, until)
        attempt = stepped(attempt, spans, began, latest, state.started_at)
    progress = run.progress
    is_own = is_newest and (began or 0.0) <= (progress.at or 0.0) <= latest
    if is_own and all(one.first is None for one in run.memory.spans):  # a progress bar, or W&B's steps
        attempt = replace(attempt, last_step=progress.step)
    wandb = provenance.wandb_during(run, began, until) if is_newest else None
    if wandb is not None:
        attempt = provenance.with_wandb(attempt, wandb)
    return with_checkpoints(attempt, run, latest)


def with_log(seen: Attempt, run: Run, state: State) -> tuple[Attempt, tuple[str, ...]]:
    """The newest attempt of a run, which was not watched to its end, with what its run shows of it, and the lines of
    its log: if the log was last written while it ran."""
    log, at = run.log, None if run.log is None else run.log.at
    began = seen.started_at or 0.0 if seen.job_id is None else began_at(seen.started_at, run, state)
    if at is None or began is None or not began - BEFORE <= at <= (seen.ended_at or state.at) + AFTER:
        return seen, ()
    seen = with_run(seen, run, state, began, is_newest=True)
    return seen, lines_of(log, seen.log_path, is_newest=True)
