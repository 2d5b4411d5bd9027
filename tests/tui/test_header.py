"""The first line, as text."""

from __future__ import annotations

import msgspec

from tests.tui.states import NOW, calm, empty, source, state, troubled
from trainmon.model import Source
from trainmon.text import cells
from tui.panes.header import clock, facts, flags, header, source_words


def text(width: int) -> str:
    return "".join(span.text for span in header(troubled(), width, ()))


def test_it_counts_verdicts_worst_first_and_sources_by_kind() -> None:
    assert text(112) == "trainmon  prod  1 hung  1 diverged  2 healthy  1 finished  ssh 6/8 gpu-006 never"


def test_it_stays_within_its_width_and_drops_the_least_first() -> None:
    assert all(cells(text(width)) <= width for width in range(10, 120))
    assert "ssh 6/8" in text(69)
    assert "gpu-006" not in text(69)
    assert text(26) == "trainmon  1 hung  ssh 6/8"


def test_the_time_is_utc_and_says_so() -> None:
    assert clock(NOW) == "14:13:20Z"
    assert clock(0.0) == ""


def test_the_source_that_was_silent_longest_is_named_with_its_age() -> None:
    late = {"node:gpu-001": source(1), "node:gpu-002": source(2, health="late", seen_at=NOW - 42.0)}

    spans = source_words(msgspec.structs.replace(empty(), sources=late), 80)

    assert [span.text for span in spans] == ["  ssh 1/2 gpu-002 42s"]


def test_a_source_that_is_off_is_no_fault() -> None:
    off = {"node:gpu-001": source(1, health="off"), "node:gpu-002": source(2)}

    assert source_words(msgspec.structs.replace(empty(), sources=off), 80)[0].text == "  ssh 1/1"


def test_other_kinds_of_source_have_their_own_count() -> None:
    both = {
        "node:gpu-001": source(1),
        "slurm:prod": Source(name="slurm:prod", kind="slurm", cluster="prod", health="ok"),
    }

    assert "".join(span.text for span in source_words(state(sources=both), 80)) == "  ssh 1/1  slurm 1/1"


def test_demo_read_only_paused_and_a_silent_engine_are_said_in_words() -> None:
    shown = msgspec.structs.replace(calm(), demo=True, read_only=True)

    assert flags(shown, paused=True, silent_for=20.0) == ("DEMO", "READ-ONLY", "PAUSED", "NO NEWS FROM THE ENGINE 20s")
    assert flags(calm(), paused=False, silent_for=None) == ()


def test_the_time_moves_only_when_facts_do() -> None:
    first = calm()

    assert facts(msgspec.structs.replace(first, at=NOW + 5)) == facts(first)
    assert facts(msgspec.structs.replace(first, runs={})) != facts(first)
