"""One node in full, as rows: the table of its GPUs, then its scheduler, processes, host and probe. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from trainmon.analysis.nodes import failing_server
from trainmon.analysis.retries import record_text, verdict
from trainmon.lib import Instant, by_key, cell_width, counted, duration, instruction, listed, mib_size, shorten
from trainmon.model import (
    LATE_AFTER,
    Gpu,
    GpuInstance,
    GpuLinks,
    Job,
    Node,
    NodeEvent,
    NodeRecord,
    SchedulerNode,
    Source,
)
from tui.style import (
    DEAD,
    NOT_APPLICABLE,
    UNKNOWN,
    Line,
    Link,
    Linked,
    Row,
    Span,
    age,
    count,
    heat,
    mib,
    pad,
    percent,
    real,
    rows,
    since,
    slowing,
    source_text,
    width_of,
)
from tui.views.jobs import node_reason, node_state, node_style, seconds_left, state_code
from tui.views.nodes import missing_gpus, numbers
from tui.views.table import (
    LABEL,
    Column,
    apart,
    fact,
    facts,
    heads,
    linked_fact,
    optional_fact,
    row_cells,
    safe,
    value,
    warned,
    wrapped_fact,
)

# ---- the table of GPUs ---------------------------------------------------------------------------------------------


def rounded(number: float | None, unit: str = "") -> Span:
    """A number without decimals."""
    return value(UNKNOWN if number is None else f"{round(number)}{unit}")


def memory(gpu: Gpu, _now: Instant) -> Span:
    """`71G/80G`."""
    return Span(f"{mib(gpu.memory_used_mib)}/{mib(gpu.memory_total_mib)}", "dim" if gpu.memory_used_mib is None else "")


def power(gpu: Gpu, _now: Instant) -> Span:
    """`640/700`: the power and its limit in watts."""
    limit = UNKNOWN if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f}"
    return value(UNKNOWN if gpu.power_w is None else f"{gpu.power_w:.0f}/{limit}")


def ecc(gpu: Gpu, _now: Instant) -> Span:
    """`0/3`: uncorrected and corrected errors."""
    if gpu.ecc_uncorrected is None and gpu.ecc_corrected is None:
        return value(NOT_APPLICABLE)
    text = f"{count(gpu.ecc_uncorrected)}/{count(gpu.ecc_corrected)}"
    return warned(text, "crit" if gpu.ecc_uncorrected else "", "")


def remap(gpu: Gpu, _now: Instant) -> Span:
    """Whether a row remap failed or waits for a reset of the GPU."""
    if gpu.remap_failed or gpu.remap_pending:
        return Span("failed!", "crit") if gpu.remap_failed else Span("pending!", "warn")
    return Span(NOT_APPLICABLE if gpu.remap_failed is None else "no", "dim")


def xid(gpu: Gpu, now: Instant) -> Span:
    """`79 3m!`: the last Xid and its age."""
    return (
        Span("none", "dim") if gpu.last_xid is None else Span(f"{gpu.last_xid} {since(gpu.last_xid_at, now)}!", "warn")
    )


MIG = {None: Span(NOT_APPLICABLE, "dim"), True: Span("on"), False: Span("off", "dim")}


MEMORY = 11
"""Cells of the column of memory."""

COLUMNS: tuple[Column[Gpu, Instant], ...] = (
    Column("GPU", width=4, cell=lambda gpu, _: Span(str(gpu.index), "bold")),
    Column("°C", width=6, cell=lambda gpu, _: rounded(None) if (c := gpu.temperature_c) is None
           else warned(str(c), heat(gpu), "")),
    Column("HBM", width=5, cell=lambda gpu, _: rounded(gpu.memory_temperature_c), from_width=50),
    Column("margin", width=8, cell=lambda gpu, _: rounded(gpu.temperature_margin_c), from_width=86),
    Column("memory", width=MEMORY, cell=memory),
    Column("util", width=6,
           cell=lambda gpu, _: value(NOT_APPLICABLE) if gpu.mig else rounded(gpu.utilization_pct, "%")),
    Column("power W", width=9, cell=power, from_width=40),
    Column("MHz", width=6, cell=lambda gpu, _: rounded(gpu.sm_clock_mhz), from_width=56),
    Column("ECC u/c", width=9, cell=ecc, from_width=74),
    Column("remap", width=9, cell=remap, from_width=104),
    Column("MIG", width=5, cell=lambda gpu, _: MIG[gpu.mig], from_width=104),
    Column("Xid", width=9, cell=xid, from_width=76),
)  # fmt: skip


def columns(width: int) -> tuple[Column[Gpu, Instant], ...]:
    return tuple(column for column in COLUMNS if column.from_width <= width)


def gpu_head(width: int) -> tuple[Span, ...]:
    """The names of the columns."""
    return (Span(shorten(f"{heads(columns(width))}  slowed by", width), "head"),)


def gpu_rows(node: Node, now: Instant, width: int, *, stale: bool) -> list[Row]:
    """One line a GPU, and below it one for each of its instances. Lost GPUs and GPUs that were never seen have one
    too."""
    never = (
        Span(f"   {DEAD}  ", "crit"),
        Span(shorten("listed by the driver, but never answered", width - 6), "crit"),
    )
    return [
        *(
            row
            for gpu in node.gpus
            for row in (
                Row(str(gpu.index), gpu_line(gpu, now, width, stale=stale)),
                *(Row(f"{gpu.index}/{one.id}", instance_line(gpu, one, width, stale=stale)) for one in gpu.instances),
            )
        ),
        *(Row(f"missing{number}", never) for number in range(missing_gpus(node))),
    ]


def instance_line(gpu: Gpu, one: GpuInstance, width: int, *, stale: bool) -> tuple[Span, ...]:
    """`└ 1  3g.40gb   30G/40G  not measured by NVML  2 processes`: an instance, with its memory below that of GPUs."""
    names = [column.name for column in columns(width)]
    before = sum(column.width for column in columns(width)[: names.index("memory")])
    running = sum(process.instance == one.id for process in gpu.processes)
    text = f"  {one.utilization}  {running or 'no'} process{'' if running <= 1 else 'es'}"
    return (
        Span(pad(shorten(safe(f"  └ {one.id}  {one.profile or ''}"), before - 1), before), "dim"),
        Span(f"{mib(one.memory_used_mib)}/{mib(one.memory_total_mib)}".rjust(MEMORY), "dim" if stale else ""),
        Span(shorten(text, max(0, width - before - MEMORY)), "dim"),
    )


def gpu_line(gpu: Gpu, now: Instant, width: int, *, stale: bool) -> tuple[Span, ...]:
    """The cells of one GPU and why its clock is slowed, or its error."""
    if gpu.state != "ok":
        last_xid = f"  Xid {gpu.last_xid} {since(gpu.last_xid_at, now)} ago" if gpu.last_xid is not None else ""
        text = f"{gpu.state.upper()}  {safe(gpu.error or '')}{last_xid}"
        return (Span(f"{gpu.index:>4}", "bold"), Span("  " + shorten(text, width - 6), "crit"))
    spans = row_cells(columns(width), gpu, now, "dim" if stale else "")
    space = width - width_of(spans)
    slowed = slowing(gpu.throttle)
    if gpu.throttle and space > 6:
        text = shorten(", ".join(slowed or gpu.throttle), space - 2)
        spans.append(Span("  " + text, "warn" if slowed and not stale else "dim"))
    return tuple(spans)


def read_ago(at: Instant | None, node: Node, source: Source | None, now: Instant) -> str:
    """`read 42s ago`, if these numbers are not current: their source is silent, they are older than its others, or they
    were read over SSH before Prometheus took over."""
    if at is None:
        return ""
    is_current = source is None or (source.health == "ok" and now - at <= LATE_AFTER * source.period)
    return "" if is_current and at >= (node.greeted_at or 0.0) else f"read {since(at, now)} ago"


# ---- processes, links, host, probe -----------------------------------------------------------------------------------


def node_facts(
    name: str,
    node: Node | None,
    source: Source | None,
    now: Instant,
    width: int,
    listed: SchedulerNode | None = None,
    jobs: Sequence[Job] = (),
    sources: Mapping[str, Source] = {},
    alerts: Sequence[Line | Linked] = (),
    odd: Collection[str] = (),
) -> list[Row]:
    """The facts that are not in the table, by section. `listed`: the scheduler's record of the node; `jobs`: those that
    run there, as links; `sources`: all, of which one may be the Prometheus server with its numbers; `alerts`:
    links to its alerts; `odd`: its ports that an alert says to differ from their peers."""
    about = (*alerts, *source_lines(source, now, width, sources), *scheduler_lines(listed, jobs, now, width))
    if node is None:
        return rows(about or [(Span(f"{safe(name)} is no longer watched.", "dim"),)])
    host = host_lines(node, now, width, read_ago(node.host_at, node, source, now), odd)
    return rows(apart(about, process_lines(node, width), host, (*link_lines(node, width), *probe_lines(node, width))))


def history_lines(
    cluster: str, name: str, records: Mapping[str, NodeRecord], events: Sequence[NodeEvent], width: int
) -> Iterator[Line]:
    """What 90 days of attempts and alerts say of a node, if they say anything."""
    one, own = records.get(f"{cluster}/{name}", NodeRecord()), [it for it in events if it.cluster in ("", cluster)]
    if one.node or own:
        yield from wrapped_fact("90 days", record_text(one, own), width, "warn" if one.is_bad else "")
    if one.failures:
        yield from wrapped_fact("", verdict(one.cluster, records), width, "dim")


def source_lines(source: Source | None, now: Instant, width: int, sources: Mapping[str, Source]) -> Iterator[Line]:
    """The connection: its problem and hint, or its phase; and the output of the probe that is not data."""
    if source is None:
        return
    if source.health == "ok":
        how = source.phase if source.step_of is None else f"{source.phase} by a step of job {source.step_of}"
        if source.via is not None:
            how = f"no SSH, read from {safe(source.via)}"
        yield fact("connection", f"{how}, data every {source.period:g}s", width)
        server = sources.get(source.via or "")
        yield from optional_fact("prometheus", None if server is None or server.error else server.hint, width, "dim")
    else:
        server = failing_server(source, sources)
        problem, failing = source_text(source, now, server, hinted=True), server or source
        yield from wrapped_fact("connection", safe(problem.text), width, problem.style or "warn")
        yield from optional_fact("what to do", instruction(failing.hint), width)
        if failing.retry_at is not None and failing.retry_at > now:
            yield fact("next try", f"in {age(failing.retry_at - now)}", width)
    texts = {
        "bad lines": f"{counted(source.bad_lines, 'line')} from the probe could not be parsed"
        if source.bad_lines
        else None,
        "stderr": safe(source.stderr) if source.stderr else None,
    }
    yield from facts(texts, width, dict.fromkeys(texts, "warn"))


def scheduler_lines(
    listed: SchedulerNode | None, jobs: Sequence[Job], now: Instant, width: int
) -> Iterator[Line | Linked]:
    """The state and reason of its scheduler, and links to its running jobs."""
    if listed is not None:
        because = node_reason(listed, now)
        text = node_state(listed) + (f": {because}" if because else "")
        yield from wrapped_fact("scheduler", safe(text), width, node_style(listed))
        if listed.partitions:
            yield fact("partitions", safe(", ".join(listed.partitions)), width)
    for index, job in enumerate(jobs):
        seconds = seconds_left(job, now)
        time = f", {duration(seconds)} left" if seconds is not None else ""
        rest = shorten(safe(f"  {job.id} of {job.user}, {state_code(job)}{time}"), max(0, width - LABEL - 8))
        yield linked_fact("" if index else "jobs", Link("job", job.key), job.name, width, Span(rest))


PROCESSES = 64
"""The most lines of processes. On a node of many users they must not hide the other facts."""


NO_PROCESS = {
    "prometheus": "Prometheus does not list the processes on GPUs: that needs SSH.",
    "none": "Without a GPU driver, no process is listed.",
}
"""Why there is none, by what reads the node."""


def process_lines(node: Node, width: int) -> Iterator[Line]:
    """The processes of each GPU: user, memory, command."""
    running = [(gpu, process) for gpu in node.gpus for process in gpu.processes]
    if not running:
        yield (Span(NO_PROCESS.get(node.probe, "The driver reports no process that uses GPU memory."), "dim"),)
        return
    places = [f"{gpu.index}/{one.instance}" if one.instance else str(gpu.index) for gpu, one in running[:PROCESSES]]
    room = max(4, 1 + max(map(len, places)))
    yield (Span(shorten(f"{'GPU':>{room}}{'pid':>9}  {'user':<12}{'memory':>8}  command", width), "head"),)
    for place, (_, process) in zip(places, running, strict=False):
        user = pad(shorten(safe(process.user or UNKNOWN), 11), 12)
        front = f"{safe(place):>{room}}{process.pid:>9}  {user}{mib(process.memory_mib):>8}  "
        command = shorten(safe(process.command or UNKNOWN), max(0, width - cell_width(front)))
        yield (Span(shorten(front, width)), Span(command, "accent"))
    if len(running) > PROCESSES:
        yield (Span(f"and {len(running) - PROCESSES} more", "dim"),)


def link_lines(node: Node, width: int) -> Iterator[Line]:
    """The links of GPUs, and the temperatures at the edge of those of AMD. Those that are alike share a line."""
    alike = by_key((found, gpu.index) for gpu in node.gpus for found in link_texts(gpu, gpu.links or GpuLinks()))
    for (label, text, style), indexes in alike.items():
        yield fact(label, f"{numbers(indexes)}: {text}", width, style)


def link_texts(gpu: Gpu, links: GpuLinks) -> Iterator[tuple[str, str, str]]:
    """Its facts that are known, each with a label and a style: `PCIe 32 GT/s x16 of x16, 0 replays`."""
    is_narrow = (links.pcie_width or 0) < (links.pcie_width_max or 0)
    speed = f"{real(links.pcie_gts, 1)} GT/s" if links.pcie_gen is None else f"generation {links.pcie_gen}"
    pcie = f"PCIe {speed} x{links.pcie_width} of x{count(links.pcie_width_max)}"
    nvlinks = f"{count(links.nvlinks_up)} of {count(links.nvlinks)} NVLinks, {count(links.nvlink_errors)} errors"
    xgmi = f"XGMI x{links.xgmi_width} at {count(links.xgmi_gbps)} Gbit/s, {count(links.xgmi_errors)} RAS errors"
    texts = (
        ("edge", f"{gpu.edge_temperature_c} °C", "", gpu.edge_temperature_c),
        ("links", f"{pcie}, {count(links.pcie_replays)} replays", "warn" if is_narrow else "", links.pcie_width),
        ("links", xgmi, "warn" if links.xgmi_errors else "", links.xgmi_width),
        ("links", nvlinks, "warn" if (links.nvlinks_up or 0) < (links.nvlinks or 0) else "", links.nvlinks or None),
    )
    yield from ((label, text, style) for label, text, style, known in texts if known is not None)


def host_lines(node: Node, now: Instant, width: int, is_read: str, odd: Collection[str] = ()) -> Iterator[Line]:
    """Load, memory, and counters that should not grow. Healthy InfiniBand ports share one line. `is_read`: how old the
    numbers are, if they are not current."""
    yield from optional_fact("host", is_read, width, "warn")
    bad = [
        port
        for port in node.infiniband
        if port.state != "ACTIVE" or port.link_downed or port.errors or port.port in odd
    ]
    well = [port for port in node.infiniband if port not in bad]
    texts = {
        "load": f"{real(node.load1, 1)} on {count(node.cpu_count)} CPUs",
        "memory": f"{mib_size(node.memory_used_mib)} of {mib_size(node.memory_total_mib)} used"
        f" ({percent(node.memory_used_mib, node.memory_total_mib)})",
        "booted": UNKNOWN if node.boot_time is None else f"{since(node.boot_time, now)} ago",
        "OOM kills": f"{count(node.oom_kills)} since boot",
        "net errors": f"{count(node.network_errors)} since boot",
        "InfiniBand": f"{len(well)} of {len(node.infiniband)} ports active without errors" if well else None,
    }
    known = texts if node.host_at is not None else {"host": "load, memory and errors are not read"}
    yield from facts(known, width, {"OOM kills": "warn" if node.oom_kills else ""})
    for rate, names in by_key((port.rate, port.port) for port in well if port.rate).items():
        yield fact("", safe(f"{rate}: {listed(names, 1)}"), width)
    for port in bad:
        differs = f", differs from its peers: {port.rate or 'rate unknown'}" if port.port in odd else ""
        errors = f"link down {count(port.link_downed)}×, errors {count(port.errors)}"
        yield fact("InfiniBand", safe(f"{port.port} {port.state or UNKNOWN}{differs}, {errors}"), width, "warn")


SKEW = 2.0
"""Seconds of clock skew that are shown as a problem."""


def probe_lines(node: Node, width: int) -> Iterator[Line]:
    """The probe: what it reads with, and what fails."""
    names = sorted({safe(gpu.name) for gpu in node.gpus if gpu.name})
    texts = {
        "GPUs": f"{len(node.gpus)} × {', '.join(names) or UNKNOWN}" if node.gpus else "none",
        "read by": f"{node.probe}, driver {safe(node.driver or UNKNOWN)}" if node.probe != "none" else None,
        "note": safe(node.note) if node.note else None,
    }
    yield from facts(texts, width)
    yield from (fact(f"{safe(part)} fails", safe(text), width, "warn") for part, text in node.troubles.items())
    skew = None if node.probe == "prometheus" else node.clock_skew_s  # the time of its samples is the server's
    if skew is not None and abs(skew) >= SKEW:
        way = "ahead of" if skew > 0 else "behind"
        yield fact("clock", f"{duration(abs(skew))} {way} this machine", width, "warn")
    elif skew is not None:
        yield fact("clock", "in sync with this machine", width)
