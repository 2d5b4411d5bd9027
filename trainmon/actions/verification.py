"""The effect of each action as every new State shows it: a switch consumed, a checkpoint, a job that waits again. Pure.

An exit status of 0 proves little: for a job that has ended, `scontrol requeue Incomplete` does nothing and prints
nothing, and a switch file may never be read. So every action is followed until its effect is observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from trainmon.actions.planning import is_held
from trainmon.actions.verbs import STARTS, VERB, ask, function
from trainmon.analysis.gpus import is_empty
from trainmon.lib import Instant, Seconds, Sentence, counted, duration, joined
from trainmon.model import Action, Checkpoint, Job, Milestone, Record, Run, State, Switch, has_task
from trainmon.slurm.reasons import end_reason

# ---- an action with the State that is checked for its effect; shared by all verbs ------------------------------------

CLOCK_TOLERANCE: Seconds = 5.0
"""How far two clocks may differ after their skew was corrected."""

COMMIT_SAVES, COMMIT_AT_LEAST = 2.0, 900.0
"""A save is overdue after twice its usual time, and after 15 minutes at least."""

EXIT_LISTED: Seconds = 120.0
"""A checkpoint may still be found this long after an exit: a shared filesystem may show it late."""

SAVED_ANYWAY: Seconds = 30.0
"""A checkpoint of the regular interval counts as the requested one if no other follows within this time, and within two
steps."""

COMMITTED, UNLISTED = "a new checkpoint is committed", "no checkpoint directory of the run can be read"


@dataclass(frozen=True, slots=True)
class Observation:
    """One action and the present State."""

    record: Record
    state: State
    now: Instant

    @property
    def action(self) -> Action:
        return self.record.action

    @property
    def since(self) -> Instant:
        """When it was done, or about when if that was not observed."""
        return self.record.done_at or self.record.written_at or self.action.requested_at

    @property
    def run(self) -> Run | None:
        return None if self.action.run is None else self.state.runs.get(self.action.run)

    @property
    def save_s(self) -> Seconds | None:
        """The usual duration of a save of its run."""
        return None if self.run is None or self.run.checkpoints is None else self.run.checkpoints.save_s

    @property
    def job(self) -> Job | None:
        """The job of the action. An array task that waits again is part of the one row of all waiting tasks."""
        job = None if self.action.job is None else self.state.jobs.get(self.action.job)
        if job is None or job.gone_at is None or job.array is None or not (job.tasks or "").isdigit():
            return job
        row = self.state.jobs.get(f"{job.cluster}/{job.array}_[]")
        if row is None or row.gone_at is not None or not has_task(row.tasks or "", int(job.tasks or "")):
            return job
        return replace(job, state=row.state, reason=row.reason, priority=row.priority, started_at=None, gone_at=None)

    @property
    def switch(self) -> Switch | None:
        if self.run is None:
            return None
        return self.run.kill if self.action.verb in ("kill", "unkill") else self.run.save

    def is_past(self, limit: Seconds) -> bool:
        return self.now - self.since > limit

    def was_read(self) -> bool:
        """Whether the host that reads the files has reported at least two periods after the action."""
        reader = self.action.host if self.run is None or self.run.log is None else self.run.log.host
        source = self.state.sources.get(f"node:{reader}")
        return (
            source is not None
            and source.answered_at is not None
            and source.answered_at > self.since + 2 * source.period
        )

    def polls(self) -> float:
        """The minimum number of polls of the queue since the action."""
        source = self.state.sources.get(f"slurm:{self.action.cluster}")
        if source is None or source.answered_at is None or source.answered_at <= self.since:
            return 0
        return 1 + (source.answered_at - self.since) // source.period

    def milestone(self, name: str, at: Instant | None, missed: Sentence | None = None) -> Milestone:
        """The milestone as it is now. An observed one does not change; a missed one keeps its text."""
        old = next((mark for mark in self.record.marks if mark.name == name), Milestone(name))
        if old.at is not None:
            return old
        return Milestone(name, at) if at is not None else Milestone(name, None, old.missed or missed)


Progress = tuple[tuple[Milestone, ...], bool]
"""The milestones as they are now, and whether no more are expected."""


def committed(observed: Observation, name: str, begins: Instant | None, taken_at: Instant | None = None) -> Milestone:
    """The requested checkpoint, expected since `begins`: before that, no checkpoint is the requested one."""
    if begins is None:
        return observed.milestone(name, None)
    limit = max(COMMIT_SAVES * (observed.save_s or 0.0), COMMIT_AT_LEAST)
    missed = None
    if has_no_checkpoints(observed):
        missed = UNLISTED
    elif observed.now - begins > limit:
        missed = f"no new checkpoint within {duration(limit)} of the request"
    return observed.milestone(name, new_checkpoint(observed, taken_at), missed)


def new_checkpoint(observed: Observation, taken_at: Instant | None = None, *, is_over: bool = False) -> Instant | None:
    """When the requested checkpoint was committed, by time and step.

    `taken_at`: when the trainer was observed to consume the request. `is_over`: whether no other checkpoint can follow.
    A checkpoint of the regular interval may have come by itself, so one that does not fit the interval goes first.
    """
    run = observed.run
    known = run.checkpoints.list if run is not None and run.checkpoints is not None else ()
    found = [one for one in reversed(known) if _may_answer(one, observed, taken_at)]
    sure = [one for one in found if not _is_regular(one, known) or (taken_at is not None and _begun(one) >= taken_at)]
    chosen = next((one for one in sure or found if one.is_whole), None)
    if chosen is None or run is None:
        return None
    wait = 0.0 if sure or is_over else max(SAVED_ANYWAY, 2 * (run.progress.cadence_s or 0.0))
    at = chosen.at or observed.now
    return max(at, observed.since) if observed.now - at >= wait else None


def _may_answer(one: Checkpoint, observed: Observation, taken_at: Instant | None) -> bool:
    """Whether a checkpoint was begun after the action, and was not complete long before the request was consumed."""
    step, committed, action = one.step, observed.action.checkpoint, observed.action
    if one.state == "torn" or (step is not None and committed is not None and step <= committed):
        return False
    if one.began_at is None and step is not None and _counts_alike(observed) and step < (action.step or 0):
        return False  # a single file does not show when it was begun, but its step was over before the action
    if one.is_whole and taken_at is not None and (one.at or taken_at) < taken_at - CLOCK_TOLERANCE:
        return False
    return _begun(one) >= observed.since - CLOCK_TOLERANCE


def _begun(one: Checkpoint) -> Instant:
    return one.began_at if one.began_at is not None else one.at or 0.0


def _counts_alike(observed: Observation) -> bool:
    """Whether the log and the names of the checkpoints seem to count the same steps."""
    action, run = observed.action, observed.run
    every = run.checkpoints.every_steps if run is not None and run.checkpoints is not None else None
    if every is None or action.step is None or action.checkpoint is None:
        return False
    return 0 <= action.step - action.checkpoint <= 2 * every


def _is_regular(one: Checkpoint, known: Sequence[Checkpoint]) -> bool:
    """Whether its step continues the interval between two earlier checkpoints, or between the start and one."""
    step = one.step
    if step is None:
        return False
    earlier = {0, *(other.step for other in known if other.step is not None and other.step < step)}
    return any(2 * other - step in earlier for other in earlier)


def has_no_checkpoints(observed: Observation) -> bool:
    """Whether none of its checkpoints can be listed. The first listing comes some time after our own start."""
    run = observed.run
    if run is not None and run.checkpoints is not None:
        return run.checkpoints.error is not None
    if run is None or run.spec.checkpoints is None:
        return True
    return observed.now - max(observed.since, observed.state.started_at) > EXIT_LISTED


def exited_at(observed: Observation) -> Instant | None:
    """When the job that was meant ended, by its scheduler; without one, when its GPUs were left."""
    job = observed.job
    if observed.action.job is None:
        return observed.now if _gpus_are_free(observed) else None
    if job is not None and (job.stage == "ended" or job.gone_at is not None):
        return max((job.ends_at if job.stage == "ended" else job.gone_at) or observed.now, observed.since)
    return observed.now if observed.polls() and (job is None or job.stage == "waiting") else None


def _gpus_are_free(observed: Observation) -> bool:
    """Whether no process holds memory on any GPU of the run. GPUs are read every 30 s. Prometheus has no processes:
    there, the memory must be free."""
    run = observed.run
    nodes = [observed.state.nodes.get(name) for name in run.spec.nodes] if run is not None else []
    if not nodes or not observed.is_past(60.0):
        return False
    return all(
        node is not None and bool(node.gpus) and node.gpus_at is not None and node.gpus_at > observed.since + 60.0
        and all(is_empty(gpu) if node.probe == "prometheus" else not gpu.processes for gpu in node.gpus)
        for node in nodes
    )  # fmt: skip


# ---- the effect of each verb -----------------------------------------------------------------------------------------

KILL_WAIT: Seconds = 180.0
"""Slurm gives processes 30 s between SIGTERM and SIGKILL, and polls are half a minute apart."""

SUBMITTED_WITHIN: Seconds = 180.0
"""Between the ledger's entry and the submission: a check, a login shell, and an sbatch that waits its turn."""

RESULT_READ: Seconds = 300.0
"""Between the end of an evaluation and its result: a shared filesystem may show it late."""

TAKE_STEPS, TAKE_AT_LEAST = 10.0, 600.0
"""A trainer reads its switch every iteration. It is late after ten iterations, and after 10 minutes at least."""

WAITS, RESUMES, ENDS = "it is pending again", "it resumes", "it has ended"
EVALUATED = "a new result of the checkpoint is there"
HELD, RELEASED, QUEUED = "it is held", "it is released", "it is in the queue"
KEPT_OFF, DRAINED = "the job excludes the node", "the node is drained"
OBEYS = "the training loop obeys"
APPEARS, TAKEN, SAVES, EXITS, GONE = (
    "the file appears", "the trainer consumes it", "the trainer saves", "it exits", "the file is gone"
)  # fmt: skip


# ---- jobs and nodes --------------------------------------------------------------------------------------------------


def unobserved(observed: Observation) -> Progress:
    """The effects of a verb that has none to observe."""
    return (), True


def was_requeued(observed: Observation) -> bool:
    """Whether its job was started again since the plan."""
    before, job = observed.action.expected.restarts, observed.job
    return before is not None and job is not None and job.restarts is not None and job.restarts > before


def requeue(observed: Observation) -> Progress:
    job, polls = observed.job, observed.polls()
    if job is None or job.gone_at is not None:
        missed = "the job is no longer in the queue" if polls else None
        return (observed.milestone(WAITS, None, missed), observed.milestone(STARTS, None)), missed is not None
    again = was_requeued(observed) or (job.stage == "waiting" and polls > 0)
    missed = None
    if job.stage == "ended" and polls >= 2:
        why = "Slurm has not requeued it" if "ended" in observed.action.expected.stages else "it had ended before"
        missed = f"nothing happened: {why} ({end_reason(job)})"
    elif job.stage == "running" and observed.is_past(KILL_WAIT) and polls >= 2:
        missed = "it still runs: Slurm has not requeued it"
    waits = observed.milestone(WAITS, observed.now if again else None, missed)
    is_new = was_requeued(observed) or (job.started_at is not None and job.started_at > observed.since)
    is_running = waits.at is not None and job.stage == "running" and is_new
    has_run = waits.at is not None and job.stage == "ended" and (job.started_at or 0.0) > observed.since
    starts = observed.milestone(
        STARTS,
        (job.started_at or observed.now) if is_running else None,
        f"it has started and ended again: {end_reason(job)}" if has_run else None,
    )
    trainer = None if observed.run is None else observed.run.trainer
    obeys = _obeys(observed) if trainer is not None and "SIGTERM" in trainer.signals else ()
    if starts.at is None:
        return (*obeys, waits, starts), has_run or (waits.at is None and job.stage == "ended" and polls >= 2)
    resumes = _resumes(observed, job, starts.at)
    is_over = all(mark.at is not None or mark.missed is not None for mark in resumes)
    return (*obeys, waits, starts, *resumes), is_over


def _obeys(observed: Observation) -> tuple[Milestone, ...]:
    """That a loop with trainmon_hooks was asked to save or to stop since the action."""
    has_report = observed.run is not None and observed.run.trainer is not None
    return (observed.milestone(OBEYS, _asked_at(observed)),) if has_report else ()


def _asked_at(observed: Observation) -> Instant | None:
    """When such a loop was asked, by its own report."""
    asked = None if observed.run is None or observed.run.trainer is None else observed.run.trainer.asked
    is_new = asked is not None and asked.at >= observed.since - CLOCK_TOLERANCE
    return max(asked.at, observed.since) if asked is not None and is_new else None


def _reported_save(observed: Observation) -> Instant | None:
    """When a loop with trainmon_hooks has saved since the action, by its own report: where no checkpoint is listed."""
    trainer = None if observed.run is None else observed.run.trainer
    at = None if trainer is None or not has_no_checkpoints(observed) else trainer.saved_at
    return None if at is None or at < observed.since - CLOCK_TOLERANCE else max(at, observed.since)


def _resumes(observed: Observation, job: Job, started_at: Instant) -> tuple[Milestone, ...]:
    """That a loop with trainmon_hooks goes on where it was asked to stop, and how many steps are trained again."""
    run, known = observed.run, observed.state.attempts.values()
    if run is None or run.trainer is None:
        return ()
    of_job = [one for one in known if (one.run_id, one.cluster, one.job_id) == (run.name, job.cluster, job.id)]
    old, new = ([None, None, *sorted(of_job, key=lambda one: one.started_at or 0.0)])[-2:]
    has_begun = new is not None and (new.started_at or 0.0) >= observed.since - CLOCK_TOLERANCE
    if old is not None and not old.is_open and new is not None and has_begun and new.first_step is not None:
        again = (old.last_step or 0) - (new.first_step - 1)
        lost = counted(max(0, old.steps_lost or 0, again), "step")
        return (observed.milestone(f"{RESUMES} with {lost} lost", new.first_step_at or observed.now),)
    found, missed = run.trainer, "it ended before its first step" if job.stage == "ended" else None
    is_uncounted = observed.now - started_at > EXIT_LISTED  # its log does not show where it begins
    makes_steps = is_uncounted and found.ended is None and found.step is not None and found.at > started_at
    return (observed.milestone(RESUMES, found.at if makes_steps else None, missed),)


def cancel(observed: Observation) -> Progress:
    job, at = observed.job, None
    if job is None:
        at = observed.now if observed.polls() else None
    elif job.stage == "ended" or job.gone_at is not None:
        at = exited_at(observed)
    late = "Slurm still lists it: it may wait for processes that do not end"
    ends = observed.milestone(ENDS, at, late if observed.is_past(KILL_WAIT) and observed.polls() >= 2 else None)
    return (ends,), ends.at is not None


def is_cancelled(observed: Observation) -> bool:
    return observed.job is not None and observed.job.state == "CANCELLED"


def is_as_wanted(observed: Observation) -> bool:
    """Whether a poll of the queue shows its job held, or released."""
    job, wanted = observed.job, observed.action.verb == "hold"
    return job is not None and observed.polls() > 0 and is_held(job) == wanted


def hold(observed: Observation) -> Progress:
    job, wanted = observed.job, observed.action.verb == "hold"
    name = HELD if wanted else RELEASED
    if observed.polls() == 0:
        return (observed.milestone(name, None),), False
    if job is None or job.gone_at is not None or job.stage == "ended":
        return (observed.milestone(name, None, "the job is no longer in the queue"),), True
    missed = "it is not held" if wanted else f"it is still held ({job.reason or 'priority 0'})"
    at = observed.now if is_held(job) == wanted else None
    held = observed.milestone(name, at, missed if observed.polls() >= 2 else None)
    return (held,), held.at is not None or observed.polls() >= 2


def submitted_job(observed: Observation) -> str | None:
    """The job of a `queue` whose output was not received: it has the run's job name, was submitted then, and belongs
    to no other action."""
    chain = observed.action.expected.chain
    if observed.action.verb != "queue" or chain is None:
        return None
    cluster = observed.state.clusters.get(observed.action.cluster)
    me = None if cluster is None else cluster.me
    begun = observed.record.written_at or observed.action.requested_at
    others = (record.made for record in observed.state.actions.values() if record is not observed.record)
    taken = {*chain.numbers, *others}
    for job in observed.state.jobs.values():
        number = str(job.array or job.number)
        is_then = job.submitted_at is not None and -CLOCK_TOLERANCE <= job.submitted_at - begun <= SUBMITTED_WITHIN
        is_ours = job.cluster == observed.action.cluster and job.name == chain.name and me in (None, job.user)
        if is_ours and is_then and number not in taken:
            return number
    return None


def queue(observed: Observation) -> Progress:
    number = observed.record.made
    if number is None:
        return (observed.milestone(QUEUED, None, "it is not known which job was submitted"),), True
    jobs = (job for job in observed.state.jobs.values() if job.cluster == observed.action.cluster)
    is_there = any(number in (str(job.number), str(job.array)) for job in jobs)
    missed = f"the queue does not show job {number}" if observed.polls() >= 2 else None
    queued = observed.milestone(QUEUED, observed.now if is_there else None, missed)
    return (queued,), queued.at is not None or queued.missed is not None


def result_at(observed: Observation) -> Instant | None:
    """When an evaluator has written a new result of the checkpoint."""
    run, action = observed.run, observed.action
    found = 0 if run is None else sum(one.step == action.checkpoint for one in run.evals.results)
    return observed.now if found > (action.results or 0) else None


def evaluate(observed: Observation) -> Progress:
    number = observed.record.made
    queued = () if number is None else queue(observed)[0]
    jobs = (job for job in observed.state.jobs.values() if job.cluster == observed.action.cluster)
    job = next((job for job in jobs if number is not None and job.has_number(number)), None)
    limit = VERB["evaluate"].followed
    missed = f"no new result within {duration(limit)}" if observed.is_past(limit) else None
    if job is not None and job.stage == "ended":
        is_late = observed.now - (job.ends_at or observed.now) > RESULT_READ
        missed = f"job {job.id} has ended: {end_reason(job)}" if job.state != "COMPLETED" or is_late else missed
    evaluated = observed.milestone(EVALUATED, result_at(observed), missed)
    return (*queued, evaluated), evaluated.at is not None or evaluated.missed is not None


def is_excluded(observed: Observation) -> bool:
    if observed.action.job is None:
        node = observed.state.scheduler_nodes.get(observed.action.subject)
        return node is not None and node.is_drained
    return observed.job is not None and set(observed.action.subject.split(",")) <= set(observed.job.excluded)


def exclude(observed: Observation) -> Progress:
    name = DRAINED if observed.action.job is None else KEPT_OFF
    missed = "Slurm does not show it" if observed.is_past(KILL_WAIT) and observed.polls() >= 2 else None
    mark = observed.milestone(name, observed.now if is_excluded(observed) else None, missed)
    return (mark,), mark.at is not None or mark.missed is not None


# ---- switches and signals --------------------------------------------------------------------------------------------


def _appears(observed: Observation) -> Milestone:
    switch, at = observed.switch, None
    if switch is not None and switch.exists and (observed.action.id in (switch.why or "") or observed.was_read()):
        at = max(switch.armed_at or observed.now, observed.since - CLOCK_TOLERANCE)
    elif is_gone(observed):
        at = observed.since  # it was created and consumed between two polls
    error = None if switch is None else switch.error
    return observed.milestone(APPEARS, at, f"it is not seen: {error}" if error else None)


def is_armed(observed: Observation) -> bool:
    """Whether the switch has the file of this action."""
    switch = observed.switch
    return switch is not None and bool(switch.exists) and observed.action.id in (switch.why or "")


def _was_taken(observed: Observation) -> bool:
    """Whether the probe saw the file consumed after the action."""
    taken_at = observed.switch.taken_at if observed.switch is not None else None
    return taken_at is not None and taken_at >= observed.since - CLOCK_TOLERANCE


def is_gone(observed: Observation) -> bool:
    switch = observed.switch
    return switch is not None and switch.exists is False and (observed.was_read() or _was_taken(observed))


def _undone(observed: Observation) -> str | None:
    """Who removed the switch meanwhile."""
    undo = "unkill" if observed.action.verb == "kill" else "unsave"
    done = (
        one
        for one in observed.state.actions.values()
        if (one.action.verb, one.action.run, one.status) == (undo, observed.action.run, "done")
    )
    later = (one for one in done if one.done_at is not None and one.done_at > observed.since)
    return next((f"removed by {one.action.who}" for one in later), None)


def save(observed: Observation) -> Progress:
    run, switch = observed.run, observed.switch
    if run is None:
        return observed.record.marks, True
    appears, undone = _appears(observed), _undone(observed)
    if undone is not None:
        return (appears, observed.milestone(TAKEN, None, undone)), True
    limit = _take_limit(run)
    taken_at = switch.taken_at if switch is not None and _was_taken(observed) else None
    at = taken_at or observed.now if is_gone(observed) else None
    late = f"not consumed within {duration(limit)}: a hung trainer ignores it"
    asked_at = _asked_at(observed)  # trainmon_hooks removes the file only after the save
    taken = observed.milestone(TAKEN, at, late if asked_at is None and observed.is_past(limit) else None)
    if taken_at is not None and asked_at is not None:
        taken_at = min(taken_at, asked_at)
    saved = committed(observed, COMMITTED, taken.at, taken_at)
    return (appears, taken, saved), taken.at is not None and (saved.at is not None or has_no_checkpoints(observed))


def kill(observed: Observation) -> Progress:
    run = observed.run
    if run is None:
        return observed.record.marks, True
    appears, undone = _appears(observed), _undone(observed)
    if undone is not None:
        return (appears, observed.milestone(EXITS, None, undone)), True
    if observed.action.job is None and f"slurm:{observed.action.cluster}" in observed.state.sources:
        return (appears,), appears.at is not None  # no job of it ran: nothing exits
    limit = _take_limit(run) + COMMIT_SAVES * (observed.save_s or COMMIT_AT_LEAST / 3)
    still = f"still there after {duration(limit)}"
    late = ask(f"{still}: a hung trainer will not see the switch; press {{}} to cancel the job", "cancel")
    exits = observed.milestone(EXITS, exited_at(observed), late if observed.is_past(limit) else None)
    no_save = None
    if exits.at is not None and observed.now - exits.at >= EXIT_LISTED:
        is_blind = has_no_checkpoints(observed)
        no_save = "its checkpoints cannot be listed" if is_blind else "it ended without a new checkpoint"
    saved_at = new_checkpoint(observed, is_over=exits.at is not None) or _reported_save(observed)
    saves = observed.milestone(SAVES, saved_at, no_save)
    return (appears, saves, exits), exits.at is not None and (saves.at is not None or saves.missed is not None)


def undo(observed: Observation) -> Progress:
    missed = "the file is still there, or there again" if observed.is_past(60.0) and observed.was_read() else None
    gone = observed.milestone(GONE, observed.now if is_gone(observed) else None, missed)
    return (gone,), gone.at is not None or gone.missed is not None


def _take_limit(run: Run) -> Seconds:
    return max(TAKE_STEPS * (run.progress.cadence_s or 0.0), TAKE_AT_LEAST)


def signal(observed: Observation) -> Progress:
    if has_no_checkpoints(observed):
        obeys = _obeys(observed)
        return (*obeys, observed.milestone(COMMITTED, None, UNLISTED)), all(one.at is not None for one in obeys)
    saved, exited = committed(observed, COMMITTED, observed.since), exited_at(observed)
    if saved.at is None and exited is not None and observed.now - exited > EXIT_LISTED:
        return (observed.milestone(COMMITTED, None, "it ended without a new checkpoint"),), True
    return (*_obeys(observed), saved), saved.at is not None


# ---- the record of an action, followed until its effect is observed --------------------------------------------------

RESULT_TIMEOUT: Seconds = 180.0
"""An action without a result after this time has none: the program that ran it was ended."""

OBSERVED = "its effect is observed: it was done"


def verify_record(record: Record, state: State, now: Instant) -> Record:
    """Advance an open record by what is observed now."""
    if not record.is_open or record.status in ("failed", "refused"):
        return record
    observed = Observation(record, state, now)
    if record.status in ("asked", "unknown"):
        record = _resolve(observed)
        if record.status != "done":
            return record
        observed = Observation(record, state, now)
    spec = VERB[record.action.verb]
    marks, is_over = function(spec.verify)(observed)
    is_over = is_over or observed.is_past(spec.followed)
    if marks == record.marks and not is_over:
        return record
    return replace(record, marks=marks, settled_at=now if is_over else None)


def followed_directories(state: State) -> frozenset[str]:
    """The checkpoint directories in which an open action expects a new checkpoint. They are listed more often."""
    names = (one.action.run for one in state.actions.values() if one.is_open and VERB[one.action.verb].saves)
    runs = (state.runs.get(name) for name in names if name is not None)
    return frozenset(run.spec.checkpoints for run in runs if run is not None and run.spec.checkpoints is not None)


def _resolve(observed: Observation) -> Record:
    """Find out about an action whose result was not observed. It is never repeated."""
    record = observed.record
    begun = record.written_at or observed.action.requested_at
    if record.status == "asked" and begun >= observed.state.started_at and observed.now - begun < RESULT_TIMEOUT:
        return record  # it runs now
    spec = VERB[observed.action.verb]
    if spec.proof and function(spec.proof)(observed):
        outcome = joined(record.outcome, "; ", OBSERVED) if record.outcome else OBSERVED
        number = submitted_job(observed) if record.made is None else record.made
        return replace(record, status="done", outcome=outcome, done_at=record.done_at or begun, made=number)
    source, started_at = observed.state.sources.get(f"slurm:{observed.action.cluster}"), observed.state.started_at
    was_polled = source is not None and source.answered_at is not None and source.answered_at > started_at
    # One poll of the queue is enough: no later poll shows more.
    is_final = observed.now - begun >= RESULT_TIMEOUT and spec.is_in_queue and was_polled
    if not is_final and observed.now - max(begun, started_at) < RESULT_TIMEOUT:
        return record
    outcome = record.outcome or "it was interrupted: it is not known whether it was done, and it is not repeated"
    return replace(record, status="unknown", outcome=outcome, settled_at=observed.now)
