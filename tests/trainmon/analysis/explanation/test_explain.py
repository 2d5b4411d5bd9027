"""The explanation of an attempt: what a person reads who was asleep."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, Story, ended
from tests.trainmon.ledger.records import action
from trainmon.analysis.attempts import missing
from trainmon.analysis.attempts.provenance import resolved, with_named
from trainmon.analysis.explanation import AttemptRecords, Explanation, explain, page
from trainmon.model import Alert, Attempt, AttemptFile, EvalResult, Evidence, Expected, Record
from trainmon.model.attempts.cause import Confidence

OOM = "torch.OutOfMemoryError: CUDA out of memory."
DIED = ("Traceback (most recent call last):", '  File "train.py", line 5', OOM)
EXITED = "srun: error: n1: task 3: Exited with exit code 1"


def story(resumed_from: int = 20, **second: Any) -> tuple[Attempt, ...]:
    """Job 88 dies out of memory at step 30, and starts again from `resumed_from`."""
    told = Story().gpus(-50).queue(10, JOB).steps(20, 1, 2, 3).checkpoints(25, 10, 20).steps(30, 30).queue(40, JOB)
    told.queue(50, ended(JOB, 50, "FAILED", "1:0")).log(56, *DIED, EXITED).checkpoints(57, 10, 20, since=17)
    again = replace(JOB, submitted_at=BEGIN + 60, started_at=BEGIN + 70, restarts=1, **{"nodes": ("n2",), **second})
    told.queue(80, again).log(90, f"loading checkpoint from /fsx/ckpt at iteration {resumed_from}")
    return told.steps(95, resumed_from + 1, resumed_from + 2).queue(100, again).attempts


def explained(attempts: tuple[Attempt, ...], number: int = 0, **records: Any) -> Explanation:
    return explain(attempts[number], AttemptRecords(attempts=attempts, **records))


def rows(one: Explanation, title: str) -> list[tuple[str, str]]:
    (found,) = [section for section in page(one) if section.title.startswith(title)]
    return [(row.label, row.text) for row in found.rows]


def test_the_sentence_says_what_ended_it_when_and_how_sure_and_what_it_cost() -> None:
    assert explained(story()).sentence == (
        "Attempt 88 of llm ended at 2023-11-14 22:14:10 UTC, after 50s: cuda-oom (torch.OutOfMemoryError), certain. "
        "A GPU ran out of memory. Cost: 0.0 GPU hours, 10 steps lost."
    )


def test_an_attempt_that_ended_well_before_its_target_has_not_ended_as_planned() -> None:
    told = Story(replace(SPEC, target_step=1_000)).queue(10, JOB).steps(20, 1, 40)
    done = ended(JOB, 50, "COMPLETED", "0:0")
    one = explained(told.queue(55, done).log(56, "Training completed.").checkpoints(57, 40).at(120).say().attempts)
    said = "completed, not certain. It ended without an error at step 40 of 1,000: not finished. "
    assert said in one.sentence
    assert ("advice", "Nothing to do.") not in rows(one, "Evidence")


def requeued(*actions: Record) -> Explanation:
    told = Story().queue(10, JOB).steps(20, 1, 2).checkpoints(25, 10)
    again = replace(JOB, state="PENDING", submitted_at=BEGIN + 50, started_at=None, restarts=1)
    return explained(told.queue(55, again).at(120).say().attempts, actions=actions)


def test_a_requeue_is_called_one_and_is_not_retried_once_more() -> None:
    one = requeued()
    assert ": requeued, certain. The job was requeued; by whom is not known. " in one.sentence
    assert rows(one, "Retries")[0] == ("decision", "none: it was requeued: its job waits, or runs again")
    assert not [text for label, text in rows(one, "Retries") if label == "budget"]


def test_a_requeue_by_an_action_of_ours_says_by_whom() -> None:
    ours = action(expected=Expected(id="88", submitted_at=JOB.submitted_at))
    done = Record(action=ours, status="done", written_at=BEGIN + 49, done_at=BEGIN + 50)
    assert "The job was requeued by ana with trainmon-tui. " in requeued(done).sentence
    of_another = replace(done, action=action(expected=Expected(submitted_at=7.0)))
    of_other_job = replace(done, action=replace(ours, job="prod/89"))
    for other in (of_another, of_other_job, replace(done, status="refused")):
        assert "by whom is not known" in requeued(other).sentence


@pytest.mark.parametrize("state", ["NODE_FAIL", "TIMEOUT", "PREEMPTED"])
def test_a_job_that_slurm_ended_is_not_said_to_have_exited_with_0(state: str) -> None:
    told = Story().queue(10, JOB).steps(20, 1, 2).queue(55, ended(JOB, 50, state, "0:0")).at(120).say()
    assert ("22:14:10", f"ended: {state}, last step 2") in rows(explained(told.attempts), "Timeline")


def test_a_checkpoint_of_an_attempt_whose_start_is_not_known_is_not_said_to_be_of_an_earlier_one() -> None:
    old = replace(story()[0], started_at=None, first_step=None, first_step_at=None, resumed_from=None)
    assert ("committed", "step 20") in rows(explained((old,)), "Checkpoints")


def test_an_attempt_that_goes_on_has_no_cause_yet() -> None:
    one = explained(story(), 1)
    assert one.sentence == "Attempt 88.1 of llm still runs at step 22, for 30s."
    assert rows(one, "Evidence") == [("", "The attempt still runs.")]
    assert rows(one, "Retries")[0] == ("decision", "none: it still runs")


def test_an_end_whose_cause_is_not_known_is_not_explained_away() -> None:
    first, _ = story()
    assert first.end is not None
    one = explained((replace(first, retry_decision=None, end=replace(first.end, cause=None)),))
    assert "after 50s. The cause is not known. Cost: " in one.sentence
    assert rows(one, "Evidence")[-2:] == [(" -1", EXITED), ("", "These are the last lines. None proves the cause.")]
    assert rows(one, "Retries")[0] == ("decision", "none: its cause is not known")
    lost = replace(first, end=replace(first.end, source="lost", log_tail=None))
    assert explained((lost,)).sentence.endswith("Nothing reported its end: the time is when it was last seen.")
    assert ("", "No line of its log is stored.") in rows(explained((lost,)), "Evidence")


def test_everything_that_happened_is_on_one_clock() -> None:
    fired = Alert(
        id="a1", rule="run-dead", subject="llm", severity="critical", summary="llm has died", since=BEGIN + 51,
        found_at=BEGIN + 55, fired_at=BEGIN + 55, run="llm", phase="resolved", resolved_at=BEGIN + 95,
        acknowledged_by="ana", acknowledged_at=BEGIN + 58,
    )  # fmt: skip
    requeued = Record(action=action("r1", requested_at=BEGIN + 59, run="llm"), status="done", written_at=BEGIN + 60)
    late = replace(fired, id="a2", fired_at=BEGIN + 99, acknowledged_at=None)
    one = explained(story(), alerts=(late, fired), actions=(requeued,))
    assert rows(one, "Timeline") == [
        ("2023-11-14", ""),
        ("22:12:20", "queued"),
        ("22:13:20", "started on n1"),
        ("22:13:37", "first step 1; it was before this checkpoint"),
        ("22:13:37", "last committed checkpoint, step 20"),
        ("22:14:10", "ended: FAILED, exit code 1, last step 30"),
        ("22:14:15", "critical run-dead: llm has died"),
        ("22:14:18", "alert run-dead llm acknowledged by ana"),
        ("22:14:20", "Requeue job 88 of video-2b: done, “its node is slow” by ana@laptop"),
        ("22:14:30", "the next attempt started"),
    ]


def test_the_age_in_a_summary_counts_from_when_the_alert_was_last_found() -> None:
    xid = Alert(
        id="a1", rule="xid", subject="n1/3", severity="warning", summary="Xid 79 on GPU 3, 2m ago", since=BEGIN + 40,
        found_at=BEGIN + 160, fired_at=BEGIN + 40, node="n1",
    )  # fmt: skip
    lost = replace(xid, id="a2", rule="gpu-lost", summary="GPU 3 is lost")
    shown = [text for _, text in rows(explained(story(), alerts=(xid, lost)), "Timeline")]
    assert "warning xid: Xid 79 on GPU 3, 2m ago (as of 22:16:00)" in shown
    assert "warning gpu-lost: GPU 3 is lost" in shown


def test_of_a_flood_of_alerts_the_middle_is_counted_and_the_attempt_itself_is_whole() -> None:
    one = Alert(
        id="a",
        rule="gpu-hot",
        subject="n1/0",
        severity="warning",
        summary="hot",
        since=BEGIN,
        found_at=BEGIN,
        node="n1",
    )
    flood = tuple(replace(one, id=f"a{number}", fired_at=BEGIN + 40 + number / 10) for number in range(80))
    shown = rows(explained(story(), alerts=flood), "Timeline")
    assert [text for _, text in shown].count("warning gpu-hot: hot") == 50
    assert "30 more alerts and actions are left out" in [text for _, text in shown]
    assert {"queued", "started on n1", "the next attempt started"} <= {text for _, text in shown}


def test_evidence_is_shown_with_the_lines_around_it_and_their_numbers() -> None:
    shown = rows(explained(story()), "Evidence")
    assert shown[0] == ("log", "login1:/fsx/88.out")
    assert shown[1][0] == " -5"
    assert shown[2:6] == [(" -4", DIED[0]), (">-3", DIED[1]), (">-2", OOM), (" -1", EXITED)]
    assert shown[6][0] == "advice"


def test_what_changed_since_the_previous_attempt_is_named() -> None:
    first, second = story()
    attempts = (
        replace(first, config_hash="aaa", git_commit="f00"),
        replace(second, config_hash="bbb", git_commit="c0ffee"),
    )
    one = explained(attempts, 1)
    assert [(change.field, change.before, change.after) for change in one.changes] == [
        ("config_hash", "aaa", "bbb"), ("git_commit", "f00", "c0ffee"), ("nodes", ("n1",), ("n2",)),
    ]  # fmt: skip
    assert rows(one, "Config")[:2] == [("config", "bbb"), ("", "changed; before: aaa")]
    assert rows(one, "Config")[-1] == ("changed", "since attempt 88: config, git commit, nodes")
    unread = explained((attempts[0], replace(attempts[1], config_hash=None, nodes=())), 1)
    assert rows(unread, "Config")[:2] == [("config", "not known"), ("config file", "not known")]
    assert rows(unread, "Config")[-2:] == [
        ("changed", "since attempt 88: git commit"),
        ("not compared", "config, nodes: known of only one of the two attempts"),
    ]
    unchanged = rows(explained(story(nodes=("n1",)), 1), "Config")
    assert unchanged[-1] == ("changed", "nothing that is recorded, since attempt 88")
    assert rows(explained(story()), "Config")[-1] == ("changed", "No earlier attempt is known.")


def named(attempt: Attempt, **files: AttemptFile) -> Attempt:
    """The attempt whose config names its data and its config file, which were read."""
    values = {"data_manifest": "/fsx/m.json", "config_path": "/fsx/c.yaml"}
    return resolved(replace(with_named(attempt, "config", values), files=files))


def test_the_files_of_config_and_data_are_shown_with_their_age() -> None:
    first, _ = story()
    config = AttemptFile(path="/fsx/c.yaml", read_at=BEGIN + 5, size=1234, modified_at=BEGIN - 60, sha256="a" * 64)
    config = replace(config, settings_hash="b" * 12)
    data = AttemptFile(path="/fsx/m.json", read_at=BEGIN + 5, size=2_000_000, modified_at=BEGIN + 70, sha256="c" * 64)
    shown = rows(explained((named(first, config_path=config, data_manifest=data),)), "Config")
    assert shown[:3] == [
        ("config", "b" * 12 + ", the hash of its config file"),
        ("config file", "/fsx/c.yaml"),
        ("", "1.2K, changed 2023-11-14 22:12:20 UTC, read 5s after the start"),
    ]
    assert shown[5:8] == [
        ("data", "/fsx/m.json sha256:cccccccccccc"),
        ("", "1.9M, changed 2023-11-14 22:14:30 UTC, read 5s after the start"),
        ("", "It was changed after the start: the attempt may have read what it was before."),
    ]


def test_a_file_that_cannot_be_read_is_missing_and_the_reason_is_shown() -> None:
    first, _ = story()
    data = AttemptFile(path="/fsx/m.json", read_at=BEGIN + 5, error="no permission")
    config = replace(data, path="/fsx/c.yaml")
    attempt = named(first, data_manifest=data, config_path=config)
    assert attempt.data_manifest is None
    assert "data_manifest" in missing(attempt)
    one = explained((attempt,))
    shown = rows(one, "Config")
    assert ("", "/fsx/m.json cannot be read: no permission") in shown
    assert ("", "/fsx/c.yaml cannot be read: no permission") in shown
    checks = rows(one, "Smell test")
    assert ("config", "✗ Let trainmon-tui read the config: /fsx/c.yaml cannot be read: no permission.") in checks
    assert ("data", "✗ Let trainmon-tui read the manifest: /fsx/m.json cannot be read: no permission.") in checks


@pytest.mark.parametrize(("confidence", "how"), [("high", "prove"), ("low", "suggest")])
def test_facts_of_a_cause_that_is_not_certain_only_suggest_it(confidence: Confidence, how: str) -> None:
    end = story()[0].end
    assert end is not None
    assert end.cause is not None
    cause = replace(end.cause, confidence=confidence, evidence=(Evidence(text="signal 9"),))
    attempt = replace(story()[0], end=replace(end, cause=cause, log_tail="step 4"))
    text = f"These are the last lines. The facts {how} the cause."
    assert rows(explained((attempt,)), "Evidence")[-2] == ("", text)


def test_values_that_contradict_each_other_are_shown() -> None:
    first, _ = story()
    attempt = with_named(with_named(first, "wandb", {"data_manifest": "v6"}), "environment", {"data_manifest": "v7"})
    shown = rows(explained((attempt,)), "Config")
    assert shown[shown.index(("data", "v7")) + 1] == ("", "from its environment, but W&B says v6")


def test_a_config_hash_by_wandb_and_one_by_the_file_are_not_compared() -> None:
    first, second = story()
    file = AttemptFile(path="/fsx/c.yaml", read_at=BEGIN, sha256="a" * 64, settings_hash="b" * 12)
    first = with_named(named(first, config_path=file), "wandb", {"config_hash": "w" * 12})
    second = named(second, config_path=file)
    assert (first.config_hash, second.config_hash) == ("w" * 12, "b" * 12)
    assert [change.field for change in explained((first, second), 1).changes] == ["nodes"]
    changed = named(second, config_path=replace(file, settings_hash="c" * 12))
    assert [change.field for change in explained((first, changed), 1).changes] == ["config_hash", "nodes"]


def test_a_batch_script_and_the_command_in_it_are_not_compared() -> None:
    first, second = (replace(one, named={}) for one in story())
    first = with_named(first, "receipt", {"command": "python train.py"})
    script = with_named(second, "scheduler", {"command": "/fsx/train.slurm"})
    both = with_named(script, "receipt", {"command": "python train.py"})
    for other in (script, both):
        assert [change.field for change in explained((first, other), 1).changes] == ["nodes"]
    changed = with_named(script, "receipt", {"command": "python train.py --lr 1"})
    [command, _] = explained((first, changed), 1).changes
    assert (command.before, command.after) == ("python train.py", "python train.py --lr 1")


def test_a_resume_from_the_last_committed_checkpoint_is_as_expected() -> None:
    assert ("next attempt", "resumed from step 20, as expected") in rows(explained(story()), "Checkpoints")
    assert rows(explained(story(), 1), "Checkpoints")[0] == ("resumed from", "step 20, as expected")


def test_the_lineage_of_a_checkpoint_and_its_three_facts_are_separate() -> None:
    first, second = story()
    shown = rows(explained((first, second), 1), "Checkpoints")
    assert shown == [
        ("resumed from", "step 20, as expected"),
        ("", "written by attempt 88"),
        ("", "loading checkpoint from /fsx/ckpt at iteration 20"),
        ("committed", "step 20, by an earlier attempt"),
        ("trained", "to step 22 of 5,000"),
        ("evaluated", "No result of an evaluator is known."),
    ]
    inherited = replace(first, first_step=21)
    resumed = explained((inherited, second), 1).resumed
    assert resumed is not None
    assert resumed.written_by is None, "it only resumed from that checkpoint"


def test_a_resume_from_another_checkpoint_is_wrong_unless_the_loss_had_diverged() -> None:
    attempts = story(resumed_from=10)
    assert ("next attempt", "resumed from step 10: wrong, step 20 was expected") in rows(
        explained(attempts), "Checkpoints"
    )
    end = attempts[0].end
    assert end is not None
    assert end.cause is not None
    diverged = replace(attempts[0], end=replace(end, cause=replace(end.cause, cause="diverged")))
    rewound = rows(explained((diverged, attempts[1])), "Checkpoints")[-1]
    assert rewound[1] == "resumed from step 10; the loss had diverged, so an earlier checkpoint is right"


def test_without_a_named_checkpoint_only_steps_that_are_trained_again_are_wrong() -> None:
    first, second = (replace(one, resumed_from=None, resumed_words=None) for one in story())
    for step, words in ((30, "not logged; first step 30, as expected"), (15, ": wrong, step 20 was expected")):
        one = explained((first, replace(second, first_step=step)))
        assert rows(one, "Checkpoints")[-1][1].endswith(words)
    one = explained((first, replace(second, first_step=None)))
    assert rows(one, "Checkpoints")[-1] == ("next attempt", "not known, expected: step 20")


def test_steps_that_go_on_where_the_attempt_before_ended_are_not_called_expected() -> None:
    """No checkpoint of those steps is known: it may be in another directory."""
    first, second = (replace(one, resumed_from=None, resumed_words=None, last_committed_step=None) for one in story())
    goes_on = replace(second, first_step=(first.last_step or 0) + 1)
    assert rows(explained((first, goes_on)), "Checkpoints")[-1] == (
        "next attempt", f"not logged; first step {goes_on.first_step}, expected: the beginning",
    )  # fmt: skip


def test_one_cause_of_another_attempt_that_is_not_known_is_one() -> None:
    first, second = story()
    assert first.end is not None
    unknown = replace(first, end=replace(first.end, cause=None))
    said = dict(rows(explained((unknown, second), 1), "Smell test"))["retry history"]
    assert said == "✗ Set log in [[run]], or keep the logs: the cause of another attempt is not known."


def test_a_checkpoint_that_was_committed_after_the_last_listing_is_the_right_one() -> None:
    first, second = story(resumed_from=25)
    late = replace(second, last_committed_step=25)
    assert rows(explained((first, late)), "Checkpoints")[-1][1] == "resumed from step 25, as expected"
    torn = rows(explained((first, second)), "Checkpoints")[-1][1]
    assert torn == "resumed from step 25: wrong, step 20 was expected"
    again = replace(second, resumed_from=None, first_step=20)
    assert rows(explained((first, again)), "Checkpoints")[-1][1].endswith("first step 20, as expected")


def test_a_run_that_began_from_another_model_begins_there_again() -> None:
    first, second = story(resumed_from=100_000)
    nothing = replace(first, last_committed_step=None, last_committed_at=None)
    shown = rows(explained((nothing, second)), "Checkpoints")[-1][1]
    assert shown == "resumed from step 100,000, expected: the beginning"


def test_checkpoints_that_are_named_by_epochs_prove_neither_a_wrong_resume_nor_lost_steps() -> None:
    epochs = tuple(replace(one, last_committed_step=2, counts_steps=False) for one in story())
    shown = rows(explained(epochs), "Checkpoints")
    assert shown[-1][1] == "resumed from step 20, expected: step 2"
    lost = "steps lost: not known, its checkpoints are named by epochs"
    assert ("trained", f"to step 30 of 5,000; {lost}") in shown


def test_of_attempts_that_began_at_once_the_next_one_is_always_the_same() -> None:
    first, second = story()
    twins = [replace(second, attempt_id=f"prod/{number}.0") for number in (90, 89)]
    following = [explained((first, *order)).following for order in (twins, twins[::-1])]
    assert [one and one.attempt_id for one in following] == ["prod/89.0", "prod/89.0"]


def test_an_attempt_whose_log_is_still_to_be_read_is_said_to_have_ended() -> None:
    first, _ = story()
    assert first.end is not None
    ending = replace(first, end=None, reported_end=replace(first.end, cause=None))
    one = explained((ending,))
    assert one.sentence == (
        "Attempt 88 of llm ended at 2023-11-14 22:14:10 UTC, after 50s. The end of its log and its last checkpoint are "
        "awaited, then its cause is determined."
    )
    assert rows(one, "Evidence") == [("", "The end of its log and its last checkpoint are awaited.")]
    assert rows(one, "Retries")[0] == ("decision", "none: its cause is not known yet")


def test_the_budget_and_the_attempts_before_it_are_shown() -> None:
    shown = rows(explained(story()), "Retries")
    assert shown[0][0] == "decision"
    assert shown[0][1].startswith("after-change: cuda-oom: a retry needs a change of the batch size")
    assert shown[1:] == [("budget", "0 of 1 retries spent after cuda-oom"), ("before it", "no attempt is known")]
    assert rows(explained(story(), 1), "Retries")[1] == ("before it", "88: cuda-oom after 50s, steps 1 to 30, 10 lost")


def test_the_smell_test_says_what_to_add() -> None:
    one = explained(story())
    assert (one.traceable, [check.topic for check in one.checks if check.is_traceable]) == (
        3, ["placement", "checkpoint", "retry history"],
    )  # fmt: skip
    assert rows(one, "Smell test: 3 of 6")[:3] == [
        ("config", "✗ Log the settings to W&B, or name the file: config in [[run]], or --config on the command line."),
        ("", "Start from a git checkout with W&B, or set TRAINMON_CONTAINER, or log container_digest to W&B."),
        (
            "data",
            "✗ Set data_manifest in [[run]] or TRAINMON_DATA_MANIFEST in its environment, or log data_manifest to W&B.",
        ),
    ]
    whole = replace(story()[0], config_hash="aaa", git_commit="c0ffee", data_manifest="v7", evaluators={"mmlu": "1.2"})
    assert explained((whole,)).traceable == 6


RESULT = EvalResult(
    step=20, evaluator="lm-eval 0.4.9", image_digest="sha256:ab12", task_set="mmlu", task_set_version="2",
    decoding={"temperature": 0.0}, judge="none", results={"acc": 0.71}, raw_outputs="/fsx/evals/20.jsonl",
)  # fmt: skip


def test_an_evaluated_checkpoint_is_shown_with_how_it_was_evaluated() -> None:
    one = explained(story(), evals=(RESULT, replace(RESULT, step=999)))
    assert ("evaluated", "step 20") in rows(one, "Checkpoints")
    assert rows(one, "Evals") == [
        ("step 20", "acc 0.71"),
        (
            "",
            "lm-eval 0.4.9, image sha256:ab12, mmlu version 2, temperature 0.0, judge none, "
            "raw outputs in /fsx/evals/20.jsonl",
        ),
    ]
    assert ("eval state", "✓") in rows(one, "Smell test")


def test_what_an_evaluator_does_not_write_and_a_checkpoint_that_is_not_evaluated_are_missing() -> None:
    one = explained(story(), evals=(EvalResult(step=10, judge="gpt-4.1"),))
    assert ("evaluated", "step 10; of step 20, no result is known") in rows(one, "Checkpoints")
    fields = "evaluator, image_digest, task_set, task_set_version, decoding, rubric_version, results, raw_outputs"
    assert rows(one, "Evals") == [("step 10", "no scores"), ("", "judge gpt-4.1"), ("", f"not recorded: {fields}")]
    assert rows(one, "Smell test")[-2:] == [
        ("eval state", f"✗ Let the evaluator write {fields} with its results."),
        ("", "Evaluate the last committed checkpoint, step 20: no result of it is known."),
    ]
    nothing = rows(explained(story()), "Smell test")[-1]
    assert nothing[1].startswith(
        "✗ Write results to evals.jsonl beside the checkpoints, name their file in [[eval]], or log"
    )


def test_a_result_for_a_step_that_was_lost_belongs_to_the_attempt_that_trained_it_again() -> None:
    result = replace(RESULT, step=25)
    assert explained(story(), evals=(result,)).evals == ()
    unlisted = replace(story()[0], has_checkpoints=False, last_committed_step=None)
    assert ("evaluated", "step 25") in rows(explained((unlisted,), evals=(result,)), "Checkpoints")


def test_attempts_that_the_ledger_lacks_are_missing_from_the_retry_history() -> None:
    (_, second) = story()
    assert ("retry history", "✗ Keep trainmon-tui running: the ledger lacks 1 earlier attempt.") in rows(
        explained((second,)), "Smell test"
    )


def test_secrets_and_control_characters_never_reach_a_page() -> None:
    secret = "train --token=hf_abcdefghijklmnopqrstuvwxyz012345\x1b[31m"
    one = replace(story()[0], command=secret)
    acted = Record(action=action("r1", requested_at=BEGIN + 20, run="llm", why=secret), status="done")
    found = explained((one,), actions=(acted,))
    text = str(page(found)) + str(found.timeline)
    assert "hf_abcdefghijklmnopqrstuvwxyz012345" not in text
    assert "\\x1b" not in text
