"""The line of changes on the main screen, and `u`, which lists them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.tui.backend import FakeBackend
from tests.tui.dashboard import publish
from tests.tui.pilot import running, thing_shown
from tests.tui.screen_text import StillClock, at_rest, settled, text_of
from tests.tui.states.alerts import alert, with_alerts
from tests.tui.states.states import NOW, calm, run
from trainmon.analysis.last_seen import seen
from trainmon.model import LastSeen, State
from tui.app import Dashboard


def before() -> LastSeen:
    return replace(seen(replace(calm(), runs={"a": run("a"), "b": run("b")}), None), at=NOW - 11_400.0)


def now() -> State:
    runs = {"a": run("a", "dead", "FAILED, exit code 1:0"), "b": run("b")}
    return with_alerts(alert("x1", subject="run:a", run="a", fired_at=NOW - 600.0), base=replace(calm(), runs=runs))


LINE = "Since 11:03 (3h10m): a ended, 1 alert (1 open)  u list  Esc hide"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_opening_the_dashboard_says_in_one_line_what_changed_and_u_lists_it(size: tuple[int, int]) -> None:
    app = Dashboard(FakeBackend(now()), clock=StillClock(), seen=before())
    async with running(app, size=size) as pilot:
        under_the_strip = 2 if size[0] < 120 else 1  # the Alerts pane has its text
        assert LINE in (await settled(pilot)).splitlines()[under_the_strip]

        await pilot.press("u")
        shown = await settled(pilot)
        assert thing_shown(app) == "changes"
        for text in (
            "last used at 11:03 UTC, 3h10m ago.",
            "ended  a: failed, FAILED, exit code 1:0",
            "b: healthy, step",
        ):
            assert text in shown

        await pilot.press("j", "j", "j", "enter")
        await at_rest(pilot)
        assert thing_shown(app) == "alert"
        await pilot.press("escape", "u")
        assert LINE not in await settled(pilot), "it is read"


async def test_escape_hides_the_line_and_later_events_are_not_added() -> None:
    backend = FakeBackend(now())
    app = Dashboard(backend, clock=StillClock(), seen=before())
    async with running(app, size=(120, 40)) as pilot:
        await at_rest(pilot)
        await publish(app, pilot, backend, replace(now(), runs={"a": run("a"), "b": run("b", "hung")}))
        assert LINE in text_of(app)
        await pilot.press("escape")
        assert "Since" not in await settled(pilot)


async def test_the_first_time_there_is_nothing_to_compare_with() -> None:
    app = Dashboard(FakeBackend(now()), clock=StillClock())
    async with running(app, size=(120, 40)) as pilot:
        assert "Since" not in await settled(pilot)
        await pilot.press("u")
        assert "No earlier use of this dashboard is known." in await settled(pilot)


async def test_the_list_shows_what_has_changed_until_now() -> None:
    backend = FakeBackend(now())
    app = Dashboard(backend, clock=StillClock(), seen=before())
    async with running(app, size=(120, 40)) as pilot:
        await at_rest(pilot)
        await publish(app, pilot, backend, replace(now(), runs={"a": run("a"), "b": run("b", "dead", "FAILED")}))
        await pilot.press("u")
        shown = await settled(pilot)
        assert "ended  b: failed, FAILED" in shown
        assert "ended  a" not in shown, "it trains again"
