"""What a terminal is asked before the dashboard starts."""

from __future__ import annotations

import os
import termios
import threading

import pytest

from trainmon.cli.terminal import ASK_BACKGROUND, asked_background

KIND = b"\x1b[?62;22c"
XTERM = {"TERM": "xterm-256color"}


def told(answer: bytes, environ: dict[str, str] = XTERM) -> tuple[bool, str]:
    """What is found of a terminal that answers this: whether it is light, and what was typed."""
    master, slave = os.openpty()
    asked = threading.Thread(target=lambda: (os.read(master, len(ASK_BACKGROUND)), os.write(master, answer)))
    before = termios.tcgetattr(slave)
    try:
        with asked_background(environ, slave, slave) as answered:
            if answer:
                asked.start()
            found = answered()
        assert termios.tcgetattr(slave) == before, "the terminal is as it was"
        return found
    finally:
        os.close(slave)
        os.close(master)


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        (b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\" + KIND, True),
        (b"\x1b]11;rgb:fdfd/f6f6/e3e3\x07" + KIND, True),
        (b"\x1b]11;rgb:0000/2b2b/3636\x1b\\" + KIND, False),
        (KIND, False),
        (b"", False),
    ],
)
def test_the_background_is_what_the_terminal_says(answer: bytes, light: bool) -> None:
    assert told(answer) == (light, "")


@pytest.mark.parametrize("background", [b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", b"\x1b]11;rgb:ffff/ffff/ffff\x07", b""])
def test_what_was_typed_before_the_start_is_not_taken_for_the_answer(background: bytes) -> None:
    typed = "2/é\x1b[A"
    assert told(b"2/" + background + "é\x1b[A".encode() + KIND) == (background != b"", typed)
    assert told(b"/llm\n") == (False, "/llm\r"), "Enter, and a terminal that does not answer"


@pytest.mark.parametrize(
    ("environ", "light"),
    [({"COLORFGBG": "0;15"}, True), ({"COLORFGBG": "15;default;0"}, False), ({"TERM": "linux"}, False)],
)
def test_a_terminal_is_not_asked_what_the_environment_says(environ: dict[str, str], light: bool) -> None:
    assert told(b"", {**XTERM, **environ}) == (light, "")
