"""A stand-in for the W&B server on loopback: the real client writes runs to it and reads them back, no account needed.

It speaks what wandb 0.31 sends (GraphQL, the file stream, file transfers) and keeps all in memory. Its time is a clock
of the test, so that five minutes without a heartbeat need no waiting; and it fails as a test wants it to.
"""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.lab.wandb_http import WELL, Fault, Http, Request
from tests.lab.wandb_store import Store, StoredRun
from trainmon.lib import Clock, SystemClock


class WandbServer:
    """A running one. `runs` is what it knows, by entity/project/id; `requests` is all that came."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.entity = "tester"
        self.key = "local-" + "0123456789abcdef" * 2 + "01234567"
        self.requests: list[Request] = []
        self.failures: list[str] = []
        """Where it fell over itself: that is never the client's doing, and fails the test."""
        self.lock = threading.Lock()
        self.fault = WELL
        self._http = Http(self)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.store = Store(self.url)

    @classmethod
    @contextlib.contextmanager
    def start(cls, clock: Clock | None = None) -> Iterator[WandbServer]:
        server = cls(clock or SystemClock())
        thread = threading.Thread(target=server._http.serve_forever, args=(0.05,), name="wandb-stand-in", daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.well()
            server._http.shutdown()
            thread.join(10)
            server._http.hang_up()
            server._http.server_close()
        assert not server.failures, f"the stand-in fell over: {server.failures}"

    @property
    def environ(self) -> dict[str, str]:
        """What points a client here, and keeps it from asking, telling and installing."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": self.key, "WANDB_ERROR_REPORTING": "false"}

    def environ_in(self, folder: Path) -> dict[str, str]:
        """The same, with all that the client writes in one folder."""
        places = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR")
        return self.environ | {place: str(folder) for place in places}

    @property
    def headers(self) -> dict[str, str]:
        """Of a request without a client."""
        return {"Authorization": "Basic " + base64.b64encode(f"api:{self.key}".encode()).decode()}

    # ---- runs

    @property
    def runs(self) -> dict[str, StoredRun]:
        return self.store.runs

    def add_run(
        self, name: str, project: str = "video", *, entity: str | None = None, age: float = 0.0, **facts: Any
    ) -> StoredRun:
        """A run with this id that began `age` seconds ago; facts are fields of StoredRun, config a plain mapping."""
        with self.lock:
            now = self.clock.now()
            run = self.store.add(entity or self.entity, project, name, now - age)
            run.heartbeat_at = now
            run.config = {key: {"value": value, "desc": None} for key, value in facts.pop("config", {}).items()}
            for name, value in facts.items():
                setattr(run, name, value)
            return run

    def log(self, run: StoredRun, values: Mapping[str, Any], *, step: int | None = None) -> None:
        """A row of history now; it is a heartbeat too."""
        with self.lock:
            run.heartbeat_at = self.clock.now()
            run.log(values, step)

    def sweep(self) -> list[str]:
        """W&B's rule of the stale runs, now; the paths of those that it calls crashed."""
        with self.lock:
            return [run.path for run in self.store.sweep(self.clock.now())]

    # ---- requests

    def count(self, operation: str) -> int:
        return sum(request.operation == operation for request in self.requests)

    def reader_requests(self) -> list[Request]:
        """What readers asked: all but what a run's own client sends."""
        return [request for request in self.requests if not request.agent.startswith("wandb-core")]

    # ---- faults

    def answer_with(self, status: int, retry_after: float | None = None) -> None:
        """Every request gets this status."""
        self._turn(Fault(status=status, retry_after=retry_after))

    def hang(self) -> None:
        """Requests are taken and never answered."""
        self._turn(Fault(hangs=True))

    def slow(self, seconds: float) -> None:
        """Each answer comes so much later."""
        self._turn(Fault(delay=seconds))

    def well(self) -> None:
        """As always again; what hung is let go."""
        self._turn(WELL)

    def _turn(self, fault: Fault) -> None:
        before, self.fault = self.fault, fault
        if before is not WELL:
            before.over.set()
