"""Checkpoints on disk: what tells a whole one from one that is being written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.demo.stories import Format
from collectors.demo.trainers import LAYOUTS, CheckpointDirectory

AT = 1_760_000_000.0
MARKERS: dict[Format, str] = {
    "megatron": "metadata.json",
    "torchtitan": ".metadata",
    "hf": "trainer_state.json",
    "nanotron": "model_config.json",
    "kempnerforge": ".metadata",
}
ALL = pytest.mark.parametrize("form", LAYOUTS)


@ALL
def test_the_marker_comes_last(form: Format, tmp_path: Path) -> None:
    checkpoints = CheckpointDirectory(tmp_path, form)
    checkpoints.begin(500, AT)
    assert not (checkpoints.path(500) / MARKERS[form]).exists()
    assert any(checkpoints.path(500).iterdir())
    checkpoints.commit(500, AT)
    assert (checkpoints.path(500) / MARKERS[form]).exists()


@pytest.mark.parametrize(
    ("form", "pointer"), [("megatron", "latest_checkpointed_iteration.txt"), ("nanotron", "latest.txt")]
)
def test_the_pointer_names_the_newest_whole_checkpoint(form: Format, pointer: str, tmp_path: Path) -> None:
    checkpoints = CheckpointDirectory(tmp_path, form)
    for step in (500, 600):
        checkpoints.begin(step, AT)
        checkpoints.commit(step, AT)
    checkpoints.begin(700, AT)
    assert (tmp_path / pointer).read_text() == "600"


def test_kempnerforge_points_with_a_relative_link_that_is_swapped(tmp_path: Path) -> None:
    checkpoints = CheckpointDirectory(tmp_path, "kempnerforge")
    for step in (500, 600):
        checkpoints.begin(step, AT)
        checkpoints.commit(step, AT)
    assert (tmp_path / "latest").readlink() == Path("step_600")
    assert json.loads((tmp_path / "latest" / "metadata.json").read_text())["step"] == 600


def test_files_carry_the_time_of_the_demo(tmp_path: Path) -> None:
    checkpoints = CheckpointDirectory(tmp_path, "torchtitan")
    checkpoints.begin(10, AT)
    assert {path.stat().st_mtime for path in checkpoints.path(10).iterdir()} == {AT}


def test_pruning_removes_one_and_sweeping_all_but_those_to_keep(tmp_path: Path) -> None:
    checkpoints = CheckpointDirectory(tmp_path, "hf")
    for step in (1, 2, 3, 4):
        checkpoints.begin(step, AT)
    checkpoints.prune(1)
    assert not checkpoints.path(1).exists()
    checkpoints.sweep([3])
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
