"""report: GPU hours by category, as synthetic ledgers of which the truth is known must give them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from tests.lab.ledgers import BEGIN, HOUR, told
from tests.trainmon.analysis.retries.attempts import ended
from trainmon.analysis.explanation import Grouping, Report, report, report_object, report_page, report_sentence
from trainmon.analysis.explanation.report import CATEGORIES
from trainmon.model import Attempt, CauseName

PRICES = {"prod": 2.0}
SEEDS = range(12)


def reported(attempts: Iterable[Attempt], until: float, since: float = BEGIN - 10, **more: Any) -> Report:
    return report([*attempts], since, until, PRICES, **more)


def texts(found: Report, title: str) -> list[str]:
    """The rows of a section."""
    sections = {section.title: section.rows for section in report_page(found)}
    return [f"{row.label} {row.text}".strip() for row in sections.get(title, ())]


# ---- where all is known ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gpu_hours_are_those_of_the_truth(seed: int) -> None:
    ledger = told(seed)
    found = reported(random.Random(seed).sample(ledger.attempts, len(ledger.attempts)), ledger.until)
    truth = {name: ledger.gpu_hours.get(name, 0.0) for name in CATEGORIES}
    assert found.totals.hours == pytest.approx(truth)
    assert found.totals.total == pytest.approx(sum(truth.values()))
    assert found.totals.failures == ledger.failures
    held = sum(truth.values()) - truth["queued"] - truth["down"]
    assert found.totals.held == pytest.approx(held)
    assert (found.cost, found.wasted) == (pytest.approx(2 * held), pytest.approx(2 * (held - truth["productive"])))
    low, high = found.totals.ettr or (0.0, 0.0)
    assert low == high == pytest.approx(truth["productive"] / sum(truth.values()))


@pytest.mark.parametrize("group", get_args(Grouping))
def test_the_groups_add_up_to_the_total(group: Grouping) -> None:
    ledger = told(5)
    found = reported(ledger.attempts, ledger.until, group=group)
    for name in CATEGORIES:
        assert sum(one.hours[name] for one in found.groups.values()) == pytest.approx(found.totals.hours[name])
    if group != "node":
        assert sum(one.failures for one in found.groups.values()) == found.totals.failures


@pytest.mark.parametrize("seed", SEEDS)
def test_periods_that_follow_each_other_add_up(seed: int) -> None:
    ledger = told(seed)
    cuts = [BEGIN - 10, BEGIN + 7_321, BEGIN + 40_123, ledger.until]
    parts = [reported(ledger.attempts, until, since).totals for since, until in pairwise(cuts)]
    whole = reported(ledger.attempts, ledger.until).totals
    assert sum(one.total for one in parts) == pytest.approx(whole.total)
    assert sum(one.held for one in parts) == pytest.approx(whole.held)
    assert sum(one.failures for one in parts) == whole.failures


# ---- where something is missing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lost", [
    {"watched_s": 0.0, "hung_s": 0.0, "hung_since": None, "saving_s": 0.0, "saves": 0, "first_step_at": None},
    {"watched_s": 0.0, "hung_s": 0.0, "hung_since": None, "saving_s": 0.0, "saves": 0},
    {"has_checkpoints": False, "last_committed_step": None}, {"first_step_at": None},
])  # fmt: skip
def test_the_truth_is_within_the_range_of_what_is_known(seed: int, lost: dict[str, Any]) -> None:
    """In half of the attempts, the daemon was down, their checkpoints or the first step are not known."""
    ledger, dice = told(seed), random.Random(seed)
    found = reported((replace(one, **lost) if dice.random() < 0.5 else one for one in ledger.attempts), ledger.until)
    low, high = found.totals.ettr or (1.0, 0.0)
    truth = ledger.gpu_hours["productive"] / sum(ledger.gpu_hours.values())
    assert low - 1e-9 <= truth <= high + 1e-9
    assert low < high
    assert found.totals.total == pytest.approx(sum(ledger.gpu_hours.values())), "each second is in one category"
    as_json = report_object(found)
    assert (as_json["ettr"], as_json["ettr_range"]) == (None, [low, high])
    assert f"goodput {found.totals.goodput[0] if found.totals.goodput else 0:.1%} to " in report_sentence(found)


def test_a_clock_that_is_ahead_counts_nothing_twice() -> None:
    ledger = told(4)
    ahead = [replace(one, started_at=(one.started_at or 0.0) - 5.0) for one in ledger.attempts if one.run_id == "run-0"]
    found, truth = (reported(each, ledger.until) for each in (ahead, [*told(4).attempts]))
    own = reported(ledger.attempts, ledger.until, run="run-0")
    gpus = ahead[0].gpus or 0
    assert own.totals.total <= found.totals.total <= own.totals.total + gpus * 5 / HOUR + 1e-9
    assert truth.totals.total > own.totals.total


def test_what_is_missing_is_named() -> None:
    first = told(4).attempts[0]
    steps = {"resumed_from": 100, "first_step": 101, "last_step": 900}
    attempts = [
        replace(first, gpus=None), replace(first, attempt_id="2", run_id="b", restart=3, has_checkpoints=False),
        replace(first, attempt_id="3", run_id="c", watched_s=0.0, saves=0), replace(first, attempt_id="4", end=None),
        replace(first, attempt_id="5", run_id="d", started_at=None, first_step_at=None, **steps),
        replace(first, attempt_id="6", run_id="e", end=first.end and replace(first.end, source="lost", cause=None)),
        replace(first, attempt_id="7", run_id="f", last_step=None, log_host=None, first_step_at=None),
    ]  # fmt: skip
    found = report(attempts, BEGIN - 1e6, BEGIN + 1e6, {})
    said = "\n".join(found.missing)
    for words in (
        "The ledger begins at 2023-11-14 ", "The first attempts of b, d in the ledger resumed",
        "1 attempt of d has no known start", "1 attempt of run-0 has no known GPU count",
        "1 attempt of f has no known step", "1 attempt of c has steps that were not watched all the time",
        "1 attempt of b has lost steps that are not known", "1 attempt of e has an end that nothing reported",
        "1 attempt of run-0 has no end, and has not been seen lately", "1 attempt of e has no known cause",
        "No gpu_hour_price in [cluster] prod",
    ):  # fmt: skip
        assert words in said, said
    assert found.cost is None
    assert found.totals.mttf is None


def test_what_was_lost_and_a_silence_to_the_end_are_at_the_end() -> None:
    """Of 100 hours: the report of the last 10 hours has all of the silence of 6, and 4 of the 9.4 that were lost."""
    one = ended(
        0, "nccl-timeout", first_step_at=BEGIN, start_was_watched=True, watched_s=100 * HOUR, last_step=100,
        has_checkpoints=True, last_committed_step=90, hung_since=BEGIN + 94 * HOUR, gpus=1,
    )  # fmt: skip
    one = replace(one, end=one.end and replace(one.end, at=BEGIN + 100 * HOUR))
    for since, wanted in ((0, (84.6, 9.4, 6.0)), (90, (0.0, 4.0, 6.0))):
        hours = reported([one], BEGIN + 100 * HOUR, BEGIN + since * HOUR).totals.hours
        assert (hours["productive"], hours["lost"], hours["hung"]) == pytest.approx(wanted)


@pytest.mark.parametrize(("first", "resumed", "starting"), [(10, None, 0.25), (8010, 8000, 0.25), (8010, None, 0.0)])
def test_a_log_that_was_rotated_does_not_show_how_long_an_attempt_was_starting(
    first: int, resumed: int | None, starting: float
) -> None:
    dated = {"first_step_at": BEGIN + HOUR / 4, "first_step_is_dated": True, "first_step": first}
    one = ended(0, "completed", **dated, resumed_from=resumed, last_step=9000, has_checkpoints=True, gpus=1)
    hours = reported([one], BEGIN + HOUR).totals.hours
    assert (hours["starting"], hours["unknown"]) == (starting, 0.5 - starting)


@pytest.mark.parametrize(("cause", "lasted", "step", "starting"), [
    ("completed", 0.5, None, 0.0), ("time-limit", 24, None, 0.0), ("import-error", 0.5, None, 0.5),
    ("completed", 0.5, 900, 0.0), ("time-limit", 24, 900, 24.0),
])  # fmt: skip
def test_a_log_whose_steps_nobody_recognises_does_not_show_that_none_was_made(
    cause: CauseName, lasted: float, step: int | None, starting: float
) -> None:
    """`step`: the last one of another attempt of the run, if such lines are recognised."""
    one = ended(0, cause, gpus=1, log_host="login1")
    one = replace(one, end=one.end and replace(one.end, at=BEGIN + lasted * HOUR))
    other = ended(30, "completed", last_step=step, job_id="89", restart=0)
    hours = reported([one, other], BEGIN + 25 * HOUR).totals.hours
    assert (hours["starting"], hours["unknown"]) == (starting, lasted - starting)


def test_a_silence_counts_as_long_as_somebody_watched_it() -> None:
    """The daemon stopped an hour after the last step, and the attempt was seen again nine hours later."""
    one = ended(
        0, "node-fail", first_step_at=BEGIN, start_was_watched=True, watched_s=HOUR, last_step=100,
        has_checkpoints=True, last_committed_step=100, hung_since=BEGIN, watched_until=BEGIN + HOUR, gpus=1,
    )  # fmt: skip
    one = replace(one, end=one.end and replace(one.end, at=BEGIN + 10 * HOUR))
    hours = reported([one], BEGIN + 10 * HOUR).totals.hours
    assert (hours["hung"], hours["unknown"]) == pytest.approx((1.0, 9.0))


def test_an_attempt_that_is_no_longer_seen_may_still_run() -> None:
    one = replace(told(4).attempts[0], end=None)
    known, later = (reported([one], one.seen_at + after).totals for after in (60.0, 10 * HOUR))
    assert known.hours["unknown"] == 0
    assert later.hours["unknown"] == pytest.approx(10 * (one.gpus or 0))
    assert later.held == known.held, "accounting would say"


def test_a_run_that_is_down_now_is_named() -> None:
    """llm failed an hour ago and nothing has started since; the other run has completed."""
    other = ended(1, "completed", run_id="other")
    found = reported([ended(0, "node-fail"), other], BEGIN + 1.5 * HOUR, group="run")
    assert "Not started again, and not counted as down: llm for 1h." in found.missing
    assert "down" not in " ".join(reported([ended(0, "node-fail"), ended(1, "completed")], BEGIN + 1e5).missing)


def test_the_report_of_one_run_knows_since_when_the_ledger_records() -> None:
    later = ended(100, "completed", run_id="later")
    assert not any(
        "begins" in text for text in reported([ended(0, "completed"), later], 1e9, BEGIN, run="later").missing
    )


def test_an_attempt_that_ended_before_the_period_is_none_of_it_although_its_run_was_down() -> None:
    found = reported([ended(0, "node-fail"), ended(1, "completed")], BEGIN + 2 * HOUR, BEGIN + 0.75 * HOUR).totals
    assert (found.attempts, found.hours["down"], found.failures) == (1, 2.0, 0)


@pytest.mark.parametrize(("more", "cost"), [({}, "16.00"), ({"gpus": None}, "at least 8.00")])
def test_a_cost_without_the_gpus_of_an_attempt_is_the_least(more: dict[str, Any], cost: str) -> None:
    found = reported([ended(0, "completed"), ended(1, "completed", run_id="b", **more)], BEGIN + 1e5)
    assert f"cost {cost}, of which 0.00 starting, lost, hung or saving" in texts(found, "Figures")
    assert report_object(found)["is_least"] == bool(more)


def test_no_save_has_ended_yet() -> None:
    """The only save still lasts: nothing is known of how long one takes."""
    steps = {"first_step_at": BEGIN, "start_was_watched": True, "watched_s": 1800.0, "last_step": 9}
    saving = ended(0, "node-fail", saves=1, saving_since=BEGIN + 900, **steps, has_checkpoints=True)
    assert reported([saving], BEGIN + 1e5).advice == ()


# ---- few failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failures", "says"), [
    (0, "MTTF too few to say; 95% interval: at least 41m (0 failures in 2h30m)"),
    (4, "MTTF too few to say; 95% interval: 15m to 2h18m (4 failures in 2h30m)"),
    (5, "MTTF 30m; 95% interval: 13m to 1h32m (5 failures in 2h30m)"),
])  # fmt: skip
def test_few_failures_have_an_interval_only(failures: int, says: str) -> None:
    causes = ["node-fail"] * failures + ["preempted"] * (5 - failures)
    found = reported([ended(number, cause) for number, cause in enumerate(causes)], BEGIN + 1e6)  # type: ignore[arg-type]
    assert says in texts(found, "Figures")
    unseen = reported([replace(ended(0, "node-fail"), started_at=None)], BEGIN + 1e6)
    assert "MTTF not known: no running time was recorded" in texts(unseen, "Figures")


def test_a_node_has_what_would_be_expected_beside_its_failures() -> None:
    """Of 40 attempts on 8 nodes, one after the other, each eighth one fails: all on the same node."""
    causes = ["node-fail" if number % 8 == 3 else "completed" for number in range(40)]
    attempts = [ended(n, cause, nodes=(f"n{n % 8}",)) for n, cause in enumerate(causes)]  # type: ignore[arg-type]
    rows = texts(reported(attempts, BEGIN + 1e6, group="node"), "By node")
    assert rows[0].split() == ["ATTEMPTS", "FAILED", "EXPECTED", "GPU-H", "NODE"]
    assert rows[1].split() == ["5", "5", "0.6", "20.0", "n3"]
    assert rows[2].split() == ["5", "0", "0.6", "20.0", "n0"]
    assert rows[-1] == (
        "FAILED counts the failed attempts in which the node took part: that blames none. By chance alone, some node "
        "of 8 has 5 or more in 0.4% of cases."
    )


def test_a_run_that_saves_seldom_is_told_how_often_to_save() -> None:
    attempts = [
        ended(
            number, "node-fail", first_step_at=BEGIN + number * HOUR + 120, start_was_watched=True, watched_s=1_680.0,
            saving_s=60.0, saves=2, last_step=100, has_checkpoints=True, last_committed_step=90,
        )
        for number in range(6)
    ]  # fmt: skip
    found = reported(attempts, BEGIN + 6 * HOUR)
    assert texts(found, "Saves")[0] == (
        "llm a checkpoint every 5m instead of 14m: +8.9% ETTR (68.3% → 77.3%, expected)"
    )
    few = reported(attempts[:2], BEGIN + 2 * HOUR)
    assert texts(few, "Saves")[0] == "llm too few failures to say: every 3m to 15m (now 14m)"


def test_a_ledger_without_attempts_gives_no_number() -> None:
    found = report_object(report([], 0.0, 1.0, {}))
    assert {*found["gpu_hours"].values()} == {None}
    assert [found[name] for name in ("goodput", "ettr", "mttf_hours", "mttf_range_hours", "cost", "attempts")] == [
        None, None, None, None, None, 0,
    ]  # fmt: skip
