"""A webhook receiver on loopback: what Alertmanager's webhooks are sent to, or the pings of a dead-man's switch."""

from __future__ import annotations

from typing import Any

from tests.lab.receiver import Receiver


class WebhookReceiver(Receiver):
    """A running one. `url` is where to send to; `.messages` is what it took, `.pings` of which the path says more."""

    @property
    def messages(self) -> list[Any]:
        """The JSON of each that it took."""
        return [request.json for request in self.taken if request.body]

    @property
    def keys(self) -> list[str]:
        """The Idempotency-Key of each that it took: the same twice is one message, sent again."""
        return [request.headers.get("idempotency-key", "") for request in self.taken]

    @property
    def pings(self) -> list[tuple[str, str]]:
        """The path and the text of each that it took."""
        return [(request.path, request.body.decode()) for request in self.taken]
