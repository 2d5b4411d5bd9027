"""What the channel `desktop` shows in a running dashboard."""

from __future__ import annotations

import threading
from pathlib import Path

import tui.app
from tests.trainmon.notify.telling import message
from tests.tui.alert_states import alarmed
from tests.tui.backend import FakeBackend
from tests.tui.screen_text import settled
from trainmon.model_alerts import Channel
from trainmon.notify.desktop import Desktop, Face
from tui.app import Dashboard


class Ringing(Dashboard):
    """Counts its bell."""

    CSS_PATH = str(Path(tui.app.__file__).with_name("trainmon.tcss"))
    rung = 0

    def bell(self) -> None:
        self.rung += 1


async def test_where_there_is_no_desktop_a_channels_message_is_shown_and_rings() -> None:
    app, face = Ringing(FakeBackend(alarmed())), Face()
    face.toast = app.toast
    channel = Desktop(Channel(name="desktop", type="desktop"), face=face, find=lambda _: None)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await settled(pilot)
        said: list[str] = []
        sending = threading.Thread(target=lambda: said.append(channel.send(message(), 10).words))
        sending.start()
        screen = ""
        while "CODE RED video-2b" not in screen:
            screen = await settled(pilot)
        sending.join(10)
        assert said == ["in the dashboard: there is no notify-send here"]
        assert "no process of video-2b is left" in screen
        assert app.rung >= 1
    assert not app.toast("t", "w", "info"), "it is gone"
