"""Slurm's commands as argv. The client sets their environment (formats, times, language).

Text, never --json: JSON changed its shape with nearly every version, needs a plugin that may be absent, and
`squeue --json` ignores the filter and the format (1.26 MB in place of 200 B was measured on 23.11).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

MARK = f"|{secrets.token_hex(3)}#"
"""Before every field. It is random at each start, so no job name can contain it and forge a row."""

QUEUE = ("A", "i", "F", "K", "T", "u", "P", "a", "q", "D", "Q", "V", "S", "e", "l", "N", "E", "r", "Z", "j")
"""squeue's letters, free text last. Never C: a format with it makes the controller send every job's details."""

NODES = ("N", "T", "H", "u", "G", "R", "E")
"""sinfo's letters."""

ACCOUNTING = (
    "JobIDRaw", "JobID", "State", "ExitCode", "Submit", "Start", "End", "User", "Partition", "Account", "QOS",
    "NNodes", "NodeList",
)  # fmt: skip
"""sacct's fields; no free text among them."""


def queue(users: Sequence[str] = ()) -> tuple[str, ...]:
    """All jobs of some users, or our own where none is named; also jobs that ended in the last MinJobAge (300 s).

    The filter is a user and not a list of jobs: with one user the controller sends no other's jobs, with ids it
    sends all, and a single id that is gone is an error."""
    whose = (f"--user={','.join(users)}",) if users else ("--me",)
    return ("squeue", "--noheader", "--noconvert", *whose, "--states=all", f"--format={_format(QUEUE)}")


def show_job(job: str) -> tuple[str, ...]:
    """One job in full; for the number of an array, all of its records."""
    return ("scontrol", "show", "job", "-o", job)


def steps(job: str) -> tuple[str, ...]:
    """The steps of a job that run now."""
    return ("squeue", "--noheader", "--steps", f"--jobs={job}", f"--format={MARK}%i")


def nodes(names: Sequence[str] | None = None, partitions: Sequence[str] = ()) -> tuple[str, ...]:
    """The named nodes, or all nodes of the partitions, or all there are. The controller's work is the same."""
    which: tuple[str, ...] = ()
    if names is not None:
        which = (f"--nodes={','.join(names)}",)
    elif partitions:
        which = (f"--partition={','.join(partitions)}",)
    return ("sinfo", "--noheader", "--Node", *which, f"--format={_format(NODES)}")


def accounting(ids: Sequence[str]) -> tuple[str, ...]:
    """The final states of some jobs, with earlier attempts of requeued jobs."""
    return (
        "sacct", "--noheader", "--parsable2", "--noconvert", f"--delimiter={MARK}", "--allocations", "--duplicates",
        f"--jobs={','.join(ids)}", f"--format={','.join(ACCOUNTING)}",
    )  # fmt: skip


def version() -> tuple[str, ...]:
    return ("scontrol", "--version")


def ping() -> tuple[str, ...]:
    return ("scontrol", "ping")


def configuration() -> tuple[str, ...]:
    """Once: its version, whether it accounts, who its administrator is."""
    return ("scontrol", "show", "config")


def may_operate(user: str) -> tuple[str, ...]:
    """A user's admin level in accounting: None, Operator or Administrator."""
    return ("sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={user}", "format=AdminLevel")


# ---- acting -----------------------------------------------------------------------------------------------------


def requeue(job: str) -> tuple[str, ...]:
    """Requeue a job that runs. A plain requeue would run a COMPLETED one again."""
    return ("scontrol", "requeue", "Incomplete", job)


def cancel(job: str) -> tuple[str, ...]:
    return ("scancel", job)


def hold(job: str) -> tuple[str, ...]:
    return ("scontrol", "hold", job)


def release(job: str) -> tuple[str, ...]:
    return ("scontrol", "release", job)


def signal(job: str, name: str, *, batch: bool) -> tuple[str, ...]:
    """A signal to the batch shell alone, else to all steps and not to the batch shell."""
    return ("scancel", f"--signal={name}", *(("--batch",) if batch else ()), job)


def submit(count: int | None, after: str | None, workdir: str | None, script: str) -> tuple[str, ...]:
    """A batch script as an array whose tasks run one after another, the first after a job's end. Without a count it is
    a single job: Slurm makes no array of a heterogeneous job."""
    array = () if count is None else (f"--array=1-{count}%1",)
    options = (f"--dependency=afterany:{after}",) if after is not None else ()
    where = (f"--chdir={workdir}",) if workdir is not None else ()
    return ("sbatch", *array, *options, *where, script)


def exclude(job: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Keep a waiting job off some nodes; the list replaces the one it had."""
    return ("scontrol", "update", f"JobId={job}", f"ExcNodeList={','.join(nodes)}")


def drain(node: str, reason: str) -> tuple[str, ...]:
    """Let nothing new onto a node; what runs there goes on."""
    return ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")


def _format(letters: Sequence[str]) -> str:
    return "".join(f"{MARK}%{letter}" for letter in letters)
