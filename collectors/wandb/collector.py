"""The W&B runs of ours as events, on a thread of its own; what speaks with W&B is a child process.

No child is started without a run that names a project, nor without a key. No answer means that nothing is known: what
was seen last stays, the source tells the error and the age.
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
from collectors.wandb.samples import make_private, place_of, remove_others, save
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

COMMON = frozenset({"key", "unauthorized", "busy", "server", "unreachable", "gone"})
"""Troubles that the next question would meet as well."""

A_RUNS_OWN = frozenset({"absent", "forbidden", "sdk"})
"""Troubles of one list that say nothing of the next: an unknown project, another team's, a filter that the server does
not take."""

Phase = Literal["waiting", "up", "retrying"]


class WandbCollector:
    """Asks W&B of all runs that name a project, one question at a time."""

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
        """`samples` is where one of each run is kept ready; None: nothing is fetched unasked."""
        self._every = every
        self._submit = submit
        self._clock = clock
        self._new_client = client
        self._login = login
        self._samples = samples
        self._client: WandbClient | None = None
        self._changing = threading.Lock()
        self._pace = RateLimit(every)
        self._runs: dict[str, TrackedRun] = {}
        self._sources: dict[str, Source] = {}
        self._wanted: tuple[RunSpec, ...] | None = runs
        """The runs as they are now, until the thread has taken them over."""
        self._requests: deque[Callable[[], None]] = deque(maxlen=64)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wandb", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Let go of W&B and of the child with all that it started; under a second, whatever hangs."""
        self._stopping.set()
        self._wake.set()
        with self._changing:
            client = self._client
        if client is not None:
            client.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(0.3)

    def follow(self, runs: tuple[RunSpec, ...]) -> None:
        """These are the runs from now on."""
        with self._changing:
            self._wanted = runs
        self._wake.set()

    def refresh(self) -> None:
        """A person wants to see it now; at most every 5 s, and not while the server asks to be left alone."""
        self._request(lambda: self._pace.refresh(self._clock.monotonic()))

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        """Fetch the newest media of a run into a directory, and hand reply a sentence, on the watcher's thread."""
        self._request(lambda: reply(self._saved(run, directory)))

    def _saved(self, name: str, directory: str) -> str:
        run = self._runs.get(name)
        if run is None:
            return f"{name} has no W&B project"
        try:
            return save(self._asking(), run, directory)
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
            except Exception:  # a fault of ours must not end the watch in silence
                log.exception("W&B")
                wait = self._every
            self._wake.wait(wait)
            self._wake.clear()

    def step(self) -> Seconds | None:
        """Do what is due. Returns the seconds until it should be called again; None: until it is woken."""
        self._take_over()
        while self._requests and not self._stopping.is_set():
            self._requests.popleft()()
        if not self._runs:
            return None
        if self._pace.due_in(self._clock.monotonic()) <= 0:
            self._round()
        elif self._pace.is_well and self._pace.errand_in(self._clock.monotonic()) <= 0:
            self._run_errand()
        return self._wait()

    def _wait(self) -> Seconds:
        now = self._clock.monotonic()
        wait = self._pace.due_in(now)
        at = self._clock.now()
        if self._pace.is_well and any(run.errand(at) is not None for run in self._runs.values()):
            wait = min(wait, self._pace.errand_in(now))
        return wait

    def _take_over(self) -> None:
        """The runs as they are wanted now."""
        with self._changing:
            wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        runs = {spec.name: self._followed(spec, spec.wandb) for spec in wanted if spec.wandb is not None}
        for name in self._runs.keys() - runs.keys():
            self._sources.pop(name, None)
            self._submit(SourceRemoved(f"wandb:{name}"))
        new = [run for name, run in runs.items() if run is not self._runs.get(name)]
        self._runs = runs
        for run in new:
            self._tell(run, "waiting")
        if new:
            self._pace.refresh(self._clock.monotonic())

    def _followed(self, run: RunSpec, spec: WandbSpec) -> TrackedRun:
        """What is known of a run stays while it is looked for in the same way."""
        old = self._runs.get(run.name)
        if old is not None and (old.spec, old.cluster) == (spec, run.cluster):
            return old
        return TrackedRun(run, spec, place_of(self._samples, run.name) if self._samples is not None else None)

    # ---- a round -----------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Ask of every run; a failure that is not one run's own ends the round."""
        self._pace.begin(self._clock.monotonic())
        try:
            self._check_login()
            for place, run in enumerate(list(self._runs.values())):
                if self._stopping.is_set():
                    return
                self._look_at(run, place)
        except WandbError as failure:
            self._failed(failure)
        else:
            self._pace.answered(self._clock.monotonic())

    def _look_at(self, run: TrackedRun, place: int) -> None:
        """One run; what is its own trouble is told, and no more."""
        try:
            self._look(run)
        except WandbError as failure:
            if failure.kind == "slow":
                self._begin_after(place)
            if failure.kind not in A_RUNS_OWN:
                raise
            self._tell(run, "retrying", failure)
        except Exception as error:  # a fault of ours is one run's, too
            log.exception("%s", run.name)
            self._tell(run, "retrying", WandbError(f"{type(error).__name__}: {error}", kind="sdk"))

    def _begin_after(self, place: int) -> None:
        """What hangs over one run must not keep the others from being asked for ever: it is the last one next time."""
        runs = list(self._runs.items())
        self._runs = dict([*runs[place + 1 :], *runs[: place + 1]])

    def _check_login(self) -> None:
        """Without a key the SDK is not even started: it would ask for one."""
        login = self._login()
        if login.place is None:
            raise WandbError(login.trouble, kind="key", hint=login.hint)

    def _look(self, run: TrackedRun) -> None:
        """The list and one more question; at the first look both that there are."""
        self._submit(run.listed(self._asking().ask(run.listing(), RunList), self._clock.now()))
        self._tell(run, "up")
        reading = run.reading()
        first = run.first_reading(reading)
        for one in (reading, first):
            if one is not None and not self._read(run, one):
                return

    def _read(self, run: TrackedRun, asked: PollRequest | BackgroundRequest) -> bool:
        """Ask one thing more of a run. What fails for this run alone is tried again."""
        try:
            self._take(run, asked)
        except WandbError as failure:
            if self._stopping.is_set() or failure.kind in COMMON:
                raise
            log.info("%s: %s", run.name, failure)
            run.failed(asked, str(failure))
            return False
        return True

    def _take(self, run: TrackedRun, asked: PollRequest | BackgroundRequest) -> None:
        client, clock = self._asking(), self._clock
        event: Event | None = None
        if isinstance(asked, ReadHistory):
            event = run.grown(asked, client.ask(asked, HistoryPoints), clock.now())
        elif isinstance(asked, ReadConsole):
            event = run.said(asked, client.ask(asked, ConsoleLines), clock.now())
        elif isinstance(asked, ReadMetadata):
            run.found(client.ask(asked, RunMetadata))
        else:
            make_private(asked.directory)
            told = client.ask(asked, FetchedFile)
            event = run.kept(told, clock.now())
            remove_others(Path(told.kept))
        if event is not None:
            self._submit(event)

    def _run_errand(self) -> None:
        """One thing that can wait."""
        at = self._clock.now()
        found = next(((run, errand) for run in self._runs.values() if (errand := run.errand(at)) is not None), None)
        if found is None:
            return
        try:
            self._read(*found)
        except WandbError as failure:
            self._failed(failure)
        else:
            self._pace.ran_errand(self._clock.monotonic())

    def _asking(self) -> WandbClient:
        with self._changing:
            if self._stopping.is_set():
                raise WandbError("W&B is asked no more", kind="gone")
            if self._client is None:
                self._client = self._new_client()
            return self._client

    # ---- what it is told ---------------------------------------------------------------------------------------------

    def _failed(self, failure: WandbError) -> None:
        """Nothing can be asked: it is so for all runs."""
        if self._stopping.is_set():
            return
        self._pace.failed(self._clock.monotonic())
        for run in self._runs.values():
            self._tell(run, "retrying", failure)

    def _tell(self, run: TrackedRun, phase: Phase, error: WandbError | None = None) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        is_up = phase == "up"
        source = Source(
            name=f"wandb:{run.name}",
            kind="wandb",
            cluster=run.cluster,
            seen_at=now if is_up else None,
            period=self._every,
            phase=phase,
            retry_at=now + (self._pace.due_in(monotonic) or self._every) if phase == "retrying" else None,
            error=error.message if error is not None else None,
            hint=(error.hint or None) if error is not None else run.trouble,
        )
        if source != self._sources.get(run.name):
            self._sources[run.name] = source
            self._submit(SourceChanged(source))
