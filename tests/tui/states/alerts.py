"""States with alerts: told and untold, acknowledged, muted, hidden, over; and the ways in which people may be told."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.tui.states.states import NOW, calm, troubled
from trainmon.model import Alert, Channel, Delivery, Leadership, Silence, State


def alert(id: str = "aaaa0001", rule: str = "run-dead", subject: str = "run:llm-7b-a", **facts: Any) -> Alert:  # noqa: A002 - the noun's name
    """A critical one that fires for six minutes, with these differences."""
    plain: dict[str, Any] = {
        "severity": "critical", "phase": "firing", "since": NOW - 360.0, "found_at": NOW - 2.0, "fired_at": NOW - 350.0,
        "summary": f"{subject.partition(':')[2]} is not well", "cluster": "prod", "token": "geheim",
    }  # fmt: skip
    return Alert(id=id, rule=rule, subject=subject, **(plain | facts))


def sent(channel: str = "phone", state: Any = "sent", ago: float = 340.0, **facts: Any) -> Delivery:
    return Delivery(channel=channel, kind=facts.pop("kind", "fire"), state=state, at=NOW - ago, **facts)


def channel(name: str = "phone", **facts: Any) -> Channel:
    plain: dict[str, Any] = {"type": "ntfy", "target": "ntfy.sh/****", "state": "ok", "sent": 4, "sent_at": NOW - 340.0}
    return Channel(name=name, **(plain | facts))


ALERTS: tuple[Alert, ...] = (
    alert(
        summary="llm-7b-a takes no step for 11m, while a step takes 4.1s; its 4 nodes are busy at 97 W of 700 W a GPU",
        rule="run-hung", run="llm-7b-a", since=NOW - 660.0, fired_at=NOW - 640.0, sources=("node:gpu-001",),
        evidence=("14:02:19 step 81204 loss 2.113", "gpu-001: 8 GPUs at 100% and 97 W"),
        advice="look at the stack of rank 0 with py-spy; S saves, C cancels the job",
        delivery=(sent(ago=630.0), sent("mail", "retrying", 100.0, answer="421 try again later")),
    ),
    alert(
        "aaaa0002", "gpu-hot", "gpu:gpu-003/5", node="gpu-003", since=NOW - 372.0, sources=("node:gpu-003",),
        summary="gpu-003/5 is at 94 °C, 1 °C over its slowdown, and slows itself down (hw_thermal)",
        delivery=(sent(),), advice="have its fans looked at; X keeps jobs off the node",
    ),
    alert(
        "aaaa0003", "disk-forecast", "disk:login1:/scratch", severity="warning", since=NOW - 7_300.0,
        summary="/scratch is full in 5h at 19 TB a day", fired_at=NOW - 7_000.0, delivery=(sent(ago=7_000.0),),
    ),
    alert(
        "aaaa0004", "checkpoint-overdue", "run:llm-70b", run="llm-70b", severity="warning", acknowledged_by="ana",
        acknowledged_at=NOW - 900.0, since=NOW - 2_000.0, summary="llm-70b has saved nothing for 3h10m, usually 1h",
        delivery=(sent(ago=1_800.0),),
    ),
    alert(
        "aaaa0005", "gpu-idle", "gpu:gpu-007/1", node="gpu-007", severity="warning", muted_until=NOW + 2_580.0,
        muted_why="being mended", summary="gpu-007/1 is idle in a running job for 12m",
    ),
    alert(
        "aaaa0006", "gpu-lost", "gpu:gpu-006/3", node="gpu-006", inhibited_by="aaaa0007", data="stale",
        data_why="node:gpu-006 is late", summary="gpu-006/3 has fallen off the bus (Xid 79)",
    ),
    alert(
        "aaaa0007", "node-unreachable", "node:gpu-006", node="gpu-006", since=NOW - 42.0, fired_at=NOW - 12.0,
        summary="gpu-006 is unreachable: no answer in 10s; last data 42s ago", sources=("slurm:prod",),
        delivery=(sent(state="sending", ago=1.0),),
    ),
    alert(
        "aaaa0008", "memory-leak", "node:gpu-002", node="gpu-002", severity="warning", phase="pending", fired_at=None,
        since=NOW - 20.0, summary="gpu-002's memory grows by 3 GB an hour",
    ),
    alert(
        "aaaa0009", "loss-spike", "run:sft-1b", run="sft-1b", severity="warning", phase="resolved",
        since=NOW - 8_000.0, fired_at=NOW - 7_990.0, resolved_at=NOW - 7_000.0, ended="over",
        summary="sft-1b's loss was 4.1, usually 2.1", delivery=(sent(kind="resolve", ago=6_990.0),),
    ),
    alert(
        "aaaa000a", "restarted", "run:llm-7b-a", run="llm-7b-a", severity="info", phase="resolved", event=True,
        since=NOW - 40_000.0, fired_at=NOW - 40_000.0, resolved_at=NOW - 39_000.0, ended="over",
        summary="llm-7b-a was restarted by Slurm (restart 2) on the same nodes", delivery=(sent(ago=39_990.0),),
    ),
)  # fmt: skip

SILENCES = (
    Silence(id="s1", rule="gpu-idle", subject="gpu:gpu-007/1", until=NOW + 2_580.0, by="ana", why="being mended",
            made_at=NOW - 1_020.0),
    Silence(id="w1", node="gpu-016", until=NOW + 9_000.0, by="config", window=True, made_at=NOW - 100.0),
)  # fmt: skip


def with_alerts(*alerts: Alert, base: State | None = None, **facts: Any) -> State:
    """A State of these alerts, told by us."""
    usual: dict[str, Any] = {
        "alerts": {one.id: one for one in alerts}, "leadership": Leadership(holder="us", where="here", at=NOW - 1.0),
        "channels": {"phone": channel()}, "evaluated_at": NOW - 1.0,
    }  # fmt: skip
    return msgspec.structs.replace(base or calm(), **(usual | facts))


def alarmed() -> State:
    """A cluster in trouble, and all that may become of an alert."""
    mail = channel("mail", type="apprise", state="retrying", problem="421 try again later", since=NOW - 100.0)
    return with_alerts(
        *ALERTS, base=troubled(), silences={one.id: one for one in SILENCES},
        channels={"phone": channel(), "mail": mail},
    )  # fmt: skip


def at_ease() -> State:
    """Nothing fires, and somebody tells."""
    return with_alerts()


def told_elsewhere() -> State:
    """The daemon on another machine tells; its channel is broken."""
    broken = channel(state="broken", problem="403: the topic is reserved", since=NOW - 600.0)
    daemon = Leadership(holder="daemon", where="bastion", at=NOW - 9.0)
    return with_alerts(*ALERTS[:3], base=troubled(), channels={"phone": broken}, leadership=daemon)


STATES = {"alarmed": alarmed, "at-ease": at_ease, "told-elsewhere": told_elsewhere}
