"""What the receipts of trainmon-run tell of attempts: the exact end, the log from its offset, the commit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, DIED, JOB, SPEC, STEP, Story, ended
from trainmon.analysis.attempts import files_to_read
from trainmon.model import FileContent, FileSpec, JobsAccounted, NodeReading, ReceiptFiles, Receipts

ALONE = replace(SPEC, job=None, checkpoints=None)
"""A run that no scheduler knows."""
NAME = "n1-20231114T221320Z-7"


def files(
    began: float = 0,
    ended_at: float | None = None,
    *,
    name: str = NAME,
    status: int | None = None,
    signal: int | None = None,
    gone: bool | None = None,
    **start: Any,
) -> ReceiptFiles:
    """A receipt. Times are seconds after the start of job 88."""
    stdout = {"kind": "file", "path": "/fsx/llm.log", "device": 1, "inode": 2, "offset": 100}
    facts = {
        "v": 1, "run": "llm", "argv": ["python", "train.py", "--api-key", "sk-012345678901234567890123"],
        "host": "n1", "pid": 7, "started_at": BEGIN + began, "slurm": {}, "git_commit": "c0ffee", "stdout": stdout,
    }  # fmt: skip
    output = {"path": "/fsx/llm.log", "offset": 300, "tail": f"/state/{name}/tail.log"}
    over = None if ended_at is None else {"ended_at": BEGIN + ended_at, "status": status, "signal": signal}
    end = None if over is None else json.dumps(over | {"output": output})
    return ReceiptFiles(name, f"/state/{name}", start=json.dumps(facts | start), end=end, gone=gone)


def read(story: Story, seconds: float, *found: ReceiptFiles, directory: str = "") -> Story:
    """The node reads these receipts."""
    story.at(seconds)
    return story.say(NodeReading("n1", "prod", story.now, Receipts(1, story.now, directory, found)))


def lines(story: Story, seconds: float, *text: str, is_cut: bool = False) -> Story:
    """The requested lines of the log are read."""
    story.at(seconds)
    [request] = files_to_read(story.state)["prod"]
    content = FileContent(1, story.now, request.id, path=request.pattern, text="\n".join(text), is_cut=is_cut)
    return story.say(NodeReading("login1", "prod", story.now, content))


def alone(**more: Any) -> Story:
    return Story(ALONE, slurm=False, **more).at(0)


def in_job(**more: Any) -> dict[str, Any]:
    return {"slurm": {"job_id": "88", **more}, "run": None}


# ---- without a scheduler --------------------------------------------------------------------------------------------


def test_a_run_without_slurm_has_its_exit_code_start_end_commit_and_command() -> None:
    story = alone().steps(2, 1, 2, path="/fsx/llm.log")
    read(story, 3, files())
    story.steps(20, 10, path="/fsx/llm.log")
    read(story, 30, files(0, 28, status=3))
    lines(story.log(32, path="/fsx/llm.log"), 33, *DIED)
    one = story.attempt
    assert one.end is not None
    assert (one.end.exit_code, one.end.signal, one.end.source, one.end.receipt) == (3, None, "receipt", NAME)
    assert (one.started_at, one.end.at, one.git_commit) == (BEGIN, BEGIN + 28, "c0ffee")
    assert one.command == "python train.py --api-key ***"
    assert (one.log_path, one.log_offset, one.last_step) == ("/fsx/llm.log", 100, 10)
    assert one.end.cause is not None
    assert one.end.cause.cause == "cuda-oom"
    assert one.end.cause.evidence[-1].text == f"receipt {NAME}: exit status 3"


def test_an_attempt_that_nobody_watched_is_found_by_its_receipt() -> None:
    story = alone(watched_from=1000)
    read(story, 1001, files(0, 28, signal=9))
    lines(story, 1003, "step 1")
    one = story.at(1100).say().attempt
    assert one.end is not None
    assert (one.attempt_id, one.end.signal, one.end.exit_code) == (f"llm/receipt/{NAME}", 9, None)
    assert (one.started_at, one.end.at, one.is_reconstructed) == (BEGIN, BEGIN + 28, True)
    assert one.end.log_tail == "step 1"


def test_the_steps_of_an_attempt_that_nobody_watched_are_those_of_its_last_lines() -> None:
    story = alone(watched_from=1000)
    read(story, 1001, files(0, 28, signal=9))
    lines(story, 1003, "loading", *(STEP.format(step) for step in range(3, 40)))
    one = story.at(1100).say().attempt
    assert (one.first_step, one.last_step) == (3, 39)


def test_the_first_step_of_many_lines_is_not_known() -> None:
    story = alone(watched_from=1000)
    read(story, 1001, files(0, 28, signal=9))
    lines(story, 1003, *(STEP.format(step) for step in range(3, 40)), is_cut=True)
    one = story.at(1100).say().attempt
    assert (one.first_step, one.last_step) == (None, 39)


def test_lines_of_a_learned_shape_count_from_the_first_one() -> None:
    story = alone(watched_from=1000)
    read(story, 1001, files(0, 28, signal=9))
    lines(story, 1003, *(f"[{step}/90] my loss is {4 - step / 100:.4f}, lr 0.001" for step in range(7, 30)))
    one = story.at(1100).say().attempt
    assert (one.first_step, one.last_step) == (7, 29)


def test_a_command_that_was_killed_with_trainmon_run_says_so_and_has_no_exit_code() -> None:
    story = alone(watched_from=1000)
    read(story, 1001, files(gone=True))
    [request] = files_to_read(story.state)["prod"]
    assert request == FileSpec(f"log_tail llm/receipt/{NAME}", "/fsx/llm.log", part=(100, None))
    one = lines(story, 1003, "step 1").at(1100).say().attempt
    assert one.end is not None
    assert (one.end.exit_code, one.end.signal, one.end.at) == (None, None, BEGIN + 1001)
    assert one.end.cause is not None
    assert one.end.cause.evidence[-1].text == (
        f"receipt {NAME}: no end; the command was killed together with trainmon-run"
    )


def test_a_running_command_is_an_open_attempt() -> None:
    story = read(alone(), 5, files(gone=False))
    assert (story.attempt.is_open, story.attempt.started_at, story.attempt.start_was_watched) == (True, BEGIN, True)
    assert files_to_read(story.state) == {}


def test_each_start_is_an_attempt_and_its_lines_are_those_from_its_offset() -> None:
    second = files(50, 70, status=0, name="n1-20231114T221410Z-9")
    start = json.loads(second.start or "")
    start["stdout"]["offset"] = 250
    story = alone(watched_from=1000)
    read(story, 1001, replace(second, start=json.dumps(start)), files(gone=True))
    requested = {one.id: (one.pattern, one.part) for one in files_to_read(story.state)["prod"]}
    assert requested == {
        f"log_tail llm/receipt/{NAME}": ("/fsx/llm.log", (100, 250)),
        f"log_tail llm/receipt/{second.name}": (f"/state/{second.name}/tail.log", (0, None)),
    }
    first, last = story.at(1100).say().attempts
    assert first.end is not None
    assert last.end is not None
    assert (first.end.at, last.end.exit_code) == (BEGIN + 50, 0)


def test_the_traceback_of_the_attempt_before_in_the_same_log_is_not_its_cause() -> None:
    story = alone().log(1, *DIED, path="/fsx/llm.log").log(2, "step 1", path="/fsx/llm.log")
    read(story, 5, files(4))
    read(story.log(6, "bye", path="/fsx/llm.log"), 10, files(4, 9, status=0))
    lines(story.log(12, path="/fsx/llm.log"), 13, "bye")
    assert story.attempt.end is not None
    assert story.attempt.end.log_tail == "bye"
    assert story.attempt.end.cause is not None
    assert story.attempt.end.cause.cause == "completed"


def test_a_log_that_was_read_before_its_receipt_is_the_same_attempt() -> None:
    story = alone().log(2, STEP.format(1), path="/fsx/llm.log").at(70).say()
    assert len(story.attempts) == 1
    name = story.attempt.attempt_id
    assert name.startswith("llm/log/")
    read(story, 71, files())
    assert (story.attempt.attempt_id, story.attempt.receipt) == (name, NAME)


def test_ranks_that_start_together_are_one_attempt_and_the_first_failure_counts() -> None:
    ranks = (files(0, 30, status=1), files(2, 20, signal=11, name="n2-20231114T221322Z-4"))
    one = read(alone(), 40, *ranks).at(100).say().attempt
    assert one.end is not None
    assert (one.end.signal, one.end.exit_code, one.end.receipt, one.end.at) == (11, None, ranks[1].name, BEGIN + 30)


def test_the_nodes_of_an_attempt_that_the_config_does_not_name_are_the_hosts_of_its_receipts() -> None:
    story = read(alone(), 5, files(), files(1, host="n2", name="n2-20231114T221322Z-4"))
    assert story.attempt.nodes == ("n1", "n2")
    named = Story(replace(ALONE, nodes=("gpu-1",)), slurm=False).at(0)
    assert read(named, 5, files()).attempt.nodes == ("gpu-1",)


def test_while_a_rank_runs_the_attempt_runs() -> None:
    story = read(alone(), 40, files(0, 30, status=1), files(2, name="n2-20231114T221322Z-4", gone=False))
    assert story.attempt.is_open


def test_a_receipt_without_a_name_belongs_to_the_run_with_its_directory() -> None:
    story = Story(replace(ALONE, receipts="/fsx/receipts"), slurm=False)
    read(story, 5, files(run=None), directory="/fsx/receipts")
    assert story.attempt.receipt == NAME
    assert read(alone(), 5, files(run=None)).attempts == ()
    assert read(alone(), 5, files(run="other")).attempts == ()


def test_an_old_receipt_is_no_attempt() -> None:
    assert read(alone(watched_from=8 * 86_400), 8 * 86_400 + 5, files(0, 28, status=1)).attempts == ()


@pytest.mark.parametrize("start", ["{", "[]", '{"started_at": "x"}', None])
def test_what_is_no_receipt_is_left_out(start: str | None) -> None:
    assert read(alone(), 5, ReceiptFiles(NAME, "/x", start=start)).state.receipts == {}


# ---- with Slurm ------------------------------------------------------------------------------------------------------


def test_the_exit_code_of_the_receipt_beats_that_of_slurm() -> None:
    story = read(Story().queue(10, JOB), 12, files(**in_job()))
    read(story, 52, files(0, 50, status=137, **in_job()))
    one = story.queue(60, ended(JOB, 51, "FAILED", "9:0")).queue(120, ended(JOB, 51, "FAILED", "9:0")).attempt
    assert one.end is not None
    assert (one.end.exit_code, one.end.signal, one.end.receipt) == (137, None, NAME)
    assert (one.end.scheduler_state, one.end.source, one.git_commit) == ("FAILED", "queue", "c0ffee")


def test_an_exact_exit_status_9_is_no_signal() -> None:
    story = read(Story().queue(10, JOB), 52, files(0, 50, status=9, **in_job()))
    one = story.queue(60, ended(JOB, 51, "FAILED", "9:0")).queue(120, ended(JOB, 51, "FAILED", "9:0")).attempt
    assert one.end is not None
    assert one.end.cause is not None
    assert one.end.cause.cause == "unknown"


def test_a_receipt_that_is_read_after_the_attempt_was_closed_corrects_it() -> None:
    over = ended(JOB, 51, "CANCELLED", "0:0", cancelled_by="ana")
    story = Story().queue(10, JOB).queue(60, over).queue(120, over)
    assert story.attempt.end is not None
    assert (story.attempt.end.exit_code, story.attempt.end.receipt) == (0, None)
    one = read(story, 130, files(0, 50, status=7, **in_job())).attempt
    assert one.end is not None
    assert (one.end.exit_code, one.end.scheduler_state) == (7, "CANCELLED by ana")
    assert one.end.cause is not None
    assert one.end.cause.evidence[-1].text == f"receipt {NAME}: exit status 7"
    assert story.say().attempt is one


def test_of_two_commands_of_a_script_the_last_one_counts() -> None:
    last = files(20, 50, status=7, name="n1-20231114T221340Z-9", **in_job())
    story = read(Story().queue(10, JOB), 52, files(0, 15, status=1, **in_job()), last)
    one = story.queue(60, ended(JOB, 51, "FAILED", "7:0")).queue(120, ended(JOB, 51, "FAILED", "7:0")).attempt
    assert one.end is not None
    assert (one.end.exit_code, one.end.receipt) == (7, last.name)


@pytest.mark.parametrize(("state", "code", "status"), [("COMPLETED", "0:0", 3), ("FAILED", "5:0", 0)])
def test_a_script_that_went_on_after_its_command_ended_as_slurm_says(state: str, code: str, status: int) -> None:
    story = read(Story().queue(10, JOB), 52, files(0, 40, status=status, **in_job()))
    one = story.queue(60, ended(JOB, 51, state, code)).queue(120, ended(JOB, 51, state, code)).attempt
    assert one.end is not None
    assert (one.end.exit_code, one.end.receipt) == (int(code[0]), None)


def test_a_requeued_job_has_the_receipts_of_its_own_restart() -> None:
    again = replace(JOB, restarts=1, submitted_at=BEGIN + 60, started_at=BEGIN + 70)
    story = read(Story().queue(10, JOB), 52, files(0, 50, status=1, **in_job()))
    story.queue(75, again)
    second = files(71, 90, status=2, name="n1-20231114T221431Z-9", **in_job(restart_count="1"))
    read(story, 91, second)
    story.queue(100, ended(again, 91, "FAILED", "2:0")).queue(160, ended(again, 91, "FAILED", "2:0"))
    codes = [(one.restart, one.end.exit_code, one.end.receipt) for one in story.attempts if one.end is not None]
    assert codes == [(0, 1, NAME), (1, 2, second.name)]


def test_a_task_of_an_array_has_its_own_receipt() -> None:
    task = replace(JOB, id="88_3", array=88)
    own = in_job(array_job_id="88", array_task_id="3")
    story = read(Story().queue(10, task), 52, files(0, 50, status=7, **own))
    one = story.queue(60, ended(task, 51, "FAILED", "7:0")).queue(120, ended(task, 51, "FAILED", "7:0")).attempt
    assert one.receipt == NAME


def test_an_attempt_from_accounting_has_its_receipt() -> None:
    story = read(Story(watched_from=1000), 1001, files(0, 50, status=134, **in_job()))
    one = (
        story.say(JobsAccounted("prod", (ended(JOB, 51, "FAILED", "6:0", gone_at=BEGIN + 51),))).at(1100).say().attempt
    )
    assert one.end is not None
    assert (one.end.exit_code, one.end.receipt, one.is_reconstructed) == (134, NAME, True)
