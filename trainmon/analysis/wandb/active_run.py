"""Which of the matching W&B runs is active, and the progress of a run by W&B. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, repeat
from statistics import median

from msgspec.structs import replace

from trainmon.analysis.log_formats import StepLine
from trainmon.analysis.log_formats.progress import INTERVALS, is_quiet
from trainmon.analysis.wandb import metric_names
from trainmon.lib import Instant, Seconds, duration, listed
from trainmon.model import (
    RUNS_AT_MOST,
    WANDB,
    Beat,
    Checkpoints,
    GroupPhase,
    Points,
    Progress,
    Wandb,
    WandbRun,
    WandbSpec,
)

# ---- which of the matching runs is active, and what it means if none or several are ----------------------------------

TRUSTED_FOR: Seconds = 600.0
"""W&B has shown runs as running for weeks after they were gone. wandb beats every 30 s, the server gives up after 5
minutes, and wandb's own terminal UI after 10."""

SWEEP: Seconds = 300.0
"""The server marks a run as crashed this long after its last heartbeat."""

SILENT: Seconds = 180.0
"""Six heartbeats behind a newer run: it was killed, and another was resumed before the server noticed."""

BEAT: Seconds = 35.0
"""wandb sends a heartbeat at least every 30 s. An older run that is silent for less may still train."""

OVERLAP: Seconds = 30.0
"""A run that shuts down sends heartbeats for a while. Of two that train side by side, none is the restart of the
other."""

WHOLE_SECONDS: Seconds = 2.0
"""The server's times are whole seconds: the order of two such close times is unknown."""

MOVES_WITHIN: Seconds = 120.0
"""A first heartbeat may only seem old, because the server's clock is behind ours. Then a newer one follows soon."""

ALIVE = frozenset({"running", "preempting"})

ENDS: Mapping[str, str] = {
    "finished": "finished",
    "failed": "failed",
    "crashed": "crashed",
    "killed": "was killed",
    "preempted": "was preempted",
    "pending": "has not begun",
}
ENDED = frozenset(ENDS) - {"pending"}
"""States of a run that has ended."""


def read(spec: WandbSpec, runs: Sequence[WandbRun], before: Wandb | None, at: Instant, stopped: bool) -> Wandb:
    """What W&B says of a run at `at` by our clock. `runs`: newest first; `stopped`: whether a person ended the run."""
    before = before or Wandb()
    beats = {run.id: _beat(run, before.beats.get(run.id), at) for run in runs if run.state in ALIVE}
    running = [run for run in runs if run.id in beats and age(beats[run.id], at) <= TRUSTED_FOR]
    active = [run for run in running if not _is_followed(run, running)]
    # One that began after the last heartbeat of an older one trains beside that, or replaces it: the next heartbeat of
    # either shows which.
    active = [run for i, run in enumerate(active) if not any(_is_before(older, run) for older in active[i + 1 :])]
    followed = None if before.current is None else before.current.id
    active.sort(key=lambda run: run.id != followed)
    attempts = _attempts(runs, active, before)
    last = next((run for name in attempts for run in runs if run.id == name), None)
    gone_since = at if last is None else _gone_since(last, before, at)
    phase: GroupPhase = "none"
    if active:
        phase = "active" if len(active) == 1 else "several"
    elif last is not None:
        was_ended = before.phase == "ended" and before.attempts[:1] == (last.id,)
        is_new = last.id in beats and at - beats[last.id].observed_at < MOVES_WITHIN
        is_late = at - gone_since > spec.restart_grace and not is_new
        is_over = stopped or was_ended or last.state == "finished"
        phase = "ended" if is_over else "overdue" if is_late else "waiting"
    ids = tuple(run.id for run in active)
    is_first = before.phase == "none" and before.since is None  # it may have been so for longer
    since = before.since
    if since is None or phase != before.phase or (active and ids != before.active):
        began = active[0].created_at if active and is_first else None
        since = gone_since if not active and (is_first or phase in ("waiting", "overdue")) else min(at, began or at)
    why = _why(spec, phase, active, last)
    return replace(
        before, runs=tuple(runs), active=ids, phase=phase, since=since, why=why, beats=beats, attempts=attempts
    )


def age(beat: Beat, now: Instant) -> Seconds:
    """The age of a heartbeat. If no newer one has arrived, it may be older than our first poll."""
    seen = now - beat.observed_at
    return max(0.0, seen if beat.moved else max(seen, now - beat.at))


def silent_for(wandb: Wandb, run: WandbRun, now: Instant) -> Seconds | None:
    """The time since a run's last heartbeat, to be shown: by its server's clock, or by ours where the two clearly
    differ, as a heartbeat shows whose arrival we saw."""
    if run.heartbeat_at is None:
        return None
    beat = wandb.beats.get(run.id)
    if beat is not None and beat.moved and abs(beat.observed_at - beat.at) > MOVES_WITHIN:
        return age(beat, now)
    return max(0.0, now - run.heartbeat_at)


def _beat(run: WandbRun, before: Beat | None, at: Instant) -> Beat:
    beat = run.heartbeat_at or run.created_at or at
    if before is not None and (run.heartbeat_at is None or beat <= before.at):
        return before
    return Beat(beat, at, moved=before is not None)


def _is_followed(run: WandbRun, running: Sequence[WandbRun]) -> bool:
    """Whether this run is silent and a newer one sends heartbeats: for a heartbeat since the newer one began, or for
    SILENT seconds. All times are the server's, whatever our clock says."""
    last = run.heartbeat_at
    return last is not None and any(
        newer.heartbeat_at is not None and newer.heartbeat_at - last > (BEAT if _is_before(run, newer) else SILENT)
        for newer in running[: running.index(run)]
    )


def _is_before(older: WandbRun, newer: WandbRun) -> bool:
    """Whether the last heartbeat of a run came before the next one began."""
    last, began = older.heartbeat_at, newer.created_at
    return last is not None and began is not None and last < began - WHOLE_SECONDS


def are_separate(run: WandbRun, other: WandbRun) -> bool:
    """Whether two runs have trained side by side, so that none is the restart of the other."""
    if run.created_at is None or other.created_at is None:
        return False
    first, second = sorted((run, other), key=lambda one: one.created_at or 0.0)
    return first.heartbeat_at is not None and first.heartbeat_at > (second.created_at or 0.0) + OVERLAP


def _attempts(runs: Sequence[WandbRun], active: Sequence[WandbRun], before: Wandb) -> tuple[str, ...]:
    """The order in which the runs trained: as we observed it; earlier runs by their age."""
    newest = active[0] if active else max(runs, key=_end, default=None)
    attempts = before.attempts
    if newest is None or (not active and newest.id in attempts):
        return attempts
    if not attempts:
        others = sorted((run for run in runs if run is not newest), key=_end, reverse=True)
        return (newest.id, *(run.id for run in others))[:RUNS_AT_MOST]
    missed = [run.id for run in runs if run.id not in attempts and run is not newest and run.state not in ALIVE]
    attempts = attempts[1:] if newest.id == attempts[0] else attempts
    ranks = {run.id: rank for rank, run in enumerate(runs)}
    for name in reversed(missed):  # it came and went between two polls: put it before the first that is older
        older = (i for i, other in enumerate(attempts) if ranks.get(other, len(runs)) > ranks[name])
        i = next(older, len(attempts))
        attempts = (*attempts[:i], name, *attempts[i:])
    return (newest.id, *attempts)[:RUNS_AT_MOST]


def _end(run: WandbRun) -> Instant:
    return run.heartbeat_at or run.created_at or 0.0


def _gone_since(last: WandbRun, before: Wandb, at: Instant) -> Instant:
    """Since when no run is active: as we observed it, else by the last heartbeat."""
    if before.phase in ("waiting", "overdue") and before.since is not None and before.attempts[:1] == (last.id,):
        return before.since
    late = SWEEP if last.state == "crashed" else TRUSTED_FOR if last.state in ALIVE else 0.0
    return at if before.phase in ("active", "several") else min(at, _end(last) + late)


def _why(spec: WandbSpec, phase: GroupPhase, active: Sequence[WandbRun], last: WandbRun | None) -> str:
    if last is None:
        return f"W&B has no run that matches {spec.description}"
    ended, grace = f"{label(last)} {how_it_ended(last)}", duration(spec.restart_grace)
    match phase:
        case "active":
            return f"{label(active[0])} is running"
        case "several":
            named = listed([label(run) for run in active])
            return f"{len(active)} runs are active where one is expected: {named}, in {spec.description}"
        case "ended":
            return ended + ("" if last.state == "finished" else "; the run was stopped")
        case "overdue":
            return f"{ended}, and no new run has started within {grace}"
    return f"{ended}; waiting up to {grace} for the next W&B run"


def label(run: WandbRun) -> str:
    """A run as a person knows it: its display name, and its id where that is another."""
    return run.id if run.name in ("", run.id) else f"{run.name} ({run.id})"


def how_it_ended(run: WandbRun) -> str:
    """`crashed at step 12,000`; of one that is running to W&B alone, what is known."""
    step = metric_names.step_of(run)
    where = "" if step is None else f" at step {step:,}"
    if run.state in ALIVE:
        return f"is {run.state} according to W&B, but sends no heartbeat{where and ', last' + where}"
    return f"{ENDS.get(run.state, 'is ' + run.state)}{where}"


# ---- shared checkpoints ----------------------------------------------------------------------------------------------

DIRECTORY = re.compile(
    r"(?:out|output|save|ckpts?|checkpoints?|dump|default_root)_?(?:dir|directory|folder|path|root)?|dirpath"
)
"""Settings that name where a trainer saves: `output_dir` (Hugging Face), `out_dir` (nanoGPT), `save` (Megatron),
`checkpoints_path` (nanotron), `save_folder` (OLMo), `dump_folder` (torchtitan), `dirpath` (Lightning)."""


def shared_checkpoints(active: Sequence[WandbRun], checkpoints: Checkpoints | None) -> str | None:
    """What shows that two of these runs write the same checkpoints; None if nothing does."""
    named: dict[tuple[str, str], str] = {}
    for run in active:
        for key, path in _directories(run):
            if named.setdefault((key, path), run.id) != run.id:
                return f"both save to {path} ({key} in their W&B configs)"
    known = [{path for _, path in _directories(run)} for run in active]
    if checkpoints is None or all(known):  # each names a directory of its own
        return None
    began = max((run.created_at or 0.0 for run in active), default=0.0)
    saved = sorted(
        (one.at, one.step) for one in checkpoints.list if one.at is not None and one.at > began and one.step is not None
    )
    for (_, before), (_, after) in pairwise(saved):
        if after < before:
            return f"{checkpoints.path}: step {after:,} was saved after step {before:,}, while both were active"
    return None


def _directories(run: WandbRun) -> Iterable[tuple[str, str]]:
    for name, value in run.config.items():
        key = re.split(r"[./]", name)[-1]
        # `save` may be a switch, and `out_dir` may be a bare name.
        is_path = "/" in value or (value and key.lower().endswith(("dir", "folder", "directory")))
        if is_path and DIRECTORY.fullmatch(key.lower().replace("-", "_")):
            yield key, value.rstrip("/")


# ---- the progress of a run by W&B, where its log shows nothing -------------------------------------------------------

THINNED = 5_000
"""A first history of more points than these was thinned by the server: its gaps are not those of the logging."""


def stepped_at(before: Wandb | None, run: WandbRun, at: Instant) -> Instant | None:
    """When the step last advanced, by our clock: as the run says of its last row, which lies between two looks."""
    step, old, logged = metric_names.step_of(run), None if before is None else before.current, run.logged_at
    if step is None:
        return None
    if before is None or old is None or old.path != run.path:
        return min(at, logged or run.heartbeat_at or run.created_at or at)
    known = metric_names.step_of(old)
    if known is not None and step <= known:
        return before.stepped_at
    return at if logged is None else max(min(logged, at), before.polled_at or logged)


def polled(progress: Progress, before: Wandb | None, wandb: Wandb, at: Instant) -> Progress:
    """Take in the latest values of the current run."""
    run = wandb.current
    if run is None:
        return progress
    step, old = metric_names.step_of(run), None if before is None else before.current
    is_other = old is not None and old.path != run.path
    if is_other:
        # The values of an earlier attempt end with it: its NaN is not a NaN of the next one.
        progress = replace(progress, **dict.fromkeys(progress.borrowed), borrowed=())
    if step is not None and _counts(progress, step, wandb.stepped_at, at):
        is_reset = progress.format != WANDB or step < (progress.step or 0) or is_other
        progress = replace(
            progress,
            step=step,
            at=wandb.stepped_at if step != progress.step or is_reset else progress.at,
            format=WANDB,
            doing="train",
            busy_since=None,
            skipping_since=None,
            intervals=() if is_reset else progress.intervals,
            cadence_s=None if is_reset else progress.cadence_s,
        )
    loss = run.summary.get(metric_names.loss_of(wandb.keys) or "")
    values = {
        "loss": loss if isinstance(loss, (int, float)) else metric_names.value_of(run, "loss"),
        "grad_norm": metric_names.value_of(run, "grad_norm"),
        "tokens_per_s": metric_names.value_of(run, "throughput"),
        "learning_rate": metric_names.value_of(run, "learning_rate"),
    }
    return _borrowing(progress, values)


def _counts(progress: Progress, step: int, stepped: Instant | None, at: Instant) -> bool:
    """Whether W&B's steps are the run's: no log counts them, or the log has stopped while W&B's steps go on."""
    if progress.format in (None, WANDB) or progress.at is None:
        return True
    has_advanced = stepped is not None and stepped > progress.at and step > (progress.step or 0)
    return has_advanced and is_quiet(progress, at)


def _borrowing(progress: Progress, values: dict[str, float | None]) -> Progress:
    """Take the values that no log shows."""
    new = {
        name: value
        for name, value in values.items()
        if value is not None
        and (progress.format == WANDB or name in progress.borrowed or getattr(progress, name) is None)
    }
    return replace(progress, **new, borrowed=tuple(dict.fromkeys((*progress.borrowed, *new)))) if new else progress


def grew(
    progress: Progress,
    run: WandbRun,
    points: Points,
    stepped: Instant | None,
    *,
    first: bool,
    numbers: Sequence[float] = (),
) -> Progress:
    """Learn the pace from rows that came. `first`: they are the first of this run, and may be thinned. `numbers`: those
    of the rows, where they are known."""
    gaps = _gaps(points.times)
    if metric_names.step_of(run) == run.step and gaps:  # its counter counts steps, and not calls of log()
        gained = _gaps(points.steps)
        paces = [gap / more for gap, more in zip(gaps, gained, strict=True) if gap > 0 and more > 0]
        progress = _borrowing(progress, {"step_time_s": median(paces) if paces else None})
    if progress.format != WANDB:
        return progress
    if first and stepped is not None and progress.at is not None:
        progress = replace(progress, at=min(progress.at, stepped))
    known = [gap / rows for gap, rows in zip(gaps, _gaps(numbers) or repeat(1.0), strict=False) if gap > 0]
    if not known or (first and len(points.times) > THINNED):
        return progress
    intervals = (*progress.intervals, *known)[-INTERVALS:]
    return replace(progress, intervals=intervals, cadence_s=median(intervals))


def _gaps(column: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(column[-INTERVALS - 1 :])]


def counts(progress: Progress) -> bool:
    """Whether W&B counts the steps."""
    return progress.format == WANDB


def without_wandb_steps(progress: Progress, line: StepLine) -> Progress:
    """The progress as a line of the log finds it: where that has a step, what W&B has counted gives way."""
    if not counts(progress) or line.step is None:
        return progress
    return replace(progress, format=None, intervals=(), cadence_s=None)


def without_own_borrowed(progress: Progress) -> Progress:
    """The progress without borrowed values that the log prints itself."""
    borrowed = tuple(name for name in progress.borrowed if name not in progress.printed)
    return progress if borrowed == progress.borrowed else replace(progress, borrowed=borrowed)
