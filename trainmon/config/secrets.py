"""The secrets that the config names: from the environment, from a file, or as they stand there. Never repeated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainmon.config.types import InvalidValue

BYTES_AT_MOST = 65_536


def resolve_secret(written: str, environ: Mapping[str, str]) -> str:
    """The text that a setting means. Raises Wrong, which ends a sentence that begins with the setting's name."""
    scheme, _, rest = written.partition(":")
    if scheme == "env":
        found = environ.get(rest, "").strip()
        if not found:
            raise InvalidValue(
                f"names the environment variable {rest}, and it is {'empty' if rest in environ else 'not set'}"
            )
        return _plain(found)
    if scheme == "file":
        return _plain(_read(Path(rest).expanduser()))
    return _plain(written.strip())


def _read(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            data = opened.read(BYTES_AT_MOST + 1)
        found = data.decode().strip()
    except FileNotFoundError as error:
        raise InvalidValue("names a file that is not there") from error
    except OSError as error:
        raise InvalidValue(f"names a file that cannot be read: {(error.strerror or 'failed').lower()}") from error
    except UnicodeDecodeError:
        raise InvalidValue("names a file that is no text") from None  # its error repeats the bytes
    if not found or len(data) > BYTES_AT_MOST:
        raise InvalidValue("names a file that is empty" if not found else "names a file that is too large for a secret")
    return found


def _plain(text: str) -> str:
    """A line break in a secret would be a header of its own where it is sent."""
    if not text.isprintable():
        raise InvalidValue("holds control characters; a secret is one line")
    return text
