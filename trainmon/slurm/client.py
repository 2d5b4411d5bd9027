"""Runs Slurm's commands over a Shell. Language, time zone and output formats are fixed, whatever the login sets."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError, clean
from trainmon.slurm import commands, errors
from trainmon.transport.shell import LOGIN_SHELL, Completed, Shell

TIMEOUT: Seconds = 25.0
"""A controller with a rate limit makes commands sleep and retry: that takes seconds, not minutes."""

CLEARED = (
    "SQUEUE_ACCOUNT", "SQUEUE_ALL", "SQUEUE_ARRAY", "SQUEUE_FEDERATION", "SQUEUE_FORMAT", "SQUEUE_FORMAT2",
    "SQUEUE_LICENSES", "SQUEUE_LOCAL", "SQUEUE_NAMES", "SQUEUE_PARTITION", "SQUEUE_PRIORITY",
    "SQUEUE_QOS", "SQUEUE_SIB", "SQUEUE_SIBLING", "SQUEUE_SORT", "SQUEUE_STATES", "SQUEUE_USERS",
    "SINFO_ALL", "SINFO_FEDERATION", "SINFO_FORMAT", "SINFO_FUTURE", "SINFO_LOCAL", "SINFO_PARTITION", "SINFO_SORT",
    "SACCT_FEDERATION", "SACCT_FORMAT", "SACCT_LOCAL",
    "SCONTROL_ALL", "SCONTROL_FEDERATION", "SCONTROL_FORMAT", "SCONTROL_FUTURE", "SCONTROL_LOCAL", "SCONTROL_SIB",
    "SCANCEL_ACCOUNT", "SCANCEL_BATCH", "SCANCEL_CRON", "SCANCEL_FULL", "SCANCEL_HURRY", "SCANCEL_INTERACTIVE",
    "SCANCEL_NAME", "SCANCEL_PARTITION", "SCANCEL_QOS", "SCANCEL_STATE", "SCANCEL_USER", "SCANCEL_VERBOSE",
    "SCANCEL_WCKEY",
    "SLURM_DEBUG_FLAGS",
)  # fmt: skip
"""Each of these changes a command's output, or what scancel does. SLURM_CONF and SLURM_CLUSTERS stay: they name the
controller."""

SET = ("LC_ALL=C", "TERM=dumb", "TZ=UTC", "SLURM_TIME_FORMAT=standard", "SQUEUE_ARRAY_UNIQUE=1", "SLURM_BITSTR_LEN=0")
"""TERM: scontrol's prompt has no control sequences.
SQUEUE_ARRAY_UNIQUE: a requeued array task keeps its own row, and does not vanish into the row of the pending tasks.
SLURM_BITSTR_LEN: the list of array tasks is not cut after 64 characters."""

ENVIRONMENT = ("env", *(part for name in CLEARED for part in ("-u", name)), *SET)

ON_A_LINE = ("sh", "-c", 'echo; exec "$@"', "sh")
"""Prints the output of a command on a line of its own: a login script may print text without a line feed before it."""

OUTSIDE_JOBS = (
    "sh", "-c",
    'for name in $(env | sed -n "s/^\\(S[LR]UR*[MN]_[A-Z0-9_]*\\)=.*/\\1/p"); do '
    'case $name in SLURM_CONF|SLURM_CLUSTERS) ;; *) unset "$name";; esac; done; exec "$@"',
    "sh",
)  # fmt: skip
"""Runs srun without the variables of a job in which this program may itself run: they are options of srun."""

FIND = 'printf "\\n%s\\n%s\\n" "$(command -v "$1")" "$SLURM_CONF"'


class SlurmFailed(TrainmonError):
    """A Slurm command failed or did not answer."""

    def __init__(self, message: str, *, hint: str = "", kind: errors.Kind, stderr: str = "", stdout: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.stderr = stderr
        self.stdout = stdout


class Client:
    """The Slurm client of one host."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._directory = ""
        self._conf: tuple[str, ...] = ()
        self._was_searched = self._has_srun = False
        self._names: dict[str, str] = {}

    def run(
        self, argv: Sequence[str], timeout: Seconds = TIMEOUT, *, stdin: bytes = b"", login_shell: bool = False
    ) -> str:
        """The output of a command. With `login_shell` it has the unchanged environment of a login, which sbatch passes
        on to its job.

        Raises:
            SlurmFailed: when the command fails or does not answer.
        """
        done = self._run(argv, timeout, stdin, login_shell=login_shell)
        is_unconfigured = done.status != 0 and errors.is_without_configuration(_stderr(done))
        if (done.status == errors.NOT_FOUND or is_unconfigured) and not login_shell and self._find(argv[0], timeout):
            done = self._run(argv, timeout, stdin)
        stdout, stderr = done.stdout.decode("utf-8", "replace"), _stderr(done)
        if done.status == 0 and not (argv[0] == "squeue" and errors.has_complained(stderr)):
            return stdout + stderr if argv[0] == "sbatch" else stdout
        kind = errors.kind(done.status, stderr)
        why = errors.message(stderr) or f"{argv[0]} ended with status {done.status}"
        absent = f"there is no {argv[0]} on {self.shell.host}"
        message = absent if kind == "absent" else f"{self.shell.host}: {why}"
        hint = "the last known data is shown" if kind == "silent" else ""
        raise SlurmFailed(message, hint=hint, kind=kind, stderr=stderr, stdout=stdout)

    def step_command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The whole argv of srun, for a stream.

        Raises:
            SlurmFailed: when there is no srun, or it does not answer.
        """
        if not self._has_srun:
            self.run((argv[0], "--version"))  # finds it
            self._has_srun = True
        return (*OUTSIDE_JOBS, *ENVIRONMENT, *self._conf, f"{self._directory}{argv[0]}", *argv[1:])

    def show_jobs(self, jobs: Sequence[str]) -> str:
        """The details of several jobs, from one process. A job that has just gone is left out.

        Raises:
            SlurmFailed: when the controller does not answer.
        """
        argv, stdin = commands.show_jobs(jobs)
        try:
            return self.run(argv, stdin=stdin)
        except SlurmFailed as failure:
            if failure.kind == "silent":
                raise
            return failure.stdout

    def me(self) -> str:
        """Our user name there."""
        return _last_line(self.run((*ON_A_LINE, "id", "-un")))

    def user_name(self, number: str) -> str:
        """The name of a user number from sacct; the number if it has no name."""
        if number not in self._names:
            try:
                self._names[number] = _last_line(self.run((*ON_A_LINE, "id", "-un", "--", number))) or number
            except SlurmFailed as failure:
                if failure.kind == "silent":
                    return number
                self._names[number] = number
        return self._names[number]

    def _run(self, argv: Sequence[str], timeout: Seconds, stdin: bytes, *, login_shell: bool = False) -> Completed:
        name = f"{self._directory}{argv[0]}" if argv[0] != ON_A_LINE[0] else argv[0]
        line = (*LOGIN_SHELL, *argv) if login_shell else (*ENVIRONMENT, *self._conf, name, *argv[1:])
        try:
            return self.shell.run(line, stdin=stdin, timeout=timeout)
        except CommandFailed as failure:
            message = failure.message.replace(": env ", f": {argv[0]} ", 1)
            raise SlurmFailed(message, hint=failure.hint, kind="silent", stderr=failure.message) from failure
        except HostUnreachable as failure:
            raise SlurmFailed(failure.message, hint=failure.hint, kind="silent") from failure

    def _find(self, name: str, timeout: Seconds) -> bool:
        """Find the command in a login shell, once: other shells do not read the profile."""
        if self._was_searched:
            return False
        try:
            done = self.shell.run(("bash", "-lc", FIND, "bash", name), timeout=timeout)
        except TrainmonError:
            return False
        self._was_searched = True
        lines = done.stdout.decode("utf-8", "replace").split("\n")
        path, conf = (lines[-3], lines[-2]) if len(lines) >= 3 else ("", "")
        if not path.startswith("/"):  # a function or an alias cannot be run
            return False
        self._directory = path[: path.rindex("/") + 1]
        self._conf = (f"SLURM_CONF={conf}",) if conf else ()
        return True


def _last_line(text: str) -> str:
    """The last line: a login's profile may print text before it."""
    return clean(text.strip().rpartition("\n")[2], 100)


def _stderr(done: Completed) -> str:
    return done.stderr.decode("utf-8", "replace")
