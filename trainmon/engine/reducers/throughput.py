"""Reducers of the memory of runs and of their GPUs. Pure."""

from __future__ import annotations

import math
import re

from msgspec.structs import replace

from trainmon.analysis.runs import PATIENCE, RunContext, loss, loss_scale, position, throughput
from trainmon.analysis.wandb import client_file, counts
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant
from trainmon.model import RECENT_LOSSES, GpuSamples, Log, Node, NodeReading, Points, Run, RunMemory, Stop

EXITING = re.compile(
    r"exiting program (?:after|at iteration)|graceful(?:ly)?[ -](?:stop|exit|shut|terminat)"
    r"|(?:received|caught|got|handling) (?:signal )?\(?SIG(?:TERM|USR1|USR2|INT)\b|received signal 1[025]\b"
    r"|sav(?:e|ing) (?:a )?(?:final )?checkpoint (?:before|and) exit|time limit .{0,60}(?:saving|exiting|stopping)",
    re.IGNORECASE,
)
"""What trainers log when they exit by themselves before the time limit: Megatron's exit_duration and signal handler,
DeepSpeed's launcher, the signal handlers of Lightning and TorchTitan, and common phrases of custom trainers."""

FLOOR = re.compile(r"loss scale already at minimum|minimum loss scale reached", re.IGNORECASE)
"""The last lines of DeepSpeed and fairseq before they give up."""

OVERFLOW = re.compile(r"overflow(?:!| detected\.) .{0,20}skipping step", re.IGNORECASE)
"""Lines of DeepSpeed and apex about a skipped step, if another format or a bar counts the steps."""


LINE = 300
"""Characters kept of a line."""


def sampled(node: Node, event: NodeReading) -> Node:
    """The node with its moving averages, if its GPUs were sampled."""
    if not isinstance(event.reading, GpuSamples) or node.gpus_at is None:
        return node
    return replace(node, paces=throughput.gpus(node.paces, node.gpus, node.gpus_at))


def follow(batch: EventBatch, now: Instant) -> None:
    """Update the memory of each run."""
    context = RunContext(jobs=batch.current("jobs"))
    for name, run in batch.current("runs").items():
        memory = _losses(_steps(_lines(run.memory, run.log, now), run), run.progress.at or now)
        memory = _stopped(memory, run, context)
        if memory is not run.memory:
            batch.writable("runs")[name] = replace(run, memory=memory)


def _steps(memory: RunMemory, run: Run) -> RunMemory:
    """Update the memory with a new step."""
    progress = run.progress
    at = progress.at
    if at is None or (at == memory.at and progress.step == memory.step):
        return memory
    is_counted = progress.bar is None and progress.counts != "epoch"  # such a bar restarts with every epoch
    is_back = is_counted and progress.step is not None and memory.step is not None and progress.step < memory.step
    wandb = client_file.evidence(run)
    attempt = wandb.current if wandb is not None and counts(progress) else None
    is_other = attempt is not None and memory.wandb not in (None, attempt.id)  # its steps are not those of the other
    is_late = memory.at is not None and at - memory.at > max(run.spec.stall_after, PATIENCE * (memory.cadence_s or 0.0))
    is_reset = is_back or is_late or is_other or memory.at is None
    scales = (None if is_reset else memory.scale_peak, loss_scale(run))
    new = replace(
        memory,
        throughput=throughput.advance(memory.throughput, progress, len(run.spec.nodes), reset=is_reset),
        step=progress.step,
        at=at,
        cadence_s=progress.cadence_s,
        wandb=None if attempt is None else attempt.id,
        scale_peak=max((scale for scale in scales if scale is not None), default=None),
    )
    new = _overflown(new, (progress.step or 0) - (memory.step or 0))
    if is_back and not is_other:
        new = replace(new, back_at=at, back_from=memory.step, exiting_at=None, floor_at=None)
    elif is_late or is_other:
        new = replace(new, exiting_at=None, floor_at=None)
    return new


def _overflown(memory: RunMemory, gained: int) -> RunMemory:
    """How many of the last steps were skipped, once so many more were counted."""
    if not memory.overflows and not memory.skipped_in_row:
        return memory
    is_all = 0 < gained <= memory.overflows
    return replace(
        memory,
        skipped_in_row=memory.skipped_in_row + gained if is_all else 0,
        overflows=memory.overflows - gained if is_all else 0,
    )


def _losses(memory: RunMemory, at: Instant) -> RunMemory:
    """The new losses of its log among the recent ones. The first read of a log has many, which make the usual band."""
    if not memory.unjudged:
        return memory
    steps, values = zip(*((float(step or 0), value) for step, value in memory.unjudged), strict=True)
    trouble = loss.follow(memory.trouble, memory.losses, "loss", Points(steps, (at,) * len(steps), values), at)
    losses = (*memory.losses, *(value for value in values if math.isfinite(value)))[-RECENT_LOSSES:]
    return replace(memory, trouble=trouble, losses=losses, unjudged=())


def _lines(memory: RunMemory, log: Log | None, now: Instant) -> RunMemory:
    """Update the memory with new log lines about its end and about skipped steps."""
    if log is None or log.first + len(log.lines) == memory.read_to:
        return memory
    # At the start of this program, the end of an old log is read again: it says nothing new.
    new = log.lines[max(0, memory.read_to - log.first) :] if memory.read_to else ()
    memory = replace(memory, read_to=log.first + len(log.lines))
    for line in new:
        if EXITING.search(line):
            memory = replace(memory, exiting_at=now)
        elif FLOOR.search(line):
            memory = replace(memory, floor_at=now, floor=line[:LINE])
        elif OVERFLOW.search(line):
            memory = replace(memory, overflows=memory.overflows + 1)
    return memory


def _stopped(memory: RunMemory, run: Run, context: RunContext) -> RunMemory:
    """Remember that a person ended the run, and who, for the time after their switch is removed."""
    kill, stop = run.kill, run.stop
    if stop is None:
        return memory
    if kill is not None and kill.exists:
        stop = Stop("the kill switch was armed" + (f" by {kill.by}" if kill.by else ""))
    where = position(run, context)
    if (memory.stopped, memory.stopped_by) == (where, stop):
        return memory
    return replace(memory, stopped=where, stopped_by=stop)
