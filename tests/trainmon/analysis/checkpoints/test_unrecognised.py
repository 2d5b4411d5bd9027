"""Checkpoints of trainers that no layout knows: they are not torn, and what a crash would lose is not known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab.checkpoints import SAVES, made
from tests.trainmon.analysis.checkpoints.reading import NOW, problem, read, states, two


def saved(folder: Path, name: str, *files: str, at: float = NOW - 3000) -> None:
    """Files of a checkpoint; without any, a checkpoint that is one file."""
    for path in [folder / name / file for file in files] or [folder / name]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\0" * 100)
        os.utime(path, (at, at))
    os.utime(folder / name, (at, at))


HF = ("model.safetensors", "trainer_state.json")


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin", "adapter_model.safetensors"])
def test_weights_with_a_trainer_state_are_a_complete_checkpoint_of_hf_under_any_name(weights: str, tmp_path: Path):
    saved(tmp_path, "step_20", weights, "trainer_state.json", at=NOW - 4000)
    saved(tmp_path, "step_40", weights, "trainer_state.json")
    answer = read(tmp_path)
    assert states(answer) == [(40, "committed"), (20, "superseded")]
    assert (answer.list[0].layout, answer.resumes, answer.problem) == ("hf", f"{tmp_path}/step_40", None)
    assert answer.at_risk(45) == 5
    (tmp_path / "step_40" / "trainer_state.json").write_text("")
    assert read(tmp_path, is_running=False).list[0].why == "trainer_state.json is empty"


UNKNOWN = {
    "step_40": ("model.msgpack", "opt.msgpack"),
    "step-40": ("model.safetensors", "optim.pt"),
    "global_step40": ("actor/model_world_size_8_rank_0.pt",),
    "iter_0000040": ("model.pt",),
    "checkpoint_40": ("model.safetensors", "optimizer.bin", "random_states_0.pkl"),
    "checkpoint-40": ("model.safetensors", "optimizer.bin", "random_states_0.pkl"),
    "40": ("weights.npz",),
    "ckpt_40": ("arrays/0",),
    "model_step_40.pt": (),
    "checkpoint_40.pth": (),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("is_running", [True, False, None])
def test_a_checkpoint_of_an_unknown_format_is_neither_torn_nor_committed(
    name: str, is_running: bool | None, tmp_path: Path
):
    saved(tmp_path, name, *UNKNOWN[name])
    answer = read(tmp_path, is_running=is_running)
    assert states(answer) == [(40, "unknown")]
    assert (answer.list[0].layout, answer.list[0].why) == ("unknown", "its format is not recognised")
    assert (answer.problem, answer.at_risk(45)) == (None, None)
    assert answer.unrecognised == answer.list[0]


def test_what_was_committed_after_one_of_an_unknown_format_counts(tmp_path: Path):
    saved(tmp_path, "model_step_400.pt", at=NOW - 9000)
    two(tmp_path, SAVES["torchtitan"])
    answer = read(tmp_path)
    assert states(answer) == [(1000, "committed"), (500, "superseded"), (400, "unknown")]
    assert (answer.unrecognised, answer.at_risk(1010)) == (None, 10)
    saved(tmp_path, "model_step_1005.pt", at=NOW - 100)
    assert read(tmp_path).at_risk(1010) is None


def test_what_a_known_trainer_has_not_finished_stays_torn(tmp_path: Path):
    for name, save in SAVES.items():
        folder = tmp_path / name
        folder.mkdir()
        for stop in range(1, len(save(500))):
            made(folder, save, 500, at=NOW - 90_000, stop=stop)
            found = states(read(folder, is_running=False))
            assert "unknown" not in [state for _, state in found], (name, stop, found)


def test_one_of_an_unknown_format_under_its_temporary_name_is_torn(tmp_path: Path):
    saved(tmp_path, "step_40.tmp", "weights.npz")
    saved(tmp_path, "step_20", "weights.npz", at=NOW - 4000)
    assert states(read(tmp_path, is_running=False)) == [(40, "torn"), (20, "unknown")]


def test_an_empty_one_is_torn_whatever_its_format(tmp_path: Path):
    (tmp_path / "ckpt_40").mkdir()
    os.utime(tmp_path / "ckpt_40", (NOW - 3000, NOW - 3000))
    assert [(one.state, one.why) for one in read(tmp_path).list] == [("torn", "it is empty")]


def test_weights_without_a_step_count_only_where_nothing_is_recognised(tmp_path: Path):
    saved(tmp_path, "best.pt")
    saved(tmp_path, "results", "scores.csv")
    assert states(read(tmp_path)) == [(None, "unknown")]
    assert problem(tmp_path) is None
    two(tmp_path, SAVES["hf"])
    assert states(read(tmp_path)) == [(1000, "committed"), (500, "superseded")]
