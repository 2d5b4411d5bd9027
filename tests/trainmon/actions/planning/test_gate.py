"""What a plan says of the nodes on which a run may start again, and what it then needs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import CHECKPOINTS, NOW, RUN, RUNNING, ask, only, planned, readback, state
from tests.trainmon.analysis.retries.test_due import FAILED, attempt, watched
from trainmon.actions import planning
from trainmon.actions.planning import PlanContext, contexts_of, gate_nodes
from trainmon.actions.planning.plans import check_lines
from trainmon.lib import say
from trainmon.model import ActionRequest, NodeCheck, Plan, State

CHECKS = ("GPUs listed", "ECC", "Xids")
TEST = "sbatch: Job 9 to start at 2026-11-29T19:17:27 using 2 processors on nodes n[2-3] in partition train\n"
HET = "sbatch: Job 3 to start at 2026-11-29T20:52:45 using 3 processors on n[2,4]\n"


def checks(*nodes: str) -> tuple[NodeCheck, ...]:
    return tuple(NodeCheck(node, check) for node in nodes for check in CHECKS)


def fault(node: str, check: str = "Xids", why: str = "Xid 79, 4m ago") -> NodeCheck:
    return NodeCheck(node, check, "fault", why)


def gated(verb: Any, *found: NodeCheck, **fields: Any) -> Plan:
    return planned(verb, seen=readback(RUNNING, checks={"llm": found}), **fields)


def nodes_of(request: ActionRequest, of: State, **seen: Any) -> tuple[str, ...]:
    (context,) = contexts_of(request, of, readback(**seen), planning.Actor("", ""), NOW)
    assert isinstance(context, PlanContext)
    return gate_nodes(context)


def test_nodes_that_are_fine_are_one_line() -> None:
    plan = gated("requeue", *checks("n1", "n2"))
    assert only(plan).facts[0] == ("nodes", "2 nodes: 3 checks passed")
    assert (plan.typed, plan.checks) == (None, checks("n1", "n2"))


@pytest.mark.parametrize("verb", ["requeue", "queue"])
def test_a_fault_must_be_confirmed_by_typing_and_the_exclusion_is_proposed(verb: Any) -> None:
    plan = gated(verb, *checks("n1", "n2"), fault("n2"))
    assert (plan.typed, plan.because) == ("88_3", "a fault was seen: n2 (Xids)")
    (action,) = plan.actions
    assert say(action.warnings[0]) == (
        "A fault was seen: n2 (Xids); keep the pending job off: X, or trainmon-tui exclude n2 --run llm"
    )
    assert ("", "fault: n2 (Xids): Xid 79, 4m ago") in action.facts


def test_a_checkpoint_that_a_restart_cannot_load_is_a_fault_of_no_node() -> None:
    trouble = "its pointer names step 13,000, which is not there"
    run = replace(RUN, checkpoints=replace(CHECKPOINTS, trouble=trouble))
    plan = planned("requeue", of=state(run=run), seen=readback(RUNNING, checks={"llm": checks("n1")}))
    assert plan.because == "a fault was seen: checkpoint of llm"
    assert "exclude" not in say(only(plan).warnings[0])
    assert f"fault: checkpoint of llm: {trouble}" in dict(plan.actions[0].facts)[""]


def test_a_directory_of_checkpoints_may_be_missing_until_the_first_one_is_saved() -> None:
    missing = "no checkpoint was found: the directory does not exist"
    run = replace(RUN, checkpoints=replace(CHECKPOINTS, error="does not exist", trouble=missing))
    for saved, outcome in ((None, "not checked"), (12_000, "fault")):
        last = attempt(0, last_committed_step=saved)
        (one,) = (
            one
            for one in planned("requeue", of=watched(last, run=run), seen=readback(FAILED)).checks
            if one.check == "checkpoint of llm"
        )
        assert (one.outcome, one.why) == (outcome, missing)


def test_what_was_noted_is_shown_and_needs_nothing_of_a_person() -> None:
    plan = gated(
        "requeue", *checks("n1"), NodeCheck("n1", "history", "noted", "first error in 3 of the last 5 attempts")
    )
    assert plan.typed is None
    assert ("", "noted: n1 (history): first error in 3 of the last 5 attempts") in only(plan).facts


def test_what_was_not_checked_is_said_and_needs_nothing_of_a_person() -> None:
    plan = gated("requeue", *checks("n1"), NodeCheck("n2", "ECC", "not checked", "it is late"))
    assert plan.typed is None
    assert [text for label, text in only(plan).facts if label in ("nodes", "")] == [
        "1 node: 3 checks passed; 1 node: 0 of 1 checks passed", "not checked: n2 (ECC): it is late",
    ]  # fmt: skip
    asked = planned("requeue", seen=readback(RUNNING, errors={"llm start": "login: no such partition"}))
    assert ("nodes", "not checked: the next nodes of llm: login: no such partition") in only(asked).facts


def test_a_plan_of_sixty_four_nodes_fits_a_screen_with_the_faults_first() -> None:
    names = [f"gpu-{number:03}" for number in range(64)]
    late = [NodeCheck(name, check, "not checked", "no answer in 10s") for name in names[:20] for check in CHECKS]
    shown = list(
        check_lines((*late, *checks(*names[20:]), *(fault(name, why=f"Xid on {name}") for name in names[20:30])))
    )
    assert shown[:2] == [
        "34 nodes: 3 checks passed; 20 nodes: 0 of 3 checks passed; 10 nodes: 3 of 4 checks passed",
        "fault: gpu-020 (Xids): Xid on gpu-020",
    ]
    assert shown[-1] == "and 5 more, which --json lists"
    assert len(shown) == 8
    (only_late,) = list(check_lines(late))[1:]
    assert only_late == (
        "not checked: gpu-000, gpu-001, gpu-002 and 17 more (GPUs listed, ECC, Xids): no answer in 10s"
    )


def test_the_nodes_of_the_last_attempt_and_those_that_slurm_names_are_checked() -> None:
    last = attempt(0, nodes=("n1", "n2"))
    assert nodes_of(ask("requeue"), watched(last)) == ("n1", "n2")
    assert nodes_of(ask("requeue"), watched(last), starts={"llm start": TEST}) == ("n1", "n2", "n3")
    assert nodes_of(ask("requeue"), state(), starts={"llm start": "sbatch: error"}) == ("n1", "n2")
    assert nodes_of(ask("requeue"), state(), starts={"llm start": HET}) == ("n1", "n2", "n4")


def test_an_answer_of_slurm_without_nodes_is_no_pass() -> None:
    seen = readback(RUNNING, checks={"llm": checks("n1")}, starts={"llm start": "sbatch: Job 9 is accepted\n"})
    (unnamed,) = (one for one in planned("requeue", seen=seen).checks if not one.node)
    assert (unnamed.check, unnamed.outcome, unnamed.why) == (
        "the next nodes of llm",
        "not checked",
        "Slurm does not name them yet",
    )


def test_nodes_that_the_next_attempt_avoids_are_not_checked() -> None:
    of = state(replace(RUNNING, excluded=("n2",)))
    assert nodes_of(ask("requeue"), of, starts={"llm start": TEST}) == ("n1", "n3")
    bad = attempt(0, "gpu-hardware", "n2", nodes=("n1", "n2"))
    assert nodes_of(ask("requeue", is_retry=True), watched(bad)) == ("n1",)
    assert nodes_of(ask("requeue"), watched(bad)) == ("n1", "n2")  # a person may not exclude it


def test_slurm_is_asked_with_the_script_that_would_run() -> None:
    def asked(verb: Any, **fields: Any) -> Any:
        (read,) = planning.reads_for_plan(ask(verb), state(replace(RUNNING, **fields)), readback())
        return read.start

    assert asked("requeue", partition="train", excluded=("n9",)) == (
        "llm start", "91", ("sbatch", "--test-only", "--partition=train", "--nodes=2", "--exclude=n9"),
    )  # fmt: skip
    assert asked("queue") == ("llm start", "", ("sbatch", "--test-only", "/fsx/train.slurm"))
    assert planning.reads_for_plan(ask("cancel"), state(), readback())[0].start is None
