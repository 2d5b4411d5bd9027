"""The log lines of five trainers. Pure: the metrics of a step in, text out."""

from __future__ import annotations

import time

from collectors.demo.model.inventory import Format, Trainer
from collectors.demo.model.metrics import StepMetrics
from trainmon.lib import Instant, Seconds


class LogFormat:
    """The log format of one trainer. The kill and save switch messages come from IDEFICS, which has both."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def step(self, now: StepMetrics) -> str:
        """The text after a logged step, with its line end."""
        raise NotImplementedError

    def between(self, now: StepMetrics) -> str:
        """The text after a step that is not logged."""
        return ""

    def saving(self, at: Instant, step: int, path: str) -> str:
        return f"{self.prefix(at)}Saving checkpoint at {path}\n"

    def saved(self, at: Instant, step: int, path: str, took: Seconds) -> str:
        return f"{self.prefix(at)}Saved checkpoint {path} in {took:.2f} seconds\n"

    def kill_switch(self, at: Instant, path: str) -> str:
        return f"{self.prefix(at)}** Kill switch activated (Don't forget to remove {path}) **\n"

    def save_switch(self, at: Instant) -> str:
        return f"{self.prefix(at)}** Save switch activated - forcing checkpoint save **\n"

    def signalled(self, at: Instant) -> str:
        return f"{self.prefix(at)}Received SIGUSR1: saving a checkpoint after this step\n"

    def started(self, at: Instant, step: int, job: int, restarts: int) -> str:
        return (
            f"{self.prefix(at)}job {job} on {len(self.trainer.run.nodes)} nodes, restart {restarts}\n"
            f"{self.prefix(at)}Loading checkpoint of step {step}\n"
        )

    def finished(self, at: Instant, step: int) -> str:
        return f"{self.prefix(at)}** Maximum number of steps has been reached for this training **\n"

    def prefix(self, at: Instant) -> str:
        return ""


class Megatron(LogFormat):
    """Megatron-LM: with a NaN the `lm loss` field vanishes, and only the NaN counter shows it."""

    def step(self, now: StepMetrics) -> str:
        loss = "" if now.loss is None else f" lm loss: {now.loss:.6E} |"
        norm = "nan" if now.loss is None else f"{now.grad_norm:.3f}"
        return (
            f"{self.prefix(now.at)}iteration {now.step:8d}/{now.target:8d} |"
            f" consumed samples: {now.step * self.trainer.batch:12d} |"
            f" elapsed time per iteration (ms): {now.step_time * 1000:.1f} |"
            f" throughput per GPU (TFLOP/s/GPU): {1620.0 / now.step_time:.1f} |"
            f" learning rate: {now.learning_rate:.6E} | global batch size: {self.trainer.batch:5d} |{loss}"
            f" loss scale: 1.0 | grad norm: {norm} | number of skipped iterations:   0 |"
            f" number of nan iterations: {int(now.loss is None):3d} |\n"
        )

    def saving(self, at: Instant, step: int, path: str) -> str:
        folder = path.rpartition("/")[0]
        return f"saving checkpoint at iteration {step:7d} to {folder} in torch_dist format\n"

    def saved(self, at: Instant, step: int, path: str, took: Seconds) -> str:
        folder = path.rpartition("/")[0]
        return (
            f"{self.prefix(at)} successfully saved checkpoint from iteration {step:7d} to {folder} [ t 1/4, p 1/1 ]\n"
        )

    def kill_switch(self, at: Instant, path: str) -> str:
        return f"Detected kill switch at {path}. Exiting\n"

    def finished(self, at: Instant, step: int) -> str:
        return f"{self.prefix(at)}exiting program at iteration {step}\n"

    def prefix(self, at: Instant) -> str:
        return f" [{_date(at)}.{int(at % 1 * 1e6):06d}] "


class Torchtitan(LogFormat):
    """torchtitan: its throughput is per GPU, and a NaN loss is the word nan."""

    def step(self, now: StepMetrics) -> str:
        loss = "nan" if now.loss is None else f"{now.loss:7.4f}"
        norm = "nan" if now.loss is None else f"{now.grad_norm:7.4f}"
        rate = self.trainer.tokens_per_step / now.step_time / self.trainer.gpus
        memory = self.trainer.memory_mib / 1024
        return (
            f"{self.prefix(now.at)}step: {now.step:2d}  loss: {loss}  grad_norm: {norm}"
            f"  memory: {memory:5.2f}GiB({memory / 0.7910:.2f}%)"
            f"  tps: {round(rate):,}  tflops: {rate * 4.6e-2:,.2f}  mfu: {rate * 4.6e-2 / 9.89:.2f}%\n"
        )

    def saving(self, at: Instant, step: int, path: str) -> str:
        return f"{self.prefix(at)}Saving the checkpoint.\n"

    def saved(self, at: Instant, step: int, path: str, took: Seconds) -> str:
        return f"{self.prefix(at)}Finished saving the checkpoint in {took:.2f} seconds.\n"

    def started(self, at: Instant, step: int, job: int, restarts: int) -> str:
        checkpoint = f"{self.trainer.run.checkpoints}/step-{step}"
        return (
            f"{self.prefix(at)}Starting job: {self.trainer.run.name} ({job}, restart {restarts})\n"
            f"{self.prefix(at)}Building 2-D device mesh with ['dp_shard', 'tp'], [{self.trainer.gpus // 4}, 4]\n"
            f"{self.prefix(at)}Loading the checkpoint from {checkpoint}.\n"
        )

    def prefix(self, at: Instant) -> str:
        return f"[rank0]:[titan] {_date(at)},{int(at % 1 * 1000):03d} - root - INFO - "


class HuggingFace(LogFormat):
    """HF Trainer 5: a tqdm bar after every step, and dictionaries of strings. Only the bar shows the step."""

    def step(self, now: StepMetrics) -> str:
        nan = now.loss is None
        row = {
            "loss": "nan" if nan else f"{now.loss:.4f}",
            "grad_norm": "nan" if nan else f"{now.grad_norm:.4f}",
            "learning_rate": f"{now.learning_rate:.4g}",
            "epoch": f"{3 * now.step / now.target:.4f}",
        }
        return f"\r{' ' * 78}\r{row}\n{self.between(now)}"

    def between(self, now: StepMetrics) -> str:
        eighths = now.step * 80 // now.target
        bar = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
        done, left = (_clock(steps * self.trainer.step_time) for steps in (now.step, now.target - now.step))
        percent = 100 * now.step // now.target
        return f"\r{percent:3d}%|{bar:<10}| {now.step}/{now.target} [{done}<{left}, {now.step_time:5.2f}s/it]"

    def saving(self, at: Instant, step: int, path: str) -> str:
        return f"\nSaving model checkpoint to {path}\n"

    def saved(self, at: Instant, step: int, path: str, took: Seconds) -> str:
        return f"tokenizer config file saved in {path}/tokenizer_config.json\n"

    def kill_switch(self, at: Instant, path: str) -> str:
        return f"\n** Kill switch activated (Don't forget to remove {path}) **\n"

    def save_switch(self, at: Instant) -> str:
        return "\n** Save switch activated - forcing checkpoint save **\n"

    def finished(self, at: Instant, step: int) -> str:
        took = step * self.trainer.step_time
        rate = self.trainer.batch / self.trainer.step_time
        return (
            "\n\nTraining completed. Do not forget to share your model on huggingface.co/models =)\n\n"
            f"{{'train_runtime': '{took:.0f}', 'train_samples_per_second': '{rate:.3f}', 'epoch': '3'}}\n"
        )


class Nanotron(LogFormat):
    """nanotron: three significant digits and a K, M or B. It logs the start of a save, never the end."""

    def saved(self, at: Instant, step: int, path: str, took: Seconds) -> str:
        return ""

    def step(self, now: StepMetrics) -> str:
        rate = self.trainer.tokens_per_step / now.step_time
        loss = "nan" if now.loss is None else f"{now.loss:.3g}"
        norm = "nan" if now.loss is None else f"{now.grad_norm:.3g}"
        left = int((now.target - now.step) * now.step_time)
        return (
            f"{self.prefix(now.at)}iteration: {now.step} / {now.target} |"
            f" consumed_tokens: {_human(now.step * self.trainer.tokens_per_step)} |"
            f" time_per_iteration_ms: {_human(now.step_time * 1000)} | tokens_per_sec: {_human(rate)} |"
            f" tokens_per_sec_per_gpu: {_human(rate / self.trainer.gpus)} |"
            f" global_batch_size: {_human(self.trainer.tokens_per_step)} | grad_norm: {norm} | lm_loss: {loss} |"
            f" lr: {now.learning_rate:.3g} | model_tflops_per_gpu: {1790 / now.step_time:.3g} |"
            f" eta: {left // 86400} days, {left % 86400 // 3600}:{left % 3600 // 60:02d}:{left % 60:02d}\n"
        )

    def prefix(self, at: Instant) -> str:
        date = time.strftime("%m/%d %H:%M:%S", time.gmtime(at))
        return f"{date} [INFO|DP=0|TP=0|{self.trainer.run.nodes[0]}]: "


class KempnerForge(LogFormat):
    """KempnerForge: a NaN step logs a warning in place of its metrics."""

    def step(self, now: StepMetrics) -> str:
        if now.loss is None:
            return f"[rank 0] WARNING  NaN/Inf loss at step {now.step} (consecutive=1, total=1)\n"
        rate = self.trainer.tokens_per_step / now.step_time
        return (
            f"{self.prefix(now.at)}[step {now.step}] loss={now.loss:.4f} | lr={now.learning_rate:.2e} |"
            f" grad_norm={now.grad_norm:.3f} | tok/s={round(rate):,} | mfu={41.5 / now.step_time:.1f}% |"
            f" mem={self.trainer.memory_mib / 1024:.1f}/80GB | step_time={now.step_time:.2f}s\n"
        )

    def saving(self, at: Instant, step: int, path: str) -> str:
        return f"{self.prefix(at)}Async checkpoint started: {path}\n"

    def saved(self, at: Instant, step: int, path: str, took: Seconds) -> str:
        return f"{self.prefix(at)}Checkpoint committed: {path} (step={step})\n"

    def started(self, at: Instant, step: int, job: int, restarts: int) -> str:
        tokens = step * self.trainer.tokens_per_step
        nodes = self.trainer.run.nodes
        return (
            f"{self.prefix(at)}SLURM job: id={job}, name={self.trainer.run.name}, nodes={nodes[0]},{nodes[-1]},"
            f" tasks/node=8, partition=gpu, restart_count={restarts}\n"
            f"{self.prefix(at)}Resumed from step {step}, {tokens:,} tokens seen\n"
        )

    def finished(self, at: Instant, step: int) -> str:
        return f"{self.prefix(at)}Training complete: {step} steps, {step * self.trainer.tokens_per_step:,} tokens\n"

    def prefix(self, at: Instant) -> str:
        return "[rank 0] INFO     "


LINES: dict[Format, type[LogFormat]] = {
    "megatron": Megatron,
    "torchtitan": Torchtitan,
    "hf": HuggingFace,
    "nanotron": Nanotron,
    "kempnerforge": KempnerForge,
}


def _date(at: Instant) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


def _clock(seconds: Seconds) -> str:
    """A duration as tqdm writes it."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"


def _human(number: float) -> str:
    """A number as nanotron writes it: three significant digits and a letter."""
    for letter in ("", "K", "M", "B"):
        if abs(number) < 1000:
            return f"{number:.3g}{letter}"
        number /= 1000
    return f"{number:.3g}T"
