"""What is read on one host just before a plan or an act: its queue, some jobs, their steps, switch files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec.structs import replace

from trainmon.actions.execution import switch_files
from trainmon.actions.planning import LookAt, Readback
from trainmon.actions.planning import plan as actions
from trainmon.lib import Clock, Seconds, TrainmonError
from trainmon.model import ActionRequest, State
from trainmon.slurm import commands
from trainmon.slurm import parse_jobs as texts
from trainmon.slurm.client import SlurmFailed
from trainmon.transport.shell import Shell

LOOK_FOR: Seconds = 8.0
"""For all of it: a plan is shown within 10 s, with what is known by then."""

GLANCE: Seconds = 3.0
"""Where what is done needs no scheduler: a kill switch does not wait long for one that hangs."""


class Scheduler(Protocol):
    """What is needed of a slurm_client.Client."""

    def run(self, argv: tuple[str, ...], timeout: Seconds) -> str: ...


class PreflightView:
    """One look around on one host, in a limited time. What cannot be read becomes a sentence in Fresh.errors."""

    def __init__(self, host: str, shell: Shell, slurm: Scheduler, clock: Clock, seconds: Seconds = LOOK_FOR) -> None:
        self._host = host
        self._shell = shell
        self._slurm = slurm
        self._clock = clock
        self._until = clock.monotonic() + seconds
        self._silent: dict[str, str] = {}
        """Clusters that did not answer: they are not asked a second time."""
        self.fresh = Readback(at=clock.now())

    def for_plan(self, ask: ActionRequest, state: State) -> Readback:
        """All that a plan needs of this host: the queue first, as it says which jobs are meant."""
        for look in self._here(actions.looks(ask, state, self.fresh)):
            self._queue(look)
        return self.all_of(self._here(actions.looks(ask, state, self.fresh)))

    def all_of(self, looks: Iterable[LookAt]) -> Readback:
        """The jobs, steps and switch files that are named."""
        for look in looks:
            for path in look.switches:
                self._switch(look.host, path)
            for key, number in look.jobs:
                self._job(look.cluster, key, number)
            for key, number in look.steps:
                self._steps(look.cluster, key, number)
            self._nodes(look.cluster, look.nodes)
        return self.fresh

    def for_act(self, look: LookAt) -> Readback:
        """What the check before an act needs."""
        self._queue(look)
        return self.all_of([look])

    def _here(self, looks: Iterable[LookAt]) -> tuple[LookAt, ...]:
        return tuple(look for look in looks if look.host == self._host)

    def _left(self) -> Seconds:
        return max(0.5, self._until - self._clock.monotonic())

    def _ask(self, cluster: str, argv: tuple[str, ...]) -> str:
        if cluster in self._silent:
            raise SlurmFailed(self._silent[cluster], kind="silent")
        try:
            return self._slurm.run(argv, self._left())
        except SlurmFailed as failure:
            if failure.kind in ("silent", "absent"):
                self._silent[cluster] = failure.message
            raise

    def _queue(self, look: LookAt) -> None:
        if look.users is None:
            return
        try:
            text = self._ask(look.cluster, commands.queue(look.users))
        except SlurmFailed as failure:
            self._cannot(look.cluster, failure)
            return
        listed = {job.key: job for job in texts.read_queue(text, look.cluster)}
        self.fresh = replace(self.fresh, jobs={**self.fresh.jobs, **listed})

    def _job(self, cluster: str, key: str, number: str) -> None:
        try:
            text = self._ask(cluster, commands.show_job(number))
        except SlurmFailed as failure:
            if failure.kind == "gone":
                self._gone(key)
            else:
                self._cannot(key, failure)
            return
        shown = {job.key: replace(job, detail_at=self.fresh.at) for job in texts.read_job(text, cluster)}
        self.fresh = replace(self.fresh, jobs={**self.fresh.jobs, **shown})
        if key not in shown:
            self._gone(key)

    def _gone(self, key: str) -> None:
        left = {other: job for other, job in self.fresh.jobs.items() if other != key}
        self.fresh = replace(self.fresh, jobs=left, gone=self.fresh.gone | {key})

    def _steps(self, cluster: str, key: str, number: str) -> None:
        if key in self.fresh.gone or key in self.fresh.errors:
            return
        try:
            steps = texts.read_steps(self._ask(cluster, commands.steps(number)))
        except SlurmFailed as failure:
            self._cannot(key, failure)
            return
        self.fresh = replace(self.fresh, steps={**self.fresh.steps, key: steps})

    def _nodes(self, cluster: str, names: tuple[str, ...]) -> None:
        if not names:
            return
        keys = {name: f"{cluster}/{name}" for name in names}
        try:
            text = self._ask(cluster, commands.nodes(names))
        except SlurmFailed as failure:
            for key in keys.values():
                self._cannot(key, failure)
            return
        seen = {node.name: node for node in texts.read_nodes(text, cluster) if node.name in keys}
        absent = frozenset(key for name, key in keys.items() if name not in seen)
        self.fresh = replace(self.fresh, nodes={**self.fresh.nodes, **seen}, gone=self.fresh.gone | absent)

    def _switch(self, host: str, path: str) -> None:
        where = f"{host}:{path}"
        if where in self.fresh.switches or where in self.fresh.errors:
            return
        try:
            answer = self._shell.run(switch_files.look(path), timeout=self._left())
        except TrainmonError as error:
            self._cannot(where, error)
            return
        sight = switch_files.seen(path, answer)
        self.fresh = replace(self.fresh, switches={**self.fresh.switches, where: sight})
        if sight.error is not None:
            self.fresh = replace(self.fresh, errors={**self.fresh.errors, where: sight.error})

    def _cannot(self, what: str, error: TrainmonError) -> None:
        self.fresh = replace(self.fresh, errors={**self.fresh.errors, what: error.message})


def unread(looks: Iterable[LookAt], words: str) -> Readback:
    """That nothing of this could be read."""
    errors: dict[str, str] = {}
    for look in looks:
        errors |= {f"{look.host}:{path}": words for path in look.switches}
        errors |= {key: words for key, _ in (*look.jobs, *look.steps)}
        errors |= {f"{look.cluster}/{name}": words for name in look.nodes}
        if look.users is not None:
            errors[look.cluster] = words
    return Readback(errors=errors)


def both(one: Readback, other: Readback) -> Readback:
    """What two hosts told."""
    return Readback(
        at=max(one.at, other.at),
        jobs={**one.jobs, **other.jobs},
        nodes={**one.nodes, **other.nodes},
        gone=one.gone | other.gone,
        steps={**one.steps, **other.steps},
        switches={**one.switches, **other.switches},
        errors={**one.errors, **other.errors},
    )
