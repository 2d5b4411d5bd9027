"""The details of a run as lines: jobs, checkpoints, switches, actions, and its W&B data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from posixpath import dirname

from trainmon.analysis.attempts import LOOK_LABELS, RankPlace, hidden_ranks, leading, place_of
from trainmon.analysis.checkpoints import steps_at_risk
from trainmon.analysis.gpus import unread
from trainmon.analysis.log_formats import LEARNED, summary
from trainmon.analysis.runs import cause_of, last_attempts
from trainmon.analysis.runs.trainer import BUSY, SILENT, other_switches
from trainmon.analysis.wandb import label
from trainmon.lib import (
    Instant,
    cell_width,
    clean,
    counted,
    duration,
    group_by,
    ranges,
    say,
    scrub,
    shorten,
    shorten_start,
    size,
    spans_text,
)
from trainmon.model import (
    GOING,
    Checkpoints,
    Evals,
    GroupPhase,
    Record,
    Run,
    Sample,
    State,
    Switch,
    Verdict,
    Wandb,
    WandbRun,
    verdict_text,
)
from tui.charts.values import PHASES, file_notes, heartbeat, newest_row, number, trouble
from tui.keys import cap
from tui.style import UNKNOWN, VERDICTS, Line, Link, Linked, Span, calm_age, count, eta, real, sentence, short, since
from tui.views.alert_detail import alerts_of, rules_of
from tui.views.job_detail import NODES_SHOWN, attempt_lines, node_links, time_left
from tui.views.jobs import clusters, is_missing, state_code, status_text
from tui.views.table import (
    FROM_LOG,
    LABEL,
    apart,
    fact,
    facts,
    linked_fact,
    log_named,
    more_fact,
    optional_fact,
    safe,
    wrapped_fact,
)

RANKS_LINKED, EVIDENCE = 4, 8
"""Ranks and lines of evidence of one look that are shown."""

# ---- the details of a run as lines -----------------------------------------------------------------------------------


def run_lines(run: Run, state: State, width: int, *, few: bool = False) -> Iterator[Line | Linked]:
    """All details of a run. `few`: the main ones only."""
    (symbol, style), now = VERDICTS[run.verdict], state.at
    verdict = Span(f"{symbol} {verdict_text(run.verdict)}", f"{style} bold")
    attempts = () if few else attempt_lines(run, state, width)
    ranks = () if few else tuple(rank_lines(run, state, width))
    looks = () if few else tuple(look_lines(run, state, width))
    alerts = rules_of(run.name, state, width) if few else alerts_of(run.name, state, width)
    optional = map(tuple, (alerts, job_lines(run, state, width), attempts))
    return apart(
        ((verdict,), *sentence(clean(run.why), width), *looks),
        *(section for section in optional if section),
        numbers(run, now, width),
        checkpoint_lines(run, state, width),
        (
            *switch_lines("kill", run.kill, now, width),
            *switch_lines("save", run.save, now, width),
            *trainer_lines(run, now, width),
            *recent_actions(run, state, width),
        ),
        (*log_lines(run, now, width), *wandb_lines(run, state, width, few=few)),
        place_lines(run, state, width),
        *([ranks] if ranks else ()),
    )


def place_lines(run: Run, state: State, width: int) -> Iterator[Line | Linked]:
    """The script and the directory of its job, and its nodes."""
    job = state.jobs.get(run.job or "")
    for name, path in (("script", job.command), ("workdir", job.workdir)) if job is not None else ():
        yield from optional_fact(name, path and shorten_start(path, width - LABEL), width)
    if not run.spec.nodes:
        yield fact("nodes", "-", width, "dim")
    yield from node_links(run.spec.nodes, state, width)


def look_lines(run: Run, state: State, width: int) -> Iterator[Line | Linked]:
    """What the looks at its ranks have shown since its last step, the one that says most first, with links to the ranks
    that it names; and in a sentence why others could not look."""
    attempt, first = last_attempts(state.attempts.values()).get(run.name), leading(run.looks)
    looks = sorted(run.looks, key=lambda one: (one is not first, not one.is_answer))
    for look, *others in group_by(looks, lambda one: one.summary).values():
        style = "bold" if look.ranks else "" if look.is_answer else "dim"
        found, at = clean(look.summary, 400), f"{since(look.at, state.at)} ago"
        text = f"{found} (seen {at})" if look.is_answer else f"could not look: {found} ({at})"
        yield from wrapped_fact(LOOK_LABELS[look.source], text, width, style)
        places = [place_of(rank, None if attempt is None else attempt.ranks) for rank in look.ranks[:RANKS_LINKED]]
        for place in filter(None, places):
            yield linked_fact("", Link("node", place.link), str(place), width)
        if look is first:
            yield from wrapped_fact("", look.advice, width)
            for text in look.lines[:EVIDENCE]:
                yield from wrapped_fact("", clean(text, 200), width, "dim")
        yield from (fact(LOOK_LABELS[one.source], "the same", width, "dim") for one in others)


def rank_lines(run: Run, state: State, width: int) -> Iterator[Line | Linked]:
    """The map of the ranks of its newest attempt: how many are known and what is irregular, and a link per node, to the
    GPU of its first rank or to one with several ranks."""
    attempt = last_attempts(state.attempts.values()).get(run.name)
    yield from wrapped_fact("not read", hidden_ranks(attempt, state), width, "dim")
    if attempt is None or (known := attempt.ranks) is None:
        return
    ranks = {rank for own in known.nodes.values() for rank in own}
    unsure = {rank for rank in ranks if place_of(rank, known) is None}
    yield fact("ranks", f"{len(ranks - unsure):,} of {known.ranks:,}, numbered by {known.launcher}", width)
    gaps = [(low + 1, high - 1) for low, high in pairwise((-1, *sorted(ranks), known.ranks)) if high > low + 1]
    yield from wrapped_fact("missing", spans_text(gaps), width, "warn")
    several = ": of several processes" if unsure else ""
    yield from wrapped_fact("not certain", spans_text(ranges(sorted(unsure))) + several, width, "warn")
    nodes = sorted((min(own), name, own) for name, own in known.nodes.items() if name)
    for _, name, own in nodes[:NODES_SHOWN]:
        gpus = sorted((gpu, rank) for rank, held in own.items() for gpu in held)
        shared = [gpu for (gpu, _), (other, _) in pairwise(gpus) if gpu == other]
        by_gpu = list(dict.fromkeys(rank for _, rank in gpus))
        odd = "" if by_gpu == sorted(by_gpu) else f"  by GPU: {', '.join(map(str, by_gpu))}!"
        odd = f"  GPU {spans_text(ranges(sorted({*shared})))} has several!" if shared else odd
        link = Link("node", RankPlace("", name, str((*shared, *(gpu for gpu, _ in gpus), "")[0])).link)
        yield linked_fact("", link, f"{name}: {spans_text(ranges(sorted(own)))}", width, Span(odd, "warn"))
    yield from more_fact(len(nodes) - NODES_SHOWN, width)


def numbers(run: Run, now: Instant, width: int) -> Iterator[Line]:
    """Steps, time left, loss and speed."""
    progress = run.progress
    target = "" if run.target_step is None else f" of {count(run.target_step)}"
    last = since(progress.at, now) + (" ago" if progress.at is not None else "")
    usual = f", usually every {duration(progress.cadence_s)}" if progress.cadence_s is not None else ""
    speeds = (
        "" if progress.tokens_per_s is None else f"{short(progress.tokens_per_s)} tokens/s",
        "" if progress.samples_per_s is None else f"{short(progress.samples_per_s)} samples/s",
        "" if progress.step_time_s is None else f"{duration(progress.step_time_s)} per step",
    )
    place = batch_of_epoch(run)
    texts = {
        "step": count(run.step) + target + (f" ({place})" if place else ""),
        "last step": last + usual,
        "finishes in": eta(run.eta_at, now),
        "loss": f"{real(run.loss)}, grad norm {real(progress.grad_norm)}",
        "learning rate": real(progress.learning_rate),
        "speed": ", ".join(speed for speed in speeds if speed) or UNKNOWN,
        "skipped": f"{counted(progress.skipped, 'iteration')}!" if progress.skipped else None,
        "nan": f"{counted(progress.nan_iterations, 'iteration')}!" if progress.nan_iterations else None,
    }
    return facts(texts, width, {"skipped": "warn", "nan": "crit"})


def log_lines(run: Run, now: Instant, width: int) -> Iterator[Line | Linked]:
    """The log: path, age, rate, format."""
    if run.log is None:
        text = "none configured" if run.spec.log is None else f"not read yet: {log_named(run.spec.log)}"
        yield fact("log", text, width, "dim")
        return
    path = shorten_start(clean(f"{run.log.host}:{run.log.path or '?'}"), width - LABEL)
    yield linked_fact("log", Link("log", run.name), path, width)
    rate = "" if run.log.lines_per_s is None else f", {run.log.lines_per_s:.1f} lines/s"
    yield fact("last line", since(run.log.at, now) + (" ago" if run.log.at is not None else "") + rate, width)
    lines = run.log.first + len(run.log.lines)
    yield from wrapped_fact("format", clean(summary(run.progress, run.memory.shape, lines)), width)
    yield from optional_fact("error", run.log.error, width, "warn")


JOBS_SHOWN = 6
ACTIONS_SHOWN = 5
TORN_SHOWN = 3

# ---- jobs ----------------------------------------------------------------------------------------------------------


def job_lines(run: Run, state: State, width: int) -> Iterator[Line | Linked]:
    """The job that trains, its time left, the jobs queued behind it, and the last that ended."""
    own = [state.jobs[key] for key in run.jobs if key in state.jobs]
    process = run.spec.process
    if process is not None:
        texts = {
            "process": f"pid {process.pid}, found on the GPUs",
            "command": safe(process.command),
            "workdir": shorten_start(safe(process.workdir), max(0, width - LABEL)) if process.workdir else None,
            "output": None if process.stdout else "not a file",
        }
        yield from facts(texts, width)
    elif not own:
        if run.spec.cluster in clusters(state):
            yield fact("job", "no job of this name in the queue", width, "dim")
        return
    for index, job in enumerate(own[:JOBS_SHOWN]):
        waits = job.stage == "waiting" and not is_missing(job)
        label = "job" if index == 0 else "next job" if waits else "earlier job"
        text, style = status_text(job, state.at, cause_of(job, state.attempts.values()))
        status = Span(clean(f"  {UNKNOWN if is_missing(job) else state_code(job)}  "))
        rest = max(0, width - LABEL - cell_width(job.id) - cell_width(status.text))
        yield linked_fact(
            label, Link("job", job.key), job.id, width, status, Span(shorten(text or "running", rest), style)
        )
        if index == 0:
            yield from time_left(job, run, state.at, width)
            if job.restarts:
                yield fact("restarts", str(job.restarts), width, "bold")
    yield from more_fact(len(own) - JOBS_SHOWN, width)
    if run.queued_behind is not None:
        yield fact(
            "behind it", f"{counted(run.queued_behind, 'job')} pending", width, "" if run.queued_behind else "dim"
        )


# ---- checkpoints ---------------------------------------------------------------------------------------------------


def is_save_overdue(run: Run, checkpoints: Checkpoints) -> bool:
    """Whether the next checkpoint is late: more than twice the usual time since the last. A run without steps, such as
    one that is queued, saves none."""
    age, usual = checkpoints.committed_age_s, checkpoints.every_s
    return run.verdict in GOING and age is not None and usual is not None and age > 2 * usual


def checkpoint_lines(run: Run, state: State, width: int) -> Iterator[Line]:
    """The last checkpoint, the steps at risk, problems, and the cost of saving."""
    found, now = run.checkpoints, state.at
    if found is None:
        nothing = "no directory named in its log" if run.spec.found else "no directory configured"
        problem = unread(run.spec.cluster, state.nodes) if run.spec.checkpoints else nothing
        style = "warn" if problem and run.spec.checkpoints else "dim"
        yield from wrapped_fact("checkpoint", problem or "not read yet", width, style)
        return
    if "checkpoints" in run.spec.from_log:
        yield fact("directory", shorten_start(clean(found.path), width - LABEL - len(FROM_LOG)) + FROM_LOG, width)
    yield from optional_fact("checkpoint", found.error, width, "warn")
    yield from last_lines(run, found, now, width)
    yield from optional_fact("problem", found.problem, width, "crit")
    if found.problem is None and found.resumes is not None:
        yield fact("resumes from", shorten_start(clean(found.resumes), width - LABEL), width)
    writing = found.writing
    if writing is not None:
        began = "" if writing.began_at is None else f" for {duration(max(0.0, now - writing.began_at))}"
        usual = "" if found.save_s is None else f", usually {duration(found.save_s)}"
        yield fact("writing", f"{clean(writing.title)}{began}{usual}", width, "accent")
    torn = [one.title + (f": {one.why}" if one.why else "") for one in found.list if one.state == "torn"]
    for index, text in enumerate(torn[:TORN_SHOWN]):
        more = f" (and {len(torn) - TORN_SHOWN} more)" if len(torn) > TORN_SHOWN == index + 1 else ""
        yield fact("" if index else "incomplete", safe(text + more), width, "warn")
    parts = (
        "" if found.save_s is None else f"takes {duration(found.save_s)}",
        "" if found.every_s is None else f"every {duration(found.every_s)}",
        "" if found.every_s is None or found.every_steps is None else f"({counted(found.every_steps, 'step')})",
    )
    saving = " ".join(part for part in parts if part)
    share = "" if found.share is None else f" = {100 * found.share:.2f}% of the time"
    texts = {
        "saving": saving + share if saving else None,
        "size": None if found.bytes is None else f"{size(found.bytes)} each",
    }
    yield from facts(texts, width)
    yield from optional_fact("left out", found.note, width, "dim")
    yield from eval_lines(run, width)
    yield fact("checkpoints", f"listed {calm_age(now - found.listed_at)} ago on {clean(found.host)}", width, "dim")


def eval_lines(run: Run, width: int) -> Iterator[Line]:
    """The newest evaluated checkpoint with its scores, and why a file of results cannot be read."""
    if not run.spec.evals and run.evals == Evals():
        return
    results, committed = run.evals.results, None if run.checkpoints is None else run.checkpoints.committed
    last = max((one.step or 0 for one in results), default=None)
    if last is None:
        yield fact("evaluated", "no result of an evaluator is known", width, "dim" if not committed else "warn")
    else:
        scores = ", ".join(
            f"{name} {value}" for one in results if one.step == last for name, value in (one.results or {}).items()
        )
        behind = committed is not None and committed.step is not None and committed.step > last
        text = f"step {count(last)}" + (f": {scores}" if scores else ", no scores")
        yield from wrapped_fact("evaluated", safe(text), width, "warn" if behind or not scores else "")
    invalid = run.evals.invalid_lines
    problems = [f"{path}: {error}" for path, error in run.evals.errors.items()]
    problems += [f"{counted(invalid, 'line')} of its results cannot be read"] if invalid else []
    for text in problems:
        yield from wrapped_fact("evals", safe(text), width, "warn")


def last_lines(run: Run, found: Checkpoints, now: Instant, width: int) -> Iterator[Line]:
    """The last committed step, and the steps that a crash now would lose."""
    last, start, progress = found.committed, found.next_start, run.progress
    if (newer := found.unrecognised) is not None:
        text = f"{newer.title}, written {since(newer.at, now)} ago: {newer.why}, so its state is not known"
        yield from wrapped_fact("checkpoint", safe(text), width, "warn")
        return
    if last is None:
        if found.error is None:
            yield fact("checkpoint", "no committed checkpoint", width, "" if found.problem is None else "crit")
        if steps_at_risk(run):
            yield fact("at risk", f"all {counted(progress.step or 0, 'step')}", width, "warn")
        return
    late = is_save_overdue(run, found)
    usual = f", usually every {duration(found.every_s)}!" if late and found.every_s is not None else ""
    text = f"{clean(last.title)} committed {since(last.at, now)} ago{usual}"
    yield fact("checkpoint", text, width, "warn" if late else "")
    is_known = steps_at_risk(run) is not None and run.verdict != "finished"  # nothing is at risk then
    if is_known and progress.step is not None and start is not None and start.step is not None:
        steps = progress.step - start.step
        step_s = progress.step_time_s  # not the cadence: a trainer may print every tenth step
        lost = f", about {duration(steps * step_s)} of work" if step_s and steps > 0 else ""
        ahead = f"nothing: the checkpoint is {counted(-steps, 'step')} ahead of the log"
        yield fact(
            "at risk",
            f"{count(steps)} step{'' if steps == 1 else 's'}{lost}" if steps >= 0 else ahead,
            width,
            "dim" if steps < 0 else "",
        )


# ---- switches and actions ------------------------------------------------------------------------------------------


def switch_lines(kind: str, found: Switch | None, now: Instant, width: int) -> Iterator[Line]:
    """One switch file: armed (when, by whom, why), taken, absent, or unknown."""
    label = f"{kind} switch"
    if found is None:
        yield fact(label, "not configured", width, "dim")
    elif found.is_dangling:
        yield from wrapped_fact(label, f"not armed: {safe(found.error or '')}", width, "warn")
    elif found.error is not None or found.exists is None:
        yield from wrapped_fact(label, f"? {safe(found.error or '')}".rstrip(), width, "dim")
    elif found.exists:
        by = f" by {found.by}" if found.by else ""
        because = f": {found.why}" if found.why else ""
        text = safe(f"ARMED {since(found.armed_at, now)} ago{by}{because}")
        yield from wrapped_fact(label, text, width, "crit" if kind == "kill" else "warn")
    else:
        text = "not armed" if found.taken_at is None else f"consumed {since(found.taken_at, now)} ago"
        yield fact(label, text, width, "" if found.taken_at is None else "ok")


def trainer_lines(run: Run, now: Instant, width: int) -> Iterator[Line]:
    """What its training loop reports: its phase and step, what it was asked, its last save, and its deadline."""
    found = run.trainer
    if found is None:
        return
    step = "" if found.step is None else f", step {count(found.step)}"
    text = f"{found.phase}{step}, reported {calm_age(max(0.0, now - found.at))} ago"
    is_silent = found.ended is None and found.phase not in BUSY and now - found.at > SILENT
    yield fact("trainer", safe(text), width, "warn" if is_silent else "")
    if found.ended is not None:
        yield from wrapped_fact("", safe(f"ended {since(found.ended_at, now)} ago: {found.ended}"), width)
    if found.asked is not None:
        at = "" if found.asked.step is None else f", at step {count(found.asked.step)}"
        text = f"asked to {found.asked.what} by {found.asked.by}, {since(found.asked.at, now)} ago{at}"
        yield from wrapped_fact("", safe(text), width)
    if found.saved_at is not None:
        yield fact("", f"saved step {count(found.saved_step)} {since(found.saved_at, now)} ago", width, "ok")
    if found.deadline is not None and found.ended is None:
        stops = max(0.0, found.deadline - found.grace_s - now)
        yield fact("", f"saves and stops in {duration(stops)}, before its time limit", width)
    for kind, ours, theirs in other_switches(run.spec, found):
        text = f"it looks at {'no ' + kind + ' switch' if theirs is None else theirs}, not at {ours}"
        yield from wrapped_fact("", safe(text), width, "crit")


def recent_actions(run: Run, state: State, width: int) -> Iterator[Line]:
    """The latest actions on a run, the newest first, and their results."""
    own = [record for record in state.actions.values() if record.action.run == run.name][-ACTIONS_SHOWN:]
    if own:
        yield from ((), (Span("recent actions", "head"),))
    for record in reversed(own):
        yield from record_lines(record, state.at, width)


STATUS_STYLES = {"failed": "crit", "refused": "warn", "unknown": "warn"}


def reached(name: str, at: Instant, record: Record) -> str:
    """`taken after 3.3s`: the time since the action was done, not since its plan was requested."""
    return f"{name} after {duration(max(0.0, at - (record.done_at or record.action.requested_at)))}"


def record_lines(record: Record, now: Instant, width: int) -> Iterator[Line]:
    """`save, 2m ago by ana: done`, then a line for each expected result."""
    action = record.action
    requested = f"{calm_age(now - action.requested_at)} ago by {action.who or UNKNOWN}"
    outcome = f": {say(record.outcome)}" if record.outcome else ""
    status = "running" if record.status == "asked" and record.is_open else record.status
    style = STATUS_STYLES.get(record.status, "")
    yield from sentence(safe(f"{action.verb}, {requested}, {status}{outcome}"), width, style)
    texts = [
        (f"✗ {mark.name}: {say(mark.missed)}", "warn") if mark.missed is not None
        else (f"◌ {mark.name}", "dim") if mark.at is None
        else (f"✓ {reached(mark.name, mark.at, record)}", "ok")
        for mark in record.marks
    ]  # fmt: skip
    for text, style in (*texts, (record.note or "", "warn")):
        yield from ((Span("  "), *spans) for spans in sentence(safe(text), width - 2, style))


WORST_FIRST: tuple[Verdict, ...] = (
    "dead", "hung", "diverged", "stalled", "data-stall", "unknown", "starting", "evaluating", "saving", "healthy",
    "queued", "idle", "stopped", "finished",
)  # fmt: skip

RANK: dict[Verdict, int] = {
    verdict: WORST_FIRST.index("healthy" if verdict in GOING else verdict) for verdict in WORST_FIRST
}
"""The sort order. A run that saves ranks like one that steps, so that it does not jump at each save."""


def batch_of_epoch(run: Run, word: str = "epoch ") -> str | None:
    """`epoch 3 120/391` as its log prints it; None where its trainer counts its steps over all epochs."""
    shape = run.memory.shape
    if shape.position is None or run.progress.format != LEARNED or run.progress.step != shape.step:
        return None
    epoch, batch, batches = shape.position
    return f"{word}{epoch} {batch}" + ("" if batches is None else f"/{batches}")


def verdict_style(verdict: Verdict) -> str:
    """The style of a verdict."""
    return VERDICTS[verdict][1]


# ---- the W&B data of a run as lines ----------------------------------------------------------------------------------

FEW, MANY = 3, 20
"""Attempts and samples that are shown in a narrow pane, and on the run's own screen."""

SETTINGS_AT_MOST = 300

PHASE_TEXTS: Mapping[GroupPhase, str] = {
    "active": "one active W&B run",
    "several": "SEVERAL active W&B runs",
    "waiting": "no active W&B run",
    "overdue": "OVERDUE: no active W&B run",
    "ended": "ended",
    "none": "no W&B run found",
}


def wandb_lines(run: Run, state: State, width: int, *, few: bool) -> Iterator[Line | Linked]:
    """The W&B part of a run's details; nothing without a W&B project. `few`: the main lines only."""
    spec, found, now = run.spec.wandb, run.wandb, state.at
    yield from file_lines(run, now, width)
    if spec is None:
        return
    yield ()
    mark = Span(FROM_LOG if "wandb" in run.spec.from_log else "", "dim")
    yield linked_fact("W&B", Link("wandb", run.name), spec.description, width, mark)
    problem = trouble(state.sources.get(f"wandb:{run.name}"))
    if problem is not None:
        yield from optional_fact("error", problem[0], width, "crit")
        yield from optional_fact("", problem[1], width)
    if found is None or found.polled_at is None:
        yield fact("last data", "none yet", width, "dim")
        return
    yield from phase_lines(found, now, width, stale=problem is not None)
    yield fact("last data", f"{calm_age(max(0.0, now - found.polled_at))} ago", width, "dim")
    if found.current is not None:
        yield from wandb_run_lines(found.current, found, now, width)
    yield from wandb_attempt_lines(found, now, width, FEW if few else MANY)
    yield from sample_lines(found.samples, width, few=few)


def file_lines(run: Run, now: Instant, width: int) -> Iterator[Line | Linked]:
    """The files of its W&B client; nothing without a directory."""
    file = run.wandb_file
    where = run.spec.wandb_dir or (None if file is None or file.path is None else dirname(file.path))
    if where is None:
        return
    yield ()
    is_found = "wandb_dir" in run.spec.from_log or run.spec.wandb_dir is None
    mark = Span(FROM_LOG if is_found else "", "dim")
    source = "" if file is None or file.format == "W&B" else f", {file.format}"
    yield linked_fact("metrics" if source else "W&B files", Link("wandb", run.name), where, width, mark)
    if file is None:
        yield fact("curves", "not read yet", width, "dim")
        return
    yield from optional_fact("file", file.path, width)
    yield fact("newest row", f"{newest_row(file, now)}, {counted(file.rows, 'row')}{source}", width)
    newest = file.runs[0] if file.runs else None
    texts = {
        "run": None if newest is None else safe(newest.name),
        "project": safe(file.project) if file.project else None,
        "step": None if newest is None or newest.step is None else count(newest.step),
        "exit code": None if file.exit_code is None else str(file.exit_code),
    }
    yield from facts(texts, width, {"run": "bold"})
    for text, style in file_notes(run, file, None, now):
        yield from optional_fact("", text, width, style)


def phase_lines(found: Wandb, now: Instant, width: int, *, stale: bool) -> Iterator[Line]:
    """Whether an attempt is active, since when, and why that matters. `stale`: W&B does not answer now."""
    symbol, style = PHASES[found.phase]
    style = "dim" if stale else style
    since_when = "" if found.since is None else f", for {calm_age(max(0.0, now - found.since))}"
    yield fact("phase", f"{symbol} {PHASE_TEXTS[found.phase]}{since_when}", width, style)
    yield from optional_fact("", found.why, width, "" if style in ("ok", "dim") else style)
    yield from optional_fact("loss", found.loss_why, width, "crit" if found.loss_state == "nan" else "warn")


def wandb_run_lines(one: WandbRun, found: Wandb, now: Instant, width: int) -> Iterator[Line]:
    """The active attempt, or else the newest."""
    beat = heartbeat(found, one, now)
    texts = {
        "run": safe(label(one)),
        "state": f"{clean(one.state)}, {beat.text}",
        "W&B step": count(one.step) + ("" if one.lines is None else f", {counted(one.lines, 'row')} of history"),
        "on": safe(one.host) if one.host else None,
        "user": safe(one.user) if one.user else None,
        "commit": safe(one.commit) if one.commit else None,
        "tags": safe(", ".join(one.tags)) if one.tags else None,
    }
    yield from facts(texts, width, {"run": "bold", "state": beat.style if one.id in found.active else ""})
    yield from optional_fact("page", one.url, width, "accent")


def wandb_attempt_lines(found: Wandb, now: Instant, width: int, at_most: int) -> Iterator[Line]:
    """The attempts of its group, the latest first."""
    order = {name: index for index, name in reversed(list(enumerate(found.attempts)))}
    runs = sorted(found.runs, key=lambda one: order.get(one.id, len(order)))
    for index, one in enumerate(runs[:at_most]):
        text = f"{safe(label(one))}  {attempt_text(one, now)}"
        yield fact("" if index else "attempts", text, width, "ok" if one.id in found.active else "")
    yield from more_fact(len(runs) - at_most, width)


def attempt_text(one: WandbRun, now: Instant) -> str:
    """`crashed at step 9,200, 5h to 3h ago`; `running at step 12,880, for 3h`."""
    step = "" if one.step is None else f" at step {count(one.step)}"
    begun = since(one.created_at, now)
    last = "" if one.heartbeat_at is None else calm_age(max(0.0, now - one.heartbeat_at))
    when = f"for {begun}" if one.state == "running" or not last else f"{begun} to {last} ago"
    return f"{clean(one.state)}{step}, {when}"


# ---- samples -------------------------------------------------------------------------------------------------------


def sample_lines(samples: tuple[Sample, ...], width: int, *, few: bool) -> Iterator[Line]:
    """The newest sample of each metric, `val/generated  step 12,000  512×288  180K`; and of many also caption, note and
    file."""
    if samples:
        hint = "" if few else f"  (press {cap('run.samples')} to fetch them into a folder)"
        yield from ((), (Span(shorten(f"samples, the newest of each metric{hint}", width), "head"),))
    elif not few:
        yield fact("samples", "none logged", width, "dim")
    at_most = FEW if few else MANY
    for one in samples[:at_most]:
        parts = (
            safe(one.key),
            "" if one.step is None else f"step {count(one.step)}",
            "" if one.width is None or one.height is None else f"{one.width}×{one.height}",
            "" if one.bytes is None else size(one.bytes),
        )
        yield fact(shorten(safe(one.kind), LABEL - 1), "  ".join(part for part in parts if part), width)
        if few:
            continue
        yield from optional_fact("", f"“{one.caption}”" if one.caption else None, width)
        yield from optional_fact("", one.note, width, "dim")
        before, path = ("saved to ", one.kept) if one.kept else ("not fetched: ", one.file)
        path = shorten_start(clean(path), width - LABEL - len(before))
        yield fact("", before + path, width, "ok" if one.kept else "dim")
    yield from more_fact(len(samples) - at_most, width)


# ---- summary and settings ------------------------------------------------------------------------------------------


def settings_lines(one: WandbRun, width: int) -> Iterator[Line]:
    """Its summary, and its config."""
    own = {key: value for key, value in one.summary.items() if not key.startswith("_")}  # the others are W&B's own
    numbers = {key: value if isinstance(value, str) else number(value) for key, value in own.items()}
    yield from table("summary: the latest value of each metric", numbers, width)
    yield from table("config", one.config, width)


def table(title: str, values: Mapping[str, str], width: int) -> Iterator[Line]:
    """Names and values in two columns, by name."""
    if not values:
        return
    yield ()
    yield (Span(shorten(f"{title} ({len(values)})", width), "head"),)
    names = sorted(values)[:SETTINGS_AT_MOST]
    column = min(max(cell_width(name) for name in names) + 2, max(LABEL, width // 2))
    for name in names:
        shown = shorten_start(clean(name), column - 1)
        value = shorten(value_of(name, values[name]), width - column)
        yield (Span(shown + " " * (column - cell_width(shown)), "dim"), Span(value, "crit" if value == "nan" else ""))
    if len(values) > len(names):
        yield (Span(f"and {len(values) - len(names)} more", "dim"),)


def value_of(name: str, value: str) -> str:
    """A value without secrets. A name such as `api_key` makes its value a secret."""
    named = f"{clean(name)}="
    return scrub(named + clean(value)).removeprefix(named)
