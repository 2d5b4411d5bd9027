"""What the channel `desktop` shows in a running dashboard."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import tui.app
from tests.trainmon.alerting.notify.samples import message, notice
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, settled
from tests.tui.states.alerts import alarmed, alert, with_alerts
from tests.tui.states.states import NOW
from trainmon.alerting.notify.channels.desktop import Desktop, Toaster
from trainmon.model import Channel
from tui.app import Dashboard
from tui.style import Link


class Ringing(Dashboard):
    """Counts its bell."""

    CSS_PATH = str(Path(tui.app.__file__).with_name("trainmon.tcss"))
    rung = 0

    def bell(self) -> None:
        self.rung += 1


async def test_where_there_is_no_desktop_a_channels_message_is_shown_and_rings() -> None:
    app, toaster = Ringing(FakeBackend(alarmed())), Toaster()
    toaster.toast = app.toast
    channel = Desktop(Channel(name="desktop", type="desktop"), toaster=toaster, find=lambda _: None)
    async with running(app, size=(100, 30), notifications=True) as pilot:
        await at_rest(pilot)
        app.open(Link("run", "llm-7b-a"))
        await at_rest(pilot)
        results: list[str] = []
        sending = threading.Thread(target=lambda: results.append(channel.send(message(), 10).answer))
        sending.start()
        screen = ""
        while "CODE RED video-2b" not in screen:
            screen = await settled(pilot)
        sending.join(10)
        assert results == ["in the dashboard: there is no notify-send here"]
        assert "no process of video-2b is left" in screen
        assert app.rung >= 1
    assert not app.toast("t", "w", "info", ()), "it is gone"


@pytest.mark.parametrize("is_channel_first", [True, False])
async def test_a_critical_alert_is_shown_once_whichever_is_first_channel_or_state(is_channel_first: bool) -> None:
    new = alert("aaaa0001", fired_at=NOW)
    backend, toaster = FakeBackend(with_alerts()), Toaster()
    app = Ringing(backend)
    toaster.toast = app.toast
    channel = Desktop(Channel(name="desktop", type="desktop"), toaster=toaster, find=lambda _: None)
    async with running(app, size=(100, 30), notifications=True) as pilot:
        await at_rest(pilot)
        app.open(Link("run", "llm-7b-a"))
        await at_rest(pilot)
        steps: list[Callable[[], object]] = [
            lambda: channel.send(message(notice(new)), 10),
            lambda: backend.publish(with_alerts(new)),
        ]
        for step in steps if is_channel_first else steps[::-1]:
            step()
            await at_rest(pilot)
        assert (app.rung, len(app._notifications)) == (1, 1)

        channel.send(message(notice(new, key="again", kind="repeat")), 10)
        await at_rest(pilot)
        assert (app.rung, len(app._notifications)) == (2, 2), "that it is still so is told"

        channel.send(message(notice(new)), 10)
        await at_rest(pilot)
        assert app.rung == 3, "told anew after a mute, which no State shows"


async def test_no_toast_covers_the_panes_with_an_alert_that_they_show() -> None:
    backend, toaster = FakeBackend(with_alerts()), Toaster()
    app = Ringing(backend)
    toaster.toast = app.toast
    channel = Desktop(Channel(name="desktop", type="desktop"), toaster=toaster, find=lambda _: None)
    new = alert("aaaa0001", fired_at=NOW)
    async with running(app, size=(80, 24), notifications=True) as pilot:
        await at_rest(pilot)
        channel.send(message(notice(new)), 10)
        backend.publish(with_alerts(new))
        while "llm-7b-a is not well" not in (screen := await settled(pilot)):
            pass
        assert screen.count("llm-7b-a is not well") == 1
        assert (app.rung, len(app._notifications)) == (1, 0)
        app.toast("config loaded", "trainmon.toml", "info")
        while "config loaded" not in (screen := await settled(pilot)):
            pass
        app.clear_notifications()

        app.open(Link("node", "gpu-001"))
        await at_rest(pilot)
        backend.publish(with_alerts(new, alert("aaaa0002", rule="gpu-lost", subject="gpu:gpu-001/3", fired_at=NOW)))
        while "gpu-lost" not in (screen := await settled(pilot)):
            pass
        assert sum("gpu-lost" in line for line in screen.splitlines()) == 1
        assert "CRITICAL  gpu-lost  gpu:gpu-001/3" in screen
        assert sum("▌" in line for line in screen.splitlines()) == 1, "one line, at the edge"


@pytest.mark.parametrize(
    ("size", "keys"), [((80, 24), ""), ((120, 40), "5/zzz\n1"), ((120, 40), "5G"), ((120, 40), "p")]
)
async def test_a_critical_alert_that_the_panes_cannot_show_is_shown_all_the_same(
    size: tuple[int, int], keys: str
) -> None:
    old = [alert(f"aaaa00{n:02}", subject=f"run:old-{n}", summary=f"old-{n} is not well") for n in range(40)]
    new = alert("bbbb0001", rule="gpu-lost", subject="gpu:gpu-001/3", summary="GPU 3 is lost", fired_at=NOW)
    backend = FakeBackend(with_alerts(*old))
    app = Ringing(backend)
    async with running(app, size=size, notifications=True) as pilot:
        await at_rest(pilot)
        await pilot.press(*("enter" if key == "\n" else key for key in keys))
        await at_rest(pilot)
        backend.publish(with_alerts(*old, new))
        await at_rest(pilot)
        assert "CRITICAL  gpu-lost  gpu:gpu-001/3" in await settled(pilot)
        assert app.rung == 1


@pytest.mark.parametrize("keys", ["5/zzz\n1", "5G"])
async def test_the_strip_is_there_while_the_pane_does_not_show_the_worst_alerts(keys: str) -> None:
    backend = FakeBackend(with_alerts(*(alert(f"aaaa00{n:02}", summary=f"old-{n} is not well") for n in range(40))))
    async with running(Ringing(backend), size=(120, 40)) as pilot:
        await at_rest(pilot)
        assert "a ack" not in await settled(pilot), "the pane shows the worst ones"
        await pilot.press(*("enter" if key == "\n" else key for key in keys))
        backend.publish(replace(backend.state, at=NOW + 1.0))
        await at_rest(pilot)
        assert "CRIT 6m old-0 is not well" in await settled(pilot)
