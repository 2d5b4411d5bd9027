"""The lines above the panes: the header, and the alert strip under it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable
from datetime import UTC

from textual.app import ComposeResult
from textual.containers import Horizontal

from trainmon.lib import Instant, Seconds, cell_width, clean, duration, group_by, shorten
from trainmon.model import Alert, Run, Source, State, Timeline, verdict_text
from tui.keys import cap
from tui.style import CRIT, OK, WARN, Line, Span, Times, age, pad, wall_clock
from tui.views.alerts import (
    SIGNS,
    alert_marks,
    awaited,
    broken_channels,
    lines_of,
    pending_count,
    sender,
    sentence_lines,
    sign,
    to_do,
    urgent_counts,
)
from tui.views.runs import WORST_FIRST, verdict_style
from tui.widgets import GUTTER, Heading, SpanLines

TIME_WIDTH = 10

AGE = re.compile(r"\b\d{1,2}(?=[smhd]\b)")
"""The number of an age. It counts as two digits, so that `5s` and `10s` lead to the same layout."""


class HeaderLine(Horizontal):
    """Flags, alert counts, runs, sources, the sender of notifications, clusters and the time of the State.

    The time is its own widget: a line is sent from its left edge to the last change, and the time changes every second,
    also while nothing answers: one that stands still means that the program does.
    """

    DEFAULT_CSS = f"""
    HeaderLine {{ height: 1; width: 1fr; }}
    HeaderLine > .time {{ width: {TIME_WIDTH}; }}
    """

    def __init__(self) -> None:
        super().__init__(id="header")
        self.status = Heading()
        self.time = Heading(classes="time")
        self.paused = False
        self.silent_for: Seconds | None = None
        self._state: State | None = None

    def compose(self) -> ComposeResult:
        yield from (self.status, self.time)

    def show(self, state: State) -> None:
        self._state = state
        self.again()

    def again(self) -> None:
        """Draw the last State again: its size or a flag has changed."""
        if self._state is not None and self.size.width:
            shown = flags(self._state, paused=self.paused, silent_for=self.silent_for)
            self.status.set_spans(header(self._state, self.size.width - TIME_WIDTH - 1, shown))
            self.time.set_spans((Span(clock(self._state.at), "dim"),))

    def on_resize(self) -> None:
        self.again()


def clock(at: Instant) -> str:
    """14:02:11Z; the local time has no Z."""
    return wall_clock(at).strftime("%H:%M:%SZ" if Times.zone is UTC else "%H:%M:%S") if at else ""


def flags(state: State, *, paused: bool, silent_for: Seconds | None) -> tuple[str, ...]:
    """The states of the program that need a word, not only a colour."""
    return (
        *(("DEMO",) if state.demo else ()),
        *(("READ-ONLY",) if state.read_only else ()),
        *(("PAUSED",) if paused else ()),
        *(("LEDGER FAILED",) if state.ledger is not None else ()),
        *((f"NO UPDATE {age(silent_for)}",) if silent_for is not None else ()),
    )


ELSEWHERE = ("other", "daemon")
"""Senders that are not this program; they are always shown."""

TROUBLED = ("crit", "warn")
"""Styles of runs that stay when there is too little room for all. Healthy ones of which some have an alert give way to
a source that is silent: that alert is counted, too."""

SENDER_FROM = 44
"""From this width on, a problem of the sender is shown before runs and sources."""

AGED = ("node", "prometheus", "slurm", "wandb")
COUNTED = ("files", "daemon")
"""Kinds of source: those that are shown with their age, and those that are only counted."""


def header(state: State, width: int, flags: tuple[str, ...]) -> tuple[Span, ...]:
    """The line, at most `width` cells. Cluster names are cut first, then sources."""
    left = [Span("trainmon", "bold"), *(Span(f"  {flag}", "accent bold") for flag in flags)]
    left += [Span(f"  {span.text}", span.style) for span in (*urgent_counts(state), *pending_count(state))]
    space = width - aligned_width(left)
    sender = sender_flag(state)
    is_kept = space > SENDER_FROM and (bool(sender.style) or state.leadership.holder in ELSEWHERE)
    space -= aligned_width([sender]) if is_kept else 0
    runs = verdicts(state.runs.values(), space, alert_marks(state).runs)
    if aligned_width((*runs, *(full := sources_text(state, width, AGED)))) > space:
        runs = [span for span in runs if "/" not in span.text or not any(one.style for one in full)]
        runs = [span for span in runs if span.style in TROUBLED] or runs
    sources = sources_text(state, space - aligned_width(runs), AGED)
    space -= aligned_width((*runs, *sources))
    last = [sender] if is_kept or aligned_width([sender]) <= space else []
    counted = sources_text(state, width - aligned_width((*left, *runs, *sources, *last)), COUNTED)
    right = (*runs, *sources, *counted, *last)
    space = width - aligned_width((*left, *right))
    names = " ".join(sorted({*map(clean, {source.cluster for source in state.sources.values()})} - {""}))
    return (*left, *([Span("  " + shorten(names, space - 2), "dim")] if names and space > 6 else []), *right)


def aligned_width(spans: Iterable[Span]) -> int:
    """The cells of these spans, with ages of two digits."""
    return sum(cell_width(AGE.sub("00", span.text)) for span in spans)


def sender_flag(state: State) -> Span:
    """`  alerts: sent here`, `  alerts: no channel`: the sender of notifications, or a broken channel."""
    failing = broken_channels(state.channels.values())
    if failing and state.leadership.holder != "nobody":
        more = f" +{len(failing) - 1}" if len(failing) > 1 else ""
        return Span(f"  alerts: {clean(failing[0].name, 20)} broken{more}", "crit")
    text, style = sender(state)
    return Span(f"  alerts: {text}", "" if state.leadership.holder == "nobody" and not urgent_counts(state) else style)


def verdicts(runs: Iterable[Run], width: int, alerts: Container[str] = ()) -> list[Span]:
    """`  1 hung  3/5 healthy` (three of all five runs), worst first. `alerts`: the runs with an open alert."""
    runs = tuple(runs)
    counts, alerted = Counter(run.verdict for run in runs), Counter(run.verdict for run in runs if run.name in alerts)
    spans: list[Span] = []
    for verdict in WORST_FIRST:
        is_doubtful = verdict_style(verdict) == "ok" and alerted[verdict] > 0
        number = f"{counts[verdict] - alerted[verdict]}/{len(runs)}" if is_doubtful else f"{counts[verdict]}"
        text = f"  {number} {verdict_text(verdict)}"
        if counts[verdict] and cell_width(text) <= width:
            spans.append(Span(text, "warn" if is_doubtful else verdict_style(verdict)))
            width -= cell_width(text)
    return spans


def sources_text(state: State, width: int, kinds: Iterable[str] = (*AGED, *COUNTED)) -> tuple[Span, ...]:
    """`  ssh 63/64 gpu-008 42s  prometheus 10s  slurm 5s  wandb 10s`, as much as fits: how many hosts answer and the
    one that is silent longest; the ages of Prometheus, of the queue and of W&B's oldest answer; how many of the other
    sources answer. A host whose numbers Prometheus has counts there, and is mentioned only if it is silent."""
    spans: list[Span] = []
    needed = (one for one in state.sources.values() if one.health != "off")
    by_kind: dict[str, list[Source]] = group_by(needed, lambda one: one.kind if one.via is None else "prometheus")
    for kind, sources in ((kind, by_kind[kind]) for kind in kinds if kind in by_kind):
        well = sum(source.health == "ok" for source in sources)
        has_steps = any(source.step_of is not None for source in sources)
        name = ("nodes" if has_steps else "ssh") if kind == "node" else kind
        short = f"  {name} {well}/{len(sources)}"
        text = AGE_TEXTS[kind](sources, state.at) if kind in AGE_TEXTS else short + longest_silent(sources, state.at)
        fitting = next((one for one in (text, short) if cell_width(one) <= width), None)
        if fitting is None:
            break
        spans.append(Span(fitting, "" if well == len(sources) else "warn"))
        width -= cell_width(fitting)
    return tuple(spans)


def longest_silent(sources: list[Source], now: Instant) -> str:
    """The source that has not answered for the longest time; one that never answered comes first, and before it one
    that needs a login."""
    silent = [source for source in sources if source.health != "ok"]
    held = [source for source in silent if source.phase == "held" and source.can_log_in]
    worst = min(held or silent, key=lambda source: source.answered_at or 0.0, default=None)
    if worst is None:
        return ""
    why = (
        f"login: press {cap('act.login')}"
        if held
        else "no answer " * (worst.answered_at is not None) + last_answer(worst, now)
    )
    return f" {clean(worst.name).partition(':')[2]} {why}"


def slurm_text(sources: list[Source], now: Instant) -> str:
    """`  slurm 5s`, or `  slurm late 95s`; of several clusters each by its name."""
    several, by_cluster = len(sources) > 1, sorted(sources, key=lambda source: source.cluster)
    names = (f"{clean(source.cluster)} " if several else "" for source in by_cluster)
    return "  slurm " + ", ".join(
        name + health_and_age(source, now) for name, source in zip(names, by_cluster, strict=True)
    )


def prometheus_text(sources: list[Source], now: Instant) -> str:
    """`  prometheus 10s`: the age of the oldest answer of a server. `  prometheus prod:node down 95s`: the worst one of
    several. `  prometheus 254/256 gpu-008 2m`: its nodes, if some have no new numbers."""
    servers, nodes = ([one for one in sources if (one.kind == "node") is is_node] for is_node in (False, True))
    worst = min(servers, key=lambda one: (one.health == "ok", one.answered_at or 0.0), default=None)
    well = sum(node.health == "ok" for node in nodes)
    if worst is None or (worst.health == "ok" and well < len(nodes)):
        return f"  prometheus {well}/{len(nodes)}{longest_silent(nodes, now)}"
    name = f"{clean(worst.name).partition(':')[2]} " if worst.health != "ok" and len(servers) > 1 else ""
    return f"  prometheus {name}{health_and_age(worst, now)}"


def wandb_text(sources: list[Source], now: Instant) -> str:
    """`  wandb 10s`: the age of the oldest answer about a run; of several runs, how many are answered and the worst."""
    well = sum(source.health == "ok" for source in sources)
    if len(sources) > 1 and well < len(sources):
        return f"  wandb {well}/{len(sources)}{longest_silent(sources, now)}"
    return f"  wandb {health_and_age(min(sources, key=lambda source: source.answered_at or 0.0), now)}"


AGE_TEXTS = {"prometheus": prometheus_text, "slurm": slurm_text, "wandb": wandb_text}
"""Kinds of source that are shown by their age."""


def health_and_age(source: Source, now: Instant) -> str:
    """`5s`, `late 95s`, `no data`."""
    health = "" if source.health == "ok" or source.answered_at is None else f"{source.health} "
    return health + last_answer(source, now)


STEP: Seconds = 5.0
"""Ages are rounded to this: an age that changes every second is most of what an idle screen sends."""


def last_answer(source: Source, now: Instant) -> str:
    """The age of its last answer, or what is done about a source that never answered."""
    if source.answered_at is None:
        return "connecting" if source.phase == "connecting" else "no data"
    seconds = max(0.0, now - source.answered_at)
    return age(seconds - seconds % STEP if source.kind in AGE_TEXTS and seconds < 60 else seconds)


# ---- the alert strip -------------------------------------------------------------------------------------------------


class Strip(SpanLines):
    """The worst alert in full, and what to do. Hidden without one: nobody reads a strip that always shows something."""

    MARGIN = GUTTER

    def __init__(self) -> None:
        super().__init__(id="strip")
        self.listed = False
        """Whether the Alerts pane shows the worst one, so that its text is on the screen once."""
        self._state: State | None = None

    def places(self, state: State) -> frozenset[str]:
        """The alert of a State whose text it shows."""
        return frozenset(one.id for one in awaited(state)[:1])

    def show(self, state: State) -> None:
        self._state = state
        width, height = self.app.size
        lines = strip_lines(state, width - GUTTER, min(5, height // 4), listed=self.listed)
        self.styles.height = len(lines)
        self.display = bool(lines)
        self.set_lines(lines)

    def on_resize(self) -> None:
        if self._state is not None:
            self.show(self._state)


# ---- what changed ----------------------------------------------------------------------------------------------------

CHANGES_HINT = f"  {cap('view.changes')} list  Esc hide"


class ChangesLine(Heading):
    """What changed since the dashboard was last used. Hidden after a person has read it."""

    def show(self, text: str, style: str) -> None:
        self.display = bool(text)
        if text:
            space = self.app.size.width - GUTTER - cell_width(CHANGES_HINT)
            self.set_spans((Span(shorten(text, space), style), Span(CHANGES_HINT, "dim")))


class StoryLine(Heading):
    """The time line of a replay; of the demo, the time since it began, what goes wrong in it now, and the keys that
    show it."""

    def show(self, state: State, current: str) -> None:
        """`current`: the number of the pane that has the focus. Its key would zoom it."""
        self.display = bool(state.story) or state.replay is not None
        minutes, seconds = divmod(int(state.at - state.started_at), 60)
        text = f"demo {minutes}:{seconds:02} · {state.story}".replace(f"press {current}, ", "press ")
        text = text if state.replay is None else time_line(state.replay, self.app.size.width - GUTTER)
        self.set_spans((Span(shorten(text, self.app.size.width - GUTTER), "dim"),))


def time_line(line: Timeline, width: int) -> str:
    """`replay 14:02:11Z x1 ━━━●──▲──── 40m  p pause  ( ) 10s  { } speed  ; next alert`"""
    head = f"replay {clock(line.at)} {f'x{line.speed:g}' if line.is_playing else 'paused'} "
    names = ("replay.earlier", "replay.later", "replay.slower", "replay.faster", "replay.alert")
    keys = "{} {} 10s  {} {} speed  {} next alert".format(*map(cap, names))
    tail = f" {duration(line.end - line.start)}  {cap('view.pause')} {'pause' if line.is_playing else 'play'}  {keys}"
    cells = max(8, width - cell_width(head + tail))
    places = [int((cells - 1) * (at - line.start) / max(1.0, line.end - line.start)) for at in (line.at, *line.alerts)]
    bar = ["━" if cell < places[0] else CRIT if cell in places[1:] else "─" for cell in range(cells)]
    bar[places[0]] = OK
    return head + "".join(bar) + tail


def strip_lines(state: State, width: int, most: int, *, listed: bool = False) -> list[Line]:
    """A ledger problem, then the worst alert in at most so many lines: its summary, and what to do. `listed`: a pane
    shows the alerts."""
    alerts = () if listed else awaited(state)
    lines: list[Line] = []
    if state.ledger is not None:
        lines = [(Span(f"{WARN} ledger  ", "warn bold"), Span(shorten(clean(state.ledger), width - 10)))]
    return [*lines, *(alert_lines(alerts[0], state, width, max(1, most), len(alerts) - 1) if alerts else ())]


def alert_lines(alert: Alert, state: State, width: int, most: int, others: int) -> list[Line]:
    """`▲ CRIT 6m gpu-003/5 is at 94 °C   +2 more (key 5)  a ack`, the rest of its summary below, then what to do."""
    (symbol, style), word = sign(alert, state.at), SIGNS[alert.severity][1] if alert.is_firing else "pending"
    head = f"{symbol} {word} {age(state.at - alert.since)} "
    end = f"  +{others} more (key {cap('pane.alerts')})" * (others > 0) + f"  {cap('alerts.ack')} ack" * alert.is_firing
    end = end if width >= 2 * cell_width(head + end) else ""
    aside = cell_width(head) + cell_width(end)
    kept = min(most - 2, len(lines_of(clean(alert.summary), width, aside)))  # two lines are left for the advice
    advice = sentence_lines(to_do(alert), width, most - max(1, kept))
    first, *rest = sentence_lines(clean(alert.summary), width, most - len(advice), aside) or [""]
    return [
        (Span(head, f"{style} bold"), Span(pad(first[aside:], width - aside)), Span(end, "dim")),
        *((Span(line),) for line in rest),
        *((Span(line, "accent"),) for line in advice),
    ]
