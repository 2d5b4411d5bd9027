"""The filters and orders of a project's runs, in the words of MongoDB that the W&B server takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.lab.wandb_graphql import QueryRefused

COMPARISONS = ("$eq", "$ne", "$in", "$nin", "$regex", "$gt", "$gte", "$lt", "$lte", "$exists")

NAMES = {"displayName": "display_name", "jobType": "job_type", "createdAt": "created_at", "heartbeatAt": "heartbeat_at"}
"""Both spellings are taken."""


def matches(filters: Mapping[str, Any], run: Mapping[str, Any]) -> bool:
    """Whether a run, as its facts by name, is one that the filters mean."""
    return all(_holds(name, wanted, run) for name, wanted in filters.items())


def in_order(order: str | None, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs by one fact: `-created_at` is the newest first; without a sign, or any order, the oldest."""
    wanted = order or "+created_at"
    name = NAMES.get(wanted.lstrip("+-"), wanted.lstrip("+-"))
    if name not in ("created_at", "heartbeat_at", "display_name", "state"):
        raise QueryRefused(f"invalid order: {order}")
    return sorted(runs, key=lambda run: (run[name], run["serial"]), reverse=wanted.startswith("-"))


def _holds(name: str, wanted: Any, run: Mapping[str, Any]) -> bool:
    if name == "$and":
        return all(matches(each, run) for each in wanted)
    if name == "$or":
        return any(matches(each, run) for each in wanted)
    if name == "$not":
        return not matches(wanted, run)
    name = NAMES.get(name, name)
    if name not in run:
        raise QueryRefused(f"invalid filter: unknown field {name}")
    if not isinstance(wanted, dict):
        wanted = {"$eq": wanted}
    return all(_compares(word, value, run[name]) for word, value in wanted.items())


def _compares(word: str, wanted: Any, value: Any) -> bool:
    if word not in COMPARISONS:
        raise QueryRefused(f"invalid filter: unknown operator {word}")
    if word == "$exists":
        return bool((value is not None) == wanted)
    if word in ("$ne", "$nin"):
        return not _compares("$eq" if word == "$ne" else "$in", wanted, value)
    if isinstance(value, list):  # as in MongoDB: a list is what any of its members is
        return any(_compares(word, wanted, each) for each in value)
    if word == "$in":
        return bool(value in wanted)
    if word == "$eq":
        return bool(value == wanted)
    if value is None:
        return False
    if word == "$regex":
        return re.search(wanted, str(value)) is not None
    return bool({"$gt": value > wanted, "$gte": value >= wanted, "$lt": value < wanted, "$lte": value <= wanted}[word])
