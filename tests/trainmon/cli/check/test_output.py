"""What `check` says of the ledger, and how its rows stand on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.lab.sshd import Sshd, until
from tests.lab.terminal import Terminal
from trainmon.cli.check.command import size_rows
from trainmon.config import Settings
from trainmon.config.schema import LedgerSettings


def test_the_size_of_the_ledger_and_how_long_it_keeps_entries_are_shown(tmp_path: Path) -> None:
    assert size_rows(Settings(), tmp_path) == [], "there is no ledger yet"
    (tmp_path / "ledger.sqlite").write_bytes(b"x" * 3 * 1024 * 1024)
    (tmp_path / "ledger.sqlite-wal").write_bytes(b"x" * 1024 * 1024)
    assert [row.text for row in size_rows(Settings(), tmp_path)] == ["4.0 MiB; entries are kept for 90d"]
    (row,) = size_rows(Settings(ledger=LedgerSettings(keep=30 * 86_400.0)), tmp_path)
    assert row.text == "4.0 MiB; entries are kept for 30d"


def test_no_row_stands_behind_the_count_of_hosts(tmp_path: Path) -> None:
    hosts = [f"no-{number}.invalid" for number in range(6)]
    environ = {"HOME": str(tmp_path), "TRAINMON_CONFIG": "", "LC_ALL": "C.UTF-8"}
    with Terminal([sys.executable, "-m", "trainmon", "check", *hosts], rows=60, env=environ) as terminal:
        assert terminal.wait() == 3
        rows = [line for line in terminal.text().splitlines() if "cannot be resolved" in line]
    assert [line.split()[:2] for line in rows] == [["✗", host] for host in hosts]


def test_nothing_is_printed_over_a_prompt(tmp_path: Path) -> None:
    options = {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"}
    with Sshd.start(tmp_path / "open") as sshd, Sshd.start(tmp_path / "asks", **options) as asks:
        extra = f"Host asks\n  HostName {asks.address(7)}\n  Port {asks.port}\n"
        extra += f"  UserKnownHostsFile {asks.known_hosts}\n"
        config = sshd.ssh_config(4, extra=extra)
        hosts = ("n0", "asks", "n1", "n2", "n3")
        environ = {"HOME": str(tmp_path), "TRAINMON_CONFIG": "", "LC_ALL": "C.UTF-8"}
        argv = [sys.executable, "-m", "trainmon", "check", f"--ssh-config={config}", *hosts]
        with Terminal(argv, rows=60, env=environ) as terminal:
            terminal.wait_for_text("'s password:")
            until(lambda: len(sshd.sessions()) >= 4, "the others are read meanwhile")
            lines = [line.rstrip() for line in terminal.text().rstrip().splitlines()]
            assert lines[-2:] == ["asks: Password", f"  {asks.user}@{asks.address(7)}'s password:"]
            terminal.keys("wrong\n")
            assert terminal.wait() == 3
            assert "✗ asks         login        the server refused the password" in terminal.text()
