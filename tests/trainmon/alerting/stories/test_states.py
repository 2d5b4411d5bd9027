"""An alert's life: pending, firing, recovering, over; and what missing data does to it, which is nothing."""

from __future__ import annotations

from tests.trainmon.alerting.stories.story import Story, mail, phone, rule

HOT = "gpu:gpu-001/3"


def test_what_lasts_is_reported_once_and_so_is_its_end() -> None:
    with Story(rule("gpu-hot", for_=300)) as story:
        story.at(10).wrong("gpu-hot", HOT)
        story.at(309).expect_nothing_else()
        assert story.alert("gpu-hot").phase == "pending"
        story.at(330).expect("fire", HOT, reason="fired")
        story.at(900).well().at(930)
        assert story.alert("gpu-hot").phase == "recovering"
        story.expect_nothing_else()
        story.at(970).expect("resolve", HOT, reason="over")
        story.at(5_000, tick=10)


def test_a_blip_says_nothing() -> None:
    with Story(rule("gpu-hot", for_=300)) as story:
        story.at(10).wrong("gpu-hot", HOT).at(290).well().at(292).wrong("gpu-hot", HOT)
        story.at(500).expect_nothing_else()
        story.at(640).expect("fire", HOT)


def test_a_fault_with_no_hold_is_reported_with_the_look_that_finds_it() -> None:
    with Story(rule("gpu-lost")) as story:
        story.at(10).wrong("gpu-lost", HOT).at(11).expect("fire", HOT)


def test_a_fault_waits_for_its_group_at_most_a_second() -> None:
    with Story(rule("gpu-lost"), group_wait=5.0) as story:
        story.at(10).wrong("gpu-lost", HOT).at(12).expect("fire", HOT)


def test_what_time_has_proven_does_not_wait_for_its_hold() -> None:
    with Story(rule("run-stalled", for_=300)) as story:
        story.at(4_000, tick=10).wrong("run-stalled", "run:llm", fires_at_once=True, since=0).at(4_001)
        notice = story.expect("fire", "run:llm")
        assert story.clock.now() - notice.alerts[0].since > 3_900


def test_a_dip_of_a_recovery_does_not_end_the_episode() -> None:
    with Story(rule("gpu-hot")) as story:
        story.at(10).wrong("gpu-hot", HOT).at(11).expect("fire", HOT)
        first = story.alert("gpu-hot").id
        story.at(100).well().at(150).wrong("gpu-hot", HOT).at(400)
        assert (story.alert("gpu-hot").id, story.alert("gpu-hot").phase) == (first, "firing")


def test_a_node_that_goes_silent_does_not_resolve_the_alerts_of_its_gpus() -> None:
    with Story(rule("gpu-hot")) as story:
        story.at(10).wrong("gpu-hot", HOT).at(11).expect("fire", HOT)
        story.at(100).fall_silent("node:gpu-001").at(220).well().at(4_000, tick=10)
        alert = story.alert("gpu-hot")
        assert (alert.phase, alert.data, alert.data_why) == ("firing", "stale", "node:gpu-001 is late")
        story.speak("node:gpu-001").at(4_200).expect("resolve", HOT)


def test_a_recovery_is_not_believed_when_the_node_falls_silent_in_it() -> None:
    with Story(rule("gpu-hot", keep_firing_for=300)) as story:
        story.at(10).wrong("gpu-hot", HOT).at(11).expect("fire", HOT)
        story.at(100).well().at(200).fall_silent("node:gpu-001").at(4_000, tick=10)
        assert story.alert("gpu-hot").phase == "firing"
        story.speak("node:gpu-001").at(4_250).expect_nothing_else()
        story.at(4_320).expect("resolve", HOT)


def test_the_hold_of_something_pending_waits_while_it_cannot_be_seen() -> None:
    with Story(rule("gpu-hot", for_=300)) as story:
        story.at(10).wrong("gpu-hot", HOT).at(100).fall_silent("node:gpu-001").at(200).well().at(3_000, tick=10)
        assert (story.alert("gpu-hot").phase, story.alert("gpu-hot").data) == ("pending", "stale")
        story.speak("node:gpu-001").wrong("gpu-hot", HOT).at(3_050).expect_nothing_else()
        story.at(3_300).expect("fire", HOT)


def test_a_node_that_left_the_config_is_no_longer_monitored_and_reported_as_such() -> None:
    with Story(rule("gpu-hot")) as story:
        story.at(10).wrong("gpu-hot", HOT).at(11).expect("fire", HOT)
        story.at(100).well().leave_the_config("node:gpu-001").at(110)
        story.expect("resolve", HOT, reason="left the config")
        assert story.alert("gpu-hot").ended == "no longer watched"


def test_something_that_happened_is_reported_once_and_is_never_over() -> None:
    with Story(rule("restarted")) as story:
        story.at(10).wrong("restarted", "run:llm", "info", event=True, since=5).at(11).expect("event", "run:llm")
        story.at(600).well().at(2_000, tick=10).expect_nothing_else()
        story.wrong("restarted", "run:llm", "info", event=True, since=1_990).at(2_010).expect("event", "run:llm")
        story.wrong("restarted", "run:llm", "info", event=True, since=2_009).at(2_020).expect("event", "run:llm")


def test_what_gets_worse_is_reported_at_once_and_what_gets_better_is_not() -> None:
    with Story(rule("disk-full"), phone(), mail()) as story:
        story.at(10).wrong("disk-full", "disk:login1:/fsx", "warning").at(14).expect("fire", on=["mail"])
        story.at(100).wrong("disk-full", "disk:login1:/fsx", "critical").at(101)
        story.expect("worse", "disk:login1:/fsx", on=["phone", "mail"], reason="critical now, it was warning")
        story.at(200).wrong("disk-full", "disk:login1:/fsx", "warning").at(300)
        story.wrong("disk-full", "disk:login1:/fsx", "critical").at(400).expect_nothing_else()
        story.well().at(600).expect("resolve", on=["phone", "mail"])


def test_one_that_was_critical_long_ago_is_reported_when_it_is_so_again() -> None:
    with Story(rule("disk-full")) as story:
        story.at(10).wrong("disk-full", "disk:login1:/fsx").at(11).expect("fire")
        story.at(100).wrong("disk-full", "disk:login1:/fsx", "warning").at(3_000, tick=10)
        story.wrong("disk-full", "disk:login1:/fsx").at(3_002).expect("worse")


def test_a_rule_that_raises_is_reported_and_resolves_nothing() -> None:
    with Story(rule("gpu-hot"), rule("rule-raised", for_=10)) as story:
        story.at(10).wrong("gpu-hot", HOT).at(11).expect("fire", HOT)
        story.broken.append("gpu-hot")
        story.at(600)
        story.expect("fire", "rule:gpu-hot")
        assert (story.alert("gpu-hot").phase, story.alert("gpu-hot").data) == ("firing", "error")
        assert "the story broke it" in (story.alert("gpu-hot").data_why or "")
        story.broken.clear()
        story.at(800).expect("resolve", "rule:gpu-hot")


def test_what_is_suspicious_is_looked_at_again_sooner() -> None:
    with Story(rule("gpu-hot", for_=300)) as story:
        story.at(10).wrong("gpu-hot", HOT).at(31)
        assert story.hurried == ["node:gpu-001"] * 21, "its collector decides how often"


def test_a_rule_that_is_switched_off_says_that_it_looks_no_more() -> None:
    with Story(rule("gpu-hot")) as story:
        story.at(10).wrong("gpu-hot", HOT).at(11).expect("fire", HOT)
        story.alerting.reconfigure((), story.routing)
        story.at(20).expect("resolve", HOT, reason="its rule is disabled")


def test_an_alert_that_is_not_found_now_says_from_when_its_ages_count() -> None:
    with Story(rule("crash-loop", keep_firing_for=60)) as story:
        story.at(10).wrong("crash-loop", "run:llm", summary="llm failed 19m ago").at(11).expect("fire", "run:llm")
        story.at(100).well().at(130)
        alert = story.alert("crash-loop")
        assert (alert.phase, alert.summary) == ("recovering", "llm failed at about Jun 15 14:48 UTC")
        story.wrong("crash-loop", "run:llm", summary="llm failed 21m ago").at(131)
        assert story.alert("crash-loop").summary == "llm failed 21m ago"
        story.at(200).fall_silent("node:gpu-001").well().at(230)
        assert story.alert("crash-loop").summary == "llm failed at about Jun 15 14:48 UTC"
