"""Reads older lines of a run's log on its host, searches the whole file, and finds the lines of a time."""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from sys import maxsize

from msgspec.structs import replace

from collectors.probe.files.lines import CUT_END, DOWN_AND_UP, LINE_BYTES, cut, readable
from trainmon.analysis.log_formats import Format, report, written
from trainmon.analysis.wandb import log_curves
from trainmon.engine.reducers.files import logged
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import CommandFailed, Instant, Seconds, TrainmonError, size
from trainmon.model import (
    LOG_PART,
    WANDB,
    CurvesGrew,
    Log,
    LogChunk,
    LogHits,
    LogPart,
    NodeReading,
    Run,
    State,
    StepNumbers,
)
from trainmon.transport.files import TIMEOUT, FileRange, read_range
from trainmon.transport.shell import Shell

SLOWEST_LINK = 20 * 1024
"""Bytes per second. Over a slower link, a read ends without an answer."""

CANDIDATES, LOOK_BACK = 5, 1024**3
"""Places in the file, and bytes before its end, in which known lines are looked for."""

SAVED_AT_ONCE = 256 * 1024
"""Bytes of a file that is saved: 6.4 s over a link of 40 KB/s, and one round trip."""

AROUND = 300
"""Lines before and after a known line that are shown with it."""

SEARCHED_AT_ONCE = 64 * 1024 * 1024
"""Bytes; the first time and on a slow host, fewer. They take 0.6 s of a local disk with mawk, 13 s with the awk of
busybox. 20 GB take 300 round trips."""
SEARCHED_FOR: Seconds = 2.0
"""How long a round trip may take before the next one is shorter: a search that is stopped ends on its host so soon."""
SEARCH_TIMEOUT: Seconds = 60.0

AT_ONCE, HITS = 5_000, 100_000
"""Matches that are reported at a time, and at all: the newest."""
LONGEST_TEXT = 200

PROBES = PROBE, _ = 16 * 1024, 256 * 1024
"""Bytes that show what time a place in a log is of; where they do not, the others."""

PIECES, PIECE = 64, 16 * 1024
"""How many pieces of a log are read for its curves, at most, and their bytes."""
RATE = 1024 * 1024
"""Bytes per second that a node reads for them, at most."""
TURN = threading.Lock()
"""One log at a time is read so."""

LOOKS = (1 / 2, 1 / 4, 3 / 4, 1 / 8, 3 / 8, 5 / 8, 7 / 8)
"""Where in a log is looked for such a place, one after the other."""

SEQUENCES = "(\x1b\\[[0-?]*[ -/]*[@-~])*"
"""The colours that a program may have written between two words."""

SPECIAL = re.compile(r"[.\[\\*^$+?(){|]")


def pattern_of(text: str) -> str:
    """The expression of awk on bytes that finds a text as the screen shows it."""
    return SEQUENCES.join(
        "".join(
            SPECIAL.sub(r"\\\g<0>", char) if char.isascii() else f"({'|'.join({char, char.lower(), char.upper()})})"
            for char in piece
        )
        for piece in re.findall(r"\w+|\W", text[:LONGEST_TEXT])
    )


def cut_lines(data: bytes, start: int, *, is_end: bool) -> tuple[tuple[int, ...], tuple[str, ...], int]:
    """The lines of a piece of a file that begins at `start`, cut as the probe cuts new ones: where each begins, its
    text, and where the next one begins. `is_end`: whether the last line is all that there is. Of a file that has no
    line breaks, each state is a line."""
    found = CUT_END.search(data) if start else None
    first = found.end() if found is not None and (found.end() < len(data) or len(data) < LINE_BYTES) else 0
    data, start = data[first:], start + first
    is_long = len(data) > LINE_BYTES and b"\n" not in data.rstrip() and b"\r" in data.rstrip()
    mark = b"\r" if is_long else b"\n"
    end = len(data) if is_end else data.rfind(mark) + 1 or len(data)
    within = {at for found in DOWN_AND_UP.finditer(data) for at in range(found.start(), found.end(1))}
    breaks = [found.start() for found in re.finditer(mark, data[:end]) if found.start() not in within]
    offsets, texts, at = list[int](), list[str](), 0
    for stop in (*breaks, end):
        lines = cut(b"", data[at:stop] + b"\n")[0] if stop < end or at < end else ()
        for text in (text for line in lines for text in readable(line).split("\r")):
            offsets.append(start + at)
            texts.append(cleaned(text))
        at = stop + 1
    return tuple(offsets), tuple(texts), start + end


class ReplacedError(CommandFailed):
    """Another file is there, or another text."""


class LogFile:
    """The log of a run, as it is on its host now. Each request has its own thread, on which it gets its reply; what
    failed is the `error` of the reply."""

    def __init__(self, run: Run, shell_of: Callable[[str], Shell], formats: Sequence[Format]) -> None:
        self._run, self._shell_of, self._formats = run, shell_of, formats
        self._file, self._size = "", 0

    def history(self, reply: Callable[[CurvesGrew], object]) -> None:
        """Read the curves of the lines before the known ones: of all of them, or of pieces from all over the file. One
        reply for each start of the trainer, the last one first."""

        def work() -> None:
            run, log = self._run, self._run.log
            assert log is not None and log.path is not None and run.log_metrics is not None  # noqa: PT018
            oldest, lines = run.log_metrics.runs[-1], list[str]()
            with TURN:
                self._size = log.size or 0  # a shorter file is another one
                end = self._size - sum(len(line) + 1 for line in log.lines)
                for start in range(0, end, max(PIECE, end // PIECES)):
                    piece = self._range(start, min(end - start, PIECE))
                    lines += cut_lines(piece.data, piece.start, is_end=False)[1]
                    time.sleep(PIECE / RATE)
                at = oldest.created_at or 0.0
                chunk = LogChunk(
                    v=1, t=at, id=run.name, path=log.path, lines=tuple(lines), seen=len(lines), mtime=at,
                    restarted="newer",
                )  # fmt: skip
                before = Run(spec=run.spec, log=Log(host=log.host, first=-len(lines)))
                read, grown = logged(
                    before, NodeReading(log.host, run.spec.cluster, at, chunk), chunk, tuple(self._formats)
                )
            if read.progress.format != run.progress.format:
                return  # garbage may look like another one
            for one in reversed(grown):
                goes_on = one is grown[-1] and oldest.id == log_curves.FIRST
                reply(replace(one, path=oldest.path if goes_on else one.path, is_older=True))

        _start(work, lambda error: None)  # its curves then begin where it was first read

    def read(self, start: int, end: int, reply: Callable[[LogPart], object]) -> None:
        """Read the lines between two offsets."""
        _start(lambda: reply(self._part(start, end)), partial(_refuse, reply))

    def above(self, lines: Sequence[str], near: int, reply: Callable[[LogPart], object]) -> None:
        """Read the lines around these, which are the first ones that are known: at about this offset, or before."""
        _start(lambda: reply(self._above(tuple(lines), near)), partial(_refuse, reply))

    def find(self, at: Instant, step: int | None, evidence: Sequence[str], reply: Callable[[LogPart], object]) -> None:
        """Read the lines around a time: by the times in the lines, the step, or lines that an alert has kept."""
        _start(lambda: reply(self._find(at, step, evidence)), partial(_refuse, reply))

    def search(self, text: str, reply: Callable[[LogHits], object]) -> Callable[[], None]:
        """Find a text in the whole file, from its end upwards. Replies after each piece, until it is stopped."""
        stopped = threading.Event()

        def work() -> None:
            for hits in self._hits(text):
                if stopped.is_set():
                    return
                reply(hits)

        _start(work, lambda error: reply(LogHits(error=_sentence(error))))
        return stopped.set

    def save(self, file: Path, reply: Callable[[str, bool], object]) -> Callable[[], None]:
        """Write the whole file into a new one on this machine, up to where it ends now. It has its name when it is
        complete; what was not is removed."""
        stopped, part = threading.Event(), file.parent / f"trainmon-log-{os.urandom(6).hex()}.part"

        def work() -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            end = self._range(0, 0).size
            remove = partial(part.unlink, missing_ok=True)
            atexit.register(remove)  # this thread ends with the program
            try:
                with part.open("xb") as opened:
                    while not file.exists() and not stopped.is_set() and (at := opened.tell()) < end:
                        reply(f"saved {size(at)} of {size(end)} into {file}", False)
                        opened.write(self._range(at, min(SAVED_AT_ONCE, end - at)).data)
                if file.exists() or stopped.is_set():
                    raise CommandFailed("stopped" if stopped.is_set() else f"{file} exists")
                part.rename(file)
            finally:
                remove()
            reply(f"{size(end)} in {file}", True)

        _start(work, lambda error: reply(f"not saved: {error}", True))
        return stopped.set

    # ---- on the threads ----

    def _range(self, start: int, length: int, pattern: str = "") -> FileRange:
        """Read a range of the file. It must still be the same one.

        Raises:
            TrainmonError: when it cannot be read, was replaced or truncated.
        """
        log = self._run.log
        if log is None or log.path is None or log.host == WANDB:
            raise CommandFailed("only the last lines of this log can be read")
        timeout = SEARCH_TIMEOUT if pattern else TIMEOUT + length / SLOWEST_LINK
        shell, file, size = self._shell_of(log.host), self._file, self._size  # other threads read it, too
        found = read_range(shell, log.path, start, length, pattern=pattern, most=AT_ONCE, timeout=timeout)
        if file not in ("", found.file) or found.size < size:
            raise ReplacedError("the log was replaced or truncated meanwhile")
        self._file, self._size = found.file, max(self._size, found.size)
        return found

    def _part(self, start: int, end: int, most: int = maxsize) -> LogPart:
        begin = max(0, start - 1)  # with the line break before it
        return self._read_in(self._range(begin, min(end - begin, most)))

    def _read_in(self, found: FileRange, known: Sequence[str] = ()) -> LogPart:
        """What a range says; of its lines only those around the `known` ones."""
        offsets, lines, end = cut_lines(found.data, found.start, is_end=found.start + len(found.data) >= found.size)
        start = offsets[0] if offsets else end
        part = LogPart(start=start, end=end, size=found.size, lines=lines, offsets=offsets, older=found.older)
        if known:
            at = next((at for at in range(len(lines)) if lines[at : at + len(known)] == known), None)
            if at is None or (at == 0 < part.start):
                return part
            first = max(0, at - AROUND)
            part = replace(part[first : at + AROUND], found=at - first)
        read = report(part.lines, self._formats, progress=self._run.progress, shape=self._run.memory.shape).lines
        said = (None if one.found is None else StepNumbers(one.found.step, one.found.target_step, one.found.loss)
                for one in read)  # fmt: skip
        return replace(part, numbers=tuple(said))

    def _above(self, known: tuple[str, ...], near: int) -> LogPart:
        for offset in self._candidates(max(known, key=len), near):
            start = max(0, offset - LOG_PART)
            part = self._read_in(self._range(start, offset + PROBE - start), known)
            if part.found is not None:
                return part
        raise CommandFailed("the lines that are shown were not found in the file")

    def _candidates(self, text: str, near: int) -> Iterator[int]:
        """Where a line may be."""
        yield max(0, near)
        for hits in self._hits(text):
            if hits.offsets or hits.size - hits.begin > LOOK_BACK:
                yield from hits.offsets[: -1 - CANDIDATES : -1]
                return

    def _hits(self, text: str) -> Iterator[LogHits]:
        pattern, reach = pattern_of(text), 8 * len(text)
        size = end = self._range(0, 0).size
        length = least = SEARCHED_AT_ONCE // 16
        found = LogHits(size=size, begin=size, is_done=size == 0)
        while not found.is_done:
            start, began_at = max(0, end - length), time.monotonic()
            piece = self._range(start, end - start + reach, pattern)
            offsets = piece.data.split()
            new = tuple(at for one in offsets if (at := start + int(one)) < end)
            begin = new[0] if new and len(offsets) == AT_ONCE else start
            hits = (*new, *found.offsets)
            is_done = begin == 0 or len(hits) >= HITS
            found = LogHits(offsets=hits, begin=begin, size=size, is_done=is_done, older=piece.older)
            is_fast = time.monotonic() - began_at < SEARCHED_FOR
            length = min(SEARCHED_AT_ONCE, 2 * (end - begin)) if is_fast else max(least, (end - begin) // 2)
            end = begin
            yield found
        if size == 0:
            yield found

    def _find(self, at: Instant, step: int | None, evidence: Sequence[str]) -> LogPart:
        low, high = 0, (size := self._range(0, 0).size)
        while high - low > LOG_PART:
            looks = (self._part(low + int(share * (high - low)), high, most) for share in LOOKS for most in PROBES)
            look = next(((one, late) for one in looks if (late := self._lateness(one, at, step))), None)
            if look is None:  # the lines between these two show nothing: the nearest are beside them
                low = high = high if high < size else low
                break
            part, late = look
            if late[0][0] > 0:
                high = part.offsets[late[0][1]]
            elif late[-1][0] < 0:
                low = part.offsets[late[-1][1]]
            else:
                low = high = part.offsets[nearest(late)]
        part = self._part(low - LOG_PART // 2, high + LOG_PART // 2) if high else LogPart()
        exact = [line for line, said in enumerate(part.numbers) if said is not None and said.step == step is not None]
        exact = exact or [line for line, text in enumerate(part.lines) if text in evidence]
        late = self._lateness(part, at, step)
        if exact or late:
            return replace(part, found=exact[-1] if exact else nearest(late))
        for text in reversed(evidence):
            offset = next((hits.offsets[-1] for hits in self._hits(text) if hits.offsets), None)
            if offset is not None:
                part = self._part(offset - LOG_PART // 2, offset + LOG_PART // 2)
                return replace(part, found=max(0, bisect_right(part.offsets, offset) - 1))
        raise CommandFailed("its lines show no times or steps")

    def _lateness(self, part: LogPart, at: Instant, step: int | None) -> list[tuple[float, int]]:
        """How much later its lines are than a time, or else than a step, each with the index of the line."""
        log = self._run.log
        last = () if log is None else log.lines[-AROUND:]
        times = written((*part.lines, *last), at if log is None or log.at is None else log.at)[: len(part.lines)]
        late = [(when - at, line) for line, when in enumerate(times) if when is not None]
        if step is None or len({by for by, _ in late}) > 1:
            return late
        steps = enumerate(None if said is None else said.step for said in part.numbers)
        return [(float(found - step), line) for line, found in steps if found is not None] or late


class LogHistories:
    """Watches the State: of each log that was there before, its older lines are read once."""

    def __init__(self, open_log: Callable[[Run], LogFile | None], submit: Callable[[CurvesGrew], None]) -> None:
        self._open, self._submit = open_log, submit
        self._seen: set[tuple[str, str | None]] = set()

    def observe(self, state: State) -> None:
        """Begin to read the logs that are new here. On the engine's thread; never waits."""
        for name, run in state.runs.items():
            log, metrics = run.log, run.log_metrics
            if log is None or metrics is None or log.host == WANDB or (name, log.path) in self._seen:
                continue
            self._seen.add((name, log.path))
            if not log.is_new and (file := self._open(run)) is not None:
                file.history(self._submit)


def nearest(late: Sequence[tuple[float, int]]) -> int:
    """The index of the line that is the least too early or too late."""
    return min((abs(by), line) for by, line in late)[1]


def _start(work: Callable[[], object], failed: Callable[[OSError | TrainmonError], object]) -> None:
    """Do this on its own thread."""

    def run() -> None:
        try:
            work()
        except (OSError, TrainmonError) as error:
            failed(error)

    threading.Thread(target=run, name="log file", daemon=True).start()


def _refuse(reply: Callable[[LogPart], object], error: OSError | TrainmonError) -> None:
    reply(LogPart(error=_sentence(error), is_other=isinstance(error, ReplacedError)))


def _sentence(error: OSError | TrainmonError) -> str:
    return error.message if isinstance(error, TrainmonError) else str(error)
