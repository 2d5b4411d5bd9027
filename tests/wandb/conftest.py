"""A W&B server of one's own, a home for clients, and the product."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import Product
from tests.lab.wandb_server import WandbServer
from tests.wandb.parts import ShiftedClock


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def server(clock: ShiftedClock) -> Iterator[WandbServer]:
    with WandbServer.start(clock) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where clients of a test write."""
    made = tmp_path / "clients"
    made.mkdir()
    return made


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    made = Product(tmp_path)
    with contextlib.closing(made):
        yield made
