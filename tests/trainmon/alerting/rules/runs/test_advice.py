"""What is advised about a run: with a key and a command that would be refused nobody is helped at night."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.runs.states import NOW, SPEC, ended, job, state
from tests.trainmon.analysis.retries import attempts
from trainmon.actions.planning import offered
from trainmon.alerting.rules.runs.base import (
    how_to_cancel,
    how_to_hold,
    how_to_queue,
    how_to_requeue,
    how_to_restart,
    how_to_save,
)
from trainmon.model import CauseName, State

VERBS = re.compile(r"trainmon-tui (\w+) llm")
BARE = replace(SPEC, script=None, save_switch=None, kill_switch=None)


def refused(seen: State, words: str) -> set[str]:
    """The commands of an advice that would be refused at once."""
    offers = {offer.verb: offer.refusal for offer in offered(seen, [("run", "llm")], NOW)}
    return {verb for verb in VERBS.findall(words) if offers[verb] is not None}


def test_what_has_a_switch_is_saved_by_it() -> None:
    run = state(job()).runs["llm"]
    assert how_to_save(run) == "S makes it save now: trainmon-tui save llm"


def test_what_has_no_switch_is_signalled_and_cancelled() -> None:
    run = state(job(), spec=BARE).runs["llm"]
    assert how_to_save(run) == "T signals its trainer, if it saves on a signal: trainmon-tui signal llm"
    assert how_to_cancel(run) == "C cancels its job: trainmon-tui cancel llm"
    alone = state(spec=replace(BARE, job=None)).runs["llm"]
    assert how_to_save(alone) == "make it save now; with a save_switch in its [[run]], S does that"
    assert how_to_cancel(alone) == "end its processes on its nodes"


def test_a_job_that_runs_is_requeued_and_one_that_has_ended_is_queued_again() -> None:
    another = "N queues another: trainmon-tui queue llm"
    for seen, words, refusals in (
        (state(job()), "R requeues its job: trainmon-tui requeue llm", set()),
        (state(job(requeue=False)), another, {"requeue"}),
        (state(job(batch=False)), another, {"requeue"}),
        (state(ended()), another, set()),  # Slurm still knows it, but for minutes only
        (state(ended(gone_at=NOW)), another, {"requeue"}),
    ):
        assert how_to_requeue(seen, seen.runs["llm"]) == words
        assert VERBS.findall(words)
        assert refused(seen, words) == set()
        assert refused(seen, "trainmon-tui requeue llm") == refusals


def test_what_keeps_failing_is_held_while_it_has_a_job() -> None:
    words = "H holds its jobs: trainmon-tui hold llm; "
    for seen in (state(job()), state(job(89, state="PENDING", started_at=None), ended())):
        assert how_to_hold(seen, seen.runs["llm"]) == words
        assert refused(seen, words) == set()
    over = state(ended())
    assert how_to_hold(over, over.runs["llm"]) == ""
    assert refused(over, words) == {"hold"}


def test_a_run_without_a_script_is_submitted_by_hand_as_its_job_was() -> None:
    seen = state(ended(command="/fsx/a b.slurm --lr=1"), spec=BARE)
    words = "submit it again: sbatch /fsx/a b.slurm --lr=1 (with a script in its [[run]], N does that)"
    assert how_to_queue(seen, seen.runs["llm"]) == words
    behind = state(job(command="/fsx/a.slurm"), spec=BARE)
    words = "submit it again: sbatch --dependency=afterany:88 /fsx/a.slurm ("
    assert how_to_queue(behind, behind.runs["llm"]).startswith(words), "two would write to the same checkpoints"
    unknown = state(ended(), spec=BARE)
    assert how_to_queue(unknown, unknown.runs["llm"]).startswith("submit it again with sbatch (")
    for spec in (replace(BARE, job=None), replace(BARE, nodes=("gpu-001",))):
        by_hand = state(spec=spec)
        assert how_to_queue(by_hand, by_hand.runs["llm"]) == "start it again by hand"
        silent = state(spec=spec, verdict="stalled")
        words = "end its processes on its nodes, then start it again by hand"
        assert how_to_queue(silent, silent.runs["llm"]) == words, "it may still compute, and write checkpoints"


@pytest.mark.parametrize(
    ("cause", "more", "words"),
    [
        ("nccl-timeout", {}, "nccl-timeout is often transient; N queues another: trainmon-tui queue llm"),
        ("disk-full", {}, "disk-full: a retry needs free space on the disk first; then N queues another: "),
        ("data-error", {}, "data-error: the next attempt would end in the same way; do not start it again"),
        ("kill-switch", {}, "its kill switch ended it; do not start it again without a change"),
        ("evaluator", {}, "start the evaluator again; with command in its [[eval]], R does that"),
        (
            "segfault",
            {"last_step": 9, "target_step": 9},
            "it reached its target, step 9 of 9: nothing is left to train;",
        ),
        ("node-fail", {"outlived_by": 2, "outlived_step": 70, "outlived_at": NOW}, "end the trainer of job 88 first: "),
    ],
)
def test_what_helps_after_an_end_is_what_was_decided(cause: CauseName, more: dict[str, Any], words: str) -> None:
    last = attempts.ended(0, cause, **more)
    seen = replace(state(ended(), verdict="dead"), attempts={last.attempt_id: last})
    assert how_to_restart(seen, seen.runs["llm"]).startswith(words)


def test_a_trainer_of_another_run_that_writes_the_same_checkpoints_ends_first() -> None:
    last = attempts.ended(0, "node-fail")
    other = replace(
        last, attempt_id="other", run_id="twin", job_id="77", outlived_by=2, outlived_step=70, outlived_at=NOW
    )
    seen = replace(state(ended(), verdict="dead"), attempts={one.attempt_id: one for one in (last, other)})
    run = seen.runs["llm"]
    run = replace(run, spec=replace(run.spec, checkpoints="/fsx/ckpt"))
    twin = replace(run, spec=replace(run.spec, name="twin"))
    seen = replace(seen, runs={"llm": run, "twin": twin})
    assert how_to_restart(seen, run).startswith("end the trainer of job 77 first: ")


def test_after_an_import_error_the_environment_comes_first() -> None:
    last = attempts.ended(0, "import-error")
    assert last.end is not None
    assert last.end.cause is not None
    cause = replace(last.end.cause, retry="after-change", advice="Fix the environment.")
    last = replace(last, end=replace(last.end, cause=cause))
    seen = replace(state(ended(), verdict="dead"), attempts={last.attempt_id: last})
    words = "import-error: Fix the environment; then N queues another: "
    assert how_to_restart(seen, seen.runs["llm"]).startswith(words)
