"""One node in full, as rows: the table of its GPUs, then its scheduler, processes, host and probe. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainmon.lib import Instant, cell_width, duration, shorten
from trainmon.model import Gpu, Job, Node, SchedulerNode, Source
from tui.style import (
    DEAD,
    NOT_APPLICABLE,
    UNKNOWN,
    Span,
    age,
    count,
    heat,
    mib,
    pad,
    percent,
    real,
    since,
    slowing,
    source_words,
)
from tui.views.facts import LABEL, fact, link_label, safe, wrapped_fact
from tui.views.jobs import code, left, node_look, node_state, reason
from tui.views.nodes.summary import missing
from tui.views.table import Column, heads, row_cells
from tui.widgets import Line, Link, Linked, Row, rows

# ---- the table of GPUs ---------------------------------------------------------------------------------------------


def _number(value: float | None, unit: str = "") -> Span:
    return Span(UNKNOWN, "dim") if value is None else Span(f"{round(value)}{unit}")


def _marked(text: str, style: str) -> Span:
    return Span(text + ("!" if style else ""), style)


def _temperature(gpu: Gpu, _now: Instant) -> Span:
    return _number(None) if gpu.temperature_c is None else _marked(str(gpu.temperature_c), heat(gpu))


def _memory(gpu: Gpu, _now: Instant) -> Span:
    if gpu.memory_used_mib is None:
        return Span(f"{UNKNOWN}/{mib(gpu.memory_total_mib)}", "dim")
    return Span(f"{mib(gpu.memory_used_mib)}/{mib(gpu.memory_total_mib)}")


def _power(gpu: Gpu, _now: Instant) -> Span:
    if gpu.power_w is None:
        return _number(None)
    return Span(f"{gpu.power_w:.0f}/{UNKNOWN if gpu.power_limit_w is None else f'{gpu.power_limit_w:.0f}'}")


def _ecc(gpu: Gpu, _now: Instant) -> Span:
    if gpu.ecc_uncorrected is None and gpu.ecc_corrected is None:
        return Span(NOT_APPLICABLE, "dim")
    text = f"{count(gpu.ecc_uncorrected)}/{count(gpu.ecc_corrected)}"
    return _marked(text, "crit" if gpu.ecc_uncorrected else "")


def _remap(gpu: Gpu, _now: Instant) -> Span:
    if gpu.remap_failed or gpu.remap_pending:
        return Span("failed!", "crit") if gpu.remap_failed else Span("pending!", "warn")
    return Span(NOT_APPLICABLE if gpu.remap_failed is None else "no", "dim")


def _xid(gpu: Gpu, now: Instant) -> Span:
    if gpu.last_xid is None:
        return Span("none", "dim")
    return Span(f"{gpu.last_xid} {since(gpu.last_xid_at, now)}!", "warn")


MIG = {None: Span(NOT_APPLICABLE, "dim"), True: Span("on"), False: Span("off", "dim")}

COLUMNS: tuple[Column[Gpu, Instant], ...] = (
    Column("GPU", 4, lambda gpu, _: Span(str(gpu.index), "bold")),
    Column("°C", 6, _temperature),
    Column("HBM", 5, lambda gpu, _: _number(gpu.memory_temperature_c), 50),
    Column("margin", 8, lambda gpu, _: _number(gpu.temperature_margin_c), 64),
    Column("memory", 11, _memory),
    Column("util", 6, lambda gpu, _: Span(NOT_APPLICABLE, "dim") if gpu.mig else _number(gpu.utilization_pct, "%")),
    Column("watt", 9, _power, 40),
    Column("MHz", 6, lambda gpu, _: _number(gpu.sm_clock_mhz), 56),
    Column("ECC u/c", 9, _ecc, 74),
    Column("remap", 9, _remap, 104),
    Column("MIG", 5, lambda gpu, _: MIG[gpu.mig], 104),
    Column("Xid", 9, _xid, 76),
)


def columns(width: int) -> tuple[Column[Gpu, Instant], ...]:
    return tuple(column for column in COLUMNS if column.from_width <= width)


def gpu_head(width: int) -> tuple[Span, ...]:
    return (Span(shorten(f"{heads(columns(width))}  slowed by", width), "head"),)


def gpu_rows(node: Node, now: Instant, width: int, *, stale: bool) -> list[Row]:
    """One line a GPU. Lost GPUs and GPUs that were never seen have one too."""
    rows = [_gpu_row(gpu, now, width, stale=stale) for gpu in node.gpus]
    never = (Span(f"   {DEAD}  ", "crit"), Span(shorten("expected by the driver, never seen", width - 6), "crit"))
    return rows + [Row(f"missing{number}", never) for number in range(missing(node))]


def _gpu_row(gpu: Gpu, now: Instant, width: int, *, stale: bool) -> Row:
    key = str(gpu.index)
    if gpu.state != "ok":
        xid = f"  Xid {gpu.last_xid} {since(gpu.last_xid_at, now)} ago" if gpu.last_xid is not None else ""
        text = f"{gpu.state.upper()}  {safe(gpu.error or '')}{xid}"
        return Row(key, (Span(f"{gpu.index:>4}", "bold"), Span("  " + shorten(text, width - 6), "crit")))
    spans = row_cells(columns(width), gpu, now, "dim" if stale else "")
    room = width - sum(cell_width(span.text) for span in spans)
    slowed = slowing(gpu.throttle)
    text = ", ".join(slowed or gpu.throttle)
    if text and room > 6:
        spans.append(Span("  " + shorten(text, room - 2), "warn" if slowed and not stale else "dim"))
    return Row(key, tuple(spans))


# ---- processes, host, probe ----------------------------------------------------------------------------------------


class Scheduled(NamedTuple):
    """The scheduler's record of a node, and the jobs that run there."""

    node: SchedulerNode | None = None
    jobs: tuple[Job, ...] = ()


UNSCHEDULED = Scheduled()


def facts(
    name: str, node: Node | None, source: Source | None, now: Instant, width: int, scheduled: Scheduled = UNSCHEDULED
) -> list[Row]:
    """The facts that are not in the table, by section. Jobs are links."""
    lines: list[Line | Linked] = [*source_lines(source, now, width), *scheduler_lines(node, scheduled, now, width)]
    if node is not None:
        lines += [*process_lines(node, width), *host_lines(node, now, width), *probe_lines(node, width)]
    if not lines:
        lines = [(Span(f"{safe(name)} is no longer watched.", "dim"),)]
    return rows(lines)


def source_lines(source: Source | None, now: Instant, width: int) -> Iterator[Line]:
    """The connection: its problem and hint, or its phase; and the output of the probe that is not data."""
    if source is None:
        return
    if source.health != "ok":
        words = source_words(source, now)
        yield from wrapped_fact("connection", safe(words.text), width, words.style or "warn")
        if source.hint:
            yield from wrapped_fact("what to do", safe(source.hint), width)
        if source.retry_at is not None and source.retry_at > now:
            yield fact("next try", f"in {age(source.retry_at - now)}", width)
    else:
        yield fact("connection", f"{source.phase}, every {source.period:g} s", width)
    if source.bad_lines:
        yield fact("bad lines", f"{count(source.bad_lines)} of the probe could not be parsed", width, "warn")
    if source.stderr:
        yield fact("stderr", safe(source.stderr), width, "warn")


def scheduler_lines(node: Node | None, scheduled: Scheduled, now: Instant, width: int) -> Iterator[Line | Linked]:
    """The state and reason of its scheduler, and links to its running jobs."""
    if scheduled.node is not None:
        because = reason(scheduled.node, now)
        words = node_state(scheduled.node) + (f": {because}" if because else "")
        yield from wrapped_fact("scheduler", safe(words), width, node_look(scheduled.node))
        if scheduled.node.partitions:
            yield fact("partitions", safe(", ".join(scheduled.node.partitions)), width)
    elif node is not None and node.scheduler_state:
        because = f": {node.scheduler_reason}" if node.scheduler_reason else ""
        yield from wrapped_fact("scheduler", safe(f"{node.scheduler_state}{because}"), width)
    for place, job in enumerate(scheduled.jobs):
        seconds = left(job, now)
        time = f", {duration(seconds)} left" if seconds is not None else ""
        rest = shorten(safe(f"  {job.id} of {job.user}, {code(job)}{time}"), max(0, width - LABEL - 8))
        name = shorten(safe(job.name), width - LABEL - cell_width(rest))
        yield Linked(Link("job", job.key), (*link_label("" if place else "jobs"), Span(name, "accent"), Span(rest)))


PROCESSES = 64
"""The most lines of processes. On a node of many users they must not hide the other facts."""


def process_lines(node: Node, width: int) -> Iterator[Line]:
    """The processes of each GPU: user, memory, command."""
    running = [(gpu, process) for gpu in node.gpus for process in gpu.processes]
    yield ()
    if not running:
        yield (Span("The driver reports no process that uses GPU memory.", "dim"),)
        return
    yield (Span(shorten(f"{'GPU':>4}{'pid':>9}  {'user':<12}{'memory':>8}  command", width), "head"),)
    for gpu, process in running[:PROCESSES]:
        user = pad(shorten(safe(process.user or UNKNOWN), 11), 12)
        front = f"{gpu.index:>4}{process.pid:>9}  {user}{mib(process.memory_mib):>8}  "
        command = shorten(safe(process.command or UNKNOWN), max(0, width - cell_width(front)))
        yield (Span(shorten(front, width)), Span(command, "accent"))
    if len(running) > PROCESSES:
        yield (Span(f"and {len(running) - PROCESSES} more", "dim"),)


def host_lines(node: Node, now: Instant, width: int) -> Iterator[Line]:
    """Load, memory, and counters that should not grow."""
    yield ()
    cpus = UNKNOWN if node.cpu_count is None else str(node.cpu_count)
    yield fact("load", f"{real(node.load1, 1)} on {cpus} CPUs", width)
    used = percent(node.memory_used_mib, node.memory_total_mib)
    yield fact("memory", f"{mib(node.memory_used_mib)} of {mib(node.memory_total_mib)} used ({used})", width)
    yield fact("booted", UNKNOWN if node.boot_time is None else f"{since(node.boot_time, now)} ago", width)
    yield fact("OOM kills", f"{count(node.oom_kills)} since boot", width, "warn" if node.oom_kills else "")
    yield fact("net errors", f"{count(node.network_errors)} since boot", width)
    yield from infiniband_lines(node, width)


def infiniband_lines(node: Node, width: int) -> Iterator[Line]:
    """Healthy ports share one line. Each other port has its own."""
    well = [port for port in node.infiniband if port.state == "ACTIVE" and not port.link_downed and not port.errors]
    if well:
        yield fact("InfiniBand", f"{len(well)} of {len(node.infiniband)} ports active without errors", width)
    for port in node.infiniband:
        if port in well:
            continue
        words = (
            f"{port.port} {port.state or UNKNOWN}, link down {count(port.link_downed)}×, errors {count(port.errors)}"
        )
        yield fact("InfiniBand", safe(words), width, "warn")


SKEW = 2.0
"""Seconds of clock skew that are shown as a problem."""


def probe_lines(node: Node, width: int) -> Iterator[Line]:
    """The probe: what it reads with, and what fails."""
    yield ()
    names = sorted({safe(gpu.name) for gpu in node.gpus if gpu.name})
    yield fact("GPUs", f"{len(node.gpus)} × {', '.join(names) or UNKNOWN}", width)
    yield fact("read by", f"{node.probe}, driver {safe(node.driver or UNKNOWN)}", width)
    if node.note:
        yield fact("note", safe(node.note), width)
    for part, trouble in node.troubles.items():
        yield fact(f"{safe(part)} fails", safe(trouble), width, "warn")
    if node.clock_skew_s is not None:
        off = abs(node.clock_skew_s) >= SKEW
        way = "ahead of" if node.clock_skew_s > 0 else "behind"
        words = f"{abs(node.clock_skew_s):.1f} s {way} this machine" if off else "in sync with this machine"
        yield fact("clock", words, width, "warn" if off else "")
