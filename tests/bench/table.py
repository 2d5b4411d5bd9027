"""How the benchmarks print: a table with the goal and the peer beside each number."""

from __future__ import annotations

from collections.abc import Sequence


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one table to standard output."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for line in (head, ["-" * width for width in widths], *rows):
        print("  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def status(*measured: tuple[float, float]) -> int:
    """The exit status of a benchmark: 1 when a number is above its goal."""
    return int(any(number > most for number, most in measured))


def ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}x" if theirs else "-"
