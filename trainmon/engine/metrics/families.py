"""State → metric families, in the names of Prometheus. What is not known has no sample: a zero is a known zero."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from trainmon import __version__
from trainmon.analysis.checkpoints import steps_at_risk
from trainmon.lib import Instant, clean
from trainmon.model import CAUSES, SEVERITIES, Run, State, Verdict

Totals = Mapping[str, Mapping[str, float]]
"""What the ledger has held since it was created, as `trainmon.ledger.ledger.totals` returns it."""

Sample = tuple[tuple[str, ...], float | None]
"""The values of the labels, and the number; None if it is not known."""

LABEL_AT_MOST = 200
OPEN_PHASES: tuple[Literal["pending", "firing", "recovering"], ...] = ("pending", "firing", "recovering")
RESULTS = ("sent", "merged", "dead", "stopped")
"""What became of a notification: the states of Delivery that are final."""

RUNS: tuple[tuple[str, str, Callable[[Run], float | None]], ...] = (
    ("step", "The last training step of the run.", lambda run: run.step),
    ("target_step", "The training step at which the run is complete.", lambda run: run.target_step),
    (
        "last_step_timestamp_seconds", "When the step of the run last advanced, in seconds since 1970.",
        lambda run: run.progress.at,
    ),
    ("loss", "The last loss of the run. NaN if its log shows a NaN.", lambda run: run.loss),
    (
        "steps_at_risk", "The training steps that a crash would lose now.", steps_at_risk,
    ),
    (
        "checkpoint_step", "The training step of the last committed checkpoint.",
        lambda run: run.checkpoints.committed.step if run.checkpoints and run.checkpoints.committed else None,
    ),
    (
        "checkpoint_timestamp_seconds", "When the last checkpoint was committed, in seconds since 1970.",
        lambda run: run.checkpoints.committed.at if run.checkpoints and run.checkpoints.committed else None,
    ),
)  # fmt: skip
"""One number of each run: its name, its meaning, and where it is."""


def families(state: State, totals: Totals, now: Instant) -> Iterator[Metric]:
    """All metrics of a State. Without `totals`, those of the ledger are left out."""
    build = InfoMetricFamily("trainmon_build", "The version of trainmon-tui, and of the Python that runs it.")
    build.add_metric((), {"version": __version__, "python": ".".join(map(str, sys.version_info[:3]))})
    yield build
    yield _gauge(
        "trainmon_evaluation_timestamp_seconds", "When the alert rules were last evaluated, in seconds since 1970.", (),
        [((), state.evaluated_at)],
    )  # fmt: skip
    for name, text, value in RUNS:
        yield _gauge(f"trainmon_run_{name}", text, ("run",), (((run.name,), value(run)) for run in state.runs.values()))
    yield _gauge(
        "trainmon_run_verdict", "Whether the run has this verdict: exactly one of them is 1.", ("run", "verdict"),
        (
            ((run.name, verdict), float(run.verdict == verdict))
            for run in state.runs.values()
            for verdict in get_args(Verdict)
        ),
    )  # fmt: skip
    yield from _sources(state, now)
    yield _gauge(
        "trainmon_disk_full_timestamp_seconds", "When the disk or its quota will be full, in seconds since 1970.",
        ("cluster", "host", "path", "resource"),
        (
            ((disk.cluster, _without_user(disk.host), disk.path, resource), at)
            for disk in state.disks.values()
            for resource, at in (("bytes", disk.full_at), ("inodes", disk.inodes_full_at))
        ),
    )  # fmt: skip
    if state.evaluated_at is not None:
        found = Counter((one.severity, one.phase) for one in state.alerts.values())
        yield _gauge(
            "trainmon_alerts", "The number of open alerts, by severity and phase.", ("severity", "phase"),
            (((one, phase), found[one, phase]) for one in SEVERITIES for phase in OPEN_PHASES),
        )  # fmt: skip
    if totals:
        yield from _counters(totals, state.channels)


def _sources(state: State, now: Instant) -> Iterator[Metric]:
    """A source that is not wanted now is left out."""
    watched = sorted((one for one in state.sources.values() if one.health != "off"), key=lambda one: one.answers)
    yield _gauge(
        "trainmon_source_up", "Whether the source responds: a node, Slurm, W&B, a Prometheus server.",
        ("source", "kind", "cluster"),
        (((_without_user(one.name), one.kind, one.cluster), float(one.answers)) for one in watched),
    )  # fmt: skip
    yield _gauge(
        "trainmon_source_age_seconds", "The seconds since the source last sent data, when these metrics were made.",
        ("source", "kind", "cluster"),
        (
            (
                (_without_user(one.name), one.kind, one.cluster),
                None if one.answered_at is None else max(0.0, now - one.answered_at),
            )
            for one in watched
        ),
    )  # fmt: skip


def _counters(totals: Totals, channels: Iterable[str]) -> Iterator[Metric]:
    zeros = dict.fromkeys((f"{result} {channel}" for channel in channels for result in RESULTS), 0.0)
    counts = zeros | dict(totals.get("notifications", {}))
    yield _counter(
        "trainmon_notifications", "The number of notifications since the ledger was created, by result.",
        ("channel", "result"),
        ((tuple(reversed(name.split(" ", 1))), number) for name, number in counts.items()),
    )  # fmt: skip
    for total, name, text in (
        ("attempts", "trainmon_attempts", "The number of attempts that have ended, by their cause."),
        (
            "gpu_seconds",
            "trainmon_attempt_gpu_seconds",
            "The GPUs of ended attempts times their durations in seconds, by cause.",
        ),
    ):
        sums = dict.fromkeys(CAUSES, 0.0) | dict(totals.get(total, {}))
        yield _counter(name, text, ("reason",), (((reason,), number) for reason, number in sums.items()))


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    labels: tuple[str, ...],
    samples: Iterable[Sample],
) -> Metric:
    """The samples whose number is known. Prometheus refuses all if two have the same labels, so the first counts."""
    family, seen = kind(name, text, labels=labels), set()
    for values, number in samples:
        texts = tuple(clean(value, LABEL_AT_MOST) for value in values)
        if number is not None and texts not in seen:
            seen.add(texts)
            family.add_metric(texts, float(number))
    return family


_gauge, _counter = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)


def _without_user(name: str) -> str:
    """A source or a host without the user who logs in there: `node:me@gpu-1` is `node:gpu-1`."""
    kind, colon, host = name.rpartition(":") if "@" in name else ("", "", name)
    return kind + colon + host.rpartition("@")[2]
