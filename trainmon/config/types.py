"""The values of settings: how each type is described, parsed and formatted; how a secret or a host list is resolved."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

PROJECT = re.compile(r"[^/\s]+/[^/\s]+")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?")
PATH = re.compile("/.*")
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_QUOTED = 40
MAX_SECRET_BYTES = 65_536


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
    """A short description of a TOML value for an error message, without control characters."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, str(value).lower()),
        ((int, float), f"the number {value}"),
        (str, quoted(str(value))),
        (list, "a list"),
        (dict, "a table"),
    )
    return next((text for kind, text in kinds if isinstance(value, kind)), "a date or time")


def quoted(text: str) -> str:
    """Text in double quotes, safe for a terminal: unprintable characters become `?`, and a long text is cut."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return f'"{clean}"' if len(clean) <= MAX_QUOTED else f'"{clean[: MAX_QUOTED - 1]}…"'


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: `; did you mean "sigma"?`, or nothing."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {quoted(close[0])}?" if close else ""


def expecting(expected: str, accepts: Callable[[object], bool]) -> Callable[[object], Any]:
    """A parser that takes the values that `accepts` is true of as they are."""

    def parse(value: object) -> Any:
        if not accepts(value):
            raise InvalidValue(f"must be {expected}, not {describe(value)}")
        return value

    return parse


def parse_text(value: object) -> str:
    """A text without control characters.

    Raises:
        InvalidValue: when it is not a text, or empty.
    """
    if not isinstance(value, str):
        raise InvalidValue(f"must be a string in quotes, not {describe(value)}")
    if not value.strip():
        raise InvalidValue("must not be empty")
    if not value.isprintable():
        raise InvalidValue(f"must not contain control characters: {quoted(value)}")
    return value


def text_like(pattern: re.Pattern[str], expected: str) -> Callable[[object], str]:
    """A parser of texts that match a pattern as a whole."""

    def parse(value: object) -> str:
        text = parse_text(value)
        if not pattern.fullmatch(text):
            raise InvalidValue(f"must be {expected}, not {quoted(text)}")
        return text

    return parse


parse_path = text_like(PATH, 'an absolute path such as "/fsx/video"')


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
    """A finite number.

    Raises:
        InvalidValue: when it is not one.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"must be a number, not {describe(value)}")
    if not abs(value) < 1e300:  # inf and nan are numbers in TOML
        raise InvalidValue(f"must be a finite number, not {describe(value)}")
    return float(value)


def one_of(*names: str) -> ValueType:
    """The type of a setting that takes one of a few texts."""
    listed = " or ".join([", ".join(f'"{name}"' for name in names[:-1]), f'"{names[-1]}"'])
    return ValueType(listed, expecting(listed, lambda value: value in names))


def parse_texts(value: object) -> list[str]:
    """A list of texts; none is empty.

    Raises:
        InvalidValue: when it is not one.
    """
    if not isinstance(value, list):
        raise InvalidValue(f'must be a list of strings such as ["a", "b"], not {describe(value)}')
    for item in value:
        if not isinstance(item, str) or not item.strip():
            raise InvalidValue(f"must contain only strings, not {describe(item) if item != '' else 'an empty string'}")
    return value


def parse_users(value: object) -> list[str]:
    """User names. They become arguments of a command, joined by commas.

    Raises:
        InvalidValue: when one of them is not a user name.
    """
    users = parse_texts(value)
    for user in users:
        if not USER.fullmatch(user):
            raise InvalidValue(f"has {quoted(user)}, which is not a user name")
    return users


def parse_argv(value: object) -> list[str]:
    """A command with its arguments.

    Raises:
        InvalidValue: when it is not a list of texts, or empty.
    """
    if value == []:
        raise InvalidValue("must name a command")
    return parse_texts(value)


def parse_labels(value: object) -> dict[str, str]:
    """Labels: a table of texts.

    Raises:
        InvalidValue: when it is not one.
    """
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidValue('must be a table of strings such as { owner = "team-a" }')
    return value


def parse_pattern(value: object) -> str:
    """A regular expression.

    Raises:
        InvalidValue: when it is not one.
    """
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"must be a string in quotes, not {describe(value)}")
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidValue(f"is not a regular expression: {error}") from error
    return value


def parse_project(value: object) -> str:
    """A W&B project with the team or user that owns it.

    Raises:
        InvalidValue: when it is not `team/project`.
    """
    if not isinstance(value, str) or PROJECT.fullmatch(value.strip()) is None:
        raise InvalidValue(f'must be "team/project", as in the URL of its page, not {describe(value)}')
    return value.strip()


def parse_secret(value: object) -> str:
    """Where a secret is. No message repeats its text: it may be the secret itself.

    Raises:
        InvalidValue: when it names neither a variable nor a file, and is not a text.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue('must be "env:NAME", "file:/path" or a string in quotes')
    scheme, _, rest = value.partition(":")
    if scheme == "env" and not ENVIRONMENT_NAME.fullmatch(rest):
        raise InvalidValue('must name a variable after "env:", such as "env:NTFY_TOPIC"')
    if scheme == "file" and not rest.startswith(("/", "~/")):
        raise InvalidValue('must have an absolute path after "file:", such as "file:/etc/trainmon/ntfy"')
    return value


def resolve_secret(written: str, environ: Mapping[str, str]) -> str:
    """The secret that a setting means: from the environment, from a file, or as written. No message repeats it.

    Raises:
        InvalidValue: when the variable is not set, or the file cannot be used.
    """
    scheme, _, rest = written.partition(":")
    found = written.strip()
    if scheme == "env":
        found = environ.get(rest, "").strip()
        if not found:
            state = "empty" if rest in environ else "not set"
            raise InvalidValue(f"names the environment variable {rest}, which is {state}")
    elif scheme == "file":
        found = _read_secret(Path(rest).expanduser())
    if not found.isprintable():  # a line break in it would become an HTTP header of its own
        raise InvalidValue("contains control characters; a secret must be one line")
    return found


def _read_secret(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_SECRET_BYTES + 1)
        found = data.decode().strip()
    except FileNotFoundError as error:
        raise InvalidValue("names a file that does not exist") from error
    except OSError as error:
        raise InvalidValue(f"names a file that cannot be read: {(error.strerror or 'failed').lower()}") from error
    except UnicodeDecodeError:
        raise InvalidValue("names a file that is not text") from None  # its error repeats the bytes
    if not found or len(data) > MAX_SECRET_BYTES:
        raise InvalidValue("names a file that is empty" if not found else "names a file that is too large for a secret")
    return found


Count = Annotated[int, ValueType("a whole number, 1 or more", whole_number(1))]
User = Annotated[str, ValueType("a user name", text_like(USER, "a user name"))]
Users = Annotated[tuple[str, ...], ValueType("a list of user names", parse_users)]
Argv = Annotated[tuple[str, ...], ValueType("a command as a list of strings", parse_argv)]
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
Labels = Annotated[Mapping[str, str], ValueType('a table of strings: { owner = "team-a" }', parse_labels)]


MAX_HOSTS = 20_000
"""More than any cluster has: `gpu-[0-99999999]` is a typing error that would fill the memory."""

HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_:][A-Za-z0-9._:-]*")
HOST_LIST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9._:,\[\]-]+")
RANGE = re.compile(r"(\d+)-(\d+)")
SLURM_FORM = 'write it like "gpu-[001-032]"'


def expand_hosts(lists: Iterable[str]) -> tuple[str, ...]:
    """The hosts of Slurm host lists, in the order given: `me@gpu-[1-2]` is me@gpu-1 and me@gpu-2.

    Raises:
        InvalidValue: when a list is malformed or names too many hosts.
    """
    hosts = [host for text in lists for host in _expand(text)]
    if len(hosts) > MAX_HOSTS:
        raise InvalidValue(f"names {len(hosts)} hosts; the maximum is {MAX_HOSTS}")
    return tuple(hosts)


def _expand(text: str) -> Sequence[str]:
    if not HOST_LIST.fullmatch(text) or text.startswith("-"):
        raise InvalidValue(f"has an invalid host list {quoted(text)}: {SLURM_FORM}")
    if "[" not in text and "," not in text and "]" not in text:
        names = [text]
    elif any(int(last) - int(first) >= MAX_HOSTS for first, last in RANGE.findall(text)):
        raise InvalidValue(f"has an invalid host list {quoted(text)}: the maximum is {MAX_HOSTS} hosts")
    else:
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

        user, at, folded = text.rpartition("@")
        try:
            names = [user + at + str(name) for name in NodeSet(folded, resolver=RESOLVER_NOGROUP)]
        except NodeSetException as error:
            why = str(error).split(":")[0]
            raise InvalidValue(f"has an invalid host list {quoted(text)} ({why}): {SLURM_FORM}") from error
    for name in names:
        if not HOST.fullmatch(name):
            raise InvalidValue(f"has {quoted(name)}, which is not a host name")
    return names


def parse_hosts(value: object, instead: str = "") -> list[str]:
    """The hosts of Slurm host lists.

    Raises:
        InvalidValue: when a list is malformed or names too many hosts.
    """
    if not isinstance(value, list):
        expected = f'{instead}a list of Slurm host lists such as ["gpu-[001-032]"]'
        raise InvalidValue(f"must be {expected}, not {describe(value)}")
    return list(expand_hosts(parse_texts(value)))


def parse_nodes(value: object) -> list[str] | None:
    """The hosts of Slurm host lists; None for `slurm`.

    Raises:
        InvalidValue: when it is neither.
    """
    return None if value == "slurm" else parse_hosts(value, '"slurm" or ')


Host = Annotated[str, ValueType("a host name", text_like(HOST, 'one host name for ssh, such as "login1"'))]
Hosts = Annotated[tuple[str, ...], ValueType("Slurm host lists", parse_hosts)]
Nodes = Annotated[tuple[str, ...] | None, ValueType('Slurm host lists, or "slurm"', parse_nodes)]
