"""Prepares plans and runs actions on hosts. Each host has its own thread; no method waits for a host.

An action is written to the ledger before it runs, checked again just before, and reported when it is over. An action
whose end was not observed is `unknown` and never repeated; trainmon.actions.verification finds out later.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial, reduce
from typing import Protocol, TypeVar

from msgspec.structs import replace

from trainmon.actions.execution.operations import (
    PREFLIGHT_TIMEOUT,
    SWITCH_PREFLIGHT_TIMEOUT,
    PreflightView,
    execute,
    log_tail,
    merged,
    unreadable,
    with_evaluations,
)
from trainmon.actions.planning import (
    Actor,
    PlanContext,
    Readback,
    ReadRequest,
    contexts_of,
    gate_nodes,
    plan,
    reads_before,
    reads_for_plan,
    recheck,
    split_location,
    unchecked,
)
from trainmon.actions.verbs import VERB
from trainmon.lib import Clock, CommandFailed, Seconds, Sentence, TrainmonError, drop_oldest, group_by, joined
from trainmon.model import (
    Action,
    ActionChanged,
    ActionRequest,
    Event,
    JobChanged,
    NodeCheck,
    Plan,
    RankWay,
    ReadStacks,
    Record,
    Refusal,
    State,
    Status,
)
from trainmon.slurm.client import Client
from trainmon.slurm.parse import detailed
from trainmon.transport.shell import Shell

log = logging.getLogger(__name__)

Result = TypeVar("Result")

PLAN_TIMEOUT: Seconds = 10.0
"""The longest time until a plan, whatever hangs."""

REMEMBERED = 1_000
"""The most ids of accepted actions that are kept. An action that comes twice (a key held down) runs once."""


QUEUE_SIZE = 64
"""Tasks for one host: a plan over many rows fits, and nothing piles up behind a host that hangs."""


class ActionLedger(Protocol):
    """The part of the ledger that actions need."""

    def write(self, record: Record) -> None:
        """Write a record; return when it is on the disk.

        Raises:
            LedgerStuck: after 5 s.
        """

    def write_text(self, action_id: str, kind: str, host: str, path: str, text: str) -> None:
        """Keep a text with an action; return when it is on the disk.

        Raises:
            LedgerStuck: after 5 s.
        """

    def evaluations(self, runs: Sequence[str]) -> Callable[[], Mapping[str, Record]]:
        """Begin to read the starts of evaluators of these runs, by action id. What is returned waits for them.

        Raises:
            LedgerStuck: from what is returned, after 1 s.
        """


class RankStacks(Protocol):
    """What reads the stacks of ranks."""

    def find(self, run: str) -> tuple[RankWay, ...]:
        """How each can be read.

        Raises:
            TrainmonError: when that is not known of any.
        """

    def read(self, run: str, ranks: Sequence[RankWay]) -> str:
        """Read them, and submit the look; its summary.

        Raises:
            TrainmonError: when none could be read.
        """


class Executor:
    """Prepares plans and runs actions."""

    stacks: RankStacks | None = None
    """Where stacks can be read."""
    gate: Callable[[str | None, Sequence[str]], tuple[NodeCheck, ...]] = staticmethod(lambda run, nodes: ())
    """Checks nodes before a run, whose name is given, starts there again. It takes up to 40 s."""

    def __init__(
        self,
        shell_of: Callable[[str], Shell],
        state: Callable[[], State],
        submit: Callable[[Event], None],
        *,
        ledger: ActionLedger | None,
        poll_soon: Callable[[str], None],
        clock: Clock,
        actor: Actor,
        read_only: bool = False,
        plan_timeout: Seconds = PLAN_TIMEOUT,
    ) -> None:
        """`shell_of` returns the live connection of a watched host, and raises HostUnreachable."""
        self._shell_of = shell_of
        self._state = state
        self._submit = submit
        self._ledger = ledger
        self._poll_soon = poll_soon
        self._clock = clock
        self._actor = actor
        self._read_only = read_only
        self._plan_timeout = plan_timeout
        self._workers: dict[str, HostWorker] = {}
        self._accepted: dict[str, None] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Accept no more requests. Returns within a second: it does not wait for what runs on a host now."""
        self._stopping.set()
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(0.5 / len(workers))

    # ---- plans -----------------------------------------------------------------------------------------------------

    def prepare(self, request: ActionRequest, reply: Callable[[Plan], None]) -> None:
        """Read what the plan needs, and pass it to `reply` on another thread, within PLAN_TIMEOUT."""
        threading.Thread(target=self._prepare, args=(request, reply), name="plan", daemon=True).start()

    def _prepare(self, request: ActionRequest, reply: Callable[[Plan], None]) -> None:
        try:
            readback = self._read(request, self._known_state())
            if not self._stopping.is_set():
                reply(plan(request, self._known_state(), readback, self._actor, self._clock.now()))
        except Exception as error:
            log.exception("a plan for %s failed", request.verb)
            why = f"the plan could not be made ({type(error).__name__}: {error})"
            reply(Plan(request=request, refusals=tuple(Refusal(subject=one, why=why) for one in request.subjects)))

    def _read(self, request: ActionRequest, state: State) -> Readback:
        """What a plan needs of all its hosts and of the ledger. A host that does not answer in time is an error."""
        reads = VERB[request.verb].reads
        ledger = self._ledger if "evaluations" in reads else None
        evaluations = None if ledger is None else ledger.evaluations(request.subjects)
        by_host = group_by(reads_for_plan(request, state, Readback(at=self._clock.now())), lambda read: read.host)
        futures = {
            host: self._worker(host).submit(partial(self._preflight, host, request, state, there))
            for host, there in by_host.items()
        }
        wait([future for future in futures.values() if future is not None], self._plan_timeout)
        parts = []
        for host, future in futures.items():
            answer: Readback | str = f"{host} has not answered in {self._plan_timeout:g}s"
            if future is None:
                answer = f"{host} is busy: its queue is full"
            elif future.done():
                answer = future.result()
            parts.append(unreadable(by_host[host], answer) if isinstance(answer, str) else answer)
        readback = with_evaluations(reduce(merged, parts, Readback()), evaluations)
        for run in request.subjects if "stacks" in reads else ():
            readback = self._with_stacks(readback, run)
        rows = contexts_of(request, state, readback, self._actor, readback.at) if "gate" in reads else ()
        for one in rows:
            if isinstance(one, PlanContext) and (nodes := gate_nodes(one)):
                readback = merged(readback, self._checked(one, nodes))
        return readback

    def _checked(self, context: PlanContext, nodes: Sequence[str]) -> Readback:
        try:
            return Readback(checks={context.subject: self.gate(context.run.name if context.run else None, nodes)})
        except Exception as error:  # a fault of ours in a check keeps nobody from a restart
            log.exception("the nodes of %s could not be checked", context.subject)
            return Readback(errors={f"{context.subject} start": f"its nodes could not be checked ({error!r})"})

    def _with_stacks(self, readback: Readback, run: str) -> Readback:
        try:
            if self.stacks is None:
                raise CommandFailed("stacks are not read here")
            return replace(readback, stacks={**readback.stacks, run: self.stacks.find(run)})
        except TrainmonError as error:
            return replace(readback, errors={**readback.errors, run: str(error)})

    def _preflight(
        self, host: str, request: ActionRequest, state: State, reads: Sequence[ReadRequest]
    ) -> Readback | str:
        """What was read on a host, or why nothing could be read there."""
        try:
            shell = self._shell_of(host)
            view = PreflightView(host, shell, self._worker(host).slurm(shell), self._clock)
            return view.for_plan(request, state, reads)
        except TrainmonError as error:
            return str(error)

    def _known_state(self) -> State:
        state = self._state()
        return replace(state, read_only=True) if self._read_only else state

    # ---- actions ---------------------------------------------------------------------------------------------------

    def act(self, planned: Sequence[Action]) -> None:
        """Run the actions of a plan; returns at once. Their progress is reported as ActionChanged."""
        for action in planned:
            with self._lock:
                if action.id in self._accepted or action.id in self._state().actions or self._stopping.is_set():
                    continue
                self._accepted[action.id] = None
                drop_oldest(self._accepted, REMEMBERED)
            record = Record(action=action, written_at=self._clock.now())
            if self._known_state().read_only:
                self._report(self._over(record, "refused", "read-only: nothing is changed from here"))
                continue
            self._report(record)
            if self._worker(action.host).submit(partial(self._run, record)) is None:
                why = f"{action.host} is busy: its queue is full; nothing was done"
                self._report(self._over(record, "refused", why))

    def _run(self, record: Record) -> None:
        """On the host's thread: record the action, copy the log's end, check, execute, report. A failure of the ledger
        is noted and does not stop the action."""
        if self._stopping.is_set():
            return
        record = replace(record, written_at=self._clock.now())
        try:
            if self._ledger is not None:
                self._ledger.write(record)
        except Exception as error:
            if not isinstance(error, TrainmonError):
                log.exception("the ledger failed")
            record = _noted(record, f"not recorded in the ledger: {error}")
        try:
            record = self._run_on_host(record)
        except Exception as error:
            log.exception("%s failed", record.action.title)
            why = f"it was interrupted ({type(error).__name__}: {error}): it is not known whether it was done"
            record = replace(record, status="unknown", outcome=why, done_at=self._clock.now())
        self._report(record)
        if record.status in ("done", "unknown"):
            try:
                self._poll_soon(record.action.cluster)
            except TrainmonError as error:
                log.info("the queue of %s is not polled sooner: %s", record.action.cluster, error)

    def _run_on_host(self, record: Record) -> Record:
        action = record.action
        try:
            if isinstance(action.operation, ReadStacks) and self.stacks is not None:
                said = self.stacks.read(action.subject, action.operation.ranks)
                return replace(record, status="done", outcome=said, done_at=self._clock.now())
            shell = self._shell_of(action.host)
        except TrainmonError as error:
            return self._over(record, "failed", f"nothing was done: {error}")
        slurm = self._worker(action.host).slurm(shell)
        for file in (action.keep_log, action.keep_errors):
            if file is not None:  # before the check: nothing may take its time between that and the command
                record = _noted(record, self._keep_log(action, file))
        seconds = PREFLIGHT_TIMEOUT if action.expected.needs_slurm else SWITCH_PREFLIGHT_TIMEOUT
        readback = PreflightView(action.host, shell, slurm, self._clock, seconds).for_action(reads_before(action))
        refusal = recheck(action, readback)
        if refusal is not None:
            return self._over(record, "refused", joined(refusal.why, " (", refusal.hint, ")"))
        record = _noted(record, unchecked(action, readback))
        done = execute(action, shell, slurm)
        job = None if done.detail is None else self._state().jobs.get(done.detail.key)
        if job is not None and done.detail is not None:
            self._submit(JobChanged(replace(detailed(job, done.detail), detail_at=job.detail_at)))
        if done.status == "failed":
            return self._over(record, "failed", done.message)
        return replace(record, status=done.status, outcome=done.message, made=done.made, done_at=self._clock.now())

    def _over(self, record: Record, status: Status, outcome: Sentence) -> Record:
        """The record of an action that has failed or is refused: nothing follows."""
        now = self._clock.now()
        done_at = now if status == "failed" else None
        return replace(record, status=status, outcome=outcome, done_at=done_at, settled_at=now)

    def _keep_log(self, action: Action, file: str) -> str | None:
        """Copy the end of a log to the ledger. Returns the error, if there is one."""
        host, path = split_location(file)
        if self._ledger is None:
            return "the end of the log was not kept: there is no ledger"
        try:
            self._ledger.write_text(action.id, "log", host, path, log_tail(self._shell_of(host), path))
        except TrainmonError as error:
            return f"the end of the log was not kept: {error}"
        return None

    def _report(self, record: Record) -> None:
        self._submit(ActionChanged(record))

    def _worker(self, host: str) -> HostWorker:
        with self._lock:
            if host not in self._workers:
                self._workers[host] = HostWorker(host)
            return self._workers[host]


class HostWorker:
    """The thread of one host, which runs its tasks in order."""

    def __init__(self, host: str) -> None:
        self._tasks: queue.Queue[Callable[[], None]] = queue.Queue(QUEUE_SIZE)
        self._client: Client | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"act {host}", daemon=True)
        self._thread.start()

    def submit(self, task: Callable[[], Result]) -> Future[Result] | None:
        """Add a task; None where the queue is full. What a task returns becomes the result, and nothing if it fails."""
        future: Future[Result] = Future()
        try:
            self._tasks.put_nowait(lambda: future.set_result(task()))
        except queue.Full:
            return None
        return future

    def slurm(self, shell: Shell) -> Client:
        """The Slurm client of this connection. It remembers where Slurm's commands are."""
        if self._client is None or self._client.shell is not shell:
            self._client = Client(shell)
        return self._client

    def stop(self) -> None:
        self._stopping.set()
        self.submit(lambda: None)

    def join(self, seconds: Seconds) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            task = self._tasks.get()
            if self._stopping.is_set():
                return
            try:
                task()
            except Exception:
                log.exception("a task of %s failed", self._thread.name)


def _noted(record: Record, note: str | None) -> Record:
    if note is None or note in (record.note or ""):
        return record
    return replace(record, note=f"{record.note}; {note}" if record.note else note)
