"""The State → what each source shows of the attempts of its runs: Slurm, processes, receipts, W&B, logs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from trainmon.analysis.attempts import provenance, receipts
from trainmon.analysis.attempts.ending import end_of, is_over
from trainmon.analysis.attempts.fold import adds_nothing, end_by, with_named
from trainmon.analysis.attempts.ranks import rank_map, ranks_of_job
from trainmon.analysis.attempts.steps import (
    AFTER,
    BEFORE,
    SECOND,
    before_next_start,
    began_at,
    has_newer,
    latest_of,
    lines_of,
    owns_log,
    start_of,
    stepped,
    with_checkpoints,
    with_steps_of,
)
from trainmon.analysis.log_formats import report, written
from trainmon.analysis.runs import has_begun, is_of_task, last_attempts, our_time
from trainmon.analysis.wandb import client_file
from trainmon.analysis.wandb.active_run import ENDED
from trainmon.lib import DAY, Instant, Seconds, clean, elapsed, group_by, listed, scrub
from trainmon.model import (
    OVER,
    Attempt,
    AttemptEnd,
    Job,
    Log,
    OwnProcess,
    RankMap,
    RankProcess,
    Receipt,
    Run,
    State,
    WandbRun,
)

# ---- which sources are still to answer before the attempts of a run are known ----------------------------------------

READ_WITHIN: Seconds = 10.0
"""How long the ledger may need to read its attempts."""


def unrecorded(state: State) -> Mapping[str, tuple[str, ...]]:
    """By source: the runs of which no attempt is recorded while it does not answer. Slurm would say whether they are
    its jobs; W&B, for a minute after the start, which of its runs they are."""
    found: dict[str, tuple[str, ...]] = {}
    for run in state.runs.values():
        if run.jobs or run.spec.process is not None or receipts.of_run(run, state):
            continue
        has_log = run.log is not None and run.log.path is not None
        asks_slurm = may_have_jobs(run, state) and (has_log or run.wandb is not None)
        awaits_wandb = has_log and run.wandb is None and run.spec.wandb is not None and may_have_others(run, state)
        name = f"slurm:{run.spec.cluster}" if asks_slurm else f"wandb:{run.name}" if awaits_wandb else ""
        source = state.sources.get(name)
        if source is not None and source.health in ("late", "down"):
            found[name] = (*found.get(name, ()), run.name)
    return found


def may_have_jobs(run: Run, state: State) -> bool:
    """Whether its scheduler has not answered since its log began. A source that needs long to appear does not exist.
    Where there is no squeue, there are no jobs."""
    cluster, source = state.clusters.get(run.spec.cluster), state.sources.get(f"slurm:{run.spec.cluster}")
    if (cluster is not None and cluster.has_slurm is False) or (source is not None and source.health == "off"):
        return False
    if source is None:
        return state.at - state.started_at < AFTER
    began = None if run.log is None else run.log.began_at
    return source.answered_at is None or (began is not None and source.answered_at < began + AFTER)


def may_have_others(run: Run, state: State) -> bool:
    """Whether the log may belong to an attempt that the ledger holds, or to a W&B run that has not been read yet."""
    wants_wandb = run.spec.wandb is not None and state.at - state.started_at < AFTER
    return wants_wandb or not is_restored(state)


def is_restored(state: State) -> bool:
    """Whether the ledger's attempts are in the State. A ledger that does not answer is not waited for."""
    return state.has_restored_attempts or state.at - state.started_at >= READ_WITHIN


def silence(name: str, answered_at: Instant | None, error: str | None, now: Instant) -> str:
    """`no data from Slurm of prod for 3m (no controller)`."""
    kind, _, of = name.partition(":")
    who = f"Slurm of {of}" if kind == "slurm" else f"W&B of {of}"
    return f"no data from {who} {elapsed(answered_at, now)}" + ("" if error is None else f" ({error})")


# ---- an attempt with what its run shows of it ------------------------------------------------------------------------


def attempt_of(run: Run, attempt_id: str, **facts: Any) -> Attempt:
    """An attempt of which these fields were observed, with what the config says of its run."""
    return Attempt(
        attempt_id=attempt_id,
        run_id=run.name,
        cluster=run.spec.cluster,
        model_family=run.spec.model_family,
        labels=run.spec.labels,
        target_step=run.target_step,
        **facts,
    )


def with_run(attempt: Attempt, run: Run, state: State, *, is_newest: bool) -> Attempt:
    """The attempt with what its run shows of it: steps, checkpoints, W&B, log."""
    until, began, latest = attempt.ended_at or state.at, start_of(attempt, run, state), latest_of(attempt, run, state)
    if is_newest and attempt.end is None:
        attempt = replace(attempt, ranks=_ranks(attempt, run, state, began))
    is_own = is_newest and owns_log(attempt, run, state)
    if is_own and run.log is not None:
        attempt = replace(attempt, log_path=run.log.path or attempt.log_path, log_host=run.log.host)
    if is_own or not is_newest:
        spans = run.memory.spans if attempt.end is None else before_next_start(run.memory.spans, until)
        attempt = stepped(attempt, spans, began, latest, state.started_at)
    progress = run.progress
    is_own = is_newest and (began or 0.0) <= (progress.at or 0.0) <= latest
    if is_own and all(one.first is None for one in run.memory.spans):  # a progress bar, or W&B's steps
        attempt = replace(attempt, last_step=progress.step)
    wandb = provenance.wandb_during(run, began, until) if is_newest else None
    if wandb is not None:
        attempt = provenance.with_wandb(attempt, wandb)
    return with_checkpoints(attempt, run, latest)


def _ranks(attempt: Attempt, run: Run, state: State, began: Instant | None) -> RankMap | None:
    """Where its ranks run. Those of runs without a job that share a node cannot be told apart."""
    job = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}")
    if job is None and attempt.job_id is not None:
        return None
    nodes, since = map(state.nodes.get, attempt.nodes), None if attempt.start_is_estimated else began
    if job is not None:
        return rank_map(nodes, job.number, since, job.components)
    known, own = rank_map(nodes, None, since), {*attempt.nodes}
    others = (one for one in state.runs.values() if not own.isdisjoint(one.spec.nodes) and one.name != run.name)
    return None if known is None or any(not one.jobs for one in others) else known


def rank_processes(run: Run, state: State) -> dict[str, dict[int, RankProcess]]:
    """By node and rank: the processes of the ranks of the newest attempt of a run, as far as its map of them is
    certain."""
    attempt = last_attempts(state.attempts.values()).get(run.name)
    if attempt is None or attempt.ranks is None or attempt.ranks.is_ambiguous:
        return {}
    known, job = attempt.ranks, state.jobs.get(f"{attempt.cluster}/{attempt.job_id}")
    jobs = {None} if job is None else {job.number, *job.components}
    since = None if attempt.start_is_estimated else start_of(attempt, run, state)
    found: dict[str, dict[int, RankProcess]] = {}
    for node in filter(None, map(state.nodes.get, known.nodes)):
        of_node = (one for one in ranks_of_job(node, jobs, since) if one.rank in known.nodes[node.name])
        found[node.name] = {one.rank: one for one in of_node if one.launcher == known.launcher}
    return found


def hidden_ranks(attempt: Attempt | None, state: State) -> str:
    """`ranks of 4 of 32 processes are known: the others belong to another user`, of those on the GPUs of its nodes."""
    nodes = () if attempt is None else attempt.nodes
    read = [(node, node.ranks) for node in state.nodes.values() if node.name in nodes and node.ranks is not None]
    known = {(node.name, pid) for node, ranks in read for one in ranks.r for pid in (one.pid, *one.workers)}
    held = {(node.name, one.pid): one.user not in (ranks.user, None) and ranks.user != "root"
            for node, ranks in read for gpu in node.gpus for one in gpu.processes}  # fmt: skip
    count = f"ranks of {len(known & held.keys())} of {len(held)} processes are known"
    return f"{count}: the others belong to another user" if any(held[key] for key in held.keys() - known) else ""


def why_no_ranks(name: str, state: State) -> str:
    """Why it is not known which processes are the ranks of a run."""
    attempt = last_attempts(state.attempts.values()).get(name)
    nodes = () if attempt is None else attempt.nodes
    ranks = {name: node.ranks.r for name, node in state.nodes.items() if name in nodes and node.ranks is not None}
    unread = [name for name in nodes if name not in ranks]
    where = f"on {listed(unread or nodes, most=3)}"
    if not nodes:
        why = "its nodes are not known"
    elif unread:
        why = f"the processes {where} are not read"
    elif hidden := hidden_ranks(attempt, state):
        why = hidden
    elif any(ranks.values()):
        why = f"which of the ranks {where} are its own is not certain"
    else:
        why = f"no process {where} has the number of a rank in its environment"
    return f"it is not known which processes are the ranks of {name}: {why}"


def with_log(seen: Attempt, run: Run, state: State) -> tuple[Attempt, tuple[str, ...]]:
    """The newest attempt of a run, which was not watched to its end, with what its run shows of it, and the lines of
    its log: if the log was last written while it ran."""
    log, at, began = run.log, None if run.log is None else run.log.at, start_of(seen, run, state)
    if at is None or began is None or not began - BEFORE <= at <= (seen.ended_at or state.at) + AFTER:
        return seen, ()
    seen = with_run(seen, run, state, is_newest=True)
    return seen, lines_of(log, seen.log_path, is_newest=True)


# ---- the attempts of the jobs of a run -------------------------------------------------------------------------------

CLOCKS: Seconds = 30.0
"""By how much the clock of Slurm may be ahead. Its shortest time limit is a minute."""


def is_begun(job: Job) -> bool:
    """Whether the job runs or ran."""
    return job.started_at is not None and (job.stage == "running" or is_over(job)) and has_begun(job)


def is_requeued(job: Job, now: Instant) -> bool:
    """Whether Slurm has requeued a job whose processes are still ending. It then counts the next restart, which starts
    always just now and ends after its time limit."""
    return job.state == "COMPLETING" and bool(job.restarts) and (job.ends_at is None or job.ends_at > now + CLOCKS)


def job_attempt(job: Job, run: Run) -> Attempt:
    """What a job itself shows of its attempt."""
    attempt = attempt_of(
        run,
        job_attempt_id(job),
        job_id=job.id,
        array_id=job.array,
        restart=job.restarts,
        submitted_at=job.submitted_at,
        nodes=job.nodes,
        gpus=job.gpus or job.gpus_requested,
        started_at=job.started_at,
        preempted_at=job.preempted_at,
        log_path=job.stdout,
    )
    command = None if job.command is None else clean(scrub(job.command))
    return provenance.with_names(with_named(attempt, "scheduler", {"command": command}), run, job.command)


def job_attempt_id(job: Job) -> str:
    submitted = "" if job.submitted_at is None else f"@{stamp(job.submitted_at)}"
    return f"{job.cluster}/{job.id}.{job.restarts or 0}{submitted}"


@lru_cache(4096)
def stamp(at: Instant) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%S")


def of_job(job: Job, run: Run, state: State, *, is_newest: bool) -> Attempt | None:
    end = end_of(job, state)
    closed = state.attempts.get(job_attempt_id(job))
    is_closed = closed is not None and closed.end is not None and (end is None or adds_nothing(end, closed.end))
    may_run = end is None and job.gone_at is not None
    is_unread = job.restarts is None and state.at - (job.gone_at or job.listed_at or job.started_at or 0.0) < AFTER
    if is_closed or may_run or is_unread:
        return None
    source = state.sources.get(f"slurm:{job.cluster}")
    seen_at = min(state.at, (source.answered_at if source is not None else None) or state.at)
    attempt = job_attempt(job, run)
    nodes = [state.nodes.get(name) for name in job.nodes]
    attempt = replace(
        provenance.with_environment(attempt, nodes, job=job.number),
        end=end,
        seen_at=seen_at if end is None else end.at,
        start_was_watched=(job.started_at or 0.0) >= state.started_at,
        gpu_uuids=provenance.gpu_uuids(nodes, attempt.gpus),
    )
    return with_run(attempt, run, state, is_newest=is_newest)


# ---- the attempts of a run without a scheduler: by its process, its receipts, its W&B runs or its log ----------------

OLD: Seconds = 7 * 86_400.0
"""Receipts of attempts that ended so long ago are not looked at."""

LOOK_BACK: Seconds = DAY
"""How far back logs are looked for that no known attempt precedes."""


def _plain(run: Run, state: State, attempt_id: str) -> Attempt:
    """An attempt that no scheduler knows, on the nodes that the config names."""
    names, process = run.spec.nodes, run.spec.process
    nodes = [state.nodes.get(node) for node in names]
    gpus = sum(len(node.gpus) for node in nodes if node is not None)
    attempt = attempt_of(run, attempt_id, nodes=names, gpus=gpus or None, gpu_uuids=provenance.gpu_uuids(nodes, gpus))
    return provenance.with_names(attempt, run, None if process is None else process.command)


def of_process(run: Run, process: OwnProcess, state: State) -> Iterator[Attempt]:
    host = run.spec.nodes[0] if run.spec.nodes else ""
    node = state.nodes.get(host)
    boot_time = None if node is None else node.boot_time
    if boot_time is None and state.at - state.started_at < AFTER:
        return  # it is a part of the name
    booted = "" if boot_time is None else f"@{stamp(boot_time)[:8]}"  # pids begin again
    attempt = _plain(run, state, f"{run.name}/pid/{host}/{process.pid}{booted}")
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
    yield with_run(provenance.with_environment(attempt, [node], pid=process.pid), run, state, is_newest=True)


def of_receipts(
    run: Run, groups: Sequence[Sequence[Receipt]], state: State, process: Attempt | None = None
) -> Iterator[Attempt]:
    """The attempts that trainmon-run has started. One that was opened before its receipt was read keeps its name. Of a
    run that was found as a process, whose attempt is `process`: those that were over before."""
    mine = [one for one in state.attempts.values() if one.run_id == run.name and one.job_id is None]
    by_receipt = {one.receipt: one for one in mine if one.receipt is not None}
    of_processes = [] if process is None else [process, *(one for one in mine if one.pid is not None)]
    following = (*(group[0].started_at for group in groups[1:]), None if process is None else process.started_at)
    for group, next_at in zip(groups, following, strict=False):
        end = receipts.end_of(group, run, state, next_at)
        if end is None and process is not None:
            continue
        if end is not None and (state.at - end.at > OLD or any(_is_of(group, end, one, state) for one in of_processes)):
            continue
        before = next((by_receipt[one.name] for one in group if one.name in by_receipt), None)
        if before is not None and before.end is not None and end is not None and adds_nothing(end, before.end):
            continue
        if before is None and process is None:
            began, until = group[0].started_at - AFTER, (state.at if end is None else end.at) + AFTER
            before = next((one for one in mine if one.receipt is None and began <= one.start <= until), None)
        name = f"{run.name}/receipt/{group[0].name}" if before is None else before.attempt_id
        hosts = tuple(dict.fromkeys(one.host for one in group if one.host is not None))
        earlier = None if process is None else attempt_of(run, name)
        attempt = replace(
            _plain(run, state, name) if earlier is None else provenance.with_names(earlier, run, group[-1].command),
            nodes=run.spec.nodes or hosts,
            started_at=group[0].started_at,
            start_was_watched=group[0].started_at >= state.started_at,
            seen_at=state.at if end is None else end.at,
            end=end,
            receipt=group[-1].name,
        )
        yield with_run(attempt, run, state, is_newest=process is None and next_at is None)


def _is_of(group: Sequence[Receipt], end: AttemptEnd, attempt: Attempt, state: State) -> bool:
    """Whether these receipts, which are over, are those of the attempt of a process: its own, or it began while they
    ran. A process that still runs is none of theirs."""
    if not {one.name for one in group}.isdisjoint(one.name for one in receipts.of_attempt(attempt, state)):
        return True
    return (
        attempt.told_end is not None
        and attempt.receipt is None
        and group[0].started_at - receipts.SURELY_NEAR <= attempt.start <= end.at
    )


def of_wandb(run: Run, wandb: WandbRun, state: State) -> Attempt | None:
    began, seen_at = wandb.created_at, wandb.heartbeat_at
    if began is None or seen_at is None:
        return None
    name = _wandb_name(run, wandb, seen_at, state)
    if "#" in name.removeprefix(run.name):  # W&B does not say when it was resumed
        before = state.attempts.get(name)
        began = (None if before is None else before.started_at) or seen_at
    attempt = replace(
        provenance.with_wandb(_plain(run, state, name), wandb),
        started_at=began,
        seen_at=min(state.at, seen_at),
        end=end_by("wandb", seen_at, state) if wandb.state in ENDED else None,
        start_was_watched=began >= state.started_at,
    )
    if run.wandb is not None and run.wandb.current == wandb:
        return with_run(attempt, run, state, is_newest=True)
    return replace(attempt, last_step=wandb.step)  # its own counter is all that is left of an earlier one


def _wandb_name(run: Run, wandb: WandbRun, seen_at: Instant, state: State) -> str:
    """The name of its attempt. A W&B run that is resumed under its own id is another attempt: `wandb/…#2`."""
    is_file = wandb.entity == client_file.ENTITY
    name = f"{run.name}/wandb-file/{wandb.id}" if is_file else f"{run.name}/wandb/{wandb.path}"
    own = [one for one in state.attempts.values() if f"{one.attempt_id}#".startswith(f"{name}#")]
    if not own:
        return name
    last = max(own, key=lambda one: (len(one.attempt_id), one.attempt_id))
    is_resumed = wandb.state not in ENDED and last.end is not None and seen_at > last.end.at + AFTER
    return f"{name}#{len(own) + 1}" if is_resumed else last.attempt_id


def of_log(run: Run, log: Log, path: str, known: Iterable[Attempt], state: State) -> Attempt:
    """The attempt that writes this log now. `known`: those of this run. A log that was there when this program started
    belongs to the attempt that an earlier start of this program has left open."""
    began, name = log.began_at or state.at, f"{run.name}/log/{log.host}:{path}@"
    watched = log.is_new or began > state.started_at + AFTER
    mine = (one for one in known if one.attempt_id.startswith(name))
    last = max(mine, key=lambda one: one.attempt_id, default=None)
    is_known = last is not None and (not watched or (last.started_at or 0.0) >= began)
    has_ended = run.verdict in OVER and log.at is not None
    seen_at = max(log.at or 0.0, began if watched else 0.0)  # a new log without a line: `at` is that of the one before
    attempt = replace(
        _plain(run, state, last.attempt_id if is_known and last is not None else f"{name}{stamp(began)}"),
        started_at=began if watched else None,
        start_was_watched=watched,
        seen_at=seen_at,
        end=AttemptEnd(at=seen_at, source="log", noticed_at=state.at) if has_ended else None,
    )
    attempt = with_run(attempt, run, state, is_newest=True)
    estimated = None if watched else log.first_at or attempt.first_step_at
    return attempt if estimated is None else replace(attempt, started_at=estimated, start_is_estimated=True)


def of_other_logs(run: Run, state: State) -> Iterator[Attempt]:
    """The attempts whose logs appeared while nobody watched, beside the newest log; the newest first. A file that was
    still written after the next attempt had begun, or right before that one's last line, is another log of it."""
    log = run.log
    if log is None or log.at is None or not log.others:
        return
    mine = [one for one in state.attempts.values() if one.run_id == run.name]
    paths = {log.path, *(one.log_path for one in mine)}
    since = max((one.ended_at or one.seen_at for one in mine), default=state.started_at - LOOK_BACK)
    next_at, next_began = log.at, log.first_at if not log.is_new else log.began_at
    for other in log.others:
        at = other.written_at
        if at <= since:
            return
        is_beside = next_at - at <= AFTER or (next_began is not None and at > next_began + BEFORE)
        if is_beside or other.path in paths or not other.path.startswith("/"):
            continue
        plain = _plain(run, state, f"{run.name}/log/{log.host}:{other.path}@{stamp(at)}")
        end = replace(end_by("lost", at, state), awaits_log=True)
        yield replace(plain, seen_at=at, log_host=log.host, log_path=other.path, end=end)
        next_at, next_began = at, None


# ---- the part of a log that one attempt has written, where several append to one file and nobody watched -------------


def with_own_lines(
    seen: Attempt, run: Run, state: State, known: Mapping[str, Attempt], *, is_newest: bool
) -> tuple[Attempt, tuple[str, ...]]:
    """An attempt that was not watched to its end, with what its run shows of it, and its own lines of the log that was
    last written while it ran, or that its run follows. Without any if it wrote another file, or none is known to be its
    own."""
    seen, lines = with_log(seen, run, state) if is_newest else (seen, ())
    if lines:
        return own_part(seen, lines, run, state, known)
    log = run.log
    if log is None or log.path is None or (seen.log_path or run.spec.log) != log.path:
        return seen, ()
    lines = lines_of(log, log.path, is_newest=True)
    found, own = own_part(seen, lines, run, state, known)
    is_part = 0 < len(own) < len(lines)
    return (replace(found, log_path=log.path, log_host=log.host), own) if is_part else (seen, ())


def own_part(
    attempt: Attempt, lines: Sequence[str], run: Run, state: State, known: Mapping[str, Attempt]
) -> tuple[Attempt, tuple[str, ...]]:
    """The attempt with the steps in its own lines, and these; all as they were if the lines are not dated, or all its
    own."""
    log, began = run.log, began_at(attempt.started_at, run, state)
    if log is None or log.at is None or began is None or attempt.end is None:
        return attempt, tuple(lines)
    times = written(lines, log.at)
    dated = [at for at in times if at is not None]
    if not any(after > before for before, after in pairwise(dated)):  # a single time does not tell starts apart
        return attempt, tuple(lines)
    others = [one for one in known.values() if one.run_id == run.name and one.start < attempt.start]
    ends = (min(began, one.ended_at) + SECOND for one in others if one.ended_at is not None)
    own = _between(lines, times, max((began - BEFORE, *ends)), latest_of(attempt, run, state, known))
    if len(own) == len(lines) or report(lines, ()).progress.step is None:
        return attempt, own
    plain = replace(attempt, first_step=None, first_step_at=None, last_step=None, resumed_from=None, resumed_words=None)
    return with_steps_of(plain, own, (), is_whole=True), own


def before_next(attempt: Attempt, path: str | None, run: Run, state: State, *, is_newest: bool) -> tuple[str, ...]:
    """The lines that an attempt which has ended has written to this file, without those of the next one: by their
    times, or up to where its trainer shows that it has started again."""
    log, latest = run.log, latest_of(attempt, run, state)
    lines = lines_of(log, path, is_newest=is_newest)
    if log is None or log.at is None or log.at <= latest or log.path != path or (lines and not is_newest):
        return lines
    whole = lines_of(log, log.path, is_newest=True)
    if own := _between(whole, written(whole, log.at), 0.0, latest):
        return own
    following = run.memory.spans[len(before_next_start(run.memory.spans, attempt.ended_at or latest)) :]
    begins = len(log.lines) - len(whole)
    return log.lines[begins : max(begins, following[0].first_line - log.first)] if following else lines


def _between(lines: Sequence[str], times: Sequence[Instant | None], began: Instant, until: Instant) -> tuple[str, ...]:
    """The lines of this time. One without a time belongs to the one above."""
    at, own = next((one for one in times if one is not None), None), []
    for line, found in zip(lines, times, strict=True):
        at = at if found is None else found
        if at is not None and began <= at < until:
            own.append(line)
    return tuple(own)


# ---- the attempts of jobs that the queue no longer shows, where Slurm has no accounting ------------------------------

OLD_JOB: Seconds = 7 * 86_400.0 - 3_600.0
"""Receipts of attempts that ended so long ago are not looked at: those attempts are no longer in the State."""


def of_unwatched_jobs(state: State) -> Iterator[Attempt]:
    """The attempts, the newest first. A job that the queue lists is not one of them, nor an attempt that was seen."""
    answered = _answered(state)
    if not state.receipts or not answered or not is_restored(state):
        return
    by_job = group_by(state.attempts.values(), lambda one: f"{one.cluster}/{one.job_id}")
    found: list[Attempt] = []
    for key, own in state.receipts.items():
        if own[-1].job_id is not None and own[-1].cluster in answered:
            found += _of_job(key, own, state, by_job.get(key, ()), answered[own[-1].cluster])
    yield from sorted(found, key=lambda one: one.started_at or 0.0, reverse=True)


def _answered(state: State) -> Mapping[str, Instant]:
    """By cluster without accounting: when its queue was last read."""
    names = (name for name, one in state.clusters.items() if one.accounting is False and one.is_polled)
    sources = {name: state.sources.get(f"slurm:{name}") for name in names}
    return {name: one.answered_at for name, one in sources.items() if one is not None and one.answered_at is not None}


def _of_job(
    key: str,
    own: Sequence[Receipt],
    state: State,
    seen: Sequence[Attempt],
    answered_at: Instant,
) -> Iterator[Attempt]:
    """The attempts of one job, one for each restart."""
    run, job = _run_of(own[-1], state), state.jobs.get(key)
    groups = group_by(own, lambda one: one.restart or 0)
    for restart, group in groups.items():
        is_listed = job is not None and (job.restarts is None or job.restarts <= restart)
        last_at = max(one.ended_at or one.started_at for one in group)
        is_out_of_time = answered_at < last_at + receipts.NEAR or state.at - last_at > OLD_JOB
        if run is None or is_listed or is_out_of_time:
            continue
        if any(group[-1] in receipts.of_attempt(one, state) for one in seen):
            continue
        later = [one.started_at for other, each in groups.items() if other > restart for one in each]
        if job is not None and job.started_at is not None and job.started_at > last_at:
            later.append(job.started_at)
        name = _name_of(f"{key}.{restart}", run, group[-1], state)
        yield _attempt(name, run, group, state, min(later, default=None))


def _run_of(receipt: Receipt, state: State) -> Run | None:
    """The run that trainmon-run was told, else that of the job's name."""
    own = (run for run in state.runs.values() if run.spec.cluster == receipt.cluster)
    if receipt.run is not None:
        return next((run for run in own if run.name == receipt.run), None)
    named = (run for run in own if (run.spec.job or run.name) == receipt.job_name)
    return next((run for run in named if is_of_task(receipt.job_id, run.spec)), None)


def _name_of(name: str, run: Run, receipt: Receipt, state: State) -> str:
    """The name of the attempt: an open one that its log has shown before its receipt was read keeps its own."""
    own = (one for one in state.attempts.values() if one.run_id == run.name and one.job_id is None and one.is_open)
    of_log = (one for one in own if one.receipt is None and one.log_path == receipt.log_path is not None)
    return next((one.attempt_id for one in of_log if one.start <= (receipt.ended_at or one.seen_at)), name)


def _attempt(
    name: str,
    run: Run,
    own: Sequence[Receipt],
    state: State,
    following: Instant | None,
) -> Attempt:
    newest, end = own[-1], receipts.end_once_gone(own, run, state, following)
    end = end if following is None else replace(end, scheduler_state="REQUEUED")
    array, _, task = (newest.job_id or "").partition("_")
    hosts = (one.host.partition(".")[0] for one in own if one.host is not None)
    attempt = attempt_of(
        run,
        name,
        job_id=newest.job_id,
        array_id=int(array) if task and array.isdecimal() else None,
        restart=newest.restart or 0,
        nodes=newest.nodes or tuple(dict.fromkeys(hosts)),
        started_at=own[0].started_at,
        start_was_watched=own[0].started_at >= state.started_at,
        seen_at=end.at,
        end=end,
    )
    attempt = receipts.applied(provenance.with_names(attempt, run, newest.command), own)
    return attempt if has_newer(attempt, state.attempts.values()) else with_log(attempt, run, state)[0]


# ---- the State → what it shows of the attempts of its runs -----------------------------------------------------------


def observed(state: State) -> Iterator[Attempt]:
    """What is seen now of every attempt that is not closed for good. A run that has a scheduler has its jobs' attempts
    only; else its process and the receipts of earlier ones tell them apart, else its receipts, else W&B, else its
    log."""
    unwatched = [*of_unwatched_jobs(state)]
    yield from unwatched
    newest = last_attempts(one for one in (*state.attempts.values(), *unwatched) if one.job_id is not None)
    known = group_by(state.attempts.values(), lambda one: one.run_id)
    for run in map(_with_client_file, state.runs.values()):
        jobs = [state.jobs[key] for key in run.jobs if key in state.jobs]
        begun = [job for job in jobs if is_begun(job) and not is_requeued(job, state.at)]
        if begun := sorted(begun, key=lambda job: job.started_at or 0.0):
            seen = (of_job(job, run, state, is_newest=job is begun[-1]) for job in begun)
            yield from (one for one in seen if one is not None)
        elif run.spec.process is not None:
            for own in of_process(run, run.spec.process, state):
                yield own
                if is_restored(state):
                    yield from of_receipts(run, receipts.of_run(run, state), state, own)
        elif jobs:
            continue
        elif groups := receipts.of_run(run, state):
            yield from of_receipts(run, groups, state)
        elif may_have_jobs(run, state) or _is_of_job(run, newest):
            continue
        elif run.wandb is not None:
            yield from (one for each in run.wandb.runs if (one := of_wandb(run, each, state)) is not None)
        elif run.log is not None and run.log.path is not None and not may_have_others(run, state):
            yield of_log(run, run.log, run.log.path, known.get(run.name, ()), state)
            yield from of_other_logs(run, state)


def _with_client_file(run: Run) -> Run:
    """The run with the files of its W&B client in place of W&B's server, if it has neither that nor a log."""
    return run if run.spec.wandb or run.spec.log else replace(run, wandb=client_file.of_file(run.wandb_file))


def _is_of_job(run: Run, newest: Mapping[str, Attempt]) -> bool:
    """Whether the log, or the file of the W&B client, of a run without a job in the queue is that of its last job."""
    one, log, file = newest.get(run.name), run.log, run.wandb_file
    at = log.at if log is not None else file.written_at if file is not None else None
    if one is None or at is None:
        return False
    return one.start - BEFORE <= at <= (one.seen_at if one.told_end is None else one.told_end.at) + AFTER
