"""Runs Slurm's commands over a Shell, with fixed language, time and output formats whatever the login sets."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError, clean
from trainmon.slurm import errors
from trainmon.transport.shell import Completed, Shell

TIMEOUT: Seconds = 25.0
"""A controller with a rate limit makes a command sleep and retry: seconds are normal, minutes are not."""

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

SET = ("LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=standard", "SQUEUE_ARRAY_UNIQUE=1", "SLURM_BITSTR_LEN=0")
"""The last two: an element that was requeued keeps a row of its own (else it vanishes into that of the elements which
never ran), and the array tasks are written out, and not cut after 64 characters."""

ENVIRONMENT = ("env", *(part for name in CLEARED for part in ("-u", name)), *SET)

LOOK_UP = 'printf "\\n%s\\n%s\\n" "$(command -v "$1")" "$SLURM_CONF"'


class SlurmFailed(TrainmonError):
    """A Slurm command failed or did not answer."""

    def __init__(self, message: str, *, hint: str = "", kind: errors.Kind, stderr: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.stderr = stderr


class Client:
    """The Slurm client of one host."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._directory = ""
        self._conf: tuple[str, ...] = ()
        self._looked_up = False
        self._names: dict[str, str] = {}

    def run(self, argv: Sequence[str], timeout: Seconds = TIMEOUT, *, login_shell: bool = False) -> str:
        """The output of a command. With `login_shell` it has the unchanged environment of a login, which sbatch passes
        on to its job.

        Raises: SlurmFailed: when the command fails or does not answer."""
        done = self._run(argv, timeout, login_shell=login_shell)
        if self._is_lost(done) and not login_shell and self._look_up(argv[0], timeout):
            done = self._run(argv, timeout)
        if done.status != 0 or (argv[0] == "squeue" and errors.has_complained(_said(done))):
            raise self._failure(argv, done)
        return done.stdout.decode("utf-8", "replace")

    def me(self, timeout: Seconds = TIMEOUT) -> str:
        """Our user name there."""
        return _last_line(self.run(("id", "-un"), timeout))

    def user_name(self, number: str, timeout: Seconds = TIMEOUT) -> str:
        """The name of a user by number, as sacct writes it; the number where nobody knows it."""
        if number not in self._names:
            try:
                self._names[number] = _last_line(self.run(("id", "-un", "--", number), timeout)) or number
            except SlurmFailed as failure:
                if failure.kind == "silent":
                    return number
                self._names[number] = number
        return self._names[number]

    def _run(self, argv: Sequence[str], timeout: Seconds, *, login_shell: bool = False) -> Completed:
        name = f"{self._directory}{argv[0]}" if self._directory and argv[0] != "id" else argv[0]
        line = (*ENVIRONMENT, *self._conf, name, *argv[1:])
        if login_shell:
            line = ("bash", "-lc", 'exec "$@"', "bash", *argv)
        try:
            return self.shell.run(line, timeout=timeout)
        except CommandFailed as failure:
            words = failure.message.replace(": env ", f": {argv[0]} ", 1)
            raise SlurmFailed(words, hint=failure.hint, kind="silent", stderr=failure.message) from failure
        except HostUnreachable as failure:
            raise SlurmFailed(failure.message, hint=failure.hint, kind="silent") from failure

    @staticmethod
    def _is_lost(done: Completed) -> bool:
        """Whether the command or its configuration was not found: a login's environment may know them."""
        unset = done.status != 0 and errors.is_without_configuration(_said(done))
        return done.status == errors.NOT_FOUND or unset

    def _look_up(self, name: str, timeout: Seconds) -> bool:
        """Find the command in a login shell, once: other shells have not read the profile."""
        if self._looked_up:
            return False
        try:
            done = self.shell.run(("bash", "-lc", LOOK_UP, "bash", name), timeout=timeout)
        except TrainmonError:
            return False
        self._looked_up = True
        said = done.stdout.decode("utf-8", "replace").split("\n")
        path, conf = (said[-3], said[-2]) if len(said) >= 3 else ("", "")
        if not path.startswith("/"):  # a function or an alias is of no use either
            return False
        self._directory = path[: path.rindex("/") + 1]
        self._conf = (f"SLURM_CONF={conf}",) if conf else ()
        return True

    def _failure(self, argv: Sequence[str], done: Completed) -> SlurmFailed:
        stderr = _said(done)
        kind = errors.kind(done.status, stderr)
        words = errors.words(stderr) or f"{argv[0]} ended with status {done.status}"
        if kind == "absent":
            words = f"there is no {argv[0]} on {self.shell.host}"
        hint = "the last known data is shown" if kind == "silent" else ""
        return SlurmFailed(
            f"{self.shell.host}: {words}" if kind != "absent" else words, hint=hint, kind=kind, stderr=stderr
        )


def _last_line(text: str) -> str:
    """The last line: a login's profile may print a greeting first."""
    return clean(text.strip().rpartition("\n")[2], 100)


def _said(done: Completed) -> str:
    return done.stderr.decode("utf-8", "replace")
