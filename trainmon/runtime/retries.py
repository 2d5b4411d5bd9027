"""Restarts: what requeues failed jobs without a person, and what checks the nodes before any restart."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from hashlib import blake2s
from threading import Event

from msgspec.structs import replace

from trainmon.actions.verbs import VERB
from trainmon.alerting.gate import is_judged, node_checks
from trainmon.alerting.manager import AlertManager
from trainmon.analysis.retries import ACTOR, Due, due
from trainmon.engine.engine import Engine
from trainmon.ledger.actions import claim_action
from trainmon.ledger.ledger import Ledger
from trainmon.lib import DAY, Clock, Seconds, TrainmonError, joined
from trainmon.model import Action, ActionChanged, ActionRequest, NodeCheck, Plan, Record, Refusal, State
from trainmon.runtime.logs import log_event
from trainmon.transport.shell import Collected, Shell

AT_MOST = 6
"""Automatic starts of a run within a day."""

TRY_AFTER: Seconds = 30.0
"""Between two plans for one attempt, and so much longer after each: Slurm may not answer, or a kill switch may be armed
for a moment."""

AT_LEAST_EVERY: Seconds = 120.0
"""The longest time between two plans: what hangs on a host, and Slurm, are not asked more often. A plan takes less."""

PATIENCE: Seconds = 5.0
"""How long it waits for the ledger. Without the ledger nothing is done: another program might do it, too."""


class AutoRequeue:
    """Watches the State, and starts again what is due within its budget: only in the daemon that leads, once for each
    restart. The ledger decides which program acts."""

    def __init__(
        self,
        prepare: Callable[[ActionRequest, Callable[[Plan], None]], None],
        act: Callable[[Sequence[Action]], None],
        ledger: Ledger,
        clock: Clock,
        is_leader: Callable[[], bool],
        submit: Callable[[ActionChanged], None],
    ) -> None:
        self._prepare = prepare
        self._act = act
        self._ledger = ledger
        self._clock = clock
        self._is_leader = is_leader
        self._submit = submit
        self._refused: dict[str, str] = {}
        """By attempt: why nothing was done at the last try. It is logged once."""
        self._tries: dict[str, tuple[int, Seconds]] = {}
        """By attempt: how many plans were made, and when the next one may be, by the steady clock."""

    def observe(self, state: State) -> None:
        """Request a plan for each run that is due. A plan reads the state of the job, the queue and the kill switch
        anew. On the engine's thread; never waits."""
        if state.leadership.holder != "us":
            return
        now, steady = self._clock.now(), self._clock.monotonic()
        for one in due(state, now):
            tries, next_at = self._tries.get(one.attempt.attempt_id, (0, 0.0))
            if steady < next_at:
                continue
            self._tries[one.attempt.attempt_id] = tries + 1, steady + AT_LEAST_EVERY  # no other is made meanwhile
            is_exclusion = one.verb == "exclude"
            request = ActionRequest(
                verb=one.verb,
                subjects=one.decision.exclude if is_exclusion else (one.run,),
                requested_at=now,
                why=one.decision.why,
                run=one.run if is_exclusion else None,
                is_retry=True,
            )
            self._prepare(request, partial(self._planned, one))

    def _planned(self, one: Due, plan: Plan) -> None:
        """Do what is planned, if the ledger agrees."""
        gate = next(iter(plan.refusals), None) if plan.checks else None  # such a plan has its action all the same
        tries, _ = self._tries[one.attempt.attempt_id]
        self._tries[one.attempt.attempt_id] = tries, self._clock.monotonic() + min(TRY_AFTER * tries, AT_LEAST_EVERY)
        # A drain would affect other users: only the waiting jobs of the run are changed.
        is_of_run = VERB[one.verb].target == "run"
        actions = [action for action in plan.actions if is_of_run or action.expected.id is not None]
        whys = [refusal.why for refusal in plan.refusals]
        claims = [self._why_not(one, action) or self._claim(one, action, gate) for action in actions]
        why = "; ".join(filter(None, whys if gate is not None else [*whys, *claims]))
        why = why or ("" if actions else "there is nothing to do")
        if why and why != self._refused.get(one.attempt.attempt_id):
            log_event("auto-requeue", logging.WARNING, run=one.run, words=f"not done: {why}")
        self._refused[one.attempt.attempt_id] = why

    def _why_not(self, one: Due, action: Action) -> str:
        expected, last = action.expected, one.attempt
        is_same = action.job == f"{last.cluster}/{last.job_id}"
        is_same &= None in (expected.restarts, last.restart) or expected.restarts == last.restart
        if one.verb == "requeue" and not is_same:
            return f"{one.run} has a newer job"
        return "" if self._is_leader() else "another program leads"

    def _claim(self, one: Due, action: Action, gate: Refusal | None) -> str:
        """Write the action to the ledger and do it; return why not. With a refusal of the gate, only that is written,
        each reason once."""
        # Each restart is an attempt. It is followed by one start, by whatever verb, or by one of each evaluator.
        which = {"exclude": action.job, "evaluate": repr(action.operation)}.get(one.verb)
        what = (ACTOR, one.attempt.attempt_id, which, *([gate.why] if gate is not None else []))
        action = replace(action, id=blake2s(repr(what).encode(), digest_size=6).hexdigest(), who=ACTOR)
        now = self._clock.now()
        record = Record(action=action, written_at=now)
        if gate is not None:
            record = replace(record, status="refused", outcome=joined(f"{gate.why}; ", gate.hint), settled_at=now)
        claim = partial(claim_action, record=record, since=now - DAY, at_most=AT_MOST)
        answer = self._ledger.transact(claim, lambda: None)
        if not answer.done.wait(PATIENCE):
            return "the ledger does not answer"
        if answer.error is not None or answer.found is not None:
            return str(answer.error or answer.found)
        if gate is not None:
            self._submit(ActionChanged(record))
            return ""
        log_event("auto-requeue", run=one.run, job=action.job or "", words=action.title, why=action.why)
        self._act([action])
        return ""


# ---- checks the nodes on which a run may start again, and the directory of its checkpoints ---------------------------

ABSENT = 3

ACCESS = (
    'echo; [ "${2:-$(id -un)}" = "$(id -un)" ] || { echo can only be tested by the user of the job; exit 4; }; '
    f'[ -e "$1" ] || {{ echo does not exist; exit {ABSENT}; }}; [ -r "$1" ] || echo may not be read; '
    '[ -w "$1" ] || echo may not be written; [ -x "$1" ] || echo may not be searched; exit 0'
)
"""Says what may not be done, by access(2): nothing is written. A login script may print text before it."""

SAYS = (
    "can only be tested by the user of the job", "does not exist", "may not be read", "may not be written",
    "may not be searched",
)  # fmt: skip

TIMEOUT: Seconds = 8.0
"""A mount that hangs does not answer at all."""

AT_ONCE = 128
"""Nodes that are asked at once: of 512 that all hang, it takes 32 s."""


def check_nodes(
    engine: Engine,
    alerting: AlertManager,
    shell_of: Callable[[str], Shell],
    asked: MutableMapping[tuple[str, str], Collected],
    run: str | None,
    nodes: Sequence[str],
) -> tuple[NodeCheck, ...]:
    """The checks of these nodes for a run, or for a job of no run, over the connections that are open. `asked` has what
    was asked of each node, and may not have returned."""
    from multiprocessing.pool import ThreadPool  # 15 ms, for which the start need not wait

    began, pause = engine.clock.now(), Event()
    any(is_judged(engine.state, began) or pause.wait(0.1) for _ in range(30))  # the rules are evaluated once a second
    state, known = engine.state, engine.state.runs.get(run or "")
    found = [*node_checks(state, alerting.rules, nodes, run, began, engine.clock.now())]
    used = list(dict.fromkeys(one.node for one in found if one.outcome not in ("not checked", "not used")))
    if known is not None and (path := known.spec.checkpoints) is not None and used:
        user = next((state.jobs[key].user for key in known.jobs if key in state.jobs), known.spec.user)
        with ThreadPool(min(AT_ONCE, len(used))) as pool:  # its threads are daemons
            tested = pool.map(partial(_access, path, user or "", shell_of, asked), used, chunksize=1)
        absent = {node for (node, at), answer in list(asked.items()) if at == path and answer.status == ABSENT}
        is_there = any(one.outcome == "passed" for one in tested)  # else the nodes may know it by another path
        found += [replace(one, outcome="fault") if is_there and one.node in absent else one for one in tested]
    return tuple(found)


def _access(
    path: str, user: str, shell_of: Callable[[str], Shell], asked: MutableMapping[tuple[str, str], Collected], node: str
) -> NodeCheck:
    """A question that has not returned is not asked again: on a mount that hangs, each would leave a process there."""
    check, answer = partial(NodeCheck, node, "checkpoints"), asked.get((node, path))
    try:
        if answer is None or answer.done.is_set():
            answer = asked[node, path] = Collected()
            shell_of(node).stream(("sh", "-c", ACCESS, "sh", path, user), answer).finish()
        if not answer.done.wait(TIMEOUT):
            return check("not checked", f"{path} has not answered for {TIMEOUT:g}s or longer")
        if answer.error is not None:
            raise answer.error
    except TrainmonError as error:
        asked.pop((node, path), None)
        return check("not checked", error.message.removeprefix(f"{node}: "))
    said = ", ".join(line for line in answer.stdout.decode("utf-8", "replace").splitlines() if line in SAYS) or (
        "" if answer.status == 0 else f"was not tested: sh ended with {answer.status or 'no status'}"
    )
    return check("fault" if answer.status == 0 else "not checked", f"{path} {said}") if said else check()
