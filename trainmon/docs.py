"""The README's tables, made from the code: `python -m trainmon.docs --check` or `--write`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from trainmon import cli
from trainmon.commands.act import COMMON, EXITS
from trainmon.config_decode import find_kind, table_of
from trainmon.config_table import Table
from trainmon.config_tables import Settings
from trainmon.config_values import Duration, Share, SlurmPeriod, WandbPeriod, duration_text
from trainmon.docs_alerts import channels, rules
from trainmon.notes import notes, words

README = Path(__file__).parent.parent / "README.md"
UNUSED = "Not used yet."
ELSEWHERE = {"rule": "Its settings: see [Rules](#rules).", "notify": "Its settings: see [Channels](#channels)."}
"""Tables of several kinds, each of which has settings of its own."""


def tables() -> dict[str, str]:
    """Every generated part of the README, by the name in its markers."""
    makers: dict[str, Callable[[], str]] = {"commands": commands, "keys": keys, "config": config, "formats": formats}
    makers |= {"rules": rules, "channels": channels}
    return {name: make() for name, make in makers.items()}


def renewed(text: str) -> str:
    """The README with its generated parts made anew. A part without its markers is an error."""
    for name, part in tables().items():
        marked = re.compile(rf"(<!-- {name}: made by trainmon.docs -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text, found = marked.subn(lambda match, part=part: f"{match[1]}\n{part.strip()}\n\n{match[2]}", text)  # type: ignore[misc]
        if found != 1:
            raise SystemExit(f"README.md: there must be one <!-- {name}: made by trainmon.docs --> part, not {found}")
    return text


# ---- commands and keys ----------------------------------------------------------------------------------------------


def commands() -> str:
    """The command line as a table."""
    lines = ["| command | what it does |", "|---|---|"]
    for name in cli.COMMANDS:
        command = cli.command(name)
        of_all = len(COMMON) if name in cli.VERBS else 0
        lines.append(_command_row(name, command.params[: len(command.params) - of_all], command.help))
    verb = cli.command(cli.VERBS[0])
    shared = verb.params[len(verb.params) - len(COMMON) :]
    takes = " ".join(map(_usage, shared))
    lines.append(f"| `… {takes}` | Every command that acts takes these. {' '.join(EXITS.split())} |")
    return "\n".join(lines)


def _command_row(name: str, params: list[click.Parameter], help_text: str | None) -> str:
    """One command; of those that act without what all of them share."""
    words = ["trainmon-tui", *([] if name == cli.DASHBOARD else [name]), *map(_usage, params)]
    told = (help_text or "") if name not in cli.VERBS else (help_text or "").replace(EXITS, "")
    return f"| `{_cell(' '.join(words))}` | {_cell(' '.join(told.split()))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _usage(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return (param.metavar or "").replace("]...", "…]").replace("...", "…")
    if param.metavar and param.metavar.startswith("[="):
        return f"[{param.opts[0]}{param.metavar}]"
    takes = "" if isinstance(param, click.Option) and param.is_flag else f" {param.metavar or param.type.name.upper()}"
    return f"[{param.opts[0]}{takes}]"


def keys() -> str:
    """The keys of the dashboard as a table."""
    from tui.keys import markdown

    return markdown()


def formats() -> str:
    """The log formats that are known, and what a format of one's own may name."""
    from trainmon.steps import FORMATS
    from trainmon.steps.named import COUNTS, NUMBERS

    known = ", ".join(f"`{a_format.name}`" for a_format in FORMATS)
    groups = ", ".join(f"`{name}`" for name in COUNTS + NUMBERS)
    return f"Known by themselves: {known}.\n\nNamed groups of a `[[log_format]]`: {groups}; `step` is needed."


# ---- the config -----------------------------------------------------------------------------------------------------


def config() -> str:
    """Every table of the config; those that are only read and checked come last, in short."""
    used: list[str] = []
    idle: list[str] = []
    top: list[str] = []
    for field in msgspec.structs.fields(Settings):
        table, many = table_of(field.type)
        if table is None:
            top += _rows(Settings, field, "")
        elif UNUSED in words(table):
            names = ", ".join(f"`{name}`" for name in _names(table))
            idle.append(f"- `{_title(field.encode_name, many)}` {words(table).replace(UNUSED, '').strip()} {names}")
        elif field.encode_name in ELSEWHERE:
            used.append(f"**`{_title(field.encode_name, many)}`** {words(table)} {ELSEWHERE[field.encode_name]}")
        else:
            used.append(f"**`{_title(field.encode_name, many)}`** {words(table)}\n\n{_grid(_all_rows(table, ''))}")
    first = f"At the top of the file:\n\n{_grid(top)}"
    later = "Read and checked, and not used by this version:\n\n" + "\n".join(idle)
    return "\n\n".join([first, *used, later])


def _title(name: str, many: bool) -> str:
    return f"[[{name}]]" if many else f"[{name}]"


def _grid(rows: list[str]) -> str:
    return "\n".join(["| setting | default | written as | meaning |", "|---|---|---|---|", *rows])


def _all_rows(table: type[Table], prefix: str) -> list[str]:
    return [row for field in msgspec.structs.fields(table) for row in _rows(table, field, prefix)]


def _rows(table: type[Table], field: msgspec.structs.FieldInfo, prefix: str) -> Iterator[str]:
    inner, _ = table_of(field.type)
    name = prefix + field.encode_name
    meaning = notes(table)[field.name]
    if inner is not None:
        if UNUSED in meaning:
            yield f"| `{name}` | | a table: {', '.join(_names(inner))} | {meaning} |"
        else:
            yield from _all_rows(inner, f"{name}.")
        return
    kind = find_kind(field.type)
    assert kind is not None
    yield f"| `{name}` | {_default(field)} | {kind.words.replace('|', chr(92) + '|')} | {meaning} |"


def _names(table: type[Table]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(table)]


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "needed"
    value: Any = field.default
    if value in (None, (), {}, msgspec.NODEFAULT):
        return ""
    if find_kind(field.type) in (find_kind(Duration), find_kind(SlurmPeriod), find_kind(WandbPeriod)):
        return f'`"{duration_text(value)}"`'
    if find_kind(field.type) is find_kind(Share):
        return f'`"{value:.0%}"`'
    return f"`{json.dumps(value)}`"


@click.command()
@click.option("--write", is_flag=True, help="Write the README's tables anew.")
@click.option("--check", is_flag=True, help="Exit with 1 if they differ.")
def main(write: bool, check: bool) -> None:
    """Make the README's tables from the code."""
    old = README.read_text()
    new = renewed(old)
    if write:
        README.write_text(new)
    elif check and new != old:
        click.echo("README.md differs from the code; try: python -m trainmon.docs --write", err=True)
        sys.exit(1)
    elif not check:
        click.echo("\n\n".join(tables().values()))


if __name__ == "__main__":
    main()
