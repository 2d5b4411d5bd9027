"""trainmon_hooks, what a step costs: alone, on a slow mount, and with two ranks that agree over gloo.
Run: python -m tests.bench.hooks

PyTorch is that of tests/lab/torchrun.py."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.program import run_program
from tests.bench.table import show
from tests.lab.hung_mount import HungMount
from tests.lab.torchrun import torch_python
from trainmon import job
from trainmon.job.trainmon_hooks import Hooks

ALONE_US = 40.0
SHARE = 0.01
STEPS = 50_000
LONG_STEPS = 15
SLOW_MS = 500
SLOW_STEPS = 1000

RANK = f"""
import sys, time
sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
from trainmon_hooks import Hooks
dist.init_process_group("gloo")
hooks = Hooks(kill=sys.argv[1] + "/kill", save=sys.argv[1] + "/save")
times = []
for step in range({LONG_STEPS}):
    time.sleep(1.0)
    dist.barrier()  # as the gradients of a step do
    began = time.perf_counter()
    hooks.step(step, 1.0)
    times.append(time.perf_counter() - began)
if dist.get_rank() == 0:
    print(sorted(times)[len(times) // 2])
"""


def alone(folder: Path) -> float:
    """Seconds of a step of one rank that looks at both switches, writes its status and watches for NaN."""
    hooks = Hooks(kill=str(folder / "kill"), save=str(folder / "save"), nan="stop")
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for step in range(STEPS):
            hooks.step(step, 1.0)
        best = min(best, (time.perf_counter() - began) / STEPS)
    hooks.close()
    return best


SLOW = f"""
import sys, time
sys.path.insert(0, sys.argv[1])
from trainmon_hooks import Hooks
hooks = Hooks(kill=sys.argv[1] + "/mount/kill", save=sys.argv[1] + "/mount/save")
times = []
for step in range({SLOW_STEPS}):
    time.sleep(0.01)
    began = time.perf_counter()
    hooks.step(step, 1.0)
    times.append(time.perf_counter() - began)
    if sum(times) > 10:  # of what waits for its files
        break
print(max(times))
"""


def slow(folder: Path) -> float:
    """The longest seconds of a step where each call for a file takes half a second."""
    (folder / "trainmon_hooks.py").write_text(job.hooks_module())
    mount = HungMount.at(folder / "mount", folder)
    argv, environ = [sys.executable, "-c", SLOW, str(folder)], mount.env | {"HUNG_MS": str(SLOW_MS)}
    return float(subprocess.check_output(argv, env=environ, text=True, timeout=300))


def agreed(folder: Path) -> float:
    """The median seconds of a step of two ranks that agree in each, as steps of a second do."""
    (folder / "trainmon_hooks.py").write_text(job.hooks_module())
    (folder / "rank.py").write_text(RANK)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(folder / "rank.py"), str(folder)]
    argv = [str(torch_python()), *launch]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300, check=True)
    return float(done.stdout.split()[-1])


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        one, longest, two = alone(Path(temporary)), slow(Path(temporary)), agreed(Path(temporary))
    show(
        "a call of `step`",
        ["ranks", "time", "goal"],
        [
            ["1", f"{one * 1e6:.1f} µs", f"{ALONE_US:g} µs"],
            [f"1, {SLOW_MS} ms for each stat: the longest", f"{longest * 1e3:.2f} ms", f"{SLOW_MS / 10:g} ms"],
            ["2, gloo, steps of 1 s", f"{two * 1e3:.2f} ms = {two:.2%} of the step", f"{SHARE:.0%}"],
        ],
    )
    return 0 if one * 1e6 <= ALONE_US and longest * 1e4 <= SLOW_MS and two <= SHARE else 1


if __name__ == "__main__":
    run_program(main)
