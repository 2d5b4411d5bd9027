"""Metrics as a program that scrapes them reads them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.lab.daemons import DEADLINE, program
from trainmon.engine.metrics.families import Totals, families
from trainmon.model import State

NOW = 1_800_000_000.0
Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class Given:
    """A collector of one State."""

    def __init__(self, state: State, totals: Totals, now: float) -> None:
        self._given = state, totals, now

    def collect(self) -> list[Metric]:
        return list(families(*self._given))


def text(state: State, totals: Totals | None = None, now: float = NOW) -> str:
    registry = CollectorRegistry()
    registry.register(Given(state, totals or {}, now))
    return generate_latest(registry).decode()


def series(page: str) -> Series:
    """Every series of a page. Two with the same labels fail, as in Prometheus."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def values(page: str, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The series of one metric, by these labels."""
    return {
        tuple(dict(pairs)[label] for label in labels): value
        for (metric, pairs), value in series(page).items()
        if metric == name
    }


def promtool(*words: str, page: str = "") -> subprocess.CompletedProcess[str]:
    argv = [program("promtool", "prometheus"), *words]
    return subprocess.run(argv, input=page, capture_output=True, text=True, timeout=DEADLINE, check=False)
