"""Where a log shows signs of causes. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import cache, lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import msgspec

from trainmon.analysis.causes.lines import Line, Raised, Stream, tracebacks
from trainmon.analysis.causes.rules import RULE, RULES
from trainmon.analysis.causes.sieve import Rule, Sieve, Sign
from trainmon.lib import DAY, Seconds, group_by

# ---- where a log shows signs of causes -------------------------------------------------------------------------------

CONSEQUENCE = re.compile(
    r"^(?:BrokenPipeError|Connection(?:Reset|Aborted|Refused)Error|EOFError|Empty|Full|SystemExit|ChildFailedError|CalledProcessError"
    r"|Process(?:Exited|Raised)Exception|SignalException|_?Remote(?:Error|Traceback)|CancelledError|GeneratorExit|StopIteration"
    r"|BrokenProcessPool|CheckpointException|RayTaskError\w*|(?:Ray)?ActorDiedError|RayActorError|TrialError|TuneError|InstantiationException)$"
)
"""Exceptions that only say that something else failed."""
CONSEQUENCE_TEXT = re.compile(
    r"process group has not been initialized|failed \(exitcode|One or more .{0,40}(?:failed|errors)"
    r"|Error in call to target|\b(?:workers?|processes)\b.{0,30}(?:failed|killed by signal: (?:Aborted|Terminated))"
)
QUIET = re.compile(
    r"warn(?:ing)?\b|\bW\d{4} |\[W[ \]]|\bW [\w/]+\.(?:cc|cpp|h):|\bINFO\b|\bDEBUG\b"
    r"|\b(?:fall(?:ing|s)? back|defaulting|switching) (?:to|on)\b|\busing (?:the )?CPU\b"
    r"|; ?(?:using|starting|continuing)\b|\bskipping\b(?! step)|\bignored\b|\btips?\b",
    re.IGNORECASE,
)
"""The level of a line that should not be about an end."""
RETRIES = re.compile(
    r"(?<!please )\bretry(?:ing)?\b|\bre-?connecting\b|\btrying (?:again|port)\b|\bstill trying\b"
    r"|\battempt \d+ ?(?:/|of) ?\d",
    re.IGNORECASE,
)
"""Its program tries again, whatever the level of the line is."""
GIVES_UP = re.compile(
    r"\b(?:g[ia]v(?:e|ing) up|exhausted|(?:retries|tries|attempts) exceeded|no more|too many|not retry\w*"
    r"|(?:last|after \d+) (?:retr|tr|attempt)\w*|(\d+) ?(?:/|of) ?\1)\b"
    r"|\b(?:stop|exit|abort|terminat|shut)\w*|\bfatal\b",
    re.IGNORECASE,
)
"""In such a line: it was the last time."""
LOUD = re.compile(
    r"NCCL WARN|closing signal SIG(?:HUP|INT)|\bXid\b|\b(?:stop|exit|abort|terminat|shut)\w*|\bfatal\b|(?-i:\bERROR\b)",
    re.IGNORECASE,
)
"""Words that make such a line about an end all the same."""
PROGRESS = re.compile(
    r"(?:it/s|s/it|batch/s|\d+ms/step|\ds/step)\b|\b\w*loss\w*\b.{0,20}?(?:\d|nan|inf)"
    r"|\b(?:step|iter|iteration|epoch|global_step|batch|round|episode|update)s?\b\W{0,12}\d",
    re.IGNORECASE,
)
NO_STEP = re.compile(r"^wandb: |\b(?:srun|slurm\w*|error|terminating|cancelled|failed)\b", re.IGNORECASE)
"""A line with a number of a step that is about a job step or an error, or W&B's summary of a run that has ended."""
BAR = re.compile(r"(?:it/s|s/it)")
START = re.compile(
    r"Setting OMP_NUM_THREADS environment|Setting ds_accelerator|WORLD INFO DICT|initializing torch distributed"
    r"|wandb: (?:Currently logged in as|Tracking run with)|nohup: ignoring input|using world size: \d"
    r"|^(?:Submitted batch job|SLURM_JOB_?ID|Job ID|Starting (?:job|training|run))\b",
    re.IGNORECASE,
)
"""The start of an attempt: an exception before it is of an attempt before, which wrote into the same file."""
GUESS = re.compile(r"potential root causes|common causes include")
"""Ray lists what might have killed a worker: the OOM killer first."""
CALL = re.compile(r"RPC: /\w")
"""The second line of JAX's message names the call that failed."""
WORKER = re.compile(r"torch/utils/data/_utils/(?:fetch|worker|collate|pin_memory)\.py|^_worker_loop$")
SHELL_NOISE = re.compile(r"^(?:ls|rm|cp|mv|mkdir|rmdir|cat|grep|find|ln|du|chmod|tee): |Unable to create TMPDIR")
"""A tool of a script that went on without it."""
DATA_FILE = re.compile(
    r"\.(?:jpe?g|png|bmp|tiff?|webp|gif|wav|mp3|flac|mp4|avi|npy|npz|parquet|arrow|tfrecords?|lmdb|dcm|nii(?:\.gz)?|las|ply)\b",
    re.IGNORECASE,
)
BUG = re.compile(
    r"^(?:Name|UnboundLocal|Syntax|Indentation|NotImplemented)Error|^TypeError: .*(?:keyword|positional) argument"
)
"""What no sample can cause."""
CONFIG = re.compile(r"config|settings|hparams", re.IGNORECASE)
VAGUE = (
    "python-exception",
    "assertion",
    "missing-file",
    "permission",
    "data-error",
    "checkpoint-corrupt",
    "config-error",
)
"""Causes that an exception with a more exact one replaces, if both are of one chain."""
RESULT_LINES = 400
"""Lines at the end in which the result of a run is looked for."""
FINAL_LINES = 3
"""At the very end, a line with numbers may be the result, not a step."""
SURVIVED = 5
"""So many steps after an error show that it ended nothing."""
COUNT = re.compile(r"(?<![\d/.,])(\d[\d,]{0,15}) ?(?:/|\bof\b) ?(\d[\d,]{0,15})(?![\d/.])")
"""`180/1000`, `180 of 1,000`"""
OF_PART = re.compile(r"\b(?:epoch|stage|phase|fold|round)(?:\(\w+\))?[^\w'\"]{0,4}\d+\b(?! ?(?:/|of\b) ?\d)", re.I)
"""`Epoch 3: 90/100`: what such a line counts, or says of an end, is of one epoch."""
STEP_NUMBER = re.compile(
    r".*?\b(?:global_)?(?:step|iter(?:ation)?)s?\b\W{0,12}(\d[\d,]{0,15})|.*?\b(\d[\d,]{0,15})/\d", re.IGNORECASE
)
"""The number behind a word for a step, wherever that stands: `Epoch 3/10 step 5,040/20,000`. Else the first count."""
NOTICES = ("preempted", "kill-switch", "time-limit", "no-restart")
"""Stated reasons that may come long before the end."""
ANNOUNCED = (*NOTICES, "node-fail")
"""What a program may say before its first step because it sets up how it will react."""
JOB_END = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT")
"""Slurm's line about the end of a job: one in each attempt. A job that is requeued may append to its log."""
EXACT = re.compile(r"xid|exit|errno|signal|code|status", re.IGNORECASE)
"""In these lines, the number matters."""


@cache
def sieve() -> Sieve:
    return Sieve(RULES)


class Found(msgspec.Struct):
    """A sign of a cause at one place."""

    index: int
    rule: Rule
    text: str
    """What the sign matched."""
    strength: int
    """3: a stated reason. 2: a sign. 1: a sign in a line that says it is only a warning. 0: a hint."""
    raised: Raised | None = None
    is_consequence: bool = False

    @property
    def is_fatal_exception(self) -> bool:
        return self.raised is not None and self.raised.is_uncaught and not self.is_consequence


class Signs(msgspec.Struct):
    """All signs of a log, in its order."""

    lines: Sequence[Line]
    found: list[Found]
    progress: list[int]
    """The indices of lines that show a step; one that shows several stands here several times."""
    starts: list[int]
    """The indices of lines that a launcher or a logger prints when it starts."""
    last_error: int = -1
    """The index of the last error that ended a program, and that neither a person nor another rank caused."""

    def steps_after(self, index: int) -> int:
        return len(self.progress) - bisect_right(self.progress, index)

    def steps_of(self, first: int, end: int) -> Sequence[int]:
        """The indices of the steps between two lines."""
        return self.progress[bisect_right(self.progress, first) : bisect_right(self.progress, end)]

    def is_survived(self, one: Found) -> bool:
        """Whether the run went on after it, or another attempt began."""
        went_on = self.steps_after(one.index) >= SURVIVED and not self._is_one_step_after(one.index)
        started = bool(self.starts) and self.starts[-1] > one.index
        if one.rule.cause == "requeued":
            return went_on or started
        is_early = bisect_right(self.progress, one.index) == 0
        if is_early and one.rule.cause in ANNOUNCED and not self.ends_job(one) and self.last_error > one.index:
            return True
        if one.strength == 3 and (one.rule.cause in NOTICES or self.ends_job(one)):
            # The steps of a notice period do not show that a run survived it.
            is_old = started or self._steps_go_back(one.index) or self._ended_again(one.index)
            has_failed = not self.ends_job(one) and len(self.steps_of(one.index, self.last_error)) >= SURVIVED
            return went_on and (is_old or is_early or has_failed)
        return went_on or (one.raised is not None and started)

    def is_counted_out(self, end: int) -> bool | None:
        """Whether what the last steps before a line count, such as epochs and steps, is at its end; null if they count
        nothing, or only within an epoch."""
        last = dict.fromkeys(self.progress[: bisect_right(self.progress, end)][-RESULT_LINES:])
        texts = (self.lines[index].text for index in last)
        counts = (match for text in texts if OF_PART.search(text) is None for match in COUNT.finditer(text))
        steps = {match[2]: int(match[1].replace(",", "")) for match in counts}
        return all(step >= int(goal.replace(",", "")) for goal, step in steps.items()) if steps else None

    def advanced(self, first: int, end: int) -> bool:
        """Whether the run made a step between two lines. A progress bar is drawn once more when its program fails."""
        return len({self.lines[index].text for index in self.steps_of(first, end)}) > 1

    def goes_on(self, index: int) -> bool:
        """Whether the run made a step after a line. A bar is drawn once more when its program fails."""
        after = self.progress[bisect_right(self.progress, index) :]
        is_bar = all(BAR.search(self.lines[step].text) for step in after)
        return len({self._step(step) for step in after}) > (1 if is_bar else 0)

    def ends_job(self, one: Found) -> bool:
        """Whether Slurm says in this line that it ends the job."""
        return JOB_END.search(self.lines[one.index].text) is not None

    def _steps_go_back(self, index: int) -> bool:
        """Whether the next step is well before the last one: an attempt resumed. Ranks may be a few steps apart."""
        at = bisect_right(self.progress, index)
        before, after = (map(self._step, steps) for steps in (reversed(self.progress[:at]), self.progress[at:]))
        last, following = (next((step for step in steps if step is not None), None) for steps in (before, after))
        return last is not None and following is not None and following + SURVIVED <= last

    def _is_one_step_after(self, index: int) -> bool:
        """Whether all that came after a line is one step: each rank prints it, or a bar is drawn again."""
        first, last = self.progress[bisect_right(self.progress, index)], self.progress[-1]
        step = self._step(first)
        counts = (COUNT.findall(self.lines[at].text) for at in (first, last))
        return first != last and step is not None and step == self._step(last) and next(counts) == next(counts)

    def _step(self, index: int) -> int | None:
        found = STEP_NUMBER.match(self.lines[index].text)
        return None if found is None else int((found[1] or found[2]).replace(",", ""))

    def _ended_again(self, index: int) -> bool:
        """Whether Slurm ended the job once more, after further steps."""
        if JOB_END.search(self.lines[index].text) is None:
            return False
        later = (one.index for one in self.found if one.index > index and self.ends_job(one))
        return any(len(self.steps_of(index, end)) >= SURVIVED for end in later)


class Shape(NamedTuple):
    """What lines say that differ only in their digits."""

    steps: int
    """How many steps such a line shows."""
    is_start: bool
    is_exact: bool
    """Whether the number matters: lines that look the same may say something else."""
    sign: Found | None


def read_signs(lines: Sequence[Line]) -> Signs:
    """Find all signs of a log's lines."""
    raised, code = tracebacks(lines)
    skipped = code | {one.end for one in raised}
    signs = Signs(lines, [], [], [])
    seen: dict[tuple[str, bool, bool], Shape] = {}
    for index, line in enumerate(lines):
        if index in skipped:
            continue
        left = len(lines) - index
        key = line.shape, left <= RESULT_LINES, left <= FINAL_LINES
        shape = seen.get(key)
        if shape is None or shape.is_exact:
            shape = seen[key] = _shape(line, *key[1:])
        signs.progress += [index] * shape.steps
        if shape.is_start:
            signs.starts.append(index)
        if shape.sign is not None:
            signs.found.append(msgspec.structs.replace(shape.sign, index=index))
    signs.found += _exceptions(raised, lines)
    signs.found.sort(key=lambda one: one.index)
    errors = (one for one in signs.found if one.is_fatal_exception and one.rule.role in ("root", "generic"))
    signs.last_error = max((one.index for one in errors if one.rule.cause != "cancelled-by-user"), default=-1)
    return signs


def _shape(line: Line, is_late: bool, is_final: bool) -> Shape:
    text = line.text
    is_exact = EXACT.search(text) is not None
    steps = [*BAR.finditer(text)]
    if not steps and not shows_step(text):
        return Shape(0, START.search(text) is not None, is_exact, _sign(text, line.head, is_late))
    if steps:  # what stands behind a progress bar was printed after it
        text = text[steps[-1].end() :]
    return Shape(max(1, len(steps)), False, is_exact, _sign(text, line.head, is_final))


@lru_cache(maxsize=4_096)
def shows_step(text: str) -> bool:
    """Whether a line, or its shape, is about a step of the training."""
    return PROGRESS.search(text) is not None and NO_STEP.search(text) is None


def _sign(text: str, head: str, is_late: bool) -> Found | None:
    if (guess := GUESS.search(text)) is not None:
        return Found(0, RULE["host-oom"], guess[0], 0)
    is_quiet = _is_quiet(head + text) or SHELL_NOISE.search(text) is not None
    for sign, found in sieve().matches(text):
        is_result = sign.rule.role == "result"
        if is_result and not is_late and "runtime" not in found:
            continue
        if sign.strength == 0 and is_quiet and not is_result:
            continue
        is_warning = is_quiet and sign.strength == 2 and not is_result
        return Found(0, sign.rule, found, 1 if is_warning else sign.strength)
    return None


def _is_quiet(text: str) -> bool:
    is_retried = RETRIES.search(text) is not None and GIVES_UP.search(text) is None
    return is_retried or (QUIET.search(text) is not None and LOUD.search(text) is None)


def _exceptions(raised: Sequence[Raised], lines: Sequence[Line]) -> Iterator[Found]:
    """What the exceptions mean; chained ones are one failure."""
    chains: list[list[Raised]] = []
    last: dict[Stream, list[Raised]] = {}
    for one in raised:
        if one.is_ignored:
            continue
        if one.is_chained and one.stream in last:
            last[one.stream].append(one)
        else:
            last[one.stream] = [one]
            chains.append(last[one.stream])
    for chain in chains:
        found = _meaning([_exception(one, _text(one, lines)) for one in chain])
        last_one = chain[-1]
        is_caught = not last_one.is_uncaught and _is_quiet(lines[last_one.end].head)
        yield msgspec.structs.replace(found, strength=min(found.strength, 1)) if is_caught else found


def _text(raised: Raised, lines: Sequence[Line]) -> str:
    """The line of an exception, with the next one if its message begins or goes on there."""
    text, after = lines[raised.end].text, lines[raised.end + 1 : raised.end + 2]
    if not raised.type or not after or after[0].stream != raised.stream:
        return text
    is_open = text.endswith(":") or CALL.match(after[0].text) is not None
    return f"{text} {after[0].text.lstrip()}" if is_open else text


def _exception(raised: Raised, text: str) -> Found:
    hint: tuple[Sign, str] | None = None
    for sign, found in sieve().matches(text if raised.type else ""):
        if sign.rule.role != "result" and sign.strength:
            return Found(raised.end, sign.rule, found, 2, raised)
        hint = hint or (sign, found)
    name = raised.type.rpartition(".")[2]
    is_consequence = CONSEQUENCE.match(name) is not None or CONSEQUENCE_TEXT.search(raised.message) is not None
    if is_consequence and hint is not None and hint[0].rule.role == "root":
        return Found(raised.end, hint[0].rule, hint[1], 0, raised, is_consequence)
    return Found(raised.end, RULE["python-exception"], raised.message, 2 if raised.type else 0, raised, is_consequence)


def _meaning(chain: Sequence[Found]) -> Found:
    """Of a chain, the first exception with an exact cause."""
    exact = [one for one in chain if one.rule.cause not in VAGUE]
    if exact:
        best = next((one for one in exact if one.rule.role == "root"), exact[0])
    else:
        own = [one for one in chain if not one.is_consequence]
        best = next((one for one in own if one.rule.role != "generic"), own[-1] if own else chain[-1])
        frames = [part for one in chain if one.raised is not None for frame in one.raised.frames for part in frame]
        in_worker = any(one.rule.cause == "data-error" for one in chain) or any(map(WORKER.search, frames))
        is_sample = best.rule.cause == "missing-file" and DATA_FILE.search(best.raised.message if best.raised else "")
        if best.raised is not None and "JSONDecode" in best.raised.type and any(map(CONFIG.search, frames)):
            best = msgspec.structs.replace(best, rule=RULE["config-error"])
        is_bug = best.raised is not None and BUG.match(f"{best.raised.type}: {best.raised.message}") is not None
        if (in_worker or is_sample) and not best.is_consequence and not is_bug:
            best = msgspec.structs.replace(best, rule=RULE["data-error"])
    raised = best.raised
    if raised is not None and raised.place is None:
        places = (one.raised.place for one in reversed(chain) if one.raised is not None)
        raised = msgspec.structs.replace(raised, place=next((place for place in places if place is not None), None))
    # The outermost traceback tells when it happened.
    return msgspec.structs.replace(best, index=chain[0].index, raised=raised)


# ---- puts the lines of a log in the order of their clocks ------------------------------------------------------------

STAMP = re.compile(
    r"(?:(?P<date>\d{4}([-/.])\d\d\2\d\d|\d{8}|(?<=[IWEF])\d{4}|\d\d[-/]\d\d(?:[-/]\d{2,4})?"
    r"|[A-Z][a-z]{2} [ \d]\d|\d\d [A-Z][a-z]{2})(?: \d{4})?[T ,_-]{1,2})?"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:[.,]\d{1,9})?)(?P<zone>Z| ?[+-]\d\d:?\d\d| UTC)?"
)
NATIVE = re.compile(r"\[?[IWEF]\d{4,8} (?=\d\d:)")
"""PyTorch's C++ code puts its level and the date in front: `[E1122 10:15:00.1 ProcessGroupNCCL.cpp:629]`."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
YEAR: Seconds = 366 * DAY
NEW_YEAR: Seconds = 31 * DAY
"""A date that is so much later is of the next year."""
LATE: Seconds = 3_600.0
"""The longest time that a rank keeps its lines: it waits for a collective operation, for which PyTorch allows 600 s and
some runs half an hour. A clock that is further back is of another time zone, and is not compared."""
NEAR = 30
"""Lines of other ranks between two lines of a rank that were written together."""
UNKNOWN = float("inf")
"""The time of lines in a file without times: they stay behind those of other files."""


def in_order(lines: Iterable[Line]) -> Sequence[Line]:
    """The lines by their clocks, and as they stand where these are equal or missing."""
    by_file = group_by(lines, lambda line: line.file).values()
    timed = [(at, line) for own in by_file for at, line in zip(_times(own), own, strict=True)]
    if any(one[0] > other[0] for one, other in pairwise(timed)):
        timed.sort(key=itemgetter(0))
    return [line for _, line in timed]


def _times(lines: Sequence[Line]) -> Sequence[Seconds]:
    """When each line of one file was written. Without a time it has that of the line above, of its own rank if near."""
    times: list[Seconds] = []
    by_rank: dict[str | None, tuple[int, Seconds]] = {}
    newest, last_step, zoned = -UNKNOWN, -UNKNOWN, None
    for index, line in enumerate(lines):
        above, at = by_rank.get(line.rank, (-NEAR, -UNKNOWN))
        if index - above >= NEAR:
            at = times[-1] if times else -UNKNOWN
        if (stamp := _stamp(line)) is not None and zoned in (None, stamp["zone"] is not None):
            found = _seconds(stamp, newest)
            if found is not None:
                at, newest, zoned = found, max(newest, found), stamp["zone"] is not None
        at = max(at, last_step)
        last_step = at if shows_step(line.shape) else last_step
        times.append(at)
        by_rank[line.rank] = index, at
    return times if newest > -UNKNOWN else [UNKNOWN] * len(times)


def _stamp(line: Line) -> re.Match[str] | None:
    """The time in front of a line."""
    if ":" in line.head and (found := STAMP.search(line.head)) is not None:
        return found
    native = NATIVE.match(line.text)
    return None if native is None else STAMP.search(line.text, 0, native.end() + 20)


def _seconds(stamp: re.Match[str], newest: Seconds) -> Seconds | None:
    """A time, in seconds from a day in the past; null if it does not follow the newest one before it."""
    day = None if stamp["date"] is None else _day(stamp["date"])
    at = int(stamp["hour"]) * 3_600 + int(stamp["minute"]) * 60 + float(stamp["second"].replace(",", "."))
    if (zone := stamp["zone"]) and zone[-1].isdigit():
        at -= (int(zone[-2:]) * 60 + int(zone.replace(":", "").strip()[1:3]) * 3_600) * (-1 if "-" in zone else 1)
    if newest == -UNKNOWN:
        return at + DAY * (day or 0)
    if day is not None:
        at += DAY * day
        is_next_year = at < newest - LATE and at + YEAR < newest + NEW_YEAR
        at += YEAR if is_next_year else 0.0
        return at if at >= newest - LATE else None
    at += newest // DAY * DAY
    return at + (DAY if at < newest - LATE else -DAY if at > newest + DAY - LATE else 0.0)


@lru_cache(maxsize=64)
def _day(text: str) -> int | None:
    """The day of a year. The year itself does not count: many formats lack it."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if text[-3:] in MONTHS or text[:3] in MONTHS:
        month, day = 1 + MONTHS.index(text[:3] if text[:3] in MONTHS else text[-3:]), numbers[0]
    elif len(numbers) == 1:
        month, day = divmod(numbers[0] % 10_000, 100)
    else:
        month, day = numbers[-2:] if numbers[0] > 99 else numbers[:2]
    try:
        return date(2000, month, day).toordinal()
    except ValueError:  # the day stands first
        return date(2000, day, month).toordinal() if 0 < day <= 12 and 0 < month <= 31 else None
