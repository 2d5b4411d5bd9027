"""Attempts of runs with a scheduler."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, DIED, FAILED, JOB, SPEC, STEP, Story, ended, trained
from trainmon.analysis.attempts import ending_directories, missing, why_missing
from trainmon.analysis.explanation.page import attempt_line
from trainmon.analysis.explanation.timeline import ending
from trainmon.model import (
    Attempt,
    AttemptsRestored,
    Gpu,
    GpuSample,
    GpuSamples,
    JobChanged,
    JobsAccounted,
    JobsListed,
    Node,
    NodeReading,
    Process,
    RunSpec,
    WandbRun,
    WandbSpec,
)


def test_a_job_that_waits_after_a_requeue_is_queued_although_a_job_before_it_ended_earlier() -> None:
    old = replace(JOB, id="87", number=87, submitted_at=BEGIN - 9_000, started_at=BEGIN - 8_000)
    old = ended(old, -7_000, "FAILED", "1:0")
    story = Story().queue(5, old, JOB).steps(100, 1, 2).steps(110, 3)
    again = replace(JOB, state="PENDING", submitted_at=BEGIN + 115, started_at=None, nodes=(), restarts=1)
    story.queue(120, old, again).queue(150, old, again)
    assert story.state.runs["llm"].verdict == "queued"


def test_a_running_job_is_an_open_attempt() -> None:
    one = trained().attempt
    assert one.attempt_id == "prod/88.0@20231114T221220"
    assert (one.run_id, one.cluster, one.model_family, one.labels) == ("llm", "prod", "reasoning", {"owner": "team-a"})
    assert (one.job_id, one.restart, one.submitted_at, one.started_at) == ("88", 0, BEGIN - 60, BEGIN)
    assert (one.nodes, one.gpu_uuids, one.gpus) == (("n1",), ("GPU-n1-0", "GPU-n1-1"), 2)
    assert (one.first_step, one.first_step_at, one.last_step, one.target_step) == (1, BEGIN + 20, 30, 5000)
    assert (one.last_committed_step, one.steps_lost, one.resumed_from) == (20, None, None)
    assert (one.gpu_seconds, one.is_open, one.is_reconstructed) == (80.0, True, False)
    assert (one.log_host, one.log_path, one.command) == ("login1", "/fsx/88.out", "/fsx/train.sh --lr 1e-4")


def test_a_requeued_job_that_ran_and_failed_unseen_is_one_attempt_however_late_its_restart_is_known() -> None:
    """The machine slept, or its clock is ahead of Slurm's: the start is long ago when the queue first lists it."""
    again = replace(JOB, submitted_at=BEGIN + 60, started_at=BEGIN + 70, restarts=1)
    failed = ended(again, 80, "FAILED", "1:0")
    story = trained().queue(55, FAILED).at(400)
    story.say(JobsListed("prod", story.now, (replace(failed, restarts=None, detail_at=None),)))
    story.say(JobChanged(replace(failed, detail_at=story.now)))
    assert [one.restart for one in story.queue(430, failed).attempts] == [0, 1]


def test_a_failed_job_closes_its_attempt_once_its_log_was_read_to_the_end_and_its_checkpoints_were_listed() -> None:
    failed = ended(JOB, 50, "FAILED", "9:0")
    story = trained().queue(55, failed)
    assert story.attempt.is_open
    story.log(56, "Traceback (most recent call last):", "RuntimeError: boom")
    assert story.attempt.is_open
    assert ending_directories(story.state) == {"/fsx/ckpt"}
    story.checkpoints(57, 10, 20)
    assert ending_directories(story.state) == frozenset()
    one = story.attempt
    assert one.end is not None
    assert (one.ended_at, one.end.exit_code, one.end.signal, one.end.scheduler_state) == (BEGIN + 50, 9, None, "FAILED")
    assert (one.gpu_seconds, one.steps_lost, one.end.source) == (100.0, 10, "queue")
    assert (one.end.log_tail or "").endswith("Traceback (most recent call last):\nRuntimeError: boom")
    assert story.queue(70, failed).queue(400).attempt == one


def test_a_failed_job_whose_exit_code_was_read_while_it_ran_has_none_until_it_is_read_again() -> None:
    story = trained().queue(55, ended(JOB, 50, "FAILED", "0:0")).log(56, "the end").checkpoints(57, 10, 20)
    assert story.attempt.is_open, "its exit code may still come"
    one = story.at(100).say().attempt
    assert one.end is not None
    assert one.end.cause is not None
    assert (one.end.exit_code, one.end.scheduler_state, one.end.cause.cause) == (None, "FAILED", "unknown")
    late = story.queue(350, ended(JOB, 50, "FAILED", "1:0")).attempt
    assert late.end is not None
    assert (late.end.exit_code, late.end.log_tail) == (1, one.end.log_tail)
    assert story.queue(360, ended(JOB, 50, "FAILED", "0:0")).attempt == late


def test_an_attempt_whose_log_nobody_reads_is_closed_all_the_same() -> None:
    story = trained().queue(50, ended(JOB, 50, "COMPLETED"))
    assert not story.at(96).say().attempt.is_open


def test_a_requeue_closes_the_attempt_and_the_next_one_has_its_own_steps() -> None:
    again = replace(JOB, state="PENDING", submitted_at=BEGIN + 50, started_at=None, restarts=1)
    story = trained().queue(55, again).log(56, "slurmstepd: error: CANCELLED DUE TO JOB REQUEUE").checkpoints(57, 20)
    one = story.attempt
    assert one.end is not None
    assert (one.ended_at, one.end.scheduler_state, one.steps_lost) == (BEGIN + 50, "REQUEUED", 10)
    assert one.end.exit_code is None
    story.queue(200, replace(again, state="RUNNING", started_at=BEGIN + 190))
    story.log(210, "loading checkpoint from /fsx/ckpt at iteration 20").steps(212, 21, 22)
    first, second = story.attempts
    assert first == one
    assert (second.restart, second.first_step, second.last_step) == (1, 21, 22)
    assert (second.resumed_from, second.resumed_words) == (20, "loading checkpoint from /fsx/ckpt at iteration 20")


def test_steps_that_come_before_slurm_lists_their_job_are_its_own() -> None:
    story = Story().steps(5, 1, 2).steps(7, 3).queue(30, JOB)
    assert (story.attempt.first_step, story.attempt.last_step) == (1, 3)


def test_a_first_step_that_nobody_watched_is_not_known() -> None:
    story = Story(watched_from=1000.0).queue(1005, JOB).steps(1010, 500, 501, size=9_999_999)
    assert (story.attempt.first_step, story.attempt.last_step) == (None, 501)
    assert story.attempt.is_reconstructed
    assert "first_step" in missing(story.attempt)


def test_a_log_that_is_read_whole_shows_the_first_step_afterwards() -> None:
    story = Story(watched_from=1000.0).queue(1005, JOB).steps(1010, 1, 2, 3, size=100)
    assert (story.attempt.first_step, story.attempt.last_step) == (1, 3)


def test_a_log_to_which_several_attempts_appended_shows_the_steps_of_the_last_one() -> None:
    resumed = replace(JOB, restarts=1)
    lines = ("loading checkpoint from /fsx/ckpt at iteration 20",)
    story = Story(watched_from=1000.0).queue(1005, resumed)
    story.steps(1010, 10, 20, 30, size=9_999_999).log(1011, *lines).steps(1012, 21)
    assert (story.attempt.first_step, story.attempt.last_step, story.attempt.resumed_from) == (21, 21, 20)


def test_a_job_that_was_cancelled_while_it_waited_is_no_attempt() -> None:
    waiting = replace(JOB, state="PENDING", started_at=None, nodes=())
    story = Story().queue(5, waiting)
    story.queue(20, replace(waiting, state="CANCELLED", started_at=BEGIN + 10, ends_at=BEGIN + 10))
    assert story.at(90).say().attempts == ()


def test_accounting_knows_more_than_the_queue_and_what_happened_before() -> None:
    story = trained()
    again = replace(JOB, state="PENDING", submitted_at=BEGIN + 50, started_at=None, restarts=1)
    story.queue(55, again).log(56, "bye").checkpoints(57, 10, 20)
    earlier = replace(JOB, id="70", number=70, submitted_at=BEGIN - 5000, started_at=BEGIN - 4000)
    failed = ended(JOB, 50, "NODE_FAIL", "1:0")
    story.say(JobsAccounted("prod", (failed, ended(earlier, -3000, "TIMEOUT"))))
    old, one = story.attempts
    assert one.end is not None
    assert (one.end.scheduler_state, one.end.source, one.ended_at, one.last_step) == (
        "NODE_FAIL", "accounting", BEGIN + 50, 30,
    )  # fmt: skip
    assert (one.end.log_tail or "").endswith("bye")
    assert old.end is not None
    assert (old.end.scheduler_state, old.gpu_seconds, old.is_reconstructed) == ("TIMEOUT", 2000.0, True)
    assert not one.is_reconstructed
    assert story.say(JobsAccounted("prod", (failed,))).attempts == (old, one)


def test_an_attempt_that_ended_while_nobody_watched_is_closed_with_what_is_known() -> None:
    stored = trained().attempt
    story = Story(watched_from=5000.0).say(AttemptsRestored((stored,))).queue(5050)
    one = story.attempt
    assert one.end is not None
    assert (one.ended_at, one.end.source, one.end.scheduler_state) == (BEGIN + 40, "lost", None)
    assert (one.last_step, one.may_have_gone_on, one.is_reconstructed) == (30, True, True)
    assert one.steps_lost is None, "it may have trained on after it was seen last"
    assert why_missing(one)["steps_lost"] == "its end was not watched, and its log was not read since"
    assert attempt_line(one).endswith("steps 1 to 30 or more")
    assert ending(one) == "ended: nothing reported it, last known step 30"


def test_what_accounting_reports_first_waits_for_the_end_of_the_log_and_the_last_checkpoint() -> None:
    """A daemon starts again after the end of a job, and its connection to the node needs longer than accounting."""
    stored = trained().attempt
    failed = ended(JOB, 90, "FAILED", "1:0")
    story = Story(watched_from=500.0).say(AttemptsRestored((stored,))).at(511).say(JobsAccounted("prod", (failed,)))
    assert story.attempt.is_open
    story.log(520, STEP.format(60), "RuntimeError: boom", mtime=BEGIN + 90)
    assert story.attempt.is_open
    story.checkpoints(521, 10, 20, 50, since=60)
    one = story.attempt
    assert one.end is not None
    assert (one.end.source, one.end.scheduler_state, one.ended_at) == ("accounting", "FAILED", BEGIN + 90)
    assert (one.first_step, one.last_step, one.last_committed_step, one.steps_lost) == (1, 60, 50, 10)
    assert (one.end.log_tail or "").endswith("RuntimeError: boom")
    assert story.state.accounted == ()


def test_an_attempt_of_which_nothing_was_seen_has_its_log_and_its_checkpoints() -> None:
    failed = ended(JOB, 90, "FAILED", "1:0")
    story = Story(watched_from=500.0).say(JobsAccounted("prod", (failed,)))
    assert story.attempts == ()
    story.log(520, STEP.format(1), STEP.format(60), "RuntimeError: boom", mtime=BEGIN + 90, size=100)
    one = story.checkpoints(521, 10, 20, 50, since=60).attempt
    assert (one.first_step, one.last_step, one.last_committed_step) == (1, 60, 50)
    assert one.end is not None
    assert one.end.cause is not None
    assert one.end.cause.cause == "python-exception"


def test_what_accounting_reports_is_taken_without_a_log_when_none_can_be_read() -> None:
    failed = ended(JOB, 90, "FAILED", "1:0")
    story = Story(watched_from=500.0).say(JobsAccounted("prod", (failed,)))
    assert story.at(544).say().attempts == ()
    one = story.at(546).say().attempt
    assert one.end is not None
    assert (one.end.scheduler_state, one.last_step, one.end.log_tail) == ("FAILED", None, None)


def test_a_log_that_was_written_after_the_attempt_is_not_its_own() -> None:
    failed = ended(JOB, 90, "FAILED", "1:0")
    story = Story(watched_from=500.0).say(JobsAccounted("prod", (failed,)))
    one = story.log(520, STEP.format(900), "RuntimeError: later").checkpoints(521, 10, since=60).attempt
    assert one.end is not None
    assert (one.last_step, one.end.log_tail) == (None, None)


def test_an_attempt_that_was_watched_to_its_end_stays_so_when_a_later_start_hears_of_it_from_accounting() -> None:
    story = trained().queue(55, FAILED).log(56, *DIED).checkpoints(57, 10, 20)
    assert not story.attempt.is_reconstructed
    late = Story(watched_from=500.0).say(JobsAccounted("prod", (FAILED,))).at(560).say()
    assert late.attempt.is_reconstructed
    for one in (late, Story(watched_from=500.0)):
        one.say(AttemptsRestored((story.attempt,))).say(JobsAccounted("prod", (FAILED,)))
        assert one.attempt.end is not None
        assert (one.attempt.end.source, one.attempt.is_reconstructed) == ("accounting", False)


def test_an_attempt_that_goes_on_while_trainmon_restarts_stays_the_same_one() -> None:
    stored = trained().attempt
    story = Story(watched_from=5000.0).say(AttemptsRestored((stored,))).queue(5010, JOB)
    story.steps(5020, 900, size=9_999_999).queue(5030, JOB)
    one = story.attempt
    assert (one.attempt_id, one.first_step, one.last_step) == (stored.attempt_id, 1, 900)
    assert not one.is_reconstructed


def test_wandb_tells_what_the_attempt_trained_with() -> None:
    wandb = WandbRun(
        entity="t", project="p", id="abc", name="x", state="running", created_at=BEGIN + 5, heartbeat_at=BEGIN + 20,
        commit="f00d" * 10,
        config={
            "lr": "0.1", "docker_image": "nvcr.io/x@sha256:1", "data.manifest": "s3://d/m.json?token=abcdef0123456",
            "lm_eval_version": "0.4.9", "config_path": "/fsx/c.yaml",
        },
    )  # fmt: skip
    spec = replace(SPEC, wandb=WandbSpec(project="t/p", group="g"))
    one = Story(spec).queue(10, JOB).wandb(25, wandb).queue(30, JOB).attempt
    assert (one.wandb_id, one.git_commit, one.container) == ("t/p/abc", "f00d" * 10, "nvcr.io/x@sha256:1")
    assert (one.data_manifest, one.evaluators, one.config_path) == (
        "s3://d/m.json?token=***", {"lm_eval": "0.4.9"}, "/fsx/c.yaml",
    )  # fmt: skip
    assert one.config_hash is not None
    assert len(one.config_hash) == 12
    named = Story(replace(spec, data_manifest="a3")).queue(10, JOB).wandb(25, wandb).queue(30, JOB).attempt
    assert named.data_manifest == "a3", "the config comes first"


def test_the_environment_of_the_processes_of_the_job_names_data_and_container() -> None:
    named = {"TRAINMON_DATA_MANIFEST": "s3://d/m.json?token=abcdef0123456", "APPTAINER_CONTAINER": "/fsx/train.sif"}
    other = Process(pid=6, environment={"SLURM_JOB_ID": "7", "TRAINMON_DATA_MANIFEST": "other"})
    own = Process(pid=7, environment={"SLURM_JOB_ID": str(JOB.number), **named})

    def attempt(spec: RunSpec) -> Attempt:
        story = Story(spec)
        gpu = Gpu(index=0, processes=(other, own))
        story.state = replace(story.state, nodes={JOB.nodes[0]: Node(name=JOB.nodes[0], cluster="prod", gpus=(gpu,))})
        return story.queue(10, JOB).queue(30, JOB).attempt

    found = attempt(SPEC)
    assert (found.data_manifest, found.container) == ("s3://d/m.json?token=***", "/fsx/train.sif")
    assert attempt(replace(SPEC, data_manifest="a3")).data_manifest == "a3", "the config comes first"


def test_the_environment_counts_more_than_wandb_also_if_wandb_answers_later() -> None:
    process = Process(pid=7, environment={"SLURM_JOB_ID": str(JOB.number), "TRAINMON_DATA_MANIFEST": "m5"})
    spec = replace(SPEC, wandb=WandbSpec(project="t/p", group="g"))
    wandb = WandbRun(
        entity="t", project="p", id="abc", name="x", state="running", created_at=BEGIN + 5, heartbeat_at=BEGIN + 20,
        config={"data_manifest": "z9"},
    )  # fmt: skip
    story = Story(spec).queue(10, JOB).wandb(25, wandb)
    assert story.attempt.data_manifest == "z9"
    gpu = Gpu(index=0, processes=(process,))
    story.state = replace(story.state, nodes={JOB.nodes[0]: Node(name=JOB.nodes[0], cluster="prod", gpus=(gpu,))})
    assert story.queue(40, JOB).wandb(50, wandb).attempt.data_manifest == "m5"


def test_secrets_of_a_command_line_are_masked() -> None:
    job = replace(JOB, command="/fsx/train.sh --api-key abcdef0123456789 --config /fsx/c.yaml")
    one = Story().queue(10, job).attempt
    assert (one.command, one.config_path) == ("/fsx/train.sh --api-key *** --config /fsx/c.yaml", "/fsx/c.yaml")


def test_an_attempt_that_has_ended_says_whether_another_one_can_help_and_what_is_left_of_its_budget() -> None:
    story = Story().queue(0, JOB).steps(20, 1, 2, 3)
    story.queue(60, ended(JOB, 50, "FAILED", "1:0")).log(65, "the end").checkpoints(70)
    assert (story.attempt.retry_decision, story.attempt.budget_spent) == ("now", 0)
    again = replace(JOB, restarts=1, submitted_at=BEGIN + 100, started_at=BEGIN + 230)
    story.queue(240, again).steps(250, 1, 2, 3)
    story.queue(300, ended(again, 290, "FAILED", "1:0")).log(305, "the end").checkpoints(310)
    assert [(one.retry_decision, one.budget_spent) for one in story.attempts] == [("now", 0), ("stop", 1)]


def test_a_gpu_that_is_lost_after_the_end_is_not_its_cause_when_accounting_confirms_that_end() -> None:
    failed = ended(JOB, 50, "FAILED", "1:0")
    story = trained().queue(60, failed).log(65, "ValueError: heads must divide the width").checkpoints(70)
    assert story.attempt.end is not None
    before = story.attempt.end.cause
    assert before is not None
    story.at(360).say(NodeReading("n1", "prod", story.now, GpuSamples(1, story.now, (GpuSample(0, "lost", True),))))
    story.say(JobsAccounted("prod", (failed,)))
    assert story.attempt.end.source == "accounting"
    assert story.attempt.end.cause == before
    late = Story(watched_from=300.0).gpus(310)
    late.say(NodeReading("n1", "prod", late.now, GpuSamples(1, late.now, (GpuSample(0, "lost", True),))))
    late.say(JobsAccounted("prod", (failed,))).at(350).say()
    assert late.attempt.end is not None
    assert late.attempt.end.cause is not None
    assert late.attempt.end.cause.cause != "gpu-hardware"


def test_the_log_of_an_attempt_is_the_one_that_is_read_whatever_its_job_writes() -> None:
    one = Story().queue(10, JOB).steps(20, 1, 2, path="/data/train.log").queue(30, JOB).attempt
    assert (one.log_host, one.log_path) == ("login1", "/data/train.log")


def test_a_checkpoint_from_which_it_resumed_is_not_its_own() -> None:
    resumed = replace(JOB, restarts=1)
    story = Story().queue(10, resumed).log(20, "loading checkpoint from /fsx/ckpt at iteration 20")
    story.checkpoints(22, 10, 20, since=-60)
    assert (story.attempt.last_committed_step, story.attempt.has_committed) == (20, False)
    own = story.steps(30, 21, 40).checkpoints(60, 10, 20, 40).queue(61, resumed).attempt
    assert (own.last_committed_step, own.has_committed) == (40, True)
    assert not replace(own, started_at=None, last_committed_step=20).has_committed


def test_every_column_that_is_null_is_named_and_a_checkpoint_that_does_not_exist_is_known() -> None:
    story = Story().queue(10, replace(JOB, gpus=None, gpus_requested=None, command=None)).at(20).checkpoints(21)
    one = story.queue(40, replace(FAILED, gpus=None, gpus_requested=None, command=None)).at(200).say().attempt
    assert one.end is not None
    unknown = {"gpus", "gpu_seconds", "command", "first_step", "first_step_at", "last_step", "log_tail"}
    assert unknown <= {*missing(one)}
    assert (one.has_checkpoints, "last_committed_step" in missing(one)) == (True, False)
    assert "last_committed_step" in missing(replace(one, has_checkpoints=False))


@pytest.mark.parametrize(
    ("state", "verdict", "why"),
    [
        ("CANCELLED", "stopped", "cancelled by 4711; job 88: cancelled by 4711, 3m ago, at step 30"),
        ("NODE_FAIL", "dead", "job 88: one of its nodes failed, 3m ago, at step 30"),
    ],
)
def test_the_end_of_a_vanished_job_is_one_for_its_run_and_its_attempt(state: str, verdict: str, why: str) -> None:
    """Accounting that answers late does so with all that ended meanwhile: the run stayed dead, how is not known."""
    story = trained().queue(60).checkpoints(61, 20)
    by = "4711" if state == "CANCELLED" else None
    story.at(200).say(JobsAccounted("prod", (ended(JOB, 50, state, cancelled_by=by),))).queue(230)
    run = story.state.runs["llm"]
    assert (run.verdict, run.why) == (verdict, why)
    assert story.attempt.end is not None
    assert (story.attempt.end.scheduler_state or "").startswith(state)
