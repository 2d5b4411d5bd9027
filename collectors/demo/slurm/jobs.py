"""The demo's scheduler on paper: its jobs, what becomes of them, and who may do what. Pure: time is an argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from collectors.demo.model.inventory import ME, Trainer
from collectors.demo.training.loop import Loop, Start
from trainmon.lib import Instant, Seconds

REQUEUED_FOR: Seconds = 12.0
"""A real Slurm lets a requeued job wait for two minutes; nobody waits so long for a demo."""
NEXT_IN: Seconds = 8.0
ENDED_STAYS: Seconds = 300.0
"""MinJobAge: how long squeue lists what has ended."""
AGAIN_AFTER: Seconds = 45.0
"""After the last job of a run has ended its owner submits it again, or nothing would live here after a night."""
CANCELLED_FOR: Seconds = 300.0
"""The same after a person has cancelled it."""
LIMIT: Seconds = 7 * 86_400.0
KEPT = 200


@dataclass
class Entry:
    """One job, one element of an array, or all elements of an array that still wait (`tasks`)."""

    number: int
    name: str
    user: str
    node_count: int
    submitted_at: Instant
    script: str
    workdir: str
    array: int | None = None
    task: int | None = None
    tasks: tuple[int, ...] = ()
    state: str = "PENDING"
    reason: str = "Priority"
    restarts: int = 0
    started_at: Instant | None = None
    begins_at: Instant | None = None
    ends_at: Instant | None = None
    after: int | None = None
    is_held: bool = False
    nodes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    exit_code: str = "0:0"
    cancelled_by: str | None = None

    @property
    def id(self) -> str:
        if self.tasks:
            return f"{self.array}_[{folded(self.tasks)}%1]"
        return str(self.number) if self.array is None else f"{self.array}_{self.task}"

    @property
    def is_over(self) -> bool:
        return self.state not in ("PENDING", "RUNNING")


def folded(tasks: tuple[int, ...]) -> str:
    """2, 3, 4, 7 → `2-4,7`."""
    runs: list[list[int]] = []
    for task in tasks:
        if runs and task == runs[-1][1] + 1:
            runs[-1][1] = task
        else:
            runs.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@dataclass
class Drain:
    """Why a node takes no more jobs."""

    reason: str
    by: str
    at: Instant


@dataclass
class Book:
    """All jobs, and the nodes that are drained."""

    loops: dict[str, Loop]
    now: Instant
    entries: list[Entry] = field(default_factory=list)
    drains: dict[str, Drain] = field(default_factory=dict)
    moves: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Runs that start on other nodes than before; the world takes note."""
    spares: tuple[str, ...] = ()
    barred: frozenset[str] = frozenset()
    """Runs whose kill switch is armed: nobody submits one of those."""
    _number: int = 418_400

    def trainer(self, run: str) -> Trainer:
        return self.loops[run].trainer

    def of(self, run: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.name == run]

    def running(self, run: str) -> Entry | None:
        return next((entry for entry in self.of(run) if entry.state == "RUNNING"), None)

    def pending(self, run: str) -> list[Entry]:
        return [entry for entry in self.of(run) if entry.state == "PENDING"]

    def find(self, text: str) -> list[Entry]:
        """The jobs that an id names: a job, an element, an array, or `88_[2-4]`; none where there is none."""
        text = re.sub(r"%\d+", "", text)
        if text.isdigit():
            array = [entry for entry in self.entries if entry.array == int(text)]
            return array or [entry for entry in self.entries if entry.number == int(text)]
        return [entry for entry in self.entries if entry.id.replace("%1", "") == text] or list(self._split(text))

    def _split(self, text: str) -> Iterator[Entry]:
        """An element that still waits among others becomes a job of its own, as in a real Slurm."""
        array, _, task = text.partition("_")
        for entry in list(self.entries):
            if task.isdigit() and str(entry.array) == array and int(task) in entry.tasks:
                yield self._take(entry, int(task))

    def _take(self, entry: Entry, task: int) -> Entry:
        entry.tasks = tuple(other for other in entry.tasks if other != task)
        if not entry.tasks:
            entry.task = task
            return entry
        one = Entry(**{**vars(entry), "number": self.next_number(), "task": task, "tasks": ()})
        self.entries.append(one)
        return one

    def next_number(self) -> int:
        self._number += 1
        return self._number

    # ---- what people do ---------------------------------------------------------------------------------------------

    def submit(self, run: str, count: int, after: int | None, *, first: int = 1) -> Entry:
        """An array for a run; its elements run one after another."""
        trainer, number = self.trainer(run), self.next_number()
        entry = Entry(
            number=number, name=run, user=trainer.user, node_count=len(trainer.run.nodes), submitted_at=self.now,
            script=trainer.run.script or "", workdir=(trainer.run.script or "").rpartition("/")[0],
            array=number, tasks=tuple(range(first, first + count)), after=after,
        )  # fmt: skip
        self.entries.append(entry)
        return entry

    def requeue(self, entry: Entry) -> str | None:
        """Returns why not. What does not run stays as it is: that is what `Incomplete` means."""
        if entry.state == "PENDING":
            return "Job is pending execution"
        if entry.state != "RUNNING":
            return None
        self._kill(entry, "DUE TO JOB REQUEUE", REQUEUED_FOR)
        entry.state, entry.reason, entry.restarts = "PENDING", "BeginTime", entry.restarts + 1
        entry.submitted_at, entry.begins_at = self.now, self.now + REQUEUED_FOR
        entry.started_at = entry.ends_at = None
        entry.nodes = ()
        return None

    def cancel(self, entry: Entry) -> None:
        if entry.is_over:
            return
        if entry.state == "RUNNING":
            self._kill(entry, f"CANCELLED AT {stamp(self.now)}", NEXT_IN)
        self._over(entry, "CANCELLED", "0:15" if entry.started_at else "0:0")
        entry.cancelled_by = ME

    def _kill(self, entry: Entry, why: str, wait: Seconds) -> None:
        loop = self.loops.get(entry.name)
        if loop is not None and entry.nodes:
            loop.end(f"slurmstepd: error: *** JOB {entry.number} ON {entry.nodes[0]} {why} ***\n", wait)

    # ---- what happens by itself -------------------------------------------------------------------------------------

    def ended(self, run: str, exit_code: int) -> None:
        """A run's processes are gone. Where a person or the scheduler ended them its job has been told already."""
        entry = self.running(run)
        if entry is not None:
            self._over(entry, "FAILED" if exit_code else "COMPLETED", f"{exit_code}:0")

    def start(self, run: str, at: Instant) -> Start | None:
        """The next job of a run begins, if there is one that may."""
        for entry in sorted(self.pending(run), key=lambda entry: (not entry.restarts, entry.number)):
            if entry.is_held or (entry.begins_at or 0.0) > at or self._waits_for(entry):
                continue
            nodes = self._nodes_for(entry)
            if nodes is None:
                continue
            one = self._take(entry, entry.tasks[0]) if entry.tasks else entry
            one.state, one.reason, one.started_at, one.begins_at, one.nodes = "RUNNING", "None", at, None, nodes
            one.ends_at = at + LIMIT
            return Start(one.number, one.restarts)
        return None

    def _nodes_for(self, entry: Entry) -> tuple[str, ...] | None:
        """The run's nodes; a spare takes the place of one that it is kept off. Drained nodes it waits for."""
        nodes = list(self.trainer(entry.name).run.nodes)
        free = [node for node in self.spares if node not in self.drains and node not in entry.excluded]
        for place, node in enumerate(nodes):
            if node in entry.excluded and free:
                nodes[place] = free.pop(0)
        if any(node in self.drains or node in entry.excluded for node in nodes):
            return None
        if tuple(nodes) != self.trainer(entry.name).run.nodes:
            self.moves.append((entry.name, tuple(nodes)))
        return tuple(nodes)

    def _waits_for(self, entry: Entry) -> bool:
        return entry.after is not None and any(
            other is not entry and entry.after in (other.number, other.array) and not other.is_over
            for other in self.entries
        )

    def advance(self, now: Instant) -> None:
        """Time passes: reasons change, what is long over is forgotten, owners submit again."""
        self.now = now
        for entry in self.entries:
            if entry.state == "PENDING" and entry.name in self.loops:
                entry.reason = self._reason(entry)
        for run, loop in self.loops.items():
            if loop.phase == "finished":
                for entry in self.pending(run):
                    self._over(entry, "CANCELLED", "0:0")
            elif (
                loop.phase == "down" and not self.pending(run) and self.running(run) is None and run not in self.barred
            ):
                self._again(run)
        over = [entry for entry in self.entries if entry.is_over]
        for entry in over[:-KEPT]:
            self.entries.remove(entry)

    def _again(self, run: str) -> None:
        last = max(self.of(run), key=lambda entry: entry.ends_at or 0.0, default=None)
        patience = CANCELLED_FOR if last is not None and last.cancelled_by else AGAIN_AFTER
        if last is None or self.now - (last.ends_at or 0.0) >= patience:
            self.submit(run, 4, None)

    def _reason(self, entry: Entry) -> str:
        if entry.is_held:
            return "JobHeldUser"
        if entry.begins_at is not None and entry.begins_at > self.now:
            return "BeginTime"
        if self._waits_for(entry):
            return "Dependency"
        if self.running(entry.name) is not None:
            return "JobArrayTaskLimit"
        bad = [node for node in self.trainer(entry.name).run.nodes if node in self.drains]
        if bad and not set(bad) <= set(entry.excluded):
            return f"ReqNodeNotAvail, UnavailableNodes:{','.join(bad)}"
        return "Resources"

    def listed(self) -> Iterable[Entry]:
        """What squeue shows: all that is not over, and what has just ended."""
        return [entry for entry in self.entries if not entry.is_over or self.now - (entry.ends_at or 0.0) < ENDED_STAYS]

    def _over(self, entry: Entry, state: str, exit_code: str) -> None:
        entry.state, entry.exit_code, entry.ends_at = state, exit_code, self.now
        entry.reason = "NonZeroExitCode" if state == "FAILED" else "None"


def stamp(at: Instant | None) -> str:
    """As Slurm writes a time: 2026-11-21T12:03:00."""
    return "Unknown" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
