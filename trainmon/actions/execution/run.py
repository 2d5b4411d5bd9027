"""Runs one action on its host: its command, or the script that creates or removes its switch file."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from trainmon.actions.execution import switch_files
from trainmon.lib import CommandFailed, HostUnreachable, Seconds, clean, scrub
from trainmon.model import Action, CreateFile, Execute, Job, Status
from trainmon.slurm import commands
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.slurm.parse_jobs import read_job
from trainmon.transport.shell import Shell

COMMAND_TIMEOUT: Seconds = 25.0
SUBMIT_TIMEOUT: Seconds = 60.0
"""A login shell reads the profile, and sbatch waits where the controller is busy."""

TAIL_TIMEOUT: Seconds = 10.0
TAIL = 262_144
"""Bytes of a log's end that are kept: some thousand lines, the traceback and what led to it."""

LOG_TAIL = (
    'is() { stat "$@" 2>/dev/null; }; p=$2; case "$p" in /*) ;; *) p=./$p;; esac; ls -dL "$p" >/dev/null || exit 1; '
    'owners=; links=0; while [ -L "$p" ] && [ $((links += 1)) -le 40 ]; do '
    'owners="$owners $(is -c %u "$p" || echo unknown)"; t=$(readlink "$p"); '
    'case "$t" in /*) p=$t;; *) p=${p%/*}/$t;; esac; done; '
    '[ -f "$p" ] || { echo "$(is -L -c %F "$p") instead of a file" >&2; exit 1; }; '
    """exec 3<"$p"; opened=$(is -L -c '%d %i %u' /dev/fd/3); """
    """[ "$opened" = "$(is -c '%d %i %u' "$p")" ] || { echo "another file has just come there" >&2; exit 1; }; """
    'for owner in $owners; do case " 0 $(id -u) ${opened##* } " in *" $owner "*) ;; '
    '*) echo "a symbolic link of another user, not of the owner of the file" >&2; exit 1;; esac; done; '
    'exec tail -c "$1" <&3'
)
"""Follows symbolic links by the rule of the probe (`open_linked`), and reads the file that it has judged."""

SUBMITTED = re.compile(r"Submitted batch job (\d+)")

NOT_STARTED = re.compile(
    r"unable to contact|connect failure|connection refused|cannot be started|no session|: closed$", re.IGNORECASE
)
"""Errors after which it is certain that nothing was done: the controller was not reached, or no command ran."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an action's command."""

    status: Status
    message: str
    made: str | None = None
    """The number of the submitted job."""
    detail: Job | None = None
    """The job after the action, where the queue does not show what has changed."""


def execute(action: Action, shell: Shell, slurm: Client) -> Outcome:
    """Run an action once. If it is not known whether it happened, the status is `unknown`."""
    operation = action.operation
    if isinstance(operation, Execute):
        return _run_command(action, operation, slurm)
    path = operation.path
    if isinstance(operation, CreateFile):
        argv, result_of = switch_files.create(path, operation.text, action.id), switch_files.create_result
    else:
        argv, result_of = switch_files.remove(path, operation.mark), switch_files.remove_result
    try:
        result = result_of(path, shell.run(argv, timeout=switch_files.TIMEOUT))
    except CommandFailed as error:
        if NOT_STARTED.search(error.message):
            return Outcome("failed", f"nothing was done: {error.message}")
        why = f"{error.message}: the filesystem of {clean(path)} may hang"
    except HostUnreachable as error:
        why = error.message
    else:
        return Outcome("done" if result.done else "failed", result.message)
    return Outcome("unknown", f"it is not known whether it was done: {why}")


def _run_command(action: Action, command: Execute, slurm: Client) -> Outcome:
    timeout = SUBMIT_TIMEOUT if command.login_shell else COMMAND_TIMEOUT
    try:
        output = slurm.run(command.argv, timeout, login_shell=command.login_shell)
    except SlurmFailed as failure:
        if failure.kind == "silent" and not NOT_STARTED.search(f"{failure.message} {failure.stderr}"):
            return Outcome("unknown", f"it is not known whether it was done: {failure.message}")
        return Outcome("failed", f"nothing was done: {failure.message}")
    submitted = SUBMITTED.search(output) if command.login_shell else None
    if submitted is not None:
        return Outcome("done", f"submitted as job {submitted[1]}", made=submitted[1])
    detail = None
    if action.expected.excluded is not None and action.expected.id is not None:
        try:
            text = slurm.run(commands.show_job(action.expected.id.partition("_[")[0]), COMMAND_TIMEOUT)
        except SlurmFailed:
            text = ""
        detail = next((job for job in read_job(text, action.cluster) if job.key == action.job), None)
    last = clean(output.strip().rpartition("\n")[2], 300)
    return Outcome(
        "done", scrub(last) or f"{shlex.join(command.argv[:2])} ended without an error message", detail=detail
    )


def log_tail(shell: Shell, path: str) -> str:
    """The end of a log, without secrets and unprintable characters.

    Raises:
        TrainmonError: when the log cannot be read.
    """
    answer = shell.run(("sh", "-c", LOG_TAIL, "trainmon-tui", str(TAIL), path), timeout=TAIL_TIMEOUT)
    if answer.status != 0:
        last = answer.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = clean(last.rpartition(": ")[2], 300) or f"tail ended with status {answer.status}"
        raise CommandFailed(f"{clean(path)}: {why}")
    lines = answer.stdout.decode("utf-8", "replace").split("\n")
    if len(answer.stdout) == TAIL:
        lines = lines[1:]
    return "\n".join(scrub(clean(line)) for line in lines)
