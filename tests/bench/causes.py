"""How often the cause of a failed run is right, beside GPUAlert. Run: python -m tests.bench.causes [FILE]

FILE has one labelled log a line (id, cause, also_right, exit_code, log); without it, ../shared/data/failures_dev.jsonl.
The logs are split in two halves by a hash of their id. The rules were first written from one half; the other half is
measured here. GPUAlert (PyPI gpualert) is installed into a temporary environment, and its labels are mapped generously.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.bench.program import run_program
from tests.trainmon.analysis.causes.logs import captured
from trainmon.analysis.causes.classify import classify
from trainmon.cli.commands import classify as command
from trainmon.model import CauseFacts, LogExcerpt

FILE = Path(__file__).parents[3] / "shared" / "data" / "failures_dev.jsonl"
GOAL = 0.90
GOAL_MS = 100.0
"""CPU time of the first answer about a log of 1 GB."""
PARENTS = {
    "device-assert": "cuda-illegal-access", "cuda-error": "cuda-illegal-access", "kill-switch": "cancelled-by-user",
    "quota": "disk-full", "inodes-full": "disk-full", "config-error": "import-error", "dataloader-worker": "data-error",
    "checkpoint-corrupt": "storage-io", **dict.fromkeys(
        ("missing-file", "permission", "assertion", "device-mismatch"), "python-exception",
    ),
}  # fmt: skip
"""The classes of the labelled logs are coarser than ours."""
CODE = {"python-exception", "assertion", "evaluator", "data-error"}
GPUALERT: Mapping[str, set[str]] = {
    "GPU out-of-memory": {"cuda-oom"},
    "NCCL": {"nccl-timeout", "nccl-network", "rendezvous"},
    "CUDA runtime": {"cuda-illegal-access", "device-assert", "cuda-error", "gpu-hardware", "driver-mismatch"},
    "System out-of-memory": {"host-oom"},
    "Segmentation": {"segfault"},
    "File not found": {"missing-file", "data-error", "import-error", "config-error", "python-exception"},
    "Permission": {"permission", "python-exception"},
    "Missing Python module": {"import-error"},
    "Division": CODE,
    "device": {"device-mismatch", "python-exception"},
    "NaN": {"diverged"},
    "Killed": {"host-oom", "cancelled-by-user"},
    "OOM": {"host-oom"},
    "Assertion": CODE,
    "Runtime": {*CODE, "rendezvous", "storage-io", "checkpoint-mismatch"},
    "traceback": {*CODE, "storage-io", "checkpoint-mismatch", "network-or-auth", "disk-full", "cancelled-by-user"},
    "Traceback": {*CODE, "storage-io", "checkpoint-mismatch", "network-or-auth", "disk-full", "cancelled-by-user"},
    "": {"completed"},
}
"""The causes that a label of GPUAlert may mean."""
ASK = """
import json, sys
from gpualert.parse_errors import parse_errors
for line in sys.stdin:
    row = json.loads(line)
    said = parse_errors(stdout="", stderr=row["log"], exit_code=row.get("exit_code") or 0)
    print(json.dumps((said or "").strip().split("\\n")[0]))
"""


def held_out(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if hashlib.sha256(row["id"].encode()).digest()[0] % 2]


def ours(row: Mapping[str, Any]) -> set[str]:
    facts = CauseFacts(log=(LogExcerpt(text=row["log"]),), exit_code=row.get("exit_code"))
    return {classify(facts).cause}


def gpualert(rows: Sequence[Mapping[str, Any]]) -> list[set[str]]:
    """What its published rules say, in our causes."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-q", "gpualert"], check=True, stderr=subprocess.DEVNULL)
        asked = "".join(json.dumps(row) + "\n" for row in rows)
        done = subprocess.run([python, "-c", ASK], input=asked, stdout=subprocess.PIPE, text=True, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return [next(causes for label, causes in GPUALERT.items() if label in one or not label) for one in said]


def scores(rows: Sequence[Mapping[str, Any]], found: Sequence[set[str]]) -> dict[str, tuple[float, float, float]]:
    """Precision, recall and F1 of each class. A finer name that is right too counts as right."""
    hits, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for row, causes in zip(rows, found, strict=True):
        if causes & {row["cause"], *row.get("also_right", ())}:
            hits[row["cause"]] += 1
        else:
            missed[row["cause"]] += 1
            wrong[min(PARENTS.get(cause, cause) for cause in causes)] += 1
    return {
        name: (
            hits[name] / max(1, hits[name] + wrong[name]),
            hits[name] / (hits[name] + missed[name]),
            2 * hits[name] / (2 * hits[name] + wrong[name] + missed[name]),
        )
        for name in sorted({row["cause"] for row in rows})
    }


def macro(scored: Mapping[str, tuple[float, float, float]]) -> float:
    return sum(f1 for _, _, f1 in scored.values()) / len(scored)


def big() -> tuple[float, float]:
    """Milliseconds that `classify` takes for a log of 1 GB: the first call compiles its patterns."""
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(b"".join(b"step %d loss 2.31 lr 3e-4 grad_norm 0.9\n" % step for step in range(5_000)))
        file.seek(10**9)
        file.write(b"".join(b"step %d loss 2.11 lr 3e-4 grad_norm 0.9\n" % step for step in range(10_000)))
        file.write(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
        file.flush()
        first, second = (_timed(file.name) for _ in range(2))
    return first, second


def _timed(name: str) -> float:
    started = time.process_time()
    result = CliRunner().invoke(command, [name])
    assert "cuda-oom" in result.output, result.output
    return (time.process_time() - started) * 1e3


def main() -> None:
    first, second = big()
    rows = held_out(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
    started = time.process_time()
    found = [ours(row) for row in rows]
    seconds = time.process_time() - started
    our, their = scores(rows, found), scores(rows, gpualert(rows))
    counted = Counter(row["cause"] for row in rows)
    print(f"{'class':<22}{'logs':>5}{'precision':>11}{'recall':>8}{'F1':>6}{'GPUAlert F1':>13}")
    for name, (precision, recall, f1) in our.items():
        print(f"{name:<22}{counted[name]:>5}{precision:>11.2f}{recall:>8.2f}{f1:>6.2f}{their[name][2]:>13.2f}")
    print(f"{'macro-F1':<22}{len(rows):>5}{macro(our):>25.2f}{macro(their):>13.2f}   (goal: {GOAL:.2f})")
    again = [
        {"cause": log.cause, "also_right": log.also_right, "log": log.log, "exit_code": log.exit_code}
        for log in captured()
    ]
    print(f"tests/captured/failures, which the rules were fixed with: {macro(scores(again, [*map(ours, again)])):.2f}")
    print(f"{seconds / len(rows) * 1e3:.1f} ms a log")
    print(
        f"a file of 1 GB: {first:.0f} ms of CPU time (goal: {GOAL_MS:.0f}), and {second:.0f} ms with compiled patterns"
    )
    if macro(our) < GOAL or first > GOAL_MS:
        raise SystemExit(1)


if __name__ == "__main__":
    run_program(main)
