"""A node is blamed only if chance does not explain its failures."""

from __future__ import annotations

from fractions import Fraction
from math import comb

from hypothesis import given
from hypothesis import strategies as st

from tests.trainmon.analysis.retries.attempts import ended
from trainmon.analysis.retries import blamed, decide, fisher
from trainmon.model import RetryPolicy

COUNTS = st.integers(0, 12)


def test_the_test_of_the_tea_taster_has_fishers_own_result() -> None:
    assert fisher(4, 0, 0, 4) == Fraction(1, 70)
    assert fisher(3, 1, 1, 3) == Fraction(17, 70)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_it_is_an_exact_chance_that_falls_with_each_failure(a: int, b: int, c: int, d: int) -> None:
    """Against the plain definition: the share of all choices of the failed attempts with at least that many here."""
    own, failures, total = a + b, a + c, a + b + c + d
    least = max(0, failures - (total - own))
    chances = [Fraction(comb(own, k) * comb(total - own, failures - k), comb(total, failures))
               for k in range(least, min(own, failures) + 1)]  # fmt: skip
    assert sum(chances) == 1
    assert fisher(a, b, c, d) == sum(chances[a - least :])
    assert 0 < fisher(a, b, c, d) <= 1


def test_a_node_with_most_failures_is_blamed_with_the_numbers() -> None:
    bad = [ended(n, "nccl-timeout", nodes=("n7", f"n{n}")) for n in range(6)]
    fine = [ended(10 + n, "completed", nodes=(f"n{n}", f"n{n + 1}")) for n in range(6)]
    (found,) = blamed([*bad, *fine], "prod")
    assert found.node == "n7"
    assert found.why == (
        "n7 was in 6 of 6 attempts that failed by hardware or network, and in 0 of 6 others "
        "(Fisher's exact test: p = 0.0011; 0.0087 after the correction for 8 nodes)"
    )
    decision = decide(bad[-1], [*bad, *fine], RetryPolicy(limits={}))
    assert decision is not None
    assert blamed([*bad, *fine], "other") == ()


def test_an_innocent_node_is_not_blamed_for_one_failure_among_many_nodes() -> None:
    bad = [ended(0, "nccl-timeout", nodes=("n1",))]
    fine = [ended(1 + n, "completed", nodes=(f"n{n % 20}",)) for n in range(40) if n % 20 != 1]
    assert blamed([*bad, *fine], "prod") == ()  # p = 0.026 alone, 0.53 for 20 nodes


def test_without_an_attempt_on_other_nodes_there_is_not_enough_data_to_blame_one() -> None:
    """Whatever fails then, the test gives 1.0: that clears no node."""
    same = [ended(n, "nccl-timeout" if n % 2 else "completed", nodes=("n1", "n2"), last_step=n) for n in range(8)]
    decision = decide(same[-1], same, RetryPolicy())
    assert decision is not None
    assert decision.why == (
        "nccl-timeout is often transient; not enough data to blame a node: too few attempts on others to compare with"
    )
    last = ended(9, "gpu-hardware", nodes=("n1", "n2"), last_step=9)
    decision = decide(last, [*same, last], RetryPolicy())
    assert decision is not None
    assert decision.why == (
        "gpu-hardware stays with its node, and the node is not known; "
        "not enough data to blame a node: too few attempts on others to compare with"
    )
    others = [ended(n - 20, "completed", nodes=("n3",), run_id="other") for n in range(20)]
    decision = decide(same[-1], [*same, *others], RetryPolicy())
    assert decision is not None
    assert "not enough data" not in decision.why, "n1 and n2 could be blamed, and are"


def test_the_blamed_node_of_a_retry_is_excluded() -> None:
    bad = [ended(n, "nccl-timeout", nodes=("n7", f"n{n}"), last_step=n) for n in range(6)]
    fine = [ended(n - 10, "completed", nodes=(f"n{n}", f"n{n + 1}"), run_id="other") for n in range(6)]
    decision = decide(bad[-1], [*bad, *fine], RetryPolicy())
    assert decision is not None
    assert (decision.choice, decision.exclude) == ("after-node-swap", ("n7",))
    assert decision.why.startswith("nccl-timeout: n7 was in 6 of 6 attempts")
