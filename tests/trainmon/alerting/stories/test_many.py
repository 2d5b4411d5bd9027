"""Much at once: what hides what, what is told together, and what comes and goes."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tests.trainmon.alerting.stories.story import BEGIN, Story, mail, parts, phone, rule
from trainmon.alerting.pipeline.quiet import INHIBITIONS
from trainmon.alerting.rules import RULES, ClusterUnreachable
from trainmon.model import Severity

RUN = "run:llm"


def gpus(node: int, count: int = 8) -> list[str]:
    return [f"gpu:gpu-{node:03}/{index}" for index in range(count)]


def test_eight_hot_gpus_of_a_node_are_one_message_and_one_end() -> None:
    with Story(rule("gpu-hot", for_=300)) as story:
        for gpu in gpus(1):
            story.at(story.elapsed + 1).wrong("gpu-hot", gpu, "warning")
        story.at(400).expect("fire", *gpus(1))
        story.at(500).well().at(600).expect("resolve", *gpus(1))


def test_of_eight_critical_gpus_of_a_node_the_first_waits_at_most_five_seconds() -> None:
    with Story(rule("gpu-hot", for_=300), group_wait=1.0) as story:
        for gpu in gpus(1):
            story.at(story.elapsed + 1).wrong("gpu-hot", gpu)
        story.at(307).expect("fire", *gpus(1)[:6])
        story.at(312).expect("fire", *gpus(1)[6:])
        story.at(500).well().at(600).expect("resolve", *gpus(1))


def test_a_fourth_gpu_of_a_node_that_is_lost_is_reported_within_five_seconds() -> None:
    with Story(rule("gpu-lost")) as story:
        for index, gpu in enumerate(gpus(1)):
            at = 10 + 20 * index
            story.at(at).wrong("gpu-lost", gpu).at(at + 6).expect("fire", gpu)
        story.wrong("xid", f"{gpus(1)[0]} xid 79")


def test_in_a_storm_no_new_critical_subject_waits_longer_than_five_seconds() -> None:
    rules = [rule(f"rule-{index}") for index in range(20)]
    with Story(*rules) as story:
        for second in range(300):
            story.at(10 + second).wrong(f"rule-{second % 20}", f"disk:n{second}:/")
        story.at(320)
        sent = story.new()
        assert max(one.at - (alert.fired_at or 0.0) for one in sent for alert in one.alerts) <= 5.0
        assert len(sent) <= 8 + 300 / 5
        assert sum(len(notice.alerts) + notice.more for notice in sent) == 300
        story.expected |= {notice.key for notice in sent}


def test_in_a_storm_of_new_critical_subjects_what_is_known_or_mild_waits_no_longer_than_without_it() -> None:
    """It waited until the storm was over: ten minutes here, and hours if need be."""
    rules = [rule(f"rule-{index}") for index in range(20)]
    lost = rule("gpu-lost", keep_firing_for=0, may_flap=False)
    with Story(*rules, lost, rule("slow-throughput"), phone("warning")) as story:
        story.at(10).wrong("gpu-lost", gpus(1)[0]).at(12).expect("fire", gpus(1)[0])
        story.well().at(20).expect("resolve", gpus(1)[0])
        for second in range(500):
            story.at(30 + second).wrong(f"rule-{second % 20}", f"disk:n{second}:/")
            if second == 60:
                story.wrong("gpu-lost", gpus(1)[0]).wrong("slow-throughput", RUN, "warning")
        story.at(600)
        sent = story.new()
        waits = {alert.rule: one.at - (alert.fired_at or 0.0) for one in sent for alert in one.alerts}
        assert waits["gpu-lost"] <= 60.0 + 30.0
        assert waits["slow-throughput"] <= 30.0
        assert max(wait for name, wait in waits.items() if name.startswith("rule-")) <= 5.0
        story.expected |= {notice.key for notice in sent}


def test_four_alerts_a_minute_are_no_storm_and_each_is_sent_at_once() -> None:
    with Story(*(rule(f"rule-{index}") for index in range(40))) as story:
        for number in range(40):
            story.at(10 + 15 * number).wrong(f"rule-{number}", f"disk:n{number}:/", "warning")
            story.at(12 + 15 * number).expect("fire", f"disk:n{number}:/")


@pytest.mark.slow
def test_where_a_storm_comes_and_goes_no_alert_waits_for_longer_than_its_group_and_half_a_minute() -> None:
    """Those of a moment without a storm went before those that one had held back: up to 13 minutes here."""
    rng, second, count = Random(1), 10.0, 40
    with Story(*(rule(f"rule-{index}") for index in range(count))) as story:
        while second < 1_500:
            story.at(second).wrong(f"rule-{rng.randrange(count)}", f"disk:n{second}:/", "warning")
            second += rng.expovariate(1 / 5)
        story.at(2_500)
        sent = story.new()
        assert max(one.at - (alert.fired_at or 0.0) for one in sent for alert in one.alerts) <= 300.0 + 30.0
        story.expected |= {notice.key for notice in sent}


def test_a_gpu_that_gets_hot_after_its_neighbours_were_reported_is_reported_soon_after() -> None:
    with Story(rule("gpu-hot")) as story:
        story.at(10).wrong("gpu-hot", gpus(1)[0]).at(11).expect("fire", gpus(1)[0])
        story.wrong("gpu-hot", gpus(1)[1]).at(13).expect_nothing_else().at(16).expect("fire", gpus(1)[1])


def test_many_nodes_of_a_cluster_that_go_one_after_the_other_are_few_messages() -> None:
    with Story(rule("node-unreachable")) as story:
        for number in range(60):
            story.at(10 + number).wrong("node-unreachable", f"node:gpu-{number:03}", sources=())
        story.at(600)
        sent = story.new()
        assert len(sent) <= 8 + 4, "eight at once in a minute, the others together"
        assert len({alert.subject for notice in sent for alert in notice.alerts}) == 60
        for _ in range(len(sent)):
            story.expect("fire")


def test_ten_thousand_findings_at_once_are_a_few_messages_and_every_one_is_counted() -> None:
    with Story(rule("gpu-hot"), rule("xid"), rule("gpu-lost"), phone(), mail()) as story:
        story.at(10)
        for number in range(10_000):
            name = ("gpu-hot", "xid", "gpu-lost")[number % 3]
            story.wrong(name, f"gpu:gpu-{number // 8:04}/{number % 8}", "warning" if name == "gpu-hot" else "critical")
        story.at(15).at(100, tick=20)
        sent = story.new()
        assert len(sent) <= 4
        assert sum(len(notice.alerts) + notice.more for notice in sent) == 10_000
        assert all(notice.alerts[0].severity == notice.severity for notice in sent)
        assert sum(alert.notified_as is not None for alert in story.state.alerts.values()) == 10_000
        story.well().at(400, tick=20)
        assert sum(len(one.alerts) + one.more for one in story.new() if one.kind == "resolve") == 10_000
        assert len(story.new()) <= 8
        for notice in story.new():
            story.expected.add(notice.key)


def test_a_storm_that_goes_on_is_reported_together_every_half_minute_and_nothing_of_it_is_dropped() -> None:
    rules = [rule(f"rule-{index}") for index in range(20)]
    with Story(*rules) as story:
        for second in range(300):
            story.at(10 + second).wrong(f"rule-{second % 20}", f"disk:n{second}:/", "warning")
        story.at(900, tick=10)
        assert len(story.new()) <= 30
        assert sum(len(notice.alerts) + notice.more for notice in story.new()) == 300
        for notice in story.new():
            story.expected.add(notice.key)


def test_a_node_that_goes_down_hides_its_gpus_and_they_are_reported_when_it_is_back_and_they_are_not() -> None:
    with Story(rule("node-unreachable"), rule("gpu-hot")) as story:
        story.at(10).wrong("node-unreachable", "node:gpu-001", sources=()).at(11).expect("fire", "node:gpu-001")
        story.at(20).wrong("gpu-hot", gpus(1)[3]).at(100)
        hidden = story.alert("gpu-hot")
        assert hidden.inhibited_by == story.alert("node-unreachable").id
        assert story.why_not_told(hidden) == f"hidden by {hidden.inhibited_by}"
        story.expect_nothing_else().well("node:gpu-001").at(170).expect("resolve", "node:gpu-001")
        story.expect("fire", gpus(1)[3])


def test_a_gpu_that_is_lost_is_not_also_hot_nor_an_xid() -> None:
    with Story(rule("gpu-lost"), rule("gpu-hot"), rule("gpu-missing"), rule("xid")) as story:
        story.at(10).wrong("gpu-lost", gpus(1)[3]).wrong("gpu-hot", gpus(1)[3]).wrong("gpu-hot", gpus(1)[4])
        story.wrong("gpu-missing", "node:gpu-001").wrong("xid", f"{gpus(1)[3]} xid 79").at(20)
        story.expect("digest", gpus(1)[3], gpus(1)[4])


def test_a_run_that_a_person_stopped_is_an_information_and_nothing_of_it_is_an_alarm() -> None:
    follows = ("run-dead", "gpu-idle", "node-unreachable", "run-stalled", "wandb-heartbeat-lost")
    with Story(rule("run-stopped"), *(rule(name) for name in follows)) as story:
        story.at(10).wrong("run-stopped", RUN, "info", person=True, summary="stopped by ann (kill switch)")
        for name in follows:
            story.wrong(name, "node:gpu-001" if name == "node-unreachable" else RUN, run="llm", sources=())
        story.at(100)
        notice = story.expect("fire", RUN)
        assert (notice.severity, notice.alerts[0].summary) == ("info", "stopped by ann (kill switch)")


def test_a_dead_run_hides_its_pace_and_its_idle_gpus_and_not_those_of_another_run() -> None:
    with Story(rule("run-dead"), rule("gpu-idle"), rule("slow-throughput")) as story:
        story.at(10).wrong("run-dead", RUN).wrong("slow-throughput", RUN).wrong("gpu-idle", gpus(1)[0], run="llm")
        story.wrong("gpu-idle", gpus(2)[0], run="video").at(20)
        story.expect("fire", RUN)
        story.expect("fire", gpus(2)[0])


def test_one_that_was_reported_and_is_hidden_later_is_over_where_it_was_reported() -> None:
    with Story(rule("run-dead"), rule("gpu-idle")) as story:
        story.at(10).wrong("gpu-idle", gpus(1)[0], run="llm").at(11).expect("fire", gpus(1)[0])
        story.at(100).wrong("run-dead", RUN).at(101).expect("fire", RUN)
        story.at(200).well(gpus(1)[0]).at(300).expect("resolve", gpus(1)[0])


def test_what_waits_for_its_hold_waits_a_little_for_the_worse_that_explains_it() -> None:
    nodes = [f"node:gpu-{number:03}" for number in range(8)]
    with Story(rule("node-unreachable", for_=40), ClusterUnreachable(for_=60), sources=nodes) as story:
        story.at(10).fall_silent(*nodes).at(101)
        for name in nodes:
            story.wrong("node-unreachable", name, sources=())
        story.at(200).expect("fire", "cluster:prod")


def test_a_cluster_that_is_cut_off_is_one_message_and_not_one_a_node() -> None:
    nodes = [f"node:gpu-{number:03}" for number in range(32)]
    with Story(rule("node-unreachable", for_=60), ClusterUnreachable(), sources=nodes) as story:
        story.at(10).fall_silent(*nodes).at(101)
        for name in nodes:
            story.wrong("node-unreachable", name, sources=())
        story.at(400)
        notice = story.expect("fire", "cluster:prod")
        assert "32 of 32 nodes of prod are unreachable" in notice.alerts[0].summary
        assert all(alert.inhibited_by for alert in story.state.alerts.values() if alert.rule == "node-unreachable")
        story.speak(*nodes).well().at(600).expect("resolve", "cluster:prod")


def test_what_comes_and_goes_is_reported_as_that_once_until_it_is_stable() -> None:
    with Story(rule("infiniband-flapping", keep_firing_for=0)) as story:
        story.at(5)
        for minute in range(60):
            story.at(10 + 120 * minute).wrong("infiniband-flapping", "node:gpu-001 mlx5_0/1")
            story.at(70 + 120 * minute).well()
        kinds = parts(story.new())
        assert kinds == {"fire": 2, "resolve": 1, "flapping": 1}
        assert story.alert("infiniband-flapping").flapping
        for kind in ("fire", "fire", "resolve", "flapping"):
            story.expect(kind)
        story.at(60 * 120 + 1_500, tick=5).expect("resolve")


def test_thousands_of_happenings_that_are_found_again_are_no_long_look() -> None:
    with Story(rule("restarted")) as story:
        for number in range(3_000):
            story.wrong("restarted", f"run:r{number}", "info", event=True, since=5)
        story.at(10).well().at(12)
        for number in range(3_000):
            story.wrong("restarted", f"run:r{number}", "info", event=True, since=5)
        story.at(14)
        assert sum(len(one.alerts) + one.more for one in story.new()) == 3_000
        story.expected |= {one.key for one in story.new()}


def test_what_resolves_again_and_again_is_reported_together_and_ever_more_rarely() -> None:
    with Story(*(rule(f"rule-{index}", keep_firing_for=0, may_flap=False) for index in range(30))) as story:
        story.at(10)
        for second in range(1_500):
            number = second % 30
            story.wrong(f"rule-{number}", f"node:n{number}").at(story.elapsed + 1).well()
        resolved = [one for one in story.new() if one.kind == "resolve"]
        assert len(resolved) <= 8, "at once, after 5s, 15s, a minute, then every five minutes"
        assert len(resolved[-1].alerts) > 1
        story.at(2_500)
        assert not any(alert.notified_on for alert in story.state.alerts.values()), "each is reported in the end"
        story.expected |= {notice.key for notice in story.new()}


def test_a_subject_that_fires_and_resolves_a_thousand_times_is_one_alert() -> None:
    with Story(
        rule("infiniband-flapping", keep_firing_for=0), rule("gpu-lost", keep_firing_for=0, may_flap=False)
    ) as story:
        for _ in range(500):
            story.at(story.elapsed + 5).wrong("infiniband-flapping", "node:gpu-001 mlx5_0/1", "warning")
            story.wrong("gpu-lost", gpus(1)[0], sources=())
            story.at(story.elapsed + 5).well()
        assert story.alert("infiniband-flapping").episode == 500
        assert len([one for one in story.state.alerts.values() if one.rule == "infiniband-flapping"]) <= 2
        assert len(story.state.alerts) <= 12, "a few whose end is not reported yet"
        assert len({name for name, what, _ in story.kept.history if what == "fired"}) == 1_000, "each has its own id"
        story.at(story.elapsed + 2_000, tick=5)
        assert len(story.state.alerts) == 2
        story.expected |= {notice.key for notice in story.new()}


def test_what_comes_and_goes_and_then_stays_is_reported_as_firing() -> None:
    with Story(rule("gpu-slowdown", keep_firing_for=0)) as story:
        story.at(5)
        for minute in range(6):
            story.at(10 + 120 * minute).wrong("gpu-slowdown", gpus(1)[0]).at(70 + 120 * minute).well()
        story.at(730).wrong("gpu-slowdown", gpus(1)[0]).at(4_000, tick=5)
        for kind in ("fire", "fire", "resolve", "flapping"):
            story.expect(kind)
        story.expect("fire", gpus(1)[0], reason="no longer muted or flapping, and still firing")


def test_what_flaps_is_taken_to_the_next_channel_when_nobody_acknowledges_it() -> None:
    with Story(rule("run-hung", keep_firing_for=0), mail(), phone(after=600)) as story:
        story.at(5)
        for minute in range(20):
            story.at(10 + 120 * minute).wrong("run-hung", RUN)
            story.at(70 + 120 * minute).well()
        for kind in ("fire", "fire", "resolve", "flapping"):
            story.expect(kind, RUN, on=["mail"])
        story.expect("escalate", RUN, on=["phone"], reason="not acknowledged for 1")
        story.at(20 * 120 + 1_500, tick=5).expect("resolve", RUN, on=["mail", "phone"])


def test_a_warning_that_flaps_and_gets_critical_rings_at_once_and_only_once_while_it_flaps() -> None:
    with Story(rule("gpu-hot", keep_firing_for=0), mail(), phone("critical")) as story:
        for minute in range(30):
            severity: Severity = "critical" if minute in range(10, 16) else "warning"
            story.wrong("gpu-hot", gpus(1)[0], severity).at(70 + 120 * minute).well().at(120 + 120 * minute)
        for kind in ("fire", "fire", "resolve", "flapping"):
            story.expect(kind, on=["mail"])
        assert story.expect("worse", on=["mail", "phone"], reason="critical now, it was warning").at - BEGIN < 1_210


def test_what_flaps_and_is_acknowledged_stays_so_when_it_comes_back() -> None:
    with Story(rule("run-hung", keep_firing_for=0), mail(), phone(after=600)) as story:
        story.at(5)
        for minute in range(20):
            story.at(10 + 120 * minute).wrong("run-hung", RUN).at(20 + 120 * minute)
            if minute == 4:
                story.order("ack", story.alert("run-hung").id)
            story.at(70 + 120 * minute).well()
        for kind in ("fire", "fire", "resolve", "flapping"):
            story.expect(kind, RUN, on=["mail"])
        story.at(20 * 120 + 1_500, tick=5).expect("resolve", RUN, on=["mail"])


def test_what_began_to_flap_under_a_mute_is_reported_when_the_mute_ends() -> None:
    with Story(rule("run-hung", keep_firing_for=0)) as story:
        story.at(5).mute(900, run="llm")
        for minute in range(10):
            story.at(10 + 120 * minute).wrong("run-hung", RUN)
            story.at(70 + 120 * minute).well()
        story.expect("flapping", RUN)
        story.at(10 * 120 + 1_500, tick=5).expect("resolve", RUN)


def test_each_death_wakes_somebody_however_often_it_comes_and_a_mild_one_may_flap() -> None:
    with Story(rule("run-dead", keep_firing_for=0, may_flap=False), phone("warning")) as story:
        story.at(5)
        for minute in range(8):
            story.at(10 + 300 * minute).wrong("run-dead", RUN).at(15 + 300 * minute).expect("fire", RUN)
            story.at(130 + 300 * minute).well().at(140 + 300 * minute).expect("resolve", RUN)
    with Story(rule("run-dead", keep_firing_for=0, may_flap=False), phone("warning")) as story:
        story.at(5)
        for minute in range(6):
            story.at(10 + 120 * minute).wrong("run-dead", RUN, "warning").at(70 + 120 * minute).well()
        story.at(730).wrong("run-dead", RUN).at(735)
        for kind in ("fire", "fire", "resolve", "flapping"):
            story.expect(kind, RUN)
        assert story.expect("fire", RUN).severity == "critical"
        story.at(900).well().at(905).expect("resolve", RUN)


def test_a_storm_of_what_may_not_flap_rings_every_three_minutes_and_what_stays_is_reported() -> None:
    with Story(rule("gpu-lost", may_flap=False), phone("warning")) as story:
        story.at(5)
        for _ in range(40):
            story.wrong("gpu-lost", gpus(1)[0], sources=()).at(story.elapsed + 10).well().at(story.elapsed + 65)
        story.wrong("gpu-lost", gpus(1)[0], sources=()).at(story.elapsed + 185)
        assert story.alert("gpu-lost").notified_as == "critical"
        told = [notice.at for notice in story.new() if notice.kind == "fire"]
        assert all(later - one <= 80 for one, later in pairwise(told[:4])), "the first four at once"
        assert all(180 <= later - one <= 260 for one, later in pairwise(told[3:]))
        story.expected |= {notice.key for notice in story.new()}


def test_a_mild_one_that_flaps_and_gets_worse_is_reported_at_once() -> None:
    with Story(rule("run-dead", keep_firing_for=0, may_flap=False), phone("warning")) as story:
        story.at(5)
        for minute in range(6):
            story.at(10 + 120 * minute).wrong("run-dead", RUN, "warning").at(70 + 120 * minute).well()
        story.at(730).wrong("run-dead", RUN, "warning").at(760)
        for kind in ("fire", "fire", "resolve", "flapping"):
            story.expect(kind, RUN)
        story.wrong("run-dead", RUN).at(763).expect("fire", RUN, reason="no longer muted or flapping")
        story.at(2_000, tick=5)


@pytest.mark.parametrize("cause", ["power-brake", "gpu-slowdown", "gpu-hot"])
def test_a_gpu_that_is_slowed_down_is_why_its_node_holds_the_run_up(cause: str) -> None:
    with Story(rule(cause), rule("straggler"), phone("warning")) as story:
        story.at(10).wrong(cause, gpus(1)[3], "warning").at(15).expect("fire", gpus(1)[3])
        for node in ("gpu-001", "gpu-002"):
            story.wrong("straggler", f"node:{node}", "warning", run="llm")
        story.at(400).expect("fire", "node:gpu-002")
        assert story.alert("straggler", "node:gpu-001").inhibited_by == story.alert(cause).id


def test_a_slow_link_hides_no_straggler_and_a_broken_port_only_its_own_link() -> None:
    with Story(rule("infiniband-down"), rule("slow-link"), rule("straggler"), phone("warning")) as story:
        story.at(10).wrong("infiniband-down", "node:gpu-001 mlx5_0/1", "warning").at(15)
        story.expect("fire", "node:gpu-001 mlx5_0/1")
        for port in ("mlx5_0/1", "mlx5_3/1"):
            story.wrong("slow-link", f"node:gpu-001 {port}", "warning")
        story.wrong("straggler", "node:gpu-001", "warning", run="llm").at(400)
        story.expect("fire", "node:gpu-001 mlx5_3/1")
        story.expect("fire", "node:gpu-001")
        hidden = story.alert("slow-link", "node:gpu-001 mlx5_0/1")
        assert hidden.inhibited_by == story.alert("infiniband-down").id


def test_each_inhibition_names_rules_that_there_are() -> None:
    names = {rule.name for rule in RULES}
    for hides in INHIBITIONS:
        assert {hides.by, *hides.hidden} <= names, hides
        assert hides.by not in hides.hidden


def test_no_two_rules_hide_each_other() -> None:
    pairs = {(hides.by, hidden) for hides in INHIBITIONS for hidden in hides.hidden}
    assert not {(by, hidden) for by, hidden in pairs if (hidden, by) in pairs}


@pytest.mark.parametrize("size", [1, 5, 50])
def test_a_message_never_lists_one_alert_twice(size: int) -> None:
    with Story(rule("gpu-hot")) as story:
        story.at(10)
        for number in range(size):
            story.wrong("gpu-hot", f"gpu:gpu-{number:03}/0")
        story.at(60)
        found = [alert.id for notice in story.new() for alert in notice.alerts]
        assert len(found) == len(set(found)) == size
        for notice in story.new():
            story.expected.add(notice.key)


def test_what_recovers_as_what_hid_it_ends_is_not_reported_to_have_fired() -> None:
    with Story(rule("node-unreachable", keep_firing_for=60), rule("gpu-hot", keep_firing_for=300)) as story:
        story.at(10).wrong("node-unreachable", "node:gpu-001", sources=()).at(11).expect("fire", "node:gpu-001")
        story.at(20).wrong("gpu-hot", gpus(1)[3]).at(100).well().at(170).expect("resolve", "node:gpu-001")
        story.at(900)
        assert story.alert("gpu-hot").ended == "over"


def test_what_recovers_as_what_hid_it_ends_and_is_then_not_seen_is_reported() -> None:
    with Story(rule("gpu-lost", keep_firing_for=300), rule("node-unreachable", keep_firing_for=0)) as story:
        story.at(10).wrong("node-unreachable", "node:gpu-001", sources=()).at(11).expect("fire", "node:gpu-001")
        story.at(20).wrong("gpu-lost", gpus(1)[3]).at(100).well().at(110).expect("resolve", "node:gpu-001")
        story.at(200).expect_nothing_else().fall_silent("node:gpu-001").at(320).expect("fire", gpus(1)[3])


def test_a_dead_run_does_not_hide_that_its_node_is_gone() -> None:
    """Who queues it again must know which node to leave out."""
    with Story(rule("run-dead"), rule("node-unreachable")) as story:
        story.at(10).wrong("run-dead", RUN).wrong("node-unreachable", "node:gpu-001", run="llm", sources=()).at(20)
        story.expect("fire", RUN)
        story.expect("fire", "node:gpu-001")


def test_a_second_node_that_dies_soon_after_the_first_is_reported_at_once_and_so_is_the_eighth() -> None:
    with Story(rule("node-unreachable")) as story:
        for number in range(8):
            at = 10 + 6 * number
            story.at(at).wrong("node-unreachable", f"node:gpu-{number:03}", sources=()).at(at + 2)
            story.expect("fire", f"node:gpu-{number:03}")


def test_the_first_fault_of_a_node_or_a_run_does_not_wait_in_a_storm_of_another() -> None:
    rules = [rule(f"rule-{index}") for index in range(20)]
    with Story(*rules, rule("gpu-lost"), rule("run-dead")) as story:
        for second in range(120):
            story.at(10 + second).wrong(f"rule-{second % 20}", f"gpu:gpu-009/{second}", "warning")
        assert len(story.new()) < 20
        story.wrong("gpu-lost", gpus(1)[0]).at(132).expect("fire", gpus(1)[0])
        story.wrong("run-dead", RUN).at(134).expect("fire", RUN)
        story.wrong("gpu-lost", "gpu:gpu-009/0").at(136).expect("fire", "gpu:gpu-009/0")
        story.at(600)
        assert {alert.id for notice in story.kept.notices for alert in notice.alerts} == set(story.state.alerts)
        for notice in story.new():
            story.expected.add(notice.key)


def test_what_befalls_one_node_at_once_is_one_message_whatever_the_rules() -> None:
    with Story(rule("gpu-lost"), rule("xid"), rule("ecc-uncorrected"), group_wait=0.5) as story:
        story.at(10).wrong("gpu-lost", gpus(1)[3]).wrong("xid", f"{gpus(1)[4]} xid 95").at(11)
        story.wrong("ecc-uncorrected", gpus(1)[4]).wrong("gpu-lost", gpus(2)[0]).at(13)
        notice = story.expect("digest", gpus(1)[3], f"{gpus(1)[4]} xid 95", gpus(1)[4])
        assert (notice.severity, notice.alerts[0].subject) == ("critical", gpus(1)[3])
        story.expect("fire", gpus(2)[0])


def test_that_slurm_drains_a_node_whose_gpu_is_lost_is_no_news_and_that_it_is_down_under_a_run_is() -> None:
    node = "node:gpu-001"
    with Story(rule("gpu-lost"), rule("node-drained")) as story:
        story.at(10).wrong("gpu-lost", gpus(1)[3]).at(11).expect("fire", gpus(1)[3])
        story.at(40).wrong("node-drained", node, "warning").at(100).expect_nothing_else()
        story.wrong("node-drained", node, "critical").at(110).expect("fire", node)
        story.wrong("node-drained", node, "warning").at(120).well(gpus(1)[3]).at(300).expect("resolve", gpus(1)[3])
