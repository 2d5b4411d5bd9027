"""A channel that is down: others deliver in its place, in time and once; when it works again it gets one summary."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.notify.delivery.scene import Phone, Scene, Shifted, fire, opened, until
from tests.trainmon.alerting.notify.delivery.test_service_ledger import Stuck
from tests.trainmon.alerting.notify.samples import alert, beat, over
from trainmon.alerting.notify.delivery.due import CRITICAL_OVERDUE, OVERDUE
from trainmon.alerting.notify.message import Attachment, Broken, Retry
from trainmon.model import Channel, ChannelsChanged, Route, State

DOWN = Retry("503 service unavailable")
ROUTES = (Route(channel="phone"), Route(channel="mail"), Route(channel="spare", fallback=True))
HOUR = 3_600.0


def is_tried(phone: Phone, scene: Scene, key: str = "a-fire") -> bool:
    rows = scene.rows(f"SELECT attempts, state FROM outbox WHERE key = '{key}' AND channel = '{phone.health.name}'")
    return bool(rows) and rows[0][0] > 0 and rows[0][1] == "waiting"


def state_of(scene: Scene, key: str, channel: str) -> str:
    rows = scene.rows(f"SELECT state FROM outbox WHERE key = '{key}' AND channel = '{channel}'")
    return str(rows[0][0]) if rows else "none"


def recover(phone: Phone, clock: Shifted) -> None:
    """It works again, and is tried at once: the machine's clock jumps, as when it wakes up."""
    phone.always = None
    clock.by += 400.0


def health(scene: Scene, name: str) -> Channel:
    return [one for event in scene.of(ChannelsChanged) for one in event.channels if one.name == name][-1]


@pytest.mark.parametrize(("severity", "limit"), [("critical", CRITICAL_OVERDUE), ("warning", OVERDUE)])
def test_a_fallback_delivers_what_a_channel_that_is_down_cannot(tmp_path: Path, severity: str, limit: float) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = DOWN
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire(severity=severity))
        until(lambda: is_tried(phone, scene))
        clock.passed = limit / 2
        until(lambda: len(phone.tried) > 1)
        assert spare.tried == [], "a blip"
        clock.passed = limit + 1.0
        until(lambda: spare.keys == ["a-fire"])
        (found,) = spare.taken[0].notices
        assert found.reason == "fired; phone could not deliver it: 503 service unavailable"
        assert [pair[0] for pair in spare.taken[0].acknowledge] == ["a"], "its button works as the phone's does"
        until(lambda: (health(scene, "phone").overdue, health(scene, "phone").waiting) == (1, 0))
        scene.enqueue(fire("b"))
        until(lambda: spare.keys == ["a-fire", "b-fire"], "what is critical goes at once now")


def test_a_channel_that_recovers_gets_one_summary_that_says_what_still_fires(tmp_path: Path) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = DOWN

    def curve(_: Sequence[Any]) -> tuple[Attachment, ...]:
        return (Attachment(name="loss.png", media_type="image/png", data=b"png"),)

    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock, attach=curve) as scene:
        first = fire("a")
        scene.enqueue(first, fire("b"), fire("c"))
        until(lambda: all(is_tried(phone, scene, f"{name}-fire") for name in "abc"))
        clock.passed = 50.0
        until(lambda: sorted(spare.keys) == ["a-fire", "b-fire", "c-fire"])
        assert spare.taken[0].attachments, "with its pictures"
        scene.enqueue(over(first.alerts[0], scene.clock.now()))
        until(lambda: "a-resolve" in spare.keys)
        alerts = {name: alert(id=name, subject=f"run:{name}") for name in "ab"}
        alerts["a"] = replace(alerts["a"], phase="resolved", resolved_at=clock.now(), ended="over")
        alerts["b"] = replace(alerts["b"], acknowledged_by="ann")
        now = clock.now()
        scene.service.tick(State(at=now, started_at=now, evaluated_at=now, alerts=alerts))
        until(lambda: state_of(scene, "a-resolve", "spare") == "sent")
        recover(phone, clock)
        until(lambda: phone.taken)
        scene.until_marked()
        (message,) = phone.taken
        assert message.title == "1 alert still firing: while phone was down, 4 messages went by spare"
        assert message.body.splitlines()[:3] == [
            "while phone was down, 4 messages went by spare; the first 7m ago",
            "still firing: video-2b: run-dead",
            "over: video-2b: run-dead; video-2b: run-dead",
        ]
        assert "acknowledged by ann" in message.body
        assert message.severity == "info", "somebody has taken what still fires, and nobody is woken"
        assert not message.attachments
        scene.enqueue(fire("d"))
        until(lambda: phone.keys[-1:] == ["d-fire"])
        assert "d-fire" not in spare.keys, "the fallback is a fallback again"


def test_what_still_fires_and_nobody_has_taken_rings_again(tmp_path: Path) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = DOWN
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire())
        until(lambda: is_tried(phone, scene))
        clock.passed = 50.0
        until(lambda: state_of(scene, "a-fire", "spare") == "sent")
        recover(phone, clock)
        until(lambda: phone.taken)
        assert phone.taken[0].severity == "critical"
        assert [pair[0] for pair in phone.taken[0].acknowledge] == ["a"]


def test_a_try_that_hangs_delays_no_fallback(tmp_path: Path) -> None:
    phone, spare, clock, go = Phone(), Phone("spare"), Shifted(), threading.Event()
    phone.script.append(go)
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire("w", severity="warning"))
        until(lambda: phone.tried)
        scene.enqueue(fire())
        until(lambda: scene.rows("SELECT 1 FROM outbox WHERE key = 'a-fire'"))
        clock.passed = 50.0
        until(lambda: clock.passes() and spare.keys == ["a-fire"], "it waited behind the one that hangs")
        assert spare.taken[0].notices[0].reason == "fired; phone could not deliver it: it does not answer"
        go.set()


def test_a_long_retry_after_silences_nothing(tmp_path: Path) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.script.append(Retry("429 too many requests", after=86_400.0))
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire())
        until(lambda: spare.keys == ["a-fire"], "nobody waits a day for it")
        until(lambda: state_of(scene, "a-fire", "spare") == "sent")
        clock.passed = 240.0
        scene.enqueue(fire("b"))
        until(lambda: phone.keys[:1] == ["b-fire"], "it is asked again")
        until(lambda: phone.keys == ["b-fire", "a-fire"], "and it works: the summary follows")


@pytest.mark.parametrize("is_down_again", [True, False])
def test_a_restart_neither_forgets_nor_repeats_what_a_fallback_was_given(tmp_path: Path, is_down_again: bool) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = DOWN
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire())
        until(lambda: is_tried(phone, scene))
        clock.passed = 50.0
        until(lambda: state_of(scene, "a-fire", "spare") == "sent")
    phone.always = DOWN if is_down_again else None
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=Shifted(100.0)) as scene:
        if is_down_again:
            scene.enqueue(fire("b"))
            until(lambda: is_tried(phone, scene, "b-fire"))
            assert spare.keys == ["a-fire"]
        else:
            until(lambda: phone.taken)
            assert phone.taken[0].title == "1 alert still firing: while phone was down, 1 message went by spare"
            scene.until_marked()
    assert spare.keys == ["a-fire"]


def test_what_an_earlier_program_could_not_deliver_is_passed_on_as_soon_as_it_fails_again(tmp_path: Path) -> None:
    """As with --once in cron, a program a minute."""
    phone, spare = Phone(), Phone("spare")
    phone.always = DOWN
    with opened(tmp_path, phone, spare, routes=ROUTES) as scene:
        scene.enqueue(fire())
        until(lambda: is_tried(phone, scene))
    assert spare.keys == []
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=Shifted(60.0)):
        until(lambda: spare.keys == ["a-fire"])


@pytest.mark.parametrize("fault", ["fails", "hangs"])
def test_at_the_end_the_fallback_delivers_what_others_cannot(tmp_path: Path, fault: str) -> None:
    """With --once the next program begins minutes later."""
    phone, spare, go = Phone(), Phone("spare"), threading.Event()
    phone.script.append(DOWN if fault == "fails" else go)
    phone.always = DOWN
    scene = Scene(tmp_path, phone, spare, routes=ROUTES)
    scene.start()
    until(lambda: scene.holder == "us")
    scene.enqueue(fire(), beat(at=scene.clock.now()))
    scene.stop()
    go.set()
    assert spare.keys == ["a-fire"]
    phone.always = None
    with opened(tmp_path, phone, spare, routes=ROUTES) as scene:
        until(lambda: any("went by spare" in message.title for message in phone.taken))
        scene.until_marked()
    assert spare.keys == ["a-fire"]


def test_what_the_fallback_has_not_sent_yet_it_need_not_when_the_channel_works_again(tmp_path: Path) -> None:
    """Such as when the network was away: all channels were down, and all work again."""
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = spare.always = DOWN
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire())
        until(lambda: is_tried(phone, scene))
        clock.passed = 50.0
        until(lambda: spare.tried)
        until(lambda: state_of(scene, "a-fire", "spare") == "waiting")
        recover(phone, clock)
        until(lambda: phone.keys == ["a-fire"])
        assert "while phone was down" not in phone.taken[0].title
        until(lambda: state_of(scene, "a-fire", "spare") == "stopped")
        spare.always = None
        scene.enqueue(fire("b", "phone", "spare"))
        until(lambda: spare.keys == ["b-fire"])


def test_where_the_fallback_fails_as_well_others_deliver(tmp_path: Path) -> None:
    phone, mail, spare, clock = Phone(), Phone("mail"), Phone("spare"), Shifted()
    phone.always = spare.always = DOWN
    with opened(tmp_path, phone, mail, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire("a", "phone"))
        until(lambda: is_tried(phone, scene))
        clock.passed = 50.0
        until(lambda: spare.tried)
        until(lambda: mail.keys == ["a-fire"])
        until(lambda: state_of(scene, "a-fire", "spare") == "stopped")
        recover(phone, clock)
        until(lambda: phone.taken)
        assert phone.taken[0].title == "1 alert still firing: while phone was down, 1 message went by mail"


def test_a_fallback_that_fails_as_well_is_given_what_a_channel_refuses(tmp_path: Path) -> None:
    phone, mail, spare = Phone(), Phone("mail"), Phone("spare")
    spare.always, phone.always = DOWN, Broken("401 unauthorized")
    with opened(tmp_path, phone, mail, spare, routes=ROUTES) as scene:
        scene.enqueue(fire("a", "spare"))
        until(lambda: is_tried(spare, scene))
        scene.enqueue(fire("b", "phone", "mail"))
        until(lambda: state_of(scene, "b-fire", "spare") == "waiting")
        until(lambda: mail.keys == ["b-fire"])


def test_all_fallbacks_deliver_and_the_summary_names_them(tmp_path: Path) -> None:
    phone, spare, pager, clock = Phone(), Phone("spare"), Phone("pager"), Shifted()
    phone.always = DOWN
    routes = (*ROUTES, Route(channel="pager", severity="critical", fallback=True))
    with opened(tmp_path, phone, spare, pager, routes=routes, clock=clock) as scene:
        scene.enqueue(fire())
        until(lambda: is_tried(phone, scene))
        clock.passed = 50.0
        until(lambda: {state_of(scene, "a-fire", name) for name in ("spare", "pager")} == {"sent"})
        assert (spare.keys, pager.keys) == (["a-fire"], ["a-fire"])
        recover(phone, clock)
        until(lambda: phone.taken)
        assert "1 message went by pager and spare" in phone.taken[0].title


def test_a_fallback_stands_in_for_the_one_channel_of_several_that_is_down(tmp_path: Path) -> None:
    phone, mail, spare, clock = Phone(), Phone("mail"), Phone("spare"), Shifted()
    phone.always = DOWN
    with opened(tmp_path, phone, mail, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire("a", "phone", "mail"))
        until(lambda: is_tried(phone, scene) and mail.keys)
        clock.passed = 50.0
        until(lambda: spare.keys == ["a-fire"])
        assert mail.keys == ["a-fire"]


def test_without_a_fallback_others_deliver_only_what_else_nobody_would_get(tmp_path: Path) -> None:
    phone, mail, pager, clock = Phone(), Phone("mail"), Phone("pager"), Shifted()
    phone.always = DOWN
    routes = (Route(channel="phone"), Route(channel="mail"), Route(channel="pager", severity="critical"))
    with opened(tmp_path, phone, mail, pager, routes=routes, clock=clock) as scene:
        scene.enqueue(fire("a", "phone", "mail"), fire("b", "phone"))
        until(lambda: is_tried(phone, scene) and is_tried(phone, scene, "b-fire"))
        clock.passed = 50.0
        until(lambda: sorted(mail.keys) == ["a-fire", "b-fire"])
        until(lambda: pager.keys == ["b-fire"])
        until(lambda: health(scene, "phone").overdue == 2)


def test_a_ledger_that_is_stuck_delays_no_fallback_and_nothing_is_sent_twice(tmp_path: Path) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = DOWN
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock, factory=Stuck, patience=1.0) as scene:
        scene.enqueue(fire())
        until(lambda: is_tried(phone, scene))
        Stuck.hang()
        try:
            clock.passed = 50.0
            until(lambda: "a-fire" in spare.keys)
        finally:
            Stuck.let_go()
        until(lambda: state_of(scene, "a-fire", "spare") == "sent")
        recover(phone, clock)
        until(lambda: any("went by spare" in message.title for message in phone.taken))
        assert spare.keys.count("a-fire") == 1


def test_a_fallback_with_resolved_off_gets_no_resolved_notification(tmp_path: Path) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = DOWN
    routes = (Route(channel="phone"), Route(channel="spare", fallback=True, resolved=False))
    with opened(tmp_path, phone, spare, routes=routes, clock=clock) as scene:
        first = fire()
        scene.enqueue(first)
        until(lambda: is_tried(phone, scene))
        clock.passed = 50.0
        until(lambda: spare.keys == ["a-fire"])
        scene.enqueue(over(first.alerts[0], clock.now()), fire("b"))
        until(lambda: spare.keys == ["a-fire", "b-fire"])
        recover(phone, clock)
        until(lambda: phone.taken)
        assert phone.taken[0].title == "1 alert still firing: while phone was down, 2 messages went by spare"


def test_signs_of_life_are_not_passed_on(tmp_path: Path) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = DOWN
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(beat(at=clock.now(), expires_at=clock.now() + 4 * HOUR))
        until(lambda: is_tried(phone, scene, "heartbeat-1"))
        clock.passed = 1_000.0
        scene.enqueue(fire())
        until(lambda: spare.keys == ["a-fire"])


def test_a_channel_whose_config_changes_while_it_is_down_still_gets_its_summary(tmp_path: Path) -> None:
    phone, spare, clock = Phone(), Phone("spare"), Shifted()
    phone.always = DOWN
    with opened(tmp_path, phone, spare, routes=ROUTES, clock=clock) as scene:
        scene.enqueue(fire())
        until(lambda: is_tried(phone, scene))
        clock.passed = 50.0
        until(lambda: state_of(scene, "a-fire", "spare") == "sent")
        phone.always = None
        scene.service.reload((phone, spare), ROUTES)
        until(lambda: phone.taken)
        assert phone.taken[0].title == "1 alert still firing: while phone was down, 1 message went by spare"
        assert spare.keys == ["a-fire"]
