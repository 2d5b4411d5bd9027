"""The tables of the config as structs, and the value type of each setting."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from trainmon.config.types import (
    BY_NAME,
    InvalidValue,
    ValueType,
    describe,
    did_you_mean,
    expecting,
    one_of,
    parse_number,
    parse_text,
    parse_texts,
    quoted,
    whole_number,
)

PLAIN: dict[object, ValueType] = {
    bool: ValueType("true or false", expecting("true or false", lambda value: isinstance(value, bool))),
    int: ValueType("a whole number", whole_number(0)),
    float: ValueType("a number", parse_number),
    str: ValueType("a string", parse_text),
    tuple[str, ...]: ValueType("a list of strings", parse_texts),
    tuple[int, ...]: ValueType(
        "a list of whole numbers",
        expecting(
            "a list of whole numbers such as [48, 79]",
            lambda value: isinstance(value, list) and all(type(item) is int for item in value),
        ),
    ),
}


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the config."""

    aliases: ClassVar[Mapping[str, str]] = {}
    """Old names of settings that are still read, and the names that they have now."""

    @classmethod
    def settings(cls, raw: Mapping[str, object]) -> Sequence[msgspec.structs.FieldInfo]:
        """The settings that a raw table may have. They may depend on its `type`.

        Raises:
            InvalidValue: when the `type` is unknown.
        """
        return msgspec.structs.fields(cls)

    @classmethod
    def pack(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The parsed settings as the fields of this struct."""
        return values


def type_name(raw: Mapping[str, object], names: Iterable[str], noun: str, expected: str, otherwise: str) -> str:
    """The `type` of a raw table, which is one of these names.

    Raises:
        InvalidValue: when it is missing or unknown.
    """
    name = raw.get("type")
    if name is None:
        raise InvalidValue(f"is missing: it names the {noun}")
    if not isinstance(name, str):
        raise InvalidValue(f"must be {expected} in quotes, not {describe(name)}")
    if name not in names:
        raise InvalidValue(f"is {quoted(name)}, which is not a {noun}{did_you_mean(name, names) or otherwise}")
    return name


def value_type(annotation: object) -> ValueType:
    """The value type of a setting with this annotation: `Duration | None`, `Literal["a", "b"]`, `bool`.

    Raises:
        TypeError: when the config cannot write a value of this type.
    """
    for item in getattr(annotation, "__metadata__", ()):
        if isinstance(item, ValueType):
            return item
        if item in BY_NAME:
            return BY_NAME[item]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return value_type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return value_type(next(part for part in arguments if part is not types.NoneType))
    if origin is Literal:
        return one_of(*arguments)
    if annotation not in PLAIN:
        raise TypeError(f"the config cannot write a setting of type {annotation}")
    return PLAIN[annotation]


def table_of(annotation: object) -> tuple[type[Table] | None, bool]:
    """The table that a setting holds, and whether it is a list of them; (None, False) for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation, False
    for part in typing.get_args(annotation):
        if isinstance(part, type) and issubclass(part, Table):
            return part, typing.get_origin(annotation) is tuple
    return None, False
