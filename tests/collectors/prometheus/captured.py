"""Answers of a real Prometheus 2.42 about a stand-in for dcgm-exporter and a real node_exporter, scraped every second.

gpu-002 has a new Xid on GPU 1 in the last two samples; the temperature of GPU 0 of gpu-003 has ended two samples ago.
"""

from __future__ import annotations

from pathlib import Path

from collectors.prometheus.query import DECODER, Series

FOLDER = Path(__file__).parents[2] / "captured" / "prometheus"
NEWEST = 1795407849.011
"""The time of the newest samples of dcgm.json."""


def series(name: str) -> tuple[Series, ...]:
    answer = DECODER.decode((FOLDER / f"{name}.json").read_bytes())
    assert answer.status == "success"
    assert answer.data is not None
    return answer.data.result


def until(answer: tuple[Series, ...], at: float, later: float = 0.0) -> tuple[Series, ...]:
    """The same answer at an earlier time, or with all times `later`."""
    cut = (Series(one.metric, tuple((time + later, text) for time, text in one.values if time <= at)) for one in answer)
    return tuple(one for one in cut if one.values)
