"""Recordings: what the engine was given, step by step, and an engine that is given it again.

A recording is one or more members of gzip. A member is a segment of frames, each after its length in four bytes. The
first frame of a segment has the whole State, so a segment can be played without those before it, and what a killed
program wrote is played up to its last step.

Rules and forecasts are not computed again: of each step, a frame has what they changed in the State. So a replay needs
no ledger and no config, shows the alerts of that time, and notifies nobody.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import queue
import zlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path
from typing import Any, ClassVar, get_args

import msgspec
from msgspec.structs import replace

from trainmon.analysis.log_formats import Format, named_regex
from trainmon.engine.engine import Engine
from trainmon.engine.history import Curves, History
from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import HOUR, MINUTE, Instant, Seconds, SystemClock, TrainmonError, scrub_all, write_private
from trainmon.lib.threads import Background
from trainmon.model import (
    Alert,
    AlertRequested,
    CurvesGrew,
    Event,
    PromptsChanged,
    ReplayOrdered,
    State,
    Timeline,
)

# ---- the file --------------------------------------------------------------------------------------------------------

LENGTH = 4

EVENTS = {kind.__name__: kind for kind in get_args(Event)}


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the engine. With `formats`, the first one of a segment: `state` is the whole State after it."""

    at: Instant
    state: msgspec.Raw
    """The fields but `alerts` that rules and forecasts changed after the events, as a State."""
    fields: tuple[str, ...] = ()
    """Which these are."""
    alerts: msgspec.Raw = msgspec.Raw(b"\x80")
    """Those that changed, by id."""
    ids: tuple[str, ...] = ()
    """Of all alerts, in their order."""
    firing: tuple[str, ...] = ()
    """Of those that fire."""
    events: tuple[tuple[str, msgspec.Raw], ...] = ()
    formats: tuple[tuple[str, str], ...] | None = None
    """The name and the pattern of each log format of the config."""


def changes(before: State, after: State) -> dict[str, Any]:
    """What a frame has of a step, from the State that its events made to the one that was shown."""
    fields = [name for name in State.__struct_fields__ if getattr(before, name) is not getattr(after, name)]
    return {
        "state": {name: getattr(after, name) for name in fields if name != "alerts"},
        "fields": [name for name in fields if name != "alerts"],
        "alerts": {name: one for name, one in after.alerts.items() if one is not before.alerts.get(name)},
        "ids": [*after.alerts],
        "firing": [name for name, one in after.alerts.items() if one.is_firing],
    }


def changed(state: State, frame: Frame) -> State:
    """The State that was shown, from the one that the events of a frame made."""
    found = msgspec.msgpack.decode(frame.state, type=State)
    alerts = {**state.alerts, **msgspec.msgpack.decode(frame.alerts, type=dict[str, Alert])}
    fields: dict[str, Any] = {name: getattr(found, name) for name in frame.fields}
    return replace(state, alerts={name: alerts[name] for name in frame.ids}, **fields)


def read_frames(file: Path) -> list[Frame]:
    """The frames of a recording, up to where it is damaged.

    Raises:
        TrainmonError: when none of it can be played.
    """
    frames, why = list[Frame](), "it is no recording, is damaged, or is of a newer trainmon-tui"
    try:
        with gzip.open(file) as source:
            while length := source.read(LENGTH):
                frames.append(msgspec.msgpack.decode(source.read(int.from_bytes(length, "big")), type=Frame))
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError) as error:
        why = getattr(error, "strerror", None) or why
    if not frames or frames[0].formats is None:
        raise TrainmonError(f"{file} cannot be played: {why}")
    return frames


# ---- what writes it --------------------------------------------------------------------------------------------------

SEGMENT: Seconds = 5 * MINUTE
BEFORE, AFTER = 30 * MINUTE, 10 * MINUTE
"""What is saved of a critical alert. Those in the ten minutes are in the same file."""

KEEP: Seconds = HOUR
"""How far the segments of the last minutes reach back: a saved recording begins with a whole one."""

RING_BYTES, SAVED_FILES = 20 << 20, 20
"""The most of all segments of the last minutes, of which a saved recording is a part, and how many of these are kept.
64 nodes and 40 minutes need a quarter of it: `tests/bench/black_box.py`."""

WAITING = 60
"""Steps that wait to be written. Further ones are dropped: the next one begins a new segment."""

AGAIN: Seconds = 60.0
"""After a failed write."""


class Recorder(Background):
    """Writes the steps of an engine: to a file, or the last minutes into files in a directory, of which it saves those
    around critical alerts. `say` tells a person a sentence."""

    stop_timeout: ClassVar[Seconds] = 3.0

    def __init__(self, path: Path, say: Callable[[str], object], *, is_ring: bool) -> None:
        super().__init__("recorder")
        self._path, self._say, self._is_ring = path, say, is_ring
        self._steps = queue.SimpleQueue[tuple[int, Sequence[Event], State, State, tuple[Format, ...]] | None]()
        self._count = self._written = 0
        self._file: gzip.GzipFile | None = None
        self._formats: tuple[Format, ...] = ()
        self._started: Instant = 0.0
        self._critical: set[str] | None = None
        self._alert_at: Instant | None = None
        """Of a critical alert that is to be saved."""

    def take(self, events: Sequence[Event], reduced: State, state: State, formats: tuple[Format, ...]) -> None:
        """Queue a step: its events, the State that they made, what rules and forecasts made of it, and the log formats
        of the config. Never blocks."""
        self._count += 1
        if self._steps.qsize() < WAITING:
            self._steps.put((self._count, events, reduced, state, formats))

    def _interrupt(self) -> None:
        self._steps.put(None)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                while (step := self._steps.get()) is not None:
                    self.write(*step)
                if self._alert_at is not None:
                    self._save(self._alert_at)
                self.end()
            except Exception as error:  # such as a disk that is full: what is shown goes on
                self._say(f"nothing is recorded in {self._path}: {getattr(error, 'strerror', None) or error}")
                self._file = None
                self._stopping.wait(AGAIN if self._is_ring else None)

    def write(
        self, number: int, events: Sequence[Event], reduced: State, state: State, formats: tuple[Format, ...]
    ) -> None:
        """Write a step, and begin and save segments.

        Raises:
            OSError: when it cannot be written.
        """
        kept = [(type(one).__name__, one) for one in events if not isinstance(one, PromptsChanged)]
        frame: dict[str, Any] = {"at": state.at, "events": kept}
        follows = number == self._written + 1 and formats is self._formats
        if follows and self._file is not None:
            self._put(self._file, frame | changes(reduced, state))
            frame["events"] = ()
        if not follows or self._file is None or not 0.0 <= state.at - self._started < SEGMENT:
            self.end()
            self._file, self._started = self._opened(state.at), state.at
            known = [(one.name, one.pattern) for one in formats]
            self._put(self._file, frame | {"state": replace(state, prompts=()), "formats": known})
        self._written, self._formats = number, formats
        critical = {one.id for one in state.alerts.values() if one.is_firing and one.severity == "critical"}
        if self._is_ring and self._critical is not None and not critical <= self._critical:
            self._alert_at = self._alert_at or state.at
        self._critical = critical
        if self._alert_at is not None and state.at >= self._alert_at + AFTER:
            self._save(self._alert_at)

    @staticmethod
    def _put(file: gzip.GzipFile, frame: Mapping[str, Any]) -> None:
        data = msgspec.msgpack.encode(scrub_all(msgspec.to_builtins(frame, builtin_types=(bytes,), enc_hook=list)))
        file.write(len(data).to_bytes(LENGTH, "big"))
        file.write(data)
        file.flush()

    def _opened(self, at: Instant) -> gzip.GzipFile:
        file, size = self._path, 0
        if self._is_ring:
            file.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileNotFoundError):  # another program drops them, too
                for part in sorted(file.glob("*.part"), reverse=True):
                    size += part.stat().st_size
                    if size > RING_BYTES or part.name < f"{at - KEEP:.0f}":
                        part.unlink()
            file /= f"{at:.0f}-{os.getpid()}.part"
        file.touch(0o600)
        return gzip.open(file, "ab", 6)

    def end(self) -> None:
        """Close the file."""
        if self._file is not None:
            with self._file:
                self._file = None

    def _save(self, at: Instant) -> None:
        """Copy the segments around an alert into a file of their own."""
        self.end()
        self._alert_at = None
        for old in sorted(self._path.glob("*.trainmon"))[: 1 - SAVED_FILES]:
            old.unlink(missing_ok=True)
        parts = sorted(self._path.glob(f"*-{os.getpid()}.part"))
        data = (part.read_bytes() for part in parts if part.name >= f"{at - BEFORE - SEGMENT:.0f}")
        file = self._path / f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H-%M-%SZ}.trainmon"
        write_private(file, b"".join(data))
        self._say(f"recorded around a critical alert: trainmon-tui replay {file}")


# ---- what plays it ---------------------------------------------------------------------------------------------------

SLOWEST, FASTEST = 0.5, 64.0
SKIP: Seconds = 10.0
"""Of the keys that go back and forward."""


class PlayedClock(SystemClock):
    """The time in a recording; what waits uses that of the machine."""

    at: Instant = 0.0

    def now(self) -> Instant:
        return self.at


class Player(Engine):
    """An engine that is given the frames of a recording.

    Raises:
        TrainmonError: when there is nothing to play.
    """

    clock: PlayedClock

    def __init__(self, file: Path) -> None:
        super().__init__(PlayedClock())
        self.frames = read_frames(file)
        self.next = 0
        """The number of the frame that is played next."""
        self._marks: dict[int, tuple[History, Curves]] = {}
        """What charts draw, before the first frame of each segment."""
        fired = {name: frame.at for frame in reversed(self.frames) for name in frame.firing}
        start, end = self.frames[0].at, self.frames[-1].at
        self.line = Timeline(start, start, end, alerts=tuple(sorted({*fired.values()})))
        self._moved_at = self.clock.monotonic()
        self.seek(start)

    def _step(self) -> None:
        """Play the next frame."""
        frame = self.frames[self.next]
        events = [msgspec.msgpack.decode(data, type=EVENTS[name]) for name, data in frame.events]
        if frame.formats is not None:
            self._marks.setdefault(self.next, deepcopy((self.rings, self.curves)))
            self.formats = tuple(starmap(named_regex, frame.formats))
        grown = list[CurvesGrew]()
        state = reduce(self.state, events, frame.at, self.formats, grown)
        state = changed(state, frame) if frame.formats is None else msgspec.msgpack.decode(frame.state, type=State)
        with self._lock:
            self._record(state, (*events, *grown))
            self.state, self.clock.at = state, frame.at
        self.next += 1

    def seek(self, at: Instant) -> State:
        """The State at a time, or the first one."""
        if at < self.state.at:
            self.next = max(one for one in self._marks if self.frames[one].at <= max(at, self.line.start))
            with self._lock:
                self.rings, self.curves = deepcopy(self._marks[self.next])
        try:
            while self.next < len(self.frames) and self.frames[self.next].at <= at:
                self._step()
        except msgspec.MsgspecError:  # it is damaged: it ends here
            del self.frames[self.next :]
        return self.state

    def _take(self, batch: Sequence[Event]) -> State:
        """Go on, as a person asked to."""
        now = self.clock.monotonic()
        moved = (now - self._moved_at) * self.line.speed * self.line.is_playing
        end = self.frames[-1].at
        line = replace(self.line, end=end, at=min(end, self.line.at + moved))
        self._moved_at = now
        for event in batch:
            if isinstance(event, ReplayOrdered):
                line = ordered(line, event.order)
        self.line = replace(line, is_playing=line.is_playing and line.at < end)
        state = replace(self.seek(self.line.at), replay=self.line, read_only=True)
        is_refused = any(isinstance(event, AlertRequested) for event in batch)
        return replace(state, notice="a recording cannot be changed") if is_refused else state


def ordered(line: Timeline, order: str) -> Timeline:
    """Where a replay goes on after a request; see ReplayOrdered."""
    match order:
        case "pause":
            return replace(line, is_playing=not line.is_playing, at=line.at if line.at < line.end else line.start)
        case "slower" | "faster":
            factor = 2.0 if order == "faster" else 0.5
            return replace(line, speed=min(FASTEST, max(SLOWEST, line.speed * factor)))
        case "back" | "forward":
            skip = SKIP if order == "forward" else -SKIP
            return replace(line, at=min(line.end, max(line.start, line.at + skip)))
    return replace(line, at=next((one for one in line.alerts if one > line.at), line.at))
