"""What is remembered of a node, from what its readings tell one after another."""

from __future__ import annotations

from tests.trainmon.alerting.rules.node_scene import IDLE, NOW, Scene, facts, host, port, samples
from trainmon.model import (
    FAULTS,
    FLOORS,
    GROWTHS,
    MARGINS,
    GpuSamples,
    Growth,
    Hello,
    LogChunk,
    NodeHistory,
    SourceRemoved,
    Xid,
)


def past(scene: Scene) -> NodeHistory:
    return scene.state.node_histories["n1"]


def test_a_reading_with_nothing_new_leaves_it_as_it_is() -> None:
    scene = Scene("n1").after(2.0)
    before = past(scene)
    scene.say("n1", samples(scene.now), facts(scene.now), host(scene.now), LogChunk(1, scene.now, "x"))
    assert past(scene) is before


def test_a_counter_is_remembered_with_when_it_grew_and_by_how_much() -> None:
    scene = Scene("n1").after(60.0).say("n1", host(NOW + 60, oom_kills=2))
    scene.after(90.0).say("n1", host(scene.now, oom_kills=5))
    counter = past(scene).counters["oom_kills"]
    assert (counter.value, counter.grown) == (5, (Growth(NOW + 60, NOW + 60, 2), Growth(NOW + 150, NOW + 150, 3)))
    assert (counter.since(NOW), counter.since(NOW + 100), counter.since(NOW + 200)) == (5, 3, 0)


def test_growth_within_a_minute_is_one_and_growth_is_bounded() -> None:
    scene = Scene("n1")
    for step in range(2_000):
        scene.after(2.0).say("n1", host(scene.now, **port(errors=step)))
    counter = past(scene).counters["errors mlx5_1/1"]
    assert counter.value == 1_999
    assert len(counter.grown) == GROWTHS
    assert counter.grown[-1].last == scene.now
    assert counter.since(scene.now - 600) >= 290
    assert all(growth.last - growth.first < 60 for growth in counter.grown)


def test_a_counter_that_fell_is_counted_anew() -> None:
    scene = Scene("n1").say("n1", host(NOW, **port(link_downed=7)))
    scene.say("n1", host(NOW, **port(link_downed=0)))
    counter = past(scene).counters["link_downed mlx5_1/1"]
    assert (counter.value, counter.since(0.0)) == (0, 7)
    assert past(scene.say("n1", host(NOW, **port(link_downed=1)))).counters["link_downed mlx5_1/1"].since(0.0) == 8


def test_a_counter_that_is_not_reported_keeps_its_value() -> None:
    scene = Scene("n1").say("n1", host(NOW, oom_kills=3)).say("n1", host(NOW, oom_kills=None))
    assert past(scene).counters["oom_kills"].value == 3
    assert past(scene.say("n1", host(NOW, oom_kills=3))).counters["oom_kills"].since(0.0) == 3


def test_each_gpu_has_its_own_errors() -> None:
    scene = Scene("n1").say("n1", facts(NOW, ecc_uncorrected=4))
    assert past(scene).counters["ecc 3"].grown[-1].by == 4
    assert past(scene).counters["ecc 2"].grown == ()


def test_faults_are_bounded_and_the_newest_stay() -> None:
    scene = Scene("n1")
    for code in range(500):
        scene.after(1.0).say("n1", Xid(1, scene.now, code, index=code % 8))
    assert len(past(scene).faults) == FAULTS
    assert past(scene).faults[-1].code == 499


def test_margins_are_remembered_only_of_warm_gpus_and_bounded() -> None:
    scene = Scene("n1")
    for _ in range(100):
        scene.after(30.0).say("n1", facts(scene.now, temperature_margin_c=9), samples(scene.now))
    assert list(past(scene).margins) == [3]
    assert len(past(scene).margins[3]) == MARGINS
    assert past(scene.say("n1", facts(scene.now))).margins == {}


def test_since_when_a_gpu_is_slowed_down_is_remembered_while_it_is() -> None:
    scene = Scene("n1").say("n1", samples(NOW, throttle_mask=0x80 | 0x4))
    scene.after(60.0).say("n1", samples(scene.now, throttle_mask=0x80 | 0x40))
    assert past(scene).slowed == {(3, "hw_power_brake"): NOW, (3, "hw_thermal"): NOW + 60}
    one = samples(scene.now, throttle_mask=0)
    scene.say("n1", GpuSamples(1, scene.now, one.g[:3]))  # a worker that starts anew names them one by one
    assert len(past(scene).slowed) == 2
    assert past(scene.say("n1", one)).slowed == {}


def test_what_began_before_a_long_silence_did_not_last_through_it() -> None:
    warm = {"temperature_margin_c": 2}
    scene = Scene("n1").say("n1", facts(NOW, **warm), samples(NOW, throttle_mask=0x40))
    scene.after(120.0).say("n1", facts(scene.now, **warm), samples(scene.now, throttle_mask=0x40))
    assert past(scene).slowed == {(3, "hw_thermal"): NOW}
    scene.after(3_600.0).say("n1", facts(scene.now, **warm), samples(scene.now, throttle_mask=0x40))
    assert past(scene).slowed == {(3, "hw_thermal"): scene.now}
    assert past(scene).margins == {3: ((scene.now, 2),)}


def test_when_a_gpu_was_let_go_is_remembered_until_it_is_used_again() -> None:
    scene = Scene("n1").after(10.0).say("n1", samples(NOW + 10, **IDLE))
    assert past(scene).emptied == {3: NOW + 10}
    assert past(scene.after(10.0).say("n1", samples(scene.now, **IDLE))).emptied == {3: NOW + 10}
    assert past(scene.say("n1", samples(scene.now))).emptied == {}


def test_the_floor_of_ten_minutes_is_remembered_for_six_hours() -> None:
    scene = Scene("n1")
    for minute in range(600):
        scene.after(60.0).say("n1", host(scene.now, memory_used_mib=600_000 + 1_000 * (minute % 10)))
    floors = past(scene).floors
    assert len(floors) == FLOORS
    assert {floor for _, floor in floors[:-1]} == {600_000}
    assert all(at % 600 == 0 for at, _ in floors)


def test_a_reboot_is_distinguished_from_a_clock_that_is_set_anew() -> None:
    scene = Scene("n1").after(60.0)
    scene.say("n1", host(scene.now + 7_200, boot_time=NOW - 90_000))  # its clock jumps; its probe knows its boot time
    assert past(scene).rebooted_at is None
    scene.say("n1", host(scene.now + 7_200, boot_time=NOW - 90_000 + 7_200))  # a new probe reads it by the new clock
    assert past(scene).rebooted_at is None
    scene.after(60.0).say("n1", host(scene.now + 7_200, boot_time=scene.now + 7_200 - 30, memory_used_mib=9_000))
    assert past(scene).rebooted_at == scene.now - 30
    assert past(scene).floors == ((scene.now - scene.now % 600, 9_000),)


def test_a_boot_time_that_drifts_by_a_second_is_the_same_boot() -> None:
    scene = Scene("n1")
    for step in range(200):
        scene.after(60.0).say("n1", host(scene.now, boot_time=NOW - 90_000 + step))
    assert past(scene).rebooted_at is None


def test_nothing_is_remembered_of_a_node_that_is_watched_no_more() -> None:
    assert Scene("n1").reduce(SourceRemoved("node:n1")).state.node_histories == {}


def test_a_row_of_another_session_goes_with_nvmls_next_list_and_a_lost_one_stays() -> None:
    scene = Scene("n1").say("n1", facts(NOW, gpus=7), samples(NOW, gpus=7))
    assert [gpu.index for gpu in scene.state.nodes["n1"].gpus] == list(range(7))
    smi = Scene("n1").say("n1", Hello(1, NOW, "n1", probe="nvidia-smi"), facts(NOW, gpus=7), samples(NOW, gpus=7))
    assert [gpu.state for gpu in smi.state.nodes["n1"].gpus] == ["ok"] * 7 + ["lost"]
    assert past(scene).gpus_most == 8
