"""One watched host: its connection, its probe, and what the probe says as events.

waiting → connecting → up → (retrying → connecting | held until a person asks). A host that needed a prompt is never
redialled by itself: no push storms, no locked accounts. A node that lets us in for a job alone is off without one.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from collectors.assignment import requested_parts
from collectors.nodes.backoff import Backoff, is_for_want_of_a_job
from collectors.nodes.stream import ProbeStream
from collectors.probe import bundle
from trainmon.lib import Clock, HostUnreachable, LoginNeeded, LoginRefused, Seconds, TrainmonError
from trainmon.model import (
    AnyReading,
    DiskSample,
    DiskSamples,
    Event,
    Hello,
    NodeReading,
    Source,
    SourceChanged,
    Spec,
    StandInEnded,
)
from trainmon.transport.shell import Shell

LEASE_EVERY = 20.0
"""Seconds between two lease bytes: the probe ends itself after 60 s without one."""

SILENCE = 45.0
"""Seconds without a line after which a probe is given up and started anew; every host says something each period."""

SETTLED = 60.0
"""Seconds a connection must hold before the next loss is retried at once again."""

Dial = Callable[[], Shell]


class NodeCollector:
    """Keeps one host's probe running. Its methods are called on the supervisor's thread and return at once."""

    def __init__(
        self, name: str, cluster: str, dial: Dial, submit: Callable[[Event], None], clock: Clock, *, python: str
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.is_dialled = True
        """Whether it is another machine."""
        self.implied: frozenset[str] = frozenset()
        self.reads_files = True
        """Whether its probe reads logs and switch files; the shell's fallback does not."""
        self.is_awaited = True
        """Whether it is being connected for the first time, and nobody knows yet whether it answers."""
        self.wake: Callable[[], None] = lambda: None
        self.losses = Backoff(clock)
        self._dial = dial
        self._submit = submit
        self._clock = clock
        self._python = python
        self._lock = threading.RLock()
        self._source = Source(name=f"node:{name}", kind="node", cluster=cluster)
        self._spec: Spec | None = None
        self._lent = Spec()
        self._lent_disks: dict[str, str] = {}
        """Of the disks at which it looked in the place of another, the names that they were told by."""
        self._shell: Shell | None = None
        self._feed: ProbeStream | None = None
        self._dialling = False
        self._stopped = False
        self._tries = 0
        self._retry_at: Seconds = 0.0
        self._up_since: Seconds = 0.0
        self._leased_at: Seconds = 0.0

    @property
    def is_up(self) -> bool:
        return self._source.phase == "up"

    @property
    def is_off(self) -> bool:
        return self._source.phase == "off"

    @property
    def shell(self) -> Shell:
        """The live connection; raises HostUnreachable with the words of its row where there is none."""
        with self._lock:
            shell, source = self._shell, self._source
        if shell is None:
            words = source.error or f"{self.name} is not connected"
            hint = source.hint or ("it is being connected" if source.phase in ("waiting", "connecting") else "")
            raise HostUnreachable(self.name, words, hint=hint)
        return shell

    def watch(self, spec: Spec, implied: frozenset[str], lent: Spec | None = None) -> None:
        """What to look at from now on, and what of it in the place of another host; tells the running probe when it
        differs."""
        with self._lock:
            self.implied, self._lent = implied, lent or Spec()
            self._end_standing_in()
            if spec == self._spec:
                return
            self._spec = spec
            self._source = replace(self._source, period=spec.period)
            if self._feed is not None and self._feed.is_served:
                self._feed.write(bundle.spec_line(spec))

    def tick(self) -> None:
        """Do what is due: dial, renew the lease, give up a silent probe."""
        now = self._clock.monotonic()
        with self._lock:
            feed = self._feed
            if self.losses.is_overdue():
                self._settle()
            if self._stopped or self._dialling or self._source.phase in ("held", "off"):
                return
            if feed is None:
                if now >= self._retry_at:
                    self._connect()
                return
            if now - feed.heard_at > SILENCE:
                self._lost(
                    feed, HostUnreachable(self.name, f"connected, but its probe has been silent for {SILENCE:.0f} s")
                )
                return
            if now - self._leased_at >= LEASE_EVERY and feed.is_served:
                self._leased_at = now
                feed.write(bundle.LEASE)
            if feed.told != (feed.bad_lines, feed.stderr):
                feed.told = (feed.bad_lines, feed.stderr)
                self._tell(bad_lines=feed.bad_lines, stderr=feed.stderr)

    def hurry(self) -> None:
        """Dial now if it waits for its next try, or was refused for want of a job that may be there by now."""
        self._retry_at = 0.0
        if self.losses.needs_job:
            self.recall()

    def login(self) -> None:
        """A person asks: dial again, prompts and all."""
        with self._lock:
            if self._source.phase in ("held", "retrying") or (self.is_off and self.losses.needs_job):
                self._retry_at = 0.0
                self._tell(phase="waiting", error=None, hint=None)

    def rest(self, words: str) -> None:
        """Let go of the host, which is no fault: it is not wanted now."""
        with self._lock:
            if not self._stopped:
                self.losses.forget()
                self._let_go(words)

    def recall(self) -> None:
        """It is wanted again."""
        with self._lock:
            if self.is_off:
                self._retry_at = 0.0
                self._tell(phase="waiting", error=None, hint=None)

    def queue_spoke(self) -> None:
        """Its queue was looked at: whether a job of ours is there tells what its refusals and losses mean."""
        with self._lock:
            is_closed = self._feed is None and not self._dialling
            words = self.losses.lacks_job() if is_closed else None
            if words is not None:
                self._let_go(words)
            elif self.is_off and self.losses.needs_job and self.losses.is_ours():
                self.recall()
            elif self.losses.is_answered():
                self._settle()

    def stop(self) -> None:
        """Let go of the host; never blocks."""
        with self._lock:
            self._stopped = True
            self._close()

    def _connect(self) -> None:
        dial = threading.Thread(target=self._open, name=f"dial {self.name}", daemon=True)
        dial.start()  # raises where there can be no more threads
        self._dialling = True
        self._tell(phase="connecting", retry_at=None)

    def _open(self) -> None:
        """On a thread of its own: dial and start the probe."""
        shell: Shell | None = None
        feed = ProbeStream(self)
        try:
            shell = self._dial()
            feed.heard_at = self._clock.monotonic()
            with self._lock:
                self._shell, self._feed = shell, feed  # before it starts: it may end before `stream` has returned
                if self.is_off or self._stopped:  # no longer wanted meanwhile
                    return
            stream = shell.stream(bundle.command(self._python), feed)
            with self._lock:
                feed.stream = stream
                self._leased_at = self._clock.monotonic()
                self._answer(feed)
        except TrainmonError as error:
            self._failed(error, shell)
        except Exception as error:  # a fault of ours must not end the watch silently: it becomes the source's error
            self._failed(HostUnreachable(self.name, f"{type(error).__name__}: {error}"), shell)
        finally:
            with self._lock:
                self._dialling = False
                if self._stopped or self.is_off:
                    self._close()

    def _failed(self, error: TrainmonError, shell: Shell | None) -> None:
        if shell is not None:
            shell.close()
        asked = isinstance(error, HostUnreachable) and error.prompted
        with self._lock:
            self._feed = self._shell = None
            self._retry_or_hold(error, prompted=asked or (shell is not None and shell.prompted))

    def _lost(self, feed: ProbeStream, error: TrainmonError) -> None:
        with self._lock:
            if feed is not self._feed or self._stopped:
                return
            prompted = self._shell is not None and self._shell.prompted
            self._close()
            if self.is_up and self._clock.monotonic() - self._up_since > SETTLED:
                self._tries = 0
            self._retry_or_hold(error, prompted=prompted)
        self.wake()

    def _retry_or_hold(self, error: TrainmonError, *, prompted: bool) -> None:
        if self.is_off:
            return
        words = self.losses.means_off(error)
        if words is not None:
            self._let_go(words)
            return
        if prompted or isinstance(error, LoginNeeded | LoginRefused):
            hint = error.hint or "press L to log in again"
            self._tell(phase="held", error=error.message, hint=hint, retry_at=None)
            return
        pause = pause_before(self._tries)
        self._tries += 1
        self._retry_at = self._clock.monotonic() + pause
        told = self.losses.told(self.name, error)
        self._tell(phase="retrying", error=told.error, hint=told.hint, retry_at=self._clock.now() + pause)

    def _settle(self) -> None:
        """The queue knows nothing that would explain the loss: it is one."""
        told = self.losses.settled()
        if told is not None and self._source.phase in ("retrying", "connecting"):
            self._tell(error=told.error, hint=told.hint)

    def _let_go(self, words: str) -> None:
        if not self.is_off or self._source.hint != words:
            self._close()
            self._tries = 0
            self._tell(phase="off", error=None, hint=words, retry_at=None)

    def _close(self) -> None:
        feed, shell = self._feed, self._shell
        self._feed = self._shell = None
        if feed is not None and feed.stream is not None:
            feed.stream.close()
        if shell is not None:
            shell.close()

    def greeted(self, feed: ProbeStream) -> None:
        """The node has said what it is, on the event loop's thread; it may do so before `stream` has returned."""
        with self._lock:
            if feed is self._feed:
                self._answer(feed)

    def _answer(self, feed: ProbeStream) -> None:
        if feed.greeting is not None and feed.stream is not None and not feed.is_served:
            feed.is_served = True
            feed.write(bundle.payload(feed.greeting) + bundle.spec_line(self._spec or Spec()))

    def heard(self, feed: ProbeStream, reading: AnyReading) -> None:
        """A line of the probe, on the event loop's thread."""
        with self._lock:  # what a lost feed still says must not come after the word that it is lost
            if feed is self._feed:
                self._told(reading)

    def _told(self, reading: AnyReading) -> None:
        if not self.is_up:
            self._up_since = self._clock.monotonic()
            self.losses.forget()
            self._tell(phase="up", error=None, hint=None, retry_at=None)
            self.wake()
        if isinstance(reading, Hello) and self.reads_files != (reading.python is not None):
            self.reads_files = reading.python is not None
            self.wake()
        spec = self._spec or Spec()
        for part, is_lent in requested_parts(reading, spec, self._lent):
            told = part
            if isinstance(part, DiskSamples) and self.implied:
                told = by_mount(part, self.implied, spec)
            if isinstance(part, DiskSamples) and is_lent:
                self._lent_disks |= {disk.path: name_of(disk, self.implied) for disk in part.d}
            self._submit(NodeReading(self.name, self.cluster, self._clock.now(), told, is_stand_in=is_lent))

    def _end_standing_in(self) -> None:
        """What was told in the place of another host no longer counts when that reads again."""
        ended = {name for path, name in self._lent_disks.items() if path not in self._lent.disks}
        self._lent_disks = {path: name for path, name in self._lent_disks.items() if path in self._lent.disks}
        if ended := ended - set(self._lent_disks.values()):
            self._submit(StandInEnded(self.name, tuple(sorted(ended))))

    def monotonic(self) -> Seconds:
        return self._clock.monotonic()

    def ended(self, feed: ProbeStream, error: TrainmonError, *, said_nothing: bool) -> None:
        """The stream is over, on the event loop's thread. An interpreter that said nothing is not tried again."""
        if said_nothing and not is_for_want_of_a_job(error):
            self._python = bundle.NO_PYTHON
        self._lost(feed, error)

    def _tell(
        self,
        *,
        phase: Literal["waiting", "connecting", "up", "retrying", "held", "off"] | None = None,
        **changes: str | float | None,
    ) -> None:
        if phase is not None:
            changes["phase"] = phase
            self.is_awaited = self.is_awaited and phase in ("waiting", "connecting")
        self._source = replace(self._source, **changes)
        self._submit(SourceChanged(self._source))


def by_mount(reading: DiskSamples, implied: frozenset[str], spec: Spec | None) -> DiskSamples:
    """Call the disks under the runs' own paths by their mounts; one that is watched by name anyway is left out."""
    named = {path for path in (spec.disks if spec is not None else ()) if path not in implied}
    told: dict[str, msgspec.Struct] = {}
    for sample in reading.d:
        name = name_of(sample, implied)
        if sample.path not in implied or sample.mount is None:
            told[name] = sample
        elif name not in named:
            told.setdefault(name, replace(sample, path=name))
    return replace(reading, d=tuple(told.values()))


def name_of(sample: DiskSample, implied: frozenset[str]) -> str:
    """What a disk is called: by its mount where only a run's own path names it."""
    return sample.mount if sample.path in implied and sample.mount is not None else sample.path


def pause_before(tries: int) -> Seconds:
    """The pause before the next dial: 1 s doubling to 60 s, jittered so that 64 hosts do not come back at once."""
    return min(60.0, 2.0 ** min(tries, 6)) * random.uniform(0.5, 1.0) + 0.5
