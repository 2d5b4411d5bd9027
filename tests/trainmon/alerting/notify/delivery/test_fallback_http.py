"""The fallback with real channels and receivers that fail: there is none, it errs, it hangs, it asks to wait."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.lab.ntfy_server import NtfyServer, error
from tests.lab.receiver import HANG, status
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.alerting.notify.delivery.scene import Scene, Shifted, fire, opened, until
from trainmon.config import routes_of
from trainmon.config.decode import decode
from trainmon.runtime.alert_service import senders

CHANNELS = """
[[notify]]
type = "ntfy"
name = "phone"
server = "{ntfy}"
topic = "ops"
[[notify]]
type = "webhook"
name = "spare"
url = "{hook}"
fallback = true
"""

Break = Callable[[NtfyServer], None]
FAULTS: dict[str, tuple[Break, str]] = {
    "5xx": (lambda ntfy: ntfy.always(error(50001)), "500 internal server error"),
    "hang": (lambda ntfy: ntfy.always(HANG), "it does not answer"),
    "retry-after": (lambda ntfy: ntfy.always(status(429, retry_after="99999999")), "429 too many requests"),
}


@contextmanager
def watch(folder: Path, ntfy: str, hook: str, clock: Shifted) -> Iterator[Scene]:
    settings, problems = decode(tomllib.loads(CHANNELS.format(ntfy=ntfy, hook=hook)), "trainmon.toml")
    assert settings is not None, problems
    made = senders(settings.notify, environ={})
    with opened(folder, *made, routes=routes_of(settings.notify), clock=clock) as scene:
        yield scene


def reasons(hook: WebhookReceiver) -> list[str]:
    return [result["alerts"][0]["annotations"]["reason"] for result in hook.messages]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_receiver_that_fails_is_stood_in_for_and_gets_one_summary(tmp_path: Path, fault: str) -> None:
    break_it, words = FAULTS[fault]
    clock = Shifted()
    with ExitStack() as stack:
        ntfy, hook = stack.enter_context(NtfyServer.start()), stack.enter_context(WebhookReceiver.start())
        scene = stack.enter_context(watch(tmp_path, ntfy.url, hook.url, clock))
        break_it(ntfy)
        stack.callback(ntfy.well)
        scene.enqueue(fire("a", at=clock.now()))
        first = "SELECT 1 FROM outbox WHERE " + ("state = 'leased'" if fault == "hang" else "words IS NOT NULL")
        until(lambda: scene.rows(first) and ntfy.requests, "the first try")
        clock.passed = 50.0
        until(lambda: hook.messages, "the fallback")
        assert reasons(hook)[0].startswith(f"fired; phone could not deliver it: {words}")
        clock.passed = 290.0
        scene.enqueue(fire("b", at=clock.now()))
        until(lambda: clock.passes() and hook.keys == ["a-fire", "b-fire"], "the next one, minutes later")
        until(lambda: scene.rows("SELECT count(*) FROM outbox WHERE channel = 'spare' AND state = 'sent'") == [(2,)])
        assert ntfy.messages == []
        ntfy.well()
        scene.enqueue(fire("c", at=clock.now()))
        until(lambda: len(ntfy.of("ops")) == 2, "what is new, and the summary")
        scene.until_marked()
    titles = {message.title for message in ntfy.of("ops")}
    assert titles == {
        "CODE RED video-2b: run-dead",
        "2 alerts still firing: while phone was down, 2 messages went by spare",
    }
    assert hook.keys == ["a-fire", "b-fire"], "each once"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("http://127.0.0.1:9", "no connection: Connection refused"),
        ("http://no-such-host.invalid", "the name of its host cannot be resolved now"),
    ],
)
def test_a_receiver_that_is_not_there_is_stood_in_for(tmp_path: Path, place: str, words: str) -> None:
    clock = Shifted()
    with WebhookReceiver.start() as hook, watch(tmp_path, place, hook.url, clock) as scene:
        scene.enqueue(fire("a", at=clock.now()))
        until(lambda: scene.rows("SELECT 1 FROM outbox WHERE words IS NOT NULL"), "the first try")
        clock.passed = 50.0
        until(lambda: hook.messages, "the fallback")
        assert reasons(hook) == [f"fired; phone could not deliver it: {words}"]


def test_a_phone_that_is_a_fallback_acknowledges(tmp_path: Path) -> None:
    """Its button carries the alert's own token, as that of the phone that is down would."""
    clock = Shifted()
    with NtfyServer.start() as ntfy:
        text = f"""
            [[notify]]
            type = "webhook"
            name = "hook"
            url = "http://127.0.0.1:9/"
            [[notify]]
            type = "ntfy"
            server = "{ntfy.url}"
            topic = "ops"
            reply_topic = "answers"
            fallback = true
        """
        settings, problems = decode(tomllib.loads(text), "trainmon.toml")
        assert settings is not None, problems
        routes = routes_of(settings.notify)
        with opened(tmp_path, *senders(settings.notify, environ={}), routes=routes, clock=clock) as scene:
            result = fire("a", "hook")
            scene.enqueue(result)
            until(lambda: scene.rows("SELECT 1 FROM outbox WHERE words IS NOT NULL"), "the first try")
            clock.passed = 50.0
            until(lambda: ntfy.of("ops"), "the fallback")
            ntfy.press(ntfy.of("ops")[0])
            assert ntfy.of("answers")[0].message == f"ack a {result.alerts[0].token}"
