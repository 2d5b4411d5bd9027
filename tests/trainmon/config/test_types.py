"""Durations, shares and host lists, as they are written and read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmon.config.types import (
    InvalidValue,
    duration_text,
    expand_hosts,
    format_listen_address,
    parse_duration,
    parse_listen_address,
    parse_share,
    quoted,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2), ("500ms", 0.5), ("15m", 900), ("1h30m", 5400), ("4h", 14_400), ("90d", 7_776_000), ("1.5h", 5400)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(min_value=100, max_value=10**11))
def test_a_duration_is_written_as_it_is_read(milliseconds: int) -> None:
    assert parse_duration(duration_text(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


def read(reader: Callable[[str], object], text: str) -> tuple[object, str]:
    """What a text becomes, or the words that refuse it."""
    try:
        return reader(text), ""
    except InvalidValue as wrong:
        return None, str(wrong)


@given(st.text())
def test_any_other_text_is_no_duration_and_refused_in_printable_words(text: str) -> None:
    seconds, words = read(parse_duration, text)
    assert words.isprintable()
    assert words or isinstance(seconds, float)


@given(st.text(max_size=60))
def test_any_text_as_a_host_list_is_hosts_or_a_sentence(text: str) -> None:
    hosts, words = read(lambda text: expand_hosts([text]), text)
    assert words.isprintable()
    assert words or all(re.fullmatch(r"[\w:@][\w.:@-]*", host) for host in hosts)  # type: ignore[attr-defined]


def test_a_node_in_two_host_lists_is_one_node() -> None:
    assert expand_hosts(["gpu-1", "gpu-[1-3]", "gpu-2"]) == ("gpu-1", "gpu-2", "gpu-3")


def test_shares_are_read() -> None:
    assert (parse_share("80%"), parse_share("99.5 %")) == (0.8, 0.995)


@pytest.mark.parametrize(
    ("written", "host", "again"),
    [
        (9464, "127.0.0.1", "127.0.0.1:9464"),
        ("9464", "127.0.0.1", "127.0.0.1:9464"),
        (":9464", "127.0.0.1", "127.0.0.1:9464"),
        ("localhost:9464", "127.0.0.1", "127.0.0.1:9464"),
        ("0.0.0.0:9464", "0.0.0.0", "0.0.0.0:9464"),
        ("[::1]:9464", "::1", "[::1]:9464"),
    ],
)
def test_only_an_address_that_is_written_is_open_to_other_machines(written: object, host: str, again: str) -> None:
    assert parse_listen_address(written) == (host, 9464)
    assert format_listen_address((host, 9464)) == f'"{again}"'


def test_a_long_value_is_named_by_its_begin() -> None:
    assert quoted("x" * 100) == '"' + "x" * 39 + '…"'
