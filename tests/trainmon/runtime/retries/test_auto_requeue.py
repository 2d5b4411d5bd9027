"""A failed job is requeued once, whichever programs watch it and however often they start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import ANA, KILL, NOW, readback, stat, state
from tests.trainmon.analysis.retries.attempts import with_config
from tests.trainmon.analysis.retries.test_due import FAILED, attempt, crash, watched
from tests.trainmon.ledger.records import actions as kept
from trainmon.actions import planning
from trainmon.ledger.ledger import Ledger
from trainmon.lib import say
from trainmon.model import (
    Action,
    ActionChanged,
    ActionRequest,
    Job,
    Leadership,
    NodeCheck,
    Plan,
    Refusal,
    RetryPolicy,
    State,
)
from trainmon.runtime.retries import AT_MOST, AutoRequeue


class SetTime:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Watching:
    """One daemon: its plans are made from what is read now, and what it does is listed."""

    def __init__(self, directory: Path) -> None:
        self.ledger = Ledger(directory, lambda problem: None)
        self.ledger.start()
        self.clock = SetTime()
        self.is_leader = True
        self.fresh: Job | None = FAILED
        self.is_armed = False
        self.config: str | None = None
        """The hash of its config file now."""
        self.acted: list[Action] = []
        self.plans = 0
        self.state = watched()
        self.checks: tuple[NodeCheck, ...] = ()
        """What the gate finds."""
        self.told: list[ActionChanged] = []
        self._service = AutoRequeue(
            self.prepare, self.act, self.ledger, self.clock, lambda: self.is_leader, self.told.append
        )

    def prepare(self, request: ActionRequest, reply: Callable[[Plan], None]) -> None:
        listed = () if self.fresh is None else (self.fresh,)
        configs = {} if self.config is None else {"login:/fsx/llm/config.yaml": self.config}
        checks = {request.subjects[0]: self.checks}
        seen = readback(*listed, switches=stat(KILL, exists=self.is_armed), configs=configs, checks=checks)
        self.plans += 1
        reply(planning.plan(request, self.state, seen, ANA, self.clock.at))

    def act(self, actions: Sequence[Action]) -> None:
        self.acted += actions

    def see(self, seen: State, *, leads: bool = True) -> list[Action]:
        """What it has done so far, after this State."""
        self.state = replace(seen, leadership=Leadership(holder="us" if leads else "other"))
        self._service.observe(self.state)
        return self.acted


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[], Watching]]:
    """Makes a daemon; all of them share one ledger."""
    made: list[Watching] = []

    def make() -> Watching:
        made.append(Watching(tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.ledger.stop()


def test_a_failed_job_is_requeued_once_and_the_ledger_says_by_whom_and_why(daemon: Callable[[], Watching]) -> None:
    first = daemon()
    (action,) = first.see(watched())
    assert (action.title, action.who, action.why) == (
        "Requeue job 80 of llm, which has ended", "auto_requeue", "nccl-timeout is often transient",
    )  # fmt: skip
    (record,) = kept(first.ledger, 0.0)
    assert (record.action.id, record.action.who, record.status) == (action.id, "auto_requeue", "asked")
    first.clock.at += 60
    assert len(first.see(watched())) == 1
    assert daemon().see(watched()) == []  # the daemon was restarted
    assert first.plans == 2


def test_a_job_that_slurm_has_forgotten_is_queued_anew_unless_it_was_requeued(daemon: Callable[[], Watching]) -> None:
    forgotten = watched(jobs=(replace(FAILED, gone_at=NOW - 10),))
    one = daemon()
    one.fresh = None
    (action,) = one.see(forgotten)
    assert (action.verb, action.title, action.who) == ("queue", "Queue 1 more job of llm", "auto_requeue")
    again = daemon()
    assert again.see(watched()) == []
    assert again.plans == 1


def test_of_two_daemons_one_acts(daemon: Callable[[], Watching]) -> None:
    both = [daemon(), daemon()]
    threads = [threading.Thread(target=one.see, args=(watched(),)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(len(one.acted) for one in both) == [0, 1]


def test_a_program_that_does_not_lead_does_nothing(daemon: Callable[[], Watching]) -> None:
    one = daemon()
    assert one.see(watched(), leads=False) == []
    one.is_leader = False  # another program has taken over since this State was made
    assert one.see(watched()) == []
    assert kept(one.ledger, 0.0) == []


def test_what_has_changed_since_the_state_was_made_stops_it(daemon: Callable[[], Watching]) -> None:
    one = daemon()
    one.is_armed = True
    assert one.see(watched()) == []
    one.clock.at += 120
    one.is_armed, one.fresh = False, replace(FAILED, state="PENDING", restarts=1)
    assert one.see(watched()) == []
    one.clock.at += 120
    one.fresh = replace(FAILED, restarts=1)
    assert one.see(watched(attempt(0, restart=0))) == []  # it has failed again, and that attempt is not known yet
    one.clock.at += 120
    one.fresh = FAILED
    assert len(one.see(watched())) == 1


def test_everything_that_was_not_done_is_logged(
    daemon: Callable[[], Watching], caplog: pytest.LogCaptureFixture
) -> None:
    one = daemon()
    leads = iter([False, True])
    service = AutoRequeue(
        lambda request, reply: reply(partly(request)), one.act, one.ledger, one.clock, lambda: next(leads), print
    )

    def partly(request: ActionRequest) -> Plan:
        (action,) = planning.plan(request, one.state, readback(FAILED, switches=stat(KILL)), ANA, NOW).actions
        return Plan(request=request, actions=(action, action), refusals=(Refusal(subject="n2", why="n2 is unknown"),))

    service.observe(replace(watched(), leadership=Leadership(holder="us")))
    assert len(one.acted) == 1
    fields = [vars(record).get("fields", {}) for record in caplog.records]
    assert "not done: n2 is unknown; another program leads" in [one.get("words") for one in fields]


XID = NodeCheck("n1", "Xids", "fault", "Xid 79 on GPU 3 of n1: fallen off the bus, 4m ago")
PASSED = NodeCheck("n1", "ECC")
LATE = NodeCheck("n2", "ECC", "not checked", "it is late")


def test_a_fault_of_a_node_keeps_the_job_back_until_it_is_gone_and_is_recorded_once(
    daemon: Callable[[], Watching],
) -> None:
    one = daemon()
    one.checks = (PASSED, XID, LATE)
    assert one.see(watched()) == []
    one.clock.at += 30
    one.checks = (PASSED, replace(XID, why="Xid 79 on GPU 3 of n1: fallen off the bus, 5m ago"))
    assert one.see(watched()) == []
    (record,) = kept(one.ledger, 0.0)
    assert (record.action.who, record.status, say(record.outcome)) == (
        "auto_requeue", "refused", f"a fault was seen: n1 (Xids); {XID.why}; keep the pending job off: "
        "X, or trainmon-tui exclude n1 --run llm",
    )  # fmt: skip
    assert [told.record.action.id for told in one.told] == [record.action.id]
    one.clock.at += 59
    one.checks = (PASSED, LATE)  # somebody has repaired it
    assert one.see(watched()) == []  # the nodes and Slurm are asked ever less often
    one.clock.at += 1
    assert len(one.see(watched())) == 1
    assert [record.status for record in kept(one.ledger, 0.0)] == ["refused", "asked"]


def test_a_node_that_could_not_be_checked_keeps_the_job_back_only_if_that_is_required(
    daemon: Callable[[], Watching],
) -> None:
    seen = watched()
    run = seen.runs["llm"]
    policy = RetryPolicy(auto_requeue="on", gate="required")
    required = replace(seen, runs={"llm": replace(run, spec=replace(run.spec, retry=policy))})
    one = daemon()
    for checks, why in (
        ((PASSED, LATE, replace(LATE, check="Xids")), "it could not be checked: n2 (ECC, Xids); it is late"),
        ((), "it could not be checked: the next nodes of llm; no node is known"),
    ):
        one.checks = checks
        assert one.see(required) == []
        one.clock.at += 120
        assert say(kept(one.ledger, 0.0)[-1].outcome) == why
    one.checks = (PASSED,)
    assert len(one.see(required)) == 1


def test_while_the_nodes_are_checked_no_other_plan_is_made(daemon: Callable[[], Watching]) -> None:
    """A refusal that comes after the start would be told of it, and would leave its node in the pending job."""
    one, waiting = daemon(), list[Callable[[], None]]()
    service = AutoRequeue(
        lambda request, reply: waiting.append(partial(one.prepare, request, reply)),
        one.act, one.ledger, one.clock, lambda: True, one.told.append,
    )  # fmt: skip
    seen = replace(watched(), leadership=Leadership(holder="us"))
    one.state, one.checks = seen, (XID,)
    service.observe(seen)
    one.clock.at += 50
    service.observe(seen)
    assert len(waiting) == 1
    waiting.pop()()
    one.checks = (PASSED,)
    one.clock.at += 120
    service.observe(seen)
    waiting.pop()()
    assert [record.status for record in kept(one.ledger, 0.0)] == ["refused", "asked"]


def test_a_run_is_requeued_at_most_six_times_a_day(daemon: Callable[[], Watching]) -> None:
    one = daemon()
    for number in range(AT_MOST + 2):
        one.clock.at += 60
        one.see(watched(replace(attempt(0), attempt_id=f"prod/80@{number}")))
    assert len(one.acted) == AT_MOST
    one.clock.at += 86_400
    last = replace(attempt(0), attempt_id="prod/80@tomorrow")
    assert last.end is not None
    tomorrow = replace(last, started_at=NOW + 86_000, end=replace(last.end, at=one.clock.at - 300))
    assert len(one.see(watched(tomorrow))) == AT_MOST + 1


def test_without_the_ledger_nothing_is_done(daemon: Callable[[], Watching]) -> None:
    one = daemon()
    one.see(state())
    one.ledger.stop()
    one.ledger.file.unlink(missing_ok=True)
    one.ledger.file.mkdir()
    again = daemon()
    assert again.see(watched()) == []


def test_after_an_oom_it_waits_until_the_config_has_changed(
    daemon: Callable[[], Watching], caplog: pytest.LogCaptureFixture
) -> None:
    one, oom = daemon(), watched(with_config(attempt(0, cause="cuda-oom"), "abc"))
    one.config = "abc"
    for _ in range(3):
        assert one.see(oom) == []
        one.clock.at += 30
    words = [vars(record).get("fields", {}).get("words") for record in caplog.records]
    same = "nothing has changed since the attempt (config abc): the same cuda-oom would come again"
    assert [text for text in words if text] == [f"not done: {same}"], "it is logged once"
    one.config = "def"
    (action,) = one.see(oom)
    assert (action.verb, action.why) == (
        "requeue", "the config has changed since the attempt (abc → def): a retry may help",
    )  # fmt: skip


def test_a_crashed_evaluator_is_started_again_once_and_no_job_is_requeued(daemon: Callable[[], Watching]) -> None:
    one = daemon()
    (action,) = one.see(crash())
    assert (action.verb, action.who, action.why) == (
        "evaluate", "auto_requeue", "the training is saved: only the evaluator must run again",
    )  # fmt: skip
    one.clock.at += 60
    assert len(one.see(crash())) == 1
    assert daemon().see(crash()) == []  # the daemon was restarted
    assert [record.action.verb for record in kept(one.ledger, 0.0)] == ["evaluate"]
