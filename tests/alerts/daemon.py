"""One `trainmon-tui --alerts-only` in a home of its own: its config, its log, the commands that ask it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.end_to_end.product import PROGRAM, environment
from tests.lab import forked
from tests.lab.daemons import Daemon, until
from trainmon.ledger.ledger import alerts_now

PATIENCE = 120.0
PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')

UNWANTED = {
    "textual",
    "rich",
    "wandb",
    "plotext",
    "matplotlib",
    "apprise",
    "requests",
    "numpy",
    "PIL",
    "prometheus_client",
}
"""What no daemon without a terminal holds for months: children load it, and end."""

Line = Mapping[str, str]


def fields(line: str) -> Line:
    """A line of its log as what it says."""
    return {key: json.loads(value) if value.startswith('"') else value for key, value in PAIR.findall(line)}


def imported(errors: str) -> set[str]:
    """The packages that a program has loaded, where PYTHONPROFILEIMPORTTIME had it tell."""
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in errors.splitlines() if "import time:" in line}


class AlertDaemon:
    """A daemon that a test starts, tells things, kills and starts again; what it wrote stays in its log."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "daemon",
        ssh_config: Path | None = None,
        program: str = PROGRAM,
        **env: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.program = program
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self.state = self.home / ".local" / "state" / "trainmon-tui"
        self.config = folder / "trainmon.toml"
        self.ssh_config = ssh_config
        self.env = environment(self.home, **env)
        self.log = folder / f"{name}.log"
        self._process: Daemon | None = None

    def argv(self, *words: str) -> list[str]:
        with_ssh = [f"--ssh-config={self.ssh_config}"] if self.ssh_config is not None else []
        return [self.program, *words, f"--config={self.config}", *with_ssh]

    def start(self, *words: str) -> None:
        self._process = Daemon("trainmon-tui", self.argv("--alerts-only", *words), self.log, self.env)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def kill(self) -> None:
        """As the out-of-memory killer does."""
        assert self._process is not None
        self._process.kill()

    def tell(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Until it has ended; its exit status."""
        deadline = time.monotonic() + PATIENCE
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, f"it does not end:\n{self.log.read_text()}"
            time.sleep(0.02)

    def close(self) -> None:
        if self._process is not None and self._process.is_running:
            self._process.kill()

    # ---- what it says ------------------------------------------------------------------------------------------------

    def lines(self, **wanted: str) -> list[Line]:
        """What it has said with these values, oldest first."""
        text = self.log.read_text() if self.log.exists() else ""
        found = [fields(line) for line in text.splitlines()]
        return [line for line in found if all(line.get(key) == value for key, value in wanted.items())]

    def until(self, what: str, *, count: int = 1, **wanted: str) -> Line:
        """Wait until it has said so; the newest such line."""
        try:
            until(lambda: len(self.lines(event=what, **wanted)) >= count, f"{what} {wanted}", PATIENCE)
        except AssertionError as error:
            error.add_note(self.log.read_text() if self.log.exists() else "it has no log")
            raise
        return self.lines(event=what, **wanted)[-1]

    def until_marked(self) -> None:
        """Wait until what was sent is written down as sent: no program after this one sends it again."""
        until(lambda: alerts_now(self.state, time.time()).outbox.waiting == 0, "the marks of what was sent", PATIENCE)

    # ---- what is asked of it -----------------------------------------------------------------------------------------

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Another command of the same user."""
        return forked.run([self.program, *words], cwd=self.folder, env={**self.env, **env})

    def once(self, **env: str) -> subprocess.CompletedProcess[str]:
        return forked.run(self.argv("--alerts-only", "--once"), cwd=self.folder, env={**self.env, **env})

    def status(self) -> dict[str, Any]:
        done = self.run("status", "--json")
        assert done.returncode in (0, 1, 3), done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def alert(self, rule: str) -> dict[str, Any] | None:
        """The open alert by a rule, as `status` has it."""
        return next((one for one in self.status()["alerts"] if one["rule"] == rule), None)
