"""Writes a ledger with some of everything, by running this program on its simulated cluster.

    unshare --uts sh -c 'hostname login1; LOGNAME=ana python -m tests.trainmon.ledger.example v2'

makes v2.sql and v2.json for tests/written/ledger: one pair for each version of the schema, never made again. It takes
two minutes, in which the cluster lives twenty.
"""

from __future__ import annotations

import json
import queue
import re
import sqlite3
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collectors.demo.collector import Demo, DemoChannel
from tests.trainmon.ledger.contents import contents, restored
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.message import Broken, Message, Retry, Sent
from trainmon.alerting.pipeline.routing import HeartbeatSpec, Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.ledger.alerts import prune_alerts, prune_outbox
from trainmon.ledger.ledger import NAME, Ledger, submit_request
from trainmon.ledger.schema import VERSION
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    Action,
    ActionRequest,
    Alert,
    AlertRequest,
    EvalResult,
    Event,
    LedgerTrouble,
    Plan,
    Route,
    Silence,
)
from trainmon.runtime.backend import DashboardBackend

BEGIN: Instant = 1_750_000_000.0
SPEED = 10.0
LASTS: Seconds = 1_200.0
BOOT_ID = "00000000-0000-4000-8000-000000000000"

ROUTES = (
    Route(channel="phone", severity="warning"),
    Route(channel="mail", severity="critical"),
    Route(channel="pager", severity="critical", after=120.0, heartbeat=False),
    Route(channel="away", severity="critical", heartbeat=False),
    Route(channel="gone", rules=("gpu-hot", "loss-spike"), heartbeat=False),
    Route(channel="instead", severity="critical", fallback=True, heartbeat=False),
)


class Fast:
    """A clock that runs ten times as fast as ours, from a date of its own."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def monotonic(self) -> Seconds:
        return SPEED * (time.monotonic() - self._began)

    def now(self) -> Instant:
        return BEGIN + self.monotonic()


class Refusing(DemoChannel):
    """A channel whose address is refused."""

    def send(self, message: Message, timeout: Seconds) -> Sent:
        raise Broken("404 page not found")


class Unreachable(DemoChannel):
    """A channel whose server does not answer."""

    def send(self, message: Message, timeout: Seconds) -> Sent:
        raise Retry("no route to host")


class Cluster(DashboardBackend):
    """What `--demo` runs, with more channels, heartbeats, a maintenance window and a clock that hurries."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        clock = Fast()
        ledger = Ledger(directory, lambda words: self.engine.submit(LedgerTrouble(words)), clock)
        senders = (
            DemoChannel("phone", "ntfy", "ntfy.example/***", delay=0.1),
            DemoChannel("mail", "apprise", "mailto://***", delay=0.1, busy=True),
            DemoChannel("pager", "webhook", "https://pager.example/***", delay=0.1),
            Refusing("away", "webhook", "https://chat.example/***", delay=0.1),
            Unreachable("gone", "webhook", "https://sms.example/***", delay=0.1),
            DemoChannel("instead", "command", "page-somebody", delay=0.1),
        )
        self.service = NotificationService(ledger, senders, self._say, clock, routes=ROUTES, program="alerts-only")
        window = Silence(
            id="window-1",
            node="gpu-009",
            by="config",
            why="new fans",
            made_at=BEGIN,
            until=BEGIN + 86_400.0,
            window=True,
        )
        routing = Routing(routes=ROUTES, repeat=300.0, windows=(window,))
        beats = HeartbeatSpec(every=230.0, test_every=800.0, host="login1")
        rules = tuple(rule() for rule in RULES)
        alerting = AlertManager(rules, routing, self.service, heartbeat=beats, clock=clock)
        self.ledger = ledger
        super().__init__(Engine(clock, demo=True, ledger=ledger, alerting=alerting), ledger)
        self._demo = Demo(self.engine.submit, clock=clock, directory=directory / "demo")
        self.enable_actions(self._demo.shell_of, self._demo.poll_soon, alerting)

    def _say(self, event: Event) -> None:
        self.engine.submit(event)

    def start(self) -> None:
        super().start()
        self.engine.subscribe(self.service.tick)
        self.service.start()
        self._demo.start()

    def stop(self) -> None:
        self.stop_actions()
        self._demo.stop()
        self.engine.stop()
        self.service.stop(1.0)
        super().stop()

    @property
    def elapsed(self) -> Seconds:
        return self.engine.clock.monotonic()

    def until(self, seconds: Seconds) -> None:
        threading.Event().wait(max(0.0, seconds - self.elapsed) / SPEED)

    def plan(self, verb: str, *subjects: str, **more: object) -> tuple[Action, ...]:
        answers: queue.Queue[Plan] = queue.Queue()
        ask = {"verb": verb, "subjects": subjects, "requested_at": self.engine.clock.now(), "why": "it is slow", **more}
        self.prepare(msgspec.convert(ask, ActionRequest), answers.put)
        plan = answers.get(timeout=30)
        print(f"{self.elapsed:5.0f} s: {verb} {subjects}: {[refusal.why for refusal in plan.refusals] or 'planned'}")
        return plan.actions

    def ask(self, verb: str, *subjects: str, **more: object) -> None:
        self.act(self.plan(verb, *subjects, **more))

    def alert(self, severity: str) -> Alert:
        alerts = self.engine.state.alerts.values()
        return next(one for one in alerts if one.is_firing and one.severity == severity and not one.acknowledged_by)

    def command(self, verb: str, **facts: object) -> None:
        """What `trainmon-tui ack`, `mute` and `unmute` write."""
        request = {"verb": verb, "at": self.engine.clock.now(), "by": "ana", "via": "command", **facts}
        number = submit_request(self.directory, msgspec.convert(request, AlertRequest))
        print(f"{self.elapsed:5.0f} s: request {number}: {verb}")


def live(cluster: Cluster) -> None:
    """Twenty minutes of this cluster, and of the people who watch it."""
    cluster.until(100)
    cluster.ask("save", "llm-7b")
    cluster.ask("exclude", "gpu-003")
    cluster.until(200)
    first = cluster.alert("critical")
    cluster.command("ack", alert=first.id, why="I look at it")
    now = cluster.engine.clock.now()
    made = Silence(id="5f0c2a11", node="gpu-011", until=now + 7_200, by="ana", why="its fan is ordered", made_at=now)
    cluster.command("mute", silence=made, why=made.why)
    cluster.command(
        "mute",
        silence=replace(made, id="77aa00b2", rule=first.rule, subject=first.subject, run=first.run, node=first.node),
    )
    cluster.ask("requeue", "video-2b")
    cluster.ledger.keep_evals("llm-7b", [EvalResult(step=step, decoding={}, results={"acc": 0.7}) for step in (10, 20)])
    cluster.until(400)
    cluster.command("unack", alert=first.id)
    cluster.command("unmute", alert="5f0c2a11")
    cluster.command("test")
    cluster.ask("kill", "smol-3b")
    cluster.ask("queue", "llm-7b")
    cluster.until(420)
    cluster.ask("unkill", "smol-3b")
    cluster.until(LASTS - 20)
    cluster.ask("save", "llm-7b")
    cluster.command("ack", alert=cluster.alert("critical").id, why="the cooling fails")
    cluster.command("ack", alert=cluster.alert("warning").id, token="of-a-phone", via="phone", by="phone")
    cluster.until(LASTS)


def dump(directory: Path) -> str:
    """The ledger as SQL, without what names this machine; the program itself forgets what is too much for a test."""
    with closing(sqlite3.connect(directory / NAME)) as source, closing(sqlite3.connect(":memory:")) as copy:
        source.backup(copy)
        prune_alerts(copy, 0.0, resolved=8, lines=80)
        prune_outbox(copy, 0.0, limit=28)
        copy.execute("DELETE FROM gpu_hours WHERE rowid > 3")
        copy.commit()
        text = "\n".join((*copy.iterdump(), f"PRAGMA user_version = {VERSION};", ""))
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", BOOT_ID, text)
    return text.replace(str(directory / "demo"), "").replace(str(directory), "/var/lib/trainmon-tui")


def main() -> None:
    to = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="trainmon-ledger-") as name:
        cluster = Cluster(Path(name))
        cluster.start()
        try:
            live(cluster)
            to.with_suffix(".sql").write_text(dump(cluster.directory))
        finally:
            cluster.stop()
    with tempfile.TemporaryDirectory(prefix="trainmon-ledger-") as name:
        restored(to.with_suffix(".sql"), Path(name))
        found = contents(Path(name), BEGIN + LASTS)
    to.with_suffix(".json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
