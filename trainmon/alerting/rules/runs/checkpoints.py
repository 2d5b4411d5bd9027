"""Rules about a run's checkpoints: one is overdue, the last is torn, a restart would fail or take another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, Unknown, ago
from trainmon.alerting.rules.runs import advice
from trainmon.alerting.rules.runs.base import BETWEEN, LIVING, RunRule, present_in
from trainmon.analysis.checkpoints import NONE_FOUND, names_count_steps, steps_at_risk
from trainmon.lib import Instant, counted, duration
from trainmon.model import Checkpoints, Finding, Run, State


class CheckpointRule(RunRule, frozen=True, kw_only=True):
    """Needs the host that lists the directory."""

    by_age: ClassVar[bool] = True
    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        host = None if run.checkpoints is None else run.checkpoints.host
        return (f"node:{host}",) if host is not None and f"node:{host}" in state.sources else ()

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        if run.checkpoints is None:
            yield self.unknown(run, "its checkpoints have not been listed yet")
        elif run.checkpoints.error is not None:
            yield self.unknown(run, f"its checkpoints cannot be listed: {run.checkpoints.error}")
        else:
            yield from self.check_listed(state, run, run.checkpoints, now)

    def check_listed(self, state: State, run: Run, known: Checkpoints, now: Instant) -> Iterator[Finding | Unknown]:
        """The findings about a run whose directory could be listed."""
        raise NotImplementedError


class CheckpointOverdue(CheckpointRule, frozen=True, kw_only=True):
    """The run trains, but has committed no checkpoint for longer than its usual interval."""

    name: ClassVar[str] = "checkpoint-overdue"
    origin: ClassVar[str] = "twice its own interval; BLOOM lost 7h with sparse saves, then saved every 3h"
    unknown_while: ClassVar[frozenset[str]] = BETWEEN

    times: float = 2.0
    """The alert fires after this many times the usual interval, in steps (if known) and in time. Both must be exceeded,
    because names may count epochs."""
    first: Duration = 21_600.0
    """How long a job may train without a first checkpoint."""
    for_: Duration = 120.0

    def check_listed(self, state: State, run: Run, known: Checkpoints, now: Instant) -> Iterator[Finding | Unknown]:
        if known.unrecognised is not None:
            yield self.unknown(run, f"the format of {known.unrecognised.title} is not recognised")
        elif known.writing is not None:
            yield self.unknown(run, "a checkpoint is being written now")
        elif run.verdict in LIVING and (text := self._late(state, run, known, now)) is not None:
            lost = steps_at_risk(run)
            risk = f"; {counted(lost, 'step')} are at risk" if lost else ""
            yield self.finding(
                state,
                run,
                "warning",
                f"{text}{risk}",
                evidence=(known.path, *((known.note,) if known.note else ())),
                advice=f"{advice.saves(run)}; see whether its disk is full (key 3), and its log (key 4)",
                since=None if known.committed is None else known.committed.at,
            )

    def _late(self, state: State, run: Run, known: Checkpoints, now: Instant) -> str | None:
        """How late its checkpoint is, in a sentence; None if it is not."""
        last, age, step = known.committed, known.committed_age_s, run.progress.step
        if last is None:
            job = present_in(state, run)
            began = None if job is None else job.started_at
            if job is None or began is None or now - began < self.first:
                return None
            return f"{run.name} has trained for {ago(now - began)} in job {job.id}, and has no checkpoint"
        if age is None or last.at is None:
            return None
        is_old = None if not known.every_s else age > self.times * known.every_s + (known.save_s or 0.0)
        counts_steps = names_count_steps(run, known) is not False
        if known.every_steps and last.step is not None and step is not None and counts_steps:
            is_late = step - last.step > self.times * known.every_steps and is_old is not False
            usual = f"every {counted(known.every_steps, 'step')}"
        elif is_old is not None:
            is_late = is_old
            usual = f"every {duration(known.every_s or 0.0)}"
        else:
            return None
        which = "" if last.step is None else f", of step {last.step:,},"
        text = f"the last checkpoint of {run.name}{which} is {ago(now - last.at)} old; usually it saves {usual}"
        return text if is_late else None


class CheckpointTorn(CheckpointRule, frozen=True, kw_only=True):
    """The last save is incomplete, and no process writes to it any more."""

    name: ClassVar[str] = "checkpoint-torn"
    origin: ClassVar[str] = "Bekman: the very last checkpoint may not have been finished"

    for_: Duration = 60.0

    def check_listed(self, state: State, run: Run, known: Checkpoints, now: Instant) -> Iterator[Finding]:
        last = known.committed
        whole_at = max((one.at or 0.0 for one in (last, known.unrecognised) if one is not None), default=0.0)
        torn = [one for one in known.list if one.state == "torn" and (one.at or 0.0) > whole_at]
        if not torn:
            return
        one, lost = torn[0], steps_at_risk(run)
        age = "" if one.at is None else f" {ago(now - one.at)} ago"
        whole = "no complete one is known" if known.unrecognised is not None else "there is no complete one"
        if last is not None:
            whole = f"the last complete one is {last.title}" + (f", {counted(lost, 'step')} back" if lost else "")
        again = f"{advice.saves(run)}; " if run.verdict in LIVING else ""
        yield self.finding(
            state,
            run,
            "warning",
            f"the last save of {run.name}, {one.title}, was left incomplete{age}: {one.why}; {whole}",
            evidence=tuple(f"{other.path}: {other.why}" for other in torn[:5]),
            advice=f"see whether its disk is full (key 3); {again}do not resume from the incomplete one",
            since=one.at,
        )


class CheckpointPointer(CheckpointRule, frozen=True, kw_only=True):
    """A restart would fail, or would resume from an incomplete checkpoint or from an older one than the last."""

    name: ClassVar[str] = "checkpoint-pointer"
    origin: ClassVar[str] = (
        "NeMo #3390: a full quota stopped the write of LATEST, and two more jobs resumed from an older checkpoint"
    )

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires: the pointer moves after the commit."""

    def check_listed(self, state: State, run: Run, known: Checkpoints, now: Instant) -> Iterator[Finding]:
        # Every training begins without a save, and some of its files may not have been read yet.
        usual = ("nothing was saved yet", f"{NONE_FOUND} so far", f"{NONE_FOUND} yet")
        parts = (known.problem or "").split("; ")
        problem = "; ".join(part for part in parts if not any(text in part for text in usual))
        if not problem or run.verdict == "finished":
            return
        is_next = run.verdict in ("dead", "queued", "starting")
        yield self.finding(
            state,
            run,
            "critical" if is_next else "warning",
            f"a restart of {run.name} would fail or lose steps: {problem}",
            evidence=(known.path, *((f"it would resume from {known.resumes}",) if known.resumes else ())),
            advice="before the next attempt starts, correct the pointer, or move the incomplete checkpoint away"
            + (f"; H holds the pending job: trainmon-tui hold {run.name}" if run.verdict == "queued" else ""),
        )
