"""As much of GraphQL as the wandb client speaks: parse one operation, answer the fields that it selects.

A field that a type does not have is refused, as the real server does: a query that is wrong must not pass here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOKEN = re.compile(
    r'(?:[\s,\ufeff]|#[^\n]*)+|(\.\.\.|[!$():=@\[\]{}|&])|([_A-Za-z]\w*)|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|("(?:[^"\\\n]|\\.)*")'
)

Fields = Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]
"""The fields of one type: what each is of an object and its arguments."""


class QueryRefused(Exception):
    """The words of GraphQL's error."""


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`, where a value stands."""

    name: str


@dataclass(frozen=True, slots=True)
class Selected:
    """One field of a selection; a spread has no name but a fragment."""

    name: str
    alias: str
    arguments: Mapping[str, Any]
    fields: tuple[Selected, ...]
    spread: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """What is asked."""

    kind: str
    """query or mutation."""
    name: str
    fields: tuple[Selected, ...]
    fragments: Mapping[str, tuple[Selected, ...]]
    defaults: Mapping[str, Any]
    """Of its variables."""


def tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise QueryRefused(f"Syntax Error: Unexpected character {text[at]!r}.")
        if token := next((group for group in found.groups() if group), ""):
            yield token
        at = found.end()


class Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._left = [*tokens(text)][::-1]

    def operation(self) -> Operation:
        kind = name = ""
        fields: tuple[Selected, ...] = ()
        defaults: dict[str, Any] = {}
        fragments: dict[str, tuple[Selected, ...]] = {}
        while self._left:
            word = self._next() if self._peek() != "{" else "query"
            if word == "fragment":
                about = self._next()
                self._expect("on")
                self._next()
                fragments[about] = self._fields()
                continue
            kind = word
            name = self._next() if self._peek() not in ("(", "{") else ""
            defaults = self._variables()
            fields = self._fields()
        if not fields:
            raise QueryRefused("Must provide an operation.")
        return Operation(kind, name, fields, fragments, defaults)

    def _variables(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if not self._took("("):
            return found
        while not self._took(")"):
            self._expect("$")
            name = self._next()
            self._expect(":")
            while self._peek() not in ("=", "$", ")"):
                self._next()  # its type
            found[name] = self._value() if self._took("=") else None
        return found

    def _fields(self) -> tuple[Selected, ...]:
        found = []
        self._expect("{")
        while not self._took("}"):
            found.append(self._field())
        return tuple(found)

    def _field(self) -> Selected:
        if self._took("..."):
            if self._took("on"):
                self._next()
                return Selected("", "", {}, self._fields(), spread="")
            return Selected("", "", {}, (), spread=self._next())
        alias = name = self._next()
        if self._took(":"):
            name = self._next()
        arguments = {}
        if self._took("("):
            while not self._took(")"):
                argument = self._next()
                self._expect(":")
                arguments[argument] = self._value()
        fields = self._fields() if self._left and self._peek() == "{" else ()
        return Selected(name, alias, arguments, fields)

    def _value(self) -> Any:
        token = self._next()
        if token == "$":
            return Variable(self._next())
        if token == "[":
            items = []
            while not self._took("]"):
                items.append(self._value())
            return items
        if token == "{":
            members = {}
            while not self._took("}"):
                member = self._next()
                self._expect(":")
                members[member] = self._value()
            return members
        if token[0] == '"':
            return re.sub(r"\\(.)", r"\1", token[1:-1])
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        return {"true": True, "false": False, "null": None}.get(token, token)

    def _peek(self) -> str:
        if not self._left:
            raise QueryRefused("Syntax Error: Unexpected <EOF>.")
        return self._left[-1]

    def _next(self) -> str:
        self._peek()
        return self._left.pop()

    def _took(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._left.pop()
        return True

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            raise QueryRefused(f"Syntax Error: Expected {token!r}, found {found!r}.")


class Execution:
    """Answers one operation from the fields of each type; an object's type is the class of its value."""

    def __init__(self, operation: Operation, variables: Mapping[str, Any], types: Mapping[type, Fields]) -> None:
        self._operation = operation
        self._variables = {**operation.defaults, **variables}
        self._types = types

    def answer(self, root: Any) -> dict[str, Any]:
        return self._object(root, self._operation.fields)

    def _object(self, value: Any, fields: Sequence[Selected]) -> dict[str, Any]:
        known = self._types[type(value)]
        answer: dict[str, Any] = {}
        for field in fields:
            if field.spread is not None:
                answer |= self._object(value, self._spread(field))
            elif field.name == "__typename":
                answer[field.alias] = type(value).__name__
            elif field.name not in known:
                raise QueryRefused(f'Cannot query field "{field.name}" on type "{type(value).__name__}".')
            else:
                arguments = {name: self._filled(argument) for name, argument in field.arguments.items()}
                answer[field.alias] = self._complete(known[field.name](value, arguments), field)
        return answer

    def _spread(self, field: Selected) -> tuple[Selected, ...]:
        if not field.spread:
            return field.fields
        if field.spread not in self._operation.fragments:
            raise QueryRefused(f'Unknown fragment "{field.spread}".')
        return self._operation.fragments[field.spread]

    def _complete(self, value: Any, field: Selected) -> Any:
        if isinstance(value, list) and field.fields:
            return [self._complete(item, field) for item in value]
        if type(value) in self._types:
            if not field.fields:
                raise QueryRefused(f'Field "{field.name}" must have a selection of subfields.')
            return self._object(value, field.fields)
        if field.fields and value is not None:
            raise QueryRefused(f'Field "{field.name}" must not have a selection.')
        return value

    def _filled(self, value: Any) -> Any:
        if isinstance(value, Variable):
            return self._variables.get(value.name)
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if isinstance(value, dict):
            return {name: self._filled(item) for name, item in value.items()}
        return value
