"""The attempts of a run without a scheduler: by its process, its receipts, its W&B runs or its log. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from trainmon.analysis.attempts import provenance, receipts
from trainmon.analysis.attempts.ending import ENDED, lost
from trainmon.analysis.attempts.fold import adds_nothing
from trainmon.analysis.attempts.observe.jobs import attempt_of, stamp, with_names, with_run
from trainmon.analysis.attempts.steps import AFTER, BEFORE
from trainmon.analysis.runs import our_time
from trainmon.analysis.wandb import client_file
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, AttemptEnd, Receipt, Run, State, WandbRun

OLD: Seconds = 7 * 86_400.0
"""Receipts of attempts that ended so long ago are not looked at."""

DAY: Seconds = 86_400.0
"""How far back logs are looked for that no known attempt precedes."""

OVER = frozenset({"finished", "failed", "crashed", "killed", "preempted"})
"""States of a W&B run that has ended."""


def _plain(run: Run, state: State, name: str) -> Attempt:
    """An attempt that no scheduler knows, on the nodes that the config names."""
    nodes = [state.nodes.get(node) for node in run.spec.nodes]
    gpus = sum(len(node.gpus) for node in nodes if node is not None)
    attempt = attempt_of(run, name, state.at)
    attempt = replace(attempt, gpus=gpus or None, gpu_uuids=provenance.gpu_uuids(nodes, gpus))
    process = run.spec.process
    return with_names(attempt, run, None if process is None else process.command)


def of_process(run: Run, state: State) -> Iterator[Attempt]:
    process, host = run.spec.process, run.spec.nodes[0] if run.spec.nodes else ""
    assert process is not None
    node = state.nodes.get(host)
    boot_time = None if node is None else node.boot_time
    if boot_time is None and state.at - state.started_at < AFTER:
        return  # it is a part of the name
    booted = "" if boot_time is None else f"@{stamp(boot_time)[:8]}"  # pids begin again
    attempt = _plain(run, state, f"pid/{host}/{process.pid}{booted}")
    own = [] if node is None else [gpu for gpu in node.gpus if process.pid in [one.pid for one in gpu.processes]]
    wandb = None if run.wandb is None else run.wandb.current
    started_at, ended_at = None if wandb is None else wandb.created_at, run.spec.ended_at
    if node is not None and boot_time is not None and process.started_s is not None:
        started_at = our_time(min(boot_time + process.started_s, state.at), node.clock_skew_s or 0.0)
    attempt = replace(
        attempt,
        pid=process.pid,
        command=process.command,
        started_at=started_at,
        start_was_watched=(started_at or 0.0) >= state.started_at,
        gpus=len(own) or None,
        gpu_uuids=tuple(gpu.uuid for gpu in own if gpu.uuid),
        end=None if ended_at is None else AttemptEnd(at=ended_at, source="process", noticed_at=ended_at),
        seen_at=state.at if ended_at is None else ended_at,
    )
    attempt = provenance.with_environment(attempt, [node], pid=process.pid)
    yield with_run(attempt, run, state, attempt.started_at or 0.0, is_newest=True)


def of_receipts(
    run: Run, groups: Sequence[Sequence[Receipt]], state: State, known: Mapping[str, Attempt]
) -> Iterator[Attempt]:
    """The attempts that trainmon-run has started. One that was opened before its receipt was read keeps its name."""
    mine = [one for one in known.values() if one.run_id == run.name and one.job_id is None]
    by_receipt = {one.receipt: one for one in mine if one.receipt is not None}
    for index, group in enumerate(groups):
        following = groups[index + 1][0].started_at if index + 1 < len(groups) else None
        end = receipts.end_of(group, run, state, following)
        if end is not None and state.at - end.at > OLD:
            continue
        before = next((by_receipt[one.name] for one in group if one.name in by_receipt), None)
        if before is None:
            began, until = group[0].started_at - AFTER, (state.at if end is None else end.at) + AFTER
            others = (one for one in mine if one.receipt is None and began <= one.start <= until)
            before = next(others, None)
        elif before.end is not None and end is not None and adds_nothing(end, before.end):
            continue
        name = f"receipt/{group[0].name}" if before is None else before.attempt_id.removeprefix(f"{run.name}/")
        hosts = tuple(dict.fromkeys(one.host for one in group if one.host is not None))
        attempt = replace(
            _plain(run, state, name),
            nodes=run.spec.nodes or hosts,
            started_at=group[0].started_at,
            start_was_watched=group[0].started_at >= state.started_at,
            seen_at=state.at if end is None else end.at,
            end=end,
            receipt=group[-1].name,
        )
        yield with_run(attempt, run, state, attempt.started_at, is_newest=following is None)


def of_wandb(run: Run, wandb: WandbRun, state: State, known: Mapping[str, Attempt]) -> Attempt | None:
    began, seen_at = wandb.created_at, wandb.heartbeat_at
    if began is None or seen_at is None:
        return None
    name = _wandb_name(run, wandb, seen_at, known)
    if "#" in name:  # W&B does not say when it was resumed
        before = known.get(f"{run.name}/{name}")
        began = (None if before is None else before.started_at) or seen_at
    is_newest = run.wandb is not None and run.wandb.current == wandb
    end = None
    if wandb.state in OVER:
        watched = seen_at >= state.started_at
        end = AttemptEnd(at=seen_at, source="wandb", noticed_at=state.at, was_watched=watched)
    attempt = replace(
        provenance.with_wandb(_plain(run, state, name), wandb),
        started_at=began,
        seen_at=min(state.at, seen_at),
        end=end,
        start_was_watched=began >= state.started_at,
    )
    if not is_newest:  # its own counter is all that is left of an earlier one
        return replace(attempt, last_step=wandb.step)
    return with_run(attempt, run, state, began, is_newest=True)


def _wandb_name(run: Run, wandb: WandbRun, seen_at: Instant, known: Mapping[str, Attempt]) -> str:
    """The name of its attempt. A W&B run that is resumed under its own id is another attempt: `wandb/…#2`."""
    name = f"wandb-file/{wandb.id}" if wandb.entity == client_file.ENTITY else f"wandb/{wandb.path}"
    own = [one for one in known.values() if f"{one.attempt_id}#".startswith(f"{run.name}/{name}#")]
    if not own:
        return name
    last = max(own, key=lambda one: (len(one.attempt_id), one.attempt_id))
    is_resumed = wandb.state not in OVER and last.end is not None and seen_at > last.end.at + AFTER
    return f"{name}#{len(own) + 1}" if is_resumed else last.attempt_id.removeprefix(f"{run.name}/")


def of_log(run: Run, path: str, state: State, known: Mapping[str, Attempt]) -> Attempt:
    """The attempt that writes this log now. A log that was there when this program started belongs to the attempt that
    an earlier start of this program has left open."""
    log = run.log
    assert log is not None
    began = log.began_at or state.at
    watched = log.is_new or began > state.started_at + AFTER
    name = f"log/{log.host}:{path}"
    mine = [one for one in known.values() if one.attempt_id.startswith(f"{run.name}/{name}@")]
    last = max(mine, key=lambda one: one.attempt_id, default=None)
    if last is not None and (not watched or (last.started_at or 0.0) >= began):
        name = last.attempt_id.removeprefix(f"{run.name}/")
    else:
        name = f"{name}@{stamp(began)}"
    has_ended = run.verdict in ENDED and log.at is not None
    seen_at = max(log.at or 0.0, began if watched else 0.0)  # a new log without a line: `at` is that of the one before
    attempt = replace(
        _plain(run, state, name),
        started_at=began if watched else None,
        start_was_watched=watched,
        seen_at=seen_at,
        end=AttemptEnd(at=seen_at, source="log", noticed_at=state.at) if has_ended else None,
    )
    attempt = with_run(attempt, run, state, attempt.started_at or 0.0, is_newest=True)
    estimated = None if watched else log.first_at or attempt.first_step_at
    return attempt if estimated is None else replace(attempt, started_at=estimated, start_is_estimated=True)


def of_other_logs(run: Run, state: State, known: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """The attempts whose logs appeared while nobody watched, beside the newest log; the newest first. A file that was
    still written after the next attempt had begun, or right before that one's last line, is another log of it."""
    log = run.log
    if log is None or log.at is None or not log.others:
        return
    mine = [one for one in known.values() if one.run_id == run.name]
    paths = {log.path, *(one.log_path for one in mine)}
    since = max((one.ended_at or one.seen_at for one in mine), default=state.started_at - DAY)
    next_at, next_began = log.at, log.first_at if not log.is_new else log.began_at
    for other in log.others:
        at = other.written_at
        if at <= since:
            return
        is_beside = next_at - at <= AFTER or (next_began is not None and at > next_began + BEFORE)
        if is_beside or other.path in paths or not other.path.startswith("/"):
            continue
        plain = _plain(run, state, f"log/{log.host}:{other.path}@{stamp(at)}")
        end = replace(lost(at, state), awaits_log=True)
        yield replace(plain, seen_at=at, log_host=log.host, log_path=other.path, end=end)
        next_at, next_began = at, None
