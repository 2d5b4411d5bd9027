"""The process that speaks with W&B: `python -m collectors.wandb.child`, requests on standard input, answers on output.

The SDK may hang, prompt, print and leak, and it starts a process of its own; here it does all that alone. It ends at
the end of its input, or when its parent is gone, or when an answer is overdue; wandb-core and the directory that both
write to go with it. One thread speaks with the SDK, the other reads the requests and sees to that.
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

from collectors.wandb.child.core_log import keep_small, last_status
from collectors.wandb.child.errors import failed, is_fatal
from collectors.wandb.wire import (
    AnyAnswer,
    AnyRequest,
    ChildStarted,
    CoreStarted,
    RequestFailed,
    decode_request,
    encode,
)
from trainmon.lib import Instant, Seconds

if TYPE_CHECKING:
    from collectors.wandb.child.sdk import Sdk

ANSWER_WITHIN: Seconds = 22.0
"""When a request is answered in the SDK's stead, and this process ends: for some answers the SDK waits for ever. Less
than our parent waits, who could not say why. A first argument is another."""

SDK_WITHIN = 0.9
"""The SDK's own limit for one HTTP request is this part of it: it can give up and go on."""

LOOK_EVERY: Seconds = 1.0
"""How soon a parent that is gone, and an overdue answer, are noticed."""

SHORT = 50
"""The longest directory: wandb-core's socket is 55 characters deeper, and macOS takes 104."""

KEPT = {
    "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_CREDENTIALS_FILE", "WANDB_CONFIG_DIR", "WANDB_BASE_URL",
    "WANDB_APP_URL", "WANDB_HTTP_PROXY", "WANDB_HTTPS_PROXY", "WANDB__PROXIES", "WANDB_X_EXTRA_HTTP_HEADERS",
    "WANDB__EXTRA_HTTP_HEADERS", "WANDB_INSECURE_DISABLE_SSL", "WANDB_USERNAME", "WANDB_USER_EMAIL",
}  # fmt: skip
"""Of what is set for the SDK: who asks whom, and by which way. The rest is meant for a training."""

OWN = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR", "TMPDIR")
"""Where the SDK writes."""

SET = {
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_HTTP_TIMEOUT": "60",  # wandb-core's own; ours is shorter, and a request that ran into it would be sent again
    # Back-off is our parent's. 0 means 20 retries; the one retry comes a second later, and as the server wishes.
    "WANDB__GRAPHQL_RETRY_MAX": "1",
    "WANDB__GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
    "WANDB__GRAPHQL_RETRY_WAIT_MAX_SECONDS": "1",
    "WANDB__FILE_TRANSFER_RETRY_MAX": "1",
    "WANDB__FILE_TRANSFER_RETRY_WAIT_MIN_SECONDS": "1",
    "WANDB__FILE_TRANSFER_RETRY_WAIT_MAX_SECONDS": "1",
}


def environment(before: Mapping[str, str], directory: str) -> dict[str, str]:
    """What the SDK finds set."""
    kept = {name: value for name, value in before.items() if not name.startswith("WANDB_") or name in KEPT}
    return kept | SET | dict.fromkeys(OWN, directory)


class PendingRequest(NamedTuple):
    """The request that is being answered."""

    id: int
    began: Seconds
    at: Instant


class Child:
    """The two threads' common ground."""

    def __init__(self, requests: int, answers: int, directory: Path, within: Seconds) -> None:
        self._requests = requests
        self._answers = answers
        self._directory = directory
        self._within = within
        self._parent = os.getppid()
        self._asked: queue.SimpleQueue[AnyRequest] = queue.SimpleQueue()
        self._open: PendingRequest | None = None
        self._telling = threading.Lock()
        self._sidecar: int | None = None
        self._sdk: Sdk | None = None

    def serve(self) -> NoReturn:
        """Answer what is asked, one after the other; the main thread's work."""
        try:
            while True:
                asked = self._next()
                opened = PendingRequest(asked.id, time.monotonic(), time.time())
                with self._telling:
                    self._open = opened
                told, is_over = self._answer(asked, opened)
                self._close(opened, told)
                keep_small(self._directory)
                if is_over:
                    break
        finally:
            self.end(1)

    def _next(self) -> AnyRequest:
        """What is asked next. A signal that comes just before the waiting begins is heard at the end of its turn."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._asked.get(timeout=LOOK_EVERY)

    def _answer(self, asked: AnyRequest, opened: PendingRequest) -> tuple[bytes, bool]:
        """The line to tell, and whether it is the last."""
        try:
            return encode(self._ready().answer(asked)), False
        except Exception as error:  # whatever the SDK raises is an answer
            answer = self._failed(opened, error)
            if answer.kind in ("key", "unauthorized", "forbidden") and self._sdk is not None:
                self._sdk.forget()
            return encode(answer), is_fatal(error)

    def _failed(self, opened: PendingRequest, error: Exception) -> RequestFailed:
        """Its words; where it only says that no answer came, wandb-core may know what the server answered."""
        key = os.environ.get("WANDB_API_KEY") or (self._sdk.key if self._sdk is not None else None)
        answer = failed(opened.id, error, key=key)
        if answer.kind != "slow":
            return answer
        return failed(opened.id, error, key=key, status=last_status(self._directory, opened.at))

    def _ready(self) -> Sdk:
        """The SDK, imported and started with the first request; its process is told of before it may hang."""
        if self._sdk is None:
            from collectors.wandb.child import sdk as wandb_sdk

            self._sidecar = wandb_sdk.sidecar()
            if self._sidecar is not None:
                self.tell(CoreStarted(pid=self._sidecar))
            self._sdk = wandb_sdk.Sdk(self._directory, self._within * SDK_WITHIN)
        return self._sdk

    def tell(self, said: AnyAnswer) -> None:
        with self._telling:
            self._write(encode(said))

    def _close(self, opened: PendingRequest, told: bytes) -> bool:
        """Give the answer, unless one was given already; whether this one was."""
        with self._telling:
            if self._open is not opened:
                return False
            self._open = None
            self._write(told)
            return True

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._answers, data) :]
        except OSError:
            self.end(0)  # nobody listens any more

    def watch(self) -> NoReturn:
        """Read the requests; the other thread's work."""
        rest = b""
        try:
            while os.getppid() == self._parent:
                if self._is_readable():
                    data = os.read(self._requests, 1 << 16)
                    if not data:
                        break
                    *lines, rest = (rest + data).split(b"\n")
                    for one in lines:
                        self._take(one)
                self._look_at_the_time()
        except Exception:
            traceback.print_exc()
            self.end(1)
        self.end(0)

    def _is_readable(self) -> bool:
        return bool(select.select([self._requests], [], [], LOOK_EVERY)[0])

    def _take(self, asked: bytes) -> None:
        try:
            self._asked.put(decode_request(asked))
        except msgspec.DecodeError as error:
            self.tell(RequestFailed(kind="sdk", words=f"a request that cannot be read: {error}"))

    def _look_at_the_time(self) -> None:
        with self._telling:
            opened = self._open
        if opened is not None and time.monotonic() - opened.began >= self._within:
            overdue = self._failed(opened, TimeoutError("no answer in time: timeout"))
            if self._close(opened, encode(overdue)):
                self.end(1)

    def end(self, status: int) -> NoReturn:
        """Take wandb-core and the directory along. Python's own way out would wait for the SDK."""
        if self._sidecar is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._sidecar, signal.SIGKILL)
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(status)


def _own_pipes() -> tuple[int, int]:
    """Our two pipes under numbers that nobody else knows: what the SDK reads is empty, what it prints is an error."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _private_directory() -> str:
    """A new one where the name of a socket below it is short enough for the system."""
    usual = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="trainmon-", dir=usual if len(usual) <= SHORT else "/tmp")


def main() -> NoReturn:
    requests, answers = _own_pipes()
    directory = _private_directory()
    kept = environment(os.environ, directory)
    os.environ.clear()
    os.environ.update(kept)
    tempfile.tempdir = directory
    within = float(sys.argv[1]) if len(sys.argv) > 1 else ANSWER_WITHIN
    child = Child(requests, answers, Path(directory), within)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a ctrl-C on the terminal is for our parent, who ends us
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: child.end(0))
    child.tell(ChildStarted(pid=os.getpid(), directory=directory))
    threading.Thread(target=child.watch, name="watch", daemon=True).start()
    child.serve()


if __name__ == "__main__":
    sys.exit(main())
