"""Checkpoints as each trainer writes them, file after file in its order: `python -m tests.lab.checkpoints`.

A save is a list of operations; it can be stopped after any of them, as a killed job does. Made after the trainers'
sources and documentation; the files hold zeros.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SIZE = 1000
RANKS = 4


@dataclass(frozen=True, slots=True)
class Step:
    """One operation, on a path below the directory of checkpoints."""

    path: str
    do: Literal["write", "grow", "rename", "link", "remove", "folder"] = "write"
    text: str = "\0" * SIZE
    """What is written, the new name, or the link's target."""
    commits: bool = False
    """Whether the checkpoint is whole from here on."""


Save = Callable[[int], list[Step]]


def shards(folder: str) -> list[Step]:
    """The files of PyTorch's distributed checkpoint."""
    return [Step(f"{folder}/__{rank}_{part}.distcp") for rank in range(RANKS) for part in range(2)]


def metadata(folder: str, commits: bool = False) -> list[Step]:
    """Its end: written beside, then renamed."""
    return [Step(f"{folder}/.metadata.tmp"), Step(f"{folder}/.metadata.tmp", "rename", f"{folder}/.metadata", commits)]


def megatron(step: int) -> list[Step]:
    folder = f"iter_{step:07d}"
    tracker = Step("latest_checkpointed_iteration.txt", text=str(step))
    data = [Step(f"{folder}/common.pt"), *shards(folder), *metadata(folder)]
    return [Step(folder, "folder"), *data, Step(f"{folder}/metadata.json", commits=True), tracker]


def megatron_legacy(step: int) -> list[Step]:
    folder = f"iter_{step:07d}"
    data = [
        Step(f"{folder}/mp_rank_{rank:02d}/{name}.pt")
        for rank in range(RANKS)
        for name in ("model_optim_rng", "distrib_optim")
    ]
    return [Step(folder, "folder"), *data, Step("latest_checkpointed_iteration.txt", text=str(step), commits=True)]


def states(folder: str) -> list[Step]:
    """The files of DeepSpeed with ZeRO."""
    optimizer = [Step(f"{folder}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt") for rank in range(RANKS)]
    return [Step(f"{folder}/mp_rank_00_model_states.pt"), *optimizer]


def deepspeed(step: int) -> list[Step]:
    folder = f"global_step{step}"
    latest = Step("latest", text=folder, commits=True)
    return [Step(folder, "folder"), *states(folder), latest, Step("zero_to_fp32.py")]


def weights(folder: str) -> list[Step]:
    files = [Step(f"{folder}/model-{part:05d}-of-00003.safetensors") for part in (1, 2, 3)]
    return [Step(f"{folder}/config.json"), *files, Step(f"{folder}/model.safetensors.index.json")]


def trainer_files(folder: str, commits: bool = True) -> list[Step]:
    names = ("scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "training_args.bin")
    state = Step(f"{folder}/trainer_state.json", commits=commits)
    return [*(Step(f"{folder}/{name}") for name in names), state]


def hf(step: int) -> list[Step]:
    folder = f"checkpoint-{step}"
    return [Step(folder, "folder"), *weights(folder), Step(f"{folder}/optimizer.pt"), *trainer_files(folder)]


def hf_staged(step: int) -> list[Step]:
    folder = f"tmp-checkpoint-{step}"
    data = [*weights(folder), Step(f"{folder}/optimizer.pt"), *trainer_files(folder, commits=False)]
    return [Step(folder, "folder"), *data, Step(folder, "rename", f"checkpoint-{step}", commits=True)]


def hf_deepspeed(step: int) -> list[Step]:
    folder = f"checkpoint-{step}"
    engine = [*states(f"{folder}/global_step{step}"), Step(f"{folder}/latest", text=f"global_step{step}")]
    return [Step(folder, "folder"), *weights(folder), *engine, *trainer_files(folder)]


def hf_fsdp(step: int) -> list[Step]:
    folder = f"checkpoint-{step}"
    parts = [f"{folder}/pytorch_model_fsdp_0", f"{folder}/optimizer_0"]
    data = [one for part in parts for one in (*shards(part), *metadata(part))]
    return [Step(folder, "folder"), *data, *trainer_files(folder)]


def torchtitan(step: int) -> list[Step]:
    folder = f"step-{step}"
    return [Step(folder, "folder"), *shards(folder), *metadata(folder, commits=True)]


def nanotron(step: int) -> list[Step]:
    block = f"{step}/model/model/decoder"
    parts = [
        Step(f"{block}/{layer}/pp_block/{name}/model_weight_pp-rank-0-of-1_tp-rank-{rank}-of-2.safetensors")
        for layer in range(3)
        for name in ("attn/o_proj", "mlp/down_proj")
        for rank in range(2)
    ]
    rest = [
        Step(f"{step}/optimizer/optimizer_pp-0-of-1_tp-0-of-2.pt"),
        Step(f"{step}/lr_scheduler/lr_scheduler.pt"),
        Step(f"{step}/random/tp-0-of-2_dp-0-of-1_pp-0-of-1.pt"),
        Step(f"{step}/checkpoint_metadata.json"),
    ]
    end = [Step("latest.txt", text=str(step)), Step(f"{step}/model_config.json", commits=True)]
    return [Step(f"{step}/config.yaml"), *parts, *rest, *end]


def lightning(step: int) -> list[Step]:
    name = f"epoch={step // 500}-step={step}.ckpt"
    return [Step(name, "grow"), Step(name, "grow"), Step(name, "grow"), Step(name, "grow", commits=True)]


def lightning_sharded(step: int) -> list[Step]:
    folder = f"epoch=0-step={step}.ckpt"
    return [*shards(folder), *metadata(folder), Step(f"{folder}/meta.pt", commits=True)]


def lightning_deepspeed(step: int) -> list[Step]:
    folder = f"epoch=0-step={step}.ckpt"
    latest = Step(f"{folder}/latest", text="checkpoint", commits=True)
    return [*states(f"{folder}/checkpoint"), latest, Step(f"{folder}/zero_to_fp32.py")]


def nemo(step: int) -> list[Step]:
    name = f"gpt--val_loss=2.10-step={step}-consumed_samples={step * 32}.0-last"
    data = [Step(f"{name}/weights/common.pt"), *shards(f"{name}/weights"), *metadata(f"{name}/weights")]
    rest = [Step(f"{name}/weights/metadata.json"), Step(f"{name}/context/model.yaml")]
    return [Step(f"{name}-unfinished", text=""), *data, *rest, Step(f"{name}-unfinished", "remove", commits=True)]


def kempnerforge(step: int) -> list[Step]:
    folder = f"step_{step}"
    data = [*shards(folder), *metadata(folder), Step(f"{folder}/train_state.pt", commits=True)]
    latest = [Step("latest.tmp", "link", folder), Step("latest.tmp", "rename", "latest")]
    return [Step(folder, "folder"), *data, Step(f"{folder}/metadata.json"), *latest]


def kempnerforge_async(step: int) -> list[Step]:
    """Pipeline stages, saved in the background: what says the step is there before the data are."""
    folder = f"step_{step}"
    first = [Step(f"{folder}/train_state.pt"), Step(f"{folder}/metadata.json")]
    data = [*shards(f"{folder}/pp0"), *shards(f"{folder}/pp1"), *metadata(f"{folder}/pp0")]
    return [Step(folder, "folder"), *first, *data, *metadata(f"{folder}/pp1", commits=True)]


def orbax(step: int) -> list[Step]:
    folder = f"{step}.orbax-checkpoint-tmp"
    names = ("default/manifest.ocdbt", "default/_METADATA", "default/d/3f9ac0de77b1", "default/d/9b01aa45c2f0")
    end = [Step(f"{folder}/_CHECKPOINT_METADATA"), Step(f"{folder}/commit_success.txt", text="")]
    return [*(Step(f"{folder}/{name}") for name in names), *end, Step(folder, "rename", str(step), commits=True)]


def idefics(step: int) -> list[Step]:
    folder = f"opt_step-{step}"
    names = ("accelerator_state/optimizer.bin", "resumable_states/0.pt", "unwrapped_model/pytorch_model.bin")
    more = ("tokenizer/tokenizer.json", "resume_run_infos.json")
    end = [
        Step(f"{folder}/finished-saving", text="", commits=True),
        Step("latest_opt_step_dir", text=f"/ckpt/{folder}"),
    ]
    return [*(Step(f"{folder}/{name}") for name in (*names, *more)), *end]


SAVES: dict[str, Save] = {
    "megatron": megatron, "megatron-legacy": megatron_legacy, "deepspeed": deepspeed, "hf": hf, "hf-staged": hf_staged,
    "hf-deepspeed": hf_deepspeed, "hf-fsdp": hf_fsdp, "torchtitan": torchtitan, "nanotron": nanotron,
    "lightning": lightning, "lightning-sharded": lightning_sharded, "lightning-deepspeed": lightning_deepspeed,
    "nemo": nemo, "kempnerforge": kempnerforge,
    "kempnerforge-async": kempnerforge_async, "orbax": orbax, "idefics": idefics,
}  # fmt: skip


def apply(root: Path, step: Step) -> None:
    """Do one operation."""
    path = root / step.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if step.do == "folder":
        path.mkdir(exist_ok=True)
    elif step.do == "write":
        path.write_text(step.text)
    elif step.do == "grow":
        with path.open("a") as file:
            file.write(step.text)
    elif step.do == "rename":
        path.rename(root / step.text)
    elif step.do == "link":
        path.symlink_to(step.text)
    else:
        path.unlink()


def progress(root: Path, save: Save, step: int) -> Iterator[Step]:
    """Save a checkpoint; hands over after each operation."""
    for one in save(step):
        apply(root, one)
        yield one


def made(root: Path, save: Save, step: int, *, at: float, took: float = 60.0, stop: int | None = None) -> None:
    """A checkpoint that was saved from `at` on in `took` seconds, or stopped after some of its operations."""
    steps = save(step)
    for index, one in enumerate(steps[:stop]):
        apply(root, one)
        when = at + took * (index + 1) / len(steps)
        path = root / (one.text if one.do == "rename" else one.path)
        for touched in (path, *path.parents):
            if touched == root:
                break
            if os.path.lexists(touched):
                os.utime(touched, (when, when), follow_symlinks=False)


def clear(root: Path) -> None:
    """Begin anew."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()


if __name__ == "__main__":
    layout, folder, number, pause = sys.argv[1:]
    for done in progress(Path(folder), SAVES[layout], int(number)):
        print(done.path, flush=True)
        time.sleep(float(pause))
