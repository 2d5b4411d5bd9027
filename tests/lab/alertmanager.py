"""Debian's Alertmanager in the foreground, on loopback. What it notifies goes to a webhook of the test."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from tests.lab.daemons import Daemon, program
from tests.lab.slurm_config import ports

CONFIG = """\
route: {{ receiver: hook, group_by: ['...'], group_wait: 1s, group_interval: 1s, repeat_interval: 4h }}
receivers:
  - name: hook
    webhook_configs: [{{ url: "{hook}", send_resolved: true }}]
"""


class Alertmanager:
    """One that runs. It has no peers, and keeps its alerts in memory alone, as always."""

    def __init__(self, folder: Path, hook: str) -> None:
        [port] = ports(1)
        self.url = f"http://127.0.0.1:{port}"
        folder.mkdir(exist_ok=True)
        file = folder / "alertmanager.yml"
        file.write_text(CONFIG.format(hook=hook))
        argv = [
            program("prometheus-alertmanager", "prometheus-alertmanager"), f"--config.file={file}",
            f"--storage.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
            "--log.level=warn",
        ]  # fmt: skip
        self.daemon = Daemon("alertmanager", argv, folder / "alertmanager.log", os.environ)

    def __enter__(self) -> Alertmanager:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()

    def start(self) -> None:
        self.daemon.start()
        self.daemon.until(lambda: self.alerts() is not None, "Alertmanager answers")

    def alerts(self) -> list[Any] | None:
        """The alerts that fire there; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=60) as response:
                found: list[Any] = json.loads(response.read())
                return found
        except OSError:
            return None

    def names(self) -> list[str]:
        """What fires there, by the subject of trainmon-tui."""
        return sorted(one["labels"].get("subject", "") for one in self.alerts() or ())
