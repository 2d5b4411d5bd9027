"""What a worker is doing, in memory that the parent reads without asking: the parent never waits for a hung worker."""

import mmap
import struct
import time

ROOM = 8192
"""The longest name: an operation on the longest path that Linux takes (4096 bytes), with room to spare."""

_HEAD = struct.Struct("=dII")


class Mark:
    """The name of the running operation and when it started, and the group of a command that the worker started."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, ROOM)

    def start(self, name: bytes) -> None:
        """Said before an operation. The time is written last: until then nothing runs."""
        name = name[: ROOM - 64]
        self.memory[32 : 32 + len(name)] = name
        self.memory[8:12] = struct.pack("=I", len(name))
        self.memory[:8] = struct.pack("=d", time.monotonic())

    def finish(self) -> None:
        self.memory[:8] = b"\0\0\0\0\0\0\0\0"

    def started(self, group: int) -> None:
        """A command runs in this process group; 0 when it is gone."""
        self.memory[12:16] = struct.pack("=I", group)

    def read(self) -> "tuple[float, str, int]":
        """When the running operation started (0 when none runs), its name, and the group of the running command."""
        since, length, group = _HEAD.unpack(self.memory[:16])
        return since, self.memory[32 : 32 + min(length, ROOM - 64)].decode("utf-8", "surrogateescape"), group
