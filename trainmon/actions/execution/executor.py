"""Plans and acts on hosts: reads what a plan needs, and does what it showed. One thread a host; none waits for ours.

An action is written down before it is done, checked again just before, and told when it is over, however it ends. One
whose end was not seen is `unknown` and never repeated: what is seen later tells (trainmon.actions.verification.verify).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from trainmon.actions.execution.preflight import GLANCE, LOOK_FOR, PreflightView, unread
from trainmon.actions.execution.run import Outcome, do, log_tail
from trainmon.actions.execution.workers import HostWorker, WorkRequest
from trainmon.actions.planning import Actor, Readback, place_of
from trainmon.actions.planning import plan as actions
from trainmon.lib import Clock, Seconds, TrainmonError
from trainmon.model import Action, ActionChanged, ActionRequest, Event, Plan, Record, Refusal, State
from trainmon.transport.shell import Shell

log = logging.getLogger(__name__)

ANSWER_IN: Seconds = 10.0
"""A plan is answered within this time, whatever hangs."""

STOP_IN: Seconds = 0.5

REMEMBERED = 1_000
"""Ids of actions that were taken on: one that comes twice (a key held down) is done once."""


class LedgerDoor(Protocol):
    """What is needed of the ledger."""

    def write(self, record: Record) -> None:
        """Write it down; returns when it is on the disk. Raises LedgerStuck after 5 s."""

    def write_text(self, action_id: str, kind: str, host: str, path: str, text: str) -> None:
        """Keep a piece of text with an action; returns when it is on the disk. Raises LedgerStuck after 5 s."""


class Executor:
    """Prepares and performs. `shell_of` gives the live connection of a watched host, and raises HostUnreachable."""

    def __init__(
        self,
        shell_of: Callable[[str], Shell],
        state: Callable[[], State],
        submit: Callable[[Event], None],
        *,
        ledger: LedgerDoor | None,
        hurry: Callable[[str], None],
        clock: Clock,
        actor: Actor,
        read_only: bool = False,
        answer_in: Seconds = ANSWER_IN,
    ) -> None:
        self._shell_of = shell_of
        self._state = state
        self._submit = submit
        self._ledger = ledger
        self._hurry = hurry
        self._clock = clock
        self._actor = actor
        self._read_only = read_only
        self._answer_in = answer_in
        self._hands: dict[str, HostWorker] = {}
        self._taken: dict[str, None] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Take on nothing more. What is being done on a host is not waited for; under a second."""
        self._stopping.set()
        with self._lock:
            hands = list(self._hands.values())
        for hand in hands:
            hand.stop()
        for hand in hands:
            hand.join(STOP_IN / len(hands))

    # ---- plans -----------------------------------------------------------------------------------------------------

    def prepare(self, ask: ActionRequest, reply: Callable[[Plan], None]) -> None:
        """Read what the plan needs, and hand it to reply on another thread, within ANSWER_IN."""
        state = self._seen()
        looks = actions.looks(ask, state, Readback(at=self._clock.now()))
        asked = WorkRequest(looks, lambda fresh: self._reply(ask, fresh, reply))
        for host in asked.hosts:
            if not self._hand(host).give(partial(self._look, host, ask, state, asked)):
                asked.told(host, unread(asked.of(host), f"{host} is busy: too much waits for it"))
        asked.start(self._answer_in if asked.hosts else 0.0)

    def _reply(self, ask: ActionRequest, fresh: Readback, reply: Callable[[Plan], None]) -> None:
        if self._stopping.is_set():
            return
        now = self._clock.now()
        try:
            reply(actions.plan(ask, self._seen(), fresh, self._actor, now))
        except Exception as error:
            log.exception("a plan for %s failed", ask.verb)
            why = f"the plan could not be made ({type(error).__name__}: {error})"
            reply(Plan(request=ask, refusals=tuple(Refusal(subject=one, why=why) for one in ask.subjects)))

    def _look(self, host: str, ask: ActionRequest, state: State, asked: WorkRequest) -> None:
        try:
            shell = self._shell_of(host)
            fresh = PreflightView(host, shell, self._hand(host).slurm(shell), self._clock).for_plan(ask, state)
        except TrainmonError as error:
            fresh = unread(asked.of(host), str(error))
        asked.told(host, fresh)

    def _seen(self) -> State:
        state = self._state()
        return replace(state, read_only=True) if self._read_only else state

    # ---- acts ------------------------------------------------------------------------------------------------------

    def act(self, planned: Sequence[Action]) -> None:
        """Do what a plan showed; returns at once. What becomes of each is told as ActionChanged."""
        for action in planned:
            if not self._is_new(action):
                continue
            record = Record(action=action, written_at=self._clock.now())
            if self._seen().read_only:
                self._tell(_refused(record, "read-only: nothing is changed from here", self._clock.now()))
                continue
            self._tell(record)
            if not self._hand(action.host).give(partial(self._perform, record)):
                words = f"{action.host} is busy: too much waits for it; nothing was done"
                self._tell(_refused(record, words, self._clock.now()))

    def _is_new(self, action: Action) -> bool:
        with self._lock:
            if action.id in self._taken or action.id in self._state().actions or self._stopping.is_set():
                return False
            self._taken[action.id] = None
            while len(self._taken) > REMEMBERED:
                del self._taken[next(iter(self._taken))]
            return True

    def _perform(self, record: Record) -> None:
        """On the host's thread: write down, check, keep the log's end, do, tell."""
        if self._stopping.is_set():
            return
        record = self._write_down(replace(record, written_at=self._clock.now()))
        try:
            shell = self._shell_of(record.action.host)
        except TrainmonError as error:
            self._tell(replace(_over(record, self._clock.now()), status="failed", outcome=f"nothing was done: {error}"))
            return
        try:
            record = self._perform_on(shell, record)
        except Exception as error:
            log.exception("%s failed", record.action.title)
            words = f"it broke off ({type(error).__name__}: {error}): whether it was done is not known"
            record = replace(record, status="unknown", outcome=words, done_at=self._clock.now())
        self._tell(record)
        if record.status in ("done", "unknown"):
            self._look_soon(record.action.cluster)

    def _perform_on(self, shell: Shell, record: Record) -> Record:
        action = record.action
        slurm = self._hand(action.host).slurm(shell)
        for kept in (action.keep_log, action.keep_errors):
            if kept is not None:  # before the check: nothing may take its time between that and the act
                record = _noted(record, self._keep_log(action, kept))
        seconds = LOOK_FOR if action.expected.needs_slurm else GLANCE
        fresh = PreflightView(action.host, shell, slurm, self._clock, seconds).for_act(actions.rechecked(action))
        refusal = actions.recheck(action, fresh, self._clock.now())
        if refusal is not None:
            return _refused(record, f"{refusal.why} ({refusal.hint})", self._clock.now())
        record = _noted(record, actions.unchecked(action, fresh))
        done: Outcome = do(action, shell, slurm)
        record = replace(record, status=done.status, outcome=done.words, made=done.made, done_at=self._clock.now())
        if done.status == "failed":
            record = _over(record, self._clock.now())
        for job in done.jobs(self._seen().jobs):
            self._submit(job)
        return record

    def _write_down(self, record: Record) -> Record:
        """In the ledger before anything happens; where that does not work it happens all the same, and says so."""
        if self._ledger is None:
            return record
        try:
            self._ledger.write(record)
        except Exception as error:
            if not isinstance(error, TrainmonError):
                log.exception("the ledger failed")
            return _noted(record, f"not written down: {error}")
        return record

    def _keep_log(self, action: Action, log: str) -> str | None:
        """Copy the end of a log to the ledger; returns what went wrong."""
        host, path = place_of(log)
        if self._ledger is None:
            return "the log's end was not kept: there is no ledger"
        try:
            text = log_tail(self._shell_of(host), path)
            self._ledger.write_text(action.id, "log", host, path, text)
        except TrainmonError as error:
            return f"the log's end was not kept: {error}"
        return None

    def _tell(self, record: Record) -> None:
        self._submit(ActionChanged(record))

    def _look_soon(self, cluster: str) -> None:
        try:
            self._hurry(cluster)
        except TrainmonError as error:
            log.info("no hurry for %s: %s", cluster, error)

    def _hand(self, host: str) -> HostWorker:
        with self._lock:
            found = self._hands.get(host)
            if found is None:
                found = self._hands[host] = HostWorker(host)
            return found


def _over(record: Record, now: float) -> Record:
    return replace(record, done_at=now, settled_at=now)


def _refused(record: Record, words: str, now: float) -> Record:
    return replace(record, status="refused", outcome=words, settled_at=now)


def _noted(record: Record, words: str | None) -> Record:
    if words is None or words in (record.note or ""):
        return record
    return replace(record, note=f"{record.note}; {words}" if record.note else words)
