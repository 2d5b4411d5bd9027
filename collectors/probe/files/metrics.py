"""The newest files of metrics of a run: their new rows, with the metrics of the charts. Runs on the node: Python 3.6.

Some are written in blocks, so their newest row may be minutes old: by old clients of wandb 32 KiB, by TensorBoard two
minutes. All event files of one run are followed as one: a restart adds another, and so does a second writer.
"""

import functools
import itertools
import os
import re
import time

from collectors.probe import paths
from collectors.probe.files.disks import is_on_this_host
from collectors.probe.files.metric_formats import CsvFile, EventFile, JsonLines, TrainerState
from collectors.probe.files.metric_rows import Rows
from collectors.probe.files.wandb_records import Metrics, WandbFile
from collectors.probe.stdlib import Any, Callable, Iterable, Line, Mapping, Operation

RATE = 1e6
"""Bytes per second that are read, of all files together that are on no disk of this machine: the training uses the same
file system."""
MAX_BUDGET = 2 * RATE
PIECES_S = 0.1
"""Seconds after which the next piece waits for the next period: the GPUs are read in between."""
LOCAL_PIECES_S = 0.25
"""The same of a file on a disk of this machine, whose next piece comes after the other operations of this period."""

LIST_EVERY = 10.0
FIND_EVERY = 30.0
"""The same where nobody has named the directory."""
LIST_SHARE = 50.0
"""Listing a directory takes at most a fiftieth of the time."""

FORMATS = (  # type: tuple[tuple[str, Any, Any, Any], ...]
    ("W&B", re.compile(rb".+\.wandb"), WandbFile, Metrics),
    ("TensorBoard", re.compile(rb".*tfevents.*"), EventFile, Rows),
    ("JSON lines", re.compile(rb"(?:.*[._-])?(?:metrics?|logs?|history|scalars)\.jsonl|(?:metrics|scalars)\.json"),
     JsonLines, Rows),
    ("CSV", re.compile(rb"(?:.*[._-])?metrics\.csv"), CsvFile, Rows),
    ("trainer_state.json", re.compile(rb"trainer_state\.json"), TrainerState, Rows),
)  # fmt: skip
"""Name of a format, the names of its files, its reader, and what holds its rows. Of files that are about as new, those
of the first format count."""

RANKS = range(1, len(FORMATS))

RUN_DIRECTORY = re.compile(rb"(?:offline-)?run-(\d{8}_\d{6}-.+)")
STATE_DIRECTORY = re.compile(rb"checkpoint-\d+")
BESIDE = re.compile(rb"(?:eval(?:uation)?|val(?:id(?:ation)?)?|test|dev)(?:[._-](?:metrics?|logs?|history)\..+)?")
"""Files and directories of evaluations, which other processes may write: their steps do not show that a run trains."""
PART = re.compile(rb"train(?:ing)?|" + BESIDE.pattern, re.IGNORECASE)
WRITER = re.compile(rb"tfevents\.\d+\.(.*?\.\d+|[^.]+)(?:\.|$)")
"""In the name of an event file: the host and the process that write it."""
KNOWN_DIRECTORY = re.compile(
    rb"(?:.*[_-])?(?:wandb|tensorboard|tb|runs|logs?|metrics|events|summary)"
    rb"|version_\d+|checkpoint-\d+|vis_data", re.IGNORECASE,
)  # fmt: skip
"""Directories that are looked into below one that only may have such files."""

DEEPEST = 3
MAX_DIRECTORIES = 20
"""The newest ones of a directory that are looked into; at each next level half as many."""
MAX_FILES = 200
"""In one directory, and of the directories in it whose ages are compared."""
MAX_OPEN = 20
"""Event files of one run that are read, the newest: each is an open file of the probe."""
MAX_ALL_OPEN = 400
"""The same of all runs together: a process may have 1,024."""
MAX_NAMES = 20000
RECENT = 3600.0
"""Seconds. Where no job says when the run began, older files may be those of an earlier one."""

ABOUT_AS_NEW = 150.0
"""Seconds. The followed file is left only for one that is newer by more: TensorBoard's writers wait for 120."""

NOTHING = (
    "has no directory run-… or offline-run-… of the W&B client, no event file of TensorBoard, no metrics.csv, no "
    "metrics.jsonl and no trainer_state.json"
)


class Follower:
    """The newest files of one run."""

    def __init__(self, spec: "Mapping[str, Any]", monotonic: "Callable[[], float]") -> None:
        self.spec = spec
        self.rate, self.open_at_most = RATE, MAX_OPEN
        self._is_named = bool(spec["directory"])
        self._directories = [paths.encoded(path) for path in ([spec["directory"]] if self._is_named else spec["found"])]
        self._monotonic = monotonic
        self._files = []  # type: list[Any]
        self._rows = Rows({}, 0)
        self._rank = 0
        self._home = b""
        self._refused = set()  # type: set[tuple[bytes, float]]
        self._list_at = 0.0
        self._budget, self._refilled_at = RATE, monotonic()
        self._error = None  # type: str | None
        self._goes_on = False
        self._left = None  # type: Line | None
        self._reported = None  # type: Line | None

    def close(self) -> None:
        files, self._files = self._files, []
        for file in files:
            os.close(file.handle)

    def read(self, slow: bool) -> "list[Line]":
        """The lines to send: one for each piece of the files."""
        lines = []  # type: list[Line]
        path = self._directories[0]
        try:
            if self._monotonic() >= self._list_at:
                self._choose()
            if self._files:
                self._error = None
                path = self._files[-1].path
                lines = self._read_files()
        except (OSError, ValueError) as error:
            self._error = "%s: %s" % (paths.shown(path), paths.failure_at(path, error))
            if not isinstance(error, OSError):
                self._refused |= {(file.path, file.found.st_mtime) for file in self._files}
            self.close()
        state = self._state()
        changes = self._rows.take_changes() if self._files else {}
        if lines:
            lines[-1].update(state, **changes)
        elif changes or slow or state != self._reported:
            lines = [dict(state, **changes)]
        self._reported = state
        left, self._left = self._left, None
        lines = ([left] if left else []) + lines
        if self._goes_on:
            lines[-1]["again"], self._goes_on = True, False
        return [dict(line, k="wandb", id=self.spec["id"]) for line in lines]

    def _read_files(self) -> "list[Line]":
        if any(file.is_replaced() for file in self._files):
            self._open([file.path for file in self._files])
        now = self._monotonic()
        self._budget = min(MAX_BUDGET, self._budget + self.rate * (now - self._refilled_at))
        self._refilled_at = now
        lines = []
        for file in self._files:
            is_local = is_on_this_host(file.path, file.found)
            while (is_local or self._budget > 0) and not file.is_at_end():
                self._budget -= file.read_piece()
                points = self._rows.take_points()
                if points:
                    lines.append(dict(self._state(), **points, **self._rows.take_changes()))
                if self._monotonic() - now > (LOCAL_PIECES_S if is_local else PIECES_S):
                    self._goes_on = is_local
                    return lines
        return lines

    def _state(self, is_over: bool = False) -> "Line":
        """What is known of the files. `is_over`: a newer run has begun, so an incomplete end of theirs is damaged."""
        if not self._files:
            return {"error": self._error if self._is_named else None}
        files, rows = self._files, self._rows
        tail = sum(file.tail for file in files)
        awaited = 0 if is_over or rows.has_ended else tail
        state = {
            "path": paths.shown(max((file.path for file in files), key=lambda path: order(path, self._home))),
            "file": "%d %s" % (files[0].found.st_ino, rows.started_at),
            "format": FORMATS[self._rank][0],
            "size": sum(file.found.st_size for file in files),
            "mtime": max(file.found.st_mtime for file in files),
            "offset": sum(file.offset for file in files),
            "rows": rows.rows,
            "damaged": sum(file.damaged for file in files) + rows.malformed + tail - awaited,
            "tail": awaited or None,
            "more": not all(file.is_at_end() for file in files) or None,
            "step": rows.step,
            "logged_at": rows.logged_at,
            "error": self._error,
        }
        return {name: value for name, value in state.items() if value is not None}

    def _choose(self) -> None:
        """Open the newest files, if there are some."""
        started_at, failure = self._monotonic(), ValueError(NOTHING)  # type: float, OSError | ValueError
        found = []  # type: list[tuple[bytes, int, float, bytes]]
        since = None if self._is_named else self.spec.get("since") or time.time() - RECENT
        for directory in self._directories:
            is_above = any(one.startswith(directory + b"/") for one in self._directories)
            try:
                found += files_in(directory, since, has_runs=not is_above)
            except (OSError, ValueError) as error:
                failure = error
        ended = self._monotonic()
        every = LIST_EVERY if self._is_named else FIND_EVERY
        self._list_at = ended + min(60.0, max(every, LIST_SHARE * (ended - started_at)))
        found = [one for one in found if (one[0], one[2]) not in self._refused]
        trained = [one for one in found if not BESIDE.fullmatch(part_of(one[0], one[3]))]
        if not trained:
            if self._refused:
                return  # it is said why
            raise failure
        current, newest = {file.path for file in self._files}, max(map(freshness, trained)) - ABOUT_AS_NEW
        # Each checkpoint has another state: it is left at once.
        kept = set() if FORMATS[self._rank][2] is TrainerState else current
        best = max(trained, key=lambda one: (freshness(one) >= newest, one[0] in kept, -one[1], freshness(one)))
        path, rank, _, home = best
        of_run = {one[0] for one in found if one[1] == rank and one[3] == home}
        is_one = FORMATS[rank][2] is not EventFile
        most = max(self.open_at_most, len(current))  # what is open stays open when other runs come
        chosen = [path] if is_one else sorted(of_run, key=lambda path: order(path, home))[-most:]
        if current and current <= set(chosen):
            for path in set(chosen) - current:
                self._add(path)
        elif current != set(chosen):
            if any(file.tail for file in self._files) and not self._rows.has_ended:
                self._left = self._state(is_over=True)
            self._rank, self._home = rank, home
            self._open(chosen)

    def _open(self, chosen: "list[bytes]") -> None:
        self.close()
        self._rows = FORMATS[self._rank][3](self.spec, sum(os.stat(path).st_size for path in chosen))
        for path in chosen:
            self._add(path)
        if not self._files[0].is_numbered:
            self._rows.started_at = "%.6f" % time.time()

    def _add(self, path: bytes) -> None:
        try:
            self._files.append(FORMATS[self._rank][2](path, self._rows))
            self._files[-1].prefix = paths.shown(part_of(path, self._home) + b"/").lstrip("/")
        except (PermissionError, ValueError):
            self._refused.add((path, os.stat(path).st_mtime))  # the next one is read
            raise


def part_of(path: bytes, home: bytes) -> bytes:
    """The directory of a file in that of its run; empty if it is that."""
    return os.path.dirname(path)[len(home) + 1 :]


def order(path: bytes, home: bytes) -> "tuple[bool, bool, bytes]":
    """By it, the newest file of the training is the last one."""
    part = part_of(path, home)
    return not BESIDE.fullmatch(part), not part, os.path.basename(path)


def freshness(found: "tuple[bytes, int, float, bytes]") -> float:
    """When a file was written. The state in a checkpoint is of the past, and the others have all of it."""
    return found[2] - RECENT * (FORMATS[found[1]][2] is TrainerState)


def files_in(
    directory: bytes, since: "float | None", depth: int = 0, has_runs: bool = False, above: "Iterable[bytes]" = ()
) -> "list[tuple[bytes, int, float, bytes]]":
    """The files of known formats in a directory, and in those below it: their paths, the places of their formats, when
    they were written, and the directories of their runs. `since`: only our own that were written since
    then, in directories with known names. `has_runs`: directories in it with other names may hold checkpoints of
    Hugging Face's Trainer. `above`: the writers of event files in the directory above. They may have others: Keras has
    train and validation, and PyTorch's add_scalars one for each curve.

    Raises:
        ValueError: when it has too many of them, or none yet.
    """
    with os.scandir(directory) as listed:
        entries = list(itertools.islice(listed, MAX_NAMES))
    names = [one for one in entries if not BESIDE.fullmatch(one.name)]
    # Those of W&B count in the directories of its runs alone.
    files = [(one.path, rank) for one in names for rank in RANKS if FORMATS[rank][1].fullmatch(one.name)]
    writers = {one.group(1) for one in (WRITER.search(path) for path, _ in files) if one}
    name = os.path.basename(directory) if depth else b""
    home = os.path.dirname(directory) if PART.fullmatch(name) or writers.intersection(above) else directory
    is_of_run = since is None or depth or writers
    known = {one.path for one in entries if is_of_run or KNOWN_DIRECTORY.fullmatch(one.name)}
    folders = [one for one in entries if not BESIDE.fullmatch(name) and (has_runs or one.path in known)]
    if any(RUN_DIRECTORY.match(entry.name) for entry in entries):
        files, folders = [(newest_file(directory), 0)], []
    if len(files) > MAX_FILES:
        raise ValueError("has %d files of metrics: more than %d are not read" % (len(files), MAX_FILES))
    found = []
    for path, rank in files:
        try:
            seen = os.stat(path)
        except OSError:
            continue  # it is gone, or a link to nothing
        if since is None or (seen.st_mtime >= since and seen.st_uid == os.geteuid()):
            found.append((path, rank, seen.st_mtime, home))
    deepest = DEEPEST if since is None else DEEPEST - 1
    folders = [one for one in folders if depth < deepest and os.path.isdir(one.path)][:MAX_FILES]
    for folder in sorted(folders, key=lambda one: one.stat().st_mtime, reverse=True)[: MAX_DIRECTORIES >> depth]:
        states = (name for name in paths.listed(folder.path, MAX_FILES) if STATE_DIRECTORY.fullmatch(name))
        newest = sorted(states, key=lambda name: (len(name), name))[-2:]  # the last one may not be whole
        for path in (folder.path,) if folder.path in known else [os.path.join(folder.path, name) for name in newest]:
            try:
                found += files_in(path, since, depth + 1, above=writers)
            except (OSError, ValueError):
                continue
    return found


def newest_file(directory: bytes) -> bytes:
    """The `.wandb` file of the run that began last, by the time in the name of its directory.

    Raises:
        ValueError: when there is none.
    """
    matches = filter(None, map(RUN_DIRECTORY.match, os.listdir(directory)))
    names = [match.group() for match in sorted(matches, key=lambda match: match.group(1), reverse=True)]
    for name in names[:5]:
        folder = os.path.join(directory, name)
        try:
            files = sorted(file for file in os.listdir(folder) if file.endswith(b".wandb"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        if files:
            return os.path.join(folder, files[-1])
    raise ValueError("its newest run directory has no .wandb file yet")


class MetricFiles(paths.Section):
    """The followed directories of the spec."""

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self.follow(spec.get("wandb") or (), Follower)
        for follower in self._known.values():
            follower.rate = RATE / len(self._known)
            follower.open_at_most = min(MAX_OPEN, max(1, MAX_ALL_OPEN // len(self._known)))

    def operations(self, slow: bool) -> "list[Operation]":
        return [("wandb:" + name, functools.partial(one.read, slow)) for name, one in self._known.items()]
