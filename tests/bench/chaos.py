"""Kills in numbers: `python -m tests.bench.chaos [KILLS] [SEED]` (500 and 1, if nothing else is said).
The matrix of receivers alone: `python -m tests.bench.chaos matrix [SECONDS] [CELL...]` (240, and all cells).

Real processes are killed at seeded points between finding something and having marked it as told, while their receivers
on loopback answer well, 429, 500, 503, never, half, or die as they took it. Printed: kills, notices, what was lost (0),
and what came again (at most one message a crash and channel).

The matrix: ways in which a receiver fails, by ways in which the program is killed, in real time. In each cell there is
something new for so many SECONDS, every other one critical. Printed: how often the program was killed and each channel
met the fault of its receiver, and how long after something was wrong the fallback had it. A cell that met no fault has
failed. With fewer than 60 SECONDS all are critical, and it takes two minutes at most.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import median
from threading import Thread
from typing import NamedTuple

from msgspec.structs import replace

from tests.bench.program import run_program
from tests.chaos.story import USUAL_POINTS, Outcome, Story, story
from tests.lab.receiver import CLOSE, DIE, HANG, Answer, Receiver, status

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


# ---- the matrix of receivers -----------------------------------------------------------------------------------------

PRIMARIES: dict[str, Answer] = {
    "500": status(500),
    "429": status(429, retry_after="99999999"),
    "hangs": HANG,
    "closes on accept": CLOSE,
    "closes after the body": DIE,
}
LIVES: dict[str, Callable[[Random], float]] = {
    "a crash every 8 s": lambda rng: 8.0,
    "random lives": lambda rng: min(120.0, 0.5 + rng.expovariate(1 / 12)),
}
"""How long a life lasts. Every third random one ends sooner: at a point after something was found."""
LIMITS = {"critical": 60.0, "others": 300.0}
NEWS_EVERY = 9.0


class Cell(NamedTuple):
    """What came of one cell of the matrix."""

    name: str
    kills: int
    met: tuple[int, ...]
    """How often each failing receiver showed its fault."""
    waits: dict[str, list[float]]
    """By severity: the seconds from when something was wrong until the fallback had the message."""
    wrong: list[str]
    """What was lost, or came too late; a fault that was not met."""


def cell(primary: str, lives: str, seconds: float, seed: int) -> Cell:
    """One program after another, each killed, on one ledger. Both channels fail in the same way; one fallback works."""
    rng, kills, began, written = Random(seed), 0, time.time(), dict[str, float]()
    all_names = [f"f{2 * one + 1 if seconds < 60 else one:05d}" for one in range(int(seconds / NEWS_EVERY) + 1)]
    with (
        tempfile.TemporaryDirectory(prefix="trainmon-chaos-") as directory,
        story(Path(directory), seed, fallback=True) as scene,
    ):
        scene.topic.always(PRIMARIES[primary])
        scene.hook.always(PRIMARIES[primary])

        def happen() -> None:
            for name in all_names:
                written[name] = time.time()
                (new := scene.faults.with_suffix(".new")).write_text(" ".join(written))
                new.replace(scene.faults)
                time.sleep(NEWS_EVERY)

        news = Thread(target=happen)
        news.start()
        had: dict[str, float] = {}
        longest = LIMITS["critical" if seconds < 60 else "others"] + 30.0
        while news.is_alive() or (len(had) < len(all_names) and time.time() - began < seconds + longest):
            is_sudden = lives == "random lives" and rng.random() < 1 / 3
            kill_at = rng.randint(1, USUAL_POINTS) if is_sudden else 0
            scene.nursery.live(replace(scene.spec, seconds=LIVES[lives](rng), kill_at=kill_at))
            kills, had = kills + 1, delivered(scene, all_names)
        met = tuple(faults_met(one, PRIMARIES[primary]) for one in (scene.topic, scene.hook))
    by_severity: dict[str, list[float]] = {"critical": [], "others": []}
    wrong = [] if all(met) else [f"the fault of a receiver was not met: {met}"]
    for name in all_names:
        severity = "critical" if int(name[1:]) % 2 else "others"
        wait = had[name] - written[name] if name in had else None
        if wait is None or wait > LIMITS[severity]:
            wrong.append(f"{name} ({severity}): {'lost' if wait is None else f'{wait:.0f} s'}")
        by_severity[severity] += [] if wait is None else [wait]
    return Cell(f"{primary}, {lives}", kills, met, by_severity, wrong)


def faults_met(receiver: Receiver, fault: Answer) -> int:
    """How many messages a receiver failed in this way; none if it took one and said so."""
    if fault.how == "close":
        return 0 if receiver.requests else receiver.hung_up
    return 0 if fault.how == "well" or (receiver.taken and fault.how != "die") else len(receiver.requests)


def delivered(scene: Story, names: list[str]) -> dict[str, float]:
    """By alert: when the fallback had it first."""
    assert scene.fallback is not None
    had: dict[str, float] = {}
    for request in list(scene.fallback.taken):
        for name in names:
            if name in request.body.decode():
                had.setdefault(name, request.at)
    return had


def matrix(seconds: float, wanted: tuple[str, ...]) -> int:
    """Print a line for each cell. The cells wait most of their time, so all run at once."""
    pairs = [(primary, lives) for lives in LIVES for primary in PRIMARIES]
    names = {*PRIMARIES, *(", ".join(pair) for pair in pairs)}
    if unknown := [name for name in wanted if name not in names]:
        raise SystemExit(f"no such cell: {'; '.join(unknown)}. There are: {'; '.join(sorted(names))}")
    chosen = [pair for pair in pairs if not wanted or ", ".join(pair) in wanted or pair[0] in wanted]
    began, wrong, everything = time.monotonic(), list[str](), dict[str, list[float]]()
    with ThreadPoolExecutor(len(pairs)) as pool:
        results = [pool.submit(cell, *pair, seconds, 1 + number) for number, pair in enumerate(chosen)]
        for result in results:
            one = result.result()
            wrong += one.wrong
            lost = sum("lost" in each for each in one.wrong)
            for severity, times in one.waits.items():
                everything.setdefault(severity, []).extend(times)
            met = f"faults {one.met[0]} and {one.met[1]}"
            print(f"{one.name:<42} {one.kills:>4} kills   {met}   lost {lost}   {_waited(one.waits)}", flush=True)
            for each in one.wrong:
                print(f"    {each}", flush=True)
    lost = sum("lost" in each for each in wrong)
    print(f"{'all':<42} lost {lost}   late {len(wrong) - lost}   {_waited(everything)}   "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return 1 if wrong else 0


def _waited(times: dict[str, list[float]]) -> str:
    return "   ".join(
        f"{severity}: {len(some)}, median {median(some):.0f} s, worst {max(some):.0f} s"
        for severity, some in times.items()
        if some
    )


def main() -> int:
    if sys.argv[1:2] == ["matrix"]:
        return matrix(float(sys.argv[2]) if len(sys.argv) > 2 else 240.0, tuple(sys.argv[3:]))
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
    print()
    is_wrong = matrix(240.0, ())
    return 1 if total.lost else is_wrong


if __name__ == "__main__":
    run_program(main)
