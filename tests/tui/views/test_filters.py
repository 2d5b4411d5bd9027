"""The filter and the order of a table, whatever it lists."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tui.views.table import Column, completions, filtered, ordered, parse_filter, sort_text


class Node(NamedTuple):
    name: str
    status: str
    users: tuple[str, ...]
    temps: tuple[int, ...]
    free: float | None = None
    left: float | None = None


FIELDS: tuple[Column[Node, None], ...] = (
    Column("name", lambda node, _: (node.name,)),
    Column("status", lambda node, _: (node.status,)),
    Column("user", lambda node, _: node.users),
    Column("temp", lambda node, _: node.temps, ""),
    Column("free", lambda node, _: (node.free,), "B", upwards=True),
    Column("left", lambda node, _: (node.left,), "s", upwards=True),
)

NODES = (
    Node("gpu-002", "healthy", ("ana", "me"), (70, 91), 3 * 2.0**40, 7_200.0),
    Node("gpu-010", "drained", ("bob",), (), None, 59.0),
    Node("login:/tmp", "not read", ("Ana-Maria",), (84,), 2.0**30, None),
)


def names(query: str) -> list[str]:
    return [node.name for node in filtered(NODES, query, FIELDS, None)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["gpu-002", "gpu-010", "login:/tmp"]), ("gpu", ["gpu-002", "gpu-010"]), ("GPU bob", ["gpu-010"]),
        ("!drained", ["gpu-002", "login:/tmp"]), ("gpu !bob !nobody", ["gpu-002"]), ("!", [n.name for n in NODES]),
        ("status:healthy user:me temp>85 name~gpu-0 !drained", ["gpu-002"]),
        ("user:ana", ["gpu-002", "login:/tmp"]), ("user=ana", ["gpu-002"]), ("user~maria", ["login:/tmp"]),
        ("!user:ana", ["gpu-010"]), ("Status:HEALTHY", ["gpu-002"]),
        ("temp>85", ["gpu-002"]), ("temp>=84", ["gpu-002", "login:/tmp"]), ("temp<85", ["gpu-002", "login:/tmp"]),
        ("temp<=70", ["gpu-002"]), ("temp:84", ["login:/tmp"]), ("temp=84.0", ["login:/tmp"]),
        ("!temp>0", ["gpu-010"]), ("free<2T", ["login:/tmp"]), ("free>=3t", ["gpu-002"]), ("left<1m", ["gpu-010"]),
        ("left>1.5h", ["gpu-002"]), ("left:59", ["gpu-010"]),
        ('"login:/tmp"', ["login:/tmp"]), ('"not read"', ["login:/tmp"]), ('status:"not read"', ["login:/tmp"]),
        ('!"not read" gpu-010', ["gpu-010"]), ("gpu-002:", []),
    ],
)  # fmt: skip
def test_a_filter_has_words_fields_comparisons_and_negations(query: str, found: list[str]) -> None:
    assert parse_filter(query, FIELDS).problem == ""
    assert names(query) == found


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("statsu:healthy",
         'no field "statsu"; did you mean status:?'),
        ("gpu zzz>4", 'no field "zzz"; quote a text with > or use name, status, user, temp, free, left'),
        ("temp>", "temp> needs a number, such as 5"), ("temp>hot", 'temp> needs a number, such as 5, not "hot"'),
        ("left<5x", 'left< needs a number, such as 5d, not "5x"'), ("status:", "status: needs a text"),
        ("name>3", "name is a text: write name: or name~"), ("temp~9", "temp is a number: write temp> or temp<"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_sentence_and_filters_nothing_away(query: str, problem: str) -> None:
    assert parse_filter(query, FIELDS).problem == problem
    assert names(query) == [node.name for node in NODES]


@pytest.mark.parametrize(
    ("sort", "found"),
    [
        ("worst", "002 010 tmp"), ("-worst", "tmp 010 002"), ("name", "002 010 tmp"), ("-name", "tmp 010 002"),
        ("temp", "tmp 002 010"), ("-temp", "002 tmp 010"), ("free", "tmp 002 010"), ("-free", "002 tmp 010"),
    ],
)  # fmt: skip
def test_rows_are_sorted_in_both_directions_and_those_without_a_value_are_last(sort: str, found: str) -> None:
    assert " ".join(node.name[-3:] for node in ordered(NODES, sort, FIELDS, None)) == found


def test_equal_rows_keep_their_order_and_a_loss_that_is_nan_is_the_greatest() -> None:
    loss: tuple[Column[float, None], ...] = (Column("loss", lambda one, _: (one,), ""),)
    same: tuple[Column[Node, None], ...] = (Column("same", lambda _one, _: (1,), ""),)

    assert str(ordered((1.0, float("nan"), 2.0), "loss", loss, None)) == "[nan, 2.0, 1.0]"
    assert ordered(NODES, "same", same, None) == ordered(NODES, "-same", same, None) == [*NODES]


def test_the_title_names_the_order_and_its_direction() -> None:
    found = [sort_text(sort, FIELDS) for sort in ("worst", "-worst", "name", "-name", "temp", "-temp", "left")]

    assert found == ["worst", "worst reversed", "name ↑", "name ↓", "temp ↓", "temp ↑", "left ↑"]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", ["name:", "status:", "user:", "temp>", "free>", "left>"]), ("gpu !te", ["gpu !temp>"]),
        ("status:", ["status:drained", "status:healthy", 'status:"not read"']),
        ("x user=A", ["x user=ana", "x user=Ana-Maria"]),
        ("temp>", []), ("zz", []), ('"a', []),
    ],
)  # fmt: skip
def test_fields_and_values_complete_what_was_typed(typed: str, found: list[str]) -> None:
    assert [*completions(typed, NODES, FIELDS, None)] == found
