"""GPUs that slow themselves down."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import NOW, Scene, facts, samples
from trainmon.alerting.rules.gpus.thermal import GpuHot, GpuSlowdown, PowerBrake
from trainmon.model import Finding, GpuLinks, SourceChanged

HOT, SLOW, BRAKE = GpuHot(), GpuSlowdown(), PowerBrake()
HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, BRAKE_BIT = 0x8, 0x20, 0x40, 0x80

TROUBLE = {
    "gpu-hot": lambda scene: scene.say("n1", samples(scene.now, throttle_mask=HW_SLOWDOWN | HW_THERMAL)),
    "gpu-slowdown": lambda scene: scene.say("n1", samples(scene.now, throttle_mask=HW_SLOWDOWN)),
    "power-brake": lambda scene: scene.say("n1", samples(scene.now, throttle_mask=BRAKE_BIT)),
}
"""What makes each rule find something on n1, which then falls silent: see test_silent_nodes."""


def heated(margins: tuple[int | None, ...], temperature_c: int | None = 84, mask: int = 0) -> Scene:
    """GPU 3 of n1 with these margins, 30 s apart, the last just now."""
    scene = Scene()
    for margin in margins:
        scene.after(30.0)
        scene.say("n1", facts(scene.now, temperature_margin_c=margin))
        scene.say("n1", samples(scene.now, temperature_c=temperature_c, throttle_mask=mask))
        scene.well("n2")
    return scene


def only(found: dict[str, Finding]) -> Finding:
    assert list(found) == ["gpu:n1/3"]
    return found["gpu:n1/3"]


def test_a_well_gpu_says_nothing() -> None:
    for rule in (HOT, SLOW, BRAKE):
        assert Scene().found(rule) == {}


def test_two_small_margins_are_hot() -> None:
    finding = only(heated((4, 3)).found(HOT))
    assert (finding.severity, finding.since, finding.node) == ("warning", NOW + 30, "n1")
    assert finding.summary == "GPU 3 of n1 is hot: 84 °C, 3 °C below its limit"
    assert finding.sources == ("node:n1",)
    assert not finding.fires_at_once


def test_one_small_margin_may_be_a_slip_of_the_driver() -> None:
    assert heated((25, 3)).found(HOT) == {}
    assert heated((3, 25)).found(HOT) == {}


def test_degrees_do_not_judge_a_gpu_of_amd_without_limits() -> None:
    """A CPU with a GPU runs at 95 °C all day, and so may a junction."""
    scene = Scene()
    scene.say("n1", facts(scene.now, temperature_margin_c=None, links=GpuLinks()))
    scene.say("n1", samples(scene.now, temperature_c=95, edge_temperature_c=95))
    assert scene.found(HOT) == {}
    assert only(scene.found(GpuHot(absolute=True))).severity == "critical"
    scene.say("n1", samples(scene.now, temperature_c=95, throttle_mask=HW_THERMAL))
    assert only(scene.found(HOT)).summary.startswith("GPU 3 of n1 is throttling: 95 °C")


def test_one_small_margin_with_a_thermal_bit_is_none() -> None:
    assert only(heated((25, 3), mask=SW_THERMAL).found(HOT)).severity == "warning"
    assert only(heated((25, 3), mask=HW_THERMAL).found(HOT)).severity == "warning"


def test_a_margin_of_nothing_on_a_cool_gpu_is_not_believed() -> None:
    assert heated((0, 0, 0, 0), temperature_c=41).found(HOT) == {}


def test_a_margin_of_nothing_is_critical_and_proven_after_a_minute() -> None:
    assert only(heated((0, -1)).found(HOT)).severity == "critical"
    assert not only(heated((0, -1)).found(HOT)).fires_at_once
    assert only(heated((0, -1, -1)).found(HOT)).fires_at_once
    assert not only(heated((5, 5, 0, 0)).found(HOT)).fires_at_once


def test_a_minute_in_which_this_program_stood_still_proves_nothing() -> None:
    scene = heated((-1, -1, -1))
    scene.state = replace(scene.state, clock_jumped_at=NOW + 60)
    assert not only(scene.found(HOT)).fires_at_once
    scene.state = replace(scene.state, clock_jumped_at=NOW + 30)
    assert only(scene.found(HOT)).fires_at_once


def test_heat_that_slows_a_gpu_is_reported_with_its_time() -> None:
    finding = only(heated((-2, -2, -2, -2, -2), temperature_c=88, mask=HW_THERMAL | HW_SLOWDOWN).found(HOT))
    assert finding.severity == "critical"
    assert finding.summary.endswith("is throttling: 88 °C, at its limit, for 2m")


def test_a_thermal_bit_alone_is_a_warning() -> None:
    assert only(heated((25, 25), mask=HW_THERMAL).found(HOT)).severity == "warning"


@pytest.mark.parametrize(("degrees", "severity"), [(84, None), (85, "warning"), (90, "critical")])
def test_degrees_count_only_where_no_margin_is_reported(degrees: int, severity: str | None) -> None:
    found = heated((None, None), temperature_c=degrees).found(HOT)
    assert [finding.severity for finding in found.values()] == ([severity] if severity else [])
    assert heated((25, 25), temperature_c=degrees).found(HOT) == {}


def test_hot_memory_counts_where_no_margin_is_reported() -> None:
    scene = Scene().say("n1", facts(NOW, temperature_margin_c=None), samples(NOW, memory_temperature_c=95))
    assert "memory 95 °C" in only(scene.found(HOT)).summary
    scene.say("n1", samples(NOW, memory_temperature_c=94))
    assert scene.found(HOT) == {}


def test_degrees_count_beside_a_margin_where_that_is_wanted() -> None:
    assert only(heated((25, 25), temperature_c=90).found(GpuHot(absolute=True))).severity == "critical"


def test_the_margins_that_count_are_settings() -> None:
    assert only(heated((9, 8)).found(GpuHot(margin_c=10))).severity == "warning"


def test_a_gpu_that_cools_down_is_well_again() -> None:
    scene = heated((0, 0))
    finding = only(scene.found(HOT))
    scene.say("n1", facts(scene.now), samples(scene.now))
    assert scene.found(HOT) == {}
    assert scene.why_unknown(HOT, finding) is None


def test_numbers_that_come_every_five_minutes_are_no_older_than_that() -> None:
    scene = heated((0, 0))
    scene.reduce(SourceChanged(replace(scene.state.sources["node:n1"], period=300.0)))
    scene.now += 290.0
    scene.reduce()
    assert list(scene.found(HOT)) == ["gpu:n1/3"]
    scene.now += 700.0
    assert scene.reduce().found(HOT) == {}


def test_a_gpu_that_no_longer_reports_its_heat_is_not_resolved() -> None:
    scene = heated((0, 0))
    finding = only(scene.found(HOT))
    scene.say("n1", facts(scene.now, temperature_margin_c=None), samples(scene.now, temperature_c=None))
    assert scene.found(HOT) == {}
    assert scene.why_unknown(HOT, finding) == "GPU 3 does not report its temperature"


def test_eight_cool_gpus_that_crawl_under_a_power_brake_are_critical() -> None:
    scene = Scene().runs()
    for _ in range(2):
        scene.after(60.0).well("n2")
        scene.say("n1", facts(scene.now))
        for index in range(8):
            crawling = samples(
                scene.now, odd=index, temperature_c=34, power_w=67.0, sm_clock_mhz=86,
                throttle_mask=HW_SLOWDOWN | BRAKE_BIT,
            )  # fmt: skip
            rows = (crawling.g[index],)
            scene.say("n1", type(crawling)(1, scene.now, rows))
    found = scene.found(BRAKE)
    assert sorted(found) == [f"gpu:n1/{index}" for index in range(8)]
    finding = found["gpu:n1/0"]
    assert (finding.severity, finding.run, finding.fires_at_once) == ("critical", "llm", True)
    assert finding.summary.startswith(
        "GPU 0 of n1 is slowed down by its power brake (for 1m): 34 °C, 86 MHz, 67 W of 700 W"
    )
    assert finding.summary.endswith("0 uncorrected ECC errors")
    assert scene.found(HOT) == {}
    assert scene.found(SLOW) == {}


def test_a_hardware_slowdown_without_heat_is_reported_by_itself() -> None:
    scene = Scene().say("n1", samples(NOW, sm_clock_mhz=1_100, throttle_mask=HW_SLOWDOWN))
    assert only(scene.found(SLOW)).severity == "warning"
    assert scene.found(HOT) == {}
    scene.say("n1", samples(NOW, sm_clock_mhz=210, throttle_mask=HW_SLOWDOWN))
    assert only(scene.found(SLOW)).severity == "critical"


def test_a_slowdown_by_heat_is_the_rule_of_heat() -> None:
    scene = heated((0, 0), mask=HW_SLOWDOWN | HW_THERMAL)
    assert list(scene.found(HOT)) == ["gpu:n1/3"]
    assert scene.found(SLOW) == {}


def test_an_idle_gpu_with_a_low_clock_does_not_crawl() -> None:
    scene = Scene().say("n1", samples(NOW, sm_clock_mhz=345, throttle_mask=BRAKE_BIT | 0x1))
    assert only(scene.found(BRAKE)).severity == "warning"


def test_a_power_limit_is_no_slowdown() -> None:
    scene = Scene().say("n1", samples(NOW, throttle_mask=0x4 | 0x2 | 0x10 | 0x100))
    for rule in (HOT, SLOW, BRAKE):
        assert scene.found(rule) == {}
