"""Receipts of trainmon-run: what they tell of an attempt, and which of them belong to it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts.fold import VALUE, end_by, with_named
from trainmon.analysis.runs import name_of, significant
from trainmon.lib import Instant, Seconds, clean, scrub
from trainmon.model import (
    Attempt,
    AttemptEnd,
    Evidence,
    FileSpec,
    OwnProcess,
    Receipt,
    ReceiptFiles,
    Run,
    RunSpec,
    State,
    receipts_key,
)
from trainmon.slurm.parse import hosts

# ---- A receipt as its files are → what they tell ---------------------------------------------------------------------


class _Start(msgspec.Struct):
    """start.json, as far as it is read."""

    started_at: float
    host: str | None = None
    pid: int | None = None
    run: str | None = None
    argv: tuple[str, ...] = ()
    git_commit: str | None = None
    data_manifest: str | None = None
    slurm: Mapping[str, str] = {}
    stdout: Mapping[str, Any] | None = None
    log: str | None = None
    log_offset: int | None = None


class _Output(msgspec.Struct):
    tail: str | None = None


class _End(msgspec.Struct):
    """end.json, as far as it is read."""

    ended_at: float
    status: int | None = None
    signal: int | None = None
    output: _Output | None = None


START, END = msgspec.json.Decoder(_Start), msgspec.json.Decoder(_End)


def read(
    found: ReceiptFiles,
    directory: str,
    cluster: str,
    at: Instant,
    ahead: Callable[[str], Seconds],
    *,
    slurm: bool,
) -> Receipt | None:
    """A receipt as its files are; None if they are not those of trainmon-run. `ahead` is how far the clock of a host is
    ahead; `slurm`, whether the cluster has jobs."""
    try:
        start = START.decode(found.start or "")
        end = None if found.end is None else END.decode(found.end)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    skew = significant(ahead(start.host or ""))
    stdout = start.stdout if start.stdout is not None and start.stdout.get("kind") == "file" else {}
    path, offset = (stdout.get("path"), stdout.get("offset")) if start.log is None else (start.log, start.log_offset)
    is_by_srun = start.log is None and start.stdout is not None and start.stdout.get("through") == "srun"
    restart = start.slurm.get("restart_count", "0")
    receipt = Receipt(
        name=clean(found.name),
        path=found.path,
        cluster=cluster,
        directory=directory,
        started_at=start.started_at - skew,
        run=start.run,
        host=_shown(start.host),
        pid=start.pid,
        command_pid=found.command_pid,
        command=_shown(" ".join(start.argv)),
        git_commit=_shown(start.git_commit),
        data_manifest=_shown(start.data_manifest),
        job_id=_job_id(start.slurm) if slurm else None,
        restart=int(restart) if restart.isdecimal() else None,
        job_name=_shown(start.slurm.get("job_name")),
        nodes=hosts(start.slurm.get("job_nodelist", "")),
        log_path=path if isinstance(path, str) else None,
        log_offset=offset if isinstance(offset, int) else None,
        log_by_srun=is_by_srun,
        gone_at=at if found.gone and end is None else None,
    )
    if end is None:
        return receipt
    tail = None if end.output is None else end.output.tail
    return replace(receipt, ended_at=end.ended_at - skew, exit_code=end.status, signal=end.signal, tail_path=tail)


def _shown(text: str | None) -> str | None:
    return None if not text else clean(scrub(text), VALUE)


def _job_id(slurm: Mapping[str, str]) -> str | None:
    if "array_job_id" in slurm and "array_task_id" in slurm:
        return f"{slurm['array_job_id']}_{slurm['array_task_id']}"
    return slurm.get("job_id")


# ---- which receipts belong to which attempt --------------------------------------------------------------------------

NEAR: Seconds = 60.0
"""A command that begins this long before the start of an attempt, or after its end, still belongs to it: the clocks of
two machines differ. Commands that begin this close together are ranks of one attempt."""

SURELY_NEAR: Seconds = 10.0
"""No training is killed and started again within this time."""

AT_MOST = 200
"""Receipts that are kept of one job or run: more than ranks that run trainmon-run each."""
OWNERS = 2_000


def with_receipts(
    known: Mapping[str, tuple[Receipt, ...]], found: Iterable[Receipt]
) -> Mapping[str, tuple[Receipt, ...]]:
    """All receipts. What one host knows of a receipt, another may not: whether its processes are gone."""
    receipts = dict(known)
    for one in found:
        own = {each.name: each for each in receipts.pop(one.key, ())}
        before = own.get(one.name)
        if before is not None and (before.ended_at or 0.0) >= (one.ended_at or 0.0):
            before = replace(before, command_pid=before.command_pid or one.command_pid)
            one = replace(before, gone_at=before.gone_at or one.gone_at) if before.ended_at is None else before
        own[one.name] = one
        receipts[one.key] = tuple(sorted(own.values(), key=lambda each: (each.started_at, each.name))[-AT_MOST:])
    return receipts if len(receipts) <= OWNERS else dict(list(receipts.items())[-OWNERS:])


def of_run(run: Run, state: State) -> tuple[tuple[Receipt, ...], ...]:
    """The receipts of a run that name no job, those of the same start together; the newest last. Of a run that was
    found as a process, also those of its earlier starts."""
    spec = run.spec
    found = list(state.receipts.get(receipts_key(spec.cluster, run.name, ""), ()))
    if spec.receipts is not None:
        others = [one for one in state.runs.values() if one.spec.receipts == spec.receipts]
        if len(others) == 1:
            found += state.receipts.get(receipts_key(spec.cluster, None, spec.receipts), ())
    if spec.process is not None:
        found += [one for own in state.receipts.values() for one in own if _is_start_of(one, spec, spec.process)]
    groups: list[list[Receipt]] = []
    for one in sorted(found, key=lambda each: (each.started_at, each.name)):
        group = groups[-1] if groups else []
        if any(is_beside(one, each) for each in group) and one.started_at - group[0].started_at <= NEAR:
            group.append(one)
        else:
            groups.append([one])
    return tuple(map(tuple, groups))


def _is_start_of(receipt: Receipt, spec: RunSpec, process: OwnProcess) -> bool:
    """Whether a receipt that names no run is of a start of this run, which was found as a process: the same script with
    the same log, or without one the same command line."""
    host = spec.nodes[0].partition(".")[0] if spec.nodes else None
    is_there = receipt.cluster == spec.cluster and (receipt.host or "").partition(".")[0] == host
    if not is_there or receipt.run is not None or receipt.job_id is not None or receipt.command is None:
        return False
    if receipt.log_path is None or spec.log is None:
        return receipt.log_path is spec.log and receipt.command == process.command
    return receipt.log_path == spec.log and name_of(replace(process, command=receipt.command)) == name_of(process)


def is_beside(one: Receipt, other: Receipt) -> bool:
    """Whether it began while the other one ran. When a command was killed with trainmon-run is not known."""
    if other.gone_at is not None:
        return one.started_at - other.started_at <= SURELY_NEAR
    return other.ended_at is None or other.ended_at >= one.started_at


def of_attempt(attempt: Attempt, state: State) -> tuple[Receipt, ...]:
    """The receipts of an attempt, the newest last."""
    run = state.runs.get(attempt.run_id)
    if attempt.pid is not None:
        return _of_process(attempt, run, state)
    if attempt.job_id is None:
        groups = of_run(run, state) if run is not None and attempt.receipt is not None else ()
        return next((group for group in groups if any(one.name == attempt.receipt for one in group)), ())
    began, ended = attempt.started_at, attempt.told_end
    return tuple(
        one
        for one in state.receipts.get(f"{attempt.cluster}/{attempt.job_id}", ())
        if (attempt.restart is None or one.restart in (None, attempt.restart))
        and (began is None or one.started_at >= began - NEAR)
        and (ended is None or one.started_at <= ended.at + NEAR)
    )


def _of_process(attempt: Attempt, run: Run | None, state: State) -> tuple[Receipt, ...]:
    """The receipt of the command that this process is, or that has started it. Pids are used again."""
    process = None if run is None or run.spec.process is None else run.spec.process
    pids = (attempt.pid,) if process is None or process.pid != attempt.pid else (process.pid, *process.parents)
    every = (one for own in state.receipts.values() for one in own)
    found = [one for one in every if one.cluster == attempt.cluster and one.job_id is None]
    if attempt.receipt is not None:
        return tuple(one for one in found if one.name == attempt.receipt)
    began, host = attempt.started_at, attempt.nodes[0].partition(".")[0] if attempt.nodes else None
    mine = (
        one
        for one in found
        if (one.pid in pids or one.command_pid in pids)
        and (one.host or "").partition(".")[0] == host
        and (began is None or one.started_at - SURELY_NEAR <= began <= (one.ended_at or one.gone_at or began) + NEAR)
    )
    return tuple(sorted(mine, key=lambda one: one.started_at))[-1:]


# ---- what the receipts of an attempt tell of it and of its end -------------------------------------------------------


def newest_of(own: Sequence[Receipt]) -> Sequence[Receipt]:
    """The newest receipt and those that ran at the same time: a script may run one command after the other."""
    return [one for one in own if one is own[-1] or is_beside(own[-1], one)]


def deciding(own: Sequence[Receipt]) -> Receipt | None:
    """The receipt whose exit code counts: of several ranks, the one that failed first. None while none has failed and
    some have no end."""
    last = newest_of(own)
    failed = [one for one in last if one.ended_at is not None and (one.exit_code or one.signal)]
    if failed:
        return min(failed, key=lambda one: (one.ended_at or 0.0, one.name))
    return last[-1] if last and all(one.ended_at is not None for one in last) else None


def cut_off(own: Sequence[Receipt]) -> Receipt | None:
    """The first receipt of the last commands whose processes are gone without an end."""
    return next((one for one in newest_of(own) if one.gone_at is not None), None)


def applied(attempt: Attempt, own: Sequence[Receipt]) -> Attempt:
    """The attempt with what its receipts tell."""
    if not own:
        return attempt
    newest = own[-1]
    is_its_log = newest.log_path is not None and attempt.log_path in (None, newest.log_path)
    if is_its_log:
        offsets = [
            one.log_offset for one in newest_of(own) if one.log_path == newest.log_path and one.log_offset is not None
        ]
        attempt = replace(attempt, log_path=newest.log_path, log_offset=min(offsets, default=None))
    attempt = replace(
        attempt,
        receipt=newest.name,
        log_by_srun=attempt.log_by_srun or newest.log_by_srun,
        end=None if attempt.end is None else ended(attempt.end, own),
    )
    attempt = with_named(attempt, "receipt", {"command": newest.command, "git_commit": newest.git_commit})
    return with_named(attempt, "environment", {"data_manifest": newest.data_manifest})


def ended(end: AttemptEnd, own: Sequence[Receipt]) -> AttemptEnd:
    """The end with the exit code and signal of the receipts, unless a script has gone on after its command."""
    found = deciding(own)
    if found is None:
        gone = cut_off(own)
        return end if gone is None else replace(end, cut_receipt=gone.name)
    has_failed, state = bool(found.exit_code or found.signal), (end.scheduler_state or "").partition(" ")[0]
    if state == "COMPLETED" if has_failed else state == "FAILED" and bool(end.exit_code or end.signal):
        return end
    times = [one.ended_at for one in own if one.ended_at is not None]
    if end.source in ("lost", "process") and len(times) == len(own):  # those are only signs that it is over
        end = replace(end, at=max(times))
    return replace(end, exit_code=found.exit_code, signal=found.signal, receipt=found.name, receipts=len(times))


def end_of(own: Sequence[Receipt], run: Run, state: State, following: Instant | None) -> AttemptEnd | None:
    """The end of an attempt, by its receipts; None while one of its commands runs. The next attempt began at
    `following`."""
    return end_once_gone(own, run, state, following) if own and all(one.is_over for one in own) else None


def end_once_gone(own: Sequence[Receipt], run: Run, state: State, following: Instant | None) -> AttemptEnd:
    """The end of an attempt whose job is gone. The end of a command that was killed with trainmon-run is not known
    exactly: its log was written before, and the next one began after."""
    began, log = own[0].started_at, run.log
    at = max((one.ended_at for one in own if one.ended_at is not None), default=None)
    if at is None:
        is_its_log = log is not None and following is None and own[-1].log_path in (None, log.path)
        written = log.at if log is not None and is_its_log and (log.at or 0.0) >= began else None
        at = min((one for one in (written, following, own[-1].gone_at) if one is not None), default=own[-1].started_at)
    return ended(end_by("receipt" if all(one.is_over for one in own) else "lost", at, state), own)


def evidence(end: AttemptEnd) -> Iterator[Evidence]:
    """What the receipt says of the end."""
    if end.receipt is not None:
        how = f"signal {end.signal}" if end.signal else f"exit status {end.exit_code}"
        yield Evidence(text=f"receipt {end.receipt}: {how}")
    elif end.cut_receipt is not None:
        text = f"receipt {end.cut_receipt}: no end; the command was killed together with trainmon-run"
        yield Evidence(text=text)


# ---- the last lines of an attempt that its receipts name -------------------------------------------------------------

TAIL = "log_tail"
"""The name of the file with the lines of an attempt among its files."""


def tail_to_read(attempt: Attempt, state: State) -> FileSpec | None:
    """The request for the last lines of an attempt that is over: the copy of them in its receipt, else the part of its
    log. None if there is none, or if its end is not known yet."""
    own = () if attempt.told_end is None else of_attempt(attempt, state)
    found, gone = deciding(own), cut_off(own)
    if found is not None and found.tail_path is not None:
        return FileSpec(f"{TAIL} {attempt.attempt_id}", found.tail_path, part=(0, None))
    if gone is None or gone.log_path is None or gone.log_offset is None:
        return None
    return FileSpec(f"{TAIL} {attempt.attempt_id}", gone.log_path, part=(gone.log_offset, _next_offset(gone, state)))


def _next_offset(receipt: Receipt, state: State) -> int | None:
    """Where the output of the next command begins in the same file."""
    offsets = (
        one.log_offset
        for own in state.receipts.values()
        for one in own
        if one.log_path == receipt.log_path and one.cluster == receipt.cluster and one.started_at > receipt.started_at
    )
    return min((one for one in offsets if one is not None and one > (receipt.log_offset or 0)), default=None)


def is_awaited(attempt: Attempt, state: State) -> bool:
    """Whether more is to come of the receipts of an attempt that is over: an end, or its last lines."""
    known = state.attempts.get(attempt.attempt_id, attempt)
    own = of_attempt(replace(known, end=attempt.end, receipt=attempt.receipt or known.receipt), state)
    is_running = any(not one.is_over for one in own)
    return is_running or (bool(own) and TAIL not in known.files and tail_to_read(attempt, state) is not None)
