"""Slurm's accounting: a slurmdbd, and a MariaDB of its own under it."""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.lab import slurm_config
from tests.lab.daemons import DEADLINE, Daemon, program


class Accounting:
    """Both daemons. `port` is where slurmdbd listens."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self._database_port = slurm_config.ports(2)
        slurm_config.write_slurmdbd(directory, port=self.port, database=self._database_port)
        self._database: Daemon | None = None
        self._slurmdbd: Daemon | None = None

    def start(self, environ: Mapping[str, str]) -> None:
        """Start both, and make the cluster known."""
        env = {"PATH": os.environ["PATH"], "HOME": "/", "LC_ALL": "C.UTF-8", "TZ": "UTC", **environ}
        self._start_database(env)
        self._slurmdbd = Daemon(
            "slurmdbd", [program("slurmdbd", "slurmdbd"), "-D"], self.directory / "log" / "slurmdbd.log", env
        )
        self._slurmdbd.start()
        # The first attempts can end in "Unspecified error": slurmdbd has only just made its tables.
        self._slurmdbd.until(lambda: self._has_cluster(env), "slurmdbd knows the cluster")

    def stop(self) -> None:
        for daemon in (self._slurmdbd, self._database):
            if daemon is not None:
                daemon.kill()

    def stop_slurmdbd(self) -> None:
        assert self._slurmdbd is not None
        self._slurmdbd.stop()

    def _start_database(self, env: Mapping[str, str]) -> None:
        data, socket = self.directory / "database", self.directory / "database.sock"
        install = [program("mariadb-install-db", "mariadb-server"), "--no-defaults", f"--user={getpass.getuser()}"]
        made = self._run(*install, f"--datadir={data}", "--skip-test-db", env=env)
        assert made.returncode == 0, made.stderr
        argv = [program("mariadbd", "mariadb-server"), "--no-defaults", f"--user={getpass.getuser()}"]
        # Without grant tables nobody needs a password; it listens on loopback only, for as long as a test runs.
        argv += ["--skip-grant-tables", "--bind-address=127.0.0.1", f"--port={self._database_port}"]
        argv += [f"--datadir={data}", f"--socket={socket}", f"--pid-file={self.directory}/database.pid"]
        self._database = Daemon("mariadbd", argv, self.directory / "log" / "mariadbd.log", env)
        self._database.start()
        ping = (program("mariadb-admin", "mariadb-client"), "--no-defaults", f"--socket={socket}", "ping")
        self._database.until(lambda: self._answers(*ping, env=env), "the database answers")

    def _has_cluster(self, env: Mapping[str, str]) -> bool:
        self._run("sacctmgr", "-i", "add", "cluster", "lab", env=env)
        return "lab" in self._run("sacctmgr", "-n", "-P", "list", "cluster", "format=cluster", env=env).stdout.split()

    def _answers(self, *argv: str, env: Mapping[str, str]) -> bool:
        return self._run(*argv, env=env).returncode == 0

    def _run(self, *argv: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
