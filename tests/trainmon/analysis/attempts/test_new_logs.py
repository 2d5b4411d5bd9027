"""Without a scheduler: several logs that appeared while trainmon was off. Each of them is an attempt."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, SPEC, STEP, Story
from tests.trainmon.analysis.attempts.test_whose_log import DISK, OOM
from trainmon.analysis.attempts import logs_to_read
from trainmon.model import Attempt, AttemptsRestored, OtherLog

PLAIN = replace(SPEC, job=None, log="/fsx/*.out", nodes=("n1",))
SEEN = Story(PLAIN, slurm=False).steps(0, 1, 2).steps(10, 3).attempts
"""The attempt that trainmon saw before: its log is /fsx/88.out, last written at 10."""
HEAD = "2025-08-01 08:00:00 INFO: training begins"


def start(*others: tuple[str, float], stored: tuple[Attempt, ...] = SEEN, at: float = 5_000, **more: object) -> Story:
    """trainmon starts again, and follows the newest log: it was last written 10 s before."""
    story = Story(PLAIN, slurm=False, watched_from=at).gpus(at + 1).say(AttemptsRestored(stored))
    files = tuple(OtherLog(f"/fsx/{name}.out", BEGIN + written) for name, written in others)
    facts = {"path": "/fsx/new.out", "size": 9_999_999, "mtime": BEGIN + at - 10, "others": files}
    story.log(at + 2, STEP.format(90), **facts | more)
    return story.checkpoints(at + 3, 10).at(at + 70).say().say()


def rows(story: Story) -> list[tuple[str | None, float | None]]:
    """The log and the end of each attempt, by our clock."""
    return [(one.log_path, None if one.ended_at is None else one.ended_at - BEGIN) for one in story.attempts]


def read(story: Story, name: str, *lines: str, mtime: float, **more: object) -> None:
    """A host has read the end of the log of an attempt that ended."""
    (one,) = (one for one in story.attempts if one.log_path == f"/fsx/{name}.out")
    story.log(story.now - BEGIN + 1, *lines, id=f"log of {one.attempt_id}", path=one.log_path or "",
              mtime=BEGIN + mtime, size=9_999_999, **more)  # fmt: skip


def test_each_log_that_appeared_while_trainmon_was_off_is_a_closed_attempt_in_order() -> None:
    story = start(("c", 3_000), ("b", 2_000), ("88", 10), ("old", -500))
    assert rows(story) == [("/fsx/88.out", 10), ("/fsx/b.out", 2_000), ("/fsx/c.out", 3_000), ("/fsx/new.out", None)]
    assert [one.is_reconstructed for one in story.attempts] == [True] * 4
    wanted = [log.pattern for log in logs_to_read(story.state)["prod"]]
    assert wanted == ["/fsx/c.out", "/fsx/b.out", "/fsx/88.out"]
    read(story, "c", "[2025-08-01 08:10:00] step 7 loss 2.0", OOM, mtime=3_000, head=HEAD)
    read(story, "b", STEP.format(4), DISK, mtime=2_000)
    read(story, "88", STEP.format(3), "bye", mtime=900)
    first, second, third, last = story.attempts
    assert (first.ended_at, last.is_open) == (BEGIN + 900, True)
    assert (third.started_at, third.start_is_estimated, third.last_step) == (BEGIN + 2_400, True, 7)
    assert (second.started_at, second.last_step) == (None, 4)
    causes = [one.end.cause.cause for one in (second, third) if one.end is not None and one.end.cause is not None]
    assert causes == ["disk-full", "cuda-oom"]


def test_the_attempts_of_such_logs_do_not_overlap() -> None:
    story = start(("c", 3_000), ("b", 2_000))
    read(story, "c", "[2025-08-01 08:40:00] step 7 loss 2.0", mtime=3_000, head=HEAD)
    assert story.attempts[2].started_at == BEGIN + 2_000, "it would have begun at 600"


def test_a_file_that_is_written_beside_the_next_log_is_no_attempt_of_its_own() -> None:
    """The logs of several ranks, or of a watchdog."""
    assert rows(start(("rank1", 4_985), ("rank2", 4_940), ("b", 2_000)))[1:] == [
        ("/fsx/b.out", 2_000), ("/fsx/new.out", None),
    ]  # fmt: skip
    beside = start(("gpu", 4_000), ("b", 2_000), head="2025-08-01 07:30:00 begins", at=5_000)
    assert ("/fsx/gpu.out", 4_000) in rows(beside), "when the newest one began is not known"
    dated = "[2025-08-01 08:00:00] step 90 loss 2.0"
    lines = {"lines": (dated,), "seen": 1, "head": "2025-08-01 07:30:00 begins"}
    assert rows(start(("gpu", 4_000), ("b", 2_000), **lines))[1:] == [("/fsx/b.out", 2_000), ("/fsx/new.out", None)]


def test_such_logs_are_found_once_although_trainmon_starts_again_and_again() -> None:
    story = start(("c", 3_000), ("b", 2_000))
    again = start(("new", 4_990), ("c", 3_000), ("b", 2_000), stored=story.attempts, at=9_000, path="/fsx/newer.out")
    assert [name for name, _ in rows(again)] == [f"/fsx/{name}.out" for name in ("88", "b", "c", "new", "newer")]
    assert story.say().attempts == story.attempts


def test_without_a_known_attempt_only_the_logs_of_the_last_day_are_looked_at() -> None:
    story = start(("b", 4_000), ("a", 5_000 - 90_000), stored=())
    assert rows(story) == [("/fsx/b.out", 4_000), ("/fsx/new.out", None)]
