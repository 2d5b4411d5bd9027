"""The child process that draws a plot: a request on standard input, a PNG on standard output."""

from __future__ import annotations

import io
import sys
from typing import Any

import msgspec

OLD, NEW = "#b0b7c3", "#1f6feb"
LOW, HIGH = 0.5, 99.5
"""The percentiles that the y axis shows: one spike would flatten the rest of the curve."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One curve. The numbers are doubles in the machine's byte order (base64 in JSON)."""

    name: str
    x: bytes
    y: bytes
    is_old: bool = False
    """An earlier attempt is drawn pale, behind the current one."""


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A plot to draw."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]


def main() -> None:
    """Draw the plot on standard input."""
    sys.stdout.buffer.write(draw(msgspec.json.decode(sys.stdin.buffer.read(), type=Plot)))


def draw(plot: Plot) -> bytes:
    """The plot as a PNG."""
    import matplotlib as mpl
    import numpy as np

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), dpi=100, layout="constrained")
    axes = figure.subplots()
    values = []
    for line in plot.lines:
        x, y = np.frombuffer(line.x), np.frombuffer(line.y)
        label = _plain(line.name).lstrip("_") or "run"  # matplotlib hides labels that begin with an underscore
        axes.plot(x, y, color=OLD if line.is_old else NEW, linewidth=1.0 if line.is_old else 1.4, label=label)
        values.append(y)
    _set_y_limits(axes, values)
    axes.set_title(_plain(plot.title), fontsize=11)
    axes.set_xlabel(_plain(plot.x_label))
    axes.set_ylabel(_plain(plot.y_label))
    axes.grid(visible=True, alpha=0.3)
    if len(plot.lines) > 1:
        axes.legend(fontsize=8)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return image.getvalue()


def _plain(text: str) -> str:
    """The text without mathematics, which matplotlib reads between dollars."""
    return text.replace("$", r"\$")


def _set_y_limits(axes: Any, lines: list[Any]) -> None:
    """Show most of the values, and the last one."""
    import numpy as np

    values = np.concatenate(lines) if lines else np.array([])
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return
    low, high = np.percentile(values, [LOW, HIGH])
    low, high = min(low, values[-1]), max(high, values[-1])
    margin = (high - low) * 0.06 or abs(high) * 0.06 or 1.0
    axes.set_ylim(low - margin, high + margin)


if __name__ == "__main__":
    main()
