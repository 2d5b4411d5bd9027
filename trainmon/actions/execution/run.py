"""Does one action on its host: runs its command, creates or removes its switch file, and says in words how it went."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from trainmon.actions.execution import switch_files
from trainmon.lib import CommandFailed, HostUnreachable, Seconds, clean, scrub
from trainmon.model import Action, CreateFile, Execute, Job, JobChanged, RemoveFile, Status
from trainmon.slurm import commands
from trainmon.slurm import parse_jobs as texts
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.transport.shell import Completed, Shell

COMMAND_TIMEOUT: Seconds = 25.0
SUBMIT_TIMEOUT: Seconds = 60.0
"""A login shell reads the profile, and sbatch waits where the controller is busy."""

TAIL_TIMEOUT: Seconds = 10.0
TAIL = 262_144
"""Bytes of a log's end that are kept: some thousand lines, the traceback and what led to it."""

SUBMITTED = re.compile(r"Submitted batch job (\d+)")

NOT_BEGUN = re.compile(
    r"unable to contact|connect failure|connection refused|cannot be started|no session|: closed$", re.IGNORECASE
)
"""The controller was not reached, or no command ran at all: then it is certain that nothing was done."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went."""

    status: Status
    words: str
    made: str | None = None
    """The number of a job that was submitted."""
    detail: Job | None = None
    """The job as the scheduler shows it after the act, where only a question tells."""

    def jobs(self, known: Mapping[str, Job]) -> Iterator[JobChanged]:
        """What the act changed of a job that the queue's own list does not show."""
        job = None if self.detail is None else known.get(self.detail.key)
        if job is not None and self.detail is not None:
            yield JobChanged(replace(texts.detailed(job, self.detail), detail_at=job.detail_at))


def do(action: Action, shell: Shell, slurm: Client) -> Outcome:
    """Do it, once. Whatever leaves it open whether it happened is `unknown`."""
    match action.operation:
        case CreateFile(path=path, text=text):
            argv = switch_files.create(path, text, action.id)
            answer = _touched(shell, argv, path)
            return answer if isinstance(answer, Outcome) else _told(switch_files.created(path, answer))
        case RemoveFile(path=path, mark=mark):
            answer = _touched(shell, switch_files.remove(path, mark), path)
            return answer if isinstance(answer, Outcome) else _told(switch_files.removed(path, answer))
        case Execute() as operation:
            return _executed(action, operation, slurm)


def _touched(shell: Shell, argv: tuple[str, ...], path: str) -> Completed | Outcome:
    try:
        return shell.run(argv, timeout=switch_files.TIMEOUT)
    except CommandFailed as error:
        if NOT_BEGUN.search(error.message):
            return Outcome("failed", f"nothing was done: {error.message}")
        why = f"{error.message}: the filesystem of {clean(path)} may hang"
    except HostUnreachable as error:
        why = error.message
    return Outcome("unknown", f"whether it was done is not known: {why}")


def _told(result: switch_files.Result) -> Outcome:
    return Outcome("done" if result.done else "failed", result.words)


def _executed(action: Action, operation: Execute, slurm: Client) -> Outcome:
    try:
        if operation.login_shell:
            said = slurm.run(operation.argv, SUBMIT_TIMEOUT, login_shell=True)
        else:
            said = slurm.run(operation.argv, COMMAND_TIMEOUT)
    except SlurmFailed as failure:
        if failure.kind == "silent" and not NOT_BEGUN.search(f"{failure.message} {failure.stderr}"):
            return Outcome("unknown", f"whether it was done is not known: {failure.message}")
        return Outcome("failed", f"nothing was done: {failure.message}")
    submitted = SUBMITTED.search(said) if action.verb == "queue" else None
    if submitted is not None:
        return Outcome("done", f"submitted as job {submitted[1]}", made=submitted[1])
    detail = _detail(action, slurm) if action.verb == "exclude" else None
    last = clean(said.strip().rpartition("\n")[2], 300)
    return Outcome("done", scrub(last) or f"{shlex.join(operation.argv[:2])} ended without a complaint", detail=detail)


def _detail(action: Action, slurm: Client) -> Job | None:
    """The job after the act: the queue's own list does not show the nodes that a job keeps off."""
    if action.job is None or action.expected.id is None:
        return None
    try:
        text = slurm.run(commands.show_job(action.expected.id.partition("_[")[0]), COMMAND_TIMEOUT)
    except SlurmFailed:
        return None
    return next((job for job in texts.read_job(text, action.cluster) if job.key == action.job), None)


def log_tail(shell: Shell, path: str) -> str:
    """The end of a log, safe to keep: no secrets, nothing that is not printable. Raises TrainmonError."""
    answer = shell.run(("tail", "-c", str(TAIL), "--", path), timeout=TAIL_TIMEOUT)
    if answer.status != 0:
        said = clean(answer.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2].rpartition(": ")[2], 300)
        raise CommandFailed(f"{clean(path)}: {said or f'tail ended with status {answer.status}'}")
    lines = answer.stdout.decode("utf-8", "replace").split("\n")
    if len(answer.stdout) == TAIL:
        lines = lines[1:]
    return "\n".join(scrub(clean(line)) for line in lines)
