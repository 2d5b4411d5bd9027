"""`1 Runs`: one line a run, the worst verdict first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from trainmon.analysis.runs import is_late, needed_to_save, trouble_of
from trainmon.lib import Seconds, cell_width, clean, counted, shorten_middle
from trainmon.model import GOING, SILENT, Job, Run, State, verdict_text
from tui.panes.base import Entries, Pane
from tui.style import HEIGHTS, VERDICTS, Row, Span, calm_age, count, eta, pad, real, short, whole
from tui.views.alert_detail import Moment, moment_of_run
from tui.views.alerts import STYLES, Concern, alert_marks, alert_ranks, awaited, marking, rule_key, with_mark
from tui.views.jobs import clusters, seconds_left, short_wait
from tui.views.runs import RANK, batch_of_epoch, is_save_overdue, verdict_style
from tui.views.table import Column, Table, chosen_columns, fields_of, filtered, ordered, row_cells, value, warned

EMPTY = (
    ("No run is watched yet. Add one to trainmon.toml:", ""),
    ("", ""),
    ("    [[run]]", "dim"),
    ('    name = "llm-7b"', "dim"),
    ('    log  = "/scratch/llm-7b/logs/*.out"', "dim"),
)

FIRST_STEPS = (
    ("No run, Slurm, W&B or GPU was found. What to do next:", ""),
    ("", ""),
    ("trainmon-tui HOST…     watches other machines", ""),
    ("trainmon-tui init      writes a config for your cluster", ""),
    ("trainmon-tui --demo    shows a simulated cluster; ?: all keys", ""),
)


def has_nothing(state: State) -> bool:
    """Whether every source answers, and none is a Slurm, W&B or a node with GPUs."""
    is_answered = bool(state.nodes) and all(one.kind == "node" and one.health == "ok" for one in state.sources.values())
    return is_answered and not any(node.gpus or node.gpus_expected for node in state.nodes.values())


CONCERN = {"crit": Concern.CRITICAL, "warn": Concern.WARNING}
"""By the style of a verdict: what it means without an alert."""


def ordered_runs(state: State, sort: str, query: str = "") -> list[Run]:
    """The runs that match a filter, by a field, else the worst first, which alerts and verdicts determine."""
    alerts = alert_ranks(state).runs

    def order(run: Run) -> tuple[Concern, int, str]:
        by_verdict = CONCERN.get(verdict_style(run.verdict), Concern.NONE)
        return min(alerts.get(run.name, by_verdict), by_verdict), RANK[run.verdict], run.name

    return ordered(sorted(filtered(state.runs.values(), query, RUN_FIELDS, state), key=order), sort, RUN_FIELDS, state)


RunTable = Table[Run, State]
RunColumns = tuple[Column[Run, State], ...]
ORDER = "worst"


def run_layout(width: int, runs: Sequence[Run], state: State, chosen: Sequence[str] = ()) -> RunTable:
    """The columns that a person chose, else those of a width. Then jobs and checkpoints have one where there are any,
    and names keep their room."""
    if own := chosen_columns(RUN_FIELDS, chosen, width):
        table = Table(width, 0, own)
        return table._replace(name=table.rest)
    columns = list(COLUMNS)
    if any(run.jobs or run.spec.process for run in runs) or clusters(state):
        longest = max((cell_width(job_cell(run, state).text) for run in runs), default=1)
        columns[0] = JOB._replace(width=min(max(longest, 3), JOB.width) + 1)
    else:
        columns.remove(JOB)
    if not any(run.checkpoints or run.spec.checkpoints for run in runs):
        columns.remove(CHECKPOINT)
    at, wanted = columns.index(STEP), min(max((cell_width(clean(run.name)) + 1 for run in runs), default=6), WHOLE_NAME)
    least = min(max(wanted, 6), NAME)
    for word in ("epoch ", "e"):
        widest = max((cell_width(step_cell(run, state, word).text) for run in runs), default=4)
        columns[at] = STEP._replace(width=max(4, widest) + 2, cell=partial(step_cell, word=word))
        if Table(width, 0, tuple(columns)).rest >= least:
            break
    for name in GIVE_WAY:
        if Table(width, 0, tuple(columns)).rest >= (max(wanted, 6) if name in FOR_WHOLE_NAMES else least):
            break
        columns = [column for column in columns if column.name != name]
    room = min(Table(width, 0, tuple(columns)).rest - wanted, TREND.width)
    if room >= TREND_LEAST and any(len(recent_losses(run)) > 1 for run in runs):
        trend = TREND._replace(width=room, cell=partial(trend_cell, cells=room - 1))
        columns.insert(next(at for at, column in enumerate(columns) if column.name == "loss") + 1, trend)
    table = Table(width, 0, tuple(columns))
    return table._replace(name=max(1, table.rest))


def run_cells(run: Run, state: State, table: RunTable) -> tuple[Span, ...]:
    """The cells of a run. They are dim when the source of its numbers does not answer."""
    (symbol, style), columns = VERDICTS[run.verdict], table.columns
    if LAST in columns and LEFT in columns and awaited_job(run, state) is not None:
        # the reason to wait takes the room of the last step's age, which does not matter then
        wide = LEFT._replace(width=LEFT.width + LAST.width)
        columns = tuple(wide if column is LEFT else column for column in columns if column is not LAST)
    source = None if run.log is None else state.sources.get(f"node:{run.log.host}")
    is_stale = source is not None and source.health in {"late", "down"}
    cells = row_cells(with_signs(columns, run, state), run, state)
    return (
        Span(symbol + " ", style),
        Span(pad(shorten_middle(clean(run.name), table.name - 1), table.name),
             "bold" if style in {"crit", "warn"} else ""),
        *([cell._replace(style=cell.style or "dim") for cell in cells] if is_stale else cells),
    )  # fmt: skip


def with_signs(columns: RunColumns, run: Run, state: State) -> RunColumns:
    """The columns, with a sign in the cells that an open alert is about. A pending alert has it as well."""
    alerts = alert_marks(state)
    if run.name not in alerts.runs:
        return columns
    signed = []
    for column in columns:
        about = (rule_key(run.name, rule) for rule in RULES.get(column.name, ()))
        found = [alerts.rules[key] for key in about if key in alerts.rules]
        signed.append(column._replace(cell=partial(alerted_cell, column, min(found))) if found else column)
    return tuple(signed)


def alerted_cell(column: Column[Run, State], concern: Concern, run: Run, state: State) -> Span:
    """A cell with a sign behind its text; it keeps a sign that it has."""
    (text, style), *_ = row_cells((column._replace(width=0),), run, state)
    if style in ("warn", "crit"):
        return Span(text, style)
    signed = text.rstrip() + "!"
    return Span(signed if cell_width(signed) <= column.width else text, STYLES[concern])


def awaited_job(run: Run, state: State) -> Job | None:
    """The job that a queued run waits for."""
    jobs = (state.jobs.get(key) for key in run.jobs) if run.verdict == "queued" else ()
    return next((job for job in jobs if job is not None and job.stage == "waiting" and job.gone_at is None), None)


def loss_cell(run: Run, _state: State) -> Span:
    """The last loss; one that is not finite, or above its usual band, has a sign."""
    loss, spike = run.loss, trouble_of(run, "spike")
    if loss is None:
        return value("? " if run.step is None else "- ")
    if spike is not None and not spike.after and math.isfinite(loss):
        return warned(real(loss), "warn")
    return warned(real(loss), "" if math.isfinite(loss) else "crit")


def recent_losses(run: Run) -> tuple[float, ...]:
    """The last losses of its log, else of its W&B curve."""
    found = run.memory.losses or (() if run.wandb is None else run.wandb.recent)
    return tuple(loss for loss in found[-TREND_STEPS:] if math.isfinite(loss))


def trend_cell(run: Run, _state: State, cells: int = 12) -> Span:
    """`▁▁▂▁█▅`: the means of the recent losses in equal slices, between their least and their greatest."""
    losses = recent_losses(run)
    if len(losses) < 2:
        return Span("")
    slices = [losses[n * len(losses) // cells : (n + 1) * len(losses) // cells] for n in range(cells)]
    means = [sum(part) / len(part) for part in slices if part]
    low, span = min(means), max(means) - min(means)
    return Span("".join(HEIGHTS[round((mean - low) / span * 7) if span else 0] for mean in means) + " ")


def step_cell(run: Run, _state: State, word: str = "epoch ") -> Span:
    """Its step; where its trainer counts only batches, its place in the epoch. Without steps, that of a checkpoint."""
    return value(batch_of_epoch(run, word) or count(run.step))


def left_s(run: Run, state: State) -> Seconds | None:
    """The time to the last step, or to the end of its job if that is earlier."""
    job = state.jobs.get(run.job or "")
    ends = (None if job is None else seconds_left(job, state.at), run.eta_at and run.eta_at - state.at)
    return min((seconds for seconds in ends if seconds is not None and run.verdict in GOING), default=None)


def users_of(run: Run, state: State) -> tuple[str | None, ...]:
    """The owner of its jobs; `me` is the user of the dashboard, on its cluster."""
    job, cluster = state.jobs.get(run.job or ""), state.clusters.get(run.spec.cluster)
    user = run.spec.user if job is None else job.user
    return user, "me" if cluster is not None and cluster.me in (user or cluster.me, None) else None


def left_cell(run: Run, state: State) -> Span:
    """The time to the last step, or to the end of its job if that is earlier; else its verdict or why it waits."""
    awaited, now = awaited_job(run, state), state.at
    if awaited is not None or run.verdict not in GOING:
        return Span(
            verdict_text(run.verdict) if awaited is None else short_wait(awaited, now), verdict_style(run.verdict)
        )
    job = state.jobs.get(run.job or "")
    seconds = None if job is None else seconds_left(job, now)
    if seconds is not None and (run.eta_at is None or seconds < run.eta_at - now):
        needed = needed_to_save(run)
        return warned(f"job {whole(seconds)}", "crit" if needed is not None and seconds < needed else "", "")
    unknown = "-" if run.target_step is None else "?"
    return value(unknown if run.eta_at is None else eta(run.eta_at, now))


def job_cell(run: Run, state: State) -> Span:
    """`418190+2`: the id of its job, and the number of jobs queued behind it; the pid of a run that was found here."""
    if run.job is None:
        process = run.spec.process
        return value("-") if process is None else Span(f"pid {process.pid}", "dim" if run.spec.ended_at else "")
    job = state.jobs.get(run.job)
    name = run.job.partition("/")[2] if job is None else str(job.array) if job.is_waiting_array else job.id
    over = job is None or job.gone_at is not None or job.stage == "ended"
    return Span(clean(name) + (f"+{run.queued_behind}" if run.queued_behind else ""), "dim" if over else "")


def checkpoint_cell(run: Run, state: State) -> Span:
    """The age of the last committed checkpoint."""
    found, now = run.checkpoints, state.at
    if found is None:
        return value("? " if run.spec.checkpoints else "- ")
    last, problem = found.committed, found.problem is not None
    if last is None or last.at is None:
        return Span("none!", "crit") if problem else value("? " if found.error or found.unrecognised else "- ")
    return warned(calm_age(now - last.at), "crit" if problem else "warn" if is_save_overdue(run, found) else "")


def switches_cell(run: Run, _state: State) -> Span:
    """The armed switches."""
    kill, save = run.kill is not None and run.kill.exists, run.save is not None and run.save.exists
    if kill or save:
        return Span("K+S" if kill and save else "KILL" if kill else "SAVE", "crit" if kill else "warn")
    return value("?" if None in [switch.exists for switch in (run.kill, run.save) if switch is not None] else "-")


STEP_DUE = SILENT | {"healthy", "diverged", "unknown"}
"""Verdicts of runs that should make steps."""

NAMED = Column[Run, State]("name", lambda run, _: (run.name,), head="RUN")
JOB = Column[Run, State]("job", lambda run, state: (job_cell(run, state).text,), head="JOB", width=13, cell=job_cell)
STEP = Column[Run, State]("step", lambda run, _: (run.step,), "", head="STEP", width=9, cell=step_cell)
LAST = Column[Run, State](
    "last", lambda run, state: (None if run.progress.at is None else state.at - run.progress.at,), "s", upwards=True,
    head="LAST ", width=6,
    cell=lambda run, state: value("- ") if run.progress.at is None else warned(
        calm_age(state.at - run.progress.at), "warn" if run.verdict in STEP_DUE and is_late(run, state.at) else ""
    ),
)  # fmt: skip
TREND_STEPS = 120
"""Losses that the trend shows."""
TREND = Column[Run, State]("", head="TREND ", width=14)
"""Shown where all other columns have room, with fewer cells where there is less."""
TREND_LEAST = 5
CHECKPOINT = Column[Run, State](
    "saved",
    lambda run, state: (
        None
        if (saved := run.checkpoints) is None or saved.committed is None or saved.committed.at is None
        else state.at - saved.committed.at,
    ),
    "s",
    head="CK ",
    width=6,
    cell=checkpoint_cell,
)
LEFT = Column[Run, State](
    "left", lambda run, state: (left_s(run, state),), "s", upwards=True, head="LEFT", width=11, cell=left_cell
)

COLUMNS: RunColumns = (
    JOB,
    Column("nodes", lambda run, _: (len(run.spec.nodes) or None,), "", head="N", width=4,
           cell=lambda run, _: Span(str(len(run.spec.nodes) or "-"))),
    STEP,
    Column("loss", lambda run, _: (run.loss,), "", head="LOSS ", width=8, cell=loss_cell),
    Column("rate", lambda run, _: (run.progress.tokens_per_s or run.progress.samples_per_s,), "", head="TOK/S", width=7,
           cell=lambda run, _: Span(short(run.progress.tokens_per_s)) if run.progress.tokens_per_s is not None
           else value("-" if (samples := run.progress.samples_per_s) is None else f"{short(samples)}sa")),
    CHECKPOINT,
    LAST,
    LEFT,
    Column("switch", lambda run, state: (switches_cell(run, state).text,), head="SW", width=5, cell=switches_cell),
)  # fmt: skip

RUN_FIELDS: RunColumns = fields_of(
    COLUMNS,
    NAMED,
    Column("status", lambda run, _: (verdict_text(run.verdict), run.verdict)),
    Column("user", users_of),
    Column("node", lambda run, _: run.spec.nodes),
    Column("cluster", lambda run, _: (run.spec.cluster,)),
    Column("why", lambda run, _: (run.why,)),
)
"""What runs are filtered and sorted by."""

RULES: Mapping[str, tuple[str, ...]] = {
    "job": ("not-scheduled", "no-job-queued"),
    "loss": ("loss-nan", "loss-spike", "loss-scale-floor", "skipped-steps"),
    "rate": ("slow-throughput", "straggler"),
    "saved": ("checkpoint-overdue", "checkpoint-torn", "checkpoint-pointer"),
    "last": ("run-hung", "run-stalled", "data-stall", "log-unread"),
    "left": ("time-limit-near", "run-dead", "ended-early"),
    "switch": ("kill-switch-left", "save-switch-ignored"),
}
"""The rules about the number in each column."""

GIVE_WAY = ("nodes", "rate", "saved", "job", "switch", "left", "loss", "last")
"""Columns by the order in which they are left out of a narrow pane."""

NAME = 12
"""Cells of a name before columns are left out for it."""
WHOLE_NAME, FOR_WHOLE_NAMES = 24, ("nodes", "rate")
"""What is left out for names of up to so many cells: names of a sweep differ at their ends and in the middle."""


class RunsPane(Pane):
    """The runs. The log and the details of the selected run are shown in other panes."""

    NUMBER = "1"
    NAME = "Runs"
    ORDER = ORDER
    FIELDS = RUN_FIELDS
    COLUMNS = COLUMNS
    KIND = "run"

    def entries(self, state: State) -> Entries:
        return [*state.runs.values()], state

    def draw(self, state: State, width: int) -> None:
        if not state.runs:
            self.show_sentences(*(FIRST_STEPS if has_nothing(state) else EMPTY))
            return
        shown, alerts = ordered_runs(state, self.sort, self.filter), alert_marks(state).runs
        table = run_layout(width, shown, state, self.columns)
        self.head(table.head(NAMED, self.sort))
        rows = {run.name: Row(run.name, partial(run_cells, run, state, table)) for run in shown}
        self.show_rows([with_mark(row, alerts.get(name)) for name, row in rows.items()], "run")
        self.caption("", "" if self.filter else counted(len(shown), "run"))

    def footnote(self, state: State) -> tuple[str, str] | None:
        """Why the selected run has its verdict; of a run that is well, the alert that marks it: only its rule if the
        strip or Alerts has its text."""
        run = state.runs.get(self.selected or "")
        if run is None:
            return None
        name, style, why = f"{run.name}: {verdict_text(run.verdict)}, ", verdict_style(run.verdict), run.why
        alert = marking(state, run.name) if style == "ok" else None
        if alert is not None:
            why = alert.rule if alert in awaited(state)[:1] else alert.summary
            why, style = f"{'alert' if alert.is_firing else 'pending alert'}: {why}", "warn"
        return clean(name + why), style

    def moment(self) -> Moment | None:
        """Of its worst open alert, or of its spike."""
        run = self.state.runs.get(self.selected or "")
        return None if run is None else moment_of_run(run, self.state)
