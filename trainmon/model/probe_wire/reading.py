"""What all lines of a probe have."""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1


class Reading(msgspec.Struct, frozen=True, tag_field="k", gc=False):
    """One line of a probe, at the node's own time `t` (Unix seconds)."""

    v: Literal[1]
    t: float
