"""Attempts that follow each other on one log and one directory of checkpoints: each keeps its own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, Story, ended
from trainmon.model import Attempt, AttemptsRestored, Job, JobsAccounted

LOG = "/fsx/llm.log"
CHAIN = replace(SPEC, log=LOG)


def task(number: int, began: float) -> Job:
    """A task of an array whose tasks run one after the other."""
    return replace(
        JOB, id=f"88_{number}", number=88 + number, array=88, submitted_at=BEGIN - 60, started_at=BEGIN + began,
        stdout=LOG,
    )  # fmt: skip


def requeued(number: int, began: float) -> Job:
    """The same job again."""
    return replace(JOB, restarts=number, submitted_at=BEGIN + began - 5, started_at=BEGIN + began, stdout=LOG)


def first_of_two(story: Story, now: Job) -> Story:
    """It has trained to step 39 when it fails at 50, and has saved step 30."""
    story.queue(10, now)
    for seconds, step in enumerate(range(40), 10):
        story.steps(seconds, step, path=LOG)
    return story.checkpoints(48, 10, 20, 30, since=45)


def second_begins(story: Story) -> Story:
    """The next one goes on from step 30 within a second; Slurm has not been asked since."""
    story.log(52, "loading checkpoint from /fsx/ckpt at iteration 30", path=LOG)
    for seconds, step in enumerate(range(31, 76), 53):
        story.steps(seconds, step, path=LOG)
    return saved(story, 98)


def saved(story: Story, seconds: float) -> Story:
    return story.checkpoints(seconds, each={30: 45, 40: 65, 50: 75, 60: 85, 70: 95})


def numbers(one: Attempt) -> tuple[object, ...]:
    return (one.first_step, one.last_step, one.last_committed_step, one.steps_lost, one.gpu_seconds)


def by_start(attempts: Iterable[Attempt]) -> list[Attempt]:
    return sorted(attempts, key=lambda one: one.started_at or 0.0)


WAYS = {
    "array": (task(1, 0), ended(task(1, 0), 50, "FAILED", "1:0"), task(2, 51)),
    "requeue": (requeued(0, 0), None, requeued(1, 51)),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_numbers_of_an_ended_attempt_are_those_of_its_own_time_however_late_its_end_is_known(way: str) -> None:
    now, end, again = WAYS[way]
    listed = [again] if end is None else [end, again]
    story = second_begins(first_of_two(Story(CHAIN), now)).queue(100, *listed)
    story.log(101, "still there", path=LOG)
    saved(story, 102).at(160).say()
    first, second = by_start(story.attempts)
    assert not first.is_open
    if end is None:
        assert first.ended_at == BEGIN + 46, "when it was queued again"
    assert (first.first_step, first.last_step, first.last_committed_step, first.steps_lost) == (0, 39, 30, 9)
    assert (second.resumed_from, second.first_step, second.last_step) == (30, 31, 75)
    assert second.last_committed_step == 70


@pytest.mark.parametrize("way", WAYS)
def test_the_numbers_of_an_ended_attempt_stay_while_the_next_one_advances(way: str) -> None:
    now, end, again = WAYS[way]
    waiting = replace(again, state="PENDING", started_at=None, nodes=())
    story = first_of_two(Story(CHAIN), now).queue(52, *([] if end is None else [end]), waiting)
    story.log(53, "bye", path=LOG).checkpoints(54, 10, 20, 30, since=45).at(58).say()
    (first,) = story.attempts
    assert (first.is_open, first.last_step, first.last_committed_step, first.steps_lost) == (False, 39, 30, 9)
    second_begins(story)
    for seconds in range(100, 900, 50):
        story.queue(seconds, *([] if end is None else [end]), again)
        story.steps(seconds + 1, seconds, path=LOG)
        saved(story, seconds + 2)
        if end is not None:  # accounting and a later look at the queue know the end better
            story.say(JobsAccounted("prod", (replace(end, exit_code="9:0"),)))
            story.queue(seconds + 3, replace(end, exit_code="137:0"), again)
        assert numbers(by_start(story.attempts)[0]) == numbers(first)


@pytest.mark.parametrize("way", WAYS)
def test_what_the_ledger_holds_of_an_attempt_that_ended_is_not_overruled_by_a_stale_look(way: str) -> None:
    """The ledger was told while nobody knew that it had ended; another program may still think that it runs."""
    now, end, again = WAYS[way]
    story = second_begins(first_of_two(Story(CHAIN), now))
    stale = by_start(story.attempts)[0]
    assert stale.last_committed_step == 70, "what is to be seen of its run now"
    story.queue(100, *([again] if end is None else [end, again])).at(160).say()
    first = by_start(story.attempts)[0]
    story.say(AttemptsRestored((stale,)))
    assert by_start(story.attempts)[0] == first
    other = Story(CHAIN, watched_from=1_000.0).say(AttemptsRestored((stale,))).say(AttemptsRestored((first,)))
    assert numbers(by_start(other.attempts)[0]) == numbers(first)


def test_whether_an_older_checkpoint_was_lost_is_not_known_once_it_was_deleted() -> None:
    """Before the end was known, the next attempt has deleted what this one had saved."""
    now, end, again = WAYS["array"]
    assert end is not None
    story = Story(CHAIN).queue(10, now)
    for seconds, step in enumerate(range(40), 10):
        story.steps(seconds, step, path=LOG)
    story = second_begins(story).checkpoints(99, each={60: 85, 70: 95}).queue(100, end, again).at(160).say()
    first = by_start(story.attempts)[0]
    assert (first.last_step, first.last_committed_step, first.steps_lost) == (39, None, None)


MINUTE = 60
ECC = "CUDA error: uncorrectable ECC error encountered"


def written(seconds: int, *, is_dated: bool) -> Iterator[str]:
    """What three tasks, a minute each, write in this second: each resumes, makes a step a second, and breaks."""
    task, second = divmod(seconds, MINUTE)
    stamp = datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("[%Y-%m-%d %H:%M:%S] ") if is_dated else ""
    first = 50 * task
    if second == 0:
        yield f"{stamp}loading checkpoint from /fsx/ckpt at iteration {first}"
    elif second == MINUTE - 1:
        yield stamp + ECC
    else:
        yield f"{stamp}iteration {first + second:8}/    5000 | elapsed time per iteration (ms): 1000.0 | lm loss: 2.0"


@pytest.mark.parametrize("is_dated", [True, False])
@pytest.mark.parametrize("asked_every", [7, 29])
@pytest.mark.parametrize("read_every", [1, 3])
def test_each_task_on_one_log_was_ended_by_its_own_last_lines(
    is_dated: bool, asked_every: int, read_every: int
) -> None:
    story, held = Story(CHAIN).gpus(-50), list[str]()
    for seconds in range(3 * MINUTE):
        held += written(seconds, is_dated=is_dated)
        if seconds % read_every == 0:
            story.log(seconds + 0.5, *held, path=LOG)
            held = []
        if seconds % asked_every == 1:
            begun = [task(number, number * MINUTE) for number in range(seconds // MINUTE + 1)]
            over = [ended(one, (index + 1) * MINUTE - 1, "FAILED", "1:0") for index, one in enumerate(begun[:-1])]
            story.queue(seconds + 0.6, *over, begun[-1])
    first, second, third = by_start(story.attempts)
    for one in (first, second):
        assert one.end is not None
        assert one.end.cause is not None
        assert one.end.cause.cause == "gpu-hardware"
        assert (one.end.log_tail or "").endswith(ECC)
    assert [one.resumed_from for one in (first, second, third)] == [0, 50, 100]
    assert [one.first_step for one in (first, second, third)] == [1, 51, 101]
    assert [one.last_step for one in (first, second)] == [58, 108]
