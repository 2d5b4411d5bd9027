"""Programs that are killed, machines that sleep, clocks that are set, others who tell people: nothing is lost by them,
and nothing is told because of them."""

from __future__ import annotations

import pytest

from tests.trainmon.alerting.stories.story import BEGIN, NODE, Story, mail, rule
from trainmon.alerting.pipeline.routing import HeartbeatSpec
from trainmon.alerting.rules import ClockJumped
from trainmon.model import (
    Alert,
    AlertsReported,
    AlertsRestored,
    Delivery,
    Leadership,
    LeadershipChanged,
    SourceChanged,
    SourceRemoved,
)

HOUR = 3_600.0
HOT, RUN = "gpu:gpu-001/3", "run:llm"


def test_a_killed_daemon_that_comes_back_goes_on_with_the_same_episode_and_sends_nothing_twice() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        name = story.alert("run-dead").id
        story.at(100).restart(down_for=120).at(600)
        assert story.alert("run-dead").id == name
        story.expect_nothing_else().well().at(700).expect("resolve", RUN)


def test_what_was_found_and_not_written_down_is_reported_after_the_crash() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10)
        story.kept.is_stuck = True
        story.wrong("run-dead", RUN, since=9).at(11)
        name = story.alert("run-dead").id
        story.restart().at(15).expect("fire", RUN)
        assert story.alert("run-dead").id == name, "the same happening has the same id, and its notice the same key"


def test_something_that_happened_before_the_restart_and_is_still_news_is_not_reported_again() -> None:
    with Story(rule("finished")) as story:
        story.at(10).wrong("finished", RUN, "info", event=True, since=5).at(11).expect("event", RUN)
        story.well().at(20).restart(down_for=30).at(60).wrong("finished", RUN, "info", event=True, since=5).at(600)
        assert len(story.state.alerts) == 1


def test_what_ended_while_nobody_looked_is_over_where_it_was_reported() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.well().restart(down_for=3 * 86_400).at(3 * 86_400 + 90).expect("resolve", RUN)


def test_an_alert_of_before_is_neither_resolved_nor_sent_while_its_node_has_not_reported_since() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.fall_silent("node:gpu-001").well().restart(down_for=600).at(4_000, tick=10)
        alert = story.alert("run-dead")
        assert (alert.phase, alert.data) == ("firing", "stale")


def test_an_alert_of_a_run_that_this_program_does_not_watch_ends_a_minute_after_every_source_answers() -> None:
    with Story(rule("run-dead", keep_firing_for=900), sources=("node:gpu-001", "node:gpu-002")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.well().fail("node:gpu-002", "no route to host").restart(down_for=5 * HOUR).at(story.elapsed + 90)
        story.expect_nothing_else()
        story.speak("node:gpu-002").at(story.elapsed + 5).expect("resolve", RUN, reason="left the config")
        assert story.alert("run-dead").ended == "no longer watched"


def test_an_alert_that_another_program_found_elsewhere_or_in_a_queue_does_not_end_so_soon() -> None:
    """With hosts on the command line, or another config, its node is not read here; a queue loses a job that died."""
    for sources, here in (((NODE,), ("node:gpu-002",)), ((NODE, "slurm:prod"), (NODE, "slurm:prod"))):
        with Story(rule("run-dead", keep_firing_for=HOUR), sources=sources) as story:
            story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
            story.well().sources.clear()
            story.speak(*here).restart(down_for=HOUR).at(story.elapsed + 590, tick=10).expect_nothing_else()
            story.at(story.elapsed + 30, tick=10).expect("resolve", RUN, reason="left the config")


def test_nothing_has_left_the_config_while_no_source_answers() -> None:
    """A queue that nobody counts on is no source while its host is not reached."""
    with Story(rule("run-dead", keep_firing_for=HOUR), sources=(NODE, "slurm:prod")) as story:
        story.at(10).wrong("run-dead", RUN, sources=("slurm:prod",)).at(11).expect("fire", RUN)
        story.well().sources.pop("slurm:prod")
        story.fail(NODE, "no route to host").restart(down_for=60).at(1_800, tick=10).expect_nothing_else()
        story.speak(NODE).at(1_805).expect("resolve", RUN, reason="left the config")


def test_a_standby_that_takes_over_does_not_end_at_once_what_it_does_not_watch() -> None:
    with Story(rule("run-dead", keep_firing_for=HOUR)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.well().restart(down_for=120).hear(LeadershipChanged(Leadership(holder="other"))).at(900, tick=10)
        us = Leadership(holder="us", since=story.clock.wall)
        story.hear(LeadershipChanged(us), AlertsRestored(story.kept.stored())).at(950).expect_nothing_else()
        story.at(990).expect("resolve", RUN)


@pytest.mark.parametrize("stood", [1_800, 3_500])
def test_a_hold_goes_on_where_it_stood_after_an_outage(stood: int) -> None:
    with Story(rule("gpu-hot", for_=3_600)) as story:
        story.at(10).wrong("gpu-hot", HOT).at(10 + stood, tick=10).restart(down_for=600)
        fires_at = 10 + 600 + 3_600
        story.at(fires_at - 20, tick=10).expect_nothing_else().at(fires_at + 40, tick=5).expect("fire", HOT)


def test_a_hold_begins_again_after_a_long_outage() -> None:
    with Story(rule("gpu-hot", for_=3_600), rule("gpu-idle", for_=300)) as story:
        story.at(10).wrong("gpu-hot", HOT).at(3_400, tick=10).wrong("gpu-idle", "gpu:gpu-001/4").at(3_500, tick=10)
        story.restart(down_for=4_000)
        story.at(7_500 + 290).expect_nothing_else().at(7_500 + 330).expect("fire", "gpu:gpu-001/4")
        story.at(7_500 + 3_590, tick=10).expect_nothing_else().at(7_500 + 3_630, tick=5).expect("fire", HOT)


def test_a_hold_ends_although_the_program_crashes_every_8_s() -> None:
    with Story(rule("gpu-hot", for_=60)) as story:
        story.at(10).wrong("gpu-hot", HOT)
        while story.elapsed < 62:
            story.at(story.elapsed + 8).expect_nothing_else()
            story.kept.at = story.clock.wall - 8  # that it evaluates is written every 10 s
            story.restart(down_for=2)
        story.at(story.elapsed + 8).expect("fire", HOT)


def test_looks_that_cron_makes_every_five_minutes_are_one_watch() -> None:
    with Story(rule("gpu-hot", for_=300), runs_once=True) as story:
        story.at(2).wrong("gpu-hot", HOT).at(4)
        story.restart(down_for=290).at(story.elapsed + 2).expect_nothing_else()
        story.restart(down_for=290).at(story.elapsed + 12).expect("fire", HOT)
        story.well().restart(down_for=290).at(story.elapsed + 2).expect_nothing_else()
        story.restart(down_for=290).at(story.elapsed + 12).expect("resolve", HOT)


def test_what_was_pending_and_is_well_after_the_restart_was_never_sent() -> None:
    with Story(rule("gpu-hot", for_=3_600)) as story:
        story.at(10).wrong("gpu-hot", HOT).at(3_000, tick=10).well().restart(down_for=60).at(8_000, tick=10)
        assert not story.state.alerts


def test_an_acknowledgement_and_a_mute_survive_a_restart() -> None:
    with Story(rule("run-dead"), rule("disk-full"), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.order("ack", story.alert("run-dead").id).mute(8 * HOUR, rule="disk-full").at(20)
        story.restart(down_for=5 * HOUR).wrong("disk-full", "disk:login1:/fsx").at(5 * HOUR + 200)
        assert story.alert("run-dead").acknowledged_by == "ann"
        assert story.alert("disk-full").muted_why == "known"


def test_a_repeat_counts_from_when_it_was_reported_and_not_from_the_restart() -> None:
    with Story(rule("run-dead"), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.at(3 * HOUR, tick=20).restart(down_for=60).at(4 * HOUR + 60, tick=20).expect("repeat", RUN)


# ---- clocks ----------------------------------------------------------------------------------------------------------


def test_a_laptop_that_slept_is_no_hold_that_is_over() -> None:
    with Story(rule("gpu-hot", for_=300), ClockJumped()) as story:
        story.at(10).wrong("gpu-hot", HOT).at(100).sleep(3 * HOUR).at(110)
        notice = story.expect("event", "self")
        assert notice.alerts[0].summary.startswith("this machine slept for 3h, or its clock was set forward by that")
        story.at(390).expect_nothing_else().at(430).expect("fire", HOT)


def test_what_a_sleep_made_old_is_not_believed_for_its_age() -> None:
    """The log's last step is three hours old as the lid opens: of these nobody knows whether the run stood still."""
    with Story(rule("run-stalled")) as story:
        story.at(100).sleep(3 * HOUR).wrong("run-stalled", RUN, fires_at_once=True, by_age=True, since=90)
        story.at(155).expect_nothing_else().at(165).expect("fire", RUN)


def test_a_step_that_comes_after_the_sleep_ends_the_doubt() -> None:
    with Story(rule("run-stalled")) as story:
        story.at(100).sleep(3 * HOUR).wrong("run-stalled", RUN, fires_at_once=True, by_age=True, since=90)
        story.at(150).well().at(2_000, tick=10).expect_nothing_else()


def test_sources_that_did_not_speak_since_the_wake_neither_fire_nor_resolve() -> None:
    with Story(rule("gpu-hot"), rule("gpu-lost"), sources=("node:gpu-001", "node:gpu-002")) as story:
        story.at(10).wrong("gpu-hot", HOT).at(11).expect("fire", HOT)
        story.at(100).fall_silent("node:gpu-001", "node:gpu-002").sleep(60).well()
        story.wrong("gpu-lost", "gpu:gpu-002/1", sources=("node:gpu-002",)).at(130)
        assert story.alert("gpu-hot").data_why == "no new data since this program resumed"
        story.expect_nothing_else().speak("node:gpu-001", "node:gpu-002").at(300)
        story.expect("fire", "gpu:gpu-002/1")
        story.expect("resolve", HOT)


def test_a_clock_that_is_set_back_by_an_hour_stops_nothing() -> None:
    with Story(rule("gpu-hot", for_=300), rule("run-dead"), ClockJumped(), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.at(20).wrong("gpu-hot", HOT).at(120).set_clock(-HOUR).at(150)
        assert story.alert("clock-jumped").summary.startswith("the clock of this machine was set back by 1h")
        assert story.alert("run-dead").since <= story.clock.wall
        story.at(340).expect("fire", HOT)
        story.at(400).well().at(500).expect("resolve", RUN, HOT)


def test_a_source_that_falls_silent_as_the_clock_is_set_back_is_seen_to_be_silent() -> None:
    with Story(rule("gpu-hot")) as story:
        story.at(100).fall_silent("node:gpu-001").set_clock(-HOUR).at(300)
        assert story.state.sources["node:gpu-001"].health == "late"


def test_a_clock_that_is_set_forward_repeats_and_escalates_nothing() -> None:
    with Story(rule("run-dead"), rule("disk-full"), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.at(100).set_clock(6 * HOUR).at(3 * HOUR, tick=20).expect_nothing_else()
        story.at(4 * HOUR + 60, tick=20).expect("repeat", RUN)


def test_a_daemon_that_stood_still_for_ten_minutes_knows_it() -> None:
    with Story(rule("gpu-hot", for_=300), ClockJumped()) as story:
        story.at(10).wrong("gpu-hot", HOT).at(100)
        story.clock.wall += 600
        story.clock.steady += 600
        story.at(705)
        assert story.alert("clock-jumped").summary.startswith("this program was suspended for 10m")
        story.expect_nothing_else() if not story.new() else story.expect("event", "self")
        story.at(900).expect_nothing_else().at(940).expect("fire", HOT)


# ---- who tells people ------------------------------------------------------------------------------------------------


def test_while_another_program_is_leader_we_send_nothing_and_show_its_notifications() -> None:
    with Story(rule("run-dead")) as story:
        result = Alert(
            id="abcdefgh", rule="run-dead", subject=RUN, severity="critical", summary="dead", phase="firing",
            since=BEGIN, found_at=BEGIN, fired_at=BEGIN,
            delivery=(Delivery(channel="phone", kind="fire", state="sent", at=BEGIN),),
        )  # fmt: skip
        story.at(10).hear(LeadershipChanged(Leadership(holder="daemon", where="bastion")))
        story.hear(AlertsReported((result,), (), (), BEGIN + 10)).wrong("run-dead", RUN).at(100)
        assert set(story.state.alerts) == {"abcdefgh"}


@pytest.mark.parametrize(
    ("found", "summary", "shown"),
    [
        (9, "llm failed 3.1s ago", "llm failed at about Jun 15 15:06:45 UTC"),
        (9, "llm failed 19m ago", "llm failed 19m ago"),
        (-91, "llm failed 19m ago", "llm failed at about Jun 15 14:45 UTC"),
    ],
)
def test_ages_that_another_program_wrote_a_while_ago_are_shown_as_times(found: int, summary: str, shown: str) -> None:
    """It writes the text of an alert once a minute while only its ages change."""
    with Story(rule("run-dead")) as story:
        other = Alert(
            id="abcdefgh", rule="run-dead", subject=RUN, severity="critical", summary=summary, phase="firing",
            since=BEGIN, found_at=BEGIN + found, fired_at=BEGIN,
        )  # fmt: skip
        story.at(10).hear(LeadershipChanged(Leadership(holder="other")))
        story.hear(AlertsReported((other,), (), (), BEGIN + 10)).at(11)
        assert story.alert("run-dead").summary == shown


def test_when_the_daemon_is_gone_we_go_on_and_do_not_resend_what_it_sent() -> None:
    with Story(rule("run-dead"), rule("disk-full")) as story:
        result = Alert(
            id="abcdefgh", rule="run-dead", subject=RUN, severity="critical", summary="dead", phase="firing",
            since=BEGIN, found_at=BEGIN, fired_at=BEGIN, sources=("node:gpu-001",),
            delivery=(Delivery(channel="phone", kind="fire", state="sent", at=BEGIN),),
        )  # fmt: skip
        story.at(10).hear(LeadershipChanged(Leadership(holder="daemon", where="bastion")))
        story.hear(AlertsReported((result,), (), (), BEGIN + 10)).at(20)
        story.wrong("run-dead", RUN).hear(LeadershipChanged(Leadership(holder="us"))).at(120)
        assert story.alert("run-dead").id == "abcdefgh"
        story.expect_nothing_else().wrong("disk-full", "disk:login1:/fsx").at(130).expect("fire", "disk:login1:/fsx")


def test_without_a_leader_alerts_are_evaluated_and_shown_and_sent_when_there_is_one() -> None:
    with Story(rule("run-dead")) as story:
        story.hear(LeadershipChanged(Leadership(holder="nobody"))).at(5).wrong("run-dead", RUN).at(60)
        assert story.alert("run-dead").phase == "firing"
        story.expect_nothing_else().hear(LeadershipChanged(Leadership(holder="us"))).at(80).expect("fire", RUN)


def test_a_ledger_that_does_not_say_what_was_reported_is_waited_for_ten_seconds_and_no_longer() -> None:
    with Story(rule("run-dead")) as story:
        story.hear(LeadershipChanged(Leadership(holder="other"))).at(5).wrong("run-dead", RUN)
        story.hear(LeadershipChanged(Leadership(holder="us"))).at(14).expect_nothing_else().at(17).expect("fire", RUN)


def test_what_was_over_days_ago_and_is_so_again_since_the_same_time_is_another_episode_with_another_key() -> None:
    """A node that Slurm drained a month ago, of which nobody wanted to know for two days: the ledger has its key."""
    with Story(rule("node-drained")) as story:
        story.at(10).wrong("node-drained", "node:gpu-001", since=1).at(11).expect("fire", "node:gpu-001")
        story.alerting.reconfigure((), story.routing)
        story.at(60).expect("resolve", "node:gpu-001")
        story.at(2 * 86_400, tick=290)
        assert not story.state.alerts
        story.alerting.reconfigure(story.rules, story.routing)
        story.at(story.elapsed + 10)
        assert len({notice.key for notice in story.kept.notices}) == 3
        story.expect("fire", "node:gpu-001")


def test_a_mute_stands_when_the_clock_is_set_back_before_it_was_made() -> None:
    with Story(rule("disk-full")) as story:
        story.at(10).mute(2 * HOUR, subject="disk:login1:/fsx").at(20).set_clock(-HOUR).at(30)
        story.wrong("disk-full", "disk:login1:/fsx").at(600)
        assert story.alert("disk-full").muted_why == "known"


def test_a_clock_that_was_a_day_ahead_stops_neither_the_sign_of_life_nor_the_test() -> None:
    spec = HeartbeatSpec(every=4 * HOUR, test_every=8 * HOUR, start=False)
    with Story(rule("run-dead"), heartbeat=spec) as story:
        story.at(5 * HOUR, tick=20).expect("heartbeat")
        story.set_clock(86_400).at(5 * HOUR + 60).expect("heartbeat")
        story.expect("test")
        story.set_clock(-86_400).at(9.2 * HOUR, tick=20).expect("heartbeat")
        story.at(13.2 * HOUR, tick=20).expect("heartbeat")
        story.expect("test")


def test_a_source_that_leaves_and_comes_back_at_once_was_watched_all_along() -> None:
    """A config that is read again ends the connections and begins new ones."""
    with Story(rule("gpu-hot")) as story:
        story.at(10).wrong("gpu-hot", HOT).at(11).expect("fire", HOT)
        before = story.sources["node:gpu-001"]
        story.hear(SourceRemoved("node:gpu-001"), SourceChanged(before)).well().at(12)
        assert story.alert("gpu-hot").is_open
        story.wrong("gpu-hot", HOT).at(100)
