"""Why a run makes no steps: it has ended, its jobs wait, or it stalls. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import takewhile
from operator import attrgetter
from statistics import median

from trainmon.analysis.causes.classify import fatal_end, says_it_ended
from trainmon.analysis.gpus import IDLE_PCT, gpus_of, is_empty, is_read
from trainmon.analysis.runs.context import (
    AFTERGLOW,
    PATIENCE,
    WAITS,
    Judgement,
    Queue,
    RunContext,
    does_answer,
    has_reached_target,
    is_new_attempt,
    missing_job,
    no_slurm_answer,
    our_time,
    patience,
    skew_of,
    state_of,
    stopped,
    where,
)
from trainmon.analysis.runs.trainer import was_withdrawn
from trainmon.analysis.wandb import counts
from trainmon.lib import Instant, Seconds, ago, clean, duration, scrub
from trainmon.model import (
    LOG_MARK,
    Attempt,
    AttemptEnd,
    Classification,
    Job,
    Log,
    OwnProcess,
    Record,
    Run,
    Stop,
    Verdict,
)
from trainmon.slurm.reasons import end_reason, waiting_reason

# ---- the verdict on a run that nothing but its log shows -------------------------------------------------------------

QUIET: Seconds = 60.0
"""What is read of a node's GPU processes is up to half a minute old; a wrapper may start a trainer again in less."""

QUIET_STEPS = 3.0
"""A trainer that goes on after an error writes its next step within so many of its usual intervals."""

QUIET_START: Seconds = 120.0
"""The same before its usual interval is known."""

TAIL_LINES = 400
"""The tracebacks of all ranks of two nodes."""

SHOWN = 120
"""Characters of the last words."""

FINAL_LINES = 3
"""A trainer may say where its last checkpoint is after its last words."""


def after_its_log(run: Run, context: RunContext, now: Instant) -> Judgement | None:
    """The verdict, if the log has ended; None while it may go on."""
    log, progress = run.log, run.progress
    may_have_jobs = (
        run.jobs or (run.spec.job and does_answer(run, context.sources)) or no_slurm_answer(run, context, now)
    )
    if log is None or log.at is None or may_have_jobs or (run.kill is not None and run.kill.exists):
        return None
    quiet, cadence = now - log.at, progress.cadence_s
    if quiet < (QUIET_START if cadence is None else max(QUIET, QUIET_STEPS * cadence)):
        return None
    gpus = gpus_of(run, context.nodes, context.sources, now)
    is_gone = run.spec.process is None and gpus.are_all_empty
    cause = _fatal_end(_last_lines(log))
    if cause is not None:
        error = cause.cause + (f" ({cause.exception})" if cause.exception else "")
        error += "" if cause.confidence == "high" else ", not certain"
        at = "before its first step" if progress.at is None else f"after {where(progress)}"
        how = "" if cause.family in NO_ERROR else " with an error"
        why = f"its log ended {ago(quiet)} ago{how}, {at}: {error}"
        if is_gone:
            return Judgement("dead", f"{why}; no process holds memory on its GPUs")
        if run.spec.process is not None:
            return Judgement("stalled", f"{why}; process {run.spec.process.pid} has not ended")
        if any(gpu.memory_used_mib is not None and not is_empty(gpu) for gpu in gpus.found):
            return Judgement("stalled", f"{why}; memory on its GPUs is still held")
        return Judgement("dead", why)
    is_held = any(not is_empty(gpu) for gpu in gpus.found)
    if run.spec.process is None and not is_held and (words := _last_words(_last_lines(log))):
        return _ended_well(run, f"its log ended {ago(quiet)} ago with: {words}")
    silent = 0.0 if progress.at is None else now - progress.at
    if is_gone and cadence is not None and silent > max(QUIET, PATIENCE * cadence):
        usual = f"no step for {duration(silent)} (usually every {duration(cadence)})"
        return Judgement("dead", f"{usual}, the last was {where(progress)}; no process holds memory on its GPUs")
    return None


def at_its_target(run: Run, how: str) -> Judgement:
    """The verdict on a run that reached its target and does not run any more, if neither a scheduler nor trainmon-run
    knows how it ended (`how`): by the exit code in W&B, else by an error or the last words in its log."""
    lines = () if run.log is None else _last_lines(run.log)
    what, words = f"{how}, at step {run.progress.step:,}, its target", _last_words(lines, len(lines))
    code = _wandb_code(run)
    if code:
        return Judgement("dead", f"{what}: W&B recorded that it failed")
    if code is None and not words and _fatal_end(lines) is None:
        return Judgement("unknown", f"{what}; nothing shows whether it ended well")
    return finished(run, what, "; W&B recorded exit code 0" if code == 0 else f"; its log ends with: {words}")


def _wandb_code(run: Run) -> int | None:
    """The exit code of its script, as far as W&B recorded one."""
    code = None if run.wandb_file is None else run.wandb_file.exit_code
    if code is None and run.wandb is not None and run.wandb.current is not None and not run.wandb.active:
        code = {"finished": 0, "failed": 1}.get(run.wandb.current.state)
    return code


NO_ERROR = frozenset({"none", "human", "scheduler"})
"""Families of causes that end a run that did what it should, such as a trainer that exits at its time limit."""


def finished(run: Run, how: str, tail: str = "", known: Classification | None = None) -> Judgement:
    """The verdict on a run that ended well at its target, as far as something else knows: if its loss is a number, and
    no error ended it, which a script may ignore: by the known cause, else by the end of its log."""
    is_lost = known is not None and known.cause == "diverged"
    is_error = not is_lost and known is not None and known.confidence == "high" and known.family not in NO_ERROR
    cause = known if is_error else None if run.log is None else _fatal_end(_last_lines(run.log))
    if cause is not None:
        return Judgement("dead", f"{how}, with an error: {cause.cause}")
    reached = f"reached step {run.progress.step:,} of {run.target_step:,}"
    return if_its_loss_is_a_number(run, reached, is_lost=is_lost).also(tail)


def if_its_loss_is_a_number(run: Run, how: str, *, is_lost: bool = False) -> Judgement:
    """`finished`, or `diverged` by its last loss, or by the cause of its end."""
    loss = run.progress.loss
    if not is_lost and (loss is None or math.isfinite(loss)):
        return Judgement("finished", how)
    is_infinite = loss is not None and math.isinf(loss)
    return Judgement("diverged", f"{how}, but the loss is {'infinite' if is_infinite else 'NaN'}")


def _last_lines(log: Log) -> tuple[str, ...]:
    """The last lines of its newest file."""
    lines = takewhile(lambda line: not line.startswith(LOG_MARK), reversed(log.shown[-TAIL_LINES:]))
    return tuple(lines)[::-1]


_fatal_end = lru_cache(256)(fatal_end)


def _last_words(lines: tuple[str, ...], within: int = FINAL_LINES) -> str:
    """The line among its last ones that says that the training has ended."""
    last = [line.strip() for line in lines if line.strip()][-within:]
    return clean(scrub(next(filter(says_it_ended, last), "")), SHOWN)


def _ended_well(run: Run, how: str) -> Judgement:
    """It says that it has ended: whether that is before its target."""
    goal, step = run.target_step, run.progress.step
    if goal is None or step is None:
        return Judgement("finished", how) if goal is not None else not_finished(run, how, "finished")
    if step >= goal:
        return at_its_target(run, how) if _wandb_code(run) else finished(run, how, f"; {how}")
    return not_finished(run, f"{how}, at step {step:,}")


def not_finished(run: Run, how: str, otherwise: Verdict = "unknown") -> Judgement:
    """The verdict on a run that ended as if it were complete, and has not reached its target: `otherwise` if it has no
    target."""
    if run.target_step is not None:
        return Judgement("dead", f"{how} of {run.target_step:,}: not finished")
    judged = if_its_loss_is_a_number(run, how)
    if otherwise == "finished" and judged.verdict == "diverged":
        return judged
    return Judgement(otherwise, f"{how}; no target step is known")


def after_its_process(run: Run, process: OwnProcess, ended_at: Instant, now: Instant) -> Judgement:
    """The verdict when the process is gone. How it ended is not known."""
    how = f"process {process.pid} ended {ago(now - ended_at)} ago"
    if has_reached_target(run):
        return at_its_target(run, how)
    return not_finished(run, how if run.progress.at is None else f"{how}, at {where(run.progress)}")


# ---- the verdict on a run whose last attempt has ended by the ledger, and of which nothing newer is seen -------------

REPORTED = frozenset({"receipt", "queue", "accounting"})
"""Sources that state an end. The others conclude it from what the run itself still shows."""

BY_A_PERSON = frozenset({"cancelled-by-user", "kill-switch"})


def last_attempts(attempts: Iterable[Attempt]) -> Mapping[str, Attempt]:
    """The newest attempt of each run, by the name of the run."""
    return {one.run_id: one for one in sorted(attempts, key=attrgetter("order"))}


def after_its_attempt(run: Run, context: RunContext, now: Instant) -> Judgement | None:
    """The verdict on a run without a job; None if its last attempt has not ended, or something newer is seen of it."""
    attempt = context.last_attempts.get(run.name)
    is_going = run.spec.process is not None and run.spec.ended_at is None
    if is_going or attempt is None or attempt.end is None or attempt.end.source not in REPORTED:
        return None
    host = run.log.host if run.log is not None and attempt.job_id is not None else None
    ended_at = our_time(attempt.end.at, skew_of(host, context.nodes)) or 0.0
    if _goes_on(run, ended_at) and not attempt.outlived_by:
        return None
    what = "its command" if attempt.job_id is None else f"job {attempt.job_id}"
    cause = "" if attempt.end.cause is None else f": {_cause(attempt.end, attempt.end.cause)}"
    at = "" if run.progress.at is None else f", at {where(run.progress)}"
    how = f"{what} ended {ago(now - ended_at)} ago{cause}{at}"
    silence = no_slurm_answer(run, context, now)
    if attempt.job_id is not None and silence:
        return Judgement("unknown", f"{how}; {silence}: whether another job runs is not known")
    return _by_its_cause(run, attempt, attempt.end, how)


def _by_its_cause(run: Run, attempt: Attempt, end: AttemptEnd, how: str) -> Judgement:
    cause = None if end.cause is None else end.cause.cause
    is_well = (end.exit_code == 0 and not end.signal) or end.scheduler_state == "COMPLETED"
    is_said = cause == "completed" and (end.exit_code, end.signal, end.scheduler_state) == (None, None, None)
    if (is_well or is_said) and has_reached_target(run):
        return finished(run, how, known=end.cause)
    if is_by_a_person(end):
        return Judgement("stopped", how, stop=Stop(how))
    if cause != "completed":
        return Judgement("dead", how)
    return not_finished(run, how, "finished" if attempt.job_id is None else "unknown")


def is_by_a_person(end: AttemptEnd | None) -> bool | None:
    """Whether a person ended an attempt, whatever its log shows; None if that is not certain: a program that was told
    to stop may end well, too."""
    if end is None or end.cause is None or end.cause.confidence == "low" or end.cause.cause == "completed":
        return None
    return end.cause.cause in BY_A_PERSON or (end.scheduler_state or "").startswith("CANCELLED")


def _cause(end: AttemptEnd, cause: Classification) -> str:
    """`python-exception (ValueError)`, `unknown (signal 9)`, and who cancelled it."""
    exception = f" ({cause.exception})" if cause.exception else f" (signal {end.signal})" if end.signal else ""
    _, by, who = (end.scheduler_state or "").partition(" by ")
    return cause.cause + exception + (by + who if cause.cause in BY_A_PERSON else "")


def _goes_on(run: Run, ended_at: Instant) -> bool:
    """Whether a step, a line of its log or a heartbeat of W&B came after the end."""
    margin = max(AFTERGLOW, 3 * (run.progress.cadence_s or 0.0))
    current = None if run.wandb is None or not run.wandb.active else run.wandb.current
    logged_at = None if run.log is None else run.log.at
    signs = (run.progress.at, logged_at, None if current is None else current.heartbeat_at)
    return any(at is not None and at > ended_at + margin for at in signs)


# ---- why a run makes no steps ----------------------------------------------------------------------------------------

OURS_BEFORE: Seconds = 900.0
"""An action of ours explains an end that follows within this time: a trainer may take minutes to save and exit."""

DONE_BEFORE: Seconds = 60.0
"""An action of ours that was done later than this after an end has not caused it: its command may return late."""

ARMED_BEFORE: Seconds = 5.0
"""A switch that was armed later than this after an end has not caused it: the clocks of two hosts are at work. Who is
woken by the end may arm it soon, so that nothing is requeued."""

OBEYS_WITHIN: Seconds = 1_800.0
"""A trainer that still makes steps this long after its kill switch was armed does not read the switch."""

CLEARED_AFTER: Seconds = 60.0
"""What is read of a node's GPU processes is up to half a minute old: sooner after an end it tells of before."""

SOMEBODY = Stop("somebody cancelled it", is_named=False)
"""Only accounting knows who cancelled it."""


def without_a_job(run: Run, queue: Queue, context: RunContext, now: Instant) -> Judgement:
    """The verdict while no job of the run is running."""
    last, waiting = queue.ended, queue.waiting
    known = None if last is None else _known_cause(last, context.last_attempts.values())
    how = "" if last is None else how_it_ended(last, now, None if known is None else known.cause)
    reached = has_reached_target(run)
    lost = "" if math.isfinite(run.progress.loss or 0.0) else " with a NaN or infinite loss"
    at = (
        "" if run.progress.step is None else f", at step {run.progress.step:,}{', its target' if reached else ''}{lost}"
    )
    if reached and last is not None and last.state == "COMPLETED":
        return finished(run, how + at, f"; job {waiting.id} is still pending" if waiting is not None else "", known)
    if queue.before is not None:
        how += f"; before it, {how_it_ended(queue.before, now)}"
    if waiting is not None:
        is_armed = run.kill is not None and run.kill.exists
        armed = "; the kill switch is armed: the job will end at once" if is_armed else ""
        return Judgement(
            "queued",
            f"job {waiting.id} is pending: {waiting_reason(waiting, now)}{armed}"
            + (f"; before it, {how}" if how else ""),
        )
    assert last is not None
    stop = who_stopped(run, last, context.actions, now)
    if stop is not None:
        return stopped(stop, how + at)
    holders = _processes(run, last, context, now)
    if holders:
        return Judgement("unknown", f"{how}{at}, but {holders} memory on its GPUs")
    if last.gone_at is not None and last.stage != "ended":
        if reached:
            return at_its_target(run, how)
        return Judgement("dead", f"{how}{at}; how it ended is not known")
    if last.state != "COMPLETED":
        return Judgement("dead", how + at)
    return not_finished(run, how + at)


def cause_of(job: Job, attempts: Iterable[Attempt]) -> str | None:
    """The cause of the end of a job's last start; None if it is not known."""
    known = _known_cause(job, attempts)
    return None if known is None else known.cause


def _known_cause(job: Job, attempts: Iterable[Attempt]) -> Classification | None:
    """The classification of the end of a job's last start."""
    start = (job.cluster, job.id, job.restarts or 0)
    own = (one.cause for one in attempts if (one.cluster, one.job_id, one.restart or 0) == start)
    return next((one for one in own if one is not None and one.cause != "unknown"), None)


def how_it_ended(job: Job, now: Instant, cause: str | None = None) -> str:
    """`job 88: exited with code 1, 12m ago`, or with its cause, `job 88: nccl-timeout (exit 1), 12m ago`."""
    if job.stage != "ended":
        return f"job {job.id} is gone from the queue"
    when = "" if job.ends_at is None or job.ends_at > now else f", {ago(now - job.ends_at)} ago"
    return f"job {job.id}: {end_reason(job, cause)}{when}"


def who_stopped(run: Run, job: Job, actions: Mapping[str, Record], now: Instant) -> Stop | None:
    """That a person ended it, and who: an armed kill switch, an action of ours, or a cancelled job."""
    by = ended_by(run, job.key, actions, job.started_at or 0.0, job.ends_at or job.gone_at or now, now)
    if by is not None or job.state != "CANCELLED":
        return None if by is None else Stop(by)
    return Stop(f"cancelled by {job.cancelled_by}") if job.cancelled_by else SOMEBODY


def ended_by(
    run: Run, job: str | None, actions: Mapping[str, Record], began: Instant, ended: Instant, now: Instant
) -> str | None:
    """Who ended what ran meanwhile: by an armed kill switch, or by the newest action of ours shortly before the end. If
    it has a job, only a cancellation of that one counts."""
    ours = (
        f"{one.action.who} requested it: {one.action.title}"
        for one in reversed(tuple(actions.values()))
        if one.action.verb in ("kill", "cancel") and one.status == "done"
        and one.done_at is not None and explains(one.done_at, ended)
        and (one.action.run == run.name if job is None or one.action.verb == "kill" else one.action.job == job)
    )  # fmt: skip
    by_us, lines = next(ours, None), () if run.log is None else _last_lines(run.log)
    if run.kill is None or not was_killed(run, actions, began, ended, lines):
        return by_us
    is_armed = f"the kill switch has been armed{since(run, now)}"
    return is_armed if run.kill.exists else by_us or "its kill switch ended it"


def was_killed(run: Run, actions: Mapping[str, Record], began: Instant, ended: Instant, lines: tuple[str, ...]) -> bool:
    """Whether a kill switch of the run was armed while an attempt ran, and it may have obeyed: it did not go on for
    long. One that is gone was removed by the trainer, unless we did that, or an error ended it, by the last lines of
    its log: then a person had removed it, and must hear of the end."""
    switch = run.kill
    if switch is None:
        return False
    done = (  # a trainer may remove it before it is seen
        one.done_at
        for one in actions.values()
        if (one.action.verb, one.action.run, one.status) == ("kill", run.name, "done")
    )
    known = (min(at, ended) for at in done if at is not None and began <= at and explains(at, ended))
    taken_at = switch.taken_at
    seen = switch.armed_at or began if switch.exists else switch.was_armed_at if (taken_at or 0.0) >= began else None
    times = (max(at, began) for at in (seen, *known) if at is not None and at <= ended + ARMED_BEFORE)
    armed_at = next(times, None)
    if armed_at is None or steps_on_under_it(run, armed_at, ended):
        return False
    if switch.exists or taken_at is None or not armed_at <= taken_at < ended:
        return True
    obeyed = min(run.progress.at or 0.0, ended) <= taken_at + ARMED_BEFORE and explains(taken_at, ended)
    error = _fatal_end(lines) if obeyed else None
    # The first rank that exits leaves the others, and its launcher may end with an error that names no cause.
    is_own = error is None or error.confidence == "low" or error.family in NO_ERROR | {"network"}
    return obeyed and is_own and not was_withdrawn(run, actions, "kill")


def explains(done_at: Instant, ended: Instant) -> bool:
    """Whether an action of ours that was done then may have caused an end."""
    return -DONE_BEFORE <= ended - done_at <= OURS_BEFORE


def steps_on_under_it(run: Run, began: Instant | None = None, until: Instant = math.inf) -> bool:
    """Whether it went on for so long under its armed kill switch that it does not read it: what ends it then is
    something else. Some read it with every step, some when they save. Steps after `until` are of another attempt."""
    kill, at = run.kill, run.progress.at
    armed_at = None if kill is None else kill.armed_at if kill.exists else kill.was_armed_at
    if armed_at is None or at is None:
        return False
    every = 0.0 if run.checkpoints is None else run.checkpoints.every_s or 0.0
    patience = max(OBEYS_WITHIN, 10 * (run.progress.cadence_s or 0.0), 2 * every)
    return min(at, until) - max(armed_at, began or 0.0) > patience


def since(run: Run, now: Instant) -> str:
    """` for 1h by ann`: since when the kill switch is armed, and by whom."""
    if run.kill is None or run.kill.armed_at is None:
        return ""
    return f" for {duration(max(0.0, now - run.kill.armed_at))}" + (f" by {run.kill.by}" if run.kill.by else "")


def short_of_time(run: Run, job: Job, now: Instant) -> str:
    """That its job ends before it could save once more: twice one step and one save are needed."""
    needed = needed_to_save(run)
    if job.ends_at is None or needed is None or job.ends_at - now > needed:
        return ""
    return (
        f"; its job ends in {duration(max(0.0, job.ends_at - now))}, but saving once more may need {duration(needed)}"
    )


def needed_to_save(run: Run) -> Seconds | None:
    """Twice one step and one save: a trainer looks between steps, and a save may just have begun."""
    save = run.checkpoints.save_s if run.checkpoints is not None else None
    if save is None and run.progress.saves:
        save = median(run.progress.saves)
    step = run.progress.step_time_s or run.progress.cadence_s
    return None if save is None or step is None else 2 * (step + save)


def _processes(run: Run, last: Job, context: RunContext, now: Instant) -> str:
    """`3 processes of ana hold` memory on the GPUs of its nodes, where no other job of hers has taken over. What was
    read of a node before the end says nothing: without a job nobody is let in there (pam_slurm_adopt)."""
    if now - (last.ends_at or last.gone_at or 0.0) < CLEARED_AFTER:
        return ""
    taken = {
        node
        for job in context.jobs.values()
        if job.stage == "running" and job.gone_at is None and job.user == last.user
        for node in job.nodes
    }
    found = {
        (name, process.pid)
        for name in run.spec.nodes
        if name not in taken and is_read(name, context.nodes, context.sources, now)
        for gpu in context.nodes[name].gpus
        for process in gpu.processes
        if process.user == last.user
    }
    if not found:
        return ""
    return f"{len(found)} processes of {last.user} hold" if len(found) > 1 else f"1 process of {last.user} holds"


# ---- its job runs ----------------------------------------------------------------------------------------------------

PAUSES = 1.5
"""A log is silent when it has not grown for so many times its longest pause, and for at least `stall_after` …"""

PAUSES_AT_MOST = 4.0
"""… but never for more than so many times `stall_after`: a pause between two attempts is none of its usual ones."""


def is_unread(run: Run, job: Job | None, now: Instant) -> bool:
    """Whether its log grows at its usual pace, and no line of it was ever a known step: nothing follows from that."""
    log, floor = run.log, run.spec.stall_after
    if log is None or log.at is None or _has_shown_steps(run):
        return False
    is_of_job = job is None or log.at > (job.started_at or 0.0)
    return is_of_job and now - log.at <= max(floor, min(PAUSES * log.pause_s, PAUSES_AT_MOST * floor))


def unread(run: Run, context: RunContext, now: Instant) -> Judgement:
    """The verdict on such a run. It names GPUs that are busy at low power: small models and hangs look the same."""
    spin = gpus_of(run, context.nodes, context.sources, now).spin
    why = f"{growth(run, now)}, but shows no known step line" + (f"; {spin}" if spin else "")
    return Judgement("unknown", why + missing_job(run, context, now), "unread")


def growth(run: Run, now: Instant) -> str:
    """`its log grows`, or when it did."""
    quiet = 0.0 if run.log is None or run.log.at is None else now - run.log.at
    return "its log grows" if quiet <= QUIET_START else f"its log last grew {ago(quiet)} ago"


def last_line_at(run: Run, job: Job | None) -> Instant | None:
    """When a log in which no step is known grew last, where that was after the start of its job: it fell silent then.
    None where it may be starting still, or steps were seen."""
    log, began = run.log, None if job is None else job.started_at
    if log is None or log.at is None or began is None or _has_shown_steps(run):
        return None
    return log.at if log.at - began > run.spec.stall_after else None


def _has_shown_steps(run: Run) -> bool:
    return run.progress.at is not None and not counts(run.progress)


def stopped_or_silent(run: Run, context: RunContext, job: Job | None, quiet: Seconds, now: Instant) -> Judgement:
    """Silent under an armed kill switch: it obeyed, unless its job still runs, its GPUs still spin, or it was silent
    before: a run that hangs reads no switch."""
    judged = silent(run, context, job, quiet, now)
    if judged.verdict in ("finished", "diverged"):
        return judged
    armed_at, at = None if run.kill is None else run.kill.armed_at, run.progress.at
    is_in_time = armed_at is None or at is None or armed_at <= at + patience(run)
    if job is None and is_in_time and not steps_on_under_it(run) and judged.verdict != "hung":
        return stopped(Stop(f"the kill switch has been armed{since(run, now)}"), f"last {where(run.progress)}")
    return judged.also(f"; the kill switch (armed{since(run, now)}) has not ended it")


def silent(run: Run, context: RunContext, job: Job | None, quiet: Seconds, now: Instant) -> Judgement:
    """The verdict after a silence that is longer than usual for this run."""
    progress = run.progress
    limits = (f"usually every {duration(progress.cadence_s)}" if progress.cadence_s else "", why_early(run))
    usual = f" ({'; '.join(filter(None, limits))})" if any(limits) else ""
    gpus, is_process = gpus_of(run, context.nodes, context.sources, now), run.spec.process is not None
    if has_reached_target(run) and job is None and not is_process and (gpus.are_all_empty or gpus.mean_pct is None):
        return at_its_target(run, f"no step for {duration(quiet)}{usual}{missing_job(run, context, now)}")
    return weighed(run, context, job, f"no step for {duration(quiet)}{usual}, the last was {where(progress)}", now)


def why_early(run: Run) -> str:
    """Its limit, and where that comes from, where all its GPUs wait."""
    limit, memory = patience(run), run.memory
    why = "three times its longest such wait" if limit == WAITS * memory.waited_s else "all its GPUs waited"
    return f"limit {duration(limit)}: {why}" if memory.hangs else ""


def weighed(run: Run, context: RunContext, job: Job | None, what: str, now: Instant) -> Judgement:
    """The verdict on a run without steps, from its GPUs and the queue."""
    gpus = gpus_of(run, context.nodes, context.sources, now)
    missing = missing_job(run, context, now)
    if gpus.are_all_empty:
        why = f"{what}; no process holds memory on its GPUs{missing}"
        if job is not None:
            why += f"; {state_of(job, context.sources, now)}"
            return Judgement("stalled" if is_new_attempt(run, job) else "dead", why)
        is_dark = bool(run.jobs or run.spec.job) and not does_answer(run, context.sources)
        return Judgement("unknown" if is_dark and missing else "dead", why)
    if gpus.spin:
        return Judgement("hung", f"{what}; {gpus.spin}: probably a stuck collective{gpus.silent_nodes}{missing}")
    mean = gpus.mean_pct
    if mean is None:
        is_gone = bool(missing) and run.spec.job is not None and does_answer(run, context.sources)
        return Judgement("dead" if is_gone else "stalled", what + missing)
    if mean <= IDLE_PCT:
        return Judgement("data-stall", f"{what}; its GPUs are idle ({mean:.0f}%){gpus.silent_nodes}{missing}")
    return Judgement("stalled", f"{what}; its GPUs are at {mean:.0f}%{gpus.silent_nodes}{missing}")
