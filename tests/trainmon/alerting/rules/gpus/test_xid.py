"""Xids by class."""

from __future__ import annotations

import pytest

from tests.trainmon.alerting.rules.node_scene import NOW, Scene, facts, samples
from trainmon.alerting.rules.gpus.faults import XidSeen
from trainmon.model import Finding, Hello, State, Xid

RULE = XidSeen()


def with_xid(code: int, text: str | None = None, index: int | None = 3, scene: Scene | None = None) -> Scene:
    scene = scene or Scene().runs().after(2.0)
    return scene.say("n1", Xid(1, scene.now, code, index=index, text=text, source="kernel" if text else "nvml"))


def only(found: dict[str, Finding]) -> Finding:
    assert len(found) == 1
    return next(iter(found.values()))


def test_without_an_xid_nothing_is_reported() -> None:
    assert Scene().found(RULE) == {}


def test_an_xid_of_the_hardware_is_critical_and_names_the_code() -> None:
    finding = only(with_xid(79, "pid='<unknown>', GPU has fallen off the bus.").found(RULE))
    assert (finding.subject, finding.severity, finding.event) == ("gpu:n1/3 xid 79", "critical", False)
    assert (finding.run, finding.node, finding.since) == ("llm", "n1", NOW + 2)
    assert finding.summary == "Xid 79 on GPU 3 of n1: GPU has fallen off the bus, 0s ago"
    assert finding.evidence == ("Xid 79: pid='<unknown>', GPU has fallen off the bus.",)
    assert "press X" in finding.advice


@pytest.mark.parametrize("code", [13, 31, 94])
def test_an_xid_of_a_program_is_reported_once_as_evidence(code: int) -> None:
    finding = only(with_xid(code).found(RULE))
    assert (finding.severity, finding.event, finding.evidence) == ("warning", True, (f"Xid {code}, reported by NVML",))


@pytest.mark.parametrize("code", range(144, 151))
def test_an_nvlink_error_without_its_text_may_be_nonfatal_and_drains_no_node(code: int) -> None:
    finding = only(with_xid(code).found(RULE))
    assert (finding.severity, finding.event) == ("warning", True)
    assert finding.summary.endswith("error, fatal or not, 0s ago")
    assert "press X" not in finding.advice
    assert only(with_xid(code, "NVLink: RLW_REMAP Fatal XC1 i0 Link 03").found(RULE)).severity == "critical"


def test_an_xid_that_only_prometheus_has_is_not_said_to_be_of_nvml() -> None:
    scene = Scene().runs().after(2.0)
    found = scene.say("n1", Xid(1, scene.now, 79, index=3, source="prometheus")).found(RULE)
    assert only(found).evidence == ("Xid 79, reported by Prometheus",)


def test_an_xid_of_somebody_elses_program_is_an_information() -> None:
    assert only(with_xid(31, scene=Scene()).found(RULE)).severity == "info"
    assert only(with_xid(79, scene=Scene()).found(RULE)).severity == "critical", "the hardware is everybody's"


@pytest.mark.parametrize("code", [43, 45, 63])
def test_what_is_never_a_cause_alone_is_not_reported(code: int) -> None:
    assert with_xid(code).found(RULE) == {}


def test_a_code_that_nobody_knows_is_to_be_looked_up() -> None:
    finding = only(with_xid(1234, "a new fault").found(RULE))
    assert (finding.severity, finding.event) == ("warning", True)
    assert finding.advice.startswith("look it up")


def test_of_154_the_text_decides() -> None:
    words = "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
    assert only(with_xid(154, words).found(RULE)).severity == "critical"
    assert with_xid(154, "GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)").found(RULE) == {}


def test_a_nonfatal_fault_neither_drains_a_node_nor_hides_a_fatal_one() -> None:
    mild = only(with_xid(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13").found(RULE))
    assert (mild.severity, mild.event, "drain" in mild.advice) == ("warning", True, False)
    scene = with_xid(145, "RLW_RXPIPE Fatal XC0 i0 Link 13").after(30.0)
    both = only(with_xid(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13", scene=scene).found(RULE))
    assert (both.severity, both.event, "drain" in both.advice) == ("critical", False, True)


def test_a_recovery_that_the_driver_reports_ends_the_fault() -> None:
    scene = with_xid(119)
    assert only(scene.found(RULE)).severity == "critical"
    scene.after(60.0)
    with_xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", scene=scene)
    assert scene.found(RULE) == {}


def test_a_reboot_ends_a_fault_of_the_hardware() -> None:
    scene = with_xid(79)
    finding = only(scene.found(RULE))
    scene.after(300.0).say("n1", Hello(1, scene.now, "n1", probe="nvml", boot_time=scene.now - 100))
    assert scene.found(RULE) == {}
    assert scene.why_unknown(RULE, finding) is None


def test_a_fault_stays_while_its_node_is_silent_and_is_forgotten_after_hours() -> None:
    scene = with_xid(79).silent(3_600.0)
    assert scene.state.sources["node:n1"].health == "late"
    assert only(scene.found(RULE)).summary.endswith("1h ago")
    finding = only(scene.found(RULE))
    scene.silent(6 * 3_600.0)
    assert scene.found(RULE) == {}
    assert scene.why_unknown(RULE, finding) == "node:n1 is late"
    scene.say("n1", facts(scene.now), samples(scene.now))
    assert scene.why_unknown(RULE, finding) is None


def restarted(scene: Scene, seconds: float = 60.0) -> Scene:
    """This program begins anew: it remembers nothing of what the nodes told."""
    scene.now += seconds
    scene.state = State(at=scene.now, started_at=scene.now)
    return scene.well("n1")


def test_a_restart_of_this_program_does_not_resolve_a_fault() -> None:
    scene = with_xid(79)
    finding = only(scene.found(RULE))
    assert restarted(scene).found(RULE) == {}
    assert "before this program started" in (scene.why_unknown(RULE, finding) or "")
    scene.after(300.0).say("n1", Hello(1, scene.now, "n1", probe="nvml", boot_time=scene.now - 100))
    assert scene.why_unknown(RULE, finding) is None
    scene = with_xid(79)
    finding = only(scene.found(RULE))
    assert restarted(scene, 7 * 3_600.0).why_unknown(RULE, finding) is None


def test_a_program_that_faults_again_and_again_is_one_episode() -> None:
    scene = with_xid(31)
    for _ in range(20):
        with_xid(31, scene=scene.after(30.0))
    finding = only(scene.found(RULE))
    assert finding.since == NOW + 2
    assert "21 times in 10m" in finding.summary
    with_xid(31, scene=scene.after(1_000.0))
    assert only(scene.found(RULE)).since == scene.now


def test_an_xid_that_a_new_connection_reports_again_is_no_new_one() -> None:
    scene = with_xid(79)
    at = scene.now
    scene.after(60.0).say("n1", Xid(1, at, 79, index=3, text="GPU has fallen off the bus."))
    assert only(scene.found(RULE)).since == at
    assert "times" not in only(scene.found(RULE)).summary


def test_a_fault_of_an_nvswitch_is_its_nodes() -> None:
    scene = with_xid(20034, "NVSwitch: Fatal, Link 30 LTSSM Fault Up", index=None)
    finding = only(scene.found(RULE))
    assert (finding.subject, finding.severity) == ("node:n1 sxid 20034", "critical")
    assert with_xid(12028, "NVSwitch: Non-fatal, Link 61", index=None).found(RULE)["node:n1 sxid 12028"].event


def test_an_xid_of_a_gpu_that_the_driver_does_not_name_is_its_nodes() -> None:
    assert list(with_xid(79, "gone", index=None).found(RULE)) == ["node:n1 xid 79"]


def test_classes_may_be_set_otherwise() -> None:
    assert only(with_xid(94).found(XidSeen(critical=(94,)))).severity == "critical"
    assert with_xid(31).found(XidSeen(ignore=(31,))) == {}


def test_text_from_a_node_is_made_harmless() -> None:
    finding = only(with_xid(79, "fell \x1b[31moff the bus token=abcdefghijklmnop1234").found(RULE))
    assert "fell off the bus token=***" in finding.evidence[0]
