"""What wandb-core's log tells of a request that it tries again, and that the log stays small."""

from __future__ import annotations

from pathlib import Path

from collectors.wandb.child.errors import LOG_AT_MOST, keep_small, last_status

NOON = 1769860800.0
LINES = """\
{"time":"2026-01-31T11:59:58.160690997Z","level":"INFO","msg":"api: retrying HTTP error","status":500}
{"time":"2026-01-31T12:00:03.402671415Z","level":"INFO","msg":"api: retrying HTTP error","status":429,"url":"http://w"}
{"time":"2026-01-31T12:00:04.410552677Z","level":"INFO","msg":"connection: cancelling request","id":"1(@)"}
cut off
"""


def a_log(directory: Path, text: str) -> Path:
    log = directory / "wandb" / "logs" / "core-debug-20260131_115900.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text, "utf-8")
    return log


def test_the_last_status_since_then_is_told(tmp_path: Path) -> None:
    a_log(tmp_path, LINES)
    assert last_status(tmp_path, NOON) == 429
    assert last_status(tmp_path, NOON - 60) == 429
    assert last_status(tmp_path, NOON + 3.5) is None


def test_no_log_tells_nothing(tmp_path: Path) -> None:
    assert last_status(tmp_path, NOON) is None


def test_a_log_that_has_grown_is_emptied(tmp_path: Path) -> None:
    log = a_log(tmp_path, LINES)
    keep_small(tmp_path)
    assert log.stat().st_size == len(LINES)
    log.write_bytes(b"x" * (LOG_AT_MOST + 1))
    keep_small(tmp_path)
    assert log.stat().st_size == 0
