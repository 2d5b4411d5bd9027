"""The product with a W&B server of the test: its config, its environment, and what of W&B runs because of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.end_to_end.product import Product, environ_of
from tests.lab.wandb_server import WandbServer

RUN = """\
[wandb]
every = "15s"
[[run]]
name = "video"
wandb = "tester/video"
group = "final"
"""


class SnapshotResult(NamedTuple):
    """What a snapshot said."""

    status: int
    document: dict[str, Any]
    noise: str

    @property
    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["runs"][0]
        return found

    @property
    def wandb(self) -> dict[str, Any]:
        """Of the run."""
        found: dict[str, Any] = self.run["wandb"]
        return found

    @property
    def source(self) -> dict[str, Any]:
        """W&B as a source."""
        return next(each for each in self.document["sources"] if each["kind"] == "wandb")


def pointed_at(server: WandbServer) -> dict[str, str]:
    """What a person has set who uses this server."""
    return {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.key}


def snapshot(product: Product, env: Mapping[str, str], text: str = RUN) -> SnapshotResult:
    """`snapshot --json`, whatever its status."""
    config = product.config(text, f"{abs(hash((text, *env.items())))}.toml")
    done = product.run("snapshot", "--json", "--wait", "40s", "--config", str(config), **env)
    assert done.stdout, done.stderr
    return SnapshotResult(done.returncode, json.loads(done.stdout), done.stderr)


def snapshots(product: Product, environments: Mapping[str, Mapping[str, str]]) -> dict[str, SnapshotResult]:
    """One for each environment, all at once."""
    with ThreadPoolExecutor(len(environments)) as pool:
        started = {name: pool.submit(snapshot, product, env) for name, env in environments.items()}
        return {name: done.result() for name, done in started.items()}


def processes(server: WandbServer) -> dict[int, str]:
    """What runs with this server in its environment: the product, its child, wandb-core; by its command line."""
    mark = f"WANDB_BASE_URL={server.url}".encode()
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and mark in environ_of(int(place.name)):
            with contextlib.suppress(OSError):
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found
