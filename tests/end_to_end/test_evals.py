"""A real file of results that grows while the dashboard runs: the run's screen."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.end_to_end.product import Cluster, Product, step_line


def test_a_result_reaches_the_screen_of_its_run(product: Product, cluster: Callable[..., Cluster]) -> None:
    cluster(1)
    log, results = product.work / "train.log", product.work / "evals.jsonl"
    log.write_text("".join(step_line(step) for step in (10, 20, 30)))
    config = product.config(
        f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n[[run]]\nname = "llm"\nlog = "{log}"\ncheckpoints = '
        f'"{product.work}"\n[[eval]]\nrun = "llm"\nresults = "{results}"\n'
    )
    saved = product.work / "iter_0000020"
    saved.mkdir()
    for name in ("metadata.json", ".metadata", "common.pt", "__0_0.distcp"):
        (saved / name).write_text("x" * 1000)
    (product.work / "latest_checkpointed_iteration.txt").write_text("20")
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
