"""The product as somebody on the login host of this Slurm has it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.end_to_end.product import PROGRAM, Product, Screen
from trainmon.cli.commands import COMMANDS


class SlurmProduct(Product):
    """Its commands find this Slurm, and read one config."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._environ = dict(environ)
        self._config: list[str] = []

    def watch(self, text: str) -> None:
        """From now on every command is called with this config."""
        self._config = [f"--config={self.config(text)}"]

    def argv(self, *words: str) -> list[str]:
        """The ledger's list dials nobody, and takes no ssh config."""
        return [PROGRAM, *words] if words[:1] == ("actions",) else super().argv(*words)

    def run(self, *words: str, timeout: float = 90.0, **env: str) -> subprocess.CompletedProcess[str]:
        with_config = self._config if any(one.name == "config" for one in COMMANDS[words[0]].params) else []
        return super().run(*words, *with_config, timeout=timeout, **{**self._environ, **env})

    def act(self, *words: str) -> str:
        """A verb that is done, and left before what should follow it does; what it says."""
        done = self.run(*words, "--yes", "--wait=100ms")
        output = done.stdout + done.stderr
        assert done.returncode in (0, 3), f"{words}: {done.returncode}\n{output}"
        assert ": done" in output, output
        return output

    def refused(self, *words: str) -> str:
        """A verb that is refused; what it says."""
        done = self.run(*words, "--yes")
        assert done.returncode == 4, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def each(self, do: Callable[..., str], *calls: Sequence[str]) -> list[str]:
        """The same for several calls, which take their seconds side by side."""
        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(lambda words: do(*words), calls))

    def actions(self) -> list[dict[str, Any]]:
        """What the ledger has, the newest last."""
        actions_listed: list[dict[str, Any]] = json.loads(self.run("actions", "--json").stdout)
        return actions_listed

    def dashboard(self, *words: str, columns: int = 160, rows: int = 48) -> Screen:
        return super().screen(*words, *self._config, columns=columns, rows=rows, **self._environ)
