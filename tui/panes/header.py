"""The first line: flags, alert counts, runs, sources, the sender of notifications, clusters and the time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from textual.app import ComposeResult
from textual.containers import Horizontal

from trainmon.lib import Instant, Seconds, cell_width, clean, shorten
from trainmon.model import Run, Source, State
from tui.style import Span, age
from tui.views import WORST_FIRST, style
from tui.views.alerts import broken, sender, tally
from tui.widgets import Heading

WORDS = {"node": "ssh"}
"""The names of kinds of source in the header."""

TIME_WIDTH = 10

AGE = re.compile(r"\b\d{1,2}(?=[smhd]\b)")
"""The number of an age. It counts as two digits, so that `5s` and `10s` lead to the same layout."""


class HeaderLine(Horizontal):
    """Draws a State. Its time changes only when the data does.

    The time is its own widget: a line is sent from its left edge to the last change, and the time changes every second.
    """

    DEFAULT_CSS = f"""
    HeaderLine {{ height: 1; width: 1fr; }}
    HeaderLine > .time {{ width: {TIME_WIDTH}; }}
    """

    def __init__(self) -> None:
        super().__init__(id="header")
        self.words = Heading()
        self.time = Heading(classes="time")
        self.paused = False
        self.silent_for: Seconds | None = None
        self._state: State | None = None
        self._moved_at: Instant = 0.0

    def compose(self) -> ComposeResult:
        yield self.words
        yield self.time

    def show(self, state: State) -> None:
        if self._state is None or facts(state) != facts(self._state):
            self._moved_at = state.at
        self._state = state
        self.again()

    def again(self) -> None:
        if self._state is not None and self.size.width:
            words = flags(self._state, paused=self.paused, silent_for=self.silent_for)
            self.words.set_spans(header(self._state, self.size.width - TIME_WIDTH - 1, words))
            self.time.set_spans((Span(clock(self._moved_at), "dim"),))

    def on_resize(self) -> None:
        self.again()


def clock(at: Instant) -> str:
    """14:02:11Z."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%SZ") if at else ""


def facts(state: State) -> tuple[int, ...]:
    """The identities of a State's data. A new State shares the parts that did not change."""
    return (id(state.nodes), id(state.disks), id(state.runs), id(state.sources), id(state.jobs))


def flags(state: State, *, paused: bool, silent_for: Seconds | None) -> tuple[str, ...]:
    """The states of the program that need a word, not only a colour."""
    return (
        *(("DEMO",) if state.demo else ()),
        *(("READ-ONLY",) if state.read_only else ()),
        *(("PAUSED",) if paused else ()),
        *(("LEDGER FAILED",) if state.ledger is not None else ()),
        *((f"ENGINE SILENT {age(silent_for)}",) if silent_for is not None else ()),
    )


def header(state: State, width: int, words: tuple[str, ...]) -> tuple[Span, ...]:
    """The line, at most `width` cells. Cluster names are cut first, then sources."""
    names = " ".join(sorted({clean(source.cluster) for source in state.sources.values()} - {""}))
    left = [Span("trainmon", "bold"), *(Span(f"  {word}", "accent bold") for word in words)]
    left += [Span(f"  {span.text}", span.style) for span in tally(state)]
    room = width - wide(left)
    span = notifications(state)
    is_kept = room > SENDER_FROM and (bool(span.style) or state.duty.holder in ELSEWHERE)
    room -= wide([span]) if is_kept else 0
    runs = verdicts(state.runs.values(), room)
    if wide(source_words(state, room - wide(runs), AGED)) < wide(source_words(state, width, AGED)):
        runs = [span for span in runs if span.style in TROUBLED] or runs
    room -= wide(runs)
    sources = [*source_words(state, room, AGED)]
    room -= wide(sources)
    if is_kept or wide([span]) <= room:
        room -= 0 if is_kept else wide([span])
        sources += [*source_words(state, room, COUNTED), span]
    else:
        sources += source_words(state, room, COUNTED)
    room = width - wide([*left, *runs, *sources])
    if names and room > 6:
        left.append(Span("  " + shorten(names, room - 2), "dim"))
    return (*left, *runs, *sources)


def wide(spans: Iterable[Span]) -> int:
    """The cells of these spans, with ages of two digits."""
    return sum(cell_width(AGE.sub("00", span.text)) for span in spans)


ELSEWHERE = ("other", "daemon")
"""Senders that are not this program; they are always shown."""

TROUBLED = ("crit", "warn")
"""Styles of runs that stay when there is too little room for all; healthy runs give way to the ages of sources."""

SENDER_FROM = 44
"""From this width on, a problem of the sender is shown before runs and sources."""


def notifications(state: State) -> Span:
    """`  alerts: here ok`, `  alerts: no channel`: the sender of notifications, or a broken channel."""
    failing = broken(state.channels.values())
    if failing and state.duty.holder != "nobody":
        more = f" +{len(failing) - 1}" if len(failing) > 1 else ""
        return Span(f"  alerts: {clean(failing[0].name, 20)} broken{more}", "crit")
    text = sender(state)
    quiet = state.duty.holder == "nobody" and not tally(state)
    return Span(f"  alerts: {text.text}", "" if quiet else text.style)


def verdicts(runs: Iterable[Run], room: int) -> list[Span]:
    """`  1 hung  2 healthy`, worst first, as many as there is room for."""
    counts = Counter(run.verdict for run in runs)
    spans: list[Span] = []
    for verdict in WORST_FIRST:
        text = f"  {counts[verdict]} {verdict}"
        if counts[verdict] and cell_width(text) <= room:
            spans.append(Span(text, style(verdict)))
            room -= cell_width(text)
    return spans


AGED = ("node", "slurm", "wandb")
COUNTED = ("files", "daemon")
"""Kinds of source: those that are shown with their age, and those that are only counted."""


def source_words(state: State, room: int, kinds: Iterable[str] = (*AGED, *COUNTED)) -> tuple[Span, ...]:
    """`  ssh 63/64 gpu-008 42s  slurm 5s  wandb 10s`: how many hosts answer and the one that is silent longest, how old
    the queue and W&B's oldest answer are, and how many of the others answer; as much of it as there is room for."""
    spans: list[Span] = []
    for kind in kinds:
        wanted = [source for source in state.sources.values() if source.kind == kind and source.health != "off"]
        if not wanted:
            continue
        well = sum(source.health == "ok" for source in wanted)
        short = f"  {WORDS.get(kind, kind)} {well}/{len(wanted)}"
        text = AGE_TEXTS[kind](wanted, state.at) if kind in AGE_TEXTS else short + note(wanted, state.at)
        fitting = next((one for one in (text, short) if cell_width(one) <= room), None)
        if fitting is None:
            break
        spans.append(Span(fitting, "" if well == len(wanted) else "warn"))
        room -= cell_width(fitting)
    return tuple(spans)


def note(sources: list[Source], now: Instant) -> str:
    """The source that has not answered for the longest time; one that never answered comes first."""
    silent = [source for source in sources if source.health != "ok"]
    worst = min(silent, key=lambda source: source.seen_at or 0.0, default=None)
    return "" if worst is None else f" {clean(worst.name).partition(':')[2]} {silence(worst, now)}"


def slurm_words(sources: list[Source], now: Instant) -> str:
    """`  slurm 5s`, or `  slurm late 95s`; of several clusters each by its name."""
    parts = []
    for source in sorted(sources, key=lambda source: source.cluster):
        name = f"{clean(source.cluster)} " if len(sources) > 1 else ""
        health = "" if source.health == "ok" or source.seen_at is None else f"{source.health} "
        parts.append(f"{name}{health}{silence(source, now)}")
    return "  slurm " + ", ".join(parts)


def wandb_words(sources: list[Source], now: Instant) -> str:
    """`  wandb 10s`: the age of the oldest answer about a run; of several runs, how many are answered and the worst."""
    well = sum(source.health == "ok" for source in sources)
    if len(sources) == 1 and not well:
        health = "" if sources[0].seen_at is None else f"{sources[0].health} "
        return f"  wandb {health}{silence(sources[0], now)}"
    if well < len(sources):
        return f"  wandb {well}/{len(sources)}{note(sources, now)}"
    return f"  wandb {silence(min(sources, key=lambda source: source.seen_at or 0.0), now)}"


AGE_TEXTS = {"slurm": slurm_words, "wandb": wandb_words}
"""Kinds of source that are shown by their age."""


STEP: Seconds = 5.0
"""Ages are rounded to this: an age that changes every second is most of what an idle screen sends."""


def silence(source: Source, now: Instant) -> str:
    """The age of its last answer, or what is done about a source that never answered."""
    if source.seen_at is None:
        return {"connecting": "connecting", "prompting": "prompting"}.get(source.phase, "never")
    seconds = max(0.0, now - source.seen_at)
    return age(seconds - seconds % STEP if source.kind in AGE_TEXTS and seconds < 60 else seconds)
