"""A node is bad only if it fails more often than chance and the number of nodes explain."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.trainmon.analysis.retries.attempts import BEGIN, HOUR, ended
from trainmon.analysis.retries import FEW, KEPT, decide, judged, kept, record_text, use_of, verdict
from trainmon.analysis.retries.history import FAILURES_AT_MOST, probabilities
from trainmon.model import Attempt, NodeEvent, RetryPolicy

NODES = tuple(f"n{number}" for number in range(16))

CALM = [ended(number, "completed", nodes=NODES, run_id=f"calm-{number}") for number in range(400)]
"""200 hours in which all nodes work."""


def failed(count: int, *nodes: str, facts: bool = True, first: int = 1_000) -> list[Attempt]:
    """Attempts of several runs that failed on these nodes after half a day. The cause names the first node, or none."""
    named = [f"{nodes[0]}: Xid 79"] if facts else []
    each: list[Attempt] = []
    for number in range(first, first + count):
        began = BEGIN + (number - 12) * HOUR
        each.append(ended(number, "gpu-hardware", *named, nodes=nodes, run_id=f"run-{number}", started_at=began))
    return each


def bad(attempts: Sequence[Attempt]) -> list[str]:
    return [one.node for one in judged(map(use_of, attempts)).values() if one.is_bad]


def test_a_node_with_most_first_errors_is_bad() -> None:
    assert bad([*CALM, *failed(5, "n7", "n3"), *failed(1, "n1", first=2_000)]) == ["n7"]


def test_below_five_failures_there_are_too_few_to_say() -> None:
    records = judged(map(use_of, [*CALM, *failed(FEW - 1, "n7")]))
    one = records["prod/n7"]
    assert (one.is_bad, one.probability, one.failures) == (False, 0.0, 4)
    assert verdict("prod", records) == "prod: 4 failures on 16 nodes in 90 days; too few to say"


def test_failures_that_are_spread_over_equal_nodes_accuse_nobody() -> None:
    """20 failures on 64 nodes give one of them at least 3 in one of five cases."""
    nodes = [f"n{number}" for number in range(64)]
    work = [ended(number, "completed", nodes=tuple(nodes), run_id=f"calm-{number}") for number in range(1_000)]
    spread = random.Random(7).sample(nodes, 17)
    errors = [one for number, node in enumerate((*spread, *["n9"] * 3))
              for one in failed(1, node, first=2_000 + number)]  # fmt: skip
    assert bad([*work, *errors]) == []


def test_an_attempt_that_failed_on_many_nodes_blames_none_of_them() -> None:
    assert bad([*CALM, *failed(8, *NODES, facts=False)]) == []


def test_two_nodes_that_always_fail_together_share_the_doubt_until_one_fails_alone() -> None:
    together = failed(8, "n1", "n2", facts=False)
    found = judged(map(use_of, [*CALM, *together]))
    assert found["prod/n1"].probability == pytest.approx(found["prod/n2"].probability)
    assert 0.4 < found["prod/n1"].probability < 0.6
    assert bad([*CALM, *together, *failed(6, "n1", "n3", facts=False, first=2_000)]) == ["n1"]


def test_a_run_that_fails_by_itself_does_not_make_its_node_bad() -> None:
    """Its program has a bug, and its job is pinned to one node. The same failures of several runs are the node's."""
    pinned = [replace(one, run_id="buggy") for one in failed(10, "n7", facts=False)]
    assert bad([*CALM, *pinned]) == []
    assert bad([*CALM, *failed(10, "n7", facts=False)]) == ["n7"]


@pytest.mark.parametrize("partition", [1, 2, 4])
def test_where_all_work_fails_it_may_be_the_work(partition: int) -> None:
    """A partition for tests, or of a user whose programs have a bug. Xids on one of its nodes are facts about that."""
    dice, work = random.Random(partition), list[Attempt]()
    for number in range(120):
        has_bug = number % 5 == 0
        node = dice.choice(NODES[-partition:] if has_bug else NODES[:-partition])
        one = ended(number, "hang" if has_bug else "completed", nodes=(node,), run_id=f"job-{number}")
        ran = dice.uniform(1, 24) if has_bug else 60.0
        work.append(replace(one, started_at=BEGIN + (number - ran) * HOUR))
    assert bad(work) == []
    assert bad([*work, *failed(4, "n15")]) == ["n15"]


def test_attempts_whose_start_is_not_known_accuse_nobody() -> None:
    """By their lengths, each node would have failed in no time."""
    dice, attempts = random.Random(3), list[Attempt]()
    for number in range(200):
        node = f"n{dice.randrange(40)}"
        facts = () if number % 8 else (f"{node}: Xid 79",)
        one = ended(number, "gpu-hardware" if facts else "completed", *facts, nodes=(node,), run_id=f"run-{number}")
        attempts.append(replace(one, started_at=None, first_step_at=None))
    assert bad(attempts) == []


def test_failures_that_no_node_causes_do_not_count() -> None:
    own = [ended(1_000 + number, "cuda-oom", nodes=("n7",), run_id=f"run-{number}") for number in range(20)]
    assert judged(map(use_of, [*CALM, *own]))["prod/n7"].failures == 0


def test_nodes_are_compared_with_those_of_their_cluster() -> None:
    other = [ended(number, "hang", nodes=("a", "b"), cluster="other", run_id=f"other-{number}") for number in range(9)]
    found = judged(map(use_of, [*CALM, *failed(5, "n7"), *other]))
    assert [name for name, one in found.items() if one.is_bad] == ["prod/n7"]
    assert (found["other/a"].cluster, found["other/a"].failures, found["prod/n7"].failures) == ("other", 9, 5)


def test_the_record_counts_what_it_says() -> None:
    attempts = [*CALM[:3], *failed(2, "n7", "n3"), *failed(1, "n7", "n2", facts=False, first=2_000)]
    one = judged(map(use_of, attempts))["prod/n7"]
    assert (one.ends, one.first_errors, one.unnamed, one.failures) == (6, 2, 1, 3)
    assert one.expected == pytest.approx(2 * 39.0 / (3 * 8.0 + 6 * 12.5), abs=0.01)  # hours of n7, of all
    rules = ("xid", "slow-link", "xid", "first-error")
    seen = [NodeEvent(at=0.0, cluster="prod", node="n7", what=what, text="") for what in rules]
    assert record_text(one, seen) == (
        f"first error in 2 of the last 6 attempts ({one.expected:.1f} expected), "
        "took part in 1 failure without a known node, 2 Xids, 1 slow link"
    )
    assert record_text(replace(one, ends=0, first_errors=0, unnamed=0), seen[:1]) == "no attempt has ended on it, 1 Xid"


def test_an_attempt_counts_for_90_days_and_the_last_report_of_it_counts() -> None:
    old, new = ended(0, "hang"), ended(int(KEPT / HOUR), "hang")
    again = ended(int(KEPT / HOUR), "completed")
    assert [one.failure for one in kept(map(use_of, [old, new, again])).values()] == [None]


@given(st.lists(st.tuples(st.sampled_from(NODES), st.booleans()), min_size=1, max_size=12))
def test_probabilities_are_probabilities_whatever_failed(errors: list[tuple[str, bool]]) -> None:
    failures = [one for number, (node, facts) in enumerate(errors)
                for one in failed(1, node, "n1", facts=facts, first=number)]  # fmt: skip
    found = probabilities(list(map(use_of, [*CALM[:9], *failures])))
    assert all(0.0 <= one <= 1.0 + 1e-9 for one in found.values())


def test_a_retry_avoids_a_bad_node_of_its_attempt() -> None:
    attempts = [*CALM, *failed(6, "n7", "n3")]
    records = judged(map(use_of, attempts))
    last = ended(3_000, "nccl-timeout", nodes=("n7", "n5"))
    decision = decide(last, [last], RetryPolicy(), records)
    assert decision is not None
    assert (decision.choice, decision.exclude) == ("after-node-swap", ("n7",))
    assert decision.why.startswith("nccl-timeout; n7: first error in 6 of the last 406 attempts (")
    elsewhere = decide(ended(3_000, "nccl-timeout", nodes=("n7",), cluster="other"), [], RetryPolicy(), records)
    assert elsewhere is not None
    assert elsewhere.exclude == (), "another cluster has a node of that name"


def test_a_retry_says_that_the_failures_are_too_few_to_say() -> None:
    records = judged(map(use_of, [*CALM, *failed(3, "n7", "n3")]))
    decision = decide(ended(3_000, "nccl-timeout", nodes=("n7",)), [], RetryPolicy(), records)
    assert decision is not None
    assert decision.why == "nccl-timeout is often transient; 3 failures are too few to say which node is bad"


def test_of_very_many_failures_the_newest_count_with_the_work_since_then() -> None:
    old = failed(FAILURES_AT_MOST, "n7", first=1_000)
    new = failed(FAILURES_AT_MOST, "n3", first=2_000)
    found = judged(map(use_of, [*CALM, *old, *new]))
    assert (found["prod/n3"].failures, list(found)) == (FAILURES_AT_MOST, ["prod/n3"])
