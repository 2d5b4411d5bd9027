"""The raw TOML as Settings, or a sentence for every mistake in it: file, table, setting, and the nearest valid one."""

from __future__ import annotations

import typing
from collections.abc import Iterable

import msgspec

from trainmon.config.schema import Settings
from trainmon.config.table import Table
from trainmon.config.types import InvalidValue, ValueType, describe, did_you_mean, quoted
from trainmon.config.validate import conflicts

NAMED_BY = ("name", "type", "path", "run")
"""The settings that tell one table of a list from the next, best first."""

COMPARED = ("name", "cluster", "login", "nodes", "pattern", "at", "from")
"""The settings by which tables are compared with each other: without them, more mistakes would be seen than made."""


def decode(raw: dict[str, object], file: str) -> tuple[Settings | None, list[str]]:
    """Read a whole config. Settings are None when there is any problem."""
    walk = _Walk()
    values = walk.table(raw, Settings, where="", prefix="")
    problems = walk.problems
    if not walk.lost_values:
        settings = msgspec.convert(values, Settings)
        problems = [*problems, *conflicts(settings)]
        if not problems:
            return settings, []
    return None, [f"{file}: {problem}" for problem in problems]


class _Walk:
    """One walk over the raw tables beside the structs that they should become."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.lost_values = False
        """Whether a value is missing or unusable, so that the tables cannot be compared with each other."""

    def table(self, raw: dict[str, object], struct: type[Table], *, where: str, prefix: str) -> dict[str, object]:
        fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
        known = fields | {old: fields[new] for old, new in struct.aliases.items()}
        values: dict[str, object] = {}
        for key, value in raw.items():
            if key in known:
                self.setting(values, key, value, known[key].type, where=where, prefix=prefix)
            else:
                names = [prefix + name for name in fields]
                hint = did_you_mean(prefix + key, names) or f"; there is {', '.join(names)}"
                self.problem(where, f"no setting {quoted(prefix + key)}{hint}")
        for old, new in struct.aliases.items():
            if old in raw and new in raw:
                self.problem(where, f"{quoted(prefix + old)} is the old name of {quoted(prefix + new)}: write only one")
            elif old in values:
                values[new] = values.pop(old)
        for key, field in fields.items():
            if field.required and key not in raw:
                self.lose(where, f"{quoted(prefix + key)} is missing")
            self.lost_values |= field.required and key not in values
        return values

    def setting(
        self, values: dict[str, object], key: str, value: object, type_: object, *, where: str, prefix: str
    ) -> None:
        struct, many = table_of(type_)
        if struct is None:
            try:
                values[key] = _kind_of(type_).read(value)
            except InvalidValue as wrong:
                # Its default stands in for it, so that the tables can be compared for other mistakes all the same.
                say = self.lose if key in COMPARED else self.problem
                say(where, f"{quoted(prefix + key)} {wrong}")
        elif many:
            values[key] = list(self.tables(key, value, struct))
        elif isinstance(value, dict):
            inside = (where, f"{prefix}{key}.") if where else (f"[{key}]", "")
            values[key] = self.table(value, struct, where=inside[0], prefix=inside[1])
        else:
            self.lose(where, f"{quoted(prefix + key)} must be a table, not {describe(value)}")

    def tables(self, key: str, value: object, struct: type[Table]) -> Iterable[dict[str, object]]:
        if isinstance(value, dict):
            yield from self.listed(value, struct, where=f"[{key}]{_name(value)}")
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            for number, item in enumerate(value, 1):
                yield from self.listed(item, struct, where=f"[[{key}]] #{number}{_name(item)}")
        else:
            self.lose("", f"{quoted(key)} must be a table, [[{key}]], not {describe(value)}")

    def listed(self, raw: dict[str, object], struct: type[Table], *, where: str) -> Iterable[dict[str, object]]:
        """One table of a list, as the kind of table that it is."""
        try:
            chosen = struct.of(raw)
        except InvalidValue as wrong:
            self.lose(where, f'"type" {wrong}')
            return
        yield struct.packed(self.table(raw, chosen, where=where, prefix=""))

    def problem(self, where: str, words: str) -> None:
        self.problems.append(f"{where}: {words}" if where else words)

    def lose(self, where: str, words: str) -> None:
        self.lost_values = True
        self.problem(where, words)


def _name(raw: dict[str, object]) -> str:
    for key in NAMED_BY:
        name = raw.get(key)
        if isinstance(name, str) and name:
            return f" ({quoted(name)[1:-1]})"
    return ""


def _kind_of(type_: object) -> ValueType:
    """How a setting is written, from its annotation: `Duration`, or `Duration | None`."""
    found = find_kind(type_)
    if found is None:
        raise TypeError(f"a setting needs a Kind, and {type_} has none")
    return found


def find_kind(type_: object) -> ValueType | None:
    for item in getattr(type_, "__metadata__", ()):
        if isinstance(item, ValueType):
            return item
    inner = (find_kind(part) for part in typing.get_args(type_))
    return next((kind for kind in inner if kind), None)


def table_of(type_: object) -> tuple[type[Table] | None, bool]:
    """The table that a setting holds, and whether it is a list of them; (None, False) for a plain value."""
    if isinstance(type_, type) and issubclass(type_, Table):
        return type_, False
    for part in typing.get_args(type_):
        if isinstance(part, type) and issubclass(part, Table):
            return part, typing.get_origin(type_) is tuple
    return None, False
