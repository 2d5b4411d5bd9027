"""Hosts whose memory is nearly full, leaks away, or ran out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.trainmon.alerting.rules.node_scene import NOW, TOTAL, Scene, host, samples
from trainmon.alerting.rules.nodes import MemoryFull, MemoryLeak, OomKill
from trainmon.model import Finding

FULL, LEAK, OOM = MemoryFull(), MemoryLeak(), OomKill()
HOUR = 3_600.0


def leaking(scene: Scene) -> Scene:
    """The memory of n1 grows without a break."""
    for minutes in range(0, 200, 5):
        scene.after(300.0).say("n1", host(scene.now, memory_used_mib=1_100_000 + 3_000 * minutes))
    return scene


TROUBLE = {
    "memory-full": lambda scene: scene.say("n1", host(scene.now, memory_used_mib=TOTAL)),
    "memory-leak": leaking,
}
"""What makes each rule find something on n1, which then falls silent: see test_silent_nodes."""


def only(found: dict[str, Finding]) -> Finding:
    assert list(found) == ["node:n1"]
    return found["node:n1"]


def used(memory: Callable[[float], float], hours: float = 3.0, scene: Scene | None = None) -> Scene:
    """Node n1 with so much in use, as a function of the hours, told every minute; the other is well."""
    scene = scene or Scene().runs()
    for minute in range(int(hours * 60) + 1):
        scene.after(60.0 if minute else 0.0)
        scene.say("n1", host(scene.now, memory_used_mib=round(memory(minute / 60))))
    return scene.well("n2")


def test_hosts_with_memory_say_nothing() -> None:
    for rule in (FULL, LEAK, OOM):
        assert Scene().runs().found(rule) == {}


# ---- full ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "severity"), [(0.94, None), (0.955, "warning"), (0.985, "critical")])
def test_nearly_full_memory_is_reported(share: float, severity: str | None) -> None:
    found = Scene().runs().say("n1", host(NOW, memory_used_mib=round(share * TOTAL))).found(FULL)
    assert [finding.severity for finding in found.values()] == ([severity] if severity else [])


def test_full_memory_says_how_much_is_left_and_is_over_only_when_that_is_seen() -> None:
    scene = Scene().runs().say("n1", host(NOW, memory_used_mib=round(0.985 * TOTAL)))
    finding = only(scene.found(FULL))
    assert finding.summary == "n1 has 29 GiB of 1.9 TiB memory left (98.5% in use)"
    assert (finding.run, finding.evidence) == ("llm", ("on its GPUs: python train.py",))
    scene.after(120.0).say("n1", samples(scene.now))
    assert scene.found(FULL) == {}
    assert scene.why_unknown(FULL, finding) == "n1 does not report its memory"
    scene.say("n1", host(scene.now))
    assert scene.why_unknown(FULL, finding) is None


# ---- leaks -----------------------------------------------------------------------------------------------------------


def test_a_memory_that_grows_without_a_break_is_reported_with_its_end() -> None:
    scene = used(lambda hours: 1_000_000 + 150_000 * hours)
    finding = only(scene.found(LEAK))
    assert (finding.severity, finding.run) == ("warning", "llm")
    assert finding.summary == (
        "the memory of n1 has grown by 146 GiB per hour for 3h06m: it will run out in 3h46m (1.4 TiB of 1.9 TiB in use)"
    )
    assert len(finding.evidence) == 7


def test_a_leak_that_is_nearly_through_is_critical() -> None:
    assert only(used(lambda hours: 1_400_000 + 150_000 * hours).found(LEAK)).severity == "critical"


def test_a_leak_under_the_saw_teeth_of_a_dataloader_is_seen() -> None:
    scene = used(lambda hours: 1_100_000 + 120_000 * hours + 200_000 * ((60 * hours) % 5 / 5))
    assert only(scene.found(LEAK)).severity == "warning"


CALM: dict[str, Callable[[float], float]] = {
    "steady": lambda hours: 1_500_000,
    "noise": lambda hours: 1_500_000 + 3_000 * ((60 * hours * 7) % 11),
    "saw teeth": lambda hours: 1_300_000 + 400_000 * ((60 * hours) % 25 / 25),
    "long saw teeth": lambda hours: 1_200_000 + 300_000 * (hours % 1.0),
    "a cache that fills": lambda hours: 1_700_000 - 600_000 * 0.2**hours,
    "a start": lambda hours: 1_000_000 + min(hours, 0.5) * 1_000_000,
    "a slow drift": lambda hours: 1_200_000 + 2_000 * hours,
}


@pytest.mark.parametrize("name", CALM)
def test_memory_that_comes_and_goes_or_settles_is_no_leak(name: str) -> None:
    scene = Scene().runs()
    for _ in range(8):
        done = (scene.now - NOW) / HOUR
        used(lambda more, done=done: CALM[name](done + more), 0.5, scene)  # type: ignore[misc]
        assert scene.found(LEAK) == {}, f"{name}, {done + 0.5} h"


def test_a_leak_that_is_silent_is_not_over_and_one_that_restarts_is() -> None:
    scene = used(lambda hours: 1_400_000 + 150_000 * hours)
    finding = only(scene.found(LEAK))
    scene.silent(30.0)
    assert scene.found(LEAK) == {}
    assert scene.why_unknown(LEAK, finding) == "node:n1 is late"
    scene.say("n1", host(scene.now, memory_used_mib=300_000))
    assert scene.found(LEAK) == {}
    assert scene.why_unknown(LEAK, finding) is None


# ---- the kernel's killer ---------------------------------------------------------------------------------------------


def killed(scene: Scene, count: int) -> Scene:
    return scene.say("n1", host(scene.now, oom_kills=count))


def test_a_process_that_the_kernel_ended_is_reported_once() -> None:
    scene = killed(Scene().runs().after(60.0), 1)
    killed(scene.after(30.0), 3)
    finding = only(scene.found(OOM))
    assert (finding.severity, finding.event, finding.since) == ("critical", True, NOW + 60)
    assert finding.summary == "the kernel killed 3 processes on n1 because memory ran out, the last 0s ago"
    assert only(scene.silent(600.0).found(OOM)).since == NOW + 60
    assert scene.silent(1_900.0).found(OOM) == {}


def test_a_later_kill_is_another_episode() -> None:
    scene = killed(Scene().after(60.0), 1)
    killed(scene.after(1_200.0), 2)
    finding = only(scene.found(OOM))
    assert (finding.severity, finding.since) == ("warning", NOW + 1_260)
    assert "killed 1 process on n1" in finding.summary


def test_kills_of_before_and_a_counter_that_begins_again_are_none() -> None:
    scene = Scene("n1")
    scene.state = type(scene.state)()
    assert killed(scene, 17).found(OOM) == {}
    assert killed(scene.after(60.0), 0).found(OOM) == {}
    assert "killed 1 process" in only(killed(scene.after(60.0), 1).found(OOM)).summary
