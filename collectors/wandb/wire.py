"""The protocol of the W&B child process: NDJSON, one tagged object a line, one request at a time.

Requests go to its standard input, answers come from its standard output. Every request gets one answer with its id, or
none if the child dies. `ChildStarted` and `CoreStarted` have the id 0. The child cleans and scrubs all texts. JSON has
no nan and no infinity: they are written as W&B's words for them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from trainmon.analysis.wandb.metric_names import NON_FINITE
from trainmon.lib import Instant
from trainmon.model import Points, Sample, WandbRun, WandbSpec

LONGEST_LINE = 32 << 20
"""The maximum size of an answer in bytes: 20 runs with 300 metrics and settings each are 2 MB, 100 curves of 10,000
points are 32 MB."""

FailureKind = Literal["key", "unauthorized", "forbidden", "absent", "busy", "server", "unreachable", "slow", "sdk"]
"""key: none is set. unauthorized: the key is rejected. forbidden: no access. absent: no such project, run or file.
busy: 429. server: 5xx. unreachable: no connection. slow: no answer in time. sdk: any other error of the SDK."""


class PackedPoints(msgspec.Struct, frozen=True, gc=False):
    """Points of one curve as columns of float64 of this machine, which keep nan and infinities."""

    steps: bytes
    times: bytes
    values: bytes

    @classmethod
    def of(cls, points: Points) -> PackedPoints:
        return cls(*(array("d", column).tobytes() for column in (points.steps, points.times, points.values)))

    def points(self) -> Points:
        return Points(*(array("d", column) for column in (self.steps, self.times, self.values)))


# ---- requests ------------------------------------------------------------------------------------------------------


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask"):
    """One line to the child."""

    id: int
    """Counts up from 1."""


class ListRuns(Request, frozen=True, kw_only=True, tag="runs"):
    """List the matching runs with the newest heartbeats: one HTTP request."""

    spec: WandbSpec
    limit: int = 6


class ListActive(Request, frozen=True, kw_only=True, tag="active"):
    """List the ids of the running runs of one project that match any of the specs: one small HTTP request."""

    specs: tuple[WandbSpec, ...]


class ReadHistory(Request, frozen=True, kw_only=True, tag="history"):
    """Read new points of some metrics of a run: one HTTP request."""

    path: str
    """WandbRun.path."""
    keys: tuple[str, ...]
    since: Mapping[str, float] = {}
    """The first wanted step by metric; without one, all points."""
    samples: int = 10_000
    """The maximum number of points per metric: the server samples longer curves."""


class ReadConsole(Request, frozen=True, kw_only=True, tag="console"):
    """Read the last lines of a run's console log: one HTTP request."""

    path: str
    last: int = 200


class ReadMetadata(Request, frozen=True, kw_only=True, tag="facts"):
    """Read `wandb-metadata.json` of a run, once per run: two HTTP requests."""

    path: str


class FetchFile(Request, frozen=True, kw_only=True, tag="fetch"):
    """Download a file of a run into a local directory: two HTTP requests."""

    path: str
    file: str
    """Sample.file."""
    directory: str


class ReadViewer(Request, frozen=True, kw_only=True, tag="viewer"):
    """Read whose key it is, for `check` and `init`: one HTTP request."""


# ---- answers -------------------------------------------------------------------------------------------------------


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="is"):
    """One line of the child. `id` is that of the request; 0 for the child's own state."""

    id: int = 0


class ChildStarted(Answer, frozen=True, kw_only=True, tag="began"):
    """The first line, before the SDK is even imported."""

    pid: int
    directory: str
    """Everything that the SDK writes. The child removes it at its end; whoever kills the child must remove it."""


class CoreStarted(Answer, frozen=True, kw_only=True, tag="sidecar"):
    """The SDK started its process wandb-core in a session of its own. Whoever kills the child must kill it, too."""

    pid: int


class RunList(Answer, frozen=True, kw_only=True, tag="listed"):
    """The matching runs, the newest first."""

    runs: tuple[WandbRun, ...]
    samples: Mapping[str, tuple[Sample, ...]] = {}
    """By the run's id: the newest sample of each metric that has some."""
    history_keys: Mapping[str, tuple[str, ...]] = {}
    """By the run's id: the numeric metrics, which can be charted."""


class ActiveRuns(Answer, frozen=True, kw_only=True, tag="active"):
    """The running runs."""

    names: tuple[str, ...]
    """Their ids."""


class HistoryPoints(Answer, frozen=True, kw_only=True, tag="grown"):
    """The new points by metric; a metric without new points is left out."""

    path: str
    points: Mapping[str, PackedPoints]


class ConsoleLines(Answer, frozen=True, kw_only=True, tag="lines"):
    """The last lines of a console log, oldest first."""

    path: str
    numbers: tuple[int, ...]
    """The number of each line in the whole log, from 0. The server may leave some out."""
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
    """The default entity of this account's runs."""
    teams: tuple[str, ...] = ()


class FetchedFile(Answer, frozen=True, kw_only=True, tag="fetched"):
    """A file was saved on this machine."""

    path: str
    file: str
    saved_as: str


class RequestFailed(Answer, frozen=True, kw_only=True, tag="failed"):
    """A request failed. The next one can be sent."""

    kind: FailureKind
    message: str
    hint: str | None = None


AnyRequest = ListRuns | ListActive | ReadHistory | ReadConsole | ReadMetadata | ReadViewer | FetchFile
AnyAnswer = (
    ChildStarted
    | CoreStarted
    | RunList
    | ActiveRuns
    | HistoryPoints
    | ConsoleLines
    | RunMetadata
    | Viewer
    | FetchedFile
    | RequestFailed
)

REQUESTS: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
ANSWERS: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)


def encode(message: AnyRequest | AnyAnswer) -> bytes:
    """A request or an answer as a line."""
    if isinstance(message, RunList):
        message = _converted(message, _as_word)
    return msgspec.json.encode(message) + b"\n"


def decode_answer(line: bytes) -> AnyAnswer:
    """An answer from a line.

    Raises:
        msgspec.DecodeError: when it is no answer.
    """
    answer = ANSWERS.decode(line)
    if isinstance(answer, RunList):
        return _converted(answer, lambda value: NON_FINITE.get(value, value) if isinstance(value, str) else value)
    return answer


def _converted(answer: RunList, convert: Callable[[float | str], float | str]) -> RunList:
    """The list with each value of the summaries converted."""
    return replace(answer, runs=tuple(
        replace(run, summary={key: convert(value) for key, value in run.summary.items()}) for run in answer.runs
    ))  # fmt: skip


def _as_word(value: float | str) -> float | str:
    if isinstance(value, str) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
