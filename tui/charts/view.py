"""The view of charts: by step or by time, the window, smoothing, earlier attempts. Each key returns a new view."""

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
"""The levels of `s`; 0.6 is the default of TensorBoard."""

LEAST_STEPS, LEAST_SECONDS = 10.0, 10.0
"""The narrowest window."""


class View(NamedTuple):
    """The chosen options. All charts share them, so that one step is in the same column of all charts."""

    by_time: bool = False
    log: bool = False
    weight: float = 0.0
    span: Span = "all"
    compare: bool = True
    width: float | None = None
    """The width of the zoomed window in steps or seconds; None: see `span`."""
    end: float | None = None
    """The end of the window; None: it follows the end of the curves."""

    def labels(self) -> tuple[str, ...]:
        """The options as short texts, the most important first."""
        part = SPANS[self.span][1] if self.width is None else "zoomed"
        held = ("held",) if self.end is not None else ()
        return (
            part, *held, "by time" if self.by_time else "by step", *(("log",) if self.log else ()),
            *((f"smooth {self.weight:g}",) if self.weight else ()), *(() if self.compare else ("alone",)),
        )  # fmt: skip

    # ---- keys ----

    def other_axis(self, part: Limits | None) -> View:
        """The same view by the other axis; `part` is its window there, if known."""
        other = self.whole()._replace(by_time=not self.by_time)
        if part is None:
            return other
        return other._replace(width=part.high - part.low, end=None if self.end is None else part.high)

    def smoother(self) -> View:
        return self._replace(weight=WEIGHTS[(WEIGHTS.index(self.weight) + 1) % len(WEIGHTS)])

    def other_span(self) -> View:
        spans = list(SPANS)
        return self.whole()._replace(span=spans[(spans.index(self.span) + 1) % len(spans)])

    def whole(self) -> View:
        return self._replace(width=None, end=None)

    def closer(self, shown: Limits, data: Limits) -> View:
        """Half the window: around its middle, or at the end while it follows the end."""
        least = LEAST_SECONDS if self.by_time else LEAST_STEPS
        width = max((min(shown.high, data.high) - max(shown.low, data.low)) / 2, least)
        return self._replace(width=width, end=None if self.end is None else self.end - width / 2)

    def farther(self, data: Limits) -> View:
        """Twice the window; all, if it is as wide as the curves."""
        if self.width is None:
            return self._replace(span="all")
        width = 2 * self.width
        if width >= data.high - data.low:
            return self.whole()._replace(span="all")
        end = None if self.end is None else self.end + self.width / 2
        return self._replace(width=width)._ending(end, data)

    def moved(self, by: int, shown: Limits, data: Limits) -> View:
        """The window a quarter earlier or later; at the end of the curves, it follows them again."""
        width = self.width if self.width is not None else shown.high - shown.low
        if width >= data.high - data.low:
            return self
        end = (data.high if self.end is None else self.end) + by * width / 4
        return self._replace(width=width)._ending(max(end, data.low + width), data)

    def _ending(self, end: float | None, data: Limits) -> View:
        return self._replace(end=None if end is None or end >= data.high else end)


def reach(copies: Sequence[Copy], *, by_time: bool) -> Limits | None:
    """The range from the first to the last point of these curves."""
    ends = [(xs[0], xs[-1]) for copy in copies if (xs := copy.xs(by_time=by_time))]
    return Limits(min(first for first, _ in ends), max(last for _, last in ends)) if ends else None


def window(view: View, data: Limits, lead: Copy) -> Limits:
    """The visible range of curves with this extent; `lead` converts between steps and times."""
    if view.width is not None:
        end = data.high if view.end is None else view.end
        return Limits(max(data.low, end - view.width), max(end, data.low + view.width))
    seconds, _ = SPANS[view.span]
    if not seconds or not lead.times:
        return data
    since = lead.times[-1] - seconds
    low = since if view.by_time else lead.step_at(since)
    return data if low is None else Limits(min(max(data.low, low), data.high), data.high)
