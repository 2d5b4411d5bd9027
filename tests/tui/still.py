"""A Backend that stands still: one State, and an hour of waves as its history."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Sequence

from trainmon.analysis.log_formats import LogReport, report
from trainmon.lib import Seconds
from trainmon.model import Action, ActionRequest, Curve, Job, NodeEvent, Plan, Run, Series, Silence, State

TOPS = {"temperature": 70.0, "utilization": 90.0, "power": 650.0, "memory": 70_000.0}


class StillBackend:
    """Real values, no engine; it remembers what it was asked."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.requests: list[tuple[str, str]] = []

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        sink(self.state)
        return lambda: None

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        """A wave every ten minutes, with a gap of six minutes half an hour ago."""
        self.requests.append((subject, metric))
        if metric not in TOPS:
            return Series((), ())
        offsets = tuple(float(at) for at in range(-3_000, 1, 10) if not -2_060 < at < -1_700)
        return Series(offsets, tuple(TOPS[metric] * (1 - 0.15 * math.sin(at / 100)) for at in offsets))

    def read_log(self, run: Run) -> LogReport:
        return report(run.log.lines if run.log else (), progress=run.progress, shape=run.memory.shape)

    def refresh(self) -> None:
        self.requests.append(("refresh", ""))

    def login(self, source: str) -> None:
        self.requests.append((source, "login"))

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self.requests.append((str(prompt), "answer"))

    def prepare(self, ask: ActionRequest, reply: Callable[[Plan], None]) -> None:
        """Nothing can be done where everything stands still."""
        self.requests.append((", ".join(ask.subjects), ask.verb))
        reply(Plan(request=ask))

    def act(self, actions: Sequence[Action]) -> None:
        self.requests += [(action.subject, f"did {action.verb}") for action in actions]

    def poll_job(self, key: str) -> None:
        self.requests.append((key, "look"))

    def read_job(self, job: Job, reply: Callable[[str, Sequence[str]], object]) -> None:
        """It has no texts."""

    def view_node(self, node: str) -> None:
        """There is nothing to connect to."""

    def read_node_events(self, node: str, reply: Callable[[Sequence[NodeEvent]], object]) -> None:
        """There is no ledger."""

    def curve(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        self.requests.append((path, key))
        return Curve(epoch, start, array("d"), array("d"), array("d"))

    def show_curves(self, runs: Collection[str], metrics: Sequence[str]) -> None:
        """There is no W&B."""

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        self.requests.append((run, directory))
        reply("no samples")

    def acknowledge(self, alert: str, why: str = "") -> None:
        self.requests.append((alert, "acknowledge"))

    def mute(self, silence: Silence) -> None:
        self.requests.append((silence.subject or silence.rule or silence.run or "", "mute"))

    def unmute(self, silence: str) -> None:
        self.requests.append((silence, "unmute"))
