"""What we tell the child that draws: one picture on its standard input; the PNG comes on its output."""

from __future__ import annotations

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One curve. The numbers are doubles in the machine's order (base64 in JSON)."""

    name: str
    x: bytes
    y: bytes
    is_old: bool = False
    """Of an earlier attempt: it is drawn pale, behind."""


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """One picture."""

    title: str
    across: str
    up: str
    lines: tuple[Line, ...]
