"""Plans for switch files: save, kill, and removing them. None of them needs Slurm. Pure."""

from __future__ import annotations

import shlex

from trainmon.actions.planning.context import FileStat, PlanContext, SwitchKind, action
from trainmon.actions.verbs import ask
from trainmon.lib import Sentence, clean, duration
from trainmon.model import DIRECTORY, SILENT, CreateFile, Expected, Job, RemoveFile, RowPlan, Run, Switch

HANG = 3.0
"""A run that hangs reads no switch. It hangs if no step came for this many times its usual interval."""

QUICK = 10.0
"""Seconds. A shorter time without a step is never a hang: some logs show ten steps a second."""

OURS = ("trainmon-tui kill by ", "trainmon-tui save by ")
"""How the text of a switch file begins that trainmon-tui has written."""

LINES_SHOWN = 8
"""Lines of another's file in a plan."""

SILENT_VERDICTS = SILENT | {"dead"}


def save(context: PlanContext) -> RowPlan:
    """Create the save switch.

    Raises:
        Refused: when the file cannot be created.
    """
    path, run = _path(context, "save")
    kill = context.armed("kill")
    made = action(
        context,
        CreateFile(path, ""),
        f"Save a checkpoint of {context.name} now",
        job=context.running_job,
        consequences=(
            "The next trainer that starts consumes the switch (removes the file) and saves what it has just loaded."
            if _has_no_reader(context)
            else f"The trainer consumes the switch (removes the file){_next(context)}"
            f" and saves{context.usual_save_time()}; training goes on.",
            "trainmon-tui then reports when the file appears, is consumed, and a new checkpoint is committed.",
        ),
        warnings=(
            *_unread(context, run),
            *((f"It is about to end: {kill}.",) if kill else ()),
            *_shared(context, run, path),
        ),
        expected=_reader(context),
    )
    return RowPlan(actions=(made,))


def kill(context: PlanContext) -> RowPlan:
    """Create the kill switch.

    Raises:
        Refused: when the file cannot be created.
    """
    path, run = _path(context, "kill")
    behind = sum(job.elements for job in context.waiting)
    if behind:
        ids = ", ".join(job.id for job in context.waiting[:4]) + (" …" if len(context.waiting) > 4 else "")
        jobs = "1 pending job" if behind == 1 else f"{behind} pending jobs and array tasks"
        burns = f"While it is armed, it also ends the {jobs} ({ids}): each starts, reads the file and exits at once."
    else:
        burns = "While it is armed, every job of the run that starts exits at once."
    made = action(
        context,
        CreateFile(path, ""),
        f"Create the kill switch of {context.name}",
        job=context.running_job,
        consequences=(
            "Nothing is saved and nothing ends now: the next trainer that starts reads the switch first, and exits."
            if _has_no_reader(context)
            else f"The trainer saves{context.usual_save_time()} and exits{_next(context)}.",
            ask(
                "The switch stays until someone removes it ({}); until then a requeue ({}) is refused.",
                "unkill",
                "requeue",
            ),
            burns,
        ),
        warnings=(*_unread(context, run), *_shared(context, run, path)),
        expected=_reader(context),
    )
    return RowPlan(actions=(made,))


def undo(context: PlanContext) -> RowPlan:
    """Remove a switch: the chosen one, or the only one that is there.

    Raises:
        Refused: when there is no file to remove, or it is not known which one.
    """
    request, job = context.request, context.running_job
    if context.run is None:
        raise context.refused("it belongs to no run; only runs have switches")
    wanted: SwitchKind = "save" if request.verb == "unsave" else "kill"
    kinds: tuple[SwitchKind, ...] = ("save", "kill") if wanted == "save" else ("kill", "save")
    known = {kind: switch for kind in kinds if (switch := context.switch(kind)) is not None}
    found = {kind: switch for kind, switch in known.items() if switch.exists and not switch.is_directory}
    by_hand = next((switch for switch in known.values() if switch.is_dangling or switch.is_directory), None)
    errors = [
        error
        for kind in kinds
        if (error := context.switch_error(kind)) is not None and not (kind in known and known[kind].is_dangling)
    ]
    if request.switch is not None:
        found = {kind: switch for kind, switch in found.items() if switch.path == request.switch}
    elif request.is_exact:
        if found and wanted not in found and not errors:
            raise context.refused(f"no {wanted} switch is armed, but {context.armed(next(iter(found)))}")
        found = {kind: switch for kind, switch in found.items() if kind == wanted}
    if errors and all(context.read_error(switch.path) for switch in found.values()):
        raise context.refused(f"it is not known whether a switch is armed: {errors[0]}")
    if not found and by_hand is not None:
        hint = by_hand.removal(_remove_link(context, by_hand.path))
        raise context.refused(f"{clean(by_hand.path)} is {by_hand.error or DIRECTORY}", hint)
    if not found:
        raise context.refused("no switch is armed")
    if len(found) > 1:
        return RowPlan(choices=tuple((switch.path, context.armed(kind)) for kind, switch in found.items()))
    return _removal(context, job, *next(iter(found.items())))


def _removal(context: PlanContext, job: Job | None, kind: SwitchKind, switch: Switch) -> RowPlan:
    """Remove this switch; of a file that somebody else wrote, the content is shown and the path must be typed."""
    stat = context.readback.switches.get(f"{context.host}:{switch.path}")
    armed_at, mark = (switch.armed_at, "") if stat is None else (stat.armed_at, stat.mark)
    is_ours = (switch.why or "").startswith(OURS)
    content = (("content", clean(switch.why or "not known")),) if stat is None else _content(stat)
    consequences = ["No checkpoint is saved, unless the trainer is reading the switch right now."]
    if kind == "kill":
        consequences = ["The next job of the run trains normally."]
        if job is not None:
            consequences.append(f"Job {job.id} trains on, unless its trainer has read the switch already.")
    made = action(
        context,
        RemoveFile(switch.path, armed_at, mark),
        f"Remove the {kind} switch of {context.name}",
        verb="unkill" if kind == "kill" else "unsave",
        job=job,
        facts=(("armed", context.armed(kind)), *(() if is_ours else content)),
        consequences=tuple(consequences),
    )
    if is_ours:
        return RowPlan(actions=(made,))
    return RowPlan(actions=(made,), typed=switch.path, because=f"{clean(switch.path)} was not written by trainmon-tui")


def _content(stat: FileStat) -> tuple[tuple[str, str], ...]:
    """The beginning of a file that somebody else wrote."""
    more = ("…",) if len(stat.content) > LINES_SHOWN else ()
    lines = (*stat.content[:LINES_SHOWN], *more) or ("empty",)
    return tuple(("" if number else "content", line) for number, line in enumerate(lines))


def _remove_link(context: PlanContext, path: str) -> str:
    return f"remove the link first: rm {shlex.quote(path)} on {context.host}"


def _path(context: PlanContext, kind: SwitchKind) -> tuple[str, Run]:
    """The path of a switch, and the run that has it.

    Raises:
        Refused: when it cannot be created.
    """
    path, switch = context.switch_path(kind), context.switch(kind)
    if context.run is None:
        raise context.refused("it belongs to no run; only runs have switches", "name the run in the config")
    if path is None:
        hint = f"set {kind}_switch in the [[run]] of {context.name} to the file that its trainer looks for"
        raise context.refused(f"no {kind} switch is configured for {context.name}", hint)
    if context.host is None:
        raise context.refused(f"no known host sees {clean(path)}")
    error = context.switch_error(kind)
    if error is not None:
        is_dangling = switch is not None and switch.is_dangling
        raise context.refused(f"{clean(path)}: {error}", _remove_link(context, path) if is_dangling else "")
    if switch is not None and switch.exists:
        by = f" by {switch.by}" if switch.by else ""
        text = f" (“{switch.why}”)" if switch.why else ""
        since = context.ago(switch.armed_at) or "at an unknown time"
        pending = "; the trainer has not consumed it yet" if kind == "save" else ""
        why = f"{clean(switch.path)} was already armed {since}{by}{text}{pending}"
        raise context.refused(why, switch.removal(ask("{} removes it", "unkill" if kind == "kill" else "unsave")))
    return path, context.run


def _next(context: PlanContext) -> str:
    interval = context.run.progress.cadence_s if context.run is not None else None
    return f" at its next iteration (about {duration(interval)})" if interval else " at its next iteration"


def _unread(context: PlanContext, run: Run) -> tuple[Sentence, ...]:
    """A warning that no trainer may read the switch, and what helps then."""
    if _has_no_reader(context):
        return ("None of its jobs runs now: the next job reads the file first.",)
    silent = None if run.progress.at is None else max(0.0, context.now - run.progress.at)
    interval = run.progress.cadence_s
    is_slow = silent is not None and interval is not None and silent > max(QUICK, HANG * interval)
    if run.verdict not in ("saving", "evaluating") and (is_slow or run.verdict in SILENT_VERDICTS):
        since = "No step is known." if silent is None else f"No step for {duration(silent)}."
        return (ask(f"{since} A hung trainer will not see the switch; press {{}} to cancel the job.", "cancel"),)
    return ()


def _has_no_reader(context: PlanContext) -> bool:
    """Whether no job of the run runs, for certain. While Slurm does not answer, or without Slurm, that is not known."""
    return context.running_job is None and (bool(context.jobs) or not context.is_silent)


def _reader(context: PlanContext) -> Expected:
    """The job whose trainer reads the file. A kill switch that comes after its end ends the next job instead."""
    job = context.running_job
    return Expected() if job is None else context.expected(job, needs_slurm=False)


def _shared(context: PlanContext, run: Run, path: str) -> tuple[str, ...]:
    """A warning that other runs read the same file."""
    specs = {name: other.spec for name, other in context.state.runs.items() if name != run.name}
    others = [
        name
        for name, spec in specs.items()
        if spec.cluster == context.cluster and path in (spec.kill_switch, spec.save_switch)
    ]
    return (f"The same file is also a switch of {', '.join(others)}.",) if others else ()
