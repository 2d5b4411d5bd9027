"""The errors of W&B's client as the operator reads them: which kind, which words, what to do; the key in none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from collectors.wandb.child import LOG_AT_MOST, keep_small, last_status
from collectors.wandb.convert import NotFound, is_fatal, request_failed


class SdkError(Exception):
    """As the SDK raises it: what wandb-core answered is in `response`."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.response = SimpleNamespace(message=message, http_status=status)


@pytest.mark.parametrize(
    ("message", "status", "kind", "words"),
    [
        ("user is not logged in", 401, "unauthorized", "W&B rejects the API key (401): user is not logged in"),
        ("permission denied", 403, "forbidden", "this W&B account has no access (403): permission denied"),
        ("permission denied", 0, "forbidden", "this W&B account has no access: permission denied"),
        (
            "API key cannot start or end with whitespace", 0, "key",
            "no API key for W&B: API key cannot start or end with whitespace",
        ),
        ("run not found", 404, "absent", "run not found"),
        (
            "POST http://w/graphql giving up after 2 attempt(s)\nwhile retrying: HTTP 429: rate limit exceeded", 0,
            "busy", "W&B limits the request rate (429)",
        ),
        (
            "POST http://w/graphql giving up after 2 attempt(s)\nwhile retrying: HTTP 502: <html>", 0,
            "server", "W&B's server failed (502)",
        ),
        (
            "POST http://w/graphql giving up after 2 attempt(s)\nwhile retrying: dial tcp: lookup w: no such host", 0,
            "unreachable", "W&B cannot be reached: dial tcp: lookup w: no such host",
        ),
        (
            "tls: failed to verify certificate: x509: certificate signed by unknown authority", 0, "unreachable",
            "W&B cannot be reached: tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
        (
            "Failed to execute API request: the service process is busy and did not respond in time.", 0, "slow",
            "W&B did not answer in time",
        ),
        ("upstream took too long", 504, "slow", "W&B did not answer in time (504)"),
        ("Could not find project timeout", 0, "absent", "Could not find project timeout"),
        ("Cannot query field \"x\" on type \"Run\".", 400, "sdk", 'Cannot query field "x" on type "Run".'),
    ],
)  # fmt: skip
def test_the_status_decides_and_else_the_words(message: str, status: int, kind: str, words: str) -> None:
    failure = request_failed(7, SdkError(message, status))
    assert (failure.id, failure.kind, failure.message) == (7, kind, words)


def test_an_error_with_a_cause_is_reported_by_its_cause() -> None:
    error = RuntimeError("Failed to verify credentials with http://w: user is not logged in")
    error.__cause__ = SdkError("user is not logged in", 401)
    failure = request_failed(1, error)
    assert (failure.kind, failure.message) == ("unauthorized", "W&B rejects the API key (401): user is not logged in")


def test_an_error_of_our_own_says_what_it_says() -> None:
    failure = request_failed(1, NotFound("team/video/ab12 has no file a.png, or has not uploaded it yet"))
    assert failure.kind == "absent"
    assert failure.message == "team/video/ab12 has no file a.png, or has not uploaded it yet"


def test_a_directory_that_may_not_be_written_to_is_no_refusal_of_w_and_b() -> None:
    failure = request_failed(1, PermissionError(13, "Permission denied", "/samples"))
    assert (failure.kind, failure.message) == ("sdk", "[Errno 13] Permission denied: '/samples'")


def test_the_key_and_control_characters_are_in_no_words() -> None:
    failure = request_failed(1, ValueError("odd \x1b[31mkey 0123456789secret"), key="0123456789secret")
    assert failure.message == "odd key ***"


def test_words_are_short() -> None:
    assert len(request_failed(1, ValueError("x" * 10_000)).message) == 300


def test_a_status_that_is_known_otherwise_decides_where_the_error_has_none() -> None:
    silent = TimeoutError("no answer in time: timeout")
    assert request_failed(1, silent).kind == "slow"
    assert request_failed(1, silent, status=429).kind == "busy"
    assert request_failed(1, SdkError("gone", 404), status=429).kind == "absent"


def test_an_sdk_without_its_own_process_is_of_no_use() -> None:
    assert is_fatal(SdkError("Failed to execute API request: the service process is not running."))
    assert is_fatal(BrokenPipeError())
    assert not is_fatal(SdkError("permission denied", 403))


def test_a_key_of_blanks_is_no_word_to_mask() -> None:
    assert request_failed(1, SdkError("two words"), key=" ").message == "two words"


# ---- wandb-core's log --------------------------------------------------------------------------------------------

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


def test_the_last_status_since_then_is_found(tmp_path: Path) -> None:
    a_log(tmp_path, LINES)
    assert last_status(tmp_path, NOON) == 429
    assert last_status(tmp_path, NOON - 60) == 429
    assert last_status(tmp_path, NOON + 3.5) is None


def test_without_a_log_there_is_no_status(tmp_path: Path) -> None:
    assert last_status(tmp_path, NOON) is None


def test_a_log_that_has_grown_is_emptied(tmp_path: Path) -> None:
    log = a_log(tmp_path, LINES)
    keep_small(tmp_path)
    assert log.stat().st_size == len(LINES)
    log.write_bytes(b"x" * (LOG_AT_MOST + 1))
    keep_small(tmp_path)
    assert log.stat().st_size == 0
