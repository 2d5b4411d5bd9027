"""Which attempts the ledger must hold, and when it is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from trainmon.analysis.explanation import GpuHour, Read, gpu_hour
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, EvalResult, State

WRITE_EVERY: Seconds = 30.0
"""Between two writes of an attempt that goes on. A program that is killed has lost at most this much."""

NEWS = (
    "end", "reported_end", "first_step", "retry_decision", "budget_spent", "files", "outlook", "outlived_by",
    "outlived_gone_at",
)  # fmt: skip
"""What is written at once when it changes. A file that was read may have changed a moment later."""


GPU_HOURS_AT_ONCE = 2
"""Nodes whose last hour is read in one step of the engine: of 8 GPUs, each takes about 10 ms."""


class AttemptJournal(Protocol):
    """The part of the ledger that keeps attempts."""

    def keep_gpu_hour(self, attempt: Attempt, hour: GpuHour) -> None:
        """Queue the last hour of the GPUs of one node for writing. Never blocks."""

    def keep_evals(self, run: str, results: Sequence[EvalResult], cluster: str | None = None) -> None:
        """Queue results of the evaluators of a run for writing. Never blocks."""

    def keep(self, record: Attempt) -> None:
        """Queue an attempt for writing. Never blocks."""


class AttemptRecorder:
    """Gives new, ended and grown attempts to the ledger. Of several programs with one ledger, the leader does, and a
    dashboard on another machine than its daemon. A command that has no part in the election never does."""

    def __init__(self, journal: AttemptJournal, read: Read) -> None:
        self._journal = journal
        self._read = read
        self._nodes: deque[tuple[Attempt, str]] = deque()
        """The nodes of attempts that have ended, whose last hour is to be kept."""
        self._written: dict[str, tuple[Attempt, Instant]] = {}
        self._evals: dict[str, tuple[EvalResult, ...]] = {}

    def record(self, state: State, now: Instant, *, is_new_ledger: bool = False) -> None:
        """Queue what has changed. A new ledger gets everything with the next State."""
        if state.leadership.holder not in ("us", "daemon"):
            return
        for name, attempt in state.attempts.items():
            before, at = self._written.get(name, (None, 0.0))
            if attempt is before:
                continue
            is_news = before is None or any(getattr(attempt, one) != getattr(before, one) for one in NEWS)
            if before is not None and before.is_open and attempt.end is not None and attempt.end.was_watched:
                self._nodes += ((attempt, node) for node in attempt.nodes)
            if is_news or not 0.0 <= now - at < WRITE_EVERY:
                self._written[name] = (attempt, now)
                self._journal.keep(attempt)
        for name, run in state.runs.items():
            results, kept = run.evals.results, self._evals.get(name, ())
            if results is not kept:
                self._evals[name] = results
                if new := [one for one in results if one not in kept]:
                    self._journal.keep_evals(name, new, run.spec.cluster)
        for _ in range(min(len(self._nodes), GPU_HOURS_AT_ONCE)):
            self._keep_gpu_hour(*self._nodes.popleft(), state, now)
        if len(self._written) > 2 * len(state.attempts) + 100:
            self._written = {name: one for name, one in self._written.items() if name in state.attempts}
        if is_new_ledger:
            self._written, self._evals = {}, {}

    def _keep_gpu_hour(self, attempt: Attempt, node: str, state: State, now: Instant) -> None:
        found = state.nodes.get(node)
        if found is not None and attempt.end is not None:
            hour = gpu_hour(node, [gpu.index for gpu in found.gpus], attempt.end.at, now, self._read)
            if any(hour.metrics.values()):
                self._journal.keep_gpu_hour(attempt, hour)
