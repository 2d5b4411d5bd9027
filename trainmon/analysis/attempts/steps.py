"""Where the steps of a log begin and end, and whose log the followed one is. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.checkpoints import names_count_steps
from trainmon.analysis.log_formats import Format, report
from trainmon.analysis.runs import our_time, skew_of
from trainmon.lib import Instant, Seconds, clean, scrub
from trainmon.model import LOG_MARK, SPANS, Attempt, AttemptEnd, Log, Run, RunSpec, State, StepSpan

# ---- where the steps of a log begin and end, which tells the attempts of a run apart, and which are saved ------------

PAUSE: Seconds = 10.0
"""No trainer ends and starts again within this time; a longer pause may only be a save."""

PAUSE_STEPS = 3.0
"""The same, in usual intervals between two steps."""

BEFORE: Seconds = 2.0
"""A step may be dated this much before the start of its job: the clocks of two machines differ."""

AFTER: Seconds = 60.0
"""A log may show a step this long after the end of its job."""

SECOND: Seconds = 1.0
"""Slurm's times are whole seconds."""

WORDS = 300
"""Characters that are kept of a line."""

RESUMED = re.compile(
    r"\b(?:resum|restor|re-?start|continu|load)\w*\b.{0,200}?"
    r"(?:(?:\b|_)(?:global[ _]?)?(?:step|iter(?:ation)?)s?|check-?point|ckpt)[ =:_@-]{0,8}0*(\d{1,12})(?!\d)",
    re.IGNORECASE,
)
"""`loading checkpoint from /ckpt at iteration 100` (Megatron), `Continuing training from global step 500` (Hugging
Face), `found latest checkpoint at ckpt/step_500` after `Auto-resume` (KempnerForge), `Resuming from
…/checkpoint-500`."""

HINTS = ("resum", "restor", "restart", "re-start", "continu", "load")
"""A line without any of these does not say where a trainer resumes."""

ENDED = "trainmon: ended"
"""A loop with trainmon_hooks prints it when it ends."""

SAVING = re.compile(r"\bsav(?:e|ing)\b", re.IGNORECASE)
"""A line about a save names a step as well."""


def with_line(spans: tuple[StepSpan, ...], line: str, at: Instant, number: int = 0) -> tuple[StepSpan, ...]:
    """The spans after a line of the log: one that says where the trainer resumes begins a new span, and so does the
    step after its end. `number`: that of the line in its log."""
    if ENDED in line and spans:
        return (*spans[:-1], replace(spans[-1], is_over=True))
    lower = line.lower()
    for hint in HINTS:  # a plain loop: this is done with every line of every log
        if hint in lower:
            break
    else:
        return spans
    found = RESUMED.search(line)
    if found is None or SAVING.search(line):
        return spans
    step, words = int(found[1]), clean(scrub(line), WORDS)
    if spans and spans[-1].first is None:  # several lines of one start
        return (*spans[:-1], replace(spans[-1], resumed_from=step, resumed_words=words))
    span = StepSpan(first_at=at, first_line=number, last_at=at, is_start=True, resumed_from=step, resumed_words=words)
    return (*spans, span)[-SPANS:]


def with_start(spans: tuple[StepSpan, ...], at: Instant, number: int = 0) -> tuple[StepSpan, ...]:
    """The spans after the log has begun, or has begun again."""
    if spans and spans[-1].first is None:
        return spans
    return (*spans, StepSpan(first_at=at, first_line=number, last_at=at, is_start=True))[-SPANS:]


def with_step(
    spans: tuple[StepSpan, ...], step: int, at: Instant, cadence: Seconds | None, number: int = 0
) -> tuple[StepSpan, ...]:
    """The spans after a counted step in the line with this number."""
    last = spans[-1] if spans else None
    if last is not None and (last.first is None or last.last is None):
        return (*spans[:-1], replace(last, first=step, first_at=at, last=step, last_at=at))
    span = StepSpan(first=step, first_at=at, first_line=number, last=step, last_at=at, is_start=last is not None)
    if last is not None and last.last is not None and step >= last.last and not last.is_over:
        if at - last.last_at <= max(PAUSE, PAUSE_STEPS * (cadence or 0.0)):
            return (*spans[:-1], replace(last, last=step, last_at=at))
        span = replace(span, is_start=False)
    return (*spans, span)[-SPANS:]


def is_first(spans: Sequence[StepSpan]) -> bool:
    """Whether the step that was just counted is the first one of its span."""
    return spans[-1].first == spans[-1].last and spans[-1].written_at is None


def before_next_start(spans: Sequence[StepSpan], until: Instant) -> Sequence[StepSpan]:
    """The spans of an attempt that ended then, without those from the next start on. The starts of a first read all
    have the time of the last line: they may be older."""
    until = max((until, *(one.first_at for one in spans[:1])))
    return tuple(takewhile(lambda one: not (one.is_start and one.first_at > until), spans))


def stepped(
    attempt: Attempt, spans: Sequence[StepSpan], began: Instant | None, latest: Instant, watched_since: Instant
) -> Attempt:
    """The attempt with its steps among those of the log. `began`, and `latest`, until which they may be its own, are by
    our clock. Its first step is known only if its start was watched, or is in the log."""
    if began is None:
        return attempt
    own = [one for one in spans if began - BEFORE <= one.last_at and one.first_at <= latest]
    while len(own) > 1 and own[1].is_start and own[0].last_at < began + SECOND:  # of the attempt before
        del own[0]
    counted = [one for one in own if one.first is not None]
    # The lines of a first read all have the same time: of its starts, the last one is that of this attempt. If it has
    # none, they may be of an earlier attempt.
    alike = [one for one in counted if one.first_at == counted[0].first_at]
    later = counted if began < watched_since else []
    starts = (one for one in (*reversed(alike), *later) if one.is_start)
    first = next(starts, counted[0] if counted else None)
    begun = first or next((one for one in own if one.resumed_words is not None), None)
    if begun is not None and begun.resumed_words is not None:
        attempt = replace(attempt, resumed_from=begun.resumed_from, resumed_words=begun.resumed_words)
    if first is None:
        return attempt
    # An earlier span shows that the log was read before this attempt began. One that goes on from then hides its start.
    is_shown = first.is_start or began >= watched_since or any(one.last_at < began - BEFORE for one in spans)
    if is_shown and first.first_at >= began - BEFORE:
        is_dated = first.written_at is not None and first.written_at >= began - BEFORE
        at = max((first.written_at if is_dated else None) or first.first_at, began)
        attempt = replace(attempt, first_step=first.first, first_step_at=at, first_step_is_dated=is_dated)
    elif attempt.restart and first.first_at == first.last_at:
        return attempt  # the end of an old log, which may be all of the attempt before
    return replace(attempt, last_step=max(one.last or 0 for one in counted[counted.index(first) :]))


def with_steps_of(attempt: Attempt, lines: Sequence[str], formats: Sequence[Format], *, is_whole: bool) -> Attempt:
    """The attempt, of which nothing else has shown a step, with the steps that its last lines show. The first one is
    known only if these are all its lines."""
    if attempt.last_step is not None:
        return attempt
    read = report(lines, formats)
    if read.progress.step is None:
        return attempt
    again = report(lines, formats, shape=read.shape).lines if is_whole else ()  # now its first lines have a known shape
    steps = (one.found.step for one in again if one.found is not None and one.format == read.progress.format)
    return replace(
        attempt, first_step=next((step for step in steps if step is not None), None), last_step=read.progress.step
    )


def with_checkpoints(attempt: Attempt, run: Run, latest: Instant) -> Attempt:
    """The attempt with the checkpoints of its run that were written until then. If all that are left are newer, those
    that it has written may have been deleted."""
    known = run.checkpoints
    if known is None or known.error is not None:
        return attempt
    by_then = [one for one in known.list if (one.at or 0.0) <= latest]
    if known.list and not by_then:
        unknown = replace(attempt, has_checkpoints=False, last_committed_step=None, last_committed_at=None)
        return attempt if (attempt.last_committed_at or latest) <= latest else unknown
    attempt = replace(
        attempt,
        has_checkpoints=True,
        counts_steps=names_count_steps(run, known),
        unrecognised_at=max((one.at for one in by_then if one.state == "unknown" and one.at is not None), default=None),
    )
    whole = [one for one in by_then if one.is_whole and one.step is not None]
    # By its pointer: a rewind leaves greater ones, and KempnerForge moves its own only with the next save.
    is_behind = known.committed is not None and known.committed.layout == "kempnerforge"
    last = known.next_start if is_behind else known.committed
    newest = last if last in whole else max(whole, key=lambda one: one.step or 0, default=None)
    if newest is None:
        return replace(attempt, last_committed_step=None)
    return replace(attempt, last_committed_step=newest.step, last_committed_at=newest.at)


# ---- whose log the followed one is, and its lines --------------------------------------------------------------------

SETTLE: Seconds = 2.0
"""A log is read to its end when it was read this long after the end of its job, and after the start of this program."""

NUMBERS = re.compile(r"\d+(?:_\d+)?")
"""How a file name such as `slurm-88.out` or `88_3.log` names its job."""


def run_of(attempt: Attempt, state: State) -> Run:
    """The run of an attempt. If the config no longer names it, nothing is known of it."""
    return state.runs.get(attempt.run_id) or Run(spec=RunSpec(name=attempt.run_id, cluster=attempt.cluster))


def began_at(started_at: Instant | None, run: Run, state: State) -> Instant | None:
    """When a job began, by our clock."""
    return our_time(started_at, skew_of(None if run.log is None else run.log.host, state.nodes))


def start_of(attempt: Attempt, run: Run, state: State) -> Instant | None:
    """When an attempt began, by our clock. Only the start of a job is dated by another one."""
    return attempt.started_at or 0.0 if attempt.job_id is None else began_at(attempt.started_at, run, state)


def latest_of(attempt: Attempt, run: Run, state: State, known: Mapping[str, Attempt] | None = None) -> Instant:
    """Until when, by our clock, its lines, steps and checkpoints are dated: until the next attempt of its run begins,
    and at most a minute after its end."""
    if attempt.end is None:
        return state.at + AFTER
    until = attempt.end.at
    jobs = (state.jobs[key].started_at for key in run.jobs if key in state.jobs)
    others = (one.started_at for one in (known or state.attempts).values() if one.run_id == run.name)
    began = attempt.started_at or until
    later = (began_at(at, run, state) or at for at in (*jobs, *others) if at is not None and at > began)
    return max(until + SECOND, min((until + AFTER, *(at - BEFORE for at in later))))


def owns_log(attempt: Attempt, run: Run, state: State) -> bool:
    """Whether the followed log is that of the newest attempt of a run. While a new log is not followed yet, it is still
    that of an earlier job, or of none."""
    log = run.log
    if log is None or (log.path and (attempt.job_id is None or log.path == attempt.log_path)):
        return True
    is_of_other = log.path not in (None, run.spec.log) and _is_of_other_job(log.path or "", attempt, run, state)
    is_new = log.at is not None and log.at >= (began_at(attempt.started_at, run, state) or 0.0) - BEFORE
    return is_new and not is_of_other


def _is_of_other_job(path: str, attempt: Attempt, run: Run, state: State) -> bool:
    """Whether another job of the run writes this file, or the name of the file has the number of that job."""
    named = {*NUMBERS.findall(posixpath.basename(path))}
    if attempt.job_id in named:
        return False
    jobs = [*(state.jobs[key] for key in run.jobs if key in state.jobs), *state.accounted]
    return (
        NUMBERS.sub("#", path) == NUMBERS.sub("#", attempt.log_path or "")  # of a job which Slurm has not listed yet
        or any(job.id != attempt.job_id and (job.stdout == path or job.id in named) for job in jobs)
        or any(one.run_id == run.name and one.job_id in named for one in state.attempts.values())
    )


def is_read_to_end(attempt: Attempt, end: AttemptEnd, run: Run, state: State) -> bool:
    """Whether the end of its log was read, and the last checkpoint was listed."""
    since, log, saved = max(end.at, state.started_at), run.log, run.checkpoints
    if log is None or log.checked_at is None or log.checked_at < since + SETTLE:
        return False
    has_saves = run.spec.checkpoints is None or (saved is not None and saved.listed_at >= since)
    was_followed = attempt.log_path is not None and attempt.log_path == log.path_before
    is_its_log = was_followed or owns_log(attempt, run, state)
    return has_saves and is_its_log and not receipts.is_awaited(replace(attempt, end=end), state)


def lines_of(log: Log | None, path: str | None, *, is_newest: bool) -> tuple[str, ...]:
    """The lines of the log of the newest attempt, or of the one before it, if that was this file."""
    if log is None:
        return ()
    marks = [index for index, line in enumerate(log.lines) if line.startswith(LOG_MARK)]
    if is_newest and log.path in (None, path):
        return log.lines[marks[-1] + 1 :] if marks else log.lines
    begins = marks[-2] + 1 if len(marks) > 1 else 0
    return log.lines[begins : marks[-1]] if marks and path == log.path_before else ()


def has_newer(attempt: Attempt, others: Iterable[Attempt]) -> bool:
    """Whether its run has started again since."""
    return any(one.run_id == attempt.run_id and one.start > attempt.start for one in others)
