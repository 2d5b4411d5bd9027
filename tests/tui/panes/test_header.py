"""The first line, as text."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from tests.tui.dashboard import publish, showing
from tests.tui.screen_text import text_of
from tests.tui.states.states import NOW, calm, empty, slurm, source, state, troubled
from trainmon.lib import cell_width
from trainmon.model import Channel, Leadership, Source
from tui.panes.header import clock, flags, header, sources_text, strip_lines


def text(width: int) -> str:
    return "".join(span.text for span in header(troubled(), width, ()))


def test_it_counts_verdicts_worst_first_and_sources_by_kind() -> None:
    assert (
        text(118)
        == "trainmon  prod  1 hung  1 diverged  2 healthy  1 finished  ssh 6/8 gpu-006 login: press L  alerts: not sent"
    )


def test_it_stays_within_its_width_and_drops_the_least_first() -> None:
    assert all(cell_width(text(width)) <= width for width in range(10, 120))
    assert "ssh 6/8" in text(40)
    assert "gpu-006" not in text(40)
    assert text(26) == "trainmon  1 hung  ssh 6/8"


def test_where_not_all_has_room_runs_that_are_well_give_way_to_ages() -> None:
    assert text(60) == "trainmon  1 hung  1 diverged  ssh 6/8 gpu-006 login: press L"
    assert "2 healthy" in text(118)


def test_another_leader_is_shown_on_eighty_columns_before_what_files_are_read() -> None:
    shown = state(sources={"node:gpu-001": source(1), "slurm:prod": slurm(), "files:x": Source(
        name="files:x", kind="files", cluster="", health="ok")})  # fmt: skip
    for leadership, words in (
        (Leadership(holder="daemon", where="bastion", at=NOW - 5.0), "alerts: bastion 5s ok"),
        (Leadership(holder="other", where="pid 4711", at=NOW - 5.0), "alerts: pid 4711 5s ok"),
        (Leadership(holder="us", where="here", at=NOW), "alerts: sent here"),
    ):
        shown = msgspec.structs.replace(shown, channels={"phone": Channel(name="phone", type="ntfy", state="ok")})
        line = "".join(
            span.text
            for span in header(msgspec.structs.replace(shown, leadership=leadership, alerts=calm().alerts), 69, ())
        )
        assert line.endswith(words), line
        assert "slurm 0s" in line


def test_the_time_is_utc_and_says_so() -> None:
    assert clock(NOW) == "14:13:20Z"
    assert clock(0.0) == ""


def test_the_source_that_was_silent_longest_is_named_with_its_age() -> None:
    late = {"node:gpu-001": source(1), "node:gpu-002": source(2, health="late", answered_at=NOW - 42.0)}

    spans = sources_text(msgspec.structs.replace(empty(), sources=late), 80)

    assert [span.text for span in spans] == ["  ssh 1/2 gpu-002 no answer 42s"]


def test_a_source_that_is_off_is_no_fault() -> None:
    off = {"node:gpu-001": source(1, health="off"), "node:gpu-002": source(2)}

    assert sources_text(msgspec.structs.replace(empty(), sources=off), 80)[0].text == "  ssh 1/1"


def test_nodes_that_are_read_by_a_step_of_a_job_are_not_called_ssh() -> None:
    nodes = {"node:gpu-001": source(1), "node:gpu-002": msgspec.structs.replace(source(2), step_of=7)}

    assert sources_text(msgspec.structs.replace(empty(), sources=nodes), 80)[0].text == "  nodes 2/2"


def rendered(*sources: Source, room: int = 80) -> tuple[str, str]:
    spans = sources_text(state(sources={source.name: source for source in sources}), room)
    return "".join(span.text for span in spans), spans[-1].style


def test_the_age_of_the_queue_is_shown_in_steps_of_five_seconds() -> None:
    assert rendered(source(1), slurm()) == ("  ssh 1/1  slurm 0s", "")
    assert rendered(slurm(answered_at=NOW - 29.0)) == ("  slurm 25s", "")
    assert rendered(slurm(answered_at=NOW - 130.0)) == ("  slurm 2m", "")


def test_a_scheduler_that_does_not_answer_is_shown_as_late_or_down() -> None:
    assert rendered(slurm(answered_at=NOW - 100.0, health="late")) == ("  slurm late 1m", "warn")
    assert rendered(slurm(answered_at=NOW - 190.0, health="down")) == ("  slurm down 3m", "warn")
    assert rendered(slurm(answered_at=None, health="late", phase="connecting")) == ("  slurm connecting", "warn")
    assert rendered(slurm(answered_at=None, health="down")) == ("  slurm no data", "warn")


def test_several_clusters_are_shown_by_name_and_counted_where_there_is_no_room() -> None:
    both = slurm(answered_at=NOW - 9.0), slurm(name="slurm:lab", cluster="lab", answered_at=NOW - 200.0, health="down")

    assert rendered(*both) == ("  slurm lab down 3m, prod 5s", "warn")
    assert rendered(*both, room=12) == ("  slurm 1/2", "warn")


def test_of_prometheus_the_worst_server_or_its_silent_node_is_shown() -> None:
    def server(name: str, **changes: Any) -> Source:
        usual: dict[str, Any] = {"health": "ok", "answered_at": NOW - 12.0}
        return Source(name=f"prometheus:prod:{name}", kind="prometheus", cluster="prod", **usual | changes)

    def shown(*sources: Source) -> str:
        return "".join(one.text for one in sources_text(state(sources={one.name: one for one in sources}), 80))

    login = source(1)
    nodes = [replace(source(number), via="prometheus:prod:dcgm") for number in (2, 3)]
    late = replace(nodes[0], health="down", answered_at=NOW - 130.0)
    dcgm = server("dcgm")
    assert shown(login, *nodes, dcgm, server("node", answered_at=NOW - 7.0)) == "  ssh 1/1  prometheus 10s"
    assert shown(login, late, nodes[1], dcgm) == "  ssh 1/1  prometheus 1/2 gpu-002 no answer 2m"
    assert shown(late, server("dcgm", health="down")) == "  prometheus down 10s"
    never = server("node", health="down", answered_at=None)
    assert shown(never) == "  prometheus no data"
    assert shown(dcgm, never) == "  prometheus prod:node no data", "the other one answers"


def test_other_kinds_of_source_are_counted() -> None:
    other = Source(name="files:login1", kind="files", cluster="", health="ok")

    assert rendered(other) == ("  files 1/1", "")


def wandb(name: str = "video-2b", **more: object) -> Source:
    return slurm(name=f"wandb:{name}", kind="wandb", period=60.0, **more)


def test_of_wandb_the_age_of_the_oldest_answer_is_shown() -> None:
    assert rendered(source(1), wandb(answered_at=NOW - 14.0)) == ("  ssh 1/1  wandb 10s", "")
    assert rendered(wandb(answered_at=NOW - 14.0), wandb("sft", answered_at=NOW - 50.0)) == ("  wandb 50s", "")


def test_a_run_that_wandb_does_not_answer_is_named_among_others() -> None:
    lost = wandb("sft", answered_at=NOW - 310.0, health="down")

    assert rendered(lost) == ("  wandb down 5m", "warn")
    assert rendered(wandb(), lost) == ("  wandb 1/2 sft no answer 5m", "warn")
    assert rendered(wandb(), lost, room=14) == ("  wandb 1/2", "warn")
    assert rendered(wandb(answered_at=None, health="late", phase="connecting")) == ("  wandb connecting", "warn")


def test_a_ledger_that_fails_is_shown_on_every_screen_and_in_full_on_the_first() -> None:
    failing = msgspec.structs.replace(calm(), ledger="no action is written down: the disk is full")

    assert flags(failing, paused=False, silent_for=None) == ("LEDGER FAILED",)
    (shown,) = strip_lines(failing, 78, 5)
    assert "".join(span.text for span in shown) == "◆ ledger  no action is written down: the disk is full"
    assert strip_lines(calm(), 78, 5) == []


def test_demo_read_only_paused_and_a_silent_engine_are_shown_in_words() -> None:
    shown = msgspec.structs.replace(calm(), demo=True, read_only=True)

    assert flags(shown, paused=True, silent_for=20.0) == ("DEMO", "READ-ONLY", "PAUSED", "NO UPDATE 20s")
    assert flags(calm(), paused=False, silent_for=None) == ()


def test_the_clusters_name_does_not_come_and_go_with_the_age_of_the_queue() -> None:
    for width in range(20, 60):
        shown = {
            "".join(span.text for span in header(state(sources={"slurm:prod": slurm(answered_at=at)}), width, ()))
            .count("  prod")
            for at in (NOW, NOW - 5.0, NOW - 10.0, NOW - 55.0)
        }  # fmt: skip
        assert len(shown) == 1, width


async def test_the_time_moves_while_nothing_answers() -> None:
    first = calm()
    async with showing(first) as (app, pilot, backend):
        assert clock(first.at) in text_of(app)
        await publish(app, pilot, backend, replace(first, at=first.at + 2.0))
        assert clock(first.at + 2.0) in text_of(app).splitlines()[0]


async def test_the_demo_tells_its_story_in_one_line_and_no_other_program_has_that_line() -> None:
    told = replace(calm(), demo=True, story="llm-7b hangs · press 1, Enter")
    async with showing(told, (80, 24)) as (app, pilot, backend):
        assert " demo 10:00 · llm-7b hangs · press Enter" in text_of(app)  # 1 Runs has the focus
        await pilot.press("2")
        await publish(app, pilot, backend, replace(told, at=told.started_at + 75.0))
        assert " demo 1:15 · llm-7b hangs · press 1, Enter" in text_of(app)
        await publish(app, pilot, backend, replace(told, story=""))
        assert "llm-7b hangs" not in text_of(app)
