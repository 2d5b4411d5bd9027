"""What a message says, and that nothing in it is another's markup or secret."""

from __future__ import annotations

import msgspec
import pytest

from tests.trainmon.alerting.notify.samples import NOW, TOKEN, alert, beat, message, notice, over
from trainmon.alerting import heartbeat
from trainmon.alerting.notify.message import BODY_BYTES, fitted, is_good_news, render
from trainmon.model import Delivery, Notice

BODY = """\
no process of video-2b is left on 4 nodes; its last step was 12,345, 31m ago
since 2027-01-15 07:29:00 UTC (31m ago)
2027-01-15 08:00:00 UTC: fired
  | step 12344 loss 2.31
  | step 12345 loss 2.30
sent before: phone sent 2027-01-15 07:43:20 UTC; mail dead 2027-01-15 07:43:20 UTC (550 no such user)
→ trainmon-tui requeue video-2b starts it again
acknowledge: trainmon-tui ack k3v9x2ab (a in pane 5)
mute: trainmon-tui mute run:video-2b --for 1h (m in pane 5)"""


def test_a_message_says_what_since_when_by_what_what_was_tried_and_what_to_do() -> None:
    tried = (
        Delivery(channel="phone", kind="fire", state="sent", at=NOW - 1_000, answer="id 7"),
        Delivery(channel="mail", kind="fire", state="dead", at=NOW - 1_000, answer="550 no such user"),
    )
    rendered = message(notice(alert(delivery=tried)))
    assert rendered.title == "CODE RED video-2b: run-dead"
    assert rendered.body == BODY
    assert (rendered.key, rendered.severity, rendered.acknowledge) == (
        "k3v9x2ab-fire",
        "critical",
        (("k3v9x2ab", TOKEN),),
    )


def test_what_was_stopped_by_a_person_is_an_information_and_no_code_red() -> None:
    stopped = alert(rule="run-stopped", severity="info", summary="ann stopped video-2b by its kill switch", event=True)
    rendered = message(notice(stopped, severity="info", kind="event", reason="happened"))
    assert rendered.title == "INFO video-2b: run-stopped"
    assert "CODE RED" not in rendered.title + rendered.body
    assert rendered.acknowledge == ()


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("repeat", "STILL CODE RED video-2b: run-dead"),
        ("worse", "NOW CODE RED video-2b: run-dead"),
        ("escalate", "UNACKNOWLEDGED CODE RED video-2b: run-dead"),
        ("flapping", "FLAPPING CODE RED video-2b: run-dead"),
        ("direct", "CODE RED video-2b: run-dead"),
    ],
)
def test_the_title_says_why_it_is_sent_again(kind: str, title: str) -> None:
    assert message(notice(kind=kind, reason="not acknowledged for 4h")).title == title


def test_that_it_flaps_is_not_called_resolved_though_it_is_over_now() -> None:
    flaps = msgspec.structs.replace(over(alert()), kind="flapping")
    assert message(flaps).title == "FLAPPING video-2b: run-dead"
    assert message(flaps, over(alert())).title == "RESOLVED video-2b: run-dead"


def test_eight_gpus_of_a_node_are_one_message_that_one_button_acknowledges() -> None:
    gpus = [
        alert(id=f"gpu{i}", rule="gpu-hot", subject=f"gpu:gpu-001/{i}", severity="warning", token=f"{TOKEN}{i}")
        for i in range(8)
    ]
    rendered = message(notice(*gpus, severity="warning"))
    assert rendered.title == "WARNING video-2b: gpu-hot gpu-001/0 and 7 more"
    assert rendered.acknowledge == tuple((f"gpu{i}", f"{TOKEN}{i}") for i in range(8))
    first, second, *_ = rendered.body.split("\n\n")
    assert first.endswith("mute: trainmon-tui mute gpu:gpu-001/0 --for 1h (m in pane 5)")
    assert second.split("\n") == [
        "no process of video-2b is left on 4 nodes; its last step was 12,345, 31m ago",
        "  | step 12344 loss 2.31",
        "  | step 12345 loss 2.30",
        "acknowledge: trainmon-tui ack gpu1",
    ]
    assert rendered.body.count("acknowledge: trainmon-tui ack gpu") == 8


def test_what_is_over_says_after_how_long_and_asks_for_nothing() -> None:
    rendered = message(over(alert(), NOW))
    assert rendered.title == "RESOLVED video-2b: run-dead"
    assert "began 2027-01-15 07:29:00 UTC; resolved 2027-01-15 08:00:00 UTC, after 31m" in rendered.body
    assert "trainmon-tui ack" not in rendered.body
    assert (rendered.severity, rendered.acknowledge) == ("info", ())
    assert is_good_news(rendered)


def test_what_is_no_longer_watched_is_not_called_over() -> None:
    gone = alert(phase="resolved", resolved_at=NOW, ended="no longer watched")
    rendered = message(notice(gone, kind="resolve", reason="no longer watched"))
    assert rendered.title == "NO LONGER WATCHED video-2b: run-dead"
    assert "; no longer watched since 2027-01-15 08:00:00 UTC" in rendered.body
    assert "resolved" not in rendered.body
    assert not is_good_news(rendered)


def test_after_an_outage_one_message_lists_all_with_their_own_times() -> None:
    fired = notice(at=NOW - 20_000)
    ended = over(alert(), NOW - 18_000)
    other = notice(alert(id="other", rule="disk-full", subject="disk:login:/fsx", run=None), key="b", at=NOW - 19_000)
    rendered = message(ended, other, fired, now=NOW)
    assert rendered.title == "CRITICAL disk-full login:/fsx and 1 more [5h33m late]"
    first, second = rendered.body.split("\n\n")
    assert "2027-01-15 02:43:20 UTC, sent 5h16m late: fired" in first
    assert "2027-01-15 02:26:40 UTC, sent 5h33m late: fired" in second
    assert "2027-01-15 03:00:00 UTC, sent 5h late: over for 1m" in second
    assert rendered.key.startswith("several-")


def test_the_same_notices_make_the_same_key() -> None:
    one, two = notice(), over(alert(), NOW + 1)
    assert message(one, two).key == message(two, one).key != message(one).key


def test_of_heartbeats_that_were_late_the_newest_is_sent() -> None:
    rendered = message(beat(at=NOW - 9_000, key="a", title="old", lines=("an old line",)), beat())
    assert rendered.title == "video-2b alive: step 12,345 [2h30m late]"
    assert "an old line" not in rendered.body


def test_a_sign_of_life_is_its_lines() -> None:
    rendered = message(beat())
    assert (rendered.title, rendered.body) == (
        "video-2b alive: step 12,345",
        "video-2b: alive\n  step 12,345, loss 2.314",
    )


def test_ten_thousand_alerts_are_a_message_of_a_size_that_can_be_sent() -> None:
    many = [alert(id=f"a{i}", subject=f"node:n{i}", summary=f"n{i} is gone", token=TOKEN) for i in range(10_000)]
    rendered = message(notice(*many))
    assert len(rendered.body.encode()) <= BODY_BYTES
    assert rendered.title == "CODE RED video-2b: run-dead n0 and 9,999 more"
    assert rendered.body.endswith("… and 9,560 more alerts: trainmon-tui status")
    assert len(rendered.acknowledge) == 16


def test_alerts_that_a_notice_only_counts_are_counted() -> None:
    rendered = message(
        notice(alert(), kind="digest", more=211, lines=("212 alerts at once", "212 × run-dead (critical)"))
    )
    assert rendered.title == "CODE RED video-2b: run-dead and 211 more"
    assert rendered.body.startswith("212 alerts at once\n212 × run-dead (critical)\n\nno process of video-2b")
    assert rendered.body.endswith("\n\nand 211 more alerts: trainmon-tui status")


def test_what_is_about_to_be_sent_does_not_count_as_sent_before() -> None:
    waiting = Delivery(channel="phone", kind="fire", state="waiting", at=NOW)
    sent = msgspec.structs.replace(waiting, state="sent")
    assert "sent before: phone" in message(notice(alert(delivery=(sent,)))).body
    assert "sent before" not in message(notice(alert(delivery=(waiting,)))).body


def test_secrets_and_control_characters_of_logs_do_not_leave() -> None:
    nasty = alert(
        run="a\x1b[31mb\nc",
        summary="died\x00 with --api-key hunter2hunter2\nCODE GREEN",
        evidence=("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", f"\x1b]0;\x07wandb login {'0123456789abcdef' * 2}01234567"),
        advice="https://u:hunter2@host/x",
        acknowledged_by="ann\x1b[2J",
    )  # fmt: skip
    rendered = message(notice(nasty, reason="x\x07y"))
    output = rendered.title + rendered.body
    assert not [word for word in ("hunter2", "hf_abc", "0123456789abcdef", "\x1b", "\x00", "\x07") if word in output]
    assert "died with --api-key *** CODE GREEN" in rendered.body


def test_evidence_of_a_megabyte_is_cut() -> None:
    assert len(message(notice(alert(evidence=("x" * 1_000_000,) * 20))).body) < 6_000


def test_the_regular_test_asks_to_be_acknowledged() -> None:
    request = heartbeat.new_test({}, NOW, lambda: TOKEN)
    rendered = message(notice(*request.values(), severity="info"))
    assert rendered.title == "INFO test of trainmon-tui: please acknowledge it"
    assert [token for _, token in rendered.acknowledge] == [TOKEN]
    assert "mute" not in rendered.body


def test_missing_data_is_reported_with_its_reason() -> None:
    body = message(notice(alert(data="stale", data_why="node:gpu-001 is late"))).body
    assert "it cannot be observed now: node:gpu-001 is late" in body


def test_every_kind_of_notice_has_a_text() -> None:
    kinds = next(field.type for field in msgspec.structs.fields(Notice) if field.name == "kind")
    for kind in kinds.__args__:
        for about in (notice(kind=kind), notice(kind=kind, alerts=(), title="a title", lines=("a line",))):
            rendered = render((about,), NOW)
            assert rendered.title
            assert rendered.body


def test_a_log_of_any_length_leaves_room_for_what_is_to_be_done() -> None:
    long = tuple(f"Traceback {number} " + "x" * 480 for number in range(10))
    rendered = message(notice(alert(evidence=long)))
    text, is_whole = fitted(rendered, 4_096, "… more in the file")
    assert not is_whole
    assert len(text.encode()) <= 4_096
    assert "Traceback 9" in text, "the newest line is kept"
    assert text.split("\n")[-4:] == [*BODY.split("\n")[-3:], "… more in the file"]


def test_a_pager_gets_the_worst_alert_and_what_to_do_before_all_else() -> None:
    many = [alert(id=f"d{number}", subject=f"run:r{number}", run=f"r{number}") for number in range(30)]
    text, _ = fitted(message(notice(*many)), 1_000, "…")
    assert len(text.encode()) <= 1_000
    assert "→ trainmon-tui requeue video-2b" in text
    assert "acknowledge: trainmon-tui ack d0 " in text


def test_what_is_wrong_comes_before_a_sign_of_life_that_was_late() -> None:
    rendered = message(beat(at=NOW - 7_200), notice(at=NOW - 7_000))
    assert rendered.title == "CODE RED video-2b: run-dead and 1 more [2h late]"
    assert rendered.body.startswith("no process of video-2b is left")
    assert rendered.body.endswith(
        "video-2b alive: step 12,345\nwritten 2027-01-15 06:00:00 UTC, sent 2h late\nvideo-2b: alive\n"
        "  step 12,345, loss 2.314"
    )


def test_a_long_name_hides_neither_how_many_nor_how_late() -> None:
    long = alert(run="r" * 200, subject="run:" + "r" * 200)
    title = message(notice(long, more=7, at=NOW - 7_200)).title
    assert title.startswith("CODE RED rrrr")
    assert title.endswith("… and 7 more [2h late]")
    assert len(title) <= 120


def test_an_event_has_a_time_and_who_acknowledged_is_written_once() -> None:
    restarted = alert(rule="restarted", severity="info", event=True, since=NOW - 5)
    rendered = message(notice(restarted, kind="event", reason="happened", severity="info"))
    assert "at 2027-01-15 07:59:55 UTC (5s ago)" in rendered.body
    taken = alert(acknowledged_by="phone", acknowledged_at=NOW)
    body = message(notice(taken, kind="acknowledged", reason="acknowledged by phone", severity="info")).body
    assert body.count("acknowledged by phone") == 1
    assert "acknowledged by phone" in message(notice(taken, kind="escalate", reason="x")).body


def test_the_page_of_the_run_goes_with_it() -> None:
    assert message(notice(link="https://wandb.example/a/b")).link == "https://wandb.example/a/b"
    assert message().link is None


def test_what_was_resolved_before_it_was_sent_wakes_nobody() -> None:
    rendered = message(notice(at=NOW - 7_200), over(alert(), NOW - 3_600))
    assert (rendered.title, rendered.severity) == ("RESOLVED video-2b: run-dead [2h late]", "warning")
    assert message(notice(at=NOW - 7_200), over(alert(id="b"), NOW - 3_600)).severity == "critical"


def test_a_title_of_its_own_says_how_bad_it_is() -> None:
    stuck = beat(kind="direct", severity="warning", title="Ledger stuck: alerts are sent directly")
    assert message(stuck).title == "WARNING Ledger stuck: alerts are sent directly"
