"""The settings of a host as OpenSSH itself sees them: `ssh -G HOST` (Include, Match, canonical names; about 4 ms).

paramiko's own parser ignores Include and parts of Match; it is used only where there is no ssh command.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import glob
import hashlib
import os
import pwd
import re
import shlex
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from trainmon.lib import HostUnreachable, Seconds, by_key

TIMEOUT: Seconds = 10.0
"""For `ssh -G`: Match exec and canonical names may query slow services."""

FORBIDDEN = "'`\"$\\;&<>|(){}\x7f"
"""Not in host names, as in OpenSSH since 9.6: a ProxyCommand puts the name into a shell line."""

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")

ALGORITHMS = frozenset({"hostkeyalgorithms", "kexalgorithms", "ciphers", "macs"})
"""The lists whose default is the same as no list: this OpenSSH may be older than our algorithms."""

FALLBACK_NOTE = "there is no ssh command here: paramiko reads the config, and ignores Include and parts of Match"


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that restrict which servers, keys and algorithms OpenSSH accepts. None: no restriction."""

    host_keys: tuple[str, ...] | None = None
    """HostKeyAlgorithms."""
    known_first: bool = True
    """Whether OpenSSH asks first for the types of host key that known_hosts lists."""
    authorities: tuple[str, ...] | None = None
    """CASignatureAlgorithms."""
    user_keys: tuple[str, ...] | None = None
    """PubkeyAcceptedAlgorithms."""
    ciphers: tuple[str, ...] | None = None
    macs: tuple[str, ...] | None = None
    key_exchanges: tuple[str, ...] | None = None
    rsa_bits: int = 0
    """RequiredRSASize: the smallest RSA key of a host or a user."""
    revoked: str | None = None
    """RevokedHostKeys: a file."""
    checks_address: bool = False
    """CheckHostIP: known_hosts must not list another key for the address of the host."""
    command: bool = False
    """Whether KnownHostsCommand is set."""


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenSSH would do to reach a host. Paths are expanded; order is OpenSSH's."""

    name: str
    """The name as it was requested."""
    hostname: str
    user: str
    port: int = 22
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    certificate_files: tuple[str, ...] = ()
    identity_agent: str | None = None
    """The agent's socket; None without an agent."""
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    known_hosts: tuple[str, ...] = ()
    """The user's files, then the machine's."""
    host_key_alias: str | None = None
    alive_interval: int = 0
    alive_count: int = 3
    connect_timeout: float | None = None
    methods: frozenset[str] = frozenset({"publickey", "keyboard-interactive", "password"})
    """Login methods that the config allows."""
    batch: bool = False
    gssapi: bool = False
    """GSSAPIAuthentication: a Kerberos ticket may log in."""
    provider: str | None = None
    """PKCS11Provider: the library of a token with keys."""
    control_path: str | None = None
    """ControlPath: where the socket of a master connection is, if one is open."""
    opens_master: bool = False
    """ControlMaster: whether `ssh` opens a master connection by itself."""
    address_family: str = "any"
    trust: Trust = Trust()
    note: str | None = None
    """A note for `check`, for example that OpenSSH did not read the config itself."""


def openssh_settings(
    host: str, config_file: Path | None = None, *, user: str | None = None, port: int | None = None
) -> HostSettings:
    """The settings of a host, from `ssh -G`.

    Raises:
        HostUnreachable: when the name is not valid, or OpenSSH rejects its config; with OpenSSH's own message.
    """
    if not host or host.startswith("-") or any(ord(c) <= 32 or c in FORBIDDEN for c in host + (user or "")):
        raise HostUnreachable(host, f"{host!r} is not a host name", hint="check the nodes in the config")
    options = [*(["-F", str(config_file)] if config_file else []), *(["-l", user] if user else [])]
    try:
        done = _ssh(*options, *(["-p", str(port)] if port else []), "--", host)
    except FileNotFoundError:
        return _by_paramiko(host, config_file, user, port)
    except subprocess.TimeoutExpired as error:
        hint = "a Match exec or a DNS lookup hangs; try: ssh -G " + host
        raise HostUnreachable(host, f"{host}: `ssh -G` did not answer in {TIMEOUT:g}s", hint=hint) from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise HostUnreachable(
            host, f"{host}: ssh rejects its config: {lines[0] if lines else done.returncode}", hint=f"ssh -G {host}"
        )
    values = _values(done.stdout)
    values = {key: value for key, value in values.items() if key not in ALGORITHMS or value != _defaults().get(key)}
    # One that adds to the default or removes from it looks like a list here, but OpenSSH then asks first for the keys
    # that known_hosts lists.
    known_first = "hostkeyalgorithms" not in values or any(
        words[0].lower() == "hostkeyalgorithms" and words[1].startswith(("+", "-"))
        for words in _lines_of(*_files(config_file))
    )
    return _settings(host, values, known_first=known_first)


MAX_HOPS = 8
JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:]+)(?::(?P<port>\d+))?/?")
Route = tuple[HostSettings, ...]


def route_to(host: str, config_file: Path | None = None) -> Route:
    """The settings of the jump hosts of a host, the first one first, and of the host itself.

    Raises:
        HostUnreachable: when its name or its ProxyJump is not valid, or OpenSSH rejects its config.
    """
    route: list[HostSettings] = [openssh_settings(host, config_file)]
    hops = route[0].proxy_jump
    while hops:
        found = JUMP.fullmatch(hops[-1])
        if found is None or len(route) > MAX_HOPS:
            raise HostUnreachable(host, f"{host}: its ProxyJump {','.join(hops)!r} is not valid")
        port = int(found["port"]) if found["port"] else None
        route.insert(0, openssh_settings(found["host"].strip("[]"), config_file, user=found["user"], port=port))
        hops = hops[:-1] or route[0].proxy_jump
    if len({(stop.hostname, stop.port, stop.user) for stop in route}) < len(route):
        raise HostUnreachable(host, f"{host}: its ProxyJump forms a loop", hint="see ProxyJump in ~/.ssh/config")
    return tuple(route)


def accept_command(settings: HostSettings, via: Route, config_file: Path | None) -> str:
    """The OpenSSH command that reaches this host the same way, and asks before it adds the key."""
    argv = ["ssh", *(["-F", str(config_file)] if config_file else []), "-o", "StrictHostKeyChecking=ask"]
    if via and not settings.proxy_jump:
        argv += ["-J", ",".join(f"{hop.user}@{hop.hostname}:{hop.port}" for hop in via)]
    if settings.port != 22:
        argv += ["-p", str(settings.port)]
    return shlex.join([*argv, settings.name, "true"])


def _ssh(*words: str) -> subprocess.CompletedProcess[bytes]:
    """`ssh -G`; with -T, which keeps it from saying first that it allocates no terminal."""
    command = ["ssh", "-TG", *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False)


def _values(output: bytes) -> dict[str, list[str]]:
    lines = (line.partition(" ") for line in output.decode(errors="replace").splitlines())
    return by_key((key.lower(), value) for key, _, value in lines)


@functools.cache
def _defaults() -> dict[str, list[str]]:
    """The settings of this OpenSSH without a config."""
    return _values(_ssh("-F", "none", "localhost").stdout)


def has_option(name: str) -> bool:
    """Whether this OpenSSH knows an option that has a default."""
    return name.lower() in _defaults()


def _files(config_file: Path | None) -> tuple[Path, ...]:
    """The files that OpenSSH reads."""
    return (config_file,) if config_file else (Path(at_home("~/.ssh/config")), SYSTEM_CONFIG)


def _settings(
    name: str, values: Mapping[str, list[str]], *, known_first: bool = True, note: str | None = None
) -> HostSettings:
    def one(key: str, default: str = "") -> str:
        return values.get(key, [default])[0]

    def path_of(key: str) -> str | None:
        return None if one(key, "none").lower() == "none" else one(key)

    hostname, user, port = one("hostname", name), one("user") or getpass.getuser(), int(one("port", "22"))
    alias = one("hostkeyalias") or None
    jump, proxy = one("proxyjump", "none"), one("proxycommand", "none")
    tokens = _tokens(name, hostname, user, port, alias, jump if jump != "none" else "")
    timeout = one("connecttimeout", "none")
    return HostSettings(
        name=name,
        hostname=hostname,
        user=user,
        port=port,
        identity_files=_paths(values.get("identityfile", []), tokens),
        identities_only=one("identitiesonly") in ("yes", "true"),
        certificate_files=_paths(values.get("certificatefile", []), tokens),
        identity_agent=_agent(one("identityagent", "SSH_AUTH_SOCK"), tokens),
        proxy_jump=() if jump == "none" else tuple(jump.split(",")),
        proxy_command=None if proxy == "none" else _percent(proxy, tokens),
        known_hosts=(*_split(one("userknownhostsfile")), *_split(one("globalknownhostsfile"))),
        host_key_alias=alias,
        alive_interval=_number(one("serveraliveinterval")),
        alive_count=_number(one("serveralivecountmax"), 3),
        connect_timeout=None if timeout == "none" else float(timeout),
        methods=_methods(values),
        batch=one("batchmode") == "yes",
        gssapi=one("gssapiauthentication") == "yes",
        provider=path_of("pkcs11provider"),
        control_path=path_of("controlpath") if note is None else None,
        opens_master=one("controlmaster", "false") not in ("false", "no"),
        address_family=one("addressfamily", "any"),
        trust=_trust(values, known_first),
        note=note,
    )


def _trust(values: Mapping[str, list[str]], known_first: bool) -> Trust:
    def one(*keys: str) -> str | None:
        return next((values[key][0] for key in keys if key in values), None)

    def names(*keys: str) -> tuple[str, ...] | None:
        found = one(*keys)
        return None if found is None else tuple(name for name in found.split(",") if name)

    revoked = one("revokedhostkeys")
    return Trust(
        host_keys=names("hostkeyalgorithms"),
        known_first=known_first,
        authorities=names("casignaturealgorithms"),
        user_keys=names("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes"),  # OpenSSH before 8.5
        ciphers=names("ciphers"),
        macs=names("macs"),
        key_exchanges=names("kexalgorithms"),
        rsa_bits=_number(one("requiredrsasize", "rsaminsize") or ""),  # Red Hat's OpenSSH 8.7
        revoked=at_home(revoked) if revoked else None,
        checks_address=one("checkhostip") in ("yes", "true"),
        command=one("knownhostscommand") is not None,
    )


def _methods(values: Mapping[str, list[str]]) -> frozenset[str]:
    keys = {
        "publickey": "pubkeyauthentication",
        "keyboard-interactive": "kbdinteractiveauthentication",
        "password": "passwordauthentication",
    }
    allowed = {method for method, key in keys.items() if values.get(key, ["yes"])[0] not in ("no", "false")}
    preferred = values.get("preferredauthentications", [""])[0]
    return frozenset(allowed & set(preferred.split(",")) if preferred else allowed)


def _number(text: str, default: int = 0) -> int:
    return int(text) if text.isdigit() else default


def _tokens(name: str, hostname: str, user: str, port: int, alias: str | None, jump: str) -> dict[str, str]:
    local = socket.gethostname()
    digest = hashlib.sha1(f"{local}{hostname}{port}{user}{jump}".encode(), usedforsecurity=False).hexdigest()
    return {
        "%": "%", "C": digest, "d": at_home("~"), "h": hostname, "i": str(os.getuid()), "j": jump,
        "k": alias or name, "L": local.split(".")[0], "l": local, "n": name, "p": str(port), "r": user,
        "u": getpass.getuser(),
    }  # fmt: skip


def _percent(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _path(text: str, tokens: Mapping[str, str]) -> str:
    return at_home(re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], ""), _percent(text, tokens)))


def at_home(path: str) -> str:
    """A path whose ~ is expanded as by OpenSSH: it takes the home from the user database, not from $HOME."""
    with contextlib.suppress(KeyError):  # a container may have users that its database does not list
        path = re.sub(r"^~(?=/|$)", pwd.getpwuid(os.getuid()).pw_dir, path)
    # The home of an unknown user stays unexpanded: the file is then missing.
    return os.path.expanduser(path)  # noqa: PTH111


def _paths(texts: Iterable[str], tokens: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(_path(text.strip('"'), tokens) for text in texts if text and text.lower() != "none")


def _split(text: str) -> list[str]:
    """`ssh -G` prints a list of files expanded, but without quotes: parts that only together name an existing file are
    one path."""
    parts = text.split(" ")
    counts = range(len(parts), 1, -1)
    count = next((count for count in counts if Path(at_home(" ".join(parts[:count]))).exists()), 1)
    path, rest = " ".join(parts[:count]), " ".join(parts[count:])
    paths = [] if path.lower() in ("", "none") else [at_home(path)]
    return paths + _split(rest) if rest else paths


def _agent(text: str, tokens: Mapping[str, str]) -> str | None:
    if text.lower() == "none":
        return None
    if text == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:]) or None
    return _path(text, tokens) or None


def _by_paramiko(host: str, config_file: Path | None, user: str | None, port: int | None) -> HostSettings:
    from paramiko.config import SSHConfig  # only where there is no ssh command

    files = _files(config_file)
    setting = next((words[0] for words in _lines_of(*files) if words[0].lower() in RESTRICTIONS), None)
    if setting is not None:
        sentence = f"{host}: the ssh config sets {setting}, and there is no ssh command here to read it"
        raise HostUnreachable(host, sentence, hint="install the OpenSSH client")
    login, _, bare = host.rpartition("@")
    try:
        found = SSHConfig.from_path(str(files[0])).lookup(bare) if files[0].is_file() else {}
    except Exception as error:  # paramiko raises whatever its parser stumbled on
        raise HostUnreachable(host, f"{files[0]} cannot be read: {error}", hint="install the OpenSSH client") from error
    given = {key: value for key, value in (("user", user or login), ("port", str(port or ""))) if value}
    values = {"hostname": bare, **FALLBACK, **found, **given}
    as_lists = {key: value if isinstance(value, list) else [value] for key, value in values.items()}
    return _settings(host, as_lists, note=FALLBACK_NOTE)


FALLBACK: Mapping[str, str | list[str]] = {
    "identityfile": [f"~/.ssh/{name}" for name in ("id_rsa", "id_ecdsa", "id_ed25519")],
    "userknownhostsfile": "~/.ssh/known_hosts ~/.ssh/known_hosts2",
    "globalknownhostsfile": "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",
}

RESTRICTIONS = ALGORITHMS | {
    "casignaturealgorithms", "pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes", "requiredrsasize", "rsaminsize",
    "revokedhostkeys", "checkhostip", "knownhostscommand",
}  # fmt: skip
"""The settings of `Trust`. Only OpenSSH's own parser is sure to find all of them, and expands `+` and `-`."""

MAX_FILES = 200
"""Of one config. An Include that includes itself ends here."""

MAX_BYTES = 1_048_576


def known_hosts_by_name(config_file: Path | None = None) -> tuple[str, ...]:
    """Every Host name without wildcards, in the order of the files, each once. Unreadable files are skipped."""
    names: dict[str, None] = {}
    for words in _lines_of(_files(config_file)[0]):
        if words[0].lower() == "host":
            names.update(dict.fromkeys(word for word in words[1:] if not set(word) & set("*?!")))
    return tuple(names)


HOST_TOKEN = re.compile(r"%[Chkn]")


def hosts_of_control_path(stop: HostSettings, config_file: Path | None) -> str | None:
    """The line `Host PATTERN` that gives the ControlPath of this host to others, too; None if there is none."""
    hosts, tokens = ["Host", "*"], _tokens(stop.name, stop.hostname, stop.user, stop.port, stop.host_key_alias, "")
    for words in _lines_of(*_files(config_file)):
        if words[0].lower() in ("host", "match"):
            hosts = words
        is_path = words[0].lower() == "controlpath" and not HOST_TOKEN.search(words[1])
        is_pattern = any(set(word) & set("*?") or word == "all" for word in hosts)
        if is_path and is_pattern and _path(words[1], tokens) == stop.control_path:
            return " ".join(hosts)
    return None


def _lines_of(*files: Path) -> Iterator[list[str]]:
    """The settings of config files and of those that they include. As by ssh, a relative Include of the system's config
    is taken from its directory, and every other from ~/.ssh, here by $HOME."""
    for file in files:
        folder = file.parent if file == SYSTEM_CONFIG else Path("~/.ssh").expanduser()
        yield from _included(file, folder, [MAX_FILES])


def _included(file: Path, folder: Path, budget: list[int]) -> Iterator[list[str]]:
    budget[0] -= 1
    if budget[0] < 0:
        return
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(MAX_BYTES)
    except OSError:
        return  # a missing config has no hosts; ssh itself skips a missing Include as well
    for line in text.splitlines():
        words = _words(line)
        if len(words) > 1 and words[0].lower() == "include":
            for pattern in words[1:]:
                path = folder / os.path.expanduser(pattern)  # noqa: PTH111 - an unknown ~user is no error
                for found in sorted(glob.glob(str(path))):  # noqa: PTH207 - it is absolute
                    yield from _included(Path(found), folder, budget)
        elif len(words) > 1:
            yield words


def _words(line: str) -> list[str]:
    """`Host a b`, `Host=a`, `Host "a"`, with or without a comment."""
    text = line.replace("=", " ", 1)
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()
