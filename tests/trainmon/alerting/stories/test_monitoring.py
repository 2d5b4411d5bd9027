"""What watches is watched: sources, channels, the ledger, the way to people; and what is told when nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.stories.story import BEGIN, Story, mail, phone, rule
from trainmon.alerting.heartbeat import HEARTBEAT, heartbeat, unwell
from trainmon.alerting.pipeline.routing import HeartbeatSpec, Routing
from trainmon.alerting.rules import (
    ChannelFailing,
    ClusterUnreachable,
    ConfigNotLoaded,
    LedgerStuck,
    MonitorBlind,
    NodeUnreachable,
    OutboxOld,
    SourceDown,
    SourceLate,
    UnansweredTest,
)
from trainmon.model import (
    Alert,
    AlertsRestored,
    Channel,
    ChannelsChanged,
    ConfigRefused,
    Leadership,
    LeadershipChanged,
    LedgerTrouble,
    Prompt,
    PromptsChanged,
    Route,
    Run,
    RunSpec,
    Source,
    SourceChanged,
    State,
    StoredAlerts,
)

HOUR, DAY = 3_600.0, 86_400.0
PHONE = Channel(name="phone", type="ntfy", state="ok")
MAIL = Channel(name="mail", type="apprise", state="ok")
QUIET = HeartbeatSpec(every=None, test_every=None, start=False)


def test_a_queue_that_fails_is_reported_after_a_while_and_one_that_restarts_is_not() -> None:
    with Story(SourceDown(), SourceLate(), sources=("slurm:prod", "node:gpu-001")) as story:
        story.at(10).fail("slurm:prod", "slurmctld does not answer").at(200).speak("slurm:prod").at(600)
        story.fail("slurm:prod", "slurmctld does not answer").at(930)
        notice = story.expect("fire", "source:slurm:prod")
        assert notice.alerts[0].summary == "slurm:prod fails: slurmctld does not answer"
        story.speak("slurm:prod").at(1_100).expect("resolve", "source:slurm:prod")


def test_a_source_that_fails_and_then_only_falls_silent_is_not_well() -> None:
    with Story(SourceDown(), sources=("slurm:prod", "node:gpu-001")) as story:
        story.at(10).fail("slurm:prod", "no route").at(330).expect("fire", "source:slurm:prod")
        story.sources["slurm:prod"] = replace(story.sources["slurm:prod"], error=None, phase="connecting")
        story.at(2_000, tick=10)
        assert story.alert("source-down").data == "stale"


def open_alerts(story: Story) -> list[Alert]:
    return [alert for alert in story.state.alerts.values() if alert.is_open]


def test_a_source_that_is_late_until_it_fails_has_one_alert() -> None:
    with Story(SourceDown(), SourceLate(), sources=("slurm:prod", "node:gpu-001")) as story:
        story.sources["slurm:prod"] = replace(story.sources["slurm:prod"], phase="connecting", answered_at=None)
        story.at(5)
        assert [(one.rule, one.phase) for one in open_alerts(story)] == [("source-late", "pending")]
        story.fail("slurm:prod", "no route").at(10)
        assert [(one.rule, one.phase) for one in open_alerts(story)] == [("source-down", "pending")]
        story.at(330).expect("fire", "source:slurm:prod")
        story.sources["slurm:prod"] = replace(story.sources["slurm:prod"], error=None, phase="connecting")
        story.at(1_000, tick=10)
        assert [(one.rule, one.phase) for one in open_alerts(story)] == [("source-down", "firing")]


def test_a_source_that_was_late_for_long_stays_reported_until_it_is_reported_that_it_fails() -> None:
    with Story(SourceDown(), SourceLate(), sources=("slurm:prod", "node:gpu-001")) as story:
        note = "dcgm-exporter has no power limit"
        quiet = replace(story.sources["slurm:prod"], phase="connecting", answered_at=None, hint=note)
        story.sources["slurm:prod"] = quiet
        [late] = story.at(330).expect("fire", "source:slurm:prod").alerts
        assert (late.rule, late.advice) == ("source-late", "trainmon-tui check shows what is wrong with it")
        story.fail("slurm:prod", "no route").at(400)
        assert {(one.rule, one.phase) for one in open_alerts(story)} == {
            ("source-late", "firing"), ("source-down", "pending")
        }  # fmt: skip
        assert story.at(700).expect("fire", "source:slurm:prod").alerts[0].rule == "source-down"
        assert story.alert("source-late").inhibited_by == story.alert("source-down").id


def test_when_nothing_at_all_answers_that_is_the_one_notification() -> None:
    names = ("slurm:prod", "node:gpu-001", "node:gpu-002", "node:gpu-003")
    others = (ClusterUnreachable(for_=60), SourceDown(), SourceLate(), rule("node-unreachable", for_=60))
    with Story(MonitorBlind(), *others, sources=names) as story:
        story.at(10).fall_silent(*names).at(110)
        for name in names[1:]:
            story.wrong("node-unreachable", name, sources=())
        story.at(1_000)
        notice = story.expect("fire", "self")
        assert notice.alerts[0].summary.startswith("no data: 0 of 4 sources responding; the last data came")
        assert (unwell(story.state, story.clock.wall) or "").startswith("0 of 4 sources responding for")
        story.speak(*names).well().at(1_200).expect("resolve", "self")


def test_while_a_person_is_asked_to_log_in_no_host_is_called_unreachable() -> None:
    queue = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="connecting")
    sources = (queue, *(replace(queue, name=name, kind="node") for name in LINK))
    with Story(MonitorBlind(), ClusterUnreachable(), NodeUnreachable(), SourceLate(), sources=()) as story:
        story.hear(*map(SourceChanged, sources))
        story.hear(PromptsChanged((Prompt(id=1, host="gpu-001", title="Password"),))).at(170)
        assert open_alerts(story) == []
        story.hear(PromptsChanged(())).at(300).expect("fire", "self")


def test_a_cluster_that_is_unreachable_hides_its_queue_and_not_a_missing_key_of_wandb() -> None:
    names = ("slurm:prod", "node:gpu-001", "node:gpu-002", "node:gpu-003")
    with Story(ClusterUnreachable(), SourceDown(), sources=(*names, "wandb:llm")) as story:
        for name in names:
            story.fail(name, "no route to host")
        story.fail("wandb:llm", "no API key").at(100).expect("fire", "cluster:prod")
        assert story.at(1_000, tick=5).expect("fire", "source:wandb:llm").alerts[0].cluster == "prod"


LINK = ("node:gpu-001", "node:gpu-002", "node:gpu-003")
OTHER_ALERTS = (ClusterUnreachable(), rule("node-unreachable", for_=60.0))


def dashboard(*sources: str, **options: Any) -> Story:
    story = Story(MonitorBlind(), *OTHER_ALERTS, phone("warning"), sources=(*LINK, *sources), **options)
    story.engine.state = replace(story.engine.state, is_dashboard=True)
    return story


def lose_the_link(story: Story, *names: str) -> Story:
    """Each host fails some seconds after the one before it. What it answered last is still known."""
    for name in names:
        source = story.state.sources[name]
        story.sources.pop(name)
        story.hear(SourceChanged(replace(source, error="connection lost", phase="retrying"))).at(story.elapsed + 3.0)
    return story


def unreachable(story: Story, *names: str) -> Story:
    for name in names:
        story.wrong("node-unreachable", name, sources=())
    return story


def test_a_dashboard_that_loses_its_own_link_for_a_minute_pages_nobody() -> None:
    with dashboard() as story:
        unreachable(lose_the_link(story.at(100), *LINK), *LINK).at(157)
        assert story.expect("fire", "self").severity == "warning"
        story.speak(*LINK).well().at(400).expect("resolve", "self")


def test_a_dashboard_that_loses_its_own_link_warns_once_and_pages_after_5_minutes() -> None:
    with dashboard() as story:
        unreachable(lose_the_link(story.at(100), *LINK), *LINK).at(380)
        notice = story.expect("fire", "self")
        assert (notice.severity, notice.alerts[0].rule) == ("warning", "monitor-blind")
        assert notice.alerts[0].summary.startswith(
            "this machine lost 3 hosts at once and reaches none: its own network"
        )
        story.expect_nothing_else().at(430)
        assert story.expect("worse", "self").severity == "critical"
        story.speak(*LINK).well().at(600).expect("resolve", "self")


@pytest.mark.parametrize(("silent_before", "pages"), [(0.0, False), (600.0, True)])
def test_a_daemon_that_watched_when_the_link_broke_keeps_the_dashboard_from_paging(
    silent_before: float, pages: bool
) -> None:
    with dashboard("daemon:login1") as story:
        story.at(100)
        story.fall_silent("daemon:login1").at(100 + silent_before)
        lose_the_link(story, *LINK).at(1_500, tick=5)
        assert story.expect("fire", "self").severity == "warning"
        if pages:
            story.expect("worse", "self")


def test_a_dashboard_that_takes_over_because_its_link_broke_pages_nobody() -> None:
    with dashboard("daemon:login1") as story:
        story.at(100).hear(LeadershipChanged(Leadership(holder="daemon"))).at(110).fall_silent("daemon:login1")
        lose_the_link(story, *LINK).at(175)
        for name in LINK:
            story.wrong("node-unreachable", name, sources=(), fires_at_once=True)
        story.hear(LeadershipChanged(Leadership(holder="us")), AlertsRestored(StoredAlerts())).at(1_000, tick=5)
        assert story.expect("fire", "self").severity == "warning"


def test_a_vpn_that_drops_is_the_own_network_although_services_outside_of_it_still_answer() -> None:
    with dashboard("wandb:llm", "daemon:login1") as story:
        story.at(100).fall_silent("daemon:login1").at(900, tick=5)
        unreachable(lose_the_link(story, *LINK), *LINK).at(960)
        assert story.expect("fire", "self").severity == "warning"
        story.at(1_180).expect_nothing_else().at(1_230)
        assert story.expect("worse", "self").severity == "critical"


@pytest.mark.parametrize("is_warned", [False, True])
def test_a_laptop_that_wakes_up_without_its_network_has_five_minutes_to_find_it(is_warned: bool) -> None:
    with dashboard() as story:
        lose_the_link(story.at(100), *LINK).at(190 if is_warned else 120)
        if is_warned:
            assert story.expect("fire", "self").severity == "warning"
        woke_up = story.sleep(330.0).elapsed
        unreachable(story, *LINK).at(woke_up + 290)
        if not is_warned:
            assert story.expect("fire", "self").severity == "warning"
        story.expect_nothing_else().at(woke_up + 310)
        assert story.expect("worse", "self").severity == "critical"


def test_a_first_login_that_the_laptop_slept_through_is_not_slow() -> None:
    with Story(MonitorBlind(), phone("warning"), sources=()) as story:
        slow = Source(name=LINK[0], kind="node", cluster="prod", phase="connecting", login_since=story.clock.wall)
        story.hear(SourceChanged(slow)).at(20).sleep(600.0).at(125)
        assert story.expect("fire", "self").severity == "warning"
        story.at(145)
        assert story.expect("worse", "self").severity == "critical"


def test_hosts_that_are_lost_one_after_the_other_are_not_the_own_link() -> None:
    with dashboard() as story:
        story.at(100).fail(LINK[0], "lost").at(200).fail(LINK[1], "lost").at(300).fail(LINK[2], "lost").at(310)
        assert {one.severity for notice in story.new() for one in notice.alerts} == {"critical"}
        story.at(360)
        story.expected |= {notice.key for notice in story.new()}
        assert story.alert("monitor-blind").severity == "critical"


def test_a_daemon_that_loses_all_hosts_at_once_pages() -> None:
    with Story(MonitorBlind(), *OTHER_ALERTS, phone("warning"), sources=LINK) as story:
        lose_the_link(story.at(100), *LINK).at(200)
        assert story.expect("fire", "self").severity == "critical"


def test_a_first_login_that_takes_a_minute_is_a_warning_and_critical_after_two() -> None:
    with Story(MonitorBlind(), *OTHER_ALERTS, phone("warning"), sources=()) as story:
        since = story.clock.wall
        for name in LINK:
            slow = Source(name=name, kind="node", cluster="prod", phase="connecting", login_since=since)
            story.hear(SourceChanged(slow))
        story.at(110)
        assert {notice.severity for notice in story.new()} == {"warning"}
        story.expected |= {notice.key for notice in story.new()}
        story.at(140)
        assert {notice.severity for notice in story.new()} == {"critical"}
        story.expected |= {notice.key for notice in story.new()}


def test_a_channel_that_refuses_is_reported_by_the_others_at_once() -> None:
    with Story(ChannelFailing(), OutboxOld(), phone(), mail()) as story:
        story.hear(ChannelsChanged((PHONE, MAIL))).at(10)
        broken = replace(PHONE, state="broken", problem="401 unauthorized", since=BEGIN + 10, waiting=2)
        story.hear(ChannelsChanged((broken,))).at(12)
        notice = story.expect("fire", "channel:phone", on=["mail"])
        assert notice.alerts[0].summary == "the channel phone (ntfy) cannot send: 401 unauthorized; 2 messages waiting"
        story.hear(ChannelsChanged((PHONE,))).at(100).expect("resolve", "channel:phone", on=["mail"])


def test_a_channel_that_is_tried_again_is_reported_after_five_minutes_and_its_outbox_is_not_reported_too() -> None:
    with Story(ChannelFailing(), OutboxOld(), phone(), mail()) as story:
        late = replace(PHONE, state="retrying", problem="no route", since=BEGIN + 10, waiting=1, oldest_at=BEGIN + 10)
        story.hear(ChannelsChanged((late, MAIL))).at(300).expect_nothing_else()
        story.at(312).expect("fire", "channel:phone", on=["mail"])
        story.at(2_000, tick=10)
        assert story.alert("outbox-old").inhibited_by == story.alert("channel-failing").id


def test_an_only_channel_that_failed_when_the_laptop_fell_asleep_has_five_minutes_after_it() -> None:
    with Story(ChannelFailing(), phone()) as story:
        late = replace(PHONE, state="retrying", problem="no route", since=BEGIN + 10)
        story.hear(ChannelsChanged((late,))).at(60).sleep(3_600.0).at(60 + 295)
        story.expect_nothing_else().at(60 + 310).expect("fire", "channel:phone")


@pytest.mark.parametrize("later", [0.0, 600.0])
def test_that_messages_are_overdue_is_reported_at_once_by_every_other_channel(later: float) -> None:
    pager = Route(channel="pager", severity="critical", rules=("run-dead",), after=later)
    with Story(ChannelFailing(), rule("run-dead"), phone(), mail(), pager) as story:
        late = replace(PHONE, state="retrying", problem="503", since=BEGIN + 10, overdue=1)
        story.hear(ChannelsChanged((late, MAIL))).at(57).expect("fire", "channel:phone", on=["mail", "pager"])
        story.hear(ChannelsChanged((PHONE,))).at(200).expect("resolve", "channel:phone", on=["mail", "pager"])


def test_with_a_fallback_it_is_reported_that_a_channel_fails_and_others_as_usual() -> None:
    pager = Route(channel="pager", severity="critical")
    with Story(ChannelFailing(), OutboxOld(), phone(), pager, mail(fallback=True)) as story:
        broken = replace(PHONE, state="broken", problem="401 unauthorized", since=BEGIN + 10)
        story.hear(ChannelsChanged((broken, MAIL))).at(12).expect("fire", "channel:phone", on=["mail"])
        story.hear(ChannelsChanged((PHONE, replace(MAIL, oldest_at=BEGIN - 900)))).at(200)
        story.expect("fire", "channel:mail", on=["phone", "pager"])
        story.expect("resolve", "channel:phone", on=["mail"])


def test_an_only_channel_is_not_reported_at_once_that_it_is_late() -> None:
    with Story(ChannelFailing(), phone()) as story:
        late = replace(PHONE, state="retrying", problem="503", since=BEGIN + 10, overdue=1)
        story.hear(ChannelsChanged((late,))).at(300).expect_nothing_else()
        story.at(312).expect("fire", "channel:phone", on=["phone"])


def test_when_no_channel_works_that_is_code_red_on_all_of_them() -> None:
    with Story(ChannelFailing(), phone(), mail()) as story:
        broken = (replace(PHONE, state="broken", problem="gone"), replace(MAIL, state="broken", problem="gone"))
        story.hear(ChannelsChanged(broken)).at(10)
        story.expect("fire", "channel:phone", on=["phone", "mail"])
        story.expect("fire", "channel:mail", on=["phone", "mail"])
        assert unwell(story.state, story.clock.wall) == "every channel refuses its notifications"


def test_a_ledger_that_cannot_be_written_is_reported_and_starves_the_dead_mans_switch() -> None:
    with Story(LedgerStuck()) as story:
        story.at(10).hear(LedgerTrouble("the disk is full")).at(22).expect("fire", "self")
        assert unwell(story.state, story.clock.wall) == "the ledger cannot be written: the disk is full"
        story.hear(LedgerTrouble(None)).at(100).expect("resolve", "self")
        assert unwell(story.state, story.clock.wall) is None


def test_a_config_that_is_refused_fires_until_it_is_loaded() -> None:
    with Story(ConfigNotLoaded()) as story:
        story.at(10).hear(ConfigRefused("config refused: c.toml: others can write to it")).at(60).expect("fire", "self")
        story.hear(ConfigRefused(None)).at(200).expect("resolve", "self")


def test_a_loop_that_stands_still_starves_the_dead_mans_switch() -> None:
    with Story() as story:
        story.at(10)
        assert unwell(story.state, story.clock.wall) is None
        assert unwell(story.state, story.clock.wall + 90) == "the rules have not been evaluated for 1m"


# ---- when nothing is wrong -------------------------------------------------------------------------------------------


def test_a_quiet_day_is_six_heartbeats_and_nothing_else() -> None:
    spec = HeartbeatSpec(test_every=None, start=False, host="bastion1")
    with Story(phone(), mail(), phone_only_red := mail(heartbeat=False), heartbeat=spec) as story:
        assert phone_only_red.heartbeat is False
        story.at(DAY + 60, tick=20)
        assert [notice.kind for notice in story.new()] == ["heartbeat"] * 6
        for _ in range(6):
            notice = story.expect("heartbeat", reason="the regular heartbeat, every 4h")
            assert notice.title
            assert notice.lines[-1] == "sent by trainmon-tui on bastion1"
            assert notice.expires_at == notice.at + 4 * HOUR


def test_a_restart_neither_repeats_nor_forgets_the_heartbeat() -> None:
    spec = HeartbeatSpec(test_every=None, start=False)
    with Story(phone(), heartbeat=spec) as story:
        story.at(3 * HOUR, tick=20).restart(down_for=60).at(4 * HOUR - 60, tick=20).expect_nothing_else()
        story.at(4 * HOUR + 60).expect("heartbeat")


def test_a_heartbeat_that_was_due_while_nobody_watched_waits_until_something_was_seen() -> None:
    spec = HeartbeatSpec(test_every=None, start=False)
    with Story(phone(), heartbeat=spec) as story:
        story.at(3 * HOUR, tick=20).fall_silent("node:gpu-001").restart(down_for=2 * HOUR).at(
            5 * HOUR + 10
        ).expect_nothing_else()
        story.speak("node:gpu-001").at(5 * HOUR + 12)
        assert "not seen" not in "".join(story.expect("heartbeat").lines)


def test_a_heartbeat_waits_for_nobody_who_never_answers() -> None:
    spec = HeartbeatSpec(test_every=None, start=False)
    with Story(phone(), heartbeat=spec) as story:
        story.at(3 * HOUR, tick=20).fall_silent("node:gpu-001").restart(down_for=2 * HOUR).at(5 * HOUR + 30)
        story.expect("heartbeat")


def test_the_beginning_and_the_end_of_watching_are_reported() -> None:
    spec = HeartbeatSpec(every=None, test_every=None, switch=False, host="bastion1")
    with Story(phone(), heartbeat=spec) as story:
        story.at(30)
        notice = story.expect("start", reason="it has started")
        assert notice.title == "trainmon-tui on bastion1 started"
        assert notice.lines[0] == "0 runs, 0 nodes, 0 disks; 1 of 1 source responding"
        assert "this is the only channel" in notice.lines[1]
        assert "no dead-man's switch" in notice.lines[2]
        story.alerting.announce_stop("SIGTERM")
        assert story.expect("goodbye", reason="SIGTERM").title == "trainmon-tui on bastion1 stopped"


def test_a_program_that_is_started_again_and_again_says_so_once_and_for_how_long_nobody_looked() -> None:
    spec = HeartbeatSpec(every=None, test_every=None)
    with Story(phone(), mail(), heartbeat=spec) as story:
        story.at(30).expect("start")
        for _ in range(5):
            story.restart(down_for=5).at(story.elapsed + 30)
        story.expect_nothing_else().restart(down_for=3 * HOUR).at(story.elapsed + 30)
        assert "nothing was watched for 3h before" in story.expect("start").lines


def test_the_weekly_test_that_somebody_acknowledges_is_over_in_silence() -> None:
    spec = HeartbeatSpec(every=None, start=False)
    with Story(UnansweredTest(), phone(), mail(), heartbeat=spec) as story:
        story.at(7 * DAY, tick=290).at(7 * DAY + 60)
        notice = story.expect("test", "self", on=["phone", "mail"])
        alert = notice.alerts[0]
        story.order("ack", alert.id, token=alert.token, via="phone", by="phone").at(7 * DAY + 200)
        story.expect("acknowledged", "self")
        assert story.alert("test").ended == "acknowledged"
        story.at(13 * DAY, tick=290)


def test_a_test_that_nobody_answers_within_a_day_is_reported() -> None:
    spec = HeartbeatSpec(every=None, start=False)
    with Story(UnansweredTest(), phone(), mail(), heartbeat=spec) as story:
        story.order("test").at(10)
        request = story.expect("test", "self").alerts[0]
        story.at(DAY + 60, tick=25)
        notice = story.expect("fire", "self", on=["mail"])
        assert notice.alerts[0].summary == "nobody acknowledged the test notification of 1d ago"
        story.order("ack", request.id).at(DAY + 61)
        story.expect("acknowledged", "self")
        story.at(DAY + 200).expect("resolve", "self", on=["mail"])


def test_a_sign_of_life_that_cannot_be_put_together_says_so() -> None:
    """It was made before the alerts of the same look were told: its fault cost them all."""
    run = Run(spec=RunSpec(name="llm", cluster="prod"), verdict="healthy", eta_at=float("inf"))
    state, routing = State(at=BEGIN, started_at=BEGIN - DAY, runs={"llm": run}), Routing(routes=(phone(),))
    (notice,) = heartbeat(HeartbeatSpec(), routing, state, {HEARTBEAT: BEGIN - DAY}, BEGIN).notices
    assert notice.lines == ("the report cannot be made (OverflowError): a fault of this program",)


def test_a_finding_since_no_time_at_all_is_found_since_now() -> None:
    with Story(rule("run-dead"), rule("disk-full")) as story:
        story.at(10).wrong("run-dead", "run:llm", since=float("-inf")).wrong("disk-full", "disk:a:/").at(12)
        story.expect("fire", "run:llm")
        story.expect("fire", "disk:a:/")


def test_a_look_that_fails_forgets_nothing_that_it_was_reported() -> None:
    with Story(rule("run-dead")) as story:
        story.hear(LeadershipChanged(Leadership(holder="other"))).at(10)
        story.hear(LeadershipChanged(Leadership(holder="us")), AlertsRestored(StoredAlerts()))
        story.wrong("run-dead", "run:llm", "loud").at(12)  # type: ignore[arg-type]
        assert story.state.leadership.holder == "us"
        story.wrong("run-dead", "run:llm").at(14).expect("fire", "run:llm")


def test_a_test_that_is_requested_again_is_not_answered() -> None:
    spec = HeartbeatSpec(every=None, test_every=7 * DAY, start=False)
    with Story(UnansweredTest(), heartbeat=spec) as story:
        story.at(10).order("test").at(12).expect("test")
        story.at(DAY, tick=290).at(DAY + 60).expect("fire", "self")
        story.at(7 * DAY, tick=290).at(7 * DAY + 600, tick=29).expect("test")
        assert story.alert("test-unanswered").data_why == "the newer test is not acknowledged yet either"
        story.order("ack", story.alert("test").id).at(story.elapsed + 120).expect("resolve", "self")
