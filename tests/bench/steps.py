"""What a log line costs: microseconds for each format's lines and for others'. Run: python -m tests.bench.steps"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from tests.bench.program import run_program
from tests.bench.table import status
from tests.trainmon.analysis.log_formats.lines import examples, innocents
from trainmon.analysis.log_formats import FORMATS, KEEP, parse_line
from trainmon.lib import clean, scrub

SECONDS = 0.1
LINES_PER_S = 1_000
PERCENT = 2.0
"""The goal for that many lines a second, of a core."""


def microseconds(work: Callable[[str], object], lines: Sequence[str]) -> float:
    """The best of five, for one line."""
    best = float("inf")
    for _ in range(5):
        count, started = 0, time.process_time()
        while time.process_time() - started < SECONDS / 5:
            for line in lines:
                work(line)
            count += len(lines)
        best = min(best, (time.process_time() - started) / count)
    return best * 1e6


def main() -> int:
    print(f"{'lines':<24}{'parse':>8}{'preferred':>11}{'clean+scrub':>13}{'keep':>8}   µs a line")
    keep = re.compile(KEEP)
    for name in [*(one.name for one in FORMATS), "other people's text"]:
        lines = innocents() if name not in {one.name for one in FORMATS} else [line for line, _ in examples(name)]

        def preferred(line: str, name: str = name) -> object:
            return parse_line(line, FORMATS, prefer=name)

        costs = (
            microseconds(parse_line, lines),
            microseconds(preferred, lines),
            microseconds(lambda line: scrub(clean(line)), lines),
            microseconds(keep.search, lines),
        )
        print(f"{name:<24}{costs[0]:>8.1f}{costs[1]:>11.1f}{costs[2]:>13.1f}{costs[3]:>8.1f}")
    share = microseconds(parse_line, [line for one in FORMATS for line, _ in examples(one.name)]) * LINES_PER_S / 1e4
    print(f"{LINES_PER_S} step lines a second: {share:.2f}% of a core (goal: {PERCENT:g}%)")
    return status((share, PERCENT))


if __name__ == "__main__":
    run_program(main)
