"""One SSH connection: paramiko's Transport on our socket, which never blocks a writer and uses no CPU while idle."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from paramiko import common
from paramiko.channel import Channel
from paramiko.message import Message
from paramiko.packet import Packetizer
from paramiko.ssh_exception import SSHException
from paramiko.transport import Transport

from trainmon.lib import Seconds, clean
from trainmon.transport.ssh.socket import Socket

_log = logging.getLogger("paramiko")
_log.addHandler(logging.NullHandler())
_log.propagate = False  # a library's traceback would break the dashboard
_log.setLevel(logging.CRITICAL)

CERTIFICATE = "-cert-v01@openssh.com"

LONGEST_GREETING = 65_536
"""Bytes that a server may send before its identification. RFC 4253 §4.2 allows lines there and sets no limit. paramiko
copies all of an unfinished line for each 128 bytes more: endless bytes without a line feed took a core."""

SIGNALS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "ABRT": 6, "FPE": 8, "KILL": 9, "SEGV": 11, "PIPE": 13, "ALRM": 14,
    "TERM": 15,
}  # fmt: skip
"""The names of RFC 4254 §6.10."""


def packet(kind: bytes, *fields: str | bytes | bool | int) -> Message:
    """A message of the SSH protocol with these fields, each encoded by its type (RFC 4251 §5)."""
    message = Message()
    message.add_byte(kind)
    for field in fields:
        match field:
            case bool():
                message.add_boolean(field)
            case int():
                message.add_int(field)
            case _:
                message.add_string(field)
    return message


class QuietPacketizer(Packetizer):
    """Packets without the timer thread that paramiko starts for every handshake: the Dialer has its own deadline."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.greeting = b""
        """What the server sent before its first packet."""

    def start_handshake(self, timeout: float) -> None:
        """No timer."""

    def _read_timeout(self, timeout: float) -> bytes:
        read: bytes = super()._read_timeout(timeout)  # type: ignore[misc]
        self.greeting += read
        if len(self.greeting) > LONGEST_GREETING:
            raise EOFError
        return read


class Offers(NamedTuple):
    """The algorithms that a client offers, best first."""

    host_keys: tuple[str, ...]
    ciphers: tuple[str, ...]
    macs: tuple[str, ...]
    key_exchanges: tuple[str, ...]


class ForeignProtocol(SSHException):
    """The server does not speak SSH, or closed the connection after a line of plain text. `line` is its first one;
    `is_endless`: it sent more than LONGEST_GREETING bytes."""

    def __init__(self, line: str, *, is_endless: bool) -> None:
        super().__init__(f"the server sent {line}")
        self.line, self.is_endless = line, is_endless


class Connection(Transport):
    """A client's transport. Subclass hooks: window adjustments, exit signals, and messages held during a re-key."""

    # The same algorithm under its older name, the only one that paramiko knows (RFC 8731).
    _kex_info: ClassVar[dict[str, Any]] = {
        "curve25519-sha256": Transport._kex_info["curve25519-sha256@libssh.org"],  # type: ignore[attr-defined]
        **Transport._kex_info,  # type: ignore[attr-defined]
    }
    _preferred_kex: tuple[str, ...] = (*Transport._preferred_kex, "curve25519-sha256")  # type: ignore[attr-defined]
    _preferred_ciphers: tuple[str, ...] = (
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
    )
    _preferred_keys: tuple[str, ...] = (
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "rsa-sha2-512",
        "rsa-sha2-256",
    )
    _preferred_macs: tuple[str, ...] = (
        "hmac-sha2-256-etm@openssh.com",
        "hmac-sha2-512-etm@openssh.com",
        "hmac-sha2-256",
        "hmac-sha2-512",
        "hmac-sha1",
    )

    def __init__(self, sock: Socket, offers: Offers | None = None) -> None:
        super().__init__(sock, packetizer_class=QuietPacketizer)  # type: ignore[arg-type]
        self.name = "ssh"
        self.packetizer: QuietPacketizer
        self.socket = sock
        self.disconnect_reason = ""
        """The server's message as it disconnected."""
        self.reached_at: Seconds = time.monotonic()
        """What was sent until then has reached the server, and what comes from it now has left it later."""
        self._unanswered: deque[tuple[Seconds, Callable[[], None]]] = deque()
        """When each request without an answer was sent, and what its answer calls."""
        if offers is not None:
            self._preferred_keys, self._preferred_ciphers, self._preferred_macs, self._preferred_kex = offers
        self.clear_to_send_lock = threading.RLock()  # type: ignore[assignment]
        self._held: list[Message] = []
        self.on_window: dict[int, Callable[[], None]] = {}
        """By channel: the callback for an opened window."""
        self.signals: dict[int, int] = {}
        """By channel: the signal that ended its command."""
        self.refused: set[int] = set()
        """Channels whose command the server refused to start."""
        self._channel_handler_table: dict[int, Callable[[Channel, Message], None]] = {
            **Transport._channel_handler_table,  # type: ignore[attr-defined]
            common.MSG_CHANNEL_WINDOW_ADJUST: self._window_opened,
            common.MSG_CHANNEL_REQUEST: self._channel_requested,
            common.MSG_CHANNEL_FAILURE: self._channel_refused,
        }

    @classmethod
    def algorithms(cls) -> Offers:
        """All that it knows: those that it offers by default first."""
        preferred = tuple(f"{name}{CERTIFICATE}" for name in cls._preferred_keys) + cls._preferred_keys
        return Offers(preferred, cls._preferred_ciphers, cls._preferred_macs, cls._preferred_kex)

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """Those of the offers, certificates included: paramiko's own adds one for each key."""
        return self._preferred_keys

    def handshake(self, timeout: Seconds) -> None:
        """Exchange keys.

        Raises:
            TimeoutError: when the server does not answer in time.
            ForeignProtocol: when its first line is not of SSH.
            EOFError: when it closes the connection; SSHException when the key exchange fails.
        """
        self.banner_timeout = timeout
        deadline = time.monotonic() + timeout
        try:
            self.start_client(timeout=timeout)
        except (SSHException, EOFError) as error:
            greeting = self.packetizer.greeting
            line = clean(greeting.partition(b"\n")[0].decode(errors="replace"), 100)
            if line and not line.startswith("SSH-"):
                raise ForeignProtocol(line, is_endless=len(greeting) > LONGEST_GREETING) from error
            raise
        if not self.initial_kex_done:
            raise TimeoutError if time.monotonic() >= deadline else EOFError

    def request_answer(self, answered: Callable[[], None] = lambda: None) -> None:
        """Send a request that every server answers, if only with a refusal: then it has all that was sent before.
        The answer calls `answered` on the transport's thread. Only the event loop's thread sends requests."""
        self._unanswered.append((time.monotonic(), answered))
        self._send_user_message(packet(common.cMSG_GLOBAL_REQUEST, "keepalive@openssh.com", True))

    def execute(self, channel: Channel, command: str) -> None:
        """Start a command without waiting for the answer: a refusal closes the channel."""
        self._send_user_message(packet(common.cMSG_CHANNEL_REQUEST, channel.remote_chanid, "exec", True, command))

    # ---- paramiko's inner hooks ------------------------------------------------------------------------------------

    def _send_user_message(self, data: Message) -> None:
        """Send, or hold it until a re-key is done: paramiko waits for up to 30 s, which would block the event loop."""
        with self.clear_to_send_lock:
            if not self.is_active():
                return
            if self.clear_to_send.is_set():
                self.packetizer.send_message(data)
            else:
                self._held.append(data)

    def _parse_newkeys(self, message: Message) -> None:
        with self.clear_to_send_lock:
            super()._parse_newkeys(message)  # type: ignore[misc]
            for message in self._held:
                self.packetizer.send_message(message)
            self._held.clear()

    def _parse_disconnect(self, message: Message) -> None:
        message.get_int()
        self.disconnect_reason = message.get_string().decode("utf-8", "replace")

    def _answered(self, _message: Message) -> None:
        if self._unanswered:
            self.reached_at, answered = self._unanswered.popleft()
            answered()

    _parse_request_success = _parse_request_failure = _answered

    def _window_opened(self, channel: Channel, message: Message) -> None:
        channel._window_adjust(message)  # type: ignore[attr-defined]
        if channel.chanid in self.on_window:
            self.on_window[channel.chanid]()

    def _channel_requested(self, channel: Channel, message: Message) -> None:
        start = message.packet.tell()
        if message.get_text() == "exit-signal":
            message.get_boolean()
            self.signals[channel.chanid] = SIGNALS.get(message.get_text(), 1)
            return
        message.packet.seek(start)
        channel._handle_request(message)  # type: ignore[attr-defined]

    def _channel_refused(self, channel: Channel, message: Message) -> None:
        self.refused.add(channel.chanid)
        channel._request_failed(message)  # type: ignore[attr-defined]
