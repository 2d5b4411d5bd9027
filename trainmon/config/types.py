"""The values of settings and the tables that hold them: how each type is described, parsed and formatted."""

from __future__ import annotations

import datetime as dt
import difflib
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import msgspec

from trainmon.lib import DAY, DURATION_UNITS, Instant, Seconds

PROJECT = re.compile(r"\s*([^/\s]+/[^/\s]+)\s*")
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


def did_you_mean(name: str, names: Iterable[str], most: int = 1) -> str:
    """The end of a sentence about an unknown name: `; did you mean "sigma"?`, or nothing. It has `most` such names."""
    close = difflib.get_close_matches(name, dict.fromkeys(names), n=most)
    return f"; did you mean {' or '.join(map(quoted, close))}?" if close else ""


def expecting(expected: str, accepts: Callable[[object], bool]) -> Callable[[object], Any]:
    """A parser that takes the values that `accepts` is true of as they are."""

    def parse(value: object) -> Any:
        if not accepts(value):
            raise InvalidValue(f"must be {expected}, not {describe(value)}")
        return value

    return parse


def matched(value: object, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
    """The match of a text with a pattern as a whole.

    Raises:
        InvalidValue: when it is not such a text.
    """
    match = pattern.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(f"must be {expected}, not {describe(value)}")
    return match


def matching(pattern: re.Pattern[str], expected: str, group: int = 0) -> Callable[[object], str]:
    """A parser of texts that match a pattern as a whole, or of a group in them."""
    return lambda value: matched(value, pattern, expected)[group]


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


def parse_each(value: object, accepts: Callable[[str], object], otherwise: str) -> list[str]:
    """A list of texts that are all accepted. `otherwise`: the end of the sentence about one that is not.

    Raises:
        InvalidValue: when it is not such a list.
    """
    texts = parse_texts(value)
    for text in texts:
        if not accepts(text):
            raise InvalidValue(f"has {quoted(text)}{otherwise}")
    return texts


def parse_argv(value: object) -> list[str]:
    """A command with its arguments.

    Raises:
        InvalidValue: when it is not a list of texts, or empty.
    """
    if value == []:
        raise InvalidValue("must name a command")
    return parse_texts(value)


def parse_table(value: object, example: str) -> dict[str, str]:
    """A table of texts.

    Raises:
        InvalidValue: when it is not one.
    """
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidValue(f"must be a table of strings such as {example}")
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
Users = Annotated[
    tuple[str, ...],
    ValueType("a list of user names", lambda value: parse_each(value, USER.fullmatch, ", which is not a user name")),
]
"""They become arguments of a command, joined by commas."""
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
Project = Annotated[
    str, ValueType('"team/project"', matching(PROJECT, '"team/project", as in the URL of its page', group=1))
]
Labels = Annotated[
    Mapping[str, str],
    ValueType('a table of strings: { owner = "team-a" }', lambda value: parse_table(value, '{ owner = "team-a" }')),
]


def parse_keys(value: object) -> dict[str, list[str]]:
    """The keys of each action by its id. TOML reads the id `view.zoom` as a table in a table.

    Raises:
        InvalidValue: when an action has no key, or something else than texts.
    """
    if not isinstance(value, dict):
        raise InvalidValue(f'must be a table such as {{ view.zoom = "Z" }}, not {describe(value)}')
    found: dict[str, list[str]] = {}
    for name, keys in value.items():
        if isinstance(keys, dict):
            found |= {f"{name}.{rest}": inner for rest, inner in parse_keys(keys).items()}
        else:
            found[name] = parse_texts([keys] if isinstance(keys, str) else keys)
            if not all(found[name]) or not found[name]:
                raise InvalidValue(f"has no key for {quoted(name)}")
    return found


Keys = Annotated[Mapping[str, tuple[str, ...]], ValueType('a table of keys: { view.zoom = "Z" }', parse_keys)]


MAX_HOSTS = 20_000
"""More than any cluster has: `gpu-[0-99999999]` is a typing error that would fill the memory."""

HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_:][A-Za-z0-9._:-]*")
HOST_LIST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9._:,\[\]-]+")
RANGE = re.compile(r"(\d+)-(\d+)")
SLURM_FORM = 'write it like "gpu-[001-032]"'


def expand_hosts(lists: Iterable[str]) -> tuple[str, ...]:
    """The hosts of Slurm host lists, each once, in the order given: `me@gpu-[1-2]` is me@gpu-1 and me@gpu-2.

    Raises:
        InvalidValue: when a list is malformed or names too many hosts.
    """
    hosts = dict.fromkeys(host for text in lists for host in _expand(text))
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
    return parse_each(names, HOST.fullmatch, ", which is not a host name")


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


# ---- durations, shares, sizes, dates and addresses -------------------------------------------------------------------

UNITS = {"ms": 0.001} | DURATION_UNITS
DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
ZERO = re.compile(r"0+(?:ms|s|m|h|d|w)?")
PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kMGTP]i?)?B\s*")
PREFIXES = " kMGTP"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
LISTEN = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]*):)?(?P<port>\d{1,5})")
LOOPBACK = "127.0.0.1"
NEVER: Seconds = 0.0
"""The value of "never" in seconds."""

SHORTEST_PERIOD: Seconds = 15.0
"""The shortest polling period of Slurm and W&B."""


def parse_duration(value: object) -> Seconds:
    """`2s`, `15m`, `1h30m`, `90d` in seconds. A bare number is refused, because its unit is not obvious.

    Raises:
        InvalidValue: when it is not a duration, or out of range.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidValue(f'needs a unit: "{value:g}s" or "{value:g}m", not the bare number {value:g}')
    if not isinstance(value, str) or not DURATION.fullmatch(value.replace(" ", "")):
        raise InvalidValue(f'must be a duration such as "2s", "15m" or "1h30m", not {describe(value)}')
    seconds = sum(float(number) * UNITS[unit] for number, unit in DURATION_PART.findall(value.replace(" ", "")))
    if not 0.1 <= seconds <= 100 * 366 * DAY:
        raise InvalidValue(f'must be between "100ms" and a hundred years, not {describe(value)}')
    return float(seconds)


def parse_duration_or_zero(value: object) -> Seconds:
    """Like `parse_duration`; `0s` is allowed.

    Raises:
        InvalidValue: when it is not a duration, or out of range.
    """
    return 0.0 if isinstance(value, str) and ZERO.fullmatch(value.strip()) else parse_duration(value)


def parse_duration_or_never(value: object) -> Seconds:
    """Like `parse_duration`; `never` is 0.

    Raises:
        InvalidValue: when it is neither.
    """
    if value == "never":
        return NEVER
    try:
        return parse_duration(value)
    except InvalidValue as wrong:
        raise InvalidValue(f'{wrong}; or "never"') from wrong


def polling_period(reason: str, shortest: Seconds = SHORTEST_PERIOD) -> ValueType:
    """The type of a polling period that must not be too short, for a reason that the message gives."""

    def parse(value: object) -> Seconds:
        seconds = parse_duration(value)
        if seconds < shortest:
            raise InvalidValue(f'must be "{shortest:g}s" or more, not {describe(value)}: {reason}')
        return seconds

    return ValueType(f'a duration from "{shortest:g}s"', parse, format_duration)


def duration_text(seconds: Seconds) -> str:
    """Seconds as the config writes them: 5400 is `1h30m`."""
    parts = []
    left = round(seconds * 1000)
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, round(UNITS[unit] * 1000))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_duration(seconds: Seconds) -> str:
    return toml(duration_text(seconds))


def share_parser(example: str, limits: str, *, may_be_zero: bool) -> Callable[[object], float]:
    """A parser of shares up to 100%."""

    def parse(value: object) -> float:
        share = float(matched(value, PERCENT, f"a share {example}")[1]) / 100
        if share > 1 or not (share or may_be_zero):
            raise InvalidValue(f"must be {limits}, not {describe(value)}")
        return share

    return parse


parse_share = share_parser('such as "80%"', 'more than "0%" and at most "100%"', may_be_zero=False)


def format_share(share: float) -> str:
    return toml(f"{share * 100:g}%")


def parse_size(value: object) -> int:
    """`50GB`, `1.5TiB` in bytes.

    Raises:
        InvalidValue: when it is not a size.
    """
    match = matched(value, SIZE, 'a size such as "50GB" or "1.5TiB"')
    prefix = match[2] or " "
    base = 1024.0 if prefix.endswith("i") else 1000.0
    return round(float(match[1]) * base ** PREFIXES.index(prefix[0]))


def format_size(size: int) -> str:
    """Bytes as the config writes them: 50000000000 is `50GB`."""
    for power in range(5, 0, -1):
        for unit, base in ((f"{PREFIXES[power]}B", 1000), (f"{PREFIXES[power]}iB", 1024)):
            if size and size % base**power == 0:
                return toml(f"{size // base**power}{unit}")
    return toml(f"{size}B")


def parse_datetime(value: object) -> Instant:
    """A TOML date and time. Without an offset it is local time.

    Raises:
        InvalidValue: when it is not a date and time.
    """
    if not isinstance(value, dt.datetime):
        raise InvalidValue(f"must be a date and time without quotes such as 2031-05-01T08:00:00, not {describe(value)}")
    return value.timestamp()


def parse_time_of_day(value: object) -> tuple[int, int]:
    """`08:30` as hours and minutes.

    Raises:
        InvalidValue: when it is not a time of day.
    """
    match = matched(value, TIME_OF_DAY, 'a time of day such as "08:30"')
    return int(match[1]), int(match[2])


def parse_days(value: object) -> list[int]:
    """Days of the week as numbers; Monday is 0.

    Raises:
        InvalidValue: when it is not a list of days.
    """
    return [DAYS.index(day) for day in parse_each(value, DAYS.__contains__, f"; the days are {', '.join(DAYS)}")]


def parse_listen_address(value: object) -> tuple[str, int]:
    """`127.0.0.1:9464` as an IP address and a port. A port alone is on the loopback address.

    Raises:
        InvalidValue: when it is not such an address.
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = LISTEN.fullmatch(text) if isinstance(text, str) else None
    host = (match["host"] or LOOPBACK).strip("[]").replace("localhost", LOOPBACK) if match else ""
    try:
        port = int(match["port"]) if match else 0
        if 1 <= port <= 65_535:
            return str(ipaddress.ip_address(host)), port
    except ValueError:
        pass
    expected = 'a port such as 9464, or an IP address and a port such as "127.0.0.1:9464" or "[::1]:9464"'
    raise InvalidValue(f"must be {expected}, not {describe(value)}")


def format_listen_address(address: tuple[str, int]) -> str:
    host, port = address
    return toml(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def parse_textfile(value: object) -> str:
    """The path of a file for node_exporter.

    Raises:
        InvalidValue: when node_exporter would not read it.
    """
    path = parse_path(value)
    if not path.endswith(".prom"):
        raise InvalidValue(f'must end in ".prom", not {quoted(path)}: node_exporter reads no other files')
    return path


BY_NAME = {
    "duration": ValueType('a duration: "0s", "30s", "5m", "1h30m"', parse_duration_or_zero, format_duration),
    "share": ValueType(
        'a share: "80%"',
        share_parser('from "0%" to "100%"', 'a share from "0%" to "100%"', may_be_zero=True),
        format_share,
    ),
    "size": ValueType('a size: "50GB", "1.5TiB"', parse_size, format_size),
}
"""The types that a rule's field names in its annotation: rules do not import the config."""

Size = Annotated[int, "size"]
Duration = Annotated[Seconds, ValueType('a duration: "2s", "15m", "1h30m", "90d"', parse_duration, format_duration)]
DurationOrNever = Annotated[
    Seconds,
    ValueType(
        'a duration, or "never"',
        parse_duration_or_never,
        lambda seconds: toml("never") if seconds == NEVER else format_duration(seconds),
    ),
]
SlurmPeriod = Annotated[Seconds, polling_period("each query loads the Slurm controller of the whole site")]
WandbPeriod = Annotated[Seconds, polling_period("W&B limits the requests of a whole team")]
Share = Annotated[float, ValueType('a share: "80%"', parse_share, format_share)]
Datetime = Annotated[Instant, ValueType("a date and time: 2031-05-01T08:00:00+02:00", parse_datetime)]
TimeOfDay = Annotated[tuple[int, int], ValueType('a time of day: "08:30"', parse_time_of_day)]
ListenAddress = Annotated[
    tuple[str, int],
    ValueType('a port, or an IP address and a port: "127.0.0.1:9464"', parse_listen_address, format_listen_address),
]
TextfilePath = Annotated[str, ValueType('an absolute path that ends in ".prom"', parse_textfile)]
Days = Annotated[tuple[int, ...], ValueType('days: ["tue", "sat"]', parse_days)]


# ---- tables, and the value type of each setting ----------------------------------------------------------------------

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
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return value_type(arguments[0])
    if origin in (Union, UnionType):
        return value_type(next(part for part in arguments if part is not NoneType))
    if origin is Literal:
        return one_of(*arguments)
    if annotation not in PLAIN:
        raise TypeError(f"the config cannot write a setting of type {annotation}")
    return PLAIN[annotation]


def table_of(annotation: object) -> tuple[type[Table] | None, bool]:
    """The table that a setting holds, and whether it is a list of them; (None, False) for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation, False
    for part in get_args(annotation):
        if isinstance(part, type) and issubclass(part, Table):
            return part, get_origin(annotation) is tuple
    return None, False
