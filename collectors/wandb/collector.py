"""Polls W&B on a thread of its own, through a child process, and submits events.

No child is started without a key and a run that names a project. Without an answer the last data stays; the source
reports the error and the age.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from collectors.wandb.child_process import ChildClient, WandbClient, WandbError
from collectors.wandb.login import Credentials, find_credentials
from collectors.wandb.rate_limit import RateLimit
from collectors.wandb.run import BackgroundRequest, PollRequest, TrackedRun
from collectors.wandb.samples import make_private, remove_others, sample_directory, save
from collectors.wandb.wire import (
    ConsoleLines,
    FetchedFile,
    HistoryPoints,
    ReadConsole,
    ReadHistory,
    ReadMetadata,
    RunList,
    RunMetadata,
)
from trainmon.lib import Clock, Seconds
from trainmon.model import Event, RunSpec, Source, SourceChanged, SourceRemoved, WandbSpec

log = logging.getLogger(__name__)

COMMON_ERRORS = frozenset({"key", "unauthorized", "busy", "server", "unreachable", "gone"})
"""Errors that the next request would meet as well."""

RUN_ERRORS = frozenset({"absent", "forbidden", "sdk"})
"""Errors of one list that say nothing about the next: an unknown project, another team's project, a filter that the
server rejects."""

Phase = Literal["waiting", "up", "retrying"]


class WandbCollector:
    """Polls all runs that name a W&B project, one request at a time."""

    def __init__(
        self,
        runs: tuple[RunSpec, ...],
        every: Seconds,
        submit: Callable[[Event], None],
        clock: Clock,
        *,
        client: Callable[[], WandbClient] = ChildClient,
        login: Callable[[], Credentials] = find_credentials,
        samples: Path | None = None,
    ) -> None:
        """`samples` is the directory for one sample of each run; None: no sample is fetched in advance."""
        self._every = every
        self._submit = submit
        self._clock = clock
        self._new_client = client
        self._login = login
        self._samples = samples
        self._client: WandbClient | None = None
        self._lock = threading.Lock()
        self._rate_limit = RateLimit(every)
        self._runs: dict[str, TrackedRun] = {}
        self._sources: dict[str, Source] = {}
        self._wanted: tuple[RunSpec, ...] | None = runs
        """The new runs, until the thread takes them over."""
        self._requests: deque[Callable[[], None]] = deque(maxlen=64)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wandb", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and the child with all that it started; under a second, whatever hangs."""
        self._stopping.set()
        self._wake.set()
        with self._lock:
            client = self._client
        if client is not None:
            client.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(0.3)

    def follow(self, runs: tuple[RunSpec, ...]) -> None:
        """Track these runs from now on."""
        with self._lock:
            self._wanted = runs
        self._wake.set()

    def refresh(self) -> None:
        """Poll now, at most every 5 s, and not while the server asks for fewer requests."""
        self._request(lambda: self._rate_limit.refresh(self._clock.monotonic()))

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        """Fetch the newest media of a run into a directory; reply(sentence) is called on the collector's thread."""
        self._request(lambda: reply(self._save_samples(run, directory)))

    def _save_samples(self, name: str, directory: str) -> str:
        run = self._runs.get(name)
        if run is None:
            return f"{name} has no W&B project"
        try:
            return save(self._connected_client(), run, directory)
        except WandbError as failure:
            return f"no sample of {name} was saved: {failure}"

    def _request(self, what: Callable[[], None]) -> None:
        self._requests.append(what)
        self._wake.set()

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                wait = self.step()
            except Exception:  # a bug must not end the thread silently
                log.exception("W&B")
                wait = self._every
            self._wake.wait(wait)
            self._wake.clear()

    def step(self) -> Seconds | None:
        """Do what is due. Returns the seconds until the next call; None: until it is woken."""
        self._update_runs()
        while self._requests and not self._stopping.is_set():
            self._requests.popleft()()
        if not self._runs:
            return None
        if self._rate_limit.due_in(self._clock.monotonic()) <= 0:
            self._round()
        elif self._rate_limit.is_healthy and self._rate_limit.background_due_in(self._clock.monotonic()) <= 0:
            self._run_background_request()
        return self._wait()

    def _wait(self) -> Seconds:
        now = self._clock.monotonic()
        wait = self._rate_limit.due_in(now)
        at = self._clock.now()
        if self._rate_limit.is_healthy and any(run.background_request(at) is not None for run in self._runs.values()):
            wait = min(wait, self._rate_limit.background_due_in(now))
        return wait

    def _update_runs(self) -> None:
        """Take over the new runs."""
        with self._lock:
            wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        runs = {spec.name: self._tracked(spec, spec.wandb) for spec in wanted if spec.wandb is not None}
        for name in self._runs.keys() - runs.keys():
            self._sources.pop(name, None)
            self._submit(SourceRemoved(f"wandb:{name}"))
        new = [run for name, run in runs.items() if run is not self._runs.get(name)]
        self._runs = runs
        for run in new:
            self._report(run, "waiting")
        if new:
            self._rate_limit.refresh(self._clock.monotonic())

    def _tracked(self, run: RunSpec, spec: WandbSpec) -> TrackedRun:
        """A run keeps its data while its W&B settings stay the same."""
        old = self._runs.get(run.name)
        if old is not None and (old.spec, old.cluster) == (spec, run.cluster):
            return old
        return TrackedRun(run, spec, sample_directory(self._samples, run.name) if self._samples is not None else None)

    # ---- a round -----------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Poll every run; an error that is not one run's own ends the round."""
        self._rate_limit.begin(self._clock.monotonic())
        credentials = self._login()
        if credentials.place is None:  # the SDK is not started without a key: it would prompt for one
            self._failed(WandbError(credentials.trouble, kind="key", hint=credentials.hint))
            return
        try:
            for number, run in enumerate(list(self._runs.values())):
                if self._stopping.is_set():
                    return
                self._poll(run, number)
        except WandbError as failure:
            self._failed(failure)
        else:
            self._rate_limit.answered(self._clock.monotonic())

    def _poll(self, run: TrackedRun, number: int) -> None:
        """Request the list and one thing more; at the first poll both. A run's own errors are reported for it alone."""
        try:
            answer = self._connected_client().ask(run.listing(), RunList)
            self._submit(run.update(answer, self._clock.now()))
            self._report(run, "up")
            request = run.next_request()
            other = run.other_request(request)
            for one in (request, other):
                if one is not None and not self._read(run, one):
                    return
        except WandbError as failure:
            if failure.kind == "slow":  # the run that hangs is last in the next round: it must not block the others
                runs = list(self._runs.items())
                self._runs = dict([*runs[number + 1 :], *runs[: number + 1]])
            if failure.kind not in RUN_ERRORS:
                raise
            self._report(run, "retrying", failure)
        except Exception as error:  # a bug affects one run only
            log.exception("%s", run.name)
            self._report(run, "retrying", WandbError(f"{type(error).__name__}: {error}", kind="sdk"))

    def _read(self, run: TrackedRun, request: PollRequest | BackgroundRequest) -> bool:
        """Send one more request for a run. A failure of this run alone is retried."""
        try:
            self._request_and_store(run, request)
        except WandbError as failure:
            if self._stopping.is_set() or failure.kind in COMMON_ERRORS:
                raise
            log.info("%s: %s", run.name, failure)
            run.failed(request, str(failure))
            return False
        return True

    def _request_and_store(self, run: TrackedRun, request: PollRequest | BackgroundRequest) -> None:
        client, clock = self._connected_client(), self._clock
        event: Event | None = None
        if isinstance(request, ReadHistory):
            event = run.add_points(request, client.ask(request, HistoryPoints), clock.now())
        elif isinstance(request, ReadConsole):
            event = run.add_console(request, client.ask(request, ConsoleLines), clock.now())
        elif isinstance(request, ReadMetadata):
            run.add_metadata(client.ask(request, RunMetadata))
        else:
            make_private(request.directory)
            answer = client.ask(request, FetchedFile)
            event = run.sample_fetched(answer, clock.now())
            remove_others(Path(answer.kept))
        if event is not None:
            self._submit(event)

    def _run_background_request(self) -> None:
        """Send one request that can wait."""
        at = self._clock.now()
        found = next(
            ((run, request) for run in self._runs.values() if (request := run.background_request(at)) is not None), None
        )
        if found is None:
            return
        try:
            self._read(*found)
        except WandbError as failure:
            self._failed(failure)
        else:
            self._rate_limit.background_done(self._clock.monotonic())

    def _connected_client(self) -> WandbClient:
        with self._lock:
            if self._stopping.is_set():
                raise WandbError("the W&B collector has stopped", kind="gone")
            if self._client is None:
                self._client = self._new_client()
            return self._client

    # ---- what is reported --------------------------------------------------------------------------------------------

    def _failed(self, failure: WandbError) -> None:
        """Report an error that concerns all runs."""
        if self._stopping.is_set():
            return
        self._rate_limit.failed(self._clock.monotonic())
        for run in self._runs.values():
            self._report(run, "retrying", failure)

    def _report(self, run: TrackedRun, phase: Phase, error: WandbError | None = None) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        is_up = phase == "up"
        source = Source(
            name=f"wandb:{run.name}",
            kind="wandb",
            cluster=run.cluster,
            seen_at=now if is_up else None,
            period=self._every,
            phase=phase,
            retry_at=now + (self._rate_limit.due_in(monotonic) or self._every) if phase == "retrying" else None,
            error=error.message if error is not None else None,
            hint=(error.hint or None) if error is not None else run.trouble,
        )
        if source != self._sources.get(run.name):
            self._sources[run.name] = source
            self._submit(SourceChanged(source))
