"""Plans with switch files: save, kill, and taking them back. Slurm need not answer for any of them. Pure."""

from __future__ import annotations

from typing import NamedTuple

from trainmon.actions.planning.builder import action
from trainmon.actions.planning.context import Answer, Kind, PlanContext, as_seen, current
from trainmon.lib import clean, duration
from trainmon.model import Action, CreateFile, Expected, RemoveFile, Run, Switch, Verb

HANG = 3.0
"""A run reads no switch while it hangs: when no step came for this many times its own usual interval."""

QUICK = 10.0
"""Seconds of silence that are never a hang: some logs show ten steps a second."""

SILENT_VERDICTS = frozenset({"stalled", "hung", "data-stall", "dead"})


KINDS: dict[str, Kind] = {"unkill": "kill", "unsave": "save"}


class Armed(NamedTuple):
    """A switch of a run that is there now."""

    kind: Kind
    undo: Verb
    switch: Switch

    def words(self, now: float) -> str:
        """Who and since when: `kill switch, armed 4m ago by ana: “trainmon-tui kill by …”`."""
        since = "" if self.switch.armed_at is None else f" {duration(max(0.0, now - self.switch.armed_at))} ago"
        by = f" by {self.switch.by}" if self.switch.by else ""
        text = f": “{self.switch.why}”" if self.switch.why else ""
        return f"{self.kind} switch, armed{since}{by}{text}"


def armed(run: Run) -> tuple[Armed, ...]:
    """The switches of a run that were there when last looked at."""
    return _armed(run.kill, run.save)


def _armed(kill: Switch | None, save: Switch | None) -> tuple[Armed, ...]:
    found = []
    if kill is not None and kill.exists:
        found.append(Armed("kill", "unkill", kill))
    if save is not None and save.exists:
        found.append(Armed("save", "unsave", save))
    return tuple(found)


def armed_kill(case: PlanContext) -> Armed | None:
    """The armed kill switch, as fresh as was read."""
    return next(iter(_armed(case.switch("kill"), None)), None)


def save(case: PlanContext) -> Answer:
    """Drop the save switch."""
    switch = case.switch("save")
    path, refusal = _path(case, "save", switch)
    if refusal is not None:
        return refusal
    if switch is not None and switch.exists:
        taken = "the trainer has not taken it yet"
        return case.refused(f"{_there(case, switch)}, and {taken}", "U takes it back")
    assert case.run is not None
    usual = None if case.run.checkpoints is None else case.run.checkpoints.save_s
    about = f" (about {duration(usual)}, as usual)" if usual else ""
    made = action(
        case,
        CreateFile(path, ""),
        f"Save a checkpoint of {case.name} now",
        job=current(case),
        consequences=(
            "The next trainer that starts removes the file and saves: what it has just loaded."
            if _has_no_reader(case)
            else f"The trainer removes the file{_next(case)} and saves{about}; training goes on.",
            "Then it is watched: the file appears, is taken, a new checkpoint is committed.",
        ),
        warnings=(*_unread(case), *_armed_as_well(case), *_shared(case, path)),
        expected=_reader(case),
    )
    return Answer(actions=(made,))


def kill(case: PlanContext) -> Answer:
    """Drop the kill switch."""
    switch = case.switch("kill")
    path, refusal = _path(case, "kill", switch)
    if refusal is not None:
        return refusal
    if switch is not None and switch.exists:
        return case.refused(_there(case, switch), "U takes it back")
    assert case.run is not None
    saves = None if case.run.checkpoints is None else case.run.checkpoints.save_s
    about = f" (about {duration(saves)}, as usual)" if saves else ""
    made = action(
        case,
        CreateFile(path, ""),
        f"End {case.name} by its kill switch",
        job=current(case),
        consequences=(
            "Nothing is saved and nothing ends now: the next trainer that starts reads the file first, and exits."
            if _has_no_reader(case)
            else f"The trainer saves{about} and exits{_next(case)}.",
            "The file stays until somebody removes it (U); until then a requeue (R) is refused.",
            *_burns(case),
        ),
        warnings=(*_unread(case), *_shared(case, path)),
        expected=_reader(case),
    )
    return Answer(actions=(made,))


def undo(case: PlanContext) -> Answer:
    """Take a switch back: the one that was chosen, or the only one that is there."""
    run = case.run
    if run is None:
        return case.refused("it belongs to no run, and only runs have switches")
    found = _armed(case.switch("kill"), case.switch("save"))
    if case.ask.verb == "unsave":
        found = tuple(reversed(found))
    if case.ask.is_exact and case.ask.switch is None:
        others, found = found, tuple(one for one in found if one.undo == case.ask.verb)
        if others and not found and _unseen(case) is None:
            return case.refused(f"no {KINDS[case.ask.verb]} switch is armed, but {others[0].words(case.now)}")
    if case.ask.switch is not None:
        found = tuple(one for one in found if one.switch.path == case.ask.switch)
    unseen = _unseen(case)
    if unseen is not None and all(case.unread(one.switch.path) for one in found):
        return case.refused(f"cannot tell whether a switch is armed: {unseen}")
    if not found:
        return case.refused("no switch is armed")
    if len(found) > 1:
        return Answer(choices=tuple((one.switch.path, one.words(case.now)) for one in found))
    return Answer(actions=(_removal(case, found[0]),))


def _unseen(case: PlanContext) -> str | None:
    """Why one of the switches cannot be seen."""
    assert case.run is not None
    spec, known = case.run.spec, (case.switch("kill"), case.switch("save"))
    unread = [error for error in (case.unread(spec.kill_switch), case.unread(spec.save_switch)) if error is not None]
    unread += [switch.error for switch in known if switch is not None and switch.error is not None]
    return unread[0] if unread else None


def _removal(case: PlanContext, one: Armed) -> Action:
    path = one.switch.path
    sight = case.fresh.switches.get(f"{case.host}:{path}")
    operation = RemoveFile(
        path, one.switch.armed_at if sight is None else sight.armed_at, "" if sight is None else sight.mark
    )
    job = current(case)
    if one.kind == "kill":
        follows = "Jobs of the run train again when they start."
        runs_on = (f"Job {job.id} trains on, unless its trainer has read the switch already.",) if job else ()
        consequences = (follows, *runs_on)
    else:
        consequences = ("No checkpoint is saved for it, unless the trainer takes it at this very moment.",)
    return action(
        case,
        operation,
        f"Take back the {one.kind} switch of {case.name}",
        verb=one.undo,
        job=job,
        facts=(("armed", one.words(case.now)),),
        consequences=consequences,
    )


def _path(case: PlanContext, kind: Kind, switch: Switch | None) -> tuple[str, Answer | None]:
    """The path of a run's switch, or why it cannot be dropped."""
    if case.run is None:
        return "", case.refused("it belongs to no run, and only runs have switches", "name the run in the config")
    path = case.run.spec.kill_switch if kind == "kill" else case.run.spec.save_switch
    if path is None:
        hint = f"set {kind}_switch in the [[run]] of {case.name}, as its trainer has it"
        return "", case.refused(f"no {kind} switch is configured for {case.name}", hint)
    if case.host is None:
        return "", case.refused(f"no host is known that sees {clean(path)}")
    error = case.unread(path) or (switch.error if switch is not None else None)
    if error is not None:
        return "", case.refused(f"{clean(path)}: {error}")
    return path, None


def _there(case: PlanContext, switch: Switch) -> str:
    """That a switch is there already, since when and whose."""
    by = f" by {switch.by}" if switch.by else ""
    text = f" (“{switch.why}”)" if switch.why else ""
    return f"{clean(switch.path)} is armed already, since {case.ago(switch.armed_at) or 'an unknown time'}{by}{text}"


def _next(case: PlanContext) -> str:
    return f" at its next iteration (about {duration(case.step_s)})" if case.step_s else " at its next iteration"


def _unread(case: PlanContext) -> tuple[str, ...]:
    """That nobody may read the switch, and what helps then."""
    run, silent = case.run, case.silent_s
    assert run is not None
    if _has_no_reader(case):
        return ("No job of it runs now: the next that starts reads the file first.",)
    is_busy = run.verdict in ("saving", "evaluating")
    is_slow = silent is not None and case.step_s is not None and silent > max(QUICK, HANG * case.step_s)
    if not is_busy and (is_slow or run.verdict in SILENT_VERDICTS):
        since = "" if silent is None else f": no step for {duration(silent)}"
        return (f"It looks hung or stopped{since}. A hung trainer does not read the file; C cancels its job.",)
    return ()


def _has_no_reader(case: PlanContext) -> bool:
    """Whether no job of it runs, as its Slurm tells: without any Slurm, or in its silence, that is not known."""
    source = case.state.sources.get(f"slurm:{case.cluster}")
    is_told = source is not None and source.health in ("ok", "late") and source.seen_at is not None
    return current(case) is None and (bool(case.jobs) or is_told)


def _reader(case: PlanContext) -> Expected:
    """The job whose trainer reads the file. A kill switch that comes after its end burns the next one."""
    job = current(case)
    return Expected() if job is None else as_seen(case, job, needs_slurm=False)


def _armed_as_well(case: PlanContext) -> tuple[str, ...]:
    kill = armed_kill(case)
    return () if kill is None else (f"It is about to end: {kill.words(case.now)}.",)


def _burns(case: PlanContext) -> tuple[str, ...]:
    """What an armed kill switch costs the jobs that wait."""
    behind = sum(job.elements for job in case.waiting)
    if not behind:
        return ("While it is armed, every job of the run that starts exits at once.",)
    ids = ", ".join(job.id for job in case.waiting[:4]) + (" …" if len(case.waiting) > 4 else "")
    jobs = "1 job that waits" if behind == 1 else f"{behind} jobs and array elements that wait"
    return (f"While it is armed it burns the {jobs} ({ids}): each starts, reads the file and exits at once.",)


def _shared(case: PlanContext, path: str) -> tuple[str, ...]:
    """That other runs read the same file."""
    assert case.run is not None
    others = [
        name
        for name, run in case.state.runs.items()
        if run.spec.cluster == case.cluster and name != case.run.name
        and path in (run.spec.kill_switch, run.spec.save_switch)
    ]  # fmt: skip
    return (f"The same file is a switch of {', '.join(others)}, too.",) if others else ()
