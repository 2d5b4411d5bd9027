"""Attempts where no scheduler tells them apart: by process, by W&B run, by log."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, STEP, Story, ended
from trainmon.alerting.rules.runs.steps import LossNan
from trainmon.analysis.attempts import unrecorded
from trainmon.model import (
    AttemptsRestored,
    CauseName,
    Cluster,
    ClustersChanged,
    Finding,
    HostSample,
    NodeReading,
    OwnProcess,
    RunsChanged,
    Source,
    SourceChanged,
    WandbFileRun,
    WandbRows,
    WandbRun,
    WandbSpec,
)
from trainmon.model.probe_wire import SwitchSample, SwitchSamples

PLAIN = replace(SPEC, job=None, log="/fsx/*.out", nodes=("n1",))
WANDB = replace(PLAIN, wandb=WandbSpec(project="t/p", group="g"))


def wandb_run(name: str, state: str, began: float, beat: float, step: int) -> WandbRun:
    return WandbRun(
        entity="t", project="p", id=name, name=name, state=state, created_at=BEGIN + began,
        heartbeat_at=BEGIN + beat, step=step, config={"lr": "0.1"},
    )  # fmt: skip


def test_each_wandb_run_is_an_attempt() -> None:
    story = Story(WANDB, slurm=False).gpus(-50).wandb(10, wandb_run("a", "running", 5, 9, 0)).steps(20, 1, 2)
    story.wandb(30, wandb_run("a", "running", 5, 29, 2))
    one = story.attempt
    assert (one.attempt_id, one.wandb_id, one.gpus) == ("llm/wandb/t/p/a", "t/p/a", 2)
    assert (one.started_at, one.first_step, one.last_step, one.gpu_seconds) == (BEGIN + 5, 1, 2, 48.0)
    story.wandb(60, wandb_run("a", "crashed", 5, 40, 2)).log(61, "Killed").at(120).say()
    assert story.attempt.end is not None
    assert (story.attempt.ended_at, story.attempt.end.source, story.attempt.gpu_seconds) == (BEGIN + 40, "wandb", 70.0)
    story.wandb(130, wandb_run("b", "running", 125, 129, 2), wandb_run("a", "crashed", 5, 40, 2))
    assert [attempt.attempt_id for attempt in story.attempts] == ["llm/wandb/t/p/a", "llm/wandb/t/p/b"]


def test_a_wandb_run_that_ended_while_nobody_watched_is_reconstructed() -> None:
    story = Story(WANDB, watched_from=9000.0, slurm=False).wandb(9010, wandb_run("a", "failed", 5, 40, 77))
    one = story.at(9100).say().attempt
    assert (one.ended_at, one.last_step, one.is_reconstructed) == (BEGIN + 40, 77, True)


def client_file(story: Story, name: str, began: float, *, at: float, step: int, exit_code: int | None = None) -> Story:
    """A probe reads the newest file of the W&B client."""
    story.at(at)
    rows = WandbRows(
        v=1, t=BEGIN + at, id="llm", path=f"/fsx/wandb/{name}/run.wandb", file=name, size=9, mtime=BEGIN + at - 1,
        rows=step + 1, step=step, logged_at=BEGIN + at - 1, keys=("loss",),
        points=((step + 1, step, BEGIN + at - 1, 2.5),),
        summary={"loss": "2.5"}, config={"lr": "0.1"}, run=WandbFileRun(name="eager-fog", started_at=BEGIN + began),
        exit=None if exit_code is None else (exit_code, 60),
    )  # fmt: skip
    return story.say(NodeReading("login1", "prod", story.now, rows))


def test_each_file_of_the_wandb_client_is_an_attempt_of_a_run_without_another_source() -> None:
    story = Story(replace(PLAIN, log=None, wandb_dir="/fsx/wandb"), slurm=False).gpus(-50)
    client_file(story, "run-1", 5, at=10, step=0)
    client_file(story, "run-1", 5, at=30, step=20)
    one = story.attempt
    assert (one.attempt_id, one.wandb_id, one.settings and one.settings.values) == (
        "llm/wandb-file/run-1", "file/llm/run-1", {"lr": "0.1"},
    )  # fmt: skip
    assert (one.started_at, one.last_step, one.gpus, one.is_open) == (BEGIN + 5, 20, 2, True)
    client_file(story, "run-1", 5, at=60, step=45, exit_code=1).at(120).say()
    failed = story.attempt.end
    assert failed is not None
    assert (failed.at, failed.source, story.attempt.last_step) == (BEGIN + 59, "wandb", 45)
    client_file(story, "run-2", 130, at=140, step=46)
    client_file(story, "run-3", 230, at=240, step=46).at(300).say()
    client_file(story, "run-3", 230, at=310, step=60, exit_code=0).at(400).say()
    client_file(story, "run-4", 430, at=440, step=61)
    found = [
        (one.attempt_id, one.end and (one.end.source, one.end.cause and one.end.cause.cause)) for one in story.attempts
    ]
    assert found == [
        ("llm/wandb-file/run-1", ("wandb", "unknown")),
        ("llm/wandb-file/run-2", ("lost", "unknown")),
        ("llm/wandb-file/run-3", ("wandb", "completed")),
        ("llm/wandb-file/run-4", None),
    ]


def test_the_file_of_the_wandb_client_is_no_attempt_beside_a_log_or_after_its_job() -> None:
    beside = Story(replace(PLAIN, wandb_dir="/fsx/wandb"), slurm=False)
    client_file(beside, "run-1", 5, at=10, step=0)
    assert beside.attempts == ()
    after = Story(replace(SPEC, log=None, wandb_dir="/fsx/wandb")).queue(10, JOB)
    client_file(after, "run-1", 5, at=40, step=7).queue(60, ended(JOB, 50, "COMPLETED"))
    client_file(after, "run-1", 5, at=70, step=8, exit_code=0).queue(20_000)
    assert after.attempt.job_id == "88"


def test_a_log_that_begins_again_is_another_attempt() -> None:
    story = Story(PLAIN, slurm=False).steps(0, 1, 2).steps(10, 3).steps(100, 1, path="/fsx/2.out", restarted="newer")
    first, second = story.at(101).say().attempts
    assert (first.log_path, first.first_step, first.last_step) == ("/fsx/88.out", 1, 3)
    assert not first.is_open
    assert first.end is not None
    assert first.end.source == "lost"
    assert (second.log_path, second.first_step, second.is_open) == ("/fsx/2.out", 1, True)


def test_a_log_that_appears_just_after_the_start_of_the_daemon_shows_when_its_attempt_began() -> None:
    story = Story(PLAIN, slurm=False, watched_from=0.0).gpus(1)
    story.log(2, path=None, error="/fsx/*.out: no file matches").steps(5, 1, size=1).steps(15, 2).steps(25, 3)
    story.say(AttemptsRestored(())).checkpoints(40, 2, since=30).at(70).say()
    one = story.steps(75, 4).attempt
    assert (one.started_at, one.first_step, one.last_step) == (BEGIN + 5, 1, 4)
    assert (one.start_was_watched, one.has_committed, one.gpu_seconds) == (True, True, 140.0)


TAIL = tuple(f"[2025-08-01 08:{minute:02}:00] step {minute} loss 2.0" for minute in range(30, 40))
"""The last lines of a log that was there when this program started."""


@pytest.mark.parametrize(("facts", "started"), [
    ({"head": "2025-08-01 07:39:00 INFO: training begins"}, BEGIN - 3_595),
    ({"head": "2025-08-01 07:39:00 INFO: training begins", "born": BEGIN - 9_000}, BEGIN - 3_595),
    ({"born": BEGIN - 9_000}, BEGIN - 9_000),
    ({}, None),
    ({"head": "2025-08-09 07:39:00 INFO: a date of the future"}, None),
])  # fmt: skip
def test_an_attempt_whose_log_was_there_before_started_when_that_log_began(
    facts: dict[str, Any], started: float | None
) -> None:
    story = Story(PLAIN, slurm=False, watched_from=0.0).gpus(1).say(AttemptsRestored(()))
    story.log(8, *TAIL, size=9_999_999, mtime=BEGIN + 5, **facts).checkpoints(40, 35, since=-30).at(70).say()
    one = story.attempt
    assert (one.started_at, one.start_is_estimated, one.start_was_watched) == (started, started is not None, False)
    if started is not None:
        story.log(100, "[2025-08-01 08:40:00] step 40 loss 2.0")
        assert (story.attempt.started_at, story.attempt.gpu_seconds) == (started, 2 * (BEGIN + 100 - started))
        assert story.attempt.has_committed, "its checkpoint is younger"


def test_a_short_log_without_times_began_at_its_first_step() -> None:
    story = Story(PLAIN, slurm=False, watched_from=0.0).gpus(1).say(AttemptsRestored(()))
    lines = [f"step {step} loss 2.0" for step in range(1, 6)]
    story.log(8, *lines, size=sum(len(line) + 1 for line in lines), mtime=BEGIN + 5).at(70).say()
    one = story.attempt
    assert (one.started_at, one.start_is_estimated, one.first_step, one.last_step) == (BEGIN + 5, True, 1, 5)


def test_a_log_that_has_begun_again_does_not_show_when_its_last_attempt_started() -> None:
    story = Story(PLAIN, slurm=False, watched_from=0.0).gpus(1).say(AttemptsRestored(()))
    lines = (*TAIL, "resuming from step 30", *TAIL)
    story.log(8, *lines, size=9_999_999, mtime=BEGIN + 5, head="2025-08-01 01:00:00 INFO: begins").at(70).say()
    assert story.attempt.started_at == story.attempt.first_step_at == BEGIN + 5


def test_a_start_that_was_watched_counts_and_not_what_its_log_shows_after_a_restart() -> None:
    stored = Story(PLAIN, slurm=False).steps(0, 1, 2).attempt
    assert (stored.started_at, stored.start_is_estimated) == (BEGIN, False)
    story = Story(PLAIN, slurm=False, watched_from=5000.0).say(AttemptsRestored((stored,)))
    story.log(5008, *TAIL, size=9_999_999, head="2025-08-01 01:00:00 INFO: training begins").at(5070).say()
    assert (story.attempt.started_at, story.attempt.start_is_estimated) == (BEGIN, False)


def test_a_process_began_when_its_node_says() -> None:
    process = OwnProcess(pid=4711, command="python train.py", stdout="/fsx/88.out", started_s=500.0)
    story = Story(replace(PLAIN, process=process, found=True), slurm=False)
    story.at(-20).say(NodeReading("n1", "prod", story.now, HostSample(1, BEGIN - 20, boot_time=BEGIN - 900)))
    story.gpus(1).steps(30, 6)
    assert (story.attempt.started_at, story.attempt.start_is_estimated) == (BEGIN - 400, False)


def test_a_log_that_ends_with_an_oom_ends_its_attempt_after_a_minute_with_the_cause() -> None:
    story = Story(PLAIN, slurm=False).steps(0, 1, 2).steps(4, 3).log(
        10,
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 12, in <module>',
        "    main()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    )  # fmt: skip
    assert story.log(50, mtime=BEGIN + 10).attempt.is_open
    one = story.log(75, mtime=BEGIN + 10).checkpoints(76).log(130, mtime=BEGIN + 10).attempt
    assert one.end is not None
    assert one.end.cause is not None
    assert (one.end.cause.cause, one.ended_at, one.end.source) == ("cuda-oom", BEGIN + 10, "log")


def test_a_log_that_ends_with_a_completed_training_ends_its_attempt() -> None:
    story = Story(PLAIN, slurm=False).steps(0, 4998, 4999).steps(4, 4999).log(10, "Training completed. Exiting.")
    story.log(50, mtime=BEGIN + 10)
    assert (story.state.runs["llm"].verdict, story.attempt.is_open) == ("healthy", True)
    one = story.log(75, mtime=BEGIN + 10).checkpoints(76).log(130, mtime=BEGIN + 10).attempt
    assert one.end is not None
    assert one.end.cause is not None
    assert (one.end.cause.cause, one.ended_at, one.end.source) == ("completed", BEGIN + 10, "log")
    assert story.state.runs["llm"].why.endswith("at step 4,999 of 5,000: not finished")


def test_a_log_that_goes_on_while_trainmon_restarts_is_the_same_attempt() -> None:
    stored = Story(PLAIN, slurm=False).steps(0, 1, 2).attempt
    story = Story(PLAIN, slurm=False, watched_from=5000.0).say(AttemptsRestored((stored,)))
    story.steps(5010, 900, size=9_999_999).at(5070).say()
    assert (story.attempt.attempt_id, story.attempt.first_step, story.attempt.last_step) == (stored.attempt_id, 1, 900)


def test_a_run_whose_scheduler_has_not_answered_has_no_attempt_by_its_log() -> None:
    story = Story(PLAIN).queue(5).steps(10, 1, 2)
    assert story.attempts == ()
    assert story.queue(100).attempt.attempt_id.startswith("llm/log/login1:/fsx/88.out@")


def test_a_run_where_there_is_no_slurm_has_an_attempt_as_soon_as_its_log_is_read() -> None:
    story = Story(PLAIN, slurm=False, watched_from=0.0).steps(2, 1, 2)
    assert story.attempts == (), "there may be a Slurm, and the ledger has not been read"
    story.say(AttemptsRestored(()))
    assert story.attempts == ()
    story.at(3).say(ClustersChanged((Cluster(name="prod", login="login1", has_slurm=False),)))
    assert story.attempt.attempt_id.startswith("llm/log/login1:/fsx/88.out@")
    assert story.attempt.last_step == 2


def test_a_run_has_an_attempt_by_its_log_where_squeue_is_missing_although_the_config_needs_it() -> None:
    error = "there is no squeue on login1"
    missing = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="retrying", error=error)
    story = Story(PLAIN, slurm=False).say(SourceChanged(missing)).steps(2, 1, 2)
    assert story.at(100).say().attempts == (), "Slurm may answer"
    story.say(ClustersChanged((Cluster(name="prod", login="login1", has_slurm=False),)))
    assert story.attempt.attempt_id.startswith("llm/log/login1:/fsx/88.out@")


def test_a_log_belongs_to_the_attempt_of_a_ledger_that_is_read_later() -> None:
    stored = Story(PLAIN, slurm=False).steps(0, 1, 2).attempt
    story = Story(PLAIN, slurm=False, watched_from=5000.0)
    story.say(ClustersChanged((Cluster(name="prod", login="login1", has_slurm=False),)))
    story.steps(5002, 900, size=9_999_999)
    assert story.attempts == ()
    story.at(5004).say(AttemptsRestored((stored,)))
    assert (story.attempt.attempt_id, story.attempt.last_step) == (stored.attempt_id, 900)


def test_a_run_with_wandb_waits_for_its_wandb_run() -> None:
    story = Story(WANDB, slurm=False, watched_from=0.0).say(AttemptsRestored(()))
    story.say(ClustersChanged((Cluster(name="prod", login="login1", has_slurm=False),))).steps(2, 1, 2)
    assert story.attempts == ()
    story.wandb(10, wandb_run("a", "running", 5, 9, 0))
    assert story.attempt.attempt_id == "llm/wandb/t/p/a"


def test_a_process_is_an_attempt_until_it_is_gone() -> None:
    process = OwnProcess(pid=4711, command="python train.py --config c.yaml", stdout="/fsx/88.out")
    spec = replace(PLAIN, process=process, found=True)
    story = Story(spec, slurm=False).gpus(1).steps(10, 5)
    assert story.attempt.attempt_id == "llm/pid/n1/4711"
    assert (story.attempt.pid, story.attempt.config_path, story.attempt.is_open) == (4711, "c.yaml", True)
    story.at(60).say(RunsChanged((replace(spec, ended_at=BEGIN + 55),))).at(120).say()
    assert story.attempt.end is not None
    assert (story.attempt.ended_at, story.attempt.end.source) == (BEGIN + 55, "process")


def test_a_wandb_run_that_is_resumed_under_its_id_is_another_attempt() -> None:
    story = Story(WANDB, slurm=False).gpus(-50).wandb(10, wandb_run("a", "running", 5, 9, 0)).steps(20, 1, 2)
    story.wandb(60, wandb_run("a", "crashed", 5, 40, 2)).log(61, "Killed").at(120).say()
    for at in (300, 400):
        story.wandb(at, wandb_run("a", "running", 5, at - 2, 3)).steps(at + 1, at)
    first, second = story.attempts
    assert (first.ended_at, first.last_step) == (BEGIN + 40, 2)
    assert (second.attempt_id, second.started_at, second.is_open) == ("llm/wandb/t/p/a#2", BEGIN + 298, True)
    assert second.last_step == 400
    story.wandb(500, wandb_run("a", "finished", 5, 490, 5)).log(501, "done").at(600).say()
    assert [attempt.ended_at for attempt in story.attempts] == [BEGIN + 40, BEGIN + 490]


def test_a_wandb_run_that_was_silent_for_a_moment_has_not_ended() -> None:
    story = Story(WANDB, slurm=False).gpus(-50).wandb(10, wandb_run("a", "running", 5, 9, 0)).steps(20, 1, 2)
    story.wandb(60, wandb_run("a", "crashed", 5, 58, 2))
    assert (story.attempt.is_open, story.attempt.reported_end is None) == (True, False)
    story.wandb(70, wandb_run("a", "running", 5, 69, 3)).at(200).say()
    assert (story.attempt.is_open, story.attempt.reported_end) == (True, None)


SILENT = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="retrying", error="squeue: no controller")
OOM = ("Traceback (most recent call last):", '  File "/app/train.py", line 12, in <module>', "    main()",
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")  # fmt: skip


def silent(**more: Any) -> Story:
    """Slurm is required, and has never answered."""
    cluster = Cluster(name="prod", login="login1", **more)
    return Story(replace(PLAIN, job="llm"), slurm=False).say(ClustersChanged((cluster,)), SourceChanged(SILENT))


def test_while_slurm_does_not_answer_it_is_known_whose_attempts_are_not_recorded() -> None:
    story = silent().steps(0, 1, 2).steps(4, 3).at(70).say()
    assert (story.attempts, unrecorded(story.state)) == ((), {"slurm:prod": ("llm",)})
    assert unrecorded(story.queue(100).state) == {}
    assert len(story.at(170).say().attempts) == 1


def test_where_a_required_squeue_is_missing_the_log_shows_the_attempt_and_its_end() -> None:
    story = silent(has_slurm=False).steps(0, 1, 2).steps(4, 3).log(10, *OOM)
    assert unrecorded(story.state) == {}
    one = story.log(75, mtime=BEGIN + 10).checkpoints(76).log(130, mtime=BEGIN + 10).attempt
    assert story.state.runs["llm"].verdict == "dead"
    assert story.state.runs["llm"].why.startswith("its log ended 2m ago with an error")
    assert one.end is not None
    assert one.end.cause is not None
    assert (one.end.cause.cause, one.ended_at, one.end.source) == ("cuda-oom", BEGIN + 10, "log")


def test_an_attempt_that_waits_for_a_wandb_run_at_the_start_is_named() -> None:
    cluster = Cluster(name="prod", login="login1", has_slurm=False)
    source = Source(name="wandb:llm", kind="wandb", cluster="", phase="waiting")
    story = Story(WANDB, slurm=False).say(ClustersChanged((cluster,)), SourceChanged(source))
    story.at(-98).steps(-95, 1, 2)
    assert (story.attempts, unrecorded(story.state)) == ((), {"wandb:llm": ("llm",)})
    assert unrecorded(story.steps(0, 3).state) == {}
    assert len(story.attempts) == 1


RESUMED = ("loading checkpoint from /ckpt at iteration 100", STEP.format(101))


def test_the_first_lines_of_a_new_log_count_although_it_is_quiet_when_it_is_noticed() -> None:
    story = Story(PLAIN, slurm=False).steps(0, 1, 2).steps(10, 3)
    story.log(106, *RESUMED, path="/fsx/2.out", restarted="newer", mtime=BEGIN + 101)
    for steps in ((), (102,)):
        one = story.log(
            151, *map(STEP.format, steps), path="/fsx/2.out", mtime=BEGIN + (150 if steps else 101)
        ).attempts[-1]
        assert (one.resumed_from, one.first_step, one.last_step) == (100, 101, steps[0] if steps else 101)
    assert one.started_at == one.first_step_at == BEGIN + 101


@pytest.mark.parametrize("more", [
    {"lines": (), "seen": 0},
    {"lines": RESUMED, "seen": 2},
    {"lines": RESUMED, "seen": 2, "mtime": BEGIN - 3_600},
])  # fmt: skip
def test_an_attempt_never_starts_after_its_first_step_or_after_it_was_seen(more: dict[str, Any]) -> None:
    story = Story(PLAIN, slurm=False).steps(0, 1, 2).steps(100, 3)
    more = {"mtime": BEGIN + 101, **more}
    one = story.log(105, path="/fsx/2.out", restarted="newer", **more).attempts[-1]
    assert one.started_at is not None
    assert BEGIN + 100 <= one.started_at <= min(one.seen_at, one.first_step_at or one.seen_at)
    assert [each.is_open for each in story.at(170).say().attempts] == [False, True]


def test_a_run_without_a_scheduler_whose_trainer_took_the_kill_switch_is_stopped_as_its_attempt_says() -> None:
    story = Story(replace(WANDB, log=None, kill_switch="/fsx/kill"), slurm=False)
    polled = Source(name="wandb:llm", kind="wandb", cluster="prod", phase="up", period=5_000.0)
    for at, state, armed in (
        (100, "running", None),
        (190, "running", 188.0),
        (196, "running", None),
        (900, "failed", None),
    ):
        story.at(at).say(SourceChanged(replace(polled, answered_at=story.now)))
        switch = SwitchSample("/fsx/kill", exists=armed is not None, mtime=armed and BEGIN + armed)
        story.say(NodeReading("login1", "prod", story.now, SwitchSamples(1, story.now, (switch,))))
        story.wandb(at, wandb_run("a", state, 5, min(at, 198), min(at, 198)))
    run = story.state.runs["llm"]
    assert run.why == "its kill switch ended it; W&B reports that a failed at step 198"
    assert story.attempt.cause is not None
    assert (run.verdict, story.attempt.cause.cause) == ("stopped", "kill-switch")


def test_a_run_that_failed_at_its_target_by_wandb_has_not_completed() -> None:
    story = Story(replace(WANDB, target_step=20), slurm=False).wandb(10, wandb_run("a", "running", 5, 9, 0))
    story.steps(20, 18, 19, 20).wandb(60, wandb_run("a", "failed", 5, 40, 20)).at(120).say()
    assert story.attempt.cause is not None
    assert not story.attempt.has_completed


DONE = ("Training completed successfully.",)


@pytest.mark.parametrize(
    ("state", "lines", "switch", "verdict", "cause"),
    [
        ("finished", (), "taken", "finished", "completed"),
        ("finished", DONE, "armed", "finished", "completed"),
        ("failed", (), "taken", "stopped", "kill-switch"),
        ("failed", DONE, "", "dead", "unknown"),
        ("crashed", (), "", "unknown", "unknown"),
        ("crashed", (), "taken", "stopped", "kill-switch"),
        ("crashed", DONE, "taken", "finished", "completed"),
        ("killed", DONE, "", "finished", "completed"),
        ("preempted", DONE, "", "finished", "completed"),
    ],
)
def test_how_a_run_ended_at_its_target_by_wandb_is_one_for_the_verdict_and_the_attempt(
    state: str, lines: tuple[str, ...], switch: str, verdict: str, cause: CauseName
) -> None:
    story = Story(replace(WANDB, target_step=20, kill_switch="/fsx/kill"), slurm=False)
    polled = Source(name="wandb:llm", kind="wandb", cluster="prod", phase="up", period=30.0)

    def seen(at: int, status: str, *, is_armed: bool) -> None:
        armed = SwitchSample("/fsx/kill", exists=is_armed, mtime=BEGIN + 194 if is_armed else None)
        story.at(at).say(SourceChanged(replace(polled, answered_at=story.now)))
        story.say(NodeReading("login1", "prod", story.now, SwitchSamples(1, story.now, (armed,))))
        story.wandb(at, wandb_run("a", status, 5, min(at, 199), 20))

    for at in range(10, 200, 10):
        seen(at, "running", is_armed=False)
        story.steps(at, at // 10)
    story.steps(194, 20)
    seen(195, "running", is_armed=switch != "")
    seen(199, "running", is_armed=switch == "armed")
    story.log(199, *lines)
    for at in range(230, 4_000, 60):
        seen(at, state, is_armed=switch == "armed")
    assert story.attempt.cause is not None
    assert (story.state.runs["llm"].verdict, story.attempt.cause.cause) == (verdict, cause)


def test_a_run_that_wandb_alone_shows_has_not_finished_if_its_loss_is_nan() -> None:
    story = Story(replace(WANDB, log=None, target_step=20), slurm=False)
    polled = Source(name="wandb:llm", kind="wandb", cluster="prod", phase="up", period=30.0)
    for at in range(10, 260, 10):
        story.at(at).say(SourceChanged(replace(polled, answered_at=story.now)))
        one = wandb_run("a", "running" if at < 200 else "finished", 5, min(at, 199), min(20, at // 10))
        story.wandb(at, replace(one, summary={"train/loss": math.nan}))
    run = story.state.runs["llm"]
    assert (run.verdict, run.why) == (
        "diverged",
        "W&B reports that a finished at step 20 of 20, but the loss is NaN; target reached",
    )
    (found,) = LossNan().check(story.state, story.now)
    assert isinstance(found, Finding), "the alert of before is not over"
