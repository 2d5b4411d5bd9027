"""The conversation of RFC 4252 and 4256, one request and one reply at a time, on the dialling thread.

paramiko's own handler calls back on the transport's thread, can miss a fast reply, always signs before it knows that
a key is welcome, and asks for the service again before every attempt.
"""

from __future__ import annotations

import queue
import re
from collections.abc import Callable
from typing import NamedTuple

from paramiko import PKey, common
from paramiko.message import Message

from trainmon.lib import Seconds
from trainmon.transport.ssh.auth.keys import key_type
from trainmon.transport.ssh.transport import CERTIFICATE, Connection

DENIAL = re.compile(r"pam_[a-z]|no active job|^\s*access denied", re.IGNORECASE)
"""What a refusal by PAM says (pam_slurm_adopt, pam_slurm), and the banner of a site before every login does not."""


class Accepted(NamedTuple):
    """Logged in."""


class Denied(NamedTuple):
    """Not yet: what may be tried next, and whether this step itself was right."""

    methods: tuple[str, ...]
    partial: bool


class Welcome(NamedTuple):
    """This public key would do."""


class AuthRequest(NamedTuple):
    """The server asks questions."""

    title: str
    instructions: str
    fields: tuple[tuple[str, bool], ...]


class PasswordExpired(NamedTuple):
    """It wants a new password."""


Reply = Accepted | Denied | Welcome | AuthRequest | PasswordExpired


class ConnectionGone(Exception):
    """The server went away in the middle of it."""


class NoReply(Exception):
    """The server did not answer in time."""


class UserAuth:
    """Stands where paramiko expects its AuthHandler."""

    def __init__(self, connection: Connection, user: str) -> None:
        self._connection = connection
        self._user = user
        self._method = "none"
        self._asked_for_service = False
        self._authenticated = False
        self.denial = ""
        """The line of the server's last message to the user that says why it is not let in."""
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._handler_table: dict[int, Callable[[Message], None]] = {
            common.MSG_SERVICE_ACCEPT: self._ignore,
            common.MSG_USERAUTH_BANNER: self._on_banner,
            common.MSG_USERAUTH_SUCCESS: self._on_success,
            common.MSG_USERAUTH_FAILURE: self._on_failure,
            common.MSG_USERAUTH_INFO_REQUEST: self._on_sixty,
        }
        connection.auth_handler = self  # type: ignore[assignment]

    # ---- requests, on the dialling thread ----------------------------------------------------------------------------

    def none(self, timeout: Seconds) -> Reply:
        """Ask which methods there are."""
        return self._request("none", lambda message: None, timeout)

    def would_do(self, blob: bytes, timeout: Seconds) -> Reply:
        """Offer a public key without signing: Welcome, or Denied."""

        def fill(message: Message) -> None:
            message.add_boolean(False)
            message.add_string(self._algorithm(blob))
            message.add_string(blob)

        return self._request("publickey", fill, timeout)

    def sign_with(self, key: PKey, blob: bytes, timeout: Seconds) -> Reply:
        """Prove that we hold a key. Raises what the key's signing raises, such as an agent that refuses."""
        algorithm = self._algorithm(blob)
        proof = Message()
        proof.add_string(self._connection.session_id or b"")
        proof.add_byte(common.cMSG_USERAUTH_REQUEST)
        for text in (self._user, "ssh-connection", "publickey"):
            proof.add_string(text)
        proof.add_boolean(True)
        proof.add_string(algorithm)
        proof.add_string(blob)
        signature = key.sign_ssh_data(proof.asbytes(), algorithm.removesuffix(CERTIFICATE))

        def fill(message: Message) -> None:
            message.add_boolean(True)
            message.add_string(algorithm)
            message.add_string(blob)
            message.add_string(signature)

        return self._request("publickey", fill, timeout)

    def interactive(self, timeout: Seconds) -> Reply:
        """Start keyboard-interactive: Asked, or an end."""

        def fill(message: Message) -> None:
            message.add_string("")
            message.add_string("")

        return self._request("keyboard-interactive", fill, timeout)

    def answer(self, answers: tuple[str, ...], timeout: Seconds) -> Reply:
        message = Message()
        message.add_byte(common.cMSG_USERAUTH_INFO_RESPONSE)
        message.add_int(len(answers))
        for text in answers:
            message.add_string(text)
        return self._send(message, timeout)

    def password(self, password: str, timeout: Seconds) -> Reply:
        def fill(message: Message) -> None:
            message.add_boolean(False)
            message.add_string(password)

        return self._request("password", fill, timeout)

    def _request(self, method: str, fill: Callable[[Message], None], timeout: Seconds) -> Reply:
        if not self._asked_for_service:
            # Sent ahead of the first request, not waited for: a round trip less for every host.
            self._asked_for_service = True
            service = Message()
            service.add_byte(common.cMSG_SERVICE_REQUEST)
            service.add_string("ssh-userauth")
            self._connection.packetizer.send_message(service)
        self._method = method
        message = Message()
        message.add_byte(common.cMSG_USERAUTH_REQUEST)
        for text in (self._user, "ssh-connection", method):
            message.add_string(text)
        fill(message)
        return self._send(message, timeout)

    def _send(self, message: Message, timeout: Seconds) -> Reply:
        if not self._connection.is_active():
            raise ConnectionGone
        try:
            self._connection.packetizer.send_message(message)
            reply = self._replies.get(timeout=timeout)
        except queue.Empty:
            raise NoReply from None
        except (OSError, EOFError):
            raise ConnectionGone from None
        if reply is None:
            raise ConnectionGone
        return reply

    def _algorithm(self, blob: bytes) -> str:
        kind = key_type(blob)
        if not kind.startswith("ssh-rsa"):
            return kind
        said = self._connection.server_extensions.get("server-sig-algs", b"")  # type: ignore[attr-defined]
        offered = said.decode("ascii", "replace").split(",") if isinstance(said, bytes) else str(said).split(",")
        best = next((name for name in ("rsa-sha2-512", "rsa-sha2-256") if name in offered), "rsa-sha2-512")
        return best + CERTIFICATE if kind.endswith(CERTIFICATE) else best

    # ---- what paramiko calls, on the transport's thread --------------------------------------------------------------

    def is_authenticated(self) -> bool:
        return self._authenticated

    def get_username(self) -> str:
        return self._user

    def abort(self) -> None:
        self._replies.put(None)

    def _ignore(self, message: Message) -> None:
        """The service's consent."""

    def _on_banner(self, message: Message) -> None:
        """Text for the user: before the login what a site wants to be read, after it what PAM says of a refusal."""
        self._heard(message.get_string().decode("utf-8", "replace"))

    def _heard(self, text: str) -> None:
        self.denial = next((line for line in reversed(text.splitlines()) if DENIAL.search(line)), self.denial)

    def _on_success(self, message: Message) -> None:
        self._authenticated = True
        self._connection._auth_trigger()  # type: ignore[attr-defined]
        self._replies.put(Accepted())

    def _on_failure(self, message: Message) -> None:
        self._replies.put(Denied(tuple(message.get_list()), message.get_boolean()))

    def _on_sixty(self, message: Message) -> None:
        """Message 60 means something else in every method."""
        if self._method == "publickey":
            self._replies.put(Welcome())
        elif self._method == "password":
            self._replies.put(PasswordExpired())
        else:
            title, instructions = (message.get_string().decode("utf-8", "replace") for _ in range(2))
            self._heard(instructions)
            message.get_string()
            count = min(message.get_int(), 32)
            fields = [(message.get_string().decode("utf-8", "replace"), message.get_boolean()) for _ in range(count)]
            self._replies.put(AuthRequest(title, instructions, tuple(fields)))
