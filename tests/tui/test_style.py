"""Numbers, ages and states as short texts."""

from __future__ import annotations

import math

import pytest

from trainmon.model import Disk, Gpu, Source
from tui import style as fmt
from tui.style import Span
from tui.views.nodes import METRICS

HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (87, "87"), (999, "999"), (1_000, "1.0k"), (9_949, "9.9k"), (9_960, "10k"), (412_300, "412k"),
        (999_499, "999k"), (999_600, "1.0M"), (1_900_000, "1.9M"), (2.5e12, "2.5T"), (-1_500, "-1.5k"),
        (None, "?"), (math.nan, "nan"), (math.inf, "inf"), (5e21, "5000E"),
    ],
)  # fmt: skip
def test_numbers_take_four_cells_or_so(value: float | None, text: str) -> None:
    assert fmt.short(value) == text


def test_memory_is_shown_in_the_unit_that_fits() -> None:
    assert [fmt.mib(value) for value in (0, 512, 80_000, None)] == ["0B", "512M", "78G", "?"]


def test_counts_have_thousands() -> None:
    assert (fmt.count(12_880), fmt.count(None)) == ("12,880", "?")


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(39, 100, "39%"), (1, 1e6, "1%"), (0, 5, "0%"), (999, 1000, "99%"), (5, 5, "100%"), (None, 5, "?"), (1, 0, "?")],
)
def test_a_percentage_is_not_rounded_to_none_or_all(part: float | None, whole: float | None, text: str) -> None:
    assert fmt.percent(part, whole) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.8744, "1.874"), (0.0, "0.000"), (math.nan, "nan"), (123_456.0, "1.2e+05"), (2e-5, "2.0e-05"), (None, "?")],
)
def test_a_loss_keeps_three_digits_or_an_exponent(value: float | None, text: str) -> None:
    assert fmt.real(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (6.9, "6s"), (59.9, "59s"), (60, "1m"), (11 * 60, "11m"), (2 * HOUR, "2h"), (47 * HOUR, "47h"),
     (3 * DAY, "3d"), (None, "?")],
)  # fmt: skip
def test_ages(seconds: float | None, text: str) -> None:
    assert fmt.age(seconds) == text


def test_an_age_that_would_tick_every_second_moves_every_ten() -> None:
    assert [fmt.calm_age(seconds) for seconds in (4.0, 9.9, 10.0, 42.0, 61.0)] == ["4s", "9s", "10s", "40s", "1m"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.312, "0.31s"), (4.1, "4.1s"), (52.4, "52s"), (45 * 60, "45m"), (3 * HOUR + 600, "3h10m"),
     (17 * HOUR + 44 * 60, "17h44m"), (4 * DAY + 6 * HOUR, "4d6h"), (None, "?"), (71.7 * 3600, "2d23h"),
     (HOUR, "1h"), (99 * 60, "1h39m"), (24 * HOUR, "1d"),
     (30 * DAY, "30d")],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert fmt.duration(seconds) == text


def test_time_to_full_warns_early_and_says_when_it_is_far_off() -> None:
    now = 1000.0
    assert fmt.full_in(None, now) == Span("-", "dim")
    assert fmt.full_in(now + 5 * HOUR, now) == Span("5h!", "crit")
    assert fmt.full_in(now + 30 * HOUR, now) == Span("30h!", "warn")
    assert fmt.full_in(now + 9 * DAY, now) == Span("9d")
    assert fmt.full_in(now + 31 * DAY, now) == Span(">30d", "dim")
    assert fmt.full_in(now - 5, now) == Span("0s!", "crit")


def test_what_is_left_until_an_instant() -> None:
    assert (fmt.eta(None, 0.0), fmt.eta(7200.0, 0.0), fmt.eta(-5.0, 0.0)) == ("-", "2h", "0.00s")


@pytest.mark.parametrize(
    ("gpu", "span"),
    [
        (Gpu(index=0), Span("? ", "dim")),
        (Gpu(index=0, temperature_c=61), Span("61 ", "")),
        (Gpu(index=0, temperature_c=86), Span("86!", "warn")),
        (Gpu(index=0, temperature_c=94), Span("94!", "crit")),
        (Gpu(index=0, temperature_c=94, temperature_margin_c=6), Span("94 ", "")),
        (Gpu(index=0, temperature_c=70, temperature_margin_c=5), Span("70!", "warn")),
        (Gpu(index=0, temperature_c=70, temperature_margin_c=0), Span("70!", "crit")),
        (Gpu(index=0, temperature_c=70, throttle=("hw_thermal",)), Span("70!", "crit")),
    ],
)
def test_heat_goes_by_the_margin_first_and_is_marked_without_colour(gpu: Gpu, span: Span) -> None:
    assert METRICS[1].cell(gpu) == span


def test_an_ordinary_power_cap_is_not_a_trouble() -> None:
    assert fmt.slowing(("idle", "sw_power_cap", "hw_power_brake")) == ("hw_power_brake",)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"phase": "held", "health": "down", "error": "key refused"}, "login needed: press L (key refused)"),
        ({"phase": "held", "error": "refuses the login of ana", "can_log_in": False}, "refuses the login of ana"),
        ({"phase": "off", "health": "off", "error": "needs a password"}, "press L to log in (needs a password)"),
        ({"phase": "off", "health": "off", "error": "no answer", "can_log_in": False}, "no answer"),
        (
            {"phase": "retrying", "health": "down", "error": "no answer in 10s", "answered_at": 58.0},
            "late 40s: no answer in 10s",
        ),
        ({"phase": "retrying", "health": "down", "error": "no route to host"}, "no route to host"),
        ({"phase": "connecting"}, "connecting"),
        ({"phase": "waiting"}, "waiting to connect"),
        ({"phase": "waiting", "via": "prometheus:prod:dcgm"}, "waiting for Prometheus"),
        ({"phase": "up", "health": "late", "answered_at": 91.0}, "late 9s"),
        ({"phase": "connecting", "answered_at": 91.0}, "reconnecting 9s"),
        ({"phase": "off", "health": "off"}, "not watched"),
    ],
)
def test_a_source_that_is_silent_says_why(source: dict[str, object], words: str) -> None:
    made = Source(name="node:a", kind="node", cluster="c", **source)  # type: ignore[arg-type]
    assert fmt.source_text(made, 100.0).text == words


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"phase": "waiting"}, "waiting for Prometheus: no answer within 10s"),
        ({"phase": "up", "answered_at": 80.0}, "late 20s: Prometheus: no answer within 10s"),
    ],
)
def test_a_node_is_late_because_its_server_fails(source: dict[str, object], words: str) -> None:
    made = Source(name="node:a", kind="node", cluster="c", via="prometheus:c:dcgm", **source)  # type: ignore[arg-type]
    server = Source(name="prometheus:c:dcgm", kind="prometheus", cluster="c", error="no answer within 10s")
    assert fmt.source_text(made, 100.0, server).text == words


def test_shares_of_a_disk_are_unknown_without_its_numbers() -> None:
    disk = Disk(host="a", cluster="c", path="/", at=0.0, total_bytes=100, free_bytes=25)
    assert (fmt.bytes_used(disk), fmt.inodes_used(disk)) == (0.75, None)
