"""What a plan is made from: the requested row, what was read just now, and what several verbs say about it. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2s
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.actions.verbs import VERB, ask
from trainmon.analysis.checkpoints import last_checkpoint
from trainmon.analysis.retries import RetryDecision, by_run, config_to_read, decide, history_of, needs_config_change
from trainmon.analysis.runs import jobs_of, listening, present, rivals
from trainmon.lib import Instant, Sentence, ago, clean, duration, joined
from trainmon.model import (
    Action,
    ActionRequest,
    Attempt,
    Checkpoints,
    Cluster,
    CreateFile,
    Execute,
    Expected,
    Job,
    NodeCheck,
    Operation,
    RankWay,
    ReadStacks,
    Record,
    Refusal,
    Run,
    SchedulerNode,
    Source,
    State,
    Switch,
    Verb,
)

# ---- what must be read on a host before a plan or an action, and what was read there ---------------------------------

LEDGER = "the ledger"
"""Its key in Readback.errors."""


class FileStat(Switch, frozen=True, kw_only=True):
    """A switch file as it was just read: `armed_at` is by the host's clock, and `why` is its first line. `exists` is
    null if that is not known; `error` is the reason."""

    mark: str = ""
    """Its inode, size, modification time and owner, as the host printed them: its identity."""
    content: tuple[str, ...] = ()
    """The lines of its first 500 bytes."""


class Readback(msgspec.Struct, frozen=True, kw_only=True):
    """What was read just now, for one plan or for the check before one action."""

    at: Instant = 0.0
    jobs: Mapping[str, Job] = {}
    """By key."""
    nodes: Mapping[str, SchedulerNode] = {}
    """By name."""
    gone: frozenset[str] = frozenset()
    """Keys of jobs, and `CLUSTER/NODE` of nodes, that the scheduler does not know."""
    steps: Mapping[str, tuple[str, ...]] = {}
    """The running steps of a job, by its key."""
    scripts: Mapping[str, str] = {}
    """The batch script of a job, by its key."""
    switches: Mapping[str, FileStat] = {}
    """By `HOST:PATH`."""
    evaluations: Mapping[str, Record] = {}
    """By action id: the starts of evaluators of the requested runs that the ledger holds."""
    stacks: Mapping[str, tuple[RankWay, ...]] = {}
    """How the stacks of the ranks of a run can be read, by its name."""
    configs: Mapping[str, str] = {}
    """By `HOST:PATH`: the hashes of config files, as attempts have them."""
    starts: Mapping[str, str] = {}
    """By `SUBJECT start`: what `sbatch --test-only` says of where it would start."""
    checks: Mapping[str, tuple[NodeCheck, ...]] = {}
    """By subject: the checks of the nodes on which it may start again."""
    errors: Mapping[str, str] = {}
    """Why something could not be read. Keys: a job's key, `JOB script`, `HOST:PATH`, `CLUSTER/NODE`, a cluster for
    its queue, a run for its stacks, `SUBJECT start`, or LEDGER."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What must be read on one host before a plan or an action."""

    host: str
    cluster: str
    users: tuple[str, ...] | None = None
    """Whose queue is read. Empty: our own. None: no queue."""
    jobs: tuple[tuple[str, str], ...] = ()
    """Keys of jobs, and the number that scontrol is given for each."""
    steps: tuple[tuple[str, str, str], ...] = ()
    """Keys of jobs whose steps and batch script are needed, and what Slurm is given for each of these."""
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """Nodes whose state in the scheduler is needed."""
    configs: tuple[str, ...] = ()
    """Config files whose content must be compared."""
    start: tuple[str, str, tuple[str, ...]] | None = None
    """Its key in Readback.starts, the number of the job that has its batch script or nothing, and the command."""


# ---- the requested row with its run and jobs -------------------------------------------------------------------------

SwitchKind = Literal["kill", "save"]

NO_ANSWER_HINT = "its jobs are unknown until Slurm responds: nothing is done to them"


class Actor(msgspec.Struct, frozen=True):
    """The user who requests an action, and the machine."""

    who: str
    from_host: str


class Refused(Exception):
    """Ends the plan of a row."""

    def __init__(self, subject: str, why: str, hint: Sentence = "") -> None:
        super().__init__(why)
        self.refusal = Refusal(subject=subject, why=why, hint=hint)


@dataclass(frozen=True, slots=True)
class PlanContext:
    """One requested row, or the requested nodes of one cluster, with all that its plan depends on."""

    request: ActionRequest
    state: State
    readback: Readback
    actor: Actor
    now: Instant
    subject: str
    cluster: str
    run: Run | None
    jobs: tuple[Job, ...]
    """The run's jobs in the order of `jobs_of`, or the one requested job, or those that wait for the nodes. As recent
    as was read."""

    @property
    def job(self) -> Job | None:
        """The job that is meant: the running one, else the first waiting one, else the last that ended."""
        return self.jobs[0] if self.jobs else None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The requested nodes, for a verb of nodes."""
        return tuple(self.subject.split(",")) if VERB[self.request.verb].target == "node" else ()

    @property
    def known_jobs(self) -> Mapping[str, Job]:
        """All jobs by key, as recent as was read, without those that the scheduler no longer knows."""
        return _known_jobs(self.state, self.readback)

    @property
    def running_job(self) -> Job | None:
        return present(self.jobs)

    @property
    def waiting(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.stage == "waiting" and job.gone_at is None)

    @property
    def cluster_info(self) -> Cluster | None:
        return self.state.clusters.get(self.cluster)

    @property
    def slurm(self) -> Source | None:
        return self.state.sources.get(f"slurm:{self.cluster}")

    @property
    def is_silent(self) -> bool:
        """Whether Slurm does not answer, or is not used."""
        return self.slurm is None or self.slurm.health in ("off", "down") or self.slurm.answered_at is None

    @property
    def checkpoints(self) -> Checkpoints | None:
        return None if self.run is None else self.run.checkpoints

    @property
    def name(self) -> str:
        """The run's name, else the job's."""
        return self.run.name if self.run is not None else self.job.name if self.job is not None else self.subject

    @property
    def of_run(self) -> str:
        """The end of a title: ` of video-2b`."""
        return f" of {self.run.name}" if self.run is not None else ""

    def refused(self, why: str, hint: Sentence = "") -> Refused:
        return Refused(self.subject, why, hint)

    def ago(self, at: Instant | None) -> str:
        return "" if at is None else f"{ago(self.now - at)} ago"

    def usual_save_time(self, lead: str = "usually about") -> str:
        """` (usually about 90s)`, or nothing where no save was timed."""
        usual = None if self.checkpoints is None else self.checkpoints.save_s
        return f" ({lead} {duration(usual)})" if usual else ""

    def switch_path(self, kind: SwitchKind) -> str | None:
        if self.run is None:
            return None
        return self.run.spec.kill_switch if kind == "kill" else self.run.spec.save_switch

    def switch(self, kind: SwitchKind) -> Switch | None:
        """The run's switch, as recent as was read."""
        if self.run is None:
            return None
        path, known = self.switch_path(kind), self.run.kill if kind == "kill" else self.run.save
        stat = self.readback.switches.get(f"{self.host}:{path}")
        if path is None or stat is None:
            return known
        if stat.armed_at is None or known is None or known.armed_at is None or not known.exists:
            return stat
        skew = round(stat.armed_at - known.armed_at)  # the host's clock minus ours: both have dated the file
        return replace(stat, armed_at=stat.armed_at - skew)

    def read_error(self, path: str) -> str | None:
        """Why a switch file could not be read just now."""
        return self.readback.errors.get(f"{self.host}:{path}")

    def switch_error(self, kind: SwitchKind) -> str | None:
        """Why it is not known whether a switch of the run is armed."""
        path, switch = self.switch_path(kind), self.switch(kind)
        return None if path is None else self.read_error(path) or (switch.error if switch is not None else None)

    @property
    def kill_switch_warnings(self) -> tuple[str, ...]:
        error, switch = self.switch_error("kill"), self.switch("kill")
        if error is None:
            return ()
        if switch is not None and switch.is_dangling:
            return (f"Its kill switch is {error}.",)
        return (f"It is not known whether its kill switch is armed: {error}.",)

    @property
    def host(self) -> str | None:
        """The host where its commands run and its files are read: the login host, else one that answers."""
        hosts = [self.cluster_info.login] if self.cluster_info is not None else []
        if self.run is not None:
            hosts += [*([self.run.log.host] if self.run.log is not None else []), *self.run.spec.nodes]
        sources = ((host, self.state.sources.get(f"node:{host}")) for host in hosts)
        up = [host for host, source in sources if source is not None and source.health == "ok"]
        return next(iter(up or hosts), None)

    def other_owner_warning(self, job: Job) -> tuple[str, ...]:
        if self.cluster_info is None or self.cluster_info.may_operate or job.user in ("", self.cluster_info.me):
            return ()
        return (f"It is {job.user}'s: only {job.user} and Slurm operators may do this.",)

    def expected(self, job: Job, *, unarmed: bool = False, needs_slurm: bool = True) -> Expected:
        """What must still hold of a job when the action runs; with `unarmed`, also that no kill switch is armed."""
        return Expected(
            id=job.id,
            submitted_at=job.submitted_at,
            stages=(job.stage,) if job.stage != "unknown" else (),
            user=job.user or None,
            restarts=job.restarts,
            switch_absent=self.switch_path("kill") if unarmed and self.switch_error("kill") is None else None,
            needs_slurm=needs_slurm,
        )

    def check_job(self, job: Job | None) -> Job:
        """The job, if its present state is known.

        Raises:
            Refused: when it does not.
        """
        errors, source = self.readback.errors, self.slurm
        if job is not None and job.key in self.readback.jobs:
            return job
        error = (errors.get(job.key) if job is not None else None) or errors.get(self.cluster)
        if error is not None:
            raise self.refused(error, NO_ANSWER_HINT)
        if source is None or source.health == "off":
            raise self.refused(f"cluster {self.cluster} has no Slurm")
        if source.health == "down" or source.answered_at is None:
            raise self.refused(source.error or "no data from Slurm yet", NO_ANSWER_HINT)
        if job is None:
            raise self.refused(f"no job of {self.name} is known", "look at the queue (pane 7)")
        if job.gone_at is not None:
            raise self.refused(f"job {job.id} is no longer in the queue (since {self.ago(job.gone_at)})")
        return job

    def armed(self, kind: SwitchKind) -> str:
        """`kill switch, armed 4m ago by ana: “trainmon-tui kill by …”`, or nothing if it is not armed."""
        switch = self.switch(kind)
        if switch is None or not switch.exists:
            return ""
        since = f" {self.ago(switch.armed_at)}" if switch.armed_at is not None else ""
        by = f" by {switch.by}" if switch.by else ""
        return f"{kind} switch, armed{since}{by}" + (f": “{switch.why}”" if switch.why else "")

    def check_unarmed(self, consequence: str) -> None:
        """Check that the run's kill switch is not armed.

        Raises:
            Refused: when it is, with the consequence that an action would have.
        """
        switch = self.switch("kill")
        if switch is not None and switch.exists:
            hint = switch.removal(ask("remove it first: {}", "unkill", subject=self.name))
            raise self.refused(f"{self.armed('kill')}: {consequence}", hint)

    def check_queue(self, job: Job | None) -> None:
        """Check that this job is known, or without one the queue: a new job must wait for those in it.

        Raises:
            Refused: when it is not.
        """
        if job is not None or self.cluster in self.readback.errors or self.is_silent:
            self.check_job(job or self.job)


def contexts_of(
    request: ActionRequest, state: State, readback: Readback, actor: Actor, now: Instant
) -> list[PlanContext | Refusal]:
    """The requested rows, and refusals of those that mean nothing or several jobs. The nodes of a cluster are one row,
    because a job has one list of excluded nodes."""
    if VERB[request.verb].target == "node":
        return _contexts_of_nodes(request, state, readback, actor, now)
    return [_context_of(request, state, readback, actor, now, subject) for subject in dict.fromkeys(request.subjects)]


def _context_of(
    request: ActionRequest, state: State, readback: Readback, actor: Actor, now: Instant, subject: str
) -> PlanContext | Refusal:
    """The row with its run, or with its job by its key. A refusal: it means nothing, or several jobs."""
    jobs = _known_jobs(state, readback)
    run = state.runs.get(subject)
    if run is not None:
        own = jobs_of(run.spec, jobs.values())
        several = rivals(own) if VERB[request.verb].is_of_one_job else ()
        if several:  # another user's job, or another training, might be hit
            named = " and ".join(f"{job.id} ({job.user or 'unknown'}, {job.state})" for job in several[:8])
            hint = "name one by its id; log, nodes or user in the [[run]] tell them apart"
            why = f"{run.name} may mean any of {len(several)} jobs: {named}"
            return Refusal(subject=run.name, why=why, hint=hint)
        return PlanContext(request, state, readback, actor, now, subject, run.spec.cluster, run, own)
    job = jobs.get(subject)
    if job is not None:
        run = next((one for one in state.runs.values() if subject in one.jobs), None)
        return PlanContext(request, state, readback, actor, now, subject, job.cluster, run, (job,))
    if subject not in readback.gone:
        why = readback.errors.get(subject) or f"no run or job is called {clean(subject, 100)}"
        return Refusal(subject=subject, why=why)
    cluster, _, number = subject.rpartition("/")
    for job in readback.jobs.values():
        if job.cluster == cluster and job.has_number(number):
            return Refusal(subject=subject, why=f"{number} is a part of job {job.id}", hint=f"name {job.id}")
    ended = f"Slurm no longer knows job {number}: it has ended"
    unknown = f"Slurm knows no job {number}: it ended long ago or never existed"
    of = next((run.name for run in state.runs.values() if subject in run.jobs), None)
    hint = f"queue another: trainmon-tui queue {of}" if request.verb == "requeue" and of is not None else ""
    return Refusal(subject=subject, why=ended if subject in state.jobs else unknown, hint=hint)


def _known_jobs(state: State, readback: Readback) -> dict[str, Job]:
    return {key: job for key, job in {**state.jobs, **readback.jobs}.items() if key not in readback.gone}


# ---- nodes -----------------------------------------------------------------------------------------------------------

NODE = re.compile(r"\w[\w.-]{0,200}", re.ASCII)

LARGEST_EXCLUSION = 32
"""Waiting jobs that one plan changes: a list that a person can still read."""


def _contexts_of_nodes(
    request: ActionRequest, state: State, readback: Readback, actor: Actor, now: Instant
) -> list[PlanContext | Refusal]:
    found: list[PlanContext | Refusal] = []
    nodes: dict[str, list[str]] = {}
    for name in dict.fromkeys(request.subjects):
        cluster = cluster_of(state, name)
        key, is_known = f"{cluster}/{name}", name in state.nodes or name in state.scheduler_nodes
        if cluster is None:
            found.append(Refusal(subject=name, why=f"no node is called {clean(name, 100)}"))
        elif not is_known and key in readback.gone:
            found.append(Refusal(subject=name, why=f"Slurm knows no node called {clean(name, 100)}"))
        elif not is_known and key in readback.errors:
            found.append(Refusal(subject=name, why=readback.errors[key]))
        else:
            nodes.setdefault(cluster, []).append(name)
    for cluster, names in nodes.items():
        jobs = _waiting_jobs(request, state, readback, cluster, names)
        found.append(PlanContext(request, state, readback, actor, now, ",".join(names), cluster, None, jobs))
    return found


def cluster_of(state: State, node: str) -> str | None:
    """The cluster of a node that is watched or known to its scheduler.

    A node that is neither, as no job of ours runs there now, may still be known to the only scheduler there is."""
    known = state.nodes.get(node) or state.scheduler_nodes.get(node)
    if known is not None:
        return known.cluster
    with_slurm = [name for name in state.clusters if f"slurm:{name}" in state.sources]
    return with_slurm[0] if len(with_slurm) == 1 and NODE.fullmatch(node) else None


def _waiting_jobs(
    request: ActionRequest, state: State, readback: Readback, cluster: str, names: Sequence[str]
) -> tuple[Job, ...]:
    """The waiting jobs of the named run, else of the runs that used the nodes, else all that are ours."""
    known = _known_jobs(state, readback).values()
    waiting = [job for job in known if job.cluster == cluster and job.stage == "waiting" and job.gone_at is None]
    if request.run is not None:
        runs = [state.runs[request.run]] if request.run in state.runs else []
    else:
        runs = [
            run
            for run in state.runs.values()
            if run.spec.cluster == cluster
            and {*run.spec.nodes, *(node for key in run.jobs if key in state.jobs for node in state.jobs[key].nodes)}
            & set(names)
        ]
    of_runs = {key for run in runs for key in run.jobs}
    if request.run is not None or any(job.key in of_runs for job in waiting):
        waiting = [job for job in waiting if job.key in of_runs]
    else:
        me = state.clusters[cluster].me if cluster in state.clusters else None
        waiting = [job for job in waiting if me is None or job.user == me]
    return tuple(waiting[:LARGEST_EXCLUSION])


# ---- what a plan to start a run again says of its retries ------------------------------------------------------------

STORED = "Slurm starts the batch script as it was submitted: a change of its file counts only for a new job."


class Retry(NamedTuple):
    """What another attempt of a run would follow."""

    last: Attempt
    """The last attempt that ended."""
    decision: RetryDecision
    config: str | None
    """The config file on which the decision depends."""
    unread: str
    """Why it is not known whether that file has changed, if it could not be read."""


def last_ended(context: PlanContext) -> Attempt | None:
    """The last attempt of the run that ended."""
    own = () if context.run is None else by_run(context.state.attempts.values()).get(context.run.name, ())
    return next((one for one in reversed(own) if not one.is_open), None)


def retry_of(context: PlanContext) -> Retry | None:
    """What to do after the last attempt of the run that ended; None while that is not known."""
    last = last_ended(context)
    if context.run is None or last is None:
        return None
    policy, readback, state = context.run.spec.retry, context.readback, context.state
    path = config_to_read(last, policy)
    location = f"{context.host}:{path}"
    decision = decide(last, state.attempts.values(), policy, state.node_records, config=readback.configs.get(location))
    error = None if path is None else readback.errors.get(location)
    unread = "" if error is None else f"it is not known whether the config has changed: {error}"
    return None if decision is None else Retry(last, decision, path, unread)


def check_change(context: PlanContext) -> None:
    """Check that an automatic retry is not one that needs a change first.

    Raises:
        Refused: when nothing has changed, or that is not known.
    """
    retry = retry_of(context)
    if retry is not None and retry.decision.choice in ("after-change", "stop") and retry.decision.budget_text:
        raise context.refused(retry.unread or retry.decision.why)


def reason(context: PlanContext) -> str:
    """Why the action is requested. That the config has changed is known only now."""
    retry = retry_of(context) if context.request.is_retry else None
    return context.request.why if retry is None or retry.config is None else retry.decision.why


def retry_facts(context: PlanContext) -> tuple[tuple[str, str], ...]:
    """The budget and the last causes, if an attempt of the run has ended."""
    retry = retry_of(context)
    if retry is None:
        return ()
    history = history_of(retry.last, context.state.attempts.values())
    ends = [one.cause.cause for one in history if one.cause is not None]
    counts = Counter(ends[-5:][::-1])
    causes = ", ".join(cause if count == 1 else f"{cause} ({count} times)" for cause, count in counts.items())
    budget = [("retry budget", retry.decision.budget_text)] if retry.decision.budget_text else []
    if retry.decision.choice == "now" and retry.config is not None:
        budget.append(("since then", retry.decision.why))
    return (*budget, ("last causes", f"{causes}; the last attempt ended {context.ago(retry.last.ended_at)}"))


def retry_warnings(context: PlanContext) -> tuple[Sentence, ...]:
    """Why another attempt may only repeat the last one."""
    retry = retry_of(context)
    needs_no_warning = retry is None or retry.decision.choice in ("now", "none") or not retry.decision.budget_text
    if context.run is None or retry is None or needs_no_warning:
        return ()
    nodes = ",".join(retry.decision.exclude)
    off = ask(f" {{}} on {nodes} excludes it from the pending job.", "exclude") if nodes else ""
    unread = f" {retry.unread[0].upper()}{retry.unread[1:]}." if retry.unread else ""
    may_help = joined(f"Another attempt may not help: {retry.decision.why}.", off, unread)
    # The settings may be in the batch script, which a requeue does not read again.
    is_requeue = (context.request.verb, retry.decision.choice) == ("requeue", "after-change")
    is_of_config = needs_config_change(retry.last, context.run.spec.retry)
    return (may_help, STORED) if is_requeue and is_of_config and retry.config is None else (may_help,)


# ---- an Action with its facts, and the sentences that several verbs share --------------------------------------------

REASON_LENGTH = 300
"""Characters of a person's reason that are written into a switch file: one line that a terminal shows."""


def action(
    context: PlanContext,
    operation: Operation,
    title: str,
    *,
    verb: Verb | None = None,
    job: Job | None = None,
    facts: tuple[tuple[str, str], ...] = (),
    consequences: tuple[Sentence, ...] = (),
    warnings: tuple[Sentence, ...] = (),
    expected: Expected | None = None,
    keep_log: str | None = None,
    keep_errors: str | None = None,
) -> Action:
    """An action with its facts in the same order for every verb: what is at stake first, the identifiers last."""
    request, actor, run = context.request, context.actor, context.run
    verb = verb or request.verb
    # The same plan made twice has actions with the same ids.
    what = msgspec.to_builtins(operation)
    key = (verb, context.subject, context.cluster, actor, request.requested_at, context.now, what)
    action_id = blake2s(repr(key).encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
    why = clean(reason(context), REASON_LENGTH)
    if isinstance(operation, CreateFile):
        at = datetime.fromtimestamp(request.requested_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        author = f"{clean(actor.who, 100)} from {clean(actor.from_host, 100)} at {at}"
        line = f"trainmon-tui {verb} by {author}{f': {why}' if why else ':'} ({action_id})"
        operation = CreateFile(path=operation.path, text=line)
    committed = None if context.checkpoints is None else context.checkpoints.committed
    return Action(
        id=action_id,
        verb=verb,
        subject=context.subject,
        cluster=context.cluster,
        host=context.host or "",
        operation=operation,
        title=title,
        run=None if run is None else run.name,
        job=None if job is None else job.key,
        facts=(*facts, *_listening(context, verb, operation), *_training(context), *_target(context, job, operation)),
        consequences=consequences,
        warnings=warnings,
        expected=expected or Expected(),
        keep_log=keep_log,
        keep_errors=keep_errors,
        step=None if run is None else run.progress.step,
        checkpoint=None if committed is None else committed.step,
        who=actor.who,
        from_host=actor.from_host,
        why=why,
        requested_at=request.requested_at,
    )


def _target(context: PlanContext, job: Job | None, operation: Operation) -> tuple[tuple[str, str], ...]:
    """The run, the job, the host, and the command or file."""
    facts = [("run", context.run.name)] if context.run is not None else []
    if job is not None:
        nodes = job.node_count or len(job.nodes)
        on_nodes = f" on {nodes} nodes" if nodes > 1 else ""
        facts += [
            ("job", f"{job.id} ({job.state}{on_nodes})"),
            ("cluster", job.cluster),
            ("owner", job.user or "unknown"),
        ]
        if job.components:
            ids = ", ".join(map(str, job.components))
            facts.append(("components", f"Slurm's jobs {ids}: the action affects all of them"))
    if isinstance(operation, Execute):
        command = ("command", operation.shown or clean(shlex.join(operation.argv)))
    else:
        command = ("file", clean(operation.path))
    hosts = () if isinstance(operation, ReadStacks) else (("host", context.host or "unknown"),)
    return (*facts, *hosts, command)


def _listening(context: PlanContext, verb: Verb, operation: Operation) -> tuple[tuple[str, str], ...]:
    """Whether the trainer listens to what the action does."""
    if context.run is None or not (verb == "signal" or isinstance(operation, CreateFile)):
        return ()
    what = context.request.signal.upper().removeprefix("SIG") if verb == "signal" else verb
    found = listening(context.run, context.state, what, context.now)
    return () if found is None else (("trainer listens", found),)


def _training(context: PlanContext) -> tuple[tuple[str, str], ...]:
    """The last step and the last committed checkpoint of the run."""
    run, found = context.run, context.checkpoints
    if run is None:
        return ()
    facts = []
    if run.progress.at is not None:
        step = "" if run.progress.step is None else f"{run.progress.step:,}, "
        facts.append(("last step", f"{step}{context.ago(run.progress.at)}"))
    is_watched = run.spec.checkpoints is not None
    why = " yet: its directory was not listed" if is_watched else ": no checkpoint directory is watched"
    checkpoint = f"not known{why}" if found is None else last_checkpoint(run, found, context.now)
    return (*facts, ("last checkpoint", checkpoint))
