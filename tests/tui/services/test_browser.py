"""Opening a page: a real process, with a script as the browser."""

from __future__ import annotations

import queue
import stat
from pathlib import Path

import pytest

from tui.services.terminal import can_open, is_page, open_page

PAGE = "https://wandb.ai/team/project/runs/id3?nw=1&x='y'"


def test_over_ssh_no_browser_would_be_seen() -> None:
    assert not can_open({"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22", "DISPLAY": ":0"}, "linux")
    assert not can_open({"SSH_TTY": "/dev/pts/1"}, "darwin")


def test_on_linux_a_browser_needs_a_display_or_a_name() -> None:
    assert not can_open({}, "linux")
    assert all(can_open({name: "x"}, "linux") for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    assert can_open({}, "darwin")


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "-x https://a", "javascript:1", "https://a b", "https://a\n"]
)
def test_only_pages_of_the_web_are_opened(address: str) -> None:
    assert not is_page(address)
    assert is_page(PAGE)


def test_the_browser_gets_the_address_as_it_is_and_a_failure_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    received: queue.Queue[bool] = queue.Queue()
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho noise; echo noise >&2; printf %s "$1" > {tmp_path}/asked\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BROWSER", f"{browser} %s")

    open_page(PAGE, received.put)
    assert received.get(timeout=120)
    assert (tmp_path / "asked").read_text() == PAGE

    browser.write_text("#!/bin/sh\nexit 1\n")
    open_page(PAGE, received.put)
    assert not received.get(timeout=120)
    assert capfd.readouterr() == ("", ""), "nothing may be written into our screen"
