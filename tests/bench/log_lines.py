"""What reading a log line costs: lines that are no steps, steps, and the worst lines that we can think of.

python -m tests.bench log_lines
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

from tests.trainmon.analysis.log_formats.test_learned import HOSTILE, LOGS, NOTHING_LEARNED, NOTHING_READ
from trainmon.analysis.log_formats import read_line

REPEATS = 20
MEGABYTE = 1 << 20


def microseconds(line: str) -> float:
    """The least time for a line, in an unlearnt log."""

    def once() -> float:
        begun = time.perf_counter()
        read_line(line, NOTHING_READ, NOTHING_LEARNED, 0.0)
        return (time.perf_counter() - begun) * 1e6

    return min(once() for _ in range(REPEATS))


def rows() -> Iterable[tuple[str, str]]:
    """What is measured, and the result."""
    no_steps = [microseconds(line) for log in LOGS if log.get("negative") for line in log["lines"]]
    steps = [microseconds(log["lines"][-1]) for log in LOGS if not log.get("negative")]
    yield "a line that is no step, median", f"{statistics.median(no_steps):.1f} µs"
    yield "a step line, median", f"{statistics.median(steps):.0f} µs"
    worst = {text: microseconds(text * (16_000 // len(text))) for text in HOSTILE}
    longest = {text: microseconds(text * (MEGABYTE // len(text))) for text in HOSTILE}
    slowest = max(worst, key=lambda text: worst[text])
    yield f"16,000 characters of {slowest!r}, the worst", f"{worst[slowest] / 1e3:.1f} ms"
    slowest = max(longest, key=lambda text: longest[text])
    yield f"1 MB of {slowest!r}, the worst", f"{longest[slowest] / 1e3:.1f} ms"


if __name__ == "__main__":
    for what, result in rows():
        print(f"{what}: {result}")
