"""The dashboard on a real terminal: start, keys, every way out, and what it costs in bytes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tui.terminal import Terminal

LIVE = ("-m", "tests.tui.live")
WITH_ITS_END = ("-u", *LIVE)
"""Not forked: an interpreter of its own, which ends as that of the program does."""

RESTORED = {
    "alternate screen": (b"\x1b[?1049h", b"\x1b[?1049l"),
    "cursor": (b"\x1b[?25l", b"\x1b[?25h"),
    "mouse": (b"\x1b[?1003h", b"\x1b[?1003l"),
    "bracketed paste": (b"\x1b[?2004h", b"\x1b[?2004l"),
}
"""What was switched on, and what switches it off again."""


def left_over(terminal: Terminal) -> list[str]:
    """What the program changed on the terminal and did not put back."""
    seen = terminal.bytes
    return [name for name, (on, off) in RESTORED.items() if seen.rfind(on) > seen.rfind(off)]


def press_q(terminal: Terminal) -> None:
    terminal.press("q")


def press_a_key_that_raises(terminal: Terminal) -> None:
    terminal.press("B")


def terminate(terminal: Terminal) -> None:
    terminal.send(signal.SIGTERM)


def hang_up(terminal: Terminal) -> None:
    terminal.send(signal.SIGHUP)


@pytest.mark.parametrize(
    ("way_out", "code"), [(press_q, 0), (terminate, 143), (hang_up, 129), (press_a_key_that_raises, 1)]
)
def test_every_way_out_restores_the_terminal_and_waits_for_no_hung_host(
    way_out: Callable[[Terminal], None], code: int
) -> None:
    with Terminal(*WITH_ITS_END, "troubled", "--hang", "--break-on", "B") as terminal:
        assert terminal.shows("llm-7b-a"), terminal.text
        assert terminal.shows("q Quit")
        way_out(terminal)

        assert terminal.ends(5.0)  # the host hangs for ever
        assert terminal.code == code
        assert left_over(terminal) == []


def test_a_lost_connection_ends_it() -> None:
    with Terminal(*WITH_ITS_END, "calm", "--hang") as terminal:
        assert terminal.shows("q Quit")
        terminal.hang_up()

        assert terminal.ends(5.0)


def test_a_crash_shows_the_error_and_no_local_variables() -> None:
    with Terminal(*LIVE, "calm", "--break-on", "B") as terminal:
        assert terminal.shows("q Quit")
        terminal.press("B")

        assert terminal.ends()
        assert b"RuntimeError" in terminal.bytes
        assert b"secret-in-a-local" not in terminal.bytes


def test_keys_move_open_and_close_on_a_real_terminal() -> None:
    with Terminal(*LIVE, "troubled", size=(80, 24)) as terminal:
        assert terminal.shows("q Quit")
        terminal.press("j")
        assert terminal.shows("4 Log abl-3")
        terminal.press("2")
        assert terminal.shows("2 GPUs")
        terminal.press("?")
        assert terminal.shows("Keys  actions show a plan first")
        terminal.press("\x1b")
        assert terminal.until(lambda: "Keys  actions" not in terminal.text)
        terminal.press("\x03")
        assert terminal.shows("q quits")
        terminal.press("q")
        assert terminal.ends()


def test_a_calm_screen_sends_next_to_nothing() -> None:
    with Terminal(*LIVE, "calm") as terminal:
        assert terminal.shows("q Quit")
        terminal.until(lambda: terminal.read(0.5) == b"")
        before = len(terminal.bytes)
        terminal.until(lambda: False, 3.0)

        assert (len(terminal.bytes) - before) / 3.0 <= 100.0


@pytest.mark.parametrize(
    "env",
    [
        {"NO_COLOR": "1"},
        {"TERM": "linux", "COLORTERM": "", "TEXTUAL_COLOR_SYSTEM": "standard"},
        {"TERM": "screen", "COLORTERM": ""},
    ],
    ids=["no-color", "16-colours", "screen"],
)
def test_colour_is_never_the_only_sign(env: dict[str, str]) -> None:
    with Terminal(*LIVE, "troubled", env=env) as terminal:
        assert terminal.shows("q Quit")

        for sign in ("›▲ llm-7b-a", "11m!", "nan!", "HOT", "hung", "diverged", "SAVE"):
            assert terminal.shows(sign), sign


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "LANG": "C"}, {"TRAINMON_ASCII": "1"}], ids=["c-locale", "asked"])
def test_without_unicode_every_byte_is_ascii(env: dict[str, str]) -> None:
    with Terminal(*LIVE, "troubled", env=env) as terminal:
        assert terminal.shows("q Quit")
        assert terminal.shows(">! llm-7b-a")
        assert terminal.bytes.isascii()


def test_what_strangers_wrote_never_controls_the_terminal() -> None:
    with Terminal(*LIVE, "nasty") as terminal:
        assert terminal.shows("q Quit")
        terminal.press("l")
        assert terminal.shows("f Follow")
        assert terminal.until(lambda: "1 Runs" not in terminal.text)
        assert terminal.shows("[bold red]not markup[/]")
        terminal.press("\x1b")
        assert terminal.shows("1 Runs")
        terminal.press("2")
        assert terminal.shows("v View")
        terminal.press("\r")
        assert terminal.shows("GPUs gpu-001")

        assert b"\x1b]0;title" not in terminal.bytes
        assert b"\x1b[31mred" not in terminal.bytes
        assert b"\x9b2J" not in terminal.bytes
        assert "title" not in terminal.screen.title


def shell(folder: Path, **env: str) -> Terminal:
    """An interactive shell with job control."""
    (folder / "rc").write_text(f"""\
bind 'set enable-bracketed-paste off'
PS1='$ '
dashboard() {{ {sys.executable} -m tests.tui.live "$@"; }}
""")
    start = "import os, sys; os.execvp('bash', ['bash', '--rcfile', sys.argv[1], '-i'])"
    return Terminal("-c", start, str(folder / "rc"), env=env)


@pytest.mark.parametrize("before", ["", "?", "S"], ids=["panes", "help", "plan"])
def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_draws_the_screen_again(before: str, tmp_path: Path) -> None:
    with shell(tmp_path) as terminal:
        terminal.press("dashboard troubled\n")
        assert terminal.shows("q Quit")
        terminal.press(before)
        assert not before or terminal.shows("Esc closes")
        terminal.press("\x1a")
        assert terminal.shows("trainmon-tui is stopped; fg continues it")
        assert terminal.shows("Stopped")
        assert left_over(terminal) == []
        terminal.press("echo $((6 * 7))\n")
        assert terminal.shows("42")
        terminal.press("bg\n")  # a background job may not draw: it stops again
        terminal.press("sleep 0.5; jobs\n")
        assert terminal.until(lambda: terminal.text.count("Stopped") > 1), terminal.text
        terminal.press("fg\n")
        assert terminal.shows("1 Runs")
        assert not before or terminal.shows("Esc closes")
        terminal.press("\x11")
        assert terminal.shows("$ ")
        assert left_over(terminal) == []


def test_without_a_shell_that_could_continue_it_ctrl_z_stops_nothing() -> None:
    with Terminal(*LIVE, "calm") as terminal:
        assert terminal.shows("q Quit")
        terminal.press("\x1a")
        assert terminal.shows("it was not suspended")
        terminal.press("q")
        assert terminal.ends()
        assert left_over(terminal) == []


SSH = """\
#!/bin/sh
printf '<%s>' "$@"
read line
echo "got $line"
exit $line
"""


@pytest.mark.parametrize("ends", ["0", "7", "255"])
def test_ssh_has_the_terminal_until_it_ends(ends: str, tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    with Terminal(*LIVE, "calm", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}) as terminal:
        assert terminal.shows("q Quit")
        terminal.press("2!")
        assert terminal.shows("<-F><a file; echo no><--><gpu-001>")
        assert left_over(terminal) == []
        if ends == "0":
            terminal.press("\x03")  # for ssh: the dashboard outlives it
        else:
            terminal.press(f"{ends}\n")
        if ends == "255":
            assert terminal.shows("ssh has failed. Enter returns to the dashboard.")
            terminal.press("\n")
        assert terminal.shows("v View")
        terminal.press("q")
        assert terminal.ends()
        assert (terminal.code, left_over(terminal)) == (0, [])
