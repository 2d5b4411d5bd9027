"""How each kind of setting is written in the config, and read: durations, shares, host lists, paths, secrets."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from trainmon.lib import Seconds

HOSTS_AT_MOST = 20_000
"""More than any cluster has: `gpu-[0-99999999]` is a slip of the finger that would fill the memory."""

SLURM_AT_LEAST: Seconds = 15.0
WANDB_AT_LEAST: Seconds = 15.0
PROJECT = re.compile(r"[^/\s]+/[^/\s]+")
"""The shortest period of the queue."""

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_:][A-Za-z0-9._:-]*")
HOST_LIST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9._:,\[\]-]+")
RANGE = re.compile(r"(\d+)-(\d+)")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?")
ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHOWN = 40


class InvalidValue(ValueError):
    """What is wrong with one value: the end of a sentence that begins with the setting's name."""


def toml(value: object) -> str:
    """A plain value as the config writes it: JSON writes texts, numbers, true, false and lists as TOML does."""
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ValueType:
    """How one setting is written: in words for the documentation, the function that reads it, and the one that writes
    what was read as the config accepts it."""

    words: str
    read: Callable[[object], object]
    write: Callable[[Any], str] = toml


def describe(value: object) -> str:
    """Name a value that was not expected, without control characters and never longer than a few words."""
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
    """Text in double quotes, fit for a terminal: untrusted characters become `?`, the middle of a long one goes."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return f'"{clean}"' if len(clean) <= SHOWN else f'"{clean[: SHOWN - 1]}…"'


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about a name that is not there: `; did you mean "sigma"?`, or nothing."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {quoted(close[0])}?" if close else ""


# ---- plain values ---------------------------------------------------------------------------------------------------


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"must be text in quotes, not {describe(value)}")
    if not value.strip():
        raise InvalidValue("must not be empty")
    if not value.isprintable():
        raise InvalidValue(f"must not hold control characters, as {quoted(value)} does")
    return value


def parse_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"must be true or false, not {describe(value)}")
    return value


def parse_whole_number(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidValue(f"must be a whole number, not {describe(value)}")
        if value < least:
            raise InvalidValue(f"must be {least} or more, not {value}")
        return value

    return read


def one_of(*names: str) -> ValueType:
    """A setting that takes one of a few words."""
    listed = " or ".join([", ".join(f'"{name}"' for name in names[:-1]), f'"{names[-1]}"'])

    def read(value: object) -> str:
        if value not in names:
            raise InvalidValue(f"must be {listed}, not {describe(value)}")
        return str(value)

    return ValueType(listed, read)


def parse_texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise InvalidValue(f'must be a list of texts such as ["a", "b"], not {describe(value)}')
    for item in value:
        if not isinstance(item, str) or not item.strip():
            raise InvalidValue(f"must hold texts only, not {describe(item) if item != '' else 'an empty text'}")
    return value


def parse_users(value: object) -> list[str]:
    """Names of users. A name ends up in a command's arguments, several of them joined by commas."""
    users = parse_texts(value)
    for user in users:
        if not USER.fullmatch(user):
            raise InvalidValue(f"has {quoted(user)}, which is not the name of a user")
    return users


def parse_user(value: object) -> str:
    user = parse_text(value)
    if not USER.fullmatch(user):
        raise InvalidValue(f"must be the name of a user, not {quoted(user)}")
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


def parse_log_path(value: object) -> str:
    return "wandb" if value == "wandb" else parse_path(value)


def parse_secret(value: object) -> str:
    """Where a secret is. Its text is never repeated: somebody may have written the secret itself."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue('must be "env:NAME", "file:/path" or text in quotes')
    scheme, _, rest = value.partition(":")
    if scheme == "env" and not ENVIRONMENT_NAME.fullmatch(rest):
        raise InvalidValue('must name an environment variable after "env:", such as "env:NTFY_TOPIC"')
    if scheme == "file" and not rest.startswith(("/", "~/")):
        raise InvalidValue('must name an absolute path after "file:", such as "file:/etc/trainmon/ntfy"')
    return value


# ---- durations and shares -------------------------------------------------------------------------------------------


def parse_duration(value: object) -> Seconds:
    """`2s`, `15m`, `1h30m`, `90d` in seconds. A bare number is refused: nobody remembers its unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidValue(f'must say its unit: "{value:g}s" or "{value:g}m", not the bare number {value:g}')
    if not isinstance(value, str) or not DURATION.fullmatch(value.replace(" ", "")):
        raise InvalidValue(f'must be a duration such as "2s", "15m" or "1h30m", not {describe(value)}')
    seconds = sum(float(number) * UNITS[unit] for number, unit in DURATION_PART.findall(value.replace(" ", "")))
    if not 0.1 <= seconds <= 100 * 366 * UNITS["d"]:
        raise InvalidValue(f'must be between "100ms" and a hundred years, not {describe(value)}')
    return float(seconds)


def read_slurm_period(value: object) -> Seconds:
    """A duration that a busy slurmctld can bear: every user of the site asks the same one."""
    seconds = parse_duration(value)
    if seconds < SLURM_AT_LEAST:
        least = duration_text(SLURM_AT_LEAST)
        raise InvalidValue(
            f'must be "{least}" or more, not {describe(value)}: every look costs the controller of the whole site'
        )
    return seconds


def read_wandb_period(value: object) -> Seconds:
    """A duration that W&B's rate limit can bear, which is counted per key for a whole team."""
    seconds = parse_duration(value)
    if seconds < WANDB_AT_LEAST:
        least = duration_text(WANDB_AT_LEAST)
        raise InvalidValue(f'must be "{least}" or more, not {describe(value)}: W&B limits the requests of a whole team')
    return seconds


def parse_project(value: object) -> str:
    """A W&B project with the team or user that it belongs to."""
    if not isinstance(value, str) or PROJECT.fullmatch(value.strip()) is None:
        raise InvalidValue(f'must be "team/project", as in the address of its page, not {describe(value)}')
    return value.strip()


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


def format_share(share: float) -> str:
    return toml(f"{share * 100:g}%")


def parse_share(value: object) -> float:
    match = SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(f'must be a share such as "80%", not {describe(value)}')
    share = float(match[1]) / 100
    if not 0 < share <= 1:
        raise InvalidValue(f'must be more than "0%" and at most "100%", not {describe(value)}')
    return share


# ---- hosts ----------------------------------------------------------------------------------------------------------


def expand_hosts(lists: Iterable[str]) -> tuple[str, ...]:
    """Slurm host lists as the hosts they name, in the order given: `me@gpu-[1-2]` is me@gpu-1 and me@gpu-2."""
    hosts = [host for text in lists for host in _expand(text)]
    if len(hosts) > HOSTS_AT_MOST:
        raise InvalidValue(f"names {len(hosts)} hosts; at most {HOSTS_AT_MOST} can be watched")
    return tuple(hosts)


def _expand(text: str) -> Sequence[str]:
    if not HOST_LIST.fullmatch(text) or text.startswith("-"):
        raise InvalidValue(f'has a bad host list {quoted(text)}: write it as Slurm does, such as "gpu-[001-032]"')
    if "[" not in text and "," not in text and "]" not in text:
        return (_host(text),)
    if any(int(last) - int(first) >= HOSTS_AT_MOST for first, last in RANGE.findall(text)):
        raise InvalidValue(f"has a bad host list {quoted(text)}: at most {HOSTS_AT_MOST} hosts can be watched")
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    user, at, names = text.rpartition("@")
    try:
        return [_host(user + at + str(name)) for name in NodeSet(names, resolver=RESOLVER_NOGROUP)]
    except NodeSetException as error:
        why = str(error).split(":")[0]
        raise InvalidValue(
            f'has a bad host list {quoted(text)} ({why}): write it as Slurm does, such as "gpu-[001-032]"'
        ) from error


def _host(name: str) -> str:
    if not HOST.fullmatch(name):
        raise InvalidValue(f"has {quoted(name)}, which is not the name of a host")
    return name


def parse_host(value: object) -> str:
    text = parse_text(value)
    if not HOST.fullmatch(text):
        raise InvalidValue(f'must be one host as ssh knows it, such as "login1", not {quoted(text)}')
    return text


def parse_hosts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise InvalidValue(f'must be a list of Slurm host lists such as ["gpu-[001-032]"], not {describe(value)}')
    return list(expand_hosts(parse_texts(value)))


def parse_nodes(value: object) -> list[str] | None:
    if value == "slurm":
        return None
    if not isinstance(value, list):
        raise InvalidValue(
            f'must be "slurm" or a list of Slurm host lists such as ["gpu-[001-032]"], not {describe(value)}'
        )
    return parse_hosts(value)


# ---- the kinds, as the tables use them ------------------------------------------------------------------------------

Text = Annotated[str, ValueType("text", parse_text)]
Flag = Annotated[bool, ValueType("true or false", parse_flag)]
Whole = Annotated[int, ValueType("a whole number", parse_whole_number(0))]
Count = Annotated[int, ValueType("a whole number from 1", parse_whole_number(1))]
Texts = Annotated[tuple[str, ...], ValueType("a list of texts", parse_texts)]
User = Annotated[str, ValueType("a user", parse_user)]
Users = Annotated[tuple[str, ...], ValueType("a list of users", parse_users)]
Argv = Annotated[tuple[str, ...], ValueType("a command as a list of texts", parse_argv)]
Pattern = Annotated[str, ValueType("a regular expression", parse_pattern)]
RemotePath = Annotated[str, ValueType("an absolute path", parse_path)]
LogPath = Annotated[str, ValueType('an absolute path, may be a glob; or "wandb"', parse_log_path)]
Secret = Annotated[str, ValueType('"env:NAME" or "file:/path"', parse_secret)]
Duration = Annotated[Seconds, ValueType('a duration: "2s", "15m", "1h30m", "90d"', parse_duration, format_duration)]
WandbPeriod = Annotated[Seconds, ValueType('a duration from "15s"', read_wandb_period, format_duration)]
Project = Annotated[str, ValueType('"team/project"', parse_project)]
SlurmPeriod = Annotated[Seconds, ValueType('a duration from "15s"', read_slurm_period, format_duration)]
Share = Annotated[float, ValueType('a share: "80%"', parse_share, format_share)]
Host = Annotated[str, ValueType("a host", parse_host)]
Hosts = Annotated[tuple[str, ...], ValueType("Slurm host lists", parse_hosts)]
Nodes = Annotated[tuple[str, ...] | None, ValueType('Slurm host lists, or "slurm"', parse_nodes)]
