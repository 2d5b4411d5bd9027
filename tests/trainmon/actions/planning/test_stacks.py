"""Plans to read stacks: whom they ask, how, and when they are refused."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.actions.cluster import NOW, RUNNING, node, only, planned, readback, refused, state
from trainmon.actions.planning import offered
from trainmon.model import (
    Attempt,
    Plan,
    RankMap,
    RankProcess,
    RankProcesses,
    RankWay,
    ReadStacks,
    State,
)


def known() -> State:
    """Four ranks on each of two nodes, on the GPUs of their numbers."""
    each = {"n1": range(4), "n2": range(4, 8)}
    nodes = {
        name: replace(
            node(name),
            ranks=RankProcesses(
                1, NOW, tuple(RankProcess(100 + at, 50.0, (), "torchrun", at, 8, at, 91) for at in ranks), user="ana"
            ),
        )
        for name, ranks in each.items()
    }
    ranks = RankMap(launcher="torchrun", ranks=8, nodes={name: dict.fromkeys(own, ()) for name, own in each.items()})
    attempt = Attempt(attempt_id="prod/88.0", run_id="llm", cluster="prod", job_id="88_3", ranks=ranks)
    return state(RUNNING, nodes=nodes, attempts={"prod/88.0": attempt})


def ways(*, by: dict[int, str], why: str = "it is in state D") -> tuple[RankWay, ...]:
    return tuple(
        RankWay(
            rank=at,
            node=f"n{1 + at // 4}",
            pid=100 + at,
            started_s=50.0,
            way=by.get(at, ""),
            why="" if at in by else why,
        )  # type: ignore[arg-type]
        for at in range(8)
    )


def plan(found: tuple[RankWay, ...] | None = None, of: State | None = None, **errors: str) -> Plan:
    seen = (
        readback(RUNNING, errors=errors) if found is None else readback(RUNNING, stacks={"llm": found}, errors=errors)
    )
    return planned("stacks", of=known() if of is None else of, seen=seen)


def test_a_plan_shows_whom_it_asks_where_and_how() -> None:
    action = only(plan(ways(by={**dict.fromkeys(range(6), "py-spy"), 6: "signal"})))
    assert action.title == "Read the stacks of 7 ranks of llm"
    assert action.facts[:3] == (
        ("n1", "ranks 0-3, pids 100-103"), ("n2", "ranks 4-6, pids 104-106"), ("not read", "rank 7: it is in state D"),
    )  # fmt: skip
    assert isinstance(action.operation, ReadStacks)
    assert [one.rank for one in action.operation.ranks] == [*range(7)]
    assert action.operation.shown == (
        "ranks 0-5 by the py-spy of their environment: `py-spy dump --nonblocking`, at most 10s each; rank 6 by a "
        "signal on which trainmon_hooks writes the stack of the main thread into memory"
    )
    assert ("command", action.operation.shown) in action.facts
    assert len(action.warnings) == 2
    assert plan(ways(by={6: "signal"})).actions[0].warnings == action.warnings[1:]


def test_it_is_refused_with_the_reasons_where_nobody_can_be_asked() -> None:
    found = refused(plan(ways(by={}, why="its environment has no py-spy, and no trainmon_hooks listens in it")))
    assert found.why == (
        "no rank can be asked: ranks 0-7: its environment has no py-spy, and no trainmon_hooks listens in it"
    )
    assert found.hint == "install py-spy in the environment of the trainer, or use trainmon_hooks"
    assert refused(plan(llm="n1 has not answered")).why == "n1 has not answered"


def test_it_is_offered_only_for_runs_whose_ranks_are_known() -> None:
    offers = {one.verb: one.refusal for one in offered(known(), [("run", "llm")], NOW)}
    assert offers["stacks"] is None


def test_where_the_ranks_are_not_known_it_says_why() -> None:
    def why(ranks: RankProcesses | None, **of_attempt: Any) -> str:
        attempt = Attempt(attempt_id="a", run_id="llm", cluster="prod", job_id="88_3", **of_attempt)
        nodes = {"n1": replace(node("n1"), ranks=ranks)}
        found = refused(plan(of=state(RUNNING, nodes=nodes, attempts={"a": attempt})))
        assert found.hint == ""
        return found.why.removeprefix("it is not known which processes are the ranks of llm: ")

    assert why(None) == "its nodes are not known"
    assert why(None, nodes=("n1", "n9")) == "the processes on n1, n9 are not read"
    none, one = (
        RankProcesses(1, NOW, ranks, user="ana")
        for ranks in ((), (RankProcess(100, 50.0, (), "torchrun", 0, 8, 0, 91),))
    )
    assert why(none, nodes=("n1",)) == "no process on n1 has the number of a rank in its environment"
    assert why(one, nodes=("n1",)) == "which of the ranks on n1 are its own is not certain"
