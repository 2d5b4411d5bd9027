"""What `check` says of the channels: whether each can work, what came back of a test, and what may go unnoticed."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence

from trainmon.alerting.notify.base import Broken, Sender
from trainmon.alerting.notify.channels.healthchecks import Ping
from trainmon.alerting.notify.message import render
from trainmon.cli.check.row import Row
from trainmon.config import InvalidValue, Settings, resolve_secret
from trainmon.lib import ConfigError, Instant, Seconds, TrainmonError, find_state_directory
from trainmon.model import Notice
from trainmon.runtime.alert_service import caveats
from trainmon.runtime.channels import senders, unfit

TIMEOUT: Seconds = 20.0
"""For one channel; they are asked side by side."""

MORE: Seconds = 10.0
"""Beyond that a channel that does not keep to it is left behind."""

RECEIVED = "a channel that takes a message may still deliver nothing: look whether it has come"


def check_channels(settings: Settings, *, test: bool) -> Iterator[Row]:
    """Each channel of the config; with `test`, a message is sent by each."""
    try:
        made = senders(settings.notify, state_directory=find_state_directory(os.environ).path)
    except ConfigError as error:
        for problem in error.problems:
            yield Row("bad", "channel", "", problem, "mend the config, or set what it names for this program")
        made = tuple(_that_can_be(settings))
    yield from _side_by_side(made, test=test)
    yield from _switch(settings, test=test)
    for words in caveats(settings):
        yield Row("note", "alerts", "", words)
    if test and made:
        yield Row("note", "alerts", "", RECEIVED)


def _that_can_be(settings: Settings) -> Iterator[Sender]:
    """The channels with which nothing is wrong, where something is with others."""
    for entry in settings.notify:
        with contextlib.suppress(ConfigError):  # it is told with all that is wrong
            yield from senders((entry,), state_directory=find_state_directory(os.environ).path)


def _side_by_side(made: Sequence[Sender], *, test: bool) -> Iterator[Row]:
    found: list[list[Row]] = [[] for _ in made]

    def look(sender: Sender, rows: list[Row]) -> None:
        rows += list(_channel(sender, test=test))

    threads = [
        threading.Thread(target=look, args=(sender, rows), name=f"check {sender.health.name}", daemon=True)
        for sender, rows in zip(made, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 2 * TIMEOUT + MORE
    for thread, sender, rows in zip(threads, made, found, strict=True):
        thread.join(max(0.0, until - time.monotonic()))
        yield from rows or [Row("bad", "channel", sender.health.name, "did not answer in time")]


def _channel(sender: Sender, *, test: bool) -> Iterator[Row]:
    health = sender.health
    about = f"{health.type}, {health.target}" if health.target else health.type
    try:
        wrong = unfit(sender, TIMEOUT)
        if wrong:
            yield Row("bad", "channel", health.name, f"{about}: {wrong}", "mend its [[notify]] in the config")
            return
        if test:
            words = sender.send(render([test_notice(health.name, time.time())], time.time()), TIMEOUT).words
            yield Row("ok", "channel", health.name, f"{about}: took the test{f' ({words})' if words else ''}")
        else:
            yield Row("ok", "channel", health.name, about)
    except TrainmonError as error:
        mend = "mend its [[notify]] in the config" if isinstance(error, Broken) else "try again; it may pass"
        yield Row("bad", "channel", health.name, f"{about}: {error.message}", mend)
    finally:
        sender.close()
    if note := sender.health.note:  # of apprise's, what it said when it was asked
        yield Row("note", "channel", health.name, note)


def test_notice(channel: str, now: Instant) -> Notice:
    """What `check --notify` sends."""
    return Notice(
        key=f"check {now:.3f}",
        kind="test",
        reason="asked for by check --notify",
        severity="info",
        at=now,
        channels=(channel,),
        title="a test of trainmon-tui",
        lines=(f"Somebody ran check --notify. That you read this shows that the channel {channel} reaches you.",),
    )


def _switch(settings: Settings, *, test: bool) -> Iterator[Row]:
    """The dead-man's switch; its log is written into, so that it does not count as a sign of life."""
    if settings.heartbeat.ping is None:
        return
    try:
        ping = Ping("ping", resolve_secret(settings.heartbeat.ping, os.environ))
    except InvalidValue as wrong:
        mend = "mend the config, or set what it names for this program"
        yield Row("bad", "heartbeat", "ping", f'"ping" {wrong}', mend)
        return
    if not test:
        yield Row("ok", "heartbeat", "ping", "an address is set; --notify asks it")
        return
    try:
        ping("log", "a test by trainmon-tui check --notify", TIMEOUT)
        yield Row("ok", "heartbeat", "ping", "took the test")
    except TrainmonError as error:
        yield Row("bad", "heartbeat", "ping", error.message, "mend [heartbeat] ping in the config")
