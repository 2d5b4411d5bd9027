"""Resolves secrets: from the environment, from a file, or written in the config. No message repeats them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainmon.config.types import InvalidValue

MAX_BYTES = 65_536


def resolve_secret(written: str, environ: Mapping[str, str]) -> str:
    """The secret that a setting means.

    Raises:
        InvalidValue: when the variable is not set, or the file cannot be used.
    """
    scheme, _, rest = written.partition(":")
    if scheme == "env":
        found = environ.get(rest, "").strip()
        if not found:
            raise InvalidValue(
                f"names the environment variable {rest}, which is {'empty' if rest in environ else 'not set'}"
            )
        return _plain(found)
    if scheme == "file":
        return _plain(_read(Path(rest).expanduser()))
    return _plain(written.strip())


def _read(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        found = data.decode().strip()
    except FileNotFoundError as error:
        raise InvalidValue("names a file that does not exist") from error
    except OSError as error:
        raise InvalidValue(f"names a file that cannot be read: {(error.strerror or 'failed').lower()}") from error
    except UnicodeDecodeError:
        raise InvalidValue("names a file that is not text") from None  # its error repeats the bytes
    if not found or len(data) > MAX_BYTES:
        raise InvalidValue("names a file that is empty" if not found else "names a file that is too large for a secret")
    return found


def _plain(text: str) -> str:
    """The secret as it is. A line break in it would become an HTTP header of its own."""
    if not text.isprintable():
        raise InvalidValue("contains control characters; a secret is one line")
    return text
