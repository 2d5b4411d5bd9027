"""Jobs that append to one log and end while nobody watches: each has the lines of its own time."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, SPEC, Story
from tests.trainmon.analysis.attempts.test_unseen_logs import read
from tests.trainmon.analysis.attempts.test_whose_log import DISK, OOM, causes, died_of_memory, failed
from trainmon.model import JobsAccounted

PATH = "/fsx/llm.out"
STEP = " [{}] iteration {:8d}/    5000 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0E+00 |"


def line(seconds: float, step: int) -> str:
    at = datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return STEP.format(at, step)


def off(*lines: str, until: float, began: float = 200) -> Story:
    """Jobs 88 and 89 ended while nobody watched, and both wrote these lines."""
    jobs = tuple(replace(failed(number, begins), stdout=None) for number, begins in ((88, 0), (89, began)))
    story = Story(replace(SPEC, log=PATH), watched_from=500.0).queue(501)
    story.log(502, *lines, path=PATH, mtime=BEGIN + until).checkpoints(503)
    return story.say(JobsAccounted("prod", jobs)).at(560).say().log(561, path=PATH, mtime=BEGIN + until).at(620).say()


def test_each_job_has_the_cause_and_the_steps_of_its_own_lines() -> None:
    first, second = (line(2, 7), line(4, 8), OOM), (line(202, 3), line(204, 4), DISK)
    told = causes(off(*first, *second, until=205))
    assert told["88"] == (PATH, 8, "\n".join(first), True)
    assert told["89"] == (PATH, 4, "\n".join(second), False)


def test_a_job_that_followed_within_seconds_has_its_own_lines_too() -> None:
    first, second = (line(2, 7), line(4, 8), OOM), (line(12, 3), line(14, 4), DISK)
    told = causes(off(*first, *second, until=15, began=11))
    assert told["88"] == (PATH, 8, "\n".join(first), True)
    assert told["89"] == (PATH, 4, "\n".join(second), False)


def test_a_job_without_a_step_has_not_those_of_the_one_before_it() -> None:
    stamp = line(202, 0).partition("]")[0].strip() + "] loading the data"
    told = causes(off(line(2, 7), line(4, 8), OOM, stamp, DISK, until=204))
    assert told["89"] == (PATH, None, f"{stamp}\n{DISK}", False)
    assert told["88"][1] == 8


def test_jobs_that_appended_to_a_log_which_is_no_longer_followed_have_their_own_lines() -> None:
    jobs = [replace(failed(number, begins), stdout=PATH) for number, begins in ((89, 100), (90, 200))]
    story = died_of_memory().queue(300, *jobs, failed(91, 250))
    story.log(310, DISK, path="/fsx/91.out", restarted="newer", mtime=BEGIN + 254).checkpoints(311, 10).at(360).say()
    lines = (line(102, 7), OOM, line(202, 3), DISK)
    for number in (90, 89):
        read(story, number, *lines, path=PATH, mtime=204)
    assert causes(story)["89"] == (PATH, 7, "\n".join(lines[:2]), True)
    assert causes(story)["90"] == (PATH, 3, "\n".join(lines[2:]), False)


def test_lines_without_dates_are_all_that_is_known() -> None:
    told = causes(off("step 7 loss 2.0", OOM, "step 3 loss 2.0", DISK, until=204))
    assert told["88"][2] is None
    assert str(told["89"][2]).endswith(DISK)
