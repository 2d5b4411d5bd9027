"""Decoders of JSON that threads may share.

msgspec learns the fields of a type at its first use. A thread that decodes the type in the meantime reads a null
pointer, and the process dies (msgspec 0.22; tests/trainmon/lib/test_decoding.py shows it).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

Kind = TypeVar("Kind")

_lock = threading.Lock()
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[Kind]) -> msgspec.json.Decoder[Kind]:
    """The decoder of a type. It is built once, by one thread at a time."""
    with _lock:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        return _decoders[kind]


def converted(values: Mapping[str, Any], kind: type[Kind]) -> Kind:
    """The values as this type.

    Raises: msgspec.ValidationError.
    """
    decoder(kind)
    return msgspec.convert(values, kind)
