"""What a plan or an action needs of a host: its reads, its command, and the POSIX sh scripts of a switch file.

Paths and texts go in as arguments, never into a script. The scripts are one line each: csh cannot quote more.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict, replace

from trainmon.actions.planning import LEDGER, FileStat, Readback, ReadRequest, reads_for_plan
from trainmon.analysis.attempts import config_digest
from trainmon.lib import Clock, CommandFailed, HostUnreachable, Seconds, TrainmonError, clean, last_line, scrub
from trainmon.model import DANGLING, Action, ActionRequest, CreateFile, Execute, Job, Record, State, Status, armed_by
from trainmon.slurm import commands
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.slurm.parse import read_job, read_nodes, read_queue, read_steps
from trainmon.transport.files import read_range
from trainmon.transport.shell import Completed, Shell

# ---- switch files, by POSIX sh, with a message for each kind of failure ----------------------------------------------

TIMEOUT: Seconds = 10.0
"""A mount that hangs does not answer at all."""

LATEST_CREATE_S = 20
"""Seconds after which a script that hung creates nothing. A switch must not appear when a dead mount comes back hours
later: it would end a run that nobody wants to end then."""

THERE, ABSENT, EXISTS, DIRECTORY, CHANGED, TOO_LATE, DANGLING_LINK = 40, 41, 42, 43, 44, 45, 46
SHOWN = 500
"""Bytes of a file that are read."""

_BEGIN = (
    'LC_ALL=C; export LC_ALL; p=$1; case "$p" in -*) p=./$p;; esac; '
    'case "$p" in */*) d=${p%/*}/;; *) d=./;; esac; '
    """mark() { stat -c '%i %s %Y %h %F/%U' "$p"; }; """
    # sh cannot open with O_NOFOLLOW. The opened file must be the one with that name, which is no link and has no other.
    """what() { stat "$@" -c '%h %F %d %i' 2>/dev/null; }; """
    'show() { mark; if [ -f "$p" ] && [ ! -L "$p" ]; then { case "$(what -L /dev/fd/3)" in "$(what "$p")") '
    f'case "$(what "$p")" in "1 regular"*) head -c {SHOWN} <&3;; esac;; esac; }} 2>/dev/null 3<"$p"; fi; }}; '
)

STAT = _BEGIN + (
    f'if [ -e "$p" ]; then show; exit {THERE}; fi; '
    f'ls -d "$d." >/dev/null || exit 1; '
    # Only ls reports why: no such file, or a parent directory without search permission.
    'w=$(ls -dL "$p" 2>&1 >/dev/null); case "$w" in '
    '*"No such file or directory"|*"Not a directory"|*"symbolic links"|*"link loop") '
    f'if [ -L "$p" ]; then readlink "$p"; exit {DANGLING_LINK}; fi; exit {ABSENT};; esac; '
    "printf '%s\\n' \"$w\" >&2; exit 1"
)

CREATE = _BEGIN + (
    "umask 002; began=$(date +%s); t=${d}.trainmon-tui-$3; made=; "
    """trap '[ -z "$made" ] || rm -f "$t"' EXIT; trap 'exit 1' HUP INT TERM PIPE; """
    'ls -d "$d." >/dev/null || exit 1; '
    f'if [ -d "$p" ]; then exit {DIRECTORY}; fi; '
    f'if [ -e "$p" ] || [ -L "$p" ]; then show; exit {EXISTS}; fi; '
    'set -C; true >"$t" || exit 1; made=1; set +C; '
    # cat, and not the shell's own printf, which says "I/O error" of a full disk too.
    'printf \'%s\\n\' "$2" | cat >>"$t" || exit 1; chmod 664 "$t" || exit 1; '
    f"if [ $(($(date +%s) - began)) -gt {LATEST_CREATE_S} ]; then exit {TOO_LATE}; fi; "
    'if ln "$t" "$p" 2>/dev/null; then exit 0; fi; '
    # After a repeated request the server reports that the file exists: it is ours.
    'if [ "$p" -ef "$t" ]; then exit 0; fi; '
    f'if [ -e "$p" ] || [ -L "$p" ]; then show; exit {EXISTS}; fi; '
    # No hard links there: created under its own name, never over another; half a line may be seen for a moment.
    'set -C; true >"$p" || exit 1; set +C; '
    'if printf \'%s\\n\' "$2" | cat >>"$p" && chmod 664 "$p"; then exit 0; fi; rm -f "$p"; exit 1'
)

REMOVE = _BEGIN + (
    f'if [ -d "$p" ] && [ ! -L "$p" ]; then exit {DIRECTORY}; fi; '
    f'if [ -e "$p" ] || [ -L "$p" ]; then :; else ls -d "$d." >/dev/null || exit 1; exit {ABSENT}; fi; '
    f'if [ -n "$2" ] && [ "$(mark)" != "$2" ]; then show; exit {CHANGED}; fi; '
    f'rm -f "$p" || exit 1'
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an action's command, or of the script that creates or removes its file."""

    status: Status
    message: str
    made: str | None = None
    """The number of the submitted job."""
    detail: Job | None = None
    """The job after the action, where the queue does not show what has changed."""


def stat(path: str) -> tuple[str, ...]:
    """argv that reads it; `parse_stat` reads the answer."""
    return ("sh", "-c", STAT, "trainmon-tui", path)


def create(path: str, text: str, unique: str) -> tuple[str, ...]:
    """argv that creates it with one line of text, atomically; `unique` names its temporary file."""
    return ("sh", "-c", CREATE, "trainmon-tui", path, text, unique)


def remove(path: str, mark: str) -> tuple[str, ...]:
    """argv that removes it if it is still the file with that mark. An empty mark removes any file."""
    return ("sh", "-c", REMOVE, "trainmon-tui", path, mark)


def parse_stat(path: str, answer: Completed) -> FileStat:
    """The result of stat()."""
    if answer.status == THERE:
        mark, _, rest = answer.stdout.decode("utf-8", "replace").partition("\n")
        fields, _, owner = mark.partition("/")
        _, _, changed_at, links, kind = (fields.split(" ", 4) + [""] * 5)[:5]
        is_read, other = changed_at.isdigit(), _other_kind(kind, links, rest)
        lines = [f"{other}: its text is not read"] if other else rest.splitlines()
        return FileStat(
            path=path,
            exists=True,
            mark=mark if is_read else "",
            armed_at=float(changed_at) if is_read else None,
            by=clean(armed_by(owner, other), 150) if is_read else None,
            why=clean(rest.partition("\n")[0], SHOWN),
            content=tuple(clean(line, SHOWN) for line in lines),
        )
    if answer.status == DANGLING_LINK:
        target = clean(answer.stdout.decode("utf-8", "replace").strip(), 300)
        return FileStat(path=path, exists=False, error=f"{DANGLING} to {target}: it does not arm the switch")
    if answer.status == ABSENT:
        return FileStat(path=path, exists=False)
    return FileStat(path=path, error=failure(path, answer))


def _other_kind(kind: str, links: str, text: str) -> str:
    """What it is, if it is no file with one link whose text was read; as the probe says it."""
    if not kind.startswith("regular"):
        return kind and f"a {KINDS.get(kind, kind)}"
    if links != "1":
        return "a hard link"
    return "an unreadable file" if kind == "regular file" and not text else ""


KINDS = {"fifo": "FIFO", "character special file": "device", "block special file": "device"}


def create_result(path: str, answer: Completed) -> Outcome:
    """The result of create()."""
    texts = {
        0: "is there",
        EXISTS: f"exists already{_signature(path, answer)}: it was not changed",
        TOO_LATE: f"was not created: its filesystem took longer than {LATEST_CREATE_S}s to answer",
    }
    return _result(path, answer, texts, {0}, "created")


def remove_result(path: str, answer: Completed) -> Outcome:
    """The result of remove(). A file that is gone already counts as removed."""
    texts = {
        0: "is removed",
        ABSENT: "was gone already",
        CHANGED: f"is no longer the file that was shown{_signature(path, answer)}: it was not removed",
    }
    return _result(path, answer, texts, {0, ABSENT}, "removed")


def _result(path: str, answer: Completed, texts: Mapping[int, str], done: Container[int], verb: str) -> Outcome:
    text = texts.get(answer.status) or f"was not {verb}: {failure(path, answer)}"
    return Outcome("done" if answer.status in done else "failed", f"{clean(path)} {text}")


def _signature(path: str, answer: Completed) -> str:
    """The owner of the file that is there, and its first line."""
    found = parse_stat(path, Completed(THERE, answer.stdout, b""))
    by = f", by {found.by}" if found.by else ""
    return f"{by}: “{found.why}”" if found.why else by


CAUSES: dict[str, str] = {
    "No such file or directory": "its directory is missing",
    "Directory nonexistent": "its directory is missing",
    "nonexistent directory": "its directory is missing",
    "Not a directory": "its parent is not a directory",
    "Permission denied": "no permission in its directory",
    "Operation not permitted": "it is not permitted (another's file in a directory with the sticky bit, or immutable)",
    "Read-only file system": "its filesystem is read-only",
    "No space left on device": "no space is left on its filesystem, or no inodes (df -h, df -i)",
    "Disk quota exceeded": "the disk quota is used up",
    "Input/output error": "its filesystem gives I/O errors",
    "I/O error": "its filesystem gives I/O errors",
    "Stale file handle": "its directory was removed or remounted on the server (stale file handle)",
    "Transport endpoint is not connected": "its filesystem has lost its server",
    "Host is down": "the server of its filesystem is down",
    "Connection timed out": "the server of its filesystem does not answer",
    "File name too long": "its name is too long for its filesystem",
    "Too many levels of symbolic links": "its path is a loop of symbolic links",
    "File too large": "the session's limit allows no file of that size",
    "Is a directory": "it is a directory",
}
"""Endings of error messages in the C locale (strerror's and dash's own), and the causes."""


def failure(path: str, answer: Completed) -> str:
    """The cause of a failed script, from the end of its last error line."""
    if answer.status == DIRECTORY:
        return "it is a directory"
    complaint = last_line(answer.stderr, 400)
    for ending, cause in CAUSES.items():
        if complaint.endswith(ending):
            return cause
    if answer.status == 127 or answer.status < 0:
        return f"no POSIX shell ran there ({complaint or answer.status})"
    return complaint or f"the shell on the host ended with status {answer.status}"


# ---- runs one action on its host -------------------------------------------------------------------------------------

COMMAND_TIMEOUT: Seconds = 25.0
SUBMIT_TIMEOUT: Seconds = 60.0
"""A login shell reads the profile, and sbatch waits where the controller is busy."""

TAIL = 262_144
"""Bytes of a log's end that are kept: some thousand lines, the traceback and what led to it."""

SUBMITTED = re.compile(r"Submitted batch job (\d+)")

NOT_STARTED = re.compile(
    r"unable to contact|connect failure|connection refused|cannot be started|no session|: closed$", re.IGNORECASE
)
"""Errors after which it is certain that nothing was done: the controller was not reached, or no command ran."""


def execute(action: Action, shell: Shell, slurm: Client) -> Outcome:
    """Run an action once. If it is not known whether it happened, the status is `unknown`."""
    operation = action.operation
    if isinstance(operation, Execute):
        return _run_command(action, operation, slurm)
    path = operation.path
    if isinstance(operation, CreateFile):
        argv, result_of = create(path, operation.text, action.id), create_result
    else:
        argv, result_of = remove(path, operation.mark), remove_result
    try:
        return result_of(path, shell.run(argv, timeout=TIMEOUT))
    except CommandFailed as error:
        if NOT_STARTED.search(error.message):
            return Outcome("failed", f"nothing was done: {error.message}")
        why = f"{error.message}: the filesystem of {clean(path)} may hang"
    except HostUnreachable as error:
        why = error.message
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
    data = read_range(shell, path, -TAIL).data
    lines = data.decode("utf-8", "replace").split("\n")
    if len(data) == TAIL:
        lines = lines[1:]
    return "\n".join(scrub(clean(line)) for line in lines)


# ---- reads what a plan or an action needs on its hosts ---------------------------------------------------------------

PREFLIGHT_TIMEOUT: Seconds = 8.0
"""The time for all reads: a plan is shown within 10 s, with what is known by then."""

SWITCH_PREFLIGHT_TIMEOUT: Seconds = 3.0
"""The same for an action that needs no scheduler: a kill switch does not wait for a Slurm that hangs."""


class PreflightView:
    """Reads on one host, in a limited time. What cannot be read becomes a sentence in Readback.errors."""

    def __init__(
        self, host: str, shell: Shell, slurm: Client, clock: Clock, seconds: Seconds = PREFLIGHT_TIMEOUT
    ) -> None:
        self._host = host
        self._shell = shell
        self._slurm = slurm
        self._clock = clock
        self._until = clock.monotonic() + seconds
        self._silent: dict[str, str] = {}
        """Clusters that did not answer, and the error: they are not queried again."""
        self.readback = Readback(at=clock.now())

    def for_plan(self, request: ActionRequest, state: State, reads: Sequence[ReadRequest]) -> Readback:
        """Read what a plan needs of this host: `reads`, and the jobs that only the queue shows."""
        for read in reads:
            self._queue(read)
        if self.readback.jobs:
            reads = [read for read in reads_for_plan(request, state, self.readback) if read.host == self._host]
        for read in reads:
            self._read(read)
        for read in reads:  # last: a plugin of sbatch that hangs takes the time that is left
            self._start(read)
        return self.readback

    def for_action(self, read: ReadRequest) -> Readback:
        """Read what the check before an action needs."""
        self._queue(read)
        self._read(read)
        return self.readback

    def _read(self, read: ReadRequest) -> None:
        for path in read.switches:
            self._switch(f"{read.host}:{path}", path)
        for key, number in read.jobs:
            text = self._query(read.cluster, commands.show_job(number), key, may_be_gone=True)
            if text is not None:
                shown = {job.key: replace(job, detail_at=self.readback.at) for job in read_job(text, read.cluster)}
                self._add(jobs=shown)
                if key not in shown:
                    self._gone(key)
        for key, steps, number in read.steps:
            if key not in self.readback.gone and key not in self.readback.errors:
                text = self._query(read.cluster, commands.steps(steps), key)
                if text is not None:
                    self._add(steps={key: read_steps(text)})
            text = self._query(read.cluster, commands.batch_script(number), f"{key} script")
            if text is not None:  # that of another user's job, Slurm may not show
                self._add(scripts={key: text})
        for path in read.configs:
            self._config(f"{read.host}:{path}", path)
        keys = {name: f"{read.cluster}/{name}" for name in read.nodes}
        text = self._query(read.cluster, commands.nodes(read.nodes), *keys.values()) if keys else None
        if text is not None:
            listed = {node.name: node for node in read_nodes(text, read.cluster) if node.name in keys}
            self._add(nodes=listed, gone=frozenset(key for name, key in keys.items() if name not in listed))

    def _start(self, read: ReadRequest) -> None:
        if read.start is not None:
            key, number, argv = read.start
            script = self._query(read.cluster, commands.batch_script(number), key) if number else ""
            text = None if script is None else self._query(read.cluster, argv, key, stdin=script.encode())
            self._add(starts={} if text is None else {key: text})

    def _add(self, **parts: Any) -> None:
        self.readback = merged(self.readback, Readback(**parts))

    def _left(self) -> Seconds:
        return max(0.5, self._until - self._clock.monotonic())

    def _query(
        self, cluster: str, argv: tuple[str, ...], *keys: str, may_be_gone: bool = False, stdin: bytes = b""
    ) -> str | None:
        """The output of a Slurm command; None after a failure, which is kept under the keys."""
        error = self._silent.get(cluster)
        if error is None:
            try:
                return self._slurm.run(argv, self._left(), stdin=stdin)
            except SlurmFailed as failure:
                error = failure.message
                if failure.kind in ("silent", "absent"):
                    self._silent[cluster] = error
                elif failure.kind == "gone" and may_be_gone:
                    self._gone(keys[0])
                    return None
        self._add(errors=dict.fromkeys(keys, error))
        return None

    def _queue(self, read: ReadRequest) -> None:
        text = None if read.users is None else self._query(read.cluster, commands.queue(read.users), read.cluster)
        if text is not None:
            self._add(jobs={job.key: job for job in read_queue(text, read.cluster)})

    def _gone(self, key: str) -> None:
        left = {other: job for other, job in self.readback.jobs.items() if other != key}
        self.readback = replace(self.readback, jobs=left, gone=self.readback.gone | {key})

    def _switch(self, location: str, path: str) -> None:
        if location in self.readback.switches or location in self.readback.errors:
            return
        try:
            found = parse_stat(path, self._shell.run(stat(path), timeout=self._left()))
        except TrainmonError as error:
            self._add(errors={location: error.message})
            return
        self._add(switches={location: found}, errors={location: found.error} if found.error is not None else {})

    def _config(self, location: str, path: str) -> None:
        try:
            answer = self._shell.run(("sh", "-c", READ_CONFIG, "trainmon-tui", path), timeout=self._left())
            found = digest_of_config(path, self._host, answer)
        except TrainmonError as error:
            self._add(errors={location: error.message})
        else:
            self._add(configs={location: found})


def with_evaluations(readback: Readback, read: Callable[[], Mapping[str, Record]] | None) -> Readback:
    """The readback with what the ledger tells of evaluators; None: there is no ledger."""
    try:
        return readback if read is None else replace(readback, evaluations=read())
    except TrainmonError as error:
        return replace(readback, errors={**readback.errors, LEDGER: str(error)})


def unreadable(reads: Iterable[ReadRequest], why: str) -> Readback:
    """A Readback in which nothing of these reads could be read."""
    keys = (
        key
        for read in reads
        for key in (
            *(f"{read.host}:{path}" for path in (*read.switches, *read.configs)),
            *(key for key, *_ in (*read.jobs, *read.steps)),
            *(f"{read.cluster}/{name}" for name in read.nodes),
            *((read.cluster,) if read.users is not None else ()),
            *(read.start[:1] if read.start is not None else ()),
        )
    )
    return Readback(errors=dict.fromkeys(keys, why))


def merged(one: Readback, other: Readback) -> Readback:
    """What was read on two hosts."""
    first, second = asdict(one), asdict(other)
    at = max(first.pop("at"), second.pop("at"))
    return Readback(at=at, **{name: part | second[name] for name, part in first.items()})


# ---- reads the config file of a run as it is now ---------------------------------------------------------------------

MAX_TEXT = 32 << 10
"""As much as the probe reads when an attempt begins. Of a longer file only the SHA-256 is compared."""

READ_CONFIG = f'[ -f "$1" ] || {{ echo "no such file" >&2; exit 1; }}; sha256sum <"$1" && head -c {MAX_TEXT + 1} <"$1"'


def digest_of_config(path: str, host: str, answer: Completed) -> str:
    """The hash of the config, as attempts have it.

    Raises:
        CommandFailed: when the file could not be read.
    """
    if answer.status != 0:
        raise CommandFailed(f"{path} on {host}: {last_line(answer.stderr, 200) or 'it cannot be read'}")
    line, _, content = answer.stdout.partition(b"\n")
    text = content.decode("utf-8", "replace")
    is_whole = len(content) <= MAX_TEXT and "\ufffd" not in text
    return config_digest(path, line.split()[0].decode(), text if is_whole else None)
