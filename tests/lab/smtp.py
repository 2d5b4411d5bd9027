"""A mail server on loopback (aiosmtpd): what it got is kept, and it answers as a test scripts it."""

from __future__ import annotations

import asyncio
import contextlib
import email
import email.policy
import threading
import time
from collections import deque
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

HANG_AT_MOST = 120.0
HANG = "hang"
CUT = "cut"
DIE = "die"
"""hang: the message is taken off the wire and never answered. cut: hung up before it was taken. die: hung up after."""


class _Listening(Controller):
    """Its port is the one that the system chose."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


class MailServer:
    """A running one. `.messages` is what it took; `script` says what the next ones are answered, such as
    `451 try again later`, HANG, CUT or DIE."""

    def __init__(self, login: tuple[str, str] | None = None) -> None:
        self.messages: list[EmailMessage] = []
        self.recipients: list[tuple[str, ...]] = []
        self._login = login
        self._script: deque[str] = deque()
        self._always = ""
        self._over = threading.Event()
        settings: dict[str, Any] = {}
        if login is not None:
            settings = {"authenticator": self._authenticated, "auth_require_tls": False}
        self._controller = _Listening(self, hostname="127.0.0.1", port=0, **settings)

    @classmethod
    @contextlib.contextmanager
    def start(cls, login: tuple[str, str] | None = None) -> Iterator[MailServer]:
        server = cls(login)
        server._controller.start()
        try:
            yield server
        finally:
            server.always("")
            server._controller.stop()

    @property
    def port(self) -> int:
        port: int = self._controller.port
        return port

    @property
    def url(self) -> str:
        """Its address as apprise writes it; mail goes to ops@lab.test."""
        login = f"{self._login[0]}:{self._login[1]}@" if self._login else ""
        return f"mailto://{login}127.0.0.1:{self.port}/?from=trainmon@lab.test&to=ops@lab.test&mode=insecure"

    def script(self, *answers: str) -> None:
        """The next messages get these, one each."""
        self._script.extend(answers)

    def always(self, answer: str) -> None:
        """Every message from now on gets this; empty: it is taken. What hung is let go."""
        self._always = answer
        self._over.set()
        self._over = threading.Event()

    def wait_for(self, count: int, within: float = 120.0) -> list[EmailMessage]:
        """What it took, once there is so much."""
        deadline = time.monotonic() + within
        while len(self.messages) < count:
            assert time.monotonic() < deadline, f"{len(self.messages)} of {count} came within {within:g} s"
            time.sleep(0.02)
        return list(self.messages)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - its name there
        """aiosmtpd's hook: a whole message came."""
        if self._login is not None and not session.authenticated:
            return "530 5.7.0 authentication required"
        answer = self._script.popleft() if self._script else self._always
        if answer == HANG:
            await asyncio.get_running_loop().run_in_executor(None, self._over.wait, HANG_AT_MOST)
        if answer in ("", DIE):
            content = envelope.original_content or b""
            self.messages.append(email.message_from_bytes(content, policy=email.policy.default))
            self.recipients.append(tuple(envelope.rcpt_tos))
        if answer in (HANG, CUT, DIE) and server.transport is not None:
            server.transport.close()
        return answer if answer[:1].isdigit() else "250 taken"

    def _authenticated(self, server: SMTP, session: Session, envelope: Envelope, way: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        is_right = (data.login.decode(), data.password.decode()) == self._login
        return AuthResult(success=is_right, handled=is_right)  # else it answers 535 itself
