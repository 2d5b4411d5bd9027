"""The charts without a key and without a network: a real offline run, read over a real sshd while it writes."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable

import pytest

from tests.collectors.probe.files.test_metrics import event, event_file, record, scalar
from tests.end_to_end.product import PROGRAM, QUICK, Cluster, Product, environment
from tests.lab import forked
from tests.lab.daemons import until
from tests.lab.wandb_training import OfflineTraining

StartCluster = Callable[..., Cluster]

CONFIG = """\
[cluster]
login = "n0"
nodes = ["n0"]
[[run]]
name = "llm"
wandb_dir = "{folder}/wandb"
"""

MEASURED = {"WANDB__DISABLE_STATS": "false", "WANDB__STATS_SAMPLING_INTERVAL": "0.5"}
"""The client measures its machine."""


EVENTS = """\
[cluster]
login = "n0"
nodes = ["n0"]
[[run]]
name = "llm"
checkpoints = "{folder}/out"
"""


@pytest.mark.slow
def test_event_files_beside_the_checkpoints_are_drawn_and_judged_without_a_log_or_a_tracker(
    product: Product, cluster: StartCluster
) -> None:
    cluster(1)
    words = ("--config", str(product.config(EVENTS.format(folder=product.work))))
    for name in ("out", "tensorboard"):
        (product.work / name).mkdir()
    file = product.work / "tensorboard" / "events.out.tfevents.1.gpu-001"
    now = time.time()
    rows = [event(step, scalar("train/loss", 2.0 + step % 7 / 10), at=now - 100 + step) for step in range(100)]
    file.write_bytes(event_file(*rows))
    screen = product.screen(*words, columns=120, rows=40)
    screen.until_shown("TensorBoard shows step 99")
    screen.keys("6")
    screen.until_shown(r"llm +tensorboard", r"from TensorBoard, newest row \d+s old +step 99", "train/loss +2.1")
    with file.open("ab") as more:
        for step in range(100, 110):
            more.write(record(event(step, scalar("train/loss", math.nan), at=now + step - 100)))
    screen.until_shown(r"step 109", "been NaN since step 100", r"ago\) in TensorBoard")
    found = product.snapshot(*words, status=1)["runs"][0]
    assert (found["verdict"], found["wandb_file"]["format"]) == ("diverged", "TensorBoard")
    assert screen.leave() < QUICK


def recorded(product: Product) -> list[tuple[str, int, bool]]:
    """Each attempt in the ledger: its id, its last step, and whether it has ended."""
    done = forked.run([PROGRAM, "attempts", "--json"], cwd=product.work, env=environment(product.home), timeout=90.0)
    return [(row["attempt_id"], row["last_step"], row["ended_at"] is not None) for row in json.loads(done.stdout)]


@pytest.mark.slow
def test_an_offline_run_is_drawn_while_it_writes_and_the_next_one_follows_it(
    product: Product, cluster: StartCluster
) -> None:
    cluster(1)
    words = ("--config", str(product.config(CONFIG.format(folder=product.work))))
    screen = product.screen(*words, columns=160, rows=50)
    screen.until_shown("1 Runs .*6 Charts")  # before the first frame, the terminal is asked for its background
    screen.keys("6")
    screen.until_shown("6 Charts llm", "nearest existing")
    with OfflineTraining(product.work, "--name", "first", "log 4000 0.005", environ=MEASURED) as first:
        screen.until_shown("6 Charts llm +first", r"from the file, newest row \d+s old", "train/loss +2.", "val/loss")
        screen.until_shown(r"step \d,\d\d\d")
        found = product.snapshot(*words)["runs"][0]
        assert found["wandb_file"]["rows"] > 500
        assert found["wandb_file"]["name"] == "first"
        assert found["wandb_file"]["latest"]["train/learning_rate"] == 1e-4
        assert (found["verdict"], found["wandb"]["id"]) == ("healthy", None)
        assert found["step"] > 500, "the counter of the trainer"
        assert first.wait() == 0
    screen.until_shown(r"step 4,399 +exit code 0")
    screen.keys("66/system\r")
    screen.until_shown("system/cpu  ", "system/memory_percent  ", r"/system +\d of \d+")
    screen.keys("\x1b")
    screen.until_shown("train/loss  ")
    screen.keys("v" * 3)
    screen.until_shown(
        "settings and latest values", r"batch +256", r"SETTINGS \(\d\)", r"train/learning_rate +1\.00e-04"
    )
    screen.keys("v")
    screen.until_shown("train/loss  2")
    with OfflineTraining(product.work, "--name", "second", "log 300", "exit 1") as second:
        assert second.wait() == 1
    screen.until_shown("6 Charts llm +second", r"step 329 +exit code 1")
    screen.keys("i")
    screen.until_shown(r"train/loss +2\.\d+ ", r"step \d,\d+|step \d+  \d\d:\d\d:\d\d", "a first")
    screen.keys("\x1b")
    names = sorted(path.name for path in (product.work / "wandb").glob("offline-run-*"))
    expected = [(f"llm/wandb-file/{name}", step, True) for name, step in zip(names, (4_000, 300), strict=True)]
    until(lambda: sorted(recorded(product)) == expected, "both attempts are in the ledger, with their ends")
    shutil.rmtree(product.work / "wandb")
    screen.until_shown("nearest", "train/loss", "step 329")
    assert screen.leave() < QUICK
    done = product.run("check", *words)
    assert "W&B files of llm" in done.stdout
