"""Where the steps of a log begin, and what it says of that."""

from __future__ import annotations

import pytest

from collectors.probe.files.lines import lines_of
from tests.lab.hf_trainer import pieces
from tests.trainmon.analysis.attempts.story import BEGIN, JOB, STEP, Story, ended
from trainmon.analysis import log_formats
from trainmon.analysis.attempts.steps import PAUSE, stepped, with_line, with_start, with_step
from trainmon.model import SPANS, Attempt, StepSpan


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("loading checkpoint from /ckpt at iteration 20", 20),
        ("  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration    1500", 1500),
        ("  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 1500", 1500),
        ("Auto-resume: found latest checkpoint at ckpt/step_500", 500),
        ("  Continuing training from global step 500", 500),
        ("Loading checkpoint from /x/global_step1500/mp_rank_00", 1500),
        ("Resuming training from /out/checkpoint-0500", 500),
        ("Restoring states from the checkpoint path at /x/epoch=3-step=400.ckpt", 400),
        ("Loading the checkpoint at step 100.", 100),
        ("Loading checkpoint shards:  33%|███ | 1/3", None),
        ("continuing after saving checkpoint at step 100", None),
        ("loading 8 workers step by step", None),
        ("Will resume from epoch 3", None),
        ("iteration 20/ 100 | lm loss: 2.0", None),
    ],
)
def test_what_a_log_says_of_a_resume(line: str, step: int | None) -> None:
    spans = with_line((), line, 5.0)
    assert [span.resumed_from for span in spans] == ([] if step is None else [step])
    if step is not None:
        assert (spans[0].resumed_words, spans[0].is_start) == (line, True)


def test_a_secret_in_the_line_is_masked() -> None:
    (span,) = with_line((), "Resuming from https://me:hunter22@host/checkpoint-500", 5.0)
    assert span.resumed_words == "Resuming from https://me:***@host/checkpoint-500"


def test_steps_are_one_span_until_a_pause_a_step_back_or_a_start() -> None:
    spans: tuple[StepSpan, ...] = ()
    for step, at in ((1, 0.0), (2, 1.0), (3, 1.0 + PAUSE)):
        spans = with_step(spans, step, at, None)
    assert [(span.first, span.last) for span in spans] == [(1, 3)]
    spans = with_step(spans, 4, 20.0 + 2 * PAUSE, None)
    spans = with_step(spans, 2, 21.0 + 2 * PAUSE, None)
    spans = with_step(with_start(spans, 99.0), 3, 100.0, None)
    assert [(span.first, span.is_start) for span in spans] == [(1, False), (4, False), (2, True), (3, True)]
    slow = with_step(with_step((), 1, 0.0, 40.0), 2, 100.0, 40.0)
    assert [(span.first, span.last) for span in slow] == [(1, 2)]


def test_a_loop_that_says_that_it_has_ended_begins_anew_with_its_next_step() -> None:
    spans = with_step(with_step((), 1, 0.0, None), 2, 1.0, None)
    spans = with_line(spans, "0: trainmon: ended at step 2: stop: SIGTERM on rank 0", 1.5)
    spans = with_step(with_step(spans, 3, 4.0, None), 4, 5.0, None)
    assert [(span.first, span.last, span.is_start) for span in spans] == [(1, 2, False), (3, 4, True)]


def test_an_attempt_that_goes_on_where_the_log_shows_no_pause_does_not_begin_with_the_one_before() -> None:
    began = 100.0
    spans = (StepSpan(first=1, first_at=50.0, last=40, last_at=110.0),)
    found = stepped(Attempt(attempt_id="2", run_id="llm", cluster="prod"), spans, began, 120.0, 10.0)
    assert (found.first_step, found.last_step) == (None, 40)


def test_only_the_newest_spans_are_kept() -> None:
    spans: tuple[StepSpan, ...] = ()
    for number in range(3 * SPANS):
        spans = with_step(spans, number, number * 100.0, None)
    assert len(spans) == SPANS
    assert spans[-1].last == 3 * SPANS - 1


def dated_steps(*lines: tuple[str, int]) -> tuple[str, ...]:
    """Step lines with a clock, which may be that of another time zone."""
    return tuple(STEP.replace("2025-08-01 07:19:37", f"2025-08-01 {clock}").format(step) for clock, step in lines)


@pytest.mark.parametrize("watched_from", [-100.0, 60.0])
def test_the_first_step_has_the_time_of_its_line_and_not_that_of_its_reading(watched_from: float) -> None:
    told = Story(watched_from=watched_from).queue(62, JOB)
    lines = ("loading", *dated_steps(("07:19:20", 1), ("07:19:40", 2), ("07:20:00", 3)), "saved")
    told.log(70, *lines, size=sum(len(line) + 1 for line in lines))
    attempt = told.attempt
    assert (attempt.first_step, attempt.first_step_at, attempt.first_step_is_dated) == (1, BEGIN + 30, True)
    told.log(90, *dated_steps(("07:20:20", 4)))
    assert told.attempt.first_step_at == BEGIN + 30


@pytest.mark.parametrize("end", [(), ("died",)])
def test_how_long_lines_travelled_changes_no_time_in_them(end: tuple[str, ...]) -> None:
    """A log is read again by each program that starts, and its attempt is to stay as it is."""
    lines = (*dated_steps(("07:13:50", 1), ("07:14:30", 2)), *end)
    reads = ((0.4, -0.0006), (0.4, 0.0001), (0.2, -0.3), (3.0, -0.001))
    found = [log_formats.written(lines, BEGIN + 70 + late, ahead)[0] for late, ahead in reads]
    assert found == [BEGIN + 30] * len(reads)
    assert log_formats.written(lines, BEGIN + 70, ahead=20.0)[0] == BEGIN + (10 if end else 30)


def test_lines_without_a_time_may_follow_the_last_step() -> None:
    """A traceback of all ranks; the clock of the log is in another time zone."""
    steps = dated_steps(("07:13:35", 1), ("07:13:40", 2))
    died = [f"[rank{rank}]: RuntimeError: no more data" for rank in range(64)]
    attempt = Story().queue(2, JOB).log(30, *steps, *died).attempt
    assert (attempt.first_step_at, attempt.first_step_is_dated) == (BEGIN + 15, True)


def test_a_first_step_without_a_time_has_that_of_the_reading_of_its_line() -> None:
    plain = STEP.replace(" [2025-08-01 07:19:37]", "").format(1)
    attempt = Story().queue(2, JOB).log(20, plain, *dated_steps(("07:19:40", 2))).attempt
    assert (attempt.first_step, attempt.first_step_at, attempt.first_step_is_dated) == (1, BEGIN + 20, False)


def test_a_time_before_the_start_of_the_attempt_is_not_that_of_its_first_step() -> None:
    """The clock of one rank is wrong."""
    attempt = Story().queue(2, JOB).log(20, *dated_steps(("06:19:20", 1), ("07:19:40", 2))).attempt
    assert (attempt.first_step_at, attempt.first_step_is_dated) == (BEGIN + 20, False)


def test_an_attempt_whose_steps_only_bars_show_has_them_although_its_start_was_seen() -> None:
    """`auto_requeue` goes by them: it starts no attempt again that reached its target, and not forever one without."""
    story = Story().queue(0, JOB)
    for seconds, block in enumerate(pieces("finished"), start=20):
        lines = lines_of(block)
        story.log(seconds, *lines, size=sum(len(line) + 1 for line in lines))
    story.queue(400, ended(JOB, 390, "FAILED", "1:0"))
    assert (story.attempt.last_step, story.attempt.target_step) == (150, 150)
