"""A W&B without a network, and a collector without its thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectors.wandb.child_process import ErrorKind, WandbError
from collectors.wandb.collector import WandbCollector
from collectors.wandb.login import Credentials
from collectors.wandb.wire import (
    ActiveRuns,
    AnyRequest,
    ConsoleLines,
    FetchedFile,
    FetchFile,
    HistoryPoints,
    ListActive,
    ListRuns,
    PackedPoints,
    ReadConsole,
    ReadHistory,
    ReadMetadata,
    RunList,
    RunMetadata,
)
from trainmon.lib import Seconds
from trainmon.model import (
    Event,
    Points,
    RunSpec,
    Sample,
    Source,
    SourceChanged,
    WandbPolled,
    WandbRun,
    WandbSpec,
)

NOW = 1_760_000_000.0


class FakeClock:
    def __init__(self) -> None:
        self.at, self.began = 0.0, NOW

    def now(self) -> float:
        return self.began + self.at

    def monotonic(self) -> float:
        return self.at


@dataclass
class FakeWandb:
    """A W&B that answers what the test says, and keeps what it was asked."""

    clock: FakeClock
    runs: dict[str, WandbRun] = field(default_factory=dict)
    """The newest first."""
    rows: dict[str, int] = field(default_factory=dict)
    """How many steps of each, with a loss at every one."""
    console: list[str] = field(default_factory=list)
    samples: dict[str, tuple[Sample, ...]] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("loss", "lr")
    requests: list[AnyRequest] = field(default_factory=list)
    trouble: dict[type[AnyRequest], WandbError] = field(default_factory=dict)
    takes: Seconds = 0.0
    began: int = 0
    closed: int = 0

    def run(self, name: str, state: str = "running", steps: int = 10, **facts: Any) -> None:
        """One more, or the same with other facts; it beats now."""
        old = self.runs.pop(name, None)
        beat = self.clock.now() if state == "running" or old is None else old.heartbeat_at
        own: dict[str, Any] = {
            "entity": "team",
            "project": "video",
            "id": name,
            "name": name,
            "host": "n1",
            "created_at": NOW - 100,
        }
        own |= {"state": state, "heartbeat_at": beat, "step": steps - 1, "lines": steps}
        run = WandbRun(**own | facts)
        self.runs = {name: run, **self.runs} if old is None else {**self.runs, name: run}
        self.rows[name] = steps

    def start(self) -> FakeWandb:
        self.began += 1
        return self

    def query(self, request: AnyRequest, wanted: type[Any]) -> Any:
        self.requests.append(request)
        self.clock.at += self.takes
        if type(request) in self.trouble:
            raise self.trouble[type(request)]
        answer = self._answer(request)
        assert isinstance(answer, wanted)
        return answer

    def _answer(self, request: AnyRequest) -> object:
        match request:
            case ListRuns(limit=limit):
                runs = tuple(sorted(self.runs.values(), key=lambda run: -(run.created_at or 0)))[:limit]
                return RunList(runs=runs, samples=self.samples, history_keys={run.id: self.metrics for run in runs})
            case ListActive():
                return ActiveRuns(names=tuple(run.id for run in self.runs.values() if run.state == "running"))
            case ReadHistory(path=path, keys=keys, since=since):
                steps = self.rows[path.rpartition("/")[2]]
                grown = {key: [float(step) for step in range(int(since.get(key, 0)), steps)] for key in keys}
                points = {key: PackedPoints.of(Points(at, at, [2.5] * len(at))) for key, at in grown.items() if at}
                return HistoryPoints(path=path, points=points)
            case ReadConsole(path=path, last=last):
                first = max(0, len(self.console) - last)
                lines = tuple(self.console[first:])
                numbers = tuple(range(first, first + len(lines)))
                return ConsoleLines(path=path, numbers=numbers, lines=lines, times=(self.clock.now(),) * len(lines))
            case ReadMetadata(path=path):
                return RunMetadata(path=path, host="gpu-7")
            case FetchFile(path=path, file=file, directory=directory):
                return FetchedFile(path=path, file=file, saved_as=f"{directory}/{Path(file).name}")
        raise AssertionError(request)

    def close(self) -> None:
        self.closed += 1

    @property
    def asked(self) -> list[AnyRequest]:
        """All requests but those for new runs, which come between the rounds."""
        return [request for request in self.requests if not isinstance(request, ListActive)]

    def fails(self, request: type[AnyRequest], kind: ErrorKind) -> None:
        self.trouble[request] = WandbError(f"it is {kind}", kind=kind, hint="mend it")

    def count(self, request: type[AnyRequest]) -> int:
        return sum(isinstance(one, request) for one in self.requests)


HERE = Credentials("https://api.wandb.ai", "WANDB_API_KEY")


class SteppedCollector:
    """A watcher on a fake clock, and everything that it said."""

    def __init__(self, *specs: RunSpec, samples: Path | None = None) -> None:
        self.clock = FakeClock()
        self.wandb = FakeWandb(self.clock)
        self.events: list[Event] = []
        self.login = HERE
        self.watcher = WandbCollector(
            specs or (a_run(),),
            60.0,
            self.events.append,
            self.clock,
            client=self.wandb.start,
            login=lambda: self.login,
            samples=samples,
        )

    def pass_(self, seconds: Seconds) -> None:
        """Let time pass, and the watcher do what is due meanwhile."""
        until = self.clock.at + seconds
        for _ in range(10_000):
            wait = self.watcher.step()
            if wait is None or self.clock.at + wait > until:
                break
            self.clock.at += wait
        self.clock.at = max(until, self.clock.at)

    def first(self) -> None:
        """The first round, without its errands."""
        self.watcher.step()

    def of_kind(self, kind: type[Any]) -> list[Any]:
        found = [event for event in self.events if isinstance(event, kind)]
        return [event.source for event in found] if kind is SourceChanged else found

    @property
    def source(self) -> Source:
        return self.of_kind(SourceChanged)[-1]  # type: ignore[no-any-return]

    @property
    def seen(self) -> WandbPolled:
        return self.of_kind(WandbPolled)[-1]  # type: ignore[no-any-return]

    def rounds(self) -> int:
        return self.wandb.count(ListRuns)


def a_run(name: str = "llm", **spec: Any) -> RunSpec:
    return RunSpec(name=name, cluster="prod", wandb=WandbSpec(**{"project": "team/video", "group": "final"} | spec))
