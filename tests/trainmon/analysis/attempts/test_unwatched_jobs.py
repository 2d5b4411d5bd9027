"""Jobs that ended while nobody watched, where Slurm has no accounting: their receipts make them attempts."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, DIED, JOB, Story, ended, trained
from tests.trainmon.analysis.attempts.test_receipts import NAME, files, lines, read
from trainmon.analysis.attempts import why_missing
from trainmon.model import Attempt, AttemptsRestored, Cluster, ClustersChanged, JobsAccounted, ReceiptFiles

AGAIN = "n1-20231114T221431Z-9"


def of_job(job_id: str = "88", job_name: str = "llm", **more: Any) -> dict[str, Any]:
    return {"slurm": {"job_id": job_id, "job_name": job_name, "job_nodelist": "n[1-2]", **more}, "run": None}


def off(*found: ReceiptFiles, listed: tuple[Any, ...] = (), stored: tuple[Attempt, ...] = ()) -> Story:
    """trainmon starts again 1000 s after job 88 began, and reads these receipts."""
    story = Story(watched_from=1000).say(AttemptsRestored(stored)).queue(1001, *listed)
    return read(story, 1002, *found).queue(1030, *listed)


def closed(story: Story) -> tuple[Attempt, ...]:
    """The attempts a minute later."""
    return story.queue(1090, *()).attempts


def test_a_job_that_nobody_watched_and_accounting_does_not_know_is_an_attempt_by_its_receipt() -> None:
    story = off(files(0, 50, status=3, **of_job()))
    (one,) = lines(story, 1033, *DIED).queue(1060).attempts
    assert one.end is not None
    assert (one.attempt_id, one.job_id, one.restart, one.run_id) == ("prod/88.0", "88", 0, "llm")
    assert (one.started_at, one.ended_at, one.nodes) == (BEGIN, BEGIN + 50, ("n1", "n2"))
    assert (one.end.exit_code, one.end.signal, one.end.source, one.end.receipt) == (3, None, "receipt", NAME)
    assert (one.git_commit, one.log_path, one.log_offset) == ("c0ffee", "/fsx/llm.log", 100)
    assert (one.is_reconstructed, one.end.was_watched) == (True, False)
    assert one.end.cause is not None
    assert (one.end.cause.cause, one.end.log_tail) == ("cuda-oom", "\n".join(DIED))
    assert story.queue(1200).attempts == (one,), "it is closed once"
    assert off(files(0, 50, status=3, **of_job()), stored=(one,)).queue(1200).attempts == (one,)


def test_the_log_of_a_job_whose_output_went_through_srun_is_missing_with_the_reason() -> None:
    pipe = {"kind": "pipe", "path": "pipe:[4711]", "offset": None, "through": "srun"}
    (one,) = closed(off(files(0, 50, status=3, **of_job(), stdout=pipe)))
    why = "srun wrote its output, and Slurm does not record to which file"
    assert (one.log_path, why_missing(one)["log_path"], why_missing(one)["log_tail"]) == (None, why, why)
    other = closed(off(files(0, 50, status=3, **of_job(), stdout=pipe | {"through": None})))[0]
    assert "log_path" not in why_missing(other)


def test_slurm_names_the_log_of_a_job_whose_receipt_shows_the_pipe_of_srun() -> None:
    pipe = {"kind": "pipe", "path": "pipe:[4711]", "offset": None, "through": "srun"}
    story = read(Story().queue(10, JOB), 12, files(0, **of_job(), stdout=pipe)).queue(40, JOB)
    assert (story.attempt.log_path, story.attempt.log_by_srun) == ("/fsx/88.out", True)
    assert "log_path" not in why_missing(story.attempt)


def test_the_signal_of_a_job_that_nobody_watched_is_exact() -> None:
    (one,) = closed(off(files(0, 50, signal=11, **of_job())))
    assert one.end is not None
    assert (one.end.exit_code, one.end.signal) == (None, 11)


def test_a_job_that_the_queue_lists_or_that_another_run_has_is_no_further_attempt() -> None:
    own = files(0, 50, status=3, **of_job())
    assert [one.attempt_id for one in off(own, listed=(JOB,)).attempts] == ["prod/88.0@20231114T221220"]
    assert closed(off(files(0, 50, status=3, **of_job(job_name="other")))) == ()
    assert read(Story(), 52, files(0, 50, status=3, **of_job())).queue(60).attempts == (), "it may just be starting"
    assert len(read(Story(), 52, files(0, 50, status=3, **of_job())).queue(115).attempts) == 1


def test_a_job_that_was_watched_has_no_second_attempt_and_ends_when_its_receipt_says() -> None:
    (one,) = closed(off(files(0, 60, status=1, **of_job()), stored=(trained().attempt,)))
    assert one.end is not None
    assert (one.attempt_id, one.end.exit_code, one.end.source) == ("prod/88.0@20231114T221220", 1, "receipt")
    assert (one.ended_at, one.first_step, one.last_step) == (BEGIN + 60, 1, 30)


def test_where_accounting_answers_or_is_not_known_the_receipts_alone_make_no_attempt() -> None:
    for accounting in (True, None):
        story = Story(watched_from=1000).say(AttemptsRestored(()))
        story.say(ClustersChanged((Cluster(name="prod", login="login1", accounting=accounting, is_polled=True),)))
        assert closed(read(story, 1001, files(0, 50, status=3, **of_job())).queue(1030)) == ()


def test_accounting_that_answers_later_completes_the_same_attempt() -> None:
    story = off(files(0, 50, status=3, **of_job())).queue(1090)
    assert len(story.attempts) == 1
    one = story.say(JobsAccounted("prod", (ended(JOB, 51, "FAILED", "3:0"),))).at(1200).say().attempt
    assert one.end is not None
    assert (one.attempt_id, one.end.source, one.end.exit_code) == ("prod/88.0", "accounting", 3)
    assert (one.submitted_at, one.is_reconstructed) == (BEGIN - 60, True)


def test_each_restart_of_a_job_is_an_attempt_and_the_earlier_ones_were_requeued() -> None:
    first = files(0, 50, signal=15, **of_job())
    second = files(71, 90, status=2, name=AGAIN, **of_job(restart_count="1"))
    for listed in ((), (replace(JOB, restarts=2, submitted_at=BEGIN + 95, started_at=BEGIN + 100),)):
        story = off(second, first, listed=listed)
        for at in (1035, 1060):
            story.queue(at, *listed)
        rows = [(one.restart, one.end.scheduler_state, one.end.exit_code) for one in story.queue(1090, *listed).attempts
                if one.end is not None]  # fmt: skip
        assert rows == [(0, "REQUEUED", None), (1, "REQUEUED" if listed else None, 2)]


def test_a_receipt_without_an_end_whose_job_is_gone_ends_at_the_last_sign_of_it() -> None:
    story = off(files(**of_job()))
    one = story.log(1035, *DIED, path="/fsx/llm.log", mtime=BEGIN + 40, size=9_999).queue(1090).attempt
    assert one.end is not None
    assert (one.attempt_id, one.end.exit_code, one.end.source) == ("prod/88.0", None, "lost")
    assert one.ended_at == BEGIN + 40


def test_a_log_that_was_read_before_the_receipt_of_its_job_is_the_same_attempt() -> None:
    story = Story(watched_from=1000).say(AttemptsRestored(()))
    story.queue(1001).log(1002, *DIED, path="/fsx/llm.log", mtime=BEGIN + 49, size=9_999).queue(1065)
    assert len(story.attempts) == 1
    read(story, 1066, files(0, 50, status=3, **of_job())).queue(1095).queue(1160)
    one = story.attempt
    assert one.end is not None
    assert (one.job_id, one.end.exit_code, one.ended_at) == ("88", 3, BEGIN + 50)


def test_the_log_of_a_job_that_nobody_watched_is_not_one_more_attempt() -> None:
    story = off(files(0, 50, status=3, **of_job()))
    story.log(1035, *DIED, path="/fsx/llm.log", mtime=BEGIN + 49, size=9_999).queue(1090).queue(1200)
    assert [one.attempt_id for one in story.attempts] == ["prod/88.0"]


def test_old_receipts_of_jobs_are_no_attempts() -> None:
    story = Story(watched_from=8 * 86_400).say(AttemptsRestored(()))
    assert read(story, 8 * 86_400 + 1, files(0, 50, status=1, **of_job())).queue(8 * 86_400 + 30).attempts == ()
