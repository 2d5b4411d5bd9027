"""`7 Queue`: the jobs of the watched users, why they wait, and the state of the nodes."""

from __future__ import annotations

from collections.abc import Callable

from trainmon.analysis.nodes import spares
from trainmon.analysis.runs import cause_of
from trainmon.lib import clean, counted, duration
from trainmon.model import Job, Source, State
from trainmon.slurm import reasons
from tui.keys import bindings, cap
from tui.panes.base import Entries, TablesPane
from tui.style import SENTENCE, Row, Span, calm_age, since, source_text
from tui.views.actions import Subject
from tui.views.jobs import (
    CLUSTER,
    COLUMNS,
    ENDED_COLUMNS,
    ENDED_FIELDS,
    JOB_FIELDS,
    NODE,
    NODE_FIELDS,
    QueueEntry,
    clusters,
    is_mine,
    is_missing,
    listed_jobs,
    node_layout,
    node_reason,
    node_rows,
    node_state,
    node_style,
    queue_entries,
    queue_head,
    queue_layout,
    queue_rows,
    seconds_left,
    status_text,
    with_ended,
)
from tui.views.table import RowCache

NO_SLURM = (
    ("No Slurm cluster is watched: no squeue was found. If there is a", ""),
    ("cluster, set the login host that has it in trainmon.toml:", ""),
    ("", ""),
    ("    [[cluster]]", "dim"),
    ('    login = "login1"', "dim"),
)


class QueuePane(TablesPane):
    """Jobs above, nodes below. `v` switches between all jobs, the nodes, my jobs and the finished ones."""

    NUMBER = "7"
    NAME = "Queue"
    ORDER = "state"
    FIELDS = JOB_FIELDS
    COLUMNS = COLUMNS
    VIEWS = {"all": JOB_FIELDS, "nodes": NODE_FIELDS, "mine": JOB_FIELDS, "finished": ENDED_FIELDS}  # noqa: RUF012 - never changed
    BINDINGS = bindings("queue")

    def __init__(self, poll: Callable[[str], None] = lambda cluster: None, *, id: str) -> None:  # noqa: A002
        """`poll`: that of the backend, for the finished jobs of a cluster. `id`: Textual's name for it."""
        super().__init__(id=id)
        self._poll = poll
        self._cache = RowCache()

    @property
    def usual(self) -> tuple[str, ...]:
        return () if self.view == "nodes" else super().usual

    def entries(self, state: State) -> Entries:
        if self.view == "nodes":
            return [*state.scheduler_nodes.values()], state
        return queue_entries(self._viewed(state)), state

    def _viewed(self, state: State) -> State:
        """The State whose jobs this view shows."""
        return with_ended(state, alone=True) if self.view == "finished" else state

    def subject_of(self, key: str) -> Subject | None:
        if key.startswith((SENTENCE, CLUSTER)):
            return None
        return ("node", key.removeprefix(NODE)) if key.startswith(NODE) else ("job", key)

    def copy_text(self) -> str | None:
        """The job's id, or the node's name."""
        job = self._viewed(self.state).jobs.get(self.selected or "")
        return job.id if job is not None else (self.selected or "").rpartition(":")[2] or None

    def draw(self, state: State, width: int) -> None:
        if not state.jobs and not watched(state):
            self.show_sentences(*without_slurm(state))
            return
        lists_nodes, are_over = self.view == "nodes", self.view == "finished"
        fields, columns = (ENDED_FIELDS, ENDED_COLUMNS) if are_over else (None, COLUMNS)
        for name in clusters(state) if are_over else ():
            self._poll(name)
        viewed, mine = self._viewed(state), self.view == "mine"
        entries = [] if lists_nodes else listed_jobs(viewed, self.sort, self.filter, fields, mine=mine)
        table = queue_layout(width, entries, () if lists_nodes else self.columns, columns)
        nodes = node_layout(state, width, self.columns if lists_nodes else ())
        head = (nodes.head(NODE_FIELDS[0], self.sort),) if lists_nodes else ()
        self.head(*(queue_head(table, self.sort) if entries else head))
        none = [] if lists_nodes else sentences(state, self.view, self.filter, has_jobs=bool(entries))
        rows = [] if are_over else node_rows(state, nodes, self.filter, self.sort, every=lists_nodes)
        self.lines.set_rows([*none, *queue_rows(entries, table, state, self._cache), *rows])
        self.caption(ended_summary(entries, state) if are_over else queue_summary(entries, state), self.view)

    def footnote(self, state: State) -> tuple[str, str] | None:
        """The selected row in full: its line may be cut."""
        state = self._viewed(state)
        key = self.selected or next((CLUSTER + name for name in clusters(state)), None)
        return None if key is None else queue_sentence(state, key)


def watched(state: State) -> list[Source]:
    """The sources of the watched schedulers."""
    return [state.sources[f"slurm:{name}"] for name in clusters(state) if f"slurm:{name}" in state.sources]


def without_slurm(state: State) -> tuple[tuple[str, str], ...]:
    """That there is no scheduler, and the error if one was tried."""
    failed = next((source for source in state.sources.values() if source.kind == "slurm" and source.error), None)
    if failed is None:
        return NO_SLURM
    return ((clean(f"No Slurm cluster is watched: {failed.error}"), ""), (clean(failed.hint or ""), "dim"))


def queue_summary(entries: list[QueueEntry], state: State) -> str:
    """`spares 1 of 2!  3 running  2 pending`: problems first."""
    silent = [
        source.answered_at for source in watched(state) if source.health != "ok" and source.answered_at is not None
    ]
    lost = sum(node.lost_gpus or 0 for node in state.scheduler_nodes.values())
    shown = [entry.job for entry in entries if entry.job.gone_at is None]
    running, waiting = (sum(job.elements for job in shown if job.stage == stage) for stage in ("running", "waiting"))
    parts = [
        *(f"slurm late {calm_age(state.at - answered_at)}" for answered_at in silent),
        f"{counted(lost, 'GPU')} lost!" if lost else "",
        *(f"spares {spare.idle_healthy} of {spare.wanted}!" for spare in spares(state) if spare.are_missing),
        f"{running} running  {waiting} pending" if running or waiting else "",
    ]
    return "  ".join(part for part in parts if part)


def ended_summary(entries: list[QueueEntry], state: State) -> str:
    """`17 jobs of the last 3 days, read 2m ago`"""
    read = [state.ended[name].at for name in clusters(state) if name in state.ended]
    age = f", read {calm_age(state.at - min(read))} ago" if read else ""
    return f"{counted(len(entries), 'job')} of the last 3 days{age}"


def sentences(state: State, view: str, query: str, *, has_jobs: bool = False) -> list[Row]:
    """Why there is no job to show; of finished jobs, also why they are not read now."""
    ended = [one for name, one in state.ended.items() if view == "finished" and name in clusters(state)]
    found = [Span(clean(one.error), "warn") for one in ended if one.error]
    for source in watched(state) if not has_jobs else ():
        if source.answered_at is None:
            text, style = source_text(source, state.at)
            found.append(Span(clean(f"The queue of {source.cluster} has not been read yet: {text}"), style))
            found += [Span(clean(source.hint), "dim")] if source.hint else []
    if query:
        none = f"No job matches “{query}”. Esc shows all."
    elif view == "finished":
        in_days = "No job of the watched users ended in the last 3 days."
        none = in_days if ended else "Reading the finished jobs from Slurm's accounting (sacct)…"
    elif view == "mine" and any(not is_mine(job, state) for job in state.jobs.values()):
        none = f"You have no job. Press {cap('queue.view')} for the jobs of the other watched users."
    else:
        users = sorted({user for cluster in state.clusters.values() for user in cluster.queue_users})
        owner = f"of {', '.join(map(clean, users))}" if users else "of yours"
        none = f"No job {owner} is running or pending."
    found += [Span(none, "dim")] if not found and not has_jobs else []
    return [Row(f"{SENTENCE}{index}", (span,)) for index, span in enumerate(found)]


def queue_sentence(state: State, key: str) -> tuple[str, str]:
    """A sentence about a row, and its style. While a scheduler does not answer, it says why."""
    silent = [source for source in watched(state) if source.health == "down"]
    if silent:
        text, style = source_text(silent[0], state.at)
        return clean(f"Slurm of {silent[0].cluster}: {text}"), style
    if key.startswith(CLUSTER):
        return cluster_sentence(state, key.removeprefix(CLUSTER)), "dim"
    job, node = state.jobs.get(key), state.scheduler_nodes.get(key.removeprefix(NODE))
    if job is not None:
        return job_sentence(job, state)
    if node is None or not key.startswith(NODE):
        return "", "dim"
    text = ", ".join(part for part in (node_state(node), node_reason(node, state.at)) if part)
    return clean(f"{node.name}: {text}"), node_style(node) or "dim"


def job_sentence(job: Job, state: State) -> tuple[str, str]:
    """`88 llm-7b of ana: waits for the end of 87; submitted 3h ago`, and its style."""
    now, cause = state.at, cause_of(job, state.attempts.values())
    (text, style), seconds = status_text(job, now, cause), seconds_left(job, now)
    if job.state == "RUNNING" and not is_missing(job):
        text = f"runs {text}".strip()
    limit = "" if job.time_limit_s is None else f" of {duration(job.time_limit_s)}"
    is_waiting = job.stage == "waiting" and job.submitted_at is not None
    parts = (
        f"{job.id} {job.name} of {job.user}: {text or reasons.end_reason(job)}",
        "" if seconds is None else f"{duration(seconds)} left{limit}",
        f"restart {job.restarts}" if job.restarts else "",
        f"submitted {since(job.submitted_at, now)} ago" if is_waiting else "",
    )
    return clean("; ".join(part for part in parts if part)), style or "dim"


def cluster_sentence(state: State, name: str) -> str:
    """The host and the user of a cluster's queries, and what they may do."""
    cluster = state.clusters.get(name)
    if cluster is None:
        return ""
    parts = (
        f"Slurm {cluster.slurm or ''} queried on {cluster.login}".replace("  ", " "),
        f"as {cluster.me}" if cluster.me else "",
        "with operator rights" if cluster.may_operate else "",
        "no accounting, so exit states may stay unknown" if cluster.accounting is False else "",
    )
    return clean("; ".join(part for part in parts if part))
