"""The checkpoint layouts of the five trainers: which files, in which order, and the marker that comes last.

The files are real and sparse: a listing shows the sizes of a real run, and the disk of this machine holds some bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from collectors.demo.model.inventory import Format
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
