"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trainmon.transport.event_loop import EventLoop


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    running = EventLoop()
    running.start()
    yield running
    running.stop()
