"""Hosts and Slurm host lists in the config."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

from trainmon.config.types import InvalidValue, ValueType, describe, parse_texts, quoted, text_like

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
        raise InvalidValue(f"has a bad host list {quoted(text)}: {SLURM_FORM}")
    if "[" not in text and "," not in text and "]" not in text:
        names = [text]
    elif any(int(last) - int(first) >= MAX_HOSTS for first, last in RANGE.findall(text)):
        raise InvalidValue(f"has a bad host list {quoted(text)}: the maximum is {MAX_HOSTS} hosts")
    else:
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

        user, at, folded = text.rpartition("@")
        try:
            names = [user + at + str(name) for name in NodeSet(folded, resolver=RESOLVER_NOGROUP)]
        except NodeSetException as error:
            why = str(error).split(":")[0]
            raise InvalidValue(f"has a bad host list {quoted(text)} ({why}): {SLURM_FORM}") from error
    for name in names:
        if not HOST.fullmatch(name):
            raise InvalidValue(f"has {quoted(name)}, which is not a host name")
    return names


def parse_hosts(value: object, instead: str = "") -> list[str]:
    if not isinstance(value, list):
        expected = f'{instead}a list of Slurm host lists such as ["gpu-[001-032]"]'
        raise InvalidValue(f"must be {expected}, not {describe(value)}")
    return list(expand_hosts(parse_texts(value)))


def parse_nodes(value: object) -> list[str] | None:
    return None if value == "slurm" else parse_hosts(value, '"slurm" or ')


Host = Annotated[str, ValueType("a host", text_like(HOST, 'one host name for ssh, such as "login1"'))]
Hosts = Annotated[tuple[str, ...], ValueType("Slurm host lists", parse_hosts)]
Nodes = Annotated[tuple[str, ...] | None, ValueType('Slurm host lists, or "slurm"', parse_nodes)]
