"""Splits blocks of bytes into lines: bounded, progress bars collapsed, the newest kept. Runs on the node: Python 3.6.

Lines are split as bytes, so block borders cut no character: no byte of a UTF-8 character looks like a newline. Only the
few lines that are sent are decoded.
"""

import codecs
import itertools
import re

from collectors.probe import ndjson
from collectors.probe.annotations import Any, Pattern

LINES = 200
"""At most this many lines in a chunk: twice the tallest screen. Nobody reads more in one period."""

CHUNK_BYTES = 48 * 1024
"""At most this many bytes of JSON in a chunk: a burst on 64 nodes must not fill the operator's link."""

KEPT = 8
KEPT_BYTES = 16 * 1024
BLOCK = 40, 15
"""How many lines before and behind a loss are kept with it where its step is in another line."""
COUNTER = re.compile(rb"step|iter|epoch|batch|update|\d/\d", re.IGNORECASE)
HEAD_MENTIONS, MENTION_CHARACTERS = 32, 1000
LINE_CHARACTERS = 4000
LINE_BYTES = 4 * LINE_CHARACTERS
"""The most bytes that 4,000 characters of UTF-8 take."""

DATED = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
DATED_CHARACTERS = 200
LINE_END = re.compile(rb"[\n\0]")
BAR_END = re.compile(rb"\r")


def collapse(line: bytes) -> bytes:
    """A finished line as a terminal shows it: the text after the last carriage return. CRLF is a line end."""
    return line.rstrip(b"\r \t").rpartition(b"\r")[2] if b"\r" in line else line


def collapse_rest(rest: bytes) -> bytes:
    """The same for an unfinished line: a carriage return at its end still applies to what follows."""
    if b"\r" in rest:
        visible = rest.rstrip(b"\r \t")
        tail = rest[len(visible) :]
        rest = visible.rpartition(b"\r")[2][:LINE_BYTES] + (b"\r" if b"\r" in tail else tail)
    return rest[: LINE_BYTES + 1]


def readable(line: bytes) -> str:
    """A finished line as text of bounded length."""
    return shortened(collapse(line)[:LINE_BYTES].decode("utf-8", "replace"))


def shortened(text: str) -> str:
    return text if len(text) <= LINE_CHARACTERS else text[:LINE_CHARACTERS] + "…"


def wire_size(text: str) -> int:
    return len(ndjson.encoded(text)) + 2


class Lines:
    """The lines since the last `take`, and the unfinished line."""

    def __init__(self, keep: "Pattern[str] | None" = None) -> None:
        self.keep = keep
        self.count = 0
        self._dropped = 0
        self._newest = []  # type: list[bytes]
        self._kept = []  # type: list[str]
        self.mentions = ()  # type: tuple[bytes, ...]
        """Texts: of the lines from before the probe started, some with one of them are sent."""
        self._mentions = []  # type: list[str]
        self._head = ""
        self.is_history = False
        """Whether the lines were written before the probe started. Surplus ones are then not counted as dropped."""
        self.begin()

    def begin(self, inside: bool = False) -> None:
        """Begin another file or position. Inside a line, the end of that line is discarded."""
        self._rest = b""
        self._inside = inside
        self._cut_lines = 0

    def look_at_head(self, head: bytes) -> None:
        """Keep the first line of the file that has a date and a time: it shows when its writer began."""
        dated = (line for line in head.split(b"\n") if DATED.search(line))
        self._head = readable(next(dated, b""))[:DATED_CHARACTERS]

    def look_back(self, head: bytes, last: bytes) -> None:
        """Keep the first lines of the head that mention a text, and for each text the last line before the end."""
        lines = [line for line in head.split(b"\n") if any(text in line for text in self.mentions)][:HEAD_MENTIONS]
        for at in sorted(set(map(last.rfind, self.mentions)) - {-1}):
            lines.append(last[last.rfind(b"\n", 0, at) + 1 :].split(b"\n", 1)[0])
        self._mentions = [readable(line)[:MENTION_CHARACTERS] for line in dict.fromkeys(lines)]

    def skip(self, count: int) -> None:
        """Count unread lines. The line that is cut by this counts when it ends."""
        self.count += count
        self._dropped += count
        self.begin(inside=True)
        self._cut_lines = 1

    def feed(self, data: bytes) -> None:
        if self._inside:
            data = self._from_next_line(data)
        # NUL: a hole after a truncation under a writer that keeps its offset, or blocks that a server has not filled.
        *lines, rest = (self._rest + data.replace(b"\0", b"")).split(b"\n")
        self._rest = collapse_rest(rest)
        self._add(lines)

    def _from_next_line(self, data: bytes) -> bytes:
        """The data after the cut line: after its newline or a hole, or else after a carriage return of its bar."""
        end = LINE_END.search(data) or BAR_END.search(data)
        if not end:
            return b""
        if end.group() == b"\n":
            self.count += self._cut_lines
            self._dropped += self._cut_lines
        self._inside = False
        return data[end.end() :]

    def flush(self) -> None:
        """The file has ended: its last line needs no newline."""
        if self._rest.strip():
            self._add([self._rest])
        self._rest = b""

    def _add(self, lines: "list[bytes]") -> None:
        self.count += len(lines)
        surplus = len(self._newest) + len(lines) - LINES
        if surplus > 0:
            self._drop((self._newest + lines)[:surplus])
        self._newest = self._newest[max(0, surplus) :] + [collapse(line)[: LINE_BYTES + 1] for line in lines[-LINES:]]

    def _drop(self, lines: "list[bytes]") -> None:
        """Drop lines, but keep the last ones that match `keep`; of a step in several lines, those around the last."""
        self._dropped += len(lines)
        keep = self.keep
        newest = range(len(lines) - 1, -1, -1)
        found = list(itertools.islice((at for at in newest if keep.search(readable(lines[at]))), KEPT)) if keep else []
        if found and not COUNTER.search(lines[found[0]]):
            self._kept = [readable(line) for line in lines[max(0, found[0] - BLOCK[0]) : found[0] + BLOCK[1]]]
        elif found:
            self._kept = (self._kept + [readable(lines[at]) for at in reversed(found)])[-KEPT:]

    def partial(self) -> "str | None":
        """The unfinished line as it looks now, without an incomplete last character."""
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(collapse(self._rest)[:LINE_BYTES])
        return shortened(text) if text.strip() else None

    def take(self) -> "dict[str, Any]":
        """The chunk's fields, without empty ones. Resets the counts."""
        lines = []  # type: list[str]
        free_bytes = CHUNK_BYTES
        while self._newest:
            text = readable(self._newest[-1])
            free_bytes -= wire_size(text)
            if free_bytes < 0:
                break
            lines.insert(0, text)
            self._newest.pop()
        self._drop(self._newest)
        while sum(map(wire_size, self._kept)) > KEPT_BYTES:
            del self._kept[0]
        taken = {
            "lines": lines,
            "kept": self._kept,
            "mentions": self._mentions,
            "head": self._head,
            "dropped": 0 if self.is_history else self._dropped,
            "seen": self.count,
        }
        self.count, self._dropped, self.is_history = 0, 0, False
        self._newest, self._kept, self._mentions, self._head = [], [], [], ""
        return {name: value for name, value in taken.items() if value}
