"""A real file of results that grows while the dashboard runs: the run's screen, and the attempt without Slurm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.product import PROGRAM, Cluster, Product, environment, step_line
from tests.lab.daemons import until


def save(folder: Path, step: int) -> None:
    """A checkpoint of Megatron."""
    saved = folder / f"iter_{step:07d}"
    saved.mkdir()
    for name in ("metadata.json", ".metadata", "common.pt", "__0_0.distcp"):
        (saved / name).write_text("x" * 1000)
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))


def test_a_result_reaches_the_screen_of_its_run(product: Product, cluster: Callable[..., Cluster]) -> None:
    cluster(1)
    log, results = product.work / "train.log", product.work / "evals.jsonl"
    log.write_text("".join(step_line(step) for step in (10, 20, 30)))
    config = product.config(
        f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n[[run]]\nname = "llm"\nlog = "{log}"\ncheckpoints = '
        f'"{product.work}"\n[[eval]]\nrun = "llm"\nresults = "{results}"\n'
    )
    save(product.work, 20)
    screen = product.screen("--config", str(config), columns=160)
    screen.until_line("llm", r"iteration|\b30\b")
    screen.keys("\r")
    screen.until_shown(r"evaluated +no result", "evals.jsonl")
    with results.open("a") as file:
        file.write(json.dumps({"step": 10, "evaluator": "lm-eval", "results": {"acc": 0.25}}) + "\n")
    screen.until_shown(r"evaluated +step 10: acc 0.25")
    with results.open("a") as file:
        file.write(json.dumps({"step": 20, "evaluator": "lm-eval", "results": {"acc": 0.71}}) + "\n")
    screen.until_shown(r"evaluated +step 20: acc 0.71")


def test_without_slurm_a_run_is_explained_soon_with_the_results_beside_its_checkpoints(
    product: Product, cluster: Callable[..., Cluster]
) -> None:
    cluster(1)
    log = product.work / "train.log"
    log.write_text("".join(step_line(step) for step in (10, 20, 30)))
    save(product.work, 20)
    run = f'name = "llm"\nlog = "{log}"\ncheckpoints = "{product.work}"\n'
    config = product.config(f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n[[run]]\n{run}')
    screen = product.screen("--config", str(config), columns=160, rows=60)
    screen.until_line("llm", r"iteration|\b30\b")
    until(
        lambda: explain(product).returncode == 0, "an explanation", 45
    )  # a Slurm that may be there is awaited for 60 s
    screen.keys("\r")
    screen.until_shown("step 20 committed")
    assert "evals.jsonl" not in screen.text()
    with (product.work / "evals.jsonl").open("a") as file:
        file.write(json.dumps({"step": 20, "evaluator": "lm-eval", "results": {"acc": 0.71}}) + "\n")
    screen.until_shown(r"evaluated +step 20: acc 0.71")


def explain(product: Product) -> subprocess.CompletedProcess[str]:
    """`trainmon-tui explain llm` beside the dashboard."""
    env = environment(product.home)
    return subprocess.run([PROGRAM, "explain", "llm"], env=env, cwd=product.work, capture_output=True, text=True)
