"""The file in which a trainer says how far it is, that of trainmon_hooks: which file it is, and what it says. Pure."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds, ago, by_key, clean, scrub
from trainmon.model import Asked, FileContent, FileSpec, Record, Run, RunSpec, State, Trainer, TrainerReport

PREFIX = "status of "
"""Of the name of such a file, as the probe sends it back."""

SILENT: Seconds = 60.0
"""A loop writes once a second while it makes steps. One step, or a save, may take longer."""


BUSY = frozenset({"saving", "evaluation"})
"""Phases in which it may be silent for longer."""


WITHDRAWN_WITHIN: Seconds = 60.0
"""A probe sees some time later that a file was removed."""


class Moment(msgspec.Struct):
    """A checkpoint that was saved, or the end."""

    at: float
    step: int | None = None
    why: str = ""


class Status(TrainerReport, frozen=True):
    """The file as it is written."""

    last_save: Moment | None = None
    ended: Moment | None = None


DECODER = msgspec.json.Decoder(Status)


def status_file(spec: RunSpec) -> FileSpec | None:
    """The file to read for a run."""
    return None if spec.status is None else FileSpec(f"{PREFIX}{spec.name}", spec.status, again=True)


def named_files(state: State) -> Mapping[str, tuple[FileSpec, ...]]:
    """By cluster: the status files that the environments of processes on the GPUs name, and the config does not."""
    paths = ((run, _in_environment(run, state)) for run in state.runs.values() if run.spec.status is None)
    found = by_key(
        (run.spec.cluster, FileSpec(f"{PREFIX}{run.name}", glob.escape(path), again=True))
        for run, path in paths
        if path
    )
    return {cluster: tuple(files) for cluster, files in found.items()}


def _in_environment(run: Run, state: State) -> str | None:
    job, process = state.jobs.get(run.job or ""), run.spec.process
    nodes = (state.nodes.get(name) for name in (run.spec.nodes if job is None else job.nodes))
    for one in (one for node in nodes if node is not None for gpu in node.gpus for one in gpu.processes):
        known, kill = one.environment, one.environment.get("TRAINMON_KILL")
        is_of_job = job is not None and known.get("SLURM_JOB_ID") == str(job.number)
        path = known.get("TRAINMON_STATUS") or (f"{kill}.status" if kill else "")
        if path.startswith("/") and (is_of_job or (process is not None and process.pid == one.pid)):
            return path
    return None


def read_status(content: FileContent, host: str, skew: Seconds) -> Trainer | None:
    """What a file says; None if it cannot be read or is none. `skew` is how far the clock of its host is ahead."""
    try:
        found = DECODER.decode(content.text or "")
    except (msgspec.DecodeError, UnicodeError):
        return None
    asked, saved, ended = found.asked, found.last_save, found.ended

    def text(value: str) -> str:
        return scrub(clean(value))

    return Trainer(
        path=clean(content.path or ""),
        host=host,
        at=found.at - skew,
        phase=text(found.phase),
        step=found.step,
        job=found.job,
        deadline=None if found.deadline is None else found.deadline - skew,
        grace_s=found.grace_s,
        kill=found.kill,
        save=found.save,
        signals={text(name): text(ask) for name, ask in found.signals.items()},
        is_task=found.is_task,
        asked=None if asked is None else Asked(text(asked.what), text(asked.by), asked.at - skew, asked.step),
        saved_step=None if saved is None else saved.step,
        saved_at=None if saved is None else saved.at - skew,
        ended_at=None if ended is None else ended.at - skew,
        ended=None if ended is None else text(ended.why),
    )


def other_switches(spec: RunSpec, trainer: Trainer) -> tuple[tuple[str, str, str | None], ...]:
    """The switches of the config that the trainer does not look at: kill or save, the path, and that of the trainer."""
    pairs = (("kill", spec.kill_switch, trainer.kill), ("save", spec.save_switch, trainer.save))
    return tuple((kind, ours, theirs) for kind, ours, theirs in pairs if ours is not None and ours != theirs)


def was_withdrawn(run: Run, actions: Mapping[str, Record], kind: Literal["save", "kill"]) -> bool:
    """Whether a person removed the switch when it disappeared, not the trainer."""
    switch = run.save if kind == "save" else run.kill
    taken_at = None if switch is None else switch.taken_at
    return taken_at is not None and any(
        record.action.verb == f"un{kind}" and record.action.run == run.name and record.done_at is not None
        and abs(record.done_at - taken_at) <= WITHDRAWN_WITHIN
        for record in actions.values()
    )  # fmt: skip


def listening(run: Run, state: State, what: str, now: Instant) -> str | None:
    """Whether the trainer listens to `kill`, `save` or a signal, in words. None for a signal that it does not report:
    the plan says who catches that."""
    trainer, is_switch = run.trainer, what in ("kill", "save")
    if trainer is None:
        return _unreported(run, state, what, now) if is_switch else None
    when = f"{ago(now - trainer.at)} ago"
    others = {kind: theirs for kind, _, theirs in other_switches(run.spec, trainer)}
    if trainer.ended is not None:
        return f"no: it ended {when} ({trainer.ended})"
    if what in others:
        return f"no: it looks at {clean(others[what] or 'no such file')}"
    if not is_switch and f"SIG{what}" not in trainer.signals:
        return f"no: it does not listen to {what}"
    asks = "" if is_switch else f"; {what} asks it to {trainer.signals[f'SIG{what}']}"
    return f"{'unknown: its last report was' if _is_silent(trainer, now) else 'yes: it reported'} {when}{asks}"


def saves_on(run: Run, signal: str, now: Instant) -> bool:
    """Whether the trainer reports that this signal makes it save. Slurm sends it to the tasks of a step, not to what a
    launcher or a shell has started there."""
    found = run.trainer
    is_alive = found is not None and found.ended is None and not _is_silent(found, now)
    return found is not None and is_alive and found.is_task and f"SIG{signal}" in found.signals


def stops_by(run: Run, limit: Instant, now: Instant) -> bool:
    """Whether the trainer reports that it saves and stops by itself before this time limit."""
    found = run.trainer
    is_alive = found is not None and found.ended is None and not _is_silent(found, now)
    return found is not None and is_alive and found.deadline is not None and found.deadline - found.grace_s < limit


def _is_silent(trainer: Trainer, now: Instant) -> bool:
    return now - trainer.at > SILENT and trainer.phase not in BUSY


def _unreported(run: Run, state: State, what: str, now: Instant) -> str:
    """What shows whether a trainer without a status file reads a switch, or would show it."""
    taken_at = None if run.save is None else run.save.taken_at
    if taken_at is not None and not was_withdrawn(run, state.actions, "save"):
        return f"probably: it removed the save switch {ago(now - taken_at)} ago"
    shows = "; this save will show it" if what == "save" else "; a save would show it" if run.spec.save_switch else ""
    return f"not known: no status file yet{shows}"
