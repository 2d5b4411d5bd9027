"""What reading a line of an unlearnt log costs: python -m tests.bench.log_lines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

from tests.bench.program import run_program
from tests.bench.table import status
from tests.trainmon.analysis.log_formats.test_learned import HOSTILE, LOGS, NOTHING_LEARNED, NOTHING_READ
from tests.trainmon.engine.reducers.test_reduce import RUN, chunk, reading_of
from tests.trainmon.engine.test_log_curves import MEGATRON
from trainmon.analysis.log_formats import read_line
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import RunsChanged, State

REPEATS = 20
GOAL_US = 10.0
"""For an ordinary line."""
ORDINARY = (
    "gpu-003:88210:88544 [2] NCCL INFO Channel 05/0 : 2[2] -> 10[2] [send] via NET/IB/2/GDRDMA",
    "gpu-003:88210:88544 [2] NCCL INFO comm 0x55d0c1 rank 2 nranks 64 cudaDev 2 nvmlDev 2 busId 53000 - Init COMPLETE",
    "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py:5476: UserWarning: nested tensors are a prototype",
    "  warnings.warn(",
    '2026-03-02 11:02:33 - urllib3.connectionpool - DEBUG - https://api.example.org:443 "POST /v1 HTTP/1.1" 200 None',
    "Traceback (most recent call last):",
    '  File "/home/ann/llm/model/attention.py", line 211, in forward',
    "    return self.proj(out.transpose(1, 2).contiguous().view(b, t, c))",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
    "[rank3]:[W302 11:02:35.514 ProcessGroupNCCL.cpp:1250] Warning: process group has NOT been destroyed",
    "slurmstepd: error: *** JOB 418220 ON gpu-003 CANCELLED AT 2026-03-02T11:02:36 DUE TO TIME LIMIT ***",
    "wandb: Syncing run eager-hill-12",
    "",
)
"""Lines between the steps of any log."""
MEGABYTE = 1 << 20


def microseconds(line: str) -> float:
    """The least time for a line, in an unlearnt log."""

    def once() -> float:
        begun = time.perf_counter()
        read_line(line, NOTHING_READ, NOTHING_LEARNED, 0.0)
        return (time.perf_counter() - begun) * 1e6

    return min(once() for _ in range(REPEATS))


def reduced() -> float:
    """The least time for a step line of Megatron in the reducer, with its curves: of 200 at a time."""
    state, spent = reduce(State(), (RunsChanged((RUN,)),), 0.0), list[float]()
    for at in range(1, REPEATS + 1):
        lines = [MEGATRON.format(step % 60, step, 3.0 - step / 1e5, 0) for step in range(200 * at, 200 * at + 200)]
        begun = time.process_time()
        state = reduce(state, (reading_of(chunk(*lines, t=float(at), mtime=float(at)), at=float(at)),), float(at))
        spent.append((time.process_time() - begun) * 1e6 / len(lines))
    return min(spent)


def rows(ordinary: float) -> Iterable[tuple[str, str]]:
    """What is measured, and the result."""
    yield "an ordinary line, median", f"{ordinary:.1f} µs (goal: {GOAL_US:g})"
    near = [microseconds(line) for log in LOGS if log.get("negative") for line in log["lines"]]
    steps = [microseconds(log["lines"][-1]) for log in LOGS if not log.get("negative")]
    yield "a line that only looks like a step, median", f"{statistics.median(near):.0f} µs"
    yield "a step line, median", f"{statistics.median(steps):.0f} µs"
    yield "a step line of Megatron, in the reducer", f"{reduced():.0f} µs"
    worst = {text: microseconds(text * (16_000 // len(text))) for text in HOSTILE}
    longest = {text: microseconds(text * (MEGABYTE // len(text))) for text in HOSTILE}
    slowest = max(worst, key=lambda text: worst[text])
    yield f"16,000 characters of {slowest!r}, the worst", f"{worst[slowest] / 1e3:.1f} ms"
    slowest = max(longest, key=lambda text: longest[text])
    yield f"1 MB of {slowest!r}, the worst", f"{longest[slowest] / 1e3:.1f} ms"


def main() -> int:
    ordinary = statistics.median(map(microseconds, ORDINARY))
    for what, result in rows(ordinary):
        print(f"{what}: {result}")
    return status((ordinary, GOAL_US))


if __name__ == "__main__":
    run_program(main)
