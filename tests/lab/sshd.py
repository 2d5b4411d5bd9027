"""A real OpenSSH sshd on loopback, with host keys, user keys and a client config of its own, in a temporary directory.

It listens on one port of every 127.0.0.0/8 address, so that one sshd stands for as many nodes as a test wants.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.lab.processes import descendants

INSTALL = "OpenSSH's {} is missing; install it: apt-get install -y openssh-server openssh-client"
DEADLINE = 120.0
NESTED = {"SHLVL": "2", "HOME": "/"}
"""What every session has in its environment, those with a SetEnv of their own in a Match block, too: bash under sshd
reads ~/.bashrc unless it is a nested shell, a login shell reads ~/.profile, and what a developer has there (pyenv waits
a minute for a lock) is not tested."""


def program(name: str) -> str:
    """The path of an OpenSSH program; a missing one fails the run."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(INSTALL.format(name))
    return found


def until(condition: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


def keygen(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair at path and path.pub."""
    command = [program("ssh-keygen"), "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def sign(authority: Path, key: Path, principal: str) -> Path:
    """A user certificate for a key; returns its path, KEY-cert.pub."""
    command = [program("ssh-keygen"), "-q", "-s", str(authority), "-I", "test", "-n", principal, f"{key}.pub"]
    subprocess.run(command, check=True)
    return key.with_name(key.name + "-cert.pub")


def sign_host(authority: Path, key: Path, *names: str, valid: str = "always:forever") -> Path:
    """A host certificate for a key; returns its path, KEY-cert.pub."""
    command = [program("ssh-keygen"), "-q", "-s", str(authority), "-h", "-I", "test", "-V", valid]
    subprocess.run([*command, *(["-n", ",".join(names)] if names else []), f"{key}.pub"], check=True)
    return key.with_name(key.name + "-cert.pub")


class Sshd:
    """A running sshd. `key` is the user key it accepts, `known_hosts` lists it under every address."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self.directory = directory
        self.user = getpass.getuser()
        self.port = free_port()
        self.key = keygen(directory / "id_user")
        self.authority = keygen(directory / "user_ca")
        self.host_keys = {kind: keygen(directory / f"host_{kind}", kind=kind) for kind in ("ed25519", "ecdsa")}
        self.authorized = directory / "authorized_keys"
        self.authorized.write_text(self.public(self.key) + "\n")
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.write_text(f"[127.*]:{self.port} {self.public(self.host_keys['ed25519'])}\n")
        self.log = directory / "sshd.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def start(cls, directory: Path, **options: str) -> Iterator[Sshd]:
        """Start one; options override lines of its config."""
        directory.mkdir(parents=True, exist_ok=True)
        sshd = cls(directory, options)
        sshd.run()
        try:
            yield sshd
        finally:
            sshd.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def run(self) -> None:
        config = self.directory / "sshd_config"
        config.write_text(self._config())
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._program(), "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._listens, f"sshd listens; its log: {self.log}")

    def stop(self) -> None:
        """End it and every session it serves."""
        if self._process is None:
            return
        for pid in (*self.sessions(), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        self._process.wait(DEADLINE)
        self._process = None

    def sessions(self) -> list[int]:
        """The processes of sshd that serve connections now, commands they run included."""
        return descendants(self.pid)

    def public(self, key: Path) -> str:
        return " ".join(Path(f"{key}.pub").read_text().split()[:2])

    def address(self, number: int) -> str:
        """The address of node `number`."""
        return f"127.0.{10 + number // 250}.{1 + number % 250}"

    def ssh_config(self, nodes: int = 1, *, name: str = "n{}", extra: str = "", path: Path | None = None) -> Path:
        """A client config for nodes n0, n1, …; `extra` lines come first, so that they win."""
        path = path or self.directory / "ssh_config"
        hosts = "".join(f"Host {name.format(i)}\n  HostName {self.address(i)}\n" for i in range(nodes))
        common = {
            "User": self.user,
            "Port": str(self.port),
            "IdentityFile": str(self.key),
            "IdentityAgent": "none",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "none",
        }
        tail = "Host *\n" + "".join(f"  {key} {value}\n" for key, value in common.items())
        path.write_text(f"{extra}\n{hosts}{tail}")
        return path

    def _program(self) -> str:
        return program("sshd")

    def _config(self) -> str:
        lines = {
            "ListenAddress": "0.0.0.0",
            "Port": str(self.port),
            "PidFile": "none",
            "AuthorizedKeysFile": str(self.authorized),
            "TrustedUserCAKeys": f"{self.authority}.pub",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "StrictModes": "no",
            "MaxStartups": "200:100:200",
            "LogLevel": "VERBOSE",
            **self._options,
            "SetEnv": f"SHLVL={NESTED['SHLVL']} HOME={NESTED['HOME']} {self._options.get('SetEnv', '')}",
        }
        keys = "".join(f"HostKey {path}\n" for path in self.host_keys.values())
        return keys + "".join(f"{key} {value}\n" for key, value in lines.items())

    def _listens(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"sshd ended: {self.log.read_text()}")
        # Not tried by connecting: that would count as a login under way (MaxStartups).
        return "Server listening on" in self.log.read_text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return int(probe.getsockname()[1])
