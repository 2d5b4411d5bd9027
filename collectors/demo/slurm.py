"""The demo's Slurm: a queue that submits, starts, requeues and cancels jobs, and the answers of Slurm's commands.

The queue is pure: time is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from collectors.demo.stories import GPUS, ME, NODES, Trainer
from collectors.demo.training import START_TAKES, TrainingLoop
from trainmon.lib import HOUR, Instant, Seconds, ranges
from trainmon.slurm.commands import time_text
from trainmon.transport.shell import Completed

REQUEUE_DELAY: Seconds = 12.0
"""The delay of a requeued job. A real Slurm delays it by two minutes: too long for a demo."""
NEXT_START_AFTER: Seconds = 8.0
MIN_JOB_AGE: Seconds = 300.0
"""MinJobAge: squeue lists a job this long after its end."""
RESUBMIT_AFTER: Seconds = 45.0
"""The delay before an owner submits a run again after its last job ended, so that the demo goes on."""
RESUBMIT_CANCELLED_AFTER: Seconds = 300.0
"""The same delay after a person cancelled the job."""
TIME_LIMIT: Seconds = 7 * 86_400.0


@dataclass
class SlurmJob:
    """A job, one task of an array, or all pending tasks of an array (`tasks`)."""

    number: int
    name: str
    user: str
    node_count: int
    submitted_at: Instant
    script: str
    workdir: str
    array: int | None = None
    task: int | None = None
    tasks: tuple[int, ...] = ()
    state: str = "PENDING"
    reason: str = "Priority"
    restarts: int = 0
    started_at: Instant | None = None
    begins_at: Instant | None = None
    ends_at: Instant | None = None
    after: int | None = None
    """The job or array that must end before it starts."""
    is_held: bool = False
    nodes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    exit_code: str = "0:0"
    cancelled_by: str | None = None

    @property
    def id(self) -> str:
        if self.tasks:
            tasks = (str(first) if first == last else f"{first}-{last}" for first, last in ranges(self.tasks))
            return f"{self.array}_[{','.join(tasks)}%1]"
        return str(self.number) if self.array is None else f"{self.array}_{self.task}"

    @property
    def task_ids(self) -> str:
        """Its array tasks, as squeue shows them."""
        return "N/A" if self.array is None else self.id.partition("_")[2].strip("[]")

    @property
    def dependency(self) -> str:
        is_waiting = self.reason == "Dependency" and self.after is not None
        return f"afterany:{self.after}(unfulfilled)" if is_waiting else "(null)"

    @property
    def is_pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def is_over(self) -> bool:
        return self.state not in ("PENDING", "RUNNING")


@dataclass
class DrainedNode:
    """Why and by whom a node is drained."""

    reason: str
    by: str
    at: Instant


@dataclass
class JobQueue:
    """All jobs and all drained nodes."""

    loops: dict[str, TrainingLoop]
    now: Instant
    jobs: list[SlurmJob] = field(default_factory=list)
    drains: dict[str, DrainedNode] = field(default_factory=dict)
    spares: tuple[str, ...] = ()
    blocked: frozenset[str] = frozenset()
    """Runs whose kill switch exists: they are not submitted again."""
    _number: int = 418_400

    def of(self, run: str) -> list[SlurmJob]:
        return [job for job in self.jobs if job.name == run]

    def running(self, run: str) -> SlurmJob | None:
        return next((job for job in self.of(run) if job.state == "RUNNING"), None)

    def pending(self, run: str) -> list[SlurmJob]:
        return [job for job in self.of(run) if job.is_pending]

    def find(self, text: str) -> list[SlurmJob]:
        """The jobs with this id: of a job, an array, one of its tasks, or `88_[2-4]`.

        One pending task of an array becomes a job of its own, as in a real Slurm.
        """
        text = re.sub(r"%\d+", "", text)
        if text.isdigit():
            array = [job for job in self.jobs if job.array == int(text)]
            return array or [job for job in self.jobs if job.number == int(text)]
        named = [job for job in self.jobs if job.id.replace("%1", "") == text]
        array_id, _, task = text.partition("_")
        if named or not task.isdigit():
            return named
        return [
            self._detach(job, int(task))
            for job in list(self.jobs)
            if str(job.array) == array_id and int(task) in job.tasks
        ]

    def _detach(self, job: SlurmJob, task: int) -> SlurmJob:
        job.tasks = tuple(other for other in job.tasks if other != task)
        if not job.tasks:
            job.task = task
            return job
        self.jobs.append(replace(job, number=self._next_number(), task=task, tasks=()))
        return self.jobs[-1]

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # ---- commands ---------------------------------------------------------------------------------------------------

    def submit(self, run: str, count: int, after: int | None) -> SlurmJob:
        """Submit an array for a run. Its tasks run one after another."""
        number = self._next_number()
        job = job_of(self.loops[run].trainer, number, self.now, array=number, tasks=tuple(range(1, 1 + count)))
        job.after = after
        self.jobs.append(job)
        return job

    def requeue(self, job: SlurmJob) -> None:
        """Requeue a running job. A job that has ended stays as it is: `Incomplete` means that."""
        if job.state != "RUNNING":
            return
        self._kill(job, "DUE TO JOB REQUEUE", REQUEUE_DELAY)
        job.state, job.reason, job.restarts = "PENDING", "BeginTime", job.restarts + 1
        job.submitted_at, job.begins_at = self.now, self.now + REQUEUE_DELAY
        job.started_at, job.ends_at, job.nodes = None, None, ()

    def cancel(self, job: SlurmJob) -> None:
        if job.is_over:
            return
        if job.state == "RUNNING":
            self._kill(job, f"CANCELLED AT {iso_time(self.now)}", NEXT_START_AFTER)
        self._finish(job, "CANCELLED", "0:15" if job.started_at else "0:0")
        job.cancelled_by = ME

    def _kill(self, job: SlurmJob, why: str, wait: Seconds) -> None:
        loop = self.loops.get(job.name)
        if loop is not None and job.nodes:
            loop.kill(f"slurmstepd: error: *** JOB {job.number} ON {job.nodes[0]} {why} ***\n", wait)

    # ---- scheduling -------------------------------------------------------------------------------------------------

    def ended(self, run: str, exit_code: int) -> None:
        """Complete or fail the job of a run whose processes ended by themselves."""
        job = self.running(run)
        if job is not None:
            self._finish(job, "FAILED" if exit_code else "COMPLETED", f"{exit_code}:0")

    def start(self, run: str, at: Instant) -> tuple[int, int] | None:
        """Start the next job of a run, if one can start. Returns its number and its restart count."""
        for pending in sorted(self.pending(run), key=lambda job: (not job.restarts, job.number)):
            if pending.is_held or (pending.begins_at or 0.0) > at or self._has_dependency(pending):
                continue
            nodes = self._allocate(pending)
            if nodes is not None:
                job = self._detach(pending, pending.tasks[0]) if pending.tasks else pending
                job.state, job.reason, job.nodes = "RUNNING", "None", nodes
                job.started_at, job.begins_at, job.ends_at = at, None, at + TIME_LIMIT
                return job.number, job.restarts
        return None

    def _allocate(self, job: SlurmJob) -> tuple[str, ...] | None:
        """Allocate the run's nodes, with spares in place of excluded ones. None: a node is drained; the job waits."""
        loop = self.loops[job.name]
        unusable = {*self.drains, *job.excluded}
        free = [node for node in self.spares if node not in unusable]
        before = loop.trainer.run.nodes
        nodes = tuple(free.pop(0) if node in job.excluded and free else node for node in before)
        if not unusable.isdisjoint(nodes):
            return None
        self.spares = tuple(sorted({*self.spares, *before} - set(nodes)))
        run = msgspec.structs.replace(loop.trainer.run, nodes=nodes)
        loop.trainer = msgspec.structs.replace(loop.trainer, run=run)
        return nodes

    def _has_dependency(self, job: SlurmJob) -> bool:
        return job.after is not None and any(
            other is not job and job.after in (other.number, other.array) and not other.is_over for other in self.jobs
        )

    def advance(self, now: Instant) -> None:
        """Let time pass: update reasons, remove old jobs, submit ended runs again."""
        self.now = now
        for job in self.jobs:
            if job.is_pending and job.name in self.loops:
                job.reason = self._reason(job)
        for run, loop in self.loops.items():
            is_idle = not self.pending(run) and self.running(run) is None
            if loop.phase == "finished":
                for job in self.pending(run):
                    self._finish(job, "CANCELLED", "0:0")
            elif loop.phase == "down" and is_idle and run not in self.blocked:
                last = max(self.of(run), key=lambda job: job.ends_at or 0.0, default=None)
                wait = RESUBMIT_CANCELLED_AFTER if last is not None and last.cancelled_by else RESUBMIT_AFTER
                if last is None or now - (last.ends_at or 0.0) >= wait:
                    self.submit(run, 4, None)
        for job in [job for job in self.jobs if job.is_over][:-200]:
            self.jobs.remove(job)

    def _reason(self, job: SlurmJob) -> str:
        if job.is_held:
            return "JobHeldUser"
        if job.begins_at is not None and job.begins_at > self.now:
            return "BeginTime"
        if self._has_dependency(job):
            return "Dependency"
        if self.running(job.name) is not None:
            return "JobArrayTaskLimit"
        bad = [node for node in self.loops[job.name].trainer.run.nodes if node in self.drains]
        if bad and not set(bad) <= set(job.excluded):
            return f"ReqNodeNotAvail, UnavailableNodes:{','.join(bad)}"
        return "Resources"

    def listed(self) -> list[SlurmJob]:
        """The jobs that squeue lists: pending, running and recently ended."""
        return [job for job in self.jobs if not job.is_over or self.now - (job.ends_at or 0.0) < MIN_JOB_AGE]

    def _finish(self, job: SlurmJob, state: str, exit_code: str) -> None:
        job.state, job.exit_code, job.ends_at = state, exit_code, self.now
        job.reason = "NonZeroExitCode" if state == "FAILED" else "None"


def job_of(trainer: Trainer, number: int, at: Instant, **more: object) -> SlurmJob:
    """A job of a run, submitted by its owner."""
    script = trainer.run.script or ""
    return SlurmJob(
        number, trainer.run.name, trainer.user, len(trainer.run.nodes), at, script, script.rpartition("/")[0],
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def iso_time(at: Instant | None) -> str:
    return "Unknown" if at is None else time_text(at)


BEHIND: dict[str, tuple[int | None, int]] = {
    "video-2b": (None, 4),
    "llm-7b": (3, 7),
    "sft-chat": (None, 0),
    "smol-3b": (None, 2),
    "moe-1b": (7, 5),
}
"""Per run: the index of its running array task (None: a single job), and the number of array tasks that wait."""


def initial_queue(loops: Mapping[str, TrainingLoop], now: Instant) -> JobQueue:
    """The queue at the start of the demo."""
    queue = JobQueue(dict(loops), now, spares=tuple(NODES[-1:]))
    for name, loop in loops.items():
        task, behind = BEHIND[name]
        trainer, number = loop.trainer, loop.trainer.job
        array = number - task if task is not None else None
        started = now - trainer.age - START_TAKES
        queue.jobs.append(job_of(
            trainer, number, started, array=array, task=task, state="RUNNING", reason="None", restarts=number % 3,
            started_at=started, ends_at=started + TIME_LIMIT, nodes=trainer.run.nodes,
        ))  # fmt: skip
        if behind and array is not None and task is not None:
            tasks = tuple(range(task + 1, task + 1 + behind))
            queue.jobs.append(job_of(trainer, array, started, array=array, tasks=tasks))
        elif behind:
            queue.jobs.append(job_of(
                trainer, number + 1, started, array=number + 1, tasks=tuple(range(1, 1 + behind)), after=number,
                reason="Dependency",
            ))  # fmt: skip
    queue.jobs += [
        SlurmJob(
            418_352, "diffusion-9b", "lea", 8, now - 2 * HOUR, "/home/lea/train.sh", "/home/lea",
            begins_at=now + 3 * HOUR, reason="Priority",
        ),
        SlurmJob(
            418_360, "eval-sweep", ME, 1, now - HOUR, "/home/ana/eval.sh", "/home/ana", array=418_360,
            tasks=tuple(range(1, 21)), is_held=True, reason="JobHeldUser",
        ),
        *(
            SlurmJob(
                418_040 - 7 * hours, name, user, nodes, now - (hours + 5) * HOUR, f"/home/{user}/{name}.sh",
                f"/home/{user}", state=state, started_at=now - (hours + 4) * HOUR, ends_at=now - hours * HOUR,
                nodes=NODES[:nodes], exit_code=code, cancelled_by=user if state == "CANCELLED" else None,
            )
            for hours, name, user, nodes, state, code in ENDED
        ),
    ]  # fmt: skip
    return queue


ENDED = (
    (1, "eval-sweep", "ana", 1, "COMPLETED", "0:0"), (3, "tokenize", "ben", 2, "FAILED", "1:0"),
    (5, "ablation", "kim", 1, "CANCELLED", "0:15"), (20, "distill", "eva", 1, "TIMEOUT", "0:0"),
    (44, "diffusion-9b", "lea", 8, "NODE_FAIL", "0:0"),
)  # fmt: skip
"""Jobs that ended before the demo began: how many hours ago, and how."""

FIELD = re.compile(r"(\|[0-9a-f]*#)%?(\w+)")
CONFIGURATION = """\
AccountingStorageType   = accounting_storage/slurmdbd
SlurmUser               = slurm(64030)
SLURM_VERSION           = 24.05.4
"""
USERS = ("ana", "ben", "eva", "kim", "lea")


SPRIO = """\
          JOBID PARTITION     USER   PRIORITY       SITE        AGE  FAIRSHARE    JOBSIZE  PARTITION        QOS
         418360 h100           ana      10040          0         40       9000          0          0       1000
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={0.name} --nodes={0.node_count} --gres=gpu:h100:8 --requeue
#SBATCH --output={0.workdir}/logs/%A_%x.out

srun trainmon-run -- python train.py
"""


class CommandRefused(Exception):
    """A refused command. It exits with 1; the message is its standard error."""


class Scheduler:
    """Answers commands. Not thread-safe: the caller holds the world's lock."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue
        self.commands: dict[str, Callable[[Sequence[str]], str]] = {
            "squeue": self._squeue,
            "sinfo": self._sinfo,
            "scontrol": self._scontrol,
            "scancel": self._scancel,
            "sbatch": self._sbatch,
            "sacct": self._sacct,
            "sprio": lambda args: SPRIO,
            "sacctmgr": lambda args: "Operator\n",
            "id": lambda args: f"{ME}\n" if args == ["-un"] else f"{args[-1]}\n",
        }

    def answer(self, argv: Sequence[str], stdin: bytes = b"") -> Completed:
        """Run one command."""
        command, *args = argv
        if args == ["-o", "-d"]:  # scontrol reads its commands from standard input
            each = [self.answer((command, *line.split())) for line in stdin.decode().splitlines()]
            return Completed(
                max(done.status for done in each),
                b"".join(done.stdout for done in each),
                b"".join(done.stderr for done in each),
            )
        try:
            return Completed(0, self.commands[command](args).encode(), b"")
        except CommandRefused as refused:
            return Completed(1, b"", f"{refused}\n".encode())

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _squeue(self, args: Sequence[str]) -> str:
        options = _options(args)
        if "--steps" in options:
            jobs = [job for job in self._found(options["--jobs"]) if job.state == "RUNNING"]
            mark = options["--format"].partition("%")[0]
            return "".join(f"{mark}{job.id}.{step}\n" for job in jobs for step in ("batch", "0"))
        users = options.get("--user", ME).split(",")
        rows = []
        for job in (job for job in self.queue.listed() if job.user in users):
            start = job.begins_at if job.is_pending else job.started_at
            rows.append({
                "A": str(job.number), "i": job.id, "F": str(job.array or job.number), "K": job.task_ids,
                "T": job.state, "u": job.user, "P": "h100", "a": "llm", "q": "normal", "D": str(job.node_count),
                "Q": "0" if job.is_held else "10040", "V": iso_time(job.submitted_at),
                "S": "N/A" if start is None else iso_time(start),
                "e": "N/A" if job.is_pending else iso_time(job.ends_at),
                "l": "7-00:00:00", "N": fold_nodes(job.nodes), "E": job.dependency,
                "r": job.reason, "Z": job.workdir, "j": job.name,
            })  # fmt: skip
        return _formatted(options, rows)

    def _sinfo(self, args: Sequence[str]) -> str:
        rows = []
        for name in NODES:
            is_busy = any(name in job.nodes for job in self.queue.jobs if job.state == "RUNNING")
            drain = self.queue.drains.get(name)
            state = ("draining" if is_busy else "drained") if drain else "allocated" if is_busy else "idle"
            rows.append({
                "N": name, "T": state, "H": iso_time(drain.at) if drain else "Unknown",
                "u": drain.by if drain else "Unknown", "G": f"gpu:h100:{GPUS}", "R": "h100",
                "E": drain.reason if drain else "none",
            })  # fmt: skip
        return _formatted(_options(args), rows)

    def _scontrol(self, args: Sequence[str]) -> str:
        match list(args):
            case ["show", "config"]:
                return CONFIGURATION
            case ["write", "batch_script", job_id, "-"]:
                return "".join(SCRIPT.format(job) for job in self._found(job_id))
            case ["show", "job", "-o", job_id] | ["show", "job", job_id]:
                return "".join(self._shown(job) for job in self._found(job_id, "slurm_load_jobs error: "))
            case ["requeue", "Incomplete", job_id]:
                for job in self._found(job_id, suffix=f" for job {job_id}"):
                    if job.is_pending:
                        raise CommandRefused(f"Job is pending execution for job {job_id}")
                    self.queue.requeue(job)
                return ""
            case ["hold" | "release" as verb, job_id]:
                for job in self._found(job_id):
                    job.is_held = verb == "hold"
                self.queue.advance(self.queue.now)
                return ""
            case ["update", target, *changes]:
                return self._update(target, dict(change.partition("=")[::2] for change in changes))
        raise CommandRefused(f"invalid keyword: {' '.join(args)[:80]}")

    def _shown(self, job: SlurmJob) -> str:
        array = f"ArrayJobId={job.array} ArrayTaskId={job.task_ids} ArrayTaskThrottle=1 " if job.array else ""
        start, end = (job.begins_at, None) if job.is_pending else (job.started_at, job.ends_at)
        out = f"{job.workdir}/logs/{4294967294 if job.tasks else job.number}_{job.name}.out"
        return (
            f"JobId={job.number} {array}JobName={job.name} UserId={job.user}(1001) GroupId=llm(100) MCS_label=N/A"
            f" Priority={0 if job.is_held else 10040} Nice=0 Account=llm QOS=normal JobState={job.state}"
            f" Reason={job.reason} Dependency={job.dependency} Requeue=1 Restarts={job.restarts}"
            f" BatchFlag=1 Reboot=0 ExitCode={job.exit_code} RunTime=00:00:00 TimeLimit=7-00:00:00 TimeMin=N/A"
            f" SubmitTime={iso_time(job.submitted_at)} StartTime={iso_time(start)} EndTime={iso_time(end)}"
            f" Deadline=N/A Partition=h100 AllocNode:Sid=login1:4711 ReqNodeList=(null)"
            f" ExcNodeList={fold_nodes(job.excluded) or '(null)'} NodeList={fold_nodes(job.nodes)}"
            f" NumNodes={job.node_count} AllocTRES={_resources(job)}{_indices(job)} Command={job.script}"
            f" WorkDir={job.workdir} StdErr={out} StdIn=/dev/null StdOut={out}\n"
        )

    def _sacct(self, args: Sequence[str]) -> str:
        options, lines = _options(args), []
        numbers = options["--jobs"].split(",") if "--jobs" in options else []
        start, end = options.get("--starttime", ""), options.get("--endtime", "")
        in_period = (job for job in self.queue.jobs if job.is_over and start <= iso_time(job.ends_at) < end)
        for job in (*(found for job_id in numbers for found in self.queue.find(job_id)), *in_period):
            values = {
                "JobIDRaw": str(job.number), "JobID": job.id,
                "State": f"{job.state} by {job.cancelled_by}" if job.cancelled_by else job.state,
                "ExitCode": job.exit_code, "Submit": iso_time(job.submitted_at), "Start": iso_time(job.started_at),
                "End": iso_time(job.ends_at) if job.is_over else "Unknown", "User": job.user, "Partition": "h100",
                "Account": "llm", "QOS": "normal", "NNodes": str(job.node_count),
                "NodeList": fold_nodes(job.nodes), "AllocTRES": _resources(job), "JobName": job.name,
            }  # fmt: skip
            lines.append(options["--delimiter"].join(values[name] for name in options["--format"].split(",")) + "\n")
        return "".join(lines)

    # ---- changing ---------------------------------------------------------------------------------------------------

    def _scancel(self, args: Sequence[str]) -> str:
        signal = _options(args).get("--signal")
        for job in self._found(args[-1], f"scancel: error: Kill job error on job id {args[-1]}: "):
            if signal is None or (signal != "USR1" and job.state == "RUNNING"):
                self.queue.cancel(job)
            elif job.name in self.queue.loops and job.state == "RUNNING":
                self.queue.loops[job.name].signal()
        return ""

    def _sbatch(self, args: Sequence[str]) -> str:
        options, script = _options(args), args[-1]
        if "--test-only" in options:  # it does not plan ahead
            return ""
        run = next((name for name, loop in self.queue.loops.items() if loop.trainer.run.script == script), None)
        if run is None or not Path(script).is_file():
            raise CommandRefused(f"sbatch: error: Unable to open file {script}")
        count = re.fullmatch(r"1-(\d+)%1", options.get("--array", "1-1%1"))
        after = re.fullmatch(r"afterany:(\d+)(?:_\S+)?", options.get("--dependency", ""))
        if count is None:
            raise CommandRefused("sbatch: error: Invalid job array specification")
        job = self.queue.submit(run, int(count[1]), int(after[1]) if after else None)
        job.user = ME
        return f"Submitted batch job {job.number}\n"

    def _update(self, target: str, changes: Mapping[str, str]) -> str:
        kind, _, name = target.partition("=")
        if kind == "JobId":
            for job in self._found(name, suffix=f" for job {name}"):
                job.excluded = tuple(node for node in changes.get("ExcNodeList", "").split(",") if node)
        elif name not in NODES:
            raise CommandRefused("slurm_update error: Invalid node name specified")
        elif changes.get("State") == "DRAIN":
            self.queue.drains[name] = DrainedNode(changes.get("Reason", ""), ME, self.queue.now)
        else:
            self.queue.drains.pop(name, None)
        return ""

    def _found(self, job_id: str, prefix: str = "", suffix: str = "") -> list[SlurmJob]:
        jobs = [job for job in self.queue.find(job_id) if job in self.queue.listed()]
        if not jobs:
            raise CommandRefused(f"{prefix}Invalid job id specified{suffix}")
        return jobs


def _resources(job: SlurmJob) -> str:
    """What is allocated to a job: its nodes are its own."""
    return f"node={len(job.nodes)},gres/gpu={GPUS * len(job.nodes)}" if job.nodes else ""


def _indices(job: SlurmJob) -> str:
    """Which GPUs it holds, as `scontrol -d` shows them."""
    return f" Nodes={fold_nodes(job.nodes)} CPU_IDs=0-111 Mem=0 GRES=gpu:h100:{GPUS}(IDX:0-{GPUS - 1})" * bool(
        job.nodes
    )


def _options(args: Sequence[str]) -> dict[str, str]:
    return dict(arg.partition("=")[::2] for arg in args if arg.startswith("-"))


def _formatted(options: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> str:
    """Rows in the --format of squeue or sinfo: each field by its letter."""
    fields = FIELD.findall(options["--format"])
    return "".join("".join(f"{mark}{row[letter]}" for mark, letter in fields) + "\n" for row in rows)


def fold_nodes(nodes: Sequence[str]) -> str:
    """gpu-001, gpu-002 → `gpu-[001,002]`."""
    return "".join(nodes) if len(nodes) < 2 else f"gpu-[{','.join(node.rpartition('-')[2] for node in nodes)}]"
