"""Files of metrics: TensorBoard's event files, Lightning's CSV, JSON lines, and the state in a checkpoint of Hugging
Face's Trainer. Runs on the node: Python 3.6."""

import csv
import json
import math
import re
import struct

from collectors.probe.files.metric_rows import Reader, Rows, number_of
from collectors.probe.files.wandb_records import MALFORMED, fields, signed
from collectors.probe.paths import shown
from collectors.probe.stdlib import Any, Iterator

# ---- TensorBoard -----------------------------------------------------------------------------------------------------

HEADER = struct.Struct("<QI")
"""The length of a record and the checksum of these 8 bytes. Behind the record comes its own checksum."""

CHECKSUM = struct.Struct("<I")

MAX_EVENT = 32 * 1024
"""Longer records hold images and graphs, and no scalars."""

VERSION = b"brain.Event:2"

MAX_STEP = 1e15
MILLISECONDS = 1e11
LATEST = 1e14
"""A greater time is in Unix milliseconds, or damaged. So is what is no number."""


TABLE = list(range(256))
"""Of CRC-32C."""
for _ in range(8):
    TABLE = [number >> 1 ^ 0x82F63B78 if number & 1 else number >> 1 for number in TABLE]


def masked_crc(data: bytes) -> int:
    """The checksum of TensorFlow's records: a CRC-32C, rotated, plus a constant."""
    crc, table = 0xFFFFFFFF, TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


class EventFile(Reader):
    """The scalars of one event file. The values of one step are one row."""

    is_numbered = False

    def __init__(self, path: bytes, rows: Rows) -> None:
        super().__init__(path, rows)
        self._is_lost = False
        self._lengths = {}  # type: dict[bytes, int]
        self._row = {}  # type: dict[str, float | str]
        self._at = (0, 0, 0.0)  # type: tuple[int, int, float]

    def take(self, data: bytes, size: int) -> None:
        """Take over the bytes at `offset` of a file of this size.

        Raises:
            ValueError: when it is another kind of file.
        """
        position, start = 0, self.offset
        while position + HEADER.size <= len(data):
            length = self._length(data, position)
            end = position + 1 if length is None else position + HEADER.size + length + CHECKSUM.size
            is_large = (length or 0) > MAX_EVENT
            if length is not None and (start + end > size or (end > len(data) and not is_large)):
                break  # not all of it is there
            record = data[position + HEADER.size : end - CHECKSUM.size]
            checksum = data[end - CHECKSUM.size : end]
            if length is not None and (is_large or CHECKSUM.pack(masked_crc(record)) == checksum):
                self._is_lost, position = False, end
                if not is_large:
                    self._event(record, start + end)
                continue
            if length is None and not start + position:
                raise ValueError("is no event file: its first bytes are wrong")
            following = (at for at in range(end, len(data) - HEADER.size + 1) if self._length(data, at) is not None)
            found = next(following, None)
            if found is None and start + len(data) >= size:
                break  # it is waited for until something valid follows
            self.damaged += not self._is_lost
            self._is_lost = found is None
            position = max(end, len(data) - HEADER.size + 1) if found is None else found
        self._flush()
        is_waiting = not position or start + len(data) >= size
        self.offset, self.tail = start + position, int(is_waiting and data[position:].strip(b"\0") != b"")

    def _length(self, data: bytes, at: int) -> "int | None":
        """The length of a record; None if there is no valid header. Lengths repeat."""
        header = data[at : at + HEADER.size]
        length = self._lengths.get(header)
        may_be = header[6:8] == b"\0\0" != header[:2]
        if length is None and may_be and masked_crc(header[:8]) == HEADER.unpack(header)[1]:
            length = self._lengths[header] = HEADER.unpack(header)[0]
        return length

    def _event(self, record: bytes, end: int) -> None:
        """Take over one event.

        Raises:
            ValueError: when the format has another version.
        """
        event = {}  # type: dict[int, Any]
        try:
            event.update(fields(record))
            self._scalars(event, end)
        except (*MALFORMED, AttributeError, KeyError, struct.error):
            self.damaged += 1
        version = event.get(3, VERSION)
        if version != VERSION and isinstance(version, bytes):
            raise ValueError("has version %s of the format; only brain.Event:2 can be read" % shown(version[:40]))

    def _scalars(self, event: "dict[int, Any]", end: int) -> None:
        values = (raw for number, raw in fields(event.get(5, b"")) if number == 1)  # type: Iterator[Any]
        for raw in values:
            value = dict(fields(raw))  # type: dict[int, Any]
            found = scalar(value)
            if found is None:
                continue
            name, at, step = self.prefix + shown(value[1]), *struct.unpack("<d", event[1]), signed(event.get(2, 0))
            if not (abs(at) < MILLISECONDS and abs(step) < MAX_STEP):
                raise ValueError("no time, or no step")
            if at == 0.0:
                continue  # what PyTorch's add_hparams writes: no row
            if not self._row or self._at[1] != step or name in self._row:
                self._flush()
                self._at = end, step, at
            self._row[name] = number_of(found)

    def _flush(self) -> None:
        row, self._row = self._row, {}
        if row:
            self.rows.add(*self._at, row.items())


def scalar(value: "dict[int, Any]") -> "float | None":
    """The number in a value of a summary: 2 simple_value; 8 tensor, with 1 dtype (1 float, 2 double), 4 content, 5
    float_val, 6 double_val."""
    tensor = dict(fields(value[8])) if 8 in value else {}  # type: dict[int, Any]
    kind = "<f" if 2 in value or tensor.get(1) == 1 else "<d"
    data = value.get(2) or tensor.get(4) or tensor.get(5 if kind == "<f" else 6) or b""
    return float(struct.unpack(kind, data)[0]) if len(data) == struct.calcsize(kind) else None


# ---- text ------------------------------------------------------------------------------------------------------------

STEPS = (
    "global_step", "train/global_step", "trainer/global_step", "step", "train/step", "train_step", "current_steps",
    "iteration", "iter", "_step",
)  # fmt: skip
"""What counts all steps comes before what may begin again with each epoch, or counts the calls of log()."""
TIMES = ("_timestamp", "timestamp", "wall_time", "time")
TARGETS = ("max_steps", "total_steps", "train_iters", "max_iters", "num_training_steps")

SINCE_2001 = 1e9
"""A smaller number is no time in Unix seconds."""

NOT_JSON = (AttributeError, OverflowError, RecursionError, TypeError, ValueError, csv.Error)
"""What taking over a line raises that is damaged."""

MAX_LINE = 64 * 1024
MAX_STEPS = re.compile(r'"max_steps": *(\d+)')
NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)


def leaves(values: "dict[str, Any]", before: str = "") -> "Iterator[tuple[str, float]]":
    """The numbers in an object, also those that are texts, and those of objects in it, as `outer.inner`."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, before + name + ".")
        elif type(value) in (int, float) or (isinstance(value, str) and NUMBER.fullmatch(value)):
            yield before + name, float(value)


class JsonLines(Reader):
    """A file with an object in each line, among whose numbers is a step."""

    end = b"\n"
    """Of each row."""

    def take(self, data: bytes, size: int) -> None:
        """Take over the bytes at `offset` of a file of this size.

        Raises:
            ValueError: when it is another kind of file.
        """
        is_end = self.offset + len(data) >= size
        end = data.rfind(self.end) + 1
        if not end and len(data) >= MAX_LINE and not self.offset:
            raise ValueError("has more than 64 KiB in its first line: it is not read")
        if not data[end:].strip() or (not end and len(data) >= MAX_LINE):
            end = len(data)  # nothing follows, or it is of a line that is too long
        for line in re.findall(b"[^%b]*%b?" % (self.end, self.end), data[:end]):
            self.offset += len(line)
            self.head = self.head or line
            try:
                self._line(line.decode("utf-8-sig"))
            except NOT_JSON:
                self.damaged += line.strip() != b""
        if not self.rows.columns and self.offset > len(self.head) and (is_end or self.offset >= MAX_LINE):
            raise ValueError("has no numbers with a step in its first lines: it is no file of metrics")
        self.tail = int(is_end and end < len(data))

    def _line(self, line: str) -> None:
        self._object(json.loads(line))

    def _object(self, values: "dict[str, Any]") -> None:
        """Take over one row, if it has a step."""
        found = dict(leaves(values))
        step = next((found[name] for name in STEPS if name in found), math.nan)
        at = next((found.pop(name) for name in TIMES if SINCE_2001 < found.get(name, 0) < LATEST), None)
        target = next((found.pop(name) for name in TARGETS if name in found), None)
        if target and not self.rows.rows:
            self.rows.set_config(max_steps=target)
        if abs(step) < MAX_STEP:
            row = [(name, number_of(value)) for name, value in found.items() if name not in STEPS]
            self.rows.add(self.offset, step, at / 1000 if at and at > MILLISECONDS else at, row)


class CsvFile(JsonLines):
    """Lightning's metrics.csv: a new metric is a new column, and the whole file is written anew."""

    names = ()  # type: tuple[str, ...]

    def _line(self, line: str) -> None:
        cells = next(csv.reader([line]))
        self.names = self.names or tuple(cells)
        if len(cells) != len(self.names):
            raise ValueError("another number of cells")
        self._object(dict(zip(self.names, cells)))  # noqa: B905 strict= needs 3.10


class TrainerState(JsonLines):
    """The state in a checkpoint of Hugging Face's Trainer: its history is a list of objects without others in them."""

    is_numbered = False
    end = b"}"

    def _line(self, line: str) -> None:
        _, opened, entry = line.rpartition("{")
        target = MAX_STEPS.search(line)
        if target:
            self.rows.set_config(max_steps=target.group(1))
        if opened:
            self._object(json.loads(opened + entry))
