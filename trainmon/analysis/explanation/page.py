"""An explanation as sections of labelled rows: the terminal, Markdown and the dashboard show the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Literal, NamedTuple

from trainmon.analysis.attempts import LOOK_LABELS, ORDER, place_of, values_of, why_missing
from trainmon.analysis.checkpoints import describe
from trainmon.analysis.explanation.explain import (
    AWAITED,
    HELPS,
    Explanation,
    Resume,
    evidence_places,
    hung_for,
    short_id,
)
from trainmon.analysis.explanation.timeline import What, worst
from trainmon.lib import at_text, clean, counted, duration, mib_size, scrub, size
from trainmon.model import Attempt, Origin

# ---- rows and sections -----------------------------------------------------------------------------------------------

Style = Literal["", "ok", "warn", "crit", "dim", "log"]
"""log: a line of a log, which is shown as it is."""


class PageRow(NamedTuple):
    """A label and a text. A row with an empty label continues the one before it."""

    label: str
    text: str
    style: Style = ""
    link: tuple[str, str] | None = None
    """`node` or `attempt`, and its name; `gpu-014/6` is GPU 6 of a node."""


class Section(NamedTuple):
    """A title and its rows."""

    title: str
    rows: tuple[PageRow, ...]


UNKNOWN = "not known"
UNSEEN = "whether it still runs is not known"


# ---- the rows about config and data ----------------------------------------------------------------------------------

FIELDS = {
    "config_hash": "config", "config_path": "config file", "git_commit": "git commit", "container": "container",
    "data_manifest": "data", "evaluators": "evaluators", "command": "command", "nodes": "nodes", "gpus": "GPUs",
    "target_step": "target step",
}  # fmt: skip
"""The labels of fields."""
ORIGINS: Mapping[Origin, str] = {
    "config": "[[run]]", "environment": "its environment", "command": "its command line", "wandb": "W&B",
    "receipt": "its receipt",
}  # fmt: skip
AT_THE_START = 60.0
"""Seconds. A file that is written that soon after the start is probably written by the job itself, before it trains."""

TRAINED_WITH = ("config_hash", "config_path", "git_commit", "container", "data_manifest", "command")
SETTINGS_AT_MOST = 20


def config_rows(one: Explanation) -> Iterator[PageRow]:
    """What the attempt trained with, and what has changed since the previous one."""
    changed = {change.field: change for change in one.changes}
    for field in TRAINED_WITH:
        value = getattr(one.attempt, field)
        hashed = _hashed(one.attempt) if field == "config_hash" else ""
        yield PageRow(FIELDS[field], f"{value}{hashed}" if value else UNKNOWN, "" if value else "dim")
        if field in changed:
            yield PageRow("", f"changed; before: {_value(changed.pop(field).before)}", "warn")
        if field == "config_hash":
            yield from _settings(one)
        yield from _file(one.attempt, field)
        if field in ("container", "data_manifest", "git_commit"):
            yield from _contradictions(one.attempt, field)
    for change in changed.values():
        yield PageRow(FIELDS[change.field], _value(change.after))
        yield PageRow("", f"changed; before: {_value(change.before)}", "warn")
    if one.previous is None:
        yield PageRow("changed", "No earlier attempt is known.", "dim")
    elif not one.changes:
        text = f"no recorded change since attempt {short_id(one.previous)}"
        yield PageRow("changed", text, link=("attempt", one.previous.attempt_id))
    else:
        text = f"since attempt {short_id(one.previous)}: {', '.join(FIELDS[one.field] for one in one.changes)}"
        yield PageRow("changed", text, "warn", ("attempt", one.previous.attempt_id))
    if (again := one.attempt.recomputed) is not None:
        text = f"{counted(again.steps, 'step')} computed again: {again.text}"
        yield PageRow("same steps", text, "warn" if again.verdict == "differs" else "")
    before = one.previous or one.attempt
    known = ((name, getattr(before, field), getattr(one.attempt, field)) for field, name in FIELDS.items())
    known_once = [name for name, was, now in known if bool(was) != bool(now)]
    if known_once:
        text = f"{', '.join(known_once)}: known of only one of the two attempts"
        yield PageRow("not compared", text, "dim")


def _settings(one: Explanation) -> Iterator[PageRow]:
    """The settings that have changed since the previous attempt."""
    for setting in one.settings[:SETTINGS_AT_MOST]:
        was, now = (value if value is not None else "not set" for value in (setting.before, setting.after))
        yield PageRow("", f"{setting.name}: {now}; before: {was}", "warn")
    if (left := len(one.settings) - SETTINGS_AT_MOST) > 0:
        yield PageRow("", f"and {counted(left, 'other setting')}", "warn")


def _hashed(attempt: Attempt) -> str:
    """Whose hash it is; nothing if only an older version knows."""
    values = values_of(attempt, "config_hash")
    return ", the hash of its W&B settings" if "wandb" in values else ", the hash of its config file" if values else ""


def _file(attempt: Attempt, field: str) -> Iterator[PageRow]:
    """What was read of the file that a field names."""
    file, started_at = attempt.files.get(field), attempt.started_at
    if file is None:
        return
    if file.error is not None:
        yield PageRow("", f"{file.path} cannot be read: {file.error}", "warn")
        return
    late = "" if started_at is None else f"read {duration(max(0.0, file.read_at - started_at))} after the start"
    facts = (
        None if file.size is None else size(file.size),
        None if file.modified_at is None else f"changed {at_text(file.modified_at)}",
        late or f"read {at_text(file.read_at)}",
    )
    yield PageRow("", ", ".join(filter(None, facts)), "dim")
    if started_at is not None and (file.modified_at or 0.0) > started_at + AT_THE_START:
        yield PageRow("", "It was changed after the start: the attempt may have read what it was before.", "warn")


def _contradictions(attempt: Attempt, field: str) -> Iterator[PageRow]:
    """The other values of a field."""
    values = values_of(attempt, field)
    origins = [origin for origin in ORDER[field] if origin in values]
    for other in origins[1:]:
        if values[other] != values[origins[0]]:
            yield PageRow("", f"from {ORIGINS[origins[0]]}, but {ORIGINS[other]} says {values[other]}", "warn")


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or UNKNOWN
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return UNKNOWN if value is None else str(value)


# ---- an explanation as sections of labelled rows ---------------------------------------------------------------------

MEASURED: dict[str, tuple[str, Callable[[float], str]]] = {
    "temperature": ("hottest", "{:.0f} °C".format), "utilization": ("idlest", "{:.0f}%".format),
    "power": ("least", "{:,.0f} W".format), "memory": ("fullest", mib_size),
}  # fmt: skip
MOMENTS: Mapping[What, Style] = {"alert": "warn", "next-attempt": "dim", "resolved": "dim", "left-out": "dim"}
"""How moments of the timeline are shown."""
NODES_AT_MOST = 16
EVALS_AT_MOST = 20


def page(one: Explanation, zone: tzinfo | None = UTC) -> tuple[Section, ...]:
    """All sections, in the order in which they answer questions. `zone`: that of the timeline; None is local time."""
    found = (
        Section("Timeline (UTC)" if zone is UTC else "Timeline (local time)", tuple(_timeline(one, zone))),
        Section("Evidence", tuple(_evidence(one))),
        Section("Ranks", tuple(_looks(one.attempt))),
        Section("Placement", tuple(_placement(one.attempt))),
        Section("GPUs in the last hour", tuple(_gpu_hours(one))),
        Section("Config and data", tuple(config_rows(one))),
        Section("Checkpoints", tuple(_checkpoints(one))),
        Section("Retries", tuple(_retries(one))),
        Section("Evals", tuple(_evals(one))),
        Section(f"Traceability: {one.traceable} of {len(one.checks)}", tuple(_checks(one))),
    )
    return tuple(
        Section(title, tuple(row._replace(label=scrub(clean(row.label)), text=scrub(clean(row.text))) for row in rows))
        for title, rows in found
        if rows
    )


def _timeline(one: Explanation, zone: tzinfo | None) -> Iterator[PageRow]:
    day = ""
    for moment in one.timeline:
        at = datetime.fromtimestamp(moment.at, UTC).astimezone(zone)
        if (date := at.strftime("%Y-%m-%d")) != day:
            day = date
            yield PageRow(date, "", "dim")
        by = f" by {moment.by}" if moment.by else ""
        link = ("attempt", one.following.attempt_id) if moment.what == "next-attempt" and one.following else None
        yield PageRow(at.strftime("%H:%M:%S"), moment.text + by, MOMENTS.get(moment.what, ""), link)


def _evidence(one: Explanation) -> Iterator[PageRow]:
    attempt, end, is_over = one.attempt, one.attempt.end, one.attempt.reported_end is not None
    if end is None:
        open_text = f"{UNSEEN.capitalize()}." if one.is_unseen else "The attempt is still running."
        yield PageRow("", AWAITED + "." if is_over else open_text, "dim")
    yield from (PageRow("fact", fact, "warn") for fact in one.facts)
    if end is None:
        if not is_over and attempt.outlook is not None and attempt.outlook.cause is not None:
            yield PageRow("if it ends", f"{attempt.outlook.cause.cause}: {attempt.outlook.cause.advice}")
        return
    if attempt.log_path is not None:
        where = "" if attempt.log_offset is None else f", from byte {attempt.log_offset:,}"
        host = f"{attempt.log_host}:" if attempt.log_host else ""
        yield PageRow("log", f"{host}{attempt.log_path}{where}")
    unread = attempt.files.get("log_path")
    if unread is not None and unread.error is not None:
        yield PageRow("", f"{unread.path} is not its log: {unread.error}", "warn")
    before: int | None = None
    for line in one.context:
        if before is not None and line.line != before + 1:
            yield PageRow("…", "", "dim")
        before = line.line
        yield PageRow(f"{'>' if line.is_evidence else ' '}{line.line}", line.text, "log")
    yield from (PageRow("rank", str(place), link=("node", place.link)) for place in evidence_places(attempt))
    if not one.context:
        yield PageRow("", "No line of its log is recorded.", "dim")
    elif not any(line.is_evidence for line in one.context):
        how = "prove" if end.cause is not None and end.cause.confidence == "high" else "suggest"
        proof = f"The facts {how} the cause." if one.facts else "None proves the cause."
        yield PageRow("", f"These are the last lines. {proof}", "dim")
    if end.cause is not None and end.cause.advice:
        is_stopped = end.cause.family == "human" and hung_for(attempt)
        yield PageRow("advice", "Find out why it hung before you start it again." if is_stopped else end.cause.advice)


def _looks(attempt: Attempt) -> Iterator[PageRow]:
    """What looks at its ranks have shown."""
    for look in attempt.looks:
        place = place_of(look.ranks[0], attempt.ranks) if look.ranks else None
        link = None if place is None else ("node", place.link)
        yield PageRow(LOOK_LABELS[look.source], look.summary, "warn" if look.ranks else "", link)
        went_on = None not in (look.step, attempt.last_step) and (attempt.last_step or 0) > (look.step or 0)
        later = f"; it went on to step {attempt.last_step:,}" if went_on else ""
        yield PageRow("", f"seen at {at_text(look.at)}{later}", "dim")
        yield from (PageRow("", line) for line in look.lines)
        if look.advice:
            yield PageRow("advice", look.advice)


def _placement(attempt: Attempt) -> Iterator[PageRow]:
    job = "" if attempt.job_id is None else f", job {attempt.job_id}"
    yield PageRow("cluster", f"{attempt.cluster}{job}")
    gpus = UNKNOWN if attempt.gpus is None else str(attempt.gpus)
    yield PageRow("GPUs", gpus, "" if attempt.gpus else "warn")
    if not attempt.nodes:
        yield PageRow("nodes", UNKNOWN, "warn")
    for index, node in enumerate(attempt.nodes[:NODES_AT_MOST]):
        yield PageRow("" if index else "nodes", node, link=("node", node))
    if len(attempt.nodes) > NODES_AT_MOST:
        yield PageRow("", f"and {len(attempt.nodes) - NODES_AT_MOST} more", "dim")


def _gpu_hours(one: Explanation) -> Iterator[PageRow]:
    """A row per node and metric: its range, and its last value. No rows if nothing is stored."""
    for hour in one.gpu_hours[:NODES_AT_MOST]:
        yield PageRow(hour.node, "the worst GPU of the node, a mean per minute", "dim", ("node", hour.node))
        for metric, (title, written) in MEASURED.items():
            values = worst(hour, metric).values
            if values:
                low, high, last = map(written, (min(values), max(values), values[-1]))
                text = low if low == high else f"{low} to {high}, at the end {last}"
                yield PageRow(f"  {title}", text)
    if len(one.gpu_hours) > NODES_AT_MOST:
        yield PageRow("", f"and {counted(len(one.gpu_hours) - NODES_AT_MOST, 'more node')}", "dim")


def _checkpoints(one: Explanation) -> Iterator[PageRow]:
    attempt = one.attempt
    if one.resumed is not None:
        yield _resume("resumed from", one.resumed)
        writer = next((before for before in one.earlier if before.attempt_id == one.resumed.written_by), None)
        if writer is not None:
            yield PageRow("", f"written by attempt {short_id(writer)}", link=("attempt", writer.attempt_id))
    elif attempt.resumed_from is not None:
        yield PageRow("resumed from", f"step {attempt.resumed_from:,}")
    if attempt.resumed_words:
        yield PageRow("", attempt.resumed_words, "log")
    committed = attempt.last_committed_step
    if attempt.may_have_later:
        text = "not known: the format of its newest checkpoint is not recognised"
        yield PageRow("committed", text if committed is None else f"step {committed:,}; later: {text}", "warn")
    elif not attempt.has_checkpoints:
        yield PageRow("committed", "Its checkpoints are not known.", "warn")
    elif committed is None:
        yield PageRow("committed", "no checkpoint", "warn")
    else:
        is_unknown = attempt.started_at is None and attempt.first_step is None and attempt.resumed_from is None
        whose = ", by an earlier attempt" if one.earlier else ", before it began"
        by = "" if attempt.has_committed or is_unknown else whose
        yield PageRow("committed", f"step {committed:,}{by}")
    least = "at least " if attempt.may_have_gone_on else ""
    trained = UNKNOWN if attempt.last_step is None else f"{least}to step {attempt.last_step:,}"
    target = "" if attempt.target_step is None else f" of {attempt.target_step:,}"
    lost = "" if not attempt.steps_lost else f"; {counted(attempt.steps_lost, 'step')} lost"
    if attempt.counts_steps is False and attempt.end is not None:
        lost = f"; steps lost: not known, {why_missing(attempt).get('steps_lost', '')}"
    if attempt.has_completed and attempt.unsaved_steps:
        lost = f"; no committed checkpoint has the last {counted(attempt.unsaved_steps, 'step')}"
    yield PageRow("trained", trained + target + lost, "warn" if lost else "")
    yield _evaluated(one)
    if one.resumes_at is not None:
        yield _resume("next attempt", one.resumes_at)
    elif attempt.end is not None and committed is not None and not attempt.may_have_later | attempt.has_completed:
        yield PageRow("next attempt", f"none yet; it should resume from step {committed:,}")


def _resume(label: str, resume: Resume) -> PageRow:
    actual, first, expected = resume.actual, resume.first_step, resume.expected
    is_next = label == "next attempt"
    link = ("attempt", resume.attempt_id) if is_next else None
    found = (
        f"{'resumed from ' if is_next else ''}step {actual:,}" if actual is not None
        else UNKNOWN if first is None
        else f"not logged; first step {first:,}"
    )  # fmt: skip
    wanted = UNKNOWN if expected is None else "the beginning" if expected == 0 else f"step {expected:,}"
    if resume.is_wrong:
        return PageRow(label, f"{found}: unexpected, it should be {wanted}", "crit", link)
    if resume.is_rewind:
        return PageRow(label, f"{found}; the loss had diverged, so an earlier checkpoint is right", "", link)
    expectation = f"expected: {wanted}" if resume.is_wrong is None else "as expected"
    return PageRow(label, f"{found}, {expectation}", "", link)


def _retries(one: Explanation) -> Iterator[PageRow]:
    retry, attempt = one.retry, one.attempt
    if attempt.end is None:
        why = "it is still running" if attempt.reported_end is None else "its cause is not known yet"
        why = UNSEEN if one.is_unseen else why
        yield PageRow("decision", f"none: {why}", "dim")
    elif attempt.retry_decision is not None and (retry is None or retry.choice != attempt.retry_decision):
        yield PageRow("decision", attempt.retry_decision)
    elif retry is None:
        yield PageRow("decision", "none: its cause is not known", "warn")
    else:
        yield PageRow("decision", f"{HELPS[retry.choice]}: {retry.why}")
    if retry is not None and retry.budget_text:
        yield PageRow("budget", retry.budget_text)
    for index, before in enumerate(one.earlier):
        yield PageRow("" if index else "before it", attempt_line(before), "", ("attempt", before.attempt_id))
    if not one.earlier:
        yield PageRow("before it", "no attempt is known", "dim")


def attempt_line(attempt: Attempt) -> str:
    """`418220_3.1: nccl-timeout after 2h03m, steps 12,771 to 12,898, 28 lost`."""
    what = attempt.stage if attempt.end is None else "cause not known" if attempt.cause is None else attempt.cause.cause
    ran = "" if attempt.duration_s is None else f" after {duration(attempt.duration_s)}"
    first = "?" if attempt.first_step is None else f"{attempt.first_step:,}"
    more = " or more" if attempt.may_have_gone_on else ""
    steps = "no step" if attempt.last_step is None else f"steps {first} to {attempt.last_step:,}{more}"
    steps = "steps not known" if attempt.last_step is None and attempt.may_have_gone_on else steps
    lost = f", {attempt.steps_lost:,} lost" if attempt.steps_lost else ""
    return f"{short_id(attempt)}: {what}{ran}, {steps}{lost}"


def _evaluated(one: Explanation) -> PageRow:
    """Which checkpoint was evaluated last. That is another fact than what was trained, and what was committed."""
    last = one.attempt.last_committed_step
    if not one.evals:
        return PageRow("evaluated", "No evaluation result is known.", "dim")
    text = f"step {one.evals[-1].step:,}"
    if last is None or one.evals[-1].step == last:
        return PageRow("evaluated", text)
    return PageRow("evaluated", f"{text}; of step {last:,}, no result is known", "warn")


def _evals(one: Explanation) -> Iterator[PageRow]:
    if len(one.evals) > EVALS_AT_MOST:
        yield PageRow("", f"{len(one.evals) - EVALS_AT_MOST} earlier results are left out", "dim")
    for result in one.evals[-EVALS_AT_MOST:]:
        scores = ", ".join(f"{name} {value}" for name, value in (result.results or {}).items())
        yield PageRow(f"step {result.step:,}", scores or "no scores", "" if scores else "warn")
        yield PageRow("", describe(result), "dim")
        if result.missing:
            yield PageRow("", f"not recorded: {', '.join(result.missing)}", "warn")
    yield from (PageRow(name, f"version {version}") for name, version in one.attempt.evaluators.items())
    if not one.evals and not one.attempt.evaluators:
        yield PageRow("", "No evaluator is known.", "dim")


def _checks(one: Explanation) -> Iterator[PageRow]:
    for check in one.checks:
        if check.is_traceable:
            yield PageRow(check.topic, "✓", "ok")
        for index, text in enumerate(check.to_add):
            yield PageRow("" if index else check.topic, f"✗ {text}" if not index else text, "warn")
