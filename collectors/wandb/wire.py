"""The wire between us and our child that speaks with W&B: NDJSON, one tagged object a line, one request at a time.

We write requests on its standard input and read answers on its standard output. What it says of itself (`ChildStarted`,
`CoreStarted`) has the id 0; every request gets exactly one answer with its own id, or none when the child dies of it.
Texts are clean and scrubbed by the child. JSON has no nan and no infinity: they go as W&B's own words for them.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from trainmon.lib import Instant
from trainmon.model import Points, Sample, WandbRun, WandbSpec

LONGEST_LINE = 32 << 20
"""Bytes of one answer: 20 runs with 300 metrics and settings each are 2 MB, 12 curves of 10,000 points are 4 MB."""

WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""What W&B writes where JSON has no number."""

FailureKind = Literal["key", "unauthorized", "forbidden", "absent", "busy", "server", "unreachable", "slow", "sdk"]
"""key: none is set. unauthorized: it is refused. forbidden: it may not see this. absent: no such project, run or file.
busy: 429. server: it fails by itself (5xx). unreachable: no connection. slow: no answer in time. sdk: anything else, in
the SDK's own words."""


class PackedPoints(msgspec.Struct, frozen=True, gc=False):
    """A piece of one curve as columns of float64, little-endian: nan and infinities survive, a point is 32 bytes."""

    steps: bytes
    times: bytes
    values: bytes

    @classmethod
    def of(cls, points: Points) -> PackedPoints:
        return cls(_packed(points.steps), _packed(points.times), _packed(points.values))

    def points(self) -> Points:
        return Points(_unpacked(self.steps), _unpacked(self.times), _unpacked(self.values))


# ---- what is asked -------------------------------------------------------------------------------------------------


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask"):
    """One line to the child."""

    id: int
    """Counts up from 1."""


class ListRuns(Request, frozen=True, kw_only=True, tag="runs"):
    """Of the runs that match those that beat last, in one HTTP request."""

    spec: WandbSpec
    limit: int = 6


class ReadHistory(Request, frozen=True, kw_only=True, tag="history"):
    """New points of some metrics of one run, in one HTTP request."""

    path: str
    """WandbRun.path."""
    keys: tuple[str, ...]
    since: Mapping[str, float] = {}
    """From which step on, that step included, by metric; of a metric without one, all of it."""
    samples: int = 10_000
    """At most so many points of each metric: the server thins what is more."""


class ReadConsole(Request, frozen=True, kw_only=True, tag="console"):
    """The last lines of the console log of one run, in one HTTP request."""

    path: str
    last: int = 200


class ReadMetadata(Request, frozen=True, kw_only=True, tag="facts"):
    """What its own file `wandb-metadata.json` says of a run: asked once of each, it takes two HTTP requests."""

    path: str


class FetchFile(Request, frozen=True, kw_only=True, tag="fetch"):
    """One file of a run, into a directory of this machine: two HTTP requests."""

    path: str
    file: str
    """Its name there: Sample.file."""
    directory: str


class ReadViewer(Request, frozen=True, kw_only=True, tag="viewer"):
    """Who we are to the server, in one HTTP request: asked by a person who checks, not in a watch."""


# ---- what is answered ----------------------------------------------------------------------------------------------


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="is"):
    """One line of the child. `id` is that of the request; 0 where the child speaks of itself."""

    id: int = 0


class ChildStarted(Answer, frozen=True, kw_only=True, tag="began"):
    """The first line, before the SDK is even imported."""

    pid: int
    directory: str
    """All that the SDK writes; the child removes it as it ends. Who kills the child removes it himself."""


class CoreStarted(Answer, frozen=True, kw_only=True, tag="sidecar"):
    """The SDK started its own process, wandb-core, in a session of its own: who kills the child ends it as well."""

    pid: int


class RunList(Answer, frozen=True, kw_only=True, tag="listed"):
    """The runs that match, the newest first."""

    runs: tuple[WandbRun, ...]
    samples: Mapping[str, tuple[Sample, ...]] = {}
    """By the run's id: the newest sample of each metric that has some, as its summary tells."""
    history_keys: Mapping[str, tuple[str, ...]] = {}
    """By the run's id: the metrics that are numbers and can be charted."""


class HistoryPoints(Answer, frozen=True, kw_only=True, tag="grown"):
    """The points that came, by metric; one that has none is absent."""

    path: str
    points: Mapping[str, PackedPoints]


class ConsoleLines(Answer, frozen=True, kw_only=True, tag="lines"):
    """The last lines of a console log, oldest first."""

    path: str
    numbers: tuple[int, ...]
    """The place of each in the whole log, from 0. The server may leave some out."""
    lines: tuple[str, ...]
    times: tuple[Instant | None, ...]
    """When each was written, by the run's own clock."""


class RunMetadata(Answer, frozen=True, kw_only=True, tag="facts"):
    """Where and from what a run was started."""

    path: str
    host: str | None = None
    user: str | None = None
    """The account on that host."""
    commit: str | None = None


class Viewer(Answer, frozen=True, kw_only=True, tag="viewer"):
    """Whose key it is."""

    user: str | None = None
    entity: str | None = None
    """Where the runs of this account go by themselves."""
    teams: tuple[str, ...] = ()


class FetchedFile(Answer, frozen=True, kw_only=True, tag="fetched"):
    """A file lies at `kept` on this machine."""

    path: str
    file: str
    kept: str


class RequestFailed(Answer, frozen=True, kw_only=True, tag="failed"):
    """A request failed: what happened, in a sentence, and what to do. The next one may be asked."""

    kind: FailureKind
    words: str
    hint: str | None = None


AnyRequest = ListRuns | ReadHistory | ReadConsole | ReadMetadata | ReadViewer | FetchFile
AnyAnswer = (
    ChildStarted
    | CoreStarted
    | RunList
    | HistoryPoints
    | ConsoleLines
    | RunMetadata
    | Viewer
    | FetchedFile
    | RequestFailed
)

REQUESTS: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
ANSWERS: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)


def encode(said: AnyRequest | AnyAnswer) -> bytes:
    """One request or answer as a line."""
    if isinstance(said, RunList):
        said = msgspec.structs.replace(said, runs=tuple(_in_words(run) for run in said.runs))
    return msgspec.json.encode(said) + b"\n"


def decode_request(data: bytes) -> AnyRequest:
    """What a line asks; msgspec.DecodeError where it asks nothing."""
    return REQUESTS.decode(data)


def decode_answer(data: bytes) -> AnyAnswer:
    """What a line answers; msgspec.DecodeError where it says nothing."""
    said = ANSWERS.decode(data)
    if isinstance(said, RunList):
        said = msgspec.structs.replace(said, runs=tuple(_in_numbers(run) for run in said.runs))
    return said


def _in_words(run: WandbRun) -> WandbRun:
    odd = {key: value for key, value in run.summary.items() if isinstance(value, float) and not math.isfinite(value)}
    if not odd:
        return run
    return msgspec.structs.replace(run, summary={**run.summary, **{key: _word(value) for key, value in odd.items()}})


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _in_numbers(run: WandbRun) -> WandbRun:
    odd = {key: WORDS[value] for key, value in run.summary.items() if isinstance(value, str) and value in WORDS}
    return msgspec.structs.replace(run, summary={**run.summary, **odd}) if odd else run


def _packed(column: Sequence[float]) -> bytes:
    return _little_endian(array("d", column)).tobytes()


def _unpacked(data: bytes) -> array[float]:
    column = array("d")
    column.frombytes(data)
    return _little_endian(column)


def _little_endian(column: array[float]) -> array[float]:
    if sys.byteorder == "big":
        column.byteswap()
    return column
