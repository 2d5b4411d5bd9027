"""Whether and how often a run is retried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.lib import Seconds

RequeueMode = Literal["off", "suggest", "on"]

RetryChange = Literal["batch", "checkpointing", "placement"]
"""What may change between two attempts: the batch size, activation checkpointing, the nodes and GPUs."""

RetryChoice = Literal["now", "after-change", "after-node-swap", "evaluator", "stop", "none"]
"""What to do after an attempt. evaluator: run only the evaluator again. none: nothing needs to be retried."""


class RetryLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How often a run is retried after one cause without net progress."""

    times: int
    within: Seconds | None = None
    """The period in which retries count; null: any time."""
    after_change: tuple[RetryChange, ...] = ()
    """A retry needs a change of one of these."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the config says of the retries of a run."""

    auto_requeue: RequeueMode = "off"
    is_own: bool = False
    """Whether the table of the run sets that, and not `[retry]`. Only then it counts for another user's job."""
    limits: Mapping[str, RetryLimit] = {}
    """By cause: the limits that differ from the defaults."""
