"""The five trainers of the demo: their metrics, also in W&B, their log lines, and the layouts of their checkpoints.

The metrics depend almost only on the step: attempts at the same step see the same data. So the jumps of two attempts
line up, and the history from before the demo began fits the log. The files of a checkpoint are real and sparse: a
listing shows the sizes of a real run, and the disk holds some bytes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import msgspec

from collectors.demo.stories import Format, Trainer
from trainmon.lib import Instant, Seconds

# ---- the simulated metrics of a run, their names in W&B, and its W&B history from before the demo began --------------

LEARNING_RATE = 3e-4
WARM_UP = 0.01
"""The warm-up of the learning rate, as a share of all steps."""
SHARED_NOISE = 0.995
"""The share of the noise that comes from the data and is the same in every attempt."""
RISES_IN = 3
"""The number of steps until a spike peaks."""
SPIKE = 1.7
"""The height of a spike, as a multiple of the loss."""
FADES_IN = 2.5


class StepMetrics(NamedTuple):
    """The metrics of one finished step."""

    at: Instant
    step: int
    target: int
    loss: float
    grad_norm: float
    learning_rate: float
    step_time: Seconds


class LossJump(NamedTuple):
    """A step whose data makes the loss jump, in every attempt."""

    step: int
    height: float
    """As a share of the loss."""
    width: float
    """The number of steps in which the jump fades."""


class MetricGenerator:
    """Makes the metrics of one run."""

    def __init__(self, trainer: Trainer, seed: int) -> None:
        self.trainer = trainer
        self._salt = Random(f"{seed} {trainer.run.name} course").uniform(1.0, 100.0)
        first = first_step(trainer)
        both = REPEATED * (trainer.first_step - first)
        jumps = (
            LossJump(int(first * 0.41), 0.2, first / 150 + 1),
            LossJump(int(first + both / 3), 0.22, both / 40),
            LossJump(int(first + both * 0.9), 0.5, both / 60),
        )
        self._loss_jumps = tuple(jump for jump in jumps if jump.step > both / 10)
        """Twice on data of both last attempts, and once long before."""

    def metrics(
        self, at: Instant, step: int, step_time: Seconds, *, attempt: int = 0, spike_age: int | None = None
    ) -> StepMetrics:
        """The metrics of a step. `spike_age`: steps since a spike began."""
        target = self.trainer.run.target_step or step
        height = sum(
            jump.height * math.exp(-(step - jump.step) / jump.width)
            for jump in self._loss_jumps
            if 0 <= step - jump.step < 8 * jump.width
        )
        if spike_age is not None:  # it rises, then fades
            rise = min(1.0, (spike_age + 1) / RISES_IN)
            height += SPIKE * (rise * math.exp(-max(0, spike_age - RISES_IN) / FADES_IN))
        return StepMetrics(
            at=at,
            step=step,
            target=target,
            loss=self._base_loss(step) * (1 + height) + 0.012 * self._noise(step, attempt),
            grad_norm=0.28 * math.exp(0.25 * self._noise(step, attempt, 1)) * (1 + 7 * height) + 3 / (1 + step / 40),
            learning_rate=learning_rate(step, target),
            step_time=step_time,
        )

    def validation(self, step: int, attempt: int = 0) -> float:
        """The validation loss."""
        return 1.02 * self._base_loss(step) + 0.003 * self._noise(step, attempt, 2)

    def past_row(self, step: int, attempt: int) -> dict[str, float]:
        """The W&B row of a step from before the demo began."""
        step_time = self.trainer.step_time * (1.01 + 0.013 * self._noise(step, attempt, 3))
        return wandb_row(self.trainer, self.metrics(0.0, step, step_time, attempt=attempt))

    def _base_loss(self, step: int) -> float:
        """The loss without noise, jumps and spikes."""
        return self.trainer.loss_floor + 9.0 * math.pow(step + 30, -0.4)

    def _noise(self, step: int, attempt: int, kind: int = 0) -> float:
        """About normal, at most 3. Computed from the step: seeding a generator for each step takes 20 times as long."""
        own, salt = math.sqrt(1 - SHARED_NOISE**2), self._salt + kind
        return SHARED_NOISE * _normal(step, salt) + own * _normal(step, salt + 7.7 * (attempt + 1))


def learning_rate(step: int, target: int) -> float:
    """A warm-up, then a cosine down to a tenth."""
    done = min(1.0, step / target)
    return LEARNING_RATE * min(1.0, done / WARM_UP) * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def _normal(step: int, salt: float) -> float:
    x, sin = step * 12.9898 + salt * 78.233, math.sin
    thirds = sin(x) * 43_758.5453 % 1.0 + sin(x + 1.7) * 43_758.5453 % 1.0 + sin(x + 3.1) * 43_758.5453 % 1.0
    return 2 * (thirds - 1.5)


# ---- in W&B ---------------------------------------------------------------------------------------------------------


class Names(NamedTuple):
    """The names of a trainer's metrics in W&B. None: it does not log that metric."""

    loss: str
    grad_norm: str
    learning_rate: str
    throughput: str | None
    validation: str


NAMES: dict[Format, Names] = {
    "megatron": Names("lm loss", "grad-norm", "learning-rate", "throughput", "lm loss validation"),
    "torchtitan": Names(
        "loss_metrics/global_avg_loss", "grad_norm", "lr", "throughput(tps)", "validation_metrics/loss"
    ),
    "hf": Names("train/loss", "train/grad_norm", "train/learning_rate", None, "eval/loss"),
    "nanotron": Names("lm_loss", "grad_norm", "lr", "tokens_per_sec", "validation_loss"),
    "kempnerforge": Names("train/loss", "train/grad_norm", "train/lr", "train/tokens_per_sec", "eval/loss"),
}


def wandb_row(trainer: Trainer, now: StepMetrics) -> dict[str, float]:
    """The W&B row of a step."""
    names = NAMES[trainer.format]
    values = {names.loss: now.loss, names.grad_norm: now.grad_norm, names.learning_rate: now.learning_rate}
    if names.throughput is not None:
        tokens = trainer.tokens_per_step / now.step_time
        by_format = {"megatron": 1620.0 / now.step_time, "torchtitan": tokens / trainer.gpus}
        values[names.throughput] = by_format.get(trainer.format, tokens)
    return values


# ---- before the demo began -------------------------------------------------------------------------------------------

EARLIER_STATES: dict[str, tuple[str, ...]] = {
    "video-2b": ("finished", "failed", "crashed"),
    "llm-7b": ("finished", "crashed"),
    "sft-chat": ("failed",),
    "smol-3b": ("crashed", "finished", "failed"),
    "moe-1b": ("killed", "crashed"),
}
"""How the earlier attempts ended, oldest first, as W&B states."""

BETWEEN_ATTEMPTS: Seconds = 780.0
"""The pause between two attempts: queue time, startup, W&B init."""
REPEATED = 0.55
"""The share of the present attempt's steps that the previous attempt had taken, too."""
ROWS = 400
"""The number of rows of an attempt that has ended: the server samples histories, too."""
ROWS_NOW = 900
RECENT_STEPS = 60
"""The number of last steps of the present attempt that are all kept, like those in its log."""
VALIDATIONS = 80


class Attempt(NamedTuple):
    """One attempt: its steps, its times and its final state."""

    number: int
    """0: the present attempt; -1: the previous one."""
    first: int
    last: int
    began: Instant
    ended: Instant
    state: str


HistoryRow = tuple[Instant, int, Mapping[str, float]]
"""Time, step and values."""


def first_step(trainer: Trainer) -> int:
    """The step at which the present attempt began."""
    return max(0, trainer.first_step - int(trainer.age / trainer.step_time))


def all_attempts(trainer: Trainer, now: Instant) -> tuple[Attempt, ...]:
    """All attempts, oldest first. The last one is training."""
    first, last = first_step(trainer), trainer.first_step
    attempts = [Attempt(0, first, last, now - (last - first) * trainer.step_time, now, "running")]
    ends = EARLIER_STATES[trainer.run.name]
    for back, state in enumerate(reversed(ends), 1):
        reached = int(first + REPEATED * (last - first)) if back == 1 else int(attempts[0].first * 1.01)
        begins = int(first * (len(ends) - back) / len(ends))
        ended = attempts[0].began - BETWEEN_ATTEMPTS
        attempts.insert(
            0, Attempt(-back, begins, reached, ended - (reached - begins) * trainer.step_time, ended, state)
        )
    return tuple(attempts)


def history_rows(trainer: Trainer, generator: MetricGenerator, attempt: Attempt) -> Iterator[HistoryRow]:
    """The rows of an attempt in W&B, in order."""
    every, number = trainer.log_every, attempt.number
    apart = max(1, (attempt.last - attempt.first) // ((ROWS if number else ROWS_NOW) * every)) * every
    close = attempt.last if number else attempt.last - RECENT_STEPS
    sampled = range((attempt.first // every + 1) * every, close + 1, apart)
    recent = range((close // every + 1) * every, attempt.last + 1, every)
    rows = {step: generator.past_row(step, number) for step in (*sampled, *recent)}
    for step in validation_steps(trainer, attempt):
        rows.setdefault(step, {})[NAMES[trainer.format].validation] = generator.validation(step, number)
    for step in sorted(rows):
        yield attempt.ended - (attempt.last - step) * trainer.step_time, step, rows[step]


def summary_row(trainer: Trainer, generator: MetricGenerator, attempt: Attempt) -> HistoryRow:
    """The last row of an attempt: its summary."""
    step = attempt.last // trainer.log_every * trainer.log_every
    values = generator.past_row(step, attempt.number)
    for validated in validation_steps(trainer, attempt)[-1:]:
        values[NAMES[trainer.format].validation] = generator.validation(validated, attempt.number)
    return attempt.ended - (attempt.last - step) * trainer.step_time, step, values


def validation_steps(trainer: Trainer, attempt: Attempt) -> range:
    """The steps at which an attempt was validated."""
    every = trainer.validate_every
    apart = max(1, (attempt.last - attempt.first) // (VALIDATIONS * every)) * every
    return range(attempt.last // every * every, attempt.first, -apart)[::-1]


# ---- the five trainers of the demo -----------------------------------------------------------------------------------


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


PREFIXES: dict[Format, str] = {
    "megatron": " [{date:%Y-%m-%d %H:%M:%S}.{millionths:06d}] ",
    "torchtitan": "[rank0]:[titan] {date:%Y-%m-%d %H:%M:%S},{thousandths:03d} - root - INFO - ",
    "hf": "",
    "nanotron": "{date:%m/%d %H:%M:%S} [INFO|DP=0|TP=0|{node}]: ",
    "kempnerforge": "[rank 0] INFO     ",
}


def prefix(trainer: Trainer, at: Instant) -> str:
    """The start of every line."""
    return PREFIXES[trainer.format].format(
        date=datetime.fromtimestamp(int(at), UTC), thousandths=int(at % 1 * 1e3), millionths=int(at % 1 * 1e6),
        node=trainer.run.nodes[0],
    )  # fmt: skip


def message(trainer: Trainer, kind: Message, at: Instant, *, step: int = 0, path: str = "", **values: float) -> str:
    """A text that is not of a step. `values`: `took` for "saved"; `job` and `restarts` for "started"."""
    run = trainer.run
    return OWN_MESSAGES[trainer.format].get(kind, MESSAGES[kind]).format(
        prefix=prefix(trainer, at), step=step, path=path, folder=path.rpartition("/")[0], run=run, nodes=len(run.nodes),
        first_node=run.nodes[0], last_node=run.nodes[-1], mesh=trainer.gpus // 4,
        tokens=step * trainer.tokens_per_step, runtime=step * trainer.step_time,
        samples_per_s=trainer.batch / trainer.step_time, **values,
    )  # fmt: skip


def megatron(trainer: Trainer, now: StepMetrics) -> str:
    """Megatron-LM: with a NaN the `lm loss` field vanishes, and only the NaN counter shows it."""
    is_nan = math.isnan(now.loss)
    loss = "" if is_nan else f" lm loss: {now.loss:.6E} |"
    return (
        f"{prefix(trainer, now.at)}iteration {now.step:8d}/{now.target:8d} |"
        f" consumed samples: {now.step * trainer.batch:12d} |"
        f" elapsed time per iteration (ms): {now.step_time * 1000:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {1620.0 / now.step_time:.1f} |"
        f" learning rate: {now.learning_rate:.6E} | global batch size: {trainer.batch:5d} |{loss}"
        f" loss scale: 1.0 | grad norm: {now.grad_norm:.3f} | number of skipped iterations:   0 |"
        f" number of nan iterations: {int(is_nan):3d} |\n"
    )


def torchtitan(trainer: Trainer, now: StepMetrics) -> str:
    """torchtitan: its throughput is per GPU, and a NaN loss is the word nan."""
    loss, norm = ("nan" if math.isnan(now.loss) else f"{value:7.4f}" for value in (now.loss, now.grad_norm))
    rate = trainer.tokens_per_step / now.step_time / trainer.gpus
    memory = trainer.memory_mib / 1024
    return (
        f"{prefix(trainer, now.at)}step: {now.step:2d}  loss: {loss}  grad_norm: {norm}"
        f"  memory: {memory:5.2f}GiB({memory / 0.7910:.2f}%)"
        f"  tps: {round(rate):,}  tflops: {rate * 4.6e-2:,.2f}  mfu: {rate * 4.6e-2 / 9.89:.2f}%\n"
    )


def hugging_face(trainer: Trainer, now: StepMetrics) -> str:
    """HF Trainer 5: a tqdm bar after every step, and dictionaries of strings. Only the bar shows the step."""
    row = {
        "loss": f"{now.loss:.4f}",
        "grad_norm": f"{now.grad_norm:.4f}",
        "learning_rate": f"{now.learning_rate:.4g}",
        "epoch": f"{3 * now.step / now.target:.4f}",
    }
    return f"\r{' ' * 78}\r{row}\n{tqdm_bar(trainer, now)}"


def tqdm_bar(trainer: Trainer, now: StepMetrics) -> str:
    """What tqdm writes after every step."""
    eighths = now.step * 80 // now.target
    bar = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
    done, left = (
        str(timedelta(seconds=int(steps * trainer.step_time))).removeprefix("0:")
        for steps in (now.step, now.target - now.step)
    )
    percent = 100 * now.step // now.target
    return f"\r{percent:3d}%|{bar:<10}| {now.step}/{now.target} [{done}<{left}, {now.step_time:5.2f}s/it]"


def nanotron(trainer: Trainer, now: StepMetrics) -> str:
    """nanotron: three significant digits and a K, M or B. It logs the start of a save, never the end."""
    rate = trainer.tokens_per_step / now.step_time
    left = int((now.target - now.step) * now.step_time)
    return (
        f"{prefix(trainer, now.at)}iteration: {now.step} / {now.target} |"
        f" consumed_tokens: {_human(now.step * trainer.tokens_per_step)} |"
        f" time_per_iteration_ms: {_human(now.step_time * 1000)} | tokens_per_sec: {_human(rate)} |"
        f" tokens_per_sec_per_gpu: {_human(rate / trainer.gpus)} |"
        f" global_batch_size: {_human(trainer.tokens_per_step)} | grad_norm: {now.grad_norm:.3g} |"
        f" lm_loss: {now.loss:.3g} | lr: {now.learning_rate:.3g} |"
        f" model_tflops_per_gpu: {1790 / now.step_time:.3g} |"
        f" eta: {left // 86400} days, {left % 86400 // 3600}:{left % 3600 // 60:02d}:{left % 60:02d}\n"
    )


def kempnerforge(trainer: Trainer, now: StepMetrics) -> str:
    """KempnerForge: a NaN step logs a warning in place of its metrics."""
    if math.isnan(now.loss):
        return f"[rank 0] WARNING  NaN/Inf loss at step {now.step} (consecutive=1, total=1)\n"
    rate = trainer.tokens_per_step / now.step_time
    return (
        f"{prefix(trainer, now.at)}[step {now.step}] loss={now.loss:.4f} | lr={now.learning_rate:.2e} |"
        f" grad_norm={now.grad_norm:.3f} | tok/s={round(rate):,} | mfu={41.5 / now.step_time:.1f}% |"
        f" mem={trainer.memory_mib / 1024:.1f}/80GB | step_time={now.step_time:.2f}s\n"
    )


LINES: dict[Format, Callable[[Trainer, StepMetrics], str]] = {
    "megatron": megatron,
    "torchtitan": torchtitan,
    "hf": hugging_face,
    "nanotron": nanotron,
    "kempnerforge": kempnerforge,
}
"""The text after a logged step, with its line end."""


def _human(number: float) -> str:
    """A number as nanotron writes it: three significant digits and a letter."""
    for letter in ("", "K", "M", "B"):
        if abs(number) < 1000:
            return f"{number:.3g}{letter}"
        number /= 1000
    return f"{number:.3g}T"
