"""Which receipts belong to which attempt. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.analysis.runs import name_of
from trainmon.lib import Seconds
from trainmon.model import Attempt, OwnProcess, Receipt, Run, RunSpec, State, receipts_key

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
    if receipt.run is not None or receipt.job_id is not None or receipt.command is None:
        return False
    if receipt.cluster != spec.cluster or (receipt.host or "").partition(".")[0] != host:
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
    began, ended = attempt.started_at, attempt.end or attempt.reported_end
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
    found: list[Receipt] = []
    for own in state.receipts.values():
        found += [one for one in own if one.cluster == attempt.cluster and one.job_id is None]
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
