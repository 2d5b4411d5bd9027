"""Pane 7: the queue with its keys, views and cursor."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard, text_of
from tests.tui.states.states import NOW, calm, job, queue_jobs, queued, slurm, slurm_down
from trainmon.model import EndedJobs, State
from tui.app import Dashboard
from tui.views.jobs import CLUSTER

# ---- the pane ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def showing(
    state: State, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Dashboard, Pilot[None], FakeBackend]]:
    backend = FakeBackend(state)
    app = dashboard(backend)
    async with running(app, size=size) as pilot:
        await at_rest(pilot)
        await pilot.press("7")
        await at_rest(pilot)
        yield app, pilot, backend


async def publish(app: Dashboard, pilot: Pilot[None], backend: FakeBackend, state: State) -> None:
    app.clock.at += 2.0  # type: ignore[attr-defined]
    backend.publish(state)
    await at_rest(pilot)


async def test_the_cursor_and_the_marks_stay_on_their_jobs_after_a_sort_a_removal_and_a_rebuild() -> None:
    async with showing(queued()) as (app, pilot, backend):
        pane = app.main.queue
        assert pane.lines.move_to("prod/418301")
        await pilot.press("space")
        assert pane.lines.move_to("prod/418302")

        pane.set_sort("name")
        assert pane.selected == "prod/418302"

        fewer = {one.key: one for one in queue_jobs() if one.id not in ("418190", "418230")}
        await publish(app, pilot, backend, msgspec.structs.replace(queued(), at=NOW + 2.0, jobs=fewer))
        assert pane.selected == "prod/418302"

        await pilot.press("v", "v", "v", "v")
        await at_rest(pilot)
        assert pane.selected == "prod/418302"
        assert pane.subjects() == (("job", "prod/418301"),)


async def test_the_waiting_elements_of_an_array_keep_the_cursor_while_they_become_fewer() -> None:
    async with showing(queued()) as (app, pilot, backend):
        pane = app.main.queue
        assert pane.lines.move_to("prod/418191_[]")

        fewer = {**queued().jobs, "prod/418191_[]": job("418191_[3-10%1]", "PENDING", reason="JobArrayTaskLimit")}
        await publish(app, pilot, backend, msgspec.structs.replace(queued(), at=NOW + 2.0, jobs=fewer))

        assert "418191 ×8" in text_of(app)
        assert pane.selected == "prod/418191_[]"
        assert pane.copy_text() == "418191_[3-10%1]"


async def test_v_goes_from_all_jobs_to_the_nodes_and_to_mine() -> None:
    async with showing(queued()) as (app, pilot, _):
        seen = []
        for _step in range(3):
            seen.append((app.main.queue.view, "llm-7b-a  ana" in text_of(app), "gpu-006  idle" in text_of(app)))
            await pilot.press("v")
            await at_rest(pilot)

        assert seen == [("all", True, False), ("nodes", False, True), ("mine", False, False)]


async def test_among_the_nodes_the_footer_offers_what_acts_on_a_node() -> None:
    async with showing(queued()) as (app, pilot, _):
        offered = []
        for keys in ((), ("v",), ("v", "g")):
            await pilot.press(*keys)
            await at_rest(pilot)
            offered.append({one.short for one in app.main.foot.keys()} & {"Exclude", "Kill", "Actions"})  # noqa: SIM118

        assert offered == [{"Actions", "Kill"}, {"Actions", "Exclude"}, {"Actions", "Kill"}]


async def test_a_row_is_a_job_or_a_node_and_the_counts_are_neither() -> None:
    async with showing(queued()) as (app, _pilot, _backend):
        pane = app.main.queue

        for key, subjects in (
            ("prod/418190", (("job", "prod/418190"),)), ("node:gpu-007", (("node", "gpu-007"),)),
        ):  # fmt: skip
            assert pane.lines.move_to(key)
            assert pane.subjects() == subjects


async def test_the_counts_of_the_nodes_never_hold_the_cursor() -> None:
    async with showing(queued()) as (app, pilot, _backend):
        pane = app.main.queue
        keys = [row.key for row in pane.lines.rows]
        heading = keys.index(f"{CLUSTER}prod")
        assert not pane.lines.move_to(keys[heading])

        assert pane.lines.move_to(keys[heading - 1])
        await pilot.press("j")
        assert pane.selected == keys[heading + 1]
        await pilot.press("k")
        assert pane.selected == keys[heading - 1]
        await pilot.press("v", "g")
        assert pane.view == "nodes"
        assert pane.subjects() == (("node", pane.lines.rows[1].key.removeprefix("node:")),)


async def test_a_view_comes_back_with_the_row_that_it_had() -> None:
    async with showing(queued()) as (app, pilot, _backend):
        pane = app.main.queue
        assert pane.lines.move_to("prod/418223"), "another's job"

        seen = []
        for _step in range(4):
            await pilot.press("v")
            await at_rest(pilot)
            seen.append((pane.view, len(pane.subjects()), pane.selected))

        views = [("nodes", 1), ("mine", 1), ("finished", 0), ("all", 1)]
        assert [(view, subjects) for view, subjects, _ in seen] == views
        assert (seen[1][2] or "").startswith("prod/"), "among my jobs the cursor is on a job"
        assert seen[3][2] == "prod/418223"


async def test_what_was_read_stays_dimmed_while_the_controller_does_not_answer() -> None:
    async with showing(slurm_down()) as (app, _pilot, _backend):
        text = text_of(app)
        row = next(row for row in app.main.queue.lines.rows if row.key == "prod/418190")

        assert "slurm late 3m" in text
        assert "Slurm of prod: late 3m: slurm_load_jobs error" in text
        assert {span.style for span in row.spans} == {"dim"}


async def test_without_slurm_it_says_how_to_name_one() -> None:
    async with showing(calm(), (80, 24)) as (app, _pilot, _backend):
        assert "No Slurm cluster is watched" in text_of(app)


async def test_a_slurm_that_was_looked_for_and_is_not_there_says_where() -> None:
    error = "there is no squeue on login1"
    absent = slurm(health="off", phase="off", answered_at=None, error=error, hint="name the login host in [[cluster]]")
    state = msgspec.structs.replace(calm(), sources={**calm().sources, absent.name: absent})
    async with showing(state, (80, 24)) as (app, _pilot, _backend):
        text = text_of(app)
        assert f"No Slurm cluster is watched: {error}" in text
        assert "name the login host in [[cluster]]" in text
        assert " JOB " not in text


async def test_a_tall_screen_gives_the_queue_a_place_of_its_own_once_there_is_one() -> None:
    backend = FakeBackend(calm())
    app = dashboard(backend)
    async with running(app, size=(130, 55)) as pilot:
        await at_rest(pilot)
        assert "─ 6 Charts  7 Queue ─" in text_of(app)

        await publish(app, pilot, backend, msgspec.structs.replace(queued(), at=NOW + 2.0))

        assert "╭─ 7 Queue " in text_of(app)
        assert "4 Log" in text_of(app)


# ---- finished jobs ---------------------------------------------------------------------------------------------------


async def test_finished_jobs_are_requested_only_where_they_are_shown_and_enter_opens_one() -> None:
    ended = (
        job("417001", "FAILED", name="tokenize", started_at=NOW - 9_000.0, ends_at=NOW - 7_200.0, exit_code="1:0"),
        job("417002", "COMPLETED", name="eval", started_at=NOW - 9_000.0, ends_at=NOW - 86_400.0, exit_code="0:0"),
    )  # fmt: skip
    async with showing(queued()) as (app, pilot, backend):
        pane = app.main.queue
        await pilot.press("7", "v", "v")
        await at_rest(pilot)
        assert ("look at job", "prod") not in backend.requests

        await pilot.press("v")
        await at_rest(pilot)
        assert ("look at job", "prod") in backend.requests
        assert "Reading the finished jobs from Slurm's accounting (sacct)…" in text_of(app)

        read = msgspec.structs.replace(queued(), at=NOW + 2.0, ended={"prod": EndedJobs("prod", NOW, ended)})
        await publish(app, pilot, backend, read)
        text = text_of(app)
        assert re.search(r"417001 tokenize +F +4 +30m +1:0 +09-21 12:13  exited with code 1, 2h ago", text), text
        assert "2 jobs of the last 3 days, read 2s ago" in text
        pane.set_filter("exit:1 ended<1d")
        assert [row.key for row in pane.lines.rows] == ["prod/417001"]
        pane.set_filter("nothing")
        assert "No job matches" in pane.lines.rows[0].text
        pane.clear_filter()
        pane.set_sort("-ended")
        assert [row.key for row in pane.lines.rows] == ["prod/417002", "prod/417001"]

        assert pane.lines.move_to("prod/417001")
        assert pane.copy_text() == "417001"
        await pilot.press("enter")
        await at_rest(pilot)
        assert "417001  tokenize  of me on prod" in text_of(app)
        assert ("read job", "prod/417001") in backend.requests


async def test_without_accounts_a_sentence_says_so_and_earlier_jobs_stay() -> None:
    known = job("417001", "FAILED", ends_at=NOW - 60.0)
    ended = EndedJobs("prod", NOW, (known,), "prod keeps no accounts (no slurmdbd)")
    async with showing(msgspec.structs.replace(queued(), ended={"prod": ended}), (80, 24)) as (app, pilot, _):
        await pilot.press("v", "v", "v")
        await at_rest(pilot)
        texts = [row.text for row in app.main.queue.lines.rows]
        assert texts[0] == "prod keeps no accounts (no slurmdbd)"
        assert texts[1].startswith("▲ 417001")
