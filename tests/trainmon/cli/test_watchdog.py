"""What a service manager hears, on a real datagram socket."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmon.cli.daemon import Watchdog, watchdog_period


class Manager:
    """The listening end."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(10)
        self.socket.bind(address)

    def hear(self) -> list[str]:
        return self.socket.recv(4096).decode().split("\n")

    def has_more(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            return False
        return True


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Manager, dict[str, str]]]:
    name = f"trainmon-test-{secrets.token_hex(8)}"
    address, shown_as = (f"\0{name}", f"@{name}") if request.param == "abstract" else (str(tmp_path / "s"),) * 2
    listening = Manager(address)
    yield listening, {"NOTIFY_SOCKET": shown_as, "WATCHDOG_USEC": "120000000", "WATCHDOG_PID": str(os.getpid())}
    listening.socket.close()


def test_systemd_is_notified_in_order(manager: tuple[Manager, dict[str, str]]) -> None:
    listening, environ = manager
    dog = Watchdog(environ)
    dog.ready("3 sources")
    dog.status("3 sources")
    dog.status("4 sources\nREADY=0")
    dog.feed(10.0)
    dog.feed(39.9)
    dog.feed(40.0)
    dog.reloading(41.5)
    dog.stopping("told to")
    received = [listening.hear() for _ in range(6)]
    assert received[:2] == [["READY=1", "STATUS=3 sources"], ["STATUS=4 sources READY=0"]]
    assert received[2:] == [
        ["WATCHDOG=1"], ["WATCHDOG=1"], ["RELOADING=1", "MONOTONIC_USEC=41500000"], ["STOPPING=1", "STATUS=told to"],
    ]  # fmt: skip
    assert not listening.has_more()


def test_another_processs_watchdog_is_not_ours_to_feed() -> None:
    wanted = {"WATCHDOG_USEC": "120000000"}
    assert watchdog_period(wanted, 7) == 30.0
    assert watchdog_period({**wanted, "WATCHDOG_PID": "7"}, 7) == 30.0
    assert watchdog_period({**wanted, "WATCHDOG_PID": "8"}, 7) is None
    assert watchdog_period({}, 7) is None
    assert watchdog_period({"WATCHDOG_USEC": "soon"}, 7) is None
    assert watchdog_period({"WATCHDOG_USEC": "0"}, 7) is None


def test_with_no_manager_or_a_dead_one_nothing_happens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    none = Watchdog({}, 7)
    none.ready("well")
    assert not none.is_there
    Watchdog({"NOTIFY_SOCKET": str(tmp_path / "gone")}, 7).ready("well")
    assert "the service manager cannot be notified" in caplog.text
