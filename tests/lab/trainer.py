"""A trainer without a model: prints step lines, saves checkpoints, obeys both switches, resumes. Standard library only.

Run as a script: python trainer.py --checkpoints DIR --layout megatron. It does with files, signals and exit statuses
what the trainers it stands for do: a kill switch at the start ends it with 0 and no checkpoint, one seen later makes
it save and end with 0, and stays; a save switch is removed first, then it saves (IDEFICS/m4).
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

RANKS = 2
SHARD = bytes(4096)


# ---- layouts: each writes a checkpoint piece by piece, in the order of the trainer it is named after ----------------


def megatron(folder: Path, step: int) -> Iterator[Path]:
    """Megatron-LM, torch_dist: metadata.json is the test of a whole one; the tracker file moves last."""
    place = folder / f"iter_{step:07d}"
    place.mkdir(parents=True, exist_ok=True)
    yield put(place / "common.pt", SHARD)
    for rank in range(RANKS):
        yield put(place / f"__{rank}_0.distcp", SHARD)
    yield put(place / ".metadata", SHARD)
    yield put(place / "metadata.json", b'{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    yield put(folder / "latest_checkpointed_iteration.txt", str(step).encode())


def deepspeed(folder: Path, step: int) -> Iterator[Path]:
    """DeepSpeed with ZeRO: `latest` names the newest whole one."""
    place = folder / f"global_step{step}"
    place.mkdir(parents=True, exist_ok=True)
    yield put(place / "mp_rank_00_model_states.pt", SHARD)
    for rank in range(RANKS):
        yield put(place / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", SHARD)
    yield put(folder / "latest", f"global_step{step}".encode())


def hf(folder: Path, step: int) -> Iterator[Path]:
    """HF Trainer: trainer_state.json is written last."""
    place = folder / f"checkpoint-{step}"
    place.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
        yield put(place / name, SHARD)
    yield put(place / "training_args.bin", SHARD)
    yield put(place / "trainer_state.json", json.dumps({"global_step": step, "max_steps": -1}).encode())


def dcp(folder: Path, step: int) -> Iterator[Path]:
    """PyTorch DCP under torchtitan's names: .metadata appears by a rename when all ranks are done."""
    place = folder / f"step-{step}"
    place.mkdir(parents=True, exist_ok=True)
    for rank in range(RANKS):
        yield put(place / f"__{rank}_0.distcp", SHARD)
    temporary = put(place / ".metadata.tmp", SHARD)
    yield temporary
    yield temporary.rename(place / ".metadata")


def idefics(folder: Path, step: int) -> Iterator[Path]:
    """IDEFICS/m4: `finished-saving` is touched after a barrier; a text file holds the newest one's path."""
    place = folder / f"opt_step-{step}"
    for part in ("accelerator_state", "resumable_states", "unwrapped_model", "tokenizer"):
        (place / part).mkdir(parents=True, exist_ok=True)
        yield put(place / part / "data.bin", SHARD)
    yield put(place / "resume_run_infos.json", json.dumps({"opt_step": step}).encode())
    yield put(place / "finished-saving", b"")
    yield put(folder / "latest_opt_step_dir", str(place).encode())


LAYOUTS: dict[str, Callable[[Path, int], Iterator[Path]]] = {
    "megatron": megatron, "deepspeed": deepspeed, "hf": hf, "dcp": dcp, "idefics": idefics,
}  # fmt: skip

COMMITTED = {
    "megatron": ("iter_(\\d+)", "metadata.json", "latest_checkpointed_iteration.txt"),
    "deepspeed": ("global_step(\\d+)", "mp_rank_00_model_states.pt", "latest"),
    "hf": ("checkpoint-(\\d+)", "trainer_state.json", ""),
    "dcp": ("step-(\\d+)", ".metadata", ""),
    "idefics": ("opt_step-(\\d+)", "finished-saving", ""),
}
"""Of each layout: a checkpoint's name, the file that a whole one has, and the file that names the newest."""


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def committed(folder: Path, layout: str) -> list[int]:
    """The steps of the whole checkpoints, oldest first, by the trainer's own rule."""
    pattern, marker, pointer = COMMITTED[layout]
    found = [(re.fullmatch(pattern, place.name), place) for place in folder.glob("*")]
    steps = sorted(int(name[1]) for name, place in found if name and (place / marker).exists())
    if not pointer:
        return steps
    named = re.findall(r"\d+$", (folder / pointer).read_text()) if (folder / pointer).exists() else []
    return [step for step in steps if named and step <= int(named[0])]


# ---- lines ----------------------------------------------------------------------------------------------------------


def megatron_line(step: int, last: int, loss: float, step_s: float) -> str:
    """As Megatron-LM's training_log; the loss is left out when it is none."""
    at = dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    shown = f" lm loss: {loss:.6E} |" if loss >= 0 else ""
    return (
        f" [{at}] iteration {step:8}/{last:8} | consumed samples: {step * 256:12} | elapsed time per iteration (ms): "
        f"{step_s * 1000:.1f} | learning rate: 1.000000E-04 | global batch size:   256 |{shown} loss scale: 1.0 | "
        f"grad norm: 0.310 | number of skipped iterations:   0 | number of nan iterations: {int(math.isnan(loss)):3} |"
    )


def titan_line(step: int, _last: int, loss: float, _step_s: float) -> str:
    """As torchtitan's metrics."""
    at = dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S,000")
    return (
        f"[rank0]:[titan] {at} - root - INFO - step: {step:2}  loss: {loss:7.4f}  grad_norm:  0.3100  "
        "memory:  2.47GiB(3.12%)  tps: 3,502  tflops: 1.90  mfu: 0.19%"
    )


LINES = {"megatron": megatron_line, "titan": titan_line}

SAVING = {
    "megatron": (
        "saving checkpoint at iteration {step:7} to {folder} in torch_dist format",
        "  successfully saved checkpoint from iteration {step:7} to {folder} [ t 1/1, p 1/1 ]",
    ),
    "titan": (
        "[rank0]:[titan] - root - INFO - Saving the checkpoint.",
        "[rank0]:[titan] - root - INFO - Finished saving the checkpoint in {save_s:.2f} seconds.",
    ),
}
"""Before and after."""


# ---- training -------------------------------------------------------------------------------------------------------


class Trainer:
    """Steps until it is told otherwise."""

    def __init__(self, wishes: argparse.Namespace) -> None:
        self.wishes = wishes
        self.folder = Path(wishes.checkpoints)
        self.step = max(committed(self.folder, wishes.layout), default=0)
        self._wants_checkpoint = False

    def train(self) -> int:
        wishes = self.wishes
        if self._is_killed():
            say(f"Detected kill switch at {wishes.kill_switch}. Exiting")
            return 0
        if wishes.usr1 != "die":
            signal.signal(signal.SIGUSR1, self._caught)
        say(f"loading checkpoint from {self.folder} at iteration {self.step}" if self.step else "training from scratch")
        while self.step < wishes.steps:
            if self._is_killed():
                self._save()
                say(f"Detected kill switch at {wishes.kill_switch}. Exiting")
                return 0
            self._obey_save_switch()
            self._train_one()
            if self._wants_checkpoint:
                self._wants_checkpoint = False
                self._save()
                if wishes.usr1 == "save-and-exit":
                    return 0
            elif self.step % wishes.every == 0 or self.step == wishes.steps:
                self._save()
        return 0

    def _train_one(self) -> None:
        wishes = self.wishes
        if wishes.hang_at is not None and self.step >= wishes.hang_at:
            while True:
                time.sleep(60)
        if wishes.die_at is not None and self.step >= wishes.die_at:
            while wishes.die_when is not None and not Path(wishes.die_when).exists():
                time.sleep(0.1)
            raise SystemExit("RuntimeError: CUDA error: uncorrectable ECC error encountered")
        time.sleep(wishes.step_s)
        self.step += 1
        is_nan = wishes.nan_at is not None and self.step >= wishes.nan_at
        loss = math.nan if is_nan else 2 + 1 / self.step
        say(LINES[wishes.lines](self.step, wishes.steps, loss, wishes.step_s))

    def _save(self) -> None:
        """Save a checkpoint; `die-while-saving` leaves it torn."""
        wishes = self.wishes
        before, after = (
            line.format(step=self.step, folder=self.folder, save_s=wishes.save_s) for line in SAVING[wishes.lines]
        )
        say(before)
        self.folder.mkdir(parents=True, exist_ok=True)
        for written, _ in enumerate(LAYOUTS[wishes.layout](self.folder, self.step)):
            if written == 1 and wishes.die_while_saving == self.step:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(wishes.save_s / 6)
        say(after)

    def _is_killed(self) -> bool:
        return self.wishes.kill_switch is not None and Path(self.wishes.kill_switch).exists()

    def _obey_save_switch(self) -> None:
        switch = self.wishes.save_switch
        if switch is not None and Path(switch).exists():
            say("** Save switch activated - forcing checkpoint save **")
            Path(switch).unlink()
            self._save()

    def _caught(self, *_: object) -> None:
        say("received SIGUSR1: an emergency checkpoint follows")
        self._wants_checkpoint = True


def say(text: str) -> None:
    print(text, flush=True)


def wishes_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="a trainer without a model")
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--layout", choices=sorted(LAYOUTS), default="megatron")
    parser.add_argument("--lines", choices=sorted(LINES), default="megatron")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=25, help="steps from one checkpoint to the next")
    parser.add_argument("--step-s", type=float, default=0.2)
    parser.add_argument("--save-s", type=float, default=0.4)
    parser.add_argument("--kill-switch")
    parser.add_argument("--save-switch")
    parser.add_argument("--die-when", help="at --die-at it waits until this file exists")
    parser.add_argument("--usr1", choices=("die", "save", "save-and-exit"), default="die")
    for name in ("hang-at", "nan-at", "die-at", "die-while-saving"):
        parser.add_argument(f"--{name}", type=int)
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(Trainer(wishes_of(sys.argv[1:])).train())
