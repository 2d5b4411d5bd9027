"""Lines out of blocks of bytes: bounded, progress bars collapsed, the newest kept. Runs on the node: Python 3.6.

Lines are split as bytes (no byte of a UTF-8 character looks like a newline), so block borders cut no character, and
only the few lines that are sent are ever decoded.
"""

import codecs
import re

from collectors.probe import ndjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Pattern
    from typing import Any

LINES = 200
"""At most this many lines a chunk: twice the tallest screen; more cannot be read in one period anyway."""

CHUNK_BYTES = 48 * 1024
"""And at most so many bytes of JSON, so that a burst on 64 nodes does not fill the operator's link."""

KEPT = 8
KEPT_BYTES = 16 * 1024
LINE_CHARACTERS = 4000
LINE_BYTES = 4 * LINE_CHARACTERS
"""As long as 4,000 characters of UTF-8 can be."""

CUT = "…"
LINE_END = re.compile(rb"[\n\0]")
BAR_END = re.compile(rb"\r")


def collapse(line: bytes) -> bytes:
    """A finished line as a terminal leaves it: what stands after the last carriage return; CRLF is a line end."""
    return line.rstrip(b"\r \t").rpartition(b"\r")[2] if b"\r" in line else line


def collapse_rest(rest: bytes) -> bytes:
    """The same for a line that goes on: a carriage return at its end still counts for what comes next."""
    if b"\r" in rest:
        seen = rest.rstrip(b"\r \t")
        tail = rest[len(seen) :]
        rest = seen.rpartition(b"\r")[2][:LINE_BYTES] + (b"\r" if b"\r" in tail else tail)
    return rest[: LINE_BYTES + 1]


def readable(line: bytes) -> str:
    """A finished line as text of bounded length."""
    line = collapse(line)
    text = line[:LINE_BYTES].decode("utf-8", "replace")
    return text if len(line) <= LINE_CHARACTERS or len(text) <= LINE_CHARACTERS else text[:LINE_CHARACTERS] + CUT


def wire_size(text: str) -> int:
    return len(ndjson.encoded(text)) + 2


class Lines:
    """The lines that went by since they were last taken, and the unfinished one."""

    def __init__(self, keep: "Pattern[str] | None" = None) -> None:
        self.keep = keep
        self.seen = 0
        self._dropped = 0
        self._newest = []  # type: list[bytes]
        self._kept = []  # type: list[str]
        self._is_past = False
        self.begin()

    def look_back(self) -> None:
        """What is fed now was there before anybody looked: too many of such lines are left out, and none is missed."""
        self._is_past = True

    def begin(self, inside: bool = False) -> None:
        """Begin another file or place; inside a line, whose end is then thrown away."""
        self._rest = b""
        self._inside = inside
        self._half = 0

    def skip(self, count: int) -> None:
        """Count lines that went by unread; the one that is now half read counts when it ends."""
        self.seen += count
        self._dropped += count
        self.begin(inside=True)
        self._half = 1

    def feed(self, data: bytes) -> None:
        if self._inside:
            data = self._from_next_line(data)
        # Holes that a truncation leaves under a writer who keeps its offset, and blocks a file server has yet to fill.
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        pieces = (self._rest + data).split(b"\n")
        self._rest = collapse_rest(pieces.pop())
        self._add(pieces)

    def _from_next_line(self, data: bytes) -> bytes:
        """What follows the half-read line: after its newline, or a hole, or else the next state of its bar."""
        end = LINE_END.search(data) or BAR_END.search(data)
        if not end:
            return b""
        if end.group() == b"\n":
            self.seen += self._half
            self._dropped += self._half
        self._inside = False
        return data[end.end() :]

    def flush(self) -> None:
        """The file has ended: its last line needs no newline."""
        rest, self._rest = self._rest, b""
        if rest.strip():
            self._add([rest])

    def _add(self, lines: "list[bytes]") -> None:
        self.seen += len(lines)
        surplus = len(self._newest) + len(lines) - LINES
        if surplus > 0:
            self._drop((self._newest + lines)[:surplus])
        self._newest = self._newest[max(0, surplus) :] + [collapse(line)[: LINE_BYTES + 1] for line in lines[-LINES:]]

    def _drop(self, lines: "list[bytes]") -> None:
        """Drop lines; the last ones that look like step lines are kept, so that no step is missed."""
        self._dropped += len(lines)
        found = []  # type: list[str]
        for line in reversed(lines if self.keep else ()):
            text = readable(line)
            if self.keep and self.keep.search(text):
                found.insert(0, text)
                if len(found) == KEPT:
                    break
        self._kept = (self._kept + found)[-KEPT:]

    def partial(self) -> "str | None":
        """The unfinished line as it now looks; a character that is still incomplete is left out."""
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(collapse(self._rest)[:LINE_BYTES])
        if not text.strip():
            return None
        return text if len(text) <= LINE_CHARACTERS else text[:LINE_CHARACTERS] + CUT

    def take(self) -> "dict[str, Any]":
        """What a chunk says of them; what there is none of is left out. The count begins anew."""
        lines = []  # type: list[str]
        room = CHUNK_BYTES
        while self._newest:
            text = readable(self._newest[-1])
            room -= wire_size(text)
            if room < 0:
                break
            lines.insert(0, text)
            self._newest.pop()
        self._drop(self._newest)
        while sum(map(wire_size, self._kept)) > KEPT_BYTES:
            del self._kept[0]
        dropped = 0 if self._is_past else self._dropped
        taken = {"lines": lines, "kept": self._kept, "dropped": dropped, "seen": self.seen}
        self.seen, self._dropped, self._newest, self._kept, self._is_past = 0, 0, [], [], False
        return {name: value for name, value in taken.items() if value}
