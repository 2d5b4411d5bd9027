"""One setting for the zone of all times on the screens."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.tui.pilot import running
from tests.tui.screen_text import StillClock, at_rest, text_of
from tests.tui.states.alerts import alert, with_alerts
from tests.tui.states.plans import STATES, planning
from tests.tui.states.states import NOW
from trainmon.analysis.explanation import AttemptRecords, explain, page
from tui.app import Dashboard
from tui.charts.axes import Limits, clock_ticks
from tui.style import Link, Times

SUMMER = 1_750_000_000.0
"""2025-06-15 15:06:40 UTC."""
HOUR = 3_600.0


@pytest.fixture
def india(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose time is 5h30m before UTC."""
    monkeypatch.setenv("TZ", "IST-5:30")
    monkeypatch.setattr(Times, "zone", None)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("india")
def test_ticks_are_at_whole_hours_and_midnights_of_the_same_zone() -> None:
    ticks = clock_ticks(Limits(SUMMER, SUMMER + 12 * HOUR), 8)
    assert [label for _, label in ticks] == ["22:00", "16 Jun", "02:00", "04:00", "06:00", "08:00"]


@pytest.mark.usefixtures("india")
@pytest.mark.parametrize(
    ("local", "header", "shown"), [(False, "14:13:20Z", " UTC, "), (True, "19:43:20 ", " IST, ")], ids=["utc", "local"]
)
async def test_the_header_the_screens_and_the_tables_agree(local: bool, header: str, shown: str) -> None:
    app = Dashboard(planning(STATES["queued"]()), clock=StillClock(), local_time=local)
    async with running(app, size=(100, 50)) as pilot:
        await at_rest(pilot)
        assert header in text_of(app).replace("\n", " \n")
        await pilot.press("7", "enter")
        await at_rest(pilot)
        assert shown in text_of(app)
        assert " UTC" not in text_of(app).replace(shown, "")


@pytest.mark.usefixtures("india")
def test_the_timeline_of_an_attempt_says_its_zone() -> None:
    (attempt, *_) = STATES["attempted"]().attempts.values()
    one = explain(attempt, AttemptRecords(attempts=(attempt,)))
    utc, local = (page(one, *zone)[0] for zone in ((), (None,)))
    assert (utc.title, local.title) == ("Timeline (UTC)", "Timeline (local time)")
    assert [row.text for row in utc.rows[1:]] == [row.text for row in local.rows[1:]]
    assert [row.label for row in utc.rows[1:]] != [row.label for row in local.rows[1:]]


@pytest.mark.usefixtures("india")
@pytest.mark.parametrize(
    ("local", "shown"),
    [
        (False, ("14:20 UTC", "about Jan 14 23:59 UTC", "as of Jan 14 20:00:09 UTC")),
        (True, ("19:50 IST", "about Jan 15 05:29 IST", "as of Jan 15 01:30:09 IST")),
    ],
    ids=["utc", "local"],
)
async def test_sentences_that_name_a_time_follow_the_setting(local: bool, shown: tuple[str, ...]) -> None:
    summary = "due (at 14:20 UTC), about Jan 14 23:59 UTC (as of Jan 14 20:00:09 UTC)"
    state = with_alerts(alert(summary=summary, found_at=NOW, evidence=("log: 14:20 UTC",)))
    app = Dashboard(planning(state), clock=StillClock(), local_time=local)
    async with running(app, size=(200, 60)) as pilot:
        await at_rest(pilot)
        for keys in (("5", "z"), ("enter",)):
            await pilot.press(*keys)
            await at_rest(pilot)
            screen = " ".join(text_of(app).replace("│", " ").split())
            assert all(time in screen for time in shown), screen
        assert "log: 14:20 UTC" in text_of(app), "a line of a log is as it was written"


@pytest.mark.usefixtures("india")
async def test_the_page_of_an_attempt_has_one_zone() -> None:
    app = Dashboard(planning(STATES["attempted"]()), clock=StillClock(), local_time=True)
    async with running(app, size=(160, 60)) as pilot:
        await at_rest(pilot)
        (attempt, *_) = STATES["attempted"]().attempts
        app.open(Link("attempt", attempt))
        await at_rest(pilot)
        assert " IST" in text_of(app)
        assert " UTC" not in text_of(app)


@pytest.mark.usefixtures("india")
async def test_a_changed_config_changes_the_zone_and_the_theme_at_once() -> None:
    app = Dashboard(planning(STATES["queued"]()), clock=StillClock())
    async with running(app, size=(100, 50)) as pilot:
        await at_rest(pilot)
        assert "14:13:20Z" in text_of(app)
        app.use("high-contrast", "local")
        await at_rest(pilot)
        assert "19:43:20" in text_of(app)
        assert app.theme == "trainmon-clear"

        app.change_theme("trainmon-light")
        app.use("high-contrast", "utc")
        await at_rest(pilot)
        assert "14:13:20Z" in text_of(app)
        assert app.theme == "trainmon-light", "a person has chosen it since"
