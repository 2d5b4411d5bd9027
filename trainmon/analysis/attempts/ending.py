"""How an attempt ended, or would end now: what reported it, its cause, and whether its trainer outlived it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.fold import (
    end_by,
    has_more_receipts,
    judged_with,
    merged,
    named_as,
    settled,
    with_codes,
)
from trainmon.analysis.attempts.provenance import file_of
from trainmon.analysis.attempts.steps import (
    before_next_start,
    began_at,
    is_read_to_end,
    latest_of,
    lines_of,
    run_of,
    with_steps_of,
)
from trainmon.analysis.causes.classify import classify, stated
from trainmon.analysis.disks.capacity import is_on, lies_on, size_of
from trainmon.analysis.gpus import CONTAINED, is_read, meaning
from trainmon.analysis.log_formats import Format
from trainmon.analysis.runs import (
    last_attempts,
    loss,
    running,
    sharing,
    was_killed,
)
from trainmon.analysis.wandb import counts
from trainmon.lib import Instant, Seconds, clean, duration, scrub, size
from trainmon.model import (
    ALIVE,
    OVER,
    SILENT,
    Attempt,
    AttemptEnd,
    CauseFacts,
    Classification,
    Fault,
    FileContent,
    Job,
    LogExcerpt,
    Node,
    NodeFacts,
    NodeHistory,
    Outlook,
    Run,
    SchedulerNode,
    State,
)

# ---- how an attempt ended: what reported it, the end of its log, and its cause ---------------------------------------

TAIL_LINES = 400
TAIL_CHARACTERS = 48 * 1024
"""What is kept of a log: a traceback of every rank of two nodes."""

PATIENCE: Seconds = 45.0
"""How long an attempt that ended waits for the end of its log and for its exit code."""

ACCOUNTING_LAGS: Seconds = 600.0
"""How long accounting may need for a job that has left the queue."""

LATER: Seconds = 60.0
"""A fault that is reported this long after the end still belongs to the attempt."""

UNWATCHED = NodeHistory()
"""Of a node of which nothing was read."""


def end_of(job: Job, state: State, *, by_accounting: bool = False) -> AttemptEnd | None:
    """The end of a job that has run; None while it runs, or while its end is not known yet. Accounting has reported it
    if `by_accounting`, or if the queue no longer shows the job."""
    # `0:0` of a job that has failed was read while it still ran, and a job that was requeued has not exited.
    is_early = job.state in ("FAILED", "REQUEUED") and job.exit_code == "0:0"
    code, _, number = ("" if is_early else job.exit_code or "").partition(":")
    cluster, gone_at = state.clusters.get(job.cluster), job.gone_at
    if is_over(job):
        by = f" by {job.cancelled_by}" if job.cancelled_by else ""
        is_accounted = by_accounting or (gone_at is not None and cluster is not None and cluster.accounting)
        return replace(
            end_by("accounting" if is_accounted else "queue", job.ends_at or gone_at or state.at, state),
            exit_code=int(code) if code.isdecimal() else None,
            signal=int(number) or None if number.isdecimal() else None,
            scheduler_state=job.state + by,
        )
    has_accounting = cluster is None or cluster.accounting is not False
    if gone_at is None or (has_accounting and state.at - gone_at < ACCOUNTING_LAGS):
        return None
    return end_by("lost", gone_at, state)


def is_over(job: Job) -> bool:
    """Whether the job, or an earlier attempt of it that accounting reports, has ended."""
    return job.stage == "ended" or (job.state == "REQUEUED" and job.ends_at is not None)


def is_settled(attempt: Attempt, end: AttemptEnd, run: Run, state: State) -> bool:
    """Whether everything is there that is to be known of an end, or is no longer waited for."""
    has_code = end.scheduler_state in (None, "REQUEUED", "PREEMPTED") or end.exit_code is not None
    return state.at - max(end.at, state.started_at) >= PATIENCE or (
        has_code and is_read_to_end(attempt, end, run, state)
    )


def ending_directories(state: State) -> frozenset[str]:
    """The checkpoint directories of attempts that are over and not closed yet. They are listed more often."""
    runs = (state.runs.get(one.run_id) for one in state.attempts.values() if one.is_open and _is_ending(one, state))
    return frozenset(run.spec.checkpoints for run in runs if run is not None and run.spec.checkpoints is not None)


def _is_ending(attempt: Attempt, state: State) -> bool:
    job = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}")
    ended_at = None if job is None else job.ends_at if is_over(job) else job.gone_at
    is_just_over = ended_at is not None and state.at - max(ended_at, state.started_at) < PATIENCE
    has_ended = job is None and run_of(attempt, state).verdict in OVER
    return attempt.reported_end is not None or is_just_over or has_ended


def tail_of(lines: Sequence[str]) -> str:
    """The last lines, as they are stored."""
    return "\n".join(map(clean, scrub("\n".join(lines[-TAIL_LINES:])).split("\n")))[-TAIL_CHARACTERS:]


REPORTS = attrgetter("exit_code", "signal", "scheduler_state", "awaits_log")
"""What the cause of an end follows from: while it is the same, so is the cause."""


def closed(seen: Attempt, lines: Sequence[str], *, before: Attempt | None, state: State) -> Attempt:
    """The attempt with the end that is seen now, and its cause: by these lines of its log, else by those that are
    known. The cause is determined again if what is reported of the end has changed, or its log was read since. What
    showed a known cause, such as a lost GPU, may be gone: it stays the cause."""
    run, end = state.runs.get(seen.run_id), seen.end
    assert end is not None
    log = None if run is None else run.log
    if log is not None and lines and lines[-1] in log.lines[-1:]:
        lines = (*lines, *log.shown[len(log.lines) :])
    latest = inf if run is None else latest_of(seen, run, state)
    seen = settled(seen, before, latest, state.at, has_log=not end.awaits_log)
    earlier, known = (None, None) if before is None else (before.end, before.told_end)
    lines = () if known is not None and known.has_own_tail else lines
    end = replace(end, log_tail=tail_of(lines) or (known or end).log_tail)
    if before is not None and earlier is not None:
        judged = judged_with(end) if has_more_receipts(end, earlier) else earlier.judged
        seen, end = (
            named_as(seen, before),
            replace(end, awaits_log=end.awaits_log and earlier.awaits_log, judged=judged),
        )
    else:
        end = with_codes(end, known)
    whole = merged(before, replace(seen, end=end))
    end = whole.end
    assert end is not None
    if earlier is not None and earlier.cause is not None and REPORTS(earlier) == REPORTS(end):
        end = replace(end, cause=earlier.cause, judged=earlier.judged, log_tail=earlier.log_tail)
        return replace(whole, end=end)
    found = with_cause(whole, end, lines, state)
    if known is not None and _shows_node(known, seen) and not _shows_node(found, seen):
        found = replace(found, cause=known.cause)
    return replace(whole, end=found)


def _shows_node(end: AttemptEnd, attempt: Attempt) -> bool:
    """Whether what happened on a node of the attempt shows its cause."""
    facts = () if end.cause is None else (one.text for one in end.cause.evidence if one.line is None)
    return any(text.partition(":")[0] in attempt.nodes for text in facts)


def with_cause(attempt: Attempt, end: AttemptEnd, lines: Sequence[str], state: State) -> AttemptEnd:
    """The end of an attempt with its cause."""
    text, began = "\n".join(lines) or end.log_tail or "", attempt.started_at or 0.0
    last_lines = tuple(text.split("\n")[-TAIL_LINES:])
    facts = CauseFacts(
        log=(LogExcerpt(text=text, first_line=-(text.count("\n") + 1)),) if text else (),
        exit_code=end.exit_code,
        signal=end.signal,
        is_exact=end.receipt is not None,
        scheduler_state=end.scheduler_state,
        nodes=tuple(node_facts(name, attempt, state) for name in attempt.nodes),
        wandb_state=_wandb_state(attempt, state),
        kill_switch=was_killed(run_of(attempt, state), state.actions, began, end.at, last_lines),
        checkpoint_committed=attempt.has_committed,
        last_step=attempt.last_step,
        target_step=attempt.target_step,
    )
    cause = classify(facts)
    cause = replace(cause, evidence=(*cause.evidence, *receipts.evidence(end)))
    return replace(end, cause=cause, judged=judged_with(end))


def with_tail(
    attempt: Attempt, content: FileContent, state: State, skew: Seconds, formats: Sequence[Format] = ()
) -> Attempt:
    """The attempt after its last lines were read: its steps, if nobody watched it, and its cause by these lines.
    `formats`: those of the config."""
    attempt = replace(attempt, files={**attempt.files, receipts.TAIL: file_of(content, "", state.at, skew)})
    lines = content.text.removesuffix("\n").split("\n") if content.text else ()
    end = attempt.told_end
    if end is not None and lines:
        attempt = with_steps_of(attempt, lines, formats, is_whole=not content.is_cut)
        end = replace(end, log_tail=tail_of(lines), has_own_tail=True)
        if attempt.is_open:
            return replace(attempt, reported_end=end)
        return replace(attempt, end=with_cause(attempt, end, lines, state))
    return attempt


def node_facts(name: str, attempt: Attempt, state: State) -> NodeFacts:
    """What happened on a node in the last part of the attempt: a fault after which the run went on did not end it. What
    is only known of the present belongs to an end just now."""
    ended = (attempt.ended_at or state.at) + LATER
    went_on = progressed_until(attempt, run_of(attempt, state), ended - LATER)
    began = max(attempt.started_at or 0.0, went_on)
    is_recent = state.at <= ended
    history = state.node_histories.get(name, UNWATCHED)
    counter, rebooted_at = history.counters.get("oom_kills"), history.rebooted_at
    full = (one for one in state.disks.values() if one.host == name and one.state == "ok" and one.left_bytes == 0)
    return NodeFacts(
        name=name,
        xids=tuple(one.code for one in broken(history.faults) if began <= one.last_at and one.first_at <= ended),
        oom_kills=sum(one.by for one in counter.grown if began <= one.last <= ended) if counter is not None else 0,
        lost_gpus=lost_gpus(state.nodes.get(name), began) if is_recent else 0,
        full_disks=tuple(one.mount or one.path for one in full) if is_recent else (),
        rebooted=rebooted_at is not None and began <= rebooted_at <= ended,
        drained=_drained(state.scheduler_nodes.get(name)) if is_recent else None,
    )


def progressed_until(attempt: Attempt, run: Run, ended: Instant) -> Instant:
    """Until when the attempt surely ran well: shortly before its last step, or its last checkpoint. A fault before has
    not ended it."""
    spans = before_next_start(run.memory.spans, ended)
    steps = (min(one.last_at, ended) for one in spans if one.last is not None)
    known = (run.progress.at, *steps, attempt.last_committed_at, attempt.unrecognised_at)
    own = (one for one in known if one is not None and one <= ended)
    return max(own, default=0.0) - LATER - min(2 * (run.progress.cadence_s or 0.0), 10 * LATER)


def broken(faults: Iterable[Fault]) -> Iterator[Fault]:
    """The faults that ask for a reset, a reboot or another node. After a contained ECC error, the GPU goes on without
    the program."""
    lasting = (one for one in faults if one.code == CONTAINED or meaning(one.code, one.text).kind == "hardware")
    return (one for one in lasting if not one.is_switch)


def lost_gpus(node: Node | None, began: Instant) -> int:
    """How many GPUs a node has lost, without those whose fault is older."""
    gpus = () if node is None else (gpu for gpu in node.gpus if gpu.state == "lost")
    return sum(gpu.last_xid_at is None or gpu.last_xid_at >= began for gpu in gpus)


def _drained(node: SchedulerNode | None) -> str | None:
    if node is None or not (node.is_drained or node.state == "DOWN"):
        return None
    return f"{node.full_state} in Slurm{f' ({node.reason})' if node.reason else ''}"


def _wandb_state(attempt: Attempt, state: State) -> str | None:
    run = run_of(attempt, state)
    clients = (one for one in (run.wandb, run.wandb_file) if one is not None)
    return next((one.state for each in clients for one in each.runs if one.path == attempt.wandb_id), None)


# ---- what endangers an attempt that still runs, and what its cause would be if it ended now --------------------------

LOOK_EVERY: Seconds = 10.0
"""Nodes and disks are searched this often: a run may have a thousand of each."""

SOON: Seconds = 3_600.0
"""A disk that is full within this time endangers the next checkpoint."""

LIVING = ALIVE | SILENT | {"diverged"}
"""Verdicts of a run whose present state is known."""


def with_outlook(seen: Attempt, before: Attempt | None, run: Run, state: State) -> Attempt:
    """The running attempt as it is seen now, with its outlook."""
    if run.verdict not in LIVING:
        return seen if before is None or before.outlook is None else replace(seen, outlook_at=state.at)
    if before is not None and state.at // LOOK_EVERY == before.outlook_at // LOOK_EVERY:
        return replace(seen, outlook=before.outlook, outlook_at=before.outlook_at)
    return replace(seen, outlook=next(_dangers(seen, run, state), Outlook()), outlook_at=state.at)


def _dangers(attempt: Attempt, run: Run, state: State) -> Iterator[Outlook]:
    """All dangers. The first one counts: a broken node, then what the run itself shows, then its disks."""
    if run.kill is not None and run.kill.exists:
        yield Outlook(what="its kill switch is armed", cause=stated("kill-switch", "its kill switch is armed"))
    job = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}")
    if job is not None and job.preempted_at is not None:
        yield Outlook(what="is being preempted", cause=stated("preempted", f"Slurm is preempting job {job.id}"))
    for name in attempt.nodes:
        if what := _broken_gpus(name, max(attempt.started_at or 0.0, progressed_until(attempt, run, state.at)), state):
            yield Outlook(what=what, cause=stated("gpu-hardware", what))
        node = state.scheduler_nodes.get(name)
        if node is not None and node.state == "DOWN":
            yield Outlook(what=f"{name} is down", cause=stated("node-fail", f"{name}: Slurm reports it DOWN"))
    if run.verdict in SILENT:
        yield Outlook(
            what="hangs" if run.verdict == "hung" else "has stalled", since=run.progress.at, cause=_of_silence(run)
        )
    elif run.verdict == "diverged":
        yield Outlook(what="its loss has diverged", cause=stated("diverged", run.why))
    elif (trouble := loss.wandb_trouble(run)) is not None and trouble.state == "spike":
        yield Outlook(what="its loss has jumped", cause=stated("diverged", trouble.text))
    yield from _full_disks(run, state)
    if run.queued_behind:
        return  # the next job of its chain goes on
    if job is not None and job.ends_at is not None and run.eta_at is not None and job.ends_at < run.eta_at:
        early = f"job {job.id} ends {duration(run.eta_at - job.ends_at)} before the target step is reached at this pace"
        yield Outlook(what="its job ends before its target step", cause=stated("time-limit", early))


def _broken_gpus(name: str, since: Instant, state: State) -> str:
    """What is wrong with a GPU of a node, with its node."""
    xids = {one.code for one in broken(state.node_histories.get(name, UNWATCHED).faults) if one.last_at >= since}
    if xids:
        return f"{name} reports Xid {', '.join(map(str, sorted(xids)))}"
    lost = lost_gpus(state.nodes.get(name), since)
    return f"{name} has lost {lost} {'GPU' if lost == 1 else 'GPUs'}" if lost else ""


def _of_silence(run: Run) -> Classification:
    """The cause that the log of a silent run states, if it states one."""
    text = "\n".join(lines_of(run.log, None if run.log is None else run.log.path, is_newest=True))
    found = classify(CauseFacts(log=(LogExcerpt(text=text, first_line=-(text.count("\n") + 1)),)))
    is_error = found.confidence == "high" and found.family not in ("none", "unknown")
    return found if is_error else stated("hang", run.why)


def _full_disks(run: Run, state: State) -> Iterator[Outlook]:
    """The disk of its checkpoints, if the next one that is saved there may not fit."""
    saved, soon = run.checkpoints, state.at + SOON
    if saved is None:
        return
    places = [one.checkpoints for one in state.runs.values() if one.checkpoints is not None]
    needed: dict[str, int] = {}
    for disk in state.disks.values():
        where = disk.mount or disk.path
        if not lies_on(saved.path, where) and not lies_on(saved.path, disk.path):
            continue
        if where not in needed:
            needed[where] = max((size_of(one) or 1 for one in places if lies_on(one.path, where)), default=1)
        is_full = (disk.left_bytes is not None and disk.left_bytes < needed[where]) or (disk.full_at or soon) < soon
        has_no_inodes = disk.left_inodes == 0 or (disk.inodes_full_at or soon) < soon
        if (is_full or has_no_inodes) and is_on(disk, saved.path, saved.host, state.disks):
            what = f"{where} is almost full" if is_full else f"{where} has hardly any inodes left"
            inodes = "" if disk.left_inodes is None else f" and {disk.left_inodes:,} inodes"
            left = f"{where}: {size(disk.left_bytes or 0)}{inodes} left"
            yield Outlook(what=what, cause=stated("disk-full" if is_full else "inodes-full", left))


# ---- trainers that outlived their jobs -------------------------------------------------------------------------------

OUTLIVES: Seconds = 30.0
"""How long after the scheduler's end a trainer may go on. Slurm itself waits 30 s before it kills (KillWait)."""

APART: Seconds = 1.0
"""Values that were written within this time are one: a file server may show at once what was held back."""

NOTED_EVERY: Seconds = 10.0
"""How often it is noted that such a trainer still writes: a change is written to the ledger."""


def with_outlived(state: State) -> Mapping[str, Attempt]:
    """The attempts, with what the last one of each run writes after its end. Once the next one has started, all steps
    are those of that one; then the processes of a trainer show whether it still runs."""
    last, changed = last_attempts(state.attempts.values()), {}
    for attempt in state.attempts.values():
        is_last, run = last[attempt.run_id] is attempt, state.runs.get(attempt.run_id)
        end = attempt.told_end
        is_by_slurm = end is not None and attempt.job_id is not None and end.source in ("queue", "accounting")
        if not is_by_slurm or end is None or run is None or not (is_last or attempt.outlived_by > 1):
            continue
        is_alone = is_last and not any(running(run, state))  # it may still save, too (COMPLETING)
        found = _written(attempt, run, state, began_at(end.at, run, state) or end.at) if is_alone else attempt
        if (found.outlived_at or 0.0) > (found.outlived_gone_at or 0.0):
            found = _present(found, run, state, is_alone=is_alone)
        if found is not attempt:
            changed[found.attempt_id] = found
    return {**state.attempts, **changed} if changed else state.attempts


def _written(attempt: Attempt, run: Run, state: State, ended_at: Instant) -> Attempt:
    """The attempt with its last value, if that is a new one. The next value counts only if Slurm was asked since the
    one before: a job that wrote that one would be listed."""
    source, found = state.sources.get(f"slurm:{attempt.cluster}"), attempt
    asked_at = 0.0 if source is None else source.answered_at or 0.0
    for step, at in _values(attempt, run, state, ended_at):
        known_at = found.outlived_at or 0.0
        is_late = at > ended_at + OUTLIVES and step > max(found.outlived_step or 0, attempt.last_step or 0)
        if is_late and at - known_at >= (APART if found.outlived_by < 2 else NOTED_EVERY) and asked_at >= known_at:
            is_known = found.outlived_pids and found.outlived_gone_at is None
            pids = found.outlived_pids if is_known else _pids(attempt, state)
            by = found.outlived_by + 1
            found = replace(found, outlived_by=by, outlived_step=step, outlived_at=at, outlived_pids=pids)
    return found


def _present(attempt: Attempt, run: Run, state: State, *, is_alone: bool) -> Attempt:
    """The attempt with when its trainer was last seen: by what it writes, or, while another one writes, on its GPUs.
    Or with its end: by its GPUs, by its receipts, or by its own status file."""
    assert attempt.outlived_at is not None
    holders = {one.partition("/")[0] for one in attempt.outlived_pids}
    are_read = all(is_read(name, state.nodes, state.sources, state.at) for name in holders)
    is_there = not {*attempt.outlived_pids}.isdisjoint(_pids(attempt, state))
    own = receipts.of_attempt(attempt, state)
    ends = [one.ended_at or one.gone_at for one in own] if all(one.is_over for one in own) else []
    ends += [run.trainer.ended_at] if run.trainer is not None and is_alone else []
    is_over = any(at is not None and at >= attempt.outlived_at - NOTED_EVERY for at in ends)
    if is_over or (holders and are_read and not is_there):
        return replace(attempt, outlived_gone_at=state.at)
    log = run.log if run.log is not None and attempt.log_path in (None, run.log.path) else None
    seen_at = (None if log is None else log.modified_at) if is_alone else state.at if is_there else None
    is_later = seen_at is not None and seen_at - attempt.outlived_at >= NOTED_EVERY
    return replace(attempt, outlived_at=seen_at) if is_later else attempt


def _values(attempt: Attempt, run: Run, state: State, ended_at: Instant) -> Iterator[tuple[int, Instant]]:
    """Its newest checkpoint and the newest step of its log, and when each was written, by our clock. If the log shows
    another start after the end, its steps are those of somebody who trains on. While a job of another run saves into
    the same directory, the checkpoints may be those of that one."""
    log, step, saved = run.log, run.progress.step, run.checkpoints
    if any(one.is_start and one.first_at > ended_at for one in run.memory.spans[1:]):
        return
    is_shared = any(any(running(one, state)) for one in sharing(run, state.runs))
    newest = None if saved is None or saved.error is not None or is_shared else saved.committed
    if newest is not None and newest.step is not None and newest.at is not None and attempt.counts_steps is not False:
        yield newest.step, newest.at
    is_counted = log is not None and attempt.log_path in (None, log.path) and not counts(run.progress)
    if is_counted and log is not None and log.modified_at is not None and step is not None:
        yield step, log.modified_at


def _pids(attempt: Attempt, state: State) -> tuple[str, ...]:
    """The processes of its user on the GPUs of its nodes, as far as they are read."""
    job = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}")
    nodes = [name for name in attempt.nodes if is_read(name, state.nodes, state.sources, state.at)]
    found = ((name, one) for name in nodes for gpu in state.nodes[name].gpus for one in gpu.processes)
    return tuple(sorted({f"{name}/{one.pid}" for name, one in found if job is None or one.user == job.user}))
