"""What a page lacks: facts that nobody wrote, and checkpoints that nobody evaluated."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.explanation.pages import explained, rows, story
from trainmon.model import EvalResult


def test_the_smell_test_says_what_to_add() -> None:
    one = explained(story())
    assert (one.traceable, [check.topic for check in one.checks if check.is_traceable]) == (
        3, ["placement", "checkpoint", "retry history"],
    )  # fmt: skip
    assert rows(one, "Traceability: 3 of 6")[:3] == [
        ("config", "✗ Log the settings to W&B, or name the file: config in [[run]], or --config on the command line."),
        ("", "Start from a git checkout with W&B, or set TRAINMON_CONTAINER, or log container_digest to W&B."),
        (
            "data",
            "✗ Set data_manifest in [[run]] or TRAINMON_DATA_MANIFEST in its environment, or log data_manifest to W&B.",
        ),
    ]
    whole = replace(story()[0], config_hash="aaa", git_commit="c0ffee", data_manifest="v7", evaluators={"mmlu": "1.2"})
    assert explained((whole,)).traceable == 6
    odd = explained((replace(whole, unrecognised_at=(whole.last_committed_at or 0.0) + 1),))
    assert [check.topic for check in odd.checks if not check.is_traceable] == ["checkpoint"]


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
    assert ("eval state", "✓") in rows(one, "Traceability")


def test_what_an_evaluator_does_not_write_and_a_checkpoint_that_is_not_evaluated_are_missing() -> None:
    one = explained(story(), evals=(EvalResult(step=10, judge="gpt-4.1"),))
    assert ("evaluated", "step 10; of step 20, no result is known") in rows(one, "Checkpoints")
    fields = "evaluator, image_digest, task_set, task_set_version, decoding, rubric_version, results, raw_outputs"
    assert rows(one, "Evals") == [("step 10", "no scores"), ("", "judge gpt-4.1"), ("", f"not recorded: {fields}")]
    assert rows(one, "Traceability")[-2:] == [
        ("eval state", f"✗ Let the evaluator write {fields} with its results."),
        ("", "Evaluate the last committed checkpoint, step 20: no result of it is known."),
    ]
    nothing = rows(explained(story()), "Traceability")[-1]
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
        explained((second,)), "Traceability"
    )
