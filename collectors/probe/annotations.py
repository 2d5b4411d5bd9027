"""Types for annotations and type comments. At run time all of them are None: a node never imports typing."""

TYPE_CHECKING = False

__all__ = ["Any", "AnyStr", "Callable", "Iterable", "Iterator", "Line", "Mapping", "Operation", "Pattern"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from re import Pattern
    from typing import Any, AnyStr  # novm for mypy alone

    Line = dict[str, Any]
    Operation = tuple[str, Callable[[], list[Line] | None]]
else:
    globals().update(dict.fromkeys(__all__))
