"""Polls W&B on a thread of its own, through a child process, and submits events; reads and saves samples of its media.

No child is started without a key and a run that names a project. Without an answer the last data stays; the source
reports the error and the age.
"""

from __future__ import annotations

import logging
import re
import threading
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from collectors.polling_thread import PollingThread
from collectors.wandb.child_process import ChildClient, WandbClient, WandbError
from collectors.wandb.login import Credentials, find_credentials
from collectors.wandb.run import BackgroundRequest, PollRequest, TrackedRun, WandbRateLimit
from collectors.wandb.wire import (
    ActiveRuns,
    ConsoleLines,
    FetchedFile,
    FetchFile,
    HistoryPoints,
    ListActive,
    ReadConsole,
    ReadHistory,
    ReadMetadata,
    ReadViewer,
    RunList,
    RunMetadata,
    Viewer,
)
from trainmon.lib import Clock, Seconds, counted, group_by
from trainmon.model import Event, RunSpec, Source, SourceRemoved

# ---- media of W&B runs on this machine -------------------------------------------------------------------------------

MAX_SAVED = 50
"""The maximum number of samples saved at once: the newest of each metric."""

FILE_ERRORS = ("absent", "sdk")
"""Errors of one file only: it is missing, or too large."""

UNUSUAL = re.compile(r"[^\w.-]", re.ASCII)


def sample_directory(samples: Path, run: str) -> str:
    """The directory for a run's sample, whatever the run is called."""
    return str(samples / f"{UNUSUAL.sub('-', run)[:80]}-{zlib.crc32(run.encode()):08x}")


def make_private_directory(directory: str) -> None:
    """Make the directory with mode 700; the child would make it readable for all."""
    try:
        for folder in (Path(directory).parent, Path(directory)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.info("cannot make the directory of a sample: %s", error)  # the child will fail with the same error


def remove_older_samples(newest: Path) -> None:
    """Remove all other samples of the run."""
    try:
        for other in newest.parent.iterdir():
            if other.name != newest.name and other.is_file():
                other.unlink()
    except OSError as error:
        log.info("cannot remove an old sample: %s", error)


def save_samples(client: WandbClient, run: TrackedRun, directory: str) -> str:
    """Fetch the samples in the newest list of a run. Returns the result as a sentence."""
    current, samples = run.wandb.current, run.wandb.samples[:MAX_SAVED]
    if current is None or not samples:
        return f"{run.name} has no samples"
    target = str(Path(directory).expanduser().absolute())
    saved, failed = 0, ""
    for sample in samples:
        try:
            client.query(FetchFile(id=0, path=current.path, file=sample.file, directory=target), FetchedFile)
            saved += 1
        except WandbError as error:
            failed = failed or f"{sample.key}: {error}"
            if error.kind not in FILE_ERRORS:
                break
    if not saved:
        return f"no sample of {run.name} was saved: {failed}"
    if failed:
        return f"saved {saved} of {counted(len(samples), 'sample')} of {run.name} in {target}; failed: {failed}"
    return f"saved {counted(saved, 'sample')} of {run.name} in {target}"


# ---- polls W&B on a thread of its own, through a child process, and submits events -----------------------------------

log = logging.getLogger(__name__)

COMMON_ERRORS = frozenset({"key", "unauthorized", "busy", "server", "unreachable", "gone"})
"""Errors that the next request would get, too."""

OUTAGES = frozenset({"server", "slow", "unreachable", "gone"})
"""Errors of W&B itself, or of the way to it: they end by themselves."""

RUN_ERRORS = frozenset({"absent", "forbidden", "sdk"})
"""Errors of one run's list only: an unknown project, another team's project, a filter that the server rejects."""

Phase = Literal["waiting", "up", "retrying"]


class WandbCollector(PollingThread):
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
        super().__init__("wandb", every, submit, clock)
        self._new_client = client
        self._login = login
        self._samples = samples
        self.credentials: Credentials | None = None
        """The credentials when the runs last changed. Only this thread looks for them: the home directory may hang."""
        self._client: WandbClient | None = None
        self._lock = threading.Lock()
        self._rate_limit = WandbRateLimit(every)
        self._runs: dict[str, TrackedRun] = {}
        self._wanted: tuple[RunSpec, ...] | None = runs
        """The new runs, until the thread takes them over."""
        self._active: dict[str, set[str]] = {}
        """By project: the ids of the running runs, as last listed."""

    def stop(self) -> None:
        """End the thread and the child process within a second, whatever hangs."""
        self._stopping.set()
        with self._lock:
            client = self._client
        if client is not None:
            client.close()
        super().stop()

    def follow(self, runs: tuple[RunSpec, ...]) -> None:
        """Track these runs from now on. Only the newest count, and no other request takes their place."""
        with self._lock:
            self._wanted = runs
        self._wake.set()

    def refresh(self) -> None:
        """Poll now, but at most every 5 s, and not while the server limits the rate."""
        self._request(lambda: self._rate_limit.refresh(self._clock.monotonic()))

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        """Fetch the newest media of a run into a directory; reply(sentence) is called on the collector's thread."""

        def save_and_reply() -> None:
            tracked = self._runs.get(run)
            try:
                reply(save_samples(self._connect(), tracked, directory) if tracked else f"{run} has no W&B project")
            except WandbError as failure:
                reply(f"no sample of {run} was saved: {failure}")

        self._request(save_and_reply)

    def show_curves(self, runs: Collection[str], metrics: Sequence[str]) -> None:
        """Read also these metrics of these runs, until others are on the screen."""

        def show() -> None:
            for name, run in self._runs.items():
                run.on_screen = metrics if name in runs else ()

        self._request(show)

    def ask_viewer(self, reply: Callable[[Viewer | WandbError], None]) -> None:
        """Ask whose key it is; the answer is given on the collector's thread."""

        def ask() -> None:
            try:
                reply(self._connect().query(ReadViewer(id=0), Viewer))
            except WandbError as failure:
                reply(failure)

        self._request(ask)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def step(self) -> Seconds | None:
        """Do what is due. Returns the seconds until the next call; None: until it is woken."""
        with self._lock:
            wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._track(wanted)
        self._do_requests()
        if not self._runs:
            return None
        limit, monotonic = self._rate_limit, self._clock.monotonic
        if limit.due_in(monotonic()) <= 0:
            self._round()
        elif limit.is_healthy and limit.new_runs_due_in(monotonic()) <= 0:
            self._look_for_new_runs()
        elif limit.is_healthy and limit.background_due_in(monotonic()) <= 0:
            self._run_background_request()
        wait = limit.due_in(monotonic())
        if limit.is_healthy and self._grouped:
            wait = min(wait, limit.new_runs_due_in(monotonic()))
        if limit.is_healthy and self._next_background_request() is not None:
            wait = min(wait, limit.background_due_in(monotonic()))
        return wait

    def _track(self, wanted: tuple[RunSpec, ...]) -> None:
        before, self._runs = self._runs, {}
        for spec in wanted:
            if spec.wandb is not None:
                run = before.get(spec.name)
                if run is None or (run.spec, run.cluster) != (spec.wandb, spec.cluster):  # otherwise it keeps its data
                    samples = sample_directory(self._samples, spec.name) if self._samples is not None else None
                    run = TrackedRun(spec, spec.wandb, samples)
                self._runs[spec.name] = run
        for name in before.keys() - self._runs.keys():
            self._sources.pop(f"wandb:{name}", None)
            self._submit(SourceRemoved(f"wandb:{name}"))
        for name, run in self._runs.items():
            if run is not before.get(name):
                self._report(run, "waiting")
                self._rate_limit.refresh(self._clock.monotonic())
        self.credentials = self._login()

    # ---- between the rounds: has another run begun? ------------------------------------------------------------------

    @property
    def _grouped(self) -> Mapping[str, list[TrackedRun]]:
        """By project: the runs of which W&B may have several."""
        return group_by((run for run in self._runs.values() if run.spec.run is None), lambda run: run.spec.project)

    def _look_for_new_runs(self) -> None:
        """Begin the next round at once if a run has begun of which the lists do not know."""
        limit, clock = self._rate_limit, self._clock
        limit.new_runs_done(clock.monotonic())
        try:
            for project, runs in self._grouped.items():
                request = ListActive(id=0, specs=tuple(dict.fromkeys(run.spec for run in runs)))
                names = set(self._connect().query(request, ActiveRuns).names)
                if names - self._active.get(project, set()) - {name for run in runs for name in run.running}:
                    limit.refresh(clock.monotonic())
                self._active[project] = names
        except WandbError as failure:
            if failure.kind in COMMON_ERRORS:
                self._failed(failure)
            else:  # the round reports it
                log.info("W&B was not asked for new runs: %s", failure)

    # ---- a round -----------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Poll every run. An error that concerns all runs ends the round."""
        self._rate_limit.begin(self._clock.monotonic())
        credentials = self._login()
        if credentials.location is None:  # without a key the SDK would prompt for one
            self._failed(WandbError(credentials.error, kind="key", hint=credentials.hint))
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
            if any(run.is_undecided for run in self._runs.values()):
                self._rate_limit.look_soon(self._clock.monotonic())

    def _poll(self, run: TrackedRun, number: int) -> None:
        """Request the list, then the history or the console log; at the first poll both. Report errors of this run."""
        try:
            self._submit(run.update(self._connect().query(run.listing(), RunList), self._clock.now()))
            self._report(run, "up")
            for request in run.requests():
                if not self._read(run, request):
                    break
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
        """Send a request for a run. A failure of this run alone is retried. Returns whether it succeeded."""
        event: Event | None = None
        try:
            client, clock = self._connect(), self._clock
            match request:
                case ReadHistory():
                    event = run.add_points(request, client.query(request, HistoryPoints), clock.now())
                case ReadConsole():
                    event = run.add_console(request, client.query(request, ConsoleLines), clock.now())
                case ReadMetadata():
                    run.add_metadata(client.query(request, RunMetadata))
                case FetchFile():
                    make_private_directory(request.directory)
                    answer = client.query(request, FetchedFile)
                    event = run.sample_fetched(answer, clock.now())
                    remove_older_samples(Path(answer.saved_as))
        except WandbError as failure:
            if self._stopping.is_set() or failure.kind in COMMON_ERRORS:
                raise
            log.info("%s: %s", run.name, failure)
            run.failed(request, str(failure), self._clock.now())
            return False
        if event is not None:
            self._submit(event)
        return True

    def _next_background_request(self) -> tuple[TrackedRun, BackgroundRequest] | None:
        """The next request that can wait, and its run."""
        requests = ((run, run.background_request(self._clock.now())) for run in self._runs.values())
        return next(((run, request) for run, request in requests if request is not None), None)

    def _run_background_request(self) -> None:
        found = self._next_background_request()
        if found is None:
            return
        try:
            self._read(*found)
        except WandbError as failure:
            self._failed(failure)
        else:
            self._rate_limit.background_done(self._clock.monotonic())

    def _connect(self) -> WandbClient:
        with self._lock:
            if self._stopping.is_set():
                raise WandbError("the W&B collector has stopped", kind="gone")
            if self._client is None:
                self._client = self._new_client()
            return self._client

    # ---- reports --------------------------------------------------------------------------------------------------

    def _failed(self, failure: WandbError) -> None:
        """Report an error that concerns all runs."""
        if self._stopping.is_set():
            return
        self._rate_limit.failed(self._clock.monotonic(), is_outage=failure.kind in OUTAGES)
        for run in self._runs.values():
            self._report(run, "retrying", failure)

    def _report(self, run: TrackedRun, phase: Phase, error: WandbError | None = None) -> None:
        now, wait = self._clock.now(), self._rate_limit.due_in(self._clock.monotonic())
        source = Source(
            name=f"wandb:{run.name}",
            kind="wandb",
            cluster=run.cluster,
            answered_at=now if phase == "up" else None,
            period=self._every,
            phase=phase,
            retry_at=now + (wait or self._every) if phase == "retrying" else None,
            error=error.message if error is not None else None,
            hint=(error.hint or None) if error is not None else run.error,
        )
        if error is not None and run.is_from_log and run.wandb.polled_at is None:
            source = replace(source, phase="off", retry_at=None)  # only a log has named it: that is no fault
        self._submit_source(source)
