"""Who is told of what, when, and when not: routes, escalation, repeats, acknowledgement, mutes, windows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.stories.story import BEGIN, Story, mail, phone, rule
from trainmon.alerting.pipeline.routing import Routing
from trainmon.model import Delivered, Delivery, Route, Silence

HOUR = 3_600.0
RUN, DISK, HOT = "run:llm", "disk:login1:/fsx", "gpu:gpu-001/3"


def test_a_warning_goes_to_the_mail_and_never_wakes_anybody() -> None:
    with Story(rule("disk-full"), phone(), mail()) as story:
        story.at(10).wrong("disk-full", DISK, "warning").at(11).expect("fire", DISK, on=["mail"])
        story.at(100).well().at(200).expect("resolve", DISK, on=["mail"])


def test_code_red_goes_everywhere() -> None:
    with Story(rule("run-dead"), phone(), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone", "mail"])


def test_an_information_that_no_channel_is_reported_of_says_why() -> None:
    with Story(rule("restarted"), phone(), mail()) as story:
        story.at(10).wrong("restarted", RUN, "info", event=True).at(20)
        assert story.why_not_told(story.alert("restarted")) == "no channel receives it"


def test_a_channel_of_one_run_is_not_reported_of_another() -> None:
    with Story(rule("run-dead"), rule("disk-full"), phone(runs=("llm",)), mail(runs=("video",))) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone"])
        story.at(20).wrong("disk-full", DISK).at(21).expect("fire", DISK, on=["phone", "mail"])


def test_a_channel_of_some_rules_is_reported_of_these() -> None:
    with Story(rule("run-dead"), rule("disk-full"), phone(), mail(rules=("disk-full",))) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone"])
        story.at(20).wrong("disk-full", DISK).at(21).expect("fire", DISK, on=["phone", "mail"])


def test_a_fallback_is_reported_nothing_by_itself() -> None:
    with Story(rule("run-dead"), phone(), mail(fallback=True)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone"])


def stood_in(story: Story, *, kind: str = "fire") -> Story:
    """The fallback has delivered what the phone could not."""
    delivery = Delivery(channel="mail", kind=kind, state="sent", at=story.clock.wall)
    return story.hear(Delivered((story.alert("run-dead").id,), delivery)).at(story.elapsed + 1)


def test_a_fallback_that_has_stood_in_is_reported_that_it_is_over_and_not_that_it_goes_on() -> None:
    with Story(rule("run-dead"), phone(), mail(fallback=True)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone"])
        stood_in(story).at(4 * HOUR + 40, tick=20).expect("repeat", RUN, on=["phone"])
        story.well().at(5 * HOUR, tick=20).expect("resolve", RUN, on=["phone", "mail"])


def test_a_fallback_that_has_stood_in_is_reported_that_somebody_has_taken_it() -> None:
    with Story(rule("run-dead"), phone(), mail(fallback=True)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone"])
        alert = stood_in(story).alert("run-dead")
        story.order("ack", alert.id, token=alert.token, via="phone", by="mail").at(20)
        story.expect("acknowledged", RUN, on=["phone", "mail"])
        stood_in(story, kind="acknowledged").well().at(100).expect("resolve", RUN, on=["phone", "mail"])


def test_a_restart_does_not_forget_that_a_fallback_has_stood_in() -> None:
    with Story(rule("run-dead"), phone(), mail(fallback=True)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone"])
        delivery = Delivery(channel="mail", kind="fire", state="sent", at=story.clock.wall)
        known = story.kept.alerts[story.alert("run-dead").id]
        story.kept.alerts[known.id] = replace(known, delivery=(*known.delivery, delivery))
        story.restart().at(20).well().at(200).expect("resolve", RUN, on=["phone", "mail"])


def test_a_channel_with_resolved_off_gets_no_resolved_notification() -> None:
    with Story(rule("run-dead"), phone(), mail(resolved=False)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone", "mail"])
        story.well().at(100).expect("resolve", RUN, on=["phone"])


def test_nobody_answers_the_phone_so_the_next_in_line_is_called_and_then_the_next() -> None:
    boss = Route(channel="boss", severity="critical", after=1_800)
    with Story(rule("run-dead"), mail(), phone(after=600), boss) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["mail"])
        story.at(610).expect_nothing_else().at(612)
        story.expect("escalate", RUN, on=["phone"], reason="not acknowledged for 10m")
        story.at(1_812).expect("escalate", RUN, on=["boss"], reason="30m")
        story.well().at(2_000).expect("resolve", RUN, on=["mail", "phone", "boss"])


def test_one_that_is_acknowledged_is_not_escalated_and_not_repeated() -> None:
    with Story(rule("run-dead"), mail(), phone(after=600)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["mail"])
        story.at(300).order("ack", story.alert("run-dead").id).at(12 * HOUR, tick=20)
        assert story.alert("run-dead").acknowledged_by == "ann"
        story.expect_nothing_else().well().at(12 * HOUR + 100).expect("resolve", RUN, on=["mail"])


def test_a_channel_that_is_only_for_what_nobody_took_is_reported_later_and_alone() -> None:
    with Story(rule("run-dead"), phone(after=600)) as story:
        story.at(10).wrong("run-dead", RUN).at(609).expect_nothing_else().at(612).expect("escalate", RUN, on=["phone"])


def test_code_red_that_nobody_takes_is_reported_again_every_four_hours_and_a_warning_is_not() -> None:
    with Story(rule("run-dead"), rule("disk-full"), mail()) as story:
        story.at(10).wrong("run-dead", RUN).wrong("disk-full", DISK, "warning").at(11)
        story.expect("fire", RUN)
        story.expect("fire", DISK)
        story.at(4 * HOUR + 40, tick=20)
        story.expect("repeat", RUN, reason="still firing after 4h, not acknowledged")
        story.at(8 * HOUR + 80, tick=20).expect("repeat", RUN, reason="8h")


def test_an_acknowledgement_ends_with_the_episode() -> None:
    with Story(rule("run-dead"), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.order("ack", story.alert("run-dead").id).at(20).well().at(100).expect("resolve", RUN)
        story.at(3_000, tick=10).wrong("run-dead", RUN).at(3_010).expect("fire", RUN)
        assert story.alert("run-dead").acknowledged_by is None


def test_who_else_was_woken_is_notified_of_the_acknowledgement() -> None:
    with Story(rule("run-dead"), phone(), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.order("ack", story.alert("run-dead").id).at(12)
        story.expect("acknowledged", RUN, on=["phone", "mail"], reason="acknowledged by ann")


def test_the_button_on_the_phone_acknowledges_with_the_token_of_its_own_episode_and_with_no_other() -> None:
    with Story(rule("run-dead"), rule("disk-full")) as story:
        story.at(10).wrong("run-dead", RUN).wrong("disk-full", DISK).at(12)
        story.expect("fire", RUN)
        story.expect("fire", DISK)
        dead, full = story.alert("run-dead"), story.alert("disk-full")
        for token in (None, "", "guess", full.token):
            story.order("ack", dead.id, token=token, via="phone", by="phone").at(story.elapsed + 1)
        assert story.alert("run-dead").acknowledged_by is None
        story.order("ack", dead.id, token=dead.token, via="phone", by="phone").at(story.elapsed + 1)
        assert story.alert("run-dead").acknowledged_by == "phone"
        story.expect("acknowledged", RUN)


def test_a_phone_may_acknowledge_and_nothing_else() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        token = story.alert("run-dead").token
        silence = Silence(id="x", until=BEGIN + 9_000, by="phone", made_at=BEGIN)
        story.order("mute", token=token, via="phone", silence=silence).order("test", token=token, via="phone").at(20)
        assert not story.state.silences


def test_a_request_that_comes_again_after_a_restart_is_carried_out_once() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        name = story.alert("run-dead").id
        story.order("ack", name, number=1).at(12).order("unack", name, number=2).at(13)
        story.restart().order("ack", name, number=1).at(20)
        assert story.alert("run-dead").acknowledged_by is None


def test_what_is_muted_is_evaluated_and_shown_and_sent_when_the_mute_ends_and_it_still_fires() -> None:
    with Story(rule("disk-full")) as story:
        story.at(10).mute(HOUR, subject=DISK).at(20).wrong("disk-full", DISK).at(HOUR, tick=10)
        alert = story.alert("disk-full")
        assert (alert.phase, alert.muted_why) == ("firing", "known")
        assert story.why_not_told(alert) == "muted: known"
        story.expect_nothing_else().at(HOUR + 20).expect("fire", DISK)


def test_what_began_and_ended_under_a_mute_is_never_sent() -> None:
    with Story(rule("disk-full")) as story:
        story.at(10).mute(HOUR, subject=DISK).at(20).wrong("disk-full", DISK).at(500).well().at(2 * HOUR, tick=10)
        assert story.alert("disk-full").ended == "over"


def test_what_was_reported_before_the_mute_and_ended_under_it_is_over_when_the_mute_is() -> None:
    with Story(rule("disk-full")) as story:
        story.at(10).wrong("disk-full", DISK).at(11).expect("fire", DISK)
        story.at(20).mute(HOUR, rule="disk-full").at(500).well().at(HOUR, tick=10).expect_nothing_else()
        story.at(HOUR + 40).expect("resolve", DISK)


def test_a_mute_that_is_taken_back_mutes_no_more() -> None:
    with Story(rule("disk-full")) as story:
        story.at(10).mute(HOUR, id="m7", subject=DISK).at(20).wrong("disk-full", DISK).at(100)
        story.order("unmute", "m7").at(102).expect("fire", DISK)
        assert not story.state.silences


@pytest.mark.parametrize(
    "parts", [{"run": "llm"}, {"node": "gpu-001"}, {"rule": "gpu-*"}, {"subject": "gpu:gpu-001/*"}]
)
def test_a_mute_by_rule_subject_run_or_node_mutes_these_and_no_others(parts: dict[str, str]) -> None:
    with Story(rule("gpu-hot"), rule("disk-full")) as story:
        story.at(10).mute(HOUR, **parts).at(20).wrong("gpu-hot", HOT, run="llm").wrong("disk-full", DISK).at(30)
        story.expect("fire", DISK)


def test_maintenance_silences_the_cluster_for_its_time_and_what_is_still_wrong_is_reported_then() -> None:
    window = Silence(
        id="w", until=BEGIN + 2 * HOUR, by="the config", why="new switch", made_at=BEGIN + HOUR, window=True
    )
    with Story(rule("node-unreachable"), rule("disk-full"), windows=(window,)) as story:
        story.at(HOUR + 20, tick=20).wrong("node-unreachable", "node:gpu-001", sources=())
        story.wrong("disk-full", DISK).at(1.5 * HOUR, tick=20)
        assert set(story.state.silences) == {"w"}
        story.well(DISK).at(2 * HOUR - 1, tick=20).expect_nothing_else()
        story.at(2 * HOUR + 20).expect("fire", "node:gpu-001")
        assert not story.state.silences


def test_what_was_reported_before_the_mute_and_still_fires_after_it_is_reported_again() -> None:
    with Story(rule("disk-full"), rule("run-dead"), mail(), phone(after=600)) as story:
        story.at(10).wrong("disk-full", DISK).wrong("run-dead", RUN).at(11)
        story.expect("fire", DISK)
        story.expect("fire", RUN)
        story.order("ack", story.alert("run-dead").id).mute(HOUR).at(HOUR + 60, tick=10)
        story.expect("fire", DISK, on=["mail"], reason="no longer muted or flapping, and still firing")
        story.at(HOUR + 700, tick=10).expect("escalate", DISK, on=["phone"])


def test_channels_that_left_the_config_are_reported_nothing_and_new_ones_with_the_repeat() -> None:
    with Story(rule("run-dead"), phone()) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["phone"])
        story.alerting.reconfigure(story.rules, Routing(routes=(mail(),), group_wait=0.0))
        story.at(4 * HOUR + 60, tick=20).expect("repeat", RUN, on=["mail"])
        story.well().at(5 * HOUR, tick=20).expect("resolve", RUN, on=["mail"])


def test_a_mute_that_ends_does_not_escalate_at_once() -> None:
    with Story(rule("run-dead"), mail(), phone(after=600)) as story:
        story.at(10).mute(HOUR, run="llm").at(20).wrong("run-dead", RUN).at(HOUR + 20, tick=10)
        story.expect("fire", RUN, on=["mail"])
        story.at(HOUR + 500, tick=10).expect_nothing_else().at(HOUR + 640).expect("escalate", RUN, on=["phone"])


def test_what_gets_critical_after_its_only_channel_left_the_config_still_escalates() -> None:
    with Story(rule("disk-full"), mail()) as story:
        story.at(10).wrong("disk-full", DISK, "warning").at(11).expect("fire", DISK, on=["mail"])
        story.alerting.reconfigure(story.rules, Routing(routes=(phone(after=600),), group_wait=0.0))
        story.at(1_000).wrong("disk-full", DISK, "critical").at(1_700).expect("escalate", DISK, on=["phone"])


def test_what_recovers_as_its_mute_ends_is_not_reported_to_have_fired() -> None:
    with Story(rule("disk-full", keep_firing_for=300)) as story:
        story.at(10).mute(HOUR, subject=DISK).at(20).wrong("disk-full", DISK).at(HOUR - 100, tick=10)
        story.well().at(2 * HOUR, tick=10)
        assert story.alert("disk-full").ended == "over"


def test_what_recovers_as_its_mute_ends_and_is_found_again_is_reported() -> None:
    with Story(rule("disk-full", keep_firing_for=300)) as story:
        story.at(10).mute(HOUR, subject=DISK).at(20).wrong("disk-full", DISK).at(HOUR - 100, tick=10)
        story.well().at(HOUR + 60, tick=10).expect_nothing_else()
        story.wrong("disk-full", DISK).at(HOUR + 80).expect("fire", DISK)


def test_what_was_reported_and_recovers_as_its_mute_ends_is_over_where_it_was_reported() -> None:
    with Story(rule("disk-full", keep_firing_for=300)) as story:
        story.at(10).wrong("disk-full", DISK).at(11).expect("fire", DISK)
        story.mute(HOUR, subject=DISK).at(HOUR - 100, tick=10).well().at(2 * HOUR, tick=10).expect("resolve", DISK)


def test_an_acknowledged_alert_that_gets_worse_is_reported_and_escalates_from_then_on() -> None:
    with Story(rule("disk-full"), mail(), phone(after=600)) as story:
        story.at(10).wrong("disk-full", DISK, "warning").at(11).expect("fire", DISK, on=["mail"])
        story.order("ack", story.alert("disk-full").id).at(HOUR, tick=10)
        story.wrong("disk-full", DISK, "critical").at(HOUR + 10).expect("worse", DISK, on=["mail"])
        assert story.alert("disk-full").acknowledged_by is None, "a warning was acknowledged, and not this"
        story.at(HOUR + 590).expect_nothing_else().at(HOUR + 620).expect("escalate", DISK, on=["phone"])


def test_what_was_acknowledged_as_critical_is_still_so_when_it_gets_better_and_critical_again() -> None:
    with Story(rule("disk-full"), mail(), phone(after=600)) as story:
        story.at(10).wrong("disk-full", DISK).at(11).expect("fire", DISK, on=["mail"])
        story.order("ack", story.alert("disk-full").id).at(100).wrong("disk-full", DISK, "warning").at(HOUR, tick=10)
        story.wrong("disk-full", DISK).at(2 * HOUR, tick=10).expect("worse", DISK, on=["mail"])
        assert story.alert("disk-full").acknowledged_by == "ann"


def test_a_route_with_after_counts_again_for_what_was_over_and_fires_again() -> None:
    with Story(rule("run-dead"), mail(), phone(after=600)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN, on=["mail"])
        story.at(500).well().at(600).expect("resolve", RUN, on=["mail"])
        story.at(1_900, tick=10).wrong("run-dead", RUN).at(1_910).expect("fire", RUN, on=["mail"])
        story.at(2_490, tick=10).expect_nothing_else().at(2_520).expect("escalate", RUN, on=["phone"])


def test_what_was_acknowledged_under_its_mute_is_not_reported_when_the_mute_ends() -> None:
    with Story(rule("disk-full")) as story:
        story.at(10).mute(HOUR, subject=DISK).at(20).wrong("disk-full", DISK).at(30)
        story.order("ack", story.alert("disk-full").id).at(2 * HOUR, tick=10)
