"""Whether the clock has find_jump."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import Moment, find_jump, is_trusted, may_resolve, not_in_the_future
from trainmon.model import Finding, Log, Node, Progress, Run, RunSpec, Source, State

NOW = 1_750_000_000.0


@pytest.mark.parametrize(
    ("wall", "steady", "why"),
    [
        (1.0, 1.0, None),
        (3.0, 1.0, None),
        (29.0, 29.0, None),
        (3_601.0, 1.0, "this machine slept for 1h, or its clock was set forward by that"),
        (-3_599.0, 1.0, "the clock of this machine was set back by 1h"),
        (300.0, 300.0, "this program was suspended for 5m"),
    ],
)
def test_what_lay_between_two_evaluations(wall: float, steady: float, why: str | None) -> None:
    jump = find_jump(Moment(NOW, 50.0), Moment(NOW + wall, 50.0 + steady))
    assert (None if jump is None else jump.why) == why


def test_the_first_look_is_no_jump() -> None:
    assert find_jump(None, Moment(NOW, 50.0)) is None


def found(*sources: str, **more: Any) -> Finding:
    return Finding(rule="gpu-hot", subject="gpu:n1/3", severity="warning", summary="hot", sources=sources, **more)


SILENT = Source(name="node:n1", kind="node", cluster="prod", answered_at=NOW - 5)
SPOKE = Source(name="node:n2", kind="node", cluster="prod", answered_at=NOW + 1)
WOKEN = State(sources={"node:n1": SILENT, "node:n2": SPOKE}, clock_jumped_at=NOW)


def test_after_a_wake_a_fault_is_believed_with_a_word_of_its_sources_or_after_a_minute() -> None:
    assert not is_trusted(WOKEN, found("node:n1"), NOW + 5)
    assert not is_trusted(WOKEN, found("node:n1", "node:n2"), NOW + 5)
    assert is_trusted(WOKEN, found("node:n2"), NOW + 5)
    assert is_trusted(WOKEN, found(), NOW + 5), "what this program knows of itself"
    assert is_trusted(WOKEN, found("node:n1"), NOW + 60)


def test_an_age_proves_nothing_for_a_minute_unless_it_began_after_the_wake() -> None:
    assert not is_trusted(WOKEN, found("node:n2", by_age=True, since=NOW - 9_000), NOW + 59)
    assert not is_trusted(WOKEN, found(by_age=True), NOW + 59)
    assert is_trusted(WOKEN, found("node:n2", by_age=True, since=NOW + 3), NOW + 5)
    assert is_trusted(WOKEN, found("node:n2", by_age=True, since=NOW - 9_000), NOW + 60)


def test_what_is_not_found_after_a_wake_means_something_once_its_sources_have_spoken() -> None:
    assert not may_resolve(WOKEN, ["node:n1", "node:n2"], NOW + 5)
    assert not may_resolve(WOKEN, [], NOW + 5)
    assert may_resolve(WOKEN, ["node:n2"], NOW + 5)
    assert may_resolve(WOKEN, ["node:n1"], NOW + 60)


def test_the_time_of_a_clock_that_was_set_back_is_no_word_of_a_source() -> None:
    woken = not_in_the_future(
        State(sources={"node:n1": replace(SILENT, answered_at=NOW + 900)}, clock_jumped_at=NOW), NOW
    )
    assert not is_trusted(woken, found("node:n1"), NOW + 5)


def test_what_is_dated_ahead_after_the_clock_was_set_back_happened_now() -> None:
    late = NOW + 3_600
    run = Run(spec=RunSpec(name="llm", cluster="prod"), progress=Progress(step=5, at=late), log=Log(host="n1", at=late))
    state = State(
        sources={"node:n1": Source(name="node:n1", kind="node", cluster="prod", answered_at=late)},
        nodes={"n1": Node(name="n1", cluster="prod", gpus_at=late, host_at=NOW - 9)},
        runs={"llm": run},
    )
    mended = not_in_the_future(state, NOW)
    assert mended.sources["node:n1"].answered_at == NOW
    assert (mended.nodes["n1"].gpus_at, mended.nodes["n1"].host_at) == (NOW, NOW - 9)
    assert mended.runs["llm"].progress.at == NOW
    assert mended.runs["llm"].log is not None
    assert mended.runs["llm"].log.at == NOW
