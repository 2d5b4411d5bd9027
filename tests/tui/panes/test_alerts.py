"""The pane of alerts, the strip, the marks and the header, as text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.tui.dashboard import showing
from tests.tui.screen_text import settled, text_of
from tests.tui.states.alerts import (
    ALERTS,
    SILENCES,
    alarmed,
    alert,
    at_ease,
    channel,
    sent,
    told_elsewhere,
    with_alerts,
)
from tests.tui.states.states import NOW
from trainmon.lib import cell_width
from trainmon.model import Alert, Leadership, State
from tui.panes.alerts import alert_sentence
from tui.panes.header import header, sender_flag, strip_lines
from tui.style import HEADING, Line, Linked
from tui.views.alert_detail import alert_lines, alerts_of, choices, parse_duration, silences_of
from tui.views.alerts import (
    ALERT_FIELDS,
    SHOWN,
    SILENCE,
    AlertRows,
    Concern,
    alert_layout,
    alert_marks,
    alert_rows,
    open_alerts,
    sender_text,
    status_of,
    urgent,
)


def texts(width: int = 110, wanted: str = "", sort: str = "worst") -> list[str]:
    return [row.text for row in alert_rows(alarmed(), alert_layout(width), sort, wanted)]


def test_what_nobody_has_taken_on_comes_first_and_of_that_the_worst_and_the_oldest() -> None:
    assert [one.id for one in open_alerts(alarmed(), "worst")] == [
        "aaaa0001", "aaaa0002", "aaaa0007", "aaaa0003", "aaaa0004", "aaaa0005", "aaaa0006", "aaaa0008"
    ]  # fmt: skip
    assert [status_of(one, NOW) for one in open_alerts(alarmed(), "worst")][3:] == [
        "open", "acknowledged", "muted", "inhibited", "pending"
    ]  # fmt: skip


def test_a_row_has_severity_since_when_what_and_who_was_notified() -> None:
    found = texts()

    assert found[0].startswith("▲ CRIT  11m llm-7b-a takes no step for 11m")
    assert found[1].rstrip().endswith("sent phone 14:07:40")
    assert "retrying mail 14:11:40" in found[0]
    assert "ack ana" in found[4]
    assert "muted 43m" in found[5]
    assert "inhibited by node-unreachable  stale data" in found[6]
    assert "pending" in found[7]


def test_what_is_muted_and_what_is_over_stand_below() -> None:
    found = texts()

    assert found[8].strip() == "MUTED (m on a row unmutes)"
    assert "43m left  rule gpu-idle on gpu:gpu-007/1  by ana: being mended" in found[9]
    assert "maintenance window of trainmon.toml" in found[10]
    assert found[11].strip() == "LAST 24 HOURS"
    assert found[12].startswith("✓ WARN  16m sft-1b's loss was 4.1")
    assert "resolved 1h ago  sent phone 12:16:50" in found[12]


@pytest.mark.parametrize("width", [20, 46, 51, 71, 72, 78, 103, 104, 160, 197])
def test_no_row_is_wider_than_its_pane(width: int) -> None:
    assert max(cell_width(text) for text in texts(width)) <= width


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ("crit open", ["aaaa0001", "aaaa0002", "aaaa0007"]),
        ("acknowledged", ["aaaa0004"]),
        ("muted", ["aaaa0005"]),
        ("gpu-006 inhibited", ["aaaa0006"]),
        ("mail retrying", ["aaaa0001"]),
        ("llm-7b-a", ["aaaa0001"]),
        ("nothing of the kind", []),
    ],
)
def test_the_filter_takes_words_about_everything_that_is_known(wanted: str, ids: list[str]) -> None:
    assert [one.id for one in open_alerts(alarmed(), "worst", wanted)] == ids


@pytest.mark.parametrize("sort", ["worst", *(field.name for field in ALERT_FIELDS)])
def test_every_sort_order_keeps_all_alerts(sort: str) -> None:
    assert len(open_alerts(alarmed(), sort)) == 8


def test_of_ten_thousand_alerts_a_screen_is_shown_and_the_rest_counted() -> None:
    many = with_alerts(*(alert(f"{n:08}", "gpu-hot", f"gpu:gpu-{n}/0") for n in range(10_000)))

    found = alert_rows(many, alert_layout(110))

    assert len(found) == SHOWN + 1
    assert found[-1].text == "and 9,800 more; / filters"
    assert strip(many)[0].endswith("  +9999 more (key 5)  a ack")


def test_the_rows_are_kept_until_something_changes_and_ages_move_every_ten_seconds() -> None:
    state, drawn = alarmed(), AlertRows()
    first = drawn.rows(state, (80, 20), "worst", "")
    older = msgspec.structs.replace(ALERTS[0], summary="the same, a second later", found_at=NOW)
    acked = msgspec.structs.replace(older, acknowledged_by="me")

    assert drawn.rows(msgspec.structs.replace(state, at=state.at + 1), (80, 20), "worst", "") is first
    assert "a second later" in drawn.rows(with_one(state, older), (80, 20), "worst", "")[0].text
    assert drawn.rows(with_one(state, acked), (80, 20), "worst", "") is not first
    later = msgspec.structs.replace(with_one(state, older), at=NOW + 10)
    assert "a second later" in drawn.rows(later, (80, 20), "worst", "")[0].text
    assert drawn.rows(state, (81, 20), "worst", "") is not first


def test_more_alerts_than_the_screen_has_rows_are_not_laid_out_to_be_counted() -> None:
    state, drawn = (
        with_alerts(*(alert(f"a{n}", subject=f"run:r{n}", summary="word " * 60) for n in range(30))),
        AlertRows(),
    )
    for screen, wanted in ((30, 30), (31, len(alert_rows(state, alert_layout(80)._replace(lines=9, advice=1))))):
        drawn.rows(state, (80, 10), "worst", "", (), screen)
        assert drawn.wanted == wanted > 0


def with_one(state: State, one: Alert) -> State:
    return msgspec.structs.replace(state, alerts={**state.alerts, one.id: one})


def test_a_delivery_that_fails_stays_in_sight_where_there_is_room_for_one_word() -> None:
    failing = alert(delivery=(sent(ago=10.0), sent("mail", "dead", 5.0)), acknowledged_by="ana")

    assert alert_rows(with_alerts(failing), alert_layout(50))[0].text.rstrip().endswith("dead mail")
    assert alert_rows(with_alerts(failing), alert_layout(80))[0].text.rstrip().endswith("dead mail 14:13:15")


def test_a_name_from_outside_cannot_reach_the_terminal() -> None:
    evil = alert(summary="a\x1b[31m b", subject="run:x\x07", acknowledged_by="\x1b]0;x\x07me", evidence=("\x1b[2Jz",))
    state = with_alerts(evil)
    shown = [row.text for row in alert_rows(state, alert_layout(110))]
    lines = [one.spans if isinstance(one, Linked) else one for one in alert_lines(evil.id, state, 80)]

    assert all(text.isprintable() for text in shown)
    assert all(span.text.isprintable() for line in lines for span in line)


# ---- the strip -------------------------------------------------------------------------------------------------------


def strip(state: State, width: int = 78, most: int = 5) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in strip_lines(state, width, most)]


ADVICE = "C cancels its job: trainmon-tui cancel llm-7b-a; or R requeues its job: trainmon-tui requeue llm-7b-a"


def test_the_strip_has_the_worst_alert_in_full_what_to_do_and_how_many_others_there_are() -> None:
    why = (
        "llm-7b-a hangs: no step for 11m, the last was step 81,204; its GPUs are 100% busy at 21% of their power limit"
    )
    worst = alert("aaaa0000", summary=why, advice=ADVICE, since=NOW - 700.0, fired_at=NOW - 650.0)
    first, *rest = strip(with_alerts(worst, *ALERTS[1:3]))

    assert first.startswith("▲ CRIT 11m llm-7b-a hangs: no step for 11m")
    assert first.endswith("  +2 more (key 5)  a ack")
    assert rest[-1] == "what to do: C cancels its job; or R requeues its job"
    text = " ".join([first.partition("  +2")[0].strip(), *rest[:-1]])
    assert text == f"▲ CRIT 11m {why}"


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [30, 50, 78, 118])
def test_where_the_strip_has_too_few_lines_it_ends_with_a_whole_part_or_keeps_its_numbers(
    width: int, most: int
) -> None:
    summary = "/fsx has 1.5 TiB left: the next checkpoint of llm (4.1 TiB), due in 2m, does not fit; read 8s ago"
    lines = strip(
        with_alerts(alert(summary=summary, advice="delete old ones; Enter on the run shows them")), width, most
    )

    assert len(lines) <= most
    assert all(cell_width(line) <= width for line in lines)
    assert "1.5 TiB left" in " ".join(lines) or width < 50
    if (width, most) == (78, 3):
        assert lines[1].endswith("due in 2m, does not fit; read 8s ago")


@pytest.mark.parametrize(("width", "most"), [(78, 5), (68, 4)])
def test_a_long_advice_does_not_cut_what_is_wrong(width: int, most: int) -> None:
    summary = "moe-1b died: exit code 1 of its job after 3h12m at step 50,430, 30 steps after its last checkpoint"
    advice = "; ".join(f"part {part} of a long advice, which says what else to look at" for part in range(6))
    first, *rest = strip(with_alerts(alert(summary=summary, advice=advice), *ALERTS[1:3]), width, most)

    text = " ".join([first.partition("  +2")[0].rstrip(), *rest])
    assert f"{summary} what to do: part 0 of a long advice" in text
    assert len(rest) == most - 1
    assert strip(with_alerts(alert(summary="", advice="look")))[1:] == ["what to do: look"]
    assert strip(with_alerts(alert(summary="", advice="try: ssh n1")))[1:] == ["what to do: ssh n1"]


def test_an_alert_that_is_pending_for_a_while_is_in_the_strip_if_nothing_fires() -> None:
    blip = alert("p1", phase="pending", fired_at=None, since=NOW - 5.0)
    held = alert("p2", phase="pending", fired_at=None, since=NOW - 42.0, summary="GPU 5 is hot, for 42s", advice="look")

    assert strip(with_alerts(blip)) == []
    assert strip(with_alerts(blip, held)) == ["◌ pending 42s GPU 5 is hot, for 42s", "what to do: look"]
    assert strip(with_alerts(held, alert("f", summary="it fires")))[0].startswith("▲ CRIT 6m it fires")


def test_the_strip_is_blank_when_all_is_well_or_taken_care_of() -> None:
    assert strip(at_ease()) == []
    assert strip(with_alerts(*ALERTS[3:6])) == []


# ---- the header ------------------------------------------------------------------------------------------------------


def test_the_header_names_the_leader_and_shows_that_its_loop_runs() -> None:
    assert sender_flag(at_ease()).text == "  alerts: sent here"
    assert sender_flag(with_alerts(leadership=Leadership())).text == "  alerts: not sent"
    assert sender_flag(msgspec.structs.replace(at_ease(), channels={})) == ("  alerts: no channel", "")
    assert sender_flag(msgspec.structs.replace(alarmed(), channels={})) == ("  alerts: no channel", "warn")
    troubled = msgspec.structs.replace(at_ease().leadership, problem="config refused: trainmon.toml: …")
    silent = msgspec.structs.replace(at_ease(), channels={}, leadership=troubled)
    assert sender_flag(silent) == ("  alerts: no channel", ""), "nothing is sent from here, whatever the config"
    assert sender_text(Leadership(holder="daemon", where="bastion", at=NOW - 9.0), NOW).text == "bastion 5s ok"
    assert sender_text(Leadership(holder="other", where="pid 4711", at=NOW - 2.0), NOW).text == "pid 4711 0s ok"


def test_one_whose_loop_stands_still_is_not_well() -> None:
    assert sender_text(Leadership(holder="us", where="here", at=NOW - 75.0), NOW) == ("here late 1m", "crit")
    assert sender_text(Leadership(holder="daemon", where="bastion", at=NOW, problem="outbox waits"), NOW) == (
        "bastion 0s !",
        "warn",
    )


def test_a_broken_channel_is_named_in_the_header_and_under_the_pane() -> None:
    state = told_elsewhere()

    assert sender_flag(state).text == "  alerts: phone broken"
    assert alert_sentence(state, "aaaa0001") == (
        "channel phone (ntfy) is broken: 403: the topic is reserved",
        "crit",
    )
    assert "phone broken" in "".join(span.text for span in header(state, 100, ()))


def test_the_counts_of_the_header_are_what_somebody_must_look_at() -> None:
    assert "".join(span.text for span in header(alarmed(), 110, ())).startswith("trainmon  3 CRIT  1 WARN")
    assert "CRIT" not in "".join(span.text for span in header(at_ease(), 110, ()))


# ---- the marks -------------------------------------------------------------------------------------------------------


def test_runs_nodes_and_disks_with_an_alert_are_marked_with_the_worst() -> None:
    found = alert_marks(alarmed())

    assert found.runs == {"llm-7b-a": Concern.CRITICAL}
    assert found.nodes == {"gpu-003": Concern.CRITICAL, "gpu-006": Concern.CRITICAL, "gpu-002": Concern.PENDING}
    assert found.disks == {"login1:/scratch": Concern.WARNING}


# ---- an alert's own screen -------------------------------------------------------------------------------------------


def detail(name: str) -> str:
    lines = alert_lines(name, alarmed(), 100)
    return "\n".join(map(row, lines))


def row(line: Line | Linked) -> str:
    return "".join(span.text for span in (line.spans if isinstance(line, Linked) else line))


def test_its_screen_says_what_to_do_who_was_notified_and_the_source() -> None:
    text = detail("aaaa0001")

    assert "what to do    look at the stack of rank 0 with py-spy" in text
    assert "notified      retrying mail 14:11:40, firing: 421 try again later" in text
    assert "sent phone 14:02:50, firing" in text
    assert "14:02:19 step 81204 loss 2.113" in text
    assert "geheim" not in text


def test_the_evidence_of_an_alert_that_is_over_has_its_time() -> None:
    state = alarmed()
    over = {
        name: msgspec.structs.replace(one, phase="resolved", found_at=state.at - 600)
        for name, one in state.alerts.items()
    }
    lines = alert_lines("aaaa0001", msgspec.structs.replace(state, alerts=over), 100)
    shown = [row(one) for one in lines]
    assert [line for line in shown if line.startswith("evidence")] == ["evidence, 2026-09-21 14:03 UTC, 10m ago"]
    assert "\nevidence\n" in detail("aaaa0001")


def test_its_screen_says_why_nobody_was_notified() -> None:
    assert "not sent: another alert inhibits it and is sent instead" in detail("aaaa0006")
    assert "inhibitor   → node-unreachable: gpu-006 is unreachable" in detail("aaaa0006")
    assert "not sent: muted" in detail("aaaa0005")
    assert "for 43m more: being mended" in detail("aaaa0005")
    assert "not sent: still pending" in detail("aaaa0008")
    unsent = msgspec.structs.replace(alarmed().alerts["aaaa0001"], notified_at=None, delivery=())
    for flapping, why in ((True, "it flaps; the next notification comes when it is stable"), (False, "it waits for ")):
        state = msgspec.structs.replace(alarmed(), alerts={"one": msgspec.structs.replace(unsent, flapping=flapping)})
        lines = [row(one) for one in alert_lines("one", state, 100)]
        assert any(f"not sent: {why}" in line for line in lines)
    assert "inhibits    → gpu-lost" in detail("aaaa0007")
    assert "Alert gone is not known." in detail("gone")


def test_a_runs_own_screen_leads_to_its_alerts() -> None:
    found = [one for one in alerts_of("llm-7b-a", alarmed(), 90) if isinstance(one, Linked)]

    assert [one.link.name for one in found] == ["aaaa0001"]
    assert "".join(span.text for span in found[0].spans).startswith("alerts      → ▲ CRIT run-hung: llm-7b-a takes no")
    assert list(alerts_of("sft-1b", alarmed(), 90)) == []


# ---- muting ----------------------------------------------------------------------------------------------------------


def test_what_may_be_muted_goes_from_the_narrowest_to_the_widest() -> None:
    assert [one.text for one in choices([ALERTS[1]])] == [
        "gpu-hot on gpu:gpu-003/5",
        "rule gpu-hot, on every run, node and disk",
        "all alerts on gpu:gpu-003/5",
        "all alerts on node gpu-003",
    ]
    assert [one.key for one in choices([ALERTS[0]])] == ["these", "rule", "run"]


def test_of_several_alerts_each_is_muted_by_its_rule_and_subject() -> None:
    these = choices(ALERTS[:2])[0]

    assert these.text == "these 2 alerts"
    assert [(one.rule, one.subject, one.until, one.why) for one in silences_of(these, NOW + 60, "why")] == [
        ("run-hung", "run:llm-7b-a", NOW + 60, "why"),
        ("gpu-hot", "gpu:gpu-003/5", NOW + 60, "why"),
    ]


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h", 3_600.0), ("90m", 5_400.0), ("2d4h", 187_200.0), ("1w", 604_800.0)]
)
def test_how_long_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1", "h", "5s", "1y", "90d", "1h!"])
def test_how_long_that_makes_no_sense_is_answered_with_a_sentence(text: str) -> None:
    assert isinstance(parse_duration(text), str)


def test_what_is_ending_stands_after_what_fires_and_not_in_the_strip() -> None:
    ending = alert("end", phase="recovering", clear_since=NOW - 60.0)
    state = with_alerts(ending, alert("warn", severity="warning"))

    assert [one.id for one in open_alerts(state, "worst")] == ["warn", "end"]
    assert "CRIT" not in "".join(strip(state))
    assert alert_rows(state, alert_layout(80))[1].text.startswith("◐ CRIT")


def test_urgent_leaves_out_what_only_informs() -> None:
    assert urgent([alert(severity="info")], NOW) == []


def test_a_window_of_the_config_and_a_channel_have_their_own_words() -> None:
    assert SILENCES[1].window
    assert channel().target == "ntfy.sh/****"


@pytest.mark.parametrize(("count", "advised"), [(2, 2), (8, 1), (20, 1)])
async def test_a_pane_with_room_says_what_to_do_below_each_open_alert_or_the_worst(count: int, advised: int) -> None:
    advice = "end it before its next save, then resume from a checkpoint from before step 1,240, and look at the data"
    many = [alert(f"a{n}", advice=advice, subject=f"run:r{n}") for n in range(count)]
    taken = alert("b", advice=advice, acknowledged_by="ana")
    async with showing(with_alerts(taken, *many), (120, 40)) as (app, _, _backend):
        told = " ".join(row.text.strip() for row in app.main.alerts.lines.rows)
        assert told.count(f"what to do: {advice}") == advised
        in_sight = app.main.alerts.lines.rows[: app.main.alerts.lines.size.height]
        assert any(row.text.strip().startswith("what to do: end it before") for row in in_sight)
        assert "╰─ run-dead ──" in text_of(app), "the frame repeats nothing of it"
        assert app.main.alerts.needed == count + 1 + 3 + 3, "it takes room from other panes for the worst one"


async def test_what_ended_takes_no_line_from_what_is_open() -> None:
    long = "it has " + ", ".join(f"reason {n}" for n in range(20))
    two = [alert(f"a{n}", summary=long, advice="look at its log (key 4)", subject=f"run:r{n}") for n in range(2)]
    ended = [alert(f"e{n}", subject=f"run:e{n}", phase="resolved", resolved_at=NOW - 60.0) for n in range(60)]
    async with showing(with_alerts(*two, *ended), (140, 40)) as (app, pilot, _):
        await pilot.press("5", "5")
        told = " ".join(row.text.strip() for row in app.main.alerts.lines.rows)
        assert told.count("reason 19") == 2
        assert told.count("what to do: look at its log (key 4)") == 2


def test_the_texts_of_few_open_alerts_move_at_once_however_many_ended() -> None:
    ended = [alert(f"e{n}", subject=f"run:e{n}", phase="resolved", resolved_at=NOW - 60.0) for n in range(60)]
    state, drawn = with_alerts(alert("a0", summary="no step for 71s"), *ended), AlertRows()
    drawn.rows(state, (80, 20), "worst", "")
    later = with_one(state, msgspec.structs.replace(state.alerts["a0"], summary="no step for 74s"))
    assert "no step for 74s" in drawn.rows(later, (80, 20), "worst", "")[0].text


@pytest.mark.parametrize("width", [46, 51, 60, 78])
def test_a_narrow_pane_wraps_each_open_alert_and_cuts_no_number(width: int) -> None:
    text = " ".join(" ".join(row.text for row in alert_rows(alarmed(), alert_layout(width))).split())

    for number in ("for 11m", "4.1s", "94 °C", "last data 42s ago", "19 TB", "3h10m", "(Xid 79)"):
        assert all(word in text for word in number.split()), number
    assert "…" not in text.partition("MUTED")[0]


def test_the_cursor_goes_from_alert_to_alert_over_their_lines() -> None:
    rows = alert_rows(alarmed(), alert_layout(50))
    ids = [row.key for row in rows if not row.key.startswith((HEADING, SILENCE))]

    assert ids[:8] == [one.id for one in open_alerts(alarmed(), "worst")]
    assert rows[1].key.startswith(HEADING)


@pytest.mark.parametrize(("size", "strip"), [((80, 24), True), ((120, 40), False), ((200, 60), False)])
async def test_the_text_of_an_alert_is_on_the_screen_once(size: tuple[int, int], strip: bool) -> None:
    async with showing(alarmed(), size) as (app, pilot, _):
        text = await settled(pilot)
        assert app.main.strip.display is strip
        assert text.count("llm-7b-a takes no step") == 1


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"evaluated_at": None}, "The rules have not been evaluated yet."),
        ({"runs": "diverged"}, "No alert is firing, although"),
        ({"sources": None}, "No alert is firing. No answer yet from 1 source."),
        ({}, "No alert is firing."),
    ],
)
async def test_that_all_is_well_is_only_said_when_it_is_known(facts: dict[str, Any], said: str) -> None:
    shown = with_alerts(alert(phase="resolved", resolved_at=NOW - 9.0))
    for state in (shown, with_alerts()):
        changed = msgspec.structs.replace(state, **({"evaluated_at": NOW} | facts))
        if "runs" in facts:
            runs = {name: msgspec.structs.replace(run, verdict="diverged") for name, run in state.runs.items()}
            changed = msgspec.structs.replace(changed, runs=runs)
        if "sources" in facts:
            late = msgspec.structs.replace(state.sources["node:gpu-001"], answered_at=None)
            changed = msgspec.structs.replace(changed, sources=state.sources | {"node:gpu-001": late})
        async with showing(changed, (200, 60)) as (app, _pilot, _):
            texts = [row.text.strip() for row in app.main.alerts.lines.rows]
            assert any(text.startswith(said) for text in texts), texts
            assert said == "No alert is firing." or "No alert is firing." not in texts
