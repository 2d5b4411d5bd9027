"""Whether there is a key for W&B, and for which server: by the rules of its own client, which would prompt for one.

A key itself is in no value here. The rules are those of wandb 0.31: the environment, else the netrc file, else the
settings files, of which those of the working directory go before those of the user.
"""

from __future__ import annotations

import configparser
import netrc
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from trainmon.lib import clean, scrub

CLOUD = "https://api.wandb.ai"
CLOUD_HOSTS = frozenset({"api.wandb.ai", "api.forge.coreweave.com", "forge.coreweave.com"})
"""Names of one server: the client takes a key of any of them, and its own default has moved from the first on."""

SETTINGS = "default"
"""The only section of a settings file that the client reads."""

HINT = "log in with `wandb login`, or set WANDB_API_KEY"


BLANK = "set it to the key alone: W&B's client does not take it so"

SCHEME = "WANDB_BASE_URL, or base_url in the settings file, begins with https:// or http://"


class Credentials(NamedTuple):
    """What the client would find."""

    url: str
    """The server's API."""
    place: str | None
    """Where the key is, as a person says it; None where there is none."""
    trouble: str = ""
    """Why the key cannot be used, or that there is none."""
    hint: str = ""

    @property
    def server(self) -> str:
        """`wandb.ai`, or the host of a server of one's own."""
        host = urlsplit(self.url).netloc
        return "wandb.ai" if host in CLOUD_HOSTS else host or self.url


def find_credentials(environ: Mapping[str, str] = os.environ, cwd: Path | None = None) -> Credentials:
    """Look where the client looks."""
    home = _home(environ)
    files = tuple(_settings_files(environ, home, cwd or Path()))
    url = environ.get("WANDB_BASE_URL") or _setting("base_url", files)[0] or CLOUD
    login = Credentials(url.rstrip("/"), None)
    if urlsplit(url).scheme not in ("http", "https"):
        return login._replace(trouble=f"{scrub(clean(url, 100))} is no address of a W&B server", hint=SCHEME)
    key, token = environ.get("WANDB_API_KEY"), environ.get("WANDB_IDENTITY_TOKEN_FILE")
    if key and token:
        words = "WANDB_API_KEY and WANDB_IDENTITY_TOKEN_FILE are both set"
        return login._replace(trouble=words, hint="unset one of the two")
    if key and key != key.strip():
        return login._replace(trouble="WANDB_API_KEY begins or ends with a blank, or a line's end", hint=BLANK)
    if key:
        return login._replace(place="WANDB_API_KEY")
    if token:
        return _by_token(login, Path(token))
    place, odd = _in_netrc(login, _netrc(environ, home))
    if place is None:
        place = _setting("api_key", files)[1]
    if place is not None:
        return login._replace(place=_shown(place, home))
    return login._replace(trouble=odd or f"there is no key for {login.server}", hint=HINT)


def _home(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ.get("HOME") or Path.home())
    except RuntimeError:  # a container's user may be in no list
        return Path("/")


def _by_token(login: Credentials, file: Path) -> Credentials:
    place = f"the identity token {file} (WANDB_IDENTITY_TOKEN_FILE)"
    if os.access(file, os.R_OK):
        return login._replace(place=place)
    return login._replace(trouble=f"{place} cannot be read", hint="does the file exist, and is it yours?")


def _netrc(environ: Mapping[str, str], home: Path) -> Path:
    named = environ.get("NETRC")
    if named:
        return _expanded(named, home)
    return next((file for name in (".netrc", "_netrc") if (file := home / name).exists()), home / ".netrc")


def _in_netrc(login: Credentials, file: Path) -> tuple[Path | None, str]:
    """The file, where it has a key for the server; else what is wrong with it, if something is."""
    try:
        known = netrc.netrc(str(file))
    except FileNotFoundError:
        return None, ""
    except (netrc.NetrcParseError, OSError, UnicodeDecodeError) as error:
        return None, f"{file} cannot be read: {_why(error)}"
    host = urlsplit(login.url).netloc
    for name in (host, *(sorted(CLOUD_HOSTS) if host in CLOUD_HOSTS else ())):
        found = known.authenticators(name)
        if found is not None and found[2]:
            return file, ""
    return None, ""


def _settings_files(environ: Mapping[str, str], home: Path, cwd: Path) -> Iterator[Path]:
    """The settings files, the one that goes before first."""
    yield cwd / (".wandb" if (cwd / ".wandb").exists() else "wandb") / "settings"
    named = environ.get("WANDB_CONFIG_DIR")
    yield (_expanded(named, home) if named else home / ".config" / "wandb") / "settings"


def _setting(name: str, files: tuple[Path, ...]) -> tuple[str | None, Path | None]:
    """A setting, and the file that has it; a file that cannot be read has none, as to the client."""
    for file in files:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(file)
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue
        value = parser.get(SETTINGS, name, fallback="").strip()
        if value:
            return value, file
    return None, None


def _why(error: Exception) -> str:
    """Without the line itself: it may hold the key."""
    if isinstance(error, netrc.NetrcParseError):
        return f"line {error.lineno} is odd"
    return (error.strerror or "failed").lower() if isinstance(error, OSError) else "it is not text"


def _expanded(path: str, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else Path(path)


def _shown(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
