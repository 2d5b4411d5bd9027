"""The daily budget with a real ledger: it counts over a restart, and plots stay away near the limit."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.trainmon.alerting.notify.delivery.scene import Phone, Scene, fire, opened, until
from tests.trainmon.alerting.notify.samples import alert, notice
from trainmon.alerting.notify.message import Attachment
from trainmon.ledger.reader import alerts_now
from trainmon.model import Channel, ChannelsChanged


def phone(per_day: int) -> Phone:
    made = Phone()
    made.health = replace(made.health, per_day=per_day)
    return made


def test_a_restart_does_not_give_a_channel_a_new_budget(tmp_path: Path) -> None:
    first = phone(10)
    with opened(tmp_path, first) as scene:
        for name in "abcdefg":
            scene.enqueue(fire(name, severity="warning"))
            until(lambda name=name: f"{name}-fire" in first.keys, name)
        scene.until_marked()
    second = phone(10)
    with opened(tmp_path, second) as scene:
        scene.enqueue(fire("later", severity="warning"))
        until(lambda: scene.of(ChannelsChanged)[-1:] and health(scene).waiting == 1, "the wait")
        assert (health(scene).sent_in_day, second.keys) == (7, [])
        scene.enqueue(fire("new"))
        until(lambda: sorted(second.keys) == ["later-fire", "new-fire"], "the critical one, and what waits with it")


def test_near_the_limit_the_next_episode_of_an_alert_takes_the_place_of_the_one_that_waits(tmp_path: Path) -> None:
    channel = phone(10)
    with opened(tmp_path, channel) as scene:
        for name in "abcdefg":
            scene.enqueue(fire(name, severity="warning"))
            until(lambda name=name: f"{name}-fire" in channel.keys, name)
        scene.until_marked()
        for number in range(20):
            one = alert(id=f"h{number}", subject="run:h", severity="warning")
            scene.enqueue(notice(one, key=f"h{number}-fire", channels=("phone",), severity="warning"))
        query = "SELECT key, words FROM outbox WHERE state = 'waiting' OR state = 'stopped' ORDER BY id"
        stopped = [(f"h{number}-fire", "a later notification reports the same alerts") for number in range(19)]
        until(lambda: scene.rows(query) == [*stopped, ("h19-fire", None)], "one that waits")
        until(lambda: scene.of(ChannelsChanged) and health(scene).waiting == 1, "its count")


def health(scene: Scene) -> Channel:
    (known,) = scene.of(ChannelsChanged)[-1].channels
    return known


def test_near_the_limit_no_plots_are_sent(tmp_path: Path) -> None:
    channel = phone(10)
    picture = Attachment(name="loss.png", media_type="image/png", data=b"p")
    with opened(tmp_path, channel, attach=lambda notices: (picture,)) as scene:
        for name in "abcdefgh":
            scene.enqueue(fire(name, severity="critical" if name == "h" else "warning"))
            until(lambda name=name: f"{name}-fire" in channel.keys, name)
    assert [len(message.attachments) for message in channel.taken] == [1] * 7 + [0]


def test_a_channel_that_has_sent_is_not_said_to_have_sent_nothing(tmp_path: Path) -> None:
    """The leader ended before it wrote the health of its channels again, as a call by cron does."""
    channel = Phone()
    with opened(tmp_path, channel) as scene:
        scene.until_noted()
        scene.enqueue(fire("a"))
        until(lambda: "a-fire" in channel.keys)
        scene.until_marked()
        (known,) = alerts_now(tmp_path, scene.clock.now()).channels
    assert (known.state, known.sent_at is not None) == ("ok", True)
