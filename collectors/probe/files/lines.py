"""Cuts the bytes of a log into lines, as a terminal shows them; keeps the newest. Runs on the node, too: Python 3.6.

What follows a carriage return is the next state of a line. A bar inside another one, such as that of an evaluation,
goes one line down and comes back with NESTED: it is a state of the line above it, and no line. Lines are cut as bytes,
so the border of a block cuts no character: no byte of a UTF-8 character looks like a control character. Only the few
lines that are sent are decoded.

Lines are taken out of the records in which containers and loggers keep them: docker's and Fluent Bit's JSON, JSON and
logfmt of structured loggers, also inside one another and behind what a collector puts in front. That and the time of a
record stay in front of its line.
"""

import codecs
import itertools
import re

from collectors.probe.stdlib import Any, Mapping, Pattern, from_json, to_json

# ---- cuts the bytes of a log into lines, as a terminal shows them; keeps the newest ----------------------------------

LINES = 200
"""At most this many lines in a chunk: twice the tallest screen. Nobody reads more in one period."""

CHUNK_BYTES = 48 * 1024
"""At most this many bytes of JSON in a chunk: a burst on 64 nodes must not fill the operator's link."""

KEPT = 8
KEPT_BYTES = 16 * 1024
BLOCK = 40, 15
"""How many lines before and behind a loss are kept with it where its step is in another line."""
ERROR = re.compile(rb"Traceback \(most|terminate called|Fatal Python error|\bFATAL\b|^\S{0,80}(?:Error|Exception):")
ERRORS = 60
"""How many lines of a burst are sent from the first error on: all ranks of a job fail within a second, and the first
one shows why. What may be a warning hides no traceback."""
COUNTER = re.compile(rb"step|iter|epoch|batch|update|\d/\d", re.IGNORECASE)
HEAD_MENTIONS, MENTION_CHARACTERS = 32, 1000

LINE_CHARACTERS = 4000
LINE_BYTES = 4 * LINE_CHARACTERS
"""The most bytes that 4,000 characters of UTF-8 take."""

NESTED = "\x1b[A"
"""The end of a state of a nested bar, as tqdm writes it: one line up."""

DOWN_AND_UP = re.compile(rb"(\n+)([^\n]*?)((?:\x1b\[1?A)+)")
COUNT = re.compile(r"\d(?:/[\d.?]{1,14}|it) \[\d")
"""What a bar that shows its steps has: `90/150 [00:01<`, `350it [00:09`."""
COUNT_OR_STEP = re.compile(COUNT.pattern + r"|(?i:step|iter|epoch|batch|update)\w{0,6}\W{1,3}\d")
"""Also what `print(f"step {step}/100", end="\\r")` writes."""

SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
CUT_END = re.compile(rb"[\n\0]|\r(?!\n)")
"""What ends the cut text at the beginning of data: a line break or a hole, or the next state of a bar. The states after
it are whole: a bar of a whole run is one line, and its step is in its last state."""
CONTINUATION = bytes(range(0x80, 0xC0))
"""The bytes of a UTF-8 character after its first one."""

DATED = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
DATED_CHARACTERS = 200


def cut(rest: bytes, data: bytes) -> "tuple[list[bytes], bytes]":
    """The lines that end in a block, and the unfinished one; `rest`: the unfinished one before the block. It comes
    without its former states. A carriage return at its end still applies to what follows."""
    # NUL: a hole after a truncation under a writer that keeps its offset, or blocks that a server has not filled.
    data = rest + data.replace(b"\0", b"")
    if b"\x1b[" in data:
        data = DOWN_AND_UP.sub(_on_the_line_above, data)
    *lines, rest = joined(data).split(b"\n")
    before, rewritten, last = rest.rpartition(b"\r")
    if rewritten:
        rest = collapsed(before) + b"\r" + (last if last.strip() else b"")
    return [text for line in lines for text in unwrapped(line)], rest[: 2 * LINE_BYTES]


def _on_the_line_above(found: "re.Match[bytes]") -> bytes:
    """As many lines down as up again: the rest of the line breaks stays."""
    down, text, up = found.groups()
    return down[up.count(b"A") :] + b"\r" + text + NESTED.encode() + b"\r"


def after_cut(data: bytes) -> "tuple[bytes, bytes]":
    """Of data that begins inside a line: what ends the cut text (CUT_END), and the data after it; nothing if none
    does."""
    found = CUT_END.search(data)
    return (found.group(), data[found.end() :]) if found else (b"", b"")


def lines_of(data: bytes, is_cut: bool = False) -> "list[str]":
    """The lines of a whole log, with the unfinished one; `is_cut`: of its end, which may begin inside a line."""
    if is_cut:
        data = after_cut(data)[1] or data.lstrip(CONTINUATION)
    lines, rest = cut(b"", data)
    texts = [text for line in lines for text in readable(line).split("\r")]
    return texts + (readable(rest, is_finished=False).split("\r") if collapsed(rest).strip() else [])


def decoded(data: bytes) -> str:
    """The lines of a log as one text, each with all states of its bars. The lines of a record are one of them."""
    whole = joined(data.replace(b"\0", b""))
    lines = whole[: len(whole) - whole.endswith(b"\n")].split(b"\n")
    return b"\n".join(b"\r".join(unwrapped(line)) for line in lines).decode("utf-8", "replace")


def shown(line: str, is_finished: bool = True) -> "list[str]":
    """What counts of a line: its last state; before it the last bar of the line, if a nested bar or a text follows it,
    because that has no step. The last state of an unfinished line may be torn: the bar or the step before it counts,
    too."""
    last, is_erased = "", False
    for state in line.replace(NESTED, NESTED + "\r").split("\r")[::-1]:
        is_nested = NESTED in state
        if not SEQUENCE.sub("", state).strip():
            is_erased |= is_nested
        elif not is_nested and (COUNT.search(state) if is_finished else last and COUNT_OR_STEP.search(state)):
            return [state, last] if last else [state]
        elif not (last or (is_nested and is_erased)):
            last = state
    return [last] if last else []


def collapsed(line: bytes, is_finished: bool = True) -> bytes:
    """A line with only the states that count, as bytes."""
    if b"\r" not in line and NESTED.encode() not in line:
        return line
    return "\r".join(shown(line.decode("latin-1"), is_finished)).encode("latin-1")


def readable(line: bytes, is_finished: bool = True) -> str:
    """A line as text of bounded length, without the incomplete last character of an unfinished one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    read = decoder.decode(collapsed(line, is_finished)[:LINE_BYTES], is_finished)
    return read if len(read) <= LINE_CHARACTERS else read[:LINE_CHARACTERS] + "…"


def wire_size(text: str) -> int:
    return len(to_json(text)) + 2


def _read(numbered: "tuple[int, bytes]") -> "tuple[int, str]":
    return numbered[0], readable(numbered[1])


class Lines:
    """The lines since the last `take`, and the unfinished line."""

    def __init__(self, keep: "Pattern[str] | None" = None) -> None:
        self.keep = keep
        self.count = 0
        self._dropped = 0
        self._newest = []  # type: list[bytes]
        self._kept = []  # type: list[tuple[int, str]]
        self._errors = []  # type: list[tuple[int, str]]
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
            end, data = after_cut(data)
            if end == b"\n":
                self.count += self._cut_lines
                self._dropped += self._cut_lines
            self._inside = not end
        lines, self._rest = cut(self._rest, data)
        self._add(lines)

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
        self._newest = self._newest[max(0, surplus) :] + [collapsed(line)[: LINE_BYTES + 1] for line in lines[-LINES:]]

    def _drop(self, lines: "list[bytes]") -> None:
        """Drop lines, but keep the last ones that match `keep`; of a step in several lines, those around the last. And
        the first error."""
        numbered = list(enumerate(lines, self._dropped))
        self._dropped += len(lines)
        from_error = itertools.dropwhile(lambda one: not (self._errors or ERROR.search(one[1])), numbered)
        self._errors += map(_read, itertools.islice(from_error, ERRORS - len(self._errors)))
        keep = self.keep
        newest = range(len(lines) - 1, -1, -1)
        found = list(itertools.islice((at for at in newest if keep.search(readable(lines[at]))), KEPT)) if keep else []
        if found and not COUNTER.search(lines[found[0]]):
            self._kept = list(map(_read, numbered[max(0, found[0] - BLOCK[0]) : found[0] + BLOCK[1]]))
        elif found:
            self._kept = (self._kept + [_read(numbered[at]) for at in reversed(found)])[-KEPT:]

    def partial(self) -> "str | None":
        """The unfinished line: the bar or step before its last state, if there is one, a carriage return, and that
        state. A state with a carriage return behind it is whole: `print(..., end="\\r")` writes them so."""
        text = readable(self._rest, is_finished=False)
        return text + "\r" * self._rest.endswith(b"\r") if text.strip() else None

    def take(self) -> "dict[str, Any]":
        """The chunk's fields, without empty ones. Resets the counts."""
        lines = []  # type: list[str]
        free_bytes = CHUNK_BYTES
        while self._newest:
            text = readable(self._newest[-1])
            free_bytes -= wire_size(text)
            if free_bytes < 0:
                break
            lines[:0] = text.split("\r")  # a bar, and what was written over it
            self._newest.pop()
        self._drop(self._newest)
        kept, errors = self._kept, [] if self.is_history else self._errors
        while sum(wire_size(text) for _, text in kept) > KEPT_BYTES:
            del kept[0]
        while sum(wire_size(text) for _, text in errors) > KEPT_BYTES:
            del errors[-1]
        # A step that went back would be a restart: the last steps stand behind those that follow an error.
        first = errors[0][0] if errors else self._dropped
        older = sorted({*errors, *(one for one in kept if one[0] >= first)})
        taken = {
            "lines": [state for _, text in older for state in text.split("\r")] + lines,
            "kept": [text for at, text in kept if at < first],
            "mentions": self._mentions,
            "head": self._head,
            "dropped": 0 if self.is_history else self._dropped - len(older),
            "seen": self.count,
        }
        self.count, self._dropped, self.is_history = 0, 0, False
        self._newest, self._kept, self._errors, self._mentions, self._head = [], [], [], [], ""
        return {name: value for name, value in taken.items() if value}


# ---- takes the lines of a program out of the records in which containers and loggers keep them -----------------------

MESSAGES = "log", "message", "msg", "MESSAGE"
"""The last one is journald's."""
TIMES = "time", "timestamp", "@timestamp", "ts", "asctime", "__REALTIME_TIMESTAMP"
TRACEBACKS = "exc_info", "exc_text", "traceback", "exception", "stack_trace", "stacktrace"
MEASURED = "loss", "step", "iter", "epoch"
"""Parts of names of values that make a record a step line of its own."""

RECORD = re.compile(
    rb"((?:(?:\d{4}-\d\d-\d\d[T ][\d:.,]{5,18}(?:Z|[+-]\d\d:?\d\d)?|[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}"  # a time
    rb"|\d{10,19}(?:\.\d{1,9})?(?= )|std(?:out|err)(?: F)?|[ \d]{0,4}\d:"  # seconds since 1970, CRI, srun --label
    rb"|[\w.-]{1,64} [\w./-]{1,40}\[\d{1,8}\]:|\[[^\[\]{}]{1,120}\]:?|<std\w{3}>:"  # journald, kubectl, torchrun
    rb"|[a-z][\w.-]{0,120} {1,20}\||\([^()]{0,60}(?:\([^()]{0,80}\))?[^()]{0,60}pid=[^()]{1,80}\)"  # compose, Ray
    rb"|(?:[a-z][a-z0-9-]{0,62} )?[a-z0-9][a-z0-9.-]{0,120}-(?:\d{1,5}|[b-df-hj-np-tv-z2-9]{5}) [a-z][a-z0-9-]{0,62}"
    rb"|\{(?:[\w.-]{1,60}=\"[^{}]{0,400})?\}(?= )) ?){0,5})"  # stern, Loki
    rb"(?:\{|((?:time|timestamp|ts|t|level|lvl|severity|logger|caller)=\S))"
)
"""What collectors put in front of a record, and the beginning of the record: JSON, or logfmt."""
FIELD = re.compile(r'([\w.@-]{1,60})=("(?:[^"\\]|\\.)*"|[^\s"]*)')

NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?$")

UNFINISHED = re.compile(
    rb'(?<!\\n)","stream":"std(?:out|err)"[^\n]{0,300}\}\n\{"log":"'  # docker
    rb"|(?<= std(?:out|err) )P ([^\n]*)\n\S{20,40} std(?:out|err) ([PF]) "  # CRI
)
"""The end of a record of an unfinished line, with the beginning of the next one."""


def joined(data: bytes) -> bytes:
    """Data in which lines that stand in several records, because they are long, stand in one."""
    count = int(b" P " in data or b'{"log":"' in data)
    while count:
        data, count = UNFINISHED.subn(lambda found: found[2] + b" " + found[1] if found[2] else b"", data)
    return data


def unwrapped(line: bytes) -> "list[bytes]":
    """The lines that a record holds, with what is in front of it; the line itself if it is none. Quotes inside quotes
    double their length, so records inside records end soon."""
    found = RECORD.match(line) if b"{" in line or b"=" in line else None
    if not found:
        return [line]
    head, is_logfmt = found.groups()
    text = line[len(head) :].decode("utf-8", "replace")
    try:
        record = {name: _value(value) for name, value in FIELD.findall(text)} if is_logfmt else from_json(text)
    except (ValueError, TypeError, RecursionError):  # NaN, and what is nested without an end
        return [line]
    if not isinstance(record, dict) or not _has_message(record):
        return [line]
    return [head + text for held in _lines(record) for text in unwrapped(held)]


def _value(text: str) -> str:
    """A value of logfmt. Go writes an escape as `\\x1b`, which JSON does not know."""
    return str(from_json(text.replace("\\x", "\\u00"))) if text[:1] == '"' else text


def _has_message(record: "Mapping[str, object]") -> bool:
    """Whether a record has a message, and not the values of a step beside its title."""
    values = [name.lower() for name, value in record.items() if NUMBER.match(str(value))]
    is_step = any(part in name for name in values for part in MEASURED)
    return not is_step and any(isinstance(record.get(name), str) for name in _messages(record))


def _messages(record: "Mapping[str, object]") -> "tuple[str, ...]":
    """The names of its messages. logcli has a `line` beside `labels`; elsewhere a `line` is one of the source."""
    return (*MESSAGES, "line") if "labels" in record else MESSAGES


def _lines(record: "Mapping[str, object]") -> "list[bytes]":
    texts = [value for value in map(record.get, (*_messages(record), *TRACEBACKS)) if isinstance(value, str)]
    at = next((value for value in map(record.get, TIMES) if isinstance(value, str)), "")
    lines = "\n".join(text.rstrip("\n") for text in texts).split("\n")
    return [(at + " " * bool(at) + line).encode("utf-8", "replace") for line in lines]
