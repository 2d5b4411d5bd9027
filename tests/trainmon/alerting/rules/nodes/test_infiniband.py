"""InfiniBand ports."""

from __future__ import annotations

import pytest

from tests.trainmon.alerting.rules.asked import why_unknown
from tests.trainmon.alerting.rules.node_scene import NOW, Scene, alert, host, port
from trainmon.alerting.rules.nodes import InfinibandDown, InfinibandFlapping
from trainmon.model import Finding, InfinibandPort, State

DOWN, FLAPPING = InfinibandDown(), InfinibandFlapping()
PORT = "node:n1 mlx5_1/1"

TROUBLE = {
    "infiniband-down": lambda scene: scene.say("n1", host(scene.now, **port(state="DOWN"))),
    "infiniband-flapping": lambda scene: scene.after(60).say("n1", host(scene.now, **port(link_downed=1))),
}
"""What makes each rule find something on n1, which then falls silent: see test_silent_nodes."""


def only(found: dict[str, Finding]) -> Finding:
    assert list(found) == [PORT]
    return found[PORT]


def test_ports_that_are_up_say_nothing() -> None:
    for rule in (DOWN, FLAPPING):
        assert Scene().runs().found(rule) == {}


@pytest.mark.parametrize("word", ["DOWN", "INIT", "ARMED"])
def test_a_port_that_was_up_and_is_not_is_critical_under_a_run(word: str) -> None:
    scene = Scene().runs().say("n1", host(NOW, **port(state=word)))
    finding = only(scene.found(DOWN))
    assert (finding.severity, finding.run) == ("critical", "llm")
    assert finding.summary == f"InfiniBand port mlx5_1/1 of n1 is {word}; 1 of 2 ports are ACTIVE"
    assert finding.evidence == ("mlx5_0/1: ACTIVE", f"mlx5_1/1: {word}")


def test_a_port_that_was_never_up_is_no_fault() -> None:
    scene = Scene()
    ports = (*port()["infiniband"], InfinibandPort("mlx5_9/1", "DOWN", 0, 0))
    assert scene.say("n1", host(NOW, infiniband=ports)).found(DOWN) == {}


def test_a_port_that_was_never_up_and_is_on_nearly_all_others_is_one() -> None:
    names = tuple(f"n{number}" for number in range(2, 13))
    scene = Scene(*names).say("n1", host(NOW, **port(state="DOWN")))
    assert only(scene.found(DOWN)).severity == "warning"
    few = Scene("n2", "n3").say("n1", host(NOW, **port(state="DOWN")))
    assert few.found(DOWN) == {}


def test_an_adapter_that_is_gone_is_reported_and_over_only_when_it_is_back() -> None:
    scene = Scene().say("n1", host(NOW, infiniband=port()["infiniband"][:1]))
    finding = only(scene.found(DOWN))
    assert "is gone" in finding.summary
    scene.say("n1", host(NOW, infiniband=()))  # a probe that starts anew has not looked yet
    assert scene.found(DOWN) == {}
    assert scene.why_unknown(DOWN, finding) == "n1 does not report its port mlx5_1/1"
    scene.say("n1", host(NOW))
    assert scene.why_unknown(DOWN, finding) is None


def test_a_restart_of_this_program_does_not_bring_a_port_up() -> None:
    scene = Scene().say("n1", host(NOW, **port(state="DOWN")))
    finding = only(scene.found(DOWN))
    scene.state = State()
    scene.well("n2").say("n1", host(NOW, **port(state="DOWN")))
    assert scene.found(DOWN) == {}, "it does not know yet that it was up"
    assert scene.why_unknown(DOWN, finding) == "mlx5_1/1 is DOWN; it has never been ACTIVE since this program started"
    scene.say("n1", host(NOW))
    assert scene.why_unknown(DOWN, finding) is None


def test_a_port_whose_state_cannot_be_read_is_not_known() -> None:
    scene = Scene().say("n1", host(NOW, **port(state="DOWN")))
    finding = only(scene.found(DOWN))
    scene.say("n1", host(NOW, **port(state=None)))
    assert scene.found(DOWN) == {}
    assert scene.why_unknown(DOWN, finding) == "n1 does not report its port mlx5_1/1"


def fell(scene: Scene, times: int, errors: int = 0) -> Scene:
    return scene.say("n1", host(scene.now, **port(link_downed=times, errors=errors)))


def test_a_link_that_fell_once_is_a_warning_and_twice_in_five_minutes_critical() -> None:
    scene = fell(Scene().runs().after(60.0), 1)
    finding = only(scene.found(FLAPPING))
    assert (finding.severity, finding.run) == ("warning", "llm")
    assert finding.summary == "InfiniBand port mlx5_1/1 of n1 went down 1 time in 10m, the last 0s ago"
    finding = only(fell(scene.after(120.0), 2).found(FLAPPING))
    assert finding.severity == "critical"
    assert finding.evidence == ("1 more, 2m ago", "1 more, 0s ago")


def test_two_falls_far_apart_are_a_warning_each() -> None:
    scene = fell(Scene().runs().after(60.0), 1)
    assert only(fell(scene.after(400.0), 2).found(FLAPPING)).severity == "warning"


def test_a_link_that_fell_is_not_trusted_for_ten_minutes() -> None:
    scene = fell(Scene().after(60.0), 1)
    finding = only(scene.found(FLAPPING))
    fell(scene.after(590.0), 1)
    assert only(scene.found(FLAPPING)) is not None
    fell(scene.after(20.0), 1)
    assert scene.found(FLAPPING) == {}
    assert scene.why_unknown(FLAPPING, finding) is None


def test_a_restart_of_this_program_does_not_make_a_link_sound() -> None:
    scene = fell(Scene().after(60.0), 1)
    finding = only(scene.found(FLAPPING))
    scene.after(60.0)
    scene.state = State(at=scene.now, started_at=scene.now)
    fell(scene, 1)
    assert scene.found(FLAPPING) == {}
    known = alert(finding, scene.now - 60)
    assert why_unknown(FLAPPING, scene.state, known, scene.now) == "it went down before this program started"
    fell(scene.after(600.0), 1)
    assert why_unknown(FLAPPING, scene.state, known, scene.now) is None


def test_a_driver_that_is_loaded_again_counts_from_nothing() -> None:
    scene = Scene("n1")
    scene.state = type(scene.state)()
    fell(scene, 40, errors=900_000)
    fell(scene.after(60.0), 0, errors=0)
    assert scene.found(FLAPPING) == {}
    assert "went down 1 time" in only(fell(scene.after(60.0), 1).found(FLAPPING)).summary


def test_some_errors_are_usual_and_many_a_warning() -> None:
    scene = fell(Scene().after(60.0), 0, errors=900)
    assert scene.found(FLAPPING) == {}
    finding = only(fell(scene.after(60.0), 0, errors=2_000).found(FLAPPING))
    assert (finding.severity, finding.summary) == (
        "warning",
        "InfiniBand port mlx5_1/1 of n1 had 2,000 errors in 10m",
    )


def test_a_port_that_fell_and_erred_is_reported_once() -> None:
    scene = fell(Scene().after(60.0), 1, errors=50_000)
    assert len(list(FLAPPING.check(scene.state, scene.now))) == 1


def test_a_port_that_is_no_longer_reported_is_not_resolved() -> None:
    scene = fell(Scene().after(60.0), 1)
    finding = only(scene.found(FLAPPING))
    scene.after(900.0).say("n1", host(scene.now, infiniband=()))
    assert scene.found(FLAPPING) == {}
    assert scene.why_unknown(FLAPPING, finding) == "n1 does not report its port mlx5_1/1"
