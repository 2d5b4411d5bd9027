"""One SSH connection, and commands on it: paramiko's Transport on our socket, which never blocks a writer and uses no
CPU while idle; a channel of it for each command, and the keepalives of all."""

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

from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError, clean
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import CHUNK, CommandStream, Sink
from trainmon.transport.ssh.config import HostSettings
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


# ---- logged-in connections, and the keepalives of all ----------------------------------------------------------------

TICK: Seconds = 1.0
SEND_AFTER: Seconds = 5.0
LOST_AFTER: Seconds = 13.0
"""With one tick of slack on each side, this stays below the 15 s within which an operator must know."""


class Lease:
    """A logged-in connection, its jump host, and its number of users."""

    def __init__(self, settings: HostSettings, connection: Connection, via: Lease | None, prompted: bool) -> None:
        self.settings = settings
        self.connection = connection
        self.via = via
        self.prompted: bool = prompted or (via is not None and via.prompted)
        self.users = 0
        self.closed = False
        self.keepalive_sent_at = 0.0
        interval = settings.alive_interval or SEND_AFTER
        self.send_after = min(interval, SEND_AFTER)
        # As OpenSSH counts: `alive_count` keepalives are sent; the connection is lost one interval after the last.
        self.lost_after = min(interval * (max(settings.alive_count, 1) + 1), LOST_AFTER)
        self._lost: HostUnreachable | None = None

    def mark_lost(self, *, silent: bool) -> None:
        """Close it: the server was silent too long (a half-open connection), or closed the connection."""
        host = self.settings.name
        if self._lost is None and silent:
            self._lost = HostUnreachable(host, f"{host}: no data", hint="the machine or its network is down, or hangs")
        self.connection.close()

    def failure(self) -> HostUnreachable:
        """Why it ended, as far as is known."""
        host = self.settings.name
        if self._lost is not None:
            return self._lost
        if self.via is not None and not self.via.connection.is_active():
            return HostUnreachable(host, f"{host}: {self.via.failure().message}", hint="check its jump host")
        reason = clean(self.connection.disconnect_reason, 200)
        return HostUnreachable(host, f"{host}: the server closed the connection" + (f": {reason}" if reason else ""))

    def close(self) -> None:
        self.closed = True
        self.connection.close()
        self.connection.socket.close()


class Keepalive:
    """Sends keepalives on silent connections, and marks those lost that do not answer."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._leases: set[Lease] = set()
        self._ticking = False
        self._last_tick = 0.0
        self._resumed_at = 0.0

    def watch(self, lease: Lease) -> None:
        self._loop.call_soon(lambda: self._add(lease))

    def forget(self, lease: Lease) -> None:
        self._loop.call_soon(lambda: self._leases.discard(lease))

    # ---- on the event loop's thread ----

    def _add(self, lease: Lease) -> None:
        self._leases.add(lease)
        if not self._ticking:
            self._ticking = True
            self._last_tick = time.monotonic()
            self._loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._last_tick > 3 * TICK:
            # This machine slept (a suspended laptop, SIGSTOP): the replies may be waiting to be read.
            self._resumed_at = now
        self._last_tick = now
        for lease in tuple(self._leases):
            silence = now - max(lease.connection.socket.received_at, self._resumed_at)
            if not self._is_alive(lease, silence, now):
                self._leases.discard(lease)
                lease.mark_lost(silent=silence >= lease.lost_after and lease.connection.is_active())
        self._ticking = bool(self._leases)
        if self._ticking:
            self._loop.call_later(TICK, self._tick)

    def _is_alive(self, lease: Lease, silence: Seconds, now: Seconds) -> bool:
        """Send a keepalive, if one is due."""
        if not lease.connection.is_active() or silence >= lease.lost_after:
            return False
        if silence >= lease.send_after and now - lease.keepalive_sent_at >= lease.send_after:
            lease.keepalive_sent_at = now
            try:
                lease.connection.request_answer()
            except (OSError, EOFError, SSHException):
                return False
        return True


# ---- A command on another host ---------------------------------------------------------------------------------------

TURN = 4 * CHUNK
"""Bytes that one stream may deliver before the others get their turn."""

PIECE = 8_192
"""Bytes of its input that may be under way to a command. With all of it, five probes that start over 40 KB/s would have
10 s of bytes before every answer to a keepalive, and their connections would count as lost."""

CLOSE_AFTER: Seconds = 1.0
"""A closed stream's command has a second to see the end of its input before its channel is closed."""

GATHER: Seconds = 0.1
"""How long the bytes of a command may wait for those of others, once it has run for GATHER_AFTER. Hundreds of probes
that print a line every 2 s would wake the loop for each: most of what a line costs is the wake-up."""

GATHER_AFTER: Seconds = 10.0
"""A person waits for the start of a probe, and for a short command; nobody for the next line of a long one."""


class SshStream(CommandStream):
    """A running command. It is also the event that paramiko sets when the channel has bytes, or ends."""

    def __init__(
        self,
        connection: Connection,
        channel: Channel,
        sink: Sink,
        loop: EventLoop,
        on_end: Callable[[SshStream], None],
        failure: Callable[[], TrainmonError],
    ) -> None:
        super().__init__(loop, sink)
        self._connection = connection
        self._channel = channel
        self._on_end = on_end
        self._failure = failure
        self._received_at = time.monotonic()
        self._left_after = connection.reached_at
        self._is_under_way = False
        """Whether the server has yet to confirm a piece of the input."""
        self._gathers_from = self._received_at + GATHER_AFTER

    def start(self) -> None:
        self._connection.on_window[self._channel.chanid] = lambda: self._loop.call_soon(self._flush)
        self._channel.in_buffer.set_event(self)  # type: ignore[arg-type]
        self._channel.in_stderr_buffer.set_event(self)  # type: ignore[arg-type]

    def kill(self) -> None:
        """Close its channel now."""
        self.is_closed = True
        self._loop.call_soon(self._close_channel)

    def _kill_later(self) -> None:
        self._loop.call_later(CLOSE_AFTER, self._close_channel)

    # ---- the event that paramiko sets, on the transport's thread -----------------------------------------------------

    def set(self) -> None:
        self._received_at, self._left_after = time.monotonic(), self._connection.reached_at
        if self._received_at >= self._gathers_from:
            self._loop.call_gathered(GATHER, self._read)
        else:
            self._loop.call_soon(self._read)

    def clear(self) -> None:
        """Nothing to clear: each read takes all there is."""

    # ---- on the event loop's thread ----

    def _flush(self) -> None:
        channel = self._channel
        try:
            if self._pending and not self._is_under_way and not channel.closed and channel.send_ready():
                del self._pending[: channel.send(bytes(self._pending[:PIECE]))]
                self._is_under_way = True
                self._connection.request_answer(lambda: self._loop.call_soon(self._confirmed))
            if self._finishing and (not self._pending or channel.closed):
                channel.shutdown_write()
        except (OSError, EOFError, SSHException):
            # The connection is lost; the end of the channel follows, and says why.
            self._pending.clear()

    def _confirmed(self) -> None:
        self._is_under_way = False
        self._flush()

    def _close_channel(self) -> None:
        if not self._ended:
            self._channel.close()

    def _read(self) -> None:
        if self._ended:
            return
        channel = self._channel
        was_closed = channel.closed  # checked before reading: bytes that came before the end are read before it
        now = time.monotonic()
        self._times = now - self._received_at, now - self._left_after
        taken = 0
        while taken < TURN and channel.recv_ready():
            data = channel.recv(CHUNK)
            taken += len(data)
            self._sink.received(data)
        while taken < TURN and channel.recv_stderr_ready():
            data = channel.recv_stderr(CHUNK)
            taken += len(data)
            self._sink.stderr_received(data)
        if taken >= TURN:
            self._loop.call_soon(self._read)
        elif was_closed:
            self._report_end()

    def _report_end(self) -> None:
        self._ended = True
        number = self._channel.chanid
        self._connection.on_window.pop(number, None)
        ended_by = self._connection.signals.pop(number, 0)
        status = -ended_by or self._channel.exit_status
        self._on_end(self)
        if status >= 0 or ended_by:
            self._sink.ended(status, None)
        elif number in self._connection.refused:
            hint = "see ForceCommand in its sshd_config"
            self._sink.ended(None, CommandFailed("the sshd refused to start the command", hint=hint))
        else:
            self._sink.ended(None, None if self.is_closed else self._failure())
        self._connection.refused.discard(number)
