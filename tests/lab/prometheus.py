"""Debian's Prometheus and node_exporter in the foreground, on loopback, with a short scrape interval."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.lab.daemons import Daemon, program
from tests.lab.slurm_config import ports

CONFIG = """global: {{ scrape_interval: {every}s, scrape_timeout: {every}s }}
rule_files: [{rules}]
scrape_configs:
{jobs}
"""
JOB = """  - job_name: {job}
    static_configs: [{{ targets: [{targets}], labels: {{ cluster: a }} }}]
"""


USER, PASSWORD = "ops", "correct horse"
HASH = "$2b$05$cqt1D6KHQyLfDE6Vq0gR3.dwBD22S7VgAPnx0qg5lU13F474JhC9."
"""bcrypt of the password: https://prometheus.io/docs/prometheus/latest/configuration/https/"""
LOGIN = {"Authorization": "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=LOGIN), timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


class Prometheus:
    """A server that scrapes these targets, by job, and may evaluate the rules of a file. It may require a
    login."""

    def __init__(
        self,
        folder: Path,
        jobs: Mapping[str, Sequence[str]],
        every: int = 1,
        rules: str = "",
        *,
        has_login: bool = False,
    ) -> None:
        [self.port] = ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        listed = (
            JOB.format(job=job, targets=", ".join(f'"{one}"' for one in targets)) for job, targets in jobs.items()
        )
        file = folder / "prometheus.yml"
        web = folder / "web.yml"
        web.write_text(json.dumps({"basic_auth_users": {USER: HASH} if has_login else {}}))
        file.write_text(CONFIG.format(every=every, jobs="".join(listed), rules=rules))
        argv = [
            program("prometheus", "prometheus"), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn", f"--web.config.file={web}",
        ]  # fmt: skip
        self._data = folder / "data"
        self.daemon = Daemon("prometheus", argv, folder / "prometheus.log", os.environ)

    def __enter__(self) -> Prometheus:
        self.daemon.start()
        self.daemon.until(lambda: answers(f"{self.url}/-/ready"), "Prometheus is ready")
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()

    def backfill(self, samples: Iterable[tuple[str, float, float]]) -> None:
        """Store series, times and values before the start, as if they had been scraped."""
        text = self._data.parent / "past.txt"
        text.write_text("".join(f"{series} {value} {at:.3f}\n" for series, at, value in samples) + "# EOF\n")
        argv = [program("promtool", "prometheus"), "tsdb", "create-blocks-from", "openmetrics", text, self._data]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)


class NodeExporter:
    """node_exporter of this machine."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.address = f"127.0.0.1:{ports(1)[0]}"
        own = program("prometheus-node-exporter", "prometheus-node-exporter")
        argv = [own, f"--web.listen-address={self.address}", *words]
        self.daemon = Daemon("node_exporter", argv, folder / "node_exporter.log", os.environ)

    def __enter__(self) -> NodeExporter:
        self.daemon.start()
        self.daemon.until(lambda: answers(f"http://{self.address}/metrics"), "node_exporter answers")
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()
