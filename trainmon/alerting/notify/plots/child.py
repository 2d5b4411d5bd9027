"""The child process that draws plots: numbers on standard input, a PNG on standard output."""

from __future__ import annotations

import io
import sys
from typing import Any

import msgspec

from trainmon.alerting.notify.plots.wire import Drawing, Line

POINTS = 4_000
"""More than a phone has pixels; of more, the least and the most of each stretch are drawn, so that no spike is lost."""
SIZE = (8.0, 4.5)
DPI = 100
OLD, NEW = "#b0b7c3", "#1f6feb"
LOW, HIGH = 0.5, 99.5
"""Per cent of the values between which the axis is: one spike would press all else flat."""


def main() -> None:
    """Draw the picture that comes."""
    drawing = msgspec.json.decode(sys.stdin.buffer.read(), type=Drawing)
    sys.stdout.buffer.write(drawn(drawing))


def drawn(drawing: Drawing) -> bytes:
    """The picture as a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    axes = figure.subplots()
    shown = []
    for line in drawing.lines:
        x, y = _points(line)
        axes.plot(
            x, y, color=OLD if line.is_old else NEW, linewidth=1.0 if line.is_old else 1.4, label=_label(line.name)
        )
        shown.append(y)
    _frame(axes, shown)
    axes.set_title(_plain(drawing.title), fontsize=11)
    axes.set_xlabel(_plain(drawing.across))
    axes.set_ylabel(_plain(drawing.up))
    axes.grid(visible=True, alpha=0.3)
    if len(drawing.lines) > 1:
        axes.legend(fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def _plain(text: str) -> str:
    """Without matplotlib's own mathematics between dollars."""
    return text.replace("$", r"\$")


def _label(name: str) -> str:
    """One that is shown: matplotlib takes what begins with an underscore for its own."""
    return _plain(name).lstrip("_") or "run"


def _points(line: Line) -> tuple[Any, Any]:
    import numpy as np

    x, y = np.frombuffer(line.x), np.frombuffer(line.y)
    width = -(-2 * len(x) // POINTS)
    if width <= 2:
        return x, y
    kept: list[int] = []
    for start in range(0, len(x), width):
        stretch = y[start : start + width]
        fine = np.isfinite(stretch)
        if fine.any():
            low, high = np.where(fine, stretch, np.inf).argmin(), np.where(fine, stretch, -np.inf).argmax()
            kept += sorted({start + int(low), start + int(high)})
        if not fine.all():
            kept.append(start + int(np.argmin(fine)))  # a hole stays one
    places = np.array(sorted(set(kept)))
    return x[places], y[places]


def _frame(axes: Any, shown: list[Any]) -> None:
    """The axis as the values mostly are, with the last one on it."""
    import numpy as np

    values = np.concatenate(shown) if shown else np.array([])
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return
    low, high = np.percentile(values, [LOW, HIGH])
    low, high = min(low, values[-1]), max(high, values[-1])
    room = (high - low) * 0.06 or abs(high) * 0.06 or 1.0
    axes.set_ylim(low - room, high + room)


if __name__ == "__main__":
    main()
