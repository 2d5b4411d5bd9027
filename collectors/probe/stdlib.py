"""Stand-ins for parts of the standard library that cost a node 1.3 MiB and more.

The types of annotations and type comments: at run time all of them are None. And what pynvml takes from threading,
string and functools.
"""

import _thread

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


class threading:  # noqa: N801 the name that pynvml uses
    """Of the module of that name: what pynvml guards its loading with."""

    Lock = _thread.allocate_lock


class string:  # noqa: N801 the name that pynvml uses
    """Of the module of that name: what pynvml makes its exceptions' names with."""

    @staticmethod
    def capwords(text: str, separator: "str | None" = None) -> str:
        return (separator or " ").join(word.capitalize() for word in text.split(separator))


def wraps(function: "Callable[..., Any]") -> "Callable[[Callable[..., Any]], Callable[..., Any]]":
    """A decorator's decorator that leaves the wrapper as it is: nothing uses its name."""
    return lambda wrapper: wrapper
