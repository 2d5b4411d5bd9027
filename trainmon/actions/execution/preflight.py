"""Reads what a plan or an action needs on its hosts: the queue, some jobs, their steps, nodes, switch files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from trainmon.actions.execution import operations
from trainmon.actions.planning import LEDGER, Readback, ReadRequest, reads_for_plan
from trainmon.analysis.attempts import config_digest
from trainmon.lib import Clock, CommandFailed, Seconds, TrainmonError, clean
from trainmon.model import ActionRequest, Record, State
from trainmon.slurm import commands
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.slurm.parse_jobs import read_job, read_queue, read_steps
from trainmon.slurm.reasons import read_nodes
from trainmon.transport.shell import Completed, Shell

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
        for key, number in read.steps:
            if key not in self.readback.gone and key not in self.readback.errors:
                text = self._query(read.cluster, commands.steps(number), key)
                if text is not None:
                    self._add(steps={key: read_steps(text)})
        for key, number in read.scripts:  # of a job of another user, Slurm may not show it
            text = self._query(read.cluster, commands.batch_script(number), f"{key} script")
            if text is not None:
                self._add(scripts={key: text})
        for path in read.configs:
            self._config(f"{read.host}:{path}", path)
        keys = {name: f"{read.cluster}/{name}" for name in read.nodes}
        text = self._query(read.cluster, commands.nodes(read.nodes), *keys.values()) if keys else None
        if text is not None:
            listed = {node.name: node for node in read_nodes(text, read.cluster) if node.name in keys}
            self._add(nodes=listed, gone=frozenset(key for name, key in keys.items() if name not in listed))

    def _add(self, **parts: Any) -> None:
        known = asdict(self.readback)
        self.readback = replace(self.readback, **{name: known[name] | part for name, part in parts.items()})

    def _left(self) -> Seconds:
        return max(0.5, self._until - self._clock.monotonic())

    def _query(self, cluster: str, argv: tuple[str, ...], *keys: str, may_be_gone: bool = False) -> str | None:
        """The output of a Slurm command; None after a failure, which is kept under the keys."""
        error = self._silent.get(cluster)
        if error is None:
            try:
                return self._slurm.run(argv, self._left())
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
            stat = operations.parse_stat(path, self._shell.run(operations.stat(path), timeout=self._left()))
        except TrainmonError as error:
            self._add(errors={location: error.message})
            return
        self._add(switches={location: stat}, errors={location: stat.error} if stat.error is not None else {})

    def _config(self, location: str, path: str) -> None:
        try:
            found = digest_of_config(path, self._host, self._shell.run(read_config(path), timeout=self._left()))
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
            *(key for key, _ in (*read.jobs, *read.steps)),
            *(f"{read.cluster}/{name}" for name in read.nodes),
            *((read.cluster,) if read.users is not None else ()),
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


def read_config(path: str) -> tuple[str, ...]:
    """argv that reads it; `digest_of_config` reads the answer."""
    return ("sh", "-c", READ_CONFIG, "trainmon-tui", path)


def digest_of_config(path: str, host: str, answer: Completed) -> str:
    """The hash of the config, as attempts have it.

    Raises:
        CommandFailed: when the file could not be read.
    """
    if answer.status != 0:
        said = answer.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise CommandFailed(f"{path} on {host}: {clean(said, 200) or 'it cannot be read'}")
    line, _, content = answer.stdout.partition(b"\n")
    text = content.decode("utf-8", "replace")
    is_whole = len(content) <= MAX_TEXT and "\ufffd" not in text
    return config_digest(path, line.split()[0].decode(), text if is_whole else None)
