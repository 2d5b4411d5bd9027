"""Everything known of one run, as lines: the third column of a wide screen, and what Enter opens on a narrow one."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.clock import Instant
from trainmon.model import Run, State, Switch
from trainmon.text import clean, keep_end, shorten
from tui.format import VERDICTS, age, count, duration, eta, real, short, since
from tui.lines import Row, Span
from tui.panes.base import Pane
from tui.reading import Reading

LABEL = 14


class RunPane(Pane):
    """The selected run's numbers, switches, log and nodes."""

    NAME = "Run"

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.lines = Reading()
        self.run: str | None = None

    def on_mount(self) -> None:
        self.heads.display = False

    def follow_run(self, name: str | None) -> None:
        """Show this run from now on."""
        if name != self.run:
            self.run = name
            self.again()

    def copy_text(self) -> str | None:
        """Where its log is, else its name."""
        run = None if self.state is None else self.state.runs.get(self.run or "")
        return self.run if run is None or run.log is None or run.log.path is None else f"{run.log.host}:{run.log.path}"

    def draw(self, state: State, width: int) -> None:
        run = state.runs.get(self.run or "")
        self.caption(clean(run.name) if run is not None else "")
        if run is None:
            self.say(
                ("No run is selected." if self.run is None else f"{clean(self.run)} is not watched any more.", "dim")
            )
            return
        self.lines.set_rows([Row(str(n), spans) for n, spans in enumerate(lines(run, state, state.at, width))])


def lines(run: Run, state: State, now: Instant, width: int) -> Iterator[tuple[Span, ...]]:
    """The lines, each at most `width` cells where it can be cut."""
    symbol, look = VERDICTS[run.verdict]
    yield (Span(f"{symbol} {run.verdict}", f"{look} bold"),)
    for piece in wrapped(clean(run.why), width):
        yield (Span(piece),)
    yield ()
    yield from numbers(run, now)
    yield ()
    yield switch("kill", run.kill, now)
    yield switch("save", run.save, now)
    yield ()
    yield from where(run, now, width)
    yield ()
    yield from nodes(run, state, width)


def pair(label: str, text: str, look: str = "") -> tuple[Span, ...]:
    return (Span(label.ljust(LABEL), "dim"), Span(text, look))


def numbers(run: Run, now: Instant) -> Iterator[tuple[Span, ...]]:
    progress = run.progress
    target = "" if progress.target_step is None else f" of {count(progress.target_step)}"
    yield pair("step", count(progress.step) + target)
    yield pair("last step", since(progress.at, now) + (" ago" if progress.at is not None else ""))
    yield pair("usually", "every " + duration(progress.cadence_s) if progress.cadence_s is not None else "?")
    yield pair("left", eta(run.eta_at, now))
    yield pair("loss", real(progress.loss))
    yield pair("grad norm", real(progress.grad_norm))
    yield pair("learning rate", real(progress.learning_rate))
    yield pair("tokens/s", short(progress.tokens_per_s))
    if progress.samples_per_s is not None:
        yield pair("samples/s", short(progress.samples_per_s))
    yield pair("step time", duration(progress.step_time_s))
    if progress.skipped:
        yield pair("skipped", f"{count(progress.skipped)} iterations!", "warn")
    if progress.nan_iterations:
        yield pair("nan", f"{count(progress.nan_iterations)} iterations!", "crit")


def switch(name: str, found: Switch | None, now: Instant) -> tuple[Span, ...]:
    """One switch file: armed since when and by whom, taken, absent, or not known."""
    label = f"{name} switch"
    if found is None:
        return pair(label, "not configured", "dim")
    if found.error is not None or found.exists is None:
        return pair(label, f"? {clean(found.error or '')}".rstrip(), "dim")
    if found.exists:
        by = f" by {clean(found.by)}" if found.by else ""
        why = f": {clean(found.why)}" if found.why else ""
        return pair(label, f"ARMED {since(found.armed_at, now)} ago{by}{why}", "crit" if name == "kill" else "warn")
    if found.taken_at is not None:
        return pair(label, f"taken {since(found.taken_at, now)} ago", "ok")
    return pair(label, "not armed")


def where(run: Run, now: Instant, width: int) -> Iterator[tuple[Span, ...]]:
    """The log: its place, its age, its pace, its format."""
    if run.log is None:
        yield pair("log", "none configured", "dim")
        return
    yield pair("log", keep_end(clean(f"{run.log.host}:{run.log.path or '?'}"), width - LABEL))
    pace = "" if run.log.lines_per_s is None else f", {run.log.lines_per_s:.1f} lines/s"
    yield pair("last line", since(run.log.at, now) + (" ago" if run.log.at is not None else "") + pace)
    yield pair("format", clean(run.progress.format or "?"))
    if run.log.error:
        yield pair("error", clean(run.log.error), "warn")


def nodes(run: Run, state: State, width: int) -> Iterator[tuple[Span, ...]]:
    """Its nodes, each with its source's health and its hottest GPU."""
    if not run.spec.nodes:
        yield pair("nodes", "-", "dim")
    for number, name in enumerate(run.spec.nodes):
        label = "nodes" if number == 0 else ""
        source, node = state.sources.get(f"node:{name}"), state.nodes.get(name)
        if source is None or node is None or source.health != "ok":
            seen = source.seen_at if source is not None else None
            heard = f"heard {age(state.at - seen)} ago" if seen is not None else "not heard"
            yield (
                Span(label.ljust(LABEL), "dim"),
                Span(shorten(clean(name), width - LABEL - 12)),
                Span(f"  {heard}", "warn"),
            )
            continue
        hot = max((gpu.temperature_c for gpu in node.gpus if gpu.temperature_c is not None), default=None)
        lost = sum(gpu.state != "ok" for gpu in node.gpus)
        words = f"  {len(node.gpus)} GPUs" + (f"  max {hot}°C" if hot is not None else "")
        yield (
            Span(label.ljust(LABEL), "dim"), Span(shorten(clean(name), width - LABEL - 20)), Span(words, "dim"),
            Span(f"  {lost} lost or in error!" if lost else "", "crit"),
        )  # fmt: skip


def wrapped(text: str, width: int) -> list[str]:
    """A sentence over several lines, broken at spaces."""
    pieces: list[str] = [""]
    for word in text.split():
        if pieces[-1] and len(pieces[-1]) + 1 + len(word) > width:
            pieces.append(word)
        else:
            pieces[-1] = f"{pieces[-1]} {word}".strip()
    return [shorten(piece, width) for piece in pieces]
