"""`a` and `m` where the cursor is on a run, a node or a disk, or on nothing that has an alert."""

from __future__ import annotations

from msgspec.structs import replace

from tests.tui.services.test_alert_actions import press, showing
from tests.tui.states.alerts import alarmed, alert, with_alerts
from tests.tui.states.states import NOW, calm
from trainmon.model import Silence, State
from tui.views.alerts import alert_layout, alert_rows, alerts_about, alerts_about_subjects
from tui.views.disks import ordered_disks


def test_of_a_run_it_is_what_fires_and_no_other_hides_the_worst_first() -> None:
    one = alert("aaaa0001", run="a", severity="warning")
    two = alert("aaaa0002", run="a", acknowledged_by="ana")
    worst = alert("aaaa0003", run="a")
    pending = alert("aaaa0004", run="a", phase="pending")
    hidden = alert("aaaa0005", run="a", inhibited_by="aaaa0003")
    event = alert("aaaa0006", run="a", severity="info", event=True)
    other = alert("aaaa0007", run="b")

    found = alerts_about(with_alerts(one, two, worst, pending, hidden, event, other), runs=("a",))

    assert found == ("aaaa0003", "aaaa0001", "aaaa0002")


def test_of_a_job_it_is_those_of_its_run() -> None:
    state = with_alerts(alert(run="llm-70b"))
    state = replace(state, runs={**state.runs, "llm-70b": replace(state.runs["llm-70b"], jobs=("prod/1",))})

    assert alerts_about_subjects(state, (("job", "prod/1"),)) == ("aaaa0001",)
    assert alerts_about_subjects(state, (("job", "prod/2"),)) == ()


async def test_a_on_a_row_acknowledges_all_that_its_mark_stands_for() -> None:
    async with showing(on_rows()) as (backend, pilot):
        text = await press(pilot, "1", "g", "a")
        assert "Acknowledge 2 alerts" in text

        await press(pilot, "enter")
        assert backend.requests[-2:] == [("acknowledge", "aaaa0001", ""), ("acknowledge", "aaaa0002", "")]


async def test_a_on_a_node_and_on_a_disk() -> None:
    for pane, name in (("2", "aaaa0003"), ("3", "aaaa0004")):
        async with showing(on_rows()) as (backend, pilot):
            await press(pilot, pane, "g", "a", "enter")
            assert backend.requests == [("acknowledge", name, "")], pane


async def test_a_where_nothing_fires_means_the_worst_and_says_so() -> None:
    state = with_alerts(alert("aaaa0009", "gpu-hot", "gpu:gpu-999/5", node="gpu-999"))
    for keys in ((), ("2",), ("3",), ("4",), ("enter",)):
        async with showing(state) as (backend, pilot):
            text = await press(pilot, *keys, "a")
            assert "Acknowledge the worst alert" in text, keys
            assert "gpu-hot" in text

            await press(pilot, "enter")
            assert backend.requests[-1] == ("acknowledge", "aaaa0009", ""), keys


async def test_a_where_no_alert_fires_says_so() -> None:
    async with showing(calm()) as (backend, pilot):
        assert "no alert needs an acknowledgement" in await press(pilot, "a")
        assert "no alert is firing" in await press(pilot, "escape", "m")
        assert backend.requests == []


async def test_m_on_a_row_mutes_its_alerts() -> None:
    async with showing(on_rows()) as (backend, pilot):
        await press(pilot, "2", "g", "m", "enter")

        found = Silence(id="", rule="gpu-hot", subject="gpu:x", until=NOW + 3_600.0, by="", why="", made_at=0.0)
        assert backend.requests == [("mute", found)]


async def test_of_what_happened_the_question_says_what_becomes_of_it() -> None:
    event = alert("aaaa000b", "restarted", "run:llm-70b", severity="info", event=True, summary="llm-70b was restarted")
    async with showing(with_alerts(event)) as (backend, pilot):
        assert "This alert is a single event and is sent only once." in await press(pilot, "5", "a")
        await press(pilot, "enter")
        assert backend.requests == [("acknowledge", "aaaa000b", "")]


def test_what_happened_stands_below_once_somebody_knows_of_it() -> None:
    event = alert("aaaa000b", "restarted", "run:llm-70b", severity="info", event=True, summary="llm-70b was restarted")
    known = replace(event, acknowledged_by="ana", acknowledged_at=NOW)

    first, heading, last = alert_rows(with_alerts(known), alert_layout(110))

    assert first.text == "No alert is firing."
    assert "LAST 24 HOURS" in heading.text
    assert "llm-70b was restarted" in last.text
    assert "ack ana" in last.text


async def test_a_summary_cannot_hide_what_is_shown_before_it() -> None:
    one = alert("aaaa0009", "gpu-hot", "gpu:x", node="x", summary="[bold]fine[/]\x1b[2J\reverything is ok")
    async with showing(with_alerts(one)) as (_, pilot):
        shown = await press(pilot, "5")
        assert "╰─ gpu-hot" in shown
        assert shown.count("everything is ok") == 1
        assert "gpu-hot: everything is ok" in await press(pilot, "a")


async def test_the_strip_names_the_key() -> None:
    async with showing(alarmed()) as (_, pilot):
        assert "a ack" in (await press(pilot)).splitlines()[1]


def on_rows() -> State:
    """Alerts of a run, of a node and of a disk that stand on top of their panes."""
    state = calm()
    node = min(state.nodes)
    disk = ordered_disks(state, "worst", "")[0].disk
    first = min(state.runs)
    return with_alerts(
        alert("aaaa0001", "run-hung", f"run:{first}", run=first),
        alert("aaaa0002", "loss-nan", f"run:{first}", run=first),
        alert("aaaa0003", "gpu-hot", "gpu:x", node=node),
        alert("aaaa0004", "disk-full", f"disk:{disk.host}:{disk.path}"),
    )
