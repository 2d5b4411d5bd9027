"""What is decided after an attempt, for each kind of cause."""

from __future__ import annotations

from hashlib import sha256

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.retries.attempts import HOUR, ended
from trainmon.analysis.attempts import with_file
from trainmon.analysis.attempts.fold import with_named
from trainmon.analysis.retries import DEFAULTS, RetryDecision, decide
from trainmon.analysis.retries.decision import with_decisions
from trainmon.model import CAUSES, Attempt, CauseName, FileContent, RetryLimit, RetryPolicy


def after(*attempts: Attempt, limits: dict[str, RetryLimit] | None = None) -> RetryDecision:
    decision = decide(attempts[-1], attempts, RetryPolicy(limits=limits or {}))
    assert decision is not None
    return decision


def test_a_fault_of_the_infrastructure_is_retried_three_times_in_vain_and_then_no_more() -> None:
    attempts = [ended(number, "nccl-timeout", last_step=100) for number in range(4)]
    decisions = [after(*attempts[: count + 1]) for count in range(4)]
    assert [(one.choice, one.spent, one.left) for one in decisions] == [
        ("now", 0, 3), ("now", 1, 2), ("now", 2, 1), ("stop", 3, 0),
    ]  # fmt: skip
    assert decisions[-1].why == "nccl-timeout came again 3 times without a new step or checkpoint: its budget is spent"
    assert decisions[1].budget_text == "retries used after nccl-timeout: 1 of 3"


def test_an_unclear_failure_gets_one_retry_which_confirms_it() -> None:
    first, again = ended(0, "python-exception"), ended(1, "python-exception")
    assert after(first).why == "python-exception: one retry shows whether it repeats"
    assert after(first, again).why == (
        "python-exception came again once without a new step or checkpoint: its budget is spent"
    )


@pytest.mark.parametrize(
    "progress", [{"last_step": 200}, {"last_step": 90, "has_checkpoints": True, "last_committed_step": 60}]
)
def test_an_attempt_that_made_a_new_step_or_checkpoint_gives_the_budget_back(progress: dict[str, int]) -> None:
    before = [ended(n, "segfault", last_step=100, has_checkpoints=True, last_committed_step=50) for n in range(2)]
    assert after(*before).choice == "stop"
    assert after(*before, ended(2, "segfault", **progress)).choice == "now"


def test_after_an_attempt_that_reached_the_target_one_without_a_step_has_nothing_to_train() -> None:
    done = ended(0, "evaluator", last_step=100, target_step=100)
    why = "it reached its target, step 100 of 100: nothing is left to train"
    for target in (None, 100):
        decision = after(done, ended(1, "node-fail", "n1: DOWN", target_step=target))
        assert (decision.choice, decision.why) == ("stop", why)
    torn = replace(done, has_checkpoints=True, last_committed_step=90)
    assert after(torn, ended(1, "node-fail", "n1: DOWN")).choice == "after-node-swap", "its last step is not saved"
    assert after(replace(torn, last_committed_step=100), ended(1, "node-fail", "n1: DOWN")).why == why
    for unknown in (replace(torn, counts_steps=False), replace(torn, unrecognised_at=done.seen_at)):
        assert after(unknown, ended(1, "node-fail", "n1: DOWN")).why == why, "its checkpoints do not tell"
    nan = after(ended(0, "diverged", last_step=100, target_step=100))
    assert nan.why == "diverged: a retry needs an earlier checkpoint, or other data or settings first"
    assert after(done, ended(1, "nccl-timeout", target_step=200)).choice == "now", "there is more to train"
    assert after(done, ended(1, "nccl-timeout", last_step=20, target_step=100)).choice == "now", "it trains anew"


def helped(cause: CauseName, advice: str) -> Attempt:
    """An attempt whose cause says what must change."""
    one = ended(0, cause)
    assert one.end is not None
    assert one.cause is not None
    return replace(one, end=replace(one.end, cause=replace(one.cause, retry="after-change", advice=advice)))


def test_after_a_cause_that_needs_a_change_the_decision_names_it() -> None:
    decision = after(helped("import-error", "Install the package."))
    assert (decision.choice, decision.why) == ("after-change", "import-error: Install the package")
    assert decision.budget == 1
    limits = {"import-error": RetryLimit(times=1)}
    assert after(helped("import-error", "Install the package."), limits=limits).choice == "now"
    assert after(helped("network-or-auth", "Log in.")).why == "network-or-auth is often transient"
    assert after(ended(0, "unknown"), limits={"unknown": RetryLimit(times=3)}).why == (
        "unknown: one retry shows whether it repeats"
    )


def test_an_end_before_the_target_needs_a_person() -> None:
    decision = after(ended(0, "completed", last_step=40, target_step=100))
    assert (decision.choice, decision.budget_text, decision.left) == ("after-change", "", 0)
    assert decision.why == (
        "it ended without an error at step 40 of 100: if it is complete, correct target_step in its [[run]], "
        "else see why"
    )


def test_what_may_have_been_a_person_is_not_said_to_be_one() -> None:
    sure = ended(0, "cancelled-by-user")
    assert (after(sure).choice, after(sure).why) == ("stop", "a person ended it")
    assert sure.end is not None
    assert sure.cause is not None
    told = replace(sure, end=replace(sure.end, cause=replace(sure.cause, confidence="low")))
    assert after(told).choice == "after-change"
    assert after(told).why == (
        "it was told to stop, and nothing shows that a person did that: find out who or what did"
    )


def test_replayed_steps_are_no_progress() -> None:
    """NeMo-Automodel 3390: two more jobs resumed from step 59,999, replayed to 69,999, and died."""
    first = ended(0, "storage-io", last_step=69_999)
    again = ended(1, "storage-io", resumed_from=59_999, last_step=69_999)
    assert after(first, again).spent == 1


@pytest.mark.parametrize("cause", ["python-exception", "nccl-timeout", "evaluator", "preempted", "cuda-oom"])
def test_after_exit_status_93_of_its_launcher_nothing_is_retried(cause: CauseName) -> None:
    attempt = ended(0, cause)
    assert attempt.end is not None
    decision = after(replace(attempt, end=replace(attempt.end, exit_code=93)))
    assert (decision.choice, decision.cause) == ("stop", cause)
    assert decision.why == "exit status 93: its launcher has decided that it must not be restarted"


def test_another_failure_or_another_node_has_a_budget_of_its_own() -> None:
    first = ended(0, "python-exception", fingerprint="a")
    assert after(first, ended(1, "python-exception", fingerprint="b")).spent == 0
    nodes = ("n1", "n2")
    bad = [ended(n, "gpu-hardware", f"n{n % 2 + 1}: Xid 79", nodes=nodes) for n in range(2)]
    decision = after(*bad)
    assert (decision.choice, decision.exclude, decision.spent) == ("after-node-swap", ("n2",), 0)
    assert decision.why == "gpu-hardware on n2: the next attempt must avoid it"


def test_a_node_that_the_reason_of_another_one_names_is_not_excluded() -> None:
    failed = ended(0, "node-fail", "Slurm: NODE_FAIL", "n2: DOWN in Slurm (no link to n1)", nodes=("n1", "n2"))
    assert after(failed).exclude == ("n2",)


def test_retries_in_vain_for_changing_causes_stop_as_well() -> None:
    causes: list[CauseName] = ["nccl-timeout", "rendezvous", "requeued", "preempted"]
    attempts = [ended(number, cause, last_step=100) for number, cause in enumerate(causes)]
    assert [after(*attempts[: count + 1]).choice for count in range(4)] == ["now", "now", "none", "stop"]
    assert after(*attempts).why == "the last 3 retries made no new step and no new checkpoint"


def test_out_of_memory_is_retried_only_after_a_change() -> None:
    first = ended(0, "cuda-oom", config_hash="aa")
    decision = after(first)
    assert decision.choice == "after-change"
    assert decision.why == (
        "cuda-oom: a retry needs a change of the batch size, activation checkpointing or the placement first"
    )
    limits = {"cuda-oom": RetryLimit(times=2, after_change=("batch", "placement"))}
    same = ended(1, "cuda-oom", config_hash="aa")
    assert after(first, same, limits=limits).why == (
        "cuda-oom came again, and nothing had changed (config aa, 1 node, 8 GPUs)"
    )
    for change in ({"config_hash": "bb"}, {"config_hash": "aa", "nodes": ("n1", "n2")}):
        assert after(first, ended(1, "cuda-oom", **change), limits=limits).choice == "after-change"
    assert after(first, ended(1, "cuda-oom", config_hash="bb")).choice == "stop"  # the default is one retry


def test_out_of_memory_is_retried_without_wandb_if_the_config_file_has_changed() -> None:
    def oom(number: int, text: str) -> Attempt:
        attempt = with_named(ended(number, "cuda-oom"), "config", {"config_path": "/fsx/c.yaml"})
        digest = sha256(text.encode()).hexdigest()
        name = f"config_path {attempt.attempt_id}"
        content = FileContent(1, 0.0, name, "/fsx/c.yaml", sha256=digest, text=text)
        return with_file(attempt, content, 0.0, 0.0)

    limits = {"cuda-oom": RetryLimit(times=2, after_change=("batch", "checkpointing"))}
    first = oom(0, "train: {batch: 8, lr: 1e-4}")
    assert after(first, oom(1, "train: {batch: 4, lr: 1e-4}"), limits=limits).choice == "after-change"
    same = oom(1, "# the same settings\ntrain:\n  lr: 1e-4\n  batch: 8\n")
    assert same.files["config_path"].sha256 != first.files["config_path"].sha256
    assert after(first, same, limits=limits).why == (
        f"cuda-oom came again, and nothing had changed (config {first.config_hash}, 1 node, 8 GPUs)"
    )
    by_wandb = with_named(oom(1, "train: {batch: 8, lr: 1e-4}"), "wandb", {"config_hash": "w" * 12})
    assert by_wandb.config_hash == "w" * 12
    assert after(first, by_wandb, limits=limits).choice == "stop", "the files are compared"


def test_out_of_memory_is_retried_if_the_command_line_has_changed() -> None:
    def oom(number: int, batch: int, **hashes: str) -> Attempt:
        attempt = with_named(ended(number, "cuda-oom"), "scheduler", {"command": f"/fsx/train.sh --batch {batch}"})
        return with_named(attempt, "wandb", {"config_hash": hashes["wandb"]}) if hashes else attempt

    limits = {"cuda-oom": RetryLimit(times=2, after_change=("batch",))}
    needed = "cuda-oom: a retry needs a change of the batch size first"
    assert after(oom(0, 8), oom(1, 4), limits=limits).why == needed
    unknown = after(oom(0, 8), oom(1, 8), limits=limits).why
    assert unknown.endswith("it is not known whether the batch size has changed: confirm that before one retry")
    by_wandb = after(oom(0, 8, wandb="aa"), oom(1, 4, wandb="aa"), limits=limits)
    assert by_wandb.why.startswith("cuda-oom came again, and nothing had changed"), "W&B knows the settings themselves"


def test_a_preempted_run_resumes_from_the_last_committed_checkpoint() -> None:
    assert after(ended(0, "preempted", has_checkpoints=True, last_committed_step=1500)).why == (
        "preempted: the next attempt should resume from the last committed checkpoint, step 1,500"
    )
    assert (
        "may begin anew, because no checkpoint is committed" in after(ended(0, "preempted", has_checkpoints=True)).why
    )


@pytest.mark.parametrize(
    ("cause", "choice"),
    [
        ("data-error", "stop"), ("checkpoint-mismatch", "stop"), ("evaluator", "evaluator"), ("completed", "none"),
        ("cancelled-by-user", "stop"), ("kill-switch", "stop"), ("no-restart", "stop"), ("disk-full", "after-change"),
        ("gpu-hardware", "after-node-swap"), ("rendezvous", "now"), ("unknown", "now"),
    ],
)  # fmt: skip
def test_each_kind_of_cause_has_its_own_answer(cause: CauseName, choice: str) -> None:
    assert after(ended(0, cause)).choice == choice


def test_the_config_may_give_any_cause_another_budget_and_a_period() -> None:
    limits = {"python-exception": RetryLimit(times=1, within=HOUR / 2)}
    attempts = [ended(number, "python-exception") for number in range(3)]
    assert after(*attempts, limits=limits).choice == "now"
    assert after(ended(0, "rendezvous"), limits={"rendezvous": RetryLimit(times=0)}).choice == "stop"


def test_every_cause_has_an_answer_and_a_sentence() -> None:
    for cause in CAUSES:
        decision = after(ended(0, cause))
        assert decision.why
        assert decision.budget == (DEFAULTS[cause].times if cause in DEFAULTS else 0)


def test_an_attempt_that_runs_or_whose_cause_is_not_known_has_no_decision() -> None:
    attempt = Attempt(attempt_id="prod/88", run_id="llm", cluster="prod")
    assert decide(attempt, [attempt], RetryPolicy()) is None


def test_a_decision_that_the_ledger_has_is_not_made_again() -> None:
    kept = replace(ended(0, "segfault"), retry_decision="stop", budget_spent=7)
    assert with_decisions({}, {kept.attempt_id: kept}, {}, {})[kept.attempt_id] == kept


def test_a_new_attempt_does_not_change_what_was_decided_about_those_before_it() -> None:
    first, second = replace(ended(0, "segfault"), retry_decision="stop", budget_spent=7), ended(1, "segfault")
    found = with_decisions({first.attempt_id: first}, {one.attempt_id: one for one in (first, second)}, {}, {})
    assert (found[first.attempt_id], found[second.attempt_id].retry_decision) == (first, "stop")


def test_another_checkpoint_or_another_position_in_the_data_has_a_budget_of_its_own() -> None:
    first = ended(0, "checkpoint-corrupt", resumed_from=100)
    assert after(first, ended(1, "checkpoint-corrupt", resumed_from=100)).spent == 1
    assert after(first, ended(1, "checkpoint-corrupt", resumed_from=50)).spent == 0
    first = ended(0, "dataloader-worker", last_step=20)
    assert after(first, ended(1, "dataloader-worker", last_step=20)).spent == 1
    assert after(first, ended(1, "dataloader-worker", last_step=10)).spent == 0


def test_steps_up_to_the_resumed_checkpoint_are_no_progress() -> None:
    assert after(ended(0, "segfault"), ended(1, "segfault", resumed_from=500, last_step=500)).spent == 1


UNKNOWN = (
    "cuda-oom came again, and it is not known whether the batch size, activation checkpointing or the placement has "
    "changed: confirm that before one retry"
)


@pytest.mark.parametrize(("before", "after_it"), [(None, None), ("aa", None), (None, "aa")])
def test_if_it_is_not_known_whether_the_config_has_changed_one_confirmation_is_asked_for(
    before: str | None, after_it: str | None
) -> None:
    limits = {"cuda-oom": RetryLimit(times=3, after_change=("batch", "checkpointing", "placement"))}
    first, second = ended(0, "cuda-oom", config_hash=before), ended(1, "cuda-oom", config_hash=after_it)
    decision = after(first, second, limits=limits)
    assert (decision.choice, decision.why) == ("after-change", UNKNOWN)
    third = ended(2, "cuda-oom", config_hash=before)
    assert after(first, second, third, limits=limits).why == (
        "cuda-oom came again after a retry of which it is not known whether anything had changed"
    )
    spent = after(first, second)
    assert (spent.choice, spent.why) == (
        "stop",
        "cuda-oom came again once without a new step or checkpoint, and it is not known whether the batch size, "
        "activation checkpointing or the placement had changed: its budget is spent",
    )


def test_a_placement_that_is_not_known_may_have_changed_and_a_known_change_is_enough() -> None:
    limits = {"cuda-oom": RetryLimit(times=2, after_change=("placement",))}
    nowhere = {"nodes": (), "gpus": None}
    assert (
        "not known whether the placement has changed"
        in after(ended(0, "cuda-oom", **nowhere), ended(1, "cuda-oom"), limits=limits).why
    )
    both = {"cuda-oom": RetryLimit(times=2, after_change=("batch", "placement"))}
    more = ended(1, "cuda-oom", nodes=("n1", "n2"))
    assert after(ended(0, "cuda-oom"), more, limits=both).why.startswith("cuda-oom: a retry needs a change of")


def test_the_budget_of_an_evaluator_is_its_own() -> None:
    first = ended(0, "evaluator", has_checkpoints=True, last_committed_step=100, last_step=100)
    again = ended(1, "evaluator", has_checkpoints=True, last_committed_step=100, last_step=100)
    assert (after(first).choice, after(first, again).choice) == ("evaluator", "stop")
    later = ended(1, "evaluator", has_checkpoints=True, last_committed_step=200, last_step=200)
    assert after(first, later).choice == "evaluator", "it is another checkpoint"
