"""What 100,000 points of metric files cost, beside TensorBoard and LEET: `python -m tests.bench.metric_files [ROWS]`.

TensorBoard's own writer writes one event file, and W&B's client a `.wandb` file; the same rows are written as CSV, as
JSON lines and as the state of Hugging Face's Trainer. Each file is read by a process of its own, the event file also by
TensorBoard's reader. LEET reads only `.wandb` files, and has no reader without a screen: it and the dashboard are
measured until their screens show the last step, each with all its processes.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.first_curve import ROUNDS, both
from tests.bench.program import run_program
from tests.bench.table import ratio, show, status
from tests.lab.torchrun import tensorboard_python

ROWS = 100_000
TITLES = {
    "tb": "event file", "wandb": ".wandb file", "csv": "metrics.csv", "lines": "metrics.jsonl",
    "checkpoint-1": "trainer_state.json",
}  # fmt: skip
"""The folder of each file, and its name."""
RATIO, MEMORY_MIB = 1.0, 40.0
"""The goal: of TensorBoard's time, and all memory of the process that reads an event file."""
LEET_TIME, LEET_MEMORY = 1.0, 1.0
"""The goal: of LEET's. Who waits for the last value waits no longer than there, although LEET is one compiled program
that reads a file, and ours starts a probe that reads 64 KiB at a time at the lowest priority, as beside a training."""

WRITE = """
import math, sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step in range(int(sys.argv[2])):
    value = Summary.Value(tag="train/loss", simple_value=2 + math.sin(step))
    writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=[value])))
writer.close()
"""

WRITE_WANDB = """
import math, sys
import wandb
run = wandb.init(mode="offline", dir=sys.argv[1], settings=wandb.Settings(x_disable_stats=True, console="off"))
for step in range(int(sys.argv[2])):
    run.log({"train/loss": 2 + math.sin(step)})
run.finish()
"""

COST = """
import resource, sys
spent = resource.getrusage(resource.RUSAGE_SELF)
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(points, spent.ru_utime + spent.ru_stime, peak / 1024, file=sys.stderr)
"""

OURS = """
import sys
sys.path.insert(0, sys.argv[2])
from collectors.probe.files import metric_rows, metrics
metric_rows.SAMPLED_FROM = 1 << 40
metrics.is_on_this_host = lambda *_: True
probe = metrics.MetricFiles({"wandb": [{"id": "llm", "directory": sys.argv[1], "pattern": "loss"}]})
points, more = 0, True
while more:
    lines = [line for _, operation in probe.operations(True) for line in operation()]
    points += sum(len(line.get("points", ())) for line in lines)
    more = lines[-1].get("more")
"""

THEIRS = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1], size_guidance={"tensors": 0, "scalars": 0})
found.Reload()
points = sum(len(found.Scalars(tag)) for tag in found.Tags()["scalars"])
"""


def cost(python: str, code: str, *words: str) -> tuple[float, float, float]:
    """Points, processor seconds with the start of the program, and MiB, of the better one of two times."""
    argv = [python, "-W", "ignore", "-c", code + COST, *words]
    done = [subprocess.run(argv, check=True, stderr=subprocess.PIPE, text=True).stderr for _ in range(2)]
    points, spent, mib = min((tuple(map(float, text.split()[-3:])) for text in done), key=lambda one: one[1])
    return points, spent, mib


def write_texts(folder: Path, rows: int) -> None:
    """The same rows in the other formats."""
    found = [{"step": step, "loss": 2 + math.sin(step)} for step in range(rows)]
    for name in ("csv", "lines", "checkpoint-1"):
        (folder / name).mkdir()
    (folder / "csv" / "metrics.csv").write_text(
        "step,loss\n" + "".join(f"{row['step']},{row['loss']}\n" for row in found)
    )
    (folder / "lines" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    (folder / "checkpoint-1" / "trainer_state.json").write_text(json.dumps({"log_history": found}))


def main() -> int:
    rows, root, peer = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS, str(Path.cwd()), str(tensorboard_python())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder, rows)
        subprocess.run([peer, "-c", WRITE, str(folder / "tb"), str(rows)], check=True, stderr=subprocess.DEVNULL)
        argv = [sys.executable, "-c", WRITE_WANDB, str(folder), str(rows)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = {one: cost(sys.executable, OURS, str(folder / one), root) for one in TITLES}
        theirs = cost(peer, THEIRS, str(folder / "tb"))
        [run] = folder.glob("wandb/offline-run-*")
        config = folder / "c.toml"
        config.write_text(f'[[run]]\nname = "llm"\nwandb_dir = "{folder}/wandb"\n')
        rounds = [both(folder, config, run, rows - 1) for _ in range(ROUNDS)]
    screens = [[statistics.median(one[who][number] for one in rounds) for number in (1, 2)] for who in (0, 1)]
    _, spent, mib = found["tb"]
    show(
        f"{rows:,} points in one file, read from its beginning",
        ("", "points sent", "processor time", "memory"),
        [
            *(
                (TITLES[one], f"{sent:,.0f}", f"{cpu:.2f} s", f"{most:.0f} MiB")
                for one, (sent, cpu, most) in found.items()
            ),
            ("event file, by TensorBoard", f"{theirs[0]:,.0f}", f"{theirs[1]:.2f} s", f"{theirs[2]:.0f} MiB"),
            ("ours beside TensorBoard", "", ratio(spent, theirs[1]), ratio(mib, theirs[2])),
        ],
    )
    (seconds, held), (leet_seconds, leet_held) = screens
    show(
        f"the same {rows:,} points in a .wandb file, until the screen shows the last one, median of {ROUNDS}",
        ("", "ours", "LEET", "ratio", "goal"),
        [
            (
                "from the start",
                f"{seconds:.1f} s",
                f"{leet_seconds:.1f} s",
                ratio(seconds, leet_seconds),
                f"≤ {LEET_TIME:g}x",
            ),
            ("memory", f"{held:.0f} MiB", f"{leet_held:.0f} MiB", ratio(held, leet_held), f"≤ {LEET_MEMORY:g}x"),
        ],
    )
    return status(
        (spent, RATIO * theirs[1]), (mib, MEMORY_MIB), (seconds, LEET_TIME * leet_seconds),
        (held, LEET_MEMORY * leet_held),
    )  # fmt: skip


if __name__ == "__main__":
    run_program(main)
