"""The three things that pynvml takes from modules that cost a node 1.3 MiB (threading, string, functools)."""

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


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
