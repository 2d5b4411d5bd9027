"""What is read of a run: its curves, its console log, its earlier attempts."""

from __future__ import annotations

from collections.abc import Callable

from collectors.wandb.wire import (
    LONGEST_LINE,
    HistoryPoints,
    ListRuns,
    PackedPoints,
    ReadConsole,
    ReadHistory,
    encode,
)
from tests.collectors.wandb.fake_wandb import NOW, SteppedCollector, a_run
from trainmon.model import (
    ConsoleRead,
    CurvesGrew,
)


def test_only_new_points_are_requested() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1", steps=10)
    watched.pass_(50)
    watched.wandb.run("a1", steps=13)
    watched.pass_(60)
    grown = watched.of_kind(CurvesGrew)[-1]
    assert (grown.fresh, list(grown.points["loss"].steps)) == (False, [10.0, 11.0, 12.0])


def test_metrics_that_are_on_the_screen_are_read_as_well_and_others_are_not() -> None:
    watched = SteppedCollector()
    watched.wandb.metrics = ("loss", "lr", "mfu", "norm/a", "norm/b")
    watched.wandb.run("a0", state="crashed", created_at=NOW - 500)
    watched.wandb.run("a1", steps=10)
    watched.pass_(30)
    assert watched.seen.names == watched.wandb.metrics
    watched.wandb.requests.clear()
    for page in (("norm/a", "norm/b"), ("loss", "mfu", "unknown")):
        watched.watcher.show_curves(("llm",), page)
    watched.pass_(20)

    asked = [(one.path, one.keys, dict(one.since)) for one in watched.wandb.asked if isinstance(one, ReadHistory)]
    since = {"loss": 10.0, "lr": 10.0}
    assert asked == [(f"team/video/{name}", ("loss", "lr", "mfu"), since) for name in ("a1", "a0")]
    grown = watched.of_kind(CurvesGrew)[-2:]
    assert [(one.fresh, [*one.points], len(one.points["mfu"].steps)) for one in grown] == [(False, ["mfu"], 10)] * 2
    watched.pass_(400)
    watched.watcher.show_curves((), ())
    watched.wandb.run("a1", steps=13)
    watched.pass_(60)
    assert [*watched.of_kind(CurvesGrew)[-1].points] == ["loss", "lr"]
    assert len([one for one in watched.wandb.asked if isinstance(one, ReadHistory) and "mfu" in one.keys]) <= 3


def test_a_page_of_two_hundred_charts_is_an_answer_that_the_child_may_give() -> None:
    watched = SteppedCollector()
    watched.wandb.metrics = ("loss", *(f"norm/{number}" for number in range(200)))
    watched.wandb.run("a1")
    watched.pass_(30)
    watched.watcher.show_curves(("llm",), watched.wandb.metrics)
    watched.pass_(20)
    *_, asked = (one for one in watched.wandb.asked if isinstance(one, ReadHistory))
    column = bytes(8 * asked.samples)
    answer = HistoryPoints(path=asked.path, points=dict.fromkeys(asked.keys, PackedPoints(column, column, column)))
    assert len(asked.keys) == 201
    assert len(encode(answer)) < LONGEST_LINE


def test_a_metric_that_cannot_be_read_is_not_asked_for_without_end() -> None:
    watched = SteppedCollector()
    watched.wandb.metrics = ("loss", "mfu")
    watched.wandb.run("a1")
    watched.pass_(200)
    watched.wandb.fails(ReadHistory, "slow")
    watched.wandb.requests.clear()
    watched.watcher.show_curves(("llm",), ("mfu",))
    watched.pass_(50)
    assert watched.wandb.count(ReadHistory) == 3


def test_a_history_that_was_rewound_is_read_anew() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1", steps=100)
    watched.pass_(50)
    watched.wandb.run("a1", steps=40)
    watched.pass_(60)
    grown = watched.of_kind(CurvesGrew)[-1]
    assert (grown.fresh, len(grown.points["loss"].steps)) == (True, 40)


def test_a_run_that_was_begun_anew_under_its_id_is_read_anew() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1", steps=100)
    watched.pass_(50)
    watched.wandb.run("a1", steps=0, step=None)
    watched.pass_(60)
    watched.wandb.run("a1", steps=7)
    watched.pass_(60)
    grown = watched.of_kind(CurvesGrew)[-1]
    assert (grown.fresh, len(grown.points["loss"].steps)) == (True, 7)


def test_a_run_that_has_ended_costs_its_list_alone() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1", state="finished")
    watched.pass_(200)
    watched.wandb.requests.clear()
    watched.pass_(300)
    assert {type(one) for one in watched.wandb.asked} == {ListRuns}


def test_curves_and_console_take_turns() -> None:
    watched = SteppedCollector(a_run(console=True))
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
    watched = SteppedCollector(a_run(console=True))
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
    watched = SteppedCollector(a_run(console=True))
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
    watched = SteppedCollector(a_run(console=True))
    watched.wandb.console = ["a"]
    watched.wandb.run("a1")
    watched.pass_(50)
    watched.wandb.console += [str(number) for number in range(500)]
    watched.wandb.run("a1")
    watched.pass_(120)
    chunk = next(event.chunk for event in watched.of_kind(ConsoleRead)[1:] if event.chunk.seen)
    assert (len(chunk.lines), chunk.dropped, chunk.seen, chunk.restarted) == (200, 300, 500, None)


def test_the_next_run_is_taken_up_and_the_tail_of_the_last_one_read() -> None:
    watched = SteppedCollector()
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
    assert [type(one) for one in watched.wandb.asked] == [ListRuns, ReadHistory]


def test_five_earlier_attempts_are_read_once_and_a_moment_apart() -> None:
    watched = SteppedCollector()
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


def test_many_thousand_steps_cost_no_memory() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.pass_(60)
    call: Callable[[], None] = watched.watcher.refresh
    for _ in range(1_000):
        call()
    assert len(watched.watcher._requests) <= 64
