"""Stand-ins for parts of the standard library that cost a node 1 MiB and more.

The types of annotations and type comments: at run time all of them are None. JSON by the interpreter's own C code,
without the json package, which imports re. And what pynvml takes from threading, string and functools.
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


# ---- JSON ----------------------------------------------------------------------------------------------------------

try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # an interpreter without the accelerator, such as PyPy
    import json

    def to_json(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    def from_json(text: str) -> object:
        return json.loads(text)

else:

    def _refuse(value: object) -> object:
        raise TypeError("%s is no JSON" % type(value))

    _encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
    # The defaults of json.JSONDecoder.
    _scan = make_scanner(
        type(
            "Context",
            (),
            {
                "strict": True,
                "object_hook": None,
                "object_pairs_hook": None,
                "array_hook": None,
                "parse_float": float,
                "parse_int": int,
                "parse_constant": None,
                "memo": {},
            },
        )()
    )

    def to_json(value: object) -> str:
        """One line of JSON, ASCII only: whatever the node's locale is."""
        return "".join(_encode(value, 0))

    def from_json(text: str) -> object:
        """The value that the text begins with.

        Raises:
            ValueError: when it is not JSON.
        """
        try:
            return _scan(text, 0)[0]
        except (StopIteration, SystemError) as error:  # 3.10 and 3.11 look for json.decoder to raise its error
            raise ValueError("not JSON") from error
