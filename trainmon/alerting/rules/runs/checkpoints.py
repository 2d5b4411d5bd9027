"""Rules about the checkpoints of a run, and the switches that make it save or end. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from trainmon.actions.verification import CLOCK_TOLERANCE, COMMIT_AT_LEAST, COMMIT_SAVES
from trainmon.alerting.rules.base import Duration, Unknown
from trainmon.alerting.rules.runs.base import (
    BETWEEN,
    LIVING,
    UNKNOWN,
    RunRule,
    how_to_save,
    present_in,
    waiting_in,
)
from trainmon.analysis.checkpoints import names_count_steps, steps_at_risk
from trainmon.analysis.runs import patience, was_withdrawn
from trainmon.lib import Instant, ago, counted, duration
from trainmon.model import SILENT, Checkpoints, Finding, Run, State, Switch, verdict_text


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
    """The run trains, but has committed no checkpoint for longer than its usual interval.

    Defaults: twice its own interval; BLOOM lost 7h with sparse saves, then saved every 3h
    """

    unknown_while: ClassVar[frozenset[str]] = BETWEEN

    times: float = 2.0
    """The alert fires after this many times the usual interval, in steps (if known) and in time. Both must be exceeded,
    because names may count epochs."""
    first: Duration = 21_600.0
    """How long a job may train without a first checkpoint."""
    for_: Duration = 120.0

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        if run.checkpoints is not None and run.checkpoints.unrecognised is not None:
            yield self.unknown(run, f"the format of {run.checkpoints.unrecognised.title} is not recognised")
        else:
            yield from super().check_run(state, run, now)

    def check_listed(self, state: State, run: Run, known: Checkpoints, now: Instant) -> Iterator[Finding | Unknown]:
        if known.writing is not None:
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
                advice=f"{how_to_save(run)}; see whether its disk is full (key 3), and look at its log (key 4)",
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
    """The last save is incomplete, and no process writes to it any more.

    Defaults: Bekman: the very last checkpoint may not have been finished
    """

    for_: Duration = 60.0

    def check_listed(self, state: State, run: Run, known: Checkpoints, now: Instant) -> Iterator[Finding]:
        last = known.committed
        whole_at = max((one.at or 0.0 for one in (last, known.unrecognised) if one is not None), default=0.0)
        torn = [one for one in known.list if one.state == "torn" and (one.at or 0.0) > whole_at]
        if not torn:
            return
        one, lost = torn[0], steps_at_risk(run)
        age = "" if one.at is None else f" {ago(now - one.at)} ago"
        none = "no complete one is known" if known.unrecognised is not None else "there is no complete one"
        back = f", {counted(lost, 'step')} back" if lost else ""
        start = known.next_start
        which = "the last complete one is" if start == last else "a restart resumes from"
        whole = none if start is None else f"{which} {start.title}{back}"
        again = f"{how_to_save(run)}; " if run.verdict in LIVING else ""
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
    """A restart would fail, or would resume from an incomplete checkpoint or from an older one than the last.

    Defaults: NeMo #3390: a full quota stopped the write of LATEST, and two more jobs resumed from an older checkpoint
    """

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires: the pointer moves after the commit."""

    def check_listed(self, state: State, run: Run, known: Checkpoints, now: Instant) -> Iterator[Finding]:
        if known.trouble is None or run.verdict == "finished":
            return
        is_next = run.verdict in ("dead", "queued", "starting")
        yield self.finding(
            state,
            run,
            "critical" if is_next else "warning",
            f"a restart of {run.name} would fail or lose steps: {known.trouble}",
            evidence=(known.path, *((f"it would resume from {known.resumes}",) if known.resumes else ())),
            advice="before the next attempt starts, correct the pointer, or move the incomplete checkpoint away"
            + (f"; H holds the pending job: trainmon-tui hold {run.name}" if run.verdict == "queued" else ""),
        )


# ---- rules about switch files ----------------------------------------------------------------------------------------

BUSY = frozenset({"evaluating", "saving"})
"""Verdicts of a run that reads no switch now, because it does so between steps."""


class SwitchRule(RunRule, frozen=True, kw_only=True):
    """Needs the host that reads the files of the run."""

    which: ClassVar[Literal["kill", "save"]]
    """The switch that the rule is about."""
    by_age: ClassVar[bool] = True
    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        """The host that reads its files."""
        if run.log is not None and (name := f"node:{run.log.host}") in state.sources:
            return (name,)
        cluster = state.clusters.get(run.spec.cluster)
        host = run.checkpoints.host if run.checkpoints is not None else None if cluster is None else cluster.login
        return (f"node:{host}",) if f"node:{host}" in state.sources else ()

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        switch: Switch | None = getattr(run, self.which)
        if switch is None:
            return
        if switch.exists and run.verdict in BUSY:
            yield self.unknown(run, f"{run.name} is {verdict_text(run.verdict)}, and ignores its switches meanwhile")
        elif not switch.is_dangling and (switch.error is not None or switch.exists is None):
            yield self.unknown(run, f"{switch.path} cannot be seen: {switch.error or 'its host does not report it'}")
        yield from self.check_switch(state, run, switch, now)

    def check_switch(self, state: State, run: Run, switch: Switch, now: Instant) -> Iterator[Finding]:
        """The findings about a switch file of a run."""
        raise NotImplementedError


class KillSwitchLeft(SwitchRule, frozen=True, kw_only=True):
    """The kill switch is still armed: the next attempt would end at once, or the running one ignores it.

    Defaults: IDEFICS and BLOOM: a forgotten kill switch ends one array task after the other
    """

    which = "kill"

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a trainer does not read it during an evaluation, which
    may just have ended."""
    after: Duration = 900.0
    """The alert fires this long after the switch was armed. A trainer may take minutes to save and exit."""

    def check_switch(self, state: State, run: Run, kill: Switch, now: Instant) -> Iterator[Finding]:
        if not kill.exists or kill.armed_at is None or run.verdict in BUSY or now - kill.armed_at < self.after:
            return
        waiting, is_running = waiting_in(state, run), run.verdict in LIVING | SILENT
        effect = "its next attempt will end as soon as it starts"
        if is_running:
            effect = "its trainer has not ended: it ignores the switch"
        elif waiting is not None:
            effect = f"job {waiting.id} is pending, and will end as soon as it starts"
        yield self.finding(
            state,
            run,
            "info" if waiting is None and not is_running else "warning",
            f"the kill switch of {run.name} has been armed for {ago(now - kill.armed_at)}{_by(kill)}; {effect}",
            evidence=(kill.path, *((kill.why,) if kill.why else ())),
            advice=kill.removal(f"U removes it: trainmon-tui unkill {run.name}")
            + (f"; to end it anyway, C cancels the job: trainmon-tui cancel {run.name}" if is_running else ""),
            since=kill.armed_at,
        )


class SaveSwitchIgnored(SwitchRule, frozen=True, kw_only=True):
    """The trainer did not consume the save switch, or consumed it and committed no checkpoint.

    Defaults: trainers read the switch at every iteration: ten iterations or 10m; a save may take twice the usual, or
    15m
    """

    which = "save"
    unknown_while: ClassVar[frozenset[str]] = UNKNOWN | {"starting"}

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a trainer does not read it during an evaluation, which
    may just have ended."""
    untaken: Duration = 600.0
    """How long the switch may remain: this long, or ten usual step intervals of the run if that is longer."""
    unsaved: Duration = COMMIT_AT_LEAST
    """How long a checkpoint may take afterwards: this long, or twice the usual save time if that is longer."""

    def check_switch(self, state: State, run: Run, save: Switch, now: Instant) -> Iterator[Finding]:
        if run.verdict not in (LIVING | SILENT) - BUSY:
            return
        text = self._untaken(run, save, now) if save.exists else self._unsaved(state, run, save, now)
        if text is None:
            return
        advice = (
            "see whether its trainer reads that path, and look at its log (key 4); "
            + save.removal(f"U removes the switch: trainmon-tui unsave {run.name}")
            if save.exists
            else "see whether its disk is full (key 3), and look at its log (key 4)"
        )
        yield self.finding(
            state,
            run,
            "warning",
            text,
            evidence=(save.path, *((save.why,) if save.why else ())),
            advice=f"{advice}; T signals its trainer: trainmon-tui signal {run.name}",
            since=save.armed_at if save.exists else save.taken_at,
        )

    def _untaken(self, run: Run, save: Switch, now: Instant) -> str | None:
        if save.armed_at is None or now - save.armed_at < max(self.untaken, 10 * (run.progress.cadence_s or 0.0)):
            return None
        quiet = 0.0 if run.progress.at is None else now - run.progress.at
        why = f"; there was no step for {ago(quiet)}" if quiet > patience(run) else ""
        return (
            f"the save switch of {run.name} has been armed for {ago(now - save.armed_at)}{_by(save)}, and its trainer "
            f"has not consumed it{why}"
        )

    def _unsaved(self, state: State, run: Run, save: Switch, now: Instant) -> str | None:
        known, taken_at = run.checkpoints, save.taken_at
        if taken_at is None or known is None or known.error is not None:
            return None
        has_saved = any(
            (one.is_whole or one.state == "unknown") and (one.at or 0.0) >= taken_at - CLOCK_TOLERANCE
            for one in known.list
        )
        limit = max(self.unsaved, COMMIT_SAVES * (known.save_s or 0.0))
        if was_withdrawn(run, state.actions, "save") or has_saved or now - taken_at < limit:
            return None
        last = known.committed
        step = "" if last is None or last.step is None else f"; the last one is of step {last.step:,}"
        return f"{run.name} consumed its save switch {ago(now - taken_at)} ago, but committed no checkpoint{step}"


def _by(switch: Switch) -> str:
    return f" by {switch.by}" if switch.by else ""
