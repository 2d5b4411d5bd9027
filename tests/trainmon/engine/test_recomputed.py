"""The log of a run that restarts from a checkpoint: what its attempt, its page and an alert say of the same steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.test_recomputed import FIRST, STEPS, as_before, flipped, trained
from tests.trainmon.analysis.wandb.test_client_file import BEGUN, NEW, NOW, PATH, rows
from tests.trainmon.engine.reducers.test_reduce import chunk, reading_of
from tests.trainmon.engine.test_engine import FakeClock
from trainmon.alerting.rules.runs.attempts import StepsDiffer
from trainmon.analysis.explanation import AttemptRecords, explain, page
from trainmon.engine.engine import Engine
from trainmon.model import Attempt, AttemptsRestored, Job, JobsListed, NodeReading, RunsChanged, RunSpec, State

LINE = (
    " iteration {:8d}/   90000 | elapsed time per iteration (ms): 1000.0 | learning rate: {:.6E} | "
    "lm loss: {:.6E} | grad norm: {:.3f} | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
SPEC = RunSpec(name="llm", cluster="prod", log="/fsx/1.out", job="llm")


def job(restarts: int, *nodes: str) -> JobsListed:
    at = 1_000.0 + 1_000.0 * restarts
    one = Job(
        cluster="prod", number=88, id="88", name="llm", user="me", state="RUNNING", restarts=restarts,
        submitted_at=at - 50.0, started_at=at - 10.0, nodes=nodes, node_count=len(nodes), stdout="/fsx/1.out",
    )  # fmt: skip
    return JobsListed("prod", at, (one,))


def restarted(*changes: Callable[..., tuple[float, float]], steps: Sequence[int] = (), rate: float = 1e-4) -> State:
    """Job 88 has trained to the end of these steps, and again, on another node, from the first one on. `steps`: how
    many each attempt made. The last one has this learning rate, after a while."""
    engine = Engine(FakeClock())
    engine.step([RunsChanged((SPEC,))], 900.0)
    for restarts, change in enumerate((as_before, *changes)):
        values = trained(change)[: steps[restarts] if steps else None]
        engine.step([job(restarts, "n1", f"n{2 + restarts}")], 1_000.0 + 1_000.0 * restarts)
        for at in range(0, len(values), 10):
            now = 1_001.0 + 1_000.0 * restarts + at
            rows = enumerate(values[at : at + 10], FIRST + at)
            now_rate = rate if restarts == len(changes) and at >= 30 else 1e-4
            lines = [LINE.format(step, now_rate, loss, norm) for step, (loss, norm) in rows]
            begun = ["loading checkpoint from /ckpt at iteration 999"] if at == 0 and restarts else []
            engine.step([reading_of(chunk(*begun, *lines, t=now, mtime=now, path="/fsx/1.out"), at=now)], now)
    return engine.state


def last(state: State) -> Attempt:
    return max(state.attempts.values(), key=lambda one: one.start)


def same_steps(state: State) -> list[str]:
    attempts = tuple(state.attempts.values())
    sections = page(explain(last(state), AttemptRecords(attempts=attempts)))
    return [row.text for section in sections for row in section.rows if row.label == "same steps"]


def test_steps_that_give_the_same_are_equal_and_no_alert() -> None:
    state = restarted(as_before)
    assert len(state.attempts) == 2
    assert same_steps(state) == [f"{STEPS} steps computed again: equal"]
    assert [*StepsDiffer().check(state, state.at)] == []


def test_a_flipped_value_is_on_the_page_of_the_attempt_and_an_alert() -> None:
    state = restarted(flipped)
    words = "differ from step 1,040 on: other data, config or code, or a corrupt value"
    assert same_steps(state) == [f"{STEPS} steps computed again: {words}"]
    (alert,) = StepsDiffer().check(state, state.at)
    assert (alert.severity, alert.summary) == ("info", f"llm: {STEPS} steps, computed again, {words}")
    assert alert.evidence == ("nodes that changed: n3",)
    assert [*StepsDiffer().check(state, state.at + 3_600.0)] == [], "it is an event"


def test_in_a_crash_loop_the_newest_attempt_with_enough_of_these_steps_counts() -> None:
    state = restarted(as_before, flipped, steps=(STEPS, 3, STEPS))
    words = "differ from step 1,040 on: other data, config or code, or a corrupt value"
    assert same_steps(state) == [f"{STEPS} steps computed again: {words}"]


def test_what_was_changed_on_purpose_is_said_and_no_alert() -> None:
    state = restarted(flipped, rate=2e-4)
    words = "trained with another learning rate from step 1,030 on"
    assert same_steps(state) == [f"{STEPS} steps computed again: {words}"]
    assert [*StepsDiffer().check(state, state.at)] == []
    one, two = sorted(restarted(flipped).attempts.values(), key=lambda each: each.start)
    for field, was, now in (("git_commit", "a1", "b2"), ("gpus", 64, 32), ("command", "train --lr 1", "train --lr 2")):
        attempts = {each.attempt_id: each for each in (replace(one, **{field: was}), replace(two, **{field: now}))}
        assert [*StepsDiffer().check(replace(state, attempts=attempts), state.at)] == [], field


def test_without_a_log_the_curves_of_a_file_are_compared() -> None:
    engine = Engine(FakeClock())
    one = Attempt(attempt_id="llm/1", run_id="llm", cluster="prod", started_at=NOW + 900.0, seen_at=NOW + 1_900.0)
    engine.step([NEW, AttemptsRestored((one,))], NOW - 500.0)
    second = PATH.replace("20260101_120000-aaaa1111", "20260101_130000-bbbb2222")
    again = replace(BEGUN, id="bbbb2222", started_at=NOW + 1_000.0)
    state = engine.step([NodeReading("n1", "prod", NOW, rows(1, 40, run=replace(BEGUN, started_at=NOW - 200.0)))], NOW)
    now = NOW + 2_000.0
    points = tuple((n, n - 1.0, now - 100 + n, 3.0 - n / 100 - (n > 20)) for n in range(1, 31))
    later = rows(1, 30, path=second, file="9 7e5", run=again, points=points, t=now, logged_at=now - 70)
    state = engine.step([NodeReading("n1", "prod", now, later)], now)
    assert same_steps(state) == [
        "30 steps computed again: differ from step 20 on: other data, config or code, or a corrupt value"
    ]
