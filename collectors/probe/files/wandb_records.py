"""The records of a `.wandb` file, and what they say, as far as it is sent. Runs on the node: Python 3.6.

The format is LevelDB's log: after 7 bytes of the file's own, blocks of 32 KiB hold chunks, each with its CRC-32, length
and type. A record is one chunk or several, and is a protobuf message of wandb_internal.proto.
"""

import functools
import re
import struct
import zlib

from collectors.probe import paths
from collectors.probe.files.metric_rows import Reader, Rows
from collectors.probe.stdlib import Any, Iterator, Mapping

# ---- the records of a `.wandb` file ----------------------------------------------------------------------------------

BLOCK = 32 * 1024
FILE_HEADER = struct.Struct("<4sHB")
CHUNK_HEADER = struct.Struct("<IHB")
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4

MAX_RECORD = 1 << 20
"""Bytes of a record; longer ones (a large table, an artifact's manifest) hold no curve."""

MALFORMED = (IndexError, TypeError, ValueError)
"""What reading a message that is none raises."""


class Records:
    """How far a file was read. The tail may be incomplete: it is waited for until valid data follow it."""

    def __init__(self) -> None:
        self.offset = 0
        self.damaged = 0
        """Blocks that were skipped, because a chunk in them is damaged."""
        self.tail = 0
        """Damaged or incomplete parts at the end of the file, if more than zeros are there."""
        self._parts = None  # type: list[bytes] | None
        self._doubtful_from = None  # type: int | None
        self._doubtful = 0

    def read(self, data: bytes, is_end: bool) -> "Iterator[tuple[int, bytes]]":
        """The whole records in the bytes at `offset`, each with its end. `is_end`: the file ends with these bytes.

        Raises:
            ValueError: when it is another kind of file.
        """
        position = 0
        if self.offset == 0:
            if len(data) < FILE_HEADER.size:
                return
            check_header(data)
            position = FILE_HEADER.size
        start = self.offset
        while True:
            self.offset = start + position
            left = BLOCK - self.offset % BLOCK
            found = self._chunk(data, position, left) if left >= CHUNK_HEADER.size else b""
            if found is None:
                break
            kind, length = found[:1], len(found) - 1
            if not kind:
                if position + left > len(data) and not is_end:
                    break
                if left >= CHUNK_HEADER.size:
                    self._doubtful += 1
                    self._parts = None
                    if self._doubtful_from is None:
                        self._doubtful_from = self.offset
                if position + left > len(data):
                    break
                position += left
                continue
            self.damaged, self._doubtful, self._doubtful_from = self.damaged + self._doubtful, 0, None
            position += CHUNK_HEADER.size + length
            record = self._joined(kind[0], found[1:])
            if record is not None:
                self.offset = start + position
                yield self.offset, record
        if is_end:
            self._end(data, start)

    def _end(self, data: bytes, start: int) -> None:
        """Go back to where the data at the end of the file stop being valid."""
        if self._doubtful_from is not None:
            self.offset = self._doubtful_from
        is_written = self.offset < start or data[self.offset - start :].strip(b"\0")
        self.tail = max(1, self._doubtful) if is_written or self._parts else 0
        self._doubtful, self._doubtful_from = 0, None

    def _chunk(self, data: bytes, position: int, left: int) -> "bytes | None":
        """The type and data of the chunk at a position; None if it is not all there, empty if it is damaged."""
        if position + CHUNK_HEADER.size > len(data):
            return None
        checksum, length, kind = CHUNK_HEADER.unpack_from(data, position)
        if length + CHUNK_HEADER.size > left or not WHOLE <= kind <= LAST:
            return b""
        if position + CHUNK_HEADER.size + length > len(data):
            return None
        found = data[position + CHUNK_HEADER.size - 1 : position + CHUNK_HEADER.size + length]
        return found if zlib.crc32(found) & 0xFFFFFFFF == checksum else b""

    def _joined(self, kind: int, data: bytes) -> "bytes | None":
        """The record that ends with this chunk, if one does."""
        if kind == WHOLE:
            self._parts = None
            return data
        if kind == FIRST:
            self._parts = [data]
        elif self._parts is not None:
            self._parts.append(data)
            if sum(map(len, self._parts)) > MAX_RECORD:
                self._parts = None
            elif kind == LAST:
                parts, self._parts = self._parts, None
                return b"".join(parts)
        return None


def check_header(data: bytes) -> None:
    """Check the first bytes of a file.

    Raises:
        ValueError: when it is another kind of file, or of another version.
    """
    name, magic, version = FILE_HEADER.unpack_from(data)
    if name != b":W&B" or magic != 0xBEE1:
        raise ValueError("is no .wandb file: its first bytes are wrong")
    if version:
        raise ValueError("has version %d of the format; only version 0 can be read" % version)


def fields(data: bytes) -> "Iterator[tuple[int, bytes | int]]":
    """The fields of a protobuf message: their numbers, and their values as bytes or as whole numbers.

    Raises:
        ValueError: when it is no such message.
        IndexError: the same.
    """
    position, end = 0, len(data)
    while position < end:
        tag = data[position]
        position += 1
        if tag > 127:
            position, tag = varint(data, position - 1)
        kind = tag & 7
        if kind == 0:
            position, number = varint(data, position)
            yield tag >> 3, number
            continue
        if kind == 2:
            length = data[position]
            position += 1
            if length > 127:
                position, length = varint(data, position - 1)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError("no protobuf message")
        if position + length > end:
            raise ValueError("a protobuf field is cut off")
        yield tag >> 3, data[position : position + length]
        position += length


def varint(data: bytes, position: int) -> "tuple[int, int]":
    """The position after a number of protobuf, and the number."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return position, number
        shift += 7
        if shift > 63:
            raise ValueError("a protobuf number is too long")


VALUE = b"\x82\x01"
"""The tag of field 16: the JSON of an item."""

MAX_KEYS = 10000


class Items:
    """Reads the items of histories, summaries and configs. The bytes of a key repeat, and are read once."""

    def __init__(self) -> None:
        self._names = {}  # type: dict[bytes, str]

    def read(self, data: bytes) -> "Iterator[tuple[str, bytes]]":
        """The keys, nested ones joined with dots, and their values in JSON."""
        for number, item in fields(data):
            if number != 1 or not isinstance(item, bytes):
                continue
            at = item.find(VALUE)
            name = self._names.get(item[:at])
            if name is not None and len(item) == at + 3 + item[at + 2]:
                yield name, item[at + 3 :]
                continue
            name, value = key_and_value(item)
            if at + 3 == len(item) - len(value) and len(value) < 128 and len(self._names) < MAX_KEYS:
                self._names[item[:at]] = name
            yield name, value


def grouped(message: bytes) -> "dict[int, list[Any]]":
    """The values of each field of a message."""
    found = {}  # type: dict[int, list[Any]]
    for number, value in fields(message):
        found.setdefault(number, []).append(value)
    return found


def key_and_value(item: bytes) -> "tuple[str, bytes]":
    """The key and the JSON of one item."""
    found = grouped(item)
    return b".".join(found.get(2) or found.get(1, [b""])[-1:]).decode("utf-8", "replace"), found.get(16, [b""])[-1]


def finite(text: bytes) -> float:
    """A number.

    Raises:
        ValueError: when it is none, or is not finite.
    """
    value = float(text)
    if value - value != 0:
        raise ValueError("not finite")
    return value


def instant(timestamp: bytes) -> float:
    """The Unix seconds of a protobuf Timestamp."""
    parts = dict(fields(timestamp))
    return int(parts.get(1, 0)) + int(parts.get(2, 0)) / 1e9


def signed(value: "bytes | int") -> int:
    """A protobuf int32 or int64, which is negative above its half."""
    number = value if isinstance(value, int) else 0
    return number - (1 << 64) if number >> 63 else number


# ---- what the records of a `.wandb` file say, as far as it is sent ---------------------------------------------------

MAX_NAMES = 300
"""Values of a summary, and settings of a config."""
MAX_TEXT = 2000
SUMMARY_TEXT = 200

MACHINE = re.compile(
    r"(gpu\.\d+\.(gpu|memoryAllocated|temp|powerWatts)|cpu|memory_percent|proc\.memory\.rssMB|network\.(sent|recv))$"
)
DEVICE = re.compile(r"\.\d+\.")
"""What is sent of the machine's metrics, and the number of a GPU in their names."""

RUN_TEXTS = {1: "id", 2: "entity", 3: "project", 6: "group", 8: "name", 13: "host"}
"""By field of a RunRecord."""


class Metrics(Rows):
    """The rows of one file, its run, and its settings and latest values."""

    def __init__(self, spec: "Mapping[str, Any]", size: int) -> None:
        super().__init__(spec, size)
        self._items = Items()
        self._measured = 0
        self._readers = {
            2: self._row,
            3: functools.partial(self._update, "summary", SUMMARY_TEXT),
            5: functools.partial(self._update, "config", MAX_TEXT),
            7: self._machine,
            17: self._run,
            18: self._exit,
        }  # type: dict[int, Any]
        """By field of a Record."""

    def add_record(self, end: int, record: bytes) -> None:
        """Take over one record that ends at this offset."""
        try:
            for number, value in fields(record):
                if number in self._readers:
                    self._readers[number](end, value)
        except MALFORMED:
            self.malformed += 1

    def _row(self, end: int, history: bytes) -> None:
        found = dict(self._items.read(history))
        step, at = found.pop("_step", None), found.pop("_timestamp", None)
        self.add(end, None if step is None else finite(step), None if at is None else finite(at), found.items())

    def _machine(self, end: int, stats: bytes) -> None:
        """Take over what the client has measured of its machine: of several GPUs, the least and the greatest value."""
        parts, found = grouped(stats), {}  # type: dict[int, list[bytes]], dict[str, list[float]]
        at = instant(parts[2][-1]) if 2 in parts else None
        for item in parts.get(3, ()):
            key, text = key_and_value(item)
            if MACHINE.match(key):
                found.setdefault("system/" + DEVICE.sub(".", key), []).append(finite(text))
        values = []  # type: list[tuple[str, float]]
        for name, numbers in found.items():
            ends = [(name + ".min", min(numbers)), (name + ".max", max(numbers))]
            values += ends if len(numbers) > 1 else [(name, numbers[0])]
        self._measured += 1
        self.add_point(self.rows + self._measured % 1e6 / 1e6, end, self.step or 0.0, at, values)

    def _exit(self, _: int, record: bytes) -> None:
        found, self.has_ended = dict(fields(record)), True
        self._changed["exit"] = [signed(found.get(1, 0)), signed(found.get(2, 0))]

    def _run(self, end: int, record: bytes) -> None:
        parts = grouped(record)
        texts = {name: parts[number][-1][:MAX_TEXT] for number, name in RUN_TEXTS.items() if number in parts}
        run = {name: paths.shown(text) for name, text in texts.items()}  # type: dict[str, Any]
        for config in parts.get(4, ()):
            self._update("config", MAX_TEXT, end, config)
        for begun in parts.get(17, ()):
            run["started_at"] = instant(begun)
            self.started_at = "%.6f" % run["started_at"]
        self._changed["run"] = dict(run, tags=[paths.shown(tag[:SUMMARY_TEXT]) for tag in parts.get(10, ())][:50])

    def _update(self, what: str, longest: int, _: int, record: bytes) -> None:
        """Take over the values that a summary or a config has now."""
        known, changed = self._known[what], self._changed.setdefault(what, {})
        for key, value in self._items.read(record):
            text = value[: longest + 1]
            if known.get(key) != text and not key.startswith("_") and (key in known or len(known) < MAX_NAMES):
                known[key] = changed[key] = text


class WandbFile(Reader, Records):
    """The records of one file, whose rows are taken over."""

    def __init__(self, path: bytes, rows: Metrics) -> None:
        Records.__init__(self)
        Reader.__init__(self, path, rows)

    def take(self, data: bytes, size: int) -> None:
        """Take over the bytes at `offset` of a file of this size."""
        for end, record in self.read(data, self.offset + len(data) >= size):
            self.rows.add_record(end, record)
