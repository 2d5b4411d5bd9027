"""The thread that asks W&B: what it asks, how often, and what it makes of silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from collectors.wandb.child_process import ErrorKind, WandbError
from collectors.wandb.collector import WandbCollector
from collectors.wandb.login import Credentials
from collectors.wandb.wire import (
    AnyRequest,
    ConsoleLines,
    FetchedFile,
    FetchFile,
    HistoryPoints,
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
    ConsoleRead,
    CurvesGrew,
    Event,
    Points,
    RunSpec,
    Sample,
    SampleFetched,
    Source,
    SourceChanged,
    SourceRemoved,
    WandbPolled,
    WandbRun,
    WandbSpec,
)

NOW = 1_760_000_000.0


class FakeClock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return NOW + self.at

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
                return RunList(runs=runs, samples=self.samples, history_keys={run.id: ("loss", "lr") for run in runs})
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

    def fails(self, request: type[AnyRequest], kind: ErrorKind) -> None:
        self.trouble[request] = WandbError(f"it is {kind}", kind=kind, hint="mend it")

    def count(self, request: type[AnyRequest]) -> int:
        return sum(isinstance(one, request) for one in self.requests)


HERE = Credentials("https://api.wandb.ai", "WANDB_API_KEY")


class Watched:
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


def test_the_first_poll_reports_the_runs_the_curves_and_that_the_source_is_well() -> None:
    watched = Watched()
    watched.wandb.run("a1")
    watched.first()
    assert [type(one) for one in watched.wandb.requests] == [ListRuns, ReadHistory]
    assert [run.id for run in watched.seen.runs] == ["a1"]
    assert watched.seen.keys == ("loss", "lr")
    (grown,) = watched.of_kind(CurvesGrew)
    assert (grown.path, grown.fresh, list(grown.points["loss"].steps)) == (
        "team/video/a1",
        True,
        [*map(float, range(10))],
    )
    assert [source.phase for source in watched.of_kind(SourceChanged)] == ["waiting", "up"]
    assert (watched.source.name, watched.source.cluster, watched.source.period) == ("wandb:llm", "prod", 60.0)


def test_a_round_takes_two_questions_a_run_and_comes_once_a_period() -> None:
    watched = Watched(*(a_run(f"run-{number}") for number in range(10)))
    watched.wandb.run("a1")
    watched.pass_(59)
    watched.wandb.requests.clear()
    for minute in range(10):
        watched.wandb.run("a1", steps=11 + minute)
        watched.pass_(60)
    assert watched.rounds() == 100
    assert watched.wandb.count(ReadHistory) == 100
    assert len(watched.wandb.requests) == 200


def test_only_new_points_are_requested() -> None:
    watched = Watched()
    watched.wandb.run("a1", steps=10)
    watched.pass_(50)
    watched.wandb.run("a1", steps=13)
    watched.pass_(60)
    grown = watched.of_kind(CurvesGrew)[-1]
    assert (grown.fresh, list(grown.points["loss"].steps)) == (False, [10.0, 11.0, 12.0])


def test_a_history_that_was_rewound_is_read_anew() -> None:
    watched = Watched()
    watched.wandb.run("a1", steps=100)
    watched.pass_(50)
    watched.wandb.run("a1", steps=40)
    watched.pass_(60)
    grown = watched.of_kind(CurvesGrew)[-1]
    assert (grown.fresh, len(grown.points["loss"].steps)) == (True, 40)


def test_a_run_that_was_begun_anew_under_its_id_is_read_anew() -> None:
    watched = Watched()
    watched.wandb.run("a1", steps=100)
    watched.pass_(50)
    watched.wandb.run("a1", steps=0, step=None)
    watched.pass_(60)
    watched.wandb.run("a1", steps=7)
    watched.pass_(60)
    grown = watched.of_kind(CurvesGrew)[-1]
    assert (grown.fresh, len(grown.points["loss"].steps)) == (True, 7)


def test_a_run_that_has_ended_costs_its_list_alone() -> None:
    watched = Watched()
    watched.wandb.run("a1", state="finished")
    watched.pass_(200)
    watched.wandb.requests.clear()
    watched.pass_(300)
    assert {type(one) for one in watched.wandb.requests} == {ListRuns}


def test_curves_and_console_take_turns() -> None:
    watched = Watched(a_run(console=True))
    watched.wandb.console = ["first", "second"]
    watched.wandb.run("a1", steps=10)
    watched.pass_(50)
    assert watched.of_kind(ConsoleRead)[-1].chunk.lines == ("first", "second")
    watched.wandb.requests.clear()
    for minute in range(6):
        watched.wandb.run("a1", steps=20 + minute)
        watched.wandb.console.append(f"line {minute}")
        watched.pass_(60)
    assert (watched.wandb.count(ReadHistory), watched.wandb.count(ReadConsole)) == (3, 3)
    lines = [line for event in watched.of_kind(ConsoleRead) for line in event.chunk.lines]
    assert lines == ["first", "second", *(f"line {minute}" for minute in range(len(lines) - 2))]


def test_a_progress_bar_moves_and_a_log_that_is_begun_anew_is_read() -> None:
    watched = Watched(a_run(console=True))
    watched.wandb.console = ["first", " 1%|   | 10/1000"]
    for last in (" 1%|   | 10/1000", " 2%|   | 20/1000", " 2%|   | 20/1000", " 3%|   | 30/1000"):
        watched.wandb.run("a1")
        watched.wandb.console[-1] = last
        watched.pass_(120)
    watched.wandb.console.append("done")
    watched.wandb.run("a1")
    watched.pass_(120)
    watched.wandb.console = ["anew"]
    watched.wandb.run("a1")
    watched.pass_(120)
    chunks = [event.chunk for event in watched.of_kind(ConsoleRead) if event.chunk.lines]
    assert [line.strip() for chunk in chunks for line in chunk.lines] == [
        "first", "1%|   | 10/1000", "2%|   | 20/1000", "3%|   | 30/1000", "done", "anew",
    ]  # fmt: skip
    assert [(chunk.dropped, chunk.restarted) for chunk in chunks] == [(0, None)] * 4 + [(0, "truncated")]


def test_the_log_of_the_next_run_has_its_first_lines_though_it_began_with_none() -> None:
    watched = Watched(a_run(console=True))
    watched.wandb.console = ["a", "b", "c"]
    watched.wandb.run("a1", created_at=NOW - 900)
    watched.pass_(50)
    watched.wandb.run("a1", state="crashed", created_at=NOW - 900)
    watched.wandb.run("a2", created_at=NOW + 50)
    watched.wandb.console = []
    watched.pass_(120)
    watched.wandb.console = ["one", "two"]
    watched.wandb.run("a2", created_at=NOW + 50)
    watched.pass_(120)
    chunk = watched.of_kind(ConsoleRead)[-1].chunk
    assert (chunk.lines, chunk.dropped, chunk.restarted) == (("one", "two"), 0, None)


def test_lines_that_came_too_fast_are_counted() -> None:
    watched = Watched(a_run(console=True))
    watched.wandb.console = ["a"]
    watched.wandb.run("a1")
    watched.pass_(50)
    watched.wandb.console += [str(number) for number in range(500)]
    watched.wandb.run("a1")
    watched.pass_(120)
    chunk = next(event.chunk for event in watched.of_kind(ConsoleRead)[1:] if event.chunk.seen)
    assert (len(chunk.lines), chunk.dropped, chunk.seen, chunk.restarted) == (200, 300, 500, None)


def test_the_next_run_is_taken_up_and_the_tail_of_the_last_one_read() -> None:
    watched = Watched()
    watched.wandb.run("a1", steps=10, created_at=NOW - 900)
    watched.pass_(50)
    watched.wandb.run("a1", state="crashed", steps=15, created_at=NOW - 900)
    watched.wandb.run("a2", steps=3, created_at=NOW + 50)
    watched.events.clear()
    watched.pass_(30)
    grown = {event.path.rpartition("/")[2]: event for event in watched.of_kind(CurvesGrew)}
    assert list(grown["a1"].points["loss"].steps) == [10.0, 11.0, 12.0, 13.0, 14.0]
    assert (grown["a2"].fresh, list(grown["a2"].points["loss"].steps)) == (True, [0.0, 1.0, 2.0])
    watched.wandb.requests.clear()
    watched.wandb.run("a2", steps=4)
    watched.pass_(60)
    assert [type(one) for one in watched.wandb.requests] == [ListRuns, ReadHistory]


def test_five_earlier_attempts_are_read_once_and_a_moment_apart() -> None:
    watched = Watched()
    for number in range(9):
        state = "running" if number == 8 else "crashed"
        watched.wandb.run(
            f"a{number}", state=state, created_at=NOW - 1000 + number, heartbeat_at=NOW - 900 + 90 * number
        )
    watched.first()
    assert watched.wandb.count(ReadHistory) == 1
    watched.pass_(50)
    assert {event.path for event in watched.of_kind(CurvesGrew)} == {f"team/video/a{number}" for number in range(3, 9)}
    watched.pass_(180)
    read = [one.path for one in watched.wandb.requests if isinstance(one, ReadHistory)]
    assert read.count("team/video/a5") == 1


def test_several_active_runs_are_reported_and_their_curves_read() -> None:
    watched = Watched()
    watched.wandb.run("a1", created_at=NOW - 300)
    watched.wandb.run("a2", created_at=NOW - 100)
    watched.pass_(50)
    assert [run.id for run in watched.seen.runs] == ["a2", "a1"]
    assert {event.path for event in watched.of_kind(CurvesGrew)} == {"team/video/a1", "team/video/a2"}
    watched.wandb.requests.clear()
    for steps in range(11, 16):
        watched.wandb.run("a1", steps=steps, created_at=NOW - 300)
        watched.wandb.run("a2", steps=steps)
        watched.pass_(60)
    assert len(watched.wandb.requests) == 10, "two questions a round, however many are active"
    watched.wandb.run("a1", state="finished", steps=20, created_at=NOW - 300)
    watched.pass_(60)
    assert [*watched.of_kind(CurvesGrew)[-1].points["loss"].steps] == [*map(float, range(10, 20))]


def test_no_run_at_all_is_an_answer() -> None:
    watched = Watched()
    watched.pass_(30)
    assert (watched.seen.runs, watched.source.phase, watched.source.error) == ((), "up", None)


def test_a_run_without_a_project_starts_nothing() -> None:
    watched = Watched(RunSpec(name="llm", cluster="prod"))
    assert watched.watcher.step() is None
    assert (watched.wandb.began, watched.events) == (0, [])


def test_without_a_key_nothing_is_requested_and_with_one_it_goes_on() -> None:
    watched = Watched()
    watched.wandb.run("a1")
    watched.login = Credentials("https://api.wandb.ai", None, "there is no key for wandb.ai", "log in")
    watched.pass_(30)
    assert watched.wandb.began == 0
    assert (watched.source.error, watched.source.hint) == ("there is no key for wandb.ai", "log in")
    watched.login = HERE
    watched.pass_(120)
    assert (watched.source.phase, watched.source.error) == ("up", None)


def test_a_busy_server_is_left_alone_longer_and_longer() -> None:
    watched = Watched(a_run("one"), a_run("two"))
    watched.wandb.fails(ListRuns, "busy")
    watched.first()
    assert watched.rounds() == 1, "the second run would have met the same"
    assert [source.name for source in watched.of_kind(SourceChanged) if source.error] == ["wandb:one", "wandb:two"]
    watched.pass_(119)
    assert watched.rounds() == 1
    watched.pass_(3_600 * 3)
    assert watched.rounds() <= 2 + 3 * 6 + 3
    watched.wandb.trouble.clear()
    watched.pass_(601)
    assert (watched.source.phase, watched.source.error) == ("up", None)
    watched.wandb.requests.clear()
    watched.pass_(120)
    assert watched.rounds() in (4, 6), "it asks at its own pace again"


@pytest.mark.parametrize("kind", ["absent", "forbidden"])
def test_an_unknown_project_and_one_of_another_team_are_one_runs_trouble(kind: ErrorKind) -> None:
    watched = Watched(a_run("one", project="team/no"), a_run("two"))
    real = watched.wandb.query

    def query(request: AnyRequest, wanted: type[Any]) -> Any:
        if isinstance(request, ListRuns) and request.spec.project == "team/no":
            raise WandbError("no such project", kind=kind, hint="is its name right?")
        return real(request, wanted)

    watched.wandb.query = query  # type: ignore[method-assign]
    watched.pass_(30)
    last = {source.name: source for source in watched.of_kind(SourceChanged)}
    assert (last["wandb:one"].error, last["wandb:one"].hint) == ("no such project", "is its name right?")
    assert (last["wandb:two"].phase, last["wandb:two"].error) == ("up", None)


def test_a_fault_of_ours_is_the_trouble_of_one_run() -> None:
    watched = Watched(a_run("one", project="team/odd"), a_run("two"))
    real = watched.wandb.query

    def query(request: AnyRequest, wanted: type[Any]) -> Any:
        if isinstance(request, ListRuns) and request.spec.project == "team/odd":
            raise ZeroDivisionError("division by zero")
        return real(request, wanted)

    watched.wandb.query = query  # type: ignore[method-assign]
    watched.pass_(30)
    last = {source.name: source for source in watched.of_kind(SourceChanged)}
    assert last["wandb:one"].error == "ZeroDivisionError: division by zero"
    assert (last["wandb:two"].phase, last["wandb:two"].error) == ("up", None)


def test_a_run_whose_list_hangs_is_the_last_one_next_time() -> None:
    watched = Watched(a_run("one"), a_run("two"))
    watched.wandb.fails(ListRuns, "slow")
    watched.first()
    watched.wandb.trouble.clear()
    watched.wandb.requests.clear()
    watched.pass_(130)
    assert watched.of_kind(WandbPolled)[0].run == "two"


def test_curves_that_cannot_be_read_leave_the_run_well_and_are_reported_when_it_lasts() -> None:
    watched = Watched()
    watched.wandb.fails(ReadHistory, "slow")
    watched.wandb.run("a1")
    watched.pass_(30)
    assert (watched.source.phase, watched.source.error, watched.source.hint) == ("up", None, None)
    for _ in range(4):
        watched.wandb.run("a1")
        watched.pass_(60)
    assert (watched.source.error, watched.source.hint) == (None, "its curves cannot be read: it is slow (mend it)")
    watched.wandb.trouble.clear()
    watched.wandb.run("a1")
    watched.pass_(120)
    assert watched.source.hint is None
    assert watched.of_kind(CurvesGrew)


def test_a_person_who_asks_gets_a_round_at_once_but_not_twice_in_five_seconds() -> None:
    watched = Watched()
    watched.wandb.run("a1")
    watched.pass_(20)
    for _ in range(4):
        watched.watcher.refresh()
        watched.pass_(1)
    assert watched.rounds() == 2


def test_runs_that_come_and_go() -> None:
    watched = Watched()
    watched.wandb.run("a1")
    watched.pass_(20)
    before = watched.rounds()
    watched.watcher.follow((a_run(), a_run("more")))
    watched.pass_(10)
    assert watched.rounds() == before + 2
    watched.watcher.follow((replace(a_run("more"), nodes=("n1",)),))
    watched.pass_(10)
    assert watched.of_kind(SourceRemoved) == [SourceRemoved("wandb:llm")]
    assert watched.rounds() == before + 2, "what is known of a run stays when only its nodes change"


def test_facts_are_queried_once_where_the_list_has_none() -> None:
    watched = Watched()
    watched.wandb.run("a1", host=None)
    watched.pass_(200)
    assert watched.wandb.count(ReadMetadata) == 1
    assert watched.seen.runs[0].host == "gpu-7"


IMAGE = Sample(key="val", kind="image", file="media/images/val_10_ab.png", step=10)


def test_one_image_an_hour_is_kept_ready(tmp_path: Path) -> None:
    watched = Watched(samples=tmp_path)
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": (IMAGE, replace(IMAGE, key="clip", kind="video", file="media/clip.mp4", step=11))}
    watched.pass_(300)
    (kept,) = watched.of_kind(SampleFetched)
    assert (kept.file, Path(kept.kept).name) == (IMAGE.file, "val_10_ab.png")
    assert Path(kept.kept).parent.parent == tmp_path
    watched.wandb.samples = {"a1": (replace(IMAGE, file="media/images/val_20_cd.png", step=20),)}
    watched.pass_(1_800)
    assert watched.wandb.count(FetchFile) == 1
    watched.pass_(1_800)
    assert watched.wandb.count(FetchFile) == 2


def test_nothing_is_fetched_without_a_request_where_nothing_is_kept() -> None:
    watched = Watched()
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": (IMAGE,)}
    watched.pass_(300)
    assert watched.wandb.count(FetchFile) == 0


def test_a_person_saves_the_samples_and_reads_where_they_are(tmp_path: Path) -> None:
    watched = Watched()
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": (IMAGE, replace(IMAGE, key="b"))}
    queries: list[str] = []
    watched.pass_(10)
    for run in ("llm", "other"):
        watched.watcher.save_samples(run, str(tmp_path), queries.append)
    watched.pass_(10)
    watched.wandb.fails(FetchFile, "absent")
    watched.watcher.save_samples("llm", str(tmp_path), queries.append)
    watched.pass_(10)
    assert queries == [
        f"saved 2 samples of llm in {tmp_path}",
        "other has no W&B project",
        "no sample of llm was saved: val: it is absent (mend it)",
    ]


def test_a_sample_that_is_gone_keeps_no_other_from_being_saved(tmp_path: Path) -> None:
    watched = Watched()
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": tuple(replace(IMAGE, key=key, file=f"{key}.png") for key in "abc")}
    watched.pass_(10)
    real, queries = watched.wandb.query, list[str]()

    def query(request: AnyRequest, wanted: type[Any]) -> Any:
        if isinstance(request, FetchFile) and request.file == "b.png":
            raise WandbError("it has no such file", kind="absent")
        return real(request, wanted)

    watched.wandb.query = query  # type: ignore[method-assign]
    watched.watcher.save_samples("llm", str(tmp_path), queries.append)
    watched.pass_(10)
    assert queries == [f"saved 2 of 3 samples of llm in {tmp_path}; failed: b: it has no such file"]


def test_slow_answers_stretch_the_rounds_and_never_pile_up() -> None:
    watched = Watched(*(a_run(f"run-{number}") for number in range(5)))
    watched.wandb.run("a1")
    watched.wandb.takes = 20.0
    watched.pass_(2_000)
    assert watched.rounds() <= 2_000 / 20


def test_many_thousand_steps_cost_no_memory() -> None:
    watched = Watched()
    watched.wandb.run("a1")
    watched.pass_(60)
    call: Callable[[], None] = watched.watcher.refresh
    for _ in range(1_000):
        call()
    assert len(watched.watcher._requests) <= 64
