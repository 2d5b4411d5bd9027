"""SSH user authentication (RFC 4252 and 4256): one request and one reply at a time, on the dialling thread.

paramiko's own handler calls back on the transport's thread, can miss a fast reply, always signs before it knows that
a key is welcome, and asks for the service again before every attempt.
"""

from __future__ import annotations

import queue
import re
from collections.abc import Callable
from typing import NamedTuple

from paramiko import PKey, SSHException, common
from paramiko.message import Message

from trainmon.lib import Seconds
from trainmon.transport.ssh.auth.keys import key_type, rsa_bits
from trainmon.transport.ssh.config import Trust
from trainmon.transport.ssh.transport import CERTIFICATE, Connection, packet

DENIAL = re.compile(r"pam_[a-z]|no active job|^\s*access denied", re.IGNORECASE)
"""Matches refusals by PAM (pam_slurm_adopt, pam_slurm), but not the banner of a site."""


class Accepted(NamedTuple):
    """The login succeeded."""


class Denied(NamedTuple):
    """The request failed: the methods that may be tried next, and whether this step itself succeeded."""

    methods: tuple[str, ...]
    partial: bool


class KeyAccepted(NamedTuple):
    """The server would accept this public key."""


class AuthRequest(NamedTuple):
    """The server asks questions."""

    title: str
    instructions: str
    fields: tuple[tuple[str, bool], ...]


class PasswordExpired(NamedTuple):
    """The server requires a new password."""


Reply = Accepted | Denied | KeyAccepted | AuthRequest | PasswordExpired


class ConnectionLost(Exception):
    """The connection ended during the login."""


class NoReply(Exception):
    """The server did not answer in time."""


class UserAuth:
    """The client side of the login; replaces paramiko's AuthHandler."""

    def __init__(self, connection: Connection, user: str, trust: Trust) -> None:
        self._connection = connection
        self._trust = trust
        self._user = user
        self._method = "none"
        self._service_requested = False
        self._authenticated = False
        self.denial = ""
        """The line of the server's last message that says why it refused the user."""
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._handler_table: dict[int, Callable[[Message], None]] = {
            common.MSG_SERVICE_ACCEPT: self._ignore,
            common.MSG_USERAUTH_BANNER: self._on_banner,
            common.MSG_USERAUTH_SUCCESS: self._on_success,
            common.MSG_USERAUTH_FAILURE: self._on_failure,
            common.MSG_USERAUTH_INFO_REQUEST: self._on_message_60,
        }
        connection.auth_handler = self  # type: ignore[assignment]

    # ---- requests, on the dialling thread ----------------------------------------------------------------------------

    def none(self, timeout: Seconds) -> Reply:
        """Ask which methods the server allows."""
        return self._request(timeout, "none")

    def offer_key(self, blob: bytes, timeout: Seconds) -> Reply:
        """Offer a public key without signing: KeyAccepted, or Denied.

        Raises:
            SSHException: when the ssh config does not allow the key; so does `sign`.
        """
        return self._request(timeout, "publickey", False, self._algorithm(blob), blob)

    def sign(self, key: PKey, blob: bytes, timeout: Seconds) -> Reply:
        """Prove that we hold a key.

        Raises:
            SSHException: when an agent refuses to sign; ValueError or OSError when signing fails.
        """
        algorithm = self._algorithm(blob)
        session = Message()
        session.add_string(self._connection.session_id or b"")
        request = self._userauth_request("publickey", True, algorithm, blob)
        proof = session.asbytes() + request.asbytes()
        signature = key.sign_ssh_data(proof, algorithm.removesuffix(CERTIFICATE))
        return self._request(timeout, "publickey", True, algorithm, blob, bytes(signature))

    def interactive(self, timeout: Seconds) -> Reply:
        """Start keyboard-interactive: an AuthRequest, or its result."""
        return self._request(timeout, "keyboard-interactive", "", "")

    def answer(self, answers: tuple[str, ...], timeout: Seconds) -> Reply:
        return self._send(packet(common.cMSG_USERAUTH_INFO_RESPONSE, len(answers), *answers), timeout)

    def password(self, password: str, timeout: Seconds) -> Reply:
        return self._request(timeout, "password", False, password)

    def _request(self, timeout: Seconds, method: str, *fields: str | bytes | bool) -> Reply:
        if not self._service_requested:
            # Sent ahead of the first request without waiting: it saves a round trip for every host.
            self._service_requested = True
            self._connection.packetizer.send_message(packet(common.cMSG_SERVICE_REQUEST, "ssh-userauth"))
        self._method = method
        return self._send(self._userauth_request(method, *fields), timeout)

    def _userauth_request(self, method: str, *fields: str | bytes | bool) -> Message:
        return packet(common.cMSG_USERAUTH_REQUEST, self._user, "ssh-connection", method, *fields)

    def _send(self, message: Message, timeout: Seconds) -> Reply:
        if not self._connection.is_active():
            raise ConnectionLost
        try:
            self._connection.packetizer.send_message(message)
            reply = self._replies.get(timeout=timeout)
        except queue.Empty:
            raise NoReply from None
        except (OSError, EOFError):
            raise ConnectionLost from None
        if reply is None:
            raise ConnectionLost
        return reply

    def _algorithm(self, blob: bytes) -> str:
        kind, trust = key_type(blob), self._trust
        if (bits := rsa_bits(blob)) is not None and bits < trust.rsa_bits:
            raise SSHException(f"not used: it has {bits} bits, and RequiredRSASize is {trust.rsa_bits}")
        versions = ("rsa-sha2-512", "rsa-sha2-256") if kind.startswith("ssh-rsa") else (kind.removesuffix(CERTIFICATE),)
        suffix = CERTIFICATE if kind.endswith(CERTIFICATE) else ""
        allowed = [one for one in versions if trust.user_keys is None or one + suffix in trust.user_keys]
        if not allowed:
            raise SSHException(f"not used: PubkeyAcceptedAlgorithms does not allow {kind}")
        extension = self._connection.server_extensions.get("server-sig-algs", b"")  # type: ignore[attr-defined]
        offered = extension.decode("ascii", "replace") if isinstance(extension, bytes) else str(extension)
        names = offered.split(",")
        return next((one for one in allowed if one in names), allowed[0]) + suffix

    # ---- what paramiko calls, on the transport's thread --------------------------------------------------------------

    def is_authenticated(self) -> bool:
        return self._authenticated

    def get_username(self) -> str:
        return self._user

    def abort(self) -> None:
        self._replies.put(None)

    def _ignore(self, message: Message) -> None:
        """The service is accepted: nothing to do."""

    def _on_banner(self, message: Message) -> None:
        """Text for the user: a site's notice before the login, or PAM's reason for a refusal after it."""
        self._note_denial(message.get_string().decode("utf-8", "replace"))

    def _note_denial(self, text: str) -> None:
        self.denial = next((line for line in reversed(text.splitlines()) if DENIAL.search(line)), self.denial)

    def _on_success(self, message: Message) -> None:
        self._authenticated = True
        self._connection._auth_trigger()  # type: ignore[attr-defined]
        self._replies.put(Accepted())

    def _on_failure(self, message: Message) -> None:
        self._replies.put(Denied(tuple(message.get_list()), message.get_boolean()))

    def _on_message_60(self, message: Message) -> None:
        """Message 60 means something else in every method."""
        if self._method == "publickey":
            self._replies.put(KeyAccepted())
        elif self._method == "password":
            self._replies.put(PasswordExpired())
        else:
            title, instructions = (message.get_string().decode("utf-8", "replace") for _ in range(2))
            self._note_denial(instructions)
            message.get_string()
            count = min(message.get_int(), 32)
            fields = [(message.get_string().decode("utf-8", "replace"), message.get_boolean()) for _ in range(count)]
            self._replies.put(AuthRequest(title, instructions, tuple(fields)))
