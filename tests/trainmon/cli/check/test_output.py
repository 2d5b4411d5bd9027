"""What `check` says of the ledger."""

from __future__ import annotations

from pathlib import Path

from trainmon.cli.check.command import size_rows
from trainmon.config import Settings
from trainmon.config.schema import LedgerSettings


def test_the_size_of_the_ledger_and_how_long_it_keeps_entries_are_shown(tmp_path: Path) -> None:
    assert size_rows(Settings(), tmp_path) == [], "there is no ledger yet"
    (tmp_path / "ledger.sqlite").write_bytes(b"x" * 3 * 1024 * 1024)
    (tmp_path / "ledger.sqlite-wal").write_bytes(b"x" * 1024 * 1024)
    assert [row.text for row in size_rows(Settings(), tmp_path)] == ["4.0 MiB; entries are kept for 90d0h"]
    (row,) = size_rows(Settings(ledger=LedgerSettings(keep=30 * 86_400.0)), tmp_path)
    assert row.text == "4.0 MiB; entries are kept for 30d0h"
