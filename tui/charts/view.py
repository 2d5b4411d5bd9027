"""How charts are looked at: by step or by time, which part, smoothed, with earlier attempts. Keys make another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from trainmon.lib import Seconds
from tui.charts.axes import Limits
from tui.charts.cache import Copy

Span = Literal["all", "day", "hour"]

SPANS: dict[Span, tuple[Seconds, str]] = {
    "all": (0.0, "all"), "day": (86_400.0, "last day"), "hour": (3_600.0, "last hour"),
}  # fmt: skip

WEIGHTS = (0.0, 0.6, 0.9, 0.99)
"""What `o` goes through; 0.6 is where TensorBoard begins."""

LEAST_STEPS, LEAST_SECONDS = 10.0, 10.0
"""Nobody looks closer than this."""


class View(NamedTuple):
    """What the keys have chosen; the same for all charts, so that what happened at one step stands in one column."""

    by_time: bool = False
    log: bool = False
    weight: float = 0.0
    span: Span = "all"
    compare: bool = True
    width: float | None = None
    """Of the window that was zoomed into, in steps or seconds; null: what `span` says."""
    end: float | None = None
    """Where the window ends; null: it follows the end of the curves."""

    @property
    def is_zoomed(self) -> bool:
        return self.width is not None

    def words(self) -> tuple[str, ...]:
        """What is not as it was at the start, in words; the most important first."""
        part = "zoomed" if self.is_zoomed else SPANS[self.span][1]
        held = ("held",) if self.end is not None else ()
        return (
            part, *held, "by time" if self.by_time else "by step", *(("log",) if self.log else ()),
            *((f"smooth {self.weight:g}",) if self.weight else ()), *(() if self.compare else ("alone",)),
        )  # fmt: skip

    # ---- keys ----

    def other_axis(self, part: Limits | None) -> View:
        """The same by the other axis; `part` is what a window is there, where that is known."""
        other = self.whole()._replace(by_time=not self.by_time)
        if part is None:
            return other
        return other._replace(width=part.high - part.low, end=None if self.end is None else part.high)

    def other_scale(self) -> View:
        return self._replace(log=not self.log)

    def smoother(self) -> View:
        return self._replace(weight=WEIGHTS[(WEIGHTS.index(self.weight) + 1) % len(WEIGHTS)])

    def other_span(self) -> View:
        spans = list(SPANS)
        return self.whole()._replace(span=spans[(spans.index(self.span) + 1) % len(spans)])

    def compared(self) -> View:
        return self._replace(compare=not self.compare)

    def whole(self) -> View:
        return self._replace(width=None, end=None)

    def closer(self, shown: Limits, data: Limits) -> View:
        """Half of it: about the middle, or about the end while that is followed."""
        least = LEAST_SECONDS if self.by_time else LEAST_STEPS
        width = max((min(shown.high, data.high) - max(shown.low, data.low)) / 2, least)
        return self._replace(width=width, end=None if self.end is None else self.end - width / 2)

    def farther(self, data: Limits) -> View:
        """Twice as much; whatever is as wide as the curves is all of them."""
        if self.width is None:
            return self._replace(span="all")
        width = 2 * self.width
        if width >= data.high - data.low:
            return self.whole()._replace(span="all")
        end = None if self.end is None else self.end + self.width / 2
        return self._replace(width=width)._ending(end, data)

    def moved(self, by: int, shown: Limits, data: Limits) -> View:
        """A quarter of the window earlier or later; at the end of the curves it follows them again."""
        width = self.width if self.width is not None else shown.high - shown.low
        if width >= data.high - data.low:
            return self
        end = (data.high if self.end is None else self.end) + by * width / 4
        return self._replace(width=width)._ending(max(end, data.low + width), data)

    def _ending(self, end: float | None, data: Limits) -> View:
        return self._replace(end=None if end is None or end >= data.high else end)


def reach(copies: Sequence[Copy], *, by_time: bool) -> Limits | None:
    """From the first point of these curves to the last of all."""
    ends = [(xs[0], xs[-1]) for copy in copies if (xs := copy.xs(by_time=by_time))]
    return Limits(min(first for first, _ in ends), max(last for _, last in ends)) if ends else None


def window(view: View, data: Limits, lead: Copy) -> Limits:
    """What is to be seen of curves that reach so far; `lead` knows which step an hour ago was."""
    if view.width is not None:
        end = data.high if view.end is None else view.end
        return Limits(max(data.low, end - view.width), end)
    seconds, _ = SPANS[view.span]
    if not seconds or not lead.times:
        return data
    since = lead.times[-1] - seconds
    low = since if view.by_time else lead.step_at(since)
    return data if low is None else Limits(min(max(data.low, low), data.high), data.high)
