"""Decodes raw TOML into Settings, or into a sentence per mistake: file, table, setting, and the nearest valid name."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainmon.config.schema import Settings
from trainmon.config.table import Table, table_of, value_type
from trainmon.config.types import InvalidValue, describe, did_you_mean, quoted
from trainmon.config.validate import conflicts

NAMED_BY = ("name", "type", "path", "run")
"""The settings that identify a table of a list in messages, best first."""

COMPARED = ("name", "cluster", "login", "nodes", "pattern", "at", "from")
"""The settings by which tables are compared with each other. Comparing without them would report false mistakes."""


def decode(raw: dict[str, object], file: str) -> tuple[Settings | None, list[str]]:
    """The settings of a raw config and the problems found in it. The settings are None when there is any problem."""
    decoder = _Decoder()
    values = decoder.table(raw, Settings, where="", prefix="")
    problems = decoder.problems
    if not decoder.lost_values:
        settings = msgspec.convert(values, Settings)
        problems = [*problems, *conflicts(settings)]
        if not problems:
            return settings, []
    return None, [f"{file}: {problem}" for problem in problems]


class _Decoder:
    """Walks over the raw tables and the structs that they should become, and collects the problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.lost_values = False
        """Whether a value is missing or unusable, so that the tables cannot be compared with each other."""

    def table(self, raw: dict[str, object], struct: type[Table], *, where: str, prefix: str) -> dict[str, object]:
        fields = {field.encode_name: field for field in struct.settings(raw)}
        known = fields | {old: fields[new] for old, new in struct.aliases.items() if new in fields}
        values: dict[str, object] = {}
        for key, value in raw.items():
            if key in known:
                self.setting(values, key, value, known[key].type, where=where, prefix=prefix)
            else:
                names = [prefix + name for name in fields]
                hint = did_you_mean(prefix + key, names) or f"; the settings are {', '.join(names)}"
                self.problem(where, f"unknown setting {quoted(prefix + key)}{hint}")
        for old, new in struct.aliases.items():
            if old in raw and new in raw:
                self.problem(
                    where, f"{quoted(prefix + old)} is the old name of {quoted(prefix + new)}; remove one of them"
                )
            elif old in values:
                values[new] = values.pop(old)
        for key, field in fields.items():
            if field.required and key not in raw:
                self.report_lost(where, f"{quoted(prefix + key)} is missing")
            self.lost_values |= field.required and key not in values
        return values

    def setting(
        self, values: dict[str, object], key: str, value: object, type_: object, *, where: str, prefix: str
    ) -> None:
        struct, many = table_of(type_)
        if struct is None:
            try:
                values[key] = value_type(type_).parse(value)
            except InvalidValue as wrong:
                # The default replaces it, so that the tables can still be compared for other mistakes.
                report = self.report_lost if key in COMPARED else self.problem
                report(where, f"{quoted(prefix + key)} {wrong}")
        elif many:
            values[key] = list(self.tables(key, value, struct, where))
        elif isinstance(value, dict):
            inner, prefix = (where, f"{prefix}{key}.") if where else (f"[{key}]", "")
            values[key] = struct.pack(self.table(value, struct, where=inner, prefix=prefix))
        else:
            self.report_lost(where, f"{quoted(prefix + key)} must be a table, not {describe(value)}")

    def tables(self, key: str, value: object, struct: type[Table], parent: str) -> Iterable[dict[str, object]]:
        """The tables of a list, without those of an unknown type. `parent`: the table that holds the list, or empty."""
        one, several = (f"{parent}: {key}", f"{parent}: {key}") if parent else (f"[{key}]", f"[[{key}]]")
        items = {one: value}
        if isinstance(value, list):
            items = {f"{several} #{number}": item for number, item in enumerate(value, 1)}
        if not all(isinstance(item, dict) for item in items.values()):
            written = f"{{ {struct.__struct_fields__[0]} = … }}" if parent else several
            self.report_lost(parent, f"{quoted(key)} must be a table, {written}, not {describe(value)}")
            return
        for location, item in items.items():
            assert isinstance(item, dict)
            name = next((item[key] for key in NAMED_BY if isinstance(item.get(key), str) and item[key]), None)
            where = location if name is None else f"{location} ({quoted(name)[1:-1]})"
            try:
                values = self.table(item, struct, where=where, prefix="")
            except InvalidValue as wrong:
                self.report_lost(where, f'"type" {wrong}')
            else:
                yield struct.pack(values)

    def problem(self, where: str, text: str) -> None:
        self.problems.append(f"{where}: {text}" if where else text)

    def report_lost(self, where: str, text: str) -> None:
        self.lost_values = True
        self.problem(where, text)
