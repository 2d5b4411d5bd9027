"""Recordings: what the engine was given, step by step, and an engine that is given it again.

A recording is one or more members of gzip. A member is a segment of frames, each after its length in four bytes. The
first frame of a segment has the whole State, so a segment can be played without those before it, and what a killed
program wrote is played up to its last step.

Rules and forecasts are not computed again: of each step, a frame has what they changed in the State. So a replay needs
no ledger and no config, shows the alerts of that time, and notifies nobody. The events make the rest: a State has every
node and run with each change, and would be many times as large.
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
from typing import Annotated, Any, ClassVar, get_args

import msgspec
from msgspec.structs import replace

from trainmon.analysis.log_formats import Format, named_regex
from trainmon.engine.engine import Engine
from trainmon.engine.history import Curves, History
from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import HOUR, MINUTE, Instant, Seconds, SystemClock, TrainmonError, counted, scrub_all, write_private
from trainmon.lib.threads import Background
from trainmon.model import (
    Alert,
    AlertRequested,
    AlertsRestored,
    CurvesGrew,
    Event,
    PromptsChanged,
    ReplayOrdered,
    State,
    Timeline,
)

# ---- the file --------------------------------------------------------------------------------------------------------

LENGTH = 4
VERSION = 1

MOST_BYTES, FRAME_BYTES = 1 << 30, 1000
"""The most memory for the frames of a file, and what a small one takes. 64 nodes need a tenth of it for an hour."""

EVENTS = {kind.__name__: kind for kind in get_args(Event)}
FIELDS: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(State)}
FIELDS["alerts"] = dict[str, Alert | None]


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the engine."""

    at: Annotated[Instant, msgspec.Meta(ge=0, le=2e11)]
    state: dict[str, msgspec.Raw]
    """The fields that rules and forecasts changed after the events. An alert that is as before is None."""
    events: tuple[tuple[str, msgspec.Raw], ...] = ()
    version: int = 0
    """Of the format, in the first frame of a segment: its `state` has all fields."""
    formats: tuple[tuple[str, str], ...] = ()
    """There, too: the name and the pattern of each log format of the config."""
    lost: int = 0
    """How many steps before it were not recorded."""
    fires: bool = False
    """Whether an alert begins to fire, or has another severity."""


def packed(value: object) -> msgspec.Raw:
    """A value without its secrets."""
    if isinstance(value, Mapping):  # one by one: all nodes at once would take 2 MiB
        return msgspec.Raw(msgspec.msgpack.encode({scrub_all(key): packed(one) for key, one in value.items()}))
    plain = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=list)
    return msgspec.Raw(msgspec.msgpack.encode(scrub_all(plain)))


def changes(before: State, after: State) -> dict[str, msgspec.Raw]:
    """What a frame has of a step, from the State that its events made to the one that was shown."""
    fields = {name: getattr(after, name) for name in FIELDS if getattr(before, name) is not getattr(after, name)}
    fields.pop("prompts", None)
    if "alerts" in fields:
        known = before.alerts
        fields["alerts"] = {name: None if known.get(name) is one else one for name, one in after.alerts.items()}
    return {name: packed(value) for name, value in fields.items()}


def changed(state: State, frame: Frame) -> State:
    """The State that was shown, from the one that the events of a frame made."""
    fields = {name: msgspec.msgpack.decode(data, type=FIELDS[name]) for name, data in frame.state.items()}
    if "alerts" in fields:
        fields["alerts"] = {name: one or state.alerts[name] for name, one in fields["alerts"].items()}
    return replace(state, **fields)


DAMAGED = "it is not a recording, or is damaged"
CUT_OFF = "its end is missing: the program was killed or still writes, or the file was not copied to its end"


def read_frames(file: Path) -> tuple[list[Frame], str]:
    """The frames of a recording, and why those that follow cannot be played.

    Raises:
        TrainmonError: when none of it can be played.
    """
    frames, why, size = list[Frame](), "", 0
    try:
        with gzip.open(file) as source:
            while length := source.read(LENGTH):
                size += FRAME_BYTES + int.from_bytes(length, "big")
                if size > MOST_BYTES:
                    why = "the rest is too large" if frames else DAMAGED
                    break
                frames.append(msgspec.msgpack.decode(source.read(int.from_bytes(length, "big")), type=Frame))
    except EOFError:
        why = CUT_OFF
    except (OSError, zlib.error, msgspec.MsgspecError, RecursionError) as error:
        why = getattr(error, "strerror", None) or DAMAGED
    if frames and frames[0].version > VERSION:
        why = "it is of a newer trainmon-tui"
    if not frames or frames[0].version != VERSION:
        raise TrainmonError(f"{file} cannot be played: {why or DAMAGED}")
    return frames, why


# ---- what writes it --------------------------------------------------------------------------------------------------

SEGMENT: Seconds = 5 * MINUTE
BEFORE, AFTER = 30 * MINUTE, 10 * MINUTE
"""What is saved of a critical alert. Those in the ten minutes are in the same file."""

KEEP: Seconds = HOUR
"""How far the segments of the last minutes reach back: a saved recording begins with a whole one."""

RING_BYTES, SAVED_FILES = 20 << 20, 20
"""The most of all segments of the last minutes, of which a saved recording is a part, and how many of these are kept.
64 nodes and 40 minutes need a quarter of it: `tests/bench/black_box.py`."""

OPEN = ".open"
"""At the end of the name of a segment that is not whole. It is in no saved recording: it would end there."""

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
        self._name = f"{os.getpid()}-{os.urandom(3).hex()}"
        """Of this program: in a container, the next one has the same process id."""
        self._steps = queue.SimpleQueue[tuple[int, Sequence[Event], State, State, tuple[Format, ...]] | None]()
        self._count = self._written = 0
        self._file: gzip.GzipFile | None = None
        self._formats: tuple[Format, ...] = ()
        self._started: Instant = 0.0
        self._firing: Mapping[str, str] | None = None
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
        if (
            self._alert_at is not None and not 0.0 <= state.at - self._alert_at < AFTER
        ):  # before a jump of the clock, too
            self._save(self._alert_at)
        firing = {one.id: one.severity for one in state.alerts.values() if one.is_firing}
        is_restored = any(isinstance(one, AlertsRestored) for one in events)
        known = firing if self._firing is None or is_restored else self._firing
        new = {severity for name, severity in firing.items() if known.get(name) != severity}
        frame: dict[str, Any] = {
            "at": state.at,
            "events": [(type(one).__name__, packed(one)) for one in events if not isinstance(one, PromptsChanged)],
            "lost": number - self._written - 1,
            "fires": bool(new),
        }
        is_old = frame["lost"] or formats is not self._formats or not 0.0 <= state.at - self._started < SEGMENT
        if self._file is None or is_old:
            self.end()
            self._file, self._started = self._opened(state.at), state.at
            frame |= {"version": VERSION, "formats": [(one.name, one.pattern) for one in formats]}
            reduced = State()
        data = msgspec.msgpack.encode(Frame(**frame, state=changes(reduced, state)))
        self._file.write(len(data).to_bytes(LENGTH, "big"))
        self._file.write(data)
        self._file.flush()
        self._written, self._formats, self._firing = number, formats, firing
        if frame["lost"]:
            self._say(f"{counted(frame['lost'], 'update')} could not be recorded in {self._path}")
        if self._is_ring and "critical" in new:
            self._alert_at = self._alert_at or state.at

    def _opened(self, at: Instant) -> gzip.GzipFile:
        file, size = self._path, 0
        if self._is_ring:
            file.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileNotFoundError):  # another program drops them, too
                for part in sorted(file.glob("*.part*"), reverse=True):
                    size += part.stat().st_size
                    if size > RING_BYTES or part.name < f"{at - KEEP:.0f}":
                        part.unlink()
            file /= f"{at:.0f}-{self._name}.part{OPEN}"
        file.touch(0o600)
        return gzip.open(file, "ab", 6)

    def end(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            if self._is_ring:
                Path(file.name).rename(file.name.removesuffix(OPEN))

    def _save(self, at: Instant) -> None:
        """Copy the segments around an alert into a file of their own."""
        self.end()
        parts = sorted(self._path.glob(f"*-{self._name}.part"))
        data = [part.read_bytes() for part in parts if part.name >= f"{at - BEFORE - SEGMENT:.0f}"]
        file = self._path / f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H-%M-%SZ}-{self._name}.trainmon"
        write_private(file, b"".join(data))
        self._alert_at = None
        for old in sorted(self._path.glob("*.trainmon"))[:-SAVED_FILES]:
            old.unlink(missing_ok=True)
        self._say(f"recorded around a critical alert: trainmon-tui replay {file}")


# ---- what plays it ---------------------------------------------------------------------------------------------------

SKIP: Seconds = 10.0
"""Of the keys that go back and forward."""

MARKS = 16
"""From how many times a replay can go on, so that going back does not play all of it again."""


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
        self.frames, self.why = read_frames(file)
        """`why`: why those that follow the last one cannot be played."""
        self.next = 0
        """The number of the frame that is played next."""
        self._marks: dict[int, tuple[History, Curves]] = {}
        """What charts draw, before the first frame of some segments."""
        start, end = self.frames[0].at, max(frame.at for frame in self.frames)
        self.line = Timeline(start, start, end, alerts=tuple(frame.at for frame in self.frames if frame.fires))
        self._moved_at = self.clock.monotonic()
        self.seek(start)
        if not self.frames:
            raise TrainmonError(f"{file} cannot be played: {self.why}")

    def _step(self) -> None:
        """Play the next frame."""
        frame = self.frames[self.next]
        events = [msgspec.msgpack.decode(data, type=EVENTS[name]) for name, data in frame.events]
        if frame.version:
            if self.next >= len(self._marks) * len(self.frames) // MARKS:
                self._marks.setdefault(self.next, deepcopy((self.rings, self.curves)))
            self.formats = tuple(starmap(named_regex, frame.formats))
        grown = list[CurvesGrew]()
        state = reduce(self.state, events, frame.at, self.formats, grown)
        state = changed(State() if frame.version else state, frame)
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
        except Exception:  # it is damaged, or we have not written it: it ends here
            del self.frames[self.next :]
            self.why = DAMAGED
        return self.state

    def _take(self, batch: Sequence[Event]) -> State:
        """Go on, as a person asked to."""
        now = self.clock.monotonic()
        passed = (now - self._moved_at) * self.line.speed * self.line.is_playing
        line = replace(self.line, at=min(self.line.end, self.line.at + passed))
        self._moved_at = now
        for event in batch:
            if isinstance(event, ReplayOrdered):
                line = ordered(line, event.order)
        self.line = replace(line, is_playing=line.is_playing and line.at < line.end)
        state = replace(self.seek(self.line.at), replay=self.line, read_only=True)
        if any(isinstance(event, AlertRequested) for event in batch):
            return replace(state, notice="a replay cannot be changed")
        is_over = self.why and self.next == len(self.frames)
        return replace(state, notice=f"the recording ends here: {self.why}") if is_over else state


def ordered(line: Timeline, order: str) -> Timeline:
    """Where a replay goes on after a request; see ReplayOrdered."""
    match order:
        case "pause":
            return replace(line, is_playing=not line.is_playing, at=line.at if line.at < line.end else line.start)
        case "slower" | "faster":
            return replace(line, speed=min(64.0, max(0.5, line.speed * (2.0 if order == "faster" else 0.5))))
        case "back" | "forward":
            skip = SKIP if order == "forward" else -SKIP
            return replace(line, at=min(line.end, max(line.start, line.at + skip)))
    return replace(line, at=next((one for one in line.alerts if one > line.at), line.at))
