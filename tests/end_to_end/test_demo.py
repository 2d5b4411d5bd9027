"""The demo in a terminal: it says what it is, something goes wrong, and every key does what it says."""

from __future__ import annotations

import re

import pytest

from tests.end_to_end.product import PATIENCE, QUICK, Product, is_restored

TROUBLE = r"LOST|HOT|THROTTLE|XID|hung|diverged|stalled|late \d+s: |✗"


def test_the_demo_is_shown_only_on_request_and_takes_no_hosts(product: Product) -> None:
    screen = product.screen("n0", "--demo")
    assert screen.wait(PATIENCE) == 2
    screen.until_shown("remove the hosts")
    assert "DEMO" not in str(product.snapshot())


def test_every_key_does_what_it_says_and_something_goes_wrong_within_a_minute(product: Product) -> None:
    screen = product.screen("--demo")
    screen.until_shown("DEMO", "1 Runs", "2 GPUs", "3 Disk", "4 Log", "util %", r"ssh 1[0-6]/16")

    screen.keys("2")
    screen.until_shown("v View")
    for metric in ("temp", "mem", "power", "err", "users", "jobs", "util"):
        screen.keys("v")
        screen.until_line("2 GPUs", rf"(?i){metric}")
    screen.keys("z")
    screen.until_shown("zoomed")
    screen.until_gone("1 Runs")
    screen.keys("z")
    screen.until_shown("1 Runs")

    screen.keys("/")
    screen.until_shown("filter GPUs")
    screen.keys("gpu-003\r")
    screen.until_line("2 GPUs", "/gpu-003")
    screen.until_gone(" gpu-005 ")
    screen.keys("\x1b")
    screen.until_gone("/gpu-003")
    screen.keys("s")
    screen.until_shown("Sort GPUs by", "worst", "temp")
    screen.keys("j\r")
    screen.until_line("2 GPUs", "sort node")

    screen.keys("\r")
    screen.until_shown(r"GPUs [\w-]+", "Last hour", "margin")
    screen.keys("\x1b")
    screen.until_shown("1 Runs")

    screen.keys("3")
    screen.until_line("3 Disk", "sort")
    screen.keys("4")
    screen.until_shown("f Follow", "w Wrap")
    screen.keys("f")
    screen.until_line("4 Log", "paused")
    screen.keys("w")
    screen.until_line("4 Log", "wrap")
    screen.keys("f")
    screen.until_line("4 Log", "follow")
    screen.keys("l")
    screen.until_gone("2 GPUs")
    screen.keys("\x1b")
    screen.until_shown("2 GPUs")

    screen.keys("6")
    screen.until_line("6 Charts", "by step")
    screen.until_shown("running  heartbeat")
    screen.keys("e")
    screen.until_line("6 Charts", "log")
    screen.keys("et")
    screen.until_line("6 Charts", "by time")
    screen.keys("t4")
    screen.until_shown("f Follow")

    screen.keys("?")
    screen.until_shown("On this screen", "search in the log")
    screen.keys("\x1b")
    screen.until_gone("On this screen")
    screen.keys(":")
    screen.until_shown("pause the screen")
    screen.keys("\x1b")
    screen.until_gone("pause the screen")
    screen.keys("p")
    screen.until_shown("PAUSED")
    screen.keys("p")
    screen.until_gone("PAUSED")
    screen.keys("'")
    screen.until_shown("─ [asdfg] ")
    screen.keys("\x1b")
    screen.until_gone("─ [asdfg] ")

    screen.until_shown(TROUBLE, seconds=90)
    assert screen.leave() < QUICK
    assert is_restored(bytes(screen.screen))


GREYS = {16, 59, 102, 145, 188, 231, *range(232, 256)}
"""Of the 256 colours: with NO_COLOR, brightness is left as a sign."""


def colours(raw: bytes) -> tuple[set[int], set[int]]:
    """What was used of the 256 colours, and of the 16 (30 to 37, 40 to 47)."""
    of_256 = {int(number) for number in re.findall(rb"[34]8;5;(\d+)", raw)}
    plain = re.sub(rb"[34]8;5;\d+", b"", raw)
    styles = b";".join(re.findall(rb"\x1b\[([0-9;]*)m", plain)).split(b";")
    return of_256, {int(one) for one in styles if one.isdigit() and int(one) in {*range(30, 38), *range(40, 48)}}


@pytest.mark.parametrize(
    ("env", "many", "grey"),
    [({}, True, False), ({"TERM": "linux"}, False, False), ({"NO_COLOR": "1"}, True, True)],
    ids=["xterm-256color", "linux", "NO_COLOR"],
)
def test_a_terminal_gets_only_the_colours_it_can_show(
    product: Product, env: dict[str, str], many: bool, grey: bool
) -> None:
    screen = product.screen(**env)
    screen.until_shown("ssh 1/1", "1 Runs", "q Quit")
    assert screen.leave() < QUICK
    of_256, of_16 = colours(bytes(screen.screen))
    assert bool(of_256) is many
    assert bool(of_16) is not many
    assert (of_256 <= GREYS) is (grey or not many)


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"TERM": "vt100"}])
def test_a_terminal_without_unicode_gets_ascii_alone(product: Product, env: dict[str, str]) -> None:
    screen = product.screen("--demo", columns=160, **env)
    screen.until_shown("DEMO", "1 Runs", "q Quit", r"ssh 1[0-6]/16")
    assert screen.leave() < QUICK
    assert bytes(screen.screen).isascii()
