"""Generates parts of docs/ from the code: `python -m tests.docs --check` or `--write`."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from tests.end_to_end.contract import SNAPSHOT
from trainmon.actions.verbs import VERBS
from trainmon.alerting.rules import RULES, Rule
from trainmon.analysis.causes.rules import RULE
from trainmon.cli import commands as cli
from trainmon.cli.alerts import written
from trainmon.cli.commands import COMMON, EXITS
from trainmon.config import CHANNEL_TYPES, ChannelSettings, Settings, Table, ValueType, table_of, value_type
from trainmon.config.schema import RetrySettings
from trainmon.lib import description, field_descriptions
from trainmon.model import CAUSES
from tui.keys import EVERYWHERE, KEYS, SHOWN_AT
from tui.screens.help import COLUMNS, SIGNS, TITLES

FOLDER = Path(__file__).parent.parent / "docs"
ELSEWHERE = {
    "rule": "See [rules](rules.md) for the settings of each rule.",
    "notify": "See [channels](channels.md) for the settings of each channel type.",
}
"""Tables whose settings depend on their type."""

FAMILIES = {
    "runs": "Run rules",
    "gpus": "GPU rules",
    "nodes": "Node rules",
    "disks": "Disk rules",
    "ourselves": "Monitoring rules",
}
HELD = ("for_", "keep_firing_for")
"""The fields of all rules whose defaults differ by rule."""
OF_EVERY_RULE = tuple(field.name for field in msgspec.structs.fields(Rule))


def parts() -> dict[str, dict[str, Callable[[], str]]]:
    """The generated parts, by page and by the name in their markers."""
    return {
        "reference/rules.md": {"rules": rules},
        "reference/channels.md": {"channels": channels},
        "reference/causes.md": {"causes": causes},
        "reference/commands.md": {"commands": commands},
        "reference/configuration.md": {"config": config},
        "reference/log-formats.md": {"formats": formats},
        "reference/keys.md": {"keys": keys},
        "reference/symbols.md": {"symbols": symbols, "columns": columns},
        "reference/snapshot-json.md": {"fields": snapshot_fields},
    }


def renewed(page: str, text: str) -> str:
    """A page with its generated parts renewed. A missing marker is an error."""
    for name, make in parts()[page].items():
        part = make().strip()
        marked = re.compile(rf"(<!-- {name}: made by tests.docs -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text, found = marked.subn(lambda match, part=part: f"{match[1]}\n{part}\n\n{match[2]}", text)  # type: ignore[misc]
        if found != 1:
            raise SystemExit(f"{page}: there must be one <!-- {name}: made by tests.docs --> part, not {found}")
    return text


def causes() -> str:
    """Every cause: what it means, what to do, and whether a retry can help."""
    rows = [
        f"| `{cause}` | {one.family} | {cell(one.meaning)} | {cell(one.advice)} | {one.retry} |"
        for cause, one in ((cause, RULE[cause]) for cause in CAUSES)
    ]
    head = ["| cause | family | what it means | what to do | retry |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows])


# ---- rules and channels ----------------------------------------------------------------------------------------------


def rules() -> str:
    """Every rule, by family: what it detects, and its settings."""
    sections = [f"### Settings of every rule\n\n{grid(_row(Rule, field) for field in msgspec.structs.fields(Rule))}"]
    for family, group in itertools.groupby(RULES, key=lambda rule: rule.family):
        found = list(group)
        lines = ["| rule | what it detects | for | keep firing for |", "|---|---|---|---|"]
        for rule in found:
            known = {field.name: field for field in msgspec.structs.fields(rule)}
            for_, keep_firing_for = (default_of(known[name]) for name in HELD)
            lines.append(f"| `{rule.name}` | {cell(rule.what)} | {for_} | {keep_firing_for} |")
        own = [row for rule in found for row in _own_rows(rule)]
        if own:
            lines += ["", "| rule | setting | default | meaning |", "|---|---|---|---|", *own]
        sections.append("\n".join([f"### {FAMILIES[family]}", "", *lines]))
    return "\n\n".join(sections)


def _own_rows(rule: type[Rule]) -> Iterator[str]:
    for field in msgspec.structs.fields(rule):
        if field.name not in OF_EVERY_RULE:
            meaning = cell(field_descriptions(rule)[field.name])
            yield f"| `{rule.name}` | `{field.name}` | {default_of(field)} | {meaning} |"


def channels() -> str:
    """Every kind of channel, and its settings."""
    sections = ["### Settings of every channel\n\n" + _channel(ChannelSettings)]
    sections += [
        f"### `{name}`\n\n{description(table)}\n\n{_channel(table)}".strip() for name, table in CHANNEL_TYPES.items()
    ]
    return "\n\n".join(sections)


def _channel(table: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(table)
    return grid(_row(table, field) for field in fields) if fields else ""


def _row(table: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> str:
    default = "see below" if table is Rule and field.name in HELD else default_of(field)
    meaning = cell(field_descriptions(table)[field.name])
    return f"| `{field.encode_name}` | {default} | {_format(value_type(field.type))} | {meaning} |"


def _format(kind: ValueType) -> str:
    """How a value is written. The page of the configuration shows durations once."""
    return cell(re.sub(r"^a duration: .*", "a duration", kind.description))


def grid(rows: Iterable[str]) -> str:
    """A table of settings."""
    return "\n".join(["| setting | default | format | meaning |", "|---|---|---|---|", *rows])


def cell(text: str) -> str:
    """A text inside a table of Markdown."""
    return text.replace("|", "\\|")


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """A setting's default as the config accepts it; empty where there is none."""
    if field.required:
        return "required"
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    text = written(value_type(field.type), default)
    return f"`{text}`" if text else ""


# ---- commands and keys ----------------------------------------------------------------------------------------------


OPTIONS = ("| option | meaning |", "|---|---|")
SHARED = ("config", "ssh_config")
"""Options that mean the same everywhere."""
USUAL_EXITS = re.compile(r"Exit status: 0 \w+, 2 a usage (or config )?error\.")
"""What the page says once of all commands."""


def commands() -> str:
    """Every command, in the order of the help: its usage, help, examples and options."""
    shared = "\n".join([*OPTIONS, *_options(one for one in COMMON if one.name in SHARED)])
    head = f"Most commands have these options. They are not repeated below.\n\n{shared}"
    parts = [head, _section(cli.COMMANDS[cli.DASHBOARD], cli.DASHBOARD)]
    for purpose, group in cli.GROUPS.items():
        parts.append(f"## {purpose}")
        parts += [_acting()] if group is cli.ACTING else [_section(one, one.name or "") for one in group]
    return "\n\n".join(parts)


def _acting() -> str:
    """The commands that act: they share most of their options."""
    acting = cli.ACTING
    rows = [
        f"| `{cell(_usage(command.name or '', command.params[: -len(COMMON)]))}` | {cell(command.short_help or '')} |"
        for command in acting
    ]
    examples = "".join(f"trainmon-tui {one.name} {one.example}\n" for one in VERBS if one.usage)
    own = {row: None for command in acting for row in _options(command.params[: -len(COMMON)])}
    return (
        "\n".join(["| command | what it does |", "|---|---|", *rows])
        + f"\n\n```sh\n{examples}```\n\n{_flat(EXITS)}\n\n"
        + "\n".join([*OPTIONS, *own, *_options(one for one in COMMON if one.name not in SHARED)])
    )


def _section(command: click.Command, name: str) -> str:
    shown = [one for one in command.params if one.required or one.name in SHARED or isinstance(one, click.Argument)]
    usage = _usage("" if name == cli.DASHBOARD else name, shown)
    usage += " [OPTION…]" if len(shown) < len(command.params) else ""
    title = "trainmon-tui" if name == cli.DASHBOARD else f"trainmon-tui {name}"
    parts = map(_paragraph, inspect.cleandoc(command.help or "").split("\n\n"))
    text = "\n\n".join(part for part in parts if not USUAL_EXITS.fullmatch(part))
    options = [*_options(one for one in command.params if one.name not in SHARED)]
    table = "\n".join([*OPTIONS, *options])
    return f"### `{title}`\n\n```\n{usage}\n```\n\n{text}" + (f"\n\n{table}" if options else "")


def _paragraph(text: str) -> str:
    """A paragraph after click's \\b has a heading, and examples that keep their lines."""
    if not text.startswith("\b"):
        return _flat(text)
    heading, *lines = text.removeprefix("\b\n").splitlines()
    return "\n".join(
        [*([heading, ""] if not heading.startswith("Example") else []), "```sh", *map(str.strip, lines), "```"]
    )


def _flat(text: str) -> str:
    return " ".join(text.split())


def _usage(name: str, params: Iterable[click.Parameter]) -> str:
    return " ".join(word for word in ("trainmon-tui", name, *map(_parameter, params)) if word)


def _parameter(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return (param.metavar or "").replace("]...", "…]").replace("...", "…")
    return _option(param) if param.required else f"[{_option(param)}]"


def _option(param: click.Parameter) -> str:
    if param.metavar and param.metavar.startswith("[="):
        return f"{param.opts[0]}{param.metavar}"
    takes = "" if isinstance(param, click.Option) and param.is_flag else f" {param.metavar or param.type.name.upper()}"
    return f"{param.opts[0]}{takes}"


def _options(params: Iterable[click.Parameter]) -> Iterator[str]:
    """A row for each option; the default is named where the help names it."""
    for param in params:
        if isinstance(param, click.Option):
            shown = f" [default: {param.default}]" if param.show_default else ""
            yield f"| `{cell(_option(param))}` | {cell(_flat(param.help or ''))}{shown} |"


PAGES = "a run, a job, a node, a disk, an alert, an attempt, a report"


def keys() -> str:
    """The keys of the dashboard as a table."""
    lines = ["| key | what it does | where | id |", "|---|---|---|---|"]
    for key in KEYS:
        cap = " ".join(f"`{part}`" for part in key.cap.split())
        where = "everywhere" if key.keys in EVERYWHERE else SHOWN_AT.get(key.scope, "everywhere but in a dialog")
        where = where.replace(PAGES, "a page")
        lines.append(f"| {cap} | {key.text} | {where} | `{key.id}` |")
    return "\n".join(lines) + "\n"


def symbols() -> str:
    """Every symbol of the dashboard."""
    rows = [f"| {' '.join(f'`{sign}`' for sign in signs.split())} | {cell(meaning)} |" for signs, meaning in SIGNS]
    return "\n".join(["| symbol | meaning |", "|---|---|", *rows])


def columns() -> str:
    """Columns whose names are short, by pane."""
    rows = [
        f"| {TITLES[place]} | {', '.join(f'`{name}`' for name in names.split(', '))} | {cell(meaning)} |"
        for place, listed in COLUMNS.items()
        for names, meaning in listed
    ]
    return "\n".join(["| where | column | meaning |", "|---|---|---|", *rows])


def formats() -> str:
    """The built-in log formats, and the named groups of a custom one."""
    from trainmon.analysis.log_formats import FORMATS, NAMES

    known = ", ".join(f"`{a_format.name}`" for a_format in FORMATS)
    groups = ", ".join(f"`{name}`" for name in NAMES)
    return (
        f"Built-in formats, tried in this order: {known}.\n\n"
        f"Names in a `[[log_format]]`: {groups}. Only `step` is required, or `epoch`, `batches` and `batch`."
    )


# ---- the JSON of snapshot --------------------------------------------------------------------------------------------

JSON_TYPES = {
    str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", type(None): "null",
}  # fmt: skip


def snapshot_fields() -> str:
    """Every field of `snapshot --json`: a section for each object."""
    return "\n\n".join(_object(SNAPSHOT, ""))


def _object(fields: dict[str, Any], path: str) -> Iterator[str]:
    """The fields of an object, those of one type after each other in one row; then the objects in it."""
    rows = [
        f"| {', '.join(f'`{name}`' for name, _ in group)} | {cell(kind)} |"
        for kind, group in itertools.groupby(fields.items(), key=lambda field: _json_type(field[1]))
    ]
    title = f"`{path}`" if path else "The top level"
    yield "\n".join([f"### {title}", "", "| fields | type |", "|---|---|", *rows])
    for name, wanted in fields.items():
        inner = wanted[0] if isinstance(wanted, list) else wanted
        if isinstance(inner, dict) and inner:
            yield from _object(inner, f"{path}.{name}".removeprefix(".") + ("[]" if isinstance(wanted, list) else ""))


def _json_type(wanted: Any) -> str:
    if isinstance(wanted, dict):
        return "object"
    if isinstance(wanted, list):
        return "array of objects" if isinstance(wanted[0], dict) else "array of strings"
    if isinstance(wanted, set):
        return " or ".join(f'`"{text}"`' for text in sorted(wanted))
    return " or ".join(JSON_TYPES[kind] for kind in wanted if kind is not int or float not in wanted)


# ---- the config -----------------------------------------------------------------------------------------------------


def config() -> str:
    """Every table of the config."""
    used: list[str] = []
    top: list[str] = []
    for field in msgspec.structs.fields(Settings):
        table, many = table_of(field.type)
        title = f"`[[{field.encode_name}]]`" if many else f"`[{field.encode_name}]`"
        if table is None:
            top += _rows(Settings, field, "")
        elif field.encode_name in ELSEWHERE:
            used.append(f"### {title}\n\n{description(table)} {ELSEWHERE[field.encode_name]}")
        else:
            rows = _all_rows(table, "") if table is not RetrySettings else _retry_rows()
            used.append(f"### {title}\n\n{description(table)}\n\n{grid(rows)}")
    return "\n\n".join([f"### Top level\n\n{grid(top)}", *used])


def _all_rows(table: type[Table], prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(table):
        yield from _rows(table, field, prefix)


def _rows(table: type[Table], field: msgspec.structs.FieldInfo, prefix: str) -> Iterator[str]:
    inner, _ = table_of(field.type)
    name = prefix + field.encode_name
    if inner is not None:
        yield from _all_rows(inner, f"{name}.")
        return
    kind = value_type(field.type)
    meaning = cell(field_descriptions(table)[field.name])
    yield f"| `{name}` | {default_of(field)} | {_format(kind)} | {meaning} |"


def _retry_rows() -> Iterator[str]:
    """The causes with the same default share a row."""
    auto_requeue, gate, *causes = RetrySettings.settings({})
    yield from (row for one in (auto_requeue, gate) for row in _rows(RetrySettings, one, ""))
    by_default: dict[str, list[str]] = {}
    for field in causes:
        changes = ", ".join(field.default.after_change)
        meaning = f"Retries after these causes{f', once one of these has changed: {changes}' if changes else ''}."
        by_default.setdefault(f"{default_of(field)} | {_format(value_type(field.type))} | {meaning}", []).append(
            f"`{field.encode_name}`"
        )
    for rest, names in by_default.items():
        yield f"| {', '.join(names)} | {rest} |"


@click.command()
@click.option("--write", is_flag=True, help="Write the generated parts.")
@click.option("--check", is_flag=True, help="Exit with 1 if they differ.")
def main(write: bool, check: bool) -> None:
    """Generate parts of docs/ from the code."""
    stale = False
    for page in parts():
        file = FOLDER / page
        old = file.read_text()
        new = renewed(page, old)
        stale |= new != old
        if write:
            file.write_text(new)
        elif not check:
            click.echo(new)
    if check and stale:
        click.echo("docs/ differs from the code; try: python -m tests.docs --write", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
