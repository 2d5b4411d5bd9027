"""Slurm's commands as argv. The client sets their environment (formats, times, language).

Text, never --json: JSON changed its shape with nearly every version, needs a plugin that may be absent, and
`squeue --json` ignores the filter and the format (1.26 MB in place of 200 B was measured on 23.11).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from trainmon.lib import Instant
from trainmon.model import Job, JobPart

MARK = f"|{secrets.token_hex(3)}#"
"""Before every field. It is random at each start, so no job name can forge a row."""

QUEUE = ("A", "i", "F", "K", "T", "u", "P", "a", "q", "D", "Q", "V", "S", "e", "l", "N", "E", "r", "Z", "j")
"""squeue's letters, free text last. Never C: a format with it makes the controller send every job's details."""

NODES = ("N", "T", "H", "u", "G", "R", "E")
"""sinfo's letters."""

ACCOUNTING = (
    "JobIDRaw", "JobID", "State", "ExitCode", "Submit", "Start", "End", "User", "Partition", "Account", "QOS",
    "NNodes", "NodeList",
)  # fmt: skip
"""sacct's fields; no free text among them."""

HISTORY = (*ACCOUNTING, "AllocTRES", "JobName")
"""The same with what no longer is in the queue; free text last."""


def queue(users: Sequence[str] = ()) -> tuple[str, ...]:
    """The jobs of some users, by default our own; also jobs that ended in the last MinJobAge (300 s).

    The filter is users, not jobs: with one user the controller sends only that user's jobs. With ids it sends all jobs,
    and one unknown id is an error."""
    users_option = (f"--user={','.join(users)}",) if users else ("--me",)
    return ("squeue", "--noheader", "--noconvert", *users_option, "--states=all", f"--format={_format(QUEUE)}")


def show_job(job: str) -> tuple[str, ...]:
    """The details of one job; for an array, all of its records."""
    return ("scontrol", "show", "job", "-o", job)


def show_jobs(jobs: Sequence[str]) -> tuple[tuple[str, ...], bytes]:
    """The details of several jobs from one process, and what it reads on standard input. scontrol takes only one job as
    an argument; without one, the controller sends everybody's jobs. `-d` adds which GPUs each holds."""
    return ("scontrol", "-o", "-d"), "".join(f"show job {job}\n" for job in jobs).encode()


def batch_script(job: str) -> tuple[str, ...]:
    """The batch script of a job of our own, as Slurm keeps it."""
    return ("scontrol", "write", "batch_script", job, "-")


OWN_STEP = "trainmon"
"""The name of the steps of a job in which probes run."""


def own_step(
    part: JobPart, nodes: Sequence[str], argv: Sequence[str], *, gpus: bool = False, label: bool = False
) -> tuple[str, ...]:
    """Run a command once on each of these nodes of a running job, as a step that takes nothing from the job's other
    steps. With `gpus` it sees the GPUs of the job. `--overlap` needs Slurm 20.11."""
    count, component = len(nodes), part.component
    of_component = () if component is None else (f"--het-group={component}",)
    return (
        "srun", f"--jobid={part.job}", *of_component, "--overlap",
        f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1",
        f"--nodelist={','.join(nodes)}", "--mem=0", *(() if gpus else ("--gres=none",)),
        *(("--label",) if label else ()), f"--job-name={OWN_STEP}", "--mpi=none", "--kill-on-bad-exit=0", "--wait=0",
        "--chdir=/", *argv,
    )  # fmt: skip


def steps(job: str) -> tuple[str, ...]:
    """The running steps of a job, with their names."""
    return ("squeue", "--noheader", "--steps", f"--jobs={job}", f"--format={MARK}%i|%j")


def nodes(names: Sequence[str] | None = None, partitions: Sequence[str] = ()) -> tuple[str, ...]:
    """The named nodes, or all nodes of the partitions, or all nodes. The controller's work is the same."""
    which = (f"--partition={','.join(partitions)}",) if partitions else ()
    if names is not None:
        which = (f"--nodes={','.join(names)}",)
    return ("sinfo", "--noheader", "--Node", *which, f"--format={_format(NODES)}")


def accounting(ids: Sequence[str], fields: Sequence[str] = ACCOUNTING) -> tuple[str, ...]:
    """The final states of some jobs, with the earlier attempts of requeued ones."""
    return (
        "sacct", "--noheader", "--parsable2", "--noconvert", f"--delimiter={MARK}", "--allocations", "--duplicates",
        f"--jobs={','.join(ids)}", f"--format={','.join(fields)}",
    )  # fmt: skip


def time_text(at: Instant) -> str:
    """As Slurm reads and writes a time: 2026-11-21T12:03:00. The client sets the time zone to UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def jobs_between(start: Instant, end: Instant, users: Sequence[str] = ()) -> tuple[str, ...]:
    """The numbers of the jobs of some users, by default our own, that ran in a period."""
    of_users = (f"--user={','.join(users)}",) if users else ()
    return (
        "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--starttime={time_text(start)}",
        f"--endtime={time_text(end)}", *of_users, "--format=JobIDRaw",
    )  # fmt: skip


ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,TO"
"""The states of jobs that have ended (sacct(1), JOB STATE CODES)."""


def ended_jobs(start: Instant, end: Instant, users: Sequence[str]) -> tuple[str, ...]:
    """The last attempts of the jobs of some users that ended in a period."""
    return (
        "sacct", "--noheader", "--parsable2", "--noconvert", f"--delimiter={MARK}", "--allocations", f"--state={ENDED}",
        f"--starttime={time_text(start)}", f"--endtime={time_text(end)}", f"--user={','.join(users)}",
        f"--format={','.join(HISTORY)}",
    )  # fmt: skip


def priority(job: str) -> tuple[str, ...]:
    """The parts of the priority of a pending job, with their names; an error without the multifactor plugin."""
    return ("sprio", "--long", f"--jobs={job}")


def configuration() -> tuple[str, ...]:
    """The configuration, with the version, the accounting and the administrator."""
    return ("scontrol", "show", "config")


def may_operate(user: str) -> tuple[str, ...]:
    """A user's admin level in accounting: None, Operator or Administrator."""
    return ("sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={user}", "format=AdminLevel")


# ---- acting -----------------------------------------------------------------------------------------------------


def requeue(job: str) -> tuple[str, ...]:
    """Requeue a running job. A plain requeue would run a COMPLETED job again."""
    return ("scontrol", "requeue", "Incomplete", job)


def requeue_ended(job: str) -> tuple[str, ...]:
    """Requeue a job that has failed, as long as Slurm remembers it (MinJobAge)."""
    return ("scontrol", "requeue", job)


def cancel(job: str) -> tuple[str, ...]:
    return ("scancel", job)


def hold(job: str) -> tuple[str, ...]:
    return ("scontrol", "hold", job)


def release(job: str) -> tuple[str, ...]:
    return ("scontrol", "release", job)


def signal(job: str, name: str, *, batch: bool) -> tuple[str, ...]:
    """Send a signal to the batch shell only, or to all steps without the batch shell."""
    return ("scancel", f"--signal={name}", *(("--batch",) if batch else ()), job)


def submit(
    count: int | None, after: str | None, workdir: str | None, script: str, excluded: Sequence[str] = ()
) -> tuple[str, ...]:
    """Submit a batch script as an array whose tasks run one after another, the first one after a job's end. Without a
    count it is a single job: a heterogeneous job cannot be an array. `excluded` replaces the nodes that the script
    excludes."""
    array = () if count is None else (f"--array=1-{count}%1",)
    options = (f"--dependency=afterany:{after}",) if after is not None else ()
    where = (f"--chdir={workdir}",) if workdir is not None else ()
    off = (f"--exclude={','.join(excluded)}",) if excluded else ()
    return ("sbatch", *array, *options, *where, *off, script)


def test_only(job: Job | None, script: str | None, excluded: Sequence[str]) -> tuple[str, ...]:
    """Ask when and where a batch script would start, which submits nothing. Without its path it is on standard input;
    then `job` has what its submission may have set beside it. The answer is on standard error."""
    known = (
        ("partition", job and job.partition), ("account", job and job.account), ("qos", job and job.qos),
        ("nodes", job and job.node_count), ("exclude", ",".join(excluded)),
    )  # fmt: skip
    return ("sbatch", "--test-only", *(f"--{name}={value}" for name, value in known if value), *filter(None, (script,)))


def exclude(job: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Exclude nodes from a pending job; the list replaces its earlier one."""
    return ("scontrol", "update", f"JobId={job}", f"ExcNodeList={','.join(nodes)}")


def drain(node: str, reason: str) -> tuple[str, ...]:
    """Start no new jobs on a node; running jobs continue."""
    return ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")


def _format(letters: Sequence[str]) -> str:
    return "".join(f"{MARK}%{letter}" for letter in letters)
