"""The jobs of a run in order, its nodes and sources, and the clock; and which runs there are. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice, pairwise
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.lib import Instant, Seconds, ago, clean, elapsed, group_by, scrub
from trainmon.model import (
    ME,
    Attempt,
    Cluster,
    Job,
    JobPart,
    Node,
    OwnProcess,
    Progress,
    Record,
    Run,
    RunSpec,
    Source,
    Stop,
    Verdict,
    WhyCode,
)

# ---- which jobs belong to which run, and which runs there are --------------------------------------------------------

ENDED_RUNS_STAY: Seconds = 86_400.0
"""How long a run that was found by itself stays after its last job: a night and a morning."""

FOUND_AT_MOST = 200
"""Runs that are found by themselves; who has more names of jobs than this has a sweep, not runs."""

_WITHOUT_PROCESSES = frozenset({"COMPLETING", "CONFIGURING", "POWER_UP_NODE", "STAGE_OUT"})
"""States that count as running: before the first process, and after the last that can be ended."""


def jobs_of(spec: RunSpec, jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs of a run by cluster, job name and user: running, then waiting, then ended."""
    name = spec.job or spec.name
    own = [
        job
        for job in jobs
        if job.name == name
        and job.cluster == spec.cluster
        and spec.user in (None, job.user)
        and is_of_task(job.id, spec)
    ]
    return tuple(sorted(own, key=_order))


def is_of_task(job_id: str | None, spec: RunSpec) -> bool:
    """Whether a run may be this job: of several jobs of a name, each has a run of its own."""
    return job_id not in spec.without if spec.only is None else job_id == spec.only


def owner_of(spec: RunSpec, users: Collection[str], me: str | None) -> str | None:
    """The user whose jobs belong to a configured run.

    Its own `user`, else us if our jobs are watched, else None for any watched user.
    """
    if spec.user not in (None, ME):
        return spec.user
    is_mine = spec.user == ME or not users or ME in users or me in users
    return me or None if is_mine else None


def rivals(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Of a run's jobs those between which its name does not choose: several that train at once, or of several users.
    One that runs and those that wait behind it are no rivals."""
    there = tuple(job for job in jobs if job.gone_at is None and job.stage != "ended")
    training = tuple(job for job in there if holds_nodes(job))
    if len(training) > 1:
        return training
    return there if len({job.user for job in there}) > 1 else ()


def _without_rivals(spec: RunSpec, jobs: Iterable[Job]) -> RunSpec:
    """A configured run without the jobs of its name that have another log or other nodes."""
    training = [job for job in jobs_of(spec, jobs) if holds_nodes(job)]
    by_log = [job for job in training if spec.log and job.stdout and fnmatchcase(job.stdout, spec.log)]
    by_nodes = [job for job in training if set(spec.nodes) & set(job.nodes)]
    own = next((found[0] for found in (by_log, by_nodes) if len(found) == 1), None)
    return spec if own is None else replace(spec, without=tuple(job.id for job in training if job is not own))


def _order(job: Job) -> tuple[int, float, float, int]:
    """Running jobs first, the latest start first; then waiting jobs, by Slurm's estimates of their starts, else in the
    order of the queue, to whose end a requeued job goes; then ended jobs, the latest first."""
    order = job.order
    if order == 1:
        return order, job.starts_at or inf, job.submitted_at or 0.0, job.number
    at = job.started_at if order == 0 else job.ends_at or job.gone_at
    return order, -(at or 0.0), 0.0, -job.number


def present(jobs: Sequence[Job]) -> Job | None:
    """The running job, given one run's jobs in order."""
    return jobs[0] if jobs and jobs[0].gone_at is None and jobs[0].stage in ("running", "unknown") else None


def holds_nodes(job: Job) -> bool:
    """Whether its processes are on its nodes, and pam_slurm_adopt lets its user log in there."""
    return job.gone_at is None and job.stage == "running" and job.state not in _WITHOUT_PROCESSES


def parts_by_node(jobs: Iterable[Job]) -> dict[str, JobPart]:
    """The nodes that these jobs hold, each with the job there. Of several, a suspended one counts last: no step of it
    can start."""
    holding = sorted(filter(holds_nodes, jobs), key=lambda job: job.state != "SUSPENDED")
    return {node: job.part_on(node) for job in holding for node in job.nodes}


def watched_runs(
    configured: Sequence[RunSpec],
    before: Sequence[RunSpec],
    jobs: Sequence[Job],
    me: Mapping[str, str | None],
    now: Instant,
) -> tuple[RunSpec, ...]:
    """All runs now: those of the config with what their jobs say of them, then our own that were found by themselves.

    `configured` are the config's own words; `before` is the answer of the last time, whose nodes and logs hold on where
    a job has ended: the end of its log is what a person wants to read then. `me` is who we are, by cluster.
    """
    known = {(spec.name, _jobs_name(spec)): spec for spec in before}
    named = group_by(jobs, lambda job: (job.cluster, job.name))
    specs = [_without_rivals(spec, named.get(_jobs_name(spec), ())) for spec in configured]
    names = {spec.name for spec in configured}
    taken = {(*_jobs_name(spec), spec.user) for spec in configured}
    found = (
        spec
        for spec in _found(before, named, me, now)
        if not taken & {(*_jobs_name(spec), spec.user), (*_jobs_name(spec), None)}
    )
    for spec in islice(found, FOUND_AT_MOST):
        name = spec.name
        while name in names:  # a run of the config or of another cluster has this name
            name = f"{name}@{spec.cluster}"
        specs.append(replace(spec, name=name))
        names.add(name)
    return tuple(
        _filled(spec, known.get((spec.name, _jobs_name(spec))), jobs_of(spec, named.get(_jobs_name(spec), ())))
        for spec in specs
    )


def _jobs_name(spec: RunSpec) -> tuple[str, str]:
    """By what its jobs are known: their cluster and name."""
    return spec.cluster, spec.job or spec.name


def _found(
    before: Sequence[RunSpec],
    named: Mapping[tuple[str, str], Sequence[Job]],
    me: Mapping[str, str | None],
    now: Instant,
) -> Iterator[RunSpec]:
    """Those found before while something is left of them, then the names of our own batch jobs that run now. The live
    ones go first: of a sweep's many, those that ended are left out."""

    def is_kept(spec: RunSpec) -> bool:
        own = jobs_of(spec, named.get(_jobs_name(spec), ())) if spec.found else ()
        return any(job.gone_at is None or now - job.gone_at < ENDED_RUNS_STAY for job in own)

    kept = group_by(filter(is_kept, before), _jobs_name)
    ended = []
    for key in dict.fromkeys((*kept, *named)):
        jobs = named.get(key, ())
        for spec in _sharing(kept.get(key, ()), [job for job in jobs if _is_found(job, me)]):
            if present(jobs_of(spec, jobs)) is not None:
                yield replace(spec, log=None, nodes=())
            else:
                ended.append(replace(spec, log=None, nodes=()))
    yield from ended


def _is_found(job: Job, me: Mapping[str, str | None]) -> bool:
    """Whether it is a run by itself: our own batch job that runs now."""
    is_mine = bool(job.user and job.batch and job.name) and job.user == me.get(job.cluster)
    return is_mine and job.stage == "running" and job.gone_at is None


def _sharing(kept: Sequence[RunSpec], running: Sequence[Job]) -> Iterator[RunSpec]:
    """The runs of one name. Its jobs are one run, one after another; what trains beside its present one (a sweep, a
    script's default name) is a run of its own, else it would be seen by nobody."""
    whole = next((spec for spec in kept if spec.only is None), None)
    apart = {spec.only: spec for spec in kept if spec.only is not None}
    rest = [job for job in running if job.id not in apart]
    log = None if whole is None else whole.log
    rest.sort(key=lambda job: (job.stdout != log, job.started_at or 0.0, job.number))
    beside = list(dict.fromkeys(job.id for job in rest if holds_nodes(job)))[1:]
    if whole is None and rest:
        job = rest[0]
        whole = RunSpec(name=job.name, cluster=job.cluster, job=job.name, user=job.user, found=True)
    if whole is not None:
        yield replace(whole, without=(*apart, *beside))
    yield from apart.values()
    for name in beside:
        assert whole is not None
        yield replace(whole, name=f"{whole.job}#{name}", only=name, without=())


def _filled(spec: RunSpec, before: RunSpec | None, jobs: Sequence[Job]) -> RunSpec:
    """The run with the log and nodes of its running job. A log in the config wins over the job's. If none runs, the log
    of the last one shows how it ended, also after a restart of this program, and of a job that no look at the queue saw
    running."""
    job = present(jobs)
    last = next(
        (one for one in jobs if one.started_at is not None and (one.stage == "ended" or one.gone_at is not None)), None
    )
    shown = job or requeued_since(jobs, last) or last
    log = spec.log or (shown.stdout if shown is not None else None) or (before.log if before is not None else None)
    has_console = spec.wandb is not None and spec.wandb.console  # its lines come from W&B alone, and not twice
    nodes = (job.nodes if job is not None else ()) or spec.nodes or (before.nodes if before is not None else ())
    return replace(spec, log=None if has_console else log, nodes=nodes)


def requeued_since(jobs: Iterable[Job], last: Job | None) -> Job | None:
    """The job that waits and ran after the last one that ended. A requeue submits it anew."""
    ended_at = 0.0 if last is None else last.ends_at or last.gone_at or 0.0
    waiting = (one for one in jobs if one.stage == "waiting" and one.gone_at is None and one.restarts)
    return next((one for one in waiting if (one.submitted_at or 0.0) > ended_at), None)


# ---- the context of a run --------------------------------------------------------------------------------------------

PATIENCE = 10.0
"""A run is late when no step came for this many times its own usual interval, and for at least `stall_after`."""

UNUSUAL: Seconds = 120.0
"""After this long without a step, and many times the usual interval, it is late: the reason of a run that is not yet
stalled says when it is, and its last step has a colour."""

WAIT_AT_LEAST: Seconds = 120.0
"""A run hangs when all its GPUs have waited for this long: their averages are over the last minute or two …"""

WAITS = 3.0
"""… and for this many times its usual interval, and its longest such wait that ended by itself."""

BUSY: frozenset[Verdict] = frozenset({"starting", "saving", "evaluating"})
"""Of a run that makes no steps for a while, as usual."""

AFTERGLOW: Seconds = 60.0
"""A step that a log shows within this time after its job's end is still that job's."""

SKEWED: Seconds = 5.0
"""If a cluster's clock differs from ours by more than this, the scheduler's times are corrected."""


class Judgement(NamedTuple):
    verdict: Verdict
    why: str
    code: WhyCode = ""
    stop: Stop | None = None

    def also(self, text: str) -> Judgement:
        """The same verdict, with a text added to its reason."""
        return self._replace(why=self.why + text)


def stopped(stop: Stop, text: str) -> Judgement:
    """The verdict on a run that a person ended."""
    return Judgement("stopped", f"{stop.by}; {text}", stop=stop)


class RunContext(NamedTuple):
    """What is known beside the run itself, by name or key."""

    nodes: Mapping[str, Node] = {}
    sources: Mapping[str, Source] = {}
    jobs: Mapping[str, Job] = {}
    actions: Mapping[str, Record] = {}
    clusters: Mapping[str, Cluster] = {}
    last_attempts: Mapping[str, Attempt] = {}
    """The newest attempt of each run, by the name of the run."""


class Queue(NamedTuple):
    """A run's jobs in order, and the one of them that runs now."""

    jobs: tuple[Job, ...]
    present: Job | None

    @property
    def waiting(self) -> Job | None:
        return next((job for job in self.jobs if job.stage == "waiting" and job.gone_at is None), None)

    @property
    def ended(self) -> Job | None:
        """The last job that ended; None if a job that waits was requeued since: its own start was the last one."""
        last = self._ended[0] if self._ended else None
        return None if requeued_since(self.jobs, last) is not None else last

    @property
    def before(self) -> Job | None:
        """If the last ended job never began: the last job that did begin."""
        if self.ended is None or has_begun(self.ended):
            return None
        return next((job for job in self._ended if has_begun(job)), None)

    @property
    def others(self) -> str:
        """`; job 87 of this run is running, too`: two trainings at once write the same checkpoints."""
        others = (job for job in self.jobs if job.gone_at is None and job != self.present)
        running = [job for job in others if job.stage == "running" and job.state != "COMPLETING"]
        if len(running) > 1:
            return f"; {len(running)} other jobs of this run are running, too"
        return f"; job {running[0].id} of this run is running, too" if running else ""

    @property
    def _ended(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.stage == "ended" or job.gone_at is not None)


def has_begun(job: Job) -> bool:
    """Whether the job ever ran. A job that was cancelled while it waited has no nodes."""
    return job.state != "CANCELLED" or bool(job.nodes) or (job.ends_at or 0.0) > (job.started_at or 0.0) > 0.0


def queue_of(run: Run, context: RunContext) -> Queue | None:
    """The run's jobs, where its scheduler answers; None where nothing is known of them: then nothing follows."""
    if not does_answer(run, context.sources):
        return None
    skew = skew_of(None if run.log is None else run.log.host, context.nodes)
    jobs = tuple(by_our_clock(context.jobs[key], skew) for key in run.jobs if key in context.jobs)
    return Queue(jobs, present(jobs)) if jobs else None


def does_answer(run: Run, sources: Mapping[str, Source]) -> bool:
    """Whether its scheduler answers."""
    source = sources.get(f"slurm:{run.spec.cluster}")
    return source is not None and source.answered_at is not None and source.health not in ("off", "down")


def is_running(run: Run, jobs: Mapping[str, Job], sources: Mapping[str, Source]) -> bool | None:
    """Whether a job of the run runs now; None where its scheduler does not say."""
    if not run.jobs or not does_answer(run, sources):
        return None
    return present([jobs[key] for key in run.jobs if key in jobs]) is not None


def by_our_clock(job: Job, skew: Seconds) -> Job:
    """Its times by our clock: a step is no older than its job because the cluster's clock is ahead."""
    times = {
        name: our_time(getattr(job, name), skew) for name in ("submitted_at", "started_at", "starts_at", "ends_at")
    }
    return job if abs(skew) < SKEWED else replace(job, **times)


def skew_of(host: str | None, nodes: Mapping[str, Node]) -> Seconds:
    """How far the clock of a host is ahead; 0 if that is not known."""
    node = None if host is None else nodes.get(host)
    return 0.0 if node is None else node.clock_skew_s or 0.0


def our_time(at: Instant | None, skew: Seconds) -> Instant | None:
    """A time of the cluster by our clock."""
    return at if at is None else at - significant(skew)


def significant(skew: Seconds) -> Seconds:
    """How far another clock is ahead; 0 if that is little. The time that a reading travels would make a stored time
    another one at each start of a program."""
    return skew if abs(skew) >= SKEWED else 0.0


def is_trained_elsewhere(run: Run, context: RunContext) -> bool:
    """Whether the run continues although its jobs have ended: by hand, or under another job name."""
    queue = queue_of(run, context)
    return queue is not None and queue.present is None and steps_after(run, queue)


def is_new_attempt(run: Run, job: Job | None) -> bool:
    """Whether the job began after the last known step."""
    return job is not None and job.started_at is not None and (run.progress.at or 0.0) < job.started_at


def has_reached_target(run: Run) -> bool:
    """Whether its log shows the target step. Whether and how it has ended then is another question."""
    return run.target_step is not None and (run.progress.step or 0) >= run.target_step > 0


def steps_after(run: Run, queue: Queue) -> bool:
    """Whether steps came after its last job ended: then something else trains it, and the queue is no witness."""
    at = None if queue.ended is None else queue.ended.ends_at or queue.ended.gone_at
    if at is None or run.progress.at is None:
        return False
    return run.progress.at > at + max(AFTERGLOW, 3 * (run.progress.cadence_s or 0.0))


def patience(run: Run) -> Seconds:
    """How long the run may make no step before it counts as silent."""
    cadence, memory = run.progress.cadence_s or 0.0, run.memory
    latest = max(run.spec.stall_after, PATIENCE * cadence)
    return min(latest, max(WAIT_AT_LEAST, WAITS * max(cadence, memory.waited_s))) if memory.hangs else latest


def is_late(run: Run, now: Instant, least: Seconds = UNUSUAL) -> bool:
    """Whether its next step is late, although it may still be healthy."""
    return run.progress.at is not None and now - run.progress.at > max(
        least, PATIENCE * (run.progress.cadence_s or 0.0)
    )


def position(run: Run, context: RunContext) -> str:
    """Where it stands: as long as nothing of it runs, and nobody knows better how it ended, this stays the same."""
    job = context.jobs.get(run.jobs[0]) if run.jobs else None
    began = None if run.log is None else run.log.began_at
    return f"{run.progress.step} " + (f"log {began}" if job is None else f"{job.key} {job.started_at} {job.state}")


def where(progress: Progress) -> str:
    """How far it is; some trainers print no step, but an epoch that grows."""
    if progress.step is None:
        return "no step yet" if progress.epoch is None else f"epoch {progress.epoch:.2f}"
    return f"step {progress.step:,}"


def no_slurm_answer(run: Run, context: RunContext, now: Instant) -> str:
    """`no data from Slurm for 20m`; nothing while it answers, and nothing without Slurm, or for a process that was
    found on its own."""
    source = context.sources.get(f"slurm:{run.spec.cluster}")
    cluster = context.clusters.get(run.spec.cluster)
    # There may be no squeue, although the config needs it.
    has_slurm = run.spec.process is None and (cluster is None or cluster.has_slurm is not False)
    if source is None or not has_slurm or source.health == "off" or does_answer(run, context.sources):
        return ""
    return f"no data from Slurm {elapsed(source.answered_at, now)}"


def state_of(job: Job, sources: Mapping[str, Source], now: Instant) -> str:
    """`job 88 is RUNNING`; while Slurm does not answer, that it was when it last did."""
    source = sources.get(f"slurm:{job.cluster}")
    if source is None or source.health == "ok":
        return f"job {job.id} is {job.state}"
    return f"job {job.id} was {job.state} {ago(now - source.answered_at) + ' ago' if source.answered_at else 'before'}"


def missing_job(run: Run, context: RunContext, now: Instant) -> str:
    """What its scheduler says where it lists no job of it, or says nothing."""
    if silence := no_slurm_answer(run, context, now):
        return f"; {silence}" if run.jobs or run.spec.job else ""
    return (
        "" if run.jobs or not does_answer(run, context.sources) else f"; Slurm lists no job {run.spec.job or run.name}"
    )


# ---- runs that are found without a scheduler -------------------------------------------------------------------------

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
