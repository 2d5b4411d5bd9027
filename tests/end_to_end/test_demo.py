"""The demo in a terminal: it says what it is, something goes wrong, and every key does what it says."""

from __future__ import annotations

import re

import pytest

from tests.end_to_end.product import Product, is_restored

TROUBLE = r"LOST|HOT|THROTTLE|XID|hung|diverged|stalled|silent \d+s|✗"


def test_the_demo_says_so_and_something_goes_wrong_within_a_minute(product: Product) -> None:
    screen = product.screen("--demo", columns=200, rows=60)
    screen.until_shown("DEMO", r"ssh 1[0-6]/16")
    screen.until_shown(TROUBLE, seconds=90)
    assert screen.leave() < 2


def test_the_demo_is_never_shown_unasked_and_takes_no_hosts(product: Product) -> None:
    done = product.run("--demo", "n0")
    assert done.returncode == 2
    assert "takes no hosts" in done.stderr
    assert "DEMO" not in str(product.snapshot())


def test_every_key_does_what_it_says(product: Product) -> None:
    screen = product.screen("--demo")
    screen.until_shown("DEMO", "1 Runs", "2 GPUs", "3 Disk", "4 Log", "temp °C", r"ssh 1[0-6]/16")

    screen.keys("2")
    screen.until_shown("v Metric")
    for metric in ("mem", "util", "power", "err"):
        screen.keys("v")
        screen.until_line("2 GPUs", rf"(?i){metric}")
    screen.keys("z")
    screen.until_shown("zoomed")
    screen.until_gone("1 Runs")
    screen.keys("z")
    screen.until_shown("1 Runs")

    screen.keys("/gpu-003")
    screen.until_shown("filter GPUs")
    screen.keys("\r")
    screen.until_line("2 GPUs", "/gpu-003")
    screen.until_gone(" gpu-005 ")
    screen.keys("\x1b")
    screen.until_gone("/gpu-003")
    screen.keys("s")
    screen.until_shown("Order of GPUs", "severity", "temperature")
    screen.keys("j\r")
    screen.until_line("2 GPUs", "sort name")

    screen.keys("\r")
    screen.until_shown(r"GPUs [\w-]+", "Last hour", "margin")
    screen.keys("\x1b")
    screen.until_shown("1 Runs")

    screen.keys("3")
    screen.until_line("3 Disk", "sort")
    screen.keys("4")
    screen.until_shown("f Follow", "w Wrap")
    screen.keys("f")
    screen.until_line("4 Log", "held")
    screen.keys("w")
    screen.until_line("4 Log", "wrap")
    screen.keys("ff")
    screen.keys("1l")
    screen.until_gone("2 GPUs")
    screen.keys("\x1b")
    screen.until_shown("2 GPUs")

    screen.keys("?")
    screen.until_shown("(?i)help", "filter the rows")
    screen.keys("\x1b")
    screen.until_gone("filter the rows")
    screen.keys(":")
    screen.until_shown("next number in the cells|hold the screen still|choose the order")
    screen.keys("\x1b")
    screen.until_shown("q Quit")
    screen.keys("p")
    screen.until_shown("PAUSED")
    screen.keys("p")
    screen.until_gone("PAUSED")
    screen.keys("'")
    screen.until_gone("q Quit|zzzz")
    screen.keys("\x1b")
    screen.until_shown("q Quit")

    assert screen.leave() < 2
    assert is_restored(bytes(screen.screen))


COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def colours(raw: bytes) -> set[bytes]:
    """What sets a colour in what was written, by its parameters."""
    parameters = b";".join(found[2:-1] for found in COLOUR.findall(raw)).split(b";")
    return {one for one in parameters if one in {b"38", b"48"} or (one.isdigit() and 30 <= int(one) <= 47)}


@pytest.mark.parametrize(
    ("env", "many", "some"),
    [
        ({}, True, True),
        ({"TERM": "linux"}, False, True),
        ({"NO_COLOR": "1"}, False, False),
    ],
    ids=["xterm-256color", "linux", "NO_COLOR"],
)
def test_a_terminal_gets_only_the_colours_it_can_show(
    product: Product, env: dict[str, str], many: bool, some: bool
) -> None:
    screen = product.screen(**env)
    screen.until_shown("ssh 1/1", "1 Runs", "q Quit")
    assert screen.leave() < 2
    found = colours(bytes(screen.screen))
    assert bool(found & {b"38", b"48"}) is many
    assert bool(found) is some


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"TERM": "vt100"}])
def test_a_terminal_without_unicode_gets_ascii_alone(product: Product, env: dict[str, str]) -> None:
    screen = product.screen("--demo", columns=160, **env)
    screen.until_shown("DEMO", "1 Runs", "q Quit", r"ssh 1[0-6]/16")
    assert screen.leave() < 2
    assert bytes(screen.screen).isascii()
