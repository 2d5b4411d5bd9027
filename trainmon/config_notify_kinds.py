"""How the settings of channels are written in the config, and read: topics, addresses, headers, telephone numbers.

What is secret may be elsewhere; it is judged again once it was read, by the `wrong_…` functions.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from typing import Annotated

from trainmon.config_values import Kind, Wrong, quoted, read_secret, shown

TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
NUMBER = re.compile(r"yes|\+\d{1,100}")
ELSEWHERE = ("env:", "file:")


def is_elsewhere(text: str) -> bool:
    """Whether a secret is in the environment or in a file, and not in the config itself."""
    return text.startswith(ELSEWHERE)


def read_topic(value: object) -> str:
    """A topic of ntfy. On a public server its name is all that keeps others out: it is never repeated."""
    text = read_secret(value)
    if not is_elsewhere(text):
        why = wrong_topic(text)
        if why:
            raise Wrong(why)
    return text


def wrong_topic(text: str) -> str | None:
    return None if TOPIC.fullmatch(text) else "must be 1 to 64 letters, figures, - or _ as ntfy wants them"


def read_address(value: object) -> str:
    """An address of HTTP. It may hold a secret: it is never repeated."""
    text = read_secret(value)
    if not is_elsewhere(text):
        why = wrong_address(text)
        if why:
            raise Wrong(why)
    return text


def wrong_address(text: str) -> str | None:
    try:
        parts = urllib.parse.urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    return None if good and text.isprintable() and " " not in text else 'must be an address such as "https://host/path"'


def read_apprise_url(value: object) -> str:
    """An address as apprise writes it. Whether there is such a service, only apprise knows."""
    text = read_secret(value)
    if not is_elsewhere(text):
        why = wrong_apprise_url(text)
        if why:
            raise Wrong(why)
    return text


def wrong_apprise_url(text: str) -> str | None:
    if re.match(r"[A-Za-z][A-Za-z0-9]{1,40}://\S", text):
        return None
    return 'must be an address as apprise writes it, such as "slack://…" or "mailto://…"'


def read_call(value: object) -> str:
    if not isinstance(value, str) or not NUMBER.fullmatch(value):
        raise Wrong(f'must be "yes" or a telephone number such as "+4930123456", not {shown(value)}')
    return value


def read_headers(value: object) -> dict[str, str]:
    """Headers of HTTP: a name, and a secret for its value."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise Wrong('must be a table of texts such as { Authorization = "env:HOOK_LOGIN" }')
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z0-9-]+", name):
            raise Wrong(f"has {quoted(name)}, which is not the name of a header")
        try:
            read_secret(text)
        except Wrong as wrong:
            raise Wrong(f"has a {quoted(name)} that {wrong}") from wrong
    return value


Topic = Annotated[str, Kind('a topic; "env:NAME" or "file:/path"', read_topic)]
Address = Annotated[str, Kind('an address; "env:NAME" or "file:/path"', read_address)]
AppriseUrl = Annotated[str, Kind('an address of apprise; "env:NAME" or "file:/path"', read_apprise_url)]
Headers = Annotated[Mapping[str, str], Kind('texts: { Authorization = "env:NAME" }', read_headers)]
Call = Annotated[str, Kind('"yes" or a telephone number', read_call)]
