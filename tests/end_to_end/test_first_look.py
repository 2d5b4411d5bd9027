"""The first look at a machine without Slurm and without a config: what to do next, and a trainer that runs there."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import Product
from tests.lab.checkpoints import SAVES, made
from tests.lab.daemons import until
from tests.lab.nvml import Nvml
from tests.trainmon.job.commands import wrapped

NANOGPT = """
import sys, time
print("found vocab_size = 65 (inside data/shakespeare_char/meta.pkl)", flush=True)
for step in range(10_000):
    time.sleep(0.1)
    if step % 25 == 0:
        print(f"step {step}: train loss 2.1432, val loss 2.2011", flush=True)
    print(f"iter {step}: loss 2.{1000 + step}, time 101.02ms, mfu 41.17%", flush=True)
"""

SILENT = """
import time
print("***** Running training *****", flush=True)
time.sleep(600)
"""


@pytest.fixture
def nvml(tmp_path: Path) -> Nvml:
    (tmp_path / "gpus").mkdir()
    return Nvml(tmp_path / "gpus", gpus=2)


@contextlib.contextmanager
def trainer(folder: Path, nvml: Nvml, script: str = NANOGPT) -> Iterator[subprocess.Popen[bytes]]:
    """`python train.py > train.log` in a directory of its own. It holds memory on both GPUs."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    with (folder / "train.log").open("ab") as log:
        started = subprocess.Popen([sys.executable, "train.py", "--api_key=hunter22222"], cwd=folder, stdout=log)
    try:
        nvml.process(0, started.pid, 30_000).process(1, started.pid, 30_000)
        yield started
    finally:
        started.kill()
        started.wait()


@pytest.fixture
def here(product: Product, nvml: Nvml, tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with two GPUs and without Slurm."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    ours = nvml.environment()
    return {name: ours[name] for name in ("LD_LIBRARY_PATH", "TRAINMON_LAB_NVML")} | {"PATH": str(tmp_path / "bin")}


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (200, 60)])
def test_without_slurm_and_gpus_the_first_screen_says_what_to_do_next(
    product: Product, nvml: Nvml, here: dict[str, str], columns: int, rows: int
) -> None:
    nvml.clear(gpus=0)
    screen = product.screen(columns=columns, rows=rows, **here)
    screen.until_shown(
        r"trainmon-tui HOST… +watches other machines",
        r"trainmon-tui init +writes a config for your cluster",
        r"trainmon-tui --demo +shows a simulated cluster; \?: all keys",
    )
    screen.leave()


def test_a_trainer_on_the_gpus_is_a_run_until_its_process_ends(
    product: Product, nvml: Nvml, here: dict[str, str], tmp_path: Path
) -> None:
    with trainer(tmp_path / "nanoGPT", nvml) as running:
        until(lambda: b"iter 2" in (tmp_path / "nanoGPT" / "train.log").read_bytes(), "the first steps")
        snapshot = product.run("snapshot", **here)
        assert f"train  healthy  pid {running.pid} " in snapshot.stdout, snapshot.stdout
        screen = product.screen(columns=120, rows=40, **here)
        screen.until_line(" train ", rf"● train .* pid {running.pid} ")
        screen.until_shown(r"iter \d+: loss 2\.1\d+, time 101")
        screen.keys("1")
        screen.until_shown("S Save")
        screen.keys("\r")
        screen.until_shown(rf"process +pid {running.pid}, found on the GPUs", "command .*train.py", "workdir .*nanoGPT")
        assert "hunter22222" not in screen.text()
        screen.keys("\x1b")
        running.kill()
        screen.until_line(" train ", rf"\? train .* pid {running.pid} ", seconds=60)
        screen.until_shown(rf"process {running.pid} ended \d+[sm].* ago, at step \d+")
    with trainer(tmp_path / "nanoGPT", nvml) as again:
        screen.until_line(" train ", rf"● train .* pid {again.pid} ", seconds=60)
        screen.leave()


@pytest.mark.slow  # each end waits for its last lines
def test_earlier_starts_of_a_trainer_on_the_gpus_are_attempts_by_their_receipts(
    product: Product, nvml: Nvml, here: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "nanoGPT"
    folder.mkdir()
    (folder / "train.py").write_text("import sys\nprint('iter 7: loss 2.1, time 101.02ms', flush=True)\nsys.exit(3)\n")
    with (folder / "train.log").open("ab") as log:
        argv = [*wrapped(folder), sys.executable, "train.py"]
        assert subprocess.run(argv, cwd=folder, stdout=log, check=False).returncode == 3
    with trainer(folder, nvml) as running:
        screen = product.screen(columns=120, rows=40, **here, TRAINMON_RECEIPTS=str(folder / "receipts"))
        screen.until_line(" train ", rf"● train .* pid {running.pid} ")
        screen.keys("1")
        screen.until_shown("S Save")
        screen.keys("\r")
        screen.until_shown(rf"→ pid {running.pid}  runs", r"→ log  unknown .* step 7", seconds=120)
        screen.leave()
    rows = [row for row in json.loads(product.run("attempts", "--json", **here).stdout) if row["pid"] is None]
    (receipt,) = (folder / "receipts").iterdir()
    assert [(row["attempt_id"], row["exit_code"], row["is_reconstructed"]) for row in rows] == [
        (f"train/receipt/{receipt.name}", 3, 1)
    ]


def test_init_writes_the_trainer_and_says_how_it_knows_each_setting(
    product: Product, nvml: Nvml, here: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "nanoGPT"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "ckpt.pt").write_bytes(bytes(100))
    with trainer(folder, nvml) as running:
        until(lambda: b"iter 2" in (folder / "train.log").read_bytes(), "the first steps")
        with (folder / "train.log").open("a") as log:
            log.write("saving checkpoint to out\n")
        done = product.run("init", **here)
        assert (done.returncode, done.stderr) == (0, "")
        written = (product.work / "trainmon.toml").read_text()
        assert f"# Process {running.pid} trains on this machine: " in written
        assert "hunter22222" not in written
        settings = [line for line in written.splitlines() if line and line[0] not in "#["]
        marks = [re.split("  +# ", line) for line in settings]
        assert [line for line, mark in marks if mark.startswith("found: ")] == [
            'name = "train"', f'log = "{folder}/train.log"', f'checkpoints = "{folder}/out"',
        ]  # fmt: skip
        assert [line for line, mark in marks if mark.startswith("guessed: ")] == [
            'name = "main"', 'path = "/"', 'on = "nodes"',
        ]  # fmt: skip
        assert len(marks) == 6
        (run,) = product.snapshot(**here)["runs"]
        assert (run["name"], run["log"]["path"], run["verdict"]) == ("train", f"{folder}/train.log", "healthy")


def test_a_process_of_another_kind_is_no_run(
    product: Product, nvml: Nvml, here: dict[str, str], tmp_path: Path
) -> None:
    """A program of a person who types, and a process that is not ours."""
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL) as asleep:
        nvml.process(0, asleep.pid, 500).process(1, 1, 500)
        told = product.snapshot(**here)
        asleep.kill()
    assert told["runs"] == []
    assert {one["pid"] for gpu in told["nodes"][0]["gpus"] for one in gpu["processes"]} == {asleep.pid, 1}


def saved_state(folder: Path, step: int, loss: float) -> None:
    """The last file of a checkpoint, as Hugging Face's TrainerState writes it, with a long history."""
    rows = [
        {"epoch": at / 1_000, "grad_norm": 1.5, "learning_rate": 5e-05, "loss": loss + step - at, "step": at}
        for at in range(1, step + 1)
    ]
    history = [*rows, {"epoch": 1.0, "eval_loss": 9.5, "eval_runtime": 3.25, "step": step}]
    callbacks = {"TrainerControl": {"args": {"should_log": False, "should_save": True}, "attributes": {}}}
    state = {"best_metric": None, "epoch": 1.0, "global_step": step, "log_history": history, "max_steps": 2_000,
             "stateful_callbacks": callbacks, "total_flos": 4774400.0, "trial_params": None}  # fmt: skip
    path = folder / f"checkpoint-{step}" / "trainer_state.json"
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")


def test_the_checkpoints_of_a_trainer_whose_log_shows_no_steps_are_found_below_its_working_directory(
    product: Product, nvml: Nvml, here: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "sft"
    made(folder / "before", SAVES["hf"], 9_000, at=time.time() - 3600)
    with trainer(folder, nvml, SILENT):
        time.sleep(0.1)
        made(folder / "out", SAVES["hf"], 500, at=time.time())
        saved_state(folder / "out", 500, loss=2.375)
        made(folder / "data", SAVES["torchtitan"], 700, at=time.time())
        screen = product.screen(columns=120, rows=60, **here)
        screen.until_line(" train ", r"train +pid \d+ +500 +2\.375 ")
        screen.keys("1")
        screen.until_shown("S Save")
        screen.keys("\r")
        screen.until_shown(r"directory +\S*sft/out \(found", r"checkpoint +step 500 committed")
        screen.until_shown(r"step +500 ", r"loss +2\.375,")
        made(folder / "out", SAVES["hf"], 1_000, at=time.time())
        saved_state(folder / "out", 1_000, loss=1.25)
        screen.until_shown(r"checkpoint +step 1,000 committed", r"loss +1\.250,")
        screen.leave()
        (run,) = product.snapshot(**here)["runs"]
        assert (run["step"], run["loss"], run["last_step_at"]) == (1_000, 1.25, None)
        text = product.run("snapshot", **here).stdout
        assert re.search(r"train +\w+ +pid \d+ +1,000 / 2,000 +1\.250 ", text), text
