"""ckpt-chaos kills a save before each operation on a file, and judges which checkpoint is the newest complete one.
We must name the same one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import trainer
from tests.lab.pip import pip

CHAOS = "ckpt-chaos==0.1.8"
ROOT = Path(__file__).parents[4]
GLOBS = {"megatron": "iter_*", "hf": "checkpoint-*", "dcp": "step-*"}
"""The checkpoints of the layouts of which no file is written after the one that commits."""

PACE = ("--steps=4", "--every=2", "--step-s=0.01", "--save-s=0.01")


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ckpt-chaos")
    pip("install", "--no-deps", "--target", folder, CHAOS)
    return folder


@pytest.mark.slow  # a save is killed at every file, and each time two programs start
@pytest.mark.parametrize("layout", GLOBS)
def test_wherever_a_save_is_killed_the_newest_complete_checkpoint_is_the_committed_one(
    layout: str, chaos: Path, tmp_path: Path
) -> None:
    train = [sys.executable, trainer.__file__, "--checkpoints={out}", f"--layout={layout}", *PACE]
    resume = f"{sys.executable} -m {__package__}.resuming {{out}}"
    options = [
        f"--work={tmp_path / 'work'}", "--modes=before", f"--resume-cmd={resume}",
        r"--step-regex=resumed from step (\d+)",
        f"--checkpoint-glob={{out}}/{GLOBS[layout]}", "--fail-on=HARD_FAIL,LOST_WORK,CONTROL_FAIL",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "ckpt_chaos", "run", *options, "--", *train], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{chaos}:{ROOT}"}, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "work").glob("pt_[0-9]*/result.json"))]
    answers = {one["label"]: one["outcome"] for one in found}
    assert len(answers) > 10
    for label, outcome in answers.items():
        assert outcome["resumed_from_step"] == outcome["newest_complete_step"], label
