"""A standstill of this program, or a clock that is set: what a sample shows afterwards is true at once, and only what
was found by how much time has passed waits until everyone had the chance to speak again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.stories.story import Story, mail, phone, rule
from tests.trainmon.alerting.stories.test_real_rules import Cluster
from trainmon.alerting.rules import ChannelFailing, LedgerStuck, OutboxOld
from trainmon.alerting.rules.gpus.faults import GpuLost
from trainmon.alerting.rules.nodes import NodeUnreachable
from trainmon.model import Channel, ChannelsChanged, LedgerTrouble, SourceChanged

HOT, RUN = "gpu:gpu-001/3", "run:llm"
PHONE = Channel(name="phone", type="ntfy", state="ok")
MAIL = Channel(name="mail", type="apprise", state="ok")


def stand_still(story: Story) -> None:
    story.clock.wall += 31.0
    story.clock.steady += 31.0


def step_forward(story: Story) -> None:
    story.set_clock(11.0)


def step_back(story: Story) -> None:
    story.set_clock(-11.0)


JUMPS = pytest.mark.parametrize("jump", [stand_still, step_forward, step_back])
Jump = Callable[[Story], None]


@JUMPS
@pytest.mark.parametrize("hold", [0.0, 30.0])
def test_a_gpu_lost_after_a_jump_is_reported_with_the_sample_that_shows_it(jump: Jump, hold: float) -> None:
    with Cluster(3, [GpuLost(for_=hold)]) as story:
        story.talk(60)
        jump(story)
        story.lost["gpu-002"] = (3,)
        story.talk(story.elapsed + 4).expect("fire", "gpu:gpu-002/3")
        story.talk(story.elapsed + 900)


@JUMPS
def test_a_fault_with_no_hold_is_reported_at_once_after_a_jump(jump: Jump) -> None:
    with Story(rule("node-drained")) as story:
        story.at(60)
        jump(story)
        story.wrong("node-drained", "node:gpu-001", fires_at_once=True, since=5).at(story.elapsed + 2)
        story.expect("fire", "node:gpu-001")
        story.at(story.elapsed + 900)


@JUMPS
def test_a_hold_goes_on_where_it_stood(jump: Jump) -> None:
    with Story(rule("gpu-hot", for_=300), rule("disk-full", for_=3_600)) as story:
        story.at(10).wrong("gpu-hot", HOT).wrong("disk-full", "disk:login1:/fsx").at(260)
        jump(story)
        begin = story.elapsed
        story.at(begin + 45).expect_nothing_else().at(begin + 75).expect("fire", HOT)
        story.at(begin + 3_340, tick=10).expect_nothing_else().at(begin + 3_370, tick=5)
        story.expect("fire", "disk:login1:/fsx")


@JUMPS
def test_what_was_found_by_its_age_waits_a_minute_although_its_source_has_spoken(jump: Jump) -> None:
    with Story(rule("run-stalled"), rule("run-dead")) as story:
        story.at(60)
        jump(story)
        begin = story.elapsed
        story.wrong("run-stalled", RUN, by_age=True, since=5).wrong("run-dead", "run:b", by_age=True, since=5)
        story.at(begin + 55).expect_nothing_else().well("run:b").at(begin + 65).expect("fire", RUN)
        story.at(begin + 900)


@JUMPS
@pytest.mark.parametrize("hold", [0.0, 60.0])
def test_a_node_that_does_not_answer_after_a_jump_has_a_minute_to_do_so(jump: Jump, hold: float) -> None:
    with Cluster(5, [NodeUnreachable(for_=hold)]) as story:
        story.talk(60)
        jump(story)
        begin = story.elapsed
        story.cut_off |= {"gpu-002", "gpu-003"}
        for name in ("gpu-002", "gpu-003"):
            source = story.state.sources[f"node:{name}"]
            story.hear(SourceChanged(replace(source, phase="retrying", error="Connection reset by peer")))
        story.talk(begin + 30)
        story.cut_off.discard("gpu-003")
        story.hear(SourceChanged(replace(story.state.sources["node:gpu-003"], phase="up", error=None)))
        story.talk(begin + 54).expect_nothing_else().talk(begin + 70).expect("fire", "node:gpu-002")
        story.talk(begin + 900)


@JUMPS
def test_what_this_program_knows_of_itself_waits_for_nobody(jump: Jump) -> None:
    with Story(LedgerStuck(for_=0.0), ChannelFailing(), phone(), mail()) as story:
        story.hear(ChannelsChanged((PHONE, MAIL))).at(60)
        jump(story)
        broken = replace(PHONE, state="broken", problem="401 unauthorized", since=story.clock.wall - 5, waiting=2)
        story.hear(LedgerTrouble("the disk is full"), ChannelsChanged((broken, MAIL))).at(story.elapsed + 3)
        story.expect("fire", "self", on=["mail"])
        story.expect("fire", "channel:phone", on=["mail"])
        story.at(story.elapsed + 900)


def test_messages_that_a_sleep_made_old_have_a_minute_to_be_sent() -> None:
    with Story(ChannelFailing(), OutboxOld(), phone(), mail()) as story:
        late = replace(PHONE, state="retrying", problem="no route", since=story.clock.wall, oldest_at=story.clock.wall)
        story.hear(ChannelsChanged((replace(late, waiting=1), MAIL))).at(60).sleep(7_200.0)
        story.at(110).expect_nothing_else()
        story.hear(ChannelsChanged((PHONE, MAIL))).at(900)
