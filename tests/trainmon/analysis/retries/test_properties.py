"""What holds for the decisions about any history of attempts."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.trainmon.analysis.retries.attempts import ended
from trainmon.analysis.retries import STORM, RetryDecision, decide, history_of, progressing
from trainmon.model import Attempt, RetryPolicy

FAILURES = st.fixed_dictionaries({
    "cause": st.sampled_from(["nccl-timeout", "segfault", "python-exception", "cuda-oom", "preempted", "data-error"]),
    "fingerprint": st.sampled_from(["a", "b"]),
    "last_step": st.one_of(st.none(), st.integers(0, 5)),
    "last_committed_step": st.one_of(st.none(), st.integers(0, 5)),
    "has_checkpoints": st.booleans(),
    "config_hash": st.sampled_from([None, "x", "y"]),
})  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[Attempt]:
    failures: list[dict[str, Any]] = draw(st.lists(FAILURES, min_size=1, max_size=8))
    return [ended(number, **failure) for number, failure in enumerate(failures)]


def decided(attempts: list[Attempt], attempt: Attempt | None = None) -> RetryDecision:
    decision = decide(attempt or attempts[-1], attempts, RetryPolicy())
    assert decision is not None
    return decision


@given(histories(), st.randoms())
def test_the_order_in_which_attempts_are_known_does_not_matter(attempts: list[Attempt], chance: random.Random) -> None:
    shuffled = chance.sample(attempts, len(attempts))
    assert decide(attempts[-1], shuffled, RetryPolicy()) == decided(attempts)


@given(histories())
def test_later_attempts_and_those_of_other_runs_change_nothing(attempts: list[Attempt]) -> None:
    first = decided(attempts[:1])
    assert decided(attempts, attempts[0]) == first
    assert decided([ended(-1, "segfault", run_id="other"), *attempts]) == decided(attempts)


@given(histories())
def test_a_retry_is_suggested_only_within_its_budget(attempts: list[Attempt]) -> None:
    decision = decided(attempts)
    assert decision.spent < len(attempts)
    assert decision.choice == "stop" or decision.left > 0


@given(histories())
def test_an_attempt_with_net_progress_spends_nothing(attempts: list[Attempt]) -> None:
    history = history_of(attempts[-1], attempts)
    if [*progressing(history)][-1]:
        assert decided(attempts).spent == 0


@given(histories())
def test_whoever_obeys_never_retries_in_vain_more_often_than_a_storm_takes(attempts: list[Attempt]) -> None:
    """Drop each attempt that the decisions forbid, and the rest has no longer streak without net progress."""
    obeyed: list[Attempt] = []
    streak = 0
    for attempt in attempts:
        if obeyed and decided(obeyed).choice == "stop":
            break
        streak = 0 if not obeyed or [*progressing([*obeyed, attempt])][-1] else streak + 1
        obeyed.append(attempt)
    assert streak <= STORM
