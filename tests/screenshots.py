"""Draw screenshots/: `python -m tests.screenshots`. The demo with a fixed seed and clock, so the same each time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from collectors.demo.collector import ROUTES, Demo, channels, roll_call
from tests.tui.screen_text import at_rest
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.analysis.runs import last_attempts
from trainmon.engine.engine import Engine
from trainmon.lib import Seconds
from trainmon.model import (
    AlertChanges,
    AlertsRestored,
    ChannelsChanged,
    Delivered,
    Delivery,
    Event,
    Leadership,
    LeadershipChanged,
    LookReply,
    RunLooked,
    State,
    StoredAlerts,
)
from trainmon.runtime.backend import DashboardBackend
from trainmon.runtime.looks import AutomaticLooks
from tui.app import Dashboard

FOLDER = Path(__file__).parent.parent / "screenshots"
FILES = Path("/tmp/trainmon-demo")
"""Where the demo keeps its logs: a name of its own, because the log's path is in the picture."""
STARTED = 1_760_000_000.0


class Picture(NamedTuple):
    """One file: how large the terminal is, and what was pressed."""

    name: str
    size: tuple[int, int]
    press: tuple[str, ...] = ()


FIRST = Picture("hang.svg", (110, 32), ("2",))
"""The picture of README.md, readable where a page is 838 pixels wide: a calm cluster, in which one run hangs."""
RANKS = Picture("ranks.svg", (110, 32), ("1", "enter"))
HUNG_FOR = 86.4
"""When the ages on the screen, in columns and in sentences, are rounded to the same."""
PICTURES = (
    Picture("dashboard.svg", (140, 45)),
    Picture("runs.svg", (110, 18), ("1",)),
    Picture("gpus.svg", (110, 26), ("2", "2")),
    Picture("disk.svg", (110, 16), ("3", "3")),
    Picture("log.svg", (110, 24), ("4", "4")),
    Picture("log-format.svg", (110, 30), ("4", "i", "right")),
    Picture("queue.svg", (110, 24), ("7", "7")),
    Picture("alerts.svg", (110, 40), ("5", "5")),
    Picture("alert.svg", (110, 40), ("5", "enter")),
    Picture("node.svg", (110, 40), ("2", "enter")),
    Picture("explain.svg", (110, 46), ("1", "enter", *["down"] * 21, "enter")),
    Picture("wandb.svg", (110, 40), ("/", *"video", "enter", "6", "6", "d", "i", *["left"] * 12)),
)
"""All but the first are read where a page is 838 pixels wide."""
AFTER = 3_600.0 + 170.0
"""An hour, for the plots; then a GPU is off the bus and a run hangs: what the dashboard is there to say."""


class HandClock:
    """Time passes when it is moved."""

    def __init__(self) -> None:
        self.passed: Seconds = 0.0

    def now(self) -> float:
        return STARTED + self.passed

    def monotonic(self) -> float:
        return 1_000.0 + self.passed


class InstantDelivery:
    """Delivers every notification after one second."""

    def __init__(self, submit: Callable[[Event], None]) -> None:
        self._submit = submit

    def enqueue(self, changes: AlertChanges) -> None:
        for notice in changes.notices:
            alerts = tuple(alert.id for alert in notice.alerts)
            for place, channel in enumerate(notice.channels):
                done = Delivery(channel=channel, kind=notice.kind, state="sent", at=changes.at + 1.0 + place)
                self._submit(Delivered(alerts, done))


def beginning() -> tuple[Event, ...]:
    """This program is the leader and sends by the channels of the demo."""
    health = tuple(replace(channel.health, state="ok") for channel in channels())
    leadership = Leadership(holder="us", where="here", since=STARTED)
    return (LeadershipChanged(leadership), AlertsRestored(StoredAlerts()), ChannelsChanged(health))


class Played(DashboardBackend):
    """A demo that has gone on for a while, and stands still."""

    def __init__(self, directory: Path, after: Seconds, story: str | None = None) -> None:
        self.clock = HandClock()
        events_so_far: list[Event] = [*beginning()]
        rules = tuple(rule() for rule in RULES)
        alerting = AlertManager(rules, Routing(routes=ROUTES), InstantDelivery(events_so_far.append), clock=self.clock)
        super().__init__(Engine(self.clock, demo=True, alerting=alerting))
        self._demo = Demo(events_so_far.append, clock=self.clock, directory=directory, story=story)
        self._submit = events_so_far.append
        looks = AutomaticLooks(self._look, self.clock)
        while self.clock.passed < after:
            wait = self._demo.step()
            events = events_so_far.copy()
            events_so_far.clear()
            self.engine.step(events, self.clock.now())
            looks.observe(self.engine.state)
            self.clock.passed += wait

    def _look(self, run: str, reply: Callable[[LookReply], object]) -> None:
        """As DemoMonitor, but at once."""
        state = self.engine.state
        attempt = last_attempts(state.attempts.values())[run]
        self._submit(RunLooked(run, roll_call(state.runs[run], state, self.clock.now()), attempt.attempt_id))
        reply(LookReply("", is_done=True))

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        sink(self.engine.state)
        return lambda: None

    def stop(self) -> None:
        self._demo.stop()


async def draw(backend: Played, picture: Picture) -> str:
    """The picture as SVG."""
    app = Dashboard(backend, clock=backend.clock)
    async with app.run_test(size=picture.size) as pilot:
        await at_rest(pilot)
        for key in picture.press:
            await pilot.press(key)
            await at_rest(pilot)
        return app.export_screenshot(title="trainmon-tui --demo")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(exist_ok=True)
    for after, story, pictures in ((HUNG_FOR, "hang", (FIRST, RANKS)), (AFTER, None, PICTURES)):
        backend = Played(FILES, after, story)
        try:
            for picture in pictures:
                (folder / picture.name).write_text(asyncio.run(draw(backend, picture)), encoding="utf-8")
                print(folder / picture.name)
        finally:
            backend.stop()


if __name__ == "__main__":
    main()
