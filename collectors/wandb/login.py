"""Finds the key for W&B and its server, by the rules of W&B's own client, which would prompt for a missing key.

No value here contains the key itself. The rules are those of wandb 0.31: the environment, then the netrc file, then the
settings files, first that of the working directory, then that of the user.
"""

from __future__ import annotations

import configparser
import contextlib
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from trainmon.lib import clean, scrub

CLOUD = "https://api.wandb.ai"
CLOUD_HOSTS = frozenset({"api.wandb.ai", "api.forge.coreweave.com", "forge.coreweave.com"})
"""Names of one server. The client accepts a key of any of them."""

SETTINGS = "default"
"""The only section of a settings file that the client reads."""

LOGIN_HINT = "log in with `wandb login`, or set WANDB_API_KEY"


class Credentials(NamedTuple):
    """The credentials that the client would use."""

    url: str
    """The server's API."""
    location: str | None
    """Where the key is, for the operator; None if there is none."""
    error: str = ""
    """Why the key cannot be used, or that there is none."""
    hint: str = ""

    @property
    def server(self) -> str:
        """`wandb.ai`, or the host of a private server."""
        host = urlsplit(self.url).netloc
        return "wandb.ai" if host in CLOUD_HOSTS else host or self.url

    def shows(self, host: str) -> bool:
        """Whether this server's pages are on a host. `api.` and `app.` are names of one server."""
        app = os.environ.get("WANDB_APP_URL")
        names = {self.server, self.server.replace("api.", "app.", 1), urlsplit(app).netloc if app else ""}
        return host in names or (self.server == "wandb.ai" and host in CLOUD_HOSTS | {"app.wandb.ai"})


def find_credentials(environ: Mapping[str, str] = os.environ, cwd: Path | None = None) -> Credentials:
    """Find the credentials in the same places and order as the client."""
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError:  # a container's user may be unknown
        home = Path("/")
    cwd = cwd or Path()
    hidden = cwd / ".wandb"
    user_config = _expanded(environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb", home)
    files = ((hidden if hidden.exists() else cwd / "wandb") / "settings", user_config / "settings")
    url = environ.get("WANDB_BASE_URL") or _setting("base_url", files)[0] or CLOUD
    credentials = Credentials(url.rstrip("/"), None)
    if urlsplit(url).scheme not in ("http", "https"):
        hint = "WANDB_BASE_URL, or base_url in the settings file, must begin with https:// or http://"
        return credentials._replace(error=f"{scrub(clean(url, 100))} is not the address of a W&B server", hint=hint)
    key, token = environ.get("WANDB_API_KEY"), environ.get("WANDB_IDENTITY_TOKEN_FILE")
    if key and token:
        both = "WANDB_API_KEY and WANDB_IDENTITY_TOKEN_FILE are both set"
        return credentials._replace(error=both, hint="unset one of the two")
    if key and key != key.strip():
        hint = "set it to the key alone: W&B's client refuses it"
        return credentials._replace(error="WANDB_API_KEY begins or ends with a space or a line break", hint=hint)
    if key:
        return credentials._replace(location="WANDB_API_KEY")
    if token:
        location = f"the identity token {token} (WANDB_IDENTITY_TOKEN_FILE)"
        if os.access(token, os.R_OK):
            return credentials._replace(location=location)
        return credentials._replace(error=f"{location} cannot be read", hint="check that the file exists and is yours")
    file, error = _netrc_with_key(credentials, environ, home)
    file = file or _setting("api_key", files)[1]
    if file is None:
        return credentials._replace(error=error or f"there is no key for {credentials.server}", hint=LOGIN_HINT)
    return credentials._replace(location=f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file))


def _netrc_with_key(wanted: Credentials, environ: Mapping[str, str], home: Path) -> tuple[Path | None, str]:
    """The netrc file if it has a key for the server; otherwise why it cannot be read, if it cannot."""
    usual = (home / ".netrc", home / "_netrc")
    named = environ.get("NETRC")
    file = _expanded(named, home) if named else next(filter(Path.exists, usual), usual[0])
    try:
        entries = netrc.netrc(str(file))
    except FileNotFoundError:
        return None, ""
    except netrc.NetrcParseError as error:
        return None, f"{file} cannot be read: syntax error in line {error.lineno}"  # the line may hold the key
    except OSError as error:
        return None, f"{file} cannot be read: {(error.strerror or 'failed').lower()}"
    except UnicodeDecodeError:
        return None, f"{file} cannot be read: it is not text"
    host = urlsplit(wanted.url).netloc
    for name in (host, *(sorted(CLOUD_HOSTS) if host in CLOUD_HOSTS else ())):
        entry = entries.authenticators(name)
        if entry is not None and entry[2]:
            return file, ""
    return None, ""


def _setting(name: str, files: tuple[Path, ...]) -> tuple[str | None, Path | None]:
    """A setting, and the file that has it. Files that cannot be read are ignored, as by the client."""
    for file in files:
        parser = configparser.ConfigParser(interpolation=None)
        with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
            parser.read(file)
            value = parser.get(SETTINGS, name, fallback="").strip()
            if value:
                return value, file
    return None, None


def _expanded(path: str, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else Path(path)
