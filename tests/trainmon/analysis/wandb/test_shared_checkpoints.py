"""Whether two active W&B runs write the same checkpoints."""

from __future__ import annotations

import pytest

from trainmon.analysis.wandb import shared_checkpoints
from trainmon.model import Checkpoint, Checkpoints, WandbRun

T = 1_000_000.0


def run(name: str, created: float = T, **config: str) -> WandbRun:
    config = {key.replace("__", "."): value for key, value in config.items()}
    return WandbRun(entity="t", project="p", id=name, name=name, state="running", created_at=created, config=config)


def saved(*known: tuple[int | None, float]) -> Checkpoints:
    found = tuple(
        Checkpoint(step=step, state="superseded", path=f"/ckpt/{step}", layout="megatron", at=T + at)
        for step, at in known
    )
    return Checkpoints(path="/ckpt", host="login", listed_at=T + 900, list=found)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"output_dir": "/fsx/out"}, "both save to /fsx/out (output_dir in their W&B configs)"),
        (
            {"checkpoints__checkpoints_path": "s3://b/c"},
            "both save to s3://b/c (checkpoints_path in their W&B configs)",
        ),
        ({"save": "/fsx/gpt"}, "both save to /fsx/gpt (save in their W&B configs)"),
        ({"out_dir": "out"}, "both save to out (out_dir in their W&B configs)"),
    ],
)
def test_the_same_directory_in_both_configs_is_shared(config: dict[str, str], words: str) -> None:
    assert shared_checkpoints((run("a", **config), run("b", **config)), None) == words


@pytest.mark.parametrize(
    "config", [{}, {"save": "true"}, {"load": "/fsx/gpt"}, {"data_dir": "/fsx/data"}, {"output_dir": ""}]
)
def test_other_settings_show_nothing(config: dict[str, str]) -> None:
    assert shared_checkpoints((run("a", **config), run("b", **config)), None) is None


def test_a_lower_step_that_was_saved_after_a_higher_one_shows_two_trainings() -> None:
    both = (run("a", T - 3_600), run("b", T))
    words = "/ckpt: step 100 was saved after step 5,000, while both were active"
    assert shared_checkpoints(both, saved((5_100, 300), (5_000, 100), (100, 200))) == words
    assert shared_checkpoints(both, saved((5_000, -10), (200, 200), (100, 100), (None, 150))) is None
    own = (run("a", T - 3_600, output_dir="/x"), run("b", T, output_dir="/y"))
    assert shared_checkpoints(own, saved((5_000, 100), (100, 200))) is None
