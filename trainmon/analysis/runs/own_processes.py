"""Runs that are found without a scheduler: our own processes on the GPUs of this machine. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from trainmon.analysis.runs.context import Judgement, has_reached_target, target, where
from trainmon.analysis.runs.job_matching import ENDED_RUNS_STAY
from trainmon.analysis.runs.last_attempt import at_its_target
from trainmon.lib import Instant, clean, duration, scrub
from trainmon.model import OwnProcess, Run, RunSpec

NO_TRAINERS = ("ipykernel", "jupyter")
"""Python programs that hold a GPU for a person who types."""


def process_runs(
    before: Sequence[RunSpec], own: Iterable[OwnProcess], cluster: str, node: str, now: Instant
) -> tuple[RunSpec, ...]:
    """The runs of our processes on one node, after those that were known before. A run whose process has ended stays
    for a day, or until it is started again."""
    found: dict[str, RunSpec] = {}
    for process in _leaders(own):
        process = replace(process, command=scrub(clean(process.command)))
        old = next((spec for spec in before if spec.process is not None and is_same(spec.process, process)), None)
        name = script = old.name if old is not None else name_of(process)
        taken = found.keys() | {spec.name for spec in before if spec is not old and spec.ended_at is None}
        if name in taken:
            name = f"{script}-{process.pid}"
        found[name] = RunSpec(
            name=name, cluster=cluster, found=True, log=process.stdout, nodes=(node,), process=process
        )
    ended = (replace(spec, ended_at=spec.ended_at or now) for spec in before if spec.name not in found)
    return (*found.values(), *(spec for spec in ended if now - (spec.ended_at or now) < ENDED_RUNS_STAY))


def is_same(one: OwnProcess, other: OwnProcess) -> bool:
    """Whether two processes belong to one run: ranks of one trainer, or its next start."""
    if one.stdout is not None and other.stdout is not None:
        return one.stdout == other.stdout
    return (one.command, one.workdir) == (other.command, other.workdir)


def _leaders(own: Iterable[OwnProcess]) -> Iterator[OwnProcess]:
    """One process of each run: of the ranks of a trainer the one with the lowest pid."""
    leaders: list[OwnProcess] = []
    for process in sorted(own, key=lambda one: one.pid):
        if is_trainer(process) and not any(is_same(leader, process) for leader in leaders):
            leaders.append(process)
            yield process


def is_trainer(process: OwnProcess) -> bool:
    """Whether a process may train: its output goes to a file, or it is a Python program."""
    program = posixpath.basename(process.command.partition(" ")[0])
    is_python = program.startswith(("python", "torchrun")) and not any(name in process.command for name in NO_TRAINERS)
    return process.stdout is not None or is_python


def name_of(process: OwnProcess) -> str:
    """Its script or module without the suffix; else its directory, else its program."""
    words = clean(process.command).split()
    script = next((posixpath.basename(word)[:-3] for word in words if word.endswith(".py")), "")
    module = next((after for word, after in pairwise(words) if word == "-m"), "")
    return script or module or posixpath.basename(process.workdir or "") or posixpath.basename(words[0])


def after_its_process(run: Run, process: OwnProcess, ended_at: Instant, now: Instant) -> Judgement:
    """The verdict when the process is gone. How it ended is not known."""
    progress, goal = run.progress, target(run)
    how = f"process {process.pid} ended {duration(max(0.0, now - ended_at))} ago"
    at = "" if progress.at is None else f", at {where(progress)}"
    if has_reached_target(run):
        return at_its_target(run, how)
    if goal is None:
        return Judgement("unknown", f"{how}{at}; no target step is known")
    return Judgement("dead", f"{how}{at} of {goal:,}: not finished")
