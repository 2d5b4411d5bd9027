"""A slow link between this machine and an sshd: a TCP proxy with a bandwidth that all connections share, and a latency.

It forwards each connection to the address that it was made to, at the port of the sshd: one link for all nodes of a
lab. Like a modem it takes more bytes than it can send at once, and a byte waits for all bytes before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Iterator

from tests.lab.sshd import Sshd

PIECE = 1_400
"""Bytes that travel together."""


class Direction:
    """One way over the link. `passed`: bytes by the address of the node; `longest_queue`: the longest wait of a byte
    for those before it, in seconds."""

    def __init__(self, bandwidth: float, latency: float, buffer: int) -> None:
        self.bandwidth, self.latency, self.buffer = bandwidth, latency, buffer
        self.passed: Counter[str] = Counter()
        self.longest_queue = self._free_at = 0.0

    async def carry(self, address: str, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry one connection's bytes to its end."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                while (queued := self._free_at - loop.time()) > self.buffer / self.bandwidth:
                    await asyncio.sleep(queued - self.buffer / self.bandwidth)
                self.passed[address] += len(data)
                self._free_at = max(loop.time(), self._free_at) + len(data) / self.bandwidth
                self.longest_queue = max(self.longest_queue, self._free_at - loop.time())
                loop.call_at(self._free_at + self.latency, writer.write, data)
        loop.call_at(self._free_at + self.latency, writer.close)


class SlowLink:
    """A running link, on a thread of its own. `up` leads to the nodes, `down` back."""

    def __init__(self, target: int, up: Direction, down: Direction) -> None:
        self.up, self.down = up, down
        self._writers: list[StreamWriter] = []
        self._target = target
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)  # what waits, waits at its sender
        self._socket.bind(("0.0.0.0", 0))
        self.port = int(self._socket.getsockname()[1])

    @classmethod
    @contextlib.contextmanager
    def to(
        cls, sshd: Sshd, *, bandwidth: float = 40_000.0, latency: float = 0.3, buffer: int = 128_000
    ) -> Iterator[SlowLink]:
        """A link to the nodes of an sshd, whose host key is known at the port of the link, too. In each direction it
        has this bandwidth (bytes a second), latency (seconds) and buffer (bytes)."""
        link = cls(sshd.port, Direction(bandwidth, latency, buffer), Direction(bandwidth, latency, buffer))
        with sshd.known_hosts.open("a") as known:
            known.write(f"[127.*]:{link.port} {sshd.public(sshd.host_keys['ed25519'])}\n")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_until_complete, args=(link._serve(),), name="slow link", daemon=True)
        thread.start()
        try:
            yield link
        finally:
            loop.call_soon_threadsafe(link._stopped.set)
            thread.join()
            loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        async with await asyncio.start_server(self._connected, sock=self._socket, limit=PIECE):
            await self._stopped.wait()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        address = str(writer.get_extra_info("sockname")[0])
        far_reader, far_writer = await asyncio.open_connection(address, self._target, limit=PIECE)
        self._writers += writer, far_writer
        await asyncio.gather(self.up.carry(address, reader, far_writer), self.down.carry(address, far_reader, writer))
