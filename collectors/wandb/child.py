"""The child process that runs the W&B SDK: requests on standard input, answers on standard output.

The SDK may hang, prompt, print and leak, and it starts wandb-core; here it is isolated. The child ends at the end of
its input, when its parent has ended, or when an answer is overdue. It removes wandb-core and its directory. One thread
calls the SDK; the other reads the requests and checks these conditions.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from collectors.wandb.convert import instant, is_fatal, request_failed
from collectors.wandb.wire import (
    REQUESTS,
    AnyAnswer,
    AnyRequest,
    ChildStarted,
    CoreStarted,
    RequestFailed,
    encode,
)
from trainmon.lib import Instant, Seconds

if TYPE_CHECKING:
    from collectors.wandb.sdk import Sdk

ANSWER_TIMEOUT: Seconds = 22.0
"""After this time the child answers in place of the SDK, and ends: the SDK waits for some answers forever. The parent
waits longer, because it does not know the reason. The first command line argument overrides this time."""

SDK_TIMEOUT_SHARE = 0.9
"""The SDK's timeout of one HTTP request, as a share of ANSWER_TIMEOUT: the SDK can then fail and continue."""

CHECK_EVERY: Seconds = 1.0
"""The interval between two checks of the parent and of the deadline."""

MAX_DIRECTORY_LENGTH = 50
"""The longest directory: the path of wandb-core's socket is 55 characters longer, and macOS allows 104."""

KEPT_VARIABLES = {
    "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_CREDENTIALS_FILE", "WANDB_CONFIG_DIR", "WANDB_BASE_URL",
    "WANDB_APP_URL", "WANDB_HTTP_PROXY", "WANDB_HTTPS_PROXY", "WANDB__PROXIES", "WANDB_X_EXTRA_HTTP_HEADERS",
    "WANDB__EXTRA_HTTP_HEADERS", "WANDB_INSECURE_DISABLE_SSL", "WANDB_USERNAME", "WANDB_USER_EMAIL",
}  # fmt: skip
"""The SDK's variables that are kept: account, server and proxy. The others are meant for a training."""

DIRECTORY_VARIABLES = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR", "TMPDIR")
"""Directories that the SDK writes to."""

FIXED_VARIABLES = {
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_HTTP_TIMEOUT": "60",  # wandb-core's own, longer than ours: it would resend a request after it
    # The parent does the back-off. 0 means 20 retries; the one retry comes after a second or after Retry-After.
    "WANDB__GRAPHQL_RETRY_MAX": "1",
    "WANDB__GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
    "WANDB__GRAPHQL_RETRY_WAIT_MAX_SECONDS": "1",
    "WANDB__FILE_TRANSFER_RETRY_MAX": "1",
    "WANDB__FILE_TRANSFER_RETRY_WAIT_MIN_SECONDS": "1",
    "WANDB__FILE_TRANSFER_RETRY_WAIT_MAX_SECONDS": "1",
}


REMOVE = 'trap "" HUP TERM; rm -rf -- "$0" 2> /dev/null; exit "$1"'
"""What the child becomes to remove its directory: no signal stops it, and its exit status is the child's."""


def environment(before: Mapping[str, str], directory: str) -> dict[str, str]:
    """The environment of the SDK."""
    kept = {name: value for name, value in before.items() if not name.startswith("WANDB_") or name in KEPT_VARIABLES}
    return kept | FIXED_VARIABLES | dict.fromkeys(DIRECTORY_VARIABLES, directory)


# ---- wandb-core's log --------------------------------------------------------------------------------------------

LOG_TAIL = 16_384
LOG_AT_MOST = 1 << 20
"""The maximum size of wandb-core's log in bytes."""


class LogLine(msgspec.Struct):
    """A line of wandb-core's log."""

    time: str = ""
    status: int | None = None


LOG_LINES = msgspec.json.Decoder(LogLine)


def last_status(directory: Path, since: Instant) -> int | None:
    """The HTTP status of the last request that wandb-core retries; None if there is none since then."""
    entries: list[tuple[Instant, int]] = []
    for log in _logs(directory):
        for text in log.read_bytes()[-LOG_TAIL:].splitlines():
            try:
                line = LOG_LINES.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # cut off at the start, or another format
            at = instant(line.time[:26] + "Z" if line.time.endswith("Z") else line.time)
            if line.status and at is not None and at >= since:
                entries.append((at, line.status))
    return sorted(entries, key=lambda entry: entry[0])[-1][1] if entries else None


def keep_small(directory: Path) -> None:
    """Empty a log that grew too large: wandb-core never rotates it."""
    for log in _logs(directory):
        if log.stat().st_size > LOG_AT_MOST:
            os.truncate(log, 0)


def _logs(directory: Path) -> list[Path]:
    return sorted((directory / "wandb" / "logs").glob("core-debug*.log"))


# ---- the process ----------------------------------------------------------------------------------------------------


class PendingRequest(NamedTuple):
    """The request that is in progress."""

    id: int
    started: Seconds
    at: Instant


class SdkServer:
    """The state that both threads share."""

    def __init__(self, requests: int, answers: int, directory: Path, timeout: Seconds) -> None:
        self._requests = requests
        self._answers = answers
        self._directory = directory
        self._timeout = timeout
        self._parent = os.getppid()
        self._queue: queue.SimpleQueue[AnyRequest] = queue.SimpleQueue()
        self._pending: PendingRequest | None = None
        self._lock = threading.Lock()
        self._ending = threading.RLock()
        self._core_pid: int | None = None
        self._sdk: Sdk | None = None

    def serve(self) -> NoReturn:
        """Answer the requests in turn, on the main thread."""
        try:
            is_broken = False
            while not is_broken:
                try:
                    request = self._queue.get(timeout=CHECK_EVERY)
                except queue.Empty:  # the timeout lets signals be handled that come just before the wait
                    continue
                pending = PendingRequest(request.id, time.monotonic(), time.time())
                with self._lock:
                    self._pending = pending
                try:
                    answer = encode(self._started_sdk().answer(request))
                except Exception as error:  # every error of the SDK becomes an answer
                    failure = self._failed(pending, error)
                    if failure.kind in ("key", "unauthorized", "forbidden") and self._sdk is not None:
                        self._sdk.forget()
                    answer, is_broken = encode(failure), is_fatal(error)
                self._complete(pending, answer)
                keep_small(self._directory)
        finally:
            self.end(1)

    def _failed(self, pending: PendingRequest, error: Exception) -> RequestFailed:
        """The error as an answer; for a timeout, the log of wandb-core may have the server's status."""
        key = os.environ.get("WANDB_API_KEY") or (self._sdk.key if self._sdk is not None else None)
        answer = request_failed(pending.id, error, key=key)
        if answer.kind != "slow":
            return answer
        return request_failed(pending.id, error, key=key, status=last_status(self._directory, pending.at))

    def _started_sdk(self) -> Sdk:
        """The SDK, imported with the first request. Its process is reported first, because the SDK may hang."""
        if self._sdk is None:
            from collectors.wandb import sdk

            self._core_pid = sdk.core_process()
            if self._core_pid is not None:
                self.send(CoreStarted(pid=self._core_pid))
            self._sdk = sdk.Sdk(self._directory, self._timeout * SDK_TIMEOUT_SHARE)
        return self._sdk

    def send(self, answer: AnyAnswer) -> None:
        with self._lock:
            self._write(encode(answer))

    def _complete(self, pending: PendingRequest, answer: bytes) -> bool:
        """Write the answer unless the request was already answered. Returns whether it was written."""
        with self._lock:
            if self._pending is not pending:
                return False
            self._pending = None
            self._write(answer)
            return True

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._answers, data) :]
        except OSError:
            self.end(0)  # the parent has ended

    def watch(self) -> NoReturn:
        """Read the requests and check the deadline, on the second thread."""
        rest = b""
        try:
            while os.getppid() == self._parent:
                if select.select([self._requests], [], [], CHECK_EVERY)[0]:
                    data = os.read(self._requests, 1 << 16)
                    if not data:
                        break
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        try:
                            self._queue.put(REQUESTS.decode(line))
                        except msgspec.DecodeError as error:
                            self.send(RequestFailed(kind="sdk", message=f"cannot read the request: {error}"))
                with self._lock:
                    pending = self._pending
                if pending is not None and time.monotonic() - pending.started >= self._timeout:
                    overdue = self._failed(pending, TimeoutError("no answer in time: timeout"))
                    if self._complete(pending, encode(overdue)):
                        self.end(1)
        except Exception:
            traceback.print_exc()
            self.end(1)
        self.end(0)

    def end(self, status: int) -> NoReturn:
        """Kill wandb-core and remove the directory. Python's normal exit would wait for the SDK. exec ends all threads
        first: the SDK's could make the directory anew.

        The first thread that ends the child decides the status: the other one may fail because the directory is gone.
        """
        self._ending.acquire()
        if self._core_pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._core_pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.execv("/bin/sh", ["sh", "-c", REMOVE, str(self._directory), str(status)])
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(status)


def main() -> NoReturn:
    # The pipes move to new descriptors: the SDK's standard input is empty, and its prints go to standard error.
    requests, answers = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    usual = tempfile.gettempdir()
    short = usual if len(usual) <= MAX_DIRECTORY_LENGTH else "/tmp"
    tempfile.tempdir = directory = tempfile.mkdtemp(prefix="trainmon-", dir=short)
    kept = environment(os.environ, directory)
    os.environ.clear()
    os.environ.update(kept)
    timeout = float(sys.argv[1]) if len(sys.argv) > 1 else ANSWER_TIMEOUT
    child = SdkServer(requests, answers, Path(directory), timeout)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C on the terminal is for the parent, which ends the child
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: child.end(0))
    child.send(ChildStarted(pid=os.getpid(), directory=directory))
    threading.Thread(target=child.watch, name="watch", daemon=True).start()
    child.serve()


if __name__ == "__main__":
    sys.exit(main())
