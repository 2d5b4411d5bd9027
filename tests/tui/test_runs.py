"""The Runs pane's lines, as values."""

from __future__ import annotations

import msgspec
import pytest

from tests.tui.states import NOW, calm, run, source, troubled
from trainmon.model import Progress, State, Switch
from trainmon.text import cells
from tui.panes.runs import head, ordered, overdue, row


def line(name: str, state: State, width: int = 77) -> str:
    return row(state.runs[name], state, NOW, width).text


def test_worst_first_and_names_settle_what_is_equal() -> None:
    assert [one.name for one in ordered(troubled(), "worst")] == ["llm-7b-a", "abl-3", "llm-70b", "sft-1b", "tok-test"]


@pytest.mark.parametrize(("sort", "first"), [("name", "abl-3"), ("last", "llm-70b"), ("step", "llm-7b-a")])
def test_other_orders(sort: str, first: str) -> None:
    assert ordered(troubled(), sort)[0].name == first


def test_the_filter_looks_at_names_verdicts_nodes_and_reasons() -> None:
    assert [one.name for one in ordered(troubled(), "worst", "hung")] == ["llm-7b-a"]
    assert [one.name for one in ordered(troubled(), "worst", "nan loss")] == ["abl-3"]
    assert ordered(troubled(), "worst", "absent") == []


def test_a_healthy_run_shows_its_numbers_and_what_is_left() -> None:
    assert line("llm-70b", troubled()).split() == [
        "●",
        "llm-70b",
        "2",
        "12,880",
        "1.874",
        "1.9M",
        "6s",
        "17h44",
        "SAVE",
    ]


def test_a_hung_run_shows_its_verdict_in_words_and_its_age_with_a_sign() -> None:
    assert line("llm-7b-a", troubled()).split() == [
        "▲",
        "llm-7b-a",
        "2",
        "81,204",
        "2.113",
        "412k",
        "11m!",
        "hung",
        "-",
    ]


def test_nan_is_marked_by_more_than_colour() -> None:
    assert "nan!" in line("abl-3", troubled())


@pytest.mark.parametrize("width", [40, 56, 65, 77, 100, 140])
def test_every_line_is_as_wide_as_the_heads_and_the_pane(width: int) -> None:
    lines = [line(name, troubled(), width) for name in troubled().runs]

    assert {cells(text) for text in (*lines, head(width))} == {width}


def test_nothing_known_is_a_question_mark_never_a_zero() -> None:
    new = run("new", "unknown", "nothing has been read yet", progress=Progress(), log=None, eta_at=None)

    text = row(new, calm(), NOW, 77).text

    assert text.split() == ["?", "new", "2", "?", "?", "-", "-", "unknown", "-"]


def test_a_step_is_overdue_by_the_runs_own_cadence_or_by_the_config() -> None:
    assert not overdue(run("a"), NOW)
    assert overdue(run("a"), NOW + 20.0)
    assert not overdue(run("a", progress=Progress(at=NOW - 800.0)), NOW)
    assert overdue(run("a", progress=Progress(at=NOW - 901.0)), NOW)
    assert not overdue(run("a", "finished"), NOW + 1e6)


def test_numbers_from_a_silent_host_are_dim() -> None:
    state = calm()
    late = msgspec.structs.replace(state, sources={"node:gpu-001": source(1, health="late", seen_at=NOW - 30.0)})

    spans = row(late.runs["llm-70b"], late, NOW, 77).spans

    assert {span.style for span in spans[2:]} == {"dim"}


def test_switches_are_words() -> None:
    both = run("a", kill=Switch(path="k", exists=True), save=Switch(path="s", exists=True))
    unknown = run("a", kill=Switch(path="k", exists=None))

    assert row(both, calm(), NOW, 77).text.endswith(" K+S")
    assert row(unknown, calm(), NOW, 77).text.endswith(" ?")
