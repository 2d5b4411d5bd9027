"""The dashboard with 256 nodes of 8 GPUs from a real Prometheus: `python -m tests.bench.prometheus [NODES]`.

The exporters are stand-ins for dcgm-exporter and node_exporter. In each scrape, the temperatures of 5% of the GPUs
differ.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.dashboard import percent, rate
from tests.bench.program import run_program
from tests.bench.table import show
from tests.lab.daemons import until
from tests.lab.dcgm_exporter import DcgmExporter
from tests.lab.node_exporter import HostExporter
from tests.lab.prometheus import Prometheus
from tests.lab.terminal import Terminal

NODES = int(sys.argv[1]) if sys.argv[1:] else 256
SCRAPE = 15
SETTLE = 60.0
SPAN = 120.0
"""Eight rounds of queries."""
GOAL_PERCENT, GOAL_MIB = 6.0, 150.0

CONFIG = """
[[cluster]]
name = "prod"
nodes = ["gpu-[001-{nodes:03d}]"]
metrics = [{{ url = "{url}" }}, {{ url = "{url}", exporter = "node", node_label = "Hostname" }}]

[[disk]]
path = "/"
on = "nodes"

[[disk]]
path = "/scratch"
on = "nodes"
"""


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        DcgmExporter(NODES, noise=0.05) as exporter,
        HostExporter(NODES, names=exporter.names) as hosts,
    ):
        directory = Path(folder)
        with Prometheus(directory, {"dcgm": [exporter.address], "node": [hosts.address]}, every=SCRAPE) as server:
            until(lambda: exporter.scrapes >= 2, "two scrapes")
            config = directory / "trainmon.toml"
            config.write_text(CONFIG.format(nodes=NODES, url=server.url))
            os.environ["HOME"] = os.environ["XDG_STATE_HOME"] = folder
            with Terminal([sys.executable, "-m", "trainmon", "--config", str(config)]) as terminal:
                terminal.wait_for_text("gpu-001", timeout=120)
                first = time.monotonic() - terminal.started_at
                time.sleep(SETTLE)
                before = terminal.cost()
                time.sleep(SPAN)
                after = terminal.cost()
    cpu, rss = percent(before, after), after.rss_mib
    rows = [
        ["CPU % of a core", f"{cpu:.1f}", f"<= {GOAL_PERCENT:g}"],
        ["RSS MiB", f"{rss:.0f}", f"<= {GOAL_MIB:g}"],
        ["bytes/s to the terminal", f"{rate(before, after):.0f}", ""],
        ["seconds from the start to the first numbers", f"{first:.1f}", ""],
    ]
    show(
        f"{8 * NODES:,} GPUs from Prometheus, scraped and polled every 15s, 120 columns",
        ("what", "measured", "goal"),
        rows,
    )
    if cpu > GOAL_PERCENT or rss > GOAL_MIB:
        raise SystemExit(1)


if __name__ == "__main__":
    run_program(main)
