"""The jobs of the queue and the scheduler's nodes as rows. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.analysis.nodes import Spares, spares
from trainmon.analysis.runs import STILL, cause_of, needed_to_save
from trainmon.lib import (
    Instant,
    Seconds,
    by_key,
    cell_width,
    clean,
    counted,
    natural_key,
    ranges,
    shorten,
    shorten_middle,
)
from trainmon.model import Job, Run, SchedulerNode, State
from trainmon.slurm import reasons
from tui.style import (
    CRIT,
    DEAD,
    DONE,
    HEADING,
    NOT_APPLICABLE,
    OK,
    PAUSED,
    UNKNOWN,
    WAITING,
    WARN,
    Row,
    Span,
    calm_age,
    pad,
    since,
    wall_clock,
    whole,
    width_of,
)
from tui.views.table import (
    AGES_EVERY,
    Column,
    RowCache,
    Table,
    chosen_columns,
    fields_of,
    filtered,
    heads,
    ordered,
    parse_filter,
    row_cells,
    value,
    warned,
)

# ---- the scheduler's nodes -------------------------------------------------------------------------------------------

_NUMBERED = re.compile(r"(.*?)(\d+)$", re.DOTALL)


def folded(names: Iterable[str]) -> str:
    """`gpu-[001-003,007],login`: as Slurm writes lists of nodes."""
    matches = {name: _NUMBERED.match(name) for name in names}
    groups = by_key(((match[1], len(match[2])), int(match[2])) for match in matches.values() if match is not None)
    plain = (name for name, match in matches.items() if match is None)
    return ",".join([*(_folded_group(*key, sorted(numbers)) for key, numbers in groups.items()), *plain])


def _folded_group(prefix: str, digits: int, numbers: list[int]) -> str:
    """One prefix with its numbers. A single number needs no brackets."""
    parts = ",".join(f"{a:0{digits}}" + (f"-{b:0{digits}}" if b > a else "") for a, b in ranges(numbers))
    return f"{prefix}[{parts}]" if len(numbers) > 1 else prefix + parts


FLAGS = {
    "DRAIN": "drained", "NOT_RESPONDING": "does not respond", "MAINTENANCE": "in maintenance", "RESERVED": "reserved",
    "FAIL": "failing", "INVALID_REG": "registered with fewer resources than configured",
    "POWERED_DOWN": "powered down", "POWERING_DOWN": "powering down", "POWER_DOWN": "powering down",
    "POWERING_UP": "powering up", "REBOOT_ISSUED": "rebooting", "REBOOT_REQUESTED": "will reboot when idle",
    "BLOCKED": "blocked", "PLANNED": "planned", "COMPLETING": "completing", "CLOUD": "", "DYNAMIC_NORM": "",
    "DOWN": "down",
}  # fmt: skip


def node_state(node: SchedulerNode) -> str:
    """`drained`, `draining` while jobs still run there, `down, does not respond`."""
    parts = [FLAGS.get(flag, flag.lower().replace("_", " ")) for flag in node.flags if flag != "DRAIN"]
    if node.is_drained:
        parts.insert(0, "draining" if node.state in {"ALLOCATED", "MIXED", "COMPLETING"} else "drained")
    if not node.is_drained or node.state == "DOWN":
        parts.insert(0, node.state.lower())
    return ", ".join(dict.fromkeys(word for word in parts if word))


def node_style(node: SchedulerNode) -> str:
    """The style of a node's line. Nodes that are down and lost GPUs are critical."""
    if node.lost_gpus or node.state in {"DOWN", "ERROR"} or "NOT_RESPONDING" in node.flags:
        return "crit"
    return "" if node.is_usable else "warn"


# ---- rows ------------------------------------------------------------------------------------------------------------

NODE, CLUSTER = "node:", f"{HEADING}cluster:"
"""The prefixes of the keys of these rows. A job's key contains a slash, a node's name does not."""

SIGNS = {"crit": Span(DEAD + " ", "crit"), "warn": Span(WARN + " ", "warn"), "": Span(OK + " ", "ok")}

STATES = ("idle", "mixed", "allocated", "completing", "planned", "draining", "drained", "down")
"""The order of the counts. Other states come after them."""


NodeTable = Table[SchedulerNode, State]


def node_layout(state: State, width: int, chosen: Sequence[str] = ()) -> NodeTable:
    """The columns that a person chose, or else none: the state takes what it needs, and names what those shown need."""
    longest = max((cell_width(clean(name)) for name in state.scheduler_nodes), default=0)
    columns = chosen_columns(NODE_FIELDS, chosen, width)
    return Table(width, min(longest + 2, width // 3) if columns else 0, columns)


def node_rows(state: State, table: NodeTable, query: str, sort: str = "state", *, every: bool) -> list[Row]:
    """One line per cluster with counts and spares, then its nodes: all, or only unusable ones below the jobs. There, a
    filter of the jobs' own fields hides them."""
    found: list[Row] = []
    counts = {spare.cluster: spare for spare in spares(state)}
    names = clusters(state)
    jobs = on_nodes(state.jobs.values()) if every else {}
    for cluster in names:
        nodes = [node for node in state.scheduler_nodes.values() if node.cluster == cluster]
        source = state.sources.get(f"slurm:{cluster}")
        stale = source is not None and source.health != "ok"
        title = f"nodes of {cluster}" if len(names) > 1 else "nodes"
        found.append(Row(CLUSTER + cluster, node_counts(title, nodes, counts.get(cluster), table.width, stale=stale)))
        is_about_jobs = not every and parse_filter(query, NODE_FIELDS).problem
        shown = filtered((node for node in nodes if every or not node.is_usable), query, NODE_FIELDS, state)
        shown.sort(key=lambda node: (node.is_usable, node_style(node) != "crit", natural_key(node.name)))
        shown = [] if is_about_jobs else ordered(shown, sort if every else "", NODE_FIELDS, state)
        longest = max((cell_width(clean(node.name)) for node in shown), default=0)
        fitted = table._replace(name=table.name or longest + 2)
        found += [
            Row(NODE + node.name, node_line(node, jobs.get(node.name, ()), fitted, state, stale=stale))
            for node in shown
        ]
    return found


def clusters(state: State) -> list[str]:
    """The clusters with a scheduler, whether it has answered or not."""
    named = [source.cluster for source in state.sources.values() if source.kind == "slurm" and source.health != "off"]
    return list(dict.fromkeys([*named, *(node.cluster for node in state.scheduler_nodes.values())]))


def node_counts(
    title: str, nodes: Sequence[SchedulerNode], spare: Spares | None, width: int, *, stale: bool
) -> tuple[Span, ...]:
    """`── nodes  12 idle  48 allocated  2 drained   spares 1! (2 wanted)`"""
    name = clean(f"── {title}")
    if not nodes:
        return (Span(shorten(f"{name}  not read yet", width), "dim"),)
    tally = Counter(node_state(node).partition(",")[0] for node in nodes)
    order = [*(word for word in STATES if tally[word]), *sorted(word for word in tally if word not in STATES)]
    counts = "".join(f"  {tally[word]} {word}" for word in order)
    end = spare_count(spare)
    space = width - cell_width(end.text)
    return (
        Span(shorten(name, space), "dim"),
        Span(shorten(counts, space - cell_width(name)), "dim" if stale else ""),
        *([Span(end.text, "dim" if stale else end.style)] if end.text else []),
    )


def spare_count(spare: Spares | None) -> Span:
    """The number of healthy idle nodes and of wanted ones; empty if none are wanted."""
    if spare is None or spare.idle_healthy is None:
        return Span("")
    mark = "!" if spare.are_missing else ""
    return Span(f"  spares {spare.idle_healthy}{mark} ({spare.wanted} wanted)", "warn" if mark else "ok")


STATE_WIDTH = 12


def node_line(
    node: SchedulerNode, jobs: Sequence[Job], table: NodeTable, state: State, *, stale: bool
) -> tuple[Span, ...]:
    """One node: name, state or the chosen columns, reason; or its jobs."""
    style, space = node_style(node), table.width - 2 - table.name
    usual = Span(shorten(pad(clean(node_state(node)), STATE_WIDTH), space), "dim" if stale else style)
    cells = row_cells(table.columns, node, state, "dim" if stale else "") or [usual]
    text = node_reason(node, state.at) or clean("  ".join(f"{job.id} {job.name}" for job in jobs))
    return (
        Span(CRIT + " ", "crit") if node.lost_gpus else SIGNS[style],
        Span(pad(shorten_middle(clean(node.name), table.name - 2), table.name),
             "dim" if stale else "bold" if style == "crit" else ""),
        *cells,
        Span(shorten("  " + text, space - width_of(cells)) if text else "",
             "dim" if stale else style if style == "crit" else ""),
    )  # fmt: skip


def node_reason(node: SchedulerNode, now: Instant) -> str:
    """`1 GPU lost: gres/gpu count reported lower than configured (7 < 8) (slurm 2h ago)`"""
    if not node.reason:
        return ""
    lost = "" if node.lost_gpus is None else f"{counted(node.lost_gpus, 'GPU')} lost: "
    when = "" if node.reason_at is None else f"{calm_age(now - node.reason_at)} ago"
    by = " ".join(part for part in (node.reason_by, when) if part)
    return clean(f"{lost}{node.reason}" + (f" ({by})" if by else ""), 400)


NODE_FIELDS: tuple[Column[SchedulerNode, State], ...] = (
    Column("node", lambda node, _: (node.name,), head="NODE"),
    Column("status", lambda node, _: (node_state(node), *node_state(node).split(", ")[1:])),
    Column("reason", lambda node, _: (node.reason,)),
    Column("partition", lambda node, _: node.partitions),
    Column("lost", lambda node, _: (node.lost_gpus,), ""),
    Column("cluster", lambda node, _: (node.cluster,)),
)
"""What the scheduler's nodes are filtered and sorted by."""


def on_nodes(jobs: Iterable[Job]) -> Mapping[str, list[Job]]:
    """The running jobs of each node."""
    running = (job for job in jobs if job.stage == "running" and job.gone_at is None)
    return by_key((name, job) for job in running for name in job.nodes)


# ---- one job in a few cells ------------------------------------------------------------------------------------------

CODES = {
    "BOOT_FAIL": "BF", "CANCELLED": "CA", "COMPLETED": "CD", "COMPLETING": "CG", "CONFIGURING": "CF", "DEADLINE": "DL",
    "FAILED": "F", "LAUNCH_FAILED": "LF", "NODE_FAIL": "NF", "OUT_OF_MEMORY": "OOM", "PENDING": "PD",
    "POWER_UP_NODE": "PN", "PREEMPTED": "PR", "RECONFIG_FAIL": "RG", "REQUEUED": "RQ", "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH", "RESIZING": "RS", "RESV_DEL_HOLD": "RD", "REVOKED": "RV", "RUNNING": "R", "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST", "SUSPENDED": "S", "TIMEOUT": "TO", "UPDATE_DB": "UD",
    "EXPEDITING": "EX",
}  # fmt: skip
"""Slurm's short codes (squeue(1), JOB STATE CODES)."""

FAILED = frozenset({
    "BOOT_FAIL", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "RECONFIG_FAIL", "TIMEOUT",
})  # fmt: skip

HOLDS = {"JobHeldUser": "dim", "JobHeldAdmin": "warn"}
"""Reasons of held jobs, with their styles. A hold by the user is no alarm."""


def state_code(job: Job) -> str:
    """`R`, `PD`, `CG`: what squeue shows."""
    return CODES.get(job.state, job.state[:3])


def is_missing(job: Job) -> bool:
    """Whether the queue no longer lists the job and its end is unknown."""
    return job.gone_at is not None and job.stage != "ended"


def job_sign(job: Job) -> Span:
    """A job's symbol, with its style."""
    if is_missing(job) or job.stage == "unknown":
        return Span(UNKNOWN, "warn")
    if job.stage == "waiting":
        return Span(WARN if wait_style(job) == "warn" else WAITING, wait_style(job))
    if job.stage == "running":
        return Span(WARN, "warn") if job.state in STILL else Span(OK if job.state == "RUNNING" else PAUSED, "ok")
    return Span(CRIT, "crit") if job.state in FAILED else Span(DONE if job.state == "COMPLETED" else DEAD, "dim")


def wait_style(job: Job) -> str:
    """The style of a reason to wait."""
    return HOLDS.get(job.reason or "", "warn" if reasons.is_permanent(job.reason) else "dim")


def status_text(job: Job, now: Instant, cause: str | None = None) -> Span:
    """Where a job runs, why it is pending, or how it ended; with the cause of its end, if that is given."""
    if is_missing(job):
        return Span(f"gone from the queue {since(job.gone_at, now)} ago; was {job.state}", "warn")
    if job.stage == "waiting":
        return Span(clean(reasons.waiting_reason(job, now)), wait_style(job).replace("dim", ""))
    if job.stage == "ended":
        ago = "" if job.ends_at is None else f", {since(job.ends_at, now)} ago"
        return Span(clean(reasons.end_reason(job, cause)) + ago, "crit" if job.state in FAILED else "dim")
    if job.stage == "unknown":
        return Span(clean(f"Slurm reports {job.state}"), "warn")
    state = "" if job.state == "RUNNING" else job.state.lower().replace("_", " ")
    where = f"on {clean(folded(job.nodes))}" if job.nodes else ""
    return Span(", ".join(part for part in (state, where) if part), "warn" if job.state in STILL else "")


def short_wait(job: Job, now: Instant) -> str:
    """Why a job is pending, in at most 16 cells."""
    if job.reason == "BeginTime" and job.starts_at is not None:
        return f"starts in {whole(job.starts_at - now)}" if job.starts_at - now >= 1 else "starts now"
    if job.reason in HOLDS:
        return "held"
    if job.reason == "Dependency":
        after = re.findall(r"(?<![\d_])\d+(?:_\d+)?", job.dependency or "")
        return f"after {after[0]}"[:16] if len(after) == 1 else "after other jobs"
    if reasons.is_permanent(job.reason):
        return "will not start!"
    return {
        "Resources": "no free nodes", "Priority": "low priority", "JobArrayTaskLimit": "array task limit",
    }.get(job.reason or "", "pending")  # fmt: skip


def seconds_left(job: Job, now: Instant) -> Seconds | None:
    """The seconds until the time limit of a running job."""
    if job.stage != "running" or job.gone_at is not None or job.ends_at is None:
        return None
    return max(0.0, job.ends_at - now)


def elapsed(job: Job, now: Instant) -> Seconds | None:
    """The seconds that a job has run."""
    if job.started_at is None or job.stage not in ("running", "ended"):
        return None
    end = job.gone_at or now if job.stage == "running" else job.ends_at or job.gone_at
    return None if end is None else max(0.0, end - job.started_at)


# ---- the jobs of the queue as rows -----------------------------------------------------------------------------------

ENDED_SHOWN = 20
"""Ended jobs that are shown. They stay known for a day, which is too many of a large array."""

FAR = float("inf")


class QueueEntry(NamedTuple):
    """A job of the queue, with its run, its scheduler's health and its cluster."""

    job: Job
    run: str
    """The name of its run, or empty."""
    short: bool
    """Whether its time limit ends it before its run can save once more."""
    stale: bool
    """Whether its scheduler does not answer."""
    several: bool
    """Whether jobs of several clusters are shown, so that its cluster must be named."""
    cause: str | None = None
    """The cause of its end, if that is known."""

    def id(self, *, narrow: bool) -> str:
        """Its id as squeue writes it. A narrow table only counts the waiting tasks of an array."""
        job = self.job
        name = f"{job.array} ×{job.elements}" if narrow and job.is_waiting_array else job.id
        return clean(f"{job.cluster}/{name}" if self.several else name)


# ---- selection and order -------------------------------------------------------------------------------------------


def queue_order(job: Job, now: Instant) -> tuple[object, ...]:
    """Sort key: running jobs by their end, then waiting jobs by their start, then ended jobs, the latest first."""
    order = job.order
    if order == 1:
        return order, not job.priority, job.starts_at or FAR, -(job.priority or 0), job.submitted_at or 0.0, job.number
    end = job.ends_at or FAR if order == 0 else -(job.ends_at or job.gone_at or 0.0)
    return order, end, natural_key(job.id)


def is_mine(job: Job, state: State) -> bool:
    """Whether it is the user's own job. While our user name on its cluster is not known yet, it may be."""
    cluster = state.clusters.get(job.cluster)
    return cluster is None or cluster.me is None or job.user == cluster.me


def queue_entries(state: State) -> list[QueueEntry]:
    """All jobs. The causes of their ends are looked for only where they are shown."""
    runs, several = runs_by_job(state.runs.values()), len({job.cluster for job in state.jobs.values()}) > 1
    found = []
    for job in state.jobs.values():
        run, source, seconds = runs.get(job.key), state.sources.get(f"slurm:{job.cluster}"), seconds_left(job, state.at)
        needed = None if run is None else needed_to_save(run)
        short = seconds is not None and needed is not None and seconds < needed
        stale = source is not None and source.health != "ok"
        found.append(QueueEntry(job, run.name if run else "", short, stale, several))
    return found


def with_ended(state: State, *, alone: bool = False) -> State:
    """A State whose jobs are also, or only, those that ended in the last days."""
    ended = {job.key: job for one in state.ended.values() for job in one.jobs}
    return replace(state, jobs=ended if alone else ended | dict(state.jobs)) if ended or alone else state


def listed_jobs(
    state: State,
    sort: str,
    query: str = "",
    fields: tuple[Column[QueueEntry, State], ...] | None = None,
    *,
    mine: bool = False,
) -> list[QueueEntry]:
    """The jobs that match a filter, in this order. Only the last few ended jobs are among those of the queue."""
    found = [entry for entry in queue_entries(state) if not mine or is_mine(entry.job, state)]
    found = filtered(found, query, fields or JOB_FIELDS, state)
    found.sort(key=lambda entry: queue_order(entry.job, state.at))
    ended = [entry for entry in found if entry.job.gone_at is not None or entry.job.stage == "ended"]
    hidden = set() if fields else {entry.job.key for entry in ended[ENDED_SHOWN:]}
    listed = ordered([entry for entry in found if entry.job.key not in hidden], sort, fields or JOB_FIELDS, state)
    attempts = state.attempts.values()
    return [
        entry._replace(cause=cause_of(entry.job, attempts)) if entry.run and entry.job.stage == "ended" else entry
        for entry in listed
    ]


def runs_by_job(runs: Iterable[Run]) -> dict[str, Run]:
    """The run of each job that belongs to one, by the job's key."""
    return {key: run for run in runs for key in run.jobs}


# ---- columns -------------------------------------------------------------------------------------------------------


def left_cell(entry: QueueEntry, state: State) -> Span:
    """The time left, with a sign if the job ends before its run can save."""
    seconds = seconds_left(entry.job, state.at)
    return value(NOT_APPLICABLE + " ") if seconds is None else warned(whole(seconds), "crit" if entry.short else "")


WIDE = 84
"""From this width on, times have columns of their own. Below it, the time left stands before the reason."""

ID = Column[QueueEntry, State]("id", lambda entry, _: (entry.job.id,), head="ID")
NAMED = Column[QueueEntry, State]("name", lambda entry, _: (entry.job.name,), head="NAME")
WHY = Column[QueueEntry, State]("why", lambda entry, state: (status_text(entry.job, state.at).text,), head="WHY")
USER_WIDTH = 10
USER = Column[QueueEntry, State](
    "user", lambda entry, state: (entry.job.user, "me" if is_mine(entry.job, state) else None), head="USER",
    width=USER_WIDTH, cell=lambda entry, _: Span(shorten(clean(entry.job.user), USER_WIDTH - 1)), from_width=50,
    left=True,
)  # fmt: skip
PARTITION = Column[QueueEntry, State](
    "partition", lambda entry, _: (entry.job.partition,), head="PART", width=10,
    cell=lambda entry, _: Span(shorten(clean(entry.job.partition or NOT_APPLICABLE), 9), "dim"), from_width=100,
    left=True,
)  # fmt: skip
RESTARTS = Column[QueueEntry, State](
    "restarts", lambda entry, _: (entry.job.restarts,), "", head="RST", width=5, from_width=92,
    cell=lambda entry, _: value(UNKNOWN if entry.job.restarts is None else str(entry.job.restarts or NOT_APPLICABLE)),
)  # fmt: skip
COLUMNS: tuple[Column[QueueEntry, State], ...] = (
    USER,
    PARTITION,
    Column("status", lambda entry, _: (state_code(entry.job), entry.job.state, entry.job.stage), head="ST", width=4,
           left=True,
           cell=lambda entry, _: Span(UNKNOWN if is_missing(entry.job) else state_code(entry.job),
                                      job_sign(entry.job).style)),
    Column("nodes", lambda entry, _: (entry.job.node_count,), "", head="N", width=4, from_width=40,
           cell=lambda entry, _: value(UNKNOWN if (n := entry.job.node_count) is None else str(n))),
    Column("time", lambda entry, state: (elapsed(entry.job, state.at),), "s", head="TIME", width=8, from_width=92,
           cell=lambda entry, state: value(NOT_APPLICABLE if (seconds := elapsed(entry.job, state.at)) is None
                                           else whole(seconds))),
    Column("left", lambda entry, state: (seconds_left(entry.job, state.at),), "s", upwards=True, head="LEFT ", width=8,
           cell=left_cell, from_width=WIDE),
    RESTARTS,
)  # fmt: skip

JOB_FIELDS: tuple[Column[QueueEntry, State], ...] = fields_of(
    COLUMNS,
    ID,
    NAMED,
    Column("node", lambda entry, _: entry.job.nodes),
    Column("run", lambda entry, _: (entry.run or None,)),
    WHY,
    Column("cluster", lambda entry, _: (entry.job.cluster,)),
)
"""What jobs are filtered and sorted by."""

ENDED_COLUMNS: tuple[Column[QueueEntry, State], ...] = (
    *(column for column in COLUMNS if column.name not in ("left", "restarts")),
    Column("exit", lambda entry, _: (entry.job.exit_code,), head="EXIT", width=7, from_width=60,
           cell=lambda entry, _: value(clean(entry.job.exit_code or NOT_APPLICABLE))),
    Column("ended", lambda entry, state: (None if (at := entry.job.ends_at) is None else state.at - at,), "s",
           upwards=True, head="ENDED", width=13, from_width=WIDE,
           cell=lambda entry, _: value(UNKNOWN if (at := entry.job.ends_at) is None
                                       else wall_clock(at).strftime("%m-%d %H:%M"))),
)  # fmt: skip
ENDED_FIELDS = fields_of(ENDED_COLUMNS, *(field for field in JOB_FIELDS if field not in COLUMNS))
"""What jobs that have ended are filtered and sorted by."""

QueueTable = Table[QueueEntry, State]


def queue_layout(
    width: int,
    entries: Sequence[QueueEntry],
    chosen: Sequence[str] = (),
    usual: Sequence[Column[QueueEntry, State]] = COLUMNS,
) -> QueueTable:
    """The columns that a person chose, else those of a width, without those of equal values. Ids stay whole, names give
    way to reasons."""
    users = {entry.job.user for entry in entries}
    partitions = {entry.job.partition for entry in entries}
    columns = tuple(
        column._replace(width=max(5, min(USER_WIDTH, max(map(len, users)) + 1))) if column is USER else column
        for column in usual
        if column.from_width <= width
        and (column is not USER or len(users) > 1)
        and (column is not PARTITION or len(partitions) > 1)
    )
    columns = chosen_columns(JOB_FIELDS + ENDED_COLUMNS, chosen, width, 24) or columns
    narrow = width < WIDE
    ids = min(max((cell_width(entry.id(narrow=narrow)) for entry in entries), default=2), 16 if narrow else 26) + 1
    names = max((cell_width(clean(entry.job.name)) for entry in entries), default=4) + 2
    space = Table(width, 2, columns, ids).rest
    return Table(width, max(6, min(names, max(2 * space // 5, 8), 32)), columns, max(3, ids))


def queue_head(table: QueueTable, sort: str = "") -> tuple[Span, ...]:
    """The names of the columns."""
    names = f"  {ID.headed(sort):<{table.id}}{NAMED.headed(sort):<{table.name}}"
    names += f"{heads(table.columns, sort)}  {WHY.headed(sort)}"
    return (Span(shorten(names, table.width), "head"),)


def queue_row(entry: QueueEntry, table: QueueTable, state: State) -> Row:
    """One job's line. It is dim when its scheduler does not answer."""
    job, symbol, narrow, now = entry.job, job_sign(entry.job), table.width < WIDE, state.at
    plain = "dim" if entry.stale or job.stage == "ended" else ""
    reason, seconds = status_text(job, now, entry.cause), seconds_left(job, now)
    parts = (
        f"{whole(seconds)} left{'!' if entry.short else ''}" if seconds is not None and narrow else "",
        reason.text or "runs",
        clean(f"run {entry.run}") if entry.run and entry.run != job.name else "",
        f"restart {job.restarts}" if job.restarts and RESTARTS not in table.columns else "",
    )
    style = "dim" if entry.stale else "crit" if entry.short and narrow else reason.style
    space = table.rest - 2
    return Row(job.key, (
        Span(symbol.text + " ", "dim" if entry.stale else symbol.style),
        Span(pad(shorten(entry.id(narrow=narrow), table.id - 1), table.id), plain),
        Span(pad(shorten_middle(clean(job.name), table.name - 2), table.name), plain),
        *row_cells(table.columns, entry, state, plain),
        Span("  " + shorten("; ".join(filter(None, parts)), space) if space > 3 else "", style),
    ))  # fmt: skip


def queue_rows(entries: Iterable[QueueEntry], table: QueueTable, state: State, cache: RowCache) -> list[Row]:
    """The rows of these jobs. Their times are redrawn at different seconds: 2,000 rows take 120 ms."""
    return cache.rows(
        (entry.job.key, (entry, table, (state.at + entry.job.number % AGES_EVERY) // AGES_EVERY),
         partial(queue_row, entry, table, state))
        for entry in entries
    )  # fmt: skip
