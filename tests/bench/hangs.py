"""How soon a hang is known, and what of healthy runs looks like one: simulated runs, judged as they are watched.

A run prints, saves, evaluates, ends epochs, collects garbage, is restarted; its log comes in blocks or late, its nodes
do not answer for a while, and its GPUs do what they do then. None of this may be called a stall that the limit of 15
minutes would not call one. Half of the runs hang at the end. The judgement and the memory are the program's own; in
place of the lines of the log, they get the progress that these would make.

Run: python -m tests.bench.hangs [RUNS]
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from math import exp, log
from random import Random
from statistics import median
from typing import Literal, NamedTuple

from msgspec.structs import replace

from tests.bench.table import status
from trainmon.analysis.runs import RunContext, judge
from trainmon.analysis.runs.throughput import gpus as averaged
from trainmon.engine.reducers import runs as reducers
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Seconds, duration
from trainmon.model import SILENT, Gpu, Log, Node, Progress, Run, RunSpec, Source, State

RUNS, SEED = 2_000, 20_261_130
BEGIN = 1_750_000_000.0
GPUS, NODES = 4, ("n1", "n2")
LIMIT_W = 700.0
SLOW: Seconds = 40.0
"""Of a run whose log shows steps more rarely than this, three intervals are longer than two minutes."""

TICK, PAUSED_TICK = 50.0, 5.0
"""Seconds between two looks: while steps come, and in a pause."""

SOON: Seconds = 240.0

Signature = Callable[[Random], list[tuple[float, float]]]
"""The utilization (%) and the share of the power limit of each GPU, at one sample."""


class Pause(NamedTuple):
    """A time without a visible step."""

    kind: str
    lasts: Seconds
    gpus: Signature
    says: Literal["", "eval", "save"] = ""
    """What the log announces."""
    is_unread: bool = False
    """Whether the nodes do not answer meanwhile."""
    is_restart: bool = False


def spread(random: Random, low: float, high: float) -> float:
    """Between the two, as often near the one as near the other by their ratio."""
    return exp(random.uniform(log(low), log(high)))


def working(power: float) -> Signature:
    return lambda random: [(random.uniform(93, 100), power + random.uniform(-0.06, 0.06)) for _ in range(8)]


def idle(random: Random) -> list[tuple[float, float]]:
    return [(random.choice((0.0, 0.0, 1.0, 5.0)), random.uniform(0.1, 0.2)) for _ in range(8)]


def waiting(random: Random) -> list[tuple[float, float]]:
    return [(random.choice((100.0, 100.0, 99.0)), random.uniform(0.17, 0.28)) for _ in range(8)]


def one_idle(random: Random) -> list[tuple[float, float]]:
    return [(random.choice((0.0, 0.0, 3.0)), 0.16), *waiting(random)[1:]]


def one_works(random: Random) -> list[tuple[float, float]]:
    return [(random.uniform(60, 100), random.uniform(0.45, 0.9)), *waiting(random)[1:]]


def generating(share: float) -> Signature:
    """Text or pictures, token by token: as busy as a GPU that waits."""
    return lambda random: [(random.uniform(85, 100), share + random.uniform(-0.02, 0.02)) for _ in range(8)]


class World:
    """One healthy run: its habits, drawn once, and the pauses that they make."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.step_s = spread(random, 0.2, 300.0)
        self.prints_s = min(600.0, self.step_s * random.choice((1, 1, 1, 10, 100)))
        if random.random() < 0.12:
            self.prints_s = max(self.prints_s, spread(random, 30.0, 400.0))  # blocks of a buffer
        self.power = random.uniform(0.25, 0.48) if random.random() < 0.15 else random.uniform(0.52, 0.95)
        self.lasts = random.uniform(3.0, 14.0) * 3600
        self.growth = random.uniform(1.0, 1.06)
        habits: list[tuple[Seconds, Callable[[], Pause]]] = []
        save_s, eval_s, epoch_s = spread(random, 20, 720), spread(random, 30, 1_200), spread(random, 10, 360)
        says_save, says_eval = (random.random() < 0.4 for _ in range(2))
        saver, evaluator = (
            random.choice((one_idle, one_idle, idle)),
            random.choice((working(self.power), one_works, generating(random.uniform(0.36, 0.6)), one_idle)),
        )
        ender, self.saves = random.choice((idle, one_idle)), 0

        def save() -> Pause:
            self.saves += 1
            return Pause("save", min(720.0, save_s * self.growth**self.saves), saver, "save" if says_save else "")

        habits.append((spread(random, 1_200, 4 * 3600), save))
        if random.random() < 0.7:
            habits.append(
                (
                    spread(random, 1_800, 6 * 3600),
                    lambda: Pause(
                        "evaluation", eval_s * random.uniform(0.9, 1.2), evaluator, "eval" if says_eval else ""
                    ),
                )
            )
        if random.random() < 0.4:
            habits.append((spread(random, 3_600, 20 * 3600), lambda: Pause("epoch", epoch_s, ender)))
        habits += [
            (spread(random, 900, 7_200), lambda: Pause("garbage", random.uniform(1, 20), one_idle)),
            (4 * 3600, lambda: Pause("late log", spread(random, 30, 800), working(self.power))),
            (6 * 3600, lambda: Pause("no answer", spread(random, 30, 800), working(self.power), is_unread=True)),
            (6 * 3600, lambda: Pause("data", spread(random, 20, 800), random.choice((idle, one_idle)))),
            (
                9 * 3600,
                lambda: Pause("restart", spread(random, 60, 840), random.choice((idle, one_idle)), is_restart=True),
            ),
        ]
        self.habits = habits

    def pauses(self) -> Iterator[tuple[Seconds, Pause]]:
        """When each begins, after the start of the run; one after another."""
        due = [(every * self.random.uniform(0.5, 1.5), number) for number, (every, _) in enumerate(self.habits)]
        until = 0.0
        yield 0.0, Pause("start", spread(self.random, 20, 800), self.random.choice((idle, one_idle)), is_restart=True)
        while (first := min(due))[0] < self.lasts:
            every, make = self.habits[first[1]]
            pause, begins = make(), max(first[0], until)
            due[due.index(first)] = (begins + every * self.random.uniform(0.95, 1.05), first[1])
            until = begins + pause.lasts
            yield begins, pause


class Watched:
    """One run as the program sees it."""

    def __init__(self, world: World, *, early: bool) -> None:
        self.world = world
        spec = RunSpec(name="llm", cluster="lab", log="/llm.log", nodes=NODES, may_hang_early=early)
        progress = Progress(step=0, at=BEGIN, cadence_s=max(1.0, world.prints_s), format="megatron")
        self.run = Run(spec=spec, log=Log(host="n1", at=BEGIN), progress=progress)
        self.nodes = {name: Node(name=name, cluster="lab") for name in NODES}
        self.step = 0

    def look(
        self, now: float, gpus: list[tuple[float, float]] | None, *, steps: bool, says: Literal["", "eval", "save"] = ""
    ) -> str:
        """One batch of events, and the verdict after it."""
        if gpus is not None:
            for number, name in enumerate(NODES):
                own = tuple(
                    Gpu(index=index, utilization_pct=round(use), power_w=share * LIMIT_W, power_limit_w=LIMIT_W,
                        memory_used_mib=60_000, memory_total_mib=81_000)
                    for index, (use, share) in enumerate(gpus[number * GPUS : (number + 1) * GPUS])
                )  # fmt: skip
                node = self.nodes[name]
                self.nodes[name] = replace(node, gpus=own, gpus_at=now, paces=averaged(node.paces, own, now))
        progress = self.run.progress
        if steps:
            self.step += max(1, round((now - (progress.at or now)) / self.world.step_s))
            doing_at = now if progress.doing != "train" else progress.doing_at
            progress = replace(progress, step=self.step, at=now, doing="train", doing_at=doing_at, busy_since=None)
            self.run = replace(self.run, progress=progress, log=Log(host="n1", at=now))
        elif says and progress.doing == "train":
            progress = replace(progress, doing=says, doing_at=now, busy_since=now)
            self.run = replace(self.run, progress=progress, log=Log(host="n1", at=now))
        health: Literal["ok", "late"] = "late" if gpus is None else "ok"
        sources = {
            f"node:{one}": Source(name=f"node:{one}", kind="node", cluster="lab", health=health, answered_at=now)
            for one in NODES
        }
        context = RunContext(nodes=dict(self.nodes), sources=sources)
        judged = judge(self.run, context, now)
        self.run = replace(self.run, verdict=judged.verdict, why=judged.why)
        batch = EventBatch(State(at=now, started_at=BEGIN, runs={"llm": self.run}), ())
        reducers.follow(batch, context, now)
        self.run = batch.current("runs")["llm"]
        return judged.verdict


NOTHING = Pause("nothing", 0.0, waiting)
HANGS: tuple[tuple[str, Signature], ...] = (
    ("every GPU waits", waiting), ("one rank's GPU is idle", one_idle), ("all GPUs are idle", idle),
)  # fmt: skip


def simulated(seed: int, *, early: bool, hang: tuple[str, Signature] | None) -> tuple[Counter[str], Seconds | None]:
    """The pauses of one run that were called stalls, by kind, and after which time its hang was."""
    random = Random(seed)
    world = World(random)
    watched, now, false = Watched(world, early=early), BEGIN, Counter[str]()
    works = working(world.power)
    stepped = now
    for begins, pause in (*world.pauses(), (world.lasts + 900.0, NOTHING)):
        while now + TICK < BEGIN + begins:
            now += TICK
            has_printed = now - stepped >= world.prints_s
            watched.look(now, works(random), steps=has_printed)
            stepped = now if has_printed else stepped
        until = max(now, BEGIN + begins) + pause.lasts
        if pause.is_restart:
            watched.step = max(0, watched.step - 50)
        is_false = False
        while now < until:
            now += PAUSED_TICK
            sample = None if pause.is_unread else pause.gpus(random)
            is_false |= watched.look(now, sample, steps=False, says=pause.says) in SILENT
        false[pause.kind] += is_false
        now += min(world.step_s, 30.0)
        watched.look(now, works(random), steps=True)
        stepped = now
    began = now
    if hang is None:
        return false, None
    while watched.look(now, hang[1](random), steps=False) not in SILENT:
        now += PAUSED_TICK
    return false, now - began


def main(runs: int) -> int:
    false, hours = {True: Counter[str](), False: Counter[str]()}, 0.0
    new, found = Counter[str](), defaultdict[tuple[str, bool], list[Seconds]](list)
    for number in range(runs):
        seed = SEED + number
        world = World(Random(seed))
        hours += world.lasts / 3600
        hang = HANGS[number // 2 % len(HANGS)] if number % 2 else None
        pauses = {}
        for early in (False, True):
            pauses[early], known = simulated(seed, early=early, hang=hang)
            false[early] += pauses[early]
            if hang is not None and known is not None:
                slow = f", steps over {duration(SLOW)}" if world.prints_s > SLOW else ""
                found[hang[0] + slow, early].append(known)
        new += pauses[True] - pauses[False]
    print(f"{runs:,} healthy runs, {hours:,.0f} h of training")
    print(f"pauses called a stall after 15m or ten intervals: {dict(+false[False])}; now: {dict(+false[True])}")
    print(f"pauses called a stall only now: {new.total()} {dict(new)}")
    print(f"{'a hang is known after':<40}{'median':>9}{'9 of 10':>9}{'worst':>9}{'in 4m':>8}   before: median, worst")
    for kind in sorted({kind for kind, _ in found}):
        after, before = sorted(found[kind, True]), sorted(found[kind, False])
        soon = sum(one <= SOON for one in after) / len(after)
        numbers = (median(after), after[len(after) * 9 // 10], after[-1], median(before), before[-1])
        now, most, worst, was, was_worst = map(duration, numbers)
        print(f"{kind:<40}{now:>9}{most:>9}{worst:>9}{soon:>8.0%}   {was}, {was_worst}")
    return status((float(new.total()), 0.0))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else RUNS))
