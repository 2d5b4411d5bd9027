"""A home and a cluster for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import Cluster, Product


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    made = Product(tmp_path)
    with contextlib.closing(made):
        yield made


@pytest.fixture
def cluster(tmp_path: Path, product: Product) -> Iterator[Callable[..., Cluster]]:
    """Starts nodes n0, n1, …: cluster(2, gpus=8). The product reads the ssh config that names them."""
    with contextlib.ExitStack() as stack:

        def start(
            nodes: int,
            *,
            gpus: int = 2,
            env: dict[str, str] | None = None,
            own: dict[int, dict[str, str]] | None = None,
            **options: str,
        ) -> Cluster:
            started = Cluster.start(tmp_path / "nodes", nodes, gpus=gpus, env=env or {}, own=own or {}, options=options)
            made = stack.enter_context(started)
            product.ssh_config = made.sshd.ssh_config(nodes)
            return made

        yield start
