"""Kills in numbers: `python -m tests.bench.chaos [KILLS] [SEED]` (500 and 1, if nothing else is said).

Real processes are killed at seeded points between finding something and having marked it as told, while their receivers
on loopback answer well, 429, 500, 503, never, half, or die as they took it. Printed: kills, notices, what was lost (0),
and what came again (at most one message a crash and channel).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos.story import Outcome, Story, story

DAY = 86_400.0


def plainly(scene: Story, kills: int) -> None:
    scene.lose_lives(kills)


def on_a_network(scene: Story, kills: int) -> None:
    scene.spec = scene.changed(is_network=True)
    scene.lose_lives(kills)


def with_jumping_clocks(scene: Story, kills: int) -> None:
    for number in range(kills):
        scene.lose_lives(1, shift=(0.0, 3 * DAY, -3 * DAY, 0.0, -30 * DAY, 30 * DAY)[number % 6])


def with_a_full_disk(scene: Story, kills: int) -> None:
    """Every third life finds no room in the ledger: what it tells directly it cannot mark."""
    scene.lose_lives(2)
    for number in range(kills - 2):
        ((pages,),) = scene.rows("PRAGMA page_count")
        scene.lose_lives(1, pages=0 if number % 3 else int(str(pages)))


def in_an_outage(scene: Story, kills: int) -> None:
    scene.lose_lives_in_an_outage(kills)


Part = tuple[str, Callable[[Story, int], None], float, str]
PARTS: tuple[Part, ...] = (
    ("plain", plainly, 0.5, ""),
    ("with mail (apprise)", plainly, 0.1, "mail"),
    ("a channel down, a fallback", in_an_outage, 0.1, "fallback"),
    ("on a network file system", on_a_network, 0.1, ""),
    ("clocks that jump", with_jumping_clocks, 0.1, ""),
    ("full disk", with_a_full_disk, 0.1, ""),
)
"""Name, what happens, its share of the kills, and what is sent by as well."""

LIVES_A_STORY = 60
"""So many on one ledger; then a new one is begun, so that what is told stays within what is looked at."""


def run(part: Part, kills: int, seed: int) -> Outcome:
    _, happen, _, besides = part
    with (
        tempfile.TemporaryDirectory(prefix="trainmon-chaos-") as directory,
        story(Path(directory), seed, mail=besides == "mail", fallback=besides == "fallback") as scene,
    ):
        happen(scene, kills)
        return scene.end()


def printed(name: str, outcomes: list[Outcome], seconds: float) -> Outcome:
    """A line of the table; all of them together."""
    total = Outcome(
        kills=sum(one.kills for one in outcomes),
        points=sum((one.points for one in outcomes), Counter()),
        answers=sum((one.answers for one in outcomes), Counter()),
        notices=sum(one.notices for one in outcomes),
        deliveries=sum(one.deliveries for one in outcomes),
        lost=[lost for one in outcomes for lost in one.lost],
        copies=sum((one.copies for one in outcomes), Counter()),
        most_copies_a_crash=max(one.most_copies_a_crash for one in outcomes),
    )
    copies = ", ".join(f"{channel} {count}" for channel, count in sorted(total.copies.items()) if count) or "none"
    print(
        f"{name:<26} {total.kills:>5} kills {total.notices:>6} notices {total.deliveries:>6} sent   "
        f"lost {len(total.lost)}   again {copies} (at most {total.most_copies_a_crash} a crash and channel)   "
        f"{seconds:.0f} s"
    )
    for lost in total.lost:
        print(f"    lost: {lost}")
    return total


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    totals, began = [], time.monotonic()
    for part in PARTS:
        started, outcomes, left = time.monotonic(), [], max(3, round(kills * part[2]))
        while left > 0:
            outcomes.append(run(part, min(left, LIVES_A_STORY), seed))
            left, seed = left - LIVES_A_STORY, seed + 1
        totals.append(printed(part[0], outcomes, time.monotonic() - started))
    print()
    total = printed("all", totals, time.monotonic() - began)
    print("killed:", ", ".join(f"{count} {place}" for place, count in total.points.most_common(40)))
    print("receivers answered:", ", ".join(f"{count} {how}" for how, count in total.answers.most_common()))
    return 1 if total.lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
