"""What the dead-man's switch is fed by."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from trainmon.alerting.heartbeat import unwell
from trainmon.model import Channel, Leadership, Source, State

NOW = 1_750_000_000.0
NODE = Source(name="node:n1", kind="node", cluster="prod", health="ok", answered_at=NOW)
PHONE = Channel(name="phone", type="ntfy", state="ok")
WELL = State(
    at=NOW, started_at=NOW - 9_000, evaluated_at=NOW - 1, sources={"node:n1": NODE}, channels={"phone": PHONE},
    leadership=Leadership(holder="us"),
)  # fmt: skip
SILENT = {"node:n1": replace(NODE, health="down", answered_at=NOW - 400)}


def test_a_healthy_loop_is_well() -> None:
    assert unwell(WELL, NOW) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"evaluated_at": NOW - 61}, "the rules have not been evaluated for 1m"),
        ({"sources": SILENT}, "0 of 1 source responding for 6m"),
        ({"ledger": "the disk is full"}, "the ledger cannot be written: the disk is full"),
        ({"channels": {"phone": replace(PHONE, state="broken")}}, "every channel refuses its notifications"),
        ({"channels": {"phone": replace(PHONE, oldest_at=NOW - 1_000)}}, "a notification for phone has waited for 16m"),
        ({"leadership": Leadership(holder="other")}, "another program sends the notifications"),
    ],
)
def test_each_part_of_the_loop_that_fails_is_reported(changes: dict[str, Any], why: str) -> None:
    assert unwell(replace(WELL, **changes), NOW) == why


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": {"node:n1": replace(NODE, health="off")}},
        {"sources": SILENT, "started_at": NOW - 60},
        {"sources": SILENT, "clock_jumped_at": NOW - 60},
        {"sources": SILENT | {"slurm:prod": replace(NODE, name="slurm:prod")}},
        {"channels": {"phone": replace(PHONE, state="broken"), "mail": replace(PHONE, name="mail")}},
        {"leadership": Leadership(), "started_at": NOW - 60},
    ],
)
def test_what_is_only_beginning_or_has_another_way_is_well(changes: dict[str, Any]) -> None:
    assert unwell(replace(WELL, **changes), NOW) is None
