"""What the GPU grid costs: 256 nodes × 8 GPUs, a State every two seconds, 5% of the cells changing.

Run: python -m tests.bench.grid
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterator

from msgspec.structs import replace

from tests.bench.program import run_program
from tests.tui.apps import Alone
from tests.tui.states import worlds
from trainmon.model import Node, State
from tui.panes import GpusPane

NODES, GPUS, CHANGING, ROUNDS = 256, 8, 0.05, 60
REACH_MS = 10.0


def a_moment_later(state: State, chance: random.Random) -> State:
    """Every node was read again, so every value is new; few of them differ from the ones before."""
    nodes: dict[str, Node] = {}
    for name, node in state.nodes.items():
        gpus = tuple(
            replace(gpu, temperature_c=chance.randrange(55, 75) if chance.random() < CHANGING else gpu.temperature_c)
            for gpu in node.gpus
        )
        nodes[name] = replace(node, gpus=gpus, gpus_at=state.at + 2.0)
    sources = {name: replace(source, answered_at=state.at + 2.0) for name, source in state.sources.items()}
    return replace(state, at=state.at + 2.0, nodes=nodes, sources=sources)


def states() -> Iterator[State]:
    chance = random.Random(7)
    state = worlds.calm(NODES, GPUS)
    while True:
        yield state
        state = a_moment_later(state, chance)


async def measure(width: int, height: int) -> tuple[list[float], list[float]]:
    """Milliseconds of `show` (survey, rows, diff), and of `show` and the painting after it."""
    shows, paints = [], []
    pane = GpusPane(id="gpus")
    async with Alone(pane).run_test(size=(width, height)) as pilot:
        for count, state in zip(range(ROUNDS), states(), strict=False):
            begin = time.thread_time()
            pane.show(state)
            shown = time.thread_time()
            await pilot.pause()
            if count > 2:
                shows.append(1000 * (shown - begin))
                paints.append(1000 * (time.thread_time() - begin))
    return shows, paints


def main() -> int:
    print(f"{NODES} × {GPUS}, {CHANGING:.0%} of the cells change, {ROUNDS} rounds; ms of CPU a State")
    print(f"{'screen':>10} {'show median':>12} {'show worst':>11} {'with paint':>11} {'goal':>6}")
    missed = False
    for width, height in ((80, 24), (120, 40), (200, 60)):
        shows, paints = asyncio.run(measure(width, height))
        middle = statistics.median(shows)
        missed |= middle > REACH_MS
        print(
            f"{width}x{height:<6} {middle:12.1f} {max(shows):11.1f} {statistics.median(paints):11.1f} {REACH_MS:6.0f}"
        )
    return int(missed)


if __name__ == "__main__":
    run_program(main)
