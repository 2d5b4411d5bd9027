"""Our own log: private, bounded, without secrets, and no reason not to start."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import QUICK
from trainmon.runtime import logs


@pytest.fixture(autouse=True)
def _root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def flushed() -> None:
    for handler in logging.getLogger().handlers:
        handler.flush()


def test_it_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    file = logs.log_to_file({"XDG_STATE_HOME": str(tmp_path)})
    assert file == tmp_path / "trainmon-tui" / "trainmon.log"
    logging.getLogger("trainmon.x").warning(
        "refused: token=%s at https://me:%s@host/", "tk_0123456789abcdef", "hunter2"
    )
    flushed()
    text = file.read_text()
    assert "refused" in text
    assert "hunter2" not in text
    assert "tk_0123456789abcdef" not in text
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_it_is_bounded(tmp_path: Path) -> None:
    file = logs.log_to_file({"XDG_STATE_HOME": str(tmp_path)})
    assert file is not None
    for _ in range(25):
        logging.getLogger("x").warning("y" * 100_000)
    flushed()
    assert sum(path.stat().st_size for path in file.parent.iterdir()) <= 2 * logs.BYTES_AT_MOST
    assert {path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {0o600}


def test_a_home_that_cannot_be_written_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert logs.log_to_file({"XDG_STATE_HOME": str(tmp_path / "file")}) is None


def test_a_disk_that_hangs_keeps_nobody_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "trainmon-tui" / "trainmon.log"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # nobody reads: it is full after 64 KiB
    logs.log_to_file({"XDG_STATE_HOME": str(tmp_path)})
    started = time.monotonic()
    for number in range(1_500):
        logging.getLogger("x").warning("%d %s", number, "y" * 400)
    flushed()
    assert time.monotonic() - started < QUICK
    text = b""
    deadline = time.monotonic() + 120
    while b" lost before this" not in text and time.monotonic() < deadline:
        try:
            text += os.read(reader, 1 << 16)
        except BlockingIOError:
            logging.getLogger("x").warning("after")
            flushed()
    os.close(reader)
    assert b" lost before this)" in text
