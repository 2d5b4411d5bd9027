"""What looks like a cause and is none: a part of a name, a message that the run survived, an exit status."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.trainmon.analysis.causes.logs import of
from tests.trainmon.analysis.causes.sign_texts import identifier, texts
from tests.trainmon.analysis.causes.test_classify import OOM, uncaught
from trainmon.model import CauseName, NodeFacts

LEVELS = ("INFO: ", "WARNING: ")
RICH = """╭─────────── Traceback (most recent call last) ───────────╮
│ /home/ana/train.py:12 in <module>                       │
│   11 │   x = 1                                          │
│ ❱ 12 │   check("{0}")  # {0} │
╰─────────────────────────────────────────────────────────╯
KeyError: 'input_ids'
"""
FRAME = """Traceback (most recent call last):
  File "/data/{1}/train.py", line 7, in _{1}_x
    raise_if("{0}")
KeyError: 'input_ids'
"""


def steps(first: int, last: int) -> str:
    return "".join(f"step {n}/1000 | loss 2.{n:03}\n" for n in range(first, last))


def named(logs: Iterable[tuple[str, str]], cause: CauseName) -> list[str]:
    """The texts whose log has another cause."""
    return [text for text, log in logs if of(log).cause != cause]


def test_there_is_a_text_for_nearly_each_sign() -> None:
    assert len(texts()) > 700


@pytest.mark.parametrize("line", ["calling my_{}_helper(x)", "reading /data/{}/part-7.bin", "calling {}_of(x)"])
def test_no_sign_is_found_within_a_name_or_a_path(line: str) -> None:
    """A name in camel case is the exception: MyMemoryError is an error."""
    logs = ((text, steps(1, 9) + line.format(identifier(text)) + "\n") for _, _, text in texts())
    wrong = [text for text, log in logs if of(log).confidence == "high"]
    assert [
        text for text in wrong if not line.startswith("calling {}") and not text.endswith(("_", "NotFoundError"))
    ] == []
    assert [text for text in wrong if " " in text] == []


@pytest.mark.parametrize("shown", [RICH, FRAME])
def test_no_sign_is_found_in_the_code_of_a_traceback(shown: str) -> None:
    logs = ((text, steps(1, 9) + shown.format(text, identifier(text))) for _, _, text in texts())
    assert named(logs, "python-exception") == []


@pytest.mark.parametrize("level", ["", *(pytest.param(one, marks=pytest.mark.slow) for one in LEVELS), "ERROR: "])
def test_what_a_run_survived_for_many_steps_is_not_its_cause(level: str) -> None:
    after = steps(20, 60) + uncaught("KeyError: 'x'")
    for before in ("", steps(1, 20)):
        logs = ((text, f"{before}{level}{text}\n{after}") for _, _, text in texts())
        assert named(logs, "python-exception") == []


def test_an_error_counts_more_than_a_message_before_the_last_steps() -> None:
    crashes = ("cuda-oom", "segfault", "device-assert", "cuda-illegal-access", "cancelled-by-user", "time-limit")
    signs = [text for rule, strength, text in texts() if strength == 2 and rule.cause not in crashes]
    logs = [(text, f"{steps(1, 20)}ERROR: {text}\n{steps(20, 23)}{uncaught(OOM)}") for text in signs]
    wrong = [text for text in named(logs, "cuda-oom") if not text.endswith("exit")]
    assert [text for text in wrong if of(f"{text}\n").cause not in crashes] == []


def test_a_message_that_its_program_retries_is_not_certain() -> None:
    signs = [text for _, strength, text in texts() if strength == 2]
    logs = ((text, f"{steps(1, 20)}ERROR data: retry 1/5 ({text})\n{steps(20, 23)}") for text in signs)
    assert [text for text, log in logs if of(log).confidence == "high"] == []
    last = "ERROR data: giving up, retry 5/5 failed: [Errno 5] Input/output error\n"
    assert (of(steps(1, 20) + last).cause, of(steps(1, 20) + last).confidence) == ("storage-io", "high")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("hwloc_set_cpubind() failed: Cross-device link\n", "unknown"),
        ("ERROR data: retry shard s3://b/7.tar (connection reset)\n" + steps(20, 23) + uncaught(OOM), "cuda-oom"),
        ("INFO: node gpu-7 is down, it was replaced\n" + steps(20, 60) + uncaught(OOM), "cuda-oom"),
        ("INFO: spot interruption handler is registered\n" + steps(1, 60) + uncaught(OOM), "cuda-oom"),
        ("NVRM: Xid (PCI:0000:38:00): 79, pid=7\n" + steps(20, 60) + uncaught("KeyError: 'x'"), "python-exception"),
        ("NVRM: Xid (PCI:0000:38:00): 79, pid=7\n" + steps(20, 23) + uncaught("KeyError: 'x'"), "gpu-hardware"),
        ("Xid (PCI:0018:01:00): 147, TREX Nonfatal XC0 i0 Link 3\n" + uncaught("KeyError: 'x'"), "python-exception"),
        (
            "NVRM: Xid (PCI:0018:01:00): 145, pid='<unknown>', name=<unknown>, NVLink: RLW_REMAP Nonfatal XC1 i0\n"
            + uncaught("KeyError: 'x'"),
            "python-exception",
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Nonfatal, Link 42 LTSSM Fault Up\n", "unknown"),
        ("[n1:4411] hwloc_set_cpubind() failed: Operation not permitted\n", "unknown"),
        ("chown: changing ownership of '/out': Operation not permitted\n", "permission"),
        ("Tip: for experiment tracking, try installing [litlogger](https://pypi.org/project/litlogger/)\n", "unknown"),
        ("double-bit ECC error count 0; uncorrectable ECC: 0\n" + uncaught("KeyError: 'x'"), "python-exception"),
        ("Segmentation fault handler enabled by faulthandler\n" + uncaught(OOM), "cuda-oom"),
        ("NFS: server nfs01 not responding, still trying\n" + uncaught(OOM), "cuda-oom"),
        ("wandb: 429 encountered (rate limit exceeded), retrying in 2.3 seconds\n" + uncaught(OOM), "cuda-oom"),
        ("Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x1 (Reset) to 0x0 (None)\n", "unknown"),
        ("srun: error: n1: task 0: Exited with exit code 1\n", "unknown"),
        ("Terminated\n", "cancelled-by-user"),
    ],
)
def test_weak_evidence_names_no_certain_cause(log: str, cause: CauseName) -> None:
    found = of(("" if "registered" in log else steps(1, 20)) + log)
    assert found.cause == cause
    assert found.confidence == ("low" if cause in ("unknown", "cancelled-by-user") else "high")


def test_a_progress_bar_that_is_drawn_once_more_is_no_step() -> None:
    bar = " 29/1000 [00:10<05:00,  3.1it/s]\n"
    for redrawn in (bar, bar * 4):
        log = bar + "ERROR: write failed: EIO\n" + redrawn + uncaught("RuntimeError: x")
        assert of(log).cause == "storage-io"


SETUP = (
    "Preemption handler installed: a checkpoint is saved on a preemption notice",
    "Listening for spot interruption notices at 169.254.169.254",
    "will requeue when the job is being preempted",
    "on_node_failure: Node failure on any host aborts the run",
    "kill switch found in config: /x/kill (polled every 10 s)",
)


@pytest.mark.parametrize("line", SETUP)
@pytest.mark.parametrize("after", ["", steps(1, 4), steps(1, 300)])
def test_what_a_program_sets_up_before_its_first_step_is_not_why_it_fails(line: str, after: str) -> None:
    own = uncaught("KeyError: 'lr'")
    assert of(f"{line}\nmodel built\n{after}{own}", exit_code=1).cause == "python-exception"


def test_a_notice_before_the_first_step_explains_what_its_other_ranks_report() -> None:
    nccl = uncaught("torch.distributed.DistBackendError: NCCL error: remote process exited")
    for after in ("", steps(1, 4)):
        assert of(f"spot interruption notice received\n{after}{nccl}", exit_code=1).cause == "preempted"


@pytest.mark.parametrize("error", ["[Errno 28] No space left on device", "Disk quota exceeded"])
def test_what_failed_in_the_background_is_the_cause_though_the_run_made_steps_before_it_noticed(error: str) -> None:
    log = steps(1, 20) + f"ERROR writer: step_10 failed: {error}\n" + steps(20, 22)
    later = uncaught("RuntimeError: the asynchronous save of step 10 failed")
    assert of(log + later).cause in ("disk-full", "quota")


@pytest.mark.parametrize(
    "step",
    [
        "Epoch 3/10 step {}/20000 loss 2.1",
        "step {:,}/20,000 loss 2.1",
        "Epoch(train) [1][{}/20000] lr: 1e-3 loss: 2.1",
        "train: 25%|##5 | {}/20000 [01:00<04:33, 3.00it/s, loss=2.1]",
        "step={}, skipped=0, lr=[1e-04]",
    ],
)
def test_steps_are_told_apart_in_any_format(step: str) -> None:
    before, after = ("".join(f"{step.format(n)}\n" for n in range(*some)) for some in ((5000, 5040), (5040, 5043)))
    error = "ERROR data: read of s3://bucket/train-0041.tar failed (connection reset)\n"
    assert of(before + error + after + uncaught(OOM)).cause == "cuda-oom"
    assert of(before + error + after, exit_code=137).confidence == "low"
    assert of(before + error, exit_code=137).confidence == "high"


VALUES = (
    "_evaluate_forward_laplacian", "eval_jaxpr", "eval_shape", "evaluate_gradient", "_eval_type", "literal_eval",
    "evaluate_actions", "evaluate_residual", "eval_loss_terms", "evaluate_log_prob", "evaluate_rewards", "_eval_mask",
    "evaluate_score_model", "report_nan_grads", "test_grad_finite", "export_tensor", "benchmark_collective",
)  # fmt: skip
EVALUATIONS = (
    "evaluate", "evaluate_model", "eval_epoch", "run_eval", "evaluate_policy", "_validate_epoch", "evaluation_step",
    "evaluate_on_test_set", "evaluate_checkpoint", "validate_one_epoch", "run_evaluation_loop", "export_onnx",
    "generate_report", "do_eval", "eval_all_tasks",
)  # fmt: skip


@pytest.mark.parametrize("name", [*VALUES, *EVALUATIONS])
@pytest.mark.parametrize("after", ["", steps(20, 60)])
def test_a_function_that_computes_a_value_is_no_evaluation_while_the_run_trains(name: str, after: str) -> None:
    log = steps(1, 20) + "saved checkpoint /ckpt/19\n" + after + uncaught("ValueError: bad shape", function=name)
    assert of(log).cause == ("evaluator" if name in EVALUATIONS else "python-exception")


@pytest.mark.parametrize("name", ["evaluate_type_accuracy", "evaluate_with_gradients_off", "test_forward_pass"])
def test_after_the_last_step_any_function_of_such_a_name_is_an_evaluation(name: str) -> None:
    failed = "saved checkpoint /ckpt/1000\n" + uncaught("ValueError: bad shape", function=name)
    assert of(steps(990, 1001) + failed).cause == "evaluator"
    assert of(steps(990, 995) + failed).cause == "python-exception"


@pytest.mark.parametrize("package", ["sympy/core/evalf.py", "pandas/core/computation/eval.py"])
def test_a_library_that_computes_values_evaluates_no_model(package: str) -> None:
    log = steps(990, 1001) + "saved checkpoint /ckpt/1000\n" + uncaught("ValueError: x", function="evaluate")
    path = "/home/ana/evaluate.py"
    assert of(log).cause == of(log.replace(path, "/x/site-packages/lm_eval/api.py")).cause == "evaluator"
    assert of(log.replace(path, f"/x/site-packages/{package}")).cause == "python-exception"


@pytest.mark.parametrize("code", [*range(1, 16), 124, 126, 127, *range(129, 144), -9, -15])
@pytest.mark.parametrize("log", ["", steps(1, 20)])
def test_an_exit_status_proves_no_cause(code: int, log: str) -> None:
    found = of(log, exit_code=code)
    assert (found.cause, found.confidence) == ("unknown", "low")
    assert found.evidence


KILLED = "slurm_script: line 5: 71 Killed                  python train.py\nsrun: error: n1: task 0: Killed\n"


@pytest.mark.parametrize(
    "facts",
    [
        {"exit_code": 137},
        {"signal": 9},
        {"scheduler_state": "FAILED", "exit_code": 9},
        {"nodes": (NodeFacts(name="n1"),)},
    ],
)
def test_what_was_killed_ran_out_of_memory_only_if_something_says_so(facts: dict[str, object]) -> None:
    found = of(steps(1, 20) + KILLED, **facts)
    assert (found.cause, found.confidence) == ("unknown", "low")
    assert "batch" not in found.advice
    assert "oom-kill" in found.advice
    for more in ({"nodes": (NodeFacts(name="n1", oom_kills=1),)}, {"scheduler_state": "OUT_OF_MEMORY"}):
        assert (of(steps(1, 20) + KILLED, **facts | more).cause) == "host-oom"
    kernel = "kernel: Out of memory: Killed process 71 (python)\n"
    assert (of(steps(1, 20) + kernel, **facts).cause, of(kernel, **facts).confidence) == ("host-oom", "high")


@pytest.mark.parametrize(
    "line",
    [
        "Model saved to /out/model.pt",
        "saved checkpoint to /out/step_180",
        "New best model saved, accuracy: 0.71",
        "100%|██████████| 50/50 [00:10<00:00, 5.0it/s]",
        "evaluation completed in 12 s",
        "epoch 3 training completed",
        "Fold 1 training finished",
        "Stage 1 complete, saved to out/stage1.pt",
        "Total time: 312.2 s for epoch 1",
        "Test: Total time: 0:00:10 (0.1 s / it)",
    ],
)
@pytest.mark.parametrize("step", ["step {}/1000 | loss 2.1", "step {} of 1,000 | loss 2.1"])
def test_a_log_that_ends_before_its_target_has_not_completed(line: str, step: str) -> None:
    log = "".join(f"{step.format(n)}\n" for n in range(170, 181)) + f"{line}\n"
    assert of(log).cause == "unknown"
    assert of(log, exit_code=0).cause == "completed"
    assert of(f"{log}Training completed.\n").cause == "completed"


LIGHTNING = "Epoch 0: {0}%|##| {0}/100 [00:10<00:40, 2.2it/s, loss=1.2]"


@pytest.mark.parametrize(
    "line",
    [
        "saved checkpoint to /out/180",
        "Model saved to /out",
        "Epoch 0, global step 100: 'val_loss' reached 1.20 (best 1.20), saving model to '/ckpt/epoch=0.ckpt' as top 1",
        "Epoch 1: val_loss improved from inf to 0.50000, saving model to best.keras",
        "The best checkpoint with 71.2000 accuracy/top1 at 1 epoch is saved to best.pth.",
        "Stage 1 complete, saved to out/stage1.pt",
        "warmup: 100/100 done",
    ],
)
@pytest.mark.parametrize("step", ["step {} | loss 2.1", LIGHTNING])
def test_a_log_that_merely_ends_with_a_save_has_not_completed(step: str, line: str) -> None:
    log = "".join(f"{step.format(n)}\n" for n in range(90, 101)) + f"{line}\n"
    assert of(log).cause == "unknown"


def test_a_run_that_obeyed_its_kill_switch_has_not_completed() -> None:
    for log in ("", steps(170, 181), steps(170, 181) + "Training completed.\n"):
        found = of(log, kill_switch=True, exit_code=0)
        assert (found.cause, found.confidence) == ("kill-switch", "high")
        assert of(log, kill_switch=True, exit_code=0, last_step=180, target_step=1_000).cause == "kill-switch"
        assert of(log, kill_switch=True, exit_code=0, last_step=1_000, target_step=1_000).cause == "completed"


def test_sigterm_alone_is_no_preemption() -> None:
    for line in ("Terminated", "W: Received SIGTERM: 15, saving", "train.sh: line 7: 4711 Terminated"):
        found = of(f"{steps(1, 20)}{line}\n", exit_code=143)
        assert (found.cause, found.confidence) == ("cancelled-by-user", "low")
        assert of(f"{steps(1, 20)}{line}\n", scheduler_state="PREEMPTED").cause == "preempted"
