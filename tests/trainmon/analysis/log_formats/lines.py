"""The written example lines: files of `line` and `=> field=value …`, one file a format; `\\e` stands for ESC."""

from __future__ import annotations

from pathlib import Path

WRITTEN = Path(__file__).parents[3] / "written" / "steps"


def examples(name: str) -> list[tuple[str, str]]:
    """The (line, expected) pairs of one format."""
    pairs, line = [], ""
    for row in (WRITTEN / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if row.startswith("=> "):
            pairs.append((line.replace("\\e", "\x1b"), row[3:]))
        elif not row.startswith("# "):
            line = row
    return pairs


def innocents() -> list[str]:
    """Lines that are no step line of anything."""
    return (WRITTEN / "innocent.txt").read_text(encoding="utf-8").splitlines()
