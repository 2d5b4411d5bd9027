"""Questions of a login on a plain terminal."""

from __future__ import annotations

import sys
import termios

from tests.lab.terminal import Terminal

SCRIPT = """
from trainmon.cli.terminal import ask_on_terminal
fields = (("Passcode: ", True), ("Password:", False))
answers = ask_on_terminal("login1", "Two-factor", "push sent\\x1b[2J to 7", fields)
print("got", len(answers[0]), len(answers[1]) if answers else None)
"""


def test_a_secret_is_not_echoed_and_the_hosts_words_are_made_safe() -> None:
    with Terminal([sys.executable, "-c", SCRIPT]) as terminal:
        terminal.wait_for(b"Passcode: ")
        terminal.keys("123456\n")
        terminal.wait_for(b"Password: ")
        terminal.keys("hunter2\n")
        terminal.wait_for(b"got 6 7")
        assert terminal.wait() == 0
        assert b"login1: Two-factor\r\n  push sent to 7\r\n" in terminal.screen
        assert b"123456" in terminal.screen
        assert b"hunter2" not in terminal.screen


INTERRUPTED = """
import threading
from trainmon.cli.terminal import ask_on_terminal
prompt = ("login1", "Login", "", (("Password:", False),))
thread = threading.Thread(target=ask_on_terminal, args=prompt, daemon=True)
thread.start()
thread.join()
"""


def test_ctrl_c_at_a_password_leaves_a_terminal_that_echoes() -> None:
    with Terminal([sys.executable, "-c", INTERRUPTED]) as terminal:
        terminal.wait_for(b"Password: ")
        assert not termios.tcgetattr(terminal._master)[3] & termios.ECHO
        terminal.keys("\x03")
        assert terminal.wait() != 0
        assert termios.tcgetattr(terminal._master)[3] & termios.ECHO
