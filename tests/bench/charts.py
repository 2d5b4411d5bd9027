"""Charts of a history of 100,000 points: the first one after the data has come, and each after one more point.

Run: python -m tests.bench.charts [POINTS]
"""

from __future__ import annotations

import asyncio
import random
import resource
import statistics
import sys
import time

from msgspec.structs import replace

from tests.bench.program import run_program
from tests.bench.table import show
from tests.tui.apps import Alone
from tests.tui.states.wandb_runs import KEYS, NAME, STEP_S, CurveBackend, value, watched
from trainmon.model import Points, State
from tui.charts.chart import Charts, View
from tui.panes import WandbPane

FIRST_MS, UPDATE_MS = 150.0, 20.0
UPDATES = 20
PATHS = tuple(f"team/project/id{number}" for number in (3, 2, 1))
SIZES = ((80, 12), (110, 24), (160, 50))
"""Of a chart alone: in half of a narrow terminal, in a pane, on all of a large screen."""
LOOKS = (
    ("one attempt", View(), PATHS[:1]),
    ("smoothed", View(weight=0.9), PATHS[:1]),
    ("with two before it", View(), PATHS),
    ("log axis", View(log=True), PATHS[:1]),
)


def grow(backend: CurveBackend, path: str, first: int, count: int) -> None:
    """Log all metrics for so many more steps."""
    chance = random.Random(first)
    steps = tuple(float(step) for step in range(first, first + count))
    times = tuple(step * STEP_S for step in steps)
    pieces = {key: Points(steps, times, tuple(value(key, int(step), chance) for step in steps)) for key in KEYS}
    backend.curves.grow(path, pieces, fresh=first == 0)


def one_chart(view: View, width: int, height: int, points: int, paths: tuple[str, ...]) -> tuple[float, list[float]]:
    """Milliseconds of CPU until the chart is there, and of each update."""
    backend = CurveBackend()
    for path in PATHS:
        grow(backend, path, 0, points)
    charts = Charts(backend.curve)

    def drawn() -> float:
        begin = time.thread_time()
        charts.update(paths, KEYS[:1], KEYS[:1])
        charts.draw(view, KEYS[:1], width, height, plain=False)
        return 1000 * (time.thread_time() - begin)

    first, updates = drawn(), []
    for step in range(UPDATES):
        grow(backend, PATHS[0], points + step, 1)
        updates.append(drawn())
    return first, updates


async def whole_pane(width: int, height: int, points: int) -> tuple[float, ...]:
    """Milliseconds of CPU of the whole pane, all attempts of all its metrics: the first turn, the longest and all of
    them until everything is there; update, key, nothing new."""
    backend = CurveBackend()
    for path in PATHS:
        grow(backend, path, 0, points)
    pane = WandbPane(backend, id="wandb")
    shown = watched()
    async with Alone(pane).run_test(size=(width, height)) as pilot:
        await pilot.pause()

        def of(state: State) -> float:
            begin = time.thread_time()
            pane.show(state)
            return 1000 * (time.thread_time() - begin)

        pane.run = NAME
        turns: list[float] = [of(shown)]
        while pane.charts.is_behind:
            turns.append(of(shown))
        updates, keys, idle = [], [], []
        for step in range(UPDATES):
            grow(backend, PATHS[0], points + step, 1)
            shown = watched(points=step + 2)
            updates.append(of(shown))
            idle.append(of(replace(shown, at=shown.at + step)))
            begin = time.thread_time()
            (pane.action_zoom_in if step % 2 else pane.action_whole)()
            keys.append(1000 * (time.thread_time() - begin))
    medians = (statistics.median(took) for took in (updates, keys, idle))
    return turns[0], max(turns), sum(turns), *medians


def main() -> int:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    one_chart(View(), 80, 12, 1_000, PATHS[:1])  # plotext is imported at the first plot, once
    table, missed = [], False
    for name, view, paths in LOOKS:
        for width, height in SIZES:
            first, updates = one_chart(view, width, height, points, paths)
            middle = statistics.median(updates)
            missed |= first > FIRST_MS or middle > UPDATE_MS
            table.append([f"{name}, {width}x{height}", f"{first:.1f}", f"{middle:.1f}", f"{max(updates):.1f}"])
    table.append(["goal", f"{FIRST_MS:.0f}", f"{UPDATE_MS:.0f}", ""])
    show(f"One chart of {points:,} points, ms of CPU", ("chart", "first", "update", "slowest"), table)
    panes = []
    for width, height in ((80, 24), (120, 40), (200, 60)):
        panes.append([f"{width}x{height}", *(f"{took:.1f}" for took in asyncio.run(whole_pane(width, height, points)))])
    show(
        f"The whole pane: {len(KEYS)} metrics of 3 attempts of {points:,} points each, ms of CPU",
        ("pane", "first turn", "longest", "all turns", "update", "a key", "nothing new"),
        panes,
    )
    print(f"\n  resident memory at its highest: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return int(missed)


if __name__ == "__main__":
    run_program(main)
