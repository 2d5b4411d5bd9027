"""Which sources are still to answer before the attempts of a run are known. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.steps import AFTER
from trainmon.lib import Instant, Seconds, duration
from trainmon.model import Run, State

READ_WITHIN: Seconds = 10.0
"""How long the ledger may need to read its attempts."""


def unrecorded(state: State) -> Mapping[str, tuple[str, ...]]:
    """By source: the runs of which no attempt is recorded while it does not answer. Slurm would say whether they are
    its jobs; W&B, for a minute after the start, which of its runs they are."""
    found: dict[str, tuple[str, ...]] = {}
    for run in state.runs.values():
        if run.jobs or run.spec.process is not None or receipts.of_run(run, state):
            continue
        has_log = run.log is not None and run.log.path is not None
        asks_slurm = may_have_jobs(run, state) and (has_log or run.wandb is not None)
        awaits_wandb = has_log and run.wandb is None and run.spec.wandb is not None and may_have_others(run, state)
        name = f"slurm:{run.spec.cluster}" if asks_slurm else f"wandb:{run.name}" if awaits_wandb else ""
        source = state.sources.get(name)
        if source is not None and source.health in ("late", "down"):
            found[name] = (*found.get(name, ()), run.name)
    return found


def may_have_jobs(run: Run, state: State) -> bool:
    """Whether its scheduler has not answered since its log began. A source that needs long to appear does not exist.
    Where there is no squeue, there are no jobs."""
    cluster, source = state.clusters.get(run.spec.cluster), state.sources.get(f"slurm:{run.spec.cluster}")
    if cluster is not None and cluster.has_slurm is False:
        return False
    if source is None:
        return state.at - state.started_at < AFTER
    if source.health == "off":
        return False
    began = None if run.log is None else run.log.began_at
    return source.answered_at is None or (began is not None and source.answered_at < began + AFTER)


def may_have_others(run: Run, state: State) -> bool:
    """Whether the log may belong to an attempt that the ledger holds, or to a W&B run that has not been read yet."""
    wants_wandb = run.spec.wandb is not None and state.at - state.started_at < AFTER
    return wants_wandb or not is_restored(state)


def is_restored(state: State) -> bool:
    """Whether the ledger's attempts are in the State. A ledger that does not answer is not waited for."""
    return state.has_restored_attempts or state.at - state.started_at >= READ_WITHIN


def silence(name: str, answered_at: Instant | None, error: str | None, now: Instant) -> str:
    """`Slurm of prod has not answered for 3m (no controller)`."""
    kind, _, of = name.partition(":")
    who = f"Slurm of {of}" if kind == "slurm" else f"W&B, for {of},"
    since = "yet" if answered_at is None else f"for {duration(now - answered_at)}"
    return f"{who} has not answered {since}" + ("" if error is None else f" ({error})")
