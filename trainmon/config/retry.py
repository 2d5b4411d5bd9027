"""The table [retry]: how often each cause is retried, and whether a run is requeued automatically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

import msgspec

from trainmon.analysis.retries import DEFAULTS
from trainmon.config.table import Table
from trainmon.config.types import InvalidValue, ValueType, describe, did_you_mean, parse_texts, quoted, whole_number
from trainmon.config.units import parse_duration
from trainmon.model import RequeueMode, RetryChange, RetryLimit, RetryPolicy

KEYS = ("times", "within", "after_change")
CHANGES: tuple[str, ...] = get_args(RetryChange)


def parse_limit(value: object) -> dict[str, object]:
    """A number of retries, or a table with `times`, `within` and `after_change`.

    Raises:
        InvalidValue: when it is neither, or has an unknown setting.
    """
    if not isinstance(value, dict):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidValue(f"must be a number of retries or a table, not {describe(value)}")
        return {"times": whole_number(0)(value)}
    for key in value:
        if key not in KEYS:
            raise InvalidValue(f"has the unknown setting {quoted(key)}{did_you_mean(key, KEYS)}")
    if "times" not in value:
        raise InvalidValue("needs the number of retries: times = 1")
    found: dict[str, object] = {"times": whole_number(0)(value["times"])}
    if "within" in value:
        found["within"] = parse_duration(value["within"])
    changes = parse_texts(value.get("after_change", []))
    for change in changes:
        if change not in CHANGES:
            raise InvalidValue(f"has {quoted(change)} in after_change; it must be one of: {', '.join(CHANGES)}")
    return {**found, "after_change": changes}


Limit = Annotated[
    RetryLimit,
    ValueType(
        'a number of retries, or { times = 1, within = "1d", after_change = ["batch"] }',
        parse_limit,
        lambda limit: str(limit.times),
    ),
]


class RetrySettings(Table, frozen=True, kw_only=True):
    """What trainmon-tui does when an attempt of a run ends before its target. The name of a cause sets how often the
    run is retried after it. Only retries without a new step and without a new checkpoint count. In a table, `times` is
    that number. `within` counts only the retries that ended within this period; without it, all retries since the last
    net progress count. `after_change` lists what must have changed first, at least one of `batch`, `checkpointing`
    (activation checkpointing) and `placement` (the number of nodes and GPUs); without it, nothing must have changed. A
    plain number keeps the changes of the default."""

    auto_requeue: RequeueMode = "off"
    """Whether `--alerts-only` requeues a job that has failed, within the budget of its cause. `"suggest"`: it only
    notifies you. A `[[run]]` may have its own setting."""
    limits: Mapping[str, RetryLimit] = {}
    """The causes with another limit than the default."""

    @classmethod
    def settings(cls, raw: Mapping[str, object]) -> Sequence[msgspec.structs.FieldInfo]:
        """`auto_requeue`, and every cause that may have a budget."""
        causes = (
            msgspec.structs.FieldInfo(name=cause, encode_name=cause, type=Limit, default=limit)
            for cause, limit in DEFAULTS.items()
        )
        return (msgspec.structs.fields(cls)[0], *causes)

    @classmethod
    def pack(cls, values: dict[str, Any]) -> dict[str, Any]:
        """A plain number keeps the changes that the default asks for."""
        own = {name: limit for name, limit in DEFAULTS.items() if name in values}
        limits = {name: {"after_change": limit.after_change, **values.pop(name)} for name, limit in own.items()}
        return {**values, "limits": limits}


def policy_of(settings: RetrySettings | None, auto_requeue: RequeueMode | None) -> RetryPolicy:
    """The policy of a run with this setting of its own."""
    retry = settings or RetrySettings()
    mode = auto_requeue or retry.auto_requeue
    return RetryPolicy(auto_requeue=mode, is_own=auto_requeue is not None, limits=retry.limits)
