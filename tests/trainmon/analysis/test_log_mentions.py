"""The W&B run and the directory that the lines of real trainers name."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.lab.checkpoints import SAVES, made
from tests.trainmon.analysis.checkpoints.reading import NOW
from tests.trainmon.analysis.checkpoints.reading import listed as listing
from trainmon.analysis.log_mentions import Mentions, WandbPage, is_mention, listed, read, with_mentions
from trainmon.model import RunSpec, WandbSpec

WORK = "/home/ana/train"


def named(*lines: str, workdir: str | None = WORK, before: Mentions | None = None) -> Mentions:
    return read(before or Mentions(), lines, workdir)


@pytest.mark.parametrize(
    ("line", "page"),
    [
        (
            "wandb: 🚀 View run at https://wandb.ai/ana/owt/runs/3x0k2v1q",  # 0.13 to 0.31
            WandbPage("wandb.ai", "ana/owt", "3x0k2v1q"),
        ),
        (
            "\x1b[34m\x1b[1mwandb\x1b[0m: 🚀 View run at \x1b[34m\x1b[4mhttps://wandb.ai/ana/owt/runs/3x0k2v1q\x1b[0m",
            WandbPage("wandb.ai", "ana/owt", "3x0k2v1q"),
        ),
        (
            "wandb: 🚀 View run crisp-sun-12 at: https://wandb.ai/ana/owt/runs/3x0k2v1q",  # at its end
            WandbPage("wandb.ai", "ana/owt", "3x0k2v1q"),
        ),
        (
            "wandb: View run at https://wandb.example.org/team%20a/owt/runs/gpt2-124M?jupyter=x",  # 0.10
            WandbPage("wandb.example.org", "team a/owt", "gpt2-124M"),
        ),
        (
            "wandb: Syncing to https://app.wandb.ai/ana/owt/runs/3x0k2v1q",  # 0.7.3
            WandbPage("app.wandb.ai", "ana/owt", "3x0k2v1q"),
        ),
        ("0: wandb: 🚀 View run at http://10.0.0.7:8080/a/b/runs/c", WandbPage("10.0.0.7:8080", "a/b", "c")),
        ("wandb: ⭐️ View project at https://wandb.ai/ana/owt", None),
        ("wandb: Syncing run crisp-sun-12", None),
        ("compare with https://wandb.ai/ana/owt/runs/other", None),
        ("wandb: 🚀 View run at https://wandb.ai/ana/o%0awt/runs/3x0k2v1q", None),
        ("wandb: 🚀 View run at https://wandb.ai/a%2Fb/owt/runs/3x0k2v1q", None),
    ],
)
def test_the_page_of_a_wandb_run_is_read_from_its_clients_lines(line: str, page: WandbPage | None) -> None:
    assert named(line).page == page


@pytest.mark.parametrize(
    ("line", "directory"),
    [
        ("saving checkpoint to out-shakespeare-char", f"{WORK}/out-shakespeare-char"),  # nanoGPT
        ("saving checkpoint at iteration   20000 to /ckpt/gpt in torch_dist format", "/ckpt/gpt"),  # Megatron-LM
        ("  successfully saved checkpoint from iteration   20000 to /ckpt/gpt [ t 1/8, p 1/4 ]", "/ckpt/gpt"),
        ("[INFO|trainer.py:3478] 08:31:02,123 >> Saving model checkpoint to /out/x/checkpoint-500", "/out/x"),
        ("Saving model checkpoint to ./results", f"{WORK}/results"),  # Hugging Face, the last save
        (
            "Epoch 0, global step 100: 'val_loss' reached 2.10 (best 2.10), saving model to "
            "'/out/a run/epoch=0-step=100.ckpt' as top 1",  # Lightning
            "/out/a run",
        ),
        (
            "INFO:torchtune.utils._logging:Model checkpoint of size 4.66 GiB saved to "
            "/mnt/out/epoch_0/ft-model-00003-of-00030.safetensors",
            "/mnt/out",
        ),
        ("Saving checkpoint to 'out/tiny-llama/step-00001000/lit_model.pth'", f"{WORK}/out/tiny-llama"),
        (
            "[2024-01-01 00:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] Saving model checkpoint: "
            "/out/global_step500/mp_rank_00_model_states.pt",  # DeepSpeed
            "/out",
        ),
        ("[torch_checkpoint_engine.py:21:save] [Torch] Saving /out/global_step5/mp_rank_00_model_states.pt...", "/out"),
        ("[titan] - INFO - Checkpointing active. Checkpoints will be loaded from and saved to ./outputs/checkpoint",
         f"{WORK}/outputs/checkpoint"),
        ("[WARNING|DP=0]: Saving checkpoint at /scratch/checkpoints/500", "/scratch/checkpoints"),  # nanotron
        ("Saving current state to runs/7/step_500", f"{WORK}/runs/7"),  # accelerate
        ("saving checkpoint to /scratch/418100", "/scratch/418100"),
        ("saving checkpoint to ../out/", "/home/ana/out"),
        ("saving checkpoint to ./", WORK),
        ("\x1b[32msaving checkpoint to /out\x1b[0m", "/out"),
    ],
)  # fmt: skip
def test_the_directory_of_the_checkpoints_is_read_from_a_trainers_lines(line: str, directory: str) -> None:
    assert named(line).directories == (directory,)


@pytest.mark.parametrize(
    "line",
    [
        "Finished saving the checkpoint in 0.52 seconds.",
        "saving checkpoint to s3://bucket/out",
        "saving checkpoint to /",
        "saving checkpoint to '/out/\x07bell'",
        "wandb: Run data is saved locally in /home/ana/wandb/run-1",
        "iter 250: loss 2.5, time 30.1ms, mfu 31%",
        "Saved the results to /home/ana/results/7/metrics.json",
        "saving checkpoint to ../",
    ],
)
def test_other_lines_name_no_directory(line: str) -> None:
    assert named(line).directories == ()


@pytest.mark.parametrize(
    ("line", "directory"),
    [
        ("wandb: Run data is saved locally in /fsx/a b/wandb/offline-run-20261128_072244-mn2u3ke3", "/fsx/a b/wandb"),
        ("[rank0]: wandb: Run data is saved locally in wandb/run-20210504_072244-abc", f"{WORK}/wandb"),  # 0.10
        ("\x1b[34mwandb\x1b[0m: Run data is saved locally in \x1b[35m/w/run-20261128_072244-a\x1b[0m", "/w"),
        ("wandb: Run data is saved locally in `/w/run-20261128_072244-a`", "/w"),
        ("wandb: Run data is saved locally in /home/ana/elsewhere", None),
    ],
)
def test_the_directory_of_the_files_of_wandb_is_read_from_its_clients_line(line: str, directory: str | None) -> None:
    found = named(line)
    assert found.wandb_dir == directory
    completed = with_mentions(RunSpec(name="llm", cluster="prod"), found, None)
    assert (completed.wandb_dir, completed.from_log) == (directory, ("wandb_dir",) if directory else ())
    assert with_mentions(RunSpec(name="llm", cluster="prod", wandb_dir="/own"), found, None).wandb_dir == "/own"


def test_a_relative_path_without_a_working_directory_names_nothing() -> None:
    assert named("saving checkpoint to out", workdir=None).directories == ()


def test_the_last_named_directories_are_kept() -> None:
    found = named(*(f"saving checkpoint to /out/{number}" for number in (1, 2, 3, 4, 2)))
    assert found.directories == ("/out/2", "/out/4", "/out/3")


def test_step_lines_are_no_mentions() -> None:
    assert not is_mention("iter 250: loss 2.5, time 30.1ms, mfu 31%")
    assert is_mention("Saving model checkpoint to /out/checkpoint-500")


def test_the_config_wins_over_the_log() -> None:
    page = WandbPage("wandb.ai", "ana/owt", "3x0k2v1q")
    found = Mentions(page=page, directories=("/out",), checkpoints="/out")
    own = WandbSpec(project="team/p", group="final")
    configured = RunSpec(name="llm", cluster="prod", checkpoints="/ckpt", wandb=own)
    assert with_mentions(configured, found, page) == configured
    completed = with_mentions(RunSpec(name="llm", cluster="prod"), found, page)
    assert (completed.checkpoints, completed.from_log) == ("/out", ("checkpoints", "wandb"))
    assert completed.wandb is not None
    assert (completed.wandb.project, completed.wandb.run) == ("ana/owt", "3x0k2v1q")
    assert with_mentions(RunSpec(name="llm", cluster="prod"), found, None).wandb is None


def held(found: Mentions, folder: Path) -> str | None:
    return listed(found, listing(folder)).checkpoints


@pytest.mark.parametrize("layout", SAVES)
def test_a_named_directory_counts_once_a_checkpoint_of_a_known_layout_is_there(tmp_path: Path, layout: str) -> None:
    found = Mentions(directories=(str(tmp_path),))
    assert held(found, tmp_path) is None
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "model.pt").write_text("no checkpoint of a trainer that we know")
    assert held(found, tmp_path) is None
    made(tmp_path, SAVES[layout], 500, at=NOW - 3600)
    assert held(found, tmp_path) == str(tmp_path)


def test_a_large_directory_without_checkpoints_is_left_alone_until_it_is_named_again(tmp_path: Path) -> None:
    found = Mentions(directories=("/out", str(tmp_path)))
    slow = replace(listing(tmp_path), took_s=60.0)
    assert listed(found, slow).directories == ("/out",)
    assert listed(replace(found, checkpoints=str(tmp_path)), slow).directories == found.directories
    assert read(listed(found, slow), [f"saving checkpoint to {tmp_path}"], None).directories == (str(tmp_path), "/out")


def test_a_torn_save_alone_does_not_count(tmp_path: Path) -> None:
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 3600, stop=3)
    assert held(Mentions(directories=(str(tmp_path),)), tmp_path) is None


def test_the_last_named_directory_with_checkpoints_counts(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        made(folder, SAVES["hf"], 500, at=NOW - 3600)
    found = Mentions(directories=(str(new), str(old)))
    assert listed(listed(found, listing(old)), listing(new)).checkpoints == str(new)
    assert listed(listed(found, listing(new)), listing(old)).checkpoints == str(new)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("srun python pretrain.py --log tensorboard --tensorboard-dir /fsx/run/tb --save /fsx/run", "/fsx/run/tb"),
        ("  tensorboard_dir ................................. /fsx/run/tb", "/fsx/run/tb"),  # Megatron-LM
        (
            "TrainingArguments(..., logging_dir='out/runs/Nov29_gpu-001', logging_steps=10)",
            f"{WORK}/out/runs/Nov29_gpu-001",
        ),
        (
            "[titan] INFO - TensorBoard logging enabled. Logs will be saved at ./outputs/tb/20260101-1200",
            f"{WORK}/outputs/tb/20260101-1200",
        ),
        ("TensorBoard logs will be saved at ./outputs/tb/20260101-1200", f"{WORK}/outputs/tb/20260101-1200"),
        ("Missing logger folder: /fsx/run/lightning_logs", "/fsx/run/lightning_logs"),
        ("  tensorboard_dir ................................. None", None),
        ("logging to /var/log", None),
    ],
)
def test_the_directory_of_metrics_that_a_line_names(line: str, path: str | None):
    found = named(line, "another line").metrics
    assert found == (() if path is None else (path,))
    assert path is None or is_mention(line)
