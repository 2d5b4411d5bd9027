"""Rules about switch files: a kill switch left behind, a save switch that nobody takes or that led to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trainmon.actions.verification import CLOCK_TOLERANCE, COMMIT_AT_LEAST, COMMIT_SAVES
from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.runs.base import LIVING, SILENT, UNKNOWN, RunRule, queue_in
from trainmon.analysis.runs import patience
from trainmon.lib import Instant, Seconds
from trainmon.model import Finding, Run, State, Switch

BUSY = frozenset({"evaluating", "saving"})
"""Verdicts of a run that reads no switch now, because it does so between steps."""


class SwitchRule(RunRule, frozen=True, kw_only=True):
    """Needs the host that reads the files of the run."""

    by_age: ClassVar[bool] = True
    unseen_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        host = _reader(state, run)
        return (f"node:{host}",) if host is not None and f"node:{host}" in state.sources else ()

    def unclear(self, state: State, run: Run, now: Instant) -> str | None:
        if run.verdict in BUSY and any(switch is not None and switch.exists for switch in self.switches(run)):
            return f"{run.name} is {run.verdict}, and reads no switch meanwhile"
        for switch in self.switches(run):
            if switch is not None and (switch.error is not None or switch.exists is None):
                return f"{switch.path} cannot be seen: {switch.error or 'its host does not say'}"
        return None

    def switches(self, run: Run) -> tuple[Switch | None, ...]:
        raise NotImplementedError


class KillSwitchLeft(SwitchRule, frozen=True, kw_only=True):
    """The kill switch is still armed: the next attempt would end at once, or the running one does not obey."""

    name: ClassVar[str] = "kill-switch-left"
    origin: ClassVar[str] = "IDEFICS and BLOOM: a forgotten kill switch ends one array task after the other"

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a trainer does not read it during an evaluation, which
    may just have ended."""
    after: Duration = 900.0
    """How long after it was armed. A trainer may take minutes to save and exit."""

    def switches(self, run: Run) -> tuple[Switch | None, ...]:
        return (run.kill,)

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        kill = run.kill
        if kill is None or not kill.exists or kill.armed_at is None or now - kill.armed_at < self.after:
            return
        if run.verdict in BUSY:
            return
        queue = queue_in(state, run)
        waiting = None if queue is None else queue.waiting
        if run.verdict in LIVING | SILENT:
            words = "and it has not ended: its trainer does not read it"
        elif waiting is not None:
            words = f"job {waiting.id} waits, and will end as soon as it starts"
        else:
            words = "its next attempt will end as soon as it starts"
        yield self.found(
            state,
            run,
            "info" if waiting is None and run.verdict not in LIVING | SILENT else "warning",
            f"the kill switch of {run.name} has been armed for {ago(now - kill.armed_at)}{_by(kill)}; {words}",
            evidence=(kill.path, *((kill.why,) if kill.why else ())),
            advice=f"U removes it: trainmon-tui unkill {run.name}"
            + (f"; C cancels the job: trainmon-tui cancel {run.name}" if run.verdict in LIVING | SILENT else ""),
            since=kill.armed_at,
        )


class SaveSwitchIgnored(SwitchRule, frozen=True, kw_only=True):
    """The trainer did not consume the save switch, or consumed it and committed no checkpoint."""

    name: ClassVar[str] = "save-switch-ignored"
    origin: ClassVar[str] = "a switch is read at every iteration: ten of them, or 10m; two usual saves, or 15m"
    unseen_while: ClassVar[frozenset[str]] = UNKNOWN | {"starting"}

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a trainer does not read it during an evaluation, which
    may just have ended."""
    untaken: Duration = 600.0
    """How long it may remain: this long, or ten usual step intervals of the run if that is longer."""
    unsaved: Duration = COMMIT_AT_LEAST
    """How long a checkpoint may take afterwards: this long, or twice the usual save time if that is longer."""

    def switches(self, run: Run) -> tuple[Switch | None, ...]:
        return (run.save,)

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        save = run.save
        if save is None or run.verdict not in (LIVING | SILENT) - BUSY:
            return
        words = self._untaken(run, save, now) if save.exists else self._unsaved(state, run, save, now)
        if words is None:
            return
        yield self.found(
            state,
            run,
            "warning",
            words,
            evidence=(save.path, *((save.why,) if save.why else ())),
            advice=f"see whether its trainer reads that path, and its log (key 4); U removes the switch: "
            f"trainmon-tui unsave {run.name}; T signals its trainer: trainmon-tui signal {run.name}",
            since=save.armed_at if save.exists else save.taken_at,
        )

    def _untaken(self, run: Run, save: Switch, now: Instant) -> str | None:
        limit = max(self.untaken, 10 * (run.progress.cadence_s or 0.0))
        if save.armed_at is None or now - save.armed_at < limit:
            return None
        armed = f"the save switch of {run.name} has been armed for {ago(now - save.armed_at)}{_by(save)}"
        quiet = 0.0 if run.progress.at is None else now - run.progress.at
        if quiet > patience(run):
            return f"{armed}, and is not taken: no step came for {ago(quiet)}"
        return f"{armed}, and its trainer does not take it"

    def _unsaved(self, state: State, run: Run, save: Switch, now: Instant) -> str | None:
        known = run.checkpoints
        if save.taken_at is None or known is None or known.error is not None or _was_removed(state, run, save):
            return None
        limit: Seconds = max(self.unsaved, COMMIT_SAVES * (known.save_s or 0.0))
        if now - save.taken_at < limit:
            return None
        if any(one.is_whole and (one.at or 0.0) >= save.taken_at - CLOCK_TOLERANCE for one in known.list):
            return None
        last = known.committed
        step = "" if last is None or last.step is None else f", the last is that of step {last.step:,}"
        return f"{run.name} took its save switch {ago(now - save.taken_at)} ago, and no checkpoint came of it{step}"


def _reader(state: State, run: Run) -> str | None:
    """The host that reads its files."""
    if run.log is not None and f"node:{run.log.host}" in state.sources:
        return run.log.host
    if run.checkpoints is not None:
        return run.checkpoints.host
    cluster = state.clusters.get(run.spec.cluster)
    return None if cluster is None else cluster.login


def _by(switch: Switch) -> str:
    return f" by {switch.by}" if switch.by else ""


def _was_removed(state: State, run: Run, save: Switch) -> bool:
    """Whether a person removed it, and not the trainer."""
    return any(
        record.action.verb == "unsave" and record.action.run == run.name and record.done_at is not None
        and abs(record.done_at - (save.taken_at or 0.0)) <= 60.0
        for record in state.actions.values()
    )  # fmt: skip
