"""What a table of the config is. Some lists hold tables of several kinds: `type` says which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the config."""

    aliases: ClassVar[Mapping[str, str]] = {}
    """Old names of settings that are still read, and the names that they have now."""

    @classmethod
    def of(cls, raw: Mapping[str, object]) -> Chosen:
        """The table whose settings these may be: this one, or the one of that `type`. Raises Wrong, which ends a
        sentence that begins with "type"."""
        return cls

    @classmethod
    def packed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values that were read, as this table holds them."""
        return values


Chosen = type[Table]
"""A table of the config, by itself: a struct may have a field called `type`."""
