"""Attempts that are processes on the GPUs of this machine: their receipts, and their ends that nobody watched."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, DIED, SPEC, Story
from tests.trainmon.analysis.attempts.test_receipts import NAME, files, lines, read
from trainmon.analysis.attempts import files_to_read
from trainmon.model import (
    Attempt,
    AttemptsRestored,
    FileContent,
    GpuFacts,
    GpuFactsAll,
    HostSample,
    NodeReading,
    OwnProcess,
    RunsChanged,
    RunSpec,
)

PLAIN = replace(SPEC, job=None, log="/fsx/llm.log", checkpoints=None, nodes=("n1",), found=True)
TRAINER = OwnProcess(pid=12, command="python train.py", stdout="/fsx/llm.log", started_s=900.0, parents=(9, 7, 3))
"""A rank: torchrun (9) has started it, and trainmon-run (7) torchrun."""


def with_process(process: OwnProcess = TRAINER) -> RunSpec:
    return replace(PLAIN, process=process)


def running(process: OwnProcess = TRAINER, **more: Any) -> Story:
    """The machine was started 900 s before the process was."""
    story = Story(with_process(process), slurm=False, **more)
    node = NodeReading("n1", "prod", story.now, HostSample(1, story.now, boot_time=BEGIN - 900))
    return story.say(node).gpus(max(5, story.now - BEGIN))


def over(story: Story, seconds: float = 60, process: OwnProcess = TRAINER) -> Story:
    """It is noticed that the process is gone."""
    story.at(seconds).say(RunsChanged((replace(with_process(process), ended_at=BEGIN + seconds - 5),)))
    return story.at(seconds + 60).say()


@pytest.mark.parametrize("process", [TRAINER, replace(TRAINER, pid=8, parents=(1,))], ids=["descendant", "orphan"])
def test_a_process_takes_its_exact_end_its_log_and_its_commit_from_the_receipt_of_its_command(
    process: OwnProcess,
) -> None:
    told = {"run": None, "name": NAME}
    story = read(running(process), 6, replace(files(-1, **told), command_pid=8))
    assert (story.attempt.attempt_id, story.attempt.receipt) == (f"llm/pid/n1/{process.pid}@20231114", NAME)
    assert (story.attempt.git_commit, story.attempt.log_offset, story.attempt.is_open) == ("c0ffee", 100, True)
    read(story, 52, replace(files(-1, 50, signal=11, **told), command_pid=8))
    story.at(60).say(RunsChanged((replace(with_process(process), ended_at=BEGIN + 55),)))
    one = lines(story, 61, *DIED).at(130).say().attempt
    assert one.end is not None
    assert (one.end.exit_code, one.end.signal, one.end.receipt, one.ended_at) == (None, 11, NAME, BEGIN + 50)
    assert one.end.log_tail == "\n".join(DIED)


@pytest.mark.parametrize("other", [
    {"pid": 5}, {"host": "n2"}, {"began": -800, "ended_at": -700, "status": 0}, {"slurm": {"job_id": "3"}},
], ids=str)  # fmt: skip
def test_the_receipt_of_another_command_is_not_its_own(other: dict[str, Any]) -> None:
    ended_at, began = other.pop("ended_at", None), other.pop("began", -1)
    story = read(running(), 6, files(began, ended_at, **{"run": None} | other))
    assert story.attempts[-1].receipt is None


def test_of_a_pid_that_was_used_twice_the_newer_receipt_is_its_own() -> None:
    story = read(running(), 6, files(-50, -10, status=1, run=None), files(-1, run=None, name="n1-20231114T221319Z-7"))
    receipts = {one.attempt_id: one.receipt for one in story.attempts}
    assert receipts == {"llm/pid/n1/12@20231114": "n1-20231114T221319Z-7", f"llm/receipt/{NAME}": NAME}


def test_a_receipt_that_is_read_after_the_process_was_gone_corrects_its_end() -> None:
    story = over(running())
    assert story.attempt.end is not None
    assert (story.attempt.end.exit_code, story.attempt.ended_at) == (None, BEGIN + 55)
    one = read(story, 130, files(-1, 50, status=3, run=None)).attempt
    assert one.end is not None
    assert (one.end.exit_code, one.ended_at) == (3, BEGIN + 50)


def stored() -> tuple[Attempt, ...]:
    return read(running(), 6, files(-1, run=None)).attempts


def later(*found: Any) -> Story:
    """trainmon starts again: the process is gone, and with it its run."""
    story = Story(replace(SPEC, name="other"), slurm=False, watched_from=500).say(AttemptsRestored(stored()))
    facts = (GpuFacts(0, uuid="GPU-n1-0"),)
    story.at(501).say(NodeReading("n1", "prod", story.now, GpuFactsAll(1, story.now, facts, expected=1)))
    return read(story, 502, *found).at(530).say().at(600).say()


def test_a_process_that_ended_while_nobody_watched_ends_as_its_receipt_says() -> None:
    one = later(files(-1, 50, status=3, run=None)).attempts[0]
    assert one.end is not None
    assert (one.end.exit_code, one.ended_at, one.end.receipt) == (3, BEGIN + 50, NAME)
    assert one.end.cause is not None


def test_a_process_that_is_gone_without_a_trace_ended_when_it_was_last_seen() -> None:
    one = later().attempts[0]
    assert one.end is not None
    assert (one.end.source, one.ended_at) == ("lost", BEGIN + 6)


EARLIER = {"run": None, "argv": ["torchrun", "train.py"]}


def earlier(*found: Any) -> Story:
    """trainmon starts while the process runs, after these earlier starts."""
    story = Story(with_process(), slurm=False, watched_from=500).say(AttemptsRestored(()))
    node = NodeReading("n1", "prod", story.now, HostSample(1, story.now, boot_time=BEGIN - 900))
    return read(story.say(node).gpus(501), 502, *found)


def test_earlier_starts_of_a_process_that_nobody_watched_are_attempts_by_their_receipts() -> None:
    first = files(-400, -300, status=1, name="n1-20231114T220640Z-3", pid=3, **EARLIER)
    second = files(-200, -100, signal=9, name="n1-20231114T221000Z-5", pid=5, **EARLIER)
    story = earlier(first, second, files(-1, name=NAME, **EARLIER))
    requests = files_to_read(story.state)["prod"]
    assert [one.pattern for one in requests] == [f"/state/{one.name}/tail.log" for one in (first, second)]
    for request, text in zip(requests, ("\n".join(DIED), "step 1"), strict=True):
        content = FileContent(1, story.now, request.id, path=request.pattern, text=text)
        story.say(NodeReading("n1", "prod", story.now, content))
    before, last, running = story.at(700).say().attempts
    ids = [f"llm/receipt/{one.name}" for one in (first, second)]
    assert [one.attempt_id for one in (before, last, running)] == [*ids, "llm/pid/n1/12@20231114"]
    assert [one.is_reconstructed for one in (before, last)] == [True, True]
    assert before.end is not None
    assert last.end is not None
    assert (before.end.exit_code, before.ended_at, last.end.signal, last.ended_at) == (1, BEGIN - 300, 9, BEGIN - 100)
    assert before.end.cause is not None
    assert (before.end.cause.cause, last.end.log_tail) == ("cuda-oom", "step 1")
    assert (running.receipt, running.is_open) == (NAME, True)
    again = read(story, 760, first, second).at(800).say()
    assert again.attempts[:2] == (before, last)


@pytest.mark.parametrize("other", [
    {"argv": ["python", "prepare.py"]}, {"host": "n2"}, {"run": "another"}, {"slurm": {"job_id": "3"}},
    {"stdout": {"kind": "file", "path": "/fsx/other.log", "offset": 0}},
], ids=str)  # fmt: skip
def test_a_receipt_of_another_run_is_no_earlier_start(other: dict[str, Any]) -> None:
    one = files(-400, -300, status=1, name="n1-20231114T220640Z-3", pid=3, **EARLIER | other)
    assert len(earlier(one).at(700).say().attempts) == 1


def test_the_attempt_of_an_earlier_process_is_not_told_twice() -> None:
    """It was watched; then the trainer was started again under the same log."""
    story = read(running(), 6, files(-1, **EARLIER))
    read(over(story), 130, files(-1, 50, status=3, **EARLIER))
    again = replace(TRAINER, pid=40, parents=(39, 38), started_s=1_100.0)
    story.at(205).say(RunsChanged((with_process(again),)))
    story = read(story, 210, files(199, name="n1-20231114T221640Z-38", pid=38, **EARLIER)).at(300).say()
    assert [one.attempt_id for one in story.attempts] == ["llm/pid/n1/12@20231114", "llm/pid/n1/40@20231114"]
