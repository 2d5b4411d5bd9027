"""The channel apprise without its child: a test of what a service answers starts no process for each answer."""

from __future__ import annotations

from trainmon.alerting.notify.channels.apprise.child import Answer, Request, answer
from trainmon.alerting.notify.channels.apprise.sender import Apprise
from trainmon.model import Channel


class Inside(Apprise):
    """Does in this process what its child does; test_sender.py starts the child."""

    def __init__(self, url: str) -> None:
        super().__init__(Channel(name="chat", type="apprise"), url=url)

    def _run(self, request: Request, timeout: float) -> Answer:
        return answer(request)
