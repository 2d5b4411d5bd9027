"""Wires the demo: a simulated cluster through the same engine, rules and notification service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from collectors.demo.collector import ROUTES, SCRATCH, Demo, channels, roll_call
from collectors.demo.stories import CLUSTER
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.analysis.attempts import files_to_read
from trainmon.engine.engine import Engine
from trainmon.ledger.ledger import Ledger
from trainmon.lib import ScratchDirectory, SystemClock, remove_abandoned
from trainmon.model import AlertRequest, LedgerTrouble, RankLook
from trainmon.runtime.backend import DashboardBackend
from trainmon.runtime.looks import AutomaticLooks, Nodes, Request

PRICE = 2.5
"""Of a GPU hour."""


class DemoMonitor(DashboardBackend):
    """A simulated cluster with the same engine, rules and delivery, and optionally a story. It has a temporary ledger
    and simulated channels."""

    def __init__(self, story: str | None = None, *, read_only: bool = False) -> None:
        remove_abandoned(SCRATCH)
        self._kept = ScratchDirectory(SCRATCH)
        ledger = Ledger(Path(self._kept.name), lambda trouble: self.engine.submit(LedgerTrouble(trouble)))
        self._notifications = NotificationService(
            ledger, channels(), lambda event: self.engine.submit(event), routes=ROUTES, program="demo"
        )
        alerting = AlertManager(tuple(rule() for rule in RULES), Routing(routes=ROUTES), self._notifications)
        super().__init__(
            Engine(SystemClock(), demo=True, read_only=read_only, ledger=ledger, alerting=alerting), ledger
        )
        self.prices = {CLUSTER: PRICE}
        self._demo = Demo(self.engine.submit, story=story, files=lambda: files_to_read(self.engine.state))
        self.enable_actions(self._demo.shell_of, self._demo.poll_soon, alerting)
        self.enable_looks(Nodes(self._demo.shell_of), {"nccl-ras": look})

    def start(self) -> None:
        super().start()
        self.engine.subscribe(self._notifications.tick)
        self.engine.subscribe(AutomaticLooks(self.look, self.engine.clock).observe)
        self._notifications.start()
        self._demo.start()

    def stop(self) -> None:
        self.stop_actions()
        self._demo.stop()
        self.engine.stop()
        self._notifications.stop(0.0)
        super().stop()
        self._kept.cleanup()

    def submit_request(self, request: AlertRequest) -> None:
        self._notifications.request(request)

    def refresh(self) -> None:
        self._demo.refresh()

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        self._demo.save_samples(run, directory, reply)

    def login(self, source: str) -> None:
        self._demo.login(source)

    def poll_job(self, key: str) -> None:
        self._demo.poll_job(key)


def look(request: Request) -> RankLook:
    """Look at the ranks of a simulated run."""
    return roll_call(request.run, request.state, request.clock.now())
