"""An attempt, those around it, and the alerts and actions of its time → its explanation, whole or brief. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec

from trainmon.analysis.attempts import (
    LOOK_NAMES,
    RankPlace,
    by_same_origin,
    changed_settings,
    has_same_config,
    leading,
    places_in,
    with_places,
)
from trainmon.analysis.causes.rules import RULE
from trainmon.analysis.checkpoints import together
from trainmon.analysis.explanation.hours import UNSEEN_FOR
from trainmon.analysis.explanation.timeline import GpuHour, Moment, timeline
from trainmon.analysis.retries import RetryDecision, decide, history_of, suspects
from trainmon.lib import Instant, Seconds, at_text, clean, counted, duration, scrub
from trainmon.model import (
    Alert,
    Attempt,
    CauseName,
    Classification,
    EvalResult,
    NodeRecord,
    RankLook,
    Record,
    RetryChoice,
    RetryPolicy,
    SettingChange,
    State,
)

# ---- the 15-minute smell test: can a new engineer trace config, data, placement, checkpoint, retries and evals? ------

# The six questions are those of Aaron Brooks, "Training infrastructure is failure accounting" (2026).

Topic = Literal["config", "data", "placement", "checkpoint", "retry history", "eval state"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One of the six questions."""

    topic: Topic
    to_add: tuple[str, ...] = ()
    """What must be added, in sentences. Empty: the question can be answered."""

    @property
    def is_traceable(self) -> bool:
        return not self.to_add


def smell_test(attempt: Attempt, earlier: Sequence[Attempt], evals: Sequence[EvalResult]) -> tuple[Check, ...]:
    """The six checks, in their order."""
    return (
        Check(topic="config", to_add=tuple(_config(attempt))),
        Check(topic="data", to_add=() if attempt.data_manifest else (_unread(attempt, "data_manifest") or DATA,)),
        Check(topic="placement", to_add=tuple(_placement(attempt))),
        Check(topic="checkpoint", to_add=tuple(_checkpoint(attempt, earlier))),
        Check(topic="retry history", to_add=tuple(_retries(attempt, earlier))),
        Check(topic="eval state", to_add=tuple(_evals(attempt, evals))),
    )


DATA = "Set data_manifest in [[run]] or TRAINMON_DATA_MANIFEST in its environment, or log data_manifest to W&B."
EVALS = (
    "Write results to evals.jsonl beside the checkpoints, name their file in [[eval]], or log a setting such as "
    "mmlu_version to W&B: no evaluator is known."
)


def _unread(attempt: Attempt, field: Literal["config_path", "data_manifest"]) -> str | None:
    """What to add if the file that a field names cannot be read."""
    file = attempt.files.get(field)
    name = "config" if field == "config_path" else "manifest"
    if file is None or file.error is None:
        return None
    return f"Let trainmon-tui read the {name}: {file.path} cannot be read: {file.error}."


def _config(attempt: Attempt) -> Iterator[str]:
    if attempt.config_hash is None and (why := _unread(attempt, "config_path")) is not None:
        yield why
    elif attempt.config_hash is None and attempt.config_path is None:
        yield "Log the settings to W&B, or name the file: config in [[run]], or --config on the command line."
    if attempt.git_commit is None and attempt.container is None:
        yield "Start from a git checkout with W&B, or set TRAINMON_CONTAINER, or log container_digest to W&B."


def _placement(attempt: Attempt) -> Iterator[str]:
    if not attempt.nodes:
        yield "Name the nodes in [[run]], or start with Slurm: the nodes are not known."
    elif attempt.gpus is None and not attempt.gpu_uuids:
        yield "Watch its nodes: its GPUs are not known."


def _checkpoint(attempt: Attempt, earlier: Sequence[Attempt]) -> Iterator[str]:
    if not attempt.has_checkpoints:
        yield "Set checkpoints = DIR in [[run]]: no directory was listed."
    if attempt.may_have_later:
        yield "Save in a format that trainmon-tui knows: that of its newest checkpoint is not recognised."
    began = attempt.resumed_from if attempt.resumed_from is not None else attempt.first_step
    if began is None and (earlier or attempt.restart):
        yield "Let the trainer log the checkpoint that it loads: where it resumed is not known."


def _retries(attempt: Attempt, earlier: Sequence[Attempt]) -> Iterator[str]:
    ended = [one for one in (*earlier, attempt) if one.end is not None]
    unknown = [one for one in ended if one.end and (one.end.cause is None or one.end.cause.cause == "unknown")]
    if unknown:
        one = (
            "its cause is"
            if unknown == [attempt]
            else "the cause of another attempt is"
            if len(unknown) == 1
            else f"the causes of {len(unknown)} attempts are"
        )
        yield f"Set log in [[run]], or keep the logs: {one} not known."
    elif attempt.restart and len(earlier) < attempt.restart:
        lacking = counted(attempt.restart - len(earlier), "earlier attempt")
        yield f"Keep trainmon-tui running: the ledger lacks {lacking}."


def _evals(attempt: Attempt, evals: Sequence[EvalResult]) -> Iterator[str]:
    if not evals and not attempt.evaluators:
        yield EVALS
    missing = dict.fromkeys(name for one in evals for name in one.missing)
    if missing:
        yield f"Let the evaluator write {', '.join(missing)} with its results."
    last = attempt.last_committed_step
    if evals and last is not None and all(one.step != last for one in evals):
        yield f"Evaluate the last committed checkpoint, step {last:,}: no result of it is known."


# ---- an attempt, those around it, and the alerts and actions of its time → its explanation ---------------------------

AWAITED = "The end of its log and its last checkpoint are awaited"

AROUND = 2
"""Lines of the log that are shown before and after a line of evidence."""
EVIDENCE_AT_MOST = 3
EARLIER_AT_MOST = 5

COMPARED = (
    "config_hash", "config_path", "git_commit", "container", "data_manifest", "evaluators", "command", "nodes", "gpus",
    "target_step",
)  # fmt: skip
"""The fields of an attempt that are compared with those of the attempt before it."""


class AttemptRecords(msgspec.Struct, frozen=True, kw_only=True):
    """What is known around an attempt."""

    attempts: tuple[Attempt, ...] = ()
    """The attempts of its run, in any order."""
    alerts: tuple[Alert, ...] = ()
    actions: tuple[Record, ...] = ()
    gpu_hours: tuple[GpuHour, ...] = ()
    """The last hour of the GPUs of its nodes."""
    evals: tuple[EvalResult, ...] = ()
    """What evaluators wrote about the checkpoints of its run."""
    nodes: Mapping[str, NodeRecord] = {}
    """What attempts of 90 days say of nodes."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A difference from the previous attempt. What is not known of one of them is not one."""

    field: str
    before: Any
    after: Any


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attempt should have resumed, and where it did."""

    attempt_id: str
    expected: int | None = None
    """The last committed checkpoint of the attempt before it; 0 if there was none."""
    actual: int | None = None
    """The step of the checkpoint that its log names."""
    first_step: int | None = None
    committed: int | None = None
    """Its own last committed checkpoint. The last save of the attempt before it may have been listed only then."""
    reached: int | None = None
    """The last step of the attempt before it."""
    counts_steps: bool = True
    """Whether the names of the checkpoints count steps."""
    written_by: str | None = None
    """The id of the attempt that wrote that checkpoint."""
    is_rewind: bool = False
    """Whether the attempt before it diverged: then an earlier checkpoint is the remedy."""

    @property
    def is_wrong(self) -> bool | None:
        """None while that is not known. Without a named checkpoint, only steps that are trained again prove it. What
        another run has committed, from which this one began, is not known."""
        began = self.began
        if self.expected is None or began is None or not self.counts_steps:
            return None
        if self.is_rewind:
            return False
        if self.actual is None and began > (self.reached or 0) > self.expected:
            return None  # it goes on where that one ended: a checkpoint is not known
        is_ahead = self.actual is not None and began > max(self.expected, self.committed or 0)
        return None if is_ahead and self.expected == 0 else is_ahead or began < self.expected

    @property
    def began(self) -> int | None:
        """The step at which it began."""
        return self.actual if self.actual is not None else self.first_step


class ContextLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log near the evidence."""

    line: int
    """Counted from the end of the log: -1 is its last line."""
    text: str
    is_evidence: bool = False


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt ended, and what belongs to it."""

    attempt: Attempt
    sentence: str
    """What ended it, when, and how sure that is."""
    is_unseen: bool = False
    """Whether it had not ended when it was last seen, long ago."""
    timeline: tuple[Moment, ...] = ()
    previous: Attempt | None = None
    following: Attempt | None = None
    changes: tuple[Change, ...] = ()
    """What differs from the previous attempt."""
    settings: tuple[SettingChange, ...] = ()
    """The settings that differ from those of the previous attempt."""
    resumed: Resume | None = None
    """How this attempt resumed; null for the first one."""
    resumes_at: Resume | None = None
    """How the next attempt resumed; null without one."""
    retry: RetryDecision | None = None
    earlier: tuple[Attempt, ...] = ()
    """The last attempts before it, the oldest first."""
    facts: tuple[str, ...] = ()
    """Evidence that is not from the log."""
    context: tuple[ContextLine, ...] = ()
    gpu_hours: tuple[GpuHour, ...] = ()
    """Of each node, the last hour of its GPUs."""
    evals: tuple[EvalResult, ...] = ()
    """What evaluators wrote about the checkpoints that this attempt committed, or started from."""
    checks: tuple[Check, ...] = ()
    """The smell test."""

    @property
    def traceable(self) -> int:
        """How many of the six checks pass."""
        return sum(check.is_traceable for check in self.checks)


def explain(
    attempt: Attempt, records: AttemptRecords, policy: RetryPolicy | None = None, now: Instant | None = None
) -> Explanation:
    """The explanation of an attempt. It may still run. `now`: the time, unless the records are those of a State."""
    earlier, following = neighbours(attempt, records.attempts)
    previous = earlier[-1] if earlier else None
    reached = attempt.end or (attempt.outlook if attempt.reported_end is None else None)
    cause = None if reached is None else reached.cause
    evals = evals_of(attempt, following, records.evals)
    is_unseen = attempt.told_end is None and now is not None and now - attempt.seen_at > UNSEEN_FOR
    return Explanation(
        attempt=attempt,
        sentence=" ".join(_sentences(attempt, records.actions, is_unseen=is_unseen)),
        is_unseen=is_unseen,
        timeline=timeline(attempt, following, records.alerts, records.actions),
        previous=previous,
        following=following,
        changes=() if previous is None else tuple(changes(previous, attempt)),
        settings=() if previous is None else changed_settings(previous, attempt),
        resumed=None if previous is None else resume_of(earlier, attempt),
        resumes_at=None if following is None else resume_of((*earlier, attempt), following),
        retry=decide(attempt, records.attempts, policy or RetryPolicy(), records.nodes),
        earlier=tuple(earlier[-EARLIER_AT_MOST:]),
        facts=() if cause is None else tuple(one.text for one in cause.evidence if one.line is None),
        context=tuple(_context(attempt)),
        gpu_hours=records.gpu_hours,
        evals=evals,
        checks=smell_test(attempt, earlier, evals),
    )


def with_state(records: AttemptRecords, attempt: Attempt, state: State) -> AttemptRecords:
    """The records with what a State knows of the run of an attempt. The State is newer."""
    run, nodes = attempt.run_id, set(attempt.nodes)
    attempts = (one for one in state.attempts.values() if one.run_id == run)
    alerts = (one for one in state.alerts.values() if one.run == run or one.node in nodes)
    actions = (one for one in state.actions.values() if one.action.run == run)
    return AttemptRecords(
        attempts=tuple({one.attempt_id: one for one in (*records.attempts, *attempts)}.values()),
        alerts=tuple({one.id: one for one in (*records.alerts, *alerts)}.values()),
        actions=tuple({one.action.id: one for one in (*records.actions, *actions)}.values()),
        gpu_hours=records.gpu_hours,
        evals=together(records.evals, () if run not in state.runs else state.runs[run].evals.results),
        nodes=state.node_records,
    )


def evals_of(attempt: Attempt, following: Attempt | None, results: Sequence[EvalResult]) -> tuple[EvalResult, ...]:
    """The results for the checkpoints of an attempt, by step: those that it committed, and its newest one, which an
    earlier attempt may have written. Where none is known, the steps that no later attempt has trained again count."""
    last = attempt.last_committed_step
    if last is None and (following is None or not attempt.has_checkpoints):
        last = attempt.last_step
    if last is None:
        return ()
    first = last if attempt.first_step is None else min(attempt.first_step, last)
    return tuple(sorted((one for one in results if first <= (one.step or 0) <= last), key=lambda one: one.step or 0))


def neighbours(attempt: Attempt, attempts: Collection[Attempt]) -> tuple[Sequence[Attempt], Attempt | None]:
    """The attempts of its run before it, in their order, and the one after it."""
    *earlier, _ = history_of(attempt, attempts)
    before = {attempt.attempt_id, *(one.attempt_id for one in earlier)}
    later = [one for one in attempts if one.run_id == attempt.run_id and one.attempt_id not in before]
    return earlier, min(later, key=attrgetter("order"), default=None)


def short_id(attempt: Attempt) -> str:
    """`88.1`: the job and its restart; without a scheduler the W&B id, the process, or `log`."""
    return short_name(attempt.job_id, attempt.restart, attempt.wandb_id, attempt.pid)


def short_name(job_id: str | None, restart: int | None, wandb_id: str | None, pid: int | None) -> str:
    """The short id of an attempt of which only these columns were read."""
    if job_id is not None:
        return f"{job_id}.{restart}" if restart else job_id
    if wandb_id is not None:
        return wandb_id.rpartition("/")[2]
    return "log" if pid is None else f"pid {pid}"


def _sentences(attempt: Attempt, actions: Iterable[Record], *, is_unseen: bool) -> Iterator[str]:
    """What ended it, when, how sure, and what it cost."""
    name, end = f"Attempt {short_id(attempt)} of {attempt.run_id}", attempt.end
    about = "about " if attempt.start_is_estimated else ""
    ran = "" if attempt.duration_s is None else f", after {about}{duration(attempt.duration_s)}"
    if end is None and attempt.reported_end is not None:
        yield f"{name} ended at {at_text(attempt.reported_end.at)}{ran}. {AWAITED}, then its cause is determined."
        return
    if is_unseen:
        yield f"{name} had not ended when it was last seen, at {at_text(attempt.seen_at)}."
        yield "Whether it still runs is not known: no program has recorded it since."
        return
    if end is None:
        step = "" if attempt.last_step is None else f" at step {attempt.last_step:,}"
        yield f"{name} is still running{step}{ran.replace('after', 'for')}{_danger(attempt)}."
        if attempt.outlook is not None and attempt.outlook.cause is None:
            yield "No problem detected."
        return
    if (cause := end.cause) is None or cause.cause == "unknown":
        yield f"{name} ended at {at_text(end.at)}{ran}. The cause is not known."
    else:
        yield f"{name} ended at {at_text(end.at)}{ran}: {named(cause)}."
        yield meaning(attempt, cause.cause, actions)
    if look := leading(_at_its_end(attempt)):
        yield f"Seen by {LOOK_NAMES[look.source]}: {look.summary}."
    if hung := hung_for(attempt):
        yield f"It hung for {duration(hung)}."
    spent = None if attempt.gpu_seconds is None else gpu_time(attempt.gpu_seconds)
    lost = None if attempt.steps_lost is None else f"{counted(attempt.steps_lost, 'step')} lost"
    if spent or lost:
        yield f"Cost: {', '.join(filter(None, (spent, lost)))}."
    if end.source == "lost":
        yield "Nothing reported its end: the time is when it was last seen."


def named(cause: Classification) -> str:
    """`cuda-oom (OutOfMemoryError), certain`"""
    what = f"{cause.cause} ({cause.exception})" if cause.exception else cause.cause
    return f"{what}, {'certain' if cause.confidence == 'high' else 'not certain'}"


def meaning(attempt: Attempt, cause: CauseName, actions: Iterable[Record]) -> str:
    """What its cause means for an attempt that ended, in a sentence."""
    if cause == "completed" and attempt.is_unfinished:
        return f"It ended without an error at step {attempt.last_step:,} of {attempt.target_step:,}: not finished."
    if cause == "requeued" and (by := next(requeued_by(attempt, actions), "")):
        return f"The job was requeued by {by} with trainmon-tui."
    if (found := attempt.cause) is not None and found.confidence == "low" and found.evidence:
        text = named_in(attempt, found.evidence[0].text.rstrip("."))
        return f"Only this suggests it: {text}."  # it does not show what the cause means
    return RULE[cause].meaning


def requeued_by(attempt: Attempt, actions: Iterable[Record]) -> Iterator[str]:
    """Who has requeued the job of an attempt with an action of ours."""
    for one in actions:
        action, job = one.action, f"{attempt.cluster}/{attempt.job_id}"
        is_its_job = action.job == job and action.expected.submitted_at == attempt.submitted_at
        if action.verb == "requeue" and is_its_job and one.status in ("done", "unknown"):
            yield action.who


def _danger(attempt: Attempt) -> str:
    """`, and hangs: no step since 2025-06-15 14:00:00 UTC; if it ends now, its cause is hang`."""
    outlook = attempt.outlook
    if outlook is None or outlook.cause is None:
        return ""
    steps = "" if outlook.since is None else f": no step since {at_text(outlook.since)}"
    when = "then" if outlook.cause.cause in ("preempted", "time-limit") else "if it ends now,"
    return f", and {outlook.what}{steps}; {when} its cause is {outlook.cause.cause}"


def changes(before: Attempt, after: Attempt) -> Iterator[Change]:
    """The recorded fields in which two attempts differ."""
    for field in COMPARED:
        was, now = getattr(before, field), getattr(after, field)
        if field == "config_hash" and was and now and has_same_config(before, after) is not False:
            continue  # a hash by W&B and one by the file cannot be compared
        if field == "command" and before.named.get(field) and after.named.get(field):
            was, now = by_same_origin(before, after, field) or (None, None)
        if was and now and was != now:
            yield Change(field=field, before=was, after=now)


def writer_of(step: int, attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that wrote the checkpoint of a step: the last one that trained and committed it."""
    spans = ((one, (one.first_step, one.last_step, one.last_committed_step)) for one in reversed(attempts))
    known = ((one, span[0] or 0, min(span[1] or 0, span[2] or 0)) for one, span in spans if None not in span)
    return next((one for one, first, last in known if first <= step <= last), None)


def resume_of(earlier: Sequence[Attempt], after: Attempt) -> Resume:
    """How an attempt resumed after those before it."""
    before = earlier[-1]
    writer = None if after.resumed_from is None else writer_of(after.resumed_from, earlier)
    committed = before.last_committed_step
    # It may be another training under the same name. A target beyond the steps of the first one shows that it goes on.
    is_over = before.has_completed and not after.resumed_from and (after.target_step or 0) <= (before.last_step or 0)
    return Resume(
        attempt_id=after.attempt_id,
        expected=None
        if before.may_have_later or is_over
        else 0
        if committed is None and before.has_checkpoints
        else committed,
        actual=after.resumed_from,
        first_step=after.first_step,
        committed=after.last_committed_step,
        reached=before.last_step,
        counts_steps=False not in (before.counts_steps, after.counts_steps),
        written_by=None if writer is None else writer.attempt_id,
        is_rewind=before.cause is not None and before.cause.cause == "diverged",
    )


def _context(attempt: Attempt) -> Iterator[ContextLine]:
    """The lines of evidence with those around them; without any, the last lines of the log."""
    end, cause = attempt.end, attempt.cause
    if end is None or not end.log_tail:
        return
    lines = end.log_tail.split("\n")
    numbers = [one.line for one in (cause.evidence if cause is not None else ()) if one.line is not None]
    marked = [number for number in numbers if -len(lines) <= number < 0][:EVIDENCE_AT_MOST]
    near = {n for number in marked or [-1 - AROUND] for n in range(number - AROUND, number + AROUND + 1)}
    for number in sorted(near):
        if -len(lines) <= number < 0:
            yield ContextLine(line=number, text=lines[number], is_evidence=number in marked)


def gpu_time(seconds: Seconds) -> str:
    """`26 GPU seconds`, `0.09 GPU hours`, `1,024.0 GPU hours`: of an attempt that cost something, never zero."""
    if seconds < 36.0:
        return counted(round(seconds), "GPU second")
    return f"{seconds / 3600:,.{1 if seconds >= 3600 else 2}f} GPU hours"


# ---- in a few lines of a message -------------------------------------------------------------------------------------

LINE = 300
"""Characters of a line."""

HELPS: Mapping[RetryChoice, str] = {
    "now": "a restart may help",
    "after-change": "a restart helps only after a change",
    "after-node-swap": "a restart helps only on other nodes",
    "evaluator": "only the evaluator must run again",
    "stop": "a restart does not help",
    "none": "no restart is needed",
}


def brief(
    attempt: Attempt,
    attempts: Collection[Attempt],
    actions: Iterable[Record],
    policy: RetryPolicy,
    nodes: Mapping[str, NodeRecord] = {},
) -> tuple[str, ...]:
    """The lines about an attempt that ended; none while its cause is not known. `attempts` are all that are known."""
    cause, retry = attempt.cause, decide(attempt, attempts, policy, nodes)
    if cause is None or cause.cause == "unknown" or retry is None:
        return ()
    actions = tuple(actions)
    lines = (
        f"cause: {named(cause)}. {meaning(attempt, cause.cause, actions)}",
        f"lost: {_loss(attempt)}",
        f"by: {'; '.join(_by(attempt, actions)) or 'not known'}",
        f"decision: {HELPS[retry.choice]}; {retry.why}",
    )
    return tuple(clean(scrub(line), LINE) for line in lines)


def named_in(attempt: Attempt, text: str) -> str:
    """The text, with where the rank runs that it names, if a line of the evidence names the same one. What a line
    begins with may be a local rank."""
    is_proven = {*places_in([text], attempt.ranks)} <= {*evidence_places(attempt)}
    return with_places(text, attempt.ranks) if is_proven else text


def evidence_places(attempt: Attempt) -> list[RankPlace]:
    """Where the ranks run that the lines of the evidence name."""
    return places_in((one.text for one in _context(attempt) if one.is_evidence), attempt.ranks)


def _loss(attempt: Attempt) -> str:
    """The steps that must be trained again, and their share of the GPU time of the attempt."""
    steps, spent = attempt.steps_lost, attempt.gpu_seconds
    has_no_step = attempt.last_step is None and not attempt.may_have_gone_on
    if steps is None or has_no_step:
        what = "no step was made" if has_no_step else "the steps lost are not known"
        return what + ("" if spent is None else f"; {gpu_time(spent)} were used")
    lost = attempt.lost_share or 0.0
    hours = "GPU hours are not known" if spent is None else f"{gpu_time(lost * spent)} of {gpu_time(spent)}"
    return f"{counted(steps, 'step')}, {hours}"


def hung_for(attempt: Attempt) -> Seconds:
    """How long an attempt that ended made no step although it should have, as far as it was watched."""
    if attempt.end is None or attempt.hung_since is None:
        return attempt.hung_s
    until = min(attempt.end.at, attempt.watched_until or attempt.end.at)
    return attempt.hung_s + max(0.0, until - attempt.hung_since)


def _at_its_end(attempt: Attempt) -> Iterator[RankLook]:
    """The looks that name ranks, made at its last step: after an earlier one, it went on."""
    return (look for look in attempt.looks if look.ranks and look.step in (None, attempt.last_step))


def _by(attempt: Attempt, actions: Iterable[Record]) -> Iterator[str]:
    """Who or what ended it: a person, nodes, a rank with its error."""
    assert attempt.end is not None
    _, _, person = (attempt.end.scheduler_state or "").partition(" by ")
    yield from filter(None, (person, *requeued_by(attempt, actions), *suspects(attempt)))
    yield from (look.summary for look in _at_its_end(attempt))
    if (cause := attempt.end.cause) is not None and cause.evidence:
        rank = "" if cause.rank is None else f"rank {cause.rank}: "
        rank = next((f"{one}: " for one in evidence_places(attempt) if one.rank == cause.rank), rank)
        errors = (one.text for one in cause.evidence if cause.exception and cause.exception in one.text)
        yield rank + named_in(attempt, next(errors, cause.evidence[0].text))
