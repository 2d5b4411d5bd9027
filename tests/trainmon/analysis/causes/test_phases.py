"""In which phase a run failed: in a step of the training, in its evaluation, or after a signal; and by which loss."""

from __future__ import annotations

import pytest

from tests.trainmon.analysis.causes.logs import of
from trainmon.model import CauseName

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
SAVED = "step 1000 | loss 2.1\nsaved checkpoint /ckpt/1000\n"
AFTER_IT = "".join(f"step {n} | loss 2.1\n" for n in range(1001, 1050))
TERMS = (
    "W1123 02:00:01 torch/distributed/elastic/agent/api.py:7] Received 15 death signal, shutting down workers\n",
    "W1123 02:00:01 torch/distributed/elastic/agent/api.py:7] Received Signals.SIGTERM death signal, shutting down\n",
    "INFO: got SIGTERM, saving a checkpoint and exiting\n",
)


def through(*frames: str, error: str = "ZeroDivisionError: division by zero") -> str:
    """A traceback; each frame is FILE:FUNCTION."""
    places = (frame.rpartition(":") for frame in frames)
    shown = "".join(f'  File "{path}", line 7, in {name}\n    call(x)\n' for path, _, name in places)
    return f"Traceback (most recent call last):\n{shown}{error}\n"


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        (("train.py:<module>", "train.py:training_step", "metrics.py:perplexity"), "python-exception"),
        (("train.py:<module>", "train.py:train_one_epoch", "model.py:predict"), "python-exception"),
        (("test_lr.py:<module>", "test_lr.py:train"), "python-exception"),
        (("test_lr.py:<module>", "test_lr.py:main"), "python-exception"),
        (("ppo.py:<module>", "ppo.py:generate_rollouts", "inference.py:run"), "python-exception"),
        (
            ("train.py:<module>", "train.py:train_step", "/x/site-packages/torch/fx/shapes.py:evaluate_expr"),
            "python-exception",
        ),
        (
            ("train.py:<module>", "/x/site-packages/hf/trainer.py:_maybe_log_save_evaluate", "hf.py:_save_checkpoint"),
            "python-exception",
        ),
        (("train.py:<module>", "train.py:train", "train.py:evaluate", "model.py:compute_loss"), "evaluator"),
        (
            ("train.py:<module>", "hf.py:train", "hf.py:_maybe_log_save_evaluate", "hf.py:evaluate", "my.py:forward"),
            "evaluator",
        ),
        (("main.py:<module>", "utils/tester.py:test"), "evaluator"),
        (("main.py:<module>", "main.py:train", "main.py:validate", "model.py:forward"), "evaluator"),
        (("main.py:<module>", "main.py:train", "main.py:run_validation"), "evaluator"),
        (("main.py:<module>", "main.py:main", "main.py:val_epoch"), "evaluator"),
        (
            ("main.py:<module>", "/x/site-packages/lightning/loops/fit_loop.py:run", "model.py:validation_step"),
            "evaluator",
        ),
        (("main.py:<module>", "/x/site-packages/lightning/trainer.py:validate"), "evaluator"),
        (("main.py:<module>", "main.py:train", "/x/site-packages/pydantic/main.py:validate"), "python-exception"),
        (("main.py:<module>", "main.py:train", "data.py:validate_sample"), "python-exception"),
        (("main.py:<module>", "main.py:train", "data.py:val_dataloader"), "python-exception"),
        (("main.py:<module>", "main.py:train", "paths.py:is_valid"), "python-exception"),
        (("main.py:<module>", "main.py:train", "config.py:get_val"), "python-exception"),
        (("main.py:<module>", "main.py:train_step", "loss.py:validate"), "python-exception"),
        (("main.py:<module>", "main.py:train", "args.py:_validate_args"), "python-exception"),
    ],
)
def test_an_error_in_a_step_of_the_training_is_none_of_the_evaluator(frames: tuple[str, ...], cause: CauseName) -> None:
    assert of(SAVED + AFTER_IT + through(*frames)).cause == cause


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        (("run.py:<module>", "run.py:main", "metrics.py:perplexity"), "evaluator"),
        (("run.py:<module>", "model.py:predict"), "evaluator"),
        (("run.py:<module>", "run.py:train", "model.py:predict"), "python-exception"),
    ],
)
def test_right_after_a_checkpoint_predictions_and_metrics_are_of_the_evaluator(
    frames: tuple[str, ...], cause: CauseName
) -> None:
    bars = "".join(f"Predicting: {n}/90 [00:01<00:00, 9.0it/s]\n" for n in range(1, 90))
    assert of(SAVED + bars + through(*frames)).cause == cause


GLOO = through("train.py:<module>", error="RuntimeError: [pair.cc:525] Connection closed by peer [10.0.0.2]:3333")
ABORTED = "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1. Original reason: \n"
WATCHDOG = "[rank1]:[E1123] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600060 ms\n"


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("after", [GLOO, through("train.py:<module>", error=ABORTED), WATCHDOG])
def test_what_the_network_reports_after_sigterm_is_not_the_cause(after: str, term: str) -> None:
    assert of(AFTER_IT + term + after).cause == "cancelled-by-user"
    assert of(AFTER_IT + term + "saved checkpoint /ckpt/1050\n" + after, exit_code=1).cause == "cancelled-by-user"
    assert of(AFTER_IT + after + term).cause in ("nccl-network", "nccl-timeout")
    assert of(AFTER_IT + term + after, scheduler_state="CANCELLED by 1000").cause == "cancelled-by-user"


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ("srun: error: gpu-1: task 3: Exited with exit code 1\n", "nccl-timeout"),
        ("train.sh: line 7: 4711 Killed                  python train.py\n", "nccl-timeout"),
    ],
)
def test_a_rank_that_had_died_before_sigterm_was_not_ended_by_it(before: str, cause: CauseName) -> None:
    assert of(AFTER_IT + before + TERMS[0] + WATCHDOG).cause == cause


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        ("{{'loss': 0.5, 'aux_loss': nan, 'epoch': {0}}}", "completed"),
        ("step {0} loss 1.0 eval_loss=inf best_loss=inf", "completed"),
        ("step {0} train_loss 3.0 val_loss nan", "completed"),
        ("epoch {0} | train loss 3.0 | validation loss nan", "completed"),
        ("Epoch {0}/9 - 4s - loss: 0.2 - val_loss: nan", "completed"),
        ("epoch {0} | train loss nan | validation loss 3.0", "diverged"),
        ("iteration {0}/ 9 | lm loss: nan | moe aux loss: 0.1", "diverged"),
        ("step {0} g_loss nan d_loss 0.1", "diverged"),
        (" iteration     {0}/  9 | loss scale: 1.0 | grad norm: nan | number of nan iterations:   0 |", "diverged"),
        (" iteration     {0}/  9 | lm loss: 2.1 | loss scale: 1.0 | grad norm: inf |", "completed"),
        ("step {0} loss inf best_loss 2.0", "diverged"),
        ("{{'eval_loss': nan, 'epoch': {0}}}", "diverged"),
        ("[titan] step: {0}  loss:     nan  grad_norm:     nan  memory: 40.1GiB(42.1%)  tps: 6,412", "diverged"),
        ("Step {0}/9; acc: 31.05; ppl: 57.21; xent: nan; lr: 0.00029; 3444/188 tok/s", "diverged"),
        ("rank-id:0 Iter:{0} Rank:207.20 it/sec Total:1657.61 it/sec [0][loss]:nan", "diverged"),
        ("step {0} best_loss inf", "completed"),
    ],
)
def test_the_loss_of_the_training_decides_whether_it_diverged(step: str, cause: CauseName) -> None:
    steps = "".join(f"{step.format(n)}\n" for n in range(1, 8))
    assert of(f"{steps}Training completed.\n", exit_code=0).cause == cause


def test_the_nan_check_of_megatron_is_no_missing_rank() -> None:
    check = "Rank 3, node gpu-7, device 3, iteration 511: Unexpected result nan (message='found NaN in local forward')"
    for error in ("RuntimeError", "AssertionError"):
        error = f"{error}: {check}"
        assert of(AFTER_IT + through("train.py:<module>", "train.py:train_step", error=error)).cause == "diverged"
    missing = through("train.py:<module>", error="ValueError: environment variable RANK expected, but not set")
    assert of(missing).cause == "rendezvous"
    missing = through("train.py:<module>", error="ValueError: MASTER_ADDR expected, but not set")
    assert of(missing).cause == "rendezvous"


def test_an_error_stays_the_cause_if_its_launcher_asks_for_no_requeue() -> None:
    found = of(AFTER_IT + through("train.py:<module>", error="ValueError: x"), exit_code=93)
    assert (found.cause, found.retry) == ("python-exception", "never")
    assert found.evidence[-1].text == "exit status 93: its launcher asks for no requeue"
    assert of("", exit_code=93).cause == "no-restart"


@pytest.mark.parametrize(
    ("state", "log", "cause"),
    [
        ("COMPLETED", AFTER_IT, "completed"),
        ("COMPLETED", "", "completed"),
        ("COMPLETED", AFTER_IT + through("train.py:<module>", error=OOM), "cuda-oom"),
        ("COMPLETED", AFTER_IT + "step 9 loss nan\n" * 5, "diverged"),
        ("COMPLETED", AFTER_IT + "step 9 loss nan\n", "diverged"),
        ("COMPLETED", AFTER_IT + "iteration 9/ 9 | loss scale: 1.0 | grad norm: inf | skipped: 1\n", "completed"),
        ("RUNNING", AFTER_IT, "unknown"),
    ],
)
def test_what_slurm_calls_completed_has_ended_well_unless_its_log_shows_an_error(
    state: str, log: str, cause: CauseName
) -> None:
    found = of(log, scheduler_state=state)
    assert found.cause == cause
    assert (found.confidence == "high") == (cause != "unknown")
    assert cause != "completed" or found.evidence[0].text == "Slurm: COMPLETED"


@pytest.mark.parametrize(
    "line",
    [
        "gpu-1:4711:4711 [0] NCCL WARN NET/Plugin: Failed to find ncclNetPlugin symbol",
        "NCCL INFO NET/OFI Failed to initialize, using internal network",
        "CUDA out of memory. Retrying with batch size 4",
        "torch.cuda.OutOfMemoryError caught, emptying the cache and retrying",
        "found NaN in gradient, skipping this step",
        "size mismatch for head.weight ignored (ignore_mismatched_sizes=True)",
        "wandb: Network error (ConnectionError), entering retry loop.",
        "Detected kernel version 5.4.0, which can cause the process to hang.",
        "metrics: {'wer/killed': 0, 'nan_loss_count': 0, 'oom_events': 0, 'error_rate': 0.3}",
        "Unable to initialize backend 'tpu': INTERNAL: libtpu.so: cannot open shared object file",
        "An NVIDIA GPU may be present, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.",
    ],
)
def test_what_a_run_works_around_is_no_reason_for_its_end(line: str) -> None:
    assert of(f"{AFTER_IT}{line}\nstep 1050 | loss 2.1\nTraining completed.\n").cause == "completed"
    assert of(f"{line}\n{SAVED}").confidence == "low"


def test_a_run_that_was_told_to_stop_has_not_completed() -> None:
    log = AFTER_IT + "Received SIGTERM, saving a checkpoint\nTraining finished early because of a stop request\n"
    assert of(log).cause == "cancelled-by-user"


def test_what_ray_guesses_about_a_dead_worker_is_not_certain() -> None:
    guess = "Some common causes include: (1) the process was killed by the OOM killer due to high memory usage."
    assert of(f"(raylet) A worker died. End of file. {guess}\n").confidence == "low"


def test_the_evidence_of_a_chain_is_the_exception_that_names_the_cause_with_the_first_one() -> None:
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    first = through("/x/site-packages/shm.py:open", error="FileExistsError: [Errno 17] File exists: '/barrier'")
    last = through("train.py:<module>", "/x/site-packages/shm.py:open", error="PermissionError: [Errno 13] '/barrier'")
    answer = of(first + chained + last)
    assert answer.cause == "permission"
    assert [one.text.split(":")[0].strip() for one in answer.evidence] == [
        'File "train.py", line 7, in <module>', "PermissionError", "FileExistsError"
    ]  # fmt: skip
    worker = through("/x/worker.py:_worker_loop", error="OSError: [Errno 5] Input/output error")
    caught = through("train.py:<module>", error="OSError: Caught OSError in DataLoader worker process 0.")
    inner = worker.replace("Traceback (most", "Original Traceback (most")
    answer = of(caught + inner)
    assert answer.cause == "storage-io"
    assert answer.evidence[0].text == '  File "/x/worker.py", line 7, in _worker_loop'
    assert answer.evidence[1].text == "OSError: [Errno 5] Input/output error"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("NameError: name 'x' is not defined", "python-exception"),
        ("TypeError: read() got an unexpected keyword argument 'fast'", "python-exception"),
        ("TypeError: 'NoneType' object is not subscriptable", "data-error"),
        ("IndexError: list index out of range", "data-error"),
    ],
)
def test_a_bug_in_the_code_of_a_data_loader_is_no_error_of_its_data(error: str, cause: CauseName) -> None:
    caught = through("train.py:<module>", error=f"{error.split(':')[0]}: Caught it in DataLoader worker process 0.")
    inner = through("/x/torch/utils/data/_utils/worker.py:_worker_loop", "data.py:__getitem__", error=error)
    assert of(caught + inner.replace("Traceback (most", "Original Traceback (most")).cause == cause


@pytest.mark.parametrize("prefix", ["gpu-7: ", "[rank3]: ", "3: ", "worker-3 | ", "2026-11-22 10:00:00,123 "])
def test_a_chain_of_exceptions_stays_one_behind_what_launchers_put_in_front(prefix: str) -> None:
    chained = "The above exception was the direct cause of the following exception:\n\n"
    first = through("/x/lib.py:read", error="OSError: [Errno 101] Network is unreachable")
    log = f"{first}\n{chained}{through('train.py:<module>', error='URLError: <urlopen error>')}"
    ignored = "Exception ignored in: <function __del__>\n" + through("/x/lib.py:__del__", error="KeyError: 'x'")
    for text, cause in ((log, "network-or-auth"), (f"{ignored}Training completed.\n", "completed")):
        assert of("".join(f"{prefix}{line}\n" for line in text.splitlines())).cause == cause
