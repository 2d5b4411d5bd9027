"""What follows after a training has said that it ended: noise, unless it says that the program failed."""

from __future__ import annotations

import pytest

from trainmon.analysis.causes.classify import classify, fatal_end
from trainmon.model import CauseFacts, Classification, LogExcerpt

STEPS = "".join(f"step {number}/40 | loss 2.{number % 10} | lr 3e-4\n" for number in range(1, 40))
ENDS = {
    "words": "Training completed.\nSaved final model to /out/final\n",
    "metrics": "{'train_runtime': 100.2, 'train_samples_per_second': 3.1}\n",
}
NOISE = {
    "telemetry": "Failed to send telemetry: HTTPSConnectionPool(host='t.example', port=443): Max retries exceeded",
    "wandb": 'wandb: 429 encountered ({"error":"rate limit exceeded"}), retrying request',
    "tracker": "mlflow.exceptions.MlflowException: HTTPSConnectionPool(host='m.example'): Max retries exceeded",
    "module": "Error: No module named 'apex' - using PyTorch instead",
    "upload": 'rsync: write failed on "/backup/x": No space left on device (28)',
    "network": "[rank0]:[W1] NCCL WARN Call to ibv_modify_qp failed",
    "thread": "Exception in thread Thread-3 (tensorboard writer): OSError: [Errno 116] Stale file handle",
}
TRACEBACK = """Traceback (most recent call last):
  File "/x/train.py", line 9, in <module>
    main()
  File "/x/train.py", line 5, in main
    torch.save(model.state_dict(), path)
OSError: [Errno 28] No space left on device"""
ATEXIT = """Error in atexit._run_exitfuncs:
Traceback (most recent call last):
  File "/lib/python3.11/site-packages/wandb/sdk/lib/hooks.py", line 9, in <module>
    flush()
requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.wandb.ai', port=443): Max retries exceeded"""
FAILURES = {
    "traceback": (TRACEBACK, "disk-full"),
    "save": ("ERROR: failed to save the final checkpoint: No space left on device", "disk-full"),
    "segfault": ("Segmentation fault (core dumped)", "segfault"),
}


LAST_WORDS = (
    "{'train_runtime': 2.246, 'train_loss': 1.38, 'epoch': 10.0}",
    "{'train_runtime': '2.246', 'train_loss': '1.38', 'epoch': '3'}",
    "`Trainer.fit` stopped: `max_epochs=10` reached.",
    "Monitored metric val_loss did not improve in the last 3 records. Best score: 1.2. Signaling Trainer to stop.",
    "Early stopping: val_loss did not improve for 10 evaluations",
    "early stopping at epoch 17, best val 0.81",
    "Epoch 00017: early stopping",
    "Restoring model weights from the end of the best epoch: 12.",
    "Stopping early at step 300: patience 10 exhausted. Training finished.",
    "Training time 2:13:14",
    "[11/03 10:00:00 d2.engine.hooks]: Total training time: 0:10:00 (0:00:01 on hooks)",
    "Done. Total time: 3600s",
    "Training complete in 32m 10s",
    "Training finished in 3601.2 s, best epoch 12",
    "10 epochs completed in 0.010 hours.",
    "All epochs done.",
    "2026-11-03 10:00:00 | INFO | fairseq_cli.train | done training in 3600.1 seconds",
    "[titan] 2026-11-03 10:00:00,000 - root - INFO - Training completed",
    "[2026-11-03 10:00:00,000] [INFO] [axolotl.train] Training completed! Saving trained model to ./out",
    "Training completed. Do not forget to share your model on huggingface.co/models =)",
    "[exiting program at iteration 1000] datetime: 2026-11-03 10:00:00",
    "Finished training. Best validation accuracy: 0.812",
    "Training done, final model saved to out/final.pt",
    "Saved final model to out/final",
)


def of(text: str, exit_code: int | None = None) -> Classification:
    return classify(CauseFacts(log=(LogExcerpt(text=STEPS + text),), exit_code=exit_code))


@pytest.mark.parametrize("words", LAST_WORDS)
def test_the_last_words_of_a_trainer_mean_that_it_has_completed_also_before_its_last_step(words: str) -> None:
    told = of(f"{words}\n")
    assert (told.cause, told.confidence) == ("completed", "high")
    assert of(f"{words}\n", 1).cause == "unknown"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("noise", [*NOISE.values(), ATEXIT], ids=[*NOISE, "atexit"])
def test_an_error_after_the_end_of_the_training_is_not_its_cause(end: str, noise: str) -> None:
    unknown, success = of(f"{ENDS[end]}{noise}\n"), of(f"{ENDS[end]}{noise}\n", 0)
    assert unknown.cause == success.cause == "completed"
    assert success.confidence == "high"
    assert of(f"{ENDS[end]}{noise}\n", 1).cause != "completed"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("failure", FAILURES)
def test_one_that_says_that_the_program_failed_is_unless_its_exit_status_denies_it(end: str, failure: str) -> None:
    text, cause = FAILURES[failure]
    assert (of(f"{ENDS[end]}{text}\n").cause, of(f"{ENDS[end]}{text}\n", 0).cause) == (cause, "completed")


def test_an_error_after_the_end_makes_the_result_less_certain() -> None:
    assert of(ENDS["words"]).confidence == "high"
    assert of(f"{ENDS['words']}{NOISE['upload']}\n").confidence == "low"
    assert of(f"{ENDS['words']}srun: error: n1: task 0: Exited with exit code 1\n").confidence == "low"


def test_the_end_of_an_epoch_and_one_before_further_steps_end_nothing() -> None:
    oom = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    assert of(f"Epoch 3 training completed.\n{oom}").cause == "cuda-oom"
    assert of(f"Training completed.\nstep 40/40 | loss 2.0 | lr 3e-4\n{oom}").cause == "cuda-oom"


def test_a_log_that_ends_with_noise_does_not_end_with_an_error() -> None:
    lines = f"{STEPS}{ENDS['words']}{NOISE['tracker']}".splitlines()
    assert fatal_end(lines) is None
    assert fatal_end(f"{STEPS}{NOISE['tracker']}".splitlines()) is not None


def test_the_summary_that_wandb_prints_after_a_crash_is_no_step_that_survived_it() -> None:
    keys = ("loss", "val/loss", "aux_loss", "epoch 2", "train/epoch 2", "global_step 9", "step 9")
    summary = "".join(f"wandb: {key:>18} {n}.5\n" for n, key in enumerate(keys))
    error = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    main()\n'
    log = f"{STEPS}{error}torch.OutOfMemoryError: CUDA out of memory.\nwandb: Run summary:\n{summary}"
    assert classify(CauseFacts(log=(LogExcerpt(text=log),), exit_code=1)).cause == "cuda-oom"
    assert fatal_end(log.split("\n")[:-1]) is not None


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        ([f"[rank{rank}]: step 40/90 | loss 2.{rank}" for rank in range(8)], "cuda-oom"),
        ([f"[rank0]: step {step}/90 | loss 2.1" for step in range(40, 48)], "unknown"),
        ([f"Epoch 2/9: {step}/90 [00:01<00:09, 5.0it/s]" for step in range(40, 48)], "unknown"),
    ],
)
def test_one_step_that_all_ranks_print_after_an_error_does_not_survive_it(steps: list[str], cause: str) -> None:
    error = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    main()\n'
    log = "\n".join((f"{STEPS}{error}torch.OutOfMemoryError: CUDA out of memory.", *steps))
    assert classify(CauseFacts(log=(LogExcerpt(text=log),), exit_code=1)).cause == cause
