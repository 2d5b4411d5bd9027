"""Rules about switch files: a kill switch left behind, a save switch that is not consumed, or that led to
no checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trainmon.actions.verification import CLOCK_TOLERANCE, COMMIT_AT_LEAST, COMMIT_SAVES
from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.runs.base import LIVING, SILENT, UNKNOWN, RunRule, waiting_in
from trainmon.analysis.runs import patience, was_withdrawn
from trainmon.lib import Instant
from trainmon.model import Finding, Run, State, Switch, verdict_text

BUSY = frozenset({"evaluating", "saving"})
"""Verdicts of a run that reads no switch now, because it does so between steps."""


class SwitchRule(RunRule, frozen=True, kw_only=True):
    """Needs the host that reads the files of the run."""

    by_age: ClassVar[bool] = True
    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        """The host that reads its files."""
        if run.log is not None and (name := f"node:{run.log.host}") in state.sources:
            return (name,)
        cluster = state.clusters.get(run.spec.cluster)
        host = run.checkpoints.host if run.checkpoints is not None else None if cluster is None else cluster.login
        return (f"node:{host}",) if f"node:{host}" in state.sources else ()

    def unclear(self, state: State, run: Run, now: Instant) -> str | None:
        switch = self.switch(run)
        if switch is not None and switch.exists and run.verdict in BUSY:
            return f"{run.name} is {verdict_text(run.verdict)}, and reads no switch meanwhile"
        if switch is None or switch.is_dangling or (switch.error is None and switch.exists is not None):
            return None
        return f"{switch.path} cannot be seen: {switch.error or 'its host does not report it'}"

    def switch(self, run: Run) -> Switch | None:
        """The switch file of the run that the rule is about."""
        raise NotImplementedError


class KillSwitchLeft(SwitchRule, frozen=True, kw_only=True):
    """The kill switch is still armed: the next attempt would end at once, or the running one ignores it."""

    name: ClassVar[str] = "kill-switch-left"
    origin: ClassVar[str] = "IDEFICS and BLOOM: a forgotten kill switch ends one array task after the other"

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a trainer does not read it during an evaluation, which
    may just have ended."""
    after: Duration = 900.0
    """The alert fires this long after the switch was armed. A trainer may take minutes to save and exit."""

    def switch(self, run: Run) -> Switch | None:
        return run.kill

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        kill = run.kill
        if kill is None or not kill.exists or kill.armed_at is None or run.verdict in BUSY:
            return
        if now - kill.armed_at < self.after:
            return
        waiting, is_running = waiting_in(state, run), run.verdict in LIVING | SILENT
        effect = "its next attempt will end as soon as it starts"
        if is_running:
            effect = "and it has not ended: its trainer does not read it"
        elif waiting is not None:
            effect = f"job {waiting.id} waits, and will end as soon as it starts"
        yield self.finding(
            state,
            run,
            "info" if waiting is None and not is_running else "warning",
            f"the kill switch of {run.name} has been armed for {ago(now - kill.armed_at)}{_by(kill)}; {effect}",
            evidence=(kill.path, *((kill.why,) if kill.why else ())),
            advice=kill.removal(f"U removes it: trainmon-tui unkill {run.name}")
            + (f"; C cancels the job: trainmon-tui cancel {run.name}" if is_running else ""),
            since=kill.armed_at,
        )


class SaveSwitchIgnored(SwitchRule, frozen=True, kw_only=True):
    """The trainer did not consume the save switch, or consumed it and committed no checkpoint."""

    name: ClassVar[str] = "save-switch-ignored"
    origin: ClassVar[str] = "a switch is read at every iteration: ten iterations, or 10m; two usual saves, or 15m"
    unknown_while: ClassVar[frozenset[str]] = UNKNOWN | {"starting"}

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a trainer does not read it during an evaluation, which
    may just have ended."""
    untaken: Duration = 600.0
    """How long the switch may remain: this long, or ten usual step intervals of the run if that is longer."""
    unsaved: Duration = COMMIT_AT_LEAST
    """How long a checkpoint may take afterwards: this long, or twice the usual save time if that is longer."""

    def switch(self, run: Run) -> Switch | None:
        return run.save

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        save = run.save
        if save is None or run.verdict not in (LIVING | SILENT) - BUSY:
            return
        text = self._untaken(run, save, now) if save.exists else self._unsaved(state, run, save, now)
        if text is None:
            return
        yield self.finding(
            state,
            run,
            "warning",
            text,
            evidence=(save.path, *((save.why,) if save.why else ())),
            advice="see whether its trainer reads that path, and look at its log (key 4); "
            + save.removal(f"U removes the switch: trainmon-tui unsave {run.name}")
            + f"; T signals its trainer: trainmon-tui signal {run.name}",
            since=save.armed_at if save.exists else save.taken_at,
        )

    def _untaken(self, run: Run, save: Switch, now: Instant) -> str | None:
        limit = max(self.untaken, 10 * (run.progress.cadence_s or 0.0))
        if save.armed_at is None or now - save.armed_at < limit:
            return None
        quiet = 0.0 if run.progress.at is None else now - run.progress.at
        why = f"; there was no step for {ago(quiet)}" if quiet > patience(run) else ""
        armed = f"has been armed for {ago(now - save.armed_at)}{_by(save)}"
        return f"the save switch of {run.name} {armed}, and its trainer has not consumed it{why}"

    def _unsaved(self, state: State, run: Run, save: Switch, now: Instant) -> str | None:
        known, taken_at = run.checkpoints, save.taken_at
        if taken_at is None or known is None or known.error is not None:
            return None
        has_saved = any(
            (one.is_whole or one.state == "unknown") and (one.at or 0.0) >= taken_at - CLOCK_TOLERANCE
            for one in known.list
        )
        limit = max(self.unsaved, COMMIT_SAVES * (known.save_s or 0.0))
        if was_withdrawn(run, state) or has_saved or now - taken_at < limit:
            return None
        last = known.committed
        step = "" if last is None or last.step is None else f"; the last one is of step {last.step:,}"
        return f"{run.name} consumed its save switch {ago(now - taken_at)} ago, but committed no checkpoint{step}"


def _by(switch: Switch) -> str:
    return f" by {switch.by}" if switch.by else ""
