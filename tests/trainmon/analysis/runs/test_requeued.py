"""A job that waits after a requeue: its own previous start is the last attempt of its run, not an older job."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, Story, ended
from trainmon.alerting.rules.runs.attempts import RunDead
from trainmon.analysis.runs import watched_runs
from trainmon.model import RunsChanged

OLD = replace(JOB, id="81", number=81, submitted_at=BEGIN - 9_000, started_at=BEGIN - 8_000, stdout="/fsx/81.out")
FAILED = ended(OLD, -7_000, "FAILED", "1:0")
WAITS = replace(JOB, state="PENDING", submitted_at=BEGIN + 115, started_at=None, nodes=(), restarts=1)


def test_its_log_is_still_followed() -> None:
    (running,) = watched_runs([SPEC], (), [JOB, FAILED], {}, BEGIN)
    for before in ((running,), ()):
        (waiting,) = watched_runs([SPEC], before, [WAITS, FAILED], {}, BEGIN + 120)
        assert (running.log, waiting.log) == ("/fsx/88.out", "/fsx/88.out")


def test_a_job_that_ended_after_the_requeue_is_the_last_one() -> None:
    later = ended(replace(OLD, id="89", number=89, started_at=BEGIN + 200, stdout="/fsx/89.out"), 300, "FAILED", "1:0")
    (run,) = watched_runs([SPEC], (), [WAITS, later, FAILED], {}, BEGIN + 400)
    assert run.log == "/fsx/89.out"


def test_a_job_that_never_ran_follows_the_one_before_it() -> None:
    (run,) = watched_runs([SPEC], (), [replace(WAITS, restarts=0), FAILED], {}, BEGIN + 400)
    assert run.log == "/fsx/81.out"


def test_the_row_and_the_alerts_are_about_its_own_start() -> None:
    older = [replace(FAILED, id=str(n), number=n, ends_at=BEGIN - 7_000 + n) for n in (78, 79, 80)]
    story = Story().say(RunsChanged((replace(SPEC, log="/fsx/88.out"),))).queue(5, JOB, FAILED, *older)
    story.steps(100, 1, 2).steps(110, 1_032)
    for seconds in (120, 150, 200, 300):
        story.queue(seconds, WAITS, FAILED, *older)
        run = story.state.runs["llm"]
        assert (run.verdict, run.progress.step) == ("queued", 1_032)
        assert "81" not in run.why
        assert not [*RunDead().check(story.state, story.now)]


def test_a_job_that_is_queued_behind_it_changes_neither() -> None:
    waits = replace(WAITS, starts_at=BEGIN + 303)
    behind = replace(OLD, id="90", number=90, state="PENDING", submitted_at=BEGIN - 30, started_at=None, nodes=())
    behind = replace(behind, starts_at=BEGIN + 3_600)
    (run,) = watched_runs([SPEC], (), [behind, waits, FAILED], {}, BEGIN + 120)
    assert run.log == "/fsx/88.out"
    story = Story().say(RunsChanged((replace(SPEC, log="/fsx/88.out"),))).queue(5, JOB, FAILED, behind)
    story.steps(100, 1, 1_032).queue(300, behind, waits, FAILED)
    assert story.state.runs["llm"].verdict == "queued"
    assert story.state.runs["llm"].why.startswith("job 88 ")
    assert "81" not in story.state.runs["llm"].why
    assert not [*RunDead().check(story.state, story.now)]
