"""Checks a cluster's Slurm: whether it answers, the user there, and the runs' jobs, scripts and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.analysis.runs import holds_nodes, jobs_of, owner_of, parts_by_node, present
from trainmon.cli.check.output import PATH_TIMEOUT, FileTest, Row, reported, run_test
from trainmon.lib import counted
from trainmon.model import Job, JobPart, RunSpec, by_name
from trainmon.slurm import batch_script, commands, errors, parse_jobs
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.transport.shell import Shell

FIXES = {
    "munge": "check on that host that munge runs and the clock is right: munge -n | unmunge",
    "configuration": "set SLURM_CONF in your profile on that host, or fix `login` in the config",
    "silent": "run scontrol ping on that host: it shows whether slurmctld answers",
    "absent": "set `login` to a host that has Slurm's commands, or remove `users`, `spares`, `job` and `script`",
}

SCRIPTS = 20
"""Batch scripts that are read at most, each with two commands."""


class SlurmCheck(NamedTuple):
    """The checks of one cluster's Slurm."""

    cluster: str
    users: tuple[str, ...]
    spares: int
    runs: tuple[RunSpec, ...]
    required: bool
    """Whether the config needs Slurm."""
    nodes: list[str]
    """Filled with the nodes of the runs' jobs."""
    own: dict[str, JobPart]
    """Filled with the nodes of our own jobs, each with the number of a job there."""


def check_slurm(host: str, check: SlurmCheck, shell: Shell) -> Iterator[Row]:
    """The rows of one Slurm and of the runs' jobs."""
    client = Client(shell)
    try:
        me = client.me()
        users = by_name(check.users, me)
        jobs = parse_jobs.read_queue(client.run(commands.queue(users)), check.cluster)
    except SlurmFailed as failure:
        yield from _silent(host, check, failure)
        return
    # The config's `me` is the user that runs the Slurm commands there.
    runs = [replace(run, user=owner_of(run, check.users, me)) for run in check.runs]
    yield from _about(host, check._replace(users=users), client, me, jobs)
    for run in runs:
        yield from reported(host, f"run {run.name}", _run(host, run, client, jobs))
    known = {run.job or run.name for run in runs if run.user in (None, me)}
    names = dict.fromkeys(job.name for job in jobs if job.user == me and holds_nodes(job) and job.name not in known)
    if names:
        yield Row("ok", host, "runs", f"{len(names)} found in your running jobs: {', '.join(names)}")
    own = [job for job in jobs if job.user == me and job.stage != "ended"]
    for job in list({job.name: job for job in reversed(own)}.values())[:SCRIPTS]:
        yield from _signals(host, client, job)
    watched = [*(job for run in runs for job in jobs_of(run, jobs)), *(job for job in jobs if job.user == me)]
    check.own.update(parts_by_node(job for job in jobs if job.user == me))
    check.nodes.extend(node for job in watched if holds_nodes(job) for node in job.nodes)


def _silent(host: str, check: SlurmCheck, failure: SlurmFailed) -> Iterator[Row]:
    """The row of a Slurm without an answer. A host without Slurm is no problem when the config does not need it."""
    is_unconfigured = errors.is_without_configuration(failure.stderr)
    if (failure.kind == "absent" or is_unconfigured) and not check.required:
        return
    kind: str = "munge" if "munge" in failure.stderr.lower() else failure.kind
    if is_unconfigured and failure.kind != "absent":
        kind = "configuration"
    yield Row("bad", host, "Slurm", failure.message, FIXES.get(kind, failure.hint or f"try: squeue --me on {host}"))


def _about(host: str, check: SlurmCheck, client: Client, me: str, jobs: Sequence[Job]) -> Iterator[Row]:
    running = sum(job.stage == "running" for job in jobs)
    waiting = sum(job.elements for job in jobs if job.stage == "waiting")
    try:
        found = parse_jobs.read_configuration(client.run(commands.configuration()))
    except SlurmFailed as failure:
        yield Row("bad", host, "Slurm", failure.message, FIXES["silent"])
        return
    off = "off: Slurm forgets how a job ended after a few minutes (MinJobAge)"
    yield Row("ok", host, "Slurm", f"{found.version or 'unknown version'}, as user {me}")
    yield Row("ok", host, "queue", f"{running} running, {waiting} pending ({', '.join(check.users) or 'yours'})")
    yield Row("ok", host, "accounting", "on: sacct shows how jobs ended" if found.accounting else off)
    if check.spares:
        yield from reported(host, "spares", _spares(host, check, client))


def _spares(host: str, check: SlurmCheck, client: Client) -> Iterator[Row]:
    nodes = parse_jobs.read_nodes(client.run(commands.nodes()), check.cluster)
    idle = sum(node.state == "IDLE" and node.is_usable for node in nodes)
    text = f"{idle} idle of {counted(len(nodes), 'node')}, {check.spares} wanted"
    yield Row("ok" if idle >= check.spares else "note", host, "spares", text)


def _run(host: str, run: RunSpec, client: Client, jobs: Sequence[Job]) -> Iterator[Row]:
    own = [job for job in jobs_of(run, jobs) if job.stage != "ended"]
    job, what = present(own), f"run {run.name}"
    if job is not None:
        more = f", {len(own) - 1} more" if len(own) > 1 else ""
        yield Row("ok", host, what, f"job {job.id} is {job.state} on {counted(len(job.nodes), 'node')}{more}")
        if run.log is None and not (run.wandb is not None and run.wandb.console):
            yield from reported(host, "log", _output(host, client, job))
    elif own:
        yield Row("ok", host, what, f"job {own[0].id} is pending ({own[0].reason or 'no reason'})")
    else:
        name = run.job or run.name
        others = sorted({job.user for job in jobs if job.name == name and job.user != run.user})
        text, fix = f"no job named {name} is in the queue", "start the run, or fix its `job` in the config"
        if others:
            text, fix = f"no job named {name} belongs to {run.user}, but to {', '.join(others)}", "fix the run's `user`"
        yield Row("note", host, what, text, fix)
        if run.script is not None:
            script = client.shell.run(("head", "-c", "1000000", "--", run.script), timeout=PATH_TIMEOUT)
            yield from _signal(host, run.script, script.stdout.decode("utf-8", "replace"))


def _signals(host: str, client: Client, job: Job) -> Iterator[Row]:
    """Whether the signal that Slurm sends before the time limit reaches the trainer. A job of srun has no script."""
    try:
        script = client.run(commands.batch_script(str(job.number)))
        details = client.run(commands.show_job(str(job.number)))
    except SlurmFailed:
        return
    yield from _signal(host, f"job {job.id}", script, details)


def _signal(host: str, what: str, script: str, details: str = "") -> Iterator[Row]:
    found = batch_script.unheard_signal(script, details)
    if found is not None:
        yield Row("note", host, what, found.text, found.fix)


def _output(host: str, client: Client, job: Job) -> Iterator[Row]:
    """The log that is followed when the config names none: the output file of the job."""
    records = parse_jobs.read_job(client.run(commands.show_job(str(job.number))), job.cluster)
    path = next((one.stdout for one in records if one.number == job.number), None)
    if path is None:
        yield Row("note", host, "log", f"job {job.id} has no output file", "set the run's `log` in the config")
    else:
        fix = f"write its output to a disk that {host} mounts, or set the run's `log` in the config"
        check = FileTest(path, "-r", f"followed: the output of job {job.id}", "cannot be read", fix)
        yield run_test(host, client.shell, check)
