"""A real PostgreSQL on a free port, with a password. It keeps its data while it is stopped."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.lab.daemons import DEADLINE, Daemon
from tests.lab.slurm_config import ports

PASSWORD = "hush-hush-42"


def binary(name: str) -> str:
    """A program of the newest installed version; Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    assert found, "PostgreSQL is missing: apt-get install -y postgresql"
    return str(found[-1])


class Postgresql:
    """The server. `url` has its password."""

    def __init__(self, directory: Path) -> None:
        self._data = directory / "data"
        (self.port,) = ports(1)
        self.user = "postgres" if getpass.getuser() == "root" else getpass.getuser()
        self.url = f"postgresql://{self.user}:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        # The server refuses to run as root.
        self._as_user = (
            ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"] if os.getuid() == 0 else []
        )
        if self._as_user:
            shutil.chown(directory, self.user, self.user)
        secret = directory / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            binary("initdb"),
            "-D",
            str(self._data),
            "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "-U",
            self.user,
            "--no-sync",
        )
        options = ["-p", str(self.port), "-k", str(directory), "-c", "fsync=off", "-c", "listen_addresses=127.0.0.1"]
        argv = [*self._as_user, binary("postgres"), "-D", str(self._data), *options]
        self._daemon = Daemon("postgres", argv, directory / "log", {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})

    @classmethod
    @contextlib.contextmanager
    def start(cls) -> Iterator[Postgresql]:
        """Start one in a directory of its own."""
        directory = Path(tempfile.mkdtemp(prefix="pg-"))
        try:
            server = cls(directory)
            server.resume()
            try:
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def resume(self) -> None:
        """Start it, and wait until it answers."""
        self._daemon.start()
        ready = [binary("pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)]
        self._daemon.until(
            lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0, "it answers"
        )

    def stop(self) -> None:
        """Stop it at once: SIGINT rolls back what is open."""
        self._daemon.kill()

    def _run(self, *argv: str) -> None:
        done = subprocess.run(
            [*self._as_user, *argv], capture_output=True, text=True, timeout=DEADLINE, check=False,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
