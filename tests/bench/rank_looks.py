"""Looks at the ranks of a training over gloo: what they cost it, and that healthy trainings accuse nobody.
Run: python -m tests.bench.rank_looks

8 ranks of PyTorch (tests/lab/torchrun.py). 100 looks at a busy training, by /proc, py-spy and signals; 200 looks at
healthy ones, which the monitor takes for ones that hang."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from tests.bench.program import run_program
from tests.bench.table import show
from tests.lab.gloo import Training
from tests.lab.torchrun import py_spy
from trainmon.lib import SystemClock
from trainmon.model import RankLook, RunLooked
from trainmon.runtime.looks import Nodes, Stacks
from trainmon.runtime.looks.nodes import Request, look_at_processes
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell

AT_ONCE = 5
"""Looks: a person makes one at a time."""

STEPS = 300
"""Steps before and after, of which the usual time is compared."""

SLOWER = 1.1

HEALTHY: Mapping[str, dict[str, str]] = {
    "steps of 0.02s": {},
    "rank 0 writes checkpoints": {},
    "a pipeline in halves, 6s each": {"PIPELINE": "1"},
    "2 DataLoader workers a rank": {"WORKERS": "2"},
}


class Looker:
    """Makes looks. Those at once need a node each, which are all this machine."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        self.loop.start()
        self.nodes = [Nodes(lambda host: LocalShell(self.loop), lambda host: sys.executable) for _ in range(AT_ONCE)]

    def proc(self, training: Training, looks: int) -> list[RankLook]:
        state = training.state()
        found = list[RankLook]()

        def work(nodes: Nodes) -> None:
            for _ in range(looks // AT_ONCE):
                found.append(
                    look_at_processes(
                        Request(state, state.runs["gloo"], nodes, SystemClock(), print_nothing, lambda: state)
                    )
                )

        at_once(work, self.nodes)
        return found

    def stacks(self, training: Training, looks: int, way: str) -> list[RankLook]:
        state, found = training.state(), list[RunLooked]()

        def work(nodes: Nodes) -> None:
            stacks = Stacks(lambda: state, nodes, found.append, SystemClock())
            for _ in range(looks // AT_ONCE):
                ways = stacks.find("gloo")
                assert {one.way for one in ways} <= {way, ""}, ways  # a rank that writes may be in state D just now
                stacks.read("gloo", ways)

        at_once(work, self.nodes)
        return [one.look for one in found]


def print_nothing(text: str) -> None:
    """Who looks is not told how far it is."""


def at_once(work: object, nodes: Sequence[Nodes]) -> None:
    threads = [threading.Thread(target=work, args=(one,)) for one in nodes]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cost(looker: Looker) -> tuple[list[list[str]], bool]:
    """What looks at a busy training cost it."""
    rows, is_well = list[list[str]](), True
    for how, looks in (("/proc", 50), ("py-spy", 25), ("signal", 25)):
        path = {"PATH": f"{py_spy()}:{sys.path[0]}:/usr/bin:/bin"} if how == "py-spy" else {}
        with tempfile.TemporaryDirectory() as folder, Training(Path(folder), hooks=how == "signal", **path) as training:
            training.wait_for_steps(STEPS + 20)
            before = usual(training.step_times()[-STEPS:])
            seen = looker.proc(training, looks) if how == "/proc" else looker.stacks(training, looks, how)
            count = training.steps()
            training.wait_for_steps(STEPS)
            after = usual(training.step_times()[count : count + STEPS])
            stopped = training.states().count("T")
        is_well = is_well and len(seen) == looks and after / before <= SLOWER and not stopped and not accused(seen)
        rows.append(
            [how, str(len(seen)), f"{before:.0f} ms", f"{after / before:.2f}", str(stopped), str(accused(seen))]
        )
    return rows, is_well


def usual(steps: Sequence[float]) -> float:
    """The time of a step while nothing else was busy: the least median of three parts."""
    third = len(steps) // 3
    return min(median(steps[at : at + third]) for at in (0, third, 2 * third))


def accused(looks: Sequence[RankLook]) -> int:
    return sum(bool(one.ranks) for one in looks)


def healthy(looker: Looker) -> tuple[list[list[str]], bool]:
    """How often healthy trainings are accused."""
    rows = list[list[str]]()
    for what, environ in HEALTHY.items():
        work_s = 6.0 if "PIPELINE" in environ else 0.02
        with (
            tempfile.TemporaryDirectory() as folder,
            Training(Path(folder), hooks=True, work_s=work_s, **environ) as training,
        ):
            training.wait_for_steps(1 if "PIPELINE" in environ else 20)
            stop = threading.Event()
            if what.startswith("rank 0"):
                threading.Thread(target=save_often, args=(training, stop), daemon=True).start()
            seen = [*looker.proc(training, 30), *looker.stacks(training, 20, "signal")]
            stop.set()
            for one in seen:
                if one.ranks:
                    print(one.summary, *one.lines, sep="\n  ", file=sys.stderr)
            rows.append([what, str(len(seen)), str(accused(seen)), str(training.states().count("T"))])
    return rows, all(row[1:] == ["50", "0", "0"] for row in rows)


def save_often(training: Training, stop: threading.Event) -> None:
    count = 0
    while not stop.wait(22.0 if count else 0.0):
        with suppress(OSError):
            training.hold(0, "save", count)
        count += 1


def main() -> int:
    looker = Looker()
    costs, is_cheap = cost(looker)
    show(
        "100 looks at a busy training of 8 ranks, 5 at once",
        ["by", "looks", "step before", "after / before", "left stopped", "accused"],
        costs,
    )
    rows, is_fair = healthy(looker)
    show("200 looks at healthy trainings", ["training", "looks", "accused", "left stopped"], rows)
    return 0 if is_cheap and is_fair else 1


if __name__ == "__main__":
    run_program(main)
