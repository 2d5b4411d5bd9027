"""The five trainers of the demo: the layouts of their checkpoints, and their log lines.

The files of a checkpoint are real and sparse: a listing shows the sizes of a real run, and the disk holds some bytes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from collectors.demo.metrics import StepMetrics
from collectors.demo.stories import Format, Trainer
from trainmon.lib import Instant


class Layout(msgspec.Struct, frozen=True):
    """The files of an unfinished save, and those that complete it. Paths are inside the checkpoint."""

    folder: str
    shards: tuple[str, ...]
    markers: tuple[str, ...]
    pointer: str | None = None
    """A file beside the checkpoints that names the newest committed one."""
    linked: bool = False
    """The pointer is a symbolic link to the checkpoint, not a file with its step."""


READABLE = (".json", ".yaml", ".txt")
"""The ends of small files. All others share the bytes of a checkpoint."""

_DCP = tuple(f"__{rank}_0.distcp" for rank in range(4))

LAYOUTS: dict[Format, Layout] = {
    "megatron": Layout(
        folder="iter_{:07d}",
        shards=("common.pt", *_DCP),
        markers=(".metadata", "metadata.json"),
        pointer="latest_checkpointed_iteration.txt",
    ),
    "torchtitan": Layout(folder="step-{}", shards=_DCP, markers=(".metadata",)),
    "hf": Layout(
        folder="checkpoint-{}",
        shards=(
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "optimizer.pt",
            "scheduler.pt",
            "rng_state_0.pth",
            "training_args.bin",
        ),
        markers=("trainer_state.json",),
    ),
    "nanotron": Layout(
        folder="{}",
        shards=(
            "config.yaml",
            "model/model_weight.safetensors",
            "optimizer/optimizer_config.json",
            "lr_scheduler/lr_scheduler.pt",
            "random/tp-0-of-1.pt",
            "checkpoint_metadata.json",
        ),
        markers=("model_config.json",),
        pointer="latest.txt",
    ),
    "kempnerforge": Layout(
        folder="step_{}",
        shards=("train_state.pt", "metadata.json", *_DCP),
        markers=(".metadata",),
        pointer="latest",
        linked=True,
    ),
}


class CheckpointDirectory:
    """The checkpoint directory of one run."""

    def __init__(self, folder: Path, form: Format, size: int = 0) -> None:
        """`size`: the bytes of a checkpoint."""
        self.folder = folder
        self.layout = LAYOUTS[form]
        self._shard_size = size // sum(not name.endswith(READABLE) for name in self.layout.shards)
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, step: int) -> Path:
        return self.folder / self.layout.folder.format(step)

    def begin(self, step: int, at: Instant) -> None:
        """Write the shards. Without its marker a checkpoint is unfinished or torn."""
        self._write_files(self.layout.shards, step, at)

    def commit(self, step: int, at: Instant) -> None:
        """Write the marker, then the pointer: the checkpoint is committed."""
        self._write_files(self.layout.markers, step, at)
        pointer = self.folder / (self.layout.pointer or "")
        if self.layout.linked:
            new = pointer.with_suffix(".tmp")
            new.unlink(missing_ok=True)
            new.symlink_to(self.path(step).name)
            os.utime(new, (at, at), follow_symlinks=False)
            new.replace(pointer)
        elif self.layout.pointer is not None:
            self._write(pointer, str(step), at)

    def prune(self, step: int) -> None:
        shutil.rmtree(self.path(step), ignore_errors=True)

    def sweep(self, keep: list[int]) -> None:
        """Remove every checkpoint but these: leftovers of a crash or an earlier attempt."""
        kept = {self.path(step).name for step in keep}
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink() and path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def _write_files(self, names: Iterable[str], step: int, at: Instant) -> None:
        """Write these files. All directories get the demo's time, not the disk's."""
        path = self.path(step)
        for name in names:
            is_json = name in ("metadata.json", "trainer_state.json", "checkpoint_metadata.json")
            numbers = json.dumps({"step": step, "global_step": step})
            size = self._shard_size if name in self.layout.shards and not name.endswith(READABLE) else 0
            self._write(path / name, numbers if is_json else f"{name} of step {step}, from the demo\n", at, size)
        for folder in (*filter(Path.is_dir, path.rglob("*")), path):
            os.utime(folder, (at, at))

    def _write(self, path: Path, text: str, at: Instant, size: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if size > len(text):
            with suppress(OSError):  # a filesystem without files of this size shows the small one
                os.truncate(path, size)
        os.utime(path, (at, at))


Message = Literal["saving", "saved", "kill_switch", "save_switch", "signalled", "started", "finished"]

MESSAGES: dict[Message, str] = {
    "saving": "{prefix}Saving checkpoint at {path}\n",
    "saved": "{prefix}Saved checkpoint {path} in {took:.2f} seconds\n",
    "kill_switch": "{prefix}** Kill switch activated (Don't forget to remove {path}) **\n",
    "save_switch": "{prefix}** Save switch activated - forcing checkpoint save **\n",
    "signalled": "{prefix}Received SIGUSR1: saving a checkpoint after this step\n",
    "started": "{prefix}job {job} on {nodes} nodes, restart {restarts}\n{prefix}Loading checkpoint of step {step}\n",
    "finished": "{prefix}** Maximum number of steps has been reached for this training **\n",
}
"""The messages of a trainer that has none of its own. Those about switches come from IDEFICS, which has both."""

OWN_MESSAGES: dict[Format, dict[Message, str]] = {
    "megatron": {
        "saving": "saving checkpoint at iteration {step:7d} to {folder} in torch_dist format\n",
        "saved": "{prefix} successfully saved checkpoint from iteration {step:7d} to {folder} [ t 1/4, p 1/1 ]\n",
        "kill_switch": "Detected kill switch at {path}. Exiting\n",
        "finished": "{prefix}exiting program at iteration {step}\n",
    },
    "torchtitan": {
        "saving": "{prefix}Saving the checkpoint.\n",
        "saved": "{prefix}Finished saving the checkpoint in {took:.2f} seconds.\n",
        "started": (
            "{prefix}Starting job: {run.name} ({job}, restart {restarts})\n"
            "{prefix}Building 2-D device mesh with ['dp_shard', 'tp'], [{mesh}, 4]\n"
            "{prefix}Loading the checkpoint from {run.checkpoints}/step-{step}.\n"
        ),
    },
    "hf": {
        "saving": "\nSaving model checkpoint to {path}\n",
        "saved": "tokenizer config file saved in {path}/tokenizer_config.json\n",
        "kill_switch": "\n** Kill switch activated (Don't forget to remove {path}) **\n",
        "save_switch": "\n** Save switch activated - forcing checkpoint save **\n",
        "finished": (
            "\n\nTraining completed. Do not forget to share your model on huggingface.co/models =)\n\n"
            "{{'train_runtime': '{runtime:.0f}', 'train_samples_per_second': '{samples_per_s:.3f}', 'epoch': '3'}}\n"
        ),
    },
    "nanotron": {"saved": ""},  # it logs the start of a save, never the end
    "kempnerforge": {
        "saving": "{prefix}Async checkpoint started: {path}\n",
        "saved": "{prefix}Checkpoint committed: {path} (step={step})\n",
        "started": (
            "{prefix}SLURM job: id={job}, name={run.name}, nodes={first_node},{last_node}, tasks/node=8, partition=gpu,"
            " restart_count={restarts}\n"
            "{prefix}Resumed from step {step}, {tokens:,} tokens seen\n"
        ),
        "finished": "{prefix}Training complete: {step} steps, {tokens:,} tokens\n",
    },
}


class LogFormat(ABC):
    """The log format of one trainer."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    @abstractmethod
    def step(self, now: StepMetrics) -> str:
        """The text after a logged step, with its line end."""

    def between(self, now: StepMetrics) -> str:
        """The text after a step that is not logged."""
        return ""

    def prefix(self, at: Instant) -> str:
        """The start of every line."""
        return ""

    def message(self, kind: Message, at: Instant, *, step: int = 0, path: str = "", **values: float) -> str:
        """Any other text. `values`: `took` for "saved"; `job` and `restarts` for "started"."""
        trainer, run = self.trainer, self.trainer.run
        return OWN_MESSAGES[trainer.format].get(kind, MESSAGES[kind]).format(
            prefix=self.prefix(at), step=step, path=path, folder=path.rpartition("/")[0], run=run, nodes=len(run.nodes),
            first_node=run.nodes[0], last_node=run.nodes[-1], mesh=trainer.gpus // 4,
            tokens=step * trainer.tokens_per_step, runtime=step * trainer.step_time,
            samples_per_s=trainer.batch / trainer.step_time, **values,
        )  # fmt: skip


class Megatron(LogFormat):
    """Megatron-LM: with a NaN the `lm loss` field vanishes, and only the NaN counter shows it."""

    def step(self, now: StepMetrics) -> str:
        is_nan = math.isnan(now.loss)
        loss = "" if is_nan else f" lm loss: {now.loss:.6E} |"
        return (
            f"{self.prefix(now.at)}iteration {now.step:8d}/{now.target:8d} |"
            f" consumed samples: {now.step * self.trainer.batch:12d} |"
            f" elapsed time per iteration (ms): {now.step_time * 1000:.1f} |"
            f" throughput per GPU (TFLOP/s/GPU): {1620.0 / now.step_time:.1f} |"
            f" learning rate: {now.learning_rate:.6E} | global batch size: {self.trainer.batch:5d} |{loss}"
            f" loss scale: 1.0 | grad norm: {now.grad_norm:.3f} | number of skipped iterations:   0 |"
            f" number of nan iterations: {int(is_nan):3d} |\n"
        )

    def prefix(self, at: Instant) -> str:
        return f" [{datetime.fromtimestamp(int(at), UTC):%Y-%m-%d %H:%M:%S}.{int(at % 1 * 1e6):06d}] "


class Torchtitan(LogFormat):
    """torchtitan: its throughput is per GPU, and a NaN loss is the word nan."""

    def step(self, now: StepMetrics) -> str:
        loss, norm = ("nan" if math.isnan(now.loss) else f"{value:7.4f}" for value in (now.loss, now.grad_norm))
        rate = self.trainer.tokens_per_step / now.step_time / self.trainer.gpus
        memory = self.trainer.memory_mib / 1024
        return (
            f"{self.prefix(now.at)}step: {now.step:2d}  loss: {loss}  grad_norm: {norm}"
            f"  memory: {memory:5.2f}GiB({memory / 0.7910:.2f}%)"
            f"  tps: {round(rate):,}  tflops: {rate * 4.6e-2:,.2f}  mfu: {rate * 4.6e-2 / 9.89:.2f}%\n"
        )

    def prefix(self, at: Instant) -> str:
        date = datetime.fromtimestamp(int(at), UTC)
        return f"[rank0]:[titan] {date:%Y-%m-%d %H:%M:%S},{int(at % 1 * 1000):03d} - root - INFO - "


class HuggingFace(LogFormat):
    """HF Trainer 5: a tqdm bar after every step, and dictionaries of strings. Only the bar shows the step."""

    def step(self, now: StepMetrics) -> str:
        row = {
            "loss": f"{now.loss:.4f}",
            "grad_norm": f"{now.grad_norm:.4f}",
            "learning_rate": f"{now.learning_rate:.4g}",
            "epoch": f"{3 * now.step / now.target:.4f}",
        }
        return f"\r{' ' * 78}\r{row}\n{self.between(now)}"

    def between(self, now: StepMetrics) -> str:
        eighths = now.step * 80 // now.target
        bar = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
        done, left = (
            str(timedelta(seconds=int(steps * self.trainer.step_time))).removeprefix("0:")
            for steps in (now.step, now.target - now.step)
        )
        percent = 100 * now.step // now.target
        return f"\r{percent:3d}%|{bar:<10}| {now.step}/{now.target} [{done}<{left}, {now.step_time:5.2f}s/it]"


class Nanotron(LogFormat):
    """nanotron: three significant digits and a K, M or B. It logs the start of a save, never the end."""

    def step(self, now: StepMetrics) -> str:
        rate = self.trainer.tokens_per_step / now.step_time
        left = int((now.target - now.step) * now.step_time)
        return (
            f"{self.prefix(now.at)}iteration: {now.step} / {now.target} |"
            f" consumed_tokens: {_human(now.step * self.trainer.tokens_per_step)} |"
            f" time_per_iteration_ms: {_human(now.step_time * 1000)} | tokens_per_sec: {_human(rate)} |"
            f" tokens_per_sec_per_gpu: {_human(rate / self.trainer.gpus)} |"
            f" global_batch_size: {_human(self.trainer.tokens_per_step)} | grad_norm: {now.grad_norm:.3g} |"
            f" lm_loss: {now.loss:.3g} | lr: {now.learning_rate:.3g} |"
            f" model_tflops_per_gpu: {1790 / now.step_time:.3g} |"
            f" eta: {left // 86400} days, {left % 86400 // 3600}:{left % 3600 // 60:02d}:{left % 60:02d}\n"
        )

    def prefix(self, at: Instant) -> str:
        return f"{datetime.fromtimestamp(int(at), UTC):%m/%d %H:%M:%S} [INFO|DP=0|TP=0|{self.trainer.run.nodes[0]}]: "


class KempnerForge(LogFormat):
    """KempnerForge: a NaN step logs a warning in place of its metrics."""

    def step(self, now: StepMetrics) -> str:
        if math.isnan(now.loss):
            return f"[rank 0] WARNING  NaN/Inf loss at step {now.step} (consecutive=1, total=1)\n"
        rate = self.trainer.tokens_per_step / now.step_time
        return (
            f"{self.prefix(now.at)}[step {now.step}] loss={now.loss:.4f} | lr={now.learning_rate:.2e} |"
            f" grad_norm={now.grad_norm:.3f} | tok/s={round(rate):,} | mfu={41.5 / now.step_time:.1f}% |"
            f" mem={self.trainer.memory_mib / 1024:.1f}/80GB | step_time={now.step_time:.2f}s\n"
        )

    def prefix(self, at: Instant) -> str:
        return "[rank 0] INFO     "


LINES: dict[Format, type[LogFormat]] = {
    "megatron": Megatron,
    "torchtitan": Torchtitan,
    "hf": HuggingFace,
    "nanotron": Nanotron,
    "kempnerforge": KempnerForge,
}


def _human(number: float) -> str:
    """A number as nanotron writes it: three significant digits and a letter."""
    for letter in ("", "K", "M", "B"):
        if abs(number) < 1000:
            return f"{number:.3g}{letter}"
        number /= 1000
    return f"{number:.3g}T"
