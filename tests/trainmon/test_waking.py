"""Whether the clock has jumped."""

from __future__ import annotations

import pytest

from trainmon.model import Log, Node, Progress, Run, RunSpec, Source, State
from trainmon.waking import Moment, is_believed, jumped, not_dated_ahead, proves

NOW = 1_750_000_000.0


@pytest.mark.parametrize(
    ("wall", "steady", "why"),
    [
        (1.0, 1.0, None),
        (3.0, 1.0, None),
        (29.0, 29.0, None),
        (3_601.0, 1.0, "this program slept for 1h, or its clock was set forward by that"),
        (-3_599.0, 1.0, "its clock was set back by 1h"),
        (300.0, 300.0, "this program stood still for 5m"),
    ],
)
def test_what_lay_between_two_looks(wall: float, steady: float, why: str | None) -> None:
    jump = jumped(Moment(NOW, 50.0), Moment(NOW + wall, 50.0 + steady))
    assert (None if jump is None else jump.why) == why


def test_the_first_look_is_no_jump() -> None:
    assert jumped(None, Moment(NOW, 50.0)) is None


def test_after_a_wake_a_source_is_believed_when_it_has_spoken_or_after_a_minute() -> None:
    silent = Source(name="node:n1", kind="node", cluster="prod", seen_at=NOW - 5)
    spoke = Source(name="node:n2", kind="node", cluster="prod", seen_at=NOW + 1)
    state = State(sources={"node:n1": silent, "node:n2": spoke}, woke_at=NOW)
    assert not is_believed(state, ["node:n1"], NOW + 5)
    assert not is_believed(state, ["node:n1", "node:n2"], NOW + 5)
    assert not is_believed(state, [], NOW + 5)
    assert is_believed(state, ["node:n2"], NOW + 5)
    assert is_believed(state, ["node:n1"], NOW + 60)
    assert is_believed(state, [], NOW + 5, since=NOW + 1)


def test_an_age_from_before_the_wake_proves_nothing_for_ten_minutes() -> None:
    state = State(woke_at=NOW)
    assert not proves(state, NOW - 9_000, NOW + 599)
    assert proves(state, NOW + 3, NOW + 5)
    assert proves(state, NOW - 9_000, NOW + 600)
    assert proves(State(), None, NOW)


def test_what_is_dated_ahead_after_the_clock_was_set_back_happened_now() -> None:
    late = NOW + 3_600
    run = Run(spec=RunSpec(name="llm", cluster="prod"), progress=Progress(step=5, at=late), log=Log(host="n1", at=late))
    state = State(
        sources={"node:n1": Source(name="node:n1", kind="node", cluster="prod", seen_at=late)},
        nodes={"n1": Node(name="n1", cluster="prod", gpus_at=late, host_at=NOW - 9)},
        runs={"llm": run},
    )
    mended = not_dated_ahead(state, NOW)
    assert mended.sources["node:n1"].seen_at == NOW
    assert (mended.nodes["n1"].gpus_at, mended.nodes["n1"].host_at) == (NOW, NOW - 9)
    assert mended.runs["llm"].progress.at == NOW
    assert mended.runs["llm"].log is not None
    assert mended.runs["llm"].log.at == NOW
