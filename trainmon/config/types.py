"""The values of settings: how each type is described, parsed and formatted."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

PROJECT = re.compile(r"[^/\s]+/[^/\s]+")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?")
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_QUOTED = 40


class InvalidValue(ValueError):
    """A value that a setting does not accept. Its text ends a sentence that begins with the setting's name."""


def toml(value: object) -> str:
    """A plain value as the config writes it: JSON writes texts, numbers, true, false and lists as TOML does."""
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a setting's value.

    `parse` turns the TOML value into the setting's value and raises InvalidValue; `format` is its inverse.
    """

    description: str
    parse: Callable[[object], object]
    format: Callable[[Any], str] = toml


def describe(value: object) -> str:
    """A TOML value in a few words without control characters, for an error message."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else "a date or time"


def quoted(text: str) -> str:
    """Text in double quotes, safe for a terminal: unprintable characters become `?`, and a long text is cut."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return f'"{clean}"' if len(clean) <= MAX_QUOTED else f'"{clean[: MAX_QUOTED - 1]}…"'


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: `; did you mean "sigma"?`, or nothing."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {quoted(close[0])}?" if close else ""


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"must be text in quotes, not {describe(value)}")
    if not value.strip():
        raise InvalidValue("must not be empty")
    if not value.isprintable():
        raise InvalidValue(f"must not contain control characters: {quoted(value)}")
    return value


def parse_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"must be true or false, not {describe(value)}")
    return value


def whole_number(least: int) -> Callable[[object], int]:
    """A parser of whole numbers that are not smaller than `least`."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidValue(f"must be a whole number, not {describe(value)}")
        if value < least:
            raise InvalidValue(f"must be {least} or more, not {value}")
        return value

    return parse


def parse_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"must be a number, not {describe(value)}")
    if not abs(value) < 1e300:  # inf and nan are numbers in TOML
        raise InvalidValue(f"must be a finite number, not {describe(value)}")
    return float(value)


def parse_whole_numbers(value: object) -> list[int]:
    if not isinstance(value, list) or any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        raise InvalidValue(f"must be a list of whole numbers such as [48, 79], not {describe(value)}")
    return value


def one_of(*names: str) -> ValueType:
    """The type of a setting that takes one of a few texts."""
    listed = " or ".join([", ".join(f'"{name}"' for name in names[:-1]), f'"{names[-1]}"'])

    def parse(value: object) -> str:
        if value not in names:
            raise InvalidValue(f"must be {listed}, not {describe(value)}")
        return str(value)

    return ValueType(listed, parse)


def parse_texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise InvalidValue(f'must be a list of texts such as ["a", "b"], not {describe(value)}')
    for item in value:
        if not isinstance(item, str) or not item.strip():
            raise InvalidValue(f"must contain only texts, not {describe(item) if item != '' else 'an empty text'}")
    return value


def parse_users(value: object) -> list[str]:
    """User names. They become arguments of a command, joined by commas."""
    users = parse_texts(value)
    for user in users:
        if not USER.fullmatch(user):
            raise InvalidValue(f"has {quoted(user)}, which is not a user name")
    return users


def parse_user(value: object) -> str:
    user = parse_text(value)
    if not USER.fullmatch(user):
        raise InvalidValue(f"must be a user name, not {quoted(user)}")
    return user


def parse_argv(value: object) -> list[str]:
    argv = parse_texts(value)
    if not argv:
        raise InvalidValue("must name a command")
    return argv


def parse_labels(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidValue('must be a table of texts such as { owner = "team-a" }')
    return value


def parse_pattern(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"must be text in quotes, not {describe(value)}")
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidValue(f"is not a regular expression: {error}") from error
    return value


def parse_path(value: object) -> str:
    text = parse_text(value)
    if not text.startswith("/"):
        raise InvalidValue(f'must be an absolute path such as "/fsx/video", not {quoted(text)}')
    return text


def parse_project(value: object) -> str:
    """A W&B project with the team or user that owns it."""
    if not isinstance(value, str) or PROJECT.fullmatch(value.strip()) is None:
        raise InvalidValue(f'must be "team/project", as in the address of its page, not {describe(value)}')
    return value.strip()


def parse_secret(value: object) -> str:
    """Where a secret is. No message repeats its text: it may be the secret itself."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue('must be "env:NAME", "file:/path" or text in quotes')
    scheme, _, rest = value.partition(":")
    if scheme == "env" and not ENVIRONMENT_NAME.fullmatch(rest):
        raise InvalidValue('must name an environment variable after "env:", such as "env:NTFY_TOPIC"')
    if scheme == "file" and not rest.startswith(("/", "~/")):
        raise InvalidValue('must name an absolute path after "file:", such as "file:/etc/trainmon/ntfy"')
    return value


Count = Annotated[int, ValueType("a whole number from 1", whole_number(1))]
User = Annotated[str, ValueType("a user", parse_user)]
Users = Annotated[tuple[str, ...], ValueType("a list of users", parse_users)]
Argv = Annotated[tuple[str, ...], ValueType("a command as a list of texts", parse_argv)]
Pattern = Annotated[str, ValueType("a regular expression", parse_pattern)]
RemotePath = Annotated[str, ValueType("an absolute path", parse_path)]
LogPath = Annotated[
    str,
    ValueType(
        'an absolute path, may be a glob; or "wandb"', lambda value: value if value == "wandb" else parse_path(value)
    ),
]
Secret = Annotated[str, ValueType('"env:NAME" or "file:/path"', parse_secret)]
Project = Annotated[str, ValueType('"team/project"', parse_project)]
Labels = Annotated[Mapping[str, str], ValueType('texts: { owner = "team-a" }', parse_labels)]
