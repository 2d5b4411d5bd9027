"""A stand-in for dcgm-exporter: it prints the default metrics of N nodes with M GPUs each, as one target does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

METRICS = {
    "DCGM_FI_DEV_SM_CLOCK": 1980.0,
    "DCGM_FI_DEV_MEM_CLOCK": 2619.0,
    "DCGM_FI_DEV_MEMORY_TEMP": 50.0,
    "DCGM_FI_DEV_GPU_TEMP": 60.0,
    "DCGM_FI_DEV_POWER_USAGE": 650.0,
    "DCGM_FI_DEV_GPU_UTIL": 99.0,
    "DCGM_FI_DEV_FB_FREE": 9_000.0,
    "DCGM_FI_DEV_FB_USED": 72_000.0,
    "DCGM_FI_DEV_XID_ERRORS": 0.0,
}
"""Names and units of etc/default-counters.csv, each with a value of a busy H100."""


class DcgmExporter:
    """An HTTP server on loopback. `values` overrides numbers, by (metric, node, GPU); None ends a series."""

    def __init__(self, nodes: int, gpus: int = 8, *, noise: float = 0.0, names: Sequence[str] = ()) -> None:
        self.names = names or [f"gpu-{number:03d}" for number in range(1, nodes + 1)]
        self.gpus = gpus
        self.noise = noise
        """The share of GPUs whose temperature differs in each scrape."""
        self.values: dict[tuple[str, str, int], float | None] = {}
        self.instances: dict[tuple[str, int], int] = {}
        """By (node, GPU): its MIG instances. Such a GPU has series of these only, each with the values of the GPU."""
        self.renamed: frozenset[str] = frozenset()
        """The nodes with a release after 4.8.2: it names them in `hostname`."""
        self.scrapes = 0
        self.has_failed = False
        """Whether it answers with an error now."""
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.scrapes += 1
                body = "\n".join([*exporter.lines(), ""]).encode()
                self.send_response(500 if exporter.has_failed else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def lines(self) -> Iterator[str]:
        """Its metrics in the text format."""
        often = round(1 / self.noise) if self.noise else 0
        for metric, usual in METRICS.items():
            yield f"# TYPE {metric} gauge"
            for row, node in enumerate(self.names):
                name = "hostname" if node in self.renamed else "Hostname"
                for gpu in range(self.gpus):
                    number = row * self.gpus + gpu
                    value = self.values.get((metric, node, gpu), usual)
                    if often and metric == "DCGM_FI_DEV_GPU_TEMP" and (number + self.scrapes) % often == 0:
                        value = usual + self.scrapes % 7
                    if value is None:
                        continue
                    instances = range(1, self.instances.get((node, gpu), 0) + 1)
                    for label in [f'GPU_I_PROFILE="1g.10gb",GPU_I_ID="{one}",' for one in instances] or [""]:
                        yield (
                            f'{metric}{{gpu="{gpu}",UUID="GPU-{number:08x}-0000-0000-0000-000000000000",'
                            f'pci_bus_id="00000000:{gpu + 16:02X}:00.0",device="nvidia{gpu}",'
                            f'modelName="NVIDIA H100 80GB HBM3",{label}{name}="{node}",'
                            f'DCGM_FI_DRIVER_VERSION="550.54.15"}} {value:g}'
                        )

    def __enter__(self) -> DcgmExporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
